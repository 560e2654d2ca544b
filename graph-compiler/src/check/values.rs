//! A route by a value has a target for each word that the value can be.

use graph_definition::definition::{ByDefinition, RouteDefinition, Spanned};
use graph_definition::diagnostic::{Diagnostics, code, nearest};
use graph_model::path::{Path, Root};

use crate::analysis::Analysis;
use crate::analysis::reads::Site;
use crate::types::TypeKind;

pub(super) fn check(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    for (at, node) in analysis.model.definition.nodes.iter().enumerate() {
        if let RouteDefinition::By(by) = node.next() {
            check_route(analysis, at, by, diagnostics);
        }
    }
}

fn check_route(analysis: &Analysis<'_>, at: usize, by: &ByDefinition, diagnostics: &mut Diagnostics) {
    let model = &analysis.model;
    let (node, path) = (&model.definition.nodes[at].name, &by.by.value);
    let ty = analysis.type_env().type_of_path(at, Site::Next, path);
    if ty.has_secret() {
        let message = format!("`{path}` is or contains a secret, and the path of the run would reveal it");
        diagnostics.error(code::SECRET_COMPARED, model.place(&by.by.span), message).label("a secret");
        return;
    }
    let mut words: Vec<String> = match (ty.words(), &ty.kind) {
        // Nodes that cannot be read may write other words.
        (_, TypeKind::String) if !model.definition.is_well_formed => return,
        (Some(words), _) => words,
        (_, TypeKind::Boolean) => vec!["true".to_owned(), "false".to_owned()],
        // A path that leads to nothing is another mistake, unless the whole key has no value.
        (_, TypeKind::Never) if !is_of_nothing(analysis, at, path) => return,
        (_, TypeKind::Never) => Vec::new(),
        // A value of an unknown type fails the node if it has no target.
        (_, TypeKind::Any) => return,
        _ => {
            let message = format!("node `{node}` routes by `{path}`, which is {}", ty.clone().not_null());
            diagnostics
                .error(code::BAD_ROUTE_BY, model.place(&by.by.span), message)
                .label("neither words nor a boolean")
                .help("route by words of an `enum` or a boolean, or write a list of edges with conditions");
            return;
        }
    };
    let is_known = analysis.type_env().is_something(at, Site::Next, path, path.segments.len());
    if ty.nullable && !is_known {
        words.push(NULL.to_owned());
    }
    // A target for a word that a condition before excludes may be there, and need not.
    let left = analysis.type_env().type_with_words_left(at, Site::Next, path).words();
    let is_left = |word: &String| word == NULL || left.as_ref().is_none_or(|left| left.contains(word));
    let mut missing: Vec<&String> =
        words.iter().filter(|word| is_left(word) && by.to.iter().all(|(to, _)| to.value != **word)).collect();
    let unknown: Vec<&Spanned<String>> =
        by.to.iter().map(|(word, _)| word).filter(|word| !words.contains(&word.value)).collect();
    if let [first, others @ ..] = unknown.as_slice() {
        let message = format!("`{path}` is never {}", listed(unknown.iter().map(|word| &word.value)));
        let diagnostic = diagnostics.error(code::BAD_ROUTE_BY, model.place(&first.span), message);
        others.iter().for_each(|word| {
            diagnostic.related(model.place(&word.span), "nor this");
        });
        diagnostic.suggest(&first.value, missing.iter().map(|word| word.as_str()));
        if diagnostic.help.is_none() {
            diagnostic.suggest(&first.value, words.iter().map(String::as_str));
        }
        if diagnostic.help.is_none() {
            diagnostic.help(format!("its values are {}", listed(words.iter())));
        }
        // The targets of the words that were meant are there.
        for word in unknown {
            let meant = nearest(&word.value, missing.iter().map(|word| word.as_str())).map(str::to_owned);
            missing.retain(|word| Some(*word) != meant.as_ref());
        }
    }
    if !missing.is_empty() {
        let message = format!("node `{node}` leads nowhere when `{path}` is {}", listed(missing.iter().copied()));
        diagnostics
            .error(code::BAD_ROUTE_BY, model.place(&by.by.span), message)
            .label("every value needs a target")
            .help(format!("add it to `to`: `\"{}\": node`, or `{{}}` for an end", missing[0]));
    }
}

/// Whether a path leads into a key that is null in every run.
fn is_of_nothing(analysis: &Analysis<'_>, node: usize, path: &Path) -> bool {
    let key = Path { root: path.root, segments: path.segments.iter().take(1).cloned().collect() };
    path.root == Root::State && analysis.type_env().type_of_path(node, Site::Next, &key).kind == TypeKind::Never
}

/// The word of a route for a value that is not there.
const NULL: &str = "null";

fn listed<'w>(words: impl Iterator<Item = &'w String>) -> String {
    words.map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}

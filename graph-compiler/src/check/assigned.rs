//! State keys are set on every path to a place where they are read.

use graph_definition::definition::{EdgeList, RouteDefinition};
use graph_definition::diagnostic::{Diagnostic, Diagnostics, code};
use graph_definition::hash::HashSet;
use graph_model::path::{Path, Root};
use graph_model::program::{LAST_ERROR, RETRIES};

use super::correlated::Correlated;
use crate::analysis::Analysis;
use crate::analysis::guards;
use crate::analysis::reads::{PathRead, Site};

pub(super) fn check(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    // In a graph with missing nodes, the paths are not known.
    if !analysis.model.is_whole() {
        return;
    }
    let correlated = Correlated::new(analysis);
    let mut said = HashSet::default();
    let mut check = |read: &PathRead<'_>| {
        let Some(name) = read.path.segments.first().filter(|_| read.path.root == Root::State) else { return };
        let Some(key) = analysis.model.key_or_last_error(name).filter(|_| name != RETRIES) else { return };
        // One report for a key that is missing at several places of a node: one change corrects all of them.
        if analysis.type_env().is_set(read.node, read.site, key)
            || analysis.type_env().is_one_set(read.node, read.site, read.alternatives)
        {
            return;
        }
        // The search for a path covers the whole graph, so it is skipped if no more reports are shown.
        for code in [code::NOT_ALWAYS_SET, code::NEVER_SET] {
            if diagnostics.is_full(code, analysis.model.definition.source()) {
                if said.insert((read.node, key)) {
                    diagnostics.lint(code, read.place(analysis.model.definition), String::new());
                }
                return;
            }
        }
        let missed = Missed { name, key, path: path_without(analysis, &correlated, read, key) };
        if missed.path.is_some() && said.insert((read.node, key)) {
            report(analysis, read, missed, diagnostics);
        }
    };
    analysis.model.reads(&mut |read| {
        if !read.has_fallback && !matches!(read.site, Site::Next | Site::Hook) {
            check(&read);
        }
    });
    for (node, definition) in analysis.model.definition.nodes.iter().enumerate() {
        let RouteDefinition::First(EdgeList { edges, .. }) = definition.next() else { continue };
        let mut known: Vec<&Path> = Vec::new();
        for edge in edges {
            guards::walk(&edge.when, &mut known, &mut |test, known| {
                let path = &test.path.value;
                let read = PathRead::of_test(node, Site::Next, test);
                if path.root != Root::State || guards::asks_for_null(test) {
                    return;
                }
                // Evaluated last, since there may be many known paths.
                let is_guarded = || {
                    known.iter().any(|known| known.root == path.root && known.segments.first() == path.segments.first())
                };
                let key = path.segments.first().and_then(|name| analysis.model.key_or_last_error(name));
                if key.is_some_and(|key| !analysis.type_env().is_set(node, Site::Next, key)) && !is_guarded() {
                    check(&read);
                }
            });
            known.extend(guards::proven(&edge.when, false));
        }
    }
}

/// A key that is read where it may not be set.
struct Missed<'n> {
    name: &'n str,
    key: usize,
    /// A path on which nothing sets it.
    path: Option<Vec<usize>>,
}

/// Returns a path to the read of a key on which neither the key nor the alternatives before it in the expression are
/// set. Paths that contradict the known inputs are skipped.
fn path_without(
    analysis: &Analysis<'_>,
    correlated: &Correlated<'_, '_>,
    read: &PathRead<'_>,
    key: usize,
) -> Option<Vec<usize>> {
    let state = read.alternatives.iter().filter(|path| path.root == Root::State);
    let mut keys: Vec<usize> = state
        .filter_map(|path| analysis.model.key_or_last_error(path.segments.first()?))
        .filter(|&one| one != key)
        .collect();
    keys.push(key);
    let known = correlated.known_at(read.node);
    analysis.flow.path_without(&analysis.model, &keys, read.node, |node, edge| correlated.is_closed(&known, node, edge))
}

fn report(analysis: &Analysis<'_>, read: &PathRead<'_>, missed: Missed<'_>, diagnostics: &mut Diagnostics) {
    let Missed { name, key, path } = missed;
    let nodes = &analysis.model.definition.nodes;
    let node = &nodes[read.node].name;
    let place = read.place(analysis.model.definition);
    let setters = analysis.flow.setters_before(&analysis.model, key, read.node);
    let path = path.unwrap_or_default();
    let shown = show_path(path.iter().map(|&at| nodes[at].name.value.as_str()));
    if name == LAST_ERROR {
        let diagnostic = match setters.as_slice() {
            [] => diagnostics.lint(
                code::NEVER_SET,
                place,
                format!("node `{node}` reads the last error, and no failure leads to it"),
            ),
            _ => diagnostics.lint(
                code::NOT_ALWAYS_SET,
                place,
                format!("node `{node}` reads the last error, which may be missing"),
            ),
        };
        diagnostic.label(format!("nothing has failed on the path {shown}")).help(
            "lead here with `on_error` only, or read it after an edge `when: { path: state._last_error, op: exists }`",
        );
        note_alternatives(read, diagnostic);
        return;
    }
    let written = |at: usize| nodes[at].written().find(|written| written.value.as_str() == name);
    let own =
        written(read.node).filter(|_| matches!(read.site, Site::Assign(_) | Site::Params | Site::Item | Site::Over));
    let diagnostic = if setters.is_empty() {
        let message = format!("node `{node}` reads `state.{name}`, which is never set before");
        let diagnostic = diagnostics.lint(code::NEVER_SET, place, message);
        diagnostic.label(format!("not set on any path, such as {shown}"));
        diagnostic
    } else {
        let message = format!("node `{node}` reads `state.{name}`, which is not set on every path there");
        let diagnostic = diagnostics.lint(code::NOT_ALWAYS_SET, place, message);
        diagnostic.label(format!("not set on the path {shown}"));
        diagnostic
    };
    note_alternatives(read, diagnostic);
    if let Some(&skipped) = path.iter().find(|&&at| analysis.model.may_skip_assign(at) && written(at).is_some()) {
        diagnostic.note(format!(
            "if `{}` fails, the run continues without its assignments: `config.on_error` is `continue`",
            nodes[skipped].name
        ));
    }
    for pair in path.windows(2) {
        let [at, next] = [pair[0], pair[1]];
        if written(at).is_none() || analysis.model.successors(at).any(|one| one == next) {
            continue;
        }
        let name = &nodes[at].name;
        if analysis.model.error_successor(at) == Some(next) {
            diagnostic.note(format!("on that path `{name}` fails, and its assignments are skipped"));
        } else if analysis.model.timeout_successor(at) == Some(next) {
            diagnostic.note(format!("on that path the time of `{name}` is over, and its assignments are skipped"));
        }
    }
    let others = setters.into_iter().filter(|&at| at != read.node).find_map(written);
    let elsewhere = || (0..nodes.len()).find_map(written);
    if let Some(own) = own {
        diagnostic.related(analysis.model.place(&own.span), "set only after that");
    } else if let Some(other) = others.or_else(elsewhere) {
        diagnostic.related(analysis.model.place(&other.span), "set here");
    }
    diagnostic.help(if read.site == Site::Next {
        format!("give it a first value in `config.state`, or test it first: `all: [{{ path: state.{name}, op: exists }}, …]`")
    } else {
        format!(
            "give it a first value in `config.state`, or fall back on something that is there: `${{state.{name} || …}}`, or \
             lead here only `when: {{ path: state.{name}, op: exists }}`"
        )
    });
}

/// Adds a note that the paths before the last one of an expression may be missing too.
fn note_alternatives(read: &PathRead<'_>, diagnostic: &mut Diagnostic) {
    let before = read.alternatives.split_last().map_or(&[][..], |(_, before)| before);
    let shown: Vec<String> = before.iter().map(|path| format!("`{path}`")).collect();
    if !shown.is_empty() {
        diagnostic.note(format!("on that path, {} may be missing too", shown.join(" and ")));
    }
}

/// Formats a path as `` `a → b → c` ``; a long one by both of its ends.
pub(super) fn show_path<'n>(names: impl Iterator<Item = &'n str>) -> String {
    const SHOWN: usize = 8;
    let mut names: Vec<&str> = names.collect();
    if names.len() > SHOWN {
        names.splice(3..names.len() - 3, ["…"]);
    }
    format!("`{}`", names.join(" → "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_path_is_shown_by_its_ends() {
        assert_eq!(show_path(["a", "b"].into_iter()), "`a → b`");
        assert_eq!(show_path("a b c d e f g h i".split(' ')), "`a → b → c → … → g → h → i`");
    }
}

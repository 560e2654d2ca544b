//! The values that a payload shows to people.

use graph_definition::definition::{TermDefinition, TermKind};
use graph_model::path::Path;
use graph_model::template::Template;

/// Whether a payload shows the value of an expression, by itself or as a part of a value: the same expression, or each of its paths. A
/// value inside of a text does not count: its text could pretend to be another one.
pub(super) fn shows(payload: &TermDefinition, paths: &[Path]) -> bool {
    let is_each_shown = || paths.iter().all(|path| any_expression(payload, &mut |shown| is_shown(shown, &[path])));
    let all: Vec<&Path> = paths.iter().collect();
    any_expression(payload, &mut |shown| is_shown(shown, &all)) || paths.len() > 1 && is_each_shown()
}

/// Whether a payload shows the value at a path, by itself or as one of several values of an expression.
pub(super) fn mentions(payload: &TermDefinition, path: &Path) -> bool {
    any_expression(payload, &mut |shown| shown.iter().any(|shown| is_shown(std::slice::from_ref(shown), &[path])))
}

/// Whether values at these paths are parts of those that an expression has, each the same part.
fn is_shown(shown: &[Path], paths: &[&Path]) -> bool {
    let mut pairs = shown.iter().zip(paths);
    let rest = |path: &Path, shown: &Path| path.segments.get(shown.segments.len()..).map(<[String]>::to_vec);
    let first = shown.first().zip(paths.first()).and_then(|(shown, path)| rest(path, shown));
    shown.len() == paths.len()
        && pairs.all(|(shown, path)| {
            shown.root == path.root && path.segments.starts_with(&shown.segments) && rest(path, shown) == first
        })
}

/// Whether a value of a term is that of an expression for which `holds` is true.
fn any_expression(term: &TermDefinition, holds: &mut dyn FnMut(&[Path]) -> bool) -> bool {
    match &term.kind {
        TermKind::Template { template: Template::Whole(expression), .. } => holds(&expression.paths),
        TermKind::List(list) => list.iter().any(|term| any_expression(term, holds)),
        TermKind::Object(fields) => fields.iter().any(|(_, term)| any_expression(term, holds)),
        TermKind::Unreadable | TermKind::Literal(_) | TermKind::Template { .. } => false,
    }
}

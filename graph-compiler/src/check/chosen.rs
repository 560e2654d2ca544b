//! The author of a graph says what it calls: no text that somebody else chooses names it.
//!
//! The permissions bound what a computed `item_id` may name, and so does an `enum`. Where both leave it open, whoever writes the text
//! chooses between all that a pattern such as `rye.execute.tool.files.*` grants.

use graph_definition::definition::{CallDefinition, Sink, TermDefinition, locate};
use graph_definition::diagnostic::{Diagnostics, code};
use graph_model::capability::Capability;
use graph_model::path::{Path, Root};
use graph_model::program::{ItemType, Verb};

use super::permissions::{is_wild, may_grant};
use super::sinks::{is_declared, type_of};
use crate::analysis::Analysis;
use crate::analysis::calls::{Need, need, task_of};
use crate::analysis::reads::Site;
use crate::types::TypeKind;

pub(super) fn check(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    for (caller, call) in analysis.model.calls() {
        let (node, site) = caller.site();
        let Some((name, parameter)) = name_of(analysis, call) else { continue };
        name.templates(&mut |term, template, text| {
            for expression in template.expressions() {
                let places = expression.paths.iter().zip(&expression.ranges);
                let Some((path, range)) = places.into_iter().find(|(path, _)| is_open(analysis, node, site, path))
                else {
                    continue;
                };
                let span = locate(analysis.model.definition.source(), &term.span, text, range);
                let message = format!("`{path}` decides what `{parameter}` of {caller} calls");
                let input = match path.root {
                    Root::Inputs => "; if the caller of the graph is to choose, mark the input with `x-sink: item`",
                    _ => "",
                };
                diagnostics
                    .lint(code::CHOSEN_ITEM, analysis.model.place(&span), message)
                    .label(format!("this is {}", type_of(analysis, node, site, path).not_null()))
                    .help(format!("give it an `enum` of the names, or list in `permissions` each of them{input}"));
            }
        });
    }
}

/// Returns the text that names what a call calls, and its field, if the permissions leave open what that is.
fn name_of<'d>(analysis: &Analysis<'_>, call: &'d CallDefinition) -> Option<(&'d TermDefinition, &'static str)> {
    let (named, beginning) = match (need(call), task_of(call)) {
        (Need::Beginning(beginning), _) if call.executes_tool() => ((call.computed()?.0, "item_id"), beginning),
        (_, Some(task)) => (task.named?, format!("{}.", Capability::new(Verb::Execute, ItemType::Tool, None))),
        _ => return None,
    };
    let mut permissions = analysis.model.permissions().map(|pattern| &pattern.value);
    permissions.any(|pattern| is_wild(pattern) && may_grant(pattern, &beginning)).then_some(named)
}

/// Whether the text at a path can be any, and the author of the graph does not choose it.
fn is_open(analysis: &Analysis<'_>, node: usize, site: Site, path: &Path) -> bool {
    if path.root == Root::Inputs && is_declared(analysis, path, Sink::Item) {
        return false;
    }
    let ty = type_of(analysis, node, site, path);
    matches!(ty.kind, TypeKind::String | TypeKind::Any) && ty.words().is_none()
}

//! The graph declares what it may do, and that covers what it does.

use super::facts::Facts;
use crate::definition::NodeKind;
use crate::diagnostic::{Diagnostics, code};

pub(super) fn check(facts: &Facts<'_>, diagnostics: &mut Diagnostics) {
    let definition = facts.definition;
    let needed: Vec<String> = facts.tools.iter().map(|tool| tool.capability.to_string()).collect();
    let Some(permissions) = definition.permissions.as_ref().filter(|list| !list.value.is_empty()) else {
        // A list whose entries could not be read was reported.
        if definition.permissions.is_none() || !diagnostics.has_errors() {
            let span = definition.permissions.as_ref().map_or(definition.head.clone(), |list| list.span.clone());
            let message = match definition.permissions {
                None => "the graph declares no `permissions`, so it may not do anything",
                Some(_) => "the graph's `permissions` are empty, so it may not do anything",
            };
            diagnostics.error(code::NO_PERMISSIONS, facts.place(&span), message).help(match needed.as_slice() {
                [] => "list the capabilities that it may use, as in `permissions: [rye.execute.tool.*]`".to_owned(),
                _ => format!("write `permissions: [{}]`", needed.join(", ")),
            });
        }
        return;
    };
    for node in &definition.nodes {
        let NodeKind::Action(action) = &node.kind else { continue };
        let tool = &facts.tools[facts.tool_index(&action.item_id.value)];
        if !facts.permissions().any(|pattern| pattern.value.grants(&tool.capability)) {
            let message =
                format!("node `{}` may not call `{}`: the graph's permissions do not cover it", node.name, tool.id);
            diagnostics
                .error(code::MISSING_PERMISSION, facts.place(&action.item_id.span), message)
                .label(format!("needs `{}`", tool.capability))
                .related(facts.place(&permissions.span), "these are its permissions")
                .help(format!("add `{}` to `permissions`", tool.capability));
        }
    }
}

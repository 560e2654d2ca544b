//! `config.start` names a node.

use crate::analysis::model::Facts;
use crate::diagnostic::{Diagnostics, code};

pub(super) fn check(facts: &Facts<'_>, diagnostics: &mut Diagnostics) {
    // A missing `start` was reported when the file was parsed.
    let Some(start) = &facts.definition.start else { return };
    let name = start.value.as_str();
    if !facts.is_node(name) {
        diagnostics
            .error(
                code::NO_START,
                facts.place(&start.span),
                format!("the graph starts at `{name}`, which does not exist"),
            )
            .label("no node with this name")
            .suggest(name, facts.node_names());
    }
}

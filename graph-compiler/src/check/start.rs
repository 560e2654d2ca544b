//! `config.start` names a node.

use graph_definition::diagnostic::{Diagnostics, code};

use crate::analysis::Analysis;

pub(super) fn check(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    // A missing `start` was reported when the file was parsed.
    let Some(start) = &analysis.model.definition.start else { return };
    let name = start.value.as_str();
    if !analysis.model.is_node(name) {
        diagnostics
            .error(
                code::NO_START,
                analysis.model.place(&start.span),
                format!("the graph starts at `{name}`, which does not exist"),
            )
            .label("no node with this name")
            .suggest(name, analysis.model.node_names());
    }
}

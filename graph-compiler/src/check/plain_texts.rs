//! Texts that are not evaluated contain no templates: they would look computed.

use graph_definition::diagnostic::{Diagnostics, code};

use crate::analysis::Analysis;

pub(super) fn check(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    for node in &analysis.model.definition.nodes {
        for key in node.written_or_shared().filter(|key| key.value.as_str().contains("${")) {
            diagnostics
                .error(
                    code::TEMPLATE_AS_TEXT,
                    analysis.model.place(&key.span),
                    format!("the state key `{key}` is not computed"),
                )
                .label("taken as it is written")
                .help(
                    "the keys of the state are written in the graph; assign a value with computed names to one of them",
                );
        }
    }
}

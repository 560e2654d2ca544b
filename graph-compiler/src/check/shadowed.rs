//! No edge follows one that always matches (R90).

use graph_definition::diagnostic::{Diagnostics, code};

use crate::analysis::Analysis;
use crate::analysis::branches::begins;
use crate::analysis::edges::edges;

pub(super) fn check(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    for node in &analysis.model.definition.nodes {
        // All edges of a fan-out are followed.
        if begins(node.next()) {
            continue;
        }
        let edges = edges(node.next());
        let Some(always) = edges.iter().position(|edge| edge.always) else { continue };
        let Some(first) = edges[always].edge else { continue };
        let mut behind = edges[always + 1..].iter().filter_map(|edge| edge.edge);
        let Some(edge) = behind.next() else { continue };
        let message = format!("this edge of node `{}` is never followed", node.name);
        let diagnostic = diagnostics.error(code::SHADOWED_EDGE, analysis.model.place(&edge.span), message);
        diagnostic
            .related(analysis.model.place(&first.span), "this one has no `when`, so it always matches")
            .help("move the edge without `when` to the end of the list");
        behind.for_each(|edge| {
            diagnostic.related(analysis.model.place(&edge.span), "nor is this");
        });
    }
}

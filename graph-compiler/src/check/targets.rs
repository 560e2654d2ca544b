//! Edges lead to nodes that exist.

use graph_definition::diagnostic::{Diagnostics, code};

use crate::analysis::Analysis;
use crate::analysis::edges::edges;

pub(super) fn check(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    for node in analysis.model.definition.nodes.iter().filter(|node| !node.is_start()) {
        let name = &node.name;
        let of_edges = edges(node.next()).into_iter().filter_map(|edge| edge.to).map(|to| (to, None));
        let on_timeout = node.on_timeout().map(|to| (to, Some("on_timeout")));
        for (to, field) in of_edges.chain(on_timeout).chain(node.fewer().map(|to| (to, Some("fewer")))) {
            let target = to.value.as_str();
            if !analysis.model.is_node(target) {
                let leads = match field {
                    Some(field) => format!("`{field}` of node `{name}` leads"),
                    None => format!("node `{name}` sends the run"),
                };
                let message = format!("{leads} to `{target}`, which does not exist");
                diagnostics
                    .error(code::UNKNOWN_TARGET, analysis.model.place(&to.span), message)
                    .label("no node with this name")
                    .suggest(target, analysis.model.node_names());
            }
        }
        if let Some(to) = node.on_error() {
            let target = to.value.as_str();
            if !analysis.model.is_node(target) {
                let message = format!("a failure of node `{name}` leads to `{target}`, which does not exist");
                let diagnostic = diagnostics.error(code::UNKNOWN_ERROR_TARGET, analysis.model.place(&to.span), message);
                diagnostic.label("no node with this name");
                if matches!(target, "fail" | "continue") {
                    diagnostic.help(format!("the policy is set for the whole graph: `config.on_error: {target}`"));
                } else {
                    diagnostic.suggest(target, analysis.model.node_names());
                }
            }
        }
    }
}

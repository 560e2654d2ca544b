//! `config.start` names nodes where a run can begin.

use graph_definition::definition::{START, Spanned};
use graph_definition::diagnostic::{Diagnostics, code};
use graph_model::name::NodeName;

use crate::analysis::Analysis;
use crate::analysis::edges::edges;

pub(super) fn check(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    let model = &analysis.model;
    let first = model.definition.nodes.iter().find(|node| node.is_start());
    let Some(first) = first else {
        // A missing `start` was reported when the file was parsed.
        if let Some(start) = &model.definition.start {
            check_name(analysis, start, diagnostics);
            check_join(analysis, start, diagnostics);
        }
        return;
    };
    for to in edges(first.next()).into_iter().filter_map(|edge| edge.to) {
        check_name(analysis, to, diagnostics);
        check_join(analysis, to, diagnostics);
        let Some(node) = model.node(to.value.as_str()).map(|node| &model.definition.nodes[node]) else { continue };
        if node.cancels().is_some() {
            let message = format!("the graph starts at `{to}`, which cancels all other branches at once");
            diagnostics
                .error(code::NO_START, model.place(&to.span), message)
                .help("start at this node only, or remove it from the list");
        }
    }
    if let Some(taken) = model.node(START) {
        let name = &model.definition.nodes[taken].name;
        diagnostics
            .error(code::NO_START, model.place(&name.span), format!("a node cannot be called `{START}` in this graph"))
            .related(model.place(&first.name.span), "the list that has this name")
            .help("give the node another name");
    }
}

/// Reports a start that waits for branches: none have begun.
fn check_join(analysis: &Analysis<'_>, start: &Spanned<NodeName>, diagnostics: &mut Diagnostics) {
    let model = &analysis.model;
    let waits_for = model.node(start.value.as_str()).map(|node| &model.definition.nodes[node].waits_for);
    if let Some(waited) = waits_for.and_then(|waits_for| waits_for.last()) {
        let message = format!("the graph starts at `{start}`, which waits for branches");
        diagnostics
            .error(code::NO_START, model.place(&start.span), message)
            .related(model.place(&waited.span), "it waits for these")
            .help("start at the nodes that it waits for, or at the one that begins their branches");
    }
}

fn check_name(analysis: &Analysis<'_>, start: &Spanned<NodeName>, diagnostics: &mut Diagnostics) {
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

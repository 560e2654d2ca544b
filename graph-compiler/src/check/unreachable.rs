//! Every node can be reached from the start.

use graph_definition::diagnostic::{Diagnostics, code};

use crate::analysis::Analysis;
use crate::analysis::edges::edges;

pub(super) fn check(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    let Some(start) = analysis.model.start.filter(|_| analysis.model.is_whole()) else { return };
    let mut reached = vec![false; analysis.model.definition.nodes.len()];
    analysis.model.roots().for_each(|root| follow(analysis, root, &mut reached));
    let unreached: Vec<usize> = (0..reached.len()).filter(|&node| !reached[node]).collect();
    // A node to which only unreachable nodes lead is not reported separately. So the nodes to which no node leads are
    // reported first; then, of nodes that lead to each other in a circle, the first in the file.
    let mut is_led_to = vec![false; reached.len()];
    for &node in &unreached {
        onward(analysis, node).filter(|&to| to != node).for_each(|to| is_led_to[to] = true);
    }
    let (behind, first): (Vec<usize>, Vec<usize>) = unreached.into_iter().partition(|&node| is_led_to[node]);
    for node in first.into_iter().chain(behind) {
        if reached[node] {
            continue;
        }
        follow(analysis, node, &mut reached);
        let name = &analysis.model.definition.nodes[node].name;
        diagnostics
            .error(code::UNREACHABLE, analysis.model.place(&name.span), format!("no run can reach node `{name}`"))
            .label(format!("no path from `{}` leads here", analysis.model.definition.nodes[start].name))
            .help("lead an edge to it, or remove it");
    }
}

/// Marks the nodes that can be reached from a node.
fn follow(analysis: &Analysis<'_>, from: usize, reached: &mut [bool]) {
    let mut waiting = vec![from];
    while let Some(node) = waiting.pop() {
        if !std::mem::replace(&mut reached[node], true) {
            waiting.extend(onward(analysis, node));
        }
    }
}

/// Returns the targets of all edges of a node, including edges that are never followed, which another rule reports.
fn onward<'f>(analysis: &'f Analysis<'_>, node: usize) -> impl Iterator<Item = usize> + 'f {
    let next = edges(analysis.model.definition.nodes[node].next());
    let targets = next.into_iter().filter_map(|edge| analysis.model.node(edge.to?.value.as_str()));
    targets.chain(analysis.model.other_successors(node)).collect::<Vec<_>>().into_iter()
}

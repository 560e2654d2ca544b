//! Every node can be reached from the start.

use crate::analysis::model::{Facts, edges};
use crate::diagnostic::{Diagnostics, code};

pub(super) fn check(facts: &Facts<'_>, diagnostics: &mut Diagnostics) {
    let Some(start) = facts.start.filter(|_| facts.is_whole()) else { return };
    let mut reached = vec![false; facts.definition.nodes.len()];
    follow(facts, start, &mut reached);
    let unreached: Vec<usize> = (0..reached.len()).filter(|&node| !reached[node]).collect();
    // What only leads on from a node that no run can reach follows from that: first those to which nothing leads at all,
    // then, of those that lead to each other in a circle, the first in the file.
    let mut is_led_to = vec![false; reached.len()];
    for &node in &unreached {
        onward(facts, node).filter(|&to| to != node).for_each(|to| is_led_to[to] = true);
    }
    let (behind, first): (Vec<usize>, Vec<usize>) = unreached.into_iter().partition(|&node| is_led_to[node]);
    for node in first.into_iter().chain(behind) {
        if reached[node] {
            continue;
        }
        follow(facts, node, &mut reached);
        let name = &facts.definition.nodes[node].name;
        diagnostics
            .error(code::UNREACHABLE, facts.place(&name.span), format!("no run can reach node `{name}`"))
            .label(format!("no way from `{}` leads here", facts.definition.nodes[start].name))
            .help("lead an edge to it, or remove it");
    }
}

/// Marks what can be reached from a node.
fn follow(facts: &Facts<'_>, from: usize, reached: &mut [bool]) {
    let mut waiting = vec![from];
    while let Some(node) = waiting.pop() {
        if !std::mem::replace(&mut reached[node], true) {
            waiting.extend(onward(facts, node));
        }
    }
}

/// Returns where all edges of a node lead, also those that are never followed: that they are not is reported there.
fn onward<'f>(facts: &'f Facts<'_>, node: usize) -> impl Iterator<Item = usize> + 'f {
    let next = edges(facts.definition.nodes[node].next());
    let targets = next.into_iter().filter_map(|edge| facts.node(edge.to?.value.as_str()));
    targets.chain(facts.error_successor(node)).collect::<Vec<_>>().into_iter()
}

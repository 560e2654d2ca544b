//! Every node can be reached from the start.

use super::facts::Facts;
use crate::diagnostic::{Diagnostics, code};

pub(super) fn check(facts: &Facts<'_>, diagnostics: &mut Diagnostics) {
    let Some(start) = facts.start.filter(|_| facts.is_whole()) else { return };
    let mut reached = vec![false; facts.definition.nodes.len()];
    let mut waiting = vec![start];
    while let Some(node) = waiting.pop() {
        if !std::mem::replace(&mut reached[node], true) {
            waiting.extend(facts.successors(node).chain(facts.error_successor(node)));
        }
    }
    for (node, _) in facts.definition.nodes.iter().zip(reached).filter(|(_, reached)| !reached) {
        diagnostics
            .error(code::UNREACHABLE, facts.place(&node.name.span), format!("no run can reach node `{}`", node.name))
            .label(format!("no way from `{}` leads here", facts.definition.nodes[start].name))
            .help("lead an edge to it, or remove it");
    }
}

//! A path leads from every node to an end.

use graph_definition::diagnostic::{Diagnostics, code};

use crate::analysis::Analysis;

pub(super) fn check(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    // If a run that has used up its steps ends successfully, looping until then may be intended.
    if !analysis.model.is_whole() || analysis.model.may_end_anywhere() {
        return;
    }
    let (model, branches) = (&analysis.model, analysis.flow.branches());
    let count = model.definition.nodes.len();
    // Where branches do not meet properly, the joins behind them are not known.
    let is_known = branches.faults().is_empty();
    let onward = |node| {
        let joins = branches.beyond(node).iter().chain(branches.broken(node)).copied();
        model.onward(node).chain(joins.filter(move |_| is_known))
    };
    let mut before: Vec<Vec<usize>> = vec![Vec::new(); count];
    for node in 0..count {
        onward(node).for_each(|next| before[next].push(node));
    }
    let mut ends: Vec<bool> =
        (0..count).map(|node| if is_known { branches.ends_run(model, node) } else { model.may_end(node) }).collect();
    // A return in another branch may cancel the loop.
    let cancelling: Vec<usize> = (0..count).filter(|&node| model.definition.nodes[node].cancels().is_some()).collect();
    for (node, ends) in ends.iter_mut().enumerate() {
        *ends = *ends || cancelling.iter().any(|&other| branches.are_concurrent(node, other));
    }
    let mut waiting: Vec<usize> = (0..count).filter(|&node| ends[node]).collect();
    while let Some(node) = waiting.pop() {
        waiting.extend(before[node].iter().copied().filter(|&one| !std::mem::replace(&mut ends[one], true)));
    }
    let mut reported = ends;
    // No run comes to a node that cannot be reached, which is another mistake.
    (0..count).filter(|&node| !analysis.flow.is_reached(node)).for_each(|node| reported[node] = true);
    for node in 0..count {
        if reported[node] {
            continue;
        }
        // One report for all nodes of a loop, and for the nodes before it.
        let mut round = vec![node];
        reported[node] = true;
        while let Some(one) = round.pop() {
            // A node that could end would be an end for those that lead to it.
            round.extend(onward(one).filter(|&next| !std::mem::replace(&mut reported[next], true)));
        }
        let name = |at: usize| &analysis.model.definition.nodes[at].name;
        let path: Vec<String> = cycle_from(analysis, node).into_iter().map(|at| name(at).to_string()).collect();
        diagnostics
            .error(
                code::NO_END,
                analysis.model.place(&name(node).span),
                format!("no run that comes to node `{}` can end", name(node)),
            )
            .label(format!("loops: {}", path.join(" → ")))
            .help("give one of these nodes an edge that leads to an end");
    }
}

/// Follows first edges from a node until a node repeats, or the path is too long to show.
fn cycle_from(analysis: &Analysis<'_>, from: usize) -> Vec<usize> {
    const SHOWN: usize = 8;
    let mut path = vec![from];
    while let Some(next) = path.last().and_then(|&at| analysis.model.successors(at).next()) {
        let again = path.contains(&next);
        path.push(next);
        if again || path.len() > SHOWN {
            break;
        }
    }
    path
}

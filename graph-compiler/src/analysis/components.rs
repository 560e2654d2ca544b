//! Strongly connected components: nodes that lead to each other.

/// Returns the strongly connected components, each after those that it leads to (Tarjan, without recursion).
pub(crate) fn strongly_connected(next: &[Vec<usize>]) -> Vec<Vec<usize>> {
    const NEW: usize = usize::MAX;
    let count = next.len();
    let (mut order, mut low, mut open) = (vec![NEW; count], vec![0; count], vec![false; count]);
    let (mut stack, mut components, mut number) = (Vec::new(), Vec::new(), 0);
    for root in 0..count {
        if order[root] != NEW {
            continue;
        }
        let mut calls = vec![(root, 0)];
        while let Some(&mut (node, ref mut at)) = calls.last_mut() {
            if *at == 0 {
                order[node] = number;
                low[node] = number;
                number += 1;
                stack.push(node);
                open[node] = true;
            }
            if let Some(&to) = next[node].get(*at) {
                *at += 1;
                if order[to] == NEW {
                    calls.push((to, 0));
                } else if open[to] {
                    low[node] = low[node].min(order[to]);
                }
                continue;
            }
            calls.pop();
            if let Some(&(caller, _)) = calls.last() {
                low[caller] = low[caller].min(low[node]);
            }
            if low[node] == order[node] {
                let from = stack.iter().rposition(|&other| other == node).unwrap_or_default();
                let mut component: Vec<usize> = stack.drain(from..).collect();
                component.iter().for_each(|&node| open[node] = false);
                component.sort_unstable();
                components.push(component);
            }
        }
    }
    components
}

/// Returns for each node whether a path leads from it back to it.
pub(crate) fn cyclic(next: &[Vec<usize>]) -> Vec<bool> {
    let mut cyclic = vec![false; next.len()];
    for component in strongly_connected(next) {
        component.iter().for_each(|&node| cyclic[node] = component.len() > 1 || next[node].contains(&node));
    }
    cyclic
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_hold_mutually_reachable_nodes_successors_first() {
        let next = [vec![1], vec![2, 3], vec![1], vec![3], vec![0]].map(|mut next: Vec<usize>| {
            next.sort_unstable();
            next
        });
        assert_eq!(strongly_connected(&next), [vec![3], vec![1, 2], vec![0], vec![4]]);
        assert_eq!(cyclic(&next), [false, true, true, true, false]);
        assert!(strongly_connected(&[]).is_empty());
    }
}

//! The graph as nodes that lead to nodes: what its conditions allow, which nodes go round together, and how long a way can be.

use super::coverage::{Judgement, Ways};
use super::model::{Facts, edges};
use crate::hash::{HashMap, HashSet};

/// Of how many nodes it is worked out when the visits that they ask for are made: for each, all nodes are looked at.
const MOST_LATE: usize = 64;

/// Where each node can lead, and which nodes lead to each other.
pub(crate) struct Web {
    /// For each node, the nodes that its edges and its failure can lead to.
    pub(crate) next: Vec<Vec<usize>>,
    /// Whether a run can end at a node.
    pub(crate) ends: Vec<bool>,
    /// For each node, on which of its visits it can lead to each of the nodes in `next` for the first time, or an earlier one.
    first: Vec<Vec<u64>>,
    /// For each node, on which of its visits a run can end there for the first time, or an earlier one.
    first_end: Vec<u64>,
    /// The groups of nodes that lead to each other, those that are led to first.
    pub(crate) groups: Vec<Vec<usize>>,
    /// For each node, its group.
    pub(crate) group_of: Vec<usize>,
}

impl Web {
    pub(crate) fn of(facts: &Facts<'_>) -> Self {
        let count = facts.definition.nodes.len();
        let ways = |node: usize| facts.judgement(node).map(|Judgement { ways, .. }| ways);
        let can_follow = |node: usize, edge: usize| ways(node).is_none_or(|ways| ways.can_follow[edge]);
        let (next, first): (Vec<Vec<usize>>, Vec<Vec<u64>>) = (0..count)
            .map(|node| {
                let first = |edge: usize| ways(node).map_or(1, |ways| ways.first_visit[edge]);
                let followed = facts.ways(node).zip(facts.successors(node)).filter(|(edge, _)| can_follow(node, *edge));
                let followed = followed.map(|(edge, to)| (to, first(edge)));
                // A failure may come on any visit.
                let mut next: Vec<(usize, u64)> =
                    followed.chain(facts.error_successor(node).map(|to| (to, 1))).collect();
                next.sort_unstable();
                next.dedup_by_key(|(to, _)| *to);
                next.into_iter().unzip()
            })
            .unzip();
        let first_end = (0..count)
            .map(|node| {
                let first = |ways: &Ways| {
                    let list = edges(facts.definition.nodes[node].next());
                    let out = list.iter().zip(ways.can_follow.iter().zip(&ways.first_visit));
                    let out = out.filter(|(edge, (can, _))| **can && edge.to.is_none()).map(|(_, (_, first))| *first);
                    out.chain(ways.is_open.then_some(ways.first_open)).min().unwrap_or(1)
                };
                ways(node).map_or(1, first)
            })
            .collect();
        let ends = (0..count)
            .map(|node| {
                let leads_nowhere = |ways: &Ways| {
                    let list = edges(facts.definition.nodes[node].next());
                    ways.is_open || list.iter().zip(&ways.can_follow).any(|(edge, can)| *can && edge.to.is_none())
                };
                facts.may_end(node) && ways(node).is_none_or(leads_nowhere)
            })
            .collect();
        let groups = groups(&next);
        let mut group_of = vec![0; count];
        for (at, group) in groups.iter().enumerate() {
            group.iter().for_each(|&node| group_of[node] = at);
        }
        Self { next, ends, first, first_end, groups, group_of }
    }

    /// Whether the nodes of a group go round: there are several, or the one leads to itself.
    pub(crate) fn goes_round(&self, group: &[usize]) -> bool {
        group.len() > 1 || group.iter().any(|&node| self.next[node].contains(&node))
    }

    /// Whether the nodes of a group go round even if they may not lead to `without`.
    pub(crate) fn goes_round_without(&self, group: &[usize], without: &[usize]) -> bool {
        self.longest(group, without).is_none()
    }

    /// Returns how many nodes of a group, but for `without`, can follow each other; `None` if there is no end to it.
    pub(crate) fn longest(&self, group: &[usize], without: &[usize]) -> Option<u64> {
        // A graph may have many groups: nothing here is about all nodes.
        let without: HashSet<usize> = without.iter().copied().collect();
        let own: Vec<usize> = group.iter().copied().filter(|node| !without.contains(node)).collect();
        let place: HashMap<usize, usize> = own.iter().enumerate().map(|(at, &node)| (node, at)).collect();
        let inner: Vec<Vec<usize>> = own
            .iter()
            .map(|&node| self.next[node].iter().filter_map(|next| place.get(next).copied()).collect())
            .collect();
        let mut longest = vec![0_u64; own.len()];
        // Each group comes after those that it leads to.
        for part in groups(&inner) {
            let [node] = part.as_slice() else { return None };
            if inner[*node].contains(node) {
                return None;
            }
            let behind = inner[*node].iter().map(|&next| longest[next]).max().unwrap_or_default();
            longest[*node] = behind + 1;
        }
        Some(longest.into_iter().max().unwrap_or_default())
    }

    /// Returns how many steps a run that begins at a node takes at least until it ends, and the shortest way that can be
    /// taken in so many; `None` if no way leads to an end.
    ///
    /// Where an edge can be followed only on a later visit of its node, the run goes round until then.
    pub(crate) fn fewest_steps(&self, from: usize) -> Option<(u64, Vec<usize>)> {
        let bounds = self.bounds(from);
        let bound = |node: usize, to: Option<usize>| bounds.get(&(node, to)).copied().unwrap_or_default();
        let mut most: Vec<u64> = bounds.values().copied().chain([0]).collect();
        most.sort_unstable();
        most.dedup();
        most.into_iter().filter(|most| *most < u64::MAX).find_map(|most| {
            let way = self.shortest(
                &[from],
                |node| self.ends[node] && bound(node, None) <= most,
                |node, to| bound(node, Some(to)) <= most,
            )?;
            Some((most.max(way.len() as u64), way))
        })
    }

    /// Returns how many steps a run takes at least that follows an edge which needs several visits of its node; without a
    /// target for an end.
    fn bounds(&self, from: usize) -> HashMap<(usize, Option<usize>), u64> {
        let edges = |node: usize| {
            let next = self.next[node].iter().zip(&self.first[node]).map(|(&to, &first)| (Some(to), first));
            next.chain([(None, self.first_end[node])]).filter(|(_, first)| *first > 1)
        };
        let late: Vec<usize> = (0..self.next.len()).filter(|&node| edges(node).next().is_some()).collect();
        if late.len() > MOST_LATE {
            return HashMap::default();
        }
        if late.is_empty() {
            return HashMap::default();
        }
        let steps = |way: Option<Vec<usize>>| way.map_or(u64::MAX, |way| way.len() as u64);
        let to_end = self.steps_to_end();
        let mut bounds = HashMap::default();
        for node in late {
            let before = steps(self.shortest(&[from], |at| at == node, |_, _| true));
            // From the node to itself: as many nodes as are visited between two of its visits, and one of these.
            let round = steps(self.shortest(&self.next[node], |at| at == node, |_, _| true));
            for (to, first) in edges(node) {
                let behind = to.map_or(0, |to| to_end[to]);
                let again = (first - 1).saturating_mul(round);
                bounds.insert((node, to), before.saturating_add(again).saturating_add(behind));
            }
        }
        bounds
    }

    /// Returns, for each node, how many nodes are visited from it to where a run can end, both included; where no way leads to
    /// an end, `u64::MAX`.
    fn steps_to_end(&self) -> Vec<u64> {
        let mut before: Vec<Vec<usize>> = vec![Vec::new(); self.next.len()];
        for (node, next) in self.next.iter().enumerate() {
            next.iter().for_each(|&next| before[next].push(node));
        }
        let mut steps = vec![u64::MAX; self.next.len()];
        let mut waiting: std::collections::VecDeque<usize> =
            (0..self.next.len()).filter(|&node| self.ends[node]).collect();
        waiting.iter().for_each(|&node| steps[node] = 1);
        while let Some(node) = waiting.pop_front() {
            for &earlier in &before[node] {
                if steps[earlier] == u64::MAX {
                    steps[earlier] = steps[node] + 1;
                    waiting.push_back(earlier);
                }
            }
        }
        steps
    }

    /// Returns the shortest way from one of several nodes to one that is looked for, along the edges that may be followed.
    fn shortest(
        &self,
        from: &[usize],
        is_found: impl Fn(usize) -> bool,
        may_follow: impl Fn(usize, usize) -> bool,
    ) -> Option<Vec<usize>> {
        let mut before: Vec<Option<usize>> = vec![None; self.next.len()];
        let mut waiting: std::collections::VecDeque<usize> = from.iter().copied().collect();
        let mut seen = vec![false; self.next.len()];
        from.iter().for_each(|&node| seen[node] = true);
        while let Some(node) = waiting.pop_front() {
            if is_found(node) {
                let mut way = vec![node];
                while let Some(earlier) = way.last().and_then(|&node| before[node]) {
                    way.push(earlier);
                }
                way.reverse();
                return Some(way);
            }
            for &next in &self.next[node] {
                if may_follow(node, next) && !std::mem::replace(&mut seen[next], true) {
                    before[next] = Some(node);
                    waiting.push_back(next);
                }
            }
        }
        None
    }
}

/// Returns the nodes that lead to each other in groups, each after those that it leads to (Tarjan, without recursion).
pub(crate) fn groups(next: &[Vec<usize>]) -> Vec<Vec<usize>> {
    const NEW: usize = usize::MAX;
    let count = next.len();
    let (mut order, mut low, mut open) = (vec![NEW; count], vec![0; count], vec![false; count]);
    let (mut stack, mut groups, mut number) = (Vec::new(), Vec::new(), 0);
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
                let mut group: Vec<usize> = stack.drain(from..).collect();
                group.iter().for_each(|&node| open[node] = false);
                group.sort_unstable();
                groups.push(group);
            }
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_lead_to_each_other_are_a_group_behind_those_they_lead_to() {
        let next = [vec![1], vec![2, 3], vec![1], vec![3], vec![0]].map(|mut next: Vec<usize>| {
            next.sort_unstable();
            next
        });
        assert_eq!(groups(&next), [vec![3], vec![1, 2], vec![0], vec![4]]);
        assert!(groups(&[]).is_empty());
    }

    #[test]
    fn a_way_through_a_group_is_as_long_as_what_does_not_go_round() {
        let next = vec![vec![1, 2], vec![2], vec![0, 3], vec![]];
        let mut web = Web {
            groups: groups(&next),
            first: next.iter().map(|next| vec![1; next.len()]).collect(),
            first_end: vec![1; next.len()],
            ends: vec![false, false, false, true],
            next,
            group_of: Vec::new(),
        };
        assert!(web.goes_round_without(&[0, 1, 2], &[]));
        assert_eq!(web.longest(&[0, 1, 2], &[2]), Some(2));
        assert_eq!(web.longest(&[0, 1, 2], &[0]), Some(2));
        assert_eq!(web.fewest_steps(0), Some((3, vec![0, 2, 3])));
        // The way out is open on the third visit, and a round takes two steps.
        web.first[2][1] = 3;
        assert_eq!(web.fewest_steps(0), Some((7, vec![0, 2, 3])));
        // A node that nothing leads back to is never visited twice.
        web.first_end[3] = 2;
        assert_eq!(web.fewest_steps(0), None);
    }
}

//! The graph as nodes that lead to nodes: the edges that its conditions allow, its loops, and the lengths of its paths.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use graph_definition::hash::{HashMap, HashSet};

use super::branches::Branches;
use super::components::strongly_connected;
use super::coverage::{Coverage, Followed};
use super::edges::edges;
use super::model::Model;

/// For how many nodes the numbers of visits in their conditions are taken into account: for each, all nodes are traversed.
const MOST_LATE: usize = 64;

/// The successors of each node, and the nodes that lead to each other.
pub(crate) struct ControlFlow {
    /// For each node, the nodes that its edges and its failure can lead to.
    pub(crate) next: Vec<Vec<usize>>,
    /// Whether a run can end at a node.
    pub(crate) ends: Vec<bool>,
    /// For each node and each of the nodes in `next`, the number of the first visit on which it can lead there, or a
    /// lower number.
    first: Vec<Vec<u64>>,
    /// For each node, the number of the first visit on which a run can end there, or a lower number.
    first_end: Vec<u64>,
    /// How many joins may be passed over to another node, without being visited: on a path they count as steps.
    passed_over: u64,
    /// The strongly connected components, each after those that it leads to.
    pub(crate) components: Vec<Vec<usize>>,
    /// For each node, its component.
    pub(crate) component_of: Vec<usize>,
}

impl ControlFlow {
    /// Finds the successors of each node, as its conditions allow them.
    pub(crate) fn analyse(model: &Model<'_>, branches: &Branches, coverage: &[Option<Coverage<'_>>]) -> Self {
        let count = model.definition.nodes.len();
        let followed = |node: usize| coverage[node].as_ref().map(|coverage| &coverage.followed);
        let can_follow = |node: usize, edge: usize| followed(node).is_none_or(|followed| followed.can_follow[edge]);
        let (next, first): (Vec<Vec<usize>>, Vec<Vec<u64>>) = (0..count)
            .map(|node| {
                let first = |edge: usize| followed(node).map_or(1, |followed| followed.first_visit[edge]);
                let open =
                    model.edge_indices(node).zip(model.successors(node)).filter(|(edge, _)| can_follow(node, *edge));
                let open = open.map(|(edge, to)| (to, first(edge)));
                // A failure may occur on any visit.
                let beyond = model.other_successors(node);
                let beyond = beyond.chain(branches.beyond(node).iter().chain(branches.broken(node)).copied());
                let mut next: Vec<(usize, u64)> = open.chain(beyond.map(|to| (to, 1))).collect();
                next.sort_unstable();
                next.dedup_by_key(|(to, _)| *to);
                next.into_iter().unzip()
            })
            .unzip();
        let first_end = (0..count)
            .map(|node| {
                let first = |followed: &Followed| {
                    let list = edges(model.definition.nodes[node].next());
                    let out = list.iter().zip(followed.can_follow.iter().zip(&followed.first_visit));
                    let out = out.filter(|(edge, (can, _))| **can && edge.to.is_none()).map(|(_, (_, first))| *first);
                    out.chain(followed.is_open.then_some(followed.first_open)).min().unwrap_or(1)
                };
                followed(node).map_or(1, first)
            })
            .collect();
        let ends = (0..count)
            .map(|node| {
                let leads_nowhere = |followed: &Followed| {
                    let list = edges(model.definition.nodes[node].next());
                    followed.is_open
                        || list.iter().zip(&followed.can_follow).any(|(edge, can)| *can && edge.to.is_none())
                };
                branches.ends_run(model, node) && (!model.may_end(node) || followed(node).is_none_or(leads_nowhere))
            })
            .collect();
        let components = strongly_connected(&next);
        let mut component_of = vec![0; count];
        for (at, component) in components.iter().enumerate() {
            component.iter().for_each(|&node| component_of[node] = at);
        }
        let passed_over = (0..count).filter(|&node| model.fewer_successor(node).is_some()).count() as u64;
        Self { next, ends, first, first_end, passed_over, components, component_of }
    }

    /// Whether a component is a loop: it has several nodes, or its one node leads to itself.
    pub(crate) fn is_cyclic(&self, component: &[usize]) -> bool {
        component.len() > 1 || component.iter().any(|&node| self.next[node].contains(&node))
    }

    /// Whether a component still has a loop if the nodes in `without` are removed.
    pub(crate) fn is_cyclic_without(&self, component: &[usize], without: &[usize]) -> bool {
        self.longest(component, without).is_none()
    }

    /// Returns how many nodes of a component, except those in `without`, can follow each other; `None` if they form a loop.
    pub(crate) fn longest(&self, component: &[usize], without: &[usize]) -> Option<u64> {
        // A graph may have many components, so nothing here traverses all nodes.
        let without: HashSet<usize> = without.iter().copied().collect();
        let own: Vec<usize> = component.iter().copied().filter(|node| !without.contains(node)).collect();
        let place: HashMap<usize, usize> = own.iter().enumerate().map(|(at, &node)| (node, at)).collect();
        let inner: Vec<Vec<usize>> = own
            .iter()
            .map(|&node| self.next[node].iter().filter_map(|next| place.get(next).copied()).collect())
            .collect();
        let mut longest = vec![0_u64; own.len()];
        // Each component comes after those that it leads to.
        for part in strongly_connected(&inner) {
            let [node] = part.as_slice() else { return None };
            if inner[*node].contains(node) {
                return None;
            }
            let behind = inner[*node].iter().map(|&next| longest[next]).max().unwrap_or_default();
            longest[*node] = behind + 1;
        }
        Some(longest.into_iter().max().unwrap_or_default())
    }

    /// Returns the least cost of a run that begins at one of several nodes until it ends, and a path that is possible at that cost; `None`
    /// if no path leads to an end. `cost` is that of a visit.
    ///
    /// If an edge can be followed only on a later visit of its node, the run stays in the loop until then.
    pub(crate) fn cheapest(&self, from: &[usize], cost: &dyn Fn(usize) -> u64) -> Option<(u64, Vec<usize>)> {
        let bounds = self.bounds(from, cost);
        let bound = |node: usize, to: Option<usize>| bounds.get(&(node, to)).copied().unwrap_or_default();
        let mut most: Vec<u64> = bounds.values().copied().chain([0]).collect();
        most.sort_unstable();
        most.dedup();
        let mut cheapest: Option<(u64, Vec<usize>)> = None;
        for most in most.into_iter().filter(|most| *most < u64::MAX) {
            // A run that follows an edge with a greater bound costs that bound.
            if cheapest.as_ref().is_some_and(|(known, _)| *known <= most) {
                break;
            }
            let is_end = |node: usize| self.ends[node] && bound(node, None) <= most;
            let Some((along, path)) = self.shortest(from, cost, &is_end, &|node, to| bound(node, Some(to)) <= most)
            else {
                continue;
            };
            let least = along.max(most);
            if cheapest.as_ref().is_none_or(|(known, _)| least < *known) {
                cheapest = Some((least, path));
            }
        }
        cheapest
    }

    /// Returns how often a run that begins at one of several nodes visits some node at least until it ends; `None` if no path
    /// leads to an end.
    pub(crate) fn fewest_visits(&self, from: &[usize]) -> Option<u64> {
        let mut firsts: Vec<u64> = self.first.iter().flatten().chain(&self.first_end).copied().collect();
        firsts.sort_unstable();
        firsts.dedup();
        let first = |node: usize, to: usize| {
            let edges = self.next[node].iter().zip(&self.first[node]);
            edges.filter(|(next, _)| **next == to).map(|(_, first)| *first).min().unwrap_or_default()
        };
        firsts.into_iter().find(|&most| {
            let is_end = |node: usize| self.ends[node] && self.first_end[node] <= most;
            self.shortest(from, &|_| 1, &is_end, &|node, to| first(node, to) <= most).is_some()
        })
    }

    /// Returns, for each edge that needs several visits of its node, how much a run costs at least that follows it. An end has no target.
    fn bounds(&self, from: &[usize], cost: &dyn Fn(usize) -> u64) -> HashMap<(usize, Option<usize>), u64> {
        let edges = |node: usize| {
            let next = self.next[node].iter().zip(&self.first[node]).map(|(&to, &first)| (Some(to), first));
            next.chain([(None, self.first_end[node])]).filter(|(_, first)| *first > 1)
        };
        let late: Vec<usize> = (0..self.next.len()).filter(|&node| edges(node).next().is_some()).collect();
        if late.is_empty() || late.len() > MOST_LATE || self.passed_over > 0 {
            return HashMap::default();
        }
        let to_end = self.costs_to_end(cost);
        let mut bounds = HashMap::default();
        for node in late {
            let (before, round) = self.rounds(from, node, cost);
            for (to, first) in edges(node) {
                let behind = to.map_or(0, |to| to_end[to]);
                let again = (first - 1).saturating_mul(round);
                bounds.insert((node, to), before.saturating_add(again).saturating_add(behind));
            }
        }
        bounds
    }

    /// Returns how many steps a run takes at least up to the first visit of a node, and from one visit of it to the next.
    pub(crate) fn steps_of_rounds(&self, from: &[usize], node: usize) -> (u64, u64) {
        if self.passed_over > 0 { (0, 0) } else { self.rounds(from, node, &|_| 1) }
    }

    /// Returns the cost of the visits up to the first one of a node, and of those from there to the next one, without one of the two.
    pub(crate) fn rounds(&self, from: &[usize], node: usize, cost: &dyn Fn(usize) -> u64) -> (u64, u64) {
        let cost_to_node = |from: &[usize]| {
            let path = self.shortest(from, cost, &|at| at == node, &|_, _| true);
            path.map_or(u64::MAX, |(cost, _)| cost)
        };
        (cost_to_node(from), cost_to_node(&self.next[node]))
    }

    /// Returns, for each node, the cost of the visits from it to a node where a run can end, including both; `u64::MAX` if no path leads
    /// to an end.
    fn costs_to_end(&self, cost: &dyn Fn(usize) -> u64) -> Vec<u64> {
        let mut before: Vec<Vec<usize>> = vec![Vec::new(); self.next.len()];
        for (node, next) in self.next.iter().enumerate() {
            next.iter().for_each(|&next| before[next].push(node));
        }
        let mut costs = vec![u64::MAX; self.next.len()];
        let mut waiting: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
        let ends = (0..self.next.len()).filter(|&node| self.ends[node]);
        waiting.extend(ends.map(|node| Reverse((cost(node), node))));
        while let Some(Reverse((behind, node))) = waiting.pop() {
            if behind >= costs[node] {
                continue;
            }
            costs[node] = behind;
            waiting
                .extend(before[node].iter().map(|&earlier| Reverse((behind.saturating_add(cost(earlier)), earlier))));
        }
        costs
    }

    /// Returns the cheapest path from one of several nodes to a node for which `is_found` holds, along edges for which `may_follow`
    /// holds, and its cost. It has the fewest nodes of those.
    fn shortest(
        &self,
        from: &[usize],
        cost: &dyn Fn(usize) -> u64,
        is_found: &dyn Fn(usize) -> bool,
        may_follow: &dyn Fn(usize, usize) -> bool,
    ) -> Option<(u64, Vec<usize>)> {
        let mut before: Vec<Option<usize>> = vec![None; self.next.len()];
        let mut best = vec![(u64::MAX, usize::MAX); self.next.len()];
        let mut waiting: BinaryHeap<Reverse<(u64, usize, usize)>> = BinaryHeap::new();
        for &node in from {
            best[node] = (cost(node), 1);
            waiting.push(Reverse((cost(node), 1, node)));
        }
        while let Some(Reverse((along, length, node))) = waiting.pop() {
            if (along, length) > best[node] {
                continue;
            }
            if is_found(node) {
                let mut path = vec![node];
                while let Some(earlier) = path.last().and_then(|&node| before[node]) {
                    path.push(earlier);
                }
                path.reverse();
                return Some((along, path));
            }
            for &next in self.next[node].iter().filter(|&&next| may_follow(node, next)) {
                let reached = (along.saturating_add(cost(next)), length + 1);
                if reached < best[next] {
                    best[next] = reached;
                    before[next] = Some(node);
                    waiting.push(Reverse((reached.0, reached.1, next)));
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_length_through_a_component_counts_only_acyclic_steps() {
        let next = vec![vec![1, 2], vec![2], vec![0, 3], vec![]];
        let mut flow = ControlFlow {
            components: strongly_connected(&next),
            first: next.iter().map(|next| vec![1; next.len()]).collect(),
            first_end: vec![1; next.len()],
            passed_over: 0,
            ends: vec![false, false, false, true],
            next,
            component_of: Vec::new(),
        };
        assert!(flow.is_cyclic_without(&[0, 1, 2], &[]));
        assert_eq!(flow.longest(&[0, 1, 2], &[2]), Some(2));
        assert_eq!(flow.longest(&[0, 1, 2], &[0]), Some(2));
        assert_eq!(flow.cheapest(&[0], &|_| 1), Some((3, vec![0, 2, 3])));
        // The way out is open on the third visit, and a round takes two steps.
        flow.first[2][1] = 3;
        assert_eq!(flow.cheapest(&[0], &|_| 1), Some((7, vec![0, 2, 3])));
        // A node that nothing leads back to is never visited twice.
        flow.first_end[3] = 2;
        assert_eq!(flow.cheapest(&[0], &|_| 1), None);
    }
}

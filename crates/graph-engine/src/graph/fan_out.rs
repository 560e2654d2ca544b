//! Fan-outs that have joins, and the nodes from which each join can still be reached.

use std::collections::{BTreeSet, HashMap};

use graph_model::program::Quorum;

/// The fan-outs of a graph that have joins, by their nodes.
pub(crate) type FanOuts = HashMap<u16, FanOutJoins>;

/// A node that fans out, and the joins of its branches.
#[derive(Debug, Default)]
pub(crate) struct FanOutJoins {
    /// The join that every branch reaches or ends before.
    pub(crate) closing: Option<u16>,
    /// How many branches that join waits for, if not for all.
    pub(crate) quorum: Option<Quorum>,
    /// The joins that only some branches reach, in the order of the nodes.
    pub(crate) partial: Vec<u16>,
    /// For each join of the fan-out, whether a branch that is at a node can still come to it, by the nodes' indices.
    reach: HashMap<u16, Box<[bool]>>,
}

/// A join of a graph that is being loaded.
#[derive(Debug, Clone, Copy)]
pub(super) struct Member {
    pub(super) node: u16,
    pub(super) fan: u16,
    pub(super) closes: bool,
    pub(super) quorum: Option<Quorum>,
}

impl FanOutJoins {
    /// Whether a branch that is at a node can still come to a join of the fan-out.
    pub(crate) fn can_reach(&self, from: u16, join: u16) -> bool {
        self.reach.get(&join).and_then(|reach| reach.get(usize::from(from))).copied().unwrap_or_default()
    }
}

/// Computes the fan-outs of a graph. `leads` has, for each node, the nodes that it leads to, and `begun` those at which it begins
/// branches.
///
/// A path stays inside a fan-out up to the join that closes it, or a join of a fan-out around it. From a node that fans out,
/// a path leads to the join that closes the fan-out, even if each branch ends before it.
pub(super) fn fan_outs(members: &[Member], leads: &[Vec<u16>], begun: &[Vec<u16>]) -> FanOuts {
    let mut leads = leads.to_vec();
    for one in members.iter().filter(|one| one.closes) {
        leads[usize::from(one.fan)].push(one.node);
    }
    let leads = &leads[..];
    let mut fans: FanOuts = HashMap::new();
    for Member { node, fan, closes, quorum } in members {
        let entry = fans.entry(*fan).or_default();
        if *closes {
            (entry.closing, entry.quorum) = (Some(*node), *quorum);
        } else {
            entry.partial.push(*node);
        }
    }
    let around = around(members, leads, begun);
    for (&fan, out) in &mut fans {
        let around = &around[usize::from(fan)];
        let leaves = |one: &&Member| (one.fan == fan && one.closes) || around.contains(&one.fan);
        let stops: Vec<u16> = members.iter().filter(leaves).map(|one| one.node).collect();
        for join in members.iter().filter(|one| one.fan == fan) {
            out.reach.insert(join.node, backward(join.node, leads, &stops));
        }
    }
    fans
}

/// Returns for each node the fan-outs that it may be inside of. A join is inside of those around its own fan-out, and a partial
/// join of its own, too.
fn around(members: &[Member], leads: &[Vec<u16>], begun: &[Vec<u16>]) -> Vec<BTreeSet<u16>> {
    let mut around = vec![BTreeSet::new(); leads.len()];
    let mut open: Vec<u16> = (0..).take(leads.len()).collect();
    while let Some(from) = open.pop() {
        // The result for a join depends on its fan-out, and not on the nodes that lead to the join.
        let joins = members.iter().filter(|one| one.fan == from).map(|one| one.node);
        for to in leads[usize::from(from)].iter().copied().chain(joins) {
            let (outer, own) = match members.iter().find(|one| one.node == to) {
                Some(join) => (join.fan, (!join.closes).then_some(join.fan)),
                None => (from, begun[usize::from(from)].contains(&to).then_some(from)),
            };
            let inside: Vec<u16> = around[usize::from(outer)].iter().copied().chain(own).collect();
            let known = &mut around[usize::from(to)];
            let count = known.len();
            known.extend(inside);
            if known.len() > count {
                open.push(to);
            }
        }
    }
    around
}

/// Returns the nodes from which a path reaches a node without a stop in between.
fn backward(to: u16, leads: &[Vec<u16>], stops: &[u16]) -> Box<[bool]> {
    let mut seen = vec![false; leads.len()].into_boxed_slice();
    let mut open = vec![to];
    while let Some(target) = open.pop() {
        for (from, targets) in (0..).zip(leads) {
            let is_way = targets.contains(&target) && !stops.contains(&from) && !seen[usize::from(from)];
            if is_way {
                seen[usize::from(from)] = true;
                open.push(from);
            }
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_ends_at_the_join_that_closes_its_fan_out() {
        // 0 fans out to 1 and 2, which join at 3, which leads back to 0 by 4.
        let leads = [vec![1, 2], vec![3], vec![3], vec![4], vec![0]];
        let fans = fan_outs(
            &[Member { node: 3, fan: 0, closes: true, quorum: None }],
            &leads,
            &[vec![1, 2], vec![], vec![], vec![], vec![]],
        );
        let reach: Vec<bool> = (0..5).map(|from| fans[&0].can_reach(from, 3)).collect();
        // After the join the branch is over; a path that leads to the join again belongs to another visit of the fan-out.
        assert_eq!(reach, [true, true, true, false, true]);
        assert_eq!(fans[&0].closing, Some(3));
    }

    #[test]
    fn a_partial_join_is_inside_and_an_inner_one_is_passed_through() {
        // 0 fans out to 1 and 4; 1 fans out to 2 and 2; 3 joins the inner branches, 5 joins 3 and 4.
        let leads = [vec![1, 4], vec![2, 2], vec![3], vec![5], vec![5], vec![]];
        let members = [
            Member { node: 3, fan: 1, closes: true, quorum: None },
            Member { node: 5, fan: 0, closes: true, quorum: None },
        ];
        let begun = [vec![1, 4], vec![2, 2], vec![], vec![], vec![], vec![]];
        let fans = fan_outs(&members, &leads, &begun);
        assert!((0..5).all(|from| fans[&0].can_reach(from, 5)));
        assert!(!fans[&0].can_reach(5, 5));
        assert!(fans[&1].can_reach(2, 3) && !fans[&1].can_reach(3, 3) && !fans[&1].can_reach(4, 3));
    }
}

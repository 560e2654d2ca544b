//! How the nodes of a graph lead to each other, for rules that follow a value back and an answer on.

use graph_definition::definition::{NodeDefinition, RouteDefinition};

use crate::analysis::Analysis;

/// How one node leads to another.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Via {
    /// By an edge: the node has done all that it does.
    Edge,
    /// By a failure, a time that is over, or a lack of branches: the node has written nothing.
    Otherwise,
}

/// The nodes of a graph, and how they lead to each other.
pub(super) struct GraphPaths<'a, 'd> {
    pub(super) analysis: &'a Analysis<'d>,
    /// For each node, those that lead to it.
    before: Vec<Vec<(usize, Via)>>,
    /// For each node, the nodes that may be visited because a branch ends there.
    ended: Vec<Vec<usize>>,
    /// For each node, those that may be visited because its failure ends a branch.
    broken: Vec<Vec<usize>>,
}

impl<'a, 'd> GraphPaths<'a, 'd> {
    pub(super) fn new(analysis: &'a Analysis<'d>) -> Self {
        let (model, branches) = (&analysis.model, analysis.flow.branches());
        let count = model.definition.nodes.len();
        // A join that needs each branch does not follow the end of one.
        let joins = |node: usize, all: &[usize]| -> Vec<usize> {
            let follows = |join: usize| match needs_branch_of(analysis, join, node) {
                true => model.fewer_successor(join),
                false => Some(join),
            };
            all.iter().copied().filter_map(follows).collect()
        };
        let mut paths = Self {
            analysis,
            before: vec![Vec::new(); count],
            ended: (0..count).map(|node| joins(node, branches.beyond(node))).collect(),
            broken: (0..count).map(|node| joins(node, branches.broken(node))).collect(),
        };
        for node in 0..count {
            for next in model.successors(node).chain(paths.ended[node].iter().copied()) {
                paths.before[next].push((node, Via::Edge));
            }
            let failed = model.successors(node).filter(|_| model.may_skip_assign(node));
            for next in paths.otherwise(node).into_iter().chain(failed) {
                paths.before[next].push((node, Via::Otherwise));
            }
        }
        paths
    }

    pub(super) fn nodes(&self) -> &'d [NodeDefinition] {
        &self.analysis.model.definition.nodes
    }

    pub(super) fn node(&self, at: usize) -> &'d NodeDefinition {
        &self.nodes()[at]
    }

    /// Returns the nodes that lead to a node.
    pub(super) fn before(&self, node: usize) -> &[(usize, Via)] {
        &self.before[node]
    }

    /// Returns the nodes that the edges of a node lead to.
    pub(super) fn successors(&self, node: usize) -> impl Iterator<Item = usize> + '_ {
        self.analysis.model.successors(node)
    }

    /// Returns the nodes that follow where a branch ends at a node.
    pub(super) fn ended(&self, node: usize) -> &[usize] {
        &self.ended[node]
    }

    /// Returns the nodes that a node leads to without having done what it does.
    pub(super) fn otherwise(&self, node: usize) -> Vec<usize> {
        self.analysis.model.other_successors(node).chain(self.broken[node].iter().copied()).collect()
    }

    /// Returns the nodes that a node leads to in any way.
    pub(super) fn onward(&self, node: usize) -> impl Iterator<Item = usize> + '_ {
        self.successors(node).chain(self.ended[node].iter().copied()).chain(self.otherwise(node))
    }

    /// Returns, for each node, whether a path leads to it from one of these.
    pub(super) fn reached(&self, from: impl IntoIterator<Item = usize>) -> Vec<bool> {
        let (mut reached, mut open) = (vec![false; self.before.len()], from.into_iter().collect::<Vec<_>>());
        while let Some(node) = open.pop() {
            if !std::mem::replace(&mut reached[node], true) {
                open.extend(self.onward(node));
            }
        }
        reached
    }

    /// Whether a node is visited in a branch of a fan-out.
    pub(super) fn is_inside(&self, node: usize, fan: usize) -> bool {
        let branches = self.analysis.flow.branches();
        branches.visits(node).any(|(_, visit)| branches.frames(visit.frame).any(|frame| frame.fan == fan))
    }

    /// Returns the fan-outs whose branches may all have been visited before a node, whichever of them leads to it.
    pub(super) fn joined(&self, node: usize) -> Vec<usize> {
        let (model, branches) = (&self.analysis.model, self.analysis.flow.branches());
        let is_join = |join: &usize| *join == node || model.fewer_successor(*join) == Some(node);
        (0..self.before.len()).filter(is_join).filter_map(|join| Some(branches.place(join)?.fan)).collect()
    }

    /// Whether a node of another branch may be visited between the visits before a node and its own.
    pub(super) fn is_meanwhile(&self, node: usize, other: usize) -> bool {
        let branches = self.analysis.flow.branches();
        branches.are_concurrent(node, other) || self.joined(node).iter().any(|&fan| self.is_inside(other, fan))
    }
}

/// Whether a join is visited only if each branch of its fan-out arrives, and a node is in one of these branches or begins them: if the
/// branch ends there, or none begins, the join is not visited.
fn needs_branch_of(analysis: &Analysis<'_>, join: usize, node: usize) -> bool {
    let (model, branches) = (&analysis.model, analysis.flow.branches());
    let (Some(quorum), Some(place)) = (&model.definition.nodes[join].quorum, branches.place(join)) else {
        return false;
    };
    let RouteDefinition::All(list) = model.definition.nodes[place.fan].next() else { return false };
    // If no branch begins, none arrives.
    let is_fan = node == place.fan;
    let is_branch = |frame: usize| branches.frames(frame).next().is_some_and(|inner| inner.fan == place.fan);
    place.closes
        && usize::try_from(quorum.need.value).is_ok_and(|need| need == list.edges.len())
        && (is_fan || branches.visits(node).all(|(_, visit)| is_branch(visit.frame)))
}

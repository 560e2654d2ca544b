//! How the nodes of a graph lead to each other, for rules that follow a value back and an answer on.

use std::collections::BTreeMap;

use graph_definition::definition::{NodeDefinition, RouteDefinition};
use graph_model::path::Root;

use crate::analysis::Analysis;
use crate::analysis::branches::BranchLabel;
use crate::analysis::coverage::Coverage;
use crate::analysis::reads::Site;

/// How one node leads to another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Via {
    /// By an edge: the node has done all that it does.
    Edge,
    /// By a failure, a time that is over, or a lack of branches: the node has written nothing.
    Otherwise,
}

/// A node that leads to another one, and how.
pub(super) type StepBefore = (usize, Via);

/// The nodes of a graph, and how they lead to each other.
pub(super) struct GraphPaths<'a, 'd> {
    pub(super) analysis: &'a Analysis<'d>,
    /// For each node, whether each of its edges can be followed; nothing if all can.
    can_follow: Vec<&'a [bool]>,
    /// For each node, those that lead to it.
    before: Vec<Vec<StepBefore>>,
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
            can_follow: (0..count).map(|node| can_follow(analysis, node)).collect(),
            before: vec![Vec::new(); count],
            ended: (0..count).map(|node| joins(node, branches.beyond(node))).collect(),
            broken: (0..count).map(|node| joins(node, branches.broken(node))).collect(),
        };
        for node in 0..count {
            let next: Vec<usize> = paths.successors(node).chain(paths.ended[node].iter().copied()).collect();
            for next in next {
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
    pub(super) fn before(&self, node: usize) -> &[StepBefore] {
        &self.before[node]
    }

    /// Returns the nodes that the edges of a node may lead to.
    pub(super) fn successors(&self, node: usize) -> impl Iterator<Item = usize> + '_ {
        let model = &self.analysis.model;
        let indices = model.edge_indices(node).map(Some).chain(std::iter::repeat(None));
        let edges = model.successors(node).zip(indices);
        edges.filter(move |(_, edge)| edge.is_none_or(|edge| self.can_follow(node, edge))).map(|(to, _)| to)
    }

    /// Whether a node's edge can be followed, by its index: its condition holds in some case.
    pub(super) fn can_follow(&self, node: usize, edge: usize) -> bool {
        self.can_follow[node].get(edge).copied().unwrap_or(true)
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

    /// Returns the fan-out of a join that is visited only if each branch arrives; and for each branch, how it may arrive.
    pub(super) fn arrivals(&self, join: usize) -> Option<(usize, Vec<Vec<StepBefore>>)> {
        let branches = self.analysis.flow.branches();
        let fan = fan_of_all(self.analysis, join)?;
        let mut arrivals: BTreeMap<usize, Vec<StepBefore>> = BTreeMap::new();
        for &(before, via) in self.before(join) {
            let mut labels = branches.visits(before).filter_map(|(_, visit)| {
                let frame = branches.frames(visit.frame).find(|frame| frame.fan == fan)?;
                Some(frame.label)
            });
            // An edge of the fan-out itself is a branch without nodes.
            let Some(label) = labels.next() else { continue };
            match label {
                BranchLabel::Edge(edge) if labels.all(|other| other == label) => {
                    arrivals.entry(edge).or_default().push((before, via));
                }
                _ => return None,
            }
        }
        Some((fan, arrivals.into_values().collect()))
    }

    /// Whether a node of another branch may be visited between the visits before a node and its own.
    pub(super) fn is_meanwhile(&self, node: usize, other: usize) -> bool {
        let branches = self.analysis.flow.branches();
        branches.are_concurrent(node, other) || self.joined(node).iter().any(|&fan| self.is_inside(other, fan))
    }
}

/// Returns whether each of a node's edges can be followed; nothing if that is not known.
fn can_follow<'a>(analysis: &'a Analysis<'_>, node: usize) -> &'a [bool] {
    let coverage = analysis.coverage[node].as_ref().filter(|coverage| has_each_case(analysis, node, coverage));
    match coverage.filter(|_| !analysis.model.may_skip_assign(node)) {
        Some(coverage) => &coverage.followed.can_follow,
        None => &[],
    }
}

/// Whether the cases of a node's comparisons are all that there are. They leave out that a key is not set on some path, which is a lint.
pub(super) fn has_each_case(analysis: &Analysis<'_>, node: usize, coverage: &Coverage<'_>) -> bool {
    let is_set = |name: &String| {
        let key = analysis.model.key(name);
        key.is_some_and(|key| analysis.type_env().is_set(node, Site::Next, key))
    };
    let mut paths = coverage.table.paths.iter().map(|(path, ..)| path);
    paths.all(|path| path.root != Root::State || path.segments.first().is_some_and(is_set))
}

/// Returns the fan-out of a join that is visited only if each branch arrives.
fn fan_of_all(analysis: &Analysis<'_>, join: usize) -> Option<usize> {
    let (model, branches) = (&analysis.model, analysis.flow.branches());
    let (quorum, place) = (model.definition.nodes[join].quorum.as_ref()?, branches.place(join)?);
    let RouteDefinition::All(list) = model.definition.nodes[place.fan].next() else { return None };
    let needs_all = usize::try_from(quorum.need.value).is_ok_and(|need| need == list.edges.len());
    (place.closes && needs_all).then_some(place.fan)
}

/// Whether a join is visited only if each branch of its fan-out arrives, and a node is in one of these branches or begins them: if the
/// branch ends there, or none begins, the join is not visited.
fn needs_branch_of(analysis: &Analysis<'_>, join: usize, node: usize) -> bool {
    let branches = analysis.flow.branches();
    let Some(fan) = fan_of_all(analysis, join) else { return false };
    let is_branch = |frame: usize| branches.frames(frame).next().is_some_and(|inner| inner.fan == fan);
    // If no branch begins, none arrives.
    node == fan || branches.visits(node).all(|(_, visit)| is_branch(visit.frame))
}

//! Branches: where an activation stands inside the fan-outs around it.

use std::cmp::Ordering;
use std::sync::Arc;

use graph_model::value::Value;

/// A visit that led to several activations at once.
#[derive(Debug)]
pub(crate) struct Fan {
    /// The number of the visit.
    pub(crate) visit: u64,
    /// The node that was visited.
    pub(crate) node: u16,
    /// The branch that the visit was in.
    pub(crate) outer: Option<Arc<Frame>>,
    /// The list that it went over: a value for each branch. Nothing where it took edges.
    pub(crate) list: Arc<Vec<Value>>,
}

impl PartialEq for Fan {
    /// A run has one visit of a number, and so one list: where it is sealed, it is not known.
    fn eq(&self, other: &Self) -> bool {
        (self.visit, self.node, &self.outer) == (other.visit, other.node, &other.outer)
    }
}

/// A branch of a fan-out. It is held by each activation in it.
#[derive(Debug, PartialEq)]
pub(crate) struct Frame {
    pub(crate) fan: Arc<Fan>,
    /// The place of the branch among the edges that were taken, or the elements of the list, from 0.
    pub(crate) branch: u32,
}

/// What names a branch in a run: the number of the visit that fanned out, and the place of the branch.
pub(crate) type BranchKey = (u64, u32);

impl Frame {
    pub(crate) fn key(&self) -> BranchKey {
        (self.fan.visit, self.branch)
    }
}

/// Returns the branches around an activation, the innermost first.
pub(crate) fn frames(innermost: Option<&Arc<Frame>>) -> impl Iterator<Item = &Arc<Frame>> {
    std::iter::successors(innermost, |frame| frame.fan.outer.as_ref())
}

/// Returns the path of an activation: the place of each branch around it, the outermost first.
pub(crate) fn path(innermost: Option<&Arc<Frame>>) -> Vec<u32> {
    let mut path: Vec<u32> = frames(innermost).map(|frame| frame.branch).collect();
    path.reverse();
    path
}

/// Compares two activations by their paths, a prefix first. Those of one path, which stand in different fan-outs, are in the order of
/// the visits that fanned out.
pub(crate) fn by_path(one: Option<&Arc<Frame>>, other: Option<&Arc<Frame>>) -> Ordering {
    match (one, other) {
        (None, None) => return Ordering::Equal,
        (Some(one), Some(other)) if Arc::ptr_eq(&one.fan, &other.fan) => return one.branch.cmp(&other.branch),
        _ => {}
    }
    let visits = |innermost| frames(innermost).map(|frame| frame.fan.visit).collect::<Vec<_>>();
    path(one).cmp(&path(other)).then_with(|| visits(one).iter().rev().cmp(visits(other).iter().rev()))
}

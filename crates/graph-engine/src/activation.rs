//! Activations: nodes to be visited, and their positions in the fan-outs around them.

use std::cmp::Ordering;
use std::sync::Arc;

use graph_model::value::Value;
use serde::{Deserialize, Serialize};

/// A node that is to be visited.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Activation {
    /// Its number, from 1, which is also the number of its visit. It is assigned when the activation is made, so concurrent
    /// activations do not change it. Idempotency keys and the records of finished calls depend on it.
    pub number: u64,
    /// The node's index.
    pub node: u16,
    /// The branch that it is in; `None` outside all fan-outs.
    pub frame: Option<Arc<Frame>>,
}

impl Activation {
    /// An activation for a node that is examined outside a step.
    pub fn of(node: u16) -> Self {
        Self { number: 0, node, frame: None }
    }

    /// Compares two activations by their paths, a prefix first, and in one branch by their nodes.
    pub fn by_path(&self, other: &Self) -> Ordering {
        by_path(self.frame.as_ref(), other.frame.as_ref()).then(self.node.cmp(&other.node))
    }

    /// Returns the key of the branch that it is in.
    #[inline]
    pub fn branch(&self) -> Option<BranchKey> {
        self.frame.as_deref().map(Frame::key)
    }
}

/// The edges that a visit took, by their indices in the node's list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum TakenEdges {
    /// No edge: the path ends here.
    #[default]
    None,
    /// One, which may lead out of the graph.
    One(u16),
    /// Those of a node that fans out, all in the next step.
    Many(Arc<Vec<u16>>),
    /// The single edge of a node that fans out over a list, taken once for each of these elements.
    Over(Arc<Vec<Value>>),
}

impl TakenEdges {
    /// Returns the edges in order.
    #[inline]
    pub fn as_slice(&self) -> &[u16] {
        match self {
            Self::None | Self::Over(_) => &[],
            Self::One(edge) => std::slice::from_ref(edge),
            Self::Many(edges) => edges,
        }
    }

    /// Returns the edge that was taken, if it is one.
    #[inline]
    pub fn one(&self) -> Option<u16> {
        match self {
            Self::One(edge) => Some(*edge),
            Self::None | Self::Many(_) | Self::Over(_) => None,
        }
    }
}

/// A key and its new value. A node writes each key once.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// The key's index.
    pub key: usize,
    /// The value; null unsets the key.
    pub value: Value,
}

/// Returns the writes of a change to a key. The change of a key that its node shares is a list of writes.
pub(crate) fn writes_of(change: &Value, is_shared: bool) -> &[Value] {
    match change {
        Value::Array(writes) if is_shared => writes,
        _ => std::slice::from_ref(change),
    }
}

/// A visit that led to several activations at once.
#[derive(Debug)]
pub struct Fan {
    /// The number of the visit.
    pub visit: u64,
    /// The node that was visited.
    pub node: u16,
    /// The branch that the visit was in.
    pub outer: Option<Arc<Frame>>,
    /// The list that it fanned out over, with a value for each branch; empty if it took edges.
    pub list: Arc<Vec<Value>>,
}

impl PartialEq for Fan {
    /// Ignores the list. A visit's number determines its list, and an encrypted list is not known.
    fn eq(&self, other: &Self) -> bool {
        (self.visit, self.node, &self.outer) == (other.visit, other.node, &other.outer)
    }
}

/// A branch of a fan-out. Each activation in the branch holds it.
#[derive(Debug, PartialEq)]
pub struct Frame {
    /// The fan-out.
    pub fan: Arc<Fan>,
    /// The index, from 0, of the branch's edge among the edges that were taken, or of its element in the list.
    pub branch: u32,
}

/// The key of a branch in a run: the number of the visit that fanned out, and the index of the branch.
pub type BranchKey = (u64, u32);

impl Frame {
    /// Returns the branch's key.
    pub fn key(&self) -> BranchKey {
        (self.fan.visit, self.branch)
    }
}

/// Returns the branches around an activation, the innermost first.
pub fn frames(innermost: Option<&Arc<Frame>>) -> impl Iterator<Item = &Arc<Frame>> {
    std::iter::successors(innermost, |frame| frame.fan.outer.as_ref())
}

/// Returns the branch of a visit that fanned out which `innermost` is inside of.
pub fn branch_in(innermost: Option<&Arc<Frame>>, fan: &Fan) -> Option<u32> {
    frames(innermost).find(|frame| frame.fan.visit == fan.visit).map(|frame| frame.branch)
}

/// Whether a branch is one of a visit that fanned out, or inside of one.
pub fn is_inside(innermost: Option<&Arc<Frame>>, fan: &Fan) -> bool {
    branch_in(innermost, fan).is_some()
}

/// Returns the path of an activation: the index of each branch around it, the outermost first.
#[inline]
pub fn path(innermost: Option<&Arc<Frame>>) -> Vec<u32> {
    let mut path: Vec<u32> = frames(innermost).map(|frame| frame.branch).collect();
    path.reverse();
    path
}

/// Compares two activations by their paths, a prefix first. Activations in different fan-outs whose paths are equal are
/// ordered by the visits that fanned out.
pub fn by_path(one: Option<&Arc<Frame>>, other: Option<&Arc<Frame>>) -> Ordering {
    match (one, other) {
        (None, None) => return Ordering::Equal,
        (Some(one), Some(other)) if Arc::ptr_eq(&one.fan, &other.fan) => return one.branch.cmp(&other.branch),
        _ => {}
    }
    let visits = |innermost| frames(innermost).map(|frame| frame.fan.visit).collect::<Vec<_>>();
    path(one).cmp(&path(other)).then_with(|| visits(one).iter().rev().cmp(visits(other).iter().rev()))
}

/// A branch that has come to a join.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Arrival {
    /// The number of the visit that led to the join.
    pub visit: u64,
    /// The index of the branch in the join's fan-out.
    pub branch: u32,
}

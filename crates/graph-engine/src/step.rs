//! What a step means: what each node of the frontier asks for, what its visit comes to, and where the run stands behind it.
//!
//! All of it is pure: nothing here calls, waits, or knows the runtime. The engine, its fast path, a single step, a resume, an audit,
//! a replay and a fork ask these functions, and none of them has a rule of its own:
//!
//! * [`plan`] and [`plan_item`] say what a node asks for,
//! * [`settle()`] says what a visit writes and where it leads behind its calls,
//! * [`fold()`] says where the run stands behind a step.

mod asks;
mod branch;
mod context;
mod fold;
mod limit;
mod next;
mod position;
mod recorded;
mod settle;

use std::sync::Arc;
use std::time::SystemTime;

use graph_model::name::ItemId;
use graph_model::value::{AsView, Value, describe};

use crate::error::Failure;
use crate::graph::{CompiledGraph, Kind};
use crate::machine::{Arguments, Cells};

pub(crate) use asks::Asks;
pub(crate) use branch::{BranchKey, Fan, Frame, frames, path};
pub(crate) use context::{Env, EvalContext, Notes, Now, Retries};
pub(crate) use fold::{Candidate, FoldError, NO_WAY, Visited, fold, is_no_way, take_plain};
pub(crate) use limit::most_extended;
pub(crate) use position::{Branch, Memory, OpenJoin, Position};
pub(crate) use recorded::{has_shape, retake, said_edges, said_way};
pub(crate) use settle::{Facts, Outcome, Settled, Way, items_failed, settle};

/// A node that is to be visited.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Activation {
    /// Its number, from 1: that of its visit. It is given when the activation is made, so that nothing that happens beside it changes
    /// it. Idempotency keys and the records of finished calls hang on it.
    pub(crate) number: u64,
    /// The node's index.
    pub(crate) node: u16,
    /// The branch that it stands in; none outside all fan-outs.
    pub(crate) frame: Option<Arc<Frame>>,
}

impl Activation {
    /// A node that is looked at outside of a step.
    pub(crate) fn of(node: u16) -> Self {
        Self { number: 0, node, frame: None }
    }

    /// Returns the branch that it stands in.
    pub(crate) fn branch(&self) -> Option<BranchKey> {
        self.frame.as_deref().map(Frame::key)
    }
}

/// The edges that a visit took, by their indices in the node's list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Edges {
    /// None: the way ends here.
    #[default]
    None,
    /// One, which may lead out of the graph.
    One(u16),
    /// Those of a node that fans out, all in the next step.
    Many(Arc<Vec<u16>>),
    /// The one way of a node that goes over a list, once for each of these.
    Over(Arc<Vec<Value>>),
}

impl Edges {
    /// Returns the edges in order.
    pub(crate) fn as_slice(&self) -> &[u16] {
        match self {
            Self::None | Self::Over(_) => &[],
            Self::One(edge) => std::slice::from_ref(edge),
            Self::Many(edges) => edges,
        }
    }

    /// Returns the edge that was taken, if it is one.
    pub(crate) fn one(&self) -> Option<u16> {
        match self {
            Self::One(edge) => Some(*edge),
            Self::None | Self::Many(_) | Self::Over(_) => None,
        }
    }
}

/// A key and its new value. A node writes each key once.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Change {
    /// The key's index.
    pub(crate) key: usize,
    /// The value; null unsets the key.
    pub(crate) value: Value,
}

/// What a node asks for.
#[derive(Debug)]
pub(crate) enum Planned {
    /// A call of a tool.
    Call(Request),
    /// A call of a tool for each of these, at most `width` at a time.
    Each {
        /// The items, in order.
        items: Vec<Value>,
        /// How many calls are made at a time, 1 or more.
        width: usize,
    },
    /// Nothing outside: it computes and goes on.
    Compute,
    /// The end of the run.
    Finish,
}

/// A call that is to be made.
#[derive(Debug)]
pub(crate) struct Request {
    /// The tool's index.
    pub(crate) tool: u16,
    /// The item's id, where it is known only now.
    pub(crate) id: Option<ItemId>,
    /// What the tool gets.
    pub(crate) arguments: Arguments,
}

/// Decides what a node asks for.
///
/// # Errors
///
/// If a foreach has no list to go over, or an item's id is not one: a failure of the node.
#[inline]
pub(crate) fn plan(env: &Env<'_>, notes: &mut Notes) -> Result<Planned, Box<Failure>> {
    match &env.graph.node(env.at.node).kind {
        Kind::Gate => Ok(Planned::Compute),
        Kind::Return(_) => Ok(Planned::Finish),
        Kind::Action(call) => env.graph.request(call, &env.context, None, notes).map(Planned::Call),
        Kind::Foreach(each) => match env.graph.evaluate(each.over(), &env.context, notes) {
            Value::Array(items) => Ok(Planned::Each { items, width: each.width }),
            Value::Null => Ok(Planned::Each { items: Vec::new(), width: each.width }),
            other => {
                let found = describe(other.view());
                Err(Box::new(Failure::permanent(format!("`over` is a list, and found {found}"))))
            }
        },
    }
}

/// Decides what a foreach asks for one item of its list.
///
/// # Errors
///
/// If the node goes over no list, or an item's id is not one: a failure of the item.
#[inline]
pub(crate) fn plan_item(env: &Env<'_>, item: &Value, notes: &mut Notes) -> Result<Request, Box<Failure>> {
    let Kind::Foreach(each) = &env.graph.node(env.at.node).kind else {
        return Err(Box::new(Failure::permanent("the node goes over no list")));
    };
    env.graph.request(&each.call, &env.context, Some((each.variable(), item)), notes)
}

/// Returns what the run returns that ends where it stands.
pub(crate) fn output(env: &Env<'_>, notes: &mut Notes) -> Value {
    env.graph.output(env.at.node, &env.context, notes)
}

/// Settles the same visit of a node that calls nothing so many times, and returns where it leads. Benchmarks time it.
pub fn settle_often(graph: &CompiledGraph, state: &dyn Cells, node: u16, times: u64) -> Option<u16> {
    let position = Position::new(graph);
    let clock = || SystemTime::UNIX_EPOCH;
    let now = Now::new(&clock);
    let at = Activation::of(node);
    let env = Env::new(graph, &position, state, &at, &now);
    let (mut notes, mut changes, mut edge) = (Notes::default(), Vec::new(), None);
    for _ in 0..times {
        let settled = settle(std::hint::black_box(&env), Outcome::None, &Facts::of(0), &mut notes, &mut changes);
        edge = settled.way.edge();
    }
    edge.and_then(|edge| graph.target(node, edge).flatten())
}

impl CompiledGraph {
    /// Returns the nodes that the edges lead to, in order; an edge that leads out of the graph leads to none.
    pub(crate) fn targets<'g>(&'g self, node: u16, edges: &'g Edges) -> impl Iterator<Item = u16> + 'g {
        edges.as_slice().iter().filter_map(move |&edge| self.target(node, edge).flatten())
    }
}

//! The meaning of a step: the calls that each node of the frontier asks for, the outcome of each visit, and the position of
//! the run after it.
//!
//! All of it is pure: nothing here makes calls, waits, or knows the runtime. The engine, its fast path, a single step, a
//! resume, an audit, a replay and a fork use these functions, and none of them has rules of its own:
//!
//! * [`plan`] and [`plan_item`] decide the calls that a node asks for,
//! * [`settle()`] computes the keys that a visit writes and where it leads after its calls,
//! * [`fold()`] computes the position of the run after a step.

mod answer;
mod asks;
mod context;
mod ending;
mod fold;
mod limit;
mod nested;
mod next;
mod opened;
mod order;
mod paused;
mod pauses;
mod position;
mod quorum;
mod settle;
mod shared;
mod shown;
mod visited;
mod wait;
mod writes;

use graph_model::value::{AsView, Value, describe};

use crate::activation::TakenEdges;
use crate::failure::Failure;
use crate::graph::{CompiledKind, GraphTables, Notes};
use crate::tool_caller::Request;

pub use answer::{NO_GRAPH, denied, element, failed, judge, no_spaces, readable, timed_out};
pub use context::Env;
pub use ending::{
    CANCELLED, GIVEN_UP, NESTED_STEPS, OVERDUE, UNFIT, UNRETURNED, exceeded, too_many_nested_steps, too_many_visits,
};
pub use fold::{Candidate, fold, take_plain};
pub use limit::{Overvisited, most_extended};
pub(crate) use nested::find_inside;
pub use nested::{
    MOST_CALLS, TOO_DEEP, failure_inside, graph_inside, graph_of, is_computed, is_nested_id, may_begin_runs, nested_at,
    nested_id, receives_secrets,
};
pub use opened::{ANSWER, OpenWait, Opened, Opening, TakenSignal, TakenWait, Waited};
pub use order::{ElementPaths, Reordered};
pub use paused::{CONTINUE, Escalation, Pause, PausedNodes, Pauses, Suspension};
pub use position::{Branch, Memory, OpenJoin, Position};
pub use quorum::{Decision, Tally};
pub use settle::{CallFacts, Outcome, Settled, items_failed, settle};
pub use shared::{SHARED, SharedKey, check_shared, shared_values};
pub use shown::{at_limit, hook_values, keys, state_value};
pub use visited::{FoldError, NO_WAY, SettledVisit, Way, is_no_way};
pub use wait::ReadyInside;
pub(crate) use wait::check_payload;
pub use writes::{StateWrites, write};

/// The calls that a node asks for, if any.
#[derive(Debug)]
pub enum Planned {
    /// A call of a tool.
    Call(Request),
    /// A call of a tool for each item, at most `width` at a time.
    Each {
        /// The items, in order.
        items: Vec<Value>,
        /// How many calls are made at a time, 1 or more.
        width: usize,
    },
    /// No call: the node computes and continues.
    Compute,
    /// No call: the node waits.
    Wait(Opening),
    /// The end of the run.
    Finish,
}

/// Decides the calls that a node asks for.
///
/// # Errors
///
/// If a foreach has no list to go over, an item's id is not one, or a time is not one: a failure of the node.
#[inline]
pub fn plan(env: &Env<'_>, notes: &mut Notes) -> Result<Planned, Box<Failure>> {
    if let Some(opening) = &env.pause {
        return Ok(Planned::Wait(opening.clone()));
    }
    match &env.graph.node(env.at.node).kind {
        CompiledKind::Gate | CompiledKind::Start => Ok(Planned::Compute),
        CompiledKind::Wait(_) if env.taken.is_some() => Ok(Planned::Compute),
        CompiledKind::Wait(wait) => wait::opening(env, wait, notes).map(Planned::Wait),
        CompiledKind::Return(_) => Ok(Planned::Finish),
        // Nobody answered its tool in time.
        CompiledKind::Action(_) if env.taken.is_some_and(|taken| taken.signal.is_none()) => Ok(Planned::Compute),
        CompiledKind::Action(call) => env.graph.request(call, &env.context, None, notes).map(Planned::Call),
        CompiledKind::Foreach(each) => match env.graph.evaluate(each.over(), &env.context, notes) {
            Value::Array(items) => Ok(Planned::Each { items, width: each.width }),
            Value::Null => Ok(Planned::Each { items: Vec::new(), width: each.width }),
            other => {
                let found = describe(other.view());
                Err(Box::new(Failure::permanent(format!("`over` is a list, and found {found}"))))
            }
        },
    }
}

/// Decides the call that a foreach asks for, for one item of its list.
///
/// # Errors
///
/// If the node goes over no list, or an item's id is not one: a failure of the item.
#[inline]
pub fn plan_item(env: &Env<'_>, item: &Value, notes: &mut Notes) -> Result<Request, Box<Failure>> {
    let CompiledKind::Foreach(each) = &env.graph.node(env.at.node).kind else {
        return Err(Box::new(Failure::permanent("the node goes over no list")));
    };
    env.graph.request(&each.call, &env.context, Some((each.variable(), item)), notes)
}

/// Returns the output of a run that ends here.
pub fn output(env: &Env<'_>, notes: &mut Notes) -> Value {
    env.graph.output(env.at.node, &env.context, notes)
}

impl GraphTables {
    /// Returns the nodes that the edges lead to, in order; an edge that leads out of the graph leads to no node.
    pub fn targets<'g>(&'g self, node: u16, edges: &'g TakenEdges) -> impl Iterator<Item = u16> + 'g {
        edges.as_slice().iter().filter_map(move |&edge| self.target(node, edge).flatten())
    }
}

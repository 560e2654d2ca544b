//! What a visit comes to behind its calls: what it writes, and where it leads.
//!
//! The engine, the audit and the replay of a journal all ask these functions, so that none of them can take for allowed what
//! another one does not. All of it is pure.

use graph_model::program::OnError;
use graph_model::value::Value;

use crate::error::Failure;
use crate::graph::{CompiledGraph, Kind};
use crate::machine::{Activation, Change, Machine, Next, Notes, Outcome, Sight};
use crate::record::retries_seen;

/// Computes what a node writes, into `changes`, and where it leads, from what its calls returned: `results` has those of a foreach. `calls` is
/// how often its tool was called, which assignments and edges see (R136).
///
/// # Errors
///
/// The node fails on what its calls returned. Nothing of what it would have written is left in `changes`, and `results` is
/// what it was.
pub(crate) fn advance(
    machine: &dyn Machine,
    at: &Activation,
    sight: &Sight<'_>,
    calls: u64,
    outcome: Outcome<'_>,
    notes: &mut Notes,
    changes: &mut Vec<Change>,
) -> Result<Next, Box<Failure>> {
    let retries = retries_seen(sight.retries, &machine.graph().node(at.node).name, calls);
    let sight = &Sight { retries: &retries, ..*sight };
    let Outcome::Each(results) = outcome else {
        return machine.advance(at, sight, outcome, notes, changes).inspect_err(|_| changes.clear());
    };
    machine.advance(at, sight, Outcome::Each(results), notes, changes).inspect_err(|_| {
        // What a foreach collected, which is all that one writes, is not lost with its way on.
        if let Some(Change { value: Value::Array(collected), .. }) = changes.pop() {
            *results = collected;
        }
        changes.clear();
    })
}

/// Where a failure leads.
pub(crate) struct Route {
    pub(crate) next: Next,
    /// Whether that is along the node's own edges (R125).
    pub(crate) suppressed: bool,
}

/// A failure that is to be routed.
pub(crate) struct Failed<'a> {
    pub(crate) failure: &'a Failure,
    /// How often the node's tool was called.
    pub(crate) calls: u64,
    /// What the calls of a foreach returned, with failures in their places; empty where there was no list to go over.
    pub(crate) results: &'a mut Vec<Value>,
}

/// Decides where a failure leads: to the node's own target, along its edges, or nowhere, which ends the run (R120).
///
/// `sight` is what the node looked at before its calls. A foreach that is led along its edges writes what it collected; nothing
/// else is written.
pub(crate) fn route_failure(
    machine: &dyn Machine,
    at: &Activation,
    sight: &Sight<'_>,
    failed: Failed<'_>,
    notes: &mut Notes,
    changes: &mut Vec<Change>,
) -> Option<Route> {
    let Failed { failure, calls, results } = failed;
    let code = machine.graph();
    let node = code.node(at.node);
    if let Some(target) = node.on_error {
        return Some(Route { next: Next::Mend(target), suppressed: false });
    }
    if !may_suppress(code, at.node) {
        return None;
    }
    // What the edges see of how often the call was made.
    let retries = retries_seen(sight.retries, &node.name, calls);
    let sight = Sight { retries: &retries, ..*sight };
    // A foreach collects also where it failed, for what comes after it counts on a list: the items that failed are in their places.
    // Of a call that failed, the edges see the failure as `result`.
    let outcome = match &node.kind {
        Kind::Foreach(_) => Outcome::Each(results),
        _ => Outcome::Failed(failure),
    };
    // If the edges cannot be followed either, the run ends with the failure.
    match machine.advance(at, &sight, outcome, notes, changes) {
        Ok(next) => Some(Route { next, suppressed: true }),
        Err(_) => {
            changes.clear();
            None
        }
    }
}

/// Whether a failure of a node can be led along its own edges: the graph continues after failures, and the node makes calls and
/// names no other target.
pub(crate) fn may_suppress(code: &CompiledGraph, node: u16) -> bool {
    let node = code.node(node);
    code.settings.on_error == OnError::Continue
        && node.on_error.is_none()
        && matches!(node.kind, Kind::Action(_) | Kind::Foreach(_))
}

/// Returns what a foreach says of the items that failed: `message` is why the first did, at `index`, of `count`.
pub(crate) fn items_failed(index: u64, message: &str, count: usize) -> String {
    let others = if count > 1 { format!(", and {} more", count - 1) } else { String::new() };
    format!("item {index}: {message}{others}")
}

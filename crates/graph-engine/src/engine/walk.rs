//! The fast path: from node to node, without the records and lists that a step needs only where somebody reads them.
//!
//! The fast path decides nothing that the full step does not decide too. Where a node needs more, the fast path stops, and
//! the full step repeats the computation, which is pure.

use crate::activation::{Activation, Change};
use crate::engine::run_state::{CallSlot, Engine, RunContext, RunState, alone};
use crate::engine::visits::StepVisits;
use crate::graph::{GraphTables, Notes, Now, tables};
use crate::schedule::is_others_turn;
use crate::step::{CallFacts, Env, Outcome, Planned, failed, plan, settle, take_plain};
use crate::tool_caller::{CallFuture, GuardedCall, Request};
use std::sync::Arc;

use tokio::task::yield_now;

/// The beginning of a visit.
enum FastCall<'s> {
    /// With a call.
    Call(CallFuture<'s>),
    /// Without a call.
    Compute,
    /// The full step is needed.
    Refused,
}

impl Engine {
    /// Moves from node to node as long as that is all there is to do: there are no observers and no journal, each node leads
    /// to exactly one other, and no call fails.
    ///
    /// Returns true if it stopped after a call; `visits` then holds the visit. Returns false if it stopped before a call, or
    /// no call was needed there; the discarded work is pure, and the full step repeats it.
    pub(super) async fn walk(&mut self, visits: &mut StepVisits) -> bool {
        let max_steps = self.most_steps();
        let run = Arc::clone(&self.context.run);
        let graph = tables(run.machine.graph());
        let Self { context, turn, slot, .. } = self;
        let run_state = alone(&mut context.run_state);
        let (mut notes, mut changes) = (Notes::default(), Vec::new());
        let clock = || run.runtime.clock.now();
        let mut stopped = None;
        while run_state.position.steps < max_steps
            && is_fast(graph, &run_state.position.frontier)
            && run_state.position.overvisited(graph).is_none()
            && !run.facts.stop.is_set()
        {
            if is_others_turn(run_state.position.steps, turn) {
                yield_now().await;
            }
            let now = Now::new(&clock);
            let (called, failure) = match depart(&run, run_state, slot, &now, &mut notes) {
                FastCall::Call(calling) => (true, GuardedCall(calling).await.err()),
                FastCall::Compute => (false, None),
                FastCall::Refused => break,
            };
            let nests = || graph.tool(slot.call.tool).is_none_or(|tool| tool.nests);
            let failure = failure.or_else(|| if called { failed(nests(), slot.tool_caller.outcome()) } else { None });
            let outcome = if called { Outcome::Returned(slot.tool_caller.outcome()) } else { Outcome::None };
            if failure.is_some() || !arrive(graph, run_state, &now, outcome, &mut notes, &mut changes) {
                if called {
                    stopped = Some((now.known(), failure));
                }
                break;
            }
        }
        let Some((at, failure)) = stopped else { return false };
        let activation = self.run_state.position.frontier.first().cloned().unwrap_or_default();
        let visit = visits.one();
        visit.begin(activation);
        (visit.at, visit.called, visit.failure) = (at, failure.is_none(), failure);
        if visit.failure.is_some() {
            Box::pin(self.context.visit_again(visit, &mut self.slot)).await;
        }
        true
    }
}

/// Whether the next step is a single visit, outside all branches, of a node that the fast path supports.
#[inline]
fn is_fast(graph: &GraphTables, frontier: &[Activation]) -> bool {
    match frontier {
        [Activation { node, frame: None, .. }] => graph.node(*node).facts.fast,
        _ => false,
    }
}

/// Begins the visit of the next node, if it makes no call, or one that is allowed.
#[inline]
fn depart<'s>(
    run: &RunContext,
    run_state: &RunState,
    slot: &'s mut CallSlot,
    now: &Now<'_>,
    notes: &mut Notes,
) -> FastCall<'s> {
    let activation = &run_state.position.frontier[0];
    let planned =
        plan(&Env::plain(tables(run.machine.graph()), &run_state.position, &*run_state.state, activation, now), notes);
    if !notes.is_empty() {
        notes.take();
        return FastCall::Refused;
    }
    match planned {
        Ok(Planned::Compute) => FastCall::Compute,
        Ok(Planned::Call(Request { tool, mut arguments, .. })) if run.allowed.get(usize::from(tool)) == Some(&true) => {
            slot.call.begin(activation.node, tool, activation.number, 1);
            slot.call.more = None;
            slot.tool_caller.call(tool, &mut arguments, &slot.call).map_or(FastCall::Refused, FastCall::Call)
        }
        _ => FastCall::Refused,
    }
}

/// Writes the node's changes to the state and moves to the node that it leads to. Returns false, and changes nothing, if it
/// does not lead to exactly one other node, if there are warnings, or if a value does not fit the state: the full step finds
/// the misfit again and ends the run.
#[inline]
fn arrive(
    graph: &GraphTables,
    run_state: &mut RunState,
    now: &Now<'_>,
    outcome: Outcome<'_>,
    notes: &mut Notes,
    changes: &mut Vec<Change>,
) -> bool {
    let env = Env::plain(graph, &run_state.position, &*run_state.state, &run_state.position.frontier[0], now);
    let settled = settle(&env, outcome, &CallFacts::of(1), notes, changes);
    let is_plain = settled.unfit.is_none() && notes.is_empty();
    if is_plain && take_plain(graph, &mut run_state.position, &mut *run_state.state, &settled.way, changes) {
        return true;
    }
    changes.clear();
    notes.take();
    false
}

//! The visits of a step with several activations: each is in a task of its own, so that a tool that blocks its thread holds
//! up no other branch.
//!
//! A step has as many tasks as visits may be in progress at a time. Each makes the next visit that was not begun, until none is
//! left.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use futures_util::future::{AbortRegistration, Abortable};
use tokio::task::{JoinSet, yield_now};
use tracing::Instrument;

use crate::engine::cancelling::Cancelling;
use crate::engine::run_state::{BoxedVisit, CallSlot, StepContext, VisitState};
use crate::error::RunError;
use crate::schedule::{in_run, is_others_turn};

/// The state that the tasks of a step share.
struct ConcurrentStep {
    /// How many visits were begun, in the order of the frontier.
    begun: AtomicUsize,
    /// How many visits are not over.
    left: AtomicUsize,
    /// The visits that are over, in the order of the frontier.
    done: Vec<Mutex<Option<BoxedVisit>>>,
    /// Whether the run surely ends in this step, so that no further visit begins.
    ends_run: AtomicBool,
    /// The visits that others of the step may cancel.
    cancelling: Option<Cancelling>,
}

impl StepContext {
    /// Visits the nodes of the frontier: a single one in the run's own task, several in tasks of their own. At most as many
    /// visits are in progress at a time as the graph allows.
    pub(super) async fn visit_all(&self, visits: &mut Vec<BoxedVisit>, slot: &mut CallSlot) {
        if let [activation] = self.run_state.position.frontier.as_slice() {
            // The buffers of a visit are reused for the next one.
            visits.resize_with(1, Box::default);
            visits[0].begin(activation.clone());
            return self.timed_visit(&mut visits[0], slot, true).await;
        }
        let frontier = &self.run_state.position.frontier;
        let most = self.graph().branches_at_once(frontier).clamp(1, frontier.len().max(1));
        let cancelling = Cancelling::of(self.graph(), &self.run_state.position);
        let done = frontier.iter().map(|_| Mutex::default()).collect();
        let (begun, left, ends_run) = (AtomicUsize::new(0), AtomicUsize::new(frontier.len()), AtomicBool::new(false));
        let shared = Arc::new(ConcurrentStep { begun, left, done, ends_run, cancelling });
        let mut tasks = JoinSet::new();
        for _ in 0..most {
            tasks.spawn(in_run(self.clone().visit_branches(Arc::clone(&shared))).in_current_span());
        }
        while let Some(ended) = tasks.join_next().await {
            if let Err(error) = ended
                && error.is_panic()
            {
                std::panic::resume_unwind(error.into_panic());
            }
        }
        visits.clear();
        visits.extend(shared.done.iter().map(|done| {
            let done = done.lock().unwrap_or_else(PoisonError::into_inner).take();
            done.unwrap_or_else(|| self.lost())
        }));
    }

    /// Returns a visit whose task is gone, since tokio was shut down.
    fn lost(&self) -> BoxedVisit {
        let error = RunError::Stopped { run: self.facts.id.clone(), reason: "a task of the run is gone".to_owned() };
        Box::new(VisitState { broken: Some(Box::new(error)), ..VisitState::default() })
    }

    /// Visits nodes of the step, one after the other, until no visit is left that was not begun. The future owns everything
    /// that it uses.
    ///
    /// The calls that finish are written when something waits. A short step whose calls never wait writes them with the step.
    async fn visit_branches(self, shared: Arc<ConcurrentStep>) {
        let (mut slot, mut turn) = (self.slot(), Instant::now());
        let mut made: u64 = 0;
        let mut is_unwritten = false;
        loop {
            let place = shared.begun.fetch_add(1, Ordering::Relaxed);
            let Some(activation) = self.run_state.position.frontier.get(place) else { break };
            let mut visit = Box::new(VisitState::of(activation.clone()));
            let visiting = self.visit_branch(place, &mut visit, &mut slot, &shared);
            when_pending(visiting, || {
                if std::mem::take(&mut is_unwritten) {
                    self.pending_calls.wake();
                }
            })
            .await;
            is_unwritten |= visit.called;
            *shared.done[place].lock().unwrap_or_else(PoisonError::into_inner) = Some(visit);
            shared.left.fetch_sub(1, Ordering::Relaxed);
            made += 1;
            if is_others_turn(made, &mut turn) {
                yield_now().await;
            }
        }
        if is_unwritten {
            // The last visits of other tasks may be about to end.
            yield_now().await;
            if shared.left.load(Ordering::Relaxed) > 0 {
                self.pending_calls.wake();
            }
        }
    }

    /// Visits the node of a branch, unless another visit of the step surely ends the run.
    async fn visit_branch(&self, place: usize, visit: &mut VisitState, slot: &mut CallSlot, shared: &ConcurrentStep) {
        if shared.ends_run.load(Ordering::Relaxed) {
            visit.is_left_out = true;
            return;
        }
        let is_done = match shared.cancelling.as_ref().and_then(|visits| visits.registration(place)) {
            None => {
                self.timed_visit(visit, slot, false).await;
                true
            }
            Some(registration) => self.visit_unless_cancelled(visit, slot, registration).await,
        };
        let is_stopped = visit.is_interrupted && (self.facts.stop.is_set() || self.is_overdue());
        let mut ends_run = visit.broken.is_some() || is_stopped;
        if is_done && !ends_run && !visit.is_interrupted {
            self.settle_visit(visit, slot);
            visit.is_settled = true;
            ends_run = visit.way.is_fatal();
            if let Some(visits) = &shared.cancelling {
                visits.take(self.graph(), &visit.activation, &visit.way);
            }
        }
        if ends_run {
            shared.ends_run.store(true, Ordering::Relaxed);
        }
    }

    /// Makes a visit that others of the step may cancel. Returns whether they did not.
    async fn visit_unless_cancelled(
        &self,
        visit: &mut VisitState,
        slot: &mut CallSlot,
        registration: AbortRegistration,
    ) -> bool {
        let mut has_begun = false;
        let began = self.is_timed().then(|| self.runtime.clock.monotonic());
        let work = async {
            has_begun = true;
            self.timed_visit(visit, slot, false).await;
        };
        let is_done = Abortable::new(work, registration).await.is_ok();
        if !is_done {
            visit.cancel(has_begun);
            if let Some(began) = began.filter(|_| has_begun) {
                visit.elapsed = self.runtime.clock.monotonic().saturating_sub(began);
            }
        }
        is_done
    }
}

/// Calls a function each time that a future waits.
async fn when_pending<F: Future>(future: F, mut waits: impl FnMut()) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|context| {
        let poll = future.as_mut().poll(context);
        if poll.is_pending() {
            waits();
        }
        poll
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compiles only if the future can be spawned as a task.
    fn can_be_spawned<F: Future + Send + 'static>(_: impl FnOnce(StepContext, Arc<ConcurrentStep>) -> F) {}

    #[test]
    fn the_visits_of_branches_own_all_that_they_need() {
        can_be_spawned(StepContext::visit_branches);
    }
}

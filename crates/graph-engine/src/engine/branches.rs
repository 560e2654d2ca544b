//! The visits of a step with several activations: workers, each a task, make them, so that a tool that blocks its thread holds
//! up no other branch.
//!
//! A worker makes the next visit that was not begun, until none is left. The first launcher begins a worker and another
//! launcher, and so does that one. While tools return at once, the workers make all visits before many launchers had a turn:
//! a short step has few workers. While tools wait, or block their threads, launchers have turns, and there are as many workers as
//! visits may be in progress.
//!
//! A task that a thread woke last, or that yielded to the others of its thread, runs on that thread only: it would wait while
//! the worker's next tool blocks the thread. So a worker that woke another task lets other threads continue it before its next
//! visit.

use std::any::Any;
use std::future::poll_fn;
use std::panic::resume_unwind;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use futures_util::future::{AbortRegistration, Abortable};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tracing::Instrument;

use crate::engine::cancelling::Cancelling;
use crate::engine::places::{Places, Taking};
use crate::engine::run_state::{CallSlot, StepContext, VisitState};
use crate::engine::visits::{StepVisits, VisitBlocks};
use crate::error::RunError;
use crate::future::catch_panic;
use crate::schedule::{in_run, is_others_turn, leave_thread};

/// The state that the workers of a step share.
struct ConcurrentStep {
    /// The visits that were not begun.
    left: Places,
    /// How many visits it has.
    visits: usize,
    /// How many visits may be in progress at a time.
    most: usize,
    workers: Mutex<Workers>,
    /// Wakes the run when the last worker is gone, or one panics.
    idle: Notify,
    /// The place from which on no visit begins: that of the first visit that surely ends the run, or 0 if the run was stopped or
    /// its task is gone. The visits before it begin all the same, so the same failure ends the run in whichever order they do.
    end: AtomicUsize,
    /// The visits that others of the step may cancel.
    cancelling: Option<Cancelling>,
}

/// The workers of a step.
struct Workers {
    /// The context of their visits, until the step is over.
    context: Option<StepContext>,
    /// How many there are.
    count: usize,
    /// The tasks of all that there were.
    tasks: Vec<AbortHandle>,
    /// Visits that are over.
    made: VisitBlocks,
    /// The panic of one of them.
    panic: Option<Box<dyn Any + Send>>,
}

/// A worker of a step. It owns all that its task uses.
///
/// The run changes its state when the last worker is gone, so the context is dropped first.
struct Worker {
    context: StepContext,
    place: WorkerPlace,
}

/// The place of a worker among those of its step, until it is dropped.
struct WorkerPlace {
    step: Arc<ConcurrentStep>,
    /// The last visits that it made. The others see them when it leaves its thread or ends: threads that change the same memory
    /// wait for each other.
    made: VisitBlocks,
}

/// Ends the workers of a step when it is dropped: early, if the run's task is aborted or a worker panics. They begin no further
/// visit, and their tasks end as soon as they wait.
struct StepGuard(Arc<ConcurrentStep>);

impl StepContext {
    /// Visits the nodes of the frontier: a single one in the run's own task, several in tasks of their own. At most as many
    /// visits are in progress at a time as the graph allows.
    pub(super) async fn visit_all(&self, visits: &mut StepVisits, slot: &mut CallSlot) {
        if let [activation] = self.run_state.position.frontier.as_slice() {
            let visit = visits.one();
            visit.begin(activation.clone());
            return self.timed_visit(visit, slot, true).await;
        }
        let step = StepGuard(Arc::new(ConcurrentStep::new(self)));
        step.0.launch();
        let mut made = step.0.finish().await;
        if made.len() < step.0.visits {
            made.push(step.0.visits, self.lost());
        }
        visits.set(made);
    }

    /// Returns a visit whose task is gone, since tokio was shut down.
    fn lost(&self) -> VisitState {
        let error = RunError::Stopped { run: self.facts.id.clone(), reason: "a task of the run is gone".to_owned() };
        VisitState { broken: Some(Box::new(error)), ..VisitState::default() }
    }

    /// Visits the node of a branch, unless another visit of the step surely ends the run.
    async fn visit_branch(&self, place: usize, visit: &mut VisitState, slot: &mut CallSlot, step: &ConcurrentStep) {
        if place >= step.end.load(Ordering::Relaxed) {
            visit.is_left_out = true;
            return;
        }
        let is_done = match step.cancelling.as_ref().and_then(|visits| visits.registration(place)) {
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
            if let Some(visits) = &step.cancelling {
                visit.woke |= visits.take(self.graph(), &visit.activation, &visit.way);
            }
        }
        if ends_run {
            step.end.fetch_min(if is_stopped { 0 } else { place }, Ordering::Relaxed);
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

impl ConcurrentStep {
    /// Returns a step of which no visit was begun.
    fn new(context: &StepContext) -> Self {
        let (graph, position) = (context.graph(), &context.run_state.position);
        let frontier = &position.frontier;
        Self {
            left: Places::new(frontier.len()),
            visits: frontier.len(),
            most: graph.branches_at_once(frontier).clamp(1, frontier.len().max(1)),
            workers: Mutex::new(Workers {
                context: Some(context.clone()),
                count: 0,
                tasks: Vec::new(),
                made: VisitBlocks::default(),
                panic: None,
            }),
            idle: Notify::new(),
            end: AtomicUsize::new(usize::MAX),
            cancelling: Cancelling::of(graph, position),
        }
    }

    fn workers(&self) -> MutexGuard<'_, Workers> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a worker and a launcher of the next one, unless there are as many as are of use.
    ///
    /// The launcher is spawned first: a thread of Tokio keeps the task that it spawned last for itself, and gives the others to
    /// any thread that has nothing to do.
    fn launch(self: &Arc<Self>) {
        let Some((worker, is_last)) = self.worker() else { return };
        if !is_last {
            let step = Arc::clone(self);
            tokio::spawn(async move { step.launch() }.in_current_span());
        }
        let task = tokio::spawn(in_run(worker.run()).in_current_span()).abort_handle();
        let mut workers = self.workers();
        if workers.context.is_some() {
            workers.tasks.push(task);
        } else {
            // The step is over, or the run's task was aborted.
            drop(workers);
            task.abort();
        }
    }

    /// Adds a worker, unless there are as many as are of use. Returns it, and whether it is the last one.
    fn worker(self: &Arc<Self>) -> Option<(Worker, bool)> {
        let mut workers = self.workers();
        if workers.count >= self.most || self.left.is_empty() {
            return None;
        }
        let context = workers.context.clone()?;
        workers.count += 1;
        let place = WorkerPlace { step: Arc::clone(self), made: VisitBlocks::default() };
        Some((Worker { context, place }, workers.count == self.most))
    }

    /// Whether visits are not over, as far as the others see.
    fn is_left(&self) -> bool {
        self.workers().made.len() < self.visits
    }

    /// Waits until the workers are gone and nothing refers to the context of their visits. Returns the visits: all of them,
    /// unless Tokio was shut down. Panics as soon as a worker does.
    async fn finish(&self) -> VisitBlocks {
        loop {
            let panic = {
                let mut workers = self.workers();
                if workers.count == 0 && workers.panic.is_none() {
                    workers.context = None;
                    return std::mem::take(&mut workers.made);
                }
                workers.panic.take()
            };
            if let Some(panic) = panic {
                resume_unwind(panic);
            }
            self.idle.notified().await;
        }
    }
}

impl Drop for StepGuard {
    fn drop(&mut self) {
        self.0.end.store(0, Ordering::Relaxed);
        let (context, tasks) = {
            let mut workers = self.0.workers();
            (workers.context.take(), std::mem::take(&mut workers.tasks))
        };
        drop(context);
        tasks.iter().for_each(AbortHandle::abort);
    }
}

impl Worker {
    /// Works, and gives its visits to the step.
    async fn run(mut self) {
        if let Err(panic) = catch_panic(self.work()).await {
            self.place.step.end.store(0, Ordering::Relaxed);
            self.place.step.workers().panic = Some(panic);
        }
    }

    /// Visits nodes of the step, one after the other, until no visit is left that was not begun.
    ///
    /// The calls that finish are written when a visit waits, or takes long. A short step whose calls never wait writes them with
    /// the step.
    async fn work(&mut self) {
        let Self { context, place: WorkerPlace { step, made } } = self;
        let (mut slot, mut turn) = (context.slot(), Instant::now());
        let (mut taking, mut visits, mut is_unwritten) = (Taking::new(), 0, false);
        while let Some(place) = step.left.take(&mut taking) {
            let activation = &context.run_state.position.frontier[place];
            let mut has_waited = false;
            let mut visit = VisitState::of(activation.clone());
            {
                // It is large, so it is not moved.
                let visiting = pin!(context.visit_branch(place, &mut visit, &mut slot, step));
                when_pending(visiting, || {
                    has_waited = true;
                    if std::mem::take(&mut is_unwritten) {
                        context.pending_calls.wake();
                    }
                })
                .await;
            }
            taking.note(has_waited);
            is_unwritten |= visit.called;
            let woke = visit.woke;
            made.push(place, visit);
            visits += 1;
            if is_others_turn(visits, &mut turn) || woke {
                // A worker that ends meanwhile counts them as over.
                step.workers().made.append(made);
                leave_thread().await;
            }
        }
        step.workers().made.append(made);
        if is_unwritten && step.is_left() {
            // The last visits of other workers may be about to end.
            leave_thread().await;
            if step.is_left() {
                context.pending_calls.wake();
            }
        }
    }
}

impl Drop for WorkerPlace {
    fn drop(&mut self) {
        let is_idle = {
            let mut workers = self.step.workers();
            workers.made.append(&mut self.made);
            workers.count -= 1;
            workers.count == 0 || workers.panic.is_some()
        };
        if is_idle {
            self.step.idle.notify_one();
        }
    }
}

/// Calls a function each time that a future waits.
async fn when_pending<F: Future>(mut future: Pin<&mut F>, mut waits: impl FnMut()) -> F::Output {
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
    fn can_be_spawned<F: Future + Send + 'static>(_: impl FnOnce(Worker) -> F) {}

    #[test]
    fn the_visits_of_branches_own_all_that_they_need() {
        can_be_spawned(Worker::run);
    }
}

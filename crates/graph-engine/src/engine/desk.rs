//! The desk: what of a step is done before the rest of it is, written down while the rest is at work.

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::future::join;
use graph_model::timestamp;
use graph_model::value::Value;
use tokio::sync::Notify;

use super::perform::{Job, Made};
use super::{Engine, StepContext, Visit, Writing};
use crate::error::RunError;
use crate::record::{Calls, Done, Sealed, Status};
use crate::step::Activation;
use crate::store::StoreError;
use crate::vault::{Place, called_mask, item_text};

/// Calls that finished before their step was done, by the number of the visit and the item's index.
pub(crate) type Finished = HashMap<(u64, Option<u64>), Done>;

/// Where calls are laid that finished while others of the step are at work.
#[derive(Default)]
pub(crate) struct Desk {
    finished: Mutex<Laid>,
    told: Notify,
    /// How many of all calls that were ever laid down are durable, or written with their step.
    durable: AtomicU64,
    /// Wakes whoever waits for a call to be durable.
    stored: Notify,
    /// Whether all of the step is done, and so nothing is written of its parts any more.
    is_over: AtomicBool,
    /// Whether the store failed: no more calls are begun.
    is_cut: AtomicBool,
}

/// The calls on a desk.
#[derive(Default)]
struct Laid {
    calls: Vec<Done>,
    /// How many were ever laid down.
    count: u64,
}

/// Which of all calls that were ever laid down a call is, from 1.
#[derive(Debug, Clone, Copy)]
pub(super) struct Order(u64);

impl Desk {
    fn lay(&self, done: Done) -> Order {
        let order = {
            let mut finished = self.finished();
            finished.calls.push(done);
            finished.count += 1;
            Order(finished.count)
        };
        self.told.notify_one();
        order
    }

    /// Takes what lies there, and says which of it is the last.
    fn take(&self) -> (Vec<Done>, Order) {
        let mut finished = self.finished();
        (std::mem::take(&mut finished.calls), Order(finished.count))
    }

    /// Says that the calls up to this one are durable.
    fn store(&self, Order(last): Order) {
        self.durable.store(last, Ordering::Release);
        self.stored.notify_waiters();
    }

    /// Says that the store failed.
    fn cut(&self) {
        self.is_cut.store(true, Ordering::Release);
        self.stored.notify_waiters();
    }

    /// Waits until a call is durable, or the store has failed.
    pub(super) async fn durable(&self, Order(place): Order) {
        loop {
            let stored = self.stored.notified();
            tokio::pin!(stored);
            // A notification between the look and the wait is not missed.
            stored.as_mut().enable();
            if self.durable.load(Ordering::Acquire) >= place || self.is_cut() {
                return;
            }
            stored.await;
        }
    }

    fn finished(&self) -> MutexGuard<'_, Laid> {
        self.finished.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Acquire)
    }
}

impl StepContext {
    /// Whether a step of these nodes makes several calls, of which each is written down when it is done.
    pub(super) fn shares(&self, frontier: &[Activation]) -> bool {
        let is_each = |at: &Activation| self.graph().node(at.node).kind.goes_over_list();
        self.is_kept && (frontier.len() > 1 || frontier.iter().any(is_each))
    }

    /// Waits for the visits of a step, and meanwhile writes down which of its calls are done.
    pub(super) async fn beside(&self, writing: &mut Writing, visits: impl Future<Output = ()>) -> Result<(), RunError> {
        let desk = &self.desk;
        desk.is_over.store(false, Ordering::Release);
        let visits = async {
            visits.await;
            desk.is_over.store(true, Ordering::Release);
            desk.told.notify_one();
        };
        let ((), written) = join(Box::pin(visits), self.write_done(writing)).await;
        let (run, step) = (self.facts.id.clone(), self.standing.position.steps + 1);
        written.map_err(|source| RunError::Store { run, step, source })
    }

    /// Writes down what is laid on the desk until all of the step is done. Calls that finish during a write are written together
    /// by the next.
    async fn write_done(&self, writing: &mut Writing) -> Result<(), StoreError> {
        let desk = &self.desk;
        loop {
            desk.told.notified().await;
            if desk.is_over.load(Ordering::Acquire) {
                return Ok(());
            }
            let (done, last) = desk.take();
            if done.is_empty() {
                continue;
            }
            let record = writing.seal("calls", &Calls { done });
            let written = writing.append_aside(vec![record], Status::Running).await;
            if written.is_err() {
                desk.cut();
                return written;
            }
            desk.store(last);
        }
    }

    /// Lays down that a call is done, of several that its step makes.
    pub(super) fn lay(&self, job: &Job<'_>, made: &Made, result: &Value) -> Order {
        let node = &self.graph().node(job.at.node).name;
        let item = job.item.map(|(index, _)| index);
        let result = match &self.vault {
            Some(vault) => vault.seal(
                called_mask(self.graph(), node),
                Place::call(job.at.number, &item_text(item)),
                result.clone(),
            ),
            None => result.clone(),
        };
        self.desk.lay(Done {
            step: job.at.number,
            node: node.clone(),
            item,
            result,
            calls: if made.calls > 1 { made.calls } else { 0 },
            run: made.run.clone(),
            cached: made.cached,
            now: made.at.map(timestamp::unix_milliseconds),
            warnings: made.warnings.clone(),
        })
    }

    /// Returns what is known of a call from before the run was taken up, if it was done.
    pub(super) fn done(&self, step: u64, item: Option<u64>) -> Option<Made> {
        if self.standing.done.is_empty() {
            return None;
        }
        let done = self.standing.done.get(&(step, item))?;
        Some(Made {
            value: Some(done.result.clone()),
            calls: done.calls.max(1),
            run: done.run.clone(),
            cached: done.cached,
            at: done.now.map(timestamp::from_unix_milliseconds),
            warnings: done.warnings.clone(),
            ..Made::default()
        })
    }

    /// Returns the visit that was done before, if it was.
    pub(super) fn redo(&self, visit: &mut Visit) -> bool {
        let done = self.done(visit.activation.number, None);
        let is_done = done.is_some();
        done.into_iter().for_each(|made| visit.take(made));
        is_done
    }
}

impl Engine {
    /// Forgets what is known of the calls of a step that is committed.
    pub(super) fn clear_desk(&mut self) {
        self.standing().done.clear();
        let (_, last) = self.desk.take();
        self.desk.store(last);
    }

    /// Writes down what is done of a step that is not going to be, if there is anything.
    pub(super) fn seal_done(&mut self) -> Option<Sealed> {
        let (done, _) = self.desk.take();
        let writing = self.journal.as_mut().filter(|_| !done.is_empty())?;
        Some(writing.seal("calls", &Calls { done }))
    }
}

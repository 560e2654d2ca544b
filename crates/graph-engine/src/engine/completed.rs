//! Calls that finish before the rest of their step: they are written to the journal and not made again.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join;
use graph_model::timestamp;
use graph_model::value::Value;

use crate::activation::Activation;
use crate::engine::call_result::{CallResult, ItemCalls, PendingCall};
use crate::engine::journal_writer::JournalWriter;
use crate::engine::pending_calls::Order;
use crate::engine::run_state::{Engine, RunState, StepContext, VisitState};
use crate::error::RunError;
use crate::failure::{Category, Failure};
use crate::record::{Calls, Done, DoneFailure, SignedRecord};
use crate::run_secrets::{SecretLocation, called_mask, item_text};
use crate::status::Status;
use crate::step::Opened;
use crate::store::StoreError;

/// How long the calls of a step that finish are not written if nothing waits for them: a step that is shorter writes them
/// with its own record.
const MOMENT: Duration = Duration::from_millis(1);

impl StepContext {
    /// Whether a step of these nodes makes several calls, each of which is recorded when it is done.
    pub(super) fn shares(&self, frontier: &[Activation]) -> bool {
        let is_each = |at: &Activation| self.graph().node(at.node).kind.goes_over_list();
        self.is_kept && (frontier.len() > 1 || frontier.iter().any(is_each))
    }

    /// Waits for the visits of a step, and meanwhile records which of its calls are done.
    pub(super) async fn beside(
        &self,
        journal_writer: &mut JournalWriter,
        visits: impl Future<Output = ()>,
    ) -> Result<(), RunError> {
        let pending_calls = &self.pending_calls;
        pending_calls.is_over.store(false, Ordering::Release);
        pending_calls.is_eager.store(false, Ordering::Release);
        pending_calls.next_is_first.store(true, Ordering::Release);
        let visits = async {
            visits.await;
            pending_calls.is_over.store(true, Ordering::Release);
            pending_calls.wake();
        };
        let ((), written) = join(Box::pin(visits), self.write_done(journal_writer)).await;
        let (run, step) = (self.facts.id.clone(), self.run_state.position.steps + 1);
        written.map_err(|source| RunError::Store { run, step, source })
    }

    /// Writes the calls that finish, until the whole step is done. Calls that finish during a write are written together by
    /// the next one.
    ///
    /// At first only those that others wait for are written. After a moment all are, even if a visit blocks its thread.
    async fn write_done(&self, journal_writer: &mut JournalWriter) -> Result<(), StoreError> {
        let pending_calls = &self.pending_calls;
        let mut moment = self.runtime.clock.sleep(MOMENT);
        loop {
            tokio::select! {
                biased;
                () = pending_calls.added.notified() => {}
                () = &mut moment, if !pending_calls.is_eager.load(Ordering::Acquire) => {
                    pending_calls.is_eager.store(true, Ordering::Release);
                }
            }
            if pending_calls.is_over.load(Ordering::Acquire) {
                return Ok(());
            }
            let (done, last) = pending_calls.take();
            if done.is_empty() {
                continue;
            }
            let record = journal_writer.sign("calls", &Calls { done });
            let written = journal_writer.append_aside(vec![record], Status::Running).await;
            if written.is_err() {
                pending_calls.cut();
                return written;
            }
            pending_calls.store(last);
        }
    }

    /// Queues a finished call for the journal, in a step that makes several. Returns its place, and whether the task that writes
    /// was woken, which happens only later in the step.
    pub(super) fn push(&self, job: &PendingCall<'_>, made: &CallResult, result: &Value) -> (Order, bool) {
        let done = self.done_call(job, made, None);
        let result = match &self.run_secrets {
            Some(run_secrets) => run_secrets.encrypt(
                called_mask(self.graph(), &done.node),
                SecretLocation::call(done.step, &item_text(done.item)),
                result.clone(),
            ),
            None => result.clone(),
        };
        self.pending_calls.push(Done { result, ..done })
    }

    /// Returns a finished call, with its result as it is.
    pub(super) fn done_call(&self, job: &PendingCall<'_>, made: &CallResult, result: Option<&Value>) -> Done {
        Done {
            step: job.at.number,
            node: self.graph().node(job.at.node).name.clone(),
            item: job.item.map(|(index, _)| index),
            result: result.cloned().unwrap_or_default(),
            failure: None,
            suspended: None,
            calls: if made.calls > 1 { made.calls } else { 0 },
            run: made.run.clone(),
            cached: made.cached,
            now: made.at.map(timestamp::unix_milliseconds),
            warnings: made.warnings.clone(),
        }
    }

    /// Keeps the failed calls of a foreach that waits for runs of other items: they are not made again with the visit.
    pub(super) fn keep_failures(&self, at: &Activation, items: &[Value], calls: &mut ItemCalls) {
        calls.failures.sort_by_key(|(index, _)| *index);
        for (index, made) in &calls.failures {
            let (Some(failure), Some(item)) = (&made.failure, items.get(*index)) else { continue };
            let job = PendingCall { at, item: Some((*index as u64, item)) };
            let (code, data) = (failure.code.clone(), failure.data.clone());
            let category = failure.category.name().to_owned();
            let failure = DoneFailure { error: failure.message.clone(), category, code, data };
            let done = Done { failure: Some(failure), ..self.done_call(&job, made, None) };
            if self.done(at.number, Some(*index as u64)).is_none() {
                self.pending_calls.push(done.clone());
                calls.done.push(done);
            }
        }
    }

    /// Returns the result of a call that was done before the run was resumed, if it was.
    pub(super) fn done(&self, step: u64, item: Option<u64>) -> Option<CallResult> {
        if self.run_state.done.is_empty() {
            return None;
        }
        let done = self.run_state.done.get(&(step, item))?;
        let failed = |DoneFailure { error, category, code, data }: &DoneFailure| {
            let category = Category::named(category).unwrap_or(Category::Permanent);
            Box::new(Failure { code: code.clone(), data: data.clone(), ..Failure::of(category, error.clone()) })
        };
        Some(CallResult {
            value: (done.failure.is_none() && done.suspended.is_none()).then(|| done.result.clone()),
            failure: done.failure.as_ref().map(failed),
            suspended: done.suspended.clone(),
            calls: done.calls.max(1),
            run: done.run.clone(),
            cached: done.cached,
            at: done.now.map(timestamp::from_unix_milliseconds),
            warnings: done.warnings.clone(),
            ..CallResult::default()
        })
    }

    /// Takes over the result of a visit that was done before the run was resumed, or that a hook suspended. Returns whether it was.
    pub(super) fn redo(&self, visit: &mut VisitState) -> bool {
        let done = self.done(visit.activation.number, None);
        let is_done = done.is_some();
        done.into_iter().for_each(|made| visit.take(made));
        is_done
    }
}

impl Engine {
    /// Signs a record of the finished calls of the step to be committed that are kept with their visits, whose failures are
    /// held, or which wait for nested runs. There may be none.
    pub(super) fn sign_kept_calls(&mut self, visits: &[&mut VisitState]) -> Option<SignedRecord> {
        let is_kept = |visit: &&&mut VisitState| {
            (visit.way.is_held() && !visit.items.is_empty()) || visit.way.opened().is_some_and(Opened::is_inside)
        };
        let kept: Vec<u64> = visits.iter().filter(is_kept).map(|visit| visit.activation.number).collect();
        if kept.is_empty() {
            return None;
        }
        let (mut done, last) = self.pending_calls.take();
        self.pending_calls.store(last);
        done.retain(|done| kept.contains(&done.step));
        let journal_writer = self.journal.as_mut().filter(|_| !done.is_empty())?;
        Some(journal_writer.sign("calls", &Calls { done }))
    }

    /// Forgets the finished calls of a step that is committed, except those of visits that wait for nested runs.
    pub(super) fn clear_pending(&mut self, visits: &mut [&mut VisitState]) {
        let RunState { done, position, .. } = self.run_state();
        if !(done.is_empty() && position.waits.is_empty()) {
            let waits = |step: u64| position.waits.iter().any(|wait| wait.step == step && wait.opened.is_inside());
            let keeps = |visit: &&mut VisitState| visit.way.opened().is_some_and(Opened::may_have_called);
            let visited: BTreeMap<u64, bool> =
                visits.iter().map(|visit| (visit.activation.number, keeps(visit))).collect();
            done.retain(|(step, _), done| match visited.get(step) {
                Some(is_left) => *is_left && done.suspended.is_none(),
                None => position.parked.iter().any(|at| at.number == *step),
            });
            let parked = visits.iter_mut().filter(|visit| waits(visit.activation.number));
            let kept = parked.filter_map(|visit| visit.parked.take()).flat_map(|parked| parked.done);
            done.extend(kept.map(|done| ((done.step, done.item), done)));
        }
        let (_, last) = self.pending_calls.take();
        self.pending_calls.store(last);
    }

    /// Signs a record of the finished calls of a step that will not be committed, if there are any.
    pub(super) fn sign_done(&mut self) -> Option<SignedRecord> {
        let (done, _) = self.pending_calls.take();
        let journal_writer = self.journal.as_mut().filter(|_| !done.is_empty())?;
        Some(journal_writer.sign("calls", &Calls { done }))
    }
}

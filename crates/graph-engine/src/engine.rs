//! The engine: plan, perform, advance, commit.
//!
//! A step visits every activation of the frontier against the same committed state, folds what they write in the frontier's
//! order, commits, and only then moves on. A crash at any instant repeats only the step that was not committed, with the
//! same idempotency key for each call.

mod begin;
mod branches;
mod cache_key;
mod cached;
mod call_result;
mod cancelling;
mod completed;
mod ended;
mod hooks;
mod journal_writer;
mod nested;
mod observed;
mod pending_calls;
mod perform;
mod places;
mod run_state;
mod single;
mod visits;
mod waits;
mod walk;

use crate::activation::{Activation, Change, TakenEdges};
use crate::cache::Fresh;
use crate::call::Call;
use crate::engine::hooks::{HookValues, Steered};
use crate::engine::run_state::{CallSlot, VisitState, alone};
use crate::engine::visits::StepVisits;
use crate::error::RunError;
use crate::failure::{Failure, HeldFailure, LastError};
use crate::graph::{GraphTables, Notes, Now, tables};
use crate::hooks::Control;
use crate::meter::Refused;
use crate::observer::{Event, notify};
use crate::record;
use crate::record::{
    Calls, Covered, Done, End, Entry, Record, SignedRecord, SnapshotDraft, Step, Visit, VisitFailure, new_orders,
    open_joins, reduced, said_way, targets,
};
use crate::run_secrets::{SecretLocation, hidden, result_mask};
use crate::runtime::Runtime;
use crate::schedule::is_others_turn;
use crate::start::nests_waiting;
use crate::status::Status;
use crate::step::{
    CANCELLED, CallFacts, Candidate, Env, FoldError, OVERDUE, Opened, Outcome, Overvisited, Settled, Suspension, UNFIT,
    UNRETURNED, Way, at_limit, fold, keys, output, settle, state_value, write,
};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use graph_model::program::{self, LimitCode, OnMaxSteps};
use graph_model::secret::{HIDDEN, Mask};
use graph_model::timestamp;
use graph_model::value::{AsView, Mismatch, Value, View};
use tokio::task::yield_now;
use tracing::Instrument;

pub(crate) use begin::{Begin, Taken, WaitTime, run_span};
pub use ended::Ended;
pub(crate) use ended::ResultParts;
pub use journal_writer::Durability;
pub(crate) use journal_writer::JournalWriter;
pub(crate) use pending_calls::PendingCalls;
pub(crate) use run_state::{Engine, RunContext, RunState, StepContext};
pub use single::OneVisit;
pub(crate) use waits::{open_waits, waits_inside, waits_to_store};

impl Engine {
    /// Returns the state and position of the run, to change them between two steps.
    pub(crate) fn run_state(&mut self) -> &mut RunState {
        alone(&mut self.context.run_state)
    }

    /// Marks the run as one that has begun, so that hooks are not notified of its start.
    pub(crate) fn not_new(mut self) -> Self {
        self.is_new = false;
        self
    }

    /// Runs until an end, an error, or a commit that fails.
    ///
    /// A run that waits holds this future for as long as it waits. The parts that few runs need are boxed, so that they do
    /// not enlarge the future of every run.
    pub(crate) async fn drive(mut self) -> Result<Ended, RunError> {
        let ended = self.drive_to_end().await;
        // The steps that were not committed can be taken by others.
        self.meters.release(self.reserved);
        ended
    }

    async fn drive_to_end(&mut self) -> Result<Ended, RunError> {
        if self.is_new {
            let start = self.run_state.position.next_node(self.graph());
            let told = Box::pin(self.tell(program::Event::GraphStarted, start, [], Status::Running)).await;
            if let Some(told) = told {
                Box::pin(self.heed(told, start, 0)).await?;
            }
        }
        if let Some(Record { entry: Entry::Step(step), .. }) = self.unasked.take().map(|record| *record) {
            let values = self.recorded_values(&step);
            if let Some(error) = Box::pin(self.tell_step(values, false)).await {
                return Err(error);
            }
        }
        // Visits are reused from step to step.
        let mut made = StepVisits::default();
        loop {
            if self.is_interrupted()
                && let Some(error) = Box::pin(self.interruption()).await
            {
                return Err(error);
            }
            if self.run_state.position.has_failed(self.graph()) {
                return Err(Box::pin(self.end_held()).await);
            }
            if !self.run_state.position.waits.is_empty() {
                Box::pin(self.take_waits()).await?;
                if self.run_state.position.is_waiting() {
                    return Err(Box::pin(self.wait()).await);
                }
            }
            if !self.may_walk() || !self.walk(&mut made).await {
                // If the run was stopped on the fast path, no other step begins.
                if self.facts.stop.is_set() {
                    continue;
                }
                if is_others_turn(self.run_state.position.steps, &mut self.turn) {
                    yield_now().await;
                }
                // Visits that a hook has suspended are left first, which takes no steps.
                if self.is_exhausted()
                    && !self.is_suspended()
                    && let Some(end) = Box::pin(self.at_limit()).await
                {
                    return end;
                }
                if let Some(over) = self.run_state.position.overvisited(self.graph()) {
                    return Err(Box::pin(self.end_overvisited(over)).await);
                }
                if let Err(refused) = self.reserve() {
                    return Err(Box::pin(self.end_refused(refused)).await);
                }
                if self.durability != Durability::Sync && self.nests_next() {
                    Box::pin(self.settle_journal()).await?;
                }
                self.perform(&mut made).await;
            }
            let mut visits = made.in_order();
            if let Some(broken) = visits.iter_mut().find_map(|visit| visit.broken.take()) {
                return Err(*broken);
            }
            if visits.iter().any(|visit| visit.is_interrupted)
                && let Some(error) = Box::pin(self.interruption()).await
            {
                return Err(error);
            }
            self.settle(&mut visits);
            if self.graph().can_park || visits.iter().any(|visit| visit.waits) {
                Box::pin(self.open_waits(&mut visits)).await?;
            }
            let fatal = visits.iter().enumerate().filter(|(_, visit)| visit.way.is_fatal());
            if let Some((failed, _)) = fatal.min_by_key(|(_, visit)| visit.activation.number) {
                return Err(Box::pin(self.fail(&mut visits, failed)).await);
            }
            if let Some(ended) = self.commit(&mut visits).await? {
                return ended;
            }
        }
    }

    /// Whether a visit of the next step may begin a nested run.
    fn nests_next(&self) -> bool {
        self.run_state.position.frontier.iter().any(|at| self.graph().may_nest(at.node))
    }

    /// Waits until the steps so far are durable. The id of a nested run has the number of its visit: after a crash, that is the same
    /// visit.
    async fn settle_journal(&mut self) -> Result<(), RunError> {
        let Some(journal) = &mut self.journal else { return Ok(()) };
        let settled = journal.append_durably(None).await;
        settled.map_err(|source| self.failed_store(source))
    }

    /// Whether the fast path applies: there is no journal, observer, span, deadline, history or after-step hook, and the
    /// graph has no secrets.
    fn may_walk(&self) -> bool {
        !self.is_timed()
            && !self.meters.is_counting()
            // A subscriber to spans sees each step.
            && !tracing::span_enabled!(tracing::Level::INFO)
            && self.run_secrets.is_none()
            && self.facts.deadline.is_none()
            && self.history.is_none()
            && !self.has_hooks(program::Event::AfterStep)
    }

    /// Whether the run was stopped, or has taken all the time it may.
    fn is_interrupted(&self) -> bool {
        self.facts.stop.is_set() || self.is_overdue()
    }

    /// Ends the run if it was stopped, or has taken all the time it may.
    async fn interruption(&mut self) -> Option<RunError> {
        let run = self.facts.id.clone();
        if self.facts.stop.is_cancelled() {
            Box::pin(self.cancel_inside()).await;
            let (error, signal) = (Some(CANCELLED.to_owned()), self.facts.stop.signal());
            let ended = self.end_without_result(End { error, signal, ..self.end_of(Status::Cancelled) }).await;
            let (steps, state) = self.left();
            return Some(ended.err().unwrap_or(RunError::Cancelled { run, steps, state }));
        }
        if self.facts.stop.is_set() {
            return Some(self.leave().await);
        }
        if self.is_overdue() {
            let error = Some(OVERDUE.to_owned());
            let ended = self.end_without_result(End { error, ..self.end_of(Status::Error) }).await;
            let (steps, state) = self.left();
            return Some(ended.err().unwrap_or(RunError::Deadline { run, steps, state }));
        }
        None
    }

    /// Returns how many steps the run has made, and its state, for the error that it ends with.
    fn left(&self) -> (u64, Box<Value>) {
        (self.run_state.position.steps, Box::new(self.state_value()))
    }

    /// Leaves the run unfinished, to be resumed. Everything done so far is made durable.
    async fn leave(&mut self) -> RunError {
        let (run, steps) = (self.facts.id.clone(), self.run_state.position.steps);
        // Finished calls of the step are not made again when the run is resumed.
        let done = self.sign_done();
        if let Some(journal) = &mut self.journal
            && let Err(source) = journal.flush(done).await
        {
            self.observe_end(Status::Running, Some(&source.to_string()), None);
            return RunError::Store { run, step: steps + 1, source };
        }
        let error = RunError::ShutDown { run, steps, state: Box::new(self.state_value()) };
        self.observe_end(Status::Running, Some(&error.to_string()), None);
        error
    }

    /// Returns how many steps the run may take.
    fn most_steps(&self) -> u64 {
        self.run_state.position.most_steps(self.graph())
    }

    fn is_exhausted(&self) -> bool {
        self.run_state.position.is_exhausted(self.graph())
    }

    /// Ends the run because it has taken all the steps it may, unless a hook allows more (R130, R131).
    async fn at_limit(&mut self) -> Option<Result<Ended, RunError>> {
        let node = self.run_state.position.next_node(self.graph());
        let (taken, most) = (self.run_state.position.steps, self.most_steps());
        let control = self.limit_hooks(node, taken, most).await;
        if let Some(Control::Suspend { reason, escalated, .. }) = &control {
            let told = self.suspended(reason, escalated.clone());
            if let Err(error) = self.heed(told, node, taken).await {
                return Some(Err(error));
            }
        }
        if control.as_ref().and_then(Control::additional_steps).is_some_and(|additional| self.goes_on(additional)) {
            return None;
        }
        match &control {
            Some(Control::Fail { error }) => {
                return Some(Err(self.end_at(node, taken, Failure::permanent(error.clone()), false).await));
            }
            Some(Control::Abort) => {
                let failure = Failure::permanent(hooks::ABORTED);
                return Some(Err(self.end_at(node, taken, failure, false).await));
            }
            Some(Control::Retry { .. } | Control::Continue { .. } | Control::Suspend { .. }) | None => {}
        }
        let on_max_steps = self.graph().settings.on_max_steps;
        // A run that a hook would have stopped has no result.
        if on_max_steps == OnMaxSteps::Fail || matches!(control, Some(Control::Suspend { .. })) {
            return Some(Err(self.exceed().await));
        }
        // The run ends here, with its state (R130 has no such outcome; it comes from bounded state machines).
        Some(self.end_exhausted(on_max_steps == OnMaxSteps::ReturnWithFlag).await)
    }

    /// Whether a hook has suspended all visits of the next step, and they are not left yet.
    fn is_suspended(&self) -> bool {
        let RunState { position, done, .. } = &*self.run_state;
        let is_left = |at: &Activation| done.get(&(at.number, None)).is_some_and(|done| done.suspended.is_some());
        !done.is_empty() && !position.frontier.is_empty() && position.frontier.iter().all(is_left)
    }

    /// Lets the run take more steps. Returns whether it may take another one then.
    fn goes_on(&mut self, additional_steps: u32) -> bool {
        let Some(wanted) = self.run_state.position.extended(self.graph(), additional_steps) else { return false };
        self.run_state().position.limit = Some(wanted);
        !self.is_exhausted()
    }

    /// Counts the steps that are about to begin, with those of the runs around this one.
    fn reserve(&mut self) -> Result<(), Refused> {
        if self.meters.is_counting() {
            let steps = self.run_state.position.frontier.len() as u64;
            self.meters.reserve(steps)?;
            self.reserved = steps;
        }
        Ok(())
    }

    /// Ends the run because its next step would exceed a `limits.steps`, with the error of a hook if one gives it.
    async fn end_refused(&mut self, refused: Refused) -> RunError {
        let Refused::Exceeded { used, most } = refused else { return self.leave().await };
        let node = self.run_state.position.next_node(self.graph());
        let steps = self.run_state.position.steps;
        let values = at_limit(LimitCode::Steps, used, most, None);
        if let Some(error) = self.hooks_at_bound(node, values).await {
            return self.end_at(node, steps + 1, Failure::permanent(error), false).await;
        }
        let (run, (_, state)) = (self.facts.id.clone(), self.left());
        let error = RunError::MaxNestedSteps { run, max_steps: most, steps, state };
        self.end_at_limit(node, error).await
    }

    /// Ends the run because it would visit a node more often than the graph allows, with the error of a hook if one gives it.
    async fn end_overvisited(&mut self, over: Overvisited) -> RunError {
        let name = &self.graph().node(over.node).name;
        let values = at_limit(LimitCode::Visits, over.visits, u64::from(over.most), Some(name));
        if let Some(error) = self.hooks_at_bound(over.node, values).await {
            let next = self.run_state.position.steps + 1;
            return self.end_at(over.node, next, Failure::permanent(error), false).await;
        }
        let (node, (steps, state)) = (self.graph().node(over.node).name.clone(), self.left());
        let error = RunError::MaxVisits { run: self.facts.id.clone(), node, max_visits: over.most, steps, state };
        self.end_at_limit(over.node, error).await
    }

    async fn end_exhausted(&mut self, flag: bool) -> Result<Ended, RunError> {
        let output = self.keys_value();
        let mut ended = self.ended(output);
        ended.exhausted = flag;
        if self.is_kept {
            let (status, steps) = (ended.status, ended.steps);
            let output = self.encrypted_output(steps, &ended.output);
            let unread = Box::pin(self.unread()).await?;
            ended.unread.clone_from(&unread);
            let end = End { output, exhausted: true, unread, ..End::of(status, steps) };
            let record = self.sign("end", &end);
            self.append(vec![record], ended.steps + 1, ended.status).await?;
        }
        self.observe_result(&ended);
        self.tell_end(self.run_state.position.last, ended.status, None).await;
        Ok(ended)
    }

    /// Visits every node of the frontier.
    async fn perform(&mut self, visits: &mut StepVisits) {
        let shares = self.shares(&self.run_state.position.frontier);
        let Self { context, journal, slot, .. } = self;
        let all = context.visit_all(visits, slot);
        if let Some(mut journal_writer) = journal.take_if(|_| shares) {
            if let Err(error) = Box::pin(context.beside(&mut journal_writer, all)).await {
                visits.break_off(error);
            }
            *journal = Some(journal_writer);
        } else {
            all.await;
        }
    }

    /// Computes what the visits write and where they lead.
    fn settle(&mut self, visits: &mut [&mut VisitState]) {
        let Self { context, slot, .. } = self;
        let is_open = |visit: &&mut VisitState| !visit.is_left_out && !visit.is_settled;
        for visit in visits.iter_mut().filter(|visit| is_open(visit)) {
            context.settle_visit(visit, slot);
        }
    }

    /// Commits a step: records it, waits as the run's [`Durability`] requires, and moves on. Returns how the run ended, if
    /// it did.
    ///
    /// A step that cannot be committed has no visible effect: its outcome is computed first, and the state is written once
    /// all of it fits. If the store fails, the run stops, and a resumed run continues from what the store has.
    async fn commit(&mut self, visits: &mut [&mut VisitState]) -> Result<Option<Result<Ended, RunError>>, RunError> {
        let first = self.run_state.position.steps + 1;
        let is_over = |visit: &&mut &mut VisitState| !visit.waits;
        let over = visits.iter_mut().filter(is_over);
        self.meters.close(over.map(|visit| (visit.activation.number, &mut visit.below)));
        let (last, at) = visits.last().map_or((0, None), |visit| (visit.activation.node, visit.at));
        let candidate = match self.fold(visits) {
            Ok(candidate) => candidate,
            Err(error) => {
                let (failure, is_unfit) = (error.message(self.graph()), error.is_unfit());
                return Err(Box::pin(self.end_at(error.node(), first, Failure::permanent(failure), is_unfit)).await);
            }
        };
        let before = self.journal.as_ref().map(|journal| (journal.chain.clone(), journal.due));
        let mut records = Vec::new();
        if self.is_kept {
            records.extend(self.sign_kept_calls(visits));
            records.push(self.sign_step(visits, &candidate));
        }
        if self.is_observed() {
            self.note_new_keys(visits);
        }
        let can_park = self.graph().can_park || visits.iter().any(|visit| visit.waits);
        let waits =
            (can_park || !self.run_state.position.waits.is_empty()).then(|| self.run_state.position.waits.clone());
        let shown = if self.shows_visits() { self.owned(visits) } else { Vec::new() };
        let kept = self.history.is_some().then(|| self.owned(visits));
        // Hooks receive copies of a visit's values, because the visit's buffers are reused.
        let hook_values = self.has_hooks(program::Event::AfterStep).then(|| self.after_step_values(visits));
        let held = visits.iter().filter(|visit| visit.way.is_held());
        self.held_failures.extend(held.filter_map(|visit| Some((visit.activation.number, visit.failure.clone()?))));
        // Reached only if the machine rejects a value that it accepted when it was checked.
        let taken = self.take(candidate, visits).map_err(|(node, mismatch)| (node, format!("{UNFIT}{mismatch}")));
        let before_step = self.history.as_ref().map_or(0, Vec::len);
        if let (Some(history), Some(kept)) = (&mut self.history, kept) {
            history.extend(kept);
        }
        let unread = match self.run_state.position.is_over() {
            true => Box::pin(self.unread()).await?,
            false => BTreeMap::new(),
        };
        let ended = match taken.and_then(|()| self.reach_end(last, at, visits, &mut records, unread)) {
            Ok(ended) => ended,
            Err((node, message)) => {
                if let (Some(journal), Some((chain, due))) = (&mut self.journal, before) {
                    (journal.chain, journal.due) = (chain, due);
                }
                if let Some(history) = &mut self.history {
                    history.truncate(before_step);
                }
                // The end in the journal counts the steps that were committed.
                self.run_state().position.steps = first - 1;
                return Err(Box::pin(self.end_at(node, first, Failure::permanent(message), true)).await);
            }
        };
        self.clear_pending(visits);
        self.reserved = 0;
        // They are counted when they are made again, or to their end.
        let is_left = |visit: &&&mut VisitState| visit.way.is_held() || visit.way.opened().is_some();
        self.meters.release(visits.iter().filter(is_left).count() as u64);
        let is_left_waiting = match waits {
            Some(before) => Box::pin(self.settle_waits(&before)).await?,
            None => false,
        };
        if ended.is_none() {
            records.extend(self.sign_snapshot());
        }
        let fresh = take_fresh(visits);
        match &mut self.journal {
            Some(journal) => {
                journal.keep(fresh);
                let status = match &ended {
                    Some(ended) => ended.status,
                    None if is_left_waiting => Status::Waiting,
                    None => Status::Running,
                };
                self.append(records, first, status).await?;
            }
            None if fresh.is_empty() => {}
            None => Box::pin(self.runtime.keep(tables(self.machine.graph()), fresh)).await,
        }
        if self.is_observed() {
            self.observe_visits(visits);
            self.observe_step(&shown);
        }
        self.note_cancelled(visits);
        // The nested runs are ended when the step that cancels them is durable.
        if !self.dropped.is_empty() && (self.durability == Durability::Sync || ended.is_some() || is_left_waiting) {
            let dropped = std::mem::take(&mut self.dropped);
            Box::pin(self.cancel_inside_of(dropped)).await;
        }
        if ended.is_some() && self.is_kept && self.facts.parent.is_none() && nests_waiting(&*self.machine) {
            let runtime = Runtime { inner: Arc::clone(&self.runtime) };
            Box::pin(runtime.end_waiting_inside(&self.facts.id)).await;
        }
        if let Some(values) = hook_values
            && let Some(error) = Box::pin(self.tell_step(values, ended.is_some())).await
        {
            return Ok(Some(Err(error)));
        }
        if is_left_waiting {
            return Ok(Some(Err(self.waits())));
        }
        if let Some(ended) = &ended {
            self.observe_result(ended);
            Box::pin(self.tell_end(last, ended.status, None)).await;
        }
        Ok(ended.map(Ok))
    }

    /// Returns the end of the run if the step behind it, at a node, was its last, and adds its record to those of the step. `at` is
    /// the time that the node's visit received. On an error, the run may not end with that output: the node, and why.
    fn reach_end(
        &mut self,
        node: u16,
        at: Option<SystemTime>,
        visits: &mut [&mut VisitState],
        records: &mut Vec<SignedRecord>,
        unread: BTreeMap<String, u64>,
    ) -> Result<Option<Ended>, (u16, String)> {
        if !self.run_state.position.is_over() {
            return Ok(None);
        }
        let mut notes = Notes::default();
        let (mut ended, now) = self.end(at, &mut notes);
        ended.unread = unread;
        let warnings = notes.take();
        self.warn(node, &warnings);
        if let Some(visit) = visits.last_mut() {
            visit.warnings.extend(warnings.iter().cloned());
        }
        if self.is_kept {
            let output = self.encrypted_output(ended.steps, &ended.output);
            let now = now.map(timestamp::unix_milliseconds);
            let unread = ended.unread.clone();
            let end = End { output, now, warnings, unread, ..End::of(ended.status, ended.steps) };
            records.push(self.sign("end", &end));
        }
        let fits = self.machine.check_output(&ended.node, &ended.output);
        fits.map(|()| Some(ended)).map_err(|mismatch| (node, format!("{UNRETURNED}{mismatch}")))
    }

    /// Returns the values that hooks receive for visits: the node, and names with their values (R147).
    fn after_step_values(&self, visits: &[&mut VisitState]) -> HookValues {
        let values = |visit: &&mut VisitState| {
            let node = visit.activation.node;
            let next = visit.way.next(self.graph(), &visit.activation);
            let next = next.map_or(Value::Null, |next| Value::from(self.graph().node(next).name.as_str()));
            let result = match &visit.failure {
                Some(failure) => View::Object(&**failure).to_value(),
                None => {
                    let mask = result_mask(self.graph(), node);
                    hidden(mask, visit.outcome(&self.slot).to_value())
                }
            };
            let name = Value::from(self.graph().node(node).name.as_str());
            (node, [("node", name), ("next_node", next), ("result", result)])
        };
        let is_over = |visit: &&&mut VisitState| !visit.way.is_cancelled() && visit.way.opened().is_none();
        visits.iter().filter(is_over).map(values).collect()
    }

    /// As [`Self::after_step_values`], for a step as the journal has it.
    fn recorded_values(&self, step: &Step) -> HookValues {
        let code = self.graph();
        let values = |visit: &Visit| {
            let at = Activation { number: visit.step, ..Activation::of(code.node_named(&visit.node)?) };
            let way = said_way(code, &at, visit).ok()?;
            let next = way.next(code, &at).map_or(Value::Null, |next| Value::from(code.node(next).name.as_str()));
            let result = match &visit.error {
                Some(error) => View::Object(&Failure::permanent(error.clone())).to_value(),
                None => hidden(result_mask(code, at.node), visit.result.clone()),
            };
            Some((at.node, [("node", Value::from(visit.node.as_str())), ("next_node", next), ("result", result)]))
        };
        let is_over = |visit: &&Visit| !visit.cancelled && visit.opened.is_none();
        step.visits.iter().filter(is_over).filter_map(values).collect()
    }

    /// Notifies the hooks of the visits of a committed step. Returns the error of the run if a hook ends it; a hook does not end
    /// a run that is over.
    async fn tell_step(&mut self, values: HookValues, is_over: bool) -> Option<RunError> {
        for (node, values) in values {
            let told = self.tell(program::Event::AfterStep, node, values, Status::Running).await;
            if let Some(told) = told.filter(|_| !is_over)
                && let Err(error) = self.heed(told, node, self.run_state.position.steps).await
            {
                return Some(error);
            }
        }
        None
    }

    /// Does what a hook wants that was asked at a node and a step.
    async fn heed(&mut self, told: Steered, node: u16, step: u64) -> Result<(), RunError> {
        match told {
            Steered::Ends(error) => Err(self.end_at(node, step, Failure::permanent(error), false).await),
            Steered::Suspends(suspension) => self.suspend(&suspension).await,
        }
    }

    /// Leaves the visits of the next step before they are made; if all visits wait, each of them when its wait is over. The journal
    /// says so before anything else happens.
    async fn suspend(&mut self, suspension: &Suspension) -> Result<(), RunError> {
        let RunState { position, done, .. } = &*self.run_state;
        let left = if position.frontier.is_empty() { &position.parked } else { &position.frontier };
        let is_left = |at: &&Activation| match (done.get(&(at.number, None)), position.suspension_of(at.number)) {
            (Some(Done { suspended: Some(known), .. }), _) => suspension.replaces(known),
            // Its call is made already.
            (Some(_), _) => false,
            (None, Some(known)) => suspension.replaces(&known),
            (None, None) => true,
        };
        let name = |at: &Activation| self.graph().node(at.node).name.as_str();
        let suspended = |at: &Activation| Done::of_suspended(at.number, name(at), suspension.clone());
        let left: Vec<Done> = left.iter().filter(is_left).map(suspended).collect();
        if left.is_empty() {
            return Ok(());
        }
        self.run_state().done.extend(left.iter().map(|one| ((one.step, None), one.clone())));
        let record = self.sign("calls", &Calls { done: left });
        let step = self.run_state.position.steps + 1;
        self.append(vec![record], step, Status::Running).await
    }

    /// Notifies the hooks that the run ended (R155).
    async fn tell_end(&self, node: u16, status: Status, error: Option<&str>) {
        let steps = Value::from(self.run_state.position.steps);
        let values = [
            ("steps", steps),
            ("status", Value::from(status.name())),
            ("error", error.map_or(Value::Null, Value::from)),
        ];
        // No answer of a hook can change how a run ended.
        self.tell(program::Event::GraphCompleted, node, values, status).await;
    }

    /// Computes where the step leads.
    fn fold(&self, visits: &[&mut VisitState]) -> Result<Candidate, FoldError> {
        let graph = tables(self.machine.graph());
        let visited = visits.iter().map(|visit| visit.visited(graph, &self.slot));
        fold(graph, &self.run_state.position, Some(&*self.run_state.state), visited)
    }

    /// Moves the run past a step: updates the position, and writes the visits' changes to the state in order.
    fn take(&mut self, candidate: Candidate, visits: &mut [&mut VisitState]) -> Result<(), (u16, Mismatch)> {
        let graph = tables(self.context.run.machine.graph());
        let visited = visits.iter().map(|visit| visit.visited(graph, &self.slot));
        let RunState { state, position, .. } = alone(&mut self.context.run_state);
        let combined = candidate.take(graph, position, visited);
        let writer = Cell::new(position.last);
        let changes = visits.iter_mut().flat_map(|visit| {
            writer.set(visit.activation.node);
            visit.changes.drain(..)
        });
        let written = write(combined, changes, &mut **state);
        visits.iter_mut().for_each(|visit| visit.changes.clear());
        written.map_err(|(_, mismatch)| (writer.get(), mismatch))
    }

    /// Returns the end that the run has reached, and the time if anything asked for it.
    fn end(&self, at: Option<SystemTime>, notes: &mut Notes) -> (Ended, Option<SystemTime>) {
        let clock = || self.runtime.clock.now();
        let now = Now::known_at(&clock, at);
        let at = self.run_state.position.ended_at();
        let ended = self.ended(output(&self.env(&at, &now), notes));
        (ended, now.known())
    }

    fn ended(&self, output: Value) -> Ended {
        let (status, suppressed) =
            (self.run_state.position.status_at_end(), self.run_state.position.suppressed.clone());
        let (state, steps) = (self.state_value(), self.run_state.position.steps);
        let history = self.history.clone().unwrap_or_default();
        let hidden = self.graph().settings.secrets.output.as_ref().map(|mask| Box::new(mask.hide(output.clone())));
        let node = self.graph().node(self.run_state.position.last).name.clone();
        let shared = self.run_state.position.shared_writes(self.graph());
        let (exhausted, unread) = (false, BTreeMap::new());
        Ended { status, node, output, hidden, state, steps, shared, suppressed, exhausted, history, unread }
    }

    fn state_value(&self) -> Value {
        state_value(self.graph(), &*self.run_state.state, &self.run_state.position)
    }

    /// Returns the keys that are set: the output of a run that ends without a return node.
    fn keys_value(&self) -> Value {
        let plain = |(name, view): (String, View<'_>)| (name, view.to_plain_value());
        Value::Object(keys(self.graph(), &*self.run_state.state).map(plain).collect())
    }

    /// Ends the run because a node failed. The step is not committed, so a resumed run visits the node again.
    async fn fail(&mut self, visits: &mut [&mut VisitState], failed: usize) -> RunError {
        if self.is_observed() {
            self.observe_visits(visits);
        }
        let failures = self.failures(visits);
        let visit = &mut visits[failed];
        let step = visit.activation.number;
        let failure = visit.failure.take().unwrap_or_else(|| Box::new(Failure::permanent("it failed")));
        self.end_with(visit.activation.node, step, *failure, visit.is_unfit, failures).await
    }

    /// Ends the run with the failures that are held. A resumed run makes those visits again.
    async fn end_held(&mut self) -> RunError {
        let held = self.run_state.position.held.clone();
        let several = if held.len() > 1 { &held[..] } else { &[] };
        let failures = several.iter().map(|HeldFailure { step, node, error, .. }| VisitFailure {
            step: *step,
            node: node.clone(),
            error: error.clone(),
            unfit: false,
        });
        let failures = failures.collect();
        let HeldFailure { step, node, error, .. } = held.into_iter().next().expect("the run has failed");
        let node = self.graph().node_named(&node).expect("a node that was visited is in the graph");
        let failure = self.held_failures.drain(..).find_map(|(number, failure)| (number == step).then_some(*failure));
        self.end_with(node, step, failure.unwrap_or_else(|| Failure::permanent(error)), false, failures).await
    }

    /// Returns the failures of the visits that end the run, if there are several.
    fn failures(&self, visits: &[&mut VisitState]) -> Vec<VisitFailure> {
        let fatal = || visits.iter().filter(|visit| visit.way.is_fatal());
        if fatal().count() < 2 {
            return Vec::new();
        }
        let failure = |visit: &&mut VisitState| {
            let mut failure = visit.failure.clone().unwrap_or_else(|| Box::new(Failure::permanent("it failed")));
            self.scrub(&mut failure);
            let node = self.graph().node(visit.activation.node).name.clone();
            VisitFailure { step: visit.activation.number, node, error: failure.message, unfit: visit.is_unfit }
        };
        let mut failures: Vec<VisitFailure> = fatal().map(failure).collect();
        failures.sort_by_key(|failure| failure.step);
        failures
    }

    /// Ends the run at a node; `unfit` if the node failed on the results of its calls.
    async fn end_at(&mut self, node: u16, step: u64, failure: Failure, unfit: bool) -> RunError {
        self.end_with(node, step, failure, unfit, Vec::new()).await
    }

    /// As [`Engine::end_at`], for several failed visits.
    async fn end_with(
        &mut self,
        node: u16,
        step: u64,
        mut failure: Failure,
        unfit: bool,
        failures: Vec<VisitFailure>,
    ) -> RunError {
        if let Some(run_secrets) = &self.run_secrets {
            run_secrets.scrub_failure(&mut failure, None);
        }
        let node = self.graph().node(node).name.clone();
        let (error, code) = (Some(failure.message.clone()), failure.code.clone());
        let end = End { error, code, node: Some(node.clone()), unfit, failures, ..self.end_of(Status::Error) };
        if let Err(error) = self.end_without_result(end).await {
            return error;
        }
        let position = &mut self.run_state().position;
        let is_open = position.open().any(|at| at.number == step);
        // The failure of a hook after a step is that of the step.
        let steps = if is_open { position.steps } else { position.steps.min(step.saturating_sub(1)) };
        position.root.last_error = Some(LastError { node: node.clone(), error: failure.message.clone() });
        RunError::Node {
            run: self.facts.id.clone(),
            node,
            step,
            steps,
            failure: Box::new(failure),
            state: Box::new(self.state_value()),
        }
    }

    /// Ends the run because it takes too many steps (R130).
    async fn exceed(&mut self) -> RunError {
        let max_steps = u32::try_from(self.most_steps()).unwrap_or(u32::MAX);
        let node = self.run_state.position.next_node(self.graph());
        let (steps, state) = self.left();
        self.end_at_limit(node, RunError::MaxSteps { run: self.facts.id.clone(), max_steps, steps, state }).await
    }

    /// Ends the run with an error before a step that a limit does not allow, which would visit a node. Returns the error.
    async fn end_at_limit(&mut self, node: u16, error: RunError) -> RunError {
        let message = error.to_string();
        let end = End { error: Some(message.clone()), ..self.end_of(Status::Error) };
        if let Err(error) = self.end_without_result(end).await {
            return error;
        }
        self.tell_end(node, Status::Error, Some(&message)).await;
        error
    }

    async fn end_without_result(&mut self, end: End) -> Result<(), RunError> {
        let (status, steps) = (end.status, end.steps);
        if self.is_kept {
            let end = End { unread: Box::pin(self.unread()).await?, ..end.clone() };
            // Finished calls of the step are not made again when the run is resumed.
            let mut records: Vec<SignedRecord> = self.sign_done().into_iter().collect();
            records.push(self.sign("end", &end));
            self.append(records, steps + 1, status).await?;
        }
        self.observe_end(status, end.error.as_deref(), Some(&end));
        Ok(())
    }

    /// Returns an end at the current step, with only its status and its number of steps set.
    fn end_of(&self, status: Status) -> End {
        End::of(status, self.run_state.position.steps)
    }

    /// Returns a snapshot of the run, if one is due.
    fn sign_snapshot(&mut self) -> Option<SignedRecord> {
        let StepContext { run, run_state } = &self.context;
        let (code, run_secrets) = (tables(run.machine.graph()), run.run_secrets.as_deref());
        let (state, position) = (&*run_state.state, &run_state.position);
        // The finished calls of a visit that is made again are in records before.
        let is_left = !(run_state.done.is_empty() && position.calls_left.is_empty());
        let is_inside = || position.waits.iter().any(|wait| wait.opened.is_inside());
        let is_again = is_left || !position.held.is_empty() || is_inside();
        let due = |journal_writer: &&mut JournalWriter| !is_again && journal_writer.due.is_now();
        let journal_writer = self.journal.as_mut().filter(due)?;
        journal_writer.snapshot(SnapshotDraft { code, state, position, run_secrets }.to_owned())
    }

    fn sign_step(&mut self, visits: &[&mut VisitState], candidate: &Candidate) -> SignedRecord {
        let Self { context, journal, slot, .. } = self;
        let (code, position) = (tables(context.run.machine.graph()), &context.run_state.position);
        let covered: Vec<Option<Covered>> = visits.iter().map(|visit| context.covered(visit, slot, true)).collect();
        let made = visits.iter().zip(&covered);
        let step = Step {
            visits: made.map(|(visit, covered)| visit.written(code, position, slot, covered)).collect(),
            next: targets(code, candidate.next()),
            joins: open_joins(code, candidate.joins(position)),
            ordered: new_orders(code, candidate.reordered()),
            reduced: reduced(code, candidate.reduced()),
            limit: position.limit,
        };
        journal.as_mut().expect("only a run with a journal signs records").sign("step", step)
    }

    fn sign(&mut self, kind: &'static str, entry: impl serde::Serialize) -> SignedRecord {
        self.journal.as_mut().expect("only a run with a journal signs records").sign(kind, entry)
    }

    async fn append(&mut self, records: Vec<SignedRecord>, step: u64, status: Status) -> Result<(), RunError> {
        let journal = self.journal.as_mut().expect("only a run with a journal appends records");
        let written = journal.append(records, status).await;
        written.map_err(|source| {
            self.observe_end(Status::Running, Some(&source.to_string()), None);
            RunError::Store { run: self.facts.id.clone(), step, source }
        })
    }

    /// Returns a run's output as its journal holds it.
    fn encrypted_output(&self, steps: u64, output: &Value) -> Value {
        let mask = self.graph().settings.secrets.output.as_ref();
        match &self.run_secrets {
            Some(run_secrets) => run_secrets.encrypt(mask, SecretLocation::output(steps), output.clone()),
            None => output.clone(),
        }
    }

    fn note_new_keys(&self, visits: &mut [&mut VisitState]) {
        for visit in visits {
            let new = |change: &&Change| self.run_state.state.get(change.key).is_null() && !change.value.is_null();
            let name = |change: &Change| self.graph().keys[change.key].name.clone();
            visit.new_keys = visit.changes.iter().filter(new).map(name).collect();
            visit.new_keys.sort_unstable();
        }
    }

    /// Returns visits as a history holds them.
    fn owned(&self, visits: &[&mut VisitState]) -> Vec<Visit> {
        let read = |visit: &&mut VisitState| {
            let covered = self.covered(visit, &self.slot, false);
            visit.written(self.graph(), &self.run_state.position, &self.slot, &covered).to_read()
        };
        visits.iter().map(read).collect()
    }

    fn observe_visits(&self, visits: &[&mut VisitState]) {
        let total = self.runtime.clock.monotonic().saturating_sub(self.began);
        for visit in visits.iter().filter(|visit| !visit.is_left_out) {
            let node = self.graph().node(visit.activation.node);
            if let Some(opened) = visit.way.opened() {
                let (run, step) = (&self.facts.id, visit.activation.number);
                let due = opened.next_due().map(timestamp::from_unix_milliseconds);
                self.observe(&Event::WaitOpened { run, step, node: &node.name, due });
                continue;
            }
            self.observe(&Event::StepCompleted {
                run: &self.facts.id,
                step: visit.activation.number,
                node: &node.name,
                kind: node.kind.kind(),
                elapsed: visit.elapsed,
                total,
                error: visit.failure.as_ref().map(|failure| failure.message.as_str()),
                edge: visit.way.edge(),
                cached: visit.cached,
                cancelled: visit.way.is_cancelled(),
                new_keys: &visit.new_keys,
                warnings: &visit.warnings,
            });
        }
    }
}

impl StepContext {
    pub(crate) fn slot(&self) -> CallSlot {
        let call = Call::of(Arc::clone(&self.facts));
        CallSlot { tool_caller: self.machine.tool_caller(), call, changes: Vec::new() }
    }

    fn graph(&self) -> &GraphTables {
        tables(self.machine.graph())
    }

    fn is_observed(&self) -> bool {
        !self.runtime.observers.is_empty()
    }

    fn observe(&self, event: &Event<'_>) {
        notify(&self.runtime.observers, event);
    }

    /// Returns the environment in which a node is visited.
    fn env<'a>(&'a self, at: &'a Activation, now: &'a Now<'a>) -> Env<'a> {
        Env::new(tables(self.machine.graph()), &self.run_state.position, &*self.run_state.state, at, now)
    }

    /// Computes what a visit writes and where it leads, after its calls.
    fn settle_visit(&self, visit: &mut VisitState, slot: &mut CallSlot) {
        if visit.waits {
            visit.way = Way::Waits(Opened::default());
            return self.warn(visit.activation.node, &visit.warnings);
        }
        let mut changes = std::mem::take(&mut slot.changes);
        let clock = || self.runtime.clock.now();
        let now = Now::known_at(&clock, visit.at);
        let mut notes = Notes::default();
        let env = self.env(&visit.activation, &now);
        let scrub = |failure: &mut Failure| self.scrub(failure);
        let facts = CallFacts { calls: visit.calls, is_ended: visit.is_ended, scrub: &scrub };
        let outcome = match (&visit.failure, &mut visit.results, &visit.value) {
            (Some(failure), results, _) => Outcome::Failed(failure, results.get_or_insert_default()),
            (None, Some(results), _) => Outcome::Each(results),
            (None, None, Some(value)) => Outcome::Returned(value.view()),
            (None, None, None) if visit.called => Outcome::Returned(slot.outcome(visit.returned.as_ref())),
            (None, None, None) => Outcome::None,
        };
        let Settled { way, unfit } = settle(&env, outcome, &facts, &mut notes, &mut changes);
        changes.drain(..).for_each(|change| visit.changes.push(change));
        visit.way = way;
        if unfit.is_some() {
            (visit.is_unfit, visit.failure) = (true, unfit);
        }
        slot.changes = changes;
        visit.at = now.known();
        visit.reduced = notes.take_reduced();
        visit.warnings.append(&mut notes.take());
        self.warn(visit.activation.node, &visit.warnings);
    }

    /// Returns the result and the changes of a visit, with their secrets encrypted if `encrypts`, or else hidden; `None` if the
    /// graph has no secrets.
    fn covered(&self, visit: &VisitState, slot: &CallSlot, encrypts: bool) -> Option<Covered> {
        let (run_secrets, code, step) = (self.run_secrets.as_ref()?, self.graph(), visit.activation.number);
        let cover =
            |mask, place, value| if encrypts { run_secrets.encrypt(mask, place, value) } else { hidden(mask, value) };
        let mask = result_mask(code, visit.activation.node);
        let result = cover(mask, SecretLocation::result(step), visit.outcome(slot).to_plain_value());
        let change = |change: &Change| {
            let name = &code.keys[change.key].name;
            let mask = code.mask_of_write(name, &change.value);
            (name.clone(), cover(mask, SecretLocation::change(step, name), change.value.clone()))
        };
        let list = match visit.way.edges() {
            TakenEdges::Over(list) if encrypts => Some(run_secrets.encrypt_list(step, Value::Array(list.to_vec()))),
            TakenEdges::Over(_) => Some(Value::from(HIDDEN)),
            _ => None,
        };
        Some(Covered { result, changes: record::recorded(code, &visit.changes).map(change).collect(), list })
    }

    fn warn(&self, node: u16, warnings: &[String]) {
        for warning in warnings {
            let node = &self.graph().node(node).name;
            tracing::warn!(run = %self.facts.id, %node, "{warning}");
        }
    }

    async fn timed_visit(&self, visit: &mut VisitState, slot: &mut CallSlot, is_alone: bool) {
        let began = self.is_timed().then(|| self.runtime.clock.monotonic());
        let node = &self.graph().node(visit.activation.node).name;
        let span = tracing::info_span!("graph.step", %node, step = visit.activation.number);
        self.visit(visit, slot, is_alone).instrument(span).await;
        if let Some(began) = began {
            visit.elapsed = self.runtime.clock.monotonic().saturating_sub(began);
        }
    }

    /// Whether the duration of each visit is measured.
    fn is_timed(&self) -> bool {
        self.is_kept || self.is_observed()
    }

    /// Removes the secrets from a failure.
    fn scrub(&self, failure: &mut Failure) {
        if let Some(run_secrets) = &self.run_secrets {
            run_secrets.scrub_failure(failure, None);
        }
    }

    /// Returns a failure without its secrets; `mask` says where they are in the result that the tool would have returned.
    fn scrubbed(&self, mut failure: Box<Failure>, mask: Option<&Mask>) -> Box<Failure> {
        if let Some(run_secrets) = &self.run_secrets {
            run_secrets.scrub_failure(&mut failure, mask);
        }
        failure
    }

    fn observe_start(&self, step: u64, node: u16) {
        let node = self.graph().node(node);
        let (name, kind) = (&node.name, node.kind.kind());
        self.observe(&Event::StepStarted { run: &self.facts.id, step, node: name, kind });
    }
}

/// Takes the results of a step's calls that are to be cached when it is committed, except those of a node that could not use
/// them.
fn take_fresh(visits: &mut [&mut VisitState]) -> Vec<Fresh> {
    visits.iter_mut().filter(|visit| !visit.is_unfit).flat_map(|visit| visit.fresh.drain(..)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the size of the future that a function of an engine returns.
    fn size_of_future<F: Future>(_: impl FnOnce(Engine) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn a_run_that_waits_holds_a_small_future() {
        let size = size_of_future(Engine::drive);
        assert!(size <= 4_096, "{size} bytes, of which the engine has {}", size_of::<Engine>());
    }
}

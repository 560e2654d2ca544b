//! The engine: plan, perform, advance, commit.
//!
//! A step visits every activation of the frontier against the same committed state, folds what they write in the frontier's
//! order, commits, and only then moves on. A crash at any instant repeats the step that was not committed, with the same
//! idempotency key for each call, and no other.

mod walk;

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime};

use graph_model::program::{LAST_ERROR, OnError};
use graph_model::value::{Map, Mismatch, Value, View};
use tokio::task::yield_now;

use crate::call::{Call, RunFacts};
use crate::code::{Code, Kind};
use crate::error::{Failure, LastError, RunError, SuppressedError};
use crate::machine::{Activation, Calling, Cells, Change, Lane, Machine, Next, Notes, Now, Outcome, Plan, Sight};
use crate::observer::Event;
use crate::record::{Chain, End, Sealed, Standing, Status, StepDraft, TargetsDraft, VisitDraft};
use crate::runtime::Inner;
use crate::store::Lease;

/// How long a run may go on before the other tasks of its thread have a turn, if its tools never wait.
const TURN: Duration = Duration::from_micros(500);
/// After how many steps the time of that is looked at: looking costs a fifth of a step.
const STEPS_A_LOOK: u64 = 32;

/// A run at work.
pub(crate) struct Engine {
    pub(crate) machine: Arc<dyn Machine>,
    pub(crate) runtime: Arc<Inner>,
    pub(crate) facts: Arc<RunFacts>,
    /// Whether each tool may be called: the caller granted it and the graph permits it.
    pub(crate) allowed: Vec<bool>,
    pub(crate) state: Box<dyn Cells>,
    pub(crate) standing: Standing,
    pub(crate) journal: Option<Writing>,
    pub(crate) slots: Vec<Slot>,
    pub(crate) began: Duration,
    /// When the run's task last had a turn; of the machine's own clock, for it is the machine that is shared.
    pub(crate) turn: Instant,
}

/// A journal that is being written.
pub(crate) struct Writing {
    pub(crate) lease: Lease,
    pub(crate) chain: Chain,
}

/// A lane and what its tool is told.
pub(crate) struct Slot {
    lane: Box<dyn Lane>,
    call: Call,
}

/// How a run ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: Status,
    pub(crate) output: Value,
    pub(crate) state: Value,
    pub(crate) steps: u64,
    pub(crate) suppressed: Vec<SuppressedError>,
}

/// A visit that was made.
#[derive(Default)]
struct Visit {
    activation: Activation,
    /// The time of the visit, if anything asked for it.
    at: Option<SystemTime>,
    /// Whether a tool was called; what it returned is in the visit's lane.
    called: bool,
    failure: Option<Box<Failure>>,
    /// Whether the failure led along the node's own edges.
    suppressed: bool,
    changes: Vec<Change>,
    /// The keys that were not set before, by name; only where somebody watches.
    new_keys: Vec<String>,
    next: Next,
    elapsed: Duration,
    warnings: Vec<String>,
}

impl Engine {
    /// Runs until an end, an error, or a commit that fails.
    pub(crate) async fn drive(mut self) -> Result<Ended, RunError> {
        // Visits are used again, step after step.
        let mut visits = Vec::new();
        loop {
            if self.is_timed() || !self.walk(&mut visits).await {
                if self.is_others_turn() {
                    yield_now().await;
                }
                if self.standing.steps + self.standing.frontier.len() as u64 > u64::from(self.code().settings.max_steps)
                {
                    return Err(self.exceed().await);
                }
                self.perform(&mut visits).await;
            }
            self.settle(&mut visits);
            if let Some(failed) = visits.iter().position(|visit| self.is_fatal(visit)) {
                return Err(self.fail(visits, failed).await);
            }
            if let Some(ended) = self.commit(&mut visits).await? {
                return Ok(ended);
            }
        }
    }

    fn slot(&self) -> Slot {
        let call = Call { run: Arc::clone(&self.facts), node: 0, tool: 0, step: 0 };
        Slot { lane: self.machine.lane(), call }
    }

    /// Whether the other tasks of the thread should have a turn, for the graph's tools may never wait.
    #[inline]
    fn is_others_turn(&mut self) -> bool {
        self.standing.steps % STEPS_A_LOOK == STEPS_A_LOOK - 1 && self.is_turn_over()
    }

    #[inline(never)]
    fn is_turn_over(&mut self) -> bool {
        let is_over = self.turn.elapsed() >= TURN;
        if is_over {
            self.turn = Instant::now();
        }
        is_over
    }

    fn code(&self) -> &Code {
        self.machine.code()
    }

    fn is_observed(&self) -> bool {
        !self.runtime.observers.is_empty()
    }

    fn observe(&self, event: &Event<'_>) {
        self.runtime.observers.iter().for_each(|observer| observer.observe(event));
    }

    /// Whether a visit failed and nothing in the graph deals with that.
    fn is_fatal(&self, visit: &Visit) -> bool {
        visit.failure.is_some() && !visit.suppressed && self.code().node(visit.activation.node).on_error.is_none()
    }

    /// Plans a visit of every activation of the frontier, and makes its call.
    async fn perform(&mut self, visits: &mut Vec<Visit>) {
        while self.slots.len() < self.standing.frontier.len() {
            self.slots.push(self.slot());
        }
        let began = self.is_timed().then(|| self.runtime.clock.monotonic());
        let elapsed = |engine: &Self| {
            began.map_or(Duration::ZERO, |began| engine.runtime.clock.monotonic().saturating_sub(began))
        };
        let mut slots = std::mem::take(&mut self.slots);
        let mut frontier = std::mem::take(&mut self.standing.frontier);
        let first = self.standing.steps + 1;
        visits.resize_with(frontier.len(), Visit::default);
        visits.iter_mut().zip(frontier.drain(..)).for_each(|(visit, activation)| visit.begin(activation));
        if let ([visit], [slot, ..]) = (visits.as_mut_slice(), slots.as_mut_slice()) {
            // One call needs no lists of calls and answers.
            if let Some(calling) = self.plan(first, visit, slot) {
                visit.failure = Answer(calling).await.err();
                visit.elapsed = elapsed(self);
            }
        } else {
            let mut calls = Vec::with_capacity(visits.len());
            for ((number, visit), slot) in (first..).zip(visits.iter_mut()).zip(&mut slots) {
                calls.push(self.plan(number, visit, slot));
            }
            answer_all(calls, |index, failure| {
                visits[index].failure = failure;
                visits[index].elapsed = elapsed(self);
            })
            .await;
        }
        // The list is empty now, and kept for the next step.
        self.standing.frontier = frontier;
        self.slots = slots;
    }

    /// Computes what the visits write and where they lead.
    fn settle(&self, visits: &mut [Visit]) {
        for (visit, slot) in visits.iter_mut().zip(&self.slots) {
            self.advance(visit, slot);
        }
    }

    /// Whether anybody asks how long a visit took.
    fn is_timed(&self) -> bool {
        self.journal.is_some() || self.is_observed()
    }

    /// Decides what a visit does and begins the call it makes, if it makes one.
    fn plan<'s>(&self, number: u64, visit: &mut Visit, slot: &'s mut Slot) -> Option<Calling<'s>> {
        let clock = || self.runtime.clock.now();
        let now = Now::new(&clock);
        let mut notes = Notes::default();
        if self.is_observed() {
            let node = self.code().node(visit.activation.node);
            let (name, kind) = (&node.name, node.kind.kind());
            self.observe(&Event::StepStarted { run: &self.facts.id, step: number, node: name, kind });
        }
        let sight = Sight { state: &*self.state, last_error: self.standing.last_error.as_ref(), now: &now };
        let planned = self.machine.plan(&visit.activation, &sight, &mut notes);
        visit.at = now.known();
        visit.warnings.append(&mut notes.take());
        let (tool, mut arguments) = match planned {
            Ok(Plan::Call { tool, arguments }) => (tool, arguments),
            Ok(Plan::Compute | Plan::Finish) => return None,
            Err(failure) => {
                visit.failure = Some(failure);
                return None;
            }
        };
        if !self.allowed.get(usize::from(tool)).copied().unwrap_or(false) {
            visit.failure = Some(Box::new(self.denied(tool)));
            return None;
        }
        slot.call.node = visit.activation.node;
        slot.call.tool = tool;
        slot.call.step = number;
        match slot.lane.call(tool, &mut arguments, &slot.call) {
            Ok(calling) => {
                visit.called = true;
                Some(calling)
            }
            Err(mismatch) => {
                let tool = self.code().tools.get(usize::from(tool)).map_or("?", |tool| tool.id.as_str());
                let message = format!("the parameters of `{tool}` do not fit: {mismatch}");
                visit.failure = Some(Box::new(Failure::permanent(message)));
                None
            }
        }
    }

    fn denied(&self, tool: u16) -> Failure {
        let capability = self.code().tools.get(usize::from(tool)).map_or("?", |tool| tool.capability.as_str());
        Failure::permanent(format!("Permission denied: '{capability}' not covered by capabilities"))
    }

    /// Computes what a visit writes and where it leads, after its call.
    fn advance(&self, visit: &mut Visit, slot: &Slot) {
        let clock = || self.runtime.clock.now();
        let now = Now::known_at(&clock, visit.at);
        let mut notes = Notes::default();
        let sight = Sight { state: &*self.state, last_error: self.standing.last_error.as_ref(), now: &now };
        if visit.failure.is_none() {
            let outcome = if visit.called { Outcome::Done(slot.lane.outcome()) } else { Outcome::None };
            match self.machine.advance(&visit.activation, &sight, outcome, &mut notes, &mut visit.changes) {
                Ok(next) => visit.next = next,
                Err(failure) => {
                    visit.changes.clear();
                    visit.failure = Some(failure);
                }
            }
        }
        if let Some(failure) = &visit.failure {
            let code = self.code();
            if let Some(target) = code.node(visit.activation.node).on_error {
                visit.next = Next::To(target);
            } else if code.settings.on_error == OnError::Continue
                && matches!(code.node(visit.activation.node).kind, Kind::Action { .. })
            {
                // The edges see the failure as `result`. If they cannot be followed either, the run ends with the failure.
                let outcome = Outcome::Failed(failure);
                let (activation, changes) = (&visit.activation, &mut visit.changes);
                if let Ok(next) = self.machine.advance(activation, &sight, outcome, &mut notes, changes) {
                    visit.next = next;
                    visit.suppressed = true;
                }
                // It assigns nothing.
                visit.changes.clear();
            }
        }
        visit.at = now.known();
        visit.warnings.append(&mut notes.take());
        self.warn(visit.activation.node, &visit.warnings);
    }

    fn warn(&self, node: u16, warnings: &[String]) {
        for warning in warnings {
            let node = &self.code().node(node).name;
            tracing::warn!(run = %self.facts.id, %node, "{warning}");
        }
    }

    /// Writes a step down, waits until that is durable, and moves on. Returns how the run ended, if it did.
    async fn commit(&mut self, visits: &mut [Visit]) -> Result<Option<Ended>, RunError> {
        let first = self.standing.steps + 1;
        let (last, at) = visits.last().map_or((0, None), |visit| (visit.activation.node, visit.at));
        self.move_frontier(visits);
        let chain = self.journal.as_ref().map(|journal| journal.chain.clone());
        let mut records = Vec::new();
        if self.journal.is_some() {
            records.push(self.seal_step(visits));
        }
        if self.is_observed() {
            self.note_new_keys(visits);
        }
        if let Err((node, mismatch)) = self.fold(visits) {
            if let (Some(journal), Some(chain)) = (&mut self.journal, chain) {
                journal.chain = chain;
            }
            let failure = Failure::permanent(format!("what it wrote does not fit the state: {mismatch}"));
            return Err(self.end_at(node, first, failure).await);
        }
        let mut notes = Notes::default();
        let ended = self.standing.frontier.is_empty().then(|| self.end(last, at, &mut notes));
        let warnings = notes.take();
        self.warn(last, &warnings);
        if let Some(visit) = visits.last_mut() {
            visit.warnings.extend(warnings.iter().cloned());
        }
        if let Some(Ended { status, output, steps, .. }) = &ended
            && self.journal.is_some()
        {
            let (status, steps, output) = (*status, *steps, output.clone());
            let end = End { status, steps, output, error: None, node: None, warnings };
            records.push(self.seal("end", &end));
        }
        if self.journal.is_some() {
            self.append(records, first, ended.as_ref().map_or(Status::Running, |ended| ended.status)).await?;
        }
        if self.is_observed() {
            self.observe_visits(first, visits);
        }
        if let Some(ended) = &ended {
            self.observe_end(ended.status, None);
        }
        Ok(ended)
    }

    /// Joins where the visits lead, in order.
    fn move_frontier(&mut self, visits: &[Visit]) {
        let frontier = &mut self.standing.frontier;
        // A node that several lead to is visited once, unless it is sent something each time.
        let mut add = |activation: Activation| {
            if activation.argument.is_some() || !frontier.contains(&activation) {
                frontier.push(activation);
            }
        };
        for visit in visits {
            match &visit.next {
                Next::End => {}
                Next::To(node) => add(Activation::of(*node)),
                Next::All(activations) => activations.iter().cloned().for_each(&mut add),
            }
        }
    }

    /// Takes what the visits wrote into the state, in order.
    fn fold(&mut self, visits: &mut [Visit]) -> Result<(), (u16, Mismatch)> {
        for visit in visits {
            self.standing.steps += 1;
            let node = visit.activation.node;
            if let Some(failure) = &visit.failure {
                let (name, error) = (&self.machine.code().node(node).name, &failure.message);
                if visit.suppressed {
                    let step = self.standing.steps;
                    self.standing.suppressed.push(SuppressedError { step, node: name.clone(), error: error.clone() });
                }
                self.standing.last_error = Some(LastError { node: name.clone(), error: error.clone() });
                continue;
            }
            for change in visit.changes.drain(..) {
                self.machine.merge(&mut *self.state, change).map_err(|mismatch| (node, mismatch))?;
            }
        }
        Ok(())
    }

    /// Returns the end that the run has come to at a node.
    fn end(&self, node: u16, at: Option<SystemTime>, notes: &mut Notes) -> Ended {
        let clock = || self.runtime.clock.now();
        let now = Now::known_at(&clock, at);
        let sight = Sight { state: &*self.state, last_error: self.standing.last_error.as_ref(), now: &now };
        let output = self.code().output(node, &sight, notes);
        let suppressed = self.standing.suppressed.clone();
        let status = if suppressed.is_empty() { Status::Completed } else { Status::CompletedWithErrors };
        Ended { status, output, state: self.state_value(), steps: self.standing.steps, suppressed }
    }

    fn state_value(&self) -> Value {
        state_value(self.code(), &*self.state, self.standing.last_error.as_ref())
    }

    /// Ends the run because a node failed. Nothing of its step is kept, so a resumed run visits the node again.
    async fn fail(&mut self, mut visits: Vec<Visit>, failed: usize) -> RunError {
        if self.is_observed() {
            self.observe_visits(self.standing.steps + 1, &visits);
        }
        let step = self.standing.steps + 1 + failed as u64;
        let visit = visits.swap_remove(failed);
        let failure = visit.failure.unwrap_or_else(|| Box::new(Failure::permanent("it failed")));
        self.end_at(visit.activation.node, step, *failure).await
    }

    async fn end_at(&mut self, node: u16, step: u64, failure: Failure) -> RunError {
        let node = self.code().node(node).name.clone();
        if let Err(error) = self.end_with_error(&failure.message, Some(&node)).await {
            return error;
        }
        self.standing.last_error = Some(LastError { node: node.clone(), error: failure.message.clone() });
        RunError::Node {
            run: self.facts.id.clone(),
            node,
            step,
            failure: Box::new(failure),
            state: Box::new(self.state_value()),
        }
    }

    /// Ends the run because it takes too many steps (R130).
    async fn exceed(&mut self) -> RunError {
        let max_steps = self.code().settings.max_steps;
        if let Err(error) = self.end_with_error(&format!("max steps exceeded ({max_steps})"), None).await {
            return error;
        }
        RunError::MaxSteps { run: self.facts.id.clone(), max_steps, state: Box::new(self.state_value()) }
    }

    async fn end_with_error(&mut self, error: &str, node: Option<&str>) -> Result<(), RunError> {
        let steps = self.standing.steps;
        if self.journal.is_some() {
            let (error, node) = (Some(error.to_owned()), node.map(str::to_owned));
            let end = End { status: Status::Error, steps, output: Value::Null, error, node, warnings: Vec::new() };
            let record = self.seal("end", &end);
            self.append(vec![record], steps + 1, Status::Error).await?;
        }
        self.observe_end(Status::Error, Some(error));
        Ok(())
    }

    fn seal_step(&mut self, visits: &[Visit]) -> Sealed {
        let machine = Arc::clone(&self.machine);
        let code = machine.code();
        let slots = std::mem::take(&mut self.slots);
        let frontier = std::mem::take(&mut self.standing.frontier);
        let numbered = (self.standing.steps + 1..).zip(visits).zip(&slots);
        let visits: Vec<VisitDraft<'_>> = numbered.map(|((step, visit), slot)| visit.draft(code, step, slot)).collect();
        let sealed = self.seal("step", StepDraft { visits: &visits, next: TargetsDraft { code, frontier: &frontier } });
        drop(visits);
        (self.slots, self.standing.frontier) = (slots, frontier);
        sealed
    }

    fn seal(&mut self, kind: &'static str, entry: impl serde::Serialize) -> Sealed {
        let journal = self.journal.as_mut().expect("only a run with a journal seals records");
        let key = self.runtime.key.as_ref().expect("a runtime with a store has a key");
        journal.chain.seal(kind, entry, self.runtime.clock.now(), key)
    }

    async fn append(&mut self, records: Vec<Sealed>, step: u64, status: Status) -> Result<(), RunError> {
        let journal = self.journal.as_ref().expect("only a run with a journal appends records");
        let store = self.runtime.store.as_ref().expect("a run with a journal has a store");
        let expected = journal.chain.len() - records.len() as u64;
        store.append(&journal.lease, expected, records, status).await.map_err(|source| {
            self.observe_end(Status::Running, Some(&source.to_string()));
            RunError::Store { run: self.facts.id.clone(), step, source }
        })
    }

    fn note_new_keys(&self, visits: &mut [Visit]) {
        for visit in visits {
            let new = |change: &&Change| self.state.get(change.key).is_null() && !change.value.is_null();
            let name = |change: &Change| self.code().keys[change.key].name.clone();
            visit.new_keys = visit.changes.iter().filter(new).map(name).collect();
            visit.new_keys.sort_unstable();
        }
    }

    fn observe_visits(&self, first: u64, visits: &[Visit]) {
        let total = self.runtime.clock.monotonic().saturating_sub(self.began);
        for (step, visit) in (first..).zip(visits) {
            let node = self.code().node(visit.activation.node);
            self.observe(&Event::StepCompleted {
                run: &self.facts.id,
                step,
                node: &node.name,
                kind: node.kind.kind(),
                elapsed: visit.elapsed,
                total,
                error: visit.failure.as_ref().map(|failure| failure.message.as_str()),
                new_keys: &visit.new_keys,
                warnings: &visit.warnings,
            });
        }
    }

    fn observe_end(&self, status: Status, error: Option<&str>) {
        if self.is_observed() {
            let elapsed = self.runtime.clock.monotonic().saturating_sub(self.began);
            let steps = self.standing.steps;
            self.observe(&Event::RunEnded { run: &self.facts.id, status, steps, elapsed, error });
        }
    }
}

impl Visit {
    /// Begins another visit in the place of the last.
    fn begin(&mut self, activation: Activation) {
        self.activation = activation;
        self.at = None;
        self.called = false;
        self.failure = None;
        self.suppressed = false;
        self.changes.clear();
        self.new_keys.clear();
        self.next = Next::End;
        self.elapsed = Duration::ZERO;
        self.warnings.clear();
    }

    fn draft<'a>(&'a self, code: &'a Code, step: u64, slot: &'a Slot) -> VisitDraft<'a> {
        VisitDraft {
            code,
            step,
            at: &self.activation,
            result: if self.called && self.failure.is_none() { slot.lane.outcome() } else { View::Null },
            failure: self.failure.as_deref(),
            suppressed: self.suppressed,
            changes: &self.changes,
            ms: u64::try_from(self.elapsed.as_millis()).unwrap_or(u64::MAX),
            warnings: &self.warnings,
        }
    }
}

/// Returns the state as JSON: inputs, keys that are set, and the last failure.
pub(crate) fn state_value(code: &Code, state: &dyn Cells, last_error: Option<&LastError>) -> Value {
    let mut map = Map::new();
    map.insert("inputs".to_owned(), state.inputs().to_value());
    for (index, key) in code.keys.iter().enumerate() {
        let view = state.get(index);
        if !view.is_null() {
            map.insert(key.name.clone(), view.to_value());
        }
    }
    if let Some(error) = last_error {
        map.insert(LAST_ERROR.to_owned(), View::Object(error).to_value());
    }
    Value::Object(map)
}

/// Waits for a call. A tool that panics fails its node, not the program: what it works on is its own, and dropped.
struct Answer<'a>(Calling<'a>);

impl Future for Answer<'_> {
    type Output = Result<(), Box<Failure>>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        poll_call(&mut self.0, context)
    }
}

#[inline]
fn poll_call(calling: &mut Calling<'_>, context: &mut Context<'_>) -> Poll<Result<(), Box<Failure>>> {
    match catch_unwind(AssertUnwindSafe(|| calling.as_mut().poll(context))) {
        Ok(poll) => poll.map_err(|error| Box::new(Failure::from(error))),
        Err(panic) => {
            let message = format!("the tool panicked: {}", panic_text(&*panic));
            Poll::Ready(Err(Box::new(Failure::permanent(message))))
        }
    }
}

/// Waits for all calls, which are made at the same time; `done` is told of each that is, and of its failure.
async fn answer_all(mut calls: Vec<Option<Calling<'_>>>, mut done: impl FnMut(usize, Option<Box<Failure>>)) {
    poll_fn(|context| {
        let mut waiting = false;
        for (index, place) in calls.iter_mut().enumerate() {
            let Some(calling) = place else { continue };
            match poll_call(calling, context) {
                Poll::Pending => waiting = true,
                Poll::Ready(answer) => {
                    *place = None;
                    done(index, answer.err());
                }
            }
        }
        if waiting { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it said nothing")
}

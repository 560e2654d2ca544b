//! Telling observers of the calls and steps of a run.

use std::sync::Arc;
use std::time::Duration;

use graph_model::name::ItemId;

use crate::call::{Call, Emitter};
use crate::engine::call_result::{CallResult, PendingCall};
use crate::engine::ended::Ended;
use crate::engine::run_state::{Engine, RunContext, StepContext};
use crate::observer::{CallAttempt, Emission, Event, LazyState, Observer, notify};
use crate::record::{End, Visit};
use crate::run_secrets::RunSecrets;
use crate::services::RuntimeServices;
use crate::status::Status;
use crate::tool_caller::Request;

/// A call that observers know of. Dropping it notifies them of the end: a timeout or a cancel ends a call by dropping it.
pub(super) struct ObservedCall<'c> {
    context: &'c StepContext,
    job: &'c PendingCall<'c>,
    tool: String,
    attempt: u64,
    began: Duration,
    /// Why it failed.
    pub(super) error: Option<String>,
}

impl<'c> ObservedCall<'c> {
    fn attempt(&self) -> CallAttempt<'_> {
        let Self { context, job, tool, attempt, .. } = self;
        let item = job.item.map(|(index, _)| index);
        let node = &context.graph().node(job.at.node).name;
        CallAttempt { run: &context.facts.id, step: job.at.number, node, tool, item, attempt: *attempt }
    }
}

impl Drop for ObservedCall<'_> {
    fn drop(&mut self) {
        let elapsed = self.context.runtime.clock.monotonic().saturating_sub(self.began);
        let event = Event::CallEnded { call: self.attempt(), elapsed, error: self.error.as_deref() };
        self.context.observe(&event);
    }
}

/// Shows observers what the tools of a run emit.
struct ObserverEmitter {
    observers: Arc<[Arc<dyn Observer>]>,
    run_secrets: Option<Arc<RunSecrets>>,
}

impl Emitter for ObserverEmitter {
    fn emitted(&self, call: &Call, mut emission: Emission) {
        if let Some(run_secrets) = &self.run_secrets {
            match &mut emission {
                Emission::Text(text) => run_secrets.scrub(text),
                Emission::Custom { name, data } => run_secrets.scrub(name) | run_secrets.scrub_value(data, None),
            };
        }
        let event = Event::Emitted { call, emission: &emission };
        notify(&self.observers, &event);
    }
}

impl RuntimeServices {
    /// Returns what shows observers the emissions of a run's tools, if there are some.
    pub(crate) fn emitter(&self, run_secrets: Option<&Arc<RunSecrets>>) -> Option<Arc<dyn Emitter>> {
        let (observers, run_secrets) = (Arc::clone(&self.observers), run_secrets.cloned());
        (!observers.is_empty()).then(|| Arc::new(ObserverEmitter { observers, run_secrets }) as _)
    }
}

impl Drop for RunContext {
    fn drop(&mut self) {
        if !self.runtime.observers.is_empty() {
            notify(&self.runtime.observers, &Event::RunLeft { run: &self.facts.id });
        }
    }
}

impl StepContext {
    /// Tells observers that a call is about to be made, if there are some.
    pub(super) fn observe_call<'c>(
        &'c self,
        job: &'c PendingCall<'c>,
        request: &Request,
        made: &CallResult,
    ) -> Option<ObservedCall<'c>> {
        if !self.is_observed() {
            return None;
        }
        let (attempt, began) = (made.calls, self.runtime.clock.monotonic());
        let tool = self.tool_of(request).map_or_else(String::new, |id| id.as_str().to_owned());
        let error = Some("it was dropped before it was over".to_owned());
        let observed = ObservedCall { context: self, job, tool, attempt, began, error };
        self.observe(&Event::CallStarted { call: observed.attempt() });
        Some(observed)
    }

    /// Returns the id of the tool or graph that a request calls.
    pub(super) fn tool_of<'r>(&'r self, request: &'r Request) -> Option<&'r ItemId> {
        request.id.as_ref().or_else(|| self.graph().tool(request.tool)?.id.as_ref())
    }

    /// Whether the visits of a step are copied for observers: the run has no journal, and one of them wants them.
    pub(super) fn shows_visits(&self) -> bool {
        !self.is_kept && self.runtime.observers.iter().any(|observer| observer.wants_visits())
    }
}

impl Engine {
    /// Tells observers that a step was taken.
    pub(super) fn observe_step(&self, visits: &[Visit]) {
        let (state, steps) = (|| self.state_value(), self.run_state.position.steps);
        self.observe(&Event::StepTaken { run: &self.facts.id, steps, visits, state: LazyState(&state) });
    }

    /// Tells observers that the run ended with a result.
    pub(super) fn observe_result(&self, ended: &Ended) {
        if self.is_observed() {
            let Ended { status, steps, exhausted, .. } = *ended;
            let output = ended.hidden.as_deref().unwrap_or(&ended.output).clone();
            let unread = ended.unread.clone();
            self.observe_end(status, None, Some(&End { output, exhausted, unread, ..End::of(status, steps) }));
        }
    }

    /// Tells observers that the run ended, or is left without an end.
    pub(super) fn observe_end(&self, status: Status, error: Option<&str>, end: Option<&End>) {
        if self.is_observed() {
            let elapsed = self.runtime.clock.monotonic().saturating_sub(self.began);
            let steps = self.run_state.position.steps;
            self.observe(&Event::RunEnded { run: &self.facts.id, status, steps, elapsed, error, end });
        }
    }
}

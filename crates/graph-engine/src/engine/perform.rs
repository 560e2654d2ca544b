//! Performing: the calls of a node, made again where they fail and the graph says so, and bounded in time.

use std::future::Future;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use graph_model::capability::Capability;
use graph_model::name::{ItemId, RunId};
use graph_model::program::{Performer, THREAD_DIRECTIVE};
use graph_model::value::{AsView, MOST_LEVELS, Map, Mismatch, Value, View, describe};
use tokio::task::yield_now;
use tracing::{Instrument, Span};

use super::{Answer, Durability, STEPS_A_LOOK, Slot, StepContext, TURN, Visit};
use crate::backoff;
use crate::cache::{Asked, Digest, Fresh};
use crate::call::More;
use crate::classify::{Classifier, Evidence};
use crate::error::{Category, Failure, RunError};
use crate::graph::Tool;
use crate::hooks::Control;

use crate::record::ItemFailure;
use crate::step::{Activation, Notes, Now, Planned, Request, items_failed, plan, plan_item};
use crate::threads;

/// A call that a visit needs.
pub(super) struct Job<'a> {
    pub(super) at: &'a Activation,
    /// The item, where the node is a foreach.
    pub(super) item: Option<(u64, &'a Value)>,
}

/// What came of a call.
#[derive(Default)]
pub(super) struct Made {
    /// What it returned, where that is not in the lane.
    pub(super) value: Option<Value>,
    pub(super) failure: Option<Box<Failure>>,
    /// How often it was made.
    pub(super) calls: u64,
    /// How often a hook had it made again.
    pub(super) hook_retries: u32,
    /// Whether a hook ended the run.
    pub(super) is_ended: bool,
    /// Whether the run was stopped, or its time was up, before the call could be made again.
    pub(super) is_interrupted: bool,
    /// Why the run cannot go on: the store of a nested run failed.
    pub(super) broken: Option<Box<RunError>>,
    /// The nested run.
    pub(super) run: Option<RunId>,
    /// Whether it was not made, since what it would have returned was in the cache.
    pub(super) cached: bool,
    /// Under which key what it returned is to be kept.
    pub(super) key: Option<Digest>,
    pub(super) warnings: Vec<String>,
    /// The time of the last plan, if anything asked for it.
    pub(super) at: Option<std::time::SystemTime>,
}

/// The calls of a foreach, shared by those who make them.
struct Calls {
    /// The next item to be taken.
    next: usize,
    /// Whether no more are to be taken.
    over: bool,
    /// Whether the run was stopped before all were taken.
    is_stopped: bool,
    results: Vec<Value>,
    failures: Vec<(usize, Made)>,
    warnings: Vec<String>,
    calls: u64,
    /// How many were not made, since what they would have returned was in the cache.
    cached: usize,
    fresh: Vec<Fresh>,
}

impl StepContext {
    /// Visits a node: decides what it does, and does it.
    pub(super) async fn visit(&self, visit: &mut Visit, slot: &mut Slot, is_alone: bool) {
        if self.is_observed() {
            self.observe_start(visit.activation.number, visit.activation.node);
        }
        if self.redo(visit) {
            return;
        }
        let mut made = Made::default();
        let planned = self.plan(&visit.activation, &mut made);
        let job = Job { at: &visit.activation, item: None };
        let first = match planned {
            Ok(Planned::Compute | Planned::Finish) => {
                visit.warnings.append(&mut made.warnings);
                visit.at = made.at;
                return;
            }
            Ok(Planned::Each { items, width }) => {
                visit.warnings.append(&mut made.warnings);
                visit.at = made.at;
                return Box::pin(self.visit_each(visit, items, width)).await;
            }
            Ok(Planned::Call(request)) => Ok(request),
            Err(failure) => Err(failure),
        };
        self.complete(&job, slot, Some(first), &mut made).await;
        if let Some(key) = made.key.filter(|_| made.failure.is_none()) {
            let result = made.value.clone().unwrap_or_else(|| slot.lane.outcome().to_plain_value());
            visit.fresh.push(Fresh { key, node: visit.activation.node, result });
        }
        if !is_alone && self.is_kept && made.failure.is_none() {
            let result = made.value.clone().unwrap_or_else(|| slot.lane.outcome().to_plain_value());
            self.lay(&job, &made, &result);
        }
        visit.take(made);
    }

    /// Goes on after the first call of a visit, which failed.
    pub(super) async fn visit_again(&self, visit: &mut Visit, slot: &mut Slot) {
        let failure = visit.failure.take().map(readable);
        let mut made = Made { calls: 1, failure, at: visit.at, ..Made::default() };
        let job = Job { at: &visit.activation, item: None };
        if Box::pin(self.tries_again(&job, &mut made)).await {
            self.complete(&job, slot, None, &mut made).await;
        }
        visit.take(made);
    }

    /// Makes a call until it succeeds or is given up.
    async fn complete(
        &self,
        job: &Job<'_>,
        slot: &mut Slot,
        mut first: Option<Result<Request, Box<Failure>>>,
        made: &mut Made,
    ) {
        loop {
            made.calls += 1;
            let request = match first.take() {
                Some(request) => request,
                None => self.plan_call(job, made),
            };
            let answer = match request {
                Ok(request) => {
                    let tool = request.tool;
                    let span = self.call_span(job, &request, made);
                    let answer = self.attempt(job, slot, request, made).instrument(span).await;
                    self.guarded(tool, slot, answer, made)
                }
                Err(failure) => Err(self.scrubbed(failure, None)),
            };
            match answer {
                Ok(value) => {
                    made.value = value;
                    made.failure = None;
                    return;
                }
                Err(failure) => made.failure = Some(readable(failure)),
            }
            if made.broken.is_some() || made.is_interrupted || !Box::pin(self.tries_again(job, made)).await {
                return;
            }
        }
    }

    fn call_span(&self, job: &Job<'_>, request: &Request, made: &Made) -> Span {
        let item = job.item.map(|(index, _)| index);
        let known = || self.graph().tool(request.tool).and_then(|tool| tool.id.as_ref());
        let tool = || request.id.as_ref().or_else(known).map_or("", ItemId::as_str);
        tracing::info_span!("graph.call", tool = tool(), attempt = made.calls, item)
    }

    /// Decides what a node does.
    fn plan(&self, at: &Activation, made: &mut Made) -> Result<Planned, Box<Failure>> {
        let clock = || self.runtime.clock.now();
        let now = Now::new(&clock);
        let mut notes = Notes::default();
        let planned = plan(&self.env(at, &now), &mut notes);
        made.at = now.known();
        made.warnings.append(&mut notes.take());
        planned
    }

    /// Decides what a call gets, at the time at which it is made (R135).
    fn plan_call(&self, job: &Job<'_>, made: &mut Made) -> Result<Request, Box<Failure>> {
        let Some((_, item)) = job.item else {
            made.warnings.clear();
            return match self.plan(job.at, made)? {
                Planned::Call(request) => Ok(request),
                _ => Err(Box::new(Failure::permanent("the node calls nothing any more"))),
            };
        };
        let clock = || self.runtime.clock.now();
        let now = Now::new(&clock);
        let mut notes = Notes::default();
        let planned = plan_item(&self.env(job.at, &now), item, &mut notes);
        made.warnings = notes.take();
        planned
    }

    /// Makes a call once. Returns what it returned, where that is not in the lane.
    ///
    /// What only some calls wait for is boxed: the future is moved for each call, and each place of a foreach holds one.
    async fn attempt(
        &self,
        job: &Job<'_>,
        slot: &mut Slot,
        mut request: Request,
        made: &mut Made,
    ) -> Result<Option<Value>, Box<Failure>> {
        let machine = &*self.machine;
        let node = machine.graph().node(job.at.node);
        let tool = machine.graph().tool(request.tool).ok_or_else(|| Failure::permanent("there is no such tool"))?;
        self.permit(tool, &request)?;
        (made.cached, made.key) = (false, None);
        let graph = match (tool.by, &request.id) {
            (Performer::Graph, _) => {
                let graph = machine.nested(request.tool);
                Some(graph.ok_or_else(|| Failure::permanent(NO_GRAPH))?)
            }
            (Performer::Program, Some(id)) => machine.nested_called(id)?,
            (Performer::Program | Performer::Items, _) => None,
        };
        if let Some(graph) = graph {
            let nested = self.run_nested(job, graph, request, made);
            return self.bounded(node.timeout, nested).await?.map(Some);
        }
        match tool.by {
            Performer::Graph => Err(Box::new(Failure::permanent(NO_GRAPH))),
            Performer::Items => {
                let items = Box::pin(self.run_items(tool, request));
                self.bounded(node.timeout, items).await?.map(Some)
            }
            Performer::Program => {
                let id = request.id.as_ref().or(tool.id.as_ref());
                let is_thread = id.is_some_and(|id| id.as_str() == THREAD_DIRECTIVE);
                if is_thread {
                    self.tell_parent(tool, &mut request);
                }
                let asked = Asked { code: machine.graph(), node: job.at.node, tool, request: &mut request };
                if let Some(key) = self.runtime.cache_key(asked) {
                    let cached = Box::pin(self.runtime.cached(&key, &mut made.warnings));
                    let found = self.bounded(node.timeout, cached).await?;
                    if found.is_some() {
                        made.cached = true;
                        return Ok(found);
                    }
                    made.key = Some(key);
                }
                slot.call.node = job.at.node;
                slot.call.tool = request.tool;
                slot.call.step = job.at.number;
                slot.call.attempt = u32::try_from(made.calls).unwrap_or(u32::MAX);
                slot.call.item = job.item.map(|(index, _)| index);
                slot.call.more = more(request.id.take(), node.remote.clone());
                let calling = slot
                    .lane
                    .call(request.tool, &mut request.arguments, &slot.call)
                    .map_err(|mismatch| Failure::permanent(unfit_parameters(slot.call.tool(), &mismatch)))?;
                self.bounded(node.timeout, Answer(calling)).await??;
                let answer = judge(tool, slot.lane.outcome())?;
                if is_thread {
                    let answer = answer.unwrap_or_else(|| slot.lane.outcome().to_plain_value());
                    let followed = threads::follow(self.runtime.threads.as_deref(), &*self.runtime.clock, answer);
                    let answer = self.bounded(node.timeout, Box::pin(followed)).await??;
                    return failed(true, answer.view()).map_or(Ok(Some(answer)), Err);
                }
                Ok(answer)
            }
        }
    }

    /// Learns the secrets in what a call returned, and cuts those that are known out of the rest of it.
    fn guarded(
        &self,
        tool: u16,
        slot: &Slot,
        answer: Result<Option<Value>, Box<Failure>>,
        made: &mut Made,
    ) -> Result<Option<Value>, Box<Failure>> {
        let Some(vault) = &self.vault else { return answer };
        let mask = self.graph().settings.secrets.tools.get(&tool);
        let value = answer.map_err(|failure| self.scrubbed(failure, mask))?;
        let in_lane = value.is_none();
        let mut plain = value.unwrap_or_else(|| slot.lane.outcome().to_plain_value());
        vault.learn(mask, &plain);
        let is_clean = !vault.scrub_value(&mut plain, mask);
        if !is_clean {
            // What had a secret in it is not kept, also without it.
            made.key = None;
        }
        Ok(if in_lane && is_clean { None } else { Some(plain) })
    }

    /// Fails unless the run may make a call (R169–R174).
    pub(super) fn permit(&self, tool: &Tool, request: &Request) -> Result<(), Box<Failure>> {
        // What is known before the run begins was checked then.
        if tool.id.is_some() && self.allowed.get(usize::from(request.tool)) == Some(&true) {
            return Ok(());
        }
        let id = request.id.as_ref().or(tool.id.as_ref());
        if id.is_some_and(|id| id.as_str().starts_with(graph_model::program::INTERNAL)) {
            return Ok(());
        }
        let capability = Capability::new(tool.verb, tool.item, id);
        if self.facts.allows(&capability) && self.graph().permissions.allow(&capability) {
            return Ok(());
        }
        let is_none = self.facts.ceiling.iter().any(|grants| grants.patterns().is_empty());
        let message = denied(tool, request, is_none);
        Err(Box::new(Failure::permanent(message)))
    }

    /// Tells a thread whose child it is; what the graph says itself counts (R178).
    fn tell_parent(&self, tool: &Tool, request: &mut Request) {
        let capabilities =
            self.facts.ceiling.iter().fold(self.graph().permissions.clone(), |all, one| all.narrowed(one));
        let capabilities = capabilities.patterns().iter().map(|pattern| Value::from(pattern.as_str())).collect();
        let facts = [
            ("parent_thread_id", Value::from(self.facts.id.as_str())),
            ("parent_depth", Value::from(self.facts.depth)),
            ("parent_limits", Value::Object(Map::from_iter([("depth".to_owned(), Value::from(self.facts.depth))]))),
            ("parent_capabilities", Value::Array(capabilities)),
        ];
        for (name, fact) in facts {
            match &tool.params {
                None => {
                    if let Some(Value::Object(params)) = request.arguments.values_mut().first_mut() {
                        params.entry(name).or_insert(fact);
                    }
                }
                Some(names) => {
                    let place = names.iter().position(|param| param == name);
                    let value = place.and_then(|at| request.arguments.values_mut().get_mut(at));
                    if let Some(value) = value.filter(|value| value.is_null()) {
                        *value = fact;
                    }
                }
            }
        }
    }

    pub(super) async fn run_items(&self, tool: &Tool, mut request: Request) -> Result<Value, Box<Failure>> {
        let Some(items) = &self.runtime.items else {
            return Err(Box::new(Failure::permanent(no_spaces(tool))));
        };
        let params = match request.arguments.take::<Value>("") {
            Value::Object(params) => params,
            _ => Map::new(),
        };
        let id = request.id.as_ref().or(tool.id.as_ref());
        items.perform(tool.verb, tool.item, id, params).await.map_err(|error| Box::new(Failure::from(error)))
    }

    /// Waits for something, but not longer than it, or the run, may take.
    pub(super) async fn bounded<F: Future>(&self, limit: Option<Duration>, work: F) -> Result<F::Output, Box<Failure>> {
        let left = self.time_left();
        let bound = match (limit, left) {
            (None, None) => return Ok(work.await),
            (Some(limit), Some(left)) => limit.min(left),
            (Some(bound), None) | (None, Some(bound)) => bound,
        };
        tokio::select! {
            biased;
            done = work => Ok(done),
            () = self.runtime.clock.sleep(bound) => {
                Err(Box::new(Failure::of(Category::Transient, timed_out(bound))))
            }
        }
    }

    /// Returns how long the run may still take, if that is bounded.
    fn time_left(&self) -> Option<Duration> {
        self.facts.deadline.map(|deadline| deadline.saturating_sub(self.runtime.clock.monotonic()))
    }

    /// Whether the run has taken all the time it may.
    pub(super) fn is_overdue(&self) -> bool {
        self.time_left().is_some_and(|left| left.is_zero())
    }

    /// Decides whether a call that failed is made again, and waits until it is time to.
    async fn tries_again(&self, job: &Job<'_>, made: &mut Made) -> bool {
        let Some(failure) = &made.failure else { return false };
        if self.facts.stop.is_set() || self.is_overdue() {
            made.is_interrupted = true;
            return false;
        }
        let classifier = match &self.runtime.classifier {
            Some(classifier) => classifier,
            None => Classifier::shared(),
        };
        let class = classifier.classify(&Evidence::from(&**failure));
        let attempt = u32::try_from(made.calls).unwrap_or(u32::MAX);
        let node = self.graph().node(job.at.node);
        if let Some(retry) = self.graph().calls_again(job.at.node, class.category, made.calls) {
            let pause = failure.retry_after.unwrap_or_else(|| backoff::pause(retry, attempt, self.lot(job, attempt)));
            return self.pause(pause, made).await;
        }
        let control = Box::pin(self.error_hooks(job, failure, &class, attempt)).await;
        // A node that says itself how it is tried again is not tried again by default.
        let control = control.or_else(|| {
            (node.retry.is_none() && class.retryable).then_some(Control::Retry { max_retries: BUILTIN_RETRIES })
        });
        match control {
            Some(Control::Retry { max_retries }) if made.hook_retries < max_retries => {
                let pause = class.policy.delay(made.hook_retries, failure.retry_after);
                made.hook_retries += 1;
                self.pause(pause, made).await
            }
            Some(Control::Fail { error }) => {
                self.end_by_hook(made, |_| error);
                false
            }
            Some(Control::Abort) => {
                self.end_by_hook(made, |message| format!("aborted by a hook: {message}"));
                false
            }
            _ => {
                self.note_category(made, class.category);
                false
            }
        }
    }

    /// Says of a failure that is given up what it was found to be, which the journal keeps.
    fn note_category(&self, made: &mut Made, category: Category) {
        if let Some(failure) = &mut made.failure {
            failure.category = category;
        }
    }

    fn end_by_hook(&self, made: &mut Made, message: impl FnOnce(&str) -> String) {
        made.is_ended = true;
        if let Some(failure) = &mut made.failure {
            failure.message = message(&failure.message);
        }
    }

    /// Waits before a call is made again. False if the run was stopped meanwhile, or has not the time.
    async fn pause(&self, pause: Duration, made: &mut Made) -> bool {
        if pause.is_zero() {
            // A tool that fails at once, again and again, must not keep others from their turn.
            yield_now().await;
            return true;
        }
        let pause = self.time_left().map_or(pause, |left| left.min(pause));
        tokio::select! {
            biased;
            () = self.facts.stop.wait() => made.is_interrupted = true,
            () = self.runtime.clock.sleep(pause) => made.is_interrupted = self.is_overdue(),
        }
        !made.is_interrupted
    }

    /// Returns a number from 0 to 1 by which a pause is shorter: another for each call, the same when it is asked again.
    fn lot(&self, job: &Job<'_>, attempt: u32) -> f64 {
        let item = job.item.map_or(0, |(index, _)| index + 1);
        let text = format!("{}/{}/{item}/{attempt}", self.facts.id, job.at.number);
        let digest = Digest::of(text);
        let bytes = digest.as_bytes();
        f64::from(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])) / f64::from(u32::MAX)
    }

    /// Makes a call for each item, as many at a time as `width` says.
    async fn visit_each(&self, visit: &mut Visit, items: Vec<Value>, width: usize) {
        let stops = self.graph().stops_at_failure(visit.activation.node);
        let calls = Mutex::new(Calls {
            next: 0,
            over: false,
            is_stopped: false,
            results: vec![Value::Null; items.len()],
            failures: Vec::new(),
            warnings: Vec::new(),
            calls: 0,
            cached: 0,
            fresh: Vec::new(),
        });
        let width = width.clamp(1, items.len().max(1));
        if width == 1 {
            self.work(&visit.activation, &items, &calls, stops).await;
        } else {
            let workers = (0..width).map(|_| self.work(&visit.activation, &items, &calls, stops));
            let mut workers: FuturesUnordered<_> = workers.collect();
            while workers.next().await.is_some() {}
        }
        visit.take_each(calls.into_inner().unwrap_or_else(PoisonError::into_inner));
    }

    /// Whether what a foreach calls is an agent's thread.
    fn calls_thread(&self, node: u16) -> bool {
        let tool = self.graph().node(node).kind.calls().and_then(|tool| self.graph().tool(tool));
        tool.is_some_and(|tool| tool.name() == THREAD_DIRECTIVE)
    }

    /// Makes the calls of a foreach one after the other, until none is left.
    async fn work(&self, at: &Activation, items: &[Value], calls: &Mutex<Calls>, stops: bool) {
        let calls = || calls.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut slot, is_thread) = (self.slot(), self.calls_thread(at.node));
        let mut began = std::time::Instant::now();
        let mut done: u64 = 0;
        loop {
            let index = {
                let mut calls = calls();
                if calls.over || calls.next == items.len() {
                    return;
                }
                calls.next += 1;
                calls.next - 1
            };
            let job = Job { at, item: Some((index as u64, &items[index])) };
            let known = self.done(at.number, job.item.map(|(index, _)| index));
            let is_new = known.is_none();
            let mut made = known.unwrap_or_default();
            if is_new {
                self.complete(&job, &mut slot, None, &mut made).await;
            }
            let failed = made.failure.is_some();
            let result = (!failed).then(|| made.value.take().unwrap_or_else(|| slot.lane.outcome().to_plain_value()));
            let laid = result.as_ref().filter(|_| is_new && self.is_kept).map(|result| self.lay(&job, &made, result));
            // What came from the cache was not called, and nothing happens twice if it is asked for again.
            let waits = laid.filter(|_| self.durability == Durability::Sync && !made.cached);
            {
                let mut calls = calls();
                calls.calls += made.calls;
                calls.cached += usize::from(made.cached);
                calls.warnings.append(&mut made.warnings);
                if let Some(result) = result {
                    if let Some(key) = made.key {
                        calls.fresh.push(Fresh { key, node: at.node, result: result.clone() });
                    }
                    calls.results[index] = if is_thread { element(result) } else { result };
                } else {
                    calls.over |= stops || made.is_ended || made.is_interrupted || made.broken.is_some();
                    calls.results[index] =
                        made.failure.as_ref().map_or(Value::Null, |failure| View::Object(&**failure).to_value());
                    calls.failures.push((index, made));
                }
                let is_stopped = self.facts.stop.is_set();
                calls.is_stopped |= is_stopped && !calls.over && calls.next < items.len();
                calls.over |= is_stopped || self.desk.is_cut();
                // The last results are written with the step.
                if calls.over || calls.next == items.len() {
                    return;
                }
            }
            // So at most as many items as are at work at once are called again after a crash.
            if let Some(place) = waits {
                self.desk.durable(place).await;
                calls().over |= self.desk.is_cut();
            }
            done += 1;
            if done.is_multiple_of(STEPS_A_LOOK) && began.elapsed() >= TURN {
                yield_now().await;
                began = std::time::Instant::now();
            }
        }
    }
}

/// What a call of a graph says that the program does not have.
pub(crate) const NO_GRAPH: &str = "the program has no such graph";

/// Says that a call took longer than it may.
pub(crate) fn timed_out(limit: Duration) -> String {
    format!("it timed out after {}", graph_model::duration::shown(limit))
}

/// Says that the parameters of a call do not fit its tool.
pub fn unfit_parameters(tool: &str, mismatch: &Mismatch) -> String {
    format!("the parameters of `{tool}` do not fit: {mismatch}")
}

/// Says that a runtime has no spaces for an action on items.
pub(crate) fn no_spaces(tool: &Tool) -> String {
    format!("the runtime has no spaces to {} items in: name them with `Builder::spaces`", tool.verb.name())
}

/// Says that a run may not make a call; `is_none` if it was granted nothing at all.
pub(crate) fn denied(tool: &Tool, request: &Request, is_none: bool) -> String {
    let id = request.id.as_ref().or(tool.id.as_ref());
    if is_none {
        let (verb, item, id) = (tool.verb.name(), tool.item.name(), id.map_or("", |id| id.as_str()));
        return format!("Permission denied: no capabilities. Cannot {verb} {item} '{id}'");
    }
    format!("Permission denied: '{}' not covered by capabilities", Capability::new(tool.verb, tool.item, id))
}

/// How often the hook that is built in has a call made again that failed with what may go away by itself (R138).
pub(crate) const BUILTIN_RETRIES: u32 = 3;

impl Visit {
    /// Takes over what came of the visit's call.
    pub(super) fn take(&mut self, made: Made) {
        self.called = made.failure.is_none();
        self.value = made.value;
        self.failure = made.failure;
        self.calls = made.calls;
        self.is_ended = made.is_ended;
        self.is_interrupted = made.is_interrupted;
        self.broken = made.broken;
        self.run = made.run;
        self.cached = made.cached && self.called;
        self.at = made.at;
        self.warnings.extend(made.warnings);
    }

    /// Takes over what came of the calls of a foreach.
    fn take_each(&mut self, mut calls: Calls) {
        calls.failures.sort_by_key(|(index, _)| *index);
        self.calls = calls.calls.saturating_sub(calls.next as u64) + 1;
        self.warnings.append(&mut calls.warnings);
        self.cached = calls.cached > 0 && calls.cached == calls.results.len();
        self.fresh.append(&mut calls.fresh);
        let count = calls.failures.len();
        for (index, made) in &mut calls.failures {
            self.is_ended |= made.is_ended;
            self.is_interrupted |= made.is_interrupted;
            if made.broken.is_some() {
                self.broken = made.broken.take();
            }
            if let Some(failure) = &made.failure {
                self.items.push(ItemFailure { item: *index as u64, error: failure.message.clone() });
            }
        }
        // Interrupted between two items.
        self.is_interrupted |= calls.is_stopped || (calls.over && count == 0);
        if let Some((index, made)) = calls.failures.into_iter().next()
            && let Some(mut failure) = made.failure
        {
            failure.message = items_failed(index as u64, &failure.message, count);
            self.failure = Some(failure);
        }
        self.results = Some(calls.results);
    }
}

/// Returns what only some calls have, if this one has any of it.
fn more(id: Option<ItemId>, remote: Option<std::sync::Arc<str>>) -> Option<Box<More>> {
    (id.is_some() || remote.is_some()).then(|| Box::new(More { id, remote, ..More::default() }))
}

/// What a list of results holds of one: of a thread that goes on by itself, its id (R108).
pub(crate) fn element(result: Value) -> Value {
    match result {
        Value::Object(mut map) if map.contains_key("thread_id") && !map.contains_key("outputs") => {
            map.remove("thread_id").unwrap_or_default()
        }
        other => other,
    }
}

/// Looks at what a tool returned: unwraps it where no contract says what it is, and fails where it says that it failed
/// (R119, R180–R182). Returns it where that is not what the lane holds.
fn judge(tool: &Tool, outcome: View<'_>) -> Result<Option<Value>, Box<Failure>> {
    if tool.typed {
        return match failed(tool.nests, outcome) {
            Some(failure) => Err(failure),
            None => Ok(None),
        };
    }
    let value = unwrap(outcome.to_value());
    match failed(true, value.view()) {
        Some(failure) => Err(failure),
        None => Ok(Some(value)),
    }
}

/// Returns the failure that a result is, or tells of. One that `nests` too deep could not be read back from a journal.
#[inline]
pub(crate) fn failed(nests: bool, result: View<'_>) -> Option<Box<Failure>> {
    if nests && !result.is_within(MOST_LEVELS) {
        return Some(too_deep());
    }
    let View::Object(record) = result else { return None };
    let says_so = matches!(record.get("status").expose(), View::Text("error"))
        || matches!(record.get("success").expose(), View::Boolean(false));
    says_so.then(|| told_failure(result))
}

/// Drops what a tool got of a failure where it nests too deep to be read back from a journal, which edges see.
fn readable(mut failure: Box<Failure>) -> Box<Failure> {
    if failure.data.as_ref().is_some_and(|data| !data.view().is_within(MOST_LEVELS)) {
        failure.data = None;
    }
    failure
}

#[cold]
fn too_deep() -> Box<Failure> {
    Box::new(Failure::permanent(format!("expected a value of at most {MOST_LEVELS} levels, found a deeper one")))
}

#[cold]
fn told_failure(result: View<'_>) -> Box<Failure> {
    let error = result.step("error").expose();
    let message = match error {
        View::Text(message) => message.to_owned(),
        View::Null => "unknown".to_owned(),
        View::Object(_) => match error.step("message") {
            View::Text(message) => message.to_owned(),
            _ => describe(error),
        },
        other => {
            let mut text = String::new();
            other.write_text(&mut text);
            text
        }
    };
    Box::new(Failure::told(message, result.to_plain_value()))
}

/// What an envelope has besides what the tool returned.
const ENVELOPE: [&str; 5] = ["chain", "metadata", "path", "source", "resolved_env_keys"];

/// Takes a tool's answer out of its envelope (R180–R182).
///
/// An envelope is an object with `data`, or with a `status` beside a `chain`. What else an object holds is the answer.
fn unwrap(answer: Value) -> Value {
    let mut map = match answer {
        Value::Object(map) => map,
        Value::Null => return Value::Object(Map::new()),
        other => return Value::Object(Map::from_iter([("result".to_owned(), other)])),
    };
    let is_envelope = map.contains_key("status") && (map.contains_key("data") || map.contains_key("chain"));
    if !is_envelope {
        return Value::Object(map);
    }
    map.retain(|name, _| !ENVELOPE.contains(&name.as_str()));
    let failed = map.get("status").and_then(Value::as_str) == Some("error");
    let error = map.get("error").cloned();
    let mut inner = match map.get_mut("data").map(Value::take) {
        Some(Value::Object(inner)) => inner,
        Some(data) => {
            map.insert("data".to_owned(), data);
            return Value::Object(map);
        }
        None => return Value::Object(map),
    };
    let failed = failed || inner.get("success") == Some(&Value::Bool(false));
    if failed {
        inner.insert("status".to_owned(), Value::from("error"));
        if let Some(error) = error {
            inner.entry("error").or_insert(error);
        }
    }
    Value::Object(inner)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_envelope_is_taken_off_and_nothing_inside_is_lost() {
        for (answer, expected) in [
            (
                json!({"status": "success", "data": {"stdout": "42", "path": "a"}, "path": "b"}),
                json!({"stdout": "42", "path": "a"}),
            ),
            (
                json!({"status": "error", "data": {"x": 1}, "error": "no"}),
                json!({"x": 1, "status": "error", "error": "no"}),
            ),
            (
                json!({"status": "error", "data": {"error": "in"}, "error": "out"}),
                json!({"error": "in", "status": "error"}),
            ),
            (json!({"status": "success", "data": {"success": false}}), json!({"success": false, "status": "error"})),
            (json!({"status": "success", "data": "text", "chain": []}), json!({"status": "success", "data": "text"})),
            (json!({"path": "a", "source": "b"}), json!({"path": "a", "source": "b"})),
            (json!({"data": {"rows": 1}, "total": 2}), json!({"data": {"rows": 1}, "total": 2})),
            (json!("text"), json!({"result": "text"})),
            (json!(null), json!({})),
        ] {
            assert_eq!(unwrap(answer.clone()), expected, "{answer}");
        }
    }

    #[test]
    fn a_result_that_says_it_failed_is_a_failure() {
        let message = |result: Value| failed(true, result.view()).map(|failure| failure.message);
        assert_eq!(message(json!({"success": false, "error": "no"})), Some("no".into()));
        assert_eq!(message(json!({"status": "error"})), Some("unknown".into()));
        assert_eq!(message(json!({"status": "error", "error": {"message": "deep"}})), Some("deep".into()));
        assert_eq!(message(json!({"success": 0})), None);
        assert_eq!(message(json!({"status": "ok"})), None);
        let nested = |levels| (0..levels).fold(json!({}), |inner, _| json!([inner]));
        assert_eq!(message(nested(MOST_LEVELS - 1)), None);
        let deep = Some("expected a value of at most 100 levels, found a deeper one".into());
        assert_eq!(message(nested(MOST_LEVELS)), deep);
    }
}

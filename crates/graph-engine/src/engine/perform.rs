//! Performing a node's calls: repeating them where they fail and the graph says so, and limiting their time.

use crate::activation::Activation;
use crate::backoff::BUILTIN_RETRIES;
use crate::cache::{Digest, Fresh};
use crate::call::More;
use crate::classify::{Classifier, Evidence};
use crate::engine::cache_key::Asked;
use crate::engine::call_result::{CallResult, ItemCalls, PendingCall};
use crate::engine::hooks::Steered;
use crate::engine::journal_writer::Durability;
use crate::engine::run_state::{CallSlot, StepContext, VisitState};
use crate::failure::{Category, Failure};
use crate::graph::{CompiledTool, Notes, Now, tables};
use crate::hooks::Control;
use crate::record::Done;
use crate::schedule::{STEPS_A_LOOK, TURN};
use crate::signed_answer::SignedAnswer;
use crate::step::{
    NO_GRAPH, Planned, Suspension, check_payload, denied, element, failed, judge, no_spaces, plan, plan_item, readable,
    timed_out,
};
use crate::tool_caller::{GuardedCall, Request, unfit_parameters};
use crate::{backoff, threads};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use graph_model::capability::{Capability, Grants};
use graph_model::name::ItemId;
use graph_model::program::{Executor, THREAD_DIRECTIVE};
use graph_model::value::{AsView, Map, Value, View};
use tokio::task::yield_now;
use tracing::{Instrument, Span};

/// The error of a run that a hook suspends for the call of one element of a list.
const SUSPENDED_ITEM: &str =
    "a hook asked to suspend the run, which is not supported for the call of one element of a list";

impl StepContext {
    /// Visits a node: decides what it does, and does it.
    pub(super) async fn visit(&self, visit: &mut VisitState, slot: &mut CallSlot, is_alone: bool) {
        if self.is_observed() {
            self.observe_start(visit.activation.number, visit.activation.node);
        }
        if self.redo(visit) {
            return;
        }
        let mut made = self.calls_before(visit.activation.number, None);
        let planned = self.plan(&visit.activation, &mut made);
        let job = PendingCall { at: &visit.activation, item: None };
        let first = match planned {
            Ok(Planned::Call(request)) => Ok(request),
            Err(failure) if !self.graph().waits(visit.activation.node) => Err(failure),
            planned => {
                visit.warnings.append(&mut made.warnings);
                visit.at = made.at;
                match planned {
                    Ok(Planned::Wait(opening)) => {
                        visit.at = made.at.filter(|_| opening.pause.is_none());
                        (visit.waits, visit.opening) = (true, opening);
                    }
                    Ok(Planned::Each { items, width }) => Box::pin(self.visit_each(visit, items, width)).await,
                    Ok(_) => {}
                    Err(failure) => (visit.failure, visit.is_unfit) = (Some(self.scrubbed(failure, None)), true),
                }
                return;
            }
        };
        self.complete(&job, slot, Some(first), &mut made).await;
        if made.failure.is_none() && made.is_over() {
            let outcome = || slot.tool_caller.outcome().to_plain_value();
            visit.returned = (!is_alone && made.value.is_none()).then(outcome);
            let result = made.value.as_ref().or(visit.returned.as_ref());
            if let Some(key) = made.key {
                let result = result.cloned().unwrap_or_else(outcome);
                visit.fresh.push(Fresh { key, node: visit.activation.node, result });
            }
            if let Some(result) = result.filter(|_| !is_alone && self.is_kept) {
                (_, visit.woke) = self.push(&job, &made, result);
            }
        }
        // If the rest of the step is not committed, the visit is left all the same.
        if let Some(suspension) = made.suspended.clone().filter(|_| !is_alone) {
            let node = &self.graph().node(visit.activation.node).name;
            let done = Done::of_suspended(visit.activation.number, node, suspension);
            (_, visit.woke) = self.pending_calls.push(done);
        }
        visit.take(made);
    }

    /// Returns the calls of a visit, or of an item of it, that were made before it waited for a nested run: the next one finds that run.
    fn calls_before(&self, step: u64, item: Option<u64>) -> CallResult {
        let left = &self.run_state.position.calls_left;
        let before = if left.is_empty() { None } else { left.get(&(step, item)).map(|call| call - 1) };
        let calls = before.unwrap_or_default();
        CallResult { calls, hook_retries: u32::try_from(calls).unwrap_or(u32::MAX), ..CallResult::default() }
    }

    /// Continues after the first call of a visit, which failed.
    pub(super) async fn visit_again(&self, visit: &mut VisitState, slot: &mut CallSlot) {
        let failure = visit.failure.take().map(readable);
        let mut made = CallResult { calls: 1, failure, at: visit.at, ..CallResult::default() };
        let job = PendingCall { at: &visit.activation, item: None };
        if Box::pin(self.tries_again(&job, slot, &mut made)).await {
            self.complete(&job, slot, None, &mut made).await;
        }
        visit.take(made);
    }

    /// Makes a call until it succeeds or is given up.
    async fn complete(
        &self,
        job: &PendingCall<'_>,
        slot: &mut CallSlot,
        mut first: Option<Result<Request, Box<Failure>>>,
        made: &mut CallResult,
    ) {
        loop {
            made.calls += 1;
            let request = match first.take() {
                Some(request) => request,
                None => self.plan_call(job, made),
            };
            made.waits.clear();
            let answer = match request {
                Ok(request) => {
                    let tool = request.tool;
                    let span = self.call_span(job, &request, made);
                    let mut observed = self.observe_call(job, &request, made);
                    let answer = self.attempt(job, slot, request, made).instrument(span).await;
                    let answer = self.guarded(tool, slot, answer, made);
                    if let Some(observed) = &mut observed {
                        let failure =
                            answer.as_ref().err().filter(|failure| made.waits.is_empty() && failure.question.is_none());
                        observed.error = failure.map(|failure| failure.message.clone());
                    }
                    answer
                }
                Err(failure) => Err(self.scrubbed(failure, None)),
            };
            match answer {
                Ok(value) => {
                    made.value = value;
                    made.failure = None;
                    return;
                }
                Err(_) if !made.waits.is_empty() => {
                    made.failure = None;
                    return;
                }
                Err(mut failure) => match failure.question.take().filter(|_| self.graph().tool_may_ask(job.at.node)) {
                    Some(question) => match check_payload(&question) {
                        Ok(()) => {
                            (made.question, made.failure) = (Some(*question), None);
                            return;
                        }
                        Err(failure) => made.failure = Some(failure),
                    },
                    None => made.failure = Some(readable(failure)),
                },
            }
            if made.broken.is_some() || made.is_interrupted || !Box::pin(self.tries_again(job, slot, made)).await {
                return;
            }
        }
    }

    fn call_span(&self, job: &PendingCall<'_>, request: &Request, made: &CallResult) -> Span {
        let item = job.item.map(|(index, _)| index);
        let tool = || self.tool_of(request).map_or("", ItemId::as_str);
        tracing::info_span!("graph.call", tool = tool(), attempt = made.calls, item)
    }

    /// Decides what a node does.
    fn plan(&self, at: &Activation, made: &mut CallResult) -> Result<Planned, Box<Failure>> {
        let clock = || self.runtime.clock.now();
        let now = Now::new(&clock);
        let mut notes = Notes::default();
        let planned = plan(&self.env(at, &now), &mut notes);
        made.at = now.known();
        made.warnings.append(&mut notes.take());
        planned
    }

    /// Computes the request of a call at the time at which the call is made (R135).
    fn plan_call(&self, job: &PendingCall<'_>, made: &mut CallResult) -> Result<Request, Box<Failure>> {
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

    /// Makes a call once. Returns the value that it returned, if the tool caller does not hold it.
    ///
    /// Futures that only some calls need are boxed: the future of this function is moved for each call, and each worker of a
    /// foreach holds one.
    async fn attempt(
        &self,
        job: &PendingCall<'_>,
        slot: &mut CallSlot,
        mut request: Request,
        made: &mut CallResult,
    ) -> Result<Option<Value>, Box<Failure>> {
        let machine = &*self.machine;
        let node = tables(machine.graph()).node(job.at.node);
        let attempt = u32::try_from(made.calls).unwrap_or(u32::MAX);
        slot.call.begin(job.at.node, request.tool, job.at.number, attempt);
        let tool =
            tables(machine.graph()).tool(request.tool).ok_or_else(|| Failure::permanent("there is no such tool"))?;
        self.permit(tool, &request)?;
        (made.cached, made.key) = (false, None);
        let graph = match (tool.by, &request.id) {
            (Executor::Graph, _) => {
                let graph = machine.nested(request.tool);
                Some(graph.ok_or_else(|| Failure::permanent(NO_GRAPH))?)
            }
            (Executor::Program, Some(id)) => machine.nested_called(id)?,
            (Executor::Program | Executor::Items, _) => None,
        };
        if let Some(graph) = graph {
            let nested = self.run_nested(job, graph, request, made);
            return self.bounded(node.timeout, nested).await?.map(Some);
        }
        match tool.by {
            Executor::Graph => Err(Box::new(Failure::permanent(NO_GRAPH))),
            Executor::Items => {
                let items = Box::pin(self.run_items(tool, request));
                self.bounded(node.timeout, items).await?.map(Some)
            }
            Executor::Program => {
                tool.accepts(&mut request.arguments)
                    .map_err(|invalid| Failure::permanent(unfit_parameters(tool.name(), &invalid)))?;
                let id = request.id.as_ref().or(tool.id.as_ref());
                let is_thread = id.is_some_and(|id| id.as_str() == THREAD_DIRECTIVE);
                let thread = is_thread.then(|| {
                    // A thread that could not begin is not replaced by the result of another one.
                    let is_kept = node.cached && self.facts.depth > 0;
                    self.runtime.begun_thread(tool, &mut request, self.facts.capabilities(), is_kept)
                });
                let asked = Asked {
                    code: tables(machine.graph()),
                    node: job.at.node,
                    tool,
                    request: &mut request,
                    thread: thread.as_ref(),
                };
                if let Some(key) = self.runtime.cache_key(asked) {
                    let cached = Box::pin(self.runtime.cached(&key, &mut made.warnings));
                    let found = self.bounded(node.timeout, cached).await?;
                    if found.is_some() {
                        made.cached = true;
                        return Ok(found);
                    }
                    made.key = Some(key);
                }
                if let Some(thread) = &thread {
                    self.tell_parent(tool, &mut request, &thread.capabilities);
                }
                slot.call.item = job.item.map(|(index, _)| index);
                slot.call.more = more(request.id.take(), node.remote.clone(), self.answers(job.at.number));
                let calling = slot
                    .tool_caller
                    .call(request.tool, &mut request.arguments, &slot.call)
                    .map_err(|mismatch| Failure::permanent(unfit_parameters(slot.call.tool(), &mismatch)))?;
                self.bounded(node.timeout, self.unless_killed(GuardedCall(calling))).await??;
                let answer = judge(tool, slot.tool_caller.outcome())?;
                if let Some(thread) = thread {
                    // Its directive may have changed while it ran.
                    if !thread.is_as_before(self.runtime.tool_settings.as_deref()) {
                        made.key = None;
                    }
                    let answer = answer.unwrap_or_else(|| slot.tool_caller.outcome().to_plain_value());
                    let followed = threads::follow(self.runtime.threads.as_deref(), &*self.runtime.clock, answer);
                    let answer = self.bounded(node.timeout, Box::pin(followed)).await??;
                    return failed(true, answer.view()).map_or(Ok(Some(answer)), Err);
                }
                Ok(answer)
            }
        }
    }

    /// Returns the answers of people to the questions that the tool of a visit has asked.
    fn answers(&self, step: u64) -> Vec<SignedAnswer> {
        let answers = self.run_state.position.answers(step).iter();
        answers.filter_map(|signal| SignedAnswer::read(&signal.value)).collect()
    }

    /// Learns the secrets in the result of a call, and removes all known secrets from the rest of it.
    fn guarded(
        &self,
        tool: u16,
        slot: &CallSlot,
        answer: Result<Option<Value>, Box<Failure>>,
        made: &mut CallResult,
    ) -> Result<Option<Value>, Box<Failure>> {
        let Some(run_secrets) = &self.run_secrets else { return answer };
        let mask = self.graph().settings.secrets.tools.get(&tool);
        let value = answer.map_err(|failure| self.scrubbed(failure, mask))?;
        let in_lane = value.is_none();
        let mut plain = value.unwrap_or_else(|| slot.tool_caller.outcome().to_plain_value());
        run_secrets.learn(mask, &plain);
        let is_clean = !run_secrets.scrub_value(&mut plain, mask);
        if !is_clean {
            // A result that contained a secret is not cached, not even without the secret.
            made.key = None;
        }
        Ok(if in_lane && is_clean { None } else { Some(plain) })
    }

    /// Fails unless the run may make a call (R169–R174).
    pub(super) fn permit(&self, tool: &CompiledTool, request: &Request) -> Result<(), Box<Failure>> {
        // A call that is known before the run begins was checked then.
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

    /// Adds the parent's facts to the parameters of a thread. Parameters that the graph sets itself take precedence (R178).
    fn tell_parent(&self, tool: &CompiledTool, request: &mut Request, capabilities: &Grants) {
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

    pub(super) async fn run_items(&self, tool: &CompiledTool, mut request: Request) -> Result<Value, Box<Failure>> {
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

    /// Waits for `work`, but not longer than `limit` or than the run may still take.
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

    /// Waits for the answer of a tool, or drops its call when the run is killed.
    async fn unless_killed<T>(&self, call: impl Future<Output = Result<T, Box<Failure>>>) -> Result<T, Box<Failure>> {
        let (mut call, mut killed) = (pin!(call), None);
        // Most tools answer at once. A call is polled once each time: one that yields lets other tasks have their turn.
        poll_fn(|context| {
            if let Poll::Ready(answer) = call.as_mut().poll(context) {
                return Poll::Ready(answer);
            }
            let killed = killed.get_or_insert_with(|| Box::pin(self.facts.stop.killed()));
            let message = "the run was killed";
            killed.as_mut().poll(context).map(|()| Err(Box::new(Failure::of(Category::Cancelled, message))))
        })
        .await
    }

    /// Returns how long the run may still take, if that is limited.
    fn time_left(&self) -> Option<Duration> {
        self.facts.deadline.map(|deadline| deadline.saturating_sub(self.runtime.clock.monotonic()))
    }

    /// Whether the run has taken all the time it may.
    pub(super) fn is_overdue(&self) -> bool {
        self.time_left().is_some_and(|left| left.is_zero())
    }

    /// Decides whether a failed call is made again, and waits until it is time for that.
    async fn tries_again(&self, job: &PendingCall<'_>, slot: &CallSlot, made: &mut CallResult) -> bool {
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
            let pause =
                failure.retry_after.unwrap_or_else(|| backoff::pause(retry, attempt, self.jitter(job, attempt)));
            return self.pause(pause, made).await;
        }
        let control = Box::pin(self.error_hooks(job, failure, &class, attempt)).await;
        // A nested run would begin again, with other keys for its calls.
        let is_repeatable = made.run.is_none() && !slot.call.is_once();
        let repeats = is_repeatable && node.retry.is_none() && class.retryable;
        let control = control.or_else(|| repeats.then_some(Control::Retry { max_retries: BUILTIN_RETRIES }));
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
            Some(Control::Suspend { reason, escalated, .. }) => {
                match (self.suspended(&reason, escalated), job.item) {
                    (Steered::Suspends(suspension), None) => {
                        let is_again = made.run.is_some() && made.calls > 1;
                        let call = if is_again { made.calls } else { 0 };
                        (made.suspended, made.failure) = (Some(Suspension { call, ..suspension }), None);
                    }
                    (Steered::Suspends(_), Some(_)) => self.end_by_hook(made, |_| SUSPENDED_ITEM.to_owned()),
                    (Steered::Ends(error), _) => self.end_by_hook(made, |_| error),
                }
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

    /// Sets the category that a final failure was classified as; the journal keeps it.
    fn note_category(&self, made: &mut CallResult, category: Category) {
        if let Some(failure) = &mut made.failure {
            failure.category = category;
        }
    }

    fn end_by_hook(&self, made: &mut CallResult, message: impl FnOnce(&str) -> String) {
        made.is_ended = true;
        if let Some(failure) = &mut made.failure {
            failure.message = message(&failure.message);
        }
    }

    /// Waits before a call is made again. Returns false if the run was stopped meanwhile, or has no time left.
    async fn pause(&self, pause: Duration, made: &mut CallResult) -> bool {
        if pause.is_zero() {
            // A tool that fails immediately, again and again, must not starve other tasks.
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

    /// Returns the random part of a pause, from 0 to 1: different for each call, and the same when it is computed again.
    fn jitter(&self, job: &PendingCall<'_>, attempt: u32) -> f64 {
        let item = job.item.map_or(0, |(index, _)| index + 1);
        let text = format!("{}/{}/{item}/{attempt}", self.facts.id, job.at.number);
        let digest = Digest::of(text);
        let bytes = digest.as_bytes();
        f64::from(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])) / f64::from(u32::MAX)
    }

    /// Makes a call for each item, at most `width` at a time.
    async fn visit_each(&self, visit: &mut VisitState, items: Vec<Value>, width: usize) {
        let stops = self.graph().stops_at_failure(visit.activation.node);
        let calls = Mutex::new(ItemCalls { results: vec![Value::Null; items.len()], ..ItemCalls::default() });
        let width = width.clamp(1, items.len().max(1));
        if width == 1 {
            self.work(&visit.activation, &items, &calls, stops).await;
        } else {
            let workers = (0..width).map(|_| self.work(&visit.activation, &items, &calls, stops));
            let mut workers: FuturesUnordered<_> = workers.collect();
            while workers.next().await.is_some() {}
        }
        let mut calls = calls.into_inner().unwrap_or_else(PoisonError::into_inner);
        if calls.waits() {
            self.keep_failures(&visit.activation, &items, &mut calls);
        }
        visit.take_each(calls);
    }

    /// Whether a foreach calls an agent's thread.
    fn calls_thread(&self, node: u16) -> bool {
        let tool = self.graph().node(node).kind.calls().and_then(|tool| self.graph().tool(tool));
        tool.is_some_and(|tool| tool.name() == THREAD_DIRECTIVE)
    }

    /// Makes calls of a foreach one after the other, until no item is left.
    async fn work(&self, at: &Activation, items: &[Value], calls: &Mutex<ItemCalls>, stops: bool) {
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
            let job = PendingCall { at, item: Some((index as u64, &items[index])) };
            let known = self.done(at.number, job.item.map(|(index, _)| index));
            let is_new = known.is_none();
            let mut made = known.unwrap_or_else(|| self.calls_before(at.number, job.item.map(|(index, _)| index)));
            if is_new {
                self.complete(&job, &mut slot, None, &mut made).await;
            }
            if !made.waits.is_empty() {
                let mut calls = calls();
                calls.waiting.push((index, std::mem::take(&mut made.waits)));
                calls.over |= self.facts.stop.is_set() || self.pending_calls.is_cut();
                continue;
            }
            let failed = made.failure.is_some();
            let result =
                (!failed).then(|| made.value.take().unwrap_or_else(|| slot.tool_caller.outcome().to_plain_value()));
            let laid =
                result.as_ref().filter(|_| is_new && self.is_kept).map(|result| self.push(&job, &made, result).0);
            if laid.is_some() {
                self.pending_calls.wake();
            }
            // A cached result involved no call, so nothing happens twice if it is looked up again.
            let waits = laid.filter(|_| self.durability == Durability::Sync && !made.cached);
            {
                let mut calls = calls();
                calls.calls += made.calls;
                calls.cached += usize::from(made.cached);
                if let Some(result) = result.as_ref().filter(|_| is_new && made.run.is_some()) {
                    calls.done.push(self.done_call(&job, &made, Some(result)));
                }
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
                calls.over |= is_stopped || self.pending_calls.is_cut();
                // The last results are written with the step.
                if calls.over || calls.next == items.len() {
                    return;
                }
            }
            // So after a crash, at most as many items are called again as were in progress at once.
            if let Some(place) = waits {
                self.pending_calls.durable(place).await;
                calls().over |= self.pending_calls.is_cut();
            }
            done += 1;
            if done.is_multiple_of(STEPS_A_LOOK) && began.elapsed() >= TURN {
                yield_now().await;
                began = std::time::Instant::now();
            }
        }
    }
}

/// Returns the rarely used parts of a call, if it has any.
fn more(id: Option<ItemId>, remote: Option<std::sync::Arc<str>>, answers: Vec<SignedAnswer>) -> Option<Box<More>> {
    let has_any = id.is_some() || remote.is_some() || !answers.is_empty();
    has_any.then(|| Box::new(More { id, remote, answers, ..More::default() }))
}

//! Visits: checks whether the engine can have written the record of a visit.

use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use graph_engine::activation::Activation;
use graph_engine::failure::{Category, Failure, ItemFailure};
use graph_engine::graph::{Asks, CompiledNode, CompiledTool, CompiledWait, Notes, Now};
use graph_engine::record::{Done, RecordedState, Visit, has_shape, recorded, reduced, said_edges, said_way};
use graph_engine::state::StateFields;
use graph_engine::step::{
    CallFacts, Env, Opened, Opening, Outcome, Planned, Settled, Way, element, failed, graph_of, is_computed,
    items_failed, nested_id, plan, plan_item, settle,
};
use graph_engine::tool_caller::Request;
use graph_model::name::ItemId;
use graph_model::program::{Executor, THREAD_DIRECTIVE};
use graph_model::secret::HIDDEN;
use graph_model::timestamp;
use graph_model::value::{AsView, Map, Value};

use crate::audit::failures::{Called, Prospects, SaidFailure};
use crate::audit::replayer::{Replayer, same};

/// The beginning of the runtime's warning about a cache entry that it does not use. No graph computes this warning.
const CACHE_WARNING: &str = "the cache entry ";

/// The outcome of a visit's calls, according to its record.
#[derive(Default)]
struct CallsOfVisit {
    /// Why they failed; `None` if they did not, or if the visit failed on their results.
    failure: Option<Failure>,
    /// The results of a foreach's calls.
    results: Vec<Value>,
    /// Whether the results are not recorded, so that the failure cannot be computed.
    unknown: bool,
    /// The warnings from planning the calls of a foreach, item by item.
    warnings: Vec<Vec<String>>,
    /// Whether the calls of a foreach were made one after the other.
    in_order: bool,
}

/// A clock that remembers whether a node asked for the time.
struct ReadingClock<'a> {
    recorded: SystemTime,
    asked: &'a AtomicBool,
}

impl ReadingClock<'_> {
    fn tell(&self) -> SystemTime {
        self.asked.store(true, Ordering::Relaxed);
        self.recorded
    }
}

impl Replayer<'_> {
    /// Computes a node's writes and edges, compares them with the journal, and returns where the node leads.
    ///
    /// `is_alone` is whether no other node is visited in its step.
    pub(super) fn visit(
        &self,
        visit: &Visit,
        activation: &Activation,
        at: SystemTime,
        is_alone: bool,
    ) -> Result<Way, String> {
        let node = self.code.node(activation.node);
        self.shape(visit, activation.node)?;
        let restored = self.with_done_result(visit);
        let visit = &*restored;
        if visit.cancelled {
            // Any visit may be cancelled. Whether something cancelled it shows when the step is folded.
            return Ok(Way::Cancelled);
        }
        let Some(state) = self.state.as_deref() else { return said_way(self.code, activation, visit) };
        let asked = AtomicBool::new(false);
        let clock = ReadingClock { recorded: visit.now.map_or(at, timestamp::from_unix_milliseconds), asked: &asked };
        let tell = || clock.tell();
        let now = Now::new(&tell);
        let proving = RecordedState::of_visit(self.code, state, activation.node, visit).proving();
        let env = Env::new(self.code, &self.position, &proving, activation, &now);
        let mut notes = Notes::default();
        let planned = plan(&env, &mut notes);
        let before = notes.take();
        if let Some(opened) = visit.opened.as_ref().filter(|opened| opened.pause.is_some()) {
            // Its place was checked with the shape of the step. A hook may suspend any visit.
            return Ok(Way::Waits(opened.clone()));
        }
        if let (Ok(Planned::Wait(opening)), Some(wait)) = (&planned, node.kind.wait()) {
            self.asks_for_time(visit, node, &asked)?;
            self.warned(visit, node, before, &CallsOfVisit::default(), Vec::new())?;
            return waits(visit, wait, opening.clone());
        }
        if let Some(opened) = &visit.opened {
            let makes_calls = matches!(planned, Ok(Planned::Call(_) | Planned::Each { .. }));
            if makes_calls && !opened.is_inside() && self.code.tool_may_ask(activation.node) {
                return Ok(Way::Waits(opened.clone()));
            }
            return match opened.is_inside() && makes_calls && self.may_wait_inside(activation.node) {
                true => Ok(Way::Waits(opened.clone())),
                false => Err(format!("node `{}` has waited, or does not wait", node.name)),
            };
        }
        let mut calls = match planned {
            Ok(Planned::Compute | Planned::Finish | Planned::Wait(_)) => CallsOfVisit::default(),
            Ok(Planned::Call(request)) => self.action(visit, activation.node, request, is_alone)?,
            Ok(Planned::Each { items, .. }) => self.each(visit, activation, state, &items)?,
            Err(failure) => self.not_planned(visit, activation.node, failure)?,
        };
        let way = self.settle(visit, &env, &mut calls, &mut notes)?;
        if reduced(self.code, notes.take_reduced().iter().map(|change| (change.key, &change.value))) != visit.reduced {
            return Err(format!("node `{}` sees another value of a channel after it wrote to it", node.name));
        }
        self.unproven.borrow_mut().extend(proving.missing());
        self.asks_for_time(visit, node, &asked)?;
        self.warned(visit, node, before, &calls, notes.take())?;
        Ok(way)
    }

    /// Fails unless a visit records the time that its node asks for, and no other.
    fn asks_for_time(&self, visit: &Visit, node: &CompiledNode, asked: &AtomicBool) -> Result<(), String> {
        if asked.load(Ordering::Relaxed) == visit.now.is_some() {
            return Ok(());
        }
        let what =
            if visit.now.is_some() { "has a time, and asks for no time" } else { "has no time, and asks for it" };
        Err(format!("node `{}` {what}", node.name))
    }

    /// Returns the visit with the result of its call that was recorded before, if the visit failed on it: it is recorded again
    /// only by a session that did not make the call.
    fn with_done_result<'v>(&self, visit: &'v Visit) -> Cow<'v, Visit> {
        let fails = visit.error.is_some() && visit.result.is_null();
        match self.done.get(&(visit.step, None)).filter(|_| fails) {
            Some(done) => {
                let mut visit = visit.clone();
                visit.result.clone_from(&done.result);
                Cow::Owned(visit)
            }
            None => Cow::Borrowed(visit),
        }
    }

    /// Fails unless a visit has only members that a visit of its node can have, and names the run that its call began.
    fn shape(&self, visit: &Visit, at: u16) -> Result<(), String> {
        has_shape(self.code, at, visit)?;
        if visit.cancelled || visit.opened.is_some() {
            return Ok(());
        }
        match self.code.asks(at) {
            // A computed id is known only from the plan.
            Asks::Once { tool } if !self.code.tool(tool).is_some_and(is_computed) => self.names_run(visit, tool, None),
            _ => Ok(()),
        }
    }

    /// Fails unless a visit names the run that its call began, and no run if the call began no run.
    fn names_run(&self, visit: &Visit, tool: u16, id: Option<&ItemId>) -> Result<(), String> {
        let graph = graph_of(self.machine, tool, id);
        let is_graph = graph.is_some() || self.code.tool(tool).is_some_and(|tool| tool.by == Executor::Graph);
        let limits = self.code.node_named(&visit.node).map(|node| self.code.node(node).limits).unwrap_or_default();
        let may_nest = self.sessions.last().is_some_and(|session| limits.depth_within(session.depth) > 0);
        let begins = may_nest && graph.is_some();
        let expected = begins.then(|| nested_id(&self.run, visit.step, None, visit.calls.max(1)));
        if is_graph && !begins && visit.error.is_none() {
            return Err(format!("node `{}` cannot run the graph that it calls", visit.node));
        }
        if visit.run == expected {
            return Ok(());
        }
        let expected = expected.map_or_else(|| "one that was begun".to_owned(), |run| format!("`{run}`"));
        Err(format!("the run inside node `{}` is not {expected}", visit.node))
    }

    /// Settles a visit as the engine does, and fails if the journal differs.
    fn settle(&self, visit: &Visit, env: &Env<'_>, calls: &mut CallsOfVisit, notes: &mut Notes) -> Result<Way, String> {
        let (code, node) = (self.code, self.code.node(env.at.node));
        let mut changes = Vec::new();
        let failure = match calls.unknown {
            true => visit.error.as_deref().map(|error| Box::new(Failure::permanent(error))),
            false => calls.failure.take().map(Box::new),
        };
        let asks = code.asks(env.at.node);
        let outcome = Outcome::of(asks, failure.as_deref(), visit.result.view(), &mut calls.results);
        // In the journal, secrets are cut out of a text.
        let scrub = |failure: &mut Failure| {
            if let Some(said) = &visit.error {
                failure.message.clone_from(said);
            }
        };
        let found = RefCell::new(None);
        let remember = |failure: &mut Failure| {
            *found.borrow_mut() = Some(failure.clone());
            scrub(failure);
        };
        let facts = CallFacts { calls: visit.calls, is_ended: false, scrub: &remember };
        let Settled { way, unfit } = settle(env, outcome, &facts, notes, &mut changes);
        match (&unfit, found.into_inner(), &visit.error) {
            (None, _, Some(_)) if failure.is_none() => {
                return Err(format!("node `{}` does not fail on what its calls returned", node.name));
            }
            (Some(_), Some(found), _) => self.same_failure(visit, &found)?,
            _ => {}
        }
        if way.is_fatal() {
            return Err(format!("node `{}` failed, and its edges cannot be followed then", node.name));
        }
        if way.is_suppressed() != visit.suppressed {
            return Err(format!("the failure of node `{}` leads elsewhere", node.name));
        }
        if way.is_timed_out() != visit.timed_out {
            return Err(format!("node `{}` received a signal, or none in time, and says otherwise", node.name));
        }
        if (way.ends_branch(), way.is_held()) != (visit.ends_branch, visit.held) {
            return Err(format!("the failure of node `{}` ends something else", node.name));
        }
        let written = recorded(code, &changes).map(|change| (code.keys[change.key].name.clone(), change.value.clone()));
        let written: Map<String, Value> = written.collect();
        if written != visit.changes {
            let names = written.keys().chain(visit.changes.keys());
            let different = names.into_iter().find(|name| written.get(*name) != visit.changes.get(*name));
            let key = different.map_or("", String::as_str);
            return Err(format!("node `{}` writes something else to `{key}`", node.name));
        }
        if *way.edges() != said_edges(code, env.at.node, visit) {
            return Err(format!("node `{}` leads along another edge", node.name));
        }
        Ok(way)
    }

    /// Fails unless a visit records this failure, which the graph itself makes and which is always permanent.
    fn same_failure(&self, visit: &Visit, found: &Failure) -> Result<(), String> {
        let said = visit.error.as_deref().unwrap_or_default();
        if visit.error.is_none() {
            return Err(fails(self.code.node(self.code.node_named(&visit.node).unwrap_or_default()), &found.message));
        }
        let is_hidden = !self.code.settings.secrets.is_empty() && said.contains(HIDDEN);
        if (said != found.message && !is_hidden) || visit.category.as_deref() != Some(Category::Permanent.name()) {
            return Err(format!("node `{}` fails in another way: {}", visit.node, found.message));
        }
        if visit.data.is_some() {
            return Err(format!("node `{}` fails by itself, and no tool says more of it", visit.node));
        }
        Ok(())
    }

    /// Reads the record of a visit that could not make its calls.
    fn not_planned(&self, visit: &Visit, at: u16, failure: Box<Failure>) -> Result<CallsOfVisit, String> {
        let node = self.code.node(at);
        self.same_failure(visit, &failure)?;
        self.given_up(visit, at, Category::Permanent)?;
        let says_one = !visit.result.is_null() || visit.run.is_some() || self.done.contains_key(&(visit.step, None));
        if says_one || !visit.items.is_empty() || visit.cached {
            return Err(format!("node `{}` makes no call: {}", node.name, failure.message));
        }
        Ok(CallsOfVisit { failure: Some(*failure), in_order: true, ..CallsOfVisit::default() })
    }

    /// Reads a visit's record of its call.
    fn action(&self, visit: &Visit, at: u16, mut request: Request, is_alone: bool) -> Result<CallsOfVisit, String> {
        let node = self.code.node(at);
        let done = self.done.get(&(visit.step, None));
        let tool = self.code.tool(request.tool).ok_or("there is no such tool")?;
        let calls = visit.calls.max(1);
        let prospects =
            self.prospects(&mut request, &Called { node, step: visit.step, item: None, calls: calls..=calls });
        let (denials, is_sure) = self.denials(&request);
        // A call that was denied begins no run.
        let is_denied = is_sure || visit.error.as_ref().is_some_and(|error| denials.contains(error));
        if is_computed(tool) && is_denied && visit.run.is_some() {
            return Err(format!("node `{}` was denied its call, and names a run", node.name));
        }
        if is_computed(tool) && !is_denied {
            self.names_run(visit, request.tool, request.id.as_ref())?;
        }
        if visit.cached && !self.may_be_kept(node, &request) {
            return Err(format!("what node `{}` returned is never kept, and it says that it was", node.name));
        }
        if let Some(done) = done {
            let is_same = (visit.calls.max(1), &visit.run, visit.cached) == (done.calls.max(1), &done.run, done.cached);
            if visit.result != done.result || !is_same {
                return Err(format!("node `{}` returned something else than when its call was done", visit.node));
            }
        }
        let Some(error) = &visit.error else {
            may_succeed(&prospects, &node.name)?;
            self.returns(request.tool, tool, &visit.result)?;
            return Ok(CallsOfVisit::default());
        };
        if done.is_some() || visit.cached || !visit.result.is_null() {
            // The visit failed on the result of its call.
            may_succeed(&prospects, &node.name)?;
            self.returns(request.tool, tool, &visit.result)?;
            let is_kept = tool.by != Executor::Program || !tool.typed || is_thread(tool, &request);
            let is_known = is_kept || visit.cached || (done.is_some() && !is_alone);
            if !is_known && !visit.result.is_null() && self.code.settings.secrets.is_empty() {
                return Err(format!(
                    "node `{}` failed, and what its call returned is not written down then",
                    node.name
                ));
            }
            return Ok(CallsOfVisit::default());
        }
        // The data of a failure is recorded only if the edges saw it.
        let data = visit.suppressed.then(|| visit.data.as_ref().map(Cow::Borrowed));
        let said = SaidFailure { error, category: visit.category.as_deref(), data };
        self.may_fail(&prospects, &said, &node.name)?;
        let category = visit.category.as_deref().and_then(Category::named).unwrap_or(Category::Permanent);
        let is_own = category == Category::Permanent && visit.data.is_none();
        if !(is_own && self.code.may_fail_to_route(at, error)) {
            self.given_up(visit, at, category)?;
        }
        let failure = Failure { data: visit.data.clone(), ..Failure::of(category, error) };
        Ok(CallsOfVisit { failure: Some(failure), ..CallsOfVisit::default() })
    }

    /// Fails if the node's own policy repeats a call that failed in this way.
    fn given_up(&self, visit: &Visit, at: u16, category: Category) -> Result<(), String> {
        match self.code.calls_again(at, category, visit.calls.max(1)) {
            Some(retry) => {
                Err(format!("node `{}` makes {} calls before it gives up", self.code.node(at).name, retry.attempts))
            }
            None => Ok(()),
        }
    }

    /// Fails unless a call can have failed in this way.
    fn may_fail(&self, prospects: &Prospects, said: &SaidFailure<'_>, node: &str) -> Result<(), String> {
        if prospects.may_fail(said, !self.code.settings.secrets.is_empty()) {
            return Ok(());
        }
        Err(match prospects.sure() {
            Some(failure) => format!("the call of node `{node}` fails in another way: {failure}"),
            None => format!("the call of node `{node}` does not fail so"),
        })
    }

    /// Whether a call's result can be in the cache: the call is of a tool, and its result has no secrets.
    fn may_be_kept(&self, node: &CompiledNode, request: &Request) -> bool {
        let Some(tool) = self.code.tool(request.tool) else { return false };
        let is_tool =
            tool.by == Executor::Program && graph_of(self.machine, request.tool, request.id.as_ref()).is_none();
        node.cached && is_tool && !self.code.settings.secrets.tools.contains_key(&request.tool)
    }

    /// Fails unless a call of a tool can return a value that the engine accepts.
    fn returns(&self, index: u16, tool: &CompiledTool, value: &Value) -> Result<(), String> {
        // The result of a graph is proven by its own journal, and that of an item by its signature.
        if tool.by != Executor::Program || (!self.code.settings.secrets.is_empty() && has_hidden(value)) {
            return Ok(());
        }
        let refuse = || {
            Err(format!("`{}` returns no such value as {}", tool.name(), graph_model::value::describe(value.view())))
        };
        if failed(!tool.typed || tool.nests, value.view()).is_some() {
            return refuse();
        }
        if tool.name() == THREAD_DIRECTIVE {
            return Ok(());
        }
        if !tool.typed {
            return if value.is_object() { Ok(()) } else { refuse() };
        }
        let mut tool_caller = self.tool_caller.borrow_mut();
        match tool_caller.restore(index, value.clone()) {
            Ok(()) if tool_caller.outcome().to_plain_value() == *value && tool.returns(value.view()).is_ok() => Ok(()),
            _ => refuse(),
        }
    }

    /// Reads a visit's record of the calls of a foreach.
    fn each(
        &self,
        visit: &Visit,
        activation: &Activation,
        state: &dyn StateFields,
        items: &[Value],
    ) -> Result<CallsOfVisit, String> {
        let node = self.code.node(activation.node);
        let refuse = |what: &str| Err(format!("node `{}` {what}", node.name));
        let Asks::Each { tool, width, collects } = self.code.asks(activation.node) else {
            return refuse("does not go over a list");
        };
        let is_mended = visit.error.is_some() && !visit.suppressed;
        let collected = match collects.map(|key| visit.changes.get(&self.code.keys[key].name)) {
            Some(Some(Value::Array(list))) if list.len() == items.len() => Some(list.clone()),
            Some(None) if is_mended => None,
            Some(_) => return refuse("collects something else than a value for each of its items"),
            None => None,
        };
        let count = visit.items.len();
        let failure = match (visit.items.first(), &visit.error) {
            (Some(_), None) => return refuse("names items that failed, and did not fail"),
            (None, _) => None,
            (Some(ItemFailure { item, error, .. }), Some(said)) => {
                if *said != items_failed(*item, error, count) {
                    return refuse("says something else of its failure than of its items");
                }
                let category = visit.category.as_deref().and_then(Category::named).unwrap_or(Category::Permanent);
                self.given_up(visit, activation.node, category)?;
                Some(Failure::of(category, said))
            }
        };
        let is_sorted = visit.items.windows(2).all(|pair| pair[0].item < pair[1].item);
        if !is_sorted || visit.items.last().is_some_and(|last| last.item >= items.len() as u64) {
            return refuse("names items that its list has not, or not in their order");
        }
        if visit.cached && (count > 0 || items.is_empty()) {
            return refuse("was not answered from the cache");
        }
        if items.is_empty() && visit.calls > 0 {
            return refuse("has nothing to call for");
        }
        let mut warnings = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let place = collected.as_ref().and_then(|list| list.get(index));
            warnings.push(self.item(visit, activation, tool, state, (index, item), place)?);
        }
        self.counts(visit, items.len())?;
        let unknown = visit.error.is_some() && count == 0 && collects.is_some() && collected.is_none();
        if unknown
            && !(visit.category.as_deref() == Some(Category::Permanent.name())
                && self.code.may_fail_to_route(activation.node, visit.error.as_deref().unwrap_or_default()))
        {
            return refuse("failed, and none of its items did");
        }
        Ok(CallsOfVisit { failure, results: collected.unwrap_or_default(), unknown, warnings, in_order: width <= 1 })
    }

    /// Fails unless the call for an item can have had the outcome that the visit records. Returns the warnings from
    /// planning it.
    fn item(
        &self,
        visit: &Visit,
        activation: &Activation,
        index_of_tool: u16,
        state: &dyn StateFields,
        (index, item): (usize, &Value),
        collected: Option<&Value>,
    ) -> Result<Vec<String>, String> {
        let node = self.code.node(activation.node);
        let tool = self.code.tool(index_of_tool).ok_or("there is no such tool")?;
        let refuse = |what: &str| Err(format!("item {index} of node `{}` {what}", node.name));
        // Each call receives a time of its own, which is not recorded.
        let asked = AtomicBool::new(false);
        let clock = ReadingClock { recorded: SystemTime::UNIX_EPOCH, asked: &asked };
        let tell = || clock.tell();
        let now = Now::new(&tell);
        let env = Env::new(self.code, &self.position, state, activation, &now);
        let mut notes = Notes::default();
        let planned = plan_item(&env, item, &mut notes);
        let failed = visit.items.iter().find(|failed| usize::try_from(failed.item).ok() == Some(index));
        let done = self.done.get(&(visit.step, Some(index as u64)));
        if !asked.load(Ordering::Relaxed) {
            let prospects = match planned {
                Ok(mut request) => {
                    if (visit.cached || done.is_some_and(|done| done.cached)) && !self.may_be_kept(node, &request) {
                        return refuse("returns what is never kept, and it says that it was");
                    }
                    let calls = 1..=visit.calls.max(1);
                    self.prospects(&mut request, &Called { node, step: visit.step, item: Some(index as u64), calls })
                }
                Err(failure) => Prospects::only([failure.message]),
            };
            let name = format!("{}` for item `{index}", node.name);
            match failed {
                None => may_succeed(&prospects, &name)?,
                Some(failed) => {
                    let is_first = visit.items.first().is_some_and(|first| first.item == failed.item);
                    let category = visit.category.as_deref().filter(|_| is_first);
                    let data = collected.map(seen_besides);
                    self.may_fail(&prospects, &SaidFailure { error: &failed.error, category, data }, &name)?;
                }
            }
        }
        match (failed, collected) {
            (Some(_), _) if done.is_some_and(|done| done.failure.is_none()) => {
                return refuse("failed, and its call was done before");
            }
            (failed, _) if done.is_some_and(|done| !is_kept_failure(done, failed)) => {
                return refuse("failed otherwise when its call was done");
            }
            (Some(failed), Some(value)) => {
                let says = |name: &str, text: &str| value.get(name).and_then(Value::as_str) == Some(text);
                if !says("status", "error") || !says("error", &failed.error) {
                    return refuse("has something else in its place than its failure");
                }
            }
            (None, Some(value)) => {
                let is_thread = tool.name() == THREAD_DIRECTIVE;
                if !is_thread {
                    self.returns(index_of_tool, tool, value)?;
                }
                let was = done.map(|done| if is_thread { element(done.result.clone()) } else { done.result.clone() });
                if was.is_some_and(|was| was != *value) {
                    let node = &visit.node;
                    return Err(format!("node `{node}` returned something else than when its call was done"));
                }
            }
            (_, None) => {}
        }
        if visit.cached && done.is_some_and(|done| !done.cached) {
            return refuse("was not answered from the cache");
        }
        Ok(notes.take())
    }

    /// Fails unless the number of calls that a foreach counts agrees with the calls that were done before.
    fn counts(&self, visit: &Visit, items: usize) -> Result<(), String> {
        let done = self.done.values().filter(|done| done.step == visit.step);
        let (mut known, mut again) = (0, 0);
        for done in done {
            known += 1;
            again += done.calls.max(1) - 1;
        }
        let counted = visit.calls.max(1) - 1;
        if counted < again || (known == items && counted != again) {
            return Err(format!("node `{}` counts other calls than those that were done", visit.node));
        }
        Ok(())
    }

    /// Fails unless a visit has the warnings that the graph computes.
    fn warned(
        &self,
        visit: &Visit,
        node: &CompiledNode,
        before: Vec<String>,
        calls: &CallsOfVisit,
        behind: Vec<String>,
    ) -> Result<(), String> {
        if visit.warnings.is_empty()
            && before.is_empty()
            && behind.is_empty()
            && calls.warnings.iter().all(Vec::is_empty)
        {
            return Ok(());
        }
        // Warnings about the cache do not come from the graph.
        let said = visit.warnings.iter().filter(|text| !(node.cached && text.starts_with(CACHE_WARNING)));
        let mut said: Vec<&String> = said.collect();
        let mut between: Vec<&String> = calls.warnings.iter().flatten().collect();
        let last = said.len().saturating_sub(behind.len());
        if !calls.in_order && before.len() <= last {
            // Concurrent calls finish in any order.
            said[before.len()..last].sort_unstable();
            between.sort_unstable();
        }
        let expected = before.iter().chain(between).chain(&behind);
        if said.into_iter().eq(expected) { Ok(()) } else { Err(format!("node `{}` has other warnings", node.name)) }
    }

    /// Fails unless a completed call can have had the outcome that the record states.
    pub(super) fn call_done(&self, done: &Done, activation: &Activation) -> Result<(), String> {
        let node = self.code.node(activation.node);
        same("node that makes a call", done.node.as_str(), node.name.as_str())?;
        let refuse = |what: &str| Err(format!("node `{}` {what}", node.name));
        let asks = self.code.asks(activation.node);
        let (is_each, Some(called)) = (asks.is_each(), asks.tool()) else { return refuse("makes no such call") };
        // The only call of a step is recorded with the step.
        if is_each != done.item.is_some() || (!is_each && self.position.frontier.len() == 1) {
            return refuse("makes no such call");
        }
        if done.cached && !node.cached {
            return Err(format!("what node `{}` returned is not to be cached, and it says that it was", node.name));
        }
        if done.calls == 1 || (done.cached && done.calls > 0) || (is_each && done.now.is_some()) {
            return refuse("says of its call what is not written down");
        }
        let tool = self.code.tool(called).ok_or("there is no such tool")?;
        let is_kept = is_each && !self.code.stops_at_failure(activation.node) && self.may_wait_inside(activation.node);
        if done.failure.is_some() && !(is_kept && done.result.is_null()) {
            return refuse("keeps a failure of a call that is made again");
        }
        let begun = nested_id(&self.run, done.step, done.item, done.calls.max(1));
        // The run of a computed id is checked with the visit.
        let is_named = match &done.run {
            Some(run) => *run == begun && (tool.by == Executor::Graph || is_computed(tool)),
            // A call may fail before its run begins.
            None => tool.by != Executor::Graph || done.failure.is_some(),
        };
        if !is_named {
            return refuse("names another run than its call begins");
        }
        let Some(state) = self.state.as_deref() else { return Ok(()) };
        if done.failure.is_none() {
            self.returns(called, tool, &done.result)?;
        }
        let Some(item) = done.item else { return self.succeeds_alone(done, activation, state) };
        let length = *self.lengths.borrow_mut().entry(done.step).or_insert_with(|| self.length(activation, state));
        if length.is_none_or(|length| usize::try_from(item).is_ok_and(|item| item < length)) {
            Ok(())
        } else {
            refuse("makes a call for an item that its list has not")
        }
    }

    /// Fails if the one call of a visit is recorded as done and cannot succeed.
    fn succeeds_alone(&self, done: &Done, activation: &Activation, state: &dyn StateFields) -> Result<(), String> {
        let node = self.code.node(activation.node);
        let asked = AtomicBool::new(false);
        let clock = ReadingClock {
            recorded: done.now.map_or(SystemTime::UNIX_EPOCH, timestamp::from_unix_milliseconds),
            asked: &asked,
        };
        let tell = || clock.tell();
        let now = Now::new(&tell);
        let env = Env::new(self.code, &self.position, state, activation, &now);
        let planned = plan(&env, &mut Notes::default());
        if asked.load(Ordering::Relaxed) != done.now.is_some() {
            return Err(format!(
                "the call of node `{}` has a time and asks for no time, or asks for it and has no time",
                node.name
            ));
        }
        match planned {
            Ok(Planned::Call(mut request)) => {
                let calls = done.calls.max(1)..=done.calls.max(1);
                let called = Called { node, step: done.step, item: None, calls };
                if done.cached && !self.may_be_kept(node, &request) {
                    return Err(format!("what node `{}` returned is never kept, and it says that it was", node.name));
                }
                may_succeed(&self.prospects(&mut request, &called), &node.name)
            }
            Ok(_) => Err(format!("node `{}` makes no call", node.name)),
            Err(failure) => Err(fails(node, &failure.message)),
        }
    }

    /// Returns how many items a foreach goes over; `None` if that depends on the time.
    fn length(&self, activation: &Activation, state: &dyn StateFields) -> Option<usize> {
        let asked = AtomicBool::new(false);
        let clock = ReadingClock { recorded: SystemTime::UNIX_EPOCH, asked: &asked };
        let tell = || clock.tell();
        let now = Now::new(&tell);
        let env = Env::new(self.code, &self.position, state, activation, &now);
        let length = match plan(&env, &mut Notes::default()) {
            Ok(Planned::Each { items, .. }) => items.len(),
            _ => 0,
        };
        (!asked.load(Ordering::Relaxed)).then_some(length)
    }
}

/// Whether a failure that was kept while its visit waited for nested runs is the one that the visit records.
fn is_kept_failure(done: &Done, failed: Option<&ItemFailure>) -> bool {
    done.failure.as_ref().map(|failure| failure.error.as_str()) == failed.map(|failed| failed.error.as_str())
}

/// Returns where a visit leads whose node waits. Fails unless the visit does.
fn waits(visit: &Visit, wait: &CompiledWait, opening: Opening) -> Result<Way, String> {
    let opened = visit.opened.as_ref().ok_or_else(|| format!("node `{}` waits before it is made", visit.node))?;
    let again = Opened::new(wait, opening, opened.at).behind(opened.before);
    if *opened != again {
        let other = if opened.payload == again.payload { "waits until another time" } else { "asks something else" };
        return Err(format!("node `{}` {other}", visit.node));
    }
    Ok(Way::Waits(again))
}

/// Fails if a call that succeeded cannot succeed.
fn may_succeed(prospects: &Prospects, node: &str) -> Result<(), String> {
    if prospects.succeeds {
        return Ok(());
    }
    Err(format!("the call of node `{node}` fails: {}", prospects.sure().unwrap_or("its inputs do not fit")))
}

fn fails(node: &CompiledNode, message: &str) -> String {
    format!("node `{}` fails: {message}", node.name)
}

/// Returns the members of a failed item's value other than its status and error.
fn seen_besides(place: &Value) -> Option<Cow<'_, Value>> {
    let Value::Object(map) = place else { return None };
    let rest: Map<String, Value> = map
        .iter()
        .filter(|(name, _)| !matches!(name.as_str(), "status" | "error"))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    (!rest.is_empty()).then(|| Cow::Owned(Value::Object(rest)))
}

fn is_thread(tool: &CompiledTool, request: &Request) -> bool {
    request.id.as_ref().or(tool.id.as_ref()).is_some_and(|id| id.as_str() == THREAD_DIRECTIVE)
}

/// Whether a secret was cut out of a text in a value.
fn has_hidden(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains(HIDDEN),
        Value::Array(list) => list.iter().any(has_hidden),
        Value::Object(map) => map.iter().any(|(name, value)| name.contains(HIDDEN) || has_hidden(value)),
        _ => false,
    }
}

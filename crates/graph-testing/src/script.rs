//! Scripts: what tools answer in a test, and the calls that were made of them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use graph_compiler::graph::TypedTool;
use graph_model::name::ItemId;
use graph_model::program::{ItemType, Verb};
use graph_runtime::dynamic::{ToolFuture, Tools};
use graph_runtime::{ActionError, BoxFuture, Call, Category, Map, PerformItems, ReducerError, RunId, Value};
use serde_json::json;

use crate::subset::is_subset;

/// The most that a message shows of the parameters of a call, in characters.
const MOST_SHOWN: usize = 600;

/// The reply of a scripted answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// The tool returns this value. For a graph that is replaced, it is the output of the graph.
    Returns(Value),
    /// The tool fails.
    Fails(ScriptedFailure),
    /// The tool asks people, and shows them this value. It is called again when they have answered.
    Interrupts(Value),
}

/// A failure of a scripted tool.
#[derive(Debug, Clone, PartialEq)]
pub struct ScriptedFailure {
    /// The error message.
    pub message: String,
    /// How the failure is to be treated; `None` if that is derived from what it says, as for a tool that does not know it.
    pub category: Option<Category>,
    /// The error code of whatever the tool called.
    pub code: Option<String>,
    /// The HTTP status that the tool received.
    pub status: Option<u16>,
    /// The time for which whatever the tool called asks to be left alone.
    pub retry_after: Option<Duration>,
    /// The data that the tool got before it failed.
    pub data: Option<Value>,
}

impl ScriptedFailure {
    /// A failure of a category.
    pub fn new(category: Category, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { message, category: Some(category), code: None, status: None, retry_after: None, data: None }
    }

    fn to_error(&self) -> ActionError {
        let error = match self.category {
            Some(category) => ActionError::new(category, &*self.message),
            None => ActionError::unclassified(&*self.message),
        };
        let error = self.code.iter().fold(error, ActionError::with_code);
        let error = self.status.into_iter().fold(error, ActionError::with_status);
        let error = self.retry_after.into_iter().fold(error, ActionError::with_retry_after);
        self.data.iter().cloned().fold(error, ActionError::with_data)
    }
}

/// How many calls an answer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Times {
    /// For this many calls.
    Exactly(u32),
    /// For any number of calls, and at least one.
    Any,
}

/// A scripted answer of a tool.
///
/// ```
/// use std::time::Duration;
///
/// use graph_runtime::Category;
/// use graph_testing::{ScriptedAnswer, ScriptedFailure, Times};
/// use serde_json::json;
///
/// let busy = ScriptedFailure::new(Category::Transient, "the payment service does not answer");
/// let answers = [
///     ScriptedAnswer::fails(busy).delayed(Duration::from_secs(30)).times(Times::Exactly(2)),
///     ScriptedAnswer::returns(json!({ "receipt": "r-1" })),
/// ];
/// assert_eq!(answers[0].times, Times::Exactly(2));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct ScriptedAnswer {
    /// The reply.
    pub reply: Reply,
    /// The parameters of the calls that it is for: each of these has this value; `None` if it is for any call.
    pub with: Option<Map<String, Value>>,
    /// How many calls it is for.
    pub times: Times,
    /// How long the tool takes.
    pub delay: Duration,
}

impl ScriptedAnswer {
    fn of(reply: Reply) -> Self {
        Self { reply, with: None, times: Times::Exactly(1), delay: Duration::ZERO }
    }

    /// An answer to one call that returns a value.
    pub fn returns(value: Value) -> Self {
        Self::of(Reply::Returns(value))
    }

    /// An answer to one call that fails.
    pub fn fails(failure: ScriptedFailure) -> Self {
        Self::of(Reply::Fails(failure))
    }

    /// An answer to one call that asks people.
    pub fn interrupts(payload: Value) -> Self {
        Self::of(Reply::Interrupts(payload))
    }

    /// Restricts it to calls whose parameters have these values.
    #[must_use]
    pub fn with(self, params: Map<String, Value>) -> Self {
        Self { with: Some(params), ..self }
    }

    /// Sets how many calls it is for.
    #[must_use]
    pub fn times(self, times: Times) -> Self {
        Self { times, ..self }
    }

    /// Sets how long the tool takes.
    #[must_use]
    pub fn delayed(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }

    fn is_for(&self, used: u32, params: &Map<String, Value>) -> bool {
        let is_left = match self.times {
            Times::Exactly(times) => used < times,
            Times::Any => true,
        };
        let fits = |(name, value): (&String, &Value)| is_subset(value, params.get(name).unwrap_or(&Value::Null));
        is_left && self.with.as_ref().is_none_or(|with| with.iter().all(fits))
    }
}

/// A call that was made of a scripted tool.
#[derive(Debug, Clone, PartialEq)]
pub struct ScriptedCall {
    /// The tool's id.
    pub tool: String,
    /// The run; `None` if the tool does not know it: an operation on items, a reducer.
    pub run: Option<RunId>,
    /// The node; empty if the tool does not know it.
    pub node: String,
    /// The hook that made the call, if one did.
    pub hook: Option<String>,
    /// The number of the step, from 1; 0 if the tool does not know it.
    pub step: u64,
    /// The number of this attempt at the call, from 1.
    pub attempt: u32,
    /// The parameters.
    pub params: Map<String, Value>,
    /// Whether the call was made before, and a crash made the run forget it. It gets the answer that it had then.
    pub is_repeated: bool,
    /// Whether no answer was scripted for it.
    pub is_unscripted: bool,
}

impl ScriptedCall {
    /// Returns the parameters as a message shows them.
    pub fn shown_params(&self) -> String {
        let text = Value::Object(self.params.clone()).to_string();
        match text.char_indices().nth(MOST_SHOWN) {
            Some((end, _)) => format!("{}…", &text[..end]),
            None => text,
        }
    }
}

/// An answer that was used less often than its script says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnusedAnswer {
    /// The tool's id.
    pub tool: String,
    /// The index of the answer in the script of the tool, from 0.
    pub answer: usize,
    /// How often it was used.
    pub used: u32,
    /// How often it should have been used at least.
    pub expected: u32,
}

/// The identity of a call: its idempotency key, how many answers of people it has, how often the run had waited before, and how often
/// it was made since the process began.
type ScriptedCallKey = (String, usize, u32, u32);

#[derive(Debug, Default)]
struct ScriptState {
    scripts: BTreeMap<String, Vec<ScriptedAnswer>>,
    /// The graphs among the tools.
    graphs: BTreeSet<String>,
    /// How often each answer was used.
    used: HashMap<(String, usize), u32>,
    calls: Vec<ScriptedCall>,
    /// The answers that calls had, for calls that are made again after a crash.
    given: HashMap<ScriptedCallKey, Option<ScriptedAnswer>>,
    /// How often the run has waited.
    waited: u32,
    /// How often each call was made since the process began.
    made: HashMap<(String, usize), u32>,
}

/// Tools that answer as a script says, and keep the calls that were made of them. They call nothing. Clones share the script.
///
/// The answers of a tool are in order: a call gets the first one that is for its parameters and is not used up. A call without an
/// answer fails, and is among the [calls](Self::calls) as unscripted.
///
/// ```
/// use graph_runtime::dynamic::Tools;
/// use graph_testing::{ScriptedAnswer, ScriptedTools};
/// use serde_json::json;
///
/// let tools = ScriptedTools::new().tool("shop/ship", [ScriptedAnswer::returns(json!({ "parcel": "p-1" }))]);
/// assert!(tools.calls().is_empty());
/// assert_eq!(tools.unused()[0].tool, "shop/ship");
/// ```
#[derive(Clone, Default)]
pub struct ScriptedTools {
    state: Arc<Mutex<ScriptState>>,
}

impl ScriptedTools {
    /// No tool has a script.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the answers of a tool, of a reducer, or of an operation on items by its [key](item_key).
    #[must_use]
    pub fn tool(self, id: impl Into<String>, answers: impl IntoIterator<Item = ScriptedAnswer>) -> Self {
        self.state().scripts.insert(id.into(), answers.into_iter().collect());
        self
    }

    /// Sets the answers of a graph, which does not run then: its calls get these outputs.
    #[must_use]
    pub fn graph(self, id: impl Into<String>, answers: impl IntoIterator<Item = ScriptedAnswer>) -> Self {
        let id = id.into();
        self.state().graphs.insert(id.clone());
        self.tool(id, answers)
    }

    /// Returns the calls that were made, in their order.
    pub fn calls(&self) -> Vec<ScriptedCall> {
        self.state().calls.clone()
    }

    /// Returns the answers that were used less often than the script says.
    pub fn unused(&self) -> Vec<UnusedAnswer> {
        let state = self.state();
        let mut unused = Vec::new();
        for (tool, answers) in &state.scripts {
            for (answer, scripted) in answers.iter().enumerate() {
                let used = state.used.get(&(tool.clone(), answer)).copied().unwrap_or_default();
                let expected = match scripted.times {
                    Times::Exactly(times) => times,
                    Times::Any => 1,
                };
                if used < expected {
                    unused.push(UnusedAnswer { tool: tool.clone(), answer, used, expected });
                }
            }
        }
        unused
    }

    /// Begins another process after one that died: a call that was made before is a repeated one, and gets the answer that it had.
    /// So a scripted tool is idempotent, as tools that have effects must be.
    pub fn restart(&self) {
        self.state().made.clear();
    }

    /// Begins another process after one that left a run that waits: its calls are new ones, also if they have the key of a call
    /// before, as that of a visit that a hook suspended.
    pub fn resume(&self) {
        let mut state = self.state();
        state.made.clear();
        state.waited += 1;
    }

    /// Forgets the script and the calls, and takes over those of `other`.
    pub(crate) fn replace_by(&self, other: Self) {
        let other = std::mem::take(&mut *other.state());
        *self.state() = other;
    }

    /// Whether a tool has a script.
    pub fn has(&self, id: &str) -> bool {
        self.state().scripts.contains_key(id)
    }

    fn state(&self) -> MutexGuard<'_, ScriptState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a call, and returns its answer.
    fn take(&self, mut call: ScriptedCall, identity: Option<(String, usize)>) -> Result<ScriptReply, String> {
        let mut state = self.state();
        let waited = state.waited;
        let identity = identity.map(|(key, answers)| {
            let made = state.made.entry((key.clone(), answers)).or_default();
            *made += 1;
            (key, answers, waited, *made)
        });
        let is_graph = state.graphs.contains(&call.tool);
        let before = identity.as_ref().and_then(|identity| state.given.get(identity).cloned());
        call.is_repeated = before.is_some();
        let answer = before.unwrap_or_else(|| state.next(&call.tool, &call.params));
        if let Some(identity) = identity {
            state.given.insert(identity, answer.clone());
        }
        call.is_unscripted = answer.is_none();
        let message = format!("the script of `{}` has no answer for this call", call.tool);
        state.calls.push(call);
        answer.map(|answer| ScriptReply { answer, is_graph }).ok_or(message)
    }
}

impl ScriptState {
    /// Returns the next answer of a tool for a call, which is used then.
    fn next(&mut self, tool: &str, params: &Map<String, Value>) -> Option<ScriptedAnswer> {
        let answers = self.scripts.get(tool)?;
        let used = |at| self.used.get(&(tool.to_owned(), at)).copied().unwrap_or_default();
        let at = (0..answers.len()).find(|&at| answers[at].is_for(used(at), params))?;
        let answer = answers[at].clone();
        *self.used.entry((tool.to_owned(), at)).or_default() += 1;
        Some(answer)
    }
}

/// An answer that a call got.
struct ScriptReply {
    answer: ScriptedAnswer,
    /// Whether the call is one of a graph that is replaced.
    is_graph: bool,
}

impl ScriptReply {
    async fn reply(self) -> Result<Value, ActionError> {
        if !self.answer.delay.is_zero() {
            tokio::time::sleep(self.answer.delay).await;
        }
        match self.answer.reply {
            Reply::Returns(output) if self.is_graph => Ok(json!({
                "success": true, "status": "completed", "graph_run_id": "replaced", "steps": 0, "state": {}, "output": output,
            })),
            Reply::Returns(value) => Ok(value),
            Reply::Fails(failure) => Err(failure.to_error()),
            Reply::Interrupts(payload) => Err(ActionError::interrupt(payload)),
        }
    }
}

/// Returns the name of an operation on items in a script: the item's id, or for all items of a type the verb and the type, as in
/// `fetch knowledge`.
pub fn item_key(verb: Verb, item: ItemType, id: Option<&str>) -> String {
    id.map_or_else(|| format!("{} {}", verb.name(), item.name()), str::to_owned)
}

impl Tools for ScriptedTools {
    fn perform<'a>(&'a self, call: &'a Call, _: &'a TypedTool, params: Map<String, Value>) -> ToolFuture<'a> {
        let recorded = ScriptedCall {
            tool: call.tool().to_owned(),
            run: Some(call.run_id().clone()),
            node: call.node().to_owned(),
            hook: call.hook().map(str::to_owned),
            step: call.step(),
            attempt: call.attempt(),
            params,
            is_repeated: false,
            is_unscripted: false,
        };
        // The key has the run, the step, the node, the item and the hook; a hook may call several tools.
        let key = format!("{} {}", call.idempotency_key(), call.tool());
        let answered = self.take(recorded, Some((key, call.answers().len())));
        Box::pin(async move { answered.map_err(ActionError::permanent)?.reply().await })
    }

    fn replaces(&self, id: &str) -> bool {
        self.state().graphs.contains(id)
    }

    fn reduce(&self, id: &str, value: Option<Value>, write: &Value) -> Option<Result<Value, ReducerError>> {
        let params =
            Map::from_iter([("value".to_owned(), value.unwrap_or_default()), ("write".to_owned(), write.clone())]);
        let mut state = self.state();
        // A reducer may be called more than once for a write, so its answers are not used up.
        let answers = state.scripts.get(id)?;
        let found = answers.iter().position(|answer| answer.is_for(0, &params));
        let answer = found.map(|at| answers[at].clone());
        found.into_iter().for_each(|at| *state.used.entry((id.to_owned(), at)).or_default() += 1);
        let message = format!("the script of the reducer `{id}` has no answer for this value and write");
        state.calls.push(of_items(id.to_owned(), params, answer.is_none()));
        Some(match answer.map(|answer| answer.reply) {
            Some(Reply::Returns(value)) => Ok(value),
            Some(Reply::Fails(failure)) => Err(ReducerError::new(failure.message)),
            Some(Reply::Interrupts(_)) | None => Err(ReducerError::new(message)),
        })
    }

    fn reduces(&self, id: &str) -> bool {
        self.has(id)
    }
}

/// A call whose run and node are not known.
fn of_items(tool: String, params: Map<String, Value>, is_unscripted: bool) -> ScriptedCall {
    let (node, hook, run) = (String::new(), None, None);
    ScriptedCall { tool, run, node, hook, step: 0, attempt: 1, params, is_repeated: false, is_unscripted }
}

impl PerformItems for ScriptedTools {
    fn perform<'a>(
        &'a self,
        verb: Verb,
        item: ItemType,
        id: Option<&'a ItemId>,
        params: Map<String, Value>,
    ) -> BoxFuture<'a, Result<Value, ActionError>> {
        let key = item_key(verb, item, id.map(ItemId::as_str));
        let answered = self.take(of_items(key, params, false), None);
        Box::pin(async move { answered.map_err(ActionError::permanent)?.reply().await })
    }
}

impl fmt::Debug for ScriptedTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.state().scripts.keys()).finish()
    }
}

/// Tools of which some answer as a script says, in place of the real ones.
#[derive(Debug)]
pub struct MockedTools<T> {
    scripted: ScriptedTools,
    real: T,
}

impl<T> MockedTools<T> {
    /// Replaces those of `real` that have a script.
    pub fn new(scripted: ScriptedTools, real: T) -> Self {
        Self { scripted, real }
    }
}

impl<T: Tools> Tools for MockedTools<T> {
    fn perform<'a>(&'a self, call: &'a Call, row: &'a TypedTool, params: Map<String, Value>) -> ToolFuture<'a> {
        match self.scripted.has(call.tool()) {
            true => Tools::perform(&self.scripted, call, row, params),
            false => self.real.perform(call, row, params),
        }
    }

    fn performs(&self, row: &TypedTool) -> bool {
        self.scripted.has(&row.id) || self.real.performs(row)
    }

    fn replaces(&self, id: &str) -> bool {
        self.scripted.replaces(id)
    }

    fn reduce(&self, id: &str, value: Option<Value>, write: &Value) -> Option<Result<Value, ReducerError>> {
        match self.scripted.has(id) {
            true => self.scripted.reduce(id, value, write),
            false => self.real.reduce(id, value, write),
        }
    }

    fn reduces(&self, id: &str) -> bool {
        self.scripted.has(id) || self.real.reduces(id)
    }
}

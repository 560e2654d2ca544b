//! Scripts: the answers of a graph's tools, and the expected results.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use graph_compiler::graph::TypedTool;
use graph_runtime::dynamic::{ToolFuture, Toolbox, Tools};
use graph_runtime::threads::{Thread, ThreadFuture};
use graph_runtime::{
    ActionError, AsView, Call, Category, Dispatch, FromValue, Map, ReducerError, RuntimeCall, RuntimeTools, Threads,
    Value,
};
use indexmap::IndexMap;
use serde::Deserialize;
use serde_json::json;

/// The cases of a graph.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Script {
    pub(crate) cases: Vec<Case>,
}

impl Script {
    /// Reads a script.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        serde_yaml::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
    }
}

/// A run with its answers and its expected result.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case {
    /// The claim that the case proves.
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) inputs: Map<String, Value>,
    /// The runtime's grants; by default everything.
    #[serde(default)]
    pub(crate) grants: Option<Vec<String>>,
    /// The answers of each tool.
    #[serde(default)]
    pub(crate) tools: IndexMap<String, Vec<Answer>>,
    /// The registry's answers for each thread, one after the other; the last one is repeated.
    #[serde(default)]
    pub(crate) threads: Option<BTreeMap<String, Vec<ThreadAnswer>>>,
    /// The files of the project's space, which are signed. Without them there are no spaces.
    #[serde(default)]
    pub(crate) space: Option<BTreeMap<String, String>>,
    /// The files that the file tools find.
    #[serde(default)]
    pub(crate) files: Option<BTreeMap<String, String>>,
    /// The number of seconds after which the run is cancelled.
    #[serde(default)]
    pub(crate) cancelled_after: Option<f64>,
    #[serde(default)]
    pub(crate) options: RunOptions,
    /// Whether processes or files are involved, for which virtual time does not advance.
    #[serde(default)]
    pub(crate) real: bool,
    /// Whether a run that was cut and resumed has the same end; false where time begins again.
    #[serde(default = "yes")]
    pub(crate) resumes: bool,
    /// Whether only older engines come to that end; such a case is one of stored journals.
    #[serde(default)]
    pub(crate) former: bool,
    pub(crate) expect: Expect,
}

fn yes() -> bool {
    true
}

/// The options of a run besides the graph.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunOptions {
    #[serde(default)]
    pub(crate) max_steps: Option<u32>,
    #[serde(default)]
    pub(crate) depth: Option<u32>,
    #[serde(default)]
    pub(crate) capabilities: Option<Vec<String>>,
    /// The time limit in seconds.
    #[serde(default)]
    pub(crate) timeout: Option<f64>,
}

/// A tool's answer: a value, unless the tool fails, hangs or panics.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Answer {
    /// The parameters to which this is the answer, each time they occur. All of these must match; there may be others.
    /// An answer without `when` is given once, in the order of the list.
    #[serde(default)]
    when: Option<Map<String, Value>>,
    #[serde(default)]
    returns: Value,
    #[serde(default)]
    fails: Option<String>,
    /// The error's category; without one, the error is unclassified.
    #[serde(default)]
    category: Option<String>,
    #[serde(default)]
    code: Option<String>,
    #[serde(default)]
    status: Option<u16>,
    /// In seconds.
    #[serde(default)]
    retry_after: Option<f64>,
    #[serde(default)]
    data: Option<Value>,
    #[serde(default)]
    panics: Option<String>,
    #[serde(default)]
    hangs: bool,
    /// The duration of the call in seconds.
    #[serde(default)]
    after: f64,
}

impl Answer {
    /// Returns the value, if the answer is one.
    pub(crate) fn value(&self) -> Option<Value> {
        (self.fails.is_none() && self.panics.is_none() && !self.hangs).then(|| self.returns.clone())
    }

    fn fits(&self, params: &Value) -> bool {
        self.when.as_ref().is_some_and(|when| when.iter().all(|(name, value)| params.get(name) == Some(value)))
    }

    #[expect(clippy::panic, reason = "a tool that panics is what the case is about")]
    async fn give(self) -> Result<Value, ActionError> {
        if self.after > 0.0 {
            tokio::time::sleep(Duration::from_secs_f64(self.after)).await;
        }
        if self.hangs {
            std::future::pending::<()>().await;
        }
        if let Some(text) = self.panics {
            panic!("{text}");
        }
        let Some(message) = self.fails else { return Ok(self.returns) };
        let mut error = match self.category.as_deref() {
            None => ActionError::unclassified(message),
            Some(name) => ActionError::new(Category::named(name).expect("a category of the documentation"), message),
        };
        if let Some(code) = self.code {
            error = error.with_code(code);
        }
        if let Some(status) = self.status {
            error = error.with_status(status);
        }
        if let Some(seconds) = self.retry_after {
            error = error.with_retry_after(Duration::from_secs_f64(seconds));
        }
        if let Some(data) = self.data {
            error = error.with_data(data);
        }
        Err(error)
    }
}

/// The registry's answer for a thread.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ThreadAnswer {
    status: String,
    #[serde(default)]
    continuation: Option<String>,
    #[serde(default)]
    result: Option<Value>,
}

/// The expected result of a case. Only the named fields are compared, except that `error`, `node` and `errors` always
/// are.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Expect {
    /// `completed`, `completed_with_errors`, `error`, `max_steps`, `deadline`, `cancelled`, or `not_started`.
    pub(crate) status: String,
    #[serde(default, deserialize_with = "present")]
    pub(crate) output: Option<Value>,
    #[serde(default)]
    pub(crate) steps: Option<u64>,
    /// The whole message.
    #[serde(default)]
    pub(crate) error: Option<String>,
    /// The node that failed.
    #[serde(default)]
    pub(crate) node: Option<String>,
    /// The failures after which the run continued: `node: message`.
    #[serde(default)]
    pub(crate) errors: Vec<String>,
    /// The state at the end; other keys may be there.
    #[serde(default)]
    pub(crate) state: Option<Map<String, Value>>,
    /// Every call in order: the tool's id and its parameters.
    #[serde(default)]
    pub(crate) calls: Option<Vec<IndexMap<String, Value>>>,
    /// The warnings in the journal.
    #[serde(default)]
    pub(crate) warnings: Option<Vec<String>>,
    /// The duration of the run in seconds.
    #[serde(default)]
    pub(crate) took: Option<f64>,
    /// Whether the result says that the run used all its steps.
    #[serde(default)]
    pub(crate) exhausted: bool,
}

/// Distinguishes a null value from a missing one.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// The key of a call: the tool, and the call's idempotency key.
type CallKey = (String, String);

/// Performs the tools of a run as the script says, and records the calls.
#[derive(Default, Clone)]
pub(crate) struct Stage {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    tools: IndexMap<String, Vec<Answer>>,
    /// The numbers of the answers that each tool has given. They decide which answer is next, and which ones were not
    /// given.
    given: HashMap<String, Vec<usize>>,
    threads: BTreeMap<String, Vec<ThreadAnswer>>,
    calls: Vec<Asked>,
    problems: Vec<String>,
    /// The answers that calls received before the run was cut, one for each attempt.
    before: HashMap<CallKey, Vec<Answer>>,
    answered: HashMap<CallKey, Vec<Answer>>,
}

/// A call that was made.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Asked {
    pub(crate) tool: String,
    pub(crate) params: Value,
    /// The context of the call that the tool receives.
    pub(crate) facts: Value,
}

impl Stage {
    /// Sets the stage for a run of `case`.
    pub(crate) fn set(&self, case: &Case) {
        let mut state = self.state();
        *state =
            State { tools: case.tools.clone(), threads: case.threads.clone().unwrap_or_default(), ..State::default() };
    }

    /// Sets the stage for the rest of a run that was cut: repeated calls receive the same answers again.
    pub(crate) fn set_again(&self, case: &Case, before: &Given) {
        self.set(case);
        self.state().before.clone_from(&before.0);
    }

    /// Returns the answers that calls received.
    pub(crate) fn given(&self) -> Given {
        Given(self.state().answered.clone())
    }

    /// Returns the calls that were made, in order.
    pub(crate) fn calls(&self) -> Vec<Asked> {
        self.state().calls.clone()
    }

    /// Returns the calls that the script does not answer, and the answers that were not given.
    pub(crate) fn problems(&self) -> Vec<String> {
        let state = self.state();
        let mut problems = state.problems.clone();
        for (tool, answers) in &state.tools {
            let given = state.given.get(tool).map_or(&[][..], Vec::as_slice);
            let left = (0..answers.len()).filter(|at| !given.contains(at));
            problems.extend(left.map(|at| format!("answer {} of `{tool}` was not given", at + 1)));
        }
        problems
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Performs a tool of a compiled graph.
    pub(crate) fn perform<R: FromValue>(
        &self,
        call: &Call,
        params: Value,
    ) -> impl Future<Output = Result<R, ActionError>> + Send + use<R> {
        let answer = self.answer(call, params);
        async move { Ok(R::from_value(answer?.give().await?)?) }
    }

    fn answer(&self, call: &Call, params: Value) -> Result<Answer, ActionError> {
        let mut state = self.state();
        let tool = call.tool().to_owned();
        let facts = json!({
            "run": call.run_id().as_str(),
            "graph": call.graph_id().as_str(),
            "node": call.node(),
            "step": call.step(),
            "item": call.item(),
            "hook": call.hook(),
            "remote": call.remote(),
            "depth": call.depth(),
            "parent": call.parent().map(|parent| parent.run.as_str()),
        });
        state.calls.push(Asked { tool: tool.clone(), params: params.clone(), facts });
        let key = (tool.clone(), call.idempotency_key());
        let attempt = state.answered.get(&key).map_or(0, Vec::len);
        let again = state.before.get(&key).and_then(|answers| answers.get(attempt)).cloned();
        let Some(answer) = again.or_else(|| state.next(&tool, &params)) else {
            let problem = format!("the script has no answer of `{tool}` to {params}");
            state.problems.push(problem.clone());
            return Err(ActionError::permanent(problem));
        };
        state.answered.entry(key).or_default().push(answer.clone());
        Ok(answer)
    }
}

impl State {
    fn next(&mut self, tool: &str, params: &Value) -> Option<Answer> {
        let answers = self.tools.get(tool)?;
        let given = self.given.entry(tool.to_owned()).or_default();
        let fits = |(at, answer): &(usize, &Answer)| match &answer.when {
            Some(_) => answer.fits(params),
            None => !given.contains(at),
        };
        let (at, answer) = answers.iter().enumerate().find(fits)?;
        given.push(at);
        Some(answer.clone())
    }
}

/// The answers that the calls of a run received.
#[derive(Debug, Clone)]
pub(crate) struct Given(HashMap<CallKey, Vec<Answer>>);

/// Whether the runtime performs a tool itself. Such tools have their own tests.
pub(crate) fn is_real(id: &str, tool: &TypedTool) -> bool {
    tool.subprocess.is_some() || id.starts_with("rye/file-system/")
}

impl Tools for Stage {
    fn perform<'a>(&'a self, call: &'a Call, row: &'a TypedTool, params: Map<String, Value>) -> ToolFuture<'a> {
        if is_real(call.tool(), row) {
            static BUILTINS: LazyLock<Toolbox> = LazyLock::new(Toolbox::new);
            return BUILTINS.perform(call, row, params);
        }
        let answer = self.answer(call, Value::Object(params));
        Box::pin(async move { answer?.give().await })
    }

    fn reduce(&self, id: &str, value: Option<Value>, write: &Value) -> Option<Result<Value, ReducerError>> {
        crate::reducers::reduce(id, value, write)
    }

    fn reduces(&self, id: &str) -> bool {
        id.starts_with("scoring/")
    }
}

impl Dispatch for Stage {
    fn dispatch(
        &self,
        call: &Call,
        params: Map<String, Value>,
    ) -> impl Future<Output = Result<Value, ActionError>> + Send {
        self.perform(call, Value::Object(params))
    }
}

impl RuntimeTools for Stage {
    async fn perform<P: AsView + Send, R: FromValue>(
        &self,
        call: &Call,
        tool: RuntimeCall<P, R>,
    ) -> Result<R, ActionError> {
        if call.tool() != "rye/bash" {
            return tool.perform(call).await;
        }
        let mut shown = tool.params.view().to_plain_value();
        // Fields that are null are left out, as in an interpreted graph.
        if let Value::Object(fields) = &mut shown {
            fields.retain(|_, value| !value.is_null());
        }
        let answer = self.perform(call, shown);
        answer.await
    }
}

impl std::fmt::Debug for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Stage")
    }
}

impl Threads for Stage {
    fn thread<'a>(&'a self, id: &'a str) -> ThreadFuture<'a> {
        Box::pin(async move {
            let mut state = self.state();
            let Some(answers) = state.threads.get_mut(id) else { return Ok(None) };
            let answer = if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() };
            let ThreadAnswer { status, continuation, result } = answer;
            Ok(Some(Thread { status, continuation, result }))
        })
    }
}

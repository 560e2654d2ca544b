//! `rye/agent/threads/thread_directive` and `orchestrator`: agents as threads, by the directives that they follow.
//!
//! A thread is a [task](graph_engine::tasks) whose graph is an agent.

use graph_engine::tasks::{StopTask, Tasks, WaitFor};
use graph_engine::{ActionError, Call, RecordedOutcome, Status};
use graph_model::name::RunId;
use graph_model::program::CallLimits;
use graph_model::value::{Map, Value};
use regex::{Regex, RegexBuilder};
use serde::Deserialize;
use serde_json::json;

use crate::orchestrate::{is_short, limits_of};

/// The node at which the graph of an agent asks its model.
const TURN: &str = "think";

/// The state key in which the graph of an agent has its talk.
const TALK: &str = "talk";

/// The parameters of a thread besides its inputs.
const OWN: [&str; 5] = ["directive_name", "directive", "inputs", "limit_overrides", "async_exec"];

/// The parameters of `rye/agent/threads/thread_directive`.
pub(super) struct ThreadParams {
    pub(super) directive: String,
    inputs: Map<String, Value>,
    limits: CallLimits,
    /// Whether the call returns at once.
    pub(super) is_async: bool,
}

impl ThreadParams {
    pub(super) fn read(params: Value) -> Result<Self, ActionError> {
        let Value::Object(mut params) = params else {
            return Err(ActionError::permanent("the parameters of a thread are an object"));
        };
        let named = params.get("directive_name").or_else(|| params.get("directive")).and_then(Value::as_str);
        let directive =
            named.ok_or_else(|| ActionError::permanent("`directive_name` is the id of a directive"))?.to_owned();
        let is_async = match params.get("async_exec") {
            None | Some(Value::Null) => false,
            Some(Value::Bool(is_async)) => *is_async,
            Some(_) => return Err(ActionError::permanent("`async_exec` is true or false")),
        };
        let limits = match params.get("limit_overrides") {
            None | Some(Value::Null) => CallLimits::default(),
            Some(Value::Object(limits)) => limits_of(limits)?,
            Some(_) => return Err(ActionError::permanent("`limit_overrides` is an object")),
        };
        let inputs = match params.remove("inputs") {
            Some(Value::Object(inputs)) => inputs,
            None | Some(Value::Null) => {
                // The engine adds facts about the run around the call, for registries of programs.
                params.retain(|name, _| !OWN.contains(&name.as_str()) && !name.starts_with("parent_"));
                params
            }
            Some(_) => return Err(ActionError::permanent("`inputs` is an object")),
        };
        Ok(Self { directive, inputs, limits, is_async })
    }
}

/// Performs `rye/agent/threads/thread_directive`: starts the agent that follows a directive, and waits for its answer.
pub(super) async fn thread_directive(call: &Call, params: Value) -> Result<Value, ActionError> {
    let tasks = tasks(call)?;
    let ThreadParams { directive, inputs, limits, is_async } = ThreadParams::read(params)?;
    let agent = tasks.follower(&directive).map_err(ActionError::permanent)?;
    let agent = agent.ok_or_else(|| {
        ActionError::permanent(format!(
            "no agent follows the directive `{directive}`: a contract with `tool_type: agent` names it in `config.directive`"
        ))
    })?;
    let thread = tasks.spawn(call, &agent, Value::Object(inputs), limits).await?;
    if is_async {
        return Ok(json!({ "thread_id": thread, "directive": directive, "status": "running" }));
    }
    let outcome = match tasks.wait(call, std::slice::from_ref(&thread), WaitFor::All, None).await?.pop() {
        Some(outcome) if outcome.status.has_result() => outcome,
        Some(outcome) => {
            let error = outcome.error.unwrap_or_else(|| outcome.status.name().to_owned());
            return Err(ActionError::permanent(format!("{error} (thread `{thread}`)")));
        }
        None => return Err(ActionError::permanent(format!("thread `{thread}` is gone"))),
    };
    let cost = cost(tasks, call, &thread).await?;
    Ok(json!({
        "thread_id": thread, "directive": directive, "status": "completed", "outputs": outcome.output, "output": outcome.output,
        "cost": cost,
    }))
}

/// The parameters of `rye/agent/threads/orchestrator`.
#[derive(Debug, Deserialize)]
struct ThreadOperation {
    operation: String,
    #[serde(default)]
    thread_id: Option<String>,
    #[serde(default)]
    thread_ids: Vec<String>,
    #[serde(default)]
    timeout: Option<f64>,
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    limit_overrides: Option<Map<String, Value>>,
    #[serde(default)]
    tail_lines: Option<usize>,
    #[serde(default)]
    query: Option<String>,
    #[serde(default)]
    search_type: Option<String>,
    #[serde(default)]
    case_sensitive: bool,
    #[serde(default)]
    max_results: Option<usize>,
}

const OPERATIONS: &str = "`wait_threads`, `get_status`, `list_children`, `list_active`, `cancel_thread`, `kill_thread`, `resume_thread`, \
                          `read_transcript`, `get_chain` and `chain_search`";

/// How many messages `chain_search` finds if the call does not say it.
const MAX_RESULTS: usize = 50;

/// How many letters `chain_search` shows before and after the place that it found.
const AROUND: usize = 100;

/// The size that a pattern of `chain_search` may have once it is compiled, in bytes.
const MAX_PATTERN: usize = 1 << 20;

/// Performs `rye/agent/threads/orchestrator`.
pub(super) async fn orchestrator(call: &Call, params: Value) -> Result<Value, ActionError> {
    let tasks = tasks(call)?;
    let operation: ThreadOperation = serde_json::from_value(params)
        .map_err(|error| ActionError::permanent(format!("the parameters of the orchestrator do not fit: {error}")))?;
    let thread = || -> Result<RunId, ActionError> {
        let id = operation.thread_id.as_deref();
        id_of(id.ok_or_else(|| ActionError::permanent(format!("`{}` needs `thread_id`", operation.operation)))?)
    };
    match operation.operation.as_str() {
        "wait_threads" => {
            let threads = operation.thread_ids.iter().map(|id| id_of(id)).collect::<Result<Vec<_>, _>>()?;
            let limit = operation.timeout.map(|seconds| crate::seconds(seconds, "timeout")).transpose()?;
            let outcomes = tasks.wait(call, &threads, WaitFor::All, limit).await?;
            let open = outcomes.iter().filter(|thread| !thread.status.has_result());
            let open = open.map(|thread| {
                let why = thread.error.as_deref().unwrap_or(thread.status.name());
                format!("thread `{}`: {why}", thread.run)
            });
            let error = open.collect::<Vec<_>>().join("; ");
            let results: Vec<Value> = outcomes.into_iter().map(shown).collect();
            Ok(match error.is_empty() {
                true => json!({ "success": true, "results": results }),
                // A result that says this fails its node, with the error.
                false => json!({ "success": false, "error": error, "results": results }),
            })
        }
        "get_status" => Ok(json!({ "thread": shown(tasks.outcome(call, &thread()?).await?) })),
        "list_children" | "list_active" => {
            let is_active = operation.operation == "list_active";
            let statuses = if is_active { vec![Status::Running, Status::Waiting] } else { Vec::new() };
            let found = tasks.list(call, statuses).await?.into_iter();
            let threads = found.map(
                |thread| json!({ "thread_id": thread.run, "agent": thread.graph, "status": thread.status.name() }),
            );
            Ok(json!({ "threads": threads.collect::<Vec<_>>() }))
        }
        "cancel_thread" | "kill_thread" => {
            let how = if operation.operation == "kill_thread" { StopTask::Kill } else { StopTask::Cancel };
            Ok(json!({ "thread_id": thread()?, "stopped": tasks.stop(call, &thread()?, how).await? }))
        }
        "resume_thread" => {
            let message = operation.message.as_deref();
            let message = message.ok_or_else(|| ActionError::permanent("`resume_thread` needs `message`"))?;
            is_short(message)?;
            let thread = thread()?;
            // It may end meanwhile, and a call that is made again after a crash may find that it has.
            let is_open = !tasks.outcome(call, &thread).await?.status.has_ended();
            if is_open && tasks.send(call, &thread, message).await? || tasks.has_read(call, &thread).await? {
                return Ok(json!({ "thread_id": thread, "sent": true, "status": "running" }));
            }
            let limits = limits_of(&operation.limit_overrides.unwrap_or_default())?;
            let next = tasks.resume(call, &thread, message, limits).await?;
            Ok(json!({ "thread_id": next, "continuation_of": thread, "sent": true, "status": "running" }))
        }
        "get_chain" => {
            let chain = tasks.chain(call, &thread()?).await?;
            Ok(json!({ "chain": chain.into_iter().map(shown).collect::<Vec<_>>() }))
        }
        "chain_search" => {
            let pattern = pattern(&operation)?;
            let most = operation.max_results.unwrap_or(MAX_RESULTS);
            let (mut found, mut is_cut) = (Vec::new(), false);
            for thread in tasks.chain(call, &thread()?).await? {
                for (line, message) in transcript(tasks, call, &thread.run).await?.iter().enumerate() {
                    let mut said = said_in(message).into_iter();
                    let Some(text) = said.find_map(|said| found_in(&pattern, said)) else { continue };
                    is_cut |= found.len() == most;
                    if found.len() < most {
                        let role = message.get("role");
                        found.push(json!({ "thread_id": thread.run, "line": line + 1, "role": role, "text": text }));
                    }
                }
            }
            Ok(json!({ "matches": found, "is_cut": is_cut }))
        }
        "read_transcript" => {
            let thread = thread()?;
            let mut lines = transcript(tasks, call, &thread).await?;
            if let Some(tail) = operation.tail_lines {
                lines.drain(..lines.len().saturating_sub(tail));
            }
            Ok(json!({ "thread_id": thread, "transcript": lines }))
        }
        other => Err(ActionError::permanent(format!("`{other}` is no operation: there are {OPERATIONS}"))),
    }
}

fn tasks(call: &Call) -> Result<&Tasks, ActionError> {
    crate::config(call).own_tasks().ok_or_else(|| {
        ActionError::permanent("the program has no threads: `ToolConfig::tasks` names the agents that it can start")
    })
}

fn id_of(id: &str) -> Result<RunId, ActionError> {
    RunId::new(id).map_err(|error| ActionError::permanent(format!("{id:?} is not the id of a thread: {error}")))
}

/// Returns a thread as the orchestrator shows it.
fn shown(thread: RecordedOutcome) -> Value {
    let mut shown = Map::from_iter([
        ("thread_id".to_owned(), Value::from(thread.run.as_str())),
        ("agent".to_owned(), Value::from(thread.graph)),
        ("status".to_owned(), Value::from(thread.status.name())),
    ]);
    if thread.status.has_result() {
        shown.insert("outputs".to_owned(), thread.output);
    }
    shown.extend(thread.error.map(|error| ("error".to_owned(), Value::from(error))));
    let continues = thread.task.and_then(|task| task.continues);
    shown.extend(continues.map(|before| ("continuation_of".to_owned(), Value::from(before.run.as_str()))));
    Value::Object(shown)
}

/// Returns what `chain_search` looks for.
fn pattern(operation: &ThreadOperation) -> Result<Regex, ActionError> {
    let query = operation.query.as_deref().filter(|query| !query.is_empty());
    let query = query.ok_or_else(|| ActionError::permanent("`chain_search` needs `query`"))?;
    let pattern = match operation.search_type.as_deref() {
        None | Some("text") => regex::escape(query),
        Some("regex") => query.to_owned(),
        Some(other) => {
            return Err(ActionError::permanent(format!("`search_type` is `text` or `regex`, not `{other}`")));
        }
    };
    let mut builder = RegexBuilder::new(&pattern);
    let built = builder.case_insensitive(!operation.case_sensitive).size_limit(MAX_PATTERN).build();
    built.map_err(|error| ActionError::permanent(format!("`query` cannot be looked for: {error}")))
}

/// Returns the parts of a message that `chain_search` reads: its text, the calls that it wants, and the result of a call.
fn said_in(message: &Value) -> Vec<&Value> {
    let calls = message.get("calls").and_then(Value::as_array).into_iter().flatten();
    let calls = calls.flat_map(|call| [call.get("name"), call.get("arguments")]);
    ["text", "result", "error"].map(|field| message.get(field)).into_iter().chain(calls).flatten().collect()
}

/// Returns the first place of a pattern in the texts of a value, with the letters around it.
fn found_in(pattern: &Regex, message: &Value) -> Option<String> {
    match message {
        Value::String(text) => {
            let found = pattern.find(text)?;
            let most = found.as_str().char_indices().nth(AROUND).map_or(found.end(), |(at, _)| found.start() + at);
            let start = text[..found.start()].char_indices().rev().nth(AROUND - 1).map_or(0, |(at, _)| at);
            let end = text[most..].char_indices().nth(AROUND).map_or(text.len(), |(at, _)| most + at);
            Some(text[start..end].to_owned())
        }
        Value::Array(list) => list.iter().find_map(|one| found_in(pattern, one)),
        Value::Object(fields) => fields.values().find_map(|one| found_in(pattern, one)),
        Value::Number(number) => pattern.is_match(&number.to_string()).then(|| number.to_string()),
        Value::Null | Value::Bool(_) => None,
    }
}

/// Returns how many turns a thread has taken, and what they took.
async fn cost(tasks: &Tasks, call: &Call, thread: &RunId) -> Result<Value, ActionError> {
    let (mut turns, mut tokens, mut micros) = (0_u64, 0_u64, 0_u64);
    for turn in turns_of(tasks, call, thread).await? {
        let number = |name: &str| turn.get(name).and_then(Value::as_u64).unwrap_or_default();
        turns += 1;
        tokens = tokens.saturating_add(number("tokens"));
        micros = micros.saturating_add(number("micros"));
    }
    Ok(json!({ "turns": turns, "tokens": tokens, "micros": micros }))
}

/// Returns the messages of a thread, in their order: those of each turn, and the results of calls. Those of a thread that it continues
/// are left out.
async fn transcript(tasks: &Tasks, call: &Call, thread: &RunId) -> Result<Vec<Value>, ActionError> {
    let visits = tasks.visits(call, thread).await?;
    let said = visits.into_iter().filter_map(|mut visit| match visit.changes.get_mut(TALK).map(Value::take) {
        Some(Value::Array(said)) => Some(said),
        _ => None,
    });
    let own = said.flatten().map(|mut message| {
        if message.get("role").is_some_and(|role| role == "earlier")
            && let Value::Object(fields) = &mut message
        {
            fields.shift_remove(TALK);
        }
        message
    });
    Ok(own.collect())
}

/// Returns the results of the turns in the journal of a thread. Secrets are replaced by `[secret]`.
async fn turns_of(tasks: &Tasks, call: &Call, thread: &RunId) -> Result<Vec<Value>, ActionError> {
    let visits = tasks.visits(call, thread).await?;
    // Another node may return something that looks like a turn.
    let turns = visits.into_iter().filter(|visit| visit.node == TURN && visit.result.get("said").is_some());
    Ok(turns.map(|visit| visit.result).collect())
}

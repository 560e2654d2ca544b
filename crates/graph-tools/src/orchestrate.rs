//! `rye/orchestrate/…`: tasks, which are runs that a call spawns and that continue by themselves.

use std::time::Duration;

use graph_engine::tasks::{StopTask, Tasks, WaitFor};
use graph_engine::{ActionError, Call, RecordedOutcome, Status};
use graph_model::name::{ItemId, RunId};
use graph_model::program::CallLimits;
use graph_model::value::{FromValue, Map, Mismatch, Value, View};
use serde_json::json;

#[derive(Debug)]
struct SpawnParams {
    target: String,
    inputs: Option<Map<String, Value>>,
    timeout: Option<f64>,
    limits: Option<Map<String, Value>>,
}

graph_engine::__object!(SpawnParams { 0 target: "target", 1 inputs: "inputs", 2 timeout: "timeout", 3 limits: "limits" });

#[derive(Debug)]
struct AwaitParams {
    tasks: Vec<String>,
    mode: String,
    timeout: Option<f64>,
}

graph_engine::__object!(AwaitParams { 0 tasks: "tasks", 1 mode: "mode" = "\"all\"", 2 timeout: "timeout" });

#[derive(Debug)]
struct RaceParams {
    tasks: Vec<String>,
    timeout: Option<f64>,
}

graph_engine::__object!(RaceParams { 0 tasks: "tasks", 1 timeout: "timeout" });

#[derive(Debug)]
struct TaskParams {
    task: String,
}

graph_engine::__object!(TaskParams { 0 task: "task" });

#[derive(Debug)]
struct TaskListParams {
    statuses: Vec<String>,
}

graph_engine::__object!(TaskListParams { 0 statuses: "statuses" = "[]" });

#[derive(Debug)]
struct TimeoutParams {
    task: String,
    seconds: f64,
}

graph_engine::__object!(TimeoutParams { 0 task: "task", 1 seconds: "seconds" });

#[derive(Debug)]
struct SteerParams {
    task: String,
    message: String,
}

graph_engine::__object!(SteerParams { 0 task: "task", 1 message: "message" });

/// The maximum length of a message, in bytes.
const MAX_MESSAGE: usize = 64 << 10;

/// Performs the tool `rye/orchestrate/<name>`.
pub(super) async fn perform(name: &str, call: &Call, params: Value) -> Result<Value, ActionError> {
    let tasks = crate::config(call).own_tasks().ok_or_else(|| {
        ActionError::permanent("the program spawns no tasks: it names those that it can with `ToolConfig::tasks`")
    })?;
    match name {
        "spawn" => spawn(tasks, call, SpawnParams::from_value(params)?).await,
        "await" => wait(tasks, call, AwaitParams::from_value(params)?).await,
        "race" => race(tasks, call, RaceParams::from_value(params)?).await,
        "status" => {
            let TaskParams { task } = TaskParams::from_value(params)?;
            Ok(json!({ "task": shown(tasks.outcome(call, &run(&task)?).await?) }))
        }
        "list" => {
            let TaskListParams { statuses } = TaskListParams::from_value(params)?;
            let statuses = statuses.iter().map(|name| status(name)).collect::<Result<_, _>>()?;
            let found = tasks.list(call, statuses).await?;
            let found = found
                .into_iter()
                .map(|task| json!({ "id": task.run, "graph": task.graph, "status": task.status.name() }));
            Ok(json!({ "tasks": found.collect::<Vec<_>>() }))
        }
        "cancel" | "kill" => {
            let TaskParams { task } = TaskParams::from_value(params)?;
            let how = if name == "kill" { StopTask::Kill } else { StopTask::Cancel };
            Ok(json!({ "stopped": tasks.stop(call, &run(&task)?, how).await? }))
        }
        "timeout" => {
            let TimeoutParams { task, seconds } = TimeoutParams::from_value(params)?;
            let how = StopTask::CancelAfter(crate::seconds(seconds, "seconds")?);
            Ok(json!({ "stopped": tasks.stop(call, &run(&task)?, how).await? }))
        }
        _ => {
            let SteerParams { task, message } = SteerParams::from_value(params)?;
            is_short(&message)?;
            tasks.steer(call, &run(&task)?, &message).await?;
            Ok(json!({ "sent": true }))
        }
    }
}

async fn spawn(tasks: &Tasks, call: &Call, params: SpawnParams) -> Result<Value, ActionError> {
    let SpawnParams { target, inputs, timeout, limits } = params;
    let graph = ItemId::new(target.as_str()).map_err(|error| ActionError::permanent(format!("`target`: {error}")))?;
    let timeout = limit(timeout)?;
    let limits = limits_of(&limits.unwrap_or_default())?;
    let task = tasks.spawn(call, &graph, Value::Object(inputs.unwrap_or_default()), limits).await?;
    if let Some(timeout) = timeout {
        tasks.stop(call, &task, StopTask::CancelAfter(timeout)).await?;
    }
    Ok(json!({ "task": task }))
}

async fn wait(tasks: &Tasks, call: &Call, params: AwaitParams) -> Result<Value, ActionError> {
    let AwaitParams { tasks: named, mode, timeout } = params;
    let wait_for = match mode.as_str() {
        "all" => WaitFor::All,
        "any" => WaitFor::Any,
        other => return Err(Mismatch::new("`all` or `any`", View::Text(other)).inside("mode").into()),
    };
    let outcomes = tasks.wait(call, &runs(&named)?, wait_for, limit(timeout)?).await?;
    let ended = outcomes.iter().filter(|task| task.status.has_ended()).count();
    let done = match wait_for {
        WaitFor::All => ended == outcomes.len(),
        WaitFor::Any => ended > 0,
    };
    Ok(json!({ "done": done, "tasks": outcomes.into_iter().map(shown).collect::<Vec<_>>() }))
}

/// Fails if a message is too long.
pub(super) fn is_short(message: &str) -> Result<(), ActionError> {
    if message.len() <= MAX_MESSAGE {
        return Ok(());
    }
    let reason = format!("a message has at most {MAX_MESSAGE} bytes, and this one has {}", message.len());
    Err(ActionError::permanent(reason))
}

/// Reads the limits of an agent: `turns`, `tokens`, and `spend` in US dollars.
pub(super) fn limits_of(given: &Map<String, Value>) -> Result<CallLimits, ActionError> {
    let mut limits = CallLimits::default();
    for (name, value) in given {
        let wrong =
            |expected: &str| ActionError::permanent(format!("the limit `{name}` is {expected}, and not {value}"));
        let number = || value.as_u64().filter(|number| *number > 0).ok_or_else(|| wrong("a whole number above 0"));
        match name.as_str() {
            _ if value.is_null() => {}
            "turns" => limits.turns = Some(u32::try_from(number()?).unwrap_or(u32::MAX)),
            "tokens" => limits.tokens = Some(number()?),
            "spend" => limits.micros = Some(micros(value).ok_or_else(|| wrong("a number of US dollars above 0"))?),
            _ => {
                return Err(ActionError::permanent(format!(
                    "`{name}` is no limit: there are `turns`, `tokens` and `spend`"
                )));
            }
        }
    }
    Ok(limits)
}

/// Returns an amount of US dollars, `0.1` or `0.10 USD`, as millionths.
fn micros(amount: &Value) -> Option<u64> {
    let dollars = match amount {
        Value::String(text) => text.strip_suffix(" USD").unwrap_or(text).parse().ok()?,
        _ => amount.as_f64()?,
    };
    // More dollars than are counted exactly are no limit.
    let is_known = (0.000_001..=1e9).contains(&dollars);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is in this range")]
    is_known.then(|| (dollars * 1e6).round() as u64)
}

/// Waits until a task has completed. Those that failed are waited for no more.
async fn race(tasks: &Tasks, call: &Call, params: RaceParams) -> Result<Value, ActionError> {
    let RaceParams { tasks: named, timeout } = params;
    let (all, limit) = (runs(&named)?, limit(timeout)?);
    let (mut open, began) = (all.clone(), tokio::time::Instant::now());
    let winner = loop {
        let left = limit.map(|limit| limit.saturating_sub(began.elapsed()));
        let outcomes = tasks.wait(call, &open, WaitFor::Any, left).await?;
        if let Some(winner) = outcomes.iter().find(|task| task.status.has_result()) {
            break Some(winner.run.clone());
        }
        let ended = outcomes.iter().filter(|task| task.status.has_ended()).count();
        open = outcomes.into_iter().filter(|task| !task.status.has_ended()).map(|task| task.run).collect();
        if open.is_empty() || ended == 0 {
            break None;
        }
    };
    if let Some(winner) = &winner {
        for loser in open.iter().filter(|task| *task != winner) {
            tasks.stop(call, loser, StopTask::Cancel).await?;
        }
    }
    let mut shown_tasks = Vec::with_capacity(all.len());
    for task in &all {
        shown_tasks.push(shown(tasks.outcome(call, task).await?));
    }
    let mut result = Map::from_iter([("tasks".to_owned(), Value::Array(shown_tasks))]);
    result.extend(winner.map(|winner| ("winner".to_owned(), Value::from(winner.as_str()))));
    Ok(Value::Object(result))
}

/// Returns a task as tools show it.
fn shown(task: RecordedOutcome) -> Value {
    let waits: Vec<Value> = task.waits.iter().map(|wait| Value::from(wait.id.as_str())).collect();
    let mut shown = Map::from_iter([
        ("id".to_owned(), Value::from(task.run.as_str())),
        ("graph".to_owned(), Value::from(task.graph)),
        ("status".to_owned(), Value::from(task.status.name())),
        ("steps".to_owned(), Value::from(task.steps)),
        ("waits".to_owned(), Value::Array(waits)),
    ]);
    if task.status.has_result() {
        shown.insert("output".to_owned(), task.output);
    }
    shown.extend(task.error.map(|error| ("failure".to_owned(), Value::from(error))));
    Value::Object(shown)
}

fn run(id: &str) -> Result<RunId, ActionError> {
    RunId::new(id).map_err(|error| ActionError::permanent(format!("{id:?} is not the id of a task: {error}")))
}

fn runs(ids: &[String]) -> Result<Vec<RunId>, ActionError> {
    ids.iter().map(|id| run(id)).collect()
}

fn limit(timeout: Option<f64>) -> Result<Option<Duration>, ActionError> {
    timeout.map(|seconds| crate::seconds(seconds, "timeout")).transpose()
}

fn status(name: &str) -> Result<Status, ActionError> {
    let all = [
        Status::Running,
        Status::Waiting,
        Status::Completed,
        Status::CompletedWithErrors,
        Status::Error,
        Status::Cancelled,
    ];
    let found = all.into_iter().find(|status| status.name() == name);
    found.ok_or_else(|| Mismatch::new("a status", View::Text(name)).inside("statuses").into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::assert_contract;

    #[test]
    fn limits_are_read_or_refused() {
        let read = |value: Value| limits_of(value.as_object().unwrap()).map_err(|error| error.to_string());
        let limits = CallLimits { turns: Some(8), tokens: Some(100), micros: Some(100_000), ..CallLimits::default() };
        assert_eq!(read(json!({ "turns": 8, "tokens": 100, "spend": 0.1 })), Ok(limits));
        let cents = CallLimits { micros: Some(30), ..CallLimits::default() };
        assert_eq!(read(json!({ "spend": "0.00003 USD", "turns": null })), Ok(cents));
        for wrong in [
            json!({ "turns": 0 }),
            json!({ "turns": -1 }),
            json!({ "tokens": 1.5 }),
            json!({ "spend": 0 }),
            json!({ "spend": "much" }),
            json!({ "spend": "NaN" }),
            json!({ "spend": 1e300 }),
            json!({ "depth": 3 }),
        ] {
            assert!(read(wrong.clone()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_parameters_are_those_of_the_contracts() {
        macro_rules! contract {
            ($name:literal) => {
                include_str!(concat!("../../../graph-compiler/contracts/rye/orchestrate/", $name, ".yaml"))
            };
        }
        assert_contract::<SpawnParams>(contract!("spawn"));
        assert_contract::<AwaitParams>(contract!("await"));
        assert_contract::<RaceParams>(contract!("race"));
        assert_contract::<TaskListParams>(contract!("list"));
        assert_contract::<TimeoutParams>(contract!("timeout"));
        assert_contract::<SteerParams>(contract!("steer"));
        for one in [contract!("status"), contract!("cancel"), contract!("kill")] {
            assert_contract::<TaskParams>(one);
        }
    }
}

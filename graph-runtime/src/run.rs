//! A run as its caller sees it.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;

use graph_model::name::RunId;
use graph_model::secret::Secret;
use graph_model::value::{AsView, Map, Mismatch, Value};
use tokio::task::{JoinHandle, JoinSet};

use crate::engine::{Ended, Engine};
use crate::error::{RunError, SuppressedError};
use crate::machine::Graph;
use crate::record::{Status, Visit};
use crate::stop::Stop;

/// A run at work. Awaiting it gives its result; dropping it leaves the run at work.
#[must_use = "a run goes on by itself, and its result is lost if nobody awaits it"]
pub struct Run<O> {
    id: RunId,
    stop: Stop,
    work: Work,
    read: Reading<O>,
}

/// Reads what a run returned at a node, as its graph does.
type Reading<O> = Box<dyn FnOnce(&str, Value) -> Result<O, Mismatch> + Send + Sync>;

impl<O> fmt::Debug for Run<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("id", &self.id).field("work", &self.work).finish_non_exhaustive()
    }
}

/// Stops a run.
///
/// The run ends as cancelled before its next step; one that waits before it makes a call again stops waiting, and the calls
/// of a foreach that were not begun are not. A call that is being made is waited for.
#[derive(Debug, Clone)]
pub struct Canceller(Stop);

impl Canceller {
    /// Stops the run. It can be resumed.
    pub fn cancel(&self) {
        self.0.set();
    }

    /// Stops the run because its process got a signal, whose number the journal then has (R221).
    pub fn cancel_by(&self, signal: i32) {
        self.0.set_by(signal);
    }
}

#[derive(Debug)]
enum Work {
    Running(JoinHandle<Result<Ended, RunError>>),
    Ended(Box<Ended>),
}

async fn wait(run: &RunId, work: Work) -> Result<Ended, RunError> {
    match work {
        Work::Ended(ended) => Ok(*ended),
        Work::Running(task) => {
            task.await.unwrap_or_else(|error| Err(RunError::Stopped { run: run.clone(), reason: error.to_string() }))
        }
    }
}

/// Spawns the engine's task. Not generic, so that the engine is compiled once, and not with every graph.
fn spawn(engine: Engine) -> JoinHandle<Result<Ended, RunError>> {
    tokio::spawn(RUN.scope(Cell::new(false), engine.drive()))
}

/// Drives a run in a task of its own, which ends if nobody waits for it any more.
///
/// A run inside a run inside a run … that were all driven by one task would need as much of its stack as they are deep.
pub(crate) async fn drive_apart(engine: Engine) -> Result<Ended, RunError> {
    let run = engine.facts.id.clone();
    let mut task = JoinSet::new();
    task.spawn(RUN.scope(Cell::new(false), engine.drive()));
    let stopped = |reason: String| Err(RunError::Stopped { run, reason });
    match task.join_next().await {
        Some(Ok(ended)) => ended,
        Some(Err(error)) => stopped(error.to_string()),
        None => stopped("its task is gone".to_owned()),
    }
}

tokio::task_local! {
    /// Set in the tasks of runs: whether the other tasks of the thread have had a turn while this one waited where it stood.
    static RUN: Cell<bool>;
}

/// Whether the caller is the task of a run.
#[cfg(feature = "sqlite")]
pub(crate) fn is_run() -> bool {
    RUN.try_with(|_| ()).is_ok()
}

/// Notes that the other tasks of the thread have had a turn.
#[cfg(feature = "sqlite")]
pub(crate) fn others_had_turn() {
    // Who is not a run's task takes no turns.
    RUN.try_with(|had| had.set(true)).unwrap_or_default();
}

/// Whether the other tasks of the thread have had a turn since this was asked last.
pub(crate) fn had_others_turn() -> bool {
    RUN.try_with(|had| had.replace(false)).unwrap_or(false)
}

/// What a run returned.
#[derive(Debug, Clone, PartialEq)]
pub struct Finished<O> {
    /// The run.
    pub run: RunId,
    /// How it ended: completed, or completed with errors.
    pub status: Status,
    /// The node where it ended; where it had taken all the steps it may, the one that it visited last.
    pub node: String,
    /// What it returned.
    pub output: O,
    /// What it returned as JSON and with its secrets, where it may have some: for graphs that are loaded while the program runs,
    /// whose `output` has `[secret]` in their places.
    pub secret_output: Option<Secret<Value>>,
    /// The state at its end, with the run's inputs in it. For secrets there stands `[secret]`.
    pub state: Value,
    /// How many nodes were visited.
    pub steps: u64,
    /// The failures that it went on after.
    pub errors: Vec<SuppressedError>,
    /// Whether it ended because it had taken all the steps it may, where the graph says `return_with_flag`.
    pub exhausted: bool,
    /// Every visit with what it returned, if the runtime [keeps them](crate::Builder::keep_history).
    pub history: Vec<Visit>,
}

impl<O> Finished<O> {
    /// Returns what each node returned when it was visited last, by its name; needs the history.
    pub fn last_results(&self) -> BTreeMap<&str, &Value> {
        self.history.iter().map(|visit| (visit.node.as_str(), &visit.result)).collect()
    }
}

impl<O: AsView> Finished<O> {
    /// Returns the result as one object, with `[secret]` for secrets: `success`, `status`, `graph_run_id`, `steps`, `state` and `output`, and where there
    /// are any `errors_suppressed`, `errors` and `max_steps_reached` (R313).
    pub fn to_value(&self) -> Value {
        let parts = Parts { status: self.status, steps: self.steps, errors: &self.errors, exhausted: self.exhausted };
        parts.result(&self.run, &self.state, &self.output.view().to_value())
    }
}

/// What a result says besides state and output.
struct Parts<'a> {
    status: Status,
    steps: u64,
    errors: &'a [SuppressedError],
    exhausted: bool,
}

impl Parts<'_> {
    fn result(&self, run: &RunId, state: &Value, output: &Value) -> Value {
        let mut result = Map::new();
        result.insert("success".into(), true.into());
        result.insert("status".into(), self.status.name().into());
        result.insert("graph_run_id".into(), run.as_str().into());
        result.insert("steps".into(), self.steps.into());
        result.insert("output".into(), output.clone());
        result.insert("state".into(), state.clone());
        if !self.errors.is_empty() {
            result.insert("errors_suppressed".into(), self.errors.len().into());
            let error = |error: &SuppressedError| {
                let SuppressedError { step, node, error } = error;
                serde_json::json!({"step": step, "node": node, "error": error})
            };
            result.insert("errors".into(), self.errors.iter().map(error).collect());
        }
        if self.exhausted {
            result.insert("max_steps_reached".into(), true.into());
        }
        Value::Object(result)
    }
}

impl Ended {
    /// Returns the result as one object (R313), of which the output has its secrets if `is_plain`.
    pub(crate) fn result(&self, run: &RunId, is_plain: bool) -> Value {
        let parts =
            Parts { status: self.status, steps: self.steps, errors: &self.suppressed, exhausted: self.exhausted };
        let output = self.hidden.as_deref().filter(|_| !is_plain).unwrap_or(&self.output);
        parts.result(run, &self.state, output)
    }
}

/// Returns what a run that ended without a result says of itself (R313).
pub(crate) fn result_value(error: &RunError) -> Value {
    let (status, node, steps, state) = match error {
        RunError::Node { node, step, state, .. } => (Status::Error, Some(node), step.saturating_sub(1), Some(state)),
        RunError::MaxSteps { steps, state, .. } | RunError::Deadline { steps, state, .. } => {
            (Status::Error, None, *steps, Some(state))
        }
        RunError::Cancelled { steps, state, .. } => (Status::Cancelled, None, *steps, Some(state)),
        RunError::Store { step, .. } => (Status::Running, None, step.saturating_sub(1), None),
        RunError::Output { .. } | RunError::Stopped { .. } => (Status::Error, None, 0, None),
    };
    let mut message = error.to_string();
    if let RunError::Node { failure, .. } = error {
        message.clone_from(&failure.message);
    }
    let mut result = Map::new();
    result.insert("success".into(), false.into());
    result.insert("status".into(), status.name().into());
    result.insert("graph_run_id".into(), error.run().as_str().into());
    result.insert("steps".into(), steps.into());
    result.insert("error".into(), message.into());
    if let Some(node) = node {
        result.insert("node".into(), node.as_str().into());
    }
    result.insert("state".into(), state.map_or(Value::Null, |state| (**state).clone()));
    Value::Object(result)
}

impl RunError {
    /// Returns the error as one object: `success`, `status`, `graph_run_id`, `steps`, `error`, `state`, and `node` where one
    /// failed (R313).
    pub fn to_value(&self) -> Value {
        result_value(self)
    }
}

fn reading<G: Graph>(graph: Arc<G>) -> Reading<G::Output> {
    Box::new(move |node, value| graph.output(node, value))
}

impl<O> Run<O> {
    pub(crate) fn spawn<G: Graph<Output = O>>(graph: Arc<G>, engine: Engine) -> Self {
        let (id, stop) = (engine.facts.id.clone(), engine.facts.stop.clone());
        Self { id, stop, work: Work::Running(spawn(engine)), read: reading(graph) }
    }

    pub(crate) fn ended<G: Graph<Output = O>>(graph: Arc<G>, id: RunId, ended: Ended) -> Self {
        Self { id, stop: Stop::default(), work: Work::Ended(Box::new(ended)), read: reading(graph) }
    }

    /// Returns the run's id.
    pub fn id(&self) -> &RunId {
        &self.id
    }

    /// Returns what can stop the run, also while it is awaited.
    pub fn canceller(&self) -> Canceller {
        Canceller(self.stop.clone())
    }

    async fn finish(self) -> Result<Finished<O>, RunError> {
        let run = self.id;
        let ended = wait(&run, self.work).await?;
        let Ended { status, node, output, hidden, state, steps, suppressed: errors, exhausted, history } = ended;
        let secret_output = hidden.map(|_| Secret::new(output.clone()));
        match (self.read)(&node, output) {
            Ok(output) => {
                Ok(Finished { run, status, node, output, secret_output, state, steps, errors, exhausted, history })
            }
            Err(mismatch) => Err(RunError::Output { run, mismatch }),
        }
    }
}

impl<O: Send + 'static> IntoFuture for Run<O> {
    type Output = Result<Finished<O>, RunError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.finish())
    }
}

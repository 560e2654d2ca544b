//! The ends of runs, and the results that they report.

use std::collections::BTreeMap;

use graph_model::name::RunId;
use graph_model::value::{Map, Value};

use crate::error::RunError;
use crate::failure::SuppressedError;
use crate::record::Visit;
use crate::status::Status;
use crate::step::SHARED;
use crate::store::Wait;

/// How a run ended.
#[derive(Debug)]
pub struct Ended {
    /// `Completed`, or `CompletedWithErrors`.
    pub status: Status,
    /// The node that was visited last.
    pub node: String,
    /// The run's output, with its secrets.
    pub output: Value,
    /// The output with its secrets hidden, if it may have some.
    pub hidden: Option<Box<Value>>,
    /// The last state as JSON; its secrets are hidden.
    pub state: Value,
    /// How many nodes were visited.
    pub steps: u64,
    /// Its writes to the keys that it shares with the run around it, by their names: for each a list.
    pub shared: Map<String, Value>,
    /// The failures that the run continued after.
    pub suppressed: Vec<SuppressedError>,
    /// Whether it ended because it had taken all the steps it may, and its result is to say so.
    pub exhausted: bool,
    /// Every visit, if the runtime keeps them.
    pub history: Vec<Visit>,
    /// How many signals of each name no wait had taken.
    pub unread: BTreeMap<String, u64>,
}

/// The parts of a result besides state and output.
pub(crate) struct ResultParts<'a> {
    pub(crate) status: Status,
    pub(crate) steps: u64,
    pub(crate) errors: &'a [SuppressedError],
    pub(crate) exhausted: bool,
    pub(crate) unread: &'a BTreeMap<String, u64>,
}

impl ResultParts<'_> {
    pub(crate) fn result(&self, run: &RunId, state: &Value, output: &Value) -> Value {
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
        if !self.unread.is_empty() {
            let count = |(name, count): (&String, &u64)| (name.clone(), Value::from(*count));
            result.insert("unread".into(), Value::Object(self.unread.iter().map(count).collect()));
        }
        Value::Object(result)
    }
}

impl Ended {
    /// Returns the result as one object (R313), with the writes to shared keys. The output includes its secrets if `is_plain`.
    pub fn result(&self, run: &RunId, is_plain: bool) -> Value {
        let Self { status, steps, suppressed: errors, exhausted, unread, .. } = self;
        let parts = ResultParts { status: *status, steps: *steps, errors, exhausted: *exhausted, unread };
        let output = self.hidden.as_deref().filter(|_| !is_plain).unwrap_or(&self.output);
        let mut result = parts.result(run, &self.state, output);
        if let Some(result) = result.as_object_mut().filter(|_| !self.shared.is_empty()) {
            result.insert(SHARED.to_owned(), Value::Object(self.shared.clone()));
        }
        result
    }
}

/// Returns the object that describes a run without a result (R313).
pub(crate) fn result_value(error: &RunError) -> Value {
    let (status, node, steps, state) = match error {
        RunError::Node { node, steps, state, .. } => (Status::Error, Some(node), *steps, Some(state)),
        RunError::MaxVisits { node, steps, state, .. } => (Status::Error, Some(node), *steps, Some(state)),
        RunError::MaxSteps { steps, state, .. }
        | RunError::MaxNestedSteps { steps, state, .. }
        | RunError::Deadline { steps, state, .. } => (Status::Error, None, *steps, Some(state)),
        RunError::Cancelled { steps, state, .. } => (Status::Cancelled, None, *steps, Some(state)),
        RunError::Waiting { steps, state, .. } => (Status::Waiting, None, *steps, Some(state)),
        RunError::ShutDown { steps, state, .. } => (Status::Running, None, *steps, Some(state)),
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
    match error {
        RunError::Waiting { waits, .. } => {
            result.insert("open".into(), waits.iter().map(Wait::to_value).collect());
        }
        _ => {
            result.insert("error".into(), message.into());
        }
    }
    if let Some(node) = node {
        result.insert("node".into(), node.as_str().into());
    }
    result.insert("state".into(), state.map_or(Value::Null, |state| (**state).clone()));
    Value::Object(result)
}

impl RunError {
    /// Returns the error as one object: `success`, `status`, `graph_run_id`, `steps`, `error`, `state`, and `node` where one
    /// failed (R313). A run that waits has `open` in the place of `error`: a list of its waits.
    pub fn to_value(&self) -> Value {
        result_value(self)
    }
}

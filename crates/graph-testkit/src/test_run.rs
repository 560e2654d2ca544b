//! A run that is over, and assertions about it.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use graph_engine::events::{EventKind, RunEvent};
use graph_engine::machine::{NodeEnum, TypedGraph};
use graph_engine::record::{SignedRecord, Visit};
use graph_engine::{Finished, Graph, Machine, RunError, RunId, Status};
use graph_model::value::{AsView, Value};
use graph_proof::{Audit, audit_tree};

use crate::bed::{TestBed, status_of};
use crate::fakes::Fakes;
use crate::golden::{assert_golden, journal_text};

/// A run of a test that is over, or to which nothing can happen any more. Its assertions panic with the difference.
pub struct TestRun<G: Graph> {
    bed: TestBed,
    machine: Arc<dyn Machine>,
    id: RunId,
    outcome: Result<Finished<G::Output>, RunError>,
    events: Vec<RunEvent>,
    /// The events of the run in its journal.
    log: Vec<RunEvent>,
    journal: Vec<SignedRecord>,
}

impl<G: Graph> fmt::Debug for TestRun<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestRun")
            .field("status", &self.status())
            .field("path", &self.node_names())
            .finish_non_exhaustive()
    }
}

impl<G: Graph> TestRun<G> {
    pub(crate) fn of(
        bed: TestBed,
        graph: G,
        id: RunId,
        outcome: Result<Finished<G::Output>, RunError>,
        (events, log): (Vec<RunEvent>, Vec<RunEvent>),
        journal: Vec<SignedRecord>,
    ) -> Self {
        Self { bed, machine: Arc::new(graph), id, outcome, events, log, journal }
    }

    /// Returns the result of the run.
    pub fn outcome(&self) -> &Result<Finished<G::Output>, RunError> {
        &self.outcome
    }

    /// Returns how the run ended.
    pub fn status(&self) -> Status {
        status_of(&self.outcome)
    }

    /// Returns the output.
    ///
    /// # Panics
    ///
    /// If the run has none.
    #[track_caller]
    pub fn output(&self) -> &G::Output {
        match &self.outcome {
            Ok(finished) => &finished.output,
            Err(error) => panic!("the run has no output: {error}"),
        }
    }

    /// Returns the state at the end. Secrets are replaced by `[secret]`. Null if the run could not be written to its journal.
    pub fn state(&self) -> Value {
        match &self.outcome {
            Ok(finished) => finished.state.clone(),
            Err(error) => state_of(error).cloned().unwrap_or_default(),
        }
    }

    /// Returns the events of the run and of those inside it, as the readers in its processes saw them. The record of a commit after which
    /// a process died is not among them.
    pub fn events(&self) -> &[RunEvent] {
        &self.events
    }

    /// Returns the texts that tools emitted, put together.
    pub fn emitted_text(&self) -> String {
        let text = |event: &RunEvent| match &event.kind {
            EventKind::Text { text, .. } => Some(text.clone()),
            _ => None,
        };
        self.events.iter().filter_map(text).collect()
    }

    /// Returns the journal.
    pub fn journal(&self) -> &[SignedRecord] {
        &self.journal
    }

    /// Returns the names of the visited nodes, in the order of the journal; at the end the one whose failure ended the run.
    pub fn node_names(&self) -> Vec<String> {
        let node = |event: &RunEvent| match &event.kind {
            EventKind::Visited { node, visit, .. } if !visit.held && !visit.cancelled => Some(node.clone()),
            _ => None,
        };
        // A run that failed and was resumed has several ends.
        let failed = self.log.last().and_then(|event| match &event.kind {
            EventKind::Ended { end, .. } => end.node.clone(),
            _ => None,
        });
        self.log.iter().filter_map(node).chain(failed).collect()
    }

    /// Returns the visits of the run that are in its journal, in its order, as [`Edges`](graph_proof::Edges) reads them. Secrets are
    /// replaced by `[secret]`.
    pub fn visits(&self) -> Vec<Visit> {
        let visit = |event: &RunEvent| match &event.kind {
            EventKind::Visited { visit, .. } => Some((**visit).clone()),
            _ => None,
        };
        self.log.iter().filter_map(visit).collect()
    }

    /// Asserts how the run ended.
    #[track_caller]
    pub fn assert_status(&self, expected: Status) -> &Self {
        if self.status() != expected {
            let error = self.outcome.as_ref().err().map(ToString::to_string).unwrap_or_default();
            panic!("the run is `{}` and not `{}`: {error}", self.status().name(), expected.name());
        }
        self
    }

    /// Asserts that the run failed with a message that contains a text.
    #[track_caller]
    pub fn assert_fails(&self, text: &str) -> &Self {
        match &self.outcome {
            Err(error) if self.status() != Status::Error => {
                panic!("the run did not fail: it is `{}`: {error}", self.status().name())
            }
            Err(error) if error.to_string().contains(text) => self,
            Err(error) => panic!("the run failed with `{error}`, which does not contain `{text}`"),
            Ok(finished) => panic!("the run did not fail: it is `{}`", finished.status.name()),
        }
    }

    /// Asserts that a key of the state at the end has a value; null if it is not set.
    #[track_caller]
    pub fn assert_state(&self, key: &str, expected: impl Into<Value>) -> &Self {
        let (state, expected) = (self.state(), expected.into());
        let found = state.get(key).unwrap_or(&Value::Null);
        assert_eq!(*found, expected, "`state.{key}` is another value at the end");
        self
    }

    /// Asserts which tools were called, by their ids, in the order in which the calls began; each attempt counts. Besides, that each
    /// call had an answer, and that the scripts have none left.
    #[track_caller]
    pub fn assert_calls<'t, R>(&self, fakes: &Fakes<R>, expected: impl IntoIterator<Item = &'t str>) -> &Self {
        let called: Vec<String> = fakes.calls().into_iter().map(|call| call.tool).collect();
        let expected: Vec<&str> = expected.into_iter().collect();
        assert_eq!(called, expected, "other tools were called");
        let problems = fakes.problems();
        assert!(problems.is_empty(), "the scripts do not fit the run:\n{}", problems.join("\n"));
        self
    }

    /// Asserts that an audit accepts the journal of the run, and those of the runs inside it. Returns what it found, the run first.
    ///
    /// # Panics
    ///
    /// If the audit refuses one.
    pub async fn assert_proven(&self) -> Vec<Audit> {
        let key = self.bed.key().public();
        let machine = Arc::clone(&self.machine);
        let audited = audit_tree(machine, &self.id, self.bed.disk(), &key, Some(&self.bed.encryption_key())).await;
        match audited {
            Ok(audits) => audits,
            Err(error) => panic!("an audit refuses the journal: {error}"),
        }
    }

    /// Asserts that the journal is that of a file: as text, a record a line, without links, tokens and durations. `UPDATE_GOLDEN=1`
    /// writes the file.
    #[track_caller]
    pub fn assert_journal(&self, path: impl AsRef<Path>) -> &Self {
        assert_golden(path.as_ref(), &journal_text(&self.journal));
        self
    }

    /// Returns what a crash must not change: status, output or error, and path.
    pub(crate) fn summary(&self) -> (Status, Value, Vec<String>)
    where
        G::Output: AsView,
    {
        let result = match &self.outcome {
            Ok(finished) => finished.output.view().to_plain_value(),
            Err(error) => Value::from(error.to_string()),
        };
        (self.status(), result, self.node_names())
    }
}

impl<G: TypedGraph + Graph> TestRun<G> {
    /// Returns the visited nodes, in the order of the journal; at the end the one whose failure ended the run.
    pub fn path(&self) -> Vec<G::Node> {
        let node = |name: &String| G::Node::ALL.iter().copied().find(|node| node.name() == name);
        self.node_names().iter().filter_map(node).collect()
    }

    /// Asserts which nodes were visited: see [`TestRun::path`].
    #[track_caller]
    pub fn assert_path(&self, expected: impl IntoIterator<Item = G::Node>) -> &Self {
        let (path, expected) = (self.path(), expected.into_iter().collect::<Vec<_>>());
        assert_eq!(path, expected, "the run took another path");
        self
    }
}

/// Returns the state of a run that ended without a result.
fn state_of(error: &RunError) -> Option<&Value> {
    match error {
        RunError::Node { state, .. }
        | RunError::MaxSteps { state, .. }
        | RunError::MaxNestedSteps { state, .. }
        | RunError::Waiting { state, .. }
        | RunError::Deadline { state, .. }
        | RunError::Cancelled { state, .. }
        | RunError::ShutDown { state, .. } => Some(state),
        _ => None,
    }
}

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

/// The end of a run that a crash must not change: status, output or error, and path.
pub(crate) type Summary = (Status, Value, Vec<String>);

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
            let error = self.outcome.as_ref().err().map(|error| format!(": {error}")).unwrap_or_default();
            panic!("the run is `{}` and not `{}`{error}", self.status().name(), expected.name());
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
        if *found != expected {
            panic!("`state.{key}` is another value at the end\n  expected  {expected}\n  got       {found}");
        }
        self
    }

    /// Asserts which tools were called, by their ids, in the order in which the calls began; each attempt counts. Besides, that each
    /// call had an answer, and that the scripts have none left.
    #[track_caller]
    pub fn assert_calls<'t, R>(&self, fakes: &Fakes<R>, expected: impl IntoIterator<Item = &'t str>) -> &Self {
        let called: Vec<String> = fakes.calls().into_iter().map(|call| call.tool).collect();
        let expected: Vec<&str> = expected.into_iter().collect();
        // Other calls may be the consequence of one that had no answer.
        let problems = fakes.problems();
        if called != expected {
            let problems: String = problems.iter().map(|problem| format!("\n{problem}")).collect();
            panic!("other tools were called\n{}{problems}", lines(&expected, &called));
        }
        assert!(problems.is_empty(), "the scripts do not fit the run:\n{}", problems.join("\n"));
        self
    }

    /// Asserts that an audit accepts the journal of the run, and those of the runs inside it. Returns what it found, the run first.
    ///
    /// # Panics
    ///
    /// If the audit refuses one.
    #[track_caller]
    pub fn assert_proven(&self) -> Vec<Audit> {
        let (key, encryption_key) = (self.bed.key().public(), self.bed.encryption_key());
        let (machine, run, disk) = (Arc::clone(&self.machine), &self.id, self.bed.disk());
        // The task of the test cannot be blocked. As a method without a future, the assertion cannot be forgotten.
        let audited = std::thread::scope(|scope| {
            let audit = move || {
                let tokio = tokio::runtime::Builder::new_current_thread().build().expect("a runtime for the audit");
                tokio.block_on(audit_tree(machine, run, disk, &key, Some(&encryption_key)))
            };
            scope.spawn(audit).join().expect("the audit does not panic")
        });
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

    /// Returns the visits that failed or were over, a line each.
    fn failures(&self) -> String {
        let mut text = String::new();
        for visit in self.visits() {
            match &visit.error {
                Some(error) => text.push_str(&format!("\n`{}` failed: {error}", visit.node)),
                None if visit.timed_out => {
                    text.push_str(&format!("\n`{}` was over before anything ended it", visit.node));
                }
                None => {}
            }
        }
        if let Err(error) = &self.outcome {
            text.push_str(&format!("\n{error}"));
        }
        text
    }

    /// Returns what a crash must not change: status, output or error, and path.
    pub(crate) fn summary(&self) -> Summary
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
        if path != expected {
            let names = |nodes: &[G::Node]| nodes.iter().map(|node| node.name()).collect::<Vec<_>>();
            panic!("the run took another path\n{}{}", lines(&names(&expected), &names(&path)), self.failures());
        }
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

/// Returns the names that were expected, and those that were found.
fn lines<T: AsRef<str>, U: AsRef<str>>(expected: &[T], found: &[U]) -> String {
    let expected: Vec<&str> = expected.iter().map(AsRef::as_ref).collect();
    let found: Vec<&str> = found.iter().map(AsRef::as_ref).collect();
    format!("  expected  {}\n  got       {}", expected.join(" "), found.join(" "))
}

/// Says how two runs that should be the same ended.
pub(crate) fn difference(expected: &Summary, found: &Summary) -> String {
    let end = |(status, result, _): &Summary| format!("{}: {result}", status.name());
    let mut text = lines(&expected.2, &found.2);
    if (expected.0, &expected.1) != (found.0, &found.1) {
        text.push_str(&format!("\n  expected  {}\n  got       {}", end(expected), end(found)));
    }
    text
}

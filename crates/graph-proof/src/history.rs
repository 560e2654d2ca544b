//! The history of a run: its state after each step, the differences between two steps, replays under a changed graph, and
//! forks, which begin at a step of another run.
//!
//! All of it is read from journals, which are verified first. No tool is called.

mod edit;
mod fork;
mod replay;
mod traversal;

use std::collections::BTreeMap;

use graph_engine::failure::SuppressedError;
use graph_engine::machine::Machine;
use graph_engine::past::Past;
use graph_engine::record::{Entry, JournalError, Opened, Record, SignedRecord, Target, VerifiedJournal, Visit};
use graph_engine::{EncryptionKey, ErrorKind, HasKind, Status};
use graph_model::name::RunId;
use graph_model::value::Value;
use graph_signing::PublicKey;

pub use crate::edits::{EditMisfit, EditSummary};
pub use edit::{EditError, EditRun, StateEdit};
pub use fork::{Fork, ForkError, ForkRun};
pub use replay::{Departure, Deviation, Replay, Stopped, replay};
pub use traversal::{NodeTraversal, Traversal, TraversedWay, traversal};

/// Why the history of a run cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PastError {
    /// The journal was changed, or belongs to another graph.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// There is no such step.
    #[error("the run has no step {step}: its steps are {first} to {last}")]
    NoSuchStep {
        /// The requested step.
        step: u64,
        /// The first step of its journal: 0, or for a fork the step where it began.
        first: u64,
        /// The last step that was committed.
        last: u64,
    },
    /// Its secrets are encrypted, and the key is missing.
    #[error("its secrets are encrypted with the key {}, which is not there", .0.as_deref().unwrap_or("of nobody"))]
    Encrypted(Option<String>),
    /// Several nodes were visited at once.
    #[error("the run was never at step {step}: the nodes of steps {from} to {to} were visited at once")]
    Between {
        /// The requested step.
        step: u64,
        /// The first of the steps that were committed together.
        from: u64,
        /// The last of them.
        to: u64,
    },
}

impl HasKind for PastError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Journal(error) => error.kind(),
            Self::NoSuchStep { .. } | Self::Between { .. } => ErrorKind::NotFound,
            Self::Encrypted(_) => ErrorKind::Internal,
        }
    }
}

/// The position of a run after a step, or before its first one.
///
/// [`checkpoints`] has an example.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Checkpoint {
    /// How many nodes had been visited.
    pub step: u64,
    /// The record that committed it.
    pub record: u64,
    /// The record's time: RFC 3339 in UTC with milliseconds.
    pub at: String,
    /// The visits of the step, which were committed together; empty before the first step.
    pub visits: Vec<Visited>,
    /// The nodes to be visited next. The journal does not record them before the first step; there they are taken from that
    /// step.
    pub next: Vec<String>,
    /// The run's status until it continued: `running`, or the status of the end that follows.
    pub status: Status,
    /// Why it ended there, if it ended with an error.
    pub error: Option<String>,
    /// The changes that people made to the state there, before the run continued.
    pub edits: Vec<EditSummary>,
    /// The record of the end that follows, if one does.
    pub end: Option<u64>,
}

/// A summary of a visit.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Visited {
    /// The node.
    pub node: String,
    /// The keys that it wrote.
    pub written: Vec<String>,
    /// The edge that was taken, by its index in the node's list.
    pub edge: Option<u16>,
    /// Why it failed.
    pub error: Option<String>,
    /// Whether the result came from the cache, so that nothing was called.
    pub cached: bool,
    /// Whether its branch was cancelled during the visit, because the quorum of a fan-out around it was decided, or another
    /// visit led to a return that cancels.
    pub cancelled: bool,
    /// Whether the run had continued without its branch.
    pub late: bool,
    /// Whether the run ended with its failure when other branches were done, unless nothing needed its branch before. It is made
    /// again when the run is resumed, and [`Checkpoint::step`] does not count it.
    pub held: bool,
    /// When it began to wait, and when that is over, if it waits. It is made in a later step, and [`Checkpoint::step`] counts it
    /// there.
    pub opened: Option<Opened>,
    /// The run of the nested graph.
    pub run: Option<RunId>,
    /// How long it took, in milliseconds.
    pub ms: u64,
}

impl Visited {
    fn of(visit: &Visit) -> Self {
        Self {
            node: visit.node.clone(),
            written: visit.changes.keys().cloned().collect(),
            edge: visit.edge(),
            error: visit.error.clone(),
            cached: visit.cached,
            cancelled: visit.cancelled,
            late: visit.late,
            held: visit.held,
            opened: visit.opened.clone(),
            run: visit.run.clone(),
            ms: visit.ms,
        }
    }
}

/// Returns the checkpoints of a run, in the order of its steps. `key` is the public key of the runtime that wrote the
/// journal.
///
/// ```
/// # mod graph_runtime { pub use graph_engine::*; pub use graph_proof::*; }
/// # use graph_runtime::{PublicKey, RunId, Store};
/// # async fn example(store: &dyn Store, key: &PublicKey) -> Result<(), Box<dyn std::error::Error>> {
/// use graph_runtime::history::checkpoints;
///
/// let run = RunId::new("order-17")?;
/// for checkpoint in checkpoints(&run, &store.load(&run).await?, key)? {
///     println!("after step {}: next is `{}`", checkpoint.step, checkpoint.next.join("`, `"));
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// If the journal was changed.
pub fn checkpoints(run: &RunId, records: &[SignedRecord], key: &PublicKey) -> Result<Vec<Checkpoint>, JournalError> {
    let verified = VerifiedJournal::new(run, records, key)?;
    let (started, start) = verified.start()?;
    let mut all: Vec<Checkpoint> = vec![Checkpoint {
        step: 0,
        record: 0,
        at: started,
        visits: Vec::new(),
        next: Vec::new(),
        status: Status::Running,
        error: None,
        edits: Vec::new(),
        end: None,
    }];
    let (mut held, mut waiting): (Vec<Target>, BTreeMap<u64, String>) = Default::default();
    for record in (1..verified.count()).filter_map(|at| verified.record(at)) {
        let Record { seq, at, entry, .. } = record?;
        let Some(last) = all.last_mut() else { continue };
        match entry {
            Entry::Step(step) => {
                if last.next.is_empty() {
                    last.next = step.visits.iter().map(|visit| visit.node.clone()).collect();
                }
                // A step after a failure means that the failure was repaired and the run continued.
                (last.status, last.error, last.end) = (Status::Running, None, None);
                step.update_held(&mut held);
                let opened = step.visits.iter().filter(|visit| visit.opened.is_some());
                waiting.extend(opened.map(|visit| (visit.step, visit.node.clone())));
                let next = step.next.iter().map(|target| target.node.clone()).collect();
                let visits: Vec<Visited> = step.visits.iter().map(Visited::of).collect();
                let number =
                    last.step + visits.iter().filter(|visit| !visit.held && visit.opened.is_none()).count() as u64;
                all.push(Checkpoint {
                    step: number,
                    record: seq,
                    at,
                    visits,
                    next,
                    status: Status::Running,
                    error: None,
                    edits: Vec::new(),
                    end: None,
                });
            }
            // Where a fork begins.
            Entry::Snapshot(snapshot) if seq == 1 && start.from.is_some() => {
                (last.step, last.record) = (snapshot.steps, seq);
                let waits = |target: &Target| snapshot.waits.iter().any(|wait| wait.step == target.number);
                let (waits, others): (Vec<_>, Vec<_>) = snapshot.parked.into_iter().partition(waits);
                waiting = waits.into_iter().map(|target| (target.number, target.node)).collect();
                last.next = snapshot.next.into_iter().chain(others).map(|target| target.node).collect();
            }
            Entry::Take(take) => last.next.extend(take.taken.iter().filter_map(|taken| waiting.remove(&taken.step))),
            Entry::Edit(edit) => last.edits.push(EditSummary::of(seq, &at, &edit)),
            Entry::Resume(_) => {
                (last.status, last.error, last.end) = (Status::Running, None, None);
                last.next.extend(held.drain(..).map(|target| target.node));
            }
            Entry::End(end) => {
                (last.status, last.error, last.end) = (end.status, end.error, Some(seq));
                if last.status != Status::Completed && last.status != Status::CompletedWithErrors {
                    last.next.extend(held.drain(..).map(|target| target.node));
                }
            }
            _ => {}
        }
    }
    Ok(all)
}

/// The state of a run after a step.
///
/// [`entry_at`] has an example.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct HistoryEntry {
    /// How many nodes had been visited.
    pub step: u64,
    /// When the step was committed, the run edited or begun: RFC 3339 in UTC with milliseconds.
    pub at: String,
    /// The state: inputs, keys that are set, `_last_error` and `_retries` where there are any. Secrets are replaced by
    /// `[secret]`.
    pub state: Value,
    /// The nodes to be visited next.
    pub next: Vec<String>,
    /// The node that was visited last, if one was.
    pub last: Option<String>,
    /// The failures after which the run had continued.
    pub errors: Vec<SuppressedError>,
}

/// Returns the state of a run after `step` visits, or after its last visit if no number is given. It includes the edits
/// that were made there.
///
/// `machine` is the run's graph, and `encryption_key` the key that encrypted its secrets. The state is returned even without that key.
///
/// ```
/// # mod graph_runtime { pub use graph_engine::*; pub use graph_proof::*; }
/// # use graph_runtime::{Machine, PublicKey, RunId, Store};
/// # async fn example(graph: &dyn Machine, store: &dyn Store, key: &PublicKey) -> Result<(), Box<dyn std::error::Error>> {
/// use graph_runtime::history::{differences, entry_at};
///
/// let run = RunId::new("order-17")?;
/// let records = store.load(&run).await?;
/// let before = entry_at(graph, &run, &records, key, None, Some(2))?;
/// let after = entry_at(graph, &run, &records, key, None, Some(3))?;
/// for change in differences(&before.state, &after.state) {
///     println!("step 3 changed `{}` from {:?} to {:?}", change.path, change.before, change.after);
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// If the journal was changed or belongs to another graph, or there is no such step.
pub fn entry_at(
    machine: &dyn Machine,
    run: &RunId,
    records: &[SignedRecord],
    key: &PublicKey,
    encryption_key: Option<&EncryptionKey>,
    step: Option<u64>,
) -> Result<HistoryEntry, PastError> {
    let mut past = Past::open(machine, run, records, key, encryption_key)?;
    go_to(&mut past, step)?;
    Ok(entry_of(&past))
}

/// Moves forward to a step, or to the last one if no number is given. The current step must not be after the target.
pub(crate) fn go_to(past: &mut Past<'_>, step: Option<u64>) -> Result<(), PastError> {
    let first = past.position.steps;
    let mut before = first;
    while step.is_none_or(|step| past.position.steps < step) {
        before = past.position.steps;
        if !past.go_on()? {
            break;
        }
    }
    match step {
        Some(step) if step < first || step > past.position.steps => {
            while past.go_on()? {}
            Err(PastError::NoSuchStep { step, first, last: past.position.steps })
        }
        Some(step) if step != past.position.steps => {
            Err(PastError::Between { step, from: before + 1, to: past.position.steps })
        }
        _ => {
            // The edits that were made there are part of the position.
            past.next_step()?;
            Ok(())
        }
    }
}

/// Returns the current state of a run, with its secrets hidden.
pub(crate) fn entry_of(past: &Past<'_>) -> HistoryEntry {
    let (code, position) = (past.graph(), &past.position);
    let name = |node: u16| code.node(node).name.clone();
    HistoryEntry {
        step: position.steps,
        at: past.when.0.clone(),
        state: past.state_value(),
        next: position.open().map(|at| name(at.node)).collect(),
        last: (position.steps > 0).then(|| name(position.last)),
        errors: position.suppressed.clone(),
    }
}

/// A difference between two values at a path.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Difference {
    /// The path: names and indices in lists, separated by dots.
    pub path: String,
    /// The first value at the path; `None` if it has nothing there.
    pub before: Option<Value>,
    /// The second value at the path; `None` if it has nothing there.
    pub after: Option<Value>,
}

/// Returns the differences between two states, in the order of the first and then of the second. Each difference names the
/// innermost path, not the objects and lists around it.
///
/// ```
/// # mod graph_runtime { pub use graph_engine::*; pub use graph_proof::*; }
/// use graph_runtime::history::differences;
/// use serde_json::json;
///
/// let found = differences(&json!({"order": {"cents": 900, "tea": 2}}), &json!({"order": {"cents": 810, "tea": 2}}));
/// assert_eq!(found.len(), 1);
/// assert_eq!((found[0].path.as_str(), &found[0].after), ("order.cents", &Some(json!(810))));
/// ```
pub fn differences(before: &Value, after: &Value) -> Vec<Difference> {
    let mut found = Vec::new();
    compare("", before, after, &mut found);
    found
}

fn compare(path: &str, before: &Value, after: &Value, found: &mut Vec<Difference>) {
    let inside = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    let only = |path: String, before: Option<&Value>, after: Option<&Value>| Difference {
        path,
        before: before.cloned(),
        after: after.cloned(),
    };
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            for (name, value) in before {
                match after.get(name) {
                    Some(other) => compare(&inside(name), value, other, found),
                    None => found.push(only(inside(name), Some(value), None)),
                }
            }
            let new = after.iter().filter(|(name, _)| !before.contains_key(*name));
            found.extend(new.map(|(name, value)| only(inside(name), None, Some(value))));
        }
        (Value::Array(before), Value::Array(after)) => {
            for at in 0..before.len().max(after.len()) {
                match (before.get(at), after.get(at)) {
                    (Some(one), Some(other)) => compare(&inside(&at.to_string()), one, other, found),
                    (one, other) => found.push(only(inside(&at.to_string()), one, other)),
                }
            }
        }
        _ if before == after => {}
        _ => found.push(only(path.to_owned(), Some(before), Some(after))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn differences_are_named_where_they_are() {
        let before = json!({"a": 1, "b": {"c": [1, 2, {"d": 3}]}, "e": null, "f": [1]});
        let after = json!({"a": 1.0, "b": {"c": [1, 3, {"d": 3, "x": 4}, 5]}, "e": null, "g": {}});
        let found = differences(&before, &after);
        let found: Vec<_> = found.into_iter().map(|one| (one.path, one.before, one.after)).collect();
        let one = |path: &str, before: Value, after: Value| {
            let some = |value: Value| (!value.is_null()).then_some(value);
            (path.to_owned(), some(before), some(after))
        };
        assert_eq!(
            found,
            [
                one("a", json!(1), json!(1.0)),
                one("b.c.1", json!(2), json!(3)),
                one("b.c.2.x", json!(null), json!(4)),
                one("b.c.3", json!(null), json!(5)),
                one("f", json!([1]), json!(null)),
                one("g", json!(null), json!({})),
            ]
        );
        assert_eq!(differences(&before, &before), []);
    }
}

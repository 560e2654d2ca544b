//! The history of a run: what it was at each of its steps, what differs between two of them, how it would have gone under a changed
//! graph, and runs that begin where another one was.
//!
//! All of it is read from journals, which are verified first. Nothing is called.

mod fork;
mod replay;

use graph_engine::failure::SuppressedError;
use graph_engine::machine::Machine;
use graph_engine::past::Past;
use graph_engine::record::{Entry, JournalError, Record, Sealed, VerifiedJournal, Visit};
use graph_engine::{SealKey, Status};
use graph_model::name::RunId;
use graph_model::value::Value;
use graph_signing::PublicKey;

pub use fork::{Fork, ForkError, ForkRun};
pub use replay::{Departure, Deviation, Replay, Stopped, replay};

/// Why a run cannot be looked at.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PastError {
    /// The journal was changed, or is of another graph.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// There is no such step.
    #[error("the run has no step {step}: its steps are {first} to {last}")]
    NoSuchStep {
        /// What was asked for.
        step: u64,
        /// The first step of its journal: 0, or of a fork the step where it began.
        first: u64,
        /// The last step that was committed.
        last: u64,
    },
    /// Its secrets are sealed, and the key is not there.
    #[error("its secrets are sealed with the key {}, which is not there", .0.as_deref().unwrap_or("of nobody"))]
    Sealed(Option<String>),
    /// Several nodes were visited at once.
    #[error("the run was never at step {step}: the nodes of steps {from} to {to} were visited at once")]
    Between {
        /// What was asked for.
        step: u64,
        /// The first of the steps that were committed together.
        from: u64,
        /// The last of them.
        to: u64,
    },
}

/// Where a run was after a step, or before its first.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Checkpoint {
    /// How many nodes had been visited.
    pub step: u64,
    /// The record that committed it.
    pub record: u64,
    /// When: RFC 3339 in UTC with milliseconds.
    pub at: String,
    /// What the step was: the visits that were committed together; empty before the first step.
    pub visits: Vec<Visited>,
    /// The nodes that were to be visited next. Before the first step that is not written down, and is what was visited then.
    pub next: Vec<String>,
    /// How the run stood until it went on: `running`, or as the end says that follows.
    pub status: Status,
    /// Why it ended there, if it ended with an error.
    pub error: Option<String>,
}

/// A visit, in short.
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
    /// Whether nothing was called, since what it would have returned was in the cache.
    pub cached: bool,
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
            run: visit.run.clone(),
            ms: visit.ms,
        }
    }
}

/// Returns where a run was, step by step. `key` is the public key of the runtime that wrote the journal.
///
/// # Errors
///
/// If the journal was changed.
pub fn checkpoints(run: &RunId, records: &[Sealed], key: &PublicKey) -> Result<Vec<Checkpoint>, JournalError> {
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
    }];
    for record in (1..verified.count()).filter_map(|at| verified.record(at)) {
        let Record { seq, at, entry, .. } = record?;
        let Some(last) = all.last_mut() else { continue };
        match entry {
            Entry::Step(step) => {
                if last.next.is_empty() {
                    last.next = step.visits.iter().map(|visit| visit.node.clone()).collect();
                }
                // A step after a failure means that the failure was repaired and the run continued.
                (last.status, last.error) = (Status::Running, None);
                let next = step.next.iter().map(|target| target.node.clone()).collect();
                let visits: Vec<Visited> = step.visits.iter().map(Visited::of).collect();
                let number = last.step + visits.len() as u64;
                all.push(Checkpoint {
                    step: number,
                    record: seq,
                    at,
                    visits,
                    next,
                    status: Status::Running,
                    error: None,
                });
            }
            // Where a fork begins.
            Entry::Snapshot(snapshot) if seq == 1 && start.from.is_some() => {
                (last.step, last.record) = (snapshot.steps, seq);
                last.next = snapshot.next.into_iter().map(|target| target.node).collect();
            }
            Entry::Resume(_) => (last.status, last.error) = (Status::Running, None),
            Entry::End(end) => (last.status, last.error) = (end.status, end.error),
            _ => {}
        }
    }
    Ok(all)
}

/// What a run was after a step.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct HistoryEntry {
    /// How many nodes had been visited.
    pub step: u64,
    /// When the step was committed, or the run begun: RFC 3339 in UTC with milliseconds.
    pub at: String,
    /// The state: inputs, keys that are set, `_last_error` and `_retries` where there are any. For secrets there stands `[secret]`.
    pub state: Value,
    /// The nodes that were to be visited next.
    pub next: Vec<String>,
    /// The node that was visited last, if one was.
    pub last: Option<String>,
    /// The failures that the run had gone on after.
    pub errors: Vec<SuppressedError>,
}

/// Returns what a run was after `step` visits, or after its last if no number is given.
///
/// `machine` is the run's graph, and `seal` what its secrets were sealed with: without it the state is shown all the same.
///
/// # Errors
///
/// If the journal was changed or is another graph's, or there is no such step.
pub fn entry_at(
    machine: &dyn Machine,
    run: &RunId,
    records: &[Sealed],
    key: &PublicKey,
    seal: Option<&SealKey>,
    step: Option<u64>,
) -> Result<HistoryEntry, PastError> {
    let mut past = Past::open(machine, run, records, key, seal)?;
    go_to(&mut past, step)?;
    Ok(entry_of(&past))
}

/// Goes to a step, from one that is not behind it; to the last one if no number is given.
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
        _ => Ok(()),
    }
}

/// Returns where a run is, with its secrets hidden.
pub(crate) fn entry_of(past: &Past<'_>) -> HistoryEntry {
    let (code, position) = (past.graph(), &past.position);
    let name = |node: u16| code.node(node).name.clone();
    HistoryEntry {
        step: position.steps,
        at: past.when.0.clone(),
        state: past.state_value(),
        next: position.frontier.iter().map(|at| name(at.node)).collect(),
        last: (position.steps > 0).then(|| name(position.last)),
        errors: position.suppressed.clone(),
    }
}

/// What differs between two values at a path.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Difference {
    /// Where: names and places in lists with dots between them.
    pub path: String,
    /// What is there in the first; `None` if nothing is.
    pub before: Option<Value>,
    /// What is there in the second.
    pub after: Option<Value>,
}

/// Returns what differs between two states, in the order of the first and then of the second: each difference where it is, not
/// the objects and lists around it.
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

//! Time travel: what a run was at each of its steps, what differs between two of them, how it would have gone under a changed
//! graph, and runs that begin where another one was.
//!
//! All of it is read from journals, which are verified first. Nothing is called.

mod fork;
mod replay;

use std::sync::Arc;

use graph_model::name::RunId;
use graph_model::program::{LAST_ERROR, RETRIES};
use graph_model::signature::PublicKey;
use graph_model::value::{Map, Mismatch, Value, View};

use crate::engine::state_value;
use crate::error::SuppressedError;
use crate::graph::CompiledGraph;
use crate::machine::{Cells, Machine};
use crate::record::{End, Entry, JournalError, Record, Sealed, Snapshot, Start, Status, Step, Verified, Visit};
use crate::runtime::initialise;
use crate::seal::SealKey;
use crate::step::{Position, retake};
use crate::vault::{Vault, hide_sealed};

pub use fork::{Fork, ForkError};
pub use replay::{Departure, Deviation, Replay, Stopped, replay};

/// Why a run cannot be looked at.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TravelError {
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
    /// What the step was: the visits that were committed together; none before the first step.
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
    let verified = Verified::new(run, records, key)?;
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
    for record in (1..verified.len()).filter_map(|at| verified.record(at)) {
        let Record { seq, at, entry, .. } = record?;
        let Some(last) = all.last_mut() else { continue };
        match entry {
            Entry::Step(step) => {
                if last.next.is_empty() {
                    last.next = step.visits.iter().map(|visit| visit.node.clone()).collect();
                }
                // What comes after a failure that was mended goes on.
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
            Entry::Start(_) | Entry::Calls(_) | Entry::Snapshot(_) => {}
        }
    }
    Ok(all)
}

/// What a run was after a step.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Moment {
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
pub fn moment(
    machine: &dyn Machine,
    run: &RunId,
    records: &[Sealed],
    key: &PublicKey,
    seal: Option<&SealKey>,
    step: Option<u64>,
) -> Result<Moment, TravelError> {
    let mut past = Past::open(machine, run, records, key, seal)?;
    past.go_to(step)?;
    Ok(past.moment())
}

/// A run that is followed along its journal, of which one record is read at a time.
pub(crate) struct Past<'m> {
    machine: &'m dyn Machine,
    verified: Verified<'m>,
    vault: Option<Arc<Vault>>,
    pub(crate) start: Start,
    /// The record that is read next.
    at: usize,
    /// The next step, if it was read.
    ahead: Option<Record>,
    /// What it was granted when it was resumed, as far as it was read.
    pub(crate) resumed: Vec<Vec<String>>,
    /// The end that was read last, if no record followed.
    pub(crate) end: Option<End>,
    /// How many steps the run may take behind the record that was read last, where that is not what the graph says.
    pub(crate) limit: Option<u64>,
    /// When the step was committed that it stands behind, and by which record.
    pub(crate) when: (String, u64),
    pub(crate) position: Position,
    pub(crate) seen: Seen,
}

/// The state of a run in the past.
pub(crate) enum Seen {
    Plain(Box<dyn Cells>),
    /// What is sealed cannot be read as the graph's types: inputs and keys as the records have them.
    Sealed {
        inputs: Value,
        keys: Map<String, Value>,
    },
}

impl<'m> Past<'m> {
    /// Verifies a journal, and stands at its beginning.
    pub(crate) fn open(
        machine: &'m dyn Machine,
        run: &RunId,
        records: &'m [Sealed],
        key: &PublicKey,
        seal: Option<&SealKey>,
    ) -> Result<Self, JournalError> {
        let code = machine.graph();
        let verified = Verified::new(run, records, key)?;
        let (started, mut start) = verified.start()?;
        if start.digest != code.digest || start.graph != code.id.as_str() {
            let (found, expected) = ((&start.graph, start.digest), (&code.id, code.digest));
            let found = format!("`{}` ({})", found.0, found.1);
            let expected = format!("`{}` ({})", expected.0, expected.1);
            let reason = format!("it is a run of {found}, and the graph that was brought is {expected}");
            return Err(JournalError::Misfit { seq: 0, reason });
        }
        let vault = seal.and_then(|seal| Vault::open(code, run, Some(seal), true).ok().flatten());
        if let Some(vault) = &vault {
            vault.unseal_start(code, &mut start)?;
        }
        let inputs = start.inputs.clone();
        let first = |reason: String| JournalError::Misfit { seq: 0, reason };
        let seen = if vault.is_some() || code.settings.secrets.is_empty() {
            Seen::Plain(opened(machine, inputs).map_err(first)?)
        } else {
            let initial = code.keys.iter().filter_map(|key| Some((key.name.clone(), key.initial.clone()?)));
            Seen::Sealed { inputs, keys: initial.collect() }
        };
        let mut position = Position::new(code);
        position.limit = start.limit.map(u64::from);
        let (ahead, resumed, end, limit) = (None, Vec::new(), None, None);
        let when = (started, 0);
        let mut past =
            Self { machine, verified, vault, start, at: 1, ahead, resumed, end, limit, when, position, seen };
        past.begin_fork()?;
        past.limit = past.position.limit;
        Ok(past)
    }

    pub(crate) fn graph(&self) -> &'m CompiledGraph {
        self.machine.graph()
    }

    /// Returns the state, if it can be read as the graph's types.
    pub(crate) fn state(&self) -> Option<&dyn Cells> {
        match &self.seen {
            Seen::Plain(state) => Some(&**state),
            Seen::Sealed { .. } => None,
        }
    }

    /// Reads the next record.
    fn read(&mut self) -> Result<Option<Record>, JournalError> {
        let Some(mut record) = self.verified.record(self.at).transpose()? else { return Ok(None) };
        if let Some(vault) = &self.vault {
            vault.unseal_record(self.machine.graph(), &mut record)?;
        }
        self.at += 1;
        Ok(Some(record))
    }

    /// Goes to where a fork begins, if the run is one.
    fn begin_fork(&mut self) -> Result<(), JournalError> {
        let code = self.machine.graph();
        if self.start.from.is_none() {
            return Ok(());
        }
        let Some(Record { entry: Entry::Snapshot(snapshot), seq, .. }) = self.read()? else {
            let reason = "it names another run where it began, and no snapshot follows".to_owned();
            return Err(JournalError::Misfit { seq: 0, reason });
        };
        let misfit = |reason| JournalError::Misfit { seq, reason };
        match &mut self.seen {
            Seen::Plain(state) => self.position = snapshot.restore(code, &mut **state).map_err(misfit)?,
            Seen::Sealed { keys, .. } => {
                self.position = position_of(&snapshot, code).map_err(misfit)?;
                keys.clone_from(&snapshot.keys);
            }
        }
        self.when.1 = seq;
        Ok(())
    }

    /// Returns the next step of the journal, if there is one, with the time that it was committed.
    pub(crate) fn next_step(&mut self) -> Result<Option<(u64, &Step, &str)>, JournalError> {
        while self.ahead.is_none() {
            let Some(record) = self.read()? else { return Ok(None) };
            self.end = None;
            match record.entry {
                Entry::Step(ref step) => {
                    self.limit = step.limit.or(self.limit);
                    self.ahead = Some(record);
                }
                Entry::Resume(resume) => {
                    self.limit = resume.limit.map(u64::from).or(self.limit);
                    self.resumed.push(resume.grants);
                }
                Entry::End(end) => self.end = Some(end),
                Entry::Start(_) | Entry::Calls(_) | Entry::Snapshot(_) => {}
            }
        }
        Ok(match &self.ahead {
            Some(Record { entry: Entry::Step(step), seq, at, .. }) => Some((*seq, step, at)),
            _ => None,
        })
    }

    /// Goes one step on. False where there is none.
    pub(crate) fn go_on(&mut self) -> Result<bool, JournalError> {
        if self.next_step()?.is_none() {
            return Ok(false);
        }
        let Some(Record { entry: Entry::Step(step), seq, at, .. }) = self.ahead.take() else {
            return Ok(false);
        };
        let code = self.machine.graph();
        let misfit = |reason| JournalError::Misfit { seq, reason };
        match &mut self.seen {
            Seen::Plain(state) => {
                retake(code, Some(&mut **state), &mut self.position, &step).map_err(misfit)?;
            }
            Seen::Sealed { keys, .. } => {
                retake(code, None, &mut self.position, &step).map_err(misfit)?;
                for (name, value) in step.visits.iter().flat_map(|visit| &visit.changes) {
                    keys.insert(name.clone(), value.clone());
                }
            }
        }
        self.when = (at, seq);
        Ok(true)
    }

    /// Goes to a step, from one that is not behind it; to the last one if no number is given.
    pub(crate) fn go_to(&mut self, step: Option<u64>) -> Result<(), TravelError> {
        let first = self.position.steps;
        let mut before = first;
        while step.is_none_or(|step| self.position.steps < step) {
            before = self.position.steps;
            if !self.go_on()? {
                break;
            }
        }
        match step {
            Some(step) if step < first || step > self.position.steps => {
                while self.go_on()? {}
                Err(TravelError::NoSuchStep { step, first, last: self.position.steps })
            }
            Some(step) if step != self.position.steps => {
                Err(TravelError::Between { step, from: before + 1, to: self.position.steps })
            }
            _ => Ok(()),
        }
    }

    /// Returns where the run is, with its secrets hidden.
    pub(crate) fn moment(&self) -> Moment {
        let (code, position) = (self.machine.graph(), &self.position);
        let state = match &self.seen {
            Seen::Plain(state) => state_value(code, &**state, position),
            Seen::Sealed { inputs, keys } => {
                let mut map = Map::from_iter([("inputs".to_owned(), inputs.clone())]);
                let set = keys.iter().filter(|(_, value)| !value.is_null());
                map.extend(set.map(|(name, value)| (name.clone(), value.clone())));
                if let Some(error) = &position.root.last_error {
                    map.insert(LAST_ERROR.to_owned(), serde_json::json!({"node": error.node, "error": error.error}));
                }
                if !position.root.retries.is_empty() {
                    map.insert(RETRIES.to_owned(), Value::Object(position.root.retries.clone()));
                }
                let mut state = Value::Object(map);
                hide_sealed(&mut state);
                state
            }
        };
        let name = |node: u16| code.node(node).name.clone();
        Moment {
            step: position.steps,
            at: self.when.0.clone(),
            state,
            next: position.frontier.iter().map(|at| name(at.node)).collect(),
            last: (position.steps > 0).then(|| name(position.last)),
            errors: position.suppressed.clone(),
        }
    }
}

/// Returns the state of a run that is about to begin with inputs.
pub(crate) fn opened(machine: &dyn Machine, inputs: Value) -> Result<Box<dyn Cells>, String> {
    let mut state = machine.open(inputs).map_err(|error| error.to_string())?;
    initialise(machine.graph(), &mut *state).map_err(|error| error.to_string())?;
    Ok(state)
}

/// Returns where a snapshot stands, without what it holds, which may be sealed.
pub(crate) fn position_of(snapshot: &Snapshot, code: &CompiledGraph) -> Result<Position, String> {
    Snapshot { keys: Map::new(), ..snapshot.clone() }.restore(code, &mut NoCells)
}

/// A state that holds nothing.
struct NoCells;

impl Cells for NoCells {
    fn inputs(&self) -> View<'_> {
        View::Null
    }

    fn get(&self, _: usize) -> View<'_> {
        View::Null
    }

    fn check(&self, _: usize, _: &Value) -> Result<(), Mismatch> {
        Ok(())
    }

    fn set(&mut self, _: usize, _: Value) -> Result<(), Mismatch> {
        Ok(())
    }
}

/// What differs between two values at a path.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Difference {
    /// Where: names and places in lists with dots between them.
    pub path: String,
    /// What is there in the first; none if nothing is.
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

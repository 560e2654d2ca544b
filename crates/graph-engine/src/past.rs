//! Follows a run along its journal.

use crate::activation::Activation;
use crate::admission::initialise;
use crate::encryption_key::EncryptionKey;
use crate::graph::{CompiledKey, GraphTables, tables};
use crate::machine::Machine;
use crate::record::{
    Chain, CompletedCalls, Edit, End, Entry, JournalError, Record, Resume, SignedRecord, Start, Step, VerifiedJournal,
    retake,
};
use crate::run_secrets::{RunSecrets, hide_encrypted};
use crate::state::StateFields;
use crate::step::{Position, TakenWait, state_value};
use std::sync::Arc;

use graph_model::name::RunId;
use graph_model::program::{LAST_ERROR, RETRIES};
use graph_model::value::{Map, Value};
use graph_signing::PublicKey;

/// A run that is followed along its journal, one record at a time.
pub struct Past<'m> {
    machine: &'m dyn Machine,
    verified: VerifiedJournal<'m>,
    run_secrets: Option<Arc<RunSecrets>>,
    /// The first record.
    pub start: Start,
    /// The record that is read next.
    at: usize,
    /// The next step, if it was read.
    ahead: Option<Record>,
    /// The resumes that were read.
    pub resumed: Vec<Resume>,
    /// The waits that were over.
    pub taken: Vec<TakenWait>,
    /// Those that are over before the next step, or the next edit.
    ahead_taken: Vec<TakenWait>,
    /// Whether the run was resumed before its next step.
    is_resumed: bool,
    /// The end that was read last, if nothing but edits followed.
    pub end: Option<End>,
    /// The calls of the next step that were read and are not made again.
    pub done: CompletedCalls,
    /// The last record that is read; `None` for all.
    pub until: Option<u64>,
    /// The edits that were made.
    pub edits: Vec<Edit>,
    /// How many steps the run may take after the record that was read last, if that differs from the graph's limit.
    pub limit: Option<u64>,
    /// When the last step before the position was committed, or the last edit made, and the number of its record.
    pub when: (String, u64),
    /// The position of the run.
    pub position: Position,
    /// The state at the position.
    pub seen: Seen,
}

/// The state of a run in the past.
pub enum Seen {
    /// A state with the types of the graph.
    Plain(Box<dyn StateFields>),
    /// The inputs and keys as the records have them: encrypted values cannot be read as the graph's types.
    Encrypted {
        /// The inputs.
        inputs: Value,
        /// The keys that are set, by their names.
        keys: Map<String, Value>,
    },
}

impl<'m> Past<'m> {
    /// Verifies a journal and begins at its start, under the version of the graph that the run is under.
    pub fn open(
        machine: &'m dyn Machine,
        run: &RunId,
        records: &'m [SignedRecord],
        key: &PublicKey,
        encryption_key: Option<&EncryptionKey>,
    ) -> Result<Self, JournalError> {
        let verified = VerifiedJournal::new(run, records, key)?;
        let (started, mut start) = verified.start()?;
        let machine = start.version_of(machine);
        let code = tables(machine.graph());
        if !start.is_under(machine.graph()) {
            let (found, expected) = ((&start.graph, start.digest), (&code.id, code.digest));
            let found = format!("`{}` ({})", found.0, found.1);
            let expected = format!("`{}` ({})", expected.0, expected.1);
            let reason = format!("it is a run of {found}, and the graph that was brought is {expected}");
            return Err(JournalError::Misfit { seq: 0, reason });
        }
        let run_secrets = encryption_key
            .and_then(|encryption_key| RunSecrets::open(code, run, Some(encryption_key), true).ok().flatten());
        let first = |reason: String| JournalError::Misfit { seq: 0, reason };
        if let Some(run_secrets) = &run_secrets {
            if start.encryption_key != run_secrets.fingerprint() {
                return Err(first("its secrets are encrypted with another key".to_owned()));
            }
            run_secrets.decrypt_start(code, &mut start)?;
        }
        let inputs = start.inputs.clone();
        let mut seen = if run_secrets.is_some() || code.settings.secrets.is_empty() {
            Seen::Plain(opened(machine, inputs).map_err(first)?)
        } else {
            let initial = code.keys.iter().filter_map(|key| Some((key.name.clone(), key.initial.clone()?)));
            Seen::Encrypted { inputs, keys: initial.collect() }
        };
        let begun = match &mut seen {
            Seen::Plain(state) => start.begin(code, Some(&mut **state)),
            Seen::Encrypted { keys, .. } => {
                let set = start.shared.iter().filter(|(_, value)| !value.is_null());
                keys.extend(set.map(|(name, value)| (name.clone(), value.clone())));
                start.begin(code, None)
            }
        };
        let position = begun.map_err(first)?;
        let mut past = Self {
            machine,
            verified,
            run_secrets,
            start,
            at: 1,
            ahead: None,
            resumed: Vec::new(),
            taken: Vec::new(),
            ahead_taken: Vec::new(),
            is_resumed: false,
            end: None,
            done: CompletedCalls::new(),
            until: None,
            edits: Vec::new(),
            limit: None,
            when: (started, 0),
            position,
            seen,
        };
        past.begin_fork()?;
        past.limit = past.position.limit;
        Ok(past)
    }

    /// Returns the run's graph.
    pub fn graph(&self) -> &'m GraphTables {
        tables(self.machine.graph())
    }

    /// Returns the secrets of the run, if its graph has some and their key is there.
    pub fn run_secrets(&self) -> Option<&Arc<RunSecrets>> {
        self.run_secrets.as_ref()
    }

    /// Returns the end of the whole journal's chain, to which records are appended.
    pub fn chain(&self) -> Chain {
        self.verified.chain().clone()
    }

    /// Returns the state, if it can be read as the graph's types.
    pub fn state(&self) -> Option<&dyn StateFields> {
        match &self.seen {
            Seen::Plain(state) => Some(&**state),
            Seen::Encrypted { .. } => None,
        }
    }

    /// Returns the state as JSON, with its secrets hidden.
    pub fn state_value(&self) -> Value {
        let (code, position) = (tables(self.machine.graph()), &self.position);
        match &self.seen {
            Seen::Plain(state) => state_value(code, &**state, position),
            Seen::Encrypted { inputs, keys } => {
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
                hide_encrypted(&mut state);
                state
            }
        }
    }

    /// Reads the next record.
    fn read(&mut self) -> Result<Option<Record>, JournalError> {
        if self.until.is_some_and(|until| self.at as u64 > until) {
            return Ok(None);
        }
        let Some(mut record) = self.verified.record(self.at).transpose()? else { return Ok(None) };
        if let Some(run_secrets) = &self.run_secrets {
            run_secrets.decrypt_record(tables(self.machine.graph()), &mut record)?;
        }
        self.at += 1;
        Ok(Some(record))
    }

    /// Moves to where a fork begins, if the run is one.
    fn begin_fork(&mut self) -> Result<(), JournalError> {
        let code = tables(self.machine.graph());
        if self.start.from.is_none() {
            return Ok(());
        }
        let Some(Record { entry: Entry::Snapshot(snapshot), seq, .. }) = self.read()? else {
            let reason = "it names another run where it began, and no snapshot follows".to_owned();
            return Err(JournalError::Misfit { seq: 0, reason });
        };
        let misfit = |reason| JournalError::Misfit { seq, reason };
        let restored = match &mut self.seen {
            Seen::Plain(state) => snapshot.restore(code, Some(&mut **state)),
            Seen::Encrypted { keys, .. } => {
                keys.clone_from(&snapshot.keys);
                snapshot.restore(code, None)
            }
        };
        self.position = restored.map_err(misfit)?;
        self.when.1 = seq;
        Ok(())
    }

    /// Returns the next step of the journal, if there is one, with its record's number and the time at which it was
    /// committed. The edits before it are made then.
    pub fn next_step(&mut self) -> Result<Option<(u64, &Step, &str)>, JournalError> {
        while self.ahead.is_none() {
            let Some(record) = self.read()? else { return Ok(None) };
            if !matches!(record.entry, Entry::Edit(_)) {
                self.end = None;
            }
            match record.entry {
                Entry::Step(ref step) => {
                    self.limit = step.limit.or(self.limit);
                    self.ahead = Some(record);
                }
                Entry::Resume(resume) => {
                    self.limit = resume.limit.map(u64::from).or(self.limit);
                    self.is_resumed = true;
                    self.resumed.push(resume);
                }
                Entry::End(end) => {
                    self.done.retain(|_, done| !end.forgets(done));
                    self.end = Some(end);
                }
                Entry::Calls(calls) => {
                    self.done.extend(calls.done.into_iter().map(|done| ((done.step, done.item), done)));
                }
                Entry::Take(take) => {
                    self.ahead_taken.extend(take.taken.iter().cloned());
                    self.taken.extend(take.taken);
                }
                Entry::Edit(edit) => {
                    self.take_waits(record.seq)?;
                    let (code, seq) = (tables(self.machine.graph()), record.seq);
                    let (changes, position) = (edit.changes(), &mut self.position);
                    let edited = match &mut self.seen {
                        Seen::Plain(state) => changes.apply(code, position, Some(&mut **state)),
                        Seen::Encrypted { keys, .. } => changes
                            .apply(code, position, None)
                            .and_then(|()| changes.write_to(&code.settings.channels, keys)),
                    };
                    edited.map_err(|error| JournalError::Misfit { seq, reason: error.to_string() })?;
                    self.when = (record.at, seq);
                    self.edits.push(edit);
                }
                Entry::Start(_) | Entry::Snapshot(_) => {}
            }
        }
        Ok(match &self.ahead {
            Some(Record { entry: Entry::Step(step), seq, at, .. }) => Some((*seq, step, at)),
            _ => None,
        })
    }

    /// Returns the activations of the [next step](Self::next_step). If the run was resumed before it, they include those whose
    /// failures were held.
    pub fn next_frontier(&self) -> Vec<Activation> {
        let resumes = self.is_resumed && !self.position.held.is_empty();
        if !resumes && self.ahead_taken.is_empty() {
            return self.position.frontier.clone();
        }
        let mut position = self.position.clone();
        if resumes {
            position.resume();
        }
        // A step that does not fit is refused when it is taken.
        let _fits = position.take_waits(tables(self.machine.graph()), &self.ahead_taken);
        position.frontier
    }

    /// Continues the visits whose waits are over before record `seq`.
    fn take_waits(&mut self, seq: u64) -> Result<(), JournalError> {
        let taken = std::mem::take(&mut self.ahead_taken);
        let taken = self.position.take_waits(tables(self.machine.graph()), &taken);
        taken.map_err(|reason| JournalError::Misfit { seq, reason })
    }

    /// Advances by one step. Returns `false` if there is no further step.
    pub fn go_on(&mut self) -> Result<bool, JournalError> {
        if self.next_step()?.is_none() {
            return Ok(false);
        }
        let Some(Record { entry: Entry::Step(step), seq, at, .. }) = self.ahead.take() else {
            return Ok(false);
        };
        if std::mem::take(&mut self.is_resumed) {
            self.position.resume();
        }
        self.take_waits(seq)?;
        let code = tables(self.machine.graph());
        let misfit = |reason| JournalError::Misfit { seq, reason };
        match &mut self.seen {
            Seen::Plain(state) => {
                retake(code, Some(&mut **state), &mut self.position, &step).map_err(misfit)?;
            }
            Seen::Encrypted { keys, .. } => {
                retake(code, None, &mut self.position, &step).map_err(misfit)?;
                write_encrypted(code, keys, &step).map_err(misfit)?;
            }
        }
        step.keep_calls(&mut self.done);
        self.when = (at, seq);
        Ok(true)
    }
}

/// Writes the changes of a step to the keys of a state whose secrets are encrypted.
fn write_encrypted(code: &GraphTables, keys: &mut Map<String, Value>, step: &Step) -> Result<(), String> {
    for key in code.kept_for_a_step.iter().map(|key| &code.keys[*key]) {
        keys.insert(key.name.clone(), key.initial.clone().unwrap_or_default());
    }
    step.visits.iter().try_for_each(|visit| {
        let node = code.node_named(&visit.node).map(|node| code.node(node));
        let (reset, share) = node.map_or((&[][..], &[][..]), |node| (&node.reset, &node.share));
        let first = |key: &CompiledKey| (key.name.clone(), key.initial.clone().unwrap_or_default());
        let shares = |name: &str| share.iter().any(|&key| code.keys[key].name == name);
        visit.write_to(keys, &code.settings.channels, reset.iter().map(|&key| first(&code.keys[key])), shares)
    })?;
    keys.extend(step.reduced.iter().map(|(name, value)| (name.clone(), value.clone())));
    step.ordered.iter().try_for_each(|order| order.apply(keys))
}

/// Returns the state of a run that is about to begin with inputs.
pub fn opened(machine: &dyn Machine, inputs: Value) -> Result<Box<dyn StateFields>, String> {
    let mut state = machine.open(inputs).map_err(|error| error.to_string())?;
    initialise(tables(machine.graph()), &mut *state).map_err(|error| error.to_string())?;
    Ok(state)
}

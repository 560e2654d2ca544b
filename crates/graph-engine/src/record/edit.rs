//! Edits: changes that a person makes to the state of a run that is not in progress.

use std::collections::BTreeSet;

use graph_model::reducer::{Channels, Reducer, Uncombined};
use graph_model::value::{Map, Mismatch, Value};

use crate::graph::GraphTables;
use crate::record::entry::{Edit, write_keys};
use crate::record::recorded_state::RecordedState;
use crate::state::{StateFields, combine};
use crate::step::Position;

/// Values for keys of a run's state.
#[derive(Debug, Clone, Copy)]
pub struct StateChanges<'a> {
    /// The keys that are overwritten; null unsets a key.
    pub set: &'a Map<String, Value>,
    /// The values that are written as a node writes them: a channel combines the write with its value.
    pub write: &'a Map<String, Value>,
    /// For changes that a record states: the values of the written channels whose reducer is a function of the program.
    pub recorded: Option<&'a Map<String, Value>>,
}

/// The reason why the state of a run cannot be changed as asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChangeError {
    /// The graph has no such state key.
    #[error("the graph has no state key `{key}`; it has `{}`", known.join("`, `"))]
    UnknownKey {
        /// The unknown key.
        key: String,
        /// The graph's state keys.
        known: Vec<String>,
    },
    /// A value is not of the key's type.
    #[error("the state key `{key}` cannot be changed so: {mismatch}")]
    Value {
        /// The key.
        key: String,
        /// The mismatch between the value and the key's type.
        mismatch: Mismatch,
    },
    /// A write cannot be combined with the value of its channel.
    #[error("the state key `{key}` cannot be written so: {reason}")]
    Uncombined {
        /// The key.
        key: String,
        /// Why not.
        reason: Uncombined,
    },
    /// A channel cannot hold a value.
    #[error("the state key `{key}` is a channel that `{reducer}` adds to, which cannot hold this")]
    Channel {
        /// The key.
        key: String,
        /// How its writes are combined.
        reducer: Reducer,
    },
    /// The record of the change has other channels whose reducers are functions of the program.
    #[error("it does not have the values of the channels that functions of the program combine")]
    Unrecorded,
    /// No journal has the key, which is kept in memory only.
    #[error("the state key `{key}` is kept in memory only, and a run that is resumed does not have it")]
    InMemory {
        /// The key.
        key: String,
    },
    /// A key has two values.
    #[error("the state key `{key}` is both set and written: set it to its final value")]
    Twice {
        /// The key.
        key: String,
    },
}

impl<'a> StateChanges<'a> {
    /// Returns the names of the keys: those that are set, and then those that are written.
    pub fn keys(self) -> impl Iterator<Item = &'a String> + Clone {
        self.set.keys().chain(self.write.keys())
    }

    /// Makes the changes to a run: to its position, and to its state unless that is encrypted.
    ///
    /// # Errors
    ///
    /// If the graph has no such key, a key is named twice, or a value does not fit. Some of the changes may be made then.
    pub fn apply(
        &self,
        graph: &GraphTables,
        position: &mut Position,
        state: Option<&mut (dyn StateFields + 'static)>,
    ) -> Result<(), ChangeError> {
        self.check_keys(graph)?;
        if let Some(recorded) = self.recorded
            && !self.functions(graph).map(|(name, ..)| name).eq(recorded.keys())
        {
            return Err(ChangeError::Unrecorded);
        }
        self.follow_elements(graph, position);
        let Some(state) = state else { return Ok(()) };
        let values = self.set.iter().map(|one| (one, false)).chain(self.write.iter().map(|one| (one, true)));
        for ((name, value), is_write) in values {
            let Some(key) = graph.key_named(name) else { continue };
            let value = match &graph.keys[key].reducer {
                Some(reducer) if is_write => match self.recorded.filter(|_| reducer.function().is_some()) {
                    Some(recorded) => recorded.get(name).cloned().unwrap_or_default(),
                    None => combined(state, (name, key), reducer, value)?,
                },
                Some(reducer) if !reducer.holds(value) => {
                    return Err(ChangeError::Channel { key: name.clone(), reducer: reducer.clone() });
                }
                _ => value.clone(),
            };
            state.set(key, value).map_err(|mismatch| ChangeError::Value { key: name.clone(), mismatch })?;
        }
        Ok(())
    }

    /// Returns the written channels whose reducer is a function of the program: their names, indices, reducers and writes.
    fn functions<'g>(
        self,
        graph: &'g GraphTables,
    ) -> impl Iterator<Item = (&'a String, usize, &'g Reducer, &'a Value)> {
        self.write.iter().filter_map(|(name, write)| {
            let key = graph.key_named(name)?;
            let reducer = graph.keys[key].reducer.as_ref().filter(|reducer| reducer.function().is_some())?;
            Some((name, key, reducer, write))
        })
    }

    /// Returns the values that the functions of the program yield for the writes.
    ///
    /// # Errors
    ///
    /// If a function fails or is not there.
    pub fn reduce(self, graph: &GraphTables, state: &dyn StateFields) -> Result<Map<String, Value>, ChangeError> {
        let value = |(name, key, reducer, write): (&String, usize, &Reducer, &Value)| {
            Ok((name.clone(), combined(state, (name, key), reducer, write)?))
        };
        self.functions(graph).map(value).collect()
    }

    /// Makes the changes to the keys of a state whose secrets may be encrypted or hidden.
    ///
    /// # Errors
    ///
    /// If a write cannot be combined with the value of its channel.
    pub fn write_to(&self, channels: &Channels, keys: &mut Map<String, Value>) -> Result<(), ChangeError> {
        keys.extend(self.set.iter().map(|(name, value)| (name.clone(), value.clone())));
        keys.extend(self.recorded.into_iter().flatten().map(|(name, value)| (name.clone(), value.clone())));
        write_keys(keys, channels, self.write).map_err(|(key, reason)| ChangeError::Uncombined { key, reason })
    }

    /// Follows the elements of channels that are put in the order of the branches: no branch has written these.
    fn follow_elements(&self, graph: &GraphTables, position: &mut Position) {
        for key in self.set.keys().filter_map(|name| graph.key_named(name)) {
            position.paths.remove(&key);
        }
        for (name, write) in self.write {
            let paths = graph.key_named(name).and_then(|key| Some((key, position.paths.get_mut(&key)?)));
            if let Some((key, paths)) = paths {
                paths.extend(std::iter::repeat_n(Vec::new(), graph.keys[key].added(write)));
            }
        }
    }

    /// Fails unless each key is one of the graph and is named once.
    pub fn check_keys(&self, graph: &GraphTables) -> Result<(), ChangeError> {
        if let Some(key) = self.keys().find(|name| graph.key_named(name).is_none()) {
            let known = graph.keys.iter().map(|key| key.name.clone()).collect();
            return Err(ChangeError::UnknownKey { key: key.clone(), known });
        }
        let is_in_memory = |name: &&String| graph.key_named(name).is_some_and(|key| graph.keys[key].is_in_memory());
        if let Some(key) = self.keys().find(is_in_memory) {
            return Err(ChangeError::InMemory { key: key.clone() });
        }
        match self.write.keys().find(|name| self.set.contains_key(*name)) {
            Some(key) => Err(ChangeError::Twice { key: key.clone() }),
            None => Ok(()),
        }
    }
}

impl Edit {
    /// Returns the changes.
    pub fn changes(&self) -> StateChanges<'_> {
        StateChanges { set: &self.set, write: &self.write, recorded: Some(&self.reduced) }
    }

    /// Combines its writes with the functions of the program again. Returns the channels whose function is not there.
    ///
    /// # Errors
    ///
    /// If a function fails, or yields another value than the record says.
    pub fn combines_as_recorded(
        &self,
        graph: &GraphTables,
        state: &dyn StateFields,
    ) -> Result<BTreeSet<usize>, String> {
        let proving = RecordedState::of(graph, state, &self.reduced).proving();
        let found = self.changes().reduce(graph, &proving).map_err(|error| error.to_string())?;
        if found != self.reduced {
            return Err("it has other values of the channels that functions of the program combine".to_owned());
        }
        Ok(proving.missing())
    }
}

/// Combines a write with the value of a channel.
fn combined(
    state: &dyn StateFields,
    (name, key): (&str, usize),
    reducer: &Reducer,
    write: &Value,
) -> Result<Value, ChangeError> {
    let combined = combine(state, key, reducer, state.get(key).to_plain_value(), write);
    combined.map_err(|reason| ChangeError::Uncombined { key: name.to_owned(), reason })
}

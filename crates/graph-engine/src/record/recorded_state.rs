//! The values that functions of the program yielded in a run, according to its journal.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use graph_model::reducer::{ReducerError, Uncombined};
use graph_model::value::{Map, Mismatch, Value, View};

use crate::graph::GraphTables;
use crate::record::entry::Visit;
use crate::state::StateFields;

/// A state in which reducers that are functions of the program yield the values that a record has of them. So a run that is
/// resumed, followed or audited needs no such function.
///
/// For an audit, the functions that the program has are called, and the recorded values take the place of the others.
pub struct RecordedState<'s> {
    graph: &'s GraphTables,
    state: &'s dyn StateFields,
    /// The recorded values, by the names of the channels.
    reduced: &'s Map<String, Value>,
    /// The node, and the failure of its visit, if the values are those that a visit saw.
    visit: Option<(u16, Option<&'s str>)>,
    calls: bool,
    /// The channels whose function was needed and is not there.
    missing: Mutex<BTreeSet<usize>>,
}

impl<'s> RecordedState<'s> {
    /// Returns the state in which writes are combined to these values, by the names of the channels.
    pub fn of(graph: &'s GraphTables, state: &'s dyn StateFields, reduced: &'s Map<String, Value>) -> Self {
        Self { graph, state, reduced, visit: None, calls: false, missing: Mutex::default() }
    }

    /// Returns the state in which a visit sees its own writes as its record says.
    pub fn of_visit(graph: &'s GraphTables, state: &'s dyn StateFields, node: u16, visit: &'s Visit) -> Self {
        let visited = Some((node, visit.error.as_deref()));
        Self { visit: visited, ..Self::of(graph, state, &visit.reduced) }
    }

    /// As before, but the functions that the program has are called.
    #[must_use]
    pub fn proving(self) -> Self {
        Self { calls: true, ..self }
    }

    /// Returns the channels whose function was needed and is not there.
    pub fn missing(self) -> BTreeSet<usize> {
        self.missing.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the recorded result of a function.
    fn recorded(&self, key: usize, write: &Value) -> Result<Value, ReducerError> {
        let name = &self.graph.keys[key].name;
        if let Some(value) = self.reduced.get(name) {
            return Ok(value.clone());
        }
        let unknown = || ReducerError::new("its value is not in the record");
        let Some((node, error)) = self.visit else { return Err(unknown()) };
        let function = self.graph.keys[key].reducer.as_ref().and_then(|reducer| reducer.function());
        let failed = error.zip(function).and_then(|(error, function)| {
            let why = error.strip_prefix(&format!("`state.{name}`: "))?;
            Uncombined::read_failure(function, why)
        });
        match failed {
            Some(error) => Err(error),
            // The value is recorded if the node reads it.
            None if self.graph.node(node).seen.contains(&key) => Err(unknown()),
            None => Ok(write.clone()),
        }
    }
}

impl StateFields for RecordedState<'_> {
    fn inputs(&self) -> View<'_> {
        self.state.inputs()
    }

    fn get(&self, key: usize) -> View<'_> {
        self.state.get(key)
    }

    fn check(&self, key: usize, value: &Value) -> Result<(), Mismatch> {
        self.state.check(key, value)
    }

    fn set(&mut self, _: usize, value: Value) -> Result<(), Mismatch> {
        Err(Mismatch::new("a state that is written", graph_model::value::AsView::view(&value)))
    }

    fn check_element(&self, key: usize, element: &Value) -> Result<(), Mismatch> {
        self.state.check_element(key, element)
    }

    fn reduce(&self, key: usize, value: View<'_>, write: &Value) -> Option<Result<Value, ReducerError>> {
        if self.calls {
            if let Some(combined) = self.state.reduce(key, value, write) {
                return Some(combined);
            }
            self.missing.lock().unwrap_or_else(PoisonError::into_inner).insert(key);
        }
        Some(self.recorded(key, write))
    }
}

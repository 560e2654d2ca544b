//! The values that the visits of a step write to the state, combined.
//!
//! The visits are combined in the order of the frontier. A key without a channel has the value of its last write; a
//! channel combines each write with its value before.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use graph_model::reducer::{Reducer, Uncombined};
use graph_model::value::{AsView, Mismatch, Value, View};

use crate::activation::Change;
use crate::graph::GraphTables;
use crate::state::StateFields;
use crate::step::visited::{FoldError, SettledVisit, Way};

/// The values that a step writes to a state with channels.
#[derive(Debug, Default)]
pub struct StateWrites(BTreeMap<usize, KeyWrite>);

/// The values that a step writes to a key.
#[derive(Debug)]
enum KeyWrite {
    /// Its new value.
    Set(Value),
    /// Elements of its list, which is not copied: those that replace others, by their indices, and those that are added.
    Elements { replaced: BTreeMap<usize, Value>, added: Vec<Value> },
}

impl StateWrites {
    /// Combines the writes of visits, in the order of the frontier, and checks that the state accepts the result.
    ///
    /// # Errors
    ///
    /// If a write cannot be combined with the value before, or the state does not accept the result. The error names the
    /// last visit that wrote.
    pub fn combine<'v, 'c: 'v>(
        graph: &GraphTables,
        state: &dyn StateFields,
        visits: impl Iterator<Item = SettledVisit<'v>>,
    ) -> Result<Self, FoldError> {
        let mut writes = Self::default();
        // The fields that the visits have merged into each channel.
        let mut merged: BTreeSet<(usize, &'v str)> = BTreeSet::new();
        for visit in visits {
            let node = visit.at.node;
            if matches!(visit.way, Way::Along { suppressed: false, .. }) {
                for &key in &graph.node(node).reset {
                    let first = graph.keys[key].initial.clone().unwrap_or_default();
                    writes.0.insert(key, KeyWrite::Set(first));
                    merged.retain(|(one, _)| *one != key);
                }
            }
            for Change { key, value } in visit.changes {
                let Some(reducer) = &graph.keys[*key].reducer else {
                    let misfit = |mismatch| FoldError::Misfit { node, key: *key, mismatch };
                    state.check(*key, value).map_err(misfit)?;
                    writes.0.insert(*key, KeyWrite::Set(value.clone()));
                    continue;
                };
                if let (Reducer::Merge, Value::Object(fields)) = (reducer, value)
                    && let Some(twice) = fields.keys().find(|field| !merged.insert((*key, field.as_str())))
                {
                    return Err(FoldError::Uncombined { node, key: *key, error: Uncombined::twice(twice) });
                }
                writes.add(state, *key, reducer, value).map_err(|unwritten| match unwritten {
                    Unwritten::Uncombined(error) => FoldError::Uncombined { node, key: *key, error },
                    Unwritten::Misfit(mismatch) => FoldError::Misfit { node, key: *key, mismatch },
                })?;
            }
        }
        Ok(writes)
    }

    /// Combines one write with the value of a channel.
    fn add(&mut self, state: &dyn StateFields, key: usize, reducer: &Reducer, write: &Value) -> Result<(), Unwritten> {
        reducer.check(write).map_err(Unwritten::Uncombined)?;
        let place = match self.0.entry(key) {
            Entry::Occupied(place) => place.into_mut(),
            Entry::Vacant(place) => place.insert(match state.get(key) {
                View::List(_) if reducer.makes_list() => {
                    KeyWrite::Elements { replaced: BTreeMap::new(), added: Vec::new() }
                }
                current => KeyWrite::Set(current.to_plain_value()),
            }),
        };
        match place {
            KeyWrite::Set(value) => {
                *value = reducer.combine(std::mem::take(value), write.clone()).map_err(Unwritten::Uncombined)?;
                state.check(key, value).map_err(Unwritten::Misfit)?;
            }
            KeyWrite::Elements { replaced, added } => {
                let View::List(list) = state.get(key) else { return Ok(()) };
                let committed = list.len();
                for element in reducer.elements(write.clone()) {
                    state.check_element(key, &element).map_err(Unwritten::Misfit)?;
                    let at = |index: usize| match (replaced.get(&index), index.checked_sub(committed)) {
                        (Some(element), _) => element.view(),
                        (None, Some(index)) => added.get(index).map_or(View::Null, AsView::view),
                        (None, None) => list.at(index),
                    };
                    let Some(index) = reducer.place(committed + added.len(), at, &element) else { continue };
                    match index.checked_sub(committed) {
                        None => drop(replaced.insert(index, element)),
                        Some(index) if index < added.len() => added[index] = element,
                        Some(_) => added.push(element),
                    }
                }
            }
        }
        Ok(())
    }

    /// Writes the values to the state.
    ///
    /// # Errors
    ///
    /// If the state does not accept a value that it accepted when it was checked; with the key.
    pub fn apply(self, state: &mut dyn StateFields) -> Result<(), (usize, Mismatch)> {
        for (key, write) in self.0 {
            let refused = |mismatch| (key, mismatch);
            match write {
                KeyWrite::Set(value) => state.set(key, value).map_err(refused)?,
                KeyWrite::Elements { replaced, added } => {
                    let length = match state.get(key) {
                        View::List(list) => list.len(),
                        _ => 0,
                    };
                    let added = (length..).zip(added);
                    for (at, element) in replaced.into_iter().chain(added) {
                        state.set_element(key, at, element).map_err(refused)?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Why a write cannot be combined.
enum Unwritten {
    Uncombined(Uncombined),
    Misfit(Mismatch),
}

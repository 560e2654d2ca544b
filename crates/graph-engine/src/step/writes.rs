//! The values that the visits of a step write to the state, combined.
//!
//! The visits are combined in the order of the frontier. A key without a channel has the value of its last write; a
//! channel combines each write with its value before.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use graph_model::reducer::{ListWrites, Reducer, Uncombined};
use graph_model::value::{Mismatch, Value, View};

use crate::activation::Change;
use crate::graph::GraphTables;
use crate::state::{StateFields, combine};
use crate::step::order::Reordered;
use crate::step::visited::{FoldError, SettledVisit, Way};

/// The values that a step writes to a state with channels.
#[derive(Debug, Default)]
pub struct StateWrites {
    keys: BTreeMap<usize, KeyWrite>,
    reordered: Vec<Reordered>,
    /// The channels that a function of the program combined writes with.
    reduced: BTreeSet<usize>,
}

/// The values that a step writes to a key.
#[derive(Debug)]
enum KeyWrite {
    /// Its new value.
    Set(Value),
    /// Elements of its list, which is not copied.
    Elements(ListWrites),
    /// Elements of its first value, to which it was reset.
    Reset(Vec<Value>, ListWrites),
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
        for &key in &graph.kept_for_a_step {
            writes.keys.insert(key, first_write(graph, key));
        }
        for visit in visits {
            let node = visit.at.node;
            if matches!(visit.way, Way::Along { suppressed: false, .. }) {
                for &key in &graph.node(node).reset {
                    writes.keys.insert(key, first_write(graph, key));
                    merged.retain(|(one, _)| *one != key);
                }
            }
            // The fields that this visit merges: the run of a graph may merge one several times.
            let mut own: BTreeSet<(usize, &'v str)> = BTreeSet::new();
            for (key, value) in graph.writes(node, visit.changes) {
                let Some(reducer) = &graph.keys[key].reducer else {
                    let misfit = |mismatch| FoldError::Misfit { node, key, mismatch };
                    state.check(key, value).map_err(misfit)?;
                    writes.keys.insert(key, KeyWrite::Set(value.clone()));
                    continue;
                };
                if graph.keys[key].is_in_memory() {
                    // The journal does not have the value, so nothing may depend on whether writes combine.
                    if writes.add(state, key, reducer, value).is_err() {
                        writes.keys.insert(key, KeyWrite::Set(Value::Null));
                    }
                    writes.reduced.remove(&key);
                    continue;
                }
                if let (Reducer::Merge, Value::Object(fields)) = (reducer, value) {
                    // A field that is null counts as absent.
                    let given = fields.iter().filter(|(_, field)| !field.is_null()).map(|(name, _)| name);
                    if let Some(twice) = given.clone().find(|field| merged.contains(&(key, field.as_str()))) {
                        return Err(FoldError::Uncombined { node, key, error: Uncombined::twice(twice) });
                    }
                    own.extend(given.map(|field| (key, field.as_str())));
                }
                writes.add(state, key, reducer, value).map_err(|unwritten| match unwritten {
                    Unwritten::Uncombined(error) => FoldError::Uncombined { node, key, error },
                    Unwritten::Misfit(mismatch) => FoldError::Misfit { node, key, mismatch },
                })?;
            }
            merged.append(&mut own);
        }
        Ok(writes)
    }

    /// Combines one write with the value of a channel.
    fn add(&mut self, state: &dyn StateFields, key: usize, reducer: &Reducer, write: &Value) -> Result<(), Unwritten> {
        reducer.check(write).map_err(Unwritten::Uncombined)?;
        let place = match self.keys.entry(key) {
            Entry::Occupied(place) => place.into_mut(),
            Entry::Vacant(place) => place.insert(match state.get(key) {
                View::List(_) if reducer.makes_list() => KeyWrite::Elements(ListWrites::default()),
                current => KeyWrite::Set(current.to_plain_value()),
            }),
        };
        let fits = |element: &Value| state.check_element(key, element).map_err(Unwritten::Misfit);
        match place {
            KeyWrite::Set(value) => {
                *value = match reducer.sum_of_integers(value, write) {
                    Some(sum) => Value::from(sum),
                    None => {
                        combine(state, key, reducer, std::mem::take(value), write).map_err(Unwritten::Uncombined)?
                    }
                };
                state.check(key, value).map_err(Unwritten::Misfit)?;
                if reducer.function().is_some() {
                    self.reduced.insert(key);
                }
            }
            KeyWrite::Reset(first, writes) => {
                reducer.elements(write.clone()).iter().try_for_each(fits)?;
                writes.write(reducer, first, write.clone());
            }
            KeyWrite::Elements(writes) => {
                let View::List(list) = state.get(key) else { return Ok(()) };
                reducer.elements(write.clone()).iter().try_for_each(fits)?;
                writes.write(reducer, list, write.clone());
            }
        }
        Ok(())
    }

    /// Returns the channels that a function of the program combined writes with, with their values after the writes.
    pub fn reduced(&self) -> impl Iterator<Item = (usize, &Value)> {
        self.reduced.iter().filter_map(|key| match self.keys.get(key) {
            Some(KeyWrite::Set(value)) => Some((*key, value)),
            _ => None,
        })
    }

    /// Adds new orders for the last elements of channels, as they are after the writes.
    pub(super) fn and_reorder(mut self, reordered: Vec<Reordered>) -> Self {
        self.reordered = reordered;
        self
    }

    /// Writes the values to the state.
    fn apply(self, state: &mut dyn StateFields) -> Result<(), (usize, Mismatch)> {
        for (key, write) in self.keys {
            let refused = |mismatch| (key, mismatch);
            match write {
                KeyWrite::Set(value) => state.set(key, value).map_err(refused)?,
                KeyWrite::Reset(mut list, ListWrites { replaced, added, .. }) => {
                    replaced.into_iter().for_each(|(at, element)| list[at] = element);
                    list.extend(added);
                    state.set(key, Value::Array(list)).map_err(refused)?;
                }
                KeyWrite::Elements(ListWrites { replaced, added, .. }) => {
                    let length = match state.get(key) {
                        View::List(list) => list.len(),
                        _ => 0,
                    };
                    for (at, element) in replaced.into_iter().chain((length..).zip(added)) {
                        state.set_element(key, at, element).map_err(refused)?;
                    }
                }
            }
        }
        for Reordered { key, from } in self.reordered {
            let View::List(list) = state.get(key) else { continue };
            let Some(first) = list.len().checked_sub(from.len()) else { continue };
            let moved = (first..).zip(&from).filter(|(at, from)| first + **from as usize != *at);
            let elements: Vec<(usize, Value)> =
                moved.map(|(at, from)| (at, list.at(first + *from as usize).to_plain_value())).collect();
            for (at, element) in elements {
                state.set_element(key, at, element).map_err(|mismatch| (key, mismatch))?;
            }
        }
        Ok(())
    }
}

/// Returns the write that gives a channel its first value.
fn first_write(graph: &GraphTables, key: usize) -> KeyWrite {
    let makes_list = graph.keys[key].reducer.as_ref().is_some_and(Reducer::makes_list);
    match graph.keys[key].initial.clone().unwrap_or_default() {
        Value::Array(list) if makes_list => KeyWrite::Reset(list, ListWrites::default()),
        first => KeyWrite::Set(first),
    }
}

/// Writes the values of a step to the state: those that were `combined` or, if the graph has no channels and shares no keys,
/// the changes of its visits in order.
///
/// # Errors
///
/// If the state does not accept a value that it accepted when it was checked; with the key.
pub fn write(
    combined: Option<StateWrites>,
    mut changes: impl Iterator<Item = Change>,
    state: &mut dyn StateFields,
) -> Result<(), (usize, Mismatch)> {
    match combined {
        Some(writes) => writes.apply(state),
        None => changes.try_for_each(|Change { key, value }| state.set(key, value).map_err(|mismatch| (key, mismatch))),
    }
}

/// Why a write cannot be combined.
enum Unwritten {
    Uncombined(Uncombined),
    Misfit(Mismatch),
}

#[cfg(test)]
mod tests {
    use graph_model::ir::{GraphIr, KeyIr, NodeIr};
    use graph_model::name::ItemId;
    use graph_model::program::{NodeBody, Settings};
    use graph_model::reducer::{REDUCERS, ReducerError};
    use graph_model::value::{AsView, FromValue};
    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;
    use proptest::test_runner::{Config, TestRunner};
    use serde_json::json;

    use super::*;
    use crate::activation::{Activation, TakenEdges};
    use crate::graph::CompiledGraph;

    /// A state whose only key is a list of a type, or any value.
    struct OneKey<T>(T);

    impl<T: FromValue + AsView + Send + Sync> StateFields for OneKey<T> {
        fn inputs(&self) -> View<'_> {
            View::Null
        }

        fn get(&self, _: usize) -> View<'_> {
            self.0.view()
        }

        fn check(&self, _: usize, value: &Value) -> Result<(), Mismatch> {
            T::check(value)
        }

        fn set(&mut self, _: usize, value: Value) -> Result<(), Mismatch> {
            self.0 = T::from_value(value)?;
            Ok(())
        }

        fn set_element(&mut self, _: usize, at: usize, element: Value) -> Result<(), Mismatch> {
            self.0.put_element(at, element)
        }
    }

    /// As [`OneKey`], with the default methods of the trait, or with a reducer of the program.
    struct Copying {
        key: OneKey<Value>,
        has_reducer: bool,
    }

    impl StateFields for Copying {
        fn inputs(&self) -> View<'_> {
            View::Null
        }

        fn get(&self, key: usize) -> View<'_> {
            self.key.get(key)
        }

        fn check(&self, key: usize, value: &Value) -> Result<(), Mismatch> {
            self.key.check(key, value)
        }

        fn set(&mut self, key: usize, value: Value) -> Result<(), Mismatch> {
            self.key.set(key, value)
        }

        fn reduce(&self, _: usize, value: View<'_>, write: &Value) -> Option<Result<Value, ReducerError>> {
            self.has_reducer.then(|| bracketed(&value.to_plain_value(), write))
        }
    }

    /// Writes a value and a write behind each other, unless the write is an empty list.
    fn bracketed(value: &Value, write: &Value) -> Result<Value, ReducerError> {
        if *write == json!([]) { Err("nothing".into()) } else { Ok(Value::from(format!("({value}{write})"))) }
    }

    /// A graph with a channel and a key without one; the second node resets the channel.
    fn graph(reducer: &Reducer, first: &Value) -> CompiledGraph {
        let node = |name: &str, reset: &[&str]| {
            let body: NodeBody = serde_json::from_value(json!({"line": 1, "does": "gate", "reset": reset})).unwrap();
            NodeIr { name: name.to_owned(), body }
        };
        CompiledGraph::new(GraphIr {
            id: "test/channel".to_owned(),
            version: String::new(),
            source: String::new(),
            digest: "0".repeat(64),
            signer: "0".repeat(16),
            start: 0,
            settings: Settings { channels: [("x".to_owned(), reducer.clone())].into(), ..Settings::default() },
            permissions: Vec::new(),
            env: Vec::new(),
            keys: vec![
                KeyIr { name: "x".to_owned(), initial: Some(first.clone()) },
                KeyIr { name: "plain".to_owned(), initial: None },
            ],
            tools: Vec::new(),
            nodes: vec![node("writes", &[]), node("resets", &["x"])],
        })
        .unwrap()
    }

    fn value() -> BoxedStrategy<Value> {
        let leaf = prop_oneof![
            (-3_i64..4).prop_map(Value::from),
            prop_oneof![Just(json!(1.0)), Just(json!(0.5)), Just(json!(i64::MAX)), Just(json!(f64::MAX))],
            prop_oneof![Just("a"), Just("b")].prop_map(Value::from),
            Just(Value::Null),
        ];
        leaf.prop_recursive(2, 8, 4, |inner| {
            let field = (prop_oneof![Just("id"), Just("a"), Just("b")], inner.clone());
            prop_oneof![
                vec(inner, 0..4).prop_map(Value::from),
                vec(field, 0..3).prop_map(|fields| {
                    Value::Object(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
                }),
            ]
        })
        .boxed()
    }

    /// A visit: whether it resets the channel, and what it writes.
    type OneVisit = (bool, Option<Value>);

    /// Combines the writes of steps one after the other, as the page of the format says.
    fn expected(reducer: &Reducer, first: &Value, steps: &[Vec<OneVisit>]) -> Option<Value> {
        let mut value = first.clone();
        for step in steps {
            let mut fields: Vec<&String> = Vec::new();
            for (resets, write) in step {
                if *resets {
                    value = first.clone();
                    fields.clear();
                }
                let Some(write) = write else { continue };
                if let (Reducer::Merge, Value::Object(write)) = (reducer, write) {
                    let given: Vec<&String> =
                        write.iter().filter(|(_, field)| !field.is_null()).map(|(name, _)| name).collect();
                    if given.iter().any(|field| fields.contains(field)) {
                        return None;
                    }
                    fields.extend(given);
                }
                match reducer.combine(value, write.clone()) {
                    Ok(combined) => value = combined,
                    Err(error) => {
                        assert!(reducer.may_fail_with(&error.to_string()), "{error}");
                        return None;
                    }
                }
            }
        }
        Some(value)
    }

    fn visit<'v>(at: &'v Activation, way: &'v Way, changes: &'v [Change]) -> SettledVisit<'v> {
        SettledVisit { at, calls: 0, below: 0, error: None, items: &[], way, returned: View::Null, changes }
    }

    /// Takes the steps as the engine does.
    fn taken(compiled: &CompiledGraph, state: &mut dyn StateFields, steps: &[Vec<OneVisit>]) -> Option<Value> {
        let graph = crate::graph::tables(compiled);
        let way = Way::Along { edges: TakenEdges::None, suppressed: false };
        let at = [Activation::of(0), Activation::of(1)];
        for step in steps {
            let changes = step
                .iter()
                .map(|(_, write)| write.iter().map(|value| Change { key: 0, value: value.clone() }).collect());
            let changes: Vec<Vec<Change>> = changes.collect();
            let visits = step.iter().zip(&changes);
            let visits = visits.map(|((resets, _), changes)| visit(&at[usize::from(*resets)], &way, changes));
            StateWrites::combine(graph, state, visits).ok()?.apply(state).ok()?;
        }
        Some(state.get(0).to_plain_value())
    }

    #[test]
    fn writes_are_combined_in_the_order_of_the_frontier() {
        let cases = std::env::var("CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(1000);
        for name in REDUCERS {
            let reducer = Reducer::named(name).unwrap();
            // Most values fit the reducer, so that most runs do not end at the first write.
            let fits = reducer.clone();
            let write = value().prop_map(move |value| match &fits {
                _ if fits.check(&value).is_ok() => value,
                Reducer::Extend | Reducer::Union => json!([value]),
                Reducer::Sum | Reducer::Max | Reducer::Min => json!(value.to_string().len()),
                Reducer::Merge | Reducer::Messages { .. } => json!({"id": value}),
                _ => json!("a"),
            });
            let visits = vec((prop::bool::weighted(0.1), option::weighted(0.8, write)), 1..5);
            let steps = vec(visits, 1..5);
            let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
            let done = runner.run(&steps, |steps| {
                let first = reducer.first().unwrap_or_default();
                let compiled = graph(&reducer, &first);
                let expected = expected(&reducer, &first, &steps);
                let plain = taken(&compiled, &mut OneKey(first.clone()), &steps);
                prop_assert_eq!(&plain, &expected, "{}", name);
                let copied = taken(&compiled, &mut Copying { key: OneKey(first.clone()), has_reducer: false }, &steps);
                prop_assert_eq!(&copied, &expected, "{}", name);
                if reducer.makes_list() {
                    let list: Vec<Value> = Vec::new();
                    prop_assert_eq!(&taken(&compiled, &mut OneKey(list), &steps), &expected, "{}", name);
                }
                Ok(())
            });
            if let Err(error) = done {
                panic!("{error}");
            }
        }
    }

    #[test]
    fn a_reducer_of_the_program_combines_in_the_order_of_the_frontier() {
        let reducer = Reducer::Program { item_id: ItemId::new("test/reducer").unwrap() };
        let steps = vec(vec((prop::bool::weighted(0.1), option::weighted(0.8, value())), 1..5), 1..5);
        let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::default() });
        let done = runner.run(&steps, |steps| {
            let (first, mut expected) = (json!(7), Some(json!(7)));
            for (resets, write) in steps.iter().flatten() {
                expected = if *resets { expected.map(|_| first.clone()) } else { expected };
                let Some(write) = write else { continue };
                expected = expected.filter(|_| !write.is_null()).and_then(|value| bracketed(&value, write).ok());
            }
            let compiled = graph(&reducer, &first);
            prop_assert_eq!(taken(&compiled, &mut Copying { key: OneKey(first), has_reducer: true }, &steps), expected);
            Ok(())
        });
        if let Err(error) = done {
            panic!("{error}");
        }
        // A state without the function takes no write.
        let steps = [vec![(false, Some(json!(1)))]];
        assert_eq!(taken(&graph(&reducer, &json!(7)), &mut OneKey(json!(7)), &steps), None);
    }

    #[test]
    fn a_key_without_a_channel_has_the_last_write_of_the_step() {
        let compiled = graph(&Reducer::Append, &json!([]));
        let (way, at) = (Way::Along { edges: TakenEdges::None, suppressed: false }, Activation::of(0));
        let changes = [1, 2].map(|value| vec![Change { key: 1, value: json!(value) }]);
        let visits = changes.iter().map(|changes| visit(&at, &way, changes));
        let mut state = OneKey(json!(0));
        StateWrites::combine(crate::graph::tables(&compiled), &state, visits).unwrap().apply(&mut state).unwrap();
        assert_eq!(state.0, json!(2));
    }

    #[test]
    fn a_write_that_does_not_fit_the_type_of_the_state_changes_nothing() {
        let reducer = Reducer::Extend;
        let compiled = graph(&reducer, &json!([]));
        let mut state = OneKey(vec![1_i64]);
        let steps = [vec![(false, Some(json!([2]))), (false, Some(json!([3, "4"])))]];
        assert_eq!(taken(&compiled, &mut state, &steps), None);
        assert_eq!(state.0, [1]);
    }
}

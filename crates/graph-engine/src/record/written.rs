//! Visits and steps as the engine writes them: with borrowed values.

use graph_model::value::{Map, Value, View};
use serde::{Serialize, Serializer};

use crate::activation::{Activation, Change, path};
use crate::graph::GraphTables;
use crate::record::entry::{Join, NewOrder, Payload, Target, Visit};
use crate::step::{OpenJoin, Reordered};

/// A visit as the engine writes it.
pub type WrittenVisit<'a> = Visit<&'a str, View<'a>, Changes<'a>>;

/// The result and the changes of a visit, with their secrets encrypted or hidden.
pub struct Covered {
    /// The result.
    pub result: Value,
    /// The changes.
    pub changes: Map<String, Value>,
    /// The list that it fanned out over.
    pub list: Option<Value>,
}

/// The changes of a visit, as the engine writes them.
#[derive(Debug, Clone)]
pub enum Changes<'a> {
    /// As it is.
    Plain(&'a GraphTables, &'a [Change]),
    /// With its secrets encrypted or hidden.
    Covered(&'a Map<String, Value>),
}

/// Returns the changes that a journal has: all but those of keys that are kept in memory only.
pub fn recorded<'c>(graph: &'c GraphTables, changes: &'c [Change]) -> impl Iterator<Item = &'c Change> {
    changes.iter().filter(|change| !graph.keys[change.key].is_in_memory())
}

impl Serialize for Changes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Plain(graph, changes) => {
                let recorded = recorded(graph, changes);
                serializer.collect_map(recorded.map(|change| (&graph.keys[change.key].name, &change.value)))
            }
            Self::Covered(changes) => changes.serialize(serializer),
        }
    }
}

impl Payload for Changes<'_> {
    fn is_blank(&self) -> bool {
        match self {
            Self::Plain(graph, changes) => recorded(graph, changes).next().is_none(),
            Self::Covered(changes) => changes.is_empty(),
        }
    }
}

impl WrittenVisit<'_> {
    /// Returns the visit as it is read.
    pub fn to_read(&self) -> Visit {
        // Goes through a value and not through text: values that no journal holds may be nested too deeply to be read from
        // text.
        let value = serde_json::to_value(self).and_then(serde_json::from_value);
        value.expect("a visit has only texts as keys and finite numbers")
    }
}

impl Target<&str> {
    /// Returns the target as it is read.
    pub(crate) fn into_read(self) -> Target {
        let Self { number, node, branch, fan } = self;
        Target { number, node: node.to_owned(), branch, fan }
    }
}

/// Returns the activations of the next step, as they are written.
pub fn targets<'a>(graph: &'a GraphTables, frontier: &[Activation]) -> Vec<Target<&'a str>> {
    let target = |at: &Activation| Target {
        number: at.number,
        node: graph.node(at.node).name.as_str(),
        branch: path(at.frame.as_ref()),
        fan: at.frame.as_ref().map_or(0, |frame| frame.fan.visit),
    };
    frontier.iter().map(target).collect()
}

/// Returns the new orders of channels as they are written.
pub fn new_orders(graph: &GraphTables, reordered: &[Reordered]) -> Vec<NewOrder> {
    let order = |one: &Reordered| NewOrder { key: graph.keys[one.key].name.clone(), from: one.from.clone() };
    reordered.iter().map(order).collect()
}

/// Returns the values of channels that a function of the program combined writes with, as they are written.
pub fn reduced<'v>(graph: &GraphTables, values: impl Iterator<Item = (usize, &'v Value)>) -> Map<String, Value> {
    values.map(|(key, value)| (graph.keys[key].name.clone(), value.clone())).collect()
}

/// Returns joins as they are written.
pub fn open_joins<'j>(graph: &GraphTables, joins: impl IntoIterator<Item = &'j OpenJoin>) -> Vec<Join> {
    let join = |OpenJoin { node, fan, arrived, is_over }: &OpenJoin| Join {
        node: graph.node(*node).name.clone(),
        fan: fan.visit,
        arrived: arrived.clone(),
        over: *is_over,
    };
    joins.into_iter().map(join).collect()
}

//! Waits that are open, as runs surface them and stores keep them.

use std::fmt;

use graph_model::digest::Digest;
use graph_model::timestamp;
use graph_model::value::{Map, Value};
use serde::{Deserialize, Serialize};

use crate::address;

/// Returns the id of the wait of a visit after `before` others of that visit. The answer to a question has it as its name.
pub fn wait_id(step: u64, before: u64) -> String {
    format!("{step}#{}", before.saturating_add(1))
}

/// The id of a wait in its run: the number of the visit that waits, and how many waits of that visit there were with it. The id of
/// a wait in a nested run begins with the path to that run: `5.2/3#1` is a wait of the run that visit 5 began for item 2.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WaitId(String);

impl WaitId {
    /// The first wait of a visit, by the number of the visit.
    pub fn of_visit(step: u64) -> Self {
        Self(wait_id(step, 0))
    }

    /// A wait from the text of its id, for stores that read it back.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the id as text: `3#1`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for WaitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A wait that is open, as a store keeps it. Its times are those of the store, in milliseconds since the Unix epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Wait {
    /// Its id.
    pub id: WaitId,
    /// The node that waits.
    pub node: String,
    /// The graph of the node, if that is the graph of a nested run: the wait is one of the run around it too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph: Option<NestedGraph>,
    /// When it was opened.
    pub opened: i64,
    /// When it is over, if nothing else ends it before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<i64>,
    /// The names of the signals that it listens to; empty if it waits for a time only. A [signal](crate::store::Signal) of one of these
    /// names ends it if the store received the signal before `due`, even if that was before the wait was opened.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signals: Vec<String>,
    /// Its question to people. A wait that asks listens to the signal that is the answer, as to any other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ask: Option<Ask>,
}

/// The id of the wait of a run's deadline, as the run knows it.
const DEADLINE: &str = "deadline";

impl Wait {
    /// Returns the wait as one object: `wait`, `node`, `opened`, `due` if it has a time at which it is over, `signals` if some end it,
    /// and `role`, `count` and `payload` if it asks people.
    pub fn to_value(&self) -> Value {
        let time = |at: i64| timestamp::milliseconds(timestamp::from_unix_milliseconds(at));
        let mut value = Map::new();
        value.insert("wait".into(), self.id.as_str().into());
        value.insert("node".into(), self.node.as_str().into());
        value.insert("opened".into(), time(self.opened).into());
        if let Some(due) = self.due {
            value.insert("due".into(), time(due).into());
        }
        if let Some(Ask { role, count, payload }) = &self.ask {
            if let Some(role) = role {
                value.insert("role".into(), role.as_str().into());
            }
            value.insert("count".into(), (*count).into());
            value.insert("payload".into(), serde_json::from_str(payload).unwrap_or_default());
        } else if self.is_pause() {
            value.insert("paused".into(), true.into());
        } else if !self.signals.is_empty() {
            value.insert("signals".into(), self.signals.iter().map(String::as_str).map(Value::from).collect());
        }
        Value::Object(value)
    }

    /// A wait of a node that listens to no signal and asks nothing.
    pub fn new(id: WaitId, node: impl Into<String>, opened: i64, due: Option<i64>) -> Self {
        Self { id, node: node.into(), graph: None, opened, due, signals: Vec::new(), ask: None }
    }

    /// The wait that lets a store hand out a run at its deadline.
    pub(crate) fn of_deadline(at: i64) -> Self {
        Self::new(WaitId::new(DEADLINE), "", at, Some(at))
    }

    /// Whether it is that of a run's deadline.
    pub(crate) fn is_deadline(&self) -> bool {
        address::split(self.id.as_str()).1 == DEADLINE
    }

    /// Whether it is a visit that is left before it is made: [`Runtime::release`](crate::Runtime::release) ends it. Nothing else is
    /// awaited.
    pub fn is_pause(&self) -> bool {
        matches!(self.signals.as_slice(), [only] if only == self.id.as_str()) && self.ask.is_none()
    }

    /// Sets the graph of the nested run that waits.
    #[must_use]
    pub fn in_graph(mut self, graph: Option<NestedGraph>) -> Self {
        self.graph = graph;
        self
    }

    /// Sets the names of the signals that it listens to.
    #[must_use]
    pub fn listening(mut self, signals: Vec<String>) -> Self {
        self.signals = signals;
        self
    }

    /// Sets what it asks people.
    #[must_use]
    pub fn asking(mut self, ask: Ask) -> Self {
        self.ask = Some(ask);
        self
    }
}

/// The graph of a nested run that waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct NestedGraph {
    /// The graph's id.
    pub id: String,
    /// The digest of the graph that the nested run began under.
    pub digest: Digest,
}

impl NestedGraph {
    /// A graph with the digest that the run began under.
    pub fn new(id: impl Into<String>, digest: Digest) -> Self {
        Self { id: id.into(), digest }
    }
}

/// A question of a wait to people. A store only [lists](crate::Store::open_waits) it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Ask {
    /// The role that the people who answer have; `None` if the holder of any trusted key may answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// How many keys of different owners sign the answer.
    pub count: u32,
    /// The JSON that people are shown.
    pub payload: String,
}

impl Ask {
    /// A question to people with a role, or to anybody whose key is trusted.
    pub fn new(role: Option<String>, count: u32, payload: impl Into<String>) -> Self {
        Self { role, count, payload: payload.into() }
    }
}

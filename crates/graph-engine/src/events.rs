//! The events of runs as owned values: streams of those that happen, and the journal as the log of those that lasted.
//!
//! An event that is in a run's journal has a [`EventCursor`]. It is computed from its record alone, so a stream and the journal give the
//! same event. The other events are about work in progress: they are lost if nobody watches.

mod feed;
mod follow;
mod hub;
mod log;

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use graph_model::name::{GraphId, RunId};
use graph_model::timestamp;
use graph_model::value::Value;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::call::Parent;
use crate::machine::NodeEnum;
use crate::record::{Edit, End, Entry, Record, Start, Visit};
use crate::run_secrets::hide_encrypted;
use crate::step::{Opened, TakenWait};

pub use follow::FollowedEvents;
pub(crate) use hub::{EventHub, RunEvents};
pub use hub::{Events, Lagged, TypedEvents};
pub use log::{EventLog, EventLogError};

/// An event of a run. `N` is the type of its nodes: the enum of a graph's module, as in its `Event`, or their names.
///
/// As JSON it is one object: the fields below, `event` with the name of the kind, and the fields of the kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RunEvent<N = String> {
    /// The run.
    pub run: RunId,
    /// The outermost run around it; the run itself if it is not nested.
    pub root: RunId,
    /// Its graph; `None` if the run was ended without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph: Option<GraphId>,
    /// The visit that the run is nested in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
    /// When it happened; for an event with a cursor, when its record was made. In JSON: RFC 3339 in UTC with milliseconds.
    #[serde(serialize_with = "write_time", deserialize_with = "read_time")]
    pub at: SystemTime,
    /// Its place in the journal of the run, if it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<EventCursor>,
    /// The content.
    #[serde(flatten)]
    pub kind: EventKind<N>,
}

/// The content of an event. Secrets are replaced by `[secret]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum EventKind<N = String> {
    /// The run began.
    #[non_exhaustive]
    Started {
        /// Its inputs; null if it has no journal.
        #[serde(default, skip_serializing_if = "Value::is_null")]
        inputs: Value,
        /// The entry at which it began, if not at the start.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        entry: Option<String>,
    },
    /// The run was resumed.
    #[non_exhaustive]
    Resumed {
        /// How many visits were committed before.
        steps: u64,
    },
    /// A node is about to be visited. Not in the journal.
    #[non_exhaustive]
    VisitStarted {
        /// The number of the visit.
        step: u64,
        /// The node.
        node: N,
    },
    /// A call is about to be made. Not in the journal.
    #[non_exhaustive]
    CallStarted {
        /// The call.
        #[serde(flatten)]
        call: AttemptedCall<N>,
    },
    /// A call is over. Not in the journal.
    #[non_exhaustive]
    CallEnded {
        /// The call.
        #[serde(flatten)]
        call: AttemptedCall<N>,
        /// How long it took, in milliseconds.
        ms: u64,
        /// Why it failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// A node was visited, with its writes and the edges that it took.
    #[non_exhaustive]
    Visited {
        /// The node.
        node: N,
        /// The visit.
        visit: Box<Visit>,
    },
    /// A step was taken, with the state after it. Not in the journal, which has the changes.
    #[non_exhaustive]
    Values {
        /// How many nodes were visited.
        steps: u64,
        /// The state, with the inputs in it.
        state: Value,
    },
    /// A visit waits: for a time, for signals, for people, or for a nested run that waits.
    #[non_exhaustive]
    WaitOpened {
        /// The number of the visit.
        step: u64,
        /// The node.
        node: N,
        /// The wait.
        wait: Box<Opened>,
    },
    /// A wait is over. The visit is made next.
    #[non_exhaustive]
    WaitOver {
        /// How it ended.
        wait: Box<TakenWait>,
    },
    /// A tool emitted a piece of a text. Not in the journal.
    #[non_exhaustive]
    Text {
        /// The call.
        #[serde(flatten)]
        call: AttemptedCall<N>,
        /// The piece.
        text: String,
    },
    /// A tool emitted a value of its own. Not in the journal.
    #[non_exhaustive]
    Custom {
        /// The call.
        #[serde(flatten)]
        call: AttemptedCall<N>,
        /// Its name.
        name: String,
        /// The value.
        data: Value,
    },
    /// A person changed the state of the run.
    #[non_exhaustive]
    Edited {
        /// The change.
        edit: Box<Edit>,
    },
    /// The run ended. One that failed or was cancelled can be resumed.
    #[non_exhaustive]
    Ended {
        /// How.
        end: Box<End>,
    },
}

/// An attempt at a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AttemptedCall<N = String> {
    /// The number of the visit.
    pub step: u64,
    /// The node.
    pub node: N,
    /// The id of the tool or graph.
    pub tool: String,
    /// The item's index, if the node is a foreach.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<u64>,
    /// The number of the attempt, from 1.
    pub attempt: u64,
}

/// The parts of the events of runs that a reader may ask for. The beginnings and ends of runs belong to every part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The whole state after each step. It is copied for each step.
    Values,
    /// The writes of each visit.
    Updates,
    /// The pieces of texts that tools emit.
    Messages,
    /// All but the values.
    Debug,
    /// Waits, and their ends.
    Interrupts,
    /// The values that tools emit.
    Custom,
}

/// The choice of events that a stream has. The default is all but those of [`Mode::Values`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EventFilter {
    /// Only those of this run and of the runs inside it.
    pub run: Option<RunId>,
    /// Only those of runs of this graph.
    pub graph: Option<GraphId>,
    /// Only those of these parts; empty for [`Mode::Debug`].
    pub modes: Vec<Mode>,
}

impl EventFilter {
    /// Whether a stream with this filter has an event.
    pub fn has<N>(&self, event: &RunEvent<N>) -> bool {
        let of_run = self.run.as_ref().is_none_or(|run| event.run == *run || event.root == *run);
        of_run
            && self.graph.as_ref().is_none_or(|graph| event.graph.as_ref() == Some(graph))
            && self.has_kind(&event.kind)
    }

    fn has_kind<N>(&self, kind: &EventKind<N>) -> bool {
        match self.modes.as_slice() {
            [] => kind.is_in(Mode::Debug),
            modes => modes.iter().any(|mode| kind.is_in(*mode)),
        }
    }
}

impl<N> EventKind<N> {
    /// Whether a part of the events has this one.
    pub fn is_in(&self, mode: Mode) -> bool {
        match self {
            Self::Started { .. } | Self::Resumed { .. } | Self::Ended { .. } => true,
            Self::Values { .. } => mode == Mode::Values,
            _ if mode == Mode::Debug => true,
            Self::Visited { .. } | Self::Edited { .. } => mode == Mode::Updates,
            Self::WaitOpened { .. } | Self::WaitOver { .. } => mode == Mode::Interrupts,
            Self::Text { .. } => mode == Mode::Messages,
            Self::Custom { .. } => mode == Mode::Custom,
            Self::VisitStarted { .. } | Self::CallStarted { .. } | Self::CallEnded { .. } => false,
        }
    }
}

impl RunEvent {
    /// Returns the event with the nodes of a graph's enum; `None` if it is of another graph.
    pub fn typed<N: NodeEnum>(self) -> Option<RunEvent<N>> {
        if self.graph.as_ref().is_none_or(|graph| graph.as_str() != N::GRAPH) {
            return None;
        }
        let node = |name: String| N::ALL.iter().copied().find(|node| node.name() == name);
        let called = |call: AttemptedCall| {
            let AttemptedCall { step, node: name, tool, item, attempt } = call;
            Some(AttemptedCall { step, node: node(name)?, tool, item, attempt })
        };
        let kind = match self.kind {
            EventKind::Started { inputs, entry } => EventKind::Started { inputs, entry },
            EventKind::Resumed { steps } => EventKind::Resumed { steps },
            EventKind::VisitStarted { step, node: name } => EventKind::VisitStarted { step, node: node(name)? },
            EventKind::CallStarted { call } => EventKind::CallStarted { call: called(call)? },
            EventKind::CallEnded { call, ms, error } => EventKind::CallEnded { call: called(call)?, ms, error },
            EventKind::Visited { node: name, visit } => EventKind::Visited { node: node(name)?, visit },
            EventKind::Values { steps, state } => EventKind::Values { steps, state },
            EventKind::WaitOpened { step, node: name, wait } => EventKind::WaitOpened { step, node: node(name)?, wait },
            EventKind::WaitOver { wait } => EventKind::WaitOver { wait },
            EventKind::Text { call, text } => EventKind::Text { call: called(call)?, text },
            EventKind::Custom { call, name, data } => EventKind::Custom { call: called(call)?, name, data },
            EventKind::Edited { edit } => EventKind::Edited { edit },
            EventKind::Ended { end } => EventKind::Ended { end },
        };
        let Self { run, root, graph, parent, at, cursor, .. } = self;
        Some(RunEvent { run, root, graph, parent, at, cursor, kind })
    }
}

/// The place of an event in the journal of its run. The text of one is `RUN@RECORD.INDEX`.
///
/// It remains valid as long as the journal exists: a journal only grows.
///
/// ```
/// # use graph_engine as graph_runtime;
/// use graph_runtime::events::EventCursor;
///
/// let cursor: EventCursor = "order-17@12.0".parse()?;
/// assert_eq!((cursor.run().as_str(), cursor.record(), cursor.index()), ("order-17", 12, 0));
/// assert_eq!(cursor.to_string(), "order-17@12.0");
/// assert!("order-17@12".parse::<EventCursor>().is_err());
/// # Ok::<(), graph_runtime::events::EventCursorError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EventCursor {
    run: RunId,
    record: u64,
    index: u32,
}

impl EventCursor {
    /// Returns the run.
    pub fn run(&self) -> &RunId {
        &self.run
    }

    /// Returns the number of the record, from 0.
    pub fn record(&self) -> u64 {
        self.record
    }

    /// Returns the index of the event among those of its record, from 0.
    pub fn index(&self) -> u32 {
        self.index
    }
}

/// A text that is no cursor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no cursor: a cursor is the text `RUN@RECORD.INDEX` that came with an event")]
pub struct EventCursorError {
    text: String,
}

impl FromStr for EventCursor {
    type Err = EventCursorError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = |digits: &str| {
            let is_plain =
                digits.bytes().all(|byte| byte.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
            if is_plain { digits.parse::<u64>().ok() } else { None }
        };
        let read = || {
            let (run, place) = text.rsplit_once('@')?;
            let (record, index) = place.split_once('.')?;
            let index = u32::try_from(number(index)?).ok()?;
            Some(Self { run: RunId::new(run).ok()?, record: number(record)?, index })
        };
        read().ok_or_else(|| EventCursorError { text: text.to_owned() })
    }
}

impl fmt::Display for EventCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}.{}", self.run, self.record, self.index)
    }
}

impl Serialize for EventCursor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for EventCursor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

fn write_time<S: Serializer>(at: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&timestamp::milliseconds(*at))
}

fn read_time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SystemTime, D::Error> {
    let text = String::deserialize(deserializer)?;
    timestamp::parse(&text).ok_or_else(|| D::Error::custom(format!("`{text}` is no time: RFC 3339 in UTC is expected")))
}

/// The run that events are about.
#[derive(Debug, Clone)]
struct EventOrigin {
    run: RunId,
    root: RunId,
    graph: Option<GraphId>,
    parent: Option<Parent>,
}

impl EventOrigin {
    /// The origin of the events of a journal, by its first record. The root of a nested run is the outermost run that is known:
    /// the run around it.
    fn of(run: &RunId, start: &Start) -> Self {
        let parent = start.parent.clone();
        let root = parent.as_ref().map_or(run, |parent| &parent.run).clone();
        Self { run: run.clone(), root, graph: GraphId::new(&start.graph).ok(), parent }
    }

    /// Makes an event that is not in a journal.
    fn event(&self, at: SystemTime, kind: EventKind) -> RunEvent {
        let Self { run, root, graph, parent } = self.clone();
        // A journal has times to the millisecond, and so has the JSON of events.
        let at = timestamp::from_unix_milliseconds(timestamp::unix_milliseconds(at));
        RunEvent { run, root, graph, parent, at, cursor: None, kind }
    }

    /// Returns the events of a record.
    fn events(&self, record: Record) -> impl Iterator<Item = RunEvent> {
        let at = timestamp::parse(&record.at).unwrap_or(SystemTime::UNIX_EPOCH);
        let (origin, record, kinds) = (self.clone(), record.seq, kinds(record.entry));
        kinds.into_iter().zip(0..).map(move |(kind, index)| {
            let cursor = Some(EventCursor { run: origin.run.clone(), record, index });
            RunEvent { cursor, ..origin.event(at, kind) }
        })
    }
}

/// Returns the events that the entry of a record is about.
fn kinds(entry: Entry) -> Vec<EventKind> {
    match entry {
        Entry::Start(Start { mut inputs, entry, .. }) => {
            hide_encrypted(&mut inputs);
            vec![EventKind::Started { inputs, entry }]
        }
        Entry::Step(step) => step.visits.into_iter().map(of_visit).collect(),
        Entry::Take(take) => take.taken.into_iter().map(of_taken).collect(),
        Entry::Resume(resume) => vec![EventKind::Resumed { steps: resume.steps }],
        Entry::Edit(mut edit) => {
            let values = [&mut edit.set, &mut edit.write, &mut edit.reduced];
            values.into_iter().for_each(|map| map.values_mut().for_each(hide_encrypted));
            vec![EventKind::Edited { edit: Box::new(edit) }]
        }
        Entry::End(mut end) => {
            hide_encrypted(&mut end.output);
            vec![EventKind::Ended { end: Box::new(end) }]
        }
        // They are about visits that are not made yet, or about the records before them.
        Entry::Calls(_) | Entry::Snapshot(_) => Vec::new(),
    }
}

/// Returns the event of a visit, whose secrets may be encrypted.
fn of_visit(mut visit: Visit) -> EventKind {
    hide_encrypted(&mut visit.result);
    visit.changes.values_mut().chain(visit.reduced.values_mut()).for_each(hide_encrypted);
    visit.data.iter_mut().chain(visit.list.iter_mut()).for_each(hide_encrypted);
    let node = visit.node.clone();
    match visit.opened {
        Some(opened) => EventKind::WaitOpened { step: visit.step, node, wait: Box::new(opened) },
        None => EventKind::Visited { node, visit: Box::new(visit) },
    }
}

fn of_taken(mut taken: TakenWait) -> EventKind {
    if let Some(signal) = &mut taken.signal {
        hide_encrypted(&mut signal.value);
        signal.encrypted = None;
    }
    EventKind::WaitOver { wait: Box::new(taken) }
}

/// Returns a duration in whole milliseconds.
fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

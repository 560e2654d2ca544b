//! Records: the journal of a run, a chain of signed JSON texts.
//!
//! Each record names the link of the one before, the SHA-256 of its text's SHA-256 and its signature, and is signed with the
//! runtime's key. So a record that was changed, moved, taken from another run, or dropped from before another is found, and the
//! signature of the last record vouches for all before it. Each record also names the SHA-256 of a token, which a store keeps
//! only as long as the record is the last one: whoever takes records away from the end has not got the token of the one that is
//! last then. State is what the records add up to: the inputs of the first, and the changes of every step in order; now and then a
//! snapshot says what that comes to.
//!
//! `docs/journal.md` says all of it byte for byte.

mod snapshot;
mod version_2;

use std::ops::Range;
use std::sync::Arc;
use std::thread::{self, available_parallelism};
use std::time::SystemTime;

use graph_model::capability::Pattern;
use graph_model::digest::Digest;
use graph_model::name::RunId;
use graph_model::signature::{Fingerprint, PublicKey, SecretKey};
use graph_model::timestamp;
use graph_model::value::{Map, Value, View};
use serde::{Deserialize, Serialize, Serializer};

use crate::graph::{CompiledGraph, MOST_BRANCHES};
use crate::step::{Activation, Change, Edges, OpenJoin, path};

pub use snapshot::Snapshot;

pub use crate::vault::hide_sealed;
pub(crate) use snapshot::{Due, SnapshotDraft};

/// The version of the form that this module writes.
pub const VERSION: u32 = 3;
/// The first version of the form that this module reads.
pub const FIRST_VERSION: u32 = 2;

/// A record as a store keeps it. A store writes all of it and makes it again when it reads, so it is not `#[non_exhaustive]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    /// Its place in the journal, from 0.
    pub seq: u64,
    /// The record as JSON, byte for byte what was hashed and signed.
    pub body: String,
    /// The signature over the 64 hex digits of the body's SHA-256.
    pub signature: [u8; 64],
    /// What shows that no record follows: the body names its SHA-256. A store keeps that of a journal's last record, and forgets
    /// it when another record is appended.
    pub end: Option<[u8; 32]>,
}

impl Sealed {
    /// Returns the digest that is signed.
    pub fn digest(&self) -> Digest {
        Digest::of(&self.body)
    }

    /// Returns what the next record names as the one before it.
    pub fn link(&self) -> Digest {
        link(&self.digest(), &self.signature)
    }

    /// Leaves each record's token out that another follows, as a store does with what it keeps.
    pub fn forget_ends(records: &mut [Self]) {
        if let Some((_, earlier)) = records.split_last_mut() {
            earlier.iter_mut().for_each(|record| record.end = None);
        }
    }
}

fn link(digest: &Digest, signature: &[u8; 64]) -> Digest {
    Digest::of_parts(&[digest.as_bytes(), signature])
}

/// What every record says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Record {
    /// The version of the form.
    pub v: u32,
    /// The run.
    pub run: RunId,
    /// The record's place in the journal, from 0.
    pub seq: u64,
    /// The link of the record before; the SHA-256 of nothing for the first.
    pub prev: Digest,
    /// The SHA-256 of the token that shows that no record follows.
    pub end: Digest,
    /// When it was written: RFC 3339 in UTC with milliseconds.
    pub at: String,
    /// What happened.
    #[serde(flatten)]
    pub entry: Entry,
}

impl Record {
    /// Returns the visit of another run that the run is inside of, if this is the [start](Entry::Start) of one: what links a nested
    /// run to its outer one.
    pub fn parent(&self) -> Option<&Parent> {
        match &self.entry {
            Entry::Start(start) => start.parent.as_ref(),
            _ => None,
        }
    }
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Entry {
    /// A run began.
    Start(Start),
    /// A step was taken: every node of the frontier was visited.
    Step(Step),
    /// Calls of a step that is not done finished before others did.
    Calls(Calls),
    /// What the records before add up to.
    Snapshot(Snapshot),
    /// The run goes on in another process, or after an error.
    Resume(Resume),
    /// The run ended.
    End(End),
}

/// The beginning of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Start {
    /// The graph's id.
    pub graph: String,
    /// The version that the graph's author gave it.
    pub version: String,
    /// The digest that the graph's signature covers. A run never goes on with another graph.
    pub digest: Digest,
    /// Whose key signed the graph.
    pub signer: Fingerprint,
    /// The public key that the records are signed with, in hex.
    pub key: String,
    /// What the caller granted.
    pub grants: Vec<String>,
    /// The run's inputs, defaults applied. Secrets among them are sealed, as they are in what follows.
    pub inputs: Value,
    /// The fingerprint of the key that secrets are sealed with, where the graph has some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seal: Option<String>,
    /// Which visit of another run it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
    /// Where in another run it began; a snapshot follows then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Origin>,
    /// How many graphs and threads may stand one in the other below it, where the caller said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<u32>,
    /// How many steps it may take, where the caller said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// What it may use of what is granted, where the caller said; it holds for those who resume the run too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<Vec<Pattern>>,
}

/// The visit that a nested run belongs to (R188).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Parent {
    /// The run.
    pub run: RunId,
    /// The number of the visit.
    pub step: u64,
    /// The node.
    pub node: String,
    /// The item's index, where the node is a foreach.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<u64>,
}

/// Where in another run a run began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Origin {
    /// The other run.
    pub run: RunId,
    /// The record of its journal behind which it stood there.
    pub seq: u64,
    /// The link of that record.
    pub link: Digest,
    /// The state keys that were given other values than they had.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<String>,
}

/// A step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Step<V = Visit, T = Target> {
    /// The visits, in the order of the frontier.
    pub visits: Vec<V>,
    /// What is to be visited next, in the order of the paths. Nothing where the run ends.
    pub next: Vec<T>,
    /// The joins that branches came to in this step, and that have not come themselves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub joins: Vec<Join>,
    /// How many steps the run may take, where a hook allowed more than the graph does (R131).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

/// A value in a record: owned where the record is read, borrowed where it is written.
pub trait Payload: Serialize {
    /// Whether there is nothing to write.
    fn is_blank(&self) -> bool;
}

impl Payload for Value {
    fn is_blank(&self) -> bool {
        self.is_null()
    }
}

impl Payload for View<'_> {
    fn is_blank(&self) -> bool {
        self.is_null()
    }
}

impl Payload for Map<String, Value> {
    fn is_blank(&self) -> bool {
        self.is_empty()
    }
}

/// The visit of a node.
///
/// It is the only form of a visit's record. `T` are its texts, `D` its values and `C` what it wrote: owned where it is read, borrowed
/// where it is written.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(bound(serialize = "T: Serialize, D: Payload, C: Payload"))]
#[non_exhaustive]
pub struct Visit<T = String, D = Value, C = Map<String, Value>> {
    /// The number of the visit, from 1. It was given when the step before made the activation.
    pub step: u64,
    /// The node.
    pub node: T,
    /// The path: the place of each branch around the visit, the outermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub branch: Vec<u32>,
    /// The visit whose fan-out the innermost branch is of.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub fan: u64,
    /// What its tool returned; what a foreach collected is in its changes.
    #[serde(default, skip_serializing_if = "Payload::is_blank")]
    pub result: D,
    /// How often it was called, where that is more than once.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub calls: u64,
    /// The run of the nested graph.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// The items of a foreach that failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub items: Vec<ItemFailure>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<T>,
    /// How the failure was classified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub category: Option<T>,
    /// Whether the run went on along the node's own edges after the failure.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suppressed: bool,
    /// What the node's edges saw of that failure as `result`, beside `status` and `error`; its secrets are hidden.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<D>,
    /// Whether nothing was called, since what it would have returned was in the cache; of a foreach, of each of its items (R299).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cached: bool,
    /// What it wrote.
    #[serde(default, skip_serializing_if = "Payload::is_blank")]
    pub changes: C,
    /// The edges that were taken, by their indices in the node's list.
    #[serde(default, skip_serializing_if = "Vec::is_empty", alias = "edge", deserialize_with = "version_2::edges")]
    pub edges: Vec<u16>,
    /// How many branches the visit began, where it fanned out over a list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<u32>,
    /// The list that the visit fanned out over: one branch for each element. A list with secrets is sealed as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub list: Option<D>,
    /// The time that it was told, in milliseconds since the Unix epoch, if it asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<i64>,
    /// How long it took, in milliseconds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ms: u64,
    /// What was noticed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// An item of a foreach that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ItemFailure {
    /// The item's index, from 0.
    pub item: u64,
    /// Why.
    pub error: String,
}

/// A visit that failed, and ended the run with others of its step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct VisitFailure {
    /// The number of the visit.
    pub step: u64,
    /// The node.
    pub node: String,
    /// Why it failed.
    pub error: String,
    /// Whether it failed on what its calls returned: they are made again if the run is taken up.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unfit: bool,
}

/// Calls of a step that is not done, which finished before others of the step did: they are not made again if the run is taken up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Calls {
    /// The calls, in the order in which they finished.
    pub done: Vec<Done>,
}

/// A call that finished before its step was done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Done {
    /// The number of the visit.
    pub step: u64,
    /// The node.
    pub node: String,
    /// The item's index, where the node is a foreach.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<u64>,
    /// What it returned.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub result: Value,
    /// How often it was made, where that is more than once.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub calls: u64,
    /// The run of the nested graph.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// Whether it was not made, since what it would have returned was in the cache.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cached: bool,
    /// The time that the visit was told before the call, in milliseconds since the Unix epoch, if it asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<i64>,
    /// What was noticed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// A node that is to be visited.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Target<T = String> {
    /// The number that its visit will have.
    #[serde(default)]
    pub number: u64,
    /// The node.
    pub node: T,
    /// The path: the place of each branch around it, the outermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub branch: Vec<u32>,
    /// The visit whose fan-out the innermost branch is of.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub fan: u64,
}

/// A join that has not come yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Join {
    /// The node.
    pub node: String,
    /// The visit whose branches it joins.
    pub fan: u64,
    /// The branches that have come to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arrived: Vec<Arrival>,
}

/// A branch that has come to a join.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Arrival {
    /// The number of the visit that led to the join.
    pub visit: u64,
    /// The place of the branch in the join's fan-out.
    pub branch: u32,
}

/// A run that goes on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Resume {
    /// The visits that were committed before.
    pub steps: u64,
    /// What the caller grants now.
    pub grants: Vec<String>,
    /// How many steps the run may take from here on, where the caller said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// How deep graphs and threads may nest below it from here on, where the caller said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<u32>,
}

/// The end of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct End {
    /// How it ended.
    pub status: Status,
    /// How many nodes were visited.
    pub steps: u64,
    /// What the run returned.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub output: Value,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Where it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The error code of whatever the node's tool called, if it named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The time that the output was told, in milliseconds since the Unix epoch, if it asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<i64>,
    /// Whether it ended because it had taken all the steps it may.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exhausted: bool,
    /// The number of the signal that it was cancelled by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Whether it failed on what the node's calls returned: they are made again if the run is taken up.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unfit: bool,
    /// The visits of the last step that failed, where there were several; the first is the one that `error` and `node` tell of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<VisitFailure>,
    /// What was noticed while the output was computed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

impl End {
    /// An end of which there is nothing else to say.
    pub(crate) fn of(status: Status, steps: u64) -> Self {
        Self {
            status,
            steps,
            output: Value::Null,
            error: None,
            node: None,
            code: None,
            now: None,
            exhausted: false,
            signal: None,
            unfit: false,
            failures: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// Whether a call that was done is made again if the run is taken up, since its node failed on what it returned.
    pub(crate) fn forgets(&self, done: &Done) -> bool {
        let is_first = self.unfit && self.node.as_ref() == Some(&done.node);
        is_first || self.failures.iter().any(|failed| failed.unfit && failed.step == done.step)
    }
}

/// How a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Status {
    /// It is at work, or its process is gone and it waits to be resumed.
    Running,
    /// It ended with a result.
    Completed,
    /// It ended with a result, and went on after failures on its way.
    CompletedWithErrors,
    /// It ended with an error; it can be resumed at the node that failed.
    Error,
    /// It was cancelled; it can be resumed after the last step that was committed.
    Cancelled,
}

impl Status {
    /// Returns the word: `running`, `completed` …
    pub const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Completed => "completed",
            Self::CompletedWithErrors => "completed_with_errors",
            Self::Error => "error",
            Self::Cancelled => "cancelled",
        }
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// What is wrong with a journal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// There is nothing.
    #[error("its journal is empty")]
    Empty,
    /// A record cannot be read.
    #[error("record {seq} of its journal cannot be read: {reason}")]
    Unreadable {
        /// The record.
        seq: u64,
        /// Why.
        reason: String,
    },
    /// The form is one that this version does not know.
    #[error(
        "record {seq} of its journal has version {found}, and this program reads versions {FIRST_VERSION} to {VERSION}"
    )]
    Version {
        /// The record.
        seq: u64,
        /// What it says.
        found: u32,
    },
    /// A record is not the one that follows: one was dropped, moved, changed, or comes from another run.
    #[error("record {seq} of its journal does not follow the one before it: the journal was changed")]
    Broken {
        /// The record.
        seq: u64,
    },
    /// A record is signed by another key.
    #[error("record {seq} of its journal is not signed by {key}, the key of this runtime")]
    Signature {
        /// The record.
        seq: u64,
        /// The fingerprint of the key that was expected.
        key: Fingerprint,
    },
    /// Records were taken away from the end.
    #[error("record {seq} of its journal was not the last one: records behind it were taken away")]
    Shortened {
        /// The record that is the last one now.
        seq: u64,
    },
    /// The records do not add up.
    #[error("record {seq} of its journal does not fit the graph: {reason}")]
    Misfit {
        /// The record.
        seq: u64,
        /// Why.
        reason: String,
    },
}

/// The end of a chain, to which records are added.
#[derive(Debug, Clone)]
pub(crate) struct Chain {
    run: RunId,
    seq: u64,
    prev: Digest,
    /// The version of the last record: those that follow have none before it.
    version: u32,
}

/// A record that is being written; its parts are borrowed, not copied.
#[derive(Serialize)]
struct Draft<'a, E> {
    v: u32,
    run: &'a RunId,
    seq: u64,
    prev: Digest,
    end: Digest,
    at: String,
    kind: &'static str,
    #[serde(flatten)]
    entry: E,
}

impl Chain {
    /// A chain without records.
    pub(crate) fn new(run: RunId) -> Self {
        Self { run, seq: 0, prev: Digest::of([]), version: FIRST_VERSION }
    }

    /// Returns how many records there are.
    pub(crate) fn len(&self) -> u64 {
        self.seq
    }

    /// Writes, chains and signs a record.
    pub(crate) fn seal(
        &mut self,
        kind: &'static str,
        entry: impl Serialize,
        at: SystemTime,
        key: &SecretKey,
    ) -> Sealed {
        let at = timestamp::milliseconds(at);
        let token = *key.derive(&format!("end of journal {} at {}", self.run, self.seq));
        let (seq, prev, end) = (self.seq, self.prev, Digest::of(token));
        let draft = Draft { v: VERSION, run: &self.run, seq, prev, end, at, kind, entry };
        let body = serde_json::to_string(&draft).expect("a record has only texts as keys and finite numbers");
        let digest = Digest::of(&body);
        let signature = key.sign(&digest);
        self.seq += 1;
        self.prev = link(&digest, &signature);
        self.version = VERSION;
        Sealed { seq, signature, body, end: Some(token) }
    }
}

/// A visit as the engine writes it.
pub(crate) type WrittenVisit<'a> = Visit<&'a str, View<'a>, Changes<'a>>;

/// What a visit returned and wrote, with its secrets sealed or hidden.
pub(crate) struct Covered {
    pub(crate) result: Value,
    pub(crate) changes: Map<String, Value>,
    pub(crate) list: Option<Value>,
}

/// What a visit wrote, as the engine writes it down.
#[derive(Debug, Clone)]
pub(crate) enum Changes<'a> {
    /// As it is.
    Plain(&'a CompiledGraph, &'a [Change]),
    /// With its secrets sealed or hidden.
    Covered(&'a Map<String, Value>),
}

impl Serialize for Changes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Plain(graph, changes) => {
                serializer.collect_map(changes.iter().map(|change| (&graph.keys[change.key].name, &change.value)))
            }
            Self::Covered(changes) => changes.serialize(serializer),
        }
    }
}

impl Payload for Changes<'_> {
    fn is_blank(&self) -> bool {
        match self {
            Self::Plain(_, changes) => changes.is_empty(),
            Self::Covered(changes) => changes.is_empty(),
        }
    }
}

impl WrittenVisit<'_> {
    /// Returns the visit as it is read.
    pub(crate) fn to_read(&self) -> Visit {
        let value = serde_json::to_value(self).and_then(serde_json::from_value);
        value.expect("a visit has only texts as keys and finite numbers")
    }
}

/// Returns what is to be visited next, as it is written.
pub(crate) fn targets<'a>(graph: &'a CompiledGraph, frontier: &[Activation]) -> Vec<Target<&'a str>> {
    let target = |at: &Activation| Target {
        number: at.number,
        node: graph.node(at.node).name.as_str(),
        branch: path(at.frame.as_ref()),
        fan: at.frame.as_ref().map_or(0, |frame| frame.fan.visit),
    };
    frontier.iter().map(target).collect()
}

/// Returns joins as they are written.
pub(crate) fn open_joins<'j>(graph: &CompiledGraph, joins: impl IntoIterator<Item = &'j OpenJoin>) -> Vec<Join> {
    let join = |OpenJoin { node, fan, arrived }: &OpenJoin| Join {
        node: graph.node(*node).name.clone(),
        fan: fan.visit,
        arrived: arrived.clone(),
    };
    joins.into_iter().map(join).collect()
}

/// A journal whose chain is whole and whose signatures are the key's.
#[derive(Debug)]
pub(crate) struct Verified<'s> {
    chain: Chain,
    sealed: &'s [Sealed],
    /// What each record names as the one before it.
    links: Vec<Digest>,
}

/// A journal that was verified and read.
#[derive(Debug)]
pub(crate) struct Journal {
    pub(crate) chain: Chain,
    pub(crate) start: Start,
    /// The records behind the first: all of them, or those from the last snapshot on.
    pub(crate) records: Vec<Record>,
    /// When the next snapshot is due.
    pub(crate) due: Due,
}

impl Journal {
    /// Verifies and reads all of a journal.
    pub(crate) fn verify(run: &RunId, sealed: &[Sealed], key: &PublicKey) -> Result<Self, JournalError> {
        Verified::new(run, sealed, key)?.read()
    }
}

/// Verifies a journal, and returns what its first record says.
///
/// # Errors
///
/// If the journal is not what the engine wrote with that key.
pub fn verified_start(run: &RunId, sealed: &[Sealed], key: &PublicKey) -> Result<Start, JournalError> {
    Journal::verify(run, sealed, key).map(|journal| journal.start)
}

impl<'s> Verified<'s> {
    /// Verifies a journal.
    ///
    /// The chain is followed from the first record to the last, whose signature vouches for it all. What is verified is what is
    /// used: the records are made of the very bytes that were hashed, and nothing of them is looked at before, but for whether
    /// they begin as the chain asks.
    pub(crate) fn new(run: &RunId, sealed: &'s [Sealed], key: &PublicKey) -> Result<Self, JournalError> {
        Self::after(&Chain::new(run.clone()), sealed, key)
    }

    /// Verifies records that follow a chain.
    fn after(before: &Chain, sealed: &'s [Sealed], key: &PublicKey) -> Result<Self, JournalError> {
        let Some(last) = sealed.last() else { return Err(JournalError::Empty) };
        let links = follow(before, sealed);
        let at = links.len();
        let is_whole = at == sealed.len();
        if !is_whole || !key.verifies(&last.digest(), &last.signature) {
            let at = at.min(sealed.len() - 1);
            let chain = before.behind(&sealed[..at]);
            return Err(blame(&chain, &sealed[at.saturating_sub(1)..=at], key));
        }
        let chain = before.behind(sealed);
        let shown = last.end.map(Digest::of);
        let EndOnly { end } = read(last.seq, &last.body)?;
        if Some(end) != shown {
            return Err(JournalError::Shortened { seq: last.seq });
        }
        Ok(Self { chain, sealed, links })
    }

    /// Returns how many records there are.
    pub(crate) fn len(&self) -> usize {
        self.sealed.len()
    }

    /// Reads the record at a place, so that who goes through a long journal need not have all of it in memory.
    pub(crate) fn record(&self, at: usize) -> Option<Result<Record, JournalError>> {
        let (one, prev) = (self.sealed.get(at)?, self.links.get(at)?);
        Some(read_next(&self.chain.run, one, *prev))
    }

    /// Reads when the first record was written, and what it says.
    pub(crate) fn start(&self) -> Result<(String, Start), JournalError> {
        match self.record(0).transpose()? {
            Some(Record { at, entry: Entry::Start(start), .. }) => Ok((at, start)),
            _ => Err(JournalError::Broken { seq: 0 }),
        }
    }

    /// Reads all of it.
    pub(crate) fn read(self) -> Result<Journal, JournalError> {
        self.read_from(1)
    }

    /// Reads what tells where the run stands: its beginning, and what follows from the last snapshot on.
    pub(crate) fn read_recent(self) -> Result<Journal, JournalError> {
        let is_snapshot = |one: &Sealed| head(&one.body).is_some_and(|(_, _, kind)| kind == "snapshot");
        let from = self.sealed.iter().rposition(is_snapshot).unwrap_or(1);
        self.read_from(from)
    }

    /// Reads the records by themselves.
    fn records(&self) -> Result<Vec<Record>, JournalError> {
        let known = self.sealed.iter().zip(&self.links);
        known.map(|(one, prev)| read_next(&self.chain.run, one, *prev)).collect()
    }

    fn read_from(self, from: usize) -> Result<Journal, JournalError> {
        let (_, start) = self.start()?;
        let Self { chain, sealed, links } = self;
        let known = || sealed.iter().zip(&links);
        let one = |(one, prev): (&Sealed, &Digest)| read_next(&chain.run, one, *prev);
        let mut due = Due::default();
        let mut records = Vec::with_capacity(sealed.len().saturating_sub(from));
        for known in known().skip(from) {
            let record = one(known)?;
            match record.entry {
                Entry::Snapshot(_) => due.took(known.0.body.len()),
                _ => due.wrote(known.0.body.len()),
            }
            records.push(record);
        }
        Ok(Journal { chain, start, records, due })
    }
}

/// Reads a journal while it grows: what is new is verified, and what was read before is not read again.
#[derive(Debug)]
pub struct Follower {
    chain: Chain,
    key: PublicKey,
}

impl Follower {
    /// Reads the journal of a run from its beginning. `key` is the public key of the runtime that writes it.
    pub fn new(run: RunId, key: PublicKey) -> Self {
        Self { chain: Chain::new(run), key }
    }

    /// Returns the number of the next record, from which on a store is to [load](crate::Store::load_from).
    pub fn next(&self) -> u64 {
        self.chain.len()
    }

    /// Verifies and reads the records that follow, all that there are by now; none is nothing new.
    ///
    /// # Errors
    ///
    /// If they do not follow, are not signed with the key, or were cut short. Nothing was read then.
    pub fn read(&mut self, sealed: &[Sealed]) -> Result<Vec<Record>, JournalError> {
        if sealed.is_empty() {
            return Ok(Vec::new());
        }
        let verified = Verified::after(&self.chain, sealed, &self.key)?;
        let records = verified.records()?;
        self.chain = verified.chain;
        Ok(records)
    }
}

/// How many records are followed by one thread at least.
const A_THREAD: usize = 10_000;

/// Follows a chain from its first record as far as each begins as the one before it asks, and returns what those name as the one
/// before them. A long chain is followed in parts at the same time: where one begins is told by the record before it.
fn follow(before: &Chain, sealed: &[Sealed]) -> Vec<Digest> {
    let threads = available_parallelism().map_or(1, usize::from).min(sealed.len() / A_THREAD).max(1);
    if threads == 1 {
        return follow_part(before, sealed, 0..sealed.len());
    }
    let part = sealed.len().div_ceil(threads);
    let parts = (0..sealed.len()).step_by(part).map(|from| from..sealed.len().min(from + part));
    let mut links = Vec::with_capacity(sealed.len());
    thread::scope(|scope| {
        let parts: Vec<_> =
            parts.map(|part| (part.clone(), scope.spawn(|| follow_part(before, sealed, part)))).collect();
        for (part, followed) in parts {
            // What a thread that could not finish did not follow does not count.
            links.extend(followed.join().unwrap_or_default());
            if links.len() < part.end {
                break;
            }
        }
    });
    links
}

fn follow_part(before: &Chain, sealed: &[Sealed], part: Range<usize>) -> Vec<Digest> {
    let mut chain = before.behind(&sealed[..part.start]);
    let mut links = Vec::with_capacity(part.len());
    for one in &sealed[part] {
        if one.seq != chain.seq || !chain.starts(&one.body) {
            break;
        }
        links.push(chain.prev);
        chain.version = version(&one.body).unwrap_or(VERSION);
        chain.seq += 1;
        chain.prev = one.link();
    }
    links
}

impl Chain {
    /// Returns the chain behind records that follow it.
    fn behind(&self, sealed: &[Sealed]) -> Self {
        let (prev, version) = match sealed.last() {
            Some(last) => (last.link(), version(&last.body).unwrap_or(VERSION)),
            None => (self.prev, self.version),
        };
        Self { run: self.run.clone(), seq: self.seq + sealed.len() as u64, prev, version }
    }

    /// Whether a text begins as that of the next record must: `{"v":3,"run":…,"seq":…,"prev":…,"end":"`, spelt in one way only.
    /// The version never falls along a journal.
    fn starts(&self, body: &str) -> bool {
        if version(body).is_none_or(|version| version < self.version) {
            return false;
        }
        let after = || {
            let rest = body
                .get(VERSIONED.len() + 1..)?
                .strip_prefix(RUN)?
                .strip_prefix(self.run.as_str())?
                .strip_prefix(r#"","seq":"#)?;
            let rest = rest.strip_prefix(self.seq.to_string().as_str())?.strip_prefix(r#","prev":""#)?;
            let (prev, rest) = rest.split_at_checked(64)?;
            // A digest is written in one way only, and so can be compared when it is read.
            (prev.parse::<Digest>().ok()? == self.prev).then_some(rest)
        };
        after().is_some_and(|rest| rest.starts_with(r#"","end":""#))
    }
}

/// Says what is wrong with a record that does not follow the chain, or with the one before it, which may be what was changed.
fn blame(chain: &Chain, records: &[Sealed], key: &PublicKey) -> JournalError {
    let first = (chain.seq + 1).saturating_sub(records.len() as u64);
    for (seq, one) in (first..).zip(records) {
        // Nothing of a record that is not ours is looked at.
        if !key.verifies(&one.digest(), &one.signature) {
            return JournalError::Signature { seq, key: key.fingerprint() };
        }
        match read::<VersionOnly>(seq, &one.body) {
            Ok(VersionOnly { v: FIRST_VERSION..=VERSION }) => {}
            Ok(VersionOnly { v }) => return JournalError::Version { seq, found: v },
            Err(error) => return error,
        }
    }
    JournalError::Broken { seq: chain.seq }
}

/// How a record begins, before the digit of its version.
const VERSIONED: &str = r#"{"v":"#;
/// What follows the digit, before the run.
const RUN: &str = r#","run":""#;
const _: () = assert!(FIRST_VERSION == 2 && VERSION == 3, "versions are of one digit");

/// Returns the version that a record begins with, if it is one that is read.
fn version(body: &str) -> Option<u32> {
    match body.as_bytes().get(VERSIONED.len()).filter(|_| body.starts_with(VERSIONED))? {
        b'2' => Some(2),
        b'3' => Some(3),
        _ => None,
    }
}

/// Returns what a text that begins as the chain asks says of its token, its time and its kind.
pub fn head(body: &str) -> Option<(&str, &str, &str)> {
    // What was verified ends here: `{"v":…,"run":…,"seq":…,"prev":…,"end":"`.
    let (_, rest) = body.split_once(r#"","end":""#)?;
    let (end, rest) = rest.split_once(r#"","at":""#)?;
    let (at, rest) = rest.split_once(r#"","kind":""#)?;
    let (kind, _) = rest.split_once('"')?;
    Some((end, at, kind))
}

#[derive(Deserialize)]
struct EndOnly {
    end: Digest,
}

#[derive(Deserialize)]
struct VersionOnly {
    v: u32,
}

/// Reads a record that begins as the chain asks: `prev` is the link of the one before.
///
/// What comes before the kind is spelt in one way only, and is cut off rather than read. Reading a record as a whole, whose
/// members depend on one among them, means to put all of them down as values first: that takes three times as long.
fn read_next(run: &RunId, sealed: &Sealed, prev: Digest) -> Result<Record, JournalError> {
    let (seq, body) = (sealed.seq, sealed.body.as_str());
    let Some((end, at, kind)) = head(body) else { return read(seq, body) };
    let Ok(end) = end.parse::<Digest>() else { return read(seq, body) };
    let entry = match kind {
        "start" => Entry::Start(read(seq, body)?),
        "step" => Entry::Step(read(seq, body)?),
        "calls" => Entry::Calls(read(seq, body)?),
        "snapshot" => Entry::Snapshot(read(seq, body)?),
        "resume" => Entry::Resume(read(seq, body)?),
        "end" => Entry::End(read(seq, body)?),
        _ => return read(seq, body),
    };
    let v = version(body).unwrap_or(VERSION);
    let entry = if v < VERSION { version_2::numbered(entry) } else { entry };
    Ok(Record { v, run: run.clone(), seq, prev, end, at: at.to_owned(), entry })
}

fn read<T: for<'de> Deserialize<'de>>(seq: u64, body: &str) -> Result<T, JournalError> {
    serde_json::from_str(body).map_err(|error| JournalError::Unreadable { seq, reason: error.to_string() })
}

impl Visit {
    /// Returns the edges that were taken by a visit of a node that `fans_out`, or does not.
    pub(crate) fn taken(&self, fans_out: bool) -> Edges {
        match (&self.list, self.edges.as_slice()) {
            // Of a list that is sealed only the length is known.
            (Some(Value::Array(list)), _) => Edges::Over(Arc::new(list.clone())),
            (_, []) if self.over.is_some() => {
                let length = self.over.and_then(|length| usize::try_from(length).ok()).unwrap_or_default();
                let length = length.min(MOST_BRANCHES);
                Edges::Over(Arc::new(vec![Value::Null; length]))
            }
            (_, []) if !fans_out => Edges::None,
            (_, [edge]) if !fans_out => Edges::One(*edge),
            (_, edges) => Edges::Many(Arc::new(edges.to_vec())),
        }
    }

    /// Returns the edge that was taken, if it is one.
    pub fn edge(&self) -> Option<u16> {
        match self.edges.as_slice() {
            [edge] => Some(*edge),
            _ => None,
        }
    }
}

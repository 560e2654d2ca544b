//! Records and what they hold.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use graph_model::capability::Pattern;
use graph_model::digest::Digest;
use graph_model::name::RunId;
use graph_model::value::{Map, Value, View};
use graph_signing::Fingerprint;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::from_str;
use serde_json::value::RawValue;

use crate::activation::{Arrival, TakenEdges};
use crate::call::Parent;
use crate::failure::{ItemFailure, LastError, SuppressedError};
use crate::graph::MOST_BRANCHES;
use crate::record::version_2;
use crate::status::Status;

/// What every record says.
#[derive(Debug, Clone, PartialEq, Serialize)]
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

    /// Reads a record, however its members are ordered.
    ///
    /// # Errors
    ///
    /// If its kind does not exist, or a member is missing, of another type, or there twice.
    pub(super) fn read(body: &str) -> Result<Self, serde_json::Error> {
        let Head { v, run, seq, prev, end, at, kind } = from_str(body)?;
        Ok(Self { v, run, seq, prev, end, at, entry: Entry::of_kind(&kind, body)? })
    }
}

/// The members of a record beside those of its entry.
#[derive(Deserialize)]
struct Head {
    v: u32,
    run: RunId,
    seq: u64,
    prev: Digest,
    end: Digest,
    at: String,
    kind: String,
}

impl<'de> Deserialize<'de> for Record {
    /// Reads a record from JSON. Another format has no text of it to read the entry from.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Derived code would first read each entry into a form of serde's own, and twice as much code would be compiled.
        let body = Box::<RawValue>::deserialize(deserializer)?;
        Self::read(body.get()).map_err(D::Error::custom)
    }
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize)]
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
    /// The run continues in another process, or after an error.
    Resume(Resume),
    /// The run ended.
    End(End),
}

/// The kinds of entries, as records name them.
const KINDS: &[&str] = &["start", "step", "calls", "snapshot", "resume", "end"];

impl Entry {
    /// Reads the entry of a kind from the text of its record.
    ///
    /// # Errors
    ///
    /// If there is no such kind, or a member is missing, of another type, or there twice.
    pub(super) fn of_kind(kind: &str, body: &str) -> Result<Self, serde_json::Error> {
        match kind {
            "start" => from_str(body).map(Self::Start),
            "step" => from_str(body).map(Self::Step),
            "calls" => from_str(body).map(Self::Calls),
            "snapshot" => from_str(body).map(Self::Snapshot),
            "resume" => from_str(body).map(Self::Resume),
            "end" => from_str(body).map(Self::End),
            other => Err(serde_json::Error::unknown_variant(other, KINDS)),
        }
    }
}

/// The beginning of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Start {
    /// The graph's id.
    pub graph: String,
    /// The version that the graph's author gave it.
    pub version: String,
    /// The digest that the graph's signature covers. A run never continues with another graph.
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
    /// How many levels of graphs and threads may be nested below it, where the caller said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<u32>,
    /// How many steps it may take, where the caller said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// What it may use of what is granted, where the caller said; it holds for those who resume the run too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<Vec<Pattern>>,
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

impl Origin {
    /// Where a run begins that was another one before, with the keys that were changed.
    pub fn new(run: RunId, seq: u64, link: Digest, changed: Vec<String>) -> Self {
        Self { run, seq, link, changed }
    }
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
    /// Whether it failed on what its calls returned: they are made again if the run is resumed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unfit: bool,
}

/// Calls of an unfinished step that finished before others of the step: they are not made again if the run is resumed.
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

/// A run that is resumed.
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
    /// Whether it failed on what the node's calls returned: they are made again if the run is resumed.
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
    pub fn of(status: Status, steps: u64) -> Self {
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

    /// Whether a call that was done is made again if the run is resumed, since its node failed on what it returned.
    pub fn forgets(&self, done: &Done) -> bool {
        let is_first = self.unfit && self.node.as_ref() == Some(&done.node);
        is_first || self.failures.iter().any(|failed| failed.unfit && failed.step == done.step)
    }
}

pub(super) fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Calls that finished before their step was done, by the number of the visit and the item's index.
pub type CompletedCalls = HashMap<(u64, Option<u64>), Done>;

impl Visit {
    /// Returns the edges that were taken by a visit of a node that `fans_out`, or does not.
    pub fn taken(&self, fans_out: bool) -> TakenEdges {
        match (&self.list, self.edges.as_slice()) {
            // Of a list that is sealed only the length is known.
            (Some(Value::Array(list)), _) => TakenEdges::Over(Arc::new(list.clone())),
            (_, []) if self.over.is_some() => {
                let length = self.over.and_then(|length| usize::try_from(length).ok()).unwrap_or_default();
                let length = length.min(MOST_BRANCHES);
                TakenEdges::Over(Arc::new(vec![Value::Null; length]))
            }
            (_, []) if !fans_out => TakenEdges::None,
            (_, [edge]) if !fans_out => TakenEdges::One(*edge),
            (_, edges) => TakenEdges::Many(Arc::new(edges.to_vec())),
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

/// Where a run stands behind a step: its state without its inputs, which the first record has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Snapshot {
    /// How many nodes were visited.
    pub steps: u64,
    /// The node that was visited last.
    pub last: String,
    /// The state keys that are set.
    pub keys: Map<String, Value>,
    /// What is to be visited next.
    pub next: Vec<Target>,
    /// The last failure of a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<LastError>,
    /// The failures that the run went on after.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suppressed: Vec<SuppressedError>,
    /// How often nodes that failed were tried again, by their names.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub retries: Map<String, Value>,
    /// How often nodes were visited, by their names, where the graph asks for that.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub visits: BTreeMap<String, u64>,
    /// What the last visit returned of each node that asks for that.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub previous: Map<String, Value>,
    /// How many steps the run may take, where that is not what the graph says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// What waits for something from outside.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parked: Vec<Target>,
    /// The visits whose branches are not over.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fans: Vec<FanOut>,
    /// The joins that have not come yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub joins: Vec<Join>,
    /// What is remembered of each branch, where there is something.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub branches: Vec<BranchMemory>,
}

/// A visit that began branches which are not over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FanOut {
    /// The number of the visit.
    pub visit: u64,
    /// The node.
    pub node: String,
    /// The branch that the visit was in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outer: Option<InBranch>,
    /// The list that it went over. A list with secrets is sealed as a whole.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub list: Value,
}

/// A branch, by what names it in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct InBranch {
    /// The number of the visit that began it.
    pub fan: u64,
    /// Its place among the branches of that visit, from 0.
    pub branch: u32,
}

/// What is remembered of a branch, in the words of a [`Snapshot`], which remembers the visits outside all branches.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BranchMemory {
    /// The number of the visit that began the branch.
    pub fan: u64,
    /// Its place among the branches of that visit, from 0.
    pub branch: u32,
    /// The last failure of a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<LastError>,
    /// The number of the visit that failed last.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failed_at: u64,
    /// How often nodes that failed were tried again, by their names.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub retries: Map<String, Value>,
    /// How often nodes were visited, by their names, where the graph asks for that.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub visits: BTreeMap<String, u64>,
    /// What the last visit returned of each node that asks for that.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub previous: Map<String, Value>,
}

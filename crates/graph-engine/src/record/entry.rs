//! Records and what they hold.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use graph_model::capability::Pattern;
use graph_model::digest::Digest;
use graph_model::name::RunId;
use graph_model::reducer::{Channels, Uncombined};
use graph_model::value::{Map, Value, View};
use graph_signing::Fingerprint;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::from_str;
use serde_json::value::RawValue;

use crate::activation::{Arrival, TakenEdges, writes_of};
use crate::address::Address;
use crate::call::{Parent, TaskOrigin};
use crate::failure::{HeldFailure, ItemFailure, LastError, SuppressedError, is_zero};
use crate::graph::{CompiledGraph, GraphTables, MOST_BRANCHES};
use crate::record::version_2;
use crate::state::StateFields;
use crate::status::Status;
use crate::step::{OpenWait, Opened, PausedNodes, Position, Suspension, TakenWait, Waited};

/// The members of every record.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Record {
    /// The format version.
    pub v: u32,
    /// The run.
    pub run: RunId,
    /// The record's index in the journal, from 0.
    pub seq: u64,
    /// The link of the record before; for the first record, the SHA-256 of empty input.
    pub prev: Digest,
    /// The SHA-256 of the token that proves that no record follows.
    pub end: Digest,
    /// When it was written: RFC 3339 in UTC with milliseconds.
    pub at: String,
    /// The entry, which depends on the kind of the record.
    #[serde(flatten)]
    pub entry: Entry,
}

impl Record {
    /// Returns the visit of another run that this run is nested in, if this is the [start](Entry::Start) of a nested run. It
    /// links the nested run to its outer one.
    pub fn parent(&self) -> Option<&Parent> {
        match &self.entry {
            Entry::Start(start) => start.parent.as_ref(),
            _ => None,
        }
    }

    /// Reads a record, whose members may be in any order.
    ///
    /// # Errors
    ///
    /// If its kind does not exist, or a member is missing, has another type, or occurs twice.
    pub(super) fn read(body: &str) -> Result<Self, serde_json::Error> {
        let Head { v, run, seq, prev, end, at, kind } = from_str(body)?;
        Ok(Self { v, run, seq, prev, end, at, entry: Entry::of_kind(&kind, body)? })
    }
}

/// The members of a record besides those of its entry.
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
    /// Reads a record from JSON. Other formats fail, because they have no JSON text to read the entry from.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Derived code would first read each entry into an intermediate form of serde's, and would double the amount of
        // compiled code.
        let body = Box::<RawValue>::deserialize(deserializer)?;
        Self::read(body.get()).map_err(D::Error::custom)
    }
}

/// The content of a record.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Entry {
    /// A run began.
    Start(Start),
    /// A step was taken: every node of the frontier was visited.
    Step(Step),
    /// Calls of an unfinished step finished before others did.
    Calls(Calls),
    /// Visits have waited, and are made in the next step.
    Take(Take),
    /// The sum of the records before.
    Snapshot(Snapshot),
    /// The run continues in another process, or after an error.
    Resume(Resume),
    /// A person changed the state of the run while it was not in progress. A resume follows before anything else.
    Edit(Edit),
    /// The run ended.
    End(End),
}

/// The kinds of entries, as records name them.
const KINDS: &[&str] = &["start", "step", "calls", "take", "snapshot", "resume", "edit", "end"];

impl Entry {
    /// Reads the entry of a kind from the text of its record.
    ///
    /// # Errors
    ///
    /// If there is no such kind, or a member is missing, has another type, or occurs twice.
    pub(super) fn of_kind(kind: &str, body: &str) -> Result<Self, serde_json::Error> {
        match kind {
            "start" => from_str(body).map(Self::Start),
            "step" => from_str(body).map(Self::Step),
            "calls" => from_str(body).map(Self::Calls),
            "take" => from_str(body).map(Self::Take),
            "snapshot" => from_str(body).map(Self::Snapshot),
            "resume" => from_str(body).map(Self::Resume),
            "edit" => from_str(body).map(Self::Edit),
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
    /// The version that the graph's author gave the graph.
    pub version: String,
    /// The digest that the graph's signature covers.
    pub digest: Digest,
    /// The digest of the graph's meaning. The run continues under a text of the graph that has the same; without it, under the text
    /// with the digest above only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meaning: Option<Digest>,
    /// The fingerprint of the key that signed the graph.
    pub signer: Fingerprint,
    /// The public key that the records are signed with, in hex.
    pub key: String,
    /// The capabilities that the caller granted.
    pub grants: Vec<String>,
    /// The run's inputs, with defaults applied. Secrets among them are encrypted, as in the records that follow.
    pub inputs: Value,
    /// The keys that it shares with the run around it, with their values there; null where a key was not set.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub shared: Map<String, Value>,
    /// The entry at which it began; `None` if it began at the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<String>,
    /// The fingerprint of the key that secrets are encrypted with, if the graph has secrets.
    #[serde(rename = "seal", default, skip_serializing_if = "Option::is_none")]
    pub encryption_key: Option<String>,
    /// The visit of another run that this run belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
    /// The run whose task it is, and the call that spawned it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskOrigin>,
    /// Where it receives signals and answers, if it is nested and can wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<Address>,
    /// The place in another run at which this run began; a snapshot follows then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Origin>,
    /// How many levels of graphs and threads may be nested below it, if the caller set a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<u32>,
    /// How many steps it may take, if the caller set a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// The lowest `limits.steps` of the runs around it and the visits that called them, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<u64>,
    /// The capabilities that the caller restricted the run to, if it did; they also bind anyone who resumes the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<Vec<Pattern>>,
    /// The time of the store at which it must have ended, in milliseconds since the Unix epoch, if its graph has a deadline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<i64>,
    /// The nodes at which it pauses, if the caller named any.
    #[serde(default, skip_serializing_if = "PausedNodes::is_empty")]
    pub pauses: PausedNodes,
}

impl Start {
    /// Whether the run continues under this graph: it has the id and the meaning of the graph that the run began under. If either
    /// of them has no meaning, it is the same text.
    pub fn is_under(&self, graph: &CompiledGraph) -> bool {
        let is_same = match (self.meaning, graph.meaning()) {
            (Some(own), Some(other)) => own == other,
            _ => self.digest == graph.digest(),
        };
        is_same && self.graph == graph.id().as_str()
    }

    /// Describes the graph that the run began under: id, version and digest.
    pub fn shown_graph(&self) -> String {
        format!("{} {} ({})", self.graph, self.version, self.digest)
    }

    /// Returns the position in which the run begins, and writes the keys that it shares to its state. The state is `None` while
    /// its secrets are encrypted.
    ///
    /// # Errors
    ///
    /// If the graph has no such entry or shared key, or its state does not accept the value of one.
    pub fn begin(
        &self,
        code: &GraphTables,
        state: Option<&mut (dyn StateFields + 'static)>,
    ) -> Result<Position, String> {
        let inputs = state.as_deref().filter(|_| self.entry.is_some()).map(|state| state.inputs().to_plain_value());
        let mut position = Position::at_entry(code, self.entry.as_deref(), inputs.as_ref())?;
        position.limit = self.limit.map(u64::from);
        position.pauses = self.pauses.resolve(code)?;
        position.share(code, state, &self.shared)?;
        Ok(position)
    }
}

/// The place in another run at which a run began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Origin {
    /// The other run.
    pub run: RunId,
    /// The record of that run's journal after which this run begins.
    pub seq: u64,
    /// The link of that record.
    pub link: Digest,
    /// The state keys whose values were changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<String>,
}

impl Origin {
    /// Returns the place in another run at which a run begins, with the keys that were changed.
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
    /// The activations of the next step, ordered by path. Empty if the run ends.
    pub next: Vec<T>,
    /// The joins that this step opened, that branches reached in it, or whose quorum it decided while their branches run on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub joins: Vec<Join>,
    /// The channels whose last elements the step put in the order of the branches, which met in it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ordered: Vec<NewOrder>,
    /// The channels that a function of the program combined writes of the step with, and their values after it.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub reduced: Map<String, Value>,
    /// How many steps the run may take, if a hook allowed more than the graph does (R131).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

impl Step {
    /// Updates the targets of the visits whose failures are held, as the step leaves them: those that are made again when the
    /// run is resumed.
    pub fn update_held(&self, held: &mut Vec<Target>) {
        let new = self.visits.iter().filter(|visit| visit.held && !visit.late);
        held.extend(new.map(|visit| Target {
            number: visit.step,
            node: visit.node.clone(),
            branch: visit.branch.clone(),
            fan: visit.fan,
        }));
        // A branch that nothing needs any more is over when a node around its fan-out is visited next.
        let next: BTreeSet<&[u32]> = self.next.iter().map(|next| next.branch.as_slice()).collect();
        held.retain(|at| !(0..at.branch.len()).any(|length| next.contains(&at.branch[..length])));
    }

    /// Forgets the finished calls of the step, which is committed, except those that are kept for a visit that is made again.
    pub fn keep_calls(&self, done: &mut CompletedCalls) {
        let visits: BTreeMap<u64, &Visit> = self.visits.iter().map(|visit| (visit.step, visit)).collect();
        let is_kept = |visit: &&Visit, done: &Done| visit.keeps_calls() && done.suspended.is_none();
        done.retain(|(step, _), done| visits.get(step).is_none_or(|visit| is_kept(visit, done)));
    }
}

/// The order that the last elements of a channel get in a step, after its writes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NewOrder {
    /// The key.
    pub key: String,
    /// For each of the last elements, the place among them that it had before, from 0.
    pub from: Vec<u32>,
}

impl NewOrder {
    /// Puts the last elements of the channel in their order, in keys whose secrets may be encrypted or hidden, after the
    /// changes of the step's visits.
    ///
    /// # Errors
    ///
    /// If the channel does not have the elements: no run of the graph records that.
    pub fn apply(&self, keys: &mut Map<String, Value>) -> Result<(), String> {
        let Self { key, from } = self;
        let list = keys.get_mut(key).and_then(Value::as_array_mut);
        let last = list.and_then(|list| {
            let first = list.len().checked_sub(from.len())?;
            list.get_mut(first..)
        });
        let last = last.ok_or_else(|| format!("`{key}`: there are no {} elements to put in order", from.len()))?;
        let old = last.to_vec();
        for (place, from) in last.iter_mut().zip(from) {
            let element = usize::try_from(*from).ok().and_then(|from| old.get(from));
            *place = element.ok_or_else(|| format!("`{key}`: there is no element {from}"))?.clone();
        }
        Ok(())
    }
}

/// A value in a record: owned when the record is read, borrowed when it is written.
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
/// It is the only form in which a visit is recorded. `T` is the type of its texts, `D` of its values and `C` of its changes:
/// owned when the record is read, borrowed when it is written.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(bound(serialize = "T: Serialize, D: Payload, C: Payload"))]
#[non_exhaustive]
pub struct Visit<T = String, D = Value, C = Map<String, Value>> {
    /// The number of the visit, from 1. It was assigned when the step before created the activation.
    pub step: u64,
    /// The node.
    pub node: T,
    /// The path: the index of each branch around the visit, the outermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub branch: Vec<u32>,
    /// The visit that fanned out into the innermost branch.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub fan: u64,
    /// The tool's result. The list that a foreach collected is in its changes.
    #[serde(default, skip_serializing_if = "Payload::is_blank")]
    pub result: D,
    /// How often its tool was called, if more than once.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub calls: u64,
    /// The run of the nested graph.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// How many steps the runs made that it began, with those inside them, if `limits.steps` limits them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub below: u64,
    /// The items of a foreach that failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub items: Vec<ItemFailure>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<T>,
    /// How the failure was classified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub category: Option<T>,
    /// Whether the run continued along the node's own edges after the failure.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suppressed: bool,
    /// Whether the failure ended its branch, and not the run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ends_branch: bool,
    /// Whether the run ends with the failure once the other branches of a fan-out are done. A resumed run makes the visit
    /// again, with its number.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub held: bool,
    /// When the visit began to wait, and when that is over. The visit is made then, with its number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opened: Option<Opened>,
    /// Whether it waited for signals, and none came in time. It wrote nothing then, and leads to the node for that.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub timed_out: bool,
    /// Whether its branch was cancelled during the visit, because the quorum of a fan-out around it was decided, or another
    /// visit led to a return that cancels. Its calls may have had their effects.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cancelled: bool,
    /// Whether the run had continued without its branch.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub late: bool,
    /// The data of a suppressed failure as the node's edges saw it in `result`, besides `status` and `error`; its secrets are
    /// hidden.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<D>,
    /// Whether nothing was called because the result was in the cache; for a foreach, the result of each of its items
    /// (R299).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cached: bool,
    /// The state keys that it wrote, with their values. For a channel it is the write, which is combined with the value
    /// before.
    #[serde(default, skip_serializing_if = "Payload::is_blank")]
    pub changes: C,
    /// The channels that a function of the program combined the visit's own writes with, and their values as the node's
    /// assignments and edges saw them; only those that they read.
    #[serde(default, skip_serializing_if = "Payload::is_blank")]
    pub reduced: C,
    /// The edges that were taken, by their indices in the node's list.
    #[serde(default, skip_serializing_if = "Vec::is_empty", alias = "edge", deserialize_with = "version_2::edges")]
    pub edges: Vec<u16>,
    /// How many branches the visit began, if it fanned out over a list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<u32>,
    /// The list that the visit fanned out over: one branch for each element. A list with secrets is encrypted as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub list: Option<D>,
    /// The time that the visit received, in milliseconds since the Unix epoch, if it asked for the time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<i64>,
    /// How long it took, in milliseconds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ms: u64,
    /// Its warnings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

impl Visit {
    /// Creates a visit of which only its failure is known.
    pub fn failed(error: &str) -> Self {
        Self { error: Some(error.to_owned()), ..Self::default() }
    }

    /// Writes its changes to the keys of a state, whose secrets may be encrypted or hidden, except to channels whose reducer is
    /// a function of the program: the step has their values. `resets` are the channels that its node resets, with their first
    /// values, and `shares` says which keys it shares: their changes are lists of writes.
    ///
    /// # Errors
    ///
    /// If a change cannot be combined with the value of its channel: no run of the graph writes it.
    pub fn write_to(
        &self,
        keys: &mut Map<String, Value>,
        channels: &Channels,
        resets: impl Iterator<Item = (String, Value)>,
        shares: impl Fn(&str) -> bool,
    ) -> Result<(), String> {
        if self.error.is_none() {
            keys.extend(resets);
        }
        for (name, change) in &self.changes {
            for write in writes_of(change, shares(name)) {
                write_key(keys, channels, name, write).map_err(|error| format!("`{name}`: {error}"))?;
            }
        }
        Ok(())
    }
}

/// Writes values to the keys of a state, whose secrets may be encrypted or hidden. A channel combines the write with its
/// value, unless its reducer is a function of the program.
///
/// # Errors
///
/// The first key whose channel cannot combine the write.
pub(super) fn write_keys(
    keys: &mut Map<String, Value>,
    channels: &Channels,
    writes: &Map<String, Value>,
) -> Result<(), (String, Uncombined)> {
    for (name, write) in writes {
        write_key(keys, channels, name, write).map_err(|error| (name.clone(), error))?;
    }
    Ok(())
}

fn write_key(keys: &mut Map<String, Value>, channels: &Channels, name: &str, write: &Value) -> Result<(), Uncombined> {
    let value = match channels.get(name) {
        Some(reducer) if reducer.function().is_some() => return Ok(()),
        Some(reducer) => {
            let current = keys.get_mut(name).map(std::mem::take).unwrap_or_default();
            reducer.combine(current, write.clone())?
        }
        None => write.clone(),
    };
    keys.insert(name.to_owned(), value);
    Ok(())
}

/// A visit that failed and ended the run, together with others of its step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct VisitFailure {
    /// The number of the visit.
    pub step: u64,
    /// The node.
    pub node: String,
    /// Why it failed.
    pub error: String,
    /// Whether it failed on the results of its calls, which are made again if the run is resumed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unfit: bool,
}

/// Calls of an unfinished step that finished before others of the step: they are not made again if the run is resumed. Besides, the
/// visits that a hook suspended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Calls {
    /// The calls, in the order in which they finished.
    pub done: Vec<Done>,
}

/// A call that finished before its step was done.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Done {
    /// The number of the visit.
    pub step: u64,
    /// The node.
    pub node: String,
    /// The item's index, if the node is a foreach.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<u64>,
    /// Its result.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub result: Value,
    /// Its failure, if it has no result: it is kept for a foreach that does not end at a failure, and waits for runs of other items.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<DoneFailure>,
    /// How a hook suspended the visit, if it did: its call is not done, and the visit is left before it is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspended: Option<Suspension>,
    /// How often it was made, if more than once.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub calls: u64,
    /// The run of the nested graph.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// Whether it was not made because its result was in the cache.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cached: bool,
    /// The time that the visit received before the call, in milliseconds since the Unix epoch, if it asked for the time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<i64>,
    /// Its warnings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

impl Calls {
    /// These calls finished.
    pub fn new(done: Vec<Done>) -> Self {
        Self { done }
    }

    /// Whether it only says which visits a hook suspended.
    pub fn only_suspend(&self) -> bool {
        self.done.iter().all(|done| done.suspended.is_some())
    }
}

impl Done {
    /// A visit that a hook suspends.
    pub fn of_suspended(step: u64, node: &str, suspension: Suspension) -> Self {
        Self { step, node: node.to_owned(), suspended: Some(suspension), ..Self::default() }
    }
}

/// The failure of a call that finished before its step was done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DoneFailure {
    /// The message.
    pub error: String,
    /// The name of the category that it was classified as.
    pub category: String,
    /// Its code, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Its data, if it has some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}

/// Waits that are over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Take {
    /// The waits, in the order of their visits.
    pub taken: Vec<TakenWait>,
}

impl Take {
    /// These waits are over.
    pub fn new(taken: Vec<TakenWait>) -> Self {
        Self { taken }
    }
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
    /// The path: the index of each branch around it, the outermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub branch: Vec<u32>,
    /// The visit that fanned out into the innermost branch.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub fan: u64,
}

impl Target {
    /// A node that a run begins at; the path is empty unless it begins at several.
    pub fn first(number: u64, node: impl Into<String>, branch: Vec<u32>) -> Self {
        Self { number, node: node.into(), branch, fan: 0 }
    }
}

/// A join that branches may still come to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Join {
    /// The node.
    pub node: String,
    /// The visit whose branches it joins.
    pub fan: u64,
    /// The branches that have reached it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arrived: Vec<Arrival>,
    /// Whether its quorum is decided, and the branches that have not arrived run on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub over: bool,
}

/// A run that is resumed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Resume {
    /// How many visits were committed before.
    pub steps: u64,
    /// The capabilities that the caller grants now.
    pub grants: Vec<String>,
    /// How many steps the run may take from here on, if the caller set a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// How many levels of graphs and threads may be nested below it from here on, if the caller set a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<u32>,
}

impl Resume {
    /// Moves a position to where the resumed run continues.
    pub fn apply(&self, position: &mut Position) {
        position.limit = self.limit.map(u64::from).or(position.limit);
        position.resume();
    }
}

/// A change that a person made to the state of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Edit {
    /// How many visits were committed before.
    pub steps: u64,
    /// The name of the person who made it, as the holder of the journal's key gave it.
    pub by: String,
    /// Why.
    pub why: String,
    /// The keys that were overwritten, with their values; null unsets a key.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub set: Map<String, Value>,
    /// The values that were written as a node writes them: a channel combines the write with its value.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub write: Map<String, Value>,
    /// Those of the written keys that are channels whose reducer is a function of the program, and their values after the
    /// edit.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub reduced: Map<String, Value>,
}

impl Edit {
    /// Creates an edit of a run that has made `steps` visits.
    pub fn new(
        steps: u64,
        by: impl Into<String>,
        why: impl Into<String>,
        set: Map<String, Value>,
        write: Map<String, Value>,
    ) -> Self {
        Self { steps, by: by.into(), why: why.into(), set, write, reduced: Map::new() }
    }
}

/// The end of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct End {
    /// How it ended.
    pub status: Status,
    /// How many nodes were visited.
    pub steps: u64,
    /// The run's output.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub output: Value,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The node that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The error code of the service that the node's tool called, if it reported one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The time that the output received, in milliseconds since the Unix epoch, if it asked for the time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<i64>,
    /// Whether it ended because it had taken all the steps it may.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exhausted: bool,
    /// The number of the signal that cancelled it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Whether it failed on the results of the node's calls, which are made again if the run is resumed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unfit: bool,
    /// The failed visits of the last step, if there were several. The first is the one that `error` and `node` describe.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<VisitFailure>,
    /// The warnings of computing the output.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// How many signals of each name no wait had taken, as far as the store had received them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unread: BTreeMap<String, u64>,
}

impl End {
    /// Creates an end with only its status and its number of steps set.
    pub fn of(status: Status, steps: u64) -> Self {
        Self { status, steps, ..Self::default() }
    }

    /// Whether a finished call is made again if the run is resumed, because its node failed on the call's result.
    pub fn forgets(&self, done: &Done) -> bool {
        let is_first = self.unfit && self.node.as_ref() == Some(&done.node);
        done.suspended.is_none()
            && (is_first || self.failures.iter().any(|failed| failed.unfit && failed.step == done.step))
    }
}

/// Calls that finished before their step was done, by the number of the visit and the item's index.
pub type CompletedCalls = HashMap<(u64, Option<u64>), Done>;

impl Visit {
    /// Returns the edges that the visit took; `fans_out` says whether its node fans out.
    pub fn taken(&self, fans_out: bool) -> TakenEdges {
        // A failure takes no edge unless the run continues after it.
        let leads_to_handler = (self.error.is_some() && !self.suppressed) || self.timed_out;
        match (&self.list, self.edges.as_slice()) {
            // Only the length of an encrypted list is known.
            (Some(Value::Array(list)), _) => TakenEdges::Over(Arc::new(list.clone())),
            (_, []) if self.over.is_some() => {
                let length = self.over.and_then(|length| usize::try_from(length).ok()).unwrap_or_default();
                let length = length.min(MOST_BRANCHES);
                TakenEdges::Over(Arc::new(vec![Value::Null; length]))
            }
            (_, []) if !fans_out || self.is_not_over() || self.ends_branch || leads_to_handler => TakenEdges::None,
            (_, [edge]) if !fans_out => TakenEdges::One(*edge),
            (_, edges) => TakenEdges::Many(Arc::new(edges.to_vec())),
        }
    }

    /// Whether it failed and leads nowhere: the failure ended its branch, or is held.
    pub fn ends_in_failure(&self) -> bool {
        self.ends_branch || self.held
    }

    /// Whether it was not made to its end: it waits, has a failure that is held, or was cancelled.
    pub fn is_not_over(&self) -> bool {
        self.opened.is_some() || self.held || self.cancelled
    }

    /// Whether the calls of it that finished are not made again with the visit: its failure is held, and it is that of the
    /// other items of a foreach; or runs of the other items wait; or the visit is paused.
    pub fn keeps_calls(&self) -> bool {
        (self.held && !self.items.is_empty()) || self.opened.as_ref().is_some_and(Opened::may_have_called)
    }

    /// Returns the edge that was taken, if there is exactly one.
    pub fn edge(&self) -> Option<u16> {
        match self.edges.as_slice() {
            [edge] => Some(*edge),
            _ => None,
        }
    }
}

/// The position of a run after a step, and its state without its inputs, which are in the first record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Snapshot {
    /// How many nodes were visited.
    pub steps: u64,
    /// The node that was visited last.
    pub last: String,
    /// The state keys that are set.
    pub keys: Map<String, Value>,
    /// The activations of the next step, ordered by path.
    pub next: Vec<Target>,
    /// The last failure of a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<LastError>,
    /// The failures after which the run continued.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suppressed: Vec<SuppressedError>,
    /// How often nodes that failed were tried again, by their names.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub retries: Map<String, Value>,
    /// How often nodes were visited, by their names, if the graph asks for that.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub visits: BTreeMap<String, u64>,
    /// The result of the last visit of each node that asks for it.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub previous: Map<String, Value>,
    /// How many steps the run may take, if that differs from the graph's limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// How often each node was visited, by their names, if the graph limits that.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub visited: BTreeMap<String, u64>,
    /// How many steps the runs made that its visits began, if they are counted.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub below: u64,
    /// The greatest number of an activation, if it is not in `next` or `parked`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made: Option<u64>,
    /// Activations that wait, or whose failures are held.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parked: Vec<Target>,
    /// The failures of the visits that are parked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<HeldFailure>,
    /// The waits of the other parked visits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<OpenWait>,
    /// The visits that have waited, and are made next or have a failure that is held.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taken: Vec<TakenWait>,
    /// The places of the signals that waits have taken.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub received: BTreeSet<u64>,
    /// The nodes at which the run pauses.
    #[serde(default, skip_serializing_if = "PausedNodes::is_empty")]
    pub pauses: PausedNodes,
    /// The visits that are left before they are made because they follow others, by their numbers; 0 is that of `returning`.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub to_pause: BTreeSet<u64>,
    /// The visits after which the run pauses and that came to open joins, by their numbers.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub paused_after: BTreeSet<u64>,
    /// The waits of visits that are not made yet, by the numbers of the visits.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub waited: BTreeMap<u64, Waited>,
    /// The fan-outs whose branches are not over.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fans: Vec<FanOut>,
    /// The joins that branches may still come to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub joins: Vec<Join>,
    /// The return that is visited when the late branches are done. It has no number yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub returning: Option<Target>,
    /// The memory of each branch that has one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub branches: Vec<BranchMemory>,
    /// The writes to the keys that the run shares with the run around it, by their names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub shared: BTreeMap<String, Vec<Value>>,
    /// For channels whose elements are put in the order of the branches: the path of the branch that each of the last
    /// elements belongs to, by the names of the keys.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub paths: BTreeMap<String, Vec<Vec<u32>>>,
}

/// A visit whose branches are not over.
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
    /// The list that it fanned out over. A list with secrets is encrypted as a whole.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub list: Value,
}

/// The identity of a branch in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct InBranch {
    /// The number of the visit that began it.
    pub fan: u64,
    /// Its index among the branches of that visit, from 0.
    pub branch: u32,
}

/// The memory of a branch. Its fields have the meaning that they have in a [`Snapshot`], which holds the memory outside all
/// branches.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BranchMemory {
    /// The number of the visit that began the branch.
    pub fan: u64,
    /// Its index among the branches of that visit, from 0.
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
    /// How often nodes were visited, by their names, if the graph asks for that.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub visits: BTreeMap<String, u64>,
    /// The result of the last visit of each node that asks for it.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub previous: Map<String, Value>,
}

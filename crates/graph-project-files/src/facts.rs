//! Folds a run's records into its state, its status, its events and the objects that prove it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use graph_model::digest::Digest;
use graph_model::name::RunId;
use graph_model::program::{LAST_ERROR, RETRIES};
use graph_model::timestamp;
use graph_model::value::{Map, Value};
use serde_json::json;

use crate::objects::Object;
use crate::transcript::{RunMoment, STATE_CHECKPOINT, whole_second};
use graph_engine::failure::HeldFailure;
use graph_engine::machine::{Keep, Topology, TopologyKind};
use graph_engine::record::hide_encrypted;
use graph_engine::record::{
    Edit, End, Entry, ItemFailure, Record, Snapshot, Start, Status, Step, Take, Target, TaskOrigin, Visit,
};

/// The number of steps up to which a snapshot is made after each step; then it is made after every second, fourth … step.
/// Each snapshot lists all receipts, so this keeps the size of the files in proportion to the steps.
const SNAPSHOTS: u64 = 128;

/// A run according to its records so far. Secrets are replaced by `[secret]`.
#[derive(Debug)]
pub(crate) struct RunProjection {
    pub(crate) topology: Topology,
    pub(crate) run: RunId,
    /// The version of the runtime that writes the files.
    pub(crate) version: String,
    /// The run that it is nested in, or whose task it is.
    pub(crate) parent: Option<RunId>,
    /// The task that it continues, if it does.
    pub(crate) continues: Option<RunId>,
    /// Whether its graph is that of an agent.
    pub(crate) is_agent: bool,
    /// Whether it began in another run.
    is_fork: bool,
    /// The digest of the graph that it began under. It may continue under another text of the same meaning.
    begun_under: Digest,
    pub(crate) started_at: String,
    /// When the last record was written.
    pub(crate) at: String,
    /// How often its status changed.
    pub(crate) turns: u64,
    /// When its status last changed.
    pub(crate) turned_at: String,
    /// When it last ended.
    pub(crate) completed_at: Option<String>,
    pub(crate) status: Status,
    /// How many nodes were visited.
    pub(crate) steps: u64,
    /// The last execution snapshot.
    pub(crate) snapshot: Option<Digest>,
    pub(crate) end: Option<End>,
    pub(crate) suppressed: Vec<Value>,
    /// The nodes to be visited next.
    frontier: Vec<Target>,
    /// The visits that wait, by their numbers.
    waiting: BTreeMap<u64, Target>,
    /// The visits that are made again when the run is resumed.
    held: Vec<Target>,
    /// Their failures, by the numbers of the visits.
    failures: BTreeMap<u64, Value>,
    /// The failures of late branches, each with its branch: only a return in the branch makes them known.
    late_failures: Vec<LateFailure>,
    /// The node that was visited last.
    last: String,
    inputs: Value,
    keys: Map<String, Value>,
    /// The failure of the visit with the greatest number, after which the run continued.
    last_error: Option<Value>,
    /// The number of that visit.
    failed_at: u64,
    retries: Map<String, Value>,
    receipts: Vec<Digest>,
    state_hash: Digest,
}

/// A failure in a late branch.
#[derive(Debug, Clone)]
struct LateFailure {
    /// The number of the visit.
    step: u64,
    /// The visit that began the branch, and its path.
    branch: (u64, Vec<u32>),
    node: String,
    error: String,
}

/// The events and objects that a record adds to the files.
#[derive(Debug, Default)]
pub(crate) struct FileAdditions {
    pub(crate) moments: Vec<RunMoment>,
    pub(crate) objects: Vec<Object>,
}

impl RunProjection {
    pub(crate) fn new(run: RunId, topology: Topology, version: String) -> Self {
        Self {
            begun_under: topology.digest,
            run,
            version,
            parent: None,
            continues: None,
            is_agent: false,
            is_fork: false,
            started_at: String::new(),
            at: String::new(),
            turns: 0,
            turned_at: String::new(),
            completed_at: None,
            status: Status::Running,
            steps: 0,
            snapshot: None,
            end: None,
            suppressed: Vec::new(),
            frontier: Vec::new(),
            waiting: BTreeMap::new(),
            held: Vec::new(),
            failures: BTreeMap::new(),
            late_failures: Vec::new(),
            last: String::new(),
            inputs: Value::Null,
            keys: Map::new(),
            last_error: None,
            failed_at: 0,
            retries: Map::new(),
            receipts: Vec::new(),
            state_hash: Digest::of(""),
            topology,
        }
    }

    /// Applies a record, and returns the events and objects that it adds.
    pub(crate) fn take(&mut self, record: Record) -> FileAdditions {
        let mut additions = FileAdditions::default();
        // The content of these records is reported with the step, or was reported with earlier steps, except for the first
        // snapshot of a fork.
        let is_told = matches!(record.entry, Entry::Calls(_) | Entry::Snapshot(_));
        if is_told && !(self.is_fork && record.seq == 1) {
            return additions;
        }
        self.at = record.at;
        match record.entry {
            Entry::Snapshot(snapshot) => self.fork(snapshot, &mut additions),
            Entry::Start(start) => self.start(start, &mut additions),
            Entry::Step(step) => self.step(step, &mut additions),
            Entry::Resume(resume) => {
                self.status = Status::Running;
                self.turn();
                self.end = None;
                self.failures.clear();
                self.frontier.append(&mut self.held);
                self.frontier.sort_by(|one, other| one.branch.cmp(&other.branch));
                self.add(&mut additions, "graph_resumed", json!({"steps": resume.steps}));
                self.announce(&mut additions);
            }
            Entry::Take(take) => self.take_waits(&take, &mut additions),
            Entry::Edit(edit) => self.edit(edit, &mut additions),
            Entry::End(end) => self.finish(end, &mut additions),
            _ => {}
        }
        let state = Object::new("state_snapshot", [("state", Value::Object(self.state()))]);
        self.state_hash = state.hash;
        if self.status != Status::Running || self.takes_snapshot() {
            let execution = self.execution_snapshot();
            self.snapshot = Some(execution.hash);
            additions.objects.extend([state, execution]);
        }
        let payload = json!({
            "step": self.steps,
            "current_node": self.current_node(),
            "state_hash": self.state_hash.to_hex(),
        });
        self.add(&mut additions, STATE_CHECKPOINT, payload);
        additions
    }

    fn turn(&mut self) {
        self.turns += 1;
        self.turned_at.clone_from(&self.at);
    }

    fn takes_snapshot(&self) -> bool {
        let stride = self.steps.div_ceil(SNAPSHOTS).next_power_of_two();
        self.steps.is_multiple_of(stride)
    }

    fn add(&self, additions: &mut FileAdditions, kind: &'static str, payload: Value) {
        additions.moments.push(RunMoment { at: self.at.clone(), kind, payload });
    }

    fn start(&mut self, mut start: Start, additions: &mut FileAdditions) {
        hide_encrypted(&mut start.inputs);
        self.started_at = self.at.clone();
        self.begun_under = start.digest;
        self.turn();
        self.inputs = start.inputs;
        let (owner, continues) = match start.task {
            Some(TaskOrigin { owner, continues, .. }) => (Some(owner), continues.map(|before| before.run)),
            None => (None, None),
        };
        self.parent = start.parent.map(|parent| parent.run).or(owner);
        self.continues = continues;
        self.is_fork = start.from.is_some();
        let initial = |(name, value): &(String, Option<Value>)| Some((name.clone(), value.clone()?));
        self.keys = self.topology.keys.iter().filter_map(initial).collect();
        self.keys.extend(start.shared.into_iter().filter(|(_, value)| !value.is_null()));
        let entry = start.entry.as_ref().and_then(|name| self.topology.entries.iter().find(|at| at.name == *name));
        let first = entry.map_or(&self.topology.start[..], |entry| std::slice::from_ref(&entry.node));
        let nodes: Vec<&str> = first.iter().filter_map(|&at| self.topology.name(at)).collect();
        self.frontier = match (entry, nodes.as_slice()) {
            // The fan-outs around it have the numbers before.
            (Some(entry), [node]) => vec![Target::first(entry.path.len().max(1) as u64, *node, entry.path.clone())],
            (None, [node]) => vec![Target::first(1, *node, Vec::new())],
            (_, nodes) => {
                (0..).zip(nodes).map(|(at, node)| Target::first(u64::from(at) + 1, *node, vec![at])).collect()
            }
        };
        let first = self.frontier.first().map_or_else(String::new, |first| first.node.clone());
        let mut payload =
            json!({"graph_id": self.topology.id.as_str(), "graph_run_id": self.run.as_str(), "start_node": first});
        if self.frontier.len() > 1 {
            payload["start_nodes"] = json!(nodes);
        }
        if let Some(entry) = &start.entry {
            payload["entry"] = json!(entry);
        }
        self.add(additions, "graph_started", payload);
        self.last = first;
        if !self.is_fork {
            self.announce(additions);
        }
    }

    /// Begins at a step of another run.
    fn fork(&mut self, snapshot: Snapshot, additions: &mut FileAdditions) {
        let Snapshot { steps, last, keys, next, last_error, suppressed, retries, parked, held, waits, .. } = snapshot;
        let waits = |target: &Target| waits.iter().any(|wait| wait.step == target.number);
        let (waiting, parked): (Vec<Target>, Vec<Target>) = parked.into_iter().partition(waits);
        self.waiting = waiting.into_iter().map(|target| (target.number, target)).collect();
        let mut keys = Value::Object(keys);
        hide_encrypted(&mut keys);
        if let Value::Object(keys) = keys {
            self.keys = keys.into_iter().collect();
        }
        (self.steps, self.last, self.retries) = (steps, last, retries);
        (self.frontier, self.held) = (next, parked);
        let failure = |failed: HeldFailure| (failed.step, failure_of(failed.step, &failed.node, &failed.error));
        self.failures = held.into_iter().map(failure).collect();
        self.last_error = last_error.map(|error| json!(error));
        self.suppressed = suppressed.into_iter().map(|error| json!(error)).collect();
        self.announce(additions);
    }

    /// Continues visits whose waits are over.
    fn take_waits(&mut self, take: &Take, additions: &mut FileAdditions) {
        for taken in &take.taken {
            let Some(over) = self.waiting.remove(&taken.step) else { continue };
            let event = taken.signal.as_ref().map(|signal| match signal.answerers() {
                Some(by) => ("answered_by", by.iter().map(|by| by.owner.as_str()).collect()),
                None => ("signal", json!({"name": signal.name, "id": signal.id})),
            });
            let mut payload = json!({"step": over.number, "node": over.node, "signal": null});
            if let Some((field, value)) = event {
                payload[field] = value;
            }
            self.add(additions, "wait_over", payload);
            self.frontier.push(over);
        }
        self.frontier.sort_by(|one, other| one.branch.cmp(&other.branch));
    }

    /// Reports the nodes that are visited next. They are known as soon as the step before is committed, and reported before
    /// anything is called (R223).
    fn announce(&self, additions: &mut FileAdditions) {
        for Target { number: step, node, .. } in &self.frontier {
            let place = self.topology.node(node);
            let payload = match place.and_then(|place| word(place.kind)) {
                Some(word) => json!({"step": step, "node": node, "node_type": word}),
                None => json!({"step": step, "node": node, "action_id": place.map_or("", |place| place.action())}),
            };
            self.add(additions, "step_started", payload);
        }
    }

    fn step(&mut self, step: Step, additions: &mut FileAdditions) {
        let is_alone = step.visits.len() == 1;
        let before = self.state_hash;
        step.update_held(&mut self.held);
        self.frontier = step.next;
        let for_a_step = self.topology.keep.iter().filter(|(_, keep)| **keep == Keep::Step);
        for (name, _) in for_a_step {
            self.keys.insert(name.clone(), self.topology.first_value(name));
        }
        for visit in step.visits {
            let next = match self.frontier.first() {
                next if is_alone && !visit.late => next.map(|next| next.node.clone()),
                _ => self.led_to(&visit),
            };
            self.visit(visit, before, next, additions);
        }
        self.keys.extend(step.reduced);
        self.release();
        for order in step.ordered {
            if let Err(error) = order.apply(&mut self.keys) {
                // No run of the graph puts elements in order that are not there.
                tracing::warn!(run = %self.run, "{error}");
            }
        }
        self.announce(additions);
    }

    /// Suppresses the failures of visits that are not made again.
    fn release(&mut self) {
        let held: BTreeSet<u64> = self.held.iter().map(|at| at.number).collect();
        let over: Vec<(u64, Value)> = self.failures.extract_if(.., |number, _| !held.contains(number)).collect();
        for (number, failure) in over {
            if !self.late_failures.iter().any(|failed| failed.step == number) {
                self.remember(number, &failure["node"], &failure["error"]);
            }
            self.suppressed.push(failure);
        }
    }

    /// Remembers a failure, unless it is that of a visit that was made again after others had failed.
    fn remember(&mut self, number: u64, node: &Value, error: &Value) {
        if number >= self.failed_at {
            (self.failed_at, self.last_error) = (number, Some(json!({"node": node, "error": error})));
        }
    }

    /// Returns where a visit led that was made together with others.
    fn led_to(&self, visit: &Visit) -> Option<String> {
        let place = self.topology.node(&visit.node)?;
        let to = match visit.edge() {
            Some(edge) => place.edges.get(usize::from(edge)).and_then(|edge| edge.to),
            None if visit.timed_out => place.on_timeout,
            None => place.on_error.filter(|_| visit.error.is_some() && !visit.suppressed && !visit.ends_in_failure()),
        };
        self.topology.name(to?).map(str::to_owned)
    }

    fn visit(&mut self, mut visit: Visit, before: Digest, next: Option<String>, additions: &mut FileAdditions) {
        if let Some(opened) = visit.opened {
            let time = |at: i64| timestamp::milliseconds(timestamp::from_unix_milliseconds(at));
            let (opened_at, due) = (time(opened.at), opened.due.map(time));
            let mut payload = json!({"step": visit.step, "node": visit.node, "opened_at": opened_at, "due": due});
            if let Some(shown) = opened.payload {
                payload["payload"] = shown;
            }
            self.add(additions, "wait_opened", payload);
            let Visit { step: number, node, branch, fan, .. } = visit;
            let mut target = Target::first(number, node, branch);
            target.fan = fan;
            self.waiting.insert(number, target);
            return;
        }
        hide_encrypted(&mut visit.result);
        visit.changes.values_mut().chain(&mut visit.list).for_each(hide_encrypted);
        if !visit.held {
            self.steps += 1;
            if !visit.late {
                self.last.clone_from(&visit.node);
            }
        }
        if visit.held {
            let error = visit.error.as_deref().unwrap_or_default();
            self.failures.insert(visit.step, failure_of(visit.step, &visit.node, error));
        } else if visit.calls > 1 {
            self.retries.insert(visit.node.clone(), Value::from(visit.calls - 1));
        } else {
            self.retries.shift_remove(&visit.node);
        }
        if let Some(error) = visit.error.as_ref().filter(|_| !visit.held) {
            let one = |error: &str| failure_of(visit.step, &visit.node, error);
            let continues = visit.suppressed || visit.ends_branch;
            if continues && visit.items.is_empty() {
                self.suppressed.push(one(error));
            } else if continues {
                let item = |item: &ItemFailure| one(&format!("item {}: {}", item.item, item.error));
                self.suppressed.extend(visit.items.iter().map(item));
            }
            if !visit.late {
                self.remember(visit.step, &json!(visit.node), &json!(error));
            }
        }
        if let Some(error) = visit.error.as_ref().filter(|_| visit.late) {
            let (step, branch) = (visit.step, (visit.fan, visit.branch.clone()));
            self.late_failures.push(LateFailure { step, branch, node: visit.node.clone(), error: error.clone() });
        }
        let (kind, action) = match self.topology.node(&visit.node) {
            Some(place) => (place.kind, place.action().to_owned()),
            None => (TopologyKind::Gate, String::new()),
        };
        // A return in a late branch cancels all others, so the failure of its branch is the last one of the run.
        if kind == TopologyKind::Return {
            let branch = (visit.fan, visit.branch.clone());
            if let Some(failed) = self.late_failures.iter().rfind(|failed| failed.branch == branch) {
                let (node, error) = (json!(failed.node), json!(failed.error));
                self.remember(failed.step, &node, &error);
            }
        }
        let receipt = (kind.calls() && !visit.cancelled).then(|| {
            let input = self.input_hash(&visit, before);
            // A failure that led to another node has no result, and no receipt (R198).
            let is_routed = visit.error.is_some() && !visit.suppressed;
            (input, (!is_routed).then(|| self.receipt(&visit, kind, input, additions)))
        });
        let payload = completed(&visit, kind, &action, receipt, next.as_deref());
        let name = if kind == TopologyKind::Foreach { "foreach_completed" } else { "step_completed" };
        self.add(additions, name, payload);
        let node = self.topology.node(&visit.node);
        let (reset, share) = node.map_or((&[][..], &[][..]), |node| (&node.reset, &node.share));
        let shares = |name: &str| share.iter().any(|shared| shared == name);
        let first = reset.iter().map(|key| (key.clone(), self.topology.first_value(key)));
        if let Err(error) = visit.write_to(&mut self.keys, &self.topology.channels, first, shares) {
            // No run of the graph writes a value that its channel cannot take.
            tracing::warn!(run = %self.run, node = %visit.node, "{error}");
        }
    }

    /// Returns a hash of everything that a visit depends on: the graph, the node, its argument, and the state before it.
    /// Two visits with the same hash had the same inputs except for the time (R197).
    fn input_hash(&self, visit: &Visit, before: Digest) -> Digest {
        let fields = [
            ("argument", Value::Null),
            ("config_snapshot_hash", Value::from("")),
            ("graph_hash", Value::from(self.begun_under.to_hex())),
            ("node_name", Value::from(visit.node.as_str())),
            ("state_hash", Value::from(before.to_hex())),
        ];
        Object::new("node_input", fields).hash
    }

    /// Makes the objects of a visit's result and receipt, and returns the result's hash.
    fn receipt(&mut self, visit: &Visit, kind: TopologyKind, input: Digest, additions: &mut FileAdditions) -> Digest {
        let result = match (&visit.error, kind) {
            (_, TopologyKind::Foreach) => visit.changes.values().next().cloned().unwrap_or_default(),
            (Some(error), _) => json!({"error": error, "status": "error"}),
            (None, _) => visit.result.clone(),
        };
        let result = Object::new("node_result", [("result", result)]);
        let mut fields = vec![
            ("cache_hit", Value::Bool(visit.cached)),
            ("elapsed_ms", Value::from(visit.ms)),
            ("node_input_hash", Value::from(input.to_hex())),
            ("node_result_hash", Value::from(result.hash.to_hex())),
            ("timestamp", Value::from(whole_second(&self.at))),
        ];
        if let Some(error) = &visit.error {
            fields.push(("error", Value::from(error.as_str())));
        }
        let receipt = Object::new("node_receipt", fields);
        self.receipts.push(receipt.hash);
        let hash = result.hash;
        additions.objects.extend([result, receipt]);
        hash
    }

    fn edit(&mut self, mut edit: Edit, additions: &mut FileAdditions) {
        edit.set.values_mut().chain(edit.write.values_mut()).for_each(hide_encrypted);
        if let Err(error) = edit.changes().write_to(&self.topology.channels, &mut self.keys) {
            // No edit of a run writes a value that its channel cannot take.
            tracing::warn!(run = %self.run, "{error}");
        }
        let names = |keys: &Map<String, Value>| keys.keys().cloned().collect::<Vec<_>>();
        let payload = json!({
            "steps": edit.steps,
            "by": edit.by,
            "why": edit.why,
            "set": names(&edit.set),
            "written": names(&edit.write),
        });
        self.add(additions, "state_edited", payload);
    }

    fn finish(&mut self, mut end: End, additions: &mut FileAdditions) {
        hide_encrypted(&mut end.output);
        self.status = end.status;
        self.turn();
        if end.status.has_result() {
            self.held.clear();
            self.release();
        }
        self.completed_at = Some(self.at.clone());
        let (steps, elapsed_s) = (end.steps, self.elapsed().as_secs_f64());
        let (kind, payload) = match end.status {
            Status::Error => {
                let payload = json!({"error": end.error, "node": end.node, "steps": steps, "elapsed_s": elapsed_s});
                ("graph_error", payload)
            }
            Status::Cancelled => {
                ("graph_cancelled", json!({"steps": steps, "elapsed_s": elapsed_s, "signal": end.signal}))
            }
            _ => ("graph_completed", json!({"status": end.status.name(), "steps": steps, "elapsed_s": elapsed_s})),
        };
        self.end = Some(end);
        self.add(additions, kind, payload);
    }

    /// Returns the time from the run's start to the last record.
    pub(crate) fn elapsed(&self) -> Duration {
        match (timestamp::parse(&self.started_at), timestamp::parse(&self.at)) {
            (Some(start), Some(at)) => at.duration_since(start).unwrap_or_default(),
            _ => Duration::ZERO,
        }
    }

    /// Returns the node at which the run continues; for a completed run, the node at which it ended.
    pub(crate) fn current_node(&self) -> &str {
        let next = self.frontier.first().map_or(self.last.as_str(), |next| next.node.as_str());
        match (self.status, &self.end) {
            (Status::Completed | Status::CompletedWithErrors, _) => &self.last,
            (_, Some(End { node: Some(node), .. })) => node,
            _ => next,
        }
    }

    /// Returns the number of receipts.
    pub(crate) fn receipts(&self) -> usize {
        self.receipts.len()
    }

    /// Returns the state as in the run's result: inputs, the keys that are set, and the engine's own members (R209).
    pub(crate) fn state(&self) -> Map<String, Value> {
        let mut state = Map::new();
        state.insert("inputs".to_owned(), self.inputs.clone());
        for (name, _) in &self.topology.keys {
            if let Some(value) = self.keys.get(name).filter(|value| !value.is_null()) {
                state.insert(name.clone(), value.clone());
            }
        }
        let fatal = self.end.as_ref().and_then(|end| Some(json!({"node": end.node.as_ref()?, "error": end.error})));
        if let Some(error) = fatal.or_else(|| self.last_error.clone()) {
            state.insert(LAST_ERROR.to_owned(), error);
        }
        if !self.retries.is_empty() {
            state.insert(RETRIES.to_owned(), Value::Object(self.retries.clone()));
        }
        state
    }

    fn execution_snapshot(&self) -> Object {
        let receipts = self.receipts.iter().map(|hash| Value::from(hash.to_hex()));
        let mut fields = vec![
            ("graph_id", Value::from(self.topology.id.as_str())),
            ("graph_run_id", Value::from(self.run.as_str())),
            ("node_receipts", receipts.collect()),
            ("project_manifest_hash", Value::from("")),
            ("state_hash", Value::from(self.state_hash.to_hex())),
            ("status", Value::from(self.status.name())),
            ("step", Value::from(self.steps)),
            ("system_version", Value::from(self.version.as_str())),
            ("user_manifest_hash", Value::from("")),
        ];
        let errors = self.errors();
        if !errors.is_empty() {
            fields.push(("errors", Value::Array(errors)));
        }
        Object::new("execution_snapshot", fields)
    }

    /// Returns the errors of the run (R199).
    fn errors(&self) -> Vec<Value> {
        let Some(End { error: Some(message), node, status, signal, .. }) = &self.end else {
            return self.suppressed.clone();
        };
        let code = match (status, node) {
            (Status::Cancelled, _) => "cancelled",
            (_, Some(_)) => "node_error",
            (_, None) if message.starts_with("Max steps exceeded") => "max_steps_exceeded",
            (_, None) if message.starts_with("Max visits exceeded") => "visits_exceeded",
            (_, None) if message.starts_with("Max steps of nested runs exceeded") => "steps_exceeded",
            (_, None) => "run_error",
        };
        let message = signal.map_or_else(|| message.clone(), |signal| format!("Signal {signal}"));
        let mut error = json!({"code": code, "message": message, "phase": "execution"});
        if let (Some(node), Some(error)) = (node, error.as_object_mut()) {
            error.insert("node".to_owned(), Value::from(node.as_str()));
        }
        vec![error]
    }
}

/// Returns the form of a failure in the errors of a run.
fn failure_of(step: u64, node: &str, error: &str) -> Value {
    json!({"step": step, "node": node, "error": error})
}

/// Returns the word that events use for a node's kind; `None` for a node that its action describes.
fn word(kind: TopologyKind) -> Option<&'static str> {
    (kind != TopologyKind::Action).then(|| kind.name())
}

/// The status of a visit that was cancelled.
const CANCELLED: &str = "cancelled";

/// Whether the payload of an event is that of a visit that was cancelled. A tool may use the word, too, and its result has a
/// hash.
pub(crate) fn is_cancelled(payload: &Value) -> bool {
    payload.get("status").and_then(Value::as_str) == Some(CANCELLED) && payload.get("node_result_hash").is_none()
}

/// Returns the event payload of a visit (R220).
fn completed(
    visit: &Visit,
    kind: TopologyKind,
    action: &str,
    receipt: Option<(Digest, Option<Digest>)>,
    next: Option<&str>,
) -> Value {
    let elapsed_s = Duration::from_millis(visit.ms).as_secs_f64();
    let said = visit.result.get("status").and_then(Value::as_str);
    let status = match (&visit.error, kind, said) {
        _ if visit.cancelled => CANCELLED,
        (Some(_), ..) => "error",
        (None, TopologyKind::Return, _) => "completed",
        (None, TopologyKind::Action, Some(status)) => status,
        (None, ..) => "ok",
    };
    let thread =
        visit.run.as_ref().map(RunId::as_str).or_else(|| visit.result.get("thread_id").and_then(Value::as_str));
    let mut payload = Map::new();
    let mut put = |name: &str, value: Value| {
        payload.insert(name.to_owned(), value);
    };
    put("step", Value::from(visit.step));
    put("node", Value::from(visit.node.as_str()));
    put("action_id", Value::from(action));
    put("status", Value::from(status));
    put("elapsed_s", Value::from(elapsed_s));
    put("next_node", Value::from(next));
    if let Some((input, result)) = receipt {
        put("thread_id", Value::from(thread.unwrap_or_default()));
        put("cache_hit", Value::Bool(visit.cached));
        put("node_input_hash", Value::from(input.to_hex()));
        put("node_result_hash", Value::from(result.map_or_else(String::new, |hash| hash.to_hex())));
    }
    put("error", Value::from(visit.error.as_deref()));
    Value::Object(payload)
}

//! The events of a run, folded to what a viewer shows: its status, its nodes, its state after each event, its waits and nested runs.
//!
//! Each event is folded once. Nothing here draws, or makes texts safe for a terminal.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::SystemTime;

use graph_model::name::RunId;
use graph_runtime::events::{EventCursor, EventKind, RunEvent};
use graph_runtime::machine::{Topology, TopologyNode};
use graph_runtime::record::{Edit, End, Opened, Status, Visit};
use graph_runtime::store::RunSummary;
use serde_json::{Map, Value};

/// The parts of a graph that a viewer uses.
#[derive(Debug, Default)]
pub(super) struct GraphNodes {
    /// The nodes that a run visits first.
    pub(super) start: Vec<String>,
    /// The nodes that it begins at by an entry.
    pub(super) entries: BTreeMap<String, String>,
    /// The nodes, in the order of the file.
    pub(super) nodes: Vec<GraphNode>,
    /// The keys whose writes are combined.
    pub(super) channels: BTreeSet<String>,
}

/// A node of a graph.
#[derive(Debug, Default)]
pub(super) struct GraphNode {
    pub(super) name: String,
    /// The type of node, as a file names it.
    pub(super) kind: &'static str,
    /// Where each of its edges leads, with its condition as text.
    pub(super) edges: Vec<(Option<String>, Option<String>)>,
}

impl GraphNodes {
    pub(super) fn of(topology: Topology<String>) -> Self {
        let node = |node: TopologyNode<String>| GraphNode {
            name: node.name,
            kind: node.kind.name(),
            edges: node.edges.into_iter().map(|edge| (edge.to, edge.when)).collect(),
        };
        Self {
            start: topology.start,
            entries: topology.entries.into_iter().map(|entry| (entry.name, entry.node)).collect(),
            channels: topology.channels.into_keys().collect(),
            nodes: topology.nodes.into_iter().map(node).collect(),
        }
    }
}

/// How the last visit of a node ended, or what it does now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum NodeStatus {
    /// It was not visited.
    #[default]
    Unvisited,
    Done,
    Failed,
    Cancelled,
    Waiting,
    /// It is visited now, or next.
    Next,
}

/// A node, with counts of its visits.
#[derive(Debug, Default)]
pub(super) struct ViewedNode {
    pub(super) name: String,
    pub(super) kind: &'static str,
    pub(super) counts: VisitCounts,
    last: NodeStatus,
}

/// Counts of visits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct VisitCounts {
    pub(super) visits: u64,
    /// Visits that failed, also those that ended the run and are in no step.
    pub(super) failures: u64,
    /// Calls beyond the first of a visit, or of an item.
    pub(super) retries: u64,
    /// Visits whose result came from the cache.
    pub(super) cached: u64,
    /// How long the visits took together, in milliseconds.
    pub(super) ms: u64,
}

impl VisitCounts {
    fn add(&mut self, visit: &Visit) {
        self.visits += 1;
        self.failures += u64::from(visit.error.is_some());
        self.retries = self.retries.saturating_add(visit.calls.saturating_sub(1));
        self.cached += u64::from(visit.cached);
        self.ms = self.ms.saturating_add(visit.ms);
    }
}

/// A key of the state after an event.
#[derive(Debug, PartialEq)]
pub(super) struct KeyRow<'a> {
    pub(super) key: &'a str,
    /// Its value; `None` if the event unset it.
    pub(super) value: Option<&'a Value>,
    /// How the event changed it.
    pub(super) change: KeyChange<'a>,
    /// Whether its writes are combined, so that the value is only the last write.
    pub(super) is_channel: bool,
}

/// How an event changed a key.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum KeyChange<'a> {
    /// It did not.
    Kept,
    /// It wrote the key first.
    New,
    /// It wrote the key, which had this value or write before.
    From(&'a Value),
}

/// The facts that the store has about the run beside its journal.
#[derive(Debug, Default)]
pub(super) struct Holding {
    /// The process that runs it.
    pub(super) holder: Option<String>,
    /// Whether somebody asked it to stop.
    pub(super) is_cancelling: bool,
    /// Whether nothing is left to do before a wait is over.
    pub(super) is_waiting: bool,
}

/// A run as far as its events are known.
#[derive(Debug)]
pub(super) struct RunModel {
    run: RunId,
    graph: Option<GraphNodes>,
    events: Vec<RunEvent>,
    status: Option<Status>,
    nodes: Vec<ViewedNode>,
    by_name: HashMap<String, usize>,
    counts: VisitCounts,
    /// For each key, the events that wrote it.
    writes: BTreeMap<String, Vec<usize>>,
    /// For each visit that waits, the event that opened the wait.
    waits: BTreeMap<u64, usize>,
    /// The visits with nested runs.
    nested: Vec<(RunId, usize)>,
    /// The visits that failed while other branches continued. The end of the run names their failures again.
    held: Vec<(u64, String)>,
    next: NextNodes,
    pub(super) holding: Holding,
}

/// The nodes that are visited now or next, as the edges say that were taken.
#[derive(Debug, Default)]
struct NextNodes {
    nodes: BTreeSet<String>,
    /// Those of them that visits of this record lead to. Its other visits do not remove them: they are made at the same time.
    of_record: BTreeSet<String>,
    record: Option<u64>,
}

impl NextNodes {
    fn at_record(&mut self, record: Option<u64>) {
        if self.record != record || record.is_none() {
            self.record = record;
            self.of_record.clear();
        }
    }

    fn replace(&mut self, visited: &str, targets: impl Iterator<Item = String>) {
        if !self.of_record.contains(visited) {
            self.nodes.remove(visited);
        }
        for target in targets {
            self.of_record.insert(target.clone());
            self.nodes.insert(target);
        }
    }
}

impl RunModel {
    pub(super) fn new(run: RunId) -> Self {
        Self {
            run,
            graph: None,
            events: Vec::new(),
            status: None,
            nodes: Vec::new(),
            by_name: HashMap::new(),
            counts: VisitCounts::default(),
            writes: BTreeMap::new(),
            waits: BTreeMap::new(),
            nested: Vec::new(),
            held: Vec::new(),
            next: NextNodes::default(),
            holding: Holding::default(),
        }
    }

    /// Sets the graph of the run, before its first event.
    pub(super) fn with_graph(mut self, graph: GraphNodes) -> Self {
        for node in &graph.nodes {
            let row = self.row(&node.name);
            self.nodes[row].kind = node.kind;
        }
        self.graph = Some(graph);
        self
    }

    /// Takes over the facts that the store has about the run.
    pub(super) fn hold(&mut self, summary: &RunSummary) {
        let holder = summary.holder.as_ref().map(|holder| match holder.process {
            Some(process) => format!("process {process} on {}", holder.host),
            None => format!("a process on {}", holder.host),
        });
        let is_waiting = summary.status == Status::Waiting;
        self.holding = Holding { holder, is_cancelling: summary.is_cancelling, is_waiting };
    }

    /// Folds the next event of the run.
    pub(super) fn add(&mut self, event: RunEvent) {
        let at = self.events.len();
        self.next.at_record(event.cursor.as_ref().map(EventCursor::record));
        match &event.kind {
            EventKind::Started { entry, .. } => {
                self.status = Some(Status::Running);
                let (graph, next) = (self.graph.as_ref(), &mut self.next);
                let start = graph.map_or(Vec::new(), |graph| match entry {
                    Some(entry) => graph.entries.get(entry).cloned().into_iter().collect(),
                    None => graph.start.clone(),
                });
                next.nodes.extend(start);
            }
            EventKind::Resumed { .. } => self.status = Some(Status::Running),
            EventKind::Visited { node, visit, .. } => self.visited(at, node, visit),
            EventKind::WaitOpened { step, node, .. } => {
                self.waits.insert(*step, at);
                let row = self.row(node);
                self.nodes[row].last = NodeStatus::Waiting;
                self.next.replace(node, std::iter::empty());
            }
            EventKind::WaitOver { wait, .. } => {
                if let Some(opened) = self.waits.remove(&wait.step)
                    && let EventKind::WaitOpened { node, .. } = &self.events[opened].kind
                {
                    self.next.nodes.insert(node.clone());
                }
            }
            EventKind::VisitStarted { node, .. } => {
                self.row(node);
                self.next.nodes.insert(node.clone());
            }
            EventKind::Edited { edit, .. } => self.wrote(at, edit.set.keys().chain(edit.write.keys())),
            EventKind::Ended { end, .. } => self.ended(end),
            _ => {}
        }
        self.events.push(event);
    }

    fn visited(&mut self, at: usize, node: &str, visit: &Visit) {
        self.waits.remove(&visit.step);
        self.counts.add(visit);
        let row = self.row(node);
        self.nodes[row].counts.add(visit);
        self.nodes[row].last = match (&visit.error, visit.cancelled) {
            (_, true) => NodeStatus::Cancelled,
            (Some(_), false) => NodeStatus::Failed,
            (None, false) => NodeStatus::Done,
        };
        if visit.held {
            self.held.push((visit.step, node.to_owned()));
        }
        if let Some(run) = &visit.run {
            self.nested.push((run.clone(), at));
        }
        self.wrote(at, visit.changes.keys());
        let edges = self.graph_node(node).map_or(&[][..], |node| &node.edges);
        let targets = visit.edges.iter().filter_map(|edge| edges.get(usize::from(*edge))?.0.clone());
        let targets: Vec<String> = targets.collect();
        self.next.replace(node, targets.into_iter());
    }

    /// Counts the failures that ended the run: a visit that failed so is in no step.
    fn ended(&mut self, end: &End) {
        self.status = Some(end.status);
        let held = std::mem::take(&mut self.held);
        if end.status != Status::Error {
            return;
        }
        let several = end.failures.iter().map(|failure| (Some(failure.step), failure.node.as_str()));
        let one = end.node.iter().filter(|_| end.failures.is_empty()).map(|node| (None, node.as_str()));
        for (step, node) in several.chain(one) {
            // If the run is resumed, the node is visited again.
            self.next.nodes.insert(node.to_owned());
            let row = self.row(node);
            self.nodes[row].last = NodeStatus::Failed;
            if !held.iter().any(|(number, name)| step.map_or(name == node, |step| *number == step)) {
                self.nodes[row].counts.failures += 1;
                self.counts.failures += 1;
            }
        }
    }

    fn wrote<'k>(&mut self, at: usize, keys: impl Iterator<Item = &'k String>) {
        for key in keys {
            match self.writes.get_mut(key) {
                Some(writes) if writes.last() == Some(&at) => {}
                Some(writes) => writes.push(at),
                None => drop(self.writes.insert(key.clone(), vec![at])),
            }
        }
    }

    /// Returns the index of a node's row, which is made if it is missing.
    fn row(&mut self, node: &str) -> usize {
        if let Some(row) = self.by_name.get(node) {
            return *row;
        }
        self.by_name.insert(node.to_owned(), self.nodes.len());
        self.nodes.push(ViewedNode { name: node.to_owned(), ..ViewedNode::default() });
        self.nodes.len() - 1
    }

    /// Returns a node of the graph, if the graph is known.
    pub(super) fn graph_node(&self, name: &str) -> Option<&GraphNode> {
        // Its rows are the first ones, in the same order.
        self.graph.as_ref()?.nodes.get(*self.by_name.get(name)?)
    }

    pub(super) fn run(&self) -> &RunId {
        &self.run
    }

    pub(super) fn events(&self) -> &[RunEvent] {
        &self.events
    }

    /// Returns the status, as the journal has it.
    pub(super) fn status(&self) -> Option<Status> {
        self.status
    }

    pub(super) fn nodes(&self) -> &[ViewedNode] {
        &self.nodes
    }

    /// Returns the counts of all visits.
    pub(super) fn counts(&self) -> VisitCounts {
        self.counts
    }

    pub(super) fn status_of(&self, node: &ViewedNode) -> NodeStatus {
        let is_next = self.is_running() && self.next.nodes.contains(&node.name);
        match node.last {
            NodeStatus::Waiting if !self.is_running() => NodeStatus::Unvisited,
            _ if is_next => NodeStatus::Next,
            last => last,
        }
    }

    fn is_running(&self) -> bool {
        self.status.is_none_or(|status| !status.has_ended())
    }

    /// Returns the open waits: the number of the visit, the node, the wait, and the event that opened it. A run that has ended has none.
    pub(super) fn open_waits(&self) -> impl Iterator<Item = (u64, &str, &Opened, usize)> {
        let open = self.waits.iter().filter(|_| self.is_running());
        open.filter_map(|(step, at)| match &self.events[*at].kind {
            EventKind::WaitOpened { node, wait, .. } => Some((*step, node.as_str(), &**wait, *at)),
            _ => None,
        })
    }

    /// Returns the nested runs, in the order of their visits, with the event of the visit.
    pub(super) fn nested(&self) -> &[(RunId, usize)] {
        &self.nested
    }

    /// Returns the first and the last time.
    pub(super) fn times(&self) -> Option<(SystemTime, SystemTime)> {
        Some((self.events.first()?.at, self.events.last()?.at))
    }

    /// Returns the inputs.
    pub(super) fn inputs(&self) -> Option<&Value> {
        self.events.iter().find_map(|event| match &event.kind {
            EventKind::Started { inputs, .. } => Some(inputs),
            _ => None,
        })
    }

    /// Returns how the run ended, if it did.
    pub(super) fn end(&self) -> Option<&End> {
        match &self.events.last()?.kind {
            EventKind::Ended { end, .. } => Some(end),
            _ => None,
        }
    }

    /// Returns the keys of the state after an event: those that it changed, then the others.
    pub(super) fn state_after(&self, at: usize) -> Vec<KeyRow<'_>> {
        let (mut changed, mut kept) = (Vec::new(), Vec::new());
        for (key, writes) in &self.writes {
            let known = writes.partition_point(|write| *write <= at);
            let Some(last) = known.checked_sub(1).map(|last| writes[last]) else { continue };
            let is_channel = self.graph.as_ref().is_some_and(|graph| graph.channels.contains(key));
            let value = self.written(last, key);
            if last < at {
                if value.is_some() {
                    kept.push(KeyRow { key, value, change: KeyChange::Kept, is_channel });
                }
                continue;
            }
            let before = known.checked_sub(2).and_then(|before| self.written(writes[before], key));
            let change = before.map_or(KeyChange::New, KeyChange::From);
            changed.push(KeyRow { key, value, change, is_channel });
        }
        changed.append(&mut kept);
        changed
    }

    /// Returns the value that an event wrote to a key; `None` if it unset the key.
    fn written(&self, at: usize, key: &str) -> Option<&Value> {
        match &self.events[at].kind {
            EventKind::Visited { visit, .. } => visit.changes.get(key),
            EventKind::Edited { edit, .. } => edited(edit, key),
            _ => None,
        }
    }
}

/// Returns the value of a key after an edit of it; `None` if it is unset.
fn edited<'e>(edit: &'e Edit, key: &str) -> Option<&'e Value> {
    let of = |map: &'e Map<String, Value>| map.get(key);
    match of(&edit.set) {
        Some(value) => Some(value).filter(|value| !value.is_null()),
        None => of(&edit.reduced).or_else(|| of(&edit.write)),
    }
}

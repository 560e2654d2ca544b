//! A topology as a JSON document, with a report about it, and with what a run did in it.

use std::collections::BTreeSet;

use graph_engine::Status;
use graph_engine::machine::{Topology, TopologyKind, TopologyNode};
use graph_model::name::RunId;
use graph_proof::history::{NodeTraversal, Traversal, TraversedWay};
use serde::{Deserialize, Serialize};

/// A topology with a report about it. As JSON it is the topology with more members, so it is read back as either.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TopologyDocument {
    /// The topology, which names nodes by their names.
    #[serde(flatten)]
    pub topology: Topology<String>,
    /// The report.
    pub report: ValidationReport,
    /// The nodes that a run visited and the edges that it took, if the document is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<FiredRun>,
}

/// The mistakes and doubts about a topology.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ValidationReport {
    /// Whether there are no errors.
    pub ok: bool,
    /// The mistakes: no run can take such a graph. One that the checker accepted has none.
    pub errors: Vec<ReportEntry>,
    /// Observations that are no mistakes.
    pub warnings: Vec<ReportEntry>,
}

/// A mistake or an observation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportEntry {
    /// The message.
    pub message: String,
    /// The node that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The code of the diagnostic, if the checker found it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The line in the file, from 1, if the checker found it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
}

/// The nodes that a run visited, and the ways that it took.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FiredRun {
    /// The run.
    pub run: RunId,
    /// Its status according to its journal.
    pub status: Status,
    /// How many nodes were visited.
    pub steps: u64,
    /// The nodes that were visited, or are next, in the order of the file.
    pub nodes: Vec<FiredNode>,
    /// The ways that were taken.
    pub edges: Vec<FiredEdge>,
}

/// The visits of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FiredNode {
    /// The node.
    pub node: String,
    /// Its visits.
    #[serde(flatten)]
    pub visits: NodeTraversal,
}

/// A way that was taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FiredEdge {
    /// The node that it leaves.
    pub from: String,
    /// The index of the edge in the node's list, if it is an edge of the node.
    pub edge: Option<usize>,
    /// Its kind: `edge`, `end`, `on_error`, `on_timeout` or `fewer`.
    pub way: String,
    /// How often it was taken.
    pub times: u64,
}

impl TopologyDocument {
    /// A document about a topology. `found` has the warnings of the checker.
    pub fn new(topology: Topology<String>, found: impl IntoIterator<Item = ReportEntry>) -> Self {
        let mut report = ValidationReport::of(&topology);
        report.warnings.extend(found);
        Self { topology, report, run: None }
    }

    /// Adds what a run of the same graph did.
    #[must_use]
    pub fn with(self, traversal: &Traversal) -> Self {
        let run = fired(&self.topology, traversal);
        Self { run: Some(run), ..self }
    }
}

/// Returns what a run did, by the names of the nodes.
fn fired(topology: &Topology<String>, traversal: &Traversal) -> FiredRun {
    let name = |at: usize| topology.nodes.get(at).map_or_else(String::new, |place| place.name.clone());
    let is_seen = |visits: &NodeTraversal| visits.visits + visits.open + visits.cancelled > 0;
    let nodes = traversal.nodes.iter().enumerate().filter(|(_, visits)| is_seen(visits));
    let edges = traversal.ways.iter().map(|((from, way), times)| {
        let (edge, way) = match way {
            TraversedWay::Edge(index) => (Some(*index), "edge"),
            TraversedWay::OnError => (None, "on_error"),
            TraversedWay::OnTimeout => (None, "on_timeout"),
            TraversedWay::Fewer => (None, "fewer"),
            _ => (None, "end"),
        };
        FiredEdge { from: name(*from), edge, way: way.to_owned(), times: *times }
    });
    FiredRun {
        run: traversal.run.clone(),
        status: traversal.status,
        steps: traversal.steps,
        nodes: nodes.map(|(at, visits)| FiredNode { node: name(at), visits: visits.clone() }).collect(),
        edges: edges.collect(),
    }
}

/// Returns the nodes that a node leads to.
fn targets(place: &TopologyNode<String>) -> impl Iterator<Item = &String> {
    let fewer = place.join.as_ref().and_then(|join| join.fewer.as_ref());
    let edges = place.edges.iter().filter_map(|edge| edge.to.as_ref());
    edges.chain(&place.on_error).chain(&place.on_timeout).chain(fewer)
}

impl ValidationReport {
    /// Computes the report of a topology, also of one that was written by hand or by another program.
    ///
    /// Errors are a missing start, two nodes of one name, and names of nodes that do not exist. Warnings are nodes that no run reaches,
    /// and nodes that lead nowhere and are no `return`.
    pub fn of(topology: &Topology<String>) -> Self {
        let (mut errors, mut warnings) = (Vec::new(), Vec::new());
        let entry = |message: String, node: Option<&str>| ReportEntry {
            message,
            node: node.map(str::to_owned),
            ..ReportEntry::default()
        };
        let mut names = BTreeSet::new();
        for place in &topology.nodes {
            if !names.insert(place.name.as_str()) {
                errors.push(entry(format!("there are two nodes `{}`", place.name), Some(&place.name)));
            }
        }
        if topology.start.is_empty() {
            errors.push(entry("the graph has no start".to_owned(), None));
        }
        let begins = || topology.start.iter().chain(topology.entries.iter().map(|entry| &entry.node));
        for start in begins().filter(|start| !names.contains(start.as_str())) {
            errors.push(entry(format!("a run begins at `{start}`, which does not exist"), None));
        }
        for place in &topology.nodes {
            let joined = place.join.iter().flat_map(|join| join.waits_for.iter().chain(&join.fan));
            for target in targets(place).chain(joined).filter(|target| !names.contains(target.as_str())) {
                errors
                    .push(entry(format!("`{}` names `{target}`, which does not exist", place.name), Some(&place.name)));
            }
        }
        let (mut reached, mut open) = (BTreeSet::new(), begins().map(String::as_str).collect::<Vec<_>>());
        while let Some(name) = open.pop() {
            if reached.insert(name) {
                let places = topology.nodes.iter().filter(|place| place.name == name);
                open.extend(places.flat_map(targets).map(String::as_str));
            }
        }
        for place in &topology.nodes {
            if !reached.contains(place.name.as_str()) {
                warnings.push(entry(format!("no run reaches `{}`", place.name), Some(&place.name)));
            }
            if place.kind != TopologyKind::Return && place.edges.is_empty() {
                warnings
                    .push(entry(format!("a run ends at `{}`, which is no `return`", place.name), Some(&place.name)));
            }
        }
        Self { ok: errors.is_empty(), errors, warnings }
    }
}

//! Coverage: the nodes and edges of graphs that cases reached.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use graph_compiler::definition::{self, Definition, NodeDefinition, RouteDefinition};
use graph_compiler::diagnostic::Diagnostics;
use graph_compiler::source::{SourceFile, Span};
use graph_compiler::tree;
use graph_runtime::Machine;
use graph_runtime::dynamic::Interpreted;
use graph_runtime::history::{TraversedWay, traversal};
use graph_runtime::machine::{Topology, TopologyNode, TopologyRoute};
use graph_runtime::record::{Entry, Record, SignedRecord};
use graph_runtime::{RunId, Value};
use serde_json::json;

use crate::run::journal_public_key;

/// The kind of a part of a graph that a run can reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PartKind {
    /// A node.
    Node,
    /// An edge.
    Edge,
    /// A case of a route by a value.
    Case,
    /// The edge that a failure takes.
    Error,
    /// The edge that is taken when a wait or a question expires.
    Timeout,
    /// The edge that is taken when too few branches can arrive.
    Fewer,
    /// The answer to a question.
    Answer,
}

impl PartKind {
    /// Every kind.
    pub const ALL: [Self; 7] =
        [Self::Node, Self::Edge, Self::Case, Self::Error, Self::Timeout, Self::Fewer, Self::Answer];

    /// Returns the word for it: `node`, `edge` …
    pub fn name(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Edge => "edge",
            Self::Case => "case",
            Self::Error => "error edge",
            Self::Timeout => "timeout",
            Self::Fewer => "edge of too few",
            Self::Answer => "answer",
        }
    }
}

/// A part of a graph that a run can reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoveredPart {
    /// Its kind.
    pub kind: PartKind,
    /// The index of its node.
    pub node: usize,
    /// Its description: `charge → ship if result.is_paid`.
    pub text: String,
    /// Its line in the file of the graph, from 1.
    pub line: usize,
    /// How often runs reached it.
    pub hits: u64,
    way: Option<TraversedWay>,
}

/// How much of a graph was reached.
#[derive(Debug, Clone)]
pub struct GraphCoverage {
    /// The graph's id.
    pub id: String,
    /// The file of the graph.
    pub file: PathBuf,
    /// The name of the file, as messages have it.
    pub name: String,
    /// Its parts, in the order of the nodes.
    pub parts: Vec<CoveredPart>,
}

impl GraphCoverage {
    /// The parts of a graph, none of which was reached yet. `source` is the file of the graph as its author wrote it.
    pub fn of(graph: &Interpreted, source: &Arc<SourceFile>) -> Self {
        let topology = graph.graph().topology();
        let mut diagnostics = Diagnostics::new();
        let definition =
            tree::parse(source, &mut diagnostics).and_then(|yaml| definition::parse_unfinished(source, &yaml));
        let mut parts = Vec::new();
        for (at, node) in topology.nodes.iter().enumerate() {
            let written = definition.as_ref().and_then(|definition| named(definition, &node.name));
            parts.extend(parts_of(&topology, at, node, source, written));
        }
        let (file, name) = (source.path.clone(), source.name.clone());
        Self { id: topology.id.to_string(), file, name, parts }
    }

    /// Adds what a run of the graph reached, according to its journal.
    ///
    /// # Errors
    ///
    /// If it is no journal of the graph.
    pub fn add(&mut self, graph: &Interpreted, run: &RunId, records: &[SignedRecord]) -> Result<(), String> {
        let traversal =
            traversal(graph, run, records, &journal_public_key()).map_err(|error| format!("run `{run}`: {error}"))?;
        let (answered, topology) = (answered(records), graph.graph().topology());
        for part in &mut self.parts {
            let name = topology.name(part.node).unwrap_or_default();
            part.hits += match (part.way, part.kind) {
                (Some(way), _) => traversal.ways.get(&(part.node, way)).copied().unwrap_or_default(),
                (None, PartKind::Answer) => answered.get(name).copied().unwrap_or_default(),
                (None, _) => traversal.nodes.get(part.node).map_or(0, |node| node.visits),
            };
        }
        Ok(())
    }

    /// Adds what other runs reached of the same graph.
    pub fn merge(&mut self, other: &Self) {
        for (part, other) in self.parts.iter_mut().zip(&other.parts) {
            part.hits += other.hits;
        }
    }

    /// Returns how many parts there are, and how many of them were reached, of a kind or of all.
    pub fn count(&self, kind: Option<PartKind>) -> Ratio {
        let of_kind = || self.parts.iter().filter(|part| kind.is_none_or(|kind| part.kind == kind));
        Ratio { reached: of_kind().filter(|part| part.hits > 0).count() as u64, all: of_kind().count() as u64 }
    }

    /// Returns it as JSON.
    pub fn to_value(&self) -> Value {
        let part = |part: &CoveredPart| json!({ "kind": part.kind.name(), "text": part.text, "line": part.line, "hits": part.hits });
        let ratio = self.count(None);
        json!({
            "graph": self.id, "file": self.name, "reached": ratio.reached, "parts": ratio.all, "percent": ratio.percent(),
            "items": self.parts.iter().map(part).collect::<Vec<_>>(),
        })
    }
}

/// Some of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ratio {
    /// How many were reached.
    pub reached: u64,
    /// How many there are.
    pub all: u64,
}

impl Ratio {
    /// Adds another one.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { reached: self.reached + other.reached, all: self.all + other.all }
    }

    /// Returns the percentage, rounded down to a tenth: it is 100 only if all were reached, and 0 if there is nothing to reach.
    pub fn percent(self) -> f64 {
        let tenths = (self.reached * 1000).checked_div(self.all).unwrap_or_default();
        // At most 1000.
        f64::from(u32::try_from(tenths).unwrap_or(1000)) / 10.0
    }

    /// Whether at least a percentage was reached, without rounding. If there is nothing to reach, nothing was.
    pub fn is_at_least(self, percent: f64) -> bool {
        #[expect(clippy::cast_precision_loss, reason = "a graph has far fewer than 2^52 parts")]
        let (reached, all) = (self.reached as f64, self.all as f64);
        percent <= 0.0 || (self.all > 0 && reached * 100.0 >= percent * all)
    }
}

fn named<'d>(definition: &'d Definition, name: &str) -> Option<&'d NodeDefinition> {
    definition.nodes.iter().find(|node| node.name.value.as_str() == name)
}

/// Returns the parts of a node: the node, its edges, and the other ways out of it.
fn parts_of(
    topology: &Topology,
    at: usize,
    node: &TopologyNode,
    source: &SourceFile,
    written: Option<&NodeDefinition>,
) -> Vec<CoveredPart> {
    let line_of = |span: Option<&Span>| span.map_or(1, |span| source.position(span.start).0);
    let own_line = line_of(written.map(|node| &node.name.span));
    let edge_span = |edge: usize| -> Option<Span> {
        match written?.next() {
            RouteDefinition::First(list) | RouteDefinition::All(list) => {
                list.edges.get(edge).map(|edge| edge.span.clone())
            }
            RouteDefinition::End => None,
            RouteDefinition::To(to) => Some(to.span.clone()),
            RouteDefinition::Each(each) => Some(each.to.span.clone()),
            RouteDefinition::By(by) => by.to.get(edge).map(|(word, _)| word.span.clone()),
        }
    };
    let part = |kind, text: String, line, way| CoveredPart { kind, node: at, text, line, hits: 0, way };
    let name_of = |to: Option<usize>| to.and_then(|to| topology.name(to)).unwrap_or("the end");
    let mut parts = vec![part(PartKind::Node, node.name.clone(), own_line, None)];
    for (index, edge) in node.edges.iter().enumerate() {
        let line = edge_span(index).map_or(own_line, |span| line_of(Some(&span)));
        let kind = if node.route == TopologyRoute::By { PartKind::Case } else { PartKind::Edge };
        let when = edge.when.as_ref().map_or_else(String::new, |when| format!(" if {when}"));
        let text = format!("{} → {}{when}", node.name, name_of(edge.to));
        parts.push(part(kind, text, line, Some(TraversedWay::Edge(index))));
    }
    let mut other = |kind, to: Option<usize>, span: Option<&Span>, way, why: &str| {
        if let Some(to) = to {
            let line = span.map_or(own_line, |span| line_of(Some(span)));
            let text = format!("{} → {} {why}", node.name, name_of(Some(to)));
            parts.push(part(kind, text, line, Some(way)));
        }
    };
    let on_error = written.and_then(NodeDefinition::on_error).map(|target| &target.span);
    other(PartKind::Error, node.on_error, on_error, TraversedWay::OnError, "if it fails");
    let asks = node.wait.as_ref().is_some_and(|wait| wait.asks);
    let why = if asks { "if nobody answers in time" } else { "if its time is over" };
    let on_timeout = written.and_then(NodeDefinition::on_timeout).map(|target| &target.span);
    other(PartKind::Timeout, node.on_timeout, on_timeout, TraversedWay::OnTimeout, why);
    let fewer = node.join.as_ref().and_then(|join| join.fewer);
    let fewer_span = written.and_then(NodeDefinition::fewer).map(|target| &target.span);
    other(PartKind::Fewer, fewer, fewer_span, TraversedWay::Fewer, "if too few branches can arrive");
    if asks {
        parts.push(part(PartKind::Answer, format!("{} is answered", node.name), own_line, None));
    }
    parts
}

/// Returns how often each node's question was answered: visits that waited, and were made before their time was over.
fn answered(records: &[SignedRecord]) -> BTreeMap<String, u64> {
    let mut waited: BTreeSet<u64> = BTreeSet::new();
    let mut answered: BTreeMap<String, u64> = BTreeMap::new();
    for record in records {
        let Ok(Record { entry: Entry::Step(step), .. }) = serde_json::from_str::<Record>(&record.body) else {
            continue;
        };
        for visit in step.visits {
            if visit.opened.is_some() {
                waited.insert(visit.step);
            } else if waited.contains(&visit.step) && !visit.timed_out && !visit.cancelled && visit.error.is_none() {
                *answered.entry(visit.node).or_default() += 1;
            }
        }
    }
    answered
}

/// Returns the coverage in the format of lcov, with paths relative to `base` if they are inside. Each node is a line with its number
/// of visits, and the ways out of a node are the branches of its lines.
pub fn lcov(graphs: &[GraphCoverage], base: &Path) -> String {
    let mut text = String::new();
    for graph in graphs {
        let path = graph.file.strip_prefix(base).unwrap_or(&graph.file).to_string_lossy().replace('\\', "/");
        text.push_str(&format!("TN:\nSF:{path}\n"));
        let (mut lines, mut branches): (BTreeMap<usize, u64>, Vec<String>) = Default::default();
        let (mut found, mut hit) = (0_u64, 0_u64);
        let mut indices: BTreeMap<(usize, usize), usize> = BTreeMap::new();
        let visits: BTreeMap<usize, u64> =
            graph.parts.iter().filter(|part| part.kind == PartKind::Node).map(|part| (part.node, part.hits)).collect();
        for part in &graph.parts {
            let line = lines.entry(part.line).or_default();
            *line = (*line).max(part.hits);
            if part.way.is_some() || part.kind == PartKind::Answer {
                let index = indices.entry((part.line, part.node)).or_default();
                let taken = match visits.get(&part.node) {
                    Some(0) | None => "-".to_owned(),
                    Some(_) => part.hits.to_string(),
                };
                branches.push(format!("BRDA:{},{},{index},{taken}\n", part.line, part.node));
                *index += 1;
                found += 1;
                hit += u64::from(part.hits > 0);
            }
        }
        branches.iter().for_each(|branch| text.push_str(branch));
        text.push_str(&format!("BRF:{found}\nBRH:{hit}\n"));
        lines.iter().for_each(|(line, hits)| text.push_str(&format!("DA:{line},{hits}\n")));
        let reached = lines.values().filter(|hits| **hits > 0).count();
        text.push_str(&format!("LF:{}\nLH:{reached}\nend_of_record\n", lines.len()));
    }
    text
}

//! The shape of a graph: its nodes and where they lead.

use std::collections::BTreeMap;

use crate::graph::compiled::{CompiledGraph, tables};
use crate::graph::node::{CompiledNode, CompiledRoute};
use graph_model::digest::Digest;
use graph_model::name::GraphId;
use graph_model::program::Kind;
use graph_model::reducer::Reducer;
use graph_model::value::Value;

/// The shape of a graph, for code that shows it, counts it, or follows a run in it.
///
/// [`CompiledGraph::topology`] has an example.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Topology {
    /// The graph's id.
    pub id: GraphId,
    /// The SHA-256 of the graph that its signature covers.
    pub digest: Digest,
    /// The index of the node that a run begins at; [`first`](Topology::first) has them all if there are several.
    pub start: usize,
    /// The keys of the state, each with its first value.
    pub keys: Vec<(String, Option<Value>)>,
    /// The channels: the keys whose writes are combined, each with its reducer.
    pub channels: BTreeMap<String, Reducer>,
    /// The nodes, in the order of the file. If a run begins in several nodes, the last one is [`Kind::Start`], which leads to
    /// them, and which no run visits.
    pub nodes: Vec<TopologyNode>,
}

/// A node and where it leads. Nodes are named by their indices in [`Topology::nodes`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopologyNode {
    /// The node's name.
    pub name: String,
    /// Its kind.
    pub kind: Kind,
    /// The id of the tool that it calls; empty if it calls nothing, or the id is known only at each call.
    pub action: String,
    /// Where its edges lead, in their order; `None` ends the path.
    pub edges: Vec<Option<usize>>,
    /// Where its failures lead, if the node says that.
    pub on_error: Option<usize>,
    /// How its edges are taken.
    pub route: TopologyRoute,
    /// The nodes whose branches it waits for.
    pub waits_for: Vec<usize>,
    /// The node whose branches it joins, if it is a join.
    pub joins: Option<usize>,
    /// How many branches it waits for, if not for all: the others are cancelled then.
    pub need: Option<u32>,
    /// The node that is visited instead of it if fewer branches can arrive.
    pub fewer: Option<usize>,
    /// Whether it is a return that cancels everything else that is active.
    pub cancels: bool,
    /// The channels that get their first values again when it is visited.
    pub reset: Vec<String>,
}

/// How the edges of a node are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TopologyRoute {
    /// The first one whose condition holds.
    First,
    /// Every one whose condition holds; each begins a branch.
    All,
    /// Its single edge, once for each element of a list; each begins a branch.
    Each,
    /// The one for a value.
    By,
}

impl TopologyRoute {
    /// Whether a visit of the node begins branches.
    pub fn begins_branches(self) -> bool {
        matches!(self, Self::All | Self::Each)
    }
}

impl CompiledGraph {
    /// Returns the shape of the graph.
    ///
    /// ```
    /// # use graph_engine as graph_runtime;
    /// use graph_runtime::machine::CompiledGraph;
    ///
    /// /// Draws a graph, a line an edge.
    /// fn draw(graph: &CompiledGraph) -> String {
    ///     let topology = graph.topology();
    ///     let mut lines = Vec::new();
    ///     for place in &topology.nodes {
    ///         for to in &place.edges {
    ///             let to = to.and_then(|to| topology.name(to)).unwrap_or("the end");
    ///             lines.push(format!("{} -> {to}", place.name));
    ///         }
    ///     }
    ///     lines.join("\n")
    /// }
    /// ```
    pub fn topology(&self) -> Topology {
        let tables = tables(self);
        let place = |node: &CompiledNode| {
            let kind = node.kind.kind();
            let tool = kind.tool().and_then(|tool| tables.tool(tool));
            TopologyNode {
                name: node.name.clone(),
                kind,
                action: tool.map_or_else(String::new, |tool| tool.name().to_owned()),
                edges: node.targets().map(|to| to.map(usize::from)).collect(),
                on_error: node.on_error.map(usize::from),
                route: match &node.next {
                    CompiledRoute::First(_) => TopologyRoute::First,
                    CompiledRoute::All(_) => TopologyRoute::All,
                    CompiledRoute::Each(_) => TopologyRoute::Each,
                    CompiledRoute::By(_) => TopologyRoute::By,
                },
                joins: node.join.as_ref().and_then(|join| join.fan).map(usize::from),
                need: node.quorum().map(|quorum| quorum.need),
                fewer: node.quorum().and_then(|quorum| quorum.fewer).map(usize::from),
                waits_for: node.join.iter().flat_map(|join| &join.of).map(|&node| usize::from(node)).collect(),
                cancels: node.cancels,
                reset: node.reset.iter().map(|&key| tables.keys[key].name.clone()).collect(),
            }
        };
        Topology {
            id: tables.id.clone(),
            digest: tables.digest,
            start: usize::from(tables.start),
            keys: tables.keys.iter().map(|key| (key.name.clone(), key.initial.clone())).collect(),
            channels: tables.settings.channels.clone(),
            nodes: tables.nodes.iter().map(place).collect(),
        }
    }
}

impl Topology {
    /// Returns the node that is called `name`.
    pub fn node(&self, name: &str) -> Option<&TopologyNode> {
        self.nodes.iter().find(|place| place.name == name)
    }

    /// Returns the indices of the nodes that a run visits first.
    pub fn first(&self) -> Vec<usize> {
        match self.nodes.get(self.start) {
            Some(start) if start.kind == Kind::Start => start.edges.iter().copied().flatten().collect(),
            _ => vec![self.start],
        }
    }

    /// Returns the first value of a key; null if it has none.
    pub fn first_value(&self, key: &str) -> Value {
        self.keys.iter().find(|(name, _)| name == key).and_then(|(_, first)| first.clone()).unwrap_or_default()
    }

    /// Returns the name of the node with that index.
    pub fn name(&self, at: usize) -> Option<&str> {
        self.nodes.get(at).map(|place| place.name.as_str())
    }
}

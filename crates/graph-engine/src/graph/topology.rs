//! The shape of a graph: its nodes and where they lead.

use crate::graph::compiled::{CompiledGraph, tables};
use crate::graph::node::{CompiledNode, CompiledRoute};
use graph_model::digest::Digest;
use graph_model::name::GraphId;
use graph_model::program::{EntryPoint, Join, Kind, Rest};
use graph_model::reducer::{Channels, KeptChannels};
use graph_model::value::Value;

/// The shape of a graph, for code that shows it, counts it, or follows a run in it.
///
/// It names nodes by their indices in [`Topology::nodes`], or by the enum `N` of a graph:
/// [`TopologyOf`](crate::machine::TopologyOf). [`CompiledGraph::topology`] and
/// [`TypedGraph`](crate::machine::TypedGraph) have examples.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Topology<N = usize> {
    /// The graph's id.
    pub id: GraphId,
    /// The SHA-256 of the graph that its signature covers.
    pub digest: Digest,
    /// The nodes that a run visits first. If there are several, a branch begins at each.
    pub start: Vec<N>,
    /// The other places where a run can begin.
    pub entries: Vec<TopologyEntry<N>>,
    /// The keys of the state, each with its first value.
    pub keys: Vec<(String, Option<Value>)>,
    /// The channels: the keys whose writes are combined, each with its reducer.
    pub channels: Channels,
    /// The channels that do not have their values for the rest of the run.
    pub keep: KeptChannels,
    /// The nodes, in the order of the file.
    pub nodes: Vec<TopologyNode<N>>,
}

/// A place where a run can begin, besides the start.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopologyEntry<N = usize> {
    /// Its name.
    pub name: String,
    /// The node.
    pub node: N,
    /// The path of the branch in which the run begins: the index of each branch around the node, the outermost first. Each is the
    /// only one of its fan-out.
    pub path: Vec<u32>,
    /// For each of these branches the input that is its element, if it has one.
    pub elements: Vec<Option<String>>,
}

/// A node and where it leads.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopologyNode<N = usize> {
    /// The node.
    pub node: N,
    /// The node's name.
    pub name: String,
    /// Its kind.
    pub kind: Kind,
    /// The id of the tool that it calls; empty if it calls nothing, or the id is known only at each call.
    pub action: String,
    /// Where its edges lead, in their order; `None` ends the path.
    pub edges: Vec<Option<N>>,
    /// How its edges are taken.
    pub route: TopologyRoute,
    /// Where its failures lead, if the node says that.
    pub on_error: Option<N>,
    /// The signals that it waits for.
    pub signals: Vec<String>,
    /// The node that follows if it waits for signals, and none comes in time.
    pub on_timeout: Option<N>,
    /// How it waits for branches, if it is a join.
    pub join: Option<TopologyJoin<N>>,
    /// Whether it is a return that cancels everything else that is active.
    pub cancels: bool,
    /// The channels that get their first values again when it is visited.
    pub reset: Vec<String>,
    /// The keys that the run of its graph shares. The change of such a key is a list of writes.
    pub share: Vec<String>,
}

/// How a node waits for the branches of a fan-out.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopologyJoin<N = usize> {
    /// The nodes that lead to it.
    pub waits_for: Vec<N>,
    /// The node that begins the branches; `None` if the run begins with them.
    pub fan: Option<N>,
    /// Whether every branch reaches it, or ends before. If not, it is a partial join.
    pub closes: bool,
    /// How many branches it waits for, if not for all.
    pub need: Option<u32>,
    /// Whether the other branches run on beside the nodes behind it. If not, they are cancelled.
    pub finishes: bool,
    /// The node that is visited instead of it if fewer branches can arrive.
    pub fewer: Option<N>,
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
        self.topology_of(usize::from)
    }

    /// Returns the shape of the graph, with `name` for each node.
    pub(crate) fn topology_of<N>(&self, name: impl Fn(u16) -> N) -> Topology<N> {
        let tables = tables(self);
        let joins = |join: &Join| TopologyJoin {
            waits_for: join.of.iter().map(|&node| name(node)).collect(),
            fan: join.fan.filter(|&fan| fan != tables.start || !tables.starts_in_branches()).map(&name),
            closes: join.closes,
            need: join.quorum.map(|quorum| quorum.need),
            finishes: join.quorum.is_some_and(|quorum| quorum.rest == Rest::Finish),
            fewer: join.quorum.and_then(|quorum| quorum.fewer).map(&name),
        };
        let place = |(at, node): (u16, &CompiledNode)| {
            let kind = node.kind.kind();
            let tool = kind.tool().and_then(|tool| tables.tool(tool));
            TopologyNode {
                node: name(at),
                name: node.name.clone(),
                kind,
                action: tool.map_or_else(String::new, |tool| tool.name().to_owned()),
                edges: node.targets().map(|to| to.map(&name)).collect(),
                route: match &node.next {
                    CompiledRoute::First(_) => TopologyRoute::First,
                    CompiledRoute::All(_) => TopologyRoute::All,
                    CompiledRoute::Each(_) => TopologyRoute::Each,
                    CompiledRoute::By(_) => TopologyRoute::By,
                },
                on_error: node.on_error.map(&name),
                signals: node.wait().map(|wait| wait.signals.clone()).unwrap_or_default(),
                on_timeout: node.on_timeout().map(&name),
                join: node.join.as_ref().map(joins),
                cancels: node.cancels,
                reset: names_of(tables, &node.reset),
                share: names_of(tables, &node.share),
            }
        };
        let entry = |(entry, at): (&String, &EntryPoint)| TopologyEntry {
            name: entry.clone(),
            node: name(at.node),
            path: at.branches.iter().map(|branch| tables.branch_of(branch)).collect(),
            elements: at.branches.iter().map(|branch| branch.element.as_ref().map(ToString::to_string)).collect(),
        };
        let is_visited = |(at, _): &(u16, &CompiledNode)| *at != tables.start || !tables.starts_in_branches();
        Topology {
            id: tables.id.clone(),
            digest: tables.digest,
            start: tables.first_nodes().map(&name).collect(),
            entries: tables.settings.entries.iter().map(entry).collect(),
            keys: tables.keys.iter().map(|key| (key.name.clone(), key.initial.clone())).collect(),
            channels: tables.settings.channels.clone(),
            keep: tables.settings.keep.clone(),
            nodes: (0..).zip(&tables.nodes).filter(is_visited).map(place).collect(),
        }
    }
}

/// Returns the names of keys.
fn names_of(tables: &super::GraphTables, keys: &[usize]) -> Vec<String> {
    keys.iter().map(|&key| tables.keys[key].name.clone()).collect()
}

impl<N> Topology<N> {
    /// Returns the node that is called `name`.
    pub fn node(&self, name: &str) -> Option<&TopologyNode<N>> {
        self.nodes.iter().find(|place| place.name == name)
    }

    /// Returns the joins, each with the node that waits.
    pub fn joins(&self) -> impl Iterator<Item = (&TopologyNode<N>, &TopologyJoin<N>)> {
        self.nodes.iter().filter_map(|place| Some((place, place.join.as_ref()?)))
    }

    /// Returns the first value of a key; null if it has none.
    pub fn first_value(&self, key: &str) -> Value {
        self.keys.iter().find(|(name, _)| name == key).and_then(|(_, first)| first.clone()).unwrap_or_default()
    }
}

impl Topology {
    /// Returns the name of the node with that index.
    pub fn name(&self, at: usize) -> Option<&str> {
        self.nodes.get(at).map(|place| place.name.as_str())
    }
}

//! The shape of a graph: its nodes and where they lead.

use crate::graph::compiled::{CompiledGraph, tables};
use crate::graph::node::{CompiledHook, CompiledKind, CompiledNode, CompiledRoute, CompiledTool, CompiledWait};
use graph_model::digest::Digest;
use graph_model::name::GraphId;
use graph_model::program::{
    CallLimits, EntryPoint, Event, Executor, ItemType, Join, OnBranchError, OnError, OnMaxSteps, OnNoMatch, Rest,
    Retry, Verb,
};
use graph_model::reducer::{Channels, KeptChannels};
use graph_model::value::Value;
use serde::{Deserialize, Serialize};

/// The shape of a graph, for code that shows it, counts it, or follows a run in it.
///
/// It names nodes by their indices in [`Topology::nodes`], or by the enum `N` of a graph:
/// [`TopologyOf`](crate::machine::TopologyOf). [`CompiledGraph::named_topology`] names them by their names, which is the form to be
/// written as JSON and read back. [`CompiledGraph::topology`] and [`TypedGraph`](crate::machine::TypedGraph) have examples.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Topology<N = usize> {
    /// The graph's id.
    pub id: GraphId,
    /// The version that the graph's author gave it.
    pub version: String,
    /// The SHA-256 of the graph that its signature covers.
    pub digest: Digest,
    /// The digest of the graph's meaning, if the compiler computed it.
    pub meaning: Option<Digest>,
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
    /// The signals that a run can receive.
    pub signals: Vec<String>,
    /// The patterns of the capabilities that the graph declares.
    pub permissions: Vec<String>,
    /// The environment variables that it requires.
    pub env: Vec<String>,
    /// The rules for its runs.
    pub policy: TopologyPolicy,
    /// The hooks, in the order of the file.
    pub hooks: Vec<TopologyHook>,
    /// The nodes, in the order of the file.
    pub nodes: Vec<TopologyNode<N>>,
}

/// The rules for the runs of a graph. Times are in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TopologyPolicy {
    /// The maximum number of steps of a run (R130).
    pub max_steps: u32,
    /// The reaction when a run has taken that many steps.
    pub on_max_steps: OnMaxSteps,
    /// The reaction when a node without an `on_error` of its own fails.
    pub on_error: OnError,
    /// The reaction when a node has edges and none of their conditions holds.
    pub on_no_match: OnNoMatch,
    /// How many levels of graphs and threads may be nested.
    pub depth: u32,
    /// How long a run may take, without waiting.
    pub timeout_ms: Option<u64>,
    /// How long after its start a run must have ended, waiting included.
    pub deadline_ms: Option<u64>,
    /// How often a run may visit one node.
    pub visits: Option<u32>,
    /// How many nodes a run and the runs inside it may visit together.
    pub steps: Option<u32>,
}

/// A hook of a graph.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TopologyHook {
    /// Its name.
    pub name: String,
    /// The event at which it is asked.
    pub event: Event,
    /// The condition under which it is asked, as text.
    pub when: Option<String>,
}

/// A place where a run can begin, besides the start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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

/// A node and where it leads. Times are in milliseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TopologyNode<N = usize> {
    /// The node.
    pub node: N,
    /// The node's name.
    pub name: String,
    /// Its kind.
    pub kind: TopologyKind,
    /// The tool that it calls.
    pub tool: Option<TopologyTool>,
    /// Where its edges lead, in their order.
    pub edges: Vec<TopologyEdge<N>>,
    /// How its edges are taken.
    pub route: TopologyRoute,
    /// The list that its route or its calls go over, or the value by which it leads, as text.
    pub over: Option<String>,
    /// How many calls, or nodes of its branches, are made at a time, if that is limited.
    pub width: Option<usize>,
    /// Where its failures lead, if the node says that.
    pub on_error: Option<N>,
    /// The reaction to failures in its branches, if its route has one.
    pub on_branch_error: Option<OnBranchError>,
    /// Its wait, or that of its tool if this asks people.
    pub wait: Option<TopologyWait>,
    /// The node that follows if it waits, and nothing ends that in time.
    pub on_timeout: Option<N>,
    /// How it waits for branches, if it is a join.
    pub join: Option<TopologyJoin<N>>,
    /// Whether it is a return that cancels everything else that is active.
    pub cancels: bool,
    /// Its own retry policy.
    pub retry: Option<Retry>,
    /// How long a call may take.
    pub timeout_ms: Option<u64>,
    /// The limits of the runs that its calls begin.
    pub limits: CallLimits,
    /// Where an agent is to make the call.
    pub remote: Option<String>,
    /// Whether the results of its calls are cached.
    pub cached: bool,
    /// The channels that get their first values again when it is visited.
    pub reset: Vec<String>,
    /// The keys that the run of its graph shares. The change of such a key is a list of writes.
    pub share: Vec<String>,
    /// The signals that the run of its graph shares.
    pub share_signals: Vec<String>,
}

/// The kind of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TopologyKind {
    /// Calls a tool.
    Action,
    /// Calls a tool for each item of a list.
    Foreach,
    /// Computes its assignments and chooses an edge.
    Gate,
    /// Asks people, and waits for their answer.
    Interrupt,
    /// Waits for a time or for signals.
    Wait,
    /// Ends the run.
    Return,
}

impl TopologyKind {
    /// Returns the type of node, as a file names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Action => "action",
            Self::Foreach => "foreach",
            Self::Gate => "gate",
            Self::Interrupt => "interrupt",
            Self::Wait => "wait",
            Self::Return => "return",
        }
    }

    /// Whether it calls a tool.
    pub fn calls(self) -> bool {
        matches!(self, Self::Action | Self::Foreach)
    }
}

/// The tool that a node calls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TopologyTool {
    /// Its id; `None` if it is known only at each call.
    pub id: Option<String>,
    /// The verb of the call.
    pub verb: Verb,
    /// The kind of item that the verb applies to.
    pub item: ItemType,
    /// Whether it is another graph, whose run is nested.
    pub is_graph: bool,
    /// The capability that a run needs to call it; `None` if it is known only at each call.
    pub capability: Option<String>,
}

/// A wait of a node. Times are in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TopologyWait {
    /// The time until which it waits, as text.
    pub until: Option<String>,
    /// How long it waits at most.
    pub timeout_ms: Option<u64>,
    /// The signals of which the first ends it.
    pub signals: Vec<String>,
    /// Whether it asks people.
    pub asks: bool,
    /// The role that whoever answers has, if it asks people with one.
    pub role: Option<String>,
    /// How many keys of different owners sign the answer; 0 if it asks nobody.
    pub count: u32,
}

/// An edge of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TopologyEdge<N = usize> {
    /// Where it leads; `None` ends the path.
    pub to: Option<N>,
    /// Its condition as text, or the word for which it is taken; `None` if it has no condition.
    pub when: Option<String>,
}

/// How a node waits for the branches of a fan-out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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
    ///         for edge in &place.edges {
    ///             let to = edge.to.and_then(|to| topology.name(to)).unwrap_or("the end");
    ///             let when = edge.when.as_ref().map_or_else(String::new, |when| format!(" if {when}"));
    ///             lines.push(format!("{} -> {to}{when}", place.name));
    ///         }
    ///     }
    ///     lines.join("\n")
    /// }
    /// ```
    pub fn topology(&self) -> Topology {
        self.topology_of(usize::from)
    }

    /// Returns the shape of the graph, which names nodes by their names: the form to be written as JSON and read back.
    pub fn named_topology(&self) -> Topology<String> {
        self.topology_of(|at| tables(self).node(at).name.clone())
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
        let tool = |tool: &CompiledTool| TopologyTool {
            id: tool.id.as_ref().map(ToString::to_string),
            verb: tool.verb,
            item: tool.item,
            is_graph: tool.by == Executor::Graph,
            capability: tool.capability.as_ref().map(ToString::to_string),
        };
        let wait = |wait: &CompiledWait| TopologyWait {
            until: wait.until.as_ref().map(ToString::to_string),
            timeout_ms: wait.timeout_ms,
            signals: wait.signals.clone(),
            asks: wait.ask.is_some(),
            role: wait.ask.as_ref().and_then(|ask| ask.role.clone()),
            count: wait.ask.as_ref().map_or(0, |ask| ask.count),
        };
        let place = |(at, node): (u16, &CompiledNode)| {
            let edges = node.targets().zip(node.next.conditions());
            TopologyNode {
                node: name(at),
                name: node.name.clone(),
                kind: kind_of(&node.kind),
                tool: node.kind.calls().and_then(|at| tables.tool(at)).map(tool),
                edges: edges.map(|(to, when)| TopologyEdge { to: to.map(&name), when }).collect(),
                route: node.next.shape(),
                over: node.over(),
                width: node.calls_at_a_time(),
                on_error: node.on_error.map(&name),
                on_branch_error: node.on_branch_error,
                wait: node.wait().map(wait),
                on_timeout: node.on_timeout().map(&name),
                join: node.join.as_ref().map(joins),
                cancels: node.cancels,
                retry: node.retry.clone(),
                timeout_ms: node.timeout.map(|timeout| u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX)),
                limits: node.limits,
                remote: node.remote.as_deref().map(str::to_owned),
                cached: node.cached,
                reset: names_of(tables, &node.reset),
                share: names_of(tables, &node.share),
                share_signals: node.share_signals.clone(),
            }
        };
        let entry = |(entry, at): (&String, &EntryPoint)| TopologyEntry {
            name: entry.clone(),
            node: name(at.node),
            path: at.branches.iter().map(|branch| tables.branch_of(branch)).collect(),
            elements: at.branches.iter().map(|branch| branch.element.as_ref().map(ToString::to_string)).collect(),
        };
        let hook =
            |hook: &CompiledHook| TopologyHook { name: hook.name.clone(), event: hook.event, when: hook.condition() };
        let is_visited = |(at, _): &(u16, &CompiledNode)| *at != tables.start || !tables.starts_in_branches();
        let settings = &tables.settings;
        Topology {
            id: tables.id.clone(),
            version: tables.version.clone(),
            digest: tables.digest,
            meaning: settings.meaning,
            start: tables.first_nodes().map(&name).collect(),
            entries: settings.entries.iter().map(entry).collect(),
            keys: tables
                .keys
                .iter()
                .map(|key| (key.name.clone(), key.initial.clone().filter(|first| !first.is_null())))
                .collect(),
            channels: settings.channels.clone(),
            keep: settings.keep.clone(),
            signals: settings.signals.keys().cloned().collect(),
            permissions: tables.permissions.patterns().iter().map(ToString::to_string).collect(),
            env: tables.env.clone(),
            policy: TopologyPolicy {
                max_steps: settings.max_steps,
                on_max_steps: settings.on_max_steps,
                on_error: settings.on_error,
                on_no_match: settings.on_no_match,
                depth: settings.depth,
                timeout_ms: settings.timeout_ms,
                deadline_ms: settings.deadline_ms,
                visits: settings.visits,
                steps: settings.steps,
            },
            hooks: tables.hooks.iter().map(hook).collect(),
            nodes: (0..).zip(&tables.nodes).filter(is_visited).map(place).collect(),
        }
    }
}

fn kind_of(kind: &CompiledKind) -> TopologyKind {
    match kind {
        CompiledKind::Action(_) => TopologyKind::Action,
        CompiledKind::Foreach(_) => TopologyKind::Foreach,
        CompiledKind::Wait(wait) if wait.ask.is_some() => TopologyKind::Interrupt,
        CompiledKind::Wait(_) => TopologyKind::Wait,
        CompiledKind::Return(_) => TopologyKind::Return,
        // No run visits the node that begins several.
        CompiledKind::Gate | CompiledKind::Start => TopologyKind::Gate,
    }
}

impl CompiledRoute {
    fn shape(&self) -> TopologyRoute {
        match self {
            Self::First(_) => TopologyRoute::First,
            Self::All(_) => TopologyRoute::All,
            Self::Each(_) => TopologyRoute::Each,
            Self::By(_) => TopologyRoute::By,
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

impl<N> TopologyNode<N> {
    /// Returns the id of the tool that it calls; empty if it calls nothing, or the id is known only at each call.
    pub fn action(&self) -> &str {
        self.tool.as_ref().and_then(|tool| tool.id.as_deref()).unwrap_or_default()
    }
}

impl Topology {
    /// Returns the name of the node with that index.
    pub fn name(&self, at: usize) -> Option<&str> {
        self.nodes.get(at).map(|place| place.name.as_str())
    }
}

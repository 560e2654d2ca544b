//! A checked graph: the input of expansion and of interpretation.

use std::path::PathBuf;
use std::sync::Arc;

use graph_definition::definition::{Contract, ValueSchema};
use graph_definition::source::SourceFile;
use graph_model::mcp::McpTool;
use graph_model::program::{Executor, ItemType, Kind, NodeBody, Settings, ToolRules, Verb};
use graph_model::subprocess::Subprocess;
use graph_model::value::Value;

use crate::items::InnerKey;
use crate::types::{Type, TypedField};

/// A graph that passed every check. Only [`check`](crate::check::check) makes one.
#[derive(Debug)]
pub struct CheckedGraph {
    pub(crate) interface: Interface,
    pub(crate) source: Arc<SourceFile>,
    pub(crate) digest: String,
    pub(crate) signer: String,
    pub(crate) owner: String,
    pub(crate) start: u16,
    pub(crate) settings: Settings,
    pub(crate) permissions: Vec<String>,
    /// The capability patterns that its own calls need.
    pub(crate) needs: Vec<String>,
    pub(crate) env: Vec<String>,
    pub(crate) nodes: Vec<CheckedNode>,
}

/// The interface of a graph: its id and its types. A graph with mistakes has one too, if the file could be read.
#[derive(Debug, Clone)]
pub struct Interface {
    /// The graph's id.
    pub id: String,
    /// The author's version.
    pub version: String,
    /// The author's description.
    pub description: Option<String>,
    /// The fields of its inputs; `None` where no schema names them.
    pub inputs: Option<Vec<TypedField>>,
    /// The keys of its state.
    pub keys: Vec<TypedKey>,
    /// The same keys, as a graph that nests this one sees them.
    pub(crate) inner_keys: Vec<InnerKey>,
    /// The tools that it calls, each once, in the order of the file.
    pub tools: Vec<TypedTool>,
    /// The functions of the program that combine the writes to its channels, each once, in the order of the channels.
    pub reducers: Vec<TypedReducer>,
    /// The signals that its runs can receive, in the order of the file.
    pub signals: Vec<TypedSignal>,
    /// The answers that its interrupts can have, each with the name of the node, in the order of the file.
    pub answers: Vec<TypedSignal>,
    /// The type of a run's output, wherever the run ends. A graph that nests this one sees this type.
    pub output: Type,
    /// The nodes at which a run can end, in the order of the file; empty if a run that has used up its steps ends
    /// successfully at any node.
    pub exits: Vec<Exit>,
    /// The same exits, each with what is known of the values of its output: as a graph that nests this one sees them.
    pub(crate) inner_exits: Vec<Exit>,
    /// The type of a run's output, with what is known of its values.
    pub(crate) inner_output: Type,
    /// The graphs that run inside it, directly or through others, each once.
    pub inner: Vec<InnerGraph>,
    /// The upper bounds of a run; `None` where mistakes leave them open.
    pub budget: Option<Budget>,
    /// The interrupts whose answers approve guarded calls, each with the call.
    pub approvals: Vec<ApprovingAnswers>,
    /// The names of its nodes, also of those that cannot be read, without a start of several nodes.
    pub(crate) nodes: Vec<String>,
    /// The names of its entries, each with the node at which it begins.
    pub(crate) entries: Vec<(String, String)>,
    /// The contracts that decide what the graph does and that its tables do not have, each as its id and the digest of its text.
    pub(crate) behind: Vec<String>,
}

/// The answers to an interrupt that approve a guarded call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovingAnswers {
    /// The node that makes the call.
    pub node: String,
    /// Its tool, as messages name it.
    pub tool: String,
    /// The node that asks.
    pub interrupt: String,
    /// The answers that lead to the call, for some of the other values that edges compare: the parts of them that are compared, as JSON. A
    /// text or a number stands for others like it.
    pub answers: Vec<String>,
    /// The role of those who answer; `None` for any trusted key.
    pub role: Option<String>,
    /// How many people sign such an answer.
    pub count: u32,
}

/// A signal that a run can receive, or an answer to an interrupt.
#[derive(Debug, Clone, PartialEq)]
pub struct TypedSignal {
    /// Its name; for an answer, that of the node.
    pub name: String,
    /// The type of its value.
    pub ty: Type,
    /// The author's description.
    pub description: Option<String>,
}

/// A node at which a run can end.
#[derive(Debug, Clone, PartialEq)]
pub struct Exit {
    /// The node's name.
    pub node: String,
    /// The type of a run's output if it ends there.
    pub ty: Type,
}

/// The reason why a run visits no more nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StepBound {
    /// Its edges lead no further.
    Edges,
    /// `limits.visits` stops a run that continues.
    Visits,
    /// `limits.steps` stops a run that continues.
    Steps,
    /// `max_steps` stops a run that continues.
    MaxSteps,
}

impl StepBound {
    /// Returns the name: `edges`, or the field that stops the run.
    pub fn name(self) -> &'static str {
        match self {
            Self::Edges => "edges",
            Self::Visits => "limits.visits",
            Self::Steps => "limits.steps",
            Self::MaxSteps => "max_steps",
        }
    }
}

/// The bounds of a run of a graph, as far as the graph determines them.
///
/// Hooks and middleware of the program are not counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Budget {
    /// The number of nodes that a run visits at least before it can end.
    pub shortest: u64,
    /// The number of nodes that it visits at least together with the runs inside it.
    pub shortest_inside: u64,
    /// How many milliseconds it waits at least.
    pub shortest_ms: u64,
    /// The number of nodes that it visits at most.
    pub steps: u64,
    /// The reason for that.
    pub bounded_by: StepBound,
    /// The number of calls that it makes at most, counting every attempt and the calls of graphs inside; `None` if
    /// there is no bound.
    pub calls: Option<u64>,
    /// The number of calls that can be under way at the same time; `None` if that is not known.
    pub at_a_time: Option<u64>,
    /// The number of levels of graphs nested below it; `None` where they form a circle.
    pub levels: Option<u32>,
    /// The most that the agents use that it calls, and those that they call; with its own turns, if it is an agent.
    pub usage: AgentUsage,
    /// The part of it that an agent uses by calls of others.
    pub usage_inside: AgentUsage,
}

/// The most that agents use together, by their limits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AgentUsage {
    /// How often they ask their models; `None` if there is no bound.
    pub turns: Option<u64>,
    /// How many tokens these turns take; `None` if there is no bound.
    pub tokens: Option<u64>,
    /// How much they cost, in millionths of a US dollar; `None` if there is no bound.
    pub micros: Option<u64>,
}

impl AgentUsage {
    /// That of no agent.
    pub const NOTHING: Self = Self { turns: Some(0), tokens: Some(0), micros: Some(0) };
    /// That of agents of which nothing is known.
    pub const UNKNOWN: Self = Self { turns: None, tokens: None, micros: None };

    /// Applies a function to each number of two usages.
    fn with(self, other: Self, each: impl Fn(u64, u64) -> Option<u64>) -> Self {
        let both = |one: Option<u64>, other: Option<u64>| each(one?, other?);
        Self {
            turns: both(self.turns, other.turns),
            tokens: both(self.tokens, other.tokens),
            micros: both(self.micros, other.micros),
        }
    }

    /// Returns that of both.
    pub fn plus(self, other: Self) -> Self {
        self.with(other, u64::checked_add)
    }

    /// Returns the greater numbers of both.
    pub fn max(self, other: Self) -> Self {
        self.with(other, |one, other| Some(one.max(other)))
    }

    /// Returns that of so many times as much. Nothing stays nothing, also without a bound for the times.
    pub fn times(self, count: Option<u64>) -> Self {
        let times = |one: Option<u64>| match one {
            Some(0) => Some(0),
            one => one?.checked_mul(count?),
        };
        Self { turns: times(self.turns), tokens: times(self.tokens), micros: times(self.micros) }
    }
}

/// A graph that runs inside another: the other calls it, directly or through further graphs (R188).
#[derive(Debug, Clone)]
pub struct InnerGraph {
    /// Its id.
    pub id: String,
    /// Its file, as messages show it.
    pub file: String,
    /// The name of its module.
    pub module: String,
    /// Whether the other graph runs inside it too, so that neither can be compiled first.
    pub returns: bool,
    /// Whether it needs nothing of the program: its own tools are all built in, and it has no reducers.
    pub builtin: bool,
    /// The capability patterns that its own calls need.
    pub needs: Vec<String>,
    /// The environment variables that it needs itself.
    pub env: Vec<String>,
}

/// A key of the state.
#[derive(Debug, Clone)]
pub struct TypedKey {
    /// Its name.
    pub name: String,
    /// The type of the values that are written to it.
    pub ty: Type,
    /// Its first value, where `config.state` gives one.
    pub initial: Option<Value>,
}

/// A tool, graph or other item that the nodes and hooks of a graph call.
#[derive(Debug, Clone)]
pub struct TypedTool {
    /// Its id; empty where it is known only at each call.
    pub id: String,
    /// The verb of the call.
    pub verb: Verb,
    /// The kind of item.
    pub item: ItemType,
    /// The executor of the call.
    pub by: Executor,
    /// Whether a contract says what it returns.
    pub typed: bool,
    /// The capability that a run needs to call it; `None` if it needs none, or if that is known only at each call.
    pub capability: Option<String>,
    /// Whether the runtime performs it although the call is the program's.
    pub builtin: bool,
    /// The command that starts it, if it is a program of its own (R184).
    pub subprocess: Option<Subprocess>,
    /// The tool of a server, if it is one.
    pub mcp: Option<McpTool>,
    /// The name of its module, if it is a graph.
    pub module: Option<String>,
    /// The author's description.
    pub description: Option<String>,
    /// Its parameters; `None` where no contract names them.
    pub params: Option<Vec<TypedField>>,
    /// The type of its result.
    pub result: Type,
    /// The rules of its contract beyond types. A graph checks its inputs itself.
    pub rules: ToolRules,
}

/// Returns the rules of a contract beyond types.
pub(crate) fn rules_of(contract: &Contract) -> ToolRules {
    let result = contract.result.as_ref().and_then(ValueSchema::beyond_types);
    ToolRules { params: contract.params.beyond_types(), result }
}

/// A function of the program that combines the writes to channels.
#[derive(Debug, Clone)]
pub struct TypedReducer {
    /// The id of its contract.
    pub id: String,
    /// The author's description.
    pub description: Option<String>,
    /// The indices of the keys whose writes it combines.
    pub keys: Vec<usize>,
    /// The type of a write.
    pub write: Type,
    /// The type of the value.
    pub value: Type,
}

/// A node of a checked graph.
#[derive(Debug)]
pub(crate) struct CheckedNode {
    pub(crate) name: String,
    /// The targets of its edges, in order, each once.
    pub(crate) next: Vec<u16>,
    pub(crate) body: NodeBody,
}

impl CheckedGraph {
    /// Returns the graph's types and names.
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Returns the file that the graph was read from.
    pub fn path(&self) -> &PathBuf {
        &self.source.path
    }

    /// Returns how many nodes the graph has.
    pub fn node_count(&self) -> usize {
        self.nodes.iter().filter(|node| node.body.does != Kind::Start).count()
    }

    /// Returns the capability patterns that a run needs, including those of the graphs inside it, each once. For an
    /// item whose id is known only at each call, the pattern is the known beginning and a star.
    pub fn capabilities(&self) -> Vec<&str> {
        let inner = self.interface.inner.iter().flat_map(|inner| &inner.needs);
        let mut all = Vec::new();
        for needed in self.needs.iter().chain(inner) {
            if !all.contains(&needed.as_str()) {
                all.push(needed.as_str());
            }
        }
        all
    }

    /// Whether its values are checked for more than their types.
    pub(crate) fn has_rules(&self) -> bool {
        let Settings { schema, signals, rules, .. } = &self.settings;
        let asks = self.nodes.iter().filter_map(|node| node.body.wait.as_ref()?.ask.as_ref());
        let of_answers = asks.filter_map(|ask| ask.schema.as_ref()).next();
        schema.is_some()
            || of_answers.is_some()
            || !rules.is_empty()
            || signals.values().any(|signal| signal.schema.is_some())
    }

    /// Returns the environment variables that must be set, including those of the graphs inside it, each once.
    pub fn environment(&self) -> Vec<&str> {
        let inner = self.interface.inner.iter().flat_map(|inner| &inner.env);
        let mut all: Vec<&str> = Vec::new();
        for name in self.env.iter().chain(inner) {
            if !all.contains(&name.as_str()) {
                all.push(name);
            }
        }
        all
    }
}

impl Interface {
    /// Returns the type of a run's output if it ends at a node; `None` if no run can end there.
    pub fn output_at(&self, node: &str) -> Option<&Type> {
        match self.exits.as_slice() {
            [] => Some(&self.output),
            [only] => Some(&only.ty),
            exits => exits.iter().find(|exit| exit.node == node).map(|exit| &exit.ty),
        }
    }

    /// Whether a run needs nothing of the program: all tools are built in, including those of the graphs inside, and there are
    /// no reducers.
    pub fn is_builtin(&self) -> bool {
        self.own_tools_are_builtin() && self.inner.iter().all(|inner| inner.builtin)
    }

    /// Whether all of its own tools are built in and it has no reducers, without those of the graphs inside.
    pub(crate) fn own_tools_are_builtin(&self) -> bool {
        self.reducers.is_empty()
            && self.tools.iter().filter(|tool| tool.by == Executor::Program).all(|tool| tool.builtin)
    }
}

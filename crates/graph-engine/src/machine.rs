//! Machines: a compiled graph with the state and the tools that it works on.
//!
//! The engine's own pure functions decide what the graph's nodes do; only the call of a tool waits for anything. A journal
//! therefore replays to the same state everywhere.
//!
//! Generated code implements [`Machine`] and [`Graph`], and so does the interpreter. A machine that is written by hand has a
//! [`CompiledGraph`] that it [loads](CompiledGraph::load) from a [`Program`], a state ([`StateFields`]) and a caller of
//! tools ([`ToolCaller`]).
//!
//! ```
//! # use graph_engine as graph_runtime;
//! use graph_runtime::machine::{CompiledGraph, Program};
//!
//! static PROGRAM: Program<'static> = Program {
//!     id: "shop/receipt",
//!     version: "1.0.0",
//!     source: "src/lib.rs",
//!     digest: "0000000000000000000000000000000000000000000000000000000000000001",
//!     signer: "0000000000000000",
//!     start: 0,
//!     settings: "{}",
//!     permissions: &[],
//!     env: &[],
//!     keys: &[],
//!     tools: &[],
//!     nodes: &[("print", r#"{"line":1,"does":"return","output":{"total":"${inputs.total}"}}"#)],
//! };
//! let graph = CompiledGraph::load(&PROGRAM)?;
//! assert_eq!(graph.topology().nodes[0].name, "print");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The package `tests/outside/machine` of the repository is a whole machine, with a tool.

use std::fmt;
use std::hash::Hash;
use std::iter::once;
use std::sync::Arc;

use graph_model::name::ItemId;
use graph_model::value::{Mismatch, Value};

use crate::failure::Failure;
use crate::graph::tables;

pub use graph_model::program::{Executor, ItemType, Key, Kind, Param, Program, Tool, Verb};
pub use graph_model::value::{AsView, View};

pub use crate::graph::{CompiledGraph, LoadError};
#[cfg(feature = "topology")]
pub use crate::graph::{
    Topology, TopologyEdge, TopologyEntry, TopologyHook, TopologyJoin, TopologyKind, TopologyNode, TopologyPolicy,
    TopologyRoute, TopologyTool, TopologyWait,
};
pub use crate::state::StateFields;
pub use crate::tool_caller::{Arguments, CallFuture, ToolCaller, unfit_parameters};
pub use graph_model::reducer::{Keep, Reducer, ReducerError};

/// A graph that can run: generated, interpreted from a checked graph, or written by hand. The engine does not distinguish
/// them.
///
/// [`CompiledGraph::topology`] has an example that draws any machine's graph. [The module](self) has one that loads a graph.
pub trait Machine: Send + Sync + 'static {
    /// Returns the graph's tables.
    fn graph(&self) -> &CompiledGraph;

    /// Makes the state of a new run from its inputs, defaults applied (R47, R48).
    ///
    /// # Errors
    ///
    /// If an input is missing or of the wrong type.
    fn open(&self, inputs: Value) -> Result<Box<dyn StateFields>, Mismatch>;

    /// Makes a tool caller, which calls tools one at a time.
    fn tool_caller(&self) -> Box<dyn ToolCaller>;

    /// Checks that a run which ends at `node` may return `output`. The compiler proves that it may. But a state that a person
    /// has changed, in an edit or a fork, may have values that no node writes. A run does not end with a result that this
    /// refuses: it fails at the node.
    ///
    /// # Errors
    ///
    /// If the value is not of the type that the graph returns there, or no run ends there.
    fn check_output(&self, node: &str, output: &Value) -> Result<(), Mismatch> {
        let _ = (node, output);
        Ok(())
    }

    /// Reads the value of a signal as a visit that receives it sees it: its defaults applied, and without fields that it does
    /// not have.
    ///
    /// # Errors
    ///
    /// If the graph has no such signal, or the value is not of its type.
    fn signal(&self, name: &str, value: Value) -> Result<Value, Mismatch> {
        drop(value);
        no_such_signal(name)
    }

    /// Reads the answer to an interrupt as its visit sees it: its defaults applied, and without fields that it does not have.
    ///
    /// # Errors
    ///
    /// If the graph has no such interrupt, or the value is not of the type of its answers.
    fn answer(&self, node: &str, value: Value) -> Result<Value, Mismatch> {
        drop(value);
        no_such_signal(node)
    }

    /// Returns the graph that the tool with that index runs, if the tool is a graph (R188).
    fn nested(&self, tool: u16) -> Option<Arc<dyn Machine>> {
        let _ = tool;
        None
    }

    /// Returns the graph with the id `id`, for a call whose id is known only when it is made; `None` if `id` is not a
    /// graph's.
    ///
    /// # Errors
    ///
    /// If there is such a graph and it cannot run.
    fn nested_called(&self, id: &ItemId) -> Result<Option<Arc<dyn Machine>>, Box<Failure>> {
        let _ = id;
        Ok(None)
    }

    /// Returns the ids of the tools that the graph, or one inside it, calls by a known id and that nothing performs. If
    /// there are any, no run is started.
    fn missing_tools(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns the ids of the reducers of the graph, and of the graphs inside it, that are functions of the program and not
    /// there. If there are any, no run is started.
    fn missing_reducers(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns the older versions of the graph, if the machine stands for them too. A method that takes a run and this
    /// machine uses the version that the run is under; new runs begin under the machine itself. All have one id, and no two of them one meaning.
    ///
    /// `Versions` of `graph-runtime` is such a machine.
    fn older(&self) -> &[Arc<dyn Machine>] {
        &[]
    }
}

/// Describes a graph and its older versions: id, version and digest of each.
pub(crate) fn shown(machine: &dyn Machine) -> String {
    let all = once(machine.graph()).chain(machine.older().iter().map(|version| version.graph()));
    all.map(|graph| tables(graph).shown()).collect::<Vec<_>>().join(" or ")
}

/// Says that a graph has no signal, or no interrupt, with that name.
///
/// # Errors
///
/// Always.
pub fn no_such_signal<T>(name: &str) -> Result<T, Mismatch> {
    Err(Mismatch::new(format!("a name of the graph, not `{name}`"), View::Null))
}

/// A machine with the Rust types of its inputs and its output.
///
/// The examples of [`Runtime`](crate::Runtime) run a graph of any type.
pub trait Graph: Machine {
    /// The inputs of a run.
    type Inputs: AsView;
    /// The output of a run.
    type Output;

    /// Reads the output of a run that ended at `node`. The value contains the secrets themselves; where the type of the
    /// output does not hide them, this does.
    ///
    /// # Errors
    ///
    /// If the value is not of the type that the graph returns there, or no run ends there.
    fn output(&self, node: &str, value: Value) -> Result<Self::Output, Mismatch>;

    /// As [`Graph::output`], of a run that is under one of the [older versions](Machine::older), by its index, or under the graph
    /// itself.
    ///
    /// # Errors
    ///
    /// As [`Graph::output`].
    fn output_of(&self, older: Option<usize>, node: &str, value: Value) -> Result<Self::Output, Mismatch> {
        let _ = older;
        self.output(node, value)
    }
}

/// The nodes of a graph as an enum, which generated code has.
pub trait NodeEnum: Copy + Eq + Hash + fmt::Debug + 'static {
    /// The id of the graph.
    const GRAPH: &'static str;
    /// Every node, in the order of the file.
    const ALL: &'static [Self];

    /// Returns the node's name in the file.
    fn name(self) -> &'static str;
}

/// A graph whose nodes are those of an enum. Generated code implements it.
///
/// ```no_run
/// # use graph_engine as graph_runtime;
/// use graph_runtime::machine::{TopologyOf, TypedGraph};
///
/// /// Asserts that a node joins the branches of another one.
/// fn assert_joins<G: TypedGraph>(graph: &G, join: G::Node, fan: G::Node) {
///     let topology: TopologyOf<G> = graph.topology();
///     let found = topology.joins().find(|(place, _)| place.node == join);
///     assert_eq!(found.and_then(|(_, join)| join.fan), Some(fan));
/// }
/// ```
pub trait TypedGraph: Machine {
    /// The nodes.
    type Node: NodeEnum;

    /// Returns the shape of the graph: nodes, routes, joins and channels.
    #[cfg(feature = "topology")]
    fn topology(&self) -> TopologyOf<Self> {
        self.graph().topology_of(|at| Self::Node::ALL[usize::from(at)])
    }
}

/// The shape of a graph of the type `G`, which names its nodes by their enum.
#[cfg(feature = "topology")]
pub type TopologyOf<G> = Topology<<G as TypedGraph>::Node>;

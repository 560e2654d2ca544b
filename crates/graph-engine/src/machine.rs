//! Machines: a compiled graph with the state and the tools that it works on.
//!
//! What the graph's nodes do is decided by pure functions of the engine's own; only the call of a tool waits for anything. So a journal
//! replays to the same state wherever it is replayed.
//!
//! Generated code implements [`Machine`] and [`Graph`], and so does the interpreter. A machine that is written by hand has a
//! [`CompiledGraph`] that it [loads](CompiledGraph::load) from a [`Program`], a state ([`StateFields`]) and a place from which tools are called
//! ([`ToolCaller`]).

use std::sync::Arc;

use graph_model::name::ItemId;
use graph_model::value::{Mismatch, Value};

use crate::failure::Failure;

pub use graph_model::program::{Executor, ItemType, Key, Kind, Param, Program, Tool, Verb};
pub use graph_model::value::{AsView, View};

pub use crate::graph::{CompiledGraph, LoadError, Topology, TopologyNode};
pub use crate::state::StateFields;
pub use crate::tool_caller::{Arguments, CallFuture, ToolCaller, unfit_parameters};

/// A graph that can run. Generated, interpreted from a checked graph, or written by hand: the engine cannot tell which.
pub trait Machine: Send + Sync + 'static {
    /// Returns the graph's tables.
    fn graph(&self) -> &CompiledGraph;

    /// Makes the state of a new run from its inputs, defaults applied (R47, R48).
    ///
    /// # Errors
    ///
    /// If an input is missing or of the wrong type.
    fn open(&self, inputs: Value) -> Result<Box<dyn StateFields>, Mismatch>;

    /// Makes a place from which tools are called, one at a time.
    fn tool_caller(&self) -> Box<dyn ToolCaller>;

    /// Returns the graph that is the tool with that index, if it is one (R188).
    fn nested(&self, tool: u16) -> Option<Arc<dyn Machine>> {
        let _ = tool;
        None
    }

    /// Returns the graph that is called `id`, for a call whose id is known only when it is made; `None` where `id` is not a graph's.
    ///
    /// # Errors
    ///
    /// If there is such a graph and it cannot run.
    fn nested_called(&self, id: &ItemId) -> Result<Option<Arc<dyn Machine>>, Box<Failure>> {
        let _ = id;
        Ok(None)
    }

    /// Returns the ids of the tools that the graph, or one inside it, calls by a known id and that nothing performs: a run is not
    /// started then.
    fn missing_tools(&self) -> Vec<String> {
        Vec::new()
    }
}

/// A machine with the Rust types of what goes in and what comes out.
pub trait Graph: Machine {
    /// What a run is started with.
    type Inputs: AsView;
    /// What a run returns.
    type Output;

    /// Reads what a run returned that ended at `node`. Secrets are in it as they are; where the type of the output does not hide
    /// them, this does.
    ///
    /// # Errors
    ///
    /// If the value is not of the type that the graph returns there, or no run ends there.
    fn output(&self, node: &str, value: Value) -> Result<Self::Output, Mismatch>;
}

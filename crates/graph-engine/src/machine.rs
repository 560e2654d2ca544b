//! Machines: a compiled graph with the state and the tools that it works on.
//!
//! What the graph's nodes do is decided by pure functions of the engine's own; only the call of a tool waits for anything. So a journal
//! replays to the same state wherever it is replayed.
//!
//! Generated code implements [`Machine`] and [`Graph`], and so does the interpreter. A machine that is written by hand has a
//! [`CompiledGraph`] that it [loads](CompiledGraph::load) from a [`Program`], a state ([`Cells`]) and a place from which tools are called
//! ([`Lane`]).

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use graph_model::name::ItemId;
use graph_model::value::{FromValue, Mismatch, Value};

pub use graph_model::program::{ItemType, Key, Kind, Param, Performer, Program, Tool, Verb};
pub use graph_model::value::{AsView, View};

use crate::call::Call;
pub use crate::engine::unfit_parameters;
use crate::error::{ActionError, Failure};
pub use crate::graph::{CompiledGraph, LoadError, Place, Topology};

/// A graph that can run. Generated, interpreted from a checked graph, or written by hand: the engine cannot tell which.
pub trait Machine: Send + Sync + 'static {
    /// Returns the graph's tables.
    fn graph(&self) -> &CompiledGraph;

    /// Makes the state of a new run from its inputs, defaults applied (R47, R48).
    ///
    /// # Errors
    ///
    /// If an input is missing or of the wrong type.
    fn open(&self, inputs: Value) -> Result<Box<dyn Cells>, Mismatch>;

    /// Makes a place from which tools are called, one at a time.
    fn lane(&self) -> Box<dyn Lane>;

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

/// The state of a run: its inputs, and one cell a key.
pub trait Cells: Send + Sync {
    /// Looks at the run's original inputs.
    fn inputs(&self) -> View<'_>;

    /// Looks at a key; null until it is set.
    fn get(&self, key: usize) -> View<'_>;

    /// Whether [`Cells::set`] takes a value for a key.
    ///
    /// # Errors
    ///
    /// If the value is not of the key's type.
    fn check(&self, key: usize, value: &Value) -> Result<(), Mismatch>;

    /// Sets a key; null unsets it.
    ///
    /// # Errors
    ///
    /// If the value is not of the key's type. The key is as it was then.
    fn set(&mut self, key: usize, value: Value) -> Result<(), Mismatch>;
}

/// A place from which tools are called, one at a time; it keeps what the last one returned.
pub trait Lane: Send + Sync {
    /// Prepares the call of the tool with that index. What it returns is in [`Lane::outcome`] once the future is done.
    ///
    /// # Errors
    ///
    /// If the arguments are not of the types that the tool takes.
    fn call<'a>(&'a mut self, tool: u16, arguments: &mut Arguments, call: &'a Call) -> Result<Calling<'a>, Mismatch>;

    /// Returns how the call of a tool surely fails before the tool is asked, where that can be told; `id` is that of a call whose id is
    /// known only when it is made. Nothing is called.
    fn refusal(&self, tool: u16, id: Option<&ItemId>, arguments: &mut Arguments) -> Option<String> {
        let _ = (tool, id, arguments);
        None
    }

    /// Looks at what the last call returned.
    fn outcome(&self) -> View<'_>;

    /// Puts back what a call returned, from a journal.
    ///
    /// # Errors
    ///
    /// If the value is not what that tool returns.
    fn restore(&mut self, tool: u16, value: Value) -> Result<(), Mismatch>;
}

/// A call that is being made.
pub type Calling<'a> = Pin<Box<dyn Future<Output = Result<(), ActionError>> + Send + 'a>>;

/// What a tool gets, in the order of its parameters.
#[derive(Debug, Default)]
pub struct Arguments {
    values: Vec<Value>,
    taken: usize,
    wrong: Option<Mismatch>,
}

impl Arguments {
    /// Adds the next argument.
    pub fn push(&mut self, value: Value) {
        self.values.push(value);
    }

    /// Looks at the arguments that are left, and lets them be changed.
    pub fn values_mut(&mut self) -> &mut [Value] {
        &mut self.values[self.taken..]
    }

    /// Takes the next argument, which is called `name`. What is wrong with it is said by [`Arguments::wrong`].
    #[inline(never)]
    pub fn take<T: FromValue>(&mut self, name: &str) -> T {
        let value = self.values.get_mut(self.taken).map(std::mem::take).unwrap_or_default();
        self.taken += 1;
        T::from_value(value).unwrap_or_else(|error| {
            self.wrong.get_or_insert_with(|| if name.is_empty() { error } else { error.inside(name) });
            T::blank()
        })
    }

    /// Takes the next argument as [`Arguments::take`] does, where any value is taken but null.
    pub fn need<T: FromValue>(&mut self, name: &str) -> T {
        if self.values.get(self.taken).is_none_or(Value::is_null) {
            self.wrong.get_or_insert_with(|| Mismatch::new("a value", View::Null).inside(name));
            self.taken += 1;
            return T::blank();
        }
        self.take(name)
    }

    /// Returns the first thing that was wrong with an argument.
    pub fn wrong(&mut self) -> Option<Mismatch> {
        self.wrong.take()
    }
}

//! Machines: a graph as pure code, with the state and the tools it works on.
//!
//! What a node does is decided by three pure functions, [`plan`](Machine::plan), [`advance`](Machine::advance) and
//! [`merge`](Machine::merge); only the call of a tool, between the first two, waits for anything. So a journal replays to the
//! same state wherever it is replayed.

use std::cell::OnceCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::SystemTime;

use graph_model::name::ItemId;
use graph_model::timestamp;
use graph_model::value::{AsView, FromValue, Mismatch, Value, View};

use crate::call::Call;
use crate::error::{ActionError, Failure, LastError};
use crate::graph::CompiledGraph;

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

    /// Decides what to do at a node. Pure.
    ///
    /// # Errors
    ///
    /// What is returned is a failure of the node.
    fn plan(&self, at: &Activation, sight: &Sight<'_>, notes: &mut Notes) -> Result<Plan, Box<Failure>> {
        self.graph().plan(at, sight, notes)
    }

    /// Decides what to call for one item of the list that a foreach goes over. Pure.
    ///
    /// # Errors
    ///
    /// What is returned is a failure of the item.
    fn plan_item(
        &self,
        at: &Activation,
        sight: &Sight<'_>,
        item: &Value,
        notes: &mut Notes,
    ) -> Result<Request, Box<Failure>> {
        self.graph().plan_item(at, sight, item, notes)
    }

    /// Computes what a node writes, into `changes`, and where it leads. Pure: on an error, nothing of it is kept.
    ///
    /// # Errors
    ///
    /// What is returned is a failure of the node.
    fn advance(
        &self,
        at: &Activation,
        sight: &Sight<'_>,
        outcome: Outcome<'_>,
        notes: &mut Notes,
        changes: &mut Vec<Change>,
    ) -> Result<Next, Box<Failure>> {
        self.graph().advance(at, sight, outcome, notes, changes)
    }

    /// Writes a change into the state. Pure; a machine with reducers combines here what several nodes of a step wrote.
    ///
    /// # Errors
    ///
    /// If the value is not of the key's type, which only a journal of another graph can bring about.
    fn merge(&self, state: &mut dyn Cells, change: Change) -> Result<(), Mismatch> {
        state.set(change.key, change.value)
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

    /// Sets a key; null unsets it.
    ///
    /// # Errors
    ///
    /// If the value is not of the key's type.
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

/// A node that is to be visited.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Activation {
    /// The node's index.
    pub node: u16,
    /// What it was activated with, where several activations of one node differ.
    pub argument: Option<Box<Value>>,
}

impl Activation {
    /// An activation without an argument.
    pub fn of(node: u16) -> Self {
        Self { node, argument: None }
    }

    /// Adds it to what is visited next. A node that several lead to is visited once, unless it is sent something each time.
    pub(crate) fn join(self, frontier: &mut Vec<Self>) {
        if self.argument.is_some() || !frontier.contains(&self) {
            frontier.push(self);
        }
    }
}

/// What to do at a node.
#[derive(Debug)]
pub enum Plan {
    /// Call a tool.
    Call(Request),
    /// Call a tool for each of these, as many at a time as `width` says.
    Each {
        /// The items, in order.
        items: Vec<Value>,
        /// How many calls are made at a time, 1 or more.
        width: usize,
    },
    /// Nothing outside: compute and go on.
    Compute,
    /// End the run.
    Finish,
}

/// A call that is to be made.
#[derive(Debug)]
pub struct Request {
    /// The tool's index.
    pub tool: u16,
    /// The item's id, where it is known only now.
    pub id: Option<ItemId>,
    /// What the tool gets.
    pub arguments: Arguments,
}

/// What came of a node's plan.
pub enum Outcome<'a> {
    /// Nothing was called.
    None,
    /// The tool returned.
    Done(View<'a>),
    /// The calls of a foreach returned; one result an item, in their order, for the node to take.
    Each(&'a mut Vec<Value>),
    /// The node failed, and the run goes on along its edges (R125).
    Failed(&'a Failure),
}

/// A key and its new value. A node writes each key once.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// The key's index.
    pub key: usize,
    /// The value; null unsets the key.
    pub value: Value,
}

/// Where a node leads.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Next {
    /// Nowhere: this way ends here.
    #[default]
    End,
    /// Nowhere: the edge with that index ends the run.
    Out(u16),
    /// To one node, along the edge with that index.
    To {
        /// The node.
        node: u16,
        /// The edge that was taken.
        edge: u16,
    },
    /// To the node that deals with failures of this one.
    Mend(u16),
    /// To several, all in the next step.
    All(Vec<Activation>),
}

impl Next {
    /// Returns the edge that was taken, by its index.
    pub fn edge(&self) -> Option<u16> {
        match self {
            Self::To { edge, .. } | Self::Out(edge) => Some(*edge),
            Self::End | Self::Mend(_) | Self::All(_) => None,
        }
    }
}

/// What a node may look at besides its tool's result.
pub struct Sight<'a> {
    /// The state as the last step left it.
    pub state: &'a dyn Cells,
    /// The last failure of a node.
    pub last_error: Option<&'a LastError>,
    /// How often the call of each node was made again at its last visit, by the nodes' names (R136).
    pub retries: &'a Retries,
    /// How often the node has been visited, this time included; 0 where no node of the graph asks for it.
    pub visit: u64,
    /// What its last visit returned.
    pub previous: Option<&'a Value>,
    /// The time of the step.
    pub now: &'a Now<'a>,
}

/// How often nodes were tried again, by their names.
pub type Retries = graph_model::value::Map<String, Value>;

/// The time of a step: read from the clock once, and only if it is asked for.
pub struct Now<'c> {
    clock: &'c (dyn Fn() -> SystemTime + Sync),
    at: OnceCell<SystemTime>,
    text: OnceCell<String>,
}

impl<'c> Now<'c> {
    /// A time that `clock` tells.
    #[inline]
    pub fn new(clock: &'c (dyn Fn() -> SystemTime + Sync)) -> Self {
        Self { clock, at: OnceCell::new(), text: OnceCell::new() }
    }

    /// A time that was told before, if it was.
    pub(crate) fn known_at(clock: &'c (dyn Fn() -> SystemTime + Sync), at: Option<SystemTime>) -> Self {
        let now = Self::new(clock);
        if let Some(at) = at {
            now.at.get_or_init(|| at);
        }
        now
    }

    /// Returns the time if it was asked for.
    #[inline]
    pub(crate) fn known(&self) -> Option<SystemTime> {
        self.at.get().copied()
    }

    /// Returns the time.
    pub fn at(&self) -> SystemTime {
        *self.at.get_or_init(self.clock)
    }

    /// Returns the time as RFC 3339 text in UTC with whole seconds (R56).
    pub fn text(&self) -> &str {
        self.text.get_or_init(|| timestamp::seconds(self.at()))
    }

    /// Returns the milliseconds since the Unix epoch (R56).
    pub fn milliseconds(&self) -> i64 {
        timestamp::unix_milliseconds(self.at())
    }
}

/// What was noticed along the way.
#[derive(Debug, Default)]
pub struct Notes {
    warnings: Vec<String>,
}

impl Notes {
    /// Notes that an expression found nothing (R68).
    pub fn resolved_to_nothing<'a>(&mut self, paths: impl IntoIterator<Item = &'a str>) {
        let paths: Vec<&str> = paths.into_iter().collect();
        self.warnings.push(format!("`${{{}}}` found nothing", paths.join(" || ")));
    }

    /// Whether nothing was noted.
    pub fn is_empty(&self) -> bool {
        self.warnings.is_empty()
    }

    /// Takes what was noted.
    pub fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }
}

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

//! The items of a tree that the actions of a graph can refer to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use graph_definition::definition::{AgentLimits, Contract, ValueSchema};
use graph_model::name::ItemId;
use graph_model::reducer::{Keep, Reducer};

use crate::graph::{Budget, Exit, InnerGraph, TypedKey};
use crate::types::Type;

/// The contracts of the tools that a graph calls, by the tool's id. A tool without a contract has no entry.
pub type Contracts = BTreeMap<ItemId, Arc<Contract>>;

/// The items of a tree that the actions of a graph can refer to.
#[derive(Debug, Default)]
pub struct Items {
    /// The contracts of tools.
    pub contracts: Contracts,
    /// The graphs that are called, by their ids.
    pub graphs: BTreeMap<ItemId, Nested>,
    /// The ids that several things have, with the names of their files.
    pub ambiguous: BTreeMap<ItemId, Vec<String>>,
    /// For ids with neither a contract nor a graph, an id that is nearly the same.
    pub similar: BTreeMap<ItemId, String>,
    /// The ids of contracts and graphs whose files have mistakes. These are reported there; no rule needs the types of such a file.
    pub broken: BTreeSet<ItemId>,
    /// The graphs that run inside, directly or through others, each once.
    pub inner: Vec<InnerGraph>,
    /// The keys of the graph itself that nodes of other graphs of the tree share with its runs.
    pub shared: BTreeSet<String>,
    /// The tools and graphs that the computed ids of the graph may name.
    pub reachable: Vec<Reachable>,
    /// The contracts of the tree that decide what the graph does and that its tables do not have, each as its id and the digest of its
    /// text: those of the tools that its computed ids may name, and those in place of built-in ones.
    pub behind: Vec<String>,
    /// How many owners of keys have each of the roles that the keys of the tree give; empty if they give none.
    pub roles: BTreeMap<String, usize>,
    /// The limits of the graph itself, if it is the one that the contract of an agent means.
    pub agent: Option<AgentLimits>,
    /// How many calls the contract allows whose graph the graph itself is, if it is that of a program.
    pub most_calls: Option<u64>,
    /// The items that calls start as tasks.
    pub tasks: BTreeMap<TaskName, TaskTarget>,
    /// Whether the graph calls the tools for threads, and the tree has agents that those can be.
    pub has_threads: bool,
    /// Whether files without a trusted signature were read too. No graph is compiled from those.
    pub are_for_review: bool,
}

/// How a call names the task that it starts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum TaskName {
    /// By the id of a graph, agent, program or tool.
    Item(ItemId),
    /// By the directive that the agent follows.
    Directive(String),
}

/// The item that a call starts as a task.
#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "a graph starts few tasks")]
pub enum TaskTarget {
    /// The tree does not say: its threads are those of the program, or the mistakes of a file hide what there is.
    Open,
    /// There is no such item, or no agent that follows the directive; with the name of one that differs by a typing error.
    Missing(Option<String>),
    /// There is one, and no task can be started from it, for this reason.
    Refused(String),
    /// It can be a task.
    Found(TaskItem),
}

/// An item that can be a task.
#[derive(Debug, Clone)]
pub struct TaskItem {
    /// Its id.
    pub id: ItemId,
    /// The file, as messages show it.
    pub file: String,
    /// The type of its inputs.
    pub inputs: Type,
    /// The schema of its inputs.
    pub schema: Option<ValueSchema>,
    /// The capability patterns that it and the graphs inside it need.
    pub needs: Vec<String>,
    /// How many levels of graphs run inside it; `None` if they form a circle.
    pub levels: Option<u32>,
    /// The limits in its contract, if it is an agent.
    pub limits: Option<AgentLimits>,
    /// The type of its answers, if it is an agent whose contract says that.
    pub answer: Option<Type>,
}

/// A tool or graph that a computed id may name.
#[derive(Debug)]
pub struct Reachable {
    /// Its id.
    pub id: ItemId,
    /// The schema of its parameters.
    pub schema: ValueSchema,
    /// Whether its contract says that a call of it needs approval.
    pub is_guarded: bool,
}

/// The keys of the state of a graph that another calls.
#[derive(Debug, Clone)]
pub enum InnerKeys {
    /// As its file has them.
    Known(Vec<InnerKey>),
    /// It has mistakes.
    Unknown,
    /// It nests its caller in turn, so that the types of neither can be inferred first.
    OfCircle,
}

/// A key of the state of a graph that another calls.
#[derive(Debug, Clone)]
pub struct InnerKey {
    /// Its name and type.
    pub key: TypedKey,
    /// How writes to it are combined, if it is a channel.
    pub reducer: Option<Reducer>,
    /// Whether its elements are put in the order of the branches.
    pub by_branch: bool,
    /// How long it has its value, if not for the rest of the run.
    pub keep: Option<Keep>,
    /// Whether a node resets it.
    pub is_reset: bool,
    /// Whether a node reads it.
    pub is_read: bool,
}

/// A graph that another calls (R188).
#[derive(Debug, Clone)]
pub struct Nested {
    /// The file, as messages show it.
    pub file: String,
    /// The name of its module.
    pub module: String,
    /// The type of its inputs.
    pub inputs: Type,
    /// The schema of its inputs, as the file has it; `None` where the file has mistakes or no schema.
    pub schema: Option<ValueSchema>,
    /// The type of its output; any value where it has mistakes or nests its caller in turn.
    pub output: Type,
    /// The nodes at which a run of it can end, each with the type of its output there; empty if they are not known.
    pub exits: Vec<Exit>,
    /// The keys of its state.
    pub keys: InnerKeys,
    /// The signals that its runs can receive, with the values of each; `None` where the file cannot be read.
    pub signals: Option<Vec<(String, ValueSchema)>>,
    /// The capability patterns that it and the graphs inside it need.
    pub needs: Vec<String>,
    /// The upper bounds of a run of it; `None` where it has mistakes or nests its caller in turn.
    pub budget: Option<Budget>,
    /// Whether a run of it, or one inside it, can wait.
    pub can_wait: bool,
    /// Whether no run of it can end, because each starts another run of it inside.
    pub is_endless: bool,
    /// Whether its file has mistakes.
    pub has_mistakes: bool,
    /// The limits in that contract.
    pub limits: Option<AgentLimits>,
    /// Whether that contract says that a call of it needs approval.
    pub is_guarded: bool,
    /// The tools that it, or a graph inside it, calls and whose calls must not be made twice: guarded ones, and those of servers that
    /// are not idempotent.
    pub once: Vec<ItemId>,
}

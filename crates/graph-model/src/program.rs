//! Programs: graphs as the compiler hands them to the runtime.
//!
//! A [`Program`] is a checked graph as plain tables of names, texts and indices. It can be a `static`, so generated code
//! is data that rustc reads in microseconds per node; the runtime resolves the names and parses the texts once, when the
//! graph is first used. The interpreter receives the form that such a program is read as: a
//! [`GraphIr`](crate::ir::GraphIr).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::condition::When;
use crate::digest::Digest;
use crate::path::{Path, PathNames, Root};
use crate::reducer::{Channels, KeptChannels};
use crate::secret::Secrets;
use crate::term::Term;
use crate::untrusted::Untrusted;

/// The key of the state that holds the last failure of a node; the engine sets it (R121).
pub const LAST_ERROR: &str = "_last_error";
/// The key of the state that counts how often hooks had each node retried; the engine sets it (R136).
pub const RETRIES: &str = "_retries";
/// The prefix of the item ids that need no capability: those of the engine's own tools (R173).
pub const INTERNAL: &str = "rye/agent/threads/internal/";
/// The tool by which a graph hands work to an agent; the engine adds facts about the run that hands it over (R178).
pub const THREAD_DIRECTIVE: &str = "rye/agent/threads/thread_directive";
/// The tool by which the graph of an agent asks its model. Its result has the agent's own type.
pub const AGENT_MODEL: &str = "rye/agent/model";
/// The tool whose answer steers the run, if a hook calls it (R152).
pub const CONTROL: &str = "rye/agent/threads/internal/control";

/// The controls of the original format that neither the compiler nor the runtime supports: they are refused, never ignored (R151).
pub const UNSUPPORTED_CONTROLS: [&str; 1] = ["skip"];

/// A checked graph.
#[derive(Debug, Clone, Copy)]
pub struct Program<'a> {
    /// The graph's id: category and file name, `workflows/test/project_stats`.
    pub id: &'a str,
    /// The version that its author gave it.
    pub version: &'a str,
    /// The file it was compiled from, relative to the package.
    pub source: &'a str,
    /// The SHA-256 that its signature covers, in hex.
    pub digest: &'a str,
    /// The fingerprint of the key that signed it.
    pub signer: &'a str,
    /// The first node.
    pub start: u16,
    /// The settings of a run: a [`Settings`] as JSON.
    pub settings: &'a str,
    /// The capability patterns that the graph declares; a run may use only those of its grants that these cover.
    pub permissions: &'a [&'a str],
    /// The environment variables that must be set (R279).
    pub env: &'a [&'a str],
    /// The keys of the state.
    pub keys: &'a [Key<'a>],
    /// The tools and items that its nodes and hooks call, each once.
    pub tools: &'a [Tool<'a>],
    /// The nodes, in the order of the file: the name, and a [`NodeBody`] as JSON. Two texts per node cost rustc a fifth as
    /// much as a struct.
    pub nodes: &'a [(&'a str, &'a str)],
}

/// A key of the state.
#[derive(Debug, Clone, Copy)]
pub struct Key<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its first value as JSON, where `config.state` gives one.
    pub initial: Option<&'a str>,
}

/// A tool or another item that nodes and hooks call.
#[derive(Debug, Clone, Copy)]
pub struct Tool<'a> {
    /// Its id: `rye/bash`. Empty if the id is a template, which is known only at each call.
    pub id: &'a str,
    /// The operation on the item.
    pub verb: Verb,
    /// The kind of the item.
    pub item: ItemType,
    /// The executor of its calls.
    pub by: Executor,
    /// Its parameters in the order in which a tool caller takes them; `None` if no contract names them: then all of them
    /// are one object.
    pub params: Option<&'a [Param<'a>]>,
    /// Whether a contract describes its result. A result that no contract describes may come in an envelope, and is
    /// unwrapped (R180).
    pub typed: bool,
    /// Whether a part of its result is of no known type, and may be nested to any depth.
    pub nests: bool,
}

/// A parameter of a tool.
#[derive(Debug, Clone, Copy)]
pub struct Param<'a> {
    /// Its name.
    pub name: &'a str,
    /// The value, as JSON, that the tool receives if nothing, or null, is given (R74).
    pub default: Option<&'a str>,
}

/// The operation of an action on its item: `primary` (R8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verb {
    /// Runs a tool or graph, or reads a directive.
    Execute,
    /// Returns an item's text, or finds items; also written `search` and `load`.
    Fetch,
    /// Signs an item.
    Sign,
}

impl Verb {
    /// Every verb with its spellings, the first of which is the one in capabilities.
    pub const TABLE: [(Self, &'static [&'static str]); 3] =
        [(Self::Execute, &["execute"]), (Self::Fetch, &["fetch", "search", "load"]), (Self::Sign, &["sign"])];

    /// Finds the verb that is written `name`.
    pub fn named(name: &str) -> Option<Self> {
        Self::TABLE.iter().find(|(_, names)| names.contains(&name)).map(|(verb, _)| *verb)
    }

    /// Returns the spelling.
    pub fn name(self) -> &'static str {
        Self::TABLE.iter().find(|(verb, _)| *verb == self).map_or("", |(_, names)| names[0])
    }
}

/// The kinds of items (R7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ItemType {
    /// A tool or a graph.
    Tool,
    /// A directive: instructions for an agent, in XML within Markdown.
    Directive,
    /// A page of knowledge.
    Knowledge,
}

impl ItemType {
    /// Every kind with its spelling.
    pub const TABLE: [(Self, &'static str); 3] =
        [(Self::Tool, "tool"), (Self::Directive, "directive"), (Self::Knowledge, "knowledge")];

    /// Finds the kind that is written `name`.
    pub fn named(name: &str) -> Option<Self> {
        Self::TABLE.iter().find(|(_, spelling)| *spelling == name).map(|(item, _)| *item)
    }

    /// Returns the spelling.
    pub fn name(self) -> &'static str {
        Self::TABLE.iter().find(|(item, _)| *item == self).map_or("", |(_, spelling)| spelling)
    }
}

/// The executor of the calls of a [`Tool`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Executor {
    /// The program that embeds the graph, or the runtime, if the program leaves the call to it.
    Program,
    /// Another graph, as a run of its own.
    Graph,
    /// The runtime, with the items of its spaces.
    Items,
}

/// The kind of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Calls the tool with that index.
    Action(u16),
    /// Calls the tool with that index for each item of a list.
    Foreach(u16),
    /// Computes its assignments and routes.
    Gate,
    /// Asks people, waits for their answer, and then computes its assignments and routes.
    Interrupt,
    /// Waits, and then computes its assignments and routes.
    Wait,
    /// Ends the run.
    Return,
    /// Begins a branch for each node of a list in `config.start`. No run visits it: its visit has the number 0.
    Start,
}

impl Kind {
    /// Returns the index of the tool that it calls, once or for each item of a list.
    pub fn tool(self) -> Option<u16> {
        match self {
            Self::Action(tool) | Self::Foreach(tool) => Some(tool),
            Self::Gate | Self::Interrupt | Self::Wait | Self::Return | Self::Start => None,
        }
    }

    /// Whether it makes a call for each item of a list.
    pub fn goes_over_list(self) -> bool {
        matches!(self, Self::Foreach(_))
    }

    /// Returns the type of node, as a file names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Action(_) => "action",
            Self::Foreach(_) => "foreach",
            Self::Gate => "gate",
            Self::Interrupt => "interrupt",
            Self::Wait => "wait",
            Self::Return => "return",
            Self::Start => "start",
        }
    }

    /// Describes in words what the node does.
    pub fn does(self) -> &'static str {
        match self {
            Self::Action(_) => "calls a tool",
            Self::Foreach(_) => "calls a tool for each item",
            Self::Gate => "computes",
            Self::Interrupt => "asks people",
            Self::Wait => "waits",
            Self::Return => "ends the run",
            Self::Start => "begins the run",
        }
    }
}

/// The settings of a run of the graph; a setting that is not given has the format's default.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// The maximum number of steps of a run (R130).
    pub max_steps: u32,
    /// The reaction when a run has taken that many steps.
    #[serde(skip_serializing_if = "is_default")]
    pub on_max_steps: OnMaxSteps,
    /// The reaction when a node without an `on_error` of its own fails.
    #[serde(skip_serializing_if = "is_default")]
    pub on_error: OnError,
    /// The reaction when a node has edges and none of their conditions holds.
    #[serde(skip_serializing_if = "is_default")]
    pub on_no_match: OnNoMatch,
    /// The maximum number of concurrent calls of a parallel foreach that does not set its own (R112).
    #[serde(skip_serializing_if = "is_ten")]
    pub max_concurrency: u32,
    /// The maximum nesting depth of graphs and threads (R177).
    #[serde(skip_serializing_if = "is_five")]
    pub depth: u32,
    /// How long a run may take, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// How long after its start it must have ended, in milliseconds, waiting included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
    /// How often a run may visit one node, in all its branches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub visits: Option<u32>,
    /// How many nodes a run and the runs inside it may visit together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<u32>,
    /// The graph's hooks, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<Hook>,
    /// The inputs that must be given, in the order of the schema (R49).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub required: Vec<String>,
    /// The schema of the inputs, if it says more than their types do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<serde_json::Value>,
    /// The places of the graph's secrets.
    #[serde(skip_serializing_if = "Secrets::is_empty")]
    pub secrets: Secrets,
    /// The signals that a run can receive, by their names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub signals: BTreeMap<String, SignalRules>,
    /// The channels: the keys of the state whose writes are combined.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub channels: Channels,
    /// The channels whose elements are put in the order of the branches when these meet.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub by_branch: BTreeSet<String>,
    /// The channels that do not have their values for the rest of the run.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub keep: KeptChannels,
    /// The places where a run can begin, besides the start, by their names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub entries: BTreeMap<String, EntryPoint>,
    /// Whether the author of a caller vouches for inputs: some are sinks, or are guarded. So nobody else may choose them, as the caller of
    /// a task does.
    #[serde(skip_serializing_if = "is_default")]
    pub trusted_inputs: bool,
    /// The SHA-256 of the contracts of the tools whose results are cached, in hex, by the tools' indices. With another
    /// contract, a tool counts as another tool.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub contracts: BTreeMap<u16, String>,
    /// The rules of the contracts of tools beyond types, by the tools' indices.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub rules: BTreeMap<u16, ToolRules>,
    /// The digest of the graph's meaning, which the compiler computes: runs continue under another text of the graph that has the
    /// same. `None` in a program that was written by hand, whose runs continue under the digest of its text only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meaning: Option<Digest>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_steps: 100,
            on_max_steps: OnMaxSteps::default(),
            on_error: OnError::default(),
            on_no_match: OnNoMatch::default(),
            max_concurrency: 10,
            depth: 5,
            timeout_ms: None,
            deadline_ms: None,
            visits: None,
            steps: None,
            hooks: Vec::new(),
            required: Vec::new(),
            schema: None,
            secrets: Secrets::default(),
            signals: BTreeMap::new(),
            channels: BTreeMap::new(),
            by_branch: BTreeSet::new(),
            keep: BTreeMap::new(),
            entries: BTreeMap::new(),
            trusted_inputs: false,
            contracts: BTreeMap::new(),
            rules: BTreeMap::new(),
            meaning: None,
        }
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn is_ten(number: &u32) -> bool {
    *number == 10
}

fn is_five(number: &u32) -> bool {
    *number == 5
}

/// The reaction when a node without an `on_error` of its own fails (R123, R125).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnError {
    /// The run ends with the error.
    #[default]
    Fail,
    /// The error is recorded, `assign` is skipped, and the node's edges are followed.
    Continue,
}

/// The reaction when a run has taken all the steps that it may take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnMaxSteps {
    /// The run ends with an error (R130).
    #[default]
    Fail,
    /// The run ends as if the last node had led nowhere.
    ReturnLast,
    /// The same, and its result says so.
    ReturnWithFlag,
}

/// The reaction when a node has edges and none of their conditions holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnNoMatch {
    /// The run ends, as at a node without edges (R92).
    #[default]
    Return,
    /// The node fails, with an error that lists the edges.
    Fail,
}

/// A place where a run can begin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EntryPoint {
    /// The node.
    pub node: u16,
    /// The branches around the node, the outermost first. In a run that begins here, each is the only one of its fan-out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub branches: Vec<EntryBranch>,
}

/// A branch in which a run can begin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EntryBranch {
    /// The node that fans out.
    pub fan: u16,
    /// The partial join that the branch is behind, if it is behind one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind: Option<u16>,
    /// The input that is the element of the branch, if it belongs to a list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub element: Option<Path>,
}

/// The reaction when a node of a branch fails, and neither the node nor the graph handles that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnBranchError {
    /// The run ends with the failure.
    Stop,
    /// The run ends with the failure once the other branches of the fan-out are done.
    Finish,
    /// The branch ends, and the failure is one of the run's errors.
    Collect,
}

/// A hook: a reaction to an event of a run (R143).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "WrittenHook")]
pub struct Hook {
    /// Its name, for messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The event that triggers it.
    pub event: Event,
    /// The condition on the event's data; `None` always holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub condition: Option<When>,
    /// The index of the tool that it calls. `None` if the parameters themselves steer the run: `action: { retry: true }`,
    /// or the tool [`CONTROL`] (R137).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<u16>,
    /// The tool's parameters, or how the run is steered: `action` is `retry`, `fail`, `abort` or `continue`, with
    /// `max_retries`, `error` and `additional_steps` beside it.
    #[serde(skip_serializing_if = "Term::is_null")]
    pub params: Term,
    /// The untrusted parts of the parameters, if the tool may start programs.
    #[serde(skip_serializing_if = "Untrusted::is_nothing")]
    pub untrusted: Untrusted,
}

/// A hook before its paths are read: the names that they can begin with depend on the event, and some hide namespaces.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenHook {
    #[serde(default)]
    id: Option<String>,
    event: Event,
    #[serde(default)]
    condition: Option<serde_json::Value>,
    #[serde(default)]
    tool: Option<u16>,
    #[serde(default)]
    params: serde_json::Value,
    #[serde(default)]
    untrusted: Untrusted,
}

impl TryFrom<WrittenHook> for Hook {
    type Error = String;

    fn try_from(hook: WrittenHook) -> Result<Self, String> {
        let WrittenHook { id, event, condition, tool, params, untrusted } = hook;
        let names = PathNames::Known(event.names());
        let condition = condition.map(|condition| When::read(condition, names)).transpose()?;
        let params = Term::read(&params, names).map_err(|error| error.to_string())?;
        Ok(Self { id, event, condition, tool, params, untrusted })
    }
}

/// The events that hooks receive (R146).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// A run began.
    GraphStarted,
    /// A node is done.
    AfterStep,
    /// A node failed.
    Error,
    /// The run has reached a limit.
    Limit,
    /// The run ended.
    GraphCompleted,
}

impl Event {
    /// Every event: its spelling, and the names that its hooks can read besides `inputs`, `_now` and `_timestamp` (R147).
    pub const TABLE: [(Self, &'static str, &'static [&'static str]); 5] = [
        (Self::GraphStarted, "graph_started", &["graph_id", "state"]),
        (Self::AfterStep, "after_step", &["graph_id", "node", "next_node", "state", "step_count", "result"]),
        (Self::Error, "error", &["graph_id", "error", "classification", "node", "state", "step_count", "attempt"]),
        (
            Self::Limit,
            "limit",
            &["graph_id", "limit_code", "current_value", "current_max", "node", "state", "step_count"],
        ),
        (Self::GraphCompleted, "graph_completed", &["graph_id", "state", "steps", "status", "error"]),
    ];

    /// Finds the event that is written `name`.
    pub fn named(name: &str) -> Option<Self> {
        Self::TABLE.iter().find(|(_, spelling, _)| *spelling == name).map(|(event, ..)| *event)
    }

    /// Returns the spelling.
    pub fn name(self) -> &'static str {
        Self::TABLE.iter().find(|(event, ..)| *event == self).map_or("", |(_, spelling, _)| spelling)
    }

    /// Returns the names that its hooks can read.
    pub fn names(self) -> &'static [&'static str] {
        Self::TABLE.iter().find(|(event, ..)| *event == self).map_or(&[], |(.., names)| names)
    }
}

/// The limits that a run can reach, as the hooks of [`Event::Limit`] see them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitCode {
    /// The run has taken all the steps that `max_steps` allows.
    MaxSteps,
    /// A node was visited as often as `limits.visits` allows.
    Visits,
    /// The run, the runs inside it or those around it have taken all the steps that `limits.steps` allows.
    Steps,
}

impl LimitCode {
    /// Every limit with its spelling.
    pub const TABLE: [(Self, &'static str); 3] =
        [(Self::MaxSteps, "max_steps_exceeded"), (Self::Visits, "visits_exceeded"), (Self::Steps, "steps_exceeded")];

    /// Returns the spelling.
    pub fn name(self) -> &'static str {
        Self::TABLE.iter().find(|(code, _)| *code == self).map_or("", |(_, spelling)| spelling)
    }
}

/// The contents of a node. Values, templates and conditions are written as in the file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeBody {
    /// The line of its name in the file, from 1.
    pub line: u32,
    /// Its kind.
    pub does: Kind,
    /// The item's id, where it is a template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<Term>,
    /// An action's parameters: an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub params: Option<Term>,
    /// The list of a foreach, and how its calls are made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub each: Option<Each>,
    /// The wait that comes before it computes, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<Wait>,
    /// The assignments in order: key and value.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub assign: IndexMap<String, Term>,
    /// The channels that get their first values again before the assignments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reset: Vec<String>,
    /// The signals that the run of its graph shares with this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub share_signals: Vec<String>,
    /// The keys that the run of its graph shares with this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub share: Vec<String>,
    /// Where it leads. Without edges, the run ends here.
    #[serde(default, skip_serializing_if = "Route::is_empty")]
    pub next: Route,
    /// How it waits for branches; `None` if it waits for nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub join: Option<Join>,
    /// The node that a failure of this one leads to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_error: Option<u16>,
    /// A return node's output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Term>,
    /// Whether a return node cancels the branches that are active when a run comes to it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cancels: bool,
    /// How a failed call is retried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// How long a call may take, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// The limits of the runs that its calls begin.
    #[serde(default, skip_serializing_if = "is_default")]
    pub limits: CallLimits,
    /// Where an agent is to execute the call: the `remote` of the node, which the tool receives (R11).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<String>,
    /// Whether the node sees its own last result: `visit.previous`.
    #[serde(default = "yes", skip_serializing_if = "Clone::clone")]
    pub feedback: bool,
    /// Whether the results of its calls are cached, if the program has a cache (R295).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cached: bool,
    /// The environment variables that it is the first to require; messages name it with them (R280).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// The untrusted parts of the parameters, if the tool may start programs.
    #[serde(default, skip_serializing_if = "Untrusted::is_nothing")]
    pub untrusted: Untrusted,
    /// The facts that the compiler knows about it. `None` in a program that was written by hand: the runtime then derives them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub facts: Option<NodeFacts>,
}

impl NodeBody {
    /// Calls `visit` with each path that the node reads before its route.
    pub fn paths<'b>(&'b self, visit: &mut impl FnMut(&'b Path)) {
        let own = [&self.item, &self.params, &self.output].into_iter().flatten();
        let over = self.each.as_ref().map(|each| &each.over);
        let wait = self.wait.iter().flat_map(|wait| wait.until.iter().chain(wait.payload()));
        own.chain(over).chain(wait).chain(self.assign.values()).for_each(|term| term.paths(visit));
    }
}

/// The limits of the runs that the calls of a node begin.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CallLimits {
    /// How many levels of graphs and threads may be nested below the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depth: Option<u32>,
    /// How many nodes all runs that a visit begins, and those inside them, may visit together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<u32>,
    /// How often the agent that the node calls may ask its model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns: Option<u32>,
    /// How many tokens all turns of that agent may take together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// How much they may cost together, in millionths of a US dollar.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub micros: Option<u64>,
}

impl CallLimits {
    /// Returns how many levels may be nested below the node, where its run may nest as many as `depth`.
    pub fn depth_within(self, depth: u32) -> u32 {
        self.depth.map_or(depth, |own| own.min(depth))
    }
}

/// Facts about a node that follow from its contents, so that a run need not derive them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NodeFacts {
    /// Whether it reads the number of its visits, or the result of its last one.
    #[serde(skip_serializing_if = "is_default")]
    pub visits: bool,
    /// Whether it reads the result of its last visit.
    #[serde(skip_serializing_if = "is_default")]
    pub previous: bool,
    /// Whether it reads the time.
    #[serde(skip_serializing_if = "is_default")]
    pub time: bool,
    /// Whether a failure of its call can lead along its edges, and their conditions read it.
    #[serde(skip_serializing_if = "is_default")]
    pub failure: bool,
    /// Whether it does no more than call a tool of the program once, compute, and follow the first edge whose condition holds.
    #[serde(skip_serializing_if = "is_default")]
    pub fast: bool,
}

impl NodeFacts {
    /// Derives the facts of a node. `answers` returns whether the program answers a tool's calls, without an envelope
    /// ([`ToolIr::answers`](crate::ir::ToolIr::answers)); `on_error` is the graph's reaction when a node fails.
    pub fn of(body: &NodeBody, answers: impl Fn(u16) -> bool, on_error: OnError) -> Self {
        let mut facts = Self::default();
        body.paths(&mut |path| facts.add(path, body.feedback));
        let is_suppressed =
            on_error == OnError::Continue && body.on_error.is_none() && matches!(body.does, Kind::Action(_));
        body.next.paths(&mut |path| {
            facts.add(path, body.feedback);
            facts.failure |= is_suppressed && path.root == Root::Result;
        });
        let is_plain = match body.does {
            Kind::Gate => true,
            Kind::Action(tool) => answers(tool),
            Kind::Foreach(_) | Kind::Interrupt | Kind::Wait | Kind::Return | Kind::Start => false,
        };
        facts.fast = is_plain
            && !facts.visits
            && matches!(body.next, Route::First(_))
            && body.join.is_none()
            && body.timeout_ms.is_none()
            && body.remote.is_none()
            && !body.cached
            && body.wait.is_none();
        facts
    }

    fn add(&mut self, path: &Path, feedback: bool) {
        match path.root {
            Root::Visit => {
                let part = path.segments.first().map(String::as_str);
                self.visits |= part != Some("branch");
                self.previous |= feedback && part == Some("previous");
            }
            Root::Now | Root::Timestamp => self.time = true,
            Root::State | Root::Inputs | Root::Result | Root::Local => {}
        }
    }

    /// Whether a run that relies on these facts does everything that one with `others` does: it forgets nothing that a
    /// node reads, and skips nothing.
    pub fn cover(self, others: Self) -> bool {
        self.visits >= others.visits
            && self.previous >= others.previous
            && self.time >= others.time
            && self.failure >= others.failure
            && self.fast <= others.fast
    }
}

fn yes() -> bool {
    true
}

/// How a foreach goes over its list (R105).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Each {
    /// The list.
    pub over: Term,
    /// The name of an item in templates.
    #[serde(rename = "as")]
    pub name: String,
    /// The key of the state that takes the results, in the order of the items.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collect: Option<String>,
    /// The maximum number of concurrent calls: 1 for one after the other, `None` for the maximum of the settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub width: Option<u32>,
}

/// The wait of a node, or that of an action whose tool asks people.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Wait {
    /// The time until which it waits: a date and a time in RFC 3339, with an offset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Term>,
    /// How long it waits at most, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// The names of the signals of which the first ends it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub signals: Vec<String>,
    /// The index of the node that follows when the time has come without one of these signals.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_timeout: Option<u16>,
    /// Its question, if it is an interrupt or one of a tool, which waits for the answer instead of signals.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ask: Option<Ask>,
}

impl Wait {
    /// Returns the value that people are shown, if the node computes it.
    pub fn payload(&self) -> Option<&Term> {
        self.ask.as_ref()?.payload.as_ref()
    }
}

/// The question of an interrupt, or of the tool of an action.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ask {
    /// The value that people are shown; `None` if the tool that asks gives it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Term>,
    /// The schema of the answer, if it says more than the type does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<serde_json::Value>,
    /// The role that whoever answers has; `None` for any trusted key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// How many keys of different owners sign the answer, at least 1; the greatest number if that depends on the answer.
    pub count: u32,
    /// The numbers for the words that an answer can have, if they differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_word: Option<CountByWord>,
}

/// How many people sign an answer, by a word in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CountByWord {
    /// The field of the answer that has the word; `None` if the answer is the word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// The numbers, each at least 1.
    pub words: BTreeMap<String, u32>,
}

/// A signal that a run can receive.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SignalRules {
    /// The schema of its value, if it says more than the type does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<serde_json::Value>,
}

/// The rules of a tool's contract beyond types.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ToolRules {
    /// The schema of its parameters, if it says more than their types do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub params: Option<serde_json::Value>,
    /// The schema of its result, if it says more than the type does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<serde_json::Value>,
}

/// How a failed call is retried, with the same idempotency key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Retry {
    /// The maximum number of attempts in all.
    pub attempts: u32,
    /// The first pause, in milliseconds.
    pub delay_ms: u64,
    /// The factor by which each pause is longer than the one before.
    pub factor: f64,
    /// The longest pause, in milliseconds.
    pub max_delay_ms: u64,
    /// The fraction by which a pause may be shorter, at random: 0 to 1.
    pub jitter: f64,
    /// The categories of failures after which the call is retried.
    pub on: Vec<String>,
}

impl Default for Retry {
    fn default() -> Self {
        let on = ["transient", "rate_limited"].map(str::to_owned).to_vec();
        Self { attempts: 3, delay_ms: 1000, factor: 2.0, max_delay_ms: 30_000, jitter: 0.0, on }
    }
}

/// The maximum number of branches that a visit begins.
pub const MOST_BRANCHES: u32 = 1 << 20;

/// Where a node leads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum Route {
    /// Along the first of these edges whose condition holds (R89).
    First(Vec<Edge>),
    /// Along every edge whose condition holds. Each edge begins a branch, and all begin in the next step.
    All {
        /// The edges in order.
        all: Vec<Edge>,
        /// The maximum number of concurrent calls of the branches; `None` for the maximum of the settings.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        width: Option<u32>,
        /// The reaction when a node of a branch fails and nothing else handles that.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        on_branch_error: Option<OnBranchError>,
    },
    /// To one node, once for each element of a list. Each element begins a branch, and all begin in the next step.
    Each {
        /// The list.
        over: Term,
        /// The name of the element in templates and conditions of the branch.
        #[serde(rename = "as")]
        name: String,
        /// The name of the target.
        to: String,
        /// The maximum number of concurrent calls of the branches; `None` for the maximum of the settings.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        width: Option<u32>,
        /// The maximum number of elements of the list. The node fails if it has more.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        most: Option<u32>,
        /// The reaction when a node of a branch fails and nothing else handles that.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        on_branch_error: Option<OnBranchError>,
    },
    /// To the node that is named for a value.
    By {
        /// The path of the value: a text, a boolean or null.
        by: Path,
        /// The name of the target for each word that the value can be, in order; `None` ends the run or the branch.
        /// `true`, `false` and `null` are written as words.
        to: IndexMap<String, Option<String>>,
    },
}

impl Default for Route {
    fn default() -> Self {
        Self::First(Vec::new())
    }
}

impl Route {
    /// Returns the edges in order. A route over a list is one edge; a route by values is one edge per value, with the
    /// value as its description.
    pub fn into_edges(self) -> Vec<Edge> {
        match self {
            Self::First(edges) | Self::All { all: edges, .. } => edges,
            Self::Each { to, .. } => vec![Edge { to: Some(to), when: None, description: None }],
            Self::By { to, .. } => {
                to.into_iter().map(|(word, to)| Edge { to, when: None, description: Some(word) }).collect()
            }
        }
    }

    /// Calls `visit` with each path that it reads.
    pub fn paths<'r>(&'r self, visit: &mut impl FnMut(&'r Path)) {
        match self {
            Self::First(edges) | Self::All { all: edges, .. } => {
                let conditions = edges.iter().filter_map(|edge| edge.when.as_ref());
                conditions.for_each(|when| when.condition().tests(&mut |test| visit(&test.path)));
            }
            Self::Each { over, .. } => over.paths(visit),
            Self::By { by, .. } => visit(by),
        }
    }

    /// Whether it leads nowhere.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::First(edges) | Self::All { all: edges, .. } => edges.is_empty(),
            Self::By { to, .. } => to.is_empty(),
            Self::Each { .. } => false,
        }
    }
}

/// How a node waits for the branches of a fan-out. It is visited once per visit of the fan-out, when no further branch
/// can reach it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Join {
    /// The nodes whose edges lead here.
    pub of: Vec<u16>,
    /// The node whose fan-out it joins: one that leads along all of its edges, or to a node for each element. Every
    /// join of a program has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fan: Option<u16>,
    /// Whether every branch of the fan-out reaches it or ends before. Such a join is visited even if no branch arrives.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub closes: bool,
    /// How many branches it waits for, if not for all. Only a join that closes its fan-out has a quorum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quorum: Option<Quorum>,
}

/// How many branches a join waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quorum {
    /// The number of branches, at least 1.
    pub need: u32,
    /// The outcome of the other branches when the quorum is decided.
    #[serde(default, skip_serializing_if = "is_default")]
    pub rest: Rest,
    /// The node that is visited instead of the join as soon as fewer branches can arrive. Every quorum that can fall short has
    /// one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fewer: Option<u16>,
}

/// The outcome of the branches that a quorum does not need.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rest {
    /// They end at once, and their calls in progress are dropped.
    #[default]
    Cancel,
    /// They run on to the join, beside the nodes behind it.
    Finish,
}

/// An edge in a [`NodeBody`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edge {
    /// The target's name; `None` ends the run (R91).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// The condition; `None` always holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<When>,
    /// Its purpose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

impl fmt::Display for Edge {
    /// Writes where the edge leads, and its description; without one, its condition.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.to {
            Some(to) => write!(f, "`{to}`")?,
            None => f.write_str("the end")?,
        }
        match (&self.description, &self.when) {
            (Some(description), _) => write!(f, " ({description})"),
            (None, Some(when)) => write!(f, " when {when}"),
            (None, None) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Route, serde_json::Error> {
        serde_json::from_str(text)
    }

    #[test]
    fn a_route_is_written_as_it_is_read() {
        for text in [
            r#"[]"#,
            r#"[{"to":"a","when":{"path":"state.x","value":1}},{}]"#,
            r#"{"all":[{"to":"a"},{"to":"b"}]}"#,
            r#"{"over":"${state.parts}","as":"part","to":"review","width":8,"most":500}"#,
            r#"{"over":[1,2],"as":"part","to":"review"}"#,
            r#"{"by":"result.tool","to":{"search":"search","none":null,"calculator":"calculate"}}"#,
        ] {
            assert_eq!(serde_json::to_string(&read(text).unwrap()).unwrap(), text);
        }
    }

    #[test]
    fn a_route_of_two_forms_is_refused() {
        for text in [
            r#"{}"#,
            r#"{"all":[],"over":[],"as":"part","to":"a"}"#,
            r#"{"over":[],"as":"part","to":"a","by":"result.tool"}"#,
            r#"{"by":"result.tool","to":{"a":"a"},"most":1}"#,
            r#"{"over":[],"as":"part"}"#,
            r#"{"by":"result.tool","to":"a"}"#,
            r#"{"by":"result..tool","to":{"a":"a"}}"#,
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn every_form_has_its_edges() {
        let shown = |text: &str| {
            let edges = read(text).unwrap().into_edges();
            edges.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
        };
        assert_eq!(shown(r#"{"all":[{"to":"a"},{}]}"#), "`a`, the end");
        assert_eq!(shown(r#"{"over":[],"as":"part","to":"a"}"#), "`a`");
        assert_eq!(shown(r#"{"by":"result.tool","to":{"x":"a","y":null}}"#), "`a` (x), the end (y)");
        assert!(read("[]").unwrap().is_empty() && !read(r#"{"over":[],"as":"part","to":"a"}"#).unwrap().is_empty());
    }

    #[test]
    fn a_hook_reads_the_names_of_its_event() {
        let text = r#"{"event":"after_step","condition":{"path":"result.n","op":"gt","value":1},"tool":0,"params":{"to":"${node} ${state.a}","now":"${_now}"}}"#;
        let hook: Hook = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&hook).unwrap(), text);
        let mut roots = Vec::new();
        hook.params.paths(&mut |path| roots.push(path.root));
        assert_eq!(roots, [Root::Local, Root::Local, Root::Now]);
        assert!(serde_json::from_str::<Hook>(r#"{"event":"after_step","params":{"a":"${attempt}"}}"#).is_err());
    }

    fn facts(body: &str) -> NodeFacts {
        let body: NodeBody = serde_json::from_str(body).unwrap();
        NodeFacts::of(&body, |tool| tool == 0, OnError::Continue)
    }

    #[test]
    fn the_facts_of_a_node_are_those_of_its_references() {
        let fast = NodeFacts { fast: true, ..NodeFacts::default() };
        let visits = NodeFacts { visits: true, ..NodeFacts::default() };
        for (body, expected) in [
            (r#"{"line":1,"does":"gate"}"#, fast),
            (r#"{"line":1,"does":{"action":0},"params":{"a":"${state.a}"}}"#, fast),
            (r#"{"line":1,"does":{"action":1}}"#, NodeFacts::default()),
            (r#"{"line":1,"does":{"action":0},"timeout_ms":5}"#, NodeFacts::default()),
            (r#"{"line":1,"does":"gate","next":{"all":[]}}"#, NodeFacts::default()),
            (
                r#"{"line":1,"does":"return","output":["${_timestamp}"]}"#,
                NodeFacts { time: true, ..NodeFacts::default() },
            ),
            (r#"{"line":1,"does":"gate","assign":{"a":"at ${_now}"}}"#, NodeFacts { time: true, ..fast }),
            (r#"{"line":1,"does":"gate","next":[{"when":{"not":{"path":"visit.number","value":3}}}]}"#, visits),
            (
                r#"{"line":1,"does":{"action":0},"item":"a/${visit.previous.x}"}"#,
                NodeFacts { previous: true, ..visits },
            ),
            (r#"{"line":1,"does":{"action":0},"params":{"a":"${visit.previous}"},"feedback":false}"#, visits),
            (
                r#"{"line":1,"does":{"action":0},"next":[{"when":{"path":"result.status","value":"error"}}]}"#,
                NodeFacts { failure: true, ..fast },
            ),
            (r#"{"line":1,"does":{"action":0},"on_error":2,"next":[{"when":{"path":"result.x","value":1}}]}"#, fast),
        ] {
            assert_eq!(facts(body), expected, "{body}");
        }
    }

    #[test]
    fn facts_that_promise_too_much_do_not_cover_others() {
        let none = NodeFacts::default();
        let visits = NodeFacts { visits: true, ..none };
        let fast = NodeFacts { fast: true, ..none };
        assert!(visits.cover(none) && !none.cover(visits));
        assert!(none.cover(fast) && !fast.cover(none));
        assert!(fast.cover(fast) && !fast.cover(visits));
    }
}

//! Nodes and edges.

use graph_model::condition::Condition;
use graph_model::name::{NodeName, StateKey};
use graph_model::path::Path;
use graph_model::program::{Kind, MOST_BRANCHES, OnBranchError, Rest};
use graph_model::value::Value;
use graph_signing::is_role;

use super::action::{self, CallDefinition};
use super::channel;
use super::condition::{self, PathField, TestDefinition};
use super::conduct::{self, Conduct};
use super::duration;
use super::env::RequiredEnv;
use super::reader::{DefinitionReader, Fields, Spanned};
use super::schema::{self, SchemaOwner, ValueSchema};
use super::template::{self, NamesInScope, TermDefinition};
use crate::diagnostic::{SourcePlace, code};
use crate::source::Span;
use crate::tree::{TreeKey, TreeNode, YamlTree};

/// A node as its author wrote it.
#[derive(Debug)]
pub struct NodeDefinition {
    /// Its name.
    pub name: Spanned<NodeName>,
    /// Its kind, with the fields of that kind.
    pub kind: NodeKind,
    /// The nodes whose branches it waits for; empty if it waits for nothing.
    pub waits_for: Vec<Spanned<NodeName>>,
    /// How many branches it waits for; `None` if it waits for all.
    pub quorum: Option<QuorumDefinition>,
}

/// How many branches a node waits for.
#[derive(Debug)]
pub struct QuorumDefinition {
    /// The number of branches, at least 1.
    pub need: Spanned<u32>,
    /// The outcome of the other branches.
    pub rest: Rest,
    /// The node that is visited instead if fewer branches can arrive.
    pub fewer: Option<Spanned<NodeName>>,
}

/// The kind of a node; each kind has its own fields.
#[derive(Debug)]
pub enum NodeKind {
    /// Makes a call, assigns, routes.
    Action(Action),
    /// Makes a call for each item of a list, routes.
    Foreach(ForeachDefinition),
    /// Assigns and routes.
    Gate(GateDefinition),
    /// Waits, assigns and routes.
    Wait(WaitDefinition),
    /// Ends the run.
    Return(Return),
    /// Begins the run in several nodes. No run visits it.
    Start(RouteDefinition),
}

/// A node that makes a call.
#[derive(Debug)]
pub struct Action {
    /// The call.
    pub call: CallDefinition,
    /// How the call is made.
    pub conduct: Conduct,
    /// The questions that the tool may ask people before it is done.
    pub interrupts: Option<Box<InterruptsDefinition>>,
    /// The assignments to the state when the call has returned.
    pub assign: Vec<Assignment>,
    /// The channels that get their first values again before the assignments.
    pub reset: Vec<Spanned<StateKey>>,
    /// The keys and signals that the run of its graph shares with this one.
    pub share: ShareDefinition,
    /// Where the run continues.
    pub next: RouteDefinition,
    /// Where it continues when the node fails.
    pub on_error: Option<Spanned<NodeName>>,
}

/// The keys and signals that the run of a node's graph shares with that of this one.
#[derive(Debug, Default)]
pub struct ShareDefinition {
    /// Keys of the state.
    pub keys: Vec<Spanned<StateKey>>,
    /// Signals.
    pub signals: Vec<Spanned<String>>,
}

/// A node that makes a call for each item of a list (R105).
#[derive(Debug)]
pub struct ForeachDefinition {
    /// The list.
    pub over: TermDefinition,
    /// The name of an item in the call's templates.
    pub name: Spanned<String>,
    /// The call for each item.
    pub call: CallDefinition,
    /// The key of the state that takes the results.
    pub collect: Option<Spanned<StateKey>>,
    /// The maximum number of concurrent calls; `None` for the graph's own maximum.
    pub width: Option<u32>,
    /// How each call is made.
    pub conduct: Conduct,
    /// Where the run continues.
    pub next: RouteDefinition,
    /// Where it continues when an item fails.
    pub on_error: Option<Spanned<NodeName>>,
}

/// A node that computes and routes.
#[derive(Debug)]
pub struct GateDefinition {
    /// The assignments to the state.
    pub assign: Vec<Assignment>,
    /// The channels that get their first values again before the assignments.
    pub reset: Vec<Spanned<StateKey>>,
    /// Where the run continues.
    pub next: RouteDefinition,
}

/// A node that waits, or that asks people and waits for their answer.
#[derive(Debug)]
pub struct WaitDefinition {
    /// Its question, if it is an interrupt.
    pub ask: Option<AskDefinition>,
    /// The time until which it waits.
    pub until: Option<TermDefinition>,
    /// How long it waits at most, in milliseconds.
    pub timeout_ms: Option<u64>,
    /// Whether the file gives it a time, also one that could not be read.
    pub has_time: bool,
    /// Whether the file names signals for it, also ones that could not be read.
    pub listens: bool,
    /// The signals of which the first ends it.
    pub signals: Vec<Spanned<String>>,
    /// Where the run continues when the time has come without a signal.
    pub on_timeout: Option<Spanned<NodeName>>,
    /// The assignments to the state when it has waited.
    pub assign: Vec<Assignment>,
    /// The channels that get their first values again before the assignments.
    pub reset: Vec<Spanned<StateKey>>,
    /// Where the run continues.
    pub next: RouteDefinition,
    /// Where it continues when the node fails.
    pub on_error: Option<Spanned<NodeName>>,
}

/// A node that ends the run.
#[derive(Debug)]
pub struct Return {
    /// The result of the run; `None` if that is its state.
    pub output: Option<TermDefinition>,
    /// Where the file says that the branches that are active then are cancelled.
    pub cancels: Option<Span>,
}

/// A key and the value that is written to it.
#[derive(Debug)]
pub struct Assignment {
    /// The key of the state.
    pub key: Spanned<StateKey>,
    /// The value.
    pub value: TermDefinition,
}

/// Where a node leads.
#[derive(Debug)]
pub enum RouteDefinition {
    /// Nowhere: the run ends (R89).
    End,
    /// To one node, always.
    To(Spanned<NodeName>),
    /// To the target of the first edge whose condition holds; nowhere if no condition holds.
    First(EdgeList),
    /// To the target of every edge whose condition holds. Each begins a branch.
    All(EdgeList),
    /// To one node for each element of a list. Each begins a branch.
    Each(EachDefinition),
    /// To the node that is named for a value.
    By(ByDefinition),
}

/// A route to one node for each element of a list.
#[derive(Debug)]
pub struct EachDefinition {
    /// The list.
    pub over: TermDefinition,
    /// The name of an element in the branch.
    pub name: Spanned<String>,
    /// The target.
    pub to: Spanned<NodeName>,
    /// The maximum number of concurrent calls of the branches; `None` for the graph's own maximum.
    pub width: Option<u32>,
    /// The maximum number of elements of the list.
    pub most: Option<u32>,
    /// The reaction to failures in the branches.
    pub on_branch_error: Option<OnBranchError>,
}

/// A route by a value.
#[derive(Debug)]
pub struct ByDefinition {
    /// The path of the value.
    pub by: Spanned<Path>,
    /// The target for each word that the value can be; without one the run or the branch ends.
    pub to: Vec<(Spanned<String>, Option<Spanned<NodeName>>)>,
}

/// Edges, tried in order.
#[derive(Debug)]
pub struct EdgeList {
    /// The place of the list in the file.
    pub span: Span,
    /// The edges.
    pub edges: Vec<EdgeDefinition>,
    /// The maximum number of concurrent calls of the branches, if the edges begin branches.
    pub width: Option<u32>,
    /// The reaction to failures in the branches, if the edges begin branches.
    pub on_branch_error: Option<OnBranchError>,
}

/// An edge.
#[derive(Debug)]
pub struct EdgeDefinition {
    /// Its place in the file.
    pub span: Span,
    /// The target; without one the run ends (R91).
    pub to: Option<Spanned<NodeName>>,
    /// The condition.
    pub when: Condition<TestDefinition>,
    /// The condition as it was written, for the runtime to read.
    pub written: Option<Value>,
    /// Its purpose.
    pub description: Option<String>,
}

/// The questions that the tool of an action may ask.
#[derive(Debug)]
pub struct InterruptsDefinition {
    /// The place of the field in the file.
    pub span: Span,
    /// Its questions, of which each has a payload from the tool.
    pub ask: AskDefinition,
    /// How long each waits for its answer, in milliseconds.
    pub timeout_ms: Option<u64>,
    /// Whether the file gives it a time, also one that could not be read.
    pub has_time: bool,
    /// Where the run continues when the time has come without an answer. The tool is not called again.
    pub on_timeout: Option<Spanned<NodeName>>,
}

/// The question of an interrupt.
#[derive(Debug)]
pub struct AskDefinition {
    /// The value that people are shown; `None` if the tool that asks gives it.
    pub payload: Option<TermDefinition>,
    /// The answers that it can have.
    pub schema: ValueSchema,
    /// The role that whoever answers has; `None` for any trusted key.
    pub role: Option<Spanned<String>>,
    /// How many people sign the answer.
    pub count: CountDefinition,
}

/// How many people sign an answer, each with a key of their own.
#[derive(Debug, Clone)]
pub struct CountDefinition {
    /// The number, or the greatest of the numbers.
    pub most: u32,
    /// The number for each word that an answer can have, if `count` names words.
    pub words: Vec<(Spanned<String>, u32)>,
}

impl Default for CountDefinition {
    /// One person.
    fn default() -> Self {
        Self { most: 1, words: Vec::new() }
    }
}

impl WaitDefinition {
    /// Returns the type of the node, as files name it.
    pub fn type_name(&self) -> &'static str {
        if self.ask.is_some() { "interrupt" } else { "wait" }
    }
}

impl NodeKind {
    /// Returns the kind as programs hold it; `tool` is the index of the tool that the node calls.
    pub fn to_program(&self, tool: u16) -> Kind {
        match self {
            Self::Action(_) => Kind::Action(tool),
            Self::Foreach(_) => Kind::Foreach(tool),
            Self::Gate(_) => Kind::Gate,
            Self::Wait(WaitDefinition { ask: Some(_), .. }) => Kind::Interrupt,
            Self::Wait(_) => Kind::Wait,
            Self::Return(_) => Kind::Return,
            Self::Start(_) => Kind::Start,
        }
    }

    /// Returns why the node has no `result` after its calls.
    pub fn no_result(&self) -> &'static str {
        match self {
            Self::Action(_) => "the tool is still to be called with these parameters",
            Self::Foreach(_) => "a foreach has a result for each item",
            Self::Gate(_) => "a gate calls nothing",
            Self::Wait(WaitDefinition { ask: Some(_), .. }) => "the question is still to be answered",
            Self::Wait(_) => "this wait receives no signal",
            Self::Return(_) => "a return node calls nothing",
            Self::Start(_) => "`start` calls nothing",
        }
    }

    /// Returns why the node has no `visit.previous`, if a visit of it returns nothing.
    pub fn no_previous(&self) -> &'static str {
        match self {
            Self::Action(_) => "the tool returns nothing",
            Self::Foreach(_) => "the foreach collects nothing",
            Self::Gate(_) => "a gate returns nothing",
            Self::Wait(WaitDefinition { ask: Some(_), .. }) => "an interrupt keeps no result",
            Self::Wait(_) => "a wait keeps no result",
            Self::Return(_) => "a return node is visited once",
            Self::Start(_) => "`start` is not visited",
        }
    }
}

impl NodeDefinition {
    /// Returns the foreach, if the node is one.
    pub fn each(&self) -> Option<&ForeachDefinition> {
        match &self.kind {
            NodeKind::Foreach(each) => Some(each),
            _ => None,
        }
    }

    /// Returns the wait, if the node is one. An interrupt waits for its answer.
    pub fn wait(&self) -> Option<&WaitDefinition> {
        match &self.kind {
            NodeKind::Wait(wait) => Some(wait),
            _ => None,
        }
    }

    /// Returns what the tool of the node may ask people, if it may.
    pub fn interrupts(&self) -> Option<&InterruptsDefinition> {
        match &self.kind {
            NodeKind::Action(action) => action.interrupts.as_deref(),
            _ => None,
        }
    }

    /// Returns the question of the node, or of its tool.
    pub fn ask(&self) -> Option<&AskDefinition> {
        match self.interrupts() {
            Some(interrupts) => Some(&interrupts.ask),
            None => self.wait()?.ask.as_ref(),
        }
    }

    /// Returns how long the node waits for a signal or an answer, or its tool for an answer, in milliseconds.
    pub fn waits_ms(&self) -> Option<u64> {
        match self.interrupts() {
            Some(interrupts) => interrupts.timeout_ms,
            None => self.wait()?.timeout_ms,
        }
    }

    /// Returns the output of a run that ends at the node, if the node defines it.
    pub fn output(&self) -> Option<&TermDefinition> {
        match &self.kind {
            NodeKind::Return(returns) => returns.output.as_ref(),
            _ => None,
        }
    }

    /// Returns where the node leads; a return node leads nowhere.
    pub fn next(&self) -> &RouteDefinition {
        match &self.kind {
            NodeKind::Action(action) => &action.next,
            NodeKind::Foreach(each) => &each.next,
            NodeKind::Gate(gate) => &gate.next,
            NodeKind::Wait(wait) => &wait.next,
            NodeKind::Return(_) => &RouteDefinition::End,
            NodeKind::Start(next) => next,
        }
    }

    /// Returns the assignments of the node; a foreach collects instead.
    pub fn assign(&self) -> &[Assignment] {
        match &self.kind {
            NodeKind::Action(action) => &action.assign,
            NodeKind::Gate(gate) => &gate.assign,
            NodeKind::Wait(wait) => &wait.assign,
            NodeKind::Foreach(_) | NodeKind::Return(_) | NodeKind::Start(_) => &[],
        }
    }

    /// Returns the channels that get their first values again before the assignments of the node.
    pub fn reset(&self) -> &[Spanned<StateKey>] {
        match &self.kind {
            NodeKind::Action(action) => &action.reset,
            NodeKind::Gate(gate) => &gate.reset,
            NodeKind::Wait(wait) => &wait.reset,
            NodeKind::Foreach(_) | NodeKind::Return(_) | NodeKind::Start(_) => &[],
        }
    }

    /// Returns the keys that the run of the node's graph shares with that of this one.
    pub fn share(&self) -> &[Spanned<StateKey>] {
        match &self.kind {
            NodeKind::Action(action) => &action.share.keys,
            NodeKind::Foreach(_) | NodeKind::Gate(_) | NodeKind::Wait(_) | NodeKind::Return(_) | NodeKind::Start(_) => {
                &[]
            }
        }
    }

    /// Returns the signals that the run of the node's graph shares with that of this one.
    pub fn shared_signals(&self) -> &[Spanned<String>] {
        match &self.kind {
            NodeKind::Action(action) => &action.share.signals,
            NodeKind::Foreach(_) | NodeKind::Gate(_) | NodeKind::Wait(_) | NodeKind::Return(_) | NodeKind::Start(_) => {
                &[]
            }
        }
    }

    /// Returns the keys of the state whose values a visit of the node may change, in the order in which they are written.
    pub fn changed(&self) -> impl Iterator<Item = &Spanned<StateKey>> {
        self.reset().iter().chain(self.written_or_shared())
    }

    /// Returns the keys of the state that the node shares, and then those that it writes.
    pub fn written_or_shared(&self) -> impl Iterator<Item = &Spanned<StateKey>> {
        self.share().iter().chain(self.written())
    }

    /// Returns the keys of the state that the node writes, by assigning and by collecting.
    pub fn written(&self) -> impl Iterator<Item = &Spanned<StateKey>> {
        let collect = match &self.kind {
            NodeKind::Foreach(each) => each.collect.as_ref(),
            _ => None,
        };
        self.assign().iter().map(|assignment| &assignment.key).chain(collect)
    }

    /// Returns the reaction to failures in the branches that the node begins, if it says so.
    pub fn on_branch_error(&self) -> Option<OnBranchError> {
        match self.next() {
            RouteDefinition::All(list) => list.on_branch_error,
            RouteDefinition::Each(each) => each.on_branch_error,
            RouteDefinition::End | RouteDefinition::To(_) | RouteDefinition::First(_) | RouteDefinition::By(_) => None,
        }
    }

    /// Whether the node begins the run in several nodes. It is not visited.
    pub fn is_start(&self) -> bool {
        matches!(self.kind, NodeKind::Start(_))
    }

    /// Returns where the file says that the node cancels the branches that are active when a run returns there.
    pub fn cancels(&self) -> Option<&Span> {
        match &self.kind {
            NodeKind::Return(returns) => returns.cancels.as_ref(),
            _ => None,
        }
    }

    /// Whether a run always ends at the node.
    pub fn ends_run(&self) -> bool {
        matches!(self.kind, NodeKind::Return(_))
    }

    /// Returns the node that a failure leads to.
    pub fn on_error(&self) -> Option<&Spanned<NodeName>> {
        match &self.kind {
            NodeKind::Action(action) => action.on_error.as_ref(),
            NodeKind::Foreach(each) => each.on_error.as_ref(),
            NodeKind::Wait(wait) => wait.on_error.as_ref(),
            NodeKind::Gate(_) | NodeKind::Return(_) | NodeKind::Start(_) => None,
        }
    }

    /// Returns the node that follows when the time has come without a signal or an answer.
    pub fn on_timeout(&self) -> Option<&Spanned<NodeName>> {
        match self.interrupts() {
            Some(interrupts) => interrupts.on_timeout.as_ref(),
            None => self.wait()?.on_timeout.as_ref(),
        }
    }

    /// Returns the outcome of the branches that this node does not wait for.
    pub fn rest(&self) -> Rest {
        self.quorum.as_ref().map_or(Rest::default(), |quorum| quorum.rest)
    }

    /// Returns the node that is visited instead of this one if too few branches can arrive.
    pub fn fewer(&self) -> Option<&Spanned<NodeName>> {
        self.quorum.as_ref()?.fewer.as_ref()
    }

    /// Returns the node's call.
    pub fn call(&self) -> Option<&CallDefinition> {
        match &self.kind {
            NodeKind::Action(action) => Some(&action.call),
            NodeKind::Foreach(each) => Some(&each.call),
            NodeKind::Gate(_) | NodeKind::Wait(_) | NodeKind::Return(_) | NodeKind::Start(_) => None,
        }
    }

    /// Returns how the node's calls are made.
    pub fn conduct(&self) -> Option<&Conduct> {
        match &self.kind {
            NodeKind::Action(action) => Some(&action.conduct),
            NodeKind::Foreach(each) => Some(&each.conduct),
            NodeKind::Gate(_) | NodeKind::Wait(_) | NodeKind::Return(_) | NodeKind::Start(_) => None,
        }
    }
}

/// The fields of every node.
const COMMON: [&str; 4] = ["type", "description", "comment", "waits_for"];
/// The fields of nodes that make calls.
const CALLING: [&str; 10] =
    ["action", "next", "on_error", "env_requires", "retry", "timeout", "limits", "remote", "feedback", "cache_result"];
/// The fields that only a foreach has.
const EACH: [&str; 5] = ["over", "as", "collect", "parallel", "max_concurrency"];

/// The fields that only a wait has, and the time that it takes.
const WAITING: [&str; 4] = ["signals", "until", "timeout", "on_timeout"];

/// The fields that only an interrupt has, and the time that it waits.
const ASKING: [&str; 5] = ["payload", "result_schema", "answered_by", "timeout", "on_timeout"];

/// The fields of `interrupts`.
pub const INTERRUPTS: [&str; 5] = ["result_schema", "answered_by", "timeout", "on_timeout", "comment"];

/// The fields of `answered_by`.
pub const ANSWERED_BY: [&str; 3] = ["role", "count", "comment"];

/// The fields of `share`.
pub const SHARE: [&str; 3] = ["keys", "signals", "comment"];

/// The largest `count` of an answer.
pub const MOST_SIGNERS: u32 = 20;

/// The fields of a route along every edge whose condition holds.
pub const ALL: [&str; 4] = ["all", "max_concurrency", "on_branch_error", "comment"];

/// The fields of a route over a list.
pub const OVER: [&str; 7] = ["over", "as", "to", "max_concurrency", "most", "on_branch_error", "comment"];

/// The reactions to a failure in a branch.
pub const ON_BRANCH_ERROR: [(&str, OnBranchError); 3] =
    [("stop", OnBranchError::Stop), ("finish", OnBranchError::Finish), ("collect", OnBranchError::Collect)];

/// The fields of `waits_for` with a quorum.
pub const QUORUM: [&str; 5] = ["of", "need", "rest", "fewer", "comment"];

/// The ways to treat the branches that a quorum does not need.
pub const REST: [(&str, Rest); 2] = [("cancel", Rest::Cancel), ("finish", Rest::Finish)];

/// The fields of a route by a value.
pub const BY: [&str; 3] = ["by", "to", "comment"];

/// The fields of an edge.
pub const EDGE: [&str; 4] = ["to", "when", "description", "comment"];

/// The types of nodes, as they are written.
pub const TYPES: [&str; 6] = ["action", "foreach", "gate", "interrupt", "wait", "return"];

/// The largest `max_concurrency`.
pub const MOST_AT_A_TIME: u32 = 10_000;

/// The maximum number of nodes of a graph: their indices are 16 bits wide.
pub const MOST_NODES: usize = 60_000;

/// Returns the fields of the nodes of a type; for an unknown type, those that every node has.
pub fn fields_of(kind: &str) -> Vec<&'static str> {
    let own: &[&[&str]] = match kind {
        "action" => &[&CALLING, &["assign", "reset", "share", "interrupts"]],
        "foreach" => &[&CALLING, &EACH],
        "gate" => &[&["assign", "reset", "next"]],
        "wait" => &[&WAITING, &["assign", "reset", "next", "on_error"]],
        "interrupt" => &[&ASKING, &["assign", "reset", "next", "on_error"]],
        "return" => &[&["output", "cancels"]],
        _ => &[],
    };
    COMMON.iter().chain(own.iter().copied().flatten()).copied().collect()
}

/// The maximum number of edges of a node: each is analysed together with those before it.
pub const MOST_EDGES: usize = 1_000;

/// The nodes that could be read, and the names of those that could not.
#[derive(Default)]
pub(super) struct Nodes {
    pub(super) nodes: Vec<NodeDefinition>,
    pub(super) unreadable: Vec<String>,
    pub(super) lost_target: bool,
}

/// Reads `config.nodes`.
pub(super) fn parse_all(reader: &mut DefinitionReader<'_>, tree: &YamlTree, env: &mut RequiredEnv) -> Option<Nodes> {
    let mut all = Nodes::default();
    let fields = reader.map(tree, "`nodes`")?;
    if fields.entries.len() > MOST_NODES {
        let place = SourcePlace::new(reader.source, fields.entries[MOST_NODES].0.span.clone());
        reader.diagnostics.error(code::TOO_DEEP, place, format!("a graph has at most {MOST_NODES} nodes"));
        return None;
    }
    (reader.arguments, reader.has_lost_names) = arguments(fields.entries);
    for (key, tree) in fields.entries {
        let before = reader.diagnostics.iter().len();
        match parse(reader, key, tree, env, &mut all.lost_target) {
            Some(node) => all.nodes.push(node),
            None => all.unreadable.push(key.name.clone()),
        }
        // The unknown field of a node may be the one that is missing.
        if reader.diagnostics.iter().skip(before).any(|one| one.code == code::UNKNOWN_FIELD) {
            reader.diagnostics.retain_since(before, |one| one.code != code::MISSING_FIELD);
        }
    }
    Some(all)
}

/// Returns the names that the routes over lists give to elements, and whether a route gives one that cannot be read.
fn arguments(nodes: &[(TreeKey, YamlTree)]) -> (Vec<String>, bool) {
    let (mut names, mut has_lost): (Vec<String>, bool) = (Vec::new(), false);
    for (_, node) in nodes {
        let has = |next: &&YamlTree| field(next, "over").or_else(|| field(next, "as")).is_some();
        let Some(next) = field(node, "next").filter(has) else { continue };
        let TreeNode::Map(entries) = &next.node else { continue };
        let name = match field(next, "as").map(|name| &name.node) {
            Some(TreeNode::String(name)) => name,
            Some(TreeNode::Null) | None => ITEM,
            Some(_) => "",
        };
        if !is_identifier(name) || NamesInScope::Node.are_namespaces(name) {
            has_lost = true;
        } else if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
        has_lost |= field(next, "as").is_none() && entries.iter().any(|(key, _)| !OVER.contains(&key.name.as_str()));
    }
    (names, has_lost)
}

/// Returns the value of a field, if the tree is a mapping that has the field.
fn field<'t>(tree: &'t YamlTree, name: &str) -> Option<&'t YamlTree> {
    let TreeNode::Map(entries) = &tree.node else { return None };
    entries.iter().find(|(key, _)| key.name == name).map(|(_, tree)| tree)
}

/// Reads `waits_for`: the name of a node, a list of names, or a mapping with a quorum.
fn parse_waits_for(
    reader: &mut DefinitionReader<'_>,
    fields: &Fields<'_>,
    lost: &mut bool,
) -> (Vec<Spanned<NodeName>>, Option<QuorumDefinition>) {
    let Some(tree) = fields.get("waits_for") else { return Default::default() };
    if !matches!(tree.node, TreeNode::Map(_)) {
        return (parse_sources(reader, tree, "`waits_for`", lost), None);
    }
    let Some(fields) = reader.map(tree, "`waits_for`") else { return Default::default() };
    let of = reader.required(&fields, "`waits_for`", "of").map(|tree| parse_sources(reader, tree, "`of`", lost));
    let quorum = parse_quorum(reader, &fields, lost);
    // A join without its quorum would be reported for what it is not.
    *lost |= of.is_none() || quorum.is_none();
    (of.unwrap_or_default(), quorum)
}

/// Reads the quorum of a join.
fn parse_quorum(reader: &mut DefinitionReader<'_>, fields: &Fields<'_>, lost: &mut bool) -> Option<QuorumDefinition> {
    *lost |= reader.only(fields, "`waits_for`", &QUORUM, &[]);
    let need = reader.required(fields, "`waits_for`", "need").and_then(|tree| {
        let value = reader.integer_in(tree, "`need`", 1, MOST_BRANCHES)?;
        Some(Spanned { value, span: tree.span.clone() })
    });
    let rest = reader.required(fields, "`waits_for`", "rest").and_then(|tree| reader.word(tree, "`rest`", &REST));
    let fewer = reader.optional_text(fields, "fewer").and_then(|text| reader.name(text, NodeName::new));
    *lost |= fewer.is_none() && fields.get("fewer").is_some();
    Some(QuorumDefinition { need: need?, rest: rest?, fewer })
}

/// Reads the nodes that a join waits for: the name of a node, or a list of names.
fn parse_sources(
    reader: &mut DefinitionReader<'_>,
    tree: &YamlTree,
    field: &'static str,
    lost: &mut bool,
) -> Vec<Spanned<NodeName>> {
    let list = reader.one_or_list(tree, field, "the name of a node or a list of names");
    if list.is_empty() {
        *lost = true;
        if matches!(&tree.node, TreeNode::List(_)) {
            let place = SourcePlace::new(reader.source, tree.span.clone());
            reader
                .diagnostics
                .error(code::SHAPE, place, format!("{field} names no node"))
                .help("name the nodes whose edges lead here: `waits_for: [one, other]`");
        }
    }
    let mut names: Vec<Spanned<NodeName>> = Vec::new();
    for tree in list {
        match reader.text(tree, &format!("a name in {field}")).and_then(|text| reader.name(text, NodeName::new)) {
            Some(name) => names.push(name),
            None => *lost = true,
        }
    }
    reader.note_repeated(field, list);
    names
}

fn parse(
    reader: &mut DefinitionReader<'_>,
    key: &TreeKey,
    tree: &YamlTree,
    env: &mut RequiredEnv,
    lost: &mut bool,
) -> Option<NodeDefinition> {
    let text = Spanned { value: key.name.clone(), span: key.span.clone() };
    let name = reader.name(text, NodeName::new)?;
    let fields = reader.map(tree, &format!("node `{name}`"))?;
    let kind = match reader.optional_text(&fields, "type") {
        None if fields.get("type").is_some() => return None,
        None if fields.get("action").is_none() => {
            if reader.misspelt(&fields, &format!("node `{name}`"), &["action", "type"]) {
                return None;
            }
            let place = SourcePlace::new(reader.source, key.span.clone());
            reader
                .diagnostics
                .error(code::MISSING_FIELD, place, format!("node `{name}` needs `action` or `type`"))
                .help("a node calls a tool with `action`, or is `type: gate`, `type: interrupt`, `type: wait` or `type: return`");
            return None;
        }
        None => NodeKind::Action(parse_action(reader, &name, &fields, env, lost)?),
        Some(kind) => match kind.value.as_str() {
            "action" => NodeKind::Action(parse_action(reader, &name, &fields, env, lost)?),
            "gate" => NodeKind::Gate(parse_gate(reader, &name, &fields, lost)),
            "wait" => NodeKind::Wait(parse_wait(reader, &name, &fields, lost)?),
            "interrupt" => NodeKind::Wait(parse_interrupt(reader, &name, &fields, lost)?),
            "return" => NodeKind::Return(parse_return(reader, &name, &fields, lost)),
            "foreach" => NodeKind::Foreach(parse_foreach(reader, &name, &fields, env, lost)?),
            other => {
                let place = SourcePlace::new(reader.source, kind.span);
                reader
                    .diagnostics
                    .error(code::SHAPE, place, format!("`{other}` is not a type of node"))
                    .note("a node is an `action`, a `foreach`, a `gate`, an `interrupt`, a `wait` or a `return`")
                    .suggest(other, TYPES);
                return None;
            }
        },
    };
    let (waits_for, quorum) = parse_waits_for(reader, &fields, lost);
    Some(NodeDefinition { name, kind, waits_for, quorum })
}

fn parse_action(
    reader: &mut DefinitionReader<'_>,
    name: &Spanned<NodeName>,
    fields: &Fields<'_>,
    env: &mut RequiredEnv,
    lost: &mut bool,
) -> Option<Action> {
    *lost |= only(reader, fields, &format!("node `{name}`"), &fields_of("action"), &EACH);
    let env = fields.get("env_requires").map(|tree| env.read(reader, tree)).unwrap_or_default();
    let assign = parse_assign(reader, fields);
    let reset = channel::parse_reset(reader, fields);
    let share = fields.get("share").map(|tree| parse_share(reader, tree)).unwrap_or_default();
    let next = parse_next(reader, fields, lost);
    let on_error = parse_target(reader, fields, "on_error", lost);
    let conduct = Conduct { env, ..conduct::parse(reader, fields) };
    let interrupts = fields.get("interrupts").and_then(|tree| parse_interrupts(reader, tree, lost)).map(Box::new);
    let tree = reader.required(fields, &format!("node `{name}`"), "action")?;
    let call = action::parse(reader, tree, NamesInScope::Node)?;
    Some(Action { call, conduct, interrupts, assign, reset, share, next, on_error })
}

/// Reads `share`: the name of a key, a list of names, or an object with keys and signals.
fn parse_share(reader: &mut DefinitionReader<'_>, tree: &YamlTree) -> ShareDefinition {
    if !matches!(tree.node, TreeNode::Map(_)) {
        let keys =
            channel::parse_keys(reader, tree, "`share`", "the name of a key, a list of names, or `keys` and `signals`");
        return ShareDefinition { keys, signals: Vec::new() };
    }
    let Some(fields) = reader.map(tree, "`share`") else { return ShareDefinition::default() };
    reader.only(&fields, "`share`", &SHARE, &[]);
    let names = "the name of a key or a list of names";
    let keys = fields.get("keys").map(|tree| channel::parse_keys(reader, tree, "`keys` of `share`", names));
    let signals = fields.get("signals").map(|tree| {
        let list = reader.one_or_list(tree, "`signals` of `share`", "the name of a signal or a list of names");
        reader.note_repeated("`signals` of `share`", list);
        list.iter().filter_map(|tree| reader.text(tree, "a signal")).collect()
    });
    ShareDefinition { keys: keys.unwrap_or_default(), signals: signals.unwrap_or_default() }
}

fn parse_foreach(
    reader: &mut DefinitionReader<'_>,
    name: &Spanned<NodeName>,
    fields: &Fields<'_>,
    env: &mut RequiredEnv,
    lost: &mut bool,
) -> Option<ForeachDefinition> {
    let whose = format!("the foreach `{name}`");
    *lost |= only(reader, fields, &whose, &fields_of("foreach"), &["assign", "share", "interrupts"]);
    let env = fields.get("env_requires").map(|tree| env.read(reader, tree)).unwrap_or_default();
    let next = parse_next(reader, fields, lost);
    let on_error = parse_target(reader, fields, "on_error", lost);
    let conduct = Conduct { env, ..conduct::parse(reader, fields) };
    let width = parse_width(reader, fields);
    let variable = parse_variable(reader, fields);
    let collect = reader.optional_text(fields, "collect").and_then(|text| reader.name(text, StateKey::new));
    if let (Some(variable), Some(collect)) = (&variable, &collect)
        && collect.value.as_str() == variable.value
    {
        let (place, other) = (
            SourcePlace::new(reader.source, collect.span.clone()),
            SourcePlace::new(reader.source, variable.span.clone()),
        );
        reader
            .diagnostics
            .error(code::BAD_VARIABLE, place, format!("{whose} collects into the name of its own variable `{collect}`"))
            .related(other, "the variable")
            .help("give one of them another name");
    }
    let over = reader.required(fields, &whose, "over").map(|tree| template::parse(reader, tree, NamesInScope::Node));
    let tree = reader.required(fields, &whose, "action")?;
    // An unusable name was reported. Its uses are not reported as further mistakes.
    let shown = match fields.get("as").map(|tree| &tree.node) {
        Some(TreeNode::String(text)) => text.as_str(),
        _ => ITEM,
    };
    let call = action::parse(reader, tree, NamesInScope::Item(shown))?;
    let is_whole = fields.get("collect").is_none() || collect.is_some();
    *lost |= !is_whole;
    Some(ForeachDefinition { over: over?, name: variable?, call, collect, width, conduct, next, on_error })
}

/// The name of an item if `as` does not give one (R105).
pub const ITEM: &str = "item";

/// Reads `as`.
fn parse_variable(reader: &mut DefinitionReader<'_>, fields: &Fields<'_>) -> Option<Spanned<String>> {
    let Some(tree) = fields.get("as") else {
        return Some(Spanned { value: ITEM.to_owned(), span: fields.span.clone() });
    };
    let name = reader.text(tree, "`as`")?;
    let problem = if NamesInScope::Node.are_namespaces(&name.value) {
        "it would hide the namespace of the same name"
    } else if !is_identifier(&name.value) {
        "a variable's name is made of ASCII letters, digits and `_`, and begins with no digit"
    } else {
        return Some(name);
    };
    let place = SourcePlace::new(reader.source, name.span);
    reader
        .diagnostics
        .error(code::BAD_VARIABLE, place, format!("`{}` cannot be the name of an item: {problem}", name.value))
        .help("write `as: item`, and read it as `${item}`");
    None
}

fn is_identifier(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && name.chars().all(|character| character.is_ascii_alphanumeric() || character == '_')
}

/// Reads `parallel` and `max_concurrency` (R110, R112).
fn parse_width(reader: &mut DefinitionReader<'_>, fields: &Fields<'_>) -> Option<u32> {
    let parallel = fields.get("parallel").and_then(|tree| reader.boolean(tree, "`parallel`"));
    let most = fields.get("max_concurrency").and_then(|tree| max_concurrency(reader, tree));
    if let Some(key) = fields.key("max_concurrency")
        && fields.get("max_concurrency").is_some()
        && (parallel == Some(false) || fields.get("parallel").is_none())
    {
        let place = SourcePlace::new(reader.source, key.span.clone());
        reader
            .diagnostics
            .error(code::INERT_FIELD, place, "`max_concurrency` does nothing without `parallel: true`")
            .help("add `parallel: true`, or remove it");
    }
    if parallel == Some(true) { most } else { Some(1) }
}

/// Reads `max_concurrency`, of a node or a graph: with 0, no call would ever be made (R112).
pub(super) fn max_concurrency(reader: &mut DefinitionReader<'_>, tree: &YamlTree) -> Option<u32> {
    reader.integer_in(tree, "`max_concurrency`", 1, MOST_AT_A_TIME)
}

/// Reads the names of the signals that a wait receives.
fn parse_signals(reader: &mut DefinitionReader<'_>, tree: &YamlTree) -> Vec<Spanned<String>> {
    let list = reader.list(tree, "`signals`");
    reader.note_repeated("`signals`", list);
    if list.is_empty() && matches!(tree.node, TreeNode::List(_)) {
        let place = SourcePlace::new(reader.source, tree.span.clone());
        reader
            .diagnostics
            .error(code::SHAPE, place, "`signals` of a wait names no signal")
            .help("name one, `signals: [name]`, or write how long it waits, as `timeout: 2d`");
    }
    list.iter().filter_map(|tree| reader.text(tree, "a signal")).collect()
}

/// Reads a field with the name of a node.
fn parse_target(
    reader: &mut DefinitionReader<'_>,
    fields: &Fields<'_>,
    name: &str,
    lost: &mut bool,
) -> Option<Spanned<NodeName>> {
    let target = reader.optional_text(fields, name).and_then(|text| reader.name(text, NodeName::new));
    *lost |= target.is_none() && fields.get(name).is_some();
    target
}

fn parse_gate(
    reader: &mut DefinitionReader<'_>,
    name: &Spanned<NodeName>,
    fields: &Fields<'_>,
    lost: &mut bool,
) -> GateDefinition {
    let inert = CALLING.iter().chain(&EACH).copied().filter(|field| *field != "next").chain(["share", "interrupts"]);
    let inert: Vec<&str> = inert.collect();
    *lost |= only(reader, fields, &format!("the gate `{name}`"), &fields_of("gate"), &inert);
    let reset = channel::parse_reset(reader, fields);
    GateDefinition { assign: parse_assign(reader, fields), reset, next: parse_next(reader, fields, lost) }
}

/// Reads the fields that waits and interrupts have in common. The wait has no time and listens to nothing yet.
fn parse_waiting(
    reader: &mut DefinitionReader<'_>,
    kind: &str,
    whose: &str,
    fields: &Fields<'_>,
    lost: &mut bool,
) -> WaitDefinition {
    let known = fields_of(kind);
    let other = if kind == "wait" { &ASKING[..] } else { &WAITING[..] };
    let inert = CALLING.iter().chain(&EACH).chain(other).copied().chain(["share", "interrupts"]);
    let inert: Vec<&str> = inert.filter(|field| !known.contains(field)).collect();
    *lost |= only(reader, fields, whose, &known, &inert);
    WaitDefinition {
        ask: None,
        until: None,
        timeout_ms: fields.get("timeout").and_then(|tree| duration::parse(reader, tree, "`timeout`")),
        has_time: fields.get("timeout").is_some(),
        listens: false,
        signals: Vec::new(),
        on_timeout: parse_target(reader, fields, "on_timeout", lost),
        assign: parse_assign(reader, fields),
        reset: channel::parse_reset(reader, fields),
        next: parse_next(reader, fields, lost),
        on_error: parse_target(reader, fields, "on_error", lost),
    }
}

fn parse_interrupt(
    reader: &mut DefinitionReader<'_>,
    name: &Spanned<NodeName>,
    fields: &Fields<'_>,
    lost: &mut bool,
) -> Option<WaitDefinition> {
    let whose = format!("the interrupt `{name}`");
    let waiting = parse_waiting(reader, "interrupt", &whose, fields, lost);
    let payload = reader.required(fields, &whose, "payload");
    let payload = payload.map(|tree| template::parse(reader, tree, NamesInScope::Node));
    let ask = parse_answers(reader, &whose, fields);
    let ask = AskDefinition { payload: Some(payload?), ..ask? };
    Some(WaitDefinition { ask: Some(ask), listens: true, ..waiting })
}

/// Reads the answers that a question can have, and who gives them. The question has no payload yet.
fn parse_answers(reader: &mut DefinitionReader<'_>, whose: &str, fields: &Fields<'_>) -> Option<AskDefinition> {
    let schema = reader.required(fields, whose, "result_schema");
    // A schema that could not be read was reported. Its consequences are not.
    let schema = schema.map(|tree| {
        let schema = schema::parse(reader, tree, SchemaOwner::Inputs);
        schema.unwrap_or_else(|| ValueSchema::any(tree.span.clone()))
    });
    names_nobody(reader, fields, "answered_by");
    let answered_by = fields.get("answered_by").and_then(|tree| parse_answered_by(reader, tree));
    let (role, count) = answered_by.unwrap_or_default();
    Some(AskDefinition { payload: None, schema: schema?, role, count })
}

/// Reads `interrupts`, the questions that the tool of an action may ask.
fn parse_interrupts(
    reader: &mut DefinitionReader<'_>,
    tree: &YamlTree,
    lost: &mut bool,
) -> Option<InterruptsDefinition> {
    let fields = reader.map(tree, "`interrupts`")?;
    *lost |= reader.only(&fields, "`interrupts`", &INTERRUPTS, &[]);
    let on_timeout = parse_target(reader, &fields, "on_timeout", lost);
    let timeout = fields.get("timeout");
    let timeout_ms = timeout.and_then(|tree| duration::parse(reader, tree, "`timeout`"));
    let ask = parse_answers(reader, "`interrupts`", &fields)?;
    Some(InterruptsDefinition { span: tree.span.clone(), ask, timeout_ms, has_time: timeout.is_some(), on_timeout })
}

/// Reports a field without a value. Without the field, everybody with a trusted key may answer.
fn names_nobody(reader: &mut DefinitionReader<'_>, fields: &Fields<'_>, field: &str) {
    if let Some(key) = fields.key(field).filter(|_| fields.get(field).is_none()) {
        let place = SourcePlace::new(reader.source, key.span.clone());
        reader
            .diagnostics
            .error(code::SHAPE, place, format!("`{field}` says nothing about who answers"))
            .help("name a role, `answered_by: { role: refunds }`, or remove it: then any trusted key may answer");
    }
}

/// Reads `answered_by`: the role of those who answer, and how many of them sign.
fn parse_answered_by(
    reader: &mut DefinitionReader<'_>,
    tree: &YamlTree,
) -> Option<(Option<Spanned<String>>, CountDefinition)> {
    if let TreeNode::String(role) = &tree.node {
        let help = format!("write `answered_by: {{ role: {role} }}`");
        reader.wrong_shape(tree, "`answered_by`", "a mapping").help(help);
        return None;
    }
    let fields = reader.map(tree, "`answered_by`")?;
    reader.only(&fields, "`answered_by`", &ANSWERED_BY, &[]);
    let count = fields.get("count").map(|tree| parse_count(reader, tree)).unwrap_or_default();
    let role = reader.optional_text(&fields, "role");
    names_nobody(reader, &fields, "role");
    if let Some(role) = role.as_ref().filter(|role| !is_role(&role.value)) {
        let place = SourcePlace::new(reader.source, role.span.clone());
        reader
            .diagnostics
            .error(code::BAD_NAME, place, format!("`{}` is not a role", role.value))
            .help("a role is a word of lower-case letters, digits, `_` and `-`: `role: refunds`");
        return None;
    }
    Some((role, count))
}

/// Reads `count`: a number, or one for each word of the answer.
fn parse_count(reader: &mut DefinitionReader<'_>, tree: &YamlTree) -> CountDefinition {
    let TreeNode::Map(entries) = &tree.node else {
        return CountDefinition {
            most: reader.integer_in(tree, "`count`", 1, MOST_SIGNERS).unwrap_or(1),
            words: Vec::new(),
        };
    };
    if entries.is_empty() {
        let place = SourcePlace::new(reader.source, tree.span.clone());
        reader.diagnostics.error(code::SHAPE, place, "`count` names no word of the answer").help(
            "write how many people sign, `count: 2`, or how many for each word: `count: { approve: 2, refuse: 1 }`",
        );
    }
    let number = |(key, tree): &(TreeKey, YamlTree)| {
        let what = format!("`count` of `{}`", key.name);
        let number = reader.integer_in(tree, &what, 1, MOST_SIGNERS).unwrap_or(1);
        (Spanned { value: key.name.clone(), span: key.span.clone() }, number)
    };
    let words: Vec<(Spanned<String>, u32)> = entries.iter().map(number).collect();
    CountDefinition { most: words.iter().map(|(_, number)| *number).max().unwrap_or(1), words }
}

fn parse_wait(
    reader: &mut DefinitionReader<'_>,
    name: &Spanned<NodeName>,
    fields: &Fields<'_>,
    lost: &mut bool,
) -> Option<WaitDefinition> {
    let whose = format!("the wait `{name}`");
    let waiting = parse_waiting(reader, "wait", &whose, fields, lost);
    let signals = fields.get("signals").map(|tree| parse_signals(reader, tree)).unwrap_or_default();
    let until = fields.get("until").map(|tree| template::parse(reader, tree, NamesInScope::Node));
    let key = |field: &str| fields.key(field).filter(|_| fields.get(field).is_some());
    if let (Some(_), Some(timeout)) = (key("until"), key("timeout")) {
        let place = SourcePlace::new(reader.source, timeout.span.clone());
        reader
            .diagnostics
            .error(code::SHAPE, place, format!("{whose} has both `until` and `timeout`"))
            .help("say until when it waits, or how long");
    }
    let has_time = key("until").or(key("timeout")).is_some();
    let listens = key("signals").is_some();
    if !has_time && !listens {
        if !reader.misspelt(fields, &whose, &WAITING) {
            let place = SourcePlace::new(reader.source, name.span.clone());
            reader
                .diagnostics
                .error(code::MISSING_FIELD, place, format!("{whose} needs `signals`, `timeout` or `until`"))
                .help("write how long it waits, as `timeout: 2d`, or until when: `until: \"${state.due}\"`");
        }
        return None;
    }
    Some(WaitDefinition { until, has_time, listens, signals, ..waiting })
}

fn parse_return(
    reader: &mut DefinitionReader<'_>,
    name: &Spanned<NodeName>,
    fields: &Fields<'_>,
    lost: &mut bool,
) -> Return {
    let inert = [CALLING.as_slice(), &EACH, &["assign", "share", "interrupts"]].concat();
    *lost |= only(reader, fields, &format!("the return node `{name}`"), &fields_of("return"), &inert);
    let cancels = fields.get("cancels").map(|tree| (reader.boolean(tree, "`cancels`"), &tree.span));
    // A return that is meant to cancel branches would be reported for being beside them.
    *lost |= matches!(cancels, Some((None, _)));
    let cancels = cancels.filter(|(cancels, _)| *cancels == Some(true));
    Return {
        output: fields.get("output").map(|tree| template::parse(reader, tree, NamesInScope::Node)),
        cancels: cancels.map(|(_, span)| span.clone()),
    }
}

/// Reports fields that a node of this kind does not have; those that are `inert` belong to other kinds (R102, R114).
///
/// Returns whether a field is unknown: it may have been meant to lead somewhere.
fn only(reader: &mut DefinitionReader<'_>, fields: &Fields<'_>, whose: &str, known: &[&str], inert: &[&str]) -> bool {
    let foreign: Vec<&TreeKey> =
        fields.entries.iter().map(|(key, _)| key).filter(|key| inert.contains(&key.name.as_str())).collect();
    // A wrong `type` is one mistake, however many fields the node has.
    let meant = TYPES.iter().find(|kind| foreign.len() > 1 && is_meant(kind, fields));
    for (at, key) in foreign.iter().enumerate() {
        let (name, place) = (key.name.as_str(), SourcePlace::new(reader.source, key.span.clone()));
        let diagnostic = match meant {
            None => reader.diagnostics.error(code::INERT_FIELD, place, format!("`{name}` does nothing on {whose}")),
            Some(kind) => {
                let names: Vec<String> = foreign.iter().map(|key| format!("`{}`", key.name)).collect();
                let message = format!("{} do nothing on {whose}", names.join(", "));
                let diagnostic = reader.diagnostics.error(code::INERT_FIELD, place, message);
                for other in &foreign[at + 1..] {
                    diagnostic.related(SourcePlace::new(reader.source, other.span.clone()), "nor does this");
                }
                diagnostic.help(format!("did you mean `type: {kind}`? it has all of these fields"));
                break;
            }
        };
        diagnostic.help(match name {
            "assign" if known.contains(&"collect") => "name a state key that takes the list of results: `collect: key`",
            "interrupts" if known.contains(&"collect") => {
                "let the foreach run a graph whose node has `interrupts`: its run asks for one element"
            }
            "share" if known.contains(&"collect") => {
                "lead to a node with `share` for each element: `next: { over: …, as: name, to: node }`"
            }
            _ if ASKING.contains(&name) && !known.contains(&name) && !CALLING.contains(&name) => {
                "remove it, or make the node one of `type: interrupt`"
            }
            "signals" | "until" => "remove it, or make the node one of `type: wait`",
            _ if EACH.contains(&name) => "remove it, or make the node one of `type: foreach`",
            _ => "remove it, or move it to a node that has an `action`",
        });
    }
    reader.only(fields, whose, known, inert)
}

/// Whether a node has only fields of this kind of node, and one that tells the kind.
fn is_meant(kind: &str, fields: &Fields<'_>) -> bool {
    let needed = match kind {
        "action" => "action",
        "foreach" => "over",
        "interrupt" => "payload",
        "wait" => "signals",
        _ => return false,
    };
    let known = fields_of(kind);
    fields.get(needed).is_some() && fields.entries.iter().all(|(key, _)| known.contains(&key.name.as_str()))
}

fn parse_assign(reader: &mut DefinitionReader<'_>, fields: &Fields<'_>) -> Vec<Assignment> {
    let Some(tree) = fields.get("assign") else { return Vec::new() };
    let Some(fields) = reader.map(tree, "`assign`") else { return Vec::new() };
    let mut assign = Vec::new();
    for (key, tree) in fields.entries {
        let text = Spanned { value: key.name.clone(), span: key.span.clone() };
        let value = template::parse(reader, tree, NamesInScope::Node);
        if let Some(key) = reader.name(text, StateKey::new) {
            assign.push(Assignment { key, value });
        }
    }
    assign
}

/// Reads `next`; `lost` is set if a target was given but cannot be read.
fn parse_next(reader: &mut DefinitionReader<'_>, fields: &Fields<'_>, lost: &mut bool) -> RouteDefinition {
    let Some(tree) = fields.get("next") else { return RouteDefinition::End };
    match &tree.node {
        TreeNode::String(_) => match reader.text(tree, "`next`").and_then(|text| reader.name(text, NodeName::new)) {
            Some(name) => RouteDefinition::To(name),
            None => {
                *lost = true;
                RouteDefinition::End
            }
        },
        TreeNode::List(list) if list.len() > MOST_EDGES => {
            *lost = true;
            let place = SourcePlace::new(reader.source, list[MOST_EDGES].span.clone());
            reader
                .diagnostics
                .error(code::TOO_DEEP, place, format!("a node has at most {MOST_EDGES} edges"))
                .help("decide in several steps: let edges lead to gates");
            RouteDefinition::End
        }
        TreeNode::List(list) => {
            let edges: Vec<_> = list.iter().filter_map(|tree| parse_edge(reader, tree, lost)).collect();
            *lost |= edges.len() < list.len();
            RouteDefinition::First(EdgeList { span: tree.span.clone(), edges, width: None, on_branch_error: None })
        }
        TreeNode::Map(_) => parse_form(reader, tree, lost).unwrap_or_else(|| {
            *lost = true;
            RouteDefinition::End
        }),
        _ => {
            *lost = true;
            let place = SourcePlace::new(reader.source, tree.span.clone());
            let message = format!("`next` is a node's name, a list of edges or a mapping, not {}", tree.describe());
            reader
                .diagnostics
                .error(code::SHAPE, place, message)
                .help("write `next: name`, or a list of `{ to: name, when: … }`");
            RouteDefinition::End
        }
    }
}

/// Reads a `next` that is a mapping: `all`, `over` or `by`.
fn parse_form(reader: &mut DefinitionReader<'_>, tree: &YamlTree, lost: &mut bool) -> Option<RouteDefinition> {
    let fields = reader.map(tree, "`next`")?;
    let forms: Vec<&TreeKey> = ["all", "over", "by"].iter().filter_map(|name| fields.key(name)).collect();
    match forms.as_slice() {
        [form] if form.name == "all" => parse_all_edges(reader, &fields, lost),
        [form] if form.name == "over" => parse_over(reader, &fields, lost),
        [_] => parse_by(reader, &fields, lost),
        [] => {
            if !reader.misspelt(&fields, "`next`", &["all", "over", "by"]) {
                let place = SourcePlace::new(reader.source, tree.span.clone());
                let message = "a mapping in `next` has `all`, `over` or `by`";
                reader.diagnostics.error(code::MISSING_FIELD, place, message).help(
                    "write `next: name`, a list of `{ to: name, when: … }`, `{ all: [ … ] }`, `{ over: …, as: …, to: … }` \
                     or `{ by: …, to: { … } }`",
                );
            }
            None
        }
        [first, second, ..] => {
            let place = SourcePlace::new(reader.source, second.span.clone());
            let message = format!("`next` has both `{}` and `{}`", first.name, second.name);
            reader
                .diagnostics
                .error(code::SHAPE, place, message)
                .help("a node has one of them; let it lead to a gate that has the other");
            None
        }
    }
}

/// Reads `next: { all: [ … ] }`.
fn parse_all_edges(reader: &mut DefinitionReader<'_>, fields: &Fields<'_>, lost: &mut bool) -> Option<RouteDefinition> {
    *lost |= reader.only(fields, "`next` with `all`", &ALL, &[]);
    let tree = reader.required(fields, "`next`", "all")?;
    let list = reader.list(tree, "`all`");
    let place = |span: &Span| SourcePlace::new(reader.source, span.clone());
    if list.is_empty() {
        if let TreeNode::List(_) = &tree.node {
            let place = place(&tree.span);
            reader.diagnostics.error(code::SHAPE, place, "`all` has no edges").help("list the edges, or remove `next`");
        }
        return None;
    }
    if list.len() > MOST_EDGES {
        let place = place(&list[MOST_EDGES].span);
        reader.diagnostics.error(code::TOO_DEEP, place, format!("a node has at most {MOST_EDGES} edges"));
        return None;
    }
    let mut edges = Vec::new();
    let is_name = |tree: &&YamlTree| matches!(tree.node, TreeNode::String(_));
    if let Some(name) = list.iter().find(is_name) {
        report_name(reader, list, name);
    }
    for tree in list.iter().filter(|tree| !is_name(tree)) {
        let reported = reader.diagnostics.len();
        let Some(edge) = parse_edge(reader, tree, lost) else { continue };
        if edge.to.is_none() && reader.diagnostics.len() == reported {
            *lost = true;
            let place = SourcePlace::new(reader.source, tree.span.clone());
            reader
                .diagnostics
                .error(code::MISSING_FIELD, place, "an edge in `all` needs `to`")
                .help("it begins a branch, so it names the first node of the branch; or remove the edge");
        }
        edges.push(edge);
    }
    *lost |= edges.len() < list.len();
    let width = fields.get("max_concurrency").and_then(|tree| max_concurrency(reader, tree));
    let on_branch_error = parse_on_branch_error(reader, fields);
    Some(RouteDefinition::All(EdgeList { span: tree.span.clone(), edges, width, on_branch_error }))
}

/// Reports a name in `all` that is no edge, once for all names.
fn report_name(reader: &mut DefinitionReader<'_>, list: &[YamlTree], name: &YamlTree) {
    let edge = |tree: &YamlTree| match &tree.node {
        TreeNode::String(name) => Some(format!("{{ to: {name} }}")),
        _ => None,
    };
    let help = match list.iter().map(edge).collect::<Option<Vec<String>>>() {
        Some(edges) if edges.len() <= 8 => format!("write `all: [{}]`", edges.join(", ")),
        _ => format!("write `{}`, and so for each name", edge(name).unwrap_or_default()),
    };
    reader.wrong_shape(name, "an edge in `all`", "a mapping").help(help);
}

/// Reads `next: { over: …, as: …, to: … }`.
fn parse_over(reader: &mut DefinitionReader<'_>, fields: &Fields<'_>, lost: &mut bool) -> Option<RouteDefinition> {
    *lost |= reader.only(fields, "`next` with `over`", &OVER, &[]);
    let over = reader.required(fields, "`next`", "over").map(|tree| template::parse(reader, tree, NamesInScope::Node));
    let name = parse_variable(reader, fields);
    let width = fields.get("max_concurrency").and_then(|tree| max_concurrency(reader, tree));
    let most = fields.get("most").and_then(|tree| reader.integer_in(tree, "`most`", 1, MOST_BRANCHES));
    let to = reader.required_text(fields, "`next` with `over`", "to").and_then(|text| reader.name(text, NodeName::new));
    let on_branch_error = parse_on_branch_error(reader, fields);
    Some(RouteDefinition::Each(EachDefinition { over: over?, name: name?, to: to?, width, most, on_branch_error }))
}

/// Reads `on_branch_error`.
fn parse_on_branch_error(reader: &mut DefinitionReader<'_>, fields: &Fields<'_>) -> Option<OnBranchError> {
    reader.word(fields.get("on_branch_error")?, "`on_branch_error`", &ON_BRANCH_ERROR)
}

/// Reads `next: { by: …, to: { … } }`.
fn parse_by(reader: &mut DefinitionReader<'_>, fields: &Fields<'_>, lost: &mut bool) -> Option<RouteDefinition> {
    *lost |= reader.only(fields, "`next` with `by`", &BY, &[]);
    let by =
        reader.required(fields, "`next`", "by").and_then(|tree| condition::parse_path(reader, tree, PathField::ROUTE));
    let targets = reader.required(fields, "`next` with `by`", "to")?;
    let targets = reader.map(targets, "`to`")?;
    if targets.entries.len() > MOST_EDGES {
        let place = SourcePlace::new(reader.source, targets.entries[MOST_EDGES].0.span.clone());
        reader.diagnostics.error(code::TOO_DEEP, place, format!("a node has at most {MOST_EDGES} edges"));
        return None;
    }
    let mut to = Vec::new();
    for (key, tree) in targets.entries {
        let word = Spanned { value: key.name.clone(), span: key.span.clone() };
        match &tree.node {
            TreeNode::Map(entries) if entries.is_empty() => to.push((word, None)),
            _ => match reader.text(tree, "a target").and_then(|text| reader.name(text, NodeName::new)) {
                Some(name) => to.push((word, Some(name))),
                None => *lost = true,
            },
        }
    }
    if targets.entries.is_empty() {
        let place = SourcePlace::new(reader.source, targets.span.clone());
        reader.diagnostics.error(code::SHAPE, place, "`to` has no targets").help("write a target for each value");
        return None;
    }
    Some(RouteDefinition::By(ByDefinition { by: by?, to }))
}

fn parse_edge(reader: &mut DefinitionReader<'_>, tree: &YamlTree, lost: &mut bool) -> Option<EdgeDefinition> {
    let fields = reader.map(tree, "an edge")?;
    let slipped = reader.only(&fields, "an edge", &EDGE, &[]);
    let to = reader.optional_text(&fields, "to").and_then(|text| reader.name(text, NodeName::new));
    *lost |= slipped || (to.is_none() && fields.get("to").is_some());
    let (when, written) = match fields.get("when") {
        // A condition that cannot be read is no reason to report the nodes behind it.
        Some(when) => (
            condition::parse(reader, when, NamesInScope::Node).unwrap_or(Condition::Any(Vec::new())),
            Some(when.to_value()),
        ),
        // Nor is a misspelt `when`.
        None if slipped => (Condition::Any(Vec::new()), None),
        None => (Condition::Always, None),
    };
    let description = reader.optional_text(&fields, "description").map(|text| text.value);
    Some(EdgeDefinition { span: tree.span.clone(), to, when, written, description })
}

//! The parts of a compiled graph: nodes, edges, tools, hooks, and the terms in them.

use std::sync::Arc;
use std::time::Duration;

use graph_model::capability::Capability;
use graph_model::condition::Condition;
use graph_model::name::ItemId;
use graph_model::operator::Operator;
use graph_model::program::{
    self, CallLimits, CountByWord, Event, Executor, ItemType, Join, NodeFacts, OnBranchError, Quorum, Retry, Verb,
};
use graph_model::reducer::{Keep, Reducer};
use graph_model::template::InputReference;
use graph_model::untrusted::Untrusted;
use graph_model::value::{Value, View};
use regex::Regex;

use crate::failure::Failure;
use crate::schema::{self, Invalid, SchemaRules};
use crate::tool_caller::Arguments;

/// A key of the state.
#[derive(Debug)]
pub struct CompiledKey {
    /// The name.
    pub name: String,
    /// The first value, if the graph gives one.
    pub initial: Option<Value>,
    /// How writes combine with its value, if it is a channel.
    pub reducer: Option<Reducer>,
    /// Whether its elements are put in the order of the branches when these meet.
    pub by_branch: bool,
    /// How long it has its value, if it is a channel that does not have it for the rest of the run.
    pub keep: Option<Keep>,
}

impl CompiledKey {
    /// Whether its value is kept in memory only, and in no journal.
    pub fn is_in_memory(&self) -> bool {
        self.keep == Some(Keep::Memory)
    }

    /// Whether a write does not determine its value.
    pub fn combines(&self) -> bool {
        self.reducer.as_ref().is_some_and(|reducer| *reducer != Reducer::Last)
    }

    /// Returns how many elements a write adds to a channel whose elements are put in the order of the branches.
    pub fn added(&self, write: &Value) -> usize {
        match (&self.reducer, write) {
            (Some(Reducer::Append), _) if self.by_branch => 1,
            (Some(_), Value::Array(list)) if self.by_branch => list.len(),
            _ => 0,
        }
    }
}

/// A tool that nodes and hooks call.
#[derive(Debug)]
pub struct CompiledTool {
    /// Its id; `None` if it is known only at each call, or if items are yet to be found.
    pub id: Option<ItemId>,
    /// The verb of the call.
    pub verb: Verb,
    /// The kind of item that the verb applies to.
    pub item: ItemType,
    /// The executor of the calls.
    pub by: Executor,
    /// The capability that a run needs to call it; `None` if it is known only at each call.
    pub capability: Option<Capability>,
    /// The names of its parameters; `None` if they are one object.
    pub params: Option<Vec<String>>,
    /// Whether a contract gives the type of its result.
    pub typed: bool,
    /// Whether its result may be nested to any depth.
    pub nests: bool,
    /// The rules for its parameters beyond their types.
    pub params_rules: Option<SchemaRules>,
    /// The rules for its result beyond its type.
    pub result_rules: Option<SchemaRules>,
}

impl CompiledTool {
    /// Fails if the arguments of a call break rules of the tool. A build that cannot check rules begins no run that has some.
    pub fn accepts(&self, arguments: &mut Arguments) -> Result<(), Invalid> {
        let Some(rules) = self.params_rules.as_ref().filter(|_| schema::IS_THERE) else { return Ok(()) };
        let mut values = arguments.values_mut().iter().cloned();
        rules.check(match &self.params {
            Some(names) => names.iter().cloned().zip(values).collect(),
            None => values.next().unwrap_or_default(),
        })
    }

    /// Fails if a result breaks rules of the tool.
    pub fn returns(&self, result: View<'_>) -> Result<(), Box<Failure>> {
        let Some(rules) = self.result_rules.as_ref().filter(|_| schema::IS_THERE) else { return Ok(()) };
        let unfit = |invalid| Failure::permanent(format!("the result of `{}` does not fit: {invalid}", self.name()));
        Ok(rules.check(result.to_plain_value()).map_err(unfit)?)
    }

    /// Whether the id of the item that its calls execute is known only at each call, so that it may be a graph's.
    pub fn is_computed(&self) -> bool {
        self.by == Executor::Program && self.id.is_none()
    }

    /// Whether its calls may begin runs.
    pub fn may_begin_runs(&self) -> bool {
        self.by == Executor::Graph || self.is_computed()
    }

    /// Returns the id as messages show it.
    pub fn name(&self) -> &str {
        self.id.as_ref().map_or("", ItemId::as_str)
    }
}

/// A node.
#[derive(Debug)]
pub struct CompiledNode {
    /// The name.
    pub name: String,
    /// Its kind, with its calls.
    pub kind: CompiledKind,
    /// How it waits for an answer if its tool asks people, which it may then.
    pub interrupts: Option<Box<CompiledWait>>,
    pub(super) assign: Vec<(usize, CompiledTerm)>,
    /// The channels that have their first values again before it writes.
    pub reset: Vec<usize>,
    /// The signals that the run of its graph shares with this one.
    pub share_signals: Vec<String>,
    /// The keys that the run of its graph shares with this one. The change of such a key is a list of writes.
    pub share: Vec<usize>,
    /// Whether its writes are combined, because it writes or resets channels, or shares keys.
    pub combines_writes: bool,
    /// Those of the channels that it writes or resets whose values its assignments or its route read.
    pub(crate) seen: Vec<usize>,
    /// Whether its calls depend on channels that are kept in memory only.
    pub asks_memory: bool,
    /// Where it leads.
    pub next: CompiledRoute,
    /// How many nodes of its branches are visited at a time, if its route limits that.
    pub width: Option<usize>,
    /// The reaction to failures in its branches, if its route has one.
    pub on_branch_error: Option<OnBranchError>,
    /// How it waits for branches; `None` if it waits for nothing.
    pub join: Option<Join>,
    /// Whether it is a return that cancels everything else that is active.
    pub cancels: bool,
    /// The node that its failures lead to, if the node names one.
    pub on_error: Option<u16>,
    /// Its own retry policy.
    pub retry: Option<Retry>,
    /// How long a call may take.
    pub timeout: Option<Duration>,
    /// The limits of the runs that its calls begin.
    pub limits: CallLimits,
    /// Where an agent is to make the call.
    pub remote: Option<Arc<str>>,
    /// Whether the results of its calls are cached.
    pub cached: bool,
    /// The environment variables that it is the first to ask for.
    pub env: Vec<String>,
    /// The facts known of it, so that a run need not examine it again.
    pub facts: NodeFacts,
}

impl CompiledNode {
    /// Returns where the edges lead, in order; `None` ends the run.
    pub fn targets(&self) -> impl Iterator<Item = Option<u16>> {
        (0..).map_while(|edge| self.next.target(edge))
    }

    /// Returns the nodes that it leads to: by its edges, by its failure, by its time, and where too few branches can arrive at
    /// it.
    pub fn onward(&self) -> impl Iterator<Item = u16> {
        let fewer = self.quorum().and_then(|quorum| quorum.fewer);
        self.targets().flatten().chain(self.on_error).chain(self.on_timeout()).chain(fewer)
    }

    /// Returns the node that follows if it waits for signals or an answer, and none comes in time.
    pub fn on_timeout(&self) -> Option<u16> {
        self.wait()?.on_timeout
    }

    /// Returns what it waits for, or what it waits for if its tool asks people.
    #[inline]
    pub fn wait(&self) -> Option<&CompiledWait> {
        self.kind.wait().or(self.interrupts.as_deref())
    }

    /// Returns how many branches it waits for, if not for all.
    pub fn quorum(&self) -> Option<Quorum> {
        self.join.as_ref()?.quorum
    }
}

/// The kind of a node.
#[derive(Debug)]
pub enum CompiledKind {
    /// One call of a tool.
    Action(CallTerm),
    /// A call of a tool for each item of a list.
    Foreach(CompiledForeach),
    /// No call: it chooses an edge.
    Gate,
    /// No call: it waits, and then chooses an edge.
    Wait(CompiledWait),
    /// Ends the run, which returns this term, or all keys of the state if there is no term.
    Return(Option<CompiledTerm>),
    /// Begins the run in several nodes. It is not visited.
    Start,
}

impl CompiledKind {
    /// Returns the node's kind, as a program states it.
    pub fn kind(&self) -> program::Kind {
        match self {
            Self::Action(call) => program::Kind::Action(call.tool),
            Self::Foreach(each) => program::Kind::Foreach(each.call.tool),
            Self::Gate => program::Kind::Gate,
            Self::Wait(wait) if wait.ask.is_some() => program::Kind::Interrupt,
            Self::Wait(_) => program::Kind::Wait,
            Self::Return(_) => program::Kind::Return,
            Self::Start => program::Kind::Start,
        }
    }

    /// Returns the calls that it makes, as far as they do not depend on the state.
    #[inline]
    pub fn asks(&self) -> Asks {
        match self {
            Self::Action(call) => Asks::Once { tool: call.tool },
            Self::Foreach(each) => {
                Asks::Each { tool: each.call.tool, width: each.width.max(1), collects: each.collect }
            }
            Self::Gate | Self::Wait(_) | Self::Return(_) | Self::Start => Asks::Nothing,
        }
    }

    /// Returns what it waits for, if the node itself waits.
    #[inline]
    pub fn wait(&self) -> Option<&CompiledWait> {
        match self {
            Self::Wait(wait) => Some(wait),
            _ => None,
        }
    }

    /// Whether it ends the run.
    #[inline]
    pub fn ends_run(&self) -> bool {
        matches!(self, Self::Return(_))
    }

    /// Returns the tool that it calls, once or for each item of a list.
    #[inline]
    pub fn calls(&self) -> Option<u16> {
        self.asks().tool()
    }

    /// Whether it makes a call for each item of a list.
    #[inline]
    pub fn goes_over_list(&self) -> bool {
        self.asks().is_each()
    }

    /// Returns the key that gets the results of the calls for a list.
    #[inline]
    pub fn collects(&self) -> Option<usize> {
        match self.asks() {
            Asks::Each { collects, .. } => collects,
            Asks::Nothing | Asks::Once { .. } => None,
        }
    }
}

/// The calls of a node, as far as the graph alone determines them. The function [`plan`](crate::step::plan) computes the
/// arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asks {
    /// No call: the node computes, and can fail only by itself.
    Nothing,
    /// One call of a tool.
    Once {
        /// The tool's index.
        tool: u16,
    },
    /// A call of a tool for each item of a list, at most `width` at a time. A key may receive the results.
    Each {
        /// The tool's index.
        tool: u16,
        /// How many calls are made at a time, 1 or more.
        width: usize,
        /// The key that receives the results.
        collects: Option<usize>,
    },
}

impl Asks {
    /// Returns the tool that is called.
    pub fn tool(self) -> Option<u16> {
        match self {
            Self::Nothing => None,
            Self::Once { tool } | Self::Each { tool, .. } => Some(tool),
        }
    }

    /// Whether it is a call for each item of a list.
    pub fn is_each(self) -> bool {
        matches!(self, Self::Each { .. })
    }
}

/// Where a node leads. An edge is identified by its index: in the list, or among the values.
#[derive(Debug)]
pub enum CompiledRoute {
    /// Along the first edge whose condition holds.
    First(Box<[CompiledEdge]>),
    /// Along every edge whose condition holds.
    All(Box<[CompiledEdge]>),
    /// To one node for each element of a list.
    Each(ListRoute),
    /// To the node that is named for a value.
    By(ValueRoute),
}

/// A route to one node for each element of a list.
#[derive(Debug)]
pub struct ListRoute {
    pub over: CompiledTerm,
    /// The element's name in the branch, as an index into the names of the program.
    pub argument: u16,
    pub to: u16,
    /// How many elements the list may have.
    pub most: Option<usize>,
}

impl ListRoute {
    /// Returns how many branches a visit may begin.
    pub fn most(&self) -> usize {
        self.most.unwrap_or(usize::MAX).min(super::MOST_BRANCHES)
    }
}

/// A route by a value.
#[derive(Debug)]
pub struct ValueRoute {
    pub by: ResolvedPath,
    /// The target for each word that the value can be; `None` ends the run or the branch.
    pub to: Box<[(String, Option<u16>)]>,
}

impl CompiledRoute {
    /// Returns the edges of a list in order; the other routes have no edges with a condition.
    pub fn edges(&self) -> &[CompiledEdge] {
        match self {
            Self::First(edges) | Self::All(edges) => edges,
            Self::Each(_) | Self::By(_) => &[],
        }
    }

    /// Returns where an edge leads, if there is such an edge: to a node, or out.
    #[inline]
    pub fn target(&self, edge: u16) -> Option<Option<u16>> {
        let edge = usize::from(edge);
        match self {
            Self::First(edges) | Self::All(edges) => edges.get(edge).map(|edge| edge.to),
            Self::Each(each) => (edge == 0).then_some(Some(each.to)),
            Self::By(by) => by.to.get(edge).map(|(_, to)| *to),
        }
    }

    /// Whether it leads nowhere.
    pub fn is_empty(&self) -> bool {
        self.target(0).is_none()
    }
}

/// A call in a node or hook.
#[derive(Debug)]
pub struct CallTerm {
    pub tool: u16,
    /// The item's id, if it is a template.
    pub(super) id: Option<CompiledTerm>,
    pub(super) params: ArgumentTerms,
}

/// How a foreach goes over its list.
#[derive(Debug)]
pub struct CompiledForeach {
    pub call: CallTerm,
    pub(super) over: CompiledTerm,
    pub(super) name: String,
    /// The key that gets the results.
    pub collect: Option<usize>,
    pub width: usize,
}

impl CompiledForeach {
    /// Returns the list.
    pub fn over(&self) -> &CompiledTerm {
        &self.over
    }

    /// Returns the name of an item in templates.
    pub fn variable(&self) -> &str {
        &self.name
    }
}

/// The wait of a node.
#[derive(Debug)]
pub struct CompiledWait {
    /// The time until which it waits.
    pub until: Option<CompiledTerm>,
    /// How long it waits at most, in milliseconds.
    pub timeout_ms: Option<u64>,
    /// The names of the signals of which the first ends it.
    pub signals: Vec<String>,
    /// The node that follows when the time has come without one of these signals, or without an answer.
    pub on_timeout: Option<u16>,
    /// Its question, if it is an interrupt or one of a tool, which waits for the answer instead of signals.
    pub ask: Option<CompiledAsk>,
}

/// The question of an interrupt.
#[derive(Debug)]
pub struct CompiledAsk {
    /// The value that people are shown; `None` if the tool that asks gives it.
    pub payload: Option<CompiledTerm>,
    /// The rules for the answer beyond its type.
    pub schema: Option<Value>,
    /// The role that whoever answers has; `None` for any trusted key.
    pub role: Option<String>,
    /// How many keys of different owners sign the answer; the greatest number if that depends on the answer.
    pub count: u32,
    /// The numbers for the words that an answer can have, if they differ.
    pub by_word: Option<CountByWord>,
}

impl CompiledAsk {
    /// Returns how many keys of different owners sign an answer.
    pub fn count_of(&self, answer: &Value) -> u32 {
        let Some(CountByWord { field, words }) = &self.by_word else { return self.count };
        let word = field.as_ref().map_or(Some(answer), |field| answer.get(field)).and_then(Value::as_str);
        word.and_then(|word| words.get(word)).map_or(self.count, |count| (*count).max(1))
    }
}

impl CompiledWait {
    /// Whether a signal or an answer can end it.
    pub fn listens(&self) -> bool {
        self.ask.is_some() || !self.signals.is_empty()
    }
}

/// A hook.
#[derive(Debug)]
pub struct CompiledHook {
    /// The name.
    pub name: String,
    /// The event at which it is asked.
    pub event: Event,
    pub(super) when: EdgeCondition,
    /// Its action.
    pub does: Does,
    /// The untrusted parts of its parameters.
    pub untrusted: Untrusted,
}

/// The action of a hook.
#[derive(Debug)]
pub enum Does {
    /// Calls a tool, whose answer may steer the run.
    Call(CallTerm),
    /// Steers the run.
    Steer(CompiledTerm),
}

/// How a tool's arguments are made.
#[derive(Debug)]
pub enum ArgumentTerms {
    /// One argument for each parameter of the contract, in its order: the term that the node gives, and the default.
    Listed(Vec<(Option<CompiledTerm>, Value)>),
    /// One argument, an object of all that the node gives.
    Object(CompiledTerm),
}

/// A value with expressions in it.
#[derive(Debug)]
pub enum CompiledTerm {
    /// A value without expressions.
    Literal(Value),
    /// The first of these that is not null.
    First(Vec<ResolvedPath>),
    /// A text with expressions in it.
    Text(Vec<TextPiece>),
    /// A list of terms.
    List(Vec<CompiledTerm>),
    /// An object of terms.
    Object(Vec<(String, CompiledTerm)>),
}

/// A part of a text.
#[derive(Debug)]
pub enum TextPiece {
    Text(String),
    First(Vec<ResolvedPath>),
    /// The value of an input as text, and the text that replaces a missing value (R71).
    Input(ResolvedPath, InputReference),
}

/// A path whose beginning is resolved.
#[derive(Debug)]
pub struct ResolvedPath {
    pub(super) root: PathBase,
    pub(super) segments: Vec<String>,
    /// The path as it is written, for messages.
    pub(super) written: String,
}

/// Where a reference begins.
#[derive(Debug)]
pub(super) enum PathBase {
    Inputs,
    /// All of the state.
    State,
    Key(usize),
    LastError,
    Retries,
    Result,
    Now,
    Timestamp,
    Visit,
    Previous,
    /// The index of the innermost branch.
    Branch,
    /// A foreach's variable, or a value that a hook receives; its name is the first segment.
    Local,
    /// The element of the list that the branch was begun for.
    Argument(u16),
}

/// An edge of a list.
#[derive(Debug)]
pub struct CompiledEdge {
    pub(super) to: Option<u16>,
    pub(super) when: EdgeCondition,
    /// The edge as messages show it; empty if no message does.
    pub(super) shown: String,
}

/// When an edge is taken. Most conditions are one comparison or a few that must all hold, and need no tree.
#[derive(Debug)]
pub(super) enum EdgeCondition {
    Always,
    All(Box<[Comparison]>),
    Tree(Condition<Comparison>),
}

impl EdgeCondition {
    /// Returns all comparisons in it.
    pub(super) fn tests(&self) -> Vec<&Comparison> {
        fn inside<'t>(condition: &'t Condition<Comparison>, found: &mut Vec<&'t Comparison>) {
            match condition {
                Condition::Always => {}
                Condition::Test(test) => found.push(test),
                Condition::All(list) | Condition::Any(list) => list.iter().for_each(|one| inside(one, found)),
                Condition::Not(one) => inside(one, found),
            }
        }
        let mut found = Vec::new();
        match self {
            Self::Always => {}
            Self::All(tests) => found.extend(tests),
            Self::Tree(condition) => inside(condition, &mut found),
        }
        found
    }
}

impl From<Condition<Comparison>> for EdgeCondition {
    fn from(condition: Condition<Comparison>) -> Self {
        match condition {
            Condition::Always => Self::Always,
            Condition::Test(test) => Self::All(Box::new([test])),
            Condition::All(list) if list.iter().all(|one| matches!(one, Condition::Test(_))) => {
                let test = |one| if let Condition::Test(test) = one { Some(test) } else { None };
                Self::All(list.into_iter().filter_map(test).collect())
            }
            tree => Self::Tree(tree),
        }
    }
}

/// A comparison.
#[derive(Debug)]
pub(super) struct Comparison {
    pub(super) left: ResolvedPath,
    pub(super) operator: Operator,
    pub(super) right: Value,
    /// The right side as a whole number, if it is one.
    pub(super) whole: Option<i64>,
    pub(super) pattern: Option<Regex>,
}

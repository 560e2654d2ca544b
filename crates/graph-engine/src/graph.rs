//! Compiled graphs: programs with their names resolved and their texts parsed, ready to be executed.
//!
//! This module defines the meaning of a graph's parts, once for compiled and interpreted graphs: the value of a template,
//! the edges that are taken, the assignments.

mod channels;
mod compiled;
mod context;
mod fan_out;
mod joins;
pub(crate) mod load;
mod node;
mod reads;
#[cfg(feature = "topology")]
mod shown;
#[cfg(feature = "topology")]
mod topology;

use std::fmt;
use std::sync::Arc;

use graph_model::capability::Grants;
use graph_model::digest::Digest;
use graph_model::field::without_nulls;
use graph_model::name::{GraphId, ItemId};
use graph_model::path;
use graph_model::program::{self, Event, OnNoMatch, Settings};
use graph_model::reducer::{Keep, ListWrites, Reducer, Uncombined};
use graph_model::secret::Mask;
use graph_model::template::InputReference;
use graph_model::value::{AsView, Map, NamedFields, Sequence, Value, View, describe};
use graph_signing::Fingerprint;

use crate::activation::{Change, Frame, TakenEdges, frames, writes_of};
use crate::call::GraphFacts;
use crate::failure::Failure;
use crate::graph::fan_out::FanOuts;
use crate::graph::node::{
    CallTerm, Comparison, Does, EdgeCondition, ListRoute, PathBase, ResolvedPath, TextPiece, ValueRoute,
};
use crate::state::combine;
use crate::tool_caller::{Arguments, Request};

pub use compiled::{CompiledGraph, LoadError, tables};
pub use context::{EvalContext, Notes, Now, Retries, RetriesSeen};
pub use node::{
    ArgumentTerms, Asks, CompiledAsk, CompiledHook, CompiledKey, CompiledKind, CompiledNode, CompiledRoute,
    CompiledTerm, CompiledTool, CompiledWait,
};
#[cfg(feature = "topology")]
pub use topology::{
    Topology, TopologyEdge, TopologyEntry, TopologyHook, TopologyJoin, TopologyKind, TopologyNode, TopologyPolicy,
    TopologyRoute, TopologyTool, TopologyWait,
};

/// The maximum number of branches that one visit may begin.
pub const MOST_BRANCHES: usize = program::MOST_BRANCHES as usize;

/// The beginning of the failure of a route over a value that is no list.
const NO_LIST: &str = "`over` is a list, and found ";

/// The text between the length of a list and the number of branches that may begin, in the failure of a route over the list.
const ELEMENTS: &str = " elements, and branches may begin for ";

/// Returns the message of a node that writes a value that its channel cannot take.
fn unwritten(key: &str, error: &dyn fmt::Display) -> String {
    format!("`state.{key}`: {error}")
}

/// Returns the failure of a route by a value that has no target.
fn no_target(path: &str, found: &str) -> String {
    format!("`{path}` leads nowhere: there is no target for {found}")
}

/// The tables of a graph, ready to be executed.
#[derive(Debug)]
pub struct GraphTables {
    /// The graph's id.
    pub id: GraphId,
    /// The version that the graph's author gave it.
    pub version: String,
    /// The SHA-256 of the text that its signature covers.
    pub digest: Digest,
    /// The fingerprint of the key that signed it.
    pub signer: Fingerprint,
    /// The node that a run begins with, or that begins the branches of a run that begins in several nodes.
    pub start: u16,
    /// The settings of its runs.
    pub settings: Settings,
    /// The capabilities that the graph declares.
    pub permissions: Grants,
    /// The environment variables that it requires.
    pub env: Vec<String>,
    /// The keys of the state.
    pub keys: Vec<CompiledKey>,
    /// The tools that nodes and hooks call.
    pub tools: Vec<CompiledTool>,
    /// The nodes.
    pub nodes: Vec<CompiledNode>,
    /// The facts about it that its calls receive.
    pub(crate) facts: Arc<GraphFacts>,
    /// The hooks, in the order of the file.
    pub hooks: Vec<CompiledHook>,
    /// Whether the writes of a step are combined, because any key is a channel or any node shares keys.
    pub combines_writes: bool,
    /// Whether the reducer of any channel is a function of the program.
    pub has_functions: bool,
    /// The channels that have their values in the step after a write only.
    pub kept_for_a_step: Vec<usize>,
    /// Whether any return cancels the branches that are active.
    pub has_cancelling: bool,
    /// Whether elements of channels are put in the order of the branches.
    pub has_ordered: bool,
    /// Whether any node waits.
    pub can_wait: bool,
    /// Whether any node waits, or may begin a nested run that does.
    pub can_park: bool,
    /// Whether any node asks how often it was visited.
    pub counts_visits: bool,
    /// The fan-outs that have joins.
    fan_outs: FanOuts,
}

impl GraphTables {
    /// Returns the node with that index, which must exist.
    #[inline]
    pub fn node(&self, at: u16) -> &CompiledNode {
        &self.nodes[usize::from(at)]
    }

    /// Describes the graph: id, version and digest.
    pub fn shown(&self) -> String {
        format!("{} {} ({})", self.id, self.version, self.digest)
    }

    /// Whether a run begins in several nodes. The node [`start`](Self::start) begins their branches, and is not visited.
    #[inline]
    pub fn starts_in_branches(&self) -> bool {
        matches!(self.node(self.start).kind, CompiledKind::Start)
    }

    /// Returns the nodes that runs can visit.
    pub fn visited(&self) -> impl Iterator<Item = &CompiledNode> {
        self.nodes.iter().filter(|node| !matches!(node.kind, CompiledKind::Start))
    }

    /// Returns the nodes that a run visits first, of which there is one at least.
    pub fn first_nodes(&self) -> impl Iterator<Item = u16> {
        let several = self.starts_in_branches().then(|| self.node(self.start).targets().flatten());
        let one = several.is_none().then_some(self.start);
        one.into_iter().chain(several.into_iter().flatten())
    }

    /// Returns the node that a run from the start visits first, or the first one of several: hooks and failures there name it.
    pub fn first_node(&self) -> u16 {
        self.first_nodes().next().unwrap_or(self.start)
    }

    /// Returns where an edge of a node leads, if there is such an edge: to a node, or out.
    #[inline]
    pub fn target(&self, node: u16, edge: u16) -> Option<Option<u16>> {
        self.node(node).next.target(edge)
    }

    /// Whether a run may end at a node although none of its edges matches.
    pub fn may_end(&self, node: u16) -> bool {
        self.node(node).next.is_empty() || self.settings.on_no_match == OnNoMatch::Return
    }

    /// Returns the index of the node that is called `name`.
    #[inline]
    pub fn node_named(&self, name: &str) -> Option<u16> {
        u16::try_from(self.nodes.iter().position(|node| node.name == name)?).ok()
    }

    /// Returns the index of the state key that is called `name`.
    #[inline]
    pub fn key_named(&self, name: &str) -> Option<usize> {
        self.keys.iter().position(|key| key.name == name)
    }

    /// Returns the tool with that index, if there is one.
    #[inline]
    pub fn tool(&self, at: u16) -> Option<&CompiledTool> {
        self.tools.get(usize::from(at))
    }

    /// Returns the hooks of an event, in order.
    pub fn hooks(&self, event: Event) -> impl Iterator<Item = &CompiledHook> {
        self.hooks.iter().filter(move |hook| hook.event == event)
    }

    /// Builds the request for a node's call. `item` is the name that a foreach gives to an item, and the item.
    ///
    /// # Errors
    ///
    /// If the item's id is a template that does not yield an id.
    #[inline(always)]
    pub fn request(
        &self,
        call: &CallTerm,
        context: &EvalContext<'_>,
        item: Option<(&str, &Value)>,
        notes: &mut Notes,
    ) -> Result<Request, Box<Failure>> {
        let Some((name, item)) = item else { return self.scope(context).request(call, notes) };
        let local = Local { name, value: item.view() };
        Scope { local: View::Object(&local), ..self.scope(context) }.request(call, notes)
    }

    /// Evaluates a term before a node's calls.
    pub fn evaluate(&self, term: &CompiledTerm, context: &EvalContext<'_>, notes: &mut Notes) -> Value {
        self.scope(context).evaluate(term, notes)
    }

    /// Computes the assignments of a node after its calls, which returned `result`.
    #[inline]
    pub fn assign(
        &self,
        node: u16,
        context: &EvalContext<'_>,
        result: View<'_>,
        notes: &mut Notes,
        changes: &mut Vec<Change>,
    ) {
        let assign = &self.node(node).assign;
        changes.reserve_exact(assign.len());
        for (key, term) in assign {
            let value = Scope { changes, result, ..self.scope(context) }.evaluate(term, notes);
            changes.push(Change { key: *key, value });
        }
    }

    /// As [`GraphTables::assign`] and [`GraphTables::edges`], for a node that writes to channels: `changes` receives the
    /// writes, and the node's later assignments and its edges see the channels with those writes combined.
    ///
    /// `changes` may have the list that a foreach collected already.
    ///
    /// # Errors
    ///
    /// As [`GraphTables::edges`], or if a value cannot be a write to its channel.
    pub fn assign_to_channels(
        &self,
        node: u16,
        context: &EvalContext<'_>,
        result: View<'_>,
        notes: &mut Notes,
        changes: &mut Vec<Change>,
    ) -> Result<TakenEdges, Box<Failure>> {
        let node = self.node(node);
        notes.forget_reduced();
        let mut seen: Vec<SeenKey<'_>> = Vec::new();
        for &key in &node.reset {
            seen.push(SeenKey { key, value: Seen::Value(self.keys[key].initial.clone().unwrap_or_default()) });
        }
        for (key, value) in writes_in(node, changes) {
            self.see(node, context, (key, value), notes, &mut seen)?;
        }
        changes.reserve_exact(node.assign.len());
        for (key, term) in &node.assign {
            let value = Scope { seen: &seen, result, ..self.scope(context) }.evaluate(term, notes);
            self.see(node, context, (*key, &value), notes, &mut seen)?;
            changes.push(Change { key: *key, value });
        }
        Scope { seen: &seen, result, ..self.scope(context) }.route(node, notes)
    }

    /// Returns the writes of a node's changes, each with its key. The change of a key that the node shares has several.
    pub fn writes<'c>(&self, node: u16, changes: &'c [Change]) -> impl Iterator<Item = (usize, &'c Value)> {
        writes_in(self.node(node), changes)
    }

    /// Adds the value of a key after a node's own write to it, if the node reads it.
    fn see<'s>(
        &self,
        node: &CompiledNode,
        context: &EvalContext<'s>,
        (key, write): (usize, &Value),
        notes: &mut Notes,
        seen: &mut Vec<SeenKey<'s>>,
    ) -> Result<(), Box<Failure>> {
        let failed = |error: Uncombined| Box::new(Failure::permanent(unwritten(&self.keys[key].name, &error)));
        let is_read = node.seen.contains(&key);
        // Most writes surely combine and are read by nothing in the node. For these no value is copied.
        if let Some(reducer) = self.keys[key].reducer.as_ref().filter(|_| !is_read && self.keys[key].keep.is_none())
            && seen.iter().all(|seen| seen.key != key)
            && reducer.surely_combines(context.state.get(key), write)
            && reducer.check(write).is_ok()
        {
            return Ok(());
        }
        let before = seen.iter().position(|seen| seen.key == key).map(|at| seen.swap_remove(at).value);
        let value = match (&self.keys[key].reducer, before) {
            (None, _) => Seen::Value(write.clone()),
            (Some(reducer), before) => {
                reducer.check(write).map_err(failed)?;
                let before = match self.keys[key].keep {
                    // Nothing else depends on the value.
                    Some(Keep::Memory) => return Ok(()),
                    Some(Keep::Step) if before.is_none() => {
                        Some(Seen::Value(self.keys[key].initial.clone().unwrap_or_default()))
                    }
                    Some(Keep::Step) | None => before,
                };
                match (before, context.state.get(key)) {
                    (_, _) if *reducer == Reducer::Last => Seen::Value(write.clone()),
                    (None, View::List(committed)) if reducer.makes_list() => {
                        let mut writes = ListWrites::default();
                        writes.write(reducer, committed, write.clone());
                        Seen::List(GrownList { committed, writes })
                    }
                    (Some(Seen::List(mut list)), _) => {
                        list.writes.write(reducer, list.committed, write.clone());
                        Seen::List(list)
                    }
                    (before, committed) => {
                        let value = match before {
                            Some(Seen::Value(value)) => value,
                            _ => committed.to_plain_value(),
                        };
                        let value = combine(context.state, key, reducer, value, write).map_err(failed)?;
                        if !is_read {
                            return Ok(());
                        }
                        if reducer.function().is_some() {
                            notes.reduced(key, value.clone());
                        }
                        Seen::Value(value)
                    }
                }
            }
        };
        seen.push(SeenKey { key, value });
        Ok(())
    }

    /// Returns the edge that a node takes after its calls, which returned `result`, and its assignments, if its route is the
    /// first of a list whose condition holds. `None` decides nothing: [`GraphTables::edges`] decides then.
    ///
    /// An index is returned in a register. The result of [`GraphTables::edges`] is returned through memory, which costs a
    /// third of the choice.
    #[inline]
    pub fn first_edge(
        &self,
        node: u16,
        context: &EvalContext<'_>,
        result: View<'_>,
        changes: &[Change],
    ) -> Option<u16> {
        let CompiledRoute::First(edges) = &self.node(node).next else { return None };
        let scope = Scope { changes, result, ..self.scope(context) };
        for (edge, index) in edges.iter().zip(0..) {
            if scope.holds(&edge.when).ok()? {
                return Some(index);
            }
        }
        None
    }

    /// Returns the edges that a node takes after its calls, which returned `result`, and its assignments.
    ///
    /// # Errors
    ///
    /// If a condition compares values that cannot be compared, or no condition holds where one must.
    #[inline(never)]
    pub fn edges(
        &self,
        node: u16,
        context: &EvalContext<'_>,
        result: View<'_>,
        notes: &mut Notes,
        changes: &[Change],
    ) -> Result<TakenEdges, Box<Failure>> {
        Scope { changes, result, ..self.scope(context) }.route(self.node(node), notes)
    }

    /// Returns where the secrets are in a value that a node writes to a key.
    pub fn mask_of_write(&self, key: &str, write: &Value) -> Option<&Mask> {
        let mask = self.settings.secrets.keys.get(key)?;
        let is_element = match self.settings.channels.get(key) {
            Some(Reducer::Append) => true,
            Some(Reducer::Messages { .. }) => !write.is_array(),
            _ => false,
        };
        match mask {
            Mask::Each(element) if is_element => Some(element),
            mask => Some(mask),
        }
    }

    /// Whether a text may be the message of a node's write to a channel that cannot be combined with its value.
    pub fn may_be_uncombined(&self, node: u16, message: &str) -> bool {
        let node = self.node(node);
        let mut written = node.assign.iter().map(|(key, _)| *key).chain(node.kind.collects());
        written.any(|key| {
            let CompiledKey { name, reducer: Some(reducer), .. } = &self.keys[key] else { return false };
            message.strip_prefix(&unwritten(name, &"")).is_some_and(|why| reducer.may_fail_with(why))
        })
    }

    /// Whether a node can fail with that message after its calls succeeded: a value cannot be written to its channel, or
    /// its edges cannot be evaluated.
    pub fn may_fail_to_route(&self, node: u16, message: &str) -> bool {
        if self.may_be_uncombined(node, message) {
            return true;
        }
        let node = self.node(node);
        let is_asked = self.settings.on_no_match == OnNoMatch::Fail && !node.next.is_empty();
        if is_asked && no_match(node).message == message {
            return true;
        }
        match &node.next {
            CompiledRoute::Each(each) => {
                let is_too_long = |(length, most): (&str, &str)| {
                    let most: Option<usize> = most.parse().ok();
                    most == Some(each.most()) && length.parse().is_ok_and(|length: usize| Some(length) > most)
                };
                let lengths = message.strip_prefix("`over` has ").and_then(|rest| rest.split_once(ELEMENTS));
                return lengths.is_some_and(is_too_long) || message.starts_with(NO_LIST);
            }
            CompiledRoute::By(by) => {
                let found = message.strip_prefix(&no_target(&by.by.written, ""));
                let is_known = |found: &str| by.to.iter().any(|(word, _)| found == format!("`{word}`"));
                return found.is_some_and(|found| !found.is_empty() && !is_known(found));
            }
            CompiledRoute::First(_) | CompiledRoute::All(_) => {}
        }
        let says_so = |test: &Comparison| {
            let right = describe(test.right.view());
            let error = message.strip_suffix(&format!(" with {right}, at `{}`", test.left.written));
            error.is_some_and(|error| error.starts_with(&format!("`{}` cannot compare ", test.operator)))
        };
        node.next.edges().iter().any(|edge| edge.when.tests().into_iter().any(says_so))
    }

    /// Returns the output of a run that ends at a node.
    pub fn output(&self, at: u16, context: &EvalContext<'_>, notes: &mut Notes) -> Value {
        let scope = self.scope(context);
        match &self.node(at).kind {
            CompiledKind::Return(Some(term)) => scope.evaluate(term, notes),
            _ => scope.keys(),
        }
    }

    /// Returns the keys that are set, which are the output of a run that reached its step limit.
    pub fn keys(&self, context: &EvalContext<'_>) -> Value {
        self.scope(context).keys()
    }

    /// Returns a hook's reaction to an event with the values `values`; `None` if its condition does not hold.
    ///
    /// # Errors
    ///
    /// If the condition compares values that cannot be compared, or an item's id is invalid.
    pub fn hook(
        &self,
        hook: &CompiledHook,
        context: &EvalContext<'_>,
        values: &Value,
        notes: &mut Notes,
    ) -> Result<Option<Steering>, Box<Failure>> {
        let scope = Scope { local: values.view(), ..self.scope(context) };
        if !scope.holds(&hook.when)? {
            return Ok(None);
        }
        Ok(Some(match &hook.does {
            Does::Call(call) => Steering::Call(scope.request(call, notes)?),
            Does::Steer(term) => Steering::Answer(scope.evaluate(term, notes)),
        }))
    }

    #[inline(always)]
    fn scope<'a>(&'a self, context: &'a EvalContext<'a>) -> Scope<'a> {
        Scope { context, changes: &[], seen: &[], result: View::Null, local: View::Null, graph: self }
    }
}

/// A hook's reaction to an event.
pub enum Steering {
    /// Calls a tool.
    Call(Request),
    /// Has an answer of its own.
    Answer(Value),
}

/// A name and its value.
struct Local<'a> {
    name: &'a str,
    value: View<'a>,
}

impl NamedFields for Local<'_> {
    fn get(&self, name: &str) -> View<'_> {
        if name == self.name { self.value } else { View::Null }
    }

    fn each(&self, visit: &mut dyn FnMut(&str, View<'_>)) {
        visit(self.name, self.value);
    }
}

/// Returns the writes of a node's changes, each with its key.
fn writes_in<'c>(node: &CompiledNode, changes: &'c [Change]) -> impl Iterator<Item = (usize, &'c Value)> {
    changes
        .iter()
        .flat_map(|Change { key, value }| writes_of(value, node.share.contains(key)).iter().map(|write| (*key, write)))
}

/// The value of a key after a node's own writes.
struct SeenKey<'a> {
    key: usize,
    value: Seen<'a>,
}

enum Seen<'a> {
    Value(Value),
    List(GrownList<'a>),
}

impl Seen<'_> {
    fn view(&self) -> View<'_> {
        match self {
            Self::Value(value) => value.view(),
            Self::List(list) => View::List(list),
        }
    }
}

/// A list with elements that a node writes to it. The list itself is not copied.
struct GrownList<'a> {
    committed: &'a dyn Sequence,
    writes: ListWrites,
}

impl Sequence for GrownList<'_> {
    fn len(&self) -> usize {
        self.committed.len() + self.writes.added.len()
    }

    fn at(&self, index: usize) -> View<'_> {
        self.writes.at(self.committed, index)
    }
}

/// The values that expressions refer to.
struct Scope<'a> {
    context: &'a EvalContext<'a>,
    /// The node's assignments so far; they shadow the state (R94, R95).
    changes: &'a [Change],
    /// The keys that the node wrote, in a node that writes to channels. They take the place of `changes`.
    seen: &'a [SeenKey<'a>],
    result: View<'a>,
    /// The names that are known only here, as an object.
    local: View<'a>,
    graph: &'a GraphTables,
}

impl Scope<'_> {
    /// Builds the request for the call of a node or hook.
    fn request(&self, call: &CallTerm, notes: &mut Notes) -> Result<Request, Box<Failure>> {
        let id = call.id.as_ref().map(|term| item_id(self.evaluate(term, notes))).transpose()?;
        let mut arguments = Arguments::default();
        match &call.params {
            ArgumentTerms::Object(term) => arguments.push(without_nulls(self.evaluate(term, notes))),
            ArgumentTerms::Listed(list) => {
                arguments.reserve(list.len());
                for (term, default) in list {
                    let value = term.as_ref().map_or(Value::Null, |term| without_nulls(self.evaluate(term, notes)));
                    arguments.push(if value.is_null() { default.clone() } else { value });
                }
            }
        }
        Ok(Request { tool: call.tool, id, arguments })
    }

    /// Follows a reference. There is no view of the whole state; [`Scope::value`] returns it.
    #[inline]
    fn view(&self, reference: &ResolvedPath) -> View<'_> {
        let base = match reference.root {
            PathBase::Key(key) => self.key(key),
            PathBase::Result => self.result,
            PathBase::Inputs => self.context.state.inputs(),
            PathBase::LastError => self.context.last_error.map_or(View::Null, |error| View::Object(error)),
            PathBase::Retries => View::Object(&self.context.retries),
            PathBase::Visit => return View::Integer(i64::try_from(self.context.visit).unwrap_or(i64::MAX)),
            PathBase::Branch => {
                return self.context.frame.map_or(View::Null, |frame| View::Integer(i64::from(frame.branch)));
            }
            PathBase::Previous => self.context.previous.map_or(View::Null, AsView::view),
            PathBase::Local => self.local,
            PathBase::Now => return View::Text(self.context.now.text()),
            PathBase::Timestamp => return View::Integer(self.context.now.milliseconds()),
            PathBase::Argument(argument) => self.argument(argument),
            PathBase::State => View::Null,
        };
        if reference.segments.is_empty() { base } else { path::follow(base, &reference.segments) }
    }

    #[inline]
    fn key(&self, key: usize) -> View<'_> {
        if !self.changes.is_empty()
            && let Some(change) = self.changes.iter().find(|change| change.key == key)
        {
            return change.value.view();
        }
        if let Some(seen) = self.seen.iter().find(|seen| seen.key == key) {
            return seen.value.view();
        }
        self.context.state.get(key)
    }

    #[inline]
    fn value(&self, reference: &ResolvedPath) -> Value {
        match reference.root {
            PathBase::State => self.keys(),
            _ => self.view(reference).to_plain_value(),
        }
    }

    /// Returns all keys that are set, except those that do not keep their values.
    fn keys(&self) -> Value {
        let mut map = Map::new();
        for (key, CompiledKey { name, keep, .. }) in self.graph.keys.iter().enumerate() {
            if keep.is_some() {
                continue;
            }
            let view = self.key(key);
            if !view.is_null() {
                map.insert(name.clone(), view.to_plain_value());
            }
        }
        Value::Object(map)
    }

    /// Returns the first value that is not null, or null with a note if all are null (R64, R68).
    fn first(&self, references: &[ResolvedPath], notes: &mut Notes) -> Value {
        for reference in references {
            let value = self.value(reference);
            if !value.is_null() {
                return value;
            }
        }
        self.found_nothing(references, notes);
        Value::Null
    }

    /// Notes that none of `references` found anything, unless one of them reads the node's last result on its first visit:
    /// it cannot exist then.
    #[cold]
    fn found_nothing(&self, references: &[ResolvedPath], notes: &mut Notes) {
        // Nor is there a note if the graph gives the key null as its first value, or if no journal has the key: the note would
        // depend on whether the run was resumed.
        let is_meant = |reference: &ResolvedPath| match reference.root {
            PathBase::Key(key) if self.graph.keys[key].is_in_memory() => true,
            PathBase::Key(key) => reference.segments.is_empty() && self.graph.keys[key].initial == Some(Value::Null),
            _ => false,
        };
        if references.iter().any(is_meant) {
            return;
        }
        let looks_back = |reference: &ResolvedPath| matches!(reference.root, PathBase::Previous);
        if self.context.previous.is_some() || !references.iter().any(looks_back) {
            notes.resolved_to_nothing(references.iter().map(|reference| reference.written.as_str()));
        }
    }

    #[inline]
    fn evaluate(&self, term: &CompiledTerm, notes: &mut Notes) -> Value {
        match term {
            CompiledTerm::Literal(value) => value.clone(),
            CompiledTerm::First(references) => self.first(references, notes),
            CompiledTerm::List(terms) => terms.iter().map(|term| self.evaluate(term, notes)).collect(),
            CompiledTerm::Object(fields) => {
                Value::Object(fields.iter().map(|(name, term)| (name.clone(), self.evaluate(term, notes))).collect())
            }
            CompiledTerm::Text(pieces) => {
                let mut text = String::new();
                for piece in pieces {
                    match piece {
                        TextPiece::Text(literal) => text.push_str(literal),
                        TextPiece::First(references) => self.write(references, &mut text, notes),
                        TextPiece::Input(reference, otherwise) => {
                            self.write_input(reference, otherwise, &mut text, notes);
                        }
                    }
                }
                Value::String(text)
            }
        }
    }

    fn write(&self, references: &[ResolvedPath], text: &mut String, notes: &mut Notes) {
        for reference in references {
            if let PathBase::State = reference.root {
                return self.keys().view().write_text(text);
            }
            let view = self.view(reference);
            if !view.is_null() {
                return view.write_plain_text(text);
            }
        }
        self.found_nothing(references, notes);
    }

    /// Writes an input. If the input is not given and the reference has no default text, the reference stays as it is
    /// written (R71).
    fn write_input(&self, reference: &ResolvedPath, otherwise: &InputReference, text: &mut String, notes: &mut Notes) {
        let view = self.view(reference);
        match otherwise {
            _ if !view.is_null() => view.write_plain_text(text),
            InputReference::Text(otherwise) => text.push_str(otherwise),
            InputReference::AsWritten(written) => {
                text.push_str(written);
                self.found_nothing(std::slice::from_ref(reference), notes);
            }
        }
    }

    /// Returns the edges of a node that are taken: of a list, the first whose condition holds (R89).
    #[inline]
    fn route(&self, node: &CompiledNode, notes: &mut Notes) -> Result<TakenEdges, Box<Failure>> {
        let CompiledRoute::First(edges) = &node.next else { return self.route_otherwise(node, notes) };
        for (edge, index) in edges.iter().zip(0..) {
            if self.holds(&edge.when)? {
                return Ok(TakenEdges::One(index));
            }
        }
        self.no_edge(node)
    }

    #[cold]
    fn route_otherwise(&self, node: &CompiledNode, notes: &mut Notes) -> Result<TakenEdges, Box<Failure>> {
        let edges = match &node.next {
            CompiledRoute::First(edges) | CompiledRoute::All(edges) => edges,
            CompiledRoute::Each(each) => return self.route_over(each, notes),
            CompiledRoute::By(by) => return self.route_by(by),
        };
        let mut taken = Vec::new();
        for (edge, index) in edges.iter().zip(0..) {
            if self.holds(&edge.when)? {
                taken.push(index);
            }
        }
        if taken.is_empty() {
            self.no_edge(node)?;
        }
        Ok(TakenEdges::Many(Arc::new(taken)))
    }

    /// Returns the elements that branches begin for. Null counts as a list without elements, as for a foreach.
    fn route_over(&self, each: &ListRoute, notes: &mut Notes) -> Result<TakenEdges, Box<Failure>> {
        let list = match self.evaluate(&each.over, notes) {
            Value::Array(list) => list,
            Value::Null => Vec::new(),
            other => {
                let found = describe(other.view());
                return Err(Box::new(Failure::permanent(format!("{NO_LIST}{found}"))));
            }
        };
        let most = each.most();
        if list.len() > most {
            let length = list.len();
            return Err(Box::new(Failure::permanent(format!("`over` has {length}{ELEMENTS}{most}"))));
        }
        Ok(TakenEdges::Over(Arc::new(list)))
    }

    /// Returns the edge for a value, which is looked up as a word.
    fn route_by(&self, by: &ValueRoute) -> Result<TakenEdges, Box<Failure>> {
        let value = self.view(&by.by);
        let word = match value {
            View::Text(word) => Some(word),
            View::Boolean(true) => Some("true"),
            View::Boolean(false) => Some("false"),
            View::Null => Some("null"),
            _ => None,
        };
        let place = word.and_then(|word| by.to.iter().position(|(known, _)| known == word));
        match place.and_then(|place| u16::try_from(place).ok()) {
            Some(edge) => Ok(TakenEdges::One(edge)),
            None => {
                let found = word.map_or_else(|| describe(value), |word| format!("`{word}`"));
                Err(Box::new(Failure::permanent(no_target(&by.by.written, &found))))
            }
        }
    }

    /// Returns the list element to which a route gave that name, in the innermost branch that the route began.
    #[cold]
    fn argument(&self, argument: u16) -> View<'_> {
        let of_route = |frame: &&Arc<Frame>| match &self.graph.node(frame.fan.node).next {
            CompiledRoute::Each(each) => each.argument == argument,
            CompiledRoute::First(_) | CompiledRoute::All(_) | CompiledRoute::By(_) => false,
        };
        let frame = frames(self.context.frame).find(of_route);
        let element = frame.and_then(|frame| frame.fan.list.get(usize::try_from(frame.branch).ok()?));
        element.map_or(View::Null, AsView::view)
    }

    fn no_edge(&self, node: &CompiledNode) -> Result<TakenEdges, Box<Failure>> {
        if self.graph.settings.on_no_match == OnNoMatch::Fail && !node.next.is_empty() {
            return Err(Box::new(no_match(node)));
        }
        Ok(TakenEdges::None)
    }

    #[inline(always)]
    fn holds(&self, when: &EdgeCondition) -> Result<bool, Box<Failure>> {
        match when {
            EdgeCondition::Always => Ok(true),
            EdgeCondition::All(tests) => {
                for test in tests {
                    if !self.test(test)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            EdgeCondition::Tree(condition) => condition.holds(&mut |test| self.test(test)),
        }
    }

    #[inline(always)]
    fn test(&self, test: &Comparison) -> Result<bool, Box<Failure>> {
        // Most conditions compare a key of the state, or a field of the result, with a whole number.
        let left = match (&test.left.root, test.left.segments.as_slice()) {
            (PathBase::Key(key), []) if self.changes.is_empty() && self.seen.is_empty() => self.context.state.get(*key),
            (PathBase::Result, [field]) => self.result.step(field),
            _ => return self.test_any(test),
        };
        if let (View::Integer(left), Some(right)) = (left, test.whole)
            && let Some(holds) = test.operator.holds_of_integers(left, right)
        {
            return Ok(holds);
        }
        self.test_any(test)
    }

    /// Like [`Scope::test`], for all values and operators.
    #[inline(never)]
    fn test_any(&self, test: &Comparison) -> Result<bool, Box<Failure>> {
        let whole;
        let left = match test.left.root {
            PathBase::State => {
                whole = self.keys();
                whole.view()
            }
            _ => self.view(&test.left),
        };
        if let (View::Integer(left), Some(right)) = (left, test.whole)
            && let Some(holds) = test.operator.holds_of_integers(left, right)
        {
            return Ok(holds);
        }
        let pattern = |text: &str| test.pattern.as_ref().is_some_and(|pattern| pattern.is_match(text));
        test.operator
            .holds(left, &test.right, pattern)
            .map_err(|error| Box::new(Failure::permanent(format!("{error}, at `{}`", test.left.written))))
    }
}

/// Returns the failure of a node whose edges cannot be taken.
#[cold]
fn no_match(node: &CompiledNode) -> Failure {
    let edges: Vec<&str> = node.next.edges().iter().map(|edge| edge.shown.as_str()).collect();
    Failure::permanent(format!("no edge matches; there are {}", edges.join(", ")))
}

/// Converts the value of a template to an item's id.
fn item_id(value: Value) -> Result<ItemId, Box<Failure>> {
    let failure = |message: String| Box::new(Failure::permanent(message));
    match value {
        Value::String(text) => ItemId::new(text).map_err(|error| failure(format!("`item_id` is no id: {error}"))),
        other => Err(failure(format!("`item_id` is a string, and found {}", describe(other.view())))),
    }
}

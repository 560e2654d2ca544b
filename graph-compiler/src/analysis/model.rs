//! A graph with its names resolved: edges, calls and reads. Nothing here depends on paths through the graph.

use std::borrow::Cow;

use graph_definition::definition::{
    CallDefinition, ChannelDefinition, Contract, Definition, NodeDefinition, NodeKind, RouteDefinition, SIGNAL,
    Spanned, TermDefinition, TermKind, ValueSchema, WaitDefinition,
};
use graph_definition::diagnostic::SourcePlace;
use graph_definition::hash::{HashMap, HashSet};
use graph_definition::source::Span;
use graph_model::capability::Pattern;
use graph_model::name::{ItemId, StateKey as Name};
use graph_model::path::{Path, Root};
use graph_model::program::{LAST_ERROR, OnError, OnMaxSteps, OnNoMatch, THREAD_DIRECTIVE};
use graph_model::reducer::Keep;
use graph_model::template::Template;
use graph_model::value::Value;

use super::calls::{CalledTool, Caller, Need, StartedTask, TaskCall, calls, need, task_of, tool_key, waits_for_thread};
use super::components::cyclic;
use super::edges::{Onward, edges, followed, onward};
use super::provided::{field, or_failure, run_of_thread};
use super::reads::{PathRead, Site, reads};
use crate::items::{InnerKey, InnerKeys, Items, TaskItem, TaskTarget};
use crate::types::{Type, TypeKind, TypedField};

/// A definition whose names are resolved.
pub(crate) struct Model<'d> {
    pub(crate) definition: &'d Definition,
    /// The items of the tree that actions can refer to.
    pub(crate) items: &'d Items,
    /// The first node, if `start` names one; the node that begins the first branches, if it names several.
    pub(crate) start: Option<usize>,
    /// The node of each entry; `None` if no node has the name that it says.
    pub(crate) entries: Vec<Option<usize>>,
    /// The tools, each once, in the order of the file.
    pub(crate) tools: Vec<CalledTool<'d>>,
    /// The type of the inputs.
    pub(crate) inputs: Type,
    /// The keys of the state: those of `config.state`, then those that are written, in the order of the file.
    pub(crate) keys: Vec<StateKey<'d>>,
    nodes_by_name: HashMap<&'d str, usize>,
    keys_by_name: HashMap<&'d str, usize>,
    /// The index of each input among the fields of `inputs`.
    inputs_by_name: HashMap<String, usize>,
    /// The position at which each call begins in the file, in that order, with its tool.
    tools_by_place: Vec<(usize, usize)>,
    /// For each node, the targets of `next` and of `on_error`.
    onward: Vec<Onward>,
    is_whole: bool,
    /// The names of the nodes that could not be read.
    unreadable: HashSet<&'d str>,
}

/// A key of the state.
pub(crate) struct StateKey<'d> {
    pub(crate) name: &'d str,
    /// Its first value, where `config.state` or its channel gives one.
    pub(crate) initial: Option<Cow<'d, Value>>,
    /// How its writes are combined, if it is a channel.
    pub(crate) channel: Option<&'d ChannelDefinition>,
    /// The function of the program that combines its writes, if its reducer is one.
    pub(crate) function: Option<Function<'d>>,
    /// Whether nodes of other graphs share it with runs of this one, which then begin with other values than its first.
    pub(crate) is_shared: bool,
}

impl StateKey<'_> {
    /// Returns how long it has its value, if not for the rest of the run.
    pub(crate) fn keep(&self) -> Option<Keep> {
        keep_of(self.channel)
    }
}

fn keep_of(channel: Option<&ChannelDefinition>) -> Option<Keep> {
    channel?.keep.as_ref().map(|keep| keep.value)
}

/// A function of the program that combines the writes to channels.
#[derive(Clone)]
pub(crate) struct Function<'d> {
    /// Its contract, if the tree has one.
    pub(crate) contract: Option<&'d Contract>,
    /// The type of a write.
    pub(crate) write: Type,
    /// The type of the value.
    pub(crate) value: Type,
}

impl<'d> Function<'d> {
    /// Finds the function with an id. Without a contract, its types are not known.
    fn new(id: &ItemId, items: &'d Items) -> Self {
        let contract = items.contracts.get(id).map(|contract| &**contract).filter(|contract| contract.is_reducer());
        let ty = |schema: Option<&ValueSchema>| schema.map_or_else(Type::any, Type::of_schema).not_null();
        Self {
            contract,
            write: ty(contract.map(|contract| &contract.params)),
            value: ty(contract.and_then(|contract| contract.result.as_ref())),
        }
    }
}

impl<'d> Model<'d> {
    /// Resolves the names of a definition.
    pub(crate) fn new(definition: &'d Definition, items: &'d Items) -> Self {
        let nodes = &definition.nodes;
        // No edge leads to the start of several nodes, so it has no name here.
        let of_file = nodes.iter().enumerate().filter(|(_, node)| !node.is_start());
        let nodes_by_name: HashMap<&str, usize> = of_file.map(|(at, node)| (node.name.value.as_str(), at)).collect();
        let named = || nodes_by_name.get(definition.start.as_ref()?.value.as_str()).copied();
        // No run can begin at a join, which is a mistake of the start.
        let named = || named().filter(|&at| nodes[at].waits_for.is_empty());
        let start = nodes.iter().position(NodeDefinition::is_start).or_else(named);
        let (tools, tools_by_place) = called_tools(definition, items);
        let inputs = definition.inputs.as_ref().map_or_else(Type::any, Type::of_schema).not_null();
        let inputs_by_name = match &inputs.kind {
            TypeKind::Object(fields) => fields.iter().enumerate().map(|(at, field)| (field.name.clone(), at)).collect(),
            _ => HashMap::default(),
        };
        let (keys, keys_by_name) = state_keys(definition, items);
        let mut model = Self {
            definition,
            items,
            start,
            entries: Vec::new(),
            tools,
            inputs,
            keys,
            onward: nodes.iter().map(|node| onward(node, &nodes_by_name)).collect(),
            nodes_by_name,
            keys_by_name,
            inputs_by_name,
            tools_by_place,
            is_whole: false,
            unreadable: definition.unreadable.iter().map(String::as_str).collect(),
        };
        model.entries = definition.entries.iter().map(|entry| model.node(entry.node.value.as_str())).collect();
        model.is_whole = model.leads_to_nodes();
        model
    }

    /// Returns an input, if the graph declares its inputs and has one with this name.
    pub(crate) fn input(&self, name: &str) -> Option<&TypedField> {
        let TypeKind::Object(fields) = &self.inputs.kind else { return None };
        fields.get(*self.inputs_by_name.get(name)?)
    }

    /// Returns the index of a key.
    pub(crate) fn key(&self, name: &str) -> Option<usize> {
        self.keys_by_name.get(name).copied()
    }

    /// Returns the index of a key; for the last error, the index after all keys.
    pub(crate) fn key_or_last_error(&self, name: &str) -> Option<usize> {
        if name == LAST_ERROR { Some(self.keys.len()) } else { self.key(name) }
    }

    /// Calls `visit` with each path that the graph reads.
    pub(crate) fn reads(&self, visit: &mut impl FnMut(PathRead<'d>)) {
        reads(self.definition, visit);
    }

    pub(crate) fn place(&self, span: &Span) -> SourcePlace {
        self.definition.place(span)
    }

    pub(crate) fn node(&self, name: &str) -> Option<usize> {
        self.nodes_by_name.get(name).copied()
    }

    pub(crate) fn node_names(&self) -> impl Iterator<Item = &'d str> {
        self.definition.nodes.iter().filter(|node| !node.is_start()).map(|node| node.name.value.as_str())
    }

    /// Whether an edge may lead to this name. A node that could not be read counts: that is not the edge's mistake.
    pub(crate) fn is_node(&self, name: &str) -> bool {
        self.nodes_by_name.contains_key(name) || self.unreadable.contains(name)
    }

    /// Whether every edge leads to a node that could be read, so that statements about all runs are possible.
    pub(crate) fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Returns for each node whether its edges lead back to it in the end, whatever their conditions are.
    pub(crate) fn cyclic(&self) -> Vec<bool> {
        let next: Vec<Vec<usize>> = (0..self.onward.len()).map(|node| self.onward(node).collect()).collect();
        cyclic(&next)
    }

    fn leads_to_nodes(&self) -> bool {
        self.definition.is_well_formed
            && self.roots().count() > self.definition.entries.len()
            && self.definition.nodes.iter().all(|node| self.knows_targets(node))
    }

    /// Whether every node that a node leads to could be read.
    pub(crate) fn knows_targets(&self, node: &NodeDefinition) -> bool {
        edges(node.next())
            .iter()
            .filter_map(|edge| edge.to)
            .chain(node.on_error())
            .chain(node.on_timeout())
            .chain(node.fewer())
            .all(|to| self.node(to.value.as_str()).is_some())
    }

    /// Returns the nodes where runs begin: the start, and those of the entries.
    pub(crate) fn roots(&self) -> impl Iterator<Item = usize> + '_ {
        self.start.into_iter().chain(self.entries.iter().flatten().copied())
    }

    /// Returns the nodes that a run visits first which begins at the start.
    pub(crate) fn first(&self) -> Vec<usize> {
        match self.start {
            Some(start) if self.definition.nodes[start].is_start() => self.successors(start).collect(),
            start => start.into_iter().collect(),
        }
    }

    /// Returns the nodes that `next` may lead to, in order, without edges after one that always matches.
    pub(crate) fn successors(&self, node: usize) -> impl Iterator<Item = usize> + '_ {
        self.onward[node].next.iter().copied()
    }

    /// Returns the indices, in the list of edges, of the edges that lead to the nodes of [`Model::successors`].
    pub(crate) fn edge_indices(&self, node: usize) -> impl Iterator<Item = usize> + '_ {
        self.onward[node].edges.iter().copied()
    }

    /// Returns the node that is visited instead of a join if too few branches can arrive.
    pub(crate) fn fewer_successor(&self, node: usize) -> Option<usize> {
        self.onward[node].fewer
    }

    /// Returns the node that follows when a wait for signals has lasted its time.
    pub(crate) fn timeout_successor(&self, node: usize) -> Option<usize> {
        self.onward[node].on_timeout
    }

    /// Returns the nodes that a node leads to besides its edges: by its failure, by its time, and where too few branches can
    /// arrive at it. The node has written nothing then.
    pub(crate) fn other_successors(&self, node: usize) -> impl Iterator<Item = usize> + '_ {
        let Onward { on_error, on_timeout, fewer, .. } = self.onward[node];
        on_error.into_iter().chain(on_timeout).chain(fewer)
    }

    /// Returns the nodes that a node leads to: by its edges, and otherwise.
    pub(crate) fn onward(&self, node: usize) -> impl Iterator<Item = usize> + '_ {
        self.successors(node).chain(self.other_successors(node))
    }

    pub(crate) fn error_successor(&self, node: usize) -> Option<usize> {
        self.onward[node].on_error
    }

    /// Whether the run may end at this node: it returns, has no `next`, or it is possible that none of its edges matches.
    pub(crate) fn may_end(&self, node: usize) -> bool {
        let next = self.definition.nodes[node].next();
        let edges = followed(next);
        let ends_without_match = self.definition.settings.on_no_match == OnNoMatch::Return || edges.is_empty();
        match next {
            RouteDefinition::End => true,
            RouteDefinition::To(_) => false,
            // An empty list begins no branch, but a join is visited all the same.
            RouteDefinition::Each(_) => false,
            RouteDefinition::By(by) => by.to.iter().any(|(_, to)| to.is_none()),
            RouteDefinition::First(_) | RouteDefinition::All(_) => {
                edges.iter().any(|edge| edge.to.is_none())
                    || (ends_without_match && !edges.iter().any(|edge| edge.always))
            }
        }
    }

    /// Whether a run that has used up its steps ends as if its last node had no edge to follow.
    pub(crate) fn may_end_anywhere(&self) -> bool {
        self.definition.settings.on_max_steps != OnMaxSteps::Fail
    }

    /// Returns the calls of nodes and hooks, in the order of the file.
    pub(crate) fn calls(&self) -> impl Iterator<Item = (Caller<'d>, &'d CallDefinition)> {
        calls(self.definition)
    }

    pub(crate) fn tool_index(&self, call: &CallDefinition) -> usize {
        let place = self.tools_by_place.binary_search_by_key(&call.span.start, |(start, _)| *start);
        self.tools_by_place[place.expect("every call was gathered")].1
    }

    pub(crate) fn tool(&self, call: &CallDefinition) -> &CalledTool<'d> {
        &self.tools[self.tool_index(call)]
    }

    /// Returns the task that a call starts, if the runtime performs it.
    pub(crate) fn task(&self, call: &'d CallDefinition) -> Option<TaskCall<'d>> {
        task_of(call).filter(|_| self.is_of_runtime(call))
    }

    /// Returns what a call starts as a task, as far as the tree says it.
    pub(crate) fn started(&self, task: &StartedTask<'_>) -> Option<&'d TaskTarget> {
        self.items.tasks.get(task.name.as_ref()?)
    }

    /// Whether a tool for tasks or threads is the runtime's own, as far as the tree says it: threads of a tree without agents are those
    /// of the program.
    pub(crate) fn is_of_runtime(&self, call: &CallDefinition) -> bool {
        match self.tool(call).contract {
            Some(contract) => contract.builtin(),
            None => self.items.has_threads && self.tool(call).graph.is_none(),
        }
    }

    pub(crate) fn permissions(&self) -> impl Iterator<Item = &'d Spanned<Pattern>> {
        self.definition.permissions.iter().flat_map(|permissions| &permissions.value)
    }

    /// Returns the key of the graph that a node runs with the name of a key that it shares, if the graph is known and has it.
    pub(crate) fn inner_key(&self, node: &NodeDefinition, shared: &Spanned<Name>) -> Option<&InnerKey> {
        let InnerKeys::Known(keys) = &self.tool(node.call()?).graph?.keys else { return None };
        keys.iter().find(|inner| inner.key.name == shared.value.as_str())
    }

    /// Returns the type of `result` at a place; `None` if there is no `result`.
    pub(crate) fn result_at(&self, node: usize, site: Site) -> Option<Cow<'_, Type>> {
        if site == Site::Hook {
            return None;
        }
        let action = match &self.definition.nodes[node].kind {
            NodeKind::Action(action) => action,
            NodeKind::Wait(wait) if matches!(site, Site::Assign(_) | Site::Next) => {
                return match &wait.ask {
                    Some(ask) => Some(Cow::Owned(Type::of_schema(&ask.schema))),
                    None => self.received(wait).map(Cow::Owned),
                };
            }
            _ => return None,
        };
        let result = match self.is_other_tool(&action.call) {
            true => Cow::Owned(Type::any()),
            false => match self.result_of_thread(&action.call) {
                Some(result) => Cow::Owned(result),
                None => Cow::Borrowed(&self.tool(&action.call).result),
            },
        };
        match site {
            Site::Params | Site::Output | Site::Over | Site::Item | Site::Until | Site::Payload | Site::Hook => None,
            Site::Next if self.may_skip_assign(node) => Some(Cow::Owned(or_failure(&result))),
            Site::Assign(_) | Site::Next => Some(result),
        }
    }

    /// Returns the type of what the runtime's tool for threads yields, if the call waits for an agent whose answers have a known type.
    fn result_of_thread(&self, call: &'d CallDefinition) -> Option<Type> {
        let is_thread = call.id().is_some_and(|id| id.as_str() == THREAD_DIRECTIVE);
        let task = self.task(call).filter(|_| is_thread && waits_for_thread(call) == Some(true))?;
        let Some(TaskTarget::Found(TaskItem { answer: Some(answer), .. })) = self.started(task.name.as_ref()?) else {
            return None;
        };
        Some(run_of_thread(answer))
    }

    /// Whether a call gives several parameters, and none of them is one of its tool: the author means another tool.
    pub(crate) fn is_other_tool(&self, call: &CallDefinition) -> bool {
        let takes = self.tool(call).params.as_ref().map(|params| &params.kind);
        let (TermKind::Object(given), Some(TypeKind::Object(fields))) = (&call.params.kind, takes) else {
            return false;
        };
        given.len() > 1 && given.iter().all(|(key, _)| fields.iter().all(|field| field.name != key.value))
    }

    /// Returns the type of the `result` of a wait for signals: the name of the one that ended it, and its value in the field of
    /// that name.
    fn received(&self, wait: &WaitDefinition) -> Option<Type> {
        let names = || wait.signals.iter().map(|name| name.value.clone());
        if wait.signals.is_empty() {
            return None;
        }
        let mut fields = vec![field(SIGNAL, Type::of(TypeKind::Enum(names().collect())))];
        for name in names() {
            let ty = self.value_of_signal(&name);
            fields.push(field(&name, if wait.signals.len() == 1 { ty } else { ty.or_null() }));
        }
        Some(Type::of(TypeKind::Object(fields)))
    }

    /// Returns the type of the `result` of a wait for signals if the one with this name ended it.
    pub(crate) fn received_one(&self, wait: &WaitDefinition, name: &str) -> Type {
        let all = self.received(wait).unwrap_or_else(Type::any);
        let TypeKind::Object(fields) = all.kind else { return all };
        let field = |field: TypedField| TypedField {
            ty: match field.name.as_str() {
                SIGNAL => Type::of(TypeKind::Enum(vec![name.to_owned()])),
                other if other == name => self.value_of_signal(name),
                _ => Type::null(),
            },
            ..field
        };
        Type::of(TypeKind::Object(fields.into_iter().map(field).collect()))
    }

    fn value_of_signal(&self, name: &str) -> Type {
        let signal = self.definition.signals.iter().find(|signal| signal.name.value.as_str() == name);
        signal.map_or_else(Type::any, |signal| Type::of_schema(&signal.schema))
    }

    /// Whether a name is that of the item of a foreach, at a place in its node.
    pub(crate) fn is_item(&self, node: usize, site: Site, name: &str) -> bool {
        site == Site::Item && self.definition.nodes[node].each().is_some_and(|each| each.name.value == name)
    }

    /// Returns the type of `visit.previous` in a node: the result of its last successful visit, or null.
    ///
    /// # Errors
    ///
    /// Returns the reason if there is no previous result.
    pub(crate) fn previous_at(&self, node: usize) -> Result<Type, &'static str> {
        let definition = &self.definition.nodes[node];
        if definition.conduct().is_some_and(|conduct| !conduct.feedback) {
            return Err("the node says `feedback: false`");
        }
        // A failed visit leaves no previous result.
        let result = match (definition.call(), definition.each()) {
            (Some(_), Some(each)) if each.collect.is_some() => self.collected(node),
            (Some(call), None) => self.tool(call).result.clone(),
            _ => return Err(definition.kind.no_previous()),
        };
        Ok(result.or_null())
    }

    /// Whether a list that a node goes over has an element in every run: one that the graph writes, or an input whose schema asks for
    /// elements.
    pub(crate) fn surely_has_elements(&self, list: &TermDefinition) -> bool {
        match &list.kind {
            TermKind::List(list) => !list.is_empty(),
            TermKind::Literal(Value::Array(list)) => !list.is_empty(),
            TermKind::Template { template: Template::Whole(expression), .. } => match expression.paths.as_slice() {
                [Path { root: Root::Inputs, segments }] => {
                    let ty = segments.iter().try_fold(self.inputs.clone(), |ty, part| ty.step(part).ok());
                    ty.is_some_and(|ty| !ty.nullable && ty.known.least > 0)
                }
                _ => false,
            },
            _ => false,
        }
    }

    /// Returns the schema of the input that a path leads to.
    pub(crate) fn schema_of_input(&self, path: &Path) -> Option<&'d ValueSchema> {
        let inputs = self.definition.inputs.as_ref().filter(|_| path.root == Root::Inputs)?;
        path.segments.iter().try_fold(inputs, |schema, segment| self.definition.property(schema, segment))
    }

    /// Whether a failure of this node leads along its ordinary edges, without its assignments (R125).
    pub(crate) fn may_skip_assign(&self, node: usize) -> bool {
        let node = &self.definition.nodes[node];
        self.definition.settings.on_error == OnError::Continue
            && matches!(&node.kind, NodeKind::Action(action) if action.on_error.is_none())
    }

    /// Whether a path leads to a field of `result` that exists only if the node has failed: one that its tool does not
    /// return (R125).
    pub(crate) fn is_of_failure(&self, node: usize, path: &Path) -> bool {
        let (Root::Result, [field, ..]) = (path.root, path.segments.as_slice()) else { return false };
        let Some(call) = self.definition.nodes[node].call().filter(|_| self.may_skip_assign(node)) else {
            return false;
        };
        let is_returned = self.tool(call).result.step(field).is_ok();
        !is_returned && matches!(field.as_str(), "status" | "error")
    }

    /// Returns the type that a foreach collects: a list with one result for each item. If failures do not end the run,
    /// a failed item has its failure in the list (R113).
    pub(crate) fn collected(&self, node: usize) -> Type {
        let NodeKind::Foreach(each) = &self.definition.nodes[node].kind else { return Type::any() };
        let result = &self.tool(&each.call).result;
        let failures_stay = self.definition.settings.on_error == OnError::Continue && each.on_error.is_none();
        let element = match each.call.id() {
            // For a thread that continues by itself, only its id is collected (R108).
            Some(id) if id.as_str() == THREAD_DIRECTIVE => Type::any(),
            _ if failures_stay => or_failure(result),
            _ => result.clone(),
        };
        Type::of(TypeKind::List(Box::new(element)))
    }
}

/// Returns the tools that are called, each once, and the position at which each call begins in the file, in that order,
/// with its tool.
fn called_tools<'d>(definition: &'d Definition, items: &'d Items) -> (Vec<CalledTool<'d>>, Vec<(usize, usize)>) {
    let (mut tools, mut by_key): (Vec<CalledTool<'d>>, HashMap<_, usize>) = Default::default();
    let mut by_place = Vec::new();
    for (_, call) in calls(definition) {
        let at = *by_key.entry(tool_key(call)).or_insert_with(|| {
            tools.push(CalledTool::new(call, items));
            tools.len() - 1
        });
        by_place.push((call.span.start, at));
        if let Need::Capability(capability) = need(call) {
            tools[at].capability = Some(capability);
        }
    }
    by_place.sort_unstable();
    (tools, by_place)
}

/// Returns the keys of the state and their indices by name.
fn state_keys<'d>(definition: &'d Definition, items: &'d Items) -> (Vec<StateKey<'d>>, HashMap<&'d str, usize>) {
    let (mut keys, mut by_name) = (Vec::new(), HashMap::default());
    let initial = definition.state.iter().map(|(key, value)| (key.value.as_str(), Some(Cow::Borrowed(&value.value))));
    let channels = definition.channels.iter().map(|channel| (channel.key.value.as_str(), None));
    let written = definition.nodes.iter().flat_map(NodeDefinition::written_or_shared);
    let written = written.map(|key| (key.value.as_str(), None));
    for (name, initial) in initial.chain(channels).chain(written) {
        by_name.entry(name).or_insert_with(|| {
            let channel = definition.channels.iter().find(|channel| channel.key.value.as_str() == name);
            let is_in_memory = keep_of(channel) == Some(Keep::Memory);
            let first = || channel.and_then(|channel| channel.reducer.value.first()).map(Cow::Owned);
            let first = || first().filter(|_| !is_in_memory);
            let function = channel.and_then(|channel| channel.reducer.value.function());
            let function = function.map(|id| Function::new(id, items));
            let is_shared = items.shared.contains(name);
            keys.push(StateKey { name, initial: initial.or_else(first), channel, function, is_shared });
            keys.len() - 1
        });
    }
    (keys, by_name)
}

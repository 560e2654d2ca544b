//! The calls of nodes and hooks, and the capabilities that they need.

use std::collections::BTreeSet;

use graph_definition::definition::{
    CallDefinition, CalledItem, Contract, Definition, HookDefinition, NodeDefinition, NodeKind, Reaction, Spanned,
    TermDefinition, TermKind,
};
use graph_definition::hash::HashSet;
use graph_definition::source::Span;
use graph_model::capability::Capability;
use graph_model::name::ItemId;
use graph_model::program::{Executor, INTERNAL, ItemType, THREAD_DIRECTIVE, Verb};
use graph_model::value::Value;

use super::provided;
use super::reads::Site;
use crate::items::{Items, Nested, TaskName};
use crate::types::Type;

/// The key that distinguishes calls: the verb, the kind of item, and its id, empty if that is not known.
pub(crate) type ToolKey<'d> = (Verb, ItemType, &'d str);

pub(crate) fn tool_key(call: &CallDefinition) -> ToolKey<'_> {
    (call.verb, call.item_type, call.id().map_or("", |id| id.as_str()))
}

/// A tool, graph or other item that nodes and hooks call.
pub(crate) struct CalledTool<'d> {
    pub(crate) key: ToolKey<'d>,
    pub(crate) by: Executor,
    pub(crate) capability: Option<Capability>,
    pub(crate) contract: Option<&'d Contract>,
    pub(crate) graph: Option<&'d Nested>,
    /// The type of its parameters, if that is known.
    pub(crate) params: Option<Type>,
    /// The type of its result.
    pub(crate) result: Type,
    /// Whether the file of its contract or graph has mistakes, so that no rule can need its types.
    pub(crate) is_broken: bool,
}

impl<'d> CalledTool<'d> {
    /// Gathers the facts about the item that a call names.
    pub(crate) fn new(call: &'d CallDefinition, items: &'d Items) -> Self {
        let is_tool = (call.verb, call.item_type) == (Verb::Execute, ItemType::Tool);
        let id = call.id().filter(|_| is_tool);
        let graph = id.and_then(|id| items.graphs.get(id));
        let contract = id.filter(|_| graph.is_none()).and_then(|id| items.contracts.get(id));
        let contract = contract.map(|contract| &**contract).filter(|contract| !contract.is_reducer());
        Self {
            key: tool_key(call),
            by: match graph {
                Some(_) => Executor::Graph,
                None if is_tool => Executor::Program,
                None => Executor::Items,
            },
            capability: None,
            params: contract
                .map(|contract| Type::of_schema(&contract.params))
                .or_else(|| graph.map(|graph| graph.inputs.clone())),
            is_broken: id.is_some_and(|id| items.broken.contains(id)),
            result: match graph {
                Some(graph) if graph.has_mistakes => Type::any(),
                Some(graph) => provided::run_of(&graph.output),
                None => contract.and_then(|contract| contract.result.as_ref()).map_or_else(Type::any, Type::of_schema),
            },
            contract,
            graph,
        }
    }
}

/// The capability that a call needs (R169).
pub(crate) enum Need {
    /// None: the engine's own tools (R173).
    Nothing,
    /// This capability.
    Capability(Capability),
    /// A capability that begins like this; the rest is known only at each call.
    Beginning(String),
}

/// Returns the capability that a call needs.
pub(crate) fn need(call: &CallDefinition) -> Need {
    let capability = |id| Need::Capability(Capability::new(call.verb, call.item_type, id));
    match &call.item.value {
        CalledItem::Named(id) if id.as_str().starts_with(INTERNAL) => Need::Nothing,
        CalledItem::Named(id) => capability(Some(id)),
        CalledItem::Found => capability(None),
        CalledItem::Computed(_) if call.beginning().starts_with(INTERNAL) => Need::Nothing,
        CalledItem::Computed(_) => {
            let kind = Capability::new(call.verb, call.item_type, None);
            Need::Beginning(format!("{kind}.{}", call.beginning().replace('/', ".")))
        }
    }
}

/// The tool that starts graphs and agents as tasks.
const SPAWN: &str = "rye/orchestrate/spawn";
/// The tool for the threads that there are.
pub(crate) const ORCHESTRATOR: &str = "rye/agent/threads/orchestrator";

/// The parameters of a thread besides its inputs, and the beginning of those that the engine adds.
pub(crate) const OF_THREADS: [&str; 5] = ["directive_name", "directive", "inputs", "limit_overrides", "async_exec"];
pub(crate) const ADDED: &str = "parent_";

/// Returns whether a call of the tool for threads waits for its thread; `None` if that is known only at each call.
pub(crate) fn waits_for_thread(call: &CallDefinition) -> Option<bool> {
    let TermKind::Object(params) = &call.params.kind else { return None };
    let Some((_, term)) = params.iter().find(|(key, _)| key.value == "async_exec") else { return Some(true) };
    match term.literal()? {
        Value::Bool(is_async) => Some(!is_async),
        Value::Null => Some(true),
        _ => None,
    }
}

/// Whether a tool starts agents as tasks.
pub(crate) fn begins_task(id: &ItemId) -> bool {
    matches!(id.as_str(), SPAWN | THREAD_DIRECTIVE)
}

/// A call that starts a task.
pub(crate) struct TaskCall<'d> {
    /// The literal that names it; `None` if it is known only at each call.
    pub(crate) name: Option<StartedTask<'d>>,
    /// The term that names it, with its parameter.
    pub(crate) named: Option<(&'d TermDefinition, &'static str)>,
    /// The inputs of the task.
    pub(crate) inputs: TaskInputs<'d>,
    /// The limits of the task, with the name of their parameter.
    pub(crate) limits: Option<(&'static str, &'d TermDefinition)>,
}

/// The literal that says what a call starts.
pub(crate) struct StartedTask<'d> {
    /// The text, which may be no id.
    pub(crate) text: &'d str,
    /// The name, if it can be one.
    pub(crate) name: Option<TaskName>,
    pub(crate) span: &'d Span,
}

/// The inputs that a call gives to its task.
pub(crate) enum TaskInputs<'d> {
    /// These.
    Fields(Vec<(Spanned<String>, TermDefinition)>),
    /// The value of this term.
    Whole(&'d TermDefinition),
    /// They are known only at each call.
    Unknown,
}

/// Returns the task that a call starts, if it starts one.
pub(crate) fn task_of(call: &CallDefinition) -> Option<TaskCall<'_>> {
    let id = call.id().filter(|id| call.executes_tool() && begins_task(id))?;
    let is_thread = id.as_str() == THREAD_DIRECTIVE;
    let TermKind::Object(params) = &call.params.kind else {
        return Some(TaskCall { name: None, named: None, inputs: TaskInputs::Unknown, limits: None });
    };
    let given = |name: &str| {
        let term = params.iter().find(|(key, _)| key.value == name).map(|(_, term)| term);
        term.filter(|term| !matches!(&term.kind, TermKind::Literal(Value::Null)))
    };
    let names: &[&'static str] = if is_thread { &["directive_name", "directive"] } else { &["target"] };
    let named = names.iter().find_map(|name| Some((given(name)?, *name)));
    let name = named.and_then(|(term, _)| {
        let TermKind::Literal(Value::String(text)) = &term.kind else { return None };
        let name = match is_thread {
            true => Some(TaskName::Directive(text.clone())),
            false => ItemId::new(text.as_str()).ok().map(TaskName::Item),
        };
        Some(StartedTask { text, name, span: &term.span })
    });
    let inputs = match given("inputs") {
        Some(TermDefinition { kind: TermKind::Object(fields), .. }) => TaskInputs::Fields(fields.clone()),
        Some(term) => TaskInputs::Whole(term),
        None if is_thread => {
            let is_input = |name: &str| !OF_THREADS.contains(&name) && !name.starts_with(ADDED);
            TaskInputs::Fields(params.iter().filter(|(key, _)| is_input(&key.value)).cloned().collect())
        }
        None => TaskInputs::Fields(Vec::new()),
    };
    let limits = if is_thread { "limit_overrides" } else { "limits" };
    Some(TaskCall { name, named, inputs, limits: given(limits).map(|term| (limits, term)) })
}

/// Returns what the calls of a graph start as tasks, as far as they name it.
pub(crate) fn task_names(definition: &Definition) -> BTreeSet<TaskName> {
    calls(definition).filter_map(|(_, call)| task_of(call)?.name?.name).collect()
}

/// Whether a graph calls the tools for threads.
pub(crate) fn calls_threads(definition: &Definition) -> bool {
    definition.executed().iter().any(|id| matches!(id.as_str(), ORCHESTRATOR | THREAD_DIRECTIVE))
}

/// Returns the pattern of all that a task may need which a call starts, if it starts one.
pub(crate) fn of_any_task(call: &CallDefinition) -> Option<String> {
    let is_task = call.executes_tool() && call.id().is_some_and(begins_task);
    is_task.then(|| format!("{}.*", Capability::new(Verb::Execute, ItemType::Tool, None)))
}

/// Returns the capability patterns that a graph needs, each once, in the order of the file. A task that it spawns may use what its graph
/// needs, as far as this graph permits it.
pub(crate) fn needs(definition: &Definition) -> Vec<String> {
    let mut needs = own_needs(definition);
    let spawn = |(_, call): (Caller<'_>, &CallDefinition)| {
        call.id().filter(|id| id.as_str() == SPAWN).and_then(|_| of_any_task(call))
    };
    let of_task = calls(definition).find_map(spawn).filter(|of_task| !needs.contains(of_task));
    needs.extend(of_task);
    needs
}

/// Returns the capability patterns that a graph's own calls need, each once, in the order of the file. For an id that
/// is known only at each call, the pattern is the known beginning and a star.
pub(crate) fn own_needs(definition: &Definition) -> Vec<String> {
    let (mut needs, mut known) = (Vec::new(), HashSet::default());
    for (_, call) in calls(definition) {
        let needed = match need(call) {
            Need::Nothing => continue,
            Need::Capability(capability) => capability.to_string(),
            Need::Beginning(beginning) => format!("{beginning}*"),
        };
        if known.insert(needed.clone()) {
            needs.push(needed);
        }
    }
    needs
}

/// The node or hook that makes a call.
#[derive(Clone, Copy)]
pub(crate) enum Caller<'d> {
    /// A node, with its index.
    Node(usize, &'d NodeDefinition),
    /// A hook, with its index.
    Hook(usize, &'d HookDefinition),
}

impl std::fmt::Display for Caller<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Node(_, node) => write!(f, "node `{}`", node.name),
            Self::Hook(at, hook) => match &hook.id {
                Some(id) => write!(f, "the hook `{id}`"),
                None => write!(f, "hook {}", at + 1),
            },
        }
    }
}

impl Caller<'_> {
    /// Returns the place of the call's parameters.
    pub(crate) fn site(&self) -> (usize, Site) {
        match self {
            Self::Node(at, NodeDefinition { kind: NodeKind::Foreach(_), .. }) => (*at, Site::Item),
            Self::Node(at, _) => (*at, Site::Params),
            Self::Hook(at, _) => (*at, Site::Hook),
        }
    }
}

/// Returns the calls of nodes and hooks, in the order of the file.
pub(crate) fn calls(definition: &Definition) -> impl Iterator<Item = (Caller<'_>, &CallDefinition)> {
    let nodes = definition.nodes.iter().enumerate();
    let hooks = definition.hooks.iter().enumerate().filter_map(|(at, hook)| match &hook.reaction {
        Reaction::Call(call) => Some((Caller::Hook(at, hook), call)),
        Reaction::Steer(_) => None,
    });
    nodes.filter_map(|(at, node)| Some((Caller::Node(at, node), node.call()?))).chain(hooks)
}

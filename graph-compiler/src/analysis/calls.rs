//! The calls of nodes and hooks, and the capabilities that they need.

use graph_definition::definition::{
    CallDefinition, CalledItem, Contract, Definition, HookDefinition, NodeDefinition, NodeKind, Reaction, TermKind,
};
use graph_definition::hash::HashSet;
use graph_definition::source::Span;
use graph_model::capability::Capability;
use graph_model::name::ItemId;
use graph_model::program::{Executor, INTERNAL, ItemType, THREAD_DIRECTIVE, Verb};
use graph_model::value::Value;

use super::provided;
use super::reads::Site;
use crate::items::{Items, Nested};
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
            result: match graph {
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

/// Whether a tool starts agents as tasks.
pub(crate) fn begins_task(id: &ItemId) -> bool {
    matches!(id.as_str(), SPAWN | THREAD_DIRECTIVE)
}

/// The graph or agent that a call spawns as a task.
pub(crate) enum Spawns<'d> {
    /// The one with this id, which is written at this place.
    Named(ItemId, &'d Span),
    /// One that is known only at each call.
    Computed,
}

/// Returns what a call spawns, if it spawns a task.
pub(crate) fn spawns(call: &CallDefinition) -> Option<Spawns<'_>> {
    call.id().filter(|id| id.as_str() == SPAWN)?;
    let TermKind::Object(params) = &call.params.kind else { return Some(Spawns::Computed) };
    let target = params.iter().find(|(key, _)| key.value == "target").map(|(_, term)| term);
    let named = target.and_then(|term| match &term.kind {
        TermKind::Literal(Value::String(text)) => Some(Spawns::Named(ItemId::new(text.as_str()).ok()?, &term.span)),
        _ => None,
    });
    Some(named.unwrap_or(Spawns::Computed))
}

/// Returns the capability patterns that a graph's own calls need, each once, in the order of the file. For an id that
/// is known only at each call, the pattern is the known beginning and a star.
pub(crate) fn needs(definition: &Definition) -> Vec<String> {
    let (mut needs, mut known) = (Vec::new(), HashSet::default());
    for (_, call) in calls(definition) {
        let needed = match need(call) {
            Need::Nothing => continue,
            Need::Capability(capability) => capability.to_string(),
            Need::Beginning(beginning) => format!("{beginning}*"),
        };
        // A task may use what its graph needs, as far as this graph permits it.
        let of_task = spawns(call).map(|_| format!("{}.*", Capability::new(Verb::Execute, ItemType::Tool, None)));
        needs.extend([needed].into_iter().chain(of_task).filter(|needed| known.insert(needed.clone())));
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

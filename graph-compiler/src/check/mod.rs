//! Checking: from what the author wrote to a graph whose parts fit together.
//!
//! Every rule runs and says all it has to say; then comes the barrier. A rule is one file with one function, and one line
//! in `RULES`.

mod assigned;
mod assignments;
mod cached;
mod commands;
mod conditions;
mod conducts;
mod correlated;
mod dollars;
mod exits;
mod foreach;
mod items;
mod literals;
mod look_alike;
mod loops;
mod matches;
mod no_end;
mod not_secret;
mod parameters;
mod permissions;
mod plain_texts;
mod reads;
mod refused;
mod repeated;
mod secrets;
mod shadowed;
mod sinks;
mod start;
mod targets;
mod unreachable;
mod unread;
mod unread_inputs;
mod variables;
pub(crate) mod widened;
mod words;

use std::collections::BTreeMap;
use std::sync::Arc;

use graph_model::capability::Capability;
use graph_model::name::ItemId;
use graph_model::program::{self, Body, Each, Hook, ItemType, Kind, Performer, Settings, Verb};
use graph_model::untrusted::Untrusted;
use graph_model::value::{Map, Value};

use crate::analysis::coverage;
use crate::analysis::model::{self, Facts};
pub(crate) use crate::analysis::types_at::TypesAt;
use crate::code::Level;
use crate::definition::{
    Conduct, Contract, Definition, EdgeList, HookDefinition, Next, NodeDefinition, NodeKind, Reaction, Schema,
};
use crate::diagnostic::{Diagnostic, Diagnostics, Severity, code};
use crate::graph::{Budget, Graph, Inner, Node, Outline, Tool};
use crate::levels::Levels;
use crate::types::{self, Type};
use crate::verify::{Origin, Verified};
pub(crate) use model::Site;
pub(crate) use model::needs;

/// The contracts of the tools that a graph calls, by the tool's id. A tool without contract is not in it.
pub type Contracts = BTreeMap<ItemId, Arc<Contract>>;

/// What there is in a tree for the actions of a graph to be about.
#[derive(Debug, Default)]
pub struct Items {
    /// The contracts of tools.
    pub contracts: Contracts,
    /// The graphs that are called, by their ids.
    pub graphs: BTreeMap<ItemId, Nested>,
    /// The ids that several things have, with the names of their files.
    pub ambiguous: BTreeMap<ItemId, Vec<String>>,
    /// Of ids of which there is neither contract nor graph, one that is nearly the same.
    pub similar: BTreeMap<ItemId, String>,
    /// The graphs that run inside, directly or through others, each once.
    pub inner: Vec<Inner>,
    /// What the computed ids of the graph may name.
    pub reachable: Vec<Reachable>,
    /// Whether files that nobody vouches for were looked at too. No graph comes of those.
    pub are_for_review: bool,
}

/// A tool or graph that a computed id may name.
#[derive(Debug)]
pub struct Reachable {
    /// Its id.
    pub id: ItemId,
    /// What it takes.
    pub schema: Schema,
}

/// A graph that another calls (R188).
#[derive(Debug, Clone)]
pub struct Nested {
    /// The file, as messages show it.
    pub file: String,
    /// The name of its module.
    pub module: String,
    /// What its inputs are.
    pub inputs: Type,
    /// The same, as the file says it; nothing where it has mistakes or says nothing.
    pub schema: Option<Schema>,
    /// What it returns; any value where it has mistakes or nests its caller in turn.
    pub output: Type,
    /// The capability patterns that it needs, and the graphs inside it.
    pub needs: Vec<String>,
    /// What a run of it can come to at most; `None` where it has mistakes or nests its caller in turn.
    pub budget: Option<Budget>,
    /// Whether no run of it can end, since each runs another of it inside.
    pub is_endless: bool,
}

/// What came of checking.
pub struct Checked {
    /// The types, as far as they are known; of a graph with mistakes too.
    pub outline: Outline,
    /// The graph, if there was no mistake and it is wanted.
    pub graph: Option<Graph>,
}

/// What a text is checked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// The graph, to make code of it.
    Graph,
    /// What is wrong, and the types.
    Findings,
}

type Rule = fn(&Facts<'_>, &mut Diagnostics);

/// The rules, in the order in which their findings make sense to a reader of the code; findings are sorted by place.
const RULES: &[Rule] = &[
    start::check,
    targets::check,
    shadowed::check,
    look_alike::check,
    unreachable::check,
    no_end::check,
    exits::check,
    assignments::check,
    plain_texts::check,
    reads::check,
    conditions::check,
    foreach::check,
    items::check,
    cached::check,
    parameters::check,
    refused::check,
    permissions::check,
    sinks::check,
    commands::check,
    secrets::check,
];

/// The rules that ask what a graph would do. They run on a graph whose parts fit together: of one with a misspelt name they
/// would only say what follows from that.
const LINTS: &[Rule] = &[
    assigned::check,
    parameters::check_missing,
    literals::check,
    unread::check,
    unread_inputs::check,
    dollars::check,
    variables::check,
    widened::check,
    coverage::check,
    words::check,
    matches::check,
    conducts::check,
    repeated::check,
    not_secret::check,
    items::check_contracts,
    items::check_similar,
    loops::check,
    permissions::check_computed,
    permissions::check_inside,
    permissions::check_excess,
];

/// Checks a definition against the items that it calls; `levels` decides what lints found.
///
/// A graph comes only if `diagnostics` holds no error then, from here or from before.
pub fn check(
    definition: &Definition,
    items: &Items,
    levels: &Levels,
    wanted: Wanted,
    diagnostics: &mut Diagnostics,
) -> Checked {
    let facts = Facts::gather(definition, items);
    RULES.iter().for_each(|rule| rule(&facts, diagnostics));
    let is_error = |one: &Diagnostic| one.severity == Severity::Error;
    // In a review, that nobody vouches for a file says nothing of what the graph would do: all files are looked at.
    if !diagnostics.iter().any(|one| is_error(one) && !(items.are_for_review && one.code.is_of_trust())) {
        LINTS.iter().for_each(|rule| rule(&facts, diagnostics));
    }
    levels.apply(diagnostics);
    let outline = facts.outline();
    let graph = match &definition.origin {
        Origin::Verified(verified) if wanted == Wanted::Graph && !diagnostics.has_errors() => {
            Some(build(&facts, verified, outline.clone(), levels))
        }
        _ => None,
    };
    Checked { outline, graph }
}

/// Returns what is known of a call of a tool with a contract, where only a run knows that the tool is called.
pub(crate) fn tool_of(id: &ItemId, contract: &Contract) -> Tool {
    let result = contract.result.as_ref();
    Tool {
        id: id.to_string(),
        verb: Verb::Execute,
        item: ItemType::Tool,
        by: Performer::Program,
        typed: result.is_some(),
        capability: Some(Capability::new(Verb::Execute, ItemType::Tool, Some(id)).to_string()),
        builtin: contract.builtin() || contract.subprocess().is_some(),
        subprocess: contract.subprocess().cloned(),
        module: None,
        description: contract.description.clone(),
        params: match Type::of_schema(&contract.params).kind {
            types::Kind::Object(fields) => Some(fields),
            _ => None,
        },
        result: result.map_or_else(Type::any, Type::of_schema),
    }
}

/// Makes the graph. Every name is known to lead somewhere: a missing one was an error.
fn build(facts: &Facts<'_>, verified: &Verified, outline: Outline, levels: &Levels) -> Graph {
    // Who lets graphs splice values into code lets them run so.
    let guards = levels.of(code::INJECTION).is_none_or(|level| level == Level::Deny);
    let definition = facts.definition;
    let required = outline.inputs.iter().flatten().filter(|field| field.is_required());
    let required: Vec<String> = required.map(|field| field.name.clone()).collect();
    let secrets = secrets::of(facts, &outline.output);
    Graph {
        outline,
        source: Arc::clone(definition.source()),
        digest: verified.digest().to_hex(),
        signer: verified.signer().to_string(),
        owner: verified.owner().to_owned(),
        start: index(facts.start.expect("a graph without start is an error")),
        settings: Settings {
            hooks: definition.hooks.iter().map(|hook| build_hook(facts, hook, guards)).collect(),
            required,
            schema: definition.inputs.as_ref().and_then(Schema::beyond_types),
            secrets,
            contracts: cached::contracts(facts),
            ..definition.settings.clone()
        },
        needs: needs(definition),
        permissions: facts.permissions().map(|pattern| pattern.value.to_string()).collect(),
        env: definition.env.clone(),
        nodes: definition.nodes.iter().enumerate().map(|(at, node)| build_node(facts, at, node, guards)).collect(),
    }
}

fn build_node(facts: &Facts<'_>, at: usize, node: &NodeDefinition, guards: bool) -> Node {
    let (line, _) = facts.definition.source().position(node.name.span.start);
    let tool = || index(node.call().map(|call| facts.tool_index(call)).unwrap_or_default());
    let does = match &node.kind {
        NodeKind::Action(_) => Kind::Action(tool()),
        NodeKind::Foreach(_) => Kind::Foreach(tool()),
        NodeKind::Gate(_) => Kind::Gate,
        NodeKind::Return(_) => Kind::Return,
    };
    let each = match &node.kind {
        NodeKind::Foreach(each) => Some(Each {
            over: each.over.to_value(),
            name: each.name.value.clone(),
            collect: each.collect.as_ref().map(ToString::to_string),
            width: each.width,
        }),
        _ => None,
    };
    let output = match &node.kind {
        NodeKind::Return(returns) => returns.output.as_ref().map(|term| term.to_value()),
        _ => None,
    };
    let (call, conduct) = (node.call(), node.conduct());
    let assign: Map<String, Value> =
        node.assign().iter().map(|assignment| (assignment.key.to_string(), assignment.value.to_value())).collect();
    let mut next = Vec::new();
    for target in facts.successors(at).map(index) {
        if !next.contains(&target) {
            next.push(target);
        }
    }
    let line = u32::try_from(line).unwrap_or(u32::MAX);
    let on_error = facts.error_successor(at).map(index);
    let body = Body {
        line,
        does,
        item: call.and_then(|call| call.computed()).map(|(_, text)| text.to_owned()),
        params: call.map(|call| call.params.to_value()),
        each,
        assign,
        next: program::Route::First(edges(node.next())),
        on_error,
        output,
        retry: conduct.and_then(|conduct| conduct.retry.clone()),
        timeout_ms: conduct.and_then(|conduct| conduct.timeout_ms.as_ref()).map(|timeout| timeout.value),
        remote: conduct.and_then(|conduct| conduct.remote.clone()),
        feedback: conduct.is_none_or(|conduct| conduct.feedback),
        cached: conduct.is_some_and(Conduct::caches),
        env: conduct.map(|conduct| conduct.env.clone()).unwrap_or_default(),
        untrusted: call.filter(|_| guards).map_or(Untrusted::Nothing, |call| {
            let (at, site) = model::Caller::Node(at, node).site();
            commands::untrusted(facts, at, site, call)
        }),
    };
    Node { name: node.name.to_string(), next, body }
}

fn build_hook(facts: &Facts<'_>, hook: &HookDefinition, guards: bool) -> Hook {
    let (tool, params) = match &hook.reaction {
        Reaction::Steer(params) => (None, params),
        Reaction::Call(call) => (Some(index(facts.tool_index(call))), &call.params),
    };
    let untrusted = match &hook.reaction {
        Reaction::Call(call) if guards => commands::untrusted(facts, 0, Site::Hook, call),
        _ => Untrusted::Nothing,
    };
    Hook {
        id: hook.id.clone(),
        event: hook.event,
        condition: hook.written.clone(),
        tool,
        params: params.to_value(),
        untrusted,
    }
}

fn edges(next: &Next) -> Vec<program::Edge> {
    match next {
        Next::End => Vec::new(),
        Next::To(name) => vec![program::Edge { to: Some(name.to_string()), when: None, description: None }],
        Next::List(EdgeList { edges, .. }) => edges
            .iter()
            .map(|edge| program::Edge {
                to: edge.to.as_ref().map(ToString::to_string),
                when: edge.written.clone(),
                description: edge.description.clone(),
            })
            .collect(),
    }
}

fn index(at: usize) -> u16 {
    u16::try_from(at).expect("facts are gathered of at most `MOST_NODES` nodes")
}

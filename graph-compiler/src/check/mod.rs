//! The checks: from the author's definition to a graph whose parts fit together.
//!
//! Every rule runs and reports all its findings; only then does an error stop the compilation. A rule is one file with
//! one function, and one line in `RULES`.

mod arguments;
mod assigned;
mod assignments;
mod branches;
mod cached;
mod causes;
mod channels;
mod chosen;
mod commands;
mod conditions;
mod conducts;
mod correlated;
mod coverage;
mod dollars;
mod entries;
mod exits;
mod foreach;
mod guarded;
mod items;
mod keeps;
mod late;
mod literals;
mod look_alike;
mod loops;
mod matches;
mod no_end;
mod not_secret;
mod parameters;
mod permissions;
mod plain_texts;
mod quorums;
mod races;
mod reads;
mod refused;
mod repeated;
mod secrets;
mod shadowed;
mod share;
mod sinks;
mod start;
mod targets;
mod tasks;
mod unreachable;
mod unread;
mod unread_inputs;
mod usage;
mod values;
mod variables;
mod waits;
mod widened;
mod words;

use std::sync::Arc;

use graph_definition::code::Level;
use graph_definition::definition::{
    AskDefinition, Conduct, Contract, Definition, EdgeDefinition, EdgeList, HookDefinition, NodeDefinition, Reaction,
    RouteDefinition, Spanned, TermDefinition, ValueSchema, program_condition,
};
use graph_definition::diagnostic::{Diagnostic, Diagnostics, Severity, code};
use graph_definition::source::Span;
use graph_definition::verify::{DefinitionOrigin, VerifiedSource};
use graph_model::capability::Capability;
use graph_model::name::{ItemId, NodeName};
use graph_model::program::{
    self, Each, Executor, Hook, ItemType, NodeBody, NodeFacts, Quorum, Rest, Settings, SignalRules, ToolRules, Verb,
};
use graph_model::untrusted::Untrusted;

use crate::analysis::Analysis;
use crate::analysis::calls::{Caller, needs};
use crate::analysis::facts;
use crate::analysis::joins::NodeJoin;
use crate::analysis::reads::Site;
use crate::graph::{CheckedGraph, CheckedNode, Interface, TypedTool, rules_of};
use crate::items::Items;
use crate::levels::Levels;
use crate::types::{Type, TypeKind};

/// The result of checking.
pub struct Checked {
    /// The interface, as far as it is known, also for a graph with mistakes.
    pub interface: Interface,
    /// The graph, if there was no mistake and it is wanted.
    pub graph: Option<CheckedGraph>,
}

/// The purpose of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// The graph, to generate code from it.
    Graph,
    /// The diagnostics and the types.
    Findings,
}

type CheckRule = fn(&Analysis<'_>, &mut Diagnostics);

/// The rules, in an order for readers of the code; the findings themselves are sorted by place.
const RULES: &[CheckRule] = &[
    start::check,
    entries::check,
    targets::check,
    shadowed::check,
    look_alike::check,
    unreachable::check,
    no_end::check,
    exits::check,
    branches::check,
    quorums::check,
    arguments::check,
    values::check,
    races::check,
    channels::check,
    keeps::check,
    assignments::check,
    plain_texts::check,
    reads::check,
    conditions::check,
    foreach::check,
    waits::check,
    items::check,
    cached::check,
    parameters::check,
    refused::check,
    tasks::check,
    permissions::check,
    permissions::check_spawned,
    sinks::check,
    guarded::check,
    usage::check,
    commands::check,
    secrets::check,
    share::check,
];

/// The rules about the behaviour of a graph. They run only on a graph whose parts fit together: with a misspelt name,
/// they would only report its consequences.
const LINTS: &[CheckRule] = &[
    assigned::check,
    parameters::check_missing,
    literals::check,
    channels::check_idle,
    unread::check,
    unread_inputs::check,
    waits::check_unreceived,
    waits::check_endless,
    waits::check_roles,
    conducts::check_waits,
    dollars::check,
    variables::check,
    widened::check,
    coverage::check,
    words::check,
    matches::check,
    conducts::check,
    repeated::check,
    not_secret::check,
    chosen::check,
    items::check_contracts,
    items::check_similar,
    loops::check,
    permissions::check_computed,
    permissions::check_inside,
    permissions::check_excess,
];

/// Checks a definition against the items that it calls; `levels` sets the severity of lints.
///
/// Returns a graph only if `diagnostics` then contains no error, whether found here or before.
pub fn check(
    definition: &Definition,
    items: &Items,
    levels: &Levels,
    wanted: Wanted,
    diagnostics: &mut Diagnostics,
) -> Checked {
    let analysis = Analysis::new(definition, items);
    let of_reading = diagnostics.iter().len();
    RULES.iter().for_each(|rule| rule(&analysis, diagnostics));
    causes::leave_out(definition, of_reading, diagnostics);
    let is_error = |one: &Diagnostic| one.severity == Severity::Error;
    // In a review, a missing signature says nothing about the graph's behaviour: all files are checked.
    let has_mistakes = diagnostics.iter().any(|one| is_error(one) && !(items.are_for_review && one.code.is_of_trust()));
    // Lints would report consequences of mistakes in other files.
    if !has_mistakes && items.broken.is_empty() {
        LINTS.iter().for_each(|rule| rule(&analysis, diagnostics));
    }
    levels.apply(diagnostics);
    let of_graph = diagnostics.iter().filter(|one| is_error(one) && one.place.source.path == definition.source().path);
    let mistakes: Vec<Span> = of_graph.filter_map(|one| one.place.span.clone()).collect();
    let interface = analysis.interface(&mistakes);
    let graph = match &definition.origin {
        DefinitionOrigin::Verified(verified) if wanted == Wanted::Graph && !diagnostics.has_errors() => {
            Some(build(&analysis, verified, interface.clone(), levels))
        }
        _ => None,
    };
    Checked { interface, graph }
}

/// Returns the facts about a call of a tool with a contract, for a call whose tool is known only at run time.
pub(crate) fn tool_of(id: &ItemId, contract: &Contract) -> TypedTool {
    let result = contract.result.as_ref();
    TypedTool {
        id: id.to_string(),
        verb: Verb::Execute,
        item: ItemType::Tool,
        by: Executor::Program,
        typed: result.is_some(),
        capability: Some(Capability::new(Verb::Execute, ItemType::Tool, Some(id)).to_string()),
        builtin: contract.by_runtime(),
        subprocess: contract.subprocess().cloned(),
        mcp: contract.mcp().cloned(),
        module: None,
        description: contract.description.clone(),
        params: match Type::of_schema(&contract.params).kind {
            TypeKind::Object(fields) => Some(fields),
            _ => None,
        },
        result: result.map_or_else(Type::any, Type::of_schema),
        rules: rules_of(contract),
    }
}

/// Builds the graph. Every name leads to a node, because a missing one was an error.
fn build(analysis: &Analysis<'_>, verified: &VerifiedSource, interface: Interface, levels: &Levels) -> CheckedGraph {
    // If the lint against injection is not denied, the runtime does not check for it either.
    let guards = levels.of(code::INJECTION).is_none_or(|level| level == Level::Deny);
    let definition = analysis.model.definition;
    let required = interface.inputs.iter().flatten().filter(|field| field.is_required());
    let required: Vec<String> = required.map(|field| field.name.clone()).collect();
    let secrets = secrets::of(analysis, &interface.output);
    let rules = (0_u16..).zip(&interface.tools).map(|(at, tool)| (at, tool.rules.clone()));
    let rules = rules.filter(|(_, rules)| *rules != ToolRules::default()).collect();
    let facts = facts::of_nodes(&analysis.model);
    let nodes = definition.nodes.iter().zip(facts).enumerate();
    let nodes = nodes.map(|(at, (node, facts))| build_node(analysis, at, node, facts, guards));
    CheckedGraph {
        interface,
        source: Arc::clone(definition.source()),
        digest: verified.digest().to_hex(),
        signer: verified.signer().to_string(),
        owner: verified.owner().to_owned(),
        start: index(analysis.model.start.expect("a graph without start is an error")),
        settings: Settings {
            hooks: definition.hooks.iter().map(|hook| build_hook(analysis, hook, guards)).collect(),
            required,
            schema: definition.inputs.as_ref().and_then(ValueSchema::beyond_types),
            secrets,
            signals: definition
                .signals
                .iter()
                .map(|signal| (signal.name.to_string(), SignalRules { schema: signal.schema.beyond_types() }))
                .collect(),
            channels: definition
                .channels
                .iter()
                .map(|channel| (channel.key.to_string(), channel.reducer.value.clone()))
                .collect(),
            by_branch: definition
                .channels
                .iter()
                .filter(|channel| channel.by_branch.is_some())
                .map(|channel| channel.key.to_string())
                .collect(),
            keep: definition
                .channels
                .iter()
                .filter_map(|channel| Some((channel.key.to_string(), channel.keep.as_ref()?.value)))
                .collect(),
            entries: definition
                .entries
                .iter()
                .zip(&analysis.model.entries)
                .filter_map(|(entry, at)| Some((entry.name.to_string(), entries::entry_point(analysis, entry, (*at)?))))
                .collect(),
            trusted_inputs: definition.inputs.as_ref().is_some_and(|inputs| inputs.has_sink() || inputs.has_guarded()),
            contracts: cached::contracts(analysis),
            rules,
            ..definition.settings.clone()
        },
        needs: needs(definition),
        permissions: analysis.model.permissions().map(|pattern| pattern.value.to_string()).collect(),
        env: definition.env.clone(),
        nodes: nodes.collect(),
    }
}

fn build_node(
    analysis: &Analysis<'_>,
    at: usize,
    node: &NodeDefinition,
    facts: NodeFacts,
    guards: bool,
) -> CheckedNode {
    let (line, _) = analysis.model.definition.source().position(node.name.span.start);
    let tool = || index(node.call().map(|call| analysis.model.tool_index(call)).unwrap_or_default());
    let does = node.kind.to_program(tool());
    let each = node.each().map(|each| Each {
        over: each.over.to_program(),
        name: each.name.value.clone(),
        collect: each.collect.as_ref().map(ToString::to_string),
        width: each.width,
    });
    let output = node.output().map(|term| term.to_program());
    let (call, conduct) = (node.call(), node.conduct());
    let assign =
        node.assign().iter().map(|assignment| (assignment.key.to_string(), assignment.value.to_program())).collect();
    let mut next = Vec::new();
    for target in analysis.model.successors(at).map(index) {
        if !next.contains(&target) {
            next.push(target);
        }
    }
    let line = u32::try_from(line).unwrap_or(u32::MAX);
    let on_error = analysis.model.error_successor(at).map(index);
    let body = NodeBody {
        line,
        does,
        item: call.and_then(|call| call.computed()).map(|(term, _)| term.to_program()),
        params: call.map(|call| call.params.to_program()),
        each,
        wait: (node.wait().is_some() || node.interrupts().is_some()).then(|| program::Wait {
            until: node.wait().and_then(|wait| wait.until.as_ref()).map(TermDefinition::to_program),
            timeout_ms: node.waits_ms(),
            signals: node.wait().into_iter().flat_map(|wait| &wait.signals).map(|name| name.value.clone()).collect(),
            on_timeout: analysis.model.timeout_successor(at).map(index),
            ask: node.ask().map(build_ask),
        }),
        assign,
        reset: node.reset().iter().map(ToString::to_string).collect(),
        share: node.share().iter().map(ToString::to_string).collect(),
        share_signals: node.shared_signals().iter().map(|name| name.value.clone()).collect(),
        next: route(node.next()),
        join: analysis.flow.joins().of(at).map(|of| join(of, node.rest(), analysis.model.fewer_successor(at))),
        on_error,
        output,
        cancels: node.cancels().is_some(),
        retry: conduct.and_then(|conduct| conduct.retry.clone()),
        timeout_ms: conduct.and_then(Conduct::least_timeout_ms),
        limits: conduct.map(|conduct| conduct.limits).unwrap_or_default(),
        remote: conduct.and_then(|conduct| conduct.remote.clone()),
        feedback: conduct.is_none_or(|conduct| conduct.feedback),
        cached: conduct.is_some_and(Conduct::caches),
        env: conduct.map(|conduct| conduct.env.clone()).unwrap_or_default(),
        untrusted: call.filter(|_| guards).map_or(Untrusted::Nothing, |call| {
            let (at, site) = Caller::Node(at, node).site();
            commands::untrusted(analysis, at, site, call)
        }),
        facts: Some(facts),
    };
    CheckedNode { name: node.name.to_string(), next, body }
}

fn build_ask(ask: &AskDefinition) -> program::Ask {
    program::Ask {
        payload: ask.payload.as_ref().map(TermDefinition::to_program),
        schema: ask.schema.beyond_types(),
        role: ask.role.as_ref().map(|role| role.value.clone()),
        count: ask.count.most,
        by_word: waits::by_word(ask),
    }
}

fn build_hook(analysis: &Analysis<'_>, hook: &HookDefinition, guards: bool) -> Hook {
    let (tool, params) = match &hook.reaction {
        Reaction::Steer(params) => (None, params),
        Reaction::Call(call) => (Some(index(analysis.model.tool_index(call))), &call.params),
    };
    let untrusted = match &hook.reaction {
        Reaction::Call(call) if guards => commands::untrusted(analysis, 0, Site::Hook, call),
        _ => Untrusted::Nothing,
    };
    Hook {
        id: hook.id.clone(),
        event: hook.event,
        condition: hook.written.as_ref().map(|written| program_condition(&hook.condition, written)),
        tool,
        params: params.to_program(),
        untrusted,
    }
}

fn route(route: &RouteDefinition) -> program::Route {
    let always = |to: &Spanned<NodeName>| program::Edge { to: Some(to.to_string()), when: None, description: None };
    match route {
        RouteDefinition::End => program::Route::default(),
        RouteDefinition::To(to) => program::Route::First(vec![always(to)]),
        RouteDefinition::First(list) => program::Route::First(edges(list)),
        RouteDefinition::All(list) => {
            program::Route::All { all: edges(list), width: list.width, on_branch_error: list.on_branch_error }
        }
        RouteDefinition::Each(each) => program::Route::Each {
            over: each.over.to_program(),
            name: each.name.value.clone(),
            to: each.to.to_string(),
            width: each.width,
            most: each.most,
            on_branch_error: each.on_branch_error,
        },
        RouteDefinition::By(by) => program::Route::By {
            by: by.by.value.clone(),
            to: by.to.iter().map(|(word, to)| (word.value.clone(), to.as_ref().map(ToString::to_string))).collect(),
        },
    }
}

fn join(join: &NodeJoin, rest: Rest, fewer: Option<usize>) -> program::Join {
    let of = join.of.iter().map(|&source| index(source)).collect();
    let need = |need: usize| u32::try_from(need).unwrap_or(u32::MAX);
    let quorum = join.need.map(|count| Quorum { need: need(count), rest, fewer: fewer.map(index) });
    program::Join { of, fan: Some(index(join.fan)), closes: join.closes, quorum }
}

fn edges(list: &EdgeList) -> Vec<program::Edge> {
    let edge = |edge: &EdgeDefinition| program::Edge {
        to: edge.to.as_ref().map(ToString::to_string),
        when: edge.written.as_ref().map(|written| program_condition(&edge.when, written)),
        description: edge.description.clone(),
    };
    list.edges.iter().map(edge).collect()
}

fn index(at: usize) -> u16 {
    u16::try_from(at).expect("analysis are gathered of at most `MOST_NODES` nodes")
}

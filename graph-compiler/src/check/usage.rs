//! Limits of agents: those of a node narrow those of the contract, and those of a graph are enough for every run.

use std::time::Duration;

use graph_definition::definition::agent::shown_spend;
use graph_definition::definition::{AgentLimits, Conduct, NodeDefinition, Spanned};
use graph_definition::diagnostic::{Diagnostics, code};
use graph_model::duration::shown;

use crate::analysis::Analysis;
use crate::analysis::budget::{attempts_at, budget, usage_at};
use crate::analysis::calls::begins_task;
use crate::graph::AgentUsage;

pub(super) fn check(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    for node in &analysis.model.definition.nodes {
        let graph = node.call().and_then(|call| analysis.model.tool(call).graph);
        if let (Some(conduct), Some(limits)) = (node.conduct(), graph.and_then(|graph| graph.limits.as_ref())) {
            check_node(analysis, node, conduct, limits, diagnostics);
        }
    }
    check_graph(analysis, diagnostics);
}

/// Reports limits of a node that allow its agent more than the contract.
fn check_node(
    analysis: &Analysis<'_>,
    node: &NodeDefinition,
    conduct: &Conduct,
    agent: &AgentLimits,
    diagnostics: &mut Diagnostics,
) {
    let number = |number: u64| number.to_string();
    let time = |milliseconds: u64| shown(Duration::from_millis(milliseconds));
    for field in &conduct.limit_fields {
        let (own, contract, show): (Option<u64>, Option<u64>, &dyn Fn(u64) -> String) = match field.value.as_str() {
            "turns" => (conduct.limits.turns.map(u64::from), Some(u64::from(agent.turns)), &number),
            "tokens" => (conduct.limits.tokens, agent.tokens, &number),
            "spend" => (conduct.limits.micros, agent.spend, &shown_spend),
            "timeout" => (conduct.limits_timeout_ms, agent.timeout, &time),
            _ => continue,
        };
        let Some((own, contract)) = own.zip(contract).filter(|(own, contract)| own > contract) else { continue };
        diagnostics
            .error(
                code::WIDENED_LIMIT,
                analysis.model.place(&field.span),
                format!("`{field}` of node `{}` allows its agent more than the contract does", node.name),
            )
            .label(format!("{}, and the contract says {}", show(own), show(contract)))
            .help("write less, or raise the limit in the contract of the agent");
    }
}

/// A limit of the agents of a graph.
struct GraphLimit<'d> {
    name: &'static str,
    limit: &'d Spanned<u64>,
    of: fn(&AgentUsage) -> Option<u64>,
    show: fn(u64) -> String,
}

/// Reports limits of a graph that its agents may exceed together.
fn check_graph(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    let (model, limits) = (&analysis.model, &analysis.model.definition.usage);
    let number: fn(u64) -> String = |number| number.to_string();
    let given = [
        limits.turns.as_ref().map(|limit| GraphLimit { name: "turns", limit, of: |one| one.turns, show: number }),
        limits.tokens.as_ref().map(|limit| GraphLimit { name: "tokens", limit, of: |one| one.tokens, show: number }),
        limits.micros.as_ref().map(|limit| GraphLimit {
            name: "spend",
            limit,
            of: |one| one.micros,
            show: shown_spend,
        }),
    ];
    let mut given = given.into_iter().flatten().peekable();
    if given.peek().is_none() {
        return;
    }
    let all = budget(analysis.least(), &analysis.coverage);
    // Without a budget, no run can end, which another rule reports.
    let Some(all) = all else { return };
    for GraphLimit { name, limit, of, show } in given {
        let at_node = |node: usize| of(&usage_at(model, node));
        let nodes = || model.definition.nodes.iter().enumerate();
        let place = model.place(&limit.span);
        match of(&all.usage) {
            Some(0) => {
                let message = format!("`limits.{name}` does nothing: no run of the graph calls an agent");
                diagnostics.lint(code::NO_EFFECT, place, message).help("remove it");
            }
            Some(most) if most > limit.value => {
                let message = format!("the agents of a run may exceed `limits.{name}` together: {}", show(most));
                let diagnostic = diagnostics.error(code::OVER_USAGE, place, message);
                diagnostic.label(format!("{} is not enough for all paths", show(limit.value)));
                let mut users: Vec<(u64, usize)> =
                    nodes().filter_map(|(at, _)| Some((at_node(at).filter(|most| *most > 0)?, at))).collect();
                users.sort_by_key(|(most, at)| (std::cmp::Reverse(*most), *at));
                for (most, at) in users.into_iter().take(MOST_USERS) {
                    let node = &model.definition.nodes[at].name;
                    diagnostic.related(model.place(&node.span), format!("a visit takes at most {}", show(most)));
                }
                diagnostic.help(format!(
                    "lower the `limits` of these nodes, visit them less often, or allow it: `limits: {{ {name}: {} }}`",
                    if name == "spend" { format!("\"{}\"", show(most)) } else { show(most) }
                ));
            }
            Some(_) => {}
            None if model.tools.iter().any(|tool| tool.is_broken) => {}
            None => {
                let message = format!("no bound is known for what the agents of a run use of `limits.{name}`");
                let diagnostic = diagnostics.error(code::OVER_USAGE, place, message);
                diagnostic.label("may be exceeded");
                let unknown = nodes().find(|(at, _)| at_node(*at).is_none());
                let Some((at, node)) = unknown else {
                    diagnostic.help("bound the loops that lead to agents, or lower `max_steps`");
                    continue;
                };
                let call = node.call();
                let graph = call.and_then(|call| model.tool(call).graph);
                let (why, help) = match (attempts_at(model, at), call.and_then(|call| call.id()), graph) {
                    (None, ..) => (
                        "how many elements its list has is not known".to_owned(),
                        "go over a list of the inputs with `maxItems`, or over a route with `most`".to_owned(),
                    ),
                    (_, None, _) => (
                        "the tool is known only when the graph runs".to_owned(),
                        "name the tool, or lead to a node for each of them".to_owned(),
                    ),
                    (_, Some(id), None) if begins_task(id) => (
                        "a task has limits of its own, which are not those of the graph".to_owned(),
                        "call the agent by a node, or remove the limit".to_owned(),
                    ),
                    (_, Some(id), Some(graph)) if graph.limits.is_some() => (
                        format!("the contract of the agent `{id}` has no limit of that"),
                        format!("write `{name}` into the `limits` of the node or of the contract"),
                    ),
                    (_, Some(id), _) => (
                        format!("no bound is known for `{id}`"),
                        format!("write `{name}` into the `limits` of the graph `{id}`, which then says where"),
                    ),
                };
                diagnostic.related(model.place(&node.name.span), why).help(help);
            }
        }
    }
}

/// How many nodes a message about a limit names.
const MOST_USERS: usize = 3;

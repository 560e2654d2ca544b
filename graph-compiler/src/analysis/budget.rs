//! What a run can come to at most.

use graph_model::path::Root;
use graph_model::program::{CONTROL, Event, OnMaxSteps};
use graph_model::template::Template;
use graph_model::value::Value;

use super::control_flow::Web;
use super::model::Facts;
use crate::definition::{Foreach, NodeKind, Reaction, TermKind};
use crate::graph::Budget;

/// How often a call is tried again by default where its node does not say.
const BUILT_IN_RETRIES: u64 = 3;
/// How often a hook can have a call tried again, and how many times `max_steps` hooks can let a run take.
const MOST_BY_HOOKS: u64 = 100;

/// Works out the budget of a graph whose parts fit together. `None` if no run of it can end.
pub(crate) fn budget(facts: &Facts<'_>, web: &Web) -> Option<Budget> {
    let start = facts.start.filter(|_| facts.is_whole())?;
    let shortest = match facts.definition.settings.on_max_steps {
        OnMaxSteps::Fail => web.fewest_steps(start)?.0,
        _ => web.fewest_steps(start).map_or(u64::MAX, |(steps, _)| steps),
    };
    let limit = limit(facts);
    let visits: Vec<Option<u64>> = web.groups.iter().map(|group| visits(facts, web, group)).collect();
    let own_steps = over_groups(web, start, |group| visits[group]);
    let steps = own_steps.unwrap_or(u64::MAX).min(limit);
    let calls: Vec<Option<u64>> = (0..web.next.len()).map(|node| calls_at(facts, node)).collect();
    let reached = reached(web, start);
    let along = over_groups(web, start, |group| {
        visits[group]?.checked_mul(greatest(web.groups[group].iter().map(|&node| calls[node]))?)
    });
    let any = greatest(reached.iter().map(|&node| calls[node])).and_then(|most| most.checked_mul(steps));
    let own_calls = along.into_iter().chain(any).min();
    let fan_out = greatest(reached.iter().map(|&node| fan_out(facts, node)));
    let levels = greatest(
        facts
            .tools
            .iter()
            .filter_map(|tool| tool.graph)
            .map(|graph| graph.budget.as_ref().and_then(|budget| budget.levels).map(|levels| levels + 1)),
    );
    Some(Budget {
        shortest: shortest.min(limit),
        steps,
        is_bounded: own_steps.is_some_and(|own| own <= limit),
        calls: own_calls.and_then(|calls| with_hooks(facts, calls, steps)),
        at_a_time: fan_out,
        levels,
    })
}

/// Returns the greatest of several numbers, 0 of none; `None` if one has no bound.
fn greatest<N: Default + Ord>(mut numbers: impl Iterator<Item = Option<N>>) -> Option<N> {
    numbers.try_fold(N::default(), |most, one| Some(most.max(one?)))
}

/// How many steps `max_steps` and the hooks that raise it allow.
fn limit(facts: &Facts<'_>) -> u64 {
    let most = u64::from(facts.definition.settings.max_steps);
    let is_raised = facts.definition.hooks.iter().any(|hook| hook.event == Event::Limit);
    if is_raised { most.saturating_mul(MOST_BY_HOOKS) } else { most }
}

/// Returns how many visits of a group's nodes a run can make; `None` if the graph sets no bound.
///
/// A loop is bounded where every way round leads through nodes that ask for `visit.number` and lead on round only up to some
/// number: these are visited so often at most, and between two of their visits no node is visited twice.
fn visits(facts: &Facts<'_>, web: &Web, group: &[usize]) -> Option<u64> {
    if !web.goes_round(group) {
        return Some(1);
    }
    let bounded = |&node: &usize| -> Option<(usize, u64)> {
        let ways = &facts.judgement(node)?.ways;
        // A failure asks for no number.
        let is_inside = |next: usize| web.group_of[next] == web.group_of[node];
        if facts.error_successor(node).is_some_and(is_inside) {
            return None;
        }
        let round = facts.ways(node).zip(facts.successors(node));
        let round = round.filter(|(edge, next)| ways.can_follow[*edge] && is_inside(*next));
        Some((node, greatest(round.map(|(edge, _)| ways.last_visit[edge]))?.saturating_add(1)))
    };
    let counted: Vec<(usize, u64)> = group.iter().filter_map(bounded).collect();
    let nodes: Vec<usize> = counted.iter().map(|(node, _)| *node).collect();
    let between = web.longest(group, &nodes)?;
    let counted: u64 = counted.iter().map(|(_, most)| *most).fold(0, u64::saturating_add);
    Some(counted.saturating_add(counted.saturating_add(1).saturating_mul(between)))
}

/// Returns the heaviest way through the groups from the start; `None` if a group on a way has no bound.
fn over_groups(web: &Web, start: usize, weight: impl Fn(usize) -> Option<u64>) -> Option<u64> {
    let mut heaviest: Vec<Option<u64>> = Vec::with_capacity(web.groups.len());
    for (at, group) in web.groups.iter().enumerate() {
        let onward = group.iter().flat_map(|&node| &web.next[node]).map(|&next| web.group_of[next]);
        let behind = onward.filter(|&next| next != at).map(|next| heaviest[next]);
        heaviest.push(greatest(behind).and_then(|behind| behind.checked_add(weight(at)?)));
    }
    heaviest[web.group_of[start]]
}

fn reached(web: &Web, start: usize) -> Vec<usize> {
    let mut seen = vec![false; web.next.len()];
    let mut waiting = vec![start];
    while let Some(node) = waiting.pop() {
        if !std::mem::replace(&mut seen[node], true) {
            waiting.extend(&web.next[node]);
        }
    }
    (0..seen.len()).filter(|&node| seen[node]).collect()
}

/// Returns how many calls one visit of a node can make, each try counted.
fn calls_at(facts: &Facts<'_>, node: usize) -> Option<u64> {
    let definition = &facts.definition.nodes[node];
    let Some(call) = definition.call() else { return Some(0) };
    let each = match facts.tool(call).graph {
        Some(graph) => graph.budget.as_ref()?.calls?,
        None => 1,
    };
    let items = match &definition.kind {
        NodeKind::Foreach(each) => items(facts, each)?,
        _ => 1,
    };
    let retry = definition.conduct().and_then(|conduct| conduct.retry.as_ref());
    let own = retry.map_or(1, |retry| u64::from(retry.attempts));
    let again = retries_by_hooks(facts).max(if retry.is_none() { BUILT_IN_RETRIES } else { 0 });
    items.checked_mul(own.checked_add(again)?)?.checked_mul(each)
}

/// Returns how often hooks can have a call tried again.
fn retries_by_hooks(facts: &Facts<'_>) -> u64 {
    let of_hook = |reaction: &Reaction| match reaction {
        // What a tool answers is not known.
        Reaction::Call(_) => MOST_BY_HOOKS,
        Reaction::Steer(term) => {
            let TermKind::Object(params) = &term.kind else { return MOST_BY_HOOKS };
            let find = |name: &str| params.iter().find(|(key, _)| key.value == name).map(|(_, term)| &term.kind);
            match (find("action"), find("max_retries")) {
                (Some(TermKind::Literal(Value::String(action))), _) if action != "retry" => 0,
                (_, None) => BUILT_IN_RETRIES,
                (_, Some(TermKind::Literal(number))) => number.as_u64().unwrap_or(MOST_BY_HOOKS),
                _ => MOST_BY_HOOKS,
            }
        }
    };
    let hooks = facts.definition.hooks.iter().filter(|hook| hook.event == Event::Error);
    hooks.map(|hook| of_hook(&hook.reaction)).max().unwrap_or_default()
}

/// Returns how many elements a foreach goes over; `None` where that is not known.
fn items(facts: &Facts<'_>, each: &Foreach) -> Option<u64> {
    match &each.over.kind {
        TermKind::List(list) => Some(list.len() as u64),
        TermKind::Literal(Value::Array(list)) => Some(list.len() as u64),
        TermKind::Template { template: Template::Whole(expression), .. } => {
            greatest(expression.paths.iter().map(|path| most_items(facts, path)))
        }
        _ => None,
    }
}

/// Returns how many elements a list of the inputs, or a collected one, has at most.
fn most_items(facts: &Facts<'_>, path: &graph_model::path::Path) -> Option<u64> {
    if path.root != Root::Inputs {
        return None;
    }
    let mut schema = facts.definition.inputs.as_ref()?;
    for segment in &path.segments {
        schema = facts.definition.property(schema, segment)?;
    }
    schema.rules.iter().find(|rule| rule.keyword == "maxItems")?.value.as_u64()
}

/// Returns how many calls a visit of a node can have under way at once; `None` where nobody can say.
fn fan_out(facts: &Facts<'_>, node: usize) -> Option<u64> {
    let definition = &facts.definition.nodes[node];
    let Some(call) = definition.call() else { return Some(0) };
    let inner = match facts.tool(call).graph {
        Some(graph) => graph.budget.as_ref()?.at_a_time?,
        None => 1,
    };
    let width = match &definition.kind {
        NodeKind::Foreach(each) => {
            let width = u64::from(each.width.unwrap_or(facts.definition.settings.max_concurrency));
            items(facts, each).map_or(width, |items| items.min(width))
        }
        _ => 1,
    };
    width.checked_mul(inner)
}

/// Adds the calls that hooks make.
fn with_hooks(facts: &Facts<'_>, calls: u64, steps: u64) -> Option<u64> {
    let mut all = calls;
    for hook in &facts.definition.hooks {
        let Reaction::Call(call) = &hook.reaction else { continue };
        if call.id().is_some_and(|id| id.as_str() == CONTROL) {
            continue;
        }
        all = all.checked_add(match hook.event {
            Event::GraphStarted | Event::GraphCompleted => 1,
            Event::AfterStep => steps,
            Event::Error => calls,
            Event::Limit => MOST_BY_HOOKS,
        })?;
    }
    Some(all)
}

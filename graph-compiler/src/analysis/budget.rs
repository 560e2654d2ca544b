//! The upper bounds of a run.

use graph_definition::definition::agent::{MODEL, MOST_CALLS};
use graph_definition::definition::{
    AgentLimits, CallDefinition, ForeachDefinition, NodeKind, Reaction, RouteDefinition, TermDefinition, TermKind,
};
use graph_model::capability::Capability;
use graph_model::name::ItemId;
use graph_model::path::Root;
use graph_model::program::{CONTROL, CallLimits, Event, Executor, ItemType, Verb};
use graph_model::template::Template;
use graph_model::value::Value;

use super::branches::{Branches, begins};
use super::calls::begins_task;
use super::control_flow::ControlFlow;
use super::coverage::Coverage;
use super::joins::NodeJoin;
use super::least::LeastRun;
use super::model::Model;
use crate::graph::{AgentUsage, Budget, StepBound};

/// The default number of retries of a call whose node does not set one.
const BUILT_IN_RETRIES: u64 = 3;
/// The number of retries of a call that a hook can ask for, and the factor by which hooks can raise `max_steps`.
const MOST_BY_HOOKS: u64 = 100;

/// Computes the budget of a graph whose parts fit together. `None` if no run of it can end.
pub(crate) fn budget(least: LeastRun<'_, '_>, coverage: &[Option<Coverage<'_>>]) -> Option<Budget> {
    let LeastRun { model, branches, flow, .. } = least;
    let start = model.start.filter(|_| model.is_whole())?;
    let may_stop = model.may_end_anywhere();
    let limit = limit(model);
    let fewest = least.steps();
    if fewest.is_none() && !may_stop {
        return None;
    }
    let shortest = fewest.map_or(u64::MAX, |least| least.steps).min(limit);
    // A run that has used up its steps may end before it does more.
    let inside = |least: Option<u64>, none: u64| least.filter(|_| !may_stop).unwrap_or(none);
    let visits: Vec<Option<u64>> =
        flow.components.iter().map(|component| visits(model, coverage, flow, component)).collect();
    let paths = Paths { model, control: flow, branches };
    let own_steps = paths.heaviest(start, |component| visits[component]);
    let reached = reached(flow, start);
    let limited = limited_visits(model, &paths, &visits, &reached, start);
    let nested = model.definition.settings.steps.map(u64::from);
    let (steps, bounded_by) = lowest([
        (own_steps, StepBound::Edges),
        (limited, StepBound::Visits),
        (nested, StepBound::Steps),
        (Some(limit), StepBound::MaxSteps),
    ]);
    let calls: Vec<Option<u64>> = (0..flow.next.len()).map(|node| calls_at(model, node)).collect();
    let own_calls = most_in_run(&paths, &visits, (start, steps), &calls);
    // Nodes of different branches run at the same time.
    let at_a_time = match branches.is_empty() {
        true => 1,
        false => u64::from(model.definition.settings.max_concurrency),
    };
    let fan_out = greatest(reached.iter().map(|&node| fan_out(model, node)));
    let fan_out = fan_out.and_then(|calls| calls.checked_mul(at_a_time));
    let levels = greatest(
        model
            .tools
            .iter()
            .filter_map(|tool| tool.graph)
            .map(|graph| graph.budget.as_ref().and_then(|budget| budget.levels).map(|levels| levels + 1)),
    );
    let (usage, usage_inside) = usage(&paths, &visits, (start, steps), own_calls);
    Some(Budget {
        shortest,
        shortest_inside: inside(least.steps_inside(), shortest),
        shortest_ms: inside(least.waits_ms(), 0),
        steps,
        bounded_by,
        calls: own_calls.and_then(|calls| with_hooks(model, calls, steps)),
        at_a_time: fan_out,
        levels,
        usage,
        usage_inside,
    })
}

/// Returns the most that a number, which each node has for a visit, is in a run that begins at `root` and takes so many steps.
fn most_in_run(
    paths: &Paths<'_, '_>,
    visits: &[Option<u64>],
    (root, steps): (usize, u64),
    numbers: &[Option<u64>],
) -> Option<u64> {
    let (model, flow) = (paths.model, paths.control);
    let reached = reached(flow, root);
    let along = paths.heaviest(root, |component| {
        match greatest(flow.components[component].iter().map(|&node| numbers[node]))? {
            0 => Some(0),
            most => visits[component]?.checked_mul(most),
        }
    });
    let any = greatest(reached.iter().map(|&node| numbers[node])).and_then(|most| most.checked_mul(steps));
    let each = model.definition.settings.visits.and_then(|most| {
        let all = reached.iter().try_fold(0_u64, |all, &node| all.checked_add(numbers[node]?));
        all?.checked_mul(u64::from(most))
    });
    along.into_iter().chain(any).chain(each).chain(most_by_rounds(paths, (root, steps), numbers)).min()
}

/// For how many nodes the lengths of their loops are found: for each, all nodes are traversed.
const MOST_LOOPED: usize = 64;

/// As [`most_in_run`], by the lengths of loops: between two visits of a node are those of the shortest way back to it. `None` if branches
/// may visit it at the same time.
fn most_by_rounds(paths: &Paths<'_, '_>, (root, steps): (usize, u64), numbers: &[Option<u64>]) -> Option<u64> {
    let reached = reached(paths.control, root);
    let counted: Vec<usize> = reached.into_iter().filter(|&node| numbers[node] != Some(0)).collect();
    if !paths.branches.is_empty() || counted.len() > MOST_LOOPED {
        return None;
    }
    let flow = paths.control;
    let is_in_loop = |node: &usize| flow.is_cyclic(&flow.components[flow.component_of[*node]]);
    if !counted.iter().any(is_in_loop) {
        return None;
    }
    counted.into_iter().try_fold(0_u64, |all, node| {
        let visits = match is_in_loop(&node) {
            true => {
                let (before, round) = flow.rounds(&[root], node, &|_| 1);
                steps.checked_sub(before).map_or(0, |left| 1 + left / round.max(1))
            }
            false => 1,
        };
        all.checked_add(numbers[node]?.checked_mul(visits)?)
    })
}

/// Returns the most that the agents of a run use, and the part of it that an agent uses by calls of others.
fn usage(
    paths: &Paths<'_, '_>,
    visits: &[Option<u64>],
    (start, steps): (usize, u64),
    calls: Option<u64>,
) -> (AgentUsage, AgentUsage) {
    let model = paths.model;
    let nodes: Vec<AgentUsage> = (0..model.definition.nodes.len()).map(|node| usage_at(model, node)).collect();
    if let Some(agent) = &model.items.agent {
        let inside = nodes.iter().fold(AgentUsage::NOTHING, |most, one| most.max(*one));
        let inside = inside.times(Some(u64::from(agent.turns) * MOST_CALLS));
        return (of_agent(agent, CallLimits::default()).plus(inside), inside);
    }
    if let Some(calls) = model.items.most_calls {
        let dearest = nodes.iter().fold(AgentUsage::NOTHING, |most, one| most.max(*one));
        return (dearest.times(Some(calls)), AgentUsage::NOTHING);
    }
    // A run from an entry has other paths.
    let limit = limit(model);
    let roots: Vec<(usize, u64)> =
        model.roots().map(|root| (root, if root == start { steps } else { limit })).collect();
    let most = |number: fn(&AgentUsage) -> Option<u64>| {
        let numbers: Vec<Option<u64>> = nodes.iter().map(number).collect();
        greatest(roots.iter().map(|&root| most_in_run(paths, visits, root, &numbers)))
    };
    let own =
        AgentUsage { turns: most(|one| one.turns), tokens: most(|one| one.tokens), micros: most(|one| one.micros) };
    let hooks = model.definition.hooks.iter().map(|hook| {
        let Reaction::Call(call) = &hook.reaction else { return AgentUsage::NOTHING };
        let times = match hook.event {
            Event::GraphStarted | Event::GraphCompleted => Some(1),
            Event::AfterStep => Some(steps.max(limit)),
            Event::Error => calls,
            Event::Limit => Some(MOST_BY_HOOKS),
        };
        usage_of(model, call, CallLimits::default()).times(times)
    });
    (hooks.fold(own, AgentUsage::plus), AgentUsage::NOTHING)
}

/// Returns the most that a visit of a node lets agents use, counting every attempt.
pub(crate) fn usage_at(model: &Model<'_>, node: usize) -> AgentUsage {
    let definition = &model.definition.nodes[node];
    let Some(call) = definition.call() else { return AgentUsage::NOTHING };
    let limits = definition.conduct().map(|conduct| conduct.limits).unwrap_or_default();
    usage_of(model, call, limits).times(attempts_at(model, node))
}

/// Returns the most that one call lets agents use, with the limits of its node.
fn usage_of(model: &Model<'_>, call: &CallDefinition, limits: CallLimits) -> AgentUsage {
    let graph = model.tool(call).graph;
    if let Some((graph, agent)) = graph.and_then(|graph| Some((graph, graph.limits.as_ref()?))) {
        let inside = graph.budget.as_ref().map_or(AgentUsage::UNKNOWN, |budget| budget.usage_inside);
        return of_agent(agent, limits).plus(inside);
    }
    // No agent runs inside a graph that may not ask models, and none is called by its id.
    let model_of_agents = ItemId::new(MODEL).ok();
    let capability = Capability::new(Verb::Execute, ItemType::Tool, model_of_agents.as_ref());
    let may_ask = model.permissions().any(|pattern| pattern.value.grants(&capability));
    match (graph, call.id()) {
        _ if !may_ask => AgentUsage::NOTHING,
        (Some(graph), _) => graph.budget.as_ref().map_or(AgentUsage::UNKNOWN, |budget| budget.usage),
        (None, Some(id)) if id.as_str() == MODEL && model.items.agent.is_none() => AgentUsage::UNKNOWN,
        // A task has limits of its own, and continues when the run has ended.
        (None, Some(id)) if begins_task(id) => AgentUsage::UNKNOWN,
        (None, Some(_)) => AgentUsage::NOTHING,
        (None, None) => AgentUsage::UNKNOWN,
    }
}

/// Returns the limits of an agent's own turns, which those of a node narrow.
fn of_agent(agent: &AgentLimits, limits: CallLimits) -> AgentUsage {
    let least = |one: Option<u64>, other: Option<u64>| one.into_iter().chain(other).min();
    AgentUsage {
        turns: least(Some(u64::from(agent.turns)), limits.turns.map(u64::from)),
        tokens: least(agent.tokens, limits.tokens),
        micros: least(agent.spend, limits.micros),
    }
}

/// Returns how many nodes a run visits at most with `limits.visits`, if the graph has it. `visits` are those of each component
/// that the edges allow.
fn limited_visits(
    model: &Model<'_>,
    paths: &Paths<'_, '_>,
    visits: &[Option<u64>],
    reached: &[usize],
    start: usize,
) -> Option<u64> {
    let most = u64::from(model.definition.settings.visits?);
    let is_visited = |&node: &usize| !model.definition.nodes[node].is_start();
    let all = |nodes: &[usize]| most.saturating_mul(nodes.iter().copied().filter(is_visited).count() as u64);
    let along = paths.heaviest(start, |component| {
        let most = all(&paths.control.components[component]);
        Some(visits[component].map_or(most, |own| own.min(most)))
    });
    along.into_iter().chain([all(reached)]).min()
}

/// Returns the lowest of the bounds of a run's steps that are known, and the first of those that are equal.
fn lowest(bounds: [(Option<u64>, StepBound); 4]) -> (u64, StepBound) {
    let known = bounds.into_iter().filter_map(|(most, bound)| Some((most?, bound)));
    known.min_by_key(|(most, _)| *most).unwrap_or((u64::MAX, StepBound::MaxSteps))
}

/// Returns the greatest of several numbers, or 0 if there are no numbers; `None` if one has no bound.
fn greatest<N: Default + Ord>(mut numbers: impl Iterator<Item = Option<N>>) -> Option<N> {
    numbers.try_fold(N::default(), |most, one| Some(most.max(one?)))
}

/// Returns the number of steps that `max_steps` and the hooks that raise it allow.
fn limit(model: &Model<'_>) -> u64 {
    let most = u64::from(model.definition.settings.max_steps);
    let is_raised = model.definition.hooks.iter().any(|hook| hook.event == Event::Limit);
    if is_raised { most.saturating_mul(MOST_BY_HOOKS) } else { most }
}

/// Returns how many visits of a component's nodes a run can make; `None` if the graph sets no bound.
///
/// A loop is bounded if every path around it leads through nodes that compare `visit.number` and continue the loop only up to
/// some number. Each of these nodes is visited at most that often, and between two of their visits no node is visited twice.
fn visits(
    model: &Model<'_>,
    coverage: &[Option<Coverage<'_>>],
    flow: &ControlFlow,
    component: &[usize],
) -> Option<u64> {
    if !flow.is_cyclic(component) {
        let is_visited = |&node: &usize| !model.definition.nodes[node].is_start();
        return Some(u64::from(component.iter().all(is_visited)));
    }
    // In a round of a loop that fans out, several paths are followed.
    if component.iter().any(|&node| begins(model.definition.nodes[node].next())) {
        return None;
    }
    let bounded = |&node: &usize| -> Option<(usize, u64)> {
        let followed = &coverage[node].as_ref()?.followed;
        // A failure does not depend on the number of the visit, and neither does a signal that does not come.
        let is_inside = |next: usize| flow.component_of[next] == flow.component_of[node];
        if model.other_successors(node).any(is_inside) {
            return None;
        }
        let round = model.edge_indices(node).zip(model.successors(node));
        let round = round.filter(|(edge, next)| followed.can_follow[*edge] && is_inside(*next));
        Some((node, greatest(round.map(|(edge, _)| followed.last_visit[edge]))?.saturating_add(1)))
    };
    let counted: Vec<(usize, u64)> = component.iter().filter_map(bounded).collect();
    let nodes: Vec<usize> = counted.iter().map(|(node, _)| *node).collect();
    let between = flow.longest(component, &nodes)?;
    let counted: u64 = counted.iter().map(|(_, most)| *most).fold(0, u64::saturating_add);
    Some(counted.saturating_add(counted.saturating_add(1).saturating_mul(between)))
}

/// The paths of a graph, through its components.
struct Paths<'a, 'd> {
    model: &'a Model<'d>,
    control: &'a ControlFlow,
    branches: &'a Branches,
}

impl Paths<'_, '_> {
    /// Returns the weight of the heaviest run from the start: the sum over its branches, and the greatest of the paths that
    /// exclude each other. `None` if a component that a run can come to has no bound.
    fn heaviest(&self, start: usize, weight: impl Fn(usize) -> Option<u64>) -> Option<u64> {
        let (flow, joins) = (self.control, self.branches.joins());
        let mut heaviest: Vec<Option<u64>> = Vec::with_capacity(flow.components.len());
        for (at, component) in flow.components.iter().enumerate() {
            // A join and the nodes behind it are added once, where the branches begin.
            let is_counted = |next: usize| flow.component_of[next] != at && self.branches.place(next).is_none();
            let passed_over = match component.as_slice() {
                [join] => self.model.fewer_successor(*join).filter(|fewer| !self.leads_to(*join, *fewer)),
                _ => None,
            };
            let behind = match component.as_slice() {
                [fan] if begins(self.model.definition.nodes[*fan].next()) => {
                    let most = self.most_branches(*fan);
                    let branches = flow.next[*fan].iter().filter(|&&next| is_counted(next));
                    let branches = branches.map(|&next| heaviest[flow.component_of[next]]);
                    let sum = branches.chain([Some(0)]).try_fold(0_u64, |sum, one| sum.checked_add(one?));
                    let joins = joins.get(fan).into_iter().flatten().map(|&join| heaviest[flow.component_of[join]]);
                    let sum = sum.and_then(|sum| if sum == 0 { Some(0) } else { sum.checked_mul(most?) });
                    joins.fold(sum, |sum, join| sum?.checked_add(join?))
                }
                _ => {
                    let passes = |next: &&usize| passed_over != Some(**next);
                    let onward = component.iter().flat_map(|&node| &flow.next[node]).filter(|&&next| is_counted(next));
                    greatest(onward.filter(passes).map(|&next| heaviest[flow.component_of[next]]))
                }
            };
            let own = behind.and_then(|behind| behind.checked_add(weight(at)?));
            // The node in `fewer` is visited instead of its join.
            let instead = passed_over.filter(|&next| is_counted(next)).map(|next| heaviest[flow.component_of[next]]);
            heaviest.push(greatest([own].into_iter().chain(instead)));
        }
        heaviest[flow.component_of[start]]
    }

    /// Whether a node leads to another one when it is visited.
    fn leads_to(&self, node: usize, next: usize) -> bool {
        let otherwise = self.model.error_successor(node).into_iter().chain(self.model.timeout_successor(node));
        self.model.successors(node).chain(otherwise).any(|one| one == next)
    }

    /// Returns how many branches begin with one edge of a fan-out; `None` if that is not known.
    fn most_branches(&self, fan: usize) -> Option<u64> {
        let RouteDefinition::Each(each) = self.model.definition.nodes[fan].next() else { return Some(1) };
        let most = each.most.map(u64::from);
        items_of(self.model, &each.over).into_iter().chain(most).min()
    }
}

fn reached(flow: &ControlFlow, start: usize) -> Vec<usize> {
    let mut seen = vec![false; flow.next.len()];
    let mut waiting = vec![start];
    while let Some(node) = waiting.pop() {
        if !std::mem::replace(&mut seen[node], true) {
            waiting.extend(&flow.next[node]);
        }
    }
    (0..seen.len()).filter(|&node| seen[node]).collect()
}

/// Returns how many calls one visit of a node can make, counting every attempt.
fn calls_at(model: &Model<'_>, node: usize) -> Option<u64> {
    let definition = &model.definition.nodes[node];
    let Some(call) = definition.call() else { return Some(0) };
    let each = match model.tool(call).graph {
        Some(graph) => graph.budget.as_ref()?.calls?,
        None => 1,
    };
    attempts_at(model, node)?.checked_mul(each)
}

/// Returns how often one visit of a node can make its call: for each item of a foreach, and again after failures.
pub(crate) fn attempts_at(model: &Model<'_>, node: usize) -> Option<u64> {
    let definition = &model.definition.nodes[node];
    let items = match &definition.kind {
        NodeKind::Foreach(each) => items(model, each)?,
        _ => 1,
    };
    let own = definition.conduct().and_then(|conduct| conduct.retry.as_ref());
    // A graph that the node names is run once, unless the node or a hook says otherwise.
    let is_graph = definition.call().is_some_and(|call| model.tool(call).by == Executor::Graph);
    let built_in = if own.is_none() && !is_graph { BUILT_IN_RETRIES } else { 0 };
    let own = own.map_or(1, |retry| u64::from(retry.attempts));
    let again = retries_by_hooks(model).max(built_in);
    items.checked_mul(own.checked_add(again)?)
}

/// Returns how many retries hooks can ask for.
fn retries_by_hooks(model: &Model<'_>) -> u64 {
    let of_hook = |reaction: &Reaction| match reaction {
        // A tool's answer is not known.
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
    let hooks = model.definition.hooks.iter().filter(|hook| hook.event == Event::Error);
    hooks.map(|hook| of_hook(&hook.reaction)).max().unwrap_or_default()
}

/// Returns how many elements a foreach goes over; `None` where that is not known.
fn items(model: &Model<'_>, each: &ForeachDefinition) -> Option<u64> {
    items_of(model, &each.over)
}

/// Returns how many branches can arrive at a join in one run, if a quorum needs more than that.
pub(crate) fn too_few(model: &Model<'_>, join: &NodeJoin) -> Option<u64> {
    most_arrivals(model, join).filter(|most| join.need.is_some_and(|need| *most < need as u64))
}

/// Returns how many branches can arrive at a join in one run; `None` if there is no bound.
fn most_arrivals(model: &Model<'_>, join: &NodeJoin) -> Option<u64> {
    match model.definition.nodes[join.fan].next() {
        RouteDefinition::Each(each) => items_of(model, &each.over).into_iter().chain(each.most.map(u64::from)).min(),
        _ => Some(join.branches.iter().filter(|branch| branch.arrives).count() as u64),
    }
}

/// Returns how many elements a list has at most; `None` where that is not known.
fn items_of(model: &Model<'_>, over: &TermDefinition) -> Option<u64> {
    match &over.kind {
        TermKind::List(list) => Some(list.len() as u64),
        TermKind::Literal(Value::Array(list)) => Some(list.len() as u64),
        TermKind::Template { template: Template::Whole(expression), .. } => {
            greatest(expression.paths.iter().map(|path| most_items(model, path)))
        }
        _ => None,
    }
}

/// Returns how many elements a list of the inputs, or a collected one, has at most.
fn most_items(model: &Model<'_>, path: &graph_model::path::Path) -> Option<u64> {
    if path.root != Root::Inputs {
        return None;
    }
    let mut schema = model.definition.inputs.as_ref()?;
    for segment in &path.segments {
        schema = model.definition.property(schema, segment)?;
    }
    schema.rules.iter().find(|rule| rule.keyword == "maxItems")?.value.as_u64()
}

/// Returns how many calls a visit of a node can have under way at the same time; `None` if that is not known.
fn fan_out(model: &Model<'_>, node: usize) -> Option<u64> {
    let definition = &model.definition.nodes[node];
    let Some(call) = definition.call() else { return Some(0) };
    let inner = match model.tool(call).graph {
        Some(graph) => graph.budget.as_ref()?.at_a_time?,
        None => 1,
    };
    let width = match &definition.kind {
        NodeKind::Foreach(each) => {
            let width = u64::from(each.width.unwrap_or(model.definition.settings.max_concurrency));
            items(model, each).map_or(width, |items| items.min(width))
        }
        _ => 1,
    };
    width.checked_mul(inner)
}

/// Adds the calls that hooks make.
fn with_hooks(model: &Model<'_>, calls: u64, steps: u64) -> Option<u64> {
    let mut all = calls;
    for hook in &model.definition.hooks {
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

#[cfg(test)]
mod tests;

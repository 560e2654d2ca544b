//! Runs come to an end: every loop can be left, and the limits suffice for the run that costs least.

use std::time::Duration;

use graph_definition::definition::{Assignment, EdgeList, NodeKind, RouteDefinition, TermKind, TestDefinition};
use graph_definition::diagnostic::{Diagnostics, code};
use graph_definition::hash::{HashMap, HashSet};
use graph_model::duration::shown;
use graph_model::path::{Path, Root};
use graph_model::program::{Event, LAST_ERROR, RETRIES};
use graph_model::template::Template;

use super::assigned::show_path;
use super::late;
use crate::analysis::Analysis;
use crate::analysis::branches::begins;
use crate::analysis::calls::Caller;
use crate::analysis::control_flow::ControlFlow;
use crate::analysis::least::LeastSteps;
use crate::items::{TaskItem, TaskTarget};

pub(super) fn check(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    depth(analysis, diagnostics);
    if analysis.model.start.is_none() || !analysis.model.is_whole() {
        return;
    }
    let flow = &analysis.control_flow;
    let are_too_few = steps(analysis, diagnostics);
    if !visits(analysis, flow, diagnostics) && !are_too_few {
        late::check(analysis, diagnostics);
    }
    nested_steps(analysis, diagnostics);
    deadline(analysis, diagnostics);
    // A hook may end a run after any step; a run that has used up its steps may end successfully.
    let may_be_stopped = analysis.model.definition.hooks.iter().any(|hook| matches!(hook.event, Event::AfterStep));
    if !may_be_stopped && !analysis.model.may_end_anywhere() {
        flow.components
            .iter()
            .filter(|component| flow.is_cyclic(component))
            // The rounds of a loop that fans out end at its join.
            .filter(|component| !component.iter().any(|&node| begins(analysis.model.definition.nodes[node].next())))
            .for_each(|component| stuck(analysis, flow, component, diagnostics));
    }
}

/// Reports graphs that are nested deeper than the graph allows.
fn depth(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    let most = analysis.model.definition.settings.depth;
    for (caller, call) in analysis.model.calls() {
        let task = analysis.model.task(call).and_then(|task| task.name);
        if let Some(task) = task
            && let Some(TaskTarget::Found(TaskItem { levels: Some(levels), .. })) = analysis.model.started(&task)
        {
            // A task has one level less than the run around its call.
            let levels = levels.saturating_add(1);
            if levels > most {
                let message = format!("{caller} runs graphs {levels} deep, and `limits.depth` is {most}");
                diagnostics
                    .lint(code::TOO_DEEP_GRAPHS, analysis.model.place(task.span), message)
                    .note("a task has one level less than the graph that spawns it")
                    .help(format!("allow for it: `limits: {{ depth: {levels} }}`"));
            }
        }
        let Some(graph) = analysis.model.tool(call).graph else { continue };
        if graph.is_endless {
            diagnostics
                .lint(
                    code::TOO_DEEP_GRAPHS,
                    analysis.model.place(&call.item.span),
                    format!("every run of {} nests itself, directly or through others", call.shown()),
                )
                .label("no run of it can end")
                .help("add a condition that leads past the node once the nested graph has nothing left to do");
            continue;
        }
        // If graphs form a circle, their depth is not known.
        let Some(levels) = graph.budget.as_ref().and_then(|budget| budget.levels) else { continue };
        let levels = levels.saturating_add(1);
        let most = match caller {
            Caller::Node(_, node) => node.conduct().map_or(most, |conduct| conduct.limits.depth_within(most)),
            Caller::Hook(..) => most,
        };
        if levels > most {
            diagnostics
                .lint(
                    code::TOO_DEEP_GRAPHS,
                    analysis.model.place(&call.item.span),
                    format!("{caller} runs graphs {levels} deep, and `limits.depth` is {most}"),
                )
                .help(format!("allow for it: `limits: {{ depth: {levels} }}`"));
        }
    }
}

/// Reports that no run can come to an end within `max_steps`; returns whether that is so.
fn steps(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) -> bool {
    let most = analysis.model.definition.settings.max_steps;
    let raises = analysis.model.definition.hooks.iter().any(|hook| matches!(hook.event, Event::Limit));
    // Where no path leads to an end, another rule says so.
    let Some(LeastSteps { steps: needed, along, path }) = analysis.least().steps() else { return false };
    if needed <= u64::from(most) || raises || analysis.model.may_end_anywhere() {
        return false;
    }
    let definition = analysis.model.definition;
    let span = definition.max_steps.clone().or_else(|| definition.start.as_ref().map(|start| start.span.clone()));
    let shown = show_path(path.iter().map(|&at| definition.nodes[at].name.value.as_str()));
    let (why, label) = match along == needed {
        true => ("the shortest path has", format!("the shortest path is {shown}")),
        false => ("branches included, one has at least", "each visit in a branch is a step".to_owned()),
    };
    let from_start = if definition.entries.is_empty() { "" } else { " from the start" };
    let diagnostic = diagnostics
        .lint(
            code::TOO_FEW_STEPS,
            analysis.model.place(&span.unwrap_or_else(|| definition.head.clone())),
            format!("no run{from_start} can end within {most} steps: {why} {needed}"),
        )
        .label(label)
        .help(format!("allow for {needed} steps at least: `max_steps: {needed}`"));
    if along == needed && (path.len() as u64) < needed {
        diagnostic.note("the conditions on `visit.number` require that a node on it is visited more than once");
    }
    true
}

/// Reports that no run can come to an end within `limits.visits`; returns whether that is so.
fn visits(analysis: &Analysis<'_>, flow: &ControlFlow, diagnostics: &mut Diagnostics) -> bool {
    let definition = analysis.model.definition;
    let (Some(most), Some(span)) = (definition.settings.visits, &definition.visits) else { return false };
    let rounds = flow.fewest_visits(&analysis.model.first()).map(|needed| (needed, None));
    let of_lists = analysis.least().visits_of_branches().map(|(needed, node)| (needed, Some(node)));
    let Some((needed, node)) = rounds.into_iter().chain(of_lists).max_by_key(|(needed, _)| *needed) else {
        return false;
    };
    if needed <= u64::from(most) || analysis.model.may_end_anywhere() {
        return false;
    }
    let (which, why) = match node {
        None => ("one".to_owned(), "the conditions on `visit.number` require that"),
        Some(node) => (format!("`{}`", definition.nodes[node].name), "it is visited for each element of a list"),
    };
    diagnostics
        .lint(
            code::TOO_LOW_LIMIT,
            analysis.model.place(span),
            format!("no run can end with {most} visits of each node: {which} is visited {needed} times at least"),
        )
        .note(why)
        .help(format!("allow for it: `limits: {{ visits: {needed} }}`"));
    true
}

/// Reports that no run can come to an end within `limits.steps` of the graph, or no run of a graph inside within that of its
/// node.
fn nested_steps(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    let definition = analysis.model.definition;
    if let (Some(most), Some(span)) = (definition.settings.steps, &definition.steps)
        && let Some(needed) = analysis.least().steps_inside().filter(|needed| *needed > u64::from(most))
        && !analysis.model.may_end_anywhere()
    {
        let own = analysis.least().steps().map_or(0, |least| least.steps);
        let diagnostic = diagnostics
            .lint(
                code::TOO_LOW_LIMIT,
                analysis.model.place(span),
                format!("no run can end within {most} steps: it has at least {needed}"),
            )
            .help(format!("allow for it: `limits: {{ steps: {needed} }}`"));
        if own < needed {
            diagnostic.note("the steps of the graphs that run inside count too");
        }
    }
    for (at, node) in definition.nodes.iter().enumerate() {
        let Some((call, conduct)) = node.call().zip(node.conduct()) else { continue };
        let budget = analysis.model.tool(call).graph.and_then(|graph| graph.budget.as_ref());
        let field = conduct.limit_fields.iter().find(|field| field.value == "steps");
        let (Some(budget), Some(most), Some(field)) = (budget, conduct.limits.steps, field) else { continue };
        // The limit is that of all runs that a visit begins.
        let runs = if node.each().is_some() { analysis.lists[at].elements.max(1) } else { 1 };
        let needed = budget.shortest_inside.saturating_mul(runs);
        if needed > u64::from(most) {
            let whose = match runs {
                1 => format!("no run of {} can end within {most} steps: it has at least {needed}", call.shown()),
                _ => format!(
                    "{runs} runs of {} cannot end within {most} steps: they have at least {needed}",
                    call.shown()
                ),
            };
            diagnostics
                .lint(code::TOO_LOW_LIMIT, analysis.model.place(&field.span), whose)
                .help(format!("allow for it: `limits: {{ steps: {needed} }}`"));
        }
    }
}

/// Reports that every run waits longer than its deadline.
fn deadline(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    let definition = analysis.model.definition;
    let (Some(most), Some(span)) = (definition.settings.deadline_ms, &definition.deadline) else { return };
    let Some(needed) = analysis.least().waits_ms().filter(|needed| *needed > most) else { return };
    // One wait that is too long is reported where it is.
    let is_reported = definition.nodes.iter().any(|node| node.waits_ms().is_some_and(|time| time > most));
    if is_reported || analysis.model.may_end_anywhere() {
        return;
    }
    let duration = |milliseconds| shown(Duration::from_millis(milliseconds));
    diagnostics
        .lint(
            code::TOO_LOW_LIMIT,
            analysis.model.place(span),
            format!("no run can end within {}: it waits for {} at least", duration(most), duration(needed)),
        )
        .note("waits that follow each other add up, also those of graphs that run inside")
        .help("let it wait for less, or raise `limits.deadline`");
}

/// Returns the keys whose values a node of a loop may change. A key is left out if the node writes the value that it already
/// has, or if the node is the only way out and writes the same value in every round, before its edges are chosen.
fn changed<'d>(analysis: &Analysis<'d>, node: usize, exits: &[usize]) -> Vec<&'d str> {
    let definition = &analysis.model.definition.nodes[node];
    let mut assigned: HashMap<&str, &Assignment> = HashMap::default();
    for assignment in definition.assign() {
        assigned.entry(assignment.key.value.as_str()).or_insert(assignment);
    }
    let is_same = |key: &str| {
        // A channel adds each write to its value.
        if analysis.model.combines_name(key) {
            return false;
        }
        let own = assigned.get(key);
        let path = own.and_then(|own| match &own.value.kind {
            TermKind::Template { template: Template::Whole(expression), .. } => match expression.paths.as_slice() {
                [path] => Some(path),
                _ => None,
            },
            _ => None,
        });
        let is_itself = |path: &Path| path.root == Root::State && path.segments == [key];
        let is_only_writer = || exits == [node] && !analysis.model.may_skip_assign(node);
        match path {
            Some(path) => is_itself(path) || (path.root == Root::Inputs && is_only_writer()),
            // A foreach over no items collects the same list each time.
            None => own.is_none() && goes_over_nothing(&definition.kind) && is_only_writer(),
        }
    };
    let written = definition.changed().map(|key| key.value.as_str());
    written.filter(|key| !is_same(key)).collect()
}

/// Whether a node is a foreach over a list that is always empty.
fn goes_over_nothing(kind: &NodeKind) -> bool {
    matches!(kind, NodeKind::Foreach(each) if matches!(&each.over.kind, TermKind::List(list) if list.is_empty()))
}

/// How many ways out of a loop are analysed: for each, a search shows whether the loop continues without it.
const MOST_EXITS: usize = 64;

/// Reports a loop whose ways out depend on nothing that changes in the loop.
fn stuck(analysis: &Analysis<'_>, flow: &ControlFlow, component: &[usize], diagnostics: &mut Diagnostics) {
    let inside =
        |node: usize| component.first().is_some_and(|&first| flow.component_of[first] == flow.component_of[node]);
    let leaves = |node: usize| flow.ends[node] || flow.next[node].iter().any(|&next| !inside(next));
    let mut exits: Vec<usize> = component.iter().copied().filter(|&node| leaves(node)).collect();
    // Whether the conditions of all ways out never hold, whatever the values are.
    let is_closed = exits.is_empty();
    if is_closed {
        let is_written = |&node: &usize| analysis.model.successors(node).any(|next| !inside(next));
        exits = component.iter().copied().filter(is_written).collect();
    }
    if exits.len() > MOST_EXITS {
        return;
    }
    // Nodes of other branches may write while the loop runs.
    let beside = component.iter().flat_map(|&node| analysis.flow.joins().beside(node));
    let beside = beside.map(|&key| analysis.model.keys[key].name);
    let written: HashSet<&str> =
        component.iter().flat_map(|&node| changed(analysis, node, &exits)).chain(beside).collect();
    let changes = |path: &Path| match (path.root, path.segments.first()) {
        (Root::Inputs, _) => false,
        (Root::State, Some(key)) => key == LAST_ERROR || key == RETRIES || written.contains(key.as_str()),
        _ => true,
    };
    let mut tests: Vec<&TestDefinition> = Vec::new();
    for &node in &exits {
        // A failure may occur at any time, and a signal may not come.
        if analysis.model.other_successors(node).any(|next| !inside(next)) {
            return;
        }
        let RouteDefinition::First(EdgeList { edges, .. }) = analysis.model.definition.nodes[node].next() else {
            return;
        };
        edges.iter().for_each(|edge| edge.when.tests(&mut |test| tests.push(test)));
        // A run that loops on another path may reach this way out later.
        if flow.is_cyclic_without(component, &[node]) {
            return;
        }
    }
    let Some(first) = tests.first() else { return };
    if !is_closed && tests.iter().any(|test| changes(&test.path.value)) {
        return;
    }
    let names = |nodes: &[usize]| {
        let names = nodes.iter().map(|&at| analysis.model.definition.nodes[at].name.value.as_str());
        names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
    };
    const SHOWN: usize = 8;
    let mut paths: Vec<String> = Vec::new();
    for test in tests.iter().take(100) {
        let path = format!("`{}`", test.path.value);
        if !paths.contains(&path) {
            paths.push(path);
        }
    }
    let looked_at = paths.join(", ");
    diagnostics
        .lint(
            code::STUCK_LOOP,
            analysis.model.place(&first.path.span),
            format!(
                "the loop of {}{} cannot end after its first round",
                names(&component[..component.len().min(SHOWN)]),
                if component.len() > SHOWN { " …" } else { "" }
            ),
        )
        .label(match is_closed {
            true => format!("no value of {looked_at} leads out of it"),
            false => format!("nothing in the loop changes {looked_at}"),
        })
        .help(
            "let a node of the loop write a value that an exit looks at, or look at `visit.number`: \
             `{ path: visit.number, op: lt, value: 10 }`",
        );
}

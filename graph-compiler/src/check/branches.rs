//! Branches begin, meet and end properly: every join is visited once, and a run never returns while a branch is active.

use graph_definition::definition::{EdgeList, NodeDefinition, RouteDefinition};
use graph_definition::diagnostic::{Diagnostic, Diagnostics, code};
use graph_definition::hash::{HashMap, HashSet};
use graph_definition::source::Span;

use super::assigned::show_path;
use crate::analysis::Analysis;
use crate::analysis::branches::{BranchFault, begins};
use crate::analysis::edges::edges;

pub(super) fn check(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    let said = diagnostics.len();
    let sources = sources(analysis);
    for (at, node) in analysis.model.definition.nodes.iter().enumerate() {
        check_sources(analysis, node, &sources[at], diagnostics);
        check_targets(analysis, node, diagnostics);
    }
    check_max_steps(analysis, diagnostics);
    // The mistakes found so far are the cause of most that would follow.
    if analysis.model.is_whole() && diagnostics.len() == said {
        let mut outside = HashSet::default();
        for fault in causes(analysis) {
            match fault {
                // Several visits of a node may come on one way.
                BranchFault::Outside { join, from, fan } if !outside.insert(entrance(analysis, *join, *from, *fan)) => {
                }
                fault => report(analysis, &sources, fault, diagnostics),
            }
        }
        if diagnostics.len() == said {
            check_partial(analysis, diagnostics);
            check_cancels(analysis, diagnostics);
        }
    }
}

/// Returns for each node the nodes of the file that lead to it.
fn sources(analysis: &Analysis<'_>) -> Vec<Vec<usize>> {
    let (model, nodes) = (&analysis.model, &analysis.model.definition.nodes);
    let mut sources = vec![Vec::new(); nodes.len()];
    for source in (0..nodes.len()).filter(|&source| !nodes[source].is_start()) {
        model.onward(source).for_each(|next| sources[next].push(source));
    }
    sources.iter_mut().for_each(Vec::dedup);
    sources
}

/// Checks that a join lists exactly the nodes whose edges lead to it: its `sources`.
fn check_sources(analysis: &Analysis<'_>, node: &NodeDefinition, sources: &[usize], diagnostics: &mut Diagnostics) {
    let Some(last) = node.waits_for.last() else { return };
    let model = &analysis.model;
    let names = |at: usize| model.definition.nodes[at].name.value.as_str();
    let said = diagnostics.len();
    let field = if node.quorum.is_some() { "of" } else { "waits_for" };
    let sources_of = || listed(sources.iter().map(|&at| names(at)));
    let help = format!("the nodes whose edges lead here: `{field}: [{}]`", sources_of());
    for waited in &node.waits_for {
        let name = waited.value.as_str();
        if !model.is_node(name) {
            let message = format!("node `{}` waits for `{name}`, which does not exist", node.name);
            diagnostics
                .error(code::BAD_JOIN, model.place(&waited.span), message)
                .label("no node with this name")
                .suggest(name, model.node_names());
            continue;
        }
        let is_source = model.node(name).is_none_or(|waited| sources.contains(&waited));
        if !is_source && model.is_whole() {
            let message = format!("node `{}` waits for `{name}`, which has no edge that leads here", node.name);
            let diagnostic = diagnostics.error(code::BAD_JOIN, model.place(&waited.span), message);
            diagnostic.label("no `next` or `on_error` of it leads here").help(help.clone());
        }
    }
    if diagnostics.len() > said {
        return;
    }
    for &source in sources {
        let name = names(source);
        if node.waits_for.iter().all(|waited| waited.value.as_str() != name) {
            let message = format!("node `{name}` leads to `{}`, which does not wait for it", node.name);
            diagnostics
                .error(code::BAD_JOIN, model.place(edge_to(&model.definition.nodes[source], node)), message)
                .related(model.place(&last.span), "it waits for these")
                .help(format!("add it: `{field}: [{}]`", sources_of()));
        }
    }
}

/// Returns the place of the edge of a node that leads to another one.
fn edge_to<'d>(source: &'d NodeDefinition, node: &NodeDefinition) -> &'d Span {
    let others = source.on_error().into_iter().chain(source.on_timeout()).chain(source.fewer());
    let mut targets = edges(source.next()).into_iter().filter_map(|edge| edge.to).chain(others);
    &targets.find(|to| to.value == node.name.value).unwrap_or(&source.name).span
}

/// Reports joins that only some branches of a fan-out reach beside a quorum: it is not said how many branches a quorum counts
/// for such a join, and which calls it cancels.
fn check_partial(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    let branches = analysis.flow.branches();
    let nodes = &analysis.model.definition.nodes;
    for (join, fan) in branches.partial() {
        let closing = branches.closing(fan).filter(|&closing| nodes[closing].quorum.is_some());
        let Some(quorum) = closing.or(nodes[join].quorum.is_some().then_some(join)) else { continue };
        let message = format!("node `{}` waits for some branches of {} only", nodes[join].name, called(&nodes[fan]));
        let diagnostic = diagnostics.error(code::NOT_SUPPORTED, analysis.model.place(&nodes[join].name.span), message);
        if quorum != join {
            diagnostic.related(analysis.model.place(&nodes[quorum].name.span), "this counts the branches");
        }
        diagnostic.related(analysis.model.place(&nodes[fan].name.span), "the branches begin here").help(
            "a quorum counts branches that all lead to it: branches that meet earlier begin at a fan-out of their own, inside of \
             a branch",
        );
    }
}

/// Reports returns that cancel nothing.
fn check_cancels(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    for (at, node) in analysis.model.definition.nodes.iter().enumerate() {
        let Some(cancels) = node.cancels().filter(|_| analysis.flow.is_reached(at)) else { continue };
        if analysis.flow.branches().is_alone(at) {
            let message = format!("`cancels` of node `{}` does nothing: no branch can be active there", node.name);
            diagnostics
                .lint(code::IDLE_CANCELS, analysis.model.place(cancels), message)
                .label("nothing to cancel")
                .help("remove it");
        }
    }
}

/// Returns the mistakes in how branches begin, meet and end, without those that follow from others.
fn causes<'a>(analysis: &'a Analysis<'_>) -> Vec<&'a BranchFault> {
    let (model, branches) = (&analysis.model, analysis.flow.branches());
    let faults = branches.faults();
    // Two returns or ends meet only because the branches do not meet before.
    let is_return = |node: usize| model.definition.nodes[node].ends_run();
    let meets: HashSet<usize> = faults
        .iter()
        .filter_map(|fault| match fault {
            BranchFault::Meet { node, .. } if !is_return(*node) => Some(*node),
            _ => None,
        })
        .collect();
    let is_behind = |node: usize| meets.iter().any(|&met| model.onward(met).any(|next| next == node));
    let is_alive = faults.iter().any(|fault| matches!(fault, BranchFault::Alive { .. }));
    let circle = |join: usize| faults.contains(&BranchFault::Circle { join });
    let mut open = HashSet::default();
    let mut is_cause = |fault: &BranchFault| match fault {
        BranchFault::Meet { node, .. } => meets.contains(node) && !is_behind(*node),
        BranchFault::Outside { join, .. } => !circle(*join),
        BranchFault::Alive { .. } => meets.is_empty(),
        BranchFault::OpenEnd { fan, .. } => !is_alive && open.insert(*fan),
        BranchFault::Circle { .. } | BranchFault::Growth { .. } | BranchFault::Tangled { .. } => true,
    };
    let found: Vec<&BranchFault> = faults.iter().filter(|fault| is_cause(fault)).collect();
    if found.is_empty() { faults.iter().take(1).collect() } else { found }
}

/// Checks that a run with branches does not end as if its last node had no edge: there may be several last nodes.
fn check_max_steps(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    let definition = analysis.model.definition;
    let fan = definition.nodes.iter().find(|node| begins(node.next()));
    let Some(fan) = fan.filter(|_| analysis.model.may_end_anywhere()) else { return };
    let span = definition.on_max_steps.clone().unwrap_or_else(|| definition.head.clone());
    let message = "a run that has used up its steps cannot return where branches are active";
    diagnostics
        .error(code::NOT_SUPPORTED, analysis.model.place(&span), message)
        .related(analysis.model.place(&fan.name.span), "branches begin here")
        .help("remove `on_max_steps`: the run then ends with an error");
}

fn listed<'n>(names: impl Iterator<Item = &'n str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

/// Returns what messages call the beginning of branches: a node, or `config.start`.
fn called(fan: &NodeDefinition) -> String {
    if fan.is_start() { format!("`{}`", fan.name) } else { format!("node `{}`", fan.name) }
}

/// Checks that no two edges of a fan-out lead to one node, and that `start` names none twice.
fn check_targets(analysis: &Analysis<'_>, node: &NodeDefinition, diagnostics: &mut Diagnostics) {
    let RouteDefinition::All(EdgeList { edges, .. }) = node.next() else { return };
    let mut known = HashMap::default();
    for to in edges.iter().filter_map(|edge| edge.to.as_ref()) {
        if let Some(first) = known.insert(to.value.as_str(), to) {
            let (code, message, help) = match node.is_start() {
                true => (
                    code::NO_START,
                    format!("`start` names `{to}` twice"),
                    "remove one of them: each name begins a branch",
                ),
                false => (
                    code::UNSYNCHRONISED,
                    format!("two branches of node `{}` begin at `{to}`", node.name),
                    "write one edge, with both conditions in an `any`",
                ),
            };
            diagnostics
                .error(code, analysis.model.place(&to.span), message)
                .related(analysis.model.place(&first.span), "the first")
                .help(help);
        }
    }
}

/// Returns a path to a visit, as messages show it.
fn path(analysis: &Analysis<'_>, visit: usize) -> String {
    let path = analysis.flow.branches().path_to(visit);
    show_path(path.iter().map(|&at| analysis.model.definition.nodes[at].name.value.as_str()))
}

fn report(analysis: &Analysis<'_>, sources: &[Vec<usize>], fault: &BranchFault, diagnostics: &mut Diagnostics) {
    let (model, branches) = (&analysis.model, analysis.flow.branches());
    let nodes = &model.definition.nodes;
    let name = |at: usize| &nodes[at].name;
    let place = |at: usize| model.place(&nodes[at].name.span);
    let ways = |diagnostic: &mut Diagnostic, mut visits: [usize; 2]| {
        visits.sort_by_key(|&visit| branches.path_to(visit));
        let [one, other] = visits;
        diagnostic.note(format!("one way is {}", path(analysis, one)));
        diagnostic.note(format!("another is {}", path(analysis, other)));
    };
    match *fault {
        BranchFault::Meet { node, fan, visits } => {
            let message =
                format!("two branches of {} lead to node `{}`, which does not wait", called(&nodes[fan]), name(node));
            let diagnostic = diagnostics.error(code::UNSYNCHRONISED, place(node), message);
            diagnostic.label("visited once for each branch").related(place(fan), "the branches begin here");
            ways(diagnostic, visits);
            let starts = model.definition.nodes.iter().any(NodeDefinition::is_start);
            let is_first = starts && model.first().contains(&node);
            diagnostic.help(match is_first {
                true => "remove it from `start`, or lead the other branch to a node of its own".to_owned(),
                // A join does not wait for itself.
                false if sources[node].contains(&node) => {
                    "lead each branch to a node of its own, and let another node wait for them".to_owned()
                }
                false => format!(
                    "let it wait for them: `waits_for: [{}]`, or lead each branch to a node of its own",
                    listed(sources[node].iter().map(|&source| name(source).value.as_str()))
                ),
            });
        }
        BranchFault::Outside { join, from, fan } => report_outside(analysis, join, from, fan, diagnostics),
        BranchFault::Circle { join } => {
            let message = format!("node `{}` waits for a branch that waits for it", name(join));
            diagnostics.error(code::DEAD_JOIN, place(join), message).label("the paths behind it lead back to it").help(
                "for another round, lead the path behind the join to the node that fans out; otherwise remove one of \
                     the two edges",
            );
        }
        BranchFault::Growth { fan } => {
            let message = format!("a branch of node `{}` leads back to it", name(fan));
            diagnostics
                .error(code::GROWTH, place(fan), message)
                .label("each round would begin more branches while the earlier ones are active")
                .help("let the branches meet at a node with `waits_for`, and lead back from there");
        }
        BranchFault::Alive { visit, other } => {
            let (node, beside) = (branches.visit(visit).node, branches.visit(other).node);
            let message = format!(
                "the run may return at `{}` while `{}` is active or has not been visited",
                name(node),
                name(beside)
            );
            let diagnostic = diagnostics.error(code::RETURN_BESIDE_BRANCHES, place(node), message);
            diagnostic.label("in a branch").related(place(beside), "this is in another branch, or joins them");
            ways(diagnostic, [visit, other]);
            let into: Vec<usize> = (0..nodes.len()).filter(|&at| model.successors(at).any(|to| to == node)).collect();
            let is_several = into.len() > 1 && nodes[node].waits_for.is_empty() && !model.first().contains(&node);
            diagnostic.help(match is_several {
                true => {
                    let names: Vec<&str> = into.iter().map(|&at| nodes[at].name.value.as_str()).collect();
                    format!("let it wait for the branches: `waits_for: [{}]`", names.join(", "))
                }
                false => "return behind the join of the branches: a node with `waits_for`, to which each of them leads"
                    .to_owned(),
            });
        }
        BranchFault::OpenEnd { node, fan } => {
            let message =
                format!("a branch of {} may end at `{}`, and no join follows", called(&nodes[fan]), name(node));
            diagnostics
                .error(code::OPEN_END, place(node), message)
                .label(match nodes[node].next() {
                    RouteDefinition::Each(_) if branches.broken(node).is_empty() => {
                        "a branch ends here if its list has no elements"
                    }
                    _ if model.may_end(node) => "a branch may end here",
                    _ => "its failure ends the branch",
                })
                .related(place(fan), "the branches begin here")
                .help("lead the branches to a node with `waits_for`, which may be a return node");
        }
        BranchFault::Tangled { node } => {
            let message = format!("node `{}` can be visited in too many combinations of branches", name(node));
            diagnostics
                .error(code::TOO_DEEP, place(node), message)
                .help("let branches meet earlier, or move a part of the graph to a graph of its own");
        }
    }
}

/// Returns the edge by which a path comes to a join, or among the nodes of the branches that it joins, from outside of its fan-out.
fn entrance(analysis: &Analysis<'_>, join: usize, from: Option<usize>, fan: Option<usize>) -> (usize, usize) {
    let branches = analysis.flow.branches();
    let is_inside = |node: usize| {
        let mut frames = branches.visits(node).flat_map(|(_, visit)| branches.frames(visit.frame));
        frames.any(|frame| Some(frame.fan) == fan)
    };
    let mut path = from.map(|visit| branches.path_to(visit)).unwrap_or_default();
    let mut to = join;
    while let Some(node) = path.pop() {
        if !is_inside(node) {
            return (node, to);
        }
        to = node;
    }
    (join, join)
}

/// Reports a join that a path leads to from outside of its fan-out, or that has none.
fn report_outside(
    analysis: &Analysis<'_>,
    join: usize,
    from: Option<usize>,
    fan: Option<usize>,
    diagnostics: &mut Diagnostics,
) {
    let nodes = &analysis.model.definition.nodes;
    let name = |at: usize| &nodes[at].name;
    let place = |at: usize| analysis.model.place(&nodes[at].name.span);
    let (from, to) = entrance(analysis, join, from, fan);
    let Some(fan) = fan else {
        let message = format!("node `{}` waits for branches, and no fan-out has all of them", name(join));
        let diagnostic = diagnostics.error(code::OUTSIDE_JOIN, place(join), message);
        diagnostic.label("there are no branches to wait for");
        if from != join {
            diagnostic.related(place(from), "this way leads to it from outside");
        }
        diagnostic.help("begin the branches with `next: { all: [ … ] }` or `next: { over: … }`, or remove `waits_for`");
        return;
    };
    let joins = if to == join { "which it joins".to_owned() } else { format!("which `{}` joins", name(join)) };
    let (outer, inner, begins) = (name(from), name(to), name(fan));
    let message = format!("node `{outer}` leads to `{inner}` from outside of the branches of `{begins}`, {joins}");
    diagnostics
        .error(code::OUTSIDE_JOIN, analysis.model.place(edge_to(&nodes[from], &nodes[to])), message)
        .related(place(join), "the join")
        .related(place(fan), "the branches begin here")
        .help(
            "lead every path to the join through the fan-out: a branch that is not needed gets a condition, and the list of a \
             fan-out may be empty",
        );
}

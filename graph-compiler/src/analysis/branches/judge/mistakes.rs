//! The graphs with branches of `graphs` and `tests/engines`, each with one mistake, as the judge sees them.
//!
//! `STRIDE=1` makes all of their mistakes.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use graph_definition::definition::{Definition, EdgeDefinition, NodeDefinition, RouteDefinition};
use graph_model::condition::Condition;
use graph_model::program::{OnBranchError, Rest};

use super::{Compared, Leads, MOST_STANDS, Model, NodePlan, compare, define, number, targets};
use crate::items::Items;

/// Returns the shape of a graph of the repository: its nodes, the start last if it begins in several; `None` if it has a node
/// that the judge does not know.
fn plan_of(definition: &Definition, model: &Model<'_>) -> Option<Vec<NodePlan>> {
    let to = |name: &str| model.node(name);
    let plan = |node: &NodeDefinition| {
        let leads = match node.next() {
            _ if node.ends_run() => Leads::Return,
            RouteDefinition::End => Leads::First(Vec::new(), false),
            RouteDefinition::To(name) => Leads::First(vec![to(name.value.as_str())?], true),
            RouteDefinition::Each(each) => Leads::Over(to(each.to.value.as_str())?),
            RouteDefinition::By(by) => {
                let targets = by.to.iter().filter_map(|(_, name)| to(name.as_ref()?.value.as_str()));
                Leads::First(targets.collect(), by.to.iter().all(|(_, name)| name.is_some()))
            }
            RouteDefinition::All(list) if node.is_start() => {
                let targets = list.edges.iter().map(|edge| to(edge.to.as_ref()?.value.as_str()));
                Leads::Start(targets.collect::<Option<_>>()?)
            }
            RouteDefinition::All(list) => {
                let edge = |edge: &EdgeDefinition| {
                    Some((to(edge.to.as_ref()?.value.as_str())?, matches!(edge.when, Condition::Always)))
                };
                Leads::All(list.edges.iter().map(edge).collect::<Option<_>>()?)
            }
            RouteDefinition::First(list) => {
                let targets = list.edges.iter().filter_map(|edge| to(edge.to.as_ref()?.value.as_str()));
                let last = list.edges.last().is_some_and(|edge| matches!(edge.when, Condition::Always));
                Leads::First(targets.collect(), last && list.edges.iter().all(|edge| edge.to.is_some()))
            }
        };
        let quorum = node.quorum.as_ref().map(|quorum| {
            let fewer = quorum.fewer.as_ref().and_then(|fewer| to(fewer.value.as_str()));
            (quorum.need.value, fewer)
        });
        Some(NodePlan {
            handler: node.on_error().and_then(|name| to(name.value.as_str())),
            calls: node.call().is_some(),
            on_branch_error: node.on_branch_error(),
            quorum,
            finishes: node.rest() == Rest::Finish,
            cancels: node.cancels().is_some(),
            ..NodePlan::new(leads, !node.waits_for.is_empty())
        })
    };
    let mut nodes = definition.nodes.iter().map(plan).collect::<Option<Vec<_>>>()?;
    // The judge begins at the first node.
    let start = model.start.filter(|&start| !definition.nodes[start].is_start()).unwrap_or_default();
    let swap = |at: usize| {
        if at == start {
            0
        } else if at == 0 {
            start
        } else {
            at
        }
    };
    nodes.swap(0, start);
    nodes.iter_mut().for_each(|node| each_target(node, &mut |to| *to = swap(*to)));
    Some(nodes)
}

/// Calls `change` with each target of a node.
fn each_target(node: &mut NodePlan, change: &mut impl FnMut(&mut usize)) {
    match &mut node.leads {
        Leads::Return => {}
        Leads::First(targets, _) | Leads::Start(targets) => targets.iter_mut().for_each(&mut *change),
        Leads::All(targets) => targets.iter_mut().for_each(|(to, _)| change(to)),
        Leads::Over(to) => change(to),
    }
    node.handler.iter_mut().for_each(&mut *change);
    node.quorum.iter_mut().filter_map(|(_, fewer)| fewer.as_mut()).for_each(&mut *change);
}

/// Returns the graphs that differ from one in a single mistake, each with its name. An edge leads to one of `stride` other
/// nodes.
fn mutants(nodes: &[NodePlan], stride: usize) -> Vec<(String, Vec<NodePlan>)> {
    let mut all: Vec<(String, Vec<NodePlan>)> = Vec::new();
    let count = nodes.iter().filter(|node| !matches!(node.leads, Leads::Start(_))).count();
    let mut add = |what: String, change: &dyn Fn(&mut Vec<NodePlan>)| {
        let mut changed = nodes.to_vec();
        change(&mut changed);
        all.push((what, changed));
    };
    for (at, node) in nodes.iter().enumerate() {
        if !matches!(node.leads, Leads::Start(_)) {
            add(format!("n{at}: waits or not"), &|nodes| nodes[at].waits = !nodes[at].waits);
        }
        let targets = targets(node).len();
        for target in 0..targets {
            for to in (0..count).filter(|to| (to + at + target) % stride == 0) {
                add(format!("n{at}: target {target} is n{to}"), &|nodes| {
                    let mut place = 0;
                    each_target(&mut nodes[at], &mut |known| {
                        if place == target {
                            *known = to;
                        }
                        place += 1;
                    });
                });
            }
        }
        let edges = match &node.leads {
            Leads::First(targets, _) | Leads::Start(targets) => targets.len(),
            Leads::All(targets) => targets.len(),
            Leads::Return | Leads::Over(_) => 0,
        };
        for edge in 0..edges {
            add(format!("n{at}: edge {edge} is dropped"), &|nodes| match &mut nodes[at].leads {
                Leads::First(targets, _) | Leads::Start(targets) => drop(targets.remove(edge)),
                Leads::All(targets) => drop(targets.remove(edge)),
                Leads::Return | Leads::Over(_) => {}
            });
            add(format!("n{at}: edge {edge} has a condition or not"), &|nodes| match &mut nodes[at].leads {
                Leads::All(targets) => targets[edge].1 = !targets[edge].1,
                Leads::First(_, is_closed) => *is_closed = !*is_closed,
                Leads::Start(_) | Leads::Return | Leads::Over(_) => {}
            });
        }
        add(format!("n{at}: all edges or the first"), &|nodes| {
            let leads = match &nodes[at].leads {
                Leads::First(targets, _) => Leads::All(targets.iter().map(|&to| (to, false)).collect()),
                Leads::All(targets) => Leads::First(targets.iter().map(|(to, _)| *to).collect(), true),
                other => other.clone(),
            };
            nodes[at].leads = leads;
        });
        add(format!("n{at}: its failure leads nowhere"), &|nodes| nodes[at].handler = None);
        for on in [None, Some(OnBranchError::Collect), Some(OnBranchError::Finish), Some(OnBranchError::Stop)] {
            if matches!(node.leads, Leads::All(_) | Leads::Over(_)) {
                add(format!("n{at}: on a failure {on:?}"), &|nodes| nodes[at].on_branch_error = on);
            }
        }
        if node.waits {
            for need in 0..4 {
                let quorum = (need > 0).then(|| (need, node.quorum.and_then(|(_, fewer)| fewer)));
                add(format!("n{at}: needs {need}"), &|nodes| nodes[at].quorum = quorum);
            }
            add(format!("n{at}: no `fewer`"), &|nodes| {
                nodes[at].quorum = nodes[at].quorum.map(|(need, _)| (need, None));
            });
            if node.quorum.is_some() {
                add(format!("n{at}: finishes or not"), &|nodes| nodes[at].finishes = !nodes[at].finishes);
            }
        }
        if matches!(node.leads, Leads::Return) {
            add(format!("n{at}: cancels or not"), &|nodes| nodes[at].cancels = !nodes[at].cancels);
        }
    }
    all
}

/// Whether a graph can be written: no edge of an `all` leads where another does, and a start has several nodes.
fn is_written(nodes: &[NodePlan]) -> bool {
    let are_distinct = |targets: &[usize]| targets.iter().collect::<BTreeSet<_>>().len() == targets.len();
    let begins = |node: &NodePlan| matches!(node.leads, Leads::All(_) | Leads::Over(_));
    if nodes.iter().any(|node| node.on_branch_error.is_some() && !begins(node)) {
        return false;
    }
    nodes.iter().all(|node| match &node.leads {
        Leads::All(edges) => {
            let targets: Vec<usize> = edges.iter().map(|(to, _)| *to).collect();
            !targets.is_empty() && are_distinct(&targets)
        }
        Leads::Start(targets) => targets.len() > 1 && are_distinct(targets),
        Leads::Return => node.handler.is_none(),
        Leads::First(..) | Leads::Over(_) => true,
    })
}

#[test]
fn mistakes_in_the_branches_of_graphs_are_found() {
    let items = Items::default();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let stride = usize::try_from(number("STRIDE", 6)).unwrap();
    let most = if stride > 1 { 400 } else { MOST_STANDS };
    let (mut graphs, mut all, mut wrong, mut fine, mut refused) = (0_u64, 0_u64, 0_u64, 0_u64, 0_u64);
    for directory in ["graphs", "tests/engines/graphs"] {
        let files = fs::read_dir(root.join(directory)).unwrap().map(|file| file.unwrap().path());
        let mut files: Vec<_> =
            files.filter(|file| file.extension().is_some_and(|extension| extension == "yaml")).collect();
        files.sort();
        for file in files {
            let text = fs::read_to_string(&file).unwrap();
            if !text.contains("waits_for") {
                continue;
            }
            let definition = define(&text);
            let model = Model::new(&definition, &items);
            let Some(nodes) = plan_of(&definition, &model) else { continue };
            let name = file.file_name().unwrap().to_string_lossy().into_owned();
            // Without its conditions, a graph may be another one.
            if !matches!(compare(&nodes, &items, MOST_STANDS, &name), Compared::Fine { .. }) {
                println!("{name} is left out");
                continue;
            }
            graphs += 1;
            for (what, mutant) in mutants(&nodes, stride) {
                if !is_written(&mutant) {
                    continue;
                }
                match compare(&mutant, &items, most, &format!("{name}: {what}")) {
                    Compared::LeftOut | Compared::TooLarge => continue,
                    Compared::Faulty | Compared::Unmet => wrong += 1,
                    Compared::Refused => refused += 1,
                    Compared::Fine { .. } => fine += 1,
                }
                all += 1;
            }
        }
    }
    println!("{all} mutants of {graphs} graphs: {wrong} are wrong and found, {fine} fine, {refused} fine and refused");
    assert!(graphs >= 15 && wrong > 250 && fine > 250, "{graphs} graphs, {wrong} wrong, {fine} fine");
}

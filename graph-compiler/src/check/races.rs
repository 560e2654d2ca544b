//! Nodes of different branches do not write one key, and do not read what others write beside them.

use graph_definition::definition::{NodeDefinition, Spanned};
use graph_definition::diagnostic::{Diagnostic, Diagnostics, SourcePlace, code};
use graph_definition::hash::{HashMap, HashSet};
use graph_model::name::StateKey;
use graph_model::path::Root;
use graph_model::reducer::{Keep, Reducer};

use crate::analysis::Analysis;
use crate::analysis::branches::{Branches, OUTSIDE};
use crate::analysis::reads::{PathRead, Site};
use crate::types::TypeKind;

pub(super) fn check(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    let branches = analysis.flow.branches();
    if branches.is_empty() && analysis.model.is_whole() {
        // A visit that waits for a nested run is made again in a later step, also where there are no branches.
        analysis.model.reads(&mut |read| {
            let key = read.path.segments.first().filter(|_| read.path.root == Root::State);
            let key = key.and_then(|name| analysis.model.key(name)).filter(|_| read.site != Site::Hook);
            if let Some(key) = key {
                check_kept(analysis, &read, key, diagnostics);
            }
        });
    }
    if branches.is_empty() || !analysis.model.is_whole() || !branches.faults().is_empty() {
        return;
    }
    // For each key, the visits that write it beside which another may happen.
    let mut writers: HashMap<usize, Vec<usize>> = HashMap::default();
    for node in 0..analysis.model.definition.nodes.len() {
        for &key in analysis.flow.touched(node) {
            writers.entry(key).or_default().extend(inside(branches, node));
        }
    }
    let mut keys: Vec<usize> = writers.keys().copied().collect();
    keys.sort_unstable();
    for key in keys {
        check_writes(analysis, key, &writers[&key], diagnostics);
    }
    check_shared(analysis, &writers, diagnostics);
    check_reads(analysis, &writers, diagnostics);
}

/// Why the call of a visit may be made again in a later step.
#[derive(Clone, Copy, PartialEq)]
enum Again {
    /// Its failure is held until other branches are done.
    Held,
    /// The graph that it runs can wait, and other branches go on meanwhile.
    Waits,
    /// Its tool can ask people, and other branches go on meanwhile.
    Asks,
}

impl Again {
    fn label(self) -> &'static str {
        match self {
            Self::Held => "`on_branch_error: finish` lets the other branches finish before the call is made again",
            Self::Waits => "the graph that it runs can wait, and the other branches go on meanwhile",
            Self::Asks => "its tool can ask people, and the other branches go on meanwhile",
        }
    }
}

/// Returns why the call of a node is made again after something else has happened: it waits for that.
fn waits_inside(analysis: &Analysis<'_>, node: usize) -> Option<Again> {
    let node = &analysis.model.definition.nodes[node];
    if node.interrupts().is_some() {
        return Some(Again::Asks);
    }
    let can_wait = analysis.model.tool(node.call()?).graph.is_some_and(|graph| graph.can_wait);
    can_wait.then_some(Again::Waits)
}

/// Returns the visits of a node whose calls may be made again in a later step.
fn made_again<'a>(analysis: &'a Analysis<'_>, node: usize) -> impl Iterator<Item = (usize, Again)> + 'a {
    let (branches, waits) = (analysis.flow.branches(), waits_inside(analysis, node));
    branches.visits(node).filter_map(move |(at, visit)| match branches.holds(&analysis.model, visit) {
        true => Some((at, Again::Held)),
        false => waits.map(|waits| (at, waits)),
    })
}

/// Returns the visits of a node beside which another may happen.
fn inside(branches: &Branches, node: usize) -> impl Iterator<Item = usize> + '_ {
    let visits = branches.visits(node).filter(|(_, visit)| visit.frame != OUTSIDE || branches.has_late());
    visits.map(|(at, _)| at)
}

/// Adds that one of two visits is in a late branch, if they are concurrent for that reason only.
fn say_late(branches: &Branches, diagnostic: &mut Diagnostic, one: usize, other: usize) {
    if !branches.are_in_branches(one, other) {
        diagnostic.note("`rest: finish` lets branches run on beside the nodes behind their join");
    }
}

/// Returns where a node writes a key.
fn written<'d>(node: &'d NodeDefinition, name: &str) -> Option<&'d Spanned<StateKey>> {
    node.changed().find(|key| key.value.as_str() == name)
}

/// Whether the order of any writes of these nodes to a key does not matter: there may be many, and few keys need each pair.
fn always_combine(analysis: &Analysis<'_>, key: usize, mut writers: impl Iterator<Item = usize>) -> bool {
    let reducer = analysis.model.reducer(key).filter(|reducer| !matches!(reducer, Reducer::Last | Reducer::Merge));
    reducer.is_some() && writers.all(|writer| combine(analysis, key, writer, writer))
}

/// Whether the order of two writes to a key does not matter, because it is a channel that combines them.
///
/// The writes to a channel are combined in the order of the steps, and in a step by the branches, so the result is the
/// same in every run. Two writes that merge the same field of an object, or that reset the channel, depend on the steps.
fn combine(analysis: &Analysis<'_>, key: usize, one: usize, other: usize) -> bool {
    let model = &analysis.model;
    let Some(reducer) = model.reducer(key) else { return false };
    let name = model.keys[key].name;
    let names = |keys: &[Spanned<StateKey>]| keys.iter().any(|key| key.value.as_str() == name);
    let resets = |node: usize| names(model.definition.nodes[node].reset());
    // The fields that the run of a graph merges are not known.
    let shares = |node: usize| names(model.definition.nodes[node].share());
    match reducer {
        Reducer::Last => false,
        _ if resets(one) || resets(other) => false,
        Reducer::Merge if shares(one) || shares(other) => false,
        Reducer::Merge => {
            !merged(analysis, one, name).iter().any(|field| merged(analysis, other, name).contains(field))
        }
        _ => true,
    }
}

/// Returns the known fields that a node merges into a key.
fn merged(analysis: &Analysis<'_>, node: usize, name: &str) -> Vec<String> {
    let assign = analysis.model.definition.nodes[node].assign().iter().enumerate();
    let mut fields = Vec::new();
    for (index, assignment) in assign.filter(|(_, assignment)| assignment.key.value.as_str() == name) {
        let ty = analysis.type_env().type_of_term(node, Site::Assign(index), &assignment.value);
        if let TypeKind::Object(known) = ty.kind {
            fields.extend(known.into_iter().map(|field| field.name));
        }
    }
    fields
}

/// Reports the first two visits that may write a key without either of them surely before the other.
fn check_writes(analysis: &Analysis<'_>, key: usize, writers: &[usize], diagnostics: &mut Diagnostics) {
    let branches = analysis.flow.branches();
    let nodes = &analysis.model.definition.nodes;
    let at = |visit: usize| branches.visit(visit).node;
    let node = |visit: usize| &nodes[at(visit)];
    if always_combine(analysis, key, writers.iter().map(|&writer| at(writer))) {
        return;
    }
    let mut combined: HashMap<(usize, usize), bool> = HashMap::default();
    let mut pairs =
        writers.iter().enumerate().flat_map(|(from, &one)| writers[from..].iter().map(move |&other| (one, other)));
    // Whether writes combine is known faster than whether they are concurrent.
    let Some((one, other)) = pairs.find(|&(one, other)| {
        !*combined.entry((at(one), at(other))).or_insert_with(|| combine(analysis, key, at(one), at(other)))
            && branches.is_concurrent(one, other)
    }) else {
        return;
    };
    let name = analysis.model.keys[key].name;
    let (Some(first), Some(second)) = (written(node(one), name), written(node(other), name)) else { return };
    let is_same = at(one) == at(other);
    let (first, second) = if first.span.start <= second.span.start { (first, second) } else { (second, first) };
    let message = match is_same {
        true => format!("several branches at node `{}` write `state.{name}`", node(one).name),
        false => {
            let (one_name, other_name) = (&node(one).name, &node(other).name);
            match branches.are_in_branches(one, other) {
                true => format!("nodes `{one_name}` and `{other_name}` of different branches write `state.{name}`"),
                false => format!("nodes `{one_name}` and `{other_name}` may write `state.{name}` at the same time"),
            }
        }
    };
    let diagnostic = diagnostics.error(code::RACING_WRITE, analysis.model.place(&second.span), message);
    let is_merged = analysis.model.reducer(key) == Some(&Reducer::Merge);
    diagnostic.label(match is_merged {
        true => "both may write the same field, and which value is kept depends on which branch is ahead",
        false => "which value is kept depends on which branch is ahead",
    });
    if !is_same {
        diagnostic.related(analysis.model.place(&first.span), "it is also written here");
    }
    say_late(branches, diagnostic, one, other);
    diagnostic.help(match is_merged {
        true => "let each branch write fields of its own, or collect the objects in a channel: `append`".to_owned(),
        // The same node writes in each of the branches, which have no keys of their own.
        false if is_same => format!("collect the writes in a channel: `channels: {{ {name}: append }}`"),
        false => format!(
            "let each branch write a key of its own, or collect the writes in a channel: `channels: {{ {name}: append }}`"
        ),
    });
}

/// Reports nodes that share a key that a node of another branch may write meanwhile: the run inside begins with its value.
fn check_shared(analysis: &Analysis<'_>, writers: &HashMap<usize, Vec<usize>>, diagnostics: &mut Diagnostics) {
    let (branches, model) = (analysis.flow.branches(), &analysis.model);
    for (node, definition) in model.definition.nodes.iter().enumerate() {
        for shared in definition.share() {
            let Some((key, writers)) = model.key(shared.value.as_str()).and_then(|key| Some((key, writers.get(&key)?)))
            else {
                continue;
            };
            let racing = |at: usize, except: Option<usize>| {
                let others = writers.iter().filter(|&&writer| Some(branches.visit(writer).node) != except);
                others.copied().find(|&writer| branches.is_concurrent(at, writer)).map(|writer| (at, writer))
            };
            let place = model.place(&shared.span);
            // A run that waits has begun with the value.
            let mut held = made_again(analysis, node).filter(|(_, again)| *again == Again::Held);
            if let Some((_, writing)) = held.find_map(|(at, _)| racing(at, None)) {
                let writer = (branches.visit(writing).node, Again::Held);
                held_call(analysis, (node, place), model.keys[key].name, writer, diagnostics);
                continue;
            }
            // Two writers of another key are an error.
            let is_read = model.combines(key) && model.inner_key(definition, shared).is_some_and(|inner| inner.is_read);
            // The same node in several branches is usually visited in one step.
            let others = |at: usize| racing(at, Some(node));
            if let Some((at, writing)) = inside(branches, node).find_map(others).filter(|_| is_read) {
                let (name, writer) = (model.keys[key].name, &model.definition.nodes[branches.visit(writing).node]);
                let message = format!(
                    "the run inside node `{}` reads `state.{name}`, which node `{}` of another branch may write meanwhile",
                    definition.name, writer.name
                );
                let diagnostic = diagnostics.lint(code::RACING_READ, place, message);
                diagnostic.label("it begins with the value before or after that, whichever branch is ahead");
                if let Some(key) = written(writer, name) {
                    diagnostic.related(model.place(&key.span), "written here");
                }
                say_late(branches, diagnostic, at, writing);
                diagnostic.help("let the run inside only write the key, or pass it the value in `params`");
            }
        }
    }
}

/// Reports nodes that read a key that a node of another branch may write meanwhile.
fn check_reads(analysis: &Analysis<'_>, writers: &HashMap<usize, Vec<usize>>, diagnostics: &mut Diagnostics) {
    let branches = analysis.flow.branches();
    let (mut said, mut said_held) = (HashSet::default(), HashSet::default());
    analysis.model.reads(&mut |read| {
        if read.path.root != Root::State {
            return;
        }
        let Some(name) = read.path.segments.first() else { return check_whole(analysis, &read, writers, diagnostics) };
        let Some(key) = analysis.model.key(name).filter(|_| read.site != Site::Hook) else { return };
        // A node sees its own writes; in a channel, also those of others.
        if read.site == Site::Next && !analysis.model.combines(key) && analysis.flow.touched(read.node).contains(&key) {
            return;
        }
        check_kept(analysis, &read, key, diagnostics);
        let Some(writers) = writers.get(&key) else { return };
        // A return that cancels the other branches is meant to see how far they are.
        if analysis.model.definition.nodes[read.node].cancels().is_some() {
            return;
        }
        if let Some(writer) = holds_call(analysis, &read, writers) {
            if said_held.insert((read.node, key)) {
                held_call(analysis, read_at(analysis, &read), name, writer, diagnostics);
            }
            return;
        }
        let racing =
            |at: usize| writers.iter().find(|&&writer| branches.is_concurrent(at, writer)).map(|&writer| (at, writer));
        let Some((at, writing)) = inside(branches, read.node).find_map(racing) else { return };
        if !said.insert((read.node, key)) {
            return;
        }
        let (reader, writer) = (
            &analysis.model.definition.nodes[read.node],
            &analysis.model.definition.nodes[branches.visit(writing).node],
        );
        let (writes, help) = match branches.are_in_branches(at, writing) {
            true => ("of another branch writes", "read it behind the join, or in the branch that writes it"),
            false => {
                ("may write at the same time", "read it in the return that follows, or in the branch that writes it")
            }
        };
        let message = format!("node `{}` reads `state.{name}`, which node `{}` {writes}", reader.name, writer.name);
        let diagnostic = diagnostics.lint(code::RACING_READ, read.place(analysis.model.definition), message);
        diagnostic.label("the value before or after that, whichever branch is ahead");
        if let Some(key) = written(writer, name) {
            diagnostic.related(analysis.model.place(&key.span), "written here");
        }
        say_late(branches, diagnostic, at, writing);
        diagnostic.help(help);
    });
}

/// Returns a node of another branch that may write a key before a call that depends on it is made again.
fn holds_call(analysis: &Analysis<'_>, read: &PathRead<'_>, writers: &[usize]) -> Option<(usize, Again)> {
    let branches = analysis.flow.branches();
    if !is_of_call(read.site) {
        return None;
    }
    let racing = |at: usize| writers.iter().copied().find(|&writer| branches.is_concurrent(at, writer));
    let writer = |(at, again): (usize, Again)| Some((branches.visit(racing(at)?).node, again));
    made_again(analysis, read.node).find_map(writer)
}

/// Reports a node that depends on a channel with a value for one step, if it may be visited again in a later one.
fn check_kept(analysis: &Analysis<'_>, read: &PathRead<'_>, key: usize, diagnostics: &mut Diagnostics) {
    let model = &analysis.model;
    let is_kept = model.keys[key].keep() == Some(Keep::Step);
    let waits = waits_inside(analysis, read.node).filter(|_| is_of_call(read.site));
    let mut all = made_again(analysis, read.node).map(|(_, again)| again);
    let again = all.find(|again| *again == Again::Held || waits.is_some());
    let Some(again) = again.or(waits).filter(|_| is_kept) else { return };
    let (node, name) = (&model.definition.nodes[read.node].name, model.keys[key].name);
    let message = format!(
        "node `{node}` depends on `state.{name}`, which has its value for one step, and may be visited again later"
    );
    let diagnostic = diagnostics.error(code::HELD_CALL, read.place(model.definition), message);
    match again {
        Again::Held => {
            diagnostic
                .label("`on_branch_error: finish` lets the other branches finish before the node is visited again");
            diagnostic.help("remove `keep`, or end the run at once: `on_branch_error: stop`");
        }
        Again::Waits => {
            diagnostic.label("the graph that it runs can wait, and the node is visited again when that is over");
            diagnostic.help("remove `keep`");
        }
        Again::Asks => {
            diagnostic.label("its tool can ask people, and the node is visited again when they have answered");
            diagnostic.help("remove `keep`");
        }
    }
}

/// Whether the calls of a node depend on what is read there.
fn is_of_call(site: Site) -> bool {
    matches!(site, Site::Params | Site::Over | Site::Item)
}

/// Reports a call that depends on the whole state, if a node of another branch may write to it before it is made again.
fn check_whole(
    analysis: &Analysis<'_>,
    read: &PathRead<'_>,
    writers: &HashMap<usize, Vec<usize>>,
    diagnostics: &mut Diagnostics,
) {
    let mut keys: Vec<usize> = writers.keys().copied().collect();
    keys.sort_unstable();
    let racing = |key: &usize| Some((*key, holds_call(analysis, read, &writers[key])?));
    if let Some((key, writer)) = keys.iter().find_map(racing) {
        held_call(analysis, read_at(analysis, read), analysis.model.keys[key].name, writer, diagnostics);
    }
}

/// Returns the node that reads something, and the place.
fn read_at(analysis: &Analysis<'_>, read: &PathRead<'_>) -> (usize, SourcePlace) {
    (read.node, read.place(analysis.model.definition))
}

/// Reports a node whose call depends on a key that a node of another branch may write before the call is made again.
fn held_call(
    analysis: &Analysis<'_>,
    (reader, place): (usize, SourcePlace),
    name: &str,
    (writer, again): (usize, Again),
    diagnostics: &mut Diagnostics,
) {
    let nodes = &analysis.model.definition.nodes;
    let (reader, writer) = (&nodes[reader], &nodes[writer]);
    let message = format!(
        "the call of node `{}` depends on `state.{name}`, which node `{}` of another branch writes, and may be made again \
         behind that",
        reader.name, writer.name
    );
    let diagnostic = diagnostics.error(code::HELD_CALL, place, message);
    diagnostic.label(again.label());
    if let Some(key) = written(writer, name) {
        diagnostic.related(analysis.model.place(&key.span), "written here");
    }
    diagnostic.help(match again {
        Again::Held => "read it in the branch that writes it, or end the run at once: `on_branch_error: stop`",
        Again::Waits | Again::Asks => "read it in the branch that writes it, or behind the join",
    });
}

//! Channels that do not have their values for the rest of the run are read only where they have them.

use graph_definition::definition::{CalledItem, NodeKind, Spanned};
use graph_definition::diagnostic::{Diagnostics, code};
use graph_definition::hash::HashSet;
use graph_model::name::StateKey;
use graph_model::path::Root;
use graph_model::program::Executor;
use graph_model::reducer::Keep;

use crate::analysis::Analysis;
use crate::analysis::reads::{PathRead, ProgramPoint, Site};

pub(super) fn check(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    let model = &analysis.model;
    if model.keys.iter().all(|key| key.keep().is_none()) {
        return;
    }
    check_memory(analysis, diagnostics);
    let mut steps: Vec<Option<StepKey>> = (0..model.keys.len()).map(|_| None).collect();
    let mut said = HashSet::default();
    model.reads(&mut |read| {
        let Some(name) = read.path.segments.first().filter(|_| read.path.root == Root::State) else { return };
        let Some(key) = model.key(name) else { return };
        let problem = match model.keys[key].keep() {
            Some(Keep::Memory) => memory_problem(analysis, &read),
            Some(Keep::Step) if model.is_whole() => {
                let step = steps[key].get_or_insert_with(|| StepKey::new(analysis, name));
                step.problem(analysis, &read)
            }
            Some(Keep::Step) | None => None,
        };
        if let Some(problem) = problem.filter(|_| said.insert((read.node, read.site == Site::Hook, key))) {
            let message = format!("`state.{name}` is read {problem}");
            let diagnostic = diagnostics.error(code::BAD_KEEP, read.place(model.definition), message);
            if let Some(keep) = model.keys[key].channel.and_then(|channel| channel.keep.as_ref()) {
                diagnostic.related(model.place(&keep.span), "the channel");
            }
            diagnostic.help("remove `keep`, or write the value to another key");
        }
    });
}

/// Reports values that a key that is kept in memory only has at the start or collects.
fn check_memory(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    let model = &analysis.model;
    let is_in_memory = |name: &Spanned<StateKey>| {
        model.key(name.value.as_str()).is_some_and(|key| model.keys[key].keep() == Some(Keep::Memory))
    };
    for (name, _) in model.definition.state.iter().filter(|(name, _)| is_in_memory(name)) {
        let message = format!("the first value of channel `{name}` does nothing beside `keep: memory`");
        let help = "a run that is resumed does not have the channel: name a fallback where it is read";
        diagnostics.error(code::INERT_FIELD, model.place(&name.span), message).help(help);
    }
    for node in &model.definition.nodes {
        if let NodeKind::Foreach(each) = &node.kind
            && let Some(key) = each.collect.as_ref().filter(|key| is_in_memory(key))
        {
            let message = format!("node `{}` collects into channel `{key}`, which is kept in memory only", node.name);
            diagnostics
                .error(code::BAD_KEEP, model.place(&key.span), message)
                .help("collect into another key, and write that to the channel");
        }
    }
}

/// Says where a key that is kept in memory only is read, unless it may be read there.
fn memory_problem(analysis: &Analysis<'_>, read: &PathRead<'_>) -> Option<&'static str> {
    const ELSEWHERE: &str = "outside of `params`, and is kept in memory only";
    if !matches!(read.site, Site::Params | Site::Item) {
        return Some(ELSEWHERE);
    }
    let node = &analysis.model.definition.nodes[read.node];
    let Some(call) = node.call() else { return Some(ELSEWHERE) };
    let is_of_id = matches!(&call.item.value, CalledItem::Computed(_))
        && call.computed().is_some_and(|(term, _)| {
            let mut found = false;
            term.templates(&mut |_, template, _| {
                found |= template.expressions().any(|one| one.paths.iter().any(|path| std::ptr::eq(path, read.path)));
            });
            found
        });
    if is_of_id {
        return Some("in an `item_id`, and is kept in memory only");
    }
    if analysis.model.tool(call).by != Executor::Program {
        return Some("in the parameters of an item or graph, and is kept in memory only");
    }
    if node.conduct().is_some_and(|conduct| conduct.caches()) {
        return Some("in the parameters of a cached call, and is kept in memory only");
    }
    None
}

/// A key that has its value in the step after a write only.
struct StepKey {
    /// For each node, whether its visit surely writes the key if it leads along its edges.
    writes: Vec<bool>,
    /// For each node, whether a write may have been made before a visit.
    behind: Vec<bool>,
}

impl StepKey {
    fn new(analysis: &Analysis<'_>, name: &str) -> Self {
        let model = &analysis.model;
        let nodes = &model.definition.nodes;
        let is_written = |at: usize| nodes[at].written().any(|key| key.value.as_str() == name);
        let mut open: Vec<usize> = (0..nodes.len()).filter(|at| is_written(*at)).collect();
        let writes = (0..nodes.len()).map(|at| is_written(at) && !model.may_skip_assign(at)).collect();
        let mut behind = vec![false; nodes.len()];
        while let Some(at) = open.pop() {
            for next in model.onward(at) {
                if !behind[next] {
                    behind[next] = true;
                    open.push(next);
                }
            }
        }
        Self { writes, behind }
    }

    /// Says where the key is read, unless it may be read there.
    fn problem(&self, analysis: &Analysis<'_>, read: &PathRead<'_>) -> Option<&'static str> {
        let model = &analysis.model;
        let node = &model.definition.nodes[read.node];
        let name = read.path.segments.first()?;
        let made = read.site.point().map_or(0, |point| point.made());
        let is_own = node.assign().iter().take(made).any(|assignment| assignment.key.value.as_str() == name);
        if is_own {
            return Some("in the step in which the node writes it, and is kept for the step after");
        }
        if !self.behind[read.node] {
            return None;
        }
        let is_behind_wait = node.wait().is_some() && read.site.point() != Some(ProgramPoint::Before);
        if is_behind_wait {
            return Some("behind a wait, and is kept for one step");
        }
        if analysis.flow.joins().of(read.node).is_some() {
            return Some("behind a join, and is kept for one step");
        }
        // A node that does not write it, or whose failure leads here, is a step between.
        let is_between = |at: usize| {
            let leads = model.successors(at).any(|next| next == read.node);
            let otherwise = model.other_successors(at).any(|next| next == read.node);
            (otherwise && (self.behind[at] || self.writes[at])) || (leads && self.behind[at] && !self.writes[at])
        };
        (0..model.definition.nodes.len())
            .any(is_between)
            .then_some("more than one step after a write, and is kept for one")
    }
}

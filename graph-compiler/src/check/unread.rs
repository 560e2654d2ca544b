//! Values that are written to the state are read afterwards, or returned.

use graph_definition::definition::{NodeKind, RouteDefinition};
use graph_definition::diagnostic::{Diagnostics, code};
use graph_model::path::Root;

use crate::analysis::Analysis;
use crate::analysis::coverage::Coverage;
use crate::analysis::flow::backwards;
use crate::analysis::reads::Site;
use crate::analysis::set::Set;

pub(super) fn check(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    // A run that has used up its steps returns its state at any node, and a returned value counts as read.
    if !analysis.model.is_whole() || analysis.model.may_end_anywhere() {
        return;
    }
    let live = Live::analyse(analysis);
    for (at, node) in analysis.model.definition.nodes.iter().enumerate().filter(|&(at, _)| analysis.flow.is_reached(at))
    {
        let mut after = live.behind_assignments(analysis, at);
        let written: Vec<_> = node.written().collect();
        let mut reads: Vec<Vec<ReadKey>> = vec![Vec::new(); written.len()];
        for &(site, slot) in &live.reads[at] {
            if let Site::Assign(index) = site
                && let Some(reads) = reads.get_mut(index)
            {
                reads.push(slot);
            }
        }
        for (index, key) in written.iter().enumerate().rev() {
            let Some(slot) = analysis.model.key(key.value.as_str()) else { continue };
            let is_handed_over = analysis.model.items.shared.contains(key.value.as_str());
            if !after.contains(slot) && !is_handed_over {
                let never = !live.anywhere.contains(slot);
                let message = if never {
                    format!("node `{}` writes `state.{key}`, which nothing reads", node.name)
                } else {
                    format!(
                        "node `{}` writes `state.{key}`, and nothing reads that before it is written again or the run ends",
                        node.name
                    )
                };
                diagnostics
                    .lint(code::UNREAD, analysis.model.place(&key.span), message)
                    .help("remove it, read it, or return it in an `output`");
            }
            // A write to a channel adds to its value, and does not replace it.
            if !analysis.model.combines(slot) {
                after.remove(slot);
            }
            reads[index].iter().for_each(|&slot| live.add(&mut after, slot));
        }
    }
    let mut at_some = live.always.clone();
    live.before.iter().for_each(|before| at_some.unite(before));
    for (key, _) in &analysis.model.definition.state {
        // A first value that is overwritten before it is read declares the key, and is no mistake.
        let is_shared = analysis.model.items.shared.contains(key.value.as_str());
        if !is_shared && analysis.model.key(key.value.as_str()).is_some_and(|slot| !at_some.contains(slot)) {
            diagnostics
                .lint(
                    code::UNREAD,
                    analysis.model.place(&key.span),
                    format!("`state.{key}` has a first value, and nothing reads it"),
                )
                .help("remove it, read it, or return it in an `output`");
        }
    }
}

/// A key that is read; `None` for the state as a whole.
type ReadKey = Option<usize>;

/// The keys that are read later, by node.
struct Live {
    /// For each node, the keys that it reads, with the places.
    reads: Vec<Vec<(Site, ReadKey)>>,
    /// All keys.
    all: Set,
    /// For each node, whether a run that ends there returns the state: the node has no output of its own.
    returns_state: Vec<bool>,
    /// The keys that are live when a node begins.
    before: Vec<Set>,
    /// The keys that are live everywhere.
    always: Set,
    /// The keys that are read somewhere.
    anywhere: Set,
    /// The keys that nodes read that may run beside others.
    in_branches: Set,
}

impl Live {
    /// Analyses the graph backwards, from its ends.
    fn analyse(analysis: &Analysis<'_>) -> Self {
        let (count, keys) = (analysis.model.definition.nodes.len(), analysis.types.keys.len());
        let mut live = Self {
            reads: vec![Vec::new(); count],
            returns_state: (0..count).map(|node| returns_state(analysis, node)).collect(),
            before: vec![Set::empty(keys); count],
            all: Set::full(keys),
            always: Set::empty(keys),
            anywhere: Set::empty(keys),
            in_branches: Set::empty(keys),
        };
        analysis.model.reads(&mut |read| {
            let name = match (read.path.root, read.site, read.path.segments.as_slice()) {
                (Root::State, _, []) => None,
                (Root::Local, Site::Hook, [root]) if root == "state" => None,
                (Root::State, _, [name, ..]) => Some(name),
                (Root::Local, Site::Hook, [root, name, ..]) if root == "state" => Some(name),
                _ => return,
            };
            let slot: ReadKey = match name {
                // The state as a whole.
                None => None,
                Some(name) => match analysis.model.key(name) {
                    Some(key) => Some(key),
                    None => return,
                },
            };
            add(&live.all, &mut live.anywhere, slot);
            match read.site {
                // A hook may read at any time.
                Site::Hook => add(&live.all, &mut live.always, slot),
                site => {
                    live.reads[read.node].push((site, slot));
                    if analysis.flow.branches().may_be_beside(read.node) {
                        add(&live.all, &mut live.in_branches, slot);
                    }
                }
            }
        });
        // The run of a graph begins with the values of the keys that it shares.
        for (at, node) in analysis.model.definition.nodes.iter().enumerate() {
            for slot in node.share().iter().filter_map(|key| analysis.model.key(key.value.as_str())) {
                live.anywhere.insert(slot);
                live.reads[at].push((Site::Params, Some(slot)));
                if analysis.flow.branches().may_be_beside(at) {
                    live.in_branches.insert(slot);
                }
            }
        }
        // Backwards along the edges; only edges that lead back need another pass.
        let order = backwards(&analysis.model);
        let mut changed = true;
        while changed {
            changed = false;
            for &node in &order {
                let before = live.in_front(analysis, node);
                if before != live.before[node] {
                    live.before[node] = before;
                    changed = true;
                }
            }
        }
        live
    }

    fn add(&self, set: &mut Set, slot: ReadKey) {
        add(&self.all, set, slot);
    }

    /// Returns the keys that are live after a node's assignments.
    fn behind_assignments(&self, analysis: &Analysis<'_>, node: usize) -> Set {
        let mut live = self.always.clone();
        if self.returns_state[node] {
            live.unite(&self.all);
        }
        for next in analysis.model.successors(node).chain(analysis.flow.branches().beyond(node).iter().copied()) {
            live.unite(&self.before[next]);
        }
        // A branch may be cancelled behind any of its nodes.
        for join in analysis.flow.branches().cut(node) {
            live.unite(&self.before[join]);
        }
        if analysis.flow.branches().may_be_beside(node) {
            live.unite(&self.in_branches);
        }
        let reads = self.reads[node].iter().filter(|(site, _)| *site == Site::Next);
        reads.for_each(|(_, slot)| self.add(&mut live, *slot));
        live
    }

    fn in_front(&self, analysis: &Analysis<'_>, node: usize) -> Set {
        let definition = &analysis.model.definition.nodes[node];
        let mut live = self.behind_assignments(analysis, node);
        if !analysis.model.may_skip_assign(node) {
            definition
                .written()
                .filter_map(|key| analysis.model.key(key.value.as_str()))
                .filter(|slot| !analysis.model.combines(*slot))
                .for_each(|slot| live.remove(slot));
        }
        let resets = definition.reset().iter().filter(|_| !analysis.model.may_skip_assign(node));
        resets.filter_map(|key| analysis.model.key(key.value.as_str())).for_each(|slot| live.remove(slot));
        // An assignment may read a key that an earlier one of the node wrote. Counting that read here too may hide a
        // finding, but never adds one.
        let early = |site: Site| site != Site::Next;
        self.reads[node].iter().filter(|(site, _)| early(*site)).for_each(|(_, slot)| self.add(&mut live, *slot));
        let broken = analysis.flow.branches().broken(node).iter().copied();
        let otherwise = analysis.model.other_successors(node);
        for next in otherwise.chain(broken) {
            live.unite(&self.before[next]);
        }
        live
    }
}

fn add(all: &Set, set: &mut Set, slot: ReadKey) {
    match slot {
        Some(slot) => set.insert(slot),
        None => set.unite(all),
    }
}

fn returns_state(analysis: &Analysis<'_>, node: usize) -> bool {
    match &analysis.model.definition.nodes[node].kind {
        NodeKind::Return(returns) => returns.output.is_none(),
        _ => ends_without_return(analysis, node),
    }
}

/// Whether the run may end at a node other than a return node: some case is left open, or an edge has no target.
fn ends_without_return(analysis: &Analysis<'_>, node: usize) -> bool {
    // The cheap test first: it decides for most nodes.
    if !analysis.flow.branches().ends_run(&analysis.model, node) {
        return false;
    }
    let RouteDefinition::First(list) = analysis.model.definition.nodes[node].next() else { return true };
    let Some(Coverage { followed, .. }) = &analysis.coverage[node] else { return true };
    let mut edges = list.edges.iter().zip(&followed.can_follow);
    followed.is_open || edges.any(|(edge, can_follow)| *can_follow && edge.to.is_none())
}

//! What is written to the state is read afterwards, or returned.

use graph_model::path::Root;

use super::cases::Judgement;
use super::facts::{Facts, Site};
use super::set::Set;
use crate::definition::{Next, NodeKind};
use crate::diagnostic::{Diagnostics, code};

pub(super) fn check(facts: &Facts<'_>, diagnostics: &mut Diagnostics) {
    // Where steps run out the run returns its state, wherever it is; what is returned is read.
    if !facts.is_whole() || facts.may_end_anywhere() {
        return;
    }
    let live = Live::analyse(facts);
    for (at, node) in facts.definition.nodes.iter().enumerate().filter(|&(at, _)| facts.flow.is_reached(at)) {
        let mut after = live.behind_assignments(facts, at);
        let written: Vec<_> = node.written().collect();
        for (index, key) in written.iter().enumerate().rev() {
            let Some(slot) = facts.types.key(key.value.as_str()) else { continue };
            if !after.contains(slot) {
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
                    .lint(code::UNREAD, facts.place(&key.span), message)
                    .help("remove it, read it, or return it in an `output`");
            }
            after.remove(slot);
            live.reads(at, Site::Assign(index)).for_each(|slot| after.insert(slot));
        }
    }
    for (key, _) in &facts.definition.state {
        // One that is written before it is read declares the key, and is no mistake.
        let is_read =
            |slot: usize| live.before.iter().any(|before| before.contains(slot)) || live.always.contains(slot);
        if facts.types.key(key.value.as_str()).is_some_and(|slot| !is_read(slot)) {
            diagnostics
                .lint(
                    code::UNREAD,
                    facts.place(&key.span),
                    format!("`state.{key}` has a first value, and nothing reads it"),
                )
                .help("remove it, read it, or return it in an `output`");
        }
    }
}

/// Which keys are read later, by node.
struct Live {
    /// For each node, where in it which key is read.
    reads: Vec<Vec<(Site, usize)>>,
    /// For each node, whether what the run returns there is its state: it has no output of its own.
    returns_state: Vec<bool>,
    /// The keys that matter when a node begins.
    before: Vec<Set>,
    /// The keys that matter wherever.
    always: Set,
    /// The keys that are read somewhere.
    anywhere: Set,
}

impl Live {
    /// Analyses the graph backwards, from its ends.
    fn analyse(facts: &Facts<'_>) -> Self {
        let (count, keys) = (facts.definition.nodes.len(), facts.types.keys.len());
        let mut live = Self {
            reads: vec![Vec::new(); count],
            returns_state: (0..count).map(|node| returns_state(facts, node)).collect(),
            before: vec![Set::empty(keys); count],
            always: Set::empty(keys),
            anywhere: Set::empty(keys),
        };
        facts.reads(&mut |read| {
            let name = match (read.path.root, read.site, read.path.segments.as_slice()) {
                (Root::State, _, []) => None,
                (Root::Local, Site::Hook, [root]) if root == "state" => None,
                (Root::State, _, [name, ..]) => Some(name),
                (Root::Local, Site::Hook, [root, name, ..]) if root == "state" => Some(name),
                _ => return,
            };
            let slots: Vec<usize> = match name {
                // The state as a whole.
                None => (0..keys).collect(),
                Some(name) => facts.types.key(name).into_iter().collect(),
            };
            for slot in slots {
                live.anywhere.insert(slot);
                match read.site {
                    // A hook may look at any time.
                    Site::Hook => live.always.insert(slot),
                    site => live.reads[read.node].push((site, slot)),
                }
            }
        });
        let mut changed = true;
        while changed {
            changed = false;
            for node in (0..count).rev() {
                let before = live.in_front(facts, node);
                if before != live.before[node] {
                    live.before[node] = before;
                    changed = true;
                }
            }
        }
        live
    }

    fn reads(&self, node: usize, site: Site) -> impl Iterator<Item = usize> + '_ {
        self.reads[node].iter().filter(move |(at, _)| *at == site).map(|(_, slot)| *slot)
    }

    /// Returns the keys that matter once a node has written.
    fn behind_assignments(&self, facts: &Facts<'_>, node: usize) -> Set {
        let mut live = self.always.clone();
        if self.returns_state[node] {
            (0..facts.types.keys.len()).for_each(|slot| live.insert(slot));
        }
        for next in facts.successors(node) {
            live.unite(&self.before[next]);
        }
        self.reads(node, Site::Next).for_each(|slot| live.insert(slot));
        live
    }

    fn in_front(&self, facts: &Facts<'_>, node: usize) -> Set {
        let definition = &facts.definition.nodes[node];
        let mut live = self.behind_assignments(facts, node);
        if !facts.may_skip_assign(node) {
            definition
                .written()
                .filter_map(|key| facts.types.key(key.value.as_str()))
                .for_each(|slot| live.remove(slot));
        }
        // An assignment that reads a key that one before it wrote reads that; counting it here too says less, never more.
        let early = |site: Site| site != Site::Next;
        self.reads[node].iter().filter(|(site, _)| early(*site)).for_each(|(_, slot)| live.insert(*slot));
        if let Some(next) = facts.error_successor(node) {
            live.unite(&self.before[next]);
        }
        live
    }
}

fn returns_state(facts: &Facts<'_>, node: usize) -> bool {
    match &facts.definition.nodes[node].kind {
        NodeKind::Return(returns) => returns.output.is_none(),
        _ => ends_without_return(facts, node),
    }
}

/// Whether the run may end at a node that is no return node: some case is left open, or an edge leads nowhere.
fn ends_without_return(facts: &Facts<'_>, node: usize) -> bool {
    // The cheap question first: of most nodes it is the answer.
    if !facts.may_end(node) {
        return false;
    }
    let Next::List(list) = facts.definition.nodes[node].next() else { return true };
    let Some(Judgement { ways, .. }) = facts.judgement(node) else { return true };
    let mut edges = list.edges.iter().zip(&ways.can_follow);
    ways.is_open || edges.any(|(edge, can_follow)| *can_follow && edge.to.is_none())
}

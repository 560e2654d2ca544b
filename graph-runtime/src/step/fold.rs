//! Where a run stands behind a step.

use graph_model::value::{Mismatch, Value, View};

use super::{Activation, Change, Edges, Position, Way};
use crate::graph::{CompiledGraph, Node};
use crate::machine::Cells;
use crate::record::ItemFailure;

/// A visit that was made or is recorded, as far as it decides where the run stands behind it.
pub(crate) struct Visited<'v> {
    pub(crate) node: u16,
    /// How often its tool was called.
    pub(crate) calls: u64,
    /// Why it failed.
    pub(crate) error: Option<&'v str>,
    /// The items of a foreach that failed.
    pub(crate) items: &'v [ItemFailure],
    pub(crate) way: &'v Way,
    /// What its tool returned.
    pub(crate) returned: View<'v>,
    pub(crate) changes: &'v [Change],
}

impl Visited<'_> {
    /// Returns what the next visit of its node sees of what this one returned: of a foreach, what it collected.
    ///
    /// It is what is recorded, so that a resumed run sees the same.
    pub(super) fn returned(&self, node: &Node) -> Value {
        if node.kind.goes_over_list() {
            self.changes.first().map(|change| change.value.clone()).unwrap_or_default()
        } else {
            self.returned.to_plain_value()
        }
    }
}

/// A write that the state does not take.
#[derive(Debug)]
pub(crate) struct Misfit {
    /// The node that wrote it.
    pub(crate) node: u16,
    pub(crate) key: usize,
    pub(crate) mismatch: Mismatch,
}

/// A step that is computed and not committed. Nothing of it is seen anywhere before it is [taken](Candidate::take).
#[derive(Debug)]
pub(crate) struct Candidate {
    next: Vec<Activation>,
}

/// Computes where a step leads, from its visits in the order of the frontier, and makes sure that the state takes what they write.
///
/// # Errors
///
/// If it does not take one of the writes.
pub(crate) fn fold<'v, 'c: 'v>(
    graph: &CompiledGraph,
    state: Option<&dyn Cells>,
    visits: impl Iterator<Item = Visited<'v>>,
) -> Result<Candidate, Misfit> {
    let mut next = Vec::with_capacity(1);
    for visited in visits {
        for change in state.map_or(&[][..], |_| visited.changes) {
            let fits = state.map_or(Ok(()), |state| state.check(change.key, &change.value));
            fits.map_err(|mismatch| Misfit { node: visited.node, key: change.key, mismatch })?;
        }
        lead(graph, visited.node, visited.way, &mut next);
    }
    Ok(Candidate { next })
}

/// Adds where a visit leads to what is visited next.
fn lead(graph: &CompiledGraph, node: u16, way: &Way, next: &mut Vec<Activation>) {
    let mut add = |node| {
        let activation = Activation::of(node);
        if !next.contains(&activation) {
            next.push(activation);
        }
    };
    match way {
        Way::Along { edges, .. } => graph.targets(node, edges).for_each(add),
        Way::OnError(target) => add(*target),
        Way::Fatal => {}
    }
}

impl Candidate {
    /// Returns what is visited in the next step; nothing where the run ends.
    pub(crate) fn next(&self) -> &[Activation] {
        &self.next
    }

    /// Moves the run behind the step, whose visits are the same again.
    pub(crate) fn take<'v>(
        self,
        graph: &CompiledGraph,
        position: &mut Position,
        visits: impl Iterator<Item = Visited<'v>>,
    ) {
        visits.for_each(|visited| position.take(graph, &visited));
        position.frontier = self.next;
    }
}

/// As [`fold()`] and [`Candidate::take`], for one visit of a plain node that did not fail and called at most once: it has no
/// memory. Returns whether it leads to one other node; if not, or if the state does not take what it writes, nothing is changed.
#[inline]
pub(crate) fn take_plain(
    graph: &CompiledGraph,
    position: &mut Position,
    state: &mut dyn Cells,
    way: &Way,
    changes: &mut Vec<Change>,
) -> bool {
    let [at] = position.frontier.as_mut_slice() else { return false };
    let Way::Along { edges: Edges::One(edge), suppressed: false } = way else { return false };
    let Some(Some(to)) = graph.target(at.node, *edge) else { return false };
    // One write is whole or not at all; of several, each is tried before the first is made.
    if changes.len() > 1 && changes.iter().any(|change| state.check(change.key, &change.value).is_err()) {
        return false;
    }
    for change in changes.drain(..) {
        if state.set(change.key, change.value).is_err() {
            return false;
        }
    }
    let node = std::mem::replace(&mut at.node, to);
    position.steps += 1;
    position.last = node;
    position.retried(graph, node, 1);
    true
}

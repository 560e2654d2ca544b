//! The position of a run after a step.

use graph_model::value::Value;

use crate::activation::{Activation, Change, TakenEdges};
use crate::graph::GraphTables;
use crate::state::StateFields;
use crate::step::next::{Behind, follow};
use crate::step::order::{Ordered, Reordered, order};
use crate::step::position::{OpenJoin, Position};
use crate::step::visited::{FoldError, SettledVisit, Way};
use crate::step::writes::StateWrites;

/// A step that is computed and not committed. It has no effect anywhere before it is [taken](Candidate::take).
#[derive(Debug)]
pub struct Candidate {
    behind: Behind,
    /// The values that it writes to the state, if the graph has channels.
    writes: Option<StateWrites>,
    /// The channels whose elements are put in the order of the branches.
    ordered: Ordered,
}

/// Computes where a step leads, from its visits in the order of the frontier, and checks that the state accepts the values
/// that they write.
///
/// # Errors
///
/// If the state does not accept one of the values, or the run cannot continue where the visits lead.
pub fn fold<'v, 'c: 'v>(
    graph: &GraphTables,
    base: &Position,
    state: Option<&dyn StateFields>,
    visits: impl Iterator<Item = SettledVisit<'v>> + Clone,
) -> Result<Candidate, FoldError> {
    let writes = match state {
        Some(state) if graph.combines_writes => Some(StateWrites::combine(graph, state, visits.clone())?),
        _ => None,
    };
    if let Some(state) = state.filter(|_| !graph.combines_writes) {
        for visited in visits.clone() {
            for change in visited.changes {
                let fits = state.check(change.key, &change.value);
                fits.map_err(|mismatch| FoldError::Misfit { node: visited.at.node, key: change.key, mismatch })?;
            }
        }
    }
    let behind = follow(graph, base, visits.clone())?;
    let ordered = match graph.has_ordered {
        true => order(graph, base, visits, &behind.met),
        false => Ordered::default(),
    };
    Ok(Candidate { behind, writes, ordered })
}

impl Candidate {
    /// Returns the activations of the next step, ordered by path; empty if the run ends.
    pub fn next(&self) -> &[Activation] {
        &self.behind.frontier
    }

    /// Returns the open joins that the step opened or that branches reached in it.
    pub fn joins<'c>(&'c self, base: &'c Position) -> impl Iterator<Item = &'c OpenJoin> {
        let before = |join: &OpenJoin| base.joins.binary_search_by_key(&join.key(), OpenJoin::key).ok();
        self.behind.joins.iter().filter(move |join| before(join).is_none_or(|at| base.joins[at] != **join))
    }

    /// Returns the channels whose last elements get another order.
    pub fn reordered(&self) -> &[Reordered] {
        &self.ordered.reordered
    }

    /// Returns the channels that a function of the program combined writes with, with their values after the step.
    pub fn reduced(&self) -> impl Iterator<Item = (usize, &Value)> {
        self.writes.iter().flat_map(StateWrites::reduced)
    }

    /// Moves the position past the step; `visits` are the ones that it was computed from. Returns the values that the step
    /// writes to the state, for [`write()`](super::write()); `None` if the graph has no channels.
    pub fn take<'v>(
        mut self,
        graph: &GraphTables,
        position: &mut Position,
        visits: impl Iterator<Item = SettledVisit<'v>> + Clone,
    ) -> Option<StateWrites> {
        visits.for_each(|visited| position.take(graph, &visited));
        let Behind { frontier, parked, joins, returning, made, met, closed, joined, followed } = self.behind;
        position.release(parked);
        joined.iter().for_each(|(frame, arrived)| position.join(frame, arrived));
        met.iter().for_each(|fan| position.meet(fan));
        if !closed.is_empty() {
            position.close(&closed);
        }
        (position.frontier, position.joins, position.made) = (frontier, joins, made);
        position.returning = returning;
        if let Some(followed) = followed {
            position.pause_behind(followed);
        }
        position.forget_needless();
        self.ordered.take(&mut position.paths);
        self.writes.map(|writes| writes.and_reorder(self.ordered.reordered))
    }
}

/// As [`fold()`] and [`Candidate::take`], for one visit of a plain node that did not fail and made at most one call: such a
/// node has no memory. Returns whether the visit leads to exactly one other node. If not, or if the state does not accept
/// what it writes, nothing is changed.
#[inline]
pub fn take_plain(
    graph: &GraphTables,
    position: &mut Position,
    state: &mut dyn StateFields,
    way: &Way,
    changes: &mut Vec<Change>,
) -> bool {
    if !position.shared.is_empty() || position.pauses.is_some() {
        return false;
    }
    let [at] = position.frontier.as_mut_slice() else { return false };
    let Way::Along { edges: TakenEdges::One(edge), suppressed: false } = way else { return false };
    let Some(Some(to)) = graph.target(at.node, *edge) else { return false };
    // A single write either succeeds or has no effect. Several are all checked before the first is made.
    if changes.len() > 1 && changes.iter().any(|change| state.check(change.key, &change.value).is_err()) {
        return false;
    }
    // Each change is to a different key, so their order does not matter.
    while let Some(change) = changes.pop() {
        if state.set(change.key, change.value).is_err() {
            return false;
        }
    }
    let node = std::mem::replace(&mut at.node, to);
    position.made += 1;
    at.number = position.made;
    position.steps += 1;
    position.count(graph, node);
    position.last = node;
    if !position.root.retries.is_empty() {
        position.retried(graph, &Activation::of(node), 1);
    }
    true
}

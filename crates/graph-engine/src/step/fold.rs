//! Where a run stands behind a step.

use crate::activation::{Activation, Change, TakenEdges};
use crate::graph::GraphTables;
use crate::state::StateFields;
use crate::step::next::{Behind, follow};
use crate::step::position::{OpenJoin, Position};
use crate::step::visited::{FoldError, SettledVisit, Way};

/// A step that is computed and not committed. Nothing of it is seen anywhere before it is [taken](Candidate::take).
#[derive(Debug)]
pub struct Candidate {
    behind: Behind,
}

/// Computes where a step leads, from its visits in the order of the frontier, and makes sure that the state takes what they write.
///
/// # Errors
///
/// If it does not take one of the writes, or the run cannot stand where the visits lead.
pub fn fold<'v, 'c: 'v>(
    graph: &GraphTables,
    base: &Position,
    state: Option<&dyn StateFields>,
    visits: impl Iterator<Item = SettledVisit<'v>> + Clone,
) -> Result<Candidate, FoldError> {
    if let Some(state) = state {
        for visited in visits.clone() {
            for change in visited.changes {
                let fits = state.check(change.key, &change.value);
                fits.map_err(|mismatch| FoldError::Misfit { node: visited.at.node, key: change.key, mismatch })?;
            }
        }
    }
    follow(graph, base, visits).map(|behind| Candidate { behind })
}

impl Candidate {
    /// Returns what is visited in the next step, in the order of the paths; nothing where the run ends.
    pub fn next(&self) -> &[Activation] {
        &self.behind.frontier
    }

    /// Returns the joins that the step opened, or that branches came to in it, and that have not come themselves.
    pub fn joins<'c>(&'c self, base: &'c Position) -> impl Iterator<Item = &'c OpenJoin> {
        self.behind.joins.iter().filter(|join| !base.joins.contains(join))
    }

    /// Moves the run behind the step, whose visits are the same again.
    pub fn take<'v>(
        self,
        graph: &GraphTables,
        position: &mut Position,
        visits: impl Iterator<Item = SettledVisit<'v>>,
    ) {
        visits.for_each(|visited| position.take(graph, &visited));
        let Behind { frontier, joins, made, closed } = self.behind;
        closed.iter().for_each(|fan| position.close(fan));
        (position.frontier, position.joins, position.made) = (frontier, joins, made);
    }
}

/// As [`fold()`] and [`Candidate::take`], for one visit of a plain node that did not fail and called at most once: it has no
/// memory. Returns whether it leads to one other node; if not, or if the state does not take what it writes, nothing is changed.
#[inline]
pub fn take_plain(
    graph: &GraphTables,
    position: &mut Position,
    state: &mut dyn StateFields,
    way: &Way,
    changes: &mut Vec<Change>,
) -> bool {
    let [at] = position.frontier.as_mut_slice() else { return false };
    let Way::Along { edges: TakenEdges::One(edge), suppressed: false } = way else { return false };
    let Some(Some(to)) = graph.target(at.node, *edge) else { return false };
    // One write is whole or not at all; of several, each is tried before the first is made.
    if changes.len() > 1 && changes.iter().any(|change| state.check(change.key, &change.value).is_err()) {
        return false;
    }
    // Each is of another key: their order is the same to the state.
    while let Some(change) = changes.pop() {
        if state.set(change.key, change.value).is_err() {
            return false;
        }
    }
    let node = std::mem::replace(&mut at.node, to);
    position.made += 1;
    at.number = position.made;
    position.steps += 1;
    position.last = node;
    if !position.root.retries.is_empty() {
        position.retried(graph, &Activation::of(node), 1);
    }
    true
}

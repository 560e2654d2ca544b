//! Where a run stands behind a step.

use std::fmt;

use graph_model::value::{Mismatch, Value, View};

use super::next::{Behind, follow};
use super::position::OpenJoin;
use super::{Activation, Change, Edges, Position, Way};
use crate::graph::{CompiledGraph, Node};
use crate::machine::Cells;
use crate::record::ItemFailure;

/// A visit that was made or is recorded, as far as it decides where the run stands behind it.
pub(crate) struct Visited<'v> {
    pub(crate) at: &'v Activation,
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

/// What the end of a run says before why it cannot go on where its ways lead.
pub(crate) const NO_WAY: &str = "the run cannot go on here: ";

/// Why a step cannot be committed.
#[derive(Debug)]
pub(crate) enum FoldError {
    /// The state does not take what a node wrote.
    Misfit { node: u16, key: usize, mismatch: Mismatch },
    /// A node of the next step would be visited twice in one branch.
    Twice { node: u16 },
    /// A way leads to a join from outside of its fan-out.
    Outside { node: u16 },
    /// A join waits for what can never come.
    Stuck { node: u16 },
    /// The run returned while other activations were alive.
    Alive { node: u16 },
}

impl FoldError {
    /// Returns the node that it is about.
    pub(crate) fn node(&self) -> u16 {
        match self {
            Self::Misfit { node, .. }
            | Self::Twice { node }
            | Self::Outside { node }
            | Self::Stuck { node }
            | Self::Alive { node } => *node,
        }
    }
}

impl fmt::Display for FoldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Misfit { mismatch, .. } => mismatch.fmt(f),
            Self::Twice { .. } => f.write_str("two ways lead to it in one branch"),
            Self::Outside { .. } => f.write_str("a way leads to it from outside of the fan-out that it joins"),
            Self::Stuck { .. } => f.write_str("it waits for branches that cannot come"),
            Self::Alive { .. } => f.write_str("it ends the run while other branches are at work"),
        }
    }
}

/// Whether a text is what is said of a run that cannot stand where its ways lead.
pub(crate) fn is_no_way(error: &str) -> bool {
    let all = [
        FoldError::Twice { node: 0 },
        FoldError::Outside { node: 0 },
        FoldError::Stuck { node: 0 },
        FoldError::Alive { node: 0 },
    ];
    all.iter().any(|one| error.strip_prefix(NO_WAY) == Some(one.to_string().as_str()))
}

/// A step that is computed and not committed. Nothing of it is seen anywhere before it is [taken](Candidate::take).
#[derive(Debug)]
pub(crate) struct Candidate {
    behind: Behind,
}

/// Computes where a step leads, from its visits in the order of the frontier, and makes sure that the state takes what they write.
///
/// # Errors
///
/// If it does not take one of the writes, or the run cannot stand where the visits lead.
pub(crate) fn fold<'v, 'c: 'v>(
    graph: &CompiledGraph,
    base: &Position,
    state: Option<&dyn Cells>,
    visits: impl Iterator<Item = Visited<'v>> + Clone,
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
    pub(crate) fn next(&self) -> &[Activation] {
        &self.behind.frontier
    }

    /// Returns the joins that the step opened, or that branches came to in it, and that have not come themselves.
    pub(crate) fn joins<'c>(&'c self, base: &'c Position) -> impl Iterator<Item = &'c OpenJoin> {
        self.behind.joins.iter().filter(|join| !base.joins.contains(join))
    }

    /// Moves the run behind the step, whose visits are the same again.
    pub(crate) fn take<'v>(
        self,
        graph: &CompiledGraph,
        position: &mut Position,
        visits: impl Iterator<Item = Visited<'v>>,
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

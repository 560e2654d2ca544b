//! What came of visits, as far as that decides where the run stands behind them.

use std::fmt;

use graph_model::value::{Mismatch, Value, View};

use crate::activation::{Activation, Change, TakenEdges};
use crate::failure::ItemFailure;
use crate::graph::{CompiledGraph, CompiledNode};

/// Where a visit leads.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Way {
    /// Along the node's own edges (R89).
    Along {
        edges: TakenEdges,
        /// Whether it failed and goes on all the same (R125).
        suppressed: bool,
    },
    /// To the node that deals with failures of this one (R120).
    OnError(u16),
    /// Nowhere: the run ends with the failure.
    Fatal,
}

impl Default for Way {
    fn default() -> Self {
        Self::Along { edges: TakenEdges::None, suppressed: false }
    }
}

impl Way {
    /// Returns the edges that were taken.
    pub(crate) fn edges(&self) -> &TakenEdges {
        match self {
            Self::Along { edges, .. } => edges,
            Self::OnError(_) | Self::Fatal => &TakenEdges::None,
        }
    }

    /// Returns the edge that was taken, if it is one.
    pub(crate) fn edge(&self) -> Option<u16> {
        self.edges().one()
    }

    /// Returns the list that it goes over, if it is one.
    pub(crate) fn list(&self) -> Option<&[Value]> {
        match self.edges() {
            TakenEdges::Over(list) => Some(list),
            TakenEdges::None | TakenEdges::One(_) | TakenEdges::Many(_) => None,
        }
    }

    /// Returns the node that is visited next, if it is one that hooks are told of: of several they are told of none.
    pub(crate) fn next(&self, graph: &CompiledGraph, at: &Activation) -> Option<u16> {
        match self {
            Self::Along { edges: TakenEdges::One(edge), .. } => graph.target(at.node, *edge).flatten(),
            Self::OnError(target) => Some(*target),
            Self::Along { .. } | Self::Fatal => None,
        }
    }

    pub(crate) fn is_suppressed(&self) -> bool {
        matches!(self, Self::Along { suppressed: true, .. })
    }

    pub(crate) fn is_fatal(&self) -> bool {
        matches!(self, Self::Fatal)
    }
}

/// A visit that was made or is recorded, as far as it decides where the run stands behind it.
pub(crate) struct SettledVisit<'v> {
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

impl SettledVisit<'_> {
    /// Returns what the next visit of its node sees of what this one returned: of a foreach, what it collected.
    ///
    /// It is what is recorded, so that a resumed run sees the same.
    pub(super) fn returned(&self, node: &CompiledNode) -> Value {
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

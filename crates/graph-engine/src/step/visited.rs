//! Settled visits, as far as they decide the position of the run after them.

use std::fmt;

use graph_model::reducer::Uncombined;
use graph_model::value::{Mismatch, Value, View};

use crate::activation::{Activation, Change, TakenEdges};
use crate::failure::ItemFailure;
use crate::graph::{CompiledNode, GraphTables};
use crate::step::ending::UNFIT;
use crate::step::opened::Opened;

/// Where a visit leads.
#[derive(Debug, Clone, PartialEq)]
pub enum Way {
    /// Along the node's own edges (R89).
    Along {
        /// The edges that were taken.
        edges: TakenEdges,
        /// Whether the visit failed and the run continues all the same (R125).
        suppressed: bool,
    },
    /// To the node that handles failures of this one (R120).
    OnError(u16),
    /// To the node that follows if a wait for signals has lasted its time.
    TimedOut(u16),
    /// Nowhere: the branch ends with the failure, and the run continues.
    EndsBranch,
    /// Nowhere: the run ends with the failure once the other branches of a fan-out are done. A resumed run makes the visit
    /// again.
    Held,
    /// Nowhere yet: the visit waits, and is made when that is over.
    Waits(Opened),
    /// Nowhere: the branch was cancelled while the node was visited, since the quorum of its fan-out was decided, or another
    /// visit leads to a return that cancels.
    Cancelled,
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
    #[inline]
    pub fn edges(&self) -> &TakenEdges {
        match self {
            Self::Along { edges, .. } => edges,
            Self::OnError(_)
            | Self::TimedOut(_)
            | Self::EndsBranch
            | Self::Held
            | Self::Waits(_)
            | Self::Cancelled
            | Self::Fatal => &TakenEdges::None,
        }
    }

    /// Returns the edge that was taken, if there is exactly one.
    pub fn edge(&self) -> Option<u16> {
        self.edges().one()
    }

    /// Returns the list that the visit fans out over, if it does.
    pub fn list(&self) -> Option<&[Value]> {
        match self.edges() {
            TakenEdges::Over(list) => Some(list),
            TakenEdges::None | TakenEdges::One(_) | TakenEdges::Many(_) => None,
        }
    }

    /// Returns the node that is visited next, as hooks receive it: `None` unless there is exactly one.
    pub fn next(&self, graph: &GraphTables, at: &Activation) -> Option<u16> {
        match self {
            Self::Along { edges: TakenEdges::One(edge), .. } => graph.target(at.node, *edge).flatten(),
            Self::OnError(target) | Self::TimedOut(target) => Some(*target),
            Self::Along { .. } | Self::EndsBranch | Self::Held | Self::Waits(_) | Self::Cancelled | Self::Fatal => None,
        }
    }

    /// Whether it leads to a return that cancels everything else that is active. A join that cancels does so when it has come,
    /// which shows when the step is done.
    pub fn cancels(&self, graph: &GraphTables, at: &Activation) -> bool {
        if !graph.has_cancelling {
            return false;
        }
        let cancels = |target: u16| graph.node(target).cancels && graph.node(target).join.is_none();
        match self {
            Self::Along { edges, .. } => graph.branches(at.node, edges).flatten().any(cancels),
            Self::OnError(target) | Self::TimedOut(target) => cancels(*target),
            Self::EndsBranch | Self::Held | Self::Waits(_) | Self::Cancelled | Self::Fatal => false,
        }
    }

    /// Returns the opening of the wait, if the visit waits.
    #[inline]
    pub fn opened(&self) -> Option<&Opened> {
        match self {
            Self::Waits(opened) => Some(opened),
            _ => None,
        }
    }

    /// Whether the visit was made, and other visits may follow it.
    pub fn leads_on(&self) -> bool {
        matches!(self, Self::Along { .. } | Self::OnError(_) | Self::TimedOut(_))
    }

    /// Whether it waited for signals, and none came in time.
    #[inline]
    pub fn is_timed_out(&self) -> bool {
        matches!(self, Self::TimedOut(_))
    }

    /// Whether it leads along its own edges although it failed.
    #[inline]
    pub fn is_suppressed(&self) -> bool {
        matches!(self, Self::Along { suppressed: true, .. })
    }

    /// Whether its branch ends with its failure.
    #[inline]
    pub fn ends_branch(&self) -> bool {
        matches!(self, Self::EndsBranch)
    }

    /// Whether the run ends with its failure once other branches are done.
    #[inline]
    pub fn is_held(&self) -> bool {
        matches!(self, Self::Held)
    }

    /// Whether its branch was cancelled during the visit.
    #[inline]
    pub fn is_cancelled(&self) -> bool {
        matches!(self, Self::Cancelled)
    }

    /// Whether the run ends with its failure.
    #[inline]
    pub fn is_fatal(&self) -> bool {
        matches!(self, Self::Fatal)
    }
}

/// A visit that was made or is recorded, as far as it decides the position of the run after it.
pub struct SettledVisit<'v> {
    /// The activation that was visited.
    pub at: &'v Activation,
    /// How often its tool was called.
    pub calls: u64,
    /// How many steps the runs made that it began, if they are counted.
    pub below: u64,
    /// Why it failed.
    pub error: Option<&'v str>,
    /// The items of a foreach that failed.
    pub items: &'v [ItemFailure],
    /// Where it leads.
    pub way: &'v Way,
    /// The tool's result.
    pub returned: View<'v>,
    /// The changes that it wrote.
    pub changes: &'v [Change],
}

impl SettledVisit<'_> {
    /// Returns the result of this visit as the next visit of its node sees it; for a foreach, the list that it collected.
    ///
    /// It is the recorded value, so that a resumed run sees the same.
    pub(super) fn returned(&self, node: &CompiledNode) -> Value {
        if node.kind.goes_over_list() {
            self.changes.first().map(|change| change.value.clone()).unwrap_or_default()
        } else {
            self.returned.to_plain_value()
        }
    }
}

/// The beginning of the message of a run that cannot continue where its visits lead.
pub const NO_WAY: &str = "the run cannot go on here: ";

/// Why a step cannot be committed.
#[derive(Debug)]
pub enum FoldError {
    /// The state does not accept a value that a node wrote.
    Misfit {
        /// The node that wrote it.
        node: u16,
        /// The key's index.
        key: usize,
        /// The mismatch between the value and the type of the key.
        mismatch: Mismatch,
    },
    /// A write cannot be combined with the value of its channel.
    Uncombined {
        /// The node that wrote it.
        node: u16,
        /// The channel's index.
        key: usize,
        /// Why not.
        error: Uncombined,
    },
    /// A node of the next step would be visited twice in one branch.
    Twice {
        /// The node.
        node: u16,
    },
    /// A visit leads to a join from outside its fan-out.
    Outside {
        /// The join.
        node: u16,
    },
    /// A join waits for branches that cannot reach it.
    Stuck {
        /// The join.
        node: u16,
    },
    /// The run returned while other activations were alive.
    Alive {
        /// The node that ended the run.
        node: u16,
    },
    /// A visit was cancelled, and neither was a quorum of a fan-out around it decided, nor does the run return.
    Undecided {
        /// The node that was visited.
        node: u16,
    },
}

impl FoldError {
    /// Returns the node that the error is about.
    pub fn node(&self) -> u16 {
        match self {
            Self::Misfit { node, .. }
            | Self::Uncombined { node, .. }
            | Self::Twice { node }
            | Self::Outside { node }
            | Self::Stuck { node }
            | Self::Alive { node }
            | Self::Undecided { node } => *node,
        }
    }

    /// Whether the node wrote a value that the state cannot take.
    pub fn is_unfit(&self) -> bool {
        matches!(self, Self::Misfit { .. } | Self::Uncombined { .. })
    }

    /// Returns the message of the run that it ends.
    pub fn message(&self, graph: &GraphTables) -> String {
        match self {
            Self::Misfit { mismatch, .. } => format!("{UNFIT}{mismatch}"),
            Self::Uncombined { key, error, .. } => format!("{UNFIT}`state.{}`: {error}", graph.keys[*key].name),
            other => format!("{NO_WAY}{other}"),
        }
    }
}

impl fmt::Display for FoldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Misfit { mismatch, .. } => mismatch.fmt(f),
            Self::Uncombined { error, .. } => error.fmt(f),
            Self::Twice { .. } => f.write_str("two ways lead to it in one branch"),
            Self::Outside { .. } => f.write_str("a way leads to it from outside of the fan-out that it joins"),
            Self::Stuck { .. } => f.write_str("it waits for branches that cannot come"),
            Self::Alive { .. } => f.write_str("it ends the run while other branches are at work"),
            Self::Undecided { .. } => f.write_str("its visit was cancelled, and its branch was still needed"),
        }
    }
}

/// Whether a text is the message of a run that cannot continue where its visits lead.
pub fn is_no_way(error: &str) -> bool {
    let all = [
        FoldError::Twice { node: 0 },
        FoldError::Outside { node: 0 },
        FoldError::Stuck { node: 0 },
        FoldError::Alive { node: 0 },
        FoldError::Undecided { node: 0 },
    ];
    all.iter().any(|one| error.strip_prefix(NO_WAY) == Some(one.to_string().as_str()))
}

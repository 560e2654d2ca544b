//! What a node asks for whatever the state is, and what its policies say of failures.

use graph_model::program::{OnError, OnMaxSteps, Retry};

use crate::backoff;
use crate::backoff::BUILTIN_RETRIES;
use crate::failure::Category;
use crate::graph::{Asks, GraphTables};

impl GraphTables {
    /// Returns what a node asks for.
    #[inline]
    pub fn asks(&self, node: u16) -> Asks {
        self.node(node).kind.asks()
    }

    /// Whether the graph names a node that deals with failures of this one (R120).
    #[inline]
    pub fn has_target(&self, node: u16) -> bool {
        self.node(node).on_error.is_some()
    }

    /// Whether a failure of a node can be led along its own edges: the graph continues after failures, and the node makes calls and
    /// names no other target (R125).
    #[inline]
    pub fn may_suppress(&self, node: u16) -> bool {
        self.settings.on_error == OnError::Continue && !self.has_target(node) && self.asks(node) != Asks::Nothing
    }

    /// Whether a foreach makes no more calls once one has failed: the run ends with it.
    pub fn stops_at_failure(&self, node: u16) -> bool {
        !self.has_target(node) && self.settings.on_error == OnError::Fail
    }

    /// Returns the node's own policy by which a call is made again that failed so, after so many calls, if it is.
    pub fn calls_again(&self, node: u16, category: Category, calls: u64) -> Option<&Retry> {
        let retry = self.node(node).retry.as_ref()?;
        (calls < u64::from(retry.attempts) && backoff::applies(retry, category)).then_some(retry)
    }

    /// Returns how often a node makes a call by its own policy, or is called again without one.
    pub fn attempts(&self, node: u16) -> u64 {
        u64::from(self.node(node).retry.as_ref().map_or(BUILTIN_RETRIES, |retry| retry.attempts))
    }

    /// Whether a run fails that has taken all the steps it may (R130).
    pub fn fails_at_limit(&self) -> bool {
        self.settings.on_max_steps == OnMaxSteps::Fail
    }

    /// Whether the result of a run says that it has taken all the steps it may.
    pub fn flags_limit(&self) -> bool {
        self.settings.on_max_steps == OnMaxSteps::ReturnWithFlag
    }
}

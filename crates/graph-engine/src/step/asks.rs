//! The calls that a node asks for in any state, and the policies for its failures.

use graph_model::program::{Executor, OnError, OnMaxSteps, Retry};

use crate::backoff;
use crate::backoff::BUILTIN_RETRIES;
use crate::failure::Category;
use crate::graph::{Asks, GraphTables};
use crate::step::nested::is_computed;

impl GraphTables {
    /// Returns the kind of calls that a node asks for.
    #[inline]
    pub fn asks(&self, node: u16) -> Asks {
        self.node(node).kind.asks()
    }

    /// Whether the calls of a node may run graphs.
    pub fn may_nest(&self, node: u16) -> bool {
        let tool = self.asks(node).tool().and_then(|tool| self.tool(tool));
        tool.is_some_and(|tool| tool.by == Executor::Graph || is_computed(tool))
    }

    /// Whether the graph names a node that handles failures of this one (R120).
    #[inline]
    pub fn has_target(&self, node: u16) -> bool {
        self.node(node).on_error.is_some()
    }

    /// Whether a failure of a node can be routed along its own edges: the graph continues after failures, and the node makes
    /// calls and names no other target (R125).
    #[inline]
    pub fn may_suppress(&self, node: u16) -> bool {
        self.settings.on_error == OnError::Continue && !self.has_target(node) && self.asks(node) != Asks::Nothing
    }

    /// Whether a foreach makes no more calls once one has failed, because the run ends with that failure.
    pub fn stops_at_failure(&self, node: u16) -> bool {
        !self.has_target(node) && self.settings.on_error == OnError::Fail
    }

    /// Returns the node's own retry policy, if it repeats a call that has failed with this category after this many calls.
    pub fn calls_again(&self, node: u16, category: Category, calls: u64) -> Option<&Retry> {
        let retry = self.node(node).retry.as_ref()?;
        (calls < u64::from(retry.attempts) && backoff::applies(retry, category)).then_some(retry)
    }

    /// Returns the number of attempts in the node's own retry policy, or else the number of built-in retries.
    pub fn attempts(&self, node: u16) -> u64 {
        u64::from(self.node(node).retry.as_ref().map_or(BUILTIN_RETRIES, |retry| retry.attempts))
    }

    /// Whether a run fails once it has taken all the steps it may (R130).
    pub fn fails_at_limit(&self) -> bool {
        self.settings.on_max_steps == OnMaxSteps::Fail
    }

    /// Whether the result of a run says that it has taken all the steps it may.
    pub fn flags_limit(&self) -> bool {
        self.settings.on_max_steps == OnMaxSteps::ReturnWithFlag
    }
}

//! What expressions look at besides a tool's result.

use crate::activation::Activation;
use crate::graph::{EvalContext, GraphTables, Now, RetriesSeen};
use crate::state::StateFields;
use crate::step::position::Position;

/// A visit that is planned or settled: a node, and what it looks at.
pub struct Env<'a> {
    /// The graph.
    pub graph: &'a GraphTables,
    /// The visit.
    pub at: &'a Activation,
    /// What its expressions look at.
    pub context: EvalContext<'a>,
}

impl<'a> Env<'a> {
    /// The visit of a node where a run stands. `state` is what the last step left.
    ///
    /// How often the node's call was made again at its last visit is forgotten: each visit counts from the start (R136).
    #[inline(always)]
    pub fn new(
        graph: &'a GraphTables,
        position: &'a Position,
        state: &'a dyn StateFields,
        at: &'a Activation,
        now: &'a Now<'a>,
    ) -> Self {
        let mut env = Self::plain(graph, position, state, at, now);
        if graph.counts_visits {
            let memory = position.memory(at);
            env.context.visit = memory.visits.get(&at.node).map_or(1, |count| count + 1);
            env.context.previous = memory.previous.get(&at.node);
        }
        env
    }

    /// As [`Env::new`], for a node that asks for no visits.
    #[inline(always)]
    pub fn plain(
        graph: &'a GraphTables,
        position: &'a Position,
        state: &'a dyn StateFields,
        at: &'a Activation,
        now: &'a Now<'a>,
    ) -> Self {
        let all = &position.memory(at).retries;
        let own = if all.is_empty() { None } else { Some((graph.node(at.node).name.as_str(), 0)) };
        let retries = RetriesSeen { all, own };
        let (last_error, frame) = (position.last_error(at), at.frame.as_ref());
        Self { graph, at, context: EvalContext { state, last_error, retries, visit: 0, previous: None, frame, now } }
    }

    /// What the node looks at behind calls, of which it made several: its assignments and edges see how often it called again (R136).
    #[cold]
    pub(super) fn behind(&self, calls: u64) -> EvalContext<'_> {
        let again = i64::try_from(calls - 1).unwrap_or(i64::MAX);
        let own = Some((self.graph.node(self.at.node).name.as_str(), again));
        EvalContext { retries: RetriesSeen { own, ..self.context.retries }, ..self.context }
    }
}

//! The context in which a visit's expressions are evaluated.

use crate::activation::Activation;
use crate::graph::{EvalContext, GraphTables, Now, RetriesSeen};
use crate::state::StateFields;
use crate::step::opened::{Opening, TakenWait};
use crate::step::position::Position;

/// A visit that is planned or settled: its node, and the values that its expressions see.
pub struct Env<'a> {
    /// The graph.
    pub graph: &'a GraphTables,
    /// The visit.
    pub at: &'a Activation,
    /// The end of its wait, if it has waited.
    pub taken: Option<&'a TakenWait>,
    /// Why it is left before it is made, if it is.
    pub pause: Option<Opening>,
    /// The values that its expressions see.
    pub context: EvalContext<'a>,
}

impl<'a> Env<'a> {
    /// Returns the environment of a visit at a position. `state` is the state after the last step.
    ///
    /// The node's retry count from its last visit is forgotten: each visit counts from the start (R136).
    #[inline(always)]
    pub fn new(
        graph: &'a GraphTables,
        position: &'a Position,
        state: &'a dyn StateFields,
        at: &'a Activation,
        now: &'a Now<'a>,
    ) -> Self {
        let mut env = Self::plain(graph, position, state, at, now);
        env.taken = position.taken(at);
        env.pause = position.pause_of(at);
        if graph.counts_visits {
            let memory = position.memory(at);
            env.context.visit = memory.visits.get(&at.node).map_or(1, |count| count + 1);
            env.context.previous = memory.previous.get(&at.node);
        }
        env
    }

    /// Returns the environment of a visit that was made, wherever the run was paused before.
    #[must_use]
    pub fn made(self) -> Self {
        Self { pause: None, ..self }
    }

    /// As [`Env::new`], for a graph in which no node asks about visits.
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
        let context = EvalContext { state, last_error, retries, visit: 0, previous: None, frame, now };
        Self { graph, at, taken: None, pause: None, context }
    }

    /// Returns the context after several calls: the node's assignments and edges see how often the call was repeated (R136).
    #[cold]
    pub(super) fn behind(&self, calls: u64) -> EvalContext<'_> {
        let again = i64::try_from(calls - 1).unwrap_or(i64::MAX);
        let own = Some((self.graph.node(self.at.node).name.as_str(), again));
        EvalContext { retries: RetriesSeen { own, ..self.context.retries }, ..self.context }
    }
}

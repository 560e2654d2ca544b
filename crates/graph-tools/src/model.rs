//! The models of agents, which the program brings.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use graph_engine::{ActionError, Call};
use graph_model::digest::Digest;
use graph_model::value::Value;

/// The future of a turn.
pub type ModelTurn<'a> = Pin<Box<dyn Future<Output = Result<Value, ActionError>> + Send + 'a>>;

/// Asks the models of agents. `Agents` of the crate `graph-agents` does it.
pub trait ModelTurns: Send + Sync + fmt::Debug + 'static {
    /// Makes one turn of an agent, whose graph asks for it: returns the messages of the turn, the calls that the model wants, its answer,
    /// and what it took.
    fn turn<'a>(&'a self, call: &'a Call, request: Value) -> ModelTurn<'a>;

    /// Returns the digest of a directive as it is now. `None` if it cannot be found, or if results of agents that follow it are not to be kept.
    fn directive_digest(&self, directive: &str) -> Option<Digest> {
        let _ = directive;
        None
    }
}

/// Performs `rye/agent/model`.
pub(crate) async fn perform(call: &Call, params: Value) -> Result<Value, ActionError> {
    match crate::config(call).model_turns() {
        Some(turns) => turns.turn(call, params).await,
        None => Err(ActionError::permanent(
            "the program has no models for agents: it names them with `ToolConfig::agents`, and `graph run` with `--models FILE`",
        )),
    }
}

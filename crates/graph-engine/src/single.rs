//! The visit of one node by itself.

use std::sync::Arc;

use graph_model::name::RunId;
use graph_model::value::Value;

use crate::engine::{OneVisit, RunState};
use crate::error::{RunError, StartError};
use crate::graph::tables;
use crate::machine::Machine;
use crate::runtime::{Options, Runtime};
use crate::state::StateFields;
use crate::step::Position;

/// Begins a run that leaves nothing behind, positions it as `place` says, visits the node that is next there, and stops. No
/// hooks are notified that it began, continued or ended.
///
/// # Errors
///
/// If the graph cannot run with these inputs, or `place` fails, or the step took longer than it may.
pub async fn visit_once<E: From<StartError> + From<RunError>>(
    runtime: &Runtime,
    machine: Arc<dyn Machine>,
    (run, options, inputs): (RunId, Options, Value),
    place: impl FnOnce(&mut Box<dyn StateFields>, &mut Position) -> Result<(), E>,
) -> Result<OneVisit, E> {
    let begin = runtime.begin_with(run, options);
    let services = Arc::new(runtime.inner.unkept());
    let mut engine = services.begin(begin, Arc::clone(&machine), inputs).await?.not_new();
    let RunState { state, position, .. } = engine.run_state();
    place(state, position)?;
    if let Some(run_secrets) = &engine.run_secrets {
        let code = tables(machine.graph());
        for (index, key) in code.keys.iter().enumerate() {
            let value = engine.run_state.state.get(index).to_plain_value();
            run_secrets.learn(code.settings.secrets.keys.get(&key.name), &value);
        }
    }
    Ok(engine.single().await?)
}

//! The tools that the runtime performs itself.

#[cfg(unix)]
mod bash;

use graph_model::value::{AsView, FromValue, Value};

use crate::call::Call;
use crate::error::ActionError;

/// The built-in tools, for graphs that call no others: `ProjectStats::new(Builtins)`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Builtins;

/// Performs a built-in tool. Generated code calls this where a contract says `tool_type: builtin`.
///
/// # Errors
///
/// What the tool fails with.
pub async fn builtin<P: AsView + Send, R: FromValue>(id: &str, call: &Call, params: P) -> Result<R, ActionError> {
    let params = params.view().to_value();
    let result = perform(id, call, params).await?;
    Ok(R::from_value(result)?)
}

pub(crate) async fn perform(id: &str, call: &Call, params: Value) -> Result<Value, ActionError> {
    match id {
        #[cfg(unix)]
        "rye/bash" => bash::perform(call, params).await,
        _ => Err(ActionError::permanent(format!(
            "`{id}` is not built into the runtime on this system ({})",
            call.node()
        ))),
    }
}

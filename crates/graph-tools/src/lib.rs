//! The tools that the runtime performs itself, and the settings that allow them.
//!
//! `rye/bash` and `rye/exec` need only their capability. For the other tools, the program must name the resources in a
//! [`ToolConfig`]: files are read and written below a directory, and requests go to listed hosts. All else is refused.

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(unix)]
mod bash;
mod config;
#[cfg(unix)]
mod exec;
#[cfg(feature = "files")]
mod files;
#[cfg(feature = "http")]
mod http;
mod mcp;
mod model;
mod names;
#[cfg(feature = "tasks")]
mod orchestrate;
#[cfg(unix)]
mod process;
#[cfg(unix)]
mod program;
#[cfg(unix)]
mod subprocess;
#[cfg(test)]
mod testing;
#[cfg(feature = "tasks")]
mod threads;

use std::time::Duration;

use graph_model::subprocess::Subprocess;
use graph_model::value::{AsView, FromValue, Value};
#[cfg(any(feature = "files", feature = "http"))]
use graph_model::value::{Mismatch, View};

pub use config::ToolConfig;
#[cfg(feature = "http")]
pub use http::{BadHost, HttpPolicy};
pub use mcp::{McpCall, McpCalls, mcp, perform_mcp};
pub use model::{ModelTurn, ModelTurns};
pub use names::{plain_tool_name, tool_names};
#[cfg(unix)]
pub use process::ProcessGroup;

use std::sync::LazyLock;

use graph_engine::ActionError;
use graph_engine::Call;

/// The ids of the built-in tools, including those that this system or the enabled features lack.
pub const BUILTIN_IDS: [&str; 19] = [
    "rye/agent/model",
    "rye/agent/threads/orchestrator",
    "rye/agent/threads/thread_directive",
    "rye/bash",
    "rye/exec",
    "rye/file-system/list",
    "rye/file-system/read",
    "rye/file-system/write",
    "rye/http/request",
    "rye/orchestrate/await",
    "rye/orchestrate/cancel",
    "rye/orchestrate/kill",
    "rye/orchestrate/list",
    "rye/orchestrate/race",
    "rye/orchestrate/spawn",
    "rye/orchestrate/status",
    "rye/orchestrate/steer",
    "rye/orchestrate/timeout",
    "rye/program/turn",
];

/// Performs the built-in tool `id`, for graphs whose tools are known only at run time; `None` if there is no such tool.
///
/// ```
/// # mod graph_runtime { pub use graph_engine::*; pub use graph_tools::*; pub mod tools { pub use graph_tools::*; } }
/// # #[cfg(unix)]
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use graph_runtime::tools::perform_builtin;
/// use graph_runtime::{Call, ItemId, ToolConfig};
/// use serde_json::json;
///
/// let call = Call::alone(ItemId::new("rye/bash")?, Vec::new(), Default::default(), ToolConfig::new());
/// let performing = perform_builtin(call.tool(), &call, json!({ "command": "echo 900" }));
/// let result = performing.ok_or("there is no such tool")?.await;
/// assert_eq!(result.map_err(|error| error.to_string())?["stdout"], "900");
/// # Ok(())
/// # }
/// # #[cfg(not(unix))]
/// # fn main() {}
/// ```
pub fn perform_builtin<'a>(
    id: &'a str,
    call: &'a Call,
    params: Value,
) -> Option<impl Future<Output = Result<Value, ActionError>> + Send + 'a> {
    BUILTIN_IDS.contains(&id).then(|| perform(id, call, params))
}

/// Performs a built-in tool. Generated code calls this for a contract with `tool_type: builtin`.
///
/// # Errors
///
/// The error of the tool.
pub async fn builtin<P: AsView + Send, R: FromValue>(id: &str, call: &Call, params: P) -> Result<R, ActionError> {
    let params = params.view().to_plain_value();
    let result = perform(id, call, params).await?;
    Ok(R::from_value(result)?)
}

/// Starts the program of a tool whose contract has `tool_type: subprocess`; `spec` is the contract's [`Subprocess`] as JSON.
/// The program reads its parameters as JSON from stdin. Its output is the result if it is JSON (R184).
///
/// # Errors
///
/// If the program cannot be started, differs from the one that the contract pins, fails, or returns a value that is not of
/// the type `R`.
pub async fn subprocess<P: AsView + Send, R: FromValue>(spec: &str, call: &Call, params: P) -> Result<R, ActionError> {
    let params = params.view().to_plain_value();
    let spec = Subprocess::from_json(spec)?;
    Ok(R::from_value(perform_subprocess(&spec, call, params).await?)?)
}

/// Starts a program like [`subprocess`], for graphs whose tools are known only at run time.
///
/// # Errors
///
/// If the program cannot be started, differs from the one that the contract pins, or fails.
#[cfg(unix)]
pub async fn perform_subprocess(spec: &Subprocess, call: &Call, params: Value) -> Result<Value, ActionError> {
    subprocess::perform(spec, call, &params).await
}

/// Fails, because this system cannot start a program as [`subprocess`] does.
///
/// # Errors
///
/// Always, on this system.
#[cfg(not(unix))]
pub async fn perform_subprocess(_: &Subprocess, _: &Call, _: Value) -> Result<Value, ActionError> {
    Err(ActionError::permanent("tools that are programs of their own cannot be started on this system"))
}

pub(crate) async fn perform(id: &str, call: &Call, params: Value) -> Result<Value, ActionError> {
    match id {
        "rye/agent/model" => model::perform(call, params).await,
        #[cfg(unix)]
        "rye/bash" => bash::perform(call, params).await,
        #[cfg(unix)]
        "rye/exec" => exec::perform(call, params).await,
        #[cfg(feature = "files")]
        "rye/file-system/list" => files::list(call, params).await,
        #[cfg(feature = "files")]
        "rye/file-system/read" => files::read(call, params).await,
        #[cfg(feature = "files")]
        "rye/file-system/write" => files::write(call, params).await,
        #[cfg(not(feature = "files"))]
        "rye/file-system/list" | "rye/file-system/read" | "rye/file-system/write" => Err(ActionError::permanent(
            format!("`{id}` is not built in: it needs the feature `file-tools` of `graph-runtime`"),
        )),
        #[cfg(feature = "http")]
        "rye/http/request" => http::perform(call, params).await,
        #[cfg(not(feature = "http"))]
        "rye/http/request" => Err(ActionError::permanent(
            "`rye/http/request` is not built in: it needs the feature `http` of `graph-runtime`",
        )),
        #[cfg(unix)]
        "rye/program/turn" => program::perform(call, params).await,
        _ if id.starts_with(THREADS) || id.starts_with(ORCHESTRATE) => orchestrate(id, call, params).await,
        _ => Err(ActionError::permanent(format!(
            "`{id}` is not built into the runtime on this system ({})",
            call.node()
        ))),
    }
}

/// The first part of the ids of the tools for threads.
const THREADS: &str = "rye/agent/threads/";
/// The first part of the ids of the tools for tasks.
const ORCHESTRATE: &str = "rye/orchestrate/";

#[cfg(feature = "tasks")]
async fn orchestrate(id: &str, call: &Call, params: Value) -> Result<Value, ActionError> {
    match id {
        "rye/agent/threads/thread_directive" => threads::thread_directive(call, params).await,
        "rye/agent/threads/orchestrator" => threads::orchestrator(call, params).await,
        _ => orchestrate::perform(&id[ORCHESTRATE.len()..], call, params).await,
    }
}

#[cfg(not(feature = "tasks"))]
async fn orchestrate(id: &str, _: &Call, _: Value) -> Result<Value, ActionError> {
    Err(ActionError::permanent(format!("`{id}` is not built in: it needs the feature `tasks` of `graph-runtime`")))
}

/// Returns the settings that the program made for the tools of a call.
fn config(call: &Call) -> &ToolConfig {
    static NOTHING: LazyLock<ToolConfig> = LazyLock::new(ToolConfig::new);
    call.tool_settings().unwrap_or(&NOTHING)
}

/// The encoding of bytes as a text.
#[cfg(any(feature = "files", feature = "http"))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encoding {
    Utf8,
    Base64,
}

#[cfg(any(feature = "files", feature = "http"))]
impl Encoding {
    /// Reads the parameter `encoding`.
    fn named(name: &str) -> Result<Self, Mismatch> {
        match name {
            "utf-8" => Ok(Self::Utf8),
            "base64" => Ok(Self::Base64),
            _ => Err(Mismatch::new("`utf-8` or `base64`", View::Text(name)).inside("encoding")),
        }
    }
}

/// Reads the parameter `name` as a number of seconds.
fn seconds(number: f64, name: &str) -> Result<Duration, ActionError> {
    let time = Duration::try_from_secs_f64(number).ok().filter(|time| !time.is_zero());
    time.ok_or_else(|| {
        ActionError::permanent(format!("`{name}` is a number of seconds above 0, and `{number}` is not one"))
    })
}

/// Reads the parameter `name` as a number of bytes, at most `most`.
#[cfg(any(feature = "files", feature = "http"))]
fn bytes(number: i64, name: &str, most: u64) -> Result<u64, Mismatch> {
    let bytes = u64::try_from(number).ok().filter(|bytes| *bytes <= most);
    bytes.ok_or_else(|| Mismatch::new(format!("a number of bytes up to {most}"), View::Integer(number)).inside(name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn every_built_in_tool_is_found_by_its_id_and_nothing_else_is() {
        let call = testing::call(ToolConfig::new(), &[]);
        assert!(perform_builtin("rye/none", &call, json!({})).is_none());
        for id in BUILTIN_IDS {
            // Each call lacks a parameter or a permission, but no id is unknown.
            let performing = perform_builtin(id, &call, json!({})).unwrap();
            let error = performing.await.unwrap_err().to_string();
            assert!(!error.contains("on this system"), "{id}: {error}");
        }
    }
}

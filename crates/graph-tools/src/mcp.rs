//! Tools of servers that speak the Model Context Protocol. The program brings what asks the servers.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use graph_engine::{ActionError, Call};
use graph_model::mcp::McpTool;
use graph_model::value::{AsView, FromValue, Value};

/// The future of a call of a server's tool.
pub type McpCall<'a> = Pin<Box<dyn Future<Output = Result<Value, ActionError>> + Send + 'a>>;

/// Asks servers to perform their tools. `McpServers` of the crate `graph-mcp` does it.
pub trait McpCalls: Send + Sync + fmt::Debug + 'static {
    /// Calls a tool, and returns its result. A future that is dropped cancels the call at the server.
    fn call<'a>(&'a self, call: &'a Call, tool: &'a McpTool, params: Value) -> McpCall<'a>;
}

/// Calls the tool of a server whose contract has `tool_type: mcp`; `spec` is the contract's [`McpTool`] as JSON.
///
/// # Errors
///
/// If the program has no such server, the server cannot be reached, has changed the tool or fails, or the result is not of the type
/// `R`.
pub async fn mcp<P: AsView + Send, R: FromValue>(spec: &str, call: &Call, params: P) -> Result<R, ActionError> {
    let params = params.view().to_plain_value();
    let tool = McpTool::from_json(spec)?;
    Ok(R::from_value(perform_mcp(&tool, call, params).await?)?)
}

/// Calls the tool of a server like [`mcp()`], for graphs whose tools are known only at run time.
///
/// # Errors
///
/// If the program has no such server, or the server cannot be reached, has changed the tool or fails.
pub async fn perform_mcp(tool: &McpTool, call: &Call, params: Value) -> Result<Value, ActionError> {
    match crate::config(call).mcp_calls() {
        Some(calls) => calls.call(call, tool, params).await,
        None => Err(ActionError::permanent(format!(
            "the program has no server `{}`: it names servers with `ToolConfig::mcp`, and `graph run` with `--mcp-servers FILE`",
            tool.server
        ))),
    }
}

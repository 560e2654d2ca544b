//! The tools of interpreted graphs.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;

use graph_compiler::graph::TypedTool;
use graph_model::value::{Map, Value};

use graph_engine::{ActionError, BoxFuture, Call, ReducerError};
use graph_tools::{perform_builtin, perform_mcp, perform_subprocess};

/// The future of a call of a tool, with its result.
pub type ToolFuture<'a> = BoxFuture<'a, Result<Value, ActionError>>;

/// Performs the tools that graphs call.
///
/// [`Toolbox`] is enough for most programs, and has an example.
pub trait Tools: Send + Sync + 'static {
    /// Performs the tool that [`Call::tool`] names; `row` is the tool as its contract describes it.
    fn perform<'a>(&'a self, call: &'a Call, row: &'a TypedTool, params: Map<String, Value>) -> ToolFuture<'a>;

    /// Whether a tool can be performed; this is checked before a run begins. `row` is the tool as its contract describes it.
    fn performs(&self, row: &TypedTool) -> bool {
        let _ = row;
        true
    }

    /// Whether it performs calls of the graph `id` itself, in place of a nested run.
    fn replaces(&self, id: &str) -> bool {
        let _ = id;
        false
    }

    /// Combines a write to a channel with its value by the reducer `id`, which is a function of the program. `value` is `None`
    /// before the first write. `None` if there is no such function.
    ///
    /// The function is pure: the same value and write yield the same result. It may be called more than once for a write.
    fn reduce(&self, id: &str, value: Option<Value>, write: &Value) -> Option<Result<Value, ReducerError>> {
        let _ = (id, value, write);
        None
    }

    /// Whether there is a reducer with this id; this is checked before a run begins.
    fn reduces(&self, id: &str) -> bool {
        let _ = id;
        false
    }
}

/// A reducer in Rust.
type Reduce = dyn Fn(Option<Value>, &Value) -> Result<Value, ReducerError> + Send + Sync;

/// A tool in Rust.
type Perform = dyn for<'a> Fn(&'a Call, Map<String, Value>) -> ToolFuture<'a> + Send + Sync;

/// Tools by their ids. Other tools may be built into the runtime.
///
/// ```
/// use graph_runtime::Value;
/// use graph_runtime::dynamic::Toolbox;
/// use serde_json::json;
///
/// let tools = Toolbox::new().with("shop/price", |_call, params| async move {
///     let quantity = params.get("quantity").and_then(Value::as_u64).ok_or("there is no quantity")?;
///     Ok(json!({ "cents": 450 * quantity }))
/// });
/// assert_eq!(format!("{tools:?}"), r#"{"shop/price"}"#);
/// ```
///
/// The example of [`Library`](super::Library) takes a toolbox.
#[derive(Clone, Default)]
pub struct Toolbox {
    tools: HashMap<String, Arc<Perform>>,
    reducers: HashMap<String, Arc<Reduce>>,
}

impl Toolbox {
    /// Returns a toolbox with only the tools that are built into the runtime.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a tool.
    #[must_use]
    pub fn with<F, R>(mut self, id: &str, perform: F) -> Self
    where
        F: Fn(Call, Map<String, Value>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Value, ActionError>> + Send + 'static,
    {
        self.tools.insert(id.to_owned(), Arc::new(move |call, params| Box::pin(perform(call.clone(), params))));
        self
    }

    /// Adds a reducer: a pure function that combines a write to a channel with the channel's value, which is `None` before the
    /// first write.
    ///
    /// ```
    /// use graph_runtime::Value;
    /// use graph_runtime::dynamic::Toolbox;
    ///
    /// let tools = Toolbox::new().with_reducer("scoring/combine", |value, write| {
    ///     let score = write.as_i64().ok_or("a score is a number")?;
    ///     Ok(Value::from(value.and_then(|value| value.as_i64()).unwrap_or(1) * score))
    /// });
    /// assert_eq!(format!("{tools:?}"), r#"{"scoring/combine"}"#);
    /// ```
    #[must_use]
    pub fn with_reducer(
        mut self,
        id: &str,
        reduce: impl Fn(Option<Value>, &Value) -> Result<Value, ReducerError> + Send + Sync + 'static,
    ) -> Self {
        self.reducers.insert(id.to_owned(), Arc::new(reduce));
        self
    }
}

impl fmt::Debug for Toolbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names: Vec<&String> = self.tools.keys().chain(self.reducers.keys()).collect();
        names.sort_unstable();
        f.debug_set().entries(names).finish()
    }
}

/// Whether a tool is one of those for threads, which have no contracts: a program may have its own.
fn is_thread(id: &str) -> bool {
    cfg!(feature = "tasks") && matches!(id, "rye/agent/threads/thread_directive" | "rye/agent/threads/orchestrator")
}

impl Tools for Toolbox {
    fn perform<'a>(&'a self, call: &'a Call, row: &'a TypedTool, params: Map<String, Value>) -> ToolFuture<'a> {
        if let Some(tool) = self.tools.get(call.tool()) {
            return tool(call, params);
        }
        if let Some(subprocess) = &row.subprocess {
            return Box::pin(perform_subprocess(subprocess, call, Value::Object(params)));
        }
        if let Some(mcp) = &row.mcp {
            return Box::pin(perform_mcp(mcp, call, Value::Object(params)));
        }
        if (row.builtin || is_thread(&row.id))
            && let Some(performing) = perform_builtin(call.tool(), call, Value::Object(params))
        {
            return Box::pin(performing);
        }
        let message = format!("nothing performs `{}`", call.tool());
        Box::pin(async move { Err(ActionError::permanent(message)) })
    }

    fn performs(&self, row: &TypedTool) -> bool {
        self.tools.contains_key(&row.id) || row.subprocess.is_some() || row.builtin || is_thread(&row.id)
    }

    fn reduce(&self, id: &str, value: Option<Value>, write: &Value) -> Option<Result<Value, ReducerError>> {
        Some(self.reducers.get(id)?(value, write))
    }

    fn reduces(&self, id: &str) -> bool {
        self.reducers.contains_key(id)
    }
}

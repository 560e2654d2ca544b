//! The server: the tools that it has, and the requests about them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use graph_compiler::types::{Type, TypedField};
use graph_runtime::dynamic::{Interpreted, Library};
use graph_runtime::{Map, Options, Runtime, SecretKey, StartError, Value};
use graph_tools::tool_names;
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData, Implementation, ListToolsResult,
    PaginatedRequestParams, RequestStateCodec, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::{RequestContext, RoleServer, serve_server};
use rmcp::transport::async_rw::AsyncRwTransport;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;

use crate::schema;

/// The most bytes of a message of a client.
pub(crate) const MOST_BYTES: usize = 4 * 1024 * 1024;

/// How many calls are performed at a time, unless the builder says otherwise.
const MOST_CALLS: usize = 64;

/// The text for clients about the server.
const INSTRUCTIONS: &str = "Each tool starts a run of a state graph and returns its result. A result with the status `waiting` says how the run continues.";

/// Why a graph is not served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unserved {
    /// The runtime would refuse each of its runs.
    #[error(transparent)]
    Refused(#[from] StartError),
    /// Some of its inputs are code for a tool, or parameters of calls that people approve: the author of a graph chooses them.
    #[error("some of its inputs are sinks or guarded, and a client would let a model choose them")]
    Trusted,
    /// One of its inputs, or its output, is a secret.
    #[error("{part} is or contains a secret, and a client would show it to a model")]
    Secret {
        /// The part: an input or the output.
        part: String,
    },
}

/// Why a server stopped, or did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum McpServeError {
    /// The client broke the protocol before a session began, or left.
    #[error("no session began: {0}")]
    Handshake(String),
    /// The operating system gave no random bytes.
    #[error("the operating system gave no random bytes: {0}")]
    Randomness(String),
    /// The task of the server ended by itself.
    #[error("the server was stopped: {0}")]
    Stopped(String),
}

/// A tool of the server that runs no graph: a function of its arguments.
#[derive(Clone)]
pub struct SideTool {
    /// Its name.
    pub name: &'static str,
    /// Its purpose, for models.
    pub description: &'static str,
    /// The JSON Schema of its arguments.
    pub input: Map<String, Value>,
    /// The JSON Schema of its result.
    pub output: Map<String, Value>,
    /// The function. It is called on a thread that may block. An error is the text of a failed call.
    pub call: Arc<SideCall>,
}

/// The function of a [`SideTool`].
type SideCall = dyn Fn(Map<String, Value>) -> Result<Value, String> + Send + Sync;

impl fmt::Debug for SideTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SideTool").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A graph as a tool.
pub(crate) struct ServedGraph {
    pub(crate) library: Library,
    pub(crate) graph: Interpreted,
    pub(crate) runtime: Runtime,
    pub(crate) options: Options,
}

/// A tool with what performs its calls.
enum ServedTool {
    Graph(Box<ServedGraph>),
    Side(SideTool),
}

/// Makes a [`GraphServer`].
#[derive(Default)]
pub struct GraphServerBuilder {
    graphs: Vec<ServedGraph>,
    sides: Vec<SideTool>,
    answer_key: Option<SecretKey>,
    most_calls: Option<usize>,
}

impl GraphServerBuilder {
    /// Adds a graph, the library that it is from, and the runtime and the options of its runs. For progress, the runtime has
    /// [events](graph_runtime::Builder::events).
    ///
    /// # Errors
    ///
    /// If the runtime refuses its runs, or an input or the output has a secret.
    pub fn graph(
        &mut self,
        library: &Library,
        graph: Interpreted,
        runtime: Runtime,
        options: Options,
    ) -> Result<(), Unserved> {
        let interface = graph.interface();
        let is_secret = |field: &&TypedField| field.ty.has_secret();
        if let Some(field) = interface.inputs.iter().flatten().find(is_secret) {
            return Err(Unserved::Secret { part: format!("the input `{}`", field.name) });
        }
        let mut outputs = std::iter::once(&interface.output).chain(interface.exits.iter().map(|exit| &exit.ty));
        if outputs.any(Type::has_secret) {
            return Err(Unserved::Secret { part: "its output".to_owned() });
        }
        if graph.has_trusted_inputs() {
            return Err(Unserved::Trusted);
        }
        runtime.admits(&graph)?;
        self.graphs.push(ServedGraph { library: library.clone(), graph, runtime, options });
        Ok(())
    }

    /// Adds a tool that runs no graph.
    pub fn side_tool(&mut self, tool: SideTool) {
        self.sides.push(tool);
    }

    /// Lets the server ask the person at the client what runs ask people, and sign the answers with this key. Without it, nobody is
    /// asked.
    pub fn answer_key(&mut self, key: SecretKey) {
        self.answer_key = Some(key);
    }

    /// Limits how many calls are performed at a time: 64 by default. More are refused.
    pub fn most_calls(&mut self, most: usize) {
        self.most_calls = Some(most.clamp(1, Semaphore::MAX_PERMITS));
    }

    /// Returns the ids of the graphs.
    pub fn graph_ids(&self) -> impl Iterator<Item = &str> {
        self.graphs.iter().map(|served| served.graph.id())
    }

    /// Makes the server. Graphs are listed by their ids.
    ///
    /// # Errors
    ///
    /// If the operating system gives no random bytes, of which the key is made that seals the states of questions.
    pub fn build(mut self) -> Result<GraphServer, McpServeError> {
        let mut key = [0; 32];
        getrandom::fill(&mut key).map_err(|error| McpServeError::Randomness(error.to_string()))?;
        let states = RequestStateCodec::try_new(key).map_err(|error| McpServeError::Randomness(error.to_string()))?;
        self.graphs.sort_by(|one, other| one.graph.id().cmp(other.graph.id()));
        let mut tools = BTreeMap::new();
        let taken: Vec<&str> = self.sides.iter().map(|side| side.name).collect();
        let names = tool_names(self.graphs.iter().map(|served| served.graph.id()), &taken);
        for (name, served) in names.into_iter().zip(self.graphs) {
            let interface = served.graph.interface();
            let description = interface.description.clone().unwrap_or_else(|| format!("Runs `{}`.", interface.id));
            let tool = Tool::new(name.clone(), description, schema::inputs(&served.graph))
                .with_title(interface.id.clone())
                .with_raw_output_schema(Arc::new(schema::result(&served.graph)));
            tools.insert(name, (tool, ServedTool::Graph(Box::new(served))));
        }
        for side in self.sides {
            let tool = Tool::new(side.name, side.description, side.input.clone())
                .with_raw_output_schema(Arc::new(side.output.clone()))
                .with_annotations(rmcp::model::ToolAnnotations::new().read_only(true).open_world(false));
            tools.insert(side.name.to_owned(), (tool, ServedTool::Side(side)));
        }
        let most_calls = self.most_calls.unwrap_or(MOST_CALLS);
        let shared = ServerParts {
            tools,
            answer_key: self.answer_key,
            states,
            most_calls,
            calls: Semaphore::new(most_calls),
            dispatched: AtomicU64::new(0),
        };
        Ok(GraphServer { shared: Arc::new(shared) })
    }
}

/// The parts of a server, which its sessions share.
pub(crate) struct ServerParts {
    tools: BTreeMap<String, (Tool, ServedTool)>,
    pub(crate) answer_key: Option<SecretKey>,
    pub(crate) states: RequestStateCodec,
    most_calls: usize,
    calls: Semaphore,
    dispatched: AtomicU64,
}

/// A server whose tools are graphs. Clones share it.
#[derive(Clone)]
pub struct GraphServer {
    pub(crate) shared: Arc<ServerParts>,
}

impl fmt::Debug for GraphServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GraphServer").field("tools", &self.shared.tools.keys()).finish_non_exhaustive()
    }
}

impl GraphServer {
    /// Returns a builder of a server without tools.
    pub fn builder() -> GraphServerBuilder {
        GraphServerBuilder::default()
    }

    /// Returns the names of its tools.
    pub fn tool_names(&self) -> impl Iterator<Item = &str> {
        self.shared.tools.keys().map(String::as_str)
    }

    /// Returns how many calls were passed on to a tool.
    pub fn dispatched(&self) -> u64 {
        self.shared.dispatched.load(Ordering::Relaxed)
    }

    /// Serves one client, with a message a line, until the client ends the stream. Calls that are in progress then have five seconds
    /// to finish before they are cancelled.
    ///
    /// # Errors
    ///
    /// If the client begins no session, or the task of the session fails.
    pub async fn serve(
        &self,
        read: impl AsyncRead + Send + Unpin + 'static,
        write: impl AsyncWrite + Send + Unpin + 'static,
    ) -> Result<(), McpServeError> {
        let transport = AsyncRwTransport::new_server(read, write).with_max_line_length(MOST_BYTES);
        let session = serve_server(self.clone(), transport).await;
        let session = session.map_err(|error| McpServeError::Handshake(error.to_string()))?;
        session.waiting().await.map(drop).map_err(|error| McpServeError::Stopped(error.to_string()))
    }

    /// Stops the runs that are in progress before their next steps, and waits for their calls until the time is over. Those in a store
    /// can be resumed.
    pub async fn shut_down(&self, deadline: Duration) {
        let mut stopping = tokio::task::JoinSet::new();
        for (_, tool) in self.shared.tools.values() {
            if let ServedTool::Graph(served) = tool {
                let runtime = served.runtime.clone();
                stopping.spawn(async move { runtime.shutdown(deadline).await });
            }
        }
        while stopping.join_next().await.is_some() {}
    }
}

/// Returns the result of a call that failed.
pub(crate) fn failed(text: impl Into<String>) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(text.into())])
}

impl ServerHandler for GraphServer {
    fn get_info(&self) -> ServerConfig {
        let mut config = ServerConfig::new(ServerCapabilities::builder().enable_tools().build());
        config.server_info = Implementation::new("state-graphs", env!("CARGO_PKG_VERSION"));
        config.with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.shared.tools.values().map(|(tool, _)| tool.clone()).collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some((_, tool)) = self.shared.tools.get(&*request.name) else {
            return Err(ErrorData::invalid_params("there is no tool of this name", None));
        };
        let Ok(_permit) = self.shared.calls.try_acquire() else {
            let most = self.shared.most_calls;
            return Ok(failed(format!("{most} calls are in progress, and no more are begun; try again later")).into());
        };
        self.shared.dispatched.fetch_add(1, Ordering::Relaxed);
        match tool {
            ServedTool::Graph(served) => served.call(&self.shared, request, context).await,
            ServedTool::Side(side) => {
                let (call, arguments) = (Arc::clone(&side.call), request.arguments.unwrap_or_default());
                let done = tokio::task::spawn_blocking(move || call(arguments)).await;
                let done = done.map_err(|_| ErrorData::internal_error("the tool failed", None))?;
                Ok(done.map_or_else(failed, CallToolResult::structured).into())
            }
        }
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.shared.tools.get(name).map(|(tool, _)| tool.clone())
    }
}

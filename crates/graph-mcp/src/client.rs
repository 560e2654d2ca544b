//! Servers whose tools graphs call: connections, and the checks of everything that a server sends.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use graph_engine::{ActionError, Call};
use graph_model::character::is_invisible;
use graph_model::digest::Digest;
use graph_model::mcp::McpTool;
use graph_model::value::{Map, Value, canonical_json};
use graph_tools::{McpCall, McpCalls};
use rmcp::ClientHandler;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, ClientCapabilities, ClientConfig, ClientRequest,
    Implementation, PaginatedRequestParams, ProtocolVersion, RequestId, ServerResult, Tool,
};
use rmcp::service::{
    ClientLifecycleMode, NotificationContext, Peer, PeerRequestOptions, RoleClient, RunningService, ServiceError,
    serve_client_with_lifecycle,
};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::{StreamableHttpClientTransportConfig, StreamableHttpError};
use rustls_platform_verifier::BuilderVerifierExt as _;
use serde_json::json;
use tokio::sync::{Mutex, broadcast, mpsc, oneshot};
use tracing::subscriber::NoSubscriber;

use crate::lines::{self, LineTransport, UnreadableLine};

/// The most bytes of a message of a server.
const MOST_BYTES: usize = 8 * 1024 * 1024;

/// The most tools of a server, and the most pages that list them.
const MOST_TOOLS: usize = 1_000;
const MOST_PAGES: usize = 100;

/// How long a connection and the list of tools may take.
const GREETING: Duration = Duration::from_secs(30);

/// How long the list of tools counts.
const MOST_AGE: Duration = Duration::from_secs(60);

/// The most characters of a server's error.
const MOST_ERROR: usize = 1_000;

/// How a server is reached.
#[derive(Clone)]
pub enum McpEndpoint {
    /// A program that is started, and that speaks over its stdin and stdout. It has only the variables `PATH`, `HOME`, `LANG`,
    /// `TMPDIR`, `RYE_PARENT_THREAD_ID` and those that are named. Nothing that it prints to stderr is shown. It ends with the connection,
    /// or with the program in whatever way that ends, and what it started ends with it.
    Command {
        /// The program and its arguments.
        command: Vec<String>,
        /// The names of further variables of the environment.
        env: Vec<String>,
    },
    /// An address. Redirects are not followed.
    Url {
        /// The address: `https`, or `http` on this machine.
        url: String,
        /// The bearer token.
        token: Option<String>,
    },
}

impl fmt::Debug for McpEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command { command, env } => {
                f.debug_struct("Command").field("command", command).field("env", env).finish()
            }
            Self::Url { url, token } => {
                f.debug_struct("Url").field("url", url).field("has_token", &token.is_some()).finish()
            }
        }
    }
}

/// Why a server gave no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum McpClientError {
    /// The program names no such server.
    #[error("there is no server `{0}`")]
    Unknown(String),
    /// The endpoint cannot be used.
    #[error("the server `{server}` cannot be used: {reason}")]
    Endpoint {
        /// The server.
        server: String,
        /// The reason.
        reason: String,
    },
    /// The connection could not be made, or is lost.
    #[error("the server `{server}` cannot be reached: {reason}")]
    Lost {
        /// The server.
        server: String,
        /// The reason.
        reason: String,
    },
    /// The server breaks a bound or the protocol.
    #[error("the server `{server}` {reason}")]
    Wrong {
        /// The server.
        server: String,
        /// The reason.
        reason: String,
    },
}

/// A tool, as its server declares it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct DeclaredTool {
    /// Its name.
    pub name: String,
    /// Its purpose, as the server says.
    pub description: Option<String>,
    /// The JSON Schema of its parameters.
    pub input: Value,
    /// The JSON Schema of its structured result, if it has one.
    pub output: Option<Value>,
    /// Whether the server says that a call which is made twice has the effect of one: by `readOnlyHint` or `idempotentHint`.
    pub is_idempotent: bool,
    /// The SHA-256 of the whole declaration.
    pub digest: Digest,
}

impl DeclaredTool {
    fn of(tool: &Tool) -> Self {
        let input = Value::Object((*tool.input_schema).clone());
        let output = tool.output_schema.as_ref().map(|schema| Value::Object((**schema).clone()));
        let description = tool.description.as_deref().map(str::to_owned);
        // Hints about the tool steer people and models too.
        let declared = json!({
            "name": tool.name,
            "title": tool.title,
            "description": description,
            "inputSchema": input,
            "outputSchema": output,
            "annotations": tool.annotations,
        });
        let hints = tool.annotations.as_ref();
        let is_idempotent =
            hints.is_some_and(|hints| hints.read_only_hint == Some(true) || hints.idempotent_hint == Some(true));
        let digest = Digest::of(canonical_json(&declared));
        Self { name: tool.name.to_string(), description, input, output, is_idempotent, digest }
    }
}

/// The servers whose tools the graphs of a program may call. Clones share the connections.
///
/// ```
/// use graph_mcp::{McpEndpoint, McpServers};
/// use graph_tools::ToolConfig;
///
/// let endpoint = McpEndpoint::Url { url: "http://127.0.0.1:8080/mcp".to_owned(), token: None };
/// let tools = ToolConfig::new().mcp(McpServers::new().server("shop", endpoint));
/// # drop(tools);
/// ```
#[derive(Debug, Clone, Default)]
pub struct McpServers {
    servers: BTreeMap<String, Arc<NamedServer>>,
}

/// A server, and the connection to it if there is one.
struct NamedServer {
    name: String,
    endpoint: McpEndpoint,
    timeout: Duration,
    connection: Mutex<Option<McpConnection>>,
}

impl fmt::Debug for NamedServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamedServer").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

/// A connection, which lives on a thread of its own: nothing that happens there is logged.
#[derive(Clone)]
struct McpConnection {
    requests: mpsc::Sender<ConnectionRequest>,
}

/// A request to the thread of a connection.
#[expect(clippy::large_enum_variant, reason = "few requests wait at a time, and nearly all of them are calls")]
enum ConnectionRequest {
    Tools(oneshot::Sender<Result<Vec<DeclaredTool>, McpClientError>>),
    Call { call: Call, tool: McpTool, params: Map<String, Value>, reply: oneshot::Sender<Result<Value, McpFailure>> },
}

/// Why a call gave no result.
enum McpFailure {
    Permanent(String),
    /// The connection is lost, or the server took too long.
    Transient(String),
    /// The request was not sent: the connection was lost before.
    Unsent(String),
}

impl McpServers {
    /// No servers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a server, whose calls may take ten minutes.
    #[must_use]
    pub fn server(self, name: impl Into<String>, endpoint: McpEndpoint) -> Self {
        self.server_within(name, endpoint, Duration::from_secs(600))
    }

    /// Adds a server, and the time that a call may take.
    #[must_use]
    pub fn server_within(mut self, name: impl Into<String>, endpoint: McpEndpoint, timeout: Duration) -> Self {
        let name = name.into();
        let server = NamedServer { name: name.clone(), endpoint, timeout, connection: Mutex::default() };
        self.servers.insert(name, Arc::new(server));
        self
    }

    /// Asks a server for its tools.
    ///
    /// # Errors
    ///
    /// If there is no such server, or it gives no list within bounds.
    pub async fn tools(&self, server: &str) -> Result<Vec<DeclaredTool>, McpClientError> {
        let server = self.servers.get(server).ok_or_else(|| McpClientError::Unknown(server.to_owned()))?;
        let connection = server.connection().await?;
        let (reply, answer) = oneshot::channel();
        let lost = || server.lost("the connection was closed");
        connection.requests.send(ConnectionRequest::Tools(reply)).await.map_err(|_| lost())?;
        answer.await.map_err(|_| lost())?
    }

    async fn perform(&self, call: &Call, tool: &McpTool, params: Value) -> Result<Value, ActionError> {
        let server = self.servers.get(&tool.server).ok_or_else(|| {
            let known: Vec<&str> = self.servers.keys().map(String::as_str).collect();
            let known =
                if known.is_empty() { "it has none".to_owned() } else { format!("it has {}", known.join(", ")) };
            ActionError::permanent(format!("the program has no server `{}`: {known}", tool.server))
        })?;
        let Value::Object(params) = params else { return Err(ActionError::permanent("the parameters are no object")) };
        let called = async {
            match server.call(call, tool, params.clone()).await {
                // A server that ended since the last call is asked once more.
                Err(McpFailure::Unsent(_)) => server.call(call, tool, params).await,
                called => called,
            }
        };
        let seconds = server.timeout.as_secs();
        let late = || McpFailure::Transient(format!("the server `{}` took longer than {seconds} s", server.name));
        match tokio::time::timeout(server.timeout, called).await.unwrap_or_else(|_| Err(late())) {
            Ok(value) => Ok(value),
            Err(McpFailure::Permanent(reason)) => Err(ActionError::permanent(reason)),
            Err(McpFailure::Transient(reason) | McpFailure::Unsent(reason)) => Err(ActionError::transient(reason)),
        }
    }
}

impl McpCalls for McpServers {
    fn call<'a>(&'a self, call: &'a Call, tool: &'a McpTool, params: Value) -> McpCall<'a> {
        Box::pin(self.perform(call, tool, params))
    }
}

impl NamedServer {
    fn lost(&self, reason: impl Into<String>) -> McpClientError {
        McpClientError::Lost { server: self.name.clone(), reason: reason.into() }
    }

    /// Returns the open connection, or makes one.
    async fn connection(&self) -> Result<McpConnection, McpClientError> {
        let mut connection = self.connection.lock().await;
        if let Some(open) = connection.as_ref().filter(|open| !open.requests.is_closed()) {
            return Ok(open.clone());
        }
        let made = McpConnection::open(self.name.clone(), self.endpoint.clone()).await?;
        *connection = Some(made.clone());
        Ok(made)
    }

    async fn call(&self, call: &Call, tool: &McpTool, params: Map<String, Value>) -> Result<Value, McpFailure> {
        let connection = self.connection().await.map_err(|error| match error {
            McpClientError::Lost { .. } => McpFailure::Transient(error.to_string()),
            error => McpFailure::Permanent(error.to_string()),
        })?;
        let (reply, answer) = oneshot::channel();
        let unsent = || McpFailure::Unsent(self.lost("the connection was closed").to_string());
        let asked = ConnectionRequest::Call { call: call.clone(), tool: tool.clone(), params, reply };
        connection.requests.send(asked).await.map_err(|_| unsent())?;
        let closed = || McpFailure::Transient(self.lost("the connection was closed during the call").to_string());
        let answer = answer.await.unwrap_or_else(|_| Err(closed()));
        if let Err(McpFailure::Unsent(_)) = &answer {
            let mut kept = self.connection.lock().await;
            kept.take_if(|kept| kept.requests.same_channel(&connection.requests));
        }
        answer
    }
}

impl McpConnection {
    /// Connects on a thread of its own, and lists the tools.
    async fn open(server: String, endpoint: McpEndpoint) -> Result<Self, McpClientError> {
        let (requests, asked) = mpsc::channel(64);
        let (ready, is_ready) = oneshot::channel();
        let name = server.clone();
        let lost = move |reason: String| McpClientError::Lost { server: name.clone(), reason };
        let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let tokio = tokio.map_err(|error| lost(error.to_string()))?;
        let thread = std::thread::Builder::new().name(format!("mcp {server}"));
        let serving = move || {
            tracing::subscriber::with_default(NoSubscriber::default(), || {
                tokio.block_on(serve(server, endpoint, asked, ready));
            });
        };
        thread.spawn(serving).map_err(|error| lost(error.to_string()))?;
        is_ready.await.unwrap_or_else(|_| Err(lost("its thread ended".to_owned())))?;
        Ok(Self { requests })
    }
}

/// The client of a connection. It shows nothing to people, and offers nothing to the server.
#[derive(Clone, Default)]
struct Listener {
    has_changed: Arc<AtomicBool>,
}

impl ClientHandler for Listener {
    fn get_info(&self) -> ClientConfig {
        let name = Implementation::new("state-graphs", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), name)
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.has_changed.store(true, Ordering::Relaxed);
    }
}

/// An open session with a server.
struct ServerSession {
    server: String,
    peer: Peer<RoleClient>,
    listener: Listener,
    /// The lines of a program that cannot be read.
    unreadable: broadcast::Sender<UnreadableLine>,
    /// Its tools, and when it declared them.
    tools: Mutex<Option<(Instant, HashMap<String, DeclaredTool>)>>,
}

/// Serves the requests of a connection until the server or all callers are gone.
async fn serve(
    server: String,
    endpoint: McpEndpoint,
    mut asked: mpsc::Receiver<ConnectionRequest>,
    ready: oneshot::Sender<Result<(), McpClientError>>,
) {
    let listener = Listener::default();
    let unreadable = lines::unreadable();
    let mut heard = unreadable.subscribe();
    let connecting = async {
        tokio::select! {
            connected = connect(&server, &endpoint, listener.clone(), &unreadable) => connected,
            found = wrong_message(&mut heard) => {
                Err(McpClientError::Wrong { server: server.clone(), reason: shown(&found.reason) })
            }
        }
    };
    let greeting = tokio::time::timeout(GREETING, connecting).await;
    let late = || McpClientError::Lost { server: server.clone(), reason: "it does not greet in time".to_owned() };
    // A program that was started ends with its connection.
    let (session, _program) = match greeting.unwrap_or_else(|_| Err(late())) {
        Ok(connected) => connected,
        Err(error) => {
            drop(ready.send(Err(error)));
            return;
        }
    };
    let peer = session.peer().clone();
    let open = Arc::new(ServerSession { server, peer: peer.clone(), listener, unreadable, tools: Mutex::default() });
    drop(ready.send(Ok(())));
    let mut ended = tokio::time::interval(Duration::from_millis(200));
    loop {
        tokio::select! {
            request = asked.recv() => match request {
                Some(ConnectionRequest::Tools(reply)) => {
                    let open = Arc::clone(&open);
                    tokio::spawn(async move { drop(reply.send(open.list().await)) });
                }
                Some(ConnectionRequest::Call { call, tool, params, reply }) => {
                    let open = Arc::clone(&open);
                    tokio::spawn(async move { open.call(&call, tool, params, reply).await });
                }
                None => break,
            },
            _ = ended.tick() => {
                if peer.is_transport_closed() {
                    break;
                }
            }
        }
    }
    asked.close();
    // Calls that were not sent are given back as such.
    while let Some(request) = asked.recv().await {
        if let ConnectionRequest::Call { reply, .. } = request {
            drop(reply.send(Err(McpFailure::Unsent("the connection was closed".to_owned()))));
        }
    }
    drop(tokio::time::timeout(Duration::from_secs(2), session.cancel()).await);
}

type Connected = (RunningService<RoleClient, Listener>, Option<StartedServer>);

/// A server that was started. It ends with this value, together with all that it started.
struct StartedServer {
    _child: tokio::process::Child,
    #[cfg(unix)]
    _group: graph_tools::ProcessGroup,
}

/// Waits for a message that cannot be read. Texts for people are passed over.
async fn wrong_message(unreadable: &mut broadcast::Receiver<UnreadableLine>) -> UnreadableLine {
    loop {
        match unreadable.recv().await {
            Ok(found) if found.is_message() => return found,
            Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => {}
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}

/// Waits for a line that cannot be read and may be the answer to a request.
async fn wrong_answer(unreadable: &mut broadcast::Receiver<UnreadableLine>, request: &RequestId) -> UnreadableLine {
    loop {
        match unreadable.recv().await {
            Ok(found) if found.may_answer(request) => return found,
            Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => {}
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}

async fn connect(
    server: &str,
    endpoint: &McpEndpoint,
    listener: Listener,
    unreadable: &broadcast::Sender<UnreadableLine>,
) -> Result<Connected, McpClientError> {
    let unusable = |reason: String| McpClientError::Endpoint { server: server.to_owned(), reason };
    let lost = |reason: String| McpClientError::Lost { server: server.to_owned(), reason: shown(&reason) };
    let lifecycle =
        ClientLifecycleMode::Auto { preferred_versions: vec![ProtocolVersion::V_2026_07_28], legacy_version: None };
    match endpoint {
        McpEndpoint::Command { command, env } => {
            let (program, arguments) =
                command.split_first().ok_or_else(|| unusable("its `command` names no program".to_owned()))?;
            let mut command = tokio::process::Command::new(program);
            command.args(arguments).env_clear().kill_on_drop(true);
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
            // A graph that it starts is bound as the program is, if that was started by a thread.
            for name in ["PATH", "HOME", "LANG", "TMPDIR", "RYE_PARENT_THREAD_ID"]
                .into_iter()
                .chain(env.iter().map(String::as_str))
            {
                command.envs(std::env::var_os(name).map(|value| (name, value)));
            }
            let unstarted = |error: std::io::Error| unusable(format!("`{program}` could not be started: {error}"));
            #[cfg(unix)]
            let group = graph_tools::ProcessGroup::new().map_err(unstarted)?;
            #[cfg(unix)]
            group.join(&mut command);
            let mut child = command.spawn().map_err(unstarted)?;
            let (Some(read), Some(write)) = (child.stdout.take(), child.stdin.take()) else {
                return Err(unusable("it has no pipes".to_owned()));
            };
            let transport = LineTransport::new(read, write, MOST_BYTES, unreadable.clone());
            let program = StartedServer {
                _child: child,
                #[cfg(unix)]
                _group: group,
            };
            let session = serve_client_with_lifecycle(listener, transport, lifecycle).await;
            Ok((session.map_err(|error| lost(error.to_string()))?, Some(program)))
        }
        McpEndpoint::Url { url, token } => {
            let http = http_client(url).map_err(unusable)?;
            let mut config = StreamableHttpClientTransportConfig::with_uri(url.as_str());
            config.max_sse_event_size = MOST_BYTES;
            config.max_json_response_size = MOST_BYTES;
            if let Some(token) = token {
                config = config.auth_header(token.as_str());
            }
            let transport = StreamableHttpClientTransport::with_client(http, config);
            let session = serve_client_with_lifecycle(listener, transport, lifecycle).await;
            Ok((session.map_err(|error| lost(error.to_string()))?, None))
        }
    }
}

/// Returns a client that follows no redirects, with the certificates that the system trusts.
fn http_client(url: &str) -> Result<reqwest::Client, String> {
    let parsed: reqwest::Url = url.parse().map_err(|error| format!("`{url}` is no URL: {error}"))?;
    let is_local = matches!(parsed.host_str(), Some("localhost" | "127.0.0.1" | "[::1]"));
    if parsed.scheme() != "https" && !(parsed.scheme() == "http" && is_local) {
        return Err("its URL must begin with `https`, or with `http` on this machine".to_owned());
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(rustls::ConfigBuilder::with_platform_verifier)
        .map_err(|error| error.to_string())?
        .with_no_client_auth();
    let client = reqwest::Client::builder().tls_backend_preconfigured(tls).redirect(reqwest::redirect::Policy::none());
    let client = if is_local { client.no_proxy() } else { client };
    client.build().map_err(|error| error.to_string())
}

/// Returns a text of a server without what nobody sees, and not longer than an error may be.
fn shown(text: &str) -> String {
    text.chars()
        .map(|letter| if letter.is_control() || is_invisible(letter) { ' ' } else { letter })
        .take(MOST_ERROR)
        .collect()
}

impl ServerSession {
    fn wrong(&self, reason: impl Into<String>) -> McpClientError {
        McpClientError::Wrong { server: self.server.clone(), reason: reason.into() }
    }

    /// Asks for all tools.
    async fn list(&self) -> Result<Vec<DeclaredTool>, McpClientError> {
        let mut unreadable = self.unreadable.subscribe();
        let listing = async {
            tokio::select! {
                tools = self.pages() => tools,
                found = wrong_message(&mut unreadable) => Err(self.wrong(shown(&found.reason))),
            }
        };
        tokio::time::timeout(GREETING, listing)
            .await
            .unwrap_or_else(|_| Err(self.wrong("does not list its tools in time")))
    }

    async fn pages(&self) -> Result<Vec<DeclaredTool>, McpClientError> {
        let (mut tools, mut cursor) = (Vec::new(), None);
        for _ in 0..MOST_PAGES {
            let params = PaginatedRequestParams::default().with_cursor(cursor);
            let page = self.peer.list_tools(Some(params)).await.map_err(|error| McpClientError::Lost {
                server: self.server.clone(),
                reason: shown(&error.to_string()),
            })?;
            tools.extend(page.tools.iter().map(DeclaredTool::of));
            if tools.len() > MOST_TOOLS {
                return Err(self.wrong(format!("has more than {MOST_TOOLS} tools")));
            }
            cursor = page.next_cursor;
            if cursor.is_none() {
                return Ok(tools);
            }
        }
        Err(self.wrong("lists its tools without end"))
    }

    /// Returns the tool, if the server declares it as it did when its contract was written.
    async fn declared(&self, tool: &McpTool) -> Result<DeclaredTool, McpFailure> {
        let mut known = self.tools.lock().await;
        // Not every server says that its tools have changed.
        let is_old = known.as_ref().is_none_or(|(at, _)| at.elapsed() >= MOST_AGE);
        if self.listener.has_changed.swap(false, Ordering::Relaxed) || is_old {
            // The declarations before count no more, also if the list fails or is cancelled.
            *known = None;
            let listed = self.list().await.map_err(|error| match error {
                McpClientError::Lost { .. } => McpFailure::Transient(error.to_string()),
                error => McpFailure::Permanent(error.to_string()),
            })?;
            let mut tools = HashMap::new();
            for declared in listed {
                if let Some(twice) = tools.insert(declared.name.clone(), declared) {
                    let reason = format!("declares the tool `{}` twice", shown(&twice.name));
                    return Err(McpFailure::Permanent(self.wrong(reason).to_string()));
                }
            }
            *known = Some((Instant::now(), tools));
        }
        let McpTool { server, tool: name, schema, .. } = tool;
        match known.as_ref().and_then(|(_, tools)| tools.get(name)) {
            Some(declared) if declared.digest == *schema => Ok(declared.clone()),
            Some(_) => Err(McpFailure::Permanent(format!(
                "the server `{server}` declares its tool `{name}` otherwise than when its contract was signed: review it, and \
                 import it again with `graph mcp import {server} {name}`"
            ))),
            None => Err(McpFailure::Permanent(format!("the server `{server}` has no tool `{name}` any more"))),
        }
    }

    async fn call(
        &self,
        call: &Call,
        tool: McpTool,
        params: Map<String, Value>,
        mut reply: oneshot::Sender<Result<Value, McpFailure>>,
    ) {
        let answer = tokio::select! {
            answer = self.answer(call, &tool, params) => answer,
            // The dropped request sends the cancellation.
            () = reply.closed() => return,
        };
        drop(reply.send(answer));
    }

    async fn answer(&self, call: &Call, tool: &McpTool, params: Map<String, Value>) -> Result<Value, McpFailure> {
        let declared = self.declared(tool).await?;
        if self.peer.is_transport_closed() {
            return Err(McpFailure::Unsent(format!("the server `{}` has ended", self.server)));
        }
        let request = CallToolRequestParams::new(tool.tool.clone()).with_arguments(params);
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(request));
        let mut unreadable = self.unreadable.subscribe();
        if !tool.idempotent {
            call.happens_once();
        }
        let lost = |error: ServiceError| self.no_answer(&error);
        let sent = self.peer.send_cancellable_request(request, PeerRequestOptions::no_options()).await.map_err(lost)?;
        let id = sent.id.clone();
        let cancelling = CancelOnServer { peer: self.peer.clone(), id: Some(id.clone()) };
        let answer = tokio::select! {
            biased;
            answer = sent.await_response() => answer,
            found = wrong_answer(&mut unreadable, &id) => {
                return Err(McpFailure::Permanent(self.wrong(shown(&found.reason)).to_string()));
            }
        };
        cancelling.done();
        match answer {
            Ok(ServerResult::CallToolResult(result)) => self.result(&declared, result),
            Ok(ServerResult::InputRequiredResult(_)) => Err(McpFailure::Permanent(format!(
                "the server `{}` asks a person, and a graph asks people by an interrupt of its own",
                self.server
            ))),
            Ok(_) => {
                Err(McpFailure::Permanent(format!("the server `{}` answered with no result of a tool", self.server)))
            }
            Err(ServiceError::McpError(error)) => Err(McpFailure::Permanent(format!(
                "the server `{}` refuses the call: {}",
                self.server,
                shown(&error.message)
            ))),
            Err(error) => Err(self.no_answer(&error)),
        }
    }

    /// Returns why a request has no answer. An unreadable answer is a permanent failure.
    fn no_answer(&self, error: &ServiceError) -> McpFailure {
        let http = match error {
            ServiceError::TransportSend(error) => http_error(&*error.error),
            _ => None,
        };
        let Some(error) = http else {
            let reason = shown(&error.to_string());
            return McpFailure::Transient(format!("the server `{}` did not answer: {reason}", self.server));
        };
        let reason = shown(&error.to_string());
        match error {
            StreamableHttpError::UnexpectedServerResponse(_)
            | StreamableHttpError::ResponseBodyTooLarge { .. }
            | StreamableHttpError::UnexpectedContentType(_)
            | StreamableHttpError::Deserialize(_) => {
                McpFailure::Permanent(self.wrong(format!("sent an answer that cannot be read: {reason}")).to_string())
            }
            StreamableHttpError::AuthRequired(_) | StreamableHttpError::InsufficientScope(_) => {
                McpFailure::Permanent(self.wrong(format!("refuses the token of the program: {reason}")).to_string())
            }
            _ => McpFailure::Transient(format!("the server `{}` did not answer: {reason}", self.server)),
        }
    }

    /// Returns the value in a result: the structured one if the tool declares its schema, and else the text.
    fn result(&self, declared: &DeclaredTool, result: CallToolResult) -> Result<Value, McpFailure> {
        let texts = result.content.iter().filter_map(|content| content.as_text());
        let text = texts.map(|text| text.text.as_str()).collect::<Vec<_>>().join("\n");
        if result.is_error == Some(true) {
            return Err(McpFailure::Permanent(format!("the tool failed: {}", shown(&text))));
        }
        match (&declared.output, result.structured_content) {
            (Some(_), Some(value)) => Ok(value),
            (Some(_), None) => Err(McpFailure::Permanent(format!(
                "the server `{}` answered without the structured result that it declares",
                self.server
            ))),
            (None, _) => Ok(json!({ "text": text })),
        }
    }
}

/// Finds the error of the HTTP client among the causes of an error.
fn http_error<'e>(error: &'e (dyn std::error::Error + 'static)) -> Option<&'e StreamableHttpError<reqwest::Error>> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        cause = error.source();
    }
    None
}

/// Tells the server that a request is cancelled, if its answer is not waited for any more.
struct CancelOnServer {
    peer: Peer<RoleClient>,
    id: Option<RequestId>,
}

impl CancelOnServer {
    fn done(mut self) {
        self.id = None;
    }
}

impl Drop for CancelOnServer {
    fn drop(&mut self) {
        let Some(id) = self.id.take() else { return };
        let peer = self.peer.clone();
        tokio::spawn(async move {
            let cancelled = rmcp::model::CancelledNotificationParam::new(Some(id), None);
            drop(peer.notify_cancelled(cancelled).await);
        });
    }
}

//! The server over HTTP.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use graph_mcp::{BoundServer, GraphServer, HttpGuard, McpEndpoint, McpServers, TokenError};
use graph_runtime::tools::McpCalls as _;
use graph_runtime::{Call, ItemId, ToolConfig};
use rmcp::model::{CallToolRequest, CancelledNotificationParam, ClientRequest};
use rmcp::service::{ClientLifecycleMode, PeerRequestOptions, serve_client_with_lifecycle};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use crate::tree::{Client, Session, Tree, call, lifecycles, request, soon};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// A server that listens until it is dropped.
pub(crate) struct Listening {
    pub(crate) url: String,
    stop: Option<oneshot::Sender<()>>,
    pub(crate) serving: Option<tokio::task::JoinHandle<()>>,
}

impl Listening {
    pub(crate) async fn of(server: &GraphServer, guard: HttpGuard) -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let bound = BoundServer::bind(server.clone(), address, guard).await.unwrap();
        let url = bound.url();
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = tokio::spawn(bound.serve(async { drop(stopped.await) }));
        Self { url, stop: Some(stop), serving: Some(serving) }
    }

    fn host(&self) -> &str {
        self.url.trim_start_matches("http://").trim_end_matches("/mcp")
    }

    async fn client(&self, client: Client, lifecycle: ClientLifecycleMode) -> Session {
        install_provider();
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let config = StreamableHttpClientTransportConfig::with_uri(self.url.clone()).auth_header(TOKEN);
        let transport = StreamableHttpClientTransport::with_client(http, config);
        serve_client_with_lifecycle(client, transport, lifecycle).await.unwrap()
    }

    /// Sends a request as bytes, and returns the status line and the rest of the answer.
    async fn raw(&self, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.host()).await.unwrap();
        stream.write_all(request).await.unwrap();
        let mut answer = Vec::new();
        let reading = stream.read_to_end(&mut answer);
        drop(tokio::time::timeout(Duration::from_secs(5), reading).await);
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Sends a list of tools with headers, and returns the answer.
    async fn list(&self, headers: &[(&str, &str)]) -> String {
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": { "name": "raw", "version": "1" },
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let body =
            json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": { "_meta": meta } }).to_string();
        let mut text = format!(
            "POST /mcp HTTP/1.1\r\ncontent-type: application/json\r\naccept: application/json, text/event-stream\r\n\
             mcp-protocol-version: 2026-07-28\r\nmcp-method: tools/list\r\nconnection: close\r\ncontent-length: {}\r\n",
            body.len()
        );
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        self.raw(format!("{text}\r\n{body}").as_bytes()).await
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        drop(self.stop.take());
    }
}

fn install_provider() {
    // Another test may have done so.
    drop(rustls::crypto::ring::default_provider().install_default());
}

fn guard() -> HttpGuard {
    HttpGuard::new(TOKEN).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_lists_and_calls_over_http() {
    let tree = Tree::new();
    let listening = Listening::of(&tree.server(), guard()).await;
    for lifecycle in lifecycles() {
        let client = Client::with_person([json!({ "decision": "approve" })]);
        let session = listening.client(client.clone(), lifecycle).await;
        assert_eq!(session.list_all_tools().await.unwrap().len(), 7);
        let (result, _) = call(&session, "shop_echo", json!({ "word": "hello" })).await.unwrap();
        assert_eq!(result["output"], json!({ "word": "hello", "times": 1, "note": "hello" }));
        // Notes about progress may come behind the result.
        for _ in 0..500 {
            if client.progress.lock().unwrap().len() == 2 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(client.progress.lock().unwrap().len(), 2);
        let (result, _) = call(&session, "shop_approve", json!({ "cents": 5 })).await.unwrap();
        assert_eq!(result["output"], json!({ "decision": "approve" }), "{result}");
        session.cancel().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_call_over_http_cancels_the_run() {
    let tree = Tree::new();
    let listening = Listening::of(&tree.server(), guard()).await;
    for lifecycle in lifecycles() {
        let session = listening.client(Client::default(), lifecycle).await;
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(request("shop_slow", json!({}))));
        let called = session.send_cancellable_request(request, PeerRequestOptions::no_options()).await.unwrap();
        soon(&tree.began).await;
        let cancelled = CancelledNotificationParam::new(Some(called.id.clone()), None);
        session.notify_cancelled(cancelled).await.unwrap();
        drop(called);
        soon(&tree.stopped).await;
        session.cancel().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_requests_with_the_token_and_the_right_host_get_an_answer() {
    let tree = Tree::new();
    let server = tree.server();
    let listening = Listening::of(&server, guard().host("tools.example").origin("https://app.example")).await;
    let (host, token) = (listening.host().to_owned(), format!("Bearer {TOKEN}"));
    let port = host.rsplit(':').next().unwrap();
    let localhost = format!("LOCALHOST:{port}");
    let other = TOKEN.replace('f', "e");
    for (headers, status) in [
        (vec![("host", &*host), ("authorization", &*token)], "200"),
        (vec![("host", &localhost), ("authorization", &token.replace("Bearer", "bearer"))], "200"),
        (vec![("host", "tools.example"), ("authorization", &token)], "200"),
        (vec![("host", &host), ("authorization", &token), ("origin", "https://app.example")], "200"),
        (vec![("host", &host)], "401"),
        (vec![("host", &host), ("authorization", TOKEN)], "401"),
        (vec![("host", &host), ("authorization", "Bearer ")], "401"),
        (vec![("host", &host), ("authorization", &format!("Bearer {other}"))], "401"),
        (vec![("host", &host), ("authorization", &format!("{token}0"))], "401"),
        (vec![("host", &host), ("authorization", &token[..token.len() - 1])], "401"),
        (vec![("host", &host), ("authorization", &format!("Basic {TOKEN}"))], "401"),
        (vec![("host", &host), ("authorization", &token), ("authorization", &token)], "401"),
        (vec![("host", "evil.example"), ("authorization", &token)], "403"),
        (vec![("host", &format!("evil.example:{port}")), ("authorization", &token)], "403"),
        (vec![("host", "127.0.0.1"), ("authorization", &token)], "403"),
        (vec![("host", &host), ("host", &host), ("authorization", &token)], "403"),
        (vec![("host", &host), ("authorization", &token), ("origin", "https://evil.example")], "403"),
        (vec![("host", &host), ("authorization", &token), ("origin", "null")], "403"),
        (vec![("host", &host), ("authorization", &token), ("origin", &format!("http://{host}"))], "403"),
    ] {
        let answer = listening.list(&headers).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{headers:?}: {answer}");
        assert_eq!(answer.contains("www-authenticate: Bearer"), status == "401", "{answer}");
        assert_eq!(answer.contains("shop_echo"), status == "200", "{answer}");
        assert!(!answer.contains(TOKEN), "{answer}");
    }
    assert_eq!(server.dispatched(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_bodies_and_other_paths_are_refused() {
    let tree = Tree::new();
    let server = tree.server();
    let listening = Listening::of(&server, guard()).await;
    let head = format!("host: {}\r\nauthorization: Bearer {TOKEN}\r\n", listening.host());
    let accepts =
        "content-type: application/json\r\naccept: application/json, text/event-stream\r\nconnection: close\r\n";
    let body = "x".repeat(5 * 1024 * 1024);
    let large = format!("POST /mcp HTTP/1.1\r\n{head}{accepts}content-length: {}\r\n\r\n{body}", body.len());
    // The connection may be reset before all is sent.
    let mut stream = TcpStream::connect(listening.host()).await.unwrap();
    drop(stream.write_all(large.as_bytes()).await);
    let mut answer = vec![0; 64];
    let count = stream.read(&mut answer).await.unwrap_or_default();
    let answer = String::from_utf8_lossy(&answer[..count]).into_owned();
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 413 "), "{answer}");
    let other = listening.raw(format!("GET / HTTP/1.1\r\n{head}\r\n").as_bytes()).await;
    assert!(other.starts_with("HTTP/1.1 404 "), "{other}");
    let deleted = listening.raw(format!("PUT /mcp HTTP/1.1\r\n{head}connection: close\r\n\r\n").as_bytes()).await;
    assert!(deleted.starts_with("HTTP/1.1 405 "), "{deleted}");
    assert!(
        listening
            .list(&[("host", listening.host()), ("authorization", &format!("Bearer {TOKEN}"))])
            .await
            .contains("shop_echo")
    );
    assert_eq!(server.dispatched(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stops_ends_its_calls() {
    let tree = Tree::new();
    let server = tree.server();
    let mut listening = Listening::of(&server, guard()).await;
    let session = Arc::new(listening.client(Client::default(), lifecycles()[1].clone()).await);
    let calling = tokio::spawn({
        let session = Arc::clone(&session);
        async move { session.call_tool(request("shop_slow", json!({}))).await.is_err() }
    });
    soon(&tree.began).await;
    drop(listening.stop.take());
    soon(&tree.stopped).await;
    listening.serving.take().unwrap().await.unwrap();
    server.shut_down(Duration::from_secs(5)).await;
    calling.abort();
}

#[test]
fn a_token_has_enough_plain_characters() {
    for wrong in ["", "short", &"x".repeat(31), &"x".repeat(4097), &"ä".repeat(32), &format!("{TOKEN} {TOKEN}")] {
        assert_eq!(HttpGuard::new(wrong).err(), Some(TokenError), "{wrong}");
    }
    let guard = HttpGuard::new(&format!("{TOKEN}\n")).unwrap();
    assert!(!format!("{guard:?}").contains(TOKEN));
}

/// The client of graphs reaches a server over HTTP, with its token.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn graphs_call_the_tools_of_a_server_over_http() {
    let tree = Tree::new();
    let listening = Listening::of(&tree.server(), guard()).await;
    let servers = |token: Option<&str>| {
        let endpoint = McpEndpoint::Url { url: listening.url.clone(), token: token.map(str::to_owned) };
        McpServers::new().server_within("shop", endpoint, Duration::from_secs(20))
    };
    let good = servers(Some(TOKEN));
    let tools = good.tools("shop").await.unwrap();
    let echo = tools.iter().find(|tool| tool.name == "shop_echo").unwrap();
    let spec = json!({ "server": "shop", "tool": echo.name, "schema": echo.digest.to_hex() });
    let spec = serde_json::from_value(spec).unwrap();
    let call = Call::alone(ItemId::new("mcp/shop/echo").unwrap(), Vec::new(), Default::default(), ToolConfig::new());
    let result = good.call(&call, &spec, json!({ "word": "hello" })).await.unwrap();
    assert_eq!(result["output"], json!({ "word": "hello", "times": 1, "note": "hello" }));
    for token in [None, Some("another token, which nobody knows")] {
        let error = servers(token).call(&call, &spec, json!({ "word": "hello" })).await.unwrap_err().to_string();
        assert!(!error.contains("nobody knows"), "{error}");
    }
    // A redirect to the server is not followed.
    let redirecting = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", redirecting.local_addr().unwrap());
    let location = listening.url.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = redirecting.accept().await {
            let mut request = [0; 4096];
            drop(stream.read(&mut request).await);
            let answer =
                format!("HTTP/1.1 307 Temporary Redirect\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n");
            drop(stream.write_all(answer.as_bytes()).await);
        }
    });
    let endpoint = McpEndpoint::Url { url, token: Some(TOKEN.to_owned()) };
    let redirected = McpServers::new().server_within("shop", endpoint, Duration::from_secs(5));
    assert!(redirected.tools("shop").await.is_err());
}

#[tokio::test]
async fn a_client_that_leaves_its_sessions_open_gets_no_more_of_them() {
    let tree = Tree::new();
    let listening = Listening::of(&tree.server(), HttpGuard::new(TOKEN).unwrap()).await;
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "raw", "version": "1" },
    } })
    .to_string();
    let post = |more: &str| {
        format!(
            "POST /mcp HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {TOKEN}\r\ncontent-type: application/json\r\naccept: application/json, \
             text/event-stream\r\nconnection: close\r\ncontent-length: {}\r\n{more}\r\n{body}",
            listening.host(),
            body.len()
        )
    };
    let begun = async || {
        // The answer is a stream that stays open, so only its head is read.
        let mut stream = TcpStream::connect(listening.host()).await.unwrap();
        stream.write_all(post("").as_bytes()).await.unwrap();
        let mut head = [0; 2048];
        let count = stream.read(&mut head).await.unwrap();
        String::from_utf8_lossy(&head[..count]).into_owned()
    };
    let first = begun().await;
    let session = first.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).unwrap().trim().to_owned();
    for _ in 1..1_000 {
        let answer = begun().await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    let answer = begun().await;
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("too many sessions"), "{answer}");
    let named = listening.raw(post("mcp-protocol-version: 2025-06-18\r\n").as_bytes()).await;
    assert!(named.starts_with("HTTP/1.1 503"), "{named}");
    assert!(
        listening
            .list(&[("host", listening.host()), ("authorization", &format!("Bearer {TOKEN}"))])
            .await
            .starts_with("HTTP/1.1 200")
    );
    let end = format!(
        "DELETE /mcp HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {TOKEN}\r\nmcp-session-id: {session}\r\nconnection: close\r\n\r\n",
        listening.host()
    );
    let ended = listening.raw(end.as_bytes()).await;
    assert!(ended.starts_with("HTTP/1.1 20"), "{ended}");
    let answer = begun().await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

//! The server over HTTP: who gets an answer.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use subtle::ConstantTimeEq as _;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::question::PATIENCE;
use crate::server::{GraphServer, MOST_BYTES};

/// How many connections are open at a time. Further ones are closed at once.
const MOST_CONNECTIONS: usize = 256;

/// How many sessions there are at a time. A request that would begin another one is refused.
const MOST_SESSIONS: usize = 1_000;

/// The most bytes of the head of a request.
const MOST_HEAD: usize = 16 * 1024;

/// The header that names the session of a request.
const SESSION: &str = "mcp-session-id";

/// The header that names the version of the protocol.
const VERSION: &str = "mcp-protocol-version";

/// The first version of the protocol that has no sessions.
const WITHOUT_SESSIONS: &str = "2026-07-28";

/// How long the head of a request may take.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a connection that has not shown the token is open.
const STRANGER_TIMEOUT: Duration = Duration::from_secs(20);

/// The fewest and most characters of a token.
const TOKEN_LENGTHS: std::ops::RangeInclusive<usize> = 32..=4096;

/// Why a token cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a token has from 32 to 4096 letters, digits and `-._~+/=`, as `openssl rand -hex 32` prints it")]
pub struct TokenError;

/// The conditions for requests: a token, the names of the server, and the pages that may send requests.
pub struct HttpGuard {
    token: Vec<u8>,
    hosts: Vec<String>,
    origins: Vec<String>,
}

impl fmt::Debug for HttpGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpGuard").field("hosts", &self.hosts).field("origins", &self.origins).finish_non_exhaustive()
    }
}

impl HttpGuard {
    /// Answers requests that have this bearer token. White space around it does not count.
    ///
    /// # Errors
    ///
    /// If it is too short, too long, or has other characters than a bearer token.
    pub fn new(token: &str) -> Result<Self, TokenError> {
        let token = token.trim();
        let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
        if !TOKEN_LENGTHS.contains(&token.len()) || !token.bytes().all(is_fit) {
            return Err(TokenError);
        }
        Ok(Self { token: token.as_bytes().to_vec(), hosts: Vec::new(), origins: Vec::new() })
    }

    /// Also answers requests to a host, as the `Host` of a proxy in front of the server: a name, with `:` and a port if it has one.
    #[must_use]
    pub fn host(mut self, host: impl Into<String>) -> Self {
        self.hosts.push(host.into());
        self
    }

    /// Also answers requests of pages from an origin, as `https://app.example`. Without this, no page of a browser gets an answer.
    #[must_use]
    pub fn origin(mut self, origin: impl Into<String>) -> Self {
        self.origins.push(origin.into());
        self
    }

    /// Refuses a request that is not for this server, that a page sent, or that lacks the token.
    fn admit<B>(&self, request: &Request<B>, address: SocketAddr) -> Result<(), Refusal> {
        let port = address.port();
        let own =
            [format!("127.0.0.1:{port}"), format!("localhost:{port}"), format!("[::1]:{port}"), address.to_string()];
        let is_own = |host: &str| own.iter().chain(&self.hosts).any(|name| host.eq_ignore_ascii_case(name));
        let mut hosts = request.headers().get_all(header::HOST).iter();
        // A page of another site whose name leads here would be of the same origin to a browser.
        let is_named = match (hosts.next(), hosts.next()) {
            (Some(host), None) => host.to_str().is_ok_and(is_own),
            _ => false,
        };
        if !is_named || request.uri().authority().is_some_and(|authority| !is_own(authority.as_str())) {
            return Err(Refusal(StatusCode::FORBIDDEN, "the request names another host"));
        }
        let mut origins = request.headers().get_all(header::ORIGIN).iter();
        let is_known = |origin: &HeaderValue| self.origins.iter().any(|known| origin.as_bytes() == known.as_bytes());
        if !origins.all(is_known) {
            return Err(Refusal(StatusCode::FORBIDDEN, "the request comes from a page that is not allowed"));
        }
        let mut tokens = request.headers().get_all(header::AUTHORIZATION).iter();
        let shown = match (tokens.next(), tokens.next()) {
            (Some(token), None) => token.as_bytes().split_first_chunk::<7>(),
            _ => None,
        };
        let shown = shown.filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"bearer ")).map(|(_, token)| token);
        match shown.is_some_and(|shown| bool::from(shown.ct_eq(&self.token))) {
            true => Ok(()),
            false => Err(Refusal(StatusCode::UNAUTHORIZED, "the request needs the token of the server")),
        }
    }
}

/// Why a request is refused.
struct Refusal(StatusCode, &'static str);

type HttpService = StreamableHttpService<GraphServer, LocalSessionManager>;
type HttpBody = BoxBody<Bytes, Infallible>;

/// A server that listens on an address. Its path is `/mcp`.
pub struct BoundServer {
    listener: TcpListener,
    address: SocketAddr,
    guard: Arc<HttpGuard>,
    service: HttpService,
    sessions: Arc<LocalSessionManager>,
}

impl fmt::Debug for BoundServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoundServer").field("address", &self.address).finish_non_exhaustive()
    }
}

impl BoundServer {
    /// Listens on an address, or on a free port of it if the port is 0.
    ///
    /// # Errors
    ///
    /// If the address cannot be used.
    pub async fn bind(server: GraphServer, address: SocketAddr, guard: HttpGuard) -> std::io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        // The guard has looked at the host and the origin before.
        let config = StreamableHttpServerConfig::default()
            .disable_allowed_hosts()
            .disable_allowed_origins()
            .with_max_request_body_bytes(MOST_BYTES);
        let mut sessions = LocalSessionManager::default();
        // A person may think about a question.
        sessions.session_config.keep_alive = Some(PATIENCE);
        let sessions = Arc::new(sessions);
        let service = StreamableHttpService::new(move || Ok(server.clone()), Arc::clone(&sessions), config);
        Ok(Self { listener, address, guard: Arc::new(guard), service, sessions })
    }

    /// Returns the address of the server, for clients.
    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// Answers requests until `stop` is over. Requests that are in progress then are cancelled.
    pub async fn serve(self, stop: impl Future<Output = ()>) {
        let mut stop = std::pin::pin!(stop);
        let mut connections = tokio::task::JoinSet::new();
        let open = Arc::new(Semaphore::new(MOST_CONNECTIONS));
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                () = &mut stop => break,
            };
            while connections.try_join_next().is_some() {}
            let Ok((stream, _)) = accepted else {
                // As when the process has too many files open.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let Ok(place) = Arc::clone(&open).try_acquire_owned() else { continue };
            let (guard, service, address) = (Arc::clone(&self.guard), self.service.clone(), self.address);
            let sessions = Arc::clone(&self.sessions);
            connections.spawn(async move {
                let _place = place;
                let is_known = AtomicBool::new(false);
                let answer = service_fn(|request| answered(&guard, (&service, &sessions), address, &is_known, request));
                let connection = hyper::server::conn::http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(HEAD_TIMEOUT)
                    .max_buf_size(MOST_HEAD)
                    .serve_connection(TokioIo::new(stream), answer);
                let mut connection = std::pin::pin!(connection);
                // A client that ends its connection, or speaks no HTTP, is no concern of others.
                let ended = tokio::time::timeout(STRANGER_TIMEOUT, connection.as_mut()).await;
                if ended.is_err() && is_known.load(Ordering::Relaxed) {
                    drop(connection.await);
                }
            });
        }
        self.service.config.cancellation_token.cancel();
        connections.shutdown().await;
    }
}

/// Answers a request, or refuses it.
async fn answered(
    guard: &HttpGuard,
    (service, sessions): (&HttpService, &LocalSessionManager),
    address: SocketAddr,
    is_known: &AtomicBool,
    request: Request<Incoming>,
) -> Result<Response<HttpBody>, Infallible> {
    let refusal = match guard.admit(&request, address) {
        Ok(()) if request.uri().path() == "/mcp" => {
            is_known.store(true, Ordering::Relaxed);
            // A session ends when its client says so, or when nothing was said in it for long.
            // Clients of newer versions name the version in each request, and have no sessions.
            let version = request.headers().get(VERSION).map(HeaderValue::as_bytes);
            let has_sessions = version.is_none_or(|version| version < WITHOUT_SESSIONS.as_bytes());
            let begins = request.method() == Method::POST && has_sessions && !request.headers().contains_key(SESSION);
            if begins && sessions.sessions.read().await.len() >= MOST_SESSIONS {
                return Ok(refused(Refusal(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "there are too many sessions: end those that are not needed with DELETE",
                )));
            }
            return Ok(service.handle(request).await);
        }
        Ok(()) => Refusal(StatusCode::NOT_FOUND, "the server answers at /mcp"),
        Err(refusal) => refusal,
    };
    Ok(refused(refusal))
}

/// Returns the response to a request that is refused.
fn refused(refusal: Refusal) -> Response<HttpBody> {
    let mut response = Response::new(Full::new(Bytes::from(refusal.1)).boxed());
    *response.status_mut() = refusal.0;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    // The body of a refused request is not read.
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    if refusal.0 == StatusCode::UNAUTHORIZED {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"state-graphs\""));
    }
    response
}

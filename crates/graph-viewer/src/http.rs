//! The server: who gets an answer, and with which headers.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use graph_model::digest::hex;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::json;
use subtle::ConstantTimeEq as _;
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

use crate::ViewerOptions;
use crate::problem::ViewProblem;
use crate::query::Query;
use crate::router::PageAnswer;
use crate::state::ViewerState;

/// How many connections are served at a time. Where there are more, one that has not shown the token is closed.
const MOST_CONNECTIONS: usize = 64;

/// The most bytes of the head of a request.
const MOST_HEAD: usize = 16 * 1024;

/// The most bytes of an address behind the token.
const MOST_ADDRESS: usize = 4 * 1024;

/// The most bytes of an answer of a person.
const MOST_BODY: usize = 64 * 1024;

/// How long the head of a request may take, so that a connection that says nothing ends.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the body of a request may take.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// The policy of the page: it loads its own files, and nothing else. No inline script or style is executed.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                      worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The files of the page.
const ASSETS: &[(&str, &str, &str)] = &[
    ("", "text/html", include_str!("../page/index.html")),
    ("view.css", "text/css", include_str!("../page/view.css")),
    ("main.js", "text/javascript", include_str!("../page/main.js")),
    ("api.js", "text/javascript", include_str!("../page/api.js")),
    ("dom.js", "text/javascript", include_str!("../page/dom.js")),
    ("runs.js", "text/javascript", include_str!("../page/runs.js")),
    ("run.js", "text/javascript", include_str!("../page/run.js")),
    ("rows.js", "text/javascript", include_str!("../page/rows.js")),
    ("scroll.js", "text/javascript", include_str!("../page/scroll.js")),
    ("value.js", "text/javascript", include_str!("../page/value.js")),
    ("diagram.js", "text/javascript", include_str!("../page/diagram.js")),
    ("proof.js", "text/javascript", include_str!("../page/proof.js")),
    ("questions.js", "text/javascript", include_str!("../page/questions.js")),
    ("compare.js", "text/javascript", include_str!("../page/compare.js")),
    ("worker.js", "text/javascript", include_str!("../page/worker.js")),
    ("verify.js", "text/javascript", include_str!("../page/verify.js")),
];

/// A viewer that listens on a port of the loopback interface.
///
/// ```no_run
/// # async fn example(options: graph_viewer::ViewerOptions) -> std::io::Result<()> {
/// use graph_viewer::BoundViewer;
///
/// let viewer = BoundViewer::bind(options, 0).await?;
/// println!("{}", viewer.url());
/// viewer.serve(std::future::pending()).await;
/// # Ok(())
/// # }
/// ```
pub struct BoundViewer {
    listener: TcpListener,
    guard: Arc<Guard>,
    state: Arc<ViewerState>,
}

/// The requirements that a request must meet.
struct Guard {
    token: String,
    port: u16,
}

impl BoundViewer {
    /// Listens on `port` of 127.0.0.1, or on a free port if it is 0, and makes a token of 256 random bits.
    ///
    /// # Errors
    ///
    /// If the port is in use, or the system gives no random bytes.
    pub async fn bind(options: ViewerOptions, port: u16) -> std::io::Result<Self> {
        let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await?;
        let mut token = [0; 32];
        getrandom::fill(&mut token).map_err(|error| std::io::Error::other(error.to_string()))?;
        let guard = Guard { token: hex(&token), port: listener.local_addr()?.port() };
        Ok(Self { listener, guard: Arc::new(guard), state: Arc::new(ViewerState::new(options)) })
    }

    /// Returns the address of the page. Its token is the right to see all runs of the place: keep it to yourself.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/{}/", self.guard.port, self.guard.token)
    }

    /// Answers requests until `stop` is over. Requests that are in progress then are given up.
    pub async fn serve(self, stop: impl Future<Output = ()>) {
        let mut stop = std::pin::pin!(stop);
        let mut served = tokio::task::JoinSet::new();
        // The connections, the oldest first, and whether each has shown the token.
        let mut open: VecDeque<(AbortHandle, Arc<AtomicBool>)> = VecDeque::new();
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                () = &mut stop => return,
            };
            while served.try_join_next().is_some() {}
            open.retain(|(connection, _)| !connection.is_finished());
            while open.len() >= MOST_CONNECTIONS {
                match open.iter().position(|(_, is_known)| !is_known.load(Ordering::Relaxed)) {
                    Some(at) => drop(open.remove(at).map(|(connection, _)| connection.abort())),
                    // All of them may see the runs: one of them ends.
                    None => tokio::select! {
                        _ = served.join_next() => {}
                        () = &mut stop => return,
                    },
                }
                open.retain(|(connection, _)| !connection.is_finished());
            }
            let Ok((stream, _)) = accepted else {
                // As when the process has too many files open.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let (guard, state) = (Arc::clone(&self.guard), Arc::clone(&self.state));
            let is_known = Arc::new(AtomicBool::new(false));
            let shown = Arc::clone(&is_known);
            let connection = served.spawn(async move {
                let service = service_fn(|request| answered(&guard, &state, &shown, request));
                let connection = hyper::server::conn::http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(HEAD_TIMEOUT)
                    .max_buf_size(MOST_HEAD)
                    .serve_connection(TokioIo::new(stream), service);
                // A client that ends its connection, or speaks no HTTP, is no concern of others.
                drop(connection.await);
            });
            open.push_back((connection, is_known));
        }
    }
}

/// Answers a request, with the headers of every answer.
async fn answered(
    guard: &Guard,
    state: &ViewerState,
    is_known: &AtomicBool,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let is_head = request.method() == Method::HEAD;
    let admitted = guard.admit(&request);
    let is_admitted = admitted.is_ok();
    is_known.fetch_or(is_admitted, Ordering::Relaxed);
    let answer = match admitted {
        Ok(path) => respond(guard, state, request, path).await,
        Err(problem) => Err(problem),
    };
    let (status, kind, body) = match answer {
        Ok(PageAnswer { kind, body }) => (StatusCode::OK, kind, body),
        Err(ViewProblem { status, text }) => {
            (status, "application/json", json!({"problem": text}).to_string().into_bytes())
        }
    };
    let length = body.len();
    let mut response = Response::new(Full::new(if is_head { Bytes::new() } else { body.into() }));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    let kind = if kind == "application/octet-stream" { kind.to_owned() } else { format!("{kind}; charset=utf-8") };
    headers.extend([(
        header::CONTENT_TYPE,
        HeaderValue::from_str(&kind).unwrap_or(HeaderValue::from_static("text/plain")),
    )]);
    headers.insert(header::CONTENT_LENGTH, length.into());
    if status == StatusCode::METHOD_NOT_ALLOWED {
        let methods = if state.answers.is_some() { "GET, HEAD, POST" } else { "GET, HEAD" };
        headers.insert(header::ALLOW, HeaderValue::from_static(methods));
    }
    if !is_admitted {
        // A client that is refused keeps no connection, and asks for nothing more on it.
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    for (name, value) in HEADERS {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    Ok(response)
}

/// The headers of every answer.
const HEADERS: &[(&str, &str)] = &[
    ("content-security-policy", POLICY),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cache-control", "no-store"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("permissions-policy", "camera=(), geolocation=(), microphone=()"),
];

/// Answers a request that was admitted. `path` is the part of the address behind the token.
async fn respond(
    guard: &Guard,
    state: &ViewerState,
    request: Request<Incoming>,
    path: String,
) -> Result<PageAnswer, ViewProblem> {
    let query = request.uri().query().unwrap_or_default();
    if path.len() + query.len() > MOST_ADDRESS {
        return Err(ViewProblem::new(StatusCode::URI_TOO_LONG, "the address is too long"));
    }
    let query = Query::read(query)?;
    let api = path.strip_prefix("api/");
    match (request.method().clone(), api) {
        (Method::GET | Method::HEAD, Some(path)) => {
            guard.is_of_page(request.headers())?;
            state.get(path, &query).await
        }
        (Method::GET | Method::HEAD, None) => match ASSETS.iter().find(|(name, ..)| *name == path) {
            Some((_, kind, text)) => Ok(PageAnswer { kind, body: text.as_bytes().to_vec() }),
            None => Err(ViewProblem::missing("there is nothing at this address")),
        },
        (Method::POST, Some(path)) if state.answers.is_some() => {
            guard.may_change(request.headers())?;
            let path = path.to_owned();
            let body = Limited::new(request.into_body(), MOST_BODY).collect();
            let body = tokio::time::timeout(BODY_TIMEOUT, body).await.map_err(|_| {
                ViewProblem::new(StatusCode::REQUEST_TIMEOUT, "the body of the request did not come in time")
            })?;
            let body = body.map_err(|error| {
                let is_long = error.is::<http_body_util::LengthLimitError>();
                let status = if is_long { StatusCode::PAYLOAD_TOO_LARGE } else { StatusCode::BAD_REQUEST };
                ViewProblem::new(status, format!("the body of the request cannot be read: {error}"))
            })?;
            state.post(&path, &body.to_bytes()).await
        }
        _ if state.answers.is_some() => {
            let text = "the viewer answers GET, and POST where a question is answered";
            Err(ViewProblem::new(StatusCode::METHOD_NOT_ALLOWED, text))
        }
        _ => Err(ViewProblem::new(StatusCode::METHOD_NOT_ALLOWED, "the viewer only reads: it answers GET")),
    }
}

impl Guard {
    /// Returns the path behind the token of a request that may be answered.
    fn admit<B>(&self, request: &Request<B>) -> Result<String, ViewProblem> {
        // A page of another site whose name leads here would be of the same origin to a browser.
        let hosts: Vec<&HeaderValue> = request.headers().get_all(header::HOST).iter().collect();
        let is_here = |host: &str| self.names().iter().any(|name| host.eq_ignore_ascii_case(name));
        let named = matches!(hosts.as_slice(), [host] if host.to_str().is_ok_and(is_here));
        if !named || request.uri().authority().is_some_and(|authority| !is_here(authority.as_str())) {
            let text = "the request names another host than 127.0.0.1 or localhost with the port of the viewer";
            return Err(ViewProblem::new(StatusCode::FORBIDDEN, text));
        }
        let path = request.uri().path().strip_prefix('/').unwrap_or_default();
        let (token, path) = path.split_once('/').unwrap_or((path, "-"));
        if !bool::from(token.as_bytes().ct_eq(self.token.as_bytes())) {
            let text = "the address has not the token that `graph view` printed";
            return Err(ViewProblem::new(StatusCode::FORBIDDEN, text));
        }
        Ok(path.to_owned())
    }

    /// The names under which a browser reaches the viewer.
    fn names(&self) -> [String; 2] {
        ["127.0.0.1", "localhost"].map(|name| format!("{name}:{}", self.port))
    }

    /// Refuses requests for data that a page of another site makes. Programs that are no browsers send neither header.
    fn is_of_page(&self, headers: &HeaderMap) -> Result<(), ViewProblem> {
        let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
        let is_ours = matches!(site, None | Some(b"same-origin" | b"none"));
        let origin = headers.get(header::ORIGIN);
        if is_ours && origin.is_none_or(|origin| self.is_origin(headers, origin)) {
            return Ok(());
        }
        Err(ViewProblem::new(StatusCode::FORBIDDEN, "the request comes from another page"))
    }

    /// Refuses requests that change something, unless the viewer's own page makes them.
    fn may_change(&self, headers: &HeaderMap) -> Result<(), ViewProblem> {
        self.is_of_page(headers)?;
        if headers.get(header::ORIGIN).is_none() {
            return Err(ViewProblem::new(StatusCode::FORBIDDEN, "the request does not say which page it comes from"));
        }
        let kind = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
        if kind != Some(b"application/json") {
            return Err(ViewProblem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "an answer is `application/json`"));
        }
        Ok(())
    }

    /// Whether an origin is the one that the page was loaded from: that of the request's own host.
    fn is_origin(&self, headers: &HeaderMap, origin: &HeaderValue) -> bool {
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        origin.to_str().is_ok_and(|origin| origin.eq_ignore_ascii_case(&format!("http://{host}")))
    }
}

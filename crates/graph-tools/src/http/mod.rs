//! `rye/http/request`: an HTTP request to a host that the program allows.
//!
//! The client is asynchronous, so a call ends at once when its caller no longer waits. The client's own resolver looks up the
//! addresses of a host once and returns only allowed ones: there is no second look-up that could answer differently. This
//! module follows redirects itself, each after the same check as the first request.
//!
//! Errors name the host, but never the path, query or headers, which may hold secrets.

mod address;
mod policy;

use std::error::Error;
use std::time::{Duration, SystemTime};

use base64ct::{Base64, Encoding as _};
use graph_model::number::{JsonError, read_json};
use graph_model::value::{FromValue, IndexMap, Map, Mismatch, Value, View};
use reqwest::header::{self, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Response, StatusCode, Url};
use serde_json::json;

pub use policy::{BadHost, HttpPolicy};
use policy::{NotPublic, has_userinfo, shown};

use super::{Encoding, bytes, config, seconds};
use graph_engine::Call;
use graph_engine::{ActionError, Category};

/// The maximum number of redirects that are followed.
const REDIRECTS: usize = 5;

/// The maximum size of a body that a call may request.
const MOST_BYTES: u64 = 64 << 20;

/// The longest pause that is accepted from `Retry-After`.
const LONGEST_PAUSE: Duration = Duration::from_secs(24 * 60 * 60);

/// The headers that belong to the connection; only the client may write them.
const OF_THE_CONNECTION: [HeaderName; 11] = [
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::EXPECT,
    header::HOST,
    HeaderName::from_static("keep-alive"),
    header::PROXY_AUTHORIZATION,
    HeaderName::from_static("proxy-connection"),
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// The headers that are kept in a redirect to another host. Any other header may be a secret between the graph and the first
/// host.
const FOR_EVERYBODY: [HeaderName; 3] = [header::ACCEPT, header::ACCEPT_LANGUAGE, header::CONTENT_TYPE];

/// The allowed methods. They open no tunnel (`CONNECT`), and do not ask for the request's own headers back (`TRACE`).
const METHODS: [Method; 7] =
    [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS];

#[derive(Debug)]
struct RequestParams {
    method: String,
    url: String,
    headers: Option<IndexMap<String, String>>,
    query: Option<Map<String, Value>>,
    body: Option<String>,
    json: Value,
    timeout: f64,
    max_bytes: i64,
    ok_status: Vec<i64>,
    encoding: String,
}

graph_engine::__object!(RequestParams {
    0 method: "method" = "\"GET\"",
    1 url: "url",
    2 headers: "headers",
    3 query: "query",
    4 body: "body",
    5 json: "json",
    6 timeout: "timeout" = "30",
    7 max_bytes: "max_bytes" = "1048576",
    8 ok_status: "ok_status" = "[]",
    9 encoding: "encoding" = "\"utf-8\"",
});

pub(super) async fn perform(call: &Call, params: Value) -> Result<Value, ActionError> {
    let params = RequestParams::from_value(params)?;
    let time = seconds(params.timeout, "timeout")?;
    let request = PreparedRequest::of(&params, call)?;
    let host = shown(&request.url);
    let answer = tokio::time::timeout(time, request.perform(config(call).http_policy())).await;
    answer.unwrap_or_else(|_| Err(ActionError::transient(format!("no answer from `{host}` within {time:?} (timeout)"))))
}

/// A request that is ready to be sent.
struct PreparedRequest {
    method: Method,
    url: Url,
    headers: HeaderMap,
    body: Option<Vec<u8>>,
    most_bytes: u64,
    ok: Vec<i64>,
    encoding: Encoding,
}

impl PreparedRequest {
    fn of(params: &RequestParams, call: &Call) -> Result<Self, ActionError> {
        let mut url = parse_url(&params.url)?;
        add_query(&mut url, params.query.as_ref())?;
        let mut headers = parse_headers(params.headers.as_ref())?;
        let body = match (&params.body, &params.json) {
            (Some(_), json) if !json.is_null() => {
                return Err(ActionError::permanent("a request has either `body` or `json`"));
            }
            (Some(body), _) => Some(body.clone().into_bytes()),
            (None, Value::Null) => None,
            (None, json) => {
                headers.entry(header::CONTENT_TYPE).or_insert(HeaderValue::from_static("application/json"));
                Some(serde_json::to_vec(json)?)
            }
        };
        let method = METHODS.into_iter().find(|method| method.as_str() == params.method).ok_or_else(|| {
            let methods: Vec<String> = METHODS.iter().map(|method| format!("`{method}`")).collect();
            Mismatch::new(format!("one of {}", methods.join(", ")), View::Text(&params.method)).inside("method")
        })?;
        if !method.is_safe() {
            let key = HeaderValue::from_str(&call.idempotency_key())?;
            headers.entry(HeaderName::from_static("idempotency-key")).or_insert(key);
        }
        Ok(Self {
            method,
            url,
            headers,
            body,
            most_bytes: bytes(params.max_bytes, "max_bytes", MOST_BYTES)?,
            ok: params.ok_status.clone(),
            encoding: Encoding::named(&params.encoding)?,
        })
    }

    /// Sends the request, and the requests for its redirects.
    async fn perform(mut self, policy: &HttpPolicy) -> Result<Value, ActionError> {
        for _ in 0..=REDIRECTS {
            let response = self.send(policy).await?;
            match self.redirected(&response)? {
                Some(url) => self.follow(response.status(), url),
                None => return self.answer(response).await,
            }
        }
        Err(ActionError::permanent(format!("`{}` redirects more than {REDIRECTS} times", shown(&self.url))))
    }

    async fn send(&self, policy: &HttpPolicy) -> Result<Response, ActionError> {
        let client = policy.client(&self.url).map_err(ActionError::permanent)?;
        let mut request = client.request(self.method.clone(), self.url.clone()).headers(self.headers.clone());
        if let Some(body) = &self.body {
            request = request.body(body.clone());
        }
        request.send().await.map_err(|error| failure(&error, &self.url))
    }

    /// Returns the target of a redirect; `None` if the response is not one, or if the graph accepts its status.
    fn redirected(&self, response: &Response) -> Result<Option<Url>, ActionError> {
        let status = response.status();
        if !matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) || self.is_ok(status) {
            return Ok(None);
        }
        let Some(location) = response.headers().get(header::LOCATION) else { return Ok(None) };
        let host = shown(&self.url);
        let url =
            location.to_str().ok().and_then(|location| self.url.join(location).ok()).filter(|url| !has_userinfo(url));
        let url = url.filter(|url| matches!(url.scheme(), "http" | "https"));
        let Some(url) = url else {
            return Err(ActionError::permanent(format!("`{host}` redirects to an invalid address")));
        };
        if self.url.scheme() == "https" && url.scheme() == "http" {
            return Err(ActionError::permanent(format!("`{host}` redirects to `{}` without TLS", shown(&url))));
        }
        Ok(Some(url))
    }

    /// Turns the request into the one for a redirect (RFC 9110, section 15.4).
    fn follow(&mut self, status: StatusCode, url: Url) {
        if url.origin() != self.url.origin() {
            let kept = |name: &HeaderName| FOR_EVERYBODY.contains(name);
            let dropped: Vec<HeaderName> = self.headers.keys().filter(|name| !kept(name)).cloned().collect();
            for name in dropped {
                self.headers.remove(name);
            }
        }
        let becomes_get = match status.as_u16() {
            303 => self.method != Method::HEAD,
            // All browsers do this, and servers rely on it.
            301 | 302 => self.method == Method::POST,
            _ => false,
        };
        if becomes_get {
            self.method = Method::GET;
            self.body = None;
            self.headers.remove(header::CONTENT_TYPE);
            self.headers.remove("idempotency-key");
        }
        self.url = url;
    }

    fn is_ok(&self, status: StatusCode) -> bool {
        status.is_success() || self.ok.contains(&i64::from(status.as_u16()))
    }

    async fn answer(&self, response: Response) -> Result<Value, ActionError> {
        let (status, headers) = (response.status(), response.headers().clone());
        let content = self.read(response).await;
        if self.is_ok(status) {
            return Ok(result(status, &headers, content?));
        }
        // The body of an error response is useful, but a failure to read it must not hide the error.
        let content = content.unwrap_or_default();
        let reason = status.canonical_reason().map(|reason| format!(" {reason}")).unwrap_or_default();
        let message = format!("`{}` answered {}{reason}", shown(&self.url), status.as_u16());
        let mut data = result(status, &headers, content);
        // An edge reads `error` in `result.status` of a failed node (R125).
        data["status_code"] = status.as_u16().into();
        let error = ActionError::new(category(status), message).with_data(data).with_status(status.as_u16());
        Err(match retry_after(&headers) {
            Some(pause) => error.with_retry_after(pause),
            None => error,
        })
    }

    async fn read(&self, mut response: Response) -> Result<Content, ActionError> {
        let too_large = || {
            ActionError::permanent(format!("`{}` answered with more than {} bytes", shown(&self.url), self.most_bytes))
        };
        if response.content_length().is_some_and(|length| length > self.most_bytes) && self.method != Method::HEAD {
            return Err(too_large());
        }
        let is_json = response.headers().get(header::CONTENT_TYPE).is_some_and(is_json);
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| failure(&error, &self.url))? {
            bytes.extend_from_slice(&chunk);
            if u64::try_from(bytes.len()).is_ok_and(|length| length > self.most_bytes) {
                return Err(too_large());
            }
        }
        let json = if is_json { json_of(&bytes)? } else { None };
        let body = match self.encoding {
            Encoding::Base64 => Base64::encode_string(&bytes),
            Encoding::Utf8 => String::from_utf8(bytes).map_err(|error| {
                let at = error.utf8_error().valid_up_to();
                ActionError::permanent(format!(
                    "`{}` answered with text that is not UTF-8 (byte {at}); ask for it with `encoding: base64`",
                    shown(&self.url)
                ))
            })?,
        };
        Ok(Content { body, json })
    }
}

/// Reads a body whose type is JSON; `None` if it is not JSON.
///
/// # Errors
///
/// If an object in it has a name twice, or an integer cannot be represented exactly.
fn json_of(bytes: &[u8]) -> Result<Option<Value>, ActionError> {
    let Ok(text) = std::str::from_utf8(bytes) else { return Ok(None) };
    match read_json(text) {
        Ok(value) => Ok(Some(value)),
        Err(JsonError::Syntax(_)) => Ok(None),
        Err(error) => Err(ActionError::permanent(format!("the answer cannot be read: {error}"))),
    }
}

/// The body of a response.
#[derive(Default)]
struct Content {
    body: String,
    json: Option<Value>,
}

fn result(status: StatusCode, headers: &HeaderMap, content: Content) -> Value {
    let mut shown: Map<String, Value> = Map::new();
    // Cookies are secrets, and the result of a tool is stored in the journal.
    for name in headers.keys().filter(|name| **name != header::SET_COOKIE) {
        let values: Vec<_> =
            headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
        shown.insert(name.as_str().to_owned(), values.join(", ").into());
    }
    let mut result = json!({"status": status.as_u16(), "headers": shown, "body": content.body});
    if let Some(json) = content.json {
        result["json"] = json;
    }
    result
}

fn is_json(content_type: &HeaderValue) -> bool {
    let text = content_type.to_str().unwrap_or_default();
    let kind = text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    kind == "application/json" || kind.ends_with("+json")
}

fn category(status: StatusCode) -> Category {
    match status.as_u16() {
        429 => Category::RateLimited,
        408 | 500..=599 => Category::Transient,
        _ => Category::Permanent,
    }
}

/// Reads `Retry-After`: seconds, or a date (RFC 9110, section 10.2.3).
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    let pause = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => httpdate::parse_http_date(text).ok()?.duration_since(SystemTime::now()).unwrap_or_default(),
    };
    Some(pause.min(LONGEST_PAUSE))
}

fn parse_url(text: &str) -> Result<Url, ActionError> {
    // The text is not quoted: it may hold a password, or a token in its query.
    let url = Url::parse(text).map_err(|error| ActionError::permanent(format!("`url` is not an address: {error}")))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(ActionError::permanent(format!("`url` begins with https:, not {}:", url.scheme())));
    }
    if has_userinfo(&url) {
        return Err(ActionError::permanent(
            "`url` has a user name or password in it; send them in the header `authorization`",
        ));
    }
    Ok(url)
}

fn add_query(url: &mut Url, query: Option<&Map<String, Value>>) -> Result<(), ActionError> {
    let Some(query) = query.filter(|query| !query.is_empty()) else { return Ok(()) };
    let mut pairs = url.query_pairs_mut();
    for (name, value) in query {
        let values = match value {
            Value::Array(values) => values.as_slice(),
            one => std::slice::from_ref(one),
        };
        for value in values {
            match value {
                Value::Null => {}
                Value::String(text) => {
                    pairs.append_pair(name, text);
                }
                Value::Bool(_) | Value::Number(_) => {
                    pairs.append_pair(name, &value.to_string());
                }
                Value::Array(_) | Value::Object(_) => {
                    let found = graph_model::value::AsView::view(value);
                    return Err(Mismatch::new("a text, number or boolean", found).inside(name).inside("query").into());
                }
            }
        }
    }
    Ok(())
}

/// Converts strings to headers; no string can start another header or another request.
fn parse_headers(given: Option<&IndexMap<String, String>>) -> Result<HeaderMap, ActionError> {
    let mut headers = HeaderMap::new();
    for (name, value) in given.into_iter().flatten() {
        let bad = |what: &str| ActionError::permanent(format!("`{}` {what}", name.escape_debug()));
        let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad("cannot be a header's name"))?;
        if OF_THE_CONNECTION.contains(&header) {
            return Err(bad("is a header that requests get by themselves"));
        }
        let mut value = HeaderValue::from_str(value).map_err(|_| bad("has a value that cannot be a header's"))?;
        value.set_sensitive(true);
        headers.insert(header, value);
    }
    Ok(headers)
}

/// Returns the reason that there was no response, without the URL.
fn failure(error: &reqwest::Error, url: &Url) -> ActionError {
    let host = shown(url);
    let mut why = String::new();
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(refused) = error.downcast_ref::<NotPublic>() {
            return ActionError::permanent(refused.to_string());
        }
        if is_bad_certificate(error) {
            return ActionError::permanent(format!("`{host}` is not who it should be: {error}"));
        }
        why = error.to_string();
        cause = error.source();
    }
    let message = format!("no answer from `{host}`{}", if why.is_empty() { why } else { format!(": {why}") });
    if error.is_builder() { ActionError::permanent(message) } else { ActionError::transient(message) }
}

fn is_bad_certificate(error: &(dyn Error + 'static)) -> bool {
    let inner = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
    let tls = error.downcast_ref::<rustls::Error>().or_else(|| inner?.downcast_ref());
    matches!(tls, Some(rustls::Error::InvalidCertificate(_)))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::super::ToolConfig;
    use super::super::testing::{assert_contract, call};
    use super::*;

    /// A server that sends one response per connection and records the requests.
    struct Server {
        port: u16,
        received: Arc<Mutex<Vec<String>>>,
    }

    impl Server {
        async fn start(answers: Vec<String>) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let port = listener.local_addr().unwrap().port();
            let received: Arc<Mutex<Vec<String>>> = Arc::default();
            let log = Arc::clone(&received);
            tokio::spawn(async move {
                for answer in answers {
                    let (mut stream, _) = listener.accept().await.unwrap();
                    let request = read_request(&mut stream).await;
                    log.lock().unwrap().push(request);
                    if answer.is_empty() {
                        // Holds the connection open without a response until the test is over.
                        std::future::pending::<()>().await;
                    }
                    stream.write_all(answer.as_bytes()).await.unwrap();
                    stream.shutdown().await.unwrap();
                }
            });
            Self { port, received }
        }

        fn url(&self, path: &str) -> String {
            format!("http://127.0.0.1:{}{path}", self.port)
        }

        fn policy(&self) -> HttpPolicy {
            HttpPolicy::new().allow_internal(&format!("http://127.0.0.1:{}", self.port)).unwrap()
        }

        async fn request(&self, params: Value) -> Result<Value, ActionError> {
            request(self.policy(), params).await
        }

        fn received(&self) -> Vec<String> {
            self.received.lock().unwrap().clone()
        }
    }

    async fn read_request(stream: &mut tokio::net::TcpStream) -> String {
        let mut bytes = Vec::new();
        loop {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap_or("0");
                if body.len() >= length.parse().unwrap() {
                    return text;
                }
            }
            let mut chunk = [0; 4096];
            let read = stream.read(&mut chunk).await.unwrap();
            if read == 0 {
                return text;
            }
            bytes.extend_from_slice(&chunk[..read]);
        }
    }

    async fn request(policy: HttpPolicy, params: Value) -> Result<Value, ActionError> {
        perform(&call(ToolConfig::new().http(policy), &[]), params).await
    }

    fn answer(status: &str, headers: &str, body: &str) -> String {
        format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n{headers}\r\n{body}", body.len())
    }

    #[test]
    fn the_parameters_and_defaults_are_those_of_the_contract() {
        assert_contract::<RequestParams>(include_str!("../../../../graph-compiler/contracts/rye/http/request.yaml"));
    }

    #[tokio::test]
    async fn a_request_is_sent_and_its_answer_returned() {
        let headers = "content-type: application/json; charset=utf-8\r\nset-cookie: secret=1\r\nx-a: 1\r\nx-a: 2\r\n";
        let server = Server::start(vec![answer("200 OK", headers, "{\"a\": 1}")]).await;
        let params = json!({
            "method": "POST", "url": server.url("/path?a=1"), "query": {"b": "x y", "c": [1, true], "d": null},
            "headers": {"X-Key": "k"}, "json": {"n": 1},
        });
        let result = server.request(params).await.unwrap();
        let expected = json!({
            "status": 200, "body": "{\"a\": 1}", "json": {"a": 1},
            "headers": {"content-length": "8", "content-type": "application/json; charset=utf-8", "x-a": "1, 2"},
        });
        assert_eq!(result, expected);
        let request = &server.received()[0];
        assert!(request.starts_with("POST /path?a=1&b=x+y&c=1&c=true HTTP/1.1\r\n"), "{request}");
        let key = format!("idempotency-key: {}\r\n", call(ToolConfig::new(), &[]).idempotency_key());
        for part in ["x-key: k\r\n", "content-type: application/json\r\n", key.as_str()] {
            assert!(request.contains(part), "{part}: {request}");
        }
        assert!(request.ends_with("\r\n\r\n{\"n\":1}"), "{request}");
    }

    #[tokio::test]
    async fn safe_requests_send_no_idempotency_key_and_a_graph_can_set_it() {
        let server = Server::start(vec![answer("200 OK", "", ""), answer("200 OK", "", "")]).await;
        server.request(json!({"url": server.url("/")})).await.unwrap();
        let headers = json!({"Idempotency-Key": "own"});
        let params = json!({"method": "PUT", "url": server.url("/"), "headers": headers, "body": "x"});
        server.request(params).await.unwrap();
        let received = server.received();
        assert!(!received[0].contains("idempotency-key"), "{}", received[0]);
        assert!(received[1].contains("idempotency-key: own\r\n"), "{}", received[1]);
    }

    #[tokio::test]
    async fn http_statuses_map_to_categories_and_carry_retry_after() {
        for (status, category, headers, pause) in [
            ("429 Too Many Requests", Category::RateLimited, "retry-after: 7\r\n", Some(7)),
            ("503 Service Unavailable", Category::Transient, "retry-after: 99999999\r\n", Some(86400)),
            ("429 Too Many Requests", Category::RateLimited, "retry-after: Thu, 01 Jan 1970 00:00:00 GMT\r\n", Some(0)),
            ("500 Internal Server Error", Category::Transient, "retry-after: soon\r\n", None),
            ("408 Request Timeout", Category::Transient, "", None),
            ("404 Not Found", Category::Permanent, "", None),
            ("304 Not Modified", Category::Permanent, "", None),
        ] {
            let server = Server::start(vec![answer(status, headers, "")]).await;
            let error = server.request(json!({"url": server.url("/secret?token=secret")})).await.unwrap_err();
            assert_eq!(error.to_string(), format!("`127.0.0.1:{}` answered {status}", server.port));
            assert_eq!(error.category(), category, "{status}");
            assert_eq!(error.retry_after(), pause.map(Duration::from_secs), "{status}");
            assert_eq!(error.status(), status[..3].parse().ok());
        }
    }

    #[tokio::test]
    async fn a_failure_carries_the_response_and_ok_status_accepts_it() {
        let server = Server::start(vec![answer("404 Not Found", "", "no"), answer("404 Not Found", "", "no")]).await;
        let error = server.request(json!({"url": server.url("/")})).await.unwrap_err();
        let data = graph_engine::Failure::from(error).data.unwrap();
        assert_eq!((&data["status_code"], &data["body"]), (&json!(404), &json!("no")));
        let result = server.request(json!({"url": server.url("/"), "ok_status": [404]})).await.unwrap();
        assert_eq!(result["status"], 404);
    }

    #[tokio::test]
    async fn a_redirect_is_followed_without_secrets_for_another_host() {
        let other = Server::start(vec![answer("200 OK", "", "there")]).await;
        let location = format!("location: {}\r\n", other.url("/there"));
        let server = Server::start(vec![
            answer("307 Temporary Redirect", "location: /next\r\n", ""),
            answer("302 Found", &location, ""),
        ])
        .await;
        let policy = server.policy().allow_internal(&format!("http://127.0.0.1:{}", other.port)).unwrap();
        let headers = json!({"Authorization": "secret", "X-Key": "secret", "Accept": "text/plain"});
        let params = json!({"method": "POST", "url": server.url("/"), "headers": headers, "body": "text"});
        assert_eq!(request(policy, params).await.unwrap()["body"], "there");
        let received = server.received();
        assert!(received[1].starts_with("POST /next ") && received[1].contains("secret"), "{}", received[1]);
        assert!(received[1].ends_with("text"), "{}", received[1]);
        let there = &other.received()[0];
        assert!(there.starts_with("GET /there ") && there.contains("accept: text/plain"), "{there}");
        assert!(!there.contains("secret") && !there.contains("idempotency-key"), "{there}");
    }

    #[tokio::test]
    async fn a_redirect_to_where_requests_may_not_go_is_refused() {
        let port = Server::start(vec![]).await.port;
        for (location, expected) in [
            (format!("http://127.0.0.1:{port}/?secret"), "the program does not allow requests to"),
            ("https://example.com/?secret".into(), "the program does not allow requests to `example.com`"),
            ("http://169.254.169.254/latest".into(), "the program does not allow requests to `169.254.169.254`"),
            ("file:///etc/passwd".into(), "redirects to an invalid address"),
            ("http://user:secret@127.0.0.1/".into(), "redirects to an invalid address"),
        ] {
            let server = Server::start(vec![answer("302 Found", &format!("location: {location}\r\n"), "")]).await;
            let error = server.request(json!({"url": server.url("/")})).await.unwrap_err();
            assert_eq!(error.category(), Category::Permanent);
            let message = error.to_string();
            assert!(message.contains(expected) && !message.contains("secret"), "{location}: {message}");
        }
    }

    #[tokio::test]
    async fn redirects_end() {
        let server = Server::start(vec![answer("302 Found", "location: /\r\n", ""); 10]).await;
        let error = server.request(json!({"url": server.url("/")})).await.unwrap_err();
        assert!(error.to_string().ends_with("redirects more than 5 times"), "{error}");
        assert_eq!(server.received().len(), 6);
    }

    #[tokio::test]
    async fn a_name_with_an_internal_address_is_refused_at_connect() {
        let server = Server::start(vec![answer("200 OK", "", "")]).await;
        let url = format!("http://localhost:{}/?secret", server.port);
        let policy = HttpPolicy::new().allow("http://localhost:*").unwrap();
        let error = request(policy, json!({"url": url})).await.unwrap_err();
        assert_eq!(error.category(), Category::Permanent);
        let expected = "`localhost` has an address that is not on the public internet: \
                        the program allows it with `HttpPolicy::allow_internal`";
        assert_eq!(error.to_string(), expected);
        assert!(server.received().is_empty());
        let policy = HttpPolicy::new().allow_internal("http://localhost:*").unwrap();
        request(policy, json!({"url": url})).await.unwrap();
    }

    #[tokio::test]
    async fn without_a_policy_there_are_no_requests() {
        let error = request(HttpPolicy::new(), json!({"url": "https://example.com/"})).await.unwrap_err();
        let expected = "the program does not allow requests to `example.com`: it names hosts with `HttpPolicy::allow`";
        assert_eq!(error.to_string(), expected);
    }

    #[tokio::test]
    async fn bodies_that_are_too_large_or_no_text_are_errors() {
        let chunked =
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n8\r\n12345678\r\n8\r\n12345678\r\n0\r\n\r\n";
        for too_large in [answer("200 OK", "", "12345678901"), chunked.to_owned()] {
            let server = Server::start(vec![too_large]).await;
            let error = server.request(json!({"url": server.url("/"), "max_bytes": 10})).await.unwrap_err();
            assert_eq!(error.to_string(), format!("`127.0.0.1:{}` answered with more than 10 bytes", server.port));
        }
        let mut binary = answer("200 OK", "", "ab");
        binary.truncate(binary.len() - 2);
        // The response is UTF-8 text; its body is cut within a character.
        let server =
            Server::start(vec![format!("{binary}ü").replace("content-length: 2", "content-length: 1"); 2]).await;
        let error = server.request(json!({"url": server.url("/")})).await.unwrap_err();
        assert!(error.to_string().contains("that is not UTF-8 (byte 0)"), "{error}");
        let params = json!({"url": server.url("/"), "encoding": "base64"});
        assert_eq!(server.request(params).await.unwrap()["body"], "ww==");
    }

    #[tokio::test]
    async fn a_timeout_or_refused_connection_is_a_transient_failure() {
        let server = Server::start(vec![String::new()]).await;
        let error = server.request(json!({"url": server.url("/?secret"), "timeout": 0.2})).await.unwrap_err();
        let expected = format!("no answer from `127.0.0.1:{}` within 200ms (timeout) (transient)", server.port);
        assert_eq!(format!("{error:?}"), expected);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let policy = HttpPolicy::new().allow_internal(&format!("http://127.0.0.1:{port}")).unwrap();
        let error = request(policy, json!({"url": format!("http://127.0.0.1:{port}/?secret")})).await.unwrap_err();
        assert_eq!(error.category(), Category::Transient);
        assert!(error.to_string().starts_with(&format!("no answer from `127.0.0.1:{port}`: ")), "{error}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }

    #[tokio::test]
    async fn a_header_cannot_smuggle_another_and_no_error_repeats_a_value() {
        for (headers, expected) in [
            (json!({"X-A": "secret\r\nX-B: 1"}), "`X-A` has a value that cannot be a header's"),
            (json!({"X-A\r\nX-B": "secret"}), "`X-A\\r\\nX-B` cannot be a header's name"),
            (json!({"Host": "secret"}), "`Host` is a header that requests get by themselves"),
            (json!({"Transfer-Encoding": "secret"}), "`Transfer-Encoding` is a header"),
            (json!({"content-length": "secret"}), "`content-length` is a header"),
        ] {
            let params = json!({"url": "https://example.com/", "headers": headers});
            let error = request(HttpPolicy::new(), params).await.unwrap_err().to_string();
            assert!(error.starts_with(expected) && !error.contains("secret"), "{error}");
        }
    }

    #[tokio::test]
    async fn parameters_that_make_no_sense_are_errors_without_the_address() {
        for (params, expected) in [
            (json!({"url": "secret"}), "`url` is not an address: "),
            (json!({"url": "ftp://secret/"}), "`url` begins with https:, not ftp:"),
            (json!({"url": "https://user:secret@example.com/"}), "`url` has a user name or password in it"),
            (json!({"url": "https://example.com", "body": "secret", "json": 1}), "a request has either"),
            (
                json!({"url": "https://example.com", "query": {"a": {"b": "secret"}}}),
                "expected a text, number or boolean",
            ),
            (json!({"url": "https://example.com", "timeout": 0}), "`timeout` is a number of seconds above 0"),
            (json!({"url": "https://example.com", "max_bytes": -1}), "expected a number of bytes"),
            (json!({"url": "https://example.com", "method": "CONNECT"}), "expected one of `GET`"),
        ] {
            let error = request(HttpPolicy::new(), params).await.unwrap_err().to_string();
            assert!(error.starts_with(expected) && !error.contains("secret"), "{error}");
        }
    }
}

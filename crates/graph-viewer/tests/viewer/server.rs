//! The guards of the server and its headers; requests that are malformed; a store that goes away.

use std::fs;

use graph_runtime::{Map, RunId, Store as _, Value};
use serde_json::json;

use crate::place::{Everything, Place, Served, tokio};

/// A graph of two nodes, of which the first calls a tool.
pub(crate) const TWO: &str = "config:\n  start: first\n  nodes:\n    first: { action: { item_id: t/do }, assign: { got: '${result}' }, next: last }\n    \
                              last: { type: return, output: '${state.got}' }\n";

/// A place with a run of [`TWO`].
pub(crate) fn place() -> Place {
    let place = Place::new();
    place.graph("two", TWO);
    ran(&place, "one", json!("done"));
    place
}

/// Runs [`TWO`].
pub(crate) fn ran(place: &Place, run: &str, result: Value) {
    tokio().block_on(async {
        let graph = place.load("two", Everything(move |_: &_, _: &_, _| Ok(result.clone())));
        let runtime = place.runtime(place.store().await);
        runtime.start_as(RunId::new(run).unwrap(), graph, Map::new()).await.unwrap().await.unwrap();
    });
}

fn headed(viewer: &Served, head: &str) -> Option<u16> {
    let head = head.replace("{base}", viewer.base()).replace("{host}", viewer.host());
    viewer.send(head.as_bytes()).map(|response| response.status)
}

#[test]
fn only_who_knows_the_token_gets_an_answer() {
    let place = place();
    let viewer = place.viewer();
    assert_eq!(viewer.get("").status, 200);
    assert_eq!(viewer.get("api/about").status, 200);
    let token = viewer.base().trim_matches('/').to_owned();
    assert!(token.len() == 64 && token.bytes().all(|byte| byte.is_ascii_hexdigit()), "256 bits: {token}");
    let other = |at: usize| {
        let mut other = token.clone().into_bytes();
        other[at] = if other[at] == b'0' { b'1' } else { b'0' };
        String::from_utf8(other).unwrap()
    };
    let mut wrong: Vec<String> = (0..64).map(|at| format!("/{}/", other(at))).collect();
    wrong.extend(["/", "//", "/x/", "/api/about", "/../", "/%2e%2e/", "*"].map(str::to_owned));
    wrong.extend([format!("/{}/", &token[..63]), format!("/{token}0/"), format!("/{}/", token.to_uppercase())]);
    wrong.extend([format!("//{token}/"), format!("/./{token}/"), format!("/?{token}"), format!("/x/{token}/")]);
    for path in wrong.iter().filter(|path| **path != viewer.base()) {
        let status = headed(&viewer, &format!("GET {path} HTTP/1.1\r\nHost: {{host}}\r\nConnection: close\r\n\r\n"));
        assert!(matches!(status, Some(403 | 404 | 400)), "{path}: {status:?}");
    }
    assert_ne!(place.viewer().base(), viewer.base(), "each start has a token of its own");
}

#[test]
fn a_request_by_another_host_is_refused() {
    let place = place();
    let viewer = place.viewer();
    let port = viewer.host().split(':').nth(1).unwrap().to_owned();
    let with =
        |host: &str| headed(&viewer, &format!("GET {{base}}api/about HTTP/1.1\r\n{host}Connection: close\r\n\r\n"));
    assert_eq!(with(&format!("Host: localhost:{port}\r\n")), Some(200));
    assert_eq!(with(&format!("Host: LOCALHOST:{port}\r\n")), Some(200));
    for host in [
        "evil.example",
        "evil.example:{port}",
        "127.0.0.1",
        "localhost",
        "127.0.0.1:1",
        "127.0.0.1.evil.example:{port}",
        "localhost:{port}.evil.example",
        "[::1]:{port}",
        "0.0.0.0:{port}",
        "127.1:{port}",
        "127.0.0.1:{port}:{port}",
        "",
        "user@127.0.0.1:{port}",
        " ",
    ] {
        let host = host.replace("{port}", &port);
        assert_eq!(with(&format!("Host: {host}\r\n")), Some(403), "{host}");
    }
    assert!(matches!(with(""), Some(403 | 400)), "a request without a host");
    assert_eq!(with("Host: {host}\r\nHost: evil.example\r\n"), Some(403));
    let whole = "GET http://evil.example{base} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n";
    assert_eq!(headed(&viewer, whole), Some(403));
    let old = headed(&viewer, "GET {base} HTTP/1.0\r\n\r\n");
    assert!(matches!(old, Some(403 | 400)), "{old:?}");
}

#[test]
fn requests_of_other_pages_are_refused() {
    let place = place();
    let viewer = place.answering_viewer();
    for (headers, status) in [
        ("Sec-Fetch-Site: same-origin\r\n", 200),
        ("Sec-Fetch-Site: none\r\n", 200),
        ("Sec-Fetch-Site: cross-site\r\n", 403),
        ("Sec-Fetch-Site: same-site\r\n", 403),
        ("Origin: http://evil.example\r\n", 403),
        ("Origin: null\r\n", 403),
    ] {
        assert_eq!(viewer.request("GET", "api/about", headers, "").status, status, "{headers}");
    }
    let body = "{\"wait\":\"1#1\",\"answer\":1}";
    let host = viewer.host().to_owned();
    let json = "Content-Type: application/json\r\n";
    for (headers, status) in [
        (String::new(), 403),
        (json.to_owned(), 403),
        (format!("Origin: http://evil.example\r\n{json}"), 403),
        (format!("Origin: null\r\n{json}"), 403),
        (format!("Origin: https://{host}\r\n{json}"), 403),
        (format!("Origin: http://{host}.evil.example\r\n{json}"), 403),
        (format!("Origin: http://{host}\r\nSec-Fetch-Site: cross-site\r\n{json}"), 403),
        (format!("Origin: http://{host}\r\n"), 415),
        (format!("Origin: http://{host}\r\nContent-Type: text/plain\r\n"), 415),
        // It is admitted, and the run does not ask that.
        (format!("Origin: http://{host}\r\n{json}"), 409),
    ] {
        let response = viewer.request("POST", "api/run/one/answer", &headers, body);
        assert_eq!(response.status, status, "{headers}: {}", response.text());
    }
}

#[test]
fn a_viewer_that_only_reads_has_no_other_methods() {
    let place = place();
    let viewer = place.viewer();
    let origin = format!("Origin: http://{}\r\nContent-Type: application/json\r\n", viewer.host());
    for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "PROPFIND", "get"] {
        for path in ["api/run/one/answer", "api/about", ""] {
            let response = viewer.request(method, path, &origin, "");
            assert!(matches!(response.status, 400 | 403 | 404 | 405), "{method} {path}: {}", response.status);
        }
    }
    assert_eq!(viewer.request("POST", "api/run/one/answer", &origin, "{}").status, 405);
    let head = viewer.request("HEAD", "", "", "");
    assert!(head.status == 200 && head.body.is_empty(), "{head:?}");
}

#[test]
fn every_answer_has_the_headers_that_protect_it() {
    let place = place();
    let viewer = place.viewer();
    let refused =
        viewer.send(format!("GET / HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", viewer.host()).as_bytes());
    let answers =
        ["", "main.js", "view.css", "api/about", "api/run/one", "api/run/none", "nothing", "api/run/one/journal"];
    for response in answers.iter().map(|path| viewer.get(path)).chain(refused) {
        let policy = response.header("content-security-policy").unwrap_or_default();
        for part in [
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "connect-src 'self'",
            "worker-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        ] {
            assert!(policy.contains(part), "{part}: {}", response.head);
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(response.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(response.header("referrer-policy"), Some("no-referrer"));
        assert_eq!(response.header("cache-control"), Some("no-store"));
        assert_eq!(response.header("access-control-allow-origin"), None);
    }
}

#[test]
fn no_path_leads_to_another_file() {
    let place = place();
    let viewer = place.viewer();
    for path in [
        "../Cargo.toml",
        "..%2fCargo.toml",
        "%2e%2e/%2e%2e/etc/passwd",
        "....//etc/passwd",
        "/etc/passwd",
        "page/main.js",
        "main.js/..",
        "main.js%00",
        "api/../main.js",
        "api/run/../about",
        "api/run/%2e%2e/about",
        "api/run/one/../../about",
        "api/run//",
        "api/",
        "api/run/one/record/../../../../etc/passwd",
        "api/run/one/record/18446744073709551616",
        "api/run/one/record/-1",
        "src/lib.rs",
        "%",
        "api/run/a%2fb/journal",
        "api/run/..%2f..%2fetc/journal",
        "\u{e9}",
    ] {
        let response = viewer.get(path);
        assert!(matches!(response.status, 400 | 403 | 404), "{path}: {} {}", response.status, response.text());
    }
}

#[test]
fn malformed_requests_end_with_an_error_and_nothing_else() {
    let place = place();
    let viewer = place.viewer();
    let long = "a".repeat(100_000);
    for (bytes, allowed) in [
        ("\r\n\r\n".to_owned(), vec![]),
        ("GET".to_owned(), vec![]),
        ("\u{0}\u{1}\u{2}\u{3}".to_owned(), vec![400]),
        ("GET {base} HTTP/9.9\r\nHost: {host}\r\n\r\n".to_owned(), vec![400]),
        (format!("GET {{base}}{long} HTTP/1.1\r\nHost: {{host}}\r\nConnection: close\r\n\r\n"), vec![414, 431, 400]),
        (format!("GET {{base}}api/runs?run={} HTTP/1.1\r\nHost: {{host}}\r\nConnection: close\r\n\r\n", &long[..10_000]), vec![414]),
        (format!("GET {{base}} HTTP/1.1\r\nHost: {{host}}\r\nX: {long}\r\nConnection: close\r\n\r\n"), vec![431, 400]),
        ("GET {base} HTTP/1.1\r\nHost: {host}\r\nContent-Length: x\r\nConnection: close\r\n\r\n".to_owned(), vec![400]),
        ("GET {base} HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n".to_owned(), vec![400, 200]),
        ("GET {base}api/runs?size=x HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".to_owned(), vec![400]),
        ("GET {base}api/runs?size=99999999999999999999 HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".to_owned(), vec![400]),
        ("GET {base}api/runs?status=happy HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".to_owned(), vec![400]),
        ("GET {base}api/runs?after=%00 HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".to_owned(), vec![400]),
        ("GET {base}api/runs?graph=%ff HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".to_owned(), vec![400]),
        ("GET {base}api/runs?graph=%4 HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".to_owned(), vec![400]),
        ("GET {base}api/run/one/rows?from=-1 HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".to_owned(), vec![400]),
        ("GET {base}api/run/one/rows?flags=256 HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".to_owned(), vec![400]),
        ("GET {base}api/run/one/rows?count=18446744073709551615&from=18446744073709551615 HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".to_owned(), vec![200]),
        ("GET {base}api/run/one/state?step=18446744073709551615 HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".to_owned(), vec![422]),
        ("GET {base}api/compare HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".to_owned(), vec![404]),
    ] {
        let text = bytes.replace("{base}", viewer.base()).replace("{host}", viewer.host());
        let mut stream = std::net::TcpStream::connect(viewer.host()).unwrap();
        std::io::Write::write_all(&mut stream, text.as_bytes()).ok();
        // A client that ends the connection wants no answer.
        if allowed.is_empty() {
            stream.shutdown(std::net::Shutdown::Write).ok();
        }
        let mut answer = String::new();
        std::io::Read::read_to_string(&mut stream, &mut answer).ok();
        let status = answer.split(' ').nth(1).and_then(|status| status.parse::<u16>().ok());
        let shown: String = text.chars().take(120).collect();
        assert!(status.is_none_or(|status| allowed.contains(&status)), "{shown}: {answer:.300}");
        assert!(allowed.is_empty() || status.is_some() || text.len() > 10_000, "{shown}: no answer");
    }
    // It still answers.
    assert_eq!(viewer.get("api/about").status, 200);
}

#[test]
fn an_answer_that_is_no_answer_is_refused() {
    let place = place();
    let viewer = place.answering_viewer();
    let headers = format!("Origin: http://{}\r\nContent-Type: application/json\r\n", viewer.host());
    let deep = "[".repeat(30_000);
    for (body, status) in [
        ("", 400),
        ("{", 400),
        ("[]", 400),
        ("{\"wait\":1,\"answer\":1}", 400),
        ("{\"wait\":\"1#1\"}", 400),
        (deep.as_str(), 400),
        ("{\"wait\":\"1#1\",\"answer\":1,\"more\":1}", 400),
        (&"x".repeat(70_000), 413),
        ("{\"wait\":\"<img>\",\"answer\":1}", 409),
    ] {
        let response = viewer.request("POST", "api/run/one/answer", &headers, body);
        assert_eq!(response.status, status, "{body:.60}: {}", response.text());
    }
    assert_eq!(viewer.request("POST", "api/run/none/answer", &headers, "{\"wait\":\"1#1\",\"answer\":1}").status, 404);
    assert_eq!(viewer.request("POST", "api/about", &headers, "{}").status, 404);
}

#[test]
fn many_connections_that_say_nothing_keep_nobody_out_for_long() {
    let place = place();
    let viewer = place.viewer();
    let began = std::time::Instant::now();
    let silent: Vec<_> = (0..200).map(|_| std::net::TcpStream::connect(viewer.host()).unwrap()).collect();
    assert_eq!(viewer.get("api/about").status, 200);
    drop(silent);
    assert_eq!(viewer.get("api/about").status, 200);
    assert!(began.elapsed() < std::time::Duration::from_secs(5), "{:?}", began.elapsed());
}

/// A client without the token that asks again and again, and reads no answer, keeps nobody out either.
#[test]
fn connections_without_the_token_end_with_their_first_answer() {
    use std::io::{Read as _, Write as _};
    let place = place();
    let viewer = place.viewer();
    let asked = format!("GET /x HTTP/1.1\r\nHost: {}\r\n\r\n", viewer.host()).repeat(200);
    let mut refused: Vec<_> = (0..100).map(|_| std::net::TcpStream::connect(viewer.host()).unwrap()).collect();
    for stream in &mut refused {
        stream.set_nonblocking(true).unwrap();
        // The viewer may have ended the connection before all is sent.
        drop(stream.write_all(asked.as_bytes()));
    }
    let began = std::time::Instant::now();
    assert_eq!(viewer.get("api/about").status, 200);
    assert!(began.elapsed() < std::time::Duration::from_secs(5), "{:?}", began.elapsed());
    let mut answers = String::new();
    let one = refused.last_mut().unwrap();
    one.set_nonblocking(false).unwrap();
    one.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
    drop(one.read_to_string(&mut answers));
    assert!(answers.matches("HTTP/1.1 403").count() <= 1, "one answer, and no more: {answers}");
}

#[test]
fn a_body_that_does_not_come_ends_with_an_error() {
    use std::io::{Read as _, Write as _};
    let place = place();
    let viewer = place.answering_viewer();
    let mut stream = std::net::TcpStream::connect(viewer.host()).unwrap();
    let (base, host) = (viewer.base(), viewer.host());
    let head = format!(
        "POST {base}api/run/one/answer HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\nContent-Type: application/json\r\nContent-Length: 1000\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.set_read_timeout(Some(std::time::Duration::from_secs(30))).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
}

#[test]
fn a_store_that_is_deleted_or_replaced_is_noticed() {
    let place = place();
    let viewer = place.viewer();
    assert_eq!(viewer.api("runs")["runs"][0]["run"], "one");
    assert_eq!(viewer.api("run/one")["records"], 4);
    let all = ["runs.db", "runs.db-wal", "runs.db-shm"];
    let moved = place.path("moved");
    fs::create_dir(&moved).unwrap();
    for name in all {
        drop(fs::rename(place.path(name), moved.join(name)));
    }
    for path in ["api/runs", "api/run/one", "api/run/one/rows", "api/run/one/journal", "api/run/one/audit", "api/inbox"]
    {
        let response = viewer.get(path);
        assert_eq!(response.status, 503, "{path}: {}", response.text());
        assert!(response.text().contains("was it moved or deleted?"), "{}", response.text());
    }
    // Another store, with another run of the same id.
    ran(&place, "one", json!("other"));
    ran(&place, "two", json!("more"));
    assert_eq!(viewer.api("runs")["runs"].as_array().unwrap().len(), 2);
    assert_eq!(viewer.api("run/one/state")["state"]["got"]["result"], "other");
    // No store at all.
    for name in all {
        drop(fs::remove_file(place.path(name)));
    }
    fs::write(place.store_path(), "this is no database").unwrap();
    let response = viewer.get("api/runs");
    assert!(response.status == 503 || response.status == 422, "{}", response.text());
    assert!(response.text().contains("runs.db"), "{}", response.text());
    fs::remove_file(place.store_path()).unwrap();
    fs::create_dir(place.store_path()).unwrap();
    assert!(viewer.get("api/runs").status >= 400);
    assert_eq!(viewer.get("api/about").status, 200);
}

#[test]
fn a_run_that_is_removed_or_begun_again_is_read_again() {
    let place = place();
    let viewer = place.viewer();
    assert_eq!(viewer.api("run/one/state")["state"]["got"]["result"], "done");
    tokio().block_on(async { place.store().await.remove(&RunId::new("one").unwrap()).await.unwrap() });
    assert_eq!(viewer.get("api/run/one").status, 404);
    ran(&place, "one", json!("new"));
    assert_eq!(viewer.api("run/one/state")["state"]["got"]["result"], "new");
    assert_eq!(viewer.api("run/one/record/1")["record"]["visits"][0]["result"]["result"], "new");
}

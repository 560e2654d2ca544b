//! Servers that are late, die, or send unreadable answers: the number of effects, as the server counts them, and the reason that the run
//! gets.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use graph_mcp::{McpEndpoint, McpServers, contract};
use graph_runtime::dynamic::{Library, Toolbox};
use graph_runtime::{ActionError, Category, Clock, Map, Runtime, Sleeping, ToolConfig};
use graph_signing::{ItemKind, KeyFile, SecretKey, sign};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::servers::{LISTED, LONG, Scripted, call, declared, good};

/// A clock a hundred times as fast as others, so that pauses between calls are short.
#[derive(Debug)]
struct HastyClock(Instant);

impl Clock for HastyClock {
    fn now(&self) -> SystemTime {
        SystemTime::now()
    }

    fn monotonic(&self) -> Duration {
        self.0.elapsed() * 100
    }

    fn sleep(&self, time: Duration) -> Sleeping<'_> {
        Box::pin(tokio::time::sleep(time / 100))
    }
}

const HEAD: &str =
    "version: \"1.0.0\"\ntool_type: graph\nexecutor_id: rye/core/runtimes/state-graph/runtime\ncategory: shop
permissions: [rye.execute.tool.mcp.shop.say_it]\n";

/// Answers a call with a result that is too long.
const OVERSIZE: &str = r#"printf '{"jsonrpc":"2.0","id":%s,"result":{"content":[],"structuredContent":{"said":"' "$id"; head -c 9500000 /dev/zero | tr '\0' x; echo '"}}}'"#;

/// Answers a call with a result that has 3,000 levels.
const DEEP: &str = r#"printf '{"jsonrpc":"2.0","id":%s,"result":' "$id"; head -c 3000 /dev/zero | tr '\0' '['; head -c 3000 /dev/zero | tr '\0' ']'; echo '}'"#;

const NO_VERSION: &str = r#"say '{"id":'"$id"',"result":{"content":[]}}'"#;

const TEXT: &str = "say 'Segmentation fault'";

/// The server in the language of shells, the reason of the failure, and whether another call may succeed.
const PEERS: [(&str, &str, bool); 7] = [
    (":", "took longer than 1 s", true),
    ("exit 0", "did not answer", true),
    (OVERSIZE, "sent a message of more than 8388608 bytes", false),
    (DEEP, "sent a message that cannot be read: recursion limit exceeded", false),
    (NO_VERSION, "sent a message that cannot be read", false),
    (TEXT, "sent a message that cannot be read", false),
    ("echo '{}'", "sent a message that cannot be read", false),
];

/// A tree with graphs that call the tool of a server.
struct CallingTree(tempfile::TempDir);

impl CallingTree {
    /// The contract of the tool, as it is imported.
    fn new(text: &str) -> Self {
        let tree = Self(tempfile::tempdir().unwrap());
        let key = SecretKey::from_seed(&[9; 32]);
        let trusted = KeyFile::new(key.public(), "self");
        let file = format!("keys/{}.toml", trusted.fingerprint);
        tree.write(&file, &trusted.to_signed_toml(&key, SystemTime::UNIX_EPOCH));
        let signed = |text: &str| sign(ItemKind::YAML, text, &key, SystemTime::UNIX_EPOCH).unwrap();
        tree.write("tools/mcp/shop/say_it.yaml", &signed(text));
        for (name, conduct) in
            [("plain", ""), ("again", "retry: { attempts: 2, delay: 10ms, on: [any] }"), ("timed", "timeout: 100s")]
        {
            let node =
                format!("{{ action: {{ item_id: mcp/shop/say_it, params: {{ word: hi }} }}, next: done, {conduct} }}");
            let config = format!("config:\n  start: say\n  nodes:\n    say: {node}\n    done: {{ type: return }}\n");
            tree.write(&format!("shop/{name}.yaml"), &signed(&format!("{HEAD}{config}")));
        }
        tree
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.0.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Runs a graph, and returns why it failed.
    async fn run(&self, graph: &str, servers: McpServers) -> Option<String> {
        let library = Library::open(self.0.path(), Toolbox::new());
        let graph = library.graph(&self.0.path().join(format!("shop/{graph}.yaml"))).unwrap();
        let clock = Arc::new(HastyClock(Instant::now()));
        let builder = Runtime::builder().clock(clock).tools(ToolConfig::new().mcp(servers));
        let runtime = builder.grant("*").unwrap().build().unwrap();
        let run = runtime.start(graph, Map::new()).await.unwrap();
        tokio::time::timeout(LONG, run).await.unwrap().err().map(|error| error.to_string())
    }
}

fn calls(scripted: &Scripted) -> usize {
    scripted.log().lines().filter(|line| *line == "call").count()
}

/// Each peer × a contract that says that calls may be repeated or does not × a node with or without `retry`.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_call_that_may_have_had_its_effect_is_repeated_only_if_the_contract_or_the_node_says_so() {
    let hinted = LISTED.replace(r#""description""#, r#""annotations":{"idempotentHint":true},"description""#);
    let mut all = Vec::new();
    for (peer, reason, may_pass) in PEERS {
        for trusts_hints in [false, true] {
            for graph in ["plain", "again"] {
                let hinted = hinted.clone();
                all.push(tokio::spawn(async move {
                    let scripted = Scripted::new(&hinted, peer);
                    let tool = declared(&scripted.servers(LONG)).await;
                    let imported = contract("shop", &tool, trusts_hints);
                    assert_eq!(imported.text.contains("idempotent"), trusts_hints, "{}", imported.text);
                    let tree = CallingTree::new(&imported.text);
                    let failed = tree.run(graph, scripted.servers(Duration::from_secs(1))).await.unwrap();
                    let expected = match (graph, trusts_hints && may_pass) {
                        ("again", _) => 2,
                        (_, true) => 4,
                        (_, false) => 1,
                    };
                    let is_right = failed.contains(reason) && calls(&scripted) == expected;
                    (!is_right).then(|| {
                        let count = calls(&scripted);
                        format!("{peer}, {graph}, {trusts_hints}: {count} calls and not {expected}: {failed}")
                    })
                }));
            }
        }
    }
    let mut wrong = Vec::new();
    for task in all {
        wrong.extend(task.await.unwrap());
    }
    assert!(wrong.is_empty(), "{} of 28 are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// The time of the node is over before that of the server.
#[tokio::test]
async fn a_call_that_the_node_gives_up_is_not_repeated_either() {
    let scripted = Scripted::new(LISTED, ":");
    let tree = CallingTree::new(&contract("shop", &declared(&scripted.servers(LONG)).await, true).text);
    let failed = tree.run("timed", scripted.servers(LONG)).await.unwrap();
    assert!(failed.contains("timed out"), "{failed}");
    assert_eq!(calls(&scripted), 1);
}

/// A server that cannot be reached has done nothing.
#[tokio::test]
async fn a_call_that_was_not_sent_is_repeated() {
    let scripted = Scripted::new(LISTED, &good());
    let tree = CallingTree::new(&contract("shop", &declared(&scripted.servers(LONG)).await, false).text);
    let count = scripted.path("starts");
    scripted.prepend(&format!("echo start >> {0}; [ $(wc -l < {0}) -lt 3 ] && exit 1", count.display()));
    assert_eq!(tree.run("plain", scripted.servers(LONG)).await, None);
    assert_eq!((calls(&scripted), fs::read_to_string(count).unwrap().lines().count()), (1, 3));
}

/// The next call over the same connection succeeds.
#[tokio::test]
async fn an_answer_that_cannot_be_read_fails_its_own_call_at_once() {
    for (peer, reason, may_pass) in PEERS.into_iter().filter(|(.., may_pass)| !may_pass) {
        let starts = r#"case "$line" in *'"bad"'*) PEER ;; *) GOOD ;; esac"#;
        let scripted = Scripted::new(LISTED, &starts.replace("PEER", peer).replace("GOOD", &good()));
        let servers = scripted.servers(LONG);
        let tool = declared(&servers).await;
        let begun = Instant::now();
        let error = call(&servers, &tool, "bad").await.unwrap_err();
        assert!(begun.elapsed() < Duration::from_secs(10), "{peer}: {:?}", begun.elapsed());
        assert!(error.to_string().contains(reason) && error.category() == Category::Permanent, "{peer}: {error:?}");
        assert!(!may_pass);
        assert_eq!(call(&servers, &tool, "hi").await.unwrap(), json!({ "said": "hi" }), "{peer}");
        assert_eq!(calls(&scripted), 2, "{peer}");
    }
}

/// Some servers greet people, where only messages may be. That is no answer to anything.
#[tokio::test]
async fn a_text_before_the_first_call_is_passed_over_and_a_wrong_greeting_is_not() {
    let scripted = Scripted::new(LISTED, &good());
    scripted.prepend("echo 'Listening on stdio.'");
    let servers = scripted.servers(LONG);
    let tool = declared(&servers).await;
    assert_eq!(call(&servers, &tool, "hi").await.unwrap(), json!({ "said": "hi" }));
    let begun = Instant::now();
    let wrong = Scripted::new(r#"say '{"id":'"$id"',"result":{"tools":7}}'"#, &good());
    let error = wrong.servers(LONG).tools("shop").await.unwrap_err();
    assert!(error.to_string().contains("sent a message that cannot be read"), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

/// A server over HTTP that answers calls as a test says: with a status, a content type and a body. Returns its address, and how many calls
/// it had.
async fn http_server(status: &'static str, kind: &'static str, body: String) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/mcp", listener.local_addr().unwrap());
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (body, counted) = (body.clone(), Arc::clone(&counted));
            tokio::spawn(async move {
                let mut request = Vec::new();
                let text = loop {
                    let mut part = [0; 4096];
                    match stream.read(&mut part).await {
                        Ok(read) if read > 0 => request.extend_from_slice(&part[..read]),
                        _ => return,
                    }
                    let text = String::from_utf8_lossy(&request).into_owned();
                    let Some((head, rest)) = text.split_once("\r\n\r\n") else { continue };
                    let head = head.to_lowercase();
                    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
                    if rest.len() >= length.unwrap_or(0) {
                        break rest.to_owned();
                    }
                };
                let message: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
                let result = |result: serde_json::Value| {
                    json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }).to_string()
                };
                let tool = json!({ "name": "say", "inputSchema": { "type": "object" } });
                let info = json!({ "name": "s", "version": "1" });
                let json = "application/json";
                let (status, kind, body) = match message["method"].as_str() {
                    Some("initialize") => {
                        let greeting = json!({ "protocolVersion": "2025-11-25", "capabilities": { "tools": {} }, "serverInfo": info });
                        ("200 OK", json, result(greeting))
                    }
                    Some("tools/list") => ("200 OK", json, result(json!({ "tools": [tool] }))),
                    Some("tools/call") => {
                        counted.fetch_add(1, Ordering::SeqCst);
                        (status, kind, body.replace("ID", &message["id"].to_string()))
                    }
                    Some("server/discover") => {
                        let error = json!({ "jsonrpc": "2.0", "id": message["id"], "error": { "code": -32601, "message": "no" } });
                        ("200 OK", json, error.to_string())
                    }
                    Some(_) => ("202 Accepted", json, String::new()),
                    None => ("405 Method Not Allowed", json, String::new()),
                };
                let length = body.len();
                let head = format!(
                    "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
                );
                drop(stream.write_all(head.as_bytes()).await);
                drop(stream.write_all(body.as_bytes()).await);
            });
        }
    });
    (address, calls)
}

#[tokio::test]
async fn answers_over_http_fail_for_their_true_reason() {
    let json = "application/json";
    let long = format!(r#"{{"jsonrpc":"2.0","id":ID,"result":{{"content":[],"x":"{}"}}}}"#, "x".repeat(9_500_000));
    for (status, kind, body, category, reason) in [
        ("200 OK", json, long, Category::Permanent, "cannot be read: HTTP response body exceeded"),
        ("200 OK", json, "no JSON".to_owned(), Category::Permanent, "cannot be read: "),
        ("200 OK", json, r#"{"id":ID,"result":{"content":[]}}"#.to_owned(), Category::Permanent, "cannot be read: "),
        ("200 OK", "text/html", "<html>".to_owned(), Category::Permanent, "cannot be read: Unexpected content type"),
        ("503 Busy", "text/html", "busy".to_owned(), Category::Transient, "did not answer: "),
        ("401 Unauthorized", "text/html", String::new(), Category::Permanent, "401"),
    ] {
        let (url, count) = http_server(status, kind, body).await;
        let servers = McpServers::new().server("shop", McpEndpoint::Url { url, token: None });
        let tool = declared(&servers).await;
        let begun = Instant::now();
        let error: ActionError = call(&servers, &tool, "hi").await.unwrap_err();
        let text = error.to_string();
        assert!(text.contains(reason) && error.category() == category, "{status} {kind}: {error:?}");
        assert!(!text.contains("::") && begun.elapsed() < Duration::from_secs(10), "{status} {kind}: {text}");
        assert_eq!(count.load(Ordering::SeqCst), 1, "{status} {kind}");
    }
}

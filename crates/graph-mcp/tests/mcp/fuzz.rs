//! Clients that speak nonsense: whatever they send, the server neither panics nor calls a tool, and answers others.
//!
//! `MESSAGES=10000 SEED=7 cargo test -p state-graph-mcp fuzz` sends as many messages in each of the states of a session.

use std::time::Duration;

use graph_mcp::GraphServer;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf};

use crate::tree::{Client, Tree, call, connect, lifecycles};

/// Random numbers that are the same for a seed.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, most: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(most.max(1)).unwrap()).unwrap()
    }

    fn one_of<'t, T>(&mut self, list: &'t [T]) -> &'t T {
        &list[self.below(list.len())]
    }
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().unwrap())
}

const METHODS: [&str; 22] = [
    "initialize",
    "ping",
    "server/discover",
    "tools/list",
    "tools/call",
    "prompts/list",
    "resources/list",
    "resources/read",
    "subscriptions/listen",
    "completion/complete",
    "logging/setLevel",
    "elicitation/create",
    "sampling/createMessage",
    "roots/list",
    "tasks/get",
    "skills/list",
    "notifications/initialized",
    "notifications/cancelled",
    "notifications/progress",
    "notifications/roots/list_changed",
    "TOOLS/CALL",
    "",
];

fn meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "raw", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": { "elicitation": {} },
        "progressToken": 7,
    })
}

/// Returns a right message, which is changed then. A call has the name of no tool.
fn template(dice: &mut Dice) -> Value {
    let method = *dice.one_of(&METHODS);
    let params = match dice.below(6) {
        0 => {
            json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "a", "version": "1" } })
        }
        1 => json!({ "name": "nobody", "arguments": { "word": "hello" }, "_meta": meta() }),
        2 => {
            json!({ "name": "nobody", "inputResponses": { "answer": { "action": "accept" } }, "requestState": "rs1.a.b", "_meta": meta() })
        }
        3 => json!({ "requestId": dice.below(9), "reason": "no" }),
        4 => json!({ "progressToken": 7, "progress": 1.5, "_meta": meta() }),
        _ => json!({ "_meta": meta() }),
    };
    match dice.below(5) {
        0 => json!({ "jsonrpc": "2.0", "method": method, "params": params }),
        1 => json!({ "jsonrpc": "2.0", "id": dice.below(9), "result": params }),
        2 => json!({ "jsonrpc": "2.0", "id": dice.below(9), "error": { "code": -1, "message": "no" } }),
        _ => json!({ "jsonrpc": "2.0", "id": dice.below(9), "method": method, "params": params }),
    }
}

/// Returns a value of any kind.
fn anything(dice: &mut Dice) -> Value {
    match dice.below(14) {
        0 => Value::Null,
        1 => json!(true),
        2 => json!(u64::MAX),
        3 => json!(i64::MIN),
        4 => json!(1e308),
        5 => json!(-0.0),
        6 => json!(""),
        7 => json!("\u{0}\u{202e}\u{ffff}"),
        8 => json!("x".repeat(dice.below(5_000))),
        9 => json!([]),
        10 => json!({}),
        11 => {
            let depth = dice.below(200);
            (0..depth).fold(json!(1), |value, at| if at % 2 == 0 { json!([value]) } else { json!({ "a": value }) })
        }
        12 => json!({ "__proto__": 1, "id": 1, "method": "tools/call" }),
        _ => json!([[1], { "name": "nobody" }]),
    }
}

fn levels(value: &Value) -> usize {
    match value {
        Value::Array(list) => 1 + list.iter().map(levels).max().unwrap_or_default(),
        Value::Object(map) => 1 + map.values().map(levels).max().unwrap_or_default(),
        _ => 0,
    }
}

/// Changes a value at some place.
fn mutate(value: &mut Value, dice: &mut Dice) {
    let deeper = dice.below(3) > 0;
    match value {
        Value::Object(map) if deeper && !map.is_empty() => {
            let at = dice.below(map.len());
            let key = map.keys().nth(at).cloned().unwrap();
            match dice.below(6) {
                0 => drop(map.remove(&key)),
                1 => {
                    let moved = map.remove(&key).unwrap();
                    map.insert(format!("{key}x"), moved);
                }
                2 => drop(map.insert("extra".to_owned(), anything(dice))),
                _ => mutate(&mut map[&key], dice),
            }
        }
        Value::Array(list) if deeper && !list.is_empty() => {
            let at = dice.below(list.len());
            mutate(&mut list[at], dice);
        }
        other => *other = anything(dice),
    }
}

/// Returns a line that is no right call of a tool.
fn line(dice: &mut Dice) -> Vec<u8> {
    let mut message = template(dice);
    let changes = dice.below(4);
    for _ in 0..changes {
        mutate(&mut message, dice);
    }
    let mut bytes = match dice.below(12) {
        0 => (0..dice.below(300)).map(|_| u8::try_from(dice.next() & 0xff).unwrap()).collect(),
        1 => format!("[{message},{message}]").into_bytes(),
        2 => format!("{}1{}", "[".repeat(5_000), "]".repeat(5_000)).into_bytes(),
        3 => format!("{{\"jsonrpc\":\"2.0\",\"id\":1{},\"method\":\"tools/list\"}}", "0".repeat(400)).into_bytes(),
        4 => message.to_string().replacen('{', "{\"method\":\"ping\",", 1).into_bytes(),
        _ => message.to_string().into_bytes(),
    };
    if dice.below(6) == 0 && !bytes.is_empty() {
        let at = dice.below(bytes.len());
        bytes[at] = u8::try_from(dice.next() & 0xff).unwrap();
    }
    if dice.below(20) == 0 {
        bytes.truncate(dice.below(bytes.len() + 1));
    }
    bytes.retain(|byte| *byte != b'\n');
    bytes.push(b'\n');
    bytes
}

/// A client that reads and writes lines.
struct RawClient {
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    write: WriteHalf<DuplexStream>,
    serving: tokio::task::JoinHandle<Result<(), graph_mcp::McpServeError>>,
}

impl RawClient {
    fn of(server: &GraphServer) -> Self {
        let (near, far) = tokio::io::duplex(1 << 22);
        let (read, write) = tokio::io::split(far);
        let server = server.clone();
        let serving = tokio::spawn(async move { server.serve(read, write).await });
        let (read, write) = tokio::io::split(near);
        Self { lines: BufReader::new(read).lines(), write, serving }
    }

    /// Sends a line. False if the session is over.
    async fn send(&mut self, line: &[u8]) -> bool {
        self.write.write_all(line).await.is_ok()
    }

    async fn send_json(&mut self, value: &Value) -> bool {
        self.send(format!("{value}\n").as_bytes()).await
    }

    /// Returns the answer to the request with an id; `None` if the session is over. Everything that the server writes is JSON-RPC.
    async fn answer(&mut self, id: u64) -> Option<Value> {
        loop {
            let line = tokio::time::timeout(Duration::from_secs(20), self.lines.next_line());
            let line = line.await.expect("the server answers").ok()??;
            let message: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
            assert_eq!(message["jsonrpc"], "2.0", "{line}");
            if message["id"] == id && (message.get("result").is_some() || message.get("error").is_some()) {
                return Some(message);
            }
        }
    }

    /// Asks for the number of bytes of a text, which a tool without a graph counts. False if the session is over.
    async fn still_answers(&mut self, id: u64, is_modern: bool) -> bool {
        let mut params = json!({ "name": "length", "arguments": { "text": "abc" } });
        if is_modern {
            params["_meta"] = meta();
        }
        self.send_json(&json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })).await;
        match self.answer(id).await {
            Some(answer) => {
                assert_eq!(answer["result"]["structuredContent"], json!({ "bytes": 3 }), "{answer}");
                true
            }
            None => false,
        }
    }

    /// Ends the session. The task of the server has not panicked.
    async fn end(self) {
        drop((self.lines, self.write));
        let ended = tokio::time::timeout(Duration::from_secs(30), self.serving).await.expect("the session ends");
        let stopped = ended.expect("the server does not panic");
        assert!(!matches!(stopped, Err(graph_mcp::McpServeError::Stopped(_))), "{stopped:?}");
    }
}

fn initialize() -> Value {
    let params = json!({
        "protocolVersion": "2025-11-25",
        "capabilities": { "elicitation": {} },
        "clientInfo": { "name": "raw", "version": "1" },
    });
    json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params })
}

/// Counts the graphs' runs and calls.
async fn assert_untouched(tree: &Tree, server: &GraphServer, valid: u64) {
    assert_eq!(server.dispatched(), valid, "only right calls are passed on");
    for graph in ["shop/echo", "shop/slow", "shop/fail", "shop/approve", "shop/list", "shop/wait"] {
        assert_eq!(tree.statuses(graph).await, Vec::<String>::new());
    }
    assert_eq!(tree.performed.load(std::sync::atomic::Ordering::Relaxed), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fuzz_in_a_session_calls_no_tool_and_ends_no_server() {
    let (messages, mut dice) = (number("MESSAGES", 1_000), Dice(number("SEED", 1)));
    let tree = Tree::new();
    let server = tree.server();
    for is_modern in [false, true] {
        let mut valid = server.dispatched();
        let mut sent = 0;
        while sent < messages {
            let mut client = RawClient::of(&server);
            if is_modern {
                let discover =
                    json!({ "jsonrpc": "2.0", "id": 0, "method": "server/discover", "params": { "_meta": meta() } });
                client.send_json(&discover).await;
            } else {
                client.send_json(&initialize()).await;
                client.send_json(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
            }
            let began = client.answer(0).await.unwrap();
            assert!(began.get("result").is_some(), "{began}");
            // The ids of the messages are lower.
            let mut id = 1_000_000;
            while sent < messages {
                for _ in 0..20 {
                    client.send(&line(&mut dice)).await;
                    sent += 1;
                }
                id += 1;
                if !client.still_answers(id, is_modern).await {
                    break;
                }
                valid += 1;
            }
            client.end().await;
        }
        assert_untouched(&tree, &server, valid).await;
    }
    // A client of good manners is served.
    let session = connect(&server, Client::default(), lifecycles()[0].clone()).await;
    call(&session, "shop_echo", json!({ "word": "hello" })).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fuzz_before_a_session_ends_the_session_at_most() {
    let (messages, mut dice) = (number("MESSAGES", 1_000), Dice(number("SEED", 1) ^ 0xffff));
    let tree = Tree::new();
    let server = tree.server();
    let mut sent = 0;
    while sent < messages {
        let mut client = RawClient::of(&server);
        for _ in 0..5 {
            client.send(&line(&mut dice)).await;
            sent += 1;
        }
        client.end().await;
    }
    assert_untouched(&tree, &server, 0).await;
    let session = connect(&server, Client::default(), lifecycles()[1].clone()).await;
    call(&session, "shop_echo", json!({ "word": "hello" })).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fuzz_of_arguments_starts_no_run() {
    let (messages, mut dice) = (number("MESSAGES", 1_000), Dice(number("SEED", 1) ^ 0xff));
    let tree = Tree::new();
    let server = tree.server();
    let session = connect(&server, Client::default(), lifecycles()[1].clone()).await;
    for _ in 0..messages {
        let mut arguments = Map::from_iter([("word".to_owned(), anything(&mut dice))]);
        if dice.below(2) == 0 {
            arguments.insert("unknown".to_owned(), json!(7));
        }
        // A text of two letters is right.
        let fits = arguments.len() == 1 && arguments["word"].as_str().is_some_and(|word| word.chars().count() > 1);
        // A message with more than 128 levels is not JSON to the server, and gets no answer.
        if !fits && levels(&arguments["word"]) < 100 {
            let (result, is_error) = call(&session, "shop_echo", Value::Object(arguments.clone())).await.unwrap();
            assert!(is_error, "{arguments:?}: {result}");
        }
    }
    assert_eq!(tree.statuses("shop/echo").await, Vec::<String>::new());
}

#[tokio::test]
async fn a_line_without_end_is_dropped() {
    let tree = Tree::new();
    let server = tree.server();
    let mut client = RawClient::of(&server);
    client.send_json(&initialize()).await;
    client.answer(0).await.unwrap();
    for _ in 0..6 {
        client.send(&vec![b'x'; 1 << 20]).await;
    }
    client.send(b"\n").await;
    assert!(client.still_answers(1, false).await);
    client.end().await;
}

//! Servers whose tools graphs call: good ones, and ones that lie, stall and die.

use std::time::Duration;

use graph_mcp::{DeclaredTool, McpClientError, McpEndpoint, McpServers, contract};
use graph_runtime::tools::{McpCalls as _, mcp};
use graph_runtime::{ActionError, Builtins, Call, IndexMap, ItemId, Runtime, ToolConfig, Value};
use serde_json::json;

/// A server in the language of shells: it answers each line by its method, and counts the calls in a file.
const SERVER: &str = r#"
say() { printf '%s\n' "$1"; }
while IFS= read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case "$line" in
    *'"server/discover"'*) say '{"jsonrpc":"2.0","id":'"$id"',"error":{"code":-32601,"message":"no"}}' ;;
    *'"initialize"'*) say '{"jsonrpc":"2.0","id":'"$id"',"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}}' ;;
    *'"tools/list"'*) LIST ;;
    *'"tools/call"'*) echo call >> "$LOG"; CALL ;;
    *'"notifications/cancelled"'*) echo cancelled >> "$LOG" ;;
  esac
done
"#;

pub(crate) const LISTED: &str = r#"say '{"jsonrpc":"2.0","id":'"$id"',"result":{"tools":[{"name":"Say.It","description":"Says.","inputSchema":{"type":"object","properties":{"word":{"type":"string","minLength":2}},"required":["word"]},"outputSchema":{"type":"object","properties":{"said":{"type":"string"}},"required":["said"]}}]}}'"#;

pub(crate) struct Scripted {
    directory: tempfile::TempDir,
}

impl Scripted {
    pub(crate) fn new(list: &str, call: &str) -> Self {
        let scripted = Self { directory: tempfile::tempdir().unwrap() };
        scripted.write(list, call);
        scripted
    }

    pub(crate) fn write(&self, list: &str, call: &str) {
        let log = self.directory.path().join("log");
        let text = format!("LOG={}\n{}", log.display(), SERVER.replace("LIST", list).replace("CALL", call));
        std::fs::write(self.directory.path().join("server.sh"), text).unwrap();
    }

    pub(crate) fn servers(&self, timeout: Duration) -> McpServers {
        let script = self.directory.path().join("server.sh").display().to_string();
        let endpoint = McpEndpoint::Command { command: vec!["bash".to_owned(), script], env: Vec::new() };
        McpServers::new().server_within("shop", endpoint, timeout)
    }

    /// Lets the server do something when it is started.
    pub(crate) fn prepend(&self, line: &str) {
        let script = self.path("server.sh");
        let text = std::fs::read_to_string(&script).unwrap();
        std::fs::write(script, format!("{line}\n{text}")).unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }
}

/// Answers a call with a result.
pub(crate) fn answer(result: &Value) -> String {
    format!(r#"say '{{"jsonrpc":"2.0","id":'"$id"',"result":{result}}}'"#)
}

pub(crate) fn good() -> String {
    answer(&json!({ "content": [], "structuredContent": { "said": "hi" } }))
}

pub(crate) async fn declared(servers: &McpServers) -> DeclaredTool {
    servers.tools("shop").await.unwrap().remove(0)
}

pub(crate) async fn call(servers: &McpServers, tool: &DeclaredTool, word: &str) -> Result<Value, ActionError> {
    let spec = json!({ "server": "shop", "tool": tool.name, "schema": tool.digest.to_hex() });
    let spec = serde_json::from_value(spec).unwrap();
    let call = Call::alone(ItemId::new("mcp/shop/say_it").unwrap(), Vec::new(), Default::default(), ToolConfig::new());
    servers.call(&call, &spec, json!({ "word": word })).await
}

pub(crate) const LONG: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_tool_is_imported_and_called() {
    let scripted = Scripted::new(LISTED, &good());
    let servers = scripted.servers(LONG);
    let tool = declared(&servers).await;
    let imported = contract("shop", &tool, true);
    assert_eq!(imported.id, "mcp/shop/say_it");
    assert!(imported.left_out.is_empty() && imported.text.contains(r#""minLength":2"#), "{imported:?}");
    assert!(imported.text.contains(r#""tool":"Say.It""#), "{}", imported.text);
    for _ in 0..2 {
        assert_eq!(call(&servers, &tool, "hi").await.unwrap(), json!({ "said": "hi" }));
    }
}

/// Generated code calls `mcp` of `graph-tools`, with the types of the contract.
#[tokio::test]
async fn a_compiled_graph_gets_a_typed_result_or_an_error() {
    let scripted = Scripted::new(LISTED, &good());
    let servers = scripted.servers(LONG);
    let tool = declared(&servers).await;
    let spec = json!({ "server": "shop", "tool": tool.name, "schema": tool.digest.to_hex() }).to_string();
    let id = ItemId::new("mcp/shop/say_it").unwrap();
    let call = |tools: ToolConfig| Call::alone(id.clone(), Vec::new(), Default::default(), tools);
    let reached = call(ToolConfig::new().mcp(servers));
    let params = || json!({ "word": "hi" });
    let said: IndexMap<String, String> = mcp(&spec, &reached, params()).await.unwrap();
    assert_eq!(said["said"], "hi");
    mcp::<_, IndexMap<String, i64>>(&spec, &reached, params()).await.unwrap_err();
    let alone = call(ToolConfig::new());
    let error = mcp::<_, Value>(&spec, &alone, params()).await.unwrap_err();
    assert!(error.to_string().contains("the program has no server `shop`"), "{error}");
}

#[tokio::test]
async fn a_changed_tool_is_not_called() {
    let scripted = Scripted::new(LISTED, &good());
    let tool = declared(&scripted.servers(LONG)).await;
    for (from, to) in
        [("Says.", "Says more."), ("minLength\":2", "minLength\":3"), ("\"said\"]", "]"), ("Say.It", "Say.That")]
    {
        scripted.write(&LISTED.replace(from, to), &good());
        let error = call(&scripted.servers(LONG), &tool, "hi").await.unwrap_err();
        assert!(!error.to_string().contains("Says more"), "{error}");
        assert!(error.to_string().contains("graph mcp import") || to == "Say.That", "{error}");
        assert_eq!(scripted.log(), "");
    }
}

#[tokio::test]
async fn errors_and_wrong_results_fail_the_call() {
    for (result, reason) in [
        (
            json!({ "content": [{ "type": "text", "text": "the till\u{7} is empty" }], "isError": true }),
            "the tool failed: the till  is empty",
        ),
        (json!({ "content": [] }), "without the structured result"),
        (json!({ "tools": [] }), "no result of a tool"),
    ] {
        let scripted = Scripted::new(LISTED, &answer(&result));
        let servers = scripted.servers(LONG);
        let error = call(&servers, &declared(&servers).await, "hi").await.unwrap_err();
        assert!(error.to_string().contains(reason), "{result}: {error}");
    }
    let refusing = r#"say '{"jsonrpc":"2.0","id":'"$id"',"error":{"code":-32602,"message":"no such word"}}'"#;
    let servers = Scripted::new(LISTED, refusing);
    let servers = (servers.servers(LONG), servers);
    let error = call(&servers.0, &declared(&servers.0).await, "hi").await.unwrap_err();
    assert!(error.to_string().contains("refuses the call: no such word"), "{error}");
}

#[tokio::test]
async fn a_server_that_stalls_or_dies_fails_in_time() {
    let scripted = Scripted::new(LISTED, ":");
    let servers = scripted.servers(Duration::from_secs(1));
    let tool = declared(&servers).await;
    let error = call(&servers, &tool, "hi").await.unwrap_err();
    assert!(error.to_string().contains("took longer than 1 s"), "{error}");
    let scripted = Scripted::new(LISTED, "exit 0");
    let servers = scripted.servers(LONG);
    let error = tokio::time::timeout(Duration::from_secs(10), call(&servers, &tool, "hi")).await.unwrap().unwrap_err();
    assert!(error.to_string().contains("did not answer") || error.to_string().contains("closed"), "{error}");
    // A new program answers the next call.
    scripted.write(LISTED, &good());
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(call(&servers, &tool, "hi").await.unwrap(), json!({ "said": "hi" }));
}

#[tokio::test]
async fn a_dropped_call_is_cancelled_at_the_server() {
    let scripted = Scripted::new(LISTED, ":");
    let servers = scripted.servers(LONG);
    let tool = declared(&servers).await;
    tokio::time::timeout(Duration::from_millis(500), call(&servers, &tool, "hi")).await.unwrap_err();
    for _ in 0..100 {
        if scripted.log() == "call\ncancelled\n" {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{}", scripted.log());
}

#[tokio::test]
async fn endless_lists_doubles_and_bad_endpoints_are_refused() {
    let endless = LISTED.replace(r#""tools":["#, r#""nextCursor":"x","tools":["#);
    let scripted = Scripted::new(&endless, &good());
    let error = scripted.servers(LONG).tools("shop").await.unwrap_err();
    assert!(matches!(error, McpClientError::Wrong { .. }), "{error}");
    let tool = declared(&Scripted::new(LISTED, &good()).servers(LONG)).await;
    let (start, end) = (LISTED.find("{\"name\"").unwrap(), LISTED.rfind("]}}'").unwrap());
    let twice = format!("{},{}", &LISTED[..end], &LISTED[start..]);
    let scripted = Scripted::new(&twice, &good());
    let error = call(&scripted.servers(LONG), &tool, "hi").await.unwrap_err();
    assert!(error.to_string().contains("twice") && scripted.log().is_empty(), "{error}");
    for url in ["http://shop.example/mcp", "ftp://127.0.0.1/", "nonsense"] {
        let endpoint = McpEndpoint::Url { url: url.to_owned(), token: Some("hunter2".to_owned()) };
        assert!(!format!("{endpoint:?}").contains("hunter2"));
        let error = McpServers::new().server("shop", endpoint).tools("shop").await.unwrap_err();
        assert!(matches!(error, McpClientError::Endpoint { .. }), "{error}");
    }
    let endpoint = McpEndpoint::Command { command: vec!["/nonexistent".to_owned()], env: Vec::new() };
    assert!(McpServers::new().server("shop", endpoint).tools("shop").await.is_err());
}

graph_runtime::graph!("tests/tree/shop/speak.yaml");

/// A graph that was compiled calls the tool of a server, whose declaration is that of the signed contract.
#[tokio::test]
async fn a_compiled_graph_calls_the_tool_of_a_server() {
    let run = async |scripted: &Scripted| {
        let tools = ToolConfig::new().mcp(scripted.servers(LONG));
        let runtime = Runtime::builder().tools(tools).grants(speak::CAPABILITIES).unwrap().build().unwrap();
        let inputs = speak::Inputs { word: "hi".to_owned() };
        let ended = runtime.start(Speak::new(Builtins), inputs).await.unwrap().await;
        ended.map(|finished| finished.to_value()["output"].clone()).map_err(|error| error.to_string())
    };
    let scripted = Scripted::new(LISTED, &good());
    assert_eq!(run(&scripted).await, Ok(json!({ "said": "hi" })));
    // The result does not have the type of the contract.
    let wrong = Scripted::new(LISTED, &answer(&json!({ "content": [], "structuredContent": { "said": 7 } })));
    assert!(run(&wrong).await.unwrap_err().contains("said"));
    let changed = Scripted::new(&LISTED.replace("Says.", "Deletes."), &good());
    assert!(run(&changed).await.unwrap_err().contains("graph mcp import"));
    assert_eq!(changed.log(), "");
}

/// Whether a process is there.
#[cfg(target_os = "linux")]
fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    // A process that has ended and that nobody has waited for yet has the state `Z`.
    stat.rsplit(')').next().is_some_and(|rest| !rest.trim_start().starts_with('Z') && !rest.is_empty())
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_server_ends_with_its_connection_and_takes_its_children_with_it() {
    let scripted = Scripted::new(LISTED, &good());
    let pids = scripted.directory.path().join("pids");
    // It leaves a process behind, and ignores that its stdin ends.
    let script = scripted.directory.path().join("server.sh");
    let text = std::fs::read_to_string(&script).unwrap();
    let text = format!("sleep 600 & echo $! >> {0}; echo $$ >> {0}\n{text}\nsleep 600\n", pids.display());
    std::fs::write(&script, text).unwrap();
    let servers = scripted.servers(LONG);
    declared(&servers).await;
    let started = std::fs::read_to_string(&pids).unwrap();
    assert_eq!(started.lines().count(), 2);
    assert!(started.lines().all(is_alive));
    drop(servers);
    let begun = std::time::Instant::now();
    while started.lines().any(is_alive) {
        assert!(begun.elapsed() < LONG, "a process of the server is left");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

//! A tree of signed graphs, a server of them, and a client that remembers what it hears.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use graph_mcp::{GraphServer, GraphServerBuilder, SideTool, Unserved};
use graph_runtime::answer::KeyRing;
use graph_runtime::dynamic::{Library, Toolbox};
use graph_runtime::{ActionError, ItemId, Map, MemoryStore, Options, RunId, Runtime, Store, Value};
use graph_signing::{ItemKind, KeyFile, SecretKey, sign};
use rmcp::model::{
    CallToolRequestParams, ClientCapabilities, ClientConfig, ElicitRequestParams, ElicitResult, ElicitationAction,
    ErrorData, Implementation, ProgressNotificationParam, ProtocolVersion,
};
use rmcp::service::{
    ClientLifecycleMode, NotificationContext, RequestContext, RoleClient, RunningService, serve_client_with_lifecycle,
};
use rmcp::{ClientHandler, ServiceError};
use serde_json::json;
use tokio::sync::Notify;

pub(crate) const HEAD: &str = "version: \"1.0.0\"\ntool_type: graph\nexecutor_id: rye/core/runtimes/state-graph/runtime\ncategory: shop\npermissions: [\"rye.execute.tool.test.*\"]\n";

const ECHO: &str = r#"description: Says a word again.
config_schema:
  type: object
  properties:
    word: { type: string, minLength: 2, description: The word. }
    times: { type: integer, default: 1, minimum: 1 }
    note: { type: [string, "null"], default: hello }
  required: [word]
config:
  start: first
  nodes:
    first: { type: gate, assign: { word: "${inputs.word}" }, next: second }
    second: { type: return, output: { word: "${state.word}", times: "${inputs.times}", note: "${inputs.note}" } }
"#;

const TOOL: &str = "config:
  start: call
  nodes:
    call: { action: { item_id: test/TOOL }, next: done }
    done: { type: return }
";

const APPROVE: &str = r#"config_schema: { type: object, properties: { cents: { type: integer } }, required: [cents] }
config:
  start: ask
  nodes:
    ask:
      type: interrupt
      payload: "May ${inputs.cents} cents be paid?"
      result_schema:
        type: object
        properties: { decision: { enum: [approve, refuse] }, note: { type: string } }
        required: [decision]
      assign: { decision: "${result.decision}" }
      next: done
    done: { type: return, output: { decision: "${state.decision}" } }
"#;

const LIST: &str = r#"config:
  start: ask
  nodes:
    ask:
      type: interrupt
      payload: Which ones?
      result_schema: { type: array, items: { type: integer } }
      assign: { chosen: "${result}" }
      next: done
    done: { type: return, output: { chosen: "${state.chosen}" } }
"#;

const WAIT: &str = "config:
  start: sleep
  nodes:
    sleep: { type: wait, timeout: 1h, next: done }
    done: { type: return }
";

const SECRET: &str =
    "config_schema: { type: object, properties: { key: { type: string, x-secret: true } }, required: [key] }
config:
  start: done
  nodes:
    done: { type: return }
";

const CONTRACT: &str = "version: \"1.0.0\"\ntool_type: rust\nconfig_schema: { type: object, properties: {} }\nresult_schema: { type: object, properties: {} }\n";

/// A tree whose files are signed, with what its tools did.
pub(crate) struct Tree {
    directory: tempfile::TempDir,
    key: SecretKey,
    /// How often each tool of the graphs was called.
    pub(crate) performed: Arc<AtomicU64>,
    /// Tells that the slow tool was called.
    pub(crate) began: Arc<Notify>,
    /// Tells that the slow tool was cancelled.
    pub(crate) stopped: Arc<Notify>,
    pub(crate) store: MemoryStore,
}

impl Tree {
    pub(crate) fn new() -> Self {
        let tree = Self {
            directory: tempfile::tempdir().unwrap(),
            key: SecretKey::from_seed(&[9; 32]),
            performed: Arc::default(),
            began: Arc::default(),
            stopped: Arc::default(),
            store: MemoryStore::new(),
        };
        let trusted = KeyFile::new(tree.key.public(), "self");
        fs::create_dir_all(tree.path("keys")).unwrap();
        let text = trusted.to_signed_toml(&tree.key, SystemTime::UNIX_EPOCH);
        fs::write(tree.path("keys").join(format!("{}.toml", trusted.fingerprint)), text).unwrap();
        for (name, text) in [("echo", ECHO), ("approve", APPROVE), ("list", LIST), ("wait", WAIT), ("hidden", SECRET)] {
            tree.write(&format!("shop/{name}.yaml"), &format!("{HEAD}{text}"));
        }
        for name in ["slow", "fail"] {
            tree.write(&format!("shop/{name}.yaml"), &format!("{HEAD}{}", TOOL.replace("TOOL", name)));
            tree.write(&format!("tools/test/{name}.yaml"), CONTRACT);
        }
        tree
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes a file in YAML, signed.
    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, sign(ItemKind::YAML, text, &self.key, SystemTime::UNIX_EPOCH).unwrap()).unwrap();
    }

    /// Returns the text of a signed file, without its signature.
    pub(crate) fn read(&self, name: &str) -> String {
        let text = fs::read_to_string(self.path(name)).unwrap();
        text.lines().skip(1).map(|line| format!("{line}\n")).collect()
    }

    pub(crate) fn library(&self) -> Library {
        let (slow, fail) = (Arc::clone(&self.performed), Arc::clone(&self.performed));
        let (began, stopped) = (Arc::clone(&self.began), Arc::clone(&self.stopped));
        let tools = Toolbox::new()
            .with("test/slow", move |call, _| {
                slow.fetch_add(1, Ordering::Relaxed);
                let (began, stopped) = (Arc::clone(&began), Arc::clone(&stopped));
                async move {
                    began.notify_one();
                    call.cancelled().await;
                    stopped.notify_one();
                    Ok(json!({}))
                }
            })
            .with("test/fail", move |_, _| {
                fail.fetch_add(1, Ordering::Relaxed);
                async { Err(ActionError::permanent("the shop burnt down")) }
            });
        Library::open(self.directory.path(), tools)
    }

    /// Returns a runtime of the tree, with its store.
    pub(crate) fn runtime(&self) -> Runtime {
        let public = self.key.public();
        let ring = move || KeyRing::from_files([KeyFile::new(public.clone(), "self")]);
        let builder = Runtime::builder().store(self.store.clone()).sign_with(self.key.clone()).events(256);
        builder.answer_keys(ring).grant("rye.execute.tool.test.*").unwrap().build().unwrap()
    }

    /// Returns a server of graphs, and why the others are not served.
    pub(crate) fn server_of(&self, ids: &[&str], has_key: bool) -> (GraphServer, Vec<Unserved>) {
        self.served(GraphServer::builder(), ids, has_key)
    }

    pub(crate) fn server_with_most(&self, calls: usize) -> GraphServer {
        let mut builder = GraphServer::builder();
        builder.most_calls(calls);
        self.served(builder, &["shop/echo", "shop/slow"], false).0
    }

    /// Returns why a graph is not served whose permissions nobody granted.
    pub(crate) fn refused_without_grant(&self) -> Unserved {
        let library = self.library();
        let graph = library.graph(&self.path("shop/slow.yaml")).unwrap();
        let runtime = Runtime::builder().build().unwrap();
        GraphServer::builder().graph(&library, graph, runtime, Options::default()).unwrap_err()
    }

    fn served(&self, mut builder: GraphServerBuilder, ids: &[&str], has_key: bool) -> (GraphServer, Vec<Unserved>) {
        let library = self.library();
        let mut unserved = Vec::new();
        for id in ids {
            let file = library.find(&ItemId::new(*id).unwrap()).unwrap();
            let graph = library.graph(&file).unwrap_or_else(|error| panic!("{error}"));
            unserved.extend(builder.graph(&library, graph, self.runtime(), Options::default()).err());
        }
        if has_key {
            builder.answer_key(self.key.clone());
        }
        builder.side_tool(SideTool {
            name: "length",
            description: "Counts the bytes of a text.",
            input: schema(json!({ "type": "object", "properties": { "text": { "type": "string" } } })),
            output: schema(json!({ "type": "object", "properties": { "bytes": { "type": "integer" } } })),
            call: Arc::new(|arguments| match arguments.get("text").and_then(Value::as_str) {
                Some(text) => Ok(json!({ "bytes": text.len() })),
                None => Err("`text` is a text".to_owned()),
            }),
        });
        (builder.build().unwrap(), unserved)
    }

    pub(crate) fn server(&self) -> GraphServer {
        let ids = ["shop/echo", "shop/slow", "shop/fail", "shop/approve", "shop/list", "shop/wait"];
        let (server, unserved) = self.server_of(&ids, true);
        assert!(unserved.is_empty(), "{unserved:?}");
        server
    }

    /// Returns how the runs of a graph are.
    pub(crate) async fn statuses(&self, graph: &str) -> Vec<String> {
        let runs = self.store.list().await.unwrap();
        let of_it = runs.iter().filter(|one| one.graph == graph);
        of_it.map(|one| one.status.name().to_owned()).collect()
    }

    /// Fails unless the journal of a run of `shop/echo` is proven.
    pub(crate) async fn assert_proven(&self, run: &str) {
        let graph = self.library().graph(&self.path("shop/echo.yaml")).unwrap();
        let run = RunId::new(run).unwrap();
        graph_runtime::audit_tree(Arc::new(graph), &run, &self.store, &self.key.public(), None).await.unwrap();
    }

    /// Returns how a run is, as its store has it.
    pub(crate) async fn status(&self, run: &str) -> String {
        let runs = self.store.list().await.unwrap();
        let found = runs.iter().find(|one| one.run.as_str() == run);
        found.unwrap_or_else(|| panic!("no run {run}")).status.name().to_owned()
    }
}

fn schema(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

/// A client. It answers forms with the values that it was given, and remembers what it heard.
#[derive(Clone, Default)]
pub(crate) struct Client {
    pub(crate) answers: Arc<Mutex<Vec<Value>>>,
    pub(crate) asked: Arc<Mutex<Vec<(String, Value)>>>,
    pub(crate) progress: Arc<Mutex<Vec<(f64, String)>>>,
    pub(crate) has_forms: bool,
}

impl Client {
    /// A client whose person gives these answers, and declines after them.
    pub(crate) fn with_person(answers: impl IntoIterator<Item = Value>) -> Self {
        let answers = answers.into_iter().collect::<Vec<_>>().into_iter().rev().collect();
        Self { answers: Arc::new(Mutex::new(answers)), has_forms: true, ..Self::default() }
    }
}

impl ClientHandler for Client {
    fn get_info(&self) -> ClientConfig {
        let capabilities = match self.has_forms {
            true => ClientCapabilities::builder().enable_elicitation().build(),
            false => ClientCapabilities::default(),
        };
        ClientConfig::new(capabilities, Implementation::new("test", "1"))
    }

    async fn create_elicitation(
        &self,
        params: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let ElicitRequestParams::FormElicitationParams { message, requested_schema, .. } = params else {
            panic!("{params:?}")
        };
        self.asked.lock().unwrap().push((message, serde_json::to_value(requested_schema).unwrap()));
        Ok(match self.answers.lock().unwrap().pop() {
            Some(answer) => ElicitResult::new(ElicitationAction::Accept).with_content(answer),
            None => ElicitResult::new(ElicitationAction::Decline),
        })
    }

    async fn on_progress(&self, params: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        self.progress.lock().unwrap().push((params.progress, params.message.unwrap_or_default()));
    }
}

/// The two kinds of sessions: with `initialize`, as older clients begin one, and without.
pub(crate) fn lifecycles() -> [ClientLifecycleMode; 2] {
    let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
    [ClientLifecycleMode::Initialize, ClientLifecycleMode::Discover { preferred_versions }]
}

pub(crate) type Session = RunningService<RoleClient, Client>;

/// Connects a client to a server in this process.
pub(crate) async fn connect(server: &GraphServer, client: Client, lifecycle: ClientLifecycleMode) -> Session {
    let (near, far) = tokio::io::duplex(1 << 16);
    let (read, write) = tokio::io::split(far);
    let server = server.clone();
    tokio::spawn(async move { server.serve(read, write).await });
    serve_client_with_lifecycle(client, near, lifecycle).await.unwrap()
}

pub(crate) fn request(name: &'static str, arguments: Value) -> CallToolRequestParams {
    CallToolRequestParams::new(name).with_arguments(arguments.as_object().unwrap().clone())
}

/// Calls a tool. Returns its structured result, and whether it is an error.
pub(crate) async fn call(
    session: &Session,
    name: &'static str,
    arguments: Value,
) -> Result<(Value, bool), ServiceError> {
    let result = session.call_tool(request(name, arguments)).await?;
    let text = result.content[0].as_text().unwrap().text.clone();
    let value = result.structured_content.unwrap_or_else(|| text.clone().into());
    if let Ok(said) = serde_json::from_str::<Value>(&text) {
        assert_eq!(said, value, "the text is the structured result");
    }
    Ok((value, result.is_error == Some(true)))
}

/// Waits for a notification, for some seconds.
pub(crate) async fn soon(notify: &Notify) {
    tokio::time::timeout(Duration::from_secs(20), notify.notified()).await.unwrap();
}

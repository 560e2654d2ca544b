//! A tree with a program, which is a script, and tools that note their calls.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use graph_compiler::diagnostic::Diagnostic;
use graph_runtime::dynamic::{Interpreted, Library, Toolbox};
use graph_runtime::testing::{FaultyStore, TestBed};
use graph_runtime::{ActionError, Finished, Map, Run, RunError, RunId, Runtime, Store, ToolConfig, Value};
use graph_signing::{ItemKind, KeyFile, SecretKey, sign};
use serde_json::json;

pub(crate) const BATCH: &str = r#"version: "1.0.0"
tool_type: program
description: Processes a batch of items.
config:
  command: [bin/program]
  cwd: "."
  calls: [shop/process, shop/count]
  limits: { calls: 600, timeout: 60s }
config_schema:
  type: object
  properties: { items: { type: array, items: { type: string } } }
  required: [items]
result_schema:
  type: object
  properties: { processed: { type: integer }, replies: { type: array, items: {} } }
  required: [processed]
"#;

const PROCESS: &str = "version: \"1.0.0\"\ntool_type: rust\ndescription: Processes an item.
config_schema: { type: object, properties: { item: { type: string }, note: {} }, required: [item] }
result_schema: { type: object, properties: { done: { type: string } }, required: [done] }\n";

const COUNT: &str = "version: \"1.0.0\"\ntool_type: rust\nconfig_schema: { type: object, properties: {} }
result_schema: { type: integer }\n";

/// A tool that no contract lists.
const CHARGE: &str = "version: \"1.0.0\"\ntool_type: rust\nconfig_schema: { type: object, properties: {} }\n";

const SALES: &str = r#"version: "1.0.0"
tool_type: graph
executor_id: rye/core/runtimes/state-graph/runtime
category: shop
permissions: [rye.execute.tool.rye.program.turn, "rye.execute.tool.shop.*"]
config_schema:
  type: object
  properties: { items: { type: array, items: { type: string } } }
  required: [items]
config:
  start: batch
  nodes:
    batch:
      action: { item_id: shop/batch, params: { items: "${inputs.items}" } }
      assign: { processed: "${result.output.processed}", replies: "${result.output.replies}" }
      next: done
    done: { type: return, output: { processed: "${state.processed}", replies: "${state.replies}" } }
"#;

/// The beginning of each script: `ask` sends a line and waits for the reply.
const BEGIN: &str = "#!/usr/bin/env bash
set -euo pipefail
echo $$ >> pids
ask() { printf '%s\\n' \"$1\" >&0; IFS= read -r reply; }
IFS= read -r inputs
";

/// The calls of tools that were made: ids, parameters and keys.
pub(crate) type Made = Arc<Mutex<Vec<(String, Value, String)>>>;

/// A tree whose files are signed.
pub(crate) struct Tree {
    directory: tempfile::TempDir,
    key: SecretKey,
    pub(crate) made: Made,
}

impl Tree {
    /// A tree whose program is a script of bash.
    pub(crate) fn new(script: &str) -> Self {
        let tree =
            Self { directory: tempfile::tempdir().unwrap(), key: SecretKey::from_seed(&[9; 32]), made: Arc::default() };
        let trusted = KeyFile::new(tree.key.public(), "self");
        let keys = tree.path("keys");
        fs::create_dir_all(&keys).unwrap();
        let text = trusted.to_signed_toml(&tree.key, SystemTime::UNIX_EPOCH);
        fs::write(keys.join(format!("{}.toml", trusted.fingerprint)), text).unwrap();
        for (name, text) in [
            ("tools/shop/batch.yaml", BATCH),
            ("tools/shop/process.yaml", PROCESS),
            ("tools/shop/count.yaml", COUNT),
            ("tools/shop/charge.yaml", CHARGE),
            ("shop/sales.yaml", SALES),
        ] {
            tree.write(name, text);
        }
        tree.program(&format!("{BEGIN}{script}"));
        tree
    }

    /// Writes the program.
    pub(crate) fn program(&self, script: &str) {
        let path = self.path("bin/program");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join("graphs").join(name)
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

    /// Changes the contract of the program.
    pub(crate) fn change(&self, from: &str, to: &str) {
        assert!(BATCH.contains(from), "{from}");
        self.write("tools/shop/batch.yaml", &BATCH.replace(from, to));
    }

    /// Changes the graph around the program.
    pub(crate) fn change_graph(&self, from: &str, to: &str) {
        assert!(SALES.contains(from), "{from}");
        self.write("shop/sales.yaml", &SALES.replace(from, to));
    }

    fn library(&self) -> Library {
        let (processed, counted, charged) = (Arc::clone(&self.made), Arc::clone(&self.made), Arc::clone(&self.made));
        let note = |made: &Made, call: &graph_runtime::Call, params: &Map<String, Value>| {
            let entry = (call.tool().to_owned(), Value::Object(params.clone()), call.idempotency_key());
            made.lock().unwrap().push(entry);
        };
        let tools = Toolbox::new()
            .with("shop/process", move |call, params| {
                note(&processed, &call, &params);
                let item = params.get("item").and_then(Value::as_str).unwrap_or_default().to_owned();
                async move {
                    match item.as_str() {
                        "broken" => Err(ActionError::permanent("the item is broken")),
                        "slow" => {
                            tokio::time::sleep(Duration::from_secs(60)).await;
                            Ok(json!({ "done": item }))
                        }
                        item => Ok(json!({ "done": item.to_uppercase() })),
                    }
                }
            })
            .with("shop/count", move |call, params| {
                note(&counted, &call, &params);
                async { Ok(json!(7)) }
            })
            .with("shop/charge", move |call, params| {
                note(&charged, &call, &params);
                async { Ok(json!(null)) }
            });
        Library::open(&self.path(""), tools)
    }

    /// Returns the graph around the program.
    pub(crate) fn graph(&self) -> Interpreted {
        self.library().graph(&self.path("shop/sales.yaml")).unwrap_or_else(|error| panic!("{error:#?}"))
    }

    /// Returns the graph of the program.
    pub(crate) fn program_graph(&self) -> Interpreted {
        self.library().graph(&self.path("tools/shop/batch.yaml")).unwrap_or_else(|error| panic!("{error:#?}"))
    }

    /// Returns why the graph around the program cannot be loaded.
    pub(crate) fn mistakes(&self) -> Vec<Diagnostic> {
        match self.library().graph(&self.path("shop/sales.yaml")) {
            Ok(_) => Vec::new(),
            Err(error) => error.diagnostics,
        }
    }

    /// Returns a process whose runs use a store.
    pub(crate) fn runtime(&self, bed: &TestBed, store: impl Store) -> Runtime {
        bed.process(store).tools(ToolConfig::new().programs(self.path("")).unwrap()).build().unwrap()
    }

    pub(crate) async fn start(&self, runtime: &Runtime) -> Run<Value> {
        let inputs = Map::from_iter([("items".to_owned(), json!(["a", "b"]))]);
        runtime.start_as(RunId::new("run").unwrap(), self.graph(), inputs).await.unwrap()
    }

    /// Runs the graph around the program, and proves its journal.
    pub(crate) async fn run(&self, bed: &TestBed) -> Result<Value, String> {
        let runtime = self.runtime(bed, bed.disk().clone());
        let ended = self.start(&runtime).await.await;
        self.prove(bed).await;
        self.assert_no_process();
        ended.map(|finished| finished.output).map_err(|error| error.to_string())
    }

    /// Starts the run, or resumes it, in a process that may die.
    pub(crate) async fn go_on(
        &self,
        bed: &TestBed,
        store: FaultyStore<graph_runtime::MemoryStore>,
    ) -> Option<Result<Finished<Value>, RunError>> {
        let runtime = self.runtime(bed, store.clone());
        let id = RunId::new("run").unwrap();
        let run = match runtime.resume(self.graph(), &id).await {
            Ok(run) => run,
            Err(_) if store.is_dead() => return None,
            Err(_) => {
                let inputs = Map::from_iter([("items".to_owned(), json!(["a", "b"]))]);
                runtime.start_as(id, self.graph(), inputs).await.ok()?
            }
        };
        let ended = run.await;
        (!store.is_dead()).then_some(ended)
    }

    /// Proves the run and the one inside.
    pub(crate) async fn prove(&self, bed: &TestBed) -> usize {
        let machine = Arc::new(self.graph());
        let (id, key) = (RunId::new("run").unwrap(), bed.key().public());
        let audits = graph_runtime::audit_tree(machine, &id, bed.disk(), &key, Some(&bed.encryption_key())).await;
        audits.unwrap().len()
    }

    /// Returns the processes of the program so far.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let pids = fs::read_to_string(self.path("pids")).unwrap_or_default();
        pids.lines().map(|pid| pid.parse().unwrap()).collect()
    }

    /// Waits until no process of the program is left, not even one that nobody waited for.
    pub(crate) fn assert_no_process(&self) {
        let (began, is_there) = (Instant::now(), |pid: &u32| PathBuf::from(format!("/proc/{pid}")).exists());
        while let Some(pid) = self.processes().iter().find(|pid| is_there(pid)) {
            assert!(began.elapsed() < Duration::from_secs(10), "process {pid} is left");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Returns how often each call was made, by its key.
    pub(crate) fn times(&self) -> BTreeMap<String, usize> {
        let mut times = BTreeMap::new();
        for (_, _, key) in self.made.lock().unwrap().iter() {
            *times.entry(key.clone()).or_default() += 1;
        }
        times
    }
}

/// Returns a request.
pub(crate) fn request(id: u32, tool: &str, arguments: &Value) -> String {
    json!({ "jsonrpc": "2.0", "id": id, "method": tool, "params": arguments }).to_string()
}

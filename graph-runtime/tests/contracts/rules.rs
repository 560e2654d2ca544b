//! Random schemas with rules, random values, and each door through which a value enters: a tool is called, or a run begins,
//! exactly if a judge that shares no code with the project says that the value fits. The calls are counted from outside, and
//! the journal of each run is proven.
//!
//! `RULES` is the number of schemas, 25 by default; `SEED` makes others.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use graph_runtime::dynamic::{Interpreted, Library, Toolbox};
use graph_runtime::{Map, MemoryStore, RunId, Runtime, ToolConfig, Value, audit_tree};
use graph_signing::KeyFile;
use serde_json::json;

use super::judge::{NAMES, Random, fits, likely_object, object};
use super::{key, signed};

/// The result of the tool whose result a test chooses.
type Made = Arc<Mutex<Value>>;

struct Doors {
    directory: tempfile::TempDir,
    performed: Arc<AtomicU64>,
    made: Made,
    library: Library,
}

fn graph(config_schema: &Value, nodes: &Value) -> Value {
    json!({
        "version": "1.0.0",
        "tool_type": "graph",
        "executor_id": "rye/core/runtimes/state-graph/runtime",
        "category": "g",
        "permissions": ["rye.execute.tool.*"],
        "config_schema": config_schema,
        "config": { "start": "call", "nodes": nodes },
    })
}

impl Doors {
    fn new(schema: &Value) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: String| {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let trusted = KeyFile::new(key().public(), "the key of these tests");
        write(&format!("keys/{}.toml", trusted.fingerprint), trusted.to_signed_toml(&key(), SystemTime::UNIX_EPOCH));
        let allowed = ["G0133", "G0139", "G0170"].map(|lint| format!("{lint} = \"allow\"\n")).concat();
        write("graphs.toml", signed(&format!("[lints]\n{allowed}")));
        let write = |name: &str, value: &Value| write(name, signed(&format!("{value:#}\n")));
        let log = directory.path().join("log");
        let script = format!("cat > /dev/null; echo called >> {}; echo '{{}}'", log.display());
        write("tools/t/ruled.yaml", &json!({ "version": "1.0.0", "tool_type": "rust", "config_schema": schema }));
        write("tools/t/made.yaml", &json!({ "version": "1.0.0", "tool_type": "rust", "result_schema": schema }));
        write(
            "tools/t/program.yaml",
            &json!({
                "version": "1.0.0",
                "tool_type": "subprocess",
                "config": { "command": ["sh", "-c", script] },
                "config_schema": schema,
            }),
        );
        let any = json!({ "type": "object", "properties": { "which": {}, "a": {}, "b": {}, "c": {}, "d": {} } });
        let params: Map<String, Value> =
            NAMES.iter().map(|name| ((*name).to_owned(), json!(format!("${{inputs.{name}}}")))).collect();
        let call = |id: &str| {
            let action = json!({ "item_id": id, "params": params });
            json!({ "call": { "action": action, "next": "done" }, "done": { "type": "return" } })
        };
        write("node.yaml", &graph(&any, &call("t/ruled")));
        let mut chosen = any.clone();
        chosen["properties"]["which"] = json!({ "type": "string", "x-sink": "item" });
        chosen["required"] = json!(["which"]);
        write("computed.yaml", &graph(&chosen, &call("t/${inputs.which}")));
        write("program.yaml", &graph(&any, &call("t/program")));
        write("nested.yaml", &graph(&any, &call("g/inner")));
        let over = json!({
            "call": { "type": "foreach", "over": [1], "action": { "item_id": "t/ruled", "params": params }, "next": "done" },
            "done": { "type": "return" },
        });
        write("foreach.yaml", &graph(&any, &over));
        let count =
            json!({ "call": { "action": { "item_id": "t/count" }, "next": "done" }, "done": { "type": "return" } });
        write("inner.yaml", &graph(schema, &count));
        let made =
            json!({ "call": { "action": { "item_id": "t/made" }, "next": "done" }, "done": { "type": "return" } });
        write("result.yaml", &graph(&json!({ "type": "object", "properties": {} }), &made));
        let (performed, made): (Arc<AtomicU64>, Made) = Default::default();
        let counts = || {
            let performed = Arc::clone(&performed);
            move || performed.fetch_add(1, Ordering::Relaxed)
        };
        let (ruled, count, answers, answer) = (counts(), counts(), counts(), Arc::clone(&made));
        let tools = Toolbox::new()
            .with("t/ruled", move |_, _| {
                ruled();
                async { Ok(json!({})) }
            })
            .with("t/count", move |_, _| {
                count();
                async { Ok(json!({})) }
            })
            .with("t/made", move |_, _| {
                answers();
                let answer = answer.lock().unwrap().clone();
                async { Ok(answer) }
            });
        let library = Library::open(directory.path(), tools);
        Self { directory, performed, made, library }
    }

    fn graph(&self, name: &str) -> Interpreted {
        let loaded = self.library.graph(&self.directory.path().join(format!("{name}.yaml")));
        loaded.unwrap_or_else(|error| panic!("{name}: {:?}", error.diagnostics))
    }

    /// Returns how many calls of tools were made.
    fn calls(&self) -> u64 {
        let log = fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
        self.performed.load(Ordering::Relaxed) + log.lines().count() as u64
    }
}

/// Runs a graph, and returns why it failed, if it did. Its journal is proven.
async fn run(doors: &Doors, name: &str, inputs: Map<String, Value>) -> Result<(), String> {
    let (store, graph) = (MemoryStore::new(), doors.graph(name));
    let tools = ToolConfig::new().programs(doors.directory.path()).unwrap();
    let runtime = Runtime::builder().store(store.clone()).sign_with(key()).tools(tools).grant("*").unwrap();
    let id = RunId::new("run").unwrap();
    let options = graph_runtime::Options { run: Some(id.clone()), ..Default::default() };
    let ended = match runtime.build().unwrap().start_with(options, graph.clone(), inputs).await {
        Ok(run) => run.await.map(|_| ()).map_err(|error| error.to_string()),
        Err(error) => return Err(error.to_string()),
    };
    let proven = audit_tree(Arc::new(graph), &id, &store, &key().public(), None).await;
    proven.unwrap_or_else(|error| panic!("{name}: {ended:?}: {error}"));
    ended
}

#[test]
fn a_value_enters_exactly_if_it_keeps_the_rules() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (count, seed) = (number("RULES").unwrap_or(25), number("SEED").unwrap_or(1));
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (mut random, mut fitting, mut refused) = (Random::new(seed), 0_u64, 0_u64);
    for _ in 0..count {
        let schema = object(&mut random, 2);
        let doors = Doors::new(&schema);
        for at in 0..8 {
            let mut given = likely_object(&mut random, &schema);
            let value = Value::Object(given.clone());
            let expected = fits(&schema, &value);
            *(if expected { &mut fitting } else { &mut refused }) += 1;
            *doors.made.lock().unwrap() = value.clone();
            let doors_of_value: &[&str] = match at {
                0 => &["node", "foreach", "computed", "nested", "inner", "program"],
                _ => &["node", "foreach", "computed", "nested", "inner"],
            };
            for name in doors_of_value {
                given.remove("which");
                if *name != "inner" {
                    given.insert("which".to_owned(), json!("ruled"));
                }
                let before = doors.calls();
                let ended = tokio.block_on(run(&doors, name, given.clone()));
                let is_called = doors.calls() - before == 1;
                assert_eq!(
                    (is_called, ended.is_ok()),
                    (expected, expected),
                    "{name}: {ended:?}\n{}\n{schema}",
                    Value::Object(given)
                );
            }
            let (before, ended) = (doors.calls(), tokio.block_on(run(&doors, "result", Map::new())));
            assert_eq!((doors.calls() - before, ended.is_ok()), (1, expected), "{ended:?}\n{value}\n{schema}");
        }
    }
    assert!(fitting.min(refused) * 4 > fitting.max(refused), "{fitting} fit, {refused} do not");
}

/// A tree may give a tool of the runtime a contract of its own that says more. Its rules hold for requests too, whose result is a stranger's.
#[test]
fn a_contract_of_the_tree_gives_a_tool_of_the_runtime_rules() {
    let doors = Doors::new(&json!({ "type": "object", "properties": {} }));
    let contract = json!({
        "version": "1.0.0",
        "tool_type": "builtin",
        "config_schema": {
            "type": "object",
            "properties": {
                "command": { "type": "string" },
                "env": { "type": "object", "additionalProperties": { "type": "string", "maxLength": 3 } },
            },
            "required": ["command"],
        },
        "result_schema": { "type": "object", "properties": { "stdout": { "type": "string", "maxLength": 2 } } },
    });
    let write = |name: &str, value: &Value| {
        let path = doors.directory.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, signed(&format!("{value:#}\n"))).unwrap();
    };
    write("tools/rye/bash.yaml", &contract);
    let log = doors.directory.path().join("log");
    let command = format!("echo called >> {}; echo \"$WORD\"", log.display());
    let action = json!({ "item_id": "rye/bash", "params": { "command": command, "env": { "WORD": "${inputs.a}" } } });
    let nodes = json!({ "call": { "action": action, "next": "done" }, "done": { "type": "return" } });
    write("bash.yaml", &graph(&json!({ "type": "object", "properties": { "a": { "type": "string" } } }), &nodes));
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    for (word, calls, says) in [
        ("a", 1, None),
        ("abc", 1, Some("the result of `rye/bash` does not fit: expected what `maxLength: 2` allows")),
        (
            "abcd",
            0,
            Some(
                "the parameters of `rye/bash` do not fit: expected what `maxLength: 3` allows, found a string at `env.WORD`",
            ),
        ),
    ] {
        let before = doors.calls();
        let ended = tokio.block_on(run(&doors, "bash", Map::from_iter([("a".to_owned(), json!(word))])));
        assert_eq!(doors.calls() - before, calls, "{word}: {ended:?}");
        match says {
            None => assert_eq!(ended, Ok(())),
            Some(says) => assert!(ended.clone().unwrap_err().contains(says), "{word}: {ended:?}"),
        }
    }
}

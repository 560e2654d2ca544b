//! A graph with 50 branches runs many times with other delays and another `max_concurrency`, and its steps are the same.
//!
//! `RUNS=1000 cargo test --release --test engines determinism` makes more runs.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use graph_compiler::graph::TypedTool;
use graph_runtime::dynamic::{Interpreted, Library, ToolFuture, Tools};
use graph_runtime::{ActionError, Call, Map, Options, Runtime, TokioClock, Value, audit};
use graph_signing::{ItemKind, KeyFile, SecretKey, sign};
use serde_json::json;
use tempfile::TempDir;

use super::case::{BEGAN, Log, key, run_id, within};
use super::random::Random;

/// A tool that answers after a random delay with what depends on its parameters only; for some of them it fails.
#[derive(Clone, Default)]
struct Late(Arc<AtomicU64>);

impl Tools for Late {
    fn perform<'a>(&'a self, _: &'a Call, _: &'a TypedTool, params: Map<String, Value>) -> ToolFuture<'a> {
        let mut random = Random::new(self.0.fetch_add(1, Ordering::Relaxed));
        let delay = random.below(1000);
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(delay)).await;
            let number = params.get("n").and_then(Value::as_i64).unwrap_or_default();
            match number % 7 {
                3 => Err(ActionError::permanent(format!("{number} fails"))),
                _ => Ok(json!({"n": number, "word": format!("w{}", number % 5)})),
            }
        })
    }
}

const BRANCHES: usize = 50;

fn text(width: u32) -> String {
    format!(
        r#"version: "1.0.0"
tool_type: graph
executor_id: rye/core/runtimes/state-graph/runtime
permissions: [rye.execute.tool.*]
config_schema: {{ type: object, properties: {{ list: {{ type: array, items: {{ type: integer }} }} }}, required: [list] }}
config:
  start: split
  max_steps: 1000
  max_concurrency: {width}
  state: {{ most: -1, by: {{}} }}
  channels: {{ all: append, words: union, sum: sum, most: max, talk: messages, errors: append }}
  nodes:
    split: {{ type: gate, next: {{ over: "${{inputs.list}}", as: one, to: call }} }}
    call:
      action: {{ item_id: t/call, params: {{ n: "${{one}}" }} }}
      assign: {{ all: "${{one}}", words: ["w", "${{result.word}}"], sum: "${{result.n}}", most: "${{result.n}}", talk: {{ id: "${{result.word}}", n: "${{one}}" }} }}
      on_error: failed
      next: [{{ to: again, when: {{ path: one, op: gt, value: 24 }} }}, {{ to: met }}]
    again: {{ action: {{ item_id: t/call, params: {{ n: 1 }} }}, assign: {{ all: 0.5, sum: 1 }}, next: met }}
    failed: {{ type: gate, assign: {{ errors: "${{state._last_error.error}}" }}, next: met }}
    met: {{ type: gate, waits_for: [call, again, failed], next: [{{ to: split, when: {{ path: visit.number, op: lt, value: 2 }} }}, {{}}] }}
"#
    )
}

/// A record without what may differ between two runs: times, links to earlier records, and the graph's name and digest.
fn settled(body: &str) -> Option<Value> {
    let mut record: Value = serde_json::from_str(body).expect("a record is JSON");
    // These list calls in the order in which they finished.
    if record["kind"] == json!("calls") {
        return None;
    }
    remove(&mut record);
    Some(record)
}

fn remove(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| {
                !matches!(name.as_str(), "at" | "ms" | "seq" | "prev" | "end" | "digest" | "meaning" | "graph")
            });
            fields.values_mut().for_each(remove);
        }
        Value::Array(list) => list.iter_mut().for_each(remove),
        _ => {}
    }
}

fn steps(graph: &Interpreted, branches: usize) -> (Vec<Value>, Log) {
    let log = Log::default();
    within(false, async {
        log.begin(tokio::time::Instant::now(), Duration::ZERO);
        let clock = Arc::new(TokioClock::at(SystemTime::UNIX_EPOCH + BEGAN));
        let runtime = Runtime::builder().clock(clock).store(log.clone()).sign_with(key()).grant("*").unwrap();
        let list: Vec<Value> = (0..branches).map(Value::from).collect();
        let inputs = Map::from_iter([("list".to_owned(), Value::from(list))]);
        let options = Options { run: Some(run_id()), ..Options::default() };
        let run = runtime.build().unwrap().start_with(options, graph.clone(), inputs).await.unwrap();
        run.await.unwrap();
    });
    (log.bodies().iter().filter_map(|body| settled(body)).collect(), log)
}

/// Returns a tree that trusts a key, and the key.
pub(crate) fn tree() -> (TempDir, SecretKey) {
    let directory = tempfile::tempdir().unwrap();
    let secret = SecretKey::from_seed(&[9; 32]);
    let file = KeyFile::new(secret.public(), "the key of this test");
    fs::create_dir(directory.path().join("keys")).unwrap();
    let name = format!("keys/{}.toml", file.fingerprint);
    fs::write(directory.path().join(name), file.to_signed_toml(&secret, SystemTime::UNIX_EPOCH)).unwrap();
    (directory, secret)
}

#[test]
fn determinism_of_fifty_branches_with_other_delays_and_widths() {
    let runs = std::env::var("RUNS").ok().and_then(|text| text.parse().ok()).unwrap_or(40);
    let (directory, secret) = tree();
    let late = Late::default();
    let library = Library::open(directory.path(), late.clone());
    let mut first: Option<Vec<Value>> = None;
    let mut orders = std::collections::HashSet::new();
    for run in 0..runs {
        let width = run % 64 + 1;
        // A library reads each file once.
        let path = directory.path().join(format!("fifty{width}.yaml"));
        fs::write(&path, sign(ItemKind::YAML, &text(width), &secret, SystemTime::UNIX_EPOCH).unwrap()).unwrap();
        let graph = library.graph(&path).unwrap();
        let (steps, log) = steps(&graph, BRANCHES);
        let calls: Vec<String> = log.bodies().into_iter().filter(|body| body.contains("\"kind\":\"calls\"")).collect();
        orders.insert(calls.iter().map(String::len).sum::<usize>());
        let first = first.get_or_insert_with(|| steps.clone());
        for (at, (one, other)) in first.iter().zip(&steps).enumerate() {
            assert_eq!(one, other, "record {at} of run {run}, with at most {width} calls at a time");
        }
        assert_eq!(first.len(), steps.len());
        if run % 20 == 0 {
            let records: Vec<_> = log.entered().into_iter().map(|entered| entered.signed).collect();
            audit(&graph, &run_id(), &records, &key().public(), None).unwrap();
        }
    }
    assert!(orders.len() > 1, "the calls finished in other orders");
}

#[test]
fn ten_thousand_branches_add_up_in_the_order_of_their_list() {
    let (directory, secret) = tree();
    let library = Library::open(directory.path(), Late::default());
    let path = directory.path().join("many.yaml");
    let text = text(64).replace("max_steps: 1000", "max_steps: 100000").replace("value: 2 }", "value: 1 }");
    fs::write(&path, sign(ItemKind::YAML, &text, &secret, SystemTime::UNIX_EPOCH).unwrap()).unwrap();
    let graph = library.graph(&path).unwrap();
    let (steps, log) = steps(&graph, 10_000);
    let end = steps.last().unwrap();
    let all = |value: &Value| value.as_array().unwrap().iter().filter_map(Value::as_i64).collect::<Vec<_>>();
    let expected: Vec<i64> = (0..10_000).filter(|number| number % 7 != 3).collect();
    assert_eq!(all(&end["output"]["all"]), expected);
    assert_eq!(end["output"]["errors"].as_array().unwrap().len(), 10_000 - expected.len());
    // The call for 9,999 fails.
    assert_eq!(end["output"]["most"], json!(9_998));
    let records: Vec<_> = log.entered().into_iter().map(|entered| entered.signed).collect();
    audit(&graph, &run_id(), &records, &key().public(), None).unwrap();
}

//! Channels that have their values for one step, or in memory only.

use graph_runtime::__private::{Key, Program};
use graph_runtime::history::{EditError, Fork, StateEdit, entry_at, replay};
use graph_runtime::record::SignedRecord;
use graph_runtime::{ActionError, EditRun, ForkRun, Map, MemoryStore, Runtime, SecretKey, Store, Value, audit};
use serde_json::json;

use crate::interpreted::{Interpreted, PROGRAM};
use crate::support::{KEY, failing, id, runtime};

const A: &str = r#"{"line":1,"does":{"action":0},"params":{"n":1,"trace":"${state.trace}"},"assign":{"trace":"${result}","total":"${result}","scratch":"${result}","all":"${result}"},"next":[{"to":"b"}]}"#;
const B: &str = r#"{"line":2,"does":{"action":0},"params":{"n":2,"trace":"${state.trace}","total":"${state.total}"},"assign":{"was":"${state.scratch}","trace":"${result}","total":"${inputs.total}","scratch":"${result}","all":"${result}"},"next":[{"to":"c","when":{"path":"state.was","value":1}}]}"#;
const C: &str = r#"{"line":3,"does":{"action":0},"params":{"n":3,"trace":"${state.trace}","total":"${state.total}"},"assign":{"last":"${state.scratch}"},"next":[{"to":"d"}]}"#;
const D: &str = r#"{"line":4,"does":"gate","assign":{"left":"${state.scratch}"},"next":[{"to":"end"}]}"#;
const END: &str = r#"{"line":5,"does":"return"}"#;

const GRAPH: Program<'static> = Program {
    settings: r#"{"channels":{"trace":"append","total":"sum","scratch":"append","all":"append"},"keep":{"trace":"memory","total":"memory","scratch":"step"}}"#,
    keys: &[
        Key { name: "trace", initial: None },
        Key { name: "total", initial: None },
        Key { name: "scratch", initial: Some("[]") },
        Key { name: "all", initial: Some("[]") },
        Key { name: "was", initial: None },
        Key { name: "last", initial: None },
        Key { name: "left", initial: None },
    ],
    nodes: &[("a", A), ("b", B), ("c", C), ("d", D), ("end", END)],
    ..PROGRAM
};

/// A machine whose tool returns the number that it receives, and remembers the parameters.
fn machine(program: &Program<'_>) -> (Interpreted, std::sync::Arc<std::sync::Mutex<Vec<Value>>>) {
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let kept = std::sync::Arc::clone(&seen);
    let machine = Interpreted::new(program, move |_, params| {
        kept.lock().unwrap().push(params.clone());
        params["n"].as_i64().map(Value::from).ok_or_else(|| ActionError::permanent("no number"))
    });
    (machine, seen)
}

fn program() -> String {
    B.replace(r#""next":[{"to":"c","when":{"path":"state.was","value":1}}]"#, r#""next":[{"to":"c"}]"#)
}

fn inputs(total: i64) -> Map<String, Value> {
    Map::from_iter([("total".to_owned(), json!(total))])
}

async fn records(store: &impl Store) -> Vec<SignedRecord> {
    store.load(&id("run")).await.unwrap()
}

fn prove(program: &Program<'_>, records: &[SignedRecord]) {
    let (graph, _) = machine(program);
    let key = SecretKey::from_seed(&KEY).public();
    audit(&graph, &id("run"), records, &key, None).unwrap();
    let same = replay(&graph, &graph, &id("run"), records, &key, None).unwrap();
    assert_eq!((same.deviations, same.stopped), (vec![], None));
    let text: String = records.iter().map(|record| record.body.as_str()).collect();
    assert!(!text.contains("trace") && !text.contains("{\"total\":1,"), "{text}");
}

#[tokio::test]
async fn a_value_is_there_for_one_step_or_in_memory_only() {
    let b = program();
    let program = Program { nodes: &[("a", A), ("b", &b), ("c", C), ("d", D), ("end", END)], ..GRAPH };
    let expected = json!({"all": [1, 2], "was": [1], "last": [2], "left": []});
    let params =
        [json!({"n": 1}), json!({"n": 2, "trace": [1], "total": 1}), json!({"n": 3, "trace": [1, 2], "total": 11})];
    let (graph, seen) = machine(&program);
    let memory = Runtime::builder().grant("*").unwrap().build().unwrap();
    let finished = memory.start(graph, inputs(10)).await.unwrap().await.unwrap();
    assert_eq!((finished.output, seen.lock().unwrap().as_slice()), (expected.clone(), params.as_slice()));

    let store = MemoryStore::new();
    let (graph, seen) = machine(&program);
    let run = runtime(store.clone()).start_as(id("run"), graph, inputs(10)).await.unwrap();
    let finished = run.await.unwrap();
    assert_eq!((finished.output, seen.lock().unwrap().as_slice()), (expected.clone(), params.as_slice()));
    prove(&program, &records(&store).await);

    for left in 0..8 {
        for writes in [false, true] {
            let store = MemoryStore::new();
            let run = runtime(failing(&store, left, writes)).start_as(id("run"), machine(&program).0, inputs(10));
            // Whether the run ended depends on where the store failed.
            run.await.unwrap().await.ok();
            let resumed = runtime(store.clone()).resume(machine(&program).0, &id("run")).await.unwrap().await.unwrap();
            assert_eq!(resumed.output, expected);
            prove(&program, &records(&store).await);
        }
    }
}

#[tokio::test]
async fn a_write_that_does_not_combine_in_memory_unsets_the_channel() {
    let b = program();
    let program = Program { nodes: &[("a", A), ("b", &b), ("c", C), ("d", D), ("end", END)], ..GRAPH };
    let store = MemoryStore::new();
    let (graph, seen) = machine(&program);
    let run = runtime(store.clone()).start_as(id("run"), graph, inputs(i64::MAX)).await.unwrap();
    run.await.unwrap();
    assert_eq!(seen.lock().unwrap().last().unwrap(), &json!({"n": 3, "trace": [1, 2]}));
    prove(&program, &records(&store).await);
}

#[tokio::test]
async fn no_edit_and_no_fork_changes_a_channel_in_memory() {
    let b = program().replace("\"n\":2", "\"n\":\"two\"");
    let program = Program { nodes: &[("a", A), ("b", &b), ("c", C), ("d", D), ("end", END)], ..GRAPH };
    let store = MemoryStore::new();
    let (graph, _) = machine(&program);
    let runtime = runtime(store.clone());
    runtime.start_as(id("run"), graph.clone(), inputs(1)).await.unwrap().await.unwrap_err();
    let trace = || Map::from_iter([("trace".to_owned(), json!([7]))]);
    let edit = StateEdit { by: "ann".to_owned(), why: "a test".to_owned(), set: trace(), ..StateEdit::default() };
    let error = runtime.edit(&graph, &id("run"), edit.clone()).await.unwrap_err();
    assert!(
        matches!(&error, EditError::Misfit { reason, .. } if reason.to_string().contains("in memory only")),
        "{error}"
    );
    let fork = Fork { write: trace(), ..Fork::default() };
    let error = runtime.fork(&graph, &id("run"), fork).await.unwrap_err().to_string();
    assert!(error.contains("in memory only"), "{error}");
    // A channel that is kept for a step can be changed.
    let scratch = Map::from_iter([("scratch".to_owned(), json!(5))]);
    runtime.edit(&graph, &id("run"), StateEdit { set: Map::new(), write: scratch, ..edit }).await.unwrap();
    let key = SecretKey::from_seed(&KEY).public();
    let state = entry_at(&graph, &id("run"), &records(&store).await, &key, None, None).unwrap().state;
    assert_eq!((&state["scratch"], state.get("trace")), (&json!([1, 5]), None));
    audit(&graph, &id("run"), &records(&store).await, &key, None).unwrap();
}

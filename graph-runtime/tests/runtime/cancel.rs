//! Runs that are cancelled by a process that has only their store.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use graph_runtime::__private::{Executor, Key, Program, Tool};
use graph_runtime::record::Status;
use graph_runtime::store::StoreError;
use graph_runtime::{ActionError, Call, Canceller, Map, MemoryStore, RunError, SqliteStore, Store};
use serde_json::json;

use crate::interpreted::{Interpreted, PROGRAM};
use crate::support::{id, runtime};

/// Calls its tool twice.
const TWICE: Program<'static> = Program {
    keys: &[Key { name: "a", initial: None }, Key { name: "b", initial: None }],
    nodes: &[
        ("a", r#"{"line":1,"does":{"action":0},"assign":{"a":"${result}"},"next":[{"to":"b"}]}"#),
        ("b", r#"{"line":2,"does":{"action":0},"assign":{"b":"${result}"},"next":[{"to":"end"}]}"#),
        ("end", r#"{"line":3,"does":"return"}"#),
    ],
    ..PROGRAM
};

/// Runs a graph.
const AROUND: Program<'static> = Program {
    keys: &[Key { name: "one", initial: None }],
    tools: &[Tool { by: Executor::Graph, ..PROGRAM.tools[0] }],
    permissions: &["rye.execute.tool.test.tool"],
    nodes: &[
        ("nest", r#"{"line":1,"does":{"action":0},"assign":{"one":"${result.output.b}"},"next":[{"to":"done"}]}"#),
        ("done", r#"{"line":2,"does":"return"}"#),
    ],
    ..PROGRAM
};

/// Cancels a run as another process would, through the file only.
fn elsewhere(path: &Path, run: &'static str) -> Result<(), StoreError> {
    let path = path.to_owned();
    let cancel = async move { SqliteStore::open(path).await?.cancel(&id(run)).await };
    let tokio = || tokio::runtime::Builder::new_current_thread().build().unwrap();
    std::thread::spawn(move || tokio().block_on(cancel)).join().unwrap()
}

/// The graph that calls twice; its first call cancels `run` from elsewhere.
fn cancelling(path: &Path, run: &'static str, calls: &Arc<Mutex<Vec<String>>>) -> Interpreted {
    let (path, calls) = (path.to_owned(), Arc::clone(calls));
    Interpreted::new(&TWICE, move |call: &Call, _| {
        let mut calls = calls.lock().unwrap();
        calls.push(call.node().to_owned());
        if calls.len() == 1 {
            elsewhere(&path, run).unwrap();
        }
        Ok(json!(1))
    })
}

#[tokio::test]
async fn a_cancel_in_the_store_stops_before_the_next_step_resumably() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    let (store, calls) = (SqliteStore::open(&path).await.unwrap(), Arc::default());
    let graph = || cancelling(&path, "run", &calls);
    let error = runtime(store.clone()).start_as(id("run"), graph(), Map::new()).await.unwrap().await.unwrap_err();
    assert!(matches!(error, RunError::Cancelled { steps: 1, .. }), "{error}");
    assert_eq!(store.find(&id("run")).await.unwrap().status, Status::Cancelled);
    let again = elsewhere(&path, "run").unwrap_err();
    assert_eq!(again.to_string(), "Run already in terminal state: cancelled (run `run`)");
    let finished =
        runtime(store).resume(graph(), &id("run")).await.unwrap().await.expect("the wish was for who held it");
    assert_eq!((finished.steps, finished.status), (3, Status::Completed));
    assert_eq!(*calls.lock().unwrap(), ["a", "b"], "the step that was at work when it was cancelled counts");
    let again = elsewhere(&path, "run").unwrap_err();
    assert_eq!(again.to_string(), "Run already in terminal state: completed (run `run`)");
    assert_eq!(elsewhere(&path, "none").unwrap_err().to_string(), "there is no run `none`");
}

#[tokio::test]
async fn cancelling_a_nested_run_stops_both_and_both_can_resume() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    let (store, calls) = (SqliteStore::open(&path).await.unwrap(), Arc::default());
    let graph = || Interpreted::new(&AROUND, |_: &Call, _| Ok(json!(0))).nesting(cancelling(&path, "run-1", &calls));
    let error = runtime(store.clone()).start_as(id("run"), graph(), Map::new()).await.unwrap().await.unwrap_err();
    assert!(matches!(error, RunError::Cancelled { .. }), "{error}");
    for name in ["run", "run-1"] {
        assert_eq!(store.find(&id(name)).await.unwrap().status, Status::Cancelled, "{name}");
    }
    let finished = runtime(store).resume(graph(), &id("run")).await.unwrap().await.unwrap();
    assert_eq!((finished.output["one"].clone(), calls.lock().unwrap().len()), (json!(1), 2));
}

#[tokio::test]
async fn a_cancel_of_a_dead_run_ends_its_nested_runs_too() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    let hangs = || {
        let inner = Interpreted::waiting(&TWICE, |_, _| Box::pin(std::future::pending()));
        let middle = Interpreted::new(&AROUND, |_: &Call, _| Ok(json!(0))).nesting(inner);
        Interpreted::new(&AROUND, |_: &Call, _| Ok(json!(0))).nesting(middle)
    };
    let store = SqliteStore::open(&path).await.unwrap();
    let run = runtime(store.clone()).start_as(id("run"), hangs(), Map::new()).await.unwrap();
    let status = async |store: &SqliteStore, name: &str| store.find(&id(name)).await.map(|run| run.status).ok();
    while status(&store, "run-1-1").await.is_none() {
        tokio::task::yield_now().await;
    }
    // The process dies in the innermost call.
    run.abort();
    run.await.unwrap_err();
    drop(store);
    elsewhere(&path, "run").unwrap();
    let store = SqliteStore::open(&path).await.unwrap();
    let error = runtime(store.clone()).resume(hangs(), &id("run")).await.unwrap().await.unwrap_err();
    assert!(matches!(error, RunError::Cancelled { steps: 0, .. }), "{error}");
    for name in ["run", "run-1", "run-1-1"] {
        assert_eq!(status(&store, name).await, Some(Status::Cancelled), "{name}");
    }
    // A resume that ignores the cancel continues in the run inside.
    let works = || {
        let inner = Interpreted::new(&TWICE, |_: &Call, _| Ok(json!(1)));
        let middle = Interpreted::new(&AROUND, |_: &Call, _| Ok(json!(0))).nesting(inner);
        Interpreted::new(&AROUND, |_: &Call, _| Ok(json!(0))).nesting(middle)
    };
    runtime(store.clone()).resume(works(), &id("run")).await.unwrap().await.unwrap();
    for name in ["run", "run-1", "run-1-1"] {
        assert_eq!(status(&store, name).await, Some(Status::Completed), "{name}");
    }
}

/// Calls its tool for each item, and makes no calls afterwards.
const EACH: Program<'static> = Program {
    keys: &[Key { name: "all", initial: None }],
    nodes: &[
        (
            "each",
            r#"{"line":1,"does":{"foreach":0},"params":{"n":"${n}"},"each":{"over":"${inputs.list}","as":"n","collect":"all"},"next":[{"to":"gate"}]}"#,
        ),
        ("gate", r#"{"line":2,"does":"gate","next":[{"to":"end"}]}"#),
        ("end", r#"{"line":3,"does":"return"}"#),
    ],
    ..PROGRAM
};

#[tokio::test]
async fn a_run_without_further_calls_still_stops() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    let store = SqliteStore::open(&path).await.unwrap();
    let graph = || {
        let path = path.clone();
        Interpreted::new(&EACH, move |_: &Call, params| {
            if params["n"] == 2 {
                elsewhere(&path, "run").unwrap();
            }
            Ok(params["n"].clone())
        })
    };
    let inputs = Map::from_iter([("list".to_owned(), json!([1, 2]))]);
    let error = runtime(store.clone()).start_as(id("run"), graph(), inputs).await.unwrap().await.unwrap_err();
    assert!(matches!(error, RunError::Cancelled { steps: 1, .. }), "{error}");
    let finished = runtime(store).resume(graph(), &id("run")).await.unwrap().await.unwrap();
    assert_eq!((finished.steps, finished.output["all"].clone()), (3, json!([1, 2])));
}

#[tokio::test]
async fn a_foreach_cancelled_after_a_failure_resumes_its_other_items() {
    let program = Program {
        keys: &[Key { name: "all", initial: None }],
        settings: r#"{"on_error":"continue"}"#,
        nodes: &[
            (
                "each",
                r#"{"line":1,"does":{"foreach":0},"params":{"n":"${n}"},"each":{"over":"${inputs.list}","as":"n","collect":"all","width":1},"next":[{"to":"done"}]}"#,
            ),
            ("done", r#"{"line":2,"does":"return","output":"${state.all}"}"#),
        ],
        ..PROGRAM
    };
    let (stop, calls) = (Arc::new(OnceLock::<Canceller>::new()), Arc::new(Mutex::new(Vec::new())));
    let graph = || {
        let (stop, calls) = (stop.clone(), calls.clone());
        Interpreted::new(&program, move |_: &Call, params| {
            let n = params["n"].as_i64().unwrap();
            calls.lock().unwrap().push(n);
            if n == 1 {
                stop.get().unwrap().cancel();
            }
            if n == 0 { Err(ActionError::permanent("no")) } else { Ok(json!({"n": n})) }
        })
    };
    let store = MemoryStore::new();
    let inputs = Map::from_iter([("list".to_owned(), json!([0, 1, 2]))]);
    let run = runtime(store.clone()).start_as(id("run"), graph(), inputs).await.unwrap();
    assert!(stop.set(run.canceller()).is_ok());
    let error = run.await.unwrap_err();
    assert!(matches!(error, RunError::Cancelled { steps: 0, .. }), "{error}");
    let finished = runtime(store).resume(graph(), &id("run")).await.unwrap().await.unwrap();
    assert_eq!(*calls.lock().unwrap(), [0, 1, 0, 2]);
    assert_eq!(finished.output, json!([{"status": "error", "error": "no"}, {"n": 1}, {"n": 2}]));
}

#[tokio::test]
async fn no_branch_begins_after_the_run_was_cancelled() {
    let each =
        r#"{"line":2,"does":{"action":0},"retry":{"attempts":2,"delay_ms":60000,"on":["any"]},"next":[{"to":"end"}]}"#;
    let program = Program {
        nodes: &[
            ("split", r#"{"line":1,"does":"gate","next":{"over":[1,2,3],"as":"part","to":"each","width":1}}"#),
            ("each", each),
            ("end", r#"{"line":3,"does":"return","join":{"of":[1],"fan":0,"closes":true}}"#),
        ],
        ..PROGRAM
    };
    let (stop, calls) = (Arc::new(OnceLock::<Canceller>::new()), Arc::new(AtomicUsize::new(0)));
    let (canceller, count) = (stop.clone(), calls.clone());
    let graph = Interpreted::new(&program, move |_: &Call, _| {
        count.fetch_add(1, Ordering::Relaxed);
        canceller.get().unwrap().cancel();
        Err(ActionError::transient("not now"))
    });
    let run = runtime(MemoryStore::new()).start_as(id("run"), graph, Map::new()).await.unwrap();
    assert!(stop.set(run.canceller()).is_ok());
    let error = run.await.unwrap_err();
    assert!(matches!(error, RunError::Cancelled { steps: 1, .. }), "{error}");
    assert_eq!(calls.load(Ordering::Relaxed), 1);
}

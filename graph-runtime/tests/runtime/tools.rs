//! The program's configuration of the built-in tools reaches the calls of its runs.

use std::sync::{Arc, Mutex};

use graph_runtime::__private::Program;
use graph_runtime::tools::perform_builtin;
use graph_runtime::{Call, Map, Runtime, ToolConfig, Value};
use serde_json::json;

use crate::interpreted::{Interpreted, PROGRAM};

/// Runs a graph with one call, and returns the call.
async fn call(tools: ToolConfig) -> Call {
    let nodes =
        &[("a", r#"{"line":1,"does":{"action":0},"next":[{"to":"end"}]}"#), ("end", r#"{"line":2,"does":"return"}"#)];
    let kept: Arc<Mutex<Option<Call>>> = Arc::default();
    let keep = Arc::clone(&kept);
    let machine = Interpreted::new(&Program { nodes, ..PROGRAM }, move |call, _| {
        *keep.lock().unwrap() = Some(call.clone());
        Ok(Value::Null)
    });
    let runtime = Runtime::builder().grant("rye.*").unwrap().tools(tools).build().unwrap();
    runtime.start(machine, Map::new()).await.unwrap().await.unwrap();
    kept.lock().unwrap().take().unwrap()
}

#[tokio::test]
async fn file_reads_need_a_runtime_directory_and_stay_below_it() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("a"), "here").unwrap();
    let params = json!({"path": "a"});
    let allowed = call(ToolConfig::new().root(directory.path()).unwrap()).await;
    let read = perform_builtin("rye/file-system/read", &allowed, params.clone()).unwrap().await.unwrap();
    assert_eq!(read["content"], "here");
    let refused = call(ToolConfig::new()).await;
    let error = perform_builtin("rye/file-system/read", &refused, params).unwrap().await.unwrap_err();
    assert!(error.to_string().starts_with("the program allows no files"), "{error}");
}

#[derive(Default)]
struct Session(std::sync::atomic::AtomicUsize);

/// All calls of a run share the values of their tools, which go with the run though a tool holds a call longer.
#[tokio::test]
async fn the_local_values_of_a_run_end_with_it() {
    let nodes = &[
        ("a", r#"{"line":1,"does":{"action":0},"next":[{"to":"b"}]}"#),
        ("b", r#"{"line":2,"does":{"action":0},"next":[{"to":"end"}]}"#),
        ("end", r#"{"line":3,"does":"return"}"#),
    ];
    type Seen = (Call, std::sync::Weak<Session>);
    let kept: Arc<Mutex<Vec<Seen>>> = Arc::default();
    let keep = Arc::clone(&kept);
    let machine = || {
        let keep = Arc::clone(&keep);
        Interpreted::new(&Program { nodes, ..PROGRAM }, move |call, _| {
            let session = call.run_local::<Session>().unwrap();
            session.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            assert!(Arc::ptr_eq(&session, &call.run_local::<Session>().unwrap()));
            keep.lock().unwrap().push((call.clone(), Arc::downgrade(&session)));
            Ok(Value::from(session.0.load(std::sync::atomic::Ordering::Relaxed)))
        })
    };
    let runtime = Runtime::builder().grant("rye.*").unwrap().keep_history().build().unwrap();
    for _ in 0..2 {
        let finished = runtime.start(machine(), Map::new()).await.unwrap().await.unwrap();
        // Another run begins with a value of its own.
        let results: Vec<&Value> = finished.history.iter().map(|visit| &visit.result).collect();
        assert_eq!(results[..2], [&json!(1), &json!(2)]);
    }
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    for (call, session) in kept.lock().unwrap().iter() {
        assert!(call.run_local::<Session>().is_none() && session.upgrade().is_none());
    }
    let alone =
        Call::alone(graph_runtime::ItemId::new("shop/a").unwrap(), Vec::new(), Default::default(), ToolConfig::new());
    assert!(alone.run_local::<Session>().is_none() && !alone.is_tool_computed());
}

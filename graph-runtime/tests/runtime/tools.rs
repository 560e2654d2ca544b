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

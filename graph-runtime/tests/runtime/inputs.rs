//! The rules of a graph for its inputs beyond their types.

use graph_runtime::__private::Program;
use graph_runtime::{Map, Runtime, StartError, Value};
use serde_json::json;

use crate::interpreted::{Interpreted, PROGRAM};

/// Starts a graph whose input `seats` is at least 1, and returns the error if it does not start.
async fn start(seats: Value) -> Option<StartError> {
    let program = Program {
        settings: r#"{"schema":{"properties":{"seats":{"minimum":1}}}}"#,
        nodes: &[("done", r#"{"line":1,"does":"return"}"#)],
        ..PROGRAM
    };
    let machine = Interpreted::new(&program, |_, params| Ok(params));
    let runtime = Runtime::builder().grant("rye.execute.tool.*").unwrap().build().unwrap();
    let inputs = Map::from_iter([("seats".to_owned(), seats)]);
    runtime.start(machine, inputs).await.err()
}

#[cfg(feature = "schema")]
#[tokio::test]
async fn inputs_that_break_a_rule_start_no_run() {
    assert!(start(json!(1)).await.is_none());
    assert!(start(Value::Null).await.is_none());
    let error = start(json!(0)).await.unwrap();
    assert!(matches!(error, StartError::Inputs { .. }));
    let expected =
        "the inputs do not fit the graph `test/graph`: expected what `minimum: 1` allows, found an integer at `seats`";
    assert_eq!(error.to_string(), expected);
}

#[cfg(not(feature = "schema"))]
#[tokio::test]
async fn rules_that_nobody_can_check_start_no_run() {
    let error = start(json!(1)).await.unwrap();
    assert!(matches!(error, StartError::Schema { .. }));
    assert!(error.to_string().ends_with("`graph-runtime` was built without its feature `schema`"), "{error}");
}

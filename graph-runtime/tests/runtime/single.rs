//! Single steps: one node, and nothing else.

use std::sync::{Arc, Mutex};

use graph_runtime::__private::{Key, Program};
use graph_runtime::record::Status;
use graph_runtime::{
    ActionError, Map, MemoryStore, Options, RunId, Runtime, SecretKey, Single, SingleError, StartError, StepOnce,
    Stepped, Store, StoredRunError, Value,
};
use serde_json::json;

use crate::interpreted::{Interpreted, PROGRAM};

const NODES: &[(&str, &str)] = &[
    (
        "one",
        r#"{"line":1,"does":{"action":0},"params":{"n":"${inputs.n}"},"assign":{"a":"${result.n}"},"next":[{"to":"two"}],"on_error":2}"#,
    ),
    (
        "two",
        r#"{"line":2,"does":{"action":0},"params":{"n":"${state.a}"},"assign":{"b":"${result.n}"},"next":[{"to":"end"}]}"#,
    ),
    ("mend", r#"{"line":3,"does":"return","output":{"error":"${state._last_error.error}"}}"#),
    ("end", r#"{"line":4,"does":"return","output":{"b":"${state.b}"}}"#),
];

/// Doubles `n` twice.
const PROGRAM_OF_TWO: Program<'static> = Program {
    keys: &[Key { name: "a", initial: None }, Key { name: "b", initial: Some("0") }],
    settings: r#"{"required":["n"]}"#,
    nodes: NODES,
    ..PROGRAM
};

fn machine() -> Interpreted {
    Interpreted::new(&PROGRAM_OF_TWO, |_, params| {
        params["n"].as_i64().map(|n| json!({"n": n * 2})).ok_or_else(|| ActionError::permanent("no number"))
    })
}

fn id(text: &str) -> RunId {
    RunId::new(text).unwrap()
}

fn runtime(store: &MemoryStore) -> Runtime {
    let builder = Runtime::builder().store(store.clone()).sign_with(SecretKey::from_seed(&[1; 32]));
    builder.grant("rye.execute.tool.*").unwrap().build().unwrap()
}

fn single(node: &str, inject: Value) -> Single {
    let Value::Object(inject) = inject else { unreachable!() };
    Single { node: node.to_owned(), inject, ..Single::default() }
}

async fn once(node: &str, inputs: Value, inject: Value) -> Result<Stepped, SingleError> {
    let store = MemoryStore::new();
    let stepped = runtime(&store).step_once(Arc::new(machine()), inputs, single(node, inject)).await;
    assert_eq!(store.list().await.unwrap(), [], "nothing is kept");
    stepped
}

#[tokio::test]
async fn single_node_runs_with_new_run_state_and_given_overrides() {
    let stepped = once("one", json!({"n": 4}), json!({})).await.unwrap();
    assert!(stepped.run.as_str().starts_with("graph-") && stepped.run.as_str().ends_with("-step"), "{}", stepped.run);
    let mut value = stepped.to_value();
    value.as_object_mut().unwrap().shift_remove("graph_run_id");
    assert_eq!(
        value,
        json!({
            "success": true, "status": "running", "steps": 1, "executed_node": "one", "next_node": "two", "step_count": 1,
            "state": {"inputs": {"n": 4}, "a": 8, "b": 0},
        })
    );
    let stepped = once("two", json!({"n": 4}), json!({"a": 50, "b": null})).await.unwrap();
    assert_eq!(
        (stepped.state, stepped.next_node.as_deref()),
        (json!({"inputs": {"n": 4}, "a": 50, "b": 100}), Some("end"))
    );
    // `inputs` is replaced as a whole, and must contain the required inputs.
    let stepped = once("one", json!({"n": 4}), json!({"inputs": {"n": 7}})).await.unwrap();
    assert_eq!(stepped.state, json!({"inputs": {"n": 7}, "a": 14, "b": 0}));
}

#[tokio::test]
async fn single_node_reports_its_output_or_where_its_failure_leads() {
    let stepped = once("end", json!({"n": 4}), json!({"b": 3})).await.unwrap();
    assert_eq!((stepped.output, stepped.next_node, stepped.status), (Some(json!({"b": 3})), None, Status::Completed));
    let mended = once("one", json!({"n": "x"}), json!({})).await.unwrap();
    assert_eq!((mended.success, mended.next_node.as_deref(), mended.status), (false, Some("mend"), Status::Running));
    assert_eq!(mended.state["_last_error"], json!({"node": "one", "error": "no number"}));
    let fatal = once("two", json!({"n": 4}), json!({"a": "x"})).await.unwrap();
    assert_eq!((fatal.success, fatal.next_node.clone(), fatal.status), (false, None, Status::Error));
    assert_eq!((&fatal.to_value()["error"], &fatal.to_value()["step_count"]), (&json!("no number"), &json!(1)));
    let told = once("mend", json!({"n": 4}), json!({"_last_error": {"node": "x", "error": "y"}})).await.unwrap();
    assert_eq!(told.output, Some(json!({"error": "y"})));
}

#[tokio::test]
async fn a_step_that_cannot_be_made_says_why() {
    let error = once("three", json!({"n": 4}), json!({})).await.unwrap_err();
    assert_eq!(error.to_string(), "Target node 'three' not found in graph");
    let error = once("one", json!({}), json!({})).await.unwrap_err();
    assert!(matches!(error, SingleError::Start(StartError::MissingInputs { .. })), "{error}");
    let error = once("one", json!({"n": 4}), json!({"inputs": {}})).await.unwrap_err();
    assert!(matches!(error, SingleError::Start(StartError::MissingInputs { .. })), "{error}");
    let error = once("one", json!({"n": 4}), json!({"c": 1})).await.unwrap_err();
    assert_eq!(error.to_string(), "the graph has no state key `c`; it has `a`, `b`");
    let error = once("one", json!({"n": 4}), json!({"_last_error": 1})).await.unwrap_err();
    assert!(
        error.to_string().starts_with("the state cannot be overlaid with `_last_error`: expected an object"),
        "{error}"
    );
}

#[tokio::test]
async fn a_step_with_the_state_of_a_run_leaves_that_run_as_it_was() {
    let store = MemoryStore::new();
    let runtime = runtime(&store);
    let inputs = Map::from_iter([("n".to_owned(), json!(4))]);
    runtime.start_as(id("run"), machine(), inputs).await.unwrap().await.unwrap();
    let (records, rows) = (store.load(&id("run")).await.unwrap(), store.list().await.unwrap());
    // The run is leased meanwhile.
    let lease = store.lease(&id("run")).await.unwrap();
    let stepped = runtime.step_once_in(Arc::new(machine()), &id("run"), single("two", json!({"a": 1}))).await.unwrap();
    assert_eq!((stepped.run.as_str(), stepped.step_count, stepped.success), ("run-step", 4, true));
    assert_eq!(stepped.state, json!({"inputs": {"n": 4}, "a": 1, "b": 2}));
    drop(lease);
    assert!(store.load(&id("run")).await.unwrap() == records && store.list().await.unwrap() == rows);
    let none = runtime.step_once_in(Arc::new(machine()), &id("no"), single("two", json!({}))).await.unwrap_err();
    assert!(matches!(none, SingleError::Stored(StoredRunError::Store(_))), "{none}");
}

/// Branches for the parts of a list, in each of which there are branches for lines. A run may begin with one part.
fn branching(calls: &Calls) -> Interpreted {
    let entries = r#"{"entries":{"redo":{"node":1,"branches":[{"fan":0,"element":"inputs.part"}]}}}"#;
    let action = |line: usize, n: &str, to: &str| {
        format!(r#"{{"line":{line},"does":{{"action":0}},"params":{{"n":"{n}"}},"next":[{{"to":"{to}"}}]}}"#)
    };
    let (work, deep) = (action(2, "${part}", "lines"), action(4, "${line}", "line_met"));
    let (late, after) = (action(6, "late", "met"), action(8, "after", "done"));
    let nodes = [
        ("split", r#"{"line":1,"does":"gate","next":{"over":"${inputs.parts}","as":"part","to":"work"}}"#),
        ("work", work.as_str()),
        ("lines", r#"{"line":3,"does":"gate","next":{"over":["x"],"as":"line","to":"deep"}}"#),
        ("deep", deep.as_str()),
        ("line_met", r#"{"line":5,"does":"gate","next":[{"to":"late"}],"join":{"of":[3],"fan":2,"closes":true}}"#),
        ("late", late.as_str()),
        ("met", r#"{"line":7,"does":"gate","next":[{"to":"after"}],"join":{"of":[5],"fan":0,"closes":true}}"#),
        ("after", after.as_str()),
        ("done", r#"{"line":9,"does":"return"}"#),
    ];
    let program = Program { nodes: &nodes, settings: entries, ..PROGRAM };
    let calls = Arc::clone(calls);
    Interpreted::new(&program, move |_, params| {
        calls.lock().unwrap().push(params["n"].clone());
        match params["n"].as_str() {
            Some("fails") => Err(ActionError::permanent("no")),
            _ => Ok(params["n"].clone()),
        }
    })
}

type Calls = Arc<Mutex<Vec<Value>>>;

#[tokio::test]
async fn a_node_in_branches_is_executed_in_a_known_one_or_not_at_all() {
    let calls = Calls::default();
    let machine = Arc::new(branching(&calls));
    let plain = runtime(&MemoryStore::new());
    let outside = "and nothing says in which: write an entry that leads to it";
    for (node, inputs, expected) in [
        ("work", json!({ "parts": ["a"], "part": "c" }), Ok(json!(["c"]))),
        ("work", json!({ "parts": ["a"] }), Err("`work` is in the branches of `split`")),
        ("work", json!({ "parts": ["a"] }), Err("the entry needs `inputs.part`, which is missing")),
        ("lines", json!({ "parts": ["a"] }), Err(outside)),
        ("deep", json!({ "parts": ["a"], "part": "c" }), Err(outside)),
        ("line_met", json!({ "parts": ["a"] }), Err(outside)),
        ("late", json!({ "parts": ["a"] }), Err(outside)),
        ("split", json!({ "parts": ["a"] }), Ok(json!([]))),
        ("met", json!({ "parts": ["a"] }), Ok(json!([]))),
        ("after", json!({ "parts": ["a"] }), Ok(json!(["after"]))),
        ("done", json!({ "parts": ["a"] }), Ok(json!([]))),
    ] {
        let stepped = plain.step_once(Arc::clone(&machine) as _, inputs, single(node, json!({}))).await;
        let made = Value::Array(std::mem::take(&mut *calls.lock().unwrap()));
        match (stepped, expected) {
            (Ok(stepped), Ok(expected)) => assert!(stepped.success && made == expected, "{node}: {made}, {stepped:?}"),
            (Err(error), Err(reason)) => {
                assert!(error.to_string().contains(reason) && made == json!([]), "{node}: {made}, {error}");
            }
            (stepped, _) => panic!("{node}: {stepped:?}"),
        }
    }
    // A run that failed is about to visit the node again.
    for (parts, expected) in [(json!(["fails"]), 1), (json!(["fails", "fails"]), 0)] {
        let store = MemoryStore::new();
        let runtime = runtime(&store);
        let options = Options { run: Some(id("run")), ..Options::default() };
        let inputs = Map::from_iter([("parts".to_owned(), parts)]);
        runtime.start_with(options, branching(&calls), inputs).await.unwrap().await.unwrap_err();
        calls.lock().unwrap().clear();
        for (node, count) in [("work", expected), ("deep", 0)] {
            let stepped = runtime.step_once_in(Arc::clone(&machine) as _, &id("run"), single(node, json!({}))).await;
            assert_eq!(std::mem::take(&mut *calls.lock().unwrap()).len(), count, "{node}: {stepped:?}");
            assert!(count == 1 || matches!(stepped, Err(SingleError::InBranches { .. })), "{node}: {stepped:?}");
        }
    }
}

//! The meaning of the format's sentences when a graph runs.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use graph_runtime::__private::{Key, Program};
use graph_runtime::{
    ActionError, Call, Finished, ManualClock, Map, MemoryStore, RunError, RunId, Runtime, SecretKey, Status, Store,
    Value,
};
use serde_json::json;

use crate::interpreted::{Interpreted, PROGRAM};

const A: Key<'static> = Key { name: "a", initial: None };
const B: Key<'static> = Key { name: "b", initial: None };
const DOTTED: Key<'static> = Key { name: "a.b", initial: None };

fn echo(_: &Call, params: Value) -> Result<Value, ActionError> {
    Ok(params)
}

fn refuse(_: &Call, _: Value) -> Result<Value, ActionError> {
    Err(ActionError::permanent("no luck"))
}

/// The nodes of a graph: name, and body as JSON.
type Nodes = [(&'static str, &'static str)];

/// Runs a graph with the keys `a`, `b` and `a.b`.
async fn run(nodes: &Nodes, inputs: Value) -> Result<Finished<Value>, RunError> {
    run_with(nodes, "{}", inputs, echo).await
}

async fn run_with(
    nodes: &Nodes,
    settings: &str,
    inputs: Value,
    tool: fn(&Call, Value) -> Result<Value, ActionError>,
) -> Result<Finished<Value>, RunError> {
    let program = Program { keys: &[A, B, DOTTED], nodes, settings, ..PROGRAM };
    let runtime = Runtime::builder().grant("*").unwrap().build().unwrap();
    let inputs = inputs.as_object().unwrap().clone();
    runtime.start(Interpreted::new(&program, tool), inputs).await.unwrap().await
}

/// Returns the value that a template has in an assignment.
async fn rendered(template: &str, inputs: Value) -> Value {
    let body = json!({ "line": 1, "does": "gate", "assign": { "a": template } }).to_string();
    let nodes = [("node", &*Box::leak(body.into_boxed_str()))];
    run(&nodes, inputs).await.unwrap().state["a"].take()
}

#[tokio::test]
async fn lone_template_keeps_its_type_and_added_text_makes_it_text() {
    let inputs = json!({ "n": 3, "f": 2.0, "t": true, "l": [1, null], "s": "x" });
    for (template, expected) in [
        ("${inputs.n}", json!(3)),
        ("${inputs.n}\n", json!(3)),
        ("${inputs.n} ", json!("3 ")),
        ("${inputs.l}", json!([1, null])),
        ("<${inputs.f}>", json!("<2.0>")),
        ("<${inputs.t}>", json!("<true>")),
        ("<${inputs.l}>", json!("<[1,null]>")),
        ("<${inputs.none}>", json!("<>")),
        ("${inputs.none}", json!(null)),
        ("${inputs.s}${inputs.n}", json!("x3")),
    ] {
        assert_eq!(rendered(template, inputs.clone()).await, expected, "{template}");
    }
}

#[tokio::test]
async fn the_first_alternative_that_is_not_null_counts() {
    for first in [json!(0), json!(false), json!(""), json!([])] {
        let found = rendered("${inputs.none || inputs.first || inputs.second}", json!({ "first": first, "second": 2 }));
        assert_eq!(found.await, first);
    }
    assert_eq!(rendered("${inputs.first||inputs.second}", json!({ "first": null, "second": 2 })).await, 2);
    assert_eq!(rendered("<${inputs.none || inputs.other}>", json!({})).await, "<>");
}

#[tokio::test]
async fn null_parameters_are_left_out_and_nulls_in_lists_stay() {
    let nodes = &[(
        "call",
        r#"{"line":1,"does":{"action":0},"params":{"x":"${inputs.none}","y":null,"z":{"u":null,"v":{}},"l":[null,{"w":null}]},"assign":{"a":"${result}"}}"#,
    )];
    let finished = run(nodes, json!({})).await.unwrap();
    assert_eq!(finished.state["a"], json!({ "z": { "v": {} }, "l": [null, {}] }));
}

#[tokio::test]
async fn assignments_are_made_in_order_and_edges_see_all_of_them() {
    let nodes = &[
        (
            "count",
            r#"{"line":1,"does":"gate","assign":{"a":"${inputs.n}","b":"${state.a}"},"next":[{"to":"good","when":{"path":"state.b","op":"eq","value":3}}]}"#,
        ),
        ("good", r#"{"line":2,"does":"return","output":"good"}"#),
    ];
    assert_eq!(run(nodes, json!({ "n": 3 })).await.unwrap().output, "good");
}

#[tokio::test]
async fn a_key_with_a_dot_is_one_key_and_values_are_anything() {
    let nodes = &[("a", r#"{"line":1,"does":"gate","assign":{"a.b":[1,{"n":"${inputs.n}"}],"a":"${inputs.none}"}}"#)];
    let state = run(nodes, json!({ "n": 3 })).await.unwrap().state;
    assert_eq!(state, json!({ "inputs": { "n": 3 }, "a.b": [1, { "n": 3 }] }));
}

#[tokio::test]
async fn a_path_that_leads_nowhere_ends_the_run_successfully() {
    let never = r#"[{"to":"other","when":{"path":"inputs.n","op":"eq","value":4}}]"#;
    for next in ["[]", never, r#"[{"when":{"path":"inputs.n","value":3}},{"to":"other"}]"#] {
        let body = format!(r#"{{"line":1,"does":"gate","assign":{{"a":1}},"next":{next}}}"#);
        let nodes =
            [("only", &*Box::leak(body.into_boxed_str())), ("other", r#"{"line":2,"does":"return","output":"other"}"#)];
        let finished = run(&nodes, json!({ "n": 3 })).await.unwrap();
        assert_eq!((finished.status, finished.steps, finished.output), (Status::Completed, 1, json!({ "a": 1 })));
    }
}

#[tokio::test]
async fn first_matching_edge_wins_and_a_bare_edge_matches_in_order() {
    let nodes = |next: &str| {
        let body = format!(r#"{{"line":1,"does":"gate","next":{next}}}"#);
        [
            ("start", &*Box::leak(body.into_boxed_str())),
            ("x", r#"{"line":2,"does":"return","output":"x"}"#),
            ("y", r#"{"line":3,"does":"return","output":"y"}"#),
        ]
    };
    let holds = r#"{"to":"y","when":{"path":"inputs.n","op":"gt","value":1}}"#;
    for (next, expected) in [
        (format!(r#"[{holds},{{"to":"x"}}]"#), "y"),
        (format!(r#"[{{"to":"x"}},{holds}]"#), "x"),
        (format!(r#"[{{"to":"x","when":{{}}}},{holds}]"#), "x"),
        (format!(r#"[{{"to":"x","when":{{"path":"n","value":3}}}},{holds}]"#), "y"),
    ] {
        // A path without a namespace is invalid, and such a program does not load.
        if next.contains(r#""path":"n""#) {
            let program = Program { nodes: &nodes(&next), ..PROGRAM };
            assert!(graph_runtime::__private::CompiledGraph::load(&program).is_err());
            continue;
        }
        assert_eq!(run(&nodes(&next), json!({ "n": 3 })).await.unwrap().output, expected, "{next}");
    }
}

#[tokio::test]
async fn the_value_of_a_condition_is_no_template() {
    let nodes = &[
        (
            "start",
            r#"{"line":1,"does":"gate","next":[{"to":"same","when":{"path":"inputs.s","value":"${inputs.s}"}},{"to":"other"}]}"#,
        ),
        ("same", r#"{"line":2,"does":"return","output":"same"}"#),
        ("other", r#"{"line":3,"does":"return","output":"other"}"#),
    ];
    assert_eq!(run(nodes, json!({ "s": "x" })).await.unwrap().output, "other");
    assert_eq!(run(nodes, json!({ "s": "${inputs.s}" })).await.unwrap().output, "same");
}

#[tokio::test]
async fn a_return_node_returns_falsy_and_empty_outputs() {
    for output in ["0", "false", "[]", "{}", "\"\""] {
        let body = format!(r#"{{"line":1,"does":"return","output":{output}}}"#);
        let nodes = [("done", &*Box::leak(body.into_boxed_str()))];
        let finished = run(&nodes, json!({})).await.unwrap();
        assert_eq!((finished.output.to_string().as_str(), finished.steps), (output, 1));
    }
    let finished = run(&[("done", r#"{"line":1,"does":"return"}"#)], json!({ "n": 1 })).await.unwrap();
    assert_eq!((finished.output, finished.state), (json!({}), json!({ "inputs": { "n": 1 } })));
}

#[tokio::test]
async fn undeclared_inputs_are_readable_and_final_state_shows_them() {
    assert_eq!(rendered("${inputs.unknown.0}", json!({ "unknown": [4] })).await, 4);
    let finished = run(&[("done", r#"{"line":1,"does":"return"}"#)], json!({ "unknown": [4] })).await.unwrap();
    assert_eq!(finished.state, json!({ "inputs": { "unknown": [4] } }));
}

#[tokio::test]
async fn a_node_whose_failure_leads_to_itself_ends_at_max_steps() {
    let nodes = &[("call", r#"{"line":1,"does":{"action":0},"on_error":0}"#)];
    let error = run_with(nodes, r#"{"max_steps":5}"#, json!({}), refuse).await.unwrap_err();
    assert_eq!(error.to_string(), "Max steps exceeded (5)");
}

#[tokio::test]
async fn a_run_that_dealt_with_a_failure_is_completed_without_errors() {
    let nodes = &[
        ("call", r#"{"line":1,"does":{"action":0},"on_error":1}"#),
        ("mend", r#"{"line":2,"does":"return","output":"${state._last_error}"}"#),
    ];
    let finished = run_with(nodes, r#"{"on_error":"continue"}"#, json!({}), refuse).await.unwrap();
    assert_eq!((finished.status, finished.errors.len()), (Status::Completed, 0));
    assert_eq!(finished.output, json!({ "node": "call", "error": "no luck" }));
}

#[tokio::test]
async fn continued_failure_without_a_matching_edge_ends_the_run() {
    let nodes = &[(
        "call",
        r#"{"line":1,"does":{"action":0},"assign":{"a":1},"next":[{"to":"call","when":{"path":"result.status","value":"ok"}}]}"#,
    )];
    let finished = run_with(nodes, r#"{"on_error":"continue"}"#, json!({}), refuse).await.unwrap();
    assert_eq!((finished.status, finished.output), (Status::CompletedWithErrors, json!({})));
}

#[tokio::test]
async fn a_return_node_needs_a_step_of_its_own() {
    let nodes = &[
        ("first", r#"{"line":1,"does":{"action":0},"next":[{"to":"second"}]}"#),
        ("second", r#"{"line":2,"does":{"action":0},"next":[{"to":"done"}]}"#),
        ("done", r#"{"line":3,"does":"return"}"#),
    ];
    assert_eq!(run_with(nodes, r#"{"max_steps":3}"#, json!({}), echo).await.unwrap().steps, 3);
    assert!(run_with(nodes, r#"{"max_steps":2}"#, json!({}), echo).await.is_err());
}

#[tokio::test]
async fn runs_of_the_same_second_have_different_ids() {
    let program = Program { nodes: &[("done", r#"{"line":1,"does":"return"}"#)], ..PROGRAM };
    let clock = ManualClock::at(SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000));
    let runtime = Runtime::builder().grant("*").unwrap().clock(Arc::new(clock)).build().unwrap();
    let mut ids = BTreeSet::new();
    for _ in 0..100 {
        let run = runtime.start(Interpreted::new(&program, echo), Map::new()).await.unwrap();
        ids.insert(run.id().to_string());
    }
    assert_eq!(ids.len(), 100);
    assert!(ids.iter().all(|id| id.starts_with("graph-1800000000-")), "{ids:?}");
}

#[tokio::test]
async fn inputs_stay_the_same_after_a_resume() {
    let nodes = &[
        (
            "call",
            r#"{"line":1,"does":{"action":0},"params":{"q":"${inputs.q}"},"assign":{"a":"${result.q}"},"next":[{"to":"done","when":{"path":"inputs.q","value":"first"}}]}"#,
        ),
        ("done", r#"{"line":2,"does":"return","output":"${state.a} ${inputs.q}"}"#),
    ];
    let program = Program { keys: &[A], nodes, ..PROGRAM };
    let key = SecretKey::from_seed(&[1; 32]);
    let runtime = Runtime::builder().store(MemoryStore::new()).sign_with(key).grant("*").unwrap().build().unwrap();
    let id = RunId::new("run").unwrap();
    let inputs = Map::from_iter([("q".to_owned(), json!("first"))]);
    let run = runtime.start_as(id.clone(), Interpreted::new(&program, refuse), inputs).await.unwrap();
    run.await.unwrap_err();
    let finished = runtime.resume(Interpreted::new(&program, echo), &id).await.unwrap().await.unwrap();
    assert_eq!(finished.output, "first first");
}

#[tokio::test]
async fn tool_receives_rendered_params_and_not_its_own_result() {
    let seen = Arc::new(Mutex::new(Value::Null));
    let sees = Arc::clone(&seen);
    let nodes = &[("call", r#"{"line":1,"does":{"action":0},"params":{"deep":[{"${inputs.n}":"${inputs.n}"}]}}"#)];
    let machine = Interpreted::new(&Program { nodes, ..PROGRAM }, move |_, params| {
        *sees.lock().unwrap() = params;
        Ok(Value::Null)
    });
    let runtime = Runtime::builder().grant("*").unwrap().build().unwrap();
    let inputs = Map::from_iter([("n".to_owned(), json!(3))]);
    runtime.start(machine, inputs).await.unwrap().await.unwrap();
    assert_eq!(*seen.lock().unwrap(), json!({ "deep": [{ "${inputs.n}": 3 }] }), "names of fields are no templates");
}

#[tokio::test]
async fn a_first_value_of_null_causes_no_warning() {
    for (initial, warns) in [(Some("null"), false), (None, true)] {
        let nodes = [("node", r#"{"line": 1, "does": "return", "output": {"x": "${state.a}", "y": "<${state.a}>"}}"#)];
        let program = Program { keys: &[Key { name: "a", initial }], nodes: &nodes, ..PROGRAM };
        let store = MemoryStore::new();
        let runtime = Runtime::builder().store(store.clone()).sign_with(SecretKey::from_seed(&[7; 32]));
        let (runtime, id) = (runtime.grant("*").unwrap().build().unwrap(), RunId::new("r").unwrap());
        let run = runtime.start_as(id.clone(), Interpreted::new(&program, echo), Map::new()).await.unwrap();
        assert_eq!(run.await.unwrap().output, json!({"x": null, "y": "<>"}));
        let journal: String = store.load(&id).await.unwrap().into_iter().map(|record| record.body).collect();
        assert_eq!(journal.contains("`${state.a}` found nothing"), warns, "{journal}");
    }
}

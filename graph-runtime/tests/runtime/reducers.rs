//! Channels whose reducer is a function of the program.

use graph_runtime::__private::{Key, Program};
use graph_runtime::history::{EditError, Fork, StateEdit, entry_at, replay};
use graph_runtime::machine::ReducerError;
use graph_runtime::record::SignedRecord;
use graph_runtime::{
    ActionError, Audit, Durability, EditRun, ForkRun, Map, MemoryStore, Options, RunError, Runtime, SecretKey, Store,
    Value, attest, audit, audit_tree,
};
use serde_json::json;
use std::sync::Arc;

use crate::forged::edited;
use crate::interpreted::{Interpreted, PROGRAM};
use crate::support::{KEY, failing, id, runtime};

/// Writes the digit of a write behind the number, so that the order of writes shows.
#[expect(clippy::panic, reason = "a reducer that panics fails its node")]
fn digits(value: Value, write: &Value) -> Result<Value, ReducerError> {
    let digit = write.as_i64().ok_or("no digit")?;
    match digit {
        0..=9 => Ok(json!(value.as_i64().unwrap_or_default() * 10 + digit)),
        99 => panic!("an unlucky number"),
        other => Err(ReducerError::new(format!("{other} is no digit"))),
    }
}

const FIRST: &str = r#"{"line":1,"does":{"action":0},"params":{"n":1},"assign":{"score":"${result}","seen":"${state.score}"},"next":[{"to":"fan","when":{"path":"state.score","value":1}},{"to":"end"}]}"#;
const FAN: &str = r#"{"line":2,"does":"gate","next":{"all":[{"to":"a"},{"to":"b"},{"to":"c"}]}}"#;
const A: &str =
    r#"{"line":3,"does":{"action":0},"params":{"n":2},"assign":{"score":"${result}"},"next":[{"to":"join"}]}"#;
const B: &str = r#"{"line":4,"does":{"action":0},"params":{"n":"${inputs.b || state.score}"},"assign":{"score":"${result}","b":"${state.score}"},"next":[{"to":"join"}]}"#;
const C: &str = r#"{"line":5,"does":"gate","assign":{"score":4},"next":[{"to":"join"}]}"#;
const JOIN: &str = r#"{"line":6,"does":"gate","join":{"of":[2,3,4],"fan":1,"closes":true},"next":[{"to":"last"}]}"#;
const LAST: &str = r#"{"line":7,"does":"gate","reset":["other"],"assign":{"other":7},"next":[{"to":"end"}]}"#;
const END: &str = r#"{"line":8,"does":"return","output":{"score":"${state.score}","seen":"${state.seen}","b":"${state.b}","other":"${state.other}"}}"#;

const GRAPH: Program<'static> = Program {
    settings: r#"{"channels":{"score":{"program":{"item_id":"scoring/digits"}},"other":{"program":{"item_id":"scoring/others"}}}}"#,
    keys: &[
        Key { name: "score", initial: None },
        Key { name: "seen", initial: None },
        Key { name: "b", initial: None },
        Key { name: "other", initial: Some("3") },
    ],
    nodes: &[
        ("first", FIRST),
        ("fan", FAN),
        ("a", A),
        ("b", B),
        ("c", C),
        ("join", JOIN),
        ("last", LAST),
        ("end", END),
    ],
    ..PROGRAM
};

/// The graph without its reducers. Its tool returns the number that it receives.
fn bare(program: &Program<'_>) -> Interpreted {
    Interpreted::new(program, |_, params| match params["n"].as_i64() {
        Some(n) if n < 1000 => Ok(json!(n)),
        _ => Err(ActionError::permanent("too many")),
    })
}

fn whole(program: &Program<'_>) -> Interpreted {
    bare(program).reducing(digits)
}

fn key() -> SecretKey {
    SecretKey::from_seed(&KEY)
}

fn inputs(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

async fn records(store: &impl Store) -> Vec<SignedRecord> {
    store.load(&id("run")).await.unwrap()
}

fn proven(graph: &Interpreted, records: &[SignedRecord]) -> Result<Audit, String> {
    audit(graph, &id("run"), records, &key().public(), None).map_err(|error| error.to_string())
}

/// Audits and replays a journal with the reducers and without them.
fn prove_both(program: &Program<'_>, records: &[SignedRecord], unproven: &[&str]) {
    for (graph, unproven) in [(whole(program), &[] as &[&str]), (bare(program), unproven)] {
        let audit = proven(&graph, records).unwrap();
        assert_eq!(audit.unproven_reducers, unproven);
        let same = replay(&graph, &graph, &id("run"), records, &key().public(), None).unwrap();
        assert_eq!((same.deviations, same.stopped), (vec![], None));
        entry_at(&graph, &id("run"), records, &key().public(), None, None).unwrap();
    }
}

const BOTH: [&str; 2] = ["scoring/digits", "scoring/others"];

#[tokio::test]
async fn writes_are_combined_by_the_program_in_the_order_of_paths() {
    let expected = json!({"score": 1234, "seen": 1, "b": 13, "other": 37});
    let runtime = Runtime::builder().grant("*").unwrap().build().unwrap();
    let finished = runtime.start(whole(&GRAPH), inputs(json!({"b": 3}))).await.unwrap().await.unwrap();
    assert_eq!(finished.output, expected);

    let store = MemoryStore::new();
    let runtime = crate::support::runtime(store.clone());
    let run = runtime.start_as(id("run"), whole(&GRAPH), inputs(json!({"b": 3}))).await.unwrap();
    assert_eq!(run.await.unwrap().output, expected);
    let all = records(&store).await;
    let steps: Vec<Value> = all.iter().map(|record| serde_json::from_str(&record.body).unwrap()).collect();
    assert_eq!((&steps[1]["reduced"], &steps[1]["visits"][0]["reduced"]), (&json!({"score": 1}), &json!({"score": 1})));
    // Only `b` reads the channel after it has written to it.
    assert_eq!(steps[3]["reduced"], json!({"score": 1234}));
    let seen: Vec<&Value> = (0..3).map(|at| &steps[3]["visits"][at]["reduced"]).collect();
    assert_eq!(seen, [&Value::Null, &json!({"score": 13}), &Value::Null]);
    prove_both(&GRAPH, &all, &BOTH);
    let state = entry_at(&bare(&GRAPH), &id("run"), &all, &key().public(), None, Some(5)).unwrap().state;
    assert_eq!(state["score"], 1234);
}

#[tokio::test]
async fn a_run_that_crashes_at_any_record_ends_the_same() {
    for durability in [Durability::Sync, Durability::Async] {
        for left in 0..12 {
            for writes in [false, true] {
                let store = MemoryStore::new();
                let options = Options { run: Some(id("run")), durability, ..Options::default() };
                let failing = runtime(failing(&store, left, writes));
                let run = failing.start_with(options, whole(&GRAPH), inputs(json!({"b": 3}))).await.unwrap();
                let ended = run.await;
                let resumed = runtime(store.clone()).resume(whole(&GRAPH), &id("run")).await.unwrap().await.unwrap();
                assert_eq!(resumed.output, json!({"score": 1234, "seen": 1, "b": 13, "other": 37}), "{ended:?}");
                prove_both(&GRAPH, &records(&store).await, &BOTH);
            }
        }
    }
}

#[tokio::test]
async fn an_audit_with_the_reducers_refuses_another_value() {
    let store = MemoryStore::new();
    let run = runtime(store.clone()).start_as(id("run"), whole(&GRAPH), inputs(json!({"b": 3}))).await.unwrap();
    run.await.unwrap();
    let all = records(&store).await;
    let replaced = |seq: usize, edit: fn(&mut Value)| edited(&all, seq, edit);
    let forged = replaced(3, |step| step["reduced"]["score"] = json!(1243));
    assert!(proven(&whole(&GRAPH), &forged).unwrap_err().contains("other values of the channels"));
    let forged = replaced(3, |step| step["visits"][1]["reduced"]["score"] = json!(14));
    assert!(proven(&whole(&GRAPH), &forged).unwrap_err().contains("sees another value"));
    // Without the reducers, the audit still proves the values that depend on it.
    assert!(proven(&bare(&GRAPH), &forged).unwrap_err().contains("writes something else to `b`"));
    for forged in [
        replaced(3, |step| drop(step.as_object_mut().unwrap().remove("reduced"))),
        replaced(2, |step| step["reduced"] = json!({"score": 1})),
        replaced(3, |step| step["reduced"]["other"] = json!(3)),
        replaced(1, |step| drop(step["visits"][0].as_object_mut().unwrap().remove("reduced"))),
        replaced(3, |step| step["visits"][0]["reduced"] = json!({"score": 12})),
    ] {
        for graph in [whole(&GRAPH), bare(&GRAPH)] {
            proven(&graph, &forged).unwrap_err();
        }
    }
}

#[tokio::test]
async fn a_reducer_that_fails_fails_its_node() {
    // The write, and the reason.
    for (write, reason) in [(-1, "-1 is no digit"), (99, "it panicked: an unlucky number")] {
        let error = format!("`state.score`: `scoring/digits` failed: {reason}");
        for handled in [false, true] {
            let b = match handled {
                true => B.replace(r#""assign""#, r#""on_error":2,"assign""#),
                false => B.to_owned(),
            };
            let nodes = [
                ("b", b.as_str()),
                ("end", END),
                ("lost", r#"{"line":9,"does":"return","output":"${state._last_error.error}"}"#),
            ];
            let program = Program { nodes: &nodes.map(|(name, body)| (name, body)), ..GRAPH };
            let b = b.replace("join", "end");
            let nodes = [("b", b.as_str()), nodes[1], nodes[2]];
            let program = Program { nodes: &nodes, ..program };
            let store = MemoryStore::new();
            let run = runtime(store.clone()).start_as(id("run"), whole(&program), inputs(json!({"b": write}))).await;
            match run.unwrap().await {
                Ok(finished) => assert!(handled && finished.output == json!(error), "{:?}", finished.output),
                Err(RunError::Node { failure, .. }) => assert!(!handled && failure.message == error, "{failure:?}"),
                Err(other) => panic!("{other}"),
            }
            prove_both(&program, &records(&store).await, &[]);
        }
    }
}

#[tokio::test]
async fn writes_that_do_not_combine_keep_nothing_of_the_step() {
    let program = Program { nodes: &GRAPH.nodes.iter().map(|&(name, body)| match name {
        "a" => (name, r#"{"line":3,"does":{"action":0},"params":{"n":"${inputs.b}"},"assign":{"score":2},"next":[{"to":"join"}]}"#),
        "c" => (name, r#"{"line":5,"does":"gate","assign":{"score":"${inputs.c}"},"next":[{"to":"join"}]}"#),
        _ => (name, body),
    }).collect::<Vec<_>>(), ..GRAPH };
    // The number is refused only behind those of the other branches.
    fn small(value: Value, write: &Value) -> Result<Value, ReducerError> {
        let combined = digits(value, write)?;
        if combined.as_i64() > Some(1200) { Err("too large".into()) } else { Ok(combined) }
    }
    let store = MemoryStore::new();
    let graph = bare(&program).reducing(small);
    let run = runtime(store.clone()).start_as(id("run"), graph.clone(), inputs(json!({"b": 3, "c": 4}))).await.unwrap();
    let error = run.await.unwrap_err().to_string();
    assert!(error.contains("`scoring/digits` failed: too large"), "{error}");
    let all = records(&store).await;
    for (graph, unproven) in [(graph, &[] as &[&str]), (bare(&program), &BOTH[..1])] {
        assert_eq!(proven(&graph, &all).unwrap().unproven_reducers, unproven);
        let state = entry_at(&graph, &id("run"), &all, &key().public(), None, None).unwrap().state;
        assert_eq!(state["score"], 1);
    }
}

/// Returns the store of a run that failed at `b`.
async fn failed() -> MemoryStore {
    let store = MemoryStore::new();
    let run = runtime(store.clone()).start_as(id("run"), whole(&GRAPH), inputs(json!({"b": 1000}))).await.unwrap();
    run.await.unwrap_err();
    store
}

fn edit(set: Value, write: Value) -> StateEdit {
    StateEdit { by: "ann".to_owned(), why: "a test".to_owned(), set: inputs(set), write: inputs(write) }
}

#[tokio::test]
async fn an_edit_writes_to_a_channel_with_the_reducer_only() {
    let store = failed().await;
    let runtime = runtime(store.clone());
    let error = runtime.edit(&bare(&GRAPH), &id("run"), edit(json!({}), json!({"score": 5}))).await.unwrap_err();
    let EditError::Misfit { reason, .. } = &error else { panic!("{error}") };
    assert!(
        reason.to_string().contains("`scoring/digits` is a function of the program, which is not there"),
        "{reason}"
    );
    let error = runtime.edit(&whole(&GRAPH), &id("run"), edit(json!({}), json!({"score": 55}))).await.unwrap_err();
    assert!(
        matches!(&error, EditError::Misfit { reason, .. } if reason.to_string().contains("55 is no digit")),
        "{error}"
    );
    runtime.edit(&whole(&GRAPH), &id("run"), edit(json!({"other": 8}), json!({"score": 5}))).await.unwrap();
    let all = records(&store).await;
    let last: Value = serde_json::from_str(&all.last().unwrap().body).unwrap();
    assert_eq!((&last["write"], &last["reduced"]), (&json!({"score": 5}), &json!({"score": 15})));
    for (graph, unproven) in [(whole(&GRAPH), &[] as &[&str]), (bare(&GRAPH), &BOTH[..1])] {
        assert_eq!(proven(&graph, &all).unwrap().unproven_reducers, unproven);
        let state = entry_at(&graph, &id("run"), &all, &key().public(), None, None).unwrap().state;
        assert_eq!((&state["score"], &state["other"]), (&json!(15), &json!(8)));
    }
    let at = all.len() - 1;
    let forged = edited(&all, at, |edit| edit["reduced"]["score"] = json!(16));
    assert!(proven(&whole(&GRAPH), &forged).unwrap_err().contains("other values"));
    let forged = edited(&all, at, |edit| drop(edit.as_object_mut().unwrap().remove("reduced")));
    proven(&bare(&GRAPH), &forged).unwrap_err();

    let fork = Fork { write: inputs(json!({"score": 6})), ..Fork::default() };
    runtime.fork(&bare(&GRAPH), &id("run"), fork.clone()).await.unwrap_err();
    let forked = runtime.fork(&whole(&GRAPH), &id("run"), fork).await.unwrap();
    let state = entry_at(&bare(&GRAPH), &forked, &store.load(&forked).await.unwrap(), &key().public(), None, None);
    assert_eq!(state.unwrap().state["score"], 156);
}

#[tokio::test]
async fn an_attestation_names_the_reducers_that_are_not_proven() {
    let store = MemoryStore::new();
    let run = runtime(store.clone()).start_as(id("run"), whole(&GRAPH), inputs(json!({"b": 3}))).await.unwrap();
    run.await.unwrap();
    for (graph, unproven) in [(whole(&GRAPH), json!(null)), (bare(&GRAPH), json!(BOTH))] {
        audit_tree(Arc::new(graph.clone()), &id("run"), &store, &key().public(), None).await.unwrap();
        let envelope = attest(Arc::new(graph), &id("run"), &store, &key().public(), None, &key()).await.unwrap();
        let read = graph_runtime::Attestation::verify(&envelope, &key().public()).unwrap();
        let statement: Value = serde_json::from_str(&read.statement).unwrap();
        assert_eq!(statement["predicate"]["unprovenReducers"], unproven);
    }
}

#[tokio::test]
async fn a_replay_without_the_reducers_stops_behind_a_difference() {
    let store = MemoryStore::new();
    let run = runtime(store.clone()).start_as(id("run"), whole(&GRAPH), inputs(json!({"b": 3}))).await.unwrap();
    run.await.unwrap();
    let all = records(&store).await;
    let c = C.replace("\"score\":4", "\"score\":5");
    let nodes: Vec<_> =
        GRAPH.nodes.iter().map(|&(name, body)| (name, if name == "c" { c.as_str() } else { body })).collect();
    let changed = Program { nodes: &nodes, ..GRAPH };
    let with = replay(&whole(&GRAPH), &whole(&changed), &id("run"), &all, &key().public(), None).unwrap();
    assert_eq!((with.stopped, with.output.unwrap()["score"].clone()), (None, json!(1235)));
    let without = replay(&whole(&GRAPH), &bare(&changed), &id("run"), &all, &key().public(), None).unwrap();
    assert_eq!(without.deviations.len(), 1);
    assert!(without.stopped.unwrap().reason.contains("`scoring/digits` is a function of the program"));
}

//! Edits of runs that are not in progress.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use graph_runtime::__private::{Key, Program};
use graph_runtime::history::{EditError, EditSummary, Fork, StateEdit, checkpoints, entry_at, replay};
use graph_runtime::record::{SignedRecord, Status};
use graph_runtime::store::StoreError;
use graph_runtime::{
    ActionError, Attestation, Builder, Durability, EditRun, EncryptionKey, ForkRun, Map, MemoryStore, Options,
    RunOutcome, Runtime, SecretKey, Single, StepOnce, Store, StoredRunError, Value, attest, audit, audit_tree,
};
use serde_json::json;
use tokio::sync::Notify;

use crate::inside::{GRAPH, child};
use crate::interpreted::{Interpreted, PROGRAM};
use crate::support::{KEY, failing, id, kinds, runtime};

fn public() -> graph_runtime::PublicKey {
    SecretKey::from_seed(&KEY).public()
}

fn edit(set: Value, write: Value) -> StateEdit {
    let keys = |value: Value| match value {
        Value::Object(keys) => keys,
        _ => Map::new(),
    };
    StateEdit { by: "ann".to_owned(), why: "a test".to_owned(), set: keys(set), write: keys(write) }
}

/// The reason of an error, as a person reads it.
fn text(error: &EditError) -> String {
    let source = std::error::Error::source(error).map_or(String::new(), |source| format!(": {source}"));
    format!("{error}{source}")
}

const FIRST: &str =
    r#"{"line":1,"does":{"action":0},"params":{"n":1},"assign":{"log":"${result}","sum":2},"next":[{"to":"second"}]}"#;
const SECOND: &str =
    r#"{"line":2,"does":{"action":0},"params":{"n":"${state.n}"},"assign":{"log":"${result}"},"next":[{"to":"end"}]}"#;
const END: &str = r#"{"line":3,"does":"return","output":{"log":"${state.log}","sum":"${state.sum}","free":"${state.free || inputs.x}"}}"#;

/// Calls a tool with 1 and with the key `n`. The tool fails for numbers below 1.
const TWO: Program<'static> = Program {
    settings: r#"{"channels":{"log":"append","sum":"sum"}}"#,
    keys: &[
        Key { name: "log", initial: Some("[]") },
        Key { name: "sum", initial: Some("0") },
        Key { name: "n", initial: Some("0") },
        Key { name: "free", initial: Some("1") },
    ],
    nodes: &[("first", FIRST), ("second", SECOND), ("end", END)],
    ..PROGRAM
};

/// A machine, and how often its tool was called.
fn machine(program: &Program<'_>) -> (Interpreted, Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let machine = Interpreted::new(program, move |_, params| {
        counted.fetch_add(1, Ordering::SeqCst);
        match params["n"].as_i64() {
            Some(n) if n > 0 => Ok(json!(n * 10)),
            _ => Err(ActionError::permanent("no number above 0")),
        }
    });
    (machine, calls)
}

/// Returns the store of a run that failed at `second`.
async fn failed() -> MemoryStore {
    let store = MemoryStore::new();
    let run = runtime(store.clone()).start_as(id("run"), machine(&TWO).0, Map::new()).await.unwrap();
    run.await.unwrap_err();
    store
}

async fn records(store: &impl Store) -> Vec<SignedRecord> {
    store.load(&id("run")).await.unwrap()
}

#[tokio::test]
async fn a_failed_run_continues_with_its_edited_state() {
    let store = failed().await;
    let (graph, calls) = machine(&TWO);
    let runtime = runtime(store.clone());
    let said = runtime
        .edit(&graph, &id("run"), edit(json!({"n": 3, "free": null}), json!({"log": "by hand", "sum": 40})))
        .await
        .unwrap();
    let EditSummary { record, step, by, why, set, written, .. } = said.clone();
    assert_eq!((record, step, by.as_str(), why.as_str()), (3, 1, "ann", "a test"));
    assert_eq!((set.join(","), written.join(",")), ("n,free".to_owned(), "log,sum".to_owned()));
    assert_eq!(kinds(&records(&store).await), ["start", "step", "end", "edit"]);
    // The run is as it was, except for its state.
    let found = store.find(&id("run")).await.unwrap();
    assert_eq!((found.status, found.holder), (Status::Error, None));
    match runtime.outcome(&graph, &id("run")).await.unwrap() {
        RunOutcome::Failed { node, steps, .. } => assert_eq!((node.as_deref(), steps), (Some("second"), 1)),
        other => panic!("{other:?}"),
    }
    let before = audit(&graph, &id("run"), &records(&store).await, &public(), None).unwrap();
    assert_eq!((before.status, before.edits, before.resumes), (Status::Error, vec![said.clone()], 0));
    assert_eq!(calls.load(Ordering::SeqCst), 0, "an edit calls nothing");

    let finished = runtime.resume(graph.clone(), &id("run")).await.unwrap().await.unwrap();
    assert_eq!(finished.output, json!({"log": [10, "by hand", 30], "sum": 42, "free": null}));
    assert_eq!(calls.load(Ordering::SeqCst), 1, "the first call is not made again");
    let all = records(&store).await;
    assert_eq!(kinds(&all), ["start", "step", "end", "edit", "resume", "step", "step", "end"]);
    let proven = audit(&graph, &id("run"), &all, &public(), None).unwrap();
    assert_eq!((proven.edits, proven.resumes), (vec![said.clone()], 1));
    // Time travel, replays and attestations know the edit.
    let shown: Vec<_> = checkpoints(&id("run"), &all, &public()).unwrap().into_iter().map(|one| one.edits).collect();
    assert_eq!(shown, [vec![], vec![said], vec![], vec![]]);
    let at = |step| entry_at(&graph, &id("run"), &all, &public(), None, Some(step)).unwrap().state;
    assert_eq!(at(0), json!({"inputs": {}, "log": [], "sum": 0, "n": 0, "free": 1}));
    assert_eq!(at(1), json!({"inputs": {}, "log": [10, "by hand"], "sum": 42, "n": 3}));
    let same = replay(&graph, &graph, &id("run"), &all, &public(), None).unwrap();
    assert_eq!((same.deviations, same.stopped, same.visits), (vec![], None, 3));
    let auditor = SecretKey::from_seed(&[3; 32]);
    let envelope = attest(Arc::new(graph.clone()), &id("run"), &store, &public(), None, &auditor).await.unwrap();
    let attested = Attestation::verify(&envelope, &auditor.public()).unwrap().statement;
    let attested: Value = serde_json::from_str(&attested).unwrap();
    let edits = attested["predicate"]["edits"].as_array().unwrap();
    assert_eq!((edits.len(), &edits[0]["by"], &edits[0]["set"]), (1, &json!("ann"), &json!(["n", "free"])));
    // An edited run can be forked before and after its edit.
    let fork = async |write: Value| {
        let fork = Fork { step: Some(1), write: edit(json!({}), write).write, ..Fork::default() };
        let run = runtime.fork(&graph, &id("run"), fork).await.unwrap();
        let output = runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap().output;
        let proven = audit_tree(Arc::new(graph.clone()), &run, &store, &public(), None).await.unwrap();
        assert!(proven[0].is_origin_proven && proven[0].edits.is_empty());
        output
    };
    assert_eq!(fork(json!({"sum": 100})).await["sum"], 142);
}

#[tokio::test]
async fn a_fork_of_a_run_that_is_edited_later_is_proven() {
    let store = failed().await;
    let (graph, _) = machine(&TWO);
    let runtime = runtime(store.clone());
    let set = edit(json!({"n": 1}), json!({})).set;
    let fork = runtime.fork(&graph, &id("run"), Fork { set, ..Fork::default() }).await.unwrap();
    runtime.edit(&graph, &id("run"), edit(json!({"n": 2}), json!({}))).await.unwrap();
    runtime.edit(&graph, &fork, edit(json!({}), json!({"sum": 5}))).await.unwrap();
    let output = runtime.resume(graph.clone(), &fork).await.unwrap().await.unwrap().output;
    assert_eq!(output["sum"], 7);
    let proven = audit_tree(Arc::new(graph.clone()), &fork, &store, &public(), None).await.unwrap();
    assert!(proven[0].is_origin_proven, "{proven:?}");
}

#[tokio::test]
async fn edits_that_do_not_fit_are_refused_and_leave_nothing() {
    let store = failed().await;
    let (graph, _) = machine(&TWO);
    let runtime = runtime(store.clone());
    for (set, write, said) in [
        (json!({"m": 1}), json!({}), "the graph has no state key `m`; it has `log`, `sum`, `n`, `free`"),
        (json!({}), json!({"m": 1}), "the graph has no state key `m`; it has `log`, `sum`, `n`, `free`"),
        (
            json!({"sum": 1}),
            json!({"sum": 1}),
            "the state key `sum` is both set and written: set it to its final value",
        ),
        (json!({}), json!({}), "it changes no state key"),
        (json!({"n": null}), json!({}), "the state key `n` cannot be unset: `second` reads it without a fallback"),
        (json!({"log": null}), json!({}), "the state key `log` cannot be unset: it is a channel; set it to a value"),
        (
            json!({}),
            json!({"sum": "a"}),
            "the state key `sum` cannot be written so: `sum` takes a number, and found a string",
        ),
        (
            json!({}),
            json!({"sum": i64::MAX}),
            "the state key `sum` cannot be written so: `sum` is beyond the integers of 64 bits",
        ),
    ] {
        let error = runtime.edit(&graph, &id("run"), edit(set, write)).await.unwrap_err();
        assert_eq!(text(&error), format!("cannot edit run `run`: {said}"));
    }
    for (by, why, what) in [
        ("", "a test", "who makes it"),
        ("ann\u{1b}[2J", "a test", "who makes it"),
        ("ann", " ", "why it is made"),
        ("ann", "two\nlines", "why it is made"),
    ] {
        let edit = StateEdit { by: by.to_owned(), why: why.to_owned(), ..edit(json!({"n": 1}), json!({})) };
        let error = runtime.edit(&graph, &id("run"), edit).await.unwrap_err();
        assert_eq!(
            text(&error),
            format!("cannot edit run `run`: it does not say {what} in one line of at most 1000 visible characters")
        );
    }
    let fine = || edit(json!({"n": 1}), json!({}));
    let other = Program { digest: "00000000000000000000000000000000000000000000000000000000000000ab", ..TWO };
    let error = runtime.edit(&machine(&other).0, &id("run"), fine()).await.unwrap_err();
    assert!(text(&error).contains("the graph that was brought is"), "{}", text(&error));
    let set = edit(json!({"sum": null}), json!({})).set;
    let error = runtime.fork(&graph, &id("run"), Fork { set, ..Fork::default() }).await.unwrap_err().to_string();
    assert_eq!(error, "the state key `sum` is a channel that `sum` adds to, which cannot hold this");
    let error = runtime.edit(&graph, &id("other"), fine()).await.unwrap_err();
    assert!(matches!(error, EditError::Stored(StoredRunError::Store(StoreError::NotFound(_)))));
    let bare = Runtime::builder().build().unwrap();
    assert!(matches!(
        bare.edit(&graph, &id("run"), fine()).await.unwrap_err(),
        EditError::Stored(StoredRunError::Store(StoreError::None))
    ));
    assert_eq!(kinds(&records(&store).await), ["start", "step", "end"]);
    assert_eq!(store.find(&id("run")).await.unwrap().holder, None);
    // A run that has a result has nothing left to do.
    runtime.edit(&graph, &id("run"), fine()).await.unwrap();
    runtime.resume(graph.clone(), &id("run")).await.unwrap().await.unwrap();
    let error = runtime.edit(&graph, &id("run"), fine()).await.unwrap_err();
    assert!(matches!(error, EditError::Ended { .. }), "{error}");
}

#[tokio::test]
async fn a_run_in_progress_is_not_edited() {
    let store = MemoryStore::new();
    let (begun, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (told, waits) = (Arc::clone(&begun), Arc::clone(&go));
    let graph = Interpreted::waiting(&TWO, move |_, _| {
        let (told, waits) = (Arc::clone(&told), Arc::clone(&waits));
        Box::pin(async move {
            told.notify_one();
            waits.notified().await;
            Ok(json!(1))
        })
    });
    let runtime = runtime(store.clone());
    let run = runtime.start_as(id("run"), graph.clone(), Map::new()).await.unwrap();
    begun.notified().await;
    let error = runtime.edit(&graph, &id("run"), edit(json!({"n": 1}), json!({}))).await.unwrap_err();
    assert!(matches!(error, EditError::Stored(StoredRunError::Store(StoreError::Leased { .. }))), "{error}");
    // A run that was left behind can be edited, and keeps its status.
    runtime.shutdown(Duration::from_millis(1)).await;
    run.await.unwrap_err();
    let runtime = self::runtime(store.clone());
    runtime.edit(&graph, &id("run"), edit(json!({"n": 1}), json!({}))).await.unwrap();
    let found = store.find(&id("run")).await.unwrap();
    assert_eq!((found.status, found.holder), (Status::Running, None));
    assert!(matches!(runtime.outcome(&graph, &id("run")).await.unwrap(), RunOutcome::Running { .. }));
    drop(go);
    let resumed = runtime.resume(machine(&TWO).0, &id("run")).await.unwrap().await.unwrap();
    assert_eq!(resumed.output["log"], json!([10, 10]));
}

const FAN: &str = r#"{"line":1,"does":"gate","next":{"all":[{"to":"a"},{"to":"b"}]}}"#;

/// Two branches: `a` calls a tool with the key `n`, `b` with the key `m`.
fn branches() -> Program<'static> {
    const A: &str = r#"{"line":2,"does":{"action":0},"params":{"n":"${state.n}"},"assign":{"log":"${result}"},"next":[{"to":"end"}]}"#;
    const B: &str = r#"{"line":3,"does":{"action":0},"params":{"n":"${state.m}"},"assign":{"log":"${result}"},"next":[{"to":"end"}]}"#;
    const JOIN: &str =
        r#"{"line":4,"does":"return","join":{"of":[1,2],"fan":0,"closes":true},"output":"${state.log}"}"#;
    Program {
        settings: r#"{"channels":{"log":"append"}}"#,
        keys: &[
            Key { name: "log", initial: Some("[]") },
            Key { name: "n", initial: Some("1") },
            Key { name: "m", initial: Some("0") },
        ],
        nodes: &[("fan", FAN), ("a", A), ("b", B), ("end", JOIN)],
        ..PROGRAM
    }
}

#[tokio::test]
async fn an_edit_keeps_the_parameters_of_finished_calls() {
    let store = MemoryStore::new();
    let (graph, calls) = machine(&branches());
    let runtime = runtime(store.clone());
    runtime.start_as(id("run"), graph.clone(), Map::new()).await.unwrap().await.unwrap_err();
    assert_eq!(kinds(&records(&store).await), ["start", "step", "calls", "end"]);
    let error = runtime.edit(&graph, &id("run"), edit(json!({"m": 2, "n": 3}), json!({}))).await.unwrap_err();
    let said = "cannot edit run `run`: the state key `n` cannot be changed: a call of node `a` (visit 2) was made with its \
                value and is not begun again; fork the run instead";
    assert_eq!(text(&error), said);
    runtime.edit(&graph, &id("run"), edit(json!({"m": 2}), json!({"log": 7}))).await.unwrap();
    let before = calls.load(Ordering::SeqCst);
    let finished = runtime.resume(graph.clone(), &id("run")).await.unwrap().await.unwrap();
    assert_eq!(finished.output, json!([7, 10, 20]));
    assert_eq!(calls.load(Ordering::SeqCst), before + 1, "the finished call is not made again");
    audit(&graph, &id("run"), &records(&store).await, &public(), None).unwrap();
    let same = replay(&graph, &graph, &id("run"), &records(&store).await, &public(), None).unwrap();
    assert_eq!((same.deviations, same.stopped), (vec![], None));
}

#[tokio::test]
async fn elements_that_an_edit_adds_belong_to_no_branch() {
    const SLOW: &str = r#"{"line":2,"does":"gate","next":[{"to":"slower"}]}"#;
    const SLOWER: &str =
        r#"{"line":3,"does":{"action":0},"params":{"n":"${state.n}"},"assign":{"log":"a"},"next":[{"to":"end"}]}"#;
    const QUICK: &str = r#"{"line":4,"does":"gate","assign":{"log":"b"},"next":[{"to":"end"}]}"#;
    const JOIN: &str =
        r#"{"line":5,"does":"return","join":{"of":[2,3],"fan":0,"closes":true},"output":"${state.log}"}"#;
    let fan = FAN.replace("\"a\"", "\"slow\"").replace("\"b\"", "\"quick\"");
    let program = Program {
        settings: r#"{"channels":{"log":"append"},"by_branch":["log"]}"#,
        keys: &[Key { name: "log", initial: Some("[]") }, Key { name: "n", initial: Some("0") }],
        nodes: &[("fan", &fan), ("slow", SLOW), ("slower", SLOWER), ("quick", QUICK), ("end", JOIN)],
        ..PROGRAM
    };
    // The changes, and the list at the end: `b` is written before the edit, and `a` after it.
    for (set, write, expected) in [
        (json!({"n": 1}), json!({}), json!(["a", "b"])),
        (json!({"n": 1}), json!({"log": "x"}), json!(["a", "x", "b"])),
        (json!({"n": 1, "log": ["x", "y"]}), json!({}), json!(["x", "y", "a"])),
    ] {
        let store = MemoryStore::new();
        let (graph, _) = machine(&program);
        let runtime = runtime(store.clone());
        runtime.start_as(id("run"), graph.clone(), Map::new()).await.unwrap().await.unwrap_err();
        // A single visit of the last node puts the list in order as the run would, unless it has another list.
        for (inject, expected) in
            [(json!({"n": 1}), json!(["a", "b"])), (json!({"n": 1, "log": ["z"]}), json!(["z", "a"]))]
        {
            let inject = inject.as_object().unwrap().clone();
            let single =
                Single { node: "slower".to_owned(), inject: inject.into_iter().collect(), ..Single::default() };
            let stepped = runtime.step_once_in(Arc::new(graph.clone()), &id("run"), single).await.unwrap();
            assert_eq!(stepped.state["log"], expected);
        }
        runtime.edit(&graph, &id("run"), edit(set, write)).await.unwrap();
        let fork = runtime.fork(&graph, &id("run"), Fork::default()).await.unwrap();
        for run in [&id("run"), &fork] {
            let finished = runtime.resume(graph.clone(), run).await.unwrap().await.unwrap();
            assert_eq!(finished.output, expected);
            let all = store.load(run).await.unwrap();
            audit_tree(Arc::new(graph.clone()), run, &store, &public(), None).await.unwrap();
            let same = replay(&graph, &graph, run, &all, &public(), None).unwrap();
            assert_eq!((same.deviations, same.stopped), (vec![], None));
        }
    }
}

/// Runs the graph [`child`] with the key `n`, which is no number at first.
fn parent() -> Interpreted {
    const NEST: &str = r#"{"line":1,"does":{"action":0},"params":{"n":"${state.n}"},"assign":{"got":"${result.output.doubled}"},"next":[{"to":"end"}]}"#;
    let program = Program {
        keys: &[
            Key { name: "n", initial: Some("\"none\"") },
            Key { name: "got", initial: None },
            Key { name: "other", initial: Some("1") },
        ],
        tools: &[GRAPH],
        nodes: &[
            ("nest", NEST),
            ("end", r#"{"line":2,"does":"return","output":{"got":"${state.got}","other":"${state.other}"}}"#),
        ],
        ..PROGRAM
    };
    Interpreted::new(&program, |_, _| Ok(Value::Null)).nesting(child())
}

#[tokio::test]
async fn an_edit_keeps_the_inputs_of_runs_that_have_begun_inside() {
    let store = MemoryStore::new();
    let runtime = runtime(store.clone());
    runtime.start_as(id("run"), parent(), Map::new()).await.unwrap().await.unwrap_err();
    let error = runtime.edit(&parent(), &id("run"), edit(json!({"n": 2}), json!({}))).await.unwrap_err();
    assert!(text(&error).contains("a call of node `nest` (visit 1) was made with its value"), "{}", text(&error));
    runtime.edit(&parent(), &id("run"), edit(json!({"other": 2}), json!({}))).await.unwrap();
    audit_tree(Arc::new(parent()), &id("run"), &store, &public(), None).await.unwrap();
    // The run inside is part of the one around it.
    let error = runtime.edit(&child(), &id("run-1"), edit(json!({"a": 2}), json!({}))).await.unwrap_err();
    assert_eq!(
        text(&error),
        "run `run-1` is inside run `run`: name the outermost run, and the path of the wait if something is sent"
    );
    // A fork makes the call again.
    let set = edit(json!({"n": 2}), json!({})).set;
    let fork = runtime.fork(&parent(), &id("run"), Fork { set, ..Fork::default() }).await.unwrap();
    let finished = runtime.resume(parent(), &fork).await.unwrap().await.unwrap();
    assert_eq!(finished.output, json!({"got": 4, "other": 2}));
    audit_tree(Arc::new(parent()), &fork, &store, &public(), None).await.unwrap();
}

#[tokio::test]
async fn a_run_with_a_cancelled_list_of_graphs_is_resumed() {
    const E1: &str = r#"{"line":2,"does":{"action":0},"params":{},"next":[{"to":"end"}]}"#;
    const E2: &str =
        r#"{"line":3,"does":{"foreach":1},"params":{},"each":{"over":[1,2],"as":"i","width":1},"next":[{"to":"end"}]}"#;
    let program = Program {
        settings: r#"{"max_steps":3}"#,
        keys: &[Key { name: "n", initial: Some("1") }],
        tools: &[PROGRAM.tools[0], GRAPH],
        nodes: &[
            ("fan", r#"{"line":1,"does":"gate","next":{"all":[{"to":"e1"},{"to":"e2"}]}}"#),
            ("e1", E1),
            ("e2", E2),
            ("end", r#"{"line":4,"does":"return","cancels":true,"output":"${state.n}"}"#),
        ],
        ..PROGRAM
    };
    let inner = Interpreted::waiting(
        &Program {
            id: "test/child",
            nodes: &[("call", r#"{"line":1,"does":{"action":0},"params":{},"next":[]}"#)],
            ..PROGRAM
        },
        |_, _| Box::pin(std::future::pending()),
    );
    let graph = Interpreted::waiting(&program, |_, _| {
        Box::pin(async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            Ok(json!(1))
        })
    });
    let graph = graph.nesting(inner);
    let store = MemoryStore::new();
    let runtime = runtime(store.clone());
    runtime.start_as(id("run"), graph.clone(), Map::new()).await.unwrap().await.unwrap_err();
    runtime.edit(&graph, &id("run"), edit(json!({"n": 2}), json!({}))).await.unwrap();
    let options = Options { max_steps: Some(9), ..Options::default() };
    let finished = runtime.resume_with(options, graph.clone(), &id("run")).await.unwrap().await.unwrap();
    assert_eq!(finished.output, 2);
    audit_tree(Arc::new(graph), &id("run"), &store, &public(), None).await.unwrap();
}

#[tokio::test]
async fn a_lost_step_that_began_a_run_inside_keeps_its_state() {
    const GATE: &str = r#"{"line":1,"does":"gate","assign":{"got":1},"next":[{"to":"nest"}]}"#;
    const NEST: &str = r#"{"line":2,"does":{"action":0},"params":{"n":"${state.n}"},"next":[{"to":"end"}]}"#;
    let program = Program {
        keys: &[Key { name: "n", initial: Some("3") }, Key { name: "got", initial: None }],
        tools: &[GRAPH],
        nodes: &[("gate", GATE), ("nest", NEST), ("end", r#"{"line":3,"does":"return","output":1}"#)],
        ..PROGRAM
    };
    let inner = Interpreted::waiting(
        &Program {
            id: "test/child",
            nodes: &[("call", r#"{"line":1,"does":{"action":0},"params":{},"next":[]}"#)],
            ..PROGRAM
        },
        |_, _| Box::pin(std::future::pending()),
    );
    let graph = Interpreted::new(&program, |_, _| Ok(Value::Null)).nesting(inner);
    let store = MemoryStore::new();
    let runtime = runtime(store.clone());
    let options = Options { run: Some(id("run")), durability: Durability::Exit, ..Options::default() };
    // A store that has lost the step of the gate:
    let behind = MemoryStore::new();
    let failing = self::runtime(failing(&behind, 0, false));
    failing.start_with(options.clone(), graph.clone(), Map::new()).await.unwrap().await.unwrap_err();
    let outer = records(&behind).await;
    let run = runtime.start_with(options, graph.clone(), Map::new()).await.unwrap();
    while store.find(&id("run-2")).await.is_err() {
        tokio::task::yield_now().await;
    }
    // The run inside began when the step was durable.
    let inside = store.load(&id("run-2")).await.unwrap();
    assert_eq!(kinds(&records(&store).await), ["start", "step"]);
    run.canceller().cancel();
    drop(run);
    assert_eq!(kinds(&outer), ["start"]);
    let store = MemoryStore::new();
    for (run, graph, records) in [("run", "test/graph", outer), ("run-2", "test/child", inside)] {
        drop(store.create(&id(run), graph, records).await.unwrap());
    }
    let runtime = self::runtime(store.clone());
    let error = runtime.edit(&graph, &id("run"), edit(json!({"n": 4}), json!({}))).await.unwrap_err();
    assert!(matches!(error, EditError::Ahead { .. }), "{error}");
}

#[tokio::test]
async fn edited_secrets_are_encrypted_and_cut_out_of_the_reason() {
    const CALL: &str = r#"{"line":1,"does":{"action":0},"params":{"n":"${state.paid}","key":"${state.token}"},"assign":{"sent":"${state.token}"},"next":[{"to":"end"}]}"#;
    let program = Program {
        settings: r#"{"secrets":{"keys":{"token":"all","sent":"all","tokens":{"each":"all"}}},"channels":{"tokens":"append"}}"#,
        keys: &[
            Key { name: "paid", initial: Some("0") },
            Key { name: "token", initial: None },
            Key { name: "tokens", initial: Some("[]") },
            Key { name: "sent", initial: None },
        ],
        nodes: &[("call", CALL), ("end", r#"{"line":2,"does":"return","output":{"paid":"${state.paid}"}}"#)],
        ..PROGRAM
    };
    let store = MemoryStore::new();
    let key = EncryptionKey::from_bytes([2; 32]);
    let with = |change: &dyn Fn(Builder) -> Builder| {
        let builder = Runtime::builder().store(store.clone()).sign_with(SecretKey::from_seed(&KEY));
        change(builder.grant("*").unwrap()).build().unwrap()
    };
    let runtime = with(&|builder| builder.encrypt_with(EncryptionKey::from_bytes([2; 32])));
    let (graph, _) = machine(&program);
    runtime.start_as(id("run"), graph.clone(), Map::new()).await.unwrap().await.unwrap_err();
    let secret = "tok-0123456789abcdef";
    let asked = || StateEdit {
        why: format!("the token is {secret}"),
        ..edit(json!({"paid": 1, "token": secret}), json!({"tokens": secret}))
    };
    // Without the key, or with another one, nothing is changed.
    let error = with(&|builder| builder).edit(&graph, &id("run"), asked()).await.unwrap_err();
    assert!(matches!(error, EditError::Stored(_)), "{error}");
    let other = with(&|builder| builder.encrypt_with(EncryptionKey::from_bytes([4; 32])));
    other.edit(&graph, &id("run"), asked()).await.unwrap_err();
    assert_eq!(kinds(&records(&store).await), ["start", "end"]);
    let said = runtime.edit(&graph, &id("run"), asked()).await.unwrap();
    assert_eq!(said.why, "the token is [secret]");
    let finished = runtime.resume(graph.clone(), &id("run")).await.unwrap().await.unwrap();
    assert_eq!(finished.state["token"], "[secret]");
    let all = records(&store).await;
    assert!(all.iter().all(|record| !record.body.contains(secret)), "{all:?}");
    for key in [Some(&key), None] {
        let proven = audit(&graph, &id("run"), &all, &public(), key).unwrap();
        assert_eq!((proven.is_recomputed, proven.edits), (key.is_some(), vec![said.clone()]));
        let entry = entry_at(&graph, &id("run"), &all, &public(), key, Some(0)).unwrap();
        assert_eq!(entry.state["paid"], 1);
        assert_eq!((&entry.state["token"], &entry.state["tokens"]), (&json!("[secret]"), &json!(["[secret]"])));
    }
    // A text with a secret of the run is given to no key that keeps none.
    let note = |value: Value| edit(json!({}), json!({"paid": value}));
    let fork = Fork { step: Some(0), set: note(json!({"of": [secret]})).write, ..Fork::default() };
    let error = runtime.fork(&graph, &id("run"), fork).await.unwrap_err().to_string();
    let said = "the value for the state key `paid` contains a secret of the run, and the key does not keep secrets";
    assert_eq!(error, said);
    let fork = runtime.fork(&graph, &id("run"), Fork { step: Some(0), ..Fork::default() }).await.unwrap();
    let error = runtime.edit(&graph, &fork, note(json!(format!("it is {secret}")))).await.unwrap_err();
    assert_eq!(text(&error), format!("cannot edit run `{fork}`: {said}"));
    // An encrypted value opens only in the record that it was encrypted for.
    let sealed: Value = serde_json::from_str(&all[2].body).unwrap();
    assert_ne!(sealed["set"]["token"], sealed["write"]["tokens"]);
}

#[tokio::test]
async fn an_edit_is_there_or_not_when_the_store_fails() {
    for is_made in [false, true] {
        let store = failed().await;
        let (graph, _) = machine(&TWO);
        let failing = runtime(failing(&store, 0, is_made));
        let error = failing.edit(&graph, &id("run"), edit(json!({"n": 1}), json!({"sum": 1}))).await.unwrap_err();
        assert_eq!(error.to_string(), "the store failed: the power went out");
        let runtime = runtime(store.clone());
        let count = if is_made { 4 } else { 3 };
        assert_eq!(records(&store).await.len(), count);
        audit(&graph, &id("run"), &records(&store).await, &public(), None).unwrap();
        // The run can be edited again, and resumed.
        runtime.edit(&graph, &id("run"), edit(json!({"n": 2}), json!({"sum": 1}))).await.unwrap();
        let output = runtime.resume(graph.clone(), &id("run")).await.unwrap().await.unwrap().output;
        assert_eq!(output["sum"], 2 + if is_made { 2 } else { 1 });
        audit(&graph, &id("run"), &records(&store).await, &public(), None).unwrap();
    }
}

//! The limits of a graph: how often a run visits one node, and how many steps it takes together with the runs inside it.

use graph_runtime::__private::{Key, Program};
use std::sync::Arc;
use std::time::Duration;

use graph_runtime::{
    Finished, Map, MemoryStore, RunError, Runtime, SecretKey, Status, Store, Value, audit, audit_tree,
};
use serde_json::json;

use crate::forged::edited;
use crate::inside::{GRAPH, with};
use crate::interpreted::{Interpreted, PROGRAM};
use crate::support::{KEY, failing, id, kinds, runtime};

const A: Key<'static> = Key { name: "a", initial: None };

/// A loop of two nodes, whose records are long enough for a snapshot after each few steps.
fn round() -> Interpreted {
    let nodes = &[
        ("call", r#"{"line":1,"does":{"action":0},"assign":{"a":"${result}"},"next":[{"to":"again"}]}"#),
        ("again", r#"{"line":2,"does":"gate","next":[{"to":"call"}]}"#),
    ];
    let program = Program { keys: &[A], nodes, settings: r#"{"max_steps":1000,"visits":40}"#, ..PROGRAM };
    Interpreted::new(&program, |_, _| Ok(json!("x".repeat(10_000))))
}

#[tokio::test]
async fn a_run_visits_no_node_more_often_than_it_may() {
    let unkept = Runtime::builder().grant("*").unwrap().build().unwrap();
    let store = MemoryStore::new();
    for runtime in [unkept, runtime(store.clone())] {
        let error = runtime.start_as(id("run"), round(), Map::new()).await.unwrap().await.unwrap_err();
        assert_eq!(error.to_string(), "Max visits exceeded (40) at node `call`");
        let value = error.to_value();
        assert_eq!((&value["node"], &value["steps"]), (&json!("call"), &json!(80)));
        assert!(matches!(error, RunError::MaxVisits { max_visits: 40, steps: 80, .. }));
    }
    let key = SecretKey::from_seed(&KEY).public();
    let audit = audit(&round(), &id("run"), &store.load(&id("run")).await.unwrap(), &key, None).unwrap();
    assert_eq!((audit.status, audit.steps), (Status::Error, 80));
}

#[tokio::test]
async fn visits_are_counted_across_every_resume() {
    let store = MemoryStore::new();
    runtime(store.clone()).start_as(id("run"), round(), Map::new()).await.unwrap().await.unwrap_err();
    let records = store.load(&id("run")).await.unwrap();
    assert!(kinds(&records).iter().filter(|kind| *kind == "snapshot").count() > 3);
    for length in 1..=records.len() {
        // A snapshot is written together with its step.
        if kinds(&records).get(length).is_some_and(|next| next == "snapshot") {
            continue;
        }
        let cut =
            with(&store, "run", Some(crate::journal::forged(&records[..length], |_, body| body.to_owned()))).await;
        let error = runtime(cut.clone()).resume(round(), &id("run")).await.unwrap().await.unwrap_err();
        assert!(matches!(error, RunError::MaxVisits { steps: 80, .. }), "{length}: {error}");
        let key = SecretKey::from_seed(&KEY).public();
        audit(&round(), &id("run"), &cut.load(&id("run")).await.unwrap(), &key, None).unwrap();
    }
}

#[tokio::test]
async fn forged_counts_of_visits_are_refused() {
    let store = MemoryStore::new();
    runtime(store.clone()).start_as(id("run"), round(), Map::new()).await.unwrap().await.unwrap_err();
    let records = store.load(&id("run")).await.unwrap();
    let snapshot = kinds(&records).iter().position(|kind| kind == "snapshot").unwrap();
    let refused = |change: &dyn Fn(&mut Value), at: usize| {
        let key = SecretKey::from_seed(&KEY).public();
        audit(&round(), &id("run"), &edited(&records, at, change), &key, None).unwrap_err().to_string()
    };
    for change in [
        &(|snapshot: &mut Value| snapshot["visited"]["call"] = json!(1)) as &dyn Fn(&mut Value),
        &|snapshot: &mut Value| snapshot["visited"] = json!({}),
        &|snapshot: &mut Value| snapshot["visited"]["other"] = json!(1),
    ] {
        let found = refused(change, snapshot);
        assert!(found.contains("another position") || found.contains("there is no node"), "{found}");
    }
    let last = records.len() - 1;
    for (error, why) in [
        ("Max visits exceeded (41) at node `call`", "a run fails so only at a node"),
        ("Max visits exceeded (40) at node `again`", "a run fails so only at a node"),
        ("Max steps exceeded (80)", "a run fails so only at a node"),
    ] {
        let found = refused(&|end: &mut Value| end["error"] = json!(error), last);
        assert!(found.contains(why), "{error}: {found}");
    }
    // With fewer visits, the run had not reached the limit.
    let early = [&records[..records.len() - 2], &records[last..]].concat();
    let early = crate::journal::forged(&early, |at, body| {
        let mut record: Value = serde_json::from_str(body).unwrap();
        record["seq"] = json!(at);
        if record["kind"] == "end" {
            record["steps"] = json!(79);
        }
        record.to_string()
    });
    let key = SecretKey::from_seed(&KEY).public();
    let found = audit(&round(), &id("run"), &early, &key, None).unwrap_err().to_string();
    assert!(found.contains("a run fails so only at a node"), "{found}");
}

/// A run of this many steps, each with a call that takes a moment.
fn steps() -> Interpreted {
    let nodes = &[
        ("call", r#"{"line":1,"does":{"action":0},"assign":{"a":"${visit.number}"},"next":[{"to":"more"}]}"#),
        (
            "more",
            r#"{"line":2,"does":"gate","next":[{"to":"done","when":{"path":"visit.number","op":"gte","value":3}},{"to":"call"}]}"#,
        ),
        ("done", r#"{"line":3,"does":"return","output":{"a":"${state.a}"}}"#),
    ];
    let program = Program { id: "test/steps", keys: &[A], nodes, ..PROGRAM };
    Interpreted::waiting(&program, |_, _| {
        Box::pin(async {
            tokio::time::sleep(Duration::from_millis(1)).await;
            Ok(json!(1))
        })
    })
}

/// Runs the graph of seven steps for each element of a list, several at a time.
fn middle() -> Interpreted {
    let nodes = &[
        (
            "each",
            r#"{"line":1,"does":{"foreach":0},"params":{"n":"${n}"},"each":{"over":"${inputs.list}","as":"n","collect":"all","width":3},"next":[{"to":"done"}]}"#,
        ),
        ("done", r#"{"line":2,"does":"return"}"#),
    ];
    let program =
        Program { id: "test/middle", keys: &[Key { name: "all", initial: None }], tools: &[GRAPH], nodes, ..PROGRAM };
    Interpreted::new(&program, |_, _| Ok(Value::Null)).nesting(steps())
}

/// Runs the middle graph twice, in two branches.
fn outer(settings: &str) -> Interpreted {
    let nodes = &[
        ("fork", r#"{"line":1,"does":"gate","next":{"all":[{"to":"left"},{"to":"right"}]}}"#),
        (
            "left",
            r#"{"line":2,"does":{"action":0},"params":{"list":"${inputs.list}"},"next":[{"to":"join"}],"on_error":3,"limits":{"steps":40}}"#,
        ),
        (
            "right",
            r#"{"line":3,"does":{"action":0},"params":{"list":"${inputs.list}"},"next":[{"to":"join"}],"on_error":3}"#,
        ),
        ("join", r#"{"line":4,"does":"gate","join":{"of":[1,2],"fan":0,"closes":true},"next":[{"to":"done"}]}"#),
        ("done", r#"{"line":5,"does":"return"}"#),
    ];
    let program = Program { tools: &[GRAPH], nodes, settings, ..PROGRAM };
    Interpreted::new(&program, |_, _| Ok(Value::Null)).nesting(middle())
}

fn list(length: u64) -> Map<String, Value> {
    Map::from_iter([("list".to_owned(), json!((0..length).collect::<Vec<_>>()))])
}

/// Returns how many steps all runs of a store made.
async fn all_steps(store: &MemoryStore) -> u64 {
    let mut all = 0;
    for run in store.list().await.unwrap() {
        for record in store.load(&run.run).await.unwrap() {
            let record: Value = serde_json::from_str(&record.body).unwrap();
            all += record["visits"].as_array().map_or(0, |visits| visits.len() as u64);
        }
    }
    all
}

async fn proven(graph: Interpreted, store: &MemoryStore) -> Result<usize, String> {
    let key = SecretKey::from_seed(&KEY).public();
    let audits = audit_tree(Arc::new(graph), &id("run"), store, &key, None).await;
    audits.map(|audits| audits.len()).map_err(|error| error.to_string())
}

async fn run(runtime: &Runtime, graph: Interpreted, length: u64) -> Result<Finished<Value>, RunError> {
    runtime.start_as(id("run"), graph, list(length)).await.unwrap().await
}

#[tokio::test]
async fn nested_runs_at_once_take_no_more_steps_than_the_limit() {
    for (most, length) in [(37, 2), (36, 2), (30, 2), (20, 3), (9, 2), (9, 0), (8, 0), (4, 4)] {
        let settings = format!(r#"{{"max_steps":1000,"steps":{most}}}"#);
        let store = MemoryStore::new();
        let ended = run(&runtime(store.clone()), outer(&settings), length).await;
        // `fork`, `left`, `right`, `join` and `done`; twice two nodes; and seven for each element, in both branches.
        let needed = 5 + 2 * 2 + 2 * 7 * length;
        let made = all_steps(&store).await;
        assert!(made <= most, "{made} steps, and {most} are allowed");
        assert_eq!(made == needed && ended.is_ok(), most >= needed, "{most} for {length}: {made} steps");
        proven(outer(&settings), &store).await.unwrap();
        // Without a store, the limit is the same.
        let unkept = Runtime::builder().grant("*").unwrap().build().unwrap();
        let ended = run(&unkept, outer(&settings), length).await;
        assert!(most < needed || ended.is_ok());
    }
}

#[tokio::test]
async fn nested_steps_are_counted_across_a_crash_at_any_record() {
    let settings = r#"{"max_steps":1000,"steps":26}"#;
    let whole = MemoryStore::new();
    drop(run(&runtime(whole.clone()), outer(settings), 2).await);
    let mut total = 0;
    for one in whole.list().await.unwrap() {
        total += whole.load(&one.run).await.unwrap().len();
    }
    for (count, is_durable) in (1..total as u64).flat_map(|count| [(count, false), (count, true)]) {
        let store = MemoryStore::new();
        let failing = failing(&store, count, is_durable);
        drop(run(&runtime(failing), outer(settings), 2).await);
        let resumed = runtime(store.clone()).resume(outer(settings), &id("run")).await;
        if let Ok(resumed) = resumed {
            drop(resumed.await);
        }
        let made = all_steps(&store).await;
        assert!(made <= 26, "crash at {count}: {made} steps");
        proven(outer(settings), &store).await.unwrap_or_else(|error| panic!("crash at {count}: {error}"));
    }
}

#[tokio::test]
async fn forged_counts_of_nested_steps_are_refused() {
    let settings = r#"{"max_steps":1000,"steps":100}"#;
    let store = MemoryStore::new();
    run(&runtime(store.clone()), outer(settings), 2).await.unwrap();
    proven(outer(settings), &store).await.unwrap();
    let changed = async |name: &str, find: &dyn Fn(&Value) -> bool, change: &dyn Fn(&mut Value)| {
        let records = store.load(&id(name)).await.unwrap();
        let at = records.iter().position(|record| find(&serde_json::from_str(&record.body).unwrap())).unwrap();
        let forged = with(&store, name, Some(edited(&records, at, change))).await;
        proven(outer(settings), &forged).await.unwrap_err()
    };
    let is_step = |record: &Value| record["visits"][0]["below"].is_u64();
    for (change, why) in [
        (json!(15), "visit 2 counts 15 steps of the runs inside it, and they made 16"),
        (json!(17), "visit 2 counts 17 steps of the runs inside it, and they made 16"),
        (json!(0), "visit 2 counts 0 steps of the runs inside it, and they made 16"),
        (json!(41), "the runs inside visit 2 made more than the 40 steps that they may"),
    ] {
        let found = changed("run", &is_step, &|record| record["visits"][0]["below"] = change.clone()).await;
        assert!(found.contains(why), "{found}");
    }
    let found = changed("run", &is_step, &|record| record["visits"][1]["below"] = json!(80)).await;
    assert!(found.contains("the run and those inside it made 99 steps") || found.contains("may make"), "{found}");
    let found = changed("run-2", &|record| record["visits"][0]["node"] == "done", &|record| {
        record["visits"][0]["below"] = json!(1);
    })
    .await;
    assert!(found.contains("began no run, and counts the steps of one"));
    for steps in [json!(41), json!(39), Value::Null] {
        let found =
            changed("run-2", &|record| record["kind"] == "start", &|record| record["steps"] = steps.clone()).await;
        assert!(found.contains("another number of steps") || found.contains("no limit asks for that"), "{found}");
    }
    let found = changed("run", &|record| record["kind"] == "start", &|record| record["steps"] = json!(5)).await;
    assert!(found.contains("it is in none"), "{found}");
}

#[tokio::test]
async fn forged_ends_at_limits_of_nested_steps_are_refused() {
    let settings = r#"{"max_steps":1000,"steps":26}"#;
    let store = MemoryStore::new();
    drop(run(&runtime(store.clone()), outer(settings), 2).await);
    proven(outer(settings), &store).await.unwrap();
    let mut forged = 0;
    for one in store.list().await.unwrap() {
        let records = store.load(&one.run).await.unwrap();
        let last = records.len() - 1;
        if !records[last].body.contains(r#""error":"Max steps of nested runs exceeded (26)""#)
            || one.run.as_str() == "run"
        {
            continue;
        }
        for most in [25, 27, 40, 41] {
            let error = json!(format!("Max steps of nested runs exceeded ({most})"));
            let records = edited(&records, last, |end| end["error"] = error.clone());
            let found = proven(outer(settings), &with(&store, one.run.as_str(), Some(records)).await).await;
            assert!(found.is_err(), "{most}");
        }
        forged += 1;
    }
    assert!(forged > 0, "some runs ended because of the limit");
    // Under a limit that all of them together did not reach, the same ends are refused.
    let settings = r#"{"max_steps":1000,"steps":1000}"#;
    let store = MemoryStore::new();
    run(&runtime(store.clone()), outer(settings), 1).await.unwrap();
    let records = store.load(&id("run")).await.unwrap();
    let mut early = records[..2].to_vec();
    early.push(records.last().unwrap().clone());
    let end =
        json!({"kind": "end", "status": "error", "steps": 1, "error": "Max steps of nested runs exceeded (1000)"});
    let early = crate::forged::inserted(&early, 2, &end);
    let found = proven(outer(settings), &with(&store, "run", Some(early[..3].to_vec())).await).await.unwrap_err();
    assert!(found.contains("a run fails so only at a node"), "{found}");
}

#[tokio::test]
async fn nested_runs_without_a_limit_count_nothing() {
    let store = MemoryStore::new();
    let inputs = list(2);
    runtime(store.clone()).start_as(id("run"), middle(), inputs).await.unwrap().await.unwrap();
    for run in store.list().await.unwrap() {
        for record in store.load(&run.run).await.unwrap() {
            assert!(!record.body.contains("below") && !record.body.contains(r#""steps":null"#), "{}", record.body);
        }
    }
}

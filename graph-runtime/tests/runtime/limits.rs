//! The limits of a graph: how often a run visits one node.

use graph_runtime::__private::{Key, Program};
use graph_runtime::{Map, MemoryStore, RunError, SecretKey, Status, Store, Value, audit};
use serde_json::json;

use crate::forged::edited;
use crate::inside::with;
use crate::interpreted::{Interpreted, PROGRAM};
use crate::support::{KEY, id, kinds, runtime};

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
    let unkept = graph_runtime::Runtime::builder().grant("*").unwrap().build().unwrap();
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

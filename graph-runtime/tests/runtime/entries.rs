//! Runs that begin at an entry, and not at the start.

use std::sync::Arc;

use graph_runtime::__private::{Key, Program};
use graph_runtime::history::{Fork, checkpoints, replay};
use graph_runtime::{
    ActionError, Call, EncryptionKey, Finished, ForkRun, Map, MemoryStore, Options, Runtime, SecretKey, StartError,
    Store, audit, audit_tree,
};
use serde_json::{Value, json};

use crate::durability::{Tokens, cut};
use crate::forged::edited;
use crate::interpreted::{Interpreted, PROGRAM};
use crate::support::{KEY, id, runtime};

const ENTRIES: &str =
    r#""entries":{"redo":{"node":1,"branches":[{"fan":0,"element":"inputs.part"}]},"after":{"node":3}}"#;

fn nodes() -> [(&'static str, &'static str); 5] {
    [
        ("split", r#"{"line":1,"does":"gate","next":{"over":"${inputs.parts}","as":"part","to":"work"}}"#),
        (
            "work",
            r#"{"line":2,"does":{"action":0},"params":{"n":"${part}"},"assign":{"seen":"${result}"},"next":[{"to":"met"}]}"#,
        ),
        (
            "met",
            r#"{"line":3,"does":"gate","assign":{"seen":"met"},"next":[{"to":"after"}],"join":{"of":[1],"fan":0,"closes":true}}"#,
        ),
        ("after", r#"{"line":4,"does":"gate","assign":{"seen":"after"},"next":[{"to":"done"}]}"#),
        ("done", r#"{"line":5,"does":"return","output":"${state.seen}"}"#),
    ]
}

/// A graph that makes a call for each part. A run may begin with one part, or behind all.
pub(crate) fn graph(settings: &str) -> Interpreted {
    let settings = format!(r#"{{"channels":{{"seen":"append"}},{ENTRIES}{settings}}}"#);
    let keys = &[Key { name: "seen", initial: Some("[]") }];
    let program = Program { nodes: &nodes(), settings: &settings, keys, ..PROGRAM };
    Interpreted::new(&program, |call: &Call, params| match params["n"].as_str() {
        Some("fails") => Err(ActionError::permanent(format!("visit {}", call.step()))),
        _ => Ok(params["n"].clone()),
    })
}

pub(crate) fn inputs() -> Map<String, Value> {
    Map::from_iter([("parts".to_owned(), json!(["a", "b"])), ("part".to_owned(), json!("c"))])
}

fn at(entry: &str) -> Options {
    Options { run: Some(id("run")), entry: Some(entry.to_owned()), ..Options::default() }
}

async fn ran(runtime: &Runtime, entry: &str, graph: &Interpreted) -> Finished<Value> {
    runtime.start_with(at(entry), graph.clone(), inputs()).await.unwrap().await.unwrap()
}

#[tokio::test]
async fn a_run_begins_at_an_entry_and_is_proven_resumed_replayed_and_forked() {
    let (graph, key) = (graph(""), SecretKey::from_seed(&KEY).public());
    for (entry, output, steps) in [("redo", json!(["c", "met", "after"]), 4), ("after", json!(["after"]), 2)] {
        let plain = Runtime::builder().grant("*").unwrap().build().unwrap();
        assert_eq!(ran(&plain, entry, &graph).await.output, output);
        let whole = MemoryStore::new();
        let tokens = Tokens::over(&whole);
        let first = ran(&runtime(tokens.store.clone()), entry, &graph).await;
        assert_eq!((&first.output, first.steps), (&output, steps));
        let records = whole.load(&id("run")).await.unwrap();
        audit(&graph, &id("run"), &records, &key, None).unwrap();
        let same = replay(&graph, &graph, &id("run"), &records, &key, None).unwrap();
        assert!(same.deviations.is_empty() && same.stopped.is_none(), "{:?}", same.deviations);
        // The last step and the end are written together.
        for length in 1..records.len() - 1 {
            let cut = cut(&whole, &tokens, length).await;
            let again = runtime(cut.clone()).resume(graph.clone(), &id("run")).await.unwrap().await.unwrap();
            assert_eq!((&again.output, again.steps), (&output, steps), "cut at {length}");
            audit(&graph, &id("run"), &cut.load(&id("run")).await.unwrap(), &key, None).unwrap();
        }
        let all = checkpoints(&id("run"), &records, &key).unwrap();
        for one in &all[..all.len() - 1] {
            let name = id(&format!("fork-{}", one.step));
            let fork = Fork { step: Some(one.step), run: Some(name.clone()), ..Fork::default() };
            runtime(whole.clone()).fork(&graph, &id("run"), fork).await.unwrap();
            let ended = runtime(whole.clone()).resume(graph.clone(), &name).await.unwrap().await.unwrap();
            assert_eq!((&ended.output, ended.steps), (&output, steps), "{name}");
            audit(&graph, &name, &whole.load(&name).await.unwrap(), &key, None).unwrap();
        }
    }
}

#[tokio::test]
async fn a_forged_entry_is_refused() {
    let (graph, key, store) = (graph(""), SecretKey::from_seed(&KEY).public(), MemoryStore::new());
    ran(&runtime(store.clone()), "redo", &graph).await;
    let records = store.load(&id("run")).await.unwrap();
    let start: Value = serde_json::from_str(&records[0].body).unwrap();
    assert_eq!(start["entry"], json!("redo"));
    let forgeries: [&dyn Fn(&mut Value); 4] = [
        &|record| drop(record.as_object_mut().unwrap().remove("entry")),
        &|record| record["entry"] = json!("after"),
        &|record| record["entry"] = json!("none"),
        &|record| drop(record["inputs"].as_object_mut().unwrap().remove("part")),
    ];
    for (number, forgery) in forgeries.into_iter().enumerate() {
        assert!(audit(&graph, &id("run"), &edited(&records, 0, forgery), &key, None).is_err(), "forgery {number}");
    }
}

#[tokio::test]
async fn a_run_does_not_begin_at_an_entry_that_is_not_there_or_without_its_element() {
    let (graph, store) = (graph(""), MemoryStore::new());
    let runtime = runtime(store.clone());
    let parts = Map::from_iter([("parts".to_owned(), json!([]))]);
    let refused = |entry: &str, inputs: Map<String, Value>| {
        let starting = runtime.start_with(at(entry), graph.clone(), inputs);
        async move {
            match starting.await {
                Err(error @ StartError::Begin { .. }) => error.to_string(),
                other => panic!("{:?}", other.err()),
            }
        }
    };
    assert_eq!(
        refused("again", inputs()).await,
        "the run of the graph `test/graph` cannot begin: it has no entry `again`, only `after`, `redo`"
    );
    assert_eq!(
        refused("redo", parts).await,
        "the run of the graph `test/graph` cannot begin: the entry needs `inputs.part`, which is missing"
    );
    store.load(&id("run")).await.unwrap_err();
}

#[tokio::test]
async fn a_fork_names_the_entry_of_its_origin() {
    let (graph, key, store) = (graph(""), SecretKey::from_seed(&KEY).public(), MemoryStore::new());
    ran(&runtime(store.clone()), "redo", &graph).await;
    let fork = Fork { step: Some(1), run: Some(id("fork")), ..Fork::default() };
    runtime(store.clone()).fork(&graph, &id("run"), fork).await.unwrap();
    let (records, machine) = (store.load(&id("fork")).await.unwrap(), Arc::new(graph.clone()));
    assert_eq!(serde_json::from_str::<Value>(&records[0].body).unwrap()["entry"], json!("redo"));
    assert!(audit_tree(machine.clone(), &id("fork"), &store, &key, None).await.unwrap()[0].is_origin_proven);
    let forgeries: [&dyn Fn(&mut Value); 2] =
        [&|record| record["entry"] = json!("after"), &|record| drop(record.as_object_mut().unwrap().remove("entry"))];
    for forgery in forgeries {
        let forged = MemoryStore::new();
        for (run, records) in [("run", store.load(&id("run")).await.unwrap()), ("fork", edited(&records, 0, forgery))] {
            drop(forged.create(&id(run), "test/graph", records).await.unwrap());
        }
        let found = audit_tree(machine.clone(), &id("fork"), &forged, &key, None).await.unwrap_err();
        assert!(found.to_string().contains("began in run `run`"), "{found}");
    }
}

#[tokio::test]
async fn the_element_of_an_entry_is_any_part_of_the_inputs() {
    let settings = |element: &str| ENTRIES.replace("inputs.part", element);
    for (element, given, output) in [
        ("inputs.parts.1", json!({"parts": ["a", "b"]}), json!("b")),
        ("inputs.parts[-1].n", json!({"parts": [{"n": 1}, {"n": 2}]}), json!(2)),
        // This is how an encrypted value is written; in inputs it is a value.
        ("inputs.part", json!({"part": {"$sealed": "x"}}), json!({"$sealed": "x"})),
    ] {
        let settings = format!(r#"{{"channels":{{"seen":"append"}},{}}}"#, settings(element));
        let keys = &[Key { name: "seen", initial: Some("[]") }];
        let program = Program { nodes: &nodes(), settings: &settings, keys, ..PROGRAM };
        let graph = Interpreted::new(&program, |_, params| Ok(params["n"].clone()));
        let (store, key) = (MemoryStore::new(), SecretKey::from_seed(&KEY).public());
        let given = given.as_object().unwrap().clone();
        let ended = runtime(store.clone()).start_with(at("redo"), graph.clone(), given).await.unwrap().await.unwrap();
        assert_eq!(ended.output, json!([output, "met", "after"]), "{element}");
        audit(&graph, &id("run"), &store.load(&id("run")).await.unwrap(), &key, None).unwrap();
    }
}

#[tokio::test]
async fn a_hook_at_the_start_sees_the_node_of_the_entry() {
    let hooks = r#","hooks":[{"event":"graph_started","params":{"fail":true,"error":"not now"}}]"#;
    let (graph, store) = (graph(hooks), MemoryStore::new());
    let ended = runtime(store.clone()).start_with(at("redo"), graph.clone(), inputs()).await.unwrap().await;
    assert_eq!(ended.unwrap_err().to_string(), "node `work` failed: not now");
    let (records, key) = (store.load(&id("run")).await.unwrap(), SecretKey::from_seed(&KEY).public());
    audit(&graph, &id("run"), &records, &key, None).unwrap();
}

#[tokio::test]
async fn the_element_of_an_entry_may_be_a_secret() {
    let graph =
        graph(r#","secrets":{"inputs":{"fields":{"part":"all"}},"keys":{"seen":{"each":"all"}},"output":"all"}"#);
    let (store, encrypts) = (MemoryStore::new(), EncryptionKey::from_bytes([7; 32]));
    let keeping = || {
        let builder = Runtime::builder().grant("*").unwrap().store(store.clone()).sign_with(SecretKey::from_seed(&KEY));
        builder.encrypt_with(encrypts.clone()).build().unwrap()
    };
    let mut given = inputs();
    given.insert("part".to_owned(), json!("a secret word"));
    let started = keeping().start_with(at("redo"), graph.clone(), given).await.unwrap();
    // The result of the tool is not declared as a secret, so a secret in it is hidden.
    assert_eq!(started.await.unwrap().output, json!(["[secret]", "met", "after"]));
    let (records, key) = (store.load(&id("run")).await.unwrap(), SecretKey::from_seed(&KEY).public());
    assert!(records.iter().all(|record| !record.body.contains("a secret word")));
    audit(&graph, &id("run"), &records, &key, Some(&encrypts)).unwrap();
    audit(&graph, &id("run"), &records, &key, None).unwrap();
}

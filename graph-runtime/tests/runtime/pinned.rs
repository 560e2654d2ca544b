//! Runs are pinned to the meaning of their graph: they continue under another text of it, and under nothing else.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use graph_runtime::__private::{Key, Program};
use graph_runtime::record::{Record, SignedRecord};
use graph_runtime::store::{Page, RunFilter, StoreError, Within};
use graph_runtime::{
    Digest, Graph as _, Machine as _, Map, MemoryStore, OutcomeError, ResumeError, RunError, RunId, RunOutcome,
    Runtime, SecretKey, SignalError, SqliteStore, Status, Store, StoredRunError, Value, WorkerError, WorkerOptions,
    audit, audit_tree,
};
use serde_json::json;

use crate::answers::{People, answering};
use crate::interpreted::{Interpreted, PROGRAM};
use crate::support::{KEY, id, kinds, runtime};
use crate::waits::{DAY, assert_proven, records, store};

/// The digests of two texts, and of two meanings.
const TEXTS: [&str; 2] = [
    "11111111111111111111111111111111111111111111111111111111111111aa",
    "22222222222222222222222222222222222222222222222222222222222222bb",
];
const MEANINGS: [&str; 2] = [
    "33333333333333333333333333333333333333333333333333333333333333cc",
    "44444444444444444444444444444444444444444444444444444444444444dd",
];

fn settings(meaning: Option<&str>) -> String {
    let meaning = meaning.map_or_else(String::new, |meaning| format!(r#","meaning":"{meaning}""#));
    format!(r#"{{"channels":{{"log":"append"}},"signals":{{"paid":{{}}}}{meaning}}}"#)
}

type Nodes<'a> = &'a [(&'a str, &'a str)];

const PACK: (&str, &str) = (
    "pack",
    r#"{"line":1,"does":{"action":0},"params":"packed","assign":{"log":"${result}"},"next":[{"to":"approve"}]}"#,
);
const PAID: (&str, &str) = (
    "paid",
    r#"{"line":3,"does":"wait","wait":{"signals":["paid"]},"assign":{"log":"${result.signal}"},"next":[{"to":"ship"}]}"#,
);
const SHIP: (&str, &str) = (
    "ship",
    r#"{"line":4,"does":{"action":0},"params":"shipped","assign":{"log":"${result}"},"next":[{"to":"done"}]}"#,
);
const DONE: (&str, &str) = ("done", r#"{"line":5,"does":"return","output":"${state.log}"}"#);

fn approve(late: u16, line: u32) -> String {
    format!(
        r#"{{"line":{line},"does":"interrupt","wait":{{"ask":{{"payload":{{"seen":"${{state.log}}"}},"count":2}},"timeout_ms":259200000,"on_timeout":{late}}},"assign":{{"log":"${{result.decision}}"}},"next":[{{"to":"paid"}}]}}"#
    )
}

/// A call, an answer of two people, a signal and a call, in a text; in the second text, the nodes are in another order.
fn order(text: usize, meaning: Option<&str>) -> Interpreted {
    let (first, second) = (approve(4, 2), approve(0, 20));
    let nodes: [Nodes<'_>; 2] =
        [&[PACK, ("approve", &first), PAID, SHIP, DONE], &[DONE, SHIP, PAID, ("approve", &second), PACK]];
    let program = Program {
        start: [0, 4][text],
        version: ["1.0.0", "1.0.1"][text],
        digest: TEXTS[text],
        keys: &[Key { name: "log", initial: Some("[]") }],
        settings: &settings(meaning),
        nodes: nodes[text],
        ..PROGRAM
    };
    Interpreted::new(&program, |_, params| Ok(params))
}

fn both() -> [Interpreted; 2] {
    [0, 1].map(|text| order(text, Some(MEANINGS[0])))
}

fn meaning(of: usize) -> Digest {
    MEANINGS[of].parse().unwrap()
}

/// Starts a run that waits.
async fn begin(runtime: &Runtime, graph: &Interpreted, run: &RunId) {
    let started = runtime.start_as(run.clone(), graph.clone(), Map::new()).await.unwrap();
    let error = started.await.unwrap_err();
    assert!(matches!(error, RunError::Waiting { .. }), "{error}");
}

/// Waits until a run has this status.
async fn until(store: &impl Store, run: &RunId, status: Status) {
    for _ in 0..3_000 {
        if store.find(run).await.unwrap().status == status {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let found = store.find(run).await.unwrap();
    let last = store.load(run).await.unwrap().pop().unwrap();
    assert_eq!(found.status, status, "{}", last.body);
}

fn start_of(signed: &[SignedRecord]) -> Value {
    serde_json::from_str(&signed[0].body).unwrap()
}

#[tokio::test]
async fn a_run_continues_under_another_text_of_its_graph() {
    // Each place at which the text changes: before the first answer, between two answers, before the signal, and back again.
    for change in 0_u32..16 {
        let (store, clock) = store();
        let people = People::default();
        let [ann, bo] = [(11, "Ann"), (12, "Bo")].map(|(seed, owner)| people.add(seed, owner, &[]));
        let (graphs, run) = (both(), id("order-1"));
        let text = |place: u32| &graphs[usize::from(change >> place & 1 == 1)];
        let runtime = answering(store.clone(), &people);
        begin(&runtime, &graphs[0], &run).await;
        assert_eq!(start_of(&records(&store, &run).await)["meaning"], MEANINGS[0]);
        let question = &runtime.questions(text(0), &run).await.unwrap()[0];
        let signed = question.sign(graph_runtime::NamedAnswer::new("approve", json!({"decision": "approve"})), &ann);
        let envelope = signed.unwrap();
        let statement: Value = serde_json::from_slice(&envelope.payload().unwrap()).unwrap();
        assert_eq!(statement["digest"], TEXTS[0], "an answer names the text that the run began under");
        runtime.answer(text(1), &run, &envelope).await.unwrap();
        let second = question.answer(&json!({"decision": "approve"})).signed_by(&bo).unwrap();
        runtime.answer(text(2), &run, &second).await.unwrap();
        let error = runtime.resume(text(3).clone(), &run).await.unwrap().await.unwrap_err();
        assert!(matches!(error, RunError::Waiting { .. }), "{error}");
        runtime.signal(text(2), &run, graph_runtime::NamedSignal::new("paid", json!(7)), "p-1").await.unwrap();
        match runtime.outcome(text(1), &run).await.unwrap() {
            RunOutcome::Running { .. } | RunOutcome::Waiting { .. } => {}
            other => panic!("{other:?}"),
        }
        let worker = runtime.worker(WorkerOptions::default().graph(text(0).clone())).unwrap();
        until(&store, &run, Status::Completed).await;
        worker.shutdown(DAY).await;
        drop(clock);
        let signed = records(&store, &run).await;
        for (number, graph) in graphs.iter().enumerate() {
            assert_proven(&store, graph, &run, Status::Completed).await;
            let key = SecretKey::from_seed(&KEY).public();
            let proven = audit(graph, &run, &signed, &key, None).unwrap();
            assert_eq!(
                (proven.digest.to_hex(), proven.under.to_hex()),
                (TEXTS[0].to_owned(), TEXTS[number].to_owned())
            );
            assert_eq!((proven.meaning, proven.version.as_str()), (Some(meaning(0)), "1.0.0"));
            assert_eq!(proven.approvals[0].by.len(), 2);
            let finished = runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap();
            assert_eq!(finished.output, json!(["packed", "approve", "paid", "shipped"]));
        }
    }
}

#[tokio::test]
async fn a_run_does_not_continue_under_another_meaning() {
    let (store, _) = store();
    let (runtime, run) = (answering(store.clone(), &People::default()), id("order-1"));
    begin(&runtime, &order(0, Some(MEANINGS[0])), &run).await;
    let before = records(&store, &run).await;
    // Another text with another meaning, and the same text with the contracts of its tools changed.
    for graph in [order(1, Some(MEANINGS[1])), order(0, Some(MEANINGS[1])), order(1, None)] {
        let error = runtime.resume(graph.clone(), &run).await.err().unwrap();
        assert!(matches!(error, ResumeError::Stored(StoredRunError::AnotherGraph { .. })), "{error}");
        let error = runtime.outcome(&graph, &run).await.unwrap_err();
        assert!(matches!(error, OutcomeError::Stored(StoredRunError::AnotherGraph { .. })), "{error}");
        let paid = graph_runtime::NamedSignal::new("paid", json!(7));
        let error = runtime.signal(&graph, &run, paid, "p-1").await.unwrap_err();
        assert!(matches!(error, SignalError::Stored(StoredRunError::AnotherGraph { .. })), "{error}");
        assert!(runtime.questions(&graph, &run).await.is_err());
        let key = SecretKey::from_seed(&KEY).public();
        audit(&graph, &run, &before, &key, None).unwrap_err();
    }
    assert_eq!(records(&store, &run).await, before);
    // A program without a meaning has the runs of its own text.
    runtime.outcome(&order(0, None), &run).await.unwrap();
}

#[tokio::test]
async fn a_run_that_began_without_a_meaning_is_pinned_to_its_text() {
    let (store, _) = store();
    let (runtime, run) = (answering(store.clone(), &People::default()), id("order-1"));
    begin(&runtime, &order(0, None), &run).await;
    assert_eq!(start_of(&records(&store, &run).await).get("meaning"), None);
    runtime.outcome(&order(0, Some(MEANINGS[0])), &run).await.unwrap();
    let error = runtime.outcome(&order(1, Some(MEANINGS[0])), &run).await.unwrap_err();
    assert!(matches!(error, OutcomeError::Stored(StoredRunError::AnotherGraph { .. })), "{error}");
    // The worker of a graph with a meaning finds it too.
    store.cancel(&run).await.unwrap();
    let worker = runtime.worker(WorkerOptions::default().graph(order(0, Some(MEANINGS[0])))).unwrap();
    until(&store, &run, Status::Cancelled).await;
    worker.shutdown(DAY).await;
}

/// A short wait, and a result that says which version ended it.
fn versioned(text: usize, meaning: Option<&str>, says: &'static str) -> Interpreted {
    let program = Program {
        digest: TEXTS[text],
        settings: &settings(meaning),
        keys: &[Key { name: "log", initial: Some("[]") }],
        nodes: &[
            ("wait", r#"{"line":1,"does":"wait","wait":{"timeout_ms":20},"next":[{"to":"say"}]}"#),
            ("say", r#"{"line":2,"does":{"action":0},"params":1,"assign":{"log":"${result}"},"next":[{"to":"done"}]}"#),
            ("done", r#"{"line":3,"does":"return","output":"${state.log}"}"#),
        ],
        ..PROGRAM
    };
    Interpreted::new(&program, move |_, _| Ok(json!(says)))
}

async fn picks_versions(store: impl Store + Clone) {
    let (old, new) = (versioned(0, Some(MEANINGS[0]), "old"), versioned(1, Some(MEANINGS[1]), "new"));
    let runtime = runtime(store.clone());
    for (run, graph) in [("old", &old), ("new", &new)] {
        begin(&runtime, graph, &id(run)).await;
    }
    // A worker leaves the runs of other versions alone.
    let worker = runtime.worker(WorkerOptions::default().graph(new.clone())).unwrap();
    until(&store, &id("new"), Status::Completed).await;
    tokio::time::timeout(DAY, worker.idle()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let status = worker.status();
    assert_eq!((status.claimed, status.postponed, status.is_idle), (1, 0, true));
    assert_eq!(store.find(&id("old")).await.unwrap().status, Status::Waiting);
    worker.shutdown(DAY).await;
    // One that has both continues both, in whatever order they are named.
    for (number, graphs) in [[&old, &new], [&new, &old]].into_iter().enumerate() {
        let runs = ["old", "new"].map(|version| id(&format!("{version}-{number}")));
        begin(&runtime, &old, &runs[0]).await;
        begin(&runtime, &new, &runs[1]).await;
        let options = graphs.into_iter().cloned().fold(WorkerOptions::default(), WorkerOptions::graph);
        let worker = runtime.worker(options).unwrap();
        for (run, graph, says) in [(&runs[0], &old, "old"), (&runs[1], &new, "new"), (&id("old"), &old, "old")] {
            until(&store, run, Status::Completed).await;
            let finished = runtime.resume(graph.clone(), run).await.unwrap().await.unwrap();
            assert_eq!(finished.output, json!([says]));
        }
        worker.shutdown(DAY).await;
    }
}

#[tokio::test]
async fn a_run_is_continued_by_the_version_that_it_began_under() {
    picks_versions(MemoryStore::new()).await;
    let directory = tempfile::tempdir().unwrap();
    picks_versions(SqliteStore::open(directory.path().join("runs.db")).await.unwrap()).await;
}

#[tokio::test]
async fn a_worker_refuses_two_graphs_of_one_meaning() {
    let runtime = runtime(MemoryStore::new());
    let is_refused = |graphs: [Interpreted; 2]| {
        let options = graphs.into_iter().fold(WorkerOptions::default(), WorkerOptions::graph);
        matches!(runtime.worker(options), Err(WorkerError::Twice { graph }) if graph == "test/graph")
    };
    let of = |text, meaning: Option<usize>| order(text, meaning.map(|meaning| MEANINGS[meaning]));
    assert!(is_refused(both()));
    assert!(is_refused([of(0, None), of(0, None)]));
    assert!(is_refused([of(0, None), of(0, Some(0))]), "runs that began without a meaning are runs of both");
    assert!(!is_refused([of(0, Some(0)), of(1, Some(1))]));
    assert!(!is_refused([of(0, None), of(1, None)]));
}

/// Calls that never return: the run dies with its runtime.
fn stuck(nests: bool) -> Interpreted {
    let nodes: Nodes<'_> = &[
        ("first", r#"{"line":1,"does":{"action":0},"params":0,"next":[{"to":"fan"}]}"#),
        ("fan", r#"{"line":2,"does":"gate","next":{"over":[1,2,3],"as":"n","to":"call"}}"#),
        ("call", r#"{"line":3,"does":{"action":0},"params":"${n}"}"#),
    ];
    let program = Program { settings: &settings(Some(MEANINGS[0])), nodes, ..PROGRAM };
    let program = Program { keys: &[Key { name: "log", initial: Some("[]") }], ..program };
    let graph = Interpreted::waiting(&program, |_, n| {
        Box::pin(async move { if n == 3 { std::future::pending().await } else { Ok(n) } })
    });
    if !nests {
        return graph;
    }
    let tool = graph_runtime::machine::Tool {
        id: "test/graph",
        by: graph_runtime::machine::Executor::Graph,
        ..PROGRAM.tools[0]
    };
    let nest = Program {
        id: "test/outer",
        digest: TEXTS[1],
        settings: &format!(r#"{{"meaning":"{}"}}"#, MEANINGS[1]),
        tools: &[tool],
        permissions: &["rye.execute.tool.*"],
        nodes: &[("nest", r#"{"line":1,"does":{"action":0},"params":{},"next":[{"to":"done"}]}"#), DONE_OF_NOTHING],
        ..PROGRAM
    };
    Interpreted::new(&nest, |_, params| Ok(params)).nesting(graph)
}

const DONE_OF_NOTHING: (&str, &str) = ("done", r#"{"line":2,"does":"return"}"#);

async fn is_managed_without_its_graph(store: impl Store + Clone) {
    let people = People::default();
    let waiting = order(0, Some(MEANINGS[0]));
    let first = answering(store.clone(), &people);
    begin(&first, &waiting, &id("waiting")).await;
    for (run, nests) in [("stopped", false), ("nesting", true)] {
        let runtime = runtime(store.clone());
        let run = runtime.start_as(id(run), stuck(nests), Map::new()).await.unwrap();
        // Calls of the innermost run are in its journal, and one is in progress.
        let is_stuck = |found: &graph_runtime::store::RunSummary| {
            found.graph == "test/graph" && found.holder.is_some() && found.records >= 4
        };
        while !store.list().await.unwrap().iter().any(is_stuck) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        drop(run);
        runtime.shutdown(Duration::ZERO).await;
        while store.list().await.unwrap().iter().any(|run| run.holder.is_some()) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    // Another version of the graph is all that is left.
    let runtime = runtime(store.clone());
    let list = |filter: RunFilter| {
        let store = store.clone();
        async move {
            let runs = store.runs(&filter, &Page::default()).await.unwrap().runs;
            let mut runs: Vec<String> = runs.into_iter().map(|run| run.run.to_string()).collect();
            runs.sort();
            runs
        }
    };
    let top = || RunFilter { within: Within::TopLevel, ..RunFilter::default() };
    let graph = || Some("test/graph".to_owned());
    assert_eq!(list(RunFilter { meaning: Some(meaning(0)), ..top() }).await, ["stopped", "waiting"]);
    assert_eq!(list(RunFilter { meaning: Some(meaning(1)), ..top() }).await, ["nesting"]);
    assert_eq!(list(RunFilter { digest: Some(TEXTS[0].parse().unwrap()), ..top() }).await, ["waiting"]);
    assert_eq!(list(RunFilter { graph: graph(), not_pinned: vec![meaning(1)], ..top() }).await, ["stopped", "waiting"]);
    assert!(list(RunFilter { graph: graph(), not_pinned: vec![meaning(1), meaning(0)], ..top() }).await.is_empty());
    let found = runtime.recorded_outcome(&id("waiting")).await.unwrap();
    assert_eq!((found.status, found.steps, found.meaning), (Status::Waiting, 1, Some(meaning(0))));
    assert_eq!((found.graph.as_str(), found.version.as_str(), found.waits.len()), ("test/graph", "1.0.0", 1));
    assert_eq!(runtime.recorded_outcome(&id("stopped")).await.unwrap().status, Status::Running);
    let inner = list(RunFilter { within: Within::Run(id("nesting")), ..RunFilter::default() }).await;
    assert_eq!(inner.len(), 1);
    let error = runtime.cancel_without_graph(&RunId::new(inner[0].as_str()).unwrap()).await.unwrap_err();
    assert!(matches!(error, StoredRunError::Inside { .. }), "{error}");
    for (run, graph) in [("waiting", &waiting), ("stopped", &stuck(false)), ("nesting", &stuck(true))] {
        let run = id(run);
        let status = runtime.cancel_without_graph(&run).await.unwrap();
        assert_eq!(status, Status::Cancelled, "{:#?}", store.list().await.unwrap());
        let error = runtime.cancel_without_graph(&run).await.unwrap_err();
        assert!(matches!(error, StoredRunError::Store(StoreError::Ended { .. })), "{error}");
        let found = runtime.recorded_outcome(&run).await.unwrap();
        assert_eq!((found.status, found.error.as_deref()), (Status::Cancelled, Some("cancelled")));
        // With the graph, the run is proven to be one of it.
        let key = SecretKey::from_seed(&KEY).public();
        let proven = audit_tree(Arc::new(graph.clone()), &run, &store, &key, None).await;
        let proven = proven.unwrap();
        assert!(proven.iter().all(|one| one.status == Status::Cancelled), "{run}");
        let last: Record = serde_json::from_str(&records(&store, &run).await.last().unwrap().body).unwrap();
        assert_eq!(last.parent(), None);
        assert_eq!(kinds(&records(&store, &run).await).last().unwrap(), "end");
    }
    for run in ["waiting", "stopped", "nesting"] {
        store.remove(&id(run)).await.unwrap();
    }
    assert!(store.list().await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_whose_graph_is_gone_is_listed_read_ended_and_removed() {
    is_managed_without_its_graph(MemoryStore::new()).await;
    let directory = tempfile::tempdir().unwrap();
    is_managed_without_its_graph(SqliteStore::open(directory.path().join("runs.db")).await.unwrap()).await;
}

#[tokio::test]
async fn the_outcome_of_a_run_whose_graph_is_gone_hides_secrets() {
    let store = MemoryStore::new();
    let program = Program {
        settings: r#"{"secrets":{"inputs":{"fields":{"card":"all"}},"output":{"fields":{"card":"all"}}}}"#,
        nodes: &[("done", r#"{"line":1,"does":"return","output":{"card":"${inputs.card}","cents":900}}"#)],
        ..PROGRAM
    };
    let graph = Interpreted::new(&program, |_, params| Ok(params));
    let builder = Runtime::builder().store(store.clone()).sign_with(SecretKey::from_seed(&KEY)).grant("*").unwrap();
    let key = graph_runtime::EncryptionKey::generate().unwrap();
    let writer = builder.encrypt_with(key).build().unwrap();
    let inputs = Map::from_iter([("card".to_owned(), json!("4111"))]);
    writer.start_as(id("secret"), graph, inputs).await.unwrap().await.unwrap();
    for runtime in [writer, runtime(store)] {
        let found = runtime.recorded_outcome(&id("secret")).await.unwrap();
        assert_eq!((found.status, found.output), (Status::Completed, json!({"card": "[secret]", "cents": 900})));
    }
}

#[tokio::test]
async fn a_nested_run_is_pinned_to_the_meaning_of_its_own_graph() {
    let store = MemoryStore::new();
    let fails = Arc::new(Mutex::new(true));
    let nest = |inner_text: usize, inner_meaning: usize, outer_text: usize| {
        let fails = Arc::clone(&fails);
        let inner = Program {
            id: "test/inner",
            digest: TEXTS[inner_text],
            settings: &format!(r#"{{"meaning":"{}"}}"#, MEANINGS[inner_meaning]),
            nodes: &[
                ("one", r#"{"line":1,"does":{"action":0},"params":1,"next":[{"to":"two"}]}"#),
                ("two", r#"{"line":1,"does":{"action":0},"params":2,"next":[{"to":"done"}]}"#),
                ("done", r#"{"line":2,"does":"return","output":5}"#),
            ],
            ..PROGRAM
        };
        let inner = Interpreted::new(&inner, move |_, n| match n == 2 && *fails.lock().unwrap() {
            true => Err(graph_runtime::ActionError::permanent("out of order")),
            false => Ok(n),
        });
        let tool = graph_runtime::machine::Tool {
            id: "test/inner",
            by: graph_runtime::machine::Executor::Graph,
            ..PROGRAM.tools[0]
        };
        let outer = Program {
            id: "test/outer",
            digest: TEXTS[outer_text],
            settings: &format!(r#"{{"meaning":"{}"}}"#, MEANINGS[0]),
            tools: &[tool],
            permissions: &["rye.execute.tool.*"],
            nodes: &[("nest", r#"{"line":1,"does":{"action":0},"params":{},"next":[{"to":"done"}]}"#), DONE_OF_NOTHING],
            ..PROGRAM
        };
        Interpreted::new(&outer, |_, params| Ok(params)).nesting(inner)
    };
    let runtime = runtime(store.clone());
    let failed = runtime.start_as(id("outer"), nest(0, 0, 0), Map::new()).await.unwrap().await;
    assert!(failed.is_err());
    *fails.lock().unwrap() = false;
    // The meaning of the inner graph is no part of that of the outer one.
    let other = nest(1, 1, 1);
    assert_eq!(other.graph().meaning(), Some(meaning(0)));
    let error = match runtime.resume(other.clone(), &id("outer")).await {
        Err(error) => error.to_string(),
        Ok(run) => run.await.unwrap_err().to_string(),
    };
    assert!(error.contains("is a run of `test/inner 1.0.0 (1111"), "{error}");
    let same = nest(1, 0, 1);
    runtime.resume(same.clone(), &id("outer")).await.unwrap().await.unwrap();
    let key = SecretKey::from_seed(&KEY).public();
    audit_tree(Arc::new(same), &id("outer"), &store, &key, None).await.unwrap();
    audit_tree(Arc::new(nest(0, 0, 0)), &id("outer"), &store, &key, None).await.unwrap();
    assert!(other.output("done", json!(null)).is_ok());
}

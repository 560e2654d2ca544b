//! Failures that are held until the other branches of a fan-out are done.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use graph_runtime::__private::{Key, Program};
use graph_runtime::history::{Fork, StateEdit, checkpoints, entry_at, replay};
use graph_runtime::record::{Entry, Record, SignedRecord, Status};
use graph_runtime::{
    ActionError, Call, EditRun, ForkRun, Map, MemoryStore, RunError, RunId, RunOutcome, SecretKey, Store, audit,
    audit_tree,
};
use serde_json::json;

use crate::inside::GRAPH;
use crate::interpreted::{Interpreted, PROGRAM};
use crate::support::{KEY, id, kinds, runtime};

/// The calls that were made, by their idempotency keys, with their outcomes in order.
pub(crate) type Calls = Arc<Mutex<BTreeMap<String, Vec<bool>>>>;

/// A tool that returns its parameter `n`, and fails the first time that it is called with a negative number.
fn tool(
    calls: &Calls,
) -> impl Fn(&Call, serde_json::Value) -> Result<serde_json::Value, ActionError> + Send + Sync + 'static {
    let calls = Arc::clone(calls);
    move |call, params| {
        let mut calls = calls.lock().unwrap();
        let outcomes = calls.entry(call.idempotency_key()).or_default();
        let returns = params["n"].as_i64().is_some_and(|n| n >= 0) || !outcomes.is_empty();
        outcomes.push(returns);
        if returns { Ok(params["n"].clone()) } else { Err(ActionError::permanent("negative").with_code("E_NEGATIVE")) }
    }
}

/// A graph that makes one call.
pub(crate) fn child(calls: &Calls) -> Interpreted {
    let child = Program {
        id: "test/child",
        keys: &[Key { name: "a", initial: None }],
        nodes: &[
            (
                "call",
                r#"{"line":1,"does":{"action":0},"params":{"n":"${inputs.n}"},"assign":{"a":"${result}"},"next":[{"to":"done"}]}"#,
            ),
            ("done", r#"{"line":2,"does":"return","output":{"n":"${state.a}"}}"#),
        ],
        ..PROGRAM
    };
    Interpreted::new(&child, tool(calls))
}

/// A graph with four branches: a foreach over 1, -2 and 3, a run of a graph with -4, two calls one after the other, and a
/// call that ends the branch.
pub(crate) fn four(calls: &Calls) -> Interpreted {
    let program = Program {
        settings: r#"{"channels":{"log":"append"}}"#,
        keys: &[
            Key { name: "log", initial: Some("[]") },
            Key { name: "all", initial: None },
            Key { name: "free", initial: None },
        ],
        tools: &[PROGRAM.tools[0], GRAPH],
        nodes: &[
            (
                "split",
                r#"{"line":1,"does":"gate","next":{"all":[{"to":"each"},{"to":"nest"},{"to":"one"},{"to":"last"}],"on_branch_error":"finish"}}"#,
            ),
            (
                "each",
                r#"{"line":2,"does":{"foreach":0},"params":{"n":"${n}"},"each":{"over":[1,-2,3],"as":"n","collect":"all","width":3},"next":[{"to":"end"}]}"#,
            ),
            (
                "nest",
                r#"{"line":3,"does":{"action":1},"params":{"n":-4},"assign":{"log":"${result.output.n}"},"next":[{"to":"end"}]}"#,
            ),
            (
                "one",
                r#"{"line":4,"does":{"action":0},"params":{"n":5},"assign":{"log":"${result}"},"next":[{"to":"two"}]}"#,
            ),
            (
                "two",
                r#"{"line":5,"does":{"action":0},"params":{"n":6},"assign":{"log":"${result}"},"next":[{"to":"end"}]}"#,
            ),
            (
                "last",
                r#"{"line":6,"does":{"action":0},"params":{"n":"${state.free || inputs.n}"},"assign":{"log":"${result}"}}"#,
            ),
            (
                "end",
                r#"{"line":7,"does":"return","output":{"log":"${state.log}","all":"${state.all}"},"join":{"of":[1,2,4],"fan":0,"closes":true}}"#,
            ),
        ],
        ..PROGRAM
    };
    Interpreted::new(&program, tool(calls)).nesting(child(calls))
}

fn inputs() -> Map<String, serde_json::Value> {
    Map::from_iter([("n".to_owned(), json!(7))])
}

async fn records(store: &MemoryStore, run: &RunId) -> Vec<SignedRecord> {
    store.load(run).await.unwrap()
}

async fn assert_proven(store: &MemoryStore, graph: &Interpreted, run: &RunId, status: Status) {
    let key = SecretKey::from_seed(&KEY).public();
    let proven = audit_tree(Arc::new(graph.clone()), run, store, &key, None).await.unwrap();
    assert_eq!(proven[0].status, status);
    let same = replay(graph, graph, run, &records(store, run).await, &key, None).unwrap();
    assert_eq!((same.deviations, same.stopped), (vec![], None));
}

/// A store with a run that failed, and the calls that it made.
async fn failed() -> (MemoryStore, Calls, RunError) {
    let (store, calls) = (MemoryStore::new(), Calls::default());
    let run = runtime(store.clone()).start_as(id("run"), four(&calls), inputs()).await.unwrap();
    let error = run.await.unwrap_err();
    (store, calls, error)
}

/// Returns how often each call returned, and how often it was made.
fn made(calls: &Calls) -> Vec<(usize, usize)> {
    let count = |all: &Vec<bool>| (all.iter().filter(|returned| **returned).count(), all.len());
    let mut made: Vec<_> = calls.lock().unwrap().values().map(count).collect();
    made.sort_unstable();
    made
}

#[tokio::test]
async fn a_failed_run_has_finished_its_other_branches() {
    let (store, calls, error) = failed().await;
    let graph = four(&calls);
    let RunError::Node { node, step, steps, failure, .. } = &error else { panic!("{error}") };
    assert_eq!((node.as_str(), *step, *steps), ("each", 2, 4));
    assert_eq!(failure.message, "item 1: negative");
    // The items that were done are recorded before the step.
    let all = records(&store, &id("run")).await;
    assert_eq!(kinds(&all), ["start", "step", "calls", "step", "step", "end"]);
    let Entry::End(end) = serde_json::from_str::<Record>(&all[5].body).unwrap().entry else { panic!("{all:?}") };
    let failures: Vec<_> = end.failures.iter().map(|failed| (failed.step, failed.node.as_str())).collect();
    assert_eq!((failures, end.steps), (vec![(2, "each"), (3, "nest")], 4));
    assert_proven(&store, &graph, &id("run"), Status::Error).await;
    let outcome = runtime(store.clone()).outcome(&graph, &id("run")).await.unwrap();
    let RunOutcome::Failed { node, steps, .. } = outcome else { panic!("{outcome:?}") };
    assert_eq!((node.as_deref(), steps), (Some("each"), 4));

    let shown = |records: &[SignedRecord]| {
        let all = checkpoints(&id("run"), records, &SecretKey::from_seed(&KEY).public()).unwrap();
        all.into_iter().map(|one| (one.step, one.next.join(" "))).collect::<Vec<_>>()
    };
    let next = [(0, "split"), (1, "each nest one last"), (3, "two"), (4, "each nest")];
    assert_eq!(shown(&all), next.map(|(step, next)| (step, next.to_owned())));

    let finished = runtime(store.clone()).resume(graph.clone(), &id("run")).await.unwrap().await.unwrap();
    assert_eq!(
        shown(&records(&store, &id("run")).await)[3..],
        [(4, "each nest".into()), (6, "end".into()), (7, "".into())]
    );
    assert_eq!(finished.output, json!({"log": [5, 7, 6, -4], "all": [1, -2, 3]}));
    assert_eq!((finished.steps, finished.status), (7, Status::Completed));
    // Only the calls that failed are made again, and with the same idempotency keys.
    assert_eq!(made(&calls), [(1, 1), (1, 1), (1, 1), (1, 1), (1, 1), (1, 2), (1, 2)]);
    assert_proven(&store, &graph, &id("run"), Status::Completed).await;
}

#[tokio::test]
async fn the_first_failure_names_its_code() {
    let (calls, store) = (Calls::default(), MemoryStore::new());
    let nodes = &[
        ("split", r#"{"line":1,"does":"gate","next":{"all":[{"to":"one"},{"to":"two"}],"on_branch_error":"finish"}}"#),
        ("one", r#"{"line":2,"does":{"action":0},"params":{"n":-1},"next":[{"to":"end"}]}"#),
        ("two", r#"{"line":3,"does":{"action":0},"params":{"n":1},"next":[{"to":"end"}]}"#),
        ("end", r#"{"line":4,"does":"return","join":{"of":[1,2],"fan":0,"closes":true}}"#),
    ];
    let graph = Interpreted::new(&Program { nodes, ..PROGRAM }, tool(&calls));
    let error = runtime(store.clone()).start_as(id("run"), graph.clone(), Map::new()).await.unwrap().await.unwrap_err();
    let RunError::Node { failure, .. } = error else { panic!("{error}") };
    assert_eq!(failure.code.as_deref(), Some("E_NEGATIVE"));
    let outcome = runtime(store.clone()).outcome(&graph, &id("run")).await.unwrap();
    assert!(
        matches!(&outcome, RunOutcome::Failed { code, .. } if code.as_deref() == Some("E_NEGATIVE")),
        "{outcome:?}"
    );
    assert_proven(&store, &graph, &id("run"), Status::Error).await;
}

#[tokio::test]
async fn a_failed_run_is_edited_and_forked_with_its_held_failures() {
    let (store, calls, _) = failed().await;
    let (graph, runtime) = (four(&calls), runtime(store.clone()));
    let fork = runtime.fork(&graph, &id("run"), Fork::default()).await.unwrap();
    let write = Map::from_iter([("log".to_owned(), json!("edited"))]);
    let edit = StateEdit { by: "ann".to_owned(), why: "a test".to_owned(), set: Map::new(), write };
    runtime.edit(&graph, &id("run"), edit).await.unwrap();
    assert_proven(&store, &graph, &id("run"), Status::Error).await;
    let finished = runtime.resume(graph.clone(), &id("run")).await.unwrap().await.unwrap();
    assert_eq!(finished.output["log"], json!([5, 7, 6, "edited", -4]));
    assert_proven(&store, &graph, &id("run"), Status::Completed).await;
    // A fork makes the calls with idempotency keys of its own, so they fail once more.
    runtime.resume(graph.clone(), &fork).await.unwrap().await.unwrap_err();
    assert_proven(&store, &graph, &fork, Status::Error).await;
    let finished = runtime.resume(graph.clone(), &fork).await.unwrap().await.unwrap();
    assert_eq!(finished.output, json!({"log": [5, 7, 6, -4], "all": [1, -2, 3]}));
    assert_proven(&store, &graph, &fork, Status::Completed).await;
}

/// A graph in whose first branch a call with -1 fails; its failure is held for a fan-out in the branch. Two others make calls,
/// and two branches are enough, or the second one returns and cancels the others.
pub(crate) fn needless(calls: &Calls, cancels: bool) -> Interpreted {
    let (enough, back) = match cancels {
        false => (
            r#"{"line":7,"does":"return","join":{"of":[3,4,5],"fan":0,"closes":true,"quorum":{"need":2,"fewer":7}}}"#,
            "met",
        ),
        true => (r#"{"line":7,"does":"gate","next":[{"to":"out"}],"join":{"of":[3,4],"fan":0,"closes":true}}"#, "out"),
    };
    let (slow, second) = (
        format!(r#"{{"line":6,"does":{{"action":0}},"params":{{"n":3}},"next":[{{"to":"{back}"}}]}}"#),
        r#"{"line":5,"does":{"action":0},"params":{"n":2},"next":[{"to":"met"}]}"#,
    );
    let nodes = [
        ("split", r#"{"line":1,"does":"gate","next":{"all":[{"to":"inner"},{"to":"second"},{"to":"wait"}]}}"#),
        (
            "inner",
            r#"{"line":2,"does":"gate","next":{"all":[{"to":"fails"},{"to":"loop"}],"on_branch_error":"finish"}}"#,
        ),
        ("fails", r#"{"line":3,"does":{"action":1},"params":{"n":-1},"next":[{"to":"joined"}]}"#),
        ("joined", r#"{"line":4,"does":"gate","next":[{"to":"met"}],"join":{"of":[2,8],"fan":1,"closes":true}}"#),
        ("second", second),
        ("slow", &slow),
        ("met", enough),
        ("out", r#"{"line":8,"does":"return","cancels":true}"#),
        (
            "loop",
            r#"{"line":9,"does":{"action":0},"params":{"n":1},"next":[{"to":"loop","when":{"path":"visit.number","op":"lt","value":9}},{"to":"joined"}]}"#,
        ),
        (
            "wait",
            r#"{"line":10,"does":"gate","next":[{"to":"wait","when":{"path":"visit.number","op":"lt","value":3}},{"to":"slow"}]}"#,
        ),
    ];
    let program = Program { nodes: &nodes, tools: &[PROGRAM.tools[0], GRAPH], ..PROGRAM };
    Interpreted::new(&program, tool(calls)).nesting(child(calls))
}

#[tokio::test]
async fn a_failure_in_a_branch_that_nothing_needs_is_suppressed() {
    for cancels in [false, true] {
        let (store, calls) = (MemoryStore::new(), Calls::default());
        let graph = needless(&calls, cancels);
        let finished =
            runtime(store.clone()).start_as(id("run"), graph.clone(), Map::new()).await.unwrap().await.unwrap();
        assert_eq!(
            (finished.status, finished.node.as_str()),
            (Status::CompletedWithErrors, if cancels { "out" } else { "met" })
        );
        let errors: Vec<_> = finished.errors.iter().map(|one| (one.node.as_str(), one.error.as_str())).collect();
        let [("fails", error)] = errors[..] else { panic!("{errors:?}") };
        assert!(error.starts_with("negative (node `call` of run `run-"), "{error}");
        if !cancels {
            assert_eq!(finished.state["_last_error"], json!({"node": "fails", "error": error}));
        }
        assert_proven(&store, &graph, &id("run"), Status::CompletedWithErrors).await;
    }
}

/// A graph whose first branch has a fan-out that one branch is enough for. In one of its branches a failure is held, and the
/// other one arrives in the same step. The second branch of the graph looks at the last failure a few steps later.
pub(crate) fn needless_at_once() -> Interpreted {
    let nodes = &[
        ("split", r#"{"line":1,"does":"gate","next":{"all":[{"to":"first"},{"to":"beside"}]}}"#),
        ("first", r#"{"line":2,"does":"gate","next":{"all":[{"to":"inner"},{"to":"other"}]}}"#),
        (
            "inner",
            r#"{"line":3,"does":"gate","next":{"all":[{"to":"fails"},{"to":"works"}],"on_branch_error":"finish"}}"#,
        ),
        ("fails", r#"{"line":4,"does":{"action":0},"params":{"n":-1},"next":[{"to":"joined"}]}"#),
        ("works", r#"{"line":5,"does":"gate","next":[{"to":"joined"}]}"#),
        ("joined", r#"{"line":6,"does":"gate","next":[{"to":"met"}],"join":{"of":[3,4],"fan":2,"closes":true}}"#),
        ("other", r#"{"line":7,"does":"gate","next":[{"to":"arrives"}]}"#),
        ("arrives", r#"{"line":8,"does":{"action":0},"params":{"n":1},"next":[{"to":"met"}]}"#),
        (
            "met",
            r#"{"line":9,"does":"gate","assign":{"behind":"${state._last_error.error}"},"next":[{"to":"end"}],"join":{"of":[5,7],"fan":1,"closes":true,"quorum":{"need":1,"fewer":null}}}"#,
        ),
        (
            "beside",
            r#"{"line":10,"does":"gate","assign":{"beside":"${state._last_error.error}"},"next":[{"to":"beside","when":{"path":"visit.number","op":"lt","value":9}},{"to":"end"}]}"#,
        ),
        (
            "end",
            r#"{"line":11,"does":"return","output":{"behind":"${state.behind}","beside":"${state.beside}","last":"${state._last_error.node}"},"join":{"of":[8,9],"fan":0,"closes":true}}"#,
        ),
    ];
    let keys = &[Key { name: "behind", initial: None }, Key { name: "beside", initial: None }];
    Interpreted::waiting(&Program { keys, nodes, ..PROGRAM }, |_: &Call, params| {
        Box::pin(async move {
            if params["n"] == -1 {
                return Err(ActionError::permanent("negative"));
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            Ok(json!(1))
        })
    })
}

#[tokio::test]
async fn a_failure_that_nothing_needs_in_its_own_step_is_that_of_its_branch() {
    let (store, graph) = (MemoryStore::new(), needless_at_once());
    let run = runtime(store.clone()).start_as(id("run"), graph.clone(), Map::new()).await.unwrap();
    let finished = run.await.unwrap();
    assert_eq!(finished.output, json!({"behind": "negative", "beside": null, "last": "fails"}));
    assert_eq!(finished.errors.iter().map(|one| one.node.as_str()).collect::<Vec<_>>(), ["fails"]);
    let all = records(&store, &id("run")).await;
    assert!(all.iter().any(|record| record.body.contains(r#""held":true"#)));
    assert_proven(&store, &graph, &id("run"), Status::CompletedWithErrors).await;
}

#[tokio::test]
async fn forged_failures_that_are_held_are_refused() {
    let (store, calls, _) = failed().await;
    let graph = four(&calls);
    runtime(store.clone()).resume(graph.clone(), &id("run")).await.unwrap().await.unwrap();
    let (all, key) = (records(&store, &id("run")).await, SecretKey::from_seed(&KEY).public());
    type Forgery<'a> = &'a dyn Fn(&mut serde_json::Value);
    let forgeries: [(usize, Forgery<'_>); 8] = [
        (3, &|record| drop(record["visits"][0].as_object_mut().unwrap().remove("held"))),
        (3, &|record| record["visits"][2]["held"] = json!(true)),
        (3, &|record| {
            record["visits"][0].as_object_mut().unwrap().remove("held");
            record["visits"][0]["ends_branch"] = json!(true);
        }),
        (3, &|record| record["visits"][0]["changes"] = json!({"all": [1, 2, 3]})),
        (5, &|record| record["failures"][1]["error"] = json!("another")),
        (5, &|record| record["failures"][1]["node"] = json!("each")),
        (5, &|record| drop(record.as_object_mut().unwrap().remove("failures"))),
        (5, &|record| record["error"] = json!("another")),
    ];
    for (at, change) in forgeries {
        let forged = crate::forged::edited(&all, at, change);
        let found = audit(&graph, &id("run"), &forged, &key, None);
        assert!(found.is_err(), "{forged:?}");
    }
}

#[tokio::test]
async fn forged_forks_with_held_failures_are_refused() {
    let (store, calls, _) = failed().await;
    let (graph, key) = (four(&calls), SecretKey::from_seed(&KEY).public());
    let fork = runtime(store.clone()).fork(&graph, &id("run"), Fork::default()).await.unwrap();
    let all = records(&store, &fork).await;
    audit(&graph, &fork, &all, &key, None).unwrap();
    type Forgery<'a> = (&'a str, &'a dyn Fn(&mut serde_json::Value));
    let forgeries: [Forgery<'_>; 5] = [
        ("the visits [] wait or have failed, and [2, 3] are parked", &|record| {
            drop(record.as_object_mut().unwrap().remove("held"));
        }),
        ("the visits [3] wait or have failed, and [2, 3] are parked", &|record| {
            drop(record["held"].as_array_mut().unwrap().remove(0));
        }),
        ("the visits [2, 3] wait or have failed, and [2, 3] are parked", &|record| {
            record["held"].as_array_mut().unwrap().reverse();
        }),
        ("the visits [2, 3] wait or have failed, and [3] are parked", &|record| {
            drop(record["parked"].as_array_mut().unwrap().remove(0));
        }),
        ("the greatest number of an activation is 4, not 3", &|record| record["made"] = json!(3)),
    ];
    for (expected, change) in forgeries {
        let found = audit(&graph, &fork, &crate::forged::edited(&all, 1, change), &key, None).unwrap_err();
        assert!(found.to_string().contains(expected), "{found}");
    }
}

/// A graph with two branches: a run of a graph that makes a step, and then fails at first, and a call. `most` is how many steps
/// it may take with the run inside it.
fn counted(calls: &Calls, most: u32) -> Interpreted {
    let child = Program {
        id: "test/child",
        nodes: &[
            ("first", r#"{"line":1,"does":"gate","next":[{"to":"call"}]}"#),
            ("call", r#"{"line":2,"does":{"action":0},"params":{"n":-1},"next":[{"to":"done"}]}"#),
            ("done", r#"{"line":3,"does":"return"}"#),
        ],
        ..PROGRAM
    };
    let settings = format!(r#"{{"steps":{most}}}"#);
    let program = Program {
        settings: &settings,
        tools: &[PROGRAM.tools[0], GRAPH],
        nodes: &[
            (
                "split",
                r#"{"line":1,"does":"gate","next":{"all":[{"to":"nest"},{"to":"one"}],"on_branch_error":"finish"}}"#,
            ),
            ("nest", r#"{"line":2,"does":{"action":1},"params":{},"next":[{"to":"end"}]}"#),
            ("one", r#"{"line":3,"does":{"action":0},"params":{"n":1},"next":[{"to":"two"}]}"#),
            ("two", r#"{"line":4,"does":{"action":0},"params":{"n":2},"next":[{"to":"end"}]}"#),
            ("end", r#"{"line":5,"does":"return","join":{"of":[1,3],"fan":0,"closes":true}}"#),
        ],
        ..PROGRAM
    };
    Interpreted::new(&program, tool(calls)).nesting(Interpreted::new(&child, tool(calls)))
}

#[tokio::test]
async fn steps_below_a_held_visit_are_counted_once() {
    // Five steps of its own and three of the run inside it.
    for most in [8, 7] {
        let (store, calls) = (MemoryStore::new(), Calls::default());
        let (graph, runtime) = (counted(&calls, most), runtime(store.clone()));
        let error = runtime.start_as(id("run"), graph.clone(), Map::new()).await.unwrap().await.unwrap_err();
        assert!(matches!(&error, RunError::Node { node, .. } if node == "nest"), "{error}");
        assert_proven(&store, &graph, &id("run"), Status::Error).await;
        let resumed = runtime.resume(graph.clone(), &id("run")).await.unwrap().await;
        let status = match (most, resumed) {
            (8, Ok(finished)) => finished.status,
            (7, Err(RunError::MaxNestedSteps { .. })) => Status::Error,
            (_, other) => panic!("{other:?}"),
        };
        assert_proven(&store, &graph, &id("run"), status).await;
    }
}

/// Starts a run, and resumes it until it ends with a result, which is returned. After each session it is proven and replayed.
async fn finish(store: &MemoryStore, graph: &Interpreted, inputs: Map<String, serde_json::Value>) -> serde_json::Value {
    let mut ended = runtime(store.clone()).start_as(id("run"), graph.clone(), inputs).await.unwrap().await;
    for _ in 0..9 {
        if let Ok(finished) = ended {
            assert_proven(store, graph, &id("run"), finished.status).await;
            return finished.output;
        }
        assert_proven(store, graph, &id("run"), Status::Error).await;
        ended = runtime(store.clone()).resume(graph.clone(), &id("run")).await.unwrap().await;
    }
    ended.unwrap().output
}

#[tokio::test]
async fn finished_items_outlive_a_snapshot() {
    let nodes = &[
        ("split", r#"{"line":1,"does":"gate","next":{"all":[{"to":"each"},{"to":"pad"}],"on_branch_error":"finish"}}"#),
        (
            "each",
            r#"{"line":2,"does":{"foreach":0},"params":{"n":"${n}"},"each":{"over":[1,-2,3],"as":"n","collect":"all","width":3},"next":[{"to":"end"}]}"#,
        ),
        (
            "pad",
            r#"{"line":3,"does":{"action":0},"params":{"n":1},"assign":{"big":"${inputs.big}"},"next":[{"to":"pad","when":{"path":"visit.number","op":"lt","value":8}},{"to":"end"}]}"#,
        ),
        (
            "end",
            r#"{"line":7,"does":"return","output":{"all":"${state.all}"},"join":{"of":[1,2],"fan":0,"closes":true}}"#,
        ),
    ];
    let keys = &[Key { name: "all", initial: None }, Key { name: "big", initial: None }];
    let (store, calls) = (MemoryStore::new(), Calls::default());
    let graph = Interpreted::new(&Program { keys, nodes, ..PROGRAM }, tool(&calls));
    // Eight steps with the value are several snapshots long.
    let inputs = Map::from_iter([("big".to_owned(), json!("x".repeat(20_000)))]);
    assert_eq!(finish(&store, &graph, inputs).await, json!({"all": [1, -2, 3]}));
    assert!(made(&calls).iter().all(|(returned, _)| *returned == 1), "{:?}", made(&calls));
}

/// A graph with two branches: a foreach over runs of a graph with -1 and 2, one at a time, and a gate.
fn nesting_each(calls: &Calls, policy: &str, retry: &str) -> Interpreted {
    let split = format!(
        r#"{{"line":1,"does":"gate","next":{{"all":[{{"to":"nest"}},{{"to":"other"}}],"on_branch_error":"{policy}"}}}}"#
    );
    let nest = format!(
        r#"{{"line":2,"does":{{"foreach":1}},"params":{{"n":"${{n}}"}},"each":{{"over":[-1,2],"as":"n","collect":"all","width":1}},{retry}"next":[{{"to":"end"}}]}}"#
    );
    let nodes = [
        ("split", split.as_str()),
        ("nest", nest.as_str()),
        ("other", r#"{"line":3,"does":"gate","next":[{"to":"end"}]}"#),
        ("end", r#"{"line":4,"does":"return","join":{"of":[1,2],"fan":0,"closes":true}}"#),
    ];
    let keys = &[Key { name: "all", initial: None }];
    let program = Program { keys, nodes: &nodes, tools: &[PROGRAM.tools[0], GRAPH], ..PROGRAM };
    Interpreted::new(&program, tool(calls)).nesting(child(calls))
}

#[tokio::test]
async fn a_list_that_stopped_early_is_proven() {
    for policy in ["finish", "collect", "stop"] {
        for retry in ["", r#""retry":{"attempts":2,"delay_ms":1,"on":["any"]},"#] {
            let (store, calls) = (MemoryStore::new(), Calls::default());
            finish(&store, &nesting_each(&calls, policy, retry), Map::new()).await;
        }
    }
}

/// A graph with a call whose result does not fit, unless it was called before, and another one that takes `ms` milliseconds.
/// `policy` is a member of the fan-out, and `handler` of the first call.
fn unfit(ms: u64, policy: &str, handler: &str) -> Interpreted {
    let split = format!(r#"{{"line":1,"does":"gate","next":{{"all":[{{"to":"odd"}},{{"to":"slow"}}]{policy}}}}}"#);
    let odd = format!(
        r#"{{"line":2,"does":{{"action":0}},"params":{{"n":1}},"assign":{{"sum":"${{result}}"}},{handler}"next":[{{"to":"end"}}]}}"#
    );
    let nodes = [
        ("split", split.as_str()),
        ("odd", odd.as_str()),
        ("slow", r#"{"line":3,"does":{"action":0},"params":{"n":2},"next":[{"to":"end"}]}"#),
        ("handler", r#"{"line":4,"does":"gate","next":[{"to":"end"}]}"#),
        (
            "end",
            r#"{"line":5,"does":"return","output":{"sum":"${state.sum}"},"join":{"of":[1,2,3],"fan":0,"closes":true}}"#,
        ),
    ];
    let keys = &[Key { name: "sum", initial: Some("0") }];
    let program = Program { settings: r#"{"channels":{"sum":"sum"}}"#, keys, nodes: &nodes, ..PROGRAM };
    let was_called = Arc::new(Mutex::new(false));
    Interpreted::waiting(&program, move |_: &Call, params| {
        let is_odd = params["n"] == 1 && !std::mem::replace(&mut *was_called.lock().unwrap(), params["n"] == 1);
        Box::pin(async move {
            if params["n"] == 2 {
                tokio::time::sleep(std::time::Duration::from_millis(ms)).await;
            }
            Ok(if is_odd { json!("odd") } else { json!(4) })
        })
    })
}

#[tokio::test]
async fn a_recorded_call_whose_result_does_not_fit_is_proven() {
    for ms in [0, 20] {
        for (policy, handler, sum) in [
            (r#","on_branch_error":"finish""#, "", 4),
            (r#","on_branch_error":"collect""#, "", 0),
            (r#","on_branch_error":"stop""#, "", 4),
            ("", r#""on_error":3,"#, 0),
        ] {
            let (store, graph) = (MemoryStore::new(), unfit(ms, policy, handler));
            assert_eq!(finish(&store, &graph, Map::new()).await, json!({"sum": sum}), "{policy} {handler} {ms}");
        }
    }
}

#[tokio::test]
async fn a_fork_at_a_position_before_a_resume_is_proven() {
    let (store, calls, _) = failed().await;
    let (graph, runtime) = (four(&calls), runtime(store.clone()));
    runtime.resume(graph.clone(), &id("run")).await.unwrap().await.unwrap();
    for step in [0, 1, 3, 4, 6] {
        let fork = runtime.fork(&graph, &id("run"), Fork { step: Some(step), ..Fork::default() }).await.unwrap();
        let proven = audit_tree(Arc::new(graph.clone()), &fork, &store, &SecretKey::from_seed(&KEY).public(), None)
            .await
            .unwrap();
        assert!(proven[0].is_origin_proven, "{step}");
    }
    let entry = entry_at(
        &graph,
        &id("run"),
        &records(&store, &id("run")).await,
        &SecretKey::from_seed(&KEY).public(),
        None,
        Some(4),
    );
    assert_eq!(entry.unwrap().next, ["each", "nest"]);
}

//! Defects that an attack on waits and on secrets found: signals that were lost, honest journals that were refused, and secrets that were
//! shown.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use graph_runtime::__private::{Key, Program};
use graph_runtime::answer::Proposal;
use graph_runtime::history::Fork;
use graph_runtime::{
    ActionError, ForkRun, Map, MemoryStore, NamedAnswer, NamedSignal, ResumeError, RunId, Runtime, SecretKey, Status,
    Store, StoredRunError, Value, WorkerOptions, audit_tree,
};
use serde_json::json;

use crate::answers::People;
use crate::inside::GRAPH;
use crate::interpreted::{Interpreted, PROGRAM};
use crate::nested_waits::ids;
use crate::pauses::{Once, control, suspending, suspending_in};
use crate::secret_answers::{key, secretive};
use crate::support::failing;
use crate::support::{KEY, id, runtime};
use crate::waits::{assert_proven, records, store};

/// A secret in the tests.
const PIN: &str = "pin-9182-7364";

async fn resumed(runtime: &Runtime, graph: &Interpreted, run: &RunId) -> Result<Value, Vec<String>> {
    let run = runtime.resume(graph.clone(), run).await.unwrap().await;
    run.map(|finished| finished.output).map_err(ids)
}

/// Everything that a store has of its runs.
async fn stored(store: &MemoryStore) -> String {
    let mut text = String::new();
    for run in store.list().await.unwrap() {
        records(store, &run.run).await.iter().for_each(|record| text.push_str(&record.body));
        text.push_str(&format!("{:?}", store.inbox(&run.run).await));
    }
    text
}

/// Nodes of graphs with two branches, of which one runs a graph.
const NEST: (&str, &str) =
    ("nest", r#"{"line":2,"does":{"action":0},"assign":{"got":"${result.output}"},"next":[{"to":"met"}]}"#);
const MET: (&str, &str) =
    ("met", r#"{"line":5,"does":"gate","join":{"of":[1,2],"fan":0,"closes":true},"next":[{"to":"done"}]}"#);
const DONE: (&str, &str) = ("done", r#"{"line":6,"does":"return","output":"${state.got}"}"#);

const NESTED: &[&str] = &["rye.execute.tool.test.tool"];
const OUTERMOST: Program<'static> = Program {
    keys: &[Key { name: "got", initial: None }],
    digest: "2222222222222222222222222222222222222222222222222222222222222222",
    tools: &[GRAPH],
    permissions: NESTED,
    nodes: &[
        ("one", r#"{"line":2,"does":{"action":0},"assign":{"got":"${result.output}"},"next":[{"to":"done"}]}"#),
        DONE,
    ],
    ..PROGRAM
};

/// A hook of the middle one of three runs suspends the visit that runs the innermost one, which waits. The outermost run does not know
/// its waits then, and keeps what was sent to it.
#[tokio::test]
async fn an_answer_reaches_a_run_inside_a_visit_that_is_suspended() {
    let inner = Program {
        id: "test/inner",
        keys: &[Key { name: "got", initial: None }],
        nodes: &[
            (
                "ask",
                r#"{"line":1,"does":"interrupt","wait":{"ask":{"payload":{},"count":1}},"assign":{"got":"${result.decision}"},"next":[{"to":"done"}]}"#,
            ),
            ("done", r#"{"line":3,"does":"return","output":"${state.got}"}"#),
        ],
        ..PROGRAM
    };
    let middle = Program {
        id: "test/middle",
        digest: "1111111111111111111111111111111111111111111111111111111111111111",
        settings: r#"{"hooks":[{"event":"after_step","params":{"action":"suspend","reason":"look"},"condition":{"path":"node","op":"eq","value":"short"}}]}"#,
        nodes: &[
            ("all", r#"{"line":1,"does":"gate","next":{"all":[{"to":"short"},{"to":"nest"}]}}"#),
            ("short", r#"{"line":1,"does":"wait","wait":{"timeout_ms":60000},"next":[{"to":"met"}]}"#),
            NEST,
            MET,
            DONE,
        ],
        ..OUTERMOST
    };
    let machine = |program: &Program<'_>| Interpreted::new(program, |_, params| Ok(params));
    let graph = machine(&OUTERMOST).nesting(machine(&middle).nesting(machine(&inner)));
    let ((store, clock), run, people) = (store(), id("run"), People::default());
    let ann = people.add(11, "Ann", &[]);
    let runtime = secretive(store.clone(), &people, None);
    let left = runtime.start_as(run.clone(), graph.clone(), Map::new()).await.unwrap().await;
    assert_eq!(ids(left.unwrap_err()), ["1/2#1", "1/3/1#1"]);
    clock.advance(Duration::from_secs(61));
    assert_eq!(resumed(&runtime, &graph, &run).await, Err(vec!["1/3/1#1".to_owned()]));
    let question = runtime.questions(&graph, &run).await.unwrap().remove(0);
    let answer = NamedAnswer::new("ask", json!({"decision": "approve"}));
    runtime.answer(&graph, &run, &question.sign(answer, &ann).unwrap()).await.unwrap();
    assert_eq!(resumed(&runtime, &graph, &run).await, Err(vec!["1/3#1".to_owned()]));
    runtime.release(&graph, &run).await.unwrap();
    assert_eq!(resumed(&runtime, &graph, &run).await, Ok(json!("approve")));
    assert!(store.inbox(&run).await.unwrap().signals.is_empty());
    assert_proven(&store, &graph, &run, Status::Completed).await;
}

/// The middle one of three runs holds the failure of a visit, which is made again when it is resumed. A signal to the run inside it is
/// kept until then.
#[tokio::test]
async fn a_signal_reaches_a_run_inside_a_visit_whose_failure_is_held() {
    let inner = Program {
        id: "test/inner",
        settings: r#"{"signals":{"paid":{}}}"#,
        nodes: &[
            ("act", r#"{"line":1,"does":{"action":0},"params":"act","next":[{"to":"money"}]}"#),
            ("money", r#"{"line":1,"does":"wait","wait":{"signals":["paid"]},"next":[{"to":"done"}]}"#),
            ("done", r#"{"line":3,"does":"return","output":"paid"}"#),
        ],
        ..PROGRAM
    };
    let middle = Program {
        id: "test/middle",
        digest: "1111111111111111111111111111111111111111111111111111111111111111",
        settings: r#"{"signals":{"note":{}}}"#,
        nodes: &[
            (
                "all",
                r#"{"line":1,"does":"gate","next":{"all":[{"to":"nest"},{"to":"short"}],"on_branch_error":"finish"}}"#,
            ),
            NEST,
            (
                "short",
                r#"{"line":1,"does":"wait","wait":{"signals":["note"],"timeout_ms":60000,"on_timeout":3},"next":[{"to":"met"}]}"#,
            ),
            MET,
            DONE,
        ],
        ..OUTERMOST
    };
    let calls = Mutex::new(0);
    let inner = Interpreted::new(&inner, move |_, params| {
        let mut calls = calls.lock().unwrap();
        *calls += 1;
        if *calls == 1 { Err(ActionError::permanent("it fails once")) } else { Ok(params) }
    });
    let middle = Interpreted::new(&middle, |_, params| Ok(params)).nesting(inner);
    let graph = Interpreted::new(&OUTERMOST, |_, params| Ok(params)).nesting(middle);
    let ((store, clock), run) = (store(), id("run"));
    let runtime = runtime(store.clone());
    let left = runtime.start_as(run.clone(), graph.clone(), Map::new()).await.unwrap().await;
    assert_eq!(ids(left.unwrap_err()), ["1/3#1"]);
    runtime.signal(&graph, &run, NamedSignal::new("1/2/paid", json!(5)), "a").await.unwrap();
    clock.advance(Duration::from_secs(61));
    assert_eq!(resumed(&runtime, &graph, &run).await, Ok(json!("paid")));
    assert_proven(&store, &graph, &run, Status::Completed).await;
}

/// A call that is made again has a run that the visit has not seen. No wait of it is over by its time while a signal that came before is
/// left.
#[tokio::test]
async fn a_shared_signal_is_in_time_for_a_call_that_is_made_again() {
    let inner = Program {
        id: "test/inner",
        keys: &[Key { name: "got", initial: Some("[]") }],
        settings: r#"{"signals":{"paid":{}},"channels":{"got":"append"},"deadline_ms":300000}"#,
        nodes: &[
            (
                "w",
                r#"{"line":1,"does":"wait","wait":{"signals":["paid"],"until":"1972-09-27T00:10:00Z","on_timeout":1},"assign":{"got":"${result.paid}"},"next":[{"to":"done"}]}"#,
            ),
            ("done", r#"{"line":3,"does":"return","output":"${state.got}"}"#),
        ],
        ..PROGRAM
    };
    let one = r#"{"line":2,"does":{"action":0},"share_signals":["paid"],"retry":{"attempts":3,"delay_ms":0,"on":["any"]},"assign":{"got":"${result.output}"},"next":[{"to":"done"}]}"#;
    let outer = Program { settings: r#"{"signals":{"paid":{}}}"#, nodes: &[("one", one), DONE], ..OUTERMOST };
    let graph = Interpreted::new(&outer, |_, params| Ok(params)).nesting(Interpreted::new(&inner, |_, p| Ok(p)));
    let ((store, clock), run) = (store(), id("run"));
    let runtime = runtime(store.clone());
    runtime.start_as(run.clone(), graph.clone(), Map::new()).await.unwrap().await.unwrap_err();
    // Behind the deadline of the first run, and before the time of the wait. The run is resumed behind both.
    clock.advance(Duration::from_secs(7 * 60));
    runtime.signal(&graph, &run, NamedSignal::new("paid", json!(1)), "a").await.unwrap();
    clock.advance(Duration::from_secs(13 * 60));
    assert_eq!(resumed(&runtime, &graph, &run).await, Ok(json!([1])));
    assert_proven(&store, &graph, &run, Status::Completed).await;
}

/// A run that died before it waited looks at no run inside later, when something else is over too.
#[tokio::test]
async fn a_run_that_died_before_it_waited_is_proven() {
    let inner = Program {
        id: "test/inner",
        settings: r#"{"signals":{"paid":{}}}"#,
        nodes: &[
            ("w", r#"{"line":1,"does":"wait","wait":{"signals":["paid"]},"next":[{"to":"done"}]}"#),
            ("done", r#"{"line":3,"does":"return","output":"ok"}"#),
        ],
        ..PROGRAM
    };
    let outer = Program {
        nodes: &[
            ("all", r#"{"line":1,"does":"gate","next":{"all":[{"to":"nest"},{"to":"past"}]}}"#),
            ("nest", r#"{"line":2,"does":{"action":0},"next":[{"to":"met"}]}"#),
            (
                "past",
                r#"{"line":1,"does":"wait","wait":{"until":"1972-09-26T00:00:00Z"},"assign":{"got":"past"},"next":[{"to":"met"}]}"#,
            ),
            MET,
            DONE,
        ],
        ..OUTERMOST
    };
    for (writes, is_written) in (0..7).flat_map(|writes| [(writes, false), (writes, true)]) {
        let graph = Interpreted::new(&outer, |_, params| Ok(params)).nesting(Interpreted::new(&inner, |_, p| Ok(p)));
        let ((store, _), run) = (store(), id("run"));
        let failing = runtime(failing(&store, writes, is_written));
        drop(failing.start_as(run.clone(), graph.clone(), Map::new()).await.unwrap().await);
        let runtime = runtime(store.clone());
        assert_eq!(resumed(&runtime, &graph, &run).await, Err(vec!["2/1#1".to_owned()]));
        assert_proven(&store, &graph, &run, Status::Running).await;
        runtime.signal(&graph, &run, NamedSignal::new("2/paid", json!(1)), "a").await.unwrap();
        assert_eq!(resumed(&runtime, &graph, &run).await, Ok(json!("past")));
        assert_proven(&store, &graph, &run, Status::Completed).await;
    }
}

/// A hook that is asked by whoever resumes a run may end it, as one that is asked in time does.
#[tokio::test]
async fn a_hook_that_is_asked_after_a_crash_may_end_the_run() {
    let fails = || control(&json!({"action": "fail", "error": "no"}));
    for (event, node) in [("after_step", "a"), ("graph_started", "")] {
        let condition = if node.is_empty() { "" } else { r#","condition":{"path":"node","op":"eq","value":"a"}"# };
        let hook =
            format!(r#"{{"hooks":[{{"event":"{event}","params":{{"action":"fail","error":"no"}}{condition}}}]}}"#);
        for settings in ["{}", &hook] {
            let program = Program {
                settings,
                nodes: &[
                    ("a", r#"{"line":1,"does":{"action":0},"params":"a","next":[{"to":"b"}]}"#),
                    ("b", r#"{"line":2,"does":{"action":0},"params":"b","next":[{"to":"done"}]}"#),
                    ("done", r#"{"line":3,"does":"return"}"#),
                ],
                ..PROGRAM
            };
            let graph = Interpreted::new(&program, |_, params| Ok(params));
            for (writes, is_written) in (0..3).flat_map(|writes| [(writes, false), (writes, true)]) {
                let (store, run, people) = (MemoryStore::new(), id("run"), People::default());
                let count = if settings == "{}" { 9 } else { 0 };
                let asked = || Once::new((0..count).map(|_| (event, node, fails())));
                let failing = suspending_in(failing(&store, writes, is_written), asked(), &people);
                drop(failing.start_as(run.clone(), graph.clone(), Map::new()).await.unwrap().await);
                if store.find(&run).await.unwrap().status == Status::Running {
                    let runtime = suspending(&store, asked(), &people);
                    let failed = runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap_err();
                    assert_eq!(failed.to_string(), "node `a` failed: no");
                }
                let public = SecretKey::from_seed(&KEY).public();
                let audited = audit_tree(Arc::new(graph.clone()), &run, &store, &public, None).await;
                assert_eq!(audited.unwrap()[0].status, Status::Error, "{event} {writes} {is_written} {settings}");
            }
        }
    }
}

/// A run without secrets waits for one that has some. Without their key, or with another one, nothing fails: the run keeps waiting.
#[tokio::test]
async fn a_run_inside_whose_key_is_not_there_keeps_waiting() {
    let inner = Program {
        id: "test/inner",
        keys: &[Key { name: "card", initial: None }],
        settings: r#"{"signals":{"paid":{}},"secrets":{"keys":{"card":"all"},"signals":{"paid":{"fields":{"card":"all"}}}}}"#,
        nodes: &[
            (
                "w",
                r#"{"line":1,"does":"wait","wait":{"signals":["paid"],"timeout_ms":600000,"on_timeout":1},"assign":{"card":"${result.paid.card}"},"next":[{"to":"done"}]}"#,
            ),
            ("done", r#"{"line":3,"does":"return","output":"ok"}"#),
        ],
        ..PROGRAM
    };
    let one =
        r#"{"line":2,"does":{"action":0},"on_error":2,"assign":{"got":"${result.output}"},"next":[{"to":"done"}]}"#;
    let outer = Program {
        nodes: &[
            ("one", one),
            DONE,
            ("failed", r#"{"line":6,"does":"return","output":{"failed":"${state._last_error.error}"}}"#),
        ],
        ..OUTERMOST
    };
    for wrong in [None, Some(key(8))] {
        let graph = Interpreted::new(&outer, |_, params| Ok(params)).nesting(Interpreted::new(&inner, |_, p| Ok(p)));
        let ((store, _), run, people) = (store(), id("run"), People::default());
        let runtime = secretive(store.clone(), &people, Some(key(7)));
        runtime.start_as(run.clone(), graph.clone(), Map::new()).await.unwrap().await.unwrap_err();
        runtime.signal(&graph, &run, NamedSignal::new("1/paid", json!({"card": PIN})), "a").await.unwrap();
        let other = secretive(store.clone(), &people, wrong);
        let refused = other.resume(graph.clone(), &run).await.unwrap_err();
        let ResumeError::Stored(refused) = refused else { unreachable!("{refused}") };
        assert!(
            matches!(refused, StoredRunError::AnotherEncryptionKey { .. } | StoredRunError::Secrets(_)),
            "{refused}"
        );
        let worker = other.worker(WorkerOptions::default().graph(graph.clone())).unwrap();
        while worker.status().postponed == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(worker.shutdown(Duration::from_secs(10)).await.is_empty());
        for run in [&run, &id("run-1")] {
            assert_eq!(store.find(run).await.unwrap().status, Status::Waiting);
        }
        assert_eq!(resumed(&runtime, &graph, &run).await, Ok(json!("ok")));
        assert!(!stored(&store).await.contains(PIN));
    }
}

/// Answers and signals that are secret, which the state does not have any more, are cut out of texts by a run that is resumed from a
/// snapshot behind them, and by a fork.
#[tokio::test]
async fn texts_that_were_secret_are_secret_after_a_snapshot_and_in_a_fork() {
    let settings = r#"{"signals":{"go":{},"paid":{}},"secrets":{"keys":{"pin":"all"},"answers":{"first":{"fields":{"pin":"all"}}},"signals":{"paid":{"fields":{"card":"all"}}}}}"#;
    let firsts = [
        r#"{"line":1,"does":{"action":0},"params":{"kind":"asks"},"wait":{"ask":{"count":1}},"next":[{"to":"forget"}]}"#,
        r#"{"line":1,"does":"wait","wait":{"signals":["paid"]},"assign":{"pin":"${result.paid.card}"},"next":[{"to":"forget"}]}"#,
        r#"{"line":1,"does":"interrupt","wait":{"ask":{"payload":{},"count":1}},"next":[{"to":"forget"}]}"#,
    ];
    for (variant, first) in firsts.into_iter().enumerate() {
        let program = Program {
            keys: &[Key { name: "pin", initial: None }, Key { name: "said", initial: None }],
            settings,
            nodes: &[
                ("first", first),
                ("forget", r#"{"line":1,"does":"gate","assign":{"pin":null},"next":[{"to":"big"}]}"#),
                ("big", r#"{"line":1,"does":{"action":0},"params":{"kind":"big"},"next":[{"to":"w"}]}"#),
                ("w", r#"{"line":1,"does":"wait","wait":{"signals":["go"]},"next":[{"to":"echo"}]}"#),
                (
                    "echo",
                    r#"{"line":1,"does":{"action":0},"params":{"kind":"echo"},"assign":{"said":"${result}"},"next":[{"to":"done"}]}"#,
                ),
                ("done", r#"{"line":1,"does":"return","output":"${state.said}"}"#),
            ],
            ..PROGRAM
        };
        let graph = Interpreted::new(&program, move |call, params| match params["kind"].as_str().unwrap() {
            "asks" if call.answers().is_empty() => Err(ActionError::interrupt(json!("which?"))),
            "asks" => Ok(json!("used")),
            "big" => Ok(json!("x".repeat(100_000))),
            _ => Ok(json!(format!("the PIN was {PIN}"))),
        });
        let ((store, _), run, people) = (store(), id("run"), People::default());
        let ann = people.add(11, "Ann", &[]);
        let runtime = secretive(store.clone(), &people, Some(key(7)));
        runtime.start_as(run.clone(), graph.clone(), Map::new()).await.unwrap().await.unwrap_err();
        if variant == 1 {
            let paid = NamedSignal::new("paid", json!({"card": PIN}));
            runtime.signal(&graph, &run, paid, "a").await.unwrap();
        } else {
            let question = runtime.questions(&graph, &run).await.unwrap().remove(0);
            let answer = NamedAnswer::new("first", json!({"decision": "approve", "pin": PIN}));
            runtime.answer(&graph, &run, &question.sign(answer, &ann).unwrap()).await.unwrap();
        }
        resumed(&runtime, &graph, &run).await.unwrap_err();
        let journal = records(&store, &run).await;
        assert!(journal.iter().any(|record| record.body.contains(r#""kind":"snapshot""#)));
        // Another process.
        let later = secretive(store.clone(), &people, Some(key(7)));
        let fork = later.fork(&graph, &run, Fork { run: Some(id("fork")), ..Fork::default() }).await.unwrap();
        let again = later.fork(&graph, &fork, Fork { run: Some(id("again")), ..Fork::default() }).await.unwrap();
        for run in [&again, &fork, &run] {
            // A fork waits when it is resumed.
            drop(later.resume(graph.clone(), run).await.unwrap().await);
            later.signal(&graph, run, NamedSignal::new("go", json!(1)), "b").await.unwrap();
            let said = resumed(&later, &graph, run).await;
            assert_eq!(said, Ok(json!("the PIN was [secret]")), "variant {variant}, {run}");
            let public = SecretKey::from_seed(&KEY).public();
            audit_tree(Arc::new(graph.clone()), run, &store, &public, Some(&key(7))).await.unwrap();
        }
        assert!(!stored(&store).await.contains(PIN), "variant {variant}");
    }
}

/// Answers with secrets are not in the debug output of what a program handles.
#[tokio::test]
async fn debug_output_shows_no_answer() {
    let program = Program {
        keys: &[Key { name: "pin", initial: None }],
        settings: r#"{"secrets":{"keys":{"pin":"all"},"answers":{"ask":{"fields":{"pin":"all"}}}}}"#,
        nodes: &[
            (
                "ask",
                r#"{"line":1,"does":"interrupt","wait":{"ask":{"payload":{},"count":2}},"assign":{"pin":"${result.pin}"},"next":[{"to":"done"}]}"#,
            ),
            ("done", r#"{"line":1,"does":"return","output":"done"}"#),
        ],
        ..PROGRAM
    };
    let graph = Interpreted::new(&program, |_, params| Ok(params));
    let ((store, _), run, people) = (store(), id("run"), People::default());
    let ann = people.add(11, "Ann", &[]);
    let runtime = secretive(store.clone(), &people, Some(key(7)));
    runtime.start_as(run.clone(), graph.clone(), Map::new()).await.unwrap().await.unwrap_err();
    let question = runtime.questions(&graph, &run).await.unwrap().remove(0);
    let envelope = question.sign(NamedAnswer::new("ask", json!({"decision": "approve", "pin": PIN})), &ann).unwrap();
    runtime.answer(&graph, &run, &envelope).await.unwrap();
    let proposals = Proposal::all(&store.inbox(&run).await.unwrap(), "1#1", Some(&key(7)));
    assert_eq!(proposals[0].answer["pin"], PIN);
    let payload = serde_json::from_str::<Value>(&envelope.to_string()).unwrap()["payload"].as_str().unwrap().to_owned();
    for shown in [format!("{envelope:?}"), format!("{proposals:?}")] {
        assert!(!shown.contains(PIN) && !shown.contains(&payload), "{shown}");
    }
}

/// The texts of the log.
#[derive(Default)]
struct Logged(Mutex<String>);

impl tracing::field::Visit for &Logged {
    fn record_debug(&mut self, _: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        self.0.lock().unwrap().push_str(&format!("{value:?} "));
    }
}

impl tracing::Subscriber for Logged {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().starts_with("graph")
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut &*self);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

/// A hook's tool that answers with something else than a control is reported without the secrets in its answer.
#[tokio::test]
async fn the_answer_of_a_hook_is_logged_without_secrets() {
    let program = Program {
        keys: &[Key { name: "card", initial: None }],
        settings: r#"{"hooks":[{"event":"after_step","tool":0,"params":{"kind":"hook"},"condition":{"path":"node","op":"eq","value":"act"}}],"signals":{"paid":{}},"secrets":{"keys":{"card":"all"},"signals":{"paid":{"fields":{"card":"all"}}}}}"#,
        nodes: &[
            (
                "w",
                r#"{"line":1,"does":"wait","wait":{"signals":["paid"]},"assign":{"card":"${result.paid.card}"},"next":[{"to":"act"}]}"#,
            ),
            ("act", r#"{"line":1,"does":{"action":0},"params":{"kind":"plain"},"next":[{"to":"done"}]}"#),
            ("done", r#"{"line":1,"does":"return","output":"ok"}"#),
        ],
        ..PROGRAM
    };
    let logs = Arc::new(Logged::default());
    let dispatch = tracing::Dispatch::from(Arc::clone(&logs) as Arc<dyn tracing::Subscriber + Send + Sync>);
    let _guard = tracing::dispatcher::set_default(&dispatch);
    let graph = Interpreted::new(&program, |_, params| match params["kind"].as_str().unwrap() {
        "hook" => Ok(json!({"action": format!("charge {PIN}")})),
        _ => Ok(json!(1)),
    });
    let ((store, _), run, people) = (store(), id("run"), People::default());
    let runtime = secretive(store.clone(), &people, Some(key(7)));
    runtime.start_as(run.clone(), graph.clone(), Map::new()).await.unwrap().await.unwrap_err();
    runtime.signal(&graph, &run, NamedSignal::new("paid", json!({"card": PIN})), "a").await.unwrap();
    assert_eq!(resumed(&runtime, &graph, &run).await, Ok(json!("ok")));
    let text = logs.0.lock().unwrap().clone();
    assert!(text.contains("charge [secret]") && !text.contains(PIN), "{text}");
}

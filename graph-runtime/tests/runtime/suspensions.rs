//! Suspensions by hooks: a suspended visit stays left, however its step and its process end.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use graph_runtime::__private::{Key, Program};
use graph_runtime::hooks::{Control, HookContext, Hooks, Layer};
use graph_runtime::{
    ActionError, Map, MemoryStore, NamedAnswer, NamedSignal, RunError, Runtime, SecretKey, Status, Store, Value, audit,
};
use serde_json::json;
use tokio::sync::Notify;

use crate::answers::People;
use crate::forged::edited;
use crate::inside::GRAPH;
use crate::interpreted::{Interpreted, PROGRAM};
use crate::pauses::{BRANCHES, Once, control, paused, pausing, released, suspend, suspending, suspending_in};
use crate::support::{KEY, failing, id, runtime};
use crate::waits::{assert_proven, records};

/// The branches, with calls of `a` and `b` that fail the first time. That of `b` fails when `a` was suspended.
fn failing_twice(calls: &Arc<Mutex<Vec<String>>>) -> Interpreted {
    let calls = Arc::clone(calls);
    Interpreted::waiting(&BRANCHES, move |call, params| {
        let (node, calls) = (call.node().to_owned(), Arc::clone(&calls));
        Box::pin(async move {
            if node == "b" {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            let mut calls = calls.lock().unwrap();
            calls.push(node.clone());
            let is_first = calls.iter().filter(|called| **called == node).count() == 1;
            match ["a", "b"].contains(&node.as_str()) && is_first {
                true => Err(ActionError::permanent("it fails once")),
                false => Ok(params),
            }
        })
    })
}

fn counted(calls: &Mutex<Vec<String>>, node: &str) -> usize {
    calls.lock().unwrap().iter().filter(|called| *called == node).count()
}

/// The run ends with the failure of another branch. When it is resumed, the call waits for its release all the same.
#[tokio::test]
async fn a_suspension_outlives_the_failure_of_another_branch() {
    for escalates in [false, true] {
        let (store, run, calls) = (MemoryStore::new(), id("run"), Arc::default());
        let (graph, people) = (failing_twice(&calls), People::default());
        let ann = people.add(11, "Ann", &["ops"]);
        let how = if escalates { control(&json!({"escalate": true, "role": "ops"})) } else { suspend("look") };
        let runtime = suspending(&store, Once::new([("error", "a", how)]), &people);
        let error = runtime.start_as(run.clone(), graph.clone(), Map::new()).await.unwrap().await.unwrap_err();
        assert!(matches!(&error, RunError::Node { node, .. } if node == "b"), "{error}");
        assert_proven(&store, &graph, &run, Status::Error).await;
        for _ in 0..2 {
            let left = runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap_err();
            assert!(
                matches!(&left, RunError::Waiting { waits, .. } if waits.len() == 1 && waits[0].node == "a"),
                "{left}"
            );
            assert_eq!((counted(&calls, "a"), counted(&calls, "b")), (1, 2));
            assert_proven(&store, &graph, &run, Status::Running).await;
        }
        if escalates {
            assert!(released(&runtime, &graph, &run).await.is_empty());
            let question = runtime.questions(&graph, &run).await.unwrap().remove(0);
            let answer = question.sign(NamedAnswer::new("a", json!("continue")), &ann).unwrap();
            runtime.answer(&graph, &run, &answer).await.unwrap();
        } else {
            assert_eq!(released(&runtime, &graph, &run).await, ["a"]);
        }
        let finished = runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap();
        assert_eq!((finished.output.as_array().map(Vec::len), counted(&calls, "a")), (Some(5), 2));
        assert_proven(&store, &graph, &run, Status::Completed).await;
    }
}

/// A journal cannot say that a suspended visit was made, or that another one was suspended.
#[tokio::test]
async fn forged_suspensions_are_refused() {
    let (store, run, calls) = (MemoryStore::new(), id("run"), Arc::default());
    let (graph, people) = (failing_twice(&calls), People::default());
    let escalate = control(&json!({"escalate": true, "role": "ops", "reason": "a large sum"}));
    let runtime = suspending(&store, Once::new([("error", "a", escalate)]), &people);
    runtime.start_as(run.clone(), graph.clone(), Map::new()).await.unwrap().await.unwrap_err();
    runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap_err();
    let (all, key) = (records(&store, &run).await, SecretKey::from_seed(&KEY).public());
    audit(&graph, &run, &all, &key, None).unwrap();
    let suspended = all.iter().position(|record| record.body.contains(r#""suspended""#)).unwrap();
    let left = all.iter().position(|record| record.body.contains(r#""escalated""#) && record.body.contains("opened"));
    let left = left.unwrap();
    type Forgery<'a> = (usize, &'a dyn Fn(&mut Value));
    let forgeries: [Forgery<'_>; 9] = [
        (suspended, &|record| record["done"][0]["step"] = json!(9)),
        (suspended, &|record| record["done"][0]["node"] = json!("b")),
        (suspended, &|record| record["done"][0]["result"] = json!("a")),
        (suspended, &|record| record["done"][0]["calls"] = json!(2)),
        (suspended, &|record| record["done"][0]["suspended"]["call"] = json!(2)),
        (suspended, &|record| record["done"][0]["suspended"]["escalated"]["role"] = json!("all")),
        (left, &|record| drop(record["visits"][0]["opened"].as_object_mut().unwrap().remove("escalated"))),
        (left, &|record| record["visits"][0]["opened"]["payload"] = json!({"reason": "nothing"})),
        (left, &|record| record["visits"][0]["opened"]["call"] = json!(2)),
    ];
    for (number, (at, change)) in forgeries.into_iter().enumerate() {
        let forged = edited(&all, at, change);
        assert_ne!(forged[at].body, all[at].body, "forgery {number}");
        assert!(audit(&graph, &run, &forged, &key, None).is_err(), "forgery {number}: {}", forged[at].body);
    }
}

/// A hook that suspends the run after the first step, once somebody shuts the runtime down.
struct Late {
    asked: Notify,
    goes_on: Notify,
}

struct LateHook(Arc<Late>);

impl Hooks for LateHook {
    async fn after_step(&self, context: &HookContext<'_>) -> Option<Control> {
        if context.values["node"] != "all" {
            return None;
        }
        self.0.asked.notify_one();
        self.0.goes_on.notified().await;
        Some(suspend("it is late"))
    }
}

/// The runtime is shut down while a hook decides. The run waits for its release when it is resumed.
#[tokio::test]
async fn a_suspension_outlives_a_shutdown() {
    let (store, run, calls) = (MemoryStore::new(), id("run"), Arc::default());
    let (graph, late) = (failing_twice(&calls), Arc::new(Late { asked: Notify::new(), goes_on: Notify::new() }));
    let builder = Runtime::builder().store(store.clone()).sign_with(SecretKey::from_seed(&KEY)).grant("*").unwrap();
    let first = builder.hooks(Layer::Builtin, LateHook(Arc::clone(&late))).build().unwrap();
    let begun = tokio::spawn(first.start_as(run.clone(), graph.clone(), Map::new()).await.unwrap());
    late.asked.notified().await;
    let shut_down = tokio::spawn(async move { first.shutdown(Duration::from_secs(60)).await });
    tokio::task::yield_now().await;
    late.goes_on.notify_one();
    let error = begun.await.unwrap().unwrap_err();
    assert!(matches!(error, RunError::ShutDown { .. }), "{error}");
    shut_down.await.unwrap();
    let second = runtime(store.clone());
    assert_eq!(paused(second.resume(graph.clone(), &run).await.unwrap().await.unwrap_err()), ["a", "b"]);
    assert!(calls.lock().unwrap().is_empty());
    assert_proven(&store, &graph, &run, Status::Running).await;
}

/// All visits wait where the hook suspends the run: each is left when its wait is over.
#[tokio::test]
async fn a_run_is_suspended_that_waits_everywhere() {
    let program = Program {
        settings: r#"{"channels":{"log":"append"},"signals":{"paid":{}},"hooks":[
            {"event":"after_step","params":{"action":"suspend","reason":"look"},"condition":{"path":"node","op":"eq","value":"b"}}]}"#,
        keys: &[Key { name: "log", initial: Some("[]") }],
        nodes: &[
            ("all", r#"{"line":1,"does":"gate","next":{"all":[{"to":"w"},{"to":"b"}]}}"#),
            (
                "w",
                r#"{"line":2,"does":"wait","wait":{"signals":["paid"]},"assign":{"log":"${result}"},"next":[{"to":"met"}]}"#,
            ),
            ("b", r#"{"line":3,"does":{"action":0},"params":"b","assign":{"log":"${result}"},"next":[{"to":"met"}]}"#),
            ("met", r#"{"line":4,"does":"gate","join":{"of":[1,2],"fan":0,"closes":true},"next":[{"to":"done"}]}"#),
            ("done", r#"{"line":5,"does":"return","output":"${state.log}"}"#),
        ],
        ..PROGRAM
    };
    let (store, run, graph) = (MemoryStore::new(), id("run"), Interpreted::new(&program, |_, params| Ok(params)));
    let runtime = runtime(store.clone());
    let left = runtime.start_as(run.clone(), graph.clone(), Map::new()).await.unwrap().await.unwrap_err();
    assert!(matches!(&left, RunError::Waiting { waits, .. } if !waits[0].is_pause()), "{left}");
    assert!(released(&runtime, &graph, &run).await.is_empty(), "it is not paused before its wait is over");
    runtime.signal(&graph, &run, NamedSignal::new("paid", json!(5)), "payment").await.unwrap();
    for _ in 0..2 {
        assert_eq!(paused(runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap_err()), ["w"]);
        assert_proven(&store, &graph, &run, Status::Running).await;
    }
    assert_eq!(released(&runtime, &graph, &run).await, ["w"]);
    let finished = runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap();
    assert_eq!(finished.output, json!(["b", {"signal": "paid", "paid": 5}]));
    assert_proven(&store, &graph, &run, Status::Completed).await;
    // The graph itself says that the run is suspended there: an audit refuses the journal of a run that was not.
    let settings = r#"{"channels":{"log":"append"},"signals":{"paid":{}}}"#;
    let without = Interpreted::new(&Program { settings, ..program }, |_, params| Ok(params));
    let run = id("other");
    runtime.start_as(run.clone(), without.clone(), Map::new()).await.unwrap().await.unwrap_err();
    runtime.signal(&without, &run, NamedSignal::new("paid", json!(5)), "payment").await.unwrap();
    runtime.resume(without.clone(), &run).await.unwrap().await.unwrap();
    let (all, key) = (records(&store, &run).await, SecretKey::from_seed(&KEY).public());
    audit(&without, &run, &all, &key, None).unwrap();
    // A process may die before it asks the hook. The one that resumes the run asks it.
    let error = audit(&graph, &run, &all, &key, None).unwrap_err().to_string();
    assert!(error.contains("suspends the run before visit 2"), "{error}");
    let early = NamedSignal::new("paid", json!(5));
    let run = id("early");
    let started = runtime.start_as(run.clone(), without.clone(), Map::new()).await.unwrap();
    runtime.signal(&without, &run, early, "payment").await.unwrap();
    started.await.unwrap();
    let all = records(&store, &run).await;
    audit(&without, &run, &all, &key, None).unwrap();
    let error = audit(&graph, &run, &all, &key, None).unwrap_err().to_string();
    assert!(error.contains("a hook of the graph suspends the run before visit 2, which is not left so"), "{error}");
}

/// A graph with a hook of its own that suspends the run at its limit, and lets it take two more steps each time.
#[tokio::test]
async fn a_hook_of_the_graph_suspends_the_run_at_its_limit() {
    for (escalates, additional) in [(false, 2), (true, 50), (false, 0)] {
        let action = if escalates { "escalate" } else { "suspend" };
        let settings = json!({"channels": {"log": "append"}, "max_steps": 3, "hooks": [
            {"event": "limit", "params": {"action": action, "additional_steps": additional}},
        ]});
        let program = Program { settings: &settings.to_string(), ..BRANCHES };
        let graph = Interpreted::new(&program, |_, params| Ok(params));
        let (store, run, people) = (MemoryStore::new(), id("run"), People::default());
        let ann = people.add(11, "Ann", &[]);
        let runtime = suspending(&store, Once::new([]), &people);
        let mut left = runtime.start_as(run.clone(), graph.clone(), Map::new()).await.unwrap().await;
        if additional == 0 {
            assert!(matches!(left, Err(RunError::MaxSteps { .. })), "{left:?}");
            assert_proven(&store, &graph, &run, Status::Error).await;
            continue;
        }
        let mut times = 0;
        while let Err(RunError::Waiting { waits, .. }) = &left {
            assert_proven(&store, &graph, &run, Status::Running).await;
            times += 1;
            for wait in waits.iter().filter(|_| escalates) {
                let questions = runtime.questions(&graph, &run).await.unwrap();
                let question = questions.iter().find(|question| question.wait == wait.id.as_str()).unwrap();
                let answer = question.sign(NamedAnswer::new(&wait.node, json!("continue")), &ann).unwrap();
                runtime.answer(&graph, &run, &answer).await.unwrap();
            }
            released(&runtime, &graph, &run).await;
            left = runtime.resume(graph.clone(), &run).await.unwrap().await;
        }
        assert_eq!((left.unwrap().steps, times), (7, if escalates { 1 } else { 2 }));
        assert_proven(&store, &graph, &run, Status::Completed).await;
    }
}

/// A hook has the call of a graph made again, and suspends it then. The nested run that was begun last continues, and its steps
/// are counted.
#[tokio::test]
async fn the_last_call_of_a_graph_continues_when_it_is_released() {
    for (retries, steps) in [(0, r#"{"steps":40}"#), (1, r#"{"steps":40}"#), (2, "{}")] {
        let inner = Program {
            id: "test/inner",
            nodes: &[
                ("first", r#"{"line":1,"does":{"action":0},"params":"first","next":[{"to":"second"}]}"#),
                ("second", r#"{"line":2,"does":{"action":0},"params":"second","next":[{"to":"done"}]}"#),
                ("done", r#"{"line":3,"does":"return","output":"inner"}"#),
            ],
            ..PROGRAM
        };
        let outer = Program {
            tools: &[GRAPH],
            settings: steps,
            nodes: &[
                ("run", r#"{"line":1,"does":{"action":0},"next":[{"to":"done"}]}"#),
                ("done", r#"{"line":2,"does":"return","output":"${state}"}"#),
            ],
            ..PROGRAM
        };
        let (calls, failed) = (Arc::<Mutex<Vec<String>>>::default(), AtomicU64::new(0));
        let of_inner = Arc::clone(&calls);
        let inner = Interpreted::new(&inner, move |call, params| {
            of_inner.lock().unwrap().push(format!("{} {}", call.run_id(), call.node()));
            match call.node() == "second" && failed.fetch_add(1, Ordering::SeqCst) <= retries {
                true => Err(ActionError::permanent("it fails")),
                false => Ok(params),
            }
        });
        let graph = Interpreted::new(&outer, |_, _| Ok(Value::Null)).nesting(inner);
        let retry = || control(&json!({"action": "retry", "max_retries": 5}));
        let hooks = (0..retries).map(|_| ("error", "run", retry())).chain([("error", "run", suspend("look"))]);
        let (store, run) = (MemoryStore::new(), id("run"));
        let runtime = suspending(&store, Once::new(hooks), &People::default());
        let left = runtime.start_as(run.clone(), graph.clone(), Map::new()).await.unwrap().await;
        assert_eq!(paused(left.unwrap_err()), ["run"], "{retries}");
        assert_proven(&store, &graph, &run, Status::Running).await;
        released(&runtime, &graph, &run).await;
        runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap();
        let last = if retries == 0 { "run-1".to_owned() } else { format!("run-1-again{retries}") };
        let made = calls.lock().unwrap().clone();
        assert_eq!(made.iter().filter(|call| call.ends_with("first")).count() as u64, retries + 1, "{made:?}");
        assert_eq!(made.last(), Some(&format!("{last} second")));
        assert_proven(&store, &graph, &run, Status::Completed).await;
    }
}

/// Three branches, of which two meet before the third one does.
const PARTIAL: Program<'static> = Program {
    nodes: &[
        ("all", r#"{"line":1,"does":"gate","next":{"all":[{"to":"a"},{"to":"b"},{"to":"c"}]}}"#),
        ("a", r#"{"line":2,"does":{"action":0},"params":"a","next":[{"to":"two"}]}"#),
        ("b", r#"{"line":3,"does":{"action":0},"params":"b","next":[{"to":"b2"}]}"#),
        ("c", r#"{"line":4,"does":{"action":0},"params":"c","next":[{"to":"met"}]}"#),
        ("b2", r#"{"line":5,"does":{"action":0},"params":"b2","next":[{"to":"two"}]}"#),
        ("two", r#"{"line":6,"does":"gate","join":{"of":[1,4],"fan":0},"next":[{"to":"d"}]}"#),
        ("d", r#"{"line":7,"does":{"action":0},"params":"d","next":[{"to":"met"}]}"#),
        ("met", r#"{"line":8,"does":"gate","join":{"of":[3,6],"fan":0,"closes":true},"next":[{"to":"done"}]}"#),
        ("done", r#"{"line":9,"does":"return"}"#),
    ],
    ..PROGRAM
};

/// A run pauses before a join that follows the node, whichever branch comes last.
#[tokio::test]
async fn a_run_pauses_at_joins_behind_a_node() {
    for (after, expected) in [
        (&["a"][..], &[&["two"][..]][..]),
        (&["b2"], &[&["two"]]),
        (&["c"], &[&["met"]]),
        (&["two"], &[&["d"]]),
        (&["d"], &[&["met"]]),
        (&["a", "c", "met"], &[&["two"], &["met"], &["done"]]),
    ] {
        let (store, run, graph) = (MemoryStore::new(), id("run"), Interpreted::new(&PARTIAL, |_, params| Ok(params)));
        let mut left = None;
        for nodes in expected {
            // Each time in another process.
            let runtime = runtime(store.clone());
            let run_again = match left.take() {
                None => runtime.start_with(pausing(&[], after), graph.clone(), Map::new()).await.unwrap().await,
                Some(()) => runtime.resume(graph.clone(), &run).await.unwrap().await,
            };
            assert_eq!(paused(run_again.unwrap_err()), *nodes, "{after:?}");
            assert_proven(&store, &graph, &run, Status::Running).await;
            assert_eq!(released(&runtime, &graph, &run).await, *nodes);
            left = Some(());
        }
        runtime(store.clone()).resume(graph.clone(), &run).await.unwrap().await.unwrap();
        assert_proven(&store, &graph, &run, Status::Completed).await;
    }
}

/// A process dies after each write of the run. Hooks of the graph and of the program suspend and end it all the same: when it begins,
/// and after a step.
#[tokio::test]
async fn a_hook_is_asked_by_whoever_resumes_the_run() {
    let hook = |event: &str, how: &str| {
        let condition =
            if event == "after_step" { r#","condition":{"path":"node","op":"eq","value":"a"}"# } else { "" };
        format!(r#"{{"hooks":[{{"event":"{event}","params":{how}{condition}}}]}}"#)
    };
    let suspends = r#"{"action":"suspend","reason":"look"}"#;
    for (event, how, by_program) in [
        ("graph_started", suspends, false),
        ("after_step", suspends, false),
        ("after_step", suspends, true),
        ("after_step", r#"{"action":"fail","error":"no"}"#, false),
    ] {
        let settings = if by_program { "{}".to_owned() } else { hook(event, how) };
        let program = Program {
            settings: &settings,
            nodes: &[
                ("a", r#"{"line":1,"does":{"action":0},"params":"a","next":[{"to":"b"}]}"#),
                ("b", r#"{"line":2,"does":{"action":0},"params":"b","next":[{"to":"done"}]}"#),
                ("done", r#"{"line":3,"does":"return"}"#),
            ],
            ..PROGRAM
        };
        let graph = Interpreted::new(&program, |_, params| Ok(params));
        for (writes, is_written) in (0..4).flat_map(|writes| [(writes, false), (writes, true)]) {
            let what = format!("{event} {how} {by_program} {writes} {is_written}");
            let (store, run, people) = (MemoryStore::new(), id("run"), People::default());
            // The hook of the program answers as often as it is asked.
            let asked =
                || Once::new(std::iter::repeat_n(("after_step", "a", suspend("look")), 9).filter(|_| by_program));
            let failing = suspending_in(failing(&store, writes, is_written), asked(), &people);
            drop(failing.start_as(run.clone(), graph.clone(), Map::new()).await.unwrap().await);
            let runtime = suspending(&store, asked(), &people);
            if store.find(&run).await.unwrap().status == Status::Error {
                assert!(how != suspends, "the hook has ended it: {what}");
                continue;
            }
            let left = runtime.resume(graph.clone(), &run).await.unwrap().await;
            if how == suspends {
                let node = if event == "graph_started" { "a" } else { "b" };
                assert_eq!(paused(left.unwrap_err()), [node], "{what}");
                assert_eq!(released(&runtime, &graph, &run).await, [node], "{what}");
                assert_proven(&store, &graph, &run, Status::Running).await;
                runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap();
                assert_proven(&store, &graph, &run, Status::Completed).await;
            } else {
                assert!(left.unwrap_err().to_string().contains("no"), "{what}");
            }
        }
    }
}

/// A hook that suspended the run when it began has nothing to do with a later step of which all visits wait.
#[tokio::test]
async fn a_hook_of_the_start_is_not_asked_behind_a_step() {
    let program = Program {
        settings: r#"{"signals":{"paid":{}},"hooks":[{"event":"graph_started","params":{"action":"suspend","reason":"look"}}]}"#,
        nodes: &[
            ("w", r#"{"line":1,"does":"wait","wait":{"signals":["paid"]},"next":[{"to":"done"}]}"#),
            ("done", r#"{"line":2,"does":"return"}"#),
        ],
        ..PROGRAM
    };
    let (store, run, graph) = (MemoryStore::new(), id("run"), Interpreted::new(&program, |_, params| Ok(params)));
    let runtime = runtime(store.clone());
    let left = runtime.start_as(run.clone(), graph.clone(), Map::new()).await.unwrap().await.unwrap_err();
    assert_eq!(paused(left), ["w"]);
    assert_eq!(released(&runtime, &graph, &run).await, ["w"]);
    runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap_err();
    runtime.signal(&graph, &run, NamedSignal::new("paid", json!(5)), "payment").await.unwrap();
    runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap();
    assert_proven(&store, &graph, &run, Status::Completed).await;
}

//! Suspended visits beside everything else that a run has: nested runs that wait, snapshots, quorums, forks, limits.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use graph_runtime::__private::{Key, Program};
use graph_runtime::answer::Answered;
use graph_runtime::history::{Fork, ForkRun};
use graph_runtime::{
    ActionError, Map, MemoryStore, NamedAnswer, NamedSignal, Options, RunError, SecretKey, Status, Value, audit,
};
use serde_json::json;

use crate::answers::People;
use crate::forged::edited;
use crate::inside::GRAPH;
use crate::interpreted::{Interpreted, PROGRAM};
use crate::pauses::{BRANCHES, Once, control, paused, pausing, released, suspend, suspending};
use crate::support::{KEY, id, kinds, runtime};
use crate::waits::{assert_proven, records, waits};

/// A value that makes a step so long that a snapshot follows it.
fn large() -> Value {
    json!("x".repeat(100_000))
}

fn escalate() -> graph_runtime::hooks::Control {
    control(&json!({"escalate": true, "role": "ops"}))
}

/// A nested run asks, and a hook leaves the visit around it. An answer, a signal or a release for the nested run waits until the visit
/// is released.
#[tokio::test]
async fn a_nested_run_keeps_its_answers_while_the_visit_around_it_is_left() {
    let ask = r#"{"line":1,"does":"interrupt","wait":{"ask":{"payload":"please","count":1}},"next":[{"to":"done"}]}"#;
    let wait = r#"{"line":1,"does":"wait","wait":{"signals":["go"]},"next":[{"to":"done"}]}"#;
    for (is_asked, first) in [(true, ask), (false, wait)] {
        let inner = Program {
            id: "test/inner",
            settings: r#"{"signals":{"go":{}}}"#,
            nodes: &[("first", first), ("done", r#"{"line":2,"does":"return","output":"inner"}"#)],
            ..PROGRAM
        };
        let outer = Program {
            tools: &[PROGRAM.tools[0], GRAPH],
            nodes: &[
                ("all", r#"{"line":1,"does":"gate","next":{"all":[{"to":"n"},{"to":"b"}]}}"#),
                ("n", r#"{"line":2,"does":{"action":1},"next":[{"to":"met"}]}"#),
                ("b", r#"{"line":3,"does":{"action":0},"params":"b","next":[{"to":"met"}]}"#),
                ("met", r#"{"line":4,"does":"gate","join":{"of":[1,2],"fan":0,"closes":true},"next":[{"to":"done"}]}"#),
                ("done", r#"{"line":5,"does":"return"}"#),
            ],
            ..PROGRAM
        };
        let inner = Interpreted::new(&inner, |_, params| Ok(params));
        let graph = Interpreted::new(&outer, |_, params| Ok(params)).nesting(inner);
        let (store, run, people) = (MemoryStore::new(), id("run"), People::default());
        let ann = people.add(11, "Ann", &[]);
        let runtime = suspending(&store, Once::new([("after_step", "b", suspend("look"))]), &people);
        let left = runtime.start_as(run.clone(), graph.clone(), Map::new()).await.unwrap().await;
        assert_eq!(waits(left.unwrap_err())[0].0, "first");
        if is_asked {
            let question = runtime.questions(&graph, &run).await.unwrap().remove(0);
            let answer = question.sign(NamedAnswer::new("first", json!({"decision": "approve"})), &ann).unwrap();
            assert_eq!(runtime.answer(&graph, &run, &answer).await.unwrap(), Answered::Accepted);
        } else {
            runtime.signal(&graph, &run, NamedSignal::new("2/go", json!(1)), "go").await.unwrap();
        }
        for _ in 0..2 {
            let left = runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap_err();
            assert_eq!(paused(left), ["n"]);
        }
        assert_eq!(released(&runtime, &graph, &run).await, ["n"]);
        runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap();
        assert_proven(&store, &graph, &run, Status::Completed).await;
    }
}

/// A run continues from a snapshot that it wrote while a visit was left that has received its signal.
#[tokio::test]
async fn a_snapshot_has_visits_that_are_left_after_they_waited() {
    let waits =
        r#"{"line":2,"does":"wait","wait":{"signals":["paid"]},"assign":{"log":"${result}"},"next":[{"to":"met"}]}"#;
    continues_from_snapshots(waits).await;
    // A nested run waits for a signal that is shared with it.
    let nests = r#"{"line":2,"does":{"action":1},"share_signals":["paid"],"assign":{"log":"${result.output}"},"next":[{"to":"met"}]}"#;
    continues_from_snapshots(nests).await;
}

async fn continues_from_snapshots(first: &str) {
    let inner = Program {
        id: "test/inner",
        settings: r#"{"signals":{"paid":{}}}"#,
        nodes: &[
            (
                "w",
                r#"{"line":1,"does":"wait","wait":{"signals":["paid"]},"assign":{"got":"${result}"},"next":[{"to":"done"}]}"#,
            ),
            ("done", r#"{"line":2,"does":"return","output":"${state.got}"}"#),
        ],
        keys: &[Key { name: "got", initial: None }],
        ..PROGRAM
    };
    let program = Program {
        tools: &[PROGRAM.tools[0], GRAPH],
        settings: r#"{"channels":{"log":"append"},"signals":{"paid":{},"go":{}}}"#,
        keys: &[Key { name: "log", initial: Some("[]") }],
        nodes: &[
            ("all", r#"{"line":1,"does":"gate","next":{"all":[{"to":"w"},{"to":"v"},{"to":"b"}]}}"#),
            ("w", first),
            ("v", r#"{"line":3,"does":"wait","wait":{"signals":["go"]},"next":[{"to":"c"}]}"#),
            ("b", r#"{"line":4,"does":{"action":0},"params":"b","next":[{"to":"met"}]}"#),
            ("c", r#"{"line":5,"does":{"action":0},"params":"large","next":[{"to":"d"}]}"#),
            ("d", r#"{"line":6,"does":{"action":0},"params":"large","next":[{"to":"e"}]}"#),
            ("e", r#"{"line":7,"does":"wait","wait":{"signals":["go"]},"next":[{"to":"met"}]}"#),
            ("met", r#"{"line":8,"does":"gate","join":{"of":[1,3,6],"fan":0,"closes":true},"next":[{"to":"done"}]}"#),
            ("done", r#"{"line":9,"does":"return","output":"${state.log}"}"#),
        ],
        ..PROGRAM
    };
    let graph = Interpreted::new(&program, |_, params| Ok(if params == json!("large") { large() } else { params }));
    let graph = graph.nesting(Interpreted::new(&inner, |_, params| Ok(params)));
    let (store, run, people) = (MemoryStore::new(), id("run"), People::default());
    let ann = people.add(11, "Ann", &["ops"]);
    let runtime = suspending(&store, Once::new([("after_step", "b", escalate())]), &people);
    runtime.start_as(run.clone(), graph.clone(), Map::new()).await.unwrap().await.unwrap_err();
    for (name, value) in [("paid", 5), ("go", 1)] {
        runtime.signal(&graph, &run, NamedSignal::new(name, json!(value)), name).await.unwrap();
    }
    let left = runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap_err();
    assert_eq!(waits(left).into_iter().map(|(node, _)| node).collect::<Vec<_>>(), ["w", "v"]);
    for (node, rest) in [("v", Some(["w", "e"])), ("w", None)] {
        let questions = runtime.questions(&graph, &run).await.unwrap();
        let question = questions.iter().find(|question| question.node == node).unwrap();
        let answer = question.sign(NamedAnswer::new(node, json!("continue")), &ann).unwrap();
        runtime.answer(&graph, &run, &answer).await.unwrap();
        let left = runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap_err();
        let nodes: Vec<String> = waits(left).into_iter().map(|(node, _)| node).collect();
        assert_eq!(nodes, rest.map_or_else(|| vec!["e"], |rest| rest.to_vec()));
        assert!(kinds(&records(&store, &run).await).contains(&"snapshot".to_owned()));
        assert_proven(&store, &graph, &run, Status::Running).await;
    }
    runtime.signal(&graph, &run, NamedSignal::new("go", json!(2)), "go again").await.unwrap();
    let finished = runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap();
    assert_eq!(finished.output, json!([{"signal": "paid", "paid": 5}]));
    assert_proven(&store, &graph, &run, Status::Completed).await;
}

/// A quorum drops a branch whose tool has asked once. The snapshots behind it are good.
#[tokio::test]
async fn a_snapshot_forgets_the_waits_of_branches_that_a_quorum_drops() {
    let program = Program {
        settings: r#"{"channels":{"log":"append"},"signals":{"go":{}}}"#,
        keys: &[Key { name: "log", initial: Some("[]") }],
        nodes: &[
            ("all", r#"{"line":1,"does":"gate","next":{"all":[{"to":"a"},{"to":"b"}]}}"#),
            ("a", r#"{"line":2,"does":"wait","wait":{"signals":["go"]},"next":[{"to":"met"}]}"#),
            ("b", r#"{"line":3,"does":{"action":0},"params":"ask","wait":{"ask":{"count":1}},"next":[{"to":"met"}]}"#),
            (
                "met",
                r#"{"line":4,"does":"gate","join":{"of":[1,2],"fan":0,"closes":true,"quorum":{"need":1,"rest":"cancel"}},"next":[{"to":"c"}]}"#,
            ),
            ("c", r#"{"line":5,"does":{"action":0},"params":"large","next":[{"to":"d"}]}"#),
            ("d", r#"{"line":6,"does":{"action":0},"params":"large","next":[{"to":"late"}]}"#),
            ("late", r#"{"line":7,"does":"wait","wait":{"signals":["go"]},"next":[{"to":"done"}]}"#),
            ("done", r#"{"line":8,"does":"return"}"#),
        ],
        ..PROGRAM
    };
    let graph = Interpreted::new(&program, |call, params| match params.as_str() {
        Some("ask") if call.answers().len() < 2 => Err(ActionError::interrupt(json!(call.answers().len()))),
        Some("large") => Ok(large()),
        _ => Ok(params),
    });
    let (store, run, people) = (MemoryStore::new(), id("run"), People::default());
    let ann = people.add(11, "Ann", &[]);
    let runtime = suspending(&store, Once::new([]), &people);
    runtime.start_as(run.clone(), graph.clone(), Map::new()).await.unwrap().await.unwrap_err();
    let question = runtime.questions(&graph, &run).await.unwrap().remove(0);
    runtime
        .answer(&graph, &run, &question.sign(NamedAnswer::new("b", json!({"decision": "approve"})), &ann).unwrap())
        .await
        .unwrap();
    runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap_err();
    for (number, node) in [("first", "late"), ("second", "")] {
        runtime.signal(&graph, &run, NamedSignal::new("go", json!(1)), number).await.unwrap();
        match runtime.resume(graph.clone(), &run).await.unwrap().await {
            Err(error) => assert_eq!(waits(error)[0].0, node),
            Ok(finished) => assert_eq!((finished.status, node), (Status::Completed, "")),
        }
    }
    assert!(kinds(&records(&store, &run).await).contains(&"snapshot".to_owned()));
    assert_proven(&store, &graph, &run, Status::Completed).await;
}

/// Another visit of the same node fails on the result of its call. The visit that a hook left to people stays left.
#[tokio::test]
async fn a_suspension_outlives_an_unfit_visit_of_its_node() {
    let program = Program {
        settings: r#"{"channels":{"log":"append"},"on_no_match":"fail"}"#,
        keys: &[Key { name: "log", initial: Some("[]") }],
        nodes: &[
            ("all", r#"{"line":1,"does":"gate","next":{"over":"${inputs.list}","as":"n","to":"a"}}"#),
            (
                "a",
                r#"{"line":2,"does":{"action":0},"params":"${n}","assign":{"log":"${result}"},"next":[{"to":"met","when":{"path":"result","op":"eq","value":"ok"}}]}"#,
            ),
            ("met", r#"{"line":4,"does":"gate","join":{"of":[1],"fan":0,"closes":true},"next":[{"to":"done"}]}"#),
            ("done", r#"{"line":5,"does":"return","output":"${state.log}"}"#),
        ],
        ..PROGRAM
    };
    let calls = Arc::new(Mutex::new(Vec::<String>::new()));
    let of_tool = Arc::clone(&calls);
    let graph = Interpreted::waiting(&program, move |_, params| {
        let calls = Arc::clone(&of_tool);
        Box::pin(async move {
            let name = params.as_str().unwrap().to_owned();
            if name == "second" {
                tokio::time::sleep(Duration::from_millis(30)).await;
            }
            let mut calls = calls.lock().unwrap();
            calls.push(name.clone());
            let is_first = calls.iter().filter(|call| **call == name).count() == 1;
            match name.as_str() {
                "first" if is_first => Err(ActionError::permanent("it fails once")),
                "second" if is_first => Ok(json!("odd")),
                _ => Ok(json!("ok")),
            }
        })
    });
    let (store, run, people) = (MemoryStore::new(), id("run"), People::default());
    let runtime = suspending(&store, Once::new([("error", "a", escalate())]), &people);
    let inputs = Map::from_iter([("list".to_owned(), json!(["first", "second"]))]);
    let error = runtime.start_as(run.clone(), graph.clone(), inputs).await.unwrap().await.unwrap_err();
    assert!(error.to_string().contains("no edge matches"), "{error}");
    let left = runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap_err();
    assert_eq!(waits(left)[0].0, "a");
    assert_eq!(*calls.lock().unwrap(), ["first", "second", "second"]);
    assert_proven(&store, &graph, &run, Status::Running).await;
}

/// A fork has the suspensions of the run where it begins, also those of visits that are not left yet.
#[tokio::test]
async fn a_fork_is_suspended_where_its_origin_is() {
    let failed = Mutex::new(Vec::new());
    let graph = Interpreted::waiting(&BRANCHES, move |call, params| {
        let node = call.node().to_owned();
        let fails = ["a", "b"].contains(&node.as_str()) && {
            let mut failed = failed.lock().unwrap();
            let is_first = !failed.contains(&node);
            failed.push(node.clone());
            is_first
        };
        Box::pin(async move {
            if node == "b" {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            if fails { Err(ActionError::permanent("it fails once")) } else { Ok(params) }
        })
    });
    let (store, run, people) = (MemoryStore::new(), id("run"), People::default());
    let ann = people.add(11, "Ann", &["ops"]);
    let runtime = suspending(&store, Once::new([("error", "a", escalate())]), &people);
    runtime.start_as(run.clone(), graph.clone(), Map::new()).await.unwrap().await.unwrap_err();
    let fork = runtime.fork(&graph, &run, Fork::default()).await.unwrap();
    assert_eq!(kinds(&records(&store, &fork).await), ["start", "snapshot", "calls"]);
    let left = runtime.resume(graph.clone(), &fork).await.unwrap().await.unwrap_err();
    assert_eq!(waits(left)[0].0, "a");
    assert!(released(&runtime, &graph, &fork).await.is_empty());
    let question = runtime.questions(&graph, &fork).await.unwrap().remove(0);
    let answer = question.sign(NamedAnswer::new("a", json!("continue")), &ann).unwrap();
    runtime.answer(&graph, &fork, &answer).await.unwrap();
    runtime.resume(graph.clone(), &fork).await.unwrap().await.unwrap();
    assert_proven(&store, &graph, &fork, Status::Completed).await;
}

/// A run that has taken all its steps has no result while people must say whether it continues.
#[tokio::test]
async fn a_suspended_run_does_not_end_at_its_limit() {
    for end in ["return_last", "return_with_flag", "fail"] {
        let settings = json!({"channels": {"log": "append"}, "max_steps": 3, "on_max_steps": end});
        let program = Program { settings: &settings.to_string(), ..BRANCHES };
        let graph = Interpreted::new(&program, |_, params| Ok(params));
        let (store, run, people) = (MemoryStore::new(), id("run"), People::default());
        let ann = people.add(11, "Ann", &["ops"]);
        let runtime = suspending(&store, Once::new([("after_step", "b", escalate())]), &people);
        let left = runtime.start_as(run.clone(), graph.clone(), Map::new()).await.unwrap().await.unwrap_err();
        assert_eq!(waits(left).len(), 2, "{end}");
        assert_proven(&store, &graph, &run, Status::Running).await;
        for question in runtime.questions(&graph, &run).await.unwrap() {
            let answer = question.sign(NamedAnswer::new(&question.node, json!("continue")), &ann).unwrap();
            runtime.answer(&graph, &run, &answer).await.unwrap();
        }
        let ended = runtime.resume(graph.clone(), &run).await.unwrap().await;
        assert_eq!(ended.is_ok(), end != "fail", "{end}");
        let status = if end == "fail" { Status::Error } else { Status::Completed };
        assert_proven(&store, &graph, &run, status).await;
    }
    // A hook that suspends it at the limit, and lets it take no more steps, ends it.
    let settings = json!({"channels": {"log": "append"}, "max_steps": 3, "on_max_steps": "return_last", "hooks": [
        {"event": "limit", "params": {"action": "escalate", "additional_steps": 0}},
    ]});
    let program = Program { settings: &settings.to_string(), ..BRANCHES };
    let graph = Interpreted::new(&program, |_, params| Ok(params));
    let (store, run) = (MemoryStore::new(), id("run"));
    let ended = runtime(store.clone()).start_as(run.clone(), graph.clone(), Map::new()).await.unwrap().await;
    assert!(matches!(ended, Err(RunError::MaxSteps { .. })), "{ended:?}");
    assert_proven(&store, &graph, &run, Status::Error).await;
}

/// A journal cannot leave out the escalation of the graph's own hook at a limit, or name other people.
#[tokio::test]
async fn an_audit_knows_whom_a_hook_of_the_graph_asks() {
    let key = SecretKey::from_seed(&KEY).public();
    let hooked = |hook: Value| {
        let most = if hook["event"] == "limit" { 2 } else { 100 };
        let settings = json!({"channels": {"log": "append"}, "max_steps": most, "hooks": [hook]});
        Interpreted::new(&Program { settings: &settings.to_string(), ..BRANCHES }, |_, params| Ok(params))
    };
    let limit = |params: Value| json!({"event": "limit", "params": params});
    let honest = hooked(limit(json!({"action": "continue", "additional_steps": 50})));
    let strict = hooked(limit(json!({"action": "escalate", "role": "ops", "additional_steps": 50})));
    let (store, run) = (MemoryStore::new(), id("run"));
    runtime(store.clone()).start_as(run.clone(), honest.clone(), Map::new()).await.unwrap().await.unwrap();
    let all = records(&store, &run).await;
    audit(&honest, &run, &all, &key, None).unwrap();
    let error = audit(&strict, &run, &all, &key, None).unwrap_err().to_string();
    assert!(error.contains("a hook of the graph suspends the run"), "{error}");
    // One person without a role is not three with one.
    let after = |params: Value| {
        let condition = json!({"path": "node", "op": "eq", "value": "all"});
        json!({"event": "after_step", "params": params, "condition": condition})
    };
    let weak = hooked(after(json!({"action": "escalate"})));
    let strict = hooked(after(json!({"action": "escalate", "role": "ops", "count": 3})));
    let (store, run) = (MemoryStore::new(), id("run"));
    runtime(store.clone()).start_as(run.clone(), weak.clone(), Map::new()).await.unwrap().await.unwrap_err();
    let all = records(&store, &run).await;
    audit(&weak, &run, &all, &key, None).unwrap();
    assert!(audit(&strict, &run, &all, &key, None).is_err());
}

/// A visit that is left behind one that ran a graph counts none of its steps.
#[tokio::test]
async fn a_visit_that_is_left_counts_no_steps_of_another() {
    let wait = r#"{"line":2,"does":"wait","wait":{"signals":["go"]},"next":[{"to":"done"}]}"#;
    let gate = r#"{"line":2,"does":"gate","next":[{"to":"done"}]}"#;
    for (second, pauses) in [(wait, false), (gate, true)] {
        let inner =
            Program { id: "test/inner", nodes: &[("i", r#"{"line":1,"does":{"action":0},"params":"i"}"#)], ..PROGRAM };
        let outer = Program {
            tools: &[GRAPH],
            settings: r#"{"steps":20,"signals":{"go":{}}}"#,
            nodes: &[
                ("n", r#"{"line":1,"does":{"action":0},"params":{},"next":[{"to":"second"}]}"#),
                ("second", second),
                ("done", r#"{"line":3,"does":"return"}"#),
            ],
            ..PROGRAM
        };
        let graph =
            Interpreted::new(&outer, |_, params| Ok(params)).nesting(Interpreted::new(&inner, |_, params| Ok(params)));
        let (store, run) = (MemoryStore::new(), id("run"));
        let options = if pauses { pausing(&["second"], &[]) } else { pausing(&[], &[]) };
        let options = Options { run: Some(run.clone()), ..options };
        runtime(store.clone()).start_with(options, graph.clone(), Map::new()).await.unwrap().await.unwrap_err();
        assert_proven(&store, &graph, &run, Status::Running).await;
        let (all, key) = (records(&store, &run).await, SecretKey::from_seed(&KEY).public());
        let last = all.len() - 1;
        let forged = edited(&all, last, |record| record["visits"][0]["below"] = json!(1));
        assert!(audit(&graph, &run, &forged, &key, None).is_err());
    }
}

/// A return waits for late branches behind a node after which the run pauses, and a late branch leads to a return that cancels it.
#[tokio::test]
async fn a_snapshot_forgets_a_return_that_another_one_cancels() {
    let program = Program {
        settings: r#"{"channels":{"log":"append"}}"#,
        keys: &[Key { name: "log", initial: Some("[]") }],
        nodes: &[
            ("all", r#"{"line":1,"does":"gate","next":{"all":[{"to":"a"},{"to":"b"}]}}"#),
            ("a", r#"{"line":2,"does":{"action":0},"params":"a","next":[{"to":"met"}]}"#),
            ("b", r#"{"line":3,"does":{"action":0},"params":"b","next":[{"to":"b2"}]}"#),
            (
                "met",
                r#"{"line":4,"does":"gate","join":{"of":[1,6],"fan":0,"closes":true,"quorum":{"need":1,"rest":"finish"}},"next":[{"to":"done"}]}"#,
            ),
            ("done", r#"{"line":5,"does":"return"}"#),
            ("out", r#"{"line":6,"does":"return","cancels":true}"#),
            ("b2", r#"{"line":7,"does":{"action":0},"params":"b2","next":[{"to":"b3"}]}"#),
            ("b3", r#"{"line":8,"does":{"action":0},"params":"large","next":[{"to":"b4"}]}"#),
            (
                "b4",
                r#"{"line":9,"does":{"action":0},"params":"large","next":[{"to":"out","when":{"path":"result","op":"exists"}},{"to":"met"}]}"#,
            ),
        ],
        ..PROGRAM
    };
    let graph = Interpreted::new(&program, |_, params| Ok(if params == json!("large") { large() } else { params }));
    let (store, run) = (MemoryStore::new(), id("run"));
    let runtime = runtime(store.clone());
    let left = runtime.start_with(pausing(&["out"], &["met"]), graph.clone(), Map::new()).await.unwrap().await;
    assert_eq!(paused(left.unwrap_err()), ["out"]);
    assert!(kinds(&records(&store, &run).await).contains(&"snapshot".to_owned()));
    assert_proven(&store, &graph, &run, Status::Running).await;
    assert_eq!(released(&runtime, &graph, &run).await, ["out"]);
    runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap();
    assert_proven(&store, &graph, &run, Status::Completed).await;
}

/// A run inside another asks nobody whether it continues.
#[tokio::test]
async fn a_forged_escalation_in_a_nested_run_is_refused() {
    let inner = Program {
        id: "test/inner",
        settings: r#"{"signals":{"go":{}}}"#,
        nodes: &[
            ("i", r#"{"line":1,"does":{"action":0},"params":"i","next":[{"to":"w"}]}"#),
            ("w", r#"{"line":2,"does":"wait","wait":{"signals":["go"]},"next":[{"to":"done"}]}"#),
            ("done", r#"{"line":3,"does":"return"}"#),
        ],
        ..PROGRAM
    };
    let outer = Program {
        tools: &[GRAPH],
        nodes: &[
            ("n", r#"{"line":1,"does":{"action":0},"next":[{"to":"done"}]}"#),
            ("done", r#"{"line":2,"does":"return"}"#),
        ],
        ..PROGRAM
    };
    let inner = Interpreted::new(&inner, |_, _| Err(ActionError::permanent("it fails")));
    let graph = Interpreted::new(&outer, |_, params| Ok(params)).nesting(inner.clone());
    let store = MemoryStore::new();
    let runtime = suspending(&store, Once::new([("error", "i", suspend("look"))]), &People::default());
    let left = runtime.start_as(id("run"), graph, Map::new()).await.unwrap().await;
    assert_eq!(paused(left.unwrap_err()), ["i"]);
    let (run, key) = (id("run-1"), SecretKey::from_seed(&KEY).public());
    let all = records(&store, &run).await;
    audit(&inner, &run, &all, &key, None).unwrap();
    let forged = edited(&all, 1, |record| record["visits"][0]["opened"]["escalated"] = json!({"count": 1}));
    let error = audit(&inner, &run, &forged, &key, None).unwrap_err().to_string();
    assert!(error.contains("is escalated in a run inside another"), "{error}");
}

//! Tools that ask people before they are done.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use graph_runtime::__private::{CompiledGraph, Key, Program};
use graph_runtime::answer::Answered;
use graph_runtime::history::{StateEdit, replay};
use graph_runtime::{
    ActionError, Call, EditRun, EncryptionKey, Map, MemoryStore, NamedAnswer, RunError, RunOutcome, Runtime, SecretKey,
    Single, Status, StepOnce, Value, audit,
};
use serde_json::json;

use crate::answers::{Office, People};
use crate::forged::edited;
use crate::interpreted::{Interpreted, PROGRAM};
use crate::support::{KEY, id, kinds, runtime};
use crate::waits::{records, waits};

/// A payment whose tool may ask people of the role `refunds`, each time for a day.
const PAYMENT: Program<'static> = Program {
    keys: &[Key { name: "log", initial: Some("[]") }],
    settings: r#"{"channels":{"log":"append"}}"#,
    nodes: &[
        ("begin", r#"{"line":1,"does":"gate","assign":{"log":"begun"},"next":[{"to":"pay"}]}"#),
        (
            "pay",
            r#"{"line":2,"does":{"action":0},"params":{"cents":"${inputs.cents}"},"wait":{"ask":{"role":"refunds","count":1},"timeout_ms":86400000,"on_timeout":3},"assign":{"log":"${result}"},"next":[{"to":"done"}]}"#,
        ),
        ("done", r#"{"line":3,"does":"return","output":"${state.log}"}"#),
        ("late", r#"{"line":4,"does":"gate","assign":{"log":"late"},"next":[{"to":"done"}]}"#),
    ],
    ..PROGRAM
};

/// The calls of a tool: their idempotency keys and attempts, and how many answers they had.
type Calls = Arc<Mutex<Vec<(String, u32, usize)>>>;

/// A tool that asks so many questions.
fn asking(questions: usize, calls: &Calls) -> impl Fn(&Call, Value) -> Result<Value, ActionError> + use<> {
    let calls = Arc::clone(calls);
    move |call, params| {
        let answers = call.answers();
        calls.lock().unwrap().push((call.idempotency_key().to_string(), call.attempt(), answers.len()));
        if answers.len() < questions {
            let before: Vec<&Value> = answers.iter().map(|signed| &signed.answer["decision"]).collect();
            return Err(ActionError::interrupt(json!({"cents": params["cents"], "before": before})));
        }
        let by: Vec<&str> = answers.iter().flat_map(|signed| &signed.by).map(|by| by.owner.as_str()).collect();
        Ok(json!({"paid": params["cents"], "by": by}))
    }
}

/// A node by itself says what it would wait for, and has not succeeded then.
#[tokio::test]
async fn a_single_node_that_asks_has_not_succeeded() {
    let graph = Interpreted::new(&PAYMENT, |_, _| Err(ActionError::interrupt(json!({"cents": 5}))));
    let single = Single { node: "pay".to_owned(), ..Single::default() };
    let done = runtime(MemoryStore::new()).step_once(Arc::new(graph), json!({}), single).await.unwrap();
    assert_eq!((done.success, done.status), (false, Status::Waiting));
    assert_eq!(done.to_value()["open"][0]["payload"], json!({"cents": 5}), "{}", done.to_value());
}

/// The program of the payment with another text in its nodes.
fn with_changed<T>(from: &str, to: &str, make: impl FnOnce(&Program<'_>) -> T) -> T {
    assert!(PAYMENT.nodes.iter().any(|(_, body)| body.contains(from)), "{from}");
    let nodes: Vec<(&str, String)> = PAYMENT.nodes.iter().map(|(name, body)| (*name, body.replace(from, to))).collect();
    let nodes: Vec<(&str, &str)> = nodes.iter().map(|(name, body)| (*name, body.as_str())).collect();
    make(&Program { nodes: &nodes, ..PAYMENT })
}

fn payment(questions: usize, calls: &Calls) -> Interpreted {
    Interpreted::new(&PAYMENT, asking(questions, calls))
}

fn inputs() -> Map<String, Value> {
    Map::from_iter([("cents".to_owned(), json!(4200))])
}

fn decided(decision: &str) -> NamedAnswer {
    NamedAnswer::new("pay", json!({ "decision": decision }))
}

#[tokio::test]
async fn a_tool_asks_people_and_is_called_again_with_their_answers() {
    let (office, calls, run) = (Office::new(), Calls::default(), id("payment"));
    let graph = payment(2, &calls);
    let started = office.runtime.start_as(run.clone(), graph.clone(), inputs()).await.unwrap();
    assert_eq!(waits(started.await.unwrap_err())[0].0, "pay");
    let first = office.question(&graph, &run).await;
    assert_eq!((first.wait.as_str(), first.role.as_deref(), first.count), ("2#1", Some("refunds"), 1));
    assert_eq!(first.payload, json!({"cents": 4200, "before": []}));
    // Nobody calls it for nothing.
    let still = office.runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap_err();
    assert!(matches!(still, RunError::Waiting { .. }), "{still}");
    assert_eq!(calls.lock().unwrap().len(), 1);
    let refused = office.runtime.answer(&graph, &run, &first.sign(decided("approve"), &office.cy).unwrap()).await;
    assert!(refused.unwrap_err().to_string().contains("its file gives it no such role"));
    let envelope = first.sign(decided("approve"), &office.ann).unwrap();
    assert_eq!(office.runtime.answer(&graph, &run, &envelope).await.unwrap(), Answered::Accepted);
    let again = office.runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap_err();
    assert_eq!(waits(again)[0].0, "pay");
    // The second question is another one, which the first answer does not answer.
    let second = office.question(&graph, &run).await;
    assert_eq!((second.wait.as_str(), &second.payload), ("2#2", &json!({"cents": 4200, "before": ["approve"]})));
    assert_eq!(
        office.runtime.answer(&graph, &run, &envelope).await.unwrap(),
        Answered::Already { taken: true },
        "the first is over"
    );
    let other = office.runtime.answer(&graph, &run, &first.sign(decided("refuse"), &office.bo).unwrap()).await;
    assert_eq!(other.unwrap_err().to_string(), "`2#1` was answered before, and otherwise");
    office.runtime.answer(&graph, &run, &second.sign(decided("refuse"), &office.bo).unwrap()).await.unwrap();
    let output = office.finish(&graph, &run).await;
    assert_eq!(output, json!(["begun", {"paid": 4200, "by": ["Ann", "Bo"]}]));
    assert_eq!(
        kinds(&records(&office.store, &run).await),
        ["start", "step", "step", "resume", "take", "step", "resume", "take", "step", "step", "end"]
    );
    let calls = calls.lock().unwrap();
    let key = &calls[0].0;
    assert_eq!(*calls, [(key.clone(), 1, 0), (key.clone(), 1, 1), (key.clone(), 1, 2)]);
}

#[tokio::test]
async fn a_tool_that_nobody_answers_is_not_called_again() {
    for answered in [0, 1] {
        let (office, calls, run) = (Office::new(), Calls::default(), id("late"));
        let graph = payment(2, &calls);
        let started = office.runtime.start_as(run.clone(), graph.clone(), inputs()).await.unwrap();
        waits(started.await.unwrap_err());
        for _ in 0..answered {
            let question = office.question(&graph, &run).await;
            office
                .runtime
                .answer(&graph, &run, &question.sign(decided("approve"), &office.ann).unwrap())
                .await
                .unwrap();
            waits(office.runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap_err());
        }
        let question = office.question(&graph, &run).await;
        office.clock.advance(Duration::from_secs(86_400));
        let late = office.runtime.answer(&graph, &run, &question.sign(decided("approve"), &office.ann).unwrap()).await;
        assert!(late.unwrap_err().to_string().contains("came too late"));
        assert_eq!(office.finish(&graph, &run).await, json!(["begun", "late"]));
        assert_eq!(calls.lock().unwrap().len(), 1 + answered);
    }
}

/// Without `interrupts`, and in a hook, asking is a failure that says so.
#[tokio::test]
async fn a_tool_asks_nobody_where_the_node_does_not_say_who_answers() {
    let nodes = [
        ("pay", r#"{"line":1,"does":{"action":0},"params":{"cents":1},"next":[{"to":"done"}]}"#),
        ("done", r#"{"line":2,"does":"return","output":"${state.log}"}"#),
    ];
    let graph = Interpreted::new(&Program { nodes: &nodes, ..PAYMENT }, asking(1, &Calls::default()));
    let runtime = Runtime::builder().grant("*").unwrap().build().unwrap();
    let error = runtime.start(graph.clone(), Map::new()).await.unwrap().await.unwrap_err();
    assert_eq!(error.to_string(), "node `pay` failed: the tool asks people, and the node does not say who answers");
    let kept = Office::new().runtime.start(graph, Map::new()).await.unwrap();
    let error = kept.await.unwrap_err();
    assert_eq!(error.to_string(), "node `pay` failed: the tool asks people, and the node does not say who answers");
}

#[tokio::test]
async fn a_question_that_is_nested_too_deeply_fails_the_node() {
    let office = Office::new();
    let deep = (0..60).fold(json!(1), |inner, _| json!([inner]));
    let graph = Interpreted::new(&PAYMENT, move |_, _| Err(ActionError::interrupt(deep.clone())));
    let started = office.runtime.start_as(id("deep"), graph, inputs()).await.unwrap();
    assert_eq!(started.await.unwrap_err().to_string(), "node `pay` failed: `payload` has more than 50 levels");
}

/// A secret that a tool received is not shown to people, nor written to the journal or the store.
#[tokio::test]
async fn a_question_shows_no_secret() {
    let (store, people) = (MemoryStore::new(), People::default());
    let settings = r#"{"channels":{"log":"append"},"secrets":{"inputs":{"fields":{"cents":"all"}}}}"#;
    let graph = Interpreted::new(&Program { settings, ..PAYMENT }, |call, params| match call.answers() {
        [] => Err(ActionError::interrupt(
            json!({"card": params["cents"], "text": format!("pay with {}", params["cents"])}),
        )),
        _ => Ok(json!("paid")),
    });
    let ann = people.add(11, "Ann", &["refunds"]);
    let builder = Runtime::builder().store(store.clone()).sign_with(SecretKey::from_seed(&KEY)).grant("*").unwrap();
    let builder = builder.answer_keys(move || people.clone()).encrypt_with(EncryptionKey::from_bytes([7; 32]));
    let (runtime, run) = (builder.build().unwrap(), id("card"));
    let inputs = Map::from_iter([("cents".to_owned(), json!("4242-4242-4242"))]);
    let started = runtime.start_as(run.clone(), graph.clone(), inputs).await.unwrap();
    waits(started.await.unwrap_err());
    let question = runtime.questions(&graph, &run).await.unwrap().remove(0);
    assert!(
        !question.payload.to_string().contains("4242") && question.payload["card"].is_string(),
        "{}",
        question.payload
    );
    let journal: String = records(&store, &run).await.into_iter().map(|record| record.body).collect();
    assert!(!journal.contains("4242-"), "{journal}");
    runtime.answer(&graph, &run, &question.sign(decided("approve"), &ann).unwrap()).await.unwrap();
    let finished = runtime.resume(graph, &run).await.unwrap().await.unwrap();
    assert_eq!(finished.output, json!(["begun", "paid"]));
}

/// A journal cannot say that something else was asked before than was answered, or that a question was answered otherwise.
#[tokio::test]
async fn forged_questions_of_tools_are_refused() {
    let (office, calls, run) = (Office::new(), Calls::default(), id("payment"));
    let graph = payment(2, &calls);
    let started = office.runtime.start_as(run.clone(), graph.clone(), inputs()).await.unwrap();
    waits(started.await.unwrap_err());
    for _ in 0..2 {
        let question = office.question(&graph, &run).await;
        office.runtime.answer(&graph, &run, &question.sign(decided("approve"), &office.ann).unwrap()).await.unwrap();
        drop(office.runtime.resume(graph.clone(), &run).await.unwrap().await);
    }
    let (all, key) = (records(&office.store, &run).await, SecretKey::from_seed(&KEY).public());
    audit(&graph, &run, &all, &key, None).unwrap();
    let (first, taken, second, last) = (2, 4, 5, 8);
    assert_eq!(kinds(&all)[first..=last], ["step", "resume", "take", "step", "resume", "take", "step"]);
    type Forgery<'a> = (usize, &'a dyn Fn(&mut Value));
    let forgeries: [Forgery<'_>; 12] = [
        (first, &|record| record["visits"][0]["opened"]["before"] = json!(1)),
        (first, &|record| record["visits"][0]["opened"]["due"] = json!(1)),
        (first, &|record| drop(record["visits"][0]["opened"].as_object_mut().unwrap().remove("payload"))),
        (first, &|record| record["visits"][0]["opened"]["payload"] = json!("something else")),
        (first, &|record| record["visits"][0]["warnings"] = json!(["it may warn"])),
        (first, &|record| record["visits"][0]["result"] = json!(1)),
        (first, &|record| drop(record["visits"][0].as_object_mut().unwrap().remove("opened"))),
        (taken, &|record| drop(record["taken"][0].as_object_mut().unwrap().remove("signal"))),
        (second, &|record| drop(record["visits"][0]["opened"].as_object_mut().unwrap().remove("before"))),
        (second, &|record| record["visits"][0]["opened"]["before"] = json!(2)),
        (last, &|record| record["visits"][0]["timed_out"] = json!(true)),
        (last, &|record| record["visits"][0]["opened"] = json!({"at": 1, "payload": 1, "before": 2})),
    ];
    for (number, (at, change)) in forgeries.into_iter().enumerate() {
        let forged = edited(&all, at, change);
        // Also where the run is left with what was forged.
        for records in [&forged[..], &forged[..=at]] {
            let found = audit(&graph, &run, records, &key, None);
            let is_equal = records.len() <= at + 1 && matches!(number, 3);
            assert!(found.is_err() || is_equal, "forgery {number}: {}", forged[at].body);
        }
    }
}

/// A run continues under a graph that gives people more time, and a replay says so.
#[tokio::test]
async fn a_replay_names_other_questions_of_a_tool() {
    let (office, calls, run) = (Office::new(), Calls::default(), id("payment"));
    let graph = payment(1, &calls);
    let started = office.runtime.start_as(run.clone(), graph.clone(), inputs()).await.unwrap();
    waits(started.await.unwrap_err());
    let question = office.question(&graph, &run).await;
    office.runtime.answer(&graph, &run, &question.sign(decided("approve"), &office.ann).unwrap()).await.unwrap();
    office.finish(&graph, &run).await;
    let changed =
        |from: &str, to: &str| with_changed(from, to, |program| Interpreted::new(program, |_, params| Ok(params)));
    let (signed, key) = (records(&office.store, &run).await, SecretKey::from_seed(&KEY).public());
    let deviations = |changed: &Interpreted| {
        let replayed = replay(&graph, changed, &run, &signed, &key, None).unwrap();
        let found = replayed.deviations.iter().map(|one| one.departure.to_string()).collect::<Vec<_>>();
        (found, replayed.stopped.map(|stopped| stopped.reason))
    };
    assert_eq!(deviations(&graph), (Vec::new(), None));
    let (found, stopped) = deviations(&changed("86400000", "172800000"));
    assert_eq!((found.len(), stopped), (1, None), "{found:?}");
    assert!(found[0].starts_with("waits until"), "{found:?}");
    // Two people must sign now, and one has: nobody answers in time.
    let (found, stopped) = deviations(&changed(r#""count":1"#, r#""count":2"#));
    assert!(stopped.is_none() && !found.is_empty(), "{found:?}");
    // Nobody is asked any more: the tool returns what it returned.
    let asks = r#","wait":{"ask":{"role":"refunds","count":1},"timeout_ms":86400000,"on_timeout":3}"#;
    let (found, stopped) = deviations(&changed(asks, ""));
    assert_eq!(stopped, None, "{found:?}");
}

#[test]
fn only_a_call_of_one_tool_can_ask() {
    let refused =
        |from: &str, to: &str| with_changed(from, to, |program| CompiledGraph::load(program).unwrap_err().to_string());
    for (from, to, expected) in [
        (r#""does":{"action":0},"params""#, r#""does":"gate","params""#, "node `pay` calls no tool that can ask"),
        (
            r#""params""#,
            r#""cached":true,"params""#,
            "calls something else than one tool of the program, and cannot ask",
        ),
        (r#""role":"refunds""#, r#""payload":1,"role":"refunds""#, "the questions of node `pay` come from its tool"),
        (r#","on_timeout":3"#, "", "has a node for its time exactly if"),
    ] {
        let found = refused(from, to);
        assert!(found.contains(expected), "{found}");
    }
}

/// The calls of a run that was answered are made in the process that continues it, and a run that ends asks nothing.
#[tokio::test]
async fn a_cancelled_run_whose_tool_asked_asks_nothing() {
    let (office, calls, run) = (Office::new(), Calls::default(), id("payment"));
    let graph = payment(1, &calls);
    let started = office.runtime.start_as(run.clone(), graph.clone(), inputs()).await.unwrap();
    waits(started.await.unwrap_err());
    let question = office.question(&graph, &run).await;
    office.runtime.cancel(&run).await.unwrap();
    let answered = office.runtime.answer(&graph, &run, &question.sign(decided("approve"), &office.ann).unwrap()).await;
    assert!(answered.is_err());
    // A run that is resumed asks again, and the answer counts.
    let resumed = office.runtime.resume_with(
        graph_runtime::Options { ignore_cancel: true, ..Default::default() },
        graph.clone(),
        &run,
    );
    let left = resumed.await.unwrap().await.unwrap_err();
    assert_eq!(waits(left)[0].0, "pay");
    let question = office.question(&graph, &run).await;
    office.runtime.answer(&graph, &run, &question.sign(decided("approve"), &office.ann).unwrap()).await.unwrap();
    assert_eq!(office.finish(&graph, &run).await, json!(["begun", {"paid": 4200, "by": ["Ann"]}]));
}

/// A snapshot between two questions has the answers before, and the run continues behind it.
#[tokio::test]
async fn a_snapshot_has_the_answers_of_a_tool_that_asks_again() {
    let asks = r#"{"line":2,"does":{"action":0},"params":{"cents":1},"wait":{"ask":{"count":1}},"assign":{"log":"${result}"},"next":[{"to":"met"}]}"#;
    let grow = |next: &str| {
        format!(
            r#"{{"line":3,"does":"wait","wait":{{"timeout_ms":3600000}},"assign":{{"big":"${{inputs.big}}"}},"next":[{{"to":"{next}"}}]}}"#
        )
    };
    let mut nodes = vec![
        ("all".to_owned(), r#"{"line":1,"does":"gate","next":{"all":[{"to":"pay"},{"to":"grow0"}]}}"#.to_owned()),
        ("pay".to_owned(), asks.to_owned()),
    ];
    nodes.extend((0..9).map(|at| (format!("grow{at}"), grow(&format!("grow{}", at + 1)))));
    nodes.push(("grow9".to_owned(), grow("met")));
    let met = r#"{"line":5,"does":"gate","join":{"of":[1,11],"fan":0,"closes":true},"next":[{"to":"done"}]}"#;
    nodes.push(("met".to_owned(), met.to_owned()));
    nodes.push(("done".to_owned(), r#"{"line":6,"does":"return","output":"${state.log}"}"#.to_owned()));
    let nodes: Vec<(&str, &str)> = nodes.iter().map(|(name, body)| (name.as_str(), body.as_str())).collect();
    let keys = [Key { name: "log", initial: Some("[]") }, Key { name: "big", initial: None }];
    let (office, calls, run) = (Office::new(), Calls::default(), id("payment"));
    let graph = Interpreted::new(&Program { nodes: &nodes, keys: &keys, ..PAYMENT }, asking(2, &calls));
    let inputs = Map::from_iter([("big".to_owned(), json!("x".repeat(20_000)))]);
    let started = office.runtime.start_as(run.clone(), graph.clone(), inputs).await.unwrap();
    assert_eq!(waits(started.await.unwrap_err()).len(), 2);
    let answer = async |key: &SecretKey| {
        let question = office.question(&graph, &run).await;
        office.runtime.answer(&graph, &run, &question.sign(decided("approve"), key).unwrap()).await.unwrap();
    };
    answer(&office.ann).await;
    for _ in 0..10 {
        waits(office.runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap_err());
        office.clock.advance(Duration::from_secs(3600));
    }
    let bodies: Vec<String> = records(&office.store, &run).await.into_iter().map(|record| record.body).collect();
    let snapshot = bodies.iter().rfind(|body| body.contains(r#""kind":"snapshot""#)).unwrap();
    assert!(snapshot.contains(r#""waited":{"2":{"waits":1,"answers":["#), "{snapshot}");
    answer(&office.bo).await;
    let output = office.finish(&graph, &run).await;
    assert_eq!(output, json!([{"paid": 1, "by": ["Ann", "Bo"]}]));
}

/// People have approved a call with its parameters: an edit that would change these is refused.
#[tokio::test]
async fn an_edit_does_not_change_the_call_of_a_tool_that_has_asked() {
    let keys = [Key { name: "log", initial: Some("[]") }, Key { name: "cents", initial: Some("5") }];
    let (office, calls, run) = (Office::new(), Calls::default(), id("payment"));
    let graph = with_changed("inputs.cents", "state.cents", |program| {
        Interpreted::new(&Program { keys: &keys, ..*program }, asking(2, &calls))
    });
    let started = office.runtime.start_as(run.clone(), graph.clone(), Map::new()).await.unwrap();
    waits(started.await.unwrap_err());
    for _ in 0..2 {
        let set = Map::from_iter([("cents".to_owned(), json!(999_999))]);
        let edit = StateEdit { by: "Cy".to_owned(), why: "more".to_owned(), set, write: Map::new() };
        let refused = office.runtime.edit(&graph, &run, edit).await.map(drop).unwrap_err().to_string();
        assert!(refused.contains("cents") && refused.contains("pay"), "{refused}");
        let question = office.question(&graph, &run).await;
        office.runtime.answer(&graph, &run, &question.sign(decided("approve"), &office.ann).unwrap()).await.unwrap();
        let left = office.runtime.resume(graph.clone(), &run).await.unwrap().await;
        assert!(left.is_ok() || matches!(left, Err(RunError::Waiting { .. })), "{left:?}");
    }
    let found = office.runtime.outcome(&graph, &run).await.unwrap();
    assert!(matches!(&found, RunOutcome::Done(finished) if finished.output[1]["paid"] == 5), "{found:?}");
}

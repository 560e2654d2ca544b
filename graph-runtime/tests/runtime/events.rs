//! The events of runs: streams of those that happen, and the journal as the log of those that lasted.

use std::collections::BTreeMap;
use std::env;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use graph_runtime::__private::{Key, Program};
use graph_runtime::events::{
    EventCursor, EventFilter, EventKind, EventLog, EventLogError, Events, FollowedEvents, Lagged, Mode, RunEvent,
};
use graph_runtime::history::{EditRun, StateEdit};
use graph_runtime::observer::{Event, Observer};
use graph_runtime::record::Entry;
use graph_runtime::{
    ActionError, Durability, Map, MemoryStore, NamedSignal, Options, RunId, Runtime, SecretKey, Status, Store,
    StoredRunError, TokioClock, Value,
};
use serde_json::json;

use crate::inside::{GRAPH, child};
use crate::interpreted::{Interpreted, PROGRAM};
use crate::random::Random;
use crate::shared_late::{Case, happens};
use crate::support::{KEY, encryption_key, id};
use crate::waits::{records, store, virtual_store};

/// A graph of two calls, the second of which goes over a list.
const TWO: Program<'static> = Program {
    keys: &[Key { name: "got", initial: None }, Key { name: "all", initial: None }],
    nodes: &[
        (
            "one",
            r#"{"line":1,"does":{"action":0},"params":{"n":"${inputs.n}"},"retry":{"attempts":2,"delay_ms":0,"factor":1.0,"max_delay_ms":0,"jitter":0.0,"on":["transient"]},"assign":{"got":"${result.n}"},"next":[{"to":"each"}]}"#,
        ),
        (
            "each",
            r#"{"line":2,"does":{"foreach":0},"params":{"n":"${element}"},"each":{"over":"${inputs.list}","as":"element","collect":"all","width":1},"next":[{"to":"done"}]}"#,
        ),
        ("done", r#"{"line":3,"does":"return","output":"${state.all}"}"#),
    ],
    ..PROGRAM
};

/// A builder of runtimes with events.
fn watched(store: Option<MemoryStore>, capacity: usize) -> Runtime {
    let builder = Runtime::builder().grant("*").unwrap().events(capacity);
    let builder = match store {
        Some(store) => builder.store(store).sign_with(SecretKey::from_seed(&KEY)).encrypt_with(encryption_key()),
        None => builder,
    };
    builder.build().unwrap()
}

fn inputs(value: Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap()
}

/// Reads a stream to its end.
async fn all(mut events: Events) -> Vec<RunEvent> {
    let mut all = Vec::new();
    while let Some(event) = events.next().await {
        all.push(event.unwrap());
    }
    all
}

/// Returns the events that a stream has by now.
fn ready(events: &mut Events) -> Vec<Result<RunEvent, Lagged>> {
    std::iter::from_fn(|| events.next().now_or_never().flatten()).collect()
}

async fn log_of(store: &MemoryStore, run: &RunId, from: Option<EventCursor>) -> Result<Vec<RunEvent>, EventLogError> {
    let key = SecretKey::from_seed(&KEY).public();
    EventLog::new(Arc::new(store.clone()), key, run.clone(), from)?.read().await
}

/// Returns the names of events, as in JSON.
fn names(events: &[RunEvent]) -> Vec<String> {
    let name = |event: &RunEvent| serde_json::to_value(event).unwrap()["event"].as_str().unwrap().to_owned();
    events.iter().map(name).collect()
}

#[tokio::test]
async fn a_run_without_a_journal_has_all_of_its_events() {
    let graph = Interpreted::new(&TWO, |call, params| {
        if call.node() == "one" {
            call.emit_text("thinking");
            call.emit("progress", json!({"percent": 50}));
            if call.attempt() == 1 {
                return Err(ActionError::transient("it does not answer"));
            }
        }
        Ok(params)
    });
    let runtime = watched(None, 100);
    let mut run = runtime.start(graph, inputs(json!({"n": 7, "list": [1, 2]}))).await.unwrap();
    let events = run.events().unwrap().modes([Mode::Debug, Mode::Values]);
    run.await.unwrap();
    let events = all(events).await;
    let shown: Vec<String> = events
        .iter()
        .map(|event| match &event.kind {
            EventKind::Started { .. } => "started".into(),
            EventKind::VisitStarted { step, node, .. } => format!("{step} {node}"),
            EventKind::CallStarted { call, .. } => format!("{} {:?} {}", call.node, call.item, call.attempt),
            EventKind::CallEnded { call, error, .. } => format!("{} ended {error:?}", call.node),
            EventKind::Text { call, text, .. } => format!("{} says {text}", call.tool),
            EventKind::Custom { name, data, .. } => format!("{name} {data}"),
            EventKind::Visited { node, visit, .. } => format!("{node} {}", json!(visit.changes)),
            EventKind::Values { steps, state, .. } => format!("after {steps}: {}", state["got"]),
            EventKind::Ended { end, .. } => format!("{} {}", end.status.name(), end.output),
            other => format!("{other:?}"),
        })
        .collect();
    assert_eq!(
        shown,
        [
            "started",
            "1 one",
            "one None 1",
            "test/tool says thinking",
            r#"progress {"percent":50}"#,
            r#"one ended Some("it does not answer")"#,
            "one None 2",
            "test/tool says thinking",
            r#"progress {"percent":50}"#,
            "one ended None",
            r#"one {"got":7}"#,
            "after 1: 7",
            "2 each",
            "each Some(0) 1",
            "each ended None",
            "each Some(1) 1",
            "each ended None",
            r#"each {"all":[{"n":1},{"n":2}]}"#,
            "after 2: 7",
            "3 done",
            "done {}",
            "after 3: 7",
            r#"completed [{"n":1},{"n":2}]"#,
        ]
    );
    assert!(events.iter().all(|event| event.cursor.is_none() && event.root == event.run && event.parent.is_none()));
}

/// The records decide about the events with a cursor, and the engine about the others: both say the same of a visit.
#[tokio::test]
async fn a_journal_has_the_visits_that_a_run_without_one_shows() {
    let graph = Interpreted::new(&TWO, |_, params| Ok(params));
    let mut shown = Vec::new();
    for store in [None, Some(MemoryStore::new())] {
        let runtime = watched(store, 100);
        let mut run = runtime.start(graph.clone(), inputs(json!({"n": 7, "list": [1, 2]}))).await.unwrap();
        let events = run.events().unwrap();
        run.await.unwrap();
        let kept = |event: RunEvent| match event.kind {
            EventKind::Visited { node, mut visit, .. } => {
                visit.ms = 0;
                Some((node, json!(visit)))
            }
            EventKind::Ended { end, .. } => Some(("end".to_owned(), json!(end))),
            _ => None,
        };
        shown.push(all(events).await.into_iter().filter_map(kept).collect::<Vec<_>>());
    }
    assert_eq!(shown[0].len(), 4);
    assert_eq!(shown[0], shown[1]);
}

#[tokio::test]
async fn a_filter_has_only_its_parts() {
    let graph = Interpreted::new(&TWO, |call, params| {
        call.emit_text("word");
        call.emit("mark", 1);
        Ok(params)
    });
    let modes: [(&[Mode], &[&str]); 6] = [
        (&[Mode::Updates], &["started", "visited", "visited", "visited", "ended"]),
        (&[Mode::Messages], &["started", "text", "text", "ended"]),
        (&[Mode::Custom], &["started", "custom", "custom", "ended"]),
        (&[Mode::Values], &["started", "values", "values", "values", "ended"]),
        (&[Mode::Interrupts], &["started", "ended"]),
        (&[Mode::Custom, Mode::Messages], &["started", "text", "custom", "text", "custom", "ended"]),
    ];
    for (modes, expected) in modes {
        let runtime = watched(Some(MemoryStore::new()), 100);
        let mut run = runtime.start(graph.clone(), inputs(json!({"n": 7, "list": [1]}))).await.unwrap();
        let events = run.events().unwrap().modes(modes.to_vec());
        run.await.unwrap();
        assert_eq!(names(&all(events).await), expected, "{modes:?}");
    }
}

#[tokio::test]
async fn a_reader_that_lags_misses_no_event_of_the_journal() {
    lag(false).await;
    lag(true).await;
}

async fn lag(is_read_by_another: bool) {
    let nodes = [(
        "again",
        r#"{"line":1,"does":{"action":0},"params":{"n":1},"assign":{"got":"${result.n}"},"next":[{"to":"again"}]}"#,
    )];
    let program = Program {
        keys: &[Key { name: "got", initial: None }],
        settings: r#"{"max_steps":500,"on_max_steps":"return_last"}"#,
        nodes: &nodes,
        ..PROGRAM
    };
    let graph = Interpreted::new(&program, |_, params| Ok(params));
    let store = MemoryStore::new();
    let runtime = watched(Some(store.clone()), 16);
    let mut run = runtime.start(graph, Map::new()).await.unwrap();
    let run_id = run.id().clone();
    let mut lagging = run.events().unwrap();
    if is_read_by_another {
        let mut other = runtime.events(EventFilter::default()).unwrap();
        // It reads what there is whenever the run begins a call.
        tokio::spawn(async move { while other.next().await.is_some() {} });
    }
    run.await.unwrap();
    // For each step: it starts, a call starts and ends, and a record. Besides, the first record, and the end of the run.
    let messages = 1 + 500 * 4 + 2;
    let (mut before, mut lost, mut after) = (Vec::new(), Vec::new(), Vec::new());
    while let Some(event) = lagging.next().await {
        match event {
            Err(Lagged(dropped)) => lost.push(dropped),
            Ok(event) if lost.is_empty() => before.push(event),
            Ok(event) => after.push(event),
        }
    }
    assert_eq!(lost, [messages - 16]);
    let log = log_of(&store, &run_id, None).await.unwrap();
    assert_eq!(log.len(), 502);
    let durable = |events: Vec<RunEvent>| events.into_iter().filter(|event| event.cursor.is_some()).collect::<Vec<_>>();
    let (before, after) = (durable(before), durable(after));
    if is_read_by_another {
        // The oldest messages were dropped.
        assert!(before.is_empty());
        assert_eq!(log[log.len() - after.len()..], after);
        let from = after[0].cursor.clone();
        assert_eq!(log_of(&store, &run_id, from).await.unwrap(), after[1..]);
    } else {
        // Nobody read, so the newest were not made.
        assert!(after.is_empty());
        assert_eq!(log[..before.len()], before);
        let from = before.last().unwrap().cursor.clone();
        assert_eq!(log_of(&store, &run_id, from).await.unwrap(), log[before.len()..]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_has_an_end() {
    let nodes = [(
        "slow",
        r#"{"line":1,"does":{"action":0},"params":{},"timeout_ms":1000,"retry":{"attempts":1,"delay_ms":0,"factor":1.0,"max_delay_ms":0,"jitter":0.0,"on":["transient"]},"next":[]}"#,
    )];
    let graph = Interpreted::waiting(&Program { nodes: &nodes, ..PROGRAM }, |_, params| {
        Box::pin(async move {
            tokio::time::sleep(Duration::from_secs(60)).await;
            Ok(params)
        })
    });
    let clock = Arc::new(TokioClock::at(std::time::SystemTime::UNIX_EPOCH));
    let runtime = Runtime::builder().grant("*").unwrap().clock(clock).events(50).build().unwrap();
    let mut run = runtime.start(graph.clone(), Map::new()).await.unwrap();
    let events = run.events().unwrap();
    run.await.unwrap_err();
    let ended = all(events).await.into_iter().find_map(|event| match event.kind {
        EventKind::CallEnded { ms, error, .. } => Some((ms, error.unwrap())),
        _ => None,
    });
    let (ms, error) = ended.unwrap();
    assert!(ms == 1000 && error.contains("timed out"), "{ms} {error}");
    // A run that is aborted, as by a crash, ends no call but that of the observers.
    let mut run = runtime.start(graph, Map::new()).await.unwrap();
    let events = run.events().unwrap();
    tokio::time::sleep(Duration::from_millis(10)).await;
    run.abort();
    run.await.unwrap_err();
    let seen = all(events).await;
    assert_eq!(names(&seen), ["started", "visit_started", "call_started", "call_ended"], "and the stream ends");
}

/// Without a store, a run may have the id of one that was aborted.
#[tokio::test]
async fn a_run_has_the_events_of_its_own_graph() {
    let silent = Interpreted::waiting(&TWO, |_, _| Box::pin(std::future::pending()));
    let runtime = watched(None, 100);
    let run = runtime.start_as(id("run"), silent, inputs(json!({"n": 7, "list": []}))).await.unwrap();
    run.abort();
    run.await.unwrap_err();
    let other = Interpreted::new(&Program { id: "test/other", ..TWO }, |_, params| Ok(params));
    let mut run = runtime.start_as(id("run"), other, inputs(json!({"n": 7, "list": []}))).await.unwrap();
    let events = all(run.events().unwrap()).await;
    assert!(events.iter().all(|event| event.graph.as_ref().unwrap().as_str() == "test/other"), "{events:?}");
    assert_eq!(events.last().map(|event| matches!(event.kind, EventKind::Ended { .. })), Some(true));
}

/// A panic in each event, also while a call is dropped.
#[tokio::test]
async fn an_observer_that_panics_changes_nothing() {
    struct Broken(Mutex<u32>);
    impl Observer for Broken {
        fn observe(&self, _: &Event<'_>) {
            let _locked = self.0.lock().unwrap();
            panic!("a bug of the observer");
        }
    }
    let graph = Interpreted::new(&TWO, |call, params| {
        call.emit_text("word");
        Ok(params)
    });
    let builder = Runtime::builder().store(MemoryStore::new()).sign_with(SecretKey::from_seed(&KEY));
    let builder = builder.observer(Broken(Mutex::default())).events(100).grant("*").unwrap();
    let runtime = builder.build().unwrap();
    let mut run = runtime.start(graph, inputs(json!({"n": 7, "list": [1]}))).await.unwrap();
    let events = run.events().unwrap();
    assert_eq!(run.await.unwrap().output, json!([{"n": 1}]));
    let names = names(&all(events).await);
    assert_eq!((names.len(), names.last().map(String::as_str)), (14, Some("ended")), "{names:?}");
}

/// A reader that comes late to the messages has the events in their order.
#[tokio::test]
async fn late_readers_have_events_in_order() {
    let graph = Interpreted::new(&TWO, |_, params| Ok(params));
    let runtime = watched(Some(MemoryStore::new()), 100);
    let run = runtime.start_as(id("run"), graph, inputs(json!({"n": 7, "list": [1]}))).await.unwrap();
    let mut following = runtime.follow(&id("run"), None).unwrap().unwrap();
    run.await.unwrap();
    let mut seen = Vec::new();
    while let Some(event) = following.next().await {
        seen.push(event.unwrap());
    }
    assert_eq!(names(&seen), ["started", "visited", "visited", "visited", "ended"]);
}

#[tokio::test]
async fn edits_are_seen_with_the_resume_behind_them() {
    let nodes = [("one", r#"{"line":1,"does":{"action":0},"params":{"n":"${state.got}"},"next":[]}"#)];
    let program = Program { keys: &[Key { name: "got", initial: Some("1") }], nodes: &nodes, ..PROGRAM };
    let graph = Interpreted::new(&program, |_, params| match params["n"].as_i64() {
        Some(2) => Ok(params),
        _ => Err(ActionError::permanent("it is 1")),
    });
    let runtime = watched(Some(MemoryStore::new()), 100);
    runtime.start_as(id("run"), graph.clone(), Map::new()).await.unwrap().await.unwrap_err();
    let set = Map::from_iter([("got".to_owned(), json!(2))]);
    let edit = StateEdit { by: "Ann".to_owned(), why: "it must be 2".to_owned(), set, write: Map::new() };
    runtime.edit(&graph, &id("run"), edit).await.unwrap();
    let mut run = runtime.resume(graph, &id("run")).await.unwrap();
    let events = run.events().unwrap().modes([Mode::Updates]);
    run.await.unwrap();
    assert_eq!(names(&all(events).await), ["edited", "resumed", "visited", "ended"]);
}

#[tokio::test]
async fn events_show_no_secret() {
    const CARD: &str = "4111-1111";
    let program = Program {
        keys: &[Key { name: "card", initial: None }],
        settings: r#"{"secrets":{"inputs":{"fields":{"card":"all"}},"keys":{"card":"all"},"tools":{"0":{"fields":{"card":"all"}}},"output":"all"}}"#,
        nodes: &[
            (
                "one",
                r#"{"line":1,"does":{"action":0},"params":{"card":"${inputs.card}"},"assign":{"card":"${result.card}"},"next":[{"to":"done"}]}"#,
            ),
            ("done", r#"{"line":3,"does":"return","output":"${state.card}"}"#),
        ],
        ..PROGRAM
    };
    let graph = Interpreted::new(&program, |call, params| {
        call.emit_text(format!("the card is {CARD}"));
        call.emit(format!("card {CARD}"), json!({"deep": [{"card": CARD}]}));
        Ok(params)
    });
    for store in [None, Some(MemoryStore::new())] {
        let runtime = watched(store.clone(), 100);
        let mut run = runtime.start(graph.clone(), inputs(json!({"card": CARD}))).await.unwrap();
        let id = run.id().clone();
        let events = run.events().unwrap().modes([Mode::Debug, Mode::Values]);
        assert_eq!(run.await.unwrap().secret_output.unwrap().expose(), &json!(CARD));
        let mut events = all(events).await;
        if let Some(store) = &store {
            events.extend(log_of(store, &id, None).await.unwrap());
        }
        let shown = serde_json::to_string(&events).unwrap() + &format!("{events:?}");
        assert!(shown.contains("the card is [secret]") && shown.contains("card [secret]"), "{shown}");
        assert!(!shown.contains(CARD) && !shown.contains("$sealed"), "{shown}");
    }
}

#[tokio::test]
async fn a_nested_run_names_the_runs_around_it() {
    let nodes = [
        ("inside", r#"{"line":1,"does":{"action":1},"params":{"n":1},"next":[{"to":"done"}]}"#),
        ("done", r#"{"line":3,"does":"return","output":"${inputs}"}"#),
    ];
    let program =
        Program { tools: &[PROGRAM.tools[0], GRAPH], nodes: &nodes, permissions: &["rye.execute.*"], ..PROGRAM };
    for store in [None, Some(MemoryStore::new())] {
        let middle =
            Interpreted::new(&Program { id: "test/middle", ..program }, |_, params| Ok(params)).nesting(child());
        let outer = Interpreted::new(&Program { id: "test/outer", ..program }, |_, params| Ok(params)).nesting(middle);
        let runtime = watched(store, 200);
        let mut run = runtime.start_as(id("outer"), outer, Map::new()).await.unwrap();
        let events = run.events().unwrap();
        run.await.unwrap();
        let mut runs = BTreeMap::new();
        for event in all(events).await {
            assert_eq!(event.root.as_str(), "outer");
            let parent = event.parent.map(|parent| format!("{}/{}", parent.run, parent.step));
            let graph = event.graph.unwrap().to_string();
            runs.entry(event.run.to_string()).or_insert((graph, parent, 0)).2 += 1;
        }
        let found: Vec<_> = runs.values().map(|(graph, parent, _)| (graph.as_str(), parent.as_deref())).collect();
        let inner = runs.keys().nth(1).unwrap();
        assert_eq!(
            found,
            [
                ("test/outer", None),
                ("test/middle", Some("outer/1")),
                ("test/child", Some(format!("{inner}/1").as_str())),
            ]
        );
    }
}

#[tokio::test]
async fn streams_end_when_there_is_nothing_more() {
    let nodes = [
        ("wait", r#"{"line":1,"does":"wait","wait":{"signals":["paid"]},"next":[{"to":"done"}]}"#),
        ("done", r#"{"line":3,"does":"return","output":1}"#),
    ];
    let program = Program { settings: r#"{"signals":{"paid":{}}}"#, nodes: &nodes, ..PROGRAM };
    let graph = Interpreted::new(&program, |_, params| Ok(params));
    let store = MemoryStore::new();
    let runtime = watched(Some(store.clone()), 100);
    let mut everything = runtime.events(EventFilter::default()).unwrap();
    let mut run = runtime.start_as(id("run"), graph.clone(), Map::new()).await.unwrap();
    let (first, second) = (run.events().unwrap(), run.events().unwrap());
    run.await.unwrap_err();
    assert_eq!(names(&all(first).await), ["started", "visit_started", "wait_opened"]);
    // The second reader begins where it was made.
    assert!(all(second).await.len() <= 3);
    // Its process has left it.
    let mut following = runtime.follow(&id("run"), None).unwrap().unwrap();
    let mut begun = Vec::new();
    for _ in 0..2 {
        begun.push(following.next().await.unwrap().unwrap());
    }
    assert_eq!(names(&begun), ["started", "wait_opened"]);
    assert!(tokio::time::timeout(Duration::from_millis(300), following.next()).await.is_err(), "it waits");
    runtime.signal(&graph, &id("run"), NamedSignal::new("paid", json!(1)), "1").await.unwrap();
    let mut run = runtime.resume(graph, &id("run")).await.unwrap();
    let resumed = run.events().unwrap();
    run.await.unwrap();
    let resumed = all(resumed).await;
    let durable: Vec<RunEvent> = resumed.into_iter().filter(|event| event.cursor.is_some()).collect();
    assert_eq!(names(&durable), ["resumed", "wait_over", "visited", "visited", "ended"]);
    let mut rest = Vec::new();
    while let Some(event) = following.next().await {
        rest.push(event.unwrap());
    }
    rest.retain(|event| event.cursor.is_some());
    assert_eq!(rest, durable);
    // Nothing happens to a run that has ended, and whose result is read.
    let mut run = runtime.resume(Interpreted::new(&program, |_, params| Ok(params)), &id("run")).await.unwrap();
    assert_eq!(all(run.events().unwrap()).await, []);
    run.await.unwrap();
    drop(runtime);
    let seen: Vec<RunEvent> = ready(&mut everything).into_iter().map(Result::unwrap).collect();
    let seen: Vec<RunEvent> = seen.into_iter().filter(|event| event.cursor.is_some()).collect();
    assert_eq!(seen, log_of(&store, &id("run"), None).await.unwrap());
    assert_eq!(everything.next().await, None, "the runtime is gone");
    let without = Runtime::builder().build().unwrap();
    assert!(without.events(EventFilter::default()).is_none());
    assert!(without.follow(&id("run"), None).unwrap().is_none());
}

#[tokio::test]
async fn a_waiting_run_that_is_cancelled_has_an_end() {
    let nodes = [("wait", r#"{"line":1,"does":"wait","wait":{"signals":["paid"]},"next":[]}"#)];
    let program = Program { settings: r#"{"signals":{"paid":{}}}"#, nodes: &nodes, ..PROGRAM };
    let graph = Interpreted::new(&program, |_, params| Ok(params));
    let runtime = watched(Some(MemoryStore::new()), 100);
    runtime.start_as(id("run"), graph, Map::new()).await.unwrap().await.unwrap_err();
    let mut events = runtime.events(EventFilter { run: Some(id("run")), ..EventFilter::default() }).unwrap();
    runtime.cancel(&id("run")).await.unwrap();
    let event = events.next().await.unwrap().unwrap();
    let EventKind::Ended { end, .. } = &event.kind else { panic!("{event:?}") };
    assert_eq!(end.status, Status::Cancelled);
}

#[tokio::test]
async fn a_cursor_that_is_not_of_the_journal_is_refused() {
    let graph = Interpreted::new(&TWO, |_, params| Ok(params));
    let store = MemoryStore::new();
    let runtime = watched(Some(store.clone()), 100);
    runtime.start_as(id("run"), graph, inputs(json!({"n": 7, "list": []}))).await.unwrap().await.unwrap();
    for (cursor, said) in [
        ("other@0.0", "the cursor `other@0.0` is of another run than `run`"),
        (
            "run@9.0",
            "the cursor `run@9.0` is behind the end of the journal, which has 5 records: begin without a cursor",
        ),
        (
            "run@1.1",
            "the cursor `run@1.1` is behind the end of the journal, which has 5 records: begin without a cursor",
        ),
    ] {
        let error = log_of(&store, &id("run"), Some(cursor.parse().unwrap())).await.unwrap_err();
        assert_eq!(error.to_string(), said);
    }
    let key = SecretKey::from_seed(&KEY).public();
    let beyond = Some("run@9.0".parse().unwrap());
    let mut log = EventLog::new(Arc::new(store.clone()), key, id("run"), beyond).unwrap();
    for _ in 0..2 {
        assert!(matches!(log.read().await, Err(EventLogError::NoSuchEvent { records: 5, .. })));
    }
    for text in [
        "",
        "run",
        "run@",
        "run@1",
        "run@1.",
        "run@01.0",
        "run@1.+0",
        "run@1.0 ",
        "@1.0",
        "r/n@1.0",
        "run@1.4294967296",
    ] {
        assert!(text.parse::<EventCursor>().is_err(), "{text}");
    }
    let error = log_of(&store, &id("other"), None).await.unwrap_err();
    assert!(matches!(error, EventLogError::Stored(StoredRunError::Store(_))), "{error}");
    let other = EventLog::new(Arc::new(store), SecretKey::from_seed(&[9; 32]).public(), id("run"), None);
    assert!(matches!(other.unwrap().read().await, Err(EventLogError::Stored(StoredRunError::Journal { .. }))));
}

/// Nested graphs that wait, whose processes die. Readers of every kind have the events of the journals, each once, and in order;
/// `EVENTS=1000 cargo test --release -p state-graph-runtime --test runtime readers_agree` takes minutes.
#[tokio::test]
async fn readers_agree_with_the_journals_whatever_dies() {
    let number = |name: &str, otherwise| env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise);
    let (count, seed) = (number("EVENTS", 12), number("SEED", 1));
    let (mut runs, mut compared) = (0, 0);
    for seed in seed..seed + count {
        let mut random = Random::new(seed);
        let (case, crash) = (Case::random(&mut random), (1 + random.below(12), random.below(2) == 0));
        let durability = [Durability::Sync, Durability::Async][usize::try_from(random.below(2)).unwrap()];
        let (graph, (memory, clock)) = (case.graph(), store());
        let key = SecretKey::from_seed(&KEY).public();
        let watching = |runtime: &Runtime| runtime.events(EventFilter::default()).unwrap();
        let followed = |from| FollowedEvents::of_store(Arc::new(memory.clone()), key.clone(), id("run"), from).unwrap();
        let mut readers = Vec::new();
        happens(&case, &graph, &memory, &clock, Some(crash), durability, |builder| {
            let runtime = builder.events(100_000).build().unwrap();
            readers.push((watching(&runtime), runtime.follow(&id("run"), None).unwrap().unwrap()));
            runtime
        })
        .await;
        let mut live = BTreeMap::<RunId, Vec<RunEvent>>::new();
        for (events, following) in &mut readers {
            for event in ready(events) {
                let event = event.unwrap();
                if event.cursor.is_some() {
                    live.entry(event.run.clone()).or_default().push(event);
                }
            }
            let log = log_of(&memory, &id("run"), None).await.unwrap();
            let mut seen = Vec::new();
            while let Some(event) = following.next().await {
                seen.push(event.unwrap());
            }
            seen.retain(|event| event.cursor.is_some());
            assert_eq!(seen, log, "SEED={seed}: a run is followed whole");
        }
        for run in memory.list().await.unwrap() {
            runs += 1;
            let log = log_of(&memory, &run.run, None).await.unwrap();
            let mut shown = live.remove(&run.run).unwrap_or_default();
            shown.sort_by(|one, other| one.cursor.cmp(&other.cursor));
            // The records of the write that failed were shown to nobody; they may have been written.
            let mut left = shown.iter().peekable();
            let missed = log.iter().filter(|event| left.next_if_eq(event).is_none()).count();
            let more: Vec<_> = left.map(|event| (&event.cursor, &event.kind)).collect();
            assert!(more.is_empty() && missed <= 40, "SEED={seed}: each event comes once: {missed} {more:?}");
            compared += log.len();
            let at = usize::try_from(random.below(log.len() as u64)).unwrap();
            let rest = log_of(&memory, &run.run, log[at].cursor.clone()).await.unwrap();
            assert_eq!(rest, log[at + 1..], "SEED={seed}");
            // An independent count of what the records hold.
            let key = key.clone();
            let read =
                graph_runtime::record::Follower::new(run.run.clone(), key).read(&records(&memory, &run.run).await);
            let count = |entry: &Entry| match entry {
                Entry::Step(step) => step.visits.len(),
                Entry::Take(take) => take.taken.len(),
                Entry::Calls(_) | Entry::Snapshot(_) => 0,
                _ => 1,
            };
            assert_eq!(log.len(), read.unwrap().iter().map(|record| count(&record.entry)).sum::<usize>());
            for event in &log {
                let text = serde_json::to_string(event).unwrap();
                assert_eq!(serde_json::from_str::<RunEvent>(&text).unwrap(), *event, "{text}");
            }
        }
        assert!(live.is_empty(), "SEED={seed}: {:?}", live.keys());
        let from = log_of(&memory, &id("run"), None).await.unwrap();
        let last = from.last().unwrap().cursor.clone();
        assert!(followed(last).next().await.is_none(), "SEED={seed}: nothing follows the end");
    }
    println!("{runs} runs, {compared} events");
    assert!(runs as u64 > count && compared > 0);
}

/// A stalled reader holds up no run, and takes no memory beyond its capacity.
#[tokio::test]
async fn a_stalled_reader_is_bounded() {
    let (store, clock) = virtual_store();
    let builder = Runtime::builder().store(store.clone()).sign_with(SecretKey::from_seed(&KEY)).clock(clock);
    let runtime = builder.grant("*").unwrap().events(8).build().unwrap();
    let mut stalled = runtime.events(EventFilter::default()).unwrap();
    let graph = Interpreted::new(&TWO, |_, params| Ok(params));
    for _ in 0..20 {
        runtime.start(graph.clone(), inputs(json!({"n": 7, "list": [1]}))).await.unwrap().await.unwrap();
    }
    let seen = ready(&mut stalled);
    let dropped: u64 = seen.iter().filter_map(|event| event.as_ref().err()).map(|Lagged(dropped)| dropped).sum();
    let read = seen.iter().filter(|event| event.is_ok()).count();
    assert!(dropped > 100 && read <= 8, "{dropped} dropped, {read} read");
    assert_eq!(stalled.by_ref().next().now_or_never(), None);
    assert_eq!(StreamExt::next(&mut stalled).now_or_never(), None);
}

#[tokio::test]
async fn a_run_that_its_process_left_is_not_followed_for_ever() {
    let graph = Interpreted::waiting(&TWO, |_, params| {
        Box::pin(async move {
            std::future::pending::<()>().await;
            Ok(params)
        })
    });
    let store = MemoryStore::new();
    let runtime = watched(Some(store.clone()), 100);
    let options = Options { run: Some(id("run")), ..Options::default() };
    let run = runtime.start_with(options, graph, inputs(json!({"n": 7, "list": []}))).await.unwrap();
    let key = SecretKey::from_seed(&KEY).public();
    let mut following = FollowedEvents::of_store(Arc::new(store.clone()), key, id("run"), None).unwrap();
    let started = following.next().await.unwrap().unwrap();
    assert_eq!(names(&[started]), ["started"]);
    run.abort();
    run.await.unwrap_err();
    let mut last = None;
    while let Some(event) = following.next().await {
        last = Some(event);
    }
    let error = last.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "no process is running the run `run` any more: it waits to be resumed");
    // A service waits until one of its workers resumes the run.
    let mut waiting = runtime.follow(&id("run"), None).unwrap().unwrap();
    waiting.next().await.unwrap().unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(300), waiting.next()).await.is_err(), "it waits");
    let graph = Interpreted::new(&TWO, |_, params| Ok(params));
    runtime.resume(graph, &id("run")).await.unwrap().await.unwrap();
    let mut rest = Vec::new();
    while let Some(event) = waiting.next().await {
        rest.push(event.unwrap());
    }
    rest.retain(|event| event.cursor.is_some());
    assert_eq!(names(&rest), ["resumed", "visited", "visited", "visited", "ended"]);
}

/// A stream of a run has its last event and ends, on whichever thread it is read; one that lags ends too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_ends_behind_the_last_event() {
    let runs = env::var("STREAMS").map_or(300, |runs| runs.parse().unwrap());
    let graph = Interpreted::new(&TWO, |_, params| Ok(params));
    for capacity in [1024, 3, 1] {
        let runtime = watched(None, capacity);
        for number in 0..runs {
            let started = runtime.start(graph.clone(), inputs(json!({"n": 7, "list": [1]}))).await;
            let mut run = started.unwrap();
            let mut events = run.events().unwrap();
            let reading = tokio::spawn(async move {
                let (mut last, mut lagged) = (None, false);
                while let Some(event) = events.next().await {
                    lagged |= event.is_err();
                    last = event.ok();
                }
                (last, lagged)
            });
            run.await.unwrap();
            let (last, lagged) = tokio::time::timeout(Duration::from_secs(20), reading).await.unwrap().unwrap();
            assert!(!lagged || capacity < 1024, "run {number}");
            let is_end = last.is_some_and(|event| matches!(event.kind, EventKind::Ended { .. }));
            assert!(lagged || is_end, "run {number} with {capacity} messages");
        }
    }
}

//! Signals to runs: each is received once, and ends the wait that receives it.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fmt::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use graph_runtime::__private::{Key, Program};
use graph_runtime::answer::Answered;
use graph_runtime::history::Fork;
use graph_runtime::record::{End, Entry, Follower, Record, SignedRecord, TakenSignal, Visit};
use graph_runtime::store::{Received, Signal, StoreError};
use graph_runtime::{
    ActionError, AnswerError, Call, Clock, Digest, Durability, ForkRun, ManualClock, Map, MemoryStore, NamedAnswer,
    NamedSignal, Options, ResumeError, RunError, RunId, RunOutcome, Runtime, SecretKey, SignalError, SignalledRun,
    Status, Store, StoredRunError, Value, WorkerOptions, audit, audit_tree, history,
};
use serde_json::json;

use crate::answers::{People, answering};
use crate::forged::edited;
use crate::interpreted::{Interpreted, PROGRAM};
use crate::random::Random;
use crate::support::{KEY, encryption_key, failing, id, kinds, runtime};
use crate::waits::{DAY, assert_proven, clocked, records, store, until, virtual_store, waits};

const SETTINGS: &str = r#"{"signals":{"paid":{},"withdrawn":{}},"channels":{"log":"append"}}"#;

/// An order: it packs, waits for the money, and ships or gives up.
const ORDER: Program<'static> = Program {
    keys: &[Key { name: "log", initial: Some("[]") }],
    settings: SETTINGS,
    nodes: &[
        (
            "pack",
            r#"{"line":1,"does":{"action":0},"params":"pack","assign":{"log":"${result}"},"next":[{"to":"money"}]}"#,
        ),
        (
            "money",
            r#"{"line":2,"does":"wait","wait":{"timeout_ms":86400000,"signals":["paid","withdrawn"],"on_timeout":4},"assign":{"log":"${result}"},"next":{"by":"result.signal","to":{"paid":"ship","withdrawn":"done"}}}"#,
        ),
        (
            "ship",
            r#"{"line":3,"does":{"action":0},"params":"ship","assign":{"log":"${result}"},"next":[{"to":"done"}]}"#,
        ),
        ("done", r#"{"line":4,"does":"return","output":"${state.log}"}"#),
        ("late", r#"{"line":5,"does":"gate","assign":{"log":"late"},"next":[{"to":"done"}]}"#),
    ],
    ..PROGRAM
};

fn order() -> Interpreted {
    Interpreted::new(&ORDER, |_, params| Ok(params))
}

fn paid(cents: u64) -> NamedSignal {
    NamedSignal::new("paid", json!({ "cents": cents }))
}

/// Starts a run, which waits.
async fn waiting(runtime: &Runtime, graph: &Interpreted, run: &RunId) {
    let started = runtime.start_as(run.clone(), graph.clone(), Map::new()).await.unwrap();
    waits(started.await.unwrap_err());
}

#[tokio::test]
async fn a_signal_ends_a_wait() {
    let (store, clock) = store();
    let (graph, run, runtime) = (order(), id("order-1"), runtime(store.clone()));
    let started = runtime.start_as(run.clone(), graph.clone(), Map::new()).await.unwrap();
    let error = started.await.unwrap_err();
    let expected = "the run waits at `money` for the signal `paid` or `withdrawn`, until 1972-09-28T00:00:00.000Z";
    assert_eq!(error.to_string(), expected);
    assert_eq!(error.to_value()["open"][0]["signals"], json!(["paid", "withdrawn"]));
    match runtime.outcome(&graph, &run).await.unwrap() {
        RunOutcome::Waiting { waits, .. } => assert_eq!(waits[0].signals, ["paid", "withdrawn"]),
        other => panic!("{other:?}"),
    }
    // Nothing has come, so nothing continues.
    let again = runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap_err();
    assert_eq!(waits(again).len(), 1);
    assert_eq!(records(&store, &run).await.len(), 3);
    clock.advance(Duration::from_secs(60));
    let received = runtime.signal(&graph, &run, paid(5), "payment-1").await.unwrap();
    let Received::Accepted(place) = received else { panic!("{received:?}") };
    assert_eq!(place.order, 1);
    let again = runtime.signal(&graph, &run, paid(5), "payment-1").await.unwrap();
    assert_eq!(again, Received::Already { place, taken: false });
    let finished = runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap();
    assert_eq!(finished.output, json!(["pack", {"signal": "paid", "paid": {"cents": 5}}, "ship"]));
    assert_eq!(
        kinds(&records(&store, &run).await),
        ["start", "step", "step", "resume", "take", "step", "step", "step", "end"]
    );
    assert_proven(&store, &graph, &run, Status::Completed).await;
    // The same signal again is known, and another one comes too late.
    let again = runtime.signal(&graph, &run, paid(5), "payment-1").await.unwrap();
    assert_eq!(again, Received::Already { place, taken: true });
    let error = runtime.signal(&graph, &run, paid(5), "payment-2").await.unwrap_err();
    assert!(matches!(error, SignalError::Stored(StoredRunError::Store(StoreError::Ended { .. }))), "{error}");
}

#[tokio::test]
async fn a_signal_that_comes_before_its_wait_is_kept_for_it() {
    let (store, _) = store();
    let runtime = runtime(store.clone());
    let (graph, run) = (order(), id("early"));
    // The run has a signal before it is at its wait.
    let held = Interpreted::waiting(&ORDER, |_, _| Box::pin(std::future::pending()));
    let started = runtime.start_as(run.clone(), held, Map::new()).await.unwrap();
    runtime.signal(&graph, &run, paid(7), "a").await.unwrap();
    runtime.signal(&graph, &run, NamedSignal::new("withdrawn", json!("no")), "b").await.unwrap();
    started.abort();
    let finished = loop {
        match runtime.resume(graph.clone(), &run).await {
            Ok(run) => break run.await.unwrap(),
            Err(error) => assert!(matches!(error, ResumeError::Stored(StoredRunError::Store(_))), "{error}"),
        }
        tokio::task::yield_now().await;
    };
    // It never waits in the store: the first signal that was received ends the wait at once.
    assert_eq!(finished.output[1], json!({"signal": "paid", "paid": {"cents": 7}}));
    assert_eq!(store.inbox(&run).await.unwrap().signals.len(), 1, "nothing took the other one");
    assert_eq!(finished.unread, BTreeMap::from([("withdrawn".to_owned(), 1)]));
    assert_eq!(finished.to_value()["unread"], json!({"withdrawn": 1}));
    match runtime.outcome(&graph, &run).await.unwrap() {
        RunOutcome::Done(done) => assert_eq!(done.unread, finished.unread),
        other => unreachable!("{other:?}"),
    }
    assert_proven(&store, &graph, &run, Status::Completed).await;
    // A journal says so of signals only.
    let (all, key) = (records(&store, &run).await, SecretKey::from_seed(&KEY).public());
    for unread in [json!({"2#1": 1}), json!({"withdrawn": 0})] {
        let forged = edited(&all, all.len() - 1, |record| record["unread"] = unread.clone());
        assert!(audit(&graph, &run, &forged, &key, None).is_err(), "{unread}");
    }
}

/// A run that is cancelled, or fails, says which signals it leaves. It takes them if it is resumed.
#[tokio::test]
async fn a_run_that_has_no_result_names_the_signals_that_it_leaves() {
    for cancels in [true, false] {
        let ((store, _), run) = (store(), id("order"));
        let settings = r#"{"signals":{"paid":{},"withdrawn":{},"note":{}},"channels":{"log":"append"}}"#;
        let failed = Mutex::new(false);
        let graph = Interpreted::new(&Program { settings, ..ORDER }, move |call, params| {
            match call.node() == "ship" && !std::mem::replace(&mut *failed.lock().unwrap(), true) {
                true => Err(ActionError::permanent("no lorry")),
                false => Ok(params),
            }
        });
        let runtime = runtime(store.clone());
        waiting(&runtime, &graph, &run).await;
        for number in ["a", "b"] {
            runtime.signal(&graph, &run, NamedSignal::new("note", json!("hello")), number).await.unwrap();
        }
        if cancels {
            runtime.cancel(&run).await.unwrap();
        } else {
            runtime.signal(&graph, &run, paid(5), "payment").await.unwrap();
            runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap_err();
        }
        let last = records(&store, &run).await.pop().unwrap().body;
        assert!(last.contains(r#""unread":{"note":2}"#), "{last}");
        let status = if cancels { Status::Cancelled } else { Status::Error };
        assert_proven(&store, &graph, &run, status).await;
    }
}

/// The names of signals are free texts, except for those that answers have.
#[tokio::test]
async fn a_signal_has_almost_any_name() {
    for name in ["paid?", "?", "1?", "größe", "a b"] {
        let ((store, _), run) = (store(), id("order"));
        let body = ORDER.nodes[1].1.replace(r#"["paid","withdrawn"]"#, &json!([name]).to_string());
        let body =
            body.replace(r#"{"by":"result.signal","to":{"paid":"ship","withdrawn":"done"}}"#, r#"[{"to":"done"}]"#);
        let nodes = [ORDER.nodes[0], ("money", body.as_str()), ORDER.nodes[2], ORDER.nodes[3], ORDER.nodes[4]];
        let settings = json!({"signals": {name: {}}, "channels": {"log": "append"}}).to_string();
        let program = Program { nodes: &nodes, settings: &settings, ..ORDER };
        let (graph, runtime) = (Interpreted::new(&program, |_, params| Ok(params)), runtime(store.clone()));
        waiting(&runtime, &graph, &run).await;
        runtime.signal(&graph, &run, NamedSignal::new(name, json!(7)), "a").await.unwrap();
        let finished = runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap();
        assert_eq!(finished.output[1], json!({"signal": name, name: 7}), "{name}");
        assert_proven(&store, &graph, &run, Status::Completed).await;
    }
}

#[tokio::test]
async fn a_signal_that_no_open_wait_receives_does_not_continue_a_run() {
    let (store, _) = store();
    let settings = r#"{"signals":{"paid":{},"withdrawn":{},"note":{}},"channels":{"log":"append"}}"#;
    let graph = Interpreted::new(&Program { settings, ..ORDER }, |_, params| Ok(params));
    let (run, runtime) = (id("order"), runtime(store.clone()));
    waiting(&runtime, &graph, &run).await;
    let before = records(&store, &run).await;
    runtime.signal(&graph, &run, NamedSignal::new("note", json!("hello")), "a").await.unwrap();
    let again = runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap_err();
    assert_eq!(waits(again).len(), 1);
    assert_eq!(records(&store, &run).await, before, "the run was not resumed");
    assert_eq!(store.inbox(&run).await.unwrap().signals.len(), 1, "the signal is kept");
    runtime.signal(&graph, &run, paid(5), "b").await.unwrap();
    let finished = runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap();
    assert_eq!(finished.output[1], json!({"signal": "paid", "paid": {"cents": 5}}));
    assert_proven(&store, &graph, &run, Status::Completed).await;
}

#[tokio::test]
async fn a_signal_that_comes_when_the_time_is_over_does_not_end_the_wait() {
    let at_due = |late: u64| async move {
        let (store, clock) = store();
        let (graph, run, runtime) = (order(), id("late"), runtime(store.clone()));
        waiting(&runtime, &graph, &run).await;
        clock.advance(DAY - Duration::from_millis(1) + Duration::from_millis(late));
        runtime.signal(&graph, &run, paid(1), "a").await.unwrap();
        // Nobody looks for an hour. The time of the receipt counts.
        clock.advance(Duration::from_secs(3600));
        let finished = runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap();
        assert_proven(&store, &graph, &run, Status::Completed).await;
        let left = store.inbox(&run).await.unwrap().signals.len();
        (finished.output, left)
    };
    assert_eq!(at_due(0).await, (json!(["pack", {"signal": "paid", "paid": {"cents": 1}}, "ship"]), 0));
    assert_eq!(at_due(1).await, (json!(["pack", "late"]), 1));
}

#[tokio::test]
async fn signals_that_do_not_fit_change_nothing() {
    let (store, _) = store();
    let (graph, run, runtime) = (order(), id("order"), runtime(store.clone()));
    let unknown = runtime.signal(&graph, &run, paid(1), "a").await.unwrap_err();
    assert!(matches!(unknown, SignalError::Stored(StoredRunError::Store(StoreError::NotFound(_)))), "{unknown}");
    waiting(&runtime, &graph, &run).await;
    let other = Interpreted::new(&Program { id: "test/other", ..ORDER }, |_, params| Ok(params));
    let error = runtime.signal(&other, &run, paid(1), "a").await.unwrap_err();
    assert!(matches!(error, SignalError::Stored(StoredRunError::AnotherGraph { .. })), "{error}");
    let digest = "00000000000000000000000000000000000000000000000000000000000000bb";
    let changed = Interpreted::new(&Program { digest, ..ORDER }, |_, params| Ok(params));
    let error = runtime.signal(&changed, &run, paid(1), "a").await.unwrap_err();
    assert!(matches!(error, SignalError::Stored(StoredRunError::AnotherGraph { .. })), "{error}");
    let error = runtime.signal(&graph, &run, NamedSignal::new("payed", json!(1)), "a").await.unwrap_err();
    assert_eq!(error.to_string(), "the graph `test/graph 1.0.0` has no signal `payed`: it has `paid`, `withdrawn`");
    for bad in ["", "a\nb", "\u{7f}", "a\u{2028}b", &"x".repeat(201)] {
        let error = runtime.signal(&graph, &run, paid(1), bad).await.unwrap_err();
        assert!(matches!(error, SignalError::Id { .. }), "{error}");
    }
    let foreign = Runtime::builder().store(store.clone()).sign_with(SecretKey::from_seed(&[9; 32]));
    let foreign = foreign.grant("*").unwrap().build().unwrap();
    let error = foreign.signal(&graph, &run, paid(1), "a").await.unwrap_err();
    assert!(matches!(error, SignalError::Stored(StoredRunError::Journal { .. })), "{error}");
    let error = Runtime::builder().build().unwrap().signal(&graph, &run, paid(1), "a").await.unwrap_err();
    assert!(matches!(error, SignalError::Stored(StoredRunError::Store(StoreError::None))), "{error}");
    assert!(store.inbox(&run).await.unwrap().signals.is_empty());
    runtime.signal(&graph, &run, paid(1), "a").await.unwrap();
    let error = runtime.signal(&graph, &run, paid(2), "a").await.unwrap_err();
    assert!(matches!(error, SignalError::Stored(StoredRunError::Store(StoreError::OtherSignal { .. }))), "{error}");
    assert_eq!(store.inbox(&run).await.unwrap().signals.len(), 1);
}

#[tokio::test]
async fn a_signal_that_somebody_wrote_into_the_store_is_left_out() {
    let (store, _) = store();
    let (graph, run, other, runtime) = (order(), id("order"), id("other"), runtime(store.clone()));
    for run in [&run, &other] {
        waiting(&runtime, &graph, run).await;
    }
    runtime.signal(&graph, &other, paid(1), "a").await.unwrap();
    let good = store.inbox(&other).await.unwrap().signals.remove(0);
    // Another key signed the same.
    let (foreign_store, _) = self::store();
    let foreigner = Runtime::builder().store(foreign_store.clone()).sign_with(SecretKey::from_seed(&[9; 32]));
    let foreigner = foreigner.grant("*").unwrap().build().unwrap();
    waiting(&foreigner, &graph, &run).await;
    foreigner.signal(&graph, &run, paid(1), "forged-4").await.unwrap();
    let foreign = foreign_store.inbox(&run).await.unwrap().signals.remove(0).receipt;
    let receipts: [(&str, String); 5] = [
        ("none", String::new()),
        ("no signature", "x".repeat(86)),
        ("that of another run", good.receipt.clone()),
        ("a longer one", format!("{}A", good.receipt)),
        ("that of another key", foreign),
    ];
    for (number, (_, receipt)) in receipts.iter().enumerate() {
        let signal = Signal::new("paid", format!("forged-{number}"), &good.payload);
        let receipt = receipt.clone();
        store.receive(&run, signal, Arc::new(move |_| Ok(receipt.clone()))).await.unwrap();
    }
    // Text that is no JSON, and a signal that the graph does not have.
    for payload in ["{", "{\"cents\": 1}", "1 "] {
        let signal = Signal::new("paid", format!("forged {payload}"), payload);
        store.receive(&run, signal, Arc::new(|_| Ok("?".to_owned()))).await.unwrap();
    }
    let left = runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap_err();
    assert_eq!(waits(left).len(), 1, "nothing ended the wait");
    assert!(store.inbox(&run).await.unwrap().signals.is_empty(), "they do not wake the run again");
    assert_proven(&store, &graph, &run, Status::Running).await;
    runtime.signal(&graph, &run, paid(1), "b").await.unwrap();
    let finished = runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap();
    assert_eq!(finished.output[1], json!({"signal": "paid", "paid": {"cents": 1}}));
    assert_proven(&store, &graph, &run, Status::Completed).await;
}

#[tokio::test]
async fn a_run_that_failed_receives_its_signals_when_it_is_resumed() {
    let (store, _) = store();
    let calls = Arc::new(Mutex::new(0));
    let tool = move |call: &Call, params: Value| {
        let mut calls = calls.lock().unwrap();
        *calls += 1;
        if call.node() == "pack" && *calls == 1 { Err(ActionError::permanent("no boxes")) } else { Ok(params) }
    };
    let (graph, run, runtime) = (Interpreted::new(&ORDER, tool), id("failed"), runtime(store.clone()));
    let started = runtime.start_as(run.clone(), graph.clone(), Map::new()).await.unwrap();
    assert_eq!(started.await.unwrap_err().to_string(), "node `pack` failed: no boxes");
    runtime.signal(&graph, &run, paid(3), "a").await.unwrap();
    let finished = runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap();
    assert_eq!(finished.output[1], json!({"signal": "paid", "paid": {"cents": 3}}));
    assert_proven(&store, &graph, &run, Status::Completed).await;
}

/// A runtime sends only the signals that it was granted. Nothing is changed otherwise.
#[tokio::test]
async fn a_signal_that_was_not_granted_is_refused() {
    let ((store, _), graph, run) = (store(), order(), id("order"));
    waiting(&runtime(store.clone()), &graph, &run).await;
    let sender = |grants: &[&str]| {
        let builder = Runtime::builder().store(store.clone()).sign_with(SecretKey::from_seed(&KEY));
        builder.grants(grants).unwrap().build().unwrap()
    };
    for grants in [&[][..], &["rye.execute.*"], &["rye.signal.test.graph.withdrawn"], &["rye.signal.test.other.paid"]] {
        let poor = sender(grants);
        let error = poor.signal(&graph, &run, paid(1), "a").await.unwrap_err().to_string();
        let expected = "Permission denied: 'rye.signal.test.graph.paid' not covered by capabilities: grant it to the runtime that sends the \
                        signal";
        assert_eq!(error, expected);
        let error = poor.signal_or_start(&graph, &id("other"), Map::new(), paid(1), "a").await.unwrap_err().to_string();
        assert_eq!(error, expected);
    }
    assert!(store.inbox(&run).await.unwrap().signals.is_empty());
    assert!(store.find(&id("other")).await.is_err());
    for (number, grants) in ["rye.signal.test.graph.paid", "rye.signal.test.*", "rye.signal.*"].into_iter().enumerate()
    {
        sender(&[grants]).signal(&graph, &run, paid(1), format!("granted-{number}")).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_continues_a_run_when_a_signal_comes() {
    let (store, clock) = virtual_store();
    let (graph, runtime) = (order(), clocked(&store, &clock));
    let worker = clocked(&store, &clock).worker(WorkerOptions::default().graph(graph.clone())).unwrap();
    for n in 0..50 {
        waiting(&runtime, &graph, &id(&format!("run-{n}"))).await;
    }
    clock.sleep(Duration::from_secs(3600)).await;
    assert_eq!(worker.status().claimed, 0, "nothing has come");
    let before = clock.now();
    for n in 0..50 {
        runtime.signal(&graph, &id(&format!("run-{n}")), paid(n), "payment").await.unwrap();
    }
    for n in 0..50 {
        until(&store, &id(&format!("run-{n}")), Status::Completed).await;
    }
    assert!(clock.now().duration_since(before).unwrap() <= Duration::from_secs(60));
    assert_eq!(worker.status().claimed, 50);
}

/// A graph of branches that call a tool, fail, ask people, or wait for signals or a time.
struct Branches {
    nodes: Vec<(String, String)>,
    /// The waits by their names.
    waits: BTreeMap<String, Awaited>,
    /// The nodes before and after which the run pauses.
    pauses: [Vec<String>; 2],
    /// The nodes after which hooks suspend the run, and after whose failures.
    suspends: [Vec<String>; 2],
    /// Whether its signals and answers are secrets.
    is_secret: bool,
}

/// The events that a wait waits for.
#[derive(Default)]
struct Awaited {
    signals: Vec<&'static str>,
    hours: Option<u64>,
    asks: bool,
    /// How many questions the tool of the node asks one after the other, if it does.
    by_tool: Option<u64>,
}

impl Awaited {
    /// Whether the wait of a visit receives what came with a name at a time.
    fn receives(&self, wait: &OpenedWait, name: &str, at: i64) -> bool {
        let own = format!("{}#{}", wait.step, wait.before + 1);
        let is_named = if self.asks { name == own } else { self.signals.contains(&name) };
        is_named && wait.due.is_none_or(|due| at < due)
    }
}

impl Branches {
    /// Whether a wait of a journal receives what came with a name at a time.
    fn receives(&self, wait: &OpenedWait, name: &str, at: i64) -> bool {
        match wait.is_paused {
            true => name == format!("{}#{}", wait.step, wait.before + 1),
            false => self.waits[&wait.node].receives(wait, name, at),
        }
    }
}

/// A wait of a journal that is open.
struct OpenedWait {
    step: u64,
    node: String,
    at: i64,
    due: Option<i64>,
    /// How many waits of the visit were over before, as its id counts them.
    before: u64,
    /// Whether the visit is paused.
    is_paused: bool,
}

const NAMES: [&str; 3] = ["a", "b", "c"];

impl Branches {
    fn random(random: &mut Random) -> Self {
        let count = 1 + random.below(4);
        let (pauses, suspends) = Default::default();
        let mut made = Self { nodes: Vec::new(), waits: BTreeMap::new(), pauses, suspends, is_secret: false };
        let mut lasts = Vec::new();
        let firsts: Vec<String> = (0..count).map(|branch| format!(r#"{{"to":"n{branch}x0"}}"#)).collect();
        made.nodes
            .push(("all".to_owned(), format!(r#"{{"line":1,"does":"gate","next":{{"all":[{}]}}}}"#, firsts.join(","))));
        for branch in 0..count {
            let length = 1 + random.below(2);
            for place in 0..length {
                let name = format!("n{branch}x{place}");
                let next = if place + 1 == length { "met".to_owned() } else { format!("n{branch}x{}", place + 1) };
                let body = made.node(random, &name, &next);
                made.nodes.push((name, body));
            }
            lasts.push(made.nodes.len() - 1);
        }
        let of: Vec<String> = lasts.iter().map(ToString::to_string).collect();
        let body = format!(
            r#"{{"line":1,"does":"gate","join":{{"of":[{}],"fan":0,"closes":true}},"next":[{{"to":"done"}}]}}"#,
            of.join(",")
        );
        let met = made.nodes.len();
        made.nodes.push(("met".to_owned(), body));
        made.nodes.push(("done".to_owned(), r#"{"line":1,"does":"return","output":"${state.log}"}"#.to_owned()));
        for (_, body) in &mut made.nodes {
            *body = body.replace("\"MET\"", &met.to_string());
        }
        let kind = random.below(6);
        let mut some = |count: usize| {
            let names = made.nodes[..count].iter().map(|(name, _)| name.clone());
            names.filter(|_| random.below(4) == 0).collect::<Vec<_>>()
        };
        if kind < 3 {
            made.pauses = [some(met + 2), some(met + 1)];
        }
        if kind == 2 || kind == 3 {
            made.suspends = [some(met + 1), made.nodes[1..met].iter().map(|(name, _)| name.clone()).collect()];
        }
        made.is_secret = random.below(3) == 0;
        made
    }

    /// Returns a node that leads to `next`.
    fn node(&mut self, random: &mut Random, name: &str, next: &str) -> String {
        let log = format!(r#""assign":{{"log":{{"at":"{name}","got":"${{result}}"}}}},"next":[{{"to":"{next}"}}]"#);
        // The last node of a branch leads to the join when nothing comes, and others lead on.
        let target = if next == "met" { "\"MET\"".to_owned() } else { (self.nodes.len() + 1).to_string() };
        match random.below(9) {
            0 => format!(r#"{{"line":1,"does":{{"action":0}},"params":{{"fail":false}},{log}}}"#),
            1 => format!(r#"{{"line":1,"does":{{"action":0}},"params":{{"fail":{}}},{log}}}"#, random.below(3) == 0),
            2..=5 => {
                let hours = (random.below(2) == 0).then(|| 1 + random.below(4));
                let count = 1 + random.below(2);
                let by_tool = (random.below(2) == 0).then(|| random.below(4));
                let payload = if by_tool.is_some() { String::new() } else { format!(r#""payload":"{name}","#) };
                let mut wait = format!(r#""ask":{{{payload}"count":{count}}}"#);
                if let Some(hours) = hours {
                    write!(wait, r#","timeout_ms":{},"on_timeout":{target}"#, hours * 3_600_000).unwrap();
                }
                self.waits.insert(name.to_owned(), Awaited { hours, asks: true, by_tool, ..Awaited::default() });
                let fails = random.below(3) == 0;
                match by_tool {
                    Some(asks) => format!(
                        r#"{{"line":1,"does":{{"action":0}},"params":{{"asks":{asks},"fail":{fails}}},"wait":{{{wait}}},{log}}}"#
                    ),
                    None => format!(r#"{{"line":1,"does":"interrupt","wait":{{{wait}}},{log}}}"#),
                }
            }
            _ => {
                let mut signals: Vec<&str> = NAMES.into_iter().filter(|_| random.below(2) == 0).collect();
                let hours = (random.below(2) == 0 || signals.is_empty()).then(|| 1 + random.below(4));
                // A wait that nothing ends would wait for ever.
                if hours.is_none() && random.below(2) == 0 {
                    signals = NAMES.to_vec();
                }
                let mut wait = Vec::new();
                if !signals.is_empty() {
                    wait.push(format!(r#""signals":{}"#, json!(signals)));
                }
                if let Some(hours) = hours {
                    wait.push(format!(r#""timeout_ms":{}"#, hours * 3_600_000));
                }
                if !signals.is_empty() && hours.is_some() {
                    wait.push(format!(r#""on_timeout":{target}"#));
                }
                self.waits.insert(name.to_owned(), Awaited { signals, hours, ..Awaited::default() });
                format!(r#"{{"line":1,"does":"wait","wait":{{{}}},{log}}}"#, wait.join(","))
            }
        }
    }

    fn has_hooks(&self) -> bool {
        self.suspends.iter().any(|nodes| !nodes.is_empty())
    }

    fn graph(&self, calls: &Calls) -> Interpreted {
        let nodes: Vec<(&str, &str)> = self.nodes.iter().map(|(name, body)| (name.as_str(), body.as_str())).collect();
        let hook = |event: &str, nodes: &[String]| {
            let condition = json!({"path": "node", "op": "in", "value": nodes});
            json!({"event": event, "params": {"action": "suspend", "reason": event}, "condition": condition})
        };
        let hooks = [hook("after_step", &self.suspends[0]), hook("error", &self.suspends[1])];
        let mut settings = json!({"signals": {"a": {}, "b": {}, "c": {}}, "channels": {"log": "append"}});
        if self.has_hooks() {
            settings["hooks"] = json!(hooks);
        }
        if self.is_secret {
            let asking = self.waits.iter().filter(|(_, awaited)| awaited.asks);
            let answers: Map<String, Value> =
                asking.map(|(name, _)| (name.clone(), json!({"fields": {"decision": "all"}}))).collect();
            settings["secrets"] = json!({"signals": {"a": "all", "c": "all"}, "answers": answers});
        }
        let program = Program {
            keys: &[Key { name: "log", initial: Some("[]") }],
            settings: &settings.to_string(),
            nodes: &nodes,
            ..PROGRAM
        };
        let calls = Arc::clone(calls);
        Interpreted::new(&program, move |call, params| {
            let mut calls = calls.lock().unwrap();
            let before = calls.entry(call.node().to_owned()).or_default();
            before.push(call.idempotency_key().to_string());
            // A call that fails succeeds when it is made again.
            if params["fail"] == true && before.len() == 1 {
                return Err(ActionError::permanent("it fails"));
            }
            let answers: Vec<&Value> = call.answers().iter().map(|signed| &signed.answer).collect();
            match params["asks"].as_u64() {
                Some(asks) if (answers.len() as u64) < asks => {
                    Err(ActionError::interrupt(json!({"node": call.node(), "before": answers})))
                }
                Some(_) => Ok(json!(answers)),
                None => Ok(json!(call.node())),
            }
        })
    }
}

/// The idempotency keys of the calls of each node.
type Calls = Arc<Mutex<BTreeMap<String, Vec<String>>>>;

/// Something that happens to a run from outside.
#[derive(Debug, Clone)]
enum Happening {
    Signal(&'static str, u64),
    /// One of two people answers one of the questions.
    Answer(String, u8, u64),
    /// Somebody releases the run.
    Release,
    Minutes(u64),
}

/// A run after all that happened to it.
struct Played {
    store: MemoryStore,
    graph: Interpreted,
    calls: Calls,
    /// Its output, if it ended.
    output: Option<Value>,
    /// The names of the signals and answers that it received, in order, and when.
    received: Vec<(String, i64)>,
    /// The values of the signals among them, by their places.
    values: BTreeMap<u64, Value>,
    /// The answers that were accepted, by the questions.
    answers: BTreeMap<String, Value>,
    /// The answers that one of two people has signed: the question, who, and the answer.
    proposed: BTreeSet<(String, u8, u64)>,
}

impl Played {
    /// Answers a question, and says so if the answer was accepted.
    async fn answer(&mut self, runtime: &Runtime, node: &str, who: u8, number: u64, at: i64) {
        let Ok(questions) = runtime.questions(&self.graph, &id("run")).await else { return };
        let Some(question) = questions.into_iter().find(|question| question.node == node) else { return };
        let answer = NamedAnswer::new(node, json!({"decision": if number == 0 { "approve" } else { "refuse" }}));
        let envelope = question.sign(answer.clone(), &SecretKey::from_seed(&[20 + who; 32])).unwrap();
        match runtime.answer(&self.graph, &id("run"), &envelope).await {
            Ok(Answered::Accepted) => {
                let other = (question.wait.clone(), 1 - who, number);
                assert!(question.count == 1 || self.proposed.contains(&other), "two people have signed it");
                self.received.push((question.wait.clone(), at));
                assert_eq!(self.answers.insert(question.wait, answer.value), None, "it is answered once");
            }
            Ok(Answered::Proposed { have: 1, need: 2 }) => {
                if self.proposed.insert((question.wait.clone(), who, number)) {
                    self.received.push((format!("{}?", question.wait), at));
                }
            }
            Ok(Answered::Already { .. }) => assert_eq!(self.answers[&question.wait], answer.value),
            Ok(other) => unreachable!("{other:?}"),
            Err(AnswerError::Answered { .. }) => assert_ne!(self.answers[&question.wait], answer.value),
            Err(AnswerError::Expired { due, .. }) => assert!(due <= at),
            Err(error) => unreachable!("{error}"),
        }
    }
}

/// Runs a graph while things happen to it, and fails a write of its store.
async fn played(
    durability: Durability,
    made: &Branches,
    happenings: &[Happening],
    crash: Option<(u64, bool)>,
) -> Played {
    let (memory, clock) = store();
    let calls = Calls::default();
    let graph = made.graph(&calls);
    let people = People::default();
    for (who, owner) in [(20, "Ann"), (21, "Bo")] {
        people.add(who, owner, &[]);
    }
    let plain = answering(memory.clone(), &people);
    let mut played = Played {
        store: memory.clone(),
        graph: graph.clone(),
        calls,
        output: None,
        received: Vec::new(),
        values: BTreeMap::new(),
        answers: BTreeMap::new(),
        proposed: BTreeSet::new(),
    };
    let failing = crash.map(|(writes, is_written)| runtime(failing(&memory, writes, is_written)));
    let mut crashing = failing.as_ref();
    let [pause_before, pause_after] = made.pauses.clone();
    let options = Options { run: Some(id("run")), durability, pause_before, pause_after, ..Options::default() };
    let mut is_new = true;
    for happening in std::iter::once(None).chain(happenings.iter().map(Some)).chain([None]) {
        match happening {
            Some(Happening::Signal(name, number)) => {
                let signal = NamedSignal::new(*name, json!(number));
                let sent = plain.signal(&graph, &id("run"), signal, format!("{name}-{number}")).await;
                let is_over = matches!(sent, Err(SignalError::Stored(StoredRunError::Store(StoreError::Ended { .. }))));
                assert!(sent.is_ok() || (is_over && played.output.is_some()), "{sent:?}");
                played.received.push(((*name).to_owned(), milliseconds(&clock)));
                played.values.insert(played.received.len() as u64, json!(number));
            }
            Some(Happening::Answer(node, who, number)) => {
                played.answer(&plain, node, *who, *number, milliseconds(&clock)).await;
            }
            Some(Happening::Release) => {
                for wait in plain.release(&graph, &id("run")).await.unwrap() {
                    let is_new = played.received.iter().all(|(name, _)| name != wait.id.as_str());
                    if is_new {
                        played.received.push((wait.id.to_string(), milliseconds(&clock)));
                    }
                }
            }
            Some(Happening::Minutes(minutes)) => clock.advance(Duration::from_secs(60 * minutes)),
            None => {}
        }
        // A call that failed is made again at once, and a store that failed is there again.
        for _ in 0..12 {
            let with = crashing.unwrap_or(&plain);
            let run = match std::mem::take(&mut is_new) {
                true => with.start_with(options.clone(), graph.clone(), Map::new()).await,
                false => match with.resume_with(options.clone(), graph.clone(), &id("run")).await {
                    Ok(run) => Ok(run),
                    Err(ResumeError::Stored(StoredRunError::Store(_))) => {
                        crashing = None;
                        continue;
                    }
                    Err(error) => unreachable!("{error}"),
                },
            };
            match run.unwrap().await {
                Ok(finished) => {
                    played.output = Some(finished.output);
                    break;
                }
                Err(RunError::Waiting { .. }) => break,
                Err(RunError::Store { .. }) => crashing = None,
                Err(_) => {}
            }
        }
    }
    played
}

/// Checks the journal of a run against the rules, independent of the engine. Returns how many signals ended waits.
fn check_signals(made: &Branches, journal: &[Record], played: &Played, what: &str) -> usize {
    let sent = &played.received;
    let mut opened: BTreeMap<u64, OpenedWait> = BTreeMap::new();
    let mut answered: BTreeMap<u64, Vec<Value>> = BTreeMap::new();
    let mut over_before: BTreeMap<u64, u64> = BTreeMap::new();
    let mut taken: BTreeSet<u64> = BTreeSet::new();
    let mut results: BTreeMap<String, Value> = BTreeMap::new();
    for record in journal {
        match &record.entry {
            Entry::Step(step) => {
                for visit in &step.visits {
                    if let Some(wait) = &visit.opened {
                        let before: &[Value] = answered.get(&visit.step).map_or(&[], Vec::as_slice);
                        let is_paused = wait.pause.is_some();
                        if !is_paused && made.waits[&visit.node].by_tool.is_some() {
                            let shown = json!({"node": visit.node, "before": before});
                            assert_eq!(wait.payload.as_ref(), Some(&shown), "{what}");
                        }
                        let (node, at, due) = (visit.node.clone(), wait.at, wait.due);
                        let before = over_before.get(&visit.step).copied().unwrap_or_default();
                        let open = OpenedWait { step: visit.step, node, at, due, before, is_paused };
                        assert!(opened.insert(visit.step, open).is_none(), "{what}: it is open once");
                    }
                }
            }
            Entry::Take(take) => {
                let mut over: Vec<(OpenedWait, Option<TakenSignal>)> = Vec::new();
                for wait in &take.taken {
                    let open = opened.remove(&wait.step).expect("a wait is taken once");
                    *over_before.entry(wait.step).or_default() += 1;
                    let awaited = (!open.is_paused).then(|| &made.waits[&open.node]);
                    let hours = awaited.and_then(|awaited| awaited.hours);
                    let hours = hours.map(|hours| i64::try_from(hours).unwrap() * 3_600_000);
                    assert_eq!(open.due, hours.map(|hours| open.at + hours), "{what}");
                    match &wait.signal {
                        Some(signal) => {
                            assert!(taken.insert(signal.order), "{what}: a signal is taken once");
                            let is_secret = match &awaited {
                                Some(awaited) => made.is_secret && (awaited.asks || signal.name != "b"),
                                None => false,
                            };
                            assert_eq!(signal.is_closed(), is_secret, "{what}: it is encrypted if it has secrets");
                            let (name, received) = &sent[usize::try_from(signal.order - 1).unwrap()];
                            assert_eq!((name, *received), (&signal.name, signal.at), "{what}");
                            assert!(made.receives(&open, name, signal.at), "{what}");
                            let lower = opened
                                .iter()
                                .find(|(step, other)| **step < wait.step && made.receives(other, name, signal.at));
                            // A later signal of the same record may end it.
                            let ends = |step: u64| take.taken.iter().any(|other| other.step == step);
                            assert!(
                                lower.is_none_or(|(step, _)| ends(*step)),
                                "{what}: a wait before it receives `{name}`"
                            );
                            if let Some(awaited) = awaited {
                                let result = match awaited.asks {
                                    true => played.answers[name].clone(),
                                    false => json!({"signal": name, name: played.values[&signal.order]}),
                                };
                                answered.entry(wait.step).or_default().push(result.clone());
                                let all = || json!(answered[&wait.step]);
                                let is_by_tool = awaited.by_tool.is_some();
                                results.insert(open.node.clone(), if is_by_tool { all() } else { result });
                            }
                        }
                        None => assert!(open.due.is_some_and(|due| due <= wait.at), "{what}: too early"),
                    }
                    over.push((open, wait.signal.clone()));
                }
                check_left(made, sent, &taken, (&opened, &over), what);
            }
            Entry::End(end) => check_unread(end, sent, &taken, what),
            _ => {}
        }
    }
    check_results(made, journal, &results, what);
    check_suspensions(made, journal, what);
    taken.len()
}

/// The waits of a journal that are open, and those that a record ends, each with its signal.
type Waits<'a> = (&'a BTreeMap<u64, OpenedWait>, &'a [(OpenedWait, Option<TakenSignal>)]);

/// Checks that no signal is left that a wait receives.
fn check_left(made: &Branches, sent: &[(String, i64)], taken: &BTreeSet<u64>, (opened, over): Waits<'_>, what: &str) {
    // A signal that was there before the last one that was taken, or before a time was over, is left only if no
    // wait receives it.
    let last = over.iter().filter_map(|(_, signal)| Some(signal.as_ref()?.order)).max().unwrap_or(0);
    for (order, (name, received)) in (1..).zip(sent).filter(|(order, _)| !taken.contains(order)) {
        let receives = |wait: &OpenedWait| made.receives(wait, name, *received);
        let open = order < last && opened.values().any(receives);
        let missed = over.iter().any(|(wait, signal)| match signal {
            Some(signal) => order < signal.order && receives(wait),
            None => receives(wait),
        });
        assert!(!open && !missed, "{what}: `{name}` was left");
    }
}

/// Checks that the end of a run names signals that it has received and no wait has taken.
fn check_unread(end: &End, sent: &[(String, i64)], taken: &BTreeSet<u64>, what: &str) {
    let untaken = (1..).zip(sent).filter(|(order, _)| !taken.contains(order)).map(|(_, (name, _))| name);
    let untaken: Vec<&String> = untaken.filter(|name| !name.contains('#')).collect();
    for (name, count) in &end.unread {
        let known = untaken.iter().filter(|untaken| **untaken == name).count() as u64;
        assert!((1..=known).contains(count), "{what}: {count} of {known} signals `{name}` are left");
    }
}

/// Checks that a hook suspends the run after the visits of its nodes, and that each visit that is suspended is left when it is next. If a
/// process dies before the hook has answered, the one that resumes the run asks it.
fn check_suspensions(made: &Branches, journal: &[Record], what: &str) {
    // The visits that are left when they are next.
    let (mut to_leave, mut parked) = (BTreeSet::new(), BTreeSet::new());
    for (at, record) in journal.iter().enumerate() {
        let Entry::Step(step) = &record.entry else { continue };
        for visit in &step.visits {
            let is_left = visit.opened.as_ref().is_some_and(|opened| opened.suspension().is_some());
            if to_leave.remove(&visit.step) {
                assert!(is_left, "{what}: visit {} is left", visit.step);
            }
            parked.remove(&visit.step);
            parked.extend(visit.opened.iter().map(|_| visit.step));
        }
        let suspends = |visit: &&Visit| visit.opened.is_none() && made.suspends[0].contains(&visit.node);
        // Beside other visits of the step, one that failed is suspended in the same way.
        let behind = |record: &&Record| matches!(record.entry, Entry::Resume(_) | Entry::Snapshot(_));
        let next = journal[at + 1..].iter().find(|record| !behind(record)).map(|record| &record.entry);
        let left: BTreeSet<u64> = match next {
            Some(Entry::Calls(calls)) => {
                calls.done.iter().filter(|done| done.suspended.is_some()).map(|done| done.step).collect()
            }
            _ => BTreeSet::new(),
        };
        let has_died = next.is_none();
        let suspended = step.visits.iter().find(suspends);
        let is_over = step.next.is_empty() && parked.is_empty();
        if suspended.is_some() && !is_over {
            let all = step.next.iter().all(|target| left.contains(&target.number));
            // Where all visits wait, those that a hook has left already are not left again.
            let is_left = all && (!left.is_empty() || step.next.is_empty());
            assert!(is_left || has_died, "{what}: visit {suspended:?} suspends the run");
        }
        to_leave.extend(left);
    }
}

/// Checks that each visit has what its waits received.
fn check_results(made: &Branches, journal: &[Record], results: &BTreeMap<String, Value>, what: &str) {
    for record in journal {
        let Entry::Step(step) = &record.entry else { continue };
        for visit in step.visits.iter().filter(|visit| visit.opened.is_none() && made.waits.contains_key(&visit.node)) {
            let Awaited { signals, asks, by_tool, hours } = &made.waits[&visit.node];
            if visit.timed_out {
                assert!(hours.is_some() && visit.changes.is_empty(), "{what}");
                continue;
            }
            if let Some(by_tool) = by_tool {
                let got = visit.changes["log"]["got"].as_array().map(Vec::len);
                assert_eq!(got, usize::try_from(*by_tool).ok(), "{what}: each question was answered");
            }
            match results.get(&visit.node) {
                Some(result) => assert_eq!(visit.changes["log"]["got"], *result, "{what}"),
                None => assert!((signals.is_empty() && !asks) || *by_tool == Some(0), "{what}"),
            }
        }
    }
}

async fn check_branches(seed: u64) -> (usize, usize) {
    let mut random = Random::new(seed);
    let made = Branches::random(&mut random);
    let asking: Vec<&str> =
        made.waits.iter().filter(|(_, awaited)| awaited.asks).map(|(name, _)| name.as_str()).collect();
    let mut happenings = Vec::new();
    for number in 0..random.below(10) {
        happenings.push(match random.below(5) {
            0 => Happening::Minutes(random.below(150)),
            1 | 2 if !asking.is_empty() => {
                let node = asking[usize::try_from(random.below(asking.len() as u64)).unwrap()].to_owned();
                Happening::Answer(node, u8::from(random.below(2) == 0), random.below(2))
            }
            _ => Happening::Signal(NAMES[usize::try_from(random.below(3)).unwrap()], number),
        });
    }
    if made.pauses.iter().any(|nodes| !nodes.is_empty()) || made.has_hooks() {
        for at in (0..happenings.len()).rev().filter(|_| random.below(2) == 0) {
            happenings.insert(at, Happening::Release);
        }
        happenings.extend((0..8).map(|_| Happening::Release));
    }
    let mut what = format!("SEED={seed}\n{happenings:?}\n{:?} {:?}\n", made.pauses, made.suspends);
    made.nodes.iter().for_each(|(name, body)| writeln!(what, "{name}: {body}").unwrap());
    let key = SecretKey::from_seed(&KEY).public();
    let whole = played(Durability::Sync, &made, &happenings, None).await;
    let (mut cases, mut ended) = (0, 0);
    let signed = records(&whole.store, &id("run")).await;
    let writes = signed.len() as u64;
    let crashes = (0..writes).flat_map(|write| [(write, false), (write, true)]).map(Some);
    for crash in std::iter::once(None).chain(crashes) {
        let what = format!("{crash:?} {what}");
        let durability =
            [Durability::Sync, Durability::Async, Durability::Exit][usize::try_from(random.below(3)).unwrap()];
        let what = format!("{durability:?} {what}");
        let played = played(durability, &made, &happenings, crash).await;
        // A process that dies between a step and the answer of a hook does not ask it again.
        if !made.has_hooks() {
            assert_eq!(sorted(played.output.as_ref()), sorted(whole.output.as_ref()), "{what}");
            assert_eq!((&played.received, &played.answers), (&whole.received, &whole.answers), "{what}");
        }
        let (signed, graph) = (records(&played.store, &id("run")).await, &played.graph);
        let encryption = encryption_key();
        for encryption in [Some(&encryption), None] {
            let proven = audit(graph, &id("run"), &signed, &key, encryption);
            assert!(proven.is_ok(), "{proven:?} {what}");
        }
        let replayed = history::replay(graph, graph, &id("run"), &signed, &key, Some(&encryption)).unwrap();
        assert!(replayed.deviations.is_empty() && replayed.stopped.is_none(), "{replayed:?} {what}");
        let journal = Follower::new(id("run"), key.clone()).read(&signed).unwrap();
        ended += check_signals(&made, &journal, &played, &what);
        // A call is made again only if its process died before it was written, and then with the same key.
        for (node, before) in whole.calls.lock().unwrap().iter().filter(|_| !made.has_hooks()) {
            let called = played.calls.lock().unwrap();
            let again = called[node].len() - before.len();
            assert!(
                (again <= 1 || durability != Durability::Sync)
                    && called[node].iter().all(|key| *key == called[node][0]),
                "{what}"
            );
        }
        cases += 1;
    }
    (cases, ended)
}

fn milliseconds(clock: &ManualClock) -> i64 {
    let since = clock.now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(since.as_millis()).unwrap()
}

/// The elements of a log, whose order depends on the steps in which branches were made.
fn sorted(log: Option<&Value>) -> Option<Vec<String>> {
    let mut all: Vec<String> = log?.as_array().unwrap().iter().map(ToString::to_string).collect();
    all.sort_unstable();
    Some(all)
}

/// `SIGNALS=1000 cargo test --release -p state-graph-runtime --test runtime branches_receive` takes minutes. `SEED` sets the first seed.
#[tokio::test]
async fn branches_receive_signals_in_any_order_and_after_any_crash() {
    let number = |name: &str, otherwise| env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise);
    let (count, seed) = (number("SIGNALS", 30), number("SEED", 1));
    let (mut cases, mut ended) = (0, 0);
    for seed in seed..seed + count {
        let (more, signals) = check_branches(seed).await;
        (cases, ended) = (cases + more, ended + signals);
    }
    println!("{cases} cases, {ended} waits ended by signals or answers");
    assert!(cases as u64 > count && ended as u64 > count, "{cases} cases, {ended} waits ended by signals or answers");
}

/// Steps that are written later take a signal once, too.
#[tokio::test]
async fn a_signal_is_taken_once_however_late_steps_are_written() {
    let twice = Program {
        nodes: &[
            (
                "first",
                r#"{"line":1,"does":"wait","wait":{"signals":["paid"]},"assign":{"log":"${result}"},"next":[{"to":"second"}]}"#,
            ),
            (
                "second",
                r#"{"line":2,"does":"wait","wait":{"signals":["paid"]},"assign":{"log":"${result}"},"next":[{"to":"done"}]}"#,
            ),
            ("done", r#"{"line":3,"does":"return","output":"${state.log}"}"#),
        ],
        ..ORDER
    };
    for durability in [Durability::Sync, Durability::Async, Durability::Exit] {
        let ((store, _), run) = (store(), id("run"));
        let (graph, runtime) = (Interpreted::new(&twice, |_, params| Ok(params)), runtime(store.clone()));
        waiting(&runtime, &graph, &run).await;
        runtime.signal(&graph, &run, paid(1), "a").await.unwrap();
        let options = || Options { durability, ..Options::default() };
        let left = runtime.resume_with(options(), graph.clone(), &run).await.unwrap().await.unwrap_err();
        assert_eq!(waits(left)[0].0, "second", "{durability:?}");
        // Somebody who can write to the store sends it again, with its receipt.
        let take = records(&store, &run).await.into_iter().find(|one| one.body.contains(r#""kind":"take""#)).unwrap();
        let take: Value = serde_json::from_str(&take.body).unwrap();
        let receipt = take["taken"][0]["signal"]["receipt"].as_str().unwrap().to_owned();
        let again = Signal::new("paid", "again", take["taken"][0]["signal"]["value"].to_string());
        store.receive(&run, again, Arc::new(move |_| Ok(receipt.clone()))).await.unwrap();
        let left = runtime.resume_with(options(), graph.clone(), &run).await.unwrap().await.unwrap_err();
        assert_eq!(waits(left)[0].0, "second", "{durability:?}");
        runtime.signal(&graph, &run, paid(2), "b").await.unwrap();
        let finished = runtime.resume_with(options(), graph.clone(), &run).await.unwrap().await.unwrap();
        assert_eq!(finished.output[1]["paid"]["cents"], 2, "{durability:?}");
        assert_proven(&store, &graph, &run, Status::Completed).await;
    }
}

/// A fork in front of a wait that was over waits again, and has received nothing.
#[tokio::test]
async fn a_fork_at_any_step_is_proven() {
    let ((store, _), run) = (store(), id("run"));
    let (graph, runtime) = (order(), runtime(store.clone()));
    waiting(&runtime, &graph, &run).await;
    runtime.signal(&graph, &run, paid(1), "a").await.unwrap();
    let finished = runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap();
    let key = SecretKey::from_seed(&KEY).public();
    for step in 0..finished.steps {
        let fork = Fork { run: Some(id(&format!("fork-{step}"))), step: Some(step), ..Fork::default() };
        let fork = runtime.fork(&graph, &run, fork).await.unwrap();
        let proven = audit_tree(Arc::new(graph.clone()), &fork, &store, &key, None).await;
        assert!(proven.is_ok_and(|all| all[0].is_origin_proven), "a fork at step {step}");
    }
}

/// A payment that comes before its order starts it, once.
#[tokio::test]
async fn a_signal_starts_a_run_that_does_not_exist() {
    let (store, _) = store();
    let (graph, run, runtime) = (order(), id("order"), runtime(store.clone()));
    // The run does not end meanwhile.
    let held = Interpreted::waiting(&ORDER, |_, _| Box::pin(std::future::pending()));
    let send = |cents, id: &'static str| {
        let (runtime, graph, run) = (runtime.clone(), held.clone(), run.clone());
        async move { runtime.signal_or_start(&graph, &run, Map::new(), paid(cents), id).await }
    };
    // Nothing begins with a signal that is refused.
    let unknown = NamedSignal::new("payed", json!(1));
    assert!(runtime.signal_or_start(&graph, &run, Map::new(), unknown, "a").await.is_err());
    assert!(send(5, "2#1").await.is_err());
    assert!(store.list().await.unwrap().is_empty());
    // Eight senders have four signals. One of them starts the run.
    let sent: Vec<_> = ["a", "b", "c", "d", "a", "b", "c", "d"].map(|id| tokio::spawn(send(5, id))).into();
    let (mut started, mut accepted) = (Vec::new(), 0);
    for sent in sent {
        let SignalledRun { started: begun, received, .. } = sent.await.unwrap().unwrap();
        started.extend(begun);
        accepted += usize::from(matches!(received, Received::Accepted(_)));
    }
    assert_eq!((started.len(), accepted), (1, 4));
    started.remove(0).abort();
    let finished = loop {
        match runtime.resume(graph.clone(), &run).await {
            Ok(run) => break run.await.unwrap(),
            Err(error) => assert!(matches!(error, ResumeError::Stored(StoredRunError::Store(_))), "{error}"),
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(finished.output, json!(["pack", {"signal": "paid", "paid": {"cents": 5}}, "ship"]));
    assert_proven(&store, &graph, &run, Status::Completed).await;
    // Sent again after the end, it is known, and a new one is too late.
    let again = send(5, "a").await.unwrap();
    assert!(again.started.is_none() && matches!(again.received, Received::Already { .. }));
    assert!(matches!(send(5, "e").await, Err(SignalError::Stored(StoredRunError::Store(StoreError::Ended { .. })))));
    // A run that may not begin.
    let poor = Runtime::builder().store(store.clone()).sign_with(SecretKey::from_seed(&KEY));
    let poor = poor.grant("rye.signal.*").unwrap().build().unwrap();
    let refused = poor.signal_or_start(&graph, &id("poor"), Map::new(), paid(5), "a").await;
    assert!(matches!(refused, Err(SignalError::Start(_))), "{refused:?}");
}

/// The receipt of a signal is no good in another run, although all else is equal.
#[tokio::test]
async fn a_receipt_is_good_for_one_run() {
    let (store, _) = store();
    let (graph, runtime) = (order(), runtime(store.clone()));
    for run in ["one", "other"] {
        waiting(&runtime, &graph, &id(run)).await;
    }
    runtime.signal(&graph, &id("one"), paid(5), "a").await.unwrap();
    let received = store.inbox(&id("one")).await.unwrap().signals.remove(0);
    let (copied, receipt) = (Signal::new("paid", "a", received.payload.clone()), received.receipt.clone());
    store.receive(&id("other"), copied, Arc::new(move |_| Ok(receipt.clone()))).await.unwrap();
    assert_eq!(store.inbox(&id("other")).await.unwrap().signals, [received]);
    let left = runtime.resume(graph.clone(), &id("other")).await.unwrap().await.unwrap_err();
    assert_eq!(waits(left)[0].0, "money");
    assert!(store.inbox(&id("other")).await.unwrap().signals.is_empty(), "it is left out");
    assert!(runtime.resume(graph.clone(), &id("one")).await.unwrap().await.is_ok());
}

/// Signs the records again from the first one that changes, which keeps the first record and its link.
pub(crate) fn signed_again(records: &[SignedRecord], change: &dyn Fn(&str) -> String) -> Vec<SignedRecord> {
    let (key, mut before) = (SecretKey::from_seed(&KEY), None::<(Digest, Digest)>);
    let again = |record: &SignedRecord| {
        let mut body = change(&record.body);
        if let Some((old, new)) = before {
            body = body.replace(&old.to_hex(), &new.to_hex());
        }
        let signature = key.sign(&Digest::of(&body));
        let again = SignedRecord { body, signature, ..record.clone() };
        before = Some((record.link(), again.link()));
        again
    };
    records.iter().map(again).collect()
}

/// A journal whose holder has the key says only what a runtime with the key received.
#[tokio::test]
async fn a_forged_take_is_refused() {
    let (store, clock) = store();
    let (graph, run, other, runtime) = (order(), id("order"), id("other"), runtime(store.clone()));
    for run in [&run, &other] {
        waiting(&runtime, &graph, run).await;
    }
    clock.advance(Duration::from_secs(60));
    runtime.signal(&graph, &run, NamedSignal::new("withdrawn", json!("no")), "b").await.unwrap();
    runtime.signal(&graph, &other, paid(5), "a").await.unwrap();
    runtime.resume(graph.clone(), &other).await.unwrap().await.unwrap();
    runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap();
    let honest = records(&store, &run).await;
    let take = |signed: &[SignedRecord]| {
        let record = signed.iter().find(|one| one.body.contains(r#""kind":"take""#)).unwrap();
        serde_json::from_str::<Value>(&record.body).unwrap()["taken"][0].clone()
    };
    let (own, foreign) = (take(&honest), take(&records(&store, &other).await));
    let key = SecretKey::from_seed(&KEY).public();
    let verdict = |change: &dyn Fn(&str) -> String| {
        let signed = signed_again(&honest, change);
        audit(&graph, &run, &signed, &key, None).map(|audit| audit.status).map_err(|error| error.to_string())
    };
    assert_eq!(verdict(&|body| body.to_owned()), Ok(Status::Completed), "signed again, it is the same");
    let with = |from: &Value, to: &Value| {
        let (from, to) = (from.to_string(), to.to_string());
        move |body: &str| body.replacen(&from, &to, 1)
    };
    let changed = |field: &str, value: Value| {
        let mut changed = own.clone();
        changed["signal"][field] = value;
        changed
    };
    let mut late = own.clone();
    late["at"] = json!(own["at"].as_i64().unwrap() - 60_001);
    let unsigned = {
        let mut unsigned = own.clone();
        unsigned.as_object_mut().unwrap().shift_remove("signal");
        unsigned
    };
    let cases = [
        ("another value", changed("value", json!("yes"))),
        ("another name", changed("name", json!("paid"))),
        ("another sender", changed("id", json!("c"))),
        ("another place", changed("order", json!(2))),
        ("another time", changed("at", json!(own["signal"]["at"].as_i64().unwrap() - 1))),
        ("no receipt", changed("receipt", json!(""))),
        ("the receipt of another run", changed("receipt", foreign["signal"]["receipt"].clone())),
        ("the signal of another run", foreign.clone()),
        ("before it was received", late),
        ("its time had come", unsigned),
    ];
    for (what, to) in &cases {
        assert_ne!(*to, own, "{what}");
        let found = verdict(&with(&own, to));
        assert!(found.is_err(), "{what}: {found:?}");
    }
    // A visit that says that it received nothing, and one that says that it did.
    let result = r#""changes":{"log":{"signal":"withdrawn","withdrawn":"no"}}"#;
    let timed_out = |body: &str| body.replacen(result, r#""timed_out":true"#, 1).replace(r#""edges":[1],"#, "");
    assert!(honest.iter().any(|one| timed_out(&one.body) != one.body), "the visit is found");
    assert!(verdict(&timed_out).is_err());
    assert!(verdict(&|body| body.replace(result, r#""changes":{"log":{"signal":"paid","paid":1}}"#)).is_err());
}

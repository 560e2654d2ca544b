//! Nested runs that wait: their waits are those of the outermost run, which parks the visits that began them.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::random::Random;
use graph_runtime::__private::{Key, Program};
use graph_runtime::answer::Answered;
use graph_runtime::history::replay;
use graph_runtime::record::{Entry, Follower};
use graph_runtime::store::{Page, Received, RunFilter, StoreError, WaitFilter};
use graph_runtime::{
    ActionError, AnswerError, Durability, Map, MemoryStore, NamedAnswer, NamedSignal, Options, ResumeError, RunError,
    RunOutcome, Runtime, SecretKey, SignalError, StartError, Status, Store, StoredRunError, Value, WorkerOptions,
    audit_tree,
};
use serde_json::json;

use crate::answers::{People, answering};
use crate::inside::GRAPH;
use crate::interpreted::{Interpreted, PROGRAM};
use crate::support::{KEY, failing, id, runtime};
use crate::waits::{assert_proven, records, store, until, virtual_store};

/// How many writes of the store fail for one nest of graphs, each in a run of its own.
const MOST_CRASHES: usize = 12;

/// The idempotency keys of the calls, by the texts that they were called with.
type Calls = Arc<Mutex<BTreeMap<String, Vec<String>>>>;

fn performing(program: &Program<'_>, calls: &Calls) -> Interpreted {
    let calls = Arc::clone(calls);
    Interpreted::new(program, move |call, params| {
        let mut calls = calls.lock().unwrap();
        let before = calls.entry(params.to_string()).or_default();
        before.push(call.idempotency_key().to_string());
        // A call that fails succeeds when it is made again.
        match params["fails"].as_str() {
            Some("always") => Err(ActionError::permanent("it fails")),
            Some("once") if before.len() == 1 => Err(ActionError::permanent("it fails once")),
            _ if (call.answers().len() as u64) < params["asks"].as_u64().unwrap_or_default() => {
                Err(ActionError::interrupt(json!({"after": call.answers().len()})))
            }
            _ => Ok(params),
        }
    })
}

/// A refund: a call, an approval, a payment within a day, and another call.
const REFUND: Program<'static> = Program {
    id: "test/refund",
    keys: &[Key { name: "log", initial: Some("[]") }],
    settings: r#"{"channels":{"log":"append"},"signals":{"paid":{}}}"#,
    nodes: &[
        (
            "price",
            r#"{"line":1,"does":{"action":0},"params":{"price":"${inputs.n}"},"assign":{"log":"${result}"},"next":[{"to":"approve"}]}"#,
        ),
        (
            "approve",
            r#"{"line":2,"does":"interrupt","wait":{"ask":{"payload":{"n":"${inputs.n}"},"role":"refunds","count":1}},"assign":{"log":"${result.decision}"},"next":[{"to":"money"}]}"#,
        ),
        (
            "money",
            r#"{"line":3,"does":"wait","wait":{"signals":["paid"],"timeout_ms":86400000,"on_timeout":4},"assign":{"log":"${result}"},"next":[{"to":"ship"}]}"#,
        ),
        (
            "ship",
            r#"{"line":4,"does":{"action":0},"params":{"ship":"${inputs.n}"},"assign":{"log":"${result}"},"next":[{"to":"done"}]}"#,
        ),
        ("done", r#"{"line":5,"does":"return","output":"${state.log}"}"#),
    ],
    ..PROGRAM
};

/// An order that runs a refund for each element of a list, two at a time.
const ORDER: Program<'static> = Program {
    keys: &[Key { name: "all", initial: None }],
    tools: &[GRAPH],
    permissions: &["rye.execute.tool.test.tool"],
    nodes: &[
        (
            "each",
            r#"{"line":1,"does":{"foreach":0},"params":{"n":"${n}"},"each":{"over":"${inputs.list}","as":"n","collect":"all","width":2},"next":[{"to":"done"}]}"#,
        ),
        ("done", r#"{"line":2,"does":"return","output":"${state.all}"}"#),
    ],
    ..PROGRAM
};

fn order(calls: &Calls) -> Interpreted {
    performing(&ORDER, calls).nesting(performing(&REFUND, calls))
}

fn inputs(list: Value) -> Map<String, Value> {
    Map::from_iter([("list".to_owned(), list)])
}

/// The ids of the waits that a run says it waits for.
pub(crate) fn ids(error: RunError) -> Vec<String> {
    assert!(matches!(error, RunError::Waiting { .. }), "{error}");
    let RunError::Waiting { waits, .. } = error else { return Vec::new() };
    waits.into_iter().map(|wait| wait.id.to_string()).collect()
}

#[tokio::test]
async fn waits_of_nested_runs_are_those_of_the_run_around_them() {
    let ((store, clock), people, calls) = (store(), People::default(), Calls::default());
    let ann = people.add(11, "Ann", &["refunds"]);
    let (graph, run, runtime) = (order(&calls), id("order"), answering(store.clone(), &people));
    let started = runtime.start_as(run.clone(), graph.clone(), inputs(json!([1, 2, 3]))).await.unwrap();
    assert_eq!(ids(started.await.unwrap_err()), ["1.0/2#1", "1.1/2#1", "1.2/2#1"]);
    assert_proven(&store, &graph, &run, Status::Running).await;
    // The store lists them, and workers see one run.
    let inbox = WaitFilter { role: Some("refunds".to_owned()), ..WaitFilter::default() };
    let listed = runtime.open_waits(&inbox, &Page::default()).await.unwrap().waits;
    let row = |row: &graph_runtime::store::WaitRow| {
        (
            row.run.to_string(),
            row.wait.id.to_string(),
            row.wait.graph.as_ref().map_or(String::new(), |graph| graph.id.clone()),
        )
    };
    let expected = [0, 1, 2].map(|item| ("order".to_owned(), format!("1.{item}/2#1"), "test/refund".to_owned()));
    assert_eq!(listed.iter().map(row).collect::<Vec<_>>(), expected);
    // The questions are answered in any order.
    let questions = runtime.questions(&graph, &run).await.unwrap();
    assert_eq!(
        questions.iter().map(|question| question.payload.clone()).collect::<Vec<_>>(),
        [1, 2, 3].map(|n| json!({"n": n}))
    );
    let answer = |decision: &str| NamedAnswer::new("approve", json!({ "decision": decision }));
    let envelope = questions[1].sign(answer("approve"), &ann).unwrap();
    assert_eq!(runtime.answer(&graph, &run, &envelope).await.unwrap(), Answered::Accepted);
    assert_eq!(runtime.answer(&graph, &run, &envelope).await.unwrap(), Answered::Already { taken: false });
    let waiting = runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap_err();
    assert_eq!(ids(waiting), ["1.0/2#1", "1.1/3#1", "1.2/2#1"]);
    assert_proven(&store, &graph, &run, Status::Running).await;
    assert_eq!(runtime.answer(&graph, &run, &envelope).await.unwrap(), Answered::Already { taken: true });
    let other = questions[1].sign(answer("refuse"), &ann).unwrap();
    let error = runtime.answer(&graph, &run, &other).await.unwrap_err();
    assert_eq!(error.to_string(), "`1.1/2#1` was answered before, and otherwise");
    // An answer is good for one question.
    let moved = questions[0].sign(answer("approve"), &ann).unwrap();
    let error = runtime.answer(&graph, &id("other"), &moved).await.unwrap_err();
    assert!(matches!(error, AnswerError::AnotherQuestion { .. }), "{error}");
    // A signal goes to one of them.
    let send = |name: &str, id: &str| {
        let (runtime, graph, run) = (runtime.clone(), graph.clone(), run.clone());
        let (signal, id) = (NamedSignal::new(name, json!(5)), id.to_owned());
        async move { runtime.signal(&graph, &run, signal, id).await }
    };
    for (name, id, expected) in [
        ("1.3/paid", "a", "run `order` has no run inside it at `1.3/`"),
        ("1/paid", "a", "run `order` has no run inside it at `1/`"),
        ("01.1/paid", "a", "run `order` has no run inside it at `01.1/`"),
        ("1.1/payed", "a", "the graph `test/refund 1.0.0` has no signal `payed`"),
        ("paid", "a", "the graph `test/graph 1.0.0` has no signal `paid`"),
        ("1.1/paid", "1.1/3#1", "\"1.1/3#1\" cannot be the id of a signal"),
    ] {
        let error = send(name, id).await.unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
    send("1.1/paid", "payment-1").await.unwrap();
    let waiting = runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap_err();
    assert_eq!(ids(waiting), ["1.0/2#1", "1.2/2#1"]);
    let error = send("1.1/paid", "payment-2").await.unwrap_err();
    assert!(matches!(error, SignalError::Stored(StoredRunError::Store(StoreError::Ended { .. }))), "{error}");
    // A sender that was not told the outcome sends again, also when the nested run has completed.
    let again = send("1.1/paid", "payment-1").await.unwrap();
    assert!(matches!(again, Received::Already { taken: true, .. }), "{again:?}");
    let other = runtime.signal(&graph, &run, NamedSignal::new("1.1/paid", json!(6)), "payment-1").await.unwrap_err();
    assert!(matches!(other, SignalError::Stored(StoredRunError::Store(StoreError::OtherSignal { .. }))), "{other}");
    // A signal before the wait is kept. The last one is not paid for in time.
    send("1.0/paid", "payment-3").await.unwrap();
    for question in [&questions[2], &questions[0]] {
        let envelope = question.sign(answer("refuse"), &ann).unwrap();
        assert_eq!(runtime.answer(&graph, &run, &envelope).await.unwrap(), Answered::Accepted);
    }
    let waiting = runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap_err();
    assert_eq!(ids(waiting), ["1.2/3#1"]);
    clock.advance(Duration::from_secs(86_399));
    assert_eq!(ids(runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap_err()), ["1.2/3#1"]);
    clock.advance(Duration::from_secs(1));
    let finished = runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap();
    let again = send("1.1/paid", "payment-1").await.unwrap();
    assert!(matches!(again, Received::Already { taken: true, .. }), "also when all have: {again:?}");
    let output = |at: usize| finished.output[at]["output"].clone();
    let paid = json!({"signal": "paid", "paid": 5});
    assert_eq!(output(0), json!([{"price": 1}, "refuse", paid, {"ship": 1}]));
    assert_eq!(output(1), json!([{"price": 2}, "approve", paid, {"ship": 2}]));
    assert_eq!(output(2), json!([{"price": 3}, "refuse"]));
    assert_proven(&store, &graph, &run, Status::Completed).await;
    assert!(calls.lock().unwrap().values().all(|keys| keys.len() == 1), "each call was made once: {calls:?}");
    assert!(store.inbox(&run).await.unwrap().signals.is_empty(), "each signal was taken");
}

#[tokio::test(start_paused = true)]
async fn a_worker_continues_the_run_around_what_waits() {
    let ((store, clock), people, calls) = (virtual_store(), People::default(), Calls::default());
    let ann = people.add(11, "Ann", &["refunds"]);
    let (graph, run, runtime) = (order(&calls), id("worked"), answering(store.clone(), &people));
    let clocked = crate::waits::clocked(&store, &clock);
    // A worker that knows the nested graph too does not touch its runs.
    let options = WorkerOptions::default().graph(graph.clone()).graph(graph.inside());
    let worker = clocked.worker(options).unwrap();
    let started = runtime.start_as(run.clone(), graph.clone(), inputs(json!([1]))).await.unwrap();
    started.await.unwrap_err();
    let question = runtime.questions(&graph, &run).await.unwrap().remove(0);
    let answer = NamedAnswer::new("approve", json!({"decision": "approve"}));
    runtime.answer(&graph, &run, &question.sign(answer, &ann).unwrap()).await.unwrap();
    // The payment does not come, and a day is over at once.
    until(&store, &run, Status::Completed).await;
    assert_eq!(worker.status().claimed, 2);
    assert_eq!(worker.status().postponed, 0);
    assert_proven(&store, &graph, &run, Status::Completed).await;
}

#[tokio::test]
async fn a_cancelled_run_ends_what_waits_inside() {
    let ((store, _), calls) = (store(), Calls::default());
    let (graph, run, runtime) = (order(&calls), id("order"), runtime(store.clone()));
    let started = runtime.start_as(run.clone(), graph.clone(), inputs(json!([1, 2]))).await.unwrap();
    started.await.unwrap_err();
    assert_eq!(runtime.cancel(&run).await.unwrap(), Status::Cancelled);
    for one in store.list().await.unwrap() {
        assert_eq!(one.status, Status::Cancelled, "{}", one.run);
    }
    assert_proven(&store, &graph, &run, Status::Cancelled).await;
    // When it is resumed, they wait again.
    let left = runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap_err();
    assert_eq!(ids(left), ["1.0/2#1", "1.1/2#1"]);
    for one in store.list().await.unwrap() {
        assert_eq!(one.status, Status::Waiting, "{}", one.run);
    }
    assert_proven(&store, &graph, &run, Status::Running).await;
}

#[tokio::test]
async fn a_graph_that_nests_one_that_waits_needs_a_store() {
    let calls = Calls::default();
    let plain = Runtime::builder().grant("*").unwrap().build().unwrap();
    let refused = plain.start(order(&calls), inputs(json!([1]))).await;
    assert!(matches!(refused, Err(StartError::NoStore { .. })), "{refused:?}");
    assert!(calls.lock().unwrap().is_empty());
}

/// An item that fails while another waits keeps its failure, and is not called again.
#[tokio::test]
async fn a_failure_beside_a_run_that_waits_is_kept() {
    let ((store, _), people, calls) = (store(), People::default(), Calls::default());
    let ann = people.add(11, "Ann", &["refunds"]);
    let refund = Program {
        nodes: &[
            ("price", r#"{"line":1,"does":{"action":0},"params":{"fails":"${inputs.n}"},"next":[{"to":"approve"}]}"#),
            (
                "approve",
                r#"{"line":2,"does":"interrupt","wait":{"ask":{"payload":{},"count":1}},"next":[{"to":"done"}]}"#,
            ),
            ("done", r#"{"line":3,"does":"return","output":"${inputs.n}"}"#),
        ],
        ..REFUND
    };
    for (settings, width) in [("continue", 1), ("continue", 3), ("fail", 1), ("fail", 3)] {
        let settings = format!(r#"{{"on_error":"{settings}"}}"#);
        let each = ORDER.nodes[0].1.replace(r#""width":2"#, &format!(r#""width":{width}"#));
        let nodes = &[("each", each.as_str()), ORDER.nodes[1]];
        let program = Program { settings: &settings, nodes, ..ORDER };
        let graph = performing(&program, &calls).nesting(performing(&refund, &calls));
        let (run, runtime) = (id(&format!("run-{width}-{}", settings.len())), answering(store.clone(), &people));
        // So much is written that a snapshot would be due.
        let large = "no".repeat(100_000);
        let list = json!([large, "always", "never", "once"]);
        let started = runtime.start_as(run.clone(), graph.clone(), inputs(list)).await.unwrap();
        let left = started.await.unwrap_err();
        if settings.contains("fail") {
            assert!(matches!(left, RunError::Node { .. }), "{left}");
            assert_proven(&store, &graph, &run, Status::Error).await;
            calls.lock().unwrap().clear();
            continue;
        }
        assert_eq!(ids(left), ["1.0/2#1", "1.2/2#1"]);
        assert_proven(&store, &graph, &run, Status::Running).await;
        let mut answered = 0;
        while let Some(question) = runtime.questions(&graph, &run).await.unwrap().into_iter().next() {
            let answer = NamedAnswer::new("approve", json!({"decision": "approve"}));
            runtime.answer(&graph, &run, &question.sign(answer, &ann).unwrap()).await.unwrap();
            answered += 1;
            match runtime.resume(graph.clone(), &run).await.unwrap().await {
                Ok(finished) => {
                    let failed = |at: usize| finished.output[at]["error"].as_str().unwrap_or_default().to_owned();
                    assert!(
                        failed(1).starts_with("it fails (") && failed(3).starts_with("it fails once ("),
                        "{}",
                        finished.output
                    );
                    assert_eq!(
                        (&finished.output[0]["output"], &finished.output[2]["output"]),
                        (&json!(large), &json!("never"))
                    );
                }
                Err(error) => assert_eq!(ids(error), ["1.2/2#1"]),
            }
        }
        assert_eq!(answered, 2);
        assert_proven(&store, &graph, &run, Status::CompletedWithErrors).await;
        let calls = std::mem::take(&mut *calls.lock().unwrap());
        assert_eq!(calls.values().map(Vec::len).collect::<Vec<_>>(), [1; 4], "{calls:?}");
    }
}

const NAMES: [&str; 2] = ["a", "b"];

/// Three graphs, each of which runs the next one: the outermost has branches, and its lists run the second for each element.
struct Nest {
    outer: Vec<(String, String)>,
    middle: Vec<(String, String)>,
    inner: Vec<(String, String)>,
    settings: String,
}

const LOG: &str = r#""assign":{"log":{"at":"NAME","got":"${result}"}}"#;

impl Nest {
    fn shares(&self) -> bool {
        let nodes = self.outer.iter().chain(&self.middle);
        nodes.into_iter().any(|(_, body)| body.contains("share_signals"))
    }

    fn random(random: &mut Random) -> Self {
        // A failure that a run continues after is not tried again.
        let (on_error, fails) = match random.below(2) {
            0 => (r#""on_error":"continue","#, "always"),
            _ => ("", "once"),
        };
        let mut made = Self {
            outer: Vec::new(),
            middle: chain(random, "m", true, fails),
            inner: chain(random, "i", false, fails),
            settings: format!(r#"{{{on_error}"signals":{{"a":{{}},"b":{{}}}},"channels":{{"log":"append"}}}}"#),
        };
        let count = 1 + random.below(3);
        let (mut lasts, mut firsts) = (Vec::new(), Vec::new());
        made.outer.push(("all".to_owned(), String::new()));
        for branch in 0..count {
            firsts.push(format!(r#"{{"to":"b{branch}"}}"#));
            lasts.push(made.outer.len().to_string());
            let name = format!("b{branch}");
            let body = match random.below(6) {
                0 => node(random, &name, "met", false, fails),
                1 | 2 => list(random, &name),
                _ => format!(
                    r#"{{"line":1,"does":{{"action":1}},"params":{{"n":"{name}"}},{}{},"next":[{{"to":"met"}}]}}"#,
                    shared(random),
                    log(&name)
                ),
            };
            made.outer.push((name, body));
        }
        made.outer[0].1 = format!(r#"{{"line":1,"does":"gate","next":{{"all":[{}]}}}}"#, firsts.join(","));
        let quorum = match count > 1 && random.below(4) == 0 {
            true => format!(r#","quorum":{{"need":{},"rest":"cancel"}}"#, 1 + random.below(count - 1)),
            false => String::new(),
        };
        let join = format!(r#""join":{{"of":[{}],"fan":0,"closes":true{quorum}}}"#, lasts.join(","));
        made.outer.push(("met".to_owned(), format!(r#"{{"line":1,"does":"gate",{join},"next":[{{"to":"done"}}]}}"#)));
        made.outer.push(("done".to_owned(), r#"{"line":1,"does":"return","output":{"log":"${state.log}","lists":["${state.b0}","${state.b1}","${state.b2}"]}}"#.to_owned()));
        made
    }

    fn graph(&self, calls: &Calls) -> Interpreted {
        let make = |id, digest, nodes: &[(String, String)]| {
            let nodes: Vec<(&str, &str)> = nodes.iter().map(|(name, body)| (name.as_str(), body.as_str())).collect();
            let program = Program {
                id,
                digest,
                keys: &[
                    Key { name: "log", initial: Some("[]") },
                    Key { name: "b0", initial: None },
                    Key { name: "b1", initial: None },
                    Key { name: "b2", initial: None },
                ],
                tools: &[PROGRAM.tools[0], GRAPH],
                permissions: &["rye.execute.tool.*"],
                settings: &self.settings,
                nodes: &nodes,
                ..PROGRAM
            };
            performing(&program, calls)
        };
        let [outer, middle, inner] = ["1", "2", "3"].map(|digit| digit.repeat(64));
        let inner = make("test/inner", &inner, &self.inner);
        make("test/outer", &outer, &self.outer).nesting(make("test/middle", &middle, &self.middle).nesting(inner))
    }
}

fn log(name: &str) -> String {
    LOG.replace("NAME", name)
}

/// A list that runs a graph for each element.
fn list(random: &mut Random, name: &str) -> String {
    let items: Vec<String> = (0..1 + random.below(3)).map(|item| format!(r#""{name}.{item}""#)).collect();
    let width = 1 + random.below(2);
    let each = format!(r#"{{"over":[{}],"as":"n","collect":"{name}","width":{width}}}"#, items.join(","));
    format!(r#"{{"line":1,"does":{{"foreach":1}},"params":{{"n":"${{n}}"}},"each":{each},"next":[{{"to":"met"}}]}}"#)
}

/// The nodes of a graph without branches.
fn chain(random: &mut Random, prefix: &str, nests: bool, fails: &str) -> Vec<(String, String)> {
    let count = 1 + random.below(3);
    let mut nodes = Vec::new();
    for place in 0..count {
        let name = format!("{prefix}{place}");
        let next = if place + 1 == count { "done".to_owned() } else { format!("{prefix}{}", place + 1) };
        let body = node(random, &name, &next, nests, fails);
        nodes.push((name, body.replace("\"NEXT\"", &(place + 1).to_string())));
    }
    let output = r#"{"line":1,"does":"return","output":{"log":"${state.log}","n":"${inputs.n}"}}"#;
    nodes.push(("done".to_owned(), output.to_owned()));
    nodes
}

/// A node that calls a tool or, if it `nests`, a graph, fails, asks, or waits.
fn node(random: &mut Random, name: &str, next: &str, nests: bool, fails: &str) -> String {
    let tail = format!(r#"{},"next":[{{"to":"{next}"}}]"#, log(name));
    match random.below(if nests { 9 } else { 7 }) {
        0 => format!(r#"{{"line":1,"does":{{"action":0}},"params":{{"at":"{name}","n":"${{inputs.n}}"}},{tail}}}"#),
        1 => format!(
            r#"{{"line":1,"does":{{"action":0}},"params":{{"at":"{name}","n":"${{inputs.n}}","fails":"{fails}"}},{tail}}}"#
        ),
        2 => format!(r#"{{"line":1,"does":"interrupt","wait":{{"ask":{{"payload":"{name}","count":1}}}},{tail}}}"#),
        3 => format!(
            r#"{{"line":1,"does":{{"action":0}},"params":{{"at":"{name}","n":"${{inputs.n}}","asks":{}}},"wait":{{"ask":{{"count":1}}}},{tail}}}"#,
            1 + random.below(2)
        ),
        4 => format!(
            r#"{{"line":1,"does":"wait","wait":{{"timeout_ms":{}}},{tail}}}"#,
            (1 + random.below(3)) * 3_600_000
        ),
        5 | 6 => {
            let signals = if random.below(2) == 0 { r#"["a"]"# } else { r#"["a","b"]"# };
            format!(r#"{{"line":1,"does":"wait","wait":{{"signals":{signals}}},{tail}}}"#)
        }
        _ => format!(r#"{{"line":1,"does":{{"action":1}},"params":{{"n":"${{inputs.n}}"}},{}{tail}}}"#, shared(random)),
    }
}

/// The signals that a node shares with the graph that it runs.
fn shared(random: &mut Random) -> &'static str {
    ["", r#""share_signals":["a"],"#, r#""share_signals":["a","b"],"#][usize::try_from(random.below(3)).unwrap()]
}

/// Something that happens to a run from outside. The first number chooses a wait that is open.
#[derive(Debug, Clone, Copy)]
enum Happening {
    /// A signal for the run of the wait or one around it, whether it listens or not.
    Signal(u64, &'static str),
    /// An answer, or a signal that the wait listens to.
    Ends(u64, &'static str),
    Minutes(u64),
}

/// A run after all that happened to it.
struct Played {
    store: MemoryStore,
    graph: Interpreted,
    calls: Calls,
    output: Option<Value>,
    /// The names of the signals and answers that it received, in order.
    received: Vec<String>,
}

/// Sends what a wait waits for. Returns the name, if the run has received it.
async fn end_wait(
    runtime: &Runtime,
    graph: &Interpreted,
    ann: &SecretKey,
    pick: u64,
    decision: &str,
    number: usize,
    what: &str,
) -> Option<String> {
    let Ok(RunOutcome::Waiting { waits, .. }) = runtime.outcome(graph, &id("run")).await else { return None };
    let heard: Vec<_> = waits.into_iter().filter(|wait| !wait.signals.is_empty()).collect();
    let wait = heard.get(usize::try_from(pick).unwrap().checked_rem(heard.len())?)?;
    if wait.ask.is_some() {
        let questions = runtime.questions(graph, &id("run")).await.unwrap();
        let question = questions.iter().find(|question| question.wait == wait.id.as_str()).expect("it is asked");
        assert_eq!(question.node, wait.node);
        let answer = NamedAnswer::new(wait.node.as_str(), json!({ "decision": decision }));
        let answered = runtime.answer(graph, &id("run"), &question.sign(answer, ann).unwrap()).await.unwrap();
        assert_eq!(answered, Answered::Accepted, "{} {what}", wait.id);
        return Some(wait.id.to_string());
    }
    let name = &wait.signals[number % wait.signals.len()];
    let signal = NamedSignal::new(name.as_str(), json!(number));
    runtime.signal(graph, &id("run"), signal, format!("id-{number}")).await.unwrap();
    Some(name.clone())
}

/// Runs a graph while things happen to it, and fails a write of its store. It runs to its end.
async fn played(
    durability: Durability,
    made: &Nest,
    happenings: &[Happening],
    crash: Option<(u64, bool)>,
    what: &str,
) -> Played {
    let ((memory, clock), calls, people) = (store(), Calls::default(), People::default());
    let ann = people.add(20, "Ann", &[]);
    let (graph, plain) = (made.graph(&calls), answering(memory.clone(), &people));
    let mut played = Played { store: memory.clone(), graph: graph.clone(), calls, output: None, received: Vec::new() };
    let failing = crash.map(|(writes, is_written)| runtime(failing(&memory, writes, is_written)));
    let mut crashing = failing.as_ref();
    let options = Options { run: Some(id("run")), durability, ..Options::default() };
    let (mut is_new, mut number) = (true, 0);
    let rest =
        (0..200).map(|at| Some(if at % 4 == 3 { Happening::Minutes(200) } else { Happening::Ends(at, "approve") }));
    for happening in std::iter::once(None).chain(happenings.iter().copied().map(Some)).chain(rest) {
        number += 1;
        match happening {
            Some(Happening::Signal(pick, name)) => {
                if let Ok(RunOutcome::Waiting { waits, .. }) = plain.outcome(&graph, &id("run")).await {
                    let wait = &waits[usize::try_from(pick).unwrap() % waits.len()];
                    let path = wait.id.as_str().rfind('/').map_or("", |at| &wait.id.as_str()[..=at]);
                    let ends: Vec<usize> = path.match_indices('/').map(|(at, _)| at + 1).chain([0]).collect();
                    let path = &path[..ends[usize::try_from(pick / 7).unwrap() % ends.len()]];
                    let signal = NamedSignal::new(format!("{path}{name}"), json!(number));
                    played.received.push(signal.name.clone());
                    plain.signal(&graph, &id("run"), signal, format!("id-{number}")).await.unwrap();
                }
            }
            Some(Happening::Ends(pick, decision)) => {
                played.received.extend(end_wait(&plain, &graph, &ann, pick, decision, number, what).await);
            }
            Some(Happening::Minutes(minutes)) => clock.advance(Duration::from_secs(60 * minutes)),
            None => {}
        }
        // A call that failed is made again at once, and a store that failed is there again.
        for _ in 0..20 {
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
                    return played;
                }
                Err(RunError::Waiting { waits, .. }) => {
                    let known = plain.open_waits(&WaitFilter::default(), &Page::default()).await.unwrap().waits;
                    let ids = |waits: Vec<String>| waits.into_iter().collect::<BTreeSet<_>>();
                    assert_eq!(
                        ids(known.into_iter().map(|row| row.wait.id.to_string()).collect()),
                        ids(waits.into_iter().map(|wait| wait.id.to_string()).collect()),
                        "the store knows the waits of the run"
                    );
                    break;
                }
                Err(RunError::Store { .. }) => crashing = None,
                Err(_) => {}
            }
        }
    }
    played
}

/// Returns the calls on the way to a nested run, by its id: `run-5_2-7-again1` is the run of `5.2` and `7~2`.
fn calls_of(run: &str) -> Vec<String> {
    let mut calls: Vec<String> = Vec::new();
    for part in run.split('-').skip(1) {
        match part.strip_prefix("again") {
            Some(again) => write!(calls.last_mut().unwrap(), "~{}", again.parse::<u64>().unwrap() + 1).unwrap(),
            None => calls.push(part.replace('_', ".")),
        }
    }
    calls
}

/// Returns the path of these calls.
fn path_of(calls: &[String]) -> String {
    calls.iter().map(|call| format!("{call}/")).collect()
}

/// Checks the runs of a store independent of the engine: a signal or answer was taken once, by the run that it was sent to or one that
/// this run and those between them share it with, and every run has ended. Returns how many signals and answers ended waits, and how
/// many of them were shared.
async fn check_runs(made: &Nest, played: &Played, has_quorum: bool, may_be_left: bool, what: &str) -> (usize, usize) {
    let key = SecretKey::from_seed(&KEY).public();
    let (mut taken, mut handed) = (BTreeMap::new(), BTreeSet::new());
    for run in played.store.list().await.unwrap() {
        let is_open = !run.status.has_ended();
        assert!(may_be_left || !is_open, "{} is {}: {what}", run.run, run.status.name());
        let signed = records(&played.store, &run.run).await;
        let calls = calls_of(run.run.as_str());
        for record in Follower::new(run.run.clone(), key.clone()).read(&signed).unwrap() {
            let Entry::Take(take) = &record.entry else { continue };
            for one in &take.taken {
                let Some(signal) = &one.signal else { continue };
                let name = &played.received[usize::try_from(signal.order - 1).unwrap()];
                assert_eq!(*name, signal.name, "{what}");
                if one.call > 0 {
                    let call = if one.call > 1 { format!("~{}", one.call) } else { String::new() };
                    let inner = [&calls[..], &[format!("{}{call}", one.step)]].concat();
                    let is_first = handed.insert((signal.order, inner));
                    assert!(is_first, "{what}: signal {} is handed over once", signal.order);
                    continue;
                }
                let first = taken.insert(signal.order, calls.clone());
                assert!(first.is_none(), "{what}: signal {} is taken once", signal.order);
            }
        }
    }
    let mut shared = 0;
    for (order, calls) in &taken {
        let name = &played.received[usize::try_from(order - 1).unwrap()];
        let found = name.rfind('/').map_or("", |at| &name[..=at]);
        let own = (0..=calls.len()).find(|own| path_of(&calls[..*own]) == found);
        assert!(own.is_some(), "{what}: `{name}` was taken by {calls:?}");
        let own = own.unwrap_or_default();
        shared += usize::from(own < calls.len());
        assert!(own == calls.len() || !name.contains('#'), "{what}: `{name}` is for one run");
        let between: BTreeSet<_> = (own + 1..=calls.len()).map(|to| (*order, calls[..to].to_vec())).collect();
        let known: BTreeSet<_> = handed.iter().filter(|(handed, _)| handed == order).cloned().collect();
        assert_eq!(between, known, "{what}: `{name}` is handed over to where it is taken");
    }
    assert!(shared == 0 || made.shares(), "{what}: no node shares a signal");
    for left in played.store.inbox(&id("run")).await.unwrap().signals {
        let order = left.place.order;
        assert!(taken.insert(order, Vec::new()).is_none(), "{what}: what was taken is not in the inbox");
        assert!(handed.iter().all(|(handed, _)| *handed != order), "{what}: what was handed over is not in the inbox");
    }
    // Only signals that no wait of a nested run took before its end leave the inbox otherwise.
    for (order, name) in (1..).zip(&played.received).filter(|(order, _)| !taken.contains_key(order)) {
        let is_answer = name.contains('#');
        let is_handed = handed.iter().any(|(handed, _)| *handed == order);
        let may_leave = if is_handed || is_answer { has_quorum } else { name.contains('/') };
        assert!(may_leave, "{what}: signal {order}, `{name}`, is lost");
    }
    (taken.len(), shared)
}

/// The elements of the log, whose order depends on the steps in which branches were made, and the lists.
fn sorted(output: Option<&Value>) -> Option<Vec<String>> {
    let mut all: Vec<String> = output?["log"].as_array().unwrap().iter().map(ToString::to_string).collect();
    all.sort_unstable();
    all.push(output?["lists"].to_string());
    Some(all)
}

async fn check_nest(seed: u64) -> (usize, usize, usize) {
    let mut random = Random::new(seed);
    let made = Nest::random(&mut random);
    let happening = |random: &mut Random| {
        let (pick, name) = (random.below(1000), NAMES[usize::try_from(random.below(2)).unwrap()]);
        match random.below(5) {
            0 => Happening::Minutes(random.below(150)),
            1 => Happening::Signal(pick, name),
            _ => Happening::Ends(pick, ["approve", "refuse"][usize::try_from(random.below(2)).unwrap()]),
        }
    };
    let happenings: Vec<Happening> = (0..random.below(6)).map(|_| happening(&mut random)).collect();
    let mut what = format!("SEED={seed} {}\n{happenings:?}\n", made.settings);
    for nodes in [&made.outer, &made.middle, &made.inner] {
        nodes.iter().for_each(|(name, body)| writeln!(what, "{name}: {body}").unwrap());
    }
    let key = SecretKey::from_seed(&KEY).public();
    let whole = played(Durability::Sync, &made, &happenings, None, &what).await;
    assert!(whole.output.is_some(), "it ends: {what}");
    let (mut cases, mut ended, mut shared, mut writes) = (0, 0, 0, 0);
    for run in whole.store.list().await.unwrap() {
        writes += records(&whole.store, &run.run).await.len() as u64;
    }
    let has_quorum = made.outer.iter().any(|(_, body)| body.contains("quorum"));
    // A nest has hundreds of writes: some of them fail.
    let mut crashes: Vec<(u64, bool)> = (0..writes).flat_map(|write| [(write, false), (write, true)]).collect();
    while crashes.len() > MOST_CRASHES {
        crashes.swap_remove(usize::try_from(random.below(crashes.len() as u64)).unwrap());
    }
    for crash in std::iter::once(None).chain(crashes.into_iter().map(Some)) {
        let durability =
            [Durability::Sync, Durability::Async, Durability::Exit][usize::try_from(random.below(3)).unwrap()];
        let what = format!("{crash:?} {durability:?} {what}");
        let played = played(durability, &made, &happenings, crash, &what).await;
        assert!(played.output.is_some(), "it ends: {what}");
        // A crash may decide which branches of a quorum come first.
        if !has_quorum {
            assert_eq!(sorted(played.output.as_ref()), sorted(whole.output.as_ref()), "{what}");
            assert_eq!(played.received, whole.received, "{what}");
        }
        let proven = audit_tree(Arc::new(played.graph.clone()), &id("run"), &played.store, &key, None).await;
        let proven = proven.map_err(|error| format!("{error}\n{what}")).unwrap();
        let count =
            played.store.runs(&RunFilter::default(), &Page { size: 1000, after: None }).await.unwrap().runs.len();
        // A step that is not written yet, and is cancelled, leaves the runs that it began.
        let may_leave = has_quorum && durability != Durability::Sync;
        assert!(proven.len() == count || (may_leave && proven.len() < count), "each run is proven: {what}");
        let signed = records(&played.store, &id("run")).await;
        let replayed = replay(&played.graph, &played.graph, &id("run"), &signed, &key, None).unwrap();
        assert!(replayed.deviations.is_empty() && replayed.stopped.is_none(), "{replayed:?} {what}");
        let (more, by_sharing) = check_runs(&made, &played, has_quorum, has_quorum && crash.is_some(), &what).await;
        (ended, shared) = (ended + more, shared + by_sharing);
        // A call is made again only if it fails, or if its process died before it was written, and then with the same key.
        let again: usize = played
            .calls
            .lock()
            .unwrap()
            .iter()
            .map(|(params, keys)| {
                let once: BTreeSet<&String> = keys.iter().collect();
                // A tool is called again with each answer.
                let asks = serde_json::from_str::<Value>(params).unwrap()["asks"].as_u64().unwrap_or_default();
                keys.len().saturating_sub(once.len() * (1 + usize::try_from(asks).unwrap()))
            })
            .sum();
        let has = |word: &str| played.calls.lock().unwrap().keys().filter(|params| params.contains(word)).count();
        // A step that fails is made again, with the tools in it that have asked and not returned.
        let fails = has("once") * (1 + has("asks"));
        let at_once = made.outer.len() * 2;
        assert!(again <= fails + at_once || durability != Durability::Sync, "{again} calls were made again: {what}");
        assert!(
            crash.is_some() || again <= fails || durability != Durability::Sync,
            "{again} calls were made again: {what}"
        );
        cases += 1;
    }
    (cases, ended, shared)
}

/// `NESTS=1000 cargo test --release -p state-graph-runtime --test runtime nested_runs_wait` takes minutes. `SEED` sets the first seed.
#[tokio::test]
async fn nested_runs_wait_in_any_order_and_after_any_crash() {
    let number = |name: &str, otherwise| env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise);
    let (count, seed) = (number("NESTS", 12), number("SEED", 1));
    let (mut cases, mut ended, mut shared) = (0, 0, 0);
    for seed in seed..seed + count {
        let (more, signals, by_sharing) = check_nest(seed).await;
        (cases, ended, shared) = (cases + more, ended + signals, shared + by_sharing);
    }
    println!("{cases} cases, {ended} waits ended by signals or answers, {shared} of them by signals that were shared");
    assert!(cases as u64 > count && ended as u64 > count && shared as u64 > count, "{cases} {ended} {shared}");
}

/// A call that fails so many times, and a wait for a signal behind it.
fn failing_at_first(calls: &Calls, fails: u64, settings: &str, next: &str) -> Interpreted {
    let inner = Program {
        id: "test/inner",
        settings: r#"{"signals":{"ok":{}}}"#,
        nodes: &[
            ("begin", r#"{"line":1,"does":{"action":0},"params":{"begin":true},"next":[{"to":"ask"}]}"#),
            ("ask", r#"{"line":2,"does":"wait","wait":{"signals":["ok"]},"next":[{"to":"done"}]}"#),
            ("done", r#"{"line":3,"does":"return","output":"inner"}"#),
        ],
        ..PROGRAM
    };
    let outer =
        format!(r#"{{"line":1,"does":{{"action":0}},"retry":{{"attempts":4,"delay_ms":0,"on":["any"]}},{next}}}"#);
    let outer = Program {
        tools: &[GRAPH],
        permissions: &["rye.execute.tool.test.tool"],
        settings,
        nodes: &[
            ("run", outer.as_str()),
            ("done", r#"{"line":2,"does":"return","output":"done"}"#),
            ("sad", r#"{"line":3,"does":"return","output":"sad"}"#),
        ],
        ..PROGRAM
    };
    let calls = Arc::clone(calls);
    let inner = Interpreted::new(&inner, move |call, params| {
        let mut calls = calls.lock().unwrap();
        let keys = calls.entry(params.to_string()).or_default();
        keys.push(call.idempotency_key().to_string());
        if keys.len() as u64 <= fails { Err(ActionError::permanent("it fails")) } else { Ok(params) }
    });
    Interpreted::new(&outer, |_, _| Ok(Value::Null)).nesting(inner)
}

/// A call that was made again and waits is the one that continues.
#[tokio::test]
async fn a_call_that_was_made_again_continues_where_it_waits() {
    let ((store, _), calls) = (store(), Calls::default());
    let graph = failing_at_first(&calls, 2, "{}", r#""next":[{"to":"done"}]"#);
    let (run, runtime) = (id("run"), runtime(store.clone()));
    let started = runtime.start_as(run.clone(), graph.clone(), Map::new()).await.unwrap();
    assert_eq!(ids(started.await.unwrap_err()), ["1~3/2#1"]);
    // Woken for nothing, it stays where it is.
    let proposed = NamedSignal::new("1~3/ok", json!(1));
    assert_eq!(ids(runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap_err()), ["1~3/2#1"]);
    runtime.signal(&graph, &run, proposed, "a").await.unwrap();
    let finished = runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap();
    assert_eq!(finished.output, "done");
    assert_eq!(calls.lock().unwrap().values().map(Vec::len).collect::<Vec<_>>(), [3]);
    assert_proven(&store, &graph, &run, Status::Completed).await;
    assert!(store.inbox(&run).await.unwrap().signals.is_empty());
}

/// Nobody would read a signal to a nested run itself.
#[tokio::test]
async fn a_nested_run_receives_nothing_by_itself() {
    let ((store, _), calls) = (store(), Calls::default());
    let graph = failing_at_first(&calls, 0, "{}", r#""next":[{"to":"done"}]"#);
    let (run, runtime) = (id("run"), runtime(store.clone()));
    runtime.start_as(run.clone(), graph.clone(), Map::new()).await.unwrap().await.unwrap_err();
    let sent = runtime.signal(&graph.inside(), &id("run-1"), NamedSignal::new("ok", json!(1)), "a").await;
    let expected = "run `run-1` is inside run `run`: name the outermost run";
    assert!(sent.unwrap_err().to_string().starts_with(expected));
    let asked = runtime.questions(&graph.inside(), &id("run-1")).await.unwrap_err();
    assert!(asked.to_string().starts_with(expected), "{asked}");
}

/// A nested run whose graph was changed strands nobody: the run around it waits until the old graph is there again.
#[tokio::test]
async fn a_changed_nested_graph_fails_no_node() {
    let ((store, _), calls) = (store(), Calls::default());
    let next = r#""on_error":2,"next":[{"to":"done"}]"#;
    let graph = failing_at_first(&calls, 0, "{}", next);
    let (run, runtime) = (id("run"), runtime(store.clone()));
    runtime.start_as(run.clone(), graph.clone(), Map::new()).await.unwrap().await.unwrap_err();
    runtime.signal(&graph, &run, NamedSignal::new("1/ok", json!(1)), "a").await.unwrap();
    let other = Program {
        id: "test/inner",
        digest: &"7".repeat(64),
        nodes: &[("done", r#"{"line":3,"does":"return"}"#)],
        ..PROGRAM
    };
    let changed = graph.clone().nesting(Interpreted::new(&other, |_, _| Ok(Value::Null)));
    let before = records(&store, &run).await.len();
    let error = runtime.resume(changed, &run).await.unwrap_err();
    assert!(matches!(error, ResumeError::Stored(StoredRunError::AnotherGraph { .. })), "{error}");
    assert_eq!(records(&store, &run).await.len(), before);
    let finished = runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap();
    assert_eq!(finished.output, "done");
    assert_proven(&store, &graph, &run, Status::Completed).await;
}

/// The end of a nested run whose time is over is a failure of its node, which an audit knows.
#[tokio::test]
async fn a_nested_run_whose_time_is_over_fails_its_node() {
    let ((store, clock), calls) = (store(), Calls::default());
    let graph = failing_at_first(&calls, 0, "{}", r#""on_error":2,"next":[{"to":"done"}]"#);
    let inner = Program {
        id: "test/inner",
        settings: r#"{"signals":{"ok":{}},"deadline_ms":3000}"#,
        nodes: &[
            ("ask", r#"{"line":2,"does":"wait","wait":{"signals":["ok"]},"next":[{"to":"done"}]}"#),
            ("done", r#"{"line":3,"does":"return","output":"inner"}"#),
        ],
        ..PROGRAM
    };
    let graph = graph.nesting(Interpreted::new(&inner, |_, _| Ok(Value::Null)));
    let (run, runtime) = (id("run"), runtime(store.clone()));
    let started = runtime.start_as(run.clone(), graph.clone(), Map::new()).await.unwrap();
    let mut left = started.await;
    for call in 1..4 {
        let path = if call == 1 { "1/".to_owned() } else { format!("1~{call}/") };
        assert_eq!(ids(left.unwrap_err()), [format!("{path}1#1"), format!("{path}deadline")]);
        clock.advance(Duration::from_secs(3));
        left = runtime.resume(graph.clone(), &run).await.unwrap().await;
    }
    assert_eq!(ids(left.unwrap_err()), ["1~4/1#1", "1~4/deadline"]);
    clock.advance(Duration::from_secs(3));
    let finished = runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap();
    assert_eq!(finished.output, "sad");
    assert_proven(&store, &graph, &run, Status::Completed).await;
}

/// Signals that no nested run receives any more leave the inbox, and nested runs that nothing needs end.
#[tokio::test]
async fn nothing_is_left_of_nested_runs_that_are_over() {
    let ((store, _), people, calls) = (store(), People::default(), Calls::default());
    let ann = people.add(11, "Ann", &["refunds"]);
    let (graph, run, runtime) = (order(&calls), id("order"), answering(store.clone(), &people));
    let started = runtime.start_as(run.clone(), graph.clone(), inputs(json!([1, 2]))).await.unwrap();
    started.await.unwrap_err();
    // More payments than one wait takes.
    for number in 0..3 {
        let paid = NamedSignal::new("1.0/paid", json!(number));
        runtime.signal(&graph, &run, paid, format!("payment-{number}")).await.unwrap();
    }
    let questions = runtime.questions(&graph, &run).await.unwrap();
    let answer = NamedAnswer::new("approve", json!({"decision": "approve"}));
    runtime.answer(&graph, &run, &questions[0].sign(answer.clone(), &ann).unwrap()).await.unwrap();
    assert_eq!(ids(runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap_err()), ["1.1/2#1"]);
    assert!(store.inbox(&run).await.unwrap().signals.is_empty(), "nobody takes them any more");
    runtime.answer(&graph, &run, &questions[1].sign(answer, &ann).unwrap()).await.unwrap();
    assert_eq!(ids(runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap_err()), ["1.1/3#1"]);
}

/// A run that completes although a nested one failed leaves no run that waits.
#[tokio::test]
async fn a_run_that_completes_ends_what_still_waits_inside() {
    let ((store, _), calls) = (store(), Calls::default());
    let middle = Program { id: "test/middle", digest: &"8".repeat(64), ..ORDER };
    let refund = Program {
        nodes: &[
            ("price", r#"{"line":1,"does":{"action":0},"params":{"fails":"${inputs.n}"},"next":[{"to":"approve"}]}"#),
            ("approve", REFUND.nodes[1].1),
            ("money", REFUND.nodes[2].1),
            ("ship", REFUND.nodes[3].1),
            ("done", REFUND.nodes[4].1),
        ],
        ..REFUND
    };
    let outer = Program {
        tools: &[GRAPH],
        permissions: &["rye.execute.tool.test.tool"],
        nodes: &[
            (
                "run",
                r#"{"line":1,"does":{"action":0},"params":{"list":["no","always"]},"on_error":2,"next":[{"to":"done"}]}"#,
            ),
            ("done", r#"{"line":2,"does":"return","output":"done"}"#),
            ("sad", r#"{"line":3,"does":"return","output":"sad"}"#),
        ],
        ..PROGRAM
    };
    let middle = performing(&middle, &calls).nesting(performing(&refund, &calls));
    let (graph, run, runtime) = (performing(&outer, &calls).nesting(middle), id("run"), runtime(store.clone()));
    let finished = runtime.start_as(run.clone(), graph.clone(), Map::new()).await.unwrap().await.unwrap();
    assert_eq!(finished.output, "sad");
    let statuses: Vec<Status> = store.list().await.unwrap().into_iter().map(|run| run.status).collect();
    assert!(statuses.contains(&Status::Cancelled) && !statuses.contains(&Status::Waiting), "{statuses:?}");
    assert_proven(&store, &graph, &run, Status::Completed).await;
}

/// An audit of a visit that is left many times takes time in proportion, and not twice as long for each time.
#[tokio::test]
async fn a_visit_is_left_many_times() {
    let chain: Vec<(String, String)> = (0..40)
        .map(|at| {
            let wait = r#"{"line":1,"does":"wait","wait":{"timeout_ms":3600000},"next":[{"to":"NEXT"}]}"#;
            let next = if at == 39 { "done".to_owned() } else { format!("wait{}", at + 1) };
            (format!("wait{at}"), wait.replace("NEXT", &next))
        })
        .chain([("done".to_owned(), r#"{"line":2,"does":"return","output":1}"#.to_owned())])
        .collect();
    let chain: Vec<(&str, &str)> = chain.iter().map(|(name, body)| (name.as_str(), body.as_str())).collect();
    let inner = Interpreted::new(&Program { id: "test/inner", nodes: &chain, ..PROGRAM }, |_, _| Ok(Value::Null));
    let nodes = [
        ("run", r#"{"line":1,"does":{"action":0},"params":{},"next":[{"to":"done"}]}"#),
        ("done", r#"{"line":2,"does":"return","output":"done"}"#),
    ];
    let outer = Program { tools: &[GRAPH], permissions: &["rye.execute.tool.test.tool"], nodes: &nodes, ..PROGRAM };
    let graph = Interpreted::new(&outer, |_, _| Ok(Value::Null)).nesting(inner);
    let ((store, clock), run) = (store(), id("run"));
    let runtime = runtime(store.clone());
    let mut left = runtime.start_as(run.clone(), graph.clone(), Map::new()).await.unwrap().await;
    for _ in 0..40 {
        assert!(matches!(left, Err(RunError::Waiting { .. })), "{left:?}");
        clock.advance(Duration::from_secs(3600));
        left = runtime.resume(graph.clone(), &run).await.unwrap().await;
        let key = SecretKey::from_seed(&KEY).public();
        audit_tree(Arc::new(graph.clone()), &run, &store, &key, None).await.unwrap();
    }
    assert_eq!(left.unwrap().output, json!("done"));
}

/// A list that stopped at a failure, so that the other items began no runs, does not keep a run from continuing.
#[tokio::test]
async fn a_list_that_stopped_in_a_branch_is_no_obstacle() {
    let inner = Program {
        id: "test/inner",
        nodes: &[
            ("call", r#"{"line":1,"does":{"action":0},"params":"${inputs.n}","next":[{"to":"done"}]}"#),
            ("done", r#"{"line":2,"does":"return","output":1}"#),
        ],
        ..PROGRAM
    };
    let inner = Interpreted::new(&inner, |_, _| Err(ActionError::permanent("it fails")));
    let nodes = [
        ("all", r#"{"line":1,"does":"gate","next":{"all":[{"to":"list"},{"to":"wait"}],"on_branch_error":"collect"}}"#),
        (
            "list",
            r#"{"line":2,"does":{"foreach":0},"params":{"n":"${n}"},"each":{"over":[1,2,3],"as":"n","collect":"list","width":1},"next":[{"to":"met"}]}"#,
        ),
        ("wait", r#"{"line":3,"does":"wait","wait":{"timeout_ms":3600000},"next":[{"to":"met"}]}"#),
        ("met", r#"{"line":4,"does":"gate","join":{"of":[1,2],"fan":0,"closes":true},"next":[{"to":"done"}]}"#),
        ("done", r#"{"line":5,"does":"return","output":"done"}"#),
    ];
    let outer = Program {
        tools: &[GRAPH],
        permissions: &["rye.execute.tool.test.tool"],
        keys: &[Key { name: "list", initial: None }],
        nodes: &nodes,
        ..PROGRAM
    };
    let graph = Interpreted::new(&outer, |_, _| Ok(Value::Null)).nesting(inner);
    let ((store, clock), run) = (store(), id("run"));
    let runtime = runtime(store.clone());
    let left = runtime.start_as(run.clone(), graph.clone(), Map::new()).await.unwrap().await;
    assert!(matches!(left, Err(RunError::Waiting { .. })), "{left:?}");
    clock.advance(Duration::from_secs(3600));
    let finished = runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap();
    assert_eq!(finished.output, json!("done"));
    let key = SecretKey::from_seed(&KEY).public();
    audit_tree(Arc::new(graph.clone()), &run, &store, &key, None).await.unwrap();
}

/// The id of a nested run has the number of its visit. The steps before it are durable when it begins, so that the number belongs to the
/// same node after a crash, whatever the tools return then.
#[tokio::test]
async fn a_nested_run_begins_when_the_steps_around_it_are_durable() {
    let calls = Calls::default();
    let inner = failing_at_first(&calls, 0, "{}", r#""next":[{"to":"done"}]"#).inside();
    let nodes = [
        (
            "toss",
            r#"{"line":1,"does":{"action":0},"params":"toss","next":[{"to":"one","when":{"path":"result","op":"eq","value":1}},{"to":"other"}]}"#,
        ),
        ("one", r#"{"line":2,"does":{"action":1},"next":[{"to":"done"}]}"#),
        ("other", r#"{"line":3,"does":{"action":1},"next":[{"to":"done"}]}"#),
        ("done", r#"{"line":4,"does":"return","output":"done"}"#),
    ];
    let program =
        Program { tools: &[PROGRAM.tools[0], GRAPH], permissions: &["rye.execute.tool.*"], nodes: &nodes, ..PROGRAM };
    for (writes, durability) in (0..6).flat_map(|writes| [(writes, Durability::Async), (writes, Durability::Exit)]) {
        let ((store, _), run, tosses) = (store(), id("run"), std::sync::atomic::AtomicU64::new(0));
        let graph = Interpreted::new(&program, move |_, _| {
            Ok(json!(1 + tosses.fetch_add(1, std::sync::atomic::Ordering::Relaxed)))
        });
        let graph = graph.nesting(inner.clone());
        let options = Options { run: Some(run.clone()), durability, ..Options::default() };
        let failing = runtime(failing(&store, writes, false));
        let plain = runtime(store.clone());
        let mut left = failing.start_with(options.clone(), graph.clone(), Map::new()).await.unwrap().await;
        for _ in 0..3 {
            match left {
                Err(RunError::Waiting { ref waits, .. }) => {
                    let signal = NamedSignal::new(waits[0].signals[0].as_str(), json!(1));
                    plain.signal(&graph, &run, signal, "a").await.unwrap();
                }
                Err(RunError::Store { .. }) => {}
                left => unreachable!("{writes} {durability:?}: {left:?}"),
            }
            left = plain.resume_with(options.clone(), graph.clone(), &run).await.unwrap().await;
            if left.is_ok() {
                break;
            }
        }
        assert_eq!(left.unwrap().output, "done", "{writes} {durability:?}");
        assert_proven(&store, &graph, &run, Status::Completed).await;
    }
}

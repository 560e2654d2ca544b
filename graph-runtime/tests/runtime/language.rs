//! Features of nodes besides a single call: lists, retries, hooks, limits, visits, nested graphs. Tokio's time is
//! paused.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use graph_runtime::__private::{Executor, ItemType, Key, Program, Tool, Verb};
use graph_runtime::{
    ActionError, Call, Control, Edges, Finished, HookContext, Hooks, Layer, Map, MemoryStore, Options, RunError, RunId,
    Runtime, SecretKey, Status, TokioClock, Value,
};
use serde_json::json;

use crate::interpreted::{Interpreted, PROGRAM};

const A: Key<'static> = Key { name: "a", initial: None };

fn builder() -> graph_runtime::Builder {
    let clock = TokioClock::at(SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000));
    Runtime::builder().grant("*").unwrap().clock(Arc::new(clock))
}

async fn run_on(runtime: Runtime, machine: Interpreted, inputs: Value) -> Result<Finished<Value>, RunError> {
    let inputs = inputs.as_object().unwrap().clone();
    runtime.start_as(RunId::new("run").unwrap(), machine, inputs).await.unwrap().await
}

async fn run(machine: Interpreted, inputs: Value) -> Result<Finished<Value>, RunError> {
    run_on(builder().build().unwrap(), machine, inputs).await
}

fn double(_: &Call, params: Value) -> Result<Value, ActionError> {
    match params["n"].as_i64() {
        Some(n) => Ok(json!(n * 2)),
        None => Err(ActionError::permanent(format!("{} is no number", params["n"]))),
    }
}

const FOREACH: &str = r#"{"line":1,"does":{"foreach":0},"params":{"n":"${item.n}"},"each":{"over":"${inputs.list}","as":"item","collect":"a","width":3},"next":[{"to":"done"}]"#;

fn foreach(settings: &'static str, on_error: &str) -> Interpreted {
    let body: &'static str = Box::leak(format!("{FOREACH}{on_error}}}").into_boxed_str());
    let nodes: &'static [(&str, &str)] = Box::leak(Box::new([
        ("each", body),
        ("done", r#"{"line":2,"does":"return"}"#),
        ("mend", r#"{"line":3,"does":"return","output":{"error":"${state._last_error.error}"}}"#),
    ]));
    Interpreted::new(&Program { keys: &[A], nodes, settings, ..PROGRAM }, double)
}

#[tokio::test(start_paused = true)]
async fn foreach_collects_results_in_the_order_of_its_items() {
    let list = json!({"list": [{"n": 3}, {"n": 1}, {"n": 2}, {"n": 0}, {"n": 9}]});
    assert_eq!(run(foreach("{}", ""), list).await.unwrap().output, json!({"a": [6, 2, 4, 0, 18]}));
    assert_eq!(run(foreach("{}", ""), json!({"list": []})).await.unwrap().output, json!({"a": []}));
    assert_eq!(run(foreach("{}", ""), json!({"list": null})).await.unwrap().output, json!({"a": []}));
    let error = run(foreach("{}", ""), json!({"list": "text"})).await.unwrap_err();
    assert_eq!(error.to_string(), "node `each` failed: `over` is a list, and found a string");
}

#[tokio::test(start_paused = true)]
async fn failed_item_obeys_on_error_and_the_others_keep_their_places() {
    let list = json!({"list": [{"n": 1}, {"n": "x"}, {"n": 3}, {"n": "y"}]});
    let error = run(foreach("{}", ""), list.clone()).await.unwrap_err();
    assert!(error.to_string().starts_with("node `each` failed: item 1: \"x\" is no number"), "{error}");
    let mended = run(foreach("{}", r#","on_error":2"#), list.clone()).await.unwrap();
    assert_eq!(mended.output, json!({"error": "item 1: \"x\" is no number, and 1 more"}));
    assert_eq!(mended.status, Status::Completed);
    let continued = run(foreach(r#"{"on_error":"continue"}"#, ""), list).await.unwrap();
    let failed = |what: &str| json!({"status": "error", "error": format!("\"{what}\" is no number")});
    assert_eq!(continued.output, json!({"a": [2, failed("x"), 6, failed("y")]}));
    assert_eq!(continued.status, Status::CompletedWithErrors);
    let errors: Vec<_> = continued.errors.iter().map(|error| error.error.as_str()).collect();
    assert_eq!(errors, ["item 1: \"x\" is no number", "item 3: \"y\" is no number"]);
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_items_are_never_more_than_sixty_four_at_a_time() {
    let (live, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let nodes = &[
        (
            "each",
            r#"{"line":1,"does":{"foreach":0},"params":"${n}","each":{"over":"${inputs.list}","as":"n","collect":"a","width":64},"next":[{"to":"done"}]}"#,
        ),
        ("done", r#"{"line":2,"does":"return"}"#),
    ];
    let (lives, mosts) = (Arc::clone(&live), Arc::clone(&most));
    let machine = Interpreted::waiting(&Program { keys: &[A], nodes, ..PROGRAM }, move |_, params| {
        let (live, most) = (Arc::clone(&lives), Arc::clone(&mosts));
        Box::pin(async move {
            most.fetch_max(live.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            // The later an item, the sooner its call returns.
            let n = params.as_u64().unwrap_or_default();
            tokio::time::sleep(Duration::from_millis(10_000 - n)).await;
            live.fetch_sub(1, Ordering::SeqCst);
            Ok(params)
        })
    });
    let list: Vec<u64> = (0..10_000).collect();
    let finished = run(machine, json!({"list": list})).await.unwrap();
    assert_eq!(finished.output["a"], json!((0..10_000).collect::<Vec<u64>>()));
    assert_eq!(most.load(Ordering::SeqCst), 64);
}

/// A graph with a node that fails `times` times before it succeeds, and the time of each call.
fn flaky(
    body: &'static str,
    settings: &'static str,
    times: usize,
    fail: fn() -> ActionError,
) -> (Interpreted, Arc<Mutex<Vec<Duration>>>) {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let nodes: &'static [(&str, &str)] = Box::leak(Box::new([
        ("call", body),
        ("done", r#"{"line":2,"does":"return","output":{"a":"${state.a}","retries":"${state._retries.call}"}}"#),
    ]));
    let (seen, began) = (Arc::clone(&calls), tokio::time::Instant::now());
    let machine = Interpreted::new(&Program { keys: &[A], nodes, settings, ..PROGRAM }, move |_, _| {
        let mut seen = seen.lock().unwrap();
        seen.push(began.elapsed());
        if seen.len() <= times { Err(fail()) } else { Ok(json!("done")) }
    });
    (machine, calls)
}

fn seconds(calls: &Mutex<Vec<Duration>>) -> Vec<f64> {
    calls.lock().unwrap().iter().map(|time| (time.as_secs_f64() * 10.0).round() / 10.0).collect()
}

const PLAIN: &str = r#"{"line":1,"does":{"action":0},"assign":{"a":"${result}"},"next":[{"to":"done"}]}"#;

#[tokio::test(start_paused = true)]
async fn transient_failures_are_retried_three_times() {
    let (machine, calls) = flaky(PLAIN, "{}", 2, || ActionError::transient("a hiccup"));
    assert_eq!(run(machine, json!({})).await.unwrap().output["a"], "done");
    assert_eq!(seconds(&calls), [0.0, 2.0, 6.0]);
    let (machine, calls) = flaky(PLAIN, "{}", 9, || ActionError::unclassified("connection refused"));
    assert_eq!(run(machine, json!({})).await.unwrap_err().to_string(), "node `call` failed: connection refused");
    assert_eq!(seconds(&calls), [0.0, 2.0, 6.0, 14.0]);
    let (machine, calls) = flaky(PLAIN, "{}", 9, || ActionError::permanent("timeout, says the text"));
    run(machine, json!({})).await.unwrap_err();
    assert_eq!(calls.lock().unwrap().len(), 1);
}

/// A tool that says so is called again only where the author does, also if the node gives the call up, and whatever came before.
#[tokio::test(start_paused = true)]
async fn a_call_that_must_not_happen_twice_is_not_repeated_by_itself() {
    let node =
        |more: &str| format!(r#"{{"line":2,"does":{{"action":0}},"params":{{"n":2}},"next":[{{"to":"done"}}]{more}}}"#);
    let own = r#","retry":{"attempts":3,"delay_ms":0}"#;
    let hook = r#"{"hooks":[{"event":"error","params":{"action":"retry","max_retries":1}}]}"#;
    let foreach = r#"{"line":2,"does":{"foreach":0},"each":{"over":[1,2],"as":"n","width":1},"params":{"n":"${n}"},"next":[{"to":"done"}]}"#;
    for (body, settings, says_from, stalls, expected) in [
        (node(""), "{}", 1, false, 1),
        (node(""), "{}", 3, false, 3),
        (node(""), "{}", 9, false, 4),
        (node(own), "{}", 1, false, 3),
        (node(""), hook, 1, false, 2),
        (node(r#","timeout_ms":1000"#), "{}", 1, true, 1),
        (node(r#","timeout_ms":1000"#), "{}", 9, true, 4),
        (foreach.to_owned(), "{}", 1, false, 1),
    ] {
        let nodes = [
            ("first", r#"{"line":1,"does":{"action":0},"params":{"n":0},"next":[{"to":"call"}]}"#),
            ("call", body.as_str()),
            ("done", r#"{"line":3,"does":"return"}"#),
        ];
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&calls);
        let machine = Interpreted::waiting(&Program { nodes: &nodes, settings, ..PROGRAM }, move |call, params| {
            let (counted, call) = (Arc::clone(&counted), call.clone());
            Box::pin(async move {
                if params["n"] == 0 {
                    // It succeeds, and its word does not hold for the next call.
                    call.happens_once();
                    return Ok(params);
                }
                if counted.fetch_add(1, Ordering::SeqCst) + 1 == says_from {
                    call.happens_once();
                }
                if stalls {
                    tokio::time::sleep(Duration::from_secs(60)).await;
                }
                Err(ActionError::transient("busy"))
            })
        });
        run(machine, json!({})).await.unwrap_err();
        assert_eq!(calls.load(Ordering::SeqCst), expected, "{body} {settings}, said by call {says_from}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_sets_its_own_retries() {
    let body = r#"{"line":1,"does":{"action":0},"assign":{"a":"${result}"},"next":[{"to":"done"}],"retry":{"attempts":4,"delay_ms":100,"factor":3.0,"max_delay_ms":500,"on":["permanent"]}}"#;
    let (machine, calls) = flaky(body, "{}", 3, || ActionError::permanent("no luck"));
    assert_eq!(run(machine, json!({})).await.unwrap().output["a"], "done");
    assert_eq!(seconds(&calls), [0.0, 0.1, 0.4, 0.9]);
    let (machine, calls) = flaky(body, "{}", 9, || ActionError::transient("not in the list"));
    run(machine, json!({})).await.unwrap_err();
    assert_eq!(calls.lock().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_hook_of_the_graph_retries_a_call() {
    let settings = r#"{"hooks":[{"event":"error","params":{"action":"retry","max_retries":5},"condition":{"path":"error.message","op":"contains","value":"luck"}}]}"#;
    let (machine, calls) = flaky(PLAIN, settings, 5, || ActionError::permanent("no luck"));
    assert_eq!(run(machine, json!({})).await.unwrap().output, json!({"a": "done", "retries": 5}));
    assert_eq!(calls.lock().unwrap().len(), 6);
    let (machine, calls) = flaky(PLAIN, settings, 9, || ActionError::permanent("another reason"));
    run(machine, json!({})).await.unwrap_err();
    assert_eq!(calls.lock().unwrap().len(), 1, "the condition does not hold");
    let continues =
        r#"{"on_error":"continue","hooks":[{"event":"error","params":{"action":"retry","max_retries":2}}]}"#;
    let (machine, _) = flaky(PLAIN, continues, 9, || ActionError::permanent("no luck"));
    let finished = run(machine, json!({})).await.unwrap();
    assert_eq!(finished.output["retries"], 2);
    assert_eq!(finished.steps, 2, "a call that is made again is no step");
}

#[tokio::test(start_paused = true)]
async fn a_hook_ends_the_run_also_where_the_node_deals_with_failures() {
    let body = r#"{"line":1,"does":{"action":0},"next":[{"to":"done"}],"on_error":1}"#;
    let fails =
        r#"{"hooks":[{"event":"error","params":{"action":"fail","error":"enough of ${node}: ${error.message}"}}]}"#;
    let (machine, _) = flaky(body, fails, 9, || ActionError::permanent("no luck"));
    assert_eq!(run(machine, json!({})).await.unwrap_err().to_string(), "node `call` failed: enough of call: no luck");
    let (machine, _) = flaky(body, "{}", 9, || ActionError::permanent("no luck"));
    assert_eq!(run(machine, json!({})).await.unwrap().status, Status::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_fails_or_answers_anything_else_changes_nothing() {
    let settings = r#"{"hooks":[
        {"event":"after_step","tool":0,"params":{"log":"${node} ${state.step_count}"},"condition":{"path":"state.step_count","operator":"gte","value":1}},
        {"event":"error","tool":0,"params":{"logged":true}},
        {"event":"error","condition":{"path":"error.message","op":"gt","value":3},"params":{"action":"abort"}}]}"#;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let nodes = &[("call", PLAIN), ("done", r#"{"line":2,"does":"return"}"#)];
    let calls_seen = Arc::clone(&seen);
    let machine = Interpreted::new(&Program { keys: &[A], nodes, settings, ..PROGRAM }, move |call, params| {
        let count = {
            let mut seen = calls_seen.lock().unwrap();
            seen.push(format!("{} {params}", call.hook().unwrap_or("node")));
            seen.len()
        };
        match call.hook() {
            Some(_) if params["log"].is_string() => panic!("a hook's own fault"),
            Some(_) => Ok(json!({"logged": true})),
            None if count == 1 => Err(ActionError::transient("once")),
            None => Ok(json!("done")),
        }
    });
    assert_eq!(run(machine, json!({})).await.unwrap().output, json!({"a": "done"}));
    assert_eq!(
        *seen.lock().unwrap(),
        [
            "node {}",
            "2 (error) {\"logged\":true}",
            "node {}",
            "1 (after_step) {\"log\":\"call 1\"}",
            "1 (after_step) {\"log\":\"done 2\"}"
        ]
    );
}

/// Hooks in Rust that record the values that they receive.
#[derive(Clone, Default)]
struct SeenEvents(Arc<Mutex<Vec<String>>>);

impl SeenEvents {
    fn note(&self, calls_seen: &HookContext<'_>, names: &[&str]) {
        let values: Vec<String> = names.iter().map(|name| format!("{:?}", calls_seen.get(name))).collect();
        self.0.lock().unwrap().push(format!("{} {}", calls_seen.event.name(), values.join(" ")));
    }
}

impl Hooks for SeenEvents {
    async fn graph_started(&self, calls_seen: &HookContext<'_>) -> Option<Control> {
        self.note(calls_seen, &["graph_id"]);
        None
    }

    async fn after_step(&self, calls_seen: &HookContext<'_>) -> Option<Control> {
        self.note(calls_seen, &["node", "next_node", "step_count", "result"]);
        None
    }

    async fn error(&self, calls_seen: &HookContext<'_>) -> Option<Control> {
        self.note(calls_seen, &["node", "attempt"]);
        Some(Control::Retry { max_retries: 1 })
    }

    async fn graph_completed(&self, calls_seen: &HookContext<'_>, status: Status) {
        self.note(calls_seen, &["steps"]);
        self.0.lock().unwrap().push(status.name().to_owned());
    }
}

#[tokio::test(start_paused = true)]
async fn rust_hooks_receive_every_event_and_infra_hooks_steer_nothing() {
    let calls_seen = SeenEvents::default();
    let (machine, calls) = flaky(PLAIN, "{}", 1, || ActionError::permanent("no luck"));
    let runtime = builder().hooks(Layer::Builtin, calls_seen.clone()).build().unwrap();
    run_on(runtime, machine, json!({})).await.unwrap();
    assert_eq!(
        *calls_seen.0.lock().unwrap(),
        [
            "graph_started \"test/graph\"",
            "error \"call\" 1",
            "after_step \"call\" \"done\" 1 \"done\"",
            "after_step \"done\" null 2 null",
            "graph_completed 2",
            "completed"
        ]
    );
    assert_eq!(calls.lock().unwrap().len(), 2);
    let (machine, calls) = flaky(PLAIN, "{}", 1, || ActionError::permanent("no luck"));
    let runtime = builder().hooks(Layer::Infra, SeenEvents::default()).build().unwrap();
    run_on(runtime, machine, json!({})).await.unwrap_err();
    assert_eq!(calls.lock().unwrap().len(), 1);
}

fn round(settings: &'static str) -> Interpreted {
    let nodes = &[
        ("a", r#"{"line":1,"does":"gate","assign":{"a":"${visit.number}"},"next":[{"to":"b"}]}"#),
        ("b", r#"{"line":2,"does":"gate","next":[{"to":"a"}]}"#),
    ];
    Interpreted::new(&Program { keys: &[A], nodes, settings, ..PROGRAM }, double)
}

#[tokio::test(start_paused = true)]
async fn run_at_max_steps_fails_returns_or_continues_as_configured() {
    let error = run(round(r#"{"max_steps":5}"#), json!({})).await.unwrap_err();
    assert_eq!(error.to_string(), "Max steps exceeded (5)");
    let value = error.to_value();
    assert_eq!((&value["success"], &value["steps"], &value["state"]["a"]), (&json!(false), &json!(5), &json!(3)));
    let last = run(round(r#"{"max_steps":5,"on_max_steps":"return_last"}"#), json!({})).await.unwrap();
    assert_eq!((last.output, last.exhausted, last.status), (json!({"a": 3}), false, Status::Completed));
    let flagged = run(round(r#"{"max_steps":5,"on_max_steps":"return_with_flag"}"#), json!({})).await.unwrap();
    assert_eq!((flagged.to_value()["max_steps_reached"].clone(), flagged.steps), (json!(true), 5));
    let hook = r#"{"max_steps":5,"hooks":[{"event":"limit","params":{"action":"continue","additional_steps":4},"condition":{"path":"current_value","op":"lt","value":12}}]}"#;
    let error = run(round(hook), json!({})).await.unwrap_err();
    assert_eq!(error.to_string(), "Max steps exceeded (13)");
    let endless = r#"{"max_steps":2,"hooks":[{"event":"limit","params":{"action":"continue"}}]}"#;
    assert_eq!(run(round(endless), json!({})).await.unwrap_err().to_string(), "Max steps exceeded (200)");
}

#[tokio::test(start_paused = true)]
async fn revisited_node_sees_the_result_of_its_previous_visit() {
    let nodes = &[
        (
            "call",
            r#"{"line":1,"does":{"action":0},"params":{"visit":"${visit.number}","before":"${visit.previous.said}"},"next":[{"to":"done","when":{"path":"visit.number","op":"gte","value":3}},{"to":"call"}]}"#,
        ),
        ("done", r#"{"line":2,"does":"return","output":"ended"}"#),
    ];
    let seen = Arc::new(Mutex::new(Vec::new()));
    let calls = Arc::clone(&seen);
    let machine = Interpreted::new(&Program { nodes, ..PROGRAM }, move |_, params| {
        calls.lock().unwrap().push(params.to_string());
        Ok(json!({"said": format!("after {}", params["visit"])}))
    });
    let runtime = builder().keep_history().build().unwrap();
    let finished = run_on(runtime, machine, json!({})).await.unwrap();
    assert_eq!(
        *seen.lock().unwrap(),
        [r#"{"visit":1}"#, r#"{"visit":2,"before":"after 1"}"#, r#"{"visit":3,"before":"after 2"}"#]
    );
    let history: Vec<_> = finished.history.iter().map(|visit| (visit.node.as_str(), visit.edge())).collect();
    assert_eq!(history, [("call", Some(1)), ("call", Some(1)), ("call", Some(0)), ("done", None)]);
    assert_eq!(finished.last_results()["call"], &json!({"said": "after 3"}));
    let warnings: Vec<_> = finished.history.iter().flat_map(|visit| &visit.warnings).collect();
    assert!(warnings.is_empty(), "that nothing came before the first visit is no surprise: {warnings:?}");
}

#[tokio::test(start_paused = true)]
async fn history_shows_the_edge_of_each_visit_and_counts_each_edge() {
    let nodes: &[(&str, &str)] = &[
        (
            "call",
            r#"{"line":1,"does":{"action":0},"params":{"n":"${visit.number}"},"next":[{"to":"done","when":{"path":"result","op":"eq","value":99}},{"when":{"path":"result","op":"gte","value":6},"description":"enough"},{"to":"call"}],"on_error":1}"#,
        ),
        ("done", r#"{"line":2,"does":"return"}"#),
    ];
    let program = Program { nodes, ..PROGRAM };
    let history = async |tool: fn(&Call, Value) -> Result<Value, ActionError>| {
        let runtime = builder().keep_history().build().unwrap();
        run_on(runtime, Interpreted::new(&program, tool), json!({})).await.unwrap().history
    };
    let visits = history(double).await;
    let edges = Edges::of(&program);
    let taken: Vec<String> = visits.iter().map(|visit| edges.taken(visit).unwrap().to_string()).collect();
    assert_eq!(taken, ["`call`", "`call`", "the end (enough)"]);
    let fired: Vec<_> = edges.fired(&visits).iter().map(|fired| (fired.from, fired.index, fired.times)).collect();
    assert_eq!(fired, [("call", 0, 0), ("call", 1, 1), ("call", 2, 2)]);
    assert_eq!((edges.leaving("call").len(), edges.leaving("no_node").len()), (3, 0));

    let visits = history(|_, _| Err(ActionError::permanent("no luck"))).await;
    assert_eq!(visits.iter().map(|visit| edges.taken(visit)).collect::<Vec<_>>(), [None, None]);
    assert!(edges.fired(&visits).iter().all(|fired| fired.times == 0), "`on_error` is none of the edges");
}

#[tokio::test(start_paused = true)]
async fn strict_graph_fails_without_a_match_and_lists_its_edges() {
    let nodes = &[
        (
            "gate",
            r#"{"line":1,"does":"gate","next":[{"to":"done","when":{"path":"inputs.n","op":"eq","value":1}},{"to":"done","when":{"path":"inputs.n","op":"gt","value":5},"description":"when there are many"}]}"#,
        ),
        ("done", r#"{"line":2,"does":"return"}"#),
    ];
    let machine = |settings| Interpreted::new(&Program { nodes, settings, ..PROGRAM }, double);
    assert_eq!(run(machine("{}"), json!({"n": 2})).await.unwrap().steps, 1, "an implicit return");
    let error = run(machine(r#"{"on_no_match":"fail"}"#), json!({"n": 2})).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "node `gate` failed: no edge matches; there are `done` when {\"path\":\"inputs.n\",\"op\":\"eq\",\"value\":1}, `done` (when there are many)"
    );
}

fn hangs(body: &'static str, settings: &'static str) -> Interpreted {
    let nodes: &'static [(&str, &str)] =
        Box::leak(Box::new([("call", body), ("mend", r#"{"line":2,"does":"return"}"#)]));
    Interpreted::waiting(&Program { keys: &[A], nodes, settings, ..PROGRAM }, |_, _| {
        Box::pin(async { std::future::pending().await })
    })
}

#[tokio::test(start_paused = true)]
async fn hanging_call_ends_at_its_own_timeout_or_the_run_deadline() {
    let body = r#"{"line":1,"does":{"action":0},"timeout_ms":1500,"retry":{"attempts":1},"on_error":1}"#;
    let finished = run(hangs(body, "{}"), json!({})).await.unwrap();
    assert_eq!(finished.state["_last_error"], json!({"node": "call", "error": "it timed out after 1.5s"}));
    let error = run(hangs(PLAIN_TO_REPAIR, r#"{"timeout_ms":60000}"#), json!({})).await.unwrap_err();
    assert!(matches!(error, RunError::Deadline { steps: 0, .. }), "{error}");
    let runtime = builder().build().unwrap();
    let options = Options { timeout: Some(Duration::from_secs(1)), ..Options::default() };
    let run = runtime.start_with(options, hangs(PLAIN_TO_REPAIR, "{}"), Map::new()).await.unwrap();
    assert!(matches!(run.await, Err(RunError::Deadline { .. })));
}

const PLAIN_TO_REPAIR: &str = r#"{"line":1,"does":{"action":0},"next":[{"to":"mend"}]}"#;

#[tokio::test(start_paused = true)]
async fn run_waiting_for_a_retry_can_be_cancelled_and_resumed() {
    let store = MemoryStore::new();
    let key = SecretKey::generate().unwrap();
    let runtime = || builder().store(store.clone()).sign_with(key.clone()).build().unwrap();
    let body = r#"{"line":1,"does":{"action":0},"assign":{"a":"${result}"},"next":[{"to":"done"}],"retry":{"attempts":2,"delay_ms":3600000,"max_delay_ms":3600000}}"#;
    let (machine, calls) = flaky(body, "{}", 1, || ActionError::transient("a hiccup"));
    let run = runtime().start_as(RunId::new("run").unwrap(), machine.clone(), Map::new()).await.unwrap();
    let canceller = run.canceller();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(60)).await;
        canceller.cancel();
    });
    let began = tokio::time::Instant::now();
    let error = run.await.unwrap_err();
    assert!(matches!(error, RunError::Cancelled { steps: 0, .. }), "{error}");
    assert_eq!(began.elapsed().as_secs(), 60);
    let resumed = runtime().resume(machine, &RunId::new("run").unwrap()).await.unwrap().await.unwrap();
    assert_eq!(resumed.output["a"], "done");
    assert_eq!(calls.lock().unwrap().len(), 2);
}

const CHILD: Tool<'static> = Tool {
    id: "test/child",
    verb: Verb::Execute,
    item: ItemType::Tool,
    by: Executor::Graph,
    params: None,
    typed: true,
    nests: true,
};

/// A graph that runs `child` with `n`, and returns its result or its error.
fn parent(child: Interpreted, settings: &'static str, permissions: &'static [&'static str]) -> Interpreted {
    let nodes = &[
        (
            "nest",
            r#"{"line":1,"does":{"action":0},"params":{"n":"${inputs.n}"},"assign":{"a":"${result.output.doubled}"},"next":[{"to":"done"}],"on_error":2}"#,
        ),
        ("done", r#"{"line":2,"does":"return","output":{"a":"${state.a}"}}"#),
        ("mend", r#"{"line":3,"does":"return","output":{"error":"${state._last_error.error}"}}"#),
    ];
    let program = Program { id: "test/parent", keys: &[A], tools: &[CHILD], nodes, settings, permissions, ..PROGRAM };
    Interpreted::new(&program, double).nesting(child)
}

fn child() -> Interpreted {
    let nodes = &[
        (
            "call",
            r#"{"line":1,"does":{"action":0},"params":{"n":"${inputs.n}"},"assign":{"a":"${result}"},"next":[{"to":"done"}]}"#,
        ),
        ("done", r#"{"line":2,"does":"return","output":{"doubled":"${state.a}"}}"#),
    ];
    Interpreted::new(&Program { id: "test/child", keys: &[A], nodes, ..PROGRAM }, double)
}

#[tokio::test(start_paused = true)]
async fn a_graph_runs_another_within_its_depth_and_capabilities() {
    let all: &[&str] = &["rye.execute.tool.*"];
    assert_eq!(run(parent(child(), "{}", all), json!({"n": 4})).await.unwrap().output, json!({"a": 8}));
    let failed = run(parent(child(), "{}", all), json!({"n": "x"})).await.unwrap().output;
    assert_eq!(failed, json!({"error": "\"x\" is no number (node `call` of run `run-1`)"}));
    let deep = run(parent(child(), r#"{"depth":0}"#, all), json!({"n": 4})).await.unwrap().output;
    assert_eq!(deep, json!({"error": "graphs are nested deeper than `limits.depth` allows"}));
    // The child may not call a tool that its parent does not permit.
    let narrow = run(parent(child(), "{}", &["rye.execute.tool.test.child"]), json!({"n": 4})).await.unwrap().output;
    let error = narrow["error"].as_str().unwrap();
    assert!(error.contains("needs `rye.execute.tool.test.tool`, which was not granted"), "{error}");
    // No run of the child could have a capability that the caller does not grant, so the start is refused.
    let runtime = Runtime::builder().grant("rye.execute.tool.test.child").unwrap().build().unwrap();
    let Value::Object(inputs) = json!({"n": 4}) else { unreachable!() };
    let refused = runtime.start(parent(child(), "{}", all), inputs).await.unwrap_err().to_string();
    assert!(refused.contains("`rye.execute.tool.test.tool`") && !refused.contains("test.child"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn a_nested_run_names_its_parent_and_resumes_only_with_it() {
    let store = MemoryStore::new();
    let key = SecretKey::generate().unwrap();
    let runtime = builder().store(store.clone()).sign_with(key.clone()).build().unwrap();
    let id = RunId::new("run").unwrap();
    let graph = parent(child(), "{}", &["rye.execute.tool.*"]);
    let Value::Object(inputs) = json!({"n": 4}) else { unreachable!() };
    let finished = runtime.start_as(id.clone(), graph.clone(), inputs).await.unwrap().await.unwrap();
    assert_eq!(finished.output, json!({"a": 8}));
    let history = runtime.history(&id).await.unwrap();
    assert_eq!(history[0].run.as_ref().map(RunId::as_str), Some("run-1"));
    let nested = RunId::new("run-1").unwrap();
    assert_eq!(runtime.history(&nested).await.unwrap().len(), 2);
    let alone = runtime.resume(child(), &nested).await.unwrap_err();
    assert_eq!(
        alone.to_string(),
        "run `run-1` is inside run `run`: name the outermost run, and the path of the wait if something is sent"
    );
}

#[tokio::test(start_paused = true)]
async fn all_inputs_that_are_missing_are_named_before_anything_runs() {
    let nodes = &[("done", r#"{"line":1,"does":"return"}"#)];
    let program = Program { nodes, settings: r#"{"required":["b","a"]}"#, ..PROGRAM };
    let start = async |inputs: Value| {
        let inputs = inputs.as_object().unwrap().clone();
        builder().build().unwrap().start(Interpreted::new(&program, double), inputs).await.map(drop)
    };
    let error = start(json!({})).await.unwrap_err().to_string();
    assert!(error.ends_with("missing required input: 'b', missing required input: 'a'"), "{error}");
    assert!(start(json!({"b": 1})).await.unwrap_err().to_string().ends_with(": missing required input: 'a'"));
    start(json!({"b": 1, "a": false})).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn hooks_know_the_time_and_see_a_foreach_as_one_step() {
    let settings = r#"{"hooks":[{"event":"after_step","tool":0,"params":{"at":"${_now}","ms":"${_timestamp}","node":"${node}","steps":"${step_count}"}}]}"#;
    let nodes = &[
        (
            "each",
            r#"{"line":1,"does":{"foreach":0},"params":{"n":"${item}","kept":null},"each":{"over":"${inputs.list}","as":"item","collect":"a","width":1},"next":[{"to":"done"}]}"#,
        ),
        ("done", r#"{"line":2,"does":"return"}"#),
    ];
    let seen = Arc::new(Mutex::new(Vec::new()));
    let calls_seen = Arc::clone(&seen);
    let machine = Interpreted::new(&Program { keys: &[A], nodes, settings, ..PROGRAM }, move |call, params| {
        calls_seen.lock().unwrap().push(format!("{} {:?} {params}", call.hook().unwrap_or("call"), call.item()));
        Ok(json!({"n": params["n"]}))
    });
    let finished = run(machine, json!({"list": [1, null]})).await.unwrap();
    assert_eq!(finished.output, json!({"a": [{"n": 1}, {"n": null}]}));
    let at = r#""at":"2027-01-15T08:00:00Z","ms":1800000000000"#;
    assert_eq!(
        *seen.lock().unwrap(),
        [
            r#"call Some(0) {"n":1}"#.to_owned(),
            "call Some(1) {}".to_owned(),
            format!(r#"1 (after_step) None {{{at},"node":"each","steps":1}}"#),
            format!(r#"1 (after_step) None {{{at},"node":"done","steps":2}}"#),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn all_hooks_are_asked_and_the_first_answer_counts() {
    let settings = r#"{"hooks":[{"event":"error","tool":0,"params":{"first":true}},{"event":"error","params":{"action":"fail","error":"the second"}},{"event":"error","tool":0,"params":{"third":true}}]}"#;
    let nodes = &[("call", PLAIN), ("done", r#"{"line":2,"does":"return"}"#)];
    let seen = Arc::new(Mutex::new(Vec::new()));
    let calls_seen = Arc::clone(&seen);
    let machine = Interpreted::new(&Program { keys: &[A], nodes, settings, ..PROGRAM }, move |call, params| {
        let Some(_) = call.hook() else { return Err(ActionError::transient("no luck")) };
        calls_seen.lock().unwrap().push(params.to_string());
        Ok(json!({"action": if params["third"] == true { "abort" } else { "log" }}))
    });
    let error = run(machine, json!({})).await.unwrap_err();
    assert_eq!(error.to_string(), "node `call` failed: the second");
    assert_eq!(*seen.lock().unwrap(), [r#"{"first":true}"#, r#"{"third":true}"#]);
}

#[tokio::test(start_paused = true)]
async fn hook_calls_need_a_capability_but_engine_tools_do_not() {
    const TOOLS: &[Tool<'static>] = &[
        Tool {
            id: "rye/agent/threads/internal/note",
            verb: Verb::Execute,
            item: ItemType::Tool,
            by: Executor::Program,
            params: None,
            typed: true,
            nests: true,
        },
        Tool {
            id: "test/tool",
            verb: Verb::Execute,
            item: ItemType::Tool,
            by: Executor::Program,
            params: None,
            typed: true,
            nests: true,
        },
    ];
    let nodes = &[("call", PLAIN), ("done", r#"{"line":2,"does":"return"}"#)];
    let settings = r#"{"hooks":[{"event":"after_step","tool":1}]}"#;
    let start = async |settings: &'static str, tools: &'static [Tool<'static>]| {
        let program =
            Program { keys: &[A], nodes, settings, tools, permissions: &["rye.execute.tool.nothing"], ..PROGRAM };
        let runtime = Runtime::builder().grant("rye.execute.tool.nothing").unwrap().build().unwrap();
        let machine = Interpreted::new(&program, |_, _| Ok(json!("done")));
        runtime
            .start(machine, Map::new())
            .await
            .map_err(|error| error.to_string())?
            .await
            .map_err(|error| error.to_string())
    };
    assert_eq!(start("{}", &TOOLS[..1]).await.unwrap().output["a"], "done");
    let error = start(settings, TOOLS).await.unwrap_err();
    assert!(error.contains("needs `rye.execute.tool.test.tool`, which was not granted"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn computed_item_id_is_authorized_at_each_call() {
    const ANY: &[Tool<'static>] = &[Tool {
        id: "",
        verb: Verb::Execute,
        item: ItemType::Tool,
        by: Executor::Program,
        params: None,
        typed: false,
        nests: true,
    }];
    let nodes = &[
        (
            "call",
            r#"{"line":1,"does":{"action":0},"item":"shop/${inputs.which}","assign":{"a":"${result.tool}"},"next":[{"to":"done"}]}"#,
        ),
        ("done", r#"{"line":2,"does":"return"}"#),
    ];
    let run = async |which: Value| {
        let program = Program { keys: &[A], nodes, tools: ANY, permissions: &["rye.execute.tool.shop.s*"], ..PROGRAM };
        let machine = Interpreted::new(&program, |call, _| Ok(json!({"tool": call.tool()})));
        run(machine, json!({ "which": which })).await.map_err(|error| error.to_string())
    };
    assert_eq!(run(json!("sell")).await.unwrap().output["a"], "shop/sell");
    assert_eq!(
        run(json!("buy")).await.unwrap_err(),
        "node `call` failed: Permission denied: 'rye.execute.tool.shop.buy' not covered by capabilities"
    );
    assert!(run(json!("../etc")).await.unwrap_err().contains("`item_id` is no id"));
}

#[tokio::test(start_paused = true)]
async fn retry_count_of_a_node_resets_when_it_succeeds() {
    let settings = r#"{"on_error":"continue","hooks":[{"event":"error","params":{"action":"retry","max_retries":1}}]}"#;
    let nodes = &[
        (
            "call",
            r#"{"line":1,"does":{"action":0},"next":[{"to":"again","when":{"path":"state._retries.call","op":"eq","value":1}},{"to":"done"}]}"#,
        ),
        ("again", r#"{"line":2,"does":"gate","assign":{"a":"${state._retries.call}"},"next":[{"to":"call"}]}"#),
        ("done", r#"{"line":3,"does":"return","output":{"a":"${state.a}","now":"${state._retries.call}"}}"#),
    ];
    let calls = AtomicUsize::new(0);
    let machine = Interpreted::new(&Program { keys: &[A], nodes, settings, ..PROGRAM }, move |_, _| {
        match calls.fetch_add(1, Ordering::SeqCst) {
            0 | 1 => Err(ActionError::permanent("no luck")),
            _ => Ok(json!("done")),
        }
    });
    assert_eq!(run(machine, json!({})).await.unwrap().output, json!({"a": 1, "now": null}));
}

//! The engine with a machine: steps, failures, limits, time, progress lines.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use graph_runtime::__private::{Key, Program};
use graph_runtime::record::{Entry, Record};
use graph_runtime::{
    ActionError, Call, ManualClock, Map, MemoryStore, Progress, RunError, RunId, Runtime, StartError, Status, Store,
    Value,
};
use serde_json::json;

use crate::interpreted::{Interpreted, PROGRAM};
use crate::support::{id, runtime as durable};

const A: Key<'static> = Key { name: "a", initial: None };
const B: Key<'static> = Key { name: "b", initial: None };

/// Runs a program to its end, with progress lines in memory.
async fn run(machine: Interpreted) -> (Result<graph_runtime::Finished<Value>, RunError>, String) {
    let lines = Lines::default();
    let runtime = Runtime::builder()
        .grant("rye.execute.tool.*")
        .unwrap()
        .clock(Arc::new(ManualClock::at(SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000))))
        .observer(Progress::to(lines.clone()))
        .build()
        .unwrap();
    let run = runtime.start_as(RunId::new("run").unwrap(), machine, Map::new()).await.unwrap().await;
    (run, lines.text())
}

/// As [`run`], but without an observer, so that the engine takes its fast path.
async fn run_unwatched(machine: Interpreted) -> Result<graph_runtime::Finished<Value>, RunError> {
    let runtime = Runtime::builder()
        .grant("rye.execute.tool.*")
        .unwrap()
        .clock(Arc::new(ManualClock::at(SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000))))
        .build()
        .unwrap();
    runtime.start_as(RunId::new("run").unwrap(), machine, Map::new()).await.unwrap().await
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn echo(_: &Call, params: Value) -> Result<Value, ActionError> {
    Ok(params)
}

#[tokio::test]
async fn a_step_visits_all_of_its_frontier_against_the_same_state() {
    let nodes = &[
        ("fork", r#"{"line":1,"does":"gate","assign":{"a":"one"},"next":{"all":[{"to":"left"},{"to":"right"}]}}"#),
        (
            "left",
            r#"{"line":2,"does":{"action":0},"params":{"saw":"${state.a}"},"assign":{"a":"left after ${result.saw}"},"next":[{"to":"join"}]}"#,
        ),
        (
            "right",
            r#"{"line":3,"does":{"action":0},"params":{"saw":"${state.a}"},"assign":{"b":"right after ${result.saw}"},"next":[{"to":"join"}]}"#,
        ),
        ("join", r#"{"line":4,"does":"return","join":{"of":[1,2],"fan":0,"closes":true}}"#),
    ];
    let machine = || Interpreted::new(&Program { keys: &[A, B], nodes, ..PROGRAM }, echo);
    let (finished, _) = run(machine()).await;
    let finished = finished.unwrap();
    assert_eq!(finished.output, json!({"a": "left after one", "b": "right after one"}));
    assert_eq!(finished.steps, 4, "the join is visited once");
    assert_eq!(run_unwatched(machine()).await.unwrap().output, finished.output);
}

/// Runs a gate that leads along `next` to a node that returns, with an input `way`.
async fn routed(next: &str, way: Value) -> Result<u64, String> {
    let gate = format!(r#"{{"line":1,"does":"gate","next":{next}}}"#);
    let end = r#"{"line":2,"does":"return","join":{"of":[0],"fan":0,"closes":true}}"#;
    let end = if next.starts_with(r#"{"over""#) { end } else { r#"{"line":2,"does":"return"}"# };
    let nodes =
        &[("split", gate.as_str()), ("end", end), ("each", r#"{"line":3,"does":"gate","next":[{"to":"end"}]}"#)];
    let runtime = Runtime::builder().grant("*").unwrap().build().unwrap();
    let inputs = Map::from_iter([("way".to_owned(), way)]);
    let machine = Interpreted::new(&Program { nodes, ..PROGRAM }, echo);
    let run = runtime.start(machine, inputs).await.unwrap().await;
    run.map(|finished| finished.steps).map_err(|error| error.to_string())
}

#[tokio::test]
async fn a_route_over_a_list_begins_a_branch_for_each_element() {
    let over = r#"{"over":"${inputs.way}","as":"part","to":"each","most":3}"#;
    assert_eq!(routed(over, json!([1, null, {}])).await, Ok(5));
    assert_eq!(routed(over, json!([])).await, Ok(2));
    assert_eq!(routed(over, Value::Null).await, Ok(2));
    let why = "node `split` failed: `over` is a list, and found an integer";
    assert_eq!(routed(over, json!(5)).await, Err(why.to_owned()));
    let why = "node `split` failed: `over` has 4 elements, and branches may begin for 3";
    assert_eq!(routed(over, json!([1, 2, 3, 4])).await, Err(why.to_owned()));
}

/// Runs six branches over a list whose calls wait for each other, and returns the largest number of concurrent calls.
async fn most_at_once(width: &str, settings: &str) -> usize {
    let split = format!(r#"{{"line":1,"does":"gate","next":{{"over":[1,2,3,4,5,6],"as":"part","to":"each"{width}}}}}"#);
    let nodes = &[
        ("split", split.as_str()),
        ("each", r#"{"line":2,"does":{"action":0},"next":[{"to":"end"}]}"#),
        ("end", r#"{"line":3,"does":"return","join":{"of":[1],"fan":0,"closes":true}}"#),
    ];
    let (current, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let seen = Arc::clone(&most);
    let machine = Interpreted::waiting(&Program { nodes, settings, ..PROGRAM }, move |_, _| {
        let (current, most) = (Arc::clone(&current), Arc::clone(&most));
        Box::pin(async move {
            most.fetch_max(current.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            current.fetch_sub(1, Ordering::SeqCst);
            Ok(Value::Null)
        })
    });
    let runtime = Runtime::builder().grant("*").unwrap().build().unwrap();
    assert_eq!(runtime.start(machine, Map::new()).await.unwrap().await.unwrap().steps, 8);
    seen.load(Ordering::SeqCst)
}

/// Returns the results and the failures that the journal has for the visits of `each`, whose call returns a value that leads
/// nowhere. `split` leads there.
async fn led_nowhere(split: &str, end: &str) -> Vec<(Value, Option<String>)> {
    let each = r#"{"line":2,"does":{"action":0},"next":{"by":"result.way","to":{"on":"end"}},"on_error":2}"#;
    let nodes = &[
        ("split", split),
        ("each", each),
        ("mend", r#"{"line":3,"does":"gate","next":[{"to":"end"}]}"#),
        ("end", end),
    ];
    let machine = Interpreted::new(&Program { nodes, ..PROGRAM }, |_, _| Ok(json!({"way": "off"})));
    let store = MemoryStore::new();
    let run = durable(store.clone()).start_as(id("run"), machine, Map::new()).await.unwrap();
    assert_eq!(run.await.unwrap().steps, 2 + if split.contains("over") { 4 } else { 2 });
    let records = store.load(&id("run")).await.unwrap();
    let visits =
        records.iter().filter_map(|signed| match serde_json::from_str::<Record>(&signed.body).unwrap().entry {
            Entry::Step(step) => Some(step.visits),
            _ => None,
        });
    visits.flatten().filter(|visit| visit.node == "each").map(|visit| (visit.result, visit.error)).collect()
}

#[tokio::test]
async fn a_result_that_its_node_cannot_use_is_recorded_alike_in_branches_and_outside() {
    let outside = led_nowhere(r#"{"line":1,"does":"gate","next":[{"to":"each"}]}"#, r#"{"line":4,"does":"return"}"#);
    let inside = led_nowhere(
        r#"{"line":1,"does":"gate","next":{"over":[1,2],"as":"part","to":"each"}}"#,
        r#"{"line":4,"does":"return","join":{"of":[1,2],"fan":0,"closes":true}}"#,
    );
    let failed = "`result.way` leads nowhere: there is no target for `off`".to_owned();
    let visit = || (Value::Null, Some(failed.clone()));
    assert_eq!(outside.await, [visit()]);
    assert_eq!(inside.await, [visit(), visit()]);
}

#[tokio::test]
async fn route_width_and_graph_concurrency_bound_parallel_branches() {
    let graph = |most: u32| format!(r#"{{"max_steps":100,"max_concurrency":{most}}}"#);
    assert_eq!(most_at_once(r#","width":2"#, &graph(4)).await, 2);
    assert_eq!(most_at_once(r#","width":5"#, &graph(3)).await, 3);
    assert_eq!(most_at_once("", &graph(4)).await, 4);
    assert_eq!(most_at_once("", &graph(64)).await, 6);
}

#[tokio::test]
async fn a_route_by_a_value_leads_to_the_target_of_its_word() {
    let by = r#"{"by":"inputs.way","to":{"on":"end","true":"each","null":null}}"#;
    assert_eq!(routed(by, json!("on")).await, Ok(2));
    assert_eq!(routed(by, json!(true)).await, Ok(3));
    assert_eq!(routed(by, Value::Null).await, Ok(1));
    let why = "node `split` failed: `inputs.way` leads nowhere: there is no target for `off`";
    assert_eq!(routed(by, json!("off")).await, Err(why.to_owned()));
}

#[tokio::test]
async fn failure_leads_to_on_error_target_and_skips_assignments() {
    let nodes = &[
        ("call", r#"{"line":1,"does":{"action":0},"assign":{"a":"set"},"next":[{"to":"done"}],"on_error":1}"#),
        (
            "mend",
            r#"{"line":2,"does":"return","output":{"a":"${state.a}","node":"${state._last_error.node}","error":"${state._last_error.error}"}}"#,
        ),
        ("done", r#"{"line":3,"does":"return"}"#),
    ];
    let machine =
        || Interpreted::new(&Program { keys: &[A], nodes, ..PROGRAM }, |_, _| Err(ActionError::permanent("no luck")));
    let expected = json!({"a": null, "node": "call", "error": "no luck"});
    let (finished, lines) = run(machine()).await;
    assert_eq!(finished.unwrap().output, expected);
    assert_eq!(run_unwatched(machine()).await.unwrap().output, expected);
    assert_eq!(
        lines,
        "[graph:graph] step 1/3 call ...\n\
         [graph:graph] step 1/3 call ✗ (no luck)\n\
         [graph:graph] step 2/3 mend ⏹\n\
         [graph:graph] step 2/3 mend warning: `${state.a}` found nothing\n\
         [graph:graph] done ✓ (2 steps)\n"
    );
}

#[tokio::test]
async fn continuing_graph_follows_its_edges_with_failure_as_result() {
    let nodes = &[
        (
            "call",
            r#"{"line":1,"does":{"action":0},"assign":{"a":"set"},"next":[{"to":"bad","when":{"path":"result.status","op":"eq","value":"error"}},{"to":"good"}]}"#,
        ),
        ("bad", r#"{"line":2,"does":"return","output":"bad"}"#),
        ("good", r#"{"line":3,"does":"return","output":"good"}"#),
    ];
    let machine = || {
        let program = Program { keys: &[A], nodes, settings: r#"{"on_error":"continue"}"#, ..PROGRAM };
        Interpreted::new(&program, |_, _| Err(ActionError::permanent("no luck")))
    };
    for finished in [run(machine()).await.0.unwrap(), run_unwatched(machine()).await.unwrap()] {
        assert_eq!(finished.output, "bad");
        assert_eq!(finished.status, Status::CompletedWithErrors);
        assert_eq!(finished.errors.len(), 1);
        assert_eq!(finished.errors[0].error, "no luck");
    }
}

#[tokio::test]
async fn undecidable_gate_ends_the_run_even_if_the_graph_continues() {
    let nodes = &[
        (
            "gate",
            r#"{"line":1,"does":"gate","assign":{"a":"text"},"next":[{"to":"done","when":{"path":"state.a","op":"gt","value":3}},{"to":"done"}]}"#,
        ),
        ("done", r#"{"line":2,"does":"return"}"#),
    ];
    let machine =
        || Interpreted::new(&Program { keys: &[A], nodes, settings: r#"{"on_error":"continue"}"#, ..PROGRAM }, echo);
    for finished in [run(machine()).await.0, run_unwatched(machine()).await] {
        assert!(matches!(finished, Err(RunError::Node { node, .. }) if node == "gate"));
    }
}

#[tokio::test]
async fn unhandled_failure_ends_the_run_with_its_node_and_state() {
    let nodes = &[
        ("first", r#"{"line":1,"does":"gate","assign":{"a":"kept"},"next":[{"to":"call"}]}"#),
        ("call", r#"{"line":2,"does":{"action":0},"assign":{"b":"lost"}}"#),
    ];
    let machine = |tool: fn(&Call, Value) -> Result<Value, ActionError>| {
        Interpreted::new(&Program { keys: &[A, B], nodes, ..PROGRAM }, tool)
    };
    for finished in [
        run(machine(|_, _| Err(ActionError::permanent("no luck")))).await.0,
        run_unwatched(machine(|_, _| Err(ActionError::permanent("no luck")))).await,
    ] {
        let RunError::Node { node, step, failure, state, .. } = finished.unwrap_err() else { panic!("another error") };
        assert_eq!((node.as_str(), step, failure.message.as_str()), ("call", 2, "no luck"));
        assert_eq!(*state, json!({"inputs": {}, "a": "kept", "_last_error": {"node": "call", "error": "no luck"}}));
    }
    let panics = |_: &Call, _: Value| -> Result<Value, ActionError> { panic!("at the tool's own fault") };
    for finished in [run(machine(panics)).await.0, run_unwatched(machine(panics)).await] {
        assert_eq!(finished.unwrap_err().to_string(), "node `call` failed: the tool panicked: at the tool's own fault");
    }
}

#[tokio::test]
async fn a_run_ends_at_max_steps() {
    let nodes = &[
        ("a", r#"{"line":1,"does":"gate","assign":{"a":1},"next":[{"to":"b"}]}"#),
        ("b", r#"{"line":2,"does":{"action":0},"next":[{"to":"a"}]}"#),
    ];
    let machine = || Interpreted::new(&Program { keys: &[A], nodes, settings: r#"{"max_steps":7}"#, ..PROGRAM }, echo);
    let (finished, lines) = run(machine()).await;
    for error in [finished.unwrap_err(), run_unwatched(machine()).await.unwrap_err()] {
        assert_eq!(error.to_string(), "Max steps exceeded (7)");
        assert!(matches!(error, RunError::MaxSteps { max_steps: 7, state, .. } if state["a"] == 1));
    }
    assert!(lines.ends_with("step 7 a ✓ (gate)\n[graph:graph] done ✗ (Max steps exceeded (7))\n"), "{lines}");
}

#[tokio::test]
async fn a_condition_that_cannot_be_decided_fails_its_node() {
    let nodes = &[(
        "a",
        r#"{"line":1,"does":"gate","assign":{"a":"text"},"next":[{"to":"a","when":{"path":"state.a","op":"gt","value":3}}]}"#,
    )];
    let machine = || Interpreted::new(&Program { keys: &[A], nodes, ..PROGRAM }, echo);
    for finished in [run(machine()).await.0, run_unwatched(machine()).await] {
        let error = finished.unwrap_err();
        assert_eq!(error.to_string(), "node `a` failed: `gt` cannot compare a string with an integer, at `state.a`");
    }
}

#[tokio::test]
async fn a_step_reads_one_time_from_the_clock() {
    let nodes = &[
        (
            "a",
            r#"{"line":1,"does":{"action":0},"params":{"now":"${_now}"},"assign":{"a":"${result.now} ${_now} ${_timestamp}"},"next":[{"to":"b"}]}"#,
        ),
        ("b", r#"{"line":2,"does":"return"}"#),
    ];
    let machine = || Interpreted::new(&Program { keys: &[A], nodes, ..PROGRAM }, echo);
    let expected = json!({"a": "2027-01-15T08:00:00Z 2027-01-15T08:00:00Z 1800000000000"});
    assert_eq!(run(machine()).await.0.unwrap().output, expected);
    assert_eq!(run_unwatched(machine()).await.unwrap().output, expected);
}

#[tokio::test]
async fn a_run_needs_the_callers_grant_and_the_graphs_permission() {
    let nodes = &[("a", r#"{"line":1,"does":{"action":0}}"#)];
    let start = async |granted: &str, permissions: &[&str]| {
        let runtime = Runtime::builder().grant(granted).unwrap().build().unwrap();
        let machine = Interpreted::new(&Program { nodes, permissions, ..PROGRAM }, echo);
        runtime.start(machine, Map::new()).await.map(drop)
    };
    assert!(start("rye.execute.tool.test.tool", &["rye.execute.tool.test.*"]).await.is_ok());
    for (granted, permissions) in
        [("rye.execute.tool.test.other", &["*"][..]), ("rye.execute.tool.test.*", &["rye.execute.tool.other"][..])]
    {
        let error = start(granted, permissions).await.unwrap_err();
        assert!(
            matches!(&error, StartError::NotGranted { missing, .. } if *missing == ["`rye.execute.tool.test.tool`"]),
            "{error}"
        );
        assert!(error.to_string().contains("rye.execute.tool.test.tool"), "{error}");
    }
}

#[tokio::test]
async fn a_missing_environment_variable_keeps_a_run_from_starting() {
    let nodes = &[("a", r#"{"line":1,"does":"return"}"#)];
    let program = Program { nodes, env: &["GRAPH_TEST_SURELY_NOT_SET"], ..PROGRAM };
    let runtime = Runtime::builder().grant("*").unwrap().build().unwrap();
    let error = runtime.start(Interpreted::new(&program, echo), Map::new()).await.map(drop).unwrap_err();
    assert!(error.to_string().contains("GRAPH_TEST_SURELY_NOT_SET"), "{error}");
}

#[tokio::test]
async fn a_value_with_a_template_in_it_is_not_read_again() {
    let nodes = &[
        (
            "a",
            r#"{"line":1,"does":{"action":0},"params":{"text":"${inputs.text}"},"assign":{"a":"<${result.text}>"},"next":[{"to":"b"}]}"#,
        ),
        ("b", r#"{"line":2,"does":"return"}"#),
    ];
    let machine = Interpreted::new(&Program { keys: &[A], nodes, ..PROGRAM }, echo);
    let runtime = Runtime::builder().grant("*").unwrap().build().unwrap();
    let mut inputs = Map::new();
    inputs.insert("text".to_owned(), json!("${state.a} ${inputs.text}"));
    let finished = runtime.start(machine, inputs).await.unwrap().await.unwrap();
    assert_eq!(finished.output, json!({"a": "<${state.a} ${inputs.text}>"}));
}

#[tokio::test]
async fn other_tasks_progress_while_tools_of_a_graph_never_wait() {
    let nodes = &[("a", r#"{"line":1,"does":"gate","next":[{"to":"a"}]}"#)];
    let machine = Interpreted::new(&Program { nodes, settings: r#"{"max_steps":200000}"#, ..PROGRAM }, echo);
    let runtime = Runtime::builder().grant("*").unwrap().build().unwrap();
    let run = runtime.start(machine, Map::new()).await.unwrap();
    let turns = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&turns);
    let other = tokio::spawn(async move {
        loop {
            *counted.lock().unwrap() += 1;
            tokio::task::yield_now().await;
        }
    });
    assert!(matches!(run.await, Err(RunError::MaxSteps { .. })));
    other.abort();
    assert!(*turns.lock().unwrap() > 20, "{}", turns.lock().unwrap());
}

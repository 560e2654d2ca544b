//! Time limits and stops hold by the clock, however often the store is written: in the process that spawned a task, in a worker, and
//! in a process that resumed a run. The store itself says when a run ended.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant, SystemTime};

use graph_model::timestamp;
use serde_json::Value;

use crate::place::Place;

/// Visits nodes until it is stopped: without any call, or with calls that take `nap` seconds.
const PACE: &str = r#"permissions: [rye.execute.tool.rye.bash]
config_schema: { type: object, properties: { nap: { type: string } }, required: [nap] }
config:
  start: choose
  max_steps: 100000
  nodes:
    choose: { type: gate, next: [{ to: spin, when: { path: inputs.nap, value: none } }, { to: tick }] }
    tick:
      action: { item_id: rye/bash, params: { command: "sleep \"$NAP\"", env: { NAP: "${inputs.nap}" } } }
      next: [{ to: done, when: { path: visit.number, op: gt, value: 90000 } }, { to: tick }]
    spin: { type: gate, next: [{ to: done, when: { path: visit.number, op: gt, value: 90000 } }, { to: spin }] }
    done: { type: return }
"#;

/// Spawns it with a limit of time, and waits for it.
const LEAD: &str = r#"permissions: [rye.execute.tool.rye.orchestrate.spawn, rye.execute.tool.rye.orchestrate.await, rye.execute.tool.test.pace, rye.execute.tool.rye.bash]
config_schema: { type: object, properties: { nap: { type: string }, limit: { type: integer } }, required: [nap, limit] }
config:
  start: spawn
  nodes:
    spawn:
      action: { item_id: rye/orchestrate/spawn, params: { target: test/pace, inputs: { nap: "${inputs.nap}" }, timeout: "${inputs.limit}" } }
      assign: { task: "${result.task}" }
      next: wait
    wait:
      action: { item_id: rye/orchestrate/await, params: { tasks: ["${state.task}"] } }
      assign: { tasks: "${result.tasks}" }
      next: done
    done: { type: return, output: { tasks: "${state.tasks}" } }
"#;

/// Stops a run whose calls have a length, and returns from when to when that took.
type Stop = fn(Option<u64>) -> (SystemTime, SystemTime);

/// The lengths of calls, in milliseconds; none for a graph that only routes and writes as often as it can.
const CALLS: [Option<u64>; 4] = [None, Some(20), Some(600), Some(1_500)];

fn nap(call: Option<u64>) -> String {
    call.map_or("none".to_owned(), |call| format!("{}.{:03}", call / 1_000, call % 1_000))
}

fn place() -> Place {
    let place = Place::with_graph(PACE);
    place.sign("graphs/pace.yaml", PACE);
    place.sign("graphs/lead.yaml", LEAD);
    place
}

/// Returns the row of the only run of the graph that paces.
fn pace(place: &Place) -> Value {
    let listed: Value = serde_json::from_str(&place.stored(&["runs", "--json"]).out).unwrap();
    listed["runs"].as_array().unwrap().iter().find(|run| run["graph_id"] == "test/pace").unwrap().clone()
}

fn time(row: &Value, name: &str) -> SystemTime {
    timestamp::parse(row[name].as_str().unwrap()).unwrap()
}

/// Waits until something holds of the run that paces.
fn until(place: &Place, holds: impl Fn(&Value) -> bool) -> Value {
    let begin = Instant::now();
    loop {
        let row = pace(place);
        if holds(&row) {
            return row;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "{row}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn started(place: &Place, arguments: &[&str]) -> Child {
    let mut command = place.command(arguments);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Returns from when to when a task with a limit of one second ran, in the process that spawned it.
fn spawner(call: Option<u64>) -> (SystemTime, SystemTime) {
    let place = place();
    let input = format!("nap={}", nap(call));
    let lead = ["run", "graphs/lead.yaml", "--store", "runs.db", "--quiet", "--input", &input, "--input", "limit=1"];
    let ran = place.graph(&lead);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    let row = pace(&place);
    assert_eq!(row["status"], "cancelled", "{row}");
    (time(&row, "created_at") + Duration::from_secs(1), time(&row, "updated_at"))
}

/// Returns from when to when a run was cancelled that a process works at: from the beginning of the command, which waits for its turn to
/// write to the store, until it has ended.
fn cancelled(place: &Place, mut process: Child) -> (SystemTime, SystemTime) {
    let records = pace(place)["records"].as_u64();
    until(place, |row| row["alive"] == true && row["records"].as_u64() > records);
    let id = pace(place)["run_id"].as_str().unwrap().to_owned();
    let asked = SystemTime::now();
    assert_eq!(place.stored(&["cancel", &id]).code, 0);
    let row = until(place, |row| row["status"] == "cancelled");
    drop(process.kill());
    process.wait().unwrap();
    (asked, time(&row, "updated_at"))
}

/// As [`spawner`], for a task whose first process has ended, and that a worker continues.
fn worker(call: Option<u64>) -> (SystemTime, SystemTime) {
    let place = place();
    let input = format!("nap={}", nap(call));
    let lead = ["run", "graphs/lead.yaml", "--store", "runs.db", "--input", &input, "--input", "limit=600"];
    let begun = place.graph(&[&lead[..], &["--pause-before", "wait"]].concat());
    assert_eq!(begun.code, 4, "{}{}", begun.out, begun.err);
    let process = started(&place, &["work", "graphs/pace.yaml", "--store", "runs.db"]);
    cancelled(&place, process)
}

/// As [`spawner`], for a run that a process resumed.
fn resumer(call: Option<u64>) -> (SystemTime, SystemTime) {
    let place = place();
    let input = format!("nap={}", nap(call));
    let run = ["run", "graphs/pace.yaml", "--store", "runs.db", "--run-id", "r"];
    let begun = place.graph(&[&run[..], &["--input", &input, "--pause-before", "choose"]].concat());
    assert_eq!(begun.code, 4, "{}{}", begun.out, begun.err);
    let process =
        started(&place, &["run", "graphs/pace.yaml", "--store", "runs.db", "--resume", "r", "--release", "--quiet"]);
    cancelled(&place, process)
}

/// From asked to ended a run takes a second at most, and the call in progress. `CLOCKS=20` measures each case so often, and prints the
/// longest times beyond the call.
#[test]
fn a_stop_is_heard_within_a_second_at_any_rate_of_writes() {
    let times = std::env::var("CLOCKS").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    // Other tests use the processors, too. A stop that is not heard ends a run after minutes.
    let slack = if times > 1 { Duration::ZERO } else { Duration::from_secs(5) };
    let places: [(&str, Stop); 3] = [("spawner", spawner), ("worker", worker), ("resumer", resumer)];
    let mut wrong = Vec::new();
    for (name, measure) in places {
        for call in CALLS {
            let length = Duration::from_millis(call.unwrap_or_default());
            let took = |_| {
                let (asked, ended) = measure(call);
                ended.duration_since(asked).unwrap_or_default()
            };
            let longest = (0..times).map(took).max().unwrap_or_default();
            println!("{name:>8}, calls of {length:?}: at most {:?} and the call", longest.saturating_sub(length));
            if longest > length + Duration::from_secs(1) + slack {
                wrong.push(format!("{name}, calls of {length:?}: {longest:?}"));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

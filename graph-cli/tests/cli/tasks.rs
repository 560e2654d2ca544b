//! Tasks: a run spawns them in one process, a worker in another continues them, and the run controls them from a third.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use serde_json::{Value, json};

use crate::place::Place;

/// Works until it is stopped, or once.
const WORK: &str = r#"permissions: [rye.execute.tool.rye.bash]
config_schema:
  type: object
  properties: { ends: { type: boolean } }
  required: [ends]
config:
  start: tick
  max_steps: 10000
  nodes:
    tick:
      action: { item_id: rye/bash, params: { command: sleep 0.05 } }
      next:
        - { to: done, when: { any: [{ path: inputs.ends, op: eq, value: true }, { path: visit.number, op: gt, value: 9000 }] } }
        - { to: tick }
    done: { type: return, output: { ended: true } }
"#;

/// Sleeps for ten minutes.
const SLEEP: &str = r#"permissions: [rye.execute.tool.rye.bash]
config:
  start: sleep
  nodes:
    sleep:
      action: { item_id: rye/bash, params: { command: echo $$ > pid; sleep 600 } }
      next: done
    done: { type: return }
"#;

fn lead() -> String {
    let spawn = |node: &str, key: &str, target: &str, inputs: &str, next: &str| {
        format!(
            "    {node}:\n      action: {{ item_id: rye/orchestrate/spawn, params: {{ target: test/{target}, inputs: {inputs} }} }}\n      \
             assign: {{ {key}: \"${{result.task}}\" }}\n      next: {next}\n"
        )
    };
    let nodes = [
        spawn("first", "a", "work", "{ ends: false }", "second"),
        spawn("second", "b", "sleep", "{}", "third"),
        spawn("third", "c", "work", "{ ends: false }", "control"),
        r#"    control:
      action: { item_id: rye/orchestrate/list, params: {} }
      assign: { listed: "${result.tasks}" }
      next: fourth
"#
        .to_owned(),
        spawn("fourth", "d", "work", "{ ends: true }", "race"),
        r#"    race:
      action: { item_id: rye/orchestrate/race, params: { tasks: ["${state.a}", "${state.d}"] } }
      assign: { winner: "${result.winner}" }
      next: kill
    kill:
      action: { item_id: rye/orchestrate/kill, params: { task: "${state.b}" } }
      next: timeout
    timeout:
      action: { item_id: rye/orchestrate/timeout, params: { task: "${state.c}", seconds: 1 } }
      next: status
    status:
      action: { item_id: rye/orchestrate/status, params: { task: "${state.c}" } }
      assign: { status: "${result.task.status}" }
      next: wait
    wait:
      action: { item_id: rye/orchestrate/await, params: { tasks: ["${state.a}", "${state.b}", "${state.c}", "${state.d}"] } }
      assign: { tasks: "${result.tasks}" }
      next: late
    late:
      action: { item_id: rye/orchestrate/cancel, params: { task: "${state.a}" } }
      assign: { stopped: "${result.stopped}" }
      next: end
    end:
      type: return
      output: { listed: "${state.listed}", winner: "${state.winner}", d: "${state.d}", status: "${state.status}",
                tasks: "${state.tasks}", stopped: "${state.stopped}" }
"#
        .to_owned(),
    ];
    format!(
        "permissions: [\"rye.execute.tool.rye.*\", \"rye.execute.tool.test.*\"]\nconfig:\n  start: first\n  nodes:\n{}",
        nodes.concat()
    )
}

fn worker(place: &Place) -> Child {
    let mut command = place.command(&["work", "graphs/work.yaml", "graphs/sleep.yaml", "--store", "runs.db"]);
    command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}

#[test]
fn tasks_are_controlled_from_another_process_than_the_one_that_runs_them() {
    let place = Place::with_graph(WORK);
    place.sign("graphs/work.yaml", WORK);
    place.sign("graphs/sleep.yaml", SLEEP);
    place.sign("graphs/lead.yaml", &lead());
    let begun = place.graph(&[
        "run",
        "graphs/lead.yaml",
        "--store",
        "runs.db",
        "--run-id",
        "lead",
        "--pause-before",
        "control",
    ]);
    assert_eq!(begun.code, 4, "{}{}", begun.out, begun.err);
    assert!(begun.err.contains("3 tasks of the run have not ended: `graph work` continues them"), "{}", begun.err);
    let mut worker = worker(&place);
    let mut lines = BufReader::new(worker.stdout.take().unwrap()).lines();
    for _ in 0..3 {
        let line = lines.next().unwrap().unwrap();
        assert!(line.contains(" continues after "), "{line}");
    }
    let sleeping = || place.path("pid").exists();
    while !sleeping() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let ended =
        place.graph(&["run", "graphs/lead.yaml", "--store", "runs.db", "--resume", "lead", "--release", "--quiet"]);
    assert_eq!(ended.code, 0, "{}{}", ended.out, ended.err);
    let result: Value = serde_json::from_str(&ended.out).unwrap();
    let output = &result["output"];
    assert_eq!(output["listed"].as_array().map(Vec::len), Some(3), "{output}");
    assert_eq!((&output["winner"], &output["stopped"]), (&output["d"], &json!(false)), "{output}");
    let statuses: Vec<&str> =
        output["tasks"].as_array().unwrap().iter().map(|task| task["status"].as_str().unwrap()).collect();
    assert_eq!(statuses, ["cancelled", "cancelled", "cancelled", "completed"], "{output}");
    // The program of the task that was killed is gone.
    let pid = place.read("pid").trim().to_owned();
    assert!(!std::path::Path::new("/proc").join(pid).exists());
    let proven = place.graph(&["verify-run", "lead", "--store", "runs.db", "--graph", "graphs/lead.yaml"]);
    assert_eq!(proven.code, 0, "{}", proven.err);
    worker.kill().unwrap();
    worker.wait().unwrap();
}

#[test]
fn tasks_need_a_store() {
    let place = Place::with_graph(WORK);
    place.sign("graphs/work.yaml", WORK);
    place.sign("graphs/sleep.yaml", SLEEP);
    place.sign("graphs/lead.yaml", &lead());
    let ran = place.graph(&["run", "graphs/lead.yaml", "--quiet"]);
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert!(ran.out.contains("`graph run` gets one with `--store FILE`"), "{}", ran.out);
}

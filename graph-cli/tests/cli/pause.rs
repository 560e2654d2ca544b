//! `graph run --pause-before`, `--pause-after` and `--release`, and hooks that suspend a run.

use serde_json::{Value, json};

use crate::place::Place;

const GRAPH: &str = r#"permissions: [rye.execute.tool.rye.bash]
config:
  start: first
HOOKS
  nodes:
    first: { action: { item_id: rye/bash, params: { command: echo one } }, assign: { one: "${result.stdout}" }, next: second }
    second: { action: { item_id: rye/bash, params: { command: echo two } }, assign: { two: "${result.stdout}" }, next: done }
    done: { type: return, output: { one: "${state.one}", two: "${state.two}" } }
"#;

fn place(hooks: &str) -> Place {
    Place::with_graph(&GRAPH.replace("HOOKS", hooks))
}

fn run(place: &Place, arguments: &[&str]) -> (i32, Value) {
    let ran = place.graph(&[&["run", "graphs/g.yaml", "--store", "runs.db"], arguments].concat());
    (ran.code, serde_json::from_str(&ran.out).unwrap())
}

#[test]
fn a_run_pauses_and_is_released() {
    let place = place("");
    let (code, left) = run(&place, &["--run-id", "r", "--pause-after", "first", "--pause-before", "done"]);
    assert_eq!((code, &left["open"][0]["node"], &left["open"][0]["paused"]), (4, &json!("second"), &json!(true)));
    assert_eq!(left["open"][0]["wait"], "2#1");
    let (code, still) = run(&place, &["--resume", "r"]);
    assert_eq!((code, &still["open"]), (4, &left["open"]));
    // A worker does not release it.
    let worked = place.graph(&["work", "graphs/g.yaml", "--store", "runs.db", "--until-idle", "--quiet"]);
    assert_eq!(worked.code, 0, "{}", worked.err);
    let (code, left) = run(&place, &["--resume", "r", "--release"]);
    assert_eq!((code, &left["open"][0]["node"]), (4, &json!("done")));
    let (code, ended) = run(&place, &["--resume", "r", "--release"]);
    assert_eq!((code, &ended["output"]["two"]), (0, &json!("two")), "{ended}");
    let proven = place.stored(&["verify-run", "r"]);
    assert_eq!(proven.code, 0, "{}", proven.err);
}

#[test]
fn a_hook_of_the_graph_suspends_its_run() {
    let hook = "  hooks: [{ event: after_step, condition: { path: node, value: first }, action: { suspend: true, reason: look } }]";
    let place = place(hook);
    let (code, left) = run(&place, &["--run-id", "r"]);
    assert_eq!((code, &left["open"][0]["node"]), (4, &json!("second")), "{left}");
    let (code, ended) = run(&place, &["--resume", "r", "--release"]);
    assert_eq!((code, &ended["output"]["two"]), (0, &json!("two")), "{ended}");
    // Without a store, it cannot wait.
    let ran = place.graph(&["run", "graphs/g.yaml"]);
    assert!(ran.code == 1 && ran.out.contains("a hook asked to suspend the run, which cannot wait"), "{}", ran.out);
}

#[test]
fn a_run_does_not_begin_that_cannot_pause_so() {
    let place = place("");
    let ran = place.graph(&["run", "graphs/g.yaml", "--store", "runs.db", "--pause-before", "nowhere"]);
    assert!(ran.code != 0 && ran.err.contains("it has no node `nowhere` to pause at"), "{} {}", ran.code, ran.err);
    let ran = place.graph(&["run", "graphs/g.yaml", "--pause-before", "first"]);
    assert_eq!(ran.code, 2, "{}", ran.err);
}

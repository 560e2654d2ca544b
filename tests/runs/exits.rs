//! The places where runs can end, and their output there, for the compiler and the interpreter.

use crate::support::sign;
use crate::tree::Tree;
use graph_compiler::graph::Interface;
use graph_runtime::dynamic::{Library, Toolbox};
use graph_runtime::{Finished, Map, Runtime, Value};
use serde_json::json;

/// Signs a graph that calls nothing: `config` is its settings and nodes.
fn graph(config: &str) -> String {
    sign(&format!(
        "version: \"1.0.0\"
tool_type: graph
executor_id: rye/core/runtimes/state-graph/runtime
permissions: [rye.execute.tool.*]
config_schema:
  type: object
  required: [kind]
  properties:
    kind: {{ type: string, enum: [a, b, c] }}
    count: {{ type: integer }}
    pin: {{ type: integer, x-secret: true }}
config:
{config}
"
    ))
}

#[track_caller]
fn interface(config: &str) -> Interface {
    let tree = Tree::new();
    tree.write("graph.yaml", graph(config));
    let compilation = tree.project().compile(&tree.path("graph.yaml"));
    let said: Vec<String> = compilation.diagnostics.iter().map(|found| found.render()).collect();
    compilation.graph.unwrap_or_else(|| unreachable!("{}", said.join("\n\n"))).interface().clone()
}

/// Returns the exits: the node, and the type of each field of the output.
fn exits(interface: &Interface) -> Vec<(String, String)> {
    let fields = |name: &str| {
        let ty = interface.output_at(name).unwrap();
        match &ty.kind {
            graph_compiler::types::TypeKind::Object(fields) => {
                let fields = fields.iter().map(|field| format!("{}: {}", field.name, field.ty));
                fields.collect::<Vec<_>>().join(", ")
            }
            _ => ty.to_string(),
        }
    };
    interface.exits.iter().map(|exit| (exit.node.clone(), fields(&exit.node))).collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(node, fields)| ((*node).to_owned(), (*fields).to_owned())).collect()
}

const ROUTED: &str = "
  start: choose
  nodes:
    choose:
      type: gate
      assign: { chosen: true }
      next:
        - { to: first, when: { path: inputs.kind, value: a } }
        - { to: second, when: { path: inputs.kind, op: in, value: [b, c] } }
    first: { type: gate, assign: { note: text }, next: done }
    second:
      type: gate
      next:
        - { to: done, when: { path: inputs.kind, value: b } }
        - { to: refused }
    done: { type: return }
    refused: { type: return, output: \"${inputs.kind}\" }";

#[test]
fn exhaustive_node_is_no_exit_and_exits_type_what_all_paths_set() {
    let interface = interface(ROUTED);
    let expected = [("done", "chosen: a boolean, note: a string or nothing"), ("refused", "one of `a`, `b`, `c`")];
    assert_eq!(exits(&interface), pairs(&expected));
    assert_eq!(interface.output.to_string(), "any value", "what a graph sees that nests this one");
}

#[test]
fn edge_to_nowhere_makes_an_exit_and_conditions_narrow_its_type() {
    let interface = interface(
        "
  start: choose
  nodes:
    choose:
      type: gate
      assign: { count: \"${inputs.count}\" }
      next:
        - { to: counted, when: { path: state.count, op: exists } }
        - { to: other, when: { path: inputs.kind, value: a } }
        - { when: { path: inputs.kind, value: b } }
        - { to: other, when: { path: inputs.kind, value: c } }
    counted: { type: return }
    other: { type: gate }",
    );
    let expected = [
        ("choose", "count: an integer or nothing"),
        ("counted", "count: an integer"),
        ("other", "count: an integer or nothing"),
    ];
    assert_eq!(exits(&interface), pairs(&expected));
    assert_eq!(interface.output.step("count").unwrap().to_string(), "an integer or nothing");
}

#[test]
fn step_limit_that_may_hit_anywhere_gives_one_output_type() {
    let interface =
        interface(&format!("{}\n  on_max_steps: return_last", ROUTED.replace("\"${inputs.kind}\"", "{ why: other }")));
    assert_eq!(interface.exits, []);
    for node in ["choose", "first", "done", "refused"] {
        assert_eq!(interface.output_at(node), Some(&interface.output));
    }
    assert_eq!(interface.output.step("chosen").unwrap().to_string(), "a boolean or nothing");
    assert_eq!(interface.output.step("why").unwrap().to_string(), "a string or nothing");
}

async fn run(config: &str, inputs: Value) -> Finished<Value> {
    let tree = Tree::new();
    tree.write("graph.yaml", graph(config));
    let library = Library::open(&tree.path(""), Toolbox::new());
    let machine = library.graph(&tree.path("graph.yaml")).unwrap();
    let inputs: Map<String, Value> = serde_json::from_value(inputs).unwrap();
    Runtime::builder().build().unwrap().start(machine, inputs).await.unwrap().await.unwrap()
}

#[tokio::test]
async fn run_reports_its_end_node_and_output_fits_the_exit_type() {
    let done = run(ROUTED, json!({"kind": "a"})).await;
    assert_eq!((done.node.as_str(), done.output), ("done", json!({"chosen": true, "note": "text"})));
    let refused = run(ROUTED, json!({"kind": "c"})).await;
    assert_eq!((refused.node.as_str(), refused.output), ("refused", json!("c")));
    // A field that is null is left out, as in a serialized Rust struct.
    let config = "
  start: done
  nodes:
    done: { type: return, output: { count: \"${inputs.count}\", kind: \"${inputs.kind}\" } }";
    let done = run(config, json!({"kind": "a"})).await;
    assert_eq!((done.node.as_str(), done.output), ("done", json!({"kind": "a"})));
}

#[tokio::test]
async fn run_that_exhausts_its_steps_ends_at_its_last_visited_node() {
    for most in [1, 2] {
        let config = format!("{ROUTED}\n  max_steps: {most}\n  on_max_steps: return_last");
        let stopped = run(&config, json!({"kind": "c"})).await;
        assert_eq!(stopped.node, ["choose", "second"][most - 1]);
        assert_eq!(stopped.output, json!({"chosen": true}));
    }
}

#[tokio::test]
async fn secret_is_hidden_in_interpreted_output_of_any_type() {
    let config = "
  start: choose
  nodes:
    choose:
      type: gate
      next:
        - { to: told, when: { path: inputs.kind, value: a } }
        - { to: kept }
    told: { type: return, output: { pin: \"${inputs.pin}\" } }
    kept: { type: return, output: { pin: 1 } }";
    let told = run(config, json!({"kind": "a", "pin": 4711})).await;
    assert_eq!((told.node.as_str(), told.output), ("told", json!({"pin": "[secret]"})));
    assert_eq!(told.secret_output.unwrap().expose(), &json!({"pin": 4711}));
    // If the type of the exit has no secret, there is nothing to hide.
    let kept = run(config, json!({"kind": "b", "pin": 4711})).await;
    assert_eq!((kept.node.as_str(), kept.output), ("kept", json!({"pin": 1})));
}

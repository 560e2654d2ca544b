//! The ways in which a model and a graph go together: from a graph alone to graphs around agents around graphs.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use graph_agents::ModelReply;
use graph_runtime::dynamic::{Interpreted, Library};
use graph_runtime::testing::{TestBed, graph_test};
use graph_runtime::{Status, Store, Value, audit_tree};
use serde_json::json;

use crate::attacks::{Recorder, tree};
use crate::tree::{Scripted, Tree, answer, calls};

/// Runs a graph or agent of a tree, proves its journals, and returns its output and the graphs of the runs, the outermost first.
async fn run(bed: &TestBed, tree: &Tree, file: &str, model: &Scripted, inputs: Value) -> (Value, Vec<String>) {
    let library = Library::open(&tree.path("graphs"), Recorder::new());
    let tasks = library.tasks();
    let runtime = bed.process(bed.disk().clone()).tools(tree.agents(model).tasks(tasks.clone())).build().unwrap();
    tasks.serve(&runtime);
    let graph: Interpreted = library.graph(&tree.path(file)).unwrap_or_else(|error| panic!("{error}"));
    let Value::Object(inputs) = inputs else { unreachable!() };
    let finished = runtime.start(graph.clone(), inputs).await.unwrap().await.unwrap();
    let (key, secret) = (bed.key().public(), bed.encryption_key());
    let proven = audit_tree(Arc::new(graph), &finished.run, bed.disk(), &key, Some(&secret)).await.unwrap();
    let mut runs = bed.disk().list().await.unwrap();
    runs.reverse();
    assert_eq!(proven.len(), runs.iter().filter(|run| run.owner.is_none()).count());
    (finished.output, runs.into_iter().map(|run| run.graph).collect())
}

fn no_model() -> Scripted {
    Scripted::new(|_, _| panic!("no model is asked"))
}

/// A program runs the graph. No model is asked.
#[graph_test]
async fn a_program_runs_a_graph(bed: TestBed) {
    let (output, runs) = run(&bed, &tree(), "graphs/shop/work.yaml", &no_model(), json!({ "job": "a" })).await;
    assert_eq!((output, runs), (json!({ "done": "harmless" }), vec!["shop/work".to_owned()]));
}

/// A model decides whether the graph runs, and with which inputs.
#[graph_test]
async fn a_model_calls_a_graph_as_a_tool(bed: TestBed) {
    let model = Scripted::new(|turn, request| {
        Ok(match turn {
            0 => {
                let graph = request.tools.iter().find(|tool| tool.name == "shop_work").unwrap();
                assert_eq!(graph.parameters["required"], json!(["job"]), "its inputs are the parameters");
                calls(&[("shop_work", json!({ "job": "a" }))])
            }
            _ => {
                let text = format!("{:?}", request.messages.last());
                assert!(text.contains("harmless") && text.contains("completed"), "{text}");
                answer(json!({ "verdict": "merge", "confidence": 1 }))
            }
        })
    });
    let (output, runs) = run(&bed, &tree(), "graphs/tools/shop/review.yaml", &model, json!({ "fixes": [] })).await;
    assert_eq!(output["verdict"], "merge");
    assert_eq!(runs, ["shop/review", "shop/work"]);
}

/// The contract of the agent that follows the directive `state_graph`: it says which graphs may run, and what the answer is.
const STATE_GRAPH: &str = r#"version: "1.0.0"
tool_type: agent
permissions: [rye.execute.tool.test.work, rye.execute.tool.shop.inner]
config:
  directive: rye/agent/graphs/state_graph
  tools: [shop/work, rye/orchestrate/spawn]
  limits: { turns: 4, tokens: 4096 }
config_schema:
  type: object
  properties:
    graph_id: { type: string }
    parameters: { type: object }
    async: { type: boolean }
  required: [graph_id]
result_schema:
  type: object
  properties:
    graph_run_id: { type: string }
    status: { enum: [completed, running, error, cancelled] }
    state: { type: object }
    steps: { type: integer }
  required: [status]
"#;

/// Returns the directive `state_graph` with its process in the signed element.
fn directive() -> String {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/seeds/.ai/directives/rye/agent/graphs/state_graph.md");
    let text = fs::read_to_string(path).unwrap();
    let part = |from: &str, to: &str| {
        let begin = text.find(from).unwrap();
        &text[begin..begin + text[begin..].find(to).unwrap() + to.len()]
    };
    let (element, process) = (part("<directive ", "</directive>"), part("<process>", "</process>"));
    if element.contains("<process>") {
        return format!("# State graph\n\n{element}\n");
    }
    format!("# State graph\n\n{}{process}\n</directive>\n", element.strip_suffix("</directive>").unwrap())
}

/// A directive tells a model how to run a graph. The model may run those graphs that the agent's contract lists.
#[graph_test]
async fn a_directive_wraps_a_graph(_: TestBed) {
    for (graph, is_async) in [("shop/work", false), ("shop/work", true), ("shop/merge", false), ("shop/merge", true)] {
        let (bed, tree) = (TestBed::new(), tree());
        tree.write("graphs/tools/shop/state_graph.yaml", STATE_GRAPH);
        tree.directive_at("rye/agent/graphs/state_graph", &directive());
        let model = Scripted::new(move |turn, request| {
            assert!(request.system.contains("{input:graph_id}"), "{}", request.system);
            let result = request.messages.iter().rev().find_map(|message| match message {
                graph_agents::ModelMessage::Tool { result, .. } => Some(result.clone()),
                _ => None,
            });
            Ok(match (turn, is_async) {
                (0, false) => calls(&[(&graph.replace('/', "_"), json!({ "job": "a" }))]),
                (0, true) => calls(&[("orchestrate_spawn", json!({ "target": graph, "inputs": { "job": "a" } }))]),
                _ => match result.unwrap() {
                    Ok(result) if is_async => answer(json!({ "graph_run_id": result["task"], "status": "running" })),
                    Ok(result) => {
                        answer(json!({ "status": "completed", "state": result["state"], "steps": result["steps"] }))
                    }
                    Err(_) => answer(json!({ "status": "error" })),
                },
            })
        });
        let inputs = json!({ "graph_id": graph, "parameters": { "job": "a" }, "async": is_async });
        let (output, runs) = run(&bed, &tree, "graphs/tools/shop/state_graph.yaml", &model, inputs).await;
        let is_granted = graph == "shop/work";
        let status = if !is_granted {
            "error"
        } else if is_async {
            "running"
        } else {
            "completed"
        };
        assert_eq!(output["status"], status, "{output}");
        assert_eq!(runs.len(), 1 + usize::from(is_granted), "{runs:?}");
        assert!(runs.iter().all(|run| run != "shop/merge"), "{runs:?}");
    }
}

/// A graph runs a graph that has an agent, which runs a graph: each has a journal, and the permissions of all around it hold.
#[graph_test]
async fn a_graph_around_a_graph_around_an_agent(bed: TestBed) {
    let tree = tree();
    let outer = r#"version: "1.0.0"
tool_type: graph
executor_id: rye/core/runtimes/state-graph/runtime
category: shop
permissions: ["rye.execute.tool.*"]
config_schema:
  type: object
  properties: { token: { type: string, x-secret: true } }
  required: [token]
config:
  start: merge
  nodes:
    merge:
      action: { item_id: shop/merge, params: { fixes: [a.rs], token: "${inputs.token}" } }
      assign: { end: "${result.output.end}" }
      next: end
    end: { type: return, output: { end: "${state.end}" } }
"#;
    tree.write("graphs/shop/outer.yaml", outer);
    let model = Scripted::new(|turn, _| {
        let reply: ModelReply = match turn {
            0 => calls(&[("shop_work", json!({ "job": "a" })), ("files_read", json!({ "path": "a.rs" }))]),
            _ => answer(json!({ "verdict": "merge", "confidence": 1 })),
        };
        Ok(reply)
    });
    let (output, runs) = run(&bed, &tree, "graphs/shop/outer.yaml", &model, json!({ "token": "SECRET-TOKEN" })).await;
    assert_eq!(output, json!({ "end": "merge" }));
    assert_eq!(runs, ["shop/outer", "shop/merge", "shop/review", "shop/work"]);
    let summary = bed.disk().list().await.unwrap();
    assert!(summary.iter().all(|run| run.status == Status::Completed));
    assert!(!format!("{:?}", model.requests.lock().unwrap()).contains("SECRET"));
}

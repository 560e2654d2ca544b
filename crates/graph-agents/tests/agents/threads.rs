//! Threads: agents that a graph starts by the directive that they follow.

use graph_runtime::testing::{TestBed, graph_test};
use graph_runtime::{Map, Runtime, Value};
use serde_json::json;

use crate::tree::{Scripted, Tree, answer, calls};

/// Returns a graph whose nodes call the tools of threads.
fn graph(nodes: &str) -> String {
    format!(
        "version: \"1.0.0\"\ntool_type: graph\nexecutor_id: rye/core/runtimes/state-graph/runtime\ncategory: shop
permissions: [\"rye.execute.tool.*\"]\nconfig:\n  start: first\n  nodes:\n{nodes}"
    )
}

fn scripted() -> Scripted {
    Scripted::new(|turn, _| {
        Ok(match turn {
            0 => calls(&[("files_list", json!({}))]),
            _ => answer(json!({ "verdict": "merge", "confidence": 0.5 })),
        })
    })
}

/// Runs the graph, and returns its output or its error.
async fn run(bed: &TestBed, tree: &Tree, model: &Scripted, nodes: &str) -> Result<Value, String> {
    tree.write("graphs/shop/lead.yaml", &graph(nodes));
    let library = tree.library();
    let tasks = library.tasks();
    let runtime: Runtime =
        bed.process(bed.disk().clone()).tools(tree.agents(model).tasks(tasks.clone())).build().unwrap();
    tasks.serve(&runtime);
    let lead = library.graph(&tree.path("graphs/shop/lead.yaml")).unwrap_or_else(|error| panic!("{error:?}"));
    let ended = runtime.start(lead, Map::new()).await.unwrap().await;
    ended.map(|finished| finished.output).map_err(|error| error.to_string())
}

#[graph_test]
async fn a_thread_is_waited_for_and_its_outputs_are_the_answer(bed: TestBed) {
    let nodes = r#"    first:
      action:
        primary: execute
        item_type: tool
        item_id: rye/agent/threads/thread_directive
        params: { directive_name: workflows/review, inputs: { fixes: [a.rs] } }
      assign: { verdict: "${result.outputs.verdict}", cost: "${result.cost}", id: "${result.thread_id}" }
      next: read
    read:
      action: { item_id: rye/agent/threads/orchestrator, params: { operation: read_transcript, thread_id: "${state.id}", tail_lines: 1 } }
      assign: { transcript: "${result.transcript}" }
      next: end
    end: { type: return, output: { verdict: "${state.verdict}", cost: "${state.cost}", transcript: "${state.transcript}" } }
"#;
    let output = run(&bed, &Tree::new(), &scripted(), nodes).await.unwrap();
    assert_eq!(output["verdict"], "merge");
    assert_eq!(output["cost"], json!({ "turns": 2, "tokens": 30, "micros": 40 }));
    let transcript = output["transcript"].as_array().unwrap();
    assert!(transcript.len() == 1 && transcript[0]["role"] == "assistant", "{transcript:?}");
}

#[graph_test]
async fn threads_are_started_in_parallel_and_waited_for(bed: TestBed) {
    let nodes = r#"    first:
      action:
        item_id: rye/agent/threads/thread_directive
        params: { directive_name: workflows/review, inputs: { fixes: [a.rs] }, async_exec: true }
      assign: { a: "${result.thread_id}", status: "${result.status}" }
      next: second
    second:
      action: { item_id: rye/agent/threads/thread_directive, params: { directive: workflows/review, fixes: [b.rs], async_exec: true } }
      assign: { b: "${result.thread_id}" }
      next: wait
    wait:
      action:
        item_id: rye/agent/threads/orchestrator
        params: { operation: wait_threads, thread_ids: ["${state.a}", "${state.b}"], timeout: 300 }
      assign: { results: "${result.results}" }
      next: children
    children:
      action: { item_id: rye/agent/threads/orchestrator, params: { operation: list_children } }
      assign: { children: "${result.threads}" }
      next: active
    active:
      action: { item_id: rye/agent/threads/orchestrator, params: { operation: list_active } }
      assign: { active: "${result.threads}" }
      next: status
    status:
      action: { item_id: rye/agent/threads/orchestrator, params: { operation: get_status, thread_id: "${state.a}" } }
      assign: { thread: "${result.thread}" }
      next: kill
    kill:
      action: { item_id: rye/agent/threads/orchestrator, params: { operation: kill_thread, thread_id: "${state.a}" } }
      assign: { stopped: "${result.stopped}" }
      next: end
    end:
      type: return
      output: { status: "${state.status}", results: "${state.results}", children: "${state.children}", active: "${state.active}",
                thread: "${state.thread}", stopped: "${state.stopped}" }
"#;
    let output = run(&bed, &Tree::new(), &scripted(), nodes).await.unwrap();
    assert_eq!(
        (&output["status"], &output["active"], &output["stopped"]),
        (&json!("running"), &json!([]), &json!(false))
    );
    for result in output["results"].as_array().unwrap().iter().chain([&output["thread"]]) {
        assert_eq!((&result["status"], &result["outputs"]["verdict"]), (&json!("completed"), &json!("merge")));
    }
    assert_eq!(output["results"].as_array().map(Vec::len), Some(2));
    assert_eq!(output["children"].as_array().map(Vec::len), Some(2));
}

#[graph_test]
async fn a_thread_that_cannot_be_started_says_why(bed: TestBed) {
    for (params, expected) in [
        ("directive_name: workflows/none", "no agent follows the directive `workflows/none`"),
        ("inputs: {}", "`directive_name` is the id of a directive"),
        ("directive_name: workflows/review, inputs: {}", "the inputs do not fit the graph `shop/review`"),
        ("directive_name: workflows/review, async_exec: 1", "`async_exec` is true or false"),
        (
            "directive_name: workflows/review, limit_overrides: { turns: 0 }",
            "the limit `turns` is a whole number above 0",
        ),
        (
            "directive_name: workflows/review, inputs: { fixes: [] }, limit_overrides: { turns: 1, spend: 0.10 }",
            "the agent has no answer, and has taken its 1 turns",
        ),
        (
            "directive_name: workflows/review, inputs: { fixes: [] }, limit_overrides: { turns: 100, spend: 0.00001 }",
            "has spent 20 of 10 millionths of a dollar",
        ),
    ] {
        let nodes = format!(
            "    first: {{ action: {{ item_id: rye/agent/threads/thread_directive, params: {{ {params} }} }}, next: end }}\n    end: {{ type: return }}\n"
        );
        let error = run(&bed, &Tree::new(), &scripted(), &nodes).await.unwrap_err();
        assert!(error.contains(expected), "{params}: {error}");
    }
    // Two agents follow one directive.
    let tree = Tree::new();
    let review = tree.read("graphs/tools/shop/review.yaml");
    tree.write("graphs/tools/shop/second.yaml", &review);
    let nodes = "    first: { action: { item_id: rye/agent/threads/thread_directive, params: { directive_name: workflows/review, inputs: { fixes: [] } } }, next: end }\n    end: { type: return }\n";
    let error = run(&bed, &tree, &scripted(), nodes).await.unwrap_err();
    assert!(
        error.contains("several agents follow the directive `workflows/review`: `shop/review`, `shop/second`"),
        "{error}"
    );
    // An agent that fails fails the node.
    let model = Scripted::new(|_, _| Ok(calls(&[("files_list", json!({}))])));
    let error = run(&bed, &Tree::new(), &model, nodes).await.unwrap_err();
    assert!(error.contains("the agent has no answer, and has taken its 4 turns"), "{error}");
    let nodes = "    first: { action: { item_id: rye/agent/threads/orchestrator, params: { operation: publish } }, next: end }\n    end: { type: return }\n";
    let error = run(&bed, &Tree::new(), &model, nodes).await.unwrap_err();
    assert!(error.contains("`publish` is no operation: there are `wait_threads`"), "{error}");
}

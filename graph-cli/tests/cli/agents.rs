//! Agents in the commands that read graphs.

use crate::place::Place;

const REVIEW: &str = r#"version: "1.0.0"
tool_type: agent
config:
  directive: workflows/review
  tools: [files/read]
config_schema:
  type: object
  properties: { fixes: { type: array, items: { type: string } } }
  required: [fixes]
result_schema:
  type: object
  properties: { verdict: { enum: [merge, reject] } }
  required: [verdict]
"#;

const READ: &str = "version: \"1.0.0\"\ntool_type: rust
config_schema: { type: object, properties: { path: { type: string } }, required: [path] }
result_schema: { type: object, properties: { text: { type: string } }, required: [text] }\n";

const TESTS: &str = "inputs: { fixes: [a.rs] }
cases:
  - name: the agent reads a file and approves
    tools:
      rye/agent/model:
        - returns: { said: [], calls: [{ id: c1, tool: files/read, arguments: { path: a.rs } }], tokens: 10, micros: 1 }
        - returns: { said: [], calls: [], answer: { verdict: merge }, tokens: 10, micros: 1 }
      files/read: { returns: { text: good } }
    crash: each_commit
    expect:
      output: { verdict: merge }
      calls: { files/read: [{ path: a.rs }] }
";

const MERGE: &str = r#"version: "1.0.0"
tool_type: graph
executor_id: rye/core/runtimes/state-graph/runtime
category: shop
permissions: [rye.execute.tool.rye.agent.model, rye.execute.tool.files.read, rye.execute.tool.shop.review]
config_schema:
  type: object
  properties: { fixes: { type: array, items: { type: string } } }
  required: [fixes]
config:
  start: review
  nodes:
    review:
      action: { item_id: shop/review, params: { fixes: "${inputs.fixes}" } }
      assign: { verdict: "${result.output.verdict}" }
      next: done
    done: { type: return, output: { verdict: "${state.verdict}" } }
"#;

#[test]
fn an_agent_is_checked_drawn_tested_and_covered_as_a_graph() {
    let place = Place::with_key();
    for (name, text) in [
        ("graphs/tools/shop/review.yaml", REVIEW),
        ("graphs/tools/files/read.yaml", READ),
        ("graphs/shop/merge.yaml", MERGE),
    ] {
        place.write(name, text);
        assert_eq!(place.graph(&["sign", name]).code, 0);
    }
    let ran = place.graph(&["check"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "checked 2 graphs: no errors\n"), "{}", ran.err);
    let ran = place.graph(&["diagram", "--format", "text", "graphs/tools/shop/review.yaml"]);
    assert!(ran.code == 0 && ran.out.contains("call_read (action)\n    files/read\n"), "{}{}", ran.out, ran.err);
    place.write("graphs/shop/merge.test.yaml", TESTS);
    let ran = place.graph(&["test", "graphs/shop/merge.yaml"]);
    assert!(ran.code == 0 && ran.out.ends_with("ran 1 case: 1 passed\n"), "{}{}", ran.out, ran.err);
    let ran = place.graph(&["coverage", "graphs"]);
    assert!(
        ran.out.contains("graphs/tools/shop/review.yaml: ") && ran.out.contains("node not reached: failed"),
        "{}",
        ran.out
    );
    // A contract with a mistake is named at its place, whether or not a graph calls it.
    place
        .write("graphs/tools/shop/second.yaml", &REVIEW.replace("directive: workflows/review", "directive: ../review"));
    assert_eq!(place.graph(&["sign", "graphs/tools/shop/second.yaml"]).code, 0);
    let ran = place.graph(&["check"]);
    assert_eq!(ran.code, 1);
    assert!(
        ran.err.contains("graphs/tools/shop/second.yaml:5:14") && ran.err.contains("`directive` is the id"),
        "{}",
        ran.err
    );
}

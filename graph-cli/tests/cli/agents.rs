//! Agents in the commands that read graphs.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

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

const DIRECTIVE: &str = r#"# Review

<directive name="review" version="1.0.0">
  <metadata><description>Review the fixes.</description></metadata>
  <inputs><input name="fixes" type="array" required="true">The fixes</input></inputs>
  <process><step name="look">Judge {input:fixes}.</step></process>
</directive>
"#;

/// Answers one request in the protocol of OpenAI, and returns what it was asked.
fn endpoint() -> (String, std::thread::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1/", listener.local_addr().unwrap());
    let answering = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let (mut request, mut piece) = (Vec::new(), [0; 4096]);
        while !request.ends_with(b"}") || !String::from_utf8_lossy(&request).contains("\"messages\"") {
            let count = stream.read(&mut piece).unwrap();
            request.extend_from_slice(&piece[..count]);
        }
        let answer = r#"{"choices":[{"index":0,"delta":{"content":"{\"verdict\":\"merge\"}"},"finish_reason":"stop"}],"usage":{"prompt_tokens":40,"completion_tokens":9}}"#;
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
        write!(stream, "{head}data: {answer}\n\ndata: [DONE]\n\n").unwrap();
        String::from_utf8(request).unwrap()
    });
    (url, answering)
}

#[test]
fn a_run_asks_the_models_that_a_file_names() {
    let place = Place::with_key();
    let review = REVIEW.replace("  tools: [files/read]\n", "  limits: { spend: \"0.01 USD\" }\n");
    let merge = MERGE.replace(" rye.execute.tool.files.read,", "");
    for (name, text) in [
        ("graphs/tools/shop/review.yaml", review.as_str()),
        ("graphs/shop/merge.yaml", &merge),
        (".ai/directives/workflows/review.md", DIRECTIVE),
    ] {
        place.write(name, text);
        assert_eq!(place.graph(&["sign", name]).code, 0);
    }
    let run = |models: &str, key: Option<&str>| {
        place.write("models.toml", models);
        let arguments = ["run", "graphs/shop/merge.yaml", "--models", "models.toml", "--input", r#"fixes=["a.rs"]"#];
        let mut command = place.command(&arguments);
        if let Some(key) = key {
            command.env("REVIEW_KEY", key);
        }
        place.ran(command.output().unwrap())
    };
    let (url, answering) = endpoint();
    let models = format!(
        "[general]\nprotocol = \"openai\"\nmodel = \"small\"\nurl = \"{url}\"\nkey_env = \"REVIEW_KEY\"\nprice = {{ input = 0.15, output = 0.6 }}\n"
    );
    let ran = run(&models, Some("sk-secret-7"));
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    let result: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(result["output"], serde_json::json!({ "verdict": "merge" }), "{result}");
    let asked = answering.join().unwrap();
    assert!(asked.contains("Bearer sk-secret-7") && asked.contains("Judge {input:fixes}."), "{asked}");
    assert!(!format!("{}{}", ran.out, ran.err).contains("sk-secret-7"));
    for (from, to, key, said) in [
        ("", "", None, "the model of `general`: the variable `REVIEW_KEY` of the environment has no key"),
        ("", "", Some("sk secret"), "the model `small` has no key, or one with spaces"),
        ("protocol = \"openai\"", "protocol = \"other\"", Some("k"), "unknown variant `other`"),
        ("model = ", "models = ", Some("k"), "unknown field `models`"),
        ("model = ", "reasoning = \"max\"\nmodel = ", Some("k"), "unknown variant `max`"),
        ("input = 0.15", "input = -1", Some("k"), "a price is from 0"),
        ("127.0.0.1", "models.example", Some("k"), "use `https`"),
    ] {
        let ran = run(&models.replace(from, to), key);
        assert!(ran.code == 2 && ran.err.contains("models.toml: ") && ran.err.contains(said), "{said}: {}", ran.err);
        assert!(!ran.err.contains("sk secret"), "{}", ran.err);
    }
    let ran = run("", None);
    assert!(ran.code == 2 && ran.err.contains("it names no model"), "{}", ran.err);
    let ran = run(&models.replace("[general]", "[best]"), Some("k"));
    assert!(ran.code == 1 && ran.err.contains("no model of the tier `general`: it has best"), "{}", ran.err);
}

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

/// People approve the guarded calls of an agent in a test too, and the budget has what the agent may use.
#[test]
fn a_guarded_agent_is_tested_with_answers_and_has_a_budget() {
    let place = Place::with_key();
    let review =
        REVIEW.replace("  tools: [files/read]\n", "  tools: [files/read]\n  limits: { turns: 4, tokens: 900 }\n");
    let read = READ.replace("tool_type: rust\n", "tool_type: rust\nx-guarded: true\n");
    let merge = MERGE.replace("config_schema:", "limits: { turns: 4, tokens: 900 }\nconfig_schema:");
    for (name, text) in [
        ("graphs/tools/shop/review.yaml", &review),
        ("graphs/tools/files/read.yaml", &read),
        ("graphs/shop/merge.yaml", &merge),
        (".ai/directives/workflows/review.md", &DIRECTIVE.to_owned()),
    ] {
        place.write(name, text);
        assert_eq!(place.graph(&["sign", name]).code, 0, "{name}");
    }
    let ran = place.graph(&["check", "--budget"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.err.contains("G0227"), "a question without a time waits forever: {}", ran.err);
    let is_row = |line: &str| line.starts_with("graphs/shop/merge.yaml") && line.ends_with("  4      900     no bound");
    assert!(ran.out.lines().any(is_row) && ran.out.contains("turns  tokens  spend"), "{}", ran.out);
    // It says which answers approve what, and by whom.
    let approval = "graphs/tools/shop/review.yaml: node `call_read` calls `files/read` if `approve_read` is answered by one person \
                    with any trusted key with `\"approve\"`";
    assert!(ran.out.lines().any(|line| line == approval), "{}", ran.out);
    let document: serde_json::Value = serde_json::from_str(&place.graph(&["check", "--budget", "--json"]).out).unwrap();
    let approvals: Vec<_> = document["budgets"].as_array().unwrap().iter().map(|one| &one["approvals"]).collect();
    let approval = serde_json::json!({
        "node": "call_read", "tool": "`files/read`", "interrupt": "approve_read", "answers": ["\"approve\""], "role": null, "count": 1,
    });
    assert!(approvals.contains(&&serde_json::json!([approval])), "{document}");
    let answered =
        |decision: &str| format!("    answers: [{{ to: approve_read, answer: {{ decision: {decision} }} }}]\n");
    let refused = TESTS
        .replace("the agent reads a file and approves", "nobody lets the agent read")
        .replace("      files/read: { returns: { text: good } }\n", "      files/read: []\n")
        .replace("      calls: { files/read: [{ path: a.rs }] }\n", "      calls: { files/read: 0 }\n");
    let case = |text: &str, decision: &str| text.replace("    crash:", &format!("{}    crash:", answered(decision)));
    let (_, refused) = refused.split_once("cases:\n").unwrap();
    let tests = case(TESTS, "approve") + &case(refused, "refuse");
    place.write("graphs/shop/merge.test.yaml", &tests);
    let ran = place.graph(&["test", "graphs/shop/merge.yaml"]);
    assert!(ran.code == 0 && ran.out.ends_with("ran 2 cases: 2 passed\n"), "{}{}", ran.out, ran.err);
    // A directive that nobody has signed yet does not keep an author from testing.
    let changed = DIRECTIVE.replace("Judge", "Weigh");
    place.write(".ai/directives/workflows/review.md", &changed);
    assert_eq!(place.graph(&["test", "graphs/shop/merge.yaml"]).code, 0);
    let ran = place.graph(&["check"]);
    assert!(ran.code == 1 && ran.err.contains("error[G0192]"), "{}", ran.err);
}

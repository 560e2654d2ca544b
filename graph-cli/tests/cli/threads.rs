//! Threads: a run begins them in one process, a worker in another runs them, a person answers in a third, and the run controls them from
//! a fourth. A local server is their model.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::place::Place;

const REVIEW: &str = r#"version: "1.0.0"
tool_type: agent
config:
  directive: workflows/review
  tools: [test/hold, rye/orchestrate/yield]
config_schema:
  type: object
  properties: { case: { type: string } }
  required: [case]
result_schema:
  type: object
  properties: { verdict: { type: string } }
  required: [verdict]
"#;

const DIRECTIVE: &str = r#"# Review

<directive name="review" version="1.0.0">
  <metadata><description>Review a case.</description></metadata>
  <inputs><input name="case" type="string" required="true">The case</input></inputs>
  <process><step name="look">Judge {input:case}.</step></process>
</directive>
"#;

/// Waits until there is a file.
const HOLD: &str = r#"version: "1.0.0"
tool_type: subprocess
config: { command: [bin/hold] }
config_schema: { type: object, properties: { file: { type: string } }, required: [file] }
"#;

/// A process that ends with its test.
struct Worker(Child);

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// A server that speaks the protocol of OpenAI, and replies as the talk demands.
fn endpoint() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            std::thread::spawn(move || reply(stream));
        }
    });
    url
}

/// Reads a request, and replies to it.
fn reply(stream: TcpStream) {
    let mut reader = BufReader::new(stream);
    let (mut line, mut length) = (String::new(), 0);
    while reader.read_line(&mut line).unwrap() > 2 {
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        line.clear();
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let request: Value = serde_json::from_slice(&body).unwrap();
    let talk = request["messages"].to_string();
    let verdict = |verdict: &str| ("answer", json!({ "verdict": verdict }));
    let is_case = |case: &str| talk.contains(&format!("\\\"case\\\": \\\"{case}\\\""));
    let (name, arguments) = if talk.contains("Once more.") {
        verdict("changed")
    } else if is_case("quick") {
        verdict("quick")
    } else if talk.contains("Hurry.") {
        verdict("hurried")
    } else if talk.contains("Ask Ann.") {
        verdict("asked")
    } else if is_case("ask") {
        ("orchestrate_yield", json!({ "question": "Whom shall I ask?" }))
    } else if is_case("endless") {
        ("test_hold", json!({ "file": "never" }))
    } else {
        ("test_hold", json!({ "file": "go" }))
    };
    let call = json!({ "index": 0, "id": "c1", "type": "function", "function": { "name": name, "arguments": arguments.to_string() } });
    let chunk = json!({
        "choices": [{ "index": 0, "delta": { "tool_calls": [call] }, "finish_reason": "tool_calls" }],
        "usage": { "prompt_tokens": 40, "completion_tokens": 9 },
    });
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    // A thread that was killed does not read its reply.
    drop(write!(reader.into_inner(), "{head}data: {chunk}\n\ndata: [DONE]\n\n"));
}

/// Returns the graph that begins the threads, and controls them behind the node `control`.
fn lead() -> String {
    let mut nodes = String::new();
    let cases = ["quick", "hurry", "nudge", "ask", "stop", "endless"];
    for (at, case) in cases.iter().enumerate() {
        let next = cases.get(at + 1).unwrap_or(&"control");
        nodes += &format!(
            "    {case}:\n      action: {{ item_id: rye/agent/threads/thread_directive, params: {{ directive_name: workflows/review, \
             inputs: {{ case: {case} }}, async_exec: true }} }}\n      assign: {{ {case}: \"${{result.thread_id}}\" }}\n      next: {next}\n"
        );
    }
    let operations = [
        ("control", "operation: list_active", "active: \"${result.threads}\""),
        (
            "steer",
            "operation: resume_thread, thread_id: \"${state.hurry}\", message: Hurry.",
            "sent: \"${result.sent}\"",
        ),
        ("cancel", "operation: cancel_thread, thread_id: \"${state.stop}\"", "cancelled: \"${result.stopped}\""),
        ("kill", "operation: kill_thread, thread_id: \"${state.endless}\"", "killed: \"${result.stopped}\""),
        ("nudge_it", "", "nudged: \"${result.sent}\""),
        ("go", "", "went: \"${result.exit_code}\""),
        (
            "wait",
            "operation: wait_threads, thread_ids: [\"${state.hurry}\", \"${state.nudge}\", \"${state.ask}\"]",
            "results: \"${result.results}\"",
        ),
        ("status", "operation: get_status, thread_id: \"${state.stop}\"", "stopped: \"${result.thread}\""),
        ("children", "operation: list_children", "children: \"${result.threads}\""),
        (
            "resume",
            "operation: resume_thread, thread_id: \"${state.quick}\", message: Once more.",
            "again: \"${result.thread_id}\"",
        ),
        ("wait_again", "operation: wait_threads, thread_ids: [\"${state.again}\"]", "changed: \"${result.results}\""),
        ("chain", "operation: get_chain, thread_id: \"${state.again}\"", "chain: \"${result.chain}\""),
        (
            "search",
            "operation: chain_search, thread_id: \"${state.quick}\", query: once MORE",
            "found: \"${result.matches}\"",
        ),
        ("read", "operation: read_transcript, thread_id: \"${state.ask}\"", "transcript: \"${result.transcript}\""),
    ];
    for (at, (name, params, assign)) in operations.iter().enumerate() {
        let next = operations.get(at + 1).map_or("end", |next| next.0);
        let action = match *name {
            // The calls in progress end then.
            "nudge_it" => {
                "{ item_id: rye/orchestrate/steer, params: { task: \"${state.nudge}\", message: Hurry. } }".to_owned()
            }
            "go" => "{ item_id: rye/bash, params: { command: touch go } }".to_owned(),
            _ => format!("{{ item_id: rye/agent/threads/orchestrator, params: {{ {params} }} }}"),
        };
        nodes += &format!("    {name}:\n      action: {action}\n      assign: {{ {assign} }}\n      next: {next}\n");
    }
    let keys = [
        "active",
        "killed",
        "results",
        "stopped",
        "children",
        "changed",
        "chain",
        "found",
        "transcript",
        "quick",
        "again",
    ];
    let output: Vec<String> = keys.iter().map(|key| format!("{key}: \"${{state.{key}}}\"")).collect();
    format!(
        "permissions: [\"rye.execute.tool.rye.*\", \"rye.execute.tool.shop.*\", \"rye.execute.tool.test.*\"]\nconfig:\n  start: quick\n  nodes:\n{nodes}    \
         end: {{ type: return, output: {{ {} }} }}\n",
        output.join(", ")
    )
}

#[test]
fn threads_are_controlled_from_another_process_than_the_one_that_runs_them() {
    use std::os::unix::fs::PermissionsExt as _;
    let place = Place::with_graph(&lead());
    place.sign("graphs/tools/shop/review.yaml", REVIEW);
    place.sign("graphs/tools/test/hold.yaml", HOLD);
    let hold = "#!/bin/sh\nread -r line\nfile=${line##*:\\\"}; file=${file%%\\\"*}\ntouch \"held-$file\"\nwhile [ ! -e \"$file\" ]; do sleep 0.02; done\necho '{}'\n";
    place.write(
        "graphs/bin/hold",
        &hold.replace("touch \"held", &format!("cd {}; touch \"held", place.root().display())),
    );
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(place.path("graphs/bin/hold"), executable).unwrap();
    place.write(".ai/directives/workflows/review.md", DIRECTIVE);
    assert_eq!(place.graph(&["sign", ".ai/directives/workflows/review.md"]).code, 0);
    place.write(
        "models.toml",
        &format!("[general]\nprotocol = \"openai\"\nmodel = \"small\"\nurl = \"{}\"\n", endpoint()),
    );
    let run = ["run", "graphs/g.yaml", "--models", "models.toml", "--store", "runs.db"];
    let begun = place.graph(&[&run[..], &["--run-id", "lead", "--pause-before", "control"]].concat());
    assert_eq!(begun.code, 4, "{}{}", begun.out, begun.err);
    let work = ["work", "graphs/tools/shop/review.yaml", "--models", "models.toml", "--store", "runs.db", "--quiet"];
    let _worker = Worker(place.command(&work).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let until = |what: &dyn Fn() -> bool| {
        let begun = Instant::now();
        while !what() {
            assert!(begun.elapsed() < Duration::from_secs(60), "the worker does not come that far");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    // The worker has asked the model, and makes calls that do not end.
    until(&|| place.path("held-go").exists() && place.path("held-never").exists());
    let question = || {
        let inbox: Value = serde_json::from_str(&place.stored(&["inbox", "--json"]).out).unwrap();
        inbox["open"][0]["run_id"].as_str().map(str::to_owned)
    };
    until(&|| question().is_some());
    let resumed = [&run[..], &["--resume", "lead", "--release", "--quiet"]].concat();
    let lead = place.command(&resumed).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let asked = question().unwrap();
    let answered = place.stored(&["answer", &asked, "--json", r#"{"answer": "Ask Ann."}"#]);
    assert_eq!(answered.code, 0, "{}", answered.err);
    let ended = place.ran(lead.wait_with_output().unwrap());
    assert_eq!(ended.code, 0, "{}{}", ended.out, ended.err);
    let output = &serde_json::from_str::<Value>(&ended.out).unwrap()["output"];
    let verdict = |thread: &Value| thread["outputs"]["verdict"].as_str().map(str::to_owned);
    let verdicts: Vec<Option<String>> = output["results"].as_array().unwrap().iter().map(verdict).collect();
    assert_eq!(verdicts, ["hurried", "hurried", "asked"].map(|verdict| Some(verdict.to_owned())), "{output}");
    assert!(output["active"].as_array().is_some_and(|active| active.len() >= 4), "{output}");
    assert_eq!((&output["killed"], &output["stopped"]["status"]), (&json!(true), &json!("cancelled")), "{output}");
    assert_eq!(output["children"].as_array().map(Vec::len), Some(6), "{output}");
    assert_eq!(verdict(&output["changed"][0]).as_deref(), Some("changed"), "{output}");
    let chain: Vec<&Value> = output["chain"].as_array().unwrap().iter().map(|thread| &thread["thread_id"]).collect();
    assert_eq!(chain, [&output["quick"], &output["again"]], "{output}");
    assert_eq!((&output["found"][0]["thread_id"], &output["found"][0]["role"]), (&output["again"], &json!("steer")));
    let transcript = output["transcript"].to_string();
    assert!(transcript.contains("Whom shall I ask?") && transcript.contains("Ask Ann."), "{transcript}");
    let proven = place.graph(&["verify-run", "lead", "--store", "runs.db", "--graph", "graphs/g.yaml"]);
    assert_eq!(proven.code, 0, "{}", proven.err);
}

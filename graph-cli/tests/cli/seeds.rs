//! The examples of the format's own pages, run as their readers run them: `tests/seeds` holds them.

use std::fs;
use std::path::Path;

use graph_model::name::ItemId;
use graph_model::program::{ItemType, Verb};
use graph_runtime::Spaces;
use graph_runtime::items::Operations;
use graph_signing::{KeyRing, PublicKey};
use serde_json::{Map, Value, json};

use crate::place::Place;

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

fn demo_key(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../graphs/keys/demo").join(name)
}

/// A copy of `tests/seeds`.
fn seeds() -> Place {
    let place = Place::new();
    copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/seeds"), place.root());
    place
}

/// Runs a graph with the inputs `json`, and returns the exit code and the result.
fn run(place: &Place, graph: &str, json: Value) -> (i32, Value) {
    let ran = place.graph(&["run", graph, "--quiet", "--json", &json.to_string()]);
    (ran.code, serde_json::from_str(&ran.out).unwrap())
}

/// Runs a graph that completes, and returns its output.
fn output(place: &Place, graph: &str, json: Value) -> Value {
    let (code, mut result) = run(place, graph, json);
    assert_eq!((code, &result["status"]), (0, &json!("completed")), "{result}");
    result["output"].take()
}

#[test]
fn every_example_is_signed_and_has_only_code_sink_warnings() {
    let ran = seeds().graph(&["check"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let said: Vec<&str> = ran.err.lines().filter(|line| line.starts_with(['e', 'w'])).collect();
    assert!(!said.is_empty() && said.iter().all(|line| line.starts_with("warning[G0180]")), "{}", ran.err);
}

#[test]
fn project_stats_counts_files_and_lines() {
    let place = seeds();
    place.write("src/a.py", "1\n2\n");
    place.write("src/deep/b.py", "3\n");
    place.write("src/.venv/c.py", "4\n");
    place.write("src/d.txt", "5\n");
    let graph = "workflows/test/project_stats";
    assert_eq!(output(&place, graph, json!({"directory": "src"})), json!({"file_count": "2", "line_count": "3"}));
    assert_eq!(output(&place, graph, json!({})), json!({"file_count": "2", "line_count": "3"}));
}

#[test]
fn a_condition_leads_to_the_happy_end() {
    let ran = seeds().graph(&["run", "workflows/example/greeting"]);
    assert!(ran.err.contains("happy_path ⏹"), "{}", ran.err);
    assert!(ran.out.contains(r#""output":{"greeting":"hello"}"#), "{}", ran.out);
}

#[test]
fn expressions_find_what_they_name() {
    let (place, graph) = (seeds(), "workflows/example/expressions");
    let expected = json!({"path": "default", "key": "k-0", "said": "Found third b.json in .", "code": 0});
    assert_eq!(output(&place, graph, json!({})), expected);
    let expected = json!({"path": "custom", "key": "mine", "said": "Found third b.json in /x", "code": 0});
    assert_eq!(output(&place, graph, json!({"directory": "/x", "api_key": "mine"})), expected);
    let (_, result) = run(&place, graph, json!({}));
    let text = |name: &str| result["state"][name].as_str().unwrap().to_owned();
    assert!(text("started_at").ends_with('Z') && text("run_id").starts_with("pipeline-1"), "{result}");
}

#[test]
fn a_condition_sees_what_its_own_node_assigned() {
    let (place, graph) = (seeds(), "workflows/example/check_status");
    let output = |url: &str| output(&place, graph, json!({"health_url": url}))["healthy"] == 0;
    // Without `curl`, the check fails for every URL.
    let has_curl = std::process::Command::new("curl").arg("--version").output().is_ok();
    assert_eq!(output("file:///dev/null"), has_curl);
    assert!(!output("file:///nonexistent"));
}

#[test]
fn a_failure_leads_to_its_handler_or_is_suppressed() {
    let place = seeds();
    let (code, result) = run(&place, "workflows/example/risky", json!({}));
    assert_eq!((code, &result["output"]), (0, &json!({"recovery_note": "Error was caught"})));
    assert_eq!(result["state"]["_last_error"]["node"], "risky_step");
    let (code, result) = run(&place, "workflows/example/suppressed", json!({}));
    assert_eq!((code, &result["success"], &result["status"]), (0, &json!(true), &json!("completed_with_errors")));
    assert_eq!((&result["errors_suppressed"], &result["errors"][0]["node"]), (&json!(1), &json!("risky_step")));
}

#[test]
fn hooks_retry_and_see_the_number_of_steps() {
    let place = seeds();
    assert_eq!(output(&place, "workflows/example/hooks", json!({})), json!({}));
    assert_eq!(place.read("tried"), "x\nx\nx\n");
    assert!(place.read("hooked").starts_with("Reached step 5\n"));
}

#[test]
fn missing_variables_are_found_before_anything_runs() {
    let place = seeds();
    let (code, result) = run(&place, "workflows/example/store_results", json!({}));
    assert_eq!((code, &result["success"]), (3, &json!(false)));
    let error = result["error"].as_str().unwrap();
    assert!(error.contains("'BACKEND_API_URL'") && error.contains("'DATABASE_URL'"), "{error}");
    let mut command = place.command(&["run", "workflows/example/store_results"]);
    let ran = place.ran(command.env("BACKEND_API_URL", "there").env("DATABASE_URL", "").output().unwrap());
    assert!(ran.out.contains(r#""output":{"answer":"there"}"#), "{}", ran.out);
}

#[test]
fn a_foreach_collects_in_the_order_of_its_items() {
    let tasks = json!([{"text": "a", "output_path": "x"}, {"text": "b", "output_path": "y"}]);
    let output = output(&seeds(), "workflows/example/fan_out", json!({"tasks": tasks}));
    assert_eq!(output["results"][0]["outputs"]["path"], "x");
    assert_eq!(output["results"][1]["outputs"]["path"], "y");
}

#[test]
fn code_is_reviewed_or_approved() {
    let (place, graph) = (seeds(), "workflows/code-review/code-review");
    let expected = json!({"issues": 1, "file_count": 2, "fixes": ["one", "two"], "review_verdict": "good"});
    assert_eq!(output(&place, graph, json!({"files": ["bad.py", "a.py"]})), expected);
    let expected = json!({"issues": 0, "file_count": 1, "approval": {"path": "approval.md"}});
    assert_eq!(output(&place, graph, json!({"files": ["a.py"]})), expected);
}

#[test]
fn an_empty_result_leads_to_another_report() {
    let (place, graph) = (seeds(), "workflows/etl/process-sales");
    let output = |region: &str| output(&place, graph, json!({"region": region, "quarter": "1"}));
    let north = output("north");
    assert_eq!((&north["top_customers"], &north["report_path"]), (&json!(["a"]), &json!("north.md")));
    assert_eq!(output("south")["report_path"], ".ai/data/reports/south-1-empty.md");
}

#[test]
fn files_are_reviewed_at_the_same_time_and_waited_for() {
    let output = output(&seeds(), "workflows/review/multi-file-review", json!({"files": ["a.py", "b.py"]}));
    assert_eq!(output["thread_ids"], json!(["review-a.py", "review-b.py"]));
    assert_eq!(output["wait_results"]["review-a.py"], "completed");
    assert_eq!(output["all_results"], json!({"review-a.py": "good", "review-b.py": "bad"}));
}

#[test]
fn an_api_call_fails_or_is_decided_by_several_conditions() {
    let (place, graph) = (seeds(), "workflows/example/call_api");
    let output = |given: Value| output(&place, graph, given);
    assert_eq!(output(json!({"endpoint": "/down"})), json!({"path": "fallback", "logged": "call_api"}));
    for (score, priority, path) in [
        (20, "high", "escalate"),
        (20, "low", "manual_review"),
        (80, "high", "auto_resolve"),
        (50, "low", "manual_review"),
    ] {
        let output = output(json!({"endpoint": "/up", "score": score, "priority": priority}));
        assert_eq!(output["path"], path, "{score} {priority}");
    }
}

#[test]
fn items_are_fetched_looked_for_read_and_signed() {
    let place = seeds();
    let ran = place.graph(&["run", "workflows/example/items", "--quiet"]);
    assert_eq!(ran.code, 1, "nobody has a key here: {}", ran.out);
    assert!(ran.out.contains("there is no key to sign with"), "{}", ran.out);
    place.write("demo.pem", &fs::read_to_string(demo_key("private_key.pem")).unwrap());
    let path = place.path("demo.pem");
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let ran = place.graph(&["run", "workflows/example/items", "--quiet", "--key", path.to_str().unwrap()]);
    let result: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(ran.code, 0, "{result}");
    let output = &result["output"];
    assert!(output["rubric"].as_str().unwrap().contains("From 0 to 100."));
    assert_eq!((&output["found"], &output["step"]), (&json!("mail/sender"), &json!("Look at none.")));
    assert_eq!(output["signer"], "be8cd119b32a2931");
}

/// Acts as an agent that was given the directive: builds the parameters from its inputs, executes the graph, and checks
/// the outputs that the directive promises.
#[tokio::test]
async fn the_state_graph_directive_is_data_and_runs_as_it_describes() {
    let place = seeds();
    let key = PublicKey::from_pem(&fs::read_to_string(demo_key("public_key.pem")).unwrap()).unwrap();
    let spaces = Spaces::at(place.root()).trusting(KeyRing::of(&key, "the demo key"));
    let given = json!({
        "graph_id": "workflows/test/project_stats", "parameters": {"directory": "graphs"}, "depth": 2,
        "capabilities": ["rye.execute.tool.*"],
    });
    let Value::Object(given) = given else { unreachable!("it is an object") };
    let id = ItemId::new("rye/agent/graphs/state_graph").unwrap();
    let perform = async |given: Map<String, Value>| {
        Operations::new(spaces.clone()).perform(Verb::Execute, ItemType::Directive, Some(&id), given).await
    };
    assert!(perform(Map::new()).await.is_err(), "a graph is needed");
    let directive = perform(given).await.unwrap();
    let steps: Vec<&Value> = directive["process"].as_array().unwrap().iter().map(|step| &step["name"]).collect();
    assert_eq!(steps, ["validate_input", "build_parameters", "execute_graph", "return_result"]);
    let execute = directive["process"][2]["text"].as_str().unwrap();
    assert!(execute.contains("workflows/test/project_stats"), "{execute}");

    let mut arguments = vec!["run".to_owned()];
    for input in directive["inputs"].as_array().unwrap() {
        let Some(value) = input.get("value") else { continue };
        match input["name"].as_str().unwrap() {
            "graph_id" => arguments.push(value.as_str().unwrap().to_owned()),
            "parameters" => arguments.extend(["--json".to_owned(), value.to_string()]),
            "resume_run_id" => arguments.extend(["--resume".to_owned(), value.as_str().unwrap().to_owned()]),
            "depth" => arguments.extend(["--depth".to_owned(), value.to_string()]),
            "capabilities" => arguments
                .extend(value.as_array().unwrap().iter().map(|one| format!("--grant={}", one.as_str().unwrap()))),
            other => unreachable!("there is no option for `{other}`"),
        }
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let ran = place.graph(&arguments);
    let result: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((ran.code, &result["output"]["file_count"]), (0, &json!("0")), "{result}");
    for output in directive["outputs"].as_array().unwrap() {
        assert!(result.get(output["name"].as_str().unwrap()).is_some(), "{output} {result}");
    }
}

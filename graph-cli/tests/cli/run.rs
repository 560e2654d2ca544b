//! `graph run` as its user sees it: one JSON value on stdout, everything else on stderr, and the exit code.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::SystemTime;

use graph_signing::{SecretKey, sign_json};
use serde_json::{Value, json};

use crate::place::{Place, Ran};

const HEAD: &str = "version: \"1.0.0\"
tool_type: graph
executor_id: rye/core/runtimes/state-graph/runtime
category: test
";

/// A graph with inputs of all kinds, which it returns.
const ECHO: &str = "permissions: [rye.execute.tool.rye.bash]
config_schema:
  type: object
  properties:
    name: { type: string }
    count: { type: integer, default: 1, maximum: 9 }
    ratio: { type: number, default: 0.5 }
    loud: { type: boolean, default: false }
    tags: { type: array, items: { type: string }, default: [] }
  required: [name]
config:
  start: say
  nodes:
    say:
      action:
        item_id: rye/bash
        params: { command: 'printf %s \"$NAME\"', env: { NAME: \"${inputs.name}\" } }
      assign: { said: \"${result.stdout}\" }
      next: done
    done:
      type: return
      output:
        said: \"${state.said}\"
        count: \"${inputs.count}\"
        ratio: \"${inputs.ratio}\"
        loud: \"${inputs.loud}\"
        tags: \"${inputs.tags}\"
";

/// A graph that takes no inputs and runs one command, and then another.
pub(crate) fn commands(first: &str, second: &str) -> String {
    format!(
        "permissions: [rye.execute.tool.rye.bash]
config:
  start: one
  nodes:
    one:
      action: {{ item_id: rye/bash, params: {{ command: '{first}' }} }}
      assign: {{ first: \"${{result.stdout}}\" }}
      next: two
    two:
      action: {{ item_id: rye/bash, params: {{ command: '{second}' }} }}
      assign: {{ second: \"${{result.stdout}}\" }}
      next: done
    done: {{ type: return }}
"
    )
}

impl Place {
    /// Writes a signed file of the tree.
    pub(crate) fn sign(&self, name: &str, text: &str) {
        let text = if name.contains("tools/") { text.to_owned() } else { format!("{HEAD}{text}") };
        self.write(name, &text);
        let signed = self.graph(&["sign", name]);
        assert_eq!(signed.code, 0, "{}", signed.err);
    }

    /// A place with the graph `graphs/g.yaml`.
    pub(crate) fn with_graph(text: &str) -> Self {
        let place = Self::with_key();
        place.sign("graphs/g.yaml", text);
        place
    }

    /// Runs `graphs/g.yaml`.
    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        self.graph(&[&["run", "graphs/g.yaml"], arguments].concat())
    }

    /// Runs `graphs/g.yaml` with a text on stdin.
    fn pipe(&self, arguments: &[&str], stdin: &str) -> Ran {
        let mut child = self.start(arguments);
        child.stdin.take().unwrap().write_all(stdin.as_bytes()).unwrap();
        self.ran(child.wait_with_output().unwrap())
    }

    /// Starts `graphs/g.yaml` with a pipe for stdin that stays open.
    fn start(&self, arguments: &[&str]) -> Child {
        let mut command = self.command(&[&["run", "graphs/g.yaml"], arguments].concat());
        piped(&mut command)
    }

    fn key(&self) -> SecretKey {
        SecretKey::load(&self.path(".ai/config/keys/signing/private_key.pem")).unwrap()
    }
}

fn piped(command: &mut Command) -> Child {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

impl Ran {
    /// Returns the result on stdout: one JSON value on one line.
    fn result(&self) -> Value {
        assert_eq!(self.out.matches('\n').count(), 1, "{}{}", self.out, self.err);
        serde_json::from_str(&self.out).unwrap()
    }

    fn error(&self) -> String {
        let result = self.result();
        assert_eq!(result["success"], false, "{result}");
        result["error"].as_str().unwrap().to_owned()
    }
}

#[test]
fn a_result_is_one_json_value_and_progress_goes_to_stderr() {
    let place = Place::with_graph(ECHO);
    let ran = place.run(&["--input", "name=ann", "--run-id", "r-1"]);
    let output = json!({"said": "ann", "count": 1, "ratio": 0.5, "loud": false, "tags": []});
    let inputs = json!({"name": "ann", "count": 1, "ratio": 0.5, "loud": false, "tags": []});
    let expected = json!({
        "success": true, "status": "completed", "graph_run_id": "r-1", "steps": 2, "output": output,
        "state": {"inputs": inputs, "said": "ann"},
    });
    assert_eq!((ran.code, ran.result()), (0, expected), "{}", ran.err);
    assert!(ran.err.starts_with("note: granted, as the graph declares: rye.execute.tool.rye.bash\n"), "{}", ran.err);
    assert!(ran.err.contains("[graph:g] step 1/2 say ✓"), "{}", ran.err);
    let quiet = place.run(&["--input", "name=ann", "--quiet"]);
    assert_eq!((quiet.code, quiet.err.as_str()), (0, ""));
    let mut silenced = place.command(&["run", "graphs/g.yaml", "--input", "name=ann"]);
    assert_eq!(place.ran(silenced.env("RYE_GRAPH_QUIET", "1").output().unwrap()).err, "");
    let pretty = place.run(&["--input", "name=ann", "--pretty"]);
    assert!(pretty.out.starts_with("{\n  \"success\": true,\n"), "{}", pretty.out);
}

#[test]
fn a_graph_is_found_by_its_id() {
    let place = Place::with_graph(ECHO);
    let ran = place.graph(&["run", "test/g", "--input", "name=ann"]);
    assert_eq!(ran.result()["output"]["said"], "ann");
    let ran = place.graph(&["run", "test/h"]);
    assert_eq!(
        (ran.code, ran.error()),
        (1, "there is no file `test/h`, and no graph of that id in the tree `graphs`".into())
    );
}

#[test]
fn inputs_are_read_as_the_graph_says_and_those_by_name_win() {
    let place = Place::with_graph(ECHO);
    let named = ["--input", "name=a=b", "--input", "count=3", "--input", "loud=true", "--input", "tags=[\"x\"]"];
    let output = place.run(&named).result()["output"].clone();
    assert_eq!(output, json!({"said": "a=b", "count": 3, "ratio": 0.5, "loud": true, "tags": ["x"]}));
    let json = r#"{"name": "json", "count": 2, "ratio": 2}"#;
    let output = json!({"said": "json", "count": 3, "ratio": 2, "loud": false, "tags": []});
    assert_eq!(place.run(&["--json", json, "--input", "count=3"]).result()["output"], output);
    assert_eq!(place.pipe(&["--input", "count=3"], json).result()["output"], output);
    assert_eq!(place.pipe(&["--json", "-", "--input", "count=3"], json).result()["output"], output);
    // If the JSON is on the command line, stdin is not read.
    assert_eq!(place.pipe(&["--json", json, "--input", "count=3"], "").result()["output"], output);
    assert_eq!(place.pipe(&["--input", "name=ann"], " \n").result()["output"]["said"], "ann");
}

#[test]
fn an_open_and_silent_stdin_holds_nothing_up() {
    let place = Place::with_graph(ECHO);
    let mut child = place.start(&["--input", "name=ann"]);
    // The pipe is held open until the run has ended.
    let stdin = child.stdin.take().unwrap();
    let mut out = String::new();
    child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    drop(stdin);
    let ran = place.ran(child.wait_with_output().unwrap());
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(out.contains("\"said\":\"ann\""), "{out}");
    assert!(ran.err.contains("note: stdin is open and silent"), "{}", ran.err);
    // If no input is named on the command line, inputs may still arrive on stdin.
    let mut child = place.start(&[]);
    let stdin = child.stdin.take().unwrap();
    child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    drop(stdin);
    let ran = place.ran(child.wait_with_output().unwrap());
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(ran.err.contains("write `--json -` to wait for inputs"), "{}", ran.err);
}

#[test]
fn inputs_that_do_not_fit_exit_with_2_and_say_why() {
    let place = Place::with_graph(ECHO);
    for (arguments, part) in [
        (&["--input", "nmae=ann"][..], "the graph has no input `nmae`; did you mean `name`?"),
        (&["--json", r#"{"name": "a", "colour": 1}"#], "the graph has no input `colour`; it takes `name`, `count`"),
        (&["--input", "name=a", "--input", "count=x"], "the input `count` must be a whole number, and is `x`"),
        (
            &["--input", "name=a", "--input", "count=9223372036854775808"],
            "must be a whole number from -2^63 to 2^63-1, and is `9223372036854775808`",
        ),
        (&["--input", "name=a", "--input", "ratio=99999999999999999999"], "`99999999999999999999` is beyond 64 bits"),
        (&["--input", "name=a", "--input", "name=b"], "the input `name` is given twice"),
        (&["--input", "name=a", "--input", "count=10"], "what `maximum: 9` allows"),
        (&["--json", "[1]"], "the inputs of `--json` must be a JSON object"),
        (&["--json", "{"], "the inputs of `--json` cannot be read as JSON"),
        (&[], "missing required input: 'name'"),
    ] {
        let ran = place.run(arguments);
        assert_eq!(ran.code, 2, "{arguments:?}: {}", ran.out);
        let error = ran.error();
        assert!(error.contains(part), "{arguments:?}: {error}");
        assert!(ran.err.contains(&error), "{arguments:?}: {}", ran.err);
    }
}

#[test]
fn a_wrong_command_line_prints_json_too() {
    let place = Place::with_graph(ECHO);
    for (arguments, part) in [
        (&["run"][..], "required arguments"),
        (&["run", "g.yaml", "--nope"], "--nope"),
        (&["run", "g.yaml", "--input", "name"], "write `name=value`"),
        (&["run", "g.yaml", "--grant", "bash"], "grants nothing"),
        (&["run", "g.yaml", "--timeout", "soon"], "a length of time"),
        (&["run", "g.yaml", "--max-steps", "0"], "--max-steps"),
        (&["run", "g.yaml", "--run-id", "a b"], "a b"),
        (&["run", "g.yaml", "--resume", "r"], "required arguments"),
        (&["run", "g.yaml", "--store", "s", "--resume", "r", "--json", "{}"], "cannot be used with"),
        (&["run", "graphs/g.yaml", "--json", "{\"name\": \"a\"}", "--allow-host", "a b"], "does not name a host"),
        (&["run", "graphs/g.yaml", "--json", "{\"name\": \"a\"}", "--root", "nowhere"], "cannot be opened for tools"),
    ] {
        let ran = place.graph(arguments);
        assert_eq!(ran.code, 2, "{arguments:?}: {}", ran.err);
        let error = ran.error();
        assert!(error.contains(part), "{arguments:?}: {error}");
        assert_eq!(ran.result()["status"], "error");
    }
}

#[test]
fn a_graph_with_mistakes_is_not_run_and_they_are_shown() {
    let place = Place::with_graph(&ECHO.replace("start: say", "start: syy"));
    let ran = place.run(&["--input", "name=ann"]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains(" --> graphs/g.yaml:17:10"), "{}", ran.err);
    assert!(ran.error().starts_with("the graph has mistakes: "), "{}", ran.out);
    place.write("graphs/g.yaml", &format!("{HEAD}{ECHO}"));
    let ran = place.run(&["--input", "name=ann"]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.starts_with("error[G0010]: `graphs/g.yaml` is not signed\n"), "{}", ran.err);
    assert_eq!(ran.error(), "the graph has mistakes: `graphs/g.yaml` is not signed (graphs/g.yaml:1:1)");
}

#[test]
fn explicit_grants_replace_the_declared_ones() {
    let place = Place::with_graph(ECHO);
    let ran = place.run(&["--input", "name=ann", "--grant", "rye.execute.tool.other"]);
    assert_eq!(ran.code, 3);
    assert_eq!(ran.error(), "the graph `test/g` needs `rye.execute.tool.rye.bash`, which was not granted");
    let ran = place.run(&["--input", "name=ann", "--grant", "rye.execute.tool.x", "--grant", "rye.execute.tool.rye.*"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(!ran.err.contains("granted"), "{}", ran.err);
}

#[test]
fn a_run_begins_at_an_entry() {
    let graph = "permissions: [rye.execute.tool.rye.bash]
config_schema: { type: object, properties: { names: { type: array, items: { type: string } }, name: { type: string } } }
config:
  start: each
  channels: { said: append }
  entries: { again: { node: say, element: inputs.name }, last: done }
  nodes:
    each: { type: gate, next: { over: \"${inputs.names}\", as: one, to: say } }
    say:
      action: { item_id: rye/bash, params: { command: 'printf %s \"$NAME\"', env: { NAME: \"${one}\" } } }
      assign: { said: \"${result.stdout}\" }
      next: done_all
    done_all: { type: gate, waits_for: say, next: done }
    done: { type: return, output: { said: \"${state.said}\" } }
";
    let place = Place::with_graph(graph);
    let said = |ran: &Ran| (ran.code, ran.result()["output"]["said"].clone(), ran.result()["steps"].clone());
    let ran = place.run(&["--json", r#"{"names": ["ann", "bo"]}"#]);
    assert_eq!(said(&ran), (0, json!(["ann", "bo"]), json!(5)), "{}", ran.err);
    let ran = place.run(&["--entry", "again", "--input", "name=cy", "--store", "runs.db", "--run-id", "r"]);
    assert_eq!(said(&ran), (0, json!(["cy"]), json!(3)), "{}", ran.err);
    let shown = place.graph(&["show", "r", "--store", "runs.db"]).out;
    assert!(shown.starts_with("r of `test/g`, from the entry `again`\n"), "{shown}");
    let shown: Value = serde_json::from_str(&place.graph(&["show", "r", "--store", "runs.db", "--json"]).out).unwrap();
    assert_eq!(shown["entry"], json!("again"));
    let ran = place.run(&["--entry", "last"]);
    assert_eq!(said(&ran), (0, json!([]), json!(1)), "{}", ran.err);
    let ran = place.run(&["--entry", "again"]);
    let missing = "the run of the graph `test/g` cannot begin: the entry needs `inputs.name`, which is missing";
    assert_eq!((ran.code, ran.error().as_str()), (2, missing));
    let ran = place.run(&["--entry", "none"]);
    let unknown = "the run of the graph `test/g` cannot begin: it has no entry `none`, only `again`, `last`";
    assert_eq!((ran.code, ran.error().as_str()), (2, unknown));
}

#[test]
fn a_run_that_fails_exits_with_1_and_says_where() {
    let place = Place::with_graph(&commands("echo a", "echo no luck >&2; exit 3"));
    let ran = place.run(&["--run-id", "r"]);
    let expected = json!({
        "success": false, "status": "error", "graph_run_id": "r", "steps": 1, "error": "exit code 3: no luck",
        "node": "two", "state": {"inputs": {}, "first": "a"},
    });
    let mut result = ran.result();
    result["state"].as_object_mut().unwrap().shift_remove("_last_error");
    assert_eq!((ran.code, result), (1, expected), "{}", ran.err);
}

#[test]
fn limits_of_steps_and_time_are_enforced() {
    let place = Place::with_graph(&commands("sleep 60", "true"));
    let ran = place.run(&["--timeout", "50ms"]);
    assert_eq!((ran.code, ran.result()["status"].as_str()), (1, Some("error")), "{}", ran.out);
    let place = Place::with_graph(&commands("true", "true"));
    let ran = place.run(&["--max-steps", "1", "--timeout", "0"]);
    assert!(ran.code == 1 && ran.error().ends_with("steps exceeded (1)"), "{}", ran.out);
}

#[test]
fn history_lists_every_committed_visit_of_a_failed_run_too() {
    let place = Place::with_graph(&commands("echo a", "exit 3"));
    assert_eq!(place.run(&[]).result().get("history"), None);
    let history = place.run(&["--history"]).result()["history"].clone();
    let nodes: Vec<&str> = history.as_array().unwrap().iter().map(|visit| visit["node"].as_str().unwrap()).collect();
    assert_eq!(nodes, ["one"]);
    assert_eq!(history[0]["result"]["stdout"], "a");
}

#[test]
fn a_run_in_a_store_is_resumed_where_it_was_stopped() {
    let place = Place::with_graph(&commands("echo x >>ran; echo a", "test -e ready && echo b"));
    let store = ["--store", "runs.db"];
    let ran = place.run(&[&store[..], &["--run-id", "r"]].concat());
    assert_eq!((ran.code, ran.result()["node"].as_str()), (1, Some("two")), "{}", ran.err);
    assert!(ran.err.contains("note: the run `r` is kept in runs.db\n"), "{}", ran.err);
    place.write("ready", "");
    let ran = place.run(&[&store[..], &["--resume", "r", "--history"]].concat());
    assert_eq!((ran.code, ran.result()["state"].clone()), (0, json!({"inputs": {}, "first": "a", "second": "b"})));
    assert_eq!(ran.result()["history"].as_array().unwrap().len(), 3);
    assert_eq!(place.read("ran"), "x\n", "the step that was committed is not made again");
    let again = place.run(&[&store[..], &["--run-id", "r"]].concat());
    assert_eq!(again.code, 3);
    assert!(again.error().contains("there is a run `r` already"), "{}", again.out);
    let none = place.run(&[&store[..], &["--resume", "s"]].concat());
    assert!(none.code == 3 && none.error().contains("there is no run `s`"), "{}", none.out);
    let none = place.run(&["--store", "nothing.db", "--resume", "r"]);
    assert!(none.code == 3 && !place.path("nothing.db").exists(), "{}", none.out);
}

#[test]
fn verify_run_proves_a_journal_and_refuses_a_changed_one() {
    let place = Place::with_graph(&commands("echo a", "test -e ready && echo b"));
    place.run(&["--store", "runs.db", "--run-id", "r"]);
    place.write("ready", "");
    assert_eq!(place.run(&["--store", "runs.db", "--resume", "r"]).code, 0);
    let verify = |more: &[&str]| place.graph(&[&["verify-run", "r", "--store", "runs.db"], more].concat());
    let proven = verify(&[]);
    assert_eq!((proven.code, proven.err.as_str()), (0, ""));
    assert!(proven.out.starts_with("r: completed after 3 steps, resumed once, as `test/g` ("), "{}", proven.out);
    let json: Value = serde_json::from_str(&verify(&["--json"]).out).unwrap();
    assert_eq!((json["runs"][0]["steps"].as_u64(), json["runs"][0]["recomputed"].as_bool()), (Some(3), Some(true)));
    // Another graph of the same name does not fit the run.
    let own = place.read("graphs/g.yaml");
    place.sign("graphs/g.yaml", &commands("echo b", "true"));
    let other = verify(&[]);
    assert_eq!(other.code, 1);
    assert!(
        other.err.contains("record 0 of its journal does not fit the graph: it says that the digest of the graph is"),
        "{}",
        other.err
    );
    place.write("graphs/g.yaml", &own);
    let replace = |from: &str, to: &str| {
        let database = rusqlite::Connection::open(place.path("runs.db")).unwrap();
        let changed = database
            .execute("UPDATE records SET body = replace(body, ?1, ?2) WHERE body LIKE '%' || ?1 || '%'", [from, to]);
        assert_eq!(changed, Ok(1));
    };
    replace("\"changes\":{\"first\":\"a\"}", "\"changes\":{\"first\":\"b\"}");
    let refused = verify(&[]);
    assert_eq!((refused.code, refused.out.as_str()), (1, ""));
    assert!(
        refused.err.starts_with("error: run r in runs.db: record 1 of its journal is not signed by"),
        "{}",
        refused.err
    );
    replace("\"changes\":{\"first\":\"b\"}", "\"changes\":{\"first\":\"a\"}");
    assert_eq!(verify(&[]).code, 0);
    let none = place.graph(&["verify-run", "r", "--store", "none.db"]);
    assert!(none.code == 3 && none.err.contains("there is no store at none.db"), "{}", none.err);
}

/// A graph that calls `graphs/inner.yaml`.
pub(crate) const NESTS: &str = "permissions: [rye.execute.tool.test.inner, rye.execute.tool.rye.bash]
config:
  start: nest
  nodes:
    nest:
      action: { item_id: test/inner, params: {} }
      assign: { said: \"${result.output.first}\" }
      next: done
    done: { type: return }
";

#[test]
fn verify_run_proves_nested_runs_and_reports_a_missing_one() {
    let place = Place::with_graph(NESTS);
    place.sign("graphs/inner.yaml", &commands("echo a", "echo b"));
    assert_eq!(place.run(&["--store", "runs.db", "--run-id", "r"]).code, 0);
    let verify = || place.graph(&["verify-run", "r", "--store", "runs.db"]);
    let proven = verify();
    assert_eq!((proven.code, proven.out.lines().count()), (0, 2), "{}", proven.err);
    assert!(proven.out.lines().last().unwrap().starts_with("r-1: completed after 3 steps, as `test/inner` ("));
    let database = rusqlite::Connection::open(place.path("runs.db")).unwrap();
    database.execute("DELETE FROM runs WHERE id = 'r-1'", []).unwrap();
    let missed = verify();
    assert_eq!(missed.code, 1);
    assert!(missed.err.contains("node `nest` has the result of a run that has no journal"), "{}", missed.err);
}

#[test]
fn a_run_that_took_all_its_steps_is_resumed_with_more() {
    let place = Place::with_graph(&commands("echo a", "echo b"));
    let run = |arguments: &[&str]| place.run(&[&["--store", "runs.db"], arguments].concat());
    assert!(run(&["--run-id", "r", "--max-steps", "1"]).error().ends_with("steps exceeded (1)"));
    assert!(run(&["--resume", "r", "--max-steps", "2"]).error().ends_with("steps exceeded (2)"));
    let ran = run(&["--resume", "r", "--max-steps", "3"]);
    assert_eq!((ran.code, ran.result()["steps"].as_u64()), (0, Some(3)), "{}", ran.out);
}

#[test]
fn a_store_needs_a_key_and_none_is_made_in_passing() {
    let place = Place::with_graph(ECHO);
    std::fs::remove_dir_all(place.path(".ai")).unwrap();
    let ran = place.run(&["--input", "name=ann", "--store", "runs.db"]);
    assert_eq!(ran.code, 3);
    assert!(ran.error().ends_with("make one first: `graph keys generate`"), "{}", ran.out);
    assert!(!place.path(".ai").exists() && !place.path("runs.db").exists());
    assert_eq!(place.run(&["--input", "name=ann"]).code, 0, "without a store no key is needed");
}

fn kill(child: &Child, signal: &str) {
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-s", signal, &id]).status().unwrap().success());
}

#[test]
fn a_signal_stops_a_run_after_its_step_and_a_second_one_at_once() {
    // The command waits until it may continue, so that the result does not depend on timing.
    let place = Place::with_graph(&commands("touch begun; while ! test -e go; do sleep 0.01; done; echo a", "echo b"));
    for (signal, code) in [("TERM", 143), ("INT", 130), ("HUP", 129), ("QUIT", 131)] {
        let mut child = place.start(&["--json", "{}", "--run-id", "r"]);
        let mut err = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        while !place.path("begun").exists() {
            std::thread::yield_now();
        }
        kill(&child, signal);
        let note = format!("note: SIG{signal}: the run stops after this step; once more, and it stops at once");
        assert!(err.any(|line| line == note));
        place.write("go", "");
        let ran = place.ran(child.wait_with_output().unwrap());
        let expected = json!({
            "success": false, "status": "cancelled", "graph_run_id": "r", "steps": 1,
            "error": "the run was cancelled", "state": {"inputs": {}, "first": "a"},
        });
        assert_eq!((ran.code, ran.result()), (code, expected));
        for file in ["go", "begun"] {
            std::fs::remove_file(place.path(file)).unwrap();
        }
    }
    let mut child = place.start(&["--json", "{}"]);
    let mut err = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    while !place.path("begun").exists() {
        std::thread::yield_now();
    }
    kill(&child, "INT");
    assert!(err.any(|line| line.starts_with("note: SIGINT")));
    kill(&child, "TERM");
    let ran = place.ran(child.wait_with_output().unwrap());
    assert_eq!((ran.code, ran.result()["status"].as_str()), (143, Some("cancelled")));
}

/// Runs `graphs/g.yaml` as the thread `t-1`, whose file contains `thread`.
fn as_thread(place: &Place, thread: Option<&str>, arguments: &[&str]) -> Ran {
    let path = ".ai/state/threads/t-1/thread.json";
    match thread {
        Some(text) => place.write(path, text),
        None => assert!(!place.path(path).exists()),
    }
    let mut command = place.command(&[&["run", "graphs/g.yaml", "--input", "name=ann"], arguments].concat());
    place.ran(command.env("RYE_PARENT_THREAD_ID", "t-1").output().unwrap())
}

fn thread(place: &Place, fields: Value) -> String {
    let Value::Object(mut fields) = fields else { unreachable!("tests give objects") };
    sign_json(&mut fields, &place.key(), SystemTime::UNIX_EPOCH);
    Value::Object(fields).to_string()
}

#[test]
fn a_run_has_at_most_the_capabilities_of_its_thread() {
    let place = Place::with_graph(ECHO);
    let text = thread(&place, json!({"capabilities": ["rye.execute.tool.rye.*"], "limits": {"depth": 2}}));
    let ran = as_thread(&place, Some(&text), &[]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.err.contains("granted, as to the thread `t-1`: rye.execute.tool.rye.*"), "{}", ran.err);
    let ran = as_thread(&place, Some(&text), &["--grant", "rye.execute.tool.other"]);
    assert_eq!(ran.code, 3, "a child may ask for less: {}", ran.out);
    let less = thread(&place, json!({"capabilities": ["rye.execute.tool.other"]}));
    for grant in [&[][..], &["--grant", "*"]] {
        let ran = as_thread(&place, Some(&less), grant);
        assert_eq!(ran.code, 3, "and never gets more: {}", ran.out);
    }
}

#[test]
fn nothing_is_granted_without_a_valid_thread_file() {
    let place = Place::with_graph(ECHO);
    let ran = as_thread(&place, None, &["--grant", "*"]);
    assert_eq!(ran.code, 3);
    assert!(ran.error().contains("the permissions of the thread `t-1` cannot be read"), "{}", ran.out);
    assert!(ran.err.starts_with("error: the permissions of the thread `t-1` cannot be read: "), "{}", ran.err);
    let unsigned = json!({"capabilities": ["*"], "limits": {"depth": 5}}).to_string();
    let ran = as_thread(&place, Some(&unsigned), &[]);
    assert!(ran.code == 3 && ran.error().contains("it is not signed"), "{}", ran.out);
    let forged = thread(&place, json!({"capabilities": ["rye.execute.tool.none"]})).replace("tool.none", "tool.*");
    let ran = as_thread(&place, Some(&forged), &[]);
    assert!(ran.code == 3 && ran.error().contains("changed after it was signed"), "{}", ran.out);
}

#[test]
fn thread_and_command_line_limit_the_nesting_depth() {
    let place = Place::with_key();
    let child = "permissions: [rye.execute.tool.rye.bash]\nconfig: { start: a, nodes: { a: { type: return, output: { x: 1 } } } }\n";
    place.sign("graphs/child.yaml", child);
    let parent = "permissions: [rye.execute.tool.test.child]
config_schema: { type: object, properties: { name: { type: string, default: a } } }
config:
  start: a
  nodes:
    a: { action: { item_id: test/child }, assign: { x: \"${result.output.x}\" }, next: b }
    b: { type: return }
";
    place.sign("graphs/g.yaml", parent);
    let ran = place.run(&[]);
    assert_eq!((ran.code, &ran.result()["state"]["x"]), (0, &json!(1)), "{}", ran.err);
    let ran = place.run(&["--depth", "0"]);
    assert!(ran.code == 1 && ran.error().contains("nested deeper"), "{}", ran.out);
    let text = thread(&place, json!({"capabilities": ["*"], "limits": {"depth": 0}}));
    let ran = as_thread(&place, Some(&text), &["--depth", "9"]);
    assert!(ran.code == 1 && ran.error().contains("nested deeper"), "{}", ran.out);
}

#[test]
fn tools_reach_what_the_command_line_names_and_nothing_else() {
    let place = Place::with_key();
    let tool = "version: \"1.0.0\"\ntool_type: subprocess\nconfig: { command: [bin/twice] }\nconfig_schema: { type: object, properties: { number: { type: integer } }, required: [number] }\nresult_schema: { type: object, properties: { number: { type: integer } }, required: [number] }\n";
    place.sign("graphs/tools/test/twice.yaml", tool);
    place.write(
        "graphs/bin/twice",
        "#!/bin/sh\nread -r line\nn=${line##*:}; n=${n%\\}}\necho \"{\\\"number\\\": $((n * 2))}\"\n",
    );
    assert!(Command::new("chmod").arg("+x").arg(place.path("graphs/bin/twice")).status().unwrap().success());
    place.sign(
        "graphs/g.yaml",
        "permissions: [rye.execute.tool.*]
config:
  start: a
  nodes:
    a: { action: { item_id: test/twice, params: { number: 21 } }, assign: { twice: \"${result.number}\" }, next: b }
    b: { action: { item_id: rye/file-system/read, params: { path: note.txt } }, assign: { note: \"${result.content}\" }, next: c }
    c: { type: return }
",
    );
    place.write("data/note.txt", "hello");
    let ran = place.run(&["--root", "data"]);
    assert_eq!(
        (ran.code, ran.result()["state"].clone()),
        (0, json!({"inputs": {}, "twice": 42, "note": "hello"})),
        "{}",
        ran.out
    );
    let ran = place.run(&[]);
    assert!(ran.code == 1 && ran.result()["node"] == "b", "{}", ran.out);
    let ran = place.run(&["--root", "data", "--programs", "data"]);
    assert!(ran.code == 1 && ran.result()["node"] == "a", "{}", ran.out);
}

#[test]
fn requests_go_to_the_hosts_that_the_command_line_names() {
    let place = Place::with_graph(
        "permissions: [rye.execute.tool.rye.http.request]
config_schema: { type: object, properties: { url: { type: string, x-sink: url } }, required: [url] }
config:
  start: a
  nodes:
    a: { action: { item_id: rye/http/request, params: { url: \"${inputs.url}\" } }, assign: { body: \"${result.body}\" }, next: b }
    b: { type: return }
",
    );
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let host = format!("http://{}", server.local_addr().unwrap());
    let answering = std::thread::spawn(move || {
        let (mut stream, _) = server.accept().unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        while lines.next().is_some_and(|line| !line.unwrap().is_empty()) {}
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi").unwrap();
    });
    let input = format!("url={host}/");
    for refused in [&["--input", input.as_str()][..], &["--input", &input, "--allow-host", &host]] {
        let ran = place.run(refused);
        assert_eq!(ran.code, 1, "{}", ran.out);
    }
    let ran = place.run(&["--input", &input, "--allow-internal-host", &host]);
    assert_eq!((ran.code, &ran.result()["state"]["body"]), (0, &json!("hi")), "{}", ran.out);
    answering.join().unwrap();
}

#[test]
fn items_are_found_in_the_projects_space_around_the_graph() {
    let place = Place::with_key();
    place.sign(
        "graphs/g.yaml",
        "permissions: [rye.fetch.knowledge.*]
config:
  start: a
  nodes:
    a: { action: { primary: fetch, item_type: knowledge, item_id: notes/tea }, assign: { text: \"${result.content}\" }, next: b }
    b: { type: return }
",
    );
    let page = |directory: &str, text: &str| {
        let path = format!("{directory}.ai/knowledge/notes/tea.md");
        place.write(&path, text);
        assert_eq!(place.graph(&["sign", &path]).code, 0);
    };
    let text = |arguments: &[&str]| place.run(arguments).result()["state"]["text"].clone();
    page("", "of the project\n");
    page("other/", "of another project\n");
    page("someone/", "of a user\n");
    // The tree's keys are trusted, so the page needs no key in the space.
    assert_eq!(text(&[]), "of the project\n");
    assert_eq!(text(&["--project", "other"]), "of another project\n");
    std::fs::remove_file(place.path(".ai/knowledge/notes/tea.md")).unwrap();
    assert_eq!(text(&["--user", "someone"]), "of a user\n");
    assert_eq!(text(&["--system", "other"]), "of another project\n");
    let ran = place.run(&[]);
    assert_eq!((ran.code, &ran.result()["node"]), (1, &json!("a")), "{}", ran.out);
}

/// A graph that hands a secret to a command that prints it, and that returns the secret.
const SECRET: &str = "permissions: [rye.execute.tool.rye.bash]
config_schema:
  type: object
  properties: { password: { type: string, x-secret: true }, pin: { type: integer, x-secret: true }, user: { type: string } }
  required: [password]
config:
  start: say
  nodes:
    say:
      action:
        item_id: rye/bash
        params: { command: 'printf %s \"I am $PASSWORD\"; printf %s \"$PASSWORD\" >&2; test -z \"$FAIL\"', env: { PASSWORD: \"${inputs.password}\", FAIL: \"${inputs.user}\" } }
      assign: { said: \"${result.stdout}\", err: \"${result.stderr}\", kept: \"${inputs.password}\" }
      next: done
    done: { type: return, output: { said: \"${state.said}\", err: \"${state.err}\", kept: \"${state.kept}\" } }
";
const CANARY: &str = "canary-4f1d";

#[test]
fn a_secret_comes_from_a_file_and_is_shown_nowhere() {
    let place = Place::with_graph(SECRET);
    place.write("secret.txt", &format!("{CANARY}\n"));
    assert_eq!(place.graph(&["keys", "encryption", "encryption.key"]).code, 0);
    let kept = ["--store", "runs.db", "--run-id", "one", "--history"];
    let with = |more: &[&str]| {
        place.run(&[&["--secret", "password=file:secret.txt", "--input", "user="], kept.as_slice(), more].concat())
    };
    let ran = with(&[]);
    assert_eq!((ran.code, ran.error().contains("`--encryption-key FILE`")), (3, true), "{}", ran.out);
    let ran = with(&["--encryption-key", "encryption.key"]);
    let result = ran.result();
    let expected = json!({"said": "I am [secret]", "err": "[secret]", "kept": "[secret]"});
    assert_eq!((ran.code, &result["output"]), (0, &expected), "{result}{}", ran.err);
    assert_eq!(result["history"][0]["changes"]["kept"], "[secret]");
    // Records that are not yet in the database file are in its write-ahead log.
    for file in ["runs.db", "runs.db-wal"] {
        let bytes = std::fs::read(place.path(file)).unwrap_or_default();
        assert!(!bytes.windows(CANARY.len()).any(|window| window == CANARY.as_bytes()), "{file}");
    }
    assert!(!ran.out.contains(CANARY) && !ran.err.contains(CANARY), "{}{}", ran.out, ran.err);

    // The run is proven without the key, and recomputed with it.
    assert_eq!(place.graph(&["keys", "encryption", "other.key"]).code, 0);
    let verify = |more: &[&str]| place.graph(&[&["verify-run", "one", "--store", "runs.db"], more].concat());
    let (without_key, opened) = (verify(&[]), verify(&["--encryption-key", "encryption.key"]));
    let note = "encrypted values were not computed again";
    assert!(without_key.code == 0 && without_key.out.contains(note), "{}{}", without_key.out, without_key.err);
    assert!(opened.code == 0 && !opened.out.contains(note), "{}{}", opened.out, opened.err);
    let other = verify(&["--encryption-key", "other.key"]);
    assert!(other.code == 1 && other.err.contains("its secrets are encrypted with another key"), "{}", other.err);

    // The run has ended; its result is read with this key and with no other.
    let resume = ["--store", "runs.db", "--resume", "one"];
    let again = place.run(&[resume.as_slice(), &["--encryption-key", "encryption.key"]].concat());
    assert_eq!((again.code, &again.result()["output"]), (0, &expected), "{}", again.err);
    let other = place.run(&[resume.as_slice(), &["--encryption-key", "other.key"]].concat());
    assert!(other.code == 3 && other.error().contains("are encrypted with the key"), "{}", other.out);
    let without = place.run(&resume);
    assert!(without.code == 3 && without.error().contains("`--encryption-key FILE`"), "{}", without.out);
}

#[test]
fn the_error_of_a_command_that_prints_a_secret_hides_it() {
    let place = Place::with_graph(SECRET);
    let mut command =
        place.command(&["run", "graphs/g.yaml", "--secret", "password=env:PASSWORD", "--input", "user=x"]);
    let ran = place.ran(command.env("PASSWORD", CANARY).output().unwrap());
    assert_eq!((ran.code, ran.error().as_str()), (1, "exit code 1: [secret]"));
    assert!(!ran.out.contains(CANARY) && !ran.err.contains(CANARY), "{}{}", ran.out, ran.err);
}

#[test]
fn a_secret_on_the_command_line_is_refused_and_not_repeated() {
    let place = Place::with_graph(SECRET);
    place.write("pin.txt", CANARY);
    for (arguments, said) in [
        (["--input", "password=canary-4f1d"], "others see command lines"),
        (["--json", "{\"password\": \"canary-4f1d\"}"], "others see command lines"),
        (["--secret", "password=canary-4f1d"], "write `name=env:VARIABLE` or `name=file:PATH`"),
        (["--secret", "password=env:NOT_SET"], "the environment variable `NOT_SET` is not set"),
        (["--secret", "user=env:HOME"], "the input `user` is not a secret of the graph"),
        (["--secret", "pin=file:pin.txt"], "the input `pin` must be an integer"),
    ] {
        let ran = place.run(&[arguments.as_slice(), &["--input", "user=x"]].concat());
        assert!(ran.code == 2 && ran.error().contains(said), "{arguments:?}: {}", ran.out);
        assert!(!ran.out.contains(CANARY) && !ran.err.contains(CANARY), "{}{}", ran.out, ran.err);
    }
    // Nobody else sees stdin.
    let ran = place.pipe(&["--json", "-"], &json!({"password": CANARY, "user": ""}).to_string());
    assert_eq!((ran.code, &ran.result()["output"]["kept"]), (0, &json!("[secret]")), "{}", ran.out);
}

/// Returns a graph that starts another one by the command line, and that has these permissions besides.
fn starting(more: &str) -> String {
    let graph = env!("CARGO_BIN_EXE_graph");
    format!(
        "permissions: [rye.execute.tool.rye.bash{more}]
config:
  start: begin
  nodes:
    begin:
      action: {{ item_id: rye/bash, params: {{ command: '{graph} run graphs/inner.yaml --quiet 2>&1 || true' }} }}
      assign: {{ inner: \"${{result.stdout}}\" }}
      next: done
    done: {{ type: return, output: {{ inner: \"${{state.inner}}\" }} }}
"
    )
}

#[test]
fn a_graph_that_a_command_of_a_run_starts_has_at_most_the_permissions_of_the_run() {
    let place = Place::with_graph(&starting(""));
    let inner = commands("echo one", "echo two");
    place.sign("graphs/inner.yaml", &inner);
    let run = |more: &[&str]| place.run(&[&["--store", "runs.db"], more].concat());
    // The graph may do the same as the run.
    let ran = run(&["--files", "--run-id", "outer"]);
    let said = ran.result()["output"]["inner"].as_str().unwrap().to_owned();
    assert!(ran.code == 0 && said.contains("\"success\":true"), "{said}");
    let thread: Value = serde_json::from_str(&place.read(".ai/state/threads/outer/thread.json")).unwrap();
    assert_eq!(thread["capabilities"], json!(["rye.execute.tool.rye.bash"]));
    assert_eq!((&thread["thread_id"], &thread["limits"]), (&json!("outer"), &json!({ "depth": 4 })));
    // A graph that permits itself more does not get it.
    place.sign(
        "graphs/tools/test/more.yaml",
        "version: \"1.0.0\"\ntool_type: subprocess\nconfig: { command: [sh, -c, \"echo '{}'\"] }\n",
    );
    let more = "permissions: [rye.execute.tool.test.more]\nconfig: { start: a, nodes: { a: { action: { item_id: test/more } } } }\n";
    place.sign("graphs/inner.yaml", more);
    let ran = run(&["--files", "--run-id", "second"]);
    let said = ran.result()["output"]["inner"].as_str().unwrap().to_owned();
    assert!(said.contains("\"success\":false") && said.contains("rye.execute.tool.test.more"), "{said}");
    // Without files, the run does not say that it is a thread.
    let ran = run(&["--run-id", "third"]);
    let said = ran.result()["output"]["inner"].as_str().unwrap().to_owned();
    assert!(said.contains("\"success\":true"), "{said}");
    // A file that somebody wrote over grants nothing, and the journal says what it must be.
    assert_eq!(place.graph(&["files", "verify", "outer", "--store", "runs.db"]).code, 0);
    let path = ".ai/state/threads/outer/thread.json";
    let forged = place.read(path).replace("rye.bash", "*");
    place.write(path, &forged);
    let verified = place.graph(&["files", "verify", "outer", "--store", "runs.db"]);
    assert!(verified.code != 0 && verified.err.contains("thread.json"), "{} {}", verified.out, verified.err);
    assert_eq!(place.graph(&["files", "rebuild", "outer", "--store", "runs.db"]).code, 0);
    assert_eq!(serde_json::from_str::<Value>(&place.read(path)).unwrap(), thread);
}

/// A graph that needs more than [`starting`] has, and the tool of it.
fn with_more(place: &Place, name: &str) {
    let tool = "version: \"1.0.0\"\ntool_type: subprocess\nconfig: { command: [sh, -c, \"echo '{}'\"] }\n";
    place.sign("graphs/tools/test/more.yaml", tool);
    let more = "permissions: [rye.execute.tool.test.more]\nconfig: { start: a, nodes: { a: { action: { item_id: test/more } } } }\n";
    place.sign(name, more);
}

#[test]
fn a_run_that_is_resumed_with_less_hands_down_less() {
    let place = Place::with_graph(&starting(", rye.execute.tool.test.more"));
    with_more(&place, "graphs/inner.yaml");
    let said = |ran: Ran| ran.result()["output"]["inner"].as_str().unwrap().to_owned();
    let ran = place.run(&["--store", "runs.db", "--files", "--run-id", "wide"]);
    assert!(said(ran).contains("\"success\":true"));
    let run = ["--store", "runs.db", "--files"];
    let paused = place.run(&[&run[..], &["--run-id", "less", "--pause-before", "begin"]].concat());
    assert_eq!(paused.code, 4, "{}", paused.err);
    let resumed = [&run[..], &["--resume", "less", "--release", "--grant", "rye.execute.tool.rye.bash"]].concat();
    let said = said(place.run(&resumed));
    assert!(said.contains("\"success\":false") && said.contains("rye.execute.tool.test.more"), "{said}");
    let thread: Value = serde_json::from_str(&place.read(".ai/state/threads/less/thread.json")).unwrap();
    assert_eq!(thread["capabilities"], json!(["rye.execute.tool.rye.bash"]));
    assert_eq!(place.graph(&["files", "verify", "less", "--store", "runs.db"]).code, 0);
}

#[test]
fn a_graph_that_a_graph_of_a_command_starts_is_bound_too() {
    let place = Place::with_graph(&starting(""));
    // The one in the middle keeps no files.
    place.sign("graphs/inner.yaml", &starting("").replace("inner.yaml", "leaf.yaml"));
    with_more(&place, "graphs/leaf.yaml");
    let ran = place.run(&["--store", "runs.db", "--files", "--run-id", "outer"]);
    let said = ran.result()["output"]["inner"].as_str().unwrap().to_owned();
    assert!(said.contains("\\\"success\\\":false") && said.contains("rye.execute.tool.test.more"), "{said}");
    // A file that another run of the same id has left gives nothing.
    place.sign("graphs/wide.yaml", &starting(", rye.execute.tool.test.more").replace("inner.yaml", "leaf.yaml"));
    let wide = place.graph(&["run", "graphs/wide.yaml", "--store", "wide.db", "--files", "--run-id", "known"]);
    assert!(wide.code == 0 && wide.out.contains("\\\"success\\\":true"), "{}", wide.out);
    place.sign("graphs/named.yaml", &starting("").replace("inner.yaml", "inner.yaml --run-id known"));
    let ran = place.graph(&["run", "graphs/named.yaml", "--store", "runs.db", "--files", "--run-id", "named"]);
    let said = ran.result()["output"]["inner"].as_str().unwrap().to_owned();
    assert!(said.contains("\\\"success\\\":false") && said.contains("rye.execute.tool.test.more"), "{said}");
    // A worker without files names the file of the run.
    let paused = place.run(&["--store", "runs.db", "--files", "--run-id", "slow", "--pause-before", "begin"]);
    assert_eq!(paused.code, 4, "{}", paused.err);
    with_more(&place, "graphs/inner.yaml");
    let ran = place.run(&["--store", "runs.db", "--resume", "slow", "--release"]);
    let said = ran.result()["output"]["inner"].as_str().unwrap().to_owned();
    assert!(said.contains("\"success\":false"), "{said}");
}

//! `graph run` with computed ids, with refusals before a run begins, and with numbers in inputs and outputs.

use std::process::Command;

use serde_json::{Value, json};

use crate::place::{Place, Ran};
use crate::run::commands;

fn result(ran: &Ran) -> Value {
    serde_json::from_str(&ran.out).map_err(|_| format!("{}{}", ran.out, ran.err)).unwrap()
}

fn error(ran: &Ran) -> String {
    let error = result(ran)["error"].as_str().map(str::to_owned);
    error.ok_or(&ran.out).unwrap()
}

/// A graph that calls the item that an input names, and returns its result.
fn calls(id: &str, params: &str) -> String {
    format!(
        "permissions: [rye.execute.tool.*]
config_schema: {{ type: object, properties: {{ which: {{ type: string, x-sink: item }} }}, required: [which] }}
config:
  start: a
  nodes:
    a: {{ action: {{ item_id: '{id}', params: {params} }}, assign: {{ got: '${{result}}' }}, next: b }}
    b: {{ type: return, output: {{ got: '${{state.got}}' }} }}
"
    )
}

fn run(place: &Place, file: &str, which: &str) -> Ran {
    place.graph(&["run", file, "--input", &format!("which={which}")])
}

/// A tree with a tool that is a program and returns its parameters.
fn with_program() -> Place {
    let place = Place::with_key();
    place.sign(
        "graphs/tools/t/cat.yaml",
        "version: \"1.0.0\"\ntool_type: subprocess\nconfig: { command: [bin/cat] }\nconfig_schema: { type: object, properties: { \
         number: { type: integer }, unit: { type: string, default: cm } }, required: [number] }\nresult_schema: { type: object, \
         properties: { number: { type: integer }, unit: { type: string } }, required: [number] }\n",
    );
    place.write("graphs/bin/cat", "#!/bin/sh\nexec cat\n");
    assert!(Command::new("chmod").arg("+x").arg(place.path("graphs/bin/cat")).status().unwrap().success());
    place
}

#[test]
fn a_computed_id_reaches_a_built_in_tool() {
    let place = Place::with_graph(&calls("rye/${inputs.which}", "{ command: \"echo hi\" }"));
    let ran = run(&place, "graphs/g.yaml", "bash");
    assert_eq!((ran.code, &result(&ran)["output"]["got"]["stdout"]), (0, &json!("hi")), "{}", ran.out);
}

#[test]
fn a_computed_id_reaches_a_program_as_its_contract_says() {
    let place = with_program();
    place.sign("graphs/g.yaml", &calls("t/{input:which}", "{ number: 21 }"));
    let ran = run(&place, "graphs/g.yaml", "cat");
    assert_eq!(result(&ran)["output"]["got"], json!({"number": 21, "unit": "cm"}), "{}", ran.err);
    place.sign("graphs/g.yaml", &calls("t/${inputs.which}", "{ number: many }"));
    let said = error(&run(&place, "graphs/g.yaml", "cat"));
    assert!(said.contains("do not fit: expected an integer of 64 bits, found a string at `number`"), "{said}");
    place.sign("graphs/g.yaml", &calls("t/${inputs.which}", "{ number: 1, nubmer: 2 }"));
    let said = error(&run(&place, "graphs/g.yaml", "cat"));
    assert!(said.contains("`t/cat` has no parameter `nubmer`"), "{said}");
    assert!(error(&run(&place, "graphs/g.yaml", "none")).contains("nothing performs `t/none`"));
    // A contract without a valid signature is not used.
    place.write("graphs/tools/t/cat.yaml", &place.read("graphs/tools/t/cat.yaml").replace("cm", "mm"));
    assert_ne!(run(&place, "graphs/g.yaml", "cat").code, 0);
}

#[test]
fn a_computed_id_reaches_a_graph_which_is_proven_too() {
    let place = Place::with_graph(&calls("test/${inputs.which}", "{}"));
    place.sign("graphs/inner.yaml", &commands("echo a", "echo b"));
    let store = ["--store", "runs.db", "--run-id", "r"];
    let ran = place.graph(&[&["run", "graphs/g.yaml", "--input", "which=inner"], &store[..]].concat());
    assert_eq!((ran.code, &result(&ran)["output"]["got"]["output"]["first"]), (0, &json!("a")), "{}", ran.out);
    let verify = || place.graph(&["verify-run", "r", "--store", "runs.db"]);
    let proven = verify();
    assert_eq!((proven.code, proven.out.lines().count()), (0, 2), "{}{}", proven.out, proven.err);
    let database = rusqlite::Connection::open(place.path("runs.db")).unwrap();
    database.execute("DELETE FROM runs WHERE id = 'r-1'", []).unwrap();
    let missed = verify();
    assert_eq!(missed.code, 1);
    assert!(missed.err.contains("node `a` has the result of a run that has no journal"), "{}", missed.err);
}

#[test]
fn a_computed_id_needs_its_permission_at_the_call() {
    let place = with_program();
    let graph = calls("t/${inputs.which}", "{ number: 1 }").replace("rye.execute.tool.*", "rye.execute.tool.t.c?t");
    place.sign("graphs/g.yaml", &graph);
    assert_eq!(run(&place, "graphs/g.yaml", "cat").code, 0);
    let said = error(&run(&place, "graphs/g.yaml", "dog"));
    assert_eq!(said, "Permission denied: 'rye.execute.tool.t.dog' not covered by capabilities");
}

#[test]
fn a_tool_that_nobody_performs_is_found_before_the_start() {
    let graph = "permissions: [rye.execute.tool.*]
config:
  start: a
  nodes:
    a: { action: { item_id: rye/bash, params: { command: 'touch begun' } }, next: b }
    b: { action: { item_id: my/tool }, on_error: c, next: c }
    c: { type: return }
";
    let place = Place::with_graph(graph);
    let ran = place.graph(&["run", "graphs/g.yaml"]);
    assert_ne!(ran.code, 0);
    assert!(error(&ran).contains("nothing performs `my/tool`, which the graph `test/g` calls"), "{}", ran.out);
    assert!(!place.path("begun").exists());
}

#[test]
fn a_graph_with_a_reducer_of_a_program_does_not_start() {
    let graph = "permissions: [rye.execute.tool.rye.bash]
config:
  start: a
  channels: { score: { reduce: { item_id: scoring/combine } } }
  nodes:
    a: { action: { item_id: rye/bash, params: { command: 'touch begun' } }, assign: { score: 1 }, next: b }
    b: { type: return, output: { score: '${state.score}' } }
";
    let place = Place::with_graph(graph);
    let contract =
        "version: '1.0.0'\ntool_type: reducer\nconfig_schema: { type: integer }\nresult_schema: { type: integer }\n";
    place.sign("graphs/tools/scoring/combine.yaml", contract);
    let ran = place.graph(&["run", "graphs/g.yaml"]);
    assert_eq!(ran.code, 3, "{} {}", ran.out, ran.err);
    let said = error(&ran);
    assert!(
        said.contains("are combined by `scoring/combine`, functions of a program: run it in that program"),
        "{said}"
    );
    assert!(!place.path("begun").exists());
}

#[test]
fn whole_numbers_come_in_and_go_out_exactly_or_not_at_all() {
    let place = Place::with_graph(
        "permissions: [rye.execute.tool.rye.bash]
config:
  start: a
  state: { total: 3, big: 12345678901234567890 }
  nodes:
    a:
      type: gate
      assign: { text: 'v=${state.big} ${inputs.x} ${state.total}' }
      next: [{ to: other, when: { path: inputs.never, op: exists } }, { to: same, when: { path: state.big, value: 12345678901234567890 } }, { to: other }]
    other: { type: gate, assign: { total: 1.5, big: 1 }, next: same }
    same: { type: return, output: { text: '${state.text}', x: '${inputs.x}', big: '${state.big}', lit: [1, 2.5, 9223372036854775808] } }
",
    );
    let ran = place.graph(&["run", "graphs/g.yaml", "--json", "{\"x\": 18446744073709551615}"]);
    let output = "\"output\":{\"text\":\"v=12345678901234567890 18446744073709551615 3\",\"x\":18446744073709551615,\
                  \"big\":12345678901234567890,\"lit\":[1,2.5,9223372036854775808]}";
    assert!(ran.out.contains(output), "{}{}", ran.out, ran.err);
    for json in ["{\"x\": 18446744073709551616}", "{\"x\": [-9223372036854775809]}"] {
        let ran = place.graph(&["run", "graphs/g.yaml", "--json", json]);
        assert_eq!(ran.code, 2, "{}", ran.out);
        assert!(error(&ran).contains("is beyond 64 bits, at line 1 column"), "{}", ran.out);
    }
}

#[test]
fn an_error_in_the_json_on_stdout_has_no_colours() {
    let place = Place::with_graph(&commands("echo a", "exit 1"));
    let store = ["--store", "runs.db"];
    place.graph(&[&["run", "graphs/g.yaml", "--run-id", "r"], &store[..]].concat());
    place.write("old.yaml", "config: {}\n");
    place.sign("graphs/g.yaml", &commands("echo b", "exit 1"));
    let ran =
        place.graph(&[&["run", "graphs/g.yaml", "--resume", "r", "--old-graph", "old.yaml"], &store[..]].concat());
    let said = error(&ran);
    assert!(said.contains("the changes since then cannot be determined") && !said.contains('\u{1b}'), "{said}");
}

#[test]
fn outside_the_working_directory_the_keys_are_named() {
    let place = Place::with_key();
    place.sign("graphs/sub/g.yaml", &commands("echo a", "echo b"));
    let checks = |arguments: &[&str]| {
        let mut command = place.command(arguments);
        let elsewhere = tempfile::tempdir().unwrap();
        place.ran(command.current_dir(elsewhere.path()).output().unwrap())
    };
    let file = place.path("graphs/sub/g.yaml").display().to_string();
    let ran = checks(&["check", &file]);
    assert_eq!(ran.code, 1);
    assert!(
        ran.err.contains("outside the working directory only the keys beside a file count, here those of"),
        "{}",
        ran.err
    );
    assert!(ran.err.contains("graphs/sub/keys`: run this in the directory of the tree"), "{}", ran.err);
}

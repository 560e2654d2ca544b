//! Programs that call tools, in the commands that read graphs.

use std::os::unix::fs::PermissionsExt;

use crate::outlive::{lives, signal, wait_until};
use crate::place::Place;

const BATCH: &str = r#"version: "1.0.0"
tool_type: program
config:
  command: [bin/sums]
  calls: [shop/double]
  limits: { calls: 10 }
config_schema:
  type: object
  properties: { numbers: { type: array, items: { type: integer } } }
  required: [numbers]
result_schema:
  type: object
  properties: { sum: { type: integer } }
  required: [sum]
"#;

const DOUBLE: &str = "version: \"1.0.0\"\ntool_type: subprocess\nconfig: { command: [bin/double] }
config_schema: { type: object, properties: { number: { type: integer } }, required: [number] }
result_schema: { type: object, properties: { double: { type: integer } }, required: [double] }\n";

const TOTAL: &str = r#"version: "1.0.0"
tool_type: graph
executor_id: rye/core/runtimes/state-graph/runtime
category: shop
permissions: [rye.execute.tool.rye.program.turn, rye.execute.tool.shop.double, rye.execute.tool.shop.batch]
config_schema:
  type: object
  properties: { numbers: { type: array, items: { type: integer } } }
  required: [numbers]
config:
  start: batch
  nodes:
    batch:
      action: { item_id: shop/batch, params: { numbers: "${inputs.numbers}" } }
      assign: { sum: "${result.output.sum}" }
      next: done
    done: { type: return, output: { sum: "${state.sum}" } }
"#;

/// Asks for a call, and returns its result.
const PROGRAM: &str = r#"#!/usr/bin/env bash
IFS= read -r inputs
echo '{"jsonrpc":"2.0","id":1,"method":"shop/double","params":{"number":21}}' >&0
IFS= read -r reply
echo "{\"sum\":$(grep -o '[0-9]*}}$' <<< "$reply" | tr -d '}')}"
"#;

const TESTS: &str = "inputs: { numbers: [1, 2] }
cases:
  - name: the program doubles two numbers
    tools:
      rye/program/turn:
        - returns: { said: [], calls: [{ id: 1-0, tool: shop/double, arguments: { number: 1 } }, { id: 1-1, tool: shop/double, arguments: { number: 2 } }] }
        - returns: { said: [], calls: [], outcome: { value: { sum: 6 } } }
      shop/double:
        - { with: { number: 1 }, returns: { double: 2 } }
        - { with: { number: 2 }, returns: { double: 4 } }
    crash: each_commit
    expect:
      output: { sum: 6 }
  - name: a program that fails fails its node
    tools:
      rye/program/turn: { fails: \"exit code 3: no money\" }
    expect:
      status: error
";

fn place() -> Place {
    let place = Place::with_key();
    for (name, text) in [
        ("graphs/tools/shop/batch.yaml", BATCH),
        ("graphs/tools/shop/double.yaml", DOUBLE),
        ("graphs/shop/total.yaml", TOTAL),
    ] {
        place.write(name, text);
        assert_eq!(place.graph(&["sign", name]).code, 0);
    }
    for (name, text) in [
        ("graphs/bin/sums", PROGRAM),
        (
            "graphs/bin/double",
            "#!/usr/bin/env bash\nread -r n; n=${n//[^0-9]/}; echo \"{\\\"double\\\":$((n * 2))}\"\n",
        ),
    ] {
        place.write(name, text);
        std::fs::set_permissions(place.path(name), std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    place
}

#[test]
fn a_run_starts_a_program_that_calls_tools() {
    let place = place();
    let ran = place.graph(&["run", "graphs/shop/total.yaml", "--input", "numbers=[1]"]);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    let result: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(result["output"], serde_json::json!({ "sum": 42 }), "{result}");
    // A tool that its contract does not list is not called.
    place.write("graphs/bin/sums", &PROGRAM.replace("shop/double", "rye/bash"));
    let ran = place.graph(&["run", "graphs/shop/total.yaml", "--input", "numbers=[1]"]);
    assert_eq!(ran.code, 1, "{}{}", ran.out, ran.err);
}

#[test]
fn a_program_is_checked_drawn_tested_and_covered_as_a_graph() {
    let place = place();
    let ran = place.graph(&["check"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "checked 2 graphs: no errors\n"), "{}", ran.err);
    let ran = place.graph(&["diagram", "--format", "text", "graphs/tools/shop/batch.yaml"]);
    assert!(ran.code == 0 && ran.out.contains("call_double (action)\n    shop/double\n"), "{}{}", ran.out, ran.err);
    place.write("graphs/shop/total.test.yaml", TESTS);
    let ran = place.graph(&["test", "graphs/shop/total.yaml"]);
    assert!(ran.code == 0 && ran.out.ends_with("ran 2 cases: 2 passed\n"), "{}{}", ran.out, ran.err);
    let ran = place.graph(&["coverage", "graphs"]);
    assert!(ran.out.contains("graphs/tools/shop/batch.yaml: "), "{}", ran.out);
}

/// A program, and what it started, die with a `graph run` that is killed or told to end.
#[test]
fn a_program_dies_with_its_run() {
    let place = place();
    place.write("graphs/bin/sums", "#!/usr/bin/env bash\nsleep 600 & echo $! > inner; echo $$ > outer; wait\n");
    for how in ["KILL", "TERM", "INT"] {
        let read = |name: &str| std::fs::read_to_string(place.path(name)).unwrap_or_default().trim().to_owned();
        for name in ["inner", "outer"] {
            std::fs::remove_file(place.path(name)).ok();
        }
        let mut command = place.command(&["run", "graphs/shop/total.yaml", "--input", "numbers=[1]"]);
        let nothing = std::process::Stdio::null;
        let mut child = command.stdin(nothing()).stdout(nothing()).stderr(nothing()).spawn().unwrap();
        wait_until("the program did not begin", || !read("outer").is_empty() && !read("inner").is_empty());
        let (outer, inner) = (read("outer"), read("inner"));
        assert!(lives(&outer) && lives(&inner));
        // A program is ended with its run: one signal is enough.
        signal(&child, how);
        child.wait().unwrap();
        wait_until(how, || !lives(&outer) && !lives(&inner));
    }
}

/// A program that charges, and then takes too long.
const STALLS: &str = r#"#!/usr/bin/env bash
IFS= read -r inputs
echo '{"jsonrpc":"2.0","id":1,"method":"shop/charge","params":{}}' >&0
IFS= read -r reply
sleep 20
"#;

/// A graph that charges, and then takes too long.
const SELL: &str = r#"version: "1.0.0"
tool_type: graph
executor_id: rye/core/runtimes/state-graph/runtime
category: shop
permissions: [rye.execute.tool.shop.charge, rye.execute.tool.rye.bash]
config:
  start: charge
  nodes:
    charge: { action: { item_id: shop/charge }, next: tell }
    tell: { action: { item_id: rye/bash, params: { command: sleep 20 } }, timeout: 1s, retry: 1, next: done }
    done: { type: return }
"#;

/// The card is charged once, with one key: a run inside that fails for a passing reason is not made again by itself.
#[test]
fn a_graph_or_a_program_that_runs_out_of_time_has_charged_once() {
    let place = Place::with_key();
    let charged = place.path("charged");
    let charge = format!("#!/usr/bin/env bash\necho \"$RYE_IDEMPOTENCY_KEY\" >> {}\necho '{{}}'\n", charged.display());
    for (name, text) in [("graphs/bin/charge", charge.as_str()), ("graphs/bin/stalls", STALLS)] {
        place.write(name, text);
        std::fs::set_permissions(place.path(name), std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let contract = |kind: &str, config: &str| {
        format!(
            "version: \"1.0.0\"\ntool_type: {kind}\nconfig: {{ {config} }}
config_schema: {{ type: object, properties: {{}} }}\nresult_schema: {{ type: object, properties: {{}} }}\n"
        )
    };
    let stalls = contract("program", "command: [bin/stalls], calls: [shop/charge], limits: { timeout: 1s }");
    let outer = |callee: &str| {
        SELL.split("config:")
            .next()
            .unwrap()
            .replace("[rye", "[rye.execute.tool.shop.*, rye.execute.tool.rye.program.turn, rye")
            + &format!(
                "config:
  start: group
  nodes:
    group: {{ action: {{ item_id: {callee} }}, next: done, on_error: late }}
    done: {{ type: return, output: {{ late: false }} }}
    late: {{ type: return, output: {{ late: true }} }}\n"
            )
    };
    for (name, text) in [
        ("graphs/tools/shop/charge.yaml", contract("subprocess", "command: [bin/charge]")),
        ("graphs/tools/shop/stalls.yaml", stalls),
        ("graphs/shop/sell.yaml", SELL.to_owned()),
        ("graphs/shop/outer_sell.yaml", outer("shop/sell")),
        ("graphs/shop/outer_stalls.yaml", outer("shop/stalls")),
    ] {
        place.write(name, &text);
        assert_eq!(place.graph(&["sign", name]).code, 0);
    }
    for name in ["outer_sell", "outer_stalls"] {
        let file = format!("graphs/shop/{name}.yaml");
        let ran = place.graph(&["run", &file, "--store", "runs.db"]);
        assert!(ran.code == 0 && ran.out.contains("\"late\":true"), "{name}: {}{}", ran.out, ran.err);
        let keys = place.read("charged");
        assert_eq!(keys.lines().count(), 1, "{name}: {keys}");
        std::fs::remove_file(&charged).unwrap();
    }
}

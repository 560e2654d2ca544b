//! `graph check` and `graph explain`: the diagnostics in each output format, and the changes of `--fix`.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::Value;

use crate::place::Place;

/// A graph with an error that can be fixed, a warning, and a tool whose contract is not signed.
const GRAPH: &str = "version: \"1.0.0\"
tool_type: graph
executor_id: rye/core/runtimes/state-graph/runtime
category: shop
permissions: [rye.execute.tool.shop.pay]
config:
  start: pay
  nodes:
    pay:
      action: { item_id: shop/pay, params: { amount: 3 } }
      assign: { receipt: \"${result.recipt}\" }
      next: done
    done: { type: return, output: { receipt: \"${state.receipt}\" } }
";

const CONTRACT: &str = "tool_type: rust
config_schema: { type: object, properties: { amount: { type: integer } } }
result_schema: { type: object, properties: { receipt: { type: string } }, required: [receipt] }
";

/// A graph in which nothing reads a key that is set.
const UNREAD: &str = "version: \"1.0.0\"
tool_type: graph
executor_id: rye/core/runtimes/state-graph/runtime
category: shop
permissions: [rye.execute.tool.*]
config:
  start: count
  nodes:
    count: { type: gate, assign: { unread: 1 }, next: done }
    done: { type: return, output: { n: 1 } }
";

impl Place {
    /// Writes a file and signs it.
    fn signed(&self, name: &str, text: &str) {
        self.write(name, text);
        assert_eq!(self.graph(&["sign", name]).code, 0);
    }

    fn json(&self, arguments: &[&str]) -> (i32, Value) {
        let ran = self.graph(&[&["check", "--json"], arguments].concat());
        assert_eq!(ran.err, "");
        (ran.code, serde_json::from_str(&ran.out).unwrap())
    }
}

/// A tree with two graphs, both of which call a tool whose contract is not signed.
fn shop() -> Place {
    let place = Place::with_key();
    place.signed("graphs/buy.yaml", GRAPH);
    place.signed("graphs/two words/again.yaml", &GRAPH.replace("recipt", "receipt"));
    place.signed("graphs/count.yaml", UNREAD);
    place.write("graphs/tools/shop/pay.yaml", CONTRACT);
    place
}

#[test]
fn people_read_frames_a_hint_and_the_count() {
    let ran = shop().graph(&["check"]);
    assert_eq!(ran.code, 1);
    insta::assert_snapshot!(format!("{}{}", ran.err, ran.out));
}

#[test]
fn programs_read_one_json_document() {
    let ran = shop().graph(&["check", "--json"]);
    assert_eq!((ran.code, ran.err.as_str()), (1, ""));
    insta::assert_snapshot!(ran.out);
    assert_eq!(shop().graph(&["check", "--format", "json"]).out, ran.out, "the same again, byte for byte");
}

#[test]
fn code_scanning_reads_sarif() {
    let place = shop();
    let ran = place.graph(&["check", "--format", "sarif"]);
    assert_eq!((ran.code, ran.err.as_str()), (1, ""));
    insta::assert_snapshot!(ran.out);
    let fingerprints = |text: &str| -> Vec<Value> {
        let log: Value = serde_json::from_str(text).unwrap();
        let results = log["runs"][0]["results"].as_array().unwrap();
        results.iter().map(|result| result["partialFingerprints"].clone()).collect()
    };
    place.signed("graphs/count.yaml", &format!("# a comment that moves all lines\n{UNREAD}"));
    assert_eq!(fingerprints(&place.graph(&["check", "--format", "sarif"]).out), fingerprints(&ran.out));
}

#[test]
fn a_file_that_nobody_signed_yet_is_checked_as_a_whole() {
    let place = shop();
    place.write("graphs/buy.yaml", &GRAPH.replace("amount: 3", "amount: three"));
    let (code, document) = place.json(&["graphs/buy.yaml"]);
    let codes: Vec<&str> =
        document["diagnostics"].as_array().unwrap().iter().map(|one| one["code"].as_str().unwrap()).collect();
    assert_eq!((code, codes.as_slice()), (1, &["G0010", "G0122", "G0117", "G0010"][..]));
}

#[test]
fn an_unsigned_nested_graph_is_known_to_graphs_that_nest_it() {
    let place = Place::with_key();
    place.write("graphs/count.yaml", UNREAD);
    let buy =
        GRAPH.replace("shop/pay, params: { amount: 3 }", "shop/count").replace("result.recipt", "result.output.m");
    place.signed("graphs/buy.yaml", &buy.replace("shop.pay", "shop.count"));
    let ran = place.graph(&["check", "graphs/buy.yaml"]);
    assert!(ran.err.starts_with("error[G0117]: `result.output` has no field `m`\n"), "{}", ran.err);
    assert!(ran.err.contains("error[G0010]: `graphs/count.yaml` is not signed\n"), "{}", ran.err);
}

#[test]
fn warnings_fail_where_they_are_denied() {
    let place = Place::with_key();
    place.signed("graphs/count.yaml", UNREAD);
    let ran = place.graph(&["check"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "checked 1 graph: no errors, 1 warning\n"));
    assert!(ran.err.starts_with("warning[G0152]: "), "{}", ran.err);
    assert!(ran.err.ends_with("for more about a warning, try `graph explain G0152`\n\n"), "{}", ran.err);
    assert_eq!(place.graph(&["check", "--deny-warnings"]).code, 1);
}

#[test]
fn a_budget_counts_steps_tries_and_calls_at_a_time() {
    let place = Place::with_key();
    place.signed(
        "graphs/bounded.yaml",
        "version: \"1.0.0\"
tool_type: graph
executor_id: rye/core/runtimes/state-graph/runtime
permissions: [rye.execute.tool.shop.pay]
config_schema:
  type: object
  properties: { cards: { type: array, maxItems: 6, items: { type: string } } }
  required: [cards]
config:
  start: all
  nodes:
    all:
      type: foreach
      over: \"${inputs.cards}\"
      parallel: true
      max_concurrency: 4
      action: { item_id: shop/pay, params: { card: \"${item}\" } }
      retry: 2
      next: round
    round:
      action: { item_id: shop/pay }
      next: [{ to: round, when: { path: visit.number, op: lt, value: 3 } }, { to: done }]
    done: { type: return, output: 1 }
",
    );
    let (code, document) = place.json(&["--budget"]);
    assert_eq!(code, 0, "{document:#}");
    // Six cards with two attempts each, and three rounds of a call with four attempts. Every run makes these calls.
    let budget = serde_json::json!({
        "shortest": 5, "steps": 5, "bounded_by": "edges", "calls": 24, "at_a_time": 4, "levels": 0,
        "turns": 0, "tokens": 0, "spend": "0.00 USD",
    });
    assert_eq!(
        document["budgets"],
        serde_json::json!([{ "graph": "graphs/bounded.yaml", "budget": budget, "approvals": [] }])
    );
    let table = place.graph(&["check", "--budget"]).out;
    assert!(table.contains("graphs/bounded.yaml  5         5      24     4          0\n"), "{table}");
}

#[test]
fn the_budget_of_a_loop_keeps_to_the_visits_of_each_node() {
    let place = Place::with_key();
    place.signed(
        "graphs/limited.yaml",
        "version: \"1.0.0\"
tool_type: graph
executor_id: rye/core/runtimes/state-graph/runtime
permissions: [rye.execute.tool.shop.pay]
limits: { visits: 3 }
config:
  start: ask
  nodes:
    ask: { type: gate, next: pay }
    pay:
      action: { item_id: shop/pay }
      retry: 2
      next: [{ to: done, when: { path: result.paid, value: true } }, { to: ask }]
    done: { type: return, output: 1 }
",
    );
    let (code, document) = place.json(&["--budget"]);
    assert_eq!(code, 0, "{document:#}");
    // Three rounds of two nodes, with two attempts of each call, and the end.
    let budget = serde_json::json!({
        "shortest": 3, "steps": 7, "bounded_by": "limits.visits", "calls": 6, "at_a_time": 1, "levels": 0,
        "turns": 0, "tokens": 0, "spend": "0.00 USD",
    });
    assert_eq!(
        document["budgets"],
        serde_json::json!([{ "graph": "graphs/limited.yaml", "budget": budget, "approvals": [] }])
    );
    let table = place.graph(&["check", "--budget"]).out;
    assert!(table.contains("7 (limits.visits)"), "{table}");
}

#[test]
fn the_budget_of_branches_counts_those_that_end_early_and_the_node_in_fewer() {
    let place = Place::with_key();
    let graph = |next: &str, waits: &str| {
        format!(
            "version: \"1.0.0\"
tool_type: graph
executor_id: rye/core/runtimes/state-graph/runtime
category: shop
description: Asks two shops.
permissions: [rye.execute.tool.shop.ask]
limits: {{ timeout: 1h }}
config:
  start: ask
  nodes:
    ask: {{ type: gate, next: {{ all: [{{ to: a }}, {{ to: b }}]{next} }} }}
    a: {{ action: {{ item_id: shop/ask }}, next: c }}
    c: {{ action: {{ item_id: shop/ask }}, next: join }}
    b: {{ action: {{ item_id: shop/ask }}, next: join }}
    join: {{ type: gate, waits_for: {waits}, next: done }}
    done: {{ type: return, output: 1 }}
    less: {{ type: return, output: 2 }}
"
        )
    };
    let quorum = "{ of: [c, b], need: 2, rest: cancel, fewer: less }";
    place.signed(
        "graphs/collects.yaml",
        &graph(", on_branch_error: collect", "[c, b]").replace("    less: { type: return, output: 2 }\n", ""),
    );
    place.signed("graphs/quorum.yaml", &graph("", quorum));
    let (code, document) = place.json(&["--budget"]);
    assert_eq!(code, 0, "{document:#}");
    let found = |at: usize| {
        (document["budgets"][at]["budget"]["shortest"].clone(), document["budgets"][at]["budget"]["steps"].clone())
    };
    // `ask`, `a` and `b`, which may fail, and then `join` and `done`, or `less`.
    assert_eq!(found(0), (5.into(), 6.into()), "{document:#}");
    assert_eq!(found(1), (4.into(), 6.into()), "{document:#}");
}

#[test]
fn a_settings_file_sets_lint_levels_only_if_it_is_signed() {
    let place = Place::with_key();
    place.signed("graphs/count.yaml", UNREAD);
    let settings = "[lints]\nG0152 = \"allow\"\n";
    place.write("graphs/graphs.toml", settings);
    let ran = place.graph(&["check"]);
    assert_eq!((ran.code, ran.out.as_str()), (1, "checked 1 graph: 1 error\n"));
    assert!(ran.err.starts_with("error[G0010]: `graphs/graphs.toml` is not signed\n"), "{}", ran.err);
    place.signed("graphs/graphs.toml", settings);
    let ran = place.graph(&["check", "--deny-warnings"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "checked 1 graph: no errors\n"));
    place.signed("graphs/graphs.toml", "[lints]\n");
    place.write("Cargo.toml", "[package]\nname = \"shop\"\n[package.metadata.graphs.lints]\nG0152 = \"deny\"\n");
    assert_eq!(place.graph(&["check"]).out, "checked 1 graph: 1 error\n");
    // The manifest above the tree counts, not the one above the working directory.
    place.write("elsewhere/Cargo.toml", "[package]\nname = \"other\"\n");
    let output = place.command(&["check", "../graphs"]).current_dir(place.path("elsewhere")).output().unwrap();
    assert_eq!(place.ran(output).out, "checked 1 graph: 1 error\n");
}

#[test]
fn a_certain_fix_is_applied_and_needs_a_new_signature() {
    let place = shop();
    place.write("graphs/buy.yaml", &place.read("graphs/buy.yaml").replace('\n', "\r\n"));
    let ran = place.graph(&["check", "graphs/buy.yaml", "--fix"]);
    assert_eq!(ran.code, 1, "what was changed is not signed any more");
    assert_eq!(
        ran.out,
        "fixed graphs/buy.yaml:12:36: `recipt` is `receipt` now\n\
         review graphs/buy.yaml, then sign it again: `graph sign graphs/buy.yaml`\n\
         checked 1 graph: 2 errors\n"
    );
    assert!(ran.err.starts_with("error[G0011]: `graphs/buy.yaml` was changed after it was signed\n"), "{}", ran.err);
    let text = place.read("graphs/buy.yaml");
    assert!(text.ends_with(&GRAPH.replace("recipt", "receipt").replace('\n', "\r\n")), "{text}");
    place.graph(&["sign", "graphs/buy.yaml", "graphs/tools/shop/pay.yaml"]);
    let again = place.graph(&["check", "graphs/buy.yaml", "--fix"]);
    assert_eq!((again.code, again.out.as_str()), (0, "checked 1 graph: no errors\n"));
    let left: Vec<_> =
        std::fs::read_dir(place.path("graphs")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().ends_with(".tmp")), "{left:?}");
}

#[test]
fn a_misspelt_shared_key_is_fixed() {
    let place = Place::with_key();
    let head = "version: \"1.0.0\"\ntool_type: graph\nexecutor_id: rye/core/runtimes/state-graph/runtime\n";
    let outer = format!(
        "{head}permissions: [rye.execute.tool.inner]\nconfig:\n  start: call\n  channels: {{ total: sum }}\n  nodes:\n    \
         call: {{ action: {{ item_id: inner }}, share: [totl], next: done }}\n    \
         done: {{ type: return, output: {{ total: \"${{state.total}}\" }} }}\n"
    );
    let inner = format!(
        "{head}permissions: [rye.execute.tool.none]\nconfig:\n  start: add\n  channels: {{ total: sum }}\n  nodes:\n    \
         add: {{ type: gate, assign: {{ total: 1 }}, next: done }}\n    \
         done: {{ type: return, output: {{ total: \"${{state.total}}\" }} }}\n"
    );
    place.signed("graphs/outer.yaml", &outer);
    place.signed("graphs/inner.yaml", &inner);
    let ran = place.graph(&["check"]);
    assert!(ran.err.contains("error[G0224]") && ran.err.contains("did you mean `total`?"), "{}", ran.err);
    place.graph(&["check", "--fix"]);
    assert!(place.read("graphs/outer.yaml").ends_with(&outer.replace("totl", "total")));
    place.graph(&["sign", "graphs/outer.yaml"]);
    assert_eq!(place.graph(&["check"]).out, "checked 2 graphs: no errors\n");
}

#[test]
fn a_file_outside_the_given_paths_is_not_fixed() {
    let place = Place::with_key();
    place.signed("graphs/two words/again.yaml", &GRAPH.replace("recipt", "receipt"));
    place.signed("graphs/tools/shop/pay.yaml", &CONTRACT.replace("result_schema", "reslut_schema"));
    let before = place.read("graphs/tools/shop/pay.yaml");
    let ran = place.graph(&["check", "graphs/two words/again.yaml", "--fix"]);
    assert_eq!((ran.code, ran.out.as_str()), (1, "checked 1 graph: 1 error\n"));
    assert_eq!(place.read("graphs/tools/shop/pay.yaml"), before);
    // A fix does not follow a link out of the tree either.
    #[cfg(unix)]
    {
        place.signed("elsewhere.yaml", &UNREAD.replace("start: count", "start: coutn"));
        std::os::unix::fs::symlink(place.path("elsewhere.yaml"), place.path("graphs/linked.yaml")).unwrap();
        let before = place.read("elsewhere.yaml");
        place.graph(&["check", "--fix"]);
        assert_eq!(place.read("elsewhere.yaml"), before);
        assert!(place.path("graphs/linked.yaml").symlink_metadata().unwrap().is_symlink());
    }
    assert!(place.read("graphs/tools/shop/pay.yaml").contains("\nresult_schema:"), "given with its directory");
}

#[test]
fn a_fix_that_causes_a_new_mistake_is_not_applied() {
    let place = Place::with_key();
    // With the slip corrected, the key would occur twice.
    let text = UNREAD.replace("next: done }", "next: done, nxet: done }").replace("start: count", "start: coutn");
    place.signed("graphs/count.yaml", &text);
    let (code, document) = place.json(&["--fix"]);
    assert_eq!(code, 1);
    let fixed: Vec<&str> =
        document["fixed"].as_array().unwrap().iter().map(|one| one["text"].as_str().unwrap()).collect();
    assert_eq!(fixed, ["count"]);
    assert!(place.read("graphs/count.yaml").contains("next: done, nxet: done }"));
    assert!(place.read("graphs/count.yaml").contains("start: count\n"));
}

#[test]
fn uncertain_fixes_are_left_to_the_author() {
    let place = Place::with_key();
    let text = GRAPH.replace("rye.execute.tool.shop.pay", "rye.fetch.*").replace("result.recipt", "result.receipt");
    place.signed("graphs/buy.yaml", &text);
    place.signed("graphs/tools/shop/pay.yaml", &CONTRACT.replace("integer", "string"));
    let before = place.read("graphs/buy.yaml");
    let (code, document) = place.json(&["--fix"]);
    let fixes: Vec<&Value> = document["diagnostics"].as_array().unwrap().iter().map(|one| &one["fix"]).collect();
    assert_eq!(code, 1);
    assert_eq!(
        fixes.iter().map(|fix| fix["text"].as_str().unwrap()).collect::<Vec<_>>(),
        [", rye.execute.tool.shop.pay", "\"3\""]
    );
    assert!(fixes.iter().all(|fix| fix["certain"] == false));
    assert_eq!(document["fixed"], serde_json::json!([]));
    assert_eq!(place.read("graphs/buy.yaml"), before);
}

#[test]
fn a_code_is_explained_however_it_is_written() {
    let place = Place::new();
    let ran = place.graph(&["explain", "G0102"]);
    assert_eq!(
        (ran.code, ran.out.as_str()),
        (
            0,
            "G0102: an edge leads to a node that does not exist\n\n\
             `next` names a node that is not in `config.nodes`. Correct the name, or add the node.\n"
        )
    );
    for written in ["g0102", "102", "G102", "0102", "[G0102]"] {
        assert_eq!(place.graph(&["explain", written]).out, ran.out, "{written}");
    }
    let lint = place.graph(&["explain", "152"]).out;
    assert!(lint.ends_with("\n\nThis is a lint. Its default level is `warn`.\n"), "{lint}");
    let unknown = place.graph(&["explain", "G0108x"]);
    assert_eq!((unknown.code, unknown.out.as_str()), (1, ""));
    assert!(unknown.err.starts_with("error: there is no code `G0108x`; did you mean `G010"), "{}", unknown.err);
    let list = place.graph(&["explain"]);
    assert_eq!(list.code, 0);
    assert!(list.out.contains("\nG0102  error  an edge leads to a node that does not exist\n"), "{}", list.out);
    assert!(list.out.contains("\nG0152  warn   a value that nothing reads\n"), "{}", list.out);
}

#[test]
fn watch_is_for_people() {
    let place = Place::with_key();
    for arguments in [&["--watch", "--json"][..], &["--watch", "--fix"], &["--json", "--format", "sarif"]] {
        let ran = place.graph(&[&["check"], arguments].concat());
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{arguments:?}");
    }
}

#[test]
fn a_watched_tree_is_checked_again_when_it_changes() {
    let place = Place::with_key();
    place.signed("graphs/count.yaml", UNREAD);
    let mut child = place.command(&["check", "--watch"]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().unwrap(), "checked 1 graph: no errors, 1 warning");
    place.write("graphs/count.yaml", UNREAD);
    assert_eq!(lines.next().unwrap(), "checked 1 graph: 1 error, 1 warning");
    std::fs::remove_file(place.path("graphs/count.yaml")).unwrap();
    place.signed("graphs/other.yaml", &UNREAD.replace("assign: { unread: 1 }, ", ""));
    // The removal of the first file may be seen before the second file.
    let last = lines.find(|line| line.ends_with("no errors")).unwrap();
    assert_eq!(last, "checked 1 graph: no errors");
    place.signed("graphs/graphs.toml", "[lints]\nG0001 = \"warn\"\n");
    let last = lines.find(|line| line.contains("error")).unwrap();
    assert_eq!(last, "checked 1 graph: 1 error");
    child.kill().unwrap();
    child.wait().unwrap();
}

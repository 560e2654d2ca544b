//! The verbs about runs, with the files of several releases of a graph.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use crate::place::{Place, Ran};

/// A question, a signal, and an output that says which release it is.
fn release(number: u32) -> String {
    format!(
        "permissions: [rye.execute.tool.rye.bash]
config:
  start: approve
  state: {{ note: none }}
  signals: {{ paid: {{ type: object, properties: {{ cents: {{ type: integer }} }}, required: [cents] }} }}
  nodes:
    approve:
      type: interrupt
      payload: {{ of: {number} }}
      result_schema: {{ type: object, properties: {{ decision: {{ enum: [approve, refuse] }} }}, required: [decision] }}
      assign: {{ decision: \"${{result.decision}}\" }}
      next: payment
    payment: {{ type: wait, signals: [paid], next: done }}
    done: {{ type: return, output: {{ release: {number}, decision: \"${{state.decision}}\", note: \"${{state.note}}\" }} }}
"
    )
}

const NEW: &str = "graphs/g.yaml";
const OLD: &str = "releases/1/graphs/g.yaml";
const OTHER: &str = "releases/0/graphs/g.yaml";

/// A place with a run of the first release, which asks, and a tree of each release.
fn deployed() -> Place {
    let place = Place::with_graph(&release(1));
    let ran = place.graph(&["run", NEW, "--store", "runs.db", "--run-id", "r", "--json", "{}", "--quiet"]);
    assert_eq!(ran.code, 4, "{}{}", ran.out, ran.err);
    for (number, to) in [(1, OLD), (0, OTHER)] {
        let tree = place.path(to).parent().unwrap().to_owned();
        fs::create_dir_all(&tree).unwrap();
        let copied = Command::new("cp").arg("-r").args([place.path("graphs/keys"), tree]).status().unwrap();
        assert!(copied.success());
        place.sign(to, &release(number));
    }
    place.sign(NEW, &release(2));
    place
}

/// The verbs that name graphs by `--graph`, each with what it prints of a run of the first release.
const VERBS: [(&[&str], &str); 10] = [
    (&["answer", "r"], r#""payload":{"of":1}"#),
    (&["answer", "r", "--json", r#"{"decision": "approve"}"#, "--print"], r#""payloadType":"#),
    (&["answer", "r", "--json", r#"{"decision": "approve"}"#], r#""result":"accepted""#),
    (&["signal", "r", "paid", r#"{"cents": 7}"#, "--id", "p-1", "--json"], r#""signal":"paid""#),
    (&["show", "r", "--step", "0", "--json"], r#""next":["approve"]"#),
    (&["diff", "r@0", "r@0"], "nothing differs"),
    (&["verify-run", "r", "--json"], r#""graph":"test/g""#),
    (&["attest", "r"], r#""payloadType":"#),
    (&["edit", "r", "--set", r#"note="late""#, "--why", "it is", "--by", "ann"], "note"),
    (&["fork", "r", "--step", "0", "--run-id", "f"], "f begins in r"),
];

/// Runs a verb with a store and some graphs, each behind an option.
fn with(place: &Place, verb: &[&str], option: &str, graphs: &[&str]) -> Ran {
    let graphs: Vec<&str> = graphs.iter().flat_map(|graph| [option, graph]).collect();
    place.graph(&[verb, &["--store", "runs.db"], &graphs].concat())
}

/// The output without spaces between the parts of JSON.
fn plain(ran: &Ran) -> String {
    match serde_json::from_str::<Value>(&ran.out) {
        Ok(value) => value.to_string(),
        Err(_) => ran.out.clone(),
    }
}

#[test]
fn each_verb_about_a_run_takes_the_file_that_the_run_is_under() {
    for (verb, says) in VERBS {
        let place = deployed();
        // The newest release only, and two releases that it is not under.
        for graphs in [&[NEW][..], &[NEW, OTHER]] {
            let ran = with(&place, verb, "--graph", graphs);
            assert!(ran.code != 0 && !ran.err.is_empty() && ran.out.is_empty(), "{verb:?}: {}{}", ran.out, ran.err);
            if graphs.len() > 1 {
                let both = ["it is a run of `test/g 1.0.0 (", "and of none of the named graphs: `test/g 1.0.0 ("];
                assert!(both.iter().all(|part| ran.err.contains(part)), "{verb:?}: {}", ran.err);
            }
        }
        let ran = with(&place, verb, "--graph", &[NEW, OLD, OTHER]);
        assert_eq!(ran.code, 0, "{verb:?}: {}{}", ran.out, ran.err);
        assert!(plain(&ran).contains(says), "{verb:?}: {}", ran.out);
    }
    let place = deployed();
    let ran = with(&place, &["replay", "r", "--graph", NEW], "--original", &[NEW, OLD]);
    assert!(ran.out.contains("`approve` asks {\"of\":2}, where it asked {\"of\":1}"), "{}{}", ran.out, ran.err);
}

#[test]
fn a_run_of_an_old_release_is_answered_paid_and_resumed_beside_the_new_one() {
    let place = deployed();
    let begin = ["run", NEW, "--store", "runs.db", "--run-id", "s", "--json", "{}", "--quiet"];
    assert_eq!(place.graph(&begin).code, 4);
    for (run, release) in [("r", 1), ("s", 2)] {
        let answer = ["answer", run, "--json", r#"{"decision": "approve"}"#];
        assert_eq!(with(&place, &answer, "--graph", &[NEW, OLD]).code, 0);
        let resume = ["run", NEW, OLD, "--store", "runs.db", "--resume", run, "--quiet"];
        let waits = place.graph(&resume);
        assert_eq!(waits.code, 4, "{}{}", waits.out, waits.err);
        let paid = ["signal", run, "paid", r#"{"cents": 7}"#, "--id", "p-1"];
        assert_eq!(with(&place, &paid, "--graph", &[OLD, NEW]).code, 0);
        let ended = place.graph(&resume);
        let result: Value = serde_json::from_str(&ended.out).unwrap();
        let expected = json!({ "release": release, "decision": "approve", "note": "none" });
        assert_eq!((ended.code, &result["output"]), (0, &expected), "{}", ended.err);
        let refused = place.graph(&["run", NEW, OTHER, "--store", "runs.db", "--resume", "r", "--quiet"]);
        assert_eq!(refused.code, 3, "{}", refused.out);
        assert!(refused.err.contains("it is a run of `test/g 1.0.0 ("), "{}", refused.err);
    }
    let ran = place.graph(&["run", NEW, OLD, "--json", "{}"]);
    assert!(ran.code == 2 && ran.err.contains("--resume <RUN>"), "{}", ran.err);
}

//! `graph stats`: statistics over the runs of a store, and of the files of a project.

use serde_json::{Value, json};

use crate::place::Place;
use crate::run::{NESTS, commands};

/// A place with a completed run `r`, which has a nested run, and a run `bad` whose last command fails.
fn with_runs() -> Place {
    let place = Place::with_graph(NESTS);
    place.sign("graphs/inner.yaml", &commands("echo a", "echo b"));
    let ran = place.run(&["--store", "runs.db", "--run-id", "r", "--files"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    place.sign("graphs/bad.yaml", &commands("echo a", "exit 3"));
    let failed = place.graph(&["run", "graphs/bad.yaml", "--store", "runs.db", "--run-id", "bad", "--files"]);
    assert_eq!(failed.code, 1, "{}", failed.err);
    place
}

fn document(place: &Place, more: &[&str]) -> (i32, Value) {
    let ran = place.graph(&[&["stats", "--json"], more].concat());
    (ran.code, serde_json::from_str(&ran.out).unwrap())
}

/// Returns the visits and failures of each node of a graph.
fn nodes<'d>(document: &'d Value, graph: &str) -> Vec<(&'d str, u64, u64)> {
    let graph = document["graphs"].as_array().unwrap().iter().find(|one| one["graph_id"] == graph).unwrap();
    let node = |node: &'d Value| {
        (node["node"].as_str().unwrap(), node["visits"].as_u64().unwrap(), node["failures"].as_u64().unwrap())
    };
    graph["nodes"].as_array().unwrap().iter().map(node).collect()
}

#[test]
fn a_nested_run_counts_under_its_own_graph() {
    let place = with_runs();
    let (code, stored) = document(&place, &["--store", "runs.db"]);
    assert_eq!((code, &stored["success"], &stored["left_out"]), (0, &json!(true), &json!([])), "{stored:#}");
    assert_eq!(nodes(&stored, "test/inner"), [("done", 1, 0), ("one", 1, 0), ("two", 1, 0)]);
    assert_eq!(nodes(&stored, "test/bad"), [("one", 1, 0), ("two", 1, 1)]);
    let bad = stored["graphs"].as_array().unwrap().iter().find(|one| one["graph_id"] == "test/bad").unwrap();
    assert_eq!(bad["runs"], json!({"error": 1}));
    assert_eq!((&bad["steps"]["count"], &bad["nodes"][1]["latency"]["p99_ms"]), (&json!(1), &Value::Null));
    // The files of the project have the same journals.
    assert_eq!(document(&place, &["--files", "."]), (0, stored.clone()));
    let count = |more: &[&str]| {
        let (code, found) = document(&place, &[&["--store", "runs.db"], more].concat());
        assert_eq!(code, 0);
        found["graphs"].as_array().unwrap().len()
    };
    assert_eq!(count(&[]), 3);
    assert_eq!(count(&["--graph", "test/bad"]), 1);
    assert_eq!(count(&["--status", "completed"]), 2);
    assert_eq!(count(&["--since", "2100-01-01T00:00:00+01:00"]), 0);
    assert_eq!(count(&["--since", "2020-01-01T00:00:00Z"]), 3);
}

#[test]
fn a_table_has_a_row_for_the_steps_and_each_node() {
    let place = with_runs();
    let shown = place.graph(&["stats", "--store", "runs.db", "--graph", "test/bad"]);
    assert_eq!((shown.code, shown.err.as_str()), (0, ""));
    let lines: Vec<&str> = shown.out.lines().collect();
    assert_eq!(lines[0], "test/bad: 1 run (1 error)");
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(lines[1])[..7], ["node", "visits", "failed", "retries", "cached", "waits", "waited"]);
    assert_eq!(words(lines[2])[..2], ["(steps)", "1"]);
    assert_eq!(words(lines[3])[..6], ["one", "1", "0", "0", "0", "0"]);
    assert_eq!(words(lines[4]), ["two", "1", "1", "0", "0", "0"]);
}

#[test]
fn a_run_whose_journal_was_changed_is_left_out() {
    let place = with_runs();
    let database = rusqlite::Connection::open(place.path("runs.db")).unwrap();
    let change =
        "UPDATE records SET body = body || ' ' WHERE seq = 1 AND run = (SELECT number FROM runs WHERE id = 'bad')";
    let changed = database.execute(change, []);
    assert_eq!(changed.unwrap(), 1);
    drop(database);
    let shown = place.graph(&["stats", "--store", "runs.db"]);
    assert_eq!(shown.code, 1);
    assert!(
        shown.err.starts_with("error: run bad is left out: record 1 of its journal is not signed"),
        "{}",
        shown.err
    );
    assert!(!shown.out.contains("test/bad"), "{}", shown.out);
    let (code, stored) = document(&place, &["--store", "runs.db"]);
    assert_eq!((code, &stored["success"], &stored["left_out"][0]["run_id"]), (1, &json!(false), &json!("bad")));
    assert_eq!(stored["graphs"].as_array().unwrap().len(), 2);
    // With another key, no journal holds.
    let other = Place::with_key();
    place.write("other.pem", &other.read(".ai/config/keys/signing/public_key.pem"));
    let (code, none) = document(&place, &["--store", "runs.db", "--public-key", "other.pem"]);
    assert_eq!((code, &none["graphs"], none["left_out"].as_array().unwrap().len()), (1, &json!([]), 3));
    let none = place.graph(&["stats", "--store", "runs.db", "--graph", "test/none"]);
    assert_eq!((none.code, none.out.as_str()), (0, "no runs\n"));
    let absent = place.graph(&["stats", "--store", "none.db"]);
    assert!(absent.code == 3 && absent.err.contains("there is no store at none.db"), "{}", absent.err);
}

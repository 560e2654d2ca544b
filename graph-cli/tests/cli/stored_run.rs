//! Stored runs: their journals are proven, attested, shown, compared, replayed, forked and resumed.

use serde_json::{Value, json};

use crate::place::Place;
use crate::run::commands;

/// A place with a completed run `r` in `runs.db`.
fn with_run() -> Place {
    let place = Place::with_graph(&commands("echo a", "echo b"));
    let ran = place.run(&["--store", "runs.db", "--run-id", "r"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    place
}

#[test]
fn attest_writes_an_attestation_that_verifies_with_its_journal() {
    let place = with_run();
    let attested = place.graph(&["attest", "r", "--store", "runs.db", "-o", "r.intoto.json"]);
    assert_eq!((attested.code, attested.out.as_str()), (0, ""), "{}", attested.err);
    let verify = |more: &[&str]| place.graph(&[&["verify-attestation", "r.intoto.json"], more].concat());
    let verified = verify(&["--store", "runs.db"]);
    assert_eq!(verified.code, 0, "{}", verified.err);
    assert!(verified.out.starts_with("r: completed after 3 steps, as `test/g` ("), "{}", verified.out);
    assert!(verified.out.ends_with("; the journal in the store is that one\n"), "{}", verified.out);
    let statement: Value = serde_json::from_str(&verify(&["--json"]).out).unwrap();
    assert_eq!(statement["predicate"]["tools"], json!(["rye/bash"]));
    // The key of another signer.
    let other = Place::with_key();
    place.write("other.pem", &other.read(".ai/config/keys/signing/public_key.pem"));
    let refused = verify(&["--public-key", "other.pem"]);
    assert!(refused.code == 1 && refused.err.contains("r.intoto.json: it is not signed by"), "{}", refused.err);
    // Another journal of the same name.
    std::fs::remove_file(place.path("runs.db")).unwrap();
    assert_eq!(place.run(&["--store", "runs.db", "--run-id", "r"]).code, 0);
    let another = verify(&["--store", "runs.db"]);
    assert!(another.code == 1 && another.err.contains("it attests to another journal of run `r`"), "{}", another.err);
}

#[test]
fn an_unproven_run_is_not_attested_and_the_old_file_stays() {
    let place = with_run();
    place.write("r.json", "old");
    let database = rusqlite::Connection::open(place.path("runs.db")).unwrap();
    database.execute("UPDATE records SET body = replace(body, '\"a\"', '\"c\"')", []).unwrap();
    let refused = place.graph(&["attest", "r", "--store", "runs.db", "-o", "r.json"]);
    assert_eq!((refused.code, refused.out.as_str()), (1, ""));
    assert!(refused.err.contains("only a proven run is attested"), "{}", refused.err);
    assert_eq!(place.read("r.json"), "old");
}

#[test]
fn a_run_is_shown_step_by_step_and_two_steps_are_compared() {
    let place = with_run();
    let show = |more: &[&str]| place.graph(&[&["show", "r", "--store", "runs.db"], more].concat());
    let shown = show(&[]);
    assert_eq!(shown.code, 0, "{}", shown.err);
    let lines: Vec<&str> = shown.out.lines().collect();
    assert_eq!((lines.len(), lines[0]), (6, "r of `test/g`"));
    assert!(lines[3].contains("one") && lines[3].contains("first") && lines[3].ends_with("two"), "{}", shown.out);
    assert!(lines[5].ends_with("completed"), "{}", shown.out);
    let json: Value = serde_json::from_str(&show(&["--json"]).out).unwrap();
    assert_eq!(json["checkpoints"][2]["visits"][0]["written"], json!(["second"]));
    let state: Value = serde_json::from_str(&show(&["--step", "1", "--json"]).out).unwrap();
    assert_eq!(state["state"], json!({"inputs": {}, "first": "a"}));
    assert!(show(&["--step", "1"]).out.starts_with("r after 1 steps, behind `one`, at "));
    let none = show(&["--step", "9"]);
    assert!(none.code == 3 && none.err.contains("the run has no step 9: its steps are 0 to 3"), "{}", none.err);
    let diff = |arguments: &[&str]| place.graph(&[&["diff"], arguments, &["--store", "runs.db"]].concat());
    let one = diff(&["r", "1", "2"]);
    assert_eq!(
        (one.code, one.out.as_str()),
        (1, "second: nothing → \"b\"\nnext.0: \"two\" → \"done\"\n"),
        "{}",
        one.err
    );
    assert_eq!(diff(&["r@2", "r@2"]).out, "nothing differs\n");
    assert_eq!(diff(&["r@", "r@3"]).code, 0);
    let wrong = diff(&["r", "x"]);
    assert!(wrong.code == 3 && wrong.err.contains("name a run and two steps"), "{}", wrong.err);
}

/// Makes a directory a tree of its own that trusts the same keys as `graphs`: one tree cannot have two graphs with one
/// id.
fn trusts_the_same(place: &Place, directory: &str) {
    for key in std::fs::read_dir(place.path("graphs/keys")).unwrap() {
        let name = key.unwrap().file_name().into_string().unwrap();
        place.write(&format!("{directory}/keys/{name}"), &place.read(&format!("graphs/keys/{name}")));
    }
}

#[test]
fn a_run_is_replayed_against_a_changed_graph() {
    let place = with_run();
    place.sign("old/g.yaml", &commands("echo a", "echo b"));
    trusts_the_same(&place, "old");
    let replay = |more: &[&str]| place.graph(&[&["replay", "r", "--store", "runs.db"], more].concat());
    let same = replay(&["--graph", "graphs/g.yaml"]);
    assert_eq!((same.code, same.out.as_str()), (0, "r would have taken the same path: 3 steps\n"), "{}", same.err);
    place.sign("changed/graphs/g.yaml", &commands("echo a", "echo c"));
    std::fs::create_dir_all(place.path("changed/graphs/keys")).unwrap();
    for key in std::fs::read_dir(place.path("graphs/keys")).unwrap() {
        let key = key.unwrap();
        std::fs::copy(key.path(), place.path("changed/graphs/keys").join(key.file_name())).unwrap();
    }
    let other = replay(&["--graph", "changed/graphs/g.yaml"]);
    assert_eq!(other.code, 1, "{}", other.err);
    let expected = "step 2: `two` calls `rye/bash` with {\"command\":\"echo c\"";
    assert!(other.out.starts_with(expected), "{}", other.out);
    assert!(other.out.ends_with("no answer is recorded to its call of `rye/bash`\n"), "{}", other.out);
    let json: Value = serde_json::from_str(&replay(&["--graph", "changed/graphs/g.yaml", "--json"]).out).unwrap();
    assert_eq!((&json["deviations"][0]["kind"], &json["stopped"]["node"]), (&"calls".into(), &"two".into()));
    // The graph was changed in its place, so the graph of the run is not at hand.
    place.sign("graphs/g.yaml", &commands("echo a", "echo c"));
    let lost = replay(&["--graph", "graphs/g.yaml"]);
    assert!(lost.code == 3 && lost.err.contains("name the file as it was with `--original`"), "{}", lost.err);
    let named = replay(&["--graph", "graphs/g.yaml", "--original", "old/g.yaml"]);
    assert_eq!(named.code, 1, "{}{}", named.out, named.err);
}

#[test]
fn a_run_is_forked_with_changes_and_continued() {
    let place = with_run();
    let fork = |more: &[&str]| place.graph(&[&["fork", "r", "--store", "runs.db"], more].concat());
    let forked = fork(&["--step", "1", "--set", "first=\"x\"", "--run-id", "f"]);
    assert_eq!(forked.code, 0, "{}", forked.err);
    let ended = place.run(&["--store", "runs.db", "--resume", "f"]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    let result: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(result["state"], json!({"inputs": {}, "first": "x", "second": "b"}));
    let proven = place.graph(&["verify-run", "f", "--store", "runs.db"]);
    assert!(proven.out.contains("; it began in the position of run r after record 1"), "{}{}", proven.out, proven.err);
    for (arguments, why) in [
        (&["--step", "1", "--set", "third=1"][..], "the graph has no state key `third`"),
        (&["--step", "1", "--set", "first=1"], "the state key `first` cannot be changed so: expected a string"),
        (&["--set", "first=\"x\""], "it had ended there"),
        (&["--step", "1", "--run-id", "f"], "there is a run `f` already"),
    ] {
        let refused = fork(arguments);
        assert!(refused.code == 3 && refused.err.contains(why), "{arguments:?}: {}", refused.err);
    }
    let wrong = fork(&["--set", "first=x"]);
    assert!(wrong.code == 2 && wrong.err.contains("write a text in quotes"), "{}", wrong.err);
}

/// Returns all rows of the store's tables of runs and records.
fn everything(place: &Place) -> Vec<String> {
    let database = rusqlite::Connection::open(place.path("runs.db")).unwrap();
    let mut all = Vec::new();
    for table in ["runs", "records"] {
        let mut statement = database.prepare(&format!("SELECT * FROM {table} ORDER BY 1")).unwrap();
        let columns = statement.column_count();
        let mut rows = statement.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            let value = |at| row.get::<_, rusqlite::types::Value>(at).unwrap();
            all.push(format!("{table} {:?}", (0..columns).map(value).collect::<Vec<_>>()));
        }
    }
    all
}

#[test]
fn a_single_node_is_executed_and_nothing_is_stored() {
    let place = with_run();
    let before = everything(&place);
    let fresh = place.run(&["--node", "one", "--inject-state", "{\"second\":\"x\"}"]);
    assert!(fresh.code == 0 && fresh.err.contains("done ✓"), "{}", fresh.err);
    let fresh: Value = serde_json::from_str(&fresh.out).unwrap();
    assert_eq!(fresh["state"], json!({"inputs": {}, "first": "a", "second": "x"}));
    assert_eq!((&fresh["executed_node"], &fresh["next_node"]), (&json!("one"), &json!("two")));
    let of_run =
        place.run(&["--node", "two", "--store", "runs.db", "--resume", "r", "--inject-state", "{\"second\":null}"]);
    let of_run: Value = serde_json::from_str(&of_run.out).unwrap();
    assert_eq!((&of_run["graph_run_id"], &of_run["step_count"]), (&json!("r-step"), &json!(4)), "{of_run}");
    assert_eq!(everything(&place), before);
    for (arguments, code, why) in [
        (&["--node", "three"][..], 2, "Target node 'three' not found in graph"),
        (&["--node", "one", "--inject-state", "[]"], 2, "must be a JSON object"),
        (&["--node", "one", "--inject-state", "{\"third\":1}"], 2, "the graph has no state key `third`"),
        (&["--inject-state", "{}"], 2, "--node"),
    ] {
        let refused = place.run(arguments);
        assert!(refused.code == code && refused.err.contains(why), "{arguments:?}: {}", refused.err);
    }
}

#[test]
fn a_run_is_resumed_as_its_inputs_say() {
    let place = Place::with_graph(&commands("echo a", "test -e ready && echo b"));
    assert_eq!(place.run(&["--store", "runs.db", "--run-id", "r"]).code, 1);
    let resume = |json: &str| place.run(&["--store", "runs.db", "--json", json]);
    assert_eq!(resume("{\"resume_run_id\":\"r\"}").code, 1, "it is not ready");
    place.write("ready", "");
    let ended = resume("{\"resume\":true,\"graph_run_id\":\"r\"}");
    assert_eq!(ended.code, 0, "{}", ended.err);
    let result: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!((&result["graph_run_id"], &result["steps"]), (&json!("r"), &json!(3)));
    assert_eq!(
        serde_json::from_str::<Value>(&resume("{\"resume_run_id\":\"r\"}").out).unwrap()["output"],
        result["output"]
    );
    for (json, why) in [
        ("{\"resume_run_id\":\"r\",\"x\":1}", "a resumed run has the inputs that it began with"),
        ("{\"resume_run_id\":7}", "`resume_run_id` must be the id of a run"),
    ] {
        let refused = resume(json);
        assert!(refused.code == 2 && refused.err.contains(why), "{json}: {}", refused.err);
    }
    let no_store = place.run(&["--json", "{\"resume_run_id\":\"r\"}"]);
    assert!(no_store.code == 2 && no_store.err.contains("name the store with `--store FILE`"), "{}", no_store.err);
    // A graph with an input of that name.
    let schema = "config_schema: { type: object, properties: { resume_run_id: { type: string } } }\n";
    place.sign("graphs/g.yaml", &format!("{schema}{}", commands("echo \"$R\"", "true")));
    let unclear = resume("{\"resume_run_id\":\"r\"}");
    assert!(
        unclear.code == 2 && unclear.err.contains("is an input of the graph, and may also name a run"),
        "{}",
        unclear.err
    );
    let input = place.run(&["--input", "resume_run_id=r"]);
    assert_ne!(input.code, 2, "{}", input.err);
}

#[test]
fn resume_refuses_a_changed_graph_and_leaves_the_run_unchanged() {
    let place = Place::with_graph(&commands("echo a", "test -e ready && echo b"));
    assert_eq!(place.run(&["--store", "runs.db", "--run-id", "r"]).code, 1);
    place.write("old/g.yaml", &place.read("graphs/g.yaml"));
    trusts_the_same(&place, "old");
    let changed = commands("echo c", "true").replace("two", "second").replace("1.0.0", "1.1.0");
    place.sign("graphs/g.yaml", &changed);
    let before = everything(&place);
    let refused = place.run(&["--store", "runs.db", "--resume", "r"]);
    assert_eq!(refused.code, 3);
    assert!(refused.err.contains("run `r` is a run of `test/g 1.0.0 ("), "{}", refused.err);
    assert!(
        refused
            .err
            .contains("; of the nodes that it visited or is to visit next, that one has no `two`; `--old-graph FILE`"),
        "{}",
        refused.err
    );
    let told = place.run(&["--store", "runs.db", "--resume", "r", "--old-graph", "old/g.yaml"]);
    assert!(
        told.err.contains("; since then there was added: `second`; removed: `two`; changed: `one`"),
        "{}",
        told.err
    );
    // Other ways in which a resume fails.
    place.write("graphs/g.yaml", &place.read("old/g.yaml"));
    let other = Place::with_key();
    place.write("other.pem", &other.read(".ai/config/keys/signing/private_key.pem"));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(place.path("other.pem"), std::fs::Permissions::from_mode(0o600)).unwrap();
    }
    for more in [&["--key", "other.pem"][..], &["--grant", "rye.execute.tool.other"]] {
        let failed = place.run(&[&["--store", "runs.db", "--resume", "r"], more].concat());
        assert_eq!(failed.code, 3, "{more:?}: {}", failed.err);
    }
    assert_eq!(everything(&place), before, "a resume that fails changes nothing");
    // No failed resume still holds the run.
    place.write("ready", "");
    assert_eq!(place.run(&["--store", "runs.db", "--resume", "r"]).code, 0);
}

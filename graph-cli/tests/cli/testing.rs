//! `graph test`, `graph coverage` and `graph run --mock`, as their users see them.

use std::fs;
use std::path::Path;
use std::process::Command;

use graph_runtime::Map;
use graph_runtime::dynamic::{Library, Toolbox};
use graph_testkit::{KeptJournal, in_virtual_time};
use serde_json::{Value, json};

use crate::place::Place;

/// A place with a part of the repository.
fn copy_of(directories: &[(&str, &str)]) -> Place {
    let place = Place::new();
    for (from, to) in directories {
        copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(from), &place.root().join(to));
    }
    place
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(fs::copy(entry.path(), to).unwrap()),
        }
    }
}

#[test]
fn the_graphs_of_the_repository_pass_their_tests_which_reach_all_of_them() {
    let place = copy_of(&[("graphs", "graphs"), ("examples/service/graphs", "service")]);
    let ran = place.graph(&["test", "graphs", "service"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
    assert!(ran.out.ends_with("ran 28 cases: 28 passed\n"), "{}", ran.out);
    let tested = ["graphs/tool_router.yaml", "graphs/selective_feedback.yaml", "graphs/negotiation.yaml", "service"];
    let ran = place.graph(&[&["coverage", "--fail-under", "100"][..], &tested].concat());
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
    // A graph without tests counts too.
    let ran = place.graph(&["coverage", "graphs", "--fail-under", "100"]);
    assert_eq!(ran.code, 1);
    assert!(ran.out.contains("graphs/payout.yaml: 0 %"), "{}", ran.out);
}

#[test]
fn results_are_json_and_junit_and_cases_are_filtered() {
    let place = copy_of(&[("examples/service/graphs", "graphs")]);
    let text = place.read("graphs/fulfil.test.yaml").replace("[reserve, sold_out]", "[reserve, charge]");
    place.write("graphs/fulfil.test.yaml", &text);
    let ran = place.graph(&["test", "--json", "--junit", "out.xml", "--filter", "not"]);
    assert_eq!((ran.code, ran.err.as_str()), (1, ""));
    let document: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((&document["success"], &document["cases"], &document["failed"]), (&json!(false), &json!(5), &json!(1)));
    let failed = &document["files"][0]["cases"][1];
    assert_eq!(failed["path"], json!(["reserve", "sold_out"]));
    let failure = &failed["failures"][0];
    assert_eq!((&failure["what"], &failure["expected"]), (&json!("expect.path"), &json!(["reserve", "charge"])));
    let xml = place.read("out.xml");
    assert!(xml.starts_with("<?xml ") && xml.contains("tests=\"5\" failures=\"1\" errors=\"0\""), "{xml}");
    assert!(xml.contains("<failure type=\"expect.path\" message=\"line "), "{xml}");
    let ran = place.graph(&["test", "--filter", "nothing is called so"]);
    assert_eq!((ran.code, ran.err.as_str()), (3, "error: no case has a name that contains `nothing is called so`\n"));
}

#[test]
fn without_tests_there_is_nothing_to_run() {
    let place = copy_of(&[("examples/service/graphs", "graphs")]);
    for name in ["fulfil", "invoice"] {
        fs::remove_file(place.root().join(format!("graphs/{name}.test.yaml"))).unwrap();
    }
    for path in ["graphs", "graphs/fulfil.yaml"] {
        let ran = place.graph(&["test", path]);
        assert_eq!((ran.code, ran.out.as_str()), (3, ""));
        assert!(ran.err.contains("fulfil.yaml has no tests: write its cases into "), "{}", ran.err);
    }
    assert_eq!(place.graph(&["test", "nowhere"]).code, 3);
    fs::create_dir(place.root().join("empty")).unwrap();
    assert_eq!(place.graph(&["test", "empty"]).code, 3);
    assert_eq!(place.graph(&["coverage", "--fail-under", "101"]).code, 2);
    place.write("graphs/fulfil.test.yaml", "cases: [{ name: a }]\n");
    let ran = place.graph(&["test"]);
    assert_eq!((ran.code, ran.out.as_str()), (1, "ran 0 cases: 0 passed; 1 file could not be run\n"));
    assert!(ran.err.starts_with("error[G0230]: the case expects nothing, so it could not fail\n"), "{}", ran.err);
    assert!(ran.err.contains(" --> graphs/fulfil.test.yaml:1:17\n"), "{}", ran.err);
}

#[test]
fn a_file_of_tests_is_neither_signed_nor_checked() {
    let place = Place::with_key();
    place.write("graphs/g.yaml", crate::GRAPH);
    place.write("graphs/g.test.yaml", "cases: [{ name: one, expect: { path: [done] } }]\n");
    let ran = place.graph(&["test"]);
    assert_eq!(
        (ran.code, ran.out.as_str()),
        (0, "ok    graphs/g.test.yaml: one\nran 1 case: 1 passed\n"),
        "{}",
        ran.err
    );
    assert!(ran.err.contains("note: tested as they are, without a trusted signature: graphs/g.yaml\n"), "{}", ran.err);
    let ran = place.graph(&["sign", "graphs/g.yaml", "graphs/g.test.yaml"]);
    assert_eq!(ran.code, 0);
    assert!(ran.err.contains("graphs/g.test.yaml is passed over"), "{}", ran.err);
    assert!(place.read("graphs/g.test.yaml").starts_with("cases:"));
    assert_eq!(place.graph(&["check"]).out, "checked 1 graph: no errors\n");
    assert_eq!(place.graph(&["check", "graphs/g.yaml", "graphs/g.test.yaml"]).out, "checked 1 graph: no errors\n");
    for verb in ["check", "sign", "verify"] {
        let ran = place.graph(&[verb, "graphs/g.test.yaml"]);
        assert_eq!(ran.code, 3, "{verb}");
        assert!(ran.err.contains("`graph test graphs/g.test.yaml` runs it"), "{verb}: {}", ran.err);
    }
    assert_eq!(place.graph(&["test"]).err, "");
}

#[test]
fn mocked_tools_answer_from_files_and_mark_the_result() {
    let place = copy_of(&[("graphs", "graphs")]);
    let inputs = ["--quiet", "--json", r#"{"article":"tea","quantity":2,"card":"tok_1"}"#];
    let run = |mocks: &[&str]| place.graph(&[&["run", "graphs/order.yaml"][..], &inputs, mocks].concat());
    place.write("look_up.yaml", "- returns: { price_cents: 450, in_stock: 1 }\n");
    place.write("charge.json", r#"[{"fails": "declined", "with": {"card": "tok_1"}}]"#);
    let mocks = ["--mock", "shop/look_up=look_up.yaml", "--mock", "shop/charge_card=charge.json"];
    let ran = run(&mocks);
    let result: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((ran.code, &result["mocked"]), (0, &json!(["shop/charge_card", "shop/look_up"])), "{}", ran.err);
    assert_eq!(result["state"]["_last_error"]["error"], "declined");
    // Without both, the graph has a tool that nothing performs.
    assert_eq!(run(&mocks[..2]).code, 3);
    let ran = run(&["--mock", "shop/lok_up=look_up.yaml"]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("the graph calls no tool `shop/lok_up`; did you mean `shop/look_up`?"), "{}", ran.err);
    assert_eq!(run(&[&mocks[..], &["--store", "runs.db"]].concat()).code, 2);
    assert!(!place.root().join("runs.db").exists());
    assert_eq!(run(&[&mocks[..], &["--mock", "shop/look_up=look_up.yaml"]].concat()).code, 2);
    place.write("look_up.yaml", "- returns: { price_cents: 450 }\n");
    let ran = run(&mocks);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("error[G0230]: what `shop/look_up` returns does not fit its contract"), "{}", ran.err);
}

#[test]
fn the_schema_of_files_of_tests_needs_no_tree() {
    let place = Place::new();
    let ran = place.graph(&["schema", "--tests"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let schema: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(schema["definitions"]["case"]["required"], json!(["name", "expect"]));
    assert_eq!(place.graph(&["schema", "--tests", "graphs"]).code, 2);
}

/// The tools that read lcov are not everywhere.
#[test]
fn lcov_itself_reads_what_coverage_writes() {
    let place = copy_of(&[("examples/service/graphs", "graphs")]);
    assert_eq!(place.graph(&["coverage", "--lcov", "out.info"]).code, 0);
    let text = place.read("out.info");
    assert_eq!(text.matches("end_of_record").count(), 2, "{text}");
    let Ok(ran) = Command::new("lcov").args(["--summary", "out.info"]).current_dir(place.root()).output() else {
        return;
    };
    let printed = format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success() && printed.contains("100.0%"), "{printed}");
}

#[test]
fn journals_of_tests_in_rust_count_as_those_of_cases_do() {
    let place = copy_of(&[("graphs", "graphs")]);
    let reached = |journals: &[&str]| {
        let ran = place.graph(&[&["coverage", "graphs/tool_router.yaml", "--json"][..], journals].concat());
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
        let document: Value = serde_json::from_str(&ran.out).unwrap();
        (document["reached"].as_u64().unwrap(), document["parts"].as_u64().unwrap())
    };
    let (all, parts) = reached(&[]);
    assert_eq!(all, parts);
    fs::remove_file(place.root().join("graphs/tool_router.test.yaml")).unwrap();
    assert_eq!(reached(&[]), (0, parts));
    // A run as a test in Rust makes it: a number is calculated, and the answer is there.
    let mut decisions = ["calculate", "answer"].into_iter();
    let decisions = std::sync::Mutex::new(move || decisions.next().unwrap());
    let tools = Toolbox::new()
        .with("agents/analyze", move |_, _| {
            let decision = decisions.lock().unwrap()();
            async move { Ok(json!({ "decision": decision, "text": "1" })) }
        })
        .with("agents/search", |_, _| async { Ok(json!({ "text": "nothing" })) })
        .with("agents/calculate", |_, _| async { Ok(json!({ "value": 1 })) });
    let graphs = place.root().join("graphs");
    let graph = Library::open(&graphs, tools).graph(&graphs.join("tool_router.yaml")).unwrap();
    let journals = place.root().join("journals");
    let shown = journals.display().to_string();
    in_virtual_time(async |bed| {
        let run = bed.run(graph, Map::from_iter([("question".to_owned(), json!("why?"))])).await;
        assert_eq!(run.node_names(), ["analyze", "calculate", "analyze", "answer"]);
        KeptJournal::keep(bed.disk(), &journals, "answered").await.unwrap();
    });
    // Three of the four nodes, and the edges between them.
    assert_eq!(reached(&["--journals", &shown]), (6, parts));
    // Runs of other graphs are named, and count for nothing.
    let ran = place.graph(&["coverage", "graphs/negotiation.yaml", "--journals", "journals"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(ran.err, "note: journals has runs of graphs that are not looked at: `agents/tool_router`\n");
    // Journals that cannot be counted are refused.
    let file = KeptJournal::files(&journals).unwrap().pop().unwrap();
    let text = fs::read_to_string(&file).unwrap();
    let name = file.strip_prefix(place.root()).unwrap().display().to_string();
    let last = text.lines().last().unwrap();
    for (changed, why) in [
        (text.replacen("calculate", "calculat3", 1), "is not signed by"),
        (text.replace(last, ""), "is no record"),
        (text.replace(last, "{}"), "is no record"),
        (text.replacen("graph", "grap", 1), "line 1 does not name the run and its graph"),
        (String::new(), "line 1 does not name the run and its graph"),
    ] {
        assert_ne!(changed, text, "{why}");
        fs::write(&file, changed).unwrap();
        let ran = place.graph(&["coverage", "graphs/tool_router.yaml", "--journals", "journals"]);
        assert_eq!(ran.code, 3, "{}", ran.err);
        assert!(ran.err.starts_with(&format!("error: {name}: ")) && ran.err.contains(why), "{}", ran.err);
    }
    fs::write(&file, &text).unwrap();
    place.write(
        "graphs/tool_router.yaml",
        &place.read("graphs/tool_router.yaml").replace("max_steps: 12", "max_steps: 13"),
    );
    let ran = place.graph(&["coverage", "graphs/tool_router.yaml", "--journals", "journals"]);
    assert!(ran.err.contains("remove the journals and run the tests again"), "{}", ran.err);
    fs::remove_file(&file).unwrap();
    for directory in ["journals", "nowhere"] {
        let ran = place.graph(&["coverage", "graphs/tool_router.yaml", "--journals", directory]);
        assert!(ran.code == 3 && ran.err.starts_with(&format!("error: {directory}: ")), "{}", ran.err);
    }
}

/// A pipe gets the text, a link leads to its file, and places that cannot be written are left as they are.
#[cfg(unix)]
#[test]
fn results_are_written_where_the_path_leads() {
    use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
    let place = copy_of(&[("graphs", "graphs")]);
    let root = place.root().to_owned();
    let drawn = |to: &str| place.graph(&["diagram", "graphs/order.yaml", "--output", to]);
    fs::write(root.join("target.txt"), "old").unwrap();
    symlink(root.join("target.txt"), root.join("link")).unwrap();
    assert_eq!(drawn("link").code, 0);
    assert!(root.join("link").is_symlink() && place.read("target.txt").contains("charge_card"));
    // A pipe that somebody reads.
    assert!(Command::new("mkfifo").arg(root.join("pipe")).status().unwrap().success());
    let pipe = root.join("pipe");
    let reader = std::thread::spawn(move || fs::read_to_string(pipe).unwrap());
    assert_eq!(drawn("pipe").code, 0);
    assert!(reader.join().unwrap().contains("charge_card"));
    assert!(fs::symlink_metadata(root.join("pipe")).unwrap().file_type().is_fifo());
    fs::set_permissions(root.join("target.txt"), fs::Permissions::from_mode(0o444)).unwrap();
    symlink(root.join("nothing"), root.join("nowhere")).unwrap();
    for (to, why) in [
        ("target.txt", "it is read-only"),
        ("nowhere", "it is a link that leads nowhere"),
        ("graphs", "it is a directory"),
    ] {
        let ran = drawn(to);
        assert!(ran.code == 3 && ran.err.contains(why), "{to}: {}", ran.err);
    }
    let full = drawn("/dev/full");
    assert!(full.code == 3 && full.err.contains("No space left"), "{}", full.err);
    assert!(fs::symlink_metadata("/dev/full").unwrap().file_type().is_char_device());
}

#[test]
fn a_mocked_run_has_no_options_of_a_store() {
    let place = copy_of(&[("graphs", "graphs")]);
    place.write("mock.yaml", "returns: { price_cents: 1, in_stock: 1 }\n");
    for option in [&["--background"][..], &["--files"], &["--durability", "async"], &["--log", "log"], &["--release"]] {
        let mocked = ["run", "graphs/order.yaml", "--mock", "shop/look_up=mock.yaml"];
        let ran = place.graph(&[&mocked[..], option].concat());
        assert_eq!(ran.code, 2, "{option:?}: {}{}", ran.out, ran.err);
    }
}

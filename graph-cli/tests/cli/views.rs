//! Files and cached results that a project keeps of its runs, and diagrams.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::place::{Place, Ran};
use crate::run::{NESTS, commands};

const TRANSCRIPT: &str = ".ai/state/threads/r/transcript.jsonl";
const ITEM: &str = ".ai/knowledge/graphs/test/g/r.md";
const CACHE: &str = ".ai/state/objects/cache/nodes";

/// A graph whose first command writes a line each time it runs, and whose result may be cached.
fn cached(command: &str) -> String {
    let graph = commands(&format!("echo x >> calls; {command}"), "echo b");
    graph.replace("assign: { first:", "cache_result: true\n      assign: { first:")
}

impl Place {
    fn calls(&self) -> usize {
        fs::read_to_string(self.path("calls")).unwrap_or_default().lines().count()
    }

    fn entries(&self) -> usize {
        fs::read_dir(self.path(CACHE)).map_or(0, Iterator::count)
    }
}

fn json_of(ran: &Ran) -> Value {
    serde_json::from_str(&ran.out).unwrap()
}

#[test]
fn the_files_of_a_run_are_written_rebuilt_and_verified() {
    let place = Place::with_graph(&commands("echo a", "echo b"));
    let ran = place.run(&["--store", "runs.db", "--run-id", "r", "--files"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let (transcript, item) = (place.read(TRANSCRIPT), place.read(ITEM));
    let files = |arguments: &[&str]| place.graph(&[&["files"], arguments, &["--store", "runs.db"]].concat());
    let well = files(&["verify", "r"]);
    assert_eq!(well.code, 0, "{}", well.err);
    assert!(well.out.starts_with("r: its files are what its journal says, and signed by "), "{}", well.out);
    // A changed line is found, and is restored byte for byte.
    place.write(TRANSCRIPT, &transcript.replace("\"one\"", "\"two\""));
    fs::remove_file(place.path(ITEM)).unwrap();
    let bad = files(&["verify", "r", "--json"]);
    let told = json_of(&bad);
    assert_eq!((bad.code, &told["success"], told["differing"].as_array().map(Vec::len)), (1, &json!(false), Some(2)));
    assert!(told["error"].as_str().unwrap().starts_with("there is no "), "{told}");
    assert!(bad.err.contains("transcript.jsonl is not what the journal says"), "{}", bad.err);
    assert!(bad.err.ends_with("help: `graph files rebuild r --store runs.db`\n"), "{}", bad.err);
    assert_eq!(place.read(TRANSCRIPT), transcript.replace("\"one\"", "\"two\""), "a look changes nothing");
    let rebuilt = files(&["rebuild", "r"]);
    assert_eq!((rebuilt.code, rebuilt.out.as_str()), (0, "rebuilt the files of r\n"), "{}", rebuilt.err);
    assert_eq!((place.read(TRANSCRIPT), place.read(ITEM)), (transcript.clone(), item));
    assert_eq!(json_of(&files(&["verify", "r", "--json"]))["transcript_bytes"], json!(transcript.len()));
    // A run that was executed without `--files` gets its files too.
    assert_eq!(place.run(&["--store", "runs.db", "--run-id", "s"]).code, 0);
    assert!(!place.path(".ai/state/threads/s/transcript.jsonl").exists());
    assert_eq!(files(&["verify", "s"]).code, 1);
    assert_eq!(json_of(&files(&["rebuild", "--all", "--json"]))["rebuilt"].as_array().map(Vec::len), Some(2));
    assert_eq!(files(&["verify", "s"]).code, 0);
    let database = rusqlite::Connection::open(place.path("runs.db")).unwrap();
    database.execute("UPDATE records SET body = replace(body, '\"a\"', '\"c\"')", []).unwrap();
    drop(database);
    let refused = files(&["rebuild", "r", "none"]);
    assert_eq!((refused.code, refused.out.as_str()), (1, ""));
    assert!(
        refused.err.contains("the files of run `r` were not rebuilt: the run's journal does not hold"),
        "{}",
        refused.err
    );
    assert!(
        refused.err.contains("the files of run `none` were not rebuilt: there is no run `none`"),
        "{}",
        refused.err
    );
    assert_eq!(place.read(TRANSCRIPT), transcript, "nothing is signed of a journal that was changed");
}

#[test]
fn a_run_is_proven_from_files_without_a_store_or_secret_key() {
    let place = Place::with_graph(NESTS);
    place.sign("graphs/inner.yaml", &commands("echo a", "echo b"));
    assert_eq!(place.run(&["--store", "runs.db", "--run-id", "r", "--files"]).code, 0);
    let stored = place.graph(&["verify-run", "r", "--store", "runs.db"]);
    let attested = place.graph(&["attest", "r", "--store", "runs.db"]);
    let seen = place.graph(&["show", "r", "--store", "runs.db"]);
    assert_eq!(place.graph(&["attest", "r", "--files", "."]).out, attested.out);
    // The files are given to somebody else, with the graphs and the public key.
    let keys = place.path(".ai/config/keys/signing");
    fs::rename(keys.join("public_key.pem"), place.path("runner.pem")).unwrap();
    fs::remove_dir_all(keys).unwrap();
    fs::remove_file(place.path("runs.db")).unwrap();
    let keyless = place.graph(&["verify-run", "r", "--files", "."]);
    assert!(keyless.code == 3 && keyless.err.ends_with("or name the public key to verify with: `--public-key FILE`\n"));
    let by = ["--public-key", "runner.pem"];
    let graph = |arguments: &[&str]| place.graph(&[arguments, &by].concat());
    let proven = graph(&["verify-run", "r", "--files", "."]);
    assert_eq!((proven.code, proven.out, proven.err.as_str()), (0, stored.out, ""));
    assert_eq!(graph(&["show", "r", "--files", "."]).out, seen.out);
    let well = graph(&["files", "verify", "r-1"]);
    assert_eq!((well.code, well.err.as_str()), (0, ""));
    // A result of the nested run that contradicts its receipt.
    let objects = place.path(".ai/state/objects/objects");
    let result = walk(&objects).into_iter().find(|file| {
        let text = fs::read_to_string(file).unwrap();
        text.contains("\"kind\":\"node_result\"") && text.contains("\"stdout\":\"a\"")
    });
    let result = result.unwrap();
    let text = fs::read_to_string(&result).unwrap();
    fs::write(&result, text.replace("\"stdout\":\"a\"", "\"stdout\":\"z\"")).unwrap();
    let shown = result.strip_prefix(place.root()).unwrap().display().to_string();
    for arguments in [&["verify-run", "r", "--files", "."][..], &["files", "verify", "r-1", "--project", "."]] {
        let changed = graph(arguments);
        assert_eq!((changed.code, changed.out.as_str()), (1, ""));
        assert!(changed.err.contains("r-1") && changed.err.contains(&shown), "{}", changed.err);
        assert!(changed.err.contains("is not what ") && changed.err.lines().count() == 1, "{}", changed.err);
    }
    fs::write(&result, text).unwrap();
    // A journal that was changed, was cut short, or is missing.
    let path = ".ai/state/threads/r-1/journal.jsonl";
    let journal = place.read(path);
    for (changed, why) in [
        (journal.replacen("\\\"first\\\":\\\"a\\\"", "\\\"first\\\":\\\"z\\\"", 1), "is not signed by"),
        (journal.lines().take(2).fold(String::new(), |text, line| text + line + "\n"), "it was cut short"),
        (journal.replacen("{\"body\"", "{\"text\"", 1), "line 1: unknown field `text`"),
    ] {
        assert_ne!(changed, journal);
        place.write(path, &changed);
        for arguments in [&["verify-run", "r", "--files", "."][..], &["files", "verify", "r-1"]] {
            let refused = graph(arguments);
            assert_eq!((refused.code, refused.out.as_str()), (1, ""), "{}", refused.err);
            assert!(refused.err.contains("r-1") && refused.err.contains(why), "{}", refused.err);
        }
    }
    fs::remove_file(place.path(path)).unwrap();
    let missed = graph(&["verify-run", "r", "--files", "."]);
    assert!(missed.code == 1 && missed.err.contains("has the result of a run that has no journal"), "{}", missed.err);
    let none = graph(&["verify-run", "r-1", "--files", "."]);
    assert_eq!((none.code, none.out.as_str()), (3, ""));
    assert!(none.err.contains("there is no journal of run `r-1` among the files in ."), "{}", none.err);
    assert_eq!(graph(&["files", "verify", "r-1", "--project", "."]).err, none.err);
    let neither = graph(&["verify-run", "r"]);
    assert!(neither.code == 2 && neither.err.contains("<--store <FILE>|--files <DIR>>"), "{}", neither.err);
}

/// Returns all files below a directory.
fn walk(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}

#[test]
fn files_need_a_project_and_a_run_in_a_store() {
    let place = Place::with_graph(&commands("echo a", "echo b"));
    let no_store = place.run(&["--files"]);
    assert!(no_store.code == 2 && no_store.err.contains("--store"), "{}", no_store.err);
    let named = place.run(&["--store", "runs.db", "--run-id", "r", "--files", "--project", "elsewhere"]);
    assert_eq!((named.code, place.path("runs.db").exists()), (3, false), "{}", named.err);
    assert!(named.err.contains("cannot open elsewhere"), "{}", named.err);
    fs::create_dir(place.path("elsewhere")).unwrap();
    let named = place.run(&["--store", "runs.db", "--run-id", "r", "--files", "--project", "elsewhere"]);
    assert_eq!(named.code, 0, "{}", named.err);
    assert!(place.path("elsewhere").join(ITEM).exists() && !place.path(ITEM).exists());
    let verify = |more: &[&str]| place.graph(&[&["files", "verify", "r", "--store", "runs.db"], more].concat());
    assert_eq!((verify(&[]).code, verify(&["--project", "elsewhere"]).code), (1, 0));
    // Files that cannot be written are reported, and the run still completes.
    fs::write(place.path("elsewhere/.ai/knowledge/graphs/test/h"), "in the way").unwrap();
    place.sign("graphs/h.yaml", &commands("echo a", "echo b"));
    let graph = ["run", "graphs/h.yaml", "--store", "runs.db", "--run-id", "h", "--files", "--project", "elsewhere"];
    let hindered = place.graph(&graph);
    assert_eq!(hindered.code, 0, "{}", hindered.err);
    assert!(hindered.err.contains("warning: the files of run `h` could not be kept: "), "{}", hindered.err);
    assert!(hindered.err.contains("`graph files rebuild h --store runs.db` makes them again"), "{}", hindered.err);
}

#[test]
fn a_result_is_cached_in_the_project_and_used_by_other_runs() {
    let place = Place::with_graph(&cached("echo a"));
    let first = place.run(&["--store", "runs.db", "--run-id", "r", "--files"]);
    assert_eq!((first.code, place.calls(), place.entries()), (0, 1, 1), "{}", first.err);
    let second = place.run(&["--store", "runs.db", "--run-id", "s", "--files"]);
    assert_eq!((second.code, place.calls()), (0, 1), "{}", second.err);
    assert!(second.err.contains("one ✓ (cached) (+first)"), "{}", second.err);
    assert_eq!(json_of(&first)["output"], json_of(&second)["output"]);
    let transcript = place.read(".ai/state/threads/s/transcript.jsonl");
    assert!(transcript.contains("\"cache_hit\":true") && !place.read(TRANSCRIPT).contains("\"cache_hit\":true"));
    for (verb, run) in [("verify-run", "s"), ("verify-run", "r")] {
        let proven = place.graph(&[verb, run, "--store", "runs.db"]);
        assert_eq!(proven.code, 0, "{}", proven.err);
    }
    // Without other options, only a run with a store uses the cache.
    for (more, calls) in [
        (&[][..], 2),
        (&["--cache", "."], 2),
        (&["--cache", ".", "--cache-salt", "2"], 3),
        (&["--store", "runs.db", "--no-cache"], 4),
        (&["--store", "runs.db", "--history"], 4),
    ] {
        let ran = place.run(more);
        assert_eq!((ran.code, place.calls()), (0, calls), "{more:?}: {}", ran.err);
    }
    // A command in another directory is another call, and a changed graph does not use the results of the old one.
    fs::create_dir(place.path("elsewhere")).unwrap();
    let mut away = place.command(&["run", "../graphs/g.yaml", "--cache", "..", "--quiet"]);
    let away = place.ran(away.current_dir(place.path("elsewhere")).output().unwrap());
    assert_eq!((away.code, place.read("elsewhere/calls").as_str()), (0, "x\n"), "{}", away.err);
    place.sign("graphs/g.yaml", &cached("echo c"));
    assert_eq!(place.run(&["--cache", "."]).code, 0);
    assert_eq!(place.calls(), 5);
    let missing = place.run(&["--cache", "nowhere"]);
    assert!(missing.code == 3 && missing.err.contains("cannot open nowhere"), "{}", missing.err);
}

#[test]
fn cache_entries_are_listed_and_removed() {
    let place = Place::with_graph(&cached("echo a"));
    place.sign("graphs/h.yaml", &cached("echo h"));
    let cache = |arguments: &[&str]| place.graph(&[&["cache"], arguments].concat());
    assert_eq!((cache(&["ls"]).code, cache(&["ls"]).out.as_str()), (0, ""));
    for graph in ["graphs/g.yaml", "graphs/h.yaml"] {
        assert_eq!(place.graph(&["run", graph, "--cache", ".", "--quiet"]).code, 0);
    }
    let listed = json_of(&cache(&["ls", "--json"]));
    let mut graphs: Vec<&str> =
        listed["entries"].as_array().unwrap().iter().map(|entry| entry["graph_id"].as_str().unwrap()).collect();
    graphs.sort_unstable();
    assert_eq!((&listed["count"], graphs), (&json!(2), vec!["test/g", "test/h"]));
    let lines = cache(&["ls"]).out;
    assert!(lines.lines().count() == 2 && lines.contains("  one of test/h\n"), "{lines}");
    let dry = cache(&["clear", "--graph", "test/h", "--dry-run"]);
    assert!(dry.out.ends_with("would remove 1 result; 1 stay\n"), "{}", dry.out);
    assert_eq!((cache(&["clear", "--node", "two"]).code, place.entries()), (0, 2));
    let cleared = json_of(&cache(&["clear", "--graph", "test/h", "--json"]));
    assert_eq!((&cleared["count"], place.entries()), (&json!(1), 1));
    // A changed entry is listed as unused, belongs to no graph, and is removed with the rest.
    let left = fs::read_dir(place.path(CACHE)).unwrap().next().unwrap().unwrap().path();
    let text = fs::read_to_string(&left).unwrap();
    fs::write(&left, text.replace("\"stdout\":\"a\"", "\"stdout\":\"z\"")).unwrap();
    let listed = cache(&["ls"]).out;
    assert!(listed.contains("  not used: it was not signed with "), "{listed}");
    let ran = place.run(&["--cache", "."]);
    assert_eq!(json_of(&ran)["output"]["first"], json!("a"));
    assert!(ran.err.contains("is not used, and the call is made: it was not signed with "), "{}", ran.err);
    fs::write(&left, "{}").unwrap();
    assert_eq!((cache(&["clear", "--graph", "test/g"]).code, place.entries()), (0, 1));
    let kept = place.entries();
    assert_eq!((cache(&["clear", "--older-than", "1h"]).code, place.entries()), (0, kept));
    assert_eq!((cache(&["clear"]).code, place.entries()), (0, 0));
    assert_eq!(place.run(&["--cache", "."]).code, 0);
    assert!(place.entries() > 0);
    assert_eq!((cache(&["clear", "--older-than", "1h"]).code, place.entries() > 0), (0, true));
    assert_eq!((cache(&["clear", "--older-than", "0"]).code, place.entries()), (0, 0));
    let mut lost = place.command(&["cache", "ls"]);
    let lost = place.ran(lost.current_dir("/").output().unwrap());
    assert!(
        lost.code == 3 && lost.err.contains("there is no project here") && lost.err.ends_with("with `--cache DIR`\n"),
        "{}",
        lost.err
    );
}

#[test]
fn a_graph_and_the_ways_of_a_run_are_drawn() {
    let place = Place::with_graph(&commands("echo a", "echo b"));
    let drawn = |arguments: &[&str]| place.graph(&[&["diagram"], arguments].concat());
    let text = drawn(&["graphs/g.yaml"]);
    assert_eq!((text.code, text.err.as_str()), (0, ""));
    assert!(
        text.out.starts_with("test/g 1.0.0\n\nstart\n    -> one\n\none (action) [START]\n    rye/bash\n"),
        "{}",
        text.out
    );
    // By its id, in each format, and into a file.
    assert_eq!(drawn(&["test/g"]).out, text.out);
    for (format, first) in
        [("mermaid", "---\ntitle"), ("dot", "digraph"), ("svg", "<svg "), ("json", "{"), ("dag", "{")]
    {
        let on_stdout = drawn(&["test/g", "--format", format]);
        assert!(on_stdout.out.starts_with(first), "{}", on_stdout.out);
        let written = drawn(&["test/g", "--format", format, "-o", "drawn"]);
        assert_eq!((written.code, written.out.as_str()), (0, ""), "{}", written.err);
        assert_eq!(place.read("drawn").trim_end(), on_stdout.out.trim_end());
    }
    assert_eq!(place.run(&["--store", "runs.db", "--run-id", "r"]).code, 0);
    let ways = drawn(&["--run", "r", "--store", "runs.db"]);
    assert!(ways.out.contains("run r: completed") && ways.out.contains("✓ one (action) [START]"), "{}", ways.out);
    assert!(ways.out.contains("visited 1×") && ways.out.contains("=> two   1×"), "{}", ways.out);
    let dag = json_of(&drawn(&["--run", "r", "--store", "runs.db", "--format", "dag"]));
    let fired = dag["graphEdges"].as_array().unwrap().iter().filter(|edge| edge["fired"] == true).count();
    assert!(fired > 0 && dag["terminationReason"] == "completed", "{dag}");
    // A graph that nobody signed, or that has mistakes, is a wrong file.
    let signed = place.read("graphs/g.yaml");
    let (_, unsigned) = signed.split_once('\n').unwrap();
    for (wrong, why) in [(unsigned, "is not signed"), (&signed.replace("echo a", "echo b"), "changed after")] {
        place.write("graphs/g.yaml", wrong);
        let refused = drawn(&["graphs/g.yaml"]);
        assert_eq!((refused.code, refused.out.as_str()), (1, ""));
        assert!(refused.err.contains(why), "{}", refused.err);
    }
    // Nothing to draw.
    let nothing = drawn(&["none"]);
    assert_eq!(nothing.code, 3);
    assert!(
        nothing.err.contains("there is no file `none`, and no graph of that id in the tree `graphs`"),
        "{}",
        nothing.err
    );
    assert_eq!(drawn(&[]).code, 2);
    assert_eq!(drawn(&["--run", "r"]).code, 2);
    assert_eq!(drawn(&["test/g", "--store", "runs.db"]).code, 2);
    assert_eq!(drawn(&["--run", "r", "--store", "runs.db", "--files", "."]).code, 2);
    let nobody = drawn(&["--run", "nobody", "--store", "runs.db"]);
    assert!(nobody.code != 0 && nobody.err.contains("nobody"), "{}", nobody.err);
    let unsigned = place.read("graphs/g.yaml").replace("echo a", "echo c");
    place.write("graphs/g.yaml", &unsigned);
    let refused = drawn(&["graphs/g.yaml", "-o", "kept"]);
    assert!(refused.code != 0 && refused.err.contains("was changed after it was signed"), "{}", refused.err);
    assert!(!place.path("kept").exists());
}

#[test]
fn the_viewer_prints_its_address_and_serves_until_it_is_stopped() {
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};

    let place = Place::with_graph(&commands("echo a", "echo b"));
    assert_eq!(place.run(&["--store", "runs.db", "--run-id", "r", "--files"]).code, 0);
    for (arguments, answers) in [
        (&["--store", "runs.db"][..], false),
        (&["--files", "."][..], false),
        (&["--store", "runs.db", "--answer", "--graph", "graphs/g.yaml"][..], true),
    ] {
        let mut command = place.command(&[&["view"], arguments].concat());
        let mut viewer = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
        let mut url = String::new();
        BufReader::new(viewer.stdout.as_mut().unwrap()).read_line(&mut url).unwrap();
        let (host, token) = url.trim().strip_prefix("http://").unwrap().split_once('/').unwrap();
        let get = |path: &str| {
            let mut stream = std::net::TcpStream::connect(host).unwrap();
            write!(stream, "GET /{token}{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer
        };
        assert!(get("").starts_with("HTTP/1.1 200 "), "{arguments:?}");
        assert!(get("api/run/r/audit").contains("\"proven\":true"), "{}", get("api/run/r/audit"));
        assert!(get("api/run/r/state").contains("\"differences\""), "{}", get("api/run/r/state"));
        assert_eq!(get("api/about").contains("\"answers\":null"), !answers, "{arguments:?}");
        // As Ctrl-C does.
        let stopped = std::process::Command::new("kill").args(["-INT", &viewer.id().to_string()]).status().unwrap();
        assert!(stopped.success());
        assert_eq!(viewer.wait().unwrap().code(), Some(0), "{arguments:?}");
    }
    let none = place.graph(&["view", "--store", "none.db"]);
    assert_eq!((none.code, none.err.as_str()), (3, "error: there is no store at none.db\n"));
    assert_eq!(place.graph(&["view", "--files", "none"]).code, 3);
    for wrong in [
        &["view"][..],
        &["view", "--store", "runs.db", "--files", "."],
        &["view", "--files", ".", "--answer"],
        &["view", "--store", "runs.db", "--key", "k"],
    ] {
        assert_eq!(place.graph(wrong).code, 2, "{wrong:?}");
    }
}

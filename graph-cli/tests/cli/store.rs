//! The runs of a store as their owner sees them: listed, cancelled, followed and removed.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::place::{Place, Ran};
use crate::run::commands;

impl Ran {
    fn json(&self) -> Value {
        assert!(self.out.starts_with('{'), "{}{}", self.out, self.err);
        serde_json::from_str(&self.out).unwrap()
    }
}

impl Place {
    pub(crate) fn stored(&self, verb: &[&str]) -> Ran {
        self.graph(&[verb, &["--store", "runs.db"]].concat())
    }
}

/// Starts a run, and returns when its first node is running.
pub(crate) fn started(place: &Place, id: &str) -> Child {
    reached(place, id, "one")
}

/// Runs `graphs/g.yaml`, and returns when `node` is running.
fn reached(place: &Place, id: &str, node: &str) -> Child {
    let mut command = place.command(&["run", "graphs/g.yaml", "--store", "runs.db", "--run-id", id]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.as_mut().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains(&format!("{node} ..."))));
    child
}

/// Waits up to a minute for a file named `go`.
pub(crate) const WAITS: &str = "for i in $(seq 6000); do test -e go && exit 0; sleep 0.01; done; exit 1";

#[test]
fn a_run_is_listed_cancelled_from_another_process_and_resumed() {
    let place = Place::with_graph(&commands(WAITS, "echo b"));
    let child = started(&place, "r");
    let pid = child.id();
    let list = place.stored(&["runs", "--json"]);
    let shown = list.json();
    assert_eq!((list.code, &shown["count"]), (0, &json!(1)), "{}", list.err);
    let run = &shown["runs"][0];
    assert_eq!(
        (&run["run_id"], &run["status"], &run["alive"], &run["pid"], &run["graph_id"]),
        (&json!("r"), &json!("running"), &json!(true), &json!(pid), &json!("test/g"))
    );
    let list = place.stored(&["runs", "r"]);
    assert!(list.out.contains(&format!("process {pid} on ")), "{}", list.out);
    let held = place.graph(&["run", "graphs/g.yaml", "--store", "runs.db", "--resume", "r"]);
    assert_eq!(held.code, 3);
    assert!(held.err.contains(&format!("run `r` is running elsewhere (process {pid} on ")), "{}", held.err);
    let late = place.stored(&["cancel", "r", "--wait", "0"]);
    assert!(late.code == 3 && late.err.contains("is still running (process "), "{}", late.err);
    place.write("go", "");
    let cancelled = child.wait_with_output().unwrap();
    assert_eq!(cancelled.status.code(), Some(1));
    assert!(!place.path("runs.db-wal").exists(), "all of a store is in one file when nobody has it open");
    let result: Value = serde_json::from_slice(&cancelled.stdout).unwrap();
    assert_eq!((&result["status"], &result["steps"]), (&json!("cancelled"), &json!(1)));
    let again = place.stored(&["cancel", "r", "--json"]);
    assert_eq!(again.code, 3);
    let error = "Run already in terminal state: cancelled (run `r`)";
    assert_eq!(again.json(), json!({"success": false, "run_id": "r", "error": error}));
    assert_eq!(again.err, format!("error: {error}\n"));
    let resumed = place.graph(&["run", "graphs/g.yaml", "--store", "runs.db", "--resume", "r", "--quiet"]);
    assert_eq!((resumed.code, resumed.json()["status"].as_str()), (0, Some("completed")), "{}", resumed.err);
}

#[test]
fn a_run_that_is_cancelled_is_waited_for() {
    let place = Place::with_graph(&commands("sleep 0.1", "echo b"));
    let child = started(&place, "r");
    let cancelled = place.stored(&["cancel", "r", "--wait", "60", "--json"]);
    let result = cancelled.json();
    assert_eq!((cancelled.code, &result["success"], &result["method"]), (0, &json!(true), &json!("store")));
    assert_eq!(
        (&result["run_id"], &result["pid"], &result["status"]),
        (&json!("r"), &json!(child.id()), &json!("cancelled"))
    );
    child.wait_with_output().unwrap();
}

#[test]
fn a_refused_cancel_says_why() {
    let place = Place::with_graph(&commands("echo a", "test -e ready"));
    let none = place.stored(&["cancel", "r"]);
    assert_eq!((none.code, none.err.as_str()), (3, "error: there is no store at runs.db\n"));
    assert!(!place.path("runs.db").exists());
    place.graph(&["run", "graphs/g.yaml", "--store", "runs.db", "--run-id", "r"]);
    let none = place.stored(&["cancel", "s"]);
    assert_eq!((none.code, none.err.as_str()), (3, "error: there is no run `s`\n"));
    let ended = place.stored(&["cancel", "r"]);
    assert_eq!((ended.code, ended.err.as_str()), (3, "error: Run already in terminal state: error (run `r`)\n"));
    let wrong = place.stored(&["runs", "--status", "ended"]);
    assert!(wrong.code == 2 && wrong.err.contains("write `running`, `waiting`, `completed`"), "{}", wrong.err);
}

#[test]
fn runs_that_ended_are_removed_and_the_rest_stays() {
    let place = Place::with_graph(&commands("seq 40000", "test -e ready"));
    for id in ["a", "b", "c"] {
        place.graph(&["run", "graphs/g.yaml", "--store", "runs.db", "--run-id", id, "--quiet"]);
    }
    place.write("ready", "");
    assert_eq!(place.graph(&["run", "graphs/g.yaml", "--store", "runs.db", "--resume", "b", "--quiet"]).code, 0);
    let ids = |more: &[&str]| -> Vec<String> {
        let runs = place.stored(&[&["runs", "--json"], more].concat()).json()["runs"].take();
        runs.as_array().unwrap().iter().map(|run| run["run_id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids(&[]), ["c", "b", "a"], "the newest first");
    assert_eq!(ids(&["--status", "error"]), ["c", "a"]);
    let young = place.stored(&["gc"]);
    assert!(young.out.starts_with("removed 0 runs"), "nothing is 30 days old: {}", young.out);
    let before = fs::read(place.path("runs.db")).unwrap();
    let dry = place.stored(&["gc", "--older-than", "0", "--dry-run"]);
    assert_eq!(dry.out, "would remove a\nwould remove b\nwould remove c\nwould remove 3 runs with those inside\n");
    assert_eq!(fs::read(place.path("runs.db")).unwrap(), before, "a look changes nothing");
    let wrong = place.stored(&["gc", "--status", "running"]);
    assert_eq!(wrong.code, 2, "what is running is never removed");
    let removed = place.stored(&["gc", "--older-than", "0", "--status", "error", "--keep", "1", "--json"]);
    let result = removed.json();
    assert_eq!(
        (removed.code, &result["removed"], &result["shrunk"]),
        (0, &json!(["a"]), &json!(true)),
        "{}",
        removed.err
    );
    assert!(result["bytes"].as_u64() < result["bytes_before"].as_u64(), "{result}");
    assert_eq!(ids(&[]), ["c", "b"]);
    let proven = place.graph(&["verify-run", "b", "--store", "runs.db"]);
    assert_eq!(proven.code, 0, "{}", proven.err);
    let gone = place.graph(&["run", "graphs/g.yaml", "--store", "runs.db", "--resume", "a"]);
    assert!(gone.code == 3 && gone.err.contains("there is no run `a`"), "{}", gone.err);
    assert_eq!(place.graph(&["run", "graphs/g.yaml", "--store", "runs.db", "--run-id", "a", "--quiet"]).code, 0);
}

/// A graph that needs a name, and runs a command.
fn needs_name(second: &str) -> String {
    let schema = "config_schema:
  type: object
  properties: { name: { type: string } }
  required: [name]
config:";
    commands("echo a", second).replace("config:", schema)
}

/// Runs `graphs/g.yaml` in the background.
fn detached(place: &Place, more: &[&str]) -> Ran {
    place.stored(&[&["run", "graphs/g.yaml", "--background"], more].concat())
}

#[test]
fn a_background_run_outlives_the_command_and_can_be_watched() {
    let place = Place::with_graph(&commands(WAITS, "echo b"));
    let begun = detached(&place, &[]);
    let result = begun.json();
    let (id, pid) = (result["graph_run_id"].as_str().unwrap(), result["pid"].as_u64().unwrap());
    let log = format!(".ai/state/threads/{id}/async.log");
    let expected = json!({
        "success": true, "graph_run_id": id, "status": "running", "pid": pid, "graph_id": "test/g",
        "log": format!("HOME/{log}"),
    });
    assert_eq!((begun.code, &result), (0, &expected), "{}", begun.err);
    assert!(begun.err.contains(&format!("note: the run `{id}` is kept in runs.db\n")), "{}", begun.err);
    assert!(id.starts_with("g-"), "{id}");
    let run = place.stored(&["runs", id, "--json"]).json();
    assert_eq!((&run["runs"][0]["alive"], &run["runs"][0]["pid"]), (&json!(true), &json!(pid)));
    if let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) {
        let session = stat.rsplit(')').next().unwrap().split_whitespace().nth(3).unwrap();
        assert_eq!(session, pid.to_string(), "it has a session of its own");
    }
    let mut watch = place.command(&["watch", id, "--store", "runs.db"]);
    let watch = watch.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    place.write("go", "");
    let watched = place.ran(watch.wait_with_output().unwrap());
    assert_eq!((watched.code, watched.err.as_str()), (0, ""));
    let lines: Vec<&str> = watched.out.lines().collect();
    assert!(lines[0].starts_with("[graph:g] step 1 one ✓") && lines[0].ends_with("(+first)"), "{}", watched.out);
    assert_eq!(
        lines[1..],
        ["[graph:g] step 2 two ✓ (+second)", "[graph:g] step 3 done ⏹", "[graph:g] done ✓ completed (3 steps)"]
    );
    let again = place.stored(&["watch", id, "--json"]);
    let end: Value = serde_json::from_str(again.out.lines().last().unwrap()).unwrap();
    let (status, output) = (&end["end"]["status"], &end["end"]["output"]);
    assert_eq!((&end["event"], &end["run"], status), (&json!("ended"), &json!(id), &json!("completed")), "{output}");
    // From each of its cursors, it has the rest.
    let lines: Vec<&str> = again.out.lines().collect();
    assert_eq!(lines.len(), 5, "{}", again.out);
    for (at, line) in lines.iter().enumerate() {
        let event: Value = serde_json::from_str(line).unwrap();
        let rest = place.stored(&["watch", id, "--json", "--from", event["cursor"].as_str().unwrap()]);
        assert_eq!((rest.code, rest.out.lines().collect::<Vec<_>>()), (0, lines[at + 1..].to_vec()));
    }
    let unknown = place.stored(&["watch", id, "--json", "--from", &format!("{id}@99.0")]);
    assert_eq!((unknown.code, unknown.out.as_str()), (3, ""));
    assert!(unknown.err.contains("which has 5 records: begin without a cursor"), "{}", unknown.err);
    let malformed = place.stored(&["watch", id, "--from", "99"]);
    assert_eq!(malformed.code, 2);
    assert!(malformed.err.contains("`99` is no cursor"), "{}", malformed.err);
    // The process may not have exited yet.
    let log = loop {
        let log = place.read(&log);
        if log.ends_with("}\n") {
            break log;
        }
    };
    assert!(log.starts_with("[graph:g] step 1/3 one ...\n"), "{log}");
    let result: Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
    assert_eq!((&result["status"], &result["graph_run_id"]), (&json!("completed"), &json!(id)));
}

#[test]
fn a_background_run_reads_stdin_and_watch_shows_its_failure() {
    let place =
        Place::with_graph(&needs_name("exit 3").replace("config_schema:", "env_requires: [FOO]\nconfig_schema:"));
    place.write("in.json", r#"{"name": "ann"}"#);
    let mut command = place.command(&["run", "graphs/g.yaml", "--store", "runs.db", "--background", "--run-id", "r"]);
    command.env("FOO", "bar");
    let begun = command.stdin(fs::File::open(place.path("in.json")).unwrap()).output().unwrap();
    let begun = place.ran(begun);
    assert_eq!(
        (begun.code, begun.json()["log"].as_str()),
        (0, Some("HOME/.ai/state/threads/r/async.log")),
        "{}",
        begun.err
    );
    let watched = place.stored(&["watch", "r"]);
    assert_eq!(watched.code, 1, "{}{}", watched.out, watched.err);
    assert!(watched.out.ends_with("[graph:g] done ✗ error (exit code 3)\n"), "{}", watched.out);
    assert!(place.read(".ai/state/threads/r/async.log").contains("[graph:g] step 1/3 one"));
}

#[test]
fn a_failed_background_start_says_why_and_leaves_nothing() {
    let place = Place::with_graph(&needs_name("echo b"));
    let wrong = detached(&place, &["--input", "nmae=ann", "--log", "run.log"]);
    assert_eq!((wrong.code, &wrong.json()["success"]), (2, &json!(false)), "{}", wrong.err);
    assert!(wrong.err.contains("the graph has no input `nmae`"), "{}", wrong.err);
    let needs = detached(&place, &["--input", "name=ann", "--grant", "rye.execute.tool.other", "--log", "run.log"]);
    assert_eq!(needs.code, 3);
    assert!(needs.json()["error"].as_str().unwrap().contains("which was not granted"), "{}", needs.out);
    let log = detached(&place, &["--input", "name=ann", "--log", "nowhere/run.log"]);
    assert_eq!(log.code, 3);
    assert!(log.err.contains("cannot write the log nowhere/run.log: "), "{}", log.err);
    assert!(!place.path("run.log").exists());
    assert_eq!(place.stored(&["runs", "--json"]).json()["count"], 0);
    let unkept = place.graph(&["run", "graphs/g.yaml", "--background"]);
    assert!(unkept.code == 2 && unkept.out.contains("required arguments"), "{}", unkept.out);
}

#[test]
fn a_log_that_is_a_link_or_open_to_others_is_not_written_to() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let place = Place::with_graph(&needs_name("echo b"));
    place.write("victim", "precious");
    let threads = place.path(".ai/state/threads");
    for id in ["link", "hard", "open", "away"] {
        fs::create_dir_all(threads.join(id)).unwrap();
    }
    symlink(place.path("victim"), threads.join("link/async.log")).unwrap();
    fs::hard_link(place.path("victim"), threads.join("hard/async.log")).unwrap();
    fs::write(threads.join("open/async.log"), "").unwrap();
    fs::set_permissions(threads.join("open/async.log"), fs::Permissions::from_mode(0o644)).unwrap();
    fs::remove_dir(threads.join("away")).unwrap();
    fs::create_dir_all(place.path("elsewhere")).unwrap();
    symlink(place.path("elsewhere"), threads.join("away")).unwrap();
    for id in ["link", "hard", "open", "away"] {
        let ran = detached(&place, &["--input", "name=ann", "--run-id", id]);
        assert!(ran.code == 3 && ran.err.contains("cannot write the log"), "{id}: {}{}", ran.out, ran.err);
    }
    assert_eq!(place.read("victim"), "precious");
    assert_eq!(fs::read_dir(place.path("elsewhere")).unwrap().count(), 0);
    assert_eq!(place.stored(&["runs", "--json"]).json()["count"], 0);
}

#[test]
fn a_project_that_everybody_can_write_to_is_not_used() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::with_graph(&commands("echo a", "echo b"));
    let run = || place.graph(&["run", "graphs/g.yaml", "--store", "runs.db", "--files", "--quiet"]);
    assert_eq!(run().code, 0);
    for directory in [".ai", ".ai/config/keys"] {
        fs::set_permissions(place.path(directory), fs::Permissions::from_mode(0o777)).unwrap();
        let ran = run();
        assert_eq!(ran.code, 3, "{}", ran.out);
        assert!(ran.err.contains(&format!("everybody can write to HOME/{directory};")), "{}", ran.err);
        fs::set_permissions(place.path(directory), fs::Permissions::from_mode(0o755)).unwrap();
    }
}

#[test]
fn a_watcher_reports_that_the_process_died() {
    let place = Place::with_graph(&commands(WAITS, "echo b"));
    let mut child = started(&place, "r");
    let mut watch = place.command(&["watch", "r", "--store", "runs.db"]);
    let watch = watch.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    place.write("go", "");
    let watched = place.ran(watch.wait_with_output().unwrap());
    assert_eq!(watched.code, 3);
    assert!(
        watched.err.starts_with("error: no process is running the run `r` any more; resume it with "),
        "{}",
        watched.err
    );
    let cancelled = place.stored(&["cancel", "r"]);
    assert_eq!(cancelled.code, 0, "{}", cancelled.err);
    assert_eq!(cancelled.out, "no process is running the run `r`; it ends as cancelled when it is resumed\n");
    let listed = place.stored(&["runs", "r", "--json"]).json()["runs"][0].take();
    assert_eq!((&listed["cancelling"], &listed["alive"]), (&json!(true), &json!(false)));
    assert_eq!((listed["version"].as_str(), listed["digest"].as_str().map(str::len)), (Some("1.0.0"), Some(64)));
    let resume = |more: &[&str]| {
        place.graph(&[&["run", "graphs/g.yaml", "--store", "runs.db", "--resume", "r", "--quiet"], more].concat())
    };
    let stopped = resume(&[]);
    assert_eq!((stopped.code, &stopped.json()["status"]), (1, &json!("cancelled")), "{}", stopped.err);
    let went_on = resume(&[]);
    assert_eq!((went_on.code, &went_on.json()["status"]), (0, &json!("completed")), "{}", went_on.err);
}

#[test]
fn a_cancel_before_a_resume_can_be_ignored() {
    let place = Place::with_graph(&commands(WAITS, "echo b"));
    let mut child = started(&place, "r");
    child.kill().unwrap();
    child.wait().unwrap();
    place.write("go", "");
    assert_eq!(place.stored(&["cancel", "r"]).code, 0);
    let resume = ["run", "graphs/g.yaml", "--store", "runs.db", "--resume", "r", "--quiet", "--ignore-cancel"];
    let went_on = place.graph(&resume);
    assert_eq!((went_on.code, &went_on.json()["status"]), (0, &json!("completed")), "{}", went_on.err);
    let wrong = place.graph(&["run", "graphs/g.yaml", "--store", "runs.db", "--ignore-cancel"]);
    assert_eq!(wrong.code, 2, "only a run that is resumed can have been cancelled before");
}

#[test]
fn watch_shows_cache_hits_and_signals_and_refuses_changed_runs() {
    let place = Place::with_graph(
        &commands("echo a", WAITS).replace("assign: { first:", "cache_result: true\n      assign: { first:"),
    );
    place.write("go", "");
    assert_eq!(place.run(&["--store", "runs.db", "--run-id", "p"]).code, 0);
    fs::remove_file(place.path("go")).unwrap();
    let mut child = reached(&place, "r", "two");
    let signalled = Command::new("kill").args(["-s", "TERM", &child.id().to_string()]).status().unwrap();
    assert!(signalled.success());
    place.write("go", "");
    assert_eq!(child.wait().unwrap().code(), Some(143));
    let watched = place.stored(&["watch", "r"]);
    assert_eq!((watched.code, watched.err.as_str()), (1, ""));
    let lines: Vec<&str> = watched.out.lines().collect();
    assert_eq!(lines[0], "[graph:g] step 1 one ✓ (cached) (+first)");
    assert_eq!(lines[2], "[graph:g] done ✗ cancelled (signal 15)", "{}", watched.out);
    let told = place.stored(&["watch", "r", "--json"]);
    let told: Vec<Value> = told.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let cached = |event: &Value| event["visit"]["cached"] == true;
    assert_eq!((cached(&told[1]), cached(&told[2]), &told[3]["end"]["signal"]), (true, false, &json!(15)), "{told:?}");
    assert!(place.stored(&["show", "r"]).out.contains("one (cached)"));
    // Nothing is shown with another key, or of a journal that was changed.
    fs::create_dir(place.path("other")).unwrap();
    let mut other = place.command(&["keys", "generate"]);
    assert!(other.env("RYE_SIGNING_KEY_DIR", place.path("other")).status().unwrap().success());
    let stranger = place.stored(&["watch", "r", "--public-key", "other/public_key.pem"]);
    assert_eq!((stranger.code, stranger.out.as_str()), (3, ""));
    assert!(stranger.err.contains("run r in runs.db: record ") && stranger.err.contains("is not signed by"));
    let database = rusqlite::Connection::open(place.path("runs.db")).unwrap();
    database.execute("UPDATE records SET body = replace(body, '\"first\":\"a\"', '\"first\":\"z\"')", []).unwrap();
    drop(database);
    let changed = place.stored(&["watch", "r"]);
    assert_eq!((changed.code, changed.out.as_str()), (3, ""));
    assert!(
        changed.err.starts_with("error: run r in runs.db: record 1 of its journal is not signed by "),
        "{}",
        changed.err
    );
}

//! `graph work` as its user sees it: runs that wait are continued when their time has come, by one worker each.

use std::fs;
use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::place::{Place, Ran};
use crate::run::commands;

/// A graph that waits, and then runs a command.
fn waiting(time: &str, command: &str) -> String {
    format!(
        "permissions: [rye.execute.tool.rye.bash]
config:
  start: pause
  nodes:
    pause: {{ type: wait, timeout: {time}, next: act }}
    act:
      action: {{ item_id: rye/bash, params: {{ command: '{command}' }} }}
      assign: {{ acted: \"${{result.stdout}}\" }}
      next: done
    done: {{ type: return }}
"
    )
}

/// Appends the number of its process to `acted`.
const ACT: &str = "echo $$ >> acted";

impl Place {
    /// Starts runs of a graph in the store, which wait.
    fn wait(&self, graph: &str, runs: &[&str]) {
        for run in runs {
            let ran = self.graph(&["run", graph, "--store", "runs.db", "--run-id", run, "--json", "{}", "--quiet"]);
            assert_eq!(ran.code, 4, "{}{}", ran.out, ran.err);
        }
    }

    fn work(&self, arguments: &[&str]) -> Ran {
        self.graph(&[&["work", "--store", "runs.db", "--quiet"], arguments].concat())
    }

    /// Starts `graph work`, whose stdout is a pipe.
    fn working(&self, arguments: &[&str]) -> (Child, Lines<BufReader<ChildStdout>>) {
        let mut command = self.command(&[&["work", "--store", "runs.db"], arguments].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        (child, lines)
    }

    fn status(&self, run: &str) -> Value {
        let listed = self.graph(&["runs", run, "--store", "runs.db", "--json"]);
        serde_json::from_str::<Value>(&listed.out).unwrap()["runs"][0]["status"].take()
    }

    /// How often the command was run.
    fn acted(&self) -> usize {
        fs::read_to_string(self.path("acted")).unwrap_or_default().lines().count()
    }
}

fn kill(child: &Child, signal: &str) {
    assert!(Command::new("kill").args(["-s", signal, &child.id().to_string()]).status().unwrap().success());
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn a_worker_does_the_work_there_is_and_stops() {
    let place = Place::with_graph(&waiting("300ms", ACT));
    place.sign("graphs/later.yaml", &waiting("1h", ACT));
    place.wait("graphs/g.yaml", &["a", "b"]);
    place.wait("graphs/later.yaml", &["c", "d"]);
    std::thread::sleep(Duration::from_millis(350));
    let ran = place.work(&["graphs/g.yaml", "test/later", "--until-idle"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let expected = [
        "a (test/g) continues after 0 steps",
        "a (test/g) ended: completed after 3 steps",
        "b (test/g) continues after 0 steps",
        "b (test/g) ended: completed after 3 steps",
    ];
    assert_eq!(sorted(&ran.out), expected);
    assert_eq!((place.acted(), place.status("c")), (2, json!("waiting")));
    let idle = place.work(&["graphs/g.yaml", "graphs/later.yaml", "--until-idle"]);
    assert_eq!((idle.code, idle.out.as_str(), idle.err.as_str()), (0, "", ""), "there is nothing left to do");
    // One that waits is cancelled at once; without the key, a worker ends it.
    let cancelled = place.graph(&["cancel", "c", "--store", "runs.db"]);
    assert_eq!(
        (cancelled.code, cancelled.out.as_str()),
        (0, "the run `c` has ended: cancelled\n"),
        "{}",
        cancelled.err
    );
    let proven = place.graph(&["verify-run", "c", "--store", "runs.db", "--graph", "graphs/later.yaml"]);
    assert_eq!(proven.code, 0, "{}", proven.err);
    let mut keyless = place.command(&["cancel", "d", "--store", "runs.db"]);
    let keyless = place.ran(keyless.env("HOME", place.path("nowhere")).output().unwrap());
    let expected = "no process is running the run `d`; it ends as cancelled when it is resumed\n";
    assert_eq!((keyless.code, keyless.out.as_str()), (0, expected), "{}", keyless.err);
    let ran = place.work(&["test/later", "--until-idle", "--json"]);
    let lines: Vec<Value> = ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let expected = [
        json!({"event": "begin", "graph_run_id": "d", "graph_id": "test/later", "steps": 0}),
        json!({
            "event": "end", "graph_run_id": "d", "graph_id": "test/later", "status": "cancelled", "steps": 0,
            "error": "cancelled",
        }),
    ];
    assert_eq!((ran.code, lines), (0, expected.to_vec()), "{}", ran.err);
}

#[test]
fn a_worker_continues_runs_whose_process_died_and_those_that_fail() {
    let place = Place::with_graph(&commands("touch begun; test -e go || sleep 600", "exit 7"));
    let arguments = ["run", "graphs/g.yaml", "--store", "runs.db", "--run-id", "r", "--json", "{}"];
    let mut child = place.command(&arguments).stderr(Stdio::null()).spawn().unwrap();
    while !place.path("begun").exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    place.write("go", "");
    let ran = place.work(&["test/g", "--until-idle"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let lines: Vec<&str> = ran.out.lines().collect();
    assert_eq!(lines[0], "r (test/g) continues after 0 steps");
    assert!(lines[1].starts_with("r (test/g) ended: error after 1 step: "), "{lines:?}");
    assert_eq!((lines.len(), place.status("r")), (2, json!("error")));
}

#[test]
fn a_run_that_waits_again_is_continued_again() {
    let twice = waiting("300ms", ACT)
        .replace("next: act }", "next: again }\n    again: { type: wait, timeout: 1ms, next: long }");
    let place = Place::with_graph(
        &twice.replace("next: long }", "next: long }\n    long: { type: wait, timeout: 1h, next: act }"),
    );
    place.wait("graphs/g.yaml", &["a"]);
    let (child, mut lines) = place.working(&["graphs/g.yaml", "--quiet"]);
    let mut line = || lines.next().unwrap().unwrap();
    assert_eq!(line(), "a (test/g) continues after 0 steps");
    // The second time is over soon, and may be over already.
    let mut last = line();
    if last == "a (test/g) waits after 1 step" {
        assert_eq!(line(), "a (test/g) continues after 1 step");
        last = line();
    }
    assert_eq!(last, "a (test/g) waits after 2 steps");
    assert_eq!(place.status("a"), json!("waiting"));
    kill(&child, "TERM");
    let ran = place.ran(child.wait_with_output().unwrap());
    assert_eq!((ran.code, ran.err.as_str(), place.acted()), (0, "", 0));
}

#[test]
fn a_run_is_continued_by_the_version_that_it_began_with() {
    let place = Place::with_graph(&waiting("300ms", "echo old >> acted"));
    place.wait("graphs/g.yaml", &["a"]);
    for name in ["g.yaml", &format!("keys/{}.toml", place.fingerprint())] {
        place.write(&format!("old/graphs/{name}"), &place.read(&format!("graphs/{name}")));
    }
    place.sign("graphs/g.yaml", &waiting("300ms", "echo new >> acted"));
    place.wait("graphs/g.yaml", &["b"]);
    std::thread::sleep(Duration::from_millis(350));
    assert_eq!(place.work(&["graphs/g.yaml", "--until-idle"]).code, 0);
    assert_eq!((place.read("acted").as_str(), place.status("a")), ("new\n", json!("waiting")));
    let ran = place.work(&["graphs/g.yaml", "old/graphs/g.yaml", "--until-idle"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert_eq!((place.read("acted").as_str(), place.status("a")), ("new\nold\n", json!("completed")));
}

#[test]
fn a_worker_works_until_a_signal_stops_it() {
    let place = Place::with_graph(&waiting("300ms", "touch begun; while ! test -e go; do sleep 0.01; done"));
    place.wait("graphs/g.yaml", &["a"]);
    let (child, mut lines) = place.working(&["graphs/g.yaml"]);
    assert_eq!(lines.next().unwrap().unwrap(), "a (test/g) continues after 0 steps");
    while !place.path("begun").exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    // The call is waited for, and the run stops after it.
    kill(&child, "TERM");
    std::thread::sleep(Duration::from_millis(100));
    place.write("go", "");
    assert_eq!(
        lines.next().unwrap().unwrap(),
        "a (test/g) is left after 2 steps: the run was stopped because the runtime was shut down; it can be resumed"
    );
    assert!(lines.next().is_none());
    let ran = place.ran(child.wait_with_output().unwrap());
    let notes = "note: granted, as the graph declares: rye.execute.tool.rye.bash
note: SIGTERM: the runs stop after their steps; once more, and they stop at once\n";
    assert_eq!((ran.code, ran.err.as_str(), place.status("a")), (0, notes, json!("running")));
    // Another worker takes it at once. A second signal does not wait for the call.
    for file in ["go", "begun"] {
        fs::remove_file(place.path(file)).unwrap();
    }
    place.wait("graphs/g.yaml", &["b"]);
    let (child, mut lines) = place.working(&["graphs/g.yaml"]);
    assert_eq!(lines.next().unwrap().unwrap(), "a (test/g) continues after 2 steps");
    assert_eq!(lines.next().unwrap().unwrap(), "a (test/g) ended: completed after 3 steps");
    assert_eq!(lines.next().unwrap().unwrap(), "b (test/g) continues after 0 steps");
    while !place.path("begun").exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let began = Instant::now();
    kill(&child, "INT");
    std::thread::sleep(Duration::from_millis(100));
    kill(&child, "TERM");
    let ran = place.ran(child.wait_with_output().unwrap());
    assert_eq!((ran.code, place.status("b")), (143, json!("running")), "{}", ran.err);
    assert!(began.elapsed() < Duration::from_secs(20));
    // An idle worker ends at once.
    let (child, _lines) = place.working(&["graphs/g.yaml", "--quiet", "--concurrency", "1"]);
    std::thread::sleep(Duration::from_millis(300));
    place.write("go", "");
    kill(&child, "INT");
    let ran = place.ran(child.wait_with_output().unwrap());
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
}

#[test]
fn two_workers_share_the_runs_of_a_store() {
    let place = Place::with_graph(&waiting("300ms", ACT));
    let runs: Vec<String> = (0..12).map(|n| format!("run-{n:02}")).collect();
    let runs: Vec<&str> = runs.iter().map(String::as_str).collect();
    let (first, first_lines) = place.working(&["test/g", "--quiet", "--concurrency", "2", "--json"]);
    let (second, second_lines) = place.working(&["test/g", "--quiet", "--concurrency", "2", "--json"]);
    // The workers end where there is no store yet.
    drop((first_lines, second_lines));
    for child in [first, second] {
        let ran = place.ran(child.wait_with_output().unwrap());
        assert_eq!((ran.code, ran.err.as_str()), (3, "error: there is no store at runs.db\n"));
    }
    place.wait("test/g", &runs);
    let (first, first_lines) = place.working(&["test/g", "--quiet", "--concurrency", "2", "--json"]);
    let (second, second_lines) = place.working(&["test/g", "--quiet", "--concurrency", "2", "--json"]);
    let until = Instant::now() + Duration::from_secs(60);
    while place.acted() < runs.len() || runs.iter().any(|run| place.status(run) != "completed") {
        assert!(Instant::now() < until, "{} of them", place.acted());
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut begun = Vec::new();
    for (child, lines) in [(first, first_lines), (second, second_lines)] {
        kill(&child, "TERM");
        let lines = lines.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
        let lines: Vec<Value> = lines.filter(|line| line["event"] == "begin").collect();
        begun.extend(lines.into_iter().map(|line| line["graph_run_id"].as_str().unwrap().to_owned()));
        let ran = place.ran(child.wait_with_output().unwrap());
        assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    }
    begun.sort_unstable();
    assert_eq!(begun, runs, "each run is continued once");
    assert_eq!(place.acted(), runs.len());
    for run in runs {
        let proven = place.graph(&["verify-run", run, "--store", "runs.db"]);
        assert_eq!(proven.code, 0, "{}", proven.err);
    }
}

#[test]
fn a_wrong_request_for_a_worker_says_why() {
    let place = Place::with_graph(&waiting("300ms", ACT));
    let none = place.work(&["test/g", "--until-idle"]);
    assert_eq!((none.code, none.err.as_str()), (3, "error: there is no store at runs.db\n"));
    assert!(!place.path("runs.db").exists(), "none is made");
    place.wait("test/g", &["a"]);
    place.write("graphs/unsigned.yaml", &place.read("graphs/g.yaml").lines().skip(1).collect::<Vec<_>>().join("\n"));
    for (arguments, code, part) in [
        (&[][..], 2, "required arguments were not provided"),
        (&["test/g", "--concurrency", "0"], 2, "0 is not in 1.."),
        (&["nothing"], 1, "there is no file `nothing`, and no graph of that id in the tree `graphs`"),
        (&["graphs/unsigned.yaml"], 1, "error[G0010]: `graphs/unsigned.yaml` is not signed"),
        (
            &["test/g", "graphs/g.yaml"],
            2,
            "`test/g` and `graphs/g.yaml` are the same graph, `test/g`, with the same meaning",
        ),
        (&["test/g", "--grant", "rye.execute.tool.other"], 3, "`rye.execute.tool.rye.bash`"),
        (&["test/g", "--key", "missing.pem"], 3, "no signing key at missing.pem"),
    ] {
        let ran = place.work(&[arguments, &["--until-idle"]].concat());
        assert_eq!((ran.code, ran.out.as_str()), (code, ""), "{arguments:?}: {}", ran.err);
        assert!(ran.err.contains(part), "{arguments:?}: {}", ran.err);
    }
    fs::remove_file(place.path("graphs/unsigned.yaml")).unwrap();
    let mut thread = place.command(&["work", "test/g", "--store", "runs.db", "--until-idle"]);
    let thread = place.ran(thread.env("RYE_PARENT_THREAD_ID", "t").output().unwrap());
    assert_eq!(thread.code, 3);
    assert!(thread.err.contains("a thread starts no worker"), "{}", thread.err);
    // The journal of a run that another key signed is not continued.
    std::thread::sleep(Duration::from_millis(350));
    assert_eq!(place.graph(&["keys", "generate", "--dir", "other"]).code, 0);
    let ran = place.work(&["test/g", "--until-idle", "--key", "other/private_key.pem"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, ""));
    assert!(ran.err.starts_with("warning: a worker cannot continue a run (run `a`): "), "{}", ran.err);
    assert_eq!((place.status("a"), place.acted()), (json!("waiting"), 0));
    std::thread::sleep(Duration::from_millis(1100));
    let ran = place.work(&["test/g", "--until-idle"]);
    assert_eq!((ran.code, ran.err.as_str(), place.status("a")), (0, "", json!("completed")));
}

/// Returns the ids of the runs that are listed.
fn listed(place: &Place, arguments: &[&str]) -> Vec<String> {
    let listed = place.graph(&[&["runs", "--store", "runs.db", "--json"], arguments].concat());
    let listed: Value = serde_json::from_str(&listed.out).unwrap();
    let runs = listed["runs"].as_array().unwrap().iter();
    let mut runs: Vec<String> = runs.map(|run| run["run_id"].as_str().unwrap().to_owned()).collect();
    runs.sort_unstable();
    runs
}

#[test]
fn runs_continue_after_their_graph_was_changed() {
    let text = waiting("300ms", ACT);
    let place = Place::with_graph(&text);
    let meaning = |file: &str| {
        let checked = place.graph(&["check", file, "--meaning", "--json"]);
        let document: Value = serde_json::from_str(&checked.out).unwrap();
        document["meanings"][0]["meaning"].as_str().unwrap().to_owned()
    };
    let before = meaning("graphs/g.yaml");
    place.wait("graphs/g.yaml", &["a", "b", "c"]);
    // Another text of the same meaning.
    let other = format!("# A comment.\n{}", text.replace("next: act }", "next: [{ to: act }] }"));
    place.sign("graphs/g.yaml", &other);
    assert_eq!(meaning("graphs/g.yaml"), before);
    std::thread::sleep(Duration::from_millis(350));
    let ran = place.work(&["graphs/g.yaml", "--until-idle"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
    assert_eq!((place.acted(), place.status("a")), (3, json!("completed")));
    let proven = place.graph(&["verify-run", "a", "--store", "runs.db"]);
    assert!(proven.out.contains("; proven under another text of the same meaning ("), "{}{}", proven.out, proven.err);

    // Another meaning, with the old version in a tree of its own.
    place.wait("graphs/g.yaml", &["d", "e", "f"]);
    for file in ["keys", "g.yaml"] {
        let (from, to) = (place.path(&format!("graphs/{file}")), place.path(&format!("old/graphs/{file}")));
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        assert!(Command::new("cp").arg("-r").args([from, to]).status().unwrap().success());
    }
    place.sign("graphs/g.yaml", &waiting("200ms", ACT));
    let after = meaning("graphs/g.yaml");
    assert_ne!(after, before);
    place.wait("graphs/g.yaml", &["g"]);
    std::thread::sleep(Duration::from_millis(350));
    let ran = place.work(&["graphs/g.yaml", "--until-idle"]);
    let warning = "warning: a worker leaves runs alone that began under another version of its graph (run `f`)\n";
    assert_eq!((ran.code, ran.err.as_str()), (0, warning));
    assert_eq!((place.acted(), place.status("g"), place.status("d")), (4, json!("completed"), json!("waiting")));
    let unfinished = ["--meaning", &before, "--status", "running,waiting"];
    assert_eq!(listed(&place, &unfinished), ["d", "e", "f"]);
    assert_eq!(listed(&place, &["--meaning", &after]), ["g"]);
    assert_eq!(listed(&place, &["--graph", "test/g"]).len(), 7);

    // Without the old version, a run of it is read, ended and removed.
    let shown = place.graph(&["show", "f", "--store", "runs.db", "--json"]);
    assert!(shown.out.contains("\"status\": \"waiting\""), "{}{}", shown.out, shown.err);
    let cancelled = place.graph(&["cancel", "f", "--without-graph", "--store", "runs.db"]);
    assert_eq!(cancelled.out, "the run `f` has ended: cancelled\n", "{}", cancelled.err);
    let shown = place.graph(&["show", "f", "--store", "runs.db", "--json"]);
    let shown: Value = serde_json::from_str(&shown.out).unwrap();
    assert_eq!((&shown["outcome"]["status"], &shown["meaning"]), (&json!("cancelled"), &json!(before)));
    let refused = place.graph(&["gc", "e", "--store", "runs.db"]);
    assert_eq!(refused.code, 3);
    assert!(refused.err.contains("the run `e` cannot be removed: it is waiting"), "{}", refused.err);
    assert_eq!(place.graph(&["gc", "f", "--store", "runs.db"]).code, 0);
    assert_eq!(listed(&place, &unfinished), ["d", "e"]);

    // With both, each run is continued by its own version.
    let ran = place.work(&["graphs/g.yaml", "old/graphs/g.yaml", "--until-idle"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
    assert_eq!((place.acted(), place.status("d"), place.status("e")), (6, json!("completed"), json!("completed")));
    let same = place.work(&["old/graphs/g.yaml", "old/graphs/../graphs/g.yaml", "--until-idle"]);
    assert_eq!(same.code, 2, "{}", same.err);
}

/// Joins come in the order of the file, and a contract behind a computed id or in place of a built-in one decides what a run does.
#[test]
fn all_that_decides_what_a_run_does_is_in_the_meaning() {
    let head = "permissions: [rye.execute.tool.*]\nconfig_schema: { type: object, properties: { kind: { enum: [daily] } }, required: [kind] }\n";
    let joins = |first: &str, second: &str| {
        format!(
            "{head}config:\n  start: f\n  channels: {{ log: append }}\n  nodes:\n    \
             f: {{ type: gate, next: {{ all: [{{ to: a }}, {{ to: b }}, {{ to: c }}] }} }}\n    \
             a: {{ type: gate, next: offer }}\n    b: {{ type: gate, next: offer }}\n    c: {{ type: gate, next: done }}\n    \
             {first}\n    {second}\n"
        )
    };
    let offer = "offer: { type: gate, waits_for: [a, b], assign: { log: offer }, next: done }";
    let done = "done: { type: return, waits_for: [offer, c], output: { log: \"${state.log}\" } }";
    let place = Place::with_graph(&joins(offer, done));
    let meaning = || {
        let checked = place.graph(&["check", "graphs/g.yaml", "--meaning", "--json"]);
        let document: Value = serde_json::from_str(&checked.out).unwrap();
        document["meanings"][0]["meaning"].as_str().unwrap_or_else(|| unreachable!("{}", checked.out)).to_owned()
    };
    let before = meaning();
    place.sign("graphs/g.yaml", &joins(done, offer));
    assert_ne!(meaning(), before, "the order of joins");
    for (id, file) in [("my/${inputs.kind}", "graphs/tools/my/daily.yaml"), ("rye/bash", "graphs/tools/rye/bash.yaml")]
    {
        let contract = |word: &str| match id {
            "rye/bash" => format!(
                "tool_type: builtin\nconfig_schema:\n  type: object\n  properties:\n    command: {{ type: string, x-sink: shell }}\n    \
                 timeout: {{ type: integer, default: {word} }}\n  required: [command]\n"
            ),
            _ => format!(
                "tool_type: rust\nconfig_schema:\n  type: object\n  properties:\n    command: {{ type: string }}\n    \
                 timeout: {{ type: integer, default: {word} }}\n"
            ),
        };
        place.sign(file, &format!("version: \"1.0.0\"\n{}", contract("5")));
        place.sign("graphs/g.yaml", &format!(
            "{head}config:\n  start: a\n  nodes:\n    a: {{ action: {{ item_id: \"{id}\", params: {{ command: \"true\" }} }}, next: done }}\n    \
             done: {{ type: return }}\n"
        ));
        let before = meaning();
        place.sign(file, &format!("version: \"1.0.0\"\n{}", contract("6")));
        assert_ne!(meaning(), before, "{file}");
        place.sign(file, &format!("version: \"1.0.0\"\n{}", contract("5")));
        assert_eq!(meaning(), before, "signed again, {file} is the same");
    }
}

/// The call of one run kills the worker, each time that it is made. The runs beside it end as if it was not there, and it is given up
/// when ten workers have died.
#[test]
fn a_run_that_kills_its_workers_is_given_up_and_the_others_go_on() {
    let poison = "echo called >> calls; while ! test -s worker; do sleep 0.01; done; kill -9 $(cat worker)";
    let place = Place::with_graph(&waiting("10ms", poison));
    place.sign("graphs/good.yaml", &waiting("10ms", "echo begun >> good; sleep 0.3; echo ended >> acted"));
    let good = ["good-1", "good-2", "good-3", "good-4", "good-5", "good-6"];
    place.wait("graphs/good.yaml", &good[..3]);
    place.wait("graphs/g.yaml", &["poison"]);
    place.wait("graphs/good.yaml", &good[3..]);
    let looks = rusqlite::Connection::open(place.path("runs.db")).unwrap();
    looks.busy_timeout(Duration::from_secs(60)).unwrap();
    let (began, mut deaths, mut delayed) = (Instant::now(), 0, Vec::new());
    while place.status("poison") != json!("error") {
        fs::remove_file(place.path("worker")).ok();
        let (mut child, lines) = place.working(&["graphs/g.yaml", "graphs/good.yaml", "--until-idle"]);
        place.write("worker", &child.id().to_string());
        let ended = loop {
            assert!(began.elapsed() < Duration::from_secs(300), "{deaths} workers have died, and it is not given up");
            // Nobody waits for minutes here.
            let mut waits = looks
                .prepare("UPDATE runs SET later = 0, wake = 0 WHERE later > unixepoch() * 1000 AND holder = '' RETURNING tries")
                .unwrap();
            delayed.extend(waits.query_map([], |row| row.get::<_, i64>(0)).unwrap().map(Result::unwrap));
            if let Some(ended) = child.try_wait().unwrap() {
                break ended;
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        drop(lines);
        deaths += usize::from(!ended.success());
    }
    assert_eq!((deaths, place.read("calls").lines().count()), (10, 10), "from outside");
    assert!((6..=10).all(|tries| delayed.contains(&tries)), "it waits each time: {delayed:?}");
    assert_eq!(place.work(&["graphs/good.yaml", "--until-idle"]).code, 0);
    for run in good {
        assert_eq!(place.status(run), json!("completed"), "{run}");
    }
    let calls = place.read("good").lines().count();
    assert!(place.acted() >= 6 && calls <= 4 * 6, "{} {calls}", place.acted());
}

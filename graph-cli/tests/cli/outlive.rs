//! A command does not outlive the `graph run` that started it, however that ends.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::place::Place;
use crate::run::commands;

/// Waits until `is_so` holds; fails the test if that takes too long.
pub(crate) fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Whether a process exists and is not a zombie.
pub(crate) fn lives(id: &str) -> bool {
    let ps = Command::new("ps").args(["-o", "stat=", "-p", id]).output().unwrap();
    let state = String::from_utf8(ps.stdout).unwrap();
    !state.trim().is_empty() && !state.trim().starts_with('Z')
}

pub(crate) fn signal(child: &Child, signal: &str) {
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-s", signal, &id]).status().unwrap().success());
}

/// Starts a run. A child inherits which signals the tests ignore: `env` gives signals their meaning back.
fn start(place: &Place, arguments: &[&str]) -> Child {
    let graph = place.command(&[&["run", "graphs/g.yaml"], arguments].concat());
    let mut command = Command::new("env");
    if cfg!(target_os = "linux") {
        command.arg("--default-signal=HUP,QUIT");
    }
    command.arg(graph.get_program()).args(graph.get_args()).current_dir(place.root()).env_clear();
    command.envs(graph.get_envs().filter_map(|(name, value)| value.map(|value| (name, value))));
    let mut command = place.command(&[&["run", "graphs/g.yaml"], arguments].concat());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

#[test]
fn a_command_dies_with_a_graph_that_is_killed() {
    let place =
        Place::with_graph(&commands("(sleep 600 & echo $! > inner; wait) & echo $$ > outer; sleep 600", "true"));
    for how in ["KILL", "HUP", "QUIT", "TERM"] {
        let mut child = start(&place, &["--json", "{}"]);
        let read = |name: &str| std::fs::read_to_string(place.path(name)).unwrap_or_default().trim().to_owned();
        wait_until("the command did not begin", || !read("outer").is_empty() && !read("inner").is_empty());
        let (outer, inner) = (read("outer"), read("inner"));
        assert!(lives(&outer) && lives(&inner));
        signal(&child, how);
        if how != "KILL" {
            // After the first signal the step may end, but this command never does.
            std::thread::sleep(Duration::from_millis(100));
            signal(&child, how);
        }
        let status = child.wait().unwrap();
        if how != "KILL" {
            let number = match how {
                "HUP" => 129,
                "QUIT" => 131,
                _ => 143,
            };
            assert_eq!(status.code(), Some(number), "{how}");
        }
        wait_until(how, || !lives(&outer) && !lives(&inner));
        for name in ["outer", "inner"] {
            std::fs::remove_file(place.path(name)).unwrap();
        }
    }
}

#[test]
fn a_resumed_run_never_overlaps_its_earlier_command() {
    // Each copy holds a lock while it lives. A copy that finds the lock taken creates the file `both`.
    let command = "exec 9> lock; flock -n 9 || touch both; echo $$ >> begun; sleep 600";
    let place = Place::with_graph(&commands(command, "true"));
    let rounds = std::env::var("RESUMES").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(3);
    let count = || std::fs::read_to_string(place.path("begun")).unwrap_or_default().lines().count();
    let mut child = start(&place, &["--json", "{}", "--store", "runs.db", "--run-id", "r"]);
    let mut begun = 1;
    wait_until("the command did not begin", || count() >= begun);
    for _ in 0..rounds {
        signal(&child, "KILL");
        let next = start(&place, &["--resume", "r", "--store", "runs.db"]);
        child.wait().unwrap();
        child = next;
        // A resume is refused while the run is still held, and is then tried again.
        let began = Instant::now();
        while count() <= begun {
            assert!(began.elapsed() < Duration::from_secs(60), "the command did not begin again");
            if child.try_wait().unwrap().is_some() {
                child = start(&place, &["--resume", "r", "--store", "runs.db"]);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        begun = count();
        assert!(!place.path("both").exists(), "two copies of the command at once");
    }
    signal(&child, "KILL");
    child.wait().unwrap();
}

//! Results that cannot be written: stdout and stderr that are full or closed.

use std::fs::File;
use std::process::{Command, Stdio};

use crate::place::Place;

const GRAPH: &str = "version: \"1.0.0\"
tool_type: graph
executor_id: rye/core/runtimes/state-graph/runtime
category: test
permissions: [rye.execute.tool.*]
config:
  start: say
  nodes:
    say: { type: return, output: { said: \"yes\" } }
";

/// A place with a store that holds the finished run `r`, and each verb that prints a result, with its arguments.
fn prepared() -> (Place, Vec<Vec<&'static str>>) {
    let place = Place::with_key();
    place.write("graphs/g.yaml", GRAPH);
    place.write("other.yaml", GRAPH);
    assert_eq!(place.graph(&["sign", "graphs/g.yaml"]).code, 0);
    place.write(".ai/state/x", "");
    let run = ["run", "graphs/g.yaml", "--store", "runs.db", "--run-id", "r", "--files", "--quiet"];
    let ran = place.graph(&run);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    let ran = place.graph(&["attest", "r", "--store", "runs.db", "--output", "a.json"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let verbs = [
        "--help",
        "run --help",
        "--version",
        "keys list",
        "keys trust",
        "keys encryption encryption.key",
        "keys generate --dir pair",
        "sign other.yaml",
        "verify graphs/g.yaml",
        "check",
        "check --json",
        "check --format sarif",
        "check --budget",
        "explain",
        "explain G0102",
        "schema graphs",
        "run graphs/g.yaml",
        "run graphs/g.yaml --node say",
        "runs --store runs.db",
        "runs --store runs.db --json",
        "watch r --store runs.db",
        "watch r --store runs.db --json",
        "verify-run r --store runs.db",
        "verify-run r --store runs.db --json",
        "attest r --store runs.db",
        "verify-attestation a.json",
        "show r --store runs.db",
        "show r --store runs.db --step 0",
        "show r --store runs.db --json",
        "diff r 0 1 --store runs.db",
        "replay r --store runs.db --graph graphs/g.yaml",
        "fork r --store runs.db --step 0",
        "files rebuild r --store runs.db",
        "files verify r --store runs.db",
        "cache ls --json",
        "gc --store runs.db --older-than 0 --dry-run",
    ];
    (place, verbs.iter().map(|verb| verb.split(' ').collect()).collect())
}

fn full() -> Stdio {
    File::options().write(true).open("/dev/full").unwrap().into()
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_stdout_ends_every_verb_with_3_and_says_so() {
    let (place, verbs) = prepared();
    for verb in verbs {
        let ran = place.ran(place.command(&verb).stdout(full()).output().unwrap());
        assert_eq!(ran.code, 3, "{verb:?}: {}", ran.err);
        assert!(ran.err.contains("error: cannot write the result: No space left"), "{verb:?}: {}", ran.err);
        assert!(!ran.err.contains("panicked"), "{verb:?}: {}", ran.err);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_stderr_changes_no_exit_code() {
    let (place, mut verbs) = prepared();
    verbs.extend([vec!["explain", "G9999"], vec!["verify", "nowhere"], vec!["run", "nowhere"], vec!["nonsense"]]);
    for verb in verbs.iter().filter(|verb| !matches!(verb[0], "fork" | "keys" | "sign")) {
        let expected = place.graph(verb).code;
        let mut command = place.command(verb);
        let code = command.stderr(full()).stdout(Stdio::null()).status().unwrap().code();
        assert_eq!(code, Some(expected), "{verb:?}");
    }
}

#[test]
fn a_reader_that_closes_its_pipe_ends_no_verb_with_an_error() {
    let (place, verbs) = prepared();
    for verb in verbs.iter().filter(|verb| verb[0] != "run" || verb.contains(&"--help")) {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ran = place.ran(place.command(verb).stdout(writer).output().unwrap());
        assert!(ran.code < 2, "{verb:?} ends with {}: {}", ran.code, ran.err);
        assert!(!ran.err.contains("panicked") && !ran.err.contains("cannot write"), "{verb:?}: {}", ran.err);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_file_beyond_the_limit_is_an_error_and_ends_no_program() {
    let place = Place::with_key();
    place.write("graphs/g.yaml", GRAPH);
    place.graph(&["sign", "graphs/g.yaml"]);
    // The limit is in blocks of 512 bytes, and is less than the database of a store needs.
    let script = "ulimit -f 20; exec \"$0\" run graphs/g.yaml --store runs.db --quiet";
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_graph")]).current_dir(place.root()).env("HOME", place.root());
    let ran = place.ran(command.stdin(Stdio::null()).output().unwrap());
    assert_eq!(ran.code, 3, "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("\"success\":false"), "{}", ran.out);
}

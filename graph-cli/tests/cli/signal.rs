//! `graph signal` as its user sees it: a signal is received once, and changes nothing if it does not fit.

use std::io::Write;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::place::Place;

/// A graph that waits for money, and has a time.
const ORDER: &str = "permissions: [rye.execute.tool.rye.bash]
config:
  start: money
  signals:
    paid: { type: object, properties: { cents: { type: integer, minimum: 1 } }, required: [cents] }
    withdrawn: { type: string }
  nodes:
    money:
      type: wait
      signals: [paid, withdrawn]
      timeout: 1h
      on_timeout: late
      assign: { got: \"${result}\" }
      next: done
    late: { type: return }
    done: { type: return, output: { got: \"${state.got}\" } }
";

fn waiting() -> Place {
    let place = Place::with_graph(ORDER);
    let ran = place.graph(&["run", "graphs/g.yaml", "--store", "runs.db", "--run-id", "r", "--json", "{}", "--quiet"]);
    let result: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((ran.code, &result["open"][0]["signals"]), (4, &json!(["paid", "withdrawn"])), "{}", ran.err);
    place
}

#[test]
fn a_signal_is_received_once_and_ends_the_wait() {
    let place = waiting();
    let paid = ["signal", "r", "paid", r#"{"cents": 5}"#, "--store", "runs.db", "--id", "payment-1"];
    let sent = place.graph(&paid);
    let expected = "run `r` has the signal `paid`, with the id `payment-1`\n";
    assert_eq!((sent.code, sent.out.as_str()), (0, expected), "{}", sent.err);
    let again = place.graph(&paid);
    let expected = "run `r` had the signal `paid` with the id `payment-1` before, and has not taken it\n";
    assert_eq!((again.code, again.out.as_str()), (0, expected), "{}", again.err);
    let worked = place.graph(&["work", "graphs/g.yaml", "--store", "runs.db", "--until-idle", "--quiet"]);
    assert!(worked.code == 0 && worked.out.contains("r (test/g) ended: completed after 2 steps"), "{}", worked.out);
    let again = place.graph(&[&paid[..], &["--json"]].concat());
    let again: Value = serde_json::from_str(&again.out).unwrap();
    let expected = json!({"success": true, "run_id": "r", "signal": "paid", "id": "payment-1", "order": 1, "already": true, "taken": true});
    assert_eq!(again, expected);
    let proven = place.stored(&["verify-run", "r"]);
    assert_eq!(proven.code, 0, "{}", proven.err);
    let late = place.stored(&["signal", "r", "withdrawn", "\"no\""]);
    let expected = "error: Run already in terminal state: completed (run `r`)\n";
    assert_eq!((late.code, late.err.as_str()), (3, expected));
}

#[test]
fn a_signal_that_does_not_fit_is_refused() {
    let place = waiting();
    let refused = |arguments: &[&str], expected: &str| {
        let refused = place.stored(&[&["signal"], arguments].concat());
        assert_eq!((refused.code, refused.err.as_str()), (3, format!("error: {expected}\n").as_str()));
        assert_eq!(refused.out, "");
    };
    refused(&["r", "payed", "{}"], "the graph `test/g 1.0.0` has no signal `payed`: it has `paid`, `withdrawn`");
    refused(
        &["r", "paid", r#"{"cents": "5"}"#],
        "the signal `paid` does not fit the graph `test/g`: expected an integer of 64 bits, found a string at `cents`",
    );
    refused(
        &["r", "paid", r#"{"cents": 0}"#],
        "the signal `paid` does not fit the graph `test/g`: expected what `minimum: 1` allows, found an integer at `cents`",
    );
    refused(
        &["r", "withdrawn", "no"],
        "the value is not JSON: expected ident at line 1 column 2; write a text in quotes: '\"text\"'",
    );
    refused(&["s", "paid", "{}"], "there is no run `s`");
    refused(
        &["r", "withdrawn", "\"no\"", "--id", "a\u{7}"],
        "\"a\\u{7}\" cannot be the id of a signal: it is a text of 1 to 200 visible characters, which its sender gives no other, \
         and not the id of an answer, as `3#1`",
    );
    // Another version of the graph.
    place.sign("graphs/g.yaml", &ORDER.replace("1h", "2h"));
    let changed = place.stored(&["signal", "r", "withdrawn", "\"no\""]);
    assert!(changed.code == 3 && changed.err.contains("run `r` is a run of `test/g 1.0.0 ("), "{}", changed.err);
    let shown: Value = serde_json::from_str(&place.stored(&["runs", "r", "--json"]).out).unwrap();
    assert_eq!((&shown["runs"][0]["status"], &shown["runs"][0]["records"]), (&json!("waiting"), &json!(2)));
}

#[test]
fn a_value_comes_from_standard_input() {
    let place = waiting();
    let mut command = place.command(&["signal", "r", "withdrawn", "-", "--store", "runs.db"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"\"changed my mind\"").unwrap();
    let sent = place.ran(child.wait_with_output().unwrap());
    assert!(
        sent.code == 0 && sent.out.starts_with("run `r` has the signal `withdrawn`, with the id `cli-"),
        "{}",
        sent.err
    );
    let worked = place.graph(&["work", "graphs/g.yaml", "--store", "runs.db", "--until-idle", "--quiet"]);
    assert_eq!(worked.code, 0, "{}", worked.err);
    let shown = place.graph(&["run", "graphs/g.yaml", "--store", "runs.db", "--resume", "r", "--quiet"]);
    assert!(shown.out.contains("changed my mind"), "{}{}", shown.out, shown.err);
}

/// A run that waits says nothing for a long time. Its watch notices that nobody reads, and that the store is gone.
#[cfg(unix)]
#[test]
fn a_watch_of_a_waiting_run_ends_with_its_reader_and_with_its_store() {
    use std::io::{BufRead, BufReader};
    let watch = |place: &Place| {
        let mut command = place.command(&["watch", "r", "--store", "runs.db"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        assert!(line.contains("money"), "{line}");
        (child, out)
    };
    let place = waiting();
    let (child, out) = watch(&place);
    drop(out);
    let ended = child.wait_with_output().unwrap();
    assert_eq!((ended.status.code(), ended.stderr.as_slice()), (Some(0), &b""[..]));
    type Change = fn(&Place);
    let changes: [(Change, &str); 2] = [
        (|place| std::fs::remove_file(place.path("runs.db")).unwrap(), "is gone"),
        (
            |place| {
                std::fs::write(place.path("other.db"), "").unwrap();
                std::fs::rename(place.path("other.db"), place.path("runs.db")).unwrap();
            },
            "was replaced by another file",
        ),
    ];
    for (change, expected) in changes {
        let place = waiting();
        let (child, _out) = watch(&place);
        change(&place);
        let ended = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.code() == Some(3) && said.contains(expected), "{said}");
    }
}

//! `graph answer` and `graph inbox` as their users see them.

use serde_json::{Value, json};

use crate::place::{Place, Ran};

/// A graph that asks two people, and has a time.
const REFUND: &str = "permissions: [rye.execute.tool.rye.bash]
config_schema: { type: object, properties: { cents: { type: integer } }, required: [cents] }
config:
  start: approve
  nodes:
    approve:
      type: interrupt
      payload: { cents: \"${inputs.cents}\" }
      result_schema: { type: object, properties: { decision: { enum: [approve, refuse] } }, required: [decision] }
      answered_by: { role: refunds, count: 2 }
      timeout: 1h
      on_timeout: late
      assign: { decision: \"${result.decision}\" }
      next: done
    late: { type: return }
    done: { type: return, output: { decision: \"${state.decision}\" } }
";

const APPROVE: &str = r#"{"decision": "approve"}"#;

/// A place with a run that asks, and the keys of Ann, Bo and Cy, of whom two may refund.
fn asking() -> Place {
    let place = Place::with_graph(REFUND);
    for (who, owner) in [("ann", "Ann"), ("bo", "Bo"), ("cy", "Cy")] {
        let made = place.graph(&["keys", "generate", "--dir", who]);
        assert_eq!(made.code, 0, "{}", made.err);
        let public = format!("{who}/public_key.pem");
        let role: &[&str] = if who == "cy" { &[] } else { &["--role", "refunds"] };
        let trust = ["keys", "trust", &public, "--owner", owner];
        let trusted = place.graph(&[&trust[..], role].concat());
        assert_eq!(trusted.code, 0, "{}", trusted.err);
    }
    let run = ["run", "graphs/g.yaml", "--store", "runs.db", "--run-id", "r", "--json", r#"{"cents": 5}"#, "--quiet"];
    let ran = place.graph(&run);
    let result: Value = serde_json::from_str(&ran.out).unwrap();
    let open = &result["open"][0];
    assert_eq!((ran.code, &open["wait"], &open["role"]), (4, &json!("1#1"), &json!("refunds")), "{}", ran.err);
    assert_eq!((&open["count"], &open["payload"]), (&json!(2), &json!({"cents": 5})));
    assert_eq!(open.get("signals"), None);
    place
}

fn answer(place: &Place, arguments: &[&str]) -> Ran {
    place.stored(&[&["answer", "r"], arguments].concat())
}

fn result(ran: &Ran) -> Value {
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    serde_json::from_str(&ran.out).unwrap()
}

#[test]
fn two_people_answer_a_run() {
    let place = asking();
    let inbox = result(&place.stored(&["inbox", "--json", "--role", "refunds"]));
    assert_eq!((&inbox["count"], &inbox["open"][0]["payload"]), (&json!(1), &json!({"cents": 5})));
    let listed = place.stored(&["inbox"]);
    assert!(listed.out.contains(r#"r    1#1   approve  test/g  refunds  2     "#), "{}", listed.out);
    assert!(listed.out.trim_end().ends_with(r#"{"cents":5}"#), "{}", listed.out);
    for none in [["--role", "boss"], ["--graph", "test/h"], ["--due-before", "2020-01-01T00:00:00Z"]] {
        let inbox = result(&place.stored(&[&["inbox", "--json"][..], &none].concat()));
        assert_eq!(inbox["count"], 0, "{none:?}");
    }
    let shown = result(&answer(&place, &[]));
    assert_eq!((&shown["open"][0]["node"], &shown["open"][0]["payload"]), (&json!("approve"), &json!({"cents": 5})));
    let ann = ["--json", APPROVE, "--key", "ann/private_key.pem"];
    let proposed = json!({"success": true, "run_id": "r", "result": "proposed", "have": 1, "need": 2});
    assert_eq!(result(&answer(&place, &ann)), proposed);
    assert_eq!(result(&answer(&place, &ann)), proposed, "sent again, it changes nothing");
    let bo = ["1#1", "--json", APPROVE, "--key", "bo/private_key.pem"];
    let accepted = json!({"success": true, "run_id": "r", "result": "accepted"});
    assert_eq!(result(&answer(&place, &bo)), accepted);
    assert_eq!(result(&answer(&place, &bo))["result"], "already");
    let other = answer(&place, &["--json", r#"{"decision": "refuse"}"#, "--key", "ann/private_key.pem"]);
    assert_eq!((other.code, other.err.as_str()), (1, "error: `1#1` was answered before, and otherwise\n"));
    let worked = place.graph(&["work", "graphs/g.yaml", "--store", "runs.db", "--until-idle", "--quiet"]);
    assert!(worked.code == 0 && worked.out.contains("r (test/g) ended: completed"), "{}{}", worked.out, worked.err);
    assert_eq!(result(&place.stored(&["inbox", "--json"]))["count"], 0);
    let proven = place.stored(&["verify-run", "r"]);
    assert_eq!(proven.code, 0, "{}", proven.err);
    assert!(proven.out.contains("`approve` (1#1) was answered on 20"), "{}", proven.out);
    let proven = result(&place.stored(&["verify-run", "r", "--json"]));
    let by = &proven["runs"][0]["approvals"][0]["by"];
    let mut owners: Vec<&str> = by.as_array().unwrap().iter().map(|by| by["owner"].as_str().unwrap()).collect();
    owners.sort_unstable();
    assert_eq!((owners, &by[0]["role"]), (vec!["Ann", "Bo"], &json!("refunds")), "{proven}");
    let late = answer(&place, &["--json", APPROVE, "--key", "ann/private_key.pem"]);
    assert_eq!((late.code, late.err.as_str()), (3, "error: run `r` asks nothing\n"));
}

#[test]
fn an_envelope_goes_from_one_to_the_other() {
    let place = asking();
    let signed = answer(&place, &["--json", APPROVE, "--key", "ann/private_key.pem", "--print"]);
    assert_eq!(signed.code, 0, "{}", signed.err);
    place.write("answer.json", &signed.out);
    let both = answer(&place, &["--envelope", "answer.json", "--key", "bo/private_key.pem", "--print"]);
    assert_eq!(both.code, 0, "{}", both.err);
    place.write("both.json", &both.out);
    assert_eq!(result(&answer(&place, &["--envelope", "answer.json"]))["result"], "proposed");
    assert_eq!(result(&answer(&place, &["--envelope", "both.json"]))["result"], "accepted");
    assert_eq!(result(&answer(&place, &["--envelope", "answer.json"]))["result"], "already");
}

#[test]
fn an_answer_of_somebody_else_is_refused() {
    let place = asking();
    let refused = |arguments: &[&str], code: i32, expected: &str| {
        let refused = answer(&place, arguments);
        assert!(refused.code == code && refused.err.contains(expected), "{} {}", refused.code, refused.err);
        assert_eq!(refused.out, "");
    };
    let no_role = "does not give it the role `refunds`, signed by another trusted key";
    refused(&["--json", APPROVE, "--key", "cy/private_key.pem"], 1, no_role);
    // Your own key signed its own file.
    refused(&["--json", APPROVE], 1, no_role);
    place.graph(&["keys", "generate", "--dir", "eve"]);
    refused(&["--json", APPROVE, "--key", "eve/private_key.pem"], 1, "not trusted");
    let ann = ["--key", "ann/private_key.pem"];
    let with = |arguments: &[&'static str]| [arguments, &ann].concat();
    refused(&with(&["--json", r#"{"decision": "burn"}"#]), 1, "the answer to `approve` does not fit");
    refused(&with(&["--json", "approve"]), 3, "the value is not JSON");
    refused(&with(&["2#1", "--json", APPROVE]), 3, "run `r` asks `1#1`");
    refused(&with(&["--json", APPROVE, "--role-root", "0123456789abcdef"]), 1, no_role);
    refused(&with(&["--json", APPROVE, "--keys", "nowhere"]), 1, "not trusted");
    refused(&with(&["--json", APPROVE, "--journal-key", "bo/private_key.pem"]), 3, "run `r`");
    place.write("broken.json", "{}");
    refused(&["--envelope", "broken.json"], 3, "broken.json: it is not a DSSE envelope");
    let revoked = place.graph(&["keys", "list"]);
    let ann_key = revoked.out.lines().find(|line| line.contains("Ann")).unwrap()[..16].to_owned();
    assert_eq!(place.graph(&["keys", "revoke", &ann_key]).code, 0);
    refused(&with(&["--json", APPROVE]), 1, "revoked");
    assert_eq!(result(&answer(&place, &["--json", APPROVE, "--key", "bo/private_key.pem"]))["result"], "proposed");
}

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
    let inbox = result(&place.stored(&["inbox", "--json"]));
    let proposed = &inbox["open"][0]["proposed"];
    let said: Value = serde_json::from_str(APPROVE).unwrap();
    assert_eq!((proposed.as_array().map(Vec::len), &proposed[0]["answer"]), (Some(1), &said), "{inbox}");
    assert_eq!(proposed[0]["keys"].as_array().map(Vec::len), Some(1), "{inbox}");
    assert!(place.stored(&["inbox"]).out.contains("1 of 2"));
    let bo = ["1#1", "--json", APPROVE, "--key", "bo/private_key.pem"];
    let accepted = json!({"success": true, "run_id": "r", "result": "accepted"});
    assert_eq!(result(&answer(&place, &bo)), accepted);
    assert_eq!(result(&answer(&place, &bo))["result"], "already");
    let other = answer(&place, &["--json", r#"{"decision": "refuse"}"#, "--key", "ann/private_key.pem"]);
    let expected = "error: `1#1` was answered before, and otherwise\n";
    assert!(other.code == 1 && other.err.ends_with(expected), "{}", other.err);
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
    assert_eq!((late.code, late.err.as_str()), (1, "error: run `r` asks nothing\n"));
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
fn an_envelope_is_signed_without_the_store_by_who_sees_what_the_run_shows() {
    let place = asking();
    let signed = answer(&place, &["--json", APPROVE, "--key", "ann/private_key.pem", "--print"]);
    // Bo has the envelope, what the run shows, and a key; neither the store, nor the graph, nor the keys of the service.
    let away = Place::new();
    away.write("answer.json", &signed.out);
    away.write("payload.json", "{ \"cents\": 5 }\n");
    away.write("other.json", "{\"cents\": 50}");
    away.write("bo.pem", &place.read("bo/private_key.pem"));
    let mut mode = std::fs::metadata(away.path("bo.pem")).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut mode, 0o600);
    std::fs::set_permissions(away.path("bo.pem"), mode).unwrap();
    let sign = |run: &str, arguments: &[&str]| {
        away.graph(&[&["answer", run, "--envelope", "answer.json", "--print", "--key", "bo.pem"], arguments].concat())
    };
    let both = sign("r", &["--payload", "payload.json"]);
    let note =
        "note: you answer `approve` (1#1) of run `r`, which shows {\"cents\":5}, with {\"decision\":\"approve\"}\n";
    assert_eq!((both.code, both.err.as_str()), (0, note));
    place.write("both.json", &both.out);
    assert_eq!(result(&answer(&place, &["--envelope", "both.json"]))["result"], "accepted");
    for (run, arguments, code, message) in [
        ("r", &["--payload", "other.json"][..], 3, "a question that shows something else than {\"cents\":50}"),
        ("r", &["--payload", "bo.pem"], 3, "bo.pem: "),
        ("r", &["2#1", "--payload", "payload.json"], 3, "the envelope answers `1#1`, and not `2#1`"),
        ("s", &["--payload", "payload.json"], 1, "its run is `r`, and not `s`"),
        ("r", &[], 2, "--store"),
    ] {
        let refused = sign(run, arguments);
        assert_eq!((refused.code, refused.out.as_str()), (code, ""), "{arguments:?}: {}", refused.err);
        assert!(refused.err.contains(message) && !refused.err.contains("PRIVATE"), "{arguments:?}: {}", refused.err);
    }
}

#[test]
fn an_answer_of_somebody_else_is_refused() {
    let place = asking();
    let refused = |arguments: &[&str], code: i32, expected: &str| {
        let refused = answer(&place, arguments);
        assert!(refused.code == code && refused.err.contains(expected), "{} {}", refused.code, refused.err);
        assert_eq!(refused.out, "");
    };
    let no_role = "may not answer: its file does not give it the role `refunds`";
    refused(&["--json", APPROVE, "--key", "cy/private_key.pem"], 1, no_role);
    // Your own key signed its own file.
    refused(&["--json", APPROVE], 1, no_role);
    place.graph(&["keys", "generate", "--dir", "eve"]);
    refused(&["--json", APPROVE, "--key", "eve/private_key.pem"], 1, "not trusted");
    let ann = ["--key", "ann/private_key.pem"];
    let with = |arguments: &[&'static str]| [arguments, &ann].concat();
    refused(&with(&["--json", r#"{"decision": "burn"}"#]), 1, "the answer to `approve` does not fit");
    refused(&with(&["--json", "approve"]), 3, "the value is not JSON");
    refused(&with(&["2#1", "--json", APPROVE]), 1, "run `r` does not wait for an answer to `2#1`: it asks `1#1`");
    let rootless = "the role `refunds` in its file does not count";
    refused(&with(&["--json", APPROVE, "--role-root", "0123456789abcdef"]), 1, rootless);
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

/// Nobody signs with `graph answer` what is not an answer that fits to a question of the run.
#[test]
fn an_envelope_is_signed_only_if_the_run_asks_for_it() {
    let place = asking();
    let run = ["run", "graphs/g.yaml", "--store", "runs.db", "--run-id", "s", "--json", r#"{"cents": 6}"#, "--quiet"];
    assert_eq!(place.graph(&run).code, 4);
    let of_s = place.stored(&["answer", "s", "--json", APPROVE, "--key", "bo/private_key.pem", "--print"]);
    assert!(
        of_s.err.contains(r#"note: you answer `approve` (1#1) of run `s`, which shows {"cents":6}, with {"decision""#)
    );
    place.write("of_s.json", &of_s.out);
    let of_r = answer(&place, &["--json", APPROVE, "--key", "bo/private_key.pem", "--print"]);
    place.write("of_r.json", &of_r.out);
    let attested = place.stored(&["attest", "r"]);
    assert_eq!(attested.code, 0, "{}", attested.err);
    place.write("attested.json", &attested.out);
    let ann = "ann/private_key.pem";
    for (arguments, code, expected) in [
        (vec!["--envelope", "of_s.json", "--key", ann, "--print"], 1, "its run is `s`, and not `r`"),
        (vec!["--envelope", "of_s.json"], 1, "its run is `s`, and not `r`"),
        (vec!["--envelope", "attested.json", "--key", ann, "--print"], 1, "its type is `application/vnd.in-toto+json`"),
        (vec!["2#1", "--envelope", "of_r.json"], 3, "the envelope answers `1#1`, and not `2#1`"),
        (vec!["--json", r#"{"decision": "appr"}"#, "--key", ann, "--print"], 1, "does not fit"),
        (vec!["--print"], 3, "name the answer to print"),
    ] {
        let refused = answer(&place, &arguments);
        assert!(
            refused.code == code && refused.err.contains(expected),
            "{arguments:?}: {} {}",
            refused.code,
            refused.err
        );
        assert_eq!(refused.out, "", "{arguments:?}");
    }
    // Nothing of an envelope is a line of its own.
    place.write("lines.json", r#"{"payload":"e30=","payloadType":"a\nerror: fake\u202e","signatures":[]}"#);
    let lines = answer(&place, &["--envelope", "lines.json"]);
    assert!(lines.code == 1 && lines.err.lines().count() == 1 && !lines.err.contains('\u{202e}'), "{}", lines.err);
    // Somebody without the key of the journal reads with the public one.
    let blind = place.graph(&["answer", "r", "--store", "runs.db", "--public-key", "bo/public_key.pem"]);
    assert!(blind.code == 3 && blind.err.contains("name the key of the journal with `--public-key`"), "{}", blind.err);
}

#[test]
fn a_key_with_a_role_has_an_owner_who_is_known() {
    let place = Place::with_key();
    place.graph(&["keys", "generate", "--dir", "ann"]);
    place.graph(&["keys", "trust"]);
    let nobody = place.graph(&["keys", "trust", "ann/public_key.pem", "--role", "refunds"]);
    assert!(nobody.code == 3 && nobody.err.contains("name the owner of the key with `--owner NAME`"), "{}", nobody.err);
}

/// A graph that runs the one that asks for two orders, and one that waits for a payment.
const ORDERS: &str = "permissions: [rye.execute.tool.test.*, rye.execute.tool.rye.bash]
config:
  start: all
  nodes:
    all:
      type: foreach
      over: [4, 5]
      as: cents
      action: { item_id: test/g, params: { cents: \"${cents}\" } }
      collect: refunds
      next: money
    money: { action: { item_id: test/money }, next: done }
    done: { type: return, output: { refunds: \"${state.refunds}\" } }
";

const MONEY: &str = "permissions: [rye.execute.tool.rye.bash]
config:
  start: wait
  signals: { paid: { type: integer } }
  nodes:
    wait: { type: wait, signals: [paid], timeout: 10d, on_timeout: done, next: done }
    done: { type: return }
";

#[test]
fn nested_runs_are_answered_and_signalled_at_the_outermost_run() {
    let place = asking();
    place.sign("graphs/money.yaml", MONEY);
    place.sign("graphs/orders.yaml", ORDERS);
    let orders = |arguments: &[&str]| {
        let ran = place.graph(&[arguments, &["--store", "runs.db"]].concat());
        (ran.code, ran.out + &ran.err)
    };
    let (code, out) = orders(&["run", "graphs/orders.yaml", "--run-id", "o", "--quiet"]);
    assert!(code == 4 && out.contains(r#""wait":"1.0/1#1""#) && out.contains(r#""wait":"1.1/1#1""#), "{out}");
    let inbox = result(&place.stored(&["inbox", "--json", "--run", "o"]));
    let open = |at: usize| (inbox["open"][at]["wait"].clone(), inbox["open"][at]["nested_graph"].clone());
    assert_eq!([open(0), open(1)], [(json!("1.0/1#1"), json!("test/g")), (json!("1.1/1#1"), json!("test/g"))]);
    for wait in ["1.1/1#1", "1.0/1#1"] {
        let printed = ["answer", "o", wait, "--json", APPROVE, "--key", "ann/private_key.pem", "--print"];
        place.write("answer.json", &place.stored(&printed).out);
        let (code, out) = orders(&["answer", "o", "--envelope", "answer.json", "--key", "bo/private_key.pem"]);
        assert!(code == 0 && out.contains("accepted"), "{out}");
    }
    let misfit = ["answer", "o", "1.0/1#1", "--json", "{}", "--key", "ann/private_key.pem"];
    let (code, out) = orders(&misfit);
    assert!(code == 1 && out.contains("does not fit"), "{out}");
    let (code, out) = orders(&["work", "graphs/orders.yaml", "--until-idle", "--quiet"]);
    assert_eq!(code, 0, "{out}");
    let (code, out) = orders(&["signal", "o", "3/paid", "5", "--id", "a"]);
    assert!(code != 0 && out.contains("no run inside it at `3/`"), "{out}");
    let (code, out) = orders(&["signal", "o", "2/paid", "5", "--id", "a"]);
    assert_eq!(code, 0, "{out}");
    let (code, out) = orders(&["work", "graphs/orders.yaml", "--until-idle", "--quiet"]);
    assert!(code == 0 && out.contains("o (test/orders) ended: completed"), "{out}");
    let (code, out) = orders(&["verify-run", "o"]);
    assert!(code == 0 && out.contains("`approve` (1.0/1#1) was answered on 20"), "{out}");
    let (code, out) = orders(&["show", "o"]);
    assert!(code == 0 && out.contains("all (waits until 20"), "{out}");
}

/// A graph that asks two people for a PIN, receives the number of a card, and uses both.
const TRANSFER: &str = "permissions: [rye.execute.tool.rye.bash]
config:
  start: release
  signals:
    paid: { type: object, properties: { card: { type: string, x-secret: true }, cents: { type: integer } }, required: [card, cents] }
  nodes:
    release:
      type: interrupt
      payload: release it?
      result_schema:
        type: object
        properties: { decision: { enum: [approve, refuse] }, pin: { type: string, x-secret: true } }
        required: [decision, pin]
      answered_by: { count: { approve: 2, refuse: 1 } }
      timeout: 1h
      on_timeout: none
      assign: { pin: \"${result.pin}\" }
      next: { by: result.decision, to: { approve: use, refuse: none } }
    use:
      action:
        item_id: rye/bash
        params: { command: 'test \"$PIN\" = 9182-7364 && echo \"used $PIN\"', env: { PIN: \"${state.pin}\" } }
      assign: { used: \"${result.stdout}\" }
      next: money
    money:
      type: wait
      signals: [paid]
      assign: { cents: \"${result.paid.cents}\", card: \"${result.paid.card}\" }
      next: done
    none: { type: return }
    done: { type: return, output: { used: \"${state.used}\", cents: \"${state.cents}\", card: \"${state.card}\" } }
";

/// Everything that a run's owner and others are shown of an answer with a secret, and of a signal with one, is without it.
#[test]
fn an_answer_and_a_signal_with_secrets_are_shown_without_them() {
    let place = Place::with_graph(TRANSFER);
    for (who, owner) in [("ann", "Ann"), ("bo", "Bo")] {
        assert_eq!(place.graph(&["keys", "generate", "--dir", who]).code, 0);
        let public = format!("{who}/public_key.pem");
        assert_eq!(place.graph(&["keys", "trust", &public, "--owner", owner]).code, 0);
    }
    for key in ["seal.key", "other.key"] {
        let made = place.graph(&["keys", "encryption", key]);
        assert_eq!(made.code, 0, "{}", made.err);
    }
    let mut said = String::new();
    let mut told = |ran: &Ran| {
        said.push_str(&ran.out);
        said.push_str(&ran.err);
    };
    let begin = ["run", "graphs/g.yaml", "--store", "runs.db", "--run-id", "r", "--quiet"];
    let refused = place.graph(&begin);
    assert!(refused.code != 0 && refused.err.contains("encrypt"), "{}", refused.err);
    let sealed = ["--encryption-key", "seal.key"];
    let ran = place.graph(&[&begin[..], &sealed].concat());
    assert_eq!(ran.code, 4, "{}", ran.err);
    let json = r#"{"decision": "approve", "pin": "9182-7364"}"#;
    let answer = |who: &str, with: &[&str]| {
        let key = format!("{who}/private_key.pem");
        let command = ["answer", "r", "--store", "runs.db", "--json", "-", "--key", &key];
        place.piped(&[&command[..], with].concat(), json)
    };
    for wrong in [&[][..], &["--encryption-key", "other.key"]] {
        let refused = answer("ann", wrong);
        assert!(refused.code != 0 && refused.err.contains("key"), "{}", refused.err);
        told(&refused);
    }
    // Others see command lines.
    let exposed = place.stored(&[&["answer", "r", "--json", json][..], &sealed].concat());
    assert!(exposed.code != 0 && exposed.err.contains("others see command lines"), "{}", exposed.err);
    told(&exposed);
    let proposed = answer("ann", &sealed);
    assert_eq!(result(&proposed)["have"], 1);
    told(&proposed);
    let inbox = place.stored(&["inbox", "--json"]);
    let hidden = json!({"decision": "approve", "pin": "[secret]"});
    assert_eq!(result(&inbox)["open"][0]["proposed"][0]["answer"], hidden);
    told(&inbox);
    let accepted = answer("bo", &sealed);
    assert_eq!(result(&accepted)["result"], "accepted");
    told(&accepted);
    let paid = r#"{"card": "4000-1234", "cents": 5}"#;
    let signal = |with: &[&str]| {
        let command = ["signal", "r", "paid", "-", "--id", "p-1", "--store", "runs.db"];
        place.piped(&[&command[..], with].concat(), paid)
    };
    let exposed = place.stored(&[&["signal", "r", "paid", paid][..], &sealed].concat());
    assert!(exposed.code != 0 && exposed.err.contains("others see command lines"), "{}", exposed.err);
    told(&exposed);
    for wrong in [&[][..], &["--encryption-key", "other.key"]] {
        let refused = signal(wrong);
        assert!(refused.code != 0 && refused.err.contains("key"), "{}", refused.err);
        told(&refused);
    }
    for times in ["has the signal", "before, and has not taken it"] {
        let sent = signal(&sealed);
        assert!(sent.code == 0 && sent.out.contains(times), "{}{}", sent.out, sent.err);
        told(&sent);
    }
    let ran = place.graph(&[&["run", "graphs/g.yaml", "--store", "runs.db", "--resume", "r"][..], &sealed].concat());
    assert_eq!(result(&ran)["output"], json!({"used": "used [secret]", "cents": 5, "card": "[secret]"}));
    told(&ran);
    for shown in
        [&["show", "r"][..], &["show", "r", "--json"], &["runs"], &["verify-run", "r", "--json"], &["watch", "r"]]
    {
        let ran = place.stored(shown);
        assert_eq!(ran.code, 0, "{shown:?} {}", ran.err);
        told(&ran);
    }
    let unverified = place.stored(&["verify-run", "r"]);
    assert!(unverified.out.contains("not verified: sealed"), "{}", unverified.out);
    told(&unverified);
    let verified = place.stored(&[&["verify-run", "r"][..], &sealed].concat());
    assert!(verified.code == 0 && !verified.out.contains("sealed"), "{}{}", verified.out, verified.err);
    told(&verified);
    for secret in ["9182-7364", "4000-1234"] {
        assert!(!said.contains(secret), "{said}");
        for file in ["runs.db", "runs.db-wal"] {
            let bytes = std::fs::read(place.path(file)).unwrap_or_default();
            assert!(!bytes.windows(secret.len()).any(|part| part == secret.as_bytes()), "{file} has a secret");
        }
    }
}

/// A graph with a secret that neither its question nor the answer has.
const GUARDED: &str = "permissions: [rye.execute.tool.rye.bash]
config_schema:
  type: object
  properties: { code: { type: string, x-secret: true }, guest: { type: string } }
  required: [code, guest]
config:
  start: let_in
  nodes:
    let_in:
      type: interrupt
      payload: { guest: \"${inputs.guest}\" }
      result_schema: { type: object, properties: { decision: { enum: [approve, refuse] } }, required: [decision] }
      next: { by: result.decision, to: { approve: open, refuse: done } }
    open:
      action: { item_id: rye/bash, params: { command: 'test \"$CODE\" = code-4711', env: { CODE: \"${inputs.code}\" } } }
      next: done
    done: { type: return, output: { guest: \"${inputs.guest}\" } }
";

/// A question without secrets is read and answered without the key of the secrets. A command that needs the key names its own option.
#[test]
fn a_question_without_secrets_needs_no_key_of_the_secrets() {
    let place = Place::with_graph(GUARDED);
    place.write("code.txt", "code-4711");
    assert_eq!(place.graph(&["keys", "encryption", "seal.key"]).code, 0);
    let begin = ["--secret", "code=file:code.txt", "--input", "guest=Ann", "--store", "runs.db", "--run-id", "r"];
    let ran = place.run(&[&begin[..], &["--encryption-key", "seal.key"]].concat());
    assert_eq!(ran.code, 4, "{}{}", ran.out, ran.err);
    let approve = r#"{"decision": "approve"}"#;
    for (reads, expected) in [
        (&["inbox"][..], "Ann"),
        (&["inbox", "--json"], "\"guest\": \"Ann\""),
        (&["runs"], "waiting"),
        (&["show", "r"], "let_in (waits)"),
        (&["show", "r", "--json"], "\"let_in\""),
        (&["show", "r", "--step", "0"], "\"code\": \"[secret]\""),
        (&["diff", "r", "0", "0"], ""),
        (&["stats"], ""),
        (&["verify-run", "r"], "encrypted values were not computed again"),
        (&["attest", "r"], "payloadType"),
        (&["answer", "r"], "\"guest\": \"Ann\""),
        (&["answer", "r", "--json", approve, "--print"], "payloadType"),
    ] {
        let ran = place.stored(reads);
        assert!(ran.code == 0 && ran.out.contains(expected), "{reads:?}: {}{}", ran.out, ran.err);
        assert!(!ran.out.contains("4711"), "{reads:?}: {}", ran.out);
    }
    let answered = place.stored(&["answer", "r", "--json", approve]);
    assert_eq!(result(&answered)["result"], "accepted", "{}", answered.err);
    for needs in [
        &["run", "graphs/g.yaml", "--resume", "r"][..],
        &["edit", "r", "--by", "ann", "--why", "a test", "--set", "x=1"],
        &["fork", "r"],
        &["replay", "r", "--graph", "graphs/g.yaml"],
        &["run", "graphs/g.yaml", "--resume", "r", "--node", "open"],
        &["work", "graphs/g.yaml", "--until-idle"],
    ] {
        let ran = place.stored(needs);
        let said = format!("{}{}", ran.out, ran.err);
        assert!(ran.code != 0 && said.contains("--encryption-key FILE"), "{needs:?}: {said}");
        assert!(!said.contains("encrypt_with") && !said.contains("EncryptionKey::"), "{needs:?}: {said}");
    }
    let resumed = place.stored(&["run", "graphs/g.yaml", "--resume", "r", "--encryption-key", "seal.key"]);
    assert_eq!(result(&resumed)["output"], json!({"guest": "Ann"}), "{}", resumed.err);
}

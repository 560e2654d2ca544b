//! Runs that are kept: what is proven, attested, shown, compared, replayed and begun anew from their journals.

use serde_json::Value;

use crate::place::Place;
use crate::run::commands;

/// A place with a run `r` that completed, in `runs.db`.
fn with_run() -> Place {
    let place = Place::with_graph(&commands("echo a", "echo b"));
    let ran = place.run(&["--store", "runs.db", "--run-id", "r"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    place
}

#[test]
fn a_run_is_attested_to_and_the_attestation_verified_with_its_journal() {
    let place = with_run();
    let attested = place.graph(&["attest", "r", "--store", "runs.db", "-o", "r.intoto.json"]);
    assert_eq!((attested.code, attested.out.as_str()), (0, ""), "{}", attested.err);
    let verify = |more: &[&str]| place.graph(&[&["verify-attestation", "r.intoto.json"], more].concat());
    let verified = verify(&["--store", "runs.db"]);
    assert_eq!(verified.code, 0, "{}", verified.err);
    assert!(verified.out.starts_with("r: completed after 3 steps, as `test/g` ("), "{}", verified.out);
    assert!(verified.out.ends_with("; the journal in the store is that one\n"), "{}", verified.out);
    let statement: Value = serde_json::from_str(&verify(&["--json"]).out).unwrap();
    assert_eq!(statement["predicate"]["tools"], serde_json::json!(["rye/bash"]));
    // Somebody else's word.
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
fn what_is_not_proven_is_not_attested_and_the_old_attestation_stays() {
    let place = with_run();
    place.write("r.json", "old");
    let database = rusqlite::Connection::open(place.path("runs.db")).unwrap();
    database.execute("UPDATE records SET body = replace(body, '\"a\"', '\"c\"')", []).unwrap();
    let refused = place.graph(&["attest", "r", "--store", "runs.db", "-o", "r.json"]);
    assert_eq!((refused.code, refused.out.as_str()), (1, ""));
    assert!(refused.err.contains("what is not proven is not attested"), "{}", refused.err);
    assert_eq!(place.read("r.json"), "old");
}

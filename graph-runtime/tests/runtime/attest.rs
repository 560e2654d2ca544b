//! Attestations in the format of `docs/attestation.md`. `UPDATE_JOURNAL=1` regenerates the known one.

use std::path::Path;
use std::sync::Arc;

use graph_model::digest::Digest;
use graph_runtime::record::{SignedRecord, Status};
use graph_runtime::{
    ActionError, Attestation, AttestationError, Machine, MemoryStore, RunId, SecretKey, Store, Value, attest,
};
use graph_signing::PublicKey;
use serde_json::json;

use crate::interpreted::Interpreted;
use crate::journal::{TWICE, journal};

fn key() -> SecretKey {
    SecretKey::from_seed(&[1; 32])
}

fn run() -> RunId {
    RunId::new("known-answer").unwrap()
}

/// Attests to a journal with the attester's own key.
async fn attested(records: &[SignedRecord]) -> Result<String, String> {
    let store = MemoryStore::new();
    store.create(&run(), "test/graph", records.to_vec()).await.unwrap();
    let machine: Arc<dyn Machine> = Arc::new(Interpreted::new(&TWICE, |_, _| Err(ActionError::permanent("no call"))));
    let by = SecretKey::from_seed(&[2; 32]);
    attest(machine, &run(), &store, &key().public(), None, &by).await.map_err(|error| error.to_string())
}

fn attester() -> PublicKey {
    SecretKey::from_seed(&[2; 32]).public()
}

#[tokio::test]
async fn the_known_attestation_says_what_the_known_journal_proves() {
    let records = journal().await;
    let envelope = attested(&records).await.unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/journal/attestation.json");
    if std::env::var_os("UPDATE_JOURNAL").is_some() {
        std::fs::write(&path, format!("{envelope}\n")).unwrap();
    }
    assert_eq!(format!("{envelope}\n"), std::fs::read_to_string(&path).unwrap());
    let attestation = Attestation::verify(&envelope, &attester()).unwrap();
    assert_eq!((&attestation.run, attestation.link), (&run(), records.last().unwrap().link()));
    assert_eq!((attestation.status, attestation.steps, attestation.records), (Status::Completed, 3, 7));
    assert_eq!(attestation.covers(&records).unwrap(), 0);
    let output = Digest::of(r#"{"text":"na\u00efve \ud834\udd1e 2"}"#);
    let statement: Value = serde_json::from_str(&attestation.statement).unwrap();
    assert_eq!(
        statement,
        json!({
            "_type": "https://in-toto.io/Statement/v1",
            "subject": [
                {"name": "known-answer", "digest": {"sha256": records.last().unwrap().link()}},
                {"name": "known-answer/output", "digest": {"sha256": output}},
            ],
            "predicateType": "https://state-graphs.dev/attestation/run/v1",
            "predicate": {
                "graph": {
                    "id": "test/graph",
                    "version": "1.0.0",
                    "digest": {"sha256": "00000000000000000000000000000000000000000000000000000000000000aa"},
                    "signer": "00000000000000aa",
                },
                "journal": {"key": key().public().fingerprint().as_str(), "records": 7},
                "status": "completed",
                "steps": 3,
                "resumes": 1,
                "startedOn": "2026-11-22T10:40:00.123Z",
                "endedOn": "2026-11-22T10:40:00.123Z",
                "grants": ["rye.execute.tool.*"],
                "tools": ["test/tool"],
                "recomputed": true,
            },
        })
    );
}

#[tokio::test]
async fn an_attestation_that_was_changed_is_refused() {
    let envelope = attested(&journal().await).await.unwrap();
    let mut changed = 0;
    for at in 0..envelope.len() {
        let mut bytes = envelope.clone().into_bytes();
        bytes[at] ^= 1;
        let Ok(text) = String::from_utf8(bytes) else { continue };
        // Bytes outside the payload and the signature may differ: the key's name is only a hint.
        match Attestation::verify(&text, &attester()) {
            Ok(same) => assert_eq!(Ok(same), Attestation::verify(&envelope, &attester()).map_err(drop), "{text}"),
            Err(_) => changed += 1,
        }
    }
    assert!(changed > envelope.len() * 9 / 10, "{changed} of {}", envelope.len());
    let other = Attestation::verify(&envelope, &key().public()).unwrap_err();
    assert!(matches!(other, AttestationError::Signature { .. }), "{other}");
    assert!(
        Attestation::verify("[]", &key().public()).unwrap_err().to_string().starts_with("it is not a DSSE envelope")
    );
}

#[tokio::test]
async fn an_attestation_still_covers_its_journal_after_it_has_grown() {
    let records = journal().await;
    // The journal at the time when the run had failed.
    let mut then = records[..3].to_vec();
    then[2].end = Some(*key().derive("end of journal known-answer at 2"));
    let envelope = attested(&then).await.unwrap();
    let attestation = Attestation::verify(&envelope, &attester()).unwrap();
    assert_eq!((attestation.status, attestation.output), (Status::Error, None));
    assert_eq!(attestation.covers(&then).unwrap(), 0);
    assert_eq!(attestation.covers(&records).unwrap(), 4);
    let whole = Attestation::verify(&attested(&records).await.unwrap(), &attester()).unwrap();
    assert!(matches!(whole.covers(&then), Err(AttestationError::AnotherJournal(_))));
    let mut changed = records.clone();
    changed[4].body = changed[4].body.replace("graph", "grape");
    changed[5].signature[0] ^= 1;
    assert!(matches!(attestation.covers(&changed), Err(AttestationError::Journal(_))));
}

#[tokio::test]
async fn an_unproven_journal_is_not_attested() {
    let mut records = journal().await;
    records[1].signature[3] ^= 1;
    let error = attested(&records).await.unwrap_err();
    assert!(error.starts_with("run `known-answer`: record 1 of its journal is not signed by"), "{error}");
}

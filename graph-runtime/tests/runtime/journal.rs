//! The journal in the format of `docs/journal.md`, read by a reader that shares only SHA-256 and Ed25519 with the
//! runtime; and a known journal that other readers can be tested with. `UPDATE_JOURNAL=1` regenerates the known
//! journal.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use graph_model::digest::{Digest, hex};
use graph_runtime::__private::{Key, Program};
use graph_signing::PublicKey;

use graph_runtime::observer::{Event, Observer};
use graph_runtime::record::{Follower, Record, SignedRecord, Status};
use graph_runtime::{
    ActionError, Audit, Call, ManualClock, Map, MemoryStore, RunId, Runtime, SecretKey, Store, Value, audit,
};
use serde_json::json;

use crate::interpreted::{Interpreted, PROGRAM};

/// Calls a tool twice; the second call fails the first time.
pub(crate) const TWICE: Program<'static> = Program {
    keys: &[Key { name: "one", initial: None }, Key { name: "two", initial: Some("0") }],
    nodes: &[
        (
            "first",
            r#"{"line":1,"does":{"action":0},"params":{"n":1},"assign":{"one":"${result}"},"next":[{"to":"second"}]}"#,
        ),
        (
            "second",
            r#"{"line":2,"does":{"action":0},"params":{"n":2},"assign":{"two":"${result.text}"},"next":[{"to":"end"}]}"#,
        ),
        ("end", r#"{"line":3,"does":"return","output":{"text":"${state.two}"}}"#),
    ],
    ..PROGRAM
};

/// Runs `TWICE` until it fails, and then to its end, with a clock that never advances.
pub(crate) async fn journal() -> Vec<SignedRecord> {
    let (store, run) = (MemoryStore::new(), RunId::new("known-answer").unwrap());
    let at = SystemTime::UNIX_EPOCH + Duration::from_millis(1_795_344_000_123);
    let runtime = Runtime::builder()
        .store(store.clone())
        .sign_with(SecretKey::from_seed(&[1; 32]))
        .clock(Arc::new(ManualClock::at(at)))
        .grant("rye.execute.tool.*")
        .unwrap()
        .build()
        .unwrap();
    let machine = |fails: bool| {
        Interpreted::new(&TWICE, move |call: &Call, params: Value| match call.node() {
            "second" if fails => Err(ActionError::permanent("not \"today\"")),
            _ => Ok(json!({"text": format!("naïve 𝄞 {}", params["n"]), "half": 0.5})),
        })
    };
    runtime.start_as(run.clone(), machine(true), Map::new()).await.unwrap().await.unwrap_err();
    runtime.resume(machine(false), &run).await.unwrap().await.unwrap();
    store.load(&run).await.unwrap()
}

/// Verifies a journal file as the page describes: a line for each record, and one for the token of the last record.
fn verify(lines: &[Value], key: &PublicKey) -> Result<(), String> {
    let (end, lines) = lines.split_last().ok_or("a journal has lines")?;
    let bytes = |text: &Value| -> Vec<u8> {
        let text = text.as_str().unwrap_or_default().as_bytes();
        text.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
    };
    let mut prev = Digest::of([]);
    for (seq, line) in lines.iter().enumerate() {
        let body = line["body"].as_str().ok_or("a record is a text")?;
        let head = format!(r#"{{"v":3,"run":"known-answer","seq":{seq},"prev":"{prev}","end":""#);
        if !body.starts_with(&head) {
            return Err(format!("record {seq} does not follow"));
        }
        let digest = Digest::of(body);
        let signature: [u8; 64] = bytes(&line["signature"]).try_into().map_err(|_| "a signature has 64 bytes")?;
        if seq + 1 == lines.len() {
            if !key.verifies(&digest, &signature) {
                return Err(format!("record {seq} is not signed"));
            }
            let record: Value = serde_json::from_str(body).map_err(|error| error.to_string())?;
            if record["end"] != json!(Digest::of(bytes(&end["end"])).to_hex()) {
                return Err(format!("record {seq} is not the last"));
            }
        }
        prev = Digest::of([digest.as_bytes().as_slice(), &signature].concat());
    }
    Ok(())
}

#[tokio::test]
async fn known_journal_matches_the_page_and_the_runtime_output() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/journal");
    let (mut text, records) = (String::new(), journal().await);
    for record in &records {
        writeln!(text, "{}", json!({"body": record.body, "signature": hex(&record.signature)})).unwrap();
    }
    writeln!(text, "{}", json!({"end": hex(&records.last().unwrap().end.unwrap())})).unwrap();
    let key = SecretKey::from_seed(&[1; 32]).public();
    if std::env::var_os("UPDATE_JOURNAL").is_some() {
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("records.jsonl"), &text).unwrap();
        std::fs::write(directory.join("key.txt"), hex(key.as_bytes()) + "\n").unwrap();
    }
    let known = std::fs::read_to_string(directory.join("records.jsonl")).unwrap();
    assert_eq!(text, known, "the runtime writes the journal that is known");
    assert_eq!(std::fs::read_to_string(directory.join("key.txt")).unwrap(), hex(key.as_bytes()) + "\n");
    let lines: Vec<Value> = known.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(verify(&lines, &key), Ok(()));
    let kinds: Vec<Value> = lines[..7]
        .iter()
        .map(|line| serde_json::from_str::<Value>(line["body"].as_str().unwrap()).unwrap()["kind"].clone())
        .collect();
    assert_eq!(json!(kinds), json!(["start", "step", "end", "resume", "step", "step", "end"]));
    let cut = [&lines[..6], &lines[7..]].concat();
    assert_eq!(verify(&cut, &key), Err("record 5 is not the last".to_owned()));
    let mut moved = lines.clone();
    moved.swap(1, 2);
    assert_eq!(verify(&moved, &key), Err("record 1 does not follow".to_owned()));
    assert_eq!(verify(&lines, &SecretKey::from_seed(&[2; 32]).public()), Err("record 6 is not signed".to_owned()));
}

/// Changes the records of a journal and signs all of them again, as only the holder of the key can.
pub(crate) fn forged(records: &[SignedRecord], change: impl Fn(usize, &str) -> String) -> Vec<SignedRecord> {
    forged_from(0, records, change)
}

/// As [`forged`], from a record on. Those before it stay as they are.
pub(crate) fn forged_from(
    from: usize,
    records: &[SignedRecord],
    change: impl Fn(usize, &str) -> String,
) -> Vec<SignedRecord> {
    let (key, token) = (SecretKey::from_seed(&[1; 32]), [7; 32]);
    let mut prev = Digest::of([]);
    let forge = |(seq, record): (usize, &SignedRecord)| {
        if seq < from {
            prev = record.link();
            return record.clone();
        }
        let said: Value = serde_json::from_str(&record.body).unwrap();
        let body = change(seq, &record.body)
            .replace(said["prev"].as_str().unwrap(), &prev.to_hex())
            .replace(said["end"].as_str().unwrap(), &Digest::of(token).to_hex());
        let signature = key.sign(&Digest::of(&body));
        let signed_record = SignedRecord { seq: seq as u64, body, signature, end: Some(token) };
        prev = signed_record.link();
        signed_record
    };
    records.iter().enumerate().map(forge).collect()
}

/// Collects the records of each commit.
#[derive(Clone, Default)]
struct Commits(Arc<Mutex<Vec<Vec<SignedRecord>>>>);

impl Observer for Commits {
    fn observe(&self, event: &Event<'_>) {
        if let Event::Recorded { records, .. } = event {
            self.0.lock().unwrap().push(records.to_vec());
        }
    }
}

#[tokio::test]
async fn follower_reads_a_growing_journal_and_refuses_other_records() {
    let (commits, store, run) = (Commits::default(), MemoryStore::new(), RunId::new("followed").unwrap());
    let (key, other) = (SecretKey::from_seed(&[1; 32]), SecretKey::from_seed(&[2; 32]));
    let public = key.public();
    let builder = Runtime::builder().store(store.clone()).sign_with(key).observer(commits.clone());
    let machine = Interpreted::new(&TWICE, |_: &Call, _| Ok(json!({"text": "a"})));
    let runtime = builder.grant("*").unwrap().build().unwrap();
    runtime.start_as(run.clone(), machine, Map::new()).await.unwrap().await.unwrap();
    let commits = std::mem::take(&mut *commits.0.lock().unwrap());
    assert_eq!(commits.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1, 1, 2]);
    let mut follower = Follower::new(run.clone(), public.clone());
    let mut read = Vec::new();
    for (at, commit) in commits.iter().enumerate() {
        let refused =
            |follower: &mut Follower, records: &[SignedRecord]| follower.read(records).unwrap_err().to_string();
        assert_eq!(follower.read(&[]).unwrap(), []);
        // The previous commit again, the next one too early, a commit that is cut short, and one with another
        // signature.
        if at > 0 {
            assert!(refused(&mut follower, &commits[at - 1]).contains("does not follow"));
        }
        if let Some(later) = commits.get(at + 1) {
            assert!(refused(&mut follower, later).contains("does not follow"));
        }
        let mut cut = commit.clone();
        cut.last_mut().unwrap().end = None;
        assert!(refused(&mut follower, &cut).contains("were taken away"), "{}", refused(&mut follower, &cut));
        let mut forged = commit.clone();
        let last = forged.last_mut().unwrap();
        last.signature = other.sign(&last.digest());
        assert!(refused(&mut follower, &forged).contains("is not signed by"));
        // A refused commit changes nothing.
        assert_eq!(follower.next(), read.len() as u64);
        read.extend(follower.read(commit).unwrap());
    }
    let body = |record: &SignedRecord| serde_json::from_str::<Record>(&record.body).unwrap();
    let records = store.load(&run).await.unwrap();
    assert_eq!(read, records.iter().map(body).collect::<Vec<_>>());
    assert_eq!(Follower::new(run, public).read(&records).unwrap(), read, "all at once");
}

fn audited(records: &[SignedRecord]) -> Result<Audit, String> {
    let (key, run) = (SecretKey::from_seed(&[1; 32]).public(), RunId::new("known-answer").unwrap());
    let machine = Interpreted::new(&TWICE, |_, _| Err(ActionError::permanent("nothing is called")));
    audit(&machine, &run, records, &key, None).map_err(|error| error.to_string())
}

#[tokio::test]
async fn a_record_is_read_alike_however_it_is_spelt() {
    let records = journal().await;
    let (run, key) = (RunId::new("known-answer").unwrap(), SecretKey::from_seed(&[1; 32]).public());
    let read = |records: &[SignedRecord]| Follower::new(run.clone(), key.clone()).read(records);
    let plain = forged(&records, |_, body| body.to_owned());
    let spaced = forged(&records, |_, body| body.replace(r#"","at":""#, r#"", "at":""#));
    let whole = |records: &[SignedRecord]| -> Vec<Record> {
        records.iter().map(|record| serde_json::from_str(&record.body).unwrap()).collect()
    };
    assert_eq!(read(&plain).unwrap(), whole(&plain));
    assert_eq!(read(&spaced).unwrap(), whole(&spaced));
    for record in whole(&plain) {
        let members: Map<String, Value> = serde_json::from_value(serde_json::to_value(&record).unwrap()).unwrap();
        let backwards: Map<String, Value> = members.into_iter().rev().collect();
        assert_eq!(serde_json::from_value::<Record>(backwards.into()).unwrap(), record);
    }
}

#[tokio::test]
async fn a_record_of_no_kind_or_of_two_is_refused() {
    let records = journal().await;
    for (spelt, kind, why) in [
        (r#"","at":""#, r#""kind":"leap""#, "unknown variant `leap`, expected one of `start`, `step`"),
        (r#"", "at":""#, r#""kind":"leap""#, "unknown variant `leap`, expected one of `start`, `step`"),
        (r#"", "at":""#, r#""kind":"step","kind":"end""#, "duplicate field `kind`"),
        (r#"", "at":""#, r#""sort":"step""#, "missing field `kind`"),
    ] {
        let change = |seq: usize, body: &str| match seq {
            1 => body.replace(r#"","at":""#, spelt).replace(r#""kind":"step""#, kind),
            _ => body.to_owned(),
        };
        let error = audited(&forged(&records, change)).unwrap_err();
        assert!(error.contains("record 1") && error.contains(why), "{error}");
    }
    for (from, to, why) in [
        (r#""kind":"step""#, r#""kind":"step","kind":"step""#, "duplicate field `kind`"),
        (r#""visits":["#, r#""visits":[],"visits":["#, "duplicate field `visits`"),
        (r#""step":1"#, r#""step":1,"step":1"#, "duplicate field `step`"),
    ] {
        let body = records[1].body.replacen(from, to, 1);
        let error = serde_json::from_str::<Record>(&body).unwrap_err().to_string();
        assert!(body != records[1].body && error.contains(why), "{error}");
    }
}

#[tokio::test]
async fn an_audit_says_what_a_journal_proves_and_calls_nothing() {
    let records = journal().await;
    let proven = audited(&records).unwrap();
    assert_eq!((proven.status, proven.steps, proven.resumes, proven.records), (Status::Completed, 3, 1, 7));
    assert_eq!((proven.graph.as_str(), proven.is_recomputed), ("test/graph", true));
    assert_eq!(proven.link, records.last().unwrap().link());
    assert_eq!(audited(&forged(&records, |_, body| body.to_owned())).map(|audit| audit.steps), Ok(3));
}

#[tokio::test]
async fn audit_finds_signed_records_that_the_graph_does_not_allow() {
    let records = journal().await;
    for (seq, from, to, why) in [
        (
            0,
            "\"grants\":[\"rye.execute.tool.*\"]",
            "\"grants\":[]",
            "record 0 of its journal does not fit the graph: the run was not granted",
        ),
        (
            0,
            "\"digest\":\"0000",
            "\"digest\":\"0001",
            "record 0 of its journal does not fit the graph: it says that the digest",
        ),
        (
            1,
            "\"step\":1",
            "\"step\":2",
            "record 1 of its journal does not fit the graph: it says that the number of the visit is 2",
        ),
        (
            1,
            "\"node\":\"first\"",
            "\"node\":\"second\"",
            "it says that the node that is visited is second, and it is first",
        ),
        (1, "\"half\":0.5}}", "\"half\":0.25}}", "node `first` writes something else to `one`"),
        (
            1,
            "\"next\":[{\"number\":2,\"node\":\"second\"}]",
            "\"next\":[{\"number\":2,\"node\":\"end\"}]",
            "it says that end is next, and second is",
        ),
        (1, "\"edges\":[0]", "\"edges\":[1]", "node `first` leads along another edge"),
        (
            3,
            "\"steps\":1",
            "\"steps\":0",
            "record 3 of its journal does not fit the graph: it says that the number of visits before it is 0",
        ),
        (4, "\"changes\":{\"two\":\"na", "\"changes\":{\"two\":\"No", "node `second` writes something else to `two`"),
        (
            6,
            "\"text\":\"na",
            "\"text\":\"No",
            "record 6 of its journal does not fit the graph: the graph returns something else",
        ),
        (
            6,
            "\"completed\"",
            "\"completed_with_errors\"",
            "it says that the status is completed_with_errors, and it is completed",
        ),
        (6, "\"steps\":3", "\"steps\":4", "it says that the number of visits is 4, and it is 3"),
    ] {
        assert!(records[seq].body.contains(from), "record {seq}: {}", records[seq].body);
        let forged = forged(&records, |at, body| if at == seq { body.replacen(from, to, 1) } else { body.to_owned() });
        let found = audited(&forged).map(drop).unwrap_err();
        assert!(found.contains(why), "{from}: {found}");
    }
    let cut = |count: usize| audited(&forged(&records[..count], |_, body| body.to_owned())).map(|audit| audit.status);
    assert_eq!(cut(5), Ok(Status::Running), "a run that stands still is no forgery");
    assert!(cut(6).unwrap_err().contains("no record says so"), "the last step and the end are written together");
    let again: Vec<SignedRecord> = records.iter().chain(&records[6..]).cloned().collect();
    let again =
        forged(&again, |at, body| if at == 7 { body.replacen("\"seq\":6", "\"seq\":7", 1) } else { body.to_owned() });
    assert!(audited(&again).unwrap_err().contains("the run had ended before it"));
}

#[test]
fn numbers_come_back_from_a_journal_to_the_last_bit() {
    let mut bits = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..100_000 {
        bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let number = f64::from_bits(bits);
        if number.is_finite() {
            let read: Value = serde_json::from_str(&json!(number).to_string()).unwrap();
            assert_eq!(read.as_f64().map(f64::to_bits), Some(number.to_bits()), "{number:e}");
        }
    }
}

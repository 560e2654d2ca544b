//! A crash, a tampered journal or a second process does nothing to a run that is not detected.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use graph_model::digest::Digest;
use graph_runtime::__private::{Key, Program};
use graph_runtime::record::{SignedRecord, Status};
use graph_runtime::store::StoreError;
use graph_runtime::{
    ActionError, Call, Map, MemoryStore, ResumeError, RunError, RunId, Runtime, SecretKey, SqliteStore, Store,
    StoredRunError, Value, audit,
};
use serde_json::json;

use crate::interpreted::{Interpreted, PROGRAM};
use crate::support::failing;

/// Calls its tool for `a`, `b` and `c`, and returns all three.
const CHAIN: Program<'static> = Program {
    keys: &[Key { name: "a", initial: None }, Key { name: "b", initial: None }, Key { name: "c", initial: Some("0") }],
    nodes: &[
        ("a", r#"{"line":1,"does":{"action":0},"params":{"n":1},"assign":{"a":"${result}"},"next":[{"to":"b"}]}"#),
        (
            "b",
            r#"{"line":2,"does":{"action":0},"params":{"n":"${state.a.n}"},"assign":{"b":"${result}"},"next":[{"to":"c"}]}"#,
        ),
        (
            "c",
            r#"{"line":3,"does":{"action":0},"params":{"n":"${state.b.n}"},"assign":{"c":"${result}"},"next":[{"to":"end"}]}"#,
        ),
        ("end", r#"{"line":4,"does":"return"}"#),
    ],
    ..PROGRAM
};

/// The calls that were made: node and idempotency key.
type Calls = Arc<Mutex<Vec<(String, String)>>>;

/// The chain, with a tool that adds one and records its calls.
fn chain(calls: &Calls) -> Interpreted {
    let calls = Arc::clone(calls);
    Interpreted::new(&CHAIN, move |call: &Call, params: Value| {
        calls.lock().unwrap().push((call.node().to_owned(), call.idempotency_key()));
        Ok(json!({"n": params["n"].as_i64().unwrap() + 1}))
    })
}

fn output() -> Value {
    json!({"a": {"n": 2}, "b": {"n": 3}, "c": {"n": 4}})
}

fn id() -> RunId {
    RunId::new("run").unwrap()
}

fn runtime(store: impl Store) -> Runtime {
    signing_runtime(store, 1)
}

fn signing_runtime(store: impl Store, seed: u8) -> Runtime {
    let key = SecretKey::from_seed(&[seed; 32]);
    Runtime::builder().store(store).sign_with(key).grant("*").unwrap().build().unwrap()
}

#[tokio::test]
async fn resume_after_a_crash_at_any_commit_repeats_no_committed_step() {
    for crash in 0..4 {
        for durable in [false, true] {
            let (store, calls) = (MemoryStore::new(), Calls::default());
            let failing = runtime(failing(&store, crash, durable));
            let error = failing.start_as(id(), chain(&calls), Map::new()).await.unwrap().await.unwrap_err();
            assert!(matches!(error, RunError::Store { step, .. } if step == crash + 1), "{error}");
            let committed = crash + u64::from(durable);
            let before = calls.lock().unwrap().clone();
            let finished = runtime(store).resume(chain(&calls), &id()).await.unwrap().await.unwrap();
            assert_eq!(finished.output, output(), "crash at commit {crash}, durable: {durable}");
            assert_eq!((finished.steps, finished.status), (4, Status::Completed));
            let after = calls.lock().unwrap()[before.len()..].to_vec();
            let nodes: Vec<&str> = after.iter().map(|(node, _)| node.as_str()).collect();
            let expected: Vec<&str> = ["a", "b", "c"].into_iter().skip(usize::try_from(committed).unwrap()).collect();
            assert_eq!(nodes, expected, "crash at commit {crash}, durable: {durable}");
            if !durable && crash < 3 {
                assert_eq!(before.last(), after.first(), "the same call comes with the same idempotency key");
            }
        }
    }
}

#[tokio::test]
async fn a_failed_run_resumes_at_the_node_that_failed() {
    let (store, calls) = (MemoryStore::new(), Calls::default());
    let broken = Interpreted::new(&CHAIN, |call: &Call, _| match call.node() {
        "b" => Err(ActionError::transient("not today")),
        _ => Ok(json!({"n": 2})),
    });
    let error = runtime(store.clone()).start_as(id(), broken, Map::new()).await.unwrap().await.unwrap_err();
    assert_eq!(error.to_string(), "node `b` failed: not today");
    assert_eq!(store.list().await.unwrap()[0].status, Status::Error);
    let finished = runtime(store.clone()).resume(chain(&calls), &id()).await.unwrap().await.unwrap();
    assert_eq!(finished.output, output());
    assert_eq!(calls.lock().unwrap().iter().map(|(node, _)| node.as_str()).collect::<Vec<_>>(), ["b", "c"]);
    assert_eq!(store.list().await.unwrap()[0].status, Status::Completed);
}

#[tokio::test]
async fn resume_of_a_completed_run_returns_its_result_without_calls() {
    let (store, calls) = (MemoryStore::new(), Calls::default());
    let first = runtime(store.clone()).start_as(id(), chain(&calls), Map::new()).await.unwrap().await.unwrap();
    let again = runtime(store.clone()).resume(chain(&calls), &id()).await.unwrap().await.unwrap();
    assert_eq!((again.output, again.state, again.steps), (first.output, first.state, first.steps));
    assert_eq!(calls.lock().unwrap().len(), 3);
    assert_eq!(store.load(&id()).await.unwrap().len(), 6, "start, four steps, end; a look leaves no trace");
}

/// Returns a journal that stopped after two steps.
async fn stopped() -> Vec<SignedRecord> {
    let store = MemoryStore::new();
    let runtime = runtime(failing(&store, 2, false));
    runtime.start_as(id(), chain(&Calls::default()), Map::new()).await.unwrap().await.unwrap_err();
    store.load(&id()).await.unwrap()
}

/// Resumes from these records; asserts that a refusal changes nothing.
async fn resume(records: Vec<SignedRecord>, name: &RunId, seed: u8, machine: Interpreted) -> Result<Value, String> {
    let store = MemoryStore::new();
    drop(store.create(name, "test/graph", records).await.unwrap());
    let records = store.load(name).await.unwrap();
    match signing_runtime(store.clone(), seed).resume(machine, name).await {
        Ok(run) => Ok(run.await.unwrap().output),
        Err(error) => {
            assert_eq!(store.load(name).await.unwrap(), records, "a failed resume changes nothing");
            drop(store.lease(name).await.expect("a failed resume holds nothing"));
            let mut text = error.to_string();
            let mut cause = std::error::Error::source(&error);
            while let Some(error) = cause {
                text = format!("{text}: {error}");
                cause = error.source();
            }
            Err(text)
        }
    }
}

/// Audits and resumes a tampered journal, and returns the reason of the refusal.
async fn refused(records: Vec<SignedRecord>) -> String {
    let key = SecretKey::from_seed(&[1; 32]).public();
    let proven = audit(&chain(&Calls::default()), &id(), &records, &key, None);
    assert!(proven.is_err(), "an audit finds it too");
    resume(records, &id(), 1, chain(&Calls::default())).await.unwrap_err()
}

#[tokio::test]
async fn a_journal_with_any_byte_changed_is_refused() {
    let records = stopped().await;
    assert_eq!(resume(records.clone(), &id(), 1, chain(&Calls::default())).await, Ok(output()));
    for seq in 0..records.len() {
        for at in 0..records[seq].body.len() {
            let mut changed = records.clone();
            let mut bytes = std::mem::take(&mut changed[seq].body).into_bytes();
            bytes[at] ^= 1;
            changed[seq].body = String::from_utf8(bytes).unwrap();
            let why = refused(changed).await;
            assert!(why.contains(&format!("record {seq} of its journal is not signed by")), "byte {at}: {why}");
        }
        for at in 0..64 {
            let mut changed = records.clone();
            changed[seq].signature[at] ^= 1;
            let why = refused(changed).await;
            assert!(why.contains(&format!("record {seq} of its journal is not signed by")), "byte {at}: {why}");
        }
    }
    for at in 0..32 {
        let mut changed = records.clone();
        let mut end = changed[2].end.unwrap();
        end[at] ^= 1;
        changed[2].end = Some(end);
        assert!(refused(changed).await.contains("record 2 of its journal was not the last one"));
    }
}

#[tokio::test]
async fn resume_refuses_a_journal_truncated_at_any_record() {
    let records = stopped().await;
    let end = records.last().unwrap().end;
    for count in 1..records.len() {
        for kept in [None, end, Some([0; 32])] {
            let mut cut = records[..count].to_vec();
            cut[count - 1].end = kept;
            let why = refused(cut).await;
            let last = count - 1;
            assert!(why.contains(&format!("record {last} of its journal was not the last one")), "{why}");
        }
    }
    assert!(refused(Vec::new()).await.contains("its journal is empty"));
}

#[tokio::test]
async fn resume_refuses_dropped_moved_repeated_or_foreign_records() {
    let records = stopped().await;
    let end = records.last().unwrap().end;
    let as_if_whole = |records: Vec<SignedRecord>| {
        let mut records: Vec<SignedRecord> =
            (0..).zip(records).map(|(seq, record)| SignedRecord { seq, end: None, ..record }).collect();
        records.last_mut().unwrap().end = end;
        records
    };
    let mut dropped = records.clone();
    dropped.remove(1);
    assert!(refused(as_if_whole(dropped)).await.contains("record 1 of its journal does not follow"));
    let mut moved = records.clone();
    moved.swap(1, 2);
    assert!(refused(as_if_whole(moved)).await.contains("record 1 of its journal does not follow"));
    let mut repeated = records.clone();
    repeated.insert(1, records[1].clone());
    assert!(refused(as_if_whole(repeated)).await.contains("record 2 of its journal does not follow"));
    let mut first = records.clone();
    first.remove(0);
    assert!(refused(as_if_whole(first)).await.contains("record 0 of its journal does not follow"));
    // A record of another run with the same key is signed, but does not belong to this run.
    let store = MemoryStore::new();
    let other = RunId::new("other").unwrap();
    let failing = runtime(failing(&store, 2, false));
    failing.start_as(other.clone(), chain(&Calls::default()), Map::new()).await.unwrap().await.unwrap_err();
    let foreign = store.load(&other).await.unwrap();
    let mut mixed = records.clone();
    mixed[1] = foreign[1].clone();
    assert!(refused(as_if_whole(mixed)).await.contains("record 1 of its journal does not follow"));
    let why = resume(records.clone(), &other, 1, chain(&Calls::default())).await.unwrap_err();
    assert!(why.contains("record 0 of its journal does not follow"), "{why}");
}

#[tokio::test]
async fn a_journal_with_a_forged_end_or_without_signatures_is_refused() {
    let records = stopped().await;
    let forger = SecretKey::from_seed(&[9; 32]);
    let mut forged = records.clone();
    let body = forged[2].body.replace("\"seq\":2", "\"seq\":3").replace("\"n\":3", "\"n\":900");
    let link = records[2].link().to_hex();
    let prev = serde_json::from_str::<Value>(&body).unwrap()["prev"].as_str().unwrap().to_owned();
    let body = body.replace(&prev, &link);
    let signature = forger.sign(&Digest::of(&body));
    forged.push(SignedRecord { seq: 3, body, signature, end: records[2].end });
    assert!(refused(forged).await.contains("record 3 of its journal is not signed by"));
    let stripped = records.iter().map(|record| SignedRecord { signature: [0; 64], ..record.clone() }).collect();
    assert!(refused(stripped).await.contains("of its journal is not signed by"));
    let why = resume(records.clone(), &id(), 2, chain(&Calls::default())).await.unwrap_err();
    assert!(why.contains("the key of this runtime"), "{why}");
}

#[tokio::test]
async fn a_journal_of_an_unsupported_version_is_refused() {
    let mut records = stopped().await;
    records.truncate(1);
    let body = records[0].body.replacen("{\"v\":3", "{\"v\":1", 1);
    let signature = SecretKey::from_seed(&[1; 32]).sign(&Digest::of(&body));
    let records = vec![SignedRecord { seq: 0, body, signature, end: None }];
    let why = "record 0 of its journal has version 1, and this program reads versions 2 to 3";
    assert!(refused(records).await.contains(why));
}

#[tokio::test]
async fn a_run_resumes_only_with_its_own_graph() {
    let records = stopped().await;
    let edited = Program { digest: "00000000000000000000000000000000000000000000000000000000000000bb", ..CHAIN };
    let machine = Interpreted::new(&edited, |_, params| Ok(params));
    let refused = resume(records, &id(), 1, machine).await.unwrap_err();
    assert!(refused.contains("00aa") && refused.contains("00bb"), "{refused}");
}

#[tokio::test]
async fn a_run_needs_a_store_to_be_resumed_and_the_run_to_exist() {
    let none = Runtime::builder().grant("*").unwrap().build().unwrap();
    let error = none.resume(chain(&Calls::default()), &id()).await.map(drop).unwrap_err();
    assert!(matches!(error, ResumeError::Stored(StoredRunError::Store(StoreError::None))), "{error}");
    let error = runtime(MemoryStore::new()).resume(chain(&Calls::default()), &id()).await.map(drop).unwrap_err();
    assert!(matches!(error, ResumeError::Stored(StoredRunError::Store(StoreError::NotFound(_)))), "{error}");
}

#[tokio::test]
async fn a_run_is_executed_by_one_process_at_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    let (started, release) = (Arc::new(tokio::sync::Notify::new()), Arc::new(std::sync::Barrier::new(2)));
    let (begun, barrier) = (Arc::clone(&started), Arc::clone(&release));
    let waits = Interpreted::new(&CHAIN, move |call: &Call, params: Value| {
        if call.node() == "b" {
            begun.notify_one();
            tokio::task::block_in_place(|| barrier.wait());
        }
        Ok(json!({"n": params["n"].as_i64().unwrap() + 1}))
    });
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let first = runtime(SqliteStore::open(&path).await.unwrap());
    let run = tokio.spawn(async move { first.start_as(id(), waits, Map::new()).await.unwrap().await.unwrap().output });
    started.notified().await;
    let second = runtime(SqliteStore::open(&path).await.unwrap());
    let error = second.resume(chain(&Calls::default()), &id()).await.map(drop).unwrap_err();
    assert!(matches!(error, ResumeError::Stored(StoredRunError::Store(StoreError::Leased { .. }))), "{error}");
    release.wait();
    assert_eq!(run.await.unwrap(), output());
    tokio.shutdown_background();
    let again = second.resume(chain(&Calls::default()), &id()).await.unwrap().await.unwrap();
    assert_eq!(again.output, output());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_runs_at_once_keep_a_journal_each() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = runtime(SqliteStore::open(directory.path().join("runs.db")).await.unwrap());
    let name = |number: usize| RunId::new(format!("run-{number}")).unwrap();
    let mut runs = Vec::new();
    for number in 0..40 {
        runs.push(runtime.start_as(name(number), chain(&Calls::default()), Map::new()).await.unwrap());
    }
    for run in runs {
        assert_eq!(run.await.unwrap().output, output());
    }
    for number in 0..40 {
        let again = runtime.resume(chain(&Calls::default()), &name(number)).await.unwrap().await.unwrap();
        assert_eq!(again.output, output(), "the journal of run {number} is whole");
    }
}

/// Not a test of its own: the process that the next test kills. It writes a line for each call.
#[tokio::test]
async fn the_process_that_is_killed() {
    let Some(directory) = std::env::var_os("GRAPH_TEST_KILLED") else { return };
    drop(drive(Path::new(&directory)).await);
}

/// Starts or resumes the run, with a slow tool.
async fn drive(directory: &Path) -> Value {
    let calls = directory.join("calls");
    let machine = Interpreted::new(&LOOP, move |call: &Call, params: Value| {
        use std::io::Write;
        let mut file = std::fs::File::options().create(true).append(true).open(&calls).unwrap();
        // A single write, so a line is either complete or missing.
        file.write_all(format!("{} {}\n", call.step(), call.idempotency_key()).as_bytes()).unwrap();
        std::thread::sleep(Duration::from_millis(2));
        Ok(json!(params["n"].as_i64().unwrap() + 1))
    });
    let store = SqliteStore::open(directory.join("runs.db")).await.unwrap();
    let exists = store.list().await.unwrap().iter().any(|one| one.run == id());
    let runtime = runtime(store);
    let run = if exists {
        runtime.resume(machine, &id()).await.unwrap()
    } else {
        runtime.start_as(id(), machine, Map::new()).await.unwrap()
    };
    run.await.unwrap().output
}

/// Counts to 100.
const LOOP: Program<'static> = Program {
    keys: &[Key { name: "n", initial: Some("0") }],
    settings: r#"{"max_steps":1000}"#,
    nodes: &[
        (
            "count",
            r#"{"line":1,"does":{"action":0},"params":{"n":"${state.n}"},"assign":{"n":"${result}"},"next":[{"to":"end","when":{"path":"state.n","op":"gte","value":100}},{"to":"count"}]}"#,
        ),
        ("end", r#"{"line":2,"does":"return"}"#),
    ],
    ..PROGRAM
};

#[tokio::test]
async fn a_killed_process_loses_no_committed_step_and_repeats_none() {
    let directory = tempfile::tempdir().unwrap();
    let mut kills = 0;
    for round in 0..6_u64 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "recovery::the_process_that_is_killed"])
            .env("GRAPH_TEST_KILLED", directory.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        tokio::time::sleep(Duration::from_millis(60 + 23 * round)).await;
        kills += u32::from(child.try_wait().unwrap().is_none());
        // SIGKILL.
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert!(kills > 0, "the process was not killed while it was at work");
    assert_eq!(drive(directory.path()).await, json!({"n": 100}));
    let calls = std::fs::read_to_string(directory.path().join("calls")).unwrap();
    let mut seen: Vec<Vec<&str>> = vec![Vec::new(); 101];
    for line in calls.lines() {
        let (step, key) = line.split_once(' ').unwrap();
        seen[step.parse::<usize>().unwrap()].push(key);
    }
    let mut repeated = 0;
    for (step, keys) in seen.iter().enumerate().skip(1) {
        assert!(!keys.is_empty(), "step {step} was never made");
        assert!(keys.iter().all(|key| *key == keys[0]), "step {step} has one idempotency key");
        repeated += keys.len() - 1;
    }
    // A kill can come between a call and its commit, so it repeats one step at most. Committed steps are not repeated.
    assert!(repeated <= 6, "{repeated} calls were repeated by 6 kills");
}

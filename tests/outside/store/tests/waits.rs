//! Runs that wait: their waits are as durable as their records, and the processes that have the directory open share them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use file_store::FileStore;
use graph_runtime::record::{Entry, Record, SignedRecord};
use graph_runtime::store::{Claim, Claimed, RunFilter, Wait, WaitChanges, WaitId};
use graph_runtime::{
    ActionError, Call, Clock, Digest, ManualClock, Map, RunError, RunId, Runtime, SecretKey, Status, Store, Value,
    WorkerOptions, audit,
};
use serde_json::json;

mod graphs {
    graph_runtime::graph!("graphs/reminders.yaml");
}
use graphs::{Reminders, reminders};
use graphs::reminders::tools::bench_remind;

/// The environment variable that makes a process one that another test starts; its value is the working directory.
const DIRECTORY: &str = "FILE_STORE_WAITS";
/// The environment variable with the name of the part that such a process plays.
const PART: &str = "FILE_STORE_PART";
/// A time that is over, and one that is not, by any clock.
const PAST: i64 = 1000;
const FUTURE: i64 = 32_503_680_000_000;

fn id(name: impl Into<String>) -> RunId {
    RunId::new(name).unwrap()
}

fn digest() -> Digest {
    Digest::of("graph")
}

fn record(seq: u64) -> SignedRecord {
    let body = format!("{{\"seq\":{seq},\"digest\":\"{}\"}}", digest());
    SignedRecord { seq, body, signature: [7; 64], end: Some([9; 32]) }
}

fn opens(step: u64, due: Option<i64>) -> WaitChanges {
    WaitChanges { open: vec![Wait::new(WaitId::of_visit(step), "node", 1, due)], ..WaitChanges::default() }
}

/// Begins a run that waits.
async fn waiting(store: &FileStore, name: impl Into<String>, due: i64) -> RunId {
    let run = id(name);
    let lease = store.create(&run, "test/waits", vec![record(0)]).await.unwrap();
    store.append_waiting(&lease, 1, vec![record(1)], Status::Waiting, opens(1, Some(due))).await.unwrap();
    run
}

async fn claim(store: &FileStore, limit: usize) -> Vec<Claimed> {
    store.claim(&Claim::new("test/waits", digest(), limit)).await.unwrap()
}

async fn next_wake(store: &FileStore) -> Option<i64> {
    store.next_wake(&[("test/waits".to_owned(), digest())]).await.unwrap()
}

async fn due(store: &FileStore, run: &RunId) -> Option<i64> {
    let due = store.find(run).await.unwrap().next_due?;
    Some(i64::try_from(due.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis()).unwrap())
}

fn names(claimed: &[Claimed]) -> Vec<String> {
    let mut names: Vec<String> = claimed.iter().map(|one| one.lease.run().to_string()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn waits_survive_a_reopen() {
    let directory = tempfile::tempdir().unwrap();
    let store = FileStore::open(directory.path()).unwrap();
    let run = id("run");
    let lease = store.create(&run, "test/waits", vec![record(0)]).await.unwrap();
    let open = [(1, Some(FUTURE)), (2, Some(PAST)), (3, None)].map(|(step, due)| opens(step, due).open).concat();
    let waits = WaitChanges { open, ..WaitChanges::default() };
    store.append_waiting(&lease, 1, vec![record(1)], Status::Waiting, waits).await.unwrap();
    drop((lease, store));

    let store = FileStore::open(directory.path()).unwrap();
    assert_eq!((due(&store, &run).await, next_wake(&store).await), (Some(PAST), Some(PAST)));
    let one = claim(&store, 9).await.pop().unwrap();
    store.postpone(one.lease, PAST + 7).await.unwrap();
    drop(store);

    let store = FileStore::open(directory.path()).unwrap();
    assert_eq!(next_wake(&store).await, Some(PAST + 7));
    let one = claim(&store, 9).await.pop().unwrap();
    assert_eq!((one.tries, one.postponed), (1, 1));
    let closes = WaitChanges { close: vec![WaitId::of_visit(2)], ..WaitChanges::default() };
    store.append_waiting(&one.lease, 2, vec![record(2)], Status::Waiting, closes).await.unwrap();
    drop((one, store));

    let store = FileStore::open(directory.path()).unwrap();
    assert_eq!((due(&store, &run).await, next_wake(&store).await), (Some(FUTURE), Some(FUTURE)));
    store.cancel(&run).await.unwrap();
    drop(store);

    let store = FileStore::open(directory.path()).unwrap();
    let one = claim(&store, 9).await.pop().unwrap();
    assert!(one.lease.cancel_request().is_set());
    assert_eq!((one.tries, one.postponed), (1, 0));
    store.append(&one.lease, 3, vec![record(3)], Status::Cancelled).await.unwrap();
    drop((one, store));

    let store = FileStore::open(directory.path()).unwrap();
    assert_eq!((due(&store, &run).await, next_wake(&store).await), (None, None));
}

#[tokio::test]
async fn a_torn_line_has_neither_its_records_nor_its_waits() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run.journal");
    let store = FileStore::open(directory.path()).unwrap();
    let run = waiting(&store, "run", FUTURE).await;
    let before = fs::read(&path).unwrap();
    let lease = store.lease(&run).await.unwrap();
    let leased = fs::read(&path).unwrap();
    let waits = WaitChanges { close: vec![WaitId::of_visit(1)], ..opens(2, Some(PAST)) };
    store.append_waiting(&lease, 2, vec![record(2)], Status::Waiting, waits).await.unwrap();
    drop(lease);
    let after = fs::read(&path).unwrap();
    assert!(before.len() < leased.len() && leased.len() + 200 < after.len());
    for length in leased.len()..=after.len() {
        // Blanking the token of the last record before this line comes after it.
        let torn = [&leased, &after[leased.len()..length]].concat();
        fs::write(&path, torn).unwrap();
        let store = FileStore::open(directory.path()).unwrap();
        let found = (store.load(&run).await.unwrap().len(), due(&store, &run).await, next_wake(&store).await);
        match length == after.len() {
            true => assert_eq!(found, (3, Some(PAST), Some(PAST))),
            false => assert_eq!(found, (2, Some(FUTURE), Some(FUTURE)), "{length}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_stores_share_the_waits_of_a_directory() {
    let directory = tempfile::tempdir().unwrap();
    let (one, other) = (FileStore::open(directory.path()).unwrap(), FileStore::open(directory.path()).unwrap());
    for at in 0..30 {
        waiting(&one, format!("run-{at:02}"), PAST + at).await;
    }
    assert_eq!(next_wake(&other).await, Some(PAST), "each sees the waits of the other");
    let worker = async |store: &FileStore| {
        let mut mine = Vec::new();
        loop {
            let claimed = claim(store, 2).await;
            if claimed.is_empty() {
                return mine;
            }
            mine.extend(claimed);
        }
    };
    let (mine, theirs) = tokio::join!(worker(&one), worker(&other));
    assert!(!mine.is_empty() && !theirs.is_empty(), "each has a part");
    let mut all = [names(&mine), names(&theirs)].concat();
    all.sort();
    assert_eq!(all, (0..30).map(|at| format!("run-{at:02}")).collect::<Vec<_>>(), "and each run is claimed by one");
    assert_eq!((next_wake(&one).await, next_wake(&other).await), (None, None));

    // Each notices within a moment that the other gives a lease back, lets a run wait, and cancels one.
    let mut seen = other.news(0).await.unwrap();
    let mut next = async || {
        let news = tokio::time::timeout(Duration::from_secs(5), other.news(seen)).await;
        seen = news.expect("there are news").unwrap();
    };
    drop(mine);
    while next_wake(&other).await.is_none() {
        next().await;
    }
    let _held = worker(&one).await;
    waiting(&one, "far", FUTURE).await;
    while next_wake(&other).await != Some(FUTURE) {
        next().await;
    }
    one.cancel(&id("far")).await.unwrap();
    while next_wake(&other).await == Some(FUTURE) {
        next().await;
    }
    let far = claim(&other, 9).await.pop().unwrap();
    assert!(far.lease.cancel_request().is_set());
    other.postpone(far.lease, FUTURE + 1).await.unwrap();
    assert_eq!((next_wake(&one).await, claim(&one, 9).await.len()), (Some(FUTURE + 1), 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_looks_for_holders_is_not_one() {
    let directory = tempfile::tempdir().unwrap();
    let (one, other) = (FileStore::open(directory.path()).unwrap(), FileStore::open(directory.path()).unwrap());
    let run = waiting(&one, "run", PAST).await;
    let looks = tokio::spawn(async move {
        loop {
            next_wake(&other).await;
        }
    });
    for _ in 0..300 {
        drop(one.lease(&run).await.unwrap());
    }
    looks.abort();
}

#[tokio::test]
async fn the_time_does_not_go_back_in_another_process() {
    let directory = tempfile::tempdir().unwrap();
    let at =
        |seconds| Arc::new(ManualClock::at(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))) as Arc<dyn Clock>;
    let open = |seconds| FileStore::open_with_clock(directory.path(), at(seconds)).unwrap();
    let (early, late) = (open(1000), open(5000));
    assert_eq!((early.now().await.unwrap(), late.now().await.unwrap()), (1_000_000, 5_000_000));
    waiting(&late, "run", 4_000_000).await;
    assert_eq!(early.now().await.unwrap(), 5_000_000, "a time that waits began at has come for all");
    assert_eq!(claim(&early, 9).await.len(), 1);
    late.remove(&id("run")).await.unwrap();
    drop((early, late));
    assert_eq!(open(1000).now().await.unwrap(), 5_000_000, "also when nothing else has that time");
    assert_eq!(open(6000).now().await.unwrap(), 6_000_000);
    // The first time was being written when the process died.
    for torn in ["", "0000000", "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"] {
        fs::write(directory.path().join("time"), torn).unwrap();
        let store = open(7000);
        waiting(&store, format!("run-{}", torn.len()), 1).await;
        assert_eq!(open(1000).now().await.unwrap(), 7_000_000);
    }
}

#[tokio::test]
async fn a_damaged_run_does_not_stop_the_others() {
    let directory = tempfile::tempdir().unwrap();
    let store = FileStore::open(directory.path()).unwrap();
    for name in ["damaged", "whole"] {
        waiting(&store, name, PAST).await;
    }
    let path = directory.path().join("damaged.journal");
    let mut bytes = fs::read(&path).unwrap();
    bytes[150] ^= 1;
    fs::write(&path, bytes).unwrap();
    assert!(store.load(&id("damaged")).await.is_err());
    assert_eq!(names(&claim(&store, 9).await), ["whole"]);
}

/// The tool of the graph: writes a line for each call, and says how many are left of so many.
struct Remind(File, u64);

impl bench_remind::Tool for Remind {
    async fn bench_remind(&self, call: &Call, _: Map<String, Value>) -> Result<Value, ActionError> {
        // A single write, so a line is either complete or missing.
        (&self.0).write_all(format!("{} {}\n", call.run_id(), call.step()).as_bytes())?;
        Ok(json!({"left": (2 * self.1 - 1).saturating_sub(call.step())}))
    }
}

fn key() -> SecretKey {
    SecretKey::from_seed(&[3; 32])
}

fn runtime(directory: &Path) -> (FileStore, Runtime) {
    let store = FileStore::open(directory.join("runs")).unwrap();
    let builder = Runtime::builder().store(store.clone()).sign_with(key()).grant("*").unwrap();
    (store, builder.build().unwrap())
}

fn graph(directory: &Path, calls: u64) -> Reminders<Remind> {
    let file = File::options().create(true).append(true).open(directory.join("calls")).unwrap();
    Reminders::new(Remind(file, calls))
}

/// Returns once all runs have ended.
async fn all_ended(store: &FileStore) {
    let filter = RunFilter { statuses: vec![Status::Running, Status::Waiting], ..RunFilter::default() };
    while !store.runs(&filter, &Default::default()).await.unwrap().runs.is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Asserts that a run has completed, that its journal is proven, and that it has each step once.
async fn assert_complete(store: &FileStore, directory: &Path, run: &RunId, calls: u64) {
    assert_eq!(store.find(run).await.unwrap().status, Status::Completed);
    let records = store.load(run).await.unwrap();
    let mut steps = Vec::new();
    for signed in &records {
        if let Entry::Step(step) = serde_json::from_str::<Record>(&signed.body).unwrap().entry {
            // A visit that waits has a record where it begins to, too.
            steps.extend(step.visits.iter().filter(|visit| visit.opened.is_none()).map(|visit| visit.step));
        }
    }
    steps.sort_unstable();
    assert_eq!(steps, (1..=2 * calls).collect::<Vec<_>>(), "each step of {run} is there once");
    let proof = audit(&graph(directory, calls), run, &records, &key().public(), None).unwrap();
    assert_eq!((proof.status, proof.steps), (Status::Completed, 2 * calls));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_continues_a_run_of_a_store_that_was_closed() {
    let directory = tempfile::tempdir().unwrap();
    let (directory, run) = (directory.path(), id("run"));
    {
        let (_, runtime) = runtime(directory);
        let started = runtime.start_as(run.clone(), graph(directory, 3), Map::new()).await.unwrap();
        assert!(matches!(started.await, Err(RunError::Waiting { .. })));
    }
    let (store, runtime) = runtime(directory);
    let found = store.find(&run).await.unwrap();
    assert!(found.status == Status::Waiting && found.holder.is_none() && found.next_due.is_some());
    let worker = runtime.worker(WorkerOptions::default().graph(graph(directory, 3))).unwrap();
    all_ended(&store).await;
    assert_complete(&store, directory, &run, 3).await;
    assert_eq!(fs::read_to_string(directory.join("calls")).unwrap(), "run 1\nrun 3\nrun 5\n");
    assert_eq!((worker.status().claimed, worker.status().postponed), (2, 0));
    assert!(worker.shutdown(Duration::from_secs(10)).await.is_empty());
}

/// Starts a process that plays a part in a directory, and waits until it says that it has begun.
fn start(part: &str, directory: &Path) -> (Child, impl Iterator<Item = String> + use<>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_processes_that_tests_start", "--nocapture"])
        .env(DIRECTORY, directory)
        .env(PART, part)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line == "began"), "the process did not begin");
    (child, lines)
}

/// Not a test of its own: the processes that the next tests start.
#[test]
fn the_processes_that_tests_start() {
    let Some(directory) = std::env::var_os(DIRECTORY).map(PathBuf::from) else { return };
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    tokio.block_on(async {
        println!("\nbegan");
        match std::env::var(PART).unwrap().as_str() {
            "die" => {
                let store = FileStore::open(&directory).unwrap();
                let claimed = claim(&store, 9).await;
                assert_eq!(claimed.len(), 1);
                std::process::abort();
            }
            "claim" => {
                let (store, mut mine) = (FileStore::open(&directory).unwrap(), Vec::new());
                loop {
                    let claimed = claim(&store, 1).await;
                    if claimed.is_empty() {
                        break;
                    }
                    println!("{}", claimed[0].lease.run());
                    mine.extend(claimed);
                }
                println!("done");
                tokio::time::sleep(Duration::from_secs(60)).await;
            }
            _ => {
                let (store, runtime) = runtime(&directory);
                let options = WorkerOptions::default().graph(graph(&directory, CALLS)).max_tries(None);
                let _worker = runtime.worker(options).unwrap();
                all_ended(&store).await;
            }
        }
    });
}

#[tokio::test]
async fn a_claim_whose_process_died_counts_as_a_try() {
    let directory = tempfile::tempdir().unwrap();
    let store = FileStore::open(directory.path()).unwrap();
    let run = waiting(&store, "run", PAST).await;
    let one = claim(&store, 9).await.pop().unwrap();
    assert_eq!(next_wake(&store).await, None);
    let seen = store.news(0).await.unwrap();
    drop(one);
    store.news(seen).await.unwrap();
    for _ in 0..2 {
        start("die", directory.path()).0.wait().unwrap();
    }
    assert!(store.find(&run).await.unwrap().holder.is_none(), "the system released the lock");
    let one = claim(&store, 9).await.pop().unwrap();
    assert_eq!((one.tries, one.postponed), (3, 0), "a lease that was given back is no try, and one that was lost is");
    drop(one);
    assert_eq!(claim(&store, 9).await[0].tries, 1);
    // A record ends the count.
    start("die", directory.path()).0.wait().unwrap();
    let one = claim(&store, 9).await.pop().unwrap();
    assert_eq!(one.tries, 2);
    store.append_waiting(&one.lease, 2, vec![record(2)], Status::Waiting, WaitChanges::default()).await.unwrap();
    assert_eq!(claim(&store, 9).await[0].tries, 1);
}

#[tokio::test]
async fn processes_claim_each_run_once() {
    let directory = tempfile::tempdir().unwrap();
    let store = FileStore::open(directory.path()).unwrap();
    for at in 0..60 {
        waiting(&store, format!("run-{at:02}"), PAST).await;
    }
    let started: Vec<_> = (0..4).map(|_| start("claim", directory.path())).collect();
    let mut claimed = Vec::new();
    let mut processes = Vec::new();
    for (process, lines) in started {
        claimed.extend(lines.take_while(|line| line != "done"));
        processes.push(process);
    }
    claimed.sort();
    assert_eq!(claimed, (0..60).map(|at| format!("run-{at:02}")).collect::<Vec<_>>());
    assert_eq!(next_wake(&store).await, None);
    let seen = store.news(0).await.unwrap();
    for mut process in processes {
        process.kill().unwrap();
        process.wait().unwrap();
    }
    // Dead processes say nothing, and there are news all the same.
    tokio::time::timeout(Duration::from_secs(5), store.news(seen)).await.expect("there are news").unwrap();
    assert_eq!(claim(&store, 99).await.len(), 60);
}

/// The number of runs, and the number of calls of each.
const RUNS: u64 = 4;
const CALLS: u64 = 8;

#[tokio::test(flavor = "multi_thread")]
async fn killed_workers_lose_no_wait_and_repeat_no_step() {
    let chance = || RandomState::new().build_hasher().finish();
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let runs: Vec<RunId> = (0..RUNS).map(|number| id(format!("run{number}"))).collect();
    {
        let (_, runtime) = runtime(directory);
        for run in &runs {
            let started = runtime.start_as(run.clone(), graph(directory, CALLS), Map::new()).await.unwrap();
            assert!(matches!(started.await, Err(RunError::Waiting { .. })));
        }
    }
    let store = FileStore::open(directory.join("runs")).unwrap();
    let mut killed = 0;
    for round in 1.. {
        let workers = [start("work", directory), start("work", directory)];
        // The moment grows with each round: on a slow disk, a short moment is only enough to claim the runs.
        tokio::time::sleep(Duration::from_micros(chance() % (40_000 * round))).await;
        let mut is_done = true;
        for (mut worker, _) in workers {
            is_done &= worker.try_wait().unwrap().is_some();
            worker.kill().unwrap();
            worker.wait().unwrap();
        }
        for one in store.list().await.unwrap() {
            assert!(one.holder.is_none(), "the processes that held {} are dead", one.run);
            let waits = one.status == Status::Waiting;
            assert!(!waits || one.next_due.is_some(), "{} waits for nothing", one.run);
        }
        if is_done {
            break;
        }
        killed += 1;
    }
    for run in &runs {
        assert_complete(&store, directory, run, CALLS).await;
    }
    let mut calls = BTreeMap::<String, u64>::new();
    for line in fs::read_to_string(directory.join("calls")).unwrap().lines() {
        *calls.entry(line.to_owned()).or_default() += 1;
    }
    assert_eq!(calls.len() as u64, RUNS * CALLS);
    println!("{killed} rounds of kills, {} calls were repeated", calls.values().filter(|times| **times > 1).count());
}

//! Processes that are killed with SIGKILL in the middle of runs: every committed step is still there, and none occurs
//! twice.
//!
//! `KILLS=1000 cargo test --release --test kills -- --nocapture` takes minutes.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use file_store::FileStore;
use graph_runtime::record::{Entry, Record, SignedRecord, Status};
use graph_runtime::{ActionError, Call, Map, RunId, Runtime, SecretKey, Store, audit};

mod graphs {
    graph_runtime::graph!("../../../graphs/countdown.yaml");
}
use graphs::{Countdown, countdown};
use graphs::countdown::tools::bench_tick;

/// The environment variable that makes a process the one to be killed; its value is the working directory.
const DIRECTORY: &str = "FILE_STORE_KILLS";
/// The number of runs, and the number of steps of each.
const RUNS: u64 = 4;
const STEPS: u64 = 60;

/// A tool that counts down from the step, and writes a line for each call.
struct Ticks(File);

impl bench_tick::Tool for Ticks {
    async fn bench_tick(
        &self,
        call: &Call,
        _: bench_tick::Params,
    ) -> Result<bench_tick::Output, ActionError> {
        // A single write, so a line is either complete or missing.
        (&self.0).write_all(format!("{} {}\n", call.run_id(), call.step()).as_bytes())?;
        tokio::time::sleep(Duration::from_micros(300)).await;
        Ok(bench_tick::Output { left: i64::try_from(STEPS - call.step())? })
    }
}

fn id(number: u64) -> RunId {
    RunId::new(format!("run{number}")).unwrap()
}

fn key() -> SecretKey {
    SecretKey::from_seed(&[3; 32])
}

/// Not a test of its own: the process that the next test kills.
#[test]
fn the_process_that_is_killed() {
    let Some(directory) = std::env::var_os(DIRECTORY).map(PathBuf::from) else { return };
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    tokio.block_on(async {
        let store = FileStore::open(directory.join("runs")).unwrap();
        let known: Vec<RunId> = store.list().await.unwrap().into_iter().map(|one| one.run).collect();
        let builder = Runtime::builder().store(store).sign_with(key()).grant("*").unwrap();
        let runtime = builder.build().unwrap();
        let calls = || File::options().create(true).append(true).open(directory.join("calls")).unwrap();
        let machine = || Countdown::new(Ticks(calls()));
        println!("\nat work");
        let mut runs = Vec::new();
        for run in (0..RUNS).map(id) {
            runs.push(match known.contains(&run) {
                true => runtime.resume(machine(), &run).await.unwrap(),
                false => runtime.start_as(run, machine(), Map::new()).await.unwrap(),
            });
        }
        for run in runs {
            run.await.unwrap();
        }
    });
    println!("\ndone");
}

/// Returns the journals of a store's runs, by their names.
async fn journals(directory: &Path) -> BTreeMap<String, (Status, Vec<SignedRecord>)> {
    let store = FileStore::open(directory.join("runs")).unwrap();
    let mut journals = BTreeMap::new();
    for one in store.list().await.unwrap() {
        assert!(one.holder.is_none(), "whoever held it is dead");
        let records = store.load(&one.run).await.unwrap();
        journals.insert(one.run.to_string(), (one.status, records));
    }
    journals
}

/// Returns the numbers of the committed visits.
fn steps(records: &[SignedRecord]) -> Vec<u64> {
    let mut steps = Vec::new();
    for signed in records {
        let record: Record = serde_json::from_str(&signed.body).unwrap();
        if let Entry::Step(step) = record.entry {
            steps.extend(step.visits.iter().map(|visit| visit.step));
        }
    }
    steps
}

/// Returns how often each call was made.
fn calls(directory: &Path) -> HashMap<(String, u64), u64> {
    let mut made = HashMap::new();
    for line in fs::read_to_string(directory.join("calls")).unwrap_or_default().lines() {
        let (run, step) = line.split_once(' ').unwrap();
        *made.entry((run.to_owned(), step.parse().unwrap())).or_default() += 1;
    }
    made
}

/// Lets a process work for a moment; returns whether it finished.
fn work_for(directory: &Path, moment: Duration) -> bool {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_process_that_is_killed", "--nocapture"])
        .env(DIRECTORY, directory)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line == "at work"), "the process did not begin");
    std::thread::sleep(moment);
    child.kill().unwrap();
    child.wait().unwrap();
    lines.any(|line| line == "done")
}

#[tokio::test]
async fn a_killed_process_loses_no_committed_step_and_repeats_none() {
    let kills = std::env::var("KILLS").map_or(25, |kills| kills.parse().unwrap());
    let chance = || RandomState::new().build_hasher().finish();
    let (mut killed, mut cut) = (0_u64, 0_u64);
    while killed < kills {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let mut before = BTreeMap::<String, (Status, Vec<SignedRecord>)>::new();
        let mut made_before = HashMap::new();
        for round in 1.. {
            // The moment grows with each round: on a slow disk, a short moment is only enough to resume the runs.
            let is_done = work_for(directory, Duration::from_micros(chance() % (20_000 * round)));
            killed += u64::from(!is_done);
            let (after, made) = (journals(directory).await, calls(directory));
            for (run, (_, old)) in &before {
                let new = &after[run].1;
                let bodies = |records: &[SignedRecord]| records.iter().map(|one| one.body.clone()).collect::<Vec<_>>();
                assert!(bodies(new).starts_with(&bodies(old)), "what was committed of {run} is there, as it was");
                // The first step that is not committed was in progress.
                for step in steps(old) {
                    let key = (run.clone(), step);
                    assert_eq!(made.get(&key), made_before.get(&key), "step {step} of {run} was done again");
                }
            }
            for (run, (_, records)) in &after {
                let expected: Vec<u64> = (1..).take(steps(records).len()).collect();
                assert_eq!(steps(records), expected, "each step of {run} is there once");
                let graph = Countdown::new(Ticks(File::create(directory.join("none")).unwrap()));
                let proof = audit(&graph, &RunId::new(run.as_str()).unwrap(), records, &key().public(), None);
                assert_eq!(proof.unwrap().steps, expected.len() as u64, "and the journal is proven");
            }
            cut += u64::from(!is_done && after.values().any(|(status, _)| *status == Status::Running));
            (before, made_before) = (after, made);
            if is_done {
                break;
            }
        }
        assert_eq!(before.len() as u64, RUNS);
        for (run, (status, records)) in &before {
            assert_eq!((*status, steps(records).len() as u64), (Status::Completed, STEPS + 1), "{run} came to its end");
        }
    }
    println!("{killed} kills, {cut} of them in the middle of runs");
    assert!(cut > 0, "no run was cut");
}

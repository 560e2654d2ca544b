//! `start` and `resume` whose futures are dropped after any number of polls, as by a client that hangs up.
//!
//! The following holds whenever a future is dropped. A run that is in the store is running or has ended. Nobody holds a
//! run without a task. Another process sees the same runs and the same holders, and can cancel the same runs.
//!
//! `DROPS=1000 cargo test -p state-graph-runtime --test runtime dropped` drops a thousand of each, on both kinds of tokio's
//! runtimes.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::Path;
use std::pin::{Pin, pin};
use std::process::Command;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use graph_runtime::__private::{Key, Program};
use graph_runtime::record::Status;
use graph_runtime::store::StoreError;
use graph_runtime::{ActionError, Call, Map, Options, RunId, Runtime, SecretKey, SqliteStore, Store};
use serde_json::json;

use crate::interpreted::{Interpreted, PROGRAM};

/// The environment variable that makes a process the observer; its value is the store's file.
const FILE: &str = "GRAPH_DROPPED_FILE";

const ONE: Program<'static> = Program {
    keys: &[Key { name: "a", initial: None }],
    nodes: &[
        ("a", r#"{"line":1,"does":{"action":0},"assign":{"a":"${result}"},"next":[{"to":"end"}]}"#),
        ("end", r#"{"line":2,"does":"return"}"#),
    ],
    ..PROGRAM
};

/// A graph whose call returns at once.
fn quick() -> Interpreted {
    Interpreted::new(&ONE, |_: &Call, _| Ok(json!(1)))
}

/// A graph whose call returns when its run is cancelled.
fn waiting() -> Interpreted {
    Interpreted::waiting(&ONE, |call: &Call, _| {
        let token = call.cancel_token();
        Box::pin(async move {
            token.cancelled().await;
            Err(ActionError::permanent("cancelled"))
        })
    })
}

fn failing() -> Interpreted {
    Interpreted::new(&ONE, |_: &Call, _| Err(ActionError::permanent("not today")))
}

fn id(name: &str) -> RunId {
    RunId::new(name).unwrap()
}

fn rounds() -> u64 {
    std::env::var("DROPS").map_or(60, |rounds| rounds.parse().unwrap())
}

/// Polls a future up to `polls` times, with a pause between, and drops it. Returns whether it had completed.
async fn drop_after<F: Future>(polls: u64, pause: Duration, future: F) -> bool {
    let mut future = pin!(future);
    for _ in 0..polls {
        if poll(future.as_mut()) {
            return true;
        }
        match pause.is_zero() {
            true => tokio::task::yield_now().await,
            false => tokio::time::sleep(pause).await,
        }
    }
    false
}

fn poll<F: Future>(future: Pin<&mut F>) -> bool {
    future.poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

/// Returns each run's status, and whether somebody holds the run.
async fn statuses(store: &SqliteStore) -> BTreeMap<String, (Status, bool)> {
    let list = store.list().await.unwrap();
    list.into_iter().map(|run| (run.run.to_string(), (run.status, run.holder.is_some()))).collect()
}

/// Not a test of its own: the observing process. It prints each run's status, and then cancels the run.
#[test]
fn the_process_that_looks() {
    let Some(path) = std::env::var_os(FILE) else { return };
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio.block_on(async {
        let store = SqliteStore::open(path).await.unwrap();
        for (run, (status, is_held)) in statuses(&store).await {
            let cancelled = match store.cancel(&id(&run)).await {
                Ok(()) => "asked".to_owned(),
                Err(StoreError::Ended { status, .. }) => status.name().to_owned(),
                Err(error) => error.to_string(),
            };
            println!("seen {run} {} {is_held} {cancelled}", status.name());
        }
    });
}

/// Starts an observing process, and returns its lines.
async fn seen_from_elsewhere(path: &Path) -> Vec<String> {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "dropped::the_process_that_looks", "--nocapture"]).env(FILE, path);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().filter_map(|line| line.split_once("seen ").map(|(_, rest)| rest.to_owned())).collect()
}

/// Returns the runs with a wrong status: runs that wait must be running, and all others must have ended.
fn wrong(found: &BTreeMap<String, (Status, bool)>) -> Vec<String> {
    let is_wrong = |(name, (status, is_held)): &(&String, &(Status, bool))| match (name.contains("waits"), status) {
        (true, Status::Running) => !is_held,
        (false, Status::Completed) => *is_held,
        // The run failed before, and its resume was dropped before anything was done.
        (_, Status::Error) => *is_held || !name.starts_with("resume"),
        _ => true,
    };
    found.iter().filter(is_wrong).map(|run| format!("{run:?}")).collect()
}

async fn drop_at_every_poll() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    let store = SqliteStore::open(&path).await.unwrap();
    let other = SqliteStore::open(&path).await.unwrap();
    let builder = Runtime::builder().store(store.clone()).sign_with(SecretKey::from_seed(&[1; 32]));
    let runtime = builder.grant("*").unwrap().build().unwrap();
    let (mut dropped, mut done) = (0, 0);
    for round in 0..rounds() {
        let graph = if round % 2 == 0 { quick() } else { waiting() };
        let kind = if round % 2 == 0 { "quick" } else { "waits" };
        // Varies the number of polls, and the pause between them.
        let (polls, pause) =
            (round / 2 % 6, Duration::from_micros([0, 40, 150, 400, 1_000][(round / 12 % 5) as usize]));
        let start = runtime.start_as(id(&format!("start-{kind}-{round}")), graph.clone(), Map::new());
        let started = drop_after(polls, pause, start).await;
        let run = id(&format!("resume-{kind}-{round}"));
        let failed =
            runtime.start_with(Options { run: Some(run.clone()), ..Options::default() }, failing(), Map::new());
        failed.await.unwrap().await.unwrap_err();
        let resumed = drop_after(polls * 2, pause, runtime.resume(graph, &run)).await;
        for is_done in [started, resumed] {
            done += u64::from(is_done);
            dropped += u64::from(!is_done);
        }
    }
    assert!(dropped > rounds() / 3, "{dropped} were dropped");
    let (began, mut stable, mut found) = (Instant::now(), Instant::now(), BTreeMap::new());
    // The task of the last dropped future may still be running.
    while stable.elapsed() < Duration::from_millis(500) {
        let now = statuses(&store).await;
        let wrong = wrong(&now);
        if !wrong.is_empty() || now != found {
            (stable, found) = (Instant::now(), now);
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{} of {}: {wrong:?}", wrong.len(), found.len());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(found, statuses(&other).await, "another store of this process sees the same");
    let expected: Vec<String> = found
        .iter()
        .map(|(run, (status, is_held))| {
            let cancelled = if *is_held { "asked" } else { status.name() };
            format!("{run} {} {is_held} {cancelled}", status.name())
        })
        .collect();
    assert_eq!(seen_from_elsewhere(&path).await, expected, "and so does another process");
    // Each run that is held has a task, which is notified of the cancel.
    let waits: Vec<&String> = found.iter().filter(|(_, (_, is_held))| *is_held).map(|(run, _)| run).collect();
    let began = Instant::now();
    for run in &waits {
        loop {
            let found = store.find(&id(run)).await.unwrap();
            if found.status == Status::Cancelled && found.holder.is_none() {
                break;
            }
            assert!(began.elapsed() < Duration::from_secs(60), "nobody works on {found:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    println!("{dropped} dropped, {done} done; {} runs, {} of them at work", found.len(), waits.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_or_resume_that_is_dropped_leaves_no_orphan() {
    drop_at_every_poll().await;
}

#[tokio::test]
async fn a_dropped_start_or_resume_on_one_thread_leaves_no_orphan() {
    drop_at_every_poll().await;
}

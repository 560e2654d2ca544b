//! A foreach over a store whose appends take 300 ms, in a process that is killed with SIGKILL again and again.
//!
//! Each call appends a line to a file when it begins and when it returns. The judge reads only this file, which is
//! independent of the journal. After a kill, at most as many items are called again as are called concurrently, whether
//! they were finished or in progress.
//!
//! `FOREACH_KILLS=300 cargo test -p state-graph-runtime --test runtime killed -- --nocapture` takes minutes. `SEED` draws the
//! same moments again.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use graph_runtime::__private::{Key, Program};
use graph_runtime::record::Status;
use graph_runtime::testing::{FaultyStore, StoreFault};
use graph_runtime::{Call, Map, RunId, Runtime, SecretKey, SqliteStore, Store, Value, audit};
use serde_json::json;

use crate::interpreted::{Interpreted, PROGRAM};

/// The environment variable that makes a process the one to be killed; its value is the working directory.
const DIRECTORY: &str = "GRAPH_KILLED_DIRECTORY";
/// The environment variable with the number of items that are called concurrently.
const WIDTH: &str = "GRAPH_KILLED_WIDTH";
const ITEMS: u64 = 24;

fn id() -> RunId {
    RunId::new("run").unwrap()
}

fn key() -> SecretKey {
    SecretKey::from_seed(&[1; 32])
}

/// Calls its tool for each item, and notes in the file `calls` when a call begins and when it returns.
fn graph(directory: &Path, width: u64) -> Interpreted {
    let body = format!(
        r#"{{"line":1,"does":{{"foreach":0}},"params":{{"n":"${{n}}"}},"each":{{"over":"${{inputs.list}}","as":"n","collect":"all","width":{width}}},"next":[{{"to":"end"}}]}}"#
    );
    let nodes = [("each", body.as_str()), ("end", r#"{"line":2,"does":"return"}"#)];
    let program = Program { keys: &[Key { name: "all", initial: None }], nodes: &nodes, ..PROGRAM };
    let calls = File::options().create(true).append(true).open(directory.join("calls")).unwrap();
    let calls = Arc::new(calls);
    Interpreted::waiting(&program, move |call: &Call, _| {
        let (calls, item) = (Arc::clone(&calls), call.item().unwrap());
        // A single write, so a line is either complete or missing.
        let note = move |what: &str| (&*calls).write_all(format!("{what} {item}\n").as_bytes()).unwrap();
        Box::pin(async move {
            note("began");
            tokio::time::sleep(Duration::from_millis(20)).await;
            note("returned");
            Ok(json!(item))
        })
    })
}

/// Not a test of its own: the process that the next test kills.
#[test]
fn the_process_that_is_killed() {
    let (Some(directory), Ok(width)) = (std::env::var_os(DIRECTORY), std::env::var(WIDTH)) else { return };
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    tokio.block_on(async {
        let directory = Path::new(&directory);
        let machine = graph(directory, width.parse().unwrap());
        let store = SqliteStore::open(directory.join("runs.db")).await.unwrap();
        let is_known = !store.list().await.unwrap().is_empty();
        let slow =
            FaultyStore::new(store, |write| (!write.creates).then_some(StoreFault::Slow(Duration::from_millis(300))));
        let builder = Runtime::builder().store(slow).sign_with(key());
        let runtime = builder.grant("*").unwrap().build().unwrap();
        let run = match is_known {
            true => runtime.resume(machine, &id()).await.unwrap(),
            false => {
                let list = Value::from((0..ITEMS).collect::<Vec<_>>());
                runtime.start_as(id(), machine, Map::from_iter([("list".to_owned(), list)])).await.unwrap()
            }
        };
        let all = Value::from((0..ITEMS).collect::<Vec<_>>());
        assert_eq!(run.await.unwrap().output, json!({"all": all}));
    });
}

/// The items whose calls began and returned, in one process or in several.
#[derive(Debug, Default, Clone)]
struct Said {
    began: BTreeSet<u64>,
    returned: BTreeSet<u64>,
}

impl Said {
    fn read(text: &str) -> Self {
        let mut said = Self::default();
        for line in text.lines() {
            let (what, item) = line.split_once(' ').unwrap();
            let items = if what == "began" { &mut said.began } else { &mut said.returned };
            items.insert(item.parse().unwrap());
        }
        said
    }
}

/// A generator of random moments.
struct Chance(u64);

impl Chance {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }
}

#[test]
fn a_kill_repeats_no_more_items_than_are_called_at_once() {
    let kills: u64 = std::env::var("FOREACH_KILLS").map_or(6, |kills| kills.parse().unwrap());
    // After so many kills a run is finished, and the next run has another width.
    let most_of_a_run = (kills / 3).min(10);
    let now = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos();
    let seed = std::env::var("SEED").map_or_else(|_| u64::try_from(now()).unwrap_or(1), |seed| seed.parse().unwrap());
    println!("SEED={seed}");
    let (mut chance, mut killed, mut runs) = (Chance(seed | 1), 0, 0);
    let (mut finished, mut most) = (0, 0);
    while killed < kills {
        let width = [1, 2, 4][runs % 3];
        runs += 1;
        let until = killed + most_of_a_run;
        let directory = tempfile::tempdir().unwrap();
        let calls = || fs::read_to_string(directory.path().join("calls")).unwrap_or_default();
        loop {
            let before = calls();
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "killed::the_process_that_is_killed"])
                .env(DIRECTORY, directory.path())
                .env(WIDTH, width.to_string())
                .stdout(Stdio::null())
                .spawn()
                .unwrap();
            std::thread::sleep(Duration::from_millis(50 + chance.below(1_400)));
            let ended = child.try_wait().unwrap();
            if ended.is_none() && killed < until.min(kills) {
                child.kill().unwrap();
                killed += 1;
            }
            let ended = child.wait().unwrap();
            let all = calls();
            let (earlier, life) = (Said::read(&before), Said::read(&all[before.len()..]));
            let again = earlier.returned.intersection(&life.began).count() as u64;
            let begun = earlier.began.intersection(&life.began).count() as u64;
            assert!(
                again <= width && begun <= width,
                "width {width}, seed {seed}: {begun} begun again\n{before}-\n{all}"
            );
            finished += again;
            most = most.max(again);
            if ended.success() {
                break;
            }
            assert!(ended.code().is_none(), "it was killed, and did not fail: {ended}");
        }
        assert_eq!(Said::read(&calls()).returned.len() as u64, ITEMS);
        let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let records = tokio.block_on(async {
            let store = SqliteStore::open(directory.path().join("runs.db")).await.unwrap();
            store.load(&id()).await.unwrap()
        });
        let proven = audit(&graph(directory.path(), width), &id(), &records, &key().public(), None);
        assert_eq!(proven.unwrap().status, Status::Completed);
    }
    println!("{killed} kills in {runs} runs: {finished} finished items were called again, at most {most} by one kill");
}

//! Processes that are killed with SIGKILL at any moment, while their workers start the runs of a schedule.
//!
//! Two to four processes open one SQLite store, each with a worker that knows the same schedule. All share a clock that is 1,200 times
//! as fast as that of the machine. The test process kills random ones and starts others in their place. In the end, each tick since
//! the schedule began has one run, none began before its tick, and each has completed with a journal that is proven.
//!
//! `SCHEDULE_KILLS=1000 cargo test --release --test runs schedule_kills -- --nocapture` takes minutes. `SEED` sets the seed of all
//! choices, which is random by default.

#![cfg(unix)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use graph_model::timestamp;
use graph_runtime::dynamic::{Interpreted, Library, Toolbox};
use graph_runtime::record::{Entry, Follower};
use graph_runtime::{
    CatchUp, Clock, Overlap, Runtime, Schedule, Sleeping, SqliteStore, Status, Store, SystemClock, Timetable,
    WorkerOptions, audit_tree,
};
use tokio::sync::Notify;

use crate::support::sign;
use crate::tree::Tree;
use crate::workload::{Chance, Worker, key};

/// The environment variable that makes a process the one to be killed; its value is the working directory.
const DIRECTORY: &str = "GRAPH_SCHEDULE_KILLS_DIRECTORY";
/// The environment variable with the time of the machine at which the fast clock began, in milliseconds since the Unix epoch.
const ORIGIN: &str = "GRAPH_SCHEDULE_KILLS_ORIGIN";

/// How many times as fast the clock is.
const PACE: u32 = 1200;
/// The time of the fast clock when it began: 2026-11-23T00:00:00Z.
const BEGIN: Duration = Duration::from_secs(1_795_392_000);
const CRON: &str = "*/5 * * * *";

/// A graph that waits for a minute.
const NIGHTLY: &str = r#"version: "1.0.0"
tool_type: graph
executor_id: rye/core/runtimes/state-graph/runtime
permissions: [rye.execute.tool.rye.bash]
config_schema: { type: object, properties: { at: { type: string } }, required: [at] }
config:
  start: pause
  nodes:
    pause: { type: wait, timeout: 1m, next: done }
    done: { type: return, output: { at: "${inputs.at}" } }
"#;

/// A clock that all processes share.
#[derive(Debug)]
struct SharedClock {
    system: SystemClock,
    origin: Duration,
}

impl Clock for SharedClock {
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + BEGIN + self.monotonic()
    }

    fn monotonic(&self) -> Duration {
        let real = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        real.saturating_sub(self.origin) * PACE
    }

    fn sleep(&self, time: Duration) -> Sleeping<'_> {
        self.system.sleep(time / PACE)
    }
}

fn schedule() -> Schedule {
    let schedule = Schedule::new("nightly", "nightly", CRON, "UTC").unwrap();
    schedule.overlap(Overlap::Queue).catch_up(CatchUp::All(1000)).tick_input("at")
}

fn graph(directory: &Path) -> Interpreted {
    let tree = directory.join("graphs");
    let loaded = Library::open(&tree, Toolbox::new()).graph(&tree.join("nightly.yaml"));
    loaded.map_err(|error| error.to_string()).unwrap()
}

async fn runtime(directory: &Path, origin: Duration) -> Runtime {
    let clock = Arc::new(SharedClock { system: SystemClock::new(), origin });
    let store = SqliteStore::options().clock(clock.clone()).open(&directory.join("runs.db")).await.unwrap();
    Runtime::builder().store(store).sign_with(key()).clock(clock).grant("*").unwrap().build().unwrap()
}

/// Not a test of its own: the process that the next test kills.
#[test]
fn the_worker_that_is_killed() {
    let Some(directory) = std::env::var_os(DIRECTORY).map(PathBuf::from) else { return };
    let origin = Duration::from_millis(std::env::var(ORIGIN).unwrap().parse().unwrap());
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    tokio.block_on(async {
        let end = Arc::new(Notify::new());
        let ended = Arc::clone(&end);
        thread::spawn(move || {
            for line in std::io::stdin().lines() {
                if line.is_ok_and(|line| line == "end") {
                    return ended.notify_one();
                }
            }
            // The test process has ended.
            std::process::exit(1);
        });
        let options = WorkerOptions::default().graph(graph(&directory)).schedules([schedule()]).unwrap();
        let worker = runtime(&directory, origin).await.worker(options).unwrap();
        end.notified().await;
        assert!(worker.shutdown(Duration::from_secs(10)).await.is_empty());
    });
}

fn start(directory: &Path, origin: Duration) -> Worker {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg("--nocapture");
    command
        .args(["--exact", "schedule_kills::the_worker_that_is_killed"])
        .env(DIRECTORY, directory)
        .env(ORIGIN, origin.as_millis().to_string());
    Worker::start(&mut command)
}

#[test]
fn each_tick_has_one_run_though_workers_are_killed() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let origin = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let seed = number("SEED").unwrap_or_else(|| u64::try_from(origin.as_millis()).unwrap());
    let kills = number("SCHEDULE_KILLS").unwrap_or(10);
    println!("SEED={seed} SCHEDULE_KILLS={kills}");
    let mut chance = Chance::of(seed);
    let tree = Tree::new();
    tree.write("nightly.yaml", sign(NIGHTLY));
    let directory = tree.path("").parent().unwrap().to_owned();
    let mut processes: Vec<Worker> = (0..2 + chance.below(3)).map(|_| start(&directory, origin)).collect();
    for _ in 0..kills {
        thread::sleep(Duration::from_millis(chance.below(400)));
        let at = usize::try_from(chance.below(processes.len() as u64)).unwrap();
        assert!(processes[at].kill(), "a process ended by itself");
        processes[at] = start(&directory, origin);
    }
    // The last ones catch up.
    thread::sleep(Duration::from_secs(4));
    for mut worker in processes {
        std::io::Write::write_all(worker.0.stdin.as_mut().unwrap(), b"end\n").unwrap();
        assert!(worker.0.wait().unwrap().success());
    }
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio.block_on(judge(&directory, kills));
}

/// Proves that each tick has one run.
async fn judge(directory: &Path, kills: u64) {
    let store = SqliteStore::open(directory.join("runs.db")).await.unwrap();
    let (schedule, graph) = (schedule(), Arc::new(graph(directory)));
    let state = schedule.state(&store).await.unwrap().unwrap();
    let last = state.run.unwrap();
    let runs = store.list().await.unwrap();
    let mut found: Vec<String> = runs.iter().map(|run| run.run.to_string()).collect();
    found.sort();
    let first = found.first().cloned().unwrap();
    let timetable = Timetable::new(CRON, "UTC").unwrap();
    let begin = i64::try_from(BEGIN.as_millis()).unwrap();
    let ticks: Vec<i64> = std::iter::successors(timetable.after(begin), |tick| timetable.after(*tick))
        .take_while(|tick| *tick <= last)
        .filter(|tick| *schedule.id().run(*tick).as_str() >= *first)
        .collect();
    let expected: Vec<String> = ticks.iter().map(|tick| schedule.id().run(*tick).to_string()).collect();
    assert_eq!(found, expected, "one run for each tick");
    assert_eq!((state.started, state.skipped), (found.len() as u64, 0));
    let mut open = 0;
    for (tick, run) in ticks.iter().map(|tick| (*tick, schedule.id().run(*tick))) {
        let proven = audit_tree(graph.clone(), &run, &store, &key().public(), None).await.unwrap();
        open += usize::from(proven[0].status == Status::Running);
        let signed = store.load(&run).await.unwrap();
        let journal = Follower::new(run.clone(), key().public()).read(&signed).unwrap();
        let began = timestamp::unix_milliseconds(timestamp::parse(&journal[0].at).unwrap());
        assert!(began >= tick, "run {run} began before its tick");
        let Entry::Start(start) = &journal[0].entry else { unreachable!("it begins with its start") };
        let at = timestamp::parse(start.inputs["at"].as_str().unwrap()).map(timestamp::unix_milliseconds);
        assert_eq!(at, Some(tick));
    }
    assert!(open <= 1, "{open} runs have not ended, and they run one after the other");
    println!("{kills} kills: {} ticks, each with one run", found.len());
    assert!(found.len() > 3, "{found:?}");
}

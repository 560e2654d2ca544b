//! Processes that are killed with SIGKILL at any moment, while their workers start the runs of a schedule, and others send these runs
//! signals and answers.
//!
//! Two to eight processes open one SQLite store, each with a worker that knows the same schedule, and two more send what the runs wait
//! for. All share a clock that is 1,200 times as fast as that of the machine. The test process kills random ones of both kinds and starts
//! others in their place. In the end, each tick since the schedule began has one run, except for those that came while another one
//! waited for the run before it. None began before its tick, and each has completed with a journal that is proven. No wait was over before its time. Each signal and each answer ended at most one wait. None that
//! was accepted in time is lost.
//!
//! `SCHEDULE_KILLS=1000 cargo test --release --test runs schedule_kills -- --nocapture` takes minutes. `SEED` sets the seed of all
//! choices, which is random by default.

#![cfg(unix)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use graph_model::timestamp;
use graph_runtime::answer::{Answered, KeyRing};
use graph_runtime::dynamic::{Interpreted, Library, Toolbox};
use graph_runtime::record::{Entry, Follower, Record};
use graph_runtime::store::{Page, Received, WaitFilter, WaitRow};
use graph_runtime::{
    CatchUp, Clock, NamedAnswer, NamedSignal, Overlap, Runtime, Schedule, SecretKey, Sleeping, SqliteStore, Status,
    Store, SystemClock, Timetable, WorkerOptions, audit_tree,
};
use serde_json::json;
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

/// The environment variable that makes a process a sender; its value is the file that it writes to.
const SENT: &str = "GRAPH_SCHEDULE_KILLS_SENT";

/// A graph that waits for a minute, for a signal, and for the answer of a person.
const NIGHTLY: &str = r#"version: "1.0.0"
tool_type: graph
executor_id: rye/core/runtimes/state-graph/runtime
permissions: [rye.execute.tool.rye.bash]
config_schema: { type: object, properties: { at: { type: string } }, required: [at] }
config:
  start: pause
  signals: { go: { type: integer } }
  nodes:
    pause: { type: wait, timeout: 1m, next: signalled }
    signalled: { type: wait, signals: [go], timeout: 3m, on_timeout: asked, next: asked }
    asked:
      type: interrupt
      payload: { at: "${inputs.at}" }
      result_schema: { type: object, properties: { decision: { enum: [approve, refuse] } }, required: [decision] }
      timeout: 3m
      on_timeout: done
      next: done
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

/// The key of the person who answers.
fn person() -> SecretKey {
    SecretKey::from_seed(&[33; 32])
}

async fn runtime(directory: &Path, origin: Duration) -> Runtime {
    let ring = || KeyRing::of(&person().public(), "Ann");
    let clock = Arc::new(SharedClock { system: SystemClock::new(), origin });
    let store = SqliteStore::options().clock(clock.clone()).open(&directory.join("runs.db")).await.unwrap();
    Runtime::builder().store(store).sign_with(key()).clock(clock).grant("*").unwrap().answer_keys(ring).build().unwrap()
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

/// Not a test of its own: a process that sends the runs what they wait for, and that the next test kills.
#[test]
fn the_sender_that_is_killed() {
    let (Some(directory), Some(sent)) = (std::env::var_os(DIRECTORY).map(PathBuf::from), std::env::var_os(SENT)) else {
        return;
    };
    let origin = Duration::from_millis(std::env::var(ORIGIN).unwrap().parse().unwrap());
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let ended = Arc::new(AtomicBool::new(false));
    let end = Arc::clone(&ended);
    thread::spawn(move || {
        let said = std::io::stdin().lines().any(|line| line.is_ok_and(|line| line == "end"));
        end.store(true, Ordering::Release);
        if !said {
            // The test process has ended.
            std::process::exit(1);
        }
    });
    tokio.block_on(async {
        let (runtime, graph) = (runtime(&directory, origin).await, graph(&directory));
        let mut file = File::options().append(true).create(true).open(sent).unwrap();
        while !ended.load(Ordering::Acquire) {
            let all = runtime.open_waits(&WaitFilter::default(), &Page::default()).await.unwrap().waits;
            for row in all.into_iter().filter(|row| !row.wait.signals.is_empty()) {
                if send(&runtime, &graph, &row).await {
                    // A line is written at once, or not at all.
                    let line = format!("{} {}\n", row.run, row.wait.node);
                    std::io::Write::write_all(&mut file, line.as_bytes()).unwrap();
                }
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
}

/// Sends a run what it waits for. Returns whether that was accepted in time.
async fn send(runtime: &Runtime, graph: &Interpreted, row: &WaitRow) -> bool {
    let in_time = |at: i64| row.wait.due.is_none_or(|due| at < due);
    if row.wait.ask.is_none() {
        let id = format!("go-{}", row.wait.id);
        let received = runtime.signal(graph, &row.run, NamedSignal::new("go", json!(1)), id).await;
        return matches!(received, Ok(Received::Accepted(place)) if in_time(place.at));
    }
    let Ok(questions) = runtime.questions(graph, &row.run).await else { return false };
    let Some(question) = questions.first() else { return false };
    let answer = question.sign(NamedAnswer::new("asked", json!({"decision": "approve"})), &person()).unwrap();
    // An answer that comes too late is refused.
    matches!(runtime.answer(graph, &row.run, &answer).await, Ok(Answered::Accepted))
}

fn start(directory: &Path, origin: Duration, sent: Option<&Path>) -> Worker {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let test = match sent {
        Some(_) => "schedule_kills::the_sender_that_is_killed",
        None => "schedule_kills::the_worker_that_is_killed",
    };
    command.args(["--nocapture", "--exact", test]);
    command.env(DIRECTORY, directory).env(ORIGIN, origin.as_millis().to_string());
    command.envs(sent.map(|sent| (SENT, sent)));
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
    let sent = directory.join("sent");
    let workers = usize::try_from(2 + chance.below(7)).unwrap();
    let role = |at: usize| (at >= workers).then_some(sent.as_path());
    let mut processes: Vec<Worker> = (0..workers + 2).map(|at| start(&directory, origin, role(at))).collect();
    for _ in 0..kills {
        thread::sleep(Duration::from_millis(chance.below(400)));
        let at = usize::try_from(chance.below(processes.len() as u64)).unwrap();
        assert!(processes[at].kill(), "a process ended by itself");
        processes[at] = start(&directory, origin, role(at));
    }
    // The last ones catch up.
    thread::sleep(Duration::from_secs(4));
    for mut worker in processes {
        std::io::Write::write_all(worker.0.stdin.as_mut().unwrap(), b"end\n").unwrap();
        assert!(worker.0.wait().unwrap().success());
    }
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let sent = std::fs::read_to_string(sent).unwrap_or_default();
    tokio.block_on(judge(&directory, kills, &sent));
}

/// Returns the nodes of a run whose waits a signal or an answer ended.
fn received(journal: &[Record]) -> BTreeSet<String> {
    let mut waiting: BTreeMap<u64, (String, Option<i64>)> = BTreeMap::new();
    let mut received = BTreeSet::new();
    for record in journal {
        match &record.entry {
            Entry::Step(step) => {
                let opened = step.visits.iter().filter_map(|visit| Some((visit, visit.opened.as_ref()?)));
                waiting.extend(opened.map(|(visit, opened)| (visit.step, (visit.node.clone(), opened.due))));
            }
            Entry::Take(take) => {
                for taken in &take.taken {
                    let (node, due) = waiting.remove(&taken.step).expect("a wait is over once");
                    match &taken.signal {
                        Some(signal) => {
                            assert!(due.is_none_or(|due| signal.at < due), "{node} received it too late");
                            assert!(received.insert(node), "it is received once");
                        }
                        None => assert!(due.is_some_and(|due| due <= taken.at), "{node} was over before its time"),
                    }
                }
            }
            _ => {}
        }
    }
    received
}

/// Proves that each tick has one run, and that nothing that was sent was lost.
async fn judge(directory: &Path, kills: u64, sent: &str) {
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
    let has_run = |tick: &i64| found.binary_search(&schedule.id().run(*tick).to_string()).is_ok();
    let (run, left_out): (Vec<i64>, Vec<i64>) = ticks.into_iter().partition(has_run);
    assert_eq!(found.len(), run.len(), "each run is that of a tick");
    assert_eq!((state.started, state.skipped), (run.len() as u64, left_out.len() as u64));
    let (mut open, mut ended, mut began_at) = (0, 0, BTreeMap::new());
    for (tick, run) in run.iter().map(|tick| (*tick, schedule.id().run(*tick))) {
        let proven = audit_tree(graph.clone(), &run, &store, &key().public(), None).await.unwrap();
        open += usize::from(proven[0].status == Status::Running);
        let signed = store.load(&run).await.unwrap();
        let journal = Follower::new(run.clone(), key().public()).read(&signed).unwrap();
        let began = timestamp::unix_milliseconds(timestamp::parse(&journal[0].at).unwrap());
        assert!(began >= tick, "run {run} began before its tick");
        began_at.insert(tick, began);
        let all = received(&journal);
        ended += all.len();
        let accepted = sent.lines().filter_map(|line| line.split_once(' ')).filter(|(of, _)| *of == run.as_str());
        for (_, node) in accepted {
            assert!(
                all.contains(node) || proven[0].status == Status::Running,
                "run {run} lost what `{node}` waited for"
            );
        }
        let Entry::Start(start) = &journal[0].entry else { unreachable!("it begins with its start") };
        let at = timestamp::parse(start.inputs["at"].as_str().unwrap()).map(timestamp::unix_milliseconds);
        assert_eq!(at, Some(tick));
    }
    assert!(open <= 1, "{open} runs have not ended, and they run one after the other");
    for tick in &left_out {
        // One tick waits for the run before it. Another one that comes then is skipped.
        let waiting = began_at.range(..tick).next_back();
        assert!(waiting.is_some_and(|(_, began)| began >= tick), "tick {tick} was lost: no other one waited then");
    }
    println!(
        "{kills} kills: {} ticks, each with one run, and {} skipped beside one that waited; {ended} waits ended by signals and answers",
        found.len(),
        left_out.len()
    );
    assert!(found.len() > 3 && ended > 0, "{found:?}, {ended}");
}

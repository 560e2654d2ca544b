//! The cost of runs that wait: the memory of a process with a worker, the time until many runs are begun that are due at once, and
//! the lateness of single timers.
//!
//! Run with `cargo bench --bench waits`, or with one of `memory`, `burst` and `timers` behind `--`. `WAITING` is the number of
//! runs of the larger store whose waits are far away; 100,000 if not set.

#[expect(dead_code, reason = "other benchmarks use the rest")]
#[path = "support/large.rs"]
mod large;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use futures_util::StreamExt;
use graph_model::timestamp;
use graph_runtime::dynamic::{Interpreted, Library, Toolbox};
use graph_runtime::observer::{Event, Observer};
use graph_runtime::{
    Durability, Map, Options, RunError, RunId, Runtime, SecretKey, SqliteStore, Status, Store, Worker, WorkerOptions,
};

/// How many runs the smaller store has.
const FEW: u32 = 1_000;
/// How many runs the larger store has.
const MANY: u32 = 100_000;
/// How many runs begin at once while a store is filled.
const AT_ONCE: usize = 500;
/// How many runs are due at once.
const BURST: u32 = 1_000;
/// How often the burst is measured.
const ROUNDS: usize = 5;
/// How many timers are measured one by one.
const TIMERS: u32 = 300;

/// A run waits for a time, and returns.
const GRAPH: &str = "version: \"1.0.0\"
tool_type: graph
executor_id: rye/core/runtimes/state-graph/runtime
category: bench
permissions: [rye.execute.tool.bench.*]
config_schema:
  type: object
  properties: { due: { type: string } }
  required: [due]
config:
  start: pause
  nodes:
    pause: { type: wait, until: \"${inputs.due}\", next: done }
    done: { type: return }
";

fn main() {
    // Cargo adds `--bench`.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let tokio = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("tokio starts");
    if let ["worker", place] = arguments[..] {
        return tokio.block_on(rest(Path::new(place)));
    }
    let is_wanted = |name: &str| arguments.is_empty() || arguments.contains(&name);
    // In the build directory, because the system's temporary directory may be in memory.
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("target");
    let directory = tempfile::tempdir_in(target).expect("a directory");
    large::write_graphs(directory.path(), 0, std::iter::once(GRAPH.to_owned()));
    if is_wanted("memory") {
        let many = std::env::var("WAITING").map_or(MANY, |many| many.parse().expect("`WAITING` is a number"));
        let few = memory(&tokio, directory.path(), FEW);
        let many = memory(&tokio, directory.path(), many);
        println!("  the ratio: {:.3}", many / few);
    }
    if is_wanted("burst") {
        tokio.block_on(burst(directory.path()));
    }
    if is_wanted("timers") {
        tokio.block_on(timers(directory.path()));
    }
}

fn graph(place: &Path) -> Interpreted {
    let graphs = place.join("graphs");
    Library::open(&graphs, Toolbox::new()).graph(&graphs.join("graph0.yaml")).expect("the graph is right")
}

async fn open(place: &Path, name: &str) -> SqliteStore {
    SqliteStore::open(place.join(name)).await.expect("a store")
}

fn runtime(store: SqliteStore, observer: Begun) -> Runtime {
    let builder = Runtime::builder().store(store).sign_with(SecretKey::from_seed(&[1; 32]));
    builder.grant("rye.execute.tool.bench.*").expect("a pattern").observer(observer).build().expect("built")
}

fn worker(runtime: &Runtime, place: &Path) -> Worker {
    runtime.worker(WorkerOptions::default().graph(graph(place))).expect("there is a store")
}

/// Starts runs that are due at a time, and returns when all of them wait.
async fn fill(runtime: &Runtime, graph: &Interpreted, names: impl Iterator<Item = String>, due: SystemTime) {
    let start = async |name: String| {
        let run = Some(RunId::new(name).expect("an id"));
        let options = Options { run, durability: Durability::Exit, ..Options::default() };
        let inputs = Map::from_iter([("due".to_owned(), timestamp::milliseconds(due).into())]);
        let run = runtime.start_with(options, graph.clone(), inputs).await.expect("the run starts");
        let waits = run.await.expect_err("it waits");
        assert!(matches!(waits, RunError::Waiting { .. }), "{waits}");
    };
    futures_util::stream::iter(names).for_each_concurrent(AT_ONCE, start).await;
}

/// When a runtime continued runs.
#[derive(Clone, Default)]
struct Begun(Arc<Mutex<HashMap<RunId, SystemTime>>>);

impl Observer for Begun {
    fn observe(&self, event: &Event<'_>) {
        if let Event::RunStarted { run, .. } = event {
            let now = SystemTime::now();
            self.0.lock().expect("no panic").entry((*run).clone()).or_insert(now);
        }
    }
}

/// Fills a store with waiting runs, and returns the memory of another process with a worker over it, in megabytes.
fn memory(tokio: &tokio::runtime::Runtime, place: &Path, runs: u32) -> f64 {
    let name = format!("{runs}.db");
    let began = Instant::now();
    tokio.block_on(async {
        let runtime = runtime(open(place, &name).await, Begun::default());
        let due = SystemTime::now() + Duration::from_secs(30 * 86_400);
        fill(&runtime, &graph(place), (0..runs).map(|n| format!("run-{n}")), due).await;
    });
    let (filled, bytes) = (began.elapsed(), std::fs::metadata(place.join(&name)).map_or(0, |file| file.len()));
    let program: PathBuf = std::env::current_exe().expect("the path of this program");
    let said = Command::new(program).arg("worker").arg(place.join(&name)).output().expect("it can be started");
    let said = String::from_utf8_lossy(&said.stdout);
    let kilobytes: f64 = said.trim().parse().expect("the worker prints its memory");
    println!("{runs} waiting runs ({} MB, made in {filled:.0?}): {:.1} MB", bytes / 1_000_000, kilobytes / 1000.0);
    kilobytes / 1000.0
}

/// Works on a store in which nothing is due, and prints the resident memory of this process in kilobytes of 1,000 bytes.
async fn rest(store: &Path) {
    let place = store.parent().expect("a directory");
    let runtime = runtime(SqliteStore::open(store).await.expect("a store"), Begun::default());
    let worker = worker(&runtime, place);
    worker.idle().await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let status = worker.status();
    assert!(status.claimed == 0 && status.is_idle, "{status:?}");
    let lines = std::fs::read_to_string("/proc/self/status").expect("Linux reports the memory of a process");
    let kilobytes =
        lines.lines().find_map(|line| line.strip_prefix("VmRSS:")).and_then(|line| line.split_whitespace().next());
    let kilobytes: f64 = kilobytes.and_then(|number| number.parse().ok()).expect("a number");
    println!("{}", kilobytes * 1.024);
}

/// Prints how long it takes until all runs are begun that are due at one time.
async fn burst(place: &Path) {
    let store = open(place, "burst.db").await;
    let graph = graph(place);
    let mut rounds = Vec::new();
    for round in 0..ROUNDS {
        // Another runtime than the worker's starts the runs, as another process would.
        let due = SystemTime::now() + Duration::from_secs(6);
        let names = || (0..BURST).map(move |n| format!("burst-{round}-{n}"));
        fill(&runtime(store.clone(), Begun::default()), &graph, names(), due).await;
        let left = due.duration_since(SystemTime::now()).expect("the runs wait before they are due");
        let begun = Begun::default();
        let worker = worker(&runtime(store.clone(), begun.clone()), place);
        tokio::time::sleep(left).await;
        let done = async {
            while worker.status().claimed < u64::from(BURST) || !worker.status().is_idle {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        done.await;
        let ended = due.elapsed().expect("it is later");
        let begun = std::mem::take(&mut *begun.0.lock().expect("no panic"));
        assert_eq!(begun.len(), BURST as usize, "each run is begun");
        let last = begun.values().max().expect("some are begun").duration_since(due).expect("none is early");
        for name in names() {
            let found = store.find(&RunId::new(name).expect("an id")).await.expect("the run is there");
            assert_eq!(found.status, Status::Completed, "it has ended");
        }
        rounds.push((last, ended));
        worker.shutdown(Duration::from_secs(10)).await;
    }
    rounds.sort_unstable();
    let (last, ended) = rounds[ROUNDS / 2];
    println!("{BURST} runs due at once: {last:.2?} until all are begun, {ended:.2?} until all have ended");
    println!("  each round: {:.2?}", rounds.iter().map(|(last, _)| *last).collect::<Vec<_>>());
}

/// Prints how late timers are, one at a time.
async fn timers(place: &Path) {
    let store = open(place, "timers.db").await;
    let (graph, begun) = (graph(place), Begun::default());
    let (starts, works) = (runtime(store.clone(), Begun::default()), runtime(store.clone(), begun.clone()));
    let worker = worker(&works, place);
    let mut late = Vec::new();
    for n in 0..TIMERS {
        worker.idle().await;
        // Not in step with the worker's own pauses.
        let due = SystemTime::now() + Duration::from_millis(150 + u64::from(n * 37 % 101));
        let due = timestamp::from_unix_milliseconds(timestamp::unix_milliseconds(due));
        let name = format!("timer-{n}");
        fill(&starts, &graph, std::iter::once(name.clone()), due).await;
        let run = RunId::new(name).expect("an id");
        let at = loop {
            if let Some(at) = begun.0.lock().expect("no panic").remove(&run) {
                break at;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        };
        late.push(at.duration_since(due).expect("none is early"));
    }
    late.sort_unstable();
    let at = |percent: usize| late[(late.len() - 1) * percent / 100];
    println!(
        "{TIMERS} timers, one by one: late by {:.1?} (p50), {:.1?} (p99), {:.1?} at most",
        at(50),
        at(99),
        at(100)
    );
}

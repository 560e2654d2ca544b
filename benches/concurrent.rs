//! The gain of concurrent runs that share a store: the steps per second of 1,000 durable runs together, relative to those of one.
//!
//! Run with `cargo bench --bench concurrent`. Every round measures runs one after another and then all at once, with the same
//! store and the same number of steps per run; the median of the ratios counts.

use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use graph_runtime::{ActionError, Call, Map, Runtime, SecretKey, SqliteStore};
use state_graphs::Tally;
use state_graphs::tools::bench_tick;

/// How many runs are in progress at once.
const RUNS: u32 = 1_000;
/// How many steps each run takes.
const STEPS: u32 = 20;
/// How many runs the reference has, one after another.
const ALONE: u32 = 20;
/// How often the ratio is measured.
const ROUNDS: usize = 7;

/// Counts down; its future is ready at the first poll.
struct Counter(AtomicI64);

impl bench_tick::Tool for Counter {
    async fn bench_tick(&self, _: &Call, _: bench_tick::Params) -> Result<bench_tick::Output, ActionError> {
        Ok(bench_tick::Output { left: self.0.fetch_sub(1, Ordering::Relaxed) - 1 })
    }
}

/// Returns a graph that takes `STEPS` steps, including the return.
fn graph() -> Tally<Counter> {
    Tally::new(Counter(AtomicI64::new(i64::from(STEPS) - 1)))
}

fn main() {
    let tokio = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("tokio starts");
    // In the build directory, because the system's temporary directory may be in memory.
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("target");
    let directory = tempfile::tempdir_in(target).expect("a directory");
    let mut rounds = tokio.block_on(async {
        let store = SqliteStore::open(directory.path().join("runs.db")).await.expect("a store");
        let builder = Runtime::builder().store(store).sign_with(SecretKey::from_seed(&[1; 32]));
        let runtime = builder.grant("rye.execute.tool.bench.*").expect("a pattern").build().expect("built");
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            rounds.push((one_by_one(&runtime).await, at_once(&runtime).await));
        }
        rounds
    });
    rounds.sort_by(|one, other| (one.1 / one.0).total_cmp(&(other.1 / other.0)));
    let (alone, together) = rounds[ROUNDS / 2];
    println!("one durable run: {alone:.0} steps/s");
    println!("{RUNS} durable runs at once: {together:.0} steps/s, {:.1} times as many", together / alone);
    println!(
        "  the ratio of each round: {:?}",
        rounds.iter().map(|(a, b)| (b / a * 10.0).round() / 10.0).collect::<Vec<_>>()
    );
}

/// Returns the steps per second of runs that each end before the next one begins.
async fn one_by_one(runtime: &Runtime) -> f64 {
    let began = Instant::now();
    for _ in 0..ALONE {
        run(runtime.clone()).await;
    }
    rate(ALONE, began.elapsed())
}

/// Returns the steps per second of all runs together.
async fn at_once(runtime: &Runtime) -> f64 {
    let began = Instant::now();
    let runs: Vec<_> = (0..RUNS).map(|_| tokio::spawn(run(runtime.clone()))).collect();
    for run in runs {
        run.await.expect("the run's task ends");
    }
    rate(RUNS, began.elapsed())
}

async fn run(runtime: Runtime) {
    let run = runtime.start(graph(), Map::new()).await.expect("the run starts");
    let finished = run.await.expect("the run ends");
    assert_eq!(finished.steps, u64::from(STEPS), "it took its steps");
}

fn rate(runs: u32, elapsed: Duration) -> f64 {
    f64::from(runs * STEPS) / elapsed.as_secs_f64()
}

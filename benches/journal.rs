//! The cost of a long journal: resuming a run of 100,000 steps, proving it, and the number of bytes per step. Also the cost
//! of a step late in a long run, and with a large state.
//!
//! Run with `cargo bench --bench journal`. The reference is SHA-256 over the same bytes, which every reader of the journal
//! must compute.

#[path = "journal/flat.rs"]
mod flat;

use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use graph_model::digest::Digest;
use graph_runtime::record::SignedRecord;
use graph_runtime::{
    ActionError, Call, Map, MemoryStore, Options, RunId, Runtime, SecretKey, SqliteStore, Store, audit,
};
use state_graphs::Tally;
use state_graphs::tools::bench_tick;

/// How long the run is.
const STEPS: u32 = 100_000;
/// How often each figure is measured; the median counts.
const ROUNDS: usize = 5;

/// How many steps of a long run are executed and timed at a time.
const SEGMENT: u64 = 600;

/// Counts down, and records the time of each call. Its future is ready at the first poll.
struct Counter(AtomicI64, Arc<Mutex<Vec<Instant>>>);

impl bench_tick::Tool for Counter {
    async fn bench_tick(&self, _: &Call, _: bench_tick::Params) -> Result<bench_tick::Output, ActionError> {
        if let Ok(mut asked) = self.1.lock() {
            asked.push(Instant::now());
        }
        Ok(bench_tick::Output { left: self.0.fetch_sub(1, Ordering::Relaxed) - 1 })
    }
}

fn graph() -> Tally<Counter> {
    Tally::new(Counter(AtomicI64::new(i64::MAX), Arc::default()))
}

fn key() -> SecretKey {
    SecretKey::from_seed(&[1; 32])
}

fn runtime(store: impl Store) -> Runtime {
    let builder = Runtime::builder().store(store).sign_with(key());
    builder.grant("rye.execute.tool.bench.*").expect("a pattern").build().expect("built")
}

fn options(max_steps: u32) -> Options {
    Options { run: Some(run()), max_steps: Some(max_steps), ..Options::default() }
}

fn run() -> RunId {
    RunId::new("long").expect("an id")
}

fn main() {
    let tokio = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("tokio starts");
    tokio.block_on(measure());
}

async fn measure() {
    let memory = MemoryStore::new();
    let began = runtime(memory.clone()).start_with(options(STEPS), graph(), Map::new()).await.expect("the run starts");
    began.await.expect_err("it may take so many steps and no more");
    let records = memory.load(&run()).await.expect("the journal is there");
    let bytes: usize = records.iter().map(|record| record.body.len() + record.signature.len()).sum();
    println!("{} records, {} bytes a record, signature included", records.len(), bytes / records.len());
    let hashed = median(&mut || {
        let began = Instant::now();
        for record in &records {
            std::hint::black_box(Digest::of(&record.body));
        }
        began.elapsed()
    });
    println!("SHA-256 over all of it: {hashed:.1?}");
    let machine = graph();
    let proven = median(&mut || {
        let began = Instant::now();
        let proven = audit(&machine, &run(), &records, &key().public(), None).expect("the run is proven");
        assert_eq!(proven.steps, u64::from(STEPS), "all steps are proven");
        began.elapsed()
    });
    println!("audit: {proven:.1?}, {:.0} steps a second", f64::from(STEPS) / proven.as_secs_f64());
    let mut taken = Vec::new();
    for _ in 0..ROUNDS {
        taken.push(taken_up(&records).await);
    }
    taken.sort();
    let taken = taken[ROUNDS / 2];
    println!("resuming from SQLite: {taken:.1?}, {:.1} times SHA-256", taken.as_secs_f64() / hashed.as_secs_f64());
    flat::measure(&records).await;
}

/// Creates a long run from its journal; returns the number of its steps.
async fn begin_long(store: &SqliteStore, records: &[SignedRecord]) -> u64 {
    flat::copy(store, &run(), records).await;
    u64::from(STEPS)
}

/// Executes steps of a run that has `known` steps, and returns the time of each.
async fn timed_steps(store: &SqliteStore, run: &RunId, known: u64) -> Vec<Duration> {
    let asked = Arc::<Mutex<Vec<Instant>>>::default();
    let graph = Tally::new(Counter(AtomicI64::new(i64::MAX), Arc::clone(&asked)));
    let most = u32::try_from(known + SEGMENT).expect("it fits");
    let options = Options { run: Some(run.clone()), max_steps: Some(most), ..Options::default() };
    let runtime = runtime(store.clone());
    let run = match known {
        0 => runtime.start_with(options, graph, Map::new()).await.expect("the run starts"),
        _ => runtime.resume_with(options, graph, run).await.expect("the run goes on"),
    };
    run.await.expect_err("it may take so many steps and no more");
    let asked = asked.lock().expect("nothing panics");
    // The first hundred steps are not timed.
    asked.windows(2).skip(100).map(|pair| pair[1] - pair[0]).collect()
}

fn median(once: &mut dyn FnMut() -> Duration) -> Duration {
    let mut all: Vec<Duration> = (0..ROUNDS).map(|_| once()).collect();
    all.sort();
    all[ROUNDS / 2]
}

/// Times the resumption of a run from a file.
async fn taken_up(records: &[SignedRecord]) -> Duration {
    let directory = tempfile::tempdir_in(Path::new(env!("CARGO_MANIFEST_DIR")).join("target")).expect("a directory");
    let path = directory.path().join("runs.db");
    let store = SqliteStore::open(&path).await.expect("a store");
    flat::copy(&store, &run(), records).await;
    drop(store);
    let runtime = runtime(SqliteStore::open(&path).await.expect("a store"));
    let began = Instant::now();
    let taken = runtime.resume_with(options(STEPS + 1), graph(), &run()).await.expect("the run goes on");
    let elapsed = began.elapsed();
    taken.await.expect_err("it may take one step more");
    elapsed
}

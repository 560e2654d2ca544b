//! What a long journal costs: taking up a run of 100,000 steps, proving it, and how many bytes a step has in it.
//!
//! Run with `cargo bench --bench journal`. The reference is SHA-256 over the same bytes, which no reader of the journal can do without.

use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use graph_model::digest::Digest;
use graph_runtime::record::Sealed;
use graph_runtime::{
    ActionError, Call, Map, MemoryStore, Options, RunId, Runtime, SecretKey, SqliteStore, Status, Store, audit,
};
use state_graphs::{Tally, tally};

/// How long the run is.
const STEPS: u32 = 100_000;
/// How often each figure is measured; the median counts.
const ROUNDS: usize = 5;

/// Counts down; its future is ready when it is first asked.
struct Counter(AtomicI64);

impl tally::Actions for Counter {
    async fn bench_tick(&self, _: &Call, _: tally::BenchTick) -> Result<tally::BenchTickResult, ActionError> {
        Ok(tally::BenchTickResult { left: self.0.fetch_sub(1, Ordering::Relaxed) - 1 })
    }
}

fn graph() -> Tally<Counter> {
    Tally::new(Counter(AtomicI64::new(i64::MAX)))
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
    println!("taking it up from SQLite: {taken:.1?}, {:.1} times SHA-256", taken.as_secs_f64() / hashed.as_secs_f64());
}

fn median(once: &mut dyn FnMut() -> Duration) -> Duration {
    let mut all: Vec<Duration> = (0..ROUNDS).map(|_| once()).collect();
    all.sort();
    all[ROUNDS / 2]
}

/// Times how long it takes until a run goes on that is in a file.
async fn taken_up(records: &[Sealed]) -> Duration {
    let directory = tempfile::tempdir_in(Path::new(env!("CARGO_MANIFEST_DIR")).join("target")).expect("a directory");
    let path = directory.path().join("runs.db");
    let store = SqliteStore::open(&path).await.expect("a store");
    let lease = store.create(&run(), "bench/tally", records[..1].to_vec()).await.expect("a run");
    let mut known = 1;
    for batch in records[1..].chunks(1000) {
        store.append(&lease, known, batch.to_vec(), Status::Error).await.expect("room");
        known += batch.len() as u64;
    }
    drop((lease, store));
    let runtime = runtime(SqliteStore::open(&path).await.expect("a store"));
    let began = Instant::now();
    let taken = runtime.resume_with(options(STEPS + 1), graph(), &run()).await.expect("the run goes on");
    let elapsed = began.elapsed();
    taken.await.expect_err("it may take one step more");
    elapsed
}

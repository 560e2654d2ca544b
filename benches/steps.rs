//! What a step costs: in memory, beyond the tool's own future; its routing alone; and durable, over a bare commit.
//!
//! Run with `cargo bench --bench steps`. Each group has its reference in it: what counts is the difference or the ratio.

use std::hint::black_box;
use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use criterion::{Criterion, criterion_group, criterion_main};
use graph_runtime::{
    ActionError, Activation, Call, Graph, Machine, Map, Notes, Now, Outcome, RunId, Runtime, SecretKey, Sight,
    SqliteStore, Store, Value,
};
use rusqlite::Connection;
use state_graphs::{Countdown, Order, Tally, countdown, order, tally};
use tokio::runtime::Runtime as Tokio;

/// Counts down; its future is ready when it is first asked.
struct Counter(AtomicI64);

impl Counter {
    fn from(count: u64) -> Self {
        Self(AtomicI64::new(i64::try_from(count).expect("criterion counts in moderation")))
    }
}

impl countdown::Actions for Counter {
    async fn bench_tick(&self, _: &Call, _: countdown::BenchTick) -> Result<countdown::BenchTickResult, ActionError> {
        Ok(countdown::BenchTickResult { left: self.0.fetch_sub(1, Ordering::Relaxed) - 1 })
    }
}

/// For `order`, of which only the routing is measured.
struct Shop;

impl order::Actions for Shop {
    async fn shop_look_up(&self, _: &Call, _: order::ShopLookUp) -> Result<order::ShopLookUpResult, ActionError> {
        Err(ActionError::permanent("not called here"))
    }

    async fn shop_charge_card(
        &self,
        _: &Call,
        _: order::ShopChargeCard,
    ) -> Result<order::ShopChargeCardResult, ActionError> {
        Err(ActionError::permanent("not called here"))
    }
}

fn tokio() -> Tokio {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("tokio starts")
}

impl tally::Actions for Counter {
    async fn bench_tick(&self, _: &Call, _: tally::BenchTick) -> Result<tally::BenchTickResult, ActionError> {
        Ok(tally::BenchTickResult { left: self.0.fetch_sub(1, Ordering::Relaxed) - 1 })
    }
}

/// Times a run of `count` steps.
fn time<G: Graph<Inputs = Map<String, Value>>>(tokio: &Tokio, runtime: &Runtime, graph: G) -> Duration
where
    G::Output: Send,
{
    tokio.block_on(async {
        let began = Instant::now();
        let run = runtime.start(graph, Map::new()).await.expect("the run starts");
        run.await.expect("the run ends");
        began.elapsed()
    })
}

/// A step of a run without a store: the run as a whole, over its steps.
fn in_memory(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("in memory");
    let runtime = Runtime::builder().grant("rye.execute.tool.bench.tick").expect("a pattern").build().expect("built");
    let tokio = tokio();
    // A call, and two edges of which the second is taken.
    group.bench_function("step", |bencher| {
        bencher.iter_custom(|count| time(&tokio, &runtime, Countdown::new(Counter::from(count))));
    });
    // The same, with a key of the state written and read.
    group.bench_function("step with an assignment", |bencher| {
        bencher.iter_custom(|count| time(&tokio, &runtime, Tally::new(Counter::from(count))));
    });
    group.bench_function("the tool's own future, boxed", |bencher| {
        let (counter, call) = (Counter::from(1 << 40), ());
        bencher.iter_custom(|count| {
            tokio.block_on(async {
                let began = Instant::now();
                for _ in 0..count {
                    let future: std::pin::Pin<Box<dyn Future<Output = i64> + Send>> = Box::pin(async {
                        let () = black_box(call);
                        counter.0.fetch_sub(1, Ordering::Relaxed) - 1
                    });
                    black_box(future.await);
                }
                began.elapsed()
            })
        });
    });
    group.finish();
}

/// The conditions of `is_available` in `order`, where its second edge is taken and where its first is.
fn routing(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("routing");
    for (name, in_stock) in [("the first of two edges", 3), ("the second of two edges", 0)] {
        group.bench_function(name, |bencher| {
            let machine = Order::new(Shop);
            let inputs = serde_json::json!({"article": "tea", "card": "tok_1"});
            let mut state = machine.open(inputs).expect("the inputs fit");
            // The order of the file: `status` from `config.state`, then what is assigned.
            for (key, value) in [(1, Value::from(250)), (2, Value::from(in_stock))] {
                state.set(key, value).expect("the value fits");
            }
            let at = Activation::of(order::Node::IsAvailable as u16);
            let clock = || SystemTime::UNIX_EPOCH;
            let now = Now::new(&clock);
            let sight = Sight { state: &*state, last_error: None, now: &now };
            let mut notes = Notes::default();
            let mut changes = Vec::new();
            bencher.iter(|| machine.advance(black_box(&at), &sight, Outcome::None, &mut notes, &mut changes));
        });
    }
    group.finish();
}

/// A step of a run in SQLite, and a commit of as many bytes to a table of the same make.
fn durable(criterion: &mut Criterion) {
    // In the build directory and not in the system's temporary one, which may be in memory.
    let directory = tempfile::tempdir_in(Path::new(env!("CARGO_MANIFEST_DIR")).join("target")).expect("a directory");
    let tokio = tokio();
    let bytes = bytes_a_step(&tokio, directory.path());
    println!("a step's record has {bytes} bytes");
    let mut group = criterion.benchmark_group("durable");
    group.measurement_time(Duration::from_secs(10));
    let runtime = tokio.block_on(durable_runtime(directory.path()));
    group.bench_function("signed step in SQLite", |bencher| {
        bencher.iter_custom(|count| time(&tokio, &runtime, Tally::new(Counter::from(count))));
    });
    group.bench_function("bare commit of the same bytes", |bencher| {
        let database = Connection::open(directory.path().join("bare.db")).expect("a database");
        database
            .execute_batch(
                "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
                 CREATE TABLE IF NOT EXISTS records (run INTEGER, seq INTEGER, body BLOB, PRIMARY KEY (run, seq)) WITHOUT ROWID;
                 DELETE FROM records;",
            )
            .expect("a table");
        let body = vec![b'x'; bytes];
        let mut seq = 0;
        bencher.iter(|| {
            seq += 1;
            let mut insert = database.prepare_cached("INSERT INTO records VALUES (1, ?1, ?2)").expect("a statement");
            insert.execute((seq, &body)).expect("a commit")
        });
    });
    group.finish();
}

async fn durable_runtime(directory: &Path) -> Runtime {
    let store = SqliteStore::open(directory.join("runs.db")).await.expect("a store");
    Runtime::builder()
        .store(store)
        .sign_with(SecretKey::from_seed(&[1; 32]))
        .grant("rye.execute.tool.bench.tick")
        .expect("a pattern")
        .build()
        .expect("built")
}

/// Returns how many bytes a step's record has, hash and signature included.
fn bytes_a_step(tokio: &Tokio, directory: &Path) -> usize {
    tokio.block_on(async {
        let runtime = durable_runtime(directory).await;
        let run: RunId = RunId::new("measured").expect("an id");
        runtime
            .start_as(run.clone(), Countdown::new(Counter::from(100)), Map::new())
            .await
            .expect("starts")
            .await
            .expect("ends");
        let store = SqliteStore::open(directory.join("runs.db")).await.expect("a store");
        let records = store.load(&run).await.expect("the journal is there");
        let all: usize = records.iter().map(|record| record.body.len() + record.signature.len()).sum();
        all / records.len()
    })
}

criterion_group!(benches, in_memory, routing, durable);
criterion_main!(benches);

//! The cost of a step: in memory, beyond the tool's own future, compiled and interpreted; of its routing alone; of an item of
//! a parallel foreach; and durable, relative to a bare commit.
//!
//! Run with `cargo bench --bench steps`. Each group includes its reference: the difference or the ratio counts. `pairs`
//! prints the figures that count, and `pairs branches` only those of branches. `once NAME COUNT` does one thing `COUNT` times,
//! for tools that count instructions, regardless of the load of the machine.

use std::hint::black_box;
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use criterion::{Criterion, criterion_group};
use graph_engine::activation::Activation;
use graph_engine::graph::{CompiledGraph, Notes, Now, tables};
use graph_engine::step::{CallFacts, Env, Outcome, Position, settle};
use graph_runtime::dynamic::{Library, Toolbox};
use graph_runtime::observer::Event;
use graph_runtime::{
    ActionError, Builder, Call, Graph, Machine, Map, Observer, RunId, Runtime, SecretKey, SqliteStore, StateFields,
    Store, Value,
};
use rusqlite::Connection;
use state_graphs::tools::{bench_square, bench_tick, shop_charge_card, shop_look_up};
use state_graphs::{Countdown, Order, Rounds, Spread, Sweep, Tally, order, rounds, spread, sweep};
use tokio::runtime::Runtime as Tokio;

/// Counts down; its future is ready at the first poll.
struct Counter(AtomicI64);

impl Counter {
    fn from(count: u64) -> Self {
        Self(AtomicI64::new(i64::try_from(count).expect("criterion counts in moderation")))
    }
}

impl bench_tick::Tool for Counter {
    async fn bench_tick(&self, _: &Call, _: bench_tick::Params) -> Result<bench_tick::Output, ActionError> {
        Ok(bench_tick::Output { left: self.0.fetch_sub(1, Ordering::Relaxed) - 1 })
    }
}

/// The same with a future that yields once, so that the engine waits for its answer.
struct Yielding(Counter);

impl bench_tick::Tool for Yielding {
    async fn bench_tick(&self, call: &Call, params: bench_tick::Params) -> Result<bench_tick::Output, ActionError> {
        tokio::task::yield_now().await;
        self.0.bench_tick(call, params).await
    }
}

/// The tools of `order`, of which only the routing is measured.
struct Shop;

impl shop_look_up::Tool for Shop {
    async fn shop_look_up(&self, _: &Call, _: shop_look_up::Params) -> Result<shop_look_up::Output, ActionError> {
        Err(ActionError::permanent("not called here"))
    }
}

impl shop_charge_card::Tool for Shop {
    async fn shop_charge_card(
        &self,
        _: &Call,
        _: shop_charge_card::Params,
    ) -> Result<shop_charge_card::Output, ActionError> {
        Err(ActionError::permanent("not called here"))
    }
}

fn tokio() -> Tokio {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("tokio starts")
}

/// A [`Counter`] that records the times of its first and its last call.
struct Clocked {
    counter: Counter,
    between: Arc<Mutex<Option<(Instant, Instant)>>>,
}

impl bench_tick::Tool for Clocked {
    async fn bench_tick(&self, call: &Call, params: bench_tick::Params) -> Result<bench_tick::Output, ActionError> {
        let now = Instant::now();
        self.between.lock().expect("nobody panics").get_or_insert((now, now)).1 = now;
        self.counter.bench_tick(call, params).await
    }
}

/// Squares numbers; its future is ready at the first poll.
struct Squares;

impl bench_square::Tool for Squares {
    async fn bench_square(&self, _: &Call, params: bench_square::Params) -> Result<i64, ActionError> {
        Ok(params.number.wrapping_mul(params.number))
    }
}

/// Returns the same tool for interpreted graphs.
fn toolbox(count: u64) -> Toolbox {
    let counter = Arc::new(Counter::from(count));
    Toolbox::new().with("bench/tick", move |_, _| {
        let counter = Arc::clone(&counter);
        async move { Ok(serde_json::json!({ "left": counter.0.fetch_sub(1, Ordering::Relaxed) - 1 })) }
    })
}

/// Times a run of `count` steps of an interpreted graph.
fn time_interpreted(tokio: &Tokio, runtime: &Runtime, name: &str, count: u64) -> Duration {
    let graphs = Path::new(env!("CARGO_MANIFEST_DIR")).join("graphs");
    let graph = Library::open(&graphs, toolbox(count)).graph(&graphs.join(name)).expect("the graph is right");
    time(tokio, runtime, graph)
}

/// Times a foreach over `count` items.
fn time_sweep(tokio: &Tokio, runtime: &Runtime, count: u64) -> Duration {
    let (elapsed, output) = ran(tokio, runtime, Sweep::new(Squares), sweep::Inputs { numbers: numbers(count) });
    assert_eq!(output.squares.len() as u64, count, "every item has its result");
    elapsed
}

/// Times a run with one fan-out of `branches` branches. Each calls the tool and adds to a channel.
fn time_spread(tokio: &Tokio, runtime: &Runtime, branches: u64) -> Duration {
    let numbers = numbers(branches);
    let sum: i64 = numbers.iter().map(|number| number * number).sum();
    let (elapsed, output) = ran(tokio, runtime, Spread::new(Squares), spread::Inputs { numbers });
    assert_eq!(output, sum, "every branch has added its square");
    elapsed
}

/// Times a run of `count` steps.
fn time<G: Graph<Inputs = Map<String, Value>>>(tokio: &Tokio, runtime: &Runtime, graph: G) -> Duration
where
    G::Output: Send,
{
    ran(tokio, runtime, graph, Map::new()).0
}

/// Runs a graph to its end. Returns the time and the output.
fn ran<G: Graph>(tokio: &Tokio, runtime: &Runtime, graph: G, inputs: G::Inputs) -> (Duration, G::Output) {
    tokio.block_on(async {
        let began = Instant::now();
        let run = runtime.start(graph, inputs).await.expect("the run starts");
        let finished = run.await.expect("the run ends");
        (began.elapsed(), finished.output)
    })
}

fn numbers(count: u64) -> Vec<i64> {
    (0..i64::try_from(count).expect("criterion counts in moderation")).collect()
}

/// Measures a step of a run without a store: the time of the whole run, divided by its steps.
fn in_memory(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("in memory");
    let runtime = Runtime::builder().grant("rye.execute.tool.bench.*").expect("a pattern").build().expect("built");
    let tokio = tokio();
    // A call, and two edges of which the second is followed.
    group.bench_function("step", |bencher| {
        bencher.iter_custom(|count| time(&tokio, &runtime, Countdown::new(Counter::from(count))));
    });
    // The same, with a key of the state written and read.
    group.bench_function("step with an assignment", |bencher| {
        bencher.iter_custom(|count| time(&tokio, &runtime, Tally::new(Counter::from(count))));
    });
    group.bench_function("step, interpreted", |bencher| {
        bencher.iter_custom(|count| time_interpreted(&tokio, &runtime, "countdown.yaml", count));
    });
    group.bench_function("item of a parallel foreach", |bencher| {
        bencher.iter_custom(|count| time_sweep(&tokio, &runtime, count));
    });
    group.bench_function("the tool's own future, boxed", |bencher| {
        bencher.iter_custom(|count| own_futures(&tokio, count));
    });
    group.finish();
}

/// Times the cost of a tool without an engine: a boxed future that is ready.
fn own_futures(tokio: &Tokio, count: u64) -> Duration {
    let counter = Counter::from(count);
    tokio.block_on(async {
        let began = Instant::now();
        for _ in 0..count {
            let future: Pin<Box<dyn Future<Output = i64> + Send>> =
                Box::pin(async { counter.0.fetch_sub(1, Ordering::Relaxed) - 1 });
            black_box(future.await);
        }
        began.elapsed()
    })
}

/// Times the cost of a yield in a task, without an engine.
fn own_yields(tokio: &Tokio, count: u64) -> Duration {
    let yields = tokio.spawn(async move {
        let began = Instant::now();
        for _ in 0..count {
            tokio::task::yield_now().await;
        }
        began.elapsed()
    });
    tokio.block_on(yields).expect("it does not panic")
}

/// Measures the conditions of `is_available` in `order`, for each of its two edges.
fn routing(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("routing");
    for (name, in_stock) in EDGES {
        group.bench_function(name, |bencher| bencher.iter_custom(|count| routed(in_stock, count)));
    }
    group.finish();
}

/// The numbers in stock for which each edge is followed.
const EDGES: [(&str, i64); 2] = [("the first of two edges", 3), ("the second of two edges", 0)];

/// Times the choice of an edge.
fn routed(in_stock: i64, count: u64) -> Duration {
    let machine = Order::new(Shop);
    let inputs = serde_json::json!({"article": "tea", "card": "tok_1"});
    let mut state = machine.open(inputs).expect("the inputs fit");
    // The keys are in the order of the file: `status` from `config.state`, then the assigned keys.
    for (key, value) in [(1, Value::from(250)), (2, Value::from(in_stock))] {
        state.set(key, value).expect("the value fits");
    }
    let expected = if in_stock > 0 { order::Node::ChargeCard } else { order::Node::BackOrder };
    let began = Instant::now();
    let next = settle_often(machine.graph(), &*state, order::Node::IsAvailable as u16, count);
    let took = began.elapsed();
    assert_eq!(next, Some(expected as u16), "another edge is taken");
    took
}

/// Measures a step of a run in SQLite, and a commit of as many bytes to a similar table.
fn durable(criterion: &mut Criterion) {
    let (directory, tokio) = (directory(), tokio());
    let bytes = bytes_a_step(&tokio, directory.path());
    println!("a step's record has {bytes} bytes");
    let mut group = criterion.benchmark_group("durable");
    group.measurement_time(Duration::from_secs(10));
    let runtime = tokio.block_on(durable_runtime(directory.path()));
    group.bench_function("signed step in SQLite", |bencher| {
        bencher.iter_custom(|count| time(&tokio, &runtime, Tally::new(Counter::from(count))));
    });
    let bare = Bare::open(directory.path(), bytes);
    group.bench_function("bare commit of the same bytes", |bencher| bencher.iter(|| bare.commit()));
    group.finish();
}

/// Returns a directory for databases. It is in the build directory, because the system's temporary directory may be in memory.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(Path::new(env!("CARGO_MANIFEST_DIR")).join("target")).expect("a directory")
}

/// A database without the runtime.
struct Bare {
    database: Connection,
    body: Vec<u8>,
}

impl Bare {
    fn open(directory: &Path, bytes: usize) -> Self {
        let database = Connection::open(directory.join("bare.db")).expect("a database");
        database
            .execute_batch(
                "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
                 CREATE TABLE IF NOT EXISTS records (key INTEGER PRIMARY KEY, body BLOB NOT NULL)",
            )
            .expect("a table");
        Self { database, body: vec![b'x'; bytes] }
    }

    fn commit(&self) {
        let insert = "INSERT INTO records (body) VALUES (?1)";
        let mut insert = self.database.prepare_cached(insert).expect("a statement");
        insert.execute([&self.body]).expect("a commit");
    }
}

async fn durable_runtime(directory: &Path) -> Runtime {
    durable_builder(directory).await.build().expect("built")
}

async fn durable_builder(directory: &Path) -> Builder {
    let store = SqliteStore::open(directory.join("runs.db")).await.expect("a store");
    Runtime::builder()
        .store(store)
        .sign_with(SecretKey::from_seed(&[1; 32]))
        .grant("rye.execute.tool.bench.*")
        .expect("a pattern")
}

/// When records were committed, with the number of bytes of each batch, signatures included, and whether it has a step.
#[derive(Default)]
struct Commits(Mutex<Vec<(Instant, usize, bool)>>);

impl Observer for Commits {
    fn observe(&self, event: &Event<'_>) {
        if let Event::Recorded { records, .. } = event {
            let bytes = records.iter().map(|record| record.body.len() + record.signature.len()).sum();
            let has_step = records.iter().any(|record| record.body.contains(r#""kind":"step""#));
            self.0.lock().expect("nobody panics").push((Instant::now(), bytes, has_step));
        }
    }
}

/// Times the steps with `branches` branches in a run that has many: from the commit of the step before to its own. Returns
/// their time, the number of bytes that each wrote, and how many there were.
fn branch_steps(tokio: &Tokio, runtime: &Runtime, commits: &Commits, branches: u64) -> (Duration, usize, u32) {
    ran(tokio, runtime, Rounds::new(Squares), rounds::Inputs { numbers: numbers(branches) });
    let (mut time, mut total, mut count) = (Duration::ZERO, 0, 0);
    let (mut before, mut written) = (None, 0);
    for (at, bytes, has_step) in std::mem::take(&mut *commits.0.lock().expect("nobody panics")) {
        written += bytes;
        if has_step {
            // The other steps visit a single node.
            if let Some(before) = before.filter(|_| bytes > 2_000) {
                (time, total, count) = (time + (at - before), total + written, count + 1);
            }
            (before, written) = (Some(at), 0);
        }
    }
    (time, total / count as usize, count)
}

/// Returns the number of bytes in a step's record, including hash and signature.
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

/// How often each figure is measured.
const PAIRS: usize = 31;
/// How often steps and bare commits alternate. Other load on the disk changes meanwhile, so it affects both alike.
const TURNS: usize = 201;
/// The number of commits after which a store is in a steady state: its log is reused from the beginning, and its cache is full.
const WARM: u64 = 40_000;

fn nanoseconds(time: Duration, count: u64) -> f64 {
    time.as_secs_f64() * 1e9 / count as f64
}

/// Prints the figures that count. Work of the processor is measured many times: the minimum says most about the program, and
/// the median is printed beside it. Work of the disk is reported as the median of ratios.
fn pairs(only_branches: bool) {
    let tokio = tokio();
    let runtime = Runtime::builder().grant("rye.execute.tool.bench.*").expect("a pattern").build().expect("built");
    if !only_branches {
        pairs_of_steps(&tokio, &runtime);
    }
    for branches in [50, 1_000, 10_000] {
        let spread = measure(|| nanoseconds(time_spread(&tokio, &runtime, branches), branches));
        println!("a branch of a fan-out of {branches}, with the tool's own future: {spread}");
    }
    durable_pairs(&tokio);
}

/// Prints the figures of steps in memory, without branches.
fn pairs_of_steps(tokio: &Tokio, runtime: &Runtime) {
    const STEPS: u64 = 20_000;
    const ITEMS: u64 = 10_000;
    const CHOICES: u64 = 100_000;
    let own = measure(|| nanoseconds(own_futures(tokio, STEPS), STEPS));
    println!("the tool's own future, boxed: {own}");
    let plain = measure(|| nanoseconds(time(tokio, runtime, Countdown::new(Counter::from(STEPS))), STEPS));
    println!("a step in memory, with that: {plain}");
    println!("  beyond the tool's own future: {:.0} ns ({:.0} ns)", plain.least - own.least, plain.median - own.median);
    let yielding = measure(|| nanoseconds(time(tokio, runtime, Countdown::new(Yielding(Counter::from(STEPS)))), STEPS));
    let yields = measure(|| nanoseconds(own_yields(tokio, STEPS), STEPS));
    println!("a step in memory whose tool yields once: {yielding}; the yield alone: {yields}");
    let assigning = measure(|| nanoseconds(time(tokio, runtime, Tally::new(Counter::from(STEPS))), STEPS));
    println!(
        "  the same with an assignment: {:.0} ns ({:.0} ns)",
        assigning.least - own.least,
        assigning.median - own.median
    );
    let interpreted = measure(|| nanoseconds(time_interpreted(tokio, runtime, "countdown.yaml", STEPS), STEPS));
    println!("a step in memory, interpreted, with the tool's own future: {interpreted}");
    let swept = measure(|| nanoseconds(time_sweep(tokio, runtime, ITEMS), ITEMS));
    println!("an item of a parallel foreach, with the tool's own future: {swept}");
    for (name, in_stock) in EDGES {
        println!("routing alone, {name}: {}", measure(|| nanoseconds(routed(in_stock, CHOICES), CHOICES)));
    }
}

/// Prints the figures of durable steps.
fn durable_pairs(tokio: &Tokio) {
    const COMMITS: u64 = 50;
    const BRANCHES: u64 = 50;
    let directory = directory();
    let runtime = tokio.block_on(durable_runtime(directory.path()));
    let bare = Bare::open(directory.path(), bytes_a_step(tokio, directory.path()));
    // While the log grows, the size of its file is written too. While the cache grows, it allocates memory.
    time(tokio, &runtime, Tally::new(Counter::from(WARM)));
    (0..WARM).for_each(|_| bare.commit());
    let ratio = measured(TURNS, || {
        let steps = between_calls(tokio, &runtime, COMMITS);
        let began = Instant::now();
        (0..COMMITS).for_each(|_| bare.commit());
        steps.as_secs_f64() / began.elapsed().as_secs_f64()
    });
    println!("a durable signed step, over a bare commit: {:.2} times", ratio.median);
    let commits = Arc::new(Commits::default());
    let watched = tokio.block_on(durable_builder(directory.path())).observer(Arc::clone(&commits));
    let watched = watched.build().expect("built");
    let (_, bytes, _) = branch_steps(tokio, &watched, &commits, BRANCHES);
    let bare = Bare::open(directory.path(), bytes);
    let ratio = measured(TURNS / 2, || {
        let (steps, _, count) = branch_steps(tokio, &watched, &commits, BRANCHES);
        let began = Instant::now();
        (0..count).for_each(|_| bare.commit());
        steps.as_secs_f64() / began.elapsed().as_secs_f64()
    });
    println!("a durable step with {BRANCHES} branches ({bytes} bytes), over a bare commit: {:.2} times", ratio.median);
}

/// Times `steps` steps in the middle of a run: from one call of the tool to a later one.
fn between_calls(tokio: &Tokio, runtime: &Runtime, steps: u64) -> Duration {
    let between = Arc::default();
    time(tokio, runtime, Tally::new(Clocked { counter: Counter::from(steps + 1), between: Arc::clone(&between) }));
    let (first, last) = between.lock().expect("nobody panics").expect("the tool is called");
    last - first
}

/// A figure that was measured several times.
struct Figure {
    least: f64,
    median: f64,
}

impl std::fmt::Display for Figure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.0} ns ({:.0} ns)", self.least, self.median)
    }
}

fn measure(once: impl FnMut() -> f64) -> Figure {
    measured(PAIRS, once)
}

fn measured(times: usize, mut once: impl FnMut() -> f64) -> Figure {
    let mut all: Vec<f64> = (0..times).map(|_| once()).collect();
    all.sort_by(f64::total_cmp);
    Figure { least: all[0], median: all[times / 2] }
}

/// Does one thing `count` times and prints nothing, for tools that count instructions: the difference between the results for
/// two counts is the cost of the additional repetitions.
fn once(name: &str, count: u64) {
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("tokio starts");
    let runtime = Runtime::builder().grant("rye.execute.tool.bench.*").expect("a pattern").build().expect("built");
    match name {
        "step" => time(&tokio, &runtime, Countdown::new(Counter::from(count))),
        "yielding" => time(&tokio, &runtime, Countdown::new(Yielding(Counter::from(count)))),
        "assignment" => time(&tokio, &runtime, Tally::new(Counter::from(count))),
        "interpreted" => time_interpreted(&tokio, &runtime, "countdown.yaml", count),
        "item" => time_sweep(&tokio, &runtime, count),
        "branch" => time_spread(&tokio, &runtime, count),
        "first-edge" => routed(EDGES[0].1, count),
        "second-edge" => routed(EDGES[1].1, count),
        "durable" | "bare" | "durable-branches" => once_durable(name, count),
        other => {
            eprintln!(
                "`{other}` is not measured; name step, yielding, assignment, interpreted, item, branch, first-edge, second-edge, durable, durable-branches or bare"
            );
            std::process::exit(2);
        }
    };
}

/// Executes `count` durable steps, `count` durable runs of a hundred steps with 50 branches, or `count` commits of as many bytes
/// as a step.
fn once_durable(name: &str, count: u64) -> Duration {
    let (directory, tokio) = (directory(), tokio());
    let began = Instant::now();
    if name == "durable" {
        let runtime = tokio.block_on(durable_runtime(directory.path()));
        time(&tokio, &runtime, Tally::new(Counter::from(count)));
    } else if name == "durable-branches" {
        let runtime = tokio.block_on(durable_runtime(directory.path()));
        for _ in 0..count {
            ran(&tokio, &runtime, Rounds::new(Squares), rounds::Inputs { numbers: numbers(50) });
        }
    } else {
        let bare = Bare::open(directory.path(), bytes_a_step(&tokio, directory.path()));
        (0..count).for_each(|_| bare.commit());
    }
    began.elapsed()
}

criterion_group!(benches, in_memory, routing, durable);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if let [word, name, count] = &arguments[..]
        && word == "once"
    {
        return once(name, count.parse().expect("a count"));
    }
    if let Some("pairs") = arguments.first().map(String::as_str) {
        return pairs(arguments.get(1).is_some_and(|only| only == "branches"));
    }
    if arguments.is_empty() {
        pairs(false);
    }
    benches();
    Criterion::default().configure_from_args().final_summary();
}

/// Settles the same visit of a node without a call `times` times, and returns the node that it leads to.
fn settle_often(graph: &CompiledGraph, state: &dyn StateFields, node: u16, times: u64) -> Option<u16> {
    let graph = tables(graph);
    let position = Position::new(graph);
    let clock = || SystemTime::UNIX_EPOCH;
    let now = Now::new(&clock);
    let at = Activation::of(node);
    let env = Env::new(graph, &position, state, &at, &now);
    let (mut notes, mut changes, mut edge) = (Notes::default(), Vec::new(), None);
    for _ in 0..times {
        let settled = settle(black_box(&env), Outcome::None, &CallFacts::of(0), &mut notes, &mut changes);
        edge = settled.way.edge();
    }
    edge.and_then(|edge| graph.target(node, edge).flatten())
}

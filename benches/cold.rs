//! The cost of the first durable steps of a new file, relative to later steps in the same file.
//!
//! Run with `cargo bench --bench cold`. Each round is a separate run in a new file; the median of the ratios counts.

use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use graph_runtime::{ActionError, Call, Map, Options, Runtime, SecretKey, SqliteStore};
use state_graphs::Tally;
use state_graphs::tools::bench_tick;

/// The number of steps that count as the first ones, and of the steps after `WARM` that count as the later ones.
const FIRST: usize = 3_000;
/// The number of steps before the later ones.
const WARM: usize = 20_000;
/// How often the ratio is measured.
const ROUNDS: usize = 5;

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

/// Returns how many microseconds a step takes: one of the first steps of a new file, and one of the later steps.
#[expect(clippy::cast_precision_loss, reason = "a number of steps")]
async fn round(file: &Path) -> (f64, f64) {
    let asked = Arc::<Mutex<Vec<Instant>>>::default();
    let store = SqliteStore::open(file).await.expect("a store");
    let builder = Runtime::builder().store(store).sign_with(SecretKey::from_seed(&[1; 32]));
    let runtime = builder.grant("rye.execute.tool.bench.*").expect("a pattern").build().expect("built");
    let steps = u32::try_from(WARM + FIRST).expect("a number of steps");
    let options = Options { max_steps: Some(steps), ..Options::default() };
    let graph = Tally::new(Counter(AtomicI64::new(i64::MAX), Arc::clone(&asked)));
    let run = runtime.start_with(options, graph, Map::new()).await.expect("the run starts");
    run.await.expect_err("it may take so many steps and no more");
    let asked = asked.lock().expect("nobody panicked");
    let each = |from: usize| asked[from + FIRST - 1].duration_since(asked[from]).as_secs_f64() * 1e6 / FIRST as f64;
    (each(0), each(WARM))
}

fn main() {
    let tokio = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("tokio starts");
    // In the build directory, because the system's temporary directory may be in memory.
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("target");
    let directory = tempfile::tempdir_in(target).expect("a directory");
    let mut rounds: Vec<(f64, f64)> =
        (0..ROUNDS).map(|number| tokio.block_on(round(&directory.path().join(format!("{number}.db"))))).collect();
    rounds.sort_by(|one, other| (one.0 / one.1).total_cmp(&(other.0 / other.1)));
    let (first, later) = rounds[ROUNDS / 2];
    println!(
        "the first {FIRST} steps of a new file: {first:.0} µs each, {:.2} times the later ones ({later:.0} µs)",
        first / later
    );
}

//! The cost of a waiting run: memory per run and runs started per second, for 100,000 runs in memory whose tool never answers.
//!
//! Run with `cargo bench --bench live`. The memory is the growth of the process as the kernel reports it, divided by the
//! number of runs.

use std::time::Instant;

use graph_runtime::{ActionError, Call, Runtime};
use state_graphs::tools::bench_tick;
use state_graphs::{Countdown, countdown};

/// A tool that never answers.
struct Silent;

impl bench_tick::Tool for Silent {
    async fn bench_tick(&self, _: &Call, _: bench_tick::Params) -> Result<bench_tick::Output, ActionError> {
        std::future::pending().await
    }
}

/// Returns how many bytes the process has in memory.
fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("a kernel that tells");
    let pages: usize = pages.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number of pages");
    pages * 4096
}

fn main() {
    let tokio = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("tokio starts");
    // The first round allocates the data that all runs share.
    for count in [1_000, 100_000] {
        let (bytes, took) = tokio.block_on(async move {
            let runtime =
                Runtime::builder().grant("rye.execute.tool.bench.*").expect("a pattern").build().expect("built");
            let before = resident();
            let began = Instant::now();
            let mut runs = Vec::with_capacity(count);
            for _ in 0..count {
                runs.push(
                    runtime.start(Countdown::new(Silent), countdown::Inputs::default()).await.expect("it starts"),
                );
            }
            let took = began.elapsed();
            // By then, every task has been polled once and waits for its tool.
            tokio::time::sleep(std::time::Duration::from_millis(500)).await;
            let bytes = resident().saturating_sub(before);
            runtime.shutdown(std::time::Duration::ZERO).await;
            drop(runs);
            (bytes, took)
        });
        #[expect(clippy::cast_precision_loss, reason = "a rate")]
        let rate = count as f64 / took.as_secs_f64();
        println!("{count} runs that wait: {} bytes a run, {rate:.0} started a second", bytes / count);
    }
}

//! Traces of random runs whose process dies at each of its writes, right before or right after it, and that are resumed by others.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use graph_runtime::observer::{Event, Observer};
use graph_runtime::store::StoreError;
use graph_runtime::{Clock, Map, MemoryStore, RunError, RunId, Runtime, SecretKey, Store, TokioClock};
use graph_telemetry::Traces;
use graph_testkit::FaultyStore;

use crate::graphs::random_graph;
use crate::judge::{Collected, Found, judge};

/// An observer that hears nothing once its process is dead.
struct While<O>(FaultyStore, O);

impl<O: Observer> Observer for While<O> {
    fn observe(&self, event: &Event<'_>) {
        if !self.0.is_dead() {
            self.1.observe(event);
        }
    }

    fn wants_visits(&self) -> bool {
        self.1.wants_visits()
    }
}

/// Runs a random graph in processes that die as `lives` says, until it completes: each makes some writes, and dies at the next one, which
/// is durable or not. A process that ends before leaves its life to the next one. Returns what the judge found, and how many writes were
/// made since the last process died.
async fn traced(seed: u64, lives: &[(u64, bool)]) -> (Found, u64) {
    let clock: Arc<dyn Clock> = Arc::new(TokioClock::at(SystemTime::UNIX_EPOCH + Duration::from_secs(86_400)));
    let store = MemoryStore::with_clock(Arc::clone(&clock));
    let (graph, run, spans) = (random_graph(seed), RunId::new("root").unwrap(), Collected::default());
    let (mut lost, mut lives, mut processes) = (0, lives.iter().copied(), 0);
    let disk = store.clone();
    let mut born = move || match lives.next() {
        Some((left, true)) => (FaultyStore::dies_after(disk.clone(), left + 1), true),
        Some((left, false)) => (FaultyStore::dies_before(disk.clone(), left + 1), false),
        None => (FaultyStore::sound(disk.clone()), false),
    };
    let (mut process, mut writes_last) = born();
    loop {
        processes += 1;
        assert!(processes < 200, "seed {seed} does not end");
        let traces = Traces::builder().clock(Arc::clone(&clock)).queue(100_000).export(spans.clone()).unwrap();
        let builder = Runtime::builder().store(process.clone());
        let builder = builder.sign_with(SecretKey::from_seed(&[1; 32])).grant("*").unwrap().clock(Arc::clone(&clock));
        let runtime = builder.observer(While(process.clone(), traces.clone())).build().unwrap();
        let result = match store.find(&run).await {
            Ok(_) => match runtime.resume(graph.clone(), &run).await {
                Ok(resumed) => resumed.await,
                Err(error) => {
                    assert!(process.is_dead(), "seed {seed}: {error}");
                    Err(RunError::Store { run: run.clone(), step: 0, source: StoreError::Closed })
                }
            },
            Err(_) => match runtime.start_as(run.clone(), graph.clone(), Map::new()).await {
                Ok(started) => started.await,
                Err(_) => Err(RunError::Store { run: run.clone(), step: 0, source: StoreError::Closed }),
            },
        };
        drop(runtime);
        assert!(traces.shutdown(Duration::from_secs(10)), "all is exported");
        assert_eq!(traces.counts().dropped, 0);
        let is_dead = process.is_dead();
        if is_dead {
            lost += usize::from(writes_last);
            (process, writes_last) = born();
        }
        match result {
            Ok(_) => break,
            Err(_) if is_dead => {}
            Err(RunError::Waiting { .. }) => tokio::time::sleep(Duration::from_secs(61)).await,
            Err(error) => assert!(matches!(error, RunError::Node { .. }), "seed {seed}: {error}"),
        }
    }
    let spans = spans.0.lock().unwrap().clone();
    (judge(&store, &spans, lost, "root").await, process.writes())
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().unwrap())
}

#[tokio::test(start_paused = true)]
async fn spans_of_random_runs_are_those_of_their_journals() {
    let (mut nested, mut links, mut uncommitted, mut retried) = (0, 0, 0, 0);
    for seed in number("SEED", 0)..number("SEED", 0) + number("RUNS", 40) {
        let (found, _) = traced(seed, &[]).await;
        (nested, links) = (nested + found.nested, links + found.links);
        (uncommitted, retried) = (uncommitted + found.uncommitted, retried + found.retried);
    }
    assert!(nested > 20 && links > 100 && uncommitted > 5 && retried > 20, "{nested} {links} {uncommitted} {retried}");
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_any_write_repeats_no_span() {
    let (mut cut, mut crashes) = (0, 0);
    for seed in number("SEED", 0)..number("SEED", 0) + number("RUNS", 6) {
        let (_, writes) = traced(seed, &[]).await;
        for write in 0..writes {
            for writes_last in [false, true] {
                let (found, _) = traced(seed, &[(write, writes_last)]).await;
                (cut, crashes) = (cut + found.cut, crashes + 1);
            }
        }
        // Many crashes in a row.
        for few in 1..4 {
            let lives: Vec<(u64, bool)> = (0..30).map(|life| (few + life % 3, life % 2 == 0)).collect();
            traced(seed, &lives).await;
        }
    }
    assert!(cut > crashes / 2 && crashes > 100, "{cut} segments were cut by {crashes} crashes");
}

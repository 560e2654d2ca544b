//! Traces of random runs whose process dies at each of its writes, right before or right after it, and that are resumed by others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use graph_runtime::observer::{Event, Observer};
use graph_runtime::record::SignedRecord;
use graph_runtime::store::{
    Inbox, Lease, Page, RunFilter, RunPage, RunSummary, StoreError, StoreFuture, WaitChanges, WaitFilter, WaitPage,
};
use graph_runtime::{Clock, Map, MemoryStore, RunError, RunId, Runtime, SecretKey, Status, Store, TokioClock};
use graph_telemetry::Traces;

use crate::graphs::random_graph;
use crate::judge::{Collected, Found, judge};

/// The life of a process.
#[derive(Debug, Default)]
struct Life {
    /// How many writes it makes before it dies.
    left: AtomicU64,
    /// Whether the write at which it dies is durable.
    writes_last: bool,
    is_dead: AtomicBool,
}

impl Life {
    fn until(writes: u64, writes_last: bool) -> Arc<Self> {
        Arc::new(Self { left: AtomicU64::new(writes), writes_last, is_dead: AtomicBool::new(false) })
    }
}

/// The store as a process sees it that dies at a write.
#[derive(Debug, Clone)]
struct Mortal {
    inner: MemoryStore,
    life: Arc<Life>,
}

impl Mortal {
    async fn write<T>(&self, write: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        let dead = || Err(StoreError::failed("the process is dead"));
        if self.life.is_dead.load(Ordering::SeqCst) {
            return dead();
        }
        let takes_one = |left: u64| left.checked_sub(1);
        if self.life.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, takes_one).is_ok() {
            return write.await;
        }
        self.life.is_dead.store(true, Ordering::SeqCst);
        if self.life.writes_last {
            drop(write.await?);
        }
        dead()
    }
}

impl Store for Mortal {
    fn create<'a>(&'a self, run: &'a RunId, graph: &'a str, records: Vec<SignedRecord>) -> StoreFuture<'a, Lease> {
        Box::pin(self.write(self.inner.create(run, graph, records)))
    }

    fn append<'a>(
        &'a self,
        lease: &'a Lease,
        expected: u64,
        records: Vec<SignedRecord>,
        status: Status,
    ) -> StoreFuture<'a, ()> {
        Box::pin(self.write(self.inner.append(lease, expected, records, status)))
    }

    fn append_waiting<'a>(
        &'a self,
        lease: &'a Lease,
        expected: u64,
        records: Vec<SignedRecord>,
        status: Status,
        waits: WaitChanges,
    ) -> StoreFuture<'a, ()> {
        Box::pin(self.write(self.inner.append_waiting(lease, expected, records, status, waits)))
    }

    fn open_waits<'a>(&'a self, filter: &'a WaitFilter, page: &'a Page) -> StoreFuture<'a, WaitPage> {
        self.inner.open_waits(filter, page)
    }

    fn now(&self) -> StoreFuture<'_, i64> {
        self.inner.now()
    }

    fn inbox<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, Inbox> {
        self.inner.inbox(run)
    }

    fn load<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, Vec<SignedRecord>> {
        self.inner.load(run)
    }

    fn lease<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, Lease> {
        self.inner.lease(run)
    }

    fn runs<'a>(&'a self, filter: &'a RunFilter, page: &'a Page) -> StoreFuture<'a, RunPage> {
        self.inner.runs(filter, page)
    }

    fn find<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, RunSummary> {
        self.inner.find(run)
    }
}

/// An observer that hears nothing once its process is dead.
struct While<O>(Arc<Life>, O);

impl<O: Observer> Observer for While<O> {
    fn observe(&self, event: &Event<'_>) {
        if !self.0.is_dead.load(Ordering::SeqCst) {
            self.1.observe(event);
        }
    }

    fn wants_visits(&self) -> bool {
        self.1.wants_visits()
    }
}

/// Runs a random graph in processes that die as `lives` says, until it completes. Returns what the judge found, and how many writes the
/// processes made.
async fn traced(seed: u64, lives: &[(u64, bool)]) -> (Found, u64) {
    let clock: Arc<dyn Clock> = Arc::new(TokioClock::at(SystemTime::UNIX_EPOCH + Duration::from_secs(86_400)));
    let store = MemoryStore::with_clock(Arc::clone(&clock));
    let (graph, run, spans) = (random_graph(seed), RunId::new("root").unwrap(), Collected::default());
    let (mut lost, mut writes) = (0, 0);
    let (mut lives, mut next, mut processes) = (lives.iter().copied(), None, 0);
    loop {
        processes += 1;
        assert!(processes < 200, "seed {seed} does not end");
        // Writes are counted until a process dies, over those that end before.
        let (left, writes_last) = next.take().or_else(|| lives.next()).unwrap_or((u64::MAX, false));
        let life = Life::until(left, writes_last);
        let traces = Traces::builder().clock(Arc::clone(&clock)).queue(100_000).export(spans.clone()).unwrap();
        let builder = Runtime::builder().store(Mortal { inner: store.clone(), life: Arc::clone(&life) });
        let builder = builder.sign_with(SecretKey::from_seed(&[1; 32])).grant("*").unwrap().clock(Arc::clone(&clock));
        let runtime = builder.observer(While(Arc::clone(&life), traces.clone())).build().unwrap();
        let result = match store.find(&run).await {
            Ok(_) => match runtime.resume(graph.clone(), &run).await {
                Ok(resumed) => resumed.await,
                Err(error) => {
                    assert!(life.is_dead.load(Ordering::SeqCst), "seed {seed}: {error}");
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
        let still = life.left.load(Ordering::SeqCst);
        writes += left - still;
        let is_dead = life.is_dead.load(Ordering::SeqCst);
        lost += usize::from(is_dead && writes_last);
        next = (!is_dead).then_some((still, writes_last));
        match result {
            Ok(_) => break,
            Err(_) if is_dead => {}
            Err(RunError::Waiting { .. }) => tokio::time::sleep(Duration::from_secs(61)).await,
            Err(error) => assert!(matches!(error, RunError::Node { .. }), "seed {seed}: {error}"),
        }
    }
    let spans = spans.0.lock().unwrap().clone();
    (judge(&store, &spans, lost, "root").await, writes)
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

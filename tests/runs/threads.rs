//! Branches whose tools block their threads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant, SystemTime};

use graph_runtime::observer::Event;
use graph_runtime::record::{Entry, Record};
use graph_runtime::store::StoreError;
use graph_runtime::{
    ActionError, Builder, Call, ManualClock, MemoryStore, Observer, RunError, RunId, Runtime, SecretKey, Store, audit,
};
use state_graphs::tools::bench_square;
use state_graphs::{Spread, spread};
use tokio::sync::{Barrier, Notify};

const PATIENCE: Duration = Duration::from_secs(60);

/// Squares numbers, each after its branch has met all others. A thread waits for the others in each branch.
struct Meeting {
    all: usize,
    present: Mutex<usize>,
    added: Condvar,
    /// Whether it tells Tokio that it blocks the thread.
    in_place: bool,
}

impl Meeting {
    fn of(all: usize, in_place: bool) -> Spread<Self> {
        Spread::new(Self { all, present: Mutex::default(), added: Condvar::new(), in_place })
    }

    /// Blocks the thread until all are present.
    fn wait(&self) -> Result<(), ActionError> {
        let mut present = self.present.lock().unwrap();
        *present += 1;
        self.added.notify_all();
        let is_open = |present: &mut usize| *present < self.all;
        let (present, _) = self.added.wait_timeout_while(present, PATIENCE, is_open).unwrap();
        if *present < self.all { Err(ActionError::permanent(format!("only {present} came"))) } else { Ok(()) }
    }
}

impl bench_square::Tool for Meeting {
    async fn bench_square(&self, _: &Call, params: bench_square::Params) -> Result<i64, ActionError> {
        let met = if self.in_place { tokio::task::block_in_place(|| self.wait()) } else { self.wait() };
        met?;
        Ok(params.number * params.number)
    }
}

/// Squares numbers, each when 64 calls are in progress, and counts how many are at a time.
struct Counting {
    now: AtomicUsize,
    most: Arc<AtomicUsize>,
    meeting: Barrier,
}

impl bench_square::Tool for Counting {
    async fn bench_square(&self, _: &Call, params: bench_square::Params) -> Result<i64, ActionError> {
        self.most.fetch_max(self.now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.meeting.wait().await;
        self.now.fetch_sub(1, Ordering::Relaxed);
        Ok(params.number * params.number)
    }
}

/// Panics when the fourth visit of a run begins.
#[derive(Default)]
struct PanicsAtFour {
    panicked: AtomicUsize,
}

impl Observer for PanicsAtFour {
    fn observe(&self, event: &Event<'_>) {
        if let Event::StepStarted { step: 4, .. } = event {
            self.panicked.fetch_add(1, Ordering::Relaxed);
            panic!("no visit is the fourth");
        }
    }
}

/// Counts the visits that begin.
#[derive(Default)]
struct Begun(AtomicUsize);

impl Observer for Begun {
    fn observe(&self, event: &Event<'_>) {
        self.0.fetch_add(usize::from(matches!(event, Event::StepStarted { .. })), Ordering::Relaxed);
    }
}

/// Squares numbers. For the number 0 it says that it was called, and blocks its thread until it is released. For -1 it waits a
/// little. For -2 it says that it was called, and waits forever.
struct Blocked {
    called: Mutex<Sender<()>>,
    released: Mutex<Receiver<()>>,
}

impl bench_square::Tool for Blocked {
    async fn bench_square(&self, _: &Call, params: bench_square::Params) -> Result<i64, ActionError> {
        if params.number == 0 {
            self.called.lock().unwrap().send(()).unwrap_or_default();
            self.released.lock().unwrap().recv_timeout(PATIENCE).expect("the test releases it");
        }
        match params.number {
            -1 => tokio::time::sleep(Duration::from_millis(5)).await,
            -2 => {
                self.called.lock().unwrap().send(()).unwrap_or_default();
                std::future::pending::<()>().await;
            }
            _ => {}
        }
        Ok(params.number * params.number)
    }
}

/// Squares numbers. For the number 0 it waits until it is released, and for negative numbers it fails.
#[derive(Default)]
struct Waiting {
    released: Arc<Notify>,
    called: Arc<Mutex<Vec<i64>>>,
}

impl bench_square::Tool for Waiting {
    async fn bench_square(&self, _: &Call, params: bench_square::Params) -> Result<i64, ActionError> {
        self.called.lock().unwrap().push(params.number);
        match params.number {
            ..0 => return Err(ActionError::permanent("it has no square here")),
            0 => self.released.notified().await,
            1.. => {}
        }
        Ok(params.number * params.number)
    }
}

/// A run of a graph with a blocked branch.
struct Blocking {
    runtime: Runtime,
    store: MemoryStore,
    id: RunId,
    graph: Spread<Blocked>,
    called: Receiver<()>,
    release: Sender<()>,
}

fn key() -> SecretKey {
    SecretKey::from_seed(&[7; 32])
}

fn builder(store: &MemoryStore) -> Builder {
    Runtime::builder().grant("rye.execute.tool.bench.*").unwrap().store(store.clone()).sign_with(key())
}

/// Returns a runtime with a clock that never moves. In it no step writes its calls after a millisecond.
fn timeless(store: &MemoryStore) -> Runtime {
    builder(store).clock(Arc::new(ManualClock::at(SystemTime::UNIX_EPOCH))).build().unwrap()
}

fn blocking() -> Blocking {
    let (store, id) = (MemoryStore::new(), RunId::new("spread").unwrap());
    let runtime = builder(&store).build().unwrap();
    let ((called, is_called), (release, released)) = (channel(), channel());
    let (called, released) = (Mutex::new(called), Mutex::new(released));
    let graph = Spread::new(Blocked { called, released });
    Blocking { runtime, store, id, graph, called: is_called, release }
}

/// Waits until something holds, without blocking the thread.
async fn until<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let began = Instant::now();
    while !holds().await {
        assert!(began.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Returns how many calls a journal has in records of their own.
async fn calls_in(store: &MemoryStore, id: &RunId) -> usize {
    let records = store.load(id).await.unwrap();
    let entries = records.iter().map(|signed| serde_json::from_str::<Record>(&signed.body).unwrap().entry);
    let calls = |entry| if let Entry::Calls(calls) = entry { calls.done.len() } else { 0 };
    entries.map(calls).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn branches_run_on_several_threads() {
    let runtime = Runtime::builder().grant("rye.execute.tool.bench.*").unwrap().build().unwrap();
    // All four threads wait for each other, so a run that had fewer would fail.
    let run = runtime.start(Meeting::of(4, false), spread::Inputs { numbers: vec![1, 2, 3, 4] });
    assert_eq!(run.await.unwrap().await.unwrap().output, 30);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn branches_that_block_in_place_are_all_in_progress() {
    let runtime = Runtime::builder().grant("rye.execute.tool.bench.*").unwrap().build().unwrap();
    // `max_concurrency` is 64, so all 64 meet, on threads that Tokio adds.
    let inputs = spread::Inputs { numbers: vec![1; 64] };
    let run = runtime.start(Meeting::of(64, true), inputs).await.unwrap();
    assert_eq!(run.await.unwrap().output, 64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_most_as_many_branches_are_in_progress_as_the_graph_allows() {
    let runtime = Runtime::builder().grant("rye.execute.tool.bench.*").unwrap().build().unwrap();
    let most = Arc::default();
    let tools = Counting { now: AtomicUsize::new(0), most: Arc::clone(&most), meeting: Barrier::new(64) };
    // Fewer than 64 at a time would wait forever.
    let inputs = spread::Inputs { numbers: vec![1; 640] };
    let run = runtime.start(Spread::new(tools), inputs).await.unwrap();
    assert_eq!(tokio::time::timeout(PATIENCE, run).await.unwrap().unwrap().output, 640);
    assert_eq!(most.load(Ordering::Relaxed), 64);
}

#[test]
fn branches_are_dropped_when_tokio_is_shut_down() {
    for threads in [1, 2] {
        let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build().unwrap();
        let tools = Waiting::default();
        let (released, called) = (Arc::clone(&tools.released), Arc::clone(&tools.called));
        let runtime = Runtime::builder().grant("rye.execute.tool.bench.*").unwrap().build().unwrap();
        let inputs = spread::Inputs { numbers: [1, 0].repeat(100) };
        let run = tokio.block_on(runtime.start(Spread::new(tools), inputs)).unwrap();
        // As many as may be in progress wait, each behind one that does not.
        tokio.block_on(until("64 branches wait", || async {
            called.lock().unwrap().iter().filter(|number| **number == 0).count() == 64
        }));
        tokio.shutdown_timeout(PATIENCE);
        drop((run, runtime));
        assert_eq!(Arc::strong_count(&released), 1, "a branch is left");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_observer_that_panics_in_a_branch_changes_nothing_for_the_run_and_the_other_observers() {
    let builder = Runtime::builder().grant("rye.execute.tool.bench.*").unwrap();
    let panics = Arc::new(PanicsAtFour::default());
    let begun = Arc::new(Begun::default());
    let runtime = builder.observer(Arc::clone(&panics)).observer(Arc::clone(&begun)).build().unwrap();
    let inputs = spread::Inputs { numbers: (1..=100).collect() };
    let run = runtime.start(Spread::new(Waiting::default()), inputs).await.unwrap();
    let finished = tokio::time::timeout(PATIENCE, run).await.unwrap().unwrap();
    assert_eq!((finished.output, finished.steps), (338_350, 102));
    assert_eq!(panics.panicked.load(Ordering::Relaxed), 1);
    assert_eq!(begun.0.load(Ordering::Relaxed), 102, "visits that the observer behind the one that panics saw");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn finished_calls_are_durable_while_a_branch_blocks_its_thread() {
    let Blocking { store, id, graph, called, release, .. } = blocking();
    let inputs = spread::Inputs { numbers: vec![0, 1, 2, 3] };
    let run = timeless(&store).start_as(id.clone(), graph.clone(), inputs).await.unwrap();
    tokio::task::spawn_blocking(move || called.recv_timeout(PATIENCE)).await.unwrap().unwrap();
    until("the other calls are in the journal", || async { calls_in(&store, &id).await == 3 }).await;
    release.send(()).unwrap();
    let finished = tokio::time::timeout(PATIENCE, run).await.unwrap().unwrap();
    assert_eq!(finished.output, 14);
    audit(&graph, &id, &store.load(&id).await.unwrap(), &key().public(), None).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_run_that_is_aborted_is_leased_until_its_blocked_branch_returns() {
    let Blocking { runtime, store, id, graph, called, release } = blocking();
    let inputs = spread::Inputs { numbers: vec![0, 1] };
    let run = runtime.start_as(id.clone(), graph.clone(), inputs).await.unwrap();
    tokio::task::spawn_blocking(move || called.recv_timeout(PATIENCE)).await.unwrap().unwrap();
    run.abort();
    assert!(matches!(run.await, Err(RunError::Stopped { .. })));
    // The call is in progress, so nobody else may make it.
    assert!(matches!(store.lease(&id).await, Err(StoreError::Leased { .. })));
    assert!(!runtime.clone().shutdown(Duration::ZERO).await.is_empty());
    release.send(()).unwrap();
    until("the lease is given back", || async { store.lease(&id).await.is_ok() }).await;
    release.send(()).unwrap();
    let again = builder(&store).build().unwrap();
    let finished = again.resume(graph.clone(), &id).await.unwrap();
    let finished = tokio::time::timeout(PATIENCE, finished).await.unwrap().unwrap();
    assert_eq!(finished.output, 1);
    audit(&graph, &id, &store.load(&id).await.unwrap(), &key().public(), None).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_aborted_run_begins_no_call_behind_its_blocked_ones() {
    let Blocking { store, id, graph, called, release, .. } = blocking();
    // As many as may be in progress, and more that would block.
    let inputs = spread::Inputs { numbers: [vec![0; 3], vec![-2; 61], vec![0; 40]].concat() };
    let run = timeless(&store).start_as(id.clone(), graph, inputs).await.unwrap();
    let called = tokio::task::spawn_blocking(move || {
        (0..64).for_each(|_| called.recv_timeout(PATIENCE).unwrap());
        called
    });
    let called = called.await.unwrap();
    run.abort();
    assert!(matches!(run.await, Err(RunError::Stopped { .. })));
    (0..43).for_each(|_| release.send(()).unwrap());
    until("the lease is given back", || async { store.lease(&id).await.is_ok() }).await;
    assert_eq!(called.try_iter().count(), 0, "calls after the run was aborted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn finished_calls_are_durable_though_their_worker_blocks_next() {
    let Blocking { runtime, store, id, graph, called, release } = blocking();
    // The first one that is done wakes the run, and its worker makes the last visit, which blocks the thread.
    let inputs = spread::Inputs { numbers: [vec![-1; 64], vec![0]].concat() };
    let run = runtime.start_as(id.clone(), graph, inputs).await.unwrap();
    tokio::task::spawn_blocking(move || called.recv_timeout(PATIENCE)).await.unwrap().unwrap();
    until("the other calls are in the journal", || async { calls_in(&store, &id).await == 64 }).await;
    release.send(()).unwrap();
    assert_eq!(tokio::time::timeout(PATIENCE, run).await.unwrap().unwrap().output, 64);
}

#[tokio::test]
async fn finished_calls_are_durable_while_a_branch_waits() {
    let (tools, store, id) = (Waiting::default(), MemoryStore::new(), RunId::new("spread").unwrap());
    let released = Arc::clone(&tools.released);
    // One worker makes all three visits, since the first two do not wait.
    let inputs = spread::Inputs { numbers: vec![1, 2, 0] };
    let run = timeless(&store).start_as(id.clone(), Spread::new(tools), inputs).await.unwrap();
    until("the first calls are in the journal", || async { calls_in(&store, &id).await == 2 }).await;
    released.notify_one();
    assert_eq!(tokio::time::timeout(PATIENCE, run).await.unwrap().unwrap().output, 5);
}

#[tokio::test]
async fn calls_that_never_wait_are_written_with_their_step() {
    let (store, id) = (MemoryStore::new(), RunId::new("spread").unwrap());
    let inputs = spread::Inputs { numbers: (1..=100).collect() };
    let run = timeless(&store).start_as(id.clone(), Spread::new(Waiting::default()), inputs).await.unwrap();
    assert_eq!(run.await.unwrap().output, 338_350);
    assert_eq!(calls_in(&store, &id).await, 0);
}

#[tokio::test]
async fn no_branch_begins_after_a_failure_that_ends_the_run() {
    let tools = Waiting::default();
    let called = Arc::clone(&tools.called);
    let runtime = Runtime::builder().grant("rye.execute.tool.bench.*").unwrap().build().unwrap();
    let inputs = spread::Inputs { numbers: vec![1, -1, 2, 3] };
    let run = runtime.start(Spread::new(tools), inputs).await.unwrap();
    assert!(matches!(run.await, Err(RunError::Node { node, .. }) if node == "square"));
    assert_eq!(*called.lock().unwrap(), [1, -1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_finished_call_is_durable_while_the_next_one_of_its_worker_blocks() {
    let Blocking { runtime, store, id, graph, called, release } = blocking();
    // More visits than workers: the one that blocks follows another one of its worker.
    let inputs = spread::Inputs { numbers: (1..=200).chain([0]).collect() };
    let run = runtime.start_as(id.clone(), graph, inputs).await.unwrap();
    tokio::task::spawn_blocking(move || called.recv_timeout(PATIENCE)).await.unwrap().unwrap();
    until("the other calls are in the journal", || async { calls_in(&store, &id).await == 200 }).await;
    release.send(()).unwrap();
    tokio::time::timeout(PATIENCE, run).await.unwrap().unwrap();
}

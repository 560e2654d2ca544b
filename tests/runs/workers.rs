//! Steps with many branches on random threads, whose tools return, wait, block their threads or follow others. Each branch is
//! visited once, and no more are in progress than the graph allows. An aborted run leaves nothing behind, and a resumed one makes
//! no call again that its journal has.
//!
//! `WORKERS=5000 SEED=7 cargo test --test runs workers` makes more of them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use graph_runtime::record::{Entry, Record};
use graph_runtime::{ActionError, Call, ManualClock, MemoryStore, RunError, RunId, Runtime, SecretKey, Store, audit};
use state_graphs::{Spread, spread};
use tokio::sync::Semaphore;

use crate::random::Random;
use state_graphs::tools::bench_square;

const PATIENCE: Duration = Duration::from_secs(60);

/// The manner in which a tool works.
#[derive(Debug, Clone, Copy)]
enum Manner {
    Return,
    Yield,
    Sleep(Duration),
    /// Blocks its thread.
    Block(Duration),
    /// Blocks its thread, and tells Tokio.
    BlockInPlace(Duration),
    /// Waits until the call of an earlier branch is over.
    Follow(usize),
}

/// The calls of all sessions of a run.
struct Calls {
    made: Vec<AtomicUsize>,
    /// For each branch, closed when its call is over.
    over: Vec<Semaphore>,
    now: AtomicUsize,
    most: AtomicUsize,
}

/// Squares the numbers of branches, from 0, each in its manner.
#[derive(Clone)]
struct Tools {
    manners: Arc<Vec<Manner>>,
    calls: Arc<Calls>,
}

impl bench_square::Tool for Tools {
    async fn bench_square(&self, _: &Call, params: bench_square::Params) -> Result<i64, ActionError> {
        let (calls, at) = (&self.calls, usize::try_from(params.number).unwrap());
        calls.made[at].fetch_add(1, Ordering::SeqCst);
        calls.most.fetch_max(calls.now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        let _counted = Counted(calls);
        match self.manners[at] {
            Manner::Return => {}
            Manner::Yield => tokio::task::yield_now().await,
            Manner::Sleep(time) => tokio::time::sleep(time).await,
            Manner::Block(time) => std::thread::sleep(time),
            Manner::BlockInPlace(time) => tokio::task::block_in_place(|| std::thread::sleep(time)),
            Manner::Follow(other) => drop(calls.over[other].acquire().await),
        }
        calls.over[at].close();
        Ok(params.number * params.number)
    }
}

/// Counts a call as one in progress until it is dropped.
struct Counted<'c>(&'c Calls);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::SeqCst);
    }
}

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap())
}

/// Returns the manner of a branch. `threads` is 0 on a thread without others.
fn manner(random: &mut Random, at: usize, threads: u64) -> Manner {
    let time = Duration::from_micros(random.below(2_000));
    match random.below(12) {
        0 => Manner::Yield,
        1 | 2 => Manner::Sleep(time),
        3 => Manner::Block(time),
        4 if threads > 0 => Manner::BlockInPlace(time),
        5 | 6 if at > 0 => Manner::Follow(usize::try_from(random.below(at as u64)).unwrap()),
        _ => Manner::Return,
    }
}

/// Returns the branches whose calls a journal has.
fn done(records: &[graph_runtime::record::SignedRecord]) -> BTreeSet<usize> {
    let mut visits: Vec<u64> = Vec::new();
    for signed in records {
        match serde_json::from_str::<Record>(&signed.body).unwrap().entry {
            Entry::Calls(calls) => visits.extend(calls.done.iter().map(|done| done.step)),
            Entry::Step(step) => {
                visits.extend(step.visits.iter().filter(|visit| visit.node == "square").map(|visit| visit.step));
            }
            _ => {}
        }
    }
    // The first visit is that of the node that fans out.
    visits.into_iter().map(|visit| usize::try_from(visit).unwrap() - 2).collect()
}

/// How a run ended that may have been aborted.
enum Played {
    Ended,
    Resumed,
}

/// Plays one run, and checks what it did.
async fn play(random: &mut Random, tools: &Tools, is_aborted: bool) -> Played {
    let count = tools.manners.len();
    let (store, id) = (MemoryStore::new(), RunId::new("workers").unwrap());
    let key = SecretKey::from_seed(&[7; 32]);
    let mut builder = Runtime::builder().grant("rye.execute.tool.bench.*").unwrap();
    builder = builder.store(store.clone()).sign_with(key.clone());
    if random.below(2) == 0 {
        // No step writes its calls after a millisecond.
        builder = builder.clock(Arc::new(ManualClock::at(SystemTime::UNIX_EPOCH)));
    }
    let runtime = builder.build().unwrap();
    let inputs = spread::Inputs { numbers: (0..i64::try_from(count).unwrap()).collect() };
    let expected: i64 = inputs.numbers.iter().map(|number| number * number).sum();
    let made = || tools.calls.made.iter().map(|made| made.load(Ordering::SeqCst)).collect::<Vec<_>>();
    let run = runtime.start_as(id.clone(), Spread::new(tools.clone()), inputs).await.unwrap();
    if is_aborted {
        tokio::time::sleep(Duration::from_micros(random.below(4_000))).await;
        run.abort();
    }
    match tokio::time::timeout(PATIENCE, run).await.expect("the run ends") {
        Ok(ended) => {
            assert_eq!(ended.output, expected);
            assert_eq!(made(), vec![1; count]);
            audit(&Spread::new(tools.clone()), &id, &store.load(&id).await.unwrap(), &key.public(), None).unwrap();
            return Played::Ended;
        }
        Err(RunError::Stopped { .. }) => assert!(is_aborted, "the run was not aborted"),
        Err(error) => panic!("{error}"),
    }
    let began = Instant::now();
    while store.lease(&id).await.is_err() {
        assert!(began.elapsed() < PATIENCE, "the lease is not given back");
        tokio::time::sleep(Duration::from_micros(200)).await;
    }
    assert_eq!(tools.calls.now.load(Ordering::SeqCst), 0, "a call is in progress after the run");
    let (before, done) = (made(), done(&store.load(&id).await.unwrap()));
    let quick = Tools { manners: Arc::new(vec![Manner::Return; count]), calls: Arc::clone(&tools.calls) };
    let graph = Spread::new(quick);
    let resumed = runtime.resume(graph.clone(), &id).await.unwrap();
    assert_eq!(tokio::time::timeout(PATIENCE, resumed).await.expect("the run ends").unwrap().output, expected);
    for (at, (before, after)) in before.into_iter().zip(made()).enumerate() {
        assert!(before <= 1, "branch {at} was visited {before} times");
        assert_eq!(after, before + usize::from(!done.contains(&at)), "branch {at}, of which {done:?} were done");
    }
    audit(&graph, &id, &store.load(&id).await.unwrap(), &key.public(), None).unwrap();
    Played::Resumed
}

#[test]
fn workers_visit_each_branch_once_whatever_the_tools_do() {
    let (runs, seed) = (number("WORKERS", 120), number("SEED", 1));
    let (mut resumed, mut full) = (0, 0);
    for at in 0..runs {
        let mut random = Random::new(seed.wrapping_mul(0x9e37_79b9).wrapping_add(at));
        let threads = random.below(5);
        let mut tokio = match threads {
            0 => tokio::runtime::Builder::new_current_thread(),
            _ => tokio::runtime::Builder::new_multi_thread(),
        };
        let tokio = tokio.worker_threads(usize::try_from(threads.max(1)).unwrap()).enable_all().build().unwrap();
        let count = 2 + usize::try_from(random.below(150)).unwrap();
        // Where all wait long, as many are in progress as the graph allows.
        let are_slow = random.below(6) == 0;
        let slow = |_| Manner::Sleep(Duration::from_millis(10));
        let manners = match are_slow {
            true => (0..count).map(slow).collect(),
            false => (0..count).map(|at| manner(&mut random, at, threads)).collect(),
        };
        let calls = Arc::new(Calls {
            made: (0..count).map(|_| AtomicUsize::new(0)).collect(),
            over: (0..count).map(|_| Semaphore::new(0)).collect(),
            now: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
        });
        let tools = Tools { manners: Arc::new(manners), calls: Arc::clone(&calls) };
        let is_aborted = random.below(2) == 0;
        println!("run {at} of seed {seed}: {threads} threads, {:?}", tools.manners);
        resumed += u64::from(matches!(tokio.block_on(play(&mut random, &tools, is_aborted)), Played::Resumed));
        drop(tools);
        tokio.shutdown_timeout(PATIENCE);
        assert_eq!(Arc::strong_count(&calls), 1, "a branch is left");
        let most = calls.most.load(Ordering::SeqCst);
        // The `max_concurrency` of the graph.
        assert!(most <= 64, "{most} calls at a time");
        full += u64::from(most == 64);
    }
    println!("{runs} runs, {resumed} of them aborted and resumed, {full} with 64 calls at a time");
    assert!(resumed * 10 > runs && full > 0, "{resumed} {full}");
}

/// Squares numbers, and fails for some of them; every third call waits.
#[derive(Clone)]
struct Failing(Arc<BTreeSet<i64>>);

impl bench_square::Tool for Failing {
    async fn bench_square(&self, _: &Call, params: bench_square::Params) -> Result<i64, ActionError> {
        if params.number % 3 == 0 {
            tokio::task::yield_now().await;
        }
        match self.0.contains(&params.number) {
            true => Err(ActionError::permanent("as it was told")),
            false => Ok(params.number),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn the_first_failure_ends_a_run_in_whichever_order_calls_fail() {
    let (runs, seed) = (number("WORKERS", 200), number("SEED", 1));
    let runtime = Runtime::builder().grant("rye.execute.tool.bench.*").unwrap().build().unwrap();
    for at in 0..runs {
        let mut random = Random::new(seed.wrapping_mul(0x9e37_79b9).wrapping_add(at));
        let count = 40 + random.below(1_000);
        // All of them are in the last quarter, so that several threads are there at a time.
        let fails = (0..8).map(|_| i64::try_from(count - 1 - random.below(count / 4)).unwrap()).collect();
        let failing = Failing(Arc::new(fails));
        let inputs = spread::Inputs { numbers: (0..i64::try_from(count).unwrap()).collect() };
        let run = runtime.start(Spread::new(failing.clone()), inputs).await.unwrap();
        let error = tokio::time::timeout(PATIENCE, run).await.expect("the run ends").unwrap_err();
        let RunError::Node { step, .. } = error else { panic!("{error}") };
        // The first visit is that of the node that fans out.
        let first = failing.0.first().copied().unwrap();
        assert_eq!(i64::try_from(step).unwrap() - 2, first, "run {at} of seed {seed}: {:?}", failing.0);
    }
}

//! The times at which a run is written: snapshots, calls that are done before their step, and steps that wait for the
//! store.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use graph_runtime::__private::{Key, Program};
use graph_runtime::record::{Entry, Record, SignedRecord, Status};
use graph_runtime::store::WaitChanges;
use graph_runtime::testing::{FaultyStore, StoreFault};
use graph_runtime::{
    ActionError, Call, Durability, Map, MemoryStore, Options, RunError, SecretKey, Store, Value, audit,
};
use serde_json::json;

use crate::interpreted::{Interpreted, PROGRAM};
use crate::journal::forged;
use crate::support::{KEY, failing, id, kinds, runtime};

fn with(durability: Durability) -> Options {
    Options { run: Some(id("run")), durability, ..Options::default() }
}

fn entries(records: &[SignedRecord]) -> Vec<Entry> {
    records.iter().map(|signed| serde_json::from_str::<Record>(&signed.body).unwrap().entry).collect()
}

/// Returns a store whose journal was cut after `records` records, as a crash leaves it: with the token of its last
/// record.
pub(crate) async fn cut(store: &MemoryStore, tokens: &Tokens, records: usize) -> MemoryStore {
    let mut kept = store.load(&id("run")).await.unwrap()[..records].to_vec();
    let last = kept.last_mut().unwrap();
    last.end = tokens.of(last.seq);
    let cut = MemoryStore::new();
    drop(cut.create(&id("run"), "test/graph", kept).await.unwrap());
    cut
}

/// A process whose store remembers each record's token, and what is written together.
#[derive(Debug)]
pub(crate) struct Tokens {
    /// The store of the process.
    pub(crate) store: FaultyStore,
    seen: Arc<Mutex<Vec<Option<[u8; 32]>>>>,
    batches: Arc<Mutex<Vec<Batch>>>,
}

/// Records that were written together, and what was written with them.
type Batch = (Vec<SignedRecord>, Status, WaitChanges);

impl Tokens {
    pub(crate) fn over(disk: &MemoryStore) -> Self {
        let (seen, batches): (Arc<Mutex<Vec<_>>>, Arc<Mutex<Vec<_>>>) = Default::default();
        let (tokens, written) = (Arc::clone(&seen), Arc::clone(&batches));
        let store = FaultyStore::new(disk.clone(), move |write| {
            tokens.lock().unwrap().extend(write.records.iter().map(|record| record.end));
            let waits = write.waits.cloned().unwrap_or_default();
            written.lock().unwrap().push((write.records.to_vec(), write.status.unwrap(), waits));
            None
        });
        Self { store, seen, batches }
    }

    fn of(&self, seq: u64) -> Option<[u8; 32]> {
        self.seen.lock().unwrap()[usize::try_from(seq).unwrap()]
    }

    /// Returns how many times anything was written.
    pub(crate) fn writes(&self) -> usize {
        self.batches.lock().unwrap().len()
    }

    /// Writes to an empty store what was written in the first `writes` times, as a crash leaves it.
    pub(crate) async fn written_to(&self, store: MemoryStore, writes: usize) -> MemoryStore {
        let batches = self.batches.lock().unwrap()[..writes].to_vec();
        let mut batches = batches.into_iter();
        let (first, ..) = batches.next().unwrap();
        let mut known = first.len() as u64;
        let mut lease = store.create(&id("run"), "test/graph", first).await.unwrap();
        for (records, status, waits) in batches {
            let count = records.len() as u64;
            if store.find(&id("run")).await.unwrap().holder.is_none() {
                lease = store.lease(&id("run")).await.unwrap();
            }
            store.append_waiting(&lease, known, records, status, waits).await.unwrap();
            known += count;
        }
        drop(lease);
        store
    }
}

/// A loop that writes a count, a large text and a null from its result at each visit, and ends after 40 visits.
const ROUND: Program<'static> = Program {
    settings: r#"{"max_steps":1000}"#,
    keys: &[
        Key { name: "n", initial: Some("0") },
        Key { name: "text", initial: None },
        Key { name: "unset", initial: Some("1") },
    ],
    nodes: &[
        (
            "round",
            r#"{"line":1,"does":{"action":0},"params":{"n":"${state.n}"},"assign":{"n":"${result.n}","text":"${result.text}","unset":"${result.nothing}"},"next":[{"to":"end","when":{"path":"state.n","op":"gte","value":40}},{"to":"round"}]}"#,
        ),
        ("end", r#"{"line":2,"does":"return","output":{"n":"${state.n}","text":"${state.text}"}}"#),
    ],
    ..PROGRAM
};

fn round(size: usize) -> Interpreted {
    Interpreted::new(&ROUND, move |_, params| {
        let n = params["n"].as_i64().unwrap() + 1;
        Ok(json!({"n": n, "text": format!("{n} {}", "x".repeat(size)), "nothing": null}))
    })
}

fn proven(machine: &Interpreted, records: &[SignedRecord]) -> Result<Status, String> {
    let key = SecretKey::from_seed(&KEY).public();
    audit(machine, &id("run"), records, &key, None).map(|audit| audit.status).map_err(|error| error.to_string())
}

#[tokio::test]
async fn resume_from_a_snapshot_equals_resume_from_the_start() {
    let whole = MemoryStore::new();
    let tokens = Tokens::over(&whole);
    let first =
        runtime(tokens.store.clone()).start_as(id("run"), round(10_000), Map::new()).await.unwrap().await.unwrap();
    let records = whole.load(&id("run")).await.unwrap();
    let snapshots = kinds(&records).iter().filter(|kind| *kind == "snapshot").count();
    assert!((5..=13).contains(&snapshots), "{snapshots} snapshots in {} records", records.len());
    let size = |entry: &str| {
        let of_kind = records.iter().zip(kinds(&records)).filter(|(_, kind)| kind == entry);
        of_kind.map(|(record, _)| record.body.len()).sum::<usize>()
    };
    assert!(size("snapshot") * 4 <= size("step"), "snapshots add at most a quarter");
    assert_eq!(proven(&round(10_000), &records), Ok(Status::Completed));
    for length in 1..records.len() {
        // A step and the snapshot after it are written together.
        if kinds(&records)[length] == "snapshot" || kinds(&records)[length] == "end" {
            continue;
        }
        let store = cut(&whole, &tokens, length).await;
        assert_eq!(proven(&round(10_000), &store.load(&id("run")).await.unwrap()), Ok(Status::Running), "{length}");
        let again = runtime(store.clone()).resume(round(10_000), &id("run")).await.unwrap().await.unwrap();
        assert_eq!(
            (again.output, again.state, again.steps),
            (first.output.clone(), first.state.clone(), 41),
            "{length}"
        );
        assert_eq!(proven(&round(10_000), &store.load(&id("run")).await.unwrap()), Ok(Status::Completed), "{length}");
    }
}

#[tokio::test]
async fn a_snapshot_waits_until_the_journal_is_larger_than_it() {
    let (small, large) = (MemoryStore::new(), MemoryStore::new());
    runtime(small.clone()).start_as(id("run"), round(10), Map::new()).await.unwrap().await.unwrap();
    assert!(!kinds(&small.load(&id("run")).await.unwrap()).contains(&"snapshot".to_owned()));
    runtime(large.clone()).start_as(id("run"), round(1_000_000), Map::new()).await.unwrap().await.unwrap();
    let records = large.load(&id("run")).await.unwrap();
    let first = kinds(&records).iter().position(|kind| kind == "snapshot").unwrap();
    let before: usize = records[..first].iter().map(|record| record.body.len()).sum();
    assert!(
        before >= 4 * records[first].body.len(),
        "{before} bytes before a snapshot of {}",
        records[first].body.len()
    );
}

/// Calls a tool for each element of a list, three at a time.
const EACH: Program<'static> = Program {
    keys: &[Key { name: "all", initial: None }],
    nodes: &[
        (
            "each",
            r#"{"line":1,"does":{"foreach":0},"params":{"n":"${n}"},"each":{"over":"${inputs.list}","as":"n","collect":"all","width":3},"next":[{"to":"end"}]}"#,
        ),
        ("end", r#"{"line":2,"does":"return"}"#),
    ],
    ..PROGRAM
};

/// The items that were called, with their idempotency keys.
type Called = Arc<Mutex<Vec<(Option<u64>, String)>>>;

/// Doubles each number after that many turns of the scheduler.
fn doubling(called: &Called, refuses: Option<i64>) -> Interpreted {
    let called = Arc::clone(called);
    Interpreted::waiting(&EACH, move |call: &Call, params: Value| {
        let (called, item, key) = (Arc::clone(&called), call.item(), call.idempotency_key());
        Box::pin(async move {
            let n = params["n"].as_i64().unwrap();
            for _ in 0..n * 10 {
                tokio::task::yield_now().await;
            }
            called.lock().unwrap().push((item, key));
            if refuses == Some(n) { Err(ActionError::permanent("not this one")) } else { Ok(json!({"double": 2 * n})) }
        })
    })
}

fn list() -> Map<String, Value> {
    Map::from_iter([("list".to_owned(), json!([1, 2, 3, 4, 5, 6, 7]))])
}

fn doubled() -> Value {
    json!({"all": (1..8).map(|n| json!({"double": 2 * n})).collect::<Vec<_>>()})
}

#[tokio::test]
async fn items_that_were_done_before_a_crash_are_not_called_again() {
    let (whole, called) = (MemoryStore::new(), Called::default());
    let tokens = Tokens::over(&whole);
    let machine = || doubling(&called, None);
    let first = runtime(tokens.store.clone()).start_as(id("run"), machine(), list()).await.unwrap().await.unwrap();
    assert_eq!(first.output, doubled());
    let records = whole.load(&id("run")).await.unwrap();
    let parts = kinds(&records).iter().filter(|kind| *kind == "calls").count();
    assert!(parts > 2, "{:?}", kinds(&records));
    assert_eq!(proven(&machine(), &records), Ok(Status::Completed));
    let keys: BTreeSet<(Option<u64>, String)> = called.lock().unwrap().drain(..).collect();
    for length in 1..=parts + 1 {
        let store = cut(&whole, &tokens, length).await;
        let done = usize::try_from(calls_in(&records[..length])).unwrap();
        assert_eq!(proven(&machine(), &store.load(&id("run")).await.unwrap()), Ok(Status::Running));
        let again = runtime(store.clone()).resume(machine(), &id("run")).await.unwrap().await.unwrap();
        assert_eq!((again.output, again.steps), (doubled(), 2));
        let repeated: Vec<_> = called.lock().unwrap().drain(..).collect();
        assert_eq!(repeated.len(), 7 - done, "{done} of 7 were done");
        assert!(repeated.iter().all(|call| keys.contains(call)), "each with the key that it had");
        assert_eq!(proven(&machine(), &store.load(&id("run")).await.unwrap()), Ok(Status::Completed));
    }
}

/// Returns how many finished calls these records have.
fn calls_in(records: &[SignedRecord]) -> u64 {
    let done = |entry: &Entry| if let Entry::Calls(calls) = entry { calls.done.len() as u64 } else { 0 };
    entries(records).iter().map(done).sum()
}

/// Runs a foreach over 30 items of 20 ms with a slow store. Returns the largest number of finished items that were not
/// durable, and the number of appends.
async fn most_not_durable(width: u64, durability: Durability) -> (u64, usize) {
    let body = EACH.nodes[0].1.replace("\"width\":3", &format!("\"width\":{width}"));
    let program: &'static Program<'static> = Box::leak(Box::new(Program {
        nodes: Box::leak(Box::new([("each", &*Box::leak(body.into_boxed_str())), EACH.nodes[1]])),
        ..EACH
    }));
    let (disk, finished, most) = (MemoryStore::new(), Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let store = FaultyStore::new(disk.clone(), |write| {
        (!write.creates).then_some(StoreFault::Slow(Duration::from_millis(300)))
    });
    let machine = {
        let (disk, most) = (disk.clone(), Arc::clone(&most));
        Interpreted::waiting(program, move |_: &Call, _| {
            let (finished, most, disk) = (Arc::clone(&finished), Arc::clone(&most), disk.clone());
            Box::pin(async move {
                tokio::time::sleep(Duration::from_millis(20)).await;
                let finished = finished.fetch_add(1, Ordering::SeqCst) + 1;
                let durable = calls_in(&disk.load(&id("run")).await.unwrap());
                most.fetch_max(finished - durable, Ordering::SeqCst);
                Ok(json!({}))
            })
        })
    };
    let many = Map::from_iter([("list".to_owned(), Value::from(vec![1; 30]))]);
    runtime(store).start_with(with(durability), machine, many).await.unwrap().await.unwrap();
    let records = disk.load(&id("run")).await.unwrap();
    (most.load(Ordering::SeqCst), kinds(&records).iter().filter(|kind| *kind == "calls").count())
}

#[tokio::test(start_paused = true)]
async fn unsaved_finished_items_never_exceed_the_foreach_width() {
    for width in [1, 3, 8] {
        let (most, appends) = most_not_durable(width, Durability::Sync).await;
        assert_eq!(most, width, "items that a crash would have repeated");
        assert!(appends as u64 <= 30 / width + 2, "{appends} appends: items that finish together are written together");
    }
    let (most, _) = most_not_durable(1, Durability::Async).await;
    assert!(most > 3, "where steps may wait for the store, items wait too: {most}");
}

#[tokio::test]
async fn resume_does_not_repeat_items_done_before_a_failure() {
    let (store, called) = (MemoryStore::new(), Called::default());
    runtime(store.clone()).start_as(id("run"), doubling(&called, Some(4)), list()).await.unwrap().await.unwrap_err();
    let before: BTreeSet<_> = called.lock().unwrap().drain(..).collect();
    let again = runtime(store.clone()).resume(doubling(&called, None), &id("run")).await.unwrap().await.unwrap();
    assert_eq!(again.output, doubled());
    let after: BTreeSet<_> = called.lock().unwrap().drain(..).collect();
    let twice: Vec<_> = before.intersection(&after).map(|(item, _)| *item).collect();
    assert_eq!(twice, [Some(3)], "only the one that failed");
    assert_eq!(before.union(&after).count(), 7);
    assert_eq!(proven(&doubling(&called, None), &store.load(&id("run")).await.unwrap()), Ok(Status::Completed));
}

#[tokio::test]
async fn a_store_failure_stops_the_run_and_starts_no_more_items() {
    let (store, called) = (MemoryStore::new(), Called::default());
    let many: Map<String, Value> = Map::from_iter([("list".to_owned(), Value::from(vec![3; 500]))]);
    let failing = runtime(failing(&store, 1, false));
    let error = failing.start_as(id("run"), doubling(&called, None), many).await.unwrap().await.unwrap_err();
    assert!(matches!(error, RunError::Store { step: 1, .. }), "{error}");
    let made = called.lock().unwrap().len();
    assert!(made < 20, "{made} calls were made");
}

/// Changes the first record of a kind, and signs all records again, as only the holder of the key can. Returns the
/// error of an audit.
fn found_in(machine: &Interpreted, records: &[SignedRecord], kind: &str, from: &str, to: &str) -> String {
    let at = kinds(records).iter().position(|one| one == kind).unwrap();
    assert!(records[at].body.contains(from), "{}", records[at].body);
    let forged = forged(records, |seq, body| if seq == at { body.replacen(from, to, 1) } else { body.to_owned() });
    proven(machine, &forged).unwrap_err()
}

#[tokio::test]
async fn an_audit_finds_snapshots_and_calls_that_contradict_the_rest() {
    let (store, called) = (MemoryStore::new(), Called::default());
    runtime(store.clone()).start_as(id("run"), round(10_000), Map::new()).await.unwrap().await.unwrap();
    let (machine, records) = (round(10_000), store.load(&id("run")).await.unwrap());
    assert_eq!(proven(&machine, &forged(&records, |_, body| body.to_owned())), Ok(Status::Completed));
    for (from, to, why) in [
        ("\"keys\":{\"n\":", "\"keys\":{\"n\":1", "it says that `n` is something else than what was written to it"),
        ("\"node\":\"round\"}]", "\"node\":\"end\"}]", "is in another position than its steps led to"),
        ("\"steps\":", "\"steps\":1", "is in another position than its steps led to"),
    ] {
        let found = found_in(&machine, &records, "snapshot", from, to);
        assert!(found.contains(why), "{found}");
    }
    let store = MemoryStore::new();
    runtime(store.clone()).start_as(id("run"), doubling(&called, None), list()).await.unwrap().await.unwrap();
    let (machine, records) = (doubling(&called, None), store.load(&id("run")).await.unwrap());
    for (from, to, why) in [
        ("{\"double\":2}", "{\"double\":3}", "node `each` returned something else than when its call was done"),
        ("\"step\":1", "\"step\":2", "visit 2 is not one of the next step"),
        ("\"node\":\"each\"", "\"node\":\"end\"", "it says that the node that makes a call is end, and it is each"),
        ("\"item\":0", "\"item\":9", "node `each` makes a call for an item that its list has not"),
    ] {
        let found = found_in(&machine, &records, "calls", from, to);
        assert!(found.contains(why), "{found}");
    }
}

/// One node leads to two, which are visited together and lead to the end.
const FORK: Program<'static> = Program {
    keys: &[Key { name: "a", initial: None }, Key { name: "b", initial: None }],
    nodes: &[
        ("fork", r#"{"line":1,"does":"gate","next":{"all":[{"to":"quick"},{"to":"slow"}]}}"#),
        ("quick", r#"{"line":2,"does":{"action":0},"assign":{"a":"${result.said}"},"next":[{"to":"join"}]}"#),
        ("slow", r#"{"line":3,"does":{"action":0},"assign":{"b":"${result.said}"},"next":[{"to":"join"}]}"#),
        ("join", r#"{"line":4,"does":"return"}"#),
    ],
    ..PROGRAM
};

fn fork(called: &Arc<Mutex<Vec<String>>>, slow: Result<Value, &'static str>) -> Interpreted {
    let called = Arc::clone(called);
    Interpreted::waiting(&FORK, move |call: &Call, _| {
        let (called, node, slow) = (Arc::clone(&called), call.node().to_owned(), slow.clone());
        Box::pin(async move {
            called.lock().unwrap().push(node.clone());
            if node == "quick" {
                return Ok(json!({"said": "quick"}));
            }
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
            slow.map_err(ActionError::permanent)
        })
    })
}

#[tokio::test]
async fn finished_node_is_not_repeated_after_its_sibling_failed() {
    let (store, called) = (MemoryStore::new(), Arc::default());
    let failing = fork(&called, Err("not today"));
    runtime(store.clone()).start_as(id("run"), failing, Map::new()).await.unwrap().await.unwrap_err();
    assert_eq!(kinds(&store.load(&id("run")).await.unwrap()), ["start", "step", "calls", "end"]);
    called.lock().unwrap().clear();
    let machine = || fork(&called, Ok(json!({"said": "slow"})));
    let again = runtime(store.clone()).resume(machine(), &id("run")).await.unwrap().await.unwrap();
    assert_eq!(again.output, json!({"a": "quick", "b": "slow"}));
    assert_eq!(*called.lock().unwrap(), ["slow"]);
    assert_eq!(proven(&machine(), &store.load(&id("run")).await.unwrap()), Ok(Status::Completed));
}

#[tokio::test]
async fn every_mode_writes_the_same_journal_and_its_end_before_result() {
    for durability in [Durability::Sync, Durability::Async, Durability::Exit] {
        let store = MemoryStore::new();
        let runtime = runtime(store.clone());
        let run = runtime.start_with(with(durability), round(10), Map::new()).await.unwrap();
        let finished = run.await.unwrap();
        let records = store.load(&id("run")).await.unwrap();
        assert_eq!(records.len(), 43, "{durability:?}: start, 41 steps, end");
        assert_eq!(proven(&round(10), &records), Ok(Status::Completed));
        assert_eq!(finished.steps, 41);
        assert_eq!(store.list().await.unwrap()[0].status, Status::Completed);
    }
}

#[tokio::test]
async fn a_crash_leaves_the_steps_that_the_mode_promises() {
    // The store accepts so many appends and no more, as if its process was killed.
    for (durability, appends, least, most) in
        [(Durability::Sync, 7, 7, 7), (Durability::Async, 7, 7, 40), (Durability::Exit, 0, 0, 0)]
    {
        let store = MemoryStore::new();
        let failing = runtime(failing(&store, appends, false));
        let error = failing.start_with(with(durability), round(10), Map::new()).await.unwrap().await.unwrap_err();
        let RunError::Store { step, .. } = error else { panic!("{durability:?}: {error}") };
        let records = store.load(&id("run")).await.unwrap();
        let steps = records.len() - 1;
        assert!((least..=most).contains(&steps), "{durability:?}: {steps} steps");
        if durability == Durability::Sync {
            assert_eq!(step, 8, "the step that could not be written is told at once");
        }
        assert_eq!(proven(&round(10), &records), Ok(Status::Running), "a beginning of what happened, and whole");
        let again = runtime(store.clone()).resume(round(10), &id("run")).await.unwrap().await.unwrap();
        assert_eq!(again.steps, 41, "{durability:?}");
    }
}

#[tokio::test]
async fn async_mode_run_ends_a_few_steps_after_the_store_fails() {
    let store = MemoryStore::new();
    let failing = runtime(failing(&store, 0, false));
    let error = failing.start_with(with(Durability::Async), round(10), Map::new()).await.unwrap().await.unwrap_err();
    let RunError::Store { step, source, .. } = error else { panic!("{error}") };
    assert!(step > 1 && step < 41 && source.to_string().contains("the power went out"), "{step}: {source}");
}

#[tokio::test]
async fn cancelled_run_has_stored_all_its_steps_in_every_mode() {
    for durability in [Durability::Sync, Durability::Async, Durability::Exit] {
        let store = MemoryStore::new();
        let stop = Arc::new(Mutex::new(None::<graph_runtime::Canceller>));
        let cancelling = Arc::clone(&stop);
        let machine = Interpreted::new(&ROUND, move |call: &Call, params| {
            if call.step() == 5 {
                cancelling.lock().unwrap().as_ref().unwrap().cancel();
            }
            Ok(json!({"n": params["n"].as_i64().unwrap() + 1, "text": "x", "nothing": null}))
        });
        let run = runtime(store.clone()).start_with(with(durability), machine, Map::new()).await.unwrap();
        *stop.lock().unwrap() = Some(run.canceller());
        let error = run.await.unwrap_err();
        assert!(matches!(error, RunError::Cancelled { steps: 5, .. }), "{error}");
        let records = store.load(&id("run")).await.unwrap();
        assert_eq!(kinds(&records), ["start", "step", "step", "step", "step", "step", "end"], "{durability:?}");
        let again = runtime(store.clone()).resume(round(10), &id("run")).await.unwrap().await.unwrap();
        assert_eq!(again.steps, 41);
    }
}

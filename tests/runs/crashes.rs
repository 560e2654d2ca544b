//! A crash at every write: each graph of the corpus is run, stopped before, at and after each write to its store, and resumed.
//!
//! In graphs with branches, each step is also stopped while any of its first four calls are in progress, and the others have
//! finished: at its own writes, and when nothing else happens.
//!
//! The test proves for each: the run has the same end; its journal has the same visits and is proven; no call of a
//! committed step is repeated; and a repeated call has the same idempotency key and the same parameters.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, SystemTime};

use graph_compiler::graph::TypedTool;
use graph_compiler::types::{Type, TypeKind, TypedField};
use graph_model::digest::Digest;
use graph_runtime::dynamic::{Interpreted, Library, ToolFuture, Tools};
use graph_runtime::machine::TopologyNode;
use graph_runtime::record::{Done, Entry, Record, Visit};
use graph_runtime::testing::{FaultyStore, StoreFault};
use graph_runtime::{
    ActionError, Call, Clock, EncryptionKey, Machine, Map, MemoryStore, ReducerError, RunError, RunId, Runtime,
    SecretKey, Sleeping, Store, Value, audit,
};
use serde_json::json;

use crate::corpus::Corpus;

/// The number of variants in which each graph is run. The tools' answers depend on the variant, and so does the path of
/// the run.
const WAYS: u64 = 4;

/// The text before the id of the hook that makes a call.
const OF_HOOK: &str = "of hook ";

/// A call: its run, visit, item, tool, idempotency key and parameters.
type Made = (String, u64, Option<u64>, String, String, String);

/// Performs every tool. The answer depends only on the call's idempotency key and on the result type in the contract.
#[derive(Clone)]
struct Answers {
    way: u64,
    made: Arc<Mutex<Vec<Made>>>,
    held: Arc<Mutex<BTreeSet<Held>>>,
}

/// A call of the outer run that does not return: its visit and item.
type Held = (u64, Option<u64>);

impl Tools for Answers {
    fn perform<'a>(&'a self, call: &'a Call, row: &'a TypedTool, params: Map<String, Value>) -> ToolFuture<'a> {
        let mut chance = Chance::of(&format!("{} {}", self.way, call.idempotency_key()));
        let before = {
            let mut made = self.made.lock().unwrap();
            let key = call.idempotency_key();
            let before = made.iter().filter(|(.., known, _)| *known == key).count();
            let run = call.run_id().to_string();
            let tool =
                call.hook().map_or_else(|| call.tool().to_owned(), |hook| format!("{} {OF_HOOK}{hook}", call.tool()));
            made.push((run, call.step(), call.item(), tool, key, Value::Object(params).to_string()));
            before
        };
        let is_held = call.run_id() == &id() && self.held.lock().unwrap().contains(&(call.step(), call.item()));
        let fails = chance.below(10);
        let turns = chance.below(6);
        // A graph that nests itself for each element of a list must come to an end.
        let is_deep = call.run_id().as_str().matches('-').count() > 1;
        let length = if self.way == WAYS - 1 { 20_000 } else { 6 };
        let answer = value(&row.result, &mut chance, Size { length, most: if is_deep { 1 } else { 4 } });
        Box::pin(async move {
            if is_held {
                std::future::pending::<()>().await;
            }
            for _ in 0..turns {
                tokio::task::yield_now().await;
            }
            match fails {
                // The first attempt in each process fails.
                0 if before == 0 => Err(ActionError::transient("not yet")),
                1 => Err(ActionError::permanent("never")),
                _ => Ok(answer),
            }
        })
    }

    fn reduces(&self, _: &str) -> bool {
        true
    }

    fn reduce(&self, id: &str, value: Option<Value>, write: &Value) -> Option<Result<Value, ReducerError>> {
        Some(match id {
            "scoring/title" => Ok(json!(format!("{} {}", value.unwrap_or_default(), write).len().to_string())),
            "scoring/combine" => {
                let (digits, count) =
                    value.map_or((0, 0), |value| (value["digits"].as_i64().unwrap(), value["count"].as_i64().unwrap()));
                let points = write["points"].as_i64().unwrap();
                Ok(json!({"digits": (digits * 7 + points) % 1000, "count": count + 1, "notes": []}))
            }
            other => Err(ReducerError::new(format!("there is no reducer `{other}`"))),
        })
    }
}

/// For each format in a schema, one of these texts fits.
const TEXTS: [&str; 19] = [
    "ab12",
    "a text of some length",
    "ann@mail.test",
    "db.mail.test",
    "0123456789abcdef0123456789abcdef01234567",
    "2026-11-22",
    "2026-11-22T10:00:00Z",
    "10:00:00Z",
    "::1",
    "10.0.0.1",
    "67e55044-10b1-426f-9247-bb680e5fe0c8",
    "1.2",
    "P-123456",
    "DE",
    "ORD-1",
    "https://mail.test/a",
    "P30D",
    "en",
    "BER",
];

/// Numbers that are derived from a text.
struct Chance(Digest, usize);

impl Chance {
    fn of(text: &str) -> Self {
        Self(Digest::of(text), 0)
    }

    fn below(&mut self, bound: u64) -> u64 {
        if self.1 == 4 {
            *self = Self(Digest::of(self.0.as_bytes()), 0);
        }
        let bytes = &self.0.as_bytes()[self.1 * 8..][..8];
        self.1 += 1;
        u64::from_be_bytes(bytes.try_into().unwrap()) % bound
    }
}

/// The size of values.
#[derive(Clone, Copy)]
struct Size {
    /// The length of texts.
    length: usize,
    /// The length of lists is below this.
    most: u64,
}

/// Makes a value of a type.
fn value(ty: &Type, chance: &mut Chance, size: Size) -> Value {
    let Size { length, most } = size;
    if ty.nullable && chance.below(4) == 0 {
        return Value::Null;
    }
    match &ty.kind {
        TypeKind::Never => Value::Null,
        TypeKind::Boolean => json!(chance.below(2) == 0),
        TypeKind::Integer => json!([0, 1, 2, 5, 10, 30, 100, 2026, 250_000][usize::try_from(chance.below(9)).unwrap()]),
        TypeKind::Number => json!(chance.below(1000) as f64 / 8.0),
        TypeKind::String => json!(
            format!("{:x}", chance.below(u64::MAX)).repeat(length / 6).chars().take(length.max(12)).collect::<String>()
        ),
        TypeKind::Enum(words) => json!(words[usize::try_from(chance.below(words.len() as u64)).unwrap()]),
        TypeKind::List(inner) => (0..chance.below(most)).map(|_| value(inner, chance, size)).collect(),
        TypeKind::Map(inner) => {
            ["a", "b"].map(|name| (name.to_owned(), value(inner, chance, size))).into_iter().collect()
        }
        TypeKind::Object(fields) => {
            let field = |field: &TypedField| (field.name.clone(), value(&field.ty, chance, size));
            fields.iter().map(field).collect()
        }
        TypeKind::Any => json!({"text": "any", "n": chance.below(9)}),
    }
}

/// A clock that never advances, and whose sleeps return at once.
#[derive(Debug)]
struct Still;

impl Clock for Still {
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_291_200)
    }

    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }

    fn sleep(&self, _: Duration) -> Sleeping<'_> {
        Box::pin(tokio::task::yield_now())
    }
}

/// The kinds of a crash.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Crash {
    /// The write is not done, and the process receives an error.
    Fails,
    /// The write is not done, and the process ends.
    StopsBefore,
    /// The write is done, and the process ends before it learns that.
    StopsAfter,
    /// The write is done, and the process receives an error that says otherwise.
    Lies,
}

const CRASHES: [Crash; 4] = [Crash::Fails, Crash::StopsBefore, Crash::StopsAfter, Crash::Lies];

impl Crash {
    /// Returns the store of a process that crashes after some writes.
    fn store(self, disk: &MemoryStore, writes: u64) -> FaultyStore {
        FaultyStore::new(disk.clone(), move |write| {
            let written = write.number - 1 == writes && matches!(self, Self::StopsAfter | Self::Lies);
            let fault = match self {
                Self::Fails | Self::Lies => StoreFault::Fails { written },
                Self::StopsBefore | Self::StopsAfter => StoreFault::Hangs { written },
            };
            (write.number > writes).then_some(fault)
        })
    }
}

fn key() -> SecretKey {
    SecretKey::from_seed(&[3; 32])
}

fn encryption_key() -> EncryptionKey {
    EncryptionKey::from_bytes([5; 32])
}

fn id() -> RunId {
    RunId::new("run").unwrap()
}

fn runtime(store: impl Store) -> Runtime {
    let builder =
        Runtime::builder().store(store).sign_with(key()).encrypt_with(encryption_key()).clock(Arc::new(Still));
    builder.grant("*").unwrap().build().unwrap()
}

/// Returns the end of a run, without the parts that differ each time.
fn came(result: Result<graph_runtime::Finished<Value>, RunError>) -> Value {
    match result {
        Ok(finished) => finished.to_value(),
        Err(error) => error.to_value(),
    }
}

/// Returns the visits of every run of a store, without their durations.
async fn recorded_visits(store: &MemoryStore) -> BTreeMap<RunId, Vec<Visit>> {
    let mut runs = BTreeMap::new();
    for summary in store.list().await.unwrap() {
        let mut visits = Vec::new();
        for signed in store.load(&summary.run).await.unwrap() {
            if let Entry::Step(step) = serde_json::from_str::<Record>(&signed.body).unwrap().entry {
                // A visit whose failure was held is made again.
                visits.retain(|before: &Visit| step.visits.iter().all(|visit| visit.step != before.step));
                visits.extend(step.visits);
            }
        }
        for visit in &mut visits {
            visit.ms = 0;
            hide(&mut visit.result);
            visit.changes.values_mut().chain(&mut visit.list).for_each(hide);
        }
        runs.insert(summary.run, visits);
    }
    runs
}

/// Replaces each encrypted value, which differs each time, with the same text.
fn hide(value: &mut Value) {
    match value {
        Value::Object(map) if map.contains_key("$sealed") => *value = json!("sealed"),
        Value::Object(map) => map.values_mut().for_each(hide),
        Value::Array(list) => list.iter_mut().for_each(hide),
        _ => {}
    }
}

/// A graph of the corpus in one variant.
struct Subject {
    graph: Interpreted,
    inputs: Map<String, Value>,
    made: Arc<Mutex<Vec<Made>>>,
    held: Arc<Mutex<BTreeSet<Held>>>,
}

impl Subject {
    fn load(tree: &crate::tree::Tree, name: &str, way: u64) -> Self {
        let (made, held) = (Arc::default(), Arc::default());
        let answers = Answers { way, made: Arc::clone(&made), held: Arc::clone(&held) };
        let library = Library::open(&tree.path(""), answers);
        let graph = library.graph(&tree.path(name)).unwrap_or_else(|error| panic!("{name}: {error:?}"));
        let mut chance = Chance::of(&format!("{name} {way}"));
        let mut draw = |field: &TypedField| match &field.ty.kind {
            TypeKind::String => json!(TEXTS[usize::try_from(chance.below(TEXTS.len() as u64)).unwrap()]),
            _ => value(&field.ty, &mut chance, Size { length: 6, most: 4 }),
        };
        let fields: Vec<TypedField> = graph.interface().inputs.clone().unwrap_or_default();
        let mut inputs: Map<String, Value> = fields.iter().map(|field| (field.name.clone(), draw(field))).collect();
        // Inputs that fit the rules of a schema besides types are found by chance: a field that does not fit is drawn
        // again.
        for attempt in 0.. {
            let started = process(runtime(MemoryStore::new()).start(graph.clone(), inputs.clone()));
            let Err(error) = started else { break };
            let error = error.to_string();
            let field = fields.iter().find(|field| error.contains(&format!("`{}", field.name)));
            let field = field.filter(|_| attempt < 1000).unwrap_or_else(|| panic!("{name}: {error}: {inputs:?}"));
            inputs.insert(field.name.clone(), draw(field));
        }
        made.lock().unwrap().clear();
        Self { graph, inputs, made, held }
    }

    fn calls(&self) -> Vec<Made> {
        std::mem::take(&mut *self.made.lock().unwrap())
    }

    /// Whether branches begin in the graph.
    fn has_branches(&self) -> bool {
        let topology = self.graph.graph().topology();
        topology.start.len() > 1 || topology.nodes.iter().any(|place| place.route.begins_branches())
    }

    /// Whether the first calls that finish may decide what the run does.
    fn decides_early(&self) -> bool {
        let topology = self.graph.graph().topology();
        let decides = |place: &TopologyNode| {
            place.cancels || place.join.as_ref().is_some_and(|join| join.need.is_some() && !join.finishes)
        };
        topology.nodes.iter().any(decides)
    }

    /// Runs the graph until the store crashes, or only calls that do not return are in progress, and ends the process.
    fn crash_in_progress(&self, memory: &MemoryStore, write: u64, crash: Crash) {
        let tokio = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        tokio.block_on(async {
            tokio::select! {
                () = self.crash(memory, write, crash) => {}
                // Time passes only when nothing else can happen.
                () = tokio::time::sleep(Duration::from_secs(1)) => {}
            }
        });
    }

    /// Runs the graph until the store crashes, or to its end.
    async fn crash(&self, memory: &MemoryStore, write: u64, crash: Crash) {
        let store = crash.store(memory, write);
        let runtime = runtime(store.clone());
        let run = async {
            if let Ok(run) = runtime.start_as(id(), self.graph.clone(), self.inputs.clone()).await {
                drop(run.await);
            }
        };
        tokio::select! {
            () = run => {}
            () = store.lost() => {}
        }
    }
}

/// Runs `work` on a tokio runtime, and ends all of its tasks, as the end of a process does.
fn process<T>(work: impl Future<Output = T>) -> T {
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio.block_on(work)
}

#[derive(Default)]
struct Tally {
    crashes: u64,
    repeated: u64,
    snapshots: u64,
    parts: u64,
    graphs: u64,
    subsets: u64,
    finished: u64,
    ends: BTreeMap<String, u64>,
}

impl Tally {
    fn with(mut self, other: Self) -> Self {
        self.crashes += other.crashes;
        self.repeated += other.repeated;
        self.snapshots += other.snapshots;
        self.parts += other.parts;
        self.graphs += other.graphs;
        self.subsets += other.subsets;
        self.finished += other.finished;
        for (end, count) in other.ends {
            *self.ends.entry(end).or_default() += count;
        }
        self
    }
}

/// Does `work` with each of these graphs, on two threads, and returns the sum of their tallies.
fn with_each<G: Sync>(graphs: &[G], work: impl Fn(&G, &mut Tally) + Sync) -> Tally {
    let next = AtomicUsize::new(0);
    let one_by_one = || {
        let mut tally = Tally::default();
        while let Some(graph) = graphs.get(next.fetch_add(1, Ordering::Relaxed)) {
            work(graph, &mut tally);
        }
        tally
    };
    let tallies = thread::scope(|scope| {
        let threads = [(); 2].map(|()| scope.spawn(one_by_one));
        threads.map(|thread| thread.join().unwrap())
    });
    tallies.into_iter().reduce(Tally::with).unwrap()
}

#[test]
fn run_stopped_at_any_write_ends_the_same_and_repeats_no_commit() {
    let mut corpus = Corpus::read();
    for (_, text) in &mut corpus.files {
        // A test cannot set the environment variables that some of the graphs require.
        *text = text.lines().filter(|line| !line.contains("env_requires:")).flat_map(|line| [line, "\n"]).collect();
    }
    let tree = corpus.tree();
    // All variants take some minutes.
    let ways: &[u64] = if std::env::var_os("CRASHES").is_some() { &[0, 1, 2, 3] } else { &[0, 3] };
    let graphs: Vec<&str> = corpus.graphs().collect();
    let tally = with_each(&graphs, |name, tally| {
        for way in ways {
            let subject = Subject::load(&tree, name, *way);
            every_write(&subject, tally).unwrap_or_else(|why| panic!("{name}, way {way}: {why}"));
        }
    });
    let Tally { crashes, repeated, snapshots, parts, ends, .. } = tally;
    println!(
        "{crashes} crashes, {repeated} calls repeated, {snapshots} snapshots, {parts} parts of steps; ends: {ends:?}"
    );
    // A situation that does not occur is not proved.
    assert!(crashes > 1_500 && repeated > 200 && snapshots > 1 && parts > 10, "too little was met");
    assert!(ends.len() >= 3, "{ends:?}");
}

/// A run that was not stopped.
struct WholeRun {
    end: Value,
    visits: BTreeMap<RunId, Vec<Visit>>,
    calls: BTreeSet<Made>,
    store: MemoryStore,
}

impl WholeRun {
    fn of(subject: &Subject) -> Result<Self, String> {
        let store = MemoryStore::new();
        let (end, visits) = process(async {
            let run = runtime(store.clone()).start_as(id(), subject.graph.clone(), subject.inputs.clone()).await;
            let end = came(run.map_err(|error| format!("it does not start: {error}"))?.await);
            Ok::<_, String>((end, recorded_visits(&store).await))
        })?;
        Ok(Self { end, visits, calls: subject.calls().into_iter().collect(), store })
    }

    /// Resumes a run that was stopped, and compares it with this one; `before` are the calls that were made then.
    fn compare(
        &self,
        subject: &Subject,
        memory: &MemoryStore,
        before: &[Made],
        tally: &mut Tally,
    ) -> Result<(), String> {
        let committed = process(recorded_visits(memory));
        let done = process(done(memory));
        let again = process(async {
            match runtime(memory.clone()).resume(subject.graph.clone(), &id()).await {
                Ok(run) => Ok(came(run.await)),
                // The start was not durable, and nobody was notified that there is a run.
                Err(_) if committed.is_empty() => Err(None),
                Err(error) => Err(Some(error.to_string())),
            }
        });
        let again = match again {
            Ok(again) => again,
            Err(None) => return Ok(()),
            Err(Some(error)) => return Err(format!("not resumed: {error}")),
        };
        let after = subject.calls();
        if again != self.end {
            return Err(format!("it came to\n{again}\nand not to\n{}", self.end));
        }
        // The resumed run has the same visits as the whole run, even if it failed before.
        let retold = process(recorded_visits(memory));
        if retold != self.visits {
            return Err(format!("the journal tells\n{retold:?}\nand not\n{:?}", self.visits));
        }
        for call in &after {
            let (run, step, item, tool, ..) = call;
            let run = RunId::new(run.as_str()).unwrap();
            let is_whole = |visit: &Visit| visit.step == *step && !visit.held;
            let visits = committed.get(&run).map(Vec::as_slice).unwrap_or_default();
            // The process may have died before it asked the hooks of its last step.
            let is_last = visits.last().is_some_and(|visit| visit.step == *step);
            let is_committed = visits.iter().any(is_whole) && !(is_last && tool.contains(OF_HOOK));
            if is_committed || done.contains(&(run.clone(), *step, *item)) {
                return Err(format!("a call that was committed is made again: {call:?}"));
            }
            // Where a step fails, the visits that begin before that depend on time.
            let is_whole = self.visits.get(&run).is_some_and(|visits| visits.iter().any(|visit| visit.step == *step));
            if !self.calls.contains(call) && (is_whole || !subject.has_branches()) {
                return Err(format!("a call that the whole run does not make: {call:?}"));
            }
            tally.repeated += u64::from(before.contains(call));
        }
        let records = process(memory.load(&id())).unwrap();
        audit(&subject.graph, &id(), &records, &key().public(), Some(&encryption_key()))
            .map_err(|error| error.to_string())?;
        Ok(())
    }
}

fn every_write(subject: &Subject, tally: &mut Tally) -> Result<(), String> {
    let whole = WholeRun::of(subject)?;
    *tally.ends.entry(whole.end["status"].as_str().unwrap_or("?").to_owned()).or_default() += 1;
    let writes = process(count_writes(&whole.store, tally));
    for write in 0..writes {
        for crash in CRASHES {
            let memory = MemoryStore::new();
            process(subject.crash(&memory, write, crash));
            tally.crashes += 1;
            let before = subject.calls();
            let at = |why| format!("{crash:?} at write {write} of {writes}: {why}");
            whole.compare(subject, &memory, &before, tally).map_err(at)?;
        }
    }
    Ok(())
}

/// Whether a graph needs environment variables, files, processes or threads.
fn is_outside(text: &str) -> bool {
    let needs = ["env_requires", "rye/bash", "rye/file-system", "rye/agent", "rye/exec"];
    needs.iter().any(|need| text.contains(need))
}

/// How many calls of a step are held in all combinations.
const MOST_HELD: usize = 4;

/// Stops each step of several visits, at most `steps` of them, while any of its first calls are in progress and the others have
/// finished: when nothing else happens, and at each write of the step.
fn every_subset(subject: &Subject, steps: usize, tally: &mut Tally) -> Result<(), String> {
    let whole = WholeRun::of(subject)?;
    let mut of_steps: Vec<Vec<Held>> = Vec::new();
    for signed in process(whole.store.load(&id())).unwrap() {
        let Entry::Step(step) = serde_json::from_str::<Record>(&signed.body).unwrap().entry else { continue };
        let numbers: BTreeSet<u64> = step.visits.iter().map(|visit| visit.step).collect();
        let own = whole.calls.iter().filter(|(run, step, ..)| run == id().as_str() && numbers.contains(step));
        let calls: BTreeSet<Held> = own.map(|(_, step, item, ..)| (*step, *item)).collect();
        if step.visits.len() > 1 && calls.len() > 1 {
            of_steps.push(calls.into_iter().take(MOST_HELD).collect());
        }
    }
    for calls in of_steps.iter().take(steps) {
        for subset in 1_u32..1 << calls.len() {
            let held = calls.iter().enumerate().filter(|(at, _)| subset >> at & 1 == 1).map(|(_, call)| *call);
            let held: BTreeSet<Held> = held.collect();
            let hold = |held: &BTreeSet<Held>| held.clone_into(&mut subject.held.lock().unwrap());
            hold(&held);
            let memory = MemoryStore::new();
            subject.crash_in_progress(&memory, u64::MAX, Crash::StopsBefore);
            let writes = process(count_writes(&memory, &mut Tally::default()));
            let before = subject.calls();
            tally.subsets += 1;
            tally.finished += process(done(&memory)).len() as u64;
            hold(&BTreeSet::new());
            let at = |crash: Option<(u64, Crash)>, why| format!("with {held:?} in progress, {crash:?}: {why}");
            whole.compare(subject, &memory, &before, tally).map_err(|why| at(None, why))?;
            // The last writes are those of the step.
            for write in writes.saturating_sub(calls.len() as u64)..writes {
                for crash in CRASHES {
                    hold(&held);
                    let memory = MemoryStore::new();
                    subject.crash_in_progress(&memory, write, crash);
                    let before = subject.calls();
                    hold(&BTreeSet::new());
                    tally.crashes += 1;
                    whole.compare(subject, &memory, &before, tally).map_err(|why| at(Some((write, crash)), why))?;
                }
            }
        }
    }
    Ok(())
}

#[test]
fn step_stopped_with_any_of_its_calls_finished_ends_the_same() {
    let corpora = ["graphs", "tests/engines/graphs"].map(|directory| {
        let mut corpus = Corpus::of(directory);
        corpus.files.retain(|(_, text)| !is_outside(text));
        let tree = corpus.tree();
        // The others may stay, since graphs of the tree run inside of these.
        corpus.files.retain(|(_, text)| text.contains("waits_for"));
        (tree, corpus)
    });
    let is_long = std::env::var_os("CRASHES").is_some();
    let (ways, steps): (&[u64], usize) = if is_long { (&[0, 1, 2, 3], usize::MAX) } else { (&[0], 2) };
    let graphs = corpora.iter().flat_map(|(tree, corpus)| corpus.graphs().map(move |name| (tree, corpus, name)));
    let graphs: Vec<_> = graphs.collect();
    let tally = with_each(&graphs, |(tree, corpus, name), tally| {
        for way in ways {
            let subject = Subject::load(tree, name, *way);
            // A quorum that cancels and a return that cancels depend on what finishes first.
            if !subject.has_branches() || subject.decides_early() {
                continue;
            }
            tally.graphs += 1;
            every_write(&subject, tally).unwrap_or_else(|why| panic!("{name}, way {way}: {why}"));
            // A call that does not return would time out.
            let is_timed = corpus.files.iter().any(|(one, text)| one == name && text.contains("timeout:"));
            let steps = if is_timed { 0 } else { steps };
            every_subset(&subject, steps, tally).unwrap_or_else(|why| panic!("{name}, way {way}: {why}"));
        }
    });
    let Tally { graphs, subsets, finished, crashes, repeated, .. } = tally;
    println!(
        "{graphs} graphs with branches, {subsets} subsets of calls in progress beside {finished} finished ones, {crashes} \
         crashes, {repeated} calls repeated"
    );
    assert!(graphs > 5 && subsets > 50 && finished > 20 && crashes > 200, "too little was met");
}

/// Returns the number of writes of a whole run, and counts their kinds.
async fn count_writes(store: &MemoryStore, tally: &mut Tally) -> u64 {
    let mut writes = 0;
    for summary in store.list().await.unwrap() {
        for signed in store.load(&summary.run).await.unwrap() {
            let record: Record = serde_json::from_str(&signed.body).unwrap();
            match record.entry {
                // It is written with the step before it, like the end of a run that completed.
                Entry::Snapshot(_) => tally.snapshots += 1,
                Entry::Calls(_) => (tally.parts, writes) = (tally.parts + 1, writes + 1),
                _ => writes += 1,
            }
        }
    }
    writes
}

/// Returns the calls of uncommitted steps that a store records as done.
async fn done(store: &MemoryStore) -> BTreeSet<(RunId, u64, Option<u64>)> {
    let mut all = BTreeSet::new();
    for summary in store.list().await.unwrap() {
        let records = store.load(&summary.run).await.unwrap();
        let mut done: Vec<Done> = Vec::new();
        for signed in records {
            match serde_json::from_str::<Record>(&signed.body).unwrap().entry {
                Entry::Calls(calls) => done.extend(calls.done),
                // A call whose result does not fit is made again.
                Entry::Step(step) => {
                    let unfit = |visit: &Visit| visit.held && visit.items.is_empty();
                    done.retain(|one| !step.visits.iter().any(|visit| visit.step == one.step && unfit(visit)));
                }
                Entry::End(end) => done.retain(|one| !end.forgets(one)),
                _ => {}
            }
        }
        all.extend(done.into_iter().map(|done| (summary.run.clone(), done.step, done.item)));
    }
    all
}

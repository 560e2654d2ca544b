//! Runs in virtual time, with a store in memory, and crashes.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use graph_engine::answer::Answered;
use graph_engine::events::{EventFilter, EventLog, RunEvent};
use graph_engine::store::Wait;
use graph_engine::{
    Builder, EncryptionKey, Graph, MemoryStore, NamedAnswer, NamedSignal, Options, RunError, RunId, Runtime, SecretKey,
    Status, Store, TokioClock,
};
use graph_model::timestamp;
use graph_model::value::{AsView, Value};

use crate::fakes::{FakeCall, Fakes};
use crate::faults::FaultyStore;
use crate::kept::keep_journals;
use crate::people::TestPeople;
use crate::test_run::TestRun;

/// How many messages of events are kept while a process runs.
const EVENTS: usize = 1 << 16;

/// How often a run may wait before a test gives up.
const MOST_WAITS: usize = 1_000;

/// The reply of a test to a wait.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum WaitReply {
    /// Time passes until the wait is over. A wait without an end stays open.
    Time,
    /// A signal is received, with its name, which is one of the wait's `signals`.
    Signal {
        /// The name.
        name: String,
        /// The value.
        value: Value,
    },
    /// As many people as the question needs sign this answer.
    Answer(Value),
    /// A visit that was paused, or that a hook suspended, continues.
    Release,
}

/// The reply to each wait.
type OnWait = Arc<dyn Fn(&Wait) -> WaitReply + Send + Sync>;

/// A store in memory, keys and a clock for runs in virtual time: time passes only when nothing is left to do.
///
/// Use it inside [`in_virtual_time`], or another tokio runtime whose time is paused.
#[derive(Clone)]
pub struct TestBed {
    disk: MemoryStore,
    clock: Arc<TokioClock>,
    id: RunId,
    /// How many runs it made.
    runs: Arc<AtomicU32>,
    on_wait: OnWait,
}

impl fmt::Debug for TestBed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestBed").field("disk", &self.disk).finish_non_exhaustive()
    }
}

/// Runs the body of a test on a tokio runtime of its own, whose time is paused.
///
/// If the environment variable `GRAPH_COVERAGE` names a directory, the journals of all runs in the bed's store are written there at the
/// end, for `graph coverage --journals`. Those of a test that panics are not.
///
/// # Panics
///
/// If the body does, the runtime cannot be made, or the journals cannot be written.
pub fn in_virtual_time<T>(body: impl AsyncFnOnce(TestBed) -> T) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let tokio = builder.enable_all().start_paused(true).build().expect("a runtime for the test");
    tokio.block_on(async {
        let bed = TestBed::new();
        let result = body(bed.clone()).await;
        keep_journals(&bed.disk).await;
        result
    })
}

/// The end of one process.
enum TestProcessEnd<O> {
    Over(Box<Result<graph_engine::Finished<O>, RunError>>),
    Died,
}

impl TestBed {
    /// An empty store. Its clock shows the first second of 2026, in UTC.
    pub fn new() -> Self {
        let clock = Arc::new(TokioClock::at(SystemTime::UNIX_EPOCH + Duration::from_secs(1_767_225_600)));
        let disk = MemoryStore::with_clock(Arc::clone(&clock) as _);
        let id = RunId::new("test").expect("it has the letters of a run's id");
        Self { disk, clock, id, runs: Arc::default(), on_wait: Arc::new(|_| WaitReply::Time) }
    }

    /// Replies to the waits of runs, also of those inside others. Without it, time passes until a wait is over.
    #[must_use]
    pub fn on_wait(self, reply: impl Fn(&Wait) -> WaitReply + Send + Sync + 'static) -> Self {
        Self { on_wait: Arc::new(reply), ..self }
    }

    /// Returns the store, which outlives the processes of a test.
    pub fn disk(&self) -> &MemoryStore {
        &self.disk
    }

    /// Returns the clock.
    pub fn clock(&self) -> &Arc<TokioClock> {
        &self.clock
    }

    /// Returns the key that signs the journals.
    pub fn key(&self) -> SecretKey {
        SecretKey::from_seed(&[7; 32])
    }

    /// Returns the key that encrypts the secrets of runs.
    pub fn encryption_key(&self) -> EncryptionKey {
        EncryptionKey::from_bytes([8; 32])
    }

    /// Returns the builder of a runtime: of a process that uses the store. It grants everything, and trusts the people of the test.
    ///
    /// # Panics
    ///
    /// Never: its pattern is valid.
    pub fn process(&self, store: impl Store) -> Builder {
        let builder = Runtime::builder().store(store).clock(Arc::clone(&self.clock) as _).sign_with(self.key());
        let builder = builder.encrypt_with(self.encryption_key()).answer_keys(|| TestPeople).events(EVENTS);
        builder.grant("*").expect("a valid pattern")
    }

    /// Runs a graph to its end, in one process. A run that waits gets the replies of [`TestBed::on_wait`], until nothing can happen any
    /// more. The first run of a bed has the id `test`, the next ones `test-2`, `test-3` and so on.
    ///
    /// # Panics
    ///
    /// If the run cannot begin, or a reply is refused.
    #[track_caller]
    pub fn run<G: Graph + Clone>(&self, graph: G, inputs: G::Inputs) -> impl Future<Output = TestRun<G>>
    where
        G::Inputs: Clone,
    {
        let number = self.runs.fetch_add(1, Ordering::Relaxed) + 1;
        let id = if number == 1 { "test".to_owned() } else { format!("test-{number}") };
        let id = RunId::new(id).expect("it has the letters of a run's id");
        let bed = Self { id, ..self.clone() };
        async move { bed.drive(graph, inputs, FaultyStore::sound(bed.disk.clone())).await }
    }

    /// Makes the same run again and again: each time its process dies after another one of its commits, and a new process resumes it.
    /// Returns the calls that were made again, of all these runs.
    ///
    /// `make` makes the graph and new tools for each of the runs. A call that a crash repeats gets the answer that it got before.
    ///
    /// # Panics
    ///
    /// If a run ends in another way than the one whose process does not die: another status, output or path, or a call that the other
    /// one did not make. And if an audit refuses the journal of one.
    pub async fn crash_at_each_commit<G: Graph + Clone, R>(
        &self,
        make: impl Fn() -> (G, Fakes<R>),
        inputs: G::Inputs,
    ) -> Vec<FakeCall>
    where
        G::Inputs: Clone,
        G::Output: AsView,
    {
        let (graph, fakes) = make();
        fakes.repeat_answers();
        let bed = TestBed { on_wait: Arc::clone(&self.on_wait), ..TestBed::new() };
        let store = FaultyStore::sound(bed.disk.clone());
        let whole = bed.drive(graph, inputs.clone(), store.clone()).await;
        let (commits, expected) = (store.writes(), whole.summary());
        let calls: Vec<String> = fakes.calls().iter().map(|call| call.idempotency_key.clone()).collect();
        let mut repeated = Vec::new();
        for commit in 1..=commits {
            let (graph, fakes) = make();
            fakes.repeat_answers();
            let bed = TestBed { on_wait: Arc::clone(&self.on_wait), ..TestBed::new() };
            let run = bed.drive(graph, inputs.clone(), FaultyStore::dies_after(bed.disk.clone(), commit)).await;
            assert_eq!(run.summary(), expected, "the process died after commit {commit} of {commits}");
            run.assert_proven().await;
            let mut seen = BTreeMap::<(String, u32), usize>::new();
            for call in fakes.calls() {
                assert!(
                    calls.contains(&call.idempotency_key),
                    "the process died after commit {commit} of {commits}, and a call was made that is not in the run without a \
                     crash: {call:?}"
                );
                let times = seen.entry((call.idempotency_key.clone(), call.attempt)).or_default();
                *times += 1;
                if *times > 1 {
                    repeated.push(call);
                }
            }
        }
        repeated
    }

    async fn drive<G: Graph + Clone>(&self, graph: G, inputs: G::Inputs, store: FaultyStore) -> TestRun<G>
    where
        G::Inputs: Clone,
    {
        let (mut store, mut events, mut has_begun) = (store, Vec::new(), false);
        for _ in 0..MOST_WAITS {
            let ended = self.process_once(&graph, &inputs, store.clone(), has_begun, &mut events).await;
            let outcome = match ended {
                TestProcessEnd::Died => {
                    // A process that died before its first commit left no run.
                    has_begun = self.disk.find(&self.id).await.is_ok();
                    store = FaultyStore::sound(self.disk.clone());
                    continue;
                }
                TestProcessEnd::Over(outcome) => *outcome,
            };
            has_begun = true;
            let is_over = match &outcome {
                Err(RunError::Waiting { waits, .. }) => !self.reply(&graph, waits).await,
                _ => true,
            };
            if is_over {
                let journal = self.disk.load(&self.id).await.expect("the store has the run");
                let log = EventLog::new(Arc::new(self.disk.clone()), self.key().public(), self.id.clone(), None);
                let log = match log {
                    Ok(mut log) => log.read().await,
                    Err(error) => Err(error),
                };
                let log = log.unwrap_or_else(|error| panic!("the journal cannot be read: {error}"));
                return TestRun::of(self.clone(), graph, self.id.clone(), outcome, (events, log), journal);
            }
        }
        panic!("the run has waited {MOST_WAITS} times, and has not ended");
    }

    async fn process_once<G: Graph + Clone>(
        &self,
        graph: &G,
        inputs: &G::Inputs,
        store: FaultyStore,
        has_begun: bool,
        events: &mut Vec<RunEvent>,
    ) -> TestProcessEnd<G::Output>
    where
        G::Inputs: Clone,
    {
        let runtime = self.process(store.clone()).build().expect("the runtime has a key");
        let mut seen = runtime.events(EventFilter::default()).expect("the runtime has events");
        let (stop, mut stopped) = tokio::sync::oneshot::channel::<()>();
        let reading = tokio::spawn(async move {
            let mut events = Vec::new();
            // Calls that a test keeps would keep the stream open.
            while let Some(event) = tokio::select! {
                biased;
                event = seen.next() => event,
                _ = &mut stopped => None,
            } {
                events.push(event.expect("the reader of the events is fast enough"));
            }
            events
        });
        let begun = match has_begun {
            true => runtime.resume(graph.clone(), &self.id).await.map_err(|error| error.to_string()),
            false => {
                let options = Options { run: Some(self.id.clone()), ..Options::default() };
                let started = runtime.start_with(options, graph.clone(), inputs.clone()).await;
                started.map_err(|error| error.to_string())
            }
        };
        let outcome = match begun {
            Ok(run) => run.await,
            Err(_) if store.is_dead() => return TestProcessEnd::Died,
            Err(error) => panic!("the run cannot begin: {error}"),
        };
        drop((runtime, stop));
        events.extend(reading.await.expect("the reader of the events does not panic"));
        if store.is_dead() { TestProcessEnd::Died } else { TestProcessEnd::Over(Box::new(outcome)) }
    }

    /// Lets something happen to a run that waits. Returns whether anything can happen.
    async fn reply<G: Graph + Clone>(&self, graph: &G, waits: &[Wait]) -> bool {
        let outside = self.process(self.disk.clone()).build().expect("the runtime has a key");
        for wait in waits {
            match (self.on_wait)(wait) {
                WaitReply::Time => {}
                WaitReply::Signal { name, value } => {
                    let id = format!("{}#{}", wait.id.as_str(), wait.opened);
                    let received = outside.signal(graph, &self.id, NamedSignal::new(name, value), id).await;
                    received.unwrap_or_else(|error| panic!("the signal to `{}` was refused: {error}", wait.node));
                    return true;
                }
                WaitReply::Answer(value) => {
                    self.answer(&outside, graph, wait, &value).await;
                    return true;
                }
                WaitReply::Release => {
                    let released = outside.release(graph, &self.id).await;
                    let released = released.unwrap_or_else(|error| panic!("`{}` was not released: {error}", wait.node));
                    assert!(!released.is_empty(), "`{}` is no visit that was paused or suspended", wait.node);
                    return true;
                }
            }
        }
        let Some(due) = waits.iter().filter_map(|wait| wait.due).min() else { return false };
        let now = self.disk.now().await.expect("the store has a clock");
        let due = timestamp::from_unix_milliseconds(due).duration_since(timestamp::from_unix_milliseconds(now));
        // The store counts in milliseconds, and a timer may be a part of one ahead.
        tokio::time::sleep(due.unwrap_or_default() + Duration::from_millis(1)).await;
        true
    }

    async fn answer<G: Graph + Clone>(&self, outside: &Runtime, graph: &G, wait: &Wait, value: &Value) {
        let questions = outside.questions(graph, &self.id).await;
        let questions = questions.unwrap_or_else(|error| panic!("the questions cannot be read: {error}"));
        let question = questions.iter().find(|question| question.wait == wait.id.as_str());
        let question = question.unwrap_or_else(|| panic!("`{}` does not ask people", wait.node));
        for number in 0..TestPeople::MOST {
            let named = NamedAnswer::new(&*question.node, value.clone());
            let envelope = question.sign(named, &TestPeople::key(number));
            let envelope = envelope.unwrap_or_else(|error| panic!("the answer to `{}`: {error}", wait.node));
            match outside.answer(graph, &self.id, &envelope).await {
                Ok(Answered::Proposed { .. }) => {}
                Ok(_) => return,
                Err(error) => panic!("the answer to `{}` was refused: {error}", wait.node),
            }
        }
        panic!("the answer to `{}` needs more than {} people", wait.node, TestPeople::MOST);
    }
}

impl Default for TestBed {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the status of a run by its result.
pub(crate) fn status_of<O>(outcome: &Result<graph_engine::Finished<O>, RunError>) -> Status {
    match outcome {
        Ok(finished) => finished.status,
        Err(RunError::Waiting { .. }) => Status::Waiting,
        Err(RunError::Cancelled { .. }) => Status::Cancelled,
        Err(RunError::ShutDown { .. } | RunError::Store { .. } | RunError::Stopped { .. }) => Status::Running,
        Err(_) => Status::Error,
    }
}

//! Runs in virtual time, with a store in memory, and crashes.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::panic::Location;
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
use crate::faults::{FaultyStore, StoreFault, StoreWrite};
use crate::kept::keep_journals;
use crate::people::TestPeople;
use crate::test_run::{TestRun, difference};

/// How many messages of events are kept while a process runs.
const EVENTS: usize = 1 << 16;

/// How often a run may wait before a test gives up.
const MOST_WAITS: usize = 1_000;

/// The reply of a test to a wait.
///
/// ```
/// use std::time::Duration;
///
/// use graph_testkit::{TestBed, WaitReply};
/// use serde_json::json;
///
/// // People approve what they are asked about, after a day. The graph's own type is accepted too: `fulfil::Answer::Approve(…)`.
/// let bed = TestBed::new().on_wait(|wait| match &*wait.node {
///     "approve" => WaitReply::Answer(json!({ "decision": "approve" })).after(Duration::from_secs(86_400)),
///     _ => WaitReply::Time,
/// });
/// # drop(bed);
/// ```
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
    /// Another reply, some time after the wait was opened. If the wait is over before, it is not made.
    Later(Duration, Box<WaitReply>),
}

impl WaitReply {
    /// A signal of the graph, of its own type: `invoice::Signal::Paid(…)`.
    pub fn signal(signal: impl Into<NamedSignal>) -> Self {
        let NamedSignal { name, value, .. } = signal.into();
        Self::Signal { name, value }
    }

    /// An answer to a question of the graph, of its own type: `invoice::Answer::Approve(…)`.
    pub fn answer(answer: impl Into<NamedAnswer>) -> Self {
        Self::Answer(answer.into().value)
    }

    /// Makes the reply some time after the wait was opened.
    #[must_use]
    pub fn after(self, delay: Duration) -> Self {
        Self::Later(delay, Box::new(self))
    }

    /// Returns the reply, and how long after the wait was opened it is made; `None` if nothing but time ends the wait.
    fn timed(self) -> Option<(Duration, Self)> {
        match self {
            Self::Time => None,
            Self::Later(delay, reply) => reply.timed().map(|(more, reply)| (delay.saturating_add(more), reply)),
            reply => Some((Duration::ZERO, reply)),
        }
    }
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
    /// Where the test makes the run.
    place: Option<&'static Location<'static>>,
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
    /// It died, or its store failed or hung.
    Lost,
}

impl TestBed {
    /// An empty store. Its clock shows the first second of 2026, in UTC.
    pub fn new() -> Self {
        let clock = Arc::new(TokioClock::at(SystemTime::UNIX_EPOCH + Duration::from_secs(1_767_225_600)));
        let disk = MemoryStore::with_clock(Arc::clone(&clock) as _);
        let id = RunId::new("test").expect("it has the letters of a run's id");
        Self { disk, clock, id, runs: Arc::default(), on_wait: Arc::new(|_| WaitReply::Time), place: None }
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
    #[must_use = "the run is made when it is awaited"]
    pub fn run<G: Graph + Clone>(&self, graph: G, inputs: G::Inputs) -> impl Future<Output = TestRun<G>>
    where
        G::Inputs: Clone,
    {
        let bed = self.next_run(Location::caller());
        async move { bed.drive(graph, inputs, FaultyStore::sound(bed.disk.clone()), false).await }
    }

    /// Runs a graph to its end, as [`TestBed::run`] does. Writes of its first process go wrong as a function says: see [`FaultyStore`]. If
    /// one of them fails, hangs, or is the last of the process, another process continues the run with a sound store.
    ///
    /// # Panics
    ///
    /// If the run cannot begin, a reply is refused, or no write has a fault.
    #[track_caller]
    #[must_use = "the run is made when it is awaited"]
    pub fn run_with_faults<G: Graph + Clone>(
        &self,
        graph: G,
        inputs: G::Inputs,
        plan: impl Fn(&StoreWrite<'_>) -> Option<StoreFault> + Send + Sync + 'static,
    ) -> impl Future<Output = TestRun<G>>
    where
        G::Inputs: Clone,
    {
        let bed = self.next_run(Location::caller());
        async move {
            let store = FaultyStore::new(bed.disk.clone(), plan);
            let run = bed.drive(graph, inputs, store.clone(), true).await;
            match (store.faults(), store.writes()) {
                (0, 1) => bed.fail("no write had a fault: the run made one write"),
                (0, writes) => bed.fail(format_args!("no write had a fault: the run made {writes} writes")),
                _ => run,
            }
        }
    }

    /// Returns the bed of the next run, which a test makes at a place.
    fn next_run(&self, place: &'static Location<'static>) -> Self {
        let number = self.runs.fetch_add(1, Ordering::Relaxed) + 1;
        let id = if number == 1 { "test".to_owned() } else { format!("test-{number}") };
        let id = RunId::new(id).expect("it has the letters of a run's id");
        Self { id, place: Some(place), ..self.clone() }
    }

    /// An empty bed for a repetition of a run.
    fn repetition(&self, place: &'static Location<'static>) -> Self {
        Self { on_wait: Arc::clone(&self.on_wait), place: Some(place), ..Self::new() }
    }

    /// Ends the test with a message that says where it makes the run.
    fn fail(&self, message: impl fmt::Display) -> ! {
        match self.place {
            Some(place) => panic!("{message}\nthe run is made at {place}"),
            None => panic!("{message}"),
        }
    }

    /// Makes the same run again and again: each time its process dies after another one of its commits, and a new process resumes it.
    /// Returns the calls that were made again, of all these runs.
    ///
    /// `make` makes the graph and new tools for each of the runs. A call that a crash repeats gets the answer that it got before.
    ///
    /// # Panics
    ///
    /// If a run ends in another way than the one whose process does not die: another status, output or path, or a call that the other
    /// one did not make. If an audit refuses the journal of one, and if `make` returns tools that were called before.
    #[track_caller]
    #[must_use = "the runs are made when it is awaited"]
    pub fn crash_at_each_commit<G: Graph + Clone, R>(
        &self,
        make: impl Fn() -> (G, Fakes<R>),
        inputs: G::Inputs,
    ) -> impl Future<Output = Vec<FakeCall>>
    where
        G::Inputs: Clone,
        G::Output: AsView,
    {
        let place = Location::caller();
        async move { self.crash(place, make, inputs).await }
    }

    async fn crash<G: Graph + Clone, R>(
        &self,
        place: &'static Location<'static>,
        make: impl Fn() -> (G, Fakes<R>),
        inputs: G::Inputs,
    ) -> Vec<FakeCall>
    where
        G::Inputs: Clone,
        G::Output: AsView,
    {
        let make = || {
            let (graph, fakes) = make();
            if !fakes.calls().is_empty() {
                self.repetition(place).fail("the tools have calls of a run before: make new `Fakes` each time");
            }
            fakes.repeat_answers();
            (graph, fakes)
        };
        let (graph, fakes) = make();
        let bed = self.repetition(place);
        let store = FaultyStore::sound(bed.disk.clone());
        let whole = bed.drive(graph, inputs.clone(), store.clone(), false).await;
        let (commits, expected) = (store.writes(), whole.summary());
        let calls: Vec<String> = fakes.calls().iter().map(|call| call.idempotency_key.clone()).collect();
        let mut repeated = Vec::new();
        for commit in 1..=commits {
            let (graph, fakes) = make();
            let bed = self.repetition(place);
            let store = FaultyStore::dies_after(bed.disk.clone(), commit);
            let run = bed.drive(graph, inputs.clone(), store, true).await;
            let died = format!("the process died after commit {commit} of {commits}");
            let found = run.summary();
            if found != expected {
                bed.fail(format_args!("{died}, and the run ended in another way\n{}", difference(&expected, &found)));
            }
            run.assert_proven();
            let mut seen = BTreeMap::<(String, u32), usize>::new();
            for call in fakes.calls() {
                if !calls.contains(&call.idempotency_key) {
                    let FakeCall { tool, node, step, params, .. } = &call;
                    let made = format!("`{node}` (visit {step}) called `{tool}` with {params}");
                    bed.fail(format_args!("{died}, and {made}, which the run without a crash does not do"));
                }
                let times = seen.entry((call.idempotency_key.clone(), call.attempt)).or_default();
                *times += 1;
                if *times > 1 {
                    repeated.push(call);
                }
            }
        }
        repeated
    }

    /// Runs a graph to its end. `is_faulty` says whether the store of the first process may go wrong.
    async fn drive<G: Graph + Clone>(
        &self,
        graph: G,
        inputs: G::Inputs,
        mut store: FaultyStore,
        mut is_faulty: bool,
    ) -> TestRun<G>
    where
        G::Inputs: Clone,
    {
        let (mut events, mut has_begun) = (Vec::new(), false);
        for _ in 0..MOST_WAITS {
            let (graph, inputs) = (graph.clone(), inputs.clone());
            let begins = if has_begun { None } else { Some(inputs) };
            let outcome = match self.process_once(&graph, begins, &store, is_faulty, &mut events).await {
                TestProcessEnd::Lost => {
                    // A process that was lost before its first commit left no run.
                    has_begun = self.disk.find(&self.id).await.is_ok();
                    (store, is_faulty) = (FaultyStore::sound(self.disk.clone()), false);
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
                let log = log.unwrap_or_else(|error| self.fail(format_args!("the journal cannot be read: {error}")));
                return TestRun::of(self.clone(), graph, self.id.clone(), outcome, (events, log), journal);
            }
        }
        self.fail(format_args!("the run has waited {MOST_WAITS} times, and has not ended"))
    }

    /// Begins the run with inputs, or resumes it, in a process of its own.
    async fn process_once<G: Graph + Clone>(
        &self,
        graph: &G,
        begins: Option<G::Inputs>,
        store: &FaultyStore,
        is_faulty: bool,
        events: &mut Vec<RunEvent>,
    ) -> TestProcessEnd<G::Output> {
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
        let begin = async {
            match begins {
                None => runtime.resume(graph.clone(), &self.id).await.map_err(|error| chain(&error)),
                Some(inputs) => {
                    let options = Options { run: Some(self.id.clone()), ..Options::default() };
                    let started = runtime.start_with(options, graph.clone(), inputs).await;
                    started.map_err(|error| chain(&error))
                }
            }
        };
        let begun = tokio::select! {
            biased;
            begun = begin => begun,
            () = store.lost() => {
                store.kill();
                return TestProcessEnd::Lost;
            }
        };
        let mut run = match begun {
            Ok(run) => run,
            Err(_) if is_faulty && store.has_failed() => return TestProcessEnd::Lost,
            Err(error) => self.fail(format_args!("the run cannot begin: {error}")),
        };
        let outcome = tokio::select! {
            biased;
            outcome = &mut run => outcome,
            () = store.lost() => {
                store.kill();
                run.await
            }
        };
        drop((runtime, stop));
        events.extend(reading.await.expect("the reader of the events does not panic"));
        let is_lost = store.is_dead() || matches!(outcome, Err(RunError::Store { .. }));
        if is_faulty && is_lost && store.has_failed() {
            return TestProcessEnd::Lost;
        }
        TestProcessEnd::Over(Box::new(outcome))
    }

    /// Lets the next thing happen to a run that waits. Returns whether anything can happen.
    async fn reply<G: Graph + Clone>(&self, graph: &G, waits: &[Wait]) -> bool {
        let mut next: Option<(i64, &Wait, Option<WaitReply>)> = None;
        for wait in waits {
            let reply = (self.on_wait)(wait).timed().map(|(delay, reply)| {
                let delay = i64::try_from(delay.as_millis()).unwrap_or(i64::MAX);
                (wait.opened.saturating_add(delay), wait, Some(reply))
            });
            // A wait that is over takes nothing more, so its end comes before a reply at the same time.
            let due = wait.due.map(|due| (due, wait, None));
            for choice in due.into_iter().chain(reply) {
                if next.as_ref().is_none_or(|(at, ..)| choice.0 < *at) {
                    next = Some(choice);
                }
            }
        }
        let Some((at, wait, reply)) = next else { return false };
        let now = self.disk.now().await.expect("the store has a clock");
        let left = timestamp::from_unix_milliseconds(at).duration_since(timestamp::from_unix_milliseconds(now));
        if let Ok(left) = left.map(|left| if reply.is_none() { left + Duration::from_millis(1) } else { left }) {
            // The store counts in milliseconds, and a timer may be a part of one ahead.
            tokio::time::sleep(left).await;
        }
        let outside = self.process(self.disk.clone()).build().expect("the runtime has a key");
        match reply {
            Some(WaitReply::Signal { name, value }) => {
                let id = format!("{}#{}", wait.id.as_str(), wait.opened);
                if let Err(error) = outside.signal(graph, &self.id, NamedSignal::new(name, value), id).await {
                    self.fail(format_args!("the signal to `{}` was refused: {error}", wait.node));
                }
            }
            Some(WaitReply::Answer(value)) => self.answer(&outside, graph, wait, &value).await,
            Some(WaitReply::Release) => match outside.release(graph, &self.id).await {
                Ok(released) if released.is_empty() => {
                    self.fail(format_args!("`{}` is no visit that was paused or suspended", wait.node));
                }
                Ok(_) => {}
                Err(error) => self.fail(format_args!("`{}` was not released: {error}", wait.node)),
            },
            Some(WaitReply::Time | WaitReply::Later(..)) | None => {}
        }
        true
    }

    async fn answer<G: Graph + Clone>(&self, outside: &Runtime, graph: &G, wait: &Wait, value: &Value) {
        let questions = outside.questions(graph, &self.id).await;
        let questions =
            questions.unwrap_or_else(|error| self.fail(format_args!("the questions cannot be read: {error}")));
        let question = questions.iter().find(|question| question.wait == wait.id.as_str());
        let question = question.unwrap_or_else(|| self.fail(format_args!("`{}` does not ask people", wait.node)));
        for number in 0..TestPeople::MOST {
            let named = NamedAnswer::new(&*question.node, value.clone());
            let envelope = question.sign(named, &TestPeople::key(number));
            let envelope =
                envelope.unwrap_or_else(|error| self.fail(format_args!("the answer to `{}`: {error}", wait.node)));
            match outside.answer(graph, &self.id, &envelope).await {
                Ok(Answered::Proposed { .. }) => {}
                Ok(_) => return,
                Err(error) => self.fail(format_args!("the answer to `{}` was refused: {error}", wait.node)),
            }
        }
        self.fail(format_args!("the answer to `{}` needs more than {} people", wait.node, TestPeople::MOST))
    }
}

impl Default for TestBed {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns an error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
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

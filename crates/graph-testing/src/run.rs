//! Running a case: the engine, with scripted tools, a journal in memory, and time that passes when nothing else is left to do.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use graph_compiler::tree::YamlTree;
use graph_model::timestamp;
use graph_runtime::Machine as _;
use graph_runtime::answer::{Answered, Question};
use graph_runtime::dynamic::Interpreted;
use graph_runtime::machine::Topology;
use graph_runtime::observer::{Event, Observer};
use graph_runtime::record::{Entry, Record, SignedRecord, Visit};
use graph_runtime::store::Wait;
use graph_runtime::{
    EncryptionKey, Finished, Map, MemoryStore, NamedAnswer, NamedSignal, Options, Pattern, PerformItems, PublicKey,
    ResumeError, RunError, RunId, Runtime, SecretKey, StartError, Status, Store, TokioClock, Value,
};
use graph_testkit::{FaultyStore, TestPeople};
use tokio::time::Instant;

use crate::file::{CaseAnswer, PeopleSay, SentAt, TestCase};
use crate::script::{ScriptedCall, ScriptedTools};

/// The most times that a run is continued in a case: one that waits for ever would never end.
const MOST_WAKES: usize = 100_000;

/// The result of the run of a case.
#[derive(Debug, Clone)]
pub struct CaseRun {
    /// How the run ended.
    pub status: Status,
    /// The visited nodes in the order of the journal, with the one that failed last.
    pub path: Vec<String>,
    /// The reasons that may explain the path: the visits that failed, and the waits that nothing ended in time, as sentences.
    pub reasons: Vec<String>,
    /// The output, if it ended with a result.
    pub output: Option<Value>,
    /// The state at its end.
    pub state: Value,
    /// Why it failed.
    pub error: Option<String>,
    /// The node that failed.
    pub failed_node: Option<String>,
    /// How many nodes were visited.
    pub steps: u64,
    /// The warnings, in their order.
    pub warnings: Vec<String>,
    /// The calls of tools.
    pub calls: Vec<ScriptedCall>,
    /// The waits that are open at the end.
    pub waits: Vec<Wait>,
    /// How much virtual time passed.
    pub elapsed: Duration,
    /// The events that no case means: a signal that could not be sent, a call that a crash repeated although its step was
    /// committed.
    pub problems: Vec<String>,
    /// The answers of people and the signals that were used, by their indices.
    pub used: UsedEvents,
    /// How many commits were made.
    pub commits: u64,
    /// The journals of the run and of those inside it, each with the id of its graph.
    pub journals: Vec<(String, RunId, Vec<SignedRecord>)>,
}

impl CaseRun {
    /// The run of a case whose inputs were refused.
    pub(crate) fn refused(error: String) -> Self {
        Self {
            status: Status::Error,
            path: Vec::new(),
            reasons: Vec::new(),
            output: None,
            state: Value::Null,
            error: Some(error),
            failed_node: None,
            steps: 0,
            warnings: Vec::new(),
            calls: Vec::new(),
            waits: Vec::new(),
            elapsed: Duration::ZERO,
            problems: Vec::new(),
            used: UsedEvents::default(),
            commits: 0,
            journals: Vec::new(),
        }
    }
}

/// The scripted events of a case that were used.
#[derive(Debug, Clone, Default)]
pub struct UsedEvents {
    /// The indices of the answers.
    pub answers: BTreeSet<usize>,
    /// The indices of the signals.
    pub signals: BTreeSet<usize>,
    /// How often each node asked people.
    pub asked: BTreeMap<String, usize>,
    /// The indices of the answers whose questions were over before they came.
    pub late_answers: BTreeSet<usize>,
}

/// Why a case could not be run.
#[derive(Debug)]
pub enum CaseError {
    /// The run may not begin: its inputs do not fit, something is not granted.
    Start(StartError),
    /// Something else failed, which is a mistake of this program.
    Failed(String),
}

/// The key that signs the journals of tests.
fn journal_key() -> SecretKey {
    SecretKey::from_seed(&[7; 32])
}

/// Returns the public key that verifies the journals of tests.
pub fn journal_public_key() -> PublicKey {
    journal_key().public()
}

/// Collects the warnings of a run.
#[derive(Default)]
struct WarningLog(Mutex<Vec<String>>);

impl Observer for WarningLog {
    fn observe(&self, event: &Event<'_>) {
        if let Event::StepCompleted { warnings, .. } = event {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(warnings.iter().cloned());
        }
    }
}

/// The ends of a process.
enum ProcessEnd {
    Finished(Box<Finished<Value>>),
    Failed(Box<RunError>),
    /// It died after a commit.
    Crashed,
}

/// Runs a case. The process dies after the commit with the number `crash`; with 0, it does not die.
///
/// # Errors
///
/// If the run may not begin, or something fails that a case does not control.
pub fn run(case: &TestCase, graph: &Interpreted, tools: &ScriptedTools, crash: u64) -> Result<CaseRun, CaseError> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let tokio = builder.enable_time().start_paused(true).build().map_err(|error| failed(&error))?;
    tokio.block_on(async {
        let mut driver = Driver::new(case, graph, tools, crash)?;
        driver.drive().await
    })
}

fn failed(error: &dyn std::fmt::Display) -> CaseError {
    CaseError::Failed(error.to_string())
}

/// Lets a case happen.
struct Driver<'a> {
    case: &'a TestCase,
    graph: &'a Interpreted,
    tools: &'a ScriptedTools,
    id: RunId,
    clock: Arc<TokioClock>,
    store: MemoryStore,
    /// The store as the processes see it, of which the first may die.
    seen: FaultyStore,
    encryption_key: EncryptionKey,
    /// The runtime that sends answers and signals, and never dies.
    outside: Runtime,
    warnings: Arc<WarningLog>,
    began: Instant,
    used: UsedEvents,
    /// The answers that questions get, by the ids of their waits; `None` if nobody answers.
    assigned: BTreeMap<String, Option<usize>>,
    /// The waits that signals were sent for, and the signals that wait for their time, by the ids of the waits.
    awaited: BTreeMap<String, usize>,
    problems: Vec<String>,
}

/// Something that happens next.
enum Next {
    /// A wait is over.
    Due,
    /// A person answers a question.
    Answer { wait: String, index: usize },
    /// A visit continues that a hook suspended.
    Release { index: usize },
    /// A signal is sent, under the name by which a wait receives it, or that of the run.
    Signal { name: Option<String>, index: usize },
}

impl<'a> Driver<'a> {
    fn new(
        case: &'a TestCase,
        graph: &'a Interpreted,
        tools: &'a ScriptedTools,
        crash: u64,
    ) -> Result<Self, CaseError> {
        let clock = Arc::new(TokioClock::at(case.begins));
        let store = MemoryStore::with_clock(Arc::clone(&clock) as _);
        let encryption_key = EncryptionKey::generate().map_err(|error| failed(&error))?;
        let builder = Runtime::builder().store(store.clone()).clock(Arc::clone(&clock) as _);
        let builder = builder.sign_with(journal_key()).encrypt_with(encryption_key.clone());
        let builder = builder.answer_keys(|| TestPeople);
        let outside = builder.grants(grants(case, graph)).map_err(|error| failed(&error))?;
        let outside = outside.build().map_err(|error| failed(&error))?;
        Ok(Self {
            case,
            graph,
            tools,
            id: RunId::new("test").map_err(|error| failed(&error))?,
            clock,
            seen: FaultyStore::dies_after(store.clone(), crash),
            store,
            encryption_key,
            outside,
            warnings: Arc::default(),
            began: Instant::now(),
            used: UsedEvents::default(),
            assigned: BTreeMap::new(),
            awaited: BTreeMap::new(),
            problems: Vec::new(),
        })
    }

    /// Makes the runtime of a process.
    fn process(&self) -> Result<(Runtime, FaultyStore), CaseError> {
        let store = self.seen.clone();
        let items: Arc<dyn PerformItems> = Arc::new(self.tools.clone());
        let builder = Runtime::builder().store(store.clone()).clock(Arc::clone(&self.clock) as _);
        let builder = builder.sign_with(journal_key()).encrypt_with(self.encryption_key.clone());
        let builder = builder.spaces(items).observer(Arc::clone(&self.warnings));
        let builder = builder.grants(grants(self.case, self.graph)).map_err(|error| failed(&error))?;
        Ok((builder.build().map_err(|error| failed(&error))?, store))
    }

    async fn drive(&mut self) -> Result<CaseRun, CaseError> {
        let mut has_begun = false;
        for _ in 0..MOST_WAKES {
            let ended = match self.process_once(has_begun).await? {
                ProcessEnd::Crashed => {
                    self.tools.restart();
                    self.seen = FaultyStore::sound(self.store.clone());
                    // A process that died before its first commit left no run.
                    has_begun = self.store.find(&self.id).await.is_ok();
                    continue;
                }
                ProcessEnd::Finished(finished) => return self.finished(*finished).await,
                ProcessEnd::Failed(error) => error,
            };
            has_begun = true;
            match *ended {
                RunError::Waiting { waits: ref open, ref state, .. } => {
                    if !self.pass(open).await? {
                        let state = (**state).clone();
                        return self.result(Status::Waiting, None, state, None, None, open.clone()).await;
                    }
                    self.tools.resume();
                }
                error => return self.broken(error).await,
            }
        }
        Err(CaseError::Failed(format!("the run was continued {MOST_WAKES} times, and has not ended")))
    }

    /// Runs one process until the run ends, waits, or the process dies.
    async fn process_once(&mut self, has_begun: bool) -> Result<ProcessEnd, CaseError> {
        let (runtime, store) = self.process()?;
        let begun = match has_begun {
            true => match runtime.resume(self.graph.clone(), &self.id).await {
                Ok(run) => run,
                Err(_) if store.is_dead() => return Ok(ProcessEnd::Crashed),
                Err(ResumeError::Start(error)) => return Err(CaseError::Start(error)),
                Err(error) => return Err(failed(&shown(&error))),
            },
            false => {
                let options = Options {
                    run: Some(self.id.clone()),
                    entry: self.case.entry.as_ref().map(|entry| entry.value.clone()),
                    ..Options::default()
                };
                match runtime.start_with(options, self.graph.clone(), self.inputs()).await {
                    Ok(run) => run,
                    Err(_) if store.is_dead() => return Ok(ProcessEnd::Crashed),
                    Err(error) => return Err(CaseError::Start(error)),
                }
            }
        };
        let mut running = std::pin::pin!(IntoFuture::into_future(begun));
        let ended = loop {
            let next = self.next_timed();
            let at = next.map_or_else(|| Instant::now() + Duration::from_secs(1), |(_, at)| at);
            tokio::select! {
                biased;
                ended = &mut running => break ended,
                () = tokio::time::sleep_until(at), if next.is_some() => {
                    if let Some((index, _)) = next {
                        self.signal(None, index).await;
                    }
                }
            }
        };
        Ok(match ended {
            Ok(_) | Err(_) if store.is_dead() => ProcessEnd::Crashed,
            Ok(finished) => ProcessEnd::Finished(Box::new(finished)),
            Err(error) => ProcessEnd::Failed(Box::new(error)),
        })
    }

    fn inputs(&self) -> Map<String, Value> {
        self.case.inputs.iter().map(|(name, tree)| (name.value.clone(), tree.to_value())).collect()
    }

    /// Returns the next signal that is sent at a time after the start, and when.
    fn next_timed(&self) -> Option<(usize, Instant)> {
        let timed = self.case.signals.iter().enumerate().filter_map(|(index, signal)| match signal.sent {
            SentAt::AfterStart(time) if !self.used.signals.contains(&index) => Some((index, self.began + time)),
            _ => None,
        });
        timed.min_by_key(|(_, at)| *at)
    }

    /// Lets time pass until something happens to a run that waits, and lets it happen. Returns whether anything can happen.
    async fn pass(&mut self, waits: &[Wait]) -> Result<bool, CaseError> {
        let mut choices: Vec<(Instant, Next)> = Vec::new();
        for wait in waits {
            let opened = self.instant(wait.opened);
            if let Some(due) = wait.due {
                choices.push((self.instant(due), Next::Due));
            }
            let id = wait.id.as_str().to_owned();
            if wait.ask.is_some() || wait.is_pause() {
                if let Some(index) = self.answer_for(wait)
                    && !self.used.answers.contains(&index)
                {
                    let next = match wait.is_pause() {
                        true => Next::Release { index },
                        false => Next::Answer { wait: id, index },
                    };
                    choices.push((opened + self.case.answers[index].after, next));
                }
            } else if let Some(index) = self.signal_for(wait)
                && !self.used.signals.contains(&index)
                && let SentAt::AfterWait(after) = self.case.signals[index].sent
            {
                let name = received_name(wait, &self.case.signals[index].name.value).map(str::to_owned);
                choices.push((opened + after, Next::Signal { name, index }));
            }
        }
        choices.extend(self.next_timed().map(|(index, at)| (at, Next::Signal { name: None, index })));
        // The first of those that are at the same time: a wait that is over takes nothing more.
        let first = (0..choices.len()).min_by_key(|at| choices[*at].0);
        let Some((at, next)) = first.map(|at| choices.swap_remove(at)) else { return Ok(false) };
        tokio::time::sleep_until(at).await;
        match next {
            // The store counts in milliseconds, and a timer may be a part of one ahead.
            Next::Due => tokio::time::sleep(Duration::from_millis(1)).await,
            Next::Answer { wait, index } => self.answer(&wait, index).await?,
            Next::Release { index } => {
                self.used.answers.insert(index);
                if let Err(error) = self.outside.release(self.graph, &self.id).await {
                    self.problems.push(format!("the run could not be released: {}", shown(&error)));
                }
            }
            Next::Signal { name, index } => self.signal(name, index).await,
        }
        Ok(true)
    }

    /// Returns when the clock of the store shows a time.
    fn instant(&self, milliseconds: i64) -> Instant {
        let at = timestamp::from_unix_milliseconds(milliseconds);
        self.began + at.duration_since(self.case.begins).unwrap_or_default()
    }

    /// Returns the index of the answer that a question gets.
    fn answer_for(&mut self, wait: &Wait) -> Option<usize> {
        if let Some(known) = self.assigned.get(wait.id.as_str()) {
            return *known;
        }
        let is_taken = |index: &usize| {
            self.used.answers.contains(index) || self.assigned.values().flatten().any(|taken| taken == index)
        };
        let is_for = |answer: &CaseAnswer| {
            answer.to.value == wait.node && (answer.says == PeopleSay::Release) == wait.is_pause()
        };
        let fitting = self.case.answers.iter().enumerate().filter(|(_, answer)| is_for(answer));
        let index = fitting.map(|(index, _)| index).find(|index| !is_taken(index));
        let expires = index.filter(|index| self.case.answers[*index].says == PeopleSay::Nothing);
        // A question that nobody answers uses the words that say so.
        self.used.answers.extend(expires);
        *self.used.asked.entry(wait.node.clone()).or_default() += 1;
        self.assigned.insert(wait.id.as_str().to_owned(), index);
        index
    }

    /// Returns the index of the signal that ends a wait.
    fn signal_for(&mut self, wait: &Wait) -> Option<usize> {
        if let Some(known) = self.awaited.get(wait.id.as_str()) {
            return Some(*known);
        }
        let is_free =
            |index: &usize| !self.used.signals.contains(index) && !self.awaited.values().any(|taken| taken == index);
        let found = self.case.signals.iter().enumerate().find(|(index, signal)| {
            matches!(signal.sent, SentAt::AfterWait(_))
                && received_name(wait, &signal.name.value).is_some()
                && signal.to.as_ref().is_none_or(|to| to.value == wait.node)
                && is_free(index)
        });
        let index = found?.0;
        self.awaited.insert(wait.id.as_str().to_owned(), index);
        Some(index)
    }

    /// Answers a question, with the signatures of as many people as it needs.
    async fn answer(&mut self, wait: &str, index: usize) -> Result<(), CaseError> {
        self.used.answers.insert(index);
        let answer = &self.case.answers[index];
        let questions = self.outside.questions(self.graph, &self.id).await.map_err(|error| failed(&shown(&error)))?;
        let is_asked = |question: &&Question| question.wait == wait;
        let Some(question) = questions.iter().find(is_asked) else { return Ok(()) };
        let PeopleSay::Answer(value) = &answer.says else { return Ok(()) };
        let value = value.to_value();
        for number in 0..TestPeople::MOST {
            let named = NamedAnswer::new(&*question.node, value.clone());
            let sent = match question.sign(named, &TestPeople::key(number)) {
                Ok(envelope) => self.outside.answer(self.graph, &self.id, &envelope).await,
                Err(error) => Err(error),
            };
            match sent {
                Ok(Answered::Proposed { .. }) => {}
                Ok(_) => return Ok(()),
                Err(error) => {
                    self.problems.push(format!("the answer to `{}` was refused: {}", answer.to.value, shown(&error)));
                    return Ok(());
                }
            }
        }
        self.problems.push(format!("the answer to `{}` needs more than {} people", answer.to.value, TestPeople::MOST));
        Ok(())
    }

    /// Sends a signal, under another name than its own if a run inside the run receives it.
    async fn signal(&mut self, name: Option<String>, index: usize) {
        self.used.signals.insert(index);
        let signal = &self.case.signals[index];
        let name = name.unwrap_or_else(|| signal.name.value.clone());
        let value = signal.value.as_ref().map(YamlTree::to_value).unwrap_or_default();
        let sent = self.outside.signal(self.graph, &self.id, NamedSignal::new(name, value), format!("signal-{index}"));
        if let Err(error) = sent.await {
            self.problems.push(format!("the signal `{}` was refused: {}", signal.name.value, shown(&error)));
        }
    }

    async fn finished(&mut self, finished: Finished<Value>) -> Result<CaseRun, CaseError> {
        let Finished { status, output, state, .. } = finished;
        self.result(status, Some(output), state, None, None, Vec::new()).await
    }

    async fn broken(&mut self, error: RunError) -> Result<CaseRun, CaseError> {
        let status = match &error {
            RunError::Cancelled { .. } => Status::Cancelled,
            RunError::Store { .. } | RunError::Stopped { .. } => return Err(failed(&shown(&error))),
            _ => Status::Error,
        };
        let value = error.to_value();
        let node = match &error {
            RunError::Node { node, .. } => Some(node.clone()),
            _ => value.get("node").and_then(Value::as_str).map(str::to_owned),
        };
        let visited = matches!(error, RunError::Node { .. });
        let message = value.get("error").and_then(Value::as_str).map_or_else(|| error.to_string(), str::to_owned);
        let state = value.get("state").cloned().unwrap_or_default();
        let mut result = self.result(status, None, state, Some(message), node.clone(), Vec::new()).await?;
        if visited {
            result.path.extend(node);
            result.steps += 1;
        }
        Ok(result)
    }

    async fn result(
        &mut self,
        status: Status,
        output: Option<Value>,
        state: Value,
        error: Option<String>,
        failed_node: Option<String>,
        waits: Vec<Wait>,
    ) -> Result<CaseRun, CaseError> {
        let visits = self.outside.history(&self.id).await.map_err(|error| failed(&shown(&error)))?;
        let path: Vec<String> = visits.iter().filter(|visit| is_made(visit)).map(|visit| visit.node.clone()).collect();
        let mut journals = Vec::new();
        for summary in self.store.list().await.map_err(|error| failed(&error))? {
            let records = self.store.load(&summary.run).await.map_err(|error| failed(&error))?;
            journals.push((summary.graph, summary.run, records));
        }
        // The newest is first in a list, and the outermost began first.
        journals.reverse();
        self.used.late_answers = self.assigned.values().flatten().copied().collect();
        let topology = self.graph.graph().topology();
        let reasons = visits.iter().filter_map(|visit| reason(&topology, visit)).collect();
        let calls = self.tools.calls();
        let mut problems = std::mem::take(&mut self.problems);
        problems.extend(repeated_in_vain(&calls, &journals));
        let warnings = std::mem::take(&mut *self.warnings.0.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(CaseRun {
            status,
            steps: path.len() as u64,
            path,
            reasons,
            output,
            state,
            error,
            failed_node,
            warnings,
            calls,
            waits,
            elapsed: self.began.elapsed(),
            problems,
            used: self.used.clone(),
            commits: self.seen.writes(),
            journals,
        })
    }
}

/// Returns the name by which a wait receives a signal: that of a wait in a nested run begins with the path to the run.
fn received_name<'w>(wait: &'w Wait, signal: &str) -> Option<&'w str> {
    wait.signals.iter().map(String::as_str).find(|name| name.rsplit('/').next() == Some(signal))
}

/// Returns what may explain the way that a run took from a visit.
fn reason(topology: &Topology, visit: &Visit) -> Option<String> {
    let node = &visit.node;
    match &visit.error {
        Some(error) => Some(format!("node `{node}` failed: {error}")),
        None if visit.timed_out => {
            let asks = topology.node(node).and_then(|node| node.wait.as_ref()).is_some_and(|wait| wait.asks);
            let nothing = if asks { "nobody answered" } else { "nothing was received at" };
            Some(format!("{nothing} `{node}` in time"))
        }
        None => None,
    }
}

/// Whether a visit was made: one that waits, or whose failure is held, is made later, and a cancelled one never.
pub(crate) fn is_made(visit: &Visit) -> bool {
    visit.opened.is_none() && !visit.held && !visit.cancelled
}

/// Returns the calls that were repeated although an earlier commit has their results: the visits of a run are in its journal in the
/// order of their commits, so a call is not repeated when a later visit of that run was made.
fn repeated_in_vain(calls: &[ScriptedCall], journals: &[(String, RunId, Vec<SignedRecord>)]) -> Vec<String> {
    let mut problems = Vec::new();
    for (at, call) in calls.iter().enumerate().filter(|(_, call)| call.is_repeated && call.hook.is_none()) {
        let Some(run) = &call.run else { continue };
        let Some((_, _, records)) = journals.iter().find(|(_, id, _)| id == run) else { continue };
        // The number of the step in which a visit was committed.
        let committed = |step: u64| {
            records.iter().filter_map(|record| serde_json::from_str::<Record>(&record.body).ok()).find_map(|record| {
                match &record.entry {
                    Entry::Step(entry) => {
                        entry.visits.iter().any(|visit| visit.step == step && is_made(visit)).then_some(record.seq)
                    }
                    _ => None,
                }
            })
        };
        let Some(own) = committed(call.step) else { continue };
        let later = calls[..at].iter().filter(|other| other.run.as_ref() == Some(run) && other.step != call.step);
        let is_later = |other: &ScriptedCall| committed(other.step).is_some_and(|other| other > own);
        if later.into_iter().any(is_later) {
            problems.push(format!(
                "`{}` called `{}` again after a crash, although its step was committed before",
                call.node, call.tool
            ));
        }
    }
    problems
}

/// Returns the patterns of the capabilities that a case grants: its own, or those that the graph declares, and all signals.
fn grants(case: &TestCase, graph: &Interpreted) -> Vec<String> {
    let own: Vec<String> = match &case.grants {
        Some(grants) => grants.iter().map(|pattern| pattern.value.as_str().to_owned()).collect(),
        None => graph.permissions().patterns().iter().map(Pattern::as_str).map(str::to_owned).collect(),
    };
    // The test sends the signals, and not the graph.
    own.into_iter().chain(["rye.signal.*".to_owned()]).collect()
}

/// Returns the texts of an error and of its causes.
fn shown(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut at = error;
    while let Some(cause) = at.source() {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        at = cause;
    }
    text
}

/// Returns the texts of a reason that a run may not begin.
pub(crate) fn shown_start(error: &StartError) -> String {
    shown(error)
}

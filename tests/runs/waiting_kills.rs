//! Processes that are killed with SIGKILL at any moment, while their workers continue runs that wait.
//!
//! Two to eight processes open one SQLite store, each with a worker. The test process starts runs of six graphs, whose waits are
//! in loops, in branches beside tools, until computed times, in races that give them up, and for signals and for answers of two
//! people. It sends these, and cancels some runs. It kills random processes, starts others in their place, and lets the last ones finish. Tools write a line for each call.
//!
//! A judge reads these lines and the journals. It proves: each run ends as it must; each journal is proven after each kill, and
//! loses no record; a wait is opened once, taken once and not before it is due; nothing behind a wait is called before that time;
//! no call of a committed visit is repeated, and a repeated call has the same idempotency key; a call is repeated, and another
//! process calls tools of a run with a call in progress, only when the process that made the call is dead; each signal and each
//! answer that was accepted is taken once, or came when no wait was in time for it. The test prints how
//! late waits were taken.
//!
//! `KILLS=1000 cargo test --release --test runs waiting_kills -- --nocapture` takes minutes. `SEED` sets the seed of all choices,
//! which is random by default.

#![cfg(unix)]

mod graphs;
mod judge;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use graph_runtime::answer::{Answered, KeyFile, KeyRing};
use graph_runtime::dynamic::Interpreted;
use graph_runtime::record::SignedRecord;
use graph_runtime::store::{Received, RunSummary, StoreError};
use graph_runtime::{
    AnswerError, Builder, NamedAnswer, NamedSignal, RunError, RunId, RunOutcome, Runtime, SecretKey, SignalError,
    SqliteStore, Status, Store, StoredRunError, WorkerOptions, audit,
};
use serde_json::json;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span;

use self::graphs::{CallLine, CallLog, GRAPHS, WaitingGraph, inputs, load, now, tree};
use self::judge::{Expected, Faults, Judged, SentToRun, judge};
use crate::tree::Tree;
use crate::workload::{At, Chance, Worker, key, runtime};

/// The environment variable that makes a process the one to be killed; its value is the working directory.
const DIRECTORY: &str = "GRAPH_WAITING_KILLS_DIRECTORY";
/// The environment variable with the number of the process.
const PROCESS: &str = "GRAPH_WAITING_KILLS_PROCESS";
/// The environment variable with the number of runs that the process continues at a time.
const CONCURRENCY: &str = "GRAPH_WAITING_KILLS_CONCURRENCY";
/// The most kills of a round.
const MOST: u64 = 25;
/// The number of runs that begin at first, and those that begin with each kill.
const BEGIN: (u64, u64) = (16, 3);
/// The most faults of a kind that are shown.
const SHOWN: usize = 20;
/// The time without the end of a run after which those that have not ended are lost. A run whose processes died repeatedly at
/// one place is continued after a pause, which is not so long.
const LOST: Duration = Duration::from_secs(90);

/// Not a test of its own: the process that the next test kills.
#[test]
fn the_worker_that_is_killed() {
    let Some(directory) = std::env::var_os(DIRECTORY).map(PathBuf::from) else { return };
    let number = |name: &str| std::env::var(name).unwrap().parse::<u64>().unwrap();
    let warnings = File::options().create(true).append(true).open(directory.join("warnings")).unwrap();
    tracing::subscriber::set_global_default(Warnings(Arc::new(warnings))).unwrap();
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    tokio.block_on(work(&directory, number(PROCESS), number(CONCURRENCY)));
}

/// Continues runs until the test process writes a line.
async fn work(directory: &Path, process: u64, concurrency: u64) {
    let end = Arc::new(Notify::new());
    let ended = Arc::clone(&end);
    thread::spawn(move || {
        for line in std::io::stdin().lines() {
            if line.is_ok_and(|line| line == "end") {
                ended.notify_one();
            }
        }
        // The test process has ended.
        std::process::exit(1);
    });
    let graphs = load(&directory.join("graphs"), CallLog::open(directory, process));
    let runtime = runtime(SqliteStore::open(directory.join("runs.db")).await.unwrap());
    let options = WorkerOptions::default().concurrency(usize::try_from(concurrency).unwrap());
    let worker = runtime.worker(graphs.into_values().fold(options, WorkerOptions::graph)).unwrap();
    end.notified().await;
    assert_eq!(worker.status().postponed, 0);
    assert!(worker.shutdown(Duration::from_secs(10)).await.is_empty());
}

/// Writes the warnings and errors that are logged into a file, a line for each.
#[derive(Clone)]
struct Warnings(Arc<File>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.push_str(&format!("{field}: {value:?}; "));
    }
}

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::WARN)
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = Line(format!("{} ", now()));
        event.record(&mut line);
        (&*self.0).write_all(format!("{}\n", line.0).as_bytes()).expect("the file can be written");
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

#[derive(Default)]
struct Tally {
    kills: u64,
    /// The kills of processes that were calling a tool.
    during_calls: u64,
    runs: u64,
    cancelled: u64,
    steps: u64,
    calls: u64,
    repeated: u64,
    /// The signals and answers that ended waits.
    received: u64,
    /// How late waits were taken, by the graphs, in milliseconds.
    lateness: BTreeMap<WaitingGraph, Vec<i64>>,
    faults: Faults,
}

#[test]
fn waits_are_taken_once_and_in_time_though_workers_are_killed() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seed = number("SEED").unwrap_or_else(|| now().unsigned_abs());
    let kills = number("KILLS").unwrap_or(8);
    println!("SEED={seed} KILLS={kills}");
    let (mut chance, mut tally) = (Chance::of(seed), Tally::default());
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let began = Instant::now();
    for round in 0.. {
        if tally.kills >= kills {
            break;
        }
        let most = MOST.min(kills - tally.kills);
        tokio.block_on(async { Round::new(round, &mut chance).await.play(most, &mut chance, &mut tally).await });
    }
    tally.print(began.elapsed());
    let faults = tally.faults.kinds().into_iter().filter(|(_, found)| !found.is_empty());
    let faults: Vec<_> = faults.map(|(kind, found)| (kind, &found[..found.len().min(SHOWN)])).collect();
    assert!(faults.is_empty(), "{faults:#?}");
    if kills >= 100 {
        let is_met = [tally.repeated, tally.during_calls, tally.cancelled, tally.received].iter().all(|met| *met > 0);
        assert!(is_met, "too little was met");
    }
}

impl Tally {
    fn print(&self, elapsed: Duration) {
        let Self { kills, during_calls, runs, cancelled, steps, calls, repeated, received, lateness, faults } = self;
        let waits: usize = lateness.values().map(Vec::len).sum();
        let faults = faults.kinds().map(|(kind, found)| format!("{} {kind}", found.len())).join(", ");
        println!(
            "{kills} kills in {} s, {during_calls} of them during calls; {runs} runs, {cancelled} of them cancelled; {steps} steps, \
             {waits} waits that were taken, {received} of them with signals or answers; {calls} calls, {repeated} of them repeated; {faults}",
            elapsed.as_secs()
        );
        let each = GRAPHS.iter().filter_map(|graph| Some((graph.name(), lateness.get(graph)?.clone())));
        for (name, mut late) in each.chain([("all", lateness.values().flatten().copied().collect())]) {
            late.sort_unstable();
            let at = |percent: usize| late.get((late.len() * percent / 100).min(late.len().saturating_sub(1)));
            let [half, most, last] = [50, 99, 100].map(|percent| at(percent).copied().unwrap_or_default());
            println!("{name}: {} waits were taken {half} ms late (p50), {most} ms (p99), {last} ms (most)", late.len());
        }
    }
}

/// A run that the test process starts.
struct Planned {
    run: RunId,
    rounds: u64,
    starts_after: Duration,
    /// How long after its start it is cancelled.
    cancelled_after: Option<Duration>,
}

/// A store, its processes and its runs.
struct Round {
    number: u64,
    /// Removes the directory.
    _tree: Tree,
    directory: PathBuf,
    graphs: BTreeMap<WaitingGraph, Interpreted>,
    store: SqliteStore,
    runtime: Runtime,
    /// How many processes there are at a time.
    count: u64,
    processes: BTreeMap<u64, Worker>,
    /// How many processes were started; the test process is number 0.
    started: u64,
    /// When each process was killed.
    killed: BTreeMap<u64, i64>,
    expected: BTreeMap<RunId, Expected>,
    starts: JoinSet<(RunId, Result<bool, String>)>,
    /// Send signals and answers to runs until these have ended.
    tellers: JoinSet<(RunId, Result<SentToRun, String>)>,
    /// The journals when they were read last.
    seen: BTreeMap<RunId, Vec<SignedRecord>>,
}

impl Round {
    /// Starts the processes and the first runs.
    async fn new(number: u64, chance: &mut Chance) -> Self {
        let tree = tree();
        let directory = tree.path("").parent().expect("the tree is in a directory").to_owned();
        let graphs = load(&tree.path(""), CallLog::open(&directory, 0));
        let store = SqliteStore::open(directory.join("runs.db")).await.expect("the store can be opened");
        let mut round = Self {
            number,
            _tree: tree,
            directory,
            graphs,
            runtime: telling(store.clone()),
            store,
            count: 2 + chance.below(7),
            processes: BTreeMap::new(),
            started: 0,
            killed: BTreeMap::new(),
            expected: BTreeMap::new(),
            starts: JoinSet::new(),
            tellers: JoinSet::new(),
            seen: BTreeMap::new(),
        };
        for _ in 0..round.count {
            round.start_process(chance);
        }
        round.start_runs(BEGIN.0, chance);
        round
    }

    fn start_process(&mut self, chance: &mut Chance) {
        self.started += 1;
        let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
        command
            .args(["--exact", "waiting_kills::the_worker_that_is_killed"])
            .env(DIRECTORY, &self.directory)
            .env(PROCESS, self.started.to_string())
            .env(CONCURRENCY, (1 + chance.below(16)).to_string());
        self.processes.insert(self.started, Worker::start(&mut command));
    }

    /// Starts runs within the next moments.
    fn start_runs(&mut self, count: u64, chance: &mut Chance) {
        for _ in 0..count {
            let graph = GRAPHS[usize::try_from(chance.below(GRAPHS.len() as u64)).expect("it is an index")];
            let mut milliseconds = |most: u64| Duration::from_millis(chance.below(most));
            let starts_after = milliseconds(400);
            let cancelled_after = match graph {
                WaitingGraph::Endless => Some(milliseconds(1_500)),
                _ if milliseconds(8).is_zero() => Some(milliseconds(800)),
                _ => None,
            };
            let rounds = 2 + chance.below(5);
            let run = RunId::new(format!("run{}", self.expected.len())).expect("it is an id");
            let told = SentToRun::default();
            self.expected.insert(run.clone(), Expected { told, graph, rounds, is_cancelled: false });
            let planned = Planned { run, rounds, starts_after, cancelled_after };
            let machine = self.graphs[&graph].clone();
            if graph == WaitingGraph::Receiving {
                let chance = Chance::of(chance.below(u64::MAX));
                self.tellers.spawn(tell(self.runtime.clone(), machine.clone(), planned.run.clone(), chance));
            }
            self.starts.spawn(start(self.runtime.clone(), self.store.clone(), machine, planned));
        }
    }

    /// Kills processes, lets the others finish, and judges the runs.
    async fn play(mut self, kills: u64, chance: &mut Chance, tally: &mut Tally) {
        let mut made = 0;
        while made < kills {
            let chosen = self.choose(chance).await;
            // A machine that crashes takes all processes with it.
            let is_crash = chance.below(10) == 0;
            let chosen: Vec<u64> = if is_crash { self.processes.keys().copied().collect() } else { vec![chosen] };
            for process in chosen {
                self.kill(process, tally);
                made += 1;
            }
            while (self.processes.len() as u64) < self.count {
                self.start_process(chance);
            }
            self.start_runs(BEGIN.1, chance);
            self.examine(tally).await;
        }
        self.finish(tally).await;
        self.judge(tally).await;
    }

    /// Chooses a process, and waits for the moment to kill it.
    async fn choose(&self, chance: &mut Chance) -> u64 {
        let processes: Vec<u64> = self.processes.keys().copied().collect();
        let any = processes[usize::try_from(chance.below(processes.len() as u64)).expect("it is an index")];
        match chance.below(10) {
            // The youngest process, which may still open the store.
            0 => {
                tokio::time::sleep(Duration::from_millis(chance.below(60))).await;
                processes.last().copied().unwrap_or(any)
            }
            // A process that calls a tool.
            1..=4 => {
                let known = self.calls().len();
                for _ in 0..500 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    let new = self.calls().split_off(known);
                    let is_alive =
                        |line: &&CallLine| line.at == At::Began && self.processes.contains_key(&line.process);
                    if let Some(line) = new.iter().rfind(is_alive) {
                        tokio::time::sleep(Duration::from_micros(chance.below(20_000))).await;
                        return line.process;
                    }
                }
                any
            }
            _ => {
                tokio::time::sleep(Duration::from_millis(chance.below(500))).await;
                any
            }
        }
    }

    fn kill(&mut self, process: u64, tally: &mut Tally) {
        let Some(mut worker) = self.processes.remove(&process) else { return };
        let at = now();
        if !worker.kill() {
            let round = self.number;
            tally.faults.complaints.push(format!("round {round}: process {process} ended: {:?}", worker.0.wait()));
        }
        self.killed.insert(process, at);
        tally.kills += 1;
    }

    /// Returns the lines of the tools, from the oldest.
    fn calls(&self) -> Vec<CallLine> {
        let text = fs::read_to_string(self.directory.join("calls")).unwrap_or_default();
        text.split_inclusive('\n').filter_map(|line| CallLine::read(line.strip_suffix('\n')?)).collect()
    }

    /// Proves the journals that have changed, and compares them with what they were before.
    async fn examine(&mut self, tally: &mut Tally) {
        let round = self.number;
        let all = self.store.list().await.expect("the store can be read");
        let found: BTreeSet<&RunId> = all.iter().map(|summary| &summary.run).collect();
        for run in self.seen.keys().filter(|run| !found.contains(run)) {
            tally.faults.lost.push(format!("round {round}: run {run} is not there any more"));
        }
        for summary in &all {
            let run = &summary.run;
            let before = self.seen.get(run).map_or(&[][..], Vec::as_slice);
            if before.len() as u64 == summary.records {
                continue;
            }
            let records = self.store.load(run).await.expect("the store can be read");
            let is_same = |(before, now): (&SignedRecord, &SignedRecord)| {
                before.seq == now.seq && before.body == now.body && before.signature == now.signature
            };
            if records.len() < before.len() || !before.iter().zip(&records).all(is_same) {
                tally.faults.lost.push(format!("round {round}: run {run}: records are not there any more"));
            }
            let graph = self.expected.get(run).and_then(|expected| self.graphs.get(&expected.graph));
            match graph.map(|graph| audit(graph, run, &records, &key().public(), None)) {
                Some(Ok(_)) => {}
                Some(Err(error)) => tally.faults.unproven.push(format!("round {round}: run {run}: {error}")),
                None => tally.faults.unproven.push(format!("round {round}: nobody started run {run}")),
            }
            self.seen.insert(run.clone(), records);
        }
    }

    /// Waits until all runs have ended, and lets the processes end.
    async fn finish(&mut self, tally: &mut Tally) {
        let round = self.number;
        while let Some(started) = self.starts.join_next().await {
            let (run, cancelled) = started.expect("it does not panic");
            match cancelled {
                Ok(is_cancelled) => {
                    self.expected.entry(run).and_modify(|expected| expected.is_cancelled = is_cancelled);
                }
                Err(error) => tally.faults.lost.push(format!("round {round}: run {run}: {error}")),
            }
        }
        let (mut known, mut since) = (usize::MAX, Instant::now());
        while known > 0 && since.elapsed() < LOST {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let all = self.store.list().await.expect("the store can be read");
            let is_open = |summary: &&RunSummary| matches!(summary.status, Status::Running | Status::Waiting);
            let open = all.iter().filter(is_open).count();
            if open != known {
                (known, since) = (open, Instant::now());
            }
        }
        while let Some(told) = self.tellers.join_next().await {
            let (run, told) = told.expect("it does not panic");
            match told {
                Ok(told) => drop(self.expected.entry(run).and_modify(|expected| expected.told = told)),
                Err(error) => tally.faults.complaints.push(format!("round {round}: run {run}: {error}")),
            }
        }
        for worker in self.processes.values_mut() {
            let input = worker.0.stdin.as_mut().expect("its input is a pipe");
            // The pipe of a process that ended by itself is closed, and its status says so.
            drop(input.write_all(b"end\n"));
        }
        let deadline = Instant::now() + Duration::from_secs(20);
        for (process, worker) in &mut self.processes {
            let mut ended = None;
            while ended.is_none() && Instant::now() < deadline {
                tokio::time::sleep(Duration::from_millis(5)).await;
                ended = worker.0.try_wait().expect("the process can be waited for");
            }
            if !ended.is_some_and(|ended| ended.success()) {
                tally.faults.complaints.push(format!("round {round}: process {process} was shut down: {ended:?}"));
            }
        }
        self.processes.clear();
        let warnings = fs::read_to_string(self.directory.join("warnings")).unwrap_or_default();
        tally.faults.complaints.extend(warnings.lines().map(|line| format!("round {round}: {line}")));
    }

    /// Judges all runs, which have ended.
    async fn judge(mut self, tally: &mut Tally) {
        let round = self.number;
        self.examine(tally).await;
        for summary in self.store.list().await.expect("the store can be read") {
            if summary.holder.is_some() || summary.next_due.is_some() || summary.is_cancelling {
                tally.faults.lost.push(format!("round {round}: the store has left {summary:?}"));
            }
        }
        let all = self.calls();
        let is_called_by = |process: u64, at: i64| {
            let mut lines = all.iter().rev().filter(|line| line.process == process);
            // No call takes so long.
            lines.next().is_some_and(|line| line.at == At::Began && at - line.time < 100)
        };
        tally.during_calls += self.killed.iter().filter(|(process, at)| is_called_by(**process, **at)).count() as u64;
        let mut lines: BTreeMap<&str, Vec<&CallLine>> = BTreeMap::new();
        for line in &all {
            lines.entry(&line.run).or_default().push(line);
        }
        for (run, expected) in &self.expected {
            let name = format!("round {round}: run {run} of `{}`", expected.graph.name());
            let Some(records) = self.seen.get(run) else {
                tally.faults.lost.push(format!("{name}: it is not in the store"));
                continue;
            };
            let lines = lines.remove(run.as_str()).unwrap_or_default();
            let judged = judge(&name, expected, records, &lines, &self.killed, &mut tally.faults);
            let Judged { is_cancelled, steps, calls, repeated, received, lateness } = judged;
            tally.received += received;
            (tally.runs, tally.cancelled) = (tally.runs + 1, tally.cancelled + u64::from(is_cancelled));
            (tally.steps, tally.calls) = (tally.steps + steps, tally.calls + calls);
            tally.repeated += repeated;
            tally.lateness.entry(expected.graph).or_default().extend(lateness);
        }
        if !lines.is_empty() {
            tally.faults.lost.push(format!("round {round}: nobody started the runs {:?}", lines.keys()));
        }
    }
}

/// A runtime that accepts the answers of two people.
fn telling(store: SqliteStore) -> Runtime {
    let people = || {
        let files = [("Ann", 101), ("Bo", 102)].map(|(owner, seed)| KeyFile::new(person(seed).public(), owner));
        KeyRing::from_files(files)
    };
    let builder = Runtime::builder().store(store).sign_with(key()).answer_keys(people);
    builder.grant("*").and_then(Builder::build).expect("the runtime has a key")
}

fn person(seed: u8) -> SecretKey {
    SecretKey::from_seed(&[seed; 32])
}

/// Sends signals and answers to a run until it has ended. Returns those that were accepted.
async fn tell(
    runtime: Runtime,
    graph: Interpreted,
    run: RunId,
    mut chance: Chance,
) -> (RunId, Result<SentToRun, String>) {
    let (mut told, mut sent) = (SentToRun::default(), 0);
    loop {
        tokio::time::sleep(Duration::from_millis(5 + chance.below(50))).await;
        let result = match chance.below(3) {
            0 => {
                sent += 1;
                signal(&runtime, &graph, &run, sent, &mut told).await
            }
            _ => answer(&runtime, &graph, &run, &mut chance, &mut told).await,
        };
        match result {
            Ok(true) => {}
            Ok(false) => return (run, Ok(told)),
            Err(error) => return (run, Err(error)),
        }
    }
}

/// Sends a signal, at times twice. Returns false if the run has ended.
async fn signal(
    runtime: &Runtime,
    graph: &Interpreted,
    run: &RunId,
    number: u64,
    told: &mut SentToRun,
) -> Result<bool, String> {
    let id = format!("payment-{number}");
    for again in 0..1 + number % 2 {
        let paid = NamedSignal::new("paid", json!({ "number": number }));
        match runtime.signal(graph, run, paid, id.clone()).await {
            Ok(Received::Accepted(place)) if again == 0 => {
                told.signals.insert(id.clone(), (number, place.at));
            }
            Ok(Received::Already { .. }) if again == 1 => {}
            Ok(other) => return Err(format!("{id}: {other:?}")),
            Err(SignalError::Stored(StoredRunError::Store(StoreError::Ended { .. }))) => return Ok(false),
            // It has not begun yet.
            Err(SignalError::Stored(StoredRunError::Store(StoreError::NotFound(_)))) => return Ok(true),
            Err(error) => return Err(error.to_string()),
        }
    }
    match runtime.outcome(graph, run).await {
        Ok(RunOutcome::Cancelled { .. }) => Ok(false),
        _ => Ok(true),
    }
}

/// One of two people answers the question that is open. Returns false if the run has ended.
async fn answer(
    runtime: &Runtime,
    graph: &Interpreted,
    run: &RunId,
    chance: &mut Chance,
    told: &mut SentToRun,
) -> Result<bool, String> {
    let questions = match runtime.questions(graph, run).await {
        Ok(questions) => questions,
        Err(AnswerError::Stored(StoredRunError::Store(StoreError::NotFound(_)))) => return Ok(true),
        Err(error) => return Err(error.to_string()),
    };
    for question in questions {
        let decision = if chance.below(3) == 0 { "refuse" } else { "approve" };
        let answer = NamedAnswer::new("approve", json!({ "decision": decision }));
        let who = person(101 + u8::from(chance.below(2) == 0));
        let envelope = question.sign(answer.clone(), &who).map_err(|error| error.to_string())?;
        match runtime.answer(graph, run, &envelope).await {
            Ok(Answered::Accepted) => {
                let before = told.answers.insert(question.wait.clone(), answer.value);
                if before.is_some() {
                    return Err(format!("{} was answered twice", question.wait));
                }
            }
            Ok(Answered::Already { .. }) if told.answers.get(&question.wait) == Some(&answer.value) => {}
            Ok(Answered::Proposed { have: 1, need: 2 }) => {}
            Err(AnswerError::Answered { .. }) if told.answers.contains_key(&question.wait) => {}
            Err(AnswerError::Expired { .. } | AnswerError::NotOpen { .. }) => {}
            Err(AnswerError::Stored(StoredRunError::Store(StoreError::Ended { .. }))) => return Ok(false),
            Ok(other) => return Err(format!("{}: {other:?}", question.wait)),
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(true)
}

/// Starts a run, and cancels it if that is planned. Returns whether the store accepted that.
async fn start(
    runtime: Runtime,
    store: SqliteStore,
    graph: Interpreted,
    planned: Planned,
) -> (RunId, Result<bool, String>) {
    let Planned { run, rounds, starts_after, cancelled_after } = planned;
    tokio::time::sleep(starts_after).await;
    let started = match runtime.start_as(run.clone(), graph, inputs(rounds)).await {
        Ok(started) => started,
        Err(error) => return (run, Err(error.to_string())),
    };
    let cancel = async {
        let Some(after) = cancelled_after else { return Ok(false) };
        tokio::time::sleep(after).await;
        match store.cancel(&run).await {
            Ok(()) => Ok(true),
            Err(StoreError::Ended { .. }) => Ok(false),
            Err(error) => Err(error.to_string()),
        }
    };
    let (ended, cancelled) = tokio::join!(started, cancel);
    let result = match ended {
        Ok(_) | Err(RunError::Waiting { .. } | RunError::Cancelled { .. }) => cancelled,
        Err(error) => Err(error.to_string()),
    };
    (run, result)
}

//! Two hundred concurrent runs in one file, for minutes, on a disk that fills up and is freed, while runs are cancelled and
//! forked. Half of the runs are in a process that is killed again and again. The others are in a process that lasts and whose
//! memory is measured.
//!
//! Run with `SOAK=10m cargo bench --bench soak`; without `SOAK` it takes some seconds. At the end, every run must have ended
//! with the output that it has undisturbed, every journal must be proven, and the lasting process must not need more memory
//! late than before.

#![expect(clippy::panic, clippy::unwrap_used, reason = "what fails here is the answer")]

#[path = "../tests/support/mod.rs"]
mod support;
#[path = "../tests/support/tree.rs"]
#[expect(dead_code, reason = "nothing is compiled here")]
mod tree;
#[path = "../tests/support/workload.rs"]
mod workload;

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use graph_model::digest::Digest;
use graph_model::timestamp::unix_milliseconds;
use graph_model::value::canonical_json;
use graph_runtime::dynamic::Interpreted;
use graph_runtime::history::Fork;
use graph_runtime::store::StoreError;
use graph_runtime::{
    ForkRun, Options, ResumeError, RunError, RunId, Runtime, SqliteStore, Status, Store, StoredRunError, audit_tree,
};

use workload::{
    Chance, Work, Worker, durability, end_with_parent, graph, inputs, key, output, runtime, send_line, tree,
};

/// How many runs are in progress at once in each of the two processes.
const LANES: u64 = 100;
/// How many rounds each run makes.
const ROUNDS: u64 = 4;
/// The variable that marks a worker process, and names its directory.
const DIRECTORY: &str = "GRAPH_SOAK_DIRECTORY";
/// The time after which it begins no more runs, in milliseconds since the Unix epoch.
const UNTIL: &str = "GRAPH_SOAK_UNTIL";
/// The number of the process.
const LAUNCH: &str = "GRAPH_SOAK_LAUNCH";
/// The maximum duration of a call, in microseconds.
const PACE: &str = "GRAPH_SOAK_PACE";

fn main() {
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    match std::env::var_os(DIRECTORY) {
        Some(directory) => {
            end_with_parent();
            tokio.block_on(work(Path::new(&directory)));
        }
        None => soak(&tokio),
    }
}

fn number(name: &str) -> u64 {
    std::env::var(name).unwrap().parse().unwrap()
}

/// Returns a number that follows from a run's id, and decides the properties of the run.
fn number_of(run: &RunId) -> u64 {
    run.as_str().bytes().map(u64::from).sum()
}

fn size_of(run: &RunId) -> u64 {
    // A fork has the inputs of the run that it was forked from.
    let origin = RunId::new(run.as_str().trim_end_matches("fork")).unwrap();
    if number_of(&origin).is_multiple_of(20) { 20_000 } else { 200 }
}

/// The data that the lanes of a process share.
struct Shared {
    graph: Interpreted,
    runtime: Runtime,
    until: i64,
    launch: u64,
    next: AtomicU64,
    /// The runs to resume.
    waiting: Mutex<VecDeque<RunId>>,
}

/// Keeps `LANES` runs in progress until the time is over, and then waits until all have ended.
async fn work(directory: &Path) {
    let graph = graph(&directory.join("graphs"), "rounds", Work::new(number(PACE), |_, _| {}));
    let waiting = fs::read_to_string(directory.join("unfinished")).unwrap();
    let waiting = Mutex::new(waiting.lines().map(|run| RunId::new(run).unwrap()).collect());
    let store = loop {
        match SqliteStore::open(directory.join("runs.db")).await {
            Ok(store) => break store,
            Err(error) => {
                send_line(&format!("not opened: {error}"));
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    };
    let (until, launch, next) = (i64::try_from(number(UNTIL)).unwrap(), number(LAUNCH), AtomicU64::new(0));
    let shared = Arc::new(Shared { graph, runtime: runtime(store), until, launch, next, waiting });
    let lanes: Vec<_> = (0..LANES).map(|_| tokio::spawn(lane(Arc::clone(&shared)))).collect();
    for lane in lanes {
        lane.await.unwrap();
    }
}

/// Resumes or begins one run after another.
async fn lane(shared: Arc<Shared>) {
    loop {
        let known = shared.waiting.lock().unwrap().pop_front();
        let is_known = known.is_some();
        let run = match known {
            Some(run) => run,
            None if unix_milliseconds(SystemTime::now()) >= shared.until => return,
            None => {
                let number = shared.next.fetch_add(1, Ordering::Relaxed);
                RunId::new(format!("p{}n{number}", shared.launch)).unwrap()
            }
        };
        if let Err(again) = one_run(&shared, &run, is_known).await {
            send_line(again.word());
            if again != Again::Gone {
                shared.waiting.lock().unwrap().push_back(run);
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// The reason that a run must be resumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Again {
    Cancelled,
    /// The store failed.
    Failed,
    /// There is no such run: the store failed when the run was started.
    Gone,
}

impl Again {
    fn word(self) -> &'static str {
        match self {
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
            Self::Gone => "gone",
        }
    }
}

async fn one_run(shared: &Shared, run: &RunId, is_known: bool) -> Result<(), Again> {
    let options = Options { durability: durability(number_of(run)), run: Some(run.clone()), ..Options::default() };
    let graph = shared.graph.clone();
    let begun = match is_known {
        true => match shared.runtime.resume_with(options, graph, run).await {
            Ok(run) => run,
            Err(ResumeError::Stored(StoredRunError::Store(StoreError::NotFound(_)))) => return Err(Again::Gone),
            Err(ResumeError::Stored(StoredRunError::Store(_))) => return Err(Again::Failed),
            Err(error) => broken(&error),
        },
        // After a failure, the attempt to resume the run shows whether it exists.
        false => match shared.runtime.start_with(options, graph, inputs(size_of(run), ROUNDS)).await {
            Ok(run) => run,
            Err(_) => return Err(Again::Failed),
        },
    };
    let mut chance =
        Chance::of(u64::from(std::process::id()) ^ (number_of(run) << 32) ^ shared.next.load(Ordering::Relaxed));
    if chance.below(10) == 0 {
        let (canceller, wait) = (begun.canceller(), Duration::from_micros(chance.below(number(PACE) * 10)));
        tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            canceller.cancel();
        });
    }
    let finished = match begun.await {
        Ok(finished) => finished,
        Err(RunError::Cancelled { .. }) => return Err(Again::Cancelled),
        Err(RunError::Store { .. }) => return Err(Again::Failed),
        Err(error) => broken(&error),
    };
    if chance.below(10) == 0 && !run.as_str().ends_with("fork") {
        let fork = RunId::new(format!("{run}fork")).unwrap();
        let step = Some(chance.below(finished.steps));
        let fork = Fork { step, run: Some(fork), ..Fork::default() };
        match shared.runtime.fork(&shared.graph, run, fork).await {
            Ok(fork) => shared.waiting.lock().unwrap().push_back(fork),
            Err(error) => send_line(&format!("not forked: {error}")),
        }
    }
    Ok(())
}

/// Reports an error that must not happen, and ends the process.
fn broken(error: &dyn std::error::Error) -> ! {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    send_line(&format!("broken: {text}"));
    std::process::exit(2);
}

/// The messages of the processes, with the number of times that each was printed.
type Said = Arc<Mutex<BTreeMap<String, u64>>>;

/// A range of durations: the minimum, and the length of the range.
struct Gap(Duration, Duration);

impl Gap {
    fn draw(&self, chance: &mut Chance) -> Duration {
        self.0 + Duration::from_millis(chance.below(u64::try_from(self.1.as_millis()).unwrap().max(1)))
    }
}

struct Soak<'a> {
    directory: &'a Path,
    tokio: &'a tokio::runtime::Runtime,
    until: SystemTime,
    pace: u64,
    launches: u64,
    said: Said,
}

impl Soak<'_> {
    /// Starts a worker process, with the list of runs that it resumes.
    fn launch(&mut self) -> Worker {
        // The lasting process resumes its own runs.
        let mut unfinished = self.unfinished();
        unfinished.retain(|run| !run.as_str().starts_with("p0n"));
        let unfinished: String = unfinished.iter().flat_map(|run| [run.as_str(), "\n"]).collect();
        fs::write(self.directory.join("unfinished"), unfinished).unwrap();
        // A write beyond the limit must fail, and not end the process with a signal.
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' XFSZ; exec \"$0\""]).arg(std::env::current_exe().unwrap());
        command.env(DIRECTORY, self.directory).env(LAUNCH, self.launches.to_string());
        // The C library's memory per thread would grow with the number of threads that are busy at once, and hide other growth.
        command.env("MALLOC_ARENA_MAX", "1");
        self.launches += 1;
        command.env(UNTIL, unix_milliseconds(self.until).to_string()).env(PACE, self.pace.to_string());
        let mut worker = Worker::start(&mut command);
        let (lines, said) = (BufReader::new(worker.output()).lines(), Arc::clone(&self.said));
        thread::spawn(move || {
            for line in lines.map_while(Result::ok).filter(|line| !line.is_empty()) {
                *said.lock().unwrap().entry(line).or_default() += 1;
            }
        });
        worker
    }

    fn store(&self) -> SqliteStore {
        self.tokio.block_on(SqliteStore::open(self.directory.join("runs.db"))).unwrap()
    }

    fn unfinished(&self) -> Vec<RunId> {
        let all = self.tokio.block_on(self.store().list()).unwrap();
        let is_done = |status| matches!(status, Status::Completed | Status::CompletedWithErrors);
        all.into_iter().filter(|one| one.parent.is_none() && !is_done(one.status)).map(|one| one.run).collect()
    }

    /// Starts the two processes, the lasting one first, and disturbs them until the time is over or one has ended. Then
    /// leaves them alone.
    fn disturb(
        &mut self,
        began: Instant,
        length: Duration,
        second: Duration,
        chance: &mut Chance,
    ) -> ([Worker; 2], Done) {
        let (kill_gap, fill_gap) = (Gap(5 * second, 25 * second), Gap(3 * second, 12 * second));
        let full_gap = Gap(second / 5, 2 * second);
        let mut done = Done::default();
        let (mut lasting, mut killed) = (self.launch(), self.launch());
        let mut kill_at = began + kill_gap.draw(chance);
        let mut fill_at = began + fill_gap.draw(chance);
        let mut free_at = None;
        let (mut look_at, mut cancel_at) = (began, began);
        while began.elapsed() < length {
            thread::sleep(Duration::from_millis(20));
            let now = Instant::now();
            if [&mut lasting, &mut killed].into_iter().any(|worker| worker.0.try_wait().unwrap().is_some()) {
                break;
            }
            if now >= kill_at {
                killed.kill();
                done.kills += 1;
                killed = self.launch();
                kill_at = Instant::now() + kill_gap.draw(chance);
            }
            if now >= fill_at && free_at.is_none() {
                // The limit is somewhere in the log, or before all of it.
                let bytes = Some(chance.below(2_000_000));
                limit([&lasting, &killed], bytes);
                done.fills += 1;
                free_at = Some(now + full_gap.draw(chance));
            }
            if free_at.is_some_and(|at| now >= at) {
                limit([&lasting, &killed], None);
                (free_at, fill_at) = (None, now + fill_gap.draw(chance));
            }
            if now >= look_at {
                done.memory.extend(resident(&lasting.0).map(|bytes| (began.elapsed(), bytes)));
                look_at = now + second / 2;
            }
            if now >= cancel_at {
                done.cancels += self.cancel_some(chance);
                cancel_at = Instant::now() + 3 * second;
            }
        }
        limit([&lasting, &killed], None);
        ([lasting, killed], done)
    }

    /// Requests the cancellation of some runs, which the processes that are running them carry out. Returns how many.
    fn cancel_some(&self, chance: &mut Chance) -> u64 {
        let store = self.store();
        let unfinished = self.unfinished();
        let picked = (0..5).filter_map(|_| unfinished.get(usize::try_from(chance.below(LANES)).unwrap()));
        picked.filter(|run| self.tokio.block_on(store.cancel(run)).is_ok()).count() as u64
    }
}

fn soak(tokio: &tokio::runtime::Runtime) {
    let length = std::env::var("SOAK").ok().map_or(Duration::from_secs(6), |text| {
        graph_model::duration::parse(&text).unwrap_or_else(|error| panic!("SOAK: {error}"))
    });
    let seed = unix_milliseconds(SystemTime::now()).unsigned_abs();
    let is_long = length >= Duration::from_secs(60);
    println!("a soak of {length:?}, seed {seed}");
    let mut chance = Chance::of(seed);
    let (second, tree) = (Duration::from_millis(if is_long { 1000 } else { 100 }), tree());
    let directory = tree.path("").parent().unwrap().to_owned();
    let (began, until) = (Instant::now(), SystemTime::now() + length);
    let pace = if is_long { 800_000 } else { 60_000 };
    let mut soak = Soak { directory: &directory, tokio, until, pace, launches: 0, said: Arc::default() };
    let (workers, done) = soak.disturb(began, length, second, &mut chance);
    let waited = Instant::now();
    let ended = workers.map(|worker| end(worker, waited));
    let said = soak.said.lock().unwrap().clone();
    println!("said: {said:?}");
    let is_well = |status: &Option<ExitStatus>| status.is_some_and(|status| status.success());
    assert!(ended.iter().all(is_well), "a process that nobody kills comes to its end: {ended:?}");
    let Done { kills, fills, cancels, memory } = done;
    let proven = tokio.block_on(prove(&directory));
    let Proven { runs, forks, inside, steps, resumes, wrong } = proven;
    let count =
        |word: &str| said.iter().filter(|(line, _)| line.starts_with(word)).map(|(_, count)| count).sum::<u64>();
    println!(
        "{length:?} with {} runs at once: {runs} runs, {forks} of them forks, and {inside} inside them; {steps} steps; {kills} kills, \
         {} cancelled ({cancels} from outside), {fills} times a full disk that {} runs met, {resumes} times resumed; {} not proven",
        2 * LANES,
        count("cancelled"),
        count("failed"),
        wrong.len()
    );
    let third = |number: u32| {
        let of = |at: &Duration| *at >= length / 3 * number && *at < length / 3 * (number + 1);
        let all: Vec<u64> = memory.iter().filter(|(at, _)| of(at)).map(|(_, bytes)| *bytes).collect();
        all.iter().sum::<u64>() as f64 / all.len().max(1) as f64 / 1e6
    };
    let (middle, last) = (third(1), third(2));
    println!("memory: {:.1} MB, then {middle:.1} MB, then {last:.1} MB on average of each third", third(0));
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(count("broken") == 0, "what must not be said was said");
    assert!(!is_long || last <= middle * 1.1, "it takes more and more memory");
}

/// Waits until an undisturbed process has ended, until three minutes after `waited` at the latest.
fn end(mut worker: Worker, waited: Instant) -> Option<ExitStatus> {
    loop {
        match worker.0.try_wait().unwrap() {
            Some(status) => return Some(status),
            None if waited.elapsed() > Duration::from_secs(180) => return None,
            None => thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// The disturbances of the processes, and the memory of the lasting one over time.
#[derive(Default)]
struct Done {
    kills: u64,
    fills: u64,
    cancels: u64,
    memory: Vec<(Duration, u64)>,
}

#[derive(Default)]
struct Proven {
    runs: u64,
    forks: u64,
    inside: u64,
    steps: u64,
    resumes: u64,
    wrong: Vec<String>,
}

/// Proves every run, with the runs inside it, and that it has completed.
async fn prove(directory: &Path) -> Proven {
    let tools = Work::new(1, |_, _| panic!("nothing is called here"));
    let machine = Arc::new(graph(&directory.join("graphs"), "rounds", tools));
    let store = SqliteStore::open(directory.join("runs.db")).await.unwrap();
    let expected = |size| Some(Digest::of(canonical_json(&output(size, ROUNDS))));
    let (small, large) = (expected(200), expected(20_000));
    let mut proven = Proven::default();
    for summary in store.list().await.unwrap() {
        if summary.parent.is_some() {
            continue;
        }
        let run = summary.run;
        match audit_tree(machine.clone(), &run, &store, &key().public(), None).await {
            Ok(audits) => {
                let (first, inside) = audits.split_first().unwrap();
                proven.runs += 1;
                proven.forks += u64::from(first.from.is_some());
                proven.inside += inside.len() as u64;
                proven.steps += audits.iter().map(|audit| audit.steps).sum::<u64>();
                proven.resumes += audits.iter().map(|audit| audit.resumes).sum::<u64>();
                let is_expected = first.output == if size_of(&run) == 200 { small } else { large };
                if first.status != Status::Completed || !is_expected || first.from.is_some() != first.is_origin_proven {
                    proven.wrong.push(format!("{run}: {first:?}"));
                }
            }
            Err(error) => proven.wrong.push(format!("{run}: {error}")),
        }
    }
    proven
}

/// Limits the size of files that these processes write, which acts like a full disk; or lifts the limit.
#[cfg(target_os = "linux")]
fn limit(workers: [&Worker; 2], bytes: Option<u64>) {
    use rustix::process::{Pid, Resource, Rlimit, prlimit};
    for Worker(child) in workers {
        let limited = prlimit(Some(Pid::from_child(child)), Resource::Fsize, Rlimit { current: bytes, maximum: None });
        // A process that has ended has no limits.
        assert!(limited.is_ok() || bytes.is_none(), "the disk of a process cannot be filled: {limited:?}");
    }
}

/// Does nothing: on other systems, a process cannot set the limits of another one.
#[cfg(not(target_os = "linux"))]
fn limit(_: [&Worker; 2], _: Option<u64>) {}

/// Returns the memory of a process, if the system reports it.
fn resident(child: &Child) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

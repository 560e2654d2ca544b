//! Processes that are killed with SIGKILL at any moment, until their runs have ended nevertheless.
//!
//! A process runs six graphs in one file concurrently, in all three modes. It is killed, its store is examined, and it
//! is started again. The test proves: after each kill every journal is proven; nothing disappears from a journal; a
//! journal has each step once; the journal of a `sync` run has all steps except the one in progress; no call of a
//! committed step is repeated, and a repeated call has the same idempotency key; and the runs return the same as
//! without kills.
//!
//! `KILLS=1000 cargo test --release --test runs killed_process -- --nocapture` takes minutes. `SEED` sets the seed, which is
//! random by default.

#![cfg(unix)]
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use graph_model::timestamp;
use graph_runtime::dynamic::Interpreted;
use graph_runtime::record::{Entry, Record};
use graph_runtime::{Call, Durability, Options, RunId, SqliteStore, Status, Store, audit, audit_tree};

use crate::workload::{
    At, Chance, Work, Worker, durability, end_with_parent, graph, inputs, key, output, runtime, send_line, tree,
};

/// The environment variable that makes a process the one to be killed; its value is the working directory.
const DIRECTORY: &str = "GRAPH_KILLS_DIRECTORY";
/// The environment variable with the number of the batch of runs.
const BATCH: &str = "GRAPH_KILLS_BATCH";
/// The number of times the process of a batch is killed. Then it may finish, because runs that are `exit` never end
/// within a moment.
const MOST: u64 = 14;

/// The graph that is run, and its nested graph.
struct Graphs {
    rounds: Interpreted,
    inner: Interpreted,
}

/// A run of a batch.
struct Planned {
    run: RunId,
    size: u64,
    rounds: u64,
    durability: Durability,
}

/// Returns the runs of a batch: over three batches, each size is run in each mode.
fn plan(batch: u64) -> Vec<Planned> {
    let most = [4_000_000, 300_000, 30_000][usize::try_from(batch % 3).unwrap()];
    let planned = |(number, size): (u64, u64)| Planned {
        run: RunId::new(format!("run{number}")).unwrap(),
        size,
        rounds: 4 + number,
        durability: durability(number + batch),
    };
    (0..).zip([100, 100, 1_000, 20_000, 100_000, most]).map(planned).collect()
}

/// Not a test of its own: the process that the next test kills.
#[test]
fn the_process_that_is_killed() {
    let (Some(directory), Ok(batch)) = (std::env::var_os(DIRECTORY), std::env::var(BATCH)) else { return };
    end_with_parent();
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    tokio.block_on(work(Path::new(&directory), batch.parse().unwrap()));
}

/// Starts or resumes all runs, and writes a line for each call.
async fn work(directory: &Path, batch: u64) {
    let calls = File::options().create(true).append(true).open(directory.join("calls")).unwrap();
    let is_first = AtomicBool::new(true);
    let note = move |at: At, call: &Call| {
        let item = call.item().map_or(String::new(), |item| item.to_string());
        // A single write, so a line is either complete or missing.
        let line = format!("{at:?} {} {} {item} {}\n", call.run_id(), call.step(), call.idempotency_key());
        (&calls).write_all(line.as_bytes()).unwrap();
        if is_first.swap(false, Ordering::Relaxed) {
            send_line("at work");
        }
    };
    let machine = graph(&directory.join("graphs"), "rounds", Work::new(2_000, note));
    let store = SqliteStore::open(directory.join("runs.db")).await.unwrap();
    let known: BTreeSet<RunId> = store.list().await.unwrap().into_iter().map(|summary| summary.run).collect();
    let runtime = runtime(store);
    let mut runs = Vec::new();
    for Planned { run, size, rounds, durability } in plan(batch) {
        let options = Options { durability, run: Some(run.clone()), ..Options::default() };
        let machine = machine.clone();
        runs.push(match known.contains(&run) {
            true => runtime.resume_with(options, machine, &run).await.unwrap(),
            false => runtime.start_with(options, machine, inputs(size, rounds)).await.unwrap(),
        });
    }
    for run in runs {
        run.await.unwrap();
    }
    send_line("done");
}

/// A line that the process wrote: run, step, item and idempotency key.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Made {
    run: RunId,
    step: u64,
    item: Option<u64>,
    key: String,
}

impl Made {
    fn read(line: &str) -> (At, Self) {
        let mut words = line.split(' ');
        let mut word = || words.next().unwrap_or_else(|| panic!("half a line: {line}"));
        let at = if word() == "Began" { At::Began } else { At::Returned };
        let (run, step, item) = (RunId::new(word()).unwrap(), word().parse().unwrap(), word().parse().ok());
        (at, Self { run, step, item, key: word().to_owned() })
    }
}

/// The steps and calls that journals record as done.
#[derive(Default)]
struct Seen {
    /// The node of each visit of each run.
    steps: BTreeMap<RunId, BTreeMap<u64, String>>,
    /// The calls of steps that were not done.
    calls: BTreeSet<(RunId, u64, Option<u64>)>,
    snapshots: u64,
    parts: u64,
    unfinished: u64,
}

impl Seen {
    fn has(&self, made: &Made) -> bool {
        self.steps.get(&made.run).is_some_and(|steps| steps.contains_key(&made.step))
            || self.calls.contains(&(made.run.clone(), made.step, made.item))
    }
}

#[derive(Default)]
struct Tally {
    kills: u64,
    at_work: u64,
    runs: u64,
    steps: u64,
    snapshots: u64,
    parts: u64,
    calls: u64,
    repeated: u64,
    lost: Vec<String>,
    twice: Vec<String>,
    unreadable: Vec<String>,
}

#[test]
fn killed_process_loses_nothing_and_commits_nothing_twice() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seed = number("SEED").unwrap_or_else(|| timestamp::unix_milliseconds(SystemTime::now()).unsigned_abs());
    let kills = number("KILLS").unwrap_or(40);
    println!("SEED={seed} KILLS={kills}");
    let (mut chance, mut tally) = (Chance::of(seed), Tally::default());
    let mut batches = 0..;
    while tally.kills < kills {
        one_batch(batches.next().unwrap(), &mut chance, &mut tally);
    }
    let Tally { kills, at_work, runs, steps, snapshots, parts, calls, repeated, lost, twice, unreadable } = tally;
    println!(
        "{kills} kills, {at_work} of them at work; {runs} runs, {steps} steps, {snapshots} snapshots, {parts} parts of steps; \
         {calls} calls, {repeated} of them repeated; {} lost, {} committed twice, {} unreadable",
        lost.len(),
        twice.len(),
        unreadable.len()
    );
    for what in [&lost, &twice, &unreadable] {
        assert!(what.is_empty(), "{what:#?}");
    }
    assert!(at_work * 10 >= kills * 8, "too few kills hit a process at work");
    assert!(repeated > 0 && parts > 0, "too little was met");
}

/// Kills the process of a batch until its runs have ended.
fn one_batch(batch: u64, chance: &mut Chance, tally: &mut Tally) {
    let tree = tree();
    let directory = tree.path("").parent().unwrap().to_owned();
    let load = |name: &str| graph(&tree.path(""), name, Work::new(1, |_, _| panic!("nothing is called here")));
    let graphs = Graphs { rounds: load("rounds"), inner: load("inner") };
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let look = || tokio.block_on(look(&graphs, &directory));
    let (mut seen, mut keys, mut read) = (Seen::default(), BTreeMap::new(), 0);
    let mut returned = BTreeSet::new();
    for round in 0.. {
        let is_last = round == MOST;
        let is_done = run_once(&directory, batch, if is_last { None } else { Some(chance) }, tally);
        let text = fs::read_to_string(directory.join("calls")).unwrap_or_default();
        let news: Vec<(At, Made)> = text[read..].lines().map(Made::read).collect();
        read = text.len();
        for (at, made) in news {
            if at == At::Returned {
                returned.insert(made);
                continue;
            }
            tally.calls += 1;
            let at = format!("batch {batch}, round {round}: run {}, step {}, {:?}", made.run, made.step, made.item);
            if seen.has(&made) {
                tally.twice.push(format!("{at}: a call that was committed is made again"));
            }
            match keys.insert((made.run.clone(), made.step, made.item), (round, made.key.clone())) {
                Some((_, key)) if key != made.key => tally.twice.push(format!("{at}: another idempotency key")),
                Some((before, _)) => tally.repeated += u64::from(before != round),
                None => {}
            }
        }
        let now = match look() {
            Ok(now) => now,
            Err(why) => {
                tally.unreadable.push(format!("batch {batch}, round {round}: {why}"));
                return;
            }
        };
        compare(&format!("batch {batch}, round {round}"), &seen, &now, batch, &keys, &returned, tally);
        seen = now;
        if is_done {
            break;
        }
    }
    if seen.unfinished > 0 {
        tally.lost.push(format!("batch {batch}: {} runs did not end", seen.unfinished));
    }
    tally.runs += seen.steps.len() as u64;
    tally.steps += seen.steps.values().map(|steps| steps.len() as u64).sum::<u64>();
    (tally.snapshots, tally.parts) = (tally.snapshots + seen.snapshots, tally.parts + seen.parts);
    if let Err(why) = tokio.block_on(came_to(&graphs, &directory, batch)) {
        tally.lost.push(format!("batch {batch}: {why}"));
    }
}

/// Starts the process, and kills it after a moment unless it may finish. Returns whether all of its runs have ended.
fn run_once(directory: &Path, batch: u64, chance: Option<&mut Chance>, tally: &mut Tally) -> bool {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "kills::the_process_that_is_killed"])
        .env(DIRECTORY, directory)
        .env(BATCH, batch.to_string());
    let mut worker = Worker::start(&mut command);
    let mut lines = BufReader::new(worker.output()).lines().map_while(Result::ok);
    let Some(chance) = chance else {
        assert!(lines.any(|line| line == "done"), "batch {batch}: the process that nobody kills comes to an end");
        return true;
    };
    let wait = if chance.below(10) == 0 {
        // Before the process makes calls: while it opens the file and resumes the runs in it.
        Duration::from_micros(chance.below(40_000))
    } else {
        let line = lines.find(|line| line == "at work" || line == "done");
        assert!(line.is_some(), "batch {batch}: the process ends with an error: {:?}", worker.0.wait());
        if line.is_some_and(|line| line == "done") {
            return true;
        }
        Duration::from_micros(chance.below(30_000))
    };
    thread::sleep(wait);
    let is_at_work = worker.kill();
    let is_done = lines.any(|line| line == "done");
    tally.kills += 1;
    tally.at_work += u64::from(is_at_work && !is_done);
    is_done
}

/// Proves every journal, and returns the contents of all of them.
async fn look(graphs: &Graphs, directory: &Path) -> Result<Seen, String> {
    let path = directory.join("runs.db");
    // The process was killed before it created the file.
    if !path.exists() {
        return Ok(Seen::default());
    }
    let mut seen = Seen::default();
    let store = SqliteStore::open(path).await.map_err(|error| error.to_string())?;
    for summary in store.list().await.map_err(|error| error.to_string())? {
        let run = summary.run;
        let records = store.load(&run).await.map_err(|error| format!("{run}: {error}"))?;
        let graph = if summary.parent.is_some() { &graphs.inner } else { &graphs.rounds };
        let proven = audit(graph, &run, &records, &key().public(), None);
        let proven = proven.map_err(|error| format!("{run}: {error}"))?;
        if proven.status != summary.status {
            return Err(format!("{run}: the list says {:?}, and the journal {:?}", summary.status, proven.status));
        }
        seen.unfinished += u64::from(proven.status != Status::Completed);
        let steps = seen.steps.entry(run.clone()).or_default();
        for signed in records {
            match serde_json::from_str::<Record>(&signed.body).map_err(|error| error.to_string())?.entry {
                Entry::Step(step) => {
                    for visit in step.visits {
                        let number = visit.step;
                        if steps.insert(number, visit.node).is_some() {
                            return Err(format!("{run}: step {number} is there twice"));
                        }
                    }
                }
                Entry::Calls(calls) => {
                    seen.parts += 1;
                    seen.calls.extend(calls.done.into_iter().map(|done| (run.clone(), done.step, done.item)));
                }
                Entry::Snapshot(_) => seen.snapshots += 1,
                _ => {}
            }
        }
        if !steps.keys().copied().eq(1..=steps.len() as u64) {
            return Err(format!("{run}: its steps have gaps"));
        }
    }
    Ok(seen)
}

/// Reports steps and calls that disappeared in a kill, and steps that are committed although their calls had not
/// returned.
fn compare(
    at: &str,
    before: &Seen,
    now: &Seen,
    batch: u64,
    keys: &BTreeMap<(RunId, u64, Option<u64>), (u64, String)>,
    returned: &BTreeSet<Made>,
    tally: &mut Tally,
) {
    for (run, steps) in &before.steps {
        let is = now.steps.get(run);
        if !steps.iter().all(|(number, node)| is.and_then(|is| is.get(number)) == Some(node)) {
            tally.lost.push(format!("{at}: run {run}: steps that were committed are not there"));
        }
    }
    if !before.calls.is_subset(&now.calls) {
        tally.lost.push(format!("{at}: calls that were committed are not there"));
    }
    let done: BTreeSet<(&RunId, u64, Option<u64>)> =
        returned.iter().map(|made| (&made.run, made.step, made.item)).collect();
    for (run, steps) in &now.steps {
        for (number, node) in steps {
            let is_made = match node.as_str() {
                "done" | "inside" => true,
                "each" => (0..4).all(|item| done.contains(&(run, *number, Some(item)))),
                _ => done.contains(&(run, *number, None)),
            };
            if !is_made {
                tally.twice.push(format!("{at}: run {run}: step {number} is committed, and its call had not returned"));
            }
        }
    }
    // A step of a `sync` run begins when the step before it is durable.
    let modes: BTreeMap<RunId, Durability> = plan(batch).into_iter().map(|plan| (plan.run, plan.durability)).collect();
    for (run, step, _) in keys.keys() {
        let outer = run.as_str().split('-').next().and_then(|outer| RunId::new(outer).ok());
        let is_sync = outer.and_then(|outer| modes.get(&outer).copied()) == Some(Durability::Sync);
        let committed = now.steps.get(run).map_or(0, |steps| steps.len() as u64);
        if is_sync && committed + 1 < *step {
            tally.lost.push(format!("{at}: run {run}: step {step} had begun, and {committed} steps are there"));
        }
    }
}

/// Fails unless all runs returned the same as without kills, and are proven with their nested runs.
async fn came_to(graphs: &Graphs, directory: &Path, batch: u64) -> Result<(), String> {
    let store = SqliteStore::open(directory.join("runs.db")).await.map_err(|error| error.to_string())?;
    for Planned { run, size, rounds, .. } in plan(batch) {
        let machine = Arc::new(graphs.rounds.clone());
        let audits = audit_tree(machine, &run, &store, &key().public(), None).await;
        let audits = audits.map_err(|error| format!("{run}: {error}"))?;
        if audits.len() as u64 != rounds + 1 {
            return Err(format!("{run}: {} runs inside it, not {rounds}", audits.len() - 1));
        }
        let finished = runtime(store.clone()).resume(graphs.rounds.clone(), &run).await;
        let finished = finished.map_err(|error| format!("{run}: {error}"))?.await;
        let came = finished.map_err(|error| format!("{run}: {error}"))?.output;
        if came != output(size, rounds) {
            return Err(format!("{run}: it returned something else: {:.200}", came.to_string()));
        }
    }
    Ok(())
}

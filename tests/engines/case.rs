//! Runs a case: on both engines, with and without a journal, whole and cut.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use graph_runtime::history::{EditError, StateEdit, replay};
use graph_runtime::record::{Entry, Record, SignedRecord};
use graph_runtime::store::{Lease, Page, RunFilter, RunPage, RunSummary, StoreFuture};
use graph_runtime::{
    Clock, EditRun, EncryptionKey, Grants, Graph, Machine, ManualClock, Map, MemoryStore, Options, Pattern,
    ResumeError, RunError, RunId, Runtime, SecretKey, Spaces, Status, Store, StoredRunError, TokioClock, ToolConfig,
    Value, audit_tree,
};
use graph_signing::{ItemKind, KeyFile, sign};
use serde_json::json;
use tempfile::TempDir;

use super::Erased;
use super::script::{Asked, Case, Given, Stage};

/// The time at which every run begins: 2026-11-21T20:00:00Z.
pub(crate) const BEGAN: Duration = Duration::from_secs(1_795_291_200);

/// A graph on both engines, with the stage that performs its tools.
pub(crate) struct Bench {
    pub(crate) stage: Stage,
    pub(crate) compiled: Erased,
    pub(crate) interpreted: Erased,
}

/// The points at which runs are cut before they are resumed.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Cut {
    /// After the end of the run.
    Nowhere,
    /// After each record that the run or one of its nested runs wrote.
    Everywhere,
    /// Between the last step and the end. They are written together, so no crash does that.
    BeforeEnd,
}

/// The result of a run, with its calls and its duration.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Came {
    /// The run's result or error as JSON, with its `kind` and the node `at` which it ended.
    pub(crate) end: Value,
    calls: Vec<Asked>,
    took: Duration,
}

impl Bench {
    /// Runs a case on both engines, with and without a journal. Returns the differences from the script and between the
    /// runs.
    pub(crate) fn four_ways(&self, case: &Case) -> Vec<String> {
        let mut found = Vec::new();
        let logs = [Log::default(), Log::default()];
        let ways = [
            ("compiled, without a journal", &self.compiled, None),
            ("interpreted, without a journal", &self.interpreted, None),
            ("compiled", &self.compiled, Some(&logs[0])),
            ("interpreted", &self.interpreted, Some(&logs[1])),
        ];
        let mut all = Vec::new();
        for (way, machine, log) in ways {
            self.stage.set(case);
            let came = run(case, &self.stage, machine, log);
            found.extend(self.stage.problems().into_iter().map(|problem| format!("{way}: {problem}")));
            found.extend(self.differences(case, &came).into_iter().map(|problem| format!("{way}: {problem}")));
            all.push((way, came));
        }
        if std::env::var_os("SHOW").is_some() {
            eprintln!("{}: {:#}\n{:#?}", case.name, all[3].1.end, all[3].1.calls);
        }
        for pair in all.windows(2) {
            let [(one, first), (two, second)] = pair else { continue };
            if first != second {
                found.push(format!("{one} and {two} differ:\n  {first:?}\n  {second:?}"));
            }
        }
        for (machine, log) in [(&self.compiled, &logs[1]), (&self.interpreted, &logs[0])] {
            found.extend(unproven(machine, log).map(|why| format!("{}: its journal proves nothing: {why}", case.name)));
        }
        let [compiled, interpreted] = logs.map(|log| log.bodies());
        found.extend(leaks(case, &compiled));
        let (compiled, interpreted) = (comparable(&compiled), comparable(&interpreted));
        if compiled != interpreted {
            let pairs = compiled.iter().zip(&interpreted).find(|(one, two)| one != two);
            found.push(format!("the journals differ: {pairs:?} of {} and {}", compiled.len(), interpreted.len()));
        }
        found.extend(warnings(case, &interpreted));
        found
    }

    /// Returns the differences from the script's expectations.
    fn differences(&self, case: &Case, came: &Came) -> Vec<String> {
        let (expect, end) = (&case.expect, &came.end);
        let mut found = Vec::new();
        if end.to_string().contains(CANARY) {
            found.push(format!("a secret stands in the result: {end}"));
        }
        let mut same = |what: &str, expected: Value, actual: &Value| {
            if expected != *actual {
                found.push(format!("expected the {what} {expected}, found {actual} (of {end})"));
            }
        };
        same("status", json!(expect.status), &end["kind"]);
        same("error", json!(expect.error), &end["error"]);
        same("node", json!(expect.node), &end["node"]);
        if let Some(output) = &expect.output {
            same("output", output.clone(), &end["output"]);
        }
        if let Some(steps) = expect.steps {
            same("steps", json!(steps), &end["steps"]);
        }
        let errors: Vec<String> = end["errors"].as_array().into_iter().flatten().map(suppressed).collect();
        same("errors", json!(expect.errors), &json!(errors));
        for (name, value) in expect.state.iter().flatten() {
            same(&format!("state key `{name}`"), value.clone(), &end["state"][name]);
        }
        same("exhaustion", json!(expect.exhausted), &json!(end["max_steps_reached"] == json!(true)));
        if let Some(calls) = &expect.calls {
            let calls: Vec<Value> = calls.iter().flatten().map(|(tool, params)| json!([tool, params])).collect();
            let made: Vec<Value> = came.calls.iter().map(|asked| json!([asked.tool, asked.params])).collect();
            same("calls", json!(calls), &json!(made));
        }
        if let Some(took) = expect.took {
            same("time", json!(Duration::from_secs_f64(took).as_millis()), &json!(came.took.as_millis()));
        }
        found
    }

    /// Runs a whole case on one engine, cuts its journal, and resumes it on the other engine.
    pub(crate) fn cut(&self, case: &Case, cut: Cut) -> Vec<String> {
        let mut found = Vec::new();
        let pairs = [
            ("on the interpreter", &self.compiled, &self.interpreted),
            ("compiled", &self.interpreted, &self.compiled),
        ];
        for (way, first, second) in pairs {
            let log = Log::default();
            self.stage.set(case);
            let whole = run(case, &self.stage, first, Some(&log));
            let given = self.stage.given();
            let records = log.len();
            let cuts = match cut {
                Cut::Nowhere if whole.end["success"] == json!(true) => vec![records],
                Cut::BeforeEnd if whole.end["success"] == json!(true) && log.ends_within_a_batch() => vec![records - 1],
                Cut::Everywhere if case.resumes => log.ends().into_iter().filter(|&at| at < records).collect(),
                _ => continue,
            };
            for at in cuts {
                let resumed = resume(case, &self.stage, second, &log, at, &given);
                let retained = |end: &Value| {
                    let mut end = end.clone();
                    // A resume does not notify hooks again of what they received before it.
                    end.as_object_mut().map(|end| end.shift_remove("kind"));
                    end
                };
                match resumed {
                    Err(ResumeError::Stored(StoredRunError::Journal { .. })) if cut == Cut::BeforeEnd => {}
                    Ok((end, _)) if cut == Cut::BeforeEnd => {
                        found.push(format!("resumed {way} without its end: {end}"));
                    }
                    Ok((end, _)) if retained(&end) != retained(&whole.end) => {
                        found.push(format!("resumed {way} after record {at}: {end}\n  instead of {}", whole.end));
                    }
                    Ok((_, again)) => {
                        if let Some(why) = unproven(first, &again) {
                            found.push(format!("resumed {way} after record {at}, its journal proves nothing: {why}"));
                        }
                        let (before, after) = (log.visits(), again.visits());
                        if before != after {
                            let first = before.iter().find(|(run, visits)| after.get(*run) != Some(visits));
                            found.push(format!(
                                "resumed {way} after record {at}, the steps differ: {first:?}\n  now {:?}",
                                first.map(|(run, _)| after.get(run))
                            ));
                        }
                    }
                    Err(error) => found.push(format!("not resumed {way} after record {at}: {error}")),
                }
            }
        }
        found
    }
}

/// Returns why the journals of a run and its nested runs do not prove it, or how its replay under its own graph
/// differs; `None` if all is well.
pub(crate) fn unproven(machine: &Erased, log: &Log) -> Option<String> {
    let records = within(false, log.store.load(&run_id())).ok()?;
    let (run, encryption_key, key) = (run_id(), EncryptionKey::from_bytes([5; 32]), key().public());
    let proven = audit_tree(machine.machine(), &run, &log.store, &key, Some(&encryption_key));
    if let Err(error) = within(false, proven) {
        return Some(error.to_string());
    }
    match replay(machine, machine, &run, &records, &key, Some(&encryption_key)) {
        Err(error) => Some(error.to_string()),
        Ok(replay) if replay.deviations.is_empty() && replay.stopped.is_none() => None,
        Ok(replay) => Some(format!("it is replayed differently: {replay:?}")),
    }
}

/// Formats a suppressed failure as scripts do.
fn suppressed(error: &Value) -> String {
    format!("{}: {}", error["node"].as_str().unwrap_or_default(), error["error"].as_str().unwrap_or_default())
}

/// Returns the difference between the expected warnings and those in the journal.
fn warnings(case: &Case, bodies: &[String]) -> Vec<String> {
    let Some(expected) = &case.expect.warnings else { return Vec::new() };
    let said: Vec<String> = bodies
        .iter()
        .map(|body| serde_json::from_str::<Record>(body).expect("the engine writes records"))
        .flat_map(|record| match record.entry {
            Entry::Step(step) => step.visits.into_iter().flat_map(|visit| visit.warnings).collect(),
            Entry::End(end) => end.warnings,
            _ => Vec::new(),
        })
        .collect();
    if *expected == said { Vec::new() } else { vec![format!("expected the warnings {expected:?}, found {said:?}")] }
}

/// The text that scripts use as a secret: no journal and no result may contain it.
const CANARY: &str = "canary";

/// Returns a message for each record that shows a secret.
fn leaks(case: &Case, bodies: &[String]) -> Vec<String> {
    let shown = bodies.iter().filter(|body| body.contains(CANARY));
    shown.map(|body| format!("a secret stands in the journal of `{}`: {body}", case.name)).collect()
}

/// Returns the records without the parts that differ each time a secret is encrypted: the encrypted text, and the hashes over
/// it.
pub(crate) fn comparable(bodies: &[String]) -> Vec<String> {
    if !bodies.iter().any(|body| body.contains(SEALED)) {
        return bodies.to_vec();
    }
    let records = bodies.iter().map(|body| {
        let mut record: Value = serde_json::from_str(body).expect("the engine writes JSON");
        record["prev"].take();
        decrypted(&mut record);
        record.to_string()
    });
    records.collect()
}

const SEALED: &str = "$sealed";

/// Replaces each encrypted text with the same text.
fn decrypted(value: &mut Value) {
    match value {
        Value::Object(map) if map.len() == 1 && map.contains_key(SEALED) => {
            map.insert(SEALED.to_owned(), json!("sealed"));
        }
        Value::Object(map) => map.values_mut().for_each(decrypted),
        Value::Array(list) => list.iter_mut().for_each(decrypted),
        _ => {}
    }
}

pub(crate) fn run_id() -> RunId {
    RunId::new("run").expect("it has the letters of an id")
}

pub(crate) fn key() -> SecretKey {
    SecretKey::from_seed(&[3; 32])
}

/// Runs `work` on a tokio runtime, whose time is virtual unless `is_real`.
pub(crate) fn within<T>(is_real: bool, work: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().start_paused(!is_real);
    builder.build().expect("a runtime can be built").block_on(work)
}

/// Returns an empty directory. Its path is the same in each run, because errors contain it.
fn directory(name: &str) -> PathBuf {
    thread_local! {
        static BASE: TempDir = tempfile::tempdir().expect("there is room for a directory");
    }
    let path = BASE.with(|base| base.path().join(name));
    if path.exists() {
        fs::remove_dir_all(&path).expect("it is a directory of this test");
    }
    fs::create_dir(&path).expect("there is room for a directory");
    path
}

fn runtime(case: &Case, stage: &Stage, log: Option<&Log>, elapsed: Duration) -> Runtime {
    let at = SystemTime::UNIX_EPOCH + BEGAN + elapsed;
    let clock: Arc<dyn Clock> = if case.real { Arc::new(ManualClock::at(at)) } else { Arc::new(TokioClock::at(at)) };
    let mut builder = Runtime::builder().clock(clock);
    for grant in case.grants.clone().unwrap_or_else(|| vec!["*".to_owned()]) {
        builder = builder.grant(&grant).expect("a pattern of capabilities");
    }
    if let Some(log) = log {
        builder = builder.store(log.clone()).sign_with(key()).encrypt_with(EncryptionKey::from_bytes([5; 32]));
    }
    if case.threads.is_some() {
        builder = builder.threads(stage.clone());
    }
    if let Some(files) = &case.space {
        let directory = directory("space");
        let trusted = KeyFile::new(key().public(), "the key of a test");
        let name = format!("config/keys/trusted/{}.toml", trusted.fingerprint);
        let mut all = vec![(name, trusted.to_signed_toml(&key(), SystemTime::UNIX_EPOCH))];
        for (name, text) in files {
            let kind = match name.split('/').next() {
                Some("directives") => ItemKind::Directive,
                Some("knowledge") => ItemKind::Knowledge,
                _ => ItemKind::YAML,
            };
            all.push((name.clone(), sign(kind, text, &key(), SystemTime::UNIX_EPOCH).expect("it can be signed")));
        }
        write(&directory.join(".ai"), all);
        builder = builder.spaces(Spaces::at(directory).sign_with(key()));
    }
    let mut tools = ToolConfig::new();
    if let Some(files) = &case.files {
        let directory = directory("files");
        write(&directory, files.clone().into_iter().collect());
        tools = tools.root(&directory).expect("it is a directory");
    }
    builder.tools(tools).build().expect("a runtime can be built")
}

fn write(directory: &Path, files: Vec<(String, String)>) {
    for (name, text) in files {
        let path = directory.join(name);
        fs::create_dir_all(path.parent().expect("it is in a directory")).expect("there is room for a directory");
        fs::write(path, text).expect("there is room for a file");
    }
}

/// Runs a case from its beginning.
pub(crate) fn run(case: &Case, stage: &Stage, machine: &Erased, log: Option<&Log>) -> Came {
    within(case.real, async {
        let began = tokio::time::Instant::now();
        if let Some(log) = log {
            log.begin(began, Duration::ZERO);
        }
        let runtime = runtime(case, stage, log, Duration::ZERO);
        let patterns = |patterns: &Vec<String>| {
            Grants::new(patterns.iter().map(|text| Pattern::new(text).expect("a pattern of capabilities")))
        };
        let options = Options {
            run: Some(run_id()),
            capabilities: case.options.capabilities.as_ref().map(patterns),
            depth: case.options.depth,
            max_steps: case.options.max_steps,
            timeout: case.options.timeout.map(Duration::from_secs_f64),
            ..Options::default()
        };
        let end = match runtime.start_with(options, machine.clone(), case.inputs.clone()).await {
            Ok(run) => {
                if let Some(seconds) = case.cancelled_after {
                    let canceller = run.canceller();
                    tokio::spawn(async move {
                        tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
                        canceller.cancel();
                    });
                }
                end(run.await)
            }
            Err(error) => json!({"kind": "not_started", "error": error.to_string()}),
        };
        Came { end, calls: stage.calls(), took: if case.real { Duration::ZERO } else { began.elapsed() } }
    })
}

fn end(ended: Result<graph_runtime::Finished<Value>, RunError>) -> Value {
    let (kind, at, mut value) = match ended {
        Ok(finished) => (finished.status.name(), json!(finished.node), finished.to_value()),
        Err(error) => (kind(&error), json!(null), error.to_value()),
    };
    value["kind"] = json!(kind);
    value["at"] = at;
    value
}

fn kind(error: &RunError) -> &'static str {
    match error {
        RunError::Node { .. } => "error",
        RunError::MaxSteps { .. } => "max_steps",
        RunError::MaxVisits { .. } => "max_visits",
        RunError::MaxNestedSteps { .. } => "max_nested_steps",
        RunError::Deadline { .. } => "deadline",
        RunError::Cancelled { .. } => "cancelled",
        _ => "broken",
    }
}

/// Resumes the run whose journal is the first `length` records of a log.
pub(crate) fn resume(
    case: &Case,
    stage: &Stage,
    machine: &Erased,
    log: &Log,
    length: usize,
    given: &Given,
) -> Result<(Value, Log), ResumeError> {
    within(case.real, async {
        let (again, elapsed) = log.first(length).await;
        stage.set_again(case, given);
        again.begin(tokio::time::Instant::now(), elapsed);
        let runtime = runtime(case, stage, Some(&again), elapsed);
        let ended = runtime.resume(machine.clone(), &run_id()).await?.await;
        Ok((end(ended), again))
    })
}

/// Edits the run whose journal is the first `length` records of a log.
pub(crate) fn edit(machine: &dyn Machine, log: &Log, length: usize, edit: StateEdit) -> Result<Log, EditError> {
    within(false, async {
        let (again, elapsed) = log.first(length).await;
        again.begin(tokio::time::Instant::now(), elapsed);
        virtual_runtime(Some(&again), elapsed).edit(machine, &run_id(), edit).await?;
        Ok(again)
    })
}

/// The result of a run of a random graph, and its duration.
pub(crate) struct Whole {
    pub(crate) end: Value,
    pub(crate) took: Duration,
}

/// Runs a graph in virtual time.
pub(crate) fn play<G: Graph<Inputs = Map<String, Value>, Output = Value>>(
    graph: G,
    inputs: Map<String, Value>,
    log: Option<&Log>,
) -> Whole {
    within(false, async {
        let began = tokio::time::Instant::now();
        if let Some(log) = log {
            log.begin(began, Duration::ZERO);
        }
        let end = match virtual_runtime(log, Duration::ZERO).start_as(run_id(), graph, inputs).await {
            Ok(run) => end(run.await),
            Err(error) => json!({"kind": "not_started", "error": error.to_string()}),
        };
        Whole { end, took: began.elapsed() }
    })
}

/// Resumes the run whose journal is the first `length` records of a log.
pub(crate) fn play_again<G: Graph<Inputs = Map<String, Value>, Output = Value>>(
    graph: G,
    log: &Log,
    length: usize,
) -> Result<Value, ResumeError> {
    played_again(graph, log, length).map(|(end, _)| end)
}

/// As [`play_again`], and returns the log too.
pub(crate) fn played_again<G: Graph<Inputs = Map<String, Value>, Output = Value>>(
    graph: G,
    log: &Log,
    length: usize,
) -> Result<(Value, Log), ResumeError> {
    within(false, async {
        let (again, elapsed) = log.first(length).await;
        again.begin(tokio::time::Instant::now(), elapsed);
        let run = virtual_runtime(Some(&again), elapsed).resume(graph, &run_id()).await?;
        Ok((end(run.await), again))
    })
}

fn virtual_runtime(log: Option<&Log>, elapsed: Duration) -> Runtime {
    let clock = Arc::new(TokioClock::at(SystemTime::UNIX_EPOCH + BEGAN + elapsed));
    let mut builder = Runtime::builder().clock(clock).grant("*").expect("a pattern of capabilities");
    if let Some(log) = log {
        builder = builder.store(log.clone()).sign_with(key());
    }
    builder.build().expect("a runtime can be built")
}

/// A store in memory that records when and in which order the records of all runs were written.
#[derive(Debug, Clone, Default)]
pub(crate) struct Log {
    store: MemoryStore,
    written: Arc<Mutex<Written>>,
}

#[derive(Debug, Default)]
struct Written {
    began: Option<tokio::time::Instant>,
    /// The virtual time that had passed when the store was set up.
    before: Duration,
    records: Vec<Entered>,
}

/// A record that was written.
#[derive(Debug, Clone)]
pub(crate) struct Entered {
    pub(crate) run: RunId,
    /// The graph, if the run began with this record.
    pub(crate) graph: Option<String>,
    pub(crate) status: Status,
    pub(crate) signed: SignedRecord,
    /// Whether it is the last of the records that were written together.
    pub(crate) is_last: bool,
    pub(crate) elapsed: Duration,
}

impl Log {
    fn written(&self) -> std::sync::MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn begin(&self, at: tokio::time::Instant, before: Duration) {
        let mut written = self.written();
        (written.began, written.before) = (Some(at), before);
    }

    fn enter(&self, run: &RunId, graph: Option<&str>, records: &[SignedRecord], status: Status) {
        let mut written = self.written();
        let elapsed = written.before + written.began.map_or(Duration::ZERO, |began| began.elapsed());
        let entered = |(at, signed): (usize, &SignedRecord)| Entered {
            run: run.clone(),
            graph: graph.filter(|_| at == 0).map(str::to_owned),
            status,
            signed: signed.clone(),
            is_last: at + 1 == records.len(),
            elapsed,
        };
        written.records.extend(records.iter().enumerate().map(entered));
    }

    pub(crate) fn len(&self) -> usize {
        self.written().records.len()
    }

    /// Returns the records in the order in which they were written.
    pub(crate) fn entered(&self) -> Vec<Entered> {
        self.written().records.clone()
    }

    /// Whether the last two records were written together.
    fn ends_within_a_batch(&self) -> bool {
        self.written().records.iter().rev().nth(1).is_some_and(|record| !record.is_last)
    }

    /// Returns the numbers of records after which a process may have died: records that are written together are all
    /// there, or none is.
    pub(crate) fn ends(&self) -> Vec<usize> {
        let written = self.written();
        (1..=written.records.len()).filter(|at| written.records[at - 1].is_last).collect()
    }

    /// Returns the records' texts, in the order in which they were written.
    pub(crate) fn bodies(&self) -> Vec<String> {
        self.written().records.iter().map(|entered| entered.signed.body.clone()).collect()
    }

    /// Returns the records' runs and texts, in the order in which they were written.
    pub(crate) fn texts(&self) -> Vec<(String, String)> {
        let text = |entered: &Entered| (entered.run.to_string(), entered.signed.body.clone());
        self.written().records.iter().map(text).collect()
    }

    /// Returns a store with only the first records of each run; `None` if no process can die there, because more
    /// records were written together.
    pub(crate) async fn truncated(&self, counts: &BTreeMap<String, usize>) -> Option<Self> {
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        let mut records = Vec::new();
        for entered in &self.written().records {
            let (run, most) = (entered.run.to_string(), counts.get(entered.run.as_str()).copied().unwrap_or_default());
            let seen = seen.entry(run).or_default();
            *seen += 1;
            if *seen > most {
                continue;
            }
            if *seen == most && !entered.is_last {
                return None;
            }
            records.push(entered.clone());
        }
        Some(Self::holding(&records).await.0)
    }

    /// Returns the visits of each run without the members that depend on when the run was resumed.
    fn visits(&self) -> BTreeMap<String, Vec<Value>> {
        let mut runs: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for entered in &self.written().records {
            let body: Value = serde_json::from_str(&entered.signed.body).expect("the engine writes JSON");
            let visits = body["visits"].as_array().into_iter().flatten();
            // A visit whose failure is held is made again when the run is resumed.
            for visit in visits.filter(|visit| visit["held"] != json!(true)) {
                let mut visit = visit.clone();
                // A pause that was cut begins again, so later times differ.
                for time in ["ms", "now"] {
                    visit.as_object_mut().map(|visit| visit.shift_remove(time));
                }
                decrypted(&mut visit);
                runs.entry(entered.run.to_string()).or_default().push(visit);
            }
        }
        runs
    }

    /// Returns a store with only the first records, and the time that had passed when the last of them was written.
    pub(crate) async fn first(&self, count: usize) -> (Self, Duration) {
        let records: Vec<Entered> = self.written().records.iter().take(count).cloned().collect();
        Self::holding(&records).await
    }

    pub(crate) async fn holding(records: &[Entered]) -> (Self, Duration) {
        let again = Self::default();
        let mut leases: BTreeMap<RunId, (Lease, u64)> = BTreeMap::new();
        for Entered { run, graph, status, signed, .. } in records {
            match graph {
                Some(graph) => {
                    let lease = again.create(run, graph, vec![signed.clone()]).await.expect("it is new");
                    leases.insert(run.clone(), (lease, 1));
                }
                None => {
                    let (lease, known) = leases.get_mut(run).expect("its first record came before");
                    again.append(lease, *known, vec![signed.clone()], *status).await.expect("it follows");
                    *known += 1;
                }
            }
        }
        again.written().records = records.to_vec();
        (again, records.last().map_or(Duration::ZERO, |entered| entered.elapsed))
    }
}

impl Store for Log {
    fn create<'a>(&'a self, run: &'a RunId, graph: &'a str, records: Vec<SignedRecord>) -> StoreFuture<'a, Lease> {
        Box::pin(async move {
            let lease = self.store.create(run, graph, records.clone()).await?;
            self.enter(run, Some(graph), &records, Status::Running);
            Ok(lease)
        })
    }

    fn append<'a>(
        &'a self,
        lease: &'a Lease,
        expected: u64,
        records: Vec<SignedRecord>,
        status: Status,
    ) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            self.store.append(lease, expected, records.clone(), status).await?;
            self.enter(lease.run(), None, &records, status);
            Ok(())
        })
    }

    fn load<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, Vec<SignedRecord>> {
        self.store.load(run)
    }

    fn lease<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, Lease> {
        self.store.lease(run)
    }

    fn runs<'a>(&'a self, filter: &'a RunFilter, page: &'a Page) -> StoreFuture<'a, RunPage> {
        self.store.runs(filter, page)
    }

    fn find<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, RunSummary> {
        self.store.find(run)
    }
}

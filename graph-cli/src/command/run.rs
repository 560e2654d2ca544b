//! `graph run`: run a graph, and print its result as one JSON value.

pub(super) mod authority;
mod background;
pub(super) mod caching;
pub(super) mod failure;
mod inputs;
pub(super) mod mcp_servers;
pub(super) mod means;
mod mocks;
mod models;
pub(super) mod signals;
mod single;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use graph_compiler::diagnostic::{Diagnostic, Severity};
use graph_model::duration;
use graph_model::name::ItemId;
use graph_runtime::dynamic::{Interpreted, Library};
use graph_runtime::store::{Page, RunFilter};
use graph_runtime::tasks::MAX_TASKS;
use graph_runtime::{
    Builder, Durability, EncryptionKey, ErrorKind, HasKind, MemoryStore, Options, Progress, ProjectFiles, ResumeError,
    RunError, RunId, Runtime, StartError, Status, Store as _, StoredRunError, Tasks, Value,
};
use graph_signing::SecretKey;
use serde_json::json;

use super::stored_run::{found, not_found, version_of};
use super::{signing_key, stored, stored_run};
use crate::outcome::Error;
use crate::output::{self, UNDONE};
use authority::Authority;
use background::{Handover, Log};
use caching::CachingArguments;
use failure::{PROBLEMS, RunCommandFailure, USAGE, Voice};
use means::{MeansArguments, Places};
use mocks::Mocks;
use signals::{Signal, Signals};

/// The exit code of a run that waits, as `docs/cli.md` lists it.
const WAITS: u8 = 4;

#[derive(Args)]
pub(crate) struct RunArguments {
    /// The graph's file, or its id in the tree `graphs`
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Older versions of the graph. The run that is resumed continues under the one that it is under
    #[arg(value_name = "OLDER", requires = "resume")]
    older: Vec<PathBuf>,
    /// An input, read as the graph's schema says; may be given several times
    #[arg(long = "input", value_name = "NAME=VALUE", value_parser = inputs::pair, conflicts_with = "resume")]
    inputs: Vec<(String, String)>,
    /// Inputs as a JSON object, or `-` to read them from stdin until it ends
    #[arg(long, value_name = "JSON", conflicts_with = "resume")]
    json: Option<String>,
    /// An input that is a secret, from an environment variable or a file; may be given several times
    // Parsed later: an error of clap would quote the value, which may be the secret itself.
    #[arg(long = "secret", value_name = "NAME=env:VAR|file:PATH", conflicts_with = "resume")]
    secrets: Vec<String>,
    /// Store the run in this SQLite file, signed, so that it can be resumed
    #[arg(long, value_name = "FILE")]
    store: Option<PathBuf>,
    /// The run's id [default: made from the graph's name, the time and a random part]
    #[arg(long, value_name = "ID", value_parser = |text: &str| RunId::new(text), conflicts_with = "resume")]
    run_id: Option<RunId>,
    /// Begin at this entry of the graph, and not at its start
    #[arg(long, value_name = "NAME", conflicts_with_all = ["resume", "node"])]
    entry: Option<String>,
    /// Resume a run of the store where it was stopped
    #[arg(long, value_name = "RUN", value_parser = |text: &str| RunId::new(text), requires = "store")]
    resume: Option<RunId>,
    /// Resume the run although it was cancelled before; otherwise it ends as cancelled
    #[arg(long, requires = "resume")]
    ignore_cancel: bool,
    /// Release the run that is resumed where it is paused, or where a hook suspended it
    #[arg(long, requires = "resume", conflicts_with = "node")]
    release: bool,
    /// Pause before each visit of this node, until the run is resumed with `--release`; may be given several times
    #[arg(long, value_name = "NODE", requires = "store", conflicts_with_all = ["resume", "node"])]
    pause_before: Vec<String>,
    /// Pause after each visit of this node; may be given several times
    #[arg(long, value_name = "NODE", requires = "store", conflicts_with_all = ["resume", "node"])]
    pause_after: Vec<String>,
    /// When a step must be in the store: before the next one (sync), soon after it (async), or at the end of the run (exit)
    #[arg(long, value_name = "MODE", value_enum, default_value = "sync", requires = "store")]
    durability: DurabilityMode,
    /// The graph as it was when the run began; if it has changed since, the error lists the changes
    #[arg(long, value_name = "FILE")]
    old_graph: Option<PathBuf>,
    /// Execute only this node, and store nothing; with `--resume`, use the state of that run
    #[arg(long, value_name = "NAME", conflicts_with = "history")]
    node: Option<String>,
    /// Values that replace those of the state before the node is executed, as a JSON object
    #[arg(long, value_name = "JSON", requires = "node")]
    inject_state: Option<String>,
    /// The maximum number of steps, in place of the graph's own
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_steps: Option<u32>,
    /// The time limit, such as `90s`, `10m` or a number of seconds; 0 for no limit
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = timeout)]
    timeout: Timeout,
    /// How many levels of graphs may be nested below it; never more than the graph allows
    #[arg(long, value_name = "N")]
    depth: Option<u32>,
    /// Let this tool, or a graph that runs inside, answer from a file and not run; may be given several times
    #[arg(long = "mock", value_name = "TOOL=FILE", value_parser = mocks::mock,
          conflicts_with_all = ["store", "cache", "resume", "ignore_cancel", "release", "pause_before", "pause_after", "durability",
                                "old_graph", "files", "background", "detached", "log"])]
    mocks: Vec<(ItemId, PathBuf)>,
    #[command(flatten)]
    means: MeansArguments,
    /// Write the files of the run to the project's .ai: transcript, state, page, objects, registry
    #[arg(long, requires = "store", conflicts_with = "node")]
    files: bool,
    #[command(flatten)]
    caching: CachingArguments,
    /// Return as soon as the run has begun; it continues in a process of its own
    #[arg(long, requires = "store")]
    background: bool,
    /// The role of a run in the background, given by the command that starts it
    #[arg(long, requires = "store", hide = true, conflicts_with = "background")]
    detached: bool,
    /// The log file of a run in the background [default: in the project's .ai, else beside the store]
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Add every committed visit to the result
    #[arg(long)]
    history: bool,
    /// Write no progress, notes or warnings to stderr
    #[arg(long)]
    quiet: bool,
    /// Pretty-print the result over several lines
    #[arg(long)]
    pretty: bool,
}

/// When a step must be in the store.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum DurabilityMode {
    Sync,
    Async,
    Exit,
}

impl From<DurabilityMode> for Durability {
    fn from(mode: DurabilityMode) -> Self {
        match mode {
            DurabilityMode::Sync => Self::Sync,
            DurabilityMode::Async => Self::Async,
            DurabilityMode::Exit => Self::Exit,
        }
    }
}

/// A length of time; `None` for no limit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timeout(pub(super) Option<Duration>);

pub(super) fn timeout(text: &str) -> Result<Timeout, duration::DurationError> {
    // A bare number counts seconds, as in a graph.
    let time = text.parse().map_or_else(|_| duration::parse(text), |seconds| Ok(Duration::from_secs(seconds)))?;
    Ok(Timeout((!time.is_zero()).then_some(time)))
}

/// The JSON to print, and the exit code.
struct RunReport {
    result: Value,
    code: u8,
}

pub(crate) fn run(arguments: &RunArguments) -> ExitCode {
    let done = if arguments.background { background::start() } else { attempt(arguments) };
    let ended = done.unwrap_or_else(|failure| {
        if !failure.shown {
            err!("error: {}", failure.error);
        }
        RunReport { result: failure.result(), code: failure.code }
    });
    print(&ended.result, arguments.pretty, ended.code)
}

/// Prints the one JSON value for a command line that clap refused with `message`.
pub(crate) fn refuse(message: &str) {
    let error = message.lines().next().unwrap_or_default();
    let failure = RunCommandFailure::usage(error.strip_prefix("error: ").unwrap_or(error));
    // The exit code is the one that clap uses.
    print(&failure.result(), false, failure.code);
}

fn print(result: &Value, pretty: bool, code: u8) -> ExitCode {
    let text = if pretty { format!("{result:#}\n") } else { format!("{result}\n") };
    let text = output::json_text(&text);
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => code.into(),
        Err(error) => {
            err!("error: cannot write the result: {error}");
            UNDONE.into()
        }
    }
}

fn attempt(arguments: &RunArguments) -> Result<RunReport, RunCommandFailure> {
    if arguments.detached {
        background::detach()?;
    }
    // Starts to read stdin before all else, so that the program that writes to it works while the graph is loaded.
    let given = inputs::Given::begin(arguments.json.as_deref(), arguments.resume.is_some());
    let voice = Voice::of(arguments.quiet);
    let (library, graph, file) = load_own(arguments, voice)?;
    let (mocks, library, graph) = match arguments.mocks.as_slice() {
        [] => (None, library, graph),
        mocks => {
            Mocks::load(mocks, &library, &graph, &file).map(|(mocks, library, graph)| (Some(mocks), library, graph))?
        }
    };
    mocks.iter().for_each(|mocks| mocks.tell(voice));
    let begun = beginning(arguments, given, &graph, voice)?;
    let places = arguments.means.places(&file);
    let authority = Authority::of(&arguments.means, arguments.depth, &graph, &library, &places);
    authority.tell(voice);
    let handover = Handover::default();
    let (builder, tasks) = arguments.means.equip(&library, &places, &authority, arguments.files)?;
    let builder = builder.observer(handover.clone());
    let builder = if voice.quiet { builder } else { builder.observer(Progress::stderr()) };
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let tokio = tokio.map_err(|error| RunCommandFailure::of(UNDONE, error))?;
    let ended = tokio.block_on(go(
        arguments,
        builder,
        handover,
        RunSubject { graph, begun, tasks },
        &places,
        &authority,
        voice,
    ));
    // Tasks that still wait for a pipe or a lock are abandoned.
    tokio.shutdown_background();
    let mut ended = ended?;
    mocks.iter().for_each(|mocks| mocks.mark(&mut ended.result, voice));
    Ok(ended)
}

/// Reads the inputs of a new run, or the id of the run to resume.
fn beginning(
    arguments: &RunArguments,
    given: inputs::Given,
    graph: &Interpreted,
    voice: Voice,
) -> Result<Beginning, RunCommandFailure> {
    let (inputs, resume) = match &arguments.resume {
        Some(run) => (inputs::Inputs::new(), Some(run.clone())),
        None => {
            let (inputs, resume) = inputs::collect(given, &arguments.inputs, graph.interface(), voice)?;
            (inputs::with_secrets(inputs, &arguments.secrets, graph.interface())?, resume)
        }
    };
    let Some(run) = resume else { return Ok(Beginning::Start(inputs)) };
    if arguments.store.is_none() || arguments.run_id.is_some() || !inputs.is_empty() {
        return Err(RunCommandFailure::usage(
            "a run to resume is in a store, has its id, and has the inputs that it began with: name the store with `--store FILE`, \
             and neither `--run-id` nor inputs",
        ));
    }
    Ok(Beginning::Resume(run))
}

/// Adds the store and the cache to a runtime, and runs the graph or one node of it.
async fn go(
    arguments: &RunArguments,
    builder: Builder,
    handover: Handover,
    RunSubject { graph, begun, tasks }: RunSubject,
    places: &Places,
    authority: &Authority,
    voice: Voice,
) -> Result<RunReport, RunCommandFailure> {
    let kept = places.project.as_deref().filter(|_| arguments.store.is_some());
    let cache = if arguments.node.is_some() { None } else { arguments.caching.cache(kept)? };
    let project = caching::project_of_files(arguments.files, places.project.as_deref())?;
    let (builder, files) = keep(arguments, builder, &begun, project.as_deref()).await?;
    let builder = match &cache {
        // The user's own key signs the cached results, so that others and later runs can verify them.
        Some(_) if arguments.store.is_none() => builder.sign_with(signing_key(arguments.means.key.as_ref())?),
        _ => builder,
    };
    let builder = cache.into_iter().fold(builder, Builder::cache);
    let runtime = builder.build().map_err(|error| RunCommandFailure::of(UNDONE, error))?;
    tasks.serve(&runtime);
    let mut options = Options {
        run: arguments.run_id.clone(),
        capabilities: authority.inherited.clone(),
        depth: authority.depth,
        max_steps: arguments.max_steps,
        entry: arguments.entry.clone(),
        timeout: arguments.timeout.0,
        durability: arguments.durability.into(),
        ignore_cancel: arguments.ignore_cancel,
        pause_before: arguments.pause_before.clone(),
        pause_after: arguments.pause_after.clone(),
    };
    if let Some(node) = &arguments.node {
        return single::perform(arguments, &runtime, graph, begun, node, options, authority).await;
    }
    if arguments.detached {
        let id = match (&begun, &arguments.run_id) {
            (Beginning::Resume(id), _) | (Beginning::Start(_), Some(id)) => id.clone(),
            (Beginning::Start(_), None) => runtime.new_run_id(&graph).map_err(unstarted)?,
        };
        let log = Log::open(arguments, places.project.as_deref(), &id)?;
        let (run, store) = (id.clone(), arguments.store.clone());
        handover.prepare(log, move || tell_store(voice, &run, store.as_deref()));
        options.run = Some(id);
    }
    let ended = perform(arguments, &runtime, RunJob { graph, begun, options, handover }, authority, voice).await;
    files.iter().for_each(|files| caching::tell_problems(files, arguments.store.as_deref()));
    ended
}

/// Adds the store to a runtime, and the observer that writes the files of its runs to `project`.
async fn keep(
    arguments: &RunArguments,
    builder: Builder,
    begun: &Beginning,
    project: Option<&Path>,
) -> Result<(Builder, Option<ProjectFiles>), RunCommandFailure> {
    let Some(path) = &arguments.store else {
        if !arguments.history {
            return Ok((builder, None));
        }
        // `--history` reads a journal, the only record of a run that failed. Nobody else sees this one, so its keys are new.
        let key = SecretKey::generate().map_err(|error| RunCommandFailure::of(UNDONE, error))?;
        let encryption_key = EncryptionKey::generate().map_err(|error| RunCommandFailure::of(UNDONE, error))?;
        return Ok((builder.store(MemoryStore::new()).sign_with(key).encrypt_with(encryption_key), None));
    };
    let key = signing_key(arguments.means.key.as_ref())?;
    if matches!(begun, Beginning::Resume(_)) && !path.exists() {
        return Err(RunCommandFailure::new(UNDONE, format_args!("there is no store at {}", path.display())));
    }
    let files = project.map(|project| ProjectFiles::in_directory(project, key.clone()));
    let files = files.transpose().map_err(|error| RunCommandFailure::of(UNDONE, error))?;
    let store = stored::options().open(path).await.map_err(|error| RunCommandFailure::of(UNDONE, error))?;
    let builder = builder.store(store).sign_with(key);
    let builder = files.iter().fold(builder, |builder, files| builder.observer(files.clone()));
    Ok((builder, files))
}

/// The graph to run, and how its run begins.
struct RunSubject {
    graph: Interpreted,
    begun: Beginning,
    /// The tasks that its run can spawn.
    tasks: Tasks,
}

/// How a run begins.
enum Beginning {
    Start(inputs::Inputs),
    Resume(RunId),
}

/// Loads the graph, and reports its mistakes as `graph check` does. Also returns the graph's file.
pub(super) fn load(named: &Path, voice: Voice) -> Result<(Library, Interpreted, PathBuf), RunCommandFailure> {
    let nothing = || RunCommandFailure::new(PROBLEMS, not_found(named));
    let (library, file) = found(named)?.ok_or_else(nothing)?;
    match library.graph(&file) {
        Ok(graph) => {
            if !voice.quiet {
                show(graph.warnings());
            }
            Ok((library, graph, file))
        }
        Err(error) => {
            show(&error.diagnostics);
            let mut errors = error.diagnostics.iter().filter(|diagnostic| diagnostic.severity == Severity::Error);
            let first = errors.next().map(|first| format!("{} ({})", first.message, first.location()));
            let more = match errors.count() {
                0 => String::new(),
                more => format!(", and {more} more"),
            };
            let error = format!("the graph has mistakes: {}{more}", first.unwrap_or_default());
            Err(RunCommandFailure { shown: true, ..RunCommandFailure::new(PROBLEMS, error) })
        }
    }
}

/// Loads the graph as [`load`] does. If older versions are named, it is the one of all that the run is under which is resumed.
fn load_own(arguments: &RunArguments, voice: Voice) -> Result<(Library, Interpreted, PathBuf), RunCommandFailure> {
    let RunArguments { file, older, resume: Some(run), store: Some(store), .. } = arguments else {
        return load(&arguments.file, voice);
    };
    if older.is_empty() {
        return load(file, voice);
    }
    let mut all = std::iter::once(file).chain(older).map(|file| load(file, voice)).collect::<Result<Vec<_>, _>>()?;
    let found = stored::tokio()?.block_on(async {
        let store = stored::open(store, stored::Access::Read).await?;
        store.find(run).await.map_err(Error::from)
    })?;
    let digest = found.digest.map(|digest| digest.to_string()).unwrap_or_default();
    let shown = format!("{} {} ({digest})", found.graph, found.version.as_deref().unwrap_or_default());
    let own = version_of(&shown, all.iter().map(|(_, graph, _)| graph), |graph| found.is_under(graph))?;
    Ok(all.swap_remove(own))
}

/// Writes diagnostics to stderr.
pub(super) fn show(diagnostics: &[Diagnostic]) {
    for diagnostic in diagnostics {
        err_coloured!(diagnostic);
    }
}

/// A run to perform.
struct RunJob {
    graph: Interpreted,
    begun: Beginning,
    options: Options,
    /// Releases the caller of a run in the background.
    handover: Handover,
}

async fn perform(
    arguments: &RunArguments,
    runtime: &Runtime,
    job: RunJob,
    authority: &Authority,
    voice: Voice,
) -> Result<RunReport, RunCommandFailure> {
    let RunJob { graph, begun, options, handover } = job;
    let graph_id = graph.id().to_owned();
    let mut signals = Signals::new().map_err(|error| RunCommandFailure::of(UNDONE, error))?;
    let run = match begun {
        Beginning::Resume(run) => {
            if arguments.release {
                let released = runtime.release(&graph, &run).await;
                for wait in released.map_err(|error| RunCommandFailure::of(UNDONE, error))? {
                    voice.note(format_args!("`{}` is released: {}", wait.id, wait.node));
                }
            }
            let resumed = runtime.resume_with(options, graph.clone(), &run).await;
            resumed.map_err(|error| authority.explain(unresumed(error, arguments, &graph)))?
        }
        Beginning::Start(inputs) => {
            let started = runtime.start_with(options, graph, inputs).await;
            started.map_err(|error| authority.explain(unstarted(error)))?
        }
    };
    let (id, canceller) = (run.id().clone(), run.canceller());
    if !arguments.detached {
        tell_store(voice, &id, arguments.store.as_deref());
    }
    // A resumed run that had already ended emits no start event, so its caller is released here.
    if let Err(error) = handover.finish(&id, &graph_id) {
        canceller.cancel();
        err!("error: the run `{id}` is stopped, because the process that started it could not be notified: {error}");
    }
    let mut running = std::pin::pin!(IntoFuture::into_future(run));
    let mut stopped: Option<Signal> = None;
    let finished = loop {
        tokio::select! {
            biased;
            finished = &mut running => break finished,
            signal = signals.next() => {
                if stopped.is_some() {
                    return Ok(given_up(arguments, runtime, &id, signal).await);
                }
                canceller.cancel_by(signal.number());
                voice.note(format_args!("{signal}: the run stops after this step; once more, and it stops at once"));
                stopped = Some(signal);
            }
        }
    };
    let mut ended = match &finished {
        Ok(finished) => RunReport { result: finished.to_value(), code: 0 },
        Err(error) => failed(&id, error, stopped),
    };
    add_history(arguments, runtime, &id, &mut ended.result).await;
    leave_tasks(runtime, &id, voice).await;
    Ok(ended)
}

/// Leaves the tasks of a run that have not ended to workers: their calls in progress are dropped, and made again.
async fn leave_tasks(runtime: &Runtime, id: &RunId, voice: Voice) {
    let statuses = vec![Status::Running, Status::Waiting];
    let filter = RunFilter { owner: Some(id.clone()), statuses, ..RunFilter::default() };
    let page = Page { size: MAX_TASKS, after: None };
    let count = runtime.runs(&filter, &page).await.map_or(0, |found| found.runs.len());
    // Tasks of tasks may run too.
    runtime.shutdown(Duration::ZERO).await;
    if count > 0 {
        let (tasks, have, them) = if count == 1 { ("task", "has", "it") } else { ("tasks", "have", "them") };
        voice.note(format_args!("{count} {tasks} of the run {have} not ended: `graph work` continues {them}"));
    }
}

/// Returns the report of a run that a second signal stops at once.
async fn given_up(arguments: &RunArguments, runtime: &Runtime, id: &RunId, signal: Signal) -> RunReport {
    let error = format!("stopped by {signal} before its step had ended");
    let mut result = json!({"success": false, "status": "cancelled", "graph_run_id": id, "error": error});
    // Without a journal, the number of its steps is unknown.
    if let Ok(visits) = runtime.history(id).await {
        result["steps"] = json!(visits.len());
    }
    add_history(arguments, runtime, id, &mut result).await;
    RunReport { result, code: signal.exit_code() }
}

/// Returns the report of a run that failed or was stopped by a signal.
fn failed(id: &RunId, error: &RunError, stopped: Option<Signal>) -> RunReport {
    let code = match (error, stopped) {
        (RunError::Cancelled { .. }, Some(signal)) => signal.exit_code(),
        (RunError::Store { .. } | RunError::Stopped { .. }, _) => UNDONE,
        (RunError::Waiting { .. }, _) => WAITS,
        _ => PROBLEMS,
    };
    let mut result = error.to_value();
    if let (RunError::Store { .. }, Some(fields)) = (error, result.as_object_mut()) {
        // The cause says what to do about it. After that, the run can be resumed.
        let error = format!("{}; the run can be resumed with `--resume {id}`", Error::of(error));
        err!("error: {error}");
        fields.insert("error".to_owned(), error.into());
    }
    RunReport { result, code }
}

/// Writes a note about where a run is stored.
fn tell_store(voice: Voice, run: &RunId, store: Option<&Path>) {
    if let Some(store) = store {
        voice.note(format_args!("the run `{run}` is kept in {}", store.display()));
    }
}

/// Adds `history` to a result if `--history` is given. If the journal cannot be read, the result stays as it is.
async fn add_history(arguments: &RunArguments, runtime: &Runtime, run: &RunId, result: &mut Value) {
    if !arguments.history {
        return;
    }
    match runtime.history(run).await {
        Ok(visits) => result["history"] = json!(visits),
        Err(error) => err!("error: {}", Error::from(error)),
    }
}

pub(super) fn unstarted(error: StartError) -> RunCommandFailure {
    let code = if error.kind() == ErrorKind::Invalid { USAGE } else { UNDONE };
    RunCommandFailure::of(code, error)
}

/// Returns the failure to resume a run. If the graph has changed since and `--old-graph` is given, it lists the changes.
fn unresumed(error: ResumeError, arguments: &RunArguments, graph: &Interpreted) -> RunCommandFailure {
    match error {
        error @ ResumeError::Stored(StoredRunError::AnotherGraph { .. }) => {
            let help = match arguments.old_graph.as_deref().map(stored_run::load) {
                Some(Ok(old)) => format!("; since then there was {}", graph.changes_since(&old)),
                Some(Err(error)) => {
                    // The message becomes part of the JSON on stdout, so its colours are removed.
                    let error = error.to_string();
                    format!("; the changes since then cannot be determined: {}", anstream::adapter::strip_str(&error))
                }
                None => "; `--old-graph FILE`, with the graph as it was, shows what was changed since".to_owned(),
            };
            RunCommandFailure::new(UNDONE, format_args!("{}{help}", Error::from(error)))
        }
        error => RunCommandFailure::of(UNDONE, error),
    }
}

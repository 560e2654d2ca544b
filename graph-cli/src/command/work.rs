//! `graph work`: continue the runs of a store, and start those of schedules.

mod teller;
mod warnings;

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use graph_model::digest::Digest;
use graph_runtime::dynamic::{Interpreted, Library};
use graph_runtime::{Machine as _, ProjectFiles, Runtime, Schedule, SqliteStore, Worker, WorkerOptions};

use super::run;
use super::run::authority::{Authority, PARENT};
use super::run::caching::{self, CachingArguments};
use super::run::failure::{PROBLEMS, RunCommandFailure, Voice};
use super::run::means::MeansArguments;
use super::run::signals::Signals;
use super::{signing_key, stored};
use crate::output::{self, UNDONE};
use teller::Teller;

#[derive(Args)]
pub(crate) struct WorkArguments {
    /// The files of the graphs whose runs are continued, or their ids in the tree `graphs`
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// The SQLite file that holds the runs
    #[arg(long, value_name = "FILE")]
    store: PathBuf,
    /// How many runs of each graph are continued at a time
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    concurrency: u32,
    /// Start no runs of the schedules in the file `graphs.toml` of the tree
    #[arg(long)]
    no_schedules: bool,
    /// Stop when no run can be continued now and none is in progress
    #[arg(long)]
    until_idle: bool,
    #[command(flatten)]
    means: MeansArguments,
    /// Write the files of the runs to the project's .ai: transcript, state, page, objects, registry
    #[arg(long = "files")]
    keeps_files: bool,
    #[command(flatten)]
    caching: CachingArguments,
    /// Write no notes to stderr
    #[arg(long)]
    quiet: bool,
    /// Print JSON, one value a line
    #[arg(long)]
    json: bool,
}

/// How long the calls in progress are waited for; a second signal ends that.
const NO_LIMIT: Duration = Duration::from_secs(365 * 86_400);

pub(crate) fn run(arguments: &WorkArguments) -> ExitCode {
    match attempt(arguments) {
        Ok(code) => output::finish(code),
        Err(failure) => {
            if !failure.shown {
                err!("error: {}", failure.error);
            }
            failure.code.into()
        }
    }
}

fn attempt(arguments: &WorkArguments) -> Result<u8, RunCommandFailure> {
    let voice = Voice::of(arguments.quiet);
    if std::env::var_os(PARENT).is_some_and(|thread| !thread.is_empty()) {
        // The runs of a store may be those of anybody, and the permissions of a thread are those of its own runs.
        let error = format!("a thread starts no worker, and `{PARENT}` is set: use `graph run --resume`");
        return Err(RunCommandFailure::new(UNDONE, error));
    }
    let graphs = load(arguments, voice)?;
    let tokio = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let tokio = tokio.map_err(|error| RunCommandFailure::of(UNDONE, error))?;
    let done = tokio.block_on(work(arguments, graphs, voice));
    // Tasks that still wait for a pipe or a lock are abandoned.
    tokio.shutdown_background();
    done
}

/// A graph whose runs are continued.
struct WorkedGraph {
    library: Library,
    graph: Interpreted,
    file: PathBuf,
    /// The schedules of its tree that start runs of it.
    schedules: Vec<Schedule>,
}

/// Loads the graphs. Two of one id are two versions of a graph.
fn load(arguments: &WorkArguments, voice: Voice) -> Result<Vec<WorkedGraph>, RunCommandFailure> {
    let mut known: HashMap<(String, Digest), &PathBuf> = HashMap::new();
    let mut graphs = Vec::new();
    for named in &arguments.files {
        let (library, graph, file) = run::load(named, voice)?;
        let id = graph.id().to_owned();
        // Two files of one meaning have the same runs.
        let meaning = graph.graph().meaning().unwrap_or_else(|| graph.graph().digest());
        if let Some(other) = known.insert((id.clone(), meaning), named) {
            let (other, named) = (other.display(), named.display());
            return Err(RunCommandFailure::usage(format_args!(
                "`{other}` and `{named}` are the same graph, `{id}`, with the same meaning: name one of them"
            )));
        }
        // The first of two versions of a graph has the schedules.
        let is_first = graphs.iter().all(|other: &WorkedGraph| other.graph.id() != id);
        let schedules = match is_first && !arguments.no_schedules {
            true => schedules_of(&library, &id)?,
            false => Vec::new(),
        };
        graphs.push(WorkedGraph { library, graph, file, schedules });
    }
    Ok(graphs)
}

/// Reads the schedules of a tree that start runs of a graph. A mistake in any of them is an error.
fn schedules_of(library: &Library, id: &str) -> Result<Vec<Schedule>, RunCommandFailure> {
    match library.schedules() {
        Ok(all) => Ok(all.into_iter().filter(|schedule| schedule.graph().as_str() == id).collect()),
        Err(error) => {
            for diagnostic in &error.diagnostics {
                err_coloured!(diagnostic);
            }
            Err(RunCommandFailure::new(PROBLEMS, "the schedules of the tree have mistakes"))
        }
    }
}

/// Continues the runs of the graphs until a signal stops that, or nothing is left to do. Returns the exit code.
async fn work(arguments: &WorkArguments, graphs: Vec<WorkedGraph>, voice: Voice) -> Result<u8, RunCommandFailure> {
    let mut signals = Signals::new().map_err(|error| RunCommandFailure::of(UNDONE, error))?;
    let key = signing_key(arguments.means.key.as_ref())?;
    let store = match graphs.iter().any(|worked| !worked.schedules.is_empty()) {
        // Schedules start runs in a store that has none.
        true => stored::options().open(&arguments.store).await.map_err(|error| RunCommandFailure::of(UNDONE, error))?,
        false => stored::open(&arguments.store, stored::Access::Write).await?,
    };
    let teller = Teller::new(arguments.json);
    warnings::show();
    let mut kept = Vec::new();
    let mut runtimes = Vec::new();
    let all: Vec<Interpreted> = graphs.iter().map(|worked| worked.graph.clone()).collect();
    for worked in graphs {
        let (runtime, files) = equip(arguments, &worked, &store, &key, &teller, voice)?;
        kept.extend(files);
        let WorkedGraph { graph, schedules, .. } = worked;
        for schedule in &schedules {
            let timetable = schedule.timetable();
            voice.note(format_args!(
                "schedule `{}` starts runs of `{}` at `{}` in {}",
                schedule.id(),
                schedule.graph(),
                timetable.cron(),
                timetable.zone(),
            ));
        }
        let concurrency = usize::try_from(arguments.concurrency).unwrap_or(usize::MAX);
        let options = WorkerOptions::default().graph(graph).concurrency(concurrency);
        let options = options.schedules(schedules).map_err(|error| RunCommandFailure::of(UNDONE, error))?;
        runtimes.push((runtime, options));
    }
    // Each graph has the permissions that it declares, and so a runtime of its own.
    let begin = |(runtime, options): (Runtime, WorkerOptions)| {
        let options = all.iter().fold(options, |options, other| options.continued_elsewhere(other.graph()));
        runtime.worker(options).map_err(|error| RunCommandFailure::of(UNDONE, error))
    };
    let workers = runtimes.into_iter().map(begin).collect::<Result<Vec<Worker>, _>>()?;
    let until_idle = async {
        match arguments.until_idle {
            true => idle(&workers).await,
            false => std::future::pending().await,
        }
    };
    tokio::select! {
        signal = signals.next() => {
            voice.note(format_args!("{signal}: the runs stop after their steps; once more, and they stop at once"));
        }
        () = until_idle => {}
    }
    let code = tokio::select! {
        () = shut_down(workers) => 0,
        signal = signals.next() => signal.exit_code(),
    };
    kept.iter().for_each(|files| caching::tell_problems(files, Some(&arguments.store)));
    Ok(code)
}

/// Returns the runtime of a graph, and the files of its runs if they are written.
fn equip(
    arguments: &WorkArguments,
    worked: &WorkedGraph,
    store: &SqliteStore,
    key: &graph_signing::SecretKey,
    teller: &Teller,
    voice: Voice,
) -> Result<(Runtime, Option<ProjectFiles>), RunCommandFailure> {
    let WorkedGraph { library, graph, file, .. } = worked;
    let places = arguments.means.places(file);
    let authority = Authority::of(&arguments.means, None, graph, library, &places);
    authority.tell(voice);
    let (builder, tasks) = arguments.means.equip(library, &places, &authority, arguments.keeps_files)?;
    let builder = builder.store(store.clone()).sign_with(key.clone()).observer(teller.clone());
    let project = places.project.as_deref();
    let files = caching::project_of_files(arguments.keeps_files, project)?;
    let files = files.map(|project| ProjectFiles::in_directory(project, key.clone()));
    let files = files.transpose().map_err(|error| RunCommandFailure::of(UNDONE, error))?;
    let builder = files.iter().fold(builder, |builder, files| builder.observer(files.clone()));
    let builder = arguments.caching.cache(project)?.into_iter().fold(builder, graph_runtime::Builder::cache);
    let runtime = builder.build().map_err(|error| RunCommandFailure::of(UNDONE, error))?;
    tasks.serve(&runtime);
    runtime.admits(graph).map_err(run::unstarted)?;
    Ok((runtime, files))
}

/// Waits until none of the workers has anything to do.
async fn idle(workers: &[Worker]) {
    while !workers.iter().all(|worker| worker.status().is_idle) {
        for worker in workers {
            worker.idle().await;
        }
    }
}

/// Stops the runs before their next steps, and waits for the calls in progress.
async fn shut_down(workers: Vec<Worker>) {
    let mut stopping = tokio::task::JoinSet::new();
    for worker in workers {
        stopping.spawn(worker.shutdown(NO_LIMIT));
    }
    while stopping.join_next().await.is_some() {}
}

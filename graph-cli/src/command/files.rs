//! `graph files`: rebuild the files of a project's runs from a store, and compare them with it.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use graph_runtime::dynamic::Interpreted;
use graph_runtime::files::{FilesError, GraphId, ProjectStore};
use graph_runtime::store::{RunSummary, StoreError};
use graph_runtime::{Machine, ProjectFiles, RunId, Store};
use graph_signing::{KeyRing, PublicKey};
use serde_json::{Value, json};

use super::stored::{self, Access};
use super::stored_run::{not_filed, own_graph, public_key, verifying_key};
use super::{project_here, signing_key};
use crate::outcome::{CommandOutcome, CommandResult, Error};

#[derive(Subcommand)]
pub(crate) enum Files {
    /// Rebuild the files of runs from their journals
    Rebuild(FilesRebuildArguments),
    /// Verify the files of a run, and compare them with its journal
    Verify(FilesVerifyArguments),
}

#[derive(Args)]
pub(crate) struct FilesRebuildArguments {
    /// The runs
    #[arg(value_name = "RUN", value_parser = |text: &str| RunId::new(text), required_unless_present = "all")]
    runs: Vec<RunId>,
    /// All runs of the store that no process is running
    #[arg(long, conflicts_with = "runs")]
    all: bool,
    /// The SQLite file that holds the runs
    #[arg(long, value_name = "FILE")]
    store: PathBuf,
    #[command(flatten)]
    of: FilesArguments,
    /// The secret key that signs the files [default: your own]
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Print what was done as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
pub(crate) struct FilesVerifyArguments {
    /// The run
    #[arg(value_name = "RUN", value_parser = |text: &str| RunId::new(text))]
    run: RunId,
    /// Compare them with the journal in this SQLite file [default: the journal among the files]
    #[arg(long, value_name = "FILE")]
    store: Option<PathBuf>,
    #[command(flatten)]
    of: FilesArguments,
    /// The public key that verifies the files, a PEM file [default: the one that verifies the journal]
    #[arg(long, value_name = "FILE")]
    files_key: Option<PathBuf>,
    /// Print what was found as JSON
    #[arg(long)]
    json: bool,
}

/// The options that `graph files` commands share.
#[derive(Args)]
struct FilesArguments {
    /// The public key that verifies the journals, a PEM file [default: your own]
    #[arg(long, value_name = "FILE")]
    public_key: Option<PathBuf>,
    /// The file of the run's graph; given several times, of its versions, of which the run's own is taken [default: found by its id in
    /// the tree `graphs`]
    #[arg(long, value_name = "FILE")]
    graph: Vec<PathBuf>,
    /// The project's directory [default: the nearest one above the working directory that holds .ai]
    #[arg(long, value_name = "DIR")]
    project: Option<PathBuf>,
}

/// The open store, the key and the project that the commands work with.
struct FilesContext {
    tokio: tokio::runtime::Runtime,
    /// Where the journals are.
    store: Box<dyn Store>,
    /// The public key that verifies them.
    key: PublicKey,
    project: PathBuf,
}

impl FilesArguments {
    /// Opens the store; without one, the project's files in its place.
    fn open(&self, store: Option<&Path>) -> Result<FilesContext, Error> {
        let project = project_here(self.project.as_ref(), "--project DIR")?;
        let key = verifying_key(self.public_key.as_deref())?;
        let tokio = stored::tokio()?;
        let store: Box<dyn Store> = match store {
            Some(path) => Box::new(tokio.block_on(stored::open(path, Access::Read))?),
            None => Box::new(ProjectStore::in_directory(&project)?),
        };
        Ok(FilesContext { tokio, store, key, project })
    }

    /// Loads the graph of a run.
    fn machine(&self, desk: &FilesContext, run: &RunId) -> Result<Interpreted, Error> {
        let records = desk.tokio.block_on(desk.store.load(run))?;
        own_graph(&records, &self.graph, "--graph")
    }
}

pub(crate) fn run(files: &Files) -> CommandResult {
    match files {
        Files::Rebuild(rebuild) => self::rebuild(rebuild),
        Files::Verify(verify) => self::verify(verify),
    }
}

fn rebuild(arguments: &FilesRebuildArguments) -> CommandResult {
    let desk = arguments.of.open(Some(&arguments.store))?;
    let files = ProjectFiles::in_directory(&desk.project, signing_key(arguments.key.as_ref())?)?;
    let listed = desk.tokio.block_on(desk.store.list())?;
    let is_at_work = |run: &RunId| listed.iter().any(|one| one.run == *run && one.holder.is_some());
    let runs: Vec<RunId> = match arguments.all {
        true => listed.iter().filter(|one| one.holder.is_none()).map(|RunSummary { run, .. }| run.clone()).collect(),
        false => arguments.runs.clone(),
    };
    let (mut rebuilt, mut failed) = (Vec::new(), Vec::new());
    for run in runs {
        let done = match is_at_work(&run) {
            true => Err(Error::new("it is running, and writes its files itself")),
            false => rebuild_one(arguments, &desk, &files, &run),
        };
        match done {
            Ok(()) => rebuilt.push(run),
            Err(error) => failed.push((run, error)),
        }
    }
    for (run, error) in &failed {
        err!("error: the files of run `{run}` were not rebuilt: {error}");
    }
    if arguments.json {
        let failed: Vec<Value> =
            failed.iter().map(|(run, error)| json!({"run_id": run, "error": error.to_string()})).collect();
        let result = json!({"success": failed.is_empty(), "rebuilt": rebuilt, "failed": failed});
        out_json!(result);
    } else {
        rebuilt.iter().for_each(|run| out!("rebuilt the files of {run}"));
    }
    Ok(CommandOutcome::of(failed.is_empty()))
}

fn rebuild_one(
    arguments: &FilesRebuildArguments,
    desk: &FilesContext,
    files: &ProjectFiles,
    run: &RunId,
) -> Result<(), Error> {
    let machine = arguments.of.machine(desk, run)?;
    Ok(desk.tokio.block_on(files.rebuild(&*desk.store, &desk.key, run, machine.graph()))?)
}

/// The findings about a run's files.
struct FilesFindings {
    graph: Option<String>,
    /// The files that differ from the journal.
    differing: Vec<PathBuf>,
    /// The number of transcript bytes that are signed, or the first mistake in the transcript, the state item or the journal.
    signed: Result<u64, String>,
}

fn verify(arguments: &FilesVerifyArguments) -> CommandResult {
    let FilesVerifyArguments { run, store, of, files_key, json } = arguments;
    let desk = of.open(store.as_deref())?;
    let signer = files_key.as_deref().map(public_key).transpose()?.unwrap_or_else(|| desk.key.clone());
    let found = look(arguments, &desk, &signer)?;
    let FilesFindings { graph, differing, signed } = &found;
    let is_well = differing.is_empty() && signed.is_ok();
    if *json {
        let (bytes, problem) = (signed.as_ref().ok(), signed.as_ref().err());
        let result = json!({
            "success": is_well, "run_id": run, "graph_id": graph, "differing": differing,
            "error": problem, "transcript_bytes": bytes,
        });
        out_json!(result);
    } else if is_well {
        out!("{run}: its files are what its journal says, and signed by {}", signer.fingerprint());
    }
    if let Err(problem) = signed {
        err!("error: {run}: {problem}");
    }
    for path in differing {
        err!("error: {run}: {} is not what the journal says", path.display());
    }
    if let (false, Some(store)) = (is_well, store) {
        err!("help: `graph files rebuild {run} --store {}`", store.display());
    }
    Ok(CommandOutcome::of(is_well))
}

/// Verifies the files of a run, and compares them with its journal.
///
/// # Errors
///
/// If something cannot be read, or the run is in progress.
fn look(arguments: &FilesVerifyArguments, desk: &FilesContext, signer: &PublicKey) -> Result<FilesFindings, Error> {
    let FilesVerifyArguments { run, store, of, .. } = arguments;
    let FilesContext { tokio, store: journals, key, project } = desk;
    // Without `--store`, the journal is one of the files, and may itself have been changed.
    let changed = |error: Error| match store {
        None => Ok(FilesFindings { graph: None, differing: Vec::new(), signed: Err(error.to_string()) }),
        Some(_) => Err(error),
    };
    let summary = match tokio.block_on(journals.find(run)) {
        Err(error @ StoreError::Unreadable { .. }) => return changed(error.into()),
        Err(StoreError::NotFound(run)) if store.is_none() => return Err(not_filed(&run, project.display())),
        found => found?,
    };
    if summary.holder.is_some() {
        return Err(Error::new(format!("run `{run}` is running, and its files may be behind its journal")));
    }
    let files = ProjectStore::in_directory(project)?;
    let machine = of.machine(desk, run)?;
    let differing = match tokio.block_on(files.compare(&**journals, key, signer, run, machine.graph())) {
        Err(error @ FilesError::Journal(_)) => return changed(error.into()),
        compared => compared?,
    };
    let graph = GraphId::new(&*summary.graph)?;
    let signed = files.verify(&graph, run, &KeyRing::of(signer, "the key of the files"));
    let signed = signed.map(|(item, _)| item.transcript.bytes).map_err(|error| Error::from(error).to_string());
    Ok(FilesFindings { graph: Some(summary.graph), differing, signed })
}

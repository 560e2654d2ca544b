//! `graph files`: the files that a project keeps of its runs, made anew from a store and compared with it.

use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, Subcommand};
use graph_model::signature::KeyRing;
use graph_runtime::files::GraphId;
use graph_runtime::store::RunSummary;
use graph_runtime::{Machine, ProjectFiles, RunId, Store};
use serde_json::{Value, json};

use super::kept::{Kept, Opened, own_graph};
use super::{project_here, signing_key};
use crate::outcome::{Done, Error, Outcome};

#[derive(Subcommand)]
pub(crate) enum Files {
    /// Write the files of runs anew from their journals
    Rebuild(Rebuild),
    /// Verify the files of a run, and compare them with its journal
    Verify(Verify),
}

#[derive(Args)]
pub(crate) struct Rebuild {
    /// The runs
    #[arg(value_name = "RUN", value_parser = |text: &str| RunId::new(text), required_unless_present = "all")]
    runs: Vec<RunId>,
    /// All runs of the store that nobody is at work on
    #[arg(long, conflicts_with = "runs")]
    all: bool,
    #[command(flatten)]
    of: Of,
    /// Print what was done as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
pub(crate) struct Verify {
    /// The run
    #[arg(value_name = "RUN", value_parser = |text: &str| RunId::new(text))]
    run: RunId,
    #[command(flatten)]
    of: Of,
    /// Print what was found as JSON
    #[arg(long)]
    json: bool,
}

/// Whose files, and of which runs.
#[derive(Args)]
struct Of {
    #[command(flatten)]
    kept: Kept,
    /// The graph's file [default: the one of the run's graph in the tree `graphs`]
    #[arg(long, value_name = "FILE")]
    graph: Option<PathBuf>,
    /// The project's directory [default: the nearest one above the working directory that holds .ai]
    #[arg(long, value_name = "DIR")]
    project: Option<PathBuf>,
    /// The secret key that signs the files [default: your own]
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
}

/// What the commands work with.
struct Desk {
    opened: Opened,
    files: ProjectFiles,
    ring: KeyRing,
    signer: String,
}

impl Of {
    fn open(&self) -> Result<Desk, Error> {
        let project = project_here(self.project.as_ref(), "--project DIR")?;
        let key = signing_key(self.key.as_ref())?;
        let opened = self.kept.open()?;
        let ring = KeyRing::of(&key.public(), "the key of the files");
        let signer = key.public().fingerprint().to_string();
        let files = ProjectFiles::in_directory(&project, key)?;
        Ok(Desk { opened, files, ring, signer })
    }

    /// Loads the graph of a run.
    fn machine(&self, desk: &Desk, run: &RunId) -> Result<Arc<dyn Machine>, Error> {
        let records = desk.opened.tokio.block_on(desk.opened.store.load(run))?;
        Ok(Arc::new(own_graph(&records, self.graph.as_deref(), "--graph")?))
    }
}

pub(crate) fn run(files: &Files) -> Done {
    match files {
        Files::Rebuild(rebuild) => self::rebuild(rebuild),
        Files::Verify(verify) => self::verify(verify),
    }
}

fn rebuild(arguments: &Rebuild) -> Done {
    let desk = arguments.of.open()?;
    let listed = desk.opened.tokio.block_on(desk.opened.store.list())?;
    let is_at_work = |run: &RunId| listed.iter().any(|one| one.run == *run && one.holder.is_some());
    let runs: Vec<RunId> = match arguments.all {
        true => listed.iter().filter(|one| one.holder.is_none()).map(|RunSummary { run, .. }| run.clone()).collect(),
        false => arguments.runs.clone(),
    };
    let (mut rebuilt, mut failed) = (Vec::new(), Vec::new());
    for run in runs {
        let done = match is_at_work(&run) {
            true => Err(Error::new("it is at work, and writes its files itself")),
            false => rebuild_one(arguments, &desk, &run),
        };
        match done {
            Ok(()) => rebuilt.push(run),
            Err(error) => failed.push((run, error)),
        }
    }
    for (run, error) in &failed {
        anstream::eprintln!("error: the files of run `{run}` were not rebuilt: {error}");
    }
    if arguments.json {
        let failed: Vec<Value> =
            failed.iter().map(|(run, error)| json!({"run_id": run, "error": error.to_string()})).collect();
        let result = json!({"success": failed.is_empty(), "rebuilt": rebuilt, "failed": failed});
        anstream::println!("{result:#}");
    } else {
        rebuilt.iter().for_each(|run| anstream::println!("rebuilt the files of {run}"));
    }
    Ok(Outcome::of(failed.is_empty()))
}

fn rebuild_one(arguments: &Rebuild, desk: &Desk, run: &RunId) -> Result<(), Error> {
    let machine = arguments.of.machine(desk, run)?;
    let Opened { tokio, store, key, .. } = &desk.opened;
    Ok(tokio.block_on(desk.files.rebuild(store, key, run, machine.code()))?)
}

fn verify(arguments: &Verify) -> Done {
    let desk = arguments.of.open()?;
    let run = &arguments.run;
    let machine = arguments.of.machine(&desk, run)?;
    let Opened { tokio, store, key, .. } = &desk.opened;
    let summary = tokio.block_on(store.find(run))?;
    if summary.holder.is_some() {
        return Err(Error::new(format!("run `{run}` is at work, and its files may be behind its journal")));
    }
    let differing = tokio.block_on(desk.files.compare(store, key, run, machine.code()))?;
    let graph = GraphId::new(&*summary.graph)?;
    let signed = desk.files.verify(&graph, run, &desk.ring).map_err(Error::from);
    let is_well = differing.is_empty() && signed.is_ok();
    let problem = signed.as_ref().err().map(ToString::to_string);
    if arguments.json {
        let bytes = signed.as_ref().ok().map(|(item, _)| item.transcript.bytes);
        let result = json!({
            "success": is_well, "run_id": run, "graph_id": summary.graph, "differing": differing,
            "error": problem, "transcript_bytes": bytes,
        });
        anstream::println!("{result:#}");
    } else if is_well {
        anstream::println!("{run}: its files are what its journal says, and signed by {}", desk.signer);
    }
    if let Some(problem) = problem {
        anstream::eprintln!("error: {run}: {problem}");
    }
    for path in &differing {
        anstream::eprintln!("error: {run}: {} is not what the journal says", path.display());
    }
    if !is_well {
        anstream::eprintln!("help: `graph files rebuild {run} --store {}`", arguments.of.kept.store.display());
    }
    Ok(Outcome::of(is_well))
}

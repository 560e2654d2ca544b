//! `graph edit`: change state keys of a run that is not in progress.

use std::path::PathBuf;

use clap::Args;
use graph_runtime::files::ProjectFiles;
use graph_runtime::history::StateEdit;
use graph_runtime::{EditRun, RunId};
use serde_json::json;

use super::show::{edit_json, edit_text};
use super::state_changes::{ChangeableRun, RunAccess, StateChangeArguments};
use crate::outcome::{CommandOutcome, CommandResult, Error};

#[derive(Args)]
pub(crate) struct EditArguments {
    /// The run
    #[arg(value_name = "RUN", value_parser = |text: &str| RunId::new(text))]
    run: RunId,
    /// The SQLite file that holds the run
    #[arg(long, value_name = "FILE")]
    store: PathBuf,
    #[command(flatten)]
    changes: StateChangeArguments,
    /// Why the run is edited, in one line; the journal keeps it
    #[arg(long, value_name = "TEXT")]
    why: String,
    /// The name of the person who edits the run; the journal keeps it [default: that of the variable `USER`]
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
    /// The directory of a project whose .ai holds the files of the run, which are updated too
    #[arg(long, value_name = "DIR")]
    files: Option<PathBuf>,
    #[command(flatten)]
    access: RunAccess,
    /// Print the edit as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &EditArguments) -> CommandResult {
    let by = match &arguments.by {
        Some(by) => by.clone(),
        None => std::env::var("USER").map_err(|_| Error::new("nobody says who edits the run: give `--by NAME`"))?,
    };
    let opened = arguments.access.open(&arguments.run, &arguments.store)?;
    let ChangeableRun { tokio, graph, key, builder } = opened;
    let (set, write) = arguments.changes.read(&graph)?;
    let files = arguments.files.as_ref().map(|project| ProjectFiles::in_directory(project, key.clone())).transpose()?;
    let runtime = files.iter().fold(builder, |builder, files| builder.observer(files.clone())).build()?;
    let edit = StateEdit { by, why: arguments.why.clone(), set, write };
    let edited = tokio.block_on(runtime.edit(&graph, &arguments.run, edit))?;
    for (run, error) in files.iter().flat_map(ProjectFiles::problems) {
        let (error, store) = (Error::of(&*error), arguments.store.display());
        err!(
            "warning: the files of run `{run}` are not updated: {error}; `graph files rebuild {run} --store {store}` does it"
        );
    }
    if arguments.json {
        let mut edit = edit_json(&edited);
        edit["run"] = json!(arguments.run);
        out_json_line!(edit);
    } else {
        let (run, store) = (&arguments.run, arguments.store.display());
        let key = if arguments.access.encryption_key.is_some() { " --encryption-key FILE" } else { "" };
        out!("{run}: {}; continue with `graph run GRAPH --store {store}{key} --resume {run}`", edit_text(&edited));
    }
    Ok(CommandOutcome::Well)
}

//! `graph fork`: begin a run at a step of another one.

use std::path::PathBuf;

use clap::Args;
use graph_runtime::history::Fork;
use graph_runtime::{ForkRun, Pattern, RunId};
use serde_json::json;

use super::state_changes::{ChangeableRun, RunAccess, StateChangeArguments};
use crate::outcome::{CommandOutcome, CommandResult};

#[derive(Args)]
pub(crate) struct ForkArguments {
    /// The run to fork
    #[arg(value_name = "RUN", value_parser = |text: &str| RunId::new(text))]
    run: RunId,
    /// The SQLite file that holds the run
    #[arg(long, value_name = "FILE")]
    store: PathBuf,
    /// Fork after this many visits of the run [default: after its last]
    #[arg(long, value_name = "N")]
    step: Option<u64>,
    #[command(flatten)]
    changes: StateChangeArguments,
    /// The new run's id [default: made from the graph's name, the time and a random part]
    #[arg(long, value_name = "ID", value_parser = |text: &str| RunId::new(text))]
    run_id: Option<RunId>,
    /// A capability that the new run may use, in place of those that the graph declares; may be given several times
    #[arg(long = "grant", value_name = "PATTERN", value_parser = |text: &str| Pattern::new(text))]
    grants: Vec<Pattern>,
    #[command(flatten)]
    access: RunAccess,
    /// Print the new run's id as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &ForkArguments) -> CommandResult {
    let opened = arguments.access.open(&arguments.run, &arguments.store)?;
    let ChangeableRun { tokio, graph, mut builder, .. } = opened;
    let (set, write) = arguments.changes.read(&graph)?;
    let declared = graph.permissions().patterns();
    let granted = if arguments.grants.is_empty() { declared } else { &arguments.grants };
    for pattern in granted {
        builder = builder.grant(pattern.as_str())?;
    }
    let runtime = builder.build()?;
    let fork = Fork { step: arguments.step, set, write, run: arguments.run_id.clone() };
    let run = tokio.block_on(runtime.fork(&graph, &arguments.run, fork))?;
    if arguments.json {
        out_json_line!(json!({"run": run, "from": arguments.run, "step": arguments.step}));
    } else {
        let store = arguments.store.display();
        out!("{run} begins in {}; continue with `graph run GRAPH --store {store} --resume {run}`", arguments.run);
    }
    Ok(CommandOutcome::Well)
}

//! `graph runs`: list the runs of a store.

use std::path::PathBuf;

use clap::Args;
use graph_model::digest::Digest;
use graph_model::timestamp;
use graph_runtime::record::Status;
use graph_runtime::store::{RunFilter, RunSummary, all_runs};
use graph_runtime::{RunId, Store};
use serde_json::json;

use super::stored::{self, Access};
use crate::outcome::{CommandOutcome, CommandResult};
use crate::output;

#[derive(Args)]
pub(crate) struct RunsArguments {
    /// One run [default: all]
    #[arg(value_name = "RUN", value_parser = |text: &str| RunId::new(text))]
    run: Option<RunId>,
    /// The SQLite file that holds the runs
    #[arg(long, value_name = "FILE")]
    store: PathBuf,
    /// Only runs with this status; separate several with commas
    #[arg(long, value_name = "STATUS", value_delimiter = ',', value_parser = stored::status)]
    status: Vec<Status>,
    /// Only runs of the graph with this id
    #[arg(long, value_name = "ID")]
    graph: Option<String>,
    /// Only runs that began under the file with this digest
    #[arg(long, value_name = "SHA256")]
    digest: Option<Digest>,
    /// Only runs of a graph with this meaning, whatever its file says
    #[arg(long, value_name = "SHA256")]
    meaning: Option<Digest>,
    /// Print them as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &RunsArguments) -> CommandResult {
    let RunsArguments { status, graph, digest, meaning, .. } = arguments;
    let filter = RunFilter {
        statuses: status.clone(),
        graph: graph.clone(),
        digest: *digest,
        meaning: *meaning,
        ..RunFilter::default()
    };
    let runs = stored::tokio()?.block_on(async {
        let store = stored::open(&arguments.store, Access::Read).await?;
        let runs = match &arguments.run {
            Some(run) => vec![store.find(run).await?],
            None => all_runs(&store, &filter).await?,
        };
        Ok::<_, crate::outcome::Error>(runs)
    })?;
    let runs: Vec<RunSummary> = runs.into_iter().filter(|run| filter.accepts(run)).collect();
    if arguments.json {
        let shown: Vec<_> = runs.iter().map(stored::as_json).collect();
        out_json!(json!({"success": true, "runs": shown, "count": runs.len()}));
        return Ok(CommandOutcome::Well);
    }
    let head = ["run", "graph", "status", "records", "changed", "running on"].map(str::to_owned);
    let rows: Vec<[String; 6]> = std::iter::once(head).chain(runs.iter().map(row)).collect();
    output::write_table(&rows, 6);
    Ok(CommandOutcome::Well)
}

fn row(run: &RunSummary) -> [String; 6] {
    [
        run.run.to_string(),
        run.graph.clone(),
        run.status.name().to_owned(),
        run.records.to_string(),
        run.updated.map_or_else(|| "unknown".to_owned(), timestamp::seconds),
        run.holder.as_ref().map(ToString::to_string).unwrap_or_default(),
    ]
}

//! `graph stats`: how often the nodes of the runs of a store were visited and failed, and how long they took.

use std::path::PathBuf;
use std::time::SystemTime;

use clap::Args;
use graph_runtime::RunId;
use graph_runtime::record::Status;
use graph_runtime::stats::{GraphStats, Latencies, NodeStats, Stats};
use graph_runtime::store::{Page, RunFilter, RunPage, RunSummary, StoreError};
use humantime::format_duration;
use serde_json::{Map, Value, json};

use super::stored;
use super::stored_run::{OpenedStore, RunLocation, StoredRunArguments, start_time};
use crate::outcome::{CommandOutcome, CommandResult};
use crate::output::{self, counted};

#[derive(Args)]
pub(crate) struct StatsArguments {
    #[command(flatten)]
    place: RunLocation,
    /// The public key that verifies the runs, a PEM file [default: your own]
    #[arg(long, value_name = "FILE")]
    public_key: Option<PathBuf>,
    /// Only runs of the graph with this id
    #[arg(long, value_name = "ID")]
    graph: Option<String>,
    /// Only runs that began at this time or later, as `2026-11-21T20:00:00+01:00`
    #[arg(long, value_name = "TIME", value_parser = stored::time)]
    since: Option<SystemTime>,
    /// Only runs with this status; separate several with commas
    #[arg(long, value_name = "STATUS", value_delimiter = ',', value_parser = stored::status)]
    status: Vec<Status>,
    /// Print them as JSON
    #[arg(long)]
    json: bool,
}

/// A run whose journal could not be verified.
struct LeftOut {
    run: RunId,
    reason: String,
}

pub(crate) fn run(arguments: &StatsArguments) -> CommandResult {
    let StatsArguments { place, public_key, graph, since, status, json } = arguments;
    let opened = StoredRunArguments::of(place.clone(), public_key.clone()).open()?;
    let filter = RunFilter { statuses: status.clone(), graph: graph.clone(), ..RunFilter::default() };
    let (stats, left_out) = read(&opened, &filter, *since)?;
    for LeftOut { run, reason } in &left_out {
        err!("error: run {run} is left out: {reason}");
    }
    if *json {
        let graphs: Vec<Value> = stats.graphs.iter().map(|(id, stats)| graph_json(id, stats)).collect();
        let left_out: Vec<Value> = left_out.iter().map(|one| json!({"run_id": one.run, "error": one.reason})).collect();
        out_json!(json!({"success": left_out.is_empty(), "graphs": graphs, "left_out": left_out}));
    } else if stats.graphs.is_empty() && left_out.is_empty() {
        out!("no runs");
    } else {
        for (at, (id, stats)) in stats.graphs.iter().enumerate() {
            if at > 0 {
                out!("");
            }
            say(id, stats);
        }
    }
    Ok(CommandOutcome::of(left_out.is_empty()))
}

/// Reads the journals of the runs that pass the filter, one after the other.
fn read(
    OpenedStore { tokio, store, key, .. }: &OpenedStore,
    filter: &RunFilter,
    since: Option<SystemTime>,
) -> Result<(Stats, Vec<LeftOut>), StoreError> {
    let (mut stats, mut left_out) = (Stats::default(), Vec::new());
    let mut page = Page { size: 1000, after: None };
    loop {
        let RunPage { runs, next, .. } = tokio.block_on(store.runs(filter, &page))?;
        for RunSummary { run, created, .. } in runs {
            let is_before = |at: Option<SystemTime>| since.is_some_and(|since| at.is_some_and(|at| at < since));
            if is_before(created) {
                continue;
            }
            let records = match tokio.block_on(store.load(&run)) {
                Ok(records) => records,
                // It was removed since it was listed.
                Err(StoreError::NotFound(_)) => continue,
                Err(error @ StoreError::Unreadable { .. }) => {
                    left_out.push(LeftOut { run, reason: error.to_string() });
                    continue;
                }
                Err(error) => return Err(error),
            };
            // A store may not know when the run began.
            if created.is_none() && is_before(start_time(&records)) {
                continue;
            }
            if let Err(error) = stats.add(&run, &records, key) {
                left_out.push(LeftOut { run, reason: error.to_string() });
            }
        }
        match next {
            Some(next) => page.after = Some(next),
            None => return Ok((stats, left_out)),
        }
    }
}

/// Prints a graph: its runs, its steps, and a row for each node.
fn say(id: &str, stats: &GraphStats) {
    let runs: Vec<String> = stats.runs.iter().map(|(status, count)| format!("{count} {status}")).collect();
    let resumes = match stats.resumes {
        0 => String::new(),
        1 => "; resumed once".to_owned(),
        times => format!("; resumed {times} times"),
    };
    let all = counted(stats.runs.values().sum::<u64>(), "run", "runs");
    out!("{id}: {all} ({}){resumes}", runs.join(", "));
    let head =
        ["node", "visits", "failed", "retries", "cached", "waits", "waited", "p50 ms", "p90 ms", "p99 ms", "max ms"];
    let mut rows = vec![head.map(str::to_owned)];
    let [p50, p90, p99, max] = shown(&stats.steps);
    let count = stats.steps.count().to_string();
    let empty = String::new;
    rows.push(["(steps)".to_owned(), count, empty(), empty(), empty(), empty(), empty(), p50, p90, p99, max]);
    rows.extend(stats.nodes.iter().map(|(node, stats)| {
        let NodeStats { visits, failures, retries, cached, waits, waited, latencies, .. } = stats;
        let [p50, p90, p99, max] = shown(latencies);
        let waited = if waited.is_zero() { String::new() } else { format_duration(*waited).to_string() };
        let [visits, failures, retries, cached, waits] =
            [visits, failures, retries, cached, waits].map(ToString::to_string);
        [node.clone(), visits, failures, retries, cached, waits, waited, p50, p90, p99, max]
    }));
    output::write_table(&rows, 1);
}

/// Returns percentiles and the maximum as a table shows them; empty texts if there are no durations.
fn shown(latencies: &Latencies) -> [String; 4] {
    let at = |percent| latencies.percentile(percent);
    [at(50), at(90), at(99), latencies.max()].map(|found| found.map_or_else(String::new, |found| found.to_string()))
}

fn graph_json(id: &str, stats: &GraphStats) -> Value {
    let nodes: Vec<Value> = stats.nodes.iter().map(|(node, stats)| node_json(node, stats)).collect();
    json!({
        "graph_id": id, "runs": stats.runs, "resumes": stats.resumes, "steps": latencies_json(&stats.steps), "nodes": nodes,
    })
}

fn node_json(node: &str, stats: &NodeStats) -> Value {
    let NodeStats { visits, failures, retries, cached, cancelled, waits, open, waited, latencies, .. } = stats;
    json!({
        "node": node, "visits": visits, "failures": failures, "retries": retries, "cached": cached,
        "cancelled": cancelled, "waits": waits, "open_waits": open,
        "waited_ms": u64::try_from(waited.as_millis()).unwrap_or(u64::MAX), "latency": latencies_json(latencies),
    })
}

fn latencies_json(latencies: &Latencies) -> Value {
    let mut shown =
        Map::from_iter([("count".to_owned(), latencies.count().into()), ("sum_ms".to_owned(), latencies.sum().into())]);
    for percent in [50, 90, 99] {
        shown.insert(format!("p{percent}_ms"), latencies.percentile(percent).into());
    }
    shown.insert("max_ms".to_owned(), latencies.max().into());
    Value::Object(shown)
}

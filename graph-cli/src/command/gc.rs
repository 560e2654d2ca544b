//! `graph gc`: remove old runs from a store.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clap::Args;
use graph_runtime::record::Status;
use graph_runtime::store::{Retention, StoreError};
use graph_runtime::{RunId, Store};
use serde_json::json;

use super::stored::{self, Access};
use crate::outcome::{CommandOutcome, CommandResult, Error};
use crate::output::counted;

#[derive(Args)]
pub(crate) struct GcArguments {
    /// Only these runs, however long ago they ended [default: all]
    #[arg(value_name = "RUN", value_parser = |text: &str| RunId::new(text))]
    runs: Vec<RunId>,
    /// The SQLite file that holds the runs
    #[arg(long, value_name = "FILE")]
    store: PathBuf,
    /// Only runs that ended at least this long ago, such as `12h` or `30d`; 0 for all runs that have ended
    #[arg(long, value_name = "TIME", default_value = "30d", value_parser = stored::age)]
    older_than: Duration,
    /// Only runs that ended with this status; separate several with commas [default: any status]
    #[arg(long, value_name = "STATUS", value_delimiter = ',', value_parser = ended)]
    status: Vec<Status>,
    /// Always keep this many of the newest runs of each graph
    #[arg(long, value_name = "N", default_value_t = 0)]
    keep: usize,
    /// Only print what would be removed
    #[arg(long)]
    dry_run: bool,
    /// Print what was removed as JSON
    #[arg(long)]
    json: bool,
}

fn ended(text: &str) -> Result<Status, &'static str> {
    match stored::status(text) {
        Ok(Status::Running | Status::Waiting) | Err(_) => {
            Err("write `completed`, `completed_with_errors`, `error` or `cancelled`")
        }
        Ok(status) => Ok(status),
    }
}

/// The result of the command.
struct Removed {
    runs: Vec<RunId>,
    /// Whether the file was made smaller.
    shrunk: bool,
    /// The size of the file before and after, in bytes.
    bytes: (u64, u64),
}

pub(crate) fn run(arguments: &GcArguments) -> CommandResult {
    let Removed { runs, shrunk, bytes } = stored::tokio()?.block_on(attempt(arguments))?;
    if arguments.json {
        out_json!(json!({
            "success": true, "dry_run": arguments.dry_run, "removed": runs, "count": runs.len(),
            "shrunk": shrunk, "bytes_before": bytes.0, "bytes": bytes.1,
        }));
        return Ok(CommandOutcome::Well);
    }
    let done = if arguments.dry_run { "would remove" } else { "removed" };
    for run in &runs {
        out!("{done} {run}");
    }
    let size = match (arguments.dry_run, shrunk) {
        (true, _) => String::new(),
        (false, true) => format!("; the file has {} bytes, and had {}", bytes.1, bytes.0),
        (false, false) => {
            "; what is free now is used for runs to come, since a process uses the file, which cannot be made smaller"
                .to_owned()
        }
    };
    out!("{done} {} with those inside{size}", counted(runs.len(), "run", "runs"));
    Ok(CommandOutcome::Well)
}

async fn attempt(arguments: &GcArguments) -> Result<Removed, Error> {
    let access = if arguments.dry_run { Access::Read } else { Access::Write };
    let store = stored::open(&arguments.store, access).await?;
    let size = || std::fs::metadata(&arguments.store).map_or(0, |data| data.len());
    let before = size();
    let GcArguments { older_than, keep, status, .. } = arguments;
    let retention = Retention { older_than: *older_than, statuses: status.clone(), keep: *keep };
    let all = store.list().await?;
    let mut runs = match arguments.runs.as_slice() {
        [] => retention.pick(&all, SystemTime::now()),
        named => {
            let retention = Retention { older_than: Duration::ZERO, ..retention };
            let mut picked = retention.pick(&all, SystemTime::now());
            if let Some(run) = named.iter().find(|run| !picked.contains(run)) {
                let found = store.find(run).await?;
                let status = found.status.name();
                let reason = format!(
                    "the run `{run}` cannot be removed: it is {status}, held by a process, inside another run, or kept"
                );
                return Err(Error::new(reason));
            }
            picked.retain(|run| named.contains(run));
            picked
        }
    };
    if arguments.dry_run {
        return Ok(Removed { runs, shrunk: false, bytes: (before, before) });
    }
    let mut removed = Vec::new();
    for run in runs.drain(..) {
        match store.remove(&run).await {
            Ok(()) => removed.push(run),
            // Another process has resumed or removed it since it was picked.
            Err(StoreError::Leased { .. } | StoreError::NotFound(_)) => {}
            Err(error) => {
                let done = removed.len();
                return Err(Error::new(format!("{}; {done} runs were removed before", Error::from(error))));
            }
        }
    }
    let shrunk = store.shrink().await?;
    Ok(Removed { runs: removed, shrunk, bytes: (before, size()) })
}

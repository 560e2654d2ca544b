//! `graph gc`: remove runs from a store that are not kept any longer.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clap::Args;
use graph_runtime::record::Status;
use graph_runtime::store::{Retention, StoreError};
use graph_runtime::{RunId, Store};
use serde_json::json;

use super::stored::{self, Access};
use crate::outcome::{CommandOutcome, CommandResult, Error};

#[derive(Args)]
pub(crate) struct GcArguments {
    /// The SQLite file that keeps the runs
    #[arg(long, value_name = "FILE")]
    store: PathBuf,
    /// Only runs that ended as long ago, as `12h` or `30d`; 0 for all that ended
    #[arg(long, value_name = "TIME", default_value = "30d", value_parser = stored::age)]
    older_than: Duration,
    /// Only runs that ended so; several with commas between [default: any way]
    #[arg(long, value_name = "STATUS", value_delimiter = ',', value_parser = ended)]
    status: Vec<Status>,
    /// How many of the newest runs of each graph stay in any case
    #[arg(long, value_name = "N", default_value_t = 0)]
    keep: usize,
    /// Only say what would be removed
    #[arg(long)]
    dry_run: bool,
    /// Print what was removed as JSON
    #[arg(long)]
    json: bool,
}

fn ended(text: &str) -> Result<Status, &'static str> {
    match stored::status(text) {
        Ok(Status::Running) | Err(_) => Err("write `completed`, `completed_with_errors`, `error` or `cancelled`"),
        Ok(status) => Ok(status),
    }
}

/// What was done.
struct Removed {
    runs: Vec<RunId>,
    /// Whether the file was made smaller.
    shrunk: bool,
    /// How large it was and is, in bytes.
    bytes: (u64, u64),
}

pub(crate) fn run(arguments: &GcArguments) -> CommandResult {
    let Removed { runs, shrunk, bytes } = stored::tokio()?.block_on(attempt(arguments))?;
    if arguments.json {
        out!(
            "{:#}",
            json!({
                "success": true, "dry_run": arguments.dry_run, "removed": runs, "count": runs.len(),
                "shrunk": shrunk, "bytes_before": bytes.0, "bytes": bytes.1,
            })
        );
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
    let count = runs.len();
    out!("{done} {count} {} with those inside{size}", if count == 1 { "run" } else { "runs" });
    Ok(CommandOutcome::Well)
}

async fn attempt(arguments: &GcArguments) -> Result<Removed, Error> {
    let access = if arguments.dry_run { Access::Read } else { Access::Write };
    let store = stored::open(&arguments.store, access).await?;
    let size = || std::fs::metadata(&arguments.store).map_or(0, |data| data.len());
    let before = size();
    let GcArguments { older_than, keep, status, .. } = arguments;
    let retention = Retention { older_than: *older_than, statuses: status.clone(), keep: *keep };
    let mut runs = retention.pick(&store.list().await?, SystemTime::now());
    if arguments.dry_run {
        return Ok(Removed { runs, shrunk: false, bytes: (before, before) });
    }
    let mut removed = Vec::new();
    for run in runs.drain(..) {
        match store.remove(&run).await {
            Ok(()) => removed.push(run),
            // Somebody took it up, or removed it, since it was picked.
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

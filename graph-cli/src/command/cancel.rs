//! `graph cancel`: ask that a run end as cancelled.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use graph_model::duration;
use graph_runtime::record::Status;
use graph_runtime::store::{Holder, RunSummary};
use graph_runtime::{RunId, Runtime, SqliteStore, Store};
use serde_json::json;

use super::signing_key;
use super::stored::{self, Access};
use crate::outcome::{CommandOutcome, CommandResult, Error};

/// How often `--wait` looks at the run.
const PACE: Duration = Duration::from_millis(100);

#[derive(Args)]
pub(crate) struct CancelArguments {
    /// The run
    #[arg(value_name = "RUN", value_parser = |text: &str| RunId::new(text))]
    run: RunId,
    /// The SQLite file that holds the run
    #[arg(long, value_name = "FILE")]
    store: PathBuf,
    /// The secret key that signs the store's journals, to end a run at once [default: your own]
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// End the run at once although its graph is gone, so that nothing continues it
    #[arg(long)]
    without_graph: bool,
    /// Wait until the run has stopped, for at most this many seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    wait: Option<Duration>,
    /// Print what was done as JSON
    #[arg(long)]
    json: bool,
}

fn seconds(text: &str) -> Result<Duration, duration::DurationError> {
    text.parse().map_or_else(|_| duration::parse(text), |seconds| Ok(Duration::from_secs(seconds)))
}

pub(crate) fn run(arguments: &CancelArguments) -> CommandResult {
    let done = stored::tokio()?.block_on(attempt(arguments));
    match &done {
        Ok((holder, found)) if arguments.json => {
            let CancelArguments { run, .. } = arguments;
            let status = found.as_ref().map_or(Status::Running, |found| found.status).name();
            let pid = holder.as_ref().and_then(|holder| holder.process);
            out_json!(json!({"success": true, "run_id": run, "pid": pid, "method": "store", "status": status}));
        }
        Ok((Some(holder), None)) => {
            out!("asked {holder}, to stop the run `{}` after the step that it is at", arguments.run);
        }
        Ok((_, Some(found))) if found.status.has_ended() => {
            out!("the run `{}` has ended: {}", arguments.run, found.status.name());
        }
        Ok(_) => {
            out!("no process is running the run `{0}`; it ends as cancelled when it is resumed", arguments.run);
        }
        Err(error) if arguments.json => {
            let error = error.to_string();
            out_json!(json!({"success": false, "run_id": arguments.run, "error": error}));
        }
        Err(_) => {}
    }
    done.map(|_| CommandOutcome::Well)
}

/// Requests the cancellation. Returns the process that holds the run, and the run if it has ended at once, or with `--wait` after it
/// has stopped.
async fn attempt(arguments: &CancelArguments) -> Result<(Option<Holder>, Option<RunSummary>), Error> {
    let store = stored::open(&arguments.store, Access::Write).await?;
    let holder = store.find(&arguments.run).await?.holder;
    let status = match signing_key(arguments.key.as_ref()) {
        Ok(key) if arguments.without_graph => {
            let runtime = Runtime::builder().store(store.clone()).sign_with(key).build()?;
            runtime.cancel_without_graph(&arguments.run).await?
        }
        Ok(key) => Runtime::builder().store(store.clone()).sign_with(key).build()?.cancel(&arguments.run).await?,
        Err(error) if arguments.key.is_some() || arguments.without_graph => return Err(error),
        // Nothing is signed without a key: a run that waits ends when it is resumed.
        Err(_) => {
            store.cancel(&arguments.run).await?;
            Status::Running
        }
    };
    let found = match arguments.wait {
        Some(most) => Some(stopped(&store, &arguments.run, most).await?),
        None if status == Status::Cancelled => Some(store.find(&arguments.run).await?),
        None => None,
    };
    Ok((holder, found))
}

/// Waits until no process holds the run.
async fn stopped(store: &SqliteStore, run: &RunId, most: Duration) -> Result<RunSummary, Error> {
    let began = Instant::now();
    loop {
        let found = store.find(run).await?;
        let Some(holder) = &found.holder else { return Ok(found) };
        if began.elapsed() >= most {
            return Err(Error::new(format!(
                "the run `{run}` was asked to stop and is still running ({holder}) after {}; it stops after the step that it is at",
                duration::shown(most)
            )));
        }
        tokio::time::sleep(PACE).await;
    }
}

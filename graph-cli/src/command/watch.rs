//! `graph watch`: follow a run that is in progress in another process.

mod model;
mod row;
mod screen;
mod terminal;
#[cfg(test)]
mod tests;
mod text;
mod view;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use graph_model::timestamp;
use graph_runtime::events::{EventCursor, EventKind, EventLogError, FollowedEvents, RunEvent};
use graph_runtime::record::{Edit, End, Opened, Status, Visit};
use graph_runtime::{RunId, Store, StoredRunError};
use serde_json::json;
use tokio::time::interval;

use super::stored::{self, Access};
use super::stored_run::verifying_key;
use crate::outcome::Error;
use crate::output::{self, UNDONE};

#[derive(Clone, Args)]
pub(crate) struct WatchArguments {
    /// The run
    #[arg(value_name = "RUN", value_parser = |text: &str| RunId::new(text))]
    run: RunId,
    /// The SQLite file that holds the run
    #[arg(long, value_name = "FILE")]
    store: PathBuf,
    /// The public key that verifies the run, a PEM file [default: your own]
    #[arg(long, value_name = "FILE")]
    public_key: Option<PathBuf>,
    /// Print the events as JSON, one a line
    #[arg(long)]
    json: bool,
    /// Begin after the event with this cursor, which is in the events as JSON [default: at the run's beginning]
    #[arg(long, value_name = "CURSOR")]
    from: Option<EventCursor>,
    /// Show the run on the whole terminal: its timeline, nodes, state and waits
    #[arg(long, conflicts_with_all = ["json", "from"])]
    tui: bool,
}

pub(crate) fn run(arguments: &WatchArguments) -> ExitCode {
    if arguments.tui {
        return terminal::run(arguments);
    }
    match stored::tokio().and_then(|tokio| tokio.block_on(follow(arguments))) {
        // `None` means that nobody reads the output any more, so the end of the run is not waited for.
        Ok(None | Some(Status::Completed | Status::CompletedWithErrors)) => output::finish(0),
        Ok(Some(_)) => output::finish(1),
        Err(error) => {
            err!("error: {error}");
            UNDONE.into()
        }
    }
}

/// How often is looked whether the store is still there, and somebody reads the output.
const PACE: Duration = Duration::from_secs(1);

/// Prints each event as it is committed, until the run has ended or nobody reads the output. Returns the final status of a run that has
/// ended.
async fn follow(arguments: &WatchArguments) -> Result<Option<Status>, Error> {
    let WatchArguments { run, store: path, public_key, json, from, tui: _ } = arguments;
    let key = verifying_key(public_key.as_deref())?;
    let store = Arc::new(stored::open(path, Access::Read).await?);
    let mut events = FollowedEvents::of_store(Arc::clone(&store) as _, key, run.clone(), from.clone())?;
    let mut teller = EventTeller { graph: String::new(), keys: BTreeSet::new() };
    let (file, mut pace) = (stored::StoreFile::at(path), interval(PACE));
    let mut status = None;
    loop {
        let event = tokio::select! {
            biased;
            event = events.next() => event,
            // A run that waits may say nothing for weeks.
            _ = pace.tick() => {
                file.check()?;
                if output::is_hung_up() {
                    return Ok(None);
                }
                continue;
            }
        };
        let Some(event) = event else { break };
        let event = event.map_err(|error| explained(error, arguments))?;
        if let EventKind::Ended { end, .. } = &event.kind {
            status = Some(end.status);
        }
        match json {
            true => out_json_line!(json!(event)),
            false => teller.tell(&event),
        }
        if output::is_lost() {
            return Ok(None);
        }
    }
    // An end before the cursor was not printed.
    match status {
        Some(status) => Ok(Some(status)),
        None => Ok(Some(store.find(run).await?.status)),
    }
}

/// Explains an error with what the user named.
fn explained(error: EventLogError, arguments: &WatchArguments) -> Error {
    let (run, path) = (&arguments.run, arguments.store.display());
    match error {
        EventLogError::Left { .. } => Error::new(format!(
            "no process is running the run `{run}` any more; resume it with `graph run FILE --store {path} --resume {run}`"
        )),
        EventLogError::Stored(StoredRunError::Journal { reason, .. }) => {
            Error::new(format!("run {run} in {path}: {reason}"))
        }
        other => other.into(),
    }
}

/// Prints the events of a run for people.
struct EventTeller {
    /// The graph's short name.
    graph: String,
    /// The state keys that were set.
    keys: BTreeSet<String>,
}

impl EventTeller {
    fn tell(&mut self, event: &RunEvent) {
        if self.graph.is_empty() {
            self.graph = event.graph.as_ref().map_or(String::new(), |graph| graph.stem().to_owned());
        }
        match &event.kind {
            EventKind::Visited { visit, .. } => self.visit(visit),
            EventKind::WaitOpened { step, node, wait, .. } => self.waits(*step, node, wait),
            EventKind::Edited { edit, .. } => self.edit(edit),
            EventKind::Ended { end, .. } => self.end(end),
            _ => {}
        }
    }

    fn edit(&mut self, edit: &Edit) {
        let Edit { steps, by, why, .. } = edit;
        let keys: Vec<&str> = edit.changes().keys().map(String::as_str).collect();
        self.keys.extend(keys.iter().map(|key| (*key).to_owned()));
        out!("[graph:{}] after step {steps} edited {} by {by}: {why}", self.graph, keys.join(", "));
    }

    fn visit(&mut self, visit: &Visit) {
        let Visit { step, node, error, ms, cached, warnings, .. } = visit;
        let new: Vec<&str> =
            visit.changes.keys().filter(|key| self.keys.insert((*key).clone())).map(String::as_str).collect();
        let leads_on = !visit.edges.is_empty() || visit.over.is_some() || visit.timed_out || visit.cancelled;
        let icon = match error {
            Some(_) => "✗",
            None if leads_on => "✓",
            None => "⏹",
        };
        let time = if *ms < 50 { String::new() } else { format!(" {:.1}s", Duration::from_millis(*ms).as_secs_f64()) };
        let detail = match error {
            Some(error) => format!(" ({})", error.lines().next().unwrap_or_default()),
            None if new.is_empty() => String::new(),
            None => format!(" (+{})", new.join(", ")),
        };
        let (graph, cached) = (&self.graph, if *cached { " (cached)" } else { "" });
        out!("[graph:{graph}] step {step} {node} {icon}{time}{cached}{detail}");
        for warning in warnings {
            out!("[graph:{graph}] step {step} {node} warning: {warning}");
        }
    }

    fn waits(&self, step: u64, node: &str, opened: &Opened) {
        let due = opened.next_due().map(|due| timestamp::milliseconds(timestamp::from_unix_milliseconds(due)));
        let until = due.map_or_else(String::new, |due| format!(" (until {due})"));
        out!("[graph:{}] step {step} {node} ⏸{until}", self.graph);
    }

    fn end(&self, end: &End) {
        let End { status, steps, error, signal, .. } = end;
        let detail = match (error, signal) {
            (_, Some(signal)) => format!("signal {signal}"),
            (Some(error), None) => error.lines().next().unwrap_or_default().to_owned(),
            (None, None) => format!("{steps} steps"),
        };
        let (graph, icon) = (&self.graph, if status.has_result() { "✓" } else { "✗" });
        out!("[graph:{graph}] done {icon} {} ({detail})", status.name());
    }
}

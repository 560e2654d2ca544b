//! `graph watch`: follow a run that is in progress in another process.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use graph_model::timestamp;
use graph_runtime::record::{Edit, End, Entry, Follower, Opened, Status, Visit};
use graph_runtime::{RunId, Store};
use serde_json::{Value, json};

use super::stored::{self, Access};
use super::stored_run::verifying_key;
use crate::outcome::Error;
use crate::output::{self, UNDONE};

/// How often the store is polled.
const PACE: Duration = Duration::from_millis(200);

#[derive(Args)]
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
    /// Print JSON, one value a line
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &WatchArguments) -> ExitCode {
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

/// Prints each step as it is committed, until the run has ended or nobody reads the output. Returns the final status of a run
/// that has ended.
async fn follow(arguments: &WatchArguments) -> Result<Option<Status>, Error> {
    let WatchArguments { run, store: path, public_key, json } = arguments;
    let mut follower = Follower::new(run.clone(), verifying_key(public_key.as_deref())?);
    let store = stored::open(path, Access::Read).await?;
    let mut teller = Teller { json: *json, graph: String::new(), keys: BTreeSet::new() };
    let mut end = None;
    loop {
        // Looks up the holder before it reads the records, so that the last records of the holder are not missed.
        let found = store.find(run).await?;
        let signed = store.load_from(run, follower.next()).await?;
        let records = follower.read(&signed);
        let records = records.map_err(|error| Error::new(format!("run {run} in {}: {error}", path.display())))?;
        for record in records {
            match record.entry {
                // The status of the run stays as it is.
                Entry::Edit(edit) => teller.edit(&edit),
                entry => end = teller.tell(entry),
            }
        }
        if output::is_lost() {
            return Ok(None);
        }
        if let Some(end) = end.take_if(|_| found.status != Status::Running || found.holder.is_none()) {
            teller.end(run, &end);
            return Ok(Some(end.status));
        }
        if found.holder.is_none() && found.status == Status::Running && found.records <= follower.next() {
            return Err(Error::new(format!(
                "no process is running the run `{run}` any more; resume it with `graph run FILE --store {} --resume {run}`",
                path.display()
            )));
        }
        tokio::time::sleep(PACE).await;
    }
}

/// Prints the records of a run.
struct Teller {
    json: bool,
    /// The graph's short name.
    graph: String,
    /// The state keys that were set.
    keys: BTreeSet<String>,
}

impl Teller {
    /// Prints a record, or returns the end if the record is one.
    fn tell(&mut self, entry: Entry) -> Option<End> {
        match entry {
            Entry::Start(start) => start.graph.rsplit('/').next().unwrap_or_default().clone_into(&mut self.graph),
            Entry::Step(step) => {
                let ends = step.next.is_empty() && step.visits.iter().all(|visit| visit.opened.is_none());
                step.visits.iter().for_each(|visit| self.visit(visit, ends));
            }
            Entry::End(end) => return Some(end),
            _ => {}
        }
        None
    }

    fn edit(&mut self, edit: &Edit) {
        let Edit { steps, by, why, .. } = edit;
        let keys: Vec<&String> = edit.changes().keys().collect();
        self.keys.extend(keys.iter().map(|key| (*key).clone()));
        if self.json {
            out!("{}", json!({"event": "edit", "step": steps, "by": by, "why": why, "keys": keys}));
        } else {
            let keys: Vec<&str> = keys.iter().map(|key| key.as_str()).collect();
            out!("[graph:{}] after step {steps} edited {} by {by}: {why}", self.graph, keys.join(", "));
        }
    }

    fn visit(&mut self, visit: &Visit, ends: bool) {
        let Visit { step, node, error, ms, cached, warnings, .. } = visit;
        if let Some(opened) = &visit.opened {
            return self.waits(*step, node, opened);
        }
        let new: Vec<&str> =
            visit.changes.keys().filter(|key| self.keys.insert((*key).clone())).map(String::as_str).collect();
        if self.json {
            let error = error.as_deref();
            out!(
                "{}",
                json!({"event": "step", "step": step, "node": node, "error": error, "cached": cached, "ms": ms, "new_keys": new})
            );
            return;
        }
        let icon = match (error, ends) {
            (Some(_), _) => "✗",
            (None, true) => "⏹",
            (None, false) => "✓",
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
        if self.json {
            out!("{}", json!({"event": "wait", "step": step, "node": node, "due": due}));
        } else {
            let until = due.map_or_else(String::new, |due| format!(" (until {due})"));
            out!("[graph:{}] step {step} {node} ⏸{until}", self.graph);
        }
    }

    fn end(&self, run: &RunId, end: &End) {
        let End { status, steps, error, signal, .. } = end;
        let success = status.has_result();
        if self.json {
            let error = error.as_ref().map_or(Value::Null, |error| error.as_str().into());
            let status = status.name();
            out!(
                "{}",
                json!({
                    "event": "end", "success": success, "graph_run_id": run, "status": status, "steps": steps,
                    "error": error, "signal": signal,
                })
            );
            return;
        }
        let detail = match (error, signal) {
            (_, Some(signal)) => format!("signal {signal}"),
            (Some(error), None) => error.lines().next().unwrap_or_default().to_owned(),
            (None, None) => format!("{steps} steps"),
        };
        let graph = &self.graph;
        out!("[graph:{graph}] done {} {} ({detail})", if success { "✓" } else { "✗" }, status.name());
    }
}

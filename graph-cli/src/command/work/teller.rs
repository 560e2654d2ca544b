//! A line for each run that a worker continues, and for each that ends or waits.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use graph_runtime::RunId;
use graph_runtime::observer::{Event, Observer};
use graph_runtime::record::Status;
use graph_runtime::store::RunStart;
use serde_json::json;

use crate::output::counted;

/// Prints the lines. Clones share what they know.
#[derive(Clone)]
pub(super) struct Teller {
    is_json: bool,
    known: Arc<Mutex<Known>>,
}

#[derive(Default)]
struct Known {
    /// The graphs of the runs that are in progress.
    runs: HashMap<RunId, String>,
    /// The runs that are inside others, of which nothing is said.
    inside: HashSet<RunId>,
}

impl Teller {
    pub(super) fn new(is_json: bool) -> Self {
        Self { is_json, known: Arc::default() }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begun(&self, run: &RunId, graph: &str, steps: u64) {
        if self.is_json {
            out_json_line!(json!({"event": "begin", "graph_run_id": run, "graph_id": graph, "steps": steps}));
        } else {
            out!("{run} ({graph}) continues after {}", counted(steps, "step", "steps"));
        }
    }

    fn ended(&self, run: &RunId, graph: &str, status: Status, steps: u64, error: Option<&str>) {
        if self.is_json {
            let event = if matches!(status, Status::Waiting) { "wait" } else { "end" };
            let status = status.name();
            out_json_line!(json!({
                "event": event, "graph_run_id": run, "graph_id": graph, "status": status, "steps": steps, "error": error,
            }));
            return;
        }
        let steps = counted(steps, "step", "steps");
        let first = error.and_then(|error| error.lines().next());
        match (status, first) {
            (Status::Waiting, _) => out!("{run} ({graph}) waits after {steps}"),
            // It was stopped, or its store failed: another worker continues it.
            (Status::Running, Some(error)) => out!("{run} ({graph}) is left after {steps}: {error}"),
            (Status::Running, None) => out!("{run} ({graph}) is left after {steps}"),
            (status, Some(error)) if status != Status::Cancelled => {
                out!("{run} ({graph}) ended: {} after {steps}: {error}", status.name());
            }
            (status, _) => out!("{run} ({graph}) ended: {} after {steps}", status.name()),
        }
    }
}

impl Observer for Teller {
    fn observe(&self, event: &Event<'_>) {
        match event {
            Event::Recorded { run, records, .. }
                if records.first().is_some_and(|first| first.seq == 0) && RunStart::of(records).parent.is_some() =>
            {
                self.known().inside.insert((*run).clone());
            }
            Event::RunStarted { run, graph, steps, .. } => {
                let mut known = self.known();
                if !known.inside.contains(*run) {
                    known.runs.insert((*run).clone(), graph.as_str().to_owned());
                    drop(known);
                    self.begun(run, graph.as_str(), *steps);
                }
            }
            Event::RunEnded { run, status, steps, error, .. } => {
                let mut known = self.known();
                known.inside.remove(*run);
                let graph = known.runs.remove(*run);
                drop(known);
                if let Some(graph) = graph {
                    self.ended(run, &graph, *status, *steps, *error);
                }
            }
            _ => {}
        }
    }
}

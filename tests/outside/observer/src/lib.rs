//! An observer that reports on runs, written against the public items of `graph-runtime` only.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use graph_runtime::RunId;
use graph_runtime::machine::Kind;
use graph_runtime::observer::{Event, Observer};
use graph_runtime::record::{Entry, Record, Status};

/// A report on all runs. Clones see the same runs, so one is kept and one is given to the runtime.
#[derive(Debug, Clone, Default)]
pub struct Report {
    runs: Arc<Mutex<BTreeMap<RunId, RunReport>>>,
}

/// A report on one run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunReport {
    /// The graph's id.
    pub graph: String,
    /// The run that called it, if the store's records say so.
    pub parent: Option<RunId>,
    /// The visits in order.
    pub visits: Vec<VisitReport>,
    /// The visits that have begun and are not done yet.
    pub open: Vec<u64>,
    /// The number of committed records.
    pub records: u64,
    /// The status at its end; `None` while it is running.
    pub status: Option<Status>,
    /// The reason of its failure.
    pub error: Option<String>,
}

/// One visit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VisitReport {
    /// The number of the visit, from 1.
    pub step: u64,
    /// The name of the node.
    pub node: String,
    /// The node's kind, as a verb.
    pub does: &'static str,
    /// The reason of its failure.
    pub error: Option<String>,
    /// The state keys that this visit was the first to set.
    pub new_keys: Vec<String>,
}

impl Report {
    /// Makes a report without runs.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the reports so far, by run.
    pub fn runs(&self) -> BTreeMap<RunId, RunReport> {
        self.seen().clone()
    }

    fn seen(&self) -> MutexGuard<'_, BTreeMap<RunId, RunReport>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn does(kind: Kind) -> &'static str {
    match kind {
        Kind::Action(_) => "calls",
        Kind::Foreach(_) => "calls for each",
        Kind::Gate => "decides",
        Kind::Return => "returns",
        Kind::Start => "begins",
        Kind::Interrupt => "asks people",
        Kind::Wait => "waits",
    }
}

impl Observer for Report {
    fn observe(&self, event: &Event<'_>) {
        let mut runs = self.seen();
        let report = runs.entry(event.run().clone()).or_default();
        match event {
            Event::RunStarted { graph, .. } => report.graph = graph.to_string(),
            Event::StepStarted { step, .. } => report.open.push(*step),
            Event::StepCompleted { step, node, kind, error, new_keys, .. } => {
                report.open.retain(|open| open != step);
                report.visits.push(VisitReport {
                    step: *step,
                    node: (*node).to_owned(),
                    does: does(*kind),
                    error: error.map(str::to_owned),
                    new_keys: new_keys.to_vec(),
                });
            }
            Event::Recorded { records, .. } => {
                report.records += records.len() as u64;
                for record in records.iter() {
                    let Ok(record) = serde_json::from_str::<Record>(&record.body) else { continue };
                    if let Some(parent) = record.parent() {
                        report.parent = Some(parent.run.clone());
                    }
                    if let Entry::End(end) = record.entry {
                        report.error = end.error;
                    }
                }
            }
            Event::RunEnded { status, error, .. } => {
                report.status = Some(*status);
                report.error = error.map(str::to_owned).or(report.error.take());
            }
            // A later version may have more events.
            _ => {}
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (run, report) in self.seen().iter() {
            let status = report.status.map_or("at work", Status::name);
            writeln!(f, "{run}: {} {status}, {} visits", report.graph, report.visits.len())?;
            for VisitReport { step, node, does, error, .. } in &report.visits {
                let how = error.as_ref().map_or_else(String::new, |error| format!(": {error}"));
                writeln!(f, "  {step}. {node} {does}{how}")?;
            }
        }
        Ok(())
    }
}

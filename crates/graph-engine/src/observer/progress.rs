//! Progress lines for a person who waits.

use std::collections::HashMap;
use std::fmt;
use std::io::Write;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use graph_model::name::RunId;
use graph_model::program::Kind;
use graph_model::timestamp;

use crate::observer::{Event, Observer};
use crate::status::Status;

/// Writes a line for each step: `[graph:stats] step 2/3 count_lines ✓ 0.1s (+line_count)` (R302–R306).
///
/// ```
/// # use graph_engine as graph_runtime;
/// use graph_runtime::{Progress, Runtime};
///
/// let runtime = Runtime::builder().observer(Progress::stderr()).build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Progress {
    out: Mutex<Box<dyn Write + Send>>,
    /// For each running run: the graph's short name and its number of nodes.
    runs: Mutex<HashMap<RunId, (String, usize)>>,
}

impl Progress {
    /// Writes to stderr, or nothing at all if `RYE_GRAPH_QUIET` is set to a text that is not empty.
    pub fn stderr() -> Self {
        if std::env::var_os("RYE_GRAPH_QUIET").is_some_and(|value| !value.is_empty()) {
            Self::to(std::io::sink())
        } else {
            Self::to(std::io::stderr())
        }
    }

    /// Writes to `out`.
    pub fn to(out: impl Write + Send + 'static) -> Self {
        Self { out: Mutex::new(Box::new(out)), runs: Mutex::default() }
    }

    /// Writes one whole line. A line that cannot be written does not stop a run.
    fn line(&self, run: &RunId, text: fmt::Arguments<'_>) {
        let runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        let name = runs.get(run).map_or(run.as_str(), |(name, _)| name.as_str());
        let line = format!("[graph:{name}] {text}\n");
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = out.write_all(line.as_bytes()).and_then(|()| out.flush()) {
            tracing::debug!(%error, "a progress line could not be written");
        }
    }

    fn nodes(&self, run: &RunId) -> usize {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner).get(run).map_or(0, |(_, nodes)| *nodes)
    }
}

impl Observer for Progress {
    fn observe(&self, event: &Event<'_>) {
        match event {
            Event::RunStarted { run, graph, nodes, .. } => {
                let facts = (graph.stem().to_owned(), *nodes);
                self.runs.lock().unwrap_or_else(PoisonError::into_inner).insert((*run).clone(), facts);
            }
            // Only a node that calls a tool takes long enough to be announced.
            Event::StepStarted { run, step, node, kind: Kind::Action(_) } => {
                let nodes = self.nodes(run);
                self.line(run, format_args!("step {step}/{nodes} {node} ..."));
            }
            Event::WaitOpened { run, step, node, due } => {
                let nodes = self.nodes(run);
                let until = due.map_or_else(String::new, |due| format!(" (until {})", timestamp::seconds(due)));
                self.line(run, format_args!("step {step}/{nodes} {node} ⏸{until}"));
            }
            // It has told what it waits for.
            Event::RunEnded { status: Status::Waiting, .. } => {}
            Event::StepCompleted {
                run,
                step,
                node,
                kind,
                elapsed,
                total,
                error,
                cached,
                cancelled,
                new_keys,
                warnings,
                ..
            } => {
                let icon = match (error, kind) {
                    (Some(_), _) => "✗",
                    (None, _) if *cancelled => "⊘",
                    (None, Kind::Return) => "⏹",
                    (None, _) => "✓",
                };
                let detail = match (error, kind) {
                    (Some(error), _) => format!(" ({})", shorten(error)),
                    (None, _) if *cancelled => " (cancelled)".to_owned(),
                    (None, Kind::Gate) if new_keys.is_empty() => " (gate)".to_owned(),
                    (None, Kind::Foreach(_)) if new_keys.is_empty() => " (foreach)".to_owned(),
                    (None, _) if new_keys.is_empty() => String::new(),
                    (None, _) => format!(" (+{})", new_keys.join(", ")),
                };
                let detail = if *cached { format!(" (cached){detail}") } else { detail };
                let nodes = self.nodes(run);
                let elapsed = shown(if *kind == Kind::Return { *total } else { *elapsed });
                self.line(run, format_args!("step {step}/{nodes} {node} {icon}{elapsed}{detail}"));
                for warning in *warnings {
                    self.line(run, format_args!("step {step}/{nodes} {node} warning: {warning}"));
                }
            }
            Event::RunEnded { run, status, steps, elapsed, error, .. } => {
                let icon = if status.has_result() { "✓" } else { "✗" };
                let detail = error.map_or_else(|| format!("{steps} steps"), shorten);
                self.line(run, format_args!("done {icon}{} ({detail})", shown(*elapsed)));
            }
            Event::RunLeft { run } => {
                self.runs.lock().unwrap_or_else(PoisonError::into_inner).remove(*run);
            }
            _ => {}
        }
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Progress")
    }
}

/// Formats a duration for people; empty if it is too short to be shown (R303).
fn shown(elapsed: Duration) -> String {
    let seconds = elapsed.as_secs_f64();
    if seconds < 0.05 { String::new() } else { format!(" {seconds:.1}s") }
}

/// Returns the first line of an error, 80 characters at most (R304).
fn shorten(error: &str) -> String {
    let line = error.lines().next().unwrap_or_default();
    if line.chars().count() <= 80 { line.to_owned() } else { line.chars().take(79).chain(['…']).collect() }
}

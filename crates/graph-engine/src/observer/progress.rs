//! Progress lines for a person who waits.

use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::io::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use graph_model::character::is_invisible;
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
    printer: Mutex<Printer>,
}

struct Printer {
    out: Box<dyn Write + Send>,
    /// For each running run: the graph's short name and its number of nodes.
    runs: HashMap<RunId, (String, usize)>,
    /// The last line that was written.
    line: String,
}

/// The maximum number of characters in a line.
const MOST_IN_LINE: usize = 1_000;

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
        let printer = Printer { out: Box::new(out), runs: HashMap::new(), line: String::new() };
        Self { printer: Mutex::new(printer) }
    }

    fn printer(&self) -> MutexGuard<'_, Printer> {
        self.printer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Printer {
    /// Writes a line about a run.
    fn about(&mut self, run: &RunId, text: fmt::Arguments<'_>) {
        let name = self.runs.get(run).map_or(run.as_str(), |(name, _)| name.as_str());
        self.line.clear();
        self.line.write_fmt(format_args!("[graph:{name}] {text}")).ok();
        self.write();
    }

    /// Writes a line about a step of a run.
    fn step(&mut self, run: &RunId, step: u64, text: fmt::Arguments<'_>) {
        let (name, nodes) = self.runs.get(run).map_or((run.as_str(), 0), |(name, nodes)| (name.as_str(), *nodes));
        self.line.clear();
        // In a loop there are more steps than nodes.
        let of = if step <= nodes as u64 { format!("/{nodes}") } else { String::new() };
        self.line.write_fmt(format_args!("[graph:{name}] step {step}{of} {text}")).ok();
        self.write();
    }

    /// Writes the line as a whole. One that cannot be written does not stop a run.
    fn write(&mut self) {
        // Errors and warnings are texts of tools, and no terminal may obey them.
        let mut line = String::with_capacity(self.line.len() + 1);
        for character in self.line.chars().take(MOST_IN_LINE) {
            if character.is_control() || is_invisible(character) {
                line.extend(character.escape_unicode());
            } else {
                line.push(character);
            }
        }
        line.push('\n');
        if let Err(error) = self.out.write_all(line.as_bytes()).and_then(|()| self.out.flush()) {
            tracing::debug!(%error, "a progress line could not be written");
        }
    }
}

impl Observer for Progress {
    fn observe(&self, event: &Event<'_>) {
        match event {
            Event::RunStarted { run, graph, nodes, .. } => {
                let facts = (graph.stem().to_owned(), *nodes);
                self.printer().runs.insert((*run).clone(), facts);
            }
            // Only a node that calls a tool takes long enough to be announced.
            Event::StepStarted { run, step, node, kind: Kind::Action(_) } => {
                self.printer().step(run, *step, format_args!("{node} ..."));
            }
            Event::WaitOpened { run, step, node, due } => {
                let until = due.map_or_else(String::new, |due| format!(" (until {})", timestamp::seconds(due)));
                self.printer().step(run, *step, format_args!("{node} ⏸{until}"));
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
                let hit = if *cached { " (cached)" } else { "" };
                let elapsed = shown(if *kind == Kind::Return { *total } else { *elapsed });
                let mut printer = self.printer();
                printer.step(run, *step, format_args!("{node} {icon}{elapsed}{hit}{detail}"));
                for warning in *warnings {
                    printer.step(run, *step, format_args!("{node} warning: {warning}"));
                }
            }
            Event::RunEnded { run, status, steps, elapsed, error, .. } => {
                // A single node is done, and a run would continue.
                let continues = *status == Status::Running && error.is_none();
                let icon = if status.has_result() || continues { "✓" } else { "✗" };
                let detail = error.map_or_else(|| format!("{steps} steps"), shorten);
                self.printer().about(run, format_args!("done {icon}{} ({detail})", shown(*elapsed)));
            }
            Event::RunLeft { run } => {
                self.printer().runs.remove(*run);
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

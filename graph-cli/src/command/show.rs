//! `graph show`: list the steps of a run, or show its state after one; and `graph diff`.

use std::path::PathBuf;

use clap::Args;
use graph_model::timestamp;
use graph_runtime::history::{Checkpoint, EditSummary, HistoryEntry, Visited, checkpoints, differences, entry_at};
use graph_runtime::{RecordedOutcome, RunId, recorded_outcome};
use serde_json::{Value, json};

use super::stored_run::{OpenedStore, StoredRunArguments, own_graph, start_of};
use crate::outcome::{CommandOutcome, CommandResult, Error};
use crate::output;

#[derive(Args)]
pub(crate) struct ShowArguments {
    /// The run
    #[arg(value_name = "RUN", value_parser = |text: &str| RunId::new(text))]
    run: RunId,
    /// Show the state after this many visits, in place of the list of steps
    #[arg(long, value_name = "N")]
    step: Option<u64>,
    /// The file of the run's graph; given several times, of its versions, of which the run's own is taken [default: found by its id in
    /// the tree `graphs`]
    #[arg(long, value_name = "FILE")]
    graph: Vec<PathBuf>,
    #[command(flatten)]
    stored_run: StoredRunArguments,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &ShowArguments) -> CommandResult {
    let opened = arguments.stored_run.open()?;
    if let Some(step) = arguments.step {
        let entry = entry_of(&opened, &arguments.run, Some(step), &arguments.graph)?;
        if arguments.json {
            out_json!(entry_json(&arguments.run, &entry));
        } else {
            say_entry(&arguments.run, &entry);
        }
        return Ok(CommandOutcome::Well);
    }
    let records = opened.tokio.block_on(opened.store.load(&arguments.run))?;
    let all = checkpoints(&arguments.run, &records, &opened.key).map_err(|error| of_run(&arguments.run, error))?;
    let (graph, entry) = start_of(&records).map(|start| (start.graph, start.entry)).unwrap_or_default();
    let outcome = recorded_outcome(&*opened.store, &arguments.run, &opened.key);
    let outcome = opened.tokio.block_on(outcome).map_err(|error| of_run(&arguments.run, error))?;
    if arguments.json {
        let list: Vec<Value> = all.iter().map(checkpoint_json).collect();
        let RecordedOutcome { digest, meaning, status, output, error, node, code, .. } = &outcome;
        let meaning = meaning.map(|meaning| meaning.to_hex());
        let outcome = json!({"status": status.name(), "output": output, "error": error, "node": node, "code": code});
        out_json!(json!({
            "run": arguments.run, "graph": graph, "digest": digest.to_hex(), "meaning": meaning, "entry": entry,
            "checkpoints": list, "outcome": outcome,
        }));
    } else {
        let from = entry.map_or_else(String::new, |entry| format!(", from the entry `{entry}`"));
        out!("{} of `{graph}`{from}", arguments.run);
        table(&all);
    }
    Ok(CommandOutcome::Well)
}

fn of_run(run: &RunId, error: impl std::error::Error + 'static) -> Error {
    Error::new(format!("run {run}: {}", Error::from(error)))
}

/// Returns the state and the position of a run after a step.
fn entry_of(opened: &OpenedStore, run: &RunId, step: Option<u64>, graph: &[PathBuf]) -> Result<HistoryEntry, Error> {
    let OpenedStore { tokio, store, key, encryption_key, .. } = opened;
    let records = tokio.block_on(store.load(run))?;
    let machine = own_graph(&records, graph, "--graph")?;
    entry_at(&machine, run, &records, key, encryption_key.as_ref(), step).map_err(|error| of_run(run, error))
}

fn entry_json(run: &RunId, entry: &HistoryEntry) -> Value {
    let HistoryEntry { step, at, state, next, last, errors, .. } = entry;
    json!({"run": run, "step": step, "at": at, "last": last, "next": next, "state": state, "errors": errors})
}

fn say_entry(run: &RunId, entry: &HistoryEntry) {
    let nodes = |nodes: &[String]| format!("`{}`", nodes.join("`, `"));
    let last = entry.last.as_ref().map_or(String::new(), |last| format!(", behind `{last}`"));
    let next = if entry.next.is_empty() { "its end".to_owned() } else { nodes(&entry.next) };
    out!("{run} after {} steps{last}, at {}; next is {next}", entry.step, entry.at);
    for error in &entry.errors {
        out!("continued after step {}, where `{}` failed: {}", error.step, error.node, error.error);
    }
    out_json!(entry.state);
}

fn checkpoint_json(one: &Checkpoint) -> Value {
    let Checkpoint { step, record, at, visits, next, status, error, edits, .. } = one;
    let visit = |visit: &Visited| {
        let Visited { node, written, edge, error, cached, cancelled, held, late, opened, run, ms, .. } = visit;
        json!({
            "node": node, "written": written, "edge": edge, "error": error, "cached": cached, "cancelled": cancelled,
            "held": held, "late": late, "opened": opened, "run": run, "ms": ms,
        })
    };
    let visits: Vec<Value> = visits.iter().map(visit).collect();
    let edits: Vec<Value> = edits.iter().map(edit_json).collect();
    json!({
        "step": step, "record": record, "at": at, "visits": visits, "next": next, "status": status.name(), "error": error,
        "edits": edits,
    })
}

/// Returns an edit as the verbs about runs print it.
pub(super) fn edit_json(edit: &EditSummary) -> Value {
    let EditSummary { record, at, step, by, why, set, written, .. } = edit;
    json!({"record": record, "at": at, "step": step, "by": by, "why": why, "set": set, "written": written})
}

/// Describes an edit in one line.
pub(super) fn edit_text(edit: &EditSummary) -> String {
    let EditSummary { at, step, by, why, set, written, .. } = edit;
    let keys: Vec<String> = set.iter().chain(written).map(|key| format!("`{key}`")).collect();
    format!("edited after step {step}, at {at}: {} by {by}: {why}", keys.join(", "))
}

/// Prints a line for each visit.
fn table(all: &[Checkpoint]) {
    let head = ["step", "time", "node", "edge", "ms", "wrote", "next"].map(str::to_owned);
    let mut rows: Vec<[String; 7]> = vec![head];
    for one in all {
        let next = match (&one.error, one.next.as_slice()) {
            (Some(error), _) => format!("{} ({}: {error})", one.next.join(", "), one.status.name()),
            (None, []) => one.status.name().to_owned(),
            (None, next) => next.join(", "),
        };
        // The row after which the run ended: that of the step, or of the last edit before the end.
        let ends_at = one.edits.iter().rposition(|edit| one.end.is_some_and(|end| end > edit.record));
        let plain = one.next.join(", ");
        let edits = one.edits.iter().enumerate().map(|(at, edit)| {
            let wrote = edit.set.iter().chain(&edit.written).cloned().collect::<Vec<_>>().join(", ");
            let node = format!("(edited by {}: {})", edit.by, edit.why);
            let next = if ends_at == Some(at) { next.clone() } else { plain.clone() };
            [one.step.to_string(), edit.at.clone(), node, String::new(), String::new(), wrote, next]
        });
        let edits: Vec<[String; 7]> = edits.collect();
        let next = if ends_at.is_some() { plain } else { next };
        if one.visits.is_empty() {
            let at = one.at.clone();
            rows.push([
                one.step.to_string(),
                at,
                String::new(),
                String::new(),
                String::new(),
                String::new(),
                next.clone(),
            ]);
        }
        let counts = |visit: &&Visited| !visit.held && visit.opened.is_none();
        let mut step = one.step - one.visits.iter().filter(counts).count() as u64;
        for visit in &one.visits {
            step += u64::from(counts(&visit));
            let number = if counts(&visit) { step.to_string() } else { String::new() };
            let came = match (&visit.error, visit.cached) {
                _ if visit.opened.is_some() => waits_until(visit),
                (Some(error), _) => format!(" (failed: {error})"),
                (None, _) if visit.cancelled => " (cancelled)".to_owned(),
                (None, true) => " (cached)".to_owned(),
                (None, false) => String::new(),
            };
            rows.push([
                number,
                one.at.clone(),
                format!("{}{}{came}", visit.node, if visit.late { " (late)" } else { "" }),
                visit.edge.map_or(String::new(), |edge| edge.to_string()),
                visit.ms.to_string(),
                visit.written.join(", "),
                next.clone(),
            ]);
        }
        rows.extend(edits);
    }
    rows.iter_mut().flatten().for_each(first_line);
    output::write_table(&rows, 7);
}

/// Says until when a visit waits.
fn waits_until(visit: &Visited) -> String {
    let due = visit.opened.as_ref().and_then(|opened| opened.next_due()).map(timestamp::from_unix_milliseconds);
    due.map_or_else(|| " (waits)".to_owned(), |due| format!(" (waits until {})", timestamp::milliseconds(due)))
}

/// Cuts a text to its first line.
fn first_line(cell: &mut String) {
    if let Some(end) = cell.find(['\n', '\r']) {
        cell.truncate(end);
        cell.push('…');
    }
}

#[derive(Args)]
pub(crate) struct DiffArguments {
    /// The run; or a run and a step, such as `RUN@3`, or `RUN@` for its last step
    #[arg(value_name = "RUN")]
    first: String,
    /// The first step; or the other run and step
    #[arg(value_name = "A")]
    second: String,
    /// The second step
    #[arg(value_name = "B")]
    third: Option<u64>,
    /// The file of the graph of both runs; given several times, of its versions [default: found by their ids in the tree `graphs`]
    #[arg(long, value_name = "FILE")]
    graph: Vec<PathBuf>,
    #[command(flatten)]
    stored_run: StoredRunArguments,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// A run and one of its steps.
type StepPlace = (RunId, Option<u64>);

impl DiffArguments {
    /// Returns the two steps to compare.
    fn places(&self) -> Result<(StepPlace, StepPlace), Error> {
        let wrong = "name a run and two steps, as `RUN 1 2`, or two runs with a step each, as `RUN@1 OTHER@2`";
        let run = |text: &str| RunId::new(text).map_err(Error::from);
        let number =
            |text: &str| text.parse::<u64>().map_err(|_| Error::new(format!("`{text}` is not a step; {wrong}")));
        if let Some(third) = self.third {
            let run = run(&self.first)?;
            return Ok(((run.clone(), Some(number(&self.second)?)), (run, Some(third))));
        }
        let place = |text: &str| -> Result<StepPlace, Error> {
            let (name, step) = text.split_once('@').ok_or_else(|| Error::new(wrong))?;
            Ok((run(name)?, if step.is_empty() { None } else { Some(number(step)?) }))
        };
        Ok((place(&self.first)?, place(&self.second)?))
    }
}

pub(crate) fn diff(arguments: &DiffArguments) -> CommandResult {
    let (first, second) = arguments.places()?;
    let opened = arguments.stored_run.open()?;
    let entry_at = |(run, step): &StepPlace| entry_of(&opened, run, *step, &arguments.graph);
    let (before, after) = (entry_at(&first)?, entry_at(&second)?);
    let mut found = differences(&before.state, &after.state);
    found.extend(differences(&json!({"next": before.next}), &json!({"next": after.next})));
    if arguments.json {
        let list: Vec<Value> =
            found.iter().map(|one| json!({"path": one.path, "before": one.before, "after": one.after})).collect();
        let place = |(run, _): &StepPlace, entry: &HistoryEntry| json!({"run": run, "step": entry.step});
        let (before, after) = (place(&first, &before), place(&second, &after));
        out_json!(json!({"before": before, "after": after, "differences": list}));
    } else if found.is_empty() {
        out!("nothing differs");
    } else {
        let shown = |value: &Option<Value>| value.as_ref().map_or("nothing".to_owned(), ToString::to_string);
        for one in &found {
            out!("{}: {} → {}", one.path, shown(&one.before), shown(&one.after));
        }
    }
    Ok(CommandOutcome::of(found.is_empty()))
}

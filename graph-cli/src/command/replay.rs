//! `graph replay`: find where a run would have gone differently with a changed graph.

use std::path::PathBuf;

use clap::Args;
use graph_runtime::RunId;
use graph_runtime::history::{Departure, Deviation, PastError, Replay, replay};
use serde_json::{Value, json};

use super::stored_run::{OpenedStore, StoredRunArguments, load, own_graph};
use crate::outcome::{CommandOutcome, CommandResult, Error};

#[derive(Args)]
pub(crate) struct ReplayArguments {
    /// The run
    #[arg(value_name = "RUN", value_parser = |text: &str| RunId::new(text))]
    run: RunId,
    /// The changed graph's file
    #[arg(long, value_name = "FILE")]
    graph: PathBuf,
    /// The file of the run's own graph; given several times, of its versions, of which the run's own is taken [default: found by its
    /// id in the tree `graphs`]
    #[arg(long, value_name = "FILE")]
    original: Vec<PathBuf>,
    #[command(flatten)]
    stored_run: StoredRunArguments,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &ReplayArguments) -> CommandResult {
    let OpenedStore { tokio, store, key, encryption_key, .. } = arguments.stored_run.open()?;
    let records = tokio.block_on(store.load(&arguments.run))?;
    let original = own_graph(&records, &arguments.original, "--original")?;
    let changed = load(&arguments.graph)?;
    let replayed = replay(&original, &changed, &arguments.run, &records, &key, encryption_key.as_ref());
    let replayed = replayed.map_err(|error| {
        let is_another = matches!(error, PastError::Journal(_)) && arguments.original.is_empty();
        let help = "; if the graph was changed since, name the file as it was with `--original`";
        let run = &arguments.run;
        Error::new(format!("run {run}: {}{}", Error::from(error), if is_another { help } else { "" }))
    })?;
    if arguments.json {
        out_json!(as_json(&arguments.run, &replayed));
    } else {
        say(&arguments.run, &replayed);
    }
    Ok(CommandOutcome::of(replayed.deviations.is_empty() && replayed.stopped.is_none()))
}

fn say(run: &RunId, replayed: &Replay) {
    for Deviation { step, node, recorded, departure, .. } in &replayed.deviations {
        let recorded = match recorded {
            Some(recorded) if recorded != step => format!(" (step {recorded} of the run)"),
            _ => String::new(),
        };
        let node = if node.is_empty() { String::new() } else { format!(" `{node}`") };
        out!("step {step}{recorded}:{node} {departure}");
    }
    if let Some(stopped) = &replayed.stopped {
        out!("step {}: `{}` cannot be followed any further: {}", stopped.step, stopped.node, stopped.reason);
    }
    if replayed.deviations.is_empty() && replayed.stopped.is_none() {
        out!("{run} would have taken the same path: {} steps", replayed.visits);
    }
}

fn as_json(run: &RunId, replayed: &Replay) -> Value {
    let deviation = |one: &Deviation| {
        let (kind, facts) = departure(&one.departure);
        let says = one.departure.to_string();
        json!({"step": one.step, "node": one.node, "recorded": one.recorded, "kind": kind, "facts": facts, "says": says})
    };
    let deviations: Vec<Value> = replayed.deviations.iter().map(deviation).collect();
    let stopped = replayed.stopped.as_ref();
    let stopped = stopped.map(|stopped| json!({"step": stopped.step, "node": stopped.node, "reason": stopped.reason}));
    json!({
        "run": run,
        "same": replayed.deviations.is_empty() && replayed.stopped.is_none(),
        "visits": replayed.visits,
        "deviations": deviations,
        "stopped": stopped,
        "output": replayed.output,
    })
}

fn departure(departure: &Departure) -> (&'static str, Value) {
    let call = |call: &(String, Option<Value>)| json!({"tool": call.0, "arguments": call.1});
    match departure {
        Departure::Inputs(reason) => ("inputs", json!({"reason": reason})),
        Departure::Visits => ("visits", Value::Null),
        Departure::Skips(nodes) => ("skips", json!({"nodes": nodes})),
        Departure::Calls { item, recorded, now } => {
            ("calls", json!({"item": item, "recorded": recorded.as_ref().map(call), "now": call(now)}))
        }
        Departure::Writes { key, recorded, now } => ("writes", json!({"key": key, "recorded": recorded, "now": now})),
        Departure::Leads { recorded, now } => ("leads", json!({"recorded": recorded, "now": now})),
        Departure::Fails(error) => ("fails", json!({"error": error})),
        Departure::Ends { recorded, now } => ("ends", json!({"recorded": recorded.name(), "now": now.name()})),
        Departure::Returns(found) => {
            let one = |one: &graph_runtime::history::Difference| json!({"path": one.path, "recorded": one.before, "now": one.after});
            ("returns", found.iter().map(one).collect())
        }
        _ => ("other", Value::Null),
    }
}

//! `graph schedules`: list the schedules of a tree.

use std::path::PathBuf;
use std::time::SystemTime;

use clap::Args;
use graph_model::timestamp::{from_unix_milliseconds, seconds, unix_milliseconds};
use graph_runtime::dynamic::{Library, Toolbox};
use graph_runtime::store::StoreError;
use graph_runtime::{Schedule, ScheduleState, SqliteStore, Status, Store};
use serde_json::{Value, json};

use super::stored::{self, Access};
use crate::outcome::{CommandOutcome, CommandResult, Error};
use crate::output;

#[derive(Args)]
pub(crate) struct SchedulesArguments {
    /// The tree of the graphs, whose file `graphs.toml` has the schedules
    #[arg(value_name = "DIRECTORY", default_value = "graphs")]
    directory: PathBuf,
    /// The SQLite file that holds the runs; with it, the last tick of each schedule is shown
    #[arg(long, value_name = "FILE")]
    store: Option<PathBuf>,
    /// How many of the next ticks of each schedule are shown
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    next: u32,
    /// Print them as JSON
    #[arg(long)]
    json: bool,
}

/// A schedule, with what the store knows of it.
struct Listed {
    schedule: Schedule,
    next: Vec<i64>,
    known: Option<Known>,
}

struct Known {
    state: ScheduleState,
    /// The status of the run that was started last; `None` if it was removed.
    status: Option<Status>,
}

pub(crate) fn run(arguments: &SchedulesArguments) -> CommandResult {
    let directory = &arguments.directory;
    if !directory.is_dir() {
        return Err(Error::new(format!("there is no directory `{}`", directory.display())));
    }
    let directory = directory.canonicalize().map_err(|error| Error::file("read", directory, &error))?;
    // Messages name files relative to the working directory, if the tree is inside.
    let around = Library::around(&std::env::current_dir()?, &directory.join("graphs.toml"), Toolbox::new());
    let library = if around.root() == directory { around } else { Library::open(&directory, Toolbox::new()) };
    let schedules = match library.schedules() {
        Ok(schedules) => schedules,
        Err(error) => {
            for diagnostic in &error.diagnostics {
                err_coloured!(diagnostic);
            }
            return Ok(CommandOutcome::Problems);
        }
    };
    let listed = stored::tokio()?.block_on(list(arguments, schedules))?;
    if arguments.json {
        let shown: Vec<Value> = listed.iter().map(shown).collect();
        out_json!(json!({"success": true, "schedules": shown, "count": shown.len()}));
        return Ok(CommandOutcome::Well);
    }
    let head = ["schedule", "graph", "cron", "zone", "next", "last", "run"].map(str::to_owned);
    let rows: Vec<[String; 7]> = std::iter::once(head).chain(listed.iter().flat_map(rows)).collect();
    output::write_table(&rows, 7);
    Ok(CommandOutcome::Well)
}

async fn list(arguments: &SchedulesArguments, schedules: Vec<Schedule>) -> Result<Vec<Listed>, Error> {
    let store = match &arguments.store {
        Some(path) => Some(stored::open(path, Access::Read).await?),
        None => None,
    };
    let now = match &store {
        Some(store) => store.now().await?,
        None => unix_milliseconds(SystemTime::now()),
    };
    let mut listed = Vec::new();
    for schedule in schedules {
        let known = match &store {
            Some(store) => known(store, &schedule).await?,
            None => None,
        };
        // A tick that is due and was not handled comes first.
        let is_current = |known: &&Known| is_current(&schedule, &known.state);
        let since = known.as_ref().filter(is_current).map_or(now, |known| known.state.last);
        let ticks = std::iter::successors(schedule.timetable().after(since), |tick| schedule.timetable().after(*tick));
        let next = ticks.take(usize::try_from(arguments.next).unwrap_or(usize::MAX)).collect();
        listed.push(Listed { schedule, next, known });
    }
    Ok(listed)
}

async fn known(store: &SqliteStore, schedule: &Schedule) -> Result<Option<Known>, Error> {
    let Some(state) = schedule.state(store).await? else { return Ok(None) };
    let status = match state.run_id(schedule.id()) {
        Some(run) => match store.find(&run).await {
            Ok(found) => Some(found.status),
            Err(StoreError::NotFound(_)) => None,
            Err(error) => return Err(error.into()),
        },
        None => None,
    };
    Ok(Some(Known { state, status }))
}

/// Whether the workers of the store run the schedule at the times that the tree has.
fn is_current(schedule: &Schedule, state: &ScheduleState) -> bool {
    state.cron == schedule.timetable().cron() && state.zone == schedule.timetable().zone()
}

fn utc(tick: i64) -> String {
    seconds(from_unix_milliseconds(tick))
}

fn shown(listed: &Listed) -> Value {
    let Listed { schedule, next, known } = listed;
    let timetable = schedule.timetable();
    let last = known.as_ref().and_then(|known| {
        let tick = known.state.run?;
        Some(json!({
            "tick": utc(tick),
            "run_id": schedule.id().run(tick),
            "status": known.status.map(Status::name),
        }))
    });
    json!({
        "id": schedule.id(),
        "graph": schedule.graph(),
        "cron": timetable.cron(),
        "zone": timetable.zone(),
        "overlap": schedule.on_overlap().name(),
        "catch_up": schedule.on_missed().to_string(),
        "next": next.iter().map(|tick| utc(*tick)).collect::<Vec<_>>(),
        "last": last,
        "queued": known.as_ref().map(|known| known.state.queued.iter().map(|tick| utc(*tick)).collect::<Vec<_>>()),
        "started": known.as_ref().map(|known| known.state.started),
        "skipped": known.as_ref().map(|known| known.state.skipped),
        "current": known.as_ref().map(|known| is_current(schedule, &known.state)),
    })
}

/// Returns the lines of a schedule: one, and another for each of its next ticks after the first.
fn rows(listed: &Listed) -> Vec<[String; 7]> {
    let Listed { schedule, next, known } = listed;
    let timetable = schedule.timetable();
    let mut next = next.iter().map(|tick| timetable.local(*tick));
    let (last, run) = match known {
        None => (String::new(), String::new()),
        Some(Known { state, status }) => {
            let status = status.map_or("removed", Status::name);
            let run = state.run_id(schedule.id()).map(|run| format!("{run} ({status})"));
            (state.run.map_or_else(String::new, |tick| timetable.local(tick)), run.unwrap_or_default())
        }
    };
    let first = [
        schedule.id().to_string(),
        schedule.graph().to_string(),
        timetable.cron().to_owned(),
        timetable.zone().to_owned(),
        next.next().unwrap_or_else(|| "never".to_owned()),
        last,
        run,
    ];
    let others = next.map(|tick| {
        let mut row: [String; 7] = Default::default();
        row[4] = tick;
        row
    });
    std::iter::once(first).chain(others).collect()
}

//! `graph inbox`: list what the runs of a store ask people.

use std::path::PathBuf;
use std::time::SystemTime;

use clap::Args;
use graph_model::timestamp;
use graph_runtime::store::{Ask, Cursor, Page, WaitFilter, WaitPage, WaitRow};
use graph_runtime::{RunId, Store, Value};
use serde_json::json;

use super::stored::{self, Access};
use crate::outcome::{CommandOutcome, CommandResult, Error};

#[derive(Args)]
pub(crate) struct InboxArguments {
    /// The SQLite file that holds the runs
    #[arg(long, value_name = "FILE")]
    store: PathBuf,
    /// Only what people with this role are asked
    #[arg(long, value_name = "ROLE")]
    role: Option<String>,
    /// Only what runs of this graph ask, by its id
    #[arg(long, value_name = "ID")]
    graph: Option<String>,
    /// Only what this run asks
    #[arg(long, value_name = "RUN", value_parser = |text: &str| RunId::new(text))]
    run: Option<RunId>,
    /// Only what must be answered before this time, as `2026-11-21T20:00:00+01:00`
    #[arg(long, value_name = "TIME", value_parser = time)]
    due_before: Option<SystemTime>,
    /// The maximum number of questions
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
    /// Continue behind the last question of an earlier list: its `next`
    #[arg(long, value_name = "CURSOR")]
    after: Option<String>,
    /// Print them as JSON
    #[arg(long)]
    json: bool,
}

fn time(text: &str) -> Result<SystemTime, String> {
    timestamp::with_offset(text)
        .ok_or_else(|| "a time is a date and a time with an offset, as `2026-11-21T20:00:00+01:00`".to_owned())
}

pub(crate) fn run(arguments: &InboxArguments) -> CommandResult {
    let filter = WaitFilter {
        asks: true,
        role: arguments.role.clone(),
        graph: arguments.graph.clone(),
        run: arguments.run.clone(),
        due_before: arguments.due_before.map(timestamp::unix_milliseconds),
        signal: None,
    };
    let page = Page { size: arguments.limit as usize, after: arguments.after.clone().map(Cursor::new) };
    let WaitPage { waits, next } = stored::tokio()?.block_on(async {
        let store = stored::open(&arguments.store, Access::Read).await?;
        Ok::<_, Error>(store.open_waits(&filter, &page).await?)
    })?;
    if arguments.json {
        let open: Vec<Value> = waits.iter().filter_map(shown).collect();
        out!(
            "{:#}",
            json!({"success": true, "open": open, "count": waits.len(), "next": next.as_ref().map(Cursor::as_str)})
        );
        return Ok(CommandOutcome::Well);
    }
    let head = ["run", "wait", "node", "graph", "role", "sign", "until", "asks"].map(str::to_owned);
    let rows: Vec<[String; 8]> = std::iter::once(head).chain(waits.iter().filter_map(row)).collect();
    let widths: [usize; 8] =
        std::array::from_fn(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default());
    for row in &rows {
        let line: Vec<String> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        out!("{}", line.join("  ").trim_end());
    }
    if let Some(next) = next {
        out!("there are more: `--after '{}'`", next.as_str());
    }
    Ok(CommandOutcome::Well)
}

fn shown_time(at: i64) -> String {
    timestamp::milliseconds(timestamp::from_unix_milliseconds(at))
}

fn shown(row: &WaitRow) -> Option<Value> {
    let WaitRow { run, graph, wait, .. } = row;
    let Ask { role, count, payload, .. } = wait.ask.as_ref()?;
    Some(json!({
        "run_id": run,
        "wait": wait.id.as_str(),
        "node": wait.node,
        "graph": graph,
        "nested_graph": wait.graph.as_ref().map(|graph| &graph.id),
        "role": role,
        "count": count,
        "opened": shown_time(wait.opened),
        "due": wait.due.map(shown_time),
        "payload": serde_json::from_str::<Value>(payload).unwrap_or_default(),
    }))
}

fn row(row: &WaitRow) -> Option<[String; 8]> {
    let WaitRow { run, graph, wait, .. } = row;
    let Ask { role, count, payload, .. } = wait.ask.as_ref()?;
    Some([
        run.to_string(),
        wait.id.to_string(),
        wait.node.clone(),
        graph.clone(),
        role.clone().unwrap_or_else(|| "anybody".to_owned()),
        count.to_string(),
        wait.due.map_or_else(String::new, shown_time),
        super::plain(payload),
    ])
}

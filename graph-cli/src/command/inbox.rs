//! `graph inbox`: list what the runs of a store ask people.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clap::Args;
use graph_model::timestamp;
use graph_runtime::answer::Proposal;
use graph_runtime::store::{Ask, Cursor, Page, WaitFilter, WaitPage, WaitRow};
use graph_runtime::{RunId, Store, Value};
use serde_json::json;

use super::stored::{self, Access};
use crate::outcome::{CommandOutcome, CommandResult, Error};
use crate::output;

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
    #[arg(long, value_name = "TIME", value_parser = stored::time)]
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
    let (WaitPage { waits, next, .. }, proposed) = stored::tokio()?.block_on(async {
        let store = stored::open(&arguments.store, Access::Read).await?;
        let page = store.open_waits(&filter, &page).await?;
        let proposed = proposals(&arguments.store, &page.waits).await;
        Ok::<_, Error>((page, proposed))
    })?;
    let waits = || waits.iter().zip(&proposed);
    if arguments.json {
        let open: Vec<Value> = waits().filter_map(|(row, proposed)| shown(row, proposed)).collect();
        out_json!(
            json!({"success": true, "open": open, "count": open.len(), "next": next.as_ref().map(Cursor::as_str)})
        );
        return Ok(CommandOutcome::Well);
    }
    let head = ["run", "wait", "node", "graph", "role", "sign", "until", "asks"].map(str::to_owned);
    let rows: Vec<[String; 8]> =
        std::iter::once(head).chain(waits().filter_map(|(one, proposed)| row(one, proposed))).collect();
    output::write_table(&rows, 8);
    if let Some(next) = next {
        out!("there are more: `--after '{}'`", next.as_str());
    }
    Ok(CommandOutcome::Well)
}

/// Returns the answers to the questions of several people that too few have signed, for each of these waits. An inbox is read with the
/// time of the store, which is written; in a store that can only be read, none are known.
async fn proposals(path: &Path, waits: &[WaitRow]) -> Vec<Vec<Proposal>> {
    let is_of_several = |row: &WaitRow| row.wait.ask.as_ref().is_some_and(|ask| ask.count > 1);
    let mut all = vec![Vec::new(); waits.len()];
    if !waits.iter().any(is_of_several) {
        return all;
    }
    let Ok(store) = stored::open(path, Access::Write).await else { return all };
    for (found, row) in all.iter_mut().zip(waits).filter(|(_, row)| is_of_several(row)) {
        if let Ok(inbox) = store.inbox(&row.run).await {
            *found = Proposal::all(&inbox, row.wait.id.as_str(), None);
        }
    }
    all
}

fn shown_time(at: i64) -> String {
    timestamp::milliseconds(timestamp::from_unix_milliseconds(at))
}

fn shown(row: &WaitRow, proposed: &[Proposal]) -> Option<Value> {
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
        "proposed": proposed.iter().map(proposal).collect::<Vec<Value>>(),
    }))
}

fn proposal(proposal: &Proposal) -> Value {
    json!({"answer": proposal.answer, "keys": proposal.keys})
}

/// Returns how many sign, and how many have signed the answer that most of them have signed.
fn signers(count: u32, proposed: &[Proposal]) -> String {
    match proposed.iter().map(|proposal| proposal.keys.len()).max() {
        Some(have) => format!("{have} of {count}"),
        None => count.to_string(),
    }
}

/// The maximum number of characters of a text in a question.
const MOST_IN_QUESTION: usize = 60;

/// Returns a question as its cell of the table shows it.
fn question(payload: &str) -> String {
    let value: Option<Value> = serde_json::from_str(payload).ok();
    value.map_or_else(|| payload.to_owned(), |value| output::question_line(&value, MOST_IN_QUESTION))
}

fn row(row: &WaitRow, proposed: &[Proposal]) -> Option<[String; 8]> {
    let WaitRow { run, graph, wait, .. } = row;
    let Ask { role, count, payload, .. } = wait.ask.as_ref()?;
    Some([
        run.to_string(),
        wait.id.to_string(),
        wait.node.clone(),
        graph.clone(),
        role.clone().unwrap_or_else(|| "anybody".to_owned()),
        signers(*count, proposed),
        wait.due.map_or_else(String::new, shown_time),
        question(payload),
    ])
}

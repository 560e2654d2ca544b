//! Lists of runs and of open questions.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use graph_model::timestamp;
use graph_runtime::RunId;
use graph_runtime::record::Status;
use graph_runtime::store::{
    Ask, Cursor, Page, RunFilter, RunPage, RunSummary, StoreError, WaitFilter, WaitRow, Within,
};
use serde_json::{Value, json};

use crate::problem::ViewProblem;
use crate::query::Query;
use crate::source::{FileStamp, Source};

/// The most runs of one answer.
const MOST_RUNS: usize = 200;

/// The summary of a run among files, or the reason that its journal has none.
type Filed = Result<RunSummary, String>;

/// The summaries of the runs among files, which are read again only when their files change.
#[derive(Default)]
pub(crate) struct FiledRuns {
    known: Mutex<HashMap<RunId, FiledRun>>,
}

/// The summary of a run among files, and the state of the file that it was read from.
struct FiledRun {
    stamp: FileStamp,
    filed: Filed,
}

/// Returns a run of a list.
pub(crate) fn summary(run: &RunSummary) -> Value {
    let time = |time: Option<_>| time.map(timestamp::milliseconds);
    json!({
        "run": run.run,
        "graph": run.graph,
        "version": run.version,
        "status": run.status.name(),
        "records": run.records,
        "created": time(run.created),
        "updated": time(run.updated),
        "parent": run.parent,
        "alive": run.holder.is_some(),
        "holder": run.holder.as_ref().map(ToString::to_string),
        "cancelling": run.is_cancelling,
        "code": run.code,
        "due": time(run.next_due),
        "digest": run.digest.map(|digest| digest.to_hex()),
        "meaning": run.meaning.map(|meaning| meaning.to_hex()),
    })
}

/// Reads the filter of a list.
fn filter(query: &Query) -> Result<RunFilter, ViewProblem> {
    let mut statuses = Vec::new();
    for word in query.get("status").unwrap_or_default().split(',').filter(|word| !word.is_empty()) {
        let status: Result<Status, _> = serde_json::from_value(word.into());
        statuses.push(status.map_err(|_| ViewProblem::bad(format!("`{word}` is no status")))?);
    }
    let within = match query.get("within") {
        None | Some("") => Within::Any,
        Some("top") => Within::TopLevel,
        Some(run) => Within::Run(run_id(run)?),
    };
    let graph = query.get("graph").filter(|graph| !graph.is_empty()).map(str::to_owned);
    Ok(RunFilter { graph, statuses, within, ..RunFilter::default() })
}

/// Reads the id of a run.
pub(crate) fn run_id(text: &str) -> Result<RunId, ViewProblem> {
    RunId::new(text)
        .map_err(|_| ViewProblem::missing("there is no run of that id: ids have letters, digits, `_` and `-`"))
}

/// Returns a page of the runs.
pub(crate) async fn runs(source: &Source, filed: &FiledRuns, query: &Query) -> Result<Value, ViewProblem> {
    let filter = filter(query)?;
    let size = query.number("size")?.unwrap_or(100).clamp(1, MOST_RUNS);
    let after = query.get("after").filter(|after| !after.is_empty()).map(Cursor::new);
    let opened = source.open().await?;
    let mut damaged = Vec::new();
    let is_first = after.is_none();
    let page = Page { size, after };
    let found = match source.filed()? {
        None => find(&*opened.store, &filter, &page, query.get("run")).await?,
        Some(names) => {
            let (all, problems) = filed.read(source, &*opened.store, names).await;
            damaged = problems;
            let all = all.into_iter().filter(|run| is_called(run, query.get("run")));
            RunPage::of(all, &filter, &page)?
        }
    };
    let damaged: Vec<Value> =
        damaged.iter().filter(|_| is_first).map(|(run, problem)| json!({"run": run, "problem": problem})).collect();
    Ok(json!({
        "runs": found.runs.iter().map(summary).collect::<Vec<_>>(),
        "next": found.next.as_ref().map(Cursor::as_str),
        "damaged": damaged,
    }))
}

fn is_called(run: &RunSummary, part: Option<&str>) -> bool {
    part.is_none_or(|part| run.run.as_str().contains(part))
}

/// How many runs are looked at for one page of those whose ids have a part.
const MOST_LOOKED_AT: usize = 20_000;

/// Reads a page of a store. If the ids must have a part, it looks at many runs, and ends where it has looked at enough.
async fn find(
    store: &dyn graph_runtime::Store,
    filter: &RunFilter,
    page: &Page,
    part: Option<&str>,
) -> Result<RunPage, StoreError> {
    let part = part.filter(|part| !part.is_empty());
    if part.is_none() {
        return store.runs(filter, page).await;
    }
    let (mut runs, mut looked_at) = (Vec::new(), 0);
    let mut page = Page { size: 1000, after: page.after.clone() };
    loop {
        let found = store.runs(filter, &page).await?;
        looked_at += found.runs.len();
        runs.extend(found.runs.into_iter().filter(|run| is_called(run, part)));
        match found.next {
            Some(next) if runs.len() < MOST_RUNS && looked_at < MOST_LOOKED_AT => page.after = Some(next),
            next => return Ok(RunPage { runs, next }),
        }
    }
}

impl FiledRuns {
    /// Returns the summaries of runs among files, and those whose journals are damaged.
    async fn read(
        &self,
        source: &Source,
        store: &dyn graph_runtime::Store,
        names: Vec<RunId>,
    ) -> (Vec<RunSummary>, Vec<(RunId, String)>) {
        let (mut all, mut damaged) = (Vec::new(), Vec::new());
        let present: HashSet<&RunId> = names.iter().collect();
        self.locked().retain(|run, _| present.contains(run));
        for run in names {
            let Some(stamp) = source.stamp(&run) else { continue };
            let known = self.locked().get(&run).filter(|known| known.stamp == stamp).map(|known| known.filed.clone());
            let filed = match known {
                Some(filed) => filed,
                None => {
                    let filed = store.find(&run).await.map_err(|error| error.to_string());
                    self.locked().insert(run.clone(), FiledRun { stamp, filed: filed.clone() });
                    filed
                }
            };
            match filed {
                Ok(summary) => all.push(summary),
                Err(problem) => damaged.push((run, problem)),
            }
        }
        (all, damaged)
    }

    fn locked(&self) -> MutexGuard<'_, HashMap<RunId, FiledRun>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns a page of the questions to people that are open, as the columns of the store have them.
pub(crate) async fn inbox(source: &Source, query: &Query) -> Result<Value, ViewProblem> {
    if source.is_files() {
        return Ok(json!({"open": [], "next": null, "listed": false}));
    }
    let opened = source.open().await?;
    let run = query.get("run").map(run_id).transpose()?;
    let filter = WaitFilter { asks: true, run, ..WaitFilter::default() };
    let after = query.get("after").filter(|after| !after.is_empty()).map(Cursor::new);
    let found = opened.store.open_waits(&filter, &Page { size: MOST_RUNS, after }).await?;
    let open: Vec<Value> = found.waits.iter().filter_map(wait).collect();
    Ok(json!({"open": open, "next": found.next.as_ref().map(Cursor::as_str), "listed": true}))
}

/// Returns a time of a store.
pub(crate) fn shown_time(at: i64) -> String {
    timestamp::milliseconds(timestamp::from_unix_milliseconds(at))
}

fn wait(row: &WaitRow) -> Option<Value> {
    let WaitRow { run, graph, wait, .. } = row;
    let Ask { role, count, payload, .. } = wait.ask.as_ref()?;
    Some(json!({
        "run": run,
        "graph": graph,
        "wait": wait.id.as_str(),
        "node": wait.node,
        "role": role,
        "count": count,
        "opened": shown_time(wait.opened),
        "due": wait.due.map(shown_time),
        "payload": serde_json::from_str::<Value>(payload).unwrap_or_default(),
    }))
}

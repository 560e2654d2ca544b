//! The requests of the page, and their answers.

use std::sync::Arc;
use std::time::Duration;

use graph_model::digest::hex;
use graph_runtime::RunId;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::compare::{ComparedRun, compare};
use crate::index::{RunIndex, ShownRun, blocking};
use crate::listing::run_id;
use crate::problem::ViewProblem;
use crate::query::Query;
use crate::state::ViewerState;
use crate::{FindGraph, answers, listing, proof, rows, views};

/// How often a store is looked at while somebody waits for a change.
const PACE: Duration = Duration::from_millis(50);

/// How long a request waits for a change.
const PATIENCE: Duration = Duration::from_secs(20);

/// The answer to a request, without its headers.
pub(crate) struct PageAnswer {
    pub(crate) kind: &'static str,
    pub(crate) body: Vec<u8>,
}

impl PageAnswer {
    fn json(value: &Value) -> Self {
        Self { kind: "application/json", body: value.to_string().into_bytes() }
    }
}

impl ViewerState {
    /// Answers a request for data. `path` is behind `api/`.
    pub(crate) async fn get(&self, path: &str, query: &Query) -> Result<PageAnswer, ViewProblem> {
        let parts: Vec<&str> = path.split('/').collect();
        match parts.as_slice() {
            ["about"] => Ok(PageAnswer::json(&self.about())),
            ["runs"] => Ok(PageAnswer::json(&listing::runs(&self.source, &self.filed, query).await?)),
            ["inbox"] => Ok(PageAnswer::json(&listing::inbox(&self.source, query).await?)),
            ["compare"] => {
                let [a, b] = ["a", "b"].map(|name| query.get(name).unwrap_or_default());
                let [a, b] = [self.compared(a).await?, self.compared(b).await?];
                Ok(PageAnswer::json(&compare([a, b], &self.graphs, &self.key).await?))
            }
            ["run", run, what @ ..] => self.of_run(&run_id(run)?, what, query).await,
            _ => Err(ViewProblem::missing("there is nothing at this address")),
        }
    }

    async fn of_run(&self, run: &RunId, what: &[&str], query: &Query) -> Result<PageAnswer, ViewProblem> {
        match what {
            // Read by the page itself, whatever is wrong with it.
            ["journal"] => Ok(PageAnswer { kind: "application/octet-stream", body: proof::journal(self, run).await? }),
            ["changes"] => Ok(PageAnswer::json(&self.changes(run, query).await?)),
            what => {
                let shown = self.shown(run).await?;
                self.of_shown(run, &shown, what, query).await
            }
        }
    }

    async fn of_shown(
        &self,
        run: &RunId,
        shown: &Arc<ShownRun>,
        what: &[&str],
        query: &Query,
    ) -> Result<PageAnswer, ViewProblem> {
        match what {
            [] => {
                let (graphs, found) = (Arc::clone(&self.graphs), Arc::clone(shown));
                Ok(PageAnswer::json(&blocking(move || Ok(summary(&found, &*graphs))).await?))
            }
            ["rows"] => {
                let from = query.number("from")?.unwrap_or(0);
                let count = query.number("count")?.unwrap_or(100);
                let flags = query.number("flags")?.unwrap_or(0);
                let node = query.get("node").filter(|node| !node.is_empty()).map(str::to_owned);
                let shown = Arc::clone(shown);
                let rows = move |index: &RunIndex| rows::rows(index, from, count, flags, node.as_deref());
                let page = blocking(move || Ok(shown.with(rows))).await?;
                Ok(PageAnswer::json(&page))
            }
            ["record", seq] => {
                let seq = seq.parse().map_err(|_| ViewProblem::bad("the record is no number"))?;
                Ok(PageAnswer::json(&shown.with(|index| rows::record(index, seq))?))
            }
            ["state"] => {
                let last = shown.with(RunIndex::visited);
                let step = query.number("step")?.unwrap_or(last);
                let state = views::state(&self.states, shown, &self.graphs, run, &self.key, step).await?;
                Ok(PageAnswer { kind: "application/json", body: state.as_bytes().to_vec() })
            }
            ["diagram"] => {
                let image = views::diagram(shown, &self.graphs, run, &self.key).await?;
                Ok(PageAnswer { kind: "image/svg+xml", body: image.into_bytes() })
            }
            ["questions"] => Ok(PageAnswer::json(&views::asked(shown, &self.graphs, run, &self.key).await?)),
            ["audit"] => Ok(PageAnswer::json(&proof::audit(self, run, shown).await?)),
            _ => Err(ViewProblem::missing("there is nothing at this address")),
        }
    }

    /// Answers a request that changes something.
    pub(crate) async fn post(&self, path: &str, body: &[u8]) -> Result<PageAnswer, ViewProblem> {
        let parts: Vec<&str> = path.split('/').collect();
        let (Some(rights), ["run", run, "answer"]) = (&self.answers, parts.as_slice()) else {
            return Err(ViewProblem::missing("there is nothing at this address"));
        };
        let run = run_id(run)?;
        let shown = self.shown(&run).await?;
        Ok(PageAnswer::json(&answers::answer(self, rights, &run, &shown, body).await?))
    }

    async fn shown(&self, run: &RunId) -> Result<Arc<ShownRun>, ViewProblem> {
        self.indexes.run(&self.source, run, &self.key).await
    }

    async fn compared(&self, run: &str) -> Result<ComparedRun, ViewProblem> {
        let run = run_id(run)?;
        let shown = self.shown(&run).await?;
        Ok(ComparedRun { run, shown })
    }

    fn about(&self) -> Value {
        let signer = self.answers.as_ref().map(|rights| rights.key.public().fingerprint().to_string());
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "place": self.source.path().display().to_string(),
            "kind": if self.source.is_files() { "files" } else { "store" },
            "key": hex(self.key.as_bytes()),
            "fingerprint": self.key.fingerprint().to_string(),
            "answers": signer,
        })
    }

    /// Waits until a run has more records than the page knows, or another status, and returns its counts.
    async fn changes(&self, run: &RunId, query: &Query) -> Result<Value, ViewProblem> {
        let known: usize = query.number("records")?.unwrap_or(0);
        let mark = query.get("mark").unwrap_or_default();
        let until = Instant::now() + PATIENCE;
        loop {
            let shown = self.shown(run).await?;
            let counts = counts(&shown);
            let records = counts["records"].as_u64().and_then(|records| usize::try_from(records).ok());
            if records != Some(known) || counts["mark"].as_str() != Some(mark) || Instant::now() >= until {
                return Ok(counts);
            }
            tokio::time::sleep(PACE).await;
        }
    }
}

/// Returns the numbers of a run that change while it is running.
fn counts(shown: &ShownRun) -> Value {
    let run = shown.summary();
    // The status in the list of runs, and whether somebody holds it.
    let mark = format!("{} {} {}", run.status.name(), run.holder.is_some(), run.is_cancelling);
    shown.with(|index| {
        json!({
            "records": index.records.len(), "rows": index.rows.len(), "steps": index.visited(), "problem": index.problem,
            "first": index.records.first().map(|record| record.link().to_hex()), "mark": mark, "summary": listing::summary(&run),
        })
    })
}

fn summary(shown: &ShownRun, graphs: &FindGraph) -> Value {
    let mut all = rows::object(counts(shown));
    shown.with(|index| {
        let mut start = index.records.first().map_or(Value::Null, |_| rows::record(index, 0).unwrap_or_default());
        let graph = views::graph_of(graphs, index);
        all.insert("graph_problem".to_owned(), graph.err().map(|problem| problem.text).into());
        all.insert("start".to_owned(), start["record"].take());
        let last = index.records.len().saturating_sub(1);
        // The end may be followed by edits, of any number.
        let end = (0..=last).rev().find_map(|at| {
            let record = rows::record(index, at).ok()?["record"].take();
            matches!(record["kind"].as_str(), Some("end" | "resume" | "step")).then_some(record)
        });
        all.insert("end".to_owned(), end.filter(|record| record["kind"] == "end").unwrap_or_default());
    });
    Value::Object(all)
}

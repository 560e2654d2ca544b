//! The requests of the page, and their answers.

use std::sync::Arc;
use std::time::Duration;

use graph_model::digest::hex;
use graph_runtime::{PublicKey, RunId};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::compare::{ComparedRun, compare};
use crate::index::{RunIndex, RunIndexes, ShownRun, blocking};
use crate::listing::{FiledRuns, run_id};
use crate::problem::ViewProblem;
use crate::source::Source;
use crate::views::StateCache;
use crate::{FindGraph, ViewerOptions, answers, listing, proof, rows, views};

/// How often a store is looked at while somebody waits for a change.
const PACE: Duration = Duration::from_millis(50);

/// How long a request waits for a change.
const PATIENCE: Duration = Duration::from_secs(20);

/// The state of a viewer, shared by all requests.
pub(crate) struct ViewerState {
    pub(crate) source: Source,
    pub(crate) key: PublicKey,
    pub(crate) files_key: Option<PublicKey>,
    pub(crate) graphs: Arc<FindGraph>,
    pub(crate) answers: Option<crate::AnswerRights>,
    indexes: RunIndexes,
    filed: FiledRuns,
    states: Arc<StateCache>,
}

/// The answer to a request, without its headers.
pub(crate) struct Answer {
    pub(crate) kind: &'static str,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    fn json(value: &Value) -> Self {
        Self { kind: "application/json", body: value.to_string().into_bytes() }
    }
}

/// The query of an address, decoded.
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads a query.
    ///
    /// # Errors
    ///
    /// If it is not percent-encoded UTF-8.
    pub(crate) fn read(text: &str) -> Result<Self, ViewProblem> {
        let decoded = |text: &str| {
            decode(text).ok_or_else(|| ViewProblem::bad("the query of the address is not percent-encoded UTF-8"))
        };
        let pairs = text.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok::<_, ViewProblem>((decoded(name)?, decoded(value)?))
        });
        Ok(Self(pairs.collect::<Result<_, _>>()?))
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn number<N: std::str::FromStr>(&self, name: &str) -> Result<Option<N>, ViewProblem> {
        let number =
            |text: &str| text.parse().map_err(|_| ViewProblem::bad(format!("`{name}` of the query is no number")));
        self.get(name).map(number).transpose()
    }
}

fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'%' => {
                let pair = [rest.next()?, rest.next()?];
                let digits = std::str::from_utf8(&pair).ok().filter(|_| pair.iter().all(u8::is_ascii_hexdigit))?;
                bytes.push(u8::from_str_radix(digits, 16).ok()?);
            }
            b'+' => bytes.push(b' '),
            byte => bytes.push(byte),
        }
    }
    String::from_utf8(bytes).ok()
}

impl ViewerState {
    pub(crate) fn new(options: ViewerOptions) -> Self {
        let ViewerOptions { place, key, files_key, graphs, answers } = options;
        Self {
            source: Source::new(place),
            key,
            files_key,
            graphs,
            answers,
            indexes: RunIndexes::default(),
            filed: FiledRuns::default(),
            states: Arc::default(),
        }
    }

    /// Answers a request for data. `path` is behind `api/`.
    pub(crate) async fn get(&self, path: &str, query: &Query) -> Result<Answer, ViewProblem> {
        let parts: Vec<&str> = path.split('/').collect();
        match parts.as_slice() {
            ["about"] => Ok(Answer::json(&self.about())),
            ["runs"] => Ok(Answer::json(&listing::runs(&self.source, &self.filed, query).await?)),
            ["inbox"] => Ok(Answer::json(&listing::inbox(&self.source, query).await?)),
            ["compare"] => {
                let [a, b] = ["a", "b"].map(|name| query.get(name).unwrap_or_default());
                let [a, b] = [self.compared(a).await?, self.compared(b).await?];
                Ok(Answer::json(&compare([a, b], &self.graphs, &self.key).await?))
            }
            ["run", run, what @ ..] => self.of_run(&run_id(run)?, what, query).await,
            _ => Err(ViewProblem::missing("there is nothing at this address")),
        }
    }

    async fn of_run(&self, run: &RunId, what: &[&str], query: &Query) -> Result<Answer, ViewProblem> {
        match what {
            // Read by the page itself, whatever is wrong with it.
            ["journal"] => Ok(Answer { kind: "application/octet-stream", body: proof::journal(self, run).await? }),
            ["changes"] => Ok(Answer::json(&self.changes(run, query).await?)),
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
    ) -> Result<Answer, ViewProblem> {
        match what {
            [] => {
                let (graphs, found) = (Arc::clone(&self.graphs), Arc::clone(shown));
                Ok(Answer::json(&blocking(move || Ok(summary(&found, &*graphs))).await?))
            }
            ["rows"] => {
                let from = query.number("from")?.unwrap_or(0);
                let count = query.number("count")?.unwrap_or(100);
                let flags = query.number("flags")?.unwrap_or(0);
                let node = query.get("node").filter(|node| !node.is_empty()).map(str::to_owned);
                let shown = Arc::clone(shown);
                let rows = move |index: &RunIndex| rows::rows(index, from, count, flags, node.as_deref());
                let page = blocking(move || Ok(shown.with(rows))).await?;
                Ok(Answer::json(&page))
            }
            ["record", seq] => {
                let seq = seq.parse().map_err(|_| ViewProblem::bad("the record is no number"))?;
                Ok(Answer::json(&shown.with(|index| rows::record(index, seq))?))
            }
            ["state"] => {
                let last = shown.with(RunIndex::visited);
                let step = query.number("step")?.unwrap_or(last);
                let state = views::state(&self.states, shown, &self.graphs, run, &self.key, step).await?;
                Ok(Answer { kind: "application/json", body: state.as_bytes().to_vec() })
            }
            ["diagram"] => {
                let image = views::diagram(shown, &self.graphs, run, &self.key).await?;
                Ok(Answer { kind: "image/svg+xml", body: image.into_bytes() })
            }
            ["questions"] => Ok(Answer::json(&views::asked(shown, &self.graphs, run, &self.key).await?)),
            ["audit"] => Ok(Answer::json(&proof::audit(self, run, shown).await?)),
            _ => Err(ViewProblem::missing("there is nothing at this address")),
        }
    }

    /// Answers a request that changes something.
    pub(crate) async fn post(&self, path: &str, body: &[u8]) -> Result<Answer, ViewProblem> {
        let parts: Vec<&str> = path.split('/').collect();
        let (Some(rights), ["run", run, "answer"]) = (&self.answers, parts.as_slice()) else {
            return Err(ViewProblem::missing("there is nothing at this address"));
        };
        let run = run_id(run)?;
        let shown = self.shown(&run).await?;
        Ok(Answer::json(&answers::answer(self, rights, &run, &shown, body).await?))
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
    // What the list of runs shows of it, and whether somebody holds it.
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
        // The end may be followed by edits.
        let end = (last.saturating_sub(20)..=last).rev().find_map(|at| {
            let record = rows::record(index, at).ok()?["record"].take();
            matches!(record["kind"].as_str(), Some("end" | "resume" | "step")).then_some(record)
        });
        all.insert("end".to_owned(), end.filter(|record| record["kind"] == "end").unwrap_or_default());
    });
    Value::Object(all)
}

//! Runs in a store, seen from outside: the outcome of a run, the list of runs, resuming all that were stopped, and cancelling
//! one.

use crate::engine::open_waits;
use crate::error::{ResumeError, StoredRunError};
use crate::future::BoxFuture;
use crate::graph::tables;
use crate::kind::{ErrorKind, HasKind};
use crate::machine::Graph;
use crate::observer::{Event, notify};
use crate::record::{End, VerifiedJournal};
use crate::replay::{add_up, result_of};
use crate::run::{Finished, Run};
use crate::runtime::{Options, Runtime};
use crate::signal::unread;
use crate::status::Status;
use crate::step::CANCELLED;
use crate::store::{
    Holder, Lease, Page, RunFilter, RunPage, RunSummary, Store, StoreError, Wait, WaitFilter, WaitPage, Within,
    all_runs,
};
use crate::versions::version;
use futures_util::FutureExt;
use futures_util::stream::{self, StreamExt};
use graph_model::name::RunId;
use graph_model::value::Mismatch;
use std::time::Duration;

/// The outcome of a run, as its journal says.
///
/// [`Runtime::outcome`] has an example.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum RunOutcome<O> {
    /// It has not ended.
    #[non_exhaustive]
    Running {
        /// The nodes that it is at: those whose visits are in progress, or come next.
        nodes: Vec<String>,
        /// How many nodes were visited.
        steps: u64,
        /// The holder of its lease; `None` if it waits to be resumed.
        holder: Option<Holder>,
        /// Whether somebody cancelled it.
        is_cancelling: bool,
    },
    /// Nothing is left to do before something that it waits for has happened.
    #[non_exhaustive]
    Waiting {
        /// Its waits, in the order of the visits.
        waits: Vec<Wait>,
        /// How many nodes were visited.
        steps: u64,
        /// Whether somebody cancelled it.
        is_cancelling: bool,
    },
    /// It ended with a result.
    Done(Box<Finished<O>>),
    /// It ended with an error, and can be resumed.
    #[non_exhaustive]
    Failed {
        /// The error message.
        error: String,
        /// The error code of whatever the node's tool called, if it named one.
        code: Option<String>,
        /// The node that failed, if one did.
        node: Option<String>,
        /// How many nodes were visited.
        steps: u64,
    },
    /// Somebody cancelled it; it can be resumed.
    #[non_exhaustive]
    Cancelled {
        /// The nodes that come next.
        nodes: Vec<String>,
        /// How many nodes were visited.
        steps: u64,
        /// The number of the signal that cancelled it.
        signal: Option<i32>,
    },
}

/// Why the outcome of a run cannot be determined.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutcomeError {
    /// The run cannot be read.
    #[error(transparent)]
    Stored(StoredRunError),
    /// Its output is not of the type that the graph declares.
    #[error("run `{run}` returned what it should not: {mismatch}")]
    Output {
        /// The run.
        run: RunId,
        /// The mismatch.
        mismatch: Mismatch,
    },
}

impl<E: Into<StoredRunError>> From<E> for OutcomeError {
    fn from(error: E) -> Self {
        Self::Stored(error.into())
    }
}

impl HasKind for OutcomeError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Stored(error) => error.kind(),
            Self::Output { .. } => ErrorKind::Internal,
        }
    }
}

/// The runs that [`Runtime::resume_all`] resumes, and the options for them.
///
/// ```
/// # use graph_engine as graph_runtime;
/// use graph_runtime::{ResumeAll, Status};
/// use graph_runtime::store::RunFilter;
///
/// let orders = ResumeAll {
///     filter: RunFilter { graph: Some("shop/order".to_owned()), ..ResumeAll::default().filter },
///     at_once: 2,
///     ..ResumeAll::default()
/// };
/// assert_eq!(orders.filter.statuses, [Status::Running]);
/// ```
#[derive(Debug, Clone)]
pub struct ResumeAll {
    /// The filter for the runs; by default, those that have not ended and are inside no other.
    pub filter: RunFilter,
    /// The options for each of them from here on, as in [`Runtime::resume_with`].
    pub options: Options,
    /// How many are read and leased at a time. It does not bound how many run after that.
    pub at_once: usize,
}

impl Default for ResumeAll {
    fn default() -> Self {
        let filter = RunFilter { statuses: vec![Status::Running], within: Within::TopLevel, ..RunFilter::default() };
        Self { filter, options: Options::default(), at_once: 8 }
    }
}

/// The result of resuming one of several runs.
///
/// [`Runtime::resume_all`] has an example.
#[derive(Debug)]
#[non_exhaustive]
pub struct Resumed<O> {
    /// The run as the store listed it before.
    pub summary: RunSummary,
    /// The resumed run, or why it was not resumed.
    pub run: Result<Run<O>, ResumeError>,
}

impl Runtime {
    /// Returns the outcome of a run in the store, as its journal proves it. It calls nothing, writes nothing and needs no
    /// lease, so it does not disturb the run's holder.
    ///
    /// ```
    /// # use graph_engine as graph_runtime;
    /// # async fn example<G: graph_runtime::Graph>(
    /// #     runtime: graph_runtime::Runtime,
    /// #     graph: G,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// use graph_runtime::{RunId, RunOutcome};
    ///
    /// match runtime.outcome(&graph, &RunId::new("order-17")?).await? {
    ///     RunOutcome::Waiting { waits, .. } => println!("it waits for {} things", waits.len()),
    ///     RunOutcome::Running { nodes, .. } => println!("it is at `{}`", nodes.join("`, `")),
    ///     RunOutcome::Done(finished) => println!("it ended at `{}`", finished.node),
    ///     RunOutcome::Failed { error, .. } => println!("it failed: {error}"),
    ///     RunOutcome::Cancelled { steps, .. } => println!("it was cancelled after {steps} steps"),
    ///     _ => println!("it has another outcome"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If there is no such run, its journal was tampered with or is another graph's, or its secrets cannot be read.
    pub fn outcome<'a, G: Graph>(
        &'a self,
        graph: &'a G,
        run: &'a RunId,
    ) -> BoxFuture<'a, Result<RunOutcome<G::Output>, OutcomeError>> {
        Box::pin(async move {
            let ((store, _), misfit) = (self.inner.stored()?, StoredRunError::journal(run));
            let older = self.inner.older_of(graph, run).await?;
            let machine = version(graph, older);
            let code = tables(machine.graph());
            let journal = self.inner.journal_of(machine, run).await?;
            if let Some(ended) = result_of(code, machine, &journal, self.inner.keeps_history).map_err(&misfit)? {
                let finished = ended.read(run.clone(), |node, value| graph.output_of(older, node, value));
                let finished = finished.map_err(|mismatch| OutcomeError::Output { run: run.clone(), mismatch })?;
                return Ok(RunOutcome::Done(Box::new(finished)));
            }
            let replayed = add_up(code, machine, &journal).map_err(misfit)?;
            let at = replayed.position.open().map(|at| code.node(at.node).name.clone()).collect();
            let (nodes, steps) = (at, replayed.position.steps);
            Ok(match journal.end() {
                Some(End { status: Status::Cancelled, signal, .. }) => {
                    RunOutcome::Cancelled { nodes, steps, signal: *signal }
                }
                Some(End { error, code, node, .. }) => RunOutcome::Failed {
                    error: error.clone().unwrap_or_default(),
                    code: code.clone(),
                    node: node.clone(),
                    steps,
                },
                None => {
                    let RunSummary { status, holder, is_cancelling, .. } = store.find(run).await?;
                    if status == Status::Waiting {
                        let waits = open_waits(code, &replayed.position);
                        return Ok(RunOutcome::Waiting { waits, steps, is_cancelling });
                    }
                    RunOutcome::Running { nodes, steps, holder, is_cancelling }
                }
            })
        })
    }

    /// Lists runs of the store, the newest first, a page at a time.
    ///
    /// ```
    /// # use graph_engine as graph_runtime;
    /// # async fn example(runtime: graph_runtime::Runtime) -> Result<(), Box<dyn std::error::Error>> {
    /// use graph_runtime::store::{Page, RunFilter, RunPage};
    ///
    /// let orders = RunFilter { graph: Some("shop/order".to_owned()), ..RunFilter::default() };
    /// let mut page = Page::default();
    /// loop {
    ///     let RunPage { runs, next } = runtime.runs(&orders, &page).await?;
    ///     runs.iter().for_each(|run| println!("{} {}", run.run, run.status.name()));
    ///     let Some(next) = next else { break };
    ///     page.after = Some(next);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If there is no store, it cannot be read, or the page's cursor is not a place in it.
    pub async fn runs(&self, filter: &RunFilter, page: &Page) -> Result<RunPage, StoreError> {
        self.inner.store.as_ref().ok_or(StoreError::None)?.runs(filter, page).await
    }

    /// Lists the waits of the store's runs that are open, those that were opened first before others, a page at a time. With
    /// [`WaitFilter::asks`], the list is an inbox of questions to people. The deadline of a run that waits is a wait of its own. The store says what it lists;
    /// [`Runtime::questions`](Runtime::questions) returns what the journal of a run proves.
    ///
    /// ```
    /// # use graph_engine as graph_runtime;
    /// # async fn example(runtime: graph_runtime::Runtime) -> Result<(), Box<dyn std::error::Error>> {
    /// use graph_runtime::store::{Page, WaitFilter};
    ///
    /// let refunds = WaitFilter { role: Some("refunds".to_owned()), ..WaitFilter::default() };
    /// for row in runtime.open_waits(&refunds, &Page::default()).await?.waits {
    ///     println!("{} asks at `{}`", row.run, row.wait.node);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If there is no store, it cannot be read or keeps no waits, or the page's cursor is not a place in it.
    pub async fn open_waits(&self, filter: &WaitFilter, page: &Page) -> Result<WaitPage, StoreError> {
        self.inner.store.as_ref().ok_or(StoreError::None)?.open_waits(filter, page).await
    }

    /// Resumes the runs that were stopped before they had ended, for example by a crash or a [shutdown](Runtime::shutdown).
    /// A program calls it when it starts. For each run, `graph` returns the graph to resume it with; `None` leaves the run alone.
    ///
    /// Runs that somebody holds are skipped, also if they are leased meanwhile, so processes that call this at the same time
    /// share the runs. Returns one answer for each of the others, in the store's order; a run whose graph was changed is one
    /// of them, with the error.
    ///
    /// Dropping the future resumes no more runs; those that were resumed continue.
    ///
    /// ```
    /// # use graph_engine as graph_runtime;
    /// # async fn example<G: graph_runtime::Graph + Clone>(
    /// #     runtime: graph_runtime::Runtime,
    /// #     graph: G,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// use graph_runtime::ResumeAll;
    ///
    /// for resumed in runtime.resume_all(ResumeAll::default(), |_| Some(graph.clone())).await? {
    ///     match resumed.run {
    ///         Ok(run) => println!("run {} continues", run.id()),
    ///         Err(error) => println!("run {} cannot be resumed: {error}", resumed.summary.run),
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If there is no store, or its runs cannot be listed. Runs that were resumed before continue.
    pub fn resume_all<'a, G: Graph>(
        &'a self,
        how: ResumeAll,
        mut graph: impl FnMut(&RunSummary) -> Option<G> + Send + 'a,
    ) -> BoxFuture<'a, Result<Vec<Resumed<G::Output>>, StoreError>> {
        Box::pin(async move {
            let ResumeAll { filter, options, at_once } = how;
            let (mut page, mut all) = (Page::default(), Vec::new());
            loop {
                let RunPage { runs, next } = self.runs(&filter, &page).await?;
                let free = runs.into_iter().filter(|summary| summary.holder.is_none());
                // The futures are made first, so that the awaited stream does not name the graph's type.
                let chosen: Vec<_> = free
                    .filter_map(|summary| {
                        let resumed = self.resume_with(options.clone(), graph(&summary)?, &summary.run);
                        Some(resumed.map(|run| Resumed { summary, run }))
                    })
                    .collect();
                let resumed: Vec<_> = stream::iter(chosen).buffered(at_once.max(1)).collect().await;
                let is_others = |run: &Resumed<G::Output>| run.run.as_ref().is_err_and(ResumeError::is_leased);
                all.extend(resumed.into_iter().filter(|run| !is_others(run)));
                match next {
                    Some(next) => page.after = Some(next),
                    None => return Ok(all),
                }
            }
        })
    }

    /// Requests that a run end as cancelled (R283), as [`Store::cancel`] does. A run that waits ends at once, without its graph;
    /// any other run ends when its holder, or whoever resumes it, learns of the request.
    ///
    /// [`Runtime::cancel_without_graph`] also ends a run at once that nobody can resume, because its graph is gone.
    ///
    /// Returns the status that the run has then: [`Status::Cancelled`] if it has ended. A run that waits does not end at once if
    /// it is inside another or has runs inside it that are in progress, if somebody holds it, or if its journal is not what the
    /// engine wrote with the key of this runtime. It ends when it is resumed, as by a [worker](Runtime::worker). The nested runs that
    /// wait end with it.
    ///
    /// Observers receive [`Event::RunEnded`] for a run that this call ends, and no [`Event::Recorded`].
    ///
    /// ```
    /// # use graph_engine as graph_runtime;
    /// # async fn example(runtime: graph_runtime::Runtime) -> Result<(), Box<dyn std::error::Error>> {
    /// use graph_runtime::{RunId, Status};
    ///
    /// match runtime.cancel(&RunId::new("order-17")?).await? {
    ///     Status::Cancelled => println!("it has ended"),
    ///     _ => println!("it stops before its next step"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the run as it was, or cancelled.
    ///
    /// # Errors
    ///
    /// If there is no store, it cannot be written, there is no such run, or the run has ended.
    pub async fn cancel(&self, run: &RunId) -> Result<Status, StoreError> {
        let store = self.inner.store.as_ref().ok_or(StoreError::None)?;
        match self.end_waiting(&**store, run).await {
            Ok(true) => return Ok(Status::Cancelled),
            Ok(false) => {}
            Err(error) => tracing::debug!(%run, %error, "a run that waits cannot be ended at once"),
        }
        store.cancel(run).await?;
        Ok(store.find(run).await?.status)
    }

    /// Ends a run that waits as cancelled, and then the nested runs that wait. Returns false, and changes nothing, if it does not
    /// wait or another must end it.
    async fn end_waiting(&self, store: &dyn Store, run: &RunId) -> Result<bool, StoreError> {
        if store.find(run).await?.parent.is_some() {
            return Ok(false);
        }
        let Some(inside) = waiting_inside(store, run).await? else { return Ok(false) };
        if !self.end_one(store, run).await? {
            return Ok(false);
        }
        for inner in inside {
            if let Err(error) = self.end_one(store, &inner).await {
                tracing::warn!(run = %inner, %error, "a nested run of a run that was cancelled cannot be ended");
            }
        }
        Ok(true)
    }

    /// Ends the nested runs of a run that has a result which still wait: nothing needs them any more.
    pub(crate) async fn end_waiting_inside(&self, run: &RunId) {
        let Some(store) = &self.inner.store else { return };
        let mut outer = vec![run.clone()];
        while let Some(run) = outer.pop() {
            let filter = RunFilter { within: Within::Run(run.clone()), ..RunFilter::default() };
            let found = match all_runs(&**store, &filter).await {
                Ok(found) => found,
                Err(error) => return tracing::warn!(%run, %error, "cannot list the nested runs that still wait"),
            };
            for RunSummary { run: inner, status, .. } in found {
                if status == Status::Waiting
                    && let Err(error) = self.end_one(&**store, &inner).await
                {
                    tracing::warn!(run = %inner, %error, "a nested run that nothing needs cannot be ended");
                }
                outer.push(inner);
            }
        }
    }

    /// Ends one run that waits as cancelled.
    async fn end_one(&self, store: &dyn Store, run: &RunId) -> Result<bool, StoreError> {
        let is_waiting = |found: &RunSummary| found.status == Status::Waiting;
        if self.inner.key.is_none() {
            return Ok(false);
        }
        let found = store.find(run).await?;
        if !is_waiting(&found) || found.holder.is_some() {
            return Ok(false);
        }
        let lease = match store.lease(run).await {
            Err(StoreError::Leased { .. }) => return Ok(false),
            lease => lease?,
        };
        // It may have continued before it was leased.
        if !is_waiting(&store.find(run).await?) {
            return Ok(false);
        }
        match self.end_leased(store, &lease).await {
            Err(StoredRunError::Store(source)) => Err(source),
            Err(error) => {
                tracing::debug!(%run, %error, "a run that waits cannot be ended at once");
                Ok(false)
            }
            Ok(ended) => Ok(ended),
        }
    }

    /// Ends a run that is leased as cancelled, without its graph. Returns false if it has ended.
    pub(crate) async fn end_leased(&self, store: &dyn Store, lease: &Lease) -> Result<bool, StoredRunError> {
        let (run, (_, key)) = (lease.run(), self.inner.stored()?);
        let signed = store.load(run).await?;
        let journal = VerifiedJournal::new(run, &signed, &key.public()).and_then(VerifiedJournal::read_recent);
        let journal = journal.map_err(StoredRunError::journal(run))?;
        if journal.end().is_some() {
            return Ok(false);
        }
        let steps = journal.steps();
        let unread = unread(store, run, |_| true).await?;
        let end = End { error: Some(CANCELLED.to_owned()), unread, ..End::of(Status::Cancelled, steps) };
        let mut chain = journal.chain;
        let known = chain.count();
        let record = chain.sign("end", &end, self.inner.clock.now(), key);
        store.append(lease, known, vec![record], Status::Cancelled).await?;
        let error = end.error.as_deref();
        let ended = Event::RunEnded { run, status: end.status, steps, elapsed: Duration::ZERO, error, end: Some(&end) };
        notify(&self.inner.observers, &ended);
        Ok(true)
    }
}

/// Returns the runs inside a run, and inside those, that have not ended, the outer ones first; `None` if one of them does not wait or
/// is held.
async fn waiting_inside(store: &dyn Store, run: &RunId) -> Result<Option<Vec<RunId>>, StoreError> {
    let (mut all, mut at) = (Vec::new(), 0);
    let mut outer = Some(run.clone());
    while let Some(run) = outer {
        let statuses = vec![Status::Running, Status::Waiting];
        let filter = RunFilter { statuses, within: Within::Run(run), ..RunFilter::default() };
        let runs = all_runs(store, &filter).await?;
        if runs.iter().any(|inner| inner.status == Status::Running || inner.holder.is_some()) {
            return Ok(None);
        }
        all.extend(runs.into_iter().map(|inner| inner.run));
        outer = all.get(at).cloned();
        at += 1;
    }
    Ok(Some(all))
}

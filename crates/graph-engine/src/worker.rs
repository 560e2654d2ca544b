//! Workers: continuing the runs of a store when they can continue.

#[cfg(feature = "schedules")]
mod ticks;

use std::error::Error;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use graph_model::digest::Digest;
use graph_model::name::RunId;
use tokio::sync::{Notify, watch};
use tokio::task::{JoinHandle, JoinSet};
use tracing::Instrument;

use crate::clock::Clock;
use crate::engine::{Taken, run_span};
use crate::error::RunError;
use crate::gate::Gate;
use crate::graph::{CompiledGraph, tables};
use crate::kind::{ErrorKind, HasKind};
use crate::machine::{Graph, Machine};
use crate::run::spawn;
use crate::runtime::{LATE, Options, Runtime};
use crate::status::Status;
use crate::store::{Claim, Claimed, Lease, Page, RunFilter, RunSummary, Store, StoreError, Within};

/// The graphs whose runs a worker continues, and how many it continues at a time.
///
/// [`Runtime::worker`] has an example.
#[derive(Debug, Clone)]
pub struct WorkerOptions {
    graphs: Vec<WorkerGraph>,
    /// The pins of the runs that other workers of the program continue, with the ids of their graphs.
    elsewhere: Vec<(String, Digest)>,
    concurrency: usize,
    max_tries: Option<u32>,
    #[cfg(feature = "schedules")]
    schedules: Vec<ticks::Scheduled>,
}

/// A graph whose runs a worker continues.
#[derive(Clone)]
struct WorkerGraph(Arc<dyn Machine>);

impl WorkerGraph {
    fn graph(&self) -> &CompiledGraph {
        self.0.graph()
    }
}

impl std::fmt::Debug for WorkerGraph {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.graph().id(), self.graph().digest())
    }
}

impl Default for WorkerOptions {
    /// No graph, 64 runs at a time, and 10 tries.
    fn default() -> Self {
        Self {
            graphs: Vec::new(),
            elsewhere: Vec::new(),
            concurrency: 64,
            max_tries: Some(10),
            #[cfg(feature = "schedules")]
            schedules: Vec::new(),
        }
    }
}

impl WorkerOptions {
    /// Continues the runs of `graph` too. Runs that began under another version of the graph are continued by that version: keep it,
    /// and name both as `Versions`. The page "Changing a graph while runs wait" shows how.
    #[must_use]
    pub fn graph<G: Graph>(self, graph: G) -> Self {
        self.machine(Arc::new(graph))
    }

    /// As [`WorkerOptions::graph`], for a machine whose types are not known.
    #[must_use]
    pub fn machine(mut self, machine: Arc<dyn Machine>) -> Self {
        let older = machine.older().to_vec();
        self.graphs.extend(std::iter::once(machine).chain(older).map(WorkerGraph));
        self
    }

    /// Names a graph whose runs another worker of the program continues, so that this one does not warn of them.
    #[must_use]
    pub fn continued_elsewhere(mut self, graph: &CompiledGraph) -> Self {
        self.elsewhere.extend(graph.pins().map(|pin| (graph.id().to_string(), pin)));
        self
    }

    /// Sets how many runs are continued at a time; 64 by default, and at least 1.
    #[must_use]
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.concurrency = concurrency.max(1);
        self
    }

    /// Sets how many processes may die one after the other when they continue a run at one place, before the run ends with an
    /// error; 10 by default, and no limit if it is `None`. A run that ended so can be resumed.
    #[must_use]
    pub fn max_tries(mut self, max_tries: Option<u32>) -> Self {
        self.max_tries = max_tries;
        self
    }
}

/// A worker of a runtime, which continues runs of its store until it is shut down or dropped.
///
/// [`Runtime::worker`] has an example.
#[derive(Debug)]
pub struct Worker {
    state: Arc<WorkerState>,
    task: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct WorkerState {
    is_stopping: AtomicBool,
    stop: Notify,
    /// How many runs it continues now.
    running: AtomicUsize,
    claimed: AtomicU64,
    postponed: AtomicU64,
    /// The runs that it continues.
    gate: Arc<Gate>,
    /// Whether it continues no run, and found none to continue.
    is_idle: watch::Sender<bool>,
}

/// Numbers about a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerStatus {
    /// How many runs it continues now.
    pub running: usize,
    /// How often it has claimed a run.
    pub claimed: u64,
    /// How often it could not continue a run that it had claimed, and has postponed it.
    pub postponed: u64,
    /// Whether it continues no run, and found none that can be continued now.
    pub is_idle: bool,
}

impl Runtime {
    /// Starts a worker, which continues the runs of these graphs in the runtime's store as soon as they can continue: those whose
    /// waits are over, those that wait and were cancelled, and those that a process left behind when it died or shut down.
    /// Several workers may work on one store, in one process and in several: each run is continued by one of them.
    ///
    /// A worker takes turns between its graphs. It holds no memory for runs that wait. A run that cannot be resumed, for
    /// example because a capability is not granted, is logged and tried again later, at growing intervals of up to five minutes.
    ///
    /// ```
    /// # use graph_engine as graph_runtime;
    /// # async fn example<G: graph_runtime::Graph>(
    /// #     runtime: graph_runtime::Runtime,
    /// #     orders: G,
    /// #     returns: G,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    ///
    /// use graph_runtime::WorkerOptions;
    ///
    /// let worker = runtime.worker(WorkerOptions::default().graph(orders).graph(returns).concurrency(100))?;
    /// // … until the program is to end:
    /// worker.shutdown(Duration::from_secs(10)).await;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A worker does not look at the runs of other graphs, and of other versions of its graphs. When it starts, it logs once which
    /// versions have runs that have not ended.
    ///
    /// # Errors
    ///
    /// If the runtime has no store, or two of the graphs are the same one: they have one id and one meaning.
    pub fn worker(&self, options: WorkerOptions) -> Result<Worker, WorkerError> {
        let store = Arc::clone(self.inner.stored()?.0);
        for (at, graph) in options.graphs.iter().enumerate() {
            if options.graphs[..at].iter().any(|other| other.graph().has_runs_of(graph.graph())) {
                return Err(WorkerError::Twice { graph: graph.graph().id().to_string() });
            }
        }
        let state = Arc::new(WorkerState::default());
        let work = Work { runtime: self.clone(), store, options, state: Arc::clone(&state), drives: JoinSet::new() };
        let task = tokio::spawn(work.run().in_current_span());
        Ok(Worker { state, task: Some(task) })
    }
}

impl Worker {
    /// Returns numbers about it.
    pub fn status(&self) -> WorkerStatus {
        let WorkerState { running, claimed, postponed, is_idle, .. } = &*self.state;
        WorkerStatus {
            running: running.load(Ordering::Relaxed),
            claimed: claimed.load(Ordering::Relaxed),
            postponed: postponed.load(Ordering::Relaxed),
            is_idle: *is_idle.borrow(),
        }
    }

    /// Waits until it continues no run, and has found none that can be continued now: for a program that does the work there
    /// is, and ends.
    ///
    /// ```
    /// # use graph_engine as graph_runtime;
    /// # async fn example<G: graph_runtime::Graph>(
    /// #     runtime: graph_runtime::Runtime,
    /// #     orders: G,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    ///
    /// use graph_runtime::WorkerOptions;
    ///
    /// let worker = runtime.worker(WorkerOptions::default().graph(orders))?;
    /// worker.idle().await;
    /// worker.shutdown(Duration::from_secs(10)).await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn idle(&self) {
        let mut is_idle = self.state.is_idle.subscribe();
        // The sender lives as long as the worker.
        drop(is_idle.wait_for(|is_idle| *is_idle).await);
    }

    /// Claims no more runs, and stops the runs that it continues before their next step: they have not ended, and another
    /// worker can continue them. A call in progress is waited for until `deadline` is over, and then dropped; it is made
    /// again when the run is continued, with the same idempotency key.
    ///
    /// Returns the runs that were not done in time.
    pub async fn shutdown(mut self, deadline: Duration) -> Vec<RunId> {
        self.state.stop();
        self.state.gate.close();
        let Some(mut task) = self.task.take() else { return Vec::new() };
        if tokio::time::timeout(deadline, &mut task).await.is_ok() {
            return Vec::new();
        }
        let late = self.state.gate.abort();
        // A blocked thread is not waited for.
        drop(tokio::time::timeout(LATE, task).await);
        late
    }
}

impl Drop for Worker {
    /// Claims no more runs. Those that it continues run on.
    fn drop(&mut self) {
        self.state.stop();
    }
}

impl WorkerState {
    fn stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
        self.stop.notify_one();
    }

    fn set_idle(&self, idle: bool) {
        self.is_idle.send_if_modified(|is_idle| std::mem::replace(is_idle, idle) != idle);
    }

    fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }
}

/// Why a worker cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// The runtime has no store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Two graphs of the worker have one id and one meaning, so a run would be a run of both.
    #[error("two of the worker's graphs are `{graph}` with the same meaning: name one of them")]
    Twice {
        /// The id.
        graph: String,
    },
}

impl HasKind for WorkerError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Store(error) => error.kind(),
            Self::Twice { .. } => ErrorKind::Internal,
        }
    }
}

/// The pause after the store failed, and the first one before a run is tried again.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest pause before a run is tried again.
const LONGEST: Duration = Duration::from_secs(300);
/// The maximum number of runs that are claimed at once.
const MOST_CLAIMED: usize = 64;

/// The task of a worker.
struct Work {
    runtime: Runtime,
    store: Arc<dyn Store>,
    options: WorkerOptions,
    state: Arc<WorkerState>,
    drives: JoinSet<()>,
}

/// The outcome of looking for runs to continue.
struct Looked {
    /// How long nothing is to be claimed; `None` if that is not known.
    pause: Option<Duration>,
    /// Whether a run could be continued, or a tick was handled.
    is_due: bool,
    /// The time of the store at which schedules are to be looked at; `None` if the worker has no schedules.
    next_tick: Option<i64>,
}

impl Work {
    async fn run(mut self) {
        let graphs = self.options.graphs.iter().map(WorkerGraph::graph);
        let graphs: Vec<(String, Digest)> =
            graphs.flat_map(|graph| graph.pins().map(|pin| (graph.id().to_string(), pin))).collect();
        self.tell_of_others().await;
        let (mut seen, mut turn) = (0, 0);
        while !self.state.is_stopping() {
            while self.drives.try_join_next().is_some() {}
            let looked = self.look(&graphs, turn).await;
            #[cfg(feature = "schedules")]
            let looked = self.look_at_schedules(looked).await;
            turn += 1;
            let mut next_tick = None;
            let pause = match looked {
                Ok(Looked { pause, is_due, next_tick: found }) => {
                    self.state.set_idle(!is_due && self.drives.is_empty());
                    next_tick = found;
                    pause
                }
                Err(error) => {
                    tracing::warn!(%error, "a worker cannot read its store, and tries again");
                    self.state.set_idle(false);
                    Some(PAUSE)
                }
            };
            if pause == Some(Duration::ZERO) {
                continue;
            }
            let has_room = self.drives.len() < self.options.concurrency;
            let Self { runtime, store, state, drives, .. } = &mut self;
            let sleep = async {
                match pause.filter(|_| has_room) {
                    Some(pause) => runtime.inner.clock.sleep(pause).await,
                    None => pending().await,
                }
            };
            // A tick is handled even if there is no room: another worker may continue its run.
            let tick = async {
                match next_tick {
                    Some(at) => until(&**store, &*runtime.inner.clock, at).await,
                    None => pending().await,
                }
            };
            let news = async {
                if !has_room {
                    return pending().await;
                }
                match store.news(seen).await {
                    Ok(found) => found,
                    Err(error) => {
                        tracing::warn!(%error, "a worker has no news of its store, and asks again");
                        runtime.inner.clock.sleep(PAUSE).await;
                        seen
                    }
                }
            };
            tokio::select! {
                () = state.stop.notified() => {}
                () = sleep => {}
                () = tick => {}
                found = news => seen = found,
                Some(_) = drives.join_next() => {}
            }
        }
        while self.drives.join_next().await.is_some() {}
        self.state.set_idle(true);
    }

    /// Claims runs, and begins to continue them.
    async fn look(&mut self, graphs: &[(String, Digest)], turn: usize) -> Result<Looked, StoreError> {
        let is_due = |wake: Option<i64>, now: i64| wake.is_some_and(|at| at <= now);
        let (wake, now) = (self.store.next_wake(graphs).await?, self.store.now().await?);
        let mut claimed = 0;
        if is_due(wake, now) {
            // Each graph gets its part first, and then what the others have left.
            let part = (self.room() / self.options.graphs.len().max(1)).max(1);
            for limit in [part, MOST_CLAIMED] {
                let count = self.options.graphs.len();
                for at in 0..count {
                    let limit = limit.min(self.room()).min(MOST_CLAIMED);
                    if limit > 0 {
                        claimed += self.claim((at + turn) % count, limit).await?;
                    }
                }
            }
        }
        if claimed > 0 {
            return Ok(Looked {
                pause: Some(Duration::ZERO).filter(|_| self.room() > 0),
                is_due: true,
                next_tick: None,
            });
        }
        let wait = |at: i64| Duration::from_millis(u64::try_from(at.saturating_sub(now)).unwrap_or_default());
        // Another worker may have claimed the run that was due.
        let is_due = is_due(wake, now);
        let pause = wake.map(|at| if is_due { Duration::from_millis(10) } else { wait(at) });
        Ok(Looked { pause, is_due, next_tick: None })
    }

    /// Logs which graphs have runs that it leaves alone, because they began under other versions.
    async fn tell_of_others(&self) {
        let graphs = &self.options.graphs;
        for (at, id) in graphs.iter().map(|graph| graph.graph().id()).enumerate() {
            let of_id = |graph: &&WorkerGraph| graph.graph().id() == id;
            if graphs[..at].iter().any(|before| of_id(&before)) {
                continue;
            }
            let own = graphs.iter().filter(of_id).flat_map(|graph| graph.graph().pins());
            let others = self.options.elsewhere.iter().filter(|(graph, _)| graph == id.as_str()).map(|(_, pin)| *pin);
            let filter = RunFilter {
                graph: Some(id.to_string()),
                not_pinned: own.chain(others).collect(),
                statuses: vec![Status::Running, Status::Waiting],
                within: Within::TopLevel,
                ..RunFilter::default()
            };
            match self.store.runs(&filter, &Page { size: 1, ..Page::default() }).await.map(|page| page.runs) {
                Ok(runs) => {
                    for RunSummary { run, digest, version, .. } in runs {
                        let digest = digest.map_or_else(String::new, |digest| digest.to_string());
                        let version = version.unwrap_or_default();
                        tracing::warn!(
                            graph = %id, %run, version, digest,
                            "a worker leaves runs alone that began under another version of its graph"
                        );
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, graph = %id, "the store does not list the runs of other versions");
                }
            }
        }
    }

    /// Returns how many more runs it may continue.
    fn room(&self) -> usize {
        self.options.concurrency.saturating_sub(self.drives.len())
    }

    /// Claims runs of a graph, and begins to continue them. Returns how many these are.
    async fn claim(&mut self, graph: usize, limit: usize) -> Result<usize, StoreError> {
        let graph = &self.options.graphs[graph];
        let WorkerGraph(machine) = graph;
        let mut claimed = Vec::new();
        for pin in graph.graph().pins() {
            let left = limit.saturating_sub(claimed.len());
            if left > 0 {
                claimed.extend(self.store.claim(&Claim::new(graph.graph().id().to_string(), pin, left)).await?);
            }
        }
        let count = claimed.len();
        for claimed in claimed {
            let (runtime, state, machine) = (self.runtime.clone(), Arc::clone(&self.state), Arc::clone(machine));
            let max_tries = self.options.max_tries;
            state.claimed.fetch_add(1, Ordering::Relaxed);
            state.running.fetch_add(1, Ordering::Relaxed);
            let run = claimed.lease.run().clone();
            let span = run_span(&run, &tables(machine.graph()).id);
            let drive = async move {
                drive(&runtime, &state, machine, claimed, max_tries).await;
                state.running.fetch_sub(1, Ordering::Relaxed);
            };
            self.drives.spawn(drive.instrument(span));
        }
        Ok(count)
    }
}

/// The longest sleep without a look at the time of the store: the time of day may be set while a worker sleeps.
const LONGEST_SLEEP: i64 = 30_000;

/// Waits until a time of the store, or until the store fails.
async fn until(store: &dyn Store, clock: &dyn Clock, at: i64) {
    while let Ok(left @ 1..) = store.now().await.map(|now| at.saturating_sub(now)) {
        clock.sleep(Duration::from_millis(left.min(LONGEST_SLEEP).unsigned_abs())).await;
    }
}

/// Continues a run until it ends, waits, or is stopped.
async fn drive(
    runtime: &Runtime,
    state: &WorkerState,
    machine: Arc<dyn Machine>,
    claimed: Claimed,
    max_tries: Option<u32>,
) {
    let Claimed { lease, tries, postponed, .. } = claimed;
    let run = lease.run().clone();
    let begin = runtime.begin_with(run.clone(), Options::default());
    let stop = begin.stop.clone();
    let passes = runtime.inner.gate.enter(&run, &stop).zip(state.gate.enter(&run, &stop));
    let Some((pass, own)) = passes else {
        // The runtime or the worker was shut down, and continues nothing any more.
        return state.stop();
    };
    let mut lease = Some(lease);
    let taken = runtime.inner.take_up(begin, machine, &mut lease).await;
    let ended = match taken {
        // The store says that it can continue, and would hand it out again at once.
        Ok(Taken::Waiting(waiting)) => return postpone(runtime, state, lease, postponed, &*waiting).await,
        Ok(Taken::Ended(_)) => {
            let ended = StoreError::failed("its journal says that it has ended, and its store that it has not");
            return postpone(runtime, state, lease, postponed, &ended).await;
        }
        Ok(Taken::Unfinished(engine)) if max_tries.is_some_and(|most| tries > most) => {
            tracing::error!(%run, tries, "a run is given up, since the processes that continue it die");
            engine.give_up().await
        }
        Ok(Taken::Unfinished(engine)) => {
            let task = spawn(*engine, pass, tracing::Span::current());
            own.note(task.abort_handle());
            match task.await {
                Ok(Ok(_)) => return,
                Ok(Err(error)) => error,
                Err(error) => RunError::Stopped { run: run.clone(), reason: error.to_string() },
            }
        }
        Err(error) => return postpone(runtime, state, lease, postponed, &error).await,
    };
    match ended {
        RunError::Waiting { .. } | RunError::ShutDown { .. } | RunError::Cancelled { .. } => {}
        error => tracing::warn!(%run, %error, "a run that a worker continued has no result"),
    }
}

/// Postpones a run that cannot be resumed.
async fn postpone(
    runtime: &Runtime,
    state: &WorkerState,
    lease: Option<Lease>,
    before: u32,
    error: &(impl Error + Sync + 'static),
) {
    let run = lease.as_ref().map(|lease| lease.run().as_str());
    tracing::warn!(run, error = error as &(dyn Error + 'static), "a worker cannot continue a run");
    let (Some(lease), Some(store)) = (lease, &runtime.inner.store) else { return };
    state.postponed.fetch_add(1, Ordering::Relaxed);
    let pause = PAUSE.saturating_mul(1 << before.min(16)).min(LONGEST);
    let postponed = async {
        let until = store.now().await?.saturating_add(i64::try_from(pause.as_millis()).unwrap_or(i64::MAX));
        store.postpone(lease, until).await
    };
    if let Err(error) = postponed.await {
        tracing::warn!(%error, "a run that cannot be continued could not be postponed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compiles only if the future can be sent to another thread.
    fn can_be_sent<F: Future + Send>(_: impl FnOnce(Work) -> F) {}

    #[test]
    fn a_worker_can_run_on_any_thread() {
        can_be_sent(Work::run);
    }
}

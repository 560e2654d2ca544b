//! The runtime: what runs have in common, and where they begin.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use graph_model::capability::{Capability, Grants, Pattern};
use graph_model::digest::hex;
use graph_model::name::{GraphId, RunId};
use graph_model::program::Performer;
use graph_model::signature::SecretKey;
use graph_model::timestamp;
use graph_model::value::{AsView, Mismatch, Value};
use tracing::{Instrument, Span};

use crate::audit::{AuditError, verify_inside};
use crate::cache::NodeCache;
use crate::call::{RunFacts, ToolSettings};
use crate::classify::Classifier;
use crate::clock::{Clock, SystemClock};
use crate::engine::{Desk, Durability, Ended, Engine, Finished, RunContext, Standing, StepContext, Writing};
use crate::error::{BuildError, HistoryError, ResumeError, StartError};
use crate::gate::Gate;
use crate::graph::CompiledGraph;
use crate::hooks::{AnyHooks, Hooks, Layer};
use crate::machine::{Cells, Graph, Machine};
use crate::observer::{Event, Observer};
use crate::perform_items::PerformItems;
use crate::record::{
    Chain, Due, End, Entry, Journal, JournalError, Parent, Resume, Sealed, Start, Status, Verified, Visit,
};
use crate::run::{Run, Task, Work, spawn};
use crate::schema;
use crate::seal::SealKey;
use crate::step::{Position, retake};
use crate::stop::Stop;
use crate::store::{Lease, Store, StoreError};
use crate::threads::Threads;
use crate::vault::{Place, Vault, hide_sealed, hide_visit};

/// Runs graphs. Clones share everything.
#[derive(Debug, Clone)]
pub struct Runtime {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) store: Option<Arc<dyn Store>>,
    pub(crate) key: Option<SecretKey>,
    pub(crate) seal: Option<SealKey>,
    pub(crate) grants: Grants,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) observers: Vec<Arc<dyn Observer>>,
    /// The program's hooks: those that may steer before those that may not.
    pub(crate) hooks: Vec<(Layer, Arc<dyn AnyHooks>)>,
    /// The documented one if there is none. It is made when something fails: its regular expressions take milliseconds.
    pub(crate) classifier: Option<Classifier>,
    pub(crate) items: Option<Arc<dyn PerformItems>>,
    pub(crate) threads: Option<Arc<dyn Threads>>,
    pub(crate) cache: Option<NodeCache>,
    pub(crate) keeps_history: bool,
    pub(crate) tool_settings: Option<Arc<dyn ToolSettings>>,
    pub(crate) gate: Arc<Gate>,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime").field("store", &self.store).field("grants", &self.grants).finish_non_exhaustive()
    }
}

/// Puts a [`Runtime`] together.
#[derive(Default)]
pub struct Builder {
    store: Option<Arc<dyn Store>>,
    key: Option<SecretKey>,
    seal: Option<SealKey>,
    grants: Grants,
    clock: Option<Arc<dyn Clock>>,
    observers: Vec<Arc<dyn Observer>>,
    hooks: Vec<(Layer, Arc<dyn AnyHooks>)>,
    classifier: Option<Classifier>,
    items: Option<Arc<dyn PerformItems>>,
    threads: Option<Arc<dyn Threads>>,
    cache: Option<NodeCache>,
    keeps_history: bool,
    tool_settings: Option<Arc<dyn ToolSettings>>,
}

impl Builder {
    /// Keeps the journals of runs in `store`. Without one, a run lives in memory and leaves nothing behind.
    #[must_use]
    pub fn store(mut self, store: impl Store) -> Self {
        self.store = Some(Arc::new(store));
        self
    }

    /// Signs journals with `key`. A store needs one; it also is the key that a resumed run's journal must be signed with.
    #[must_use]
    pub fn sign_with(mut self, key: SecretKey) -> Self {
        self.key = Some(key);
        self
    }

    /// Seals secrets in journals with `key`. A graph that has secrets needs one where its runs are written down; it also is the
    /// key that a resumed run's secrets must be sealed with.
    #[must_use]
    pub fn seal_with(mut self, key: SealKey) -> Self {
        self.seal = Some(key);
        self
    }

    /// Grants capabilities: `rye.execute.tool.rye.bash`, or a pattern as `rye.execute.tool.*`. Nothing is granted that is
    /// not named here.
    ///
    /// # Errors
    ///
    /// If the pattern could never match.
    pub fn grant(mut self, pattern: &str) -> Result<Self, BuildError> {
        self.grants.add(Pattern::new(pattern)?);
        Ok(self)
    }

    /// Grants several capabilities, as the `CAPABILITIES` that a graph's module names.
    ///
    /// # Errors
    ///
    /// If one of the patterns could never match.
    pub fn grants(self, patterns: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self, BuildError> {
        patterns.into_iter().try_fold(self, |builder, pattern| builder.grant(pattern.as_ref()))
    }

    /// Tells the time. The computer's clock if not named.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Shows `observer` what runs do.
    #[must_use]
    pub fn observer(mut self, observer: impl Observer + 'static) -> Self {
        self.observers.push(Arc::new(observer));
        self
    }

    /// Tells `hooks` what happens to runs; those of [`Layer::Builtin`] may steer them.
    #[must_use]
    pub fn hooks(mut self, layer: Layer, hooks: impl Hooks) -> Self {
        self.hooks.push((layer, Arc::new(hooks)));
        self
    }

    /// Says what failures are, and so which are tried again. [`Classifier::documented`] if not named.
    #[must_use]
    pub fn classifier(mut self, classifier: Classifier) -> Self {
        self.classifier = Some(classifier);
        self
    }

    /// Finds items in `spaces`: for actions that fetch and sign, and for directives. Without them such an action fails.
    #[must_use]
    pub fn spaces(mut self, spaces: impl Into<Arc<dyn PerformItems>>) -> Self {
        self.items = Some(spaces.into());
        self
    }

    /// Looks for threads in the program's registry.
    #[must_use]
    pub fn threads(mut self, threads: impl Threads) -> Self {
        self.threads = Some(Arc::new(threads));
        self
    }

    /// Keeps what the calls of nodes with `cache_result: true` return, and gives it to who would make the same call (R295). Without
    /// one every call is made. It needs a key, [`Builder::sign_with`], which signs what is kept.
    #[must_use]
    pub fn cache(mut self, cache: NodeCache) -> Self {
        self.cache = Some(cache);
        self
    }

    /// Keeps every visit of a run, with what it returned, for [`Finished::history`](crate::Finished::history). Takes memory for
    /// each step; of runs in a store, [`Runtime::history`] tells at any time.
    #[must_use]
    pub fn keep_history(mut self) -> Self {
        self.keeps_history = true;
        self
    }

    /// Says what the built-in tools may reach: a `ToolConfig`. Without it, the tools for files and requests refuse everything. A program's
    /// own tools can be told what they may do in the same way, which [`Call::tool_settings`](crate::Call::tool_settings) returns.
    #[must_use]
    pub fn tools(mut self, tools: impl ToolSettings) -> Self {
        self.tool_settings = Some(Arc::new(tools));
        self
    }

    /// Puts the runtime together.
    ///
    /// # Errors
    ///
    /// If there is a store or a cache, and no key.
    pub fn build(self) -> Result<Runtime, BuildError> {
        if self.store.is_some() && self.key.is_none() {
            return Err(BuildError::NoKey);
        }
        if self.cache.is_some() && self.key.is_none() {
            return Err(BuildError::NoCacheKey);
        }
        let clock = self.clock.unwrap_or_else(|| Arc::new(SystemClock::new()));
        let Self { store, key, seal, grants, observers, mut hooks, classifier, items, threads, cache, .. } = self;
        let (tool_settings, keeps_history) = (self.tool_settings, self.keeps_history);
        hooks.sort_by_key(|(layer, _)| *layer);
        let inner = Inner {
            store,
            key,
            seal,
            grants,
            clock,
            observers,
            hooks,
            classifier,
            items,
            threads,
            cache,
            tool_settings,
            keeps_history,
            gate: Arc::default(),
        };
        Ok(Runtime { inner: Arc::new(inner) })
    }
}

/// A future of a [`Runtime`].
///
/// Its type names what comes of it and not the graph. A handler of a web framework that awaits it is `Send` for tools of any type,
/// also where `Actions` is implemented for a `&'static` reference: rustc cannot tell that of a future whose type has the reference in it.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

impl Runtime {
    /// Begins to put a runtime together.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Starts a run of `graph`. Its task is spawned on tokio's current runtime and goes on also if the [`Run`] is dropped.
    ///
    /// When this returns `Ok`, the beginning of the run is durable: a process that starts after a crash finds it.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves no half-begun run: either nothing of the run is kept, or it goes on by itself, as if its [`Run`] had
    /// been dropped. Which of both [`Store::find`] says, where the caller named the run's id.
    ///
    /// # Errors
    ///
    /// If a capability is not granted, an environment variable is not set, the inputs do not fit, there is a run of this id, the
    /// runtime was shut down, or the store fails. Nothing of the run is kept then.
    pub fn start<G: Graph>(
        &self,
        graph: G,
        inputs: G::Inputs,
    ) -> BoxFuture<'static, Result<Run<G::Output>, StartError>> {
        self.start_with(Options::default(), graph, inputs)
    }

    /// As [`Runtime::start`], with an id of the caller's own; a second run with it is refused.
    ///
    /// # Errors
    ///
    /// As [`Runtime::start`].
    pub fn start_as<G: Graph>(
        &self,
        run: RunId,
        graph: G,
        inputs: G::Inputs,
    ) -> BoxFuture<'static, Result<Run<G::Output>, StartError>> {
        self.start_with(Options { run: Some(run), ..Options::default() }, graph, inputs)
    }

    /// As [`Runtime::start`], with what holds for this run only.
    ///
    /// # Errors
    ///
    /// As [`Runtime::start`].
    pub fn start_with<G: Graph>(
        &self,
        options: Options,
        graph: G,
        inputs: G::Inputs,
    ) -> BoxFuture<'static, Result<Run<G::Output>, StartError>> {
        let (runtime, graph, inputs) = (self.clone(), Arc::new(graph), inputs.view().to_plain_value());
        Box::pin(async move {
            let run = match &options.run {
                Some(run) => run.clone(),
                None => runtime.new_id(graph.graph())?,
            };
            let begin = runtime.begin_with(run.clone(), options);
            let stop = begin.stop.clone();
            let task = runtime.launch(begin, Arc::clone(&graph) as _, inputs).await?;
            Ok(Run::of(graph, run, stop, Work::Running(task)))
        })
    }

    /// Begins a run and spawns its task. Whoever asks may stop waiting: what was begun goes on.
    async fn launch(&self, begin: Begin, machine: Arc<dyn Machine>, inputs: Value) -> Result<Task, StartError> {
        let run = begin.run.clone();
        let pass = self.inner.gate.enter(&run, &begin.stop).ok_or(StartError::ShutDown)?;
        let span = run_span(&run, &machine.graph().id);
        let (runtime, own) = (self.clone(), span.clone());
        let launched = async move {
            let engine = runtime.begin(begin, machine, inputs).await?;
            Ok(spawn(engine, pass, own))
        };
        if self.inner.store.is_none() {
            // Nothing is kept, and nothing is waited for.
            return launched.instrument(span).await;
        }
        apart(launched.instrument(span), || StartError::Store { run, source: StoreError::Closed }).await
    }

    /// Resumes a run and spawns its task. Whoever asks may stop waiting: what was resumed goes on.
    async fn relaunch(&self, begin: Begin, machine: Arc<dyn Machine>) -> Result<Work, ResumeError> {
        let run = begin.run.clone();
        let pass = self.inner.gate.enter(&run, &begin.stop).ok_or(StartError::ShutDown)?;
        let span = run_span(&run, &machine.graph().id);
        let (runtime, own) = (self.clone(), span.clone());
        let launched = async move {
            Ok(match runtime.take_up(begin, machine).await? {
                Taken::Ended(ended) => Work::Ended(ended),
                Taken::Unfinished(engine) => Work::Running(spawn(*engine, pass, own)),
            })
        };
        apart(launched.instrument(span), || ResumeError::Store { run, source: StoreError::Closed }).await
    }

    /// Takes up a run that a crash, an error or a full disk stopped, at the step that was not committed.
    ///
    /// A run that has ended with a result is not run again: its result is what the journal says, and observers are shown its
    /// records, as those of every run that is resumed. One that somebody [cancelled](Store::cancel), and that stopped before it
    /// heard of that, ends as cancelled without another call; see [`Options::ignore_cancel`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the run as it was, or resumed: it goes on by itself then, as if its [`Run`] had been dropped.
    ///
    /// # Errors
    ///
    /// If there is no such run, it is at work elsewhere, its journal was tampered with or is another graph's, or this
    /// runtime grants less than it needs. Nothing was changed then.
    pub fn resume<G: Graph>(&self, graph: G, run: &RunId) -> BoxFuture<'static, Result<Run<G::Output>, ResumeError>> {
        self.resume_with(Options::default(), graph, run)
    }

    /// As [`Runtime::resume`], with what holds from here on: `options.max_steps` counts the steps that were made before,
    /// `options.timeout` begins now, `options.depth` is at most that of the start, and `options.run` says nothing.
    ///
    /// # Errors
    ///
    /// As [`Runtime::resume`].
    pub fn resume_with<G: Graph>(
        &self,
        options: Options,
        graph: G,
        run: &RunId,
    ) -> BoxFuture<'static, Result<Run<G::Output>, ResumeError>> {
        let (runtime, graph, run) = (self.clone(), Arc::new(graph), run.clone());
        Box::pin(async move {
            let begin = runtime.begin_with(run.clone(), options);
            let stop = begin.stop.clone();
            let work = runtime.relaunch(begin, Arc::clone(&graph) as _).await?;
            Ok(Run::of(graph, run, stop, work))
        })
    }

    /// Stops all runs of this runtime where they stand, and begins no more: [`StartError::ShutDown`] is the answer to whoever asks,
    /// also of its clones.
    ///
    /// A run stops before its next step, and one that waits to make a call again stops waiting. Its [`Run`] gives
    /// [`RunError::ShutDown`](crate::RunError::ShutDown). It has not ended: in the store it is `running`, all that it did is durable, and it can be
    /// [resumed](Runtime::resume), also by another process. A call that is being made is waited for until `deadline` is over, and
    /// then dropped: it is made again when the run is resumed, with the same idempotency key. Tools are not told, for the run was
    /// not cancelled.
    ///
    /// Returns the runs that were not done in time. Nobody can end a tool that keeps its thread without ever waiting.
    ///
    /// Dropping the future leaves the runs stopping, and drops no call.
    pub async fn shutdown(&self, deadline: Duration) -> Vec<RunId> {
        let gate = &self.inner.gate;
        let stopping = gate.close();
        tracing::debug!(runs = stopping, "the runtime is shutting down");
        tokio::select! {
            biased;
            () = gate.emptied() => return Vec::new(),
            () = self.inner.clock.sleep(deadline) => {}
        }
        let late = gate.abort();
        tracing::warn!(runs = late.len(), "calls were dropped, for the runtime was shut down");
        // What was dropped gives its lease back; a thread that is kept is not waited for.
        drop(tokio::time::timeout(LATE, gate.emptied()).await);
        late
    }

    pub(crate) fn begin_with(&self, run: RunId, options: Options) -> Begin {
        let mut begin = Begin::of(run, &self.inner.grants);
        begin.ceiling.extend(options.capabilities.clone());
        begin.capabilities = options.capabilities;
        begin.depth = options.depth;
        begin.max_steps = options.max_steps;
        begin.durability = options.durability;
        begin.ignores_cancel = options.ignore_cancel;
        begin.deadline = options.timeout.map(|timeout| self.began() + timeout);
        begin
    }

    /// Returns every visit of a run, in order, as its journal tells: what a node returned each time it was visited. For secrets
    /// there stands `[secret]`.
    ///
    /// # Errors
    ///
    /// If there is no such run, or its journal is not what the engine wrote.
    pub async fn history(&self, run: &RunId) -> Result<Vec<Visit>, HistoryError> {
        let (Some(store), Some(key)) = (&self.inner.store, &self.inner.key) else { return Err(HistoryError::NoStore) };
        let sealed = store.load(run).await.map_err(|source| HistoryError::Store { run: run.clone(), source })?;
        let journal = Journal::verify(run, &sealed, &key.public())
            .map_err(|reason| HistoryError::Journal { run: run.clone(), reason })?;
        let visits = journal.records.into_iter().filter_map(|record| match record.entry {
            Entry::Step(step) => Some(step.visits),
            _ => None,
        });
        let hide = |mut visit: Visit| {
            hide_sealed(&mut visit.result);
            visit.changes.values_mut().chain(&mut visit.list).for_each(hide_sealed);
            visit
        };
        Ok(visits.flatten().map(hide).collect())
    }

    pub(crate) fn of(inner: &Arc<Inner>) -> Self {
        Self { inner: Arc::clone(inner) }
    }

    pub(crate) async fn begin(
        &self,
        begin: Begin,
        machine: Arc<dyn Machine>,
        inputs: Value,
    ) -> Result<Engine, StartError> {
        let code = machine.graph();
        let allowed = allowed(&*machine, &begin.ceiling)?;
        require_inputs(code, &inputs)?;
        let vault = Vault::open(code, &begin.run, self.inner.seal.as_ref(), self.inner.store.is_some())?;
        let state = open_inputs(&*machine, inputs)?;
        if let Some(vault) = &vault {
            vault.learn(code.settings.secrets.inputs.as_ref(), &state.inputs().to_plain_value());
        }
        let mut position = Position::new(code);
        position.limit = begin.max_steps.map(u64::from);
        let journal = match (&self.inner.store, &self.inner.key) {
            (Some(store), Some(key)) => {
                let mut chain = Chain::new(begin.run.clone());
                let entry = start_entry(&*machine, key, &*state, vault.as_deref(), &begin);
                let record = chain.seal("start", entry, self.inner.clock.now(), key);
                let lease = store.create(&begin.run, code.id.as_str(), vec![record.clone()]).await;
                let lease = lease.map_err(|source| match source {
                    StoreError::Exists(run) => StartError::Exists { run },
                    source => StartError::Store { run: begin.run.clone(), source },
                })?;
                lease.stops(&begin.stop);
                self.recorded(&begin.run, code, std::slice::from_ref(&record));
                let mut due = Due::default();
                due.wrote(record.body.len());
                Some(Writing::new(&self.inner, &machine, begin.durability, lease, chain, due))
            }
            _ => None,
        };
        let done = HashMap::new();
        Ok(self.engine(begin, Parts { machine, allowed, vault, state, position, journal, done, is_new: true }))
    }

    fn engine(&self, begin: Begin, parts: Parts) -> Engine {
        let Parts { machine, allowed, vault, state, position, journal, done, is_new } = parts;
        let code = machine.graph();
        let began = self.began();
        let own = code.settings.timeout_ms.map(|timeout| began + Duration::from_millis(timeout));
        let facts = Arc::new(RunFacts {
            id: begin.run,
            graph: Arc::clone(&code.facts),
            parent: begin.parent,
            depth: begin.depth.map_or(code.settings.depth, |depth| depth.min(code.settings.depth)),
            ceiling: begin.ceiling,
            deadline: own.into_iter().chain(begin.deadline).min(),
            stop: begin.stop,
            ignores_cancel: begin.ignores_cancel,
            tool_settings: self.inner.tool_settings.clone(),
        });
        let (nodes, steps) = (code.nodes.len(), position.steps);
        let event = Event::RunStarted { run: &facts.id, graph: &facts.graph.id, nodes, steps };
        self.inner.observers.iter().for_each(|observer| observer.observe(&event));
        let run = RunContext {
            machine,
            runtime: Arc::clone(&self.inner),
            facts,
            allowed,
            vault,
            is_kept: journal.is_some(),
            durability: begin.durability,
            desk: Desk::default(),
            began,
        };
        let standing = Standing { state, position, done };
        Engine {
            context: StepContext { run: Arc::new(run), standing: Arc::new(standing) },
            is_new,
            history: self.inner.keeps_history.then(Vec::new),
            journal,
            slots: Vec::new(),
            turn: Instant::now(),
        }
    }

    /// Shows observers what was committed.
    pub(crate) fn recorded(&self, run: &RunId, graph: &CompiledGraph, records: &[Sealed]) {
        let event = Event::Recorded { run, graph, records };
        self.inner.observers.iter().for_each(|observer| observer.observe(&event));
    }

    fn began(&self) -> Duration {
        self.inner.clock.monotonic()
    }

    /// Makes an id for a run of `graph`, as [`Runtime::start`] does: for a caller that must know it before the run begins.
    ///
    /// # Errors
    ///
    /// If the system has no randomness to give.
    pub fn new_run_id<G: Graph>(&self, graph: &G) -> Result<RunId, StartError> {
        self.new_id(graph.graph())
    }

    /// Makes a run's id: the graph's short name, the Unix time, and what makes it the only one (R15).
    pub(crate) fn new_id(&self, code: &CompiledGraph) -> Result<RunId, StartError> {
        let mut random = [0; 6];
        getrandom::fill(&mut random).map_err(|error| StartError::NoRandomness(error.to_string()))?;
        let seconds = timestamp::unix_milliseconds(self.inner.clock.now()) / 1000;
        let name: String = code.id.stem().chars().take(100).collect();
        Ok(RunId::new(format!("{name}-{seconds}-{}", hex(&random)))
            .expect("a graph's short name has the letters of a run id"))
    }

    /// Verifies the journal of a run of a graph and reads what is needed of it, with its secrets.
    pub(crate) fn read_journal(
        &self,
        code: &CompiledGraph,
        run: &RunId,
        sealed: &[Sealed],
        vault: Option<&Vault>,
    ) -> Result<Journal, ResumeError> {
        let key = self.inner.key.as_ref().ok_or(ResumeError::NoStore)?.public();
        let misfit = |reason| ResumeError::Journal { run: run.clone(), reason };
        let verified = Verified::new(run, sealed, &key).map_err(misfit)?;
        let journal = if self.inner.keeps_history { verified.read() } else { verified.read_recent() };
        let mut journal = journal.map_err(misfit)?;
        let Start { graph, digest, version, .. } = &journal.start;
        if *graph != code.id.as_str() || *digest != code.digest {
            let found = format!("{graph} {version} ({digest})");
            let expected = format!("{} {} ({})", code.id, code.version, code.digest);
            let gone = gone(code, &Journal::verify(run, sealed, &key).map_err(misfit)?);
            return Err(ResumeError::AnotherGraph { run: run.clone(), expected, found, gone });
        }
        if let Some(vault) = vault {
            let expected = vault.fingerprint();
            if journal.start.seal != expected {
                let (expected, found) = (expected.unwrap_or_default(), journal.start.seal);
                return Err(ResumeError::AnotherSealKey { run: run.clone(), expected, found });
            }
            vault.unseal_journal(code, &mut journal).map_err(misfit)?;
        }
        Ok(journal)
    }

    pub(crate) async fn take_up(&self, begin: Begin, machine: Arc<dyn Machine>) -> Result<Taken, ResumeError> {
        let run = &begin.run;
        let (Some(store), Some(key)) = (&self.inner.store, &self.inner.key) else { return Err(ResumeError::NoStore) };
        let code = machine.graph();
        let store_failed = |source| ResumeError::Store { run: run.clone(), source };
        let misfit = |reason| ResumeError::Journal { run: run.clone(), reason };
        let vault = Vault::open(code, run, self.inner.seal.as_ref(), true)?;
        let read = |sealed: &[Sealed]| {
            let journal = self.read_journal(code, run, sealed, vault.as_deref())?;
            // A nested run goes on with its parent, which holds what bounds it (R167).
            if journal.start.parent != begin.parent {
                return Err(ResumeError::Nested { run: run.clone(), parent: journal.start.parent });
            }
            Ok(journal)
        };
        // A run that ended is read without a lease: nobody writes to it.
        let mut sealed = store.load(run).await.map_err(store_failed)?;
        let mut journal = read(&sealed)?;
        if let Some(ended) = result_of(code, &*machine, &journal, self.inner.keeps_history).map_err(misfit)? {
            // Its process may have died before its observers saw the end, as who keeps files of it.
            self.recorded(run, code, &sealed);
            return Ok(Taken::Ended(Box::new(ended)));
        }
        let add_up = |journal: &Journal| add_up(code, &*machine, journal).map_err(misfit);
        // All that can fail is tried before the lease is taken, which other holders see.
        let mut replayed = add_up(&journal)?;
        let (public, seal) = (key.public(), self.inner.seal.as_ref());
        let inside = verify_inside(&machine, run, &sealed, &replayed.done, &**store, &public, seal).await;
        inside.map_err(|error| match error {
            AuditError::Store { run, source } => ResumeError::Store { run, source },
            AuditError::Journal { run, reason } => ResumeError::Journal { run, reason },
        })?;
        // What its first caller did not let it use, who takes it up does not either.
        let capabilities = journal.start.capabilities.clone().map(Grants::new);
        let ceiling: Vec<Grants> = begin.ceiling.iter().cloned().chain(capabilities).collect();
        let allowed = allowed(&*machine, &ceiling)?;
        let lease = match begin.ignores_cancel {
            true => store.lease_ignoring_cancel(run).await,
            false => store.lease(run).await,
        };
        let lease: Lease = lease.map_err(store_failed)?;
        lease.stops(&begin.stop);
        // What was read before the lease may have grown since.
        let last = sealed.len() - 1;
        let later = store.load_from(run, last as u64).await.map_err(store_failed)?;
        if later != sealed[last..] {
            sealed.truncate(last);
            sealed.extend(later);
            journal = read(&sealed)?;
            if let Some(ended) = result_of(code, &*machine, &journal, self.inner.keeps_history).map_err(misfit)? {
                self.recorded(run, code, &sealed);
                return Ok(Taken::Ended(Box::new(ended)));
            }
            replayed = add_up(&journal)?;
        }
        let Replayed { state, mut position, done } = replayed;
        if let Some(most) = begin.max_steps {
            position.limit = Some(u64::from(most));
        }
        let (mut chain, due) = (journal.chain, journal.due);
        let known = chain.len();
        let (limit, depth) = (begin.max_steps, begin.depth);
        let entry = Resume { steps: position.steps, grants: granted(&*machine, &ceiling), limit, depth };
        let record = chain.seal("resume", &entry, self.inner.clock.now(), key);
        store.append(&lease, known, vec![record.clone()], Status::Running).await.map_err(store_failed)?;
        sealed.push(record);
        self.recorded(run, code, &sealed);
        let writing = Writing::new(&self.inner, &machine, begin.durability, lease, chain, due);
        let depth = begin.depth.into_iter().chain(journal.start.depth).min();
        let begin = Begin { depth, ceiling, ..begin };
        let parts = Parts { machine, allowed, vault, state, position, journal: Some(writing), done, is_new: false };
        Ok(Taken::Unfinished(Box::new(self.engine(begin, parts))))
    }
}

/// Adds up the records of the journal of a run that has not ended with a result.
pub(crate) fn add_up(code: &CompiledGraph, machine: &dyn Machine, journal: &Journal) -> Result<Replayed, JournalError> {
    let replayed = replay(code, machine, journal)?;
    if replayed.position.frontier.is_empty() {
        // A run's last step and its end are written together: somebody took the end away.
        let reason = "the run had ended, and the record of its end is missing".to_owned();
        return Err(JournalError::Misfit { seq: journal.chain.len(), reason });
    }
    Ok(replayed)
}

/// Returns the nodes that a run visited or is to visit next and that a graph has not.
fn gone(code: &CompiledGraph, journal: &Journal) -> Vec<String> {
    let steps = journal.records.iter().filter_map(|record| match &record.entry {
        Entry::Step(step) => Some(step),
        _ => None,
    });
    let mut gone: Vec<String> = Vec::new();
    for step in steps {
        let visited = step.visits.iter().map(|visit| &visit.node).chain(step.next.iter().map(|target| &target.node));
        for node in visited {
            if code.node_named(node).is_none() && !gone.contains(node) {
                gone.push(node.clone());
            }
        }
    }
    gone
}

/// What an engine is made of, besides what a run begins with.
struct Parts {
    machine: Arc<dyn Machine>,
    allowed: Vec<bool>,
    vault: Option<Arc<Vault>>,
    state: Box<dyn Cells>,
    position: Position,
    journal: Option<Writing>,
    done: Finished,
    is_new: bool,
}

/// What holds for one run only.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The run's id; made of the graph's name, the time and chance if not named (R15).
    pub run: Option<RunId>,
    /// What the run may use of what the runtime grants.
    pub capabilities: Option<Grants>,
    /// How many graphs and threads may stand one in the other below it; never more than the graph says.
    pub depth: Option<u32>,
    /// How many steps it may take, in place of what the graph says.
    pub max_steps: Option<u32>,
    /// How long it may take, beside what the graph says.
    pub timeout: Option<Duration>,
    /// When a step counts as taken: what of it survives what.
    pub durability: Durability,
    /// Whether a run that is resumed goes on although somebody [cancelled](Store::cancel) it before. Otherwise it ends as cancelled at
    /// once. Of a run that begins it says nothing.
    pub ignore_cancel: bool,
}

/// What a run begins with, besides its graph and inputs.
#[derive(Clone)]
pub(crate) struct Begin {
    pub(crate) run: RunId,
    pub(crate) parent: Option<Parent>,
    pub(crate) depth: Option<u32>,
    pub(crate) ceiling: Vec<Grants>,
    pub(crate) deadline: Option<Duration>,
    pub(crate) stop: Stop,
    pub(crate) max_steps: Option<u32>,
    /// What the caller says that it may use; it is in the ceiling too.
    pub(crate) capabilities: Option<Grants>,
    pub(crate) durability: Durability,
    pub(crate) ignores_cancel: bool,
}

impl Begin {
    fn of(run: RunId, grants: &Grants) -> Self {
        let (ceiling, stop) = (vec![grants.clone()], Stop::default());
        Self {
            run,
            parent: None,
            depth: None,
            ceiling,
            deadline: None,
            stop,
            max_steps: None,
            capabilities: None,
            durability: Durability::default(),
            ignores_cancel: false,
        }
    }
}

/// How long a runtime that shuts down waits for runs whose calls it dropped.
const LATE: Duration = Duration::from_millis(500);

/// Returns the span of a run, in that of the caller.
pub(crate) fn run_span(run: &RunId, graph: &GraphId) -> Span {
    tracing::info_span!("graph.run", %run, %graph)
}

/// Does something in a task of its own, which goes on if nobody waits for it any more. `lost` is the answer where tokio itself is
/// shut down meanwhile.
async fn apart<T, E>(
    work: impl Future<Output = Result<T, E>> + Send + 'static,
    lost: impl FnOnce() -> E,
) -> Result<T, E>
where
    T: Send + 'static,
    E: Send + 'static,
{
    match tokio::spawn(work).await {
        Ok(done) => done,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => Err(lost()),
    }
}

fn start_entry(
    machine: &dyn Machine,
    key: &SecretKey,
    state: &dyn Cells,
    vault: Option<&Vault>,
    begin: &Begin,
) -> Start {
    let code = machine.graph();
    let inputs = state.inputs().to_plain_value();
    let inputs = match vault {
        Some(vault) => vault.seal(code.settings.secrets.inputs.as_ref(), Place::INPUTS, inputs),
        None => inputs,
    };
    Start {
        graph: code.id.to_string(),
        version: code.version.clone(),
        digest: code.digest,
        signer: code.signer.clone(),
        key: hex(key.public().as_bytes()),
        grants: granted(machine, &begin.ceiling),
        inputs,
        seal: vault.and_then(Vault::fingerprint),
        parent: begin.parent.clone(),
        from: None,
        depth: begin.depth,
        limit: begin.max_steps,
        capabilities: begin.capabilities.as_ref().map(|grants| grants.patterns().to_vec()),
    }
}

/// Returns what a run may use, as patterns: what all of the ceiling grants. Where patterns cannot say that, each capability is named
/// that the graph needs, or one inside it.
pub(crate) fn granted(machine: &dyn Machine, ceiling: &[Grants]) -> Vec<String> {
    let all = ceiling.iter().cloned().reduce(|all, one| all.narrowed(&one)).unwrap_or_default();
    let mut patterns: Vec<String> = all.patterns().iter().map(ToString::to_string).collect();
    if ceiling.len() > 1 {
        name_needed(machine, ceiling, &all, &mut Vec::new(), &mut patterns);
    }
    patterns
}

/// Adds the capabilities that a graph, and those inside it, need and all of the ceiling grants, where patterns do not say so.
fn name_needed(
    machine: &dyn Machine,
    ceiling: &[Grants],
    said: &Grants,
    seen: &mut Vec<GraphId>,
    patterns: &mut Vec<String>,
) {
    let code = machine.graph();
    if seen.contains(&code.id) {
        return;
    }
    seen.push(code.id.clone());
    for needed in code.tools.iter().filter_map(|tool| tool.capability.as_ref()) {
        let name = needed.to_string();
        if ceiling.iter().all(|grants| grants.allow(needed)) && !said.allow(needed) && !patterns.contains(&name) {
            patterns.push(name);
        }
    }
    let graphs = (0..).zip(&code.tools).filter(|(_, tool)| tool.by == Performer::Graph);
    for inner in graphs.filter_map(|(tool, _)| machine.nested(tool)) {
        name_needed(&*inner, ceiling, said, seen, patterns);
    }
}

/// Checks before the first step what can be checked then: capabilities and environment (R41, R279). Says of each tool
/// whether a run may call it; of one whose id is known only at each call that is asked then.
pub(crate) fn allowed(machine: &dyn Machine, ceiling: &[Grants]) -> Result<Vec<bool>, StartError> {
    let code = machine.graph();
    let graph = || code.id.to_string();
    let missing = not_granted(machine, ceiling);
    if !missing.is_empty() {
        return Err(StartError::NotGranted { graph: graph(), missing });
    }
    let is_unset = |name: &String| std::env::var_os(name.as_str()).is_none();
    let mut unset: Vec<String> =
        code.env.iter().filter(|name| is_unset(name)).map(|name| required(code, name)).collect();
    inside_require(machine, &mut vec![code.id.clone()], &is_unset, &mut unset);
    if !unset.is_empty() {
        return Err(StartError::MissingEnvironment(unset));
    }
    let missing = machine.missing_tools();
    if !missing.is_empty() {
        let tools = missing.iter().map(|id| format!("`{id}`")).collect();
        return Err(StartError::MissingTools { graph: graph(), tools });
    }
    Ok(code.tools.iter().map(|tool| tool.id.is_some()).collect())
}

/// Returns the capabilities that a run of a graph needs and may not use, each with backticks.
pub(crate) fn not_granted(machine: &dyn Machine, ceiling: &[Grants]) -> Vec<String> {
    let code = machine.graph();
    // What the graph permits itself was checked by the compiler; a graph that was interpreted or written by hand counts
    // on the same.
    let is_allowed = |capability: &Capability| {
        ceiling.iter().all(|grants| grants.allow(capability)) && code.permissions.allow(capability)
    };
    let needed = code.tools.iter().filter_map(|tool| tool.capability.as_ref());
    let mut missing = needed.filter(|needed| !is_allowed(needed)).map(|needed| format!("`{needed}`")).collect();
    missing_inside(machine, ceiling, &mut Vec::new(), &mut missing);
    missing
}

/// Fails if an input that a graph requires is missing (R49).
fn require_inputs(code: &CompiledGraph, inputs: &Value) -> Result<(), StartError> {
    let given = |name: &&String| !inputs.get(name.as_str()).unwrap_or(&Value::Null).is_null();
    let missing: Vec<String> = code.settings.required.iter().filter(|name| !given(name)).cloned().collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(StartError::MissingInputs { graph: code.id.to_string(), missing })
}

/// Returns the state of a new run: its inputs with their defaults, and the first values of its keys.
fn open_inputs(machine: &dyn Machine, inputs: Value) -> Result<Box<dyn Cells>, StartError> {
    let code = machine.graph();
    let misfit = |mismatch| StartError::Inputs { graph: code.id.to_string(), mismatch, others: Vec::new() };
    let mut state = machine.open(inputs).map_err(misfit)?;
    if let Some(schema) = &code.settings.schema {
        schema::validate(schema, &state.inputs().to_plain_value()).map_err(|invalid| invalid.of(code))?;
    }
    initialise(code, &mut *state).map_err(misfit)?;
    Ok(state)
}

/// Fails if no run of a graph begins with such inputs, as [`Runtime::begin`] does. Nothing begins.
pub(crate) fn accepts_inputs(machine: &dyn Machine, inputs: &Value) -> Result<(), StartError> {
    require_inputs(machine.graph(), inputs)?;
    open_inputs(machine, inputs.clone()).map(drop)
}

/// Returns what is said of each environment variable that a graph and those inside it require, if it is not set.
pub(crate) fn required_environment(machine: &dyn Machine) -> Vec<String> {
    let code = machine.graph();
    let mut all = code.env.iter().map(|name| required(code, name)).collect();
    inside_require(machine, &mut vec![code.id.clone()], &|_| true, &mut all);
    all
}

/// Says who asks for an environment variable: the graph, or the first node that does (R280).
fn required(code: &CompiledGraph, name: &String) -> String {
    let Some(node) = code.nodes.iter().find(|node| node.env.contains(name)) else {
        return format!("graph requires '{name}'");
    };
    let tool = node.kind.calls().and_then(|tool| code.tool(tool)).map_or("", |tool| tool.name());
    let shown = if tool.is_empty() { String::new() } else { format!(" ({tool})") };
    format!("node '{}'{shown} requires '{name}'", node.name)
}

/// Adds what the graphs inside a graph need and the caller does not grant. What one of the graphs around them does not permit is
/// not the caller's to grant: that fails its node.
fn missing_inside(machine: &dyn Machine, ceiling: &[Grants], around: &mut Vec<Around>, missing: &mut Vec<String>) {
    let code = machine.graph();
    // Graphs may nest each other in a circle: each is looked at once.
    if !code.tools.iter().any(|tool| tool.by == Performer::Graph) || around.iter().any(|graph| graph.id == code.id) {
        return;
    }
    around.push(Around { id: code.id.clone(), permissions: code.permissions.clone(), is_open: true });
    let at = around.len() - 1;
    let graphs = (0..).zip(&code.tools).filter(|(_, tool)| tool.by == Performer::Graph);
    for inner in graphs.filter_map(|(tool, _)| machine.nested(tool)) {
        let code = inner.graph();
        let outer = around.iter().filter(|graph| graph.is_open).map(|graph| &graph.permissions);
        let permissions: Vec<&Grants> = outer.chain([&code.permissions]).collect();
        for needed in code.tools.iter().filter_map(|tool| tool.capability.as_ref()) {
            let is_permitted = permissions.iter().all(|grants| grants.allow(needed));
            let shown = format!("`{needed}`");
            if is_permitted && !ceiling.iter().all(|grants| grants.allow(needed)) && !missing.contains(&shown) {
                missing.push(shown);
            }
        }
        missing_inside(&*inner, ceiling, around, missing);
    }
    around[at].is_open = false;
}

/// Adds the environment variables that the graphs inside a graph require, of those that `counts` says.
fn inside_require(
    machine: &dyn Machine,
    seen: &mut Vec<GraphId>,
    counts: &dyn Fn(&String) -> bool,
    all: &mut Vec<String>,
) {
    let graphs = (0..).zip(&machine.graph().tools).filter(|(_, tool)| tool.by == Performer::Graph);
    for inner in graphs.filter_map(|(tool, _)| machine.nested(tool)) {
        let code = inner.graph();
        // Graphs may nest each other in a circle: each is looked at once.
        if seen.contains(&code.id) {
            continue;
        }
        seen.push(code.id.clone());
        let names = code.env.iter().filter(|name| counts(name));
        all.extend(names.map(|name| format!("graph '{}' requires '{name}'", code.id)));
        inside_require(&*inner, seen, counts, all);
    }
}

/// A graph that was looked at.
struct Around {
    id: GraphId,
    permissions: Grants,
    /// Whether the graphs that are looked at run inside it.
    is_open: bool,
}

/// A run that was found in a store.
pub(crate) enum Taken {
    Ended(Box<Ended>),
    Unfinished(Box<Engine>),
}

/// Sets the first values that the graph gives to state keys.
pub(crate) fn initialise(code: &CompiledGraph, state: &mut dyn Cells) -> Result<(), Mismatch> {
    for (index, key) in code.keys.iter().enumerate() {
        if let Some(initial) = &key.initial {
            state.set(index, initial.clone()).map_err(|error| error.inside(key.name.clone()))?;
        }
    }
    Ok(())
}

/// Returns the result of a run that ended with one, with its visits if they are kept: the whole journal was read then.
pub(crate) fn result_of(
    code: &CompiledGraph,
    machine: &dyn Machine,
    journal: &Journal,
    keeps_history: bool,
) -> Result<Option<Ended>, JournalError> {
    let Some(Entry::End(end)) = journal.records.last().map(|record| &record.entry) else {
        return Ok(None);
    };
    let End { status, steps, output, exhausted, .. } = end;
    if !matches!(status, Status::Completed | Status::CompletedWithErrors) {
        return Ok(None);
    }
    let Replayed { state, position, .. } = replay(code, machine, journal)?;
    let state = crate::engine::state_value(code, &*state, &position);
    let exhausted = *exhausted && code.flags_limit();
    let history = journal.records.iter().filter(|_| keeps_history).filter_map(|record| match &record.entry {
        Entry::Step(step) => Some(step.visits.clone()),
        _ => None,
    });
    let hide = |mut visit: Visit| {
        hide_visit(code, &mut visit);
        visit
    };
    Ok(Some(Ended {
        status: *status,
        node: code.node(position.last).name.clone(),
        output: output.clone(),
        hidden: code.settings.secrets.output.as_ref().map(|mask| Box::new(mask.hide(output.clone()))),
        state,
        steps: *steps,
        suppressed: position.suppressed,
        exhausted,
        history: history.flatten().map(hide).collect(),
    }))
}

/// What the records of a journal add up to.
pub(crate) struct Replayed {
    /// The state after the last step.
    state: Box<dyn Cells>,
    /// Where the run stands.
    pub(crate) position: Position,
    /// What of the next step is done.
    done: Finished,
}

/// Adds up the records of a journal.
fn replay(code: &CompiledGraph, machine: &dyn Machine, journal: &Journal) -> Result<Replayed, JournalError> {
    let misfit = |seq, reason: String| JournalError::Misfit { seq, reason };
    let mut state = machine.open(journal.start.inputs.clone()).map_err(|error| misfit(0, error.to_string()))?;
    initialise(code, &mut *state).map_err(|error| misfit(0, error.to_string()))?;
    let mut position = Position::new(code);
    position.limit = journal.start.limit.map(u64::from);
    let mut done = Finished::new();
    for (at, record) in journal.records.iter().enumerate() {
        let misfit = |reason| misfit(record.seq, reason);
        match &record.entry {
            Entry::Step(step) => {
                done.clear();
                retake(code, Some(&mut *state), &mut position, step).map_err(misfit)?;
            }
            // Where the records before it are there too, it says nothing new.
            Entry::Snapshot(snapshot) if at == 0 => {
                position = snapshot.restore(code, &mut *state).map_err(misfit)?;
            }
            Entry::Calls(calls) => {
                done.extend(calls.done.iter().map(|done| ((done.step, done.item), done.clone())));
            }
            Entry::End(end) => done.retain(|_, done| !end.forgets(done)),
            Entry::Resume(resume) => position.limit = resume.limit.map(u64::from).or(position.limit),
            Entry::Start(_) | Entry::Snapshot(_) => {}
        }
    }
    Ok(Replayed { state, position, done })
}

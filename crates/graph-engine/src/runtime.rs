//! The runtime: the services that runs share, and the methods that begin them.

use crate::admission::allowed;
use crate::answer::{AnswerKeys, ReadAnswerKeys};
use crate::cache::NodeCache;
use crate::call::ToolSettings;
use crate::classify::Classifier;
use crate::clock::{Clock, SystemClock};
use crate::encryption_key::EncryptionKey;
use crate::engine::{Begin, Durability, Taken, run_span};
use crate::error::{BuildError, ResumeError, StartError, StoredRunError};
use crate::future::BoxFuture;
use crate::graph::tables;
use crate::hooks::{AnyHooks, Hooks, Layer};
use crate::machine::{Graph, Machine};
use crate::observer::Observer;
use crate::perform_items::PerformItems;
use crate::record::{Entry, Journal, Visit};
use crate::run::{Run, Task, Work, spawn};
use crate::run_secrets::{RunSecrets, hide_encrypted};
use crate::services::RuntimeServices;
use crate::status::Status;
use crate::step::PausedNodes;
use crate::store::{Store, StoreError};
use crate::threads::Threads;
use crate::versions::{kept_version, version};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use graph_model::capability::{Grants, Pattern};
use graph_model::name::RunId;
use graph_model::value::{AsView, Value};
use graph_signing::SecretKey;
use tracing::Instrument;

/// Runs graphs. Clones share everything.
///
/// A program builds one runtime, and starts all of its runs with it:
///
/// ```
/// # use graph_engine as graph_runtime;
/// # async fn example<G: graph_runtime::Graph>(
/// #     graph: G,
/// #     inputs: G::Inputs,
/// # ) -> Result<(), Box<dyn std::error::Error>> {
/// use graph_runtime::Runtime;
///
/// let runtime = Runtime::builder().grants(["rye.execute.tool.shop.*"])?.build()?;
/// let finished = runtime.start(graph, inputs).await?.await?;
/// println!("run {} ended at `{}` after {} steps", finished.run, finished.node, finished.steps);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Runtime {
    pub(crate) inner: Arc<RuntimeServices>,
}

/// Builds a [`Runtime`].
///
/// Only grants are necessary. This runtime also keeps the journals of its runs, encrypts their secrets, and shows their
/// progress. In a service, the store is `SqliteStore` instead:
///
/// ```
/// # use graph_engine as graph_runtime;
/// # #[cfg(feature = "progress")] {
/// use graph_runtime::{EncryptionKey, MemoryStore, Progress, Runtime, SecretKey};
///
/// let runtime = Runtime::builder()
///     .store(MemoryStore::new())
///     .sign_with(SecretKey::generate()?)
///     .encrypt_with(EncryptionKey::generate()?)
///     .grants(["rye.execute.tool.shop.*", "rye.execute.tool.payments.charge"])?
///     .observer(Progress::stderr())
///     .build()?;
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Default)]
pub struct Builder {
    store: Option<Arc<dyn Store>>,
    key: Option<SecretKey>,
    encryption_key: Option<EncryptionKey>,
    grants: Grants,
    clock: Option<Arc<dyn Clock>>,
    observers: Vec<Arc<dyn Observer>>,
    #[cfg(feature = "events")]
    pub(crate) events: Option<usize>,
    hooks: Vec<(Layer, Arc<dyn AnyHooks>)>,
    classifier: Option<Classifier>,
    items: Option<Arc<dyn PerformItems>>,
    threads: Option<Arc<dyn Threads>>,
    cache: Option<NodeCache>,
    keeps_history: bool,
    tool_settings: Option<Arc<dyn ToolSettings>>,
    answer_keys: Option<ReadAnswerKeys>,
}

impl Builder {
    /// Keeps the journals of runs in `store`. Without one, a run lives in memory and leaves nothing behind.
    ///
    /// [`Builder`] has an example. The example of [`MemoryStore`](crate::MemoryStore) reads a journal.
    #[must_use]
    pub fn store(mut self, store: impl Store) -> Self {
        self.store = Some(Arc::new(store));
        self
    }

    /// Signs journals with `key`. A store needs one. The journal of a resumed run must be signed with it too.
    ///
    /// The example of [`SecretKey`] loads a key from its directory.
    #[must_use]
    pub fn sign_with(mut self, key: SecretKey) -> Self {
        self.key = Some(key);
        self
    }

    /// Encrypts secrets in journals with `key`. A graph that has secrets needs one if its runs are written to a journal. The
    /// secrets of a resumed run must be encrypted with it too.
    ///
    /// The example of [`EncryptionKey`] loads a key from its file.
    #[must_use]
    pub fn encrypt_with(mut self, key: EncryptionKey) -> Self {
        self.encryption_key = Some(key);
        self
    }

    /// Grants capabilities: `rye.execute.tool.rye.bash`, or a pattern such as `rye.execute.tool.*`. Only capabilities that
    /// are named here are granted.
    ///
    /// The example of [`Pattern`] shows which capabilities a pattern grants.
    ///
    /// # Errors
    ///
    /// If the pattern could never match.
    pub fn grant(mut self, pattern: &str) -> Result<Self, BuildError> {
        self.grants.add(Pattern::new(pattern)?);
        Ok(self)
    }

    /// Grants several capabilities, such as the `CAPABILITIES` of a graph's module.
    ///
    /// [`Runtime`] and [`Builder`] have examples.
    ///
    /// # Errors
    ///
    /// If one of the patterns could never match.
    pub fn grants(self, patterns: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self, BuildError> {
        patterns.into_iter().try_fold(self, |builder, pattern| builder.grant(pattern.as_ref()))
    }

    /// Sets the clock. The default is the computer's clock.
    ///
    /// [`ManualClock`](crate::ManualClock) and [`TokioClock`](crate::TokioClock) have examples for tests.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Sends the events of runs to `observer`.
    ///
    /// The example of [`Observer`] counts the runs that failed.
    #[must_use]
    pub fn observer(mut self, observer: impl Observer + 'static) -> Self {
        self.observers.push(Arc::new(observer));
        self
    }

    /// Notifies `hooks` of the events of runs; those of [`Layer::Builtin`] may steer them.
    ///
    /// The example of [`Hooks`] ends a run.
    #[must_use]
    pub fn hooks(mut self, layer: Layer, hooks: impl Hooks) -> Self {
        self.hooks.push((layer, Arc::new(hooks)));
        self
    }

    /// Sets the classifier of failures, which decides whether they are tried again. The default is
    /// [`Classifier::documented`].
    ///
    /// The example of [`Classifier`] adds a kind of failure.
    #[must_use]
    pub fn classifier(mut self, classifier: Classifier) -> Self {
        self.classifier = Some(classifier);
        self
    }

    /// Finds items in `spaces`, for actions that fetch and sign, and for directives. Without them such an action fails.
    ///
    /// `Spaces` of the feature `items` reads them from files, and has an example. The example of [`PerformItems`] reads them
    /// from a table.
    #[must_use]
    pub fn spaces(mut self, spaces: impl Into<Arc<dyn PerformItems>>) -> Self {
        self.items = Some(spaces.into());
        self
    }

    /// Looks threads up in the program's registry.
    ///
    /// The example of [`Threads`] is such a registry.
    #[must_use]
    pub fn threads(mut self, threads: impl Threads) -> Self {
        self.threads = Some(Arc::new(threads));
        self
    }

    /// Caches the results of nodes with `cache_result: true`, and returns them for identical calls (R295). Without a cache
    /// every call is made. It needs a key, [`Builder::sign_with`], which signs its entries.
    ///
    /// [`NodeCache`] has an example.
    #[must_use]
    pub fn cache(mut self, cache: NodeCache) -> Self {
        self.cache = Some(cache);
        self
    }

    /// Keeps every visit of a run, with its result, for [`Finished::history`](crate::Finished::history). This takes memory
    /// for each step; for runs in a store, [`Runtime::history`] works at any time.
    ///
    /// ```
    /// # use graph_engine as graph_runtime;
    /// # async fn example<G: graph_runtime::Graph>(
    /// #     graph: G,
    /// #     inputs: G::Inputs,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// use graph_runtime::Runtime;
    ///
    /// let runtime = Runtime::builder().grants(["rye.execute.tool.shop.*"])?.keep_history().build()?;
    /// let finished = runtime.start(graph, inputs).await?.await?;
    /// for visit in &finished.history {
    ///     println!("`{}` returned {}", visit.node, visit.result);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn keep_history(mut self) -> Self {
        self.keeps_history = true;
        self
    }

    /// Sets what the built-in tools may reach: a `ToolConfig`. Without it, the tools for files and requests refuse
    /// everything. A program's own tools can be given settings in the same way;
    /// [`Call::tool_settings`](crate::Call::tool_settings) returns them.
    ///
    /// The example of [`ToolSettings`] is of such a tool.
    #[must_use]
    pub fn tools(mut self, tools: impl ToolSettings) -> Self {
        self.tool_settings = Some(Arc::new(tools));
        self
    }

    /// Accepts the [answers](Runtime::answer) of people whose keys the function returns. Without it, no answer is accepted.
    ///
    /// The function is called once for each answer, on a thread that may block, so that each revocation counts at once: with the
    /// feature `answers` of `graph-runtime`, `answer_keys(|| KeyRing::load(&[Path::new("graphs/keys")]).0)`.
    #[must_use]
    pub fn answer_keys<K: AnswerKeys + 'static>(mut self, keys: impl Fn() -> K + Send + Sync + 'static) -> Self {
        self.answer_keys = Some(Arc::new(move || Box::new(keys())));
        self
    }

    /// Builds the runtime.
    ///
    /// # Errors
    ///
    /// If there is a store or a cache, but no key.
    pub fn build(self) -> Result<Runtime, BuildError> {
        if self.store.is_some() && self.key.is_none() {
            return Err(BuildError::NoKey);
        }
        if self.cache.is_some() && self.key.is_none() {
            return Err(BuildError::NoCacheKey);
        }
        let clock = self.clock.unwrap_or_else(|| Arc::new(SystemClock::new()));
        #[cfg(feature = "events")]
        let events = self.events.map(|capacity| Arc::new(crate::events::EventHub::new(capacity, Arc::clone(&clock))));
        let Self {
            store, key, encryption_key, grants, observers, mut hooks, classifier, items, threads, cache, ..
        } = self;
        #[cfg(feature = "events")]
        let observers: Vec<_> =
            observers.into_iter().chain(events.clone().map(|hub| hub as Arc<dyn Observer>)).collect();
        let (tool_settings, keeps_history, answer_keys) = (self.tool_settings, self.keeps_history, self.answer_keys);
        hooks.sort_by_key(|(layer, _)| *layer);
        let inner = RuntimeServices {
            store,
            key,
            encryption_key,
            grants,
            clock,
            observers: observers.into(),
            #[cfg(feature = "events")]
            events,
            hooks,
            classifier,
            items,
            threads,
            cache,
            tool_settings,
            keeps_history,
            answer_keys,
            gate: Arc::default(),
        };
        Ok(Runtime { inner: Arc::new(inner) })
    }
}

/// Returns the services that the runs of a runtime share, for code that begins runs in other ways than [`Runtime`] does.
pub fn services(runtime: &Runtime) -> &Arc<RuntimeServices> {
    &runtime.inner
}

impl Runtime {
    /// Returns a builder for a runtime.
    ///
    /// [`Builder`] has an example.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Starts a run of `graph`. Its task is spawned on tokio's current runtime and continues even if the [`Run`] is dropped.
    ///
    /// When this returns `Ok`, the beginning of the run is durable: a process that starts after a crash finds it.
    ///
    /// ```
    /// # use graph_engine as graph_runtime;
    /// # async fn example<G: graph_runtime::Graph>(
    /// #     runtime: graph_runtime::Runtime,
    /// #     graph: G,
    /// #     inputs: G::Inputs,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// use graph_runtime::StartError;
    ///
    /// match runtime.start(graph, inputs).await {
    ///     Ok(run) => println!("accepted as run {}", run.id()),
    ///     Err(StartError::Inputs { mismatch, .. }) => println!("the order is not valid: {mismatch}"),
    ///     Err(error) => return Err(error.into()),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// [`Run`] shows how to wait for the result.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves no half-begun run: either nothing of the run is kept, or it continues by itself, as
    /// if its [`Run`] had been dropped. [`Store::find`] says which, if the caller named the run's id.
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

    /// Like [`Runtime::start`], with an id of the caller's own; a second run with it is refused. [`Runtime::start_or_attach`]
    /// returns the first one.
    ///
    /// A request that arrives twice begins one run:
    ///
    /// ```
    /// # use graph_engine as graph_runtime;
    /// # async fn example<G: graph_runtime::Graph>(
    /// #     runtime: graph_runtime::Runtime,
    /// #     graph: G,
    /// #     inputs: G::Inputs,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// use graph_runtime::{ErrorKind, HasKind, RunId};
    ///
    /// match runtime.start_as(RunId::new("order-17")?, graph, inputs).await {
    ///     Err(error) if error.kind() == ErrorKind::Exists => println!("it was started before"),
    ///     started => println!("run {} begins", started?.id()),
    /// }
    /// # Ok(())
    /// # }
    /// ```
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

    /// Like [`Runtime::start`], with options for this run only.
    ///
    /// The example of [`Options`] sets limits.
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
                None => runtime.inner.new_id(tables(graph.graph()))?,
            };
            let begin = runtime.begin_with(run.clone(), options);
            let stop = begin.stop.clone();
            #[cfg(feature = "events")]
            let events = runtime.run_events();
            let task = runtime.launch(begin, Arc::clone(&graph) as _, inputs).await?;
            let run = Run::of(graph, None, run, stop, Work::Running(task));
            #[cfg(feature = "events")]
            let run = run.with_events(events);
            Ok(run)
        })
    }

    /// Begins a run and spawns its task. The caller may stop waiting: a run that was begun continues.
    pub(crate) async fn launch(
        &self,
        begin: Begin,
        machine: Arc<dyn Machine>,
        inputs: Value,
    ) -> Result<Task, StartError> {
        let pass = self.inner.gate.enter(&begin.run, &begin.stop).ok_or(StartError::ShutDown)?;
        let span = run_span(&begin.run, &tables(machine.graph()).id);
        let (runtime, own) = (self.clone(), span.clone());
        let launched = async move {
            runtime.inner.can_wait(&*machine, &begin).await?;
            let engine = runtime.inner.begin(begin, machine, inputs).await?;
            Ok(spawn(engine, pass, own))
        };
        if self.inner.store.is_none() {
            // Without a store there is nothing to wait for.
            return launched.instrument(span).await;
        }
        apart(launched.instrument(span)).await
    }

    /// Resumes a run and spawns its task. The caller may stop waiting: a run that was resumed continues.
    pub(crate) async fn relaunch(&self, begin: Begin, machine: Arc<dyn Machine>) -> Result<Work, ResumeError> {
        let pass = self.inner.gate.enter(&begin.run, &begin.stop).ok_or(StartError::ShutDown)?;
        let span = run_span(&begin.run, &tables(machine.graph()).id);
        let (runtime, own) = (self.clone(), span.clone());
        let launched = async move {
            Ok(match runtime.inner.take_up(begin, machine, &mut None).await? {
                Taken::Ended(ended) => Work::Ended(Ok(ended)),
                Taken::Waiting(waiting) => Work::Ended(Err(waiting)),
                Taken::Unfinished(engine) => Work::Running(spawn(*engine, pass, own)),
            })
        };
        apart(launched.instrument(span)).await
    }

    /// Resumes a run that a crash, an error or a full disk stopped, at the step that was not committed.
    ///
    /// A run that has ended with a result is not run again: its result is read from the journal, and observers receive its
    /// records, as for every run that is resumed. A run that somebody [cancelled](Store::cancel), and that stopped before it
    /// was notified, ends as cancelled without another call; see [`Options::ignore_cancel`].
    ///
    /// ```
    /// # use graph_engine as graph_runtime;
    /// # async fn example<G: graph_runtime::Graph>(
    /// #     runtime: graph_runtime::Runtime,
    /// #     graph: G,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// use graph_runtime::RunId;
    ///
    /// let run = runtime.resume(graph, &RunId::new("order-17")?).await?;
    /// println!("it ended at `{}`", run.await?.node);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// [`Runtime::resume_all`] resumes all runs that a crash stopped.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the run as it was, or resumed. A resumed run continues by itself, as if its [`Run`]
    /// had been dropped.
    ///
    /// # Errors
    ///
    /// If there is no such run, it is running elsewhere, its journal was tampered with or is another graph's, or this
    /// runtime grants less than it needs. Nothing was changed then.
    pub fn resume<G: Graph>(&self, graph: G, run: &RunId) -> BoxFuture<'static, Result<Run<G::Output>, ResumeError>> {
        self.resume_with(Options::default(), graph, run)
    }

    /// Like [`Runtime::resume`], with options that hold from here on: `options.max_steps` counts the steps that were made
    /// before, `options.timeout` begins now, `options.depth` is at most that of the start, and `options.run` is ignored.
    ///
    /// The example of [`Options`] sets limits.
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
            #[cfg(feature = "events")]
            let events = runtime.run_events();
            let older = runtime.inner.older_of(&*graph, &run).await?;
            let work = runtime.relaunch(begin, kept_version(Arc::clone(&graph) as _, older)).await?;
            let run = Run::of(graph, older, run, stop, work);
            #[cfg(feature = "events")]
            let run = run.with_events(events);
            Ok(run)
        })
    }

    /// Leaves a run that failed or was cancelled to the workers, which continue it at the step that was not committed. The caller does
    /// none of its work, and needs the graph only to see that the run can continue.
    ///
    /// Returns the status that the run has then: `running` if the next [worker](Runtime::worker) that knows the graph continues it,
    /// which is as durable as a record when this returns. A run that has completed, or waits, stays as it is.
    ///
    /// ```
    /// # use graph_engine as graph_runtime;
    /// # async fn example<G: graph_runtime::Graph>(
    /// #     runtime: graph_runtime::Runtime,
    /// #     graph: G,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// use graph_runtime::RunId;
    ///
    /// println!("it is {}", runtime.retry(graph, &RunId::new("order-17")?).await?.name());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Runtime::resume`].
    pub async fn retry<G: Graph>(&self, graph: G, run: &RunId) -> Result<Status, ResumeError> {
        let begin = self.begin_with(run.clone(), Options::default());
        let _pass = self.inner.gate.enter(run, &begin.stop).ok_or(StartError::ShutDown)?;
        let span = run_span(run, &tables(graph.graph()).id);
        let older = self.inner.older_of(&graph, run).await?;
        let machine = kept_version(Arc::new(graph), older);
        match self.inner.take_up(begin, machine, &mut None).instrument(span).await? {
            Taken::Ended(ended) => Ok(ended.status),
            Taken::Waiting(_) => Ok(Status::Waiting),
            // The lease is given back.
            Taken::Unfinished(engine) => {
                drop(engine);
                Ok(Status::Running)
            }
        }
    }

    /// Stops all runs of this runtime and begins no more. To start or resume a run then fails with [`StartError::ShutDown`],
    /// also through a clone of the runtime.
    ///
    /// A run stops before its next step, and one that waits before a retry stops waiting. Its [`Run`] gives
    /// [`RunError::ShutDown`](crate::RunError::ShutDown). It has not ended: in the store it is `running`, all that it did is
    /// durable, and it can be [resumed](Runtime::resume), also by another process. A call in progress is waited for until
    /// `deadline` is over, and then dropped: it is made again when the run is resumed, with the same idempotency key. Tools
    /// are not notified, because the run was not cancelled.
    ///
    /// Returns the runs that were not done in time. A tool that blocks its thread without ever waiting cannot be stopped.
    ///
    /// If the future is dropped, the runs continue to stop, and no call is dropped.
    ///
    /// ```
    /// # use graph_engine as graph_runtime;
    /// # async fn example(runtime: graph_runtime::Runtime) -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    ///
    /// for run in runtime.shutdown(Duration::from_secs(10)).await {
    ///     println!("a call of run {run} was dropped, and is made again when the run is resumed");
    /// }
    /// # Ok(())
    /// # }
    /// ```
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
        tracing::warn!(runs = late.len(), "calls were dropped because the runtime was shut down");
        // A run that was dropped gives its lease back; a blocked thread is not waited for.
        drop(tokio::time::timeout(LATE, gate.emptied()).await);
        late
    }

    /// Fails if this runtime would refuse every run of a graph, or of one of its older versions: because a capability, an environment variable, a tool, the store
    /// in which it waits or the key that encrypts secrets is missing. It starts nothing.
    ///
    /// ```
    /// # use graph_engine as graph_runtime;
    /// # fn example<G: graph_runtime::Graph>(runtime: graph_runtime::Runtime, graph: G) {
    /// if let Err(error) = runtime.admits(&graph) {
    ///     println!("its runs cannot begin or continue here: {error}");
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The first reason.
    pub fn admits<G: Graph>(&self, graph: &G) -> Result<(), StartError> {
        for older in std::iter::once(None).chain((0..graph.older().len()).map(Some)) {
            let machine = version(graph, older);
            let code = tables(machine.graph());
            allowed(machine, std::slice::from_ref(&self.inner.grants))?;
            self.inner.has_store_for(machine)?;
            RunSecrets::open(
                code,
                &self.inner.new_id(code)?,
                self.inner.encryption_key.as_ref(),
                self.inner.store.is_some(),
            )?;
        }
        Ok(())
    }

    pub(crate) fn begin_with(&self, run: RunId, options: Options) -> Begin {
        let grants = [self.inner.grants.clone()];
        Begin {
            ceiling: grants.into_iter().chain(options.capabilities.clone()).collect(),
            capabilities: options.capabilities,
            depth: options.depth,
            max_steps: options.max_steps,
            entry: options.entry,
            durability: options.durability,
            ignores_cancel: options.ignore_cancel,
            pauses: PausedNodes::new(options.pause_before, options.pause_after),
            deadline: options.timeout.map(|timeout| self.inner.began() + timeout),
            ..Begin::of(run)
        }
    }

    /// Returns every visit of a run, in order, as its journal has it, with the result of each. Secrets are replaced by
    /// `[secret]`.
    ///
    /// ```
    /// # use graph_engine as graph_runtime;
    /// # async fn example(runtime: graph_runtime::Runtime) -> Result<(), Box<dyn std::error::Error>> {
    /// use graph_runtime::RunId;
    ///
    /// for visit in runtime.history(&RunId::new("order-17")?).await? {
    ///     println!("`{}` returned {}", visit.node, visit.result);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If there is no such run, or its journal is not what the engine wrote.
    pub async fn history(&self, run: &RunId) -> Result<Vec<Visit>, StoredRunError> {
        let (store, key) = self.inner.stored()?;
        let journal = Journal::verify(run, &store.load(run).await?, &key.public());
        let journal = journal.map_err(StoredRunError::journal(run))?;
        let visits = journal.records.into_iter().filter_map(|record| match record.entry {
            Entry::Step(step) => Some(step.visits),
            _ => None,
        });
        let hide = |mut visit: Visit| {
            hide_encrypted(&mut visit.result);
            visit.changes.values_mut().chain(&mut visit.list).for_each(hide_encrypted);
            visit
        };
        Ok(visits.flatten().map(hide).collect())
    }

    /// Makes an id for a run of `graph`, as [`Runtime::start`] does: for a caller that must know it before the run begins.
    ///
    /// ```
    /// # use graph_engine as graph_runtime;
    /// # async fn example<G: graph_runtime::Graph>(
    /// #     runtime: graph_runtime::Runtime,
    /// #     graph: G,
    /// #     inputs: G::Inputs,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// let id = runtime.new_run_id(&graph)?;
    /// println!("order 17 is run {id}");
    /// let run = runtime.start_as(id, graph, inputs).await?;
    /// # drop(run);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If the operating system gives no random bytes.
    pub fn new_run_id<G: Graph>(&self, graph: &G) -> Result<RunId, StartError> {
        self.inner.new_id(tables(graph.graph()))
    }
}

/// The options of one run.
///
/// ```
/// # use graph_engine as graph_runtime;
/// # async fn example<G: graph_runtime::Graph>(
/// #     runtime: graph_runtime::Runtime,
/// #     graph: G,
/// #     inputs: G::Inputs,
/// # ) -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
///
/// use graph_runtime::{Grants, Options, Pattern};
///
/// let options = Options {
///     capabilities: Some(Grants::new([Pattern::new("rye.execute.tool.shop.*")?])),
///     max_steps: Some(100),
///     timeout: Some(Duration::from_secs(60)),
///     ..Options::default()
/// };
/// let finished = runtime.start_with(options, graph, inputs).await?.await?;
/// # drop(finished);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The run's id; by default, it is made of the graph's name, the time and random digits (R15).
    pub run: Option<RunId>,
    /// The entry of the graph at which it begins, if not at its start. It does not affect a run that is resumed.
    pub entry: Option<String>,
    /// The capabilities that the run may use, of those that the runtime grants.
    pub capabilities: Option<Grants>,
    /// How many levels of graphs and threads may be nested below it; never more than the graph allows.
    pub depth: Option<u32>,
    /// The maximum number of steps, instead of the graph's limit.
    pub max_steps: Option<u32>,
    /// How long it may take, in addition to the graph's limit.
    pub timeout: Option<Duration>,
    /// When a step must be in the store.
    pub durability: Durability,
    /// Whether a run that is resumed continues although somebody [cancelled](Store::cancel) it before. Otherwise it
    /// ends as cancelled at once. It does not affect a run that begins.
    pub ignore_cancel: bool,
    /// The nodes before which the run pauses, for somebody who debugs it: a visit of one of them is made when it is
    /// [released](Runtime::release). The run waits in its store meanwhile, and other branches continue. Its journal has these nodes;
    /// they are not changed when it is resumed. The runs inside it do not pause.
    pub pause_before: Vec<String>,
    /// The nodes after which the run pauses: the visits that follow a visit of one of them are made when they are released.
    pub pause_after: Vec<String>,
}

/// How long a runtime that shuts down waits for runs whose calls it dropped.
pub(crate) const LATE: Duration = Duration::from_millis(500);

/// Runs a future in a task of its own, which continues if nobody waits for it any more. Fails if tokio itself is shut down
/// meanwhile.
async fn apart<T, E>(work: impl Future<Output = Result<T, E>> + Send + 'static) -> Result<T, E>
where
    T: Send + 'static,
    E: From<StoreError> + Send + 'static,
{
    match tokio::spawn(work).await {
        Ok(done) => done,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => Err(StoreError::Closed.into()),
    }
}

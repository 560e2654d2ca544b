//! Tasks: runs that calls of other runs spawn, and that continue by themselves.
//!
//! A task is a run of its own in the store. The process that spawned it runs it. If that process dies, a [worker](crate::Worker) that
//! knows its graph continues it, or whoever waits for it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use graph_model::capability::{Capability, Grants, Pattern};
use graph_model::digest::Digest;
use graph_model::name::{ItemId, RunId};
use graph_model::program::{AGENT_MODEL, CallLimits, ItemType, Verb};
use graph_model::timestamp::unix_milliseconds;
use graph_model::value::Value;

use crate::address::Address;
use crate::admission::granted;
use crate::call::{Call, Continuation, TaskOrigin};
use crate::engine::Begin;
use crate::error::{StartError, StoredRunError};
use crate::failure::{ActionError, Category};
use crate::graph::{GraphTables, tables};
use crate::graphless::RecordedOutcome;
use crate::machine::Machine;
use crate::payload::payload;
use crate::record::{JournalError, Start, VerifiedJournal, Visit};
use crate::run::Work;
use crate::runtime::{Options, Runtime};
use crate::services::RuntimeServices;
use crate::signal::{is_received, sealing};
use crate::status::Status;
use crate::step::{TOO_DEEP, TakenSignal};
use crate::store::{Page, Received, RunFilter, RunSummary, Signal, SignalPlace, Store, StoreError, all_runs};
use crate::versions::{kept_version, older_that};

/// The interval at which a task is looked at whose store has no news (R117).
const LOOK: Duration = Duration::from_millis(500);
/// The pause before tasks are looked at that may have ended.
const PAUSE: Duration = Duration::from_millis(10);
/// The state key in which the graph of an agent has its talk.
const TALK: &str = "talk";
/// The name of the signals that have the messages for an agent.
const STEER: &str = "steer";
/// The tool by which the graph of a program lets it run.
const PROGRAM: &str = "rye/program/turn";

/// The graphs that calls can spawn as tasks, and the runtime that runs them. Clones share both.
///
/// The tools `rye/orchestrate/…` use it, if the program gives it to its `ToolConfig` and to its runtime:
///
/// ```
/// # use graph_engine as graph_runtime;
/// use graph_runtime::{MemoryStore, Runtime, SecretKey, Tasks};
///
/// let tasks = Tasks::new(|_| Ok(None));
/// let runtime = Runtime::builder().store(MemoryStore::new()).sign_with(SecretKey::generate()?).build()?;
/// tasks.serve(&runtime);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A task belongs to its owner, the outermost run around the call that spawned it. Only calls of the owner and of runs inside it can see
/// the task, wait for it, or stop it. It may use the capabilities that the call has and nothing else, in whatever process it runs.
#[derive(Clone)]
pub struct Tasks(Arc<TasksInner>);

/// Finds the graph with an id.
type FindMachine = dyn Fn(&ItemId) -> Result<Option<Arc<dyn Machine>>, String> + Send + Sync;
/// Finds the agent that follows a directive.
type FindFollower = dyn Fn(&str) -> Result<Option<ItemId>, String> + Send + Sync;

struct TasksInner {
    find: Box<FindMachine>,
    follower: Option<Box<FindFollower>>,
    /// The runtime owns the settings of its tools, and these own the tasks.
    runtime: OnceLock<Weak<RuntimeServices>>,
}

impl fmt::Debug for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tasks")
    }
}

/// The tasks that a call waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitFor {
    /// All of them.
    All,
    /// One of them.
    Any,
}

/// The way in which tasks are stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopTask {
    /// After the calls in progress.
    Cancel,
    /// At once: calls in progress are dropped.
    Kill,
    /// As [`StopTask::Cancel`], when some time has passed.
    CancelAfter(Duration),
}

/// The maximum number of tasks of a run that have not ended.
pub const MAX_TASKS: usize = 1_000;

/// A message for an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskMessage {
    /// Its id, which no other message of the run has.
    pub id: String,
    /// The text.
    pub text: String,
}

/// The task that another one continues.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ContinuedTask {
    /// Its run.
    pub run: RunId,
    /// Its visits. Secrets are replaced by `[secret]`.
    pub visits: Vec<Visit>,
    /// The messages that it did not live to read, and the one for the task that continues it.
    pub messages: Vec<TaskMessage>,
}

impl Tasks {
    /// Tasks of the graphs that `find` finds by their ids. It returns `None` if there is no such graph, and fails with the reason why one
    /// that exists cannot be a task.
    pub fn new(find: impl Fn(&ItemId) -> Result<Option<Arc<dyn Machine>>, String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(TasksInner { find: Box::new(find), follower: None, runtime: OnceLock::new() }))
    }

    /// The same, with agents that are found by the directives that they follow, as `rye/agent/threads/thread_directive` names them. `follower`
    /// fails with the reason why there is no single one.
    pub fn with_followers(
        find: impl Fn(&ItemId) -> Result<Option<Arc<dyn Machine>>, String> + Send + Sync + 'static,
        follower: impl Fn(&str) -> Result<Option<ItemId>, String> + Send + Sync + 'static,
    ) -> Self {
        let (find, follower) = (Box::new(find), Some(Box::new(follower) as Box<FindFollower>));
        Self(Arc::new(TasksInner { find, follower, runtime: OnceLock::new() }))
    }

    /// Returns the agent that follows a directive, if there is one.
    ///
    /// # Errors
    ///
    /// If several do, or a contract cannot be read.
    pub fn follower(&self, directive: &str) -> Result<Option<ItemId>, String> {
        self.0.follower.as_ref().map_or(Ok(None), |follower| follower(directive))
    }

    /// Returns the digest of a graph and its meaning, if there is one with this id.
    pub fn digest(&self, graph: &ItemId) -> Option<Digest> {
        let machine = (self.0.find)(graph).ok()??;
        let code = tables(machine.graph());
        let meaning = code.settings.meaning.map(|meaning| meaning.to_hex()).unwrap_or_default();
        Some(Digest::of(format!("{} {meaning}", code.digest)))
    }

    /// Lets a runtime run the tasks: the one whose tools spawn them. The first runtime counts.
    pub fn serve(&self, runtime: &Runtime) {
        self.0.runtime.get_or_init(|| Arc::downgrade(&runtime.inner));
    }

    /// Starts a run of a graph as a task, and returns its id. Its beginning is durable then. A call that is made again after a crash finds
    /// the task that it spawned. `limits` narrow those of the contract, if the task is an agent.
    ///
    /// # Errors
    ///
    /// If the run may not call the graph, there is no such graph, it cannot begin with these inputs, or the owner has
    /// [too many](MAX_TASKS) tasks.
    pub async fn spawn(
        &self,
        call: &Call,
        graph: &ItemId,
        inputs: Value,
        limits: CallLimits,
    ) -> Result<RunId, ActionError> {
        self.begin(call, NewTask { graph, inputs, limits, continues: None }).await
    }

    /// Starts an agent as a task that continues another one, which has ended: with the same inputs, the talk of that one, and a message.
    /// Returns its id. It is durable as a task that is [spawned](Self::spawn).
    ///
    /// # Errors
    ///
    /// As [`spawn`](Self::spawn), and if the task is unknown, has not ended, is no agent, or its inputs have secrets.
    pub async fn resume(
        &self,
        call: &Call,
        task: &RunId,
        message: &str,
        limits: CallLimits,
    ) -> Result<RunId, ActionError> {
        let (runtime, store) = self.serving()?;
        let found = self.of(call, task).await?;
        if !found.status.has_ended() {
            return Err(ActionError::permanent(format!("task `{task}` has not ended: send it a message instead")));
        }
        let BegunRun { start, .. } = started(&runtime, &*store, task).await?;
        if start.task.as_ref().map(|origin| &origin.owner) != Some(call.run.root()) {
            return Err(unknown(task));
        }
        if start.encryption_key.is_some() {
            return Err(ActionError::permanent(format!("task `{task}` cannot be continued: its graph has secrets")));
        }
        let graph = ItemId::new(start.graph.as_str()).map_err(|error| ActionError::permanent(error.to_string()))?;
        let continues = Some(Continuation { run: task.clone(), message: message.to_owned() });
        self.begin(call, NewTask { graph: &graph, inputs: start.inputs, limits, continues }).await
    }

    async fn begin(&self, call: &Call, task: NewTask<'_>) -> Result<RunId, ActionError> {
        let (runtime, store) = self.serving()?;
        let NewTask { graph, inputs, limits, continues } = task;
        may_spawn(call, graph)?;
        let machine = self.target(graph, continues.as_ref())?;
        let depth = call.run.depth.checked_sub(1).ok_or_else(|| ActionError::permanent(TOO_DEEP))?;
        let origin = TaskOrigin::of(call, limits, continues);
        let id = origin.task_id(&tables(machine.graph()).id);
        has_room(&*store, &origin.owner, &id).await?;
        let options = Options {
            run: Some(id.clone()),
            capabilities: Some(capabilities_of_task(call, &*machine)?),
            depth: Some(depth),
            ..Options::default()
        };
        let begin = runtime.begin_with(id.clone(), options);
        let begin = Begin { task: Some(origin), limits, ..begin };
        match runtime.launch(begin, machine, inputs).await {
            // It runs on by itself. A stop of the run may have come before it was there.
            Ok(task) => {
                drop(task);
                if call.is_cancelled() {
                    self.stop(call, &id, StopTask::Cancel).await?;
                }
            }
            Err(StartError::Store(StoreError::Exists(run))) => {
                self.of(call, &run).await?;
            }
            Err(StartError::Store(error)) => return Err(failed(error)),
            Err(error) => return Err(ActionError::permanent(error.to_string())),
        }
        Ok(id)
    }

    /// Finds the graph of a new task.
    fn target(&self, graph: &ItemId, continues: Option<&Continuation>) -> Result<Arc<dyn Machine>, ActionError> {
        let machine = (self.0.find)(graph).map_err(ActionError::permanent)?;
        let machine =
            machine.ok_or_else(|| ActionError::permanent(format!("there is no graph, agent or tool `{graph}`")))?;
        let code = tables(machine.graph());
        if code.settings.trusted_inputs {
            let message = format!(
                "`{graph}` is no task: some of its inputs are sinks or guarded, and only the author of a graph may choose them: call it by a node"
            );
            return Err(ActionError::permanent(message));
        }
        if let Some(Continuation { run, .. }) = continues.filter(|_| !is_agent(code)) {
            return Err(ActionError::permanent(format!("task `{run}` is no agent, and cannot be continued")));
        }
        Ok(machine)
    }

    /// Waits until tasks of the run have ended, or until a time is over. Returns all of them, in their order. Continues those that nobody
    /// continues, if their graph is here.
    ///
    /// # Errors
    ///
    /// If one of them is no task of the run, or the run is cancelled meanwhile.
    pub async fn wait(
        &self,
        call: &Call,
        tasks: &[RunId],
        wait_for: WaitFor,
        limit: Option<Duration>,
    ) -> Result<Vec<RecordedOutcome>, ActionError> {
        let (runtime, store) = self.serving()?;
        let clock = &runtime.inner.clock;
        let until = limit.map(|limit| clock.monotonic().saturating_add(limit));
        let (mut seen, mut tried, mut open) = (0, BTreeMap::new(), BTreeSet::from_iter(tasks));
        loop {
            let mut ended = Vec::new();
            for &task in &open {
                let found = self.of(call, task).await?;
                if found.status.has_ended() {
                    ended.push(task);
                } else {
                    self.go_on(&runtime, &found, &mut tried).await;
                }
            }
            for task in &ended {
                open.remove(task);
            }
            let left = until.map(|until| until.saturating_sub(clock.monotonic()));
            let is_met = match wait_for {
                WaitFor::All => open.is_empty(),
                WaitFor::Any => !ended.is_empty() || tasks.is_empty(),
            };
            if is_met || left.is_some_and(|left| left.is_zero()) {
                let mut outcomes = Vec::with_capacity(tasks.len());
                for task in tasks {
                    outcomes.push(self.outcome(call, task).await?);
                }
                return Ok(outcomes);
            }
            let news = async {
                match store.news(seen).await {
                    Ok(found) => found,
                    Err(_) => std::future::pending().await,
                }
            };
            tokio::select! {
                found = news => {
                    seen = found;
                    // Other runs are news too.
                    clock.sleep(left.map_or(PAUSE, |left| left.min(PAUSE))).await;
                }
                () = clock.sleep(left.map_or(LOOK, |left| left.min(LOOK))) => {}
                () = call.cancelled() => {
                    return Err(ActionError::new(Category::Cancelled, "the run was cancelled while it waited for tasks"));
                }
            }
        }
    }

    /// Returns the outcome of a task of the run, as its journal says. Its chain and its signatures are verified.
    ///
    /// # Errors
    ///
    /// If it is no task of the run, or its journal was changed.
    pub async fn outcome(&self, call: &Call, task: &RunId) -> Result<RecordedOutcome, ActionError> {
        let (runtime, _) = self.serving()?;
        self.of(call, task).await?;
        let outcome = runtime.recorded_outcome(task).await.map_err(|error| match error {
            StoredRunError::Store(error) => failed(error),
            error => ActionError::permanent(error.to_string()),
        })?;
        // The store's word for the owner is not signed.
        if outcome.task.as_ref().map(|origin| &origin.owner) != Some(call.run.root()) {
            return Err(unknown(task));
        }
        Ok(outcome)
    }

    /// Returns all tasks that continue each other and one of which is `task`, the oldest first. The journals of all tasks of the same graph
    /// are read for that.
    ///
    /// # Errors
    ///
    /// As [`outcome`](Self::outcome).
    pub async fn chain(&self, call: &Call, task: &RunId) -> Result<Vec<RecordedOutcome>, ActionError> {
        let (_, store) = self.serving()?;
        let graph = Some(self.outcome(call, task).await?.graph);
        let filter = RunFilter { owner: Some(call.run.root().clone()), graph, ..RunFilter::default() };
        let (mut all, mut before) = (Vec::new(), BTreeMap::new());
        for found in all_runs(&*store, &filter).await.map_err(failed)?.into_iter().rev() {
            let outcome = self.outcome(call, &found.run).await?;
            let continues = outcome.task.as_ref().and_then(|origin| origin.continues.as_ref());
            before.extend(continues.map(|continues| (outcome.run.clone(), continues.run.clone())));
            all.push(outcome);
        }
        let first_of = |run: &RunId| {
            let mut first = run;
            // No journal says that a run continues a later one, but nothing else would end a circle.
            for _ in 0..before.len() {
                let Some(earlier) = before.get(first) else { break };
                first = earlier;
            }
            first.clone()
        };
        let first = first_of(task);
        all.retain(|outcome| first_of(&outcome.run) == first);
        Ok(all)
    }

    /// Returns the visits of a task of the run, as its journal has them. Secrets are replaced by `[secret]`.
    ///
    /// # Errors
    ///
    /// If it is no task of the run, or its journal was changed.
    pub async fn visits(&self, call: &Call, task: &RunId) -> Result<Vec<Visit>, ActionError> {
        let (runtime, _) = self.serving()?;
        self.outcome(call, task).await?;
        runtime.history(task).await.map_err(|error| ActionError::permanent(error.to_string()))
    }

    /// Returns the tasks of the run, the newest first; those with one of these statuses, if there are any.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    pub async fn list(&self, call: &Call, statuses: Vec<Status>) -> Result<Vec<RunSummary>, ActionError> {
        let (_, store) = self.serving()?;
        let filter = RunFilter { owner: Some(call.run.root().clone()), statuses, ..RunFilter::default() };
        all_runs(&*store, &filter).await.map_err(failed)
    }

    /// Stops a task of the run, and the tasks of that one. Returns false if it has ended already.
    ///
    /// # Errors
    ///
    /// If it is no task of the run, or the store cannot pass the request on.
    pub async fn stop(&self, call: &Call, task: &RunId, how: StopTask) -> Result<bool, ActionError> {
        let (runtime, store) = self.serving()?;
        self.of(call, task).await?;
        let at = match how {
            StopTask::CancelAfter(after) => Some(
                runtime
                    .inner
                    .deadline_from_now(u64::try_from(after.as_millis()).unwrap_or(u64::MAX))
                    .await
                    .map_err(failed)?,
            ),
            StopTask::Cancel | StopTask::Kill => None,
        };
        let (mut is_first, mut open, mut tried) = (true, vec![task.clone()], BTreeMap::new());
        let (mut stopped, mut seen) = (false, BTreeSet::new());
        while let Some(run) = open.pop() {
            if !seen.insert(run.clone()) {
                continue;
            }
            let asked = match (how, at) {
                (StopTask::CancelAfter(_), Some(at)) => store.cancel_at(&run, at).await,
                (StopTask::Kill, _) => store.kill(&run).await,
                _ => store.cancel(&run).await,
            };
            match asked {
                Ok(()) => stopped |= is_first,
                Err(StoreError::Ended { .. } | StoreError::NotFound(_)) => {}
                Err(error) => return Err(failed(error)),
            }
            is_first = false;
            let statuses = vec![Status::Running, Status::Waiting];
            let filter = RunFilter { owner: Some(run.clone()), statuses, ..RunFilter::default() };
            open.extend(all_runs(&*store, &filter).await.map_err(failed)?.into_iter().map(|found| found.run));
            if at.is_none()
                && let Ok(found) = store.find(&run).await
                && !found.status.has_ended()
            {
                // A run that nobody continues ends only if somebody does.
                self.go_on(&runtime, &found, &mut tried).await;
            }
        }
        Ok(stopped)
    }

    /// Sends a message to a task of the run that is an agent, whose model gets it with the next turn. The message is durable then. If there is
    /// no further turn, the task that continues this one gets it.
    ///
    /// # Errors
    ///
    /// If it is no task of the run, no agent, or has ended.
    pub async fn steer(&self, call: &Call, task: &RunId, text: &str) -> Result<(), ActionError> {
        if self.send(call, task, text).await? || self.has_read(call, task).await? {
            return Ok(());
        }
        Err(ActionError::permanent(format!("task `{task}` has ended, and reads no messages")))
    }

    /// As [`steer`](Self::steer). Returns false if the task has ended, before the message came or after.
    ///
    /// # Errors
    ///
    /// If it is no task of the run, or no agent.
    pub async fn send(&self, call: &Call, task: &RunId, text: &str) -> Result<bool, ActionError> {
        let (runtime, store) = self.serving()?;
        let found = self.of(call, task).await?;
        let machine = self.graph_of(&found);
        let machine =
            machine.ok_or_else(|| ActionError::permanent(format!("the graph of task `{task}` is not here")))?;
        if !is_agent(tables(machine.graph())) {
            return Err(ActionError::permanent(format!("task `{task}` is no agent, and reads no messages")));
        }
        let key = runtime.inner.key.clone().ok_or_else(no_store)?;
        let start = runtime.inner.start_of(&*machine, task).await;
        let start = start.map_err(|error| ActionError::permanent(error.to_string()))?.link;
        let signal = Signal::new(STEER, call.idempotency_key(), payload(&Value::from(text)));
        let seal = sealing(&key, task, start, &signal);
        match store.receive(task, signal, seal).await {
            // A task that failed or was cancelled receives messages, which it reads only if somebody resumes its run.
            Ok(Received::Accepted(_) | Received::Already { .. }) => {
                Ok(!store.find(task).await.map_err(failed)?.status.has_ended())
            }
            Err(StoreError::Ended { .. }) => Ok(false),
            Err(error) => Err(failed(error)),
        }
    }

    /// Whether a task of the run has read the message that this call sent to it before, in a process that did not live to record that.
    ///
    /// # Errors
    ///
    /// If it is no task of the run, or its journal was changed.
    pub async fn has_read(&self, call: &Call, task: &RunId) -> Result<bool, ActionError> {
        let key = call.idempotency_key();
        Ok(self.visits(call, task).await?.iter().any(|visit| has_steer(visit, &key)))
    }

    /// Returns the messages for the run of a call, in their order. Those that nobody with the key of the runtime received are left out.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    pub async fn messages(&self, call: &Call) -> Result<Vec<TaskMessage>, ActionError> {
        let Ok((runtime, store)) = self.serving() else { return Ok(Vec::new()) };
        let facts = &call.run;
        match (facts.start, &facts.parent) {
            (Some(start), None) => messages_for(&runtime, &*store, &facts.id, start).await,
            _ => Ok(Vec::new()),
        }
    }

    /// Returns the task that the run of a call continues, with its visits, if the run is a task that does.
    ///
    /// # Errors
    ///
    /// If the journal of one of them cannot be read or was changed, or the other is no task of the same owner.
    pub async fn continued(&self, call: &Call) -> Result<Option<ContinuedTask>, ActionError> {
        let Ok((runtime, store)) = self.serving() else { return Ok(None) };
        if call.run.parent.is_some() || call.run.start.is_none() {
            return Ok(None);
        }
        let Some(own) = started(&runtime, &*store, &call.run.id).await?.start.task else { return Ok(None) };
        let (owner, mut at, mut messages) = (own.owner.clone(), own, Vec::new());
        loop {
            // A call that sent the message first, and then found that the task had ended.
            let key = at.key();
            let Some(Continuation { run, message }) = at.continues else { return Ok(None) };
            let BegunRun { start, link } = started(&runtime, &*store, &run).await?;
            let Some(before) = start.task.filter(|origin| origin.owner == owner) else { return Err(unknown(&run)) };
            let visits = runtime.history(&run).await.map_err(|error| ActionError::permanent(error.to_string()))?;
            let sent = messages_for(&runtime, &*store, &run, link).await?;
            let is_unread =
                |sent: &TaskMessage| sent.id != key && !visits.iter().any(|visit| has_steer(visit, &sent.id));
            messages.push(TaskMessage { id: format!("continues {run}"), text: message });
            messages.extend(sent.into_iter().filter(is_unread).rev());
            // A task that ended before its first turn has no talk of its own, and not that of the one before it.
            if before.continues.is_none() || visits.iter().any(|visit| visit.changes.contains_key(TALK)) {
                messages.reverse();
                return Ok(Some(ContinuedTask { run, visits, messages }));
            }
            at = before;
        }
    }

    /// Returns the runtime and its store.
    fn serving(&self) -> Result<(Runtime, Arc<dyn Store>), ActionError> {
        let inner = self.0.runtime.get().and_then(Weak::upgrade);
        let inner = inner.ok_or_else(|| {
            ActionError::permanent("no runtime runs the tasks of the program: `Tasks::serve` names it")
        })?;
        let store = inner.store.clone().ok_or_else(no_store)?;
        Ok((Runtime { inner }, store))
    }

    /// Finds a task of the run, whose owner the store names.
    async fn of(&self, call: &Call, task: &RunId) -> Result<RunSummary, ActionError> {
        let (_, store) = self.serving()?;
        match store.find(task).await {
            Ok(found) if found.owner.as_ref() == Some(call.run.root()) => Ok(found),
            // A run of somebody else is as unknown as no run.
            Ok(_) | Err(StoreError::NotFound(_)) => Err(unknown(task)),
            Err(error) => Err(failed(error)),
        }
    }

    fn graph_of(&self, task: &RunSummary) -> Option<Arc<dyn Machine>> {
        let machine = (self.0.find)(&ItemId::new(task.graph.as_str()).ok()?).ok().flatten()?;
        let machine = kept_version(Arc::clone(&machine), older_that(&*machine, |graph| task.is_under(graph)));
        task.is_under(machine.graph()).then_some(machine)
    }

    /// Continues a task that nobody holds, if it can continue. `tried` has when that was tried before; `None` for one that cannot be
    /// continued here.
    async fn go_on(&self, runtime: &Runtime, task: &RunSummary, tried: &mut BTreeMap<RunId, Option<Duration>>) {
        let at = runtime.inner.clock.monotonic();
        match tried.get(&task.run) {
            Some(None) => return,
            Some(Some(last)) if at.saturating_sub(*last) < LOOK => return,
            _ => {}
        }
        let now = || unix_milliseconds(runtime.inner.clock.now());
        let is_due = || task.next_due.is_some_and(|due| unix_milliseconds(due) <= now());
        if task.holder.is_some() {
            return;
        }
        tried.insert(task.run.clone(), Some(at));
        let store = runtime.inner.store.as_ref();
        let has_signals = async {
            match store {
                Some(store) => store.inbox(&task.run).await.is_ok_and(|inbox| !inbox.signals.is_empty()),
                None => false,
            }
        };
        let can_continue = match task.status {
            Status::Running => true,
            // A run that still waits is left alone when it is resumed.
            _ => task.is_cancelling || is_due() || has_signals.await,
        };
        if !can_continue {
            return;
        }
        let Some(machine) = self.graph_of(task) else { return };
        let begin = runtime.begin_with(task.run.clone(), Options::default());
        match runtime.relaunch(begin, machine).await {
            Ok(Work::Running(running)) => drop(running),
            Ok(Work::Ended(_) | Work::Gone | Work::Followed(_)) => {}
            // Somebody else was quicker.
            Err(error) if error.is_leased() => {}
            Err(error) => {
                tracing::warn!(run = %task.run, %error, "a task cannot be continued here");
                tried.insert(task.run.clone(), None);
            }
        }
    }
}

/// A task that is about to begin.
struct NewTask<'a> {
    graph: &'a ItemId,
    inputs: Value,
    limits: CallLimits,
    continues: Option<Continuation>,
}

/// Fails unless a call may spawn a task of a graph.
fn may_spawn(call: &Call, graph: &ItemId) -> Result<(), ActionError> {
    let facts = &call.run;
    let capability = Capability::new(Verb::Execute, ItemType::Tool, Some(graph));
    // The permissions of an agent or a program cover what is inside of its tools too. It spawns only what its contract lists.
    let tools = &facts.graph.tools;
    let is_of_contract = tools.iter().flatten().any(|tool| matches!(tool.as_str(), AGENT_MODEL | PROGRAM));
    let is_listed = !is_of_contract || tools.iter().flatten().any(|tool| tool == graph);
    if is_listed && facts.allows(&capability) && facts.graph.permissions.allow(&capability) {
        return Ok(());
    }
    Err(ActionError::permanent(format!("Permission denied: '{capability}' not covered by capabilities")))
}

/// Fails if a run has as many tasks as it may have, without the one that has this id.
async fn has_room(store: &dyn Store, owner: &RunId, task: &RunId) -> Result<(), ActionError> {
    let statuses = vec![Status::Running, Status::Waiting];
    let filter = RunFilter { owner: Some(owner.clone()), statuses, ..RunFilter::default() };
    let unfinished = store.runs(&filter, &Page { size: MAX_TASKS, after: None }).await.map_err(failed)?.runs;
    if unfinished.len() < MAX_TASKS || unfinished.iter().any(|found| found.run == *task) {
        return Ok(());
    }
    let message = format!("run `{owner}` has {MAX_TASKS} tasks that have not ended, which is the limit");
    Err(ActionError::permanent(message))
}

/// Returns what a task may use: what the call that spawns it may.
fn capabilities_of_task(call: &Call, machine: &dyn Machine) -> Result<Grants, ActionError> {
    let ceiling: Vec<Grants> = call.run.ceiling.iter().chain([&call.run.graph.permissions]).cloned().collect();
    let patterns = granted(machine, &ceiling);
    let patterns = patterns.iter().map(Pattern::new).collect::<Result<Vec<_>, _>>();
    patterns.map(Grants::new).map_err(|error| ActionError::permanent(error.to_string()))
}

/// Returns the messages for a run, in their order. Those that nobody with the key of the runtime received are left out.
async fn messages_for(
    runtime: &Runtime,
    store: &dyn Store,
    run: &RunId,
    start: Digest,
) -> Result<Vec<TaskMessage>, ActionError> {
    let Some(key) = &runtime.inner.key else { return Ok(Vec::new()) };
    let inbox = match store.inbox(run).await {
        Err(StoreError::Unsupported(_)) => return Ok(Vec::new()),
        inbox => inbox.map_err(failed)?,
    };
    let (address, key) = (Address::of_run(run.clone(), start), key.public());
    let messages = inbox.signals.into_iter().filter(|signal| signal.name == STEER).filter_map(|received| {
        let SignalPlace { order, at } = received.place;
        let value: Value = serde_json::from_str(&received.payload).ok()?;
        let text = value.as_str()?.to_owned();
        let (name, id, receipt) = (received.name, received.id, received.receipt);
        let signal = TakenSignal { name, id, order, at, value, encrypted: None, receipt };
        is_received(&address, &key, &signal).then_some(TaskMessage { id: signal.id, text })
    });
    Ok(messages.collect())
}

/// Whether the talk that a visit wrote has the message with an id.
fn has_steer(visit: &Visit, id: &str) -> bool {
    let said = visit.result.get("said").and_then(Value::as_array);
    said.into_iter()
        .flatten()
        .any(|said| said.get("role").is_some_and(|role| role == STEER) && said.get("id").is_some_and(|own| own == id))
}

/// Whether a graph is that of an agent.
fn is_agent(code: &GraphTables) -> bool {
    code.tools.iter().any(|tool| tool.name() == AGENT_MODEL)
}

/// The beginning of a run.
struct BegunRun {
    start: Start,
    /// The link of its first record.
    link: Digest,
}

/// Returns the beginning of a run, as its verified journal says.
async fn started(runtime: &Runtime, store: &dyn Store, run: &RunId) -> Result<BegunRun, ActionError> {
    let misfit = |error| ActionError::permanent(format!("run `{run}`: {error}"));
    let key = runtime.inner.key.as_ref().ok_or_else(no_store)?.public();
    let signed = store.load(run).await.map_err(failed)?;
    let verified = VerifiedJournal::new(run, &signed, &key).map_err(misfit)?;
    let (_, start) = verified.start().map_err(misfit)?;
    let link = verified.chain().start().ok_or_else(|| misfit(JournalError::Empty))?;
    Ok(BegunRun { start, link })
}

fn no_store() -> ActionError {
    ActionError::permanent(
        "tasks are kept in a store, and the runtime has none: `graph run` gets one with `--store FILE`",
    )
}

fn unknown(task: &RunId) -> ActionError {
    ActionError::permanent(format!("the run has no task `{task}`"))
}

fn failed(error: StoreError) -> ActionError {
    ActionError::transient(format!("the store of the tasks failed: {error}"))
}

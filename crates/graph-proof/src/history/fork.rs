//! Forks: runs that begin at a step of another run.

use graph_engine::admission::allowed;
use graph_engine::graph::tables;
use graph_engine::machine::Machine;
use graph_engine::past::{Past, Seen};
use graph_engine::record::{Calls, Chain, ChangeError, Done, Origin, SignedRecord, SnapshotDraft, StateChanges};
use graph_engine::run_secrets::RunSecrets;
use graph_engine::runtime::services;
use graph_engine::services::RuntimeServices;
use graph_engine::start::start_entry;
use graph_engine::store::StoreError;
use graph_engine::versions::version;
use graph_engine::{BoxFuture, Digest, ErrorKind, HasKind, Runtime, StartError, StoredRunError};
use graph_model::capability::Grants;
use graph_model::name::RunId;
use graph_model::value::{Map, Value};

use crate::edits::leaks;
use crate::history::{PastError, go_to};

/// The step of another run where a fork begins, and the changes to its state.
///
/// [`ForkRun`] has an example.
#[derive(Debug, Clone, Default)]
pub struct Fork {
    /// The number of visits of the other run before the fork begins; all of them by default.
    pub step: Option<u64>,
    /// State keys and their new values; null unsets a key.
    pub set: Map<String, Value>,
    /// State keys, and the values that are written to them as a node writes them: a channel combines the write with its
    /// value.
    pub write: Map<String, Value>,
    /// The new run's id; by default made of the graph's name, the time and a random part.
    pub run: Option<RunId>,
}

/// Why a run was not forked. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ForkError {
    /// The run cannot be read, or the new one written.
    #[error(transparent)]
    Stored(#[from] StoredRunError),
    /// The journal was changed, belongs to another graph, or has no such step.
    #[error("cannot fork run `{run}`: {reason}")]
    Past {
        /// The run.
        run: RunId,
        /// Why.
        reason: PastError,
    },
    /// The run had ended there.
    #[error(
        "cannot fork run `{run}` after step {step}: it had ended there, and nothing would be left to do; name an earlier step"
    )]
    Ended {
        /// The run.
        run: RunId,
        /// The step.
        step: u64,
    },
    /// Runs inside it wait there, which the fork would not have.
    #[error("cannot fork run `{run}` after step {step}: runs inside it wait there; name a step before they began")]
    WaitsInside {
        /// The run.
        run: RunId,
        /// The step.
        step: u64,
    },
    /// The state cannot be changed as asked.
    #[error(transparent)]
    Change(#[from] ChangeError),
    /// A value contains a secret of the run, and the key does not keep secrets.
    #[error("the value for the state key `{key}` contains a secret of the run, and the key does not keep secrets")]
    Secret {
        /// The key.
        key: String,
    },
    /// The graph cannot run here.
    #[error(transparent)]
    Start(#[from] StartError),
}

impl From<StoreError> for ForkError {
    fn from(error: StoreError) -> Self {
        Self::Stored(error.into())
    }
}

impl HasKind for ForkError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Stored(error) => error.kind(),
            Self::Past { reason, .. } => reason.kind(),
            Self::Ended { .. } => ErrorKind::Late,
            Self::WaitsInside { .. } => ErrorKind::Conflict,
            Self::Change(_) | Self::Secret { .. } => ErrorKind::Invalid,
            Self::Start(error) => error.kind(),
        }
    }
}

/// Forks runs.
///
/// ```
/// # mod graph_runtime { pub use graph_engine::*; pub use graph_proof::*; }
/// # use graph_runtime::{Graph, Runtime};
/// # async fn example<G: Graph>(runtime: Runtime, graph: G) -> Result<(), Box<dyn std::error::Error>> {
/// use graph_runtime::history::{Fork, ForkRun};
/// use graph_runtime::{Map, RunId, Value};
///
/// let set = Map::from_iter([("carrier".to_owned(), Value::from("post"))]);
/// let fork = Fork { step: Some(3), set, ..Fork::default() };
/// let run = runtime.fork(&graph, &RunId::new("order-17")?, fork).await?;
/// let finished = runtime.resume(graph, &run).await?.await?;
/// println!("with another carrier, it ends at `{}`", finished.node);
/// # Ok(())
/// # }
/// ```
pub trait ForkRun {
    /// Creates a run that begins at a step of another run, with the same inputs and optionally some state keys changed.
    /// Like a stopped run, it does not execute until [`Runtime::resume`] resumes it. The other run is not changed.
    ///
    /// Its journal names the step where it began and the keys that were changed, and has its state in a snapshot. Its
    /// idempotency keys are its own, so the calls that the other run made after the step are made again. It may use only
    /// the capabilities that the other run's caller allowed.
    ///
    /// # Errors
    ///
    /// If there is no such run or step, the run had ended or runs inside it wait there, a key or value does not fit the graph, or the
    /// store fails.
    fn fork<'a>(
        &'a self,
        machine: &'a dyn Machine,
        origin: &'a RunId,
        fork: Fork,
    ) -> BoxFuture<'a, Result<RunId, ForkError>>;
}

impl ForkRun for Runtime {
    fn fork<'a>(
        &'a self,
        machine: &'a dyn Machine,
        origin: &'a RunId,
        fork: Fork,
    ) -> BoxFuture<'a, Result<RunId, ForkError>> {
        Box::pin(begin_fork(services(self), machine, origin, fork))
    }
}

async fn begin_fork(
    services: &RuntimeServices,
    machine: &dyn Machine,
    origin: &RunId,
    fork: Fork,
) -> Result<RunId, ForkError> {
    let (store, key) = services.stored()?;
    let machine = version(machine, services.older_of(machine, origin).await?);
    let code = tables(machine.graph());
    let past_error = |reason| ForkError::Past { run: origin.clone(), reason };
    let run = match fork.run {
        Some(run) => run,
        None => services.new_id(code)?,
    };
    let run_secrets =
        RunSecrets::open(code, &run, services.encryption_key.as_ref(), true).map_err(StoredRunError::from)?;
    let records = store.load(origin).await?;
    let past = Past::open(machine, origin, &records, &key.public(), services.encryption_key.as_ref());
    let mut past = past.map_err(|error| past_error(error.into()))?;
    go_to(&mut past, fork.step).map_err(past_error)?;
    if past.position.is_over() {
        return Err(ForkError::Ended { run: origin.clone(), step: past.position.steps });
    }
    if past.position.waits.iter().any(|wait| wait.opened.is_inside()) {
        return Err(ForkError::WaitsInside { run: origin.clone(), step: past.position.steps });
    }
    let link = usize::try_from(past.when.1).ok().and_then(|seq| records.get(seq)).map(SignedRecord::link);
    let link = link.unwrap_or_else(|| Digest::of([]));
    let changes = StateChanges { set: &fork.set, write: &fork.write, recorded: None };
    let from = Origin::new(origin.clone(), past.when.1, link, changes.keys().cloned().collect());
    if let Some(key) = leaks(&past, changes) {
        return Err(ForkError::Secret { key });
    }
    // The visits that a hook has suspended are so in the fork too. It has none of the nested runs.
    let is_open = |done: &&Done| past.position.open().any(|at| at.number == done.step);
    let of_fork = |done: &Done| {
        let suspension = done.suspended.clone()?.of_fork();
        Some(Done::of_suspended(done.step, &done.node, suspension))
    };
    let mut suspended: Vec<Done> = past.done.values().filter(is_open).filter_map(of_fork).collect();
    suspended.sort_unstable_by_key(|done| done.step);
    let Past { mut position, seen, start: begun, .. } = past;
    let Seen::Plain(mut state) = seen else {
        return Err(past_error(PastError::Encrypted(begun.encryption_key.clone())));
    };
    position.become_fork();
    changes.apply(code, &mut position, Some(&mut *state))?;
    let capabilities = begun.capabilities.clone();
    let ceiling: Vec<Grants> =
        std::iter::once(services.grants.clone()).chain(capabilities.clone().map(Grants::new)).collect();
    allowed(machine, &ceiling)?;
    let mut start = start_entry(machine, key, &*state, run_secrets.as_deref(), &ceiling);
    start.from = Some(from);
    (start.depth, start.limit, start.capabilities) = (begun.depth, begun.limit, capabilities);
    start.entry = begun.entry;
    if let Some(milliseconds) = code.settings.deadline_ms {
        // It has as much time as a run that begins now.
        start.deadline = Some(services.deadline_from_now(milliseconds).await?);
    }
    let mut chain = Chain::new(run.clone());
    let at = services.clock.now();
    let start = chain.sign("start", start, at, key);
    let run_secrets = run_secrets.as_deref();
    let snapshot = SnapshotDraft { code, state: &*state, position: &position, run_secrets }.to_owned();
    let mut records = vec![start, chain.sign("snapshot", snapshot, at, key)];
    if !suspended.is_empty() {
        records.push(chain.sign("calls", Calls::new(suspended), at, key));
    }
    // The fork is not running. The process that resumes it leases it.
    drop(store.create(&run, code.id.as_str(), records.clone()).await?);
    services.recorded(&run, machine.graph(), &records);
    Ok(run)
}

//! Edits: changes of the state of a run that is not in progress.

use std::collections::BTreeSet;

use graph_engine::graph::{GraphTables, tables};
use graph_engine::machine::Machine;
use graph_engine::past::{Past, Seen};
use graph_engine::record::{ChangeError, Edit, verified_start};
use graph_engine::run_secrets::RunSecrets;
use graph_engine::runtime::services;
use graph_engine::services::RuntimeServices;
use graph_engine::store::{RunFilter, Store, Within, all_runs};
use graph_engine::versions::version;
use graph_engine::{BoxFuture, ErrorKind, HasKind, Runtime, Status, StoredRunError};
use graph_model::name::RunId;
use graph_model::timestamp;
use graph_model::value::{Map, Value};
use graph_signing::PublicKey;

use crate::edits::{EditMisfit, EditSummary, check, keeps_calls, leaks};
use crate::history::{PastError, go_to};

/// A change of the state of a run.
///
/// [`EditRun`] has an example.
#[derive(Debug, Clone, Default)]
pub struct StateEdit {
    /// The name of the person who makes it. The journal states it; nothing proves it but the key that signs the journal.
    pub by: String,
    /// Why.
    pub why: String,
    /// State keys and their new values; null unsets a key.
    pub set: Map<String, Value>,
    /// State keys, and the values that are written to them as a node writes them: a channel combines the write with its
    /// value.
    pub write: Map<String, Value>,
}

/// Why a run was not edited. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EditError {
    /// The run cannot be read or written, or it is inside another one.
    #[error(transparent)]
    Stored(StoredRunError),
    /// The journal was changed or belongs to another graph.
    #[error("cannot edit run `{run}`: {reason}")]
    Past {
        /// The run.
        run: RunId,
        /// Why.
        reason: PastError,
    },
    /// The run ended with a result.
    #[error("cannot edit run `{run}`: it ended, and nothing would be left to do; fork it at an earlier step")]
    Ended {
        /// The run.
        run: RunId,
    },
    /// A step that the store has lost began a run inside.
    #[error(
        "cannot edit run `{run}`: a step that was lost began a run inside it, with values of the state as it is; resume it, or \
         fork it"
    )]
    Ahead {
        /// The run.
        run: RunId,
    },
    /// The change does not fit the run.
    #[error("cannot edit run `{run}`: {reason}")]
    Misfit {
        /// The run.
        run: RunId,
        /// Why.
        reason: EditMisfit,
    },
}

impl<E: Into<StoredRunError>> From<E> for EditError {
    fn from(error: E) -> Self {
        Self::Stored(error.into())
    }
}

impl HasKind for EditError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Stored(error) => error.kind(),
            Self::Past { reason, .. } => reason.kind(),
            Self::Ended { .. } => ErrorKind::Late,
            Self::Ahead { .. } => ErrorKind::Conflict,
            Self::Misfit { .. } => ErrorKind::Invalid,
        }
    }
}

/// Edits runs.
///
/// ```
/// # mod graph_runtime { pub use graph_engine::*; pub use graph_proof::*; }
/// # use graph_runtime::{Graph, Runtime};
/// # async fn example<G: Graph>(runtime: Runtime, graph: G) -> Result<(), Box<dyn std::error::Error>> {
/// use graph_runtime::history::{EditRun, StateEdit};
/// use graph_runtime::{Map, RunId, Value};
///
/// let run = RunId::new("order-17")?;
/// let set = Map::from_iter([("carrier".to_owned(), Value::from("post"))]);
/// let (by, why) = ("ann".to_owned(), "the customer asked for it".to_owned());
/// runtime.edit(&graph, &run, StateEdit { by, why, set, ..StateEdit::default() }).await?;
/// let finished = runtime.resume(graph, &run).await?.await?;
/// println!("with another carrier, it ends at `{}`", finished.node);
/// # Ok(())
/// # }
/// ```
pub trait EditRun {
    /// Changes state keys of a run that failed, was cancelled, or was stopped by a crash, and returns the edit as its
    /// journal states it. The run is not resumed: [`Runtime::resume`] continues it with the new values.
    ///
    /// The edit is one record of the journal, with who made it, why, and the values. When this returns `Ok`, a restarted
    /// process sees it; on `Err` the run has it or not, and nothing else. Audits, attestations and the history of the run
    /// show it.
    ///
    /// Finished calls of an unfinished step are kept. So a key cannot be changed that their parameters depend on, nor one
    /// that the inputs of a graph inside depend on that has begun. A call that was in progress when the run stopped is made
    /// again with the new values, and with the same idempotency key: a service that has seen the key may refuse other
    /// values. A [fork](crate::history::ForkRun) has keys of its own.
    ///
    /// # Errors
    ///
    /// If there is no such run, it is in progress, ended with a result or is inside another; if the graph has no such key,
    /// a value is not of the key's type, or a key without which a node cannot run would be unset; or if the store fails.
    fn edit<'a>(
        &'a self,
        machine: &'a dyn Machine,
        run: &'a RunId,
        edit: StateEdit,
    ) -> BoxFuture<'a, Result<EditSummary, EditError>>;
}

impl EditRun for Runtime {
    fn edit<'a>(
        &'a self,
        machine: &'a dyn Machine,
        run: &'a RunId,
        edit: StateEdit,
    ) -> BoxFuture<'a, Result<EditSummary, EditError>> {
        Box::pin(edit_run(services(self), machine, run, edit))
    }
}

async fn edit_run(
    services: &RuntimeServices,
    machine: &dyn Machine,
    run: &RunId,
    edit: StateEdit,
) -> Result<EditSummary, EditError> {
    let (store, key) = services.stored()?;
    let machine = version(machine, services.older_of(machine, run).await?);
    let code = tables(machine.graph());
    let past_error = |reason| EditError::Past { run: run.clone(), reason };
    let misfit = |reason| EditError::Misfit { run: run.clone(), reason };
    // Without the key, nothing is leased.
    RunSecrets::open(code, run, services.encryption_key.as_ref(), true)?;
    let lease = store.lease(run).await?;
    let found = store.find(run).await?;
    let mut records = store.load(run).await?;
    let past = Past::open(machine, run, &records, &key.public(), services.encryption_key.as_ref());
    let mut past = past.map_err(|error| past_error(error.into()))?;
    go_to(&mut past, None).map_err(past_error)?;
    if past.position.is_over() {
        return Err(EditError::Ended { run: run.clone() });
    }
    if let Some(parent) = &past.start.parent {
        return Err(StoredRunError::Inside { run: run.clone(), outer: parent.run.clone() }.into());
    }
    let StateEdit { by, why, set, write } = edit;
    let mut edit = Edit::new(past.position.steps, by, why, set, write);
    check(&edit, code, &past.position, &past.done).map_err(misfit)?;
    let begun = begun_inside(code, run, &**store, &key.public()).await?;
    keeps_calls(&edit, code, &past.position, |step| begun.contains(&step)).map_err(misfit)?;
    if begun.iter().any(|step| *step > past.position.made) {
        return Err(EditError::Ahead { run: run.clone() });
    }
    if let Some(key) = leaks(&past, edit.changes()) {
        return Err(misfit(EditMisfit::Secret { key }));
    }
    let Seen::Plain(state) = &mut past.seen else {
        return Err(past_error(PastError::Encrypted(past.start.encryption_key.clone())));
    };
    edit.reduced = edit.changes().reduce(code, &**state).map_err(|error| misfit(error.into()))?;
    let edited = edit.changes().apply(code, &mut past.position, Some(&mut **state));
    edited.map_err(|error: ChangeError| misfit(error.into()))?;
    // A run that waits still waits for the same.
    let status = match &past.end {
        Some(end) => end.status,
        None if found.status == Status::Waiting => Status::Waiting,
        None => Status::Running,
    };
    let (mut chain, run_secrets) = (past.chain(), past.run_secrets().cloned());
    drop(past);
    let known = chain.count();
    if let Some(run_secrets) = &run_secrets {
        run_secrets.encrypt_edit(code, known, &mut edit);
    }
    let now = services.clock.now();
    let record = chain.sign("edit", &edit, now, key);
    store.append(&lease, known, vec![record.clone()], status).await?;
    records.push(record);
    services.recorded(run, machine.graph(), &records);
    Ok(EditSummary::of(known, &timestamp::milliseconds(now), &edit))
}

/// Returns the numbers of the visits that began runs inside the run, if a call of the graph may begin one.
async fn begun_inside(
    code: &GraphTables,
    run: &RunId,
    store: &dyn Store,
    key: &PublicKey,
) -> Result<BTreeSet<u64>, EditError> {
    let mut begun = BTreeSet::new();
    if !(0..).zip(&code.nodes).any(|(node, _)| code.may_nest(node)) {
        return Ok(begun);
    }
    let filter = RunFilter { within: Within::Run(run.clone()), ..RunFilter::default() };
    for inside in all_runs(store, &filter).await? {
        let records = store.load(&inside.run).await?;
        let start = verified_start(&inside.run, &records, key).map_err(StoredRunError::journal(&inside.run))?;
        begun.extend(start.parent.filter(|parent| parent.run == *run).map(|parent| parent.step));
    }
    Ok(begun)
}

//! Runs whose graph is gone: reading their outcome, and ending them.

use graph_model::digest::Digest;
use graph_model::name::RunId;
use graph_model::value::Value;
use graph_signing::PublicKey;

use crate::error::StoredRunError;
use crate::future::BoxFuture;
use crate::record::{End, TaskOrigin, VerifiedJournal};
use crate::run_secrets::hide_encrypted;
use crate::runtime::Runtime;
use crate::status::Status;
use crate::store::{RunFilter, RunSummary, Store, StoreError, Wait, Within, all_runs, all_waits};

/// The outcome of a run as its journal says, for somebody who does not have its graph.
///
/// [`Runtime::recorded_outcome`] has an example.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct RecordedOutcome {
    /// The run.
    pub run: RunId,
    /// The run whose task it is, and the call that spawned it.
    pub task: Option<TaskOrigin>,
    /// Its graph's id.
    pub graph: String,
    /// The version that the graph's author gave it.
    pub version: String,
    /// The digest of the graph that it began under.
    pub digest: Digest,
    /// The digest of the graph's meaning, if the journal has it.
    pub meaning: Option<Digest>,
    /// Its status. It is the store's, if the run has not ended.
    pub status: Status,
    /// How many nodes were visited.
    pub steps: u64,
    /// The output, if it ended with a result. Secrets are replaced by `[secret]`.
    pub output: Value,
    /// The error message, if it ended with an error or as cancelled.
    pub error: Option<String>,
    /// The node that failed, if one did.
    pub node: Option<String>,
    /// The error code of whatever the node's tool called, if it named one.
    pub code: Option<String>,
    /// The waits that are open, as the store lists them.
    pub waits: Vec<Wait>,
}

/// Returns what the journal of a run says about its outcome, as [`Runtime::recorded_outcome`], to somebody who cannot write to its
/// store. `key` is the public key of the runtime that wrote the journal.
///
/// # Errors
///
/// If there is no such run, or its journal is not what an engine with that key wrote.
pub async fn recorded_outcome(
    store: &dyn Store,
    run: &RunId,
    key: &PublicKey,
) -> Result<RecordedOutcome, StoredRunError> {
    let signed = store.load(run).await?;
    let journal = VerifiedJournal::new(run, &signed, key).and_then(VerifiedJournal::read_recent);
    let journal = journal.map_err(StoredRunError::journal(run))?;
    let start = &journal.start;
    let mut found = RecordedOutcome {
        run: run.clone(),
        task: start.task.clone(),
        graph: start.graph.clone(),
        version: start.version.clone(),
        digest: start.digest,
        meaning: start.meaning,
        status: Status::Running,
        steps: journal.steps(),
        output: Value::Null,
        error: None,
        node: None,
        code: None,
        waits: Vec::new(),
    };
    if let Some(End { status, steps, output, error, node, code, .. }) = journal.end().cloned() {
        found = RecordedOutcome { status, steps, output, error, node, code, ..found };
        hide_encrypted(&mut found.output);
        return Ok(found);
    }
    found.status = store.find(run).await?.status;
    if found.status == Status::Waiting {
        found.waits = all_waits(store, run).await?;
    }
    Ok(found)
}

impl Runtime {
    /// Returns what the journal of a run says about its outcome, without its graph. It verifies the chain and the signatures. It
    /// does not prove that the graph allows the records: [`Runtime::outcome`] does, with the graph.
    ///
    /// ```
    /// # use graph_engine as graph_runtime;
    /// # async fn example(runtime: graph_runtime::Runtime) -> Result<(), Box<dyn std::error::Error>> {
    /// use graph_runtime::RunId;
    ///
    /// let found = runtime.recorded_outcome(&RunId::new("order-17")?).await?;
    /// println!("a run of {} {}: {}, with {}", found.graph, found.version, found.status.name(), found.output);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If there is no such run, or its journal is not what an engine with the key of this runtime wrote.
    pub async fn recorded_outcome(&self, run: &RunId) -> Result<RecordedOutcome, StoredRunError> {
        let (store, key) = self.inner.stored()?;
        recorded_outcome(&**store, run, &key.public()).await
    }

    /// Ends a run, and the runs inside it, as cancelled, although nothing continues them: because their graph is gone, or changed
    /// its meaning. [`Runtime::cancel`] leaves a run that was stopped in a step to whoever resumes it.
    ///
    /// No tool is called, and no hook is notified. If the run was stopped while calls were in progress, nobody knows whether they
    /// had their effects, as after any crash.
    ///
    /// Returns the status of the run after that. It is not [`Status::Cancelled`] if somebody holds the run, or one inside it: the
    /// holder ends the run after the step that it is at.
    ///
    /// ```
    /// # use graph_engine as graph_runtime;
    /// # async fn example(runtime: graph_runtime::Runtime) -> Result<(), Box<dyn std::error::Error>> {
    /// use graph_runtime::{RunId, Status};
    ///
    /// let status = runtime.cancel_without_graph(&RunId::new("order-17")?).await?;
    /// assert_eq!(status, Status::Cancelled);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the run as it was, to be cancelled, or cancelled. It can be called again.
    ///
    /// # Errors
    ///
    /// If there is no store, it cannot be written, there is no such run, the run has ended, it is inside another one, or its journal
    /// is not what an engine with the key of this runtime wrote.
    pub async fn cancel_without_graph(&self, run: &RunId) -> Result<Status, StoredRunError> {
        let (store, _) = self.inner.stored()?;
        if let Some(outer) = store.find(run).await?.parent {
            return Err(StoredRunError::Inside { run: run.clone(), outer });
        }
        // A process that has the graph, and continues the run meanwhile, ends it too.
        store.cancel(run).await?;
        self.end_tree(&**store, run).await?;
        Ok(store.find(run).await?.status)
    }

    /// Ends a run after those inside it, which are not to outlive it. Returns false if somebody holds one of them.
    fn end_tree<'a>(&'a self, store: &'a dyn Store, run: &'a RunId) -> BoxFuture<'a, Result<bool, StoredRunError>> {
        Box::pin(async move {
            let lease = match store.lease(run).await {
                Err(StoreError::Leased { .. }) => return Ok(false),
                lease => lease?,
            };
            let statuses = vec![Status::Running, Status::Waiting];
            let filter = RunFilter { statuses, within: Within::Run(run.clone()), ..RunFilter::default() };
            for RunSummary { run: inner, .. } in all_runs(store, &filter).await? {
                if !self.end_tree(store, &inner).await? {
                    return Ok(false);
                }
            }
            self.end_leased(store, &lease).await
        })
    }
}

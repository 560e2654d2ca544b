//! Starting a run that may exist already, and following a run that something else continues.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use graph_model::name::RunId;
use graph_model::value::{AsView, Map, Mismatch, Value};

use crate::engine::{Ended, open_waits};
use crate::error::{ResumeError, RunError, StoredRunError};
use crate::failure::ActionError;
use crate::graph::tables;
use crate::kind::{ErrorKind, HasKind};
use crate::machine::{Graph, Machine};
use crate::record::End;
use crate::replay::{Replayed, add_up, result_of};
use crate::run::{Run, Work};
use crate::runtime::Runtime;
use crate::services::RuntimeServices;
use crate::status::Status;
use crate::step::state_value;
use crate::stop::Stop;
use crate::versions::kept_version;

/// The pauses between two looks at a run that is followed: the first one, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(500)];

impl Runtime {
    /// Like [`Runtime::start_as`]; but if a run with this id began so before, returns that run: for a request that may arrive twice,
    /// and is to be answered as if it had arrived once.
    ///
    /// A run that exists began so if it is under this graph, or under one of its [older versions](Machine::older), began at its start,
    /// and with equal inputs, their defaults applied. Secret inputs are compared too. An error names the inputs that differ, and
    /// no values.
    ///
    /// The run that exists is not resumed. Awaiting the [`Run`] waits until it has ended, whatever process continues it. One that failed
    /// or was cancelled gives its error, and one that waits [`RunError::Waiting`]. It waits for a run that a crash stopped
    /// until a [worker](Runtime::worker) continues it. A [`Canceller`](crate::Canceller) cancels it in the store, while it is awaited.
    ///
    /// ```
    /// # use graph_engine as graph_runtime;
    /// # async fn example<G: graph_runtime::Graph + Clone>(
    /// #     runtime: graph_runtime::Runtime,
    /// #     graph: G,
    /// #     inputs: G::Inputs,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// use graph_runtime::{ResumeError, RunId};
    ///
    /// match runtime.start_or_attach(RunId::new("order-17")?, graph, inputs).await {
    ///     Ok(run) => println!("it ended at `{}`", run.await?.node),
    ///     Err(error @ ResumeError::Begun { .. }) => println!("the number is that of another order: {error}"),
    ///     Err(error) => return Err(error.into()),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Runtime::start`], in [`ResumeError::Start`]. If a run with this id exists: [`ResumeError::Begun`] if it began otherwise,
    /// [`StoredRunError::AnotherGraph`] if it is under another graph or another version, and others if it cannot be read.
    pub async fn start_or_attach<G: Graph + Clone>(
        &self,
        run: RunId,
        graph: G,
        inputs: G::Inputs,
    ) -> Result<Run<G::Output>, ResumeError> {
        let given = inputs.view().to_plain_value();
        match self.start_as(run.clone(), graph.clone(), inputs).await {
            Err(error) if error.kind() == ErrorKind::Exists => {}
            started => return Ok(started?),
        }
        let older = self.inner.older_of(&graph, &run).await?;
        let (graph, stop) = (Arc::new(graph), Stop::default());
        let machine = kept_version(Arc::clone(&graph) as _, older);
        self.inner.began_so(&*machine, &run, &given).await?;
        let end = Arc::clone(&self.inner).follow(machine, run.clone(), stop.clone());
        Ok(Run::of(graph, older, run, stop, Work::Followed(Mutex::new(Box::pin(end)))))
    }
}

impl RuntimeServices {
    /// Fails unless a run began under a graph, at its start and with these inputs.
    async fn began_so(&self, machine: &dyn Machine, run: &RunId, given: &Value) -> Result<(), ResumeError> {
        let start = self.journal_of(machine, run).await?.start;
        let otherwise = |how: String| Err(ResumeError::Begun { run: run.clone(), how });
        if let Some(parent) = start.parent {
            return Err(StoredRunError::Inside { run: run.clone(), outer: parent.run }.into());
        }
        if start.from.is_some() || start.task.is_some() || start.entry.is_some() {
            return otherwise("it is a fork or a task, or began at an entry".to_owned());
        }
        let opened = |inputs: &Value| Ok::<_, Mismatch>(machine.open(inputs.clone())?.inputs().to_plain_value());
        let (own, given) = match (opened(&start.inputs), opened(given)) {
            (Ok(own), Ok(given)) if own == given => return Ok(()),
            (Ok(own), Ok(given)) => (own, given),
            (Err(mismatch), _) | (_, Err(mismatch)) => return otherwise(format!("with other inputs: {mismatch}")),
        };
        let all = [&own, &given].into_iter().filter_map(Value::as_object).flat_map(Map::keys);
        let differing: BTreeSet<&str> =
            all.filter(|name| own.get(*name) != given.get(*name)).map(String::as_str).collect();
        otherwise(format!("with other values of `{}`", Vec::from_iter(differing).join("`, `")))
    }

    /// Waits until a run has ended, or waits. Cancels it if that is requested meanwhile.
    async fn follow(self: Arc<Self>, machine: Arc<dyn Machine>, run: RunId, stop: Stop) -> Result<Ended, RunError> {
        let [mut pause, longest] = PAUSES;
        let mut is_cancelling = false;
        loop {
            if let Some(ended) = self.end_of(&*machine, &run).await? {
                return Ok(ended);
            }
            if self.gate.is_closed() {
                return Err(RunError::ShutDown { run, steps: 0, state: Box::default() });
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => pause = (pause * 2).min(longest),
                () = stop.wait(), if !is_cancelling => {
                    is_cancelling = true;
                    let Some(store) = &self.store else { continue };
                    if let Err(error) = store.cancel(&run).await {
                        tracing::warn!(%run, %error, "a run that is followed cannot be cancelled");
                    }
                }
            }
        }
    }

    /// Returns the result of a run; `None` if it has not ended, and does not wait.
    async fn end_of(&self, machine: &dyn Machine, run: &RunId) -> Result<Option<Ended>, RunError> {
        let unread = |error: StoredRunError| RunError::Stopped { run: run.clone(), reason: error.to_string() };
        let misfit = |reason| unread(StoredRunError::journal(run)(reason));
        let Some(store) = &self.store else { return Ok(None) };
        let status = store.find(run).await.map_err(|error| unread(error.into()))?.status;
        if status == Status::Running {
            return Ok(None);
        }
        let (code, journal) = (tables(machine.graph()), self.journal_of(machine, run).await.map_err(unread)?);
        if let Some(ended) = result_of(code, machine, &journal, self.keeps_history).map_err(misfit)? {
            return Ok(Some(ended));
        }
        let Replayed { state, position, .. } = add_up(code, machine, &journal).map_err(misfit)?;
        let (run, steps, state) = (run.clone(), position.steps, Box::new(state_value(code, &*state, &position)));
        Err(match journal.end().cloned() {
            None if status == Status::Waiting => {
                RunError::Waiting { run, steps, waits: open_waits(code, &position), state }
            }
            // It was resumed meanwhile.
            None => return Ok(None),
            Some(End { status: Status::Cancelled, .. }) => RunError::Cancelled { run, steps, state },
            Some(End { node: Some(node), error, code, .. }) => {
                let failure = ActionError::permanent(error.unwrap_or_default());
                let failure = code.into_iter().fold(failure, ActionError::with_code);
                RunError::Node { run, node, step: steps + 1, steps, failure: Box::new(failure.into()), state }
            }
            Some(End { error, .. }) => RunError::Stopped { run, reason: error.unwrap_or_default() },
        })
    }
}

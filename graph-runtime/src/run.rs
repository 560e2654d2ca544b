//! A run as its caller sees it.

use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::pin::Pin;

use graph_model::name::RunId;
use graph_model::value::{FromValue, Value};
use tokio::task::JoinHandle;

use crate::engine::{Ended, Engine};
use crate::error::{RunError, SuppressedError};
use crate::record::Status;

/// A run at work. Awaiting it gives its result; dropping it leaves the run at work.
#[derive(Debug)]
#[must_use = "a run goes on by itself, and its result is lost if nobody awaits it"]
pub struct Run<O> {
    id: RunId,
    work: Work,
    output: PhantomData<fn() -> O>,
}

#[derive(Debug)]
enum Work {
    Running(JoinHandle<Result<Ended, RunError>>),
    Ended(Box<Ended>),
}

async fn wait(run: &RunId, work: Work) -> Result<Ended, RunError> {
    match work {
        Work::Ended(ended) => Ok(*ended),
        Work::Running(task) => {
            task.await.unwrap_or_else(|error| Err(RunError::Stopped { run: run.clone(), reason: error.to_string() }))
        }
    }
}

/// Spawns the engine's task. Not generic, so that the engine is compiled once, and not with every graph.
fn spawn(engine: Engine) -> JoinHandle<Result<Ended, RunError>> {
    tokio::spawn(RUN.scope((), engine.drive()))
}

tokio::task_local! {
    /// Set in the tasks of runs.
    static RUN: ();
}

/// Whether the caller is the task of a run.
#[cfg(feature = "sqlite")]
pub(crate) fn is_run() -> bool {
    RUN.try_with(|()| ()).is_ok()
}

/// What a run returned.
#[derive(Debug, Clone, PartialEq)]
pub struct Finished<O> {
    /// The run.
    pub run: RunId,
    /// How it ended: completed, or completed with errors.
    pub status: Status,
    /// What it returned.
    pub output: O,
    /// The state at its end, with the run's inputs in it.
    pub state: Value,
    /// How many nodes were visited.
    pub steps: u64,
    /// The failures that it went on after.
    pub errors: Vec<SuppressedError>,
}

impl<O: FromValue> Run<O> {
    pub(crate) fn spawn(engine: Engine) -> Self {
        let id = engine.facts.id.clone();
        Self { id, work: Work::Running(spawn(engine)), output: PhantomData }
    }

    pub(crate) fn ended(id: RunId, ended: Ended) -> Self {
        Self { id, work: Work::Ended(Box::new(ended)), output: PhantomData }
    }

    /// Returns the run's id.
    pub fn id(&self) -> &RunId {
        &self.id
    }

    async fn finish(self) -> Result<Finished<O>, RunError> {
        let run = self.id;
        let ended = wait(&run, self.work).await?;
        let Ended { status, output, state, steps, suppressed } = ended;
        match O::from_value(output) {
            Ok(output) => Ok(Finished { run, status, output, state, steps, errors: suppressed }),
            Err(mismatch) => Err(RunError::Output { run, mismatch }),
        }
    }
}

impl<O: FromValue + Send + 'static> IntoFuture for Run<O> {
    type Output = Result<Finished<O>, RunError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.finish())
    }
}

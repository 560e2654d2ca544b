//! A run as its caller sees it.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use graph_model::name::RunId;
use graph_model::secret::Secret;
use graph_model::value::{AsView, Mismatch, Value};
use tokio::task::JoinHandle;
use tracing::{Instrument, Span};

use crate::engine::{Ended, Engine, ResultParts};
use crate::error::RunError;
use crate::failure::SuppressedError;
use crate::future::BoxFuture;
use crate::gate::Pass;
use crate::machine::Graph;
use crate::record::Visit;
use crate::schedule::in_run;
use crate::status::Status;
use crate::stop::Stop;

/// A run in progress. Awaiting it gives its result. Dropping it does not stop the run, even while it is awaited.
///
/// So a caller can stop waiting, and wait again later:
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
/// let mut run = runtime.start(graph, inputs).await?;
/// match tokio::time::timeout(Duration::from_secs(2), &mut run).await {
///     Ok(finished) => println!("the order ended at `{}`", finished?.node),
///     Err(_) => println!("the order is still in progress; its run is {}", run.id()),
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "a run continues by itself, and its result is lost if nobody awaits it"]
pub struct Run<O> {
    id: RunId,
    stop: Stop,
    work: Work,
    /// Reads the output; `None` after the result was returned.
    read: Option<Reading<O>>,
    #[cfg(feature = "events")]
    pub(crate) events: Option<crate::events::RunEvents>,
}

/// Reads the output of a run that ended at a node, as its graph does.
type Reading<O> = Box<dyn FnOnce(&str, Value) -> Result<O, Mismatch> + Send + Sync>;

impl<O> fmt::Debug for Run<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Stops a run.
///
/// The run ends as cancelled before its next step. A run that waits before a retry stops waiting, and a foreach begins no
/// further calls. A call in progress is waited for; the tool is [notified](crate::Call::cancelled) and may return sooner.
///
/// The request is lost when the process ends. For a request that lasts, use [`Store::cancel`](crate::Store::cancel).
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
/// use graph_runtime::RunError;
///
/// let run = runtime.start(graph, inputs).await?;
/// let canceller = run.canceller();
/// tokio::spawn(async move {
///     tokio::time::sleep(Duration::from_secs(60)).await;
///     canceller.cancel();
/// });
/// match run.await {
///     Err(RunError::Cancelled { steps, .. }) => println!("cancelled after {steps} steps"),
///     ended => println!("ended at `{}`", ended?.node),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Canceller(Stop);

impl Canceller {
    /// Stops the run. It can be resumed.
    ///
    /// [`Canceller`] has an example.
    pub fn cancel(&self) {
        self.0.set();
    }

    /// Stops the run because its process received a signal, whose number the journal then has (R221).
    pub fn cancel_by(&self, signal: i32) {
        self.0.set_by(signal);
    }
}

pub(crate) enum Work {
    Running(Task),
    /// Something else continues it, and this waits for its end.
    Followed(Mutex<BoxFuture<'static, Result<Ended, RunError>>>),
    Ended(Result<Box<Ended>, Box<RunError>>),
    /// Its result was returned.
    Gone,
}

/// The task of a run.
pub(crate) type Task = JoinHandle<Result<Ended, RunError>>;

/// Spawns the engine's task. It is not generic, so that the engine is compiled once and not for every graph.
pub(crate) fn spawn(engine: Engine, pass: Pass, span: Span) -> Task {
    let pass = Arc::new(pass);
    engine.context.run.pass.get_or_init(|| Arc::clone(&pass));
    pass.spawn(in_run(engine.drive()).instrument(span))
}

/// The result of a run.
///
/// ```
/// # use graph_engine as graph_runtime;
/// use graph_runtime::{Finished, Status};
///
/// fn report<O>(finished: &Finished<O>) {
///     println!("run {} ended at `{}` after {} steps", finished.run, finished.node, finished.steps);
///     if finished.status == Status::CompletedWithErrors {
///         for failure in &finished.errors {
///             println!("`{}` failed at step {}: {}", failure.node, failure.step, failure.error);
///         }
///     }
/// }
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Finished<O> {
    /// The run.
    pub run: RunId,
    /// How it ended: completed, or completed with errors.
    pub status: Status,
    /// The node where it ended; if it reached its step limit, the node that it visited last.
    pub node: String,
    /// The output.
    pub output: O,
    /// The output as JSON and with its secrets, if it may have some: for graphs that are loaded while the program runs,
    /// whose `output` has `[secret]` in their places.
    pub secret_output: Option<Secret<Value>>,
    /// The state at its end, with the run's inputs in it. Secrets are replaced by `[secret]`.
    pub state: Value,
    /// How many nodes were visited.
    pub steps: u64,
    /// The failures after which it continued.
    pub errors: Vec<SuppressedError>,
    /// Whether it ended because it reached its step limit, if the graph says `return_with_flag`.
    pub exhausted: bool,
    /// How many signals of each name it had received and no wait had taken when it ended.
    pub unread: BTreeMap<String, u64>,
    /// Every visit with what it returned, if the runtime [keeps them](crate::Builder::keep_history).
    pub history: Vec<Visit>,
}

impl<O> Finished<O> {
    /// Returns the last result of each node, by its name; needs the history.
    pub fn last_results(&self) -> BTreeMap<&str, &Value> {
        self.history.iter().map(|visit| (visit.node.as_str(), &visit.result)).collect()
    }
}

impl<O: AsView> Finished<O> {
    /// Returns the result as one object, with `[secret]` for secrets: `success`, `status`, `graph_run_id`, `steps`, `state`
    /// and `output`, and where they apply `errors_suppressed`, `errors`, `max_steps_reached` (R313) and `unread`.
    pub fn to_value(&self) -> Value {
        let Self { status, steps, errors, exhausted, unread, .. } = self;
        let parts = ResultParts { status: *status, steps: *steps, errors, exhausted: *exhausted, unread };
        parts.result(&self.run, &self.state, &self.output.view().to_value())
    }
}

fn reading<G: Graph>(graph: Arc<G>, older: Option<usize>) -> Reading<G::Output> {
    Box::new(move |node, value| graph.output_of(older, node, value))
}

impl<O> Run<O> {
    /// The run of a graph, under the graph itself or one of its older versions.
    pub(crate) fn of<G: Graph<Output = O>>(
        graph: Arc<G>,
        older: Option<usize>,
        id: RunId,
        stop: Stop,
        work: Work,
    ) -> Self {
        let read = Some(reading(graph, older));
        Self {
            id,
            stop,
            work,
            read,
            #[cfg(feature = "events")]
            events: None,
        }
    }

    /// Returns the run's id.
    pub fn id(&self) -> &RunId {
        &self.id
    }

    /// Returns a handle that can stop the run, also while it is awaited.
    ///
    /// [`Canceller`] has an example.
    pub fn canceller(&self) -> Canceller {
        Canceller(self.stop.clone())
    }

    /// Whether the run has ended and its result is available.
    pub fn is_finished(&self) -> bool {
        match &self.work {
            Work::Running(task) => task.is_finished(),
            Work::Followed(_) => false,
            Work::Ended(_) | Work::Gone => true,
        }
    }

    /// Ends the run's task at once, as a crash would: the call in progress is dropped, and nothing is written. A run in a
    /// store counts as one that has not ended, and can be resumed.
    pub fn abort(&self) {
        if let Work::Running(task) = &self.work {
            task.abort();
        }
    }
}

impl Ended {
    /// Reads the result of the run, with its output as the graph reads it.
    pub(crate) fn read<O>(
        self,
        run: RunId,
        read: impl FnOnce(&str, Value) -> Result<O, Mismatch>,
    ) -> Result<Finished<O>, Mismatch> {
        let Self {
            status,
            node,
            output,
            hidden,
            state,
            steps,
            suppressed: errors,
            exhausted,
            history,
            unread,
            shared: _,
        } = self;
        let secret_output = hidden.map(|_| Secret::new(output.clone()));
        let output = read(&node, output)?;
        Ok(Finished { run, status, node, output, secret_output, state, steps, errors, exhausted, history, unread })
    }
}

impl<O> Future for Run<O> {
    type Output = Result<Finished<O>, RunError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let run = &mut *self;
        #[cfg(feature = "events")]
        run.events.iter_mut().for_each(crate::events::RunEvents::leave);
        let id = run.id.clone();
        let stopped = |reason: String| Err(RunError::Stopped { run: id, reason });
        let ended = match &mut run.work {
            Work::Running(task) => {
                ready!(Pin::new(task).poll(context)).unwrap_or_else(|error| stopped(error.to_string()))
            }
            Work::Followed(end) => ready!(end.get_mut().unwrap_or_else(PoisonError::into_inner).as_mut().poll(context)),
            Work::Ended(_) | Work::Gone => match std::mem::replace(&mut run.work, Work::Gone) {
                Work::Ended(ended) => ended.map(|ended| *ended).map_err(|error| *error),
                _ => stopped("its result was given before".to_owned()),
            },
        };
        run.work = Work::Gone;
        Poll::Ready(match run.read.take() {
            Some(read) => ended.and_then(|ended| {
                let misfit = |mismatch| RunError::Output { run: run.id.clone(), mismatch };
                ended.read(run.id.clone(), read).map_err(misfit)
            }),
            None => Err(RunError::Stopped { run: run.id.clone(), reason: "its result was given before".to_owned() }),
        })
    }
}

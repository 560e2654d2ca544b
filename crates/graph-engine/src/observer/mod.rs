//! Observers: receive the events of runs and never steer them.

#[cfg(feature = "progress")]
mod progress;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use graph_model::name::{GraphId, RunId};
use graph_model::program::Kind;
use graph_model::value::Value;

use crate::call::{Call, Parent};
use crate::graph::CompiledGraph;
use crate::record::{End, SignedRecord, Visit};
use crate::status::Status;

pub use crate::call::Emission;
#[cfg(feature = "progress")]
pub use progress::Progress;

/// Receives the events of runs.
///
/// Called from the run's task: a slow observer holds up the run. A panic of one is logged, and changes nothing for the run.
/// Each event is about something that is committed, except [`Event::StepStarted`], [`Event::CallStarted`],
/// [`Event::CallEnded`], [`Event::Emitted`] and [`Event::RunLeft`].
///
/// ```
/// # use graph_engine as graph_runtime;
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// use graph_runtime::observer::{Event, Observer};
/// use graph_runtime::Runtime;
///
/// /// Counts the runs that failed.
/// #[derive(Default)]
/// struct Failures(AtomicU64);
///
/// impl Observer for Failures {
///     fn observe(&self, event: &Event<'_>) {
///         if let Event::RunEnded { error: Some(_), .. } = event {
///             self.0.fetch_add(1, Ordering::Relaxed);
///         }
///     }
/// }
///
/// let failures = Arc::new(Failures::default());
/// let runtime = Runtime::builder().observer(Arc::clone(&failures)).build()?;
/// assert_eq!(failures.0.load(Ordering::Relaxed), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Observer: Send + Sync {
    /// Receives an event.
    fn observe(&self, event: &Event<'_>);

    /// Whether [`Event::StepTaken`] has the visits of runs without a journal, which are copied for it. Asked at each step.
    fn wants_visits(&self) -> bool {
        false
    }
}

/// Shows observers an event. One that panics neither stops the run nor keeps the event from the others.
pub(crate) fn notify(observers: &[Arc<dyn Observer>], event: &Event<'_>) {
    for observer in observers {
        if catch_unwind(AssertUnwindSafe(|| observer.observe(event))).is_err() {
            tracing::error!(run = %event.run(), "an observer panicked");
        }
    }
}

/// An observer that its program reads too, as one that counts.
impl<O: Observer + ?Sized> Observer for Arc<O> {
    fn observe(&self, event: &Event<'_>) {
        O::observe(self, event);
    }

    fn wants_visits(&self) -> bool {
        O::wants_visits(self)
    }
}

/// An event of a run.
///
/// [`Observer`] has an example.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A run begins, or is resumed.
    #[non_exhaustive]
    RunStarted {
        /// The run.
        run: &'a RunId,
        /// Its graph.
        graph: &'a GraphId,
        /// How many nodes the graph has.
        nodes: usize,
        /// How many visits were made before.
        steps: u64,
        /// The visit of another run that the run is nested in.
        parent: Option<&'a Parent>,
    },
    /// A node is about to be visited.
    #[non_exhaustive]
    StepStarted {
        /// The run.
        run: &'a RunId,
        /// The number of the visit, from 1.
        step: u64,
        /// The node.
        node: &'a str,
        /// The kind of the node.
        kind: Kind,
    },
    /// A call is about to be made: of a tool, or of a graph that runs inside the run. Each attempt is a call of its own.
    #[non_exhaustive]
    CallStarted {
        /// The call.
        call: CallAttempt<'a>,
    },
    /// A call is over.
    #[non_exhaustive]
    CallEnded {
        /// The call.
        call: CallAttempt<'a>,
        /// How long it took.
        elapsed: Duration,
        /// Why it failed. A call that waits has not failed.
        error: Option<&'a str>,
    },
    /// A tool [emitted](Call::emit) something during its call.
    #[non_exhaustive]
    Emitted {
        /// The call.
        call: &'a Call,
        /// The emission, with the secrets of the run removed.
        emission: &'a Emission,
    },
    /// A node was visited.
    #[non_exhaustive]
    StepCompleted {
        /// The run.
        run: &'a RunId,
        /// The number of the visit, from 1.
        step: u64,
        /// The node.
        node: &'a str,
        /// The kind of the node.
        kind: Kind,
        /// How long its tool took.
        elapsed: Duration,
        /// How long the run has taken, in this process.
        total: Duration,
        /// Why it failed.
        error: Option<&'a str>,
        /// The edge that was taken, by its index in the node's list.
        edge: Option<u16>,
        /// Whether the result came from the cache, so that nothing was called.
        cached: bool,
        /// Whether the branch of the visit was cancelled before it was done, because the quorum of its fan-out was decided, or
        /// another visit led to a return that cancels.
        cancelled: bool,
        /// The state keys that it set and that were not set before, sorted.
        new_keys: &'a [String],
        /// The warnings of the visit.
        warnings: &'a [String],
    },
    /// A visit waits. It is made, with its number, when the wait is over.
    #[non_exhaustive]
    WaitOpened {
        /// The run.
        run: &'a RunId,
        /// The number of the visit.
        step: u64,
        /// The node.
        node: &'a str,
        /// The time until which it waits, by the store's time, if it waits for a time.
        due: Option<SystemTime>,
    },
    /// A step was taken. If the run has a journal that is written at once, the step is durable.
    #[non_exhaustive]
    StepTaken {
        /// The run.
        run: &'a RunId,
        /// How many nodes were visited.
        steps: u64,
        /// The visits of the step, if the run has no journal and an observer [wants](Observer::wants_visits) them. Secrets are
        /// replaced by `[secret]`.
        visits: &'a [Visit],
        /// The state after the step.
        state: LazyState<'a>,
    },
    /// Records were committed to the run's journal. Runs without a store have no journal, and no such events.
    #[non_exhaustive]
    Recorded {
        /// The run.
        run: &'a RunId,
        /// Its graph.
        graph: &'a CompiledGraph,
        /// The records in order. If the first has number 0, they are the journal from its beginning: of a run that begins,
        /// or of one that is resumed, before [`Event::RunStarted`].
        records: &'a [SignedRecord],
    },
    /// The run ended. The status is `running` if a step could not be committed or the runtime was shut down, and the run
    /// waits to be resumed.
    #[non_exhaustive]
    RunEnded {
        /// The run.
        run: &'a RunId,
        /// How.
        status: Status,
        /// How many nodes were visited.
        steps: u64,
        /// How long the run took, in this process.
        elapsed: Duration,
        /// Why it failed.
        error: Option<&'a str>,
        /// The end, with `[secret]` for the secrets in its output; `None` if the run waits or is to be resumed.
        end: Option<&'a End>,
    },
    /// The run left the memory of this process: it ended, waits, or its task was aborted or panicked. Until it is resumed, an event
    /// of it follows only if its task was aborted while it wrote: [`Event::Recorded`].
    #[non_exhaustive]
    RunLeft {
        /// The run.
        run: &'a RunId,
    },
}

/// An attempt at a call.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct CallAttempt<'a> {
    /// The run.
    pub run: &'a RunId,
    /// The number of the visit.
    pub step: u64,
    /// The node.
    pub node: &'a str,
    /// The id of the tool or graph; empty if the node calls neither by an id.
    pub tool: &'a str,
    /// The item's index, if the node is a foreach.
    pub item: Option<u64>,
    /// The number of the attempt, from 1. A run that is resumed counts from 1 again.
    pub attempt: u64,
}

/// The state of a run, which is copied when it is asked for.
#[derive(Clone, Copy)]
pub struct LazyState<'a>(pub(crate) &'a dyn Fn() -> Value);

impl LazyState<'_> {
    /// Copies the state, with the inputs of the run in it. Secrets are replaced by `[secret]`.
    pub fn value(&self) -> Value {
        (self.0)()
    }
}

impl fmt::Debug for LazyState<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LazyState")
    }
}

impl Event<'_> {
    /// Returns the run that the event is about.
    pub fn run(&self) -> &RunId {
        match self {
            Self::RunStarted { run, .. }
            | Self::StepStarted { run, .. }
            | Self::StepCompleted { run, .. }
            | Self::CallStarted { call: CallAttempt { run, .. } }
            | Self::CallEnded { call: CallAttempt { run, .. }, .. }
            | Self::StepTaken { run, .. }
            | Self::WaitOpened { run, .. }
            | Self::Recorded { run, .. }
            | Self::RunLeft { run }
            | Self::RunEnded { run, .. } => run,
            Self::Emitted { call, .. } => call.run_id(),
        }
    }
}

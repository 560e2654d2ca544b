//! Observers: receive the events of runs and never steer them.

mod progress;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use graph_model::name::{GraphId, RunId};
use graph_model::program::Kind;

use crate::graph::CompiledGraph;
use crate::record::SignedRecord;
use crate::status::Status;

pub use progress::Progress;

/// Receives the events of runs.
///
/// Called from the run's task, between two steps: a slow observer holds up the run. Each event is about something that is
/// committed, except [`Event::StepStarted`].
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
}

/// An observer that its program reads too, as one that counts.
impl<O: Observer + ?Sized> Observer for Arc<O> {
    fn observe(&self, event: &Event<'_>) {
        O::observe(self, event);
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
    },
}

impl Event<'_> {
    /// Returns the run that the event is about.
    pub fn run(&self) -> &RunId {
        match self {
            Self::RunStarted { run, .. }
            | Self::StepStarted { run, .. }
            | Self::StepCompleted { run, .. }
            | Self::WaitOpened { run, .. }
            | Self::Recorded { run, .. }
            | Self::RunEnded { run, .. } => run,
        }
    }
}

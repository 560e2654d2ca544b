//! Stopping a run from outside.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU8, Ordering};

use tokio::sync::Notify;

/// A request that the run stop. The run checks it between two steps and while it waits.
#[derive(Clone, Default)]
pub(crate) struct Stop(Arc<Inner>);

#[derive(Default)]
struct Inner {
    /// `NONE`, `PAUSED`, `CANCELLED` or `KILLED`: it only grows.
    request: AtomicU8,
    /// The number of the signal that caused the request; 0 if no signal did.
    signal: AtomicI32,
    changed: Notify,
}

const NONE: u8 = 0;
/// The run is to stop where it is, to be resumed later.
const PAUSED: u8 = 1;
/// The run is to end as cancelled.
const CANCELLED: u8 = 2;
/// The run is to end as cancelled, and to drop the calls in progress.
const KILLED: u8 = 3;

impl Stop {
    /// Requests that the run end as cancelled.
    pub(crate) fn set(&self) {
        self.request(CANCELLED);
    }

    /// Requests that the run end as cancelled because of a signal. The first signal counts.
    pub(crate) fn set_by(&self, signal: i32) {
        if !self.is_cancelled() {
            self.0.signal.store(signal, Ordering::Release);
        }
        self.set();
    }

    /// Requests that the run end as cancelled, and drop the calls in progress.
    pub(crate) fn kill(&self) {
        self.request(KILLED);
    }

    /// Requests that the run stop where it is.
    pub(crate) fn pause(&self) {
        self.request(PAUSED);
    }

    fn request(&self, request: u8) {
        self.0.request.fetch_max(request, Ordering::AcqRel);
        self.0.changed.notify_waiters();
    }

    /// Returns the signal that caused the request, if one did.
    pub(crate) fn signal(&self) -> Option<i32> {
        Some(self.0.signal.load(Ordering::Acquire)).filter(|signal| *signal != 0)
    }

    /// Whether the run is to stop, for whatever reason.
    #[inline]
    pub(crate) fn is_set(&self) -> bool {
        self.0.request.load(Ordering::Acquire) != NONE
    }

    /// Whether the run is to end as cancelled.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.0.request.load(Ordering::Acquire) >= CANCELLED
    }

    /// Waits until the run is killed, or forever if it never is.
    pub(crate) async fn killed(&self) {
        self.wait_for(|stop| stop.0.request.load(Ordering::Acquire) == KILLED).await;
    }

    /// Waits until the run is to stop, for whatever reason.
    pub(crate) async fn wait(&self) {
        self.wait_for(Self::is_set).await;
    }

    async fn wait_for(&self, is_so: impl Fn(&Self) -> bool) {
        loop {
            let changed = self.0.changed.notified();
            tokio::pin!(changed);
            // The future receives each notification from here on, so a request between the check and the wait is not missed.
            changed.as_mut().enable();
            if is_so(self) {
                return;
            }
            changed.await;
        }
    }
}

impl fmt::Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stop({})", self.is_set())
    }
}

/// A token that shows a tool whether its run was cancelled. Clones show the same.
///
/// It is set once somebody cancelled the run, by [`Canceller`](crate::Canceller) or
/// [`Store::cancel`](crate::Store::cancel), and stays set. A runtime that [shuts down](crate::Runtime::shutdown) does
/// not set it: the run continues later.
///
/// ```
/// # use graph_engine as graph_runtime;
/// # fn print_label(_: u32) {}
/// use graph_runtime::{ActionError, Call};
///
/// async fn print_labels(call: &Call, parcels: u32) -> Result<usize, ActionError> {
///     let token = call.cancel_token();
///     let printing = move || (0..parcels).take_while(|_| !token.is_cancelled()).map(print_label).count();
///     Ok(tokio::task::spawn_blocking(printing).await?)
/// }
/// ```
#[derive(Debug, Clone)]
pub struct CancelToken(Stop);

impl CancelToken {
    pub(crate) fn of(stop: &Stop) -> Self {
        Self(stop.clone())
    }

    /// Whether the run was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Waits until the run is cancelled, or forever if it never is. The future may be dropped and requested again: nothing
    /// is missed.
    pub async fn cancelled(&self) {
        self.0.wait_for(Stop::is_cancelled).await;
    }
}

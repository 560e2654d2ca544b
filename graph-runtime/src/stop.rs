//! Stopping a run from outside.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use tokio::sync::Notify;

/// A wish that a run stop, which the run looks at between two steps and while it waits.
#[derive(Clone, Default)]
pub(crate) struct Stop(Arc<Inner>);

#[derive(Default)]
struct Inner {
    wished: AtomicBool,
    /// The signal that it is wished by; 0 where that is none.
    signal: AtomicI32,
    told: Notify,
}

impl Stop {
    /// Wishes it.
    pub(crate) fn set(&self) {
        self.0.wished.store(true, Ordering::Release);
        self.0.told.notify_waiters();
    }

    /// Wishes it because a signal came. The first that came counts.
    pub(crate) fn set_by(&self, signal: i32) {
        if !self.is_set() {
            self.0.signal.store(signal, Ordering::Release);
        }
        self.set();
    }

    /// Returns the signal that it is wished by, if one is.
    pub(crate) fn signal(&self) -> Option<i32> {
        Some(self.0.signal.load(Ordering::Acquire)).filter(|signal| *signal != 0)
    }

    /// Whether somebody wishes it.
    #[inline]
    pub(crate) fn is_set(&self) -> bool {
        self.0.wished.load(Ordering::Acquire)
    }

    /// Waits until somebody wishes it.
    pub(crate) async fn wait(&self) {
        loop {
            let told = self.0.told.notified();
            tokio::pin!(told);
            // What is told from here on is heard, so a wish between the look and the wait is not missed.
            told.as_mut().enable();
            if self.is_set() {
                return;
            }
            told.await;
        }
    }
}

impl fmt::Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stop({})", self.is_set())
    }
}

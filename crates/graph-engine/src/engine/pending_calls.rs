//! Calls of a step that finished before the step did, and that the journal does not hold yet.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::record::Done;

/// The calls that finished while other calls of the step run. A task writes them to the journal.
#[derive(Default)]
pub(crate) struct PendingCalls {
    pub(crate) finished: Mutex<CallQueue>,
    /// Wakes the task that writes them.
    pub(crate) added: Notify,
    /// How many of all calls ever added are durable, or written with their step.
    pub(crate) durable: AtomicU64,
    /// Wakes the tasks that wait for a call to be durable.
    pub(crate) stored: Notify,
    /// Whether the next call that is written as soon as it is added is the first since the task that writes took calls.
    pub(crate) next_is_first: AtomicBool,
    /// Whether each call is written as soon as it is added.
    pub(crate) is_eager: AtomicBool,
    /// Whether the step is done; after that, none of its calls is written on its own.
    pub(crate) is_over: AtomicBool,
    /// Whether the store failed: no more calls are begun.
    pub(crate) is_cut: AtomicBool,
}

/// The calls that are not written yet.
#[derive(Default)]
pub(crate) struct CallQueue {
    pub(crate) calls: Vec<Done>,
    /// How many calls were ever added.
    pub(crate) count: u64,
}

/// The place of a call among all calls ever added, from 1.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Order(u64);

impl PendingCalls {
    /// Adds a call that finished, to be written when the task that writes is [woken](Self::wake). Returns its place, and
    /// whether it woke that task.
    pub(crate) fn push(&self, done: Done) -> (Order, bool) {
        let order = {
            let mut finished = self.finished();
            finished.calls.push(done);
            finished.count += 1;
            Order(finished.count)
        };
        let is_eager = self.is_eager.load(Ordering::Acquire);
        // Before it wakes the task, which may take the calls at once.
        let woke = is_eager && self.next_is_first.swap(false, Ordering::AcqRel);
        if is_eager {
            self.wake();
        }
        (order, woke)
    }

    /// Wakes the task that writes the calls.
    pub(crate) fn wake(&self) {
        self.added.notify_one();
    }

    /// Takes the calls, and returns the place of the last one.
    pub(crate) fn take(&self) -> (Vec<Done>, Order) {
        self.next_is_first.store(true, Ordering::Release);
        let mut finished = self.finished();
        (std::mem::take(&mut finished.calls), Order(finished.count))
    }

    /// Marks the calls up to this one as durable.
    pub(crate) fn store(&self, Order(last): Order) {
        self.durable.store(last, Ordering::Release);
        self.stored.notify_waiters();
    }

    /// Records that the store failed.
    pub(crate) fn cut(&self) {
        self.is_cut.store(true, Ordering::Release);
        self.stored.notify_waiters();
    }

    /// Waits until a call is durable, or the store has failed.
    pub(crate) async fn durable(&self, Order(place): Order) {
        loop {
            let stored = self.stored.notified();
            tokio::pin!(stored);
            // Register first, so that a notification between the check and the wait is not missed.
            stored.as_mut().enable();
            if self.durable.load(Ordering::Acquire) >= place || self.is_cut() {
                return;
            }
            stored.await;
        }
    }

    pub(crate) fn finished(&self) -> MutexGuard<'_, CallQueue> {
        self.finished.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Acquire)
    }
}

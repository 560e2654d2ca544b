//! The queue of finished spans, and the thread that exports them. Adding spans never waits for it.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use tokio::runtime::Handle;

use crate::traces::SpanCounts;

/// How often a failure to export is logged.
const EVERY_WARNING: Duration = Duration::from_secs(60);

/// The longest pause after failures to export.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// How spans are exported.
#[derive(Debug, Clone, Copy)]
pub(super) struct QueueOptions {
    /// The maximum number of spans in the queue.
    pub(super) capacity: usize,
    /// The maximum number of spans that are exported at once.
    pub(super) batch: usize,
    /// How long a span waits for others, at most.
    pub(super) delay: Duration,
}

/// A queue of spans with a fixed size.
#[derive(Debug)]
pub(super) struct SpanQueue {
    options: QueueOptions,
    state: Mutex<QueueState>,
    /// Notified when there is enough for the thread to do.
    work: Condvar,
    /// Notified when the thread has done some of it.
    done: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    spans: VecDeque<SpanData>,
    counts: SpanCounts,
    /// How many spans the exporter has.
    exporting: u64,
    /// How many callers wait until the queue is empty.
    waiting: usize,
    is_closed: bool,
    /// Whether the thread has ended, and whether the exporter ended it.
    is_over: bool,
    is_broken: bool,
}

impl SpanQueue {
    /// Starts the thread that exports with `exporter`. It ends when the queue is closed.
    pub(super) fn open(options: QueueOptions, exporter: impl SpanExporter + 'static) -> io::Result<Arc<Self>> {
        let queue = Arc::new(Self { options, state: Mutex::default(), work: Condvar::new(), done: Condvar::new() });
        let (inside, handle) = (Arc::clone(&queue), Handle::try_current().ok());
        thread::Builder::new().name("graph-telemetry".to_owned()).spawn(move || {
            // Exporters that talk to a collector with tokio find the runtime of the program here.
            let _inside = handle.as_ref().map(Handle::enter);
            let over = Over(&inside);
            over.0.export_all(&exporter);
        })?;
        Ok(queue)
    }

    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds spans, and drops those that find no place.
    pub(super) fn push(&self, spans: Vec<SpanData>) {
        let mut state = self.state();
        let free = match state.is_closed || state.is_over {
            true => 0,
            false => self.options.capacity.saturating_sub(state.spans.len()),
        };
        let before = state.spans.len();
        let dropped = spans.len().saturating_sub(free) as u64;
        state.spans.extend(spans.into_iter().take(free));
        state.counts.dropped += dropped;
        // The thread wakes by itself after the delay, and is woken only if a batch is full.
        if before < self.options.batch && state.spans.len() >= self.options.batch {
            drop(state);
            self.work.notify_one();
        }
    }

    /// Whether a span would be dropped now.
    pub(super) fn is_full(&self) -> bool {
        let state = self.state();
        state.is_closed || state.is_over || state.spans.len() >= self.options.capacity
    }

    /// Counts spans that were not even made.
    pub(super) fn drop_spans(&self, count: u64) {
        self.state().counts.dropped += count;
    }

    pub(super) fn counts(&self) -> SpanCounts {
        let state = self.state();
        SpanCounts { queued: state.spans.len() as u64, ..state.counts }
    }

    /// Waits until all spans of this moment are exported, or the time is over.
    pub(super) fn flush(&self, timeout: Duration) -> bool {
        let until = Instant::now() + timeout;
        let mut state = self.state();
        state.waiting += 1;
        self.work.notify_one();
        let is_done = loop {
            if state.spans.is_empty() && state.exporting == 0 {
                break !state.is_broken;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || state.is_over {
                break false;
            }
            state = self.done.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        };
        state.waiting -= 1;
        is_done
    }

    /// Lets the thread export what is left, and end.
    pub(super) fn close(&self) {
        self.state().is_closed = true;
        self.work.notify_one();
    }

    /// Waits until the thread has ended, or the time is over.
    pub(super) fn join(&self, timeout: Duration) -> bool {
        let until = Instant::now() + timeout;
        let mut state = self.state();
        while !state.is_over {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = self.done.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Exports until the queue is closed and empty.
    fn export_all(&self, exporter: &impl SpanExporter) {
        let (mut warned, mut failures) = (None::<Instant>, 0_u32);
        while let Some(batch) = self.next_batch() {
            let count = batch.len() as u64;
            let exported = futures_executor::block_on(exporter.export(batch));
            let mut state = self.state();
            state.exporting = 0;
            match exported {
                Ok(()) => state.counts.exported += count,
                Err(_) => state.counts.failed += count,
            }
            drop(state);
            self.done.notify_all();
            // A collector that is gone is asked less and less often.
            failures = if exported.is_ok() { 0 } else { failures.saturating_add(1) };
            if failures > 0 {
                self.pause(self.options.delay.saturating_mul(1 << failures.min(10)).min(LONGEST_PAUSE));
            }
            if let Err(error) = exported
                && warned.is_none_or(|at| at.elapsed() >= EVERY_WARNING)
            {
                warned = Some(Instant::now());
                tracing::warn!(%error, "{count} spans could not be exported");
            }
        }
        if let Err(error) = exporter.shutdown() {
            tracing::debug!(%error, "the exporter of spans did not shut down");
        }
    }

    /// Waits, unless the queue is closed or somebody waits for it.
    fn pause(&self, time: Duration) {
        let until = Instant::now() + time;
        let mut state = self.state();
        while !state.is_closed && state.waiting == 0 {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            state = self.work.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits for spans, and takes the next ones to export; `None` if the queue is closed and empty.
    fn next_batch(&self) -> Option<Vec<SpanData>> {
        let mut state = self.state();
        let mut until = Instant::now() + self.options.delay;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let is_due = left.is_zero() || state.is_closed || state.waiting > 0;
            if state.spans.len() >= self.options.batch || (is_due && !state.spans.is_empty()) {
                let count = state.spans.len().min(self.options.batch);
                state.exporting = count as u64;
                return Some(state.spans.drain(..count).collect());
            }
            if state.is_closed {
                return None;
            }
            if left.is_zero() {
                until = Instant::now() + self.options.delay;
            }
            let left = until.saturating_duration_since(Instant::now());
            state = self.work.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Notes that the thread has ended, also if the exporter panics.
struct Over<'q>(&'q SpanQueue);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        (state.is_over, state.is_broken) = (true, thread::panicking());
        state.counts.failed += std::mem::take(&mut state.exporting);
        state.counts.dropped += state.spans.len() as u64;
        state.spans = VecDeque::new();
        drop(state);
        self.0.done.notify_all();
    }
}

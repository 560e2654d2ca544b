//! Traces of runs, for OpenTelemetry.

mod queue;
mod run;
mod segments;

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use graph_engine::Clock;
use graph_engine::observer::{Event, Observer};
use graph_engine::record::SignedRecord;
use graph_model::name::RunId;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SpanExporter;

use queue::{QueueOptions, SpanQueue};
use run::{FinishedSpans, RunTrace, SpanOrigin};
use segments::{JournalStart, is_beginning};

/// Exports spans of runs: a trace for each tree of runs, with spans of its runs, segments, steps, visits, calls and attempts.
///
/// A clone shares the queue. Runs never wait for it: a span that finds the queue full is dropped and counted.
///
/// | span | parent | exported |
/// |---|---|---|
/// | run, named after its graph | the visit that called it, or none | when it ends. A run that is resumed after its end gets another one, with a link to the first |
/// | segment | its run | when the run ends or waits. A run that continues, in any process, gets another one, with a link to the one before |
/// | step | its segment | when its record is durable; without a store, when it was taken |
/// | visit, named after its node | its step | with its step. A visit that waited has a link to the span in which it began to wait. A visit that has no record because the run ended is in the segment, with `graph.uncommitted` |
/// | call, named after its tool, and attempt | its visit, its call | with the visit |
///
/// The ids of a run with a store depend on its first record and on the numbers in its journal, so each process that continues the run
/// knows those of the others, and no span is exported twice. A crash may lose the spans of its last moment. Spans have no values of the
/// state: names, numbers, and the texts of failures, which journals have without secrets.
///
/// ```
/// use graph_engine::Runtime;
/// use graph_telemetry::Traces;
/// use std::time::Duration;
///
/// // To the collector that `OTEL_EXPORTER_OTLP_ENDPOINT` names, by default one on this host.
/// let exporter = opentelemetry_otlp::SpanExporter::builder().with_http().build()?;
/// let traces = Traces::builder().export(exporter)?;
/// let runtime = Runtime::builder().observer(traces.clone()).build()?;
/// // Before the program ends:
/// traces.shutdown(Duration::from_secs(5));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Traces {
    inner: Arc<TracesInner>,
}

/// How spans are exported.
///
/// [`Traces`] has an example.
#[derive(Debug, Clone)]
pub struct TracesBuilder {
    options: QueueOptions,
    resource: Resource,
    clock: Option<Arc<dyn Clock>>,
}

/// How many spans there were.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpanCounts {
    /// Those that are to be exported.
    pub queued: u64,
    /// Those that the exporter took.
    pub exported: u64,
    /// Those that were dropped because the queue was full or closed, or a visit made too many calls.
    pub dropped: u64,
    /// Those that the exporter failed to export.
    pub failed: u64,
}

/// How many maps the runs in progress are kept in, so that threads rarely meet.
const SHARDS: usize = 16;

struct TracesInner {
    queue: Arc<SpanQueue>,
    clock: Option<Arc<dyn Clock>>,
    hasher: RandomState,
    shards: [Mutex<HashMap<RunId, RunTrace>>; SHARDS],
}

impl TracesBuilder {
    /// Sets the maximum number of spans that wait to be exported; 8,192 by default.
    #[must_use]
    pub fn queue(mut self, spans: usize) -> Self {
        self.options.capacity = spans.max(1);
        self.options.batch = self.options.batch.min(self.options.capacity);
        self
    }

    /// Sets the maximum number of spans that are exported at once; 512 by default.
    #[must_use]
    pub fn batch(mut self, spans: usize) -> Self {
        self.options.batch = spans.clamp(1, self.options.capacity);
        self
    }

    /// Sets how long a span waits for others before it is exported; a second by default.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.options.delay = delay.max(Duration::from_millis(1));
        self
    }

    /// Sets the attributes of the program, such as `service.name`; by default those of its environment.
    #[must_use]
    pub fn resource(mut self, resource: Resource) -> Self {
        self.resource = resource;
        self
    }

    /// Sets the clock of spans, for a runtime whose [clock](graph_engine::Builder::clock) is not the system's.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Starts a thread that exports spans. Within a tokio runtime, the exporter can use that runtime; an exporter that blocks its thread
    /// is fine too.
    ///
    /// # Errors
    ///
    /// If the system starts no thread.
    pub fn export(self, mut exporter: impl SpanExporter + 'static) -> io::Result<Traces> {
        let Self { options, resource, clock } = self;
        exporter.set_resource(&resource);
        let queue = SpanQueue::open(options, exporter)?;
        let inner = TracesInner { queue, clock, hasher: RandomState::new(), shards: Default::default() };
        Ok(Traces { inner: Arc::new(inner) })
    }
}

impl Traces {
    /// Returns the default options.
    pub fn builder() -> TracesBuilder {
        TracesBuilder {
            options: QueueOptions { capacity: 8192, batch: 512, delay: Duration::from_secs(1) },
            resource: Resource::builder().build(),
            clock: None,
        }
    }

    /// Returns how many spans there were.
    pub fn counts(&self) -> SpanCounts {
        self.inner.queue.counts()
    }

    /// Waits until all finished spans are exported, or the time is over. Returns whether they are. It blocks its thread.
    pub fn flush(&self, timeout: Duration) -> bool {
        self.inner.queue.flush(timeout)
    }

    /// Exports what is left, and ends the thread that exports; waits for that until the time is over. Returns whether all is done.
    /// Spans that come later are dropped. It blocks its thread.
    pub fn shutdown(&self, timeout: Duration) -> bool {
        self.inner.queue.close();
        self.inner.queue.join(timeout)
    }
}

fn lock<T>(shard: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic while it was held left a trace that lacks a span.
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for TracesInner {
    fn drop(&mut self) {
        self.queue.close();
    }
}

impl TracesInner {
    fn now(&self) -> SystemTime {
        self.clock.as_ref().map_or_else(SystemTime::now, |clock| clock.now())
    }

    fn shard(&self, run: &RunId) -> MutexGuard<'_, HashMap<RunId, RunTrace>> {
        let at = usize::try_from(self.hasher.hash_one(run) % SHARDS as u64).unwrap_or_default();
        lock(&self.shards[at])
    }

    /// Does something with a run that is known.
    fn with(&self, run: &RunId, change: impl FnOnce(&mut RunTrace)) {
        if let Some(trace) = self.shard(run).get_mut(run) {
            change(trace);
        }
    }

    /// Returns the place for spans that will be finished.
    fn room(&self) -> FinishedSpans {
        FinishedSpans::new(self.queue.is_full())
    }

    fn export(&self, finished: FinishedSpans) {
        let FinishedSpans { spans, dropped, .. } = finished;
        if !spans.is_empty() {
            self.queue.push(spans);
        }
        if dropped > 0 {
            self.queue.drop_spans(dropped);
        }
    }

    /// Returns the place in a trace of the visit that called a nested run, if the run around it is known.
    fn origin(&self, run: &RunId, step: u64) -> Option<SpanOrigin> {
        self.shard(run).get(run).map(|outer| outer.origin_of(step))
    }

    fn recorded(&self, run: &RunId, records: &[SignedRecord]) {
        if records.first().is_none_or(|first| first.seq > 0) {
            let now = self.now();
            // The lock of the runs is not held while spans are queued.
            let room = self.room();
            let finished = self.shard(run).get_mut(run).map(|trace| trace.recorded(records, now, room));
            return self.export(finished.unwrap_or_default());
        }
        if !is_beginning(records) {
            return;
        }
        let Some(first) = JournalStart::read(run, records) else { return };
        let origin = first.parent.as_ref().and_then(|parent| self.origin(&parent.run, parent.step));
        let (trace, finished) = RunTrace::of_journal(first, origin, records, self.room());
        self.shard(run).insert(run.clone(), trace);
        self.export(finished);
    }
}

impl Observer for Traces {
    fn observe(&self, event: &Event<'_>) {
        let inner = &*self.inner;
        match event {
            Event::Recorded { run, records, .. } => inner.recorded(run, records),
            Event::RunStarted { run, graph, parent, .. } => {
                let now = inner.now();
                let origin = parent.and_then(|parent| inner.origin(&parent.run, parent.step));
                let mut shard = inner.shard(run);
                if !shard.get_mut(*run).is_some_and(RunTrace::begins) {
                    shard.insert((*run).clone(), RunTrace::without_journal(run, graph.as_str(), origin, now));
                }
            }
            Event::StepStarted { run, step, node, kind, .. } => {
                let now = inner.now();
                inner.with(run, |trace| trace.visit_started(*step, node, *kind, now));
            }
            Event::CallStarted { call, .. } => {
                let now = inner.now();
                inner.with(call.run, |trace| trace.call_started(call, now));
            }
            Event::CallEnded { call, error, .. } => {
                let now = inner.now();
                inner.with(call.run, |trace| trace.call_ended(call, *error, now));
            }
            Event::StepCompleted { run, step, error: Some(_), .. } => {
                let now = inner.now();
                inner.with(run, |trace| trace.visit_failed(*step, now));
            }
            Event::StepTaken { run, visits, .. } if !visits.is_empty() => {
                let (now, room) = (inner.now(), inner.room());
                let finished = inner.shard(run).get_mut(*run).map(|trace| trace.taken(visits, now, room));
                inner.export(finished.unwrap_or_default());
            }
            Event::RunEnded { run, status, steps, error, end, .. } => {
                let now = inner.now();
                let Some(trace) = inner.shard(run).remove(*run) else { return };
                inner.export(trace.ended(*status, *steps, *error, *end, now, inner.room()));
            }
            // It is still known if its task was aborted: as after a crash, the spans that its journal does not have are lost.
            Event::RunLeft { run, .. } => drop(inner.shard(run).remove(*run)),
            _ => {}
        }
    }

    fn wants_visits(&self) -> bool {
        true
    }
}

impl fmt::Debug for Traces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runs: usize = self.inner.shards.iter().map(|shard| lock(shard).len()).sum();
        f.debug_struct("Traces").field("runs", &runs).field("counts", &self.counts()).finish_non_exhaustive()
    }
}

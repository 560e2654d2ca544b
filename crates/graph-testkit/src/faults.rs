//! Stores with faults, as one process sees them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use graph_engine::cache::Digest;
use graph_engine::record::SignedRecord;
use graph_engine::store::{
    Claim, Claimed, Inbox, Lease, Page, Received, RunFilter, RunPage, RunSummary, ScheduleChange, ScheduleMark,
    SealSignal, Signal, StoreError, StoreFuture, WaitChanges, WaitFilter, WaitPage,
};
use graph_engine::{MemoryStore, RunId, Status, Store};
use tokio::sync::Notify;

/// A fault of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreFault {
    /// The write takes some time, by tokio's clock.
    Slow(Duration),
    /// The process gets an error.
    Fails {
        /// Whether the write is durable all the same.
        written: bool,
    },
    /// The process dies: this write and everything that it asks of the store later fail.
    Dies {
        /// Whether the write is durable.
        written: bool,
    },
    /// The write does not return until the process is [killed](FaultyStore::kill).
    Hangs {
        /// Whether the write is durable.
        written: bool,
    },
}

/// A write that a process asks of a store.
#[derive(Debug)]
#[non_exhaustive]
pub struct StoreWrite<'w> {
    /// Its number among the writes of the process, from 1.
    pub number: u64,
    /// The run; none if it changes a schedule alone.
    pub run: Option<&'w RunId>,
    /// Whether it creates the run.
    pub creates: bool,
    /// The records; empty if it writes something else.
    pub records: &'w [SignedRecord],
    /// The status of the run after it, if it sets one.
    pub status: Option<Status>,
    /// The changes to the open waits of the run, if it makes some.
    pub waits: Option<&'w WaitChanges>,
}

impl<'w> StoreWrite<'w> {
    fn of(run: Option<&'w RunId>, records: &'w [SignedRecord], status: Option<Status>) -> Self {
        Self { number: 0, run, creates: false, records, status, waits: None }
    }
}

type FaultPlan = dyn Fn(&StoreWrite<'_>) -> Option<StoreFault> + Send + Sync;

/// A store as one process sees it, with faults at some of its writes. Clones are the same process.
///
/// Writes are the creation of runs, appends, cancellations and changes of schedules. Each of them lets other tasks go on first, as one
/// to a disk does.
///
/// ```
/// use std::time::Duration;
///
/// use graph_engine::MemoryStore;
/// use graph_testkit::{FaultyStore, StoreFault};
///
/// let disk = MemoryStore::new();
/// // The third write is durable, and the process does not learn of it.
/// let process = FaultyStore::dies_after(disk.clone(), 3);
/// assert!(!process.is_dead());
/// // Every second write fails.
/// let flaky = FaultyStore::new(disk.clone(), |write| {
///     (write.number % 2 == 0).then_some(StoreFault::Fails { written: false })
/// });
/// // The disk is slow.
/// let slow = FaultyStore::new(disk, |_| Some(StoreFault::Slow(Duration::from_millis(300))));
/// ```
pub struct FaultyStore<S = MemoryStore> {
    disk: S,
    plan: Arc<FaultPlan>,
    process: Arc<ProcessState>,
}

#[derive(Debug, Default)]
struct ProcessState {
    writes: AtomicU64,
    faults: AtomicU64,
    is_dead: AtomicBool,
    has_failed: AtomicBool,
    lost: Notify,
    killed: Notify,
}

impl<S: Store> FaultyStore<S> {
    /// The store of a process whose writes go wrong as a function says. It is called when a write begins.
    pub fn new(disk: S, plan: impl Fn(&StoreWrite<'_>) -> Option<StoreFault> + Send + Sync + 'static) -> Self {
        Self { disk, plan: Arc::new(plan), process: Arc::default() }
    }

    /// The store of a process without faults.
    pub fn sound(disk: S) -> Self {
        Self::new(disk, |_| None)
    }

    /// The store of a process that dies after the write with this number, from 1. That write is durable, and the process does not learn
    /// of it.
    pub fn dies_after(disk: S, number: u64) -> Self {
        Self::new(disk, move |write| (write.number == number).then_some(StoreFault::Dies { written: true }))
    }

    /// The store of a process that dies in place of the write with this number, from 1.
    pub fn dies_before(disk: S, number: u64) -> Self {
        Self::new(disk, move |write| (write.number == number).then_some(StoreFault::Dies { written: false }))
    }

    /// Returns how many writes began.
    pub fn writes(&self) -> u64 {
        self.process.writes.load(Ordering::SeqCst)
    }

    /// Returns how many writes had a fault.
    pub fn faults(&self) -> u64 {
        self.process.faults.load(Ordering::SeqCst)
    }

    /// Whether the process is dead.
    pub fn is_dead(&self) -> bool {
        self.process.is_dead.load(Ordering::SeqCst)
    }

    /// Kills the process: writes that hang, and everything that it asks of the store later, fail.
    pub fn kill(&self) {
        self.process.is_dead.store(true, Ordering::SeqCst);
        self.process.killed.notify_waiters();
    }

    /// Whether a write has failed, hung, or was the last of the process.
    pub fn has_failed(&self) -> bool {
        self.process.has_failed.load(Ordering::SeqCst)
    }

    /// Waits until the process dies, or a write hangs. One task may wait for it.
    pub async fn lost(&self) {
        self.process.lost.notified().await;
    }

    async fn alive<T>(&self, work: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        if self.is_dead() { Err(StoreError::Closed) } else { work.await }
    }

    /// Does a write, with the fault that the plan has for it.
    fn write<'a, T: Send + 'a>(
        &'a self,
        asked: StoreWrite<'_>,
        write: impl Future<Output = Result<T, StoreError>> + Send + 'a,
    ) -> StoreFuture<'a, T> {
        let process = &*self.process;
        if self.is_dead() {
            return Box::pin(async { Err(StoreError::Closed) });
        }
        let number = process.writes.fetch_add(1, Ordering::SeqCst) + 1;
        let fault = (self.plan)(&StoreWrite { number, ..asked });
        process.faults.fetch_add(u64::from(fault.is_some()), Ordering::SeqCst);
        Box::pin(async move {
            tokio::task::yield_now().await;
            let written = match fault {
                None => return self.alive(write).await,
                Some(StoreFault::Slow(time)) => {
                    tokio::time::sleep(time).await;
                    return self.alive(write).await;
                }
                Some(StoreFault::Fails { written } | StoreFault::Dies { written } | StoreFault::Hangs { written }) => {
                    written
                }
            };
            process.has_failed.store(true, Ordering::SeqCst);
            if matches!(fault, Some(StoreFault::Dies { .. })) {
                process.is_dead.store(true, Ordering::SeqCst);
            }
            if written {
                write.await?;
            }
            match fault {
                Some(StoreFault::Fails { .. }) => return Err(StoreError::failed("the power went out")),
                Some(StoreFault::Hangs { .. }) => {
                    process.lost.notify_one();
                    let killed = process.killed.notified();
                    if !self.is_dead() {
                        killed.await;
                    }
                }
                _ => process.lost.notify_one(),
            }
            Err(StoreError::Closed)
        })
    }
}

impl<S: Clone> Clone for FaultyStore<S> {
    fn clone(&self) -> Self {
        Self { disk: self.disk.clone(), plan: Arc::clone(&self.plan), process: Arc::clone(&self.process) }
    }
}

impl<S: fmt::Debug> fmt::Debug for FaultyStore<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyStore").field("disk", &self.disk).field("process", &self.process).finish_non_exhaustive()
    }
}

impl<S: Store> Store for FaultyStore<S> {
    fn create<'a>(&'a self, run: &'a RunId, graph: &'a str, records: Vec<SignedRecord>) -> StoreFuture<'a, Lease> {
        let seen = records.clone();
        let write = self.disk.create(run, graph, records);
        self.write(StoreWrite { creates: true, ..StoreWrite::of(Some(run), &seen, Some(Status::Running)) }, write)
    }

    fn append<'a>(
        &'a self,
        lease: &'a Lease,
        expected: u64,
        records: Vec<SignedRecord>,
        status: Status,
    ) -> StoreFuture<'a, ()> {
        let seen = records.clone();
        let write = self.disk.append(lease, expected, records, status);
        self.write(StoreWrite::of(Some(lease.run()), &seen, Some(status)), write)
    }

    fn append_waiting<'a>(
        &'a self,
        lease: &'a Lease,
        expected: u64,
        records: Vec<SignedRecord>,
        status: Status,
        waits: WaitChanges,
    ) -> StoreFuture<'a, ()> {
        let seen = (records.clone(), waits.clone());
        let write = self.disk.append_waiting(lease, expected, records, status, waits);
        self.write(
            StoreWrite { waits: Some(&seen.1), ..StoreWrite::of(Some(lease.run()), &seen.0, Some(status)) },
            write,
        )
    }

    fn now(&self) -> StoreFuture<'_, i64> {
        Box::pin(self.alive(self.disk.now()))
    }

    fn claim<'a>(&'a self, claim: &'a Claim) -> StoreFuture<'a, Vec<Claimed>> {
        Box::pin(self.alive(self.disk.claim(claim)))
    }

    fn next_wake<'a>(&'a self, graphs: &'a [(String, Digest)]) -> StoreFuture<'a, Option<i64>> {
        Box::pin(self.alive(self.disk.next_wake(graphs)))
    }

    fn news(&self, seen: u64) -> StoreFuture<'_, u64> {
        Box::pin(self.alive(self.disk.news(seen)))
    }

    fn postpone(&self, lease: Lease, until: i64) -> StoreFuture<'_, ()> {
        Box::pin(self.alive(self.disk.postpone(lease, until)))
    }

    fn receive<'a>(&'a self, run: &'a RunId, signal: Signal, seal: SealSignal) -> StoreFuture<'a, Received> {
        Box::pin(self.alive(self.disk.receive(run, signal, seal)))
    }

    fn inbox<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, Inbox> {
        Box::pin(self.alive(self.disk.inbox(run)))
    }

    fn open_waits<'a>(&'a self, filter: &'a WaitFilter, page: &'a Page) -> StoreFuture<'a, WaitPage> {
        Box::pin(self.alive(self.disk.open_waits(filter, page)))
    }

    fn schedule_mark<'a>(&'a self, schedule: &'a str) -> StoreFuture<'a, Option<ScheduleMark>> {
        Box::pin(self.alive(self.disk.schedule_mark(schedule)))
    }

    fn change_schedule<'a>(&'a self, change: &'a ScheduleChange) -> StoreFuture<'a, ()> {
        self.write(StoreWrite::of(None, &[], None), self.disk.change_schedule(change))
    }

    fn create_at_tick<'a>(
        &'a self,
        run: &'a RunId,
        graph: &'a str,
        records: Vec<SignedRecord>,
        change: &'a ScheduleChange,
    ) -> StoreFuture<'a, Lease> {
        let seen = records.clone();
        let write = self.disk.create_at_tick(run, graph, records, change);
        self.write(StoreWrite { creates: true, ..StoreWrite::of(Some(run), &seen, Some(Status::Running)) }, write)
    }

    fn load<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, Vec<SignedRecord>> {
        Box::pin(self.alive(self.disk.load(run)))
    }

    fn load_from<'a>(&'a self, run: &'a RunId, from: u64) -> StoreFuture<'a, Vec<SignedRecord>> {
        Box::pin(self.alive(self.disk.load_from(run, from)))
    }

    fn lease<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, Lease> {
        Box::pin(self.alive(self.disk.lease(run)))
    }

    fn lease_ignoring_cancel<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, Lease> {
        Box::pin(self.alive(self.disk.lease_ignoring_cancel(run)))
    }

    fn runs<'a>(&'a self, filter: &'a RunFilter, page: &'a Page) -> StoreFuture<'a, RunPage> {
        Box::pin(self.alive(self.disk.runs(filter, page)))
    }

    fn list(&self) -> StoreFuture<'_, Vec<RunSummary>> {
        Box::pin(self.alive(self.disk.list()))
    }

    fn find<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, RunSummary> {
        Box::pin(self.alive(self.disk.find(run)))
    }

    fn cancel<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, ()> {
        self.write(StoreWrite::of(Some(run), &[], None), self.disk.cancel(run))
    }

    fn cancel_at<'a>(&'a self, run: &'a RunId, at: i64) -> StoreFuture<'a, ()> {
        self.write(StoreWrite::of(Some(run), &[], None), self.disk.cancel_at(run, at))
    }

    fn kill<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, ()> {
        self.write(StoreWrite::of(Some(run), &[], None), self.disk.kill(run))
    }

    fn remove<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, ()> {
        Box::pin(self.alive(self.disk.remove(run)))
    }
}

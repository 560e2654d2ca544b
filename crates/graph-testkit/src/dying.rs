//! A store as a process sees it that dies after one of its commits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use graph_engine::record::SignedRecord;
use graph_engine::store::{
    Inbox, Lease, Page, Received, RunFilter, RunPage, RunSummary, SealSignal, Signal, StoreError, StoreFuture,
    WaitChanges, WaitFilter, WaitPage,
};
use graph_engine::{MemoryStore, RunId, Status, Store};

/// A store in memory as one process sees it. When the process is dead, nothing that it does reaches the store, which lives on.
///
/// ```
/// use graph_engine::MemoryStore;
/// use graph_testkit::DyingStore;
///
/// let disk = MemoryStore::new();
/// // The third commit is durable, and the process does not learn of it.
/// let process = DyingStore::after(disk.clone(), 3);
/// assert!(!process.is_dead());
/// ```
#[derive(Debug, Clone)]
pub struct DyingStore {
    disk: MemoryStore,
    commits: Arc<AtomicU64>,
    last: u64,
    is_dead: Arc<AtomicBool>,
}

impl DyingStore {
    /// The store of a process that dies after the commit with this number, from 1; with 0, it does not die. That commit is durable, and
    /// the process does not learn of it.
    pub fn after(disk: MemoryStore, last: u64) -> Self {
        Self { disk, commits: Arc::default(), last, is_dead: Arc::default() }
    }

    /// Returns how many commits were made.
    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    /// Whether the process is dead.
    pub fn is_dead(&self) -> bool {
        self.is_dead.load(Ordering::Relaxed)
    }

    fn alive(&self) -> Result<(), StoreError> {
        if self.is_dead() { Err(StoreError::Closed) } else { Ok(()) }
    }

    fn committed<T>(&self, result: T) -> Result<T, StoreError> {
        if self.commits.fetch_add(1, Ordering::Relaxed) + 1 == self.last {
            self.is_dead.store(true, Ordering::Relaxed);
        }
        self.alive().map(|()| result)
    }
}

impl Store for DyingStore {
    fn create<'a>(&'a self, run: &'a RunId, graph: &'a str, records: Vec<SignedRecord>) -> StoreFuture<'a, Lease> {
        Box::pin(async move {
            self.alive()?;
            let lease = self.disk.create(run, graph, records).await?;
            self.committed(lease)
        })
    }

    fn append<'a>(
        &'a self,
        lease: &'a Lease,
        expected: u64,
        records: Vec<SignedRecord>,
        status: Status,
    ) -> StoreFuture<'a, ()> {
        self.append_waiting(lease, expected, records, status, WaitChanges::default())
    }

    fn append_waiting<'a>(
        &'a self,
        lease: &'a Lease,
        expected: u64,
        records: Vec<SignedRecord>,
        status: Status,
        waits: WaitChanges,
    ) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            self.alive()?;
            self.disk.append_waiting(lease, expected, records, status, waits).await?;
            self.committed(())
        })
    }

    fn now(&self) -> StoreFuture<'_, i64> {
        self.disk.now()
    }

    fn receive<'a>(&'a self, run: &'a RunId, signal: Signal, seal: SealSignal) -> StoreFuture<'a, Received> {
        Box::pin(async move {
            self.alive()?;
            self.disk.receive(run, signal, seal).await
        })
    }

    fn inbox<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, Inbox> {
        Box::pin(async move {
            self.alive()?;
            self.disk.inbox(run).await
        })
    }

    fn open_waits<'a>(&'a self, filter: &'a WaitFilter, page: &'a Page) -> StoreFuture<'a, WaitPage> {
        self.disk.open_waits(filter, page)
    }

    fn load<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, Vec<SignedRecord>> {
        Box::pin(async move {
            self.alive()?;
            self.disk.load(run).await
        })
    }

    fn lease<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, Lease> {
        Box::pin(async move {
            self.alive()?;
            self.disk.lease(run).await
        })
    }

    fn runs<'a>(&'a self, filter: &'a RunFilter, page: &'a Page) -> StoreFuture<'a, RunPage> {
        self.disk.runs(filter, page)
    }

    fn find<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, RunSummary> {
        self.disk.find(run)
    }
}

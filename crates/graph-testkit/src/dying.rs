//! A store as a process sees it that dies at one of its commits.

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
    /// The number of the commit at which the process dies; 0 if it does not die.
    last: u64,
    /// Whether that commit is durable.
    is_durable: bool,
    is_dead: Arc<AtomicBool>,
}

impl DyingStore {
    /// The store of a process that dies after the commit with this number, from 1; with 0, it does not die. That commit is durable, and
    /// the process does not learn of it.
    pub fn after(disk: MemoryStore, last: u64) -> Self {
        Self { disk, commits: Arc::default(), last, is_durable: true, is_dead: Arc::default() }
    }

    /// The store of a process that dies in place of the commit with this number, from 1.
    pub fn before(disk: MemoryStore, last: u64) -> Self {
        Self { is_durable: false, ..Self::after(disk, last) }
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

    async fn commit<T>(&self, write: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        self.alive()?;
        if !self.is_durable && self.commits() + 1 == self.last {
            self.is_dead.store(true, Ordering::Relaxed);
            return Err(StoreError::Closed);
        }
        let result = write.await?;
        if self.commits.fetch_add(1, Ordering::Relaxed) + 1 == self.last {
            self.is_dead.store(true, Ordering::Relaxed);
        }
        self.alive().map(|()| result)
    }

    async fn alive_for<T>(&self, work: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        self.alive()?;
        work.await
    }
}

impl Store for DyingStore {
    fn create<'a>(&'a self, run: &'a RunId, graph: &'a str, records: Vec<SignedRecord>) -> StoreFuture<'a, Lease> {
        Box::pin(self.commit(self.disk.create(run, graph, records)))
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
        Box::pin(self.commit(self.disk.append_waiting(lease, expected, records, status, waits)))
    }

    fn now(&self) -> StoreFuture<'_, i64> {
        self.disk.now()
    }

    fn receive<'a>(&'a self, run: &'a RunId, signal: Signal, seal: SealSignal) -> StoreFuture<'a, Received> {
        Box::pin(self.alive_for(self.disk.receive(run, signal, seal)))
    }

    fn inbox<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, Inbox> {
        Box::pin(self.alive_for(self.disk.inbox(run)))
    }

    fn open_waits<'a>(&'a self, filter: &'a WaitFilter, page: &'a Page) -> StoreFuture<'a, WaitPage> {
        self.disk.open_waits(filter, page)
    }

    fn load<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, Vec<SignedRecord>> {
        Box::pin(self.alive_for(self.disk.load(run)))
    }

    fn lease<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, Lease> {
        Box::pin(self.alive_for(self.disk.lease(run)))
    }

    fn runs<'a>(&'a self, filter: &'a RunFilter, page: &'a Page) -> StoreFuture<'a, RunPage> {
        self.disk.runs(filter, page)
    }

    fn find<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, RunSummary> {
        self.disk.find(run)
    }
}

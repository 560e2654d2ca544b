//! A store that fails after a commit, as if the process died there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use graph_runtime::record::SignedRecord;
use graph_runtime::store::{Inbox, Lease, Page, RunFilter, RunPage, RunSummary, StoreError, StoreFuture, WaitChanges};
use graph_runtime::{MemoryStore, RunId, Status, Store};

/// The commits of a case, and the one after which its process dies.
#[derive(Debug, Default)]
pub(crate) struct Commits {
    made: AtomicU64,
    /// The number of the last commit of the first process; 0 if it does not die.
    last: u64,
}

impl Commits {
    /// The process dies after the commit with that number, from 1; with 0, it does not die.
    pub(crate) fn until(last: u64) -> Self {
        Self { made: AtomicU64::new(0), last }
    }

    /// Returns how many commits were made.
    pub(crate) fn made(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }
}

/// A store in memory as one process sees it. When the process is dead, nothing that it does reaches the store.
#[derive(Debug, Clone)]
pub(crate) struct ProcessStore {
    store: MemoryStore,
    commits: Arc<Commits>,
    is_dead: Arc<AtomicBool>,
}

impl ProcessStore {
    /// The store of a process that begins.
    pub(crate) fn new(store: MemoryStore, commits: Arc<Commits>) -> Self {
        Self { store, commits, is_dead: Arc::default() }
    }

    /// Whether the process is dead.
    pub(crate) fn is_dead(&self) -> bool {
        self.is_dead.load(Ordering::Relaxed)
    }

    fn alive(&self) -> Result<(), StoreError> {
        if self.is_dead() { Err(StoreError::Closed) } else { Ok(()) }
    }

    /// Counts a commit. The process does not learn of the one after which it dies.
    fn committed<T>(&self, result: T) -> Result<T, StoreError> {
        if self.commits.made.fetch_add(1, Ordering::Relaxed) + 1 == self.commits.last {
            self.is_dead.store(true, Ordering::Relaxed);
        }
        self.alive().map(|()| result)
    }
}

impl Store for ProcessStore {
    fn create<'a>(&'a self, run: &'a RunId, graph: &'a str, records: Vec<SignedRecord>) -> StoreFuture<'a, Lease> {
        Box::pin(async move {
            self.alive()?;
            let lease = self.store.create(run, graph, records).await?;
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
        Box::pin(async move {
            self.alive()?;
            self.store.append(lease, expected, records, status).await?;
            self.committed(())
        })
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
            self.store.append_waiting(lease, expected, records, status, waits).await?;
            self.committed(())
        })
    }

    fn now(&self) -> StoreFuture<'_, i64> {
        self.store.now()
    }

    fn inbox<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, Inbox> {
        Box::pin(async move {
            self.alive()?;
            self.store.inbox(run).await
        })
    }

    fn load<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, Vec<SignedRecord>> {
        Box::pin(async move {
            self.alive()?;
            self.store.load(run).await
        })
    }

    fn lease<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, Lease> {
        Box::pin(async move {
            self.alive()?;
            self.store.lease(run).await
        })
    }

    fn runs<'a>(&'a self, filter: &'a RunFilter, page: &'a Page) -> StoreFuture<'a, RunPage> {
        self.store.runs(filter, page)
    }

    fn find<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, RunSummary> {
        self.store.find(run)
    }
}

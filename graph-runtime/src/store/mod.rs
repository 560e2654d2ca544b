//! Stores: where the journals of runs are kept.

pub mod conformance;
mod memory;
#[cfg(feature = "sqlite")]
mod sqlite;

use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;

use graph_model::name::RunId;

pub use memory::MemoryStore;
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteStore;

use crate::record::{Sealed, Status};

/// What a store's methods return: a future that any task may wait for.
pub type Storing<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// A store of journals.
///
/// A store never looks into a record. What it promises: a record that was appended is there for good, whole and in order,
/// and only the holder of a run's lease appends to it. [`conformance::suite`] is that promise as a test.
pub trait Store: Send + Sync + fmt::Debug + 'static {
    /// Begins a journal with its first records, and leases the run to the caller.
    ///
    /// When this returns `Ok`, a restarted process sees the records; on `Err` it sees all or none.
    /// [`StoreError::Exists`] if there is such a run.
    fn create<'a>(&'a self, run: &'a RunId, graph: &'a str, records: Vec<Sealed>) -> Storing<'a, Lease>;

    /// Appends `records` to the run's journal and waits until they are durable.
    ///
    /// When this returns `Ok`, a restarted process sees all of them; on `Err` it sees all or none. `expected` is the number
    /// of records that the caller knows: another writer's record in between is [`StoreError::Conflict`]. A caller whose
    /// lease was taken over gets [`StoreError::LeaseLost`]. The [token](Sealed::end) of the record that was the last one is
    /// forgotten in the same write, and that of the new last one kept.
    fn append<'a>(&'a self, lease: &'a Lease, expected: u64, records: Vec<Sealed>, status: Status) -> Storing<'a, ()>;

    /// Returns the run's journal, all of it and in order.
    fn load<'a>(&'a self, run: &'a RunId) -> Storing<'a, Vec<Sealed>>;

    /// Returns the records of the run's journal from number `from` on, in order, the last one with its [token](Sealed::end);
    /// none where there are no more than `from`.
    ///
    /// A store that can find a record by its number has a way of its own: this one reads the whole journal.
    fn load_from<'a>(&'a self, run: &'a RunId, from: u64) -> Storing<'a, Vec<Sealed>> {
        Box::pin(async move {
            let mut records = self.load(run).await?;
            records.drain(..records.partition_point(|record| record.seq < from));
            Ok(records)
        })
    }

    /// Leases a run, so that nobody else appends to it.
    ///
    /// [`StoreError::Leased`] if another holder is alive. A holder that is gone loses its lease: what it may still send is
    /// refused.
    fn lease<'a>(&'a self, run: &'a RunId) -> Storing<'a, Lease>;

    /// Returns all runs, the newest first.
    fn list(&self) -> Storing<'_, Vec<RunSummary>>;
}

/// What a list of runs shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunSummary {
    /// The run.
    pub run: RunId,
    /// The graph's id.
    pub graph: String,
    /// How it stands.
    pub status: Status,
    /// How many records its journal has.
    pub records: u64,
}

/// The right to append to a run. Dropping it gives it back.
pub struct Lease {
    run: RunId,
    token: u64,
    release: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl Lease {
    /// A lease with that fencing token: a store gives a higher one each time a run is leased, and refuses what comes with a
    /// lower one. `release` is called when the lease is dropped.
    pub fn new(run: RunId, token: u64, release: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self { run, token, release: Some(Box::new(release)) }
    }

    /// Returns the run.
    pub fn run(&self) -> &RunId {
        &self.run
    }

    /// Returns the fencing token.
    pub fn token(&self) -> u64 {
        self.token
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(release) = self.release.take() {
            release();
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lease({}, {})", self.run, self.token)
    }
}

/// Why a store did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// There is no such run.
    #[error("there is no run `{0}`")]
    NotFound(RunId),
    /// There is such a run already.
    #[error("there is a run `{0}` already")]
    Exists(RunId),
    /// The journal has other records than the caller knows.
    #[error("the journal of run `{run}` has {found} records, not {expected}: somebody else wrote to it")]
    Conflict {
        /// The run.
        run: RunId,
        /// What the caller knows.
        expected: u64,
        /// What is there.
        found: u64,
    },
    /// Somebody else is at work on the run.
    #[error("run `{run}` is at work elsewhere ({holder}); wait until it ends, or stop it there")]
    Leased {
        /// The run.
        run: RunId,
        /// Who holds it.
        holder: String,
    },
    /// Somebody else took the run over.
    #[error("run `{0}` was taken over by somebody else")]
    LeaseLost(RunId),
    /// There is no room left.
    #[error("there is no space left on the disk for {}; free some and resume the run", .0.display())]
    Full(PathBuf),
    /// The file cannot be written.
    #[error("{} cannot be written: it, its directory or its disk is read-only", .0.display())]
    ReadOnly(PathBuf),
    /// Somebody else keeps the file locked.
    #[error("{} is locked by another program and stayed so", .0.display())]
    Busy(PathBuf),
    /// The file is not what the store wrote.
    #[error("{} is not a journal of this program, or is damaged: {reason}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The file was written by a newer version.
    #[error("{} has form {found}, and this program knows forms up to {known}: use a newer version", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// The form that it has.
        found: i64,
        /// The newest form that is known.
        known: i64,
    },
    /// The file cannot be opened.
    #[error("cannot open {}: {reason}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// Anything else.
    #[error("the store failed: {0}")]
    Failed(String),
    /// The store was closed.
    #[error("the store was closed")]
    Closed,
}

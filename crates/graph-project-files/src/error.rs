//! What can go wrong with the files of runs.

use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use graph_engine::record::JournalError;
use graph_engine::store::StoreError;
use graph_model::digest::Digest;
use graph_model::name::RunId;
use graph_signing::SignatureError;

use crate::transcript::TranscriptError;

/// What is wrong with a project's files.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FilesError {
    /// A file or directory cannot be reached.
    #[error("cannot {verb} {}", path.display())]
    Io {
        /// What was tried.
        verb: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file is not there.
    #[error("there is no {}", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// An object's bytes do not have the hash that it is called by.
    #[error("{} was altered: its SHA-256 is {found}", path.display())]
    Altered {
        /// The file.
        path: PathBuf,
        /// The hash of what is there.
        found: Digest,
    },
    /// A file does not hold what it must.
    #[error("{} cannot be read: {reason}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The state item is not what a trusted key signed.
    #[error("the state item does not hold")]
    Item(#[source] SignatureError),
    /// The item is no state item.
    #[error("it is no state item: {reason}")]
    NoStateItem {
        /// Why.
        reason: String,
    },
    /// The state item is another run's.
    #[error("{} is the state item of run `{found}`", path.display())]
    AnotherRun {
        /// The file.
        path: PathBuf,
        /// The run that it names.
        found: RunId,
    },
    /// The transcript is not what a trusted key signed.
    #[error("the transcript does not hold")]
    Transcript(#[source] TranscriptError),
    /// The journal is not what the engine wrote.
    #[error("the run's journal does not hold")]
    Journal(#[source] JournalError),
    /// The run is another graph's.
    #[error("run `{run}` is of {found}, not of {expected}")]
    AnotherGraph {
        /// The run.
        run: RunId,
        /// The graph that was given.
        expected: String,
        /// The graph that the journal names.
        found: String,
    },
    /// Records came of a run whose beginning was not seen.
    #[error("run `{0}` was seen from its middle on; rebuild its files")]
    Middle(RunId),
    /// The registry cannot be opened, read or written.
    #[cfg(feature = "sqlite")]
    #[error("the registry {} fails", path.display())]
    Registry {
        /// The file.
        path: PathBuf,
        /// What SQLite said.
        source: rusqlite::Error,
    },
    /// The store failed.
    #[error("the run's journal cannot be loaded")]
    Store(#[source] StoreError),
}

/// Locks what no panic leaves half done.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! The errors of the files of runs.

use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use graph_engine::record::JournalError;
use graph_engine::store::StoreError;
use graph_model::digest::Digest;
use graph_model::name::RunId;
use graph_signing::SignatureError;

use crate::transcript::TranscriptError;

/// An error of a project's files.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FilesError {
    /// A file or directory cannot be reached.
    #[error("cannot {verb} {}", path.display())]
    Io {
        /// The operation that failed.
        verb: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A file is missing.
    #[error("there is no {}", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// An object's bytes do not have the hash in its name.
    #[error("{} was altered: its SHA-256 is {found}", path.display())]
    Altered {
        /// The file.
        path: PathBuf,
        /// The hash of the bytes that were found.
        found: Digest,
    },
    /// A file does not have the content that it must have.
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
    /// The item is not a state item.
    #[error("it is not a state item: {reason}")]
    NoStateItem {
        /// Why.
        reason: String,
    },
    /// The state item belongs to another run.
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
    /// The run belongs to another graph.
    #[error("run `{run}` is of {found}, not of {expected}")]
    AnotherGraph {
        /// The run.
        run: RunId,
        /// The graph that was given.
        expected: String,
        /// The graph that the journal names.
        found: String,
    },
    /// A grant in a run's records is no pattern of capabilities.
    #[error("the grants of run `{run}` cannot be read: {reason}")]
    Grants {
        /// The run.
        run: RunId,
        /// Why.
        reason: String,
    },
    /// Records arrived for a run whose beginning was not seen.
    #[error("run `{0}` was seen from its middle on; rebuild its files")]
    Middle(RunId),
    /// The registry cannot be opened, read or written.
    #[cfg(feature = "sqlite")]
    #[error("the registry {} fails", path.display())]
    Registry {
        /// The file.
        path: PathBuf,
        /// The error of SQLite.
        source: rusqlite::Error,
    },
    /// The store failed.
    #[error("the run's journal cannot be loaded")]
    Store(#[source] StoreError),
}

/// Locks a mutex whose value no panic leaves half changed.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

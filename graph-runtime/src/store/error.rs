//! What can go wrong in a store.

use std::path::PathBuf;

use graph_model::name::RunId;

use crate::record::Status;

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
    /// The run has ended.
    #[error("Run already in terminal state: {} (run `{run}`)", status.name())]
    Ended {
        /// The run.
        run: RunId,
        /// How it ended.
        status: Status,
    },
    /// The cursor of a page is no place in the store.
    #[error("`{0}` is no place in the list of runs: begin with its first page")]
    BadCursor(String),
    /// The run has as many records as the store can keep of one.
    #[error("the journal of run `{0}` is full: a store keeps at most 4294967295 records of a run")]
    TooLong(RunId),
    /// There is no room left.
    #[error("there is no space left on the disk for {}; free some and try again", .0.display())]
    Full(PathBuf),
    /// The file cannot be written.
    #[error("{} cannot be written: it, its directory or its disk is read-only", .0.display())]
    ReadOnly(PathBuf),
    /// Somebody else keeps the file locked.
    #[error("{} is locked by another program and stayed so; nothing was written, and it can be tried again", .0.display())]
    Busy(PathBuf),
    /// The disk failed to read or write.
    #[error("reading or writing {} failed: {reason}; see to the disk, then try again", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// How.
        reason: String,
    },
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
    /// The runtime has no store.
    #[error("a runtime without a store keeps no runs")]
    None,
    /// The store was not made for this.
    #[error("this store cannot {0}")]
    Unsupported(&'static str),
    /// Anything else.
    #[error("the store failed: {0}")]
    Failed(String),
    /// The store was closed.
    #[error("the store was closed")]
    Closed,
}

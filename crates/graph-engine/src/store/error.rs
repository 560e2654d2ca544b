//! Errors of stores.

use std::error::Error;
use std::fmt::Display;

use graph_model::name::RunId;

use crate::kind::{ErrorKind, HasKind};
use crate::status::Status;
use crate::store::signals::Inbox;

/// The underlying error of a store: an [`io::Error`](std::io::Error), or an error of a database's driver.
pub type Cause = Box<dyn Error + Send + Sync>;

/// Why a store did not do what it was asked.
///
/// The kinds are those of any store. Each message says what happened, where, and how to fix it. It is complete by itself,
/// and repeats no more of the [source](Error::source) than a reader needs. The functions of the same names make the kinds
/// about the place where a store keeps its runs; `place` is the name by which a person finds it: the path of a file, the
/// address of a server.
///
/// ```
/// # use graph_engine as graph_runtime;
/// use std::error::Error;
/// use std::io;
///
/// use graph_runtime::store::StoreError;
///
/// let torn = io::Error::new(io::ErrorKind::UnexpectedEof, "the line has no end");
/// let error = StoreError::unreadable("runs/a.jsonl", format!("{torn}; restore it from a copy")).with_source(torn);
/// assert_eq!(
///     error.to_string(),
///     "runs/a.jsonl is not a journal of this program, or is damaged: the line has no end; restore it from a copy",
/// );
/// assert!(error.source().is_some_and(|cause| cause.is::<io::Error>()));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// There is no such run.
    #[error("there is no run `{0}`")]
    NotFound(RunId),
    /// There is such a run already.
    #[error("there is a run `{0}` already: resume it, or name another id")]
    Exists(RunId),
    /// The journal has other records than the caller knows.
    #[error("the journal of run `{run}` has {found} records, not {expected}: somebody else wrote to it")]
    Conflict {
        /// The run.
        run: RunId,
        /// How many records the caller knows.
        expected: u64,
        /// How many there are.
        found: u64,
    },
    /// Somebody else holds the run.
    #[error("run `{run}` is running elsewhere ({holder}); wait until it ends, or stop it there")]
    Leased {
        /// The run.
        run: RunId,
        /// The holder.
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
    /// The run received a signal with this id before, and with another name or payload.
    #[error("run `{run}` received another signal with the id `{id}`: give each signal an id of its own")]
    OtherSignal {
        /// The run.
        run: RunId,
        /// The id of the signal.
        id: String,
    },
    /// The run has as many signals that no wait has taken as a store keeps, or their payloads are as long.
    #[error(
        "run `{run}` has too many signals that no wait has taken: a store keeps at most {} of a run, with at most {} bytes of \
         payloads; try again when the run has continued",
        Inbox::MAX_SIGNALS,
        Inbox::MAX_BYTES
    )]
    TooManySignals {
        /// The run.
        run: RunId,
    },
    /// The run has no such signal, or a wait took it. Nothing was written.
    #[error("run `{run}` has no signal {order} that can be taken: somebody else wrote to it")]
    SignalGone {
        /// The run.
        run: RunId,
        /// The order of the signal.
        order: u64,
    },
    /// The mark of a schedule is not the one that the caller knows. Nothing was written.
    #[error("the mark of schedule `{schedule}` has the revision {found}, not {expected}: another worker changed it")]
    ScheduleChanged {
        /// The schedule.
        schedule: String,
        /// The revision that the caller knows.
        expected: u64,
        /// The revision that it has; 0 if there is no mark.
        found: u64,
    },
    /// The cursor of a page is not a place in the store.
    #[error("`{0}` is not a place in the list of runs: begin with its first page")]
    BadCursor(String),
    /// The run has as many records as the store can keep of one.
    #[error("the journal of run `{run}` is full: a store keeps at most {limit} records of a run")]
    TooLong {
        /// The run.
        run: RunId,
        /// How many records of a run the store can keep.
        limit: u64,
    },
    /// There is no space left.
    #[error("there is no space left on the disk for {place}; free some and try again")]
    #[non_exhaustive]
    Full {
        /// Where the store keeps its runs.
        place: String,
        /// The underlying error.
        source: Option<Cause>,
    },
    /// The store can be read but not written.
    #[error("{place} cannot be written: {reason}")]
    #[non_exhaustive]
    ReadOnly {
        /// Where the store keeps its runs.
        place: String,
        /// The reason why it cannot be written.
        reason: String,
        /// The underlying error.
        source: Option<Cause>,
    },
    /// Another program keeps the store locked. Nothing was written, and the request can be repeated.
    #[error("{place} is locked by another program and stayed so; nothing was written, and it can be tried again")]
    #[non_exhaustive]
    Busy {
        /// Where the store keeps its runs.
        place: String,
        /// The underlying error.
        source: Option<Cause>,
    },
    /// The disk or the connection failed. It is not known whether anything was written until the store can be read again.
    #[error("reading or writing {place} failed: {reason}")]
    #[non_exhaustive]
    Unavailable {
        /// Where the store keeps its runs.
        place: String,
        /// How it failed, and what to do.
        reason: String,
        /// The underlying error.
        source: Option<Cause>,
    },
    /// The stored data is not what the store wrote.
    #[error("{place} is not a journal of this program, or is damaged: {reason}")]
    #[non_exhaustive]
    Unreadable {
        /// Where the store keeps its runs, or one of them.
        place: String,
        /// The mistake, and how to fix it.
        reason: String,
        /// The underlying error.
        source: Option<Cause>,
    },
    /// A newer version of the program wrote it.
    #[error("{place} has form {found}, and this program knows forms up to {known}: use a newer version")]
    #[non_exhaustive]
    Newer {
        /// Where the store keeps its runs.
        place: String,
        /// The number of the format that it has.
        found: i64,
        /// The newest format that is known.
        known: i64,
    },
    /// The store cannot be opened.
    #[error("cannot open {place}: {reason}")]
    #[non_exhaustive]
    Open {
        /// Where the store keeps its runs.
        place: String,
        /// Why, and what to do.
        reason: String,
        /// The underlying error.
        source: Option<Cause>,
    },
    /// The runtime has no store.
    #[error("a runtime without a store keeps no runs")]
    None,
    /// The store does not support the operation.
    #[error("this store cannot {0}")]
    Unsupported(&'static str),
    /// Anything else.
    #[error("the store failed: {reason}")]
    #[non_exhaustive]
    Failed {
        /// The reason.
        reason: String,
        /// The underlying error.
        source: Option<Cause>,
    },
    /// The store was closed.
    #[error("the store was closed")]
    Closed,
}

impl StoreError {
    /// Makes a [`StoreError::Full`].
    pub fn full(place: impl Display) -> Self {
        Self::Full { place: place.to_string(), source: None }
    }

    /// Makes a [`StoreError::ReadOnly`]; `reason` says what forbids writing.
    pub fn read_only(place: impl Display, reason: impl Into<String>) -> Self {
        Self::ReadOnly { place: place.to_string(), reason: reason.into(), source: None }
    }

    /// Makes a [`StoreError::Busy`].
    pub fn busy(place: impl Display) -> Self {
        Self::Busy { place: place.to_string(), source: None }
    }

    /// Makes a [`StoreError::Unavailable`]; `reason` says how it failed and what to do.
    pub fn unavailable(place: impl Display, reason: impl Into<String>) -> Self {
        Self::Unavailable { place: place.to_string(), reason: reason.into(), source: None }
    }

    /// Makes a [`StoreError::Unreadable`]; `reason` says what is wrong and what to do.
    pub fn unreadable(place: impl Display, reason: impl Into<String>) -> Self {
        Self::Unreadable { place: place.to_string(), reason: reason.into(), source: None }
    }

    /// Makes a [`StoreError::Newer`].
    pub fn newer(place: impl Display, found: i64, known: i64) -> Self {
        Self::Newer { place: place.to_string(), found, known }
    }

    /// Makes a [`StoreError::Open`]; `reason` says why it cannot be opened and what to do.
    pub fn open(place: impl Display, reason: impl Into<String>) -> Self {
        Self::Open { place: place.to_string(), reason: reason.into(), source: None }
    }

    /// Makes a [`StoreError::Failed`].
    pub fn failed(reason: impl Into<String>) -> Self {
        Self::Failed { reason: reason.into(), source: None }
    }

    /// Converts the error to that of a store that is being opened: nothing can be written to it yet, and it has no runs.
    #[must_use]
    pub fn while_opening(self) -> Self {
        match self {
            Self::Full { place, source } => {
                Self::Open { place, reason: "there is no space left on the disk; free some".to_owned(), source }
            }
            Self::Unavailable { place, reason, source } => Self::Open { place, reason, source },
            other => other,
        }
    }

    /// Adds the underlying error, for the kinds that have a source. For the other kinds, `cause` is dropped.
    #[must_use]
    pub fn with_source(mut self, cause: impl Into<Cause>) -> Self {
        match &mut self {
            Self::Full { source, .. }
            | Self::ReadOnly { source, .. }
            | Self::Busy { source, .. }
            | Self::Unavailable { source, .. }
            | Self::Unreadable { source, .. }
            | Self::Open { source, .. }
            | Self::Failed { source, .. } => *source = Some(cause.into()),
            _ => {}
        }
        self
    }
}

impl HasKind for StoreError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::NotFound(_) => ErrorKind::NotFound,
            Self::Exists(_) => ErrorKind::Exists,
            Self::BadCursor(_) => ErrorKind::Invalid,
            Self::Ended { .. } => ErrorKind::Late,
            Self::Conflict { .. }
            | Self::Leased { .. }
            | Self::LeaseLost(_)
            | Self::OtherSignal { .. }
            | Self::SignalGone { .. }
            | Self::ScheduleChanged { .. } => ErrorKind::Conflict,
            Self::TooManySignals { .. }
            | Self::Full { .. }
            | Self::ReadOnly { .. }
            | Self::Busy { .. }
            | Self::Unavailable { .. }
            | Self::Closed => ErrorKind::Unavailable,
            Self::TooLong { .. }
            | Self::Unreadable { .. }
            | Self::Newer { .. }
            | Self::Open { .. }
            | Self::None
            | Self::Unsupported(_)
            | Self::Failed { .. } => ErrorKind::Internal,
        }
    }
}

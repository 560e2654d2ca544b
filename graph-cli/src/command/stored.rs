//! Helpers for the commands that manage the runs of a store.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use graph_model::{duration, timestamp};
use graph_runtime::record::Status;
use graph_runtime::store::RunSummary;
use graph_runtime::{SqliteOptions, SqliteStore};
use serde_json::{Value, json};

use crate::outcome::Error;

/// How a store is opened.
pub(super) enum Access {
    Read,
    Write,
}

/// The file of a store that is read for a long time.
pub(super) struct StoreFile {
    path: PathBuf,
    identity: Option<(u64, u64)>,
}

impl StoreFile {
    pub(super) fn at(path: &Path) -> Self {
        Self { path: path.to_owned(), identity: identity(path) }
    }

    /// Fails if the file is gone, or another one is at its path: an open store does not notice.
    pub(super) fn check(&self) -> Result<(), Error> {
        match (self.identity, identity(&self.path)) {
            (before, now) if before == now => Ok(()),
            (_, None) => Err(Error::new(format!("the store {} is gone", self.path.display()))),
            _ => Err(Error::new(format!("the store {} was replaced by another file", self.path.display()))),
        }
    }
}

/// Returns what identifies a file on this system.
#[cfg(unix)]
fn identity(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

#[cfg(not(unix))]
fn identity(path: &Path) -> Option<(u64, u64)> {
    path.exists().then_some((0, 0))
}

/// Opens an existing store; does not create one.
pub(super) async fn open(path: &Path, access: Access) -> Result<SqliteStore, Error> {
    if !path.is_file() {
        return Err(Error::new(format!("there is no store at {}", path.display())));
    }
    Ok(match access {
        Access::Read => SqliteOptions::default().open_read_only(path).await?,
        Access::Write => options().open(path).await?,
    })
}

/// Returns the options to open a store for writing. While another program locks the store, a note reports the wait.
pub(super) fn options() -> SqliteOptions {
    SqliteOptions::default().on_wait(|path, waited| {
        let (path, seconds) = (path.display(), waited.as_secs());
        err!("note: {path} is locked by another program; waited for it for {seconds} s");
    })
}

/// Returns the tokio runtime that the commands use.
pub(super) fn tokio() -> Result<tokio::runtime::Runtime, Error> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

/// Reads a minimum age.
pub(super) fn age(text: &str) -> Result<Duration, duration::DurationError> {
    if text == "0" { Ok(Duration::ZERO) } else { duration::parse(text) }
}

/// Reads a time with an offset.
pub(super) fn time(text: &str) -> Result<SystemTime, String> {
    timestamp::with_offset(text)
        .ok_or_else(|| "a time is a date and a time with an offset, as `2026-11-21T20:00:00+01:00`".to_owned())
}

/// Reads a status, as journals write it.
pub(super) fn status(text: &str) -> Result<Status, &'static str> {
    serde_json::from_value(text.into())
        .map_err(|_| "write `running`, `waiting`, `completed`, `completed_with_errors`, `error` or `cancelled`")
}

/// Returns a run as an element of a JSON list (R289).
pub(super) fn as_json(run: &RunSummary) -> Value {
    let time = |time: Option<_>| time.map(timestamp::milliseconds);
    json!({
        "run_id": run.run,
        "graph_id": run.graph,
        "status": run.status.name(),
        "records": run.records,
        "created_at": time(run.created),
        "updated_at": time(run.updated),
        "parent_run_id": run.parent,
        "alive": run.holder.is_some(),
        "pid": run.holder.as_ref().and_then(|holder| holder.process),
        "host": run.holder.as_ref().map(|holder| &holder.host),
        "cancelling": run.is_cancelling,
        "digest": run.digest.map(|digest| digest.to_hex()),
        "meaning": run.meaning.map(|meaning| meaning.to_hex()),
        "version": run.version,
        "code": run.code,
        "next_due": time(run.next_due),
    })
}

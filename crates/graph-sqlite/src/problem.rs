//! Translates the errors of SQLite into those of stores.

use std::path::Path;
use std::sync::Arc;

use graph_engine::store::StoreError;
use rusqlite::ErrorCode;

/// Returns the error of a file that cannot be written.
pub(crate) fn read_only(path: &Path) -> StoreError {
    StoreError::read_only(path.display(), "it, its directory or its disk is read-only")
}

/// Whether another program keeps the file locked.
pub(crate) fn is_busy(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error_code();
    matches!(code, Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed))
}

/// Translates an error of SQLite into one of stores. If several requests failed by it, they share it.
pub(crate) fn explain(error: impl Into<Arc<rusqlite::Error>>, path: &Path) -> StoreError {
    let error = error.into();
    let place = path.display();
    let explained = match error.sqlite_error_code() {
        _ if is_busy(&error) => StoreError::busy(place),
        Some(ErrorCode::DiskFull) => StoreError::full(place),
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => read_only(path),
        Some(ErrorCode::NotADatabase) => StoreError::unreadable(place, error.to_string()),
        Some(ErrorCode::DatabaseCorrupt) => damaged(&error, path),
        Some(ErrorCode::CannotOpen) => StoreError::open(place, error.to_string()),
        Some(ErrorCode::SystemIoFailure) => {
            StoreError::unavailable(place, format!("{error}; see to the disk, then try again"))
        }
        Some(_) => StoreError::failed(format!("{place}: {error}")),
        None => match &*error {
            rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::IntegralValueOutOfRange(..) => damaged(&error, path),
            _ => StoreError::failed(error.to_string()),
        },
    };
    explained.with_source(error)
}

/// Returns the error of a damaged file, with advice for saving its contents.
pub(crate) fn damaged(error: &rusqlite::Error, path: &Path) -> StoreError {
    let place = path.display();
    let reason = format!(
        "{error}; let nobody write to it, keep a copy, and put a backup in its place, or save what can be read with \
         `sqlite3 {place} .recover`"
    );
    StoreError::unreadable(place, reason)
}

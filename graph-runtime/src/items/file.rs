//! Files of a space: found below its `.ai` directory, read whole and within limits, replaced atomically.

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::error::ItemError;

/// The most bytes that an item may have.
pub(super) const MOST_BYTES: u64 = 1024 * 1024;

/// Whether there is anything at `path`, a link that leads nowhere too: what is broken is not passed over.
pub(super) fn exists(path: &Path) -> Result<bool, ItemError> {
    match fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(false),
        Err(error) => Err(failed("read", path, error)),
    }
}

/// Returns the real path of the file at `path`, which must be below the `.ai` directory of the space at `root`.
///
/// # Errors
///
/// If a link leads elsewhere, or nowhere.
pub(super) fn resolve(root: &Path, path: &Path) -> Result<PathBuf, ItemError> {
    let real = |path: &Path| path.canonicalize().map_err(|error| failed("read", path, error));
    let inside = real(root)?.join(".ai");
    let target = real(path)?;
    if target.starts_with(inside) { Ok(target) } else { Err(ItemError::Outside { path: path.to_owned(), target }) }
}

/// Reads the text at `path`, which [`resolve`] returned. Errors name it as `shown`.
///
/// # Errors
///
/// If it is no regular file, too large, not UTF-8, or cannot be read.
pub(super) fn read(path: &Path, shown: &Path) -> Result<String, ItemError> {
    let problem = |error| failed("read", shown, error);
    // Before it is opened: a pipe would hold up the reader until somebody writes to it.
    if !fs::metadata(path).map_err(problem)?.is_file() {
        return Err(ItemError::NotAFile { path: shown.to_owned() });
    }
    let mut bytes = Vec::new();
    fs::File::open(path).and_then(|file| file.take(MOST_BYTES + 1).read_to_end(&mut bytes)).map_err(problem)?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(ItemError::TooLarge { path: shown.to_owned() });
    }
    String::from_utf8(bytes)
        .map_err(|error| ItemError::NotUtf8 { path: shown.to_owned(), at: error.utf8_error().valid_up_to() })
}

/// Replaces the file at `path` as a whole: whoever reads it sees the old text or the new, and so does who comes after a
/// crash.
///
/// # Errors
///
/// If it cannot be written; the old text stands then.
pub(super) fn replace(path: &Path, text: &str) -> Result<(), ItemError> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = path.with_file_name(format!(".{name}.{}-{count}.tmp", std::process::id()));
    let write = || {
        let mut file = fs::OpenOptions::new().write(true).create_new(true).open(&temporary)?;
        file.set_permissions(fs::metadata(path)?.permissions())?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        // The new name is durable when its directory is. Only Unix can open one.
        #[cfg(unix)]
        fs::File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()?;
        Ok(())
    };
    write().map_err(|error| {
        // What is left of the attempt is of no use; that it could not be removed changes nothing about the error.
        drop(fs::remove_file(&temporary));
        failed("write", path, error)
    })
}

pub(super) fn failed(verb: &'static str, path: &Path, source: io::Error) -> ItemError {
    ItemError::Io { verb, path: path.to_owned(), source }
}

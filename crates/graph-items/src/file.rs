//! Files of a space: they are found below its `.ai` directory, read whole and within limits, and replaced atomically.

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions};

use super::error::ItemError;
use crate::confined::open_directory;

/// The maximum size of an item, in bytes.
pub(super) const MOST_BYTES: u64 = 1024 * 1024;

/// Whether there is anything at `path`. A broken link counts too, so that it is reported and not skipped.
pub(super) fn exists(path: &Path) -> Result<bool, ItemError> {
    match fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(false),
        Err(error) => Err(failed("read", path, error)),
    }
}

/// The file of an item. It is below the directory of its kind, which is held open, and no part of the path from there is a link.
pub(super) struct Located {
    directory: Dir,
    /// The path below `directory`.
    name: PathBuf,
    /// The path in error messages.
    shown: PathBuf,
}

/// Finds the file at `path`, which must be below the directory `kind` of the space at `root`, such as `.ai/tools`. The path
/// may be a link to another file there.
///
/// # Errors
///
/// If a link leads nowhere, or out of `kind`. Another directory of the same space counts as outside: otherwise, a user who
/// may write pages of knowledge could reach trusted keys.
pub(super) fn locate(root: &Path, kind: &str, path: &Path) -> Result<Located, ItemError> {
    let problem = |error| failed("read", path, error);
    let (real, target) = (root.canonicalize().map_err(problem)?, path.canonicalize().map_err(problem)?);
    let Ok(name) = target.strip_prefix(real.join(kind)) else {
        return Err(ItemError::Outside { path: path.to_owned(), kind: kind.to_owned(), target });
    };
    let opened = Dir::open_ambient_dir(&real, ambient_authority());
    let directory = opened.and_then(|root| open_directory(&root, kind)).map_err(problem)?;
    Ok(Located { directory, name: name.to_owned(), shown: path.to_owned() })
}

impl Located {
    /// Returns the path of the file itself, after links.
    pub(super) fn name(&self) -> &Path {
        &self.name
    }

    /// Reads the file.
    ///
    /// # Errors
    ///
    /// If it is not a regular file, is too large, is not UTF-8, or cannot be read.
    pub(super) fn read(&self) -> Result<String, ItemError> {
        let problem = |error| failed("read", &self.shown, error);
        let shown = || self.shown.clone();
        // Checked before the file is opened: a pipe would block the reader until somebody writes to it.
        if !self.directory.metadata(&self.name).map_err(problem)?.is_file() {
            return Err(ItemError::NotAFile { path: shown() });
        }
        let mut bytes = Vec::new();
        let opened = self.directory.open(&self.name);
        opened.and_then(|file| file.take(MOST_BYTES + 1).read_to_end(&mut bytes)).map_err(problem)?;
        if bytes.len() as u64 > MOST_BYTES {
            return Err(ItemError::TooLarge { path: shown() });
        }
        String::from_utf8(bytes)
            .map_err(|error| ItemError::NotUtf8 { path: shown(), at: error.utf8_error().valid_up_to() })
    }

    /// Replaces the file as a whole: a reader sees the old text or the new one, also after a crash. A hard link to the same
    /// file keeps the old text.
    ///
    /// # Errors
    ///
    /// If it cannot be written; the file then keeps the old text.
    pub(super) fn replace(&self, text: &str) -> Result<(), ItemError> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let problem = |error| failed("write", &self.shown, error);
        // The file's directory is held open too, so that a directory that replaces it is not written to.
        let (parent, name) = (self.name.parent(), self.name.file_name().unwrap_or_default());
        let parent = parent.and_then(Path::to_str).ok_or_else(|| problem(io::Error::other("its path is not UTF-8")))?;
        let directory = open_directory(&self.directory, parent).map_err(problem)?;
        let temporary = format!(".{}.{}-{count}.tmp", name.to_string_lossy(), std::process::id());
        let write = || {
            let mut file = directory.open_with(&temporary, OpenOptions::new().write(true).create_new(true))?;
            file.set_permissions(directory.symlink_metadata(name)?.permissions())?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            directory.rename(&temporary, &directory, name)?;
            // The new name is durable once its directory is synced. Only Unix can open a directory.
            #[cfg(unix)]
            directory.try_clone()?.into_std_file().sync_all()?;
            Ok(())
        };
        write().map_err(|error| {
            // A failure to remove the temporary file must not hide the first error.
            drop(directory.remove_file(&temporary));
            problem(error)
        })
    }
}

pub(super) fn failed(verb: &'static str, path: &Path, source: io::Error) -> ItemError {
    ItemError::Io { verb, path: path.to_owned(), source }
}

//! Files of a space: found below its `.ai` directory, read whole and within limits, replaced atomically.

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions};

use super::error::ItemError;
use crate::confined::open_directory;

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

/// The file of an item: really below the directory of its kind, which is held open, and reached from there by no link.
pub(super) struct Located {
    directory: Dir,
    /// Below `directory`.
    name: PathBuf,
    /// How errors name it.
    shown: PathBuf,
}

/// Finds the file at `path`, which must be below the directory `kind` of the space at `root`, as `.ai/tools`. A link may lead to
/// another file there.
///
/// # Errors
///
/// If a link leads elsewhere, or nowhere. Elsewhere is another directory of the same space too: whoever may write pages of
/// knowledge would reach trusted keys otherwise.
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
    /// Returns the name of the file itself, where a link leads to it.
    pub(super) fn name(&self) -> &Path {
        &self.name
    }

    /// Reads the text.
    ///
    /// # Errors
    ///
    /// If it is no regular file, too large, not UTF-8, or cannot be read.
    pub(super) fn read(&self) -> Result<String, ItemError> {
        let problem = |error| failed("read", &self.shown, error);
        let shown = || self.shown.clone();
        // Before it is opened: a pipe would hold up the reader until somebody writes to it.
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

    /// Replaces the file as a whole: whoever reads it sees the old text or the new, and so does who comes after a crash.
    /// Another name of the same file, by a hard link, keeps the old text.
    ///
    /// # Errors
    ///
    /// If it cannot be written; the old text stands then.
    pub(super) fn replace(&self, text: &str) -> Result<(), ItemError> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let problem = |error| failed("write", &self.shown, error);
        // The directory of the file is held open too: one that is put in its place by now is not written to.
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
            // The new name is durable when its directory is. Only Unix can open one.
            #[cfg(unix)]
            directory.try_clone()?.into_std_file().sync_all()?;
            Ok(())
        };
        write().map_err(|error| {
            // What is left of the attempt is of no use; that it could not be removed changes nothing about the error.
            drop(directory.remove_file(&temporary));
            problem(error)
        })
    }
}

pub(super) fn failed(verb: &'static str, path: &Path, source: io::Error) -> ItemError {
    ItemError::Io { verb, path: path.to_owned(), source }
}

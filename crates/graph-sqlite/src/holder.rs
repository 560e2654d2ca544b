//! The holders of runs. Each has a locked file beside the database, and a row in the database with its identity and its
//! last heartbeat.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use graph_model::digest::hex;

use crate::problem::read_only;
use graph_engine::store::StoreError;

/// The identity of this store as long as it is open.
#[derive(Debug)]
pub(super) struct HolderIdentity {
    pub(super) name: String,
    path: PathBuf,
    /// Open, and locked if the file system has locks; the operating system unlocks it when the process ends.
    _lock: File,
    stays: bool,
}

/// Whether the file of a holder is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lock {
    Held,
    Free,
    /// The file system has no locks, or the file is not here: somebody deleted it, or the store was opened by another name.
    Unknown,
}

/// The number of symbolic links that a path may lead through.
const MOST_LINKS: usize = 40;

/// Returns the one name of the file that a path leads to, through symbolic links as SQLite follows them. The lock files are
/// beside it. The file need not exist.
pub(super) fn place_of(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        if let Ok(place) = fs::canonicalize(&path) {
            return place;
        }
        let directory = match path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            Some(parent) => parent.to_owned(),
            None => PathBuf::from("."),
        };
        match fs::read_link(&path) {
            Ok(target) => path = directory.join(target),
            Err(_) => {
                let directory = fs::canonicalize(&directory).unwrap_or(directory);
                return directory.join(path.file_name().unwrap_or_default());
            }
        }
    }
    path
}

pub(super) fn lock_path(database: &Path, holder: &str) -> PathBuf {
    let mut name = database.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{holder}.lock"));
    database.with_file_name(name)
}

impl HolderIdentity {
    /// The identity of a store whose file has this one name; errors show the path by which it was opened.
    pub(super) fn new(place: &Path, database: &Path) -> Result<Self, StoreError> {
        let problem = |error: io::Error| match error.kind() {
            io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
                read_only(database).with_source(error)
            }
            _ => {
                StoreError::open(database.display(), format!("no lock file could be made: {error}")).with_source(error)
            }
        };
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(|error| problem(io::Error::other(error.to_string())))?;
        let name = hex(&random);
        let path = lock_path(place, &name);
        let lock = File::create_new(&path).map_err(problem)?;
        match lock.try_lock() {
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {}
            locked => locked.map_err(|error| problem(error.into()))?,
        }
        Ok(Self { name, path, _lock: lock, stays: false })
    }

    /// Leaves the file behind, without a lock: it shows that the store is gone, which the database does not say.
    pub(super) fn stay(mut self) {
        self.stays = true;
    }
}

impl Drop for HolderIdentity {
    fn drop(&mut self) {
        if !self.stays
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::debug!(%error, path = %self.path.display(), "the lock file could not be removed");
        }
    }
}

/// Whether the store that has this name is still open somewhere on this machine.
pub(super) fn lock_of(database: &Path, name: &str) -> Lock {
    let file = match File::open(lock_path(database, name)) {
        Ok(file) => file,
        // Another user's file may not be accessible, and so shows nothing.
        Err(_) => return Lock::Unknown,
    };
    // The lock is shared, so that two processes that check it do not take each other for the holder.
    match file.try_lock_shared() {
        Ok(()) => Lock::Free,
        Err(TryLockError::WouldBlock) => Lock::Held,
        Err(TryLockError::Error(_)) => Lock::Unknown,
    }
}

/// Removes the lock files of stores whose processes have ended and that hold no runs. The others show that their runs are free.
pub(super) fn sweep(database: &Path, holds_runs: impl Fn(&str) -> bool) {
    let Some(stem) = database.file_name().and_then(|name| name.to_str()) else { return };
    let directory = database.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let holder = name.to_str().and_then(|name| name.strip_prefix(stem)?.strip_prefix('.')?.strip_suffix(".lock"));
        // A file that was just created may not be locked yet, so it is left for the next sweep.
        let is_old = entry
            .metadata()
            .and_then(|data| data.modified())
            .is_ok_and(|at| at.elapsed().is_ok_and(|age| age > Duration::from_secs(60)));
        if let Some(holder) = holder
            && is_old
            && lock_of(database, holder) == Lock::Free
            && !holds_runs(holder)
            && let Err(error) = fs::remove_file(entry.path())
        {
            tracing::debug!(%error, path = %entry.path().display(), "a lock file that nobody holds could not be removed");
        }
    }
}

/// Returns the name of this host, for people.
pub(super) fn host() -> String {
    #[cfg(unix)]
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    #[cfg(not(unix))]
    let name = std::env::var("COMPUTERNAME").unwrap_or_default();
    if name.is_empty() { "an unnamed host".to_owned() } else { name }
}

/// Returns the id of the booted system, which all processes share that see each other's locks. Containers may have other
/// host names and the same system.
pub(super) fn machine() -> String {
    match fs::read_to_string("/proc/sys/kernel/random/boot_id") {
        Ok(id) => id.trim().to_owned(),
        Err(_) => host(),
    }
}

//! Locks of the operating system, which are released when their process ends.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::ops::Deref;
use std::path::Path;

use graph_runtime::RunId;
use graph_runtime::store::{Holder, StoreError};

use crate::Shared;

/// A locked file, which is unlocked when this is dropped. Closing the file would not suffice: a process that another thread
/// starts meanwhile has a copy of it for a moment.
#[derive(Debug)]
pub(crate) struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // If this fails, closing the file unlocks it.
        drop(self.0.unlock());
    }
}

impl Deref for Lock {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

/// Opens a file and waits until nobody else has locked it.
pub(crate) fn wait_for(path: &Path) -> io::Result<Lock> {
    let file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
    file.lock()?;
    Ok(Lock(file))
}

/// Opens a file and waits until nobody who writes to it has locked it.
pub(crate) fn wait_to_read(path: &Path) -> io::Result<Lock> {
    let file = File::open(path)?;
    file.lock_shared()?;
    Ok(Lock(file))
}

impl Shared {
    /// Waits until no other process locks a run or looks for its holder. A process that looks locks the run for a moment:
    /// without turns, others would take it for the holder.
    fn turn(&self) -> io::Result<Lock> {
        wait_for(&self.directory.join("turn"))
    }

    /// Locks a run, or returns an error that names its holder.
    pub(crate) fn lock(&self, run: &RunId) -> Result<Lock, StoreError> {
        let path = self.path(run, "lock");
        let lock = || -> io::Result<Lock> {
            let _turn = self.turn()?;
            let mut file = File::options().read(true).append(true).create(true).open(&path)?;
            file.try_lock()?;
            file.set_len(0)?;
            file.write_all(std::process::id().to_string().as_bytes())?;
            Ok(Lock(file))
        };
        lock().map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => StoreError::Leased { run: run.clone(), holder: noted(&path).to_string() },
            _ => self.failed(error),
        })
    }

    /// Returns the holder of a run, if there is one.
    pub(crate) fn holder(&self, run: &RunId) -> Option<Holder> {
        let path = self.path(run, "lock");
        let _turn = self.turn().ok()?;
        let file = File::open(&path).ok()?;
        match file.try_lock_shared() {
            Ok(()) => drop(Lock(file)),
            Err(TryLockError::WouldBlock) => return Some(noted(&path)),
            Err(TryLockError::Error(_)) => {}
        }
        None
    }
}

/// Returns the holder that a lock's file names.
fn noted(path: &Path) -> Holder {
    let mut holder = Holder::new(0, "this host");
    holder.process = fs::read_to_string(path).ok().and_then(|process| process.parse().ok());
    holder
}

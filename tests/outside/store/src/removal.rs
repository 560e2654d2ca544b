//! Removes several runs at once: when the list of them has its final name, the runs are gone, even if some of their
//! files are still there.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use graph_runtime::RunId;

use crate::locks;

/// The list of runs that are being removed.
const LIST: &str = "removed";

/// Removes a file that may not be there.
pub(crate) fn forget(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Returns the names of the runs that are being removed.
pub(crate) fn listed(directory: &Path) -> io::Result<Vec<String>> {
    match fs::read_to_string(directory.join(LIST)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        list => Ok(list?.lines().map(str::to_owned).collect()),
    }
}

/// Whether a run is being removed.
pub(crate) fn is_removed(directory: &Path, run: &RunId) -> io::Result<bool> {
    Ok(listed(directory)?.iter().any(|removed| removed == run.as_str()))
}

/// Removes runs, all or none. The caller holds their locks.
pub(crate) fn remove(directory: &Path, runs: &[RunId]) -> io::Result<()> {
    // There is one list at a time. The lock is released when its process ends, so that the next process can complete
    // the removal.
    let _turn = locks::wait_for(&directory.join("removing"))?;
    finish_listed(directory)?;
    let draft = directory.join("removed-draft");
    let mut list = File::create(&draft)?;
    list.write_all(runs.iter().map(|run| format!("{run}\n")).collect::<String>().as_bytes())?;
    list.sync_all()?;
    fs::rename(&draft, directory.join(LIST))?;
    File::open(directory)?.sync_all()?;
    finish_listed(directory)
}

/// Completes the removal that another process began before it died.
pub(crate) fn finish(directory: &Path) -> io::Result<()> {
    let _turn = locks::wait_for(&directory.join("removing"))?;
    finish_listed(directory)
}

fn finish_listed(directory: &Path) -> io::Result<()> {
    let runs = listed(directory)?;
    if runs.is_empty() {
        return Ok(());
    }
    for run in runs {
        for kind in ["journal", "cancel", "new"] {
            forget(&directory.join(format!("{run}.{kind}")))?;
        }
    }
    File::open(directory)?.sync_all()?;
    forget(&directory.join(LIST))
}

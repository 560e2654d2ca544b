//! The time of the store, which decides when waits are over.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use graph_runtime::Clock;
use graph_runtime::store::StoreClock;

use crate::locks;

/// The time of a clock that is not before the time in the file `time`, which all processes share. So it does not go back
/// if a process starts after the clock was set back.
#[derive(Debug)]
pub(crate) struct Time {
    clock: StoreClock,
    path: PathBuf,
}

impl Time {
    pub(crate) fn open(directory: &Path, clock: Arc<dyn Clock>) -> io::Result<Self> {
        let time = Self { clock: StoreClock::new(clock), path: directory.join("time") };
        drop(locks::wait_for(&time.path)?);
        Ok(time)
    }

    /// Returns the time, in milliseconds since the Unix epoch.
    pub(crate) fn now(&self) -> io::Result<i64> {
        let file = locks::wait_to_read(&self.path)?;
        Ok(self.clock.not_before(recorded(&file)?))
    }

    /// Records the time, and waits until that is durable. It is recorded before each change of waits.
    pub(crate) fn record(&self) -> io::Result<()> {
        let file = locks::wait_for(&self.path)?;
        let time = self.clock.not_before(recorded(&file)?);
        // Always of the same length, so that nothing of an older time is left behind it.
        file.write_all_at(format!("{time:020}").as_bytes(), 0)?;
        file.sync_data()
    }
}

/// Returns the recorded time. A file that has none is new, or a crash came while its first time was written.
fn recorded(mut file: &File) -> io::Result<i64> {
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    Ok(str::from_utf8(&text).ok().and_then(|text| text.parse().ok()).unwrap_or(i64::MIN))
}

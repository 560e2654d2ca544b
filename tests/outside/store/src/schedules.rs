//! The marks of schedules, each in a file of its own.
//!
//! A change is complete when the file `tick` has its name: it has the new mark, and the run that begins with it, whose journal is
//! then durable under another name. A process that finds the file `tick` does the rest, so that a crash leaves all of it or
//! nothing.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use graph_runtime::RunId;
use graph_runtime::store::{ScheduleChange, ScheduleMark, StoreError};

use crate::locks::{self, Lock};
use crate::{Shared, removal};

/// The change that is being made.
const CHANGE: &str = "tick";

/// Locks the marks. Completes the change that another process began before it died.
pub(crate) fn lock(directory: &Path) -> io::Result<Lock> {
    let lock = locks::wait_for(&directory.join("ticking"))?;
    finish(directory)?;
    Ok(lock)
}

/// Returns the file of a mark: its revision, a line break, and its text.
fn path(directory: &Path, schedule: &str) -> PathBuf {
    directory.join(format!("{schedule}.schedule"))
}

/// Writes a file that gets its name only when its content is durable.
fn write(directory: &Path, name: &Path, text: &str) -> io::Result<()> {
    let draft = directory.join("tick-draft");
    let mut file = File::create(&draft)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&draft, name)?;
    File::open(directory)?.sync_all()
}

fn finish(directory: &Path) -> io::Result<()> {
    let change = match fs::read_to_string(directory.join(CHANGE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        read => read?,
    };
    let mut lines = change.splitn(3, '\n');
    let (Some(schedule), Some(run), Some(mark)) = (lines.next(), lines.next(), lines.next()) else {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the file `tick` is not whole"));
    };
    if !run.is_empty() {
        match fs::rename(directory.join(format!("{run}.tick")), directory.join(format!("{run}.journal"))) {
            // It was renamed before.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            done => done?,
        }
    }
    write(directory, &path(directory, schedule), mark)?;
    removal::forget(&directory.join(CHANGE))?;
    File::open(directory)?.sync_all()
}

impl Shared {
    /// Returns the mark of a schedule. The marks are locked.
    fn marked(&self, schedule: &str) -> Result<Option<ScheduleMark>, StoreError> {
        let path = path(&self.directory, schedule);
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(|error| self.failed(error))?,
        };
        let mark = text.split_once('\n').and_then(|(revision, text)| {
            Some(ScheduleMark { revision: revision.parse().ok()?, text: text.to_owned() })
        });
        mark.map(Some).ok_or_else(|| StoreError::unreadable(path.display(), "put a copy in its place"))
    }

    fn lock_marks(&self) -> Result<Lock, StoreError> {
        lock(&self.directory).map_err(|error| self.failed(error))
    }

    pub(crate) fn schedule_mark(&self, schedule: &str) -> Result<Option<ScheduleMark>, StoreError> {
        let _lock = self.lock_marks()?;
        self.marked(schedule)
    }

    /// Locks the marks, if that of a schedule is the expected one.
    pub(crate) fn expect_mark(&self, change: &ScheduleChange) -> Result<Lock, StoreError> {
        let lock = self.lock_marks()?;
        let found = self.marked(&change.schedule)?.map_or(0, |mark| mark.revision);
        if found == change.expected {
            return Ok(lock);
        }
        Err(StoreError::ScheduleChanged { schedule: change.schedule.clone(), expected: change.expected, found })
    }

    /// Changes a mark, and begins a run whose journal is durable in its file `.tick`. The marks are locked.
    pub(crate) fn change_mark(&self, change: &ScheduleChange, run: Option<&RunId>) -> io::Result<()> {
        self.time.record()?;
        let ScheduleChange { schedule, expected, text } = change;
        let run = run.map_or("", RunId::as_str);
        let mark = format!("{schedule}\n{run}\n{}\n{text}", expected + 1);
        write(&self.directory, &self.directory.join(CHANGE), &mark)?;
        finish(&self.directory)
    }

    pub(crate) fn change_schedule(&self, change: &ScheduleChange) -> Result<(), StoreError> {
        let _lock = self.expect_mark(change)?;
        self.change_mark(change, None).map_err(|error| self.failed(error))
    }
}

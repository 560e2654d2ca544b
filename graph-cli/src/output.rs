//! The output of the commands: only this module writes to stdout and stderr.
//!
//! If stdout fails, as on a full disk, the program neither panics nor reports success: the first error is stored, nothing is
//! written after it, and the command ends with [`finish`].

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Prints a line of the result to stdout.
macro_rules! out {
    ($($argument:tt)*) => { $crate::output::write_out(format_args!($($argument)*)) };
}

/// Prints a line to stderr.
macro_rules! err {
    ($($argument:tt)*) => { $crate::output::write_err(format_args!($($argument)*)) };
}

/// The exit code of a command that could not do its work.
pub(crate) const UNDONE: u8 = 3;

/// The first error of stdout.
static FAILED: Mutex<Option<io::Error>> = Mutex::new(None);

pub(crate) fn write_out(line: fmt::Arguments<'_>) {
    let mut failed = failed();
    if failed.is_none() {
        let mut out = anstream::stdout().lock();
        *failed = writeln!(out, "{line}").and_then(|()| out.flush()).err();
    }
}

pub(crate) fn write_err(line: fmt::Arguments<'_>) {
    // There is no other place to report the failure.
    drop(writeln!(anstream::stderr().lock(), "{line}"));
}

/// Returns a number with the word for one or for several.
pub(crate) fn counted(count: impl fmt::Display + PartialEq + From<u8>, one: &str, several: &str) -> String {
    let word = if count == 1.into() { one } else { several };
    format!("{count} {word}")
}

/// Whether stdout has failed: a caller that would continue to print may stop.
pub(crate) fn is_lost() -> bool {
    failed().is_some()
}

/// Returns the exit code of a command: `code`, or another one if its result could not be written. A reader that closed its
/// pipe, as `head` does, has what it wanted.
pub(crate) fn finish(code: u8) -> ExitCode {
    match &*failed() {
        Some(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            write_err(format_args!("error: cannot write the result: {error}"));
            UNDONE.into()
        }
        _ => code.into(),
    }
}

fn failed() -> MutexGuard<'static, Option<io::Error>> {
    FAILED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the reader of stdout has closed its pipe, although nothing was written since.
#[cfg(unix)]
pub(crate) fn is_hung_up() -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let stdout = rustix::stdio::stdout();
    let mut polled = [PollFd::new(&stdout, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut polled, Some(&now)).is_ok() && polled[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
}

/// Whether the reader of stdout has closed its pipe: found out by the next write on this system.
#[cfg(not(unix))]
pub(crate) fn is_hung_up() -> bool {
    false
}

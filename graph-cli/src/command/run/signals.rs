//! The signals that stop a run: Ctrl-C, SIGTERM, SIGHUP, SIGQUIT.

use std::fmt;
use std::io;

/// A signal that stops a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::command) enum Signal {
    /// Ctrl-C.
    Interrupt,
    /// SIGTERM, which `kill` sends, as does a system that shuts down.
    Terminate,
    /// SIGHUP, which is sent when a terminal is closed or a connection is lost.
    HangUp,
    /// Ctrl-\.
    Quit,
}

impl Signal {
    /// Returns its number.
    pub(in crate::command) fn number(self) -> i32 {
        match self {
            Self::HangUp => 1,
            Self::Interrupt => 2,
            Self::Quit => 3,
            Self::Terminate => 15,
        }
    }

    /// Returns the exit code that shells report for a program that the signal ended.
    pub(in crate::command) fn exit_code(self) -> u8 {
        match self {
            Self::HangUp => 129,
            Self::Interrupt => 130,
            Self::Quit => 131,
            Self::Terminate => 143,
        }
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Interrupt => "SIGINT",
            Self::Terminate => "SIGTERM",
            Self::HangUp => "SIGHUP",
            Self::Quit => "SIGQUIT",
        })
    }
}

/// The signals that arrive from now on; they no longer end the process.
#[cfg(unix)]
pub(in crate::command) struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    /// `None` if the program was started to survive the end of its terminal, as `nohup` does.
    hang_up: Option<tokio::signal::unix::Signal>,
    quit: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    pub(in crate::command) fn new() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: if ignores_hang_up() { None } else { Some(signal(SignalKind::hangup())?) },
            quit: signal(SignalKind::quit())?,
        })
    }

    pub(in crate::command) async fn next(&mut self) -> Signal {
        let hang_up = async {
            match &mut self.hang_up {
                Some(signal) => signal.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => Signal::Interrupt,
            _ = self.terminate.recv() => Signal::Terminate,
            _ = hang_up => Signal::HangUp,
            _ = self.quit.recv() => Signal::Quit,
        }
    }
}

/// Whether SIGHUP was ignored when the program was started. Only Linux reports this; elsewhere it counts as not ignored.
#[cfg(unix)]
fn ignores_hang_up() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap_or_default();
    u64::from_str_radix(ignored.trim(), 16).is_ok_and(|mask| mask & 1 == 1)
}

/// The signals that arrive from now on; they no longer end the process.
#[cfg(not(unix))]
pub(in crate::command) struct Signals;

#[cfg(not(unix))]
impl Signals {
    pub(in crate::command) fn new() -> io::Result<Self> {
        Ok(Self)
    }

    pub(in crate::command) async fn next(&mut self) -> Signal {
        if tokio::signal::ctrl_c().await.is_err() {
            // The signal cannot be received, so this waits forever.
            std::future::pending::<()>().await;
        }
        Signal::Interrupt
    }
}

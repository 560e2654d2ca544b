//! Failures of runs as commands report them, and the notes beside them.

use std::fmt;

use graph_runtime::{RunId, Value};
use serde_json::json;

use crate::outcome::Error;
use crate::output::UNDONE;

// The exit codes, as `docs/cli.md` lists them.
/// The graph has mistakes, or the run failed.
pub(in crate::command) const PROBLEMS: u8 = 1;
/// The command line or the inputs are wrong.
pub(in crate::command) const USAGE: u8 = 2;

/// The reason that there is no run, or no result.
pub(in crate::command) struct RunCommandFailure {
    pub(in crate::command) code: u8,
    pub(in crate::command) error: String,
    /// Whether it is already on stderr.
    pub(in crate::command) shown: bool,
    pub(super) run: Option<RunId>,
}

impl RunCommandFailure {
    pub(in crate::command) fn new(code: u8, error: impl fmt::Display) -> Self {
        Self { code, error: error.to_string(), shown: false, run: None }
    }

    /// Returns a failure of the command line.
    pub(in crate::command) fn usage(error: impl fmt::Display) -> Self {
        Self::new(USAGE, error)
    }

    /// Returns a failure with the texts of an error and of its causes.
    pub(in crate::command) fn of<E: std::error::Error + 'static>(code: u8, error: E) -> Self {
        Self::new(code, Error::from(error))
    }

    /// Returns the JSON that is printed in place of a run's result (R22).
    pub(super) fn result(&self) -> Value {
        let mut result = json!({"success": false, "status": "error", "error": self.error});
        if let Some(run) = &self.run {
            result["graph_run_id"] = json!(run);
        }
        result
    }
}

impl From<Error> for RunCommandFailure {
    fn from(error: Error) -> Self {
        Self::new(UNDONE, error)
    }
}

/// The setting for messages on stderr other than errors.
#[derive(Clone, Copy)]
pub(in crate::command) struct Voice {
    pub(in crate::command) quiet: bool,
}

impl Voice {
    pub(in crate::command) fn of(quiet: bool) -> Self {
        let is_wanted = std::env::var_os("RYE_GRAPH_QUIET").is_some_and(|value| !value.is_empty());
        Self { quiet: quiet || is_wanted }
    }

    pub(in crate::command) fn note(self, text: impl fmt::Display) {
        if !self.quiet {
            err!("note: {text}");
        }
    }
}

//! The status of a run.

use serde::{Deserialize, Serialize};

/// The status of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Status {
    /// It is running, or its process is gone and it waits to be resumed.
    #[default]
    Running,
    /// Nothing is left to do before something that it waits for has happened. No process holds it.
    Waiting,
    /// It ended with a result.
    Completed,
    /// It ended with a result, and continued after failures.
    CompletedWithErrors,
    /// It ended with an error; it can be resumed at the node that failed.
    Error,
    /// It was cancelled; it can be resumed after the last step that was committed.
    Cancelled,
}

impl Status {
    /// Returns the word: `running`, `completed` …
    pub const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Completed => "completed",
            Self::CompletedWithErrors => "completed_with_errors",
            Self::Error => "error",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether the run has ended, with a result or without. It may still be resumed.
    pub const fn has_ended(self) -> bool {
        !matches!(self, Self::Running | Self::Waiting)
    }

    /// Whether the run ended with a result.
    pub const fn has_result(self) -> bool {
        matches!(self, Self::Completed | Self::CompletedWithErrors)
    }
}

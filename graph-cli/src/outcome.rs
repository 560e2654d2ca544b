//! How a command ends.

use std::fmt;
use std::io;
use std::path::Path;

/// How a command that did its work ended.
pub(crate) enum Outcome {
    /// All is well.
    Well,
    /// A file is not as it should be.
    Problems,
}

impl Outcome {
    pub(crate) fn of(well: bool) -> Self {
        if well { Self::Well } else { Self::Problems }
    }
}

/// Why a command could not do its work.
pub(crate) struct Error(String);

impl Error {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }

    /// Says what could not be done with a file.
    pub(crate) fn file(what: &str, path: &Path, error: &io::Error) -> Self {
        Self(format!("cannot {what} {}: {error}", path.display()))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<E: std::error::Error> From<E> for Error {
    fn from(error: E) -> Self {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            text = format!("{text}: {error}");
            cause = error.source();
        }
        Self(text)
    }
}

/// What a command returns.
pub(crate) type Done = Result<Outcome, Error>;

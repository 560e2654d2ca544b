//! How a command ends.

use std::fmt;
use std::io;
use std::path::Path;

use graph_runtime::store::StoreError;

/// How a command that did its work ended.
pub(crate) enum CommandOutcome {
    /// All is well.
    Well,
    /// A file is not as it should be.
    Problems,
}

impl CommandOutcome {
    pub(crate) fn of(well: bool) -> Self {
        if well { Self::Well } else { Self::Problems }
    }
}

/// How a program gives the key of secrets, as errors of the library say.
const GIVES_KEY: &str = "name one with `encrypt_with`, as in `EncryptionKey::load(path)`";
/// How somebody at the command line does.
const NAMES_KEY: &str = "name one with `--encryption-key FILE`; `graph keys encryption FILE` makes it";

/// The reason that a command could not do its work.
pub(crate) struct Error {
    text: String,
    /// Whether the reason is a graph with mistakes, or one that nobody trusted has signed.
    is_of_graph: bool,
}

impl Error {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { text: message.into(), is_of_graph: false }
    }

    /// Returns the error of a graph that cannot be used because of its files.
    pub(crate) fn of_graph(message: String) -> Self {
        Self { text: message, is_of_graph: true }
    }

    pub(crate) fn is_of_graph(&self) -> bool {
        self.is_of_graph
    }

    /// Joins the texts of an error and of its causes.
    pub(crate) fn of(error: &(dyn std::error::Error + 'static)) -> Self {
        let mut text = error.to_string();
        let mut at = error;
        // The text of a store error is complete: its cause says the same in other words.
        while let Some(cause) = at.source().filter(|_| !at.is::<StoreError>()) {
            let of_cause = cause.to_string();
            // Many errors repeat their cause in their own text.
            if !text.contains(&of_cause) {
                text = format!("{text}: {of_cause}");
            }
            at = cause;
        }
        let needs_key = text.contains("secrets are encrypted with the key") && text.ends_with("which is not there");
        let help = if needs_key { ": name it with `--encryption-key FILE`" } else { "" };
        Self::new(format!("{}{help}", text.replace(GIVES_KEY, NAMES_KEY)))
    }

    /// Returns the error of an operation on a file.
    pub(crate) fn file(what: &str, path: &Path, error: &io::Error) -> Self {
        Self::new(format!("cannot {what} {}: {error}", path.display()))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl<E: std::error::Error + 'static> From<E> for Error {
    fn from(error: E) -> Self {
        Self::of(&error)
    }
}

/// The result of a command.
pub(crate) type CommandResult = Result<CommandOutcome, Error>;

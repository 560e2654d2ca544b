//! The kinds of errors, by which a caller decides.

use std::error::Error;

/// The meaning of an error for the caller, the same for every method. All errors about runs [have one](HasKind).
///
/// ```
/// # use graph_engine as graph_runtime;
/// # async fn example(runtime: graph_runtime::Runtime) -> Result<(), Box<dyn std::error::Error>> {
/// use graph_runtime::{ErrorKind, HasKind, RunId};
///
/// if let Err(error) = runtime.cancel(&RunId::new("order-17")?).await {
///     match error.kind() {
///         ErrorKind::NotFound => println!("there is no such order"),
///         kind if kind.may_be_shown() => println!("{}: {error}", kind.http_status()),
///         kind => println!("{}: see the log", kind.http_status()),
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// There is no such run, or it has nothing of that name: a question, a step. HTTP: 404.
    NotFound,
    /// There is such a run already. HTTP: 409.
    Exists,
    /// Inputs, a signal, an answer or an id cannot be read, or does not fit. Sent again, it is refused again. HTTP: 422.
    Invalid,
    /// The caller may not do that, or the runtime was not granted it. HTTP: 403.
    Denied,
    /// The run does not allow it as it is: another graph or version began it, somebody holds it, or another answer was first.
    /// HTTP: 409.
    Conflict,
    /// It came too late: the run has ended, or has stopped waiting for it. HTTP: 410.
    Late,
    /// The run waits, and has no result yet. HTTP: 202.
    Waiting,
    /// The run ended without a result: a node failed, or it reached a limit. HTTP: 500.
    Failed,
    /// The store or the runtime cannot do it now. It can be tried again. HTTP: 503.
    Unavailable,
    /// The program or its data are to be mended: a key or a feature is missing, or a journal is damaged. HTTP: 500.
    Internal,
}

impl ErrorKind {
    /// Returns the status of HTTP that fits best.
    pub fn http_status(self) -> u16 {
        match self {
            Self::Waiting => 202,
            Self::Denied => 403,
            Self::NotFound => 404,
            Self::Exists | Self::Conflict => 409,
            Self::Late => 410,
            Self::Invalid => 422,
            Self::Failed | Self::Internal => 500,
            Self::Unavailable => 503,
        }
    }

    /// Whether the message of the error can be shown to whoever asked. It names neither paths of the server nor secrets then. All
    /// other messages are for a log.
    pub fn may_be_shown(self) -> bool {
        self.http_status() < 500
    }
}

/// An error that has a kind.
///
/// A service converts all of them at one place; the page about embedding has an example.
pub trait HasKind: Error {
    /// Returns its kind.
    fn kind(&self) -> ErrorKind;
}

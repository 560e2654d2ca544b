//! Why a request has no answer.

use std::fmt;

use graph_runtime::store::StoreError;
use hyper::StatusCode;

/// Why a request has no answer: a status of HTTP, and a text that says what is wrong and how to mend it.
#[derive(Debug)]
pub(crate) struct ViewProblem {
    pub(crate) status: StatusCode,
    pub(crate) text: String,
}

impl ViewProblem {
    pub(crate) fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self { status, text: text.into() }
    }

    /// The request is malformed.
    pub(crate) fn bad(text: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, text)
    }

    /// There is nothing of that name.
    pub(crate) fn missing(text: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, text)
    }

    /// The run, its graph or its journal is not what it must be.
    pub(crate) fn unfit(text: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, text)
    }

    /// The store or a file cannot be read.
    pub(crate) fn unreadable(text: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, text)
    }

    /// An error with its causes, as one text.
    pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
        let (mut text, mut at) = (error.to_string(), error);
        // The text of a store's error is complete.
        while let Some(cause) = at.source().filter(|_| !at.is::<StoreError>()) {
            text = format!("{text}: {cause}");
            at = cause;
        }
        text
    }
}

impl fmt::Display for ViewProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<StoreError> for ViewProblem {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NotFound(run) => Self::missing(format!("there is no run `{run}`")),
            StoreError::BadCursor(_) => Self::bad(error.to_string()),
            StoreError::Unreadable { .. } => Self::unfit(error.to_string()),
            error => Self::unreadable(error.to_string()),
        }
    }
}

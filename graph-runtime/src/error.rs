//! What can go wrong while a graph runs.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use graph_model::name::RunId;
use graph_model::value::{AsView, Mismatch, Record, Value, View};

use crate::store::StoreError;

/// How a failure is to be treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Category {
    /// Trying again changes nothing.
    Permanent,
    /// It may go away by itself: a connection was refused, something took too long.
    Transient,
    /// Too much was asked for in too short a time.
    RateLimited,
    /// Somebody stopped it.
    Cancelled,
}

impl Category {
    /// Returns the word that journals and hooks use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Permanent => "permanent",
            Self::Transient => "transient",
            Self::RateLimited => "rate_limited",
            Self::Cancelled => "cancelled",
        }
    }
}

/// Why a tool failed.
///
/// Any error becomes one by `?`, as a permanent failure with the error's text and those of its causes. It is no
/// [`Error`](std::error::Error) itself, for the same reason that `anyhow::Error` is none.
pub struct ActionError {
    category: Category,
    message: String,
    data: Option<Value>,
    status: Option<u16>,
    retry_after: Option<Duration>,
}

impl ActionError {
    /// A failure that trying again does not mend.
    pub fn permanent(message: impl Into<String>) -> Self {
        Self::new(Category::Permanent, message)
    }

    /// A failure that may go away by itself.
    pub fn transient(message: impl Into<String>) -> Self {
        Self::new(Category::Transient, message)
    }

    /// A failure of the given category.
    pub fn new(category: Category, message: impl Into<String>) -> Self {
        Self { category, message: message.into(), data: None, status: None, retry_after: None }
    }

    /// Adds what the tool would have returned, for edges that look at `result` after a failure.
    #[must_use]
    pub fn with_data(mut self, data: Value) -> Self {
        self.data = Some(data);
        self
    }

    /// Adds the status that a service answered with, as HTTP's 429.
    #[must_use]
    pub fn with_status(mut self, status: u16) -> Self {
        self.status = Some(status);
        self
    }

    /// Adds how long a service wants to be left alone.
    #[must_use]
    pub fn with_retry_after(mut self, pause: Duration) -> Self {
        self.retry_after = Some(pause);
        self
    }

    /// Returns the status that a service answered with.
    pub fn status(&self) -> Option<u16> {
        self.status
    }

    /// Returns how long a service wants to be left alone.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Returns how the failure is to be treated.
    pub fn category(&self) -> Category {
        self.category
    }
}

impl<E: std::error::Error + Send + Sync + 'static> From<E> for ActionError {
    fn from(error: E) -> Self {
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            let text = error.to_string();
            // Many errors repeat their cause in their own text.
            if !message.contains(&text) {
                message = format!("{message}: {text}");
            }
            cause = error.source();
        }
        Self::permanent(message)
    }
}

impl fmt::Display for ActionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl fmt::Debug for ActionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.category.name())
    }
}

/// Why a node failed.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    /// What happened.
    pub message: String,
    /// How it is to be treated.
    pub category: Category,
    /// What the tool would have returned, as far as it got.
    pub data: Option<Value>,
}

impl Failure {
    /// A failure that trying again does not mend.
    pub fn permanent(message: impl Into<String>) -> Self {
        Self { message: message.into(), category: Category::Permanent, data: None }
    }
}

impl From<ActionError> for Failure {
    fn from(error: ActionError) -> Self {
        Self { message: error.message, category: error.category, data: error.data }
    }
}

impl Record for Failure {
    /// What `result` is to the edges of a node that failed: `status`, `error`, and what the tool got (R125).
    fn get(&self, name: &str) -> View<'_> {
        match name {
            "status" => View::Text("error"),
            "error" => View::Text(&self.message),
            other => self.data.as_ref().map_or(View::Null, |data| data.view().step(other)),
        }
    }

    fn each(&self, visit: &mut dyn FnMut(&str, View<'_>)) {
        visit("status", View::Text("error"));
        visit("error", View::Text(&self.message));
        if let Some(View::Object(data)) = self.data.as_ref().map(AsView::view) {
            data.each(&mut |name, field| {
                if !matches!(name, "status" | "error") {
                    visit(name, field);
                }
            });
        }
    }
}

/// The last failure of a node, as `state._last_error` shows it (R121).
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LastError {
    /// The node that failed.
    pub node: String,
    /// What happened.
    pub error: String,
}

impl Record for LastError {
    fn get(&self, name: &str) -> View<'_> {
        match name {
            "node" => View::Text(&self.node),
            "error" => View::Text(&self.error),
            _ => View::Null,
        }
    }

    fn each(&self, visit: &mut dyn FnMut(&str, View<'_>)) {
        visit("node", View::Text(&self.node));
        visit("error", View::Text(&self.error));
    }
}

/// A failure that the run went on after, because its graph says `on_error: continue` (R126).
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SuppressedError {
    /// The step in which it happened.
    pub step: u64,
    /// The node that failed.
    pub node: String,
    /// What happened.
    pub error: String,
}

/// Why a runtime cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A store without a key to sign its journals.
    #[error(
        "a store needs a key that signs its journals: name one with `sign_with`, as in `SecretKey::load_or_generate(directory)`"
    )]
    NoKey,
    /// A grant that can never match.
    #[error("`grant` does not understand {0}")]
    Grant(#[from] graph_model::capability::PatternError),
    /// A directory that tools were to use.
    #[error("the directory `{}` cannot be opened for tools", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// Why a run did not start. Nothing of it was kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The graph needs capabilities that were not granted, or that it does not itself permit.
    #[error("the graph `{graph}` needs {}, which was not granted", missing.join(" and "))]
    NotGranted {
        /// The graph.
        graph: String,
        /// The capabilities that are missing, each with backticks.
        missing: Vec<String>,
    },
    /// Environment variables that the graph requires are not set (R280).
    #[error("missing environment variables: {}", .0.join(", "))]
    MissingEnvironment(Vec<String>),
    /// An input is missing or of the wrong type.
    #[error("the inputs do not fit the graph `{graph}`: {mismatch}")]
    Inputs {
        /// The graph.
        graph: String,
        /// What is wrong.
        mismatch: Mismatch,
    },
    /// The operating system gave no random bytes for the run's id.
    #[error("the operating system gave no random bytes for the run's id: {0}")]
    NoRandomness(String),
    /// The journal could not be begun.
    #[error("failed to begin the journal of run `{run}`")]
    Store {
        /// The run that would have been.
        run: RunId,
        /// Why.
        source: StoreError,
    },
}

/// Why a run could not be resumed. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResumeError {
    /// The runtime has no store.
    #[error("a runtime without a store has no runs to resume")]
    NoStore,
    /// The journal could not be read, or another process is at it.
    #[error("cannot resume run `{run}`")]
    Store {
        /// The run.
        run: RunId,
        /// Why.
        source: StoreError,
    },
    /// The journal is not what the engine wrote.
    #[error("cannot resume run `{run}`: {reason}")]
    Journal {
        /// The run.
        run: RunId,
        /// What is wrong with it.
        reason: crate::record::JournalError,
    },
    /// The run is another graph's, or the graph was changed since.
    #[error("cannot resume run `{run}`: it is a run of `{found}`, not of `{expected}`")]
    AnotherGraph {
        /// The run.
        run: RunId,
        /// What the caller brought: id and digest.
        expected: String,
        /// What the journal says.
        found: String,
    },
    /// The graph cannot run here.
    #[error(transparent)]
    Start(#[from] StartError),
}

/// Why a run ended without a result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// A node failed, and nothing in the graph deals with it.
    #[error("node `{node}` failed: {}", failure.message)]
    Node {
        /// The run.
        run: RunId,
        /// The node.
        node: String,
        /// The step.
        step: u64,
        /// What happened.
        failure: Box<Failure>,
        /// The state when it happened.
        state: Box<Value>,
    },
    /// The run took more steps than the graph allows (R130).
    #[error("max steps exceeded ({max_steps})")]
    MaxSteps {
        /// The run.
        run: RunId,
        /// The graph's `max_steps`.
        max_steps: u32,
        /// The state when it happened.
        state: Box<Value>,
    },
    /// A step could not be committed. The run is kept as it was after the last step that was, and can be resumed.
    #[error("failed to commit step {step} of run `{run}`")]
    Store {
        /// The run.
        run: RunId,
        /// The step.
        step: u64,
        /// Why.
        source: StoreError,
    },
    /// The run ended, and what it returned is not of the type that the graph says.
    #[error("run `{run}` returned what it should not: {mismatch}")]
    Output {
        /// The run.
        run: RunId,
        /// What is wrong.
        mismatch: Mismatch,
    },
    /// The engine itself stopped: its task was aborted, or it has a bug.
    #[error("run `{run}` was stopped: {reason}")]
    Stopped {
        /// The run.
        run: RunId,
        /// Why.
        reason: String,
    },
}

impl RunError {
    /// Returns the run that ended.
    pub fn run(&self) -> &RunId {
        match self {
            Self::Node { run, .. }
            | Self::MaxSteps { run, .. }
            | Self::Store { run, .. }
            | Self::Output { run, .. }
            | Self::Stopped { run, .. } => run,
        }
    }
}

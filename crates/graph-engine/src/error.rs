//! What can go wrong while a graph runs.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use graph_model::name::RunId;
use graph_model::value::{AsView, Mismatch, NamedFields, Value, View};

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
    /// Every category.
    pub const ALL: [Self; 4] = [Self::Permanent, Self::Transient, Self::RateLimited, Self::Cancelled];

    /// Finds the category that is written `name`; spelling counts, case too.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|category| category.name() == name)
    }

    /// Returns the word that journals and hooks use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Permanent => "permanent",
            Self::Transient => "transient",
            Self::RateLimited => "rate_limited",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether trying again may help.
    pub const fn is_retryable(self) -> bool {
        matches!(self, Self::Transient | Self::RateLimited)
    }
}

/// Why a tool failed.
///
/// Any error becomes one by `?`, with the error's text and those of its causes; its category is then read from what it says
/// (R160). It is no [`Error`](std::error::Error) itself, for the same reason that `anyhow::Error` is none.
pub struct ActionError {
    category: Category,
    typed: bool,
    message: String,
    rare: Option<Box<Rare>>,
}

/// What few errors carry; behind a pointer, for every tool returns a place for it.
#[derive(Default)]
struct Rare {
    data: Option<Value>,
    code: Option<String>,
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

    /// A failure of the given category, whatever its text says (R142).
    pub fn new(category: Category, message: impl Into<String>) -> Self {
        Self { category, typed: true, message: message.into(), rare: None }
    }

    /// A failure of which the tool does not know the category: it is read from what the failure says (R160).
    pub fn unclassified(message: impl Into<String>) -> Self {
        Self { category: Category::Permanent, typed: false, message: message.into(), rare: None }
    }

    /// Adds what the tool would have returned, for edges that look at `result` after a failure.
    #[must_use]
    pub fn with_data(mut self, data: Value) -> Self {
        self.rare().data = Some(data);
        self
    }

    /// Adds the error code of whatever the tool called: `insufficient_quota`.
    #[must_use]
    pub fn with_code(mut self, code: impl Into<String>) -> Self {
        self.rare().code = Some(code.into());
        self
    }

    /// Adds the HTTP status that the tool was answered with; 0 stands for no answer.
    #[must_use]
    pub fn with_status(mut self, status: u16) -> Self {
        self.rare().status = Some(status);
        self
    }

    /// Adds how long whatever the tool called asks to be left alone: the header `retry-after`.
    #[must_use]
    pub fn with_retry_after(mut self, pause: Duration) -> Self {
        self.rare().retry_after = Some(pause);
        self
    }

    /// Returns how the failure is to be treated; of one that is not [typed](Self::is_typed), what holds until it is
    /// classified.
    pub fn category(&self) -> Category {
        self.category
    }

    /// Whether the tool itself said the category.
    pub fn is_typed(&self) -> bool {
        self.typed
    }

    /// Returns the error code.
    pub fn code(&self) -> Option<&str> {
        self.rare.as_ref()?.code.as_deref()
    }

    /// Returns the HTTP status.
    pub fn status(&self) -> Option<u16> {
        self.rare.as_ref()?.status
    }

    /// Returns how long to wait at least before another call.
    pub fn retry_after(&self) -> Option<Duration> {
        self.rare.as_ref()?.retry_after
    }

    fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }
}

/// Any error becomes one by `?`, those of `anyhow` and `eyre` too; so does a text.
impl<E: Into<Box<dyn std::error::Error + Send + Sync>>> From<E> for ActionError {
    fn from(error: E) -> Self {
        let error = error.into();
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
        Self::unclassified(message)
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
    /// Whether the category was said, by the tool or by the engine, rather than assumed; only what was assumed is
    /// [classified](crate::classify) by what the failure says (R142).
    pub typed: bool,
    /// What the tool would have returned, as far as it got.
    pub data: Option<Value>,
    /// The error code of whatever the tool called.
    pub code: Option<String>,
    /// The HTTP status that the tool was answered with.
    pub status: Option<u16>,
    /// How long whatever the tool called asks to be left alone.
    pub retry_after: Option<Duration>,
}

impl Failure {
    /// A failure that trying again does not mend, whatever its text says.
    pub fn permanent(message: impl Into<String>) -> Self {
        Self::from(ActionError::permanent(message))
    }

    /// A failure of the given category.
    pub(crate) fn of(category: Category, message: impl Into<String>) -> Self {
        Self::from(ActionError::new(category, message))
    }

    /// A failure that a tool tells of by what it returned; what it is, its text says.
    pub(crate) fn told(message: String, data: Value) -> Self {
        Self::from(ActionError::unclassified(message).with_data(data))
    }
}

impl From<ActionError> for Failure {
    fn from(error: ActionError) -> Self {
        let ActionError { category, typed, message, rare } = error;
        let Rare { data, code, status, retry_after } = rare.map_or_else(Rare::default, |rare| *rare);
        Self { message, category, typed, data, code, status, retry_after }
    }
}

impl NamedFields for Failure {
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
#[non_exhaustive]
pub struct LastError {
    /// The node that failed.
    pub node: String,
    /// What happened.
    pub error: String,
}

impl NamedFields for LastError {
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
#[non_exhaustive]
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
    /// A cache without a key to sign what it keeps.
    #[error(
        "a cache needs a key that signs what is in it: name one with `sign_with`, as in `SecretKey::load_or_generate(directory)`"
    )]
    NoCacheKey,
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
    /// The graph calls tools that nothing performs.
    #[error("nothing performs {}, which the graph `{graph}` calls", tools.join(" and "))]
    MissingTools {
        /// The graph.
        graph: String,
        /// The tools' ids, each with backticks.
        tools: Vec<String>,
    },
    /// Inputs that the graph requires are missing (R49).
    #[error("the inputs do not fit the graph `{graph}`: {}", missing_inputs(missing))]
    MissingInputs {
        /// The graph.
        graph: String,
        /// Their names, in the order of the schema.
        missing: Vec<String>,
    },
    /// An input is of the wrong type, or inputs break rules of the schema.
    #[error("the inputs do not fit the graph `{graph}`: {mismatch}{}", other_mismatches(others))]
    Inputs {
        /// The graph.
        graph: String,
        /// What is wrong.
        mismatch: Mismatch,
        /// What else is wrong: other rules of the schema that are broken.
        others: Vec<Mismatch>,
    },
    /// What the graph says of its inputs beyond their types cannot be checked, so the run does not start.
    #[error("cannot check the inputs of the graph `{graph}`: {reason}")]
    Schema {
        /// The graph.
        graph: String,
        /// Why not.
        reason: String,
    },
    /// The graph has secrets, its runs are written down, and there is no key to seal the secrets with.
    #[error(
        "the graph `{graph}` has secrets, and no key to seal them with where they are written down: name one with `seal_with`, as in `SealKey::load(path)`"
    )]
    NoSealKey {
        /// The graph.
        graph: String,
    },
    /// The graph has secrets, its runs are written down, and the program was built without what seals secrets.
    #[error(
        "the graph `{graph}` has secrets, which needs the feature `secrets` of `graph-runtime` where its runs are written down"
    )]
    NoCipher {
        /// The graph.
        graph: String,
    },
    /// The operating system gave no random bytes for the run's id or its secrets.
    #[error("the operating system gave no random bytes: {0}")]
    NoRandomness(String),
    /// There is a run of this id already.
    #[error("there is a run `{run}` already: resume it, or name another id")]
    Exists {
        /// The run.
        run: RunId,
    },
    /// The runtime was [shut down](crate::Runtime::shutdown), and begins no more runs.
    #[error("the runtime was shut down and begins no more runs")]
    ShutDown,
    /// The journal could not be begun.
    #[error("failed to begin the journal of run `{run}`")]
    Store {
        /// The run that would have been.
        run: RunId,
        /// Why.
        source: StoreError,
    },
}

fn other_mismatches(others: &[Mismatch]) -> String {
    others.iter().map(|mismatch| format!("; {mismatch}")).collect()
}

fn missing_inputs(missing: &[String]) -> String {
    let missing: Vec<String> = missing.iter().map(|name| format!("missing required input: '{name}'")).collect();
    missing.join(", ")
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
    #[error("cannot resume run `{run}`: it is a run of `{found}`, not of `{expected}`{}", gone_nodes(gone))]
    AnotherGraph {
        /// The run.
        run: RunId,
        /// What the caller brought: id, version and digest.
        expected: String,
        /// What the journal says.
        found: String,
        /// The nodes that the run visited, or would visit next, and that the graph that was brought has not.
        gone: Vec<String>,
    },
    /// It is a run that another began, and that goes on when the other does; or it is not the one that another began.
    #[error("cannot resume run `{run}` by itself: {}", nested(.parent.as_ref()))]
    Nested {
        /// The run.
        run: RunId,
        /// The visit that it belongs to, if it belongs to one.
        parent: Option<crate::record::Parent>,
    },
    /// Its secrets are sealed with another key.
    #[error("cannot resume run `{run}`: its secrets are sealed with the key {}, and this runtime's is {expected}", found.as_deref().unwrap_or("of nobody"))]
    AnotherSealKey {
        /// The run.
        run: RunId,
        /// The fingerprint of this runtime's key.
        expected: String,
        /// The fingerprint of the key that they are sealed with.
        found: Option<String>,
    },
    /// The graph cannot run here.
    #[error(transparent)]
    Start(#[from] StartError),
}

fn gone_nodes(gone: &[String]) -> String {
    match gone {
        [] => String::new(),
        gone => format!("; of the nodes that it visited or is to visit next, that one has no `{}`", gone.join("`, `")),
    }
}

fn nested(parent: Option<&crate::record::Parent>) -> String {
    match parent {
        Some(parent) => format!("resume `{}`, which it is part of", parent.run),
        None => "another run has the id that it would have".to_owned(),
    }
}

/// Why the history of a run cannot be told.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HistoryError {
    /// The runtime has no store.
    #[error("a runtime without a store keeps no history")]
    NoStore,
    /// The journal could not be read.
    #[error("cannot read the history of run `{run}`")]
    Store {
        /// The run.
        run: RunId,
        /// Why.
        source: StoreError,
    },
    /// The journal is not what the engine wrote.
    #[error("cannot read the history of run `{run}`: {reason}")]
    Journal {
        /// The run.
        run: RunId,
        /// What is wrong with it.
        reason: crate::record::JournalError,
    },
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
    #[error("Max steps exceeded ({max_steps})")]
    MaxSteps {
        /// The run.
        run: RunId,
        /// The graph's `max_steps`, or as many as a hook or the caller allowed.
        max_steps: u32,
        /// How many nodes were visited.
        steps: u64,
        /// The state when it happened.
        state: Box<Value>,
    },
    /// The run took longer than it may. It can be resumed after the last step that was committed, and has its time again.
    #[error("the run took longer than it may")]
    Deadline {
        /// The run.
        run: RunId,
        /// How many nodes were visited.
        steps: u64,
        /// The state after the last of them.
        state: Box<Value>,
    },
    /// Somebody stopped the run. It can be resumed after the last step that was committed.
    #[error("the run was cancelled")]
    Cancelled {
        /// The run.
        run: RunId,
        /// How many nodes were visited.
        steps: u64,
        /// The state after the last of them.
        state: Box<Value>,
    },
    /// The runtime was [shut down](crate::Runtime::shutdown). The run has not ended: it can be resumed after the last step that
    /// was committed.
    #[error("the run was stopped because the runtime was shut down; it can be resumed")]
    ShutDown {
        /// The run.
        run: RunId,
        /// How many nodes were visited.
        steps: u64,
        /// The state after the last of them.
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
            | Self::Deadline { run, .. }
            | Self::Cancelled { run, .. }
            | Self::ShutDown { run, .. }
            | Self::Store { run, .. }
            | Self::Output { run, .. }
            | Self::Stopped { run, .. } => run,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_category_is_found_by_its_name() {
        for category in Category::ALL {
            assert_eq!(Category::named(category.name()), Some(category));
        }
        assert_eq!(Category::named("any"), None);
        assert_eq!(Category::named("Transient"), None);
    }

    #[test]
    fn a_failure_carries_all_that_the_tool_said() {
        let error = ActionError::unclassified("busy")
            .with_code("rate_limit")
            .with_status(429)
            .with_retry_after(Duration::from_secs(7))
            .with_data(Value::Bool(true));
        assert_eq!(
            (error.code(), error.status(), error.retry_after()),
            (Some("rate_limit"), Some(429), Some(Duration::from_secs(7)))
        );
        let expected = Failure {
            message: "busy".into(),
            category: Category::Permanent,
            typed: false,
            data: Some(Value::Bool(true)),
            code: Some("rate_limit".into()),
            status: Some(429),
            retry_after: Some(Duration::from_secs(7)),
        };
        assert_eq!(Failure::from(error), expected);
    }

    #[test]
    fn any_error_of_an_application_becomes_one_by_question_mark() {
        fn anyhow() -> Result<(), ActionError> {
            use anyhow::Context;
            Err(std::io::Error::other("connection refused")).context("the shop does not answer")?;
            Ok(())
        }
        fn boxed() -> Result<(), ActionError> {
            Err(Box::<dyn std::error::Error + Send + Sync>::from("no"))?;
            Ok(())
        }
        fn text() -> Result<(), ActionError> {
            Err("no")?;
            Ok(())
        }
        fn own() -> Result<(), ActionError> {
            Err(ActionError::transient("no").with_status(503))?;
            Ok(())
        }
        let error = anyhow().unwrap_err();
        assert_eq!(error.to_string(), "the shop does not answer: connection refused");
        assert!(!error.is_typed());
        assert_eq!((boxed().unwrap_err().to_string(), text().unwrap_err().to_string()), ("no".into(), "no".into()));
        assert_eq!((own().unwrap_err().status(), own().unwrap_err().is_typed()), (Some(503), true));
    }

    #[test]
    fn only_a_category_that_was_said_counts_as_said() {
        let by_question_mark = ActionError::from(std::io::Error::other("connection refused"));
        assert!(!by_question_mark.is_typed());
        assert!(ActionError::permanent("no").is_typed());
        assert!(ActionError::transient("later").is_typed());
        assert!(Failure::permanent("no").typed);
    }

    #[test]
    fn an_error_is_small_as_long_as_it_carries_nothing_rare() {
        assert!(size_of::<ActionError>() <= 40);
    }
}

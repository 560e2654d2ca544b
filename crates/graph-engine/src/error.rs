//! Errors of building a runtime, and of starting, resuming and executing runs.

use std::path::PathBuf;

use graph_model::name::RunId;
use graph_model::timestamp;
use graph_model::value::{Mismatch, Value};

use crate::failure::Failure;
use crate::kind::{ErrorKind, HasKind};
use crate::machine::{Machine, shown};
use crate::record::{JournalError, Start};
use crate::run_secrets::SecretsError;
use crate::step::{too_many_nested_steps, too_many_visits};
use crate::store::{StoreError, Wait};

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

impl HasKind for BuildError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::NoKey | Self::NoCacheKey | Self::Grant(_) | Self::Directory { .. } => ErrorKind::Internal,
        }
    }
}

/// Why a run in a store cannot be used: read, continued, or sent something.
///
/// The errors of methods about such runs have it as their variant `Stored`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoredRunError {
    /// There is no store, it has no such run, the run is held or has ended, or the store failed.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// The journal is not what the engine wrote.
    #[error("run `{run}`: {reason}")]
    Journal {
        /// The run.
        run: RunId,
        /// The mistake in the journal.
        reason: JournalError,
    },
    /// The run is another graph's, or the graph was changed since.
    #[error("run `{run}` is a run of `{found}`, not of `{expected}`{}", gone_nodes(gone))]
    AnotherGraph {
        /// The run.
        run: RunId,
        /// The graph that the caller passed: id, version and digest.
        expected: String,
        /// The graph that the journal names.
        found: String,
        /// The nodes that the run visited, or would visit next, and that the passed graph does not have, where that is known.
        gone: Vec<String>,
    },
    /// The run is inside another one, which it continues and ends with.
    #[error(
        "run `{run}` is inside run `{outer}`: name the outermost run, and the path of the wait if something is sent"
    )]
    Inside {
        /// The run.
        run: RunId,
        /// The run around it.
        outer: RunId,
    },
    /// Its secrets are encrypted with another key.
    #[error("the secrets of run `{run}` are encrypted with the key {}, and this runtime's is {expected}", found.as_deref().unwrap_or("of nobody"))]
    AnotherEncryptionKey {
        /// The run.
        run: RunId,
        /// The fingerprint of this runtime's key.
        expected: String,
        /// The fingerprint of the key that they are encrypted with.
        found: Option<String>,
    },
    /// Its secrets cannot be read here.
    #[error(transparent)]
    Secrets(#[from] SecretsError),
}

impl HasKind for StoredRunError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Store(error) => error.kind(),
            Self::AnotherGraph { .. } | Self::Inside { .. } => ErrorKind::Conflict,
            Self::Journal { .. } | Self::AnotherEncryptionKey { .. } => ErrorKind::Internal,
            Self::Secrets(error) => error.kind(),
        }
    }
}

impl StoredRunError {
    /// Returns the function that makes the error of a mistake in the journal of a run.
    pub fn journal(run: &RunId) -> impl Fn(JournalError) -> Self + '_ {
        |reason| Self::Journal { run: run.clone(), reason }
    }

    /// Makes the error of a run that does not continue under a graph. `gone` are its nodes that the graph does not have.
    pub(crate) fn another_graph(run: &RunId, start: &Start, machine: &dyn Machine, gone: Vec<String>) -> Self {
        Self::AnotherGraph { run: run.clone(), expected: shown(machine), found: start.shown_graph(), gone }
    }

    /// Fails unless the secrets of a run are encrypted with the key of a fingerprint.
    pub(crate) fn unless_encrypted_with(
        expected: Option<String>,
        run: &RunId,
        found: Option<&String>,
    ) -> Result<(), Self> {
        if expected.as_ref() == found {
            return Ok(());
        }
        let (run, expected, found) = (run.clone(), expected.unwrap_or_default(), found.cloned());
        Err(Self::AnotherEncryptionKey { run, expected, found })
    }
}

/// Why a run did not start. Nothing of it was kept.
///
/// The example of [`Runtime::start`](crate::Runtime::start) distinguishes two causes.
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
    /// Channels of the graph are combined by functions of the program that are not there.
    #[error(
        "channels of the graph `{graph}` are combined by {}, functions of a program: run it in that program, or give the \
         library these reducers",
        reducers.join(" and ")
    )]
    MissingReducers {
        /// The graph.
        graph: String,
        /// The ids of the reducers, each with backticks.
        reducers: Vec<String>,
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
        /// The first mismatch.
        mismatch: Mismatch,
        /// The other mismatches: further rules of the schema that are broken.
        others: Vec<Mismatch>,
    },
    /// The run cannot begin at the entry, pause at the nodes, or share the keys that were named.
    #[error("the run of the graph `{graph}` cannot begin: {reason}")]
    Begin {
        /// The graph.
        graph: String,
        /// Why not.
        reason: String,
    },
    /// The graph's rules for its inputs beyond their types cannot be checked, so the run does not start.
    #[error("cannot check the inputs of the graph `{graph}`: {reason}")]
    Schema {
        /// The graph.
        graph: String,
        /// Why not.
        reason: String,
    },
    /// The secrets of the graph cannot be kept, or there is no randomness for the id of the run.
    #[error(transparent)]
    Secrets(#[from] SecretsError),
    /// The graph can wait, and the runtime has no store in which its runs wait.
    #[error(
        "the graph `{graph}` can wait, which needs a store that keeps its runs until then: name one with `Builder::store`, or with `graph run --store FILE`"
    )]
    NoStore {
        /// The graph.
        graph: String,
    },
    /// The graph can wait, and is nested by a call whose id is computed: such a run does not wait.
    #[error(
        "the graph `{graph}` can wait, and runs inside other graphs only where they name it: a call whose id is computed runs no graph that waits"
    )]
    WaitsInside {
        /// The graph.
        graph: String,
    },
    /// The runtime was [shut down](crate::Runtime::shutdown), and begins no more runs.
    #[error("the runtime was shut down and begins no more runs")]
    ShutDown,
    /// The journal could not be begun: there is such a run already, or the store failed.
    #[error("{0}")]
    Store(#[from] StoreError),
}

impl HasKind for StartError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::NotGranted { .. } => ErrorKind::Denied,
            Self::MissingInputs { .. } | Self::Inputs { .. } | Self::Begin { .. } => ErrorKind::Invalid,
            Self::ShutDown => ErrorKind::Unavailable,
            Self::MissingEnvironment(_)
            | Self::MissingTools { .. }
            | Self::MissingReducers { .. }
            | Self::Schema { .. }
            | Self::NoStore { .. }
            | Self::WaitsInside { .. } => ErrorKind::Internal,
            Self::Secrets(error) => error.kind(),
            Self::Store(error) => error.kind(),
        }
    }
}

fn other_mismatches(others: &[Mismatch]) -> String {
    others.iter().map(|mismatch| format!("; {mismatch}")).collect()
}

fn missing_inputs(missing: &[String]) -> String {
    let missing: Vec<String> = missing.iter().map(|name| format!("missing required input: '{name}'")).collect();
    missing.join(", ")
}

/// Why a run could not be resumed. Nothing was changed.
///
/// The example of [`Runtime::resume_all`](crate::Runtime::resume_all) prints it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResumeError {
    /// The run cannot be read or continued.
    #[error(transparent)]
    Stored(StoredRunError),
    /// A run was to be started with an id that a run has, and that one began otherwise.
    #[error("there is a run `{run}` already, and it began otherwise: {how}")]
    Begun {
        /// The run.
        run: RunId,
        /// How it began, or in which inputs it differs.
        how: String,
    },
    /// The graph cannot run here.
    #[error(transparent)]
    Start(#[from] StartError),
}

impl<E: Into<StoredRunError>> From<E> for ResumeError {
    fn from(error: E) -> Self {
        Self::Stored(error.into())
    }
}

impl ResumeError {
    /// Whether somebody else holds the run.
    pub(crate) fn is_leased(&self) -> bool {
        matches!(self, Self::Stored(StoredRunError::Store(StoreError::Leased { .. })))
    }
}

impl HasKind for ResumeError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Stored(error) => error.kind(),
            Self::Begun { .. } => ErrorKind::Exists,
            Self::Start(error) => error.kind(),
        }
    }
}

fn gone_nodes(gone: &[String]) -> String {
    match gone {
        [] => String::new(),
        gone => format!("; of the nodes that it visited or is to visit next, that one has no `{}`", gone.join("`, `")),
    }
}

/// Names the nodes that wait, the signals that they wait for, and the earliest time at which that is over.
fn at_nodes(waits: &[Wait]) -> String {
    let mut nodes: Vec<&str> = waits.iter().map(|wait| wait.node.as_str()).collect();
    nodes.dedup();
    let due = waits.iter().filter_map(|wait| wait.due).min().map(timestamp::from_unix_milliseconds);
    let due = due.map_or_else(String::new, |due| format!(", until {}", timestamp::milliseconds(due)));
    let listening = waits.iter().filter(|wait| wait.ask.is_none());
    let mut signals: Vec<&str> = listening.flat_map(|wait| &wait.signals).map(String::as_str).collect();
    signals.sort_unstable();
    signals.dedup();
    let asked: Vec<&str> = waits.iter().filter(|wait| wait.ask.is_some()).map(|wait| wait.id.as_str()).collect();
    let signals = (!signals.is_empty()).then(|| format!("the signal `{}`", signals.join("` or `")));
    let answers = (!asked.is_empty()).then(|| format!("an answer to `{}`", asked.join("` or `")));
    let events: Vec<String> = signals.into_iter().chain(answers).collect();
    let events = if events.is_empty() { String::new() } else { format!(" for {}", events.join(" or ")) };
    format!("at `{}`{events}{due}", nodes.join("`, `"))
}

/// Why a run ended without a result.
///
/// The example of [`Canceller`](crate::Canceller) distinguishes two causes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// A node failed, and nothing in the graph handles the failure.
    #[error("node `{node}` failed: {}", failure.message)]
    Node {
        /// The run.
        run: RunId,
        /// The node.
        node: String,
        /// The number of the visit.
        step: u64,
        /// How many visits were committed before.
        steps: u64,
        /// The failure.
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
    /// The run would have visited a node more often than the graph's `limits.visits` allows.
    #[error("{}", too_many_visits(*max_visits, node))]
    MaxVisits {
        /// The run.
        run: RunId,
        /// The node.
        node: String,
        /// How often the run may visit one node.
        max_visits: u32,
        /// How many nodes were visited.
        steps: u64,
        /// The state when it happened.
        state: Box<Value>,
    },
    /// The run would have taken more steps than a `limits.steps` allows: that of its graph, or of a run or node around it.
    #[error("{}", too_many_nested_steps(*max_steps))]
    MaxNestedSteps {
        /// The run.
        run: RunId,
        /// The limit.
        max_steps: u64,
        /// How many nodes were visited, without those of the runs inside it.
        steps: u64,
        /// The state when it happened.
        state: Box<Value>,
    },
    /// Nothing is left to do before something that the run waits for has happened. The run is in its store, and continues when
    /// it is resumed then.
    #[error("the run waits {}", at_nodes(waits))]
    Waiting {
        /// The run.
        run: RunId,
        /// How many nodes were visited.
        steps: u64,
        /// The waits that are open, in the order of their visits.
        waits: Vec<Wait>,
        /// The state after the last visit.
        state: Box<Value>,
    },
    /// The run exceeded its time limit. It can be resumed after the last step that was committed, and has its full time
    /// again.
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
    /// A step could not be committed. The run is kept as it was after the last committed step, and can be resumed.
    #[error("failed to commit step {step} of run `{run}`")]
    Store {
        /// The run.
        run: RunId,
        /// The step.
        step: u64,
        /// Why.
        source: StoreError,
    },
    /// The run ended, but its output is not of the type that the graph declares.
    #[error("run `{run}` returned what it should not: {mismatch}")]
    Output {
        /// The run.
        run: RunId,
        /// The mismatch.
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
            | Self::MaxVisits { run, .. }
            | Self::MaxNestedSteps { run, .. }
            | Self::Waiting { run, .. }
            | Self::Deadline { run, .. }
            | Self::Cancelled { run, .. }
            | Self::ShutDown { run, .. }
            | Self::Store { run, .. }
            | Self::Output { run, .. }
            | Self::Stopped { run, .. } => run,
        }
    }
}

impl HasKind for RunError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Node { .. }
            | Self::MaxSteps { .. }
            | Self::MaxVisits { .. }
            | Self::MaxNestedSteps { .. }
            | Self::Deadline { .. } => ErrorKind::Failed,
            Self::Waiting { .. } => ErrorKind::Waiting,
            Self::Cancelled { .. } => ErrorKind::Conflict,
            Self::ShutDown { .. } => ErrorKind::Unavailable,
            Self::Store { source, .. } => source.kind(),
            Self::Output { .. } | Self::Stopped { .. } => ErrorKind::Internal,
        }
    }
}

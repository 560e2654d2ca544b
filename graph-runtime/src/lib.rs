//! Runs state graphs that `graph-compiler` compiled: dispatch, durable commits, capabilities, audit trail.
//!
//! A program includes its graphs with a build script and [`include_graphs!`], or one by one with [`graph!`]. It builds a
//! [`Runtime`], names a store and grants capabilities, and starts runs:
//!
//! ```no_run
//! # #[cfg(feature = "macros")] mod graphs { graph_runtime::graph!("graphs/project_stats.yaml"); }
//! # #[cfg(all(feature = "macros", feature = "sqlite"))]
//! # async fn start() -> Result<(), Box<dyn std::error::Error>> {
//! # use graph_runtime::{Builtins, Runtime, SecretKey, SqliteStore};
//! # use graphs::{ProjectStats, project_stats};
//! let runtime = Runtime::builder()
//!     .store(SqliteStore::open("runs.db").await?)
//!     .sign_with(SecretKey::load_or_generate("keys".as_ref())?)
//!     .grant("rye.execute.tool.rye.bash")?
//!     .build()?;
//! let inputs = project_stats::Inputs { directory: ".".into(), ..Default::default() };
//! let run = runtime.start(ProjectStats::new(Builtins), inputs).await?;
//! let stats: project_stats::Output = run.await?.output;
//! # Ok(())
//! # }
//! ```
//!
//! # Types that may grow
//!
//! Errors, statuses, events, records and results of runs are `#[non_exhaustive]`: a new version may add to them. Types with
//! which a program sets options ([`Options`], [`RunFilter`](store::RunFilter), [`Page`](store::Page),
//! [`Retention`](store::Retention), [`ResumeAll`], `Single`, `history::Fork`,
//! `history::StateEdit`) are written with
//! `..Default::default()`, and may grow too. [`SignedRecord`](record::SignedRecord) and [`Within`](store::Within) do not change, because
//! a store must know all of their fields.

#![cfg_attr(docsrs, feature(doc_cfg))]
// Libraries report through values and `tracing`; only the command line prints.
#![warn(clippy::print_stdout, clippy::print_stderr)]

#[cfg(feature = "dynamic")]
pub mod dynamic;
mod main_error;
mod performers;
pub mod versions;

pub use main_error::MainError;
pub use performers::{Builtins, Dispatch, RuntimeCall, RuntimeTools};
pub use versions::{VersionError, Versions};

#[cfg(feature = "progress")]
pub use graph_engine::Progress;
#[cfg(feature = "tasks")]
pub use graph_engine::Tasks;
#[cfg(feature = "events")]
#[doc(inline)]
pub use graph_engine::events;
#[cfg(feature = "tasks")]
#[doc(inline)]
pub use graph_engine::tasks;
#[doc(inline)]
pub use graph_engine::{
    ActionError, AnswerError, Arguments, AsView, BoxFuture, BuildError, Builder, Call, CallFuture, CancelToken,
    Canceller, Category, Classifier, Clock, Control, Digest, Durability, Edge, EncryptionKey, ErrorKind, Failure,
    Fingerprint, Finished, FromValue, Grants, Graph, GraphId, HasKind, HookContext, Hooks, IndexMap, ItemId, KeyError,
    LastError, Layer, Machine, ManualClock, Map, MemoryStore, Mismatch, NamedAnswer, NamedSignal, Number, Observer,
    Options, OutcomeError, Pattern, PerformItems, PublicKey, RecordedOutcome, ReducerError, ResumeAll, ResumeError,
    Resumed, Run, RunError, RunId, RunOutcome, Runtime, Secret, SecretKey, SecretsError, SignalError, SignalledRun,
    Sleeping, StartError, StateFields, Status, Store, StoredRunError, SuppressedError, SystemClock, Thread, Threads,
    TokioClock, ToolCaller, ToolSettings, Value, When, Worker, WorkerError, WorkerOptions, WorkerStatus,
    recorded_outcome,
};
#[cfg(feature = "schedules")]
#[doc(inline)]
pub use graph_engine::{
    CatchUp, Overlap, Schedule, ScheduleError, ScheduleId, ScheduleState, Timetable, TimetableError,
};
#[doc(inline)]
pub use graph_engine::{cache, classify, hooks, machine, observer, threads};
#[cfg(feature = "items")]
#[doc(inline)]
pub use graph_items as items;
#[cfg(feature = "items")]
pub use graph_items::Spaces;
#[cfg(feature = "macros")]
pub use graph_macros::include_graphs;
#[cfg(feature = "files")]
#[doc(inline)]
pub use graph_project_files as files;
#[cfg(feature = "files")]
pub use graph_project_files::ProjectFiles;
#[cfg(feature = "proof")]
#[doc(inline)]
pub use graph_proof::history;
#[cfg(feature = "proof")]
#[doc(inline)]
pub use graph_proof::history::{EditRun, ForkRun};
#[cfg(feature = "proof")]
#[doc(inline)]
pub use graph_proof::stats;
#[cfg(feature = "proof")]
#[doc(inline)]
pub use graph_proof::{
    Approval, Approver, Attestation, AttestationError, Audit, AuditError, Edges, Fired, SignalSummary, Single,
    SingleError, StepOnce, Stepped, attest, audit, audit_tree, prove_tree,
};
#[cfg(feature = "tools")]
#[doc(inline)]
pub use graph_tools as tools;
#[cfg(feature = "http")]
pub use graph_tools::HttpPolicy;
#[cfg(feature = "tools")]
pub use graph_tools::ToolConfig;

pub mod answer {
    //! Answers: what people say to the interrupts of runs, signed with their keys.

    #[doc(inline)]
    pub use graph_engine::answer::*;
    #[doc(inline)]
    pub use graph_engine::dsse::{Envelope, EnvelopeError, Signature};
    #[doc(inline)]
    pub use graph_engine::questions;
    #[cfg(feature = "answers")]
    #[doc(inline)]
    pub use graph_signing::{KeyFile, KeyFileError, KeyRing, RejectedKey, SignatureError};
}

pub mod record {
    //! Records: the journal of a run, a chain of signed JSON texts.

    #[doc(inline)]
    pub use graph_engine::record::{
        Arrival, BranchMemory, Calls, ChangeError, Continuation, Done, Edit, End, Entry, FIRST_VERSION, FanOut,
        Follower, Head, InBranch, ItemFailure, Join, JournalError, OpenWait, Opened, Origin, Parent, Payload, Record,
        Resume, SignedRecord, Snapshot, Start, StateChanges, Status, Step, Take, TakenSignal, TakenWait, Target,
        TaskOrigin, VERSION, Visit, VisitFailure, hide_encrypted, verified_start,
    };
}

pub mod store {
    //! Stores of journals.

    #[doc(inline)]
    pub use graph_engine::store::*;
    #[cfg(feature = "sqlite")]
    #[doc(inline)]
    pub use graph_sqlite::{SqliteOptions, SqliteStore};
}

#[cfg(feature = "sqlite")]
#[doc(inline)]
pub use graph_sqlite::{SqliteOptions, SqliteStore};

#[cfg(feature = "testing")]
pub mod testing {
    //! Tests of graphs in Rust. For `[dev-dependencies]`.

    #[cfg(feature = "macros")]
    #[doc(inline)]
    pub use graph_macros::graph_test;
    #[doc(inline)]
    pub use graph_testkit::*;
}

/// Compiles the graph at a path, relative to the package, into a module of its own, and the machine beside the module.
///
/// Mistakes in the graph are errors of the program, at their place in the graph's file. It is better to compile the graphs of
/// a tree together, with a build script and [`include_graphs!`]: then graphs may nest each other, and new files are noticed.
///
/// ```
/// # #[cfg(feature = "tools")]
/// # mod example {
/// mod graphs {
///     graph_runtime::graph!("graphs/project_stats.yaml");
/// }
/// use graphs::{ProjectStats, project_stats};
/// # fn inputs() -> project_stats::Inputs {
/// #     drop(ProjectStats::new(graph_runtime::Builtins));
/// #     project_stats::Inputs::default()
/// # }
/// # }
/// ```
///
/// The [crate's documentation](crate) shows how to run this graph.
///
/// The contracts of the graph's tools are in its module `tools`: for each its types, and the trait that the program implements.
/// `graph!("old/order.yaml", tools = crate::order::tools)` takes the contracts that are equal in another module from there, so that
/// one implementation serves both. The path begins with `crate::`.
#[cfg(feature = "macros")]
#[macro_export]
macro_rules! graph {
    ($path:tt $(, tools = $tools:path)? $(,)?) => {
        $crate::__private::graph! { $crate [$($tools)?] $path }
    };
}

/// Takes the place of nothing where a graph with rules is used, if they cannot be checked.
#[cfg(not(feature = "schema"))]
#[doc(hidden)]
#[macro_export]
macro_rules! __rules_need_schema {
    () => {
        // In a generic function: an error of the build, unless the function is not called.
        const {
            ::core::panic!(
                "the graph or a tool of it has rules, such as `minimum` or `pattern`, which need the feature `schema` of `graph-runtime`"
            )
        }
    };
}

/// The items that generated code uses: those of [`graph_engine`], and the procedural macro behind `graph!`, which needs the
/// path of this crate. They are not for use by hand.
#[doc(hidden)]
pub mod __private {
    #[cfg(not(feature = "schema"))]
    pub use crate::__rules_need_schema as rules;
    #[cfg(feature = "schema")]
    pub use graph_engine::__left_out as rules;
    #[cfg(not(feature = "testing"))]
    pub use graph_engine::__left_out as testing;
    pub use graph_engine::__private::*;
    #[cfg(feature = "testing")]
    pub use graph_engine::__taken as testing;
    #[cfg(feature = "testing")]
    pub use graph_testkit::{FakeTool, Fakes, fake};
    #[cfg(feature = "tools")]
    pub use graph_tools::{builtin, mcp, subprocess};
    #[cfg(not(feature = "tools"))]
    pub use without_tools::{builtin, mcp, subprocess};

    /// Replaces the built-in tools: a graph that calls one does not compile, and rustc names the feature that it needs.
    #[cfg(not(feature = "tools"))]
    mod without_tools {
        use graph_engine::{ActionError, Call};

        /// The parameters of a tool that the runtime performs. No type implements it without the feature `tools`.
        #[diagnostic::on_unimplemented(
            message = "the graph calls a tool that the runtime performs, which needs the feature `tools` of `graph-runtime`"
        )]
        pub trait NeedsTools: Send {}

        /// Takes the place of a built-in tool.
        ///
        /// # Errors
        ///
        /// Always.
        pub async fn builtin<P: NeedsTools, R>(id: &str, _: &Call, _: P) -> Result<R, ActionError> {
            Err(ActionError::permanent(format!("`{id}` needs the feature `tools` of `graph-runtime`")))
        }

        /// Takes the place of a tool that is a program.
        ///
        /// # Errors
        ///
        /// Always.
        pub async fn subprocess<P: NeedsTools, R>(_: &str, _: &Call, _: P) -> Result<R, ActionError> {
            Err(ActionError::permanent("a tool that is a program needs the feature `tools` of `graph-runtime`"))
        }

        /// Takes the place of a tool of a server.
        ///
        /// # Errors
        ///
        /// Always.
        pub async fn mcp<P: NeedsTools, R>(_: &str, _: &Call, _: P) -> Result<R, ActionError> {
            Err(ActionError::permanent("a tool of a server needs the feature `tools` of `graph-runtime`"))
        }
    }
    #[cfg(feature = "macros")]
    pub use graph_macros::graph;
}

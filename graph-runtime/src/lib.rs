//! Runs state graphs that `graph-compiler` compiled: dispatch, durable commits, capabilities, audit trail.
//!
//! A program gets its graphs from a build script and [`include_graphs!`], or one by one with [`graph!`]. It makes a
//! [`Runtime`], names a store and grants capabilities, and starts runs:
//!
//! ```no_run
//! # #[cfg(feature = "macros")] mod graphs { graph_runtime::graph!("../graphs/project_stats.yaml"); }
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
//! # What may grow
//!
//! Errors, statuses, events, records and what a run returns are `#[non_exhaustive]`: a new version may say more. What a program writes to
//! say how something is done ([`Options`], [`RunFilter`](store::RunFilter), [`Page`](store::Page), [`Retention`](store::Retention),
//! [`ResumeAll`], [`Single`], [`Fork`](travel::Fork)) is written with `..Default::default()` and may grow too. What a store must
//! know whole is neither and stays as it is: [`Sealed`](record::Sealed) and [`Within`](store::Within).

// Libraries speak through values and `tracing`; only the command line prints.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod attest;
mod audit;
mod backoff;
pub mod cache;
mod call;
pub mod classify;
mod clock;
mod confined;
#[cfg(feature = "dynamic")]
pub mod dynamic;
mod edges;
mod engine;
mod error;
#[cfg(feature = "files")]
pub mod files;
mod gate;
mod graph;
pub mod hooks;
pub mod items;
pub mod machine;
mod macros;
pub mod observer;
mod outcome;
pub mod record;
mod run;
mod runtime;
mod schema;
mod seal;
mod single;
mod step;
mod stop;
pub mod store;
pub mod threads;
pub mod tools;
pub mod travel;
mod vault;

#[cfg(feature = "macros")]
pub use graph_macros::include_graphs;
pub use graph_model::capability::{Grants, Pattern};
pub use graph_model::condition::When;
pub use graph_model::digest::Digest;
pub use graph_model::name::{GraphId, ItemId, RunId};
pub use graph_model::number::Number;
pub use graph_model::program::Edge;
pub use graph_model::secret::Secret;
pub use graph_model::signature::{Fingerprint, KeyError, PublicKey, SecretKey};
pub use graph_model::value::{FromValue, IndexMap, Map, Mismatch, Value};

pub use attest::{Attestation, AttestationError, attest};
pub use audit::{Audit, AuditError, audit, audit_tree};
pub use call::Call;
pub use classify::Classifier;
pub use clock::{Clock, ManualClock, Sleeping, SystemClock, TokioClock};
pub use edges::{Edges, Fired};
pub use engine::Durability;
pub use error::{
    ActionError, BuildError, Category, Failure, HistoryError, LastError, ResumeError, RunError, StartError,
    SuppressedError,
};
#[cfg(feature = "files")]
pub use files::ProjectFiles;
pub use hooks::{Control, Hooks, Layer, Told};
pub use items::Spaces;
pub use machine::{Arguments, Calling, Cells, Graph, Lane, Machine};
pub use observer::{Observer, Progress};
pub use outcome::{OutcomeError, ResumeAll, Resumed, RunOutcome};
pub use record::Status;
pub use run::{Canceller, Finished, Run};
pub use runtime::{BoxFuture, Builder, Options, Runtime};
pub use seal::{SealKey, SealKeyError};
pub use single::{Single, SingleError, Stepped};
pub use stop::CancelToken;
pub use store::{MemoryStore, Store};
#[cfg(feature = "sqlite")]
pub use store::{SqliteOptions, SqliteStore};
pub use threads::{Thread, Threads};
#[cfg(feature = "http")]
pub use tools::HttpPolicy;
pub use tools::{Builtins, ToolConfig};

/// Compiles the graph at a path, relative to the package, into a module of its own and the machine beside it.
///
/// What is wrong with the graph is an error of the program, in the graph's file. Graphs of a tree are better compiled together, by a
/// build script and [`include_graphs!`]: then graphs may nest each other, and new files are seen.
#[cfg(feature = "macros")]
#[macro_export]
macro_rules! graph {
    ($path:tt) => {
        $crate::__private::graph! { $crate $path }
    };
}

/// What our own benchmarks measure and no program calls.
#[doc(hidden)]
pub mod __measured {
    pub use crate::step::settle_often;
}

/// What generated code calls. Nothing in here is for people, and what is in here without being public elsewhere is:
///
/// | item | why generated code needs it |
/// |---|---|
/// | `graph` | the procedural macro behind `graph!`, which has to be told the path of this crate |
/// | `object`, `default`, `word`, `exits` | implement views, reading, `Default` and `serde` for the structs and enums of a graph, so that a type costs one line of generated code |
/// | `cells`, `node` | implement the state and `serde` for the node enum, for the same reason |
/// | `Struct`, `fits`, `put`, `view`, `blank`, `from_value` | what those macros expand to: fields by index, with no code for each type in each program |
/// | `debug_cells`, `deserialize`, `no_such_exit`, `serde` | what those macros expand to and is the same for all types |
/// | `NoTools`, `no_such_tool` | the lane of a graph without tools; an index that only a journal of another graph has |
/// | `builtin`, `subprocess` | perform the tools that the program leaves to the runtime |
/// | `stand_in` | the body of all functions of a graph with mistakes, so that nothing more is wrong with the program |
/// | `LazyGraph`, `Arc` | the tables are resolved when they are used first; tools are shared |
///
/// All else is public where it belongs, mostly in [`machine`](crate::machine), and is here so that generated code names one module and
/// nothing that a program could shadow.
#[doc(hidden)]
pub mod __private {
    #[cfg(feature = "macros")]
    pub use graph_macros::graph;
    pub use graph_model::program::{ItemType, Key, Param, Performer, Program, Tool, Verb};
    pub use graph_model::value::{AsView, FromValue, Mismatch, Struct, Value, View, fits, put};
    pub use serde;

    pub use crate::graph::CompiledGraph;
    pub use crate::machine::{Arguments, Calling, Cells, Lane};
    pub use crate::macros::{NoTools, debug_cells, deserialize, no_such_exit, no_such_tool, stand_in};
    pub use crate::tools::{builtin, subprocess};
    pub use crate::{
        __cells as cells, __default as default, __exits as exits, __node as node, __object as object, __word as word,
    };
    pub use std::sync::Arc;

    /// A compiled graph, resolved when it is first used.
    pub type LazyGraph = std::sync::LazyLock<CompiledGraph>;

    /// Looks at a value.
    #[inline]
    pub fn view<T: AsView>(value: &T) -> View<'_> {
        value.view()
    }

    /// Stands in for a value that is about to be read.
    #[inline]
    pub fn blank<T: FromValue>() -> T {
        T::blank()
    }

    /// Makes a value of JSON.
    ///
    /// # Errors
    ///
    /// If it is of another type.
    pub fn from_value<T: FromValue>(value: Value) -> Result<T, Mismatch> {
        T::from_value(value)
    }
}

//! Runs compiled state graphs: the meaning of a step, the engine that takes steps, its journal, and the traits that a run
//! needs.
//!
//! Programs depend on `graph-runtime`, which re-exports the parts of this crate that they need. Stores, machines and
//! observers are written against this crate.

#![cfg_attr(docsrs, feature(doc_cfg))]
// Libraries speak through values and `tracing`; only the command line prints.
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod activation;
pub mod address;
pub mod admission;
pub mod answer;
mod answering;
mod attach;
mod backoff;
pub mod cache;
pub mod call;
mod cipher;
pub mod classify;
mod clock;
pub mod dsse;
mod encryption_key;
pub mod engine;
mod error;
#[cfg(feature = "events")]
pub mod events;
pub mod failure;
mod future;
mod gate;
pub mod graph;
mod graphless;
pub mod hooks;
mod inside;
mod kind;
pub mod machine;
mod macros;
mod meter;
pub mod observer;
mod outcome;
pub mod past;
pub mod payload;
mod perform_items;
mod receive;
pub mod record;
mod replay;
mod resume;
mod run;
pub mod run_secrets;
pub mod runtime;
mod schedule;
#[cfg(feature = "schedules")]
mod schedules;
pub mod schema;
pub mod services;
pub mod signal;
mod signed_answer;
pub mod single;
pub mod start;
pub mod state;
mod status;
pub mod step;
mod stop;
pub mod store;
#[cfg(feature = "tasks")]
pub mod tasks;
pub mod threads;
pub mod tool_caller;
pub mod versions;
pub mod wait;
mod worker;

pub use graph_model::capability::{Grants, Pattern};
pub use graph_model::condition::When;
pub use graph_model::digest::Digest;
#[cfg(feature = "schedules")]
pub use graph_model::name::ScheduleId;
pub use graph_model::name::{GraphId, ItemId, RunId};
pub use graph_model::number::Number;
pub use graph_model::program::Edge;
pub use graph_model::reducer::ReducerError;
#[cfg(feature = "schedules")]
pub use graph_model::schedule::{CatchUp, Overlap};
pub use graph_model::secret::Secret;
#[cfg(feature = "schedules")]
pub use graph_model::timetable::{Timetable, TimetableError};
pub use graph_model::value::{AsView, FromValue, IndexMap, Map, Mismatch, Value};
pub use graph_signing::{Fingerprint, KeyError, PublicKey, SecretKey};

pub use answer::{AnswerError, NamedAnswer};
pub use answering::questions;
pub use call::{Call, ToolSettings};
pub use classify::Classifier;
pub use clock::{Clock, ManualClock, Sleeping, SystemClock, TokioClock};
pub use encryption_key::EncryptionKey;
pub use engine::Durability;
pub use error::{BuildError, ResumeError, RunError, StartError, StoredRunError};
pub use failure::{ActionError, Category, Failure, LastError, SuppressedError};
pub use future::BoxFuture;
pub use graphless::{RecordedOutcome, recorded_outcome};
pub use hooks::{Control, HookContext, Hooks, Layer};
pub use kind::{ErrorKind, HasKind};
pub use machine::{Arguments, CallFuture, Graph, Machine, StateFields, ToolCaller};
pub use observer::Observer;
#[cfg(feature = "progress")]
pub use observer::Progress;
pub use outcome::{OutcomeError, ResumeAll, Resumed, RunOutcome};
pub use perform_items::PerformItems;
pub use receive::SignalledRun;
pub use run::{Canceller, Finished, Run};
pub use run_secrets::SecretsError;
pub use runtime::{Builder, Options, Runtime};
#[cfg(feature = "schedules")]
pub use schedules::{Schedule, ScheduleError, ScheduleState};
pub use signal::{NamedSignal, SignalError};
pub use status::Status;
pub use stop::CancelToken;
pub use store::{MemoryStore, Store};
#[cfg(feature = "tasks")]
pub use tasks::Tasks;
pub use threads::{Thread, Threads};
pub use worker::{Worker, WorkerError, WorkerOptions, WorkerStatus};

/// The items that generated code calls. They are not for people. These items are public only here:
///
/// | item | why generated code needs it |
/// |---|---|
/// | `object`, `default`, `word`, `exits`, `signals` | implement views, reading, `Default` and `serde` for the structs and enums of a graph, so that a type costs one line of generated code |
/// | `cells`, `node` | implement the state and `serde` for the node enum, for the same reason |
/// | `Struct`, `fits`, `put`, `put_element`, `view`, `blank`, `from_value` | the expansion of those macros: fields by index, with no code for each type in each program |
/// | `debug_cells`, `deserialize`, `no_such_exit`, `no_such_signal`, `serde` | the part of that expansion that is the same for all types |
/// | `NoTools`, `no_such_tool` | the tool caller of a graph without tools; an index that only a journal of another graph has |
/// | `Reducing`, `reduced` | the state of a graph with reducers of the program, and the calls of these |
/// | `LazyGraph`, `Arc` | the tables are resolved when they are used first; tools are shared |
/// | `EventOf` | an event with the nodes of the graph, if the feature `events` is on |
///
/// All other items are public where they belong, mostly in [`machine`](crate::machine). They are repeated here so that
/// generated code names one module, and nothing that a program could shadow.
#[doc(hidden)]
pub mod __private {
    pub use graph_model::program::{Executor, ItemType, Key, Param, Program, Tool, Verb};
    pub use graph_model::value::{AsView, FromValue, Mismatch, Struct, Value, View, fits, put, put_element};
    pub use serde;

    #[cfg(feature = "events")]
    pub use crate::events::RunEvent as EventOf;
    pub use crate::graph::CompiledGraph;
    pub use crate::machine::{Arguments, CallFuture, StateFields, ToolCaller, TypedGraph, no_such_signal};
    pub use crate::macros::{NoTools, Reducing, debug_cells, deserialize, no_such_exit, no_such_tool, reduced};
    pub use crate::{
        __cells as cells, __default as default, __exits as exits, __node as node, __object as object,
        __signals as signals, __word as word,
    };
    pub use std::sync::Arc;

    /// A compiled graph, resolved when it is first used.
    pub type LazyGraph = std::sync::LazyLock<CompiledGraph>;

    /// Takes the place of an event where the feature `events` is off.
    #[cfg(not(feature = "events"))]
    pub type EventOf<N> = (std::convert::Infallible, N);

    /// Looks at a value.
    #[inline]
    pub fn view<T: AsView>(value: &T) -> View<'_> {
        value.view()
    }

    /// Returns a placeholder for a value that is about to be read.
    #[inline]
    pub fn blank<T: FromValue>() -> T {
        T::blank()
    }

    /// Converts JSON to a value.
    ///
    /// # Errors
    ///
    /// If it is of another type.
    pub fn from_value<T: FromValue>(value: Value) -> Result<T, Mismatch> {
        T::from_value(value)
    }
}

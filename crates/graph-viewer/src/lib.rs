//! A local web page that shows the runs of a store, or of the files of a project: live, step by step, with their proofs.
//!
//! [`BoundViewer::bind`] opens a port on the loopback interface, and [`BoundViewer::serve`] answers the requests of the page, whose
//! files are part of the program. Only who knows the token in its [address](BoundViewer::url) gets an answer. It is read-only, unless
//! [`ViewerOptions::answers`] has a key that signs answers.
//!
//! The page verifies journals itself, in the browser: `page/verify.js` is written from `docs/journal.md` alone. Everything that needs the
//! graph of a run comes from the functions that `graph show`, `graph diff`, `graph diagram` and `graph verify-run` call.
//!
//! `docs/viewer.md` describes the page, and what keeps it from doing harm.

#![warn(clippy::print_stdout, clippy::print_stderr)]

mod answers;
mod compare;
mod http;
mod index;
mod listing;
mod problem;
mod proof;
mod query;
mod recent;
mod router;
mod rows;
mod source;
mod state;
mod views;

use std::path::PathBuf;
use std::sync::Arc;

use graph_runtime::dynamic::Interpreted;
use graph_runtime::{PublicKey, Runtime, SecretKey};

pub use http::BoundViewer;

/// Finds a graph by its id, and by how a run began if it is the graph of a run. The error says what is missing and how to name it.
pub type FindGraph = dyn Fn(&str, Option<&graph_runtime::record::Start>) -> Result<Interpreted, String> + Send + Sync;

/// The place that a viewer reads runs from.
#[derive(Debug, Clone)]
pub enum ViewedPlace {
    /// The SQLite file of a store.
    Store(PathBuf),
    /// The directory of a project whose `.ai` holds the files of runs.
    Files(PathBuf),
}

/// The rights with which a viewer answers the questions of runs.
pub struct AnswerRights {
    /// A runtime with the store, the key of its journals, and the keys of those who may answer.
    pub runtime: Runtime,
    /// The key that signs what the person at the page answers.
    pub key: SecretKey,
}

/// The place of the runs that a viewer shows, and its keys.
pub struct ViewerOptions {
    /// The place of the runs.
    pub place: ViewedPlace,
    /// The public key that verifies journals.
    pub key: PublicKey,
    /// The public key that verifies the files of a project, if that is another one.
    pub files_key: Option<PublicKey>,
    /// Finds the graphs of runs.
    pub graphs: Arc<FindGraph>,
    /// The rights to answer; without them the viewer changes nothing.
    pub answers: Option<AnswerRights>,
}

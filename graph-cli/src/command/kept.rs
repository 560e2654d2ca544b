//! Runs that are kept in a store: finding them, their graphs and the keys that they are verified with.

use std::path::{Path, PathBuf};

use clap::Args;
use graph_compiler::diagnostic::Diagnostic;
use graph_model::name::ItemId;
use graph_model::signature::PublicKey;
use graph_runtime::dynamic::{Interpreted, Library, Toolbox};
use graph_runtime::record::{Entry, Record, Sealed};
use graph_runtime::{SealKey, SqliteStore};

use super::{read, signing_key};
use crate::outcome::Error;

/// Which store, and what its runs are verified with.
#[derive(Args)]
pub(crate) struct Kept {
    /// The SQLite file that keeps it
    #[arg(long, value_name = "FILE")]
    pub(crate) store: PathBuf,
    /// The graph's file [default: the one of the run's graph in the tree `graphs`]
    #[arg(long, value_name = "FILE")]
    pub(crate) graph: Option<PathBuf>,
    /// The public key of who ran it, a PEM file [default: your own]
    #[arg(long, value_name = "FILE")]
    public_key: Option<PathBuf>,
    /// The key that seals its secrets; without it, what a graph with secrets computes is not computed again
    #[arg(long, value_name = "FILE")]
    seal_key: Option<PathBuf>,
}

/// A store that was opened.
pub(crate) struct Opened {
    pub(crate) tokio: tokio::runtime::Runtime,
    pub(crate) store: SqliteStore,
    pub(crate) key: PublicKey,
    pub(crate) seal: Option<SealKey>,
}

impl Kept {
    /// Opens the store and reads the keys. A store that is not there is not made.
    pub(crate) fn open(&self) -> Result<Opened, Error> {
        if !self.store.is_file() {
            return Err(Error::new(format!("there is no store at {}", self.store.display())));
        }
        let key = match &self.public_key {
            Some(pem) => public_key(pem)?,
            None => signing_key(None)?.public(),
        };
        let seal = self.seal_key.as_ref().map(|path| SealKey::load(path)).transpose()?;
        let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let store = tokio.block_on(SqliteStore::open(&self.store))?;
        Ok(Opened { tokio, store, key, seal })
    }

    /// Loads the graph of a run. Where it is looked for is no proof that it is the run's.
    ///
    /// # Errors
    ///
    /// A message for the reader, if its file is not named and the tree `graphs` has none of that name.
    pub(crate) fn graph(&self, records: &[Sealed]) -> Result<Result<Interpreted, String>, Error> {
        Ok(graph_of(records, self.graph.as_deref())?.ok_or_else(|| match graph_name(records) {
            Some(name) => format!("there is no graph `{name}` in the tree `graphs`; name its file with `--graph`"),
            None => "its journal does not begin with the start of a run".to_owned(),
        }))
    }
}

/// Reads a public key's file.
pub(crate) fn public_key(pem: &Path) -> Result<PublicKey, Error> {
    PublicKey::from_pem(&read(pem)?).map_err(|error| Error::new(format!("{}: {error}", pem.display())))
}

fn graph_name(records: &[Sealed]) -> Option<String> {
    match serde_json::from_str::<Record>(&records.first()?.body).ok()?.entry {
        Entry::Start(start) => Some(start.graph),
        _ => None,
    }
}

fn graph_of(records: &[Sealed], file: Option<&Path>) -> Result<Option<Interpreted>, Error> {
    if let Some(file) = file {
        return load(file).map(Some);
    }
    let library = Library::open(&std::env::current_dir()?.join("graphs"), Toolbox::new());
    let id = graph_name(records).and_then(|name| ItemId::new(name).ok());
    let Some(file) = id.and_then(|id| library.find(&id)) else { return Ok(None) };
    of(&library, &file).map(Some)
}

/// Loads a graph from its file.
pub(crate) fn load(file: &Path) -> Result<Interpreted, Error> {
    let working = std::env::current_dir()?;
    let file = working.join(file);
    let file = file.canonicalize().map_err(|error| Error::file("read", &file, &error))?;
    of(&Library::around(&working, &file, Toolbox::new()), &file)
}

fn of(library: &Library, file: &Path) -> Result<Interpreted, Error> {
    library.graph(file).map_err(|error| {
        let all: Vec<String> = error.diagnostics.iter().map(Diagnostic::render_coloured).collect();
        Error::new(format!("the graph {} cannot be used:\n{}", file.display(), all.join("\n\n")))
    })
}

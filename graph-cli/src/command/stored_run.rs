//! Stored runs, in a store or in the files of a project: finds them, their graphs and the keys that verify them.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clap::Args;
use graph_compiler::diagnostic::Diagnostic;
use graph_model::name::ItemId;
use graph_model::timestamp;
use graph_runtime::dynamic::{Interpreted, Library, Toolbox};
use graph_runtime::files::ProjectStore;
use graph_runtime::machine::CompiledGraph;
use graph_runtime::record::{Entry, Head, Record, SignedRecord, Start};
use graph_runtime::{EncryptionKey, Machine as _, RunId, Store};
use graph_signing::PublicKey;

use super::stored::{self, Access};
use super::{read, signing_key};
use crate::outcome::Error;

/// The place where runs are stored, and the keys that verify them.
#[derive(Args)]
pub(crate) struct StoredRunArguments {
    #[command(flatten)]
    place: RunLocation,
    /// The public key that verifies the run, a PEM file [default: your own]
    #[arg(long, value_name = "FILE")]
    public_key: Option<PathBuf>,
    /// The key that encrypts the run's secrets; without it, values that depend on secrets are not computed again
    #[arg(long, alias = "seal-key", value_name = "FILE")]
    encryption_key: Option<PathBuf>,
}

/// The place that runs are read from.
#[derive(Args, Clone)]
#[group(required = true, multiple = false)]
pub(crate) struct RunLocation {
    /// The SQLite file that holds the run
    #[arg(long, value_name = "FILE")]
    store: Option<PathBuf>,
    /// The directory of a project whose .ai holds the files of the run, in place of a store
    #[arg(long, value_name = "DIR")]
    files: Option<PathBuf>,
}

/// A store that is open for reading.
pub(crate) struct OpenedStore {
    pub(crate) tokio: tokio::runtime::Runtime,
    pub(crate) store: Box<dyn Store>,
    /// The same store, if it is the files of a project.
    pub(crate) files: Option<ProjectStore>,
    pub(crate) key: PublicKey,
    pub(crate) encryption_key: Option<EncryptionKey>,
}

impl RunLocation {
    pub(crate) fn of(store: Option<PathBuf>, files: Option<PathBuf>) -> Self {
        Self { store, files }
    }
}

impl StoredRunArguments {
    /// The arguments for a run whose secrets are not needed.
    pub(crate) fn of(place: RunLocation, public_key: Option<PathBuf>) -> Self {
        Self { place, public_key, encryption_key: None }
    }

    /// Opens the store and reads the keys. Does not create a store that does not exist.
    pub(crate) fn open(&self) -> Result<OpenedStore, Error> {
        let key = verifying_key(self.public_key.as_deref())?;
        let encryption_key = self.encryption_key.as_ref().map(|path| EncryptionKey::load(path)).transpose()?;
        let tokio = stored::tokio()?;
        let files = self.place.files.as_ref().map(ProjectStore::in_directory).transpose()?;
        let store: Box<dyn Store> = match (&self.place.store, &files) {
            (Some(path), _) => Box::new(tokio.block_on(stored::open(path, Access::Read))?),
            (None, Some(files)) => Box::new(files.clone()),
            (None, None) => {
                return Err(Error::new("name a store with `--store FILE`, or a project with `--files DIR`"));
            }
        };
        Ok(OpenedStore { tokio, store, files, key, encryption_key })
    }
}

impl fmt::Display for StoredRunArguments {
    /// Writes the path of the store or of the project.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.place.store.as_ref().or(self.place.files.as_ref());
        place.map_or(Ok(()), |place| write!(f, "{}", place.display()))
    }
}

/// Returns the error that a run is not among the files of a project.
pub(crate) fn not_filed(run: &RunId, place: impl fmt::Display) -> Error {
    let help = "`graph files rebuild` makes it again from the store";
    Error::new(format!("there is no journal of run `{run}` among the files in {place}; {help}"))
}

/// Reads the public key in a PEM file, or returns the user's own.
pub(crate) fn verifying_key(pem: Option<&Path>) -> Result<PublicKey, Error> {
    match pem {
        Some(pem) => public_key(pem),
        None => {
            let own = signing_key(None).map_err(|error| {
                Error::new(format!("{error}; or name the public key to verify with: `--public-key FILE`"))
            })?;
            Ok(own.public())
        }
    }
}

/// Loads the graph of a run: from its file, or by its id from the tree `graphs`. Several files are those of the versions of the graph, and
/// the one is taken that the run is under. This does not prove that it is the graph that was run.
///
/// # Errors
///
/// If the graph does not exist or has mistakes, or the run is under none of several. The message names `option` as the way to give
/// the graph's file.
pub(crate) fn own_graph(records: &[SignedRecord], files: &[PathBuf], option: &str) -> Result<Interpreted, Error> {
    if let [file] = files {
        return load(file);
    }
    let Some(start) = start_of(records) else {
        return Err(Error::new("its journal does not begin with the start of a run"));
    };
    if files.is_empty() {
        return called(&start.graph, option);
    }
    let mut graphs = files.iter().map(|file| load(file)).collect::<Result<Vec<_>, _>>()?;
    let own = version_of(&start.shown_graph(), graphs.iter(), |graph| start.is_under(graph))?;
    Ok(graphs.swap_remove(own))
}

/// Returns which of several graphs a run is under. `found` describes the graph that it began under.
///
/// # Errors
///
/// If it is under none.
pub(crate) fn version_of<'g>(
    found: &str,
    graphs: impl Iterator<Item = &'g Interpreted> + Clone,
    is_under: impl Fn(&CompiledGraph) -> bool,
) -> Result<usize, Error> {
    let shown =
        |graph: &Interpreted| format!("{} {} ({})", graph.id(), graph.interface().version, graph.graph().digest());
    graphs.clone().position(|graph| is_under(graph.graph())).ok_or_else(|| {
        let named: Vec<String> = graphs.map(shown).collect();
        Error::new(format!("it is a run of `{found}`, and of none of the named graphs: `{}`", named.join("`, `")))
    })
}

/// Loads a graph by its id from the tree `graphs`. The message of an error names `option` as the way to give the graph's file.
pub(crate) fn called(name: &str, option: &str) -> Result<Interpreted, Error> {
    let library = Library::open(&std::env::current_dir()?.join("graphs"), Toolbox::new());
    match ItemId::new(name).ok().and_then(|id| library.find(&id)) {
        Some(file) => of(&library, &file),
        None => {
            Err(Error::new(format!("there is no graph `{name}` in the tree `graphs`; name its file with `{option}`")))
        }
    }
}

/// Reads a public key's file.
pub(crate) fn public_key(pem: &Path) -> Result<PublicKey, Error> {
    PublicKey::from_pem(&read(pem)?).map_err(|error| Error::new(format!("{}: {error}", pem.display())))
}

/// Returns how a run began, as its journal has it.
pub(crate) fn start_of(records: &[SignedRecord]) -> Option<Start> {
    match serde_json::from_str::<Record>(&records.first()?.body).ok()?.entry {
        Entry::Start(start) => Some(start),
        _ => None,
    }
}

/// Returns when a run began, as its journal has it.
pub(crate) fn start_time(records: &[SignedRecord]) -> Option<SystemTime> {
    let Head { at, .. } = Head::cut(&records.first()?.body)?;
    timestamp::parse(at)
}

/// Finds a graph that is named by its file; or, if there is no such file, by its id in the tree `graphs`. Returns its tree and its file.
pub(crate) fn found(named: &Path) -> Result<Option<(Library, PathBuf)>, Error> {
    let working = std::env::current_dir()?;
    let path = working.join(named);
    if path.exists() {
        // A file's path determines the tree that it is part of, so `..` and links in it are resolved first.
        let path = path.canonicalize().map_err(|error| Error::file("read", &path, &error))?;
        return Ok(Some((Library::around(&working, &path, Toolbox::new()), path)));
    }
    let library = Library::open(&working.join("graphs"), Toolbox::new());
    let file = named.to_str().and_then(|id| library.find(&ItemId::new(id).ok()?));
    Ok(file.map(|file| (library, file)))
}

/// Says that [`found`] finds nothing.
pub(crate) fn not_found(named: &Path) -> Error {
    let name = named.display();
    Error::new(format!("there is no file `{name}`, and no graph of that id in the tree `graphs`"))
}

/// Loads a graph that is named by its file, or by its id in the tree `graphs`.
pub(crate) fn named(graph: &Path) -> Result<Interpreted, Error> {
    let (library, file) = found(graph)?.ok_or_else(|| not_found(graph))?;
    of(&library, &file)
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
        Error::of_graph(format!("the graph {} cannot be used:\n{}", file.display(), all.join("\n\n")))
    })
}

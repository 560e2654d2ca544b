//! The files that a project keeps of its runs, under `.ai`: the journal, signed transcript, signed state item, signed run page,
//! objects by their content, and the registry.
//!
//! These files are views. The source is the run's journal: every file here is computed from its records and nothing else.
//! So the files that are written while the run is in progress and those that [`ProjectFiles::rebuild`] writes from a store
//! have the same bytes. A file that cannot be written stops no run.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod cache;
mod disk;
mod error;
mod facts;
mod item;
mod journal;
mod objects;
mod page;
#[cfg(feature = "sqlite")]
mod registry;
mod store;
mod thread;
mod transcript;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use graph_model::name::RunId;
use graph_model::program::AGENT_MODEL;
use graph_signing::{SecretKey, Signer};

pub use graph_model::name::GraphId;
pub use graph_signing::{KeyRing, PublicKey};

pub use cache::ProjectCache;
pub use error::FilesError;
pub use item::{StateItem, read_state_item};
pub use objects::{Objects, Trace};
#[cfg(feature = "sqlite")]
pub use registry::{Registry, RegistryEntry};
pub use store::{FilesAudit, FilesAuditError, ProjectStore};
pub use transcript::{Bound, Rules, TranscriptError, VerifiedTranscript, transcript_events, verify_transcript};

use disk::Disk;
use error::locked;
use facts::RunProjection;
use graph_engine::graph::tables;
use graph_engine::machine::CompiledGraph;
use graph_engine::observer::{Event, Observer};
use graph_engine::record::{self, JournalError, Record, SignedRecord, verified_start};
use graph_engine::store::Store;
use journal::JournalFile;
use page::PageContents;
use thread::GraphRights;
use transcript::Transcript;

/// Writes the files of a project's runs. Clones share everything: one is given to
/// [`Builder::observer`](graph_engine::Builder::observer), and another is asked what went wrong.
///
/// Only runs in a store have records, and so files. Files are written between two steps, before the next one begins. They
/// are not synced to disk: after a power loss, [`rebuild`](Self::rebuild) writes them again.
///
/// ```
/// # mod graph_runtime {
/// #     pub use graph_engine::*;
/// #     pub mod files { pub use graph_project_files::*; }
/// #     pub use files::ProjectFiles;
/// # }
/// # let directory = tempfile::tempdir()?;
/// # let directory = directory.path();
/// use graph_runtime::{MemoryStore, ProjectFiles, Runtime, SecretKey};
///
/// let key = SecretKey::generate()?;
/// let files = ProjectFiles::in_directory(directory, key.clone())?;
/// let runtime = Runtime::builder().store(MemoryStore::new()).sign_with(key).observer(files.clone()).build()?;
/// for (run, problem) in files.problems() {
///     eprintln!("the files of run {run} are not complete: {problem}");
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct ProjectFiles {
    inner: Arc<FilesAtWork>,
}

struct FilesAtWork {
    disk: Arc<Disk>,
    key: SecretKey,
    /// The runs in progress.
    runs: Mutex<HashMap<RunId, Arc<Mutex<Keeper>>>>,
    /// The first thing that went wrong with each run's files.
    problems: Mutex<BTreeMap<RunId, Arc<FilesError>>>,
    /// Opened when it is first needed.
    #[cfg(feature = "sqlite")]
    registry: Mutex<Option<Registry>>,
}

/// The data of a run whose files are being written.
struct Keeper {
    facts: RunProjection,
    journal: JournalFile,
    transcript: Transcript,
    page: PageContents,
    rights: GraphRights,
}

impl ProjectFiles {
    /// Writes files in the `.ai` of the project at `root`, and signs them with `key`. No link below `root` is followed.
    ///
    /// # Errors
    ///
    /// If there is no such directory.
    pub fn in_directory(root: impl AsRef<Path>, key: SecretKey) -> Result<Self, FilesError> {
        let disk = Arc::new(Disk::open(root.as_ref())?);
        let inner = FilesAtWork {
            disk,
            key,
            runs: Mutex::default(),
            problems: Mutex::default(),
            #[cfg(feature = "sqlite")]
            registry: Mutex::default(),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Writes the files of a run again from its journal, which must be signed with the key whose public half is
    /// `journal_key`; `graph` is its machine's [`graph`](graph_engine::Machine::graph). The run must not be in progress.
    ///
    /// ```
    /// # mod graph_runtime {
    /// #     pub use graph_engine::*;
    /// #     pub mod files { pub use graph_project_files::*; }
    /// #     pub use files::ProjectFiles;
    /// # }
    /// # use graph_runtime::{Machine, PublicKey, Store};
    /// # async fn example(
    /// #     files: graph_runtime::ProjectFiles,
    /// #     store: &dyn Store,
    /// #     journal_key: &PublicKey,
    /// #     graph: &dyn Machine,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// use graph_runtime::RunId;
    ///
    /// files.rebuild(store, journal_key, &RunId::new("order-17")?, graph.graph()).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If there is no such run, its journal was changed or belongs to another graph, or a file cannot be written. The other
    /// files are written even then.
    pub async fn rebuild(
        &self,
        store: &dyn Store,
        journal_key: &PublicKey,
        run: &RunId,
        graph: &CompiledGraph,
    ) -> Result<(), FilesError> {
        let signed = load(store, journal_key, run, graph).await?;
        let result = self.inner.take(run, graph, &signed, None);
        locked(&self.inner.runs).remove(run);
        if result.is_ok() {
            locked(&self.inner.problems).remove(run);
        }
        result
    }

    /// Returns a store that reads the journals and other files of the project's runs.
    ///
    /// [`ProjectStore`] has an example.
    pub fn store(&self) -> ProjectStore {
        ProjectStore::of(Arc::clone(&self.inner.disk))
    }

    /// Returns the objects in which the project's runs are stored.
    ///
    /// [`Objects`] has an example.
    pub fn objects(&self) -> Objects {
        Objects { disk: Arc::clone(&self.inner.disk) }
    }

    /// Opens the registry of the project's threads.
    ///
    /// ```
    /// # mod graph_runtime {
    /// #     pub use graph_engine::*;
    /// #     pub mod files { pub use graph_project_files::*; }
    /// #     pub use files::ProjectFiles;
    /// # }
    /// # fn example(files: graph_runtime::ProjectFiles) -> Result<(), Box<dyn std::error::Error>> {
    /// for thread in files.registry()?.active()? {
    ///     println!("{} {}", thread.thread, thread.status);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If it cannot be opened.
    #[cfg(feature = "sqlite")]
    pub fn registry(&self) -> Result<Registry, FilesError> {
        self.inner.registry()
    }

    /// Returns the first thing that went wrong with each run's files, except those that were rebuilt since.
    pub fn problems(&self) -> BTreeMap<RunId, Arc<FilesError>> {
        locked(&self.inner.problems).clone()
    }
}

impl fmt::Debug for ProjectFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProjectFiles").field("disk", &self.inner.disk).finish_non_exhaustive()
    }
}

impl Observer for ProjectFiles {
    fn observe(&self, event: &Event<'_>) {
        match event {
            Event::Recorded { run, graph, records, .. } => {
                if let Err(error) = self.inner.take(run, graph, records, Some(std::process::id())) {
                    self.inner.note(run, error);
                }
                // A run that had already ended when it was resumed sends no other event.
                if records.last().is_some_and(is_end) {
                    locked(&self.inner.runs).remove(*run);
                }
            }
            Event::RunEnded { run, .. } => {
                locked(&self.inner.runs).remove(*run);
            }
            _ => {}
        }
    }
}

impl FilesAtWork {
    /// Adds records of a run to its files; `pid` is the process that has just written them.
    fn take(
        &self,
        run: &RunId,
        graph: &CompiledGraph,
        records: &[SignedRecord],
        pid: Option<u32>,
    ) -> Result<(), FilesError> {
        let is_whole = records.first().is_some_and(|record| record.seq == 0);
        let keeper = {
            let mut runs = locked(&self.runs);
            if is_whole {
                let keeper = Keeper::new(run, graph, env!("CARGO_PKG_VERSION").to_owned());
                runs.insert(run.clone(), Arc::new(Mutex::new(keeper)));
            }
            runs.get(run).cloned().ok_or_else(|| FilesError::Middle(run.clone()))?
        };
        let mut keeper = locked(&keeper);
        let before = keeper.facts.turns;
        let written = keeper.take(&self.key, &self.disk, records);
        if keeper.facts.turns > before {
            let registered = self.register(&keeper.facts, pid);
            return written.and(registered);
        }
        written
    }

    #[cfg(feature = "sqlite")]
    fn registry(&self) -> Result<Registry, FilesError> {
        let mut registry = locked(&self.registry);
        match &*registry {
            Some(registry) => Ok(registry.clone()),
            None => Ok(registry.insert(Registry::open(&self.disk)?).clone()),
        }
    }

    #[cfg(feature = "sqlite")]
    fn register(&self, facts: &RunProjection, pid: Option<u32>) -> Result<(), FilesError> {
        self.registry()?.note(facts, pid)
    }

    #[cfg(not(feature = "sqlite"))]
    fn register(&self, _: &RunProjection, _: Option<u32>) -> Result<(), FilesError> {
        Ok(())
    }

    /// Notes the first error of a run's files.
    fn note(&self, run: &RunId, error: FilesError) {
        let mut problems = locked(&self.problems);
        if !problems.contains_key(run) {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            tracing::warn!(%run, %error, cause, "the files of a run could not be written; its journal is complete");
            problems.insert(run.clone(), Arc::new(error));
        }
    }
}

impl Keeper {
    fn new(run: &RunId, graph: &CompiledGraph, version: String) -> Self {
        let code = tables(graph);
        let mut facts = RunProjection::new(run.clone(), graph.topology(), version);
        facts.is_agent = code.tools.iter().any(|tool| tool.name() == AGENT_MODEL);
        Self {
            facts,
            journal: JournalFile::default(),
            transcript: Transcript::default(),
            page: PageContents::default(),
            rights: GraphRights::of(code),
        }
    }

    /// Applies records and writes the files that they change (R224): journal, transcript, objects and ref, state item,
    /// page. Returns the first error; the rest is written nevertheless.
    fn take(&mut self, signer: &dyn Signer, disk: &Arc<Disk>, records: &[SignedRecord]) -> Result<(), FilesError> {
        let is_whole = records.first().is_some_and(|record| record.seq == 0);
        let objects = Objects { disk: Arc::clone(disk) };
        let mut first = Ok(());
        let mut check = |result: Result<(), FilesError>| {
            if first.is_ok() {
                first = result;
            }
        };
        let mut thread_text = None;
        records.iter().for_each(|signed| self.journal.take(signed));
        check(self.journal.write(disk, &self.facts.run, is_whole));
        for signed in records {
            let record: Record = match serde_json::from_str(&signed.body) {
                Ok(record) => record,
                Err(error) => {
                    let (seq, reason) = (signed.seq, error.to_string());
                    check(Err(FilesError::Journal(JournalError::Unreadable { seq, reason })));
                    continue;
                }
            };
            let rights = match &record.entry {
                record::Entry::Start(start) => self.rights.begin(&self.facts.run, start, &record.at, signer).map(Some),
                record::Entry::Resume(resume) => self.rights.resume(&self.facts.run, resume, signer),
                _ => Ok(None),
            };
            match rights {
                Ok(text) => thread_text = text.or(thread_text),
                Err(error) => check(Err(error)),
            }
            let additions = self.facts.take(record);
            if additions.moments.is_empty() {
                continue;
            }
            additions.objects.iter().for_each(|object| check(objects.put_object(object)));
            for moment in &additions.moments {
                self.transcript.add(&self.facts.run, moment);
                self.page.add(&self.facts.topology, moment);
            }
            self.transcript.sign(&self.facts.run, &self.facts.at, self.facts.steps, signer);
        }
        if let Some(text) = thread_text {
            check(disk.replace(&thread::file(&self.facts.run), text.as_bytes()));
        }
        check(self.write_transcript(disk, is_whole));
        if let Some(snapshot) = &self.facts.snapshot {
            check(objects.refer(&self.facts.run, snapshot));
        }
        let item = item::text(&self.facts, self.transcript.bound(), signer);
        check(disk.replace(&item::file(&self.facts.topology.id, &self.facts.run), item.as_bytes()));
        let page = self.page.text(&self.facts, signer);
        check(disk.replace(&page::file(&self.facts.topology.id, &self.facts.run), page.as_bytes()));
        first
    }

    /// Writes the pending lines of the transcript. If this fails, the next call writes them too.
    fn write_transcript(&mut self, disk: &Disk, is_whole: bool) -> Result<(), FilesError> {
        let file = transcript_file(&self.facts.run);
        let (length, pending) = self.transcript.pending();
        if is_whole && length == 0 {
            disk.bring_to(&file, pending)?;
        } else {
            let bytes = disk.append(&file, length, pending)?;
            if bytes > 0 {
                let path = disk.path(&file);
                tracing::warn!(path = %path.display(), bytes, "the end of a transcript, which this program did not write, is dropped");
            }
        }
        self.transcript.written();
        Ok(())
    }
}

/// Loads a run's journal, which must be whole and belong to the graph.
async fn load(
    store: &dyn Store,
    journal_key: &PublicKey,
    run: &RunId,
    graph: &CompiledGraph,
) -> Result<Vec<SignedRecord>, FilesError> {
    let signed = store.load(run).await.map_err(FilesError::Store)?;
    let start = verified_start(run, &signed, journal_key).map_err(FilesError::Journal)?;
    if start.is_under(graph) {
        return Ok(signed);
    }
    let found = format!("{} ({})", start.graph, start.digest);
    let expected = format!("{} ({})", graph.id(), graph.digest());
    Err(FilesError::AnotherGraph { run: run.clone(), expected, found })
}

/// Whether a record says that its run has ended.
fn is_end(signed: &SignedRecord) -> bool {
    matches!(serde_json::from_str(&signed.body), Ok(Record { entry: record::Entry::End(_), .. }))
}

/// Returns the path of a run's transcript (R217).
fn transcript_file(run: &RunId) -> String {
    format!(".ai/state/threads/{run}/transcript.jsonl")
}

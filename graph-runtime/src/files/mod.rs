//! The files that a project keeps of its runs, under `.ai`: signed transcript, signed state item, signed run page, objects by
//! their content, and the registry.
//!
//! They are views. A run's journal is the truth: everything here is made of its records and nothing else, so that what is written
//! while the run is at work and what [`ProjectFiles::rebuild`] writes from a store are the same bytes. A file that cannot be
//! written stops no run.

mod cache;
mod disk;
mod facts;
mod item;
mod objects;
mod outline;
mod page;
#[cfg(feature = "sqlite")]
mod registry;
mod transcript;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use graph_model::digest::Digest;
use graph_model::name::RunId;
use graph_model::signature::{SecretKey, SignatureError};

pub use graph_model::name::GraphId;
pub use graph_model::signature::{KeyRing, PublicKey};

pub use cache::ProjectCache;
pub use item::{StateItem, read_state_item};
pub use objects::{Objects, Trace};
#[cfg(feature = "sqlite")]
pub use registry::{Entry, Registry};
pub use transcript::{Bound, Rules, TranscriptError, VerifiedTranscript, transcript_events, verify_transcript};

use crate::code::Code;
use crate::observer::{Event, Observer};
use crate::record::{Journal, JournalError, Record, Sealed};
use crate::store::{Store, StoreError};
use disk::Disk;
use facts::Facts;
use outline::Outline;
use page::Page;
use transcript::Transcript;

/// Keeps the files of a project's runs. Clones are the same: one is given to
/// [`Builder::observer`](crate::Builder::observer), another asked what went wrong.
///
/// Only runs in a store have records, and so files. Files are written between two steps, before the next begins. They are not
/// waited for to reach the disk: after the loss of power, [`rebuild`](Self::rebuild) makes them anew.
#[derive(Clone)]
pub struct ProjectFiles {
    inner: Arc<Inner>,
}

struct Inner {
    disk: Arc<Disk>,
    key: SecretKey,
    /// The runs at work.
    runs: Mutex<HashMap<RunId, Arc<Mutex<Keeper>>>>,
    /// The first thing that went wrong with each run's files.
    problems: Mutex<BTreeMap<RunId, Arc<FilesError>>>,
    /// Opened when it is first needed.
    #[cfg(feature = "sqlite")]
    registry: Mutex<Option<Registry>>,
}

/// What is known of a run whose files are kept.
struct Keeper {
    facts: Facts,
    transcript: Transcript,
    page: Page,
}

/// What is wrong with a project's files.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FilesError {
    /// A file or directory cannot be reached.
    #[error("cannot {verb} {}", path.display())]
    Io {
        /// What was tried.
        verb: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file is not there.
    #[error("there is no {}", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// An object's bytes do not have the hash that it is called by.
    #[error("{} was altered: its SHA-256 is {found}", path.display())]
    Altered {
        /// The file.
        path: PathBuf,
        /// The hash of what is there.
        found: Digest,
    },
    /// A file does not hold what it must.
    #[error("{} cannot be read: {reason}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The state item is not what a trusted key signed.
    #[error("the state item does not hold")]
    Item(#[source] SignatureError),
    /// The item is no state item.
    #[error("it is no state item: {reason}")]
    NoStateItem {
        /// Why.
        reason: String,
    },
    /// The state item is another run's.
    #[error("{} is the state item of run `{found}`", path.display())]
    AnotherRun {
        /// The file.
        path: PathBuf,
        /// The run that it names.
        found: RunId,
    },
    /// The transcript is not what a trusted key signed.
    #[error("the transcript does not hold")]
    Transcript(#[source] TranscriptError),
    /// The journal is not what the engine wrote.
    #[error("the run's journal does not hold")]
    Journal(#[source] JournalError),
    /// The run is another graph's.
    #[error("run `{run}` is of {found}, not of {expected}")]
    AnotherGraph {
        /// The run.
        run: RunId,
        /// The graph that was given.
        expected: String,
        /// The graph that the journal names.
        found: String,
    },
    /// Records came of a run whose beginning was not seen.
    #[error("run `{0}` was seen from its middle on; rebuild its files")]
    Middle(RunId),
    /// The registry cannot be opened, read or written.
    #[cfg(feature = "sqlite")]
    #[error("the registry {} fails", path.display())]
    Registry {
        /// The file.
        path: PathBuf,
        /// What SQLite said.
        source: rusqlite::Error,
    },
    /// The store failed.
    #[error("the run's journal cannot be loaded")]
    Store(#[source] StoreError),
}

impl ProjectFiles {
    /// Keeps files in the `.ai` of the project at `root`, and signs them with `key`. No path leads out of `root`, also not by
    /// way of links.
    ///
    /// # Errors
    ///
    /// If there is no such directory.
    pub fn in_directory(root: impl AsRef<Path>, key: SecretKey) -> Result<Self, FilesError> {
        let disk = Arc::new(Disk::open(root.as_ref())?);
        let inner = Inner {
            disk,
            key,
            runs: Mutex::default(),
            problems: Mutex::default(),
            #[cfg(feature = "sqlite")]
            registry: Mutex::default(),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Writes the files of a run anew from its journal, which must be signed with the key whose public half `journal_key` is;
    /// `graph` is its machine's [`code`](crate::Machine::code). The run must not be at work.
    ///
    /// # Errors
    ///
    /// If there is no such run, its journal was changed or is another graph's, or a file cannot be written: then the others are.
    pub async fn rebuild(
        &self,
        store: &dyn Store,
        journal_key: &PublicKey,
        run: &RunId,
        graph: &Code,
    ) -> Result<(), FilesError> {
        let sealed = load(store, journal_key, run, graph).await?;
        let result = self.inner.take(run, graph, &sealed, None);
        locked(&self.inner.runs).remove(run);
        if result.is_ok() {
            locked(&self.inner.problems).remove(run);
        }
        result
    }

    /// Returns the files of a run that are not what its journal says, byte for byte: changed, missing, or not written yet. The
    /// registry, whose bytes are SQLite's own, is not looked at. Changes nothing; the run must not be at work.
    ///
    /// # Errors
    ///
    /// As [`rebuild`](Self::rebuild), or if a file cannot be read.
    pub async fn compare(
        &self,
        store: &dyn Store,
        journal_key: &PublicKey,
        run: &RunId,
        graph: &Code,
    ) -> Result<Vec<PathBuf>, FilesError> {
        let sealed = load(store, journal_key, run, graph).await?;
        let disk = Arc::new(self.inner.disk.comparing()?);
        let facts = Facts::new(run.clone(), Outline::of(graph));
        let mut keeper = Keeper { facts, transcript: Transcript::default(), page: Page::default() };
        let mut first = Ok(());
        keeper.take(&self.inner, &disk, &sealed, None, &mut first);
        first.map(|()| disk.differing())
    }

    /// Verifies what a run's files say: the state item's signature, every signature of the transcript, and that the transcript is
    /// the one that the state item knows and not shorter (R229).
    ///
    /// # Errors
    ///
    /// If a file is missing, or the first thing that does not hold.
    pub fn verify(
        &self,
        graph: &GraphId,
        run: &RunId,
        keys: &KeyRing,
    ) -> Result<(StateItem, VerifiedTranscript), FilesError> {
        let disk = &self.inner.disk;
        let read = |file: &str| disk.read(file)?.ok_or_else(|| FilesError::Missing { path: disk.path(file) });
        let file = item::file(graph, run);
        let text = String::from_utf8(read(&file)?)
            .map_err(|error| FilesError::Unreadable { path: disk.path(&file), reason: error.to_string() })?;
        let item = read_state_item(&text, keys)?;
        if item.run != *run || item.graph != *graph {
            return Err(FilesError::AnotherRun { path: disk.path(&file), found: item.run });
        }
        let transcript = read(&transcript_file(run))?;
        let rules = Rules { bound: Some(&item.transcript), ..Rules::default() };
        let verified = verify_transcript(run, &transcript, keys, rules).map_err(FilesError::Transcript)?;
        Ok((item, verified))
    }

    /// Returns the objects that the project's runs are kept in.
    pub fn objects(&self) -> Objects {
        Objects { disk: Arc::clone(&self.inner.disk) }
    }

    /// Opens the registry of the project's threads.
    ///
    /// # Errors
    ///
    /// If it cannot be opened.
    #[cfg(feature = "sqlite")]
    pub fn registry(&self) -> Result<Registry, FilesError> {
        self.inner.registry()
    }

    /// Returns the first thing that went wrong with each run's files, but for those that were rebuilt since.
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
            Event::Recorded { run, graph, records } => {
                if let Err(error) = self.inner.take(run, graph, records, Some(std::process::id())) {
                    self.inner.note(run, error);
                }
            }
            Event::RunEnded { run, .. } => {
                locked(&self.inner.runs).remove(*run);
            }
            Event::RunStarted { .. } | Event::StepStarted { .. } | Event::StepCompleted { .. } => {}
        }
    }
}

impl Inner {
    /// Takes records of a run into its files; `pid` is the process that wrote them just now.
    fn take(&self, run: &RunId, graph: &Code, records: &[Sealed], pid: Option<u32>) -> Result<(), FilesError> {
        let is_whole = records.first().is_some_and(|record| record.seq == 0);
        let keeper = {
            let mut runs = locked(&self.runs);
            if is_whole {
                let facts = Facts::new(run.clone(), Outline::of(graph));
                let keeper = Keeper { facts, transcript: Transcript::default(), page: Page::default() };
                runs.insert(run.clone(), Arc::new(Mutex::new(keeper)));
            }
            runs.get(run).cloned().ok_or_else(|| FilesError::Middle(run.clone()))?
        };
        let mut first = Ok(());
        locked(&keeper).take(self, &self.disk, records, pid, &mut first);
        first
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
    fn register(&self, facts: &Facts, pid: Option<u32>) -> Result<(), FilesError> {
        self.registry()?.note(facts, pid)
    }

    #[cfg(not(feature = "sqlite"))]
    fn register(&self, _: &Facts, _: Option<u32>) -> Result<(), FilesError> {
        Ok(())
    }

    /// Keeps the first thing that went wrong with a run's files.
    fn note(&self, run: &RunId, error: FilesError) {
        let mut problems = locked(&self.problems);
        if !problems.contains_key(run) {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            tracing::warn!(%run, %error, cause, "a run's files could not be kept; its journal is whole");
            problems.insert(run.clone(), Arc::new(error));
        }
    }
}

impl Keeper {
    /// Takes records into account and writes what they change (R224): transcript, objects and ref, state item, page, registry.
    fn take(
        &mut self,
        inner: &Inner,
        disk: &Arc<Disk>,
        records: &[Sealed],
        pid: Option<u32>,
        first: &mut Result<(), FilesError>,
    ) {
        let is_whole = records.first().is_some_and(|record| record.seq == 0);
        let before = self.facts.turns;
        let objects = Objects { disk: Arc::clone(disk) };
        let mut check = |result: Result<(), FilesError>| {
            if first.is_ok() {
                *first = result;
            }
        };
        for sealed in records {
            let record: Record = match serde_json::from_str(&sealed.body) {
                Ok(record) => record,
                Err(error) => {
                    let (seq, reason) = (sealed.seq, error.to_string());
                    check(Err(FilesError::Journal(JournalError::Unreadable { seq, reason })));
                    continue;
                }
            };
            let told = self.facts.take(record);
            if told.moments.is_empty() {
                continue;
            }
            told.objects.iter().for_each(|object| check(objects.put_object(object)));
            for moment in &told.moments {
                self.transcript.tell(&self.facts.run, moment);
                self.page.tell(&self.facts.outline, moment);
            }
            self.transcript.sign(&self.facts.run, &self.facts.at, self.facts.steps, &inner.key);
        }
        check(self.write_transcript(disk, is_whole));
        if let Some(snapshot) = &self.facts.snapshot {
            check(objects.refer(&self.facts.run, snapshot));
        }
        let item = item::text(&self.facts, self.transcript.bound(), &inner.key);
        check(disk.replace(&item::file(&self.facts.outline.id, &self.facts.run), item.as_bytes()));
        let page = self.page.text(&self.facts, &inner.key);
        check(disk.replace(&page::file(&self.facts.outline.id, &self.facts.run), page.as_bytes()));
        if self.facts.turns > before && !disk.is_comparing() {
            check(inner.register(&self.facts, pid));
        }
    }

    /// Writes what the transcript's file lacks. What cannot be written now is written with what comes next.
    fn write_transcript(&mut self, disk: &Disk, is_whole: bool) -> Result<(), FilesError> {
        let file = transcript_file(&self.facts.run);
        let (length, pending) = self.transcript.pending();
        if is_whole && length == 0 {
            disk.bring_to(&file, pending)?;
        } else {
            disk.append(&file, length, pending)?;
        }
        self.transcript.written();
        Ok(())
    }
}

/// Loads a run's journal, which must be whole and the graph's.
async fn load(
    store: &dyn Store,
    journal_key: &PublicKey,
    run: &RunId,
    graph: &Code,
) -> Result<Vec<Sealed>, FilesError> {
    let sealed = store.load(run).await.map_err(FilesError::Store)?;
    let journal = Journal::verify(run, &sealed, journal_key).map_err(FilesError::Journal)?;
    let found = format!("{} ({})", journal.start.graph, journal.start.digest);
    let expected = format!("{} ({})", graph.id, graph.digest);
    if found == expected { Ok(sealed) } else { Err(FilesError::AnotherGraph { run: run.clone(), expected, found }) }
}

/// Returns where a run's transcript is (R217).
fn transcript_file(run: &RunId) -> String {
    format!(".ai/state/threads/{run}/transcript.jsonl")
}

/// Locks what no panic leaves half done.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

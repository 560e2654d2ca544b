//! Reads a project's runs without a signing key: their journals, and whether the other files agree with these.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use graph_model::digest::Digest;
use graph_model::name::{GraphId, RunId};
use graph_model::timestamp;
use graph_model::value::Value;
use graph_signing::{self as signature, Fingerprint, ItemKind, KeyRing, PublicKey, Signer};

use crate::disk::Disk;
use crate::transcript::{Rules, VerifiedTranscript, signatures, verify_transcript};
use crate::{
    FilesError, Keeper, Objects, StateItem, item, journal, load, page, read_state_item, thread, transcript_file,
};
use graph_engine::machine::CompiledGraph;
use graph_engine::machine::Machine;
use graph_engine::record::{Entry, Head, Record, SignedRecord, Status};
use graph_engine::store::{Lease, Page, RunFilter, RunPage, RunSummary, Store, StoreError, StoreFuture, unsupported};
use graph_engine::{EncryptionKey, ErrorKind, HasKind};
use graph_proof::{Audit, AuditError, prove_tree};

/// The runs of a project, read from its files. This needs neither the store that the files were made from nor a secret key.
///
/// As a [`Store`], it has the journals, and is read-only. It reads on the thread of its caller.
///
/// ```no_run
/// # mod graph_runtime {
/// #     pub use graph_engine::*;
/// #     pub mod files { pub use graph_project_files::*; }
/// # }
/// use std::sync::Arc;
///
/// use graph_runtime::files::ProjectStore;
/// use graph_runtime::{Machine, PublicKey, RunId};
///
/// # async fn proven(graph: Arc<dyn Machine>, runner: PublicKey) -> Result<(), Box<dyn std::error::Error>> {
/// let files = ProjectStore::in_directory(".")?;
/// let proven = files.audit(graph, &RunId::new("order-17")?, &runner, &runner, None).await?;
/// assert!(proven.differing.is_empty(), "changed: {:?}", proven.differing);
/// println!("{} steps", proven.audits[0].steps);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct ProjectStore {
    disk: Arc<Disk>,
}

/// The result of proving a run from its files.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct FilesAudit {
    /// The facts that the journals prove: first about the run, then about those inside it.
    pub audits: Vec<Audit>,
    /// The files that disagree with the journals, each with its run.
    pub differing: Vec<(RunId, PathBuf)>,
}

/// Why a run's files cannot be audited.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FilesAuditError {
    /// A journal among them cannot be read, or the run is not proven.
    #[error(transparent)]
    Audit(#[from] AuditError),
    /// Another file cannot be read.
    #[error("cannot read the files of run `{run}`")]
    Files {
        /// The run.
        run: RunId,
        /// Why.
        source: FilesError,
    },
}

impl HasKind for FilesAuditError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Audit(error) => error.kind(),
            Self::Files { .. } => ErrorKind::Internal,
        }
    }
}

impl ProjectStore {
    /// Reads the `.ai` of the project at `root`. No path leads out of `root`, not even through links.
    ///
    /// # Errors
    ///
    /// If there is no such directory.
    pub fn in_directory(root: impl AsRef<Path>) -> Result<Self, FilesError> {
        Ok(Self::of(Arc::new(Disk::open(root.as_ref())?)))
    }

    pub(crate) fn of(disk: Arc<Disk>) -> Self {
        Self { disk }
    }

    /// Returns the objects in which the project's runs are stored.
    pub fn objects(&self) -> Objects {
        Objects { disk: Arc::clone(&self.disk) }
    }

    /// Proves a run and every run inside it from their files alone, as [`audit_tree`](graph_proof::audit_tree) does from a store, and
    /// [compares](Self::compare) the files with the journals. So every receipt and result agrees with the journal, and has
    /// its hash.
    ///
    /// `key` is the public key of the runtime that wrote the journals, and `files_key` the public key that the files are
    /// signed with.
    ///
    /// # Errors
    ///
    /// As for [`audit_tree`](graph_proof::audit_tree), or if a file cannot be read. Files that differ are not an error.
    pub async fn audit(
        &self,
        machine: Arc<dyn Machine>,
        run: &RunId,
        key: &PublicKey,
        files_key: &PublicKey,
        encryption_key: Option<&EncryptionKey>,
    ) -> Result<FilesAudit, FilesAuditError> {
        let mut all = FilesAudit { audits: Vec::new(), differing: Vec::new() };
        for (machine, audit) in prove_tree(machine, run, self, key, encryption_key).await? {
            let run = &audit.run;
            let unread = |source| FilesAuditError::Files { run: run.clone(), source };
            let signed_records = load(self, key, run, machine.graph()).await.map_err(unread)?;
            let differing = match signed_records.last() {
                Some(last) if last.link() == audit.link => {
                    self.differing(&signed_records, files_key, run, machine.graph())
                }
                // The journal was written to since it was proven.
                _ => Ok(vec![self.disk.path(&journal::file(run))]),
            };
            all.differing.extend(differing.map_err(unread)?.into_iter().map(|path| (run.clone(), path)));
            all.audits.push(audit);
        }
        Ok(all)
    }

    /// Returns the files of a run that are not, byte for byte, the ones that result from its journal and are signed with
    /// `files_key`. They were changed, are missing, or are not written yet. The journal is the one in `journals`, which may
    /// be this store or the one that the files were made from; `journal_key` is the public key of the runtime that wrote
    /// it, and `graph` its machine's [`graph`](Machine::graph). The registry, whose bytes are SQLite's own, is not
    /// compared. Nothing is changed; the run must not be in progress.
    ///
    /// # Errors
    ///
    /// If there is no such run, its journal was changed or belongs to another graph, or a file cannot be read.
    pub async fn compare(
        &self,
        journals: &dyn Store,
        journal_key: &PublicKey,
        files_key: &PublicKey,
        run: &RunId,
        graph: &CompiledGraph,
    ) -> Result<Vec<PathBuf>, FilesError> {
        self.differing(&load(journals, journal_key, run, graph).await?, files_key, run, graph)
    }

    /// Compares the files of a run with its journal, which was verified.
    fn differing(
        &self,
        signed_records: &[SignedRecord],
        files_key: &PublicKey,
        run: &RunId,
        graph: &CompiledGraph,
    ) -> Result<Vec<PathBuf>, FilesError> {
        let version = self.version(run).unwrap_or_else(|| env!("CARGO_PKG_VERSION").to_owned());
        let signed = self.signed(graph.id(), run, files_key)?;
        let disk = Arc::new(self.disk.comparing()?);
        Keeper::new(run, graph, version).take(&signed, &disk, signed_records)?;
        Ok(disk.differing())
    }

    /// Verifies a run's files: the state item's signature, every signature of the transcript, and that the transcript is
    /// the one that the state item names, and not shorter (R229).
    ///
    /// # Errors
    ///
    /// If a file is missing, or the first check that fails.
    pub fn verify(
        &self,
        graph: &GraphId,
        run: &RunId,
        keys: &KeyRing,
    ) -> Result<(StateItem, VerifiedTranscript), FilesError> {
        let read = |file: &str| self.disk.read(file)?.ok_or_else(|| FilesError::Missing { path: self.disk.path(file) });
        let file = item::file(graph, run);
        let text = String::from_utf8(read(&file)?)
            .map_err(|error| FilesError::Unreadable { path: self.disk.path(&file), reason: error.to_string() })?;
        let item = read_state_item(&text, keys)?;
        if item.run != *run || item.graph != *graph {
            return Err(FilesError::AnotherRun { path: self.disk.path(&file), found: item.run });
        }
        let transcript = read(&transcript_file(run))?;
        let rules = Rules { bound: Some(&item.transcript), ..Rules::default() };
        let verified = verify_transcript(run, &transcript, keys, rules).map_err(FilesError::Transcript)?;
        Ok((item, verified))
    }

    /// Returns the version of the runtime that wrote a run's files, according to the files. The signed text also contains
    /// it, and so must have the same version.
    fn version(&self, run: &RunId) -> Option<String> {
        let objects = self.objects();
        let snapshot = objects.reference(run).ok()??;
        objects.get(&snapshot).ok()?.get("system_version").and_then(Value::as_str).map(str::to_owned)
    }

    /// Collects the signatures in a run's files.
    fn signed(&self, graph: &GraphId, run: &RunId, key: &PublicKey) -> Result<Signed, FilesError> {
        let transcript = self.disk.read(&transcript_file(run))?.unwrap_or_default();
        let mut found: HashMap<Digest, [u8; 64]> = signatures(&transcript).collect();
        for file in [item::file(graph, run), page::file(graph, run)] {
            let text = self.disk.read(&file)?.and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
            let opened = signature::open(ItemKind::Knowledge, &text).ok();
            found.extend(opened.map(|opened| (opened.envelope.digest, opened.envelope.signature)));
        }
        let text = self.disk.read(&thread::file(run))?.unwrap_or_default();
        let envelope = thread::envelope(&text);
        found.extend(envelope.map(|envelope| (envelope.digest, envelope.signature)));
        Ok(Signed { key: key.clone(), fingerprint: key.fingerprint(), found })
    }

    fn read(&self, run: &RunId) -> Result<Vec<SignedRecord>, StoreError> {
        let file = journal::file(run);
        let path = || self.disk.path(&file);
        match self.disk.read(&file) {
            Ok(Some(bytes)) => journal::read(&bytes).map_err(|reason| StoreError::unreadable(path().display(), reason)),
            Ok(None) => Err(StoreError::NotFound(run.clone())),
            Err(error) => Err(unopened(path(), error)),
        }
    }

    fn summary(&self, run: &RunId) -> Result<RunSummary, StoreError> {
        let records = self.read(run)?;
        let malformed = |reason: String| StoreError::unreadable(self.disk.path(&journal::file(run)).display(), reason);
        let record = |signed: &SignedRecord| -> Result<Record, StoreError> {
            serde_json::from_str(&signed.body).map_err(|error| malformed(format!("record {}: {error}", signed.seq)))
        };
        let Some(Record { at, entry: Entry::Start(start), .. }) = records.first().map(record).transpose()? else {
            return Err(malformed("it does not begin with the start of a run".to_owned()));
        };
        // The record of the last change of its status.
        let turns =
            |one: &&SignedRecord| Head::cut(&one.body).is_some_and(|head| matches!(head.kind, "resume" | "end"));
        let turn = records.iter().rev().find(turns).map(record).transpose()?;
        let (status, updated, code) = match turn {
            Some(Record { at, entry: Entry::End(end), .. }) => (end.status, at, end.code),
            Some(Record { at, .. }) => (Status::Running, at, None),
            None => (Status::Running, at.clone(), None),
        };
        let mut summary = RunSummary::new(run.clone(), start.graph, status);
        summary.records = records.len() as u64;
        (summary.created, summary.updated) = (timestamp::parse(&at), timestamp::parse(&updated));
        summary.parent = start.parent.map(|parent| parent.run);
        (summary.digest, summary.meaning) = (Some(start.digest), start.meaning);
        (summary.version, summary.code) = (Some(start.version), code);
        Ok(summary)
    }

    fn summaries(&self) -> Result<Vec<RunSummary>, StoreError> {
        let names = self.disk.names(journal::THREADS);
        let names = names.map_err(|error| unopened(self.disk.path(journal::THREADS), error))?;
        let mut all = Vec::new();
        for run in names.iter().filter_map(|name| RunId::new(name.as_str()).ok()) {
            match self.summary(&run) {
                // Other programs store threads there too.
                Err(StoreError::NotFound(_)) => {}
                found => all.push(found?),
            }
        }
        Ok(all)
    }
}

fn unopened(path: PathBuf, error: FilesError) -> StoreError {
    let cause = std::error::Error::source(&error);
    let reason = cause.map_or_else(|| error.to_string(), ToString::to_string);
    StoreError::open(path.display(), reason).with_source(error)
}

impl Store for ProjectStore {
    fn create<'a>(&'a self, _: &'a RunId, _: &'a str, _: Vec<SignedRecord>) -> StoreFuture<'a, Lease> {
        unsupported("begin runs: it reads the files of a project")
    }

    fn append<'a>(&'a self, _: &'a Lease, _: u64, _: Vec<SignedRecord>, _: Status) -> StoreFuture<'a, ()> {
        unsupported("go on with runs: it reads the files of a project")
    }

    fn load<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, Vec<SignedRecord>> {
        Box::pin(async move { self.read(run) })
    }

    fn lease<'a>(&'a self, _: &'a RunId) -> StoreFuture<'a, Lease> {
        unsupported("go on with runs: it reads the files of a project")
    }

    fn runs<'a>(&'a self, filter: &'a RunFilter, page: &'a Page) -> StoreFuture<'a, RunPage> {
        Box::pin(async move { RunPage::of(self.summaries()?, filter, page) })
    }

    fn find<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, RunSummary> {
        Box::pin(async move { self.summary(run) })
    }
}

/// Signs with the signatures that the holder of a key made before. A text that was signed gets its old signature, and no
/// other text has a signature.
struct Signed {
    key: PublicKey,
    fingerprint: Fingerprint,
    found: HashMap<Digest, [u8; 64]>,
}

impl Signer for Signed {
    fn fingerprint(&self) -> Fingerprint {
        self.fingerprint.clone()
    }

    /// Returns the signature that was found, or else an invalid one. A text with that signature differs from the file.
    fn sign(&self, digest: &Digest) -> [u8; 64] {
        let good = self.found.get(digest).filter(|signature| self.key.verifies(digest, signature));
        good.copied().unwrap_or([0; 64])
    }
}

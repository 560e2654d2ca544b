//! A store with one file for each run, written against the public items of `graph-runtime` only.
//!
//! A run's file is a list of lines, each with its checksum. A line is the change that one request made, and is written
//! with one write that is waited for (`fsync`), so after a crash it is either complete or missing. If a crash leaves an
//! incomplete line, it is cut off when the run is leased next. Nothing in a file changes except the token of the
//! journal's last record, which is blanked when another record follows.
//!
//! An operating system lock on a file next to the run's file shows who holds the run. The lock is released when its
//! process ends.

mod file;
mod removal;

use std::collections::HashMap;
use std::fs::{self, File, TryLockError};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, SystemTime};

use graph_runtime::RunId;
use graph_runtime::record::{SignedRecord, Status};
use graph_runtime::store::{
    CancelRequest, Holder, Lease, Page, RunFilter, RunPage, RunStart, RunSummary, Store, StoreError, StoreFuture,
    failure_code, may_block_run, others_had_turn,
};

use file::{Change, Contents, Journal};

/// The interval at which held runs are checked for a cancel request of another process.
const PACE: Duration = Duration::from_millis(100);

/// A store in a directory. Clones share it.
#[derive(Debug, Clone)]
pub struct FileStore {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    directory: PathBuf,
    /// The runs that this store holds.
    held: Mutex<HashMap<RunId, Held>>,
    /// The time at which the last run was created: two runs of the same moment would have no order.
    created: Mutex<u128>,
}

/// A run that this store holds.
#[derive(Debug)]
struct Held {
    token: u64,
    cancel: CancelRequest,
    journal: Arc<Mutex<Journal>>,
    /// Locked as long as the run is held.
    _lock: File,
}

impl FileStore {
    /// Opens the store in a directory, which is created if it does not exist. Completes the removal of runs that
    /// another process began before it died.
    ///
    /// # Errors
    ///
    /// If the directory cannot be made or read.
    pub fn open(directory: impl AsRef<Path>) -> Result<Self, StoreError> {
        let directory = directory.as_ref().to_owned();
        let unopened = |error: io::Error| StoreError::open(directory.display(), error.to_string()).with_source(error);
        fs::create_dir_all(&directory).map_err(unopened)?;
        removal::finish(&directory).map_err(unopened)?;
        let shared = Arc::new(Shared { directory, held: Mutex::default(), created: Mutex::default() });
        let weak = Arc::downgrade(&shared);
        thread::spawn(move || listen(&weak));
        Ok(Self { shared })
    }

    /// Works on the caller's thread if a run may block there, and otherwise on a blocking thread.
    async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Arc<Shared>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        if may_block_run() {
            let done = tokio::task::block_in_place(|| work(&self.shared));
            others_had_turn();
            return done;
        }
        let shared = Arc::clone(&self.shared);
        tokio::task::spawn_blocking(move || work(&shared)).await.map_err(|_| StoreError::Closed)?
    }
}

/// Notifies the runs that are held when another process cancels them, until the store is gone.
fn listen(store: &Weak<Shared>) {
    while let Some(shared) = store.upgrade() {
        for (run, held) in locked(&shared.held).iter() {
            if shared.path(run, "cancel").exists() {
                held.cancel.set();
            }
        }
        drop(shared);
        thread::sleep(PACE);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Returns the path of one of a run's files. A run's id has only characters that a file name may have.
    fn path(&self, run: &RunId, kind: &str) -> PathBuf {
        self.directory.join(format!("{run}.{kind}"))
    }

    /// Makes the creation and removal of files in the directory durable.
    fn sync(&self) -> io::Result<()> {
        File::open(&self.directory)?.sync_all()
    }

    /// Converts a file's error to the error of a store.
    fn failed(&self, error: io::Error) -> StoreError {
        let place = self.directory.display();
        let explained = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StoreError::full(place),
            io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
                StoreError::read_only(place, format!("{error}; give this program the right to write there"))
            }
            _ => StoreError::unavailable(place, format!("{error}; see to the disk, then try again")),
        };
        explained.with_source(error)
    }

    fn read(&self, run: &RunId) -> Result<Contents, StoreError> {
        if removal::is_removed(&self.directory, run).map_err(|error| self.failed(error))? {
            return Err(StoreError::NotFound(run.clone()));
        }
        let path = self.path(run, "journal");
        match fs::read(&path) {
            Ok(bytes) => Contents::read(&bytes)
                .map_err(|reason| StoreError::unreadable(path.display(), format!("{reason}; put a copy in its place"))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(StoreError::NotFound(run.clone())),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// Locks a run, or returns an error that names its holder.
    fn lock(&self, run: &RunId) -> Result<File, StoreError> {
        let path = self.path(run, "lock");
        let open = || File::options().read(true).append(true).create(true).open(&path);
        let lock = open().map_err(|error| self.failed(error))?;
        match lock.try_lock() {
            Ok(()) => {
                let noted = lock.set_len(0).and_then(|()| (&lock).write_all(std::process::id().to_string().as_bytes()));
                noted.map_err(|error| self.failed(error))?;
                Ok(lock)
            }
            Err(TryLockError::WouldBlock) => {
                let holder = self.holder(run).map_or_else(|| "another process".to_owned(), |holder| holder.to_string());
                Err(StoreError::Leased { run: run.clone(), holder })
            }
            Err(TryLockError::Error(error)) => Err(self.failed(error)),
        }
    }

    /// Returns the holder of a run, if there is one.
    fn holder(&self, run: &RunId) -> Option<Holder> {
        let path = self.path(run, "lock");
        let lock = File::open(&path).ok()?;
        // The lock is shared, so that two processes that look do not take each other for the holder.
        match lock.try_lock_shared() {
            Err(TryLockError::WouldBlock) => {
                let mut holder = Holder::new(0, "this host");
                holder.process = fs::read_to_string(&path).ok().and_then(|process| process.parse().ok());
                Some(holder)
            }
            _ => None,
        }
    }

    fn summary(&self, run: &RunId) -> Result<RunSummary, StoreError> {
        let Contents { graph, created, updated, status, code, records, .. } = self.read(run)?;
        let start = RunStart::of(&records);
        let mut summary = RunSummary::new(run.clone(), graph, status).with_start(start);
        summary.records = records.len() as u64;
        (summary.created, summary.updated, summary.code) = (Some(created), Some(updated), code);
        summary.holder = self.holder(run);
        summary.is_cancelling = self.is_cancelling(run, status);
        Ok(summary)
    }

    /// Whether a run is to end as cancelled. A run that has completed or was cancelled cannot receive a new request.
    fn is_cancelling(&self, run: &RunId, status: Status) -> bool {
        matches!(status, Status::Running | Status::Error) && self.path(run, "cancel").exists()
    }

    fn summaries(&self) -> Result<Vec<RunSummary>, StoreError> {
        let mut all = Vec::new();
        for entry in fs::read_dir(&self.directory).map_err(|error| self.failed(error))? {
            let name = entry.map_err(|error| self.failed(error))?.file_name();
            let run = name.to_str().and_then(|name| RunId::new(name.strip_suffix(".journal")?).ok());
            let Some(run) = run else { continue };
            match self.summary(&run) {
                // It was removed meanwhile.
                Err(StoreError::NotFound(_)) => {}
                found => all.push(found?),
            }
        }
        Ok(all)
    }

    /// Makes a run's file at once: the file gets its name only when its content is durable.
    fn create(self: &Arc<Self>, run: &RunId, graph: &str, records: Vec<SignedRecord>) -> Result<Lease, StoreError> {
        let lock = match self.lock(run) {
            Err(StoreError::Leased { .. }) => return Err(StoreError::Exists(run.clone())),
            locked => locked?,
        };
        if self.path(run, "journal").exists() {
            return Err(StoreError::Exists(run.clone()));
        }
        let token = RandomState::new().build_hasher().finish() >> 2;
        let created = {
            let mut last = locked(&self.created);
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
            *last = now.max(*last + 1);
            *last
        };
        let made = || -> io::Result<Journal> {
            // A request may be left from a removed run of this name.
            removal::forget(&self.path(run, "cancel"))?;
            let journal = Journal::create(&self.path(run, "new"), graph, created, token, &records)?;
            fs::rename(self.path(run, "new"), self.path(run, "journal"))?;
            self.sync()?;
            Ok(journal)
        };
        let journal = made().map_err(|error| self.failed(error))?;
        Ok(self.hold(run, token, journal, lock))
    }

    fn hold(self: &Arc<Self>, run: &RunId, token: u64, journal: Journal, lock: File) -> Lease {
        let (store, id) = (Arc::clone(self), run.clone());
        let lease = Lease::new(run.clone(), token, move || store.release(&id, token));
        let held =
            Held { token, cancel: lease.cancel_request().clone(), journal: Arc::new(Mutex::new(journal)), _lock: lock };
        locked(&self.held).insert(run.clone(), held);
        lease
    }

    fn release(&self, run: &RunId, token: u64) {
        let mut held = locked(&self.held);
        if held.get(run).is_some_and(|held| held.token == token) {
            held.remove(run);
        }
    }

    fn lease(self: &Arc<Self>, run: &RunId, ignores_cancel: bool) -> Result<Lease, StoreError> {
        self.read(run)?;
        let lock = self.lock(run)?;
        // The previous holder may have written since the first read.
        let contents = self.read(run)?;
        let marker = self.path(run, "cancel");
        let is_cancelling = self.is_cancelling(run, contents.status) && !ignores_cancel;
        let token = contents.token + 1;
        let leased = || -> io::Result<Journal> {
            if !is_cancelling {
                removal::forget(&marker)?;
                self.sync()?;
            }
            let mut journal = Journal::open(&self.path(run, "journal"), contents)?;
            journal.write(&Change::Lease { token })?;
            Ok(journal)
        };
        let journal = leased().map_err(|error| self.failed(error))?;
        let lease = self.hold(run, token, journal, lock);
        if is_cancelling {
            lease.cancel_request().set();
        }
        Ok(lease)
    }

    /// Returns the journal of a run for the holder of a token. Nobody holds a run that has ended: its last holder may
    /// still continue it until it is leased to somebody else.
    fn held(
        self: &Arc<Self>,
        run: &RunId,
        token: u64,
        cancel: &CancelRequest,
    ) -> Result<Arc<Mutex<Journal>>, StoreError> {
        if let Some(held) = locked(&self.held).get(run) {
            return match held.token == token {
                true => Ok(Arc::clone(&held.journal)),
                false => Err(StoreError::LeaseLost(run.clone())),
            };
        }
        let lock = self.lock(run).map_err(|_| StoreError::LeaseLost(run.clone()))?;
        let contents = self.read(run)?;
        if contents.token != token {
            return Err(StoreError::LeaseLost(run.clone()));
        }
        let journal = Journal::open(&self.path(run, "journal"), contents).map_err(|error| self.failed(error))?;
        let journal = Arc::new(Mutex::new(journal));
        let held = Held { token, cancel: cancel.clone(), journal: Arc::clone(&journal), _lock: lock };
        locked(&self.held).insert(run.clone(), held);
        Ok(journal)
    }

    fn append(
        self: &Arc<Self>,
        run: &RunId,
        (token, cancel): (u64, &CancelRequest),
        expected: u64,
        records: Vec<SignedRecord>,
        status: Status,
    ) -> Result<(), StoreError> {
        let journal = self.held(run, token, cancel)?;
        let appended = {
            let mut journal = locked(&journal);
            let found = journal.records();
            let follows = records.iter().zip(expected..).all(|(record, seq)| record.seq == seq);
            match found == expected && follows {
                true => {
                    let code = failure_code(&records, status);
                    journal.append(records, status, code).map_err(|error| self.failed(error))
                }
                false => Err(StoreError::Conflict { run: run.clone(), expected, found }),
            }
        };
        if status != Status::Running {
            self.release(run, token);
        } else if self.path(run, "cancel").exists() {
            cancel.set();
        }
        appended
    }

    fn cancel(&self, run: &RunId) -> Result<(), StoreError> {
        let status = self.read(run)?.status;
        if status != Status::Running && self.holder(run).is_none() {
            return Err(StoreError::Ended { run: run.clone(), status });
        }
        let mark = || -> io::Result<()> {
            File::options().append(true).create(true).open(self.path(run, "cancel"))?.sync_all()?;
            self.sync()
        };
        mark().map_err(|error| self.failed(error))?;
        if let Some(held) = locked(&self.held).get(run) {
            held.cancel.set();
        }
        Ok(())
    }

    /// Removes a run and its nested runs. Nobody may hold them: they are locked meanwhile.
    fn remove(&self, run: &RunId) -> Result<(), StoreError> {
        self.read(run)?;
        let all = self.summaries()?;
        let (mut tree, mut at) = (vec![run.clone()], 0);
        while at < tree.len() {
            let inside = all.iter().filter(|one| one.parent.as_ref() == Some(&tree[at]));
            let inside: Vec<RunId> = inside.map(|one| one.run.clone()).filter(|run| !tree.contains(run)).collect();
            tree.extend(inside);
            at += 1;
        }
        let locks = tree.iter().map(|run| self.lock(run)).collect::<Result<Vec<File>, _>>()?;
        removal::remove(&self.directory, &tree).map_err(|error| self.failed(error))?;
        drop(locks);
        Ok(())
    }
}

impl Store for FileStore {
    fn create<'a>(&'a self, run: &'a RunId, graph: &'a str, records: Vec<SignedRecord>) -> StoreFuture<'a, Lease> {
        let (run, graph) = (run.clone(), graph.to_owned());
        Box::pin(self.work(move |shared| shared.create(&run, &graph, records)))
    }

    fn append<'a>(
        &'a self,
        lease: &'a Lease,
        expected: u64,
        records: Vec<SignedRecord>,
        status: Status,
    ) -> StoreFuture<'a, ()> {
        let (run, token, cancel) = (lease.run().clone(), lease.token(), lease.cancel_request().clone());
        Box::pin(self.work(move |shared| shared.append(&run, (token, &cancel), expected, records, status)))
    }

    fn load<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, Vec<SignedRecord>> {
        let run = run.clone();
        Box::pin(self.work(move |shared| Ok(shared.read(&run)?.records)))
    }

    fn lease<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, Lease> {
        let run = run.clone();
        Box::pin(self.work(move |shared| shared.lease(&run, false)))
    }

    fn lease_ignoring_cancel<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, Lease> {
        let run = run.clone();
        Box::pin(self.work(move |shared| shared.lease(&run, true)))
    }

    fn runs<'a>(&'a self, filter: &'a RunFilter, page: &'a Page) -> StoreFuture<'a, RunPage> {
        let (filter, page) = (filter.clone(), page.clone());
        Box::pin(self.work(move |shared| RunPage::of(shared.summaries()?, &filter, &page)))
    }

    fn find<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, RunSummary> {
        let run = run.clone();
        Box::pin(self.work(move |shared| shared.summary(&run)))
    }

    fn cancel<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, ()> {
        let run = run.clone();
        Box::pin(self.work(move |shared| shared.cancel(&run)))
    }

    fn remove<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, ()> {
        let run = run.clone();
        Box::pin(self.work(move |shared| shared.remove(&run)))
    }
}

//! A store with one file for each run, written against the public items of `graph-runtime` only.
//!
//! A run's file is a list of lines, each with its checksum. A line is the change that one request made, and is written
//! with one write that is waited for (`fsync`), so after a crash it is either complete or missing. If a crash leaves an
//! incomplete line, it is cut off when the run is leased next. Nothing in a file changes except the token of the
//! journal's last record, which is blanked when another record follows.
//!
//! A line that has records also has the waits that they open and close. A claim and a postponement are lines too. So the
//! file of a run decides when a worker may continue it, and no other file has to agree with it. Only a line that says that
//! a claimed run was given back is not waited for.
//!
//! An operating system lock on a file next to the run's file shows who holds the run. The lock is released when its
//! process ends.
//!
//! Files of the directory that belong to no run: `time` has the latest time that was recorded, `news` changes when workers
//! should look at the runs, those that end in `.schedule` have the marks of schedules, `tick` the change of one, and `turn` and `removing` are locked by one process at a time.

mod claims;
mod file;
mod locks;
mod news;
mod removal;
mod schedules;
mod time;

use std::collections::HashMap;
use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, SystemTime};

use graph_runtime::record::{SignedRecord, Status};
use graph_runtime::store::{
    CancelRequest, Claim, Claimed, Lease, Page, RunFilter, RunPage, RunStart, RunSummary, ScheduleChange, ScheduleMark,
    Store, StoreError, StoreFuture, WaitChanges, WaitFilter, WaitPage, WaitRow, failure_code, may_block_run,
    others_had_turn,
};
use graph_runtime::{Clock, Digest, RunId, SystemClock};

use claims::Known;
use file::{Contents, Journal};
use locks::Lock;
use news::News;
use time::Time;

/// The interval at which a store looks for news, and for cancel requests of other processes.
const PACE: Duration = Duration::from_millis(50);

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
    time: Time,
    news: News,
    /// The facts of the runs when somebody last asked which of them can continue.
    known: Mutex<Known>,
}

/// A run that this store holds.
#[derive(Debug)]
struct Held {
    token: u64,
    cancel: CancelRequest,
    journal: Arc<Mutex<Journal>>,
}

impl FileStore {
    /// Opens the store in a directory, which is created if it does not exist. Completes the removal of runs that
    /// another process began before it died.
    ///
    /// # Errors
    ///
    /// If the directory cannot be made or read.
    pub fn open(directory: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::open_with_clock(directory, Arc::new(SystemClock::new()))
    }

    /// As [`FileStore::open`], with a clock that decides when waits are over.
    ///
    /// # Errors
    ///
    /// As for [`FileStore::open`].
    pub fn open_with_clock(directory: impl AsRef<Path>, clock: Arc<dyn Clock>) -> Result<Self, StoreError> {
        let directory = directory.as_ref().to_owned();
        let unopened = |error: io::Error| StoreError::open(directory.display(), error.to_string()).with_source(error);
        let opened = || -> io::Result<(Time, News)> {
            fs::create_dir_all(&directory)?;
            removal::finish(&directory)?;
            drop(schedules::lock(&directory)?);
            let (time, news) = (Time::open(&directory, clock)?, News::open(&directory)?);
            File::open(&directory)?.sync_all()?;
            Ok((time, news))
        };
        let (time, news) = opened().map_err(unopened)?;
        let (held, created, known) = (Mutex::default(), Mutex::default(), Mutex::default());
        let shared = Arc::new(Shared { directory, held, created, time, news, known });
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

/// Looks for news, and notifies the runs that are held when another process cancels them, until the store is gone.
fn listen(store: &Weak<Shared>) {
    while let Some(shared) = store.upgrade() {
        for (run, held) in locked(&shared.held).iter() {
            if shared.path(run, "cancel").exists() {
                held.cancel.set();
            }
        }
        shared.news.look();
        drop(shared);
        thread::sleep(PACE);
    }
}

/// Whether a cancel request holds in a run of this status. A run that has completed or was cancelled cannot receive one.
fn keeps_cancel(status: Status) -> bool {
    matches!(status, Status::Running | Status::Waiting | Status::Error)
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

    fn now(&self) -> Result<i64, StoreError> {
        self.time.now().map_err(|error| self.failed(error))
    }

    fn summary(&self, run: &RunId) -> Result<RunSummary, StoreError> {
        let contents = self.read(run)?;
        let due = contents.next_due().map(|due| Duration::from_millis(u64::try_from(due).unwrap_or_default()));
        let Contents { graph, created, updated, status, code, records, .. } = contents;
        let start = RunStart::of(&records);
        let mut summary = RunSummary::new(run.clone(), graph, status).with_start(start);
        summary.records = records.len() as u64;
        (summary.created, summary.updated, summary.code) = (Some(created), Some(updated), code);
        summary.next_due = due.map(|due| SystemTime::UNIX_EPOCH + due);
        summary.holder = self.holder(run);
        summary.is_cancelling = self.is_cancelling(run, status);
        Ok(summary)
    }

    /// Whether a run is to end as cancelled.
    fn is_cancelling(&self, run: &RunId, status: Status) -> bool {
        keeps_cancel(status) && self.path(run, "cancel").exists()
    }

    /// Returns all runs that are not being removed.
    fn all(&self) -> Result<Vec<RunId>, StoreError> {
        let list = || -> io::Result<Vec<RunId>> {
            let (removed, mut all) = (removal::listed(&self.directory)?, Vec::new());
            for entry in fs::read_dir(&self.directory)? {
                let name = entry?.file_name();
                let run = name.to_str().and_then(|name| RunId::new(name.strip_suffix(".journal")?).ok());
                all.extend(run.filter(|run| !removed.iter().any(|removed| removed == run.as_str())));
            }
            Ok(all)
        };
        list().map_err(|error| self.failed(error))
    }

    fn summaries(&self) -> Result<Vec<RunSummary>, StoreError> {
        let mut all = Vec::new();
        for run in self.all()? {
            match self.summary(&run) {
                // It was removed meanwhile.
                Err(StoreError::NotFound(_)) => {}
                found => all.push(found?),
            }
        }
        Ok(all)
    }

    fn open_waits(&self, filter: &WaitFilter, page: &Page) -> Result<WaitPage, StoreError> {
        let mut rows = Vec::new();
        for run in self.all()? {
            match self.read(&run) {
                Ok(Contents { graph, waits, .. }) => {
                    rows.extend(waits.into_values().map(|wait| WaitRow::new(run.clone(), graph.clone(), wait)));
                }
                // It was removed meanwhile.
                Err(StoreError::NotFound(_)) => {}
                Err(error) => return Err(error),
            }
        }
        WaitPage::of(rows, filter, page)
    }

    /// Makes a run's file at once: the file gets its name only when its content is durable.
    ///
    /// With the change of a mark, the change gives it its name.
    fn create(
        self: &Arc<Self>,
        run: &RunId,
        graph: &str,
        records: Vec<SignedRecord>,
        change: Option<&ScheduleChange>,
    ) -> Result<Lease, StoreError> {
        let _marks = change.map(|change| self.expect_mark(change)).transpose()?;
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
            let kind = if change.is_some() { "tick" } else { "new" };
            let journal = Journal::create(&self.path(run, kind), lock, graph, created, token, &records)?;
            match change {
                Some(change) => self.change_mark(change, Some(run))?,
                None => {
                    fs::rename(self.path(run, kind), self.path(run, "journal"))?;
                    self.sync()?;
                }
            }
            Ok(journal)
        };
        let journal = made().map_err(|error| self.failed(error))?;
        Ok(self.hold(run, token, journal))
    }

    fn hold(self: &Arc<Self>, run: &RunId, token: u64, journal: Journal) -> Lease {
        let (store, id) = (Arc::clone(self), run.clone());
        let lease = Lease::new(run.clone(), token, move || store.release(&id, token));
        let held = Held { token, cancel: lease.cancel_request().clone(), journal: Arc::new(Mutex::new(journal)) };
        locked(&self.held).insert(run.clone(), held);
        lease
    }

    /// Stops holding a run. Its lock is released when what this returns is dropped.
    fn let_go(&self, run: &RunId, token: u64) -> Option<Held> {
        let mut held = locked(&self.held);
        if held.get(run)?.token == token { held.remove(run) } else { None }
    }

    fn release(&self, run: &RunId, token: u64) {
        let Some(held) = self.let_go(run, token) else { return };
        // If the journal is in use, a request is still writing whose caller is gone.
        if let Ok(mut journal) = held.journal.try_lock() {
            // If this fails, one try too many is counted.
            drop(journal.give_back());
        }
        drop(held);
        self.news.publish();
    }

    fn lease(self: &Arc<Self>, run: &RunId, ignores_cancel: bool) -> Result<Lease, StoreError> {
        self.read(run)?;
        let lock = self.lock(run)?;
        // The previous holder may have written since the first read.
        let contents = self.read(run)?;
        if ignores_cancel || !keeps_cancel(contents.status) {
            let forgotten = removal::forget(&self.path(run, "cancel")).and_then(|()| self.sync());
            forgotten.map_err(|error| self.failed(error))?;
        }
        self.lease_locked(run, lock, contents, false)
    }

    /// Leases a run that is locked, and whose file was read since.
    fn lease_locked(
        self: &Arc<Self>,
        run: &RunId,
        lock: Lock,
        contents: Contents,
        is_claim: bool,
    ) -> Result<Lease, StoreError> {
        let (token, status) = (contents.token + 1, contents.status);
        let leased = || -> io::Result<Journal> {
            let mut journal = Journal::open(&self.path(run, "journal"), lock, contents)?;
            journal.lease(token, is_claim)?;
            Ok(journal)
        };
        let journal = leased().map_err(|error| self.failed(error))?;
        let lease = self.hold(run, token, journal);
        if self.is_cancelling(run, status) {
            lease.cancel_request().set();
        }
        Ok(lease)
    }

    /// Returns the journal of a run for the holder of a token. Nobody holds a run that waits or has ended: its last holder
    /// may still continue it until it is leased to somebody else.
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
        let lock = match self.lock(run) {
            Err(StoreError::Leased { .. }) => return Err(StoreError::LeaseLost(run.clone())),
            lock => lock?,
        };
        let contents = self.read(run)?;
        // A run that is running, and that this store does not hold, was given back.
        if contents.token != token || contents.status == Status::Running {
            return Err(StoreError::LeaseLost(run.clone()));
        }
        let journal = Journal::open(&self.path(run, "journal"), lock, contents).map_err(|error| self.failed(error))?;
        let journal = Arc::new(Mutex::new(journal));
        let held = Held { token, cancel: cancel.clone(), journal: Arc::clone(&journal) };
        locked(&self.held).insert(run.clone(), held);
        Ok(journal)
    }

    fn append(
        self: &Arc<Self>,
        run: &RunId,
        (token, cancel): (u64, &CancelRequest),
        expected: u64,
        records: &[SignedRecord],
        status: Status,
        waits: &WaitChanges,
    ) -> Result<(), StoreError> {
        let journal = self.held(run, token, cancel)?;
        {
            let mut journal = locked(&journal);
            let found = journal.records();
            let follows = records.iter().zip(expected..).all(|(record, seq)| record.seq == seq);
            if found != expected || !follows {
                return Err(StoreError::Conflict { run: run.clone(), expected, found });
            }
            let timed = if waits.is_empty() { Ok(()) } else { self.time.record() };
            let code = failure_code(records, status);
            let appended = timed.and_then(|()| journal.append(records, status, code.as_deref(), waits));
            appended.map_err(|error| self.failed(error))?;
        }
        drop(journal);
        if status != Status::Running {
            self.release(run, token);
        } else if self.path(run, "cancel").exists() {
            cancel.set();
        }
        Ok(())
    }

    fn cancel(&self, run: &RunId) -> Result<(), StoreError> {
        let status = self.read(run)?.status;
        if !matches!(status, Status::Running | Status::Waiting) && self.holder(run).is_none() {
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
        self.news.publish();
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
        let locks = tree.iter().map(|run| self.lock(run)).collect::<Result<Vec<Lock>, _>>()?;
        removal::remove(&self.directory, &tree).map_err(|error| self.failed(error))?;
        drop(locks);
        Ok(())
    }
}

impl Store for FileStore {
    fn create<'a>(&'a self, run: &'a RunId, graph: &'a str, records: Vec<SignedRecord>) -> StoreFuture<'a, Lease> {
        let (run, graph) = (run.clone(), graph.to_owned());
        Box::pin(self.work(move |shared| shared.create(&run, &graph, records, None)))
    }

    fn create_at_tick<'a>(
        &'a self,
        run: &'a RunId,
        graph: &'a str,
        records: Vec<SignedRecord>,
        change: &'a ScheduleChange,
    ) -> StoreFuture<'a, Lease> {
        let (run, graph, change) = (run.clone(), graph.to_owned(), change.clone());
        Box::pin(self.work(move |shared| shared.create(&run, &graph, records, Some(&change))))
    }

    fn schedule_mark<'a>(&'a self, schedule: &'a str) -> StoreFuture<'a, Option<ScheduleMark>> {
        let schedule = schedule.to_owned();
        Box::pin(self.work(move |shared| shared.schedule_mark(&schedule)))
    }

    fn change_schedule<'a>(&'a self, change: &'a ScheduleChange) -> StoreFuture<'a, ()> {
        let change = change.clone();
        Box::pin(self.work(move |shared| shared.change_schedule(&change)))
    }

    fn append<'a>(
        &'a self,
        lease: &'a Lease,
        expected: u64,
        records: Vec<SignedRecord>,
        status: Status,
    ) -> StoreFuture<'a, ()> {
        self.append_waiting(lease, expected, records, status, WaitChanges::default())
    }

    fn append_waiting<'a>(
        &'a self,
        lease: &'a Lease,
        expected: u64,
        records: Vec<SignedRecord>,
        status: Status,
        waits: WaitChanges,
    ) -> StoreFuture<'a, ()> {
        let (run, token, cancel) = (lease.run().clone(), lease.token(), lease.cancel_request().clone());
        Box::pin(self.work(move |shared| shared.append(&run, (token, &cancel), expected, &records, status, &waits)))
    }

    fn now(&self) -> StoreFuture<'_, i64> {
        Box::pin(self.work(|shared| shared.now()))
    }

    fn claim<'a>(&'a self, claim: &'a Claim) -> StoreFuture<'a, Vec<Claimed>> {
        let claim = claim.clone();
        Box::pin(self.work(move |shared| shared.claim(&claim)))
    }

    fn next_wake<'a>(&'a self, graphs: &'a [(String, Digest)]) -> StoreFuture<'a, Option<i64>> {
        let graphs = graphs.to_vec();
        Box::pin(self.work(move |shared| shared.next_wake(&graphs)))
    }

    fn news(&self, seen: u64) -> StoreFuture<'_, u64> {
        Box::pin(async move { self.shared.news.after(seen).await.ok_or(StoreError::Closed) })
    }

    fn postpone(&self, lease: Lease, until: i64) -> StoreFuture<'_, ()> {
        Box::pin(self.work(move |shared| shared.postpone(lease, until)))
    }

    fn open_waits<'a>(&'a self, filter: &'a WaitFilter, page: &'a Page) -> StoreFuture<'a, WaitPage> {
        let (filter, page) = (filter.clone(), page.clone());
        Box::pin(self.work(move |shared| shared.open_waits(&filter, &page)))
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

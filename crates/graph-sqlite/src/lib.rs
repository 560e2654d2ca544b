//! The store in a file: SQLite, with one writer that commits the appends of concurrent runs together.
//!
//! The file uses a write-ahead log with `synchronous=FULL`: records for which `append` returned `Ok` survive a power loss.
//! One connection writes. If it is free, a run writes on its own thread, because a wake-up by another thread can take as
//! long as the disk. While it is in use, further appends queue up for a thread that writes all of them in the next
//! transaction.
//!
//! An operating system lock on a file beside the database shows that the holder of a run is alive. The lock ends with its
//! process, however that ends, so a run can be taken over at once. If the lock of a process is not visible here, the last
//! heartbeat of the process decides. The fencing token ensures that a holder that was considered dead writes nothing more.

mod form;
mod holder;
mod news;
mod patience;
mod problem;
mod read;
mod schedules;
mod signals;
#[cfg(test)]
mod tests;
mod write;

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, TryLockError as TryLockFailed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use graph_model::digest::Digest;
use graph_model::name::RunId;
use graph_model::timestamp::unix_milliseconds;
use rusqlite::Connection;
use tokio::sync::{oneshot, watch};
use tracing::Instrument;

use crate::patience::Patience;
use crate::problem::{explain, read_only};
use graph_engine::record::{SignedRecord, Status};
use graph_engine::store::{
    Claim, Claimed, Cursor, Inbox, Lease, Page, Received, RunFilter, RunPage, RunStart, RunSummary, ScheduleChange,
    ScheduleMark, SealSignal, Signal, Store, StoreClock, StoreError, StoreFuture, WaitChanges, WaitFilter, WaitPage,
};
use graph_engine::store::{may_block_run, others_had_turn};
use graph_engine::{Clock, SystemClock};
use read::{Eyes, FoundRun, HolderRow, WaitPlace};
use write::{
    ClaimedFrom, ClaimedRun, HasLeft, Held, HeldRun, ReleasedLease, StopKind, WriteConnection, WriteOutcome,
    WriteRequest, WriteTask, locked,
};

/// The minimum time between two looks at the stores that hold runs.
const REAP: Duration = Duration::from_millis(900);

/// A store in a file.
///
/// Dropping the last of its clones waits until all requests are written. When no store has the file open any more, all data
/// is in that one file.
///
/// ```
/// # mod graph_runtime { pub use graph_engine::*; pub use graph_sqlite::*; }
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let file = directory.path().join("runs.db");
/// use graph_runtime::{Runtime, SecretKey, SqliteStore, Store};
///
/// let store = SqliteStore::open(&file).await?;
/// let runtime = Runtime::builder().store(store.clone()).sign_with(SecretKey::generate()?).build()?;
/// println!("the store has {} runs", store.list().await?.len());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct SqliteStore {
    shared: Arc<OpenStore>,
}

#[derive(Debug)]
struct OpenStore {
    path: PathBuf,
    /// The one name of the file, beside which the locks are. The path may lead there through links, or from a directory.
    place: PathBuf,
    /// The connection that reads; the writer has its own. Waiting for it does not block a thread.
    reader: Arc<tokio::sync::Mutex<Connection>>,
    machine: String,
    options: SqliteOptions,
    /// `None` if the file is only read.
    writing: Option<WriterThread>,
    /// The runs that this store leased and has not released.
    held: Arc<Held>,
    /// The time that decides when waits are over.
    time: Arc<StoreClock>,
    /// Counts the changes of the file, once somebody asks for them.
    news: OnceLock<watch::Receiver<u64>>,
    /// When the stores that hold runs were last looked at.
    reaped: Mutex<Option<Instant>>,
}

#[derive(Debug)]
struct WriterThread {
    requests: Sender<WriteRequest>,
    /// The number of requests that were sent and are not received yet.
    queued: Arc<AtomicUsize>,
    writer: Arc<Mutex<WriteConnection>>,
    /// Answers the requests, and ends when no sender is left.
    thread: JoinHandle<HasLeft>,
    own: holder::HolderIdentity,
}

/// Options for opening a store in a file.
///
/// ```
/// # mod graph_runtime { pub use graph_engine::*; pub use graph_sqlite::*; }
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let file = directory.path().join("runs.db");
/// use std::time::Duration;
///
/// use graph_runtime::SqliteStore;
///
/// let store = SqliteStore::options()
///     .lease_ttl(Duration::from_secs(10))
///     .on_wait(|file, waited| eprintln!("{} is locked since {waited:?}", file.display()))
///     .open(&file)
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct SqliteOptions {
    lease_ttl: Duration,
    patience: Patience,
    clock: Arc<dyn Clock>,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self {
            lease_ttl: Duration::from_secs(30),
            patience: Patience {
                most: Duration::from_secs(60),
                tell: Arc::new(|path, waited| {
                    let seconds = waited.as_secs();
                    tracing::warn!(path = %path.display(), seconds, "a store is locked by another program, and waited for");
                }),
            },
            clock: Arc::new(SystemClock::new()),
        }
    }
}

impl SqliteOptions {
    /// Sets the time without a heartbeat of its holder after which a run may be taken over; 30 s by default. All programs
    /// that open a file must use the same value: a holder sends three heartbeats within its own value of this time.
    #[must_use]
    pub fn lease_ttl(mut self, ttl: Duration) -> Self {
        self.lease_ttl = ttl;
        self
    }

    /// Sets how long another program may keep the file locked before an operation fails with [`StoreError::Busy`]; a minute
    /// by default. A run that waits is better than one that has to be resumed. See [`on_wait`](Self::on_wait).
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience.most = patience;
        self
    }

    /// Sets the function that receives the file and the time waited, each time another twelfth of the patience is over.
    /// That is every 5 s with the default patience. By default, a warning is logged.
    #[must_use]
    pub fn on_wait(mut self, tell: impl Fn(&Path, Duration) + Send + Sync + 'static) -> Self {
        self.patience.tell = Arc::new(tell);
        self
    }

    /// Sets the clock for leases and for the time of the store, which decides when waits are over; the computer's clock by
    /// default.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Opens the store in the file at `path`. The file is created if it does not exist, and migrated to the newest format
    /// version if it has an older one.
    ///
    /// # Errors
    ///
    /// If the directory does not exist, or the file cannot be written, is locked, is not a store, or has a newer format
    /// version.
    pub async fn open(self, path: impl AsRef<Path>) -> Result<SqliteStore, StoreError> {
        let path = path.as_ref().to_owned();
        tokio::task::spawn_blocking(move || SqliteStore::open_blocking(path, self))
            .await
            .map_err(|_| StoreError::Closed)?
    }

    /// Opens the store in the file at `path` for reading only, which needs no right to write there. An operation that would
    /// change something fails with [`StoreError::ReadOnly`].
    ///
    /// # Errors
    ///
    /// If there is no such file, or it cannot be read, is not a store, or has a newer format version.
    pub async fn open_read_only(self, path: impl AsRef<Path>) -> Result<SqliteStore, StoreError> {
        let path = path.as_ref().to_owned();
        let open = move || {
            check_place(&path)?;
            if !path.exists() {
                return Err(StoreError::open(path.display(), "there is no such file"));
            }
            let reader = form::connect_to_read(&path, self.patience.most)?;
            let time = Arc::new(StoreClock::new(Arc::clone(&self.clock)));
            let place = holder::place_of(&path);
            Ok(SqliteStore::around((path, place), reader, None, Arc::default(), time, self))
        };
        tokio::task::spawn_blocking(open).await.map_err(|_| StoreError::Closed)?
    }
}

/// Refuses a path at which there can be no database.
fn check_place(path: &Path) -> Result<(), StoreError> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let problem = |reason: &str| Err(StoreError::open(path.display(), reason));
    match () {
        () if path.is_dir() => problem("it is a directory"),
        () if !parent.is_dir() => problem("its directory does not exist"),
        () => Ok(()),
    }
}

impl SqliteStore {
    /// Returns the default options for opening a store.
    ///
    /// [`SqliteOptions`] has an example.
    pub fn options() -> SqliteOptions {
        SqliteOptions::default()
    }

    /// Opens the store in the file at `path`. The file is created if it does not exist, and migrated to the newest format
    /// version if it has an older one.
    ///
    /// # Errors
    ///
    /// As for [`SqliteOptions::open`].
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::options().open(path).await
    }

    /// Opens the store in the file at `path` for reading only.
    ///
    /// ```
    /// # mod graph_runtime { pub use graph_engine::*; pub use graph_sqlite::*; }
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use graph_runtime::{SqliteStore, Store};
    ///
    /// for run in SqliteStore::open_read_only("runs.db").await?.list().await? {
    ///     println!("{} {}", run.run, run.status.name());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`SqliteOptions::open_read_only`].
    pub async fn open_read_only(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::options().open_read_only(path).await
    }

    fn open_blocking(path: PathBuf, options: SqliteOptions) -> Result<Self, StoreError> {
        check_place(&path)?;
        let opened = || {
            form::make(&path)?;
            let mut writer = form::connect(&path, options.patience.slice())?;
            form::prepare(&mut writer, &path, &options.patience)?;
            form::forget_ends(&writer).map_err(|error| explain(error, &path))?;
            Ok(writer)
        };
        let writer = opened().map_err(StoreError::while_opening)?;
        Self::writing(path, writer, options)
    }

    /// Starts a store around the connection that writes.
    fn writing(path: PathBuf, connection: Connection, options: SqliteOptions) -> Result<Self, StoreError> {
        let problem = |error: io::Error| {
            StoreError::open(path.display(), format!("no thread could be started: {error}")).with_source(error)
        };
        let reader = form::connect(&path, options.patience.most)?;
        let time = Arc::new(StoreClock::new(Arc::clone(&options.clock)));
        // It does not go back if the clock was set back since.
        time.not_before(write::marked_time(&connection).map_err(|error| explain(error, &path))?);
        let place = holder::place_of(&path);
        holder::sweep(&place, |holder| write::may_hold_runs(&connection, holder));
        let own = holder::HolderIdentity::new(&place, &path)?;
        let (requests, inbox) = channel();
        let held = Arc::<Held>::default();
        let writer = WriteConnection {
            connection,
            path: path.clone(),
            holder: own.name.clone(),
            host: holder::host(),
            machine: holder::machine(),
            clock: Arc::clone(&options.clock),
            time: Arc::clone(&time),
            ttl: options.lease_ttl,
            patience: options.patience.clone(),
            beat: None,
            has_long_log: false,
            numbers: HashMap::new(),
            held: Arc::clone(&held),
            owed: Vec::new(),
            is_failing: false,
        };
        let (writer, queued) = (Arc::new(Mutex::new(writer)), Arc::default());
        let answer = {
            let (writer, queued) = (Arc::clone(&writer), Arc::clone(&queued));
            move || write::answer(&writer, &inbox, &queued)
        };
        let thread = thread::Builder::new().name("graph store".to_owned()).spawn(answer);
        let thread = thread.map_err(problem)?;
        let writing = WriterThread { requests, queued, writer, thread, own };
        Ok(Self::around((path, place), reader, Some(writing), held, time, options))
    }

    fn around(
        (path, place): (PathBuf, PathBuf),
        reader: Connection,
        writing: Option<WriterThread>,
        held: Arc<Held>,
        time: Arc<StoreClock>,
        options: SqliteOptions,
    ) -> Self {
        let (reader, machine) = (Arc::new(tokio::sync::Mutex::new(reader)), holder::machine());
        Self {
            shared: Arc::new(OpenStore {
                path,
                place,
                reader,
                machine,
                options,
                writing,
                held,
                time,
                news: OnceLock::new(),
                reaped: Mutex::new(None),
            }),
        }
    }

    async fn ask(&self, work: WriteTask) -> Result<WriteOutcome, StoreError> {
        let writing = self.shared.writing.as_ref().ok_or_else(|| read_only(&self.shared.path))?;
        if let Some(done) = writing.write_here(&work) {
            return done;
        }
        let (answer, answered) = oneshot::channel();
        writing.send(work, Some(answer))?;
        answered.await.map_err(|_| StoreError::Closed)?
    }

    /// Reads on another thread than the caller's, because a query waits for the disk.
    async fn read<T: Send + 'static>(
        &self,
        query: impl FnOnce(&OpenStore, &Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let shared = Arc::clone(&self.shared);
        let reader = Arc::clone(&shared.reader).lock_owned().await;
        let read = move || query(&shared, &reader);
        tokio::task::spawn_blocking(read).await.map_err(|_| StoreError::Closed)?
    }

    /// Requests a lease; `None` if another store was quicker.
    ///
    /// The caller may stop waiting, and the lease is released then. So a separate task waits for the lease.
    async fn leased(&self, run: &RunId, work: WriteTask) -> Result<Option<Lease>, StoreError> {
        let (store, run) = (self.clone(), run.clone());
        let leased = async move {
            Ok(match store.ask(work).await? {
                WriteOutcome::Leased { token, stops } => {
                    let lease = store.lease_to(&run, token);
                    if stops {
                        lease.cancel_request().set();
                    }
                    Some(lease)
                }
                _ => None,
            })
        };
        tokio::spawn(leased.in_current_span()).await.map_err(|_| StoreError::Closed)?
    }

    async fn lease_run(&self, run: &RunId, ignores_cancel: bool) -> Result<Lease, StoreError> {
        loop {
            let (seen, found) = self.look(run).await?;
            if let Some(holder) = &found.holder {
                return Err(self.shared.leased(run, holder));
            }
            // The next round sees the store that was quicker.
            if let Some(lease) = self.leased(run, WriteTask::Lease { run: run.clone(), seen, ignores_cancel }).await? {
                return Ok(lease);
            }
        }
    }

    fn lease_to(&self, run: &RunId, token: u64) -> Lease {
        let (store, id) = (self.clone(), run.clone());
        let lease = Lease::new(run.clone(), token, move || store.release(id, token));
        let held = HeldRun { token, request: lease.cancel_request().clone(), has_failed: false };
        locked(&self.shared.held).insert(run.clone(), held);
        lease
    }

    /// Releases a lease without waiting until that is written. This store knows it at once. If the store is closed before
    /// it is written, others see that its lock is gone.
    fn release(&self, run: RunId, token: u64) {
        let Some(held) = self.forget(&run, token) else { return };
        // Its call would be made again at once, and its result could not be written again.
        let from = if held.has_failed { ClaimedFrom::Pause } else { ClaimedFrom::Now };
        if let Some(writing) = &self.shared.writing
            && let Err(error) = writing.send(WriteTask::Release(ReleasedLease { run, token, from }), None)
        {
            tracing::debug!(%error, "a lease could not be given back");
        }
    }

    /// Records a request to stop a run, and notifies its holder if this store is it.
    async fn stop(&self, run: &RunId, stop: StopKind) -> Result<(), StoreError> {
        loop {
            let (token, found) = self.look(run).await?;
            match (found.holder, found.status) {
                (Some(_), _) | (None, Status::Running | Status::Waiting) => {}
                (None, status) => return Err(StoreError::Ended { run: run.clone(), status }),
            }
            // If the run ended in the meantime, the next round sees that.
            if let WriteOutcome::Well = self.ask(WriteTask::Stop { run: run.clone(), token, stop }).await? {
                if let Some(held) = locked(&self.shared.held).get(run).filter(|held| held.token == token) {
                    match stop {
                        StopKind::Cancel => held.request.set(),
                        StopKind::Kill => held.request.kill(),
                        // The thread that writes heartbeats looks at the time.
                        StopKind::CancelAt(_) => {}
                    }
                }
                return Ok(());
            }
        }
    }

    /// Stops holding a run, and returns it if this store held it.
    fn forget(&self, run: &RunId, token: u64) -> Option<HeldRun> {
        let mut held = locked(&self.shared.held);
        held.get(run).filter(|held| held.token == token)?;
        held.remove(run)
    }

    /// Releases the runs of stores that are gone; not more often than once in a while.
    async fn reap(&self) -> Result<(), StoreError> {
        {
            let mut reaped = locked(&self.shared.reaped);
            if reaped.is_some_and(|last| last.elapsed() < REAP) {
                return Ok(());
            }
            *reaped = Some(Instant::now());
        }
        let dead = self.read(|shared, connection| {
            let holders = read::holders(connection, &shared.path)?;
            Ok(shared.with_eyes(|eyes| {
                let own = eyes.own;
                let is_dead =
                    |(name, machine, beat): &HolderRow| name != own && !eyes.is_alive(name, machine.as_deref(), *beat);
                holders.into_iter().filter(is_dead).collect::<Vec<_>>()
            }))
        });
        let dead = dead.await?;
        if !dead.is_empty() {
            self.ask(WriteTask::Reap { dead }).await?;
        }
        Ok(())
    }

    /// Returns the token and the summary of a run, with its holder.
    async fn look(&self, run: &RunId) -> Result<(u64, RunSummary), StoreError> {
        let id = run.clone();
        self.read(move |shared, connection| {
            let found = read::find(connection, &id, &shared.path)?;
            shared.with_eyes(|eyes| Ok((found.token, found.summary(eyes)?)))
        })
        .await
    }

    /// Shrinks the file by its free space, and returns whether it did. It does nothing while a run of the file has a
    /// holder, which would have to wait. Free space that stays in the file is used for later records.
    ///
    /// # Errors
    ///
    /// If there is not enough space for a copy, or the file cannot be written.
    pub async fn shrink(&self) -> Result<bool, StoreError> {
        // Deletes what a process left that died while it removed a run.
        while let WriteOutcome::Raced = self.ask(WriteTask::Sweep).await? {}
        let (filter, mut page) = (RunFilter::default(), Page::default());
        loop {
            let RunPage { runs, next } = self.runs(&filter, &page).await?;
            if runs.iter().any(|run| run.holder.is_some()) {
                return Ok(false);
            }
            match next {
                Some(next) => page.after = Some(next),
                None => break,
            }
        }
        let writing = self.shared.writing.as_ref().ok_or_else(|| read_only(&self.shared.path))?;
        let writer = Arc::clone(&writing.writer);
        tokio::task::spawn_blocking(move || locked(&writer).shrink()).await.map_err(|_| StoreError::Closed)??;
        Ok(true)
    }
}

impl Drop for OpenStore {
    fn drop(&mut self) {
        let Some(WriterThread { requests, writer, thread, own, .. }) = self.writing.take() else { return };
        drop((requests, writer));
        let has_left = thread.join().unwrap_or_else(|_| {
            tracing::warn!(path = %self.path.display(), "the thread that writes for a store panicked");
            HasLeft(false)
        });
        // The lock must be held until the writer has ended.
        match has_left {
            HasLeft(true) => drop(own),
            HasLeft(false) => own.stay(),
        }
    }
}

impl OpenStore {
    /// Returns the store's name among the holders; empty if the file is only read.
    fn own_name(&self) -> &str {
        self.writing.as_ref().map_or("", |writing| writing.own.name.as_str())
    }

    fn with_eyes<T>(&self, look: impl FnOnce(&mut Eyes<'_>) -> T) -> T {
        let held = locked(&self.held);
        look(&mut Eyes {
            path: &self.path,
            place: &self.place,
            machine: &self.machine,
            now: unix_milliseconds(self.options.clock.now()),
            ttl: i64::try_from(self.options.lease_ttl.as_millis()).unwrap_or(i64::MAX),
            own: self.own_name(),
            holds: &|run| held.contains_key(run),
            locks: HashMap::new(),
        })
    }

    /// Returns an error that names the holder of a run.
    fn leased(&self, run: &RunId, holder: &graph_engine::store::Holder) -> StoreError {
        let ours = locked(&self.held).contains_key(run) && holder.process == Some(std::process::id());
        let holder = if ours { format!("this process: {holder}") } else { holder.to_string() };
        StoreError::Leased { run: run.clone(), holder }
    }
}

impl WriterThread {
    fn send(
        &self,
        work: WriteTask,
        answer: Option<oneshot::Sender<Result<WriteOutcome, StoreError>>>,
    ) -> Result<(), StoreError> {
        self.queued.fetch_add(1, Ordering::SeqCst);
        self.requests.send(WriteRequest { work, answer }).map_err(|_| StoreError::Closed)
    }

    /// Writes on the caller's thread, if that may wait for the disk and no other request is being written or is waiting.
    fn write_here(&self, work: &WriteTask) -> Option<Result<WriteOutcome, StoreError>> {
        // Only the engine appends and looks into inboxes. Other requests may come from code that must not block.
        if !matches!(work, WriteTask::Append { .. } | WriteTask::Inbox { .. })
            || !may_block_run()
            || self.queued.load(Ordering::SeqCst) > 0
        {
            return None;
        }
        let mut writer = match self.writer.try_lock() {
            Ok(writer) => writer,
            Err(TryLockFailed::Poisoned(poisoned)) => PoisonError::into_inner(poisoned),
            Err(TryLockFailed::WouldBlock) => return None,
        };
        let done = tokio::task::block_in_place(|| writer.write_one(work));
        others_had_turn();
        Some(done)
    }
}

impl Store for SqliteStore {
    fn create<'a>(&'a self, run: &'a RunId, graph: &'a str, records: Vec<SignedRecord>) -> StoreFuture<'a, Lease> {
        Box::pin(async move {
            let (start, graph) = (RunStart::of(&records), graph.to_owned());
            let work = WriteTask::Create { run: run.clone(), graph, start, records, change: None };
            self.leased(run, work).await?.ok_or(StoreError::Closed)
        })
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
        Box::pin(async move {
            let (run, token) = (lease.run().clone(), lease.token());
            match self.ask(WriteTask::Append { run, token, expected, records, status, waits }).await {
                Ok(WriteOutcome::Appended { stops: true }) => lease.cancel_request().set(),
                Ok(_) => {}
                Err(error) => {
                    let is_of_others = matches!(
                        error,
                        StoreError::NotFound(_)
                            | StoreError::Conflict { .. }
                            | StoreError::LeaseLost(_)
                            | StoreError::SignalGone { .. }
                    );
                    if let Some(held) = locked(&self.shared.held).get_mut(lease.run()) {
                        held.has_failed |= held.token == token && !is_of_others;
                    }
                    return Err(error);
                }
            }
            if status != Status::Running {
                self.forget(lease.run(), token);
            }
            Ok(())
        })
    }

    fn now(&self) -> StoreFuture<'_, i64> {
        Box::pin(std::future::ready(Ok(self.shared.time.now())))
    }

    fn claim<'a>(&'a self, claim: &'a Claim) -> StoreFuture<'a, Vec<Claimed>> {
        Box::pin(async move {
            let (store, work) = (self.clone(), WriteTask::Claim { claim: claim.clone() });
            // If the caller stops waiting, the leases are dropped, which gives them back.
            let claimed = async move {
                let WriteOutcome::Claimed(claimed) = store.ask(work).await? else { return Ok(Vec::new()) };
                let lease = |claimed: ClaimedRun| {
                    let run = RunId::new(claimed.run)
                        .map_err(|error| StoreError::unreadable(store.shared.path.display(), error.to_string()))?;
                    let lease = store.lease_to(&run, claimed.token);
                    if claimed.stops {
                        lease.cancel_request().set();
                    }
                    Ok(Claimed::new(lease, claimed.tries, claimed.postponed))
                };
                claimed.into_iter().map(lease).collect()
            };
            tokio::spawn(claimed.in_current_span()).await.map_err(|_| StoreError::Closed)?
        })
    }

    fn next_wake<'a>(&'a self, graphs: &'a [(String, Digest)]) -> StoreFuture<'a, Option<i64>> {
        Box::pin(async move {
            self.reap().await?;
            let graphs = graphs.to_vec();
            self.read(move |shared, connection| {
                read::next_wake(connection, &graphs, shared.own_name()).map_err(|error| explain(error, &shared.path))
            })
            .await
        })
    }

    fn news(&self, seen: u64) -> StoreFuture<'_, u64> {
        Box::pin(async move {
            let mut news = match self.shared.news.get() {
                Some(news) => news.clone(),
                None => {
                    let watched = news::watch(&self.shared.place, self.shared.options.patience.period())?;
                    self.shared.news.get_or_init(|| watched).clone()
                }
            };
            let found = news.wait_for(|news| *news != seen).await;
            found.map(|news| *news).map_err(|_| StoreError::Closed)
        })
    }

    fn postpone(&self, lease: Lease, until: i64) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let (run, token) = lease.into_parts();
            if self.forget(&run, token).is_some() {
                let from = ClaimedFrom::Time(until);
                self.ask(WriteTask::Release(ReleasedLease { run, token, from })).await?;
            }
            Ok(())
        })
    }

    fn receive<'a>(&'a self, run: &'a RunId, signal: Signal, seal: SealSignal) -> StoreFuture<'a, Received> {
        Box::pin(async move {
            match self.ask(WriteTask::Receive { run: run.clone(), signal, seal }).await? {
                WriteOutcome::Received(received) => Ok(received),
                _ => Err(StoreError::Closed),
            }
        })
    }

    fn inbox<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, Inbox> {
        Box::pin(async move {
            match self.ask(WriteTask::Inbox { run: run.clone() }).await? {
                WriteOutcome::Inbox(inbox) => Ok(inbox),
                _ => Err(StoreError::Closed),
            }
        })
    }

    fn open_waits<'a>(&'a self, filter: &'a WaitFilter, page: &'a Page) -> StoreFuture<'a, WaitPage> {
        Box::pin(async move {
            let (filter, size) = (filter.clone(), page.size);
            let after = page.after.as_ref().map(WaitPlace::read).transpose()?;
            self.read(move |shared, connection| read::open_waits(connection, &filter, after, size, &shared.path)).await
        })
    }

    fn schedule_mark<'a>(&'a self, schedule: &'a str) -> StoreFuture<'a, Option<ScheduleMark>> {
        let schedule = schedule.to_owned();
        Box::pin(self.read(move |shared, connection| {
            schedules::find(connection, &schedule).map_err(|error| explain(error, &shared.path))
        }))
    }

    fn change_schedule<'a>(&'a self, change: &'a ScheduleChange) -> StoreFuture<'a, ()> {
        Box::pin(async move { self.ask(WriteTask::Mark { change: change.clone() }).await.map(drop) })
    }

    fn create_at_tick<'a>(
        &'a self,
        run: &'a RunId,
        graph: &'a str,
        records: Vec<SignedRecord>,
        change: &'a ScheduleChange,
    ) -> StoreFuture<'a, Lease> {
        Box::pin(async move {
            let (start, graph) = (RunStart::of(&records), graph.to_owned());
            let work = WriteTask::Create { run: run.clone(), graph, start, records, change: Some(change.clone()) };
            self.leased(run, work).await?.ok_or(StoreError::Closed)
        })
    }

    fn load<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, Vec<SignedRecord>> {
        self.load_from(run, 0)
    }

    fn load_from<'a>(&'a self, run: &'a RunId, from: u64) -> StoreFuture<'a, Vec<SignedRecord>> {
        let id = run.clone();
        Box::pin(self.read(move |shared, connection| read::load(connection, &id, from, &shared.path)))
    }

    fn lease<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, Lease> {
        Box::pin(self.lease_run(run, false))
    }

    fn lease_ignoring_cancel<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, Lease> {
        Box::pin(self.lease_run(run, true))
    }

    fn runs<'a>(&'a self, filter: &'a RunFilter, page: &'a Page) -> StoreFuture<'a, RunPage> {
        Box::pin(async move {
            let (filter, size) = (filter.clone(), page.size);
            let before = page.after.as_ref().map(Cursor::number).transpose()?;
            self.read(move |shared, connection| {
                // One more run shows whether there is another page.
                let mut found = read::page(connection, &filter, before, size.saturating_add(1), &shared.path)?;
                let is_last = found.len() <= size;
                found.truncate(size);
                let next = found.last().filter(|_| !is_last).map(|last| Cursor::new(last.number.to_string()));
                let runs = shared.with_eyes(|eyes| {
                    found.into_iter().map(|found| found.summary(eyes)).collect::<Result<Vec<_>, _>>()
                })?;
                Ok(RunPage { runs, next })
            })
            .await
        })
    }

    fn find<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, RunSummary> {
        Box::pin(async move { Ok(self.look(run).await?.1) })
    }

    fn cancel<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, ()> {
        Box::pin(self.stop(run, StopKind::Cancel))
    }

    fn cancel_at<'a>(&'a self, run: &'a RunId, at: i64) -> StoreFuture<'a, ()> {
        Box::pin(self.stop(run, StopKind::CancelAt(at)))
    }

    fn kill<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, ()> {
        Box::pin(self.stop(run, StopKind::Kill))
    }

    fn remove<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            loop {
                let id = run.clone();
                let seen = self
                    .read(move |shared, connection| {
                        let tree = read::tree(connection, &id).map_err(|error| explain(error, &shared.path))?;
                        let seen: Vec<(i64, u64)> = tree.iter().map(|found| (found.number, found.token)).collect();
                        let summary = |found: FoundRun| shared.with_eyes(|eyes| found.summary(eyes));
                        let tree = tree.into_iter().map(summary).collect::<Result<Vec<_>, _>>()?;
                        match tree.iter().find_map(|found| Some((&found.run, found.holder.as_ref()?))) {
                            Some((run, holder)) => Err(shared.leased(run, holder)),
                            None if seen.is_empty() => Err(StoreError::NotFound(id)),
                            None => Ok(seen),
                        }
                    })
                    .await?;
                if let WriteOutcome::Well = self.ask(WriteTask::Hide { run: run.clone(), seen }).await? {
                    break;
                }
            }
            // In small parts, so that appends do not wait for long. If the process dies, the rest is deleted with the next
            // run that is removed.
            while let WriteOutcome::Raced = self.ask(WriteTask::Sweep).await? {}
            Ok(())
        })
    }
}

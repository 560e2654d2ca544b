//! The store in a file: SQLite, with one writer that commits what concurrent runs append together.
//!
//! Write-ahead log with `synchronous=FULL`: what `append` returned `Ok` for survives the loss of power. One connection
//! writes. A run that finds it free writes by itself, for being woken by another thread can take as long as the disk; while
//! it is in use, further appends queue up for a thread that takes all of them into the next transaction.
//!
//! Who holds a run is told by a lock of the operating system on a file beside the database: it is gone when its process is,
//! however that ended, so a run can be taken over at once. The fencing token makes sure that a holder which was taken for
//! dead, as on a file system without locks, writes nothing more.

use std::collections::HashMap;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError as TryLockFailed};
use std::thread;
use std::time::Duration;

use graph_model::digest::hex;
use graph_model::name::RunId;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, Transaction, TransactionBehavior, params};
use tokio::sync::oneshot;

use super::{Lease, RunSummary, Store, StoreError, Storing};
use crate::record::{Sealed, Status};
use crate::run::is_run;

/// A store in a file.
#[derive(Debug, Clone)]
pub struct SqliteStore {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    requests: Sender<Request>,
    /// How many requests were sent and not taken yet.
    queued: Arc<AtomicUsize>,
    writer: Arc<Mutex<Writer>>,
    /// The connection that reads; the writer has its own.
    reader: Mutex<Connection>,
    holder: Holder,
    /// The runs that this store leased and that were not given back, each with its token.
    held: Mutex<HashMap<RunId, u64>>,
}

/// What the writer is asked to do, and whom to answer.
struct Request {
    work: Work,
    answer: oneshot::Sender<Result<u64, StoreError>>,
}

enum Work {
    Create { run: RunId, graph: String, records: Vec<Sealed> },
    Append { run: RunId, token: u64, expected: u64, records: Vec<Sealed>, status: Status },
    Lease { run: RunId },
}

/// Marks the file as ours: "grph".
const APPLICATION: i64 = 0x6772_7068;
/// The newest form of the tables: 2 has rows for what shows that a record is the last one.
const FORM: i64 = 2;
/// The number of the row behind a run's records, on the page that they are written to: it says how many they are, in place of a
/// text, and holds the token of the last one in place of a signature.
const END: i64 = 0xffff_ffff;
/// How many requests one transaction takes at most.
const BATCH: usize = 256;
/// How long another program may keep the file locked.
const PATIENCE: Duration = Duration::from_secs(5);

/// A record's key is its run's number and its own, so that a run's records lie together in one tree without an index. A step
/// writes there and nowhere else: each page more is four kilobytes more to wait for.
const TABLES: &str = "
    CREATE TABLE runs (
        number INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        graph TEXT NOT NULL,
        status TEXT NOT NULL,
        token INTEGER NOT NULL,
        holder TEXT NOT NULL
    ) STRICT;
    CREATE TABLE records (
        key INTEGER PRIMARY KEY,
        body TEXT NOT NULL,
        signature BLOB NOT NULL,
        run INTEGER GENERATED ALWAYS AS (key >> 32) VIRTUAL,
        seq INTEGER GENERATED ALWAYS AS (key & 4294967295) VIRTUAL
    ) STRICT;
";

impl SqliteStore {
    /// Opens the store in the file at `path`, which is made if it does not exist.
    ///
    /// # Errors
    ///
    /// If the directory does not exist, the file cannot be written, is locked, is not a store, or is of a newer form.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        let path = path.as_ref().to_owned();
        tokio::task::spawn_blocking(move || Self::open_blocking(path)).await.map_err(|_| StoreError::Closed)?
    }

    fn open_blocking(path: PathBuf) -> Result<Self, StoreError> {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let problem = |reason: &str| StoreError::Open { path: path.clone(), reason: reason.to_owned() };
        if path.is_dir() {
            return Err(problem("it is a directory"));
        }
        if !parent.is_dir() {
            return Err(problem("its directory does not exist"));
        }
        let mut writer = connect(&path)?;
        prepare(&mut writer, &path)?;
        Self::around(path, writer)
    }

    /// Starts a store around the connection that writes.
    fn around(path: PathBuf, writer: Connection) -> Result<Self, StoreError> {
        let problem = |reason: &str| StoreError::Open { path: path.clone(), reason: reason.to_owned() };
        let reader = connect(&path)?;
        let holder = Holder::new(&path)?;
        let (requests, inbox) = channel();
        let writer = Writer { connection: writer, path: path.clone(), holder: holder.name.clone() };
        let (writer, queued) = (Arc::new(Mutex::new(writer)), Arc::default());
        thread::Builder::new()
            .name("graph store".to_owned())
            .spawn({
                let (writer, queued) = (Arc::clone(&writer), Arc::clone(&queued));
                move || answer(&writer, &inbox, &queued)
            })
            .map_err(|error| problem(&format!("no thread could be started: {error}")))?;
        let (reader, held) = (Mutex::new(reader), Mutex::default());
        let shared = Shared { path, requests, queued, writer, reader, holder, held };
        Ok(Self { shared: Arc::new(shared) })
    }

    async fn ask(&self, work: Work) -> Result<u64, StoreError> {
        if let Some(done) = self.write_here(&work) {
            return done;
        }
        self.shared.queued.fetch_add(1, Ordering::SeqCst);
        let (answer, answered) = oneshot::channel();
        self.shared.requests.send(Request { work, answer }).map_err(|_| StoreError::Closed)?;
        answered.await.map_err(|_| StoreError::Closed)?
    }

    /// Writes on the caller's thread, if that may wait for the disk and nobody else writes or waits to.
    fn write_here(&self, work: &Work) -> Option<Result<u64, StoreError>> {
        // Only the engine appends; what else is asked may be asked from where waiting is not allowed.
        if !matches!(work, Work::Append { .. }) || !may_block() || self.shared.queued.load(Ordering::SeqCst) > 0 {
            return None;
        }
        let mut writer = match self.shared.writer.try_lock() {
            Ok(writer) => writer,
            Err(TryLockFailed::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockFailed::WouldBlock) => return None,
        };
        Some(tokio::task::block_in_place(|| writer.write_one(work)))
    }

    /// Reads on another thread than the caller's: a query waits for the disk.
    async fn read<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let shared = Arc::clone(&self.shared);
        let read = move || query(&shared.reader.lock().unwrap_or_else(PoisonError::into_inner));
        tokio::task::spawn_blocking(read).await.map_err(|_| StoreError::Closed)?
    }

    fn held(&self) -> MutexGuard<'_, HashMap<RunId, u64>> {
        self.shared.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lease_to(&self, run: &RunId, token: u64) -> Lease {
        self.held().insert(run.clone(), token);
        let (store, run) = (self.clone(), run.clone());
        Lease::new(run.clone(), token, move || {
            let mut held = store.held();
            if held.get(&run) == Some(&token) {
                held.remove(&run);
            }
        })
    }
}

impl Store for SqliteStore {
    fn create<'a>(&'a self, run: &'a RunId, graph: &'a str, records: Vec<Sealed>) -> Storing<'a, Lease> {
        Box::pin(async move {
            let token = self.ask(Work::Create { run: run.clone(), graph: graph.to_owned(), records }).await?;
            Ok(self.lease_to(run, token))
        })
    }

    fn append<'a>(&'a self, lease: &'a Lease, expected: u64, records: Vec<Sealed>, status: Status) -> Storing<'a, ()> {
        Box::pin(async move {
            let (run, token) = (lease.run().clone(), lease.token());
            self.ask(Work::Append { run, token, expected, records, status }).await.map(drop)
        })
    }

    fn load<'a>(&'a self, run: &'a RunId) -> Storing<'a, Vec<Sealed>> {
        self.load_from(run, 0)
    }

    fn load_from<'a>(&'a self, run: &'a RunId, from: u64) -> Storing<'a, Vec<Sealed>> {
        let (id, path) = (run.clone(), self.shared.path.clone());
        Box::pin(self.read(move |connection| load(connection, &id, from, &path)))
    }

    fn lease<'a>(&'a self, run: &'a RunId) -> Storing<'a, Lease> {
        Box::pin(async move {
            let (id, path) = (run.clone(), self.shared.path.clone());
            let holder = self.read(move |connection| holder_of(connection, &id, &path)).await?;
            let ours = holder == self.shared.holder.name;
            if (ours && self.held().contains_key(run)) || (!ours && Holder::is_alive(&self.shared.path, &holder)) {
                let holder = if ours {
                    "this process".to_owned()
                } else {
                    format!("lock file {}", lock_path(&self.shared.path, &holder).display())
                };
                return Err(StoreError::Leased { run: run.clone(), holder });
            }
            let token = self.ask(Work::Lease { run: run.clone() }).await?;
            Ok(self.lease_to(run, token))
        })
    }

    fn list(&self) -> Storing<'_, Vec<RunSummary>> {
        let path = self.shared.path.clone();
        Box::pin(self.read(move |connection| list(connection, &path)))
    }
}

fn connect(path: &Path) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(|error| explain(&error, path))?;
    connection.busy_timeout(PATIENCE).map_err(|error| explain(&error, path))?;
    Ok(connection)
}

/// Sets the modes, and makes the tables in a new file.
fn prepare(connection: &mut Connection, path: &Path) -> Result<(), StoreError> {
    let explain = |error: rusqlite::Error| explain(&error, path);
    // SQLite opens what it cannot write for reading, and says so only at the first write.
    if connection.is_readonly("main").map_err(explain)? {
        return Err(StoreError::ReadOnly(path.to_owned()));
    }
    let pragma =
        |connection: &Connection, name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let (application, form) =
        (pragma(connection, "application_id").map_err(explain)?, pragma(connection, "user_version").map_err(explain)?);
    if form > FORM && application == APPLICATION {
        return Err(StoreError::Newer { path: path.to_owned(), found: form, known: FORM });
    }
    connection.pragma_update(None, "journal_mode", "WAL").map_err(explain)?;
    connection.pragma_update(None, "synchronous", "FULL").map_err(explain)?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(explain)?;
    let tables: i64 =
        transaction.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(explain)?;
    let application = pragma(&transaction, "application_id").map_err(explain)?;
    match (tables, application) {
        (0, _) => {
            transaction.execute_batch(TABLES).map_err(explain)?;
            transaction.pragma_update(None, "application_id", APPLICATION).map_err(explain)?;
            transaction.pragma_update(None, "user_version", FORM).map_err(explain)?;
        }
        (_, APPLICATION) if form == FORM => {}
        (_, APPLICATION) => {
            // Form 1 had the same tables; its journals are of a version that is not read any more, and says so itself.
            transaction.pragma_update(None, "user_version", FORM).map_err(explain)?;
        }
        _ => {
            let reason = "it is a database of another program".to_owned();
            return Err(StoreError::Corrupt { path: path.to_owned(), reason });
        }
    }
    transaction.commit().map_err(explain)
}

/// Says in the store's words what SQLite says in its own.
fn explain(error: &rusqlite::Error, path: &Path) -> StoreError {
    let path = path.to_owned();
    let Some(failure) = error.sqlite_error() else {
        return match error {
            rusqlite::Error::FromSqlConversionFailure(..) | rusqlite::Error::InvalidColumnType(..) => {
                StoreError::Corrupt { path, reason: error.to_string() }
            }
            _ => StoreError::Failed(error.to_string()),
        };
    };
    match failure.code {
        ErrorCode::DiskFull => StoreError::Full(path),
        ErrorCode::ReadOnly => StoreError::ReadOnly(path),
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => StoreError::Busy(path),
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => StoreError::Corrupt { path, reason: error.to_string() },
        ErrorCode::CannotOpen => StoreError::Open { path, reason: error.to_string() },
        _ => StoreError::Failed(format!("{}: {error}", path.display())),
    }
}

/// Counts the records of a run: its last key tells.
const COUNT: &str = "SELECT coalesce(max(key) & 4294967295, -1) + 1 FROM records WHERE key BETWEEN ?1 AND ?2";

fn number_of(connection: &Connection, run: &RunId, path: &Path) -> Result<i64, StoreError> {
    connection
        .prepare_cached("SELECT number FROM runs WHERE id = ?1")
        .and_then(|mut statement| statement.query_row([run.as_str()], |row| row.get(0)).optional())
        .map_err(|error| explain(&error, path))?
        .ok_or_else(|| StoreError::NotFound(run.clone()))
}

fn load(connection: &Connection, run: &RunId, from: u64, path: &Path) -> Result<Vec<Sealed>, StoreError> {
    let number = number_of(connection, run, path)?;
    let mut statement = connection
        .prepare_cached("SELECT key, body, signature FROM records WHERE key BETWEEN ?1 AND ?2 ORDER BY key")
        .map_err(|error| explain(&error, path))?;
    let (first, last) = ((number << 32) | i64::try_from(from).unwrap_or(END).min(END), (number << 32) | END);
    let mut read = || -> Result<Vec<Sealed>, rusqlite::Error> {
        let (mut records, mut rows) = (Vec::<Sealed>::new(), statement.query([first, last])?);
        while let Some(row) = rows.next()? {
            match (row.get::<_, i64>(0)? & END, records.last_mut()) {
                (END, Some(last)) => last.end = row.get::<_, Vec<u8>>(2)?.try_into().ok(),
                (END, None) => {}
                (seq, _) => {
                    let seq = u64::try_from(seq).unwrap_or_default();
                    records.push(Sealed { seq, body: row.get(1)?, signature: row.get(2)?, end: None });
                }
            }
        }
        Ok(records)
    };
    read().map_err(|error| explain(&error, path))
}

fn holder_of(connection: &Connection, run: &RunId, path: &Path) -> Result<String, StoreError> {
    connection
        .prepare_cached("SELECT holder FROM runs WHERE id = ?1")
        .and_then(|mut statement| statement.query_row([run.as_str()], |row| row.get(0)).optional())
        .map_err(|error| explain(&error, path))?
        .ok_or_else(|| StoreError::NotFound(run.clone()))
}

fn list(connection: &Connection, path: &Path) -> Result<Vec<RunSummary>, StoreError> {
    let corrupt = |reason: String| StoreError::Corrupt { path: path.to_owned(), reason };
    let mut statement = connection
        .prepare_cached(
            "SELECT id, graph, status, (SELECT coalesce(max(key) & 4294967295, -1) + 1 FROM records
                WHERE key BETWEEN number << 32 AND (number << 32) + 4294967294)
             FROM runs ORDER BY number DESC",
        )
        .map_err(|error| explain(&error, path))?;
    let rows = statement.query_map([], |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get::<_, String>(2)?, row.get::<_, u64>(3)?))
    });
    let rows: Vec<_> = rows.and_then(Iterator::collect).map_err(|error| explain(&error, path))?;
    rows.into_iter()
        .map(|(run, graph, status, records)| {
            let status = serde_json::from_value(status.into()).map_err(|error| corrupt(error.to_string()))?;
            Ok(RunSummary { run: RunId::new(run).map_err(|error| corrupt(error.to_string()))?, graph, status, records })
        })
        .collect()
}

/// Whether the caller is a run's own task on a thread that may wait for the disk, because others do its work meanwhile.
fn may_block() -> bool {
    use tokio::runtime::{Handle, RuntimeFlavor};
    is_run() && Handle::try_current().is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread)
}

/// The connection that writes.
#[derive(Debug)]
struct Writer {
    connection: Connection,
    path: PathBuf,
    holder: String,
}

/// Answers requests until no store is left to send any.
fn answer(writer: &Mutex<Writer>, inbox: &Receiver<Request>, queued: &AtomicUsize) {
    while let Ok(first) = inbox.recv() {
        let mut writer = writer.lock().unwrap_or_else(PoisonError::into_inner);
        let mut batch = vec![first];
        while batch.len() < BATCH {
            match inbox.try_recv() {
                Ok(next) => batch.push(next),
                Err(_) => break,
            }
        }
        queued.fetch_sub(batch.len(), Ordering::SeqCst);
        writer.commit(batch);
    }
}

impl Writer {
    /// Does a batch in one transaction. If that fails as a whole, each request is tried alone, so that one which cannot be
    /// done, for want of space say, does not stand in the way of those that can.
    fn commit(&mut self, batch: Vec<Request>) {
        let works: Vec<&Work> = batch.iter().map(|request| &request.work).collect();
        let results = match works.as_slice() {
            [] | [_] => None,
            works => self.transact(works).ok(),
        };
        let results = results.unwrap_or_else(|| works.iter().map(|work| self.write_one(work)).collect());
        for (request, result) in batch.into_iter().zip(results) {
            // Whoever asked may have stopped waiting; what was written stays written.
            drop(request.answer.send(result));
        }
    }

    /// Does one request in a transaction of its own.
    fn write_one(&mut self, work: &Work) -> Result<u64, StoreError> {
        match self.transact(&[work]) {
            Ok(results) => results.into_iter().next().unwrap_or(Err(StoreError::Closed)),
            Err(error) => Err(explain(&error, &self.path)),
        }
    }

    fn transact(&mut self, works: &[&Work]) -> Result<Vec<Result<u64, StoreError>>, rusqlite::Error> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let results =
            works.iter().map(|work| do_one(&transaction, work, &self.holder)).collect::<Result<Vec<_>, _>>()?;
        transaction.commit()?;
        Ok(results)
    }
}

/// Does one request. What the request itself is to blame for is found before anything is written for it.
fn do_one(
    transaction: &Transaction<'_>,
    work: &Work,
    holder: &str,
) -> Result<Result<u64, StoreError>, rusqlite::Error> {
    let find = |run: &RunId| {
        transaction
            .prepare_cached("SELECT number, token FROM runs WHERE id = ?1")?
            .query_row([run.as_str()], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, u64>(1)?)))
            .optional()
    };
    match work {
        Work::Create { run, graph, records } => {
            if find(run)?.is_some() {
                return Ok(Err(StoreError::Exists(run.clone())));
            }
            transaction
                .prepare_cached("INSERT INTO runs (id, graph, status, token, holder) VALUES (?1, ?2, ?3, 1, ?4)")?
                .execute(params![run.as_str(), graph, Status::Running.name(), holder])?;
            let number = transaction.last_insert_rowid();
            insert(transaction, number, records)?;
            transaction
                .prepare_cached("INSERT INTO records (key, body, signature) VALUES (?1, ?2, ?3)")?
                .execute(params![(number << 32) | END, records.len().to_string(), end_of(records)])?;
            Ok(Ok(1))
        }
        Work::Append { run, token, expected, records, status } => {
            let Some((number, current)) = find(run)? else { return Ok(Err(StoreError::NotFound(run.clone()))) };
            if current != *token {
                return Ok(Err(StoreError::LeaseLost(run.clone())));
            }
            let (key, known) = ((number << 32) | END, expected.to_string());
            let count = (expected + records.len() as u64).to_string();
            let follows = transaction
                .prepare_cached("UPDATE records SET body = ?3, signature = ?4 WHERE key = ?1 AND body = ?2")?
                .execute(params![key, known, count, end_of(records)])?;
            if follows != 1 {
                let found = transaction
                    .prepare_cached(COUNT)?
                    .query_row([number << 32, (number << 32) | (END - 1)], |row| row.get(0))?;
                return Ok(Err(StoreError::Conflict { run: run.clone(), expected: *expected, found }));
            }
            insert(transaction, number, records)?;
            transaction
                .prepare_cached("UPDATE runs SET status = ?2 WHERE number = ?1 AND status <> ?2")?
                .execute(params![number, status.name()])?;
            Ok(Ok(*token))
        }
        Work::Lease { run } => {
            let Some((number, current)) = find(run)? else { return Ok(Err(StoreError::NotFound(run.clone()))) };
            transaction
                .prepare_cached("UPDATE runs SET token = ?2, holder = ?3 WHERE number = ?1")?
                .execute(params![number, current + 1, holder])?;
            Ok(Ok(current + 1))
        }
    }
}

fn insert(transaction: &Transaction<'_>, number: i64, records: &[Sealed]) -> Result<(), rusqlite::Error> {
    let mut statement = transaction.prepare_cached("INSERT INTO records (key, body, signature) VALUES (?1, ?2, ?3)")?;
    for Sealed { seq, body, signature, .. } in records {
        let key = (number << 32) | i64::from(u32::try_from(*seq).unwrap_or(u32::MAX));
        statement.execute(params![key, body, signature])?;
    }
    Ok(())
}

/// Returns the token of the last record, or nothing.
fn end_of(records: &[Sealed]) -> &[u8] {
    records.last().and_then(|last| last.end.as_ref()).map_or(&[], <[u8; 32]>::as_slice)
}

/// A file beside the database that is locked as long as this store is open.
#[derive(Debug)]
struct Holder {
    name: String,
    path: PathBuf,
    /// Open and locked; the operating system unlocks it when the process ends.
    _lock: File,
}

fn lock_path(database: &Path, holder: &str) -> PathBuf {
    let mut name = database.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{holder}.lock"));
    database.with_file_name(name)
}

impl Holder {
    fn new(database: &Path) -> Result<Self, StoreError> {
        let problem = |error: io::Error| StoreError::Open {
            path: database.to_owned(),
            reason: format!("no lock file could be made: {error}"),
        };
        Self::sweep(database);
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(|error| problem(io::Error::other(error.to_string())))?;
        let name = hex(&random);
        let path = lock_path(database, &name);
        let lock = File::create_new(&path).map_err(problem)?;
        lock.try_lock().map_err(|error| problem(error.into()))?;
        Ok(Self { name, path, _lock: lock })
    }

    /// Whether the store that wrote this name is still open somewhere.
    fn is_alive(database: &Path, name: &str) -> bool {
        match File::open(lock_path(database, name)) {
            Ok(file) => matches!(file.try_lock(), Err(TryLockError::WouldBlock)),
            Err(_) => false,
        }
    }

    /// Removes the files of stores whose processes are gone.
    fn sweep(database: &Path) {
        let Some(stem) = database.file_name().and_then(|name| name.to_str()) else { return };
        let directory = database.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let Ok(entries) = fs::read_dir(directory) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let holder =
                name.to_str().and_then(|name| name.strip_prefix(stem)?.strip_prefix('.')?.strip_suffix(".lock"));
            // A file that was made a moment ago may not be locked yet: leave it for the next sweep.
            let is_old = entry
                .metadata()
                .and_then(|data| data.modified())
                .is_ok_and(|at| at.elapsed().is_ok_and(|age| age > Duration::from_secs(60)));
            if let Some(holder) = holder
                && is_old
                && !Self::is_alive(database, holder)
                && let Err(error) = fs::remove_file(entry.path())
            {
                tracing::debug!(%error, path = %entry.path().display(), "a lock file that nobody holds could not be removed");
            }
        }
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::debug!(%error, path = %self.path.display(), "the lock file could not be removed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::conformance;
    use super::*;

    fn record(seq: u64, size: usize) -> Sealed {
        Sealed { seq, body: "x".repeat(size), signature: [7; 64], end: None }
    }

    fn run() -> RunId {
        RunId::new("run").unwrap()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn it_keeps_what_stores_promise() {
        let directory = tempfile::tempdir().unwrap();
        let count = AtomicUsize::new(0);
        conformance::suite(|| async {
            let number = count.fetch_add(1, Ordering::Relaxed);
            SqliteStore::open(directory.path().join(format!("{number}.db"))).await.unwrap()
        })
        .await;
    }

    #[tokio::test]
    async fn what_was_appended_is_there_when_the_file_is_opened_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("runs.db");
        let store = SqliteStore::open(&path).await.unwrap();
        let lease = store.create(&run(), "test/graph", vec![record(0, 10)]).await.unwrap();
        store.append(&lease, 1, vec![record(1, 20)], Status::Error).await.unwrap();
        let old = lease.token();
        drop((lease, store));
        let store = SqliteStore::open(&path).await.unwrap();
        assert_eq!(store.load(&run()).await.unwrap(), [record(0, 10), record(1, 20)]);
        assert_eq!(store.list().await.unwrap()[0].status, Status::Error);
        assert!(store.lease(&run()).await.unwrap().token() > old);
        assert_eq!(
            fs::read_dir(directory.path())
                .unwrap()
                .filter(|entry| {
                    entry.as_ref().unwrap().path().extension().is_some_and(|extension| extension == "lock")
                })
                .count(),
            1,
            "the first store's lock file is gone"
        );
    }

    #[tokio::test]
    async fn a_full_disk_is_an_error_that_loses_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("runs.db");
        let mut writer = connect(&path).unwrap();
        prepare(&mut writer, &path).unwrap();
        // SQLite answers as on a full disk when the file may not grow.
        writer.pragma_update(None, "max_page_count", 12).unwrap();
        let store = SqliteStore::around(path.clone(), writer).unwrap();
        let lease = store.create(&run(), "test/graph", vec![record(0, 10)]).await.unwrap();
        let error = store.append(&lease, 1, vec![record(1, 100_000)], Status::Running).await.unwrap_err();
        assert!(matches!(&error, StoreError::Full(full) if *full == path), "{error:?}");
        assert!(error.to_string().contains("free some and resume the run"), "{error}");
        assert_eq!(store.load(&run()).await.unwrap(), [record(0, 10)]);
        store.append(&lease, 1, vec![record(1, 10)], Status::Running).await.expect("a small record still fits");
    }

    #[tokio::test]
    async fn a_full_disk_for_one_run_is_not_in_the_way_of_another() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("runs.db");
        let mut writer = connect(&path).unwrap();
        prepare(&mut writer, &path).unwrap();
        writer.pragma_update(None, "max_page_count", 12).unwrap();
        let store = SqliteStore::around(path, writer).unwrap();
        let other = RunId::new("other").unwrap();
        let one = store.create(&run(), "test/graph", vec![record(0, 10)]).await.unwrap();
        let two = store.create(&other, "test/graph", vec![record(0, 10)]).await.unwrap();
        let (large, small) = tokio::join!(
            store.append(&one, 1, vec![record(1, 100_000)], Status::Running),
            store.append(&two, 1, vec![record(1, 10)], Status::Running),
        );
        assert!(matches!(large, Err(StoreError::Full(_))));
        small.expect("the other run's record fits");
    }

    #[tokio::test]
    async fn a_read_only_database_says_so() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("runs.db");
        drop(SqliteStore::open(&path).await.unwrap());
        let mut writer = Connection::open_with_flags(&path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
        let error = prepare(&mut writer, &path).unwrap_err();
        assert!(matches!(&error, StoreError::ReadOnly(_)), "{error:?}");
        assert!(error.to_string().ends_with("runs.db cannot be written: it, its directory or its disk is read-only"));
    }

    #[tokio::test]
    async fn what_is_no_store_is_refused_and_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("text"), "this is no database, and longer than the header of one would be".repeat(9)).unwrap();
        Connection::open(at("other.db")).unwrap().execute_batch("CREATE TABLE t (a)").unwrap();
        let newer = Connection::open(at("newer.db")).unwrap();
        newer.pragma_update(None, "application_id", APPLICATION).unwrap();
        newer.pragma_update(None, "user_version", 99).unwrap();
        drop(newer);
        for (name, part) in [
            ("text", "is not a journal of this program, or is damaged"),
            ("other.db", "it is a database of another program"),
            ("newer.db", "has form 99, and this program knows forms up to 2"),
            ("missing/runs.db", "its directory does not exist"),
            ("", "it is a directory"),
        ] {
            let before = fs::read(at(name)).ok();
            let error = SqliteStore::open(at(name)).await.unwrap_err().to_string();
            assert!(error.contains(part), "{name}: {error}");
            if name == "text" {
                assert_eq!(fs::read(at(name)).ok(), before);
            }
        }
    }

    #[tokio::test]
    async fn a_lock_file_that_nobody_holds_is_no_holder() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("runs.db");
        let store = SqliteStore::open(&path).await.unwrap();
        drop(store.create(&run(), "test/graph", vec![record(0, 10)]).await.unwrap());
        drop(store);
        // What a killed process leaves behind: its name in the database, its file, and no lock.
        let holder: String =
            Connection::open(&path).unwrap().query_row("SELECT holder FROM runs", [], |row| row.get(0)).unwrap();
        File::create(lock_path(&path, &holder)).unwrap();
        let store = SqliteStore::open(&path).await.unwrap();
        store.lease(&run()).await.expect("the run can be taken over at once");
    }
}

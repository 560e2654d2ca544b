//! Changes to the file: requests, and the one connection that executes them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use graph_model::name::RunId;
use graph_model::timestamp::unix_milliseconds;
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};
use tokio::sync::oneshot;

use super::form::{END, PIN, lengthen_log};
use crate::patience::Patience;
use crate::problem::{explain, is_busy};
use crate::read::{self, HolderRow, Suspects};
use crate::signals;
use graph_engine::Clock;
use graph_engine::record::{SignedRecord, Status};
use graph_engine::store::{
    CancelRequest, Claim, Inbox, Received, RunStart, ScheduleChange, SealSignal, Signal, StoreClock, StoreError,
    WaitChanges, failure_code,
};

/// A task for the writer, and the sender for its answer.
pub(super) struct WriteRequest {
    pub(super) work: WriteTask,
    /// `None` if nobody waits for the answer.
    pub(super) answer: Option<oneshot::Sender<Result<WriteOutcome, StoreError>>>,
}

pub(super) enum WriteTask {
    Create {
        run: RunId,
        graph: String,
        start: RunStart,
        records: Vec<SignedRecord>,
        /// Changes the mark of a schedule too.
        change: Option<ScheduleChange>,
    },
    /// Changes the mark of a schedule.
    Mark {
        change: ScheduleChange,
    },
    Append {
        run: RunId,
        token: u64,
        expected: u64,
        records: Vec<SignedRecord>,
        status: Status,
        waits: WaitChanges,
    },
    /// Receives a signal.
    Receive {
        run: RunId,
        signal: Signal,
        seal: SealSignal,
    },
    /// Reads the signals that no wait has taken, and records the time.
    Inbox {
        run: RunId,
    },
    /// Leases a run, if its token is still the one that was seen.
    Lease {
        run: RunId,
        seen: u64,
        /// Whether a request to cancel the run is dropped.
        ignores_cancel: bool,
    },
    /// Releases a lease. If that fails, it is tried again until it is written.
    Release(ReleasedLease),
    /// Leases runs that can continue.
    Claim {
        claim: Claim,
    },
    /// Releases the runs of stores that are gone, unless they wrote a heartbeat since.
    Reap {
        dead: Vec<HolderRow>,
    },
    /// Records a request to stop a run, if its token is still the one that was seen.
    Stop {
        run: RunId,
        token: u64,
        stop: StopKind,
    },
    /// Hides a run and those inside it, if they are still those that were seen, with these tokens.
    Hide {
        run: RunId,
        seen: Vec<(i64, u64)>,
    },
    /// Deletes some records of hidden runs.
    Sweep,
}

/// A lease to release.
#[derive(Debug, Clone)]
pub(super) struct ReleasedLease {
    pub(super) run: RunId,
    pub(super) token: u64,
    pub(super) from: ClaimedFrom,
}

/// When a run that is released may be claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClaimedFrom {
    /// At once.
    Now,
    /// From a time of the store on.
    Time(i64),
    /// After a pause that grows each time: the store failed, and what the run did could not be written.
    Pause,
}

/// How a run is to be stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StopKind {
    Cancel,
    /// At a time of the store.
    CancelAt(i64),
    Kill,
}

/// The value of `stop` of a run that is to be killed.
const KILL: i64 = 2;

/// The outcome of a task.
#[derive(Debug, Clone)]
pub(super) enum WriteOutcome {
    /// These runs were leased.
    Claimed(Vec<ClaimedRun>),
    /// Leased.
    Leased {
        token: u64,
        /// Whether there is a request to stop the run.
        stops: bool,
    },
    /// Appended.
    Appended {
        /// Whether there is a request to stop the run.
        stops: bool,
    },
    /// A signal was received, now or before.
    Received(Received),
    /// The signals of a run.
    Inbox(Inbox),
    /// The task was done.
    Well,
    /// Nothing was done, because another process changed what was seen.
    Raced,
}

/// A run that was leased to a worker.
#[derive(Debug, Clone)]
pub(super) struct ClaimedRun {
    pub(super) run: String,
    pub(super) token: u64,
    pub(super) stops: bool,
    pub(super) tries: u32,
    pub(super) postponed: u32,
}

/// The maximum number of requests in one transaction.
const BATCH: usize = 256;
/// The number of requests in one transaction from which on the log may grow.
const MANY: usize = 16;
/// The maximum number of records that one transaction deletes.
const SWEEP: usize = 256;

/// The maximum time between two looks at the runs that should stop.
const PACE: Duration = Duration::from_millis(500);
/// How long a heartbeat waits for a file that another program keeps locked. The next one follows soon.
const SHORT: Duration = Duration::from_millis(100);

/// The runs that a store leased and has not released.
pub(super) type Held = Mutex<HashMap<RunId, HeldRun>>;

/// A run that a store leased.
#[derive(Debug)]
pub(super) struct HeldRun {
    pub(super) token: u64,
    /// The request that its engine watches.
    pub(super) request: CancelRequest,
    /// Whether the store could not write what it did.
    pub(super) has_failed: bool,
}

/// Whether a store that is closed is not among the holders any more.
#[derive(Debug, Clone, Copy)]
pub(super) struct HasLeft(pub(super) bool);

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The connection that writes.
#[derive(Debug)]
pub(super) struct WriteConnection {
    pub(super) connection: Connection,
    pub(super) path: PathBuf,
    /// The store's name among the holders.
    pub(super) holder: String,
    pub(super) host: String,
    pub(super) machine: String,
    pub(super) clock: Arc<dyn Clock>,
    /// The time of the store.
    pub(super) time: Arc<StoreClock>,
    /// The maximum time between two heartbeats of a holder.
    pub(super) ttl: Duration,
    pub(super) patience: Patience,
    /// The time of the store's last heartbeat, in milliseconds; `None` as long as it has held no run.
    pub(super) beat: Option<i64>,
    /// Whether the log may grow, because many runs wrote at once.
    pub(super) has_long_log: bool,
    /// The row numbers of runs that the store holds and has written to. Each is checked before it is used.
    pub(super) numbers: HashMap<RunId, i64>,
    pub(super) held: Arc<Held>,
    /// The releases that could not be written yet.
    pub(super) owed: Vec<ReleasedLease>,
    /// Whether the last heartbeat or release could not be written.
    pub(super) is_failing: bool,
}

/// Answers requests until no store is left to send any. Meanwhile, does what a store that holds runs does by the clock, however
/// many requests there are.
pub(super) fn answer(writer: &Mutex<WriteConnection>, inbox: &Receiver<WriteRequest>, queued: &AtomicUsize) -> HasLeft {
    let pace = PACE.min(locked(writer).ttl / 3);
    let mut tended = Instant::now();
    loop {
        match inbox.recv_timeout(pace.saturating_sub(tended.elapsed())) {
            Ok(first) => {
                let mut writer = locked(writer);
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
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return locked(writer).leave(),
        }
        if tended.elapsed() >= pace {
            // Runs that write on their own threads queue meanwhile: they take the connection whenever it is free.
            queued.fetch_add(1, Ordering::SeqCst);
            let mut writer = locked(writer);
            queued.fetch_sub(1, Ordering::SeqCst);
            writer.tend();
            tended = Instant::now();
        }
    }
}

impl WriteConnection {
    fn now(&self) -> i64 {
        unix_milliseconds(self.clock.now())
    }

    /// Whether the next heartbeat is due.
    fn is_due(&self, now: i64) -> bool {
        let pace = i64::try_from(self.ttl.as_millis()).unwrap_or(i64::MAX) / 3;
        self.beat.is_none_or(|beat| now.saturating_sub(beat) >= pace || now < beat)
    }

    /// Notifies the runs that are requested to stop, writes a heartbeat, and tries again to release what could not be released.
    fn tend(&mut self) {
        let holds_nothing = locked(&self.held).is_empty();
        if holds_nothing && self.owed.is_empty() {
            return;
        }
        self.pass_on_stops();
        if self.owed.is_empty() && !self.is_due(self.now()) {
            return;
        }
        let owed: Vec<_> = self.owed.iter().cloned().map(WriteTask::Release).collect();
        let tended = self.connection.busy_timeout(SHORT).and_then(|()| {
            let tended = self.transact_once(&owed.iter().collect::<Vec<_>>());
            self.connection.busy_timeout(self.patience.slice()).and(tended)
        });
        let was_failing = std::mem::replace(&mut self.is_failing, tended.is_err());
        match tended {
            Err(error) => {
                if !was_failing {
                    let (path, leases) = (self.path.display(), self.owed.len());
                    tracing::warn!(%error, %path, leases, "a store cannot write that it is alive or gives leases back, and tries again");
                }
            }
            Ok(_) => {
                self.owed.clear();
                if was_failing {
                    tracing::info!(path = %self.path.display(), "a store has written that it is alive and gives leases back");
                }
            }
        }
    }

    /// Notifies the runs that are requested to stop.
    fn pass_on_stops(&self) {
        let requested = self
            .connection
            .prepare_cached(
                "SELECT id, stop FROM runs WHERE holder = ?1 AND stop <> 0
                 UNION ALL SELECT id, stop FROM runs WHERE holder = ?1 AND stop_at <= ?2",
            )
            .and_then(|mut statement| {
                let rows = statement.query_map(params![&self.holder, self.time.now()], |row| {
                    Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?))
                })?;
                rows.collect::<Result<Vec<_>, _>>()
            });
        match requested {
            Ok(requested) => {
                let held = locked(&self.held);
                for (run, stop) in requested {
                    match RunId::new(run).ok().and_then(|run| held.get(&run)) {
                        Some(held) if stop == KILL => held.request.kill(),
                        Some(held) => held.request.set(),
                        None => {}
                    }
                }
            }
            Err(error) => tracing::warn!(%error, path = %self.path.display(), "which runs should stop cannot be read"),
        }
    }

    /// Removes this store from the holders.
    fn leave(&mut self) -> HasLeft {
        if self.beat.is_none() {
            return HasLeft(true);
        }
        // This is a courtesy, so closing the store does not wait for it for long.
        let short = self.connection.busy_timeout(Duration::from_millis(100));
        let left = short.and_then(|()| self.connection.execute("DELETE FROM holders WHERE name = ?1", [&self.holder]));
        if let Err(error) = &left {
            tracing::debug!(%error, path = %self.path.display(), "a store that was closed is still listed as a holder");
        }
        HasLeft(left.is_ok())
    }

    /// Executes a batch in one transaction. If that fails, for example because the disk is full, each request is tried
    /// alone, so that one that fails does not block the others.
    fn commit(&mut self, batch: Vec<WriteRequest>) {
        let works: Vec<&WriteTask> = batch.iter().map(|request| &request.work).collect();
        let results = match self.transact(&works) {
            Ok(results) => results,
            Err(error) => {
                let error = Arc::new(error);
                match explain(Arc::clone(&error), &self.path) {
                    // These errors would affect each request, so the requests are not tried again one by one.
                    StoreError::Busy { .. }
                    | StoreError::ReadOnly { .. }
                    | StoreError::Unreadable { .. }
                    | StoreError::Unavailable { .. } => {
                        works.iter().map(|_| Err(explain(Arc::clone(&error), &self.path))).collect()
                    }
                    alone if works.len() == 1 => vec![Err(alone)],
                    _ => works.iter().map(|work| self.write_one(work)).collect(),
                }
            }
        };
        for (WriteRequest { work, answer }, result) in batch.into_iter().zip(results) {
            if let (WriteTask::Release(release), Err(error)) = (work, &result) {
                tracing::warn!(%error, run = %release.run, path = %self.path.display(), "a lease cannot be given back yet");
                self.owed.push(release);
            }
            // The caller may have stopped waiting. The written records stay.
            if let Some(answer) = answer {
                drop(answer.send(result));
            }
        }
    }

    /// Executes one request in a transaction of its own.
    pub(super) fn write_one(&mut self, work: &WriteTask) -> Result<WriteOutcome, StoreError> {
        match self.transact(&[work]) {
            Ok(results) => results.into_iter().next().unwrap_or(Err(StoreError::Closed)),
            Err(error) => Err(explain(error, &self.path)),
        }
    }

    /// Appends a record in one statement, which suffices for nearly all appends: there is one record, the lease is still
    /// this one, and the run's row does not change. Returns `false`, with nothing written, if that is not so.
    fn append_one(&self, work: &WriteTask) -> Result<bool, rusqlite::Error> {
        let WriteTask::Append { run, token, expected, records, status: Status::Running, waits } = work else {
            return Ok(false);
        };
        if !waits.is_empty() {
            return Ok(false);
        }
        let (Some(number), [record]) = (self.numbers.get(run), records.as_slice()) else { return Ok(false) };
        if *expected == 0 || !has_room(*expected, records) || !is_next(*expected, records) {
            return Ok(false);
        }
        let appended = self
            .connection
            .prepare_cached(
                // No record precedes -1, so nothing is inserted.
                "INSERT INTO records (key, body, signature, token) VALUES (
                    coalesce((SELECT ?1 FROM runs
                        WHERE number = ?5 AND id = ?6 AND token = ?7 AND stop = 0 AND status = 'running'), -1),
                    ?2, ?3, ?4)",
            )?
            .execute(params![
                key(*number, record),
                record.body,
                record.signature,
                end(record),
                number,
                run.as_str(),
                token
            ])?;
        Ok(appended == 1)
    }

    fn transact(&mut self, works: &[&WriteTask]) -> Result<Vec<Result<WriteOutcome, StoreError>>, rusqlite::Error> {
        match self.transact_once(works) {
            Err(error) if is_busy(&error) => {
                let (patience, path) = (self.patience.clone(), self.path.clone());
                patience.wait(&path, || {
                    self.pass_on_stops();
                    self.transact_once(works)
                })
            }
            done => done,
        }
    }

    fn transact_once(
        &mut self,
        works: &[&WriteTask],
    ) -> Result<Vec<Result<WriteOutcome, StoreError>>, rusqlite::Error> {
        let now = self.now();
        let is_due = self.is_due(now);
        if works.len() >= MANY && !self.has_long_log {
            lengthen_log(&self.connection)?;
            self.has_long_log = true;
        }
        if let [work] = works
            && !is_due
            && self.append_one(work)?
        {
            return Ok(vec![Ok(WriteOutcome::Appended { stops: false })]);
        }
        let beats = is_due
            && (self.beat.is_some()
                || works.iter().any(|work| {
                    matches!(work, WriteTask::Create { .. } | WriteTask::Lease { .. } | WriteTask::Claim { .. })
                }));
        let Self { connection, path, holder, host, machine, numbers, time, .. } = self;
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let at = WriteContext { transaction: &transaction, path, holder, now, time };
        let results = works.iter().map(|work| at.do_one(work, numbers)).collect::<Result<Vec<_>, _>>()?;
        if beats {
            transaction
                .prepare_cached(
                    "INSERT INTO holders (name, process, host, machine, beat) VALUES (?1, ?2, ?3, ?4, ?5)
                     ON CONFLICT (name) DO UPDATE SET beat = ?5",
                )?
                .execute(params![&*holder, std::process::id(), &*host, &*machine, now])?;
        }
        transaction.commit()?;
        if beats {
            self.beat = Some(now);
        }
        Ok(results)
    }

    /// Returns the free space of the file to the disk, and removes dead stores that hold no run that still exists.
    pub(super) fn shrink(&mut self) -> Result<(), StoreError> {
        let long_ago = self.now().saturating_sub(i64::try_from(self.ttl.as_millis()).unwrap_or(i64::MAX));
        self.connection
            // A store that is alive and holds no run is inserted again when it leases one.
            .execute(
                "DELETE FROM holders WHERE beat < ?1 AND name NOT IN (SELECT holder FROM runs WHERE holder <> '')",
                [long_ago],
            )
            .and_then(|_| self.connection.execute_batch("VACUUM"))
            // The log holds the whole file now.
            .and_then(|()| self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())))
            .map_err(|error| explain(error, &self.path))
    }
}

/// The signals that the records of a run take.
#[derive(Clone, Copy)]
struct SignalsTaken<'a> {
    /// The run that received them.
    receiver: &'a RunId,
    /// The number of its row, if it is another run.
    number: Option<i64>,
    orders: &'a [u64],
}

/// The row of a run.
pub(super) struct RunRow {
    pub(super) number: i64,
    token: u64,
    holder: String,
    stop: u64,
    stop_at: Option<i64>,
}

pub(super) fn find(transaction: &Connection, run: &RunId) -> Result<Option<RunRow>, rusqlite::Error> {
    transaction
        .prepare_cached("SELECT number, token, holder, stop, stop_at FROM runs WHERE id = ?1")?
        .query_row([run.as_str()], |row| {
            let (number, token, holder) = (row.get(0)?, row.get(1)?, row.get(2)?);
            Ok(RunRow { number, token, holder, stop: row.get(3)?, stop_at: row.get(4)? })
        })
        .optional()
}

/// A transaction, the holder that writes in it, and the time.
pub(super) struct WriteContext<'t> {
    pub(super) transaction: &'t Connection,
    pub(super) path: &'t Path,
    holder: &'t str,
    now: i64,
    /// The time of the store.
    time: &'t StoreClock,
}

/// The outcome of a request, or why nothing was written for it.
pub(super) type WriteAnswer<T> = Result<Result<T, StoreError>, rusqlite::Error>;

impl WriteContext<'_> {
    /// Executes one request. Errors that the request itself causes are found before anything is written for it.
    fn do_one(&self, work: &WriteTask, numbers: &mut HashMap<RunId, i64>) -> WriteAnswer<WriteOutcome> {
        match work {
            WriteTask::Create { run, graph, start, records, change } => {
                if let Some(change) = change
                    && let Err(error) = self.expect_mark(change)?
                {
                    return Ok(Err(error));
                }
                let created = self.create(run, graph, start, records)?;
                if let (Ok(_), Some(change)) = (&created, change) {
                    self.change_mark(change)?;
                }
                Ok(created)
            }
            WriteTask::Mark { change } => {
                if let Err(error) = self.expect_mark(change)? {
                    return Ok(Err(error));
                }
                self.change_mark(change)?;
                Ok(Ok(WriteOutcome::Well))
            }
            WriteTask::Append { run, token, expected, records, status, waits } => {
                let appended = self.append(run, *token, *expected, records, *status, waits)?;
                match &appended {
                    Ok((number, _)) if *status == Status::Running => numbers.insert(run.clone(), *number),
                    _ => numbers.remove(run),
                };
                Ok(appended.map(|(_, done)| done))
            }
            WriteTask::Receive { run, signal, seal } => self.receive(run, signal, seal),
            WriteTask::Inbox { run } => self.inbox(run),
            WriteTask::Lease { run, seen, ignores_cancel } => self.lease(run, *seen, *ignores_cancel),
            WriteTask::Release(release) => {
                numbers.remove(&release.run);
                self.release(release).map(Ok)
            }
            WriteTask::Claim { claim } => Ok(Ok(WriteOutcome::Claimed(self.claim(claim)?))),
            WriteTask::Reap { dead } => {
                dead.iter().try_for_each(|dead| self.reap(dead))?;
                Ok(Ok(WriteOutcome::Well))
            }
            WriteTask::Stop { run, token, stop } => self.stop(run, *token, *stop).map(Ok),
            WriteTask::Hide { run, seen } => self.hide(run, seen).map(Ok),
            WriteTask::Sweep => sweep(self.transaction).map(Ok),
        }
    }

    fn lease(&self, run: &RunId, seen: u64, ignores_cancel: bool) -> WriteAnswer<WriteOutcome> {
        let Self { transaction, holder, now, .. } = *self;
        let RunRow { number, token, holder: before, stop, stop_at } = match find(transaction, run)? {
            None => return Ok(Err(StoreError::NotFound(run.clone()))),
            Some(found) if found.token != seen => return Ok(Ok(WriteOutcome::Raced)),
            Some(found) => found,
        };
        if !before.is_empty() && before != holder {
            self.count_death(number)?;
        }
        let Some(next) = next_token(token) else { return Ok(Err(self.spent(run))) };
        let (stop, stop_at) = if ignores_cancel { (0, None) } else { (stop, stop_at) };
        transaction
            .prepare_cached(
                "UPDATE runs SET token = ?2, holder = ?3, leased = ?4, stop = ?5, stop_at = ?6 WHERE number = ?1",
            )?
            .execute(params![number, next, holder, now, stop, stop_at])?;
        let time = self.store_time()?;
        Ok(Ok(WriteOutcome::Leased { token: next, stops: stop != 0 || stop_at.is_some_and(|at| at <= time) }))
    }

    fn release(&self, release: &ReleasedLease) -> Result<WriteOutcome, rusqlite::Error> {
        let Self { transaction, holder, .. } = *self;
        let ReleasedLease { run, token, from } = release;
        let found: Option<(i64, u32, u32, i64)> = transaction
            .prepare_cached(
                "SELECT number, tries, postponed, tried FROM runs WHERE id = ?1 AND token = ?2 AND holder = ?3",
            )?
            .query_row(params![run.as_str(), token, holder], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
            })
            .optional()?;
        let Some((number, tries, postponed, tried)) = found else { return Ok(WriteOutcome::Well) };
        let is_postponed = *from != ClaimedFrom::Now;
        let is_counted = is_postponed || tries > 0 || postponed > 0;
        let place = if is_counted { read::place(transaction, number)? } else { tried };
        // A holder may give a run back without having continued it. The deaths at its place still count then.
        let (tries, postponed) = if place == tried { (tries, postponed) } else { (0, 0) };
        let later = match from {
            ClaimedFrom::Now => 0,
            ClaimedFrom::Time(time) => *time,
            ClaimedFrom::Pause => self.store_time()?.saturating_add(pause(postponed)),
        };
        let postponed = postponed.saturating_add(is_postponed.into());
        transaction
            .prepare_cached(
                "UPDATE runs SET holder = '', later = ?2, tries = ?3, postponed = ?4, tried = ?5 WHERE number = ?1",
            )?
            .execute(params![number, later, tries, postponed, place])?;
        self.update_wake(number)?;
        Ok(WriteOutcome::Well)
    }

    fn stop(&self, run: &RunId, token: u64, stop: StopKind) -> Result<WriteOutcome, rusqlite::Error> {
        let (stop, at) = match stop {
            StopKind::Cancel => (1, None),
            StopKind::CancelAt(at) => (0, Some(at)),
            StopKind::Kill => (KILL, None),
        };
        let written = self
            .transaction
            .prepare_cached(
                "UPDATE runs SET stop = max(stop, ?3), stop_at = min(coalesce(stop_at, ?4), coalesce(?4, stop_at))
                 WHERE id = ?1 AND token = ?2 AND (holder <> '' OR status IN ('running', 'waiting'))",
            )?
            .execute(params![run.as_str(), token, stop, at])?;
        if written == 0 {
            return Ok(WriteOutcome::Raced);
        }
        find(self.transaction, run)?.map_or(Ok(()), |found| self.update_wake(found.number))?;
        Ok(WriteOutcome::Well)
    }

    fn hide(&self, run: &RunId, seen: &[(i64, u64)]) -> Result<WriteOutcome, rusqlite::Error> {
        let transaction = self.transaction;
        let tree: Vec<_> = read::tree(transaction, run)?.iter().map(|found| (found.number, found.token)).collect();
        if tree != seen {
            return Ok(WriteOutcome::Raced);
        }
        let mut hide = transaction.prepare_cached(
            // No run id contains a `#`, so the run is not found any more, and its id is free.
            "UPDATE runs SET status = 'removed', id = number || '#' || id, parent = NULL, owner = NULL, holder = '', stop = 0, stop_at = NULL,
                due = NULL, wake = NULL
             WHERE number = ?1",
        )?;
        let mut forget = transaction.prepare_cached("DELETE FROM waits WHERE run = ?1")?;
        for (number, _) in &tree {
            hide.execute([number])?;
            forget.execute([number])?;
        }
        let highest = tree.iter().map(|(_, token)| *token).max().unwrap_or_default();
        transaction
            .prepare_cached(
                "INSERT INTO marks (name, value) VALUES ('removed', ?1)
                 ON CONFLICT (name) DO UPDATE SET value = max(value, ?1)",
            )?
            .execute([highest])?;
        Ok(WriteOutcome::Well)
    }

    fn create(
        &self,
        run: &RunId,
        graph: &str,
        start: &RunStart,
        records: &[SignedRecord],
    ) -> WriteAnswer<WriteOutcome> {
        let Self { transaction, holder, now, .. } = *self;
        if find(transaction, run)?.is_some() {
            return Ok(Err(StoreError::Exists(run.clone())));
        }
        if !has_room(0, records) {
            return Ok(Err(StoreError::TooLong { run: run.clone(), limit: END.unsigned_abs() }));
        }
        if !is_next(0, records) {
            return Ok(Err(StoreError::Conflict { run: run.clone(), expected: 0, found: 0 }));
        }
        let Some(token) = next_token(removed(transaction)?) else { return Ok(Err(self.spent(run))) };
        transaction
            .prepare_cached(
                "INSERT INTO runs (id, graph, status, token, holder, parent, created, updated, leased, digest, version,
                    meaning, owner)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7, ?7, ?8, ?9, ?10, ?11)",
            )?
            .execute(params![
                run.as_str(),
                graph,
                Status::Running.name(),
                token,
                holder,
                start.parent.as_ref().map(RunId::as_str),
                now,
                start.digest.map(|digest| digest.to_hex()),
                start.version,
                start.meaning.map(|meaning| meaning.to_hex()),
                start.owner.as_ref().map(RunId::as_str),
            ])?;
        insert(transaction, transaction.last_insert_rowid(), records)?;
        Ok(Ok(WriteOutcome::Leased { token, stops: false }))
    }

    /// Appends records, and changes what the run waits for. Also returns the number of the run's row.
    fn append(
        &self,
        run: &RunId,
        token: u64,
        expected: u64,
        records: &[SignedRecord],
        status: Status,
        waits: &WaitChanges,
    ) -> WriteAnswer<(i64, WriteOutcome)> {
        let other = waits.received_by.as_ref().filter(|receiver| *receiver != run && !waits.take.is_empty());
        let receiver = match other {
            Some(other) => match find(self.transaction, other)? {
                Some(found) => Some(found.number),
                None => return Ok(Err(StoreError::NotFound(other.clone()))),
            },
            None => None,
        };
        let take = SignalsTaken { receiver: other.unwrap_or(run), number: receiver, orders: &waits.take };
        let appended = self.append_records(run, token, expected, records, status, take)?;
        if let Ok((number, _)) = &appended {
            signals::take(self.transaction, receiver.unwrap_or(*number), &waits.take)?;
            if let Some(receiver) = receiver {
                self.update_wake(receiver)?;
            }
            self.change_waits(*number, status, waits)?;
            if status != Status::Running {
                // Its status may be the one that it has: a run that was claimed waits again, one that was resumed fails again.
                let release = "UPDATE runs SET holder = '', tries = 0, postponed = 0,
                        stop = CASE WHEN status IN ('waiting', 'error') THEN stop ELSE 0 END,
                        stop_at = CASE WHEN status IN ('waiting', 'error') THEN stop_at END
                     WHERE number = ?1 AND (holder <> '' OR stop <> 0 OR stop_at IS NOT NULL OR tries + postponed > 0)";
                self.transaction.prepare_cached(release)?.execute([number])?;
                self.update_wake(*number)?;
            }
        }
        Ok(appended)
    }

    /// Appends records that take signals, and does not mark these as taken. Also returns the number of the run's row.
    fn append_records(
        &self,
        run: &RunId,
        token: u64,
        expected: u64,
        records: &[SignedRecord],
        status: Status,
        take: SignalsTaken<'_>,
    ) -> WriteAnswer<(i64, WriteOutcome)> {
        let Self { transaction, holder, now, .. } = *self;
        let Some(RunRow { number, token: current, stop, .. }) = find(transaction, run)? else {
            return Ok(Err(gone(transaction, run, token)?));
        };
        if current != token {
            return Ok(Err(StoreError::LeaseLost(run.clone())));
        }
        if !has_room(expected, records) {
            return Ok(Err(StoreError::TooLong { run: run.clone(), limit: END.unsigned_abs() }));
        }
        if !take.orders.is_empty()
            && count(transaction, number)? == expected
            && let Some(order) = signals::gone(transaction, take.number.unwrap_or(number), take.orders)?
        {
            return Ok(Err(StoreError::SignalGone { run: take.receiver.clone(), order }));
        }
        let follows = match records {
            [] => count(transaction, number)? == expected,
            _ => expected > 0 && is_next(expected, records) && insert(transaction, number, records)?,
        };
        if !follows {
            let found = count(transaction, number)?;
            return Ok(Err(StoreError::Conflict { run: run.clone(), expected, found }));
        }
        // A run that ended has no holder.
        let holder = if status == Status::Running { holder } else { "" };
        transaction
            .prepare_cached(
                // A failed run keeps its cancel request, because it did not end as cancelled.
                "UPDATE runs SET status = ?2, holder = ?3, updated = ?4, code = ?5,
                    stop = CASE WHEN ?2 IN ('running', 'waiting', 'error') THEN stop ELSE 0 END,
                    stop_at = CASE WHEN ?2 IN ('running', 'waiting', 'error') THEN stop_at END
                 WHERE number = ?1 AND status <> ?2",
            )?
            .execute(params![number, status.name(), holder, now, failure_code(records, status)])?;
        Ok(Ok((number, WriteOutcome::Appended { stops: stop != 0 })))
    }

    /// Changes what a run waits for. A run that ended waits for nothing.
    fn change_waits(&self, number: i64, status: Status, waits: &WaitChanges) -> Result<(), rusqlite::Error> {
        let transaction = self.transaction;
        let is_over = status.has_ended();
        if waits.is_empty() && !is_over {
            return Ok(());
        }
        let WaitChanges { close, open, .. } = waits;
        if is_over {
            let forgotten = transaction.prepare_cached("DELETE FROM waits WHERE run = ?1")?.execute([number])?;
            if forgotten == 0 {
                return Ok(());
            }
        } else {
            let mut delete = transaction.prepare_cached("DELETE FROM waits WHERE run = ?1 AND id = ?2")?;
            for id in close {
                delete.execute(params![number, id.as_str()])?;
            }
            let mut insert = transaction.prepare_cached(
                "INSERT OR REPLACE INTO waits (run, id, node, opened, due, signals, role, count, payload, graph)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
            )?;
            for wait in open {
                let signals = serde_json::Value::from(wait.signals.clone()).to_string();
                let ask = wait.ask.as_ref();
                insert.execute(params![
                    number,
                    wait.id.as_str(),
                    wait.node,
                    wait.opened,
                    wait.due,
                    signals,
                    ask.and_then(|ask| ask.role.as_deref()),
                    ask.map(|ask| ask.count),
                    ask.map(|ask| ask.payload.as_str()),
                    wait.graph.as_ref().map(|graph| serde_json::json!(graph).to_string()),
                ])?;
            }
            self.mark_time()?;
        }
        transaction
            .prepare_cached("UPDATE runs SET due = (SELECT min(due) FROM waits WHERE run = ?1) WHERE number = ?1")?
            .execute([number])?;
        self.update_wake(number)
    }

    /// Computes when a worker may claim a run that nobody holds.
    pub(super) fn update_wake(&self, number: i64) -> Result<(), rusqlite::Error> {
        let has_signal = signals::IS_ACCEPTED;
        self.transaction
            .prepare_cached(&format!(
                "UPDATE runs SET wake = max(later, CASE
                    WHEN parent IS NOT NULL THEN NULL
                    WHEN status = 'running' THEN 0
                    WHEN status <> 'waiting' THEN NULL
                    WHEN stop <> 0 OR {has_signal} THEN 0
                    ELSE min(coalesce(due, stop_at), coalesce(stop_at, due)) END)
                 WHERE number = ?1"
            ))?
            .execute([number])?;
        Ok(())
    }

    /// Leases runs that can continue, the one that could for the longest time first.
    fn claim(&self, claim: &Claim) -> Result<Vec<ClaimedRun>, rusqlite::Error> {
        let Self { transaction, holder, now, .. } = *self;
        let time = self.store_time()?;
        let mut suspects = Suspects::of(transaction, holder)?;
        let mut chosen = Vec::new();
        let mut ready = transaction.prepare_cached(&format!(
            "SELECT number, tries FROM runs
             WHERE {PIN} = ?1 AND graph = ?2 AND wake IS NOT NULL AND holder = '' AND wake <= ?3
                AND token < 9223372036854775807
             ORDER BY wake"
        ))?;
        let mut rows = ready.query(params![claim.pin.to_hex(), claim.graph, time])?;
        while chosen.len() < claim.limit
            && let Some(row) = rows.next()?
        {
            if suspects.add(row.get(1)?) {
                chosen.push(row.get::<_, i64>(0)?);
            }
        }
        let mut lease = transaction.prepare_cached(
            "UPDATE runs SET token = token + 1, holder = ?2, leased = ?3 WHERE number = ?1
             RETURNING id, token, stop <> 0 OR coalesce(stop_at <= ?4, 0), tries, postponed",
        )?;
        let claimed = |number: &i64| {
            lease.query_row(params![number, holder, now, time], |row| {
                let (run, token, stops, deaths, postponed) =
                    (row.get(0)?, row.get(1)?, row.get(2)?, row.get::<_, u32>(3)?, row.get(4)?);
                Ok(ClaimedRun { run, token, stops, tries: deaths.saturating_add(1), postponed })
            })
        };
        chosen.iter().map(claimed).collect()
    }

    /// Releases the runs of a store that is gone, unless it wrote a heartbeat since it was looked at.
    fn reap(&self, (dead, _, beat): &HolderRow) -> Result<(), rusqlite::Error> {
        let transaction = self.transaction;
        let found: Option<i64> = transaction
            .prepare_cached("SELECT beat FROM holders WHERE name = ?1")?
            .query_row([dead], |row| row.get(0))
            .optional()?;
        if found != *beat {
            return Ok(());
        }
        let left: Vec<i64> = transaction
            .prepare_cached("UPDATE runs SET holder = '' WHERE holder = ?1 AND holder <> '' RETURNING number")?
            .query_map([dead], |row| row.get(0))?
            .collect::<Result<_, _>>()?;
        for number in left {
            let deaths = self.count_death(number)?;
            // A run whose processes die is continued later each time.
            let later = match deaths {
                0 | 1 => 0,
                deaths => self.store_time()?.saturating_add(pause(deaths - 2)),
            };
            transaction.prepare_cached("UPDATE runs SET later = ?2 WHERE number = ?1")?.execute([number, later])?;
            self.update_wake(number)?;
        }
        Ok(())
    }

    /// Counts that the holder of a run died. Returns how many did so one after the other at the place where the run is.
    fn count_death(&self, number: i64) -> Result<u32, rusqlite::Error> {
        let place = read::place(self.transaction, number)?;
        self.transaction
            .prepare_cached(
                "UPDATE runs SET tries = CASE tried WHEN ?2 THEN tries ELSE 0 END + 1,
                    postponed = CASE tried WHEN ?2 THEN postponed ELSE 0 END, tried = ?2
                 WHERE number = ?1 RETURNING tries",
            )?
            .query_row([number, place], |row| row.get(0))
    }

    /// Records the time of the store, so that it does not go back in another process, and returns it.
    pub(super) fn mark_time(&self) -> Result<i64, rusqlite::Error> {
        let now = self.store_time()?;
        self.transaction
            .prepare_cached(
                "INSERT INTO marks (name, value) VALUES ('time', ?1)
                 ON CONFLICT (name) DO UPDATE SET value = max(value, ?1)",
            )?
            .execute([now])?;
        Ok(now)
    }

    /// Returns the time of the store, which is not before the recorded one.
    pub(super) fn store_time(&self) -> Result<i64, rusqlite::Error> {
        Ok(self.time.not_before(marked_time(self.transaction)?))
    }

    /// Returns the error of a run that has the highest possible token.
    fn spent(&self, run: &RunId) -> StoreError {
        let reason = format!("no lease can follow the last one of run `{run}`, whose token is the highest there is");
        StoreError::unreadable(self.path.display(), reason)
    }
}

/// Returns a pause in milliseconds, which grows each time up to five minutes.
fn pause(before: u32) -> i64 {
    300_000.min(1_000 << before.min(9))
}

/// Returns the token after another, if SQLite can represent it.
fn next_token(token: u64) -> Option<u64> {
    token.checked_add(1).filter(|next| i64::try_from(*next).is_ok())
}

/// Returns the latest time of the store that was recorded, in milliseconds since the Unix epoch.
pub(super) fn marked_time(connection: &Connection) -> Result<i64, rusqlite::Error> {
    let found = connection
        .prepare_cached("SELECT value FROM marks WHERE name = 'time'")?
        .query_row([], |row| row.get(0))
        .optional()?;
    Ok(found.unwrap_or(i64::MIN))
}

/// Whether a holder may hold runs: it holds some, or that cannot be read.
pub(super) fn may_hold_runs(connection: &Connection, holder: &str) -> bool {
    let found = connection
        .prepare_cached("SELECT 1 FROM runs WHERE holder = ?1 AND holder <> ''")
        .and_then(|mut statement| statement.exists([holder]));
    found.unwrap_or(true)
}

/// Returns the highest token of the runs that were removed. A new run with an old id begins above it, so that an old lease
/// is worthless.
fn removed(transaction: &Connection) -> Result<u64, rusqlite::Error> {
    let found = transaction
        .prepare_cached("SELECT value FROM marks WHERE name = 'removed'")?
        .query_row([], |row| row.get(0))
        .optional()?;
    Ok(found.unwrap_or_default())
}

/// Returns the error of a leased run that does not exist any more.
fn gone(transaction: &Connection, run: &RunId, token: u64) -> Result<StoreError, rusqlite::Error> {
    let was_removed = token <= removed(transaction)?;
    Ok(if was_removed { StoreError::LeaseLost(run.clone()) } else { StoreError::NotFound(run.clone()) })
}

/// Deletes some records and signals of a run that was removed, and its row after the last of them.
fn sweep(transaction: &Connection) -> Result<WriteOutcome, rusqlite::Error> {
    let number: Option<i64> = transaction
        .prepare_cached("SELECT number FROM runs WHERE status = 'removed' LIMIT 1")?
        .query_row([], |row| row.get(0))
        .optional()?;
    let Some(number) = number else { return Ok(WriteOutcome::Well) };
    let mut is_empty = true;
    for delete in [
        "DELETE FROM records WHERE key IN (SELECT key FROM records WHERE key BETWEEN ?1 AND ?2 LIMIT ?3)",
        "DELETE FROM signals WHERE key IN (SELECT key FROM signals WHERE key BETWEEN ?1 AND ?2 LIMIT ?3)",
    ] {
        let keys = params![number << 32, (number << 32) | END, SWEEP];
        is_empty &= transaction.prepare_cached(delete)?.execute(keys)? < SWEEP;
    }
    if is_empty {
        transaction.prepare_cached("DELETE FROM runs WHERE number = ?1")?.execute([number])?;
    }
    // There may be more to do.
    Ok(WriteOutcome::Raced)
}

/// Counts the records of a run by its last key.
fn count(transaction: &Connection, number: i64) -> Result<u64, rusqlite::Error> {
    transaction
        .prepare_cached("SELECT coalesce(max(key) & 4294967295, -1) + 1 FROM records WHERE key BETWEEN ?1 AND ?2")?
        .query_row([number << 32, (number << 32) | (END - 1)], |row| row.get(0))
}

/// Whether the numbers of the records fit into their half of the keys.
fn has_room(expected: u64, records: &[SignedRecord]) -> bool {
    expected.saturating_add(records.len() as u64) <= END.unsigned_abs()
        && records.iter().all(|record| record.seq < END.unsigned_abs())
}

/// Whether records directly follow the first `expected` ones.
fn is_next(expected: u64, records: &[SignedRecord]) -> bool {
    records.iter().zip(expected..).all(|(record, seq)| record.seq == seq)
}

/// Inserts records, each of which follows the one before. Returns `false`, with nothing inserted, if the first does not
/// follow the last stored one.
fn insert(transaction: &Connection, number: i64, records: &[SignedRecord]) -> Result<bool, rusqlite::Error> {
    let insert = "INSERT INTO records (key, body, signature, token) VALUES (?1, ?2, ?3, ?4)";
    let mut statement = transaction.prepare_cached(insert)?;
    for record in records {
        if statement.execute(params![key(number, record), record.body, record.signature, end(record)])? == 0 {
            return Ok(false);
        }
    }
    Ok(true)
}

fn key(number: i64, record: &SignedRecord) -> i64 {
    (number << 32) | i64::try_from(record.seq).unwrap_or(END - 1)
}

/// Returns the token of a record. A record without a token is still the last one.
fn end(record: &SignedRecord) -> &[u8] {
    record.end.as_ref().map_or(&[], <[u8; 32]>::as_slice)
}

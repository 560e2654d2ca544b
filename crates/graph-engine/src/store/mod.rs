//! Stores: where the journals of runs are kept.

#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod error;
mod lease;
mod listing;
mod memory;
mod retention;
mod schedules;
mod signals;
mod waits;

use std::fmt;

use graph_model::digest::Digest;
use graph_model::name::RunId;

use crate::future::BoxFuture;
use crate::record::SignedRecord;
use crate::status::Status;

pub use error::{Cause, StoreError};
pub use lease::{CancelRequest, Holder, Lease};
pub use listing::{
    Cursor, Page, RunFilter, RunPage, RunStart, RunSummary, WaitFilter, WaitPage, WaitRow, Within, failure_code,
};
pub use memory::MemoryStore;
pub use retention::Retention;
pub use schedules::{ScheduleChange, ScheduleMark};
pub use signals::{Inbox, Received, ReceivedSignal, SealSignal, Signal, SignalPlace};
pub use waits::{Ask, Claim, Claimed, NestedGraph, StoreClock, Wait, WaitChanges, WaitId};

pub use crate::schedule::{may_block_run, others_had_turn};

/// The future that a method of a [`Store`] returns.
pub type StoreFuture<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// A store of journals.
///
/// A store reads no record, except for the parts of the first and of the end that a [summary](RunSummary) shows. It promises
/// that a record that was appended is there for good, whole and in order, and that only the holder of a run's lease appends
/// to it. `conformance::suite` (feature `conformance`) tests that promise.
///
/// Six methods have no default implementation: [`create`](Store::create), [`append`](Store::append),
/// [`load`](Store::load), [`lease`](Store::lease), [`runs`](Store::runs) and [`find`](Store::find). The defaults of
/// [`load_from`](Store::load_from) and [`list`](Store::list) work for any store. The defaults of [`cancel`](Store::cancel),
/// [`cancel_at`](Store::cancel_at), [`kill`](Store::kill), [`lease_ignoring_cancel`](Store::lease_ignoring_cancel) and [`remove`](Store::remove) refuse. So do those of
/// [`now`](Store::now) and [`append_waiting`](Store::append_waiting): graphs that can wait do not start with such a store. The
/// default of [`open_waits`](Store::open_waits) refuses too: such a store has no list of what its runs wait for. The
/// defaults of [`claim`](Store::claim), [`next_wake`](Store::next_wake), [`news`](Store::news) and
/// [`postpone`](Store::postpone) refuse too: such a store has no [workers](crate::Worker). The
/// defaults of [`receive`](Store::receive) and [`inbox`](Store::inbox) refuse as well: the runs of such a store receive no
/// signals. And so do those of [`schedule_mark`](Store::schedule_mark), [`change_schedule`](Store::change_schedule) and
/// [`create_at_tick`](Store::create_at_tick): workers run no schedules in such a store. [`Lease::new`], [`RunStart::of`], [`RunPage::of`], [`WaitPage::of`] and [`failure_code`] do the common part of
/// the work.
///
/// The package `tests/outside/store` of the repository is a whole store, with a file for each run. The example of
/// `conformance::suite` tests a store, and the example of [`MemoryStore`] uses one.
pub trait Store: Send + Sync + fmt::Debug + 'static {
    /// Begins a journal with its first records, and leases the run to the caller.
    ///
    /// When this returns `Ok`, a restarted process sees the records; on `Err` it sees all or none.
    /// [`StoreError::Exists`] if there is such a run.
    fn create<'a>(&'a self, run: &'a RunId, graph: &'a str, records: Vec<SignedRecord>) -> StoreFuture<'a, Lease>;

    /// Appends `records` to the run's journal and waits until they are durable.
    ///
    /// When this returns `Ok`, a restarted process sees all of them; on `Err` it sees all or none. `expected` is the number
    /// of records that the caller knows: another writer's record in between is [`StoreError::Conflict`]. A caller whose
    /// lease was taken over gets [`StoreError::LeaseLost`]. The same write forgets the [token](SignedRecord::end) of the record
    /// that was the last one, and keeps that of the new last one. If `status` is the one that the run has already, the run
    /// keeps its other facts: [`RunSummary::updated`] and [`RunSummary::code`].
    fn append<'a>(
        &'a self,
        lease: &'a Lease,
        expected: u64,
        records: Vec<SignedRecord>,
        status: Status,
    ) -> StoreFuture<'a, ()>;

    /// Like [`Store::append`], and changes in the same write what the run waits for.
    ///
    /// A run whose status becomes [`Status::Waiting`] has no holder, as one that ended. [`RunSummary::next_due`] is the earliest
    /// time at which one of its waits is over. A store forgets the waits of a run that ended.
    ///
    /// A signal that the changes take is in no [inbox](Store::inbox) any more. [`StoreError::SignalGone`] if there is no such
    /// signal, or if it was taken before: nothing is written then.
    ///
    /// The default implementation refuses to keep waits.
    fn append_waiting<'a>(
        &'a self,
        lease: &'a Lease,
        expected: u64,
        records: Vec<SignedRecord>,
        status: Status,
        waits: WaitChanges,
    ) -> StoreFuture<'a, ()> {
        if waits.is_empty() && status != Status::Waiting {
            return self.append(lease, expected, records, status);
        }
        unsupported(KEEP_WAITS)
    }

    /// Returns the time of the store, in milliseconds since the Unix epoch. It never goes back, and all processes that use the
    /// store see the same time, as far as their clocks agree. It decides when waits are over. [`StoreClock`] is such a time.
    fn now(&self) -> StoreFuture<'_, i64> {
        unsupported(KEEP_WAITS)
    }

    /// Leases runs of a graph that can continue: a wait of theirs is over, they wait and [received](Store::receive) a signal
    /// that a wait of theirs [accepts](Wait::accepts), they wait and somebody cancelled them, or they have not ended and their
    /// holder is gone. Runs inside others are not claimed. Returns the runs that can continue for the
    /// longest time first, and no run twice.
    ///
    /// One of several callers gets a run. As with [`Store::lease`], dropping a lease gives it back, and so does dropping the
    /// future.
    fn claim<'a>(&'a self, claim: &'a Claim) -> StoreFuture<'a, Vec<Claimed>> {
        let _ = claim;
        unsupported(CLAIM)
    }

    /// Returns the earliest time of the store at which [`Store::claim`] has a run of one of these graphs, by their ids and
    /// [pins](crate::store::RunStart::pin); a time in the past if it has one now, and `None` if it has none before something [new](Store::news) happens.
    fn next_wake<'a>(&'a self, graphs: &'a [(String, Digest)]) -> StoreFuture<'a, Option<i64>> {
        let _ = graphs;
        unsupported(CLAIM)
    }

    /// Waits until something may have happened that [`Store::next_wake`] depends on, besides the time, and returns a number for
    /// the next call: it returns at once if something happened since it returned `seen`, or for the first call, 0. It may
    /// return although nothing has happened.
    fn news(&self, seen: u64) -> StoreFuture<'_, u64> {
        let _ = seen;
        unsupported(CLAIM)
    }

    /// Gives a lease back, and lets nobody [claim](Store::claim) the run before a time of the store. It can be leased before.
    fn postpone(&self, lease: Lease, until: i64) -> StoreFuture<'_, ()> {
        let _ = (lease, until);
        unsupported(CLAIM)
    }

    /// Receives a signal for a run, and keeps it until a wait [takes](WaitChanges::take) it or the run is removed. The signal is
    /// kept also if no wait listens to it, and if the run ends.
    ///
    /// `seal` signs the receipt of the signal, with its place. The store decides the place, signs and writes in one transaction.
    /// When this returns `Ok`, the signal is as durable as a record. A run that waits and can continue with the signal can be
    /// [claimed](Store::claim) from then on, which is [news](Store::news).
    ///
    /// Sending the same signal again has no effect: [`Received::Already`] if the run received a signal with the same id, name
    /// and payload before, also if it was taken or the run has ended. [`StoreError::OtherSignal`] if the signal with that id has
    /// another name or payload. [`StoreError::Ended`] if the run has completed, with or without errors. A run that failed or was
    /// cancelled receives signals, since it can be resumed. [`StoreError::TooManySignals`] if the run has as many signals that
    /// no wait has taken as [`Inbox`] allows.
    ///
    /// The default implementation refuses to keep signals.
    fn receive<'a>(&'a self, run: &'a RunId, signal: Signal, seal: SealSignal) -> StoreFuture<'a, Received> {
        let _ = (run, signal, seal);
        unsupported(KEEP_SIGNALS)
    }

    /// Returns the signals of a run that no wait has taken, in their order, and a time of the store. Each signal that is received
    /// later, by any process, has a time that is not before it. So if a wait is over at that time, no later signal ends it.
    ///
    /// The default implementation refuses to keep signals.
    fn inbox<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, Inbox> {
        let _ = run;
        unsupported(KEEP_SIGNALS)
    }

    /// Returns some of the waits that are open, those first that were [opened](Wait::opened) first, a page at a time. It changes
    /// nothing, and also returns the waits of runs that somebody holds.
    ///
    /// Waits that were opened at the same time are in an order that the store decides. As with [`runs`](Store::runs), a cursor
    /// stays good while waits are opened and closed, and the pages together have each wait once that was open from the first page
    /// to the last. A run that ended has no open waits. [`StoreError::BadCursor`] if the page's cursor is not a place in the
    /// store. A store that has all waits at hand can use [`WaitPage::of`].
    ///
    /// The default implementation refuses to list waits.
    fn open_waits<'a>(&'a self, filter: &'a WaitFilter, page: &'a Page) -> StoreFuture<'a, WaitPage> {
        let _ = (filter, page);
        unsupported(LIST_WAITS)
    }

    /// Returns the mark of a schedule; `None` if it has no mark. The [removal](Store::remove) of runs does not change marks.
    ///
    /// The default implementation refuses to keep marks.
    fn schedule_mark<'a>(&'a self, schedule: &'a str) -> StoreFuture<'a, Option<ScheduleMark>> {
        let _ = schedule;
        unsupported(KEEP_SCHEDULES)
    }

    /// Changes the mark of a schedule. When this returns `Ok`, the change is as durable as a record.
    /// [`StoreError::ScheduleChanged`] if the mark does not have the expected revision; nothing was written then.
    ///
    /// The default implementation refuses to keep marks.
    fn change_schedule<'a>(&'a self, change: &'a ScheduleChange) -> StoreFuture<'a, ()> {
        let _ = change;
        unsupported(KEEP_SCHEDULES)
    }

    /// Begins a journal as [`Store::create`] does, and changes the mark of a schedule in the same write: after a crash, both are
    /// there or neither. [`StoreError::Exists`] and [`StoreError::ScheduleChanged`] as there; nothing was written then.
    ///
    /// The default implementation refuses to keep marks.
    fn create_at_tick<'a>(
        &'a self,
        run: &'a RunId,
        graph: &'a str,
        records: Vec<SignedRecord>,
        change: &'a ScheduleChange,
    ) -> StoreFuture<'a, Lease> {
        let _ = (run, graph, records, change);
        unsupported(KEEP_SCHEDULES)
    }

    /// Returns the run's journal, all of it and in order.
    fn load<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, Vec<SignedRecord>>;

    /// Returns the records of the run's journal from number `from` on, in order, the last one with its [token](SignedRecord::end);
    /// empty if there are no more than `from`.
    ///
    /// The default implementation reads the whole journal. A store that can find a record by its number should override it.
    fn load_from<'a>(&'a self, run: &'a RunId, from: u64) -> StoreFuture<'a, Vec<SignedRecord>> {
        Box::pin(async move {
            let mut records = self.load(run).await?;
            records.drain(..records.partition_point(|record| record.seq < from));
            Ok(records)
        })
    }

    /// Leases a run, so that nobody else appends to it.
    ///
    /// [`StoreError::Leased`] if another holder is alive. A holder that is gone, or that was not heard from for too long,
    /// loses its lease, and its later writes are refused. Nobody holds a run that ended. If the run was
    /// [cancelled](Store::cancel) and that request still holds, the lease's [cancel request](Lease::cancel_request) is set.
    ///
    /// For `create` and `lease` alike: if the future is dropped, the run is not leased, or the lease is given back.
    fn lease<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, Lease>;

    /// Like [`Store::lease`], but the same write forgets that somebody cancelled the run: the lease's cancel request is not
    /// set.
    fn lease_ignoring_cancel<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, Lease> {
        let _ = run;
        unsupported("forget that a run was cancelled")
    }

    /// Returns some of the runs, the newest first, a page at a time.
    ///
    /// A cursor stays good while runs begin, end and are removed, even if the run that it was made after is removed. The
    /// pages together have each run once that was there from the first page to the last. [`StoreError::BadCursor`] if the
    /// page's cursor is not a place in the store. A store that has all summaries at hand can use [`RunPage::of`].
    ///
    /// [`Runtime::runs`](crate::Runtime::runs) has an example.
    fn runs<'a>(&'a self, filter: &'a RunFilter, page: &'a Page) -> StoreFuture<'a, RunPage>;

    /// Returns all runs, the newest first: every page of [`Store::runs`]. Use it only for stores that are known to be small.
    fn list(&self) -> StoreFuture<'_, Vec<RunSummary>> {
        Box::pin(async move { all_runs(self, &RunFilter::default()).await })
    }

    /// Returns the summary of one run.
    fn find<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, RunSummary>;

    /// Asks that a run end as cancelled (R283). Its holder, wherever that is, stops the run as soon as it can; if there is
    /// no holder, the next one does. Asking twice has the same effect as asking once.
    ///
    /// The request holds until the run has ended as cancelled or completed, even if its process dies before. When this
    /// returns `Ok`, the request is as durable as a record. A run that ended as cancelled can be resumed, and is no longer
    /// cancelled then.
    ///
    /// [`StoreError::Ended`] if the run has ended.
    ///
    /// ```
    /// # use graph_engine as graph_runtime;
    /// # async fn example(store: impl graph_runtime::Store) -> Result<(), Box<dyn std::error::Error>> {
    /// use graph_runtime::RunId;
    /// use graph_runtime::store::StoreError;
    ///
    /// match store.cancel(&RunId::new("order-17")?).await {
    ///     Err(StoreError::Ended { status, .. }) => println!("it has ended: {}", status.name()),
    ///     cancelled => cancelled?,
    /// }
    /// # Ok(())
    /// # }
    /// ```
    fn cancel<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, ()> {
        let _ = run;
        unsupported("pass on that a run should stop")
    }

    /// Asks that a run end as cancelled at a time of the store, as [`Store::cancel`] does then. The earliest of several times counts. A
    /// run that waits can be [claimed](Store::claim) at that time. The request is dropped with that of [`Store::cancel`].
    ///
    /// [`StoreError::Ended`] if the run has ended.
    fn cancel_at<'a>(&'a self, run: &'a RunId, at: i64) -> StoreFuture<'a, ()> {
        let _ = (run, at);
        unsupported("pass on that a run should stop later")
    }

    /// As [`Store::cancel`], and the holder of the run drops the calls in progress. A call that was dropped may have had its effect. A tool
    /// that blocks its thread cannot be dropped.
    fn kill<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, ()> {
        let _ = run;
        unsupported("pass on that a run should end at once")
    }

    /// Removes a run for good, with the runs inside it. All of them are removed at once, also if there is a crash.
    ///
    /// [`StoreError::Leased`] if somebody holds one of them; nothing was removed then. A lease of a removed run is worth
    /// nothing, even if there is a new run of that name.
    ///
    /// The example of [`Retention`] removes old runs.
    fn remove<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, ()> {
        let _ = run;
        unsupported("remove runs")
    }
}

/// Operations that a store may not support.
const CLAIM: &str = "hand out runs to workers";
const KEEP_SCHEDULES: &str = "keep which ticks of a schedule were handled";
const KEEP_SIGNALS: &str = "keep signals";
const KEEP_WAITS: &str = "keep what a run waits for";
const LIST_WAITS: &str = "list what its runs wait for";

/// Returns [`StoreError::Unsupported`] for an operation that a store does not support; `what` names the operation.
pub fn unsupported<'a, T: Send + 'a>(what: &'static str) -> StoreFuture<'a, T> {
    Box::pin(std::future::ready(Err(StoreError::Unsupported(what))))
}

/// Returns all runs that a filter accepts, the newest first.
///
/// # Errors
///
/// If they cannot be listed.
pub async fn all_runs<S: Store + ?Sized>(store: &S, filter: &RunFilter) -> Result<Vec<RunSummary>, StoreError> {
    let (mut page, mut all) = (Page { size: 1000, after: None }, Vec::new());
    loop {
        let RunPage { runs, next } = store.runs(filter, &page).await?;
        all.extend(runs);
        match next {
            Some(next) => page.after = Some(next),
            None => return Ok(all),
        }
    }
}

/// Returns the waits of a run that are open, as the store lists them.
pub(crate) async fn all_waits(store: &dyn Store, run: &RunId) -> Result<Vec<Wait>, StoreError> {
    let (filter, mut page) = (WaitFilter { run: Some(run.clone()), ..WaitFilter::default() }, Page::default());
    let mut all = Vec::new();
    loop {
        let WaitPage { waits, next } = store.open_waits(&filter, &page).await?;
        all.extend(waits.into_iter().map(|row| row.wait));
        match next {
            Some(next) => page.after = Some(next),
            None => return Ok(all),
        }
    }
}

//! Stores: where the journals of runs are kept.

#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod error;
mod lease;
mod listing;
mod memory;
mod retention;

use std::fmt;

use graph_model::name::RunId;

use crate::future::BoxFuture;
use crate::record::SignedRecord;
use crate::status::Status;

pub use error::{Cause, StoreError};
pub use lease::{CancelRequest, Holder, Lease};
pub use listing::{Cursor, Page, RunFilter, RunPage, RunStart, RunSummary, Within, failure_code};
pub use memory::MemoryStore;
pub use retention::Retention;

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
/// [`lease_ignoring_cancel`](Store::lease_ignoring_cancel) and [`remove`](Store::remove) refuse. [`Lease::new`],
/// [`RunStart::of`], [`RunPage::of`] and [`failure_code`] do the common part of the work.
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
        Box::pin(async move {
            let (filter, mut page, mut all) = (RunFilter::default(), Page::default(), Vec::new());
            loop {
                let RunPage { runs, next } = self.runs(&filter, &page).await?;
                all.extend(runs);
                match next {
                    Some(next) => page.after = Some(next),
                    None => return Ok(all),
                }
            }
        })
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

/// Returns [`StoreError::Unsupported`] for an operation that a store does not support; `what` names the operation.
pub fn unsupported<'a, T: Send + 'a>(what: &'static str) -> StoreFuture<'a, T> {
    Box::pin(std::future::ready(Err(StoreError::Unsupported(what))))
}

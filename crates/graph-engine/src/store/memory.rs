//! The store in memory: journals that live as long as the process, for tests.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use graph_model::digest::Digest;
use graph_model::name::RunId;
use graph_model::timestamp::from_unix_milliseconds;
use tokio::sync::watch;

use crate::clock::{Clock, SystemClock};
use crate::record::SignedRecord;
use crate::status::Status;
use crate::store::error::StoreError;
use crate::store::lease::{CancelRequest, Holder, Lease};
use crate::store::listing::{
    Cursor, Page, RunFilter, RunPage, RunStart, RunSummary, WaitFilter, WaitPage, WaitRow, failure_code,
};
use crate::store::schedules::{ScheduleChange, ScheduleMark};
use crate::store::signals::{Inbox, Received, ReceivedSignal, SealSignal, Signal, SignalPlace, readiness};
use crate::store::waits::{Claim, Claimed, StoreClock, Wait, WaitChanges, WaitId};
use crate::store::{Store, StoreFuture};

/// A store in memory. Clones share their journals.
///
/// ```
/// # use graph_engine as graph_runtime;
/// # async fn example<G: graph_runtime::Graph>(
/// #     graph: G,
/// #     inputs: G::Inputs,
/// # ) -> Result<(), Box<dyn std::error::Error>> {
/// use graph_runtime::{MemoryStore, Runtime, SecretKey, Store};
///
/// let store = MemoryStore::new();
/// let runtime = Runtime::builder().store(store.clone()).sign_with(SecretKey::generate()?).build()?;
/// let finished = runtime.start(graph, inputs).await?.await?;
/// for record in store.load(&finished.run).await? {
///     println!("{}", record.body);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct MemoryStore {
    runs: Arc<Mutex<Runs>>,
    clock: Arc<StoreClock>,
    /// Counts what may interest workers.
    news: Arc<watch::Sender<u64>>,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::with_clock(Arc::new(SystemClock::new()))
    }
}

#[derive(Debug, Default)]
struct Runs {
    runs: HashMap<RunId, StoredRun>,
    /// The runs in the order of their creation: the newest is last.
    by_age: BTreeMap<u64, RunId>,
    created: u64,
    /// The highest token of the runs that were removed.
    removed: u64,
    /// The marks of schedules, by their ids.
    schedules: HashMap<String, ScheduleMark>,
}

#[derive(Debug)]
struct StoredRun {
    graph: String,
    status: Status,
    records: Vec<SignedRecord>,
    /// The highest token that was given.
    token: u64,
    /// The request that notifies the holder of a cancel, while there is a holder.
    holder: Option<CancelRequest>,
    /// Whether it is to end as cancelled.
    is_cancelling: bool,
    /// The time of the store at which it is to end as cancelled.
    cancel_at: Option<i64>,
    start: RunStart,
    /// The waits that are open.
    waits: BTreeMap<WaitId, Wait>,
    /// The signals that it received.
    signals: Signals,
    /// The time before which nobody claims it.
    later: i64,
    /// How often it was postponed while `tried` was its last record besides those that resume it.
    postponed: u32,
    tried: Option<usize>,
    /// The code of its failure.
    code: Option<String>,
    created: SystemTime,
    updated: SystemTime,
    leased: SystemTime,
    /// How many runs were created before it.
    number: u64,
}

/// The signals that a run received.
#[derive(Debug, Default)]
struct Signals {
    /// The places of all signals and the digests of their names and payloads, by their ids.
    places: HashMap<String, (SignalPlace, Digest)>,
    /// The signals that no wait has taken, by their order.
    untaken: BTreeMap<u64, ReceivedSignal>,
}

impl MemoryStore {
    /// A store without runs.
    pub fn new() -> Self {
        Self::default()
    }

    /// A store without runs whose time is that of a clock, for tests of graphs that wait.
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        let (runs, clock) = (Arc::default(), Arc::new(StoreClock::new(clock)));
        Self { runs, clock, news: Arc::new(watch::Sender::new(0)) }
    }

    fn runs(&self) -> MutexGuard<'_, Runs> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lease_run(&self, run: &RunId, ignores_cancel: bool) -> Result<Lease, StoreError> {
        let mut runs = self.runs();
        let found = runs.runs.get_mut(run).ok_or_else(|| StoreError::NotFound(run.clone()))?;
        if found.holder.is_some() {
            return Err(StoreError::Leased { run: run.clone(), holder: "this process".to_owned() });
        }
        let lease = self.lease_to(run, found.token + 1);
        if ignores_cancel {
            (found.is_cancelling, found.cancel_at) = (false, None);
        }
        found.hold(&lease, self.clock.now());
        Ok(lease)
    }

    /// Inserts a run that is leased to the caller.
    fn create_run(
        &self,
        runs: &mut Runs,
        run: &RunId,
        graph: &str,
        mut records: Vec<SignedRecord>,
    ) -> Result<Lease, StoreError> {
        SignedRecord::forget_ends(&mut records);
        match runs.runs.entry(run.clone()) {
            Entry::Occupied(_) => Err(StoreError::Exists(run.clone())),
            Entry::Vacant(place) => {
                let (token, now) = (runs.removed + 1, SystemTime::now());
                let lease = self.lease_to(run, token);
                place.insert(StoredRun {
                    graph: graph.to_owned(),
                    status: Status::Running,
                    start: RunStart::of(&records),
                    waits: BTreeMap::new(),
                    signals: Signals::default(),
                    later: i64::MIN,
                    postponed: 0,
                    tried: None,
                    code: None,
                    records,
                    token,
                    holder: Some(lease.cancel_request().clone()),
                    is_cancelling: false,
                    cancel_at: None,
                    created: now,
                    updated: now,
                    leased: now,
                    number: runs.created,
                });
                runs.by_age.insert(runs.created, run.clone());
                runs.created += 1;
                Ok(lease)
            }
        }
    }

    /// Wakes workers.
    fn tell(&self) {
        self.news.send_modify(|news| *news += 1);
    }

    /// Asks that a run end as cancelled, at once or at a time of the store.
    async fn stop(&self, run: &RunId, at: Option<i64>, ask: impl Fn(&CancelRequest) + Send) -> Result<(), StoreError> {
        let mut runs = self.runs();
        let found = runs.runs.get_mut(run).ok_or_else(|| StoreError::NotFound(run.clone()))?;
        if found.holder.is_none() && found.status.has_ended() {
            return Err(StoreError::Ended { run: run.clone(), status: found.status });
        }
        match at {
            Some(at) => found.cancel_at = found.cancel_at.into_iter().chain([at]).min(),
            None => {
                found.is_cancelling = true;
                found.holder.iter().for_each(ask);
            }
        }
        self.tell();
        Ok(())
    }

    /// A lease that is not recorded yet.
    fn lease_to(&self, run: &RunId, token: u64) -> Lease {
        let store = self.clone();
        let held = run.clone();
        Lease::new(run.clone(), token, move || store.release(&held, token, None))
    }

    /// Gives a lease back. Nobody claims the run before a time, if one is given.
    fn release(&self, run: &RunId, token: u64, until: Option<i64>) {
        if let Some(run) = self.runs().runs.get_mut(run).filter(|run| run.token == token && run.holder.is_some()) {
            let place = run.records.iter().rposition(|record| !record.is_resume());
            if run.tried != place {
                (run.postponed, run.tried) = (0, place);
            }
            run.postponed += u32::from(until.is_some());
            (run.holder, run.later) = (None, until.unwrap_or(i64::MIN));
        }
        self.tell();
    }
}

impl StoredRun {
    /// Returns the time of the store at which a worker may claim it; `None` if nothing but an event changes that it may not.
    fn wake(&self) -> Option<i64> {
        if self.holder.is_some() || self.start.parent.is_some() {
            return None;
        }
        let at = readiness(self.status, self.is_cancelling, self.waits.values(), self.signals.untaken.values());
        let cancel_at = self.cancel_at.filter(|_| self.status == Status::Waiting);
        at.into_iter().chain(cancel_at).min().map(|at| at.max(self.later))
    }

    /// Makes the request to cancel it if the time has come.
    fn cancel_if_due(&mut self, now: i64) {
        if self.cancel_at.is_some_and(|at| at <= now) {
            self.is_cancelling = true;
            self.holder.iter().for_each(CancelRequest::set);
        }
    }

    /// Notes who holds it from now on.
    fn hold(&mut self, lease: &Lease, now: i64) {
        self.cancel_if_due(now);
        if self.is_cancelling {
            lease.cancel_request().set();
        }
        (self.token, self.leased) = (lease.token(), SystemTime::now());
        self.holder = Some(lease.cancel_request().clone());
    }

    fn summary(&self, id: &RunId) -> RunSummary {
        let holder =
            || Holder { process: Some(std::process::id()), host: "this host".to_owned(), since: Some(self.leased) };
        RunSummary {
            records: self.records.len() as u64,
            created: Some(self.created),
            updated: Some(self.updated),
            holder: self.holder.is_some().then(holder),
            is_cancelling: self.is_cancelling,
            code: self.code.clone(),
            next_due: self.waits.values().filter_map(|wait| wait.due).min().map(from_unix_milliseconds),
            ..RunSummary::new(id.clone(), self.graph.clone(), self.status).with_start(self.start.clone())
        }
    }
}

impl Runs {
    /// Fails if the mark of a schedule does not have the expected revision.
    fn expect_mark(&self, change: &ScheduleChange) -> Result<(), StoreError> {
        let found = self.schedules.get(&change.schedule).map_or(0, |mark| mark.revision);
        if found == change.expected {
            return Ok(());
        }
        Err(StoreError::ScheduleChanged { schedule: change.schedule.clone(), expected: change.expected, found })
    }

    fn change_mark(&mut self, change: &ScheduleChange) {
        let mark = ScheduleMark { revision: change.expected + 1, text: change.text.clone() };
        self.schedules.insert(change.schedule.clone(), mark);
    }

    /// Returns a run and all runs inside it.
    fn tree(&self, run: &RunId) -> Vec<RunId> {
        let (mut tree, mut at) = (vec![run.clone()], 0);
        while at < tree.len() {
            let inside = self.runs.iter().filter(|(_, run)| run.start.parent.as_ref() == Some(&tree[at]));
            let inside: Vec<RunId> = inside.map(|(id, _)| id.clone()).collect();
            tree.extend(inside);
            at += 1;
        }
        tree
    }
}

impl Store for MemoryStore {
    fn create<'a>(&'a self, run: &'a RunId, graph: &'a str, records: Vec<SignedRecord>) -> StoreFuture<'a, Lease> {
        Box::pin(async move { self.create_run(&mut self.runs(), run, graph, records) })
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
        mut records: Vec<SignedRecord>,
        status: Status,
        waits: WaitChanges,
    ) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let mut runs = self.runs();
            let id = lease.run();
            let run = runs.runs.get_mut(id).ok_or_else(|| StoreError::NotFound(id.clone()))?;
            if run.token != lease.token() {
                return Err(StoreError::LeaseLost(id.clone()));
            }
            let found = run.records.len() as u64;
            if found != expected {
                return Err(StoreError::Conflict { run: id.clone(), expected, found });
            }
            let receiver = waits.received_by.as_ref().filter(|_| !waits.take.is_empty()).unwrap_or(id);
            let untaken = runs.runs.get_mut(receiver).map(|run| &mut run.signals.untaken);
            let untaken = untaken.ok_or_else(|| StoreError::NotFound(receiver.clone()))?;
            let is_gone =
                |(at, order): &(usize, &u64)| !untaken.contains_key(order) || waits.take[..*at].contains(order);
            if let Some((_, order)) = waits.take.iter().enumerate().find(is_gone) {
                return Err(StoreError::SignalGone { run: receiver.clone(), order: *order });
            }
            waits.take.iter().for_each(|order| drop(untaken.remove(order)));
            let run = runs.runs.get_mut(id).ok_or_else(|| StoreError::NotFound(id.clone()))?;
            if let Some(last) = run.records.last_mut().filter(|_| !records.is_empty()) {
                last.end = None;
            }
            SignedRecord::forget_ends(&mut records);
            let code = failure_code(&records, status);
            run.records.extend(records);
            if matches!(status, Status::Completed | Status::CompletedWithErrors | Status::Cancelled) {
                (run.is_cancelling, run.cancel_at) = (false, None);
            }
            waits.close.iter().for_each(|id| drop(run.waits.remove(id)));
            run.waits.extend(waits.open.into_iter().map(|wait| (wait.id.clone(), wait)));
            if status.has_ended() {
                run.waits.clear();
            }
            if status != Status::Running {
                run.postponed = 0;
            }
            if run.status != status {
                (run.status, run.updated, run.code) = (status, SystemTime::now(), code);
                self.tell();
                run.holder = (status == Status::Running).then(|| lease.cancel_request().clone());
            } else if status != Status::Running {
                run.holder = None;
                self.tell();
            }
            Ok(())
        })
    }

    fn now(&self) -> StoreFuture<'_, i64> {
        Box::pin(std::future::ready(Ok(self.clock.now())))
    }

    fn claim<'a>(&'a self, claim: &'a Claim) -> StoreFuture<'a, Vec<Claimed>> {
        Box::pin(async move {
            let now = self.clock.now();
            let mut runs = self.runs();
            let is_ready = |run: &StoredRun| {
                run.graph == claim.graph && run.start.pin() == Some(claim.pin) && run.wake().is_some_and(|at| at <= now)
            };
            let ready = runs.runs.iter().filter(|(_, run)| is_ready(run));
            let mut ready: Vec<_> = ready.map(|(id, run)| (run.wake(), run.number, id.clone())).collect();
            ready.sort_unstable();
            let mut claimed = Vec::new();
            for (_, _, id) in ready.into_iter().take(claim.limit) {
                let Some(run) = runs.runs.get_mut(&id) else { continue };
                let lease = self.lease_to(&id, run.token + 1);
                run.hold(&lease, now);
                // A process that dies takes the store with it.
                claimed.push(Claimed::new(lease, 1, run.postponed));
            }
            Ok(claimed)
        })
    }

    fn next_wake<'a>(&'a self, graphs: &'a [(String, Digest)]) -> StoreFuture<'a, Option<i64>> {
        Box::pin(async move {
            let runs = self.runs();
            let is_asked = |run: &&StoredRun| {
                graphs.iter().any(|(graph, pin)| run.graph == *graph && run.start.pin() == Some(*pin))
            };
            Ok(runs.runs.values().filter(is_asked).filter_map(StoredRun::wake).min())
        })
    }

    fn news(&self, seen: u64) -> StoreFuture<'_, u64> {
        Box::pin(async move {
            let mut news = self.news.subscribe();
            let found = news.wait_for(|news| *news != seen).await;
            found.map(|news| *news).map_err(|_| StoreError::Closed)
        })
    }

    fn postpone(&self, lease: Lease, until: i64) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let (id, token) = lease.into_parts();
            self.release(&id, token, Some(until));
            Ok(())
        })
    }

    fn receive<'a>(&'a self, run: &'a RunId, signal: Signal, seal: SealSignal) -> StoreFuture<'a, Received> {
        Box::pin(async move {
            let mut runs = self.runs();
            let found = runs.runs.get_mut(run).ok_or_else(|| StoreError::NotFound(run.clone()))?;
            let (status, digest) = (found.status, signal.digest());
            let Signals { places, untaken } = &mut found.signals;
            if let Some((place, known)) = places.get(&signal.id) {
                if *known != digest {
                    return Err(StoreError::OtherSignal { run: run.clone(), id: signal.id });
                }
                return Ok(Received::Already { place: *place, taken: !untaken.contains_key(&place.order) });
            }
            if status.has_result() {
                return Err(StoreError::Ended { run: run.clone(), status });
            }
            let bytes = untaken.values().map(|signal| signal.payload.len()).sum();
            if Inbox::is_full(untaken.len(), bytes, &signal) {
                return Err(StoreError::TooManySignals { run: run.clone() });
            }
            let place = SignalPlace { order: places.len() as u64 + 1, at: self.clock.now() };
            let receipt = place.sealed(&seal)?;
            places.insert(signal.id.clone(), (place, digest));
            untaken.insert(place.order, ReceivedSignal::new(place, signal, receipt));
            self.tell();
            Ok(Received::Accepted(place))
        })
    }

    fn inbox<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, Inbox> {
        Box::pin(async move {
            let runs = self.runs();
            let found = runs.runs.get(run).ok_or_else(|| StoreError::NotFound(run.clone()))?;
            Ok(Inbox::new(self.clock.now(), found.signals.untaken.values().cloned().collect()))
        })
    }

    fn open_waits<'a>(&'a self, filter: &'a WaitFilter, page: &'a Page) -> StoreFuture<'a, WaitPage> {
        Box::pin(async move {
            let runs = self.runs();
            let rows = runs.runs.iter().flat_map(|(id, run)| {
                run.waits.values().map(|wait| WaitRow::new(id.clone(), run.graph.clone(), wait.clone()))
            });
            WaitPage::of(rows, filter, page)
        })
    }

    fn schedule_mark<'a>(&'a self, schedule: &'a str) -> StoreFuture<'a, Option<ScheduleMark>> {
        Box::pin(async move { Ok(self.runs().schedules.get(schedule).cloned()) })
    }

    fn change_schedule<'a>(&'a self, change: &'a ScheduleChange) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let mut runs = self.runs();
            runs.expect_mark(change)?;
            runs.change_mark(change);
            Ok(())
        })
    }

    fn create_at_tick<'a>(
        &'a self,
        run: &'a RunId,
        graph: &'a str,
        records: Vec<SignedRecord>,
        change: &'a ScheduleChange,
    ) -> StoreFuture<'a, Lease> {
        Box::pin(async move {
            let mut runs = self.runs();
            runs.expect_mark(change)?;
            let lease = self.create_run(&mut runs, run, graph, records)?;
            runs.change_mark(change);
            Ok(lease)
        })
    }

    fn load<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, Vec<SignedRecord>> {
        self.load_from(run, 0)
    }

    fn load_from<'a>(&'a self, run: &'a RunId, from: u64) -> StoreFuture<'a, Vec<SignedRecord>> {
        Box::pin(async move {
            let runs = self.runs();
            let found = runs.runs.get(run).ok_or_else(|| StoreError::NotFound(run.clone()))?;
            let from = usize::try_from(from).unwrap_or(usize::MAX);
            Ok(found.records.get(from..).unwrap_or_default().to_vec())
        })
    }

    fn lease<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, Lease> {
        Box::pin(async move { self.lease_run(run, false) })
    }

    fn lease_ignoring_cancel<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, Lease> {
        Box::pin(async move { self.lease_run(run, true) })
    }

    fn runs<'a>(&'a self, filter: &'a RunFilter, page: &'a Page) -> StoreFuture<'a, RunPage> {
        Box::pin(async move {
            let before = page.after.as_ref().map_or(Ok(i64::MAX), Cursor::number)?;
            let runs = self.runs();
            let older = runs.by_age.range(..u64::try_from(before).unwrap_or_default()).rev();
            let mut matching = older
                .filter_map(|(number, id)| Some((number, runs.runs.get(id)?.summary(id))))
                .filter(|(_, summary)| filter.accepts(summary));
            let part: Vec<_> = matching.by_ref().take(page.size).collect();
            let next = matching.next().and(part.last()).map(|(number, _)| Cursor::new(number.to_string()));
            Ok(RunPage { runs: part.into_iter().map(|(_, summary)| summary).collect(), next })
        })
    }

    fn find<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, RunSummary> {
        Box::pin(async move {
            let runs = self.runs();
            let found = runs.runs.get(run).ok_or_else(|| StoreError::NotFound(run.clone()))?;
            Ok(found.summary(run))
        })
    }

    fn cancel<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, ()> {
        Box::pin(self.stop(run, None, CancelRequest::set))
    }

    fn cancel_at<'a>(&'a self, run: &'a RunId, at: i64) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            self.stop(run, Some(at), CancelRequest::set).await?;
            // Holders do not look at the time.
            let (runs, clock, run) = (Arc::downgrade(&self.runs), Arc::clone(&self.clock), run.clone());
            tokio::spawn(async move {
                while let left @ 1.. = at.saturating_sub(clock.now()) {
                    clock.sleep(left).await;
                }
                if let Some(runs) = runs.upgrade()
                    && let Some(found) = runs.lock().unwrap_or_else(PoisonError::into_inner).runs.get_mut(&run)
                {
                    found.cancel_if_due(clock.now());
                }
            });
            Ok(())
        })
    }

    fn kill<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, ()> {
        Box::pin(self.stop(run, None, CancelRequest::kill))
    }

    fn remove<'a>(&'a self, run: &'a RunId) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let mut runs = self.runs();
            let tree = runs.tree(run);
            for run in &tree {
                let found = runs.runs.get(run).ok_or_else(|| StoreError::NotFound(run.clone()))?;
                if found.holder.is_some() {
                    return Err(StoreError::Leased { run: run.clone(), holder: "this process".to_owned() });
                }
            }
            for run in &tree {
                let removed = runs.runs.remove(run);
                if let Some(run) = &removed {
                    runs.by_age.remove(&run.number);
                }
                let token = removed.map_or(0, |run| run.token);
                runs.removed = runs.removed.max(token);
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::conformance;
    use super::super::waits::tests::SetClock;
    use super::*;

    #[tokio::test]
    async fn the_store_passes_the_conformance_suite() {
        conformance::suite(|| async { MemoryStore::new() }).await;
        conformance::waiting_suite(|| async { MemoryStore::new() }).await;
        conformance::stopping_suite(|| async { MemoryStore::new() }).await;
        conformance::signal_suite(|| async { MemoryStore::new() }).await;
        conformance::schedule_suite(|| async { MemoryStore::new() }).await;
        let clock = Arc::new(SetClock::default());
        clock.jump(1_000_000);
        let store = MemoryStore::with_clock(Arc::clone(&clock) as Arc<dyn Clock>);
        conformance::places_never_fall(&store, || clock.jump(-10_000)).await;
    }
}

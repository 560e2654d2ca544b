//! The store in memory: journals that live as long as the process, for tests.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use graph_model::name::RunId;

use crate::record::SignedRecord;
use crate::status::Status;
use crate::store::error::StoreError;
use crate::store::lease::{CancelRequest, Holder, Lease};
use crate::store::listing::{Cursor, Page, RunFilter, RunPage, RunStart, RunSummary, failure_code};
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
#[derive(Debug, Clone, Default)]
pub struct MemoryStore {
    runs: Arc<Mutex<Runs>>,
}

#[derive(Debug, Default)]
struct Runs {
    runs: HashMap<RunId, StoredRun>,
    /// The runs in the order of their creation: the newest is last.
    by_age: BTreeMap<u64, RunId>,
    created: u64,
    /// The highest token of the runs that were removed.
    removed: u64,
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
    start: RunStart,
    /// The code of its failure.
    code: Option<String>,
    created: SystemTime,
    updated: SystemTime,
    leased: SystemTime,
    /// How many runs were created before it.
    number: u64,
}

impl MemoryStore {
    /// A store without runs.
    pub fn new() -> Self {
        Self::default()
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
        found.is_cancelling &= !ignores_cancel;
        if found.is_cancelling {
            lease.cancel_request().set();
        }
        (found.token, found.leased, found.holder) =
            (lease.token(), SystemTime::now(), Some(lease.cancel_request().clone()));
        Ok(lease)
    }

    /// A lease that is not recorded yet.
    fn lease_to(&self, run: &RunId, token: u64) -> Lease {
        let store = self.clone();
        let held = run.clone();
        Lease::new(run.clone(), token, move || {
            if let Some(run) = store.runs().runs.get_mut(&held).filter(|run| run.token == token) {
                run.holder = None;
            }
        })
    }
}

impl StoredRun {
    fn summary(&self, id: &RunId) -> RunSummary {
        let holder =
            || Holder { process: Some(std::process::id()), host: "this host".to_owned(), since: Some(self.leased) };
        RunSummary {
            run: id.clone(),
            graph: self.graph.clone(),
            status: self.status,
            records: self.records.len() as u64,
            created: Some(self.created),
            updated: Some(self.updated),
            parent: self.start.parent.clone(),
            holder: self.holder.is_some().then(holder),
            is_cancelling: self.is_cancelling,
            digest: self.start.digest,
            version: self.start.version.clone(),
            code: self.code.clone(),
        }
    }
}

impl Runs {
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
    fn create<'a>(&'a self, run: &'a RunId, graph: &'a str, mut records: Vec<SignedRecord>) -> StoreFuture<'a, Lease> {
        Box::pin(async move {
            SignedRecord::forget_ends(&mut records);
            let runs = &mut *self.runs();
            match runs.runs.entry(run.clone()) {
                Entry::Occupied(_) => Err(StoreError::Exists(run.clone())),
                Entry::Vacant(place) => {
                    let (token, now) = (runs.removed + 1, SystemTime::now());
                    let lease = self.lease_to(run, token);
                    place.insert(StoredRun {
                        graph: graph.to_owned(),
                        status: Status::Running,
                        start: RunStart::of(&records),
                        code: None,
                        records,
                        token,
                        holder: Some(lease.cancel_request().clone()),
                        is_cancelling: false,
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
        })
    }

    fn append<'a>(
        &'a self,
        lease: &'a Lease,
        expected: u64,
        mut records: Vec<SignedRecord>,
        status: Status,
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
            if let Some(last) = run.records.last_mut().filter(|_| !records.is_empty()) {
                last.end = None;
            }
            SignedRecord::forget_ends(&mut records);
            let code = failure_code(&records, status);
            run.records.extend(records);
            if matches!(status, Status::Completed | Status::CompletedWithErrors | Status::Cancelled) {
                run.is_cancelling = false;
            }
            if run.status != status {
                (run.status, run.updated, run.code) = (status, SystemTime::now(), code);
                run.holder = (status == Status::Running).then(|| lease.cancel_request().clone());
            }
            Ok(())
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
        Box::pin(async move {
            let mut runs = self.runs();
            let found = runs.runs.get_mut(run).ok_or_else(|| StoreError::NotFound(run.clone()))?;
            match (&found.holder, found.status) {
                (Some(request), _) => request.set(),
                (None, Status::Running) => {}
                (None, status) => return Err(StoreError::Ended { run: run.clone(), status }),
            }
            found.is_cancelling = true;
            Ok(())
        })
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
    use super::*;

    #[tokio::test]
    async fn the_store_passes_the_conformance_suite() {
        conformance::suite(|| async { MemoryStore::new() }).await;
    }
}

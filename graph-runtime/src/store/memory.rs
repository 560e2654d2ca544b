//! The store in memory: journals that live as long as the process, for tests.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use graph_model::name::RunId;

use super::{Lease, RunSummary, Store, StoreError, Storing};
use crate::record::{Sealed, Status};

/// A store in memory. Clones share their journals.
#[derive(Debug, Clone, Default)]
pub struct MemoryStore {
    runs: Arc<Mutex<Runs>>,
}

#[derive(Debug, Default)]
struct Runs {
    runs: HashMap<RunId, Run>,
    created: u64,
}

#[derive(Debug)]
struct Run {
    graph: String,
    status: Status,
    records: Vec<Sealed>,
    /// The highest token that was given.
    token: u64,
    leased: bool,
    /// How many runs there were before.
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

    fn lease_to(&self, run: &RunId, token: u64) -> Lease {
        let store = self.clone();
        let held = run.clone();
        Lease::new(run.clone(), token, move || {
            if let Some(run) = store.runs().runs.get_mut(&held).filter(|run| run.token == token) {
                run.leased = false;
            }
        })
    }
}

impl Store for MemoryStore {
    fn create<'a>(&'a self, run: &'a RunId, graph: &'a str, mut records: Vec<Sealed>) -> Storing<'a, Lease> {
        Box::pin(async move {
            Sealed::forget_ends(&mut records);
            let runs = &mut *self.runs();
            match runs.runs.entry(run.clone()) {
                Entry::Occupied(_) => Err(StoreError::Exists(run.clone())),
                Entry::Vacant(place) => {
                    let (graph, number) = (graph.to_owned(), runs.created);
                    place.insert(Run { graph, status: Status::Running, records, token: 1, leased: true, number });
                    runs.created += 1;
                    Ok(self.lease_to(run, 1))
                }
            }
        })
    }

    fn append<'a>(&'a self, lease: &'a Lease, expected: u64, records: Vec<Sealed>, status: Status) -> Storing<'a, ()> {
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
            run.records.extend(records);
            Sealed::forget_ends(&mut run.records);
            run.status = status;
            Ok(())
        })
    }

    fn load<'a>(&'a self, run: &'a RunId) -> Storing<'a, Vec<Sealed>> {
        self.load_from(run, 0)
    }

    fn load_from<'a>(&'a self, run: &'a RunId, from: u64) -> Storing<'a, Vec<Sealed>> {
        Box::pin(async move {
            let runs = self.runs();
            let found = runs.runs.get(run).ok_or_else(|| StoreError::NotFound(run.clone()))?;
            let from = usize::try_from(from).unwrap_or(usize::MAX);
            Ok(found.records.get(from..).unwrap_or_default().to_vec())
        })
    }

    fn lease<'a>(&'a self, run: &'a RunId) -> Storing<'a, Lease> {
        Box::pin(async move {
            let mut runs = self.runs();
            let found = runs.runs.get_mut(run).ok_or_else(|| StoreError::NotFound(run.clone()))?;
            if found.leased {
                return Err(StoreError::Leased { run: run.clone(), holder: "this process".to_owned() });
            }
            found.leased = true;
            found.token += 1;
            Ok(self.lease_to(run, found.token))
        })
    }

    fn list(&self) -> Storing<'_, Vec<RunSummary>> {
        Box::pin(async move {
            let runs = self.runs();
            let mut list: Vec<_> = runs.runs.iter().collect();
            list.sort_by_key(|(_, run)| std::cmp::Reverse(run.number));
            let summary = |(id, run): (&RunId, &Run)| RunSummary {
                run: id.clone(),
                graph: run.graph.clone(),
                status: run.status,
                records: run.records.len() as u64,
            };
            Ok(list.into_iter().map(summary).collect())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::conformance;
    use super::*;

    #[tokio::test]
    async fn it_keeps_what_stores_promise() {
        conformance::suite(|| async { MemoryStore::new() }).await;
    }
}

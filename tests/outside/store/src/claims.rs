//! Claims: workers lease runs that can continue.

use std::collections::HashMap;
use std::fs;
use std::sync::Arc;
use std::time::SystemTime;

use graph_runtime::record::Status;
use graph_runtime::store::{Claim, Claimed, Lease, RunStart, StoreError};
use graph_runtime::{Digest, RunId};

use crate::file::Contents;
use crate::{Shared, locked};

/// The facts that decide when a worker may claim a run.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    graph: String,
    start: RunStart,
    created: SystemTime,
    status: Status,
    next_due: Option<i64>,
    later: i64,
}

/// The facts of the runs, each with the length of the file from which they were read, and when it was modified. A file that
/// has not changed is not read again.
pub(crate) type Known = HashMap<RunId, ((u64, SystemTime), Facts)>;

impl Facts {
    fn of(contents: &Contents) -> Self {
        let Contents { graph, created, status, later, records, .. } = contents;
        let (graph, start) = (graph.clone(), RunStart::of(records));
        Self { graph, start, created: *created, status: *status, next_due: contents.next_due(), later: *later }
    }

    fn is_of(&self, graphs: &[(String, Digest)]) -> bool {
        graphs.iter().any(|(graph, pin)| self.graph == *graph && self.start.pin() == Some(*pin))
    }

    /// Returns the time from which a worker may claim the run if nobody holds it.
    fn wake(&self, is_cancelling: bool) -> Option<i64> {
        let at = match self.status {
            _ if self.start.parent.is_some() => None,
            Status::Running => Some(i64::MIN),
            Status::Waiting if is_cancelling => Some(i64::MIN),
            Status::Waiting => self.next_due,
            _ => None,
        };
        at.map(|at| at.max(self.later))
    }
}

impl Shared {
    /// Returns the runs of some graphs that a worker may claim at some time if nobody holds them, each with that time. The
    /// runs that can continue for the longest time are the first.
    fn claimable(&self, graphs: &[(String, Digest)]) -> Result<Vec<(i64, RunId)>, StoreError> {
        let mut known = locked(&self.known);
        let (mut old, mut found) = (std::mem::take(&mut *known), Vec::new());
        for run in self.all()? {
            // The file may grow before it is read: then it is read again next time.
            let version = fs::metadata(self.path(&run, "journal")).and_then(|data| Ok((data.len(), data.modified()?)));
            let Ok(version) = version else { continue };
            let facts = match old.remove(&run) {
                Some((read, facts)) if read == version => facts,
                _ => match self.read(&run) {
                    Ok(contents) => Facts::of(&contents),
                    // It was removed meanwhile, or is damaged. The others can continue.
                    Err(StoreError::NotFound(_) | StoreError::Unreadable { .. }) => continue,
                    Err(error) => return Err(error),
                },
            };
            if facts.is_of(graphs)
                && let Some(wake) = facts.wake(self.is_cancelling(&run, facts.status))
            {
                found.push((wake, facts.created, run.clone()));
            }
            known.insert(run, (version, facts));
        }
        found.sort();
        Ok(found.into_iter().map(|(wake, _, run)| (wake, run)).collect())
    }

    pub(crate) fn next_wake(&self, graphs: &[(String, Digest)]) -> Result<Option<i64>, StoreError> {
        let free = self.claimable(graphs)?.into_iter().find(|(_, run)| self.holder(run).is_none());
        Ok(free.map(|(wake, _)| wake))
    }

    pub(crate) fn claim(self: &Arc<Self>, claim: &Claim) -> Result<Vec<Claimed>, StoreError> {
        let (now, graphs) = (self.now()?, [(claim.graph.clone(), claim.pin)]);
        let (claimable, mut claimed) = (self.claimable(&graphs)?, Vec::new());
        for (_, run) in claimable.into_iter().take_while(|(wake, _)| *wake <= now) {
            if claimed.len() == claim.limit {
                break;
            }
            claimed.extend(self.claim_run(&run, &graphs, now)?);
        }
        Ok(claimed)
    }

    /// Leases a run, unless another worker was quicker.
    fn claim_run(
        self: &Arc<Self>,
        run: &RunId,
        graphs: &[(String, Digest)],
        now: i64,
    ) -> Result<Option<Claimed>, StoreError> {
        let lock = match self.lock(run) {
            Err(StoreError::Leased { .. }) => return Ok(None),
            lock => lock?,
        };
        // Another worker may have continued it since the facts were read.
        let contents = match self.read(run) {
            Err(StoreError::NotFound(_)) => return Ok(None),
            contents => contents?,
        };
        let facts = Facts::of(&contents);
        let wake = facts.wake(self.is_cancelling(run, facts.status));
        if !facts.is_of(graphs) || wake.is_none_or(|at| at > now) {
            return Ok(None);
        }
        let (tries, postponed) = (contents.tries + 1, contents.postponed);
        let lease = self.lease_locked(run, lock, contents, true)?;
        Ok(Some(Claimed::new(lease, tries, postponed)))
    }

    /// Gives a lease back. A lease that somebody else took over, or whose run ended, has nothing to give back.
    pub(crate) fn postpone(&self, lease: Lease, until: i64) -> Result<(), StoreError> {
        let (run, token) = lease.into_parts();
        let Some(held) = self.let_go(&run, token) else { return Ok(()) };
        let postponed = locked(&held.journal).postpone(until);
        drop(held);
        self.news.publish();
        postponed.map_err(|error| self.failed(error))
    }
}

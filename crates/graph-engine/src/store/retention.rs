//! Retention: which runs of a store are not kept any longer.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, SystemTime};

use graph_model::name::RunId;

use crate::status::Status;
use crate::store::listing::RunSummary;

/// The rule by which runs may be removed. Only a run that ended and that nobody holds may be removed, together with the runs
/// inside it, if nobody holds one of these either. A run inside another is removed with that one and never alone.
///
/// ```
/// # use graph_engine as graph_runtime;
/// # async fn example(store: impl graph_runtime::Store) -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::{Duration, SystemTime};
///
/// use graph_runtime::Status;
/// use graph_runtime::store::Retention;
///
/// let month = Duration::from_secs(30 * 86_400);
/// let old = Retention { older_than: month, statuses: vec![Status::Completed], ..Retention::default() };
/// for run in old.pick(&store.list().await?, SystemTime::now()) {
///     store.remove(&run).await?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct Retention {
    /// How long ago it must have ended, at least.
    pub older_than: Duration,
    /// The status that it must have ended with; any status if empty.
    pub statuses: Vec<Status>,
    /// How many of the newest runs of each graph stay in any case.
    pub keep: usize,
}

impl Retention {
    /// Picks the runs that may be removed, the oldest first. Each is removed with the runs inside it. `runs` is a store's
    /// [list](super::Store::list).
    pub fn pick(&self, runs: &[RunSummary], now: SystemTime) -> Vec<RunId> {
        let known: HashSet<&RunId> = runs.iter().map(|run| &run.run).collect();
        let inside = |run: &RunSummary| run.parent.as_ref().is_some_and(|parent| known.contains(parent));
        let parents: HashMap<&RunId, &RunId> =
            runs.iter().filter_map(|run| Some((&run.run, run.parent.as_ref()?))).collect();
        // Holding a run also holds the runs that it is inside of.
        let mut held = HashSet::new();
        for run in runs.iter().filter(|run| run.holder.is_some()) {
            let mut at = Some(&run.run);
            while let Some(run) = at.filter(|run| held.insert(*run)) {
                at = parents.get(run).copied();
            }
        }
        let mut kept: HashMap<&str, usize> = HashMap::new();
        let mut picked = Vec::new();
        for run in runs.iter().filter(|run| !inside(run)) {
            let kept = kept.entry(&run.graph).or_default();
            let stays = *kept < self.keep;
            *kept += 1;
            let is_old = run.updated.is_none_or(|updated| {
                now.duration_since(updated).is_ok_and(|age| age >= self.older_than) || self.older_than.is_zero()
            });
            let ended = run.status.has_ended();
            let is_named = self.statuses.is_empty() || self.statuses.contains(&run.status);
            if ended && is_old && is_named && !stays && !held.contains(&run.run) {
                picked.push(run.run.clone());
            }
        }
        picked.reverse();
        picked
    }
}

#[cfg(test)]
mod tests {
    use super::super::Holder;
    use super::*;

    fn at(day: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(day * 86_400)
    }

    fn run(id: &str, status: Status, day: u64, parent: Option<&str>) -> RunSummary {
        RunSummary {
            run: RunId::new(id).unwrap(),
            graph: "test/graph".to_owned(),
            status,
            records: 1,
            created: Some(at(day)),
            updated: Some(at(day)),
            parent: parent.map(|parent| RunId::new(parent).unwrap()),
            owner: None,
            holder: None,
            is_cancelling: false,
            digest: None,
            meaning: None,
            version: None,
            code: None,
            next_due: None,
        }
    }

    fn picked(retention: &Retention, runs: &[RunSummary]) -> String {
        let picked: Vec<String> = retention.pick(runs, at(100)).iter().map(ToString::to_string).collect();
        picked.join(" ")
    }

    #[test]
    fn only_ended_runs_without_a_holder_are_removed() {
        let mut held = run("held", Status::Error, 1, None);
        held.holder = Some(Holder { process: Some(1), host: "h".to_owned(), since: None });
        let runs = [
            run("new", Status::Completed, 99, None),
            run("running", Status::Running, 1, None),
            run("waiting", Status::Waiting, 1, None),
            held,
            run("cancelled", Status::Cancelled, 3, None),
            run("suppressed", Status::CompletedWithErrors, 2, None),
            run("old", Status::Completed, 1, None),
        ];
        let month = Retention { older_than: Duration::from_secs(30 * 86_400), ..Retention::default() };
        assert_eq!(picked(&month, &runs), "old suppressed cancelled");
        assert_eq!(picked(&Retention::default(), &runs), "old suppressed cancelled new");
        let completed = Retention { statuses: vec![Status::Completed], ..month.clone() };
        assert_eq!(picked(&completed, &runs), "old");
        // The newest four are "new", "running", "waiting" and "held".
        assert_eq!(picked(&Retention { keep: 5, ..month }, &runs), "old suppressed");
    }

    #[test]
    fn a_nested_run_is_removed_only_with_its_parent() {
        let mut innermost = run("a-1-1", Status::Running, 1, Some("a-1"));
        let mut runs = vec![
            run("a", Status::Running, 1, None),
            run("a-1", Status::Completed, 1, Some("a")),
            run("lost", Status::Completed, 1, Some("gone")),
        ];
        assert_eq!(picked(&Retention::default(), &runs), "lost", "its parent is gone, so it stands alone");
        runs[0].status = Status::Completed;
        assert_eq!(picked(&Retention::default(), &runs), "lost a");
        innermost.holder = Some(Holder { process: Some(1), host: "h".to_owned(), since: None });
        runs.push(innermost);
        assert_eq!(picked(&Retention::default(), &runs), "lost", "a run is held two levels below");
    }
}

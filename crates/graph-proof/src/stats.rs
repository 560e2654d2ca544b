//! Statistics over stored runs: how often each node was visited, failed, was tried again and waited, and how long it took.
//!
//! Everything is read from journals, which are verified first. No graph is needed, and no tool is called.
//!
//! ```
//! # mod graph_runtime { pub use graph_engine::*; pub use graph_proof::*; }
//! # use graph_runtime::{PublicKey, Store, store::Page, store::RunFilter};
//! # async fn example(store: &dyn Store, key: &PublicKey) -> Result<(), Box<dyn std::error::Error>> {
//! use graph_runtime::stats::Stats;
//!
//! let mut stats = Stats::default();
//! for run in store.runs(&RunFilter::default(), &Page::default()).await?.runs {
//!     stats.add(&run.run, &store.load(&run.run).await?, key)?;
//! }
//! for (graph, one) in &stats.graphs {
//!     for (node, visits) in &one.nodes {
//!         println!("{graph} {node}: {:?} ms", visits.latencies.percentile(99));
//!     }
//! }
//! # Ok(())
//! # }
//! ```

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, SystemTime};

use graph_engine::Status;
use graph_engine::record::{End, Entry, JournalError, Record, SignedRecord, Step, VerifiedJournal, Visit};
use graph_model::name::RunId;
use graph_model::timestamp;
use graph_signing::PublicKey;

/// Statistics over runs, by the ids of their graphs. A nested run counts under its own graph.
///
/// The memory that it needs depends on the number of graphs and nodes, and not on that of runs or visits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// The statistics of each graph.
    pub graphs: BTreeMap<String, GraphStats>,
}

/// Statistics over the runs of a graph.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GraphStats {
    /// How many runs have each status, according to their journals.
    pub runs: BTreeMap<&'static str, u64>,
    /// How often runs were resumed.
    pub resumes: u64,
    /// How long the steps took: from the record before to that of the step, with its calls and their commit. Waits are not
    /// included. A step in which visits only began to wait is left out.
    pub steps: Latencies,
    /// The statistics of each node that was visited or waited.
    pub nodes: BTreeMap<String, NodeStats>,
}

/// Statistics over the visits of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeStats {
    /// How often it was visited. A visit that failed counts, also if it is made again when its run is resumed. A visit that
    /// waits counts when it is made.
    pub visits: u64,
    /// How many of its visits failed, whatever followed. The end of a run names the node that failed, which counts as a
    /// failed visit.
    pub failures: u64,
    /// How often its calls were made again, as far as the journal has them: not those of a visit that ended its run.
    pub retries: u64,
    /// How many of its visits had their result from the cache.
    pub cached: u64,
    /// How many of its visits were cancelled.
    pub cancelled: u64,
    /// How often a visit began to wait: for a time, a signal, an answer, or a nested run that waits.
    pub waits: u64,
    /// How many of these waits are open: their runs have not ended.
    pub open: u64,
    /// How long the waits took that are over, all together.
    pub waited: Duration,
    /// How long its visits took. Visits that were cached or cancelled are left out, and a visit that ended its run: the journal
    /// does not have their durations.
    pub latencies: Latencies,
}

/// A distribution of durations in milliseconds.
///
/// Durations below a second are exact. Longer ones are rounded down to their three highest digits, so a percentile is less than 1 %
/// too small. The greatest one and the sum are exact. So a distribution has at most 1,000 values for the first second and 900 for
/// each power of ten after it, however many durations were added.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Latencies {
    /// How often each rounded duration occurred.
    counts: BTreeMap<u64, u64>,
    count: u64,
    sum: u64,
    max: u64,
}

impl Latencies {
    /// Adds a duration in milliseconds.
    pub fn add(&mut self, milliseconds: u64) {
        *self.counts.entry(rounded(milliseconds)).or_default() += 1;
        self.count += 1;
        self.sum = self.sum.saturating_add(milliseconds);
        self.max = self.max.max(milliseconds);
    }

    /// Adds all durations of another distribution.
    pub fn merge(&mut self, other: &Self) {
        for (value, count) in &other.counts {
            *self.counts.entry(*value).or_default() += count;
        }
        self.count += other.count;
        self.sum = self.sum.saturating_add(other.sum);
        self.max = self.max.max(other.max);
    }

    /// Returns how many durations there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the sum of the durations, in milliseconds.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// Returns the greatest duration, in milliseconds; `None` without durations.
    pub fn max(&self) -> Option<u64> {
        (self.count > 0).then_some(self.max)
    }

    /// Returns the least duration, in milliseconds, that at least `percent` of 100 durations do not exceed (the nearest rank); `None` if
    /// there are no durations. More than 100 counts as 100.
    pub fn percentile(&self, percent: u8) -> Option<u64> {
        let rank = (u128::from(self.count) * u128::from(percent.min(100))).div_ceil(100).max(1);
        let mut below = 0_u128;
        self.counts.iter().find_map(|(value, count)| {
            below += u128::from(*count);
            (below >= rank).then_some(*value)
        })
    }
}

/// Keeps three digits of a duration of a second or more.
fn rounded(milliseconds: u64) -> u64 {
    match milliseconds.checked_ilog10() {
        Some(digits) if digits > 2 => {
            let unit = 10_u64.pow(digits - 2);
            milliseconds / unit * unit
        }
        _ => milliseconds,
    }
}

impl Stats {
    /// Verifies the journal of a run and adds what it says. `key` is the public key of the runtime that wrote it.
    ///
    /// The records are read one by one. A fork counts its own steps, and not those of the run that it began in.
    ///
    /// # Errors
    ///
    /// If the journal was changed or cannot be read. Nothing of it is added then.
    pub fn add(&mut self, run: &RunId, records: &[SignedRecord], key: &PublicKey) -> Result<(), JournalError> {
        let verified = VerifiedJournal::new(run, records, key)?;
        let (at, start) = verified.start()?;
        let mut reading = JournalReading::new(&at);
        for index in 1..verified.count() {
            if let Some(record) = verified.record(index) {
                reading.read(record?);
            }
        }
        let found = reading.finish();
        self.graphs.entry(start.graph).or_default().merge(&found);
        Ok(())
    }

    /// Adds other statistics.
    pub fn merge(&mut self, other: &Self) {
        for (graph, stats) in &other.graphs {
            self.graphs.entry(graph.clone()).or_default().merge(stats);
        }
    }
}

impl GraphStats {
    /// Adds the statistics of other runs of the graph.
    pub fn merge(&mut self, other: &Self) {
        for (status, count) in &other.runs {
            *self.runs.entry(status).or_default() += count;
        }
        self.resumes += other.resumes;
        self.steps.merge(&other.steps);
        for (node, stats) in &other.nodes {
            self.nodes.entry(node.clone()).or_default().merge(stats);
        }
    }
}

impl NodeStats {
    /// Adds the statistics of other visits of the node.
    pub fn merge(&mut self, other: &Self) {
        let Self { visits, failures, retries, cached, cancelled, waits, open, waited, latencies } = other;
        self.visits += visits;
        self.failures += failures;
        self.retries += retries;
        self.cached += cached;
        self.cancelled += cancelled;
        self.waits += waits;
        self.open += open;
        self.waited = self.waited.saturating_add(*waited);
        self.latencies.merge(latencies);
    }
}

/// A journal that is read record by record.
struct JournalReading {
    stats: GraphStats,
    /// When the last step, resume or wait was recorded: the next step begins there.
    last: Option<SystemTime>,
    /// The nodes that are visited next; `None` before the first step, where only the graph has them.
    next: Option<BTreeSet<String>>,
    /// Whether the run does not wait.
    is_moving: bool,
    /// The open waits, by the numbers of their visits: the node, and when each was opened by the store's time.
    waits: HashMap<u64, (String, i64)>,
    /// The open waits that a fork has from the run where it began. They do not count.
    from_origin: BTreeSet<u64>,
    /// The visits whose failures are held, with their nodes. They have been counted.
    held: BTreeMap<u64, String>,
    /// How the run ended, unless it was resumed afterwards.
    status: Option<Status>,
}

impl JournalReading {
    /// Begins with the time of the first record.
    fn new(at: &str) -> Self {
        Self {
            stats: GraphStats::default(),
            last: timestamp::parse(at),
            next: None,
            is_moving: true,
            waits: HashMap::new(),
            from_origin: BTreeSet::new(),
            held: BTreeMap::new(),
            status: None,
        }
    }

    fn node(&mut self, name: &str) -> &mut NodeStats {
        // Most nodes are known, and a name is copied for the others only.
        if !self.stats.nodes.contains_key(name) {
            self.stats.nodes.insert(name.to_owned(), NodeStats::default());
        }
        self.stats.nodes.get_mut(name).expect("it was inserted")
    }

    fn read(&mut self, record: Record) {
        let at = timestamp::parse(&record.at);
        match record.entry {
            Entry::Step(step) => self.step(at, &step),
            Entry::Take(take) => {
                for taken in &take.taken {
                    self.from_origin.remove(&taken.step);
                    if let Some((node, opened)) = self.waits.remove(&taken.step) {
                        let waited = u64::try_from(taken.at.saturating_sub(opened)).unwrap_or(0);
                        let stats = self.node(&node);
                        stats.waited = stats.waited.saturating_add(Duration::from_millis(waited));
                        self.next.get_or_insert_default().insert(node);
                    }
                }
                (self.last, self.is_moving) = (at, true);
            }
            Entry::Resume(_) => {
                self.stats.resumes += 1;
                // The failed visits are made again.
                self.is_moving |= !self.held.is_empty();
                let held = std::mem::take(&mut self.held).into_values();
                if let Some(next) = &mut self.next {
                    next.extend(held);
                }
                (self.last, self.status) = (at, None);
            }
            Entry::Snapshot(snapshot) if record.seq == 1 => {
                self.from_origin = snapshot.waits.iter().map(|wait| wait.step).collect();
                self.is_moving = !snapshot.next.is_empty() || self.from_origin.is_empty();
                self.next = Some(snapshot.next.into_iter().chain(snapshot.parked).map(|target| target.node).collect());
            }
            Entry::End(end) => self.end(&end),
            // The calls of a step are in its record too, and a snapshot has nothing new.
            _ => {}
        }
    }

    fn step(&mut self, at: Option<SystemTime>, step: &Step) {
        let is_made = step.visits.iter().any(|visit| visit.opened.is_none());
        if let (true, Some(last), Some(at)) = (is_made, self.last, at) {
            let took = at.duration_since(last).unwrap_or_default();
            self.stats.steps.add(u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
        }
        step.visits.iter().for_each(|visit| self.visit(visit));
        self.next = Some(step.next.iter().map(|target| target.node.clone()).collect());
        // Without visits that are next, the run waits, or it ends with a failure that was held.
        let is_waiting = step.next.is_empty() && !(self.waits.is_empty() && self.from_origin.is_empty());
        (self.last, self.is_moving) = (at, !is_waiting);
    }

    fn visit(&mut self, visit: &Visit) {
        let node = self.node(&visit.node);
        if let Some(opened) = &visit.opened {
            node.waits += 1;
            self.waits.insert(visit.step, (visit.node.clone(), opened.at));
            return;
        }
        node.visits += 1;
        node.failures += u64::from(visit.error.is_some());
        node.retries += visit.calls.saturating_sub(1);
        node.cached += u64::from(visit.cached);
        node.cancelled += u64::from(visit.cancelled);
        if !visit.cached && !visit.cancelled {
            node.latencies.add(visit.ms);
        }
        if visit.held {
            self.held.insert(visit.step, visit.node.clone());
        }
    }

    fn end(&mut self, end: &End) {
        self.status = Some(end.status);
        let Some(failed) = end.node.as_ref().filter(|_| end.status == Status::Error) else { return };
        if !end.failures.is_empty() {
            for failure in &end.failures {
                if !self.held.contains_key(&failure.step) {
                    self.failed_at_end(&failure.node);
                }
            }
        } else if !self.held.values().any(|node| node == failed) {
            self.failed_at_end(failed);
        }
    }

    /// Counts a visit that ended its run, which is in no step. If the node was not next, a hook ended the run after a visit of it.
    fn failed_at_end(&mut self, node: &str) {
        let is_visit = self.next.as_ref().is_none_or(|next| next.contains(node));
        let node = self.node(node);
        (node.visits, node.failures) = (node.visits + u64::from(is_visit), node.failures + 1);
    }

    fn finish(mut self) -> GraphStats {
        let status = match self.status {
            Some(status) => status,
            None if self.is_moving => Status::Running,
            None => Status::Waiting,
        };
        self.stats.runs.insert(status.name(), 1);
        if self.status.is_none() {
            for (node, _) in std::mem::take(&mut self.waits).into_values() {
                self.node(&node).open += 1;
            }
        }
        self.stats
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_a_sorted_list() {
        // Numbers of a simple generator, so that each run of the test is the same.
        let mut seed = 7_u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        for round in 0..300 {
            let most = 10_u64.pow(1 + u32::try_from(random(8)).unwrap());
            let all: Vec<u64> = (0..random(200)).map(|_| random(most)).collect();
            let (mut one, mut other) = (Latencies::default(), Latencies::default());
            for value in &all {
                if random(2) == 0 { one.add(*value) } else { other.add(*value) }
            }
            one.merge(&other);
            let mut sorted = all.clone();
            sorted.sort_unstable();
            assert_eq!((one.count(), one.max()), (all.len() as u64, sorted.last().copied()), "round {round}");
            assert_eq!(one.sum(), all.iter().sum::<u64>());
            for percent in [0, 1, 50, 90, 99, 100] {
                let rank = (sorted.len() * usize::from(percent)).div_ceil(100).max(1);
                let exact = sorted.get(rank - 1).copied();
                let found = one.percentile(percent);
                assert_eq!(found.is_none(), exact.is_none());
                let (found, exact) = (found.unwrap_or_default(), exact.unwrap_or_default());
                assert!(found <= exact && (exact - found) * 100 <= exact, "{percent} % of {sorted:?}: {found}");
                assert!(exact >= 1000 || found == exact, "{percent} % of {sorted:?}: {found}");
            }
        }
    }

    #[test]
    fn a_distribution_of_any_durations_stays_small() {
        let mut all = Latencies::default();
        for value in 0..2_000_000_u64 {
            all.add(value);
            all.add(value.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        }
        all.add(u64::MAX);
        assert!(all.counts.len() <= 1000 + 900 * 17, "{}", all.counts.len());
        assert_eq!(all.max(), Some(u64::MAX));
    }
}

//! The records of a run, with the places of the rows of its timeline: read once, and followed while the run is shown.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use graph_engine::record::{Chain, JournalError, VerifiedJournal};
use graph_runtime::record::{Entry, Record, SignedRecord, Start, Visit};
use graph_runtime::store::RunSummary;
use graph_runtime::{PublicKey, RunId};

use crate::problem::ViewProblem;
use crate::recent::Recent;
use crate::source::{FileStamp, OpenPlace, Source};

/// How many runs are kept in memory.
const MOST_RUNS: usize = 4;

/// A row of the timeline: a visit, or a record that is no step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowPlace {
    /// The record.
    pub(crate) record: u32,
    /// The visit in it, if it is a step.
    pub(crate) visit: u32,
    /// The node, by its place in [`RunIndex::nodes`]; the greatest number if the row is of none.
    pub(crate) node: u32,
    /// The properties of the row, for filters.
    pub(crate) flags: u8,
}

/// The flags of rows.
pub(crate) mod flag {
    /// A visit that failed, or the end of a run that did.
    pub(crate) const FAILED: u8 = 1;
    /// A visit whose tool was called more than once, or finished calls of a step.
    pub(crate) const RETRIED: u8 = 2;
    /// A visit that ran a nested graph.
    pub(crate) const NESTED: u8 = 4;
    /// A visit that waits, a wait that is over, or a suspended visit.
    pub(crate) const WAITED: u8 = 8;
    /// A record that is no visit.
    pub(crate) const EVENT: u8 = 16;
    /// A visit.
    pub(crate) const VISIT: u8 = 32;
    /// A visit with warnings.
    pub(crate) const WARNED: u8 = 64;
}

/// The records of a run, and what is known of them.
#[derive(Debug, Default)]
pub(crate) struct RunIndex {
    pub(crate) records: Vec<SignedRecord>,
    pub(crate) rows: Vec<RowPlace>,
    /// The names of the nodes that were visited.
    nodes: HashMap<String, u32>,
    /// How many nodes were visited after each record.
    pub(crate) steps: Vec<u64>,
    /// How the run began.
    pub(crate) start: Option<Start>,
    /// Why the journal is not verified.
    pub(crate) problem: Option<String>,
    /// The end of the chain, while it is verified.
    chain: Option<Chain>,
}

impl RunIndex {
    /// Reads all of a journal. One that was changed is shown as far as it can be read.
    fn of(run: &RunId, records: Vec<SignedRecord>, key: &PublicKey) -> Self {
        let mut index = Self::default();
        index.extend(run, records, key);
        index
    }

    /// Adds records to those that are known.
    fn extend(&mut self, run: &RunId, new: Vec<SignedRecord>, key: &PublicKey) {
        let before = self.chain.take().unwrap_or_else(|| Chain::new(run.clone()));
        let verified = match &self.problem {
            None => VerifiedJournal::after(&before, &new, key),
            // No record behind one that is not verified is verified.
            Some(_) => Err(JournalError::Broken { seq: 0 }),
        };
        match verified {
            Ok(verified) => {
                for at in 0..verified.count() {
                    match verified.record(at) {
                        Some(Ok(record)) => self.add(&record.entry),
                        Some(Err(error)) => {
                            self.problem.get_or_insert(error.to_string());
                            self.add_unread();
                        }
                        None => {}
                    }
                }
                if self.records.is_empty() && self.start.is_none() {
                    self.problem.get_or_insert_with(|| JournalError::Broken { seq: 0 }.to_string());
                }
                self.chain = Some(verified.chain().clone());
            }
            Err(error) => {
                self.problem.get_or_insert(error.to_string());
                for one in &new {
                    match serde_json::from_str::<Record>(&one.body) {
                        Ok(record) => self.add(&record.entry),
                        Err(_) => self.add_unread(),
                    }
                }
            }
        }
        // A record that another one follows has no token any more.
        self.records.last_mut().into_iter().for_each(|last| last.end = None);
        self.records.extend(new);
    }

    fn add_unread(&mut self) {
        self.push(0, None, flag::EVENT | flag::FAILED);
        self.steps.push(self.steps.last().copied().unwrap_or_default());
    }

    fn push(&mut self, visit: usize, node: Option<&str>, flags: u8) {
        let record = u32::try_from(self.steps.len()).unwrap_or(u32::MAX);
        let new = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
        let node = node.map_or(u32::MAX, |node| match self.nodes.get(node) {
            Some(known) => *known,
            None => *self.nodes.entry(node.to_owned()).or_insert(new),
        });
        self.rows.push(RowPlace { record, visit: u32::try_from(visit).unwrap_or(u32::MAX), node, flags });
    }

    /// Returns the rows that have one of the flags, if any are named, and are of a node, if one is named.
    pub(crate) fn chosen<'i>(
        &'i self,
        flags: u8,
        node: Option<&str>,
    ) -> impl Iterator<Item = (usize, RowPlace)> + use<'i> {
        // A node that was not visited has no number.
        let node = node.map(|node| self.nodes.get(node).copied());
        self.rows.iter().copied().enumerate().filter(move |(_, row)| {
            (flags == 0 || row.flags & flags != 0) && node.is_none_or(|node| node == Some(row.node))
        })
    }

    /// Adds the rows of a record.
    fn add(&mut self, entry: &Entry) {
        let mut steps = self.steps.last().copied().unwrap_or_default();
        match entry {
            Entry::Step(step) => {
                for (at, visit) in step.visits.iter().enumerate() {
                    self.push(at, Some(&visit.node), flags_of(visit));
                    steps += u64::from(!visit.held && visit.opened.is_none());
                }
            }
            Entry::Start(start) => {
                self.start.get_or_insert_with(|| start.clone());
                self.push(0, None, flag::EVENT);
            }
            Entry::Snapshot(snapshot) => {
                // A fork begins with one.
                steps = steps.max(snapshot.steps);
                self.push(0, None, flag::EVENT);
            }
            Entry::Calls(calls) => {
                let suspended = calls.done.iter().any(|done| done.suspended.is_some());
                let failed = calls.done.iter().any(|done| done.failure.is_some());
                let flags = if suspended { flag::WAITED } else { flag::RETRIED };
                self.push(0, None, flag::EVENT | flags | if failed { flag::FAILED } else { 0 });
            }
            Entry::Take(_) => self.push(0, None, flag::EVENT | flag::WAITED),
            Entry::End(end) => {
                self.push(0, end.node.as_deref(), flag::EVENT | if end.error.is_some() { flag::FAILED } else { 0 });
            }
            _ => self.push(0, None, flag::EVENT),
        }
        self.steps.push(steps);
    }

    /// Returns how many nodes were visited.
    pub(crate) fn visited(&self) -> u64 {
        self.steps.last().copied().unwrap_or_default()
    }

    /// Returns how many nodes were visited before a record.
    pub(crate) fn steps_before(&self, record: usize) -> u64 {
        record.checked_sub(1).and_then(|before| self.steps.get(before)).copied().unwrap_or_default()
    }
}

fn flags_of(visit: &Visit) -> u8 {
    let flags = [
        (visit.error.is_some() || !visit.items.is_empty(), flag::FAILED),
        (visit.calls > 1, flag::RETRIED),
        (visit.run.is_some(), flag::NESTED),
        (visit.opened.is_some() || visit.timed_out, flag::WAITED),
        (!visit.warnings.is_empty(), flag::WARNED),
    ];
    flags.iter().filter(|(holds, _)| *holds).fold(flag::VISIT, |all, (_, flag)| all | flag)
}

/// A run that is shown, with when it was found.
pub(crate) struct ShownRun {
    pub(crate) index: RwLock<RunIndex>,
    pub(crate) summary: Mutex<RunSummary>,
}

impl ShownRun {
    /// Looks at what is known of the records.
    pub(crate) fn with<T>(&self, look: impl FnOnce(&RunIndex) -> T) -> T {
        look(&self.index.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the summary that was read last.
    pub(crate) fn summary(&self) -> RunSummary {
        self.summary.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// One run at a time is read by one caller; others wait and see the same.
type RunSlot = Arc<tokio::sync::Mutex<Option<Kept>>>;

struct Kept {
    generation: u64,
    stamp: Option<FileStamp>,
    shown: Arc<ShownRun>,
}

/// The runs that are kept in memory.
#[derive(Default)]
pub(crate) struct RunIndexes {
    slots: Mutex<Recent<RunId, RunSlot>>,
}

impl RunIndexes {
    fn slot(&self, run: &RunId) -> RunSlot {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = slots.get(run) {
            return slot;
        }
        while slots.len() >= MOST_RUNS {
            slots.forget_one();
        }
        let slot = RunSlot::default();
        slots.insert(run.clone(), Arc::clone(&slot));
        slot
    }

    /// Returns a run with all records that it has now. Only those that are new are read.
    pub(crate) async fn run(
        &self,
        source: &Source,
        run: &RunId,
        key: &PublicKey,
    ) -> Result<Arc<ShownRun>, ViewProblem> {
        let opened = source.open().await?;
        let slot = self.slot(run);
        let mut slot = slot.lock().await;
        let stamp = source.stamp(run);
        let known = slot.take().filter(|kept| kept.generation == opened.generation);
        if let Some(kept) = known.as_ref().filter(|kept| stamp.is_some() && kept.stamp == stamp) {
            let shown = Arc::clone(&kept.shown);
            *slot = known;
            return Ok(shown);
        }
        // A damaged journal among files has no summary. The page's own reader says what is wrong with it.
        let summary = opened.store.find(run).await?;
        let shown = match known {
            Some(kept) if is_same(&kept.shown, &summary) => follow(kept.shown, &opened, run, key).await?,
            _ => None,
        };
        let shown = match shown {
            Some(shown) => shown,
            None => read_all(&opened, run, key, &summary).await?,
        };
        *shown.summary.lock().unwrap_or_else(PoisonError::into_inner) = summary;
        *slot = Some(Kept { generation: opened.generation, stamp, shown: Arc::clone(&shown) });
        Ok(shown)
    }
}

/// Whether a run that is known can be the one that a summary describes: it may have been removed, and another begun under its name.
fn is_same(shown: &ShownRun, summary: &RunSummary) -> bool {
    let records = shown.with(|index| index.records.len() as u64);
    shown.summary().created == summary.created && records <= summary.records
}

async fn read_all(
    opened: &OpenPlace,
    run: &RunId,
    key: &PublicKey,
    summary: &RunSummary,
) -> Result<Arc<ShownRun>, ViewProblem> {
    let records = opened.store.load(run).await?;
    let (run, key) = (run.clone(), key.clone());
    let index = blocking(move || Ok(RunIndex::of(&run, records, &key))).await?;
    Ok(Arc::new(ShownRun { index: RwLock::new(index), summary: Mutex::new(summary.clone()) }))
}

/// Adds the records that are new. Returns `None` if the journal is another one than before.
async fn follow(
    shown: Arc<ShownRun>,
    opened: &OpenPlace,
    run: &RunId,
    key: &PublicKey,
) -> Result<Option<Arc<ShownRun>>, ViewProblem> {
    // The last record that is known is read again: if it is another one now, so are those before.
    let last = shown.with(|index| (index.records.len() as u64).saturating_sub(1));
    let mut records = opened.store.load_from(run, last).await?;
    let is_known = |now: &SignedRecord| {
        shown.with(|index| {
            index
                .records
                .last()
                .is_some_and(|known| (known.seq, &known.body, &known.signature) == (now.seq, &now.body, &now.signature))
        })
    };
    if !records.first().is_some_and(is_known) {
        return Ok(None);
    }
    let new = records.split_off(1);
    let end = records.first().and_then(|record| record.end);
    if new.is_empty() {
        // The token may have been taken away.
        let same = shown.with(|index| index.records.last().is_some_and(|known| known.end == end));
        return Ok(same.then_some(shown));
    }
    let (run, key) = (run.clone(), key.clone());
    let followed = Arc::clone(&shown);
    blocking(move || {
        followed.index.write().unwrap_or_else(PoisonError::into_inner).extend(&run, new, &key);
        Ok(())
    })
    .await?;
    Ok(Some(shown))
}

/// Does work that takes long on a thread of its own.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ViewProblem> + Send + 'static,
) -> Result<T, ViewProblem> {
    let failed = |_| ViewProblem::new(hyper::StatusCode::INTERNAL_SERVER_ERROR, "the viewer failed at this request");
    tokio::task::spawn_blocking(work).await.map_err(failed)?
}

//! How many steps a run may take together with the runs inside it: `limits.steps`.
//!
//! A run counts its own steps and those of all runs inside it, and so does a visit that begins runs. A step is counted before it
//! begins, by all of these around it or by none, so that runs that are active at once do not exceed a limit together.

use std::collections::BTreeMap;
use std::iter::successors;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The steps of a run with those of the runs inside it, or of the runs that a visit began.
pub(crate) struct StepMeter {
    /// How many steps may be taken.
    most: Option<u64>,
    /// How many were taken, or have begun.
    used: AtomicU64,
    /// Whether the visit is over: a call that it gave up counts no further steps.
    is_closed: AtomicBool,
    outer: Option<Arc<Self>>,
    /// Held while a step is counted; all meters around a run and inside it share it.
    lock: Arc<Mutex<()>>,
}

/// Why a step may not begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The steps that a limit allows are used up.
    Exceeded {
        /// How many were taken.
        used: u64,
        /// How many may be taken.
        most: u64,
    },
    /// The visit that called the run is over.
    Closed,
}

impl StepMeter {
    /// Creates a meter inside of `outer`, which has counted the steps in `used` already.
    pub(crate) fn new(most: Option<u64>, used: u64, outer: Option<Arc<Self>>) -> Arc<Self> {
        let lock = outer.as_ref().map_or_else(Arc::default, |outer| Arc::clone(&outer.lock));
        Arc::new(Self { most, used: AtomicU64::new(used), is_closed: AtomicBool::new(false), outer, lock })
    }

    fn chain(&self) -> impl Iterator<Item = &Self> {
        successors(Some(self), |meter| meter.outer.as_deref())
    }

    fn locked(&self) -> MutexGuard<'_, ()> {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    /// Counts steps that are about to begin, if no limit is exceeded.
    pub(crate) fn reserve(&self, steps: u64) -> Result<(), Refused> {
        let _locked = self.locked();
        if self.chain().any(Self::is_closed) {
            return Err(Refused::Closed);
        }
        for meter in self.chain() {
            let used = meter.used();
            if let Some(most) = meter.most.filter(|most| used.saturating_add(steps) > *most) {
                return Err(Refused::Exceeded { used, most });
            }
        }
        self.chain().for_each(|meter| meter.used.store(meter.used().saturating_add(steps), Ordering::Relaxed));
        Ok(())
    }

    /// Takes back steps that were not committed.
    pub(crate) fn release(&self, steps: u64) {
        let _locked = self.locked();
        if !self.chain().any(Self::is_closed) {
            self.chain().for_each(|meter| meter.used.store(meter.used().saturating_sub(steps), Ordering::Relaxed));
        }
    }

    /// Counts no further steps, and returns how many there were.
    fn close(&self) -> u64 {
        let _locked = self.locked();
        self.is_closed.store(true, Ordering::Relaxed);
        self.used()
    }

    /// Returns the lowest limit of it and those around it.
    pub(crate) fn lowest(&self) -> Option<u64> {
        self.chain().filter_map(|meter| meter.most).min()
    }
}

/// The meters of a run and of its visits in progress.
#[derive(Default)]
pub(crate) struct Meters {
    /// That of the run; `None` if nothing limits the run's steps with those of other runs.
    own: Option<Arc<StepMeter>>,
    /// How many steps the runs inside the visits of the next step made before the run was resumed, by the visits' numbers.
    before: BTreeMap<u64, u64>,
    /// Those of visits that called graphs, by their numbers.
    visits: Mutex<BTreeMap<u64, Arc<StepMeter>>>,
}

impl Meters {
    /// Creates the meters of a run that has taken `taken` steps, with those inside its visits that are done. `most` is the limit
    /// of its graph, and `outer` the meter of the visit that called it.
    pub(crate) fn new(
        most: Option<u32>,
        taken: u64,
        before: BTreeMap<u64, u64>,
        outer: Option<Arc<StepMeter>>,
    ) -> Self {
        let used = before.values().fold(taken, |all, one| all.saturating_add(*one));
        let own = (most.is_some() || outer.is_some()).then(|| StepMeter::new(most.map(u64::from), used, outer));
        Self { own, before, visits: Mutex::default() }
    }

    /// Whether the steps of the run are counted.
    pub(crate) fn is_counting(&self) -> bool {
        self.own.is_some()
    }

    /// Counts steps of the run that are about to begin.
    pub(crate) fn reserve(&self, steps: u64) -> Result<(), Refused> {
        self.own.as_ref().map_or(Ok(()), |own| own.reserve(steps))
    }

    /// Takes back steps of the run that were not committed.
    pub(crate) fn release(&self, steps: u64) {
        self.own.iter().filter(|_| steps > 0).for_each(|own| own.release(steps));
    }

    fn visits(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<StepMeter>>> {
        self.visits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the meter of the runs that a visit begins; `most` is the limit of its node. `None` if nothing limits them.
    pub(crate) fn of_visit(&self, visit: u64, most: Option<u32>) -> Option<Arc<StepMeter>> {
        if self.own.is_none() && most.is_none() {
            return None;
        }
        let before = || self.before.get(&visit).copied().unwrap_or_default();
        let new = || StepMeter::new(most.map(u64::from), before(), self.own.clone());
        Some(Arc::clone(self.visits().entry(visit).or_insert_with(new)))
    }

    /// Sets for each visit, which has a number, how many steps the runs made that it began. They count no further ones.
    pub(crate) fn close<'v>(&self, visits: impl Iterator<Item = (u64, &'v mut u64)>) {
        let mut meters = self.visits();
        for (visit, steps) in visits {
            let before = || self.before.get(&visit).copied().unwrap_or_default();
            let meter = if meters.is_empty() { None } else { meters.remove(&visit) };
            *steps = meter.map_or_else(before, |meter| meter.close());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Closes the meter of a visit, and returns how many steps it counted.
    fn closed(meters: &Meters, visit: u64) -> u64 {
        let mut steps = 0;
        meters.close(std::iter::once((visit, &mut steps)));
        steps
    }

    #[test]
    fn a_step_is_counted_by_all_meters_around_it_or_by_none() {
        let run = Meters::new(Some(5), 1, BTreeMap::from([(2, 1)]), None);
        let visit = run.of_visit(2, Some(3)).unwrap();
        assert_eq!(visit.lowest(), Some(3));
        let inner = Meters::new(None, 0, BTreeMap::new(), Some(Arc::clone(&visit)));
        assert_eq!(inner.reserve(2), Ok(()));
        assert_eq!(inner.reserve(1), Err(Refused::Exceeded { used: 3, most: 3 }));
        inner.release(1);
        assert_eq!(run.reserve(3), Err(Refused::Exceeded { used: 3, most: 5 }));
        assert_eq!(run.reserve(2), Ok(()));
        assert_eq!(inner.reserve(1), Err(Refused::Exceeded { used: 5, most: 5 }));
        assert_eq!(closed(&run, 2), 2);
        assert_eq!(inner.reserve(1), Err(Refused::Closed));
        inner.release(1);
        assert_eq!(run.reserve(1), Err(Refused::Exceeded { used: 5, most: 5 }));
    }

    #[test]
    fn runs_at_once_never_exceed_a_limit_together() {
        let run = Meters::new(Some(1000), 0, BTreeMap::new(), None);
        let visit = run.of_visit(1, None).unwrap();
        let taken: u64 = std::thread::scope(|scope| {
            let one = || {
                let inner = Meters::new(Some(400), 0, BTreeMap::new(), Some(Arc::clone(&visit)));
                (0..500).filter(|_| inner.reserve(1).is_ok()).count() as u64
            };
            let all: Vec<_> = (0..4).map(|_| scope.spawn(one)).collect();
            all.into_iter().map(|one| one.join().unwrap()).sum()
        });
        assert_eq!((taken, closed(&run, 1)), (1000, 1000));
    }
}

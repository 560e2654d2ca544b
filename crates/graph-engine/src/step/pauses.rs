//! Pauses: visits that are left before they are made, because the caller who began the run wants it so.

use std::collections::BTreeSet;

use crate::activation::{Activation, BranchKey};
use crate::step::opened::Opening;
use crate::step::paused::Pause;
use crate::step::position::{OpenJoin, Position};

impl Position {
    /// Returns the opening of a visit that is left before it is made, if it is.
    #[inline]
    pub fn pause_of(&self, at: &Activation) -> Option<Opening> {
        if self.pauses.is_none() { None } else { self.find_pause(at) }
    }

    #[cold]
    fn find_pause(&self, at: &Activation) -> Option<Opening> {
        if self.waited.get(&at.number).is_some_and(|waited| waited.released) {
            return None;
        }
        let is_before = self.pauses.as_ref().is_some_and(|pauses| pauses.before.contains(&at.node));
        let pause = match self.to_pause.contains(&at.number) {
            true => Pause::After,
            false if is_before => Pause::Before,
            false => return None,
        };
        Some(Opening { pause: Some(pause), ..Opening::default() })
    }

    /// Makes it that of a fork, which is not inside another run, has received no signals, has no runs inside it, does not pause where
    /// its origin does, and asks again.
    pub fn become_fork(&mut self) {
        self.shared.clear();
        self.received.clear();
        self.pauses = None;
        self.to_pause.clear();
        self.paused_after.clear();
        self.waited.clear();
        self.calls_left.clear();
        self.taken.retain(|_, taken| taken.call == 0);
        self.waits.iter_mut().for_each(|wait| (wait.opened.before, wait.opened.call) = (0, 0));
    }

    /// Notes the visits of the next step that are left because of those before them.
    pub(super) fn pause_behind(&mut self, followed: PausedAfter) {
        let (left, after) = followed.end(&self.frontier, &self.joins);
        self.to_pause.remove(&RETURNING);
        self.to_pause.extend(left);
        self.paused_after = after;
    }

    /// Forgets the waits of visits that nothing needs any more.
    pub(super) fn forget_needless(&mut self) {
        if self.waited.is_empty() && self.taken.is_empty() && self.to_pause.is_empty() && self.calls_left.is_empty() {
            return;
        }
        let open: BTreeSet<u64> = self.open().map(|at| at.number).collect();
        self.waited.retain(|step, _| open.contains(step));
        self.taken.retain(|step, _| open.contains(step));
        self.calls_left.retain(|(step, _), _| open.contains(step));
        let returns = self.returning.is_some();
        self.to_pause.retain(|step| open.contains(step) || (*step == RETURNING && returns));
    }

    /// Returns how many waits of a visit are over.
    pub fn waits_before(&self, step: u64) -> u64 {
        self.waited.get(&step).map_or(0, |waited| waited.waits)
    }
}

/// The visits of a step after which the run pauses, and the activations that they lead to.
#[derive(Debug, Default)]
pub(super) struct PausedAfter {
    /// The visits, those among them that came to joins in earlier steps, by their numbers.
    after: BTreeSet<u64>,
    /// The nodes that are visited next behind one of them, each with its branch.
    next: BTreeSet<(u16, Option<BranchKey>)>,
    /// Whether the return that waits for late branches is behind one of them.
    is_returning: bool,
}

/// The number that stands for the return that waits for late branches, which has none yet.
const RETURNING: u64 = 0;

impl PausedAfter {
    /// Returns those of earlier steps; `None` if the run pauses after no node.
    pub(super) fn begin(base: &Position) -> Option<Self> {
        let pauses = base.pauses.as_ref().is_some_and(|pauses| !pauses.after.is_empty());
        let is_returning = base.to_pause.contains(&RETURNING);
        pauses.then(|| Self { after: base.paused_after.clone(), next: BTreeSet::new(), is_returning })
    }

    /// Notes a visit after which the run pauses.
    pub(super) fn note(&mut self, visit: u64) {
        self.after.insert(visit);
    }

    /// Whether the run pauses after one of these visits.
    pub(super) fn follows(&self, mut visits: impl Iterator<Item = u64>) -> bool {
        visits.any(|visit| self.after.contains(&visit))
    }

    /// Notes an activation that visits lead to.
    pub(super) fn lead(&mut self, to: &Activation, visits: impl Iterator<Item = u64>) {
        if self.follows(visits) {
            self.next.insert((to.node, to.branch()));
        }
    }

    /// Notes that a return waits until late branches are done.
    pub(super) fn put_off(&mut self, returning: &Activation) {
        self.is_returning = self.next.remove(&(returning.node, returning.branch()));
    }

    /// Notes that the return that waited is visited next.
    pub(super) fn let_return(&mut self, returning: &Activation) {
        if std::mem::take(&mut self.is_returning) {
            self.next.insert((returning.node, returning.branch()));
        }
    }

    /// Notes that no return waits any more.
    pub(super) fn forget_returning(&mut self) {
        self.is_returning = false;
    }

    /// Returns the numbers of the activations of the next step that are left, and those of the visits that came to joins which
    /// are not visited yet.
    pub(super) fn end(self, frontier: &[Activation], joins: &[OpenJoin]) -> (BTreeSet<u64>, BTreeSet<u64>) {
        let Self { mut after, next, is_returning } = self;
        let left = frontier.iter().filter(|at| next.contains(&(at.node, at.branch()))).map(|at| at.number);
        let left = left.chain(is_returning.then_some(RETURNING)).collect();
        let arrived = joins.iter().filter(|join| !join.is_over).flat_map(|join| &join.arrived);
        let arrived: BTreeSet<u64> = arrived.map(|arrival| arrival.visit).collect();
        after.retain(|visit| arrived.contains(visit));
        (left, after)
    }
}

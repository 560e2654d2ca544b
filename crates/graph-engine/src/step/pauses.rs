//! Pauses: visits that are left before they are made, because the caller who began the run or a hook wants it so.

use std::collections::BTreeMap;

use crate::activation::{Activation, path};
use crate::step::opened::Opening;
use crate::step::paused::{Pause, ToPause};
use crate::step::position::Position;

impl Position {
    /// Returns why a visit is left before it is made, if it is.
    #[inline]
    pub fn pause_of(&self, at: &Activation) -> Option<Opening> {
        if self.pauses.is_none() && self.to_pause.is_empty() { None } else { self.find_pause(at) }
    }

    #[cold]
    fn find_pause(&self, at: &Activation) -> Option<Opening> {
        let to_pause = self.to_pause.get(&at.number);
        if let Some(by_hook) = to_pause.filter(|to_pause| to_pause.pause == Pause::Hook) {
            return Some(by_hook.clone().opening());
        }
        if self.waited.get(&at.number).is_some_and(|waited| waited.released) {
            return None;
        }
        let is_before = self.pauses.as_ref().is_some_and(|pauses| pauses.before.contains(&at.node));
        let pause = match to_pause {
            Some(ToPause { pause, .. }) => *pause,
            None if is_before => Pause::Before,
            None => return None,
        };
        Some(ToPause::at_node(pause).opening())
    }

    /// Forgets the nodes at which the run pauses, and the answers to the tools of visits that are not made yet. A fork does not pause
    /// where its origin does, and asks again.
    pub fn ask_again(&mut self) {
        self.pauses = None;
        self.to_pause.clear();
        self.waited.clear();
        self.waits.iter_mut().for_each(|wait| wait.opened.before = 0);
    }

    /// Leaves the visits of the next step before they are made: a hook suspends the run.
    pub(crate) fn suspend(&mut self, by_hook: &ToPause) {
        for at in &self.frontier {
            // One hook may leave the run to people, and another one suspend it: the people decide, and of several roles the first.
            let known = self.to_pause.get(&at.number).filter(|known| known.pause == Pause::Hook);
            if known.is_none_or(|known| known.escalated.is_none() && by_hook.escalated.is_some()) {
                self.to_pause.insert(at.number, by_hook.clone());
            }
        }
    }

    /// Returns how many waits of a visit are over, as far as that is counted.
    pub fn waits_before(&self, step: u64) -> u64 {
        self.waited.get(&step).map_or(0, |waited| waited.waits)
    }

    /// Returns the paths of the visits after which the run pauses; `visits` are those of a step, each with whether it leads on.
    pub(super) fn pauses_after<'v>(&self, visits: impl Iterator<Item = (&'v Activation, bool)>) -> Vec<Vec<u32>> {
        let Some(pauses) = &self.pauses else { return Vec::new() };
        let of_pause = visits.filter(|(at, leads_on)| *leads_on && pauses.after.contains(&at.node));
        of_pause.map(|(at, _)| path(at.frame.as_ref())).collect()
    }

    /// Notes the new visits of the frontier that follow those with these paths. `made` is how many activations there were before.
    pub(super) fn pause_behind(&mut self, paths: &[Vec<u32>], made: u64) {
        let new = self.frontier.iter().filter(|at| at.number > made);
        let follows = |at: &&Activation| {
            let own = path(at.frame.as_ref());
            paths.iter().any(|path| own.starts_with(path) || path.starts_with(&own))
        };
        let behind: BTreeMap<_, _> =
            new.filter(follows).map(|at| (at.number, ToPause::at_node(Pause::After))).collect();
        self.to_pause.extend(behind);
    }
}

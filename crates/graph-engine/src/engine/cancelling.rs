//! The visits of a step that others cancel: a visit that decides a quorum, or leads to a return that cancels.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::{AbortHandle, AbortRegistration};

use crate::activation::{Activation, Fan, is_inside};
use crate::graph::GraphTables;
use crate::step::{Position, Tally, Way};

/// The visits of a step that others of it may cancel.
pub(super) struct Cancelling {
    /// The visits of the step, in the order of the frontier, each with the handle that cancels it.
    visits: Vec<(Activation, AbortHandle)>,
    /// The quorums that are not decided, each with the visit that fanned out.
    quorums: Mutex<Vec<(Arc<Fan>, Tally)>>,
    /// For each visit that was not begun, its registration with its handle.
    registrations: Mutex<Vec<Option<AbortRegistration>>>,
}

impl Cancelling {
    /// Returns the visits of a step; `None` if nothing can cancel them.
    pub(super) fn of(graph: &GraphTables, position: &Position) -> Option<Self> {
        let quorums = Tally::all(graph, position);
        if quorums.is_empty() && !graph.has_cancelling {
            return None;
        }
        let (mut visits, mut registrations) = (Vec::new(), Vec::new());
        for at in &position.frontier {
            let (handle, registration) = AbortHandle::new_pair();
            visits.push((at.clone(), handle));
            registrations.push(Some(registration));
        }
        Some(Self { visits, quorums: Mutex::new(quorums), registrations: Mutex::new(registrations) })
    }

    /// Returns the registration of the visit at a place of the frontier, which is about to begin; `None` if it was returned
    /// before.
    pub(super) fn registration(&self, place: usize) -> Option<AbortRegistration> {
        self.registrations.lock().unwrap_or_else(PoisonError::into_inner).get_mut(place)?.take()
    }

    /// Takes a visit into account that is over and leads `way`, and cancels the visits that are not needed any more. Returns
    /// whether it cancelled some.
    pub(super) fn take(&self, graph: &GraphTables, at: &Activation, way: &Way) -> bool {
        if way.cancels(graph, at) {
            self.visits.iter().for_each(|(_, handle)| handle.abort());
            return true;
        }
        let mut quorums = self.quorums.lock().unwrap_or_else(PoisonError::into_inner);
        let before = quorums.len();
        quorums.retain_mut(|(fan, tally)| {
            tally.take(graph, fan, at, way);
            let is_decided = tally.decision().is_some();
            if is_decided {
                let inside = self.visits.iter().filter(|(one, _)| is_inside(one.frame.as_ref(), fan));
                inside.for_each(|(_, handle)| handle.abort());
            }
            !is_decided
        });
        quorums.len() < before
    }
}

//! The quorums of a step: a visit that decides one cancels the other visits of its fan-out.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::{AbortHandle, AbortRegistration};

use crate::activation::{Activation, Fan, is_inside};
use crate::graph::GraphTables;
use crate::step::{Position, Tally, Way};

/// The quorums that are open in a step, and the visits that they can cancel.
pub(super) struct Quorums {
    /// The visits of the step, in the order of the frontier, each with the handle that cancels it.
    visits: Vec<(Activation, AbortHandle)>,
    open: Mutex<Vec<(Arc<Fan>, Tally)>>,
    /// For each visit that was not begun, its registration with its handle.
    registrations: Mutex<Vec<Option<AbortRegistration>>>,
}

impl Quorums {
    /// Returns the quorums of a step; `None` if it has no quorum.
    pub(super) fn open(graph: &GraphTables, position: &Position) -> Option<Self> {
        let open = Tally::all(graph, position);
        if open.is_empty() {
            return None;
        }
        let (mut visits, mut registrations) = (Vec::new(), Vec::new());
        for at in &position.frontier {
            let (handle, registration) = AbortHandle::new_pair();
            visits.push((at.clone(), handle));
            registrations.push(Some(registration));
        }
        Some(Self { visits, open: Mutex::new(open), registrations: Mutex::new(registrations) })
    }

    /// Returns the registration of the visit at a place of the frontier, which is about to begin; `None` if it was returned
    /// before.
    pub(super) fn registration(&self, place: usize) -> Option<AbortRegistration> {
        self.registrations.lock().unwrap_or_else(PoisonError::into_inner).get_mut(place)?.take()
    }

    /// Takes a visit into account that is over and leads `way`, and cancels the visits that are not needed any more.
    pub(super) fn take(&self, graph: &GraphTables, at: &Activation, way: &Way) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain_mut(|(fan, tally)| {
            tally.take(graph, fan, at, way);
            let is_decided = tally.decision().is_some();
            if is_decided {
                let inside = self.visits.iter().filter(|(one, _)| is_inside(one.frame.as_ref(), fan));
                inside.for_each(|(_, handle)| handle.abort());
            }
            !is_decided
        });
    }
}

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
}

impl Quorums {
    /// Returns the quorums of a step, with a registration for each of its visits; `None` if the step has no quorum.
    pub(super) fn open(graph: &GraphTables, position: &Position) -> Option<(Self, Vec<AbortRegistration>)> {
        let open = Tally::all(graph, position);
        if open.is_empty() {
            return None;
        }
        let mut registrations = Vec::with_capacity(position.frontier.len());
        let handle = |at: &Activation| {
            let (handle, registration) = AbortHandle::new_pair();
            registrations.push(registration);
            (at.clone(), handle)
        };
        let visits = position.frontier.iter().map(handle).collect();
        Some((Self { visits, open: Mutex::new(open) }, registrations))
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

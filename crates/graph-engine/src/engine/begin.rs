//! The options that a run begins with, and the outcome of finding a run in a store.

use std::sync::Arc;
use std::time::Duration;

use graph_model::capability::Grants;
use graph_model::name::{GraphId, RunId};
use graph_model::program::CallLimits;
use graph_model::value::{Map, Value};
use tracing::Span;

use crate::address::Address;
use crate::call::{Parent, TaskOrigin};
use crate::engine::ended::Ended;
use crate::engine::journal_writer::Durability;
use crate::engine::run_state::Engine;
use crate::error::RunError;
use crate::meter::StepMeter;
use crate::step::{PausedNodes, TakenSignal};
use crate::stop::Stop;
use crate::store::{Inbox, ScheduleChange};

/// The options that a run begins with, besides its graph and inputs.
#[derive(Clone)]
pub(crate) struct Begin {
    pub(crate) run: RunId,
    pub(crate) parent: Option<Parent>,
    /// The outermost run around it, if it is nested.
    pub(crate) root: Option<RunId>,
    /// The call that spawned it, if it is a task.
    pub(crate) task: Option<TaskOrigin>,
    /// Where it receives signals and answers, if it is nested.
    pub(crate) address: Option<Address>,
    pub(crate) depth: Option<u32>,
    /// The limits of the node that calls it.
    pub(crate) limits: CallLimits,
    pub(crate) ceiling: Vec<Grants>,
    pub(crate) deadline: Option<Duration>,
    pub(crate) stop: Stop,
    pub(crate) max_steps: Option<u32>,
    /// The entry at which it begins, if not at the start.
    pub(crate) entry: Option<String>,
    /// The nodes at which it pauses.
    pub(crate) pauses: PausedNodes,
    /// The keys that it shares with the run around it, with their values there.
    pub(crate) shared: Map<String, Value>,
    /// The shared signal that its visit has received for it.
    pub(crate) handed: Option<TakenSignal>,
    /// The time that counts for its waits.
    pub(crate) wait_time: WaitTime,
    /// Counts the steps of the runs of the visit that calls it.
    pub(crate) meter: Option<Arc<StepMeter>>,
    /// The capabilities that the caller restricts the run to; they are in the ceiling too.
    pub(crate) capabilities: Option<Grants>,
    pub(crate) durability: Durability,
    pub(crate) ignores_cancel: bool,
    /// The mark of the schedule whose tick it is, which changes when it begins.
    pub(crate) tick: Option<ScheduleChange>,
}

/// The time that counts for the waits of a run: those that are due then are over, and signals that came later are left.
///
/// A visit that shares signals with its nested run decides when the waits of that run are over. Otherwise they could be over by their
/// time while a signal that came before is in the inbox of the run around it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum WaitTime {
    /// That of the store.
    Now,
    /// The time of the store at which the run around it has seen what it waits for.
    At(i64),
    /// No wait is over before the run around it has seen what it waits for.
    Held,
}

impl WaitTime {
    /// Returns an inbox as it was then.
    pub(crate) fn limit(self, inbox: Inbox) -> Inbox {
        let Self::At(at) = self else { return inbox };
        Inbox::new(at, inbox.signals.into_iter().filter(|signal| signal.place.at <= at).collect())
    }
}

impl Begin {
    pub(crate) fn of(run: RunId) -> Self {
        Self {
            run,
            parent: None,
            root: None,
            task: None,
            address: None,
            depth: None,
            limits: CallLimits::default(),
            ceiling: Vec::new(),
            deadline: None,
            stop: Stop::default(),
            max_steps: None,
            entry: None,
            pauses: PausedNodes::default(),
            shared: Map::new(),
            handed: None,
            wait_time: WaitTime::Now,
            meter: None,
            capabilities: None,
            durability: Durability::default(),
            ignores_cancel: false,
            tick: None,
        }
    }
}

/// A run that was found in a store.
pub(crate) enum Taken {
    Ended(Box<Ended>),
    /// Nothing of what it waits for has happened.
    Waiting(Box<RunError>),
    Unfinished(Box<Engine>),
}

/// Returns the tracing span of a run, inside the caller's.
pub(crate) fn run_span(run: &RunId, graph: &GraphId) -> Span {
    tracing::info_span!("graph.run", %run, %graph)
}

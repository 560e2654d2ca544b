//! The data of an engine: the context of a run, its state and position, and the visits of a step.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use graph_model::digest::Digest;
use graph_model::name::RunId;
use graph_model::timestamp;
use graph_model::value::{AsView, Value, View};
use smallvec::SmallVec;

use crate::activation::{Activation, Change, TakenEdges, path};
use crate::cache::Fresh;
use crate::call::{Call, RunFacts, RunLocals};
use crate::engine::begin::WaitTime;
use crate::engine::call_result::ParkedCalls;
use crate::engine::journal_writer::{Durability, JournalWriter, Sink};
use crate::engine::pending_calls::PendingCalls;
use crate::error::RunError;
use crate::failure::{Failure, ItemFailure};
use crate::gate::Pass;
use crate::graph::GraphTables;
use crate::machine::Machine;
use crate::meter::Meters;
use crate::record::{Changes, CompletedCalls, Covered, Record, Visit, WrittenVisit};
use crate::run_secrets::RunSecrets;
use crate::services::RuntimeServices;
use crate::state::StateFields;
use crate::step::{Opening, Position, SettledVisit, TakenSignal, Way};
use crate::tool_caller::ToolCaller;

/// The parts of a run that do not change while it runs.
pub(crate) struct RunContext {
    pub(crate) machine: Arc<dyn Machine>,
    pub(crate) runtime: Arc<RuntimeServices>,
    pub(crate) facts: Arc<RunFacts>,
    /// The values of its tools. Its calls, which a tool may hold longer, only refer to them.
    pub(crate) _locals: Arc<RunLocals>,
    /// Whether each tool may be called, as far as that is known before the run: the caller granted it and the graph permits
    /// it.
    pub(crate) allowed: Vec<bool>,
    /// The known secrets of the run; `None` if the graph has no secrets.
    pub(crate) run_secrets: Option<Arc<RunSecrets>>,
    /// Whether it has a journal.
    pub(crate) is_kept: bool,
    pub(crate) durability: Durability,
    pub(crate) pending_calls: PendingCalls,
    /// Counts its steps with those of the runs inside it.
    pub(crate) meters: Meters,
    pub(crate) began: Duration,
    /// The digest of the graph that it began under.
    pub(crate) begun_under: Digest,
    /// Its lease, if it has a journal, until all of its tasks are gone: if its own task is aborted, the tasks of its branches
    /// end a little later.
    pub(crate) _lease: Option<Arc<Sink>>,
    /// Its right to execute, until all of its tasks are gone; not set for a nested run.
    pub(crate) pass: OnceLock<Arc<Pass>>,
}

/// The state and position of a run between two steps. Nothing changes them while a step runs.
pub(crate) struct RunState {
    pub(crate) state: Box<dyn StateFields>,
    pub(crate) position: Position,
    /// The calls of the next step that were done before the run was resumed.
    pub(crate) done: CompletedCalls,
    /// The visits whose nested runs were seen to be able to continue, and when, since the last step.
    pub(crate) continued: BTreeMap<u64, i64>,
}

/// The context of a step's visits. Each task of a step with branches owns a clone of it.
#[derive(Clone)]
pub(crate) struct StepContext {
    pub(crate) run: Arc<RunContext>,
    pub(crate) run_state: Arc<RunState>,
}

impl Deref for StepContext {
    type Target = RunContext;

    #[inline]
    fn deref(&self) -> &RunContext {
        &self.run
    }
}

/// A run in progress.
pub(crate) struct Engine {
    pub(crate) context: StepContext,
    /// Whether the run has yet to begin; hooks are notified of its start.
    pub(crate) is_new: bool,
    /// Whether the nested runs that it waits for may not wait: they were ended with it, or its process died.
    pub(crate) looks_inside: bool,
    /// The visits so far, if the runtime keeps them.
    pub(crate) history: Option<Vec<Visit>>,
    /// Its journal, except while a step that writes to it is in progress.
    pub(crate) journal: Option<JournalWriter>,
    /// The caller of the visits that are alone in their step.
    pub(crate) slot: CallSlot,
    /// How many of the steps that its meters counted are not committed.
    pub(crate) reserved: u64,
    /// The visits that were cancelled and whose nested runs are not ended yet.
    pub(crate) dropped: Vec<u64>,
    /// The failures that are held, with all that the position does not say of them, by the numbers of the visits.
    pub(crate) held_failures: Vec<(u64, Box<Failure>)>,
    /// The signals that it has taken or left out since it is in this process: the store may have them still.
    pub(crate) settled_signals: BTreeSet<u64>,
    /// The last step of a run that is resumed, if its hooks may not have been asked.
    pub(crate) unasked: Option<Box<Record>>,
    /// The shared signal that the run around it has received for it.
    pub(crate) handed: Option<TakenSignal>,
    /// The time that counts for its waits.
    pub(crate) wait_time: WaitTime,
    /// When the current turn of the run's task began. This is real time, not that of the runtime's clock, because tasks
    /// share real threads.
    pub(crate) turn: Instant,
}

impl Deref for Engine {
    type Target = StepContext;

    #[inline]
    fn deref(&self) -> &StepContext {
        &self.context
    }
}

/// A tool caller, the call that it makes, and memory that a visit needs.
pub(crate) struct CallSlot {
    pub(crate) tool_caller: Box<dyn ToolCaller>,
    pub(crate) call: Call,
    /// Memory for the changes of a visit while they are computed.
    pub(crate) changes: Vec<Change>,
}

impl CallSlot {
    /// Returns a view of what the tool returned, which is in `returned` if the slot may be used for other visits.
    pub(crate) fn outcome<'a>(&'a self, returned: Option<&'a Value>) -> View<'a> {
        returned.map_or_else(|| self.tool_caller.outcome(), AsView::view)
    }
}

/// A visit that was made.
#[derive(Default)]
pub(crate) struct VisitState {
    pub(crate) activation: Activation,
    /// The time of the visit, if anything asked for it.
    pub(crate) at: Option<SystemTime>,
    /// Whether its call succeeded; the result is in `value`, in `returned`, or still in the [`CallSlot`].
    pub(crate) called: bool,
    /// The result that the tool caller held, if its [`CallSlot`] may be used for other visits.
    pub(crate) returned: Option<Value>,
    /// The result, if no tool caller held it.
    pub(crate) value: Option<Value>,
    /// The results of the calls of a foreach, in the order of its items.
    pub(crate) results: Option<Vec<Value>>,
    /// The items of a foreach that failed.
    pub(crate) items: Vec<ItemFailure>,
    pub(crate) failure: Option<Box<Failure>>,
    /// How often its tool was called.
    pub(crate) calls: u64,
    /// The nested run.
    pub(crate) run: Option<RunId>,
    /// How many steps the runs made that it began, if they are counted.
    pub(crate) below: u64,
    /// Whether nothing was called because all results were in the cache.
    pub(crate) cached: bool,
    /// The results of its calls that are to be cached.
    pub(crate) fresh: Vec<Fresh>,
    /// Whether it did not begin, because another visit of its step had failed or had decided a quorum.
    pub(crate) is_left_out: bool,
    /// Whether the values that it writes and its way are known.
    pub(crate) is_settled: bool,
    /// Whether it woke another task: the one that writes calls, or visits that it cancelled.
    pub(crate) woke: bool,
    /// Whether a hook ended the run after the failure.
    pub(crate) is_ended: bool,
    /// Whether the run was stopped, or its time was up, before the visit was done.
    pub(crate) is_interrupted: bool,
    /// Why the run cannot continue.
    pub(crate) broken: Option<Box<RunError>>,
    /// Whether it failed on the results of its calls.
    pub(crate) is_unfit: bool,
    /// Whether it waits before it is made.
    pub(crate) waits: bool,
    /// The values that its node computed before it waits.
    pub(crate) opening: Opening,
    /// Its calls, if it waits for nested runs.
    pub(crate) parked: Option<Box<ParkedCalls>>,
    /// Most visits write at most one key.
    pub(crate) changes: SmallVec<[Change; 1]>,
    /// The values of channels as the node saw them after its own writes, if a function of the program combined them.
    pub(crate) reduced: Vec<Change>,
    /// The names of the keys that were not set before; only if there are observers.
    pub(crate) new_keys: Vec<String>,
    pub(crate) way: Way,
    pub(crate) elapsed: Duration,
    pub(crate) warnings: Vec<String>,
}

impl VisitState {
    /// A visit that is about to begin.
    pub(crate) fn of(activation: Activation) -> Self {
        Self { activation, ..Self::default() }
    }

    /// Resets this value for another visit.
    pub(crate) fn begin(&mut self, activation: Activation) {
        self.activation = activation;
        self.at = None;
        self.called = false;
        self.returned = None;
        self.value = None;
        self.results = None;
        self.items.clear();
        self.calls = 0;
        self.below = 0;
        self.run = None;
        self.cached = false;
        self.fresh.clear();
        self.is_left_out = false;
        self.is_settled = false;
        self.woke = false;
        self.is_ended = false;
        self.is_interrupted = false;
        self.broken = None;
        self.failure = None;
        self.is_unfit = false;
        self.waits = false;
        self.opening = Opening::default();
        self.parked = None;
        self.changes.clear();
        self.reduced.clear();
        self.new_keys.clear();
        self.way = Way::default();
        self.elapsed = Duration::ZERO;
        self.warnings.clear();
    }

    /// Resets this value, since the visit was cancelled. `has_begun` is whether it began before.
    pub(crate) fn cancel(&mut self, has_begun: bool) {
        let activation = std::mem::take(&mut self.activation);
        self.begin(activation);
        (self.way, self.is_settled, self.is_left_out) = (Way::Cancelled, true, !has_begun);
    }

    /// Returns a view of the visit's result.
    pub(crate) fn outcome<'a>(&'a self, slot: &'a CallSlot) -> View<'a> {
        match (&self.value, &self.failure, &self.results) {
            (Some(value), _, _) => value.view(),
            (None, None, None) if self.called => slot.outcome(self.returned.as_ref()),
            _ => View::Null,
        }
    }

    /// Returns the parts of the visit that decide the position after it. The result is one of them if a graph reads results of
    /// visits before.
    pub(crate) fn visited<'a>(&'a self, graph: &GraphTables, slot: &'a CallSlot) -> SettledVisit<'a> {
        SettledVisit {
            at: &self.activation,
            calls: self.calls,
            below: self.below,
            error: self.failure.as_ref().map(|failure| failure.message.as_str()),
            items: &self.items,
            way: &self.way,
            returned: if graph.counts_visits { self.outcome(slot) } else { View::Null },
            changes: &self.changes,
        }
    }

    /// Returns the visit as the journal records it; `covered` replaces the values that have secrets.
    pub(crate) fn written<'a>(
        &'a self,
        graph: &'a GraphTables,
        position: &Position,
        slot: &'a CallSlot,
        covered: &'a Option<Covered>,
    ) -> WrittenVisit<'a> {
        let node = graph.node(self.activation.node);
        let failure = self.failure.as_deref();
        // The journal holds the data of a failure if the edges saw it; those of a foreach do not.
        let is_seen = self.way.is_suppressed() && !node.kind.goes_over_list();
        let data = failure.and_then(|failure| failure.data.as_ref()).filter(|_| is_seen);
        WrittenVisit {
            step: self.activation.number,
            node: &node.name,
            branch: path(self.activation.frame.as_ref()),
            fan: self.activation.frame.as_ref().map_or(0, |frame| frame.fan.visit),
            result: covered.as_ref().map_or_else(|| self.outcome(slot), |covered| covered.result.view()),
            calls: if self.calls > 1 { self.calls } else { 0 },
            run: self.run.clone(),
            below: self.below,
            items: self.items.clone(),
            error: failure.map(|failure| failure.message.as_str()),
            category: failure.map(|failure| failure.category.name()),
            suppressed: self.way.is_suppressed(),
            ends_branch: self.way.ends_branch(),
            held: self.way.is_held(),
            opened: self.way.opened().cloned(),
            timed_out: self.way.is_timed_out(),
            cancelled: self.way.is_cancelled(),
            late: position.is_late(&self.activation),
            data: data.map(AsView::view),
            cached: self.cached,
            changes: match covered {
                Some(covered) => Changes::Covered(&covered.changes),
                None => Changes::Plain(graph, &self.changes),
            },
            reduced: Changes::Plain(graph, &self.reduced),
            edges: self.way.edges().as_slice().to_vec(),
            over: match self.way.edges() {
                TakenEdges::Over(list) => Some(u32::try_from(list.len()).unwrap_or(u32::MAX)),
                _ => None,
            },
            list: match (self.way.edges(), covered) {
                (TakenEdges::Over(_), Some(covered)) => covered.list.as_ref().map(AsView::view),
                (TakenEdges::Over(list), None) => Some(list.view()),
                _ => None,
            },
            now: self.at.map(timestamp::unix_milliseconds),
            ms: u64::try_from(self.elapsed.as_millis()).unwrap_or(u64::MAX),
            warnings: self.warnings.clone(),
        }
    }
}

/// Returns the state and position of a run, to change them between two steps, when nothing else refers to them.
pub(crate) fn alone(run_state: &mut Arc<RunState>) -> &mut RunState {
    Arc::get_mut(run_state).expect("the visits of a step are over before the run moves on")
}

//! Schedules: graphs whose runs workers start at the ticks of a cron expression.

use std::collections::VecDeque;

use graph_model::name::{GraphId, NameError, RunId, ScheduleId};
use graph_model::schedule::{CatchUp, Overlap};
use graph_model::timestamp::{from_unix_milliseconds, seconds};
use graph_model::timetable::{Timetable, TimetableError};
use graph_model::value::{Map, Value};
use serde::{Deserialize, Serialize};

use crate::admission::accepts_inputs;
use crate::error::StartError;
use crate::kind::{ErrorKind, HasKind};
use crate::machine::Machine;
use crate::store::{ScheduleMark, Store, StoreError};

/// A schedule: workers start one run of its graph for each tick of its cron expression.
///
/// The run of a tick has the id of the schedule with the tick in UTC, as in `nightly-20261123T020000Z`. The store records which
/// ticks were handled, in the same write with which a run begins: so each tick has at most one run, whatever crashes, however many
/// workers there are, and also after its run was removed. A schedule that the store does not know yet begins with the next tick.
///
/// ```
/// # use graph_engine as graph_runtime;
/// # fn example<G: graph_runtime::Graph>(
/// #     runtime: graph_runtime::Runtime,
/// #     report: G,
/// # ) -> Result<(), Box<dyn std::error::Error>> {
/// use graph_runtime::{CatchUp, Overlap, Schedule, WorkerOptions};
///
/// let nightly = Schedule::new("nightly", "shop/report", "0 2 * * *", "Europe/Berlin")?
///     .overlap(Overlap::Queue)
///     .catch_up(CatchUp::All(7))
///     .tick_input("at");
/// let worker = runtime.worker(WorkerOptions::default().graph(report).schedules([nightly])?)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Schedule {
    id: ScheduleId,
    graph: GraphId,
    timetable: Timetable,
    overlap: Overlap,
    catch_up: CatchUp,
    inputs: Map<String, Value>,
    tick: Option<String>,
}

/// Why a schedule cannot be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleError {
    /// The id of the schedule or of its graph is no id.
    #[error("schedule `{schedule}` cannot be run: {source}")]
    Name {
        /// The id of the schedule.
        schedule: String,
        /// The mistake in it.
        source: NameError,
    },
    /// The cron expression or the time zone cannot be read.
    #[error("schedule `{schedule}` cannot be run: {source}")]
    Timetable {
        /// The id of the schedule.
        schedule: String,
        /// The mistake.
        source: TimetableError,
    },
    /// The worker does not have the graph.
    #[error("schedule `{schedule}` cannot be run: its graph `{graph}` is not among those of the worker")]
    UnknownGraph {
        /// The id of the schedule.
        schedule: ScheduleId,
        /// The id of the graph.
        graph: GraphId,
    },
    /// The graph does not accept the inputs.
    #[error("schedule `{schedule}` cannot be run: {source}")]
    Inputs {
        /// The id of the schedule.
        schedule: ScheduleId,
        /// The reason.
        source: Box<StartError>,
    },
    /// The tick is to be an input that the schedule sets itself.
    #[error("schedule `{schedule}` cannot be run: the input `{input}` is to be its tick, and has another value too")]
    TickTwice {
        /// The id of the schedule.
        schedule: ScheduleId,
        /// The name of the input.
        input: String,
    },
    /// The ticks that are caught up would cancel one another, or their number is 0 or too high.
    #[error("schedule `{schedule}` cannot be run: {reason}")]
    CatchUp {
        /// The id of the schedule.
        schedule: ScheduleId,
        /// The reason.
        reason: &'static str,
    },
    /// The worker has two schedules of this id.
    #[error("a worker cannot run two schedules of the id `{schedule}`: their runs would have the same ids")]
    Twice {
        /// The id.
        schedule: ScheduleId,
    },
}

impl HasKind for ScheduleError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Name { .. }
            | Self::Timetable { .. }
            | Self::Inputs { .. }
            | Self::TickTwice { .. }
            | Self::CatchUp { .. } => ErrorKind::Invalid,
            Self::UnknownGraph { .. } => ErrorKind::NotFound,
            Self::Twice { .. } => ErrorKind::Exists,
        }
    }
}

impl Schedule {
    /// A schedule of a graph, by the graph's id: at the times that match a cron expression of five fields, in a time zone of the
    /// IANA database. [`Timetable`](crate::Timetable) has the rules where clocks are changed.
    ///
    /// By default, a tick is skipped while the run of an earlier one has not ended, the newest of missed ticks is caught up, and
    /// the graph has no inputs.
    ///
    /// # Errors
    ///
    /// If an id is malformed, the expression cannot be read or matches no time, or there is no such zone.
    pub fn new(id: &str, graph: &str, cron: &str, zone: &str) -> Result<Self, ScheduleError> {
        let misnamed = |source| ScheduleError::Name { schedule: id.to_owned(), source };
        let timetable = Timetable::new(cron, zone)
            .map_err(|source| ScheduleError::Timetable { schedule: id.to_owned(), source })?;
        Ok(Self {
            id: ScheduleId::new(id).map_err(misnamed)?,
            graph: GraphId::new(graph).map_err(misnamed)?,
            timetable,
            overlap: Overlap::default(),
            catch_up: CatchUp::default(),
            inputs: Map::new(),
            tick: None,
        })
    }

    /// Sets the policy for a tick that comes due while the run of an earlier one has not ended.
    #[must_use]
    pub fn overlap(mut self, overlap: Overlap) -> Self {
        self.overlap = overlap;
        self
    }

    /// Sets the policy for ticks that no worker noticed within a minute.
    #[must_use]
    pub fn catch_up(mut self, catch_up: CatchUp) -> Self {
        self.catch_up = catch_up;
        self
    }

    /// Sets the inputs of all of its runs.
    #[must_use]
    pub fn inputs(mut self, inputs: Map<String, Value>) -> Self {
        self.inputs = inputs;
        self
    }

    /// Sets the input that is the tick of the run: a text such as `2026-11-23T02:00:00Z`.
    #[must_use]
    pub fn tick_input(mut self, name: impl Into<String>) -> Self {
        self.tick = Some(name.into());
        self
    }

    /// Returns its id.
    pub fn id(&self) -> &ScheduleId {
        &self.id
    }

    /// Returns the id of its graph.
    pub fn graph(&self) -> &GraphId {
        &self.graph
    }

    /// Returns the times of its ticks.
    pub fn timetable(&self) -> &Timetable {
        &self.timetable
    }

    /// Returns the policy for ticks that overlap.
    pub fn on_overlap(&self) -> Overlap {
        self.overlap
    }

    /// Returns the policy for missed ticks.
    pub fn on_missed(&self) -> CatchUp {
        self.catch_up
    }

    /// Reads its state in a store; `None` if no worker has looked at it yet.
    ///
    /// # Errors
    ///
    /// If the store cannot be read or keeps no schedules, or the mark there is not that of a schedule.
    pub async fn state(&self, store: &dyn Store) -> Result<Option<ScheduleState>, StoreError> {
        let mark = store.schedule_mark(self.id.as_str()).await?;
        mark.map(|mark| ScheduleState::read(&self.id, &mark)).transpose()
    }

    /// Returns the inputs of the run of a tick.
    pub(crate) fn inputs_at(&self, tick: i64) -> Value {
        let mut inputs = self.inputs.clone();
        if let Some(name) = &self.tick {
            inputs.insert(name.clone(), Value::from(seconds(from_unix_milliseconds(tick))));
        }
        Value::Object(inputs)
    }

    /// Fails if its policies exclude each other, or a graph does not accept its inputs.
    ///
    /// # Errors
    ///
    /// [`ScheduleError::CatchUp`], [`ScheduleError::TickTwice`] or [`ScheduleError::Inputs`].
    pub fn check(&self, machine: &dyn Machine) -> Result<(), ScheduleError> {
        let schedule = || self.id.clone();
        match (self.catch_up, self.overlap) {
            (CatchUp::All(count), _) if count == 0 || count > CatchUp::MOST => {
                let reason = "it catches up at least 1 tick and at most 1000";
                return Err(ScheduleError::CatchUp { schedule: schedule(), reason });
            }
            (CatchUp::All(_), Overlap::Cancel) => {
                let reason = "each of the ticks that it catches up would cancel the run of the one before";
                return Err(ScheduleError::CatchUp { schedule: schedule(), reason });
            }
            _ => {}
        }
        if let Some(input) = self.tick.as_ref().filter(|name| self.inputs.contains_key(*name)) {
            return Err(ScheduleError::TickTwice { schedule: schedule(), input: input.clone() });
        }
        let inputs = self.inputs_at(self.timetable.after(0).unwrap_or_default());
        accepts_inputs(machine, &inputs)
            .map_err(|source| ScheduleError::Inputs { schedule: schedule(), source: Box::new(source) })
    }
}

/// The state of a schedule in a store. Times are in milliseconds since the Unix epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ScheduleState {
    /// The cron expression of the worker that began last.
    pub cron: String,
    /// The time zone of the worker that began last.
    pub zone: String,
    /// No tick up to this time is to be decided any more: they were run, skipped, or are in `queued`.
    pub last: i64,
    /// The ticks whose runs are to be started, the next one first.
    pub queued: Vec<i64>,
    /// How many of the first queued ticks were missed and are caught up.
    pub catching_up: u64,
    /// The tick whose run was started last.
    pub run: Option<i64>,
    /// How many runs were started.
    pub started: u64,
    /// How many ticks were skipped.
    pub skipped: u64,
}

/// The ticks of a schedule that are due.
#[derive(Debug, Default)]
pub(crate) struct DueTicks {
    oldest: Option<i64>,
    /// The newest ones, in order.
    newest: VecDeque<i64>,
    count: u64,
}

/// A tick that is noticed later than this after its time, in milliseconds, was missed. Ticks are at least as far apart.
const MISSED: i64 = 60_000;

impl DueTicks {
    /// Adds the next tick.
    pub(crate) fn push(&mut self, tick: i64, catch_up: CatchUp) {
        let most = match catch_up {
            CatchUp::All(most) => usize::try_from(most).unwrap_or(usize::MAX),
            CatchUp::None | CatchUp::Last => 1,
        };
        self.oldest.get_or_insert(tick);
        self.newest.push_back(tick);
        self.count += 1;
        if self.newest.len() > most {
            self.newest.pop_front();
        }
    }
}

impl ScheduleState {
    /// The state of a schedule that nobody has looked at before a time.
    pub(crate) fn new(schedule: &Schedule, now: i64) -> Self {
        let (cron, zone) = (schedule.timetable.cron().to_owned(), schedule.timetable.zone().to_owned());
        Self { cron, zone, last: now, queued: Vec::new(), catching_up: 0, run: None, started: 0, skipped: 0 }
    }

    pub(crate) fn read(schedule: &ScheduleId, mark: &ScheduleMark) -> Result<Self, StoreError> {
        serde_json::from_str(&mark.text).map_err(|error| {
            StoreError::unreadable(format_args!("the mark of schedule `{schedule}`"), error.to_string())
                .with_source(error)
        })
    }

    /// Returns the text of the mark.
    pub(crate) fn text(&self) -> String {
        serde_json::to_string(self).expect("numbers and texts can be written")
    }

    /// Whether it is about the ticks of this timetable.
    pub(crate) fn is_of(&self, timetable: &Timetable) -> bool {
        self.cron == timetable.cron() && self.zone == timetable.zone()
    }

    /// Decides about the ticks that are due: which of them are run, and which are skipped. `is_busy` says whether the run that
    /// was started last has not ended.
    pub(crate) fn decide(&mut self, schedule: &Schedule, due: DueTicks, now: i64, is_busy: bool) {
        let DueTicks { oldest, mut newest, count } = due;
        let Some((oldest, last)) = oldest.zip(newest.back().copied()) else { return };
        self.last = last;
        let was_missed = |tick: i64| now.saturating_sub(tick) >= MISSED;
        if schedule.catch_up == CatchUp::None {
            newest.retain(|tick| !was_missed(*tick));
        }
        self.skipped += count - newest.len() as u64;
        if let CatchUp::All(most) = schedule.catch_up
            && was_missed(oldest)
        {
            self.queued.extend(newest);
            let excess = self.queued.len().saturating_sub(usize::try_from(most).unwrap_or(usize::MAX));
            self.queued.drain(..excess);
            self.skipped += excess as u64;
            self.catching_up = self.queued.len() as u64;
            return;
        }
        for tick in newest {
            match schedule.overlap {
                _ if !is_busy && self.queued.is_empty() => self.queued.push(tick),
                // Besides those that are caught up, one waits.
                Overlap::Queue if self.queued.len() as u64 <= self.catching_up => self.queued.push(tick),
                Overlap::Skip | Overlap::Queue => self.skipped += 1,
                Overlap::Cancel => {
                    self.skipped += self.queued.len() as u64;
                    (self.queued, self.catching_up) = (vec![tick], 0);
                }
            }
        }
    }

    /// Takes the tick whose run is to be started next.
    pub(crate) fn take(&mut self) -> Option<i64> {
        let tick = *self.queued.first()?;
        self.queued.remove(0);
        self.catching_up = self.catching_up.saturating_sub(1);
        self.run = Some(tick);
        self.started += 1;
        Some(tick)
    }

    /// Returns the id of the run that was started last.
    pub fn run_id(&self, schedule: &ScheduleId) -> Option<RunId> {
        self.run.map(|tick| schedule.run(tick))
    }
}

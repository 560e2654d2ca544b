//! Schedules in workers: deciding about the ticks that are due, and starting their runs.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use graph_model::name::{RunId, ScheduleId};
use graph_model::schedule::Overlap;
use graph_model::timestamp::{from_unix_milliseconds, seconds};
use graph_model::timetable::Timetable;
use tracing::Instrument;

use super::{LONGEST, Looked, PAUSE, Work, WorkerOptions};
use crate::engine::run_span;
use crate::error::{RunError, StartError};
use crate::graph::tables;
use crate::machine::Machine;
use crate::run::spawn;
use crate::runtime::Options;
use crate::schedules::{DueTicks, Schedule, ScheduleError, ScheduleState};
use crate::store::{ScheduleChange, StoreError};

/// A schedule of a worker, with what the worker knows of it.
#[derive(Clone)]
pub(super) struct Scheduled {
    schedule: Schedule,
    machine: Arc<dyn Machine>,
    /// The time of the store before which there is nothing to do.
    next: i64,
    /// Whether the worker has made the schedule's timetable the one that counts.
    has_begun: bool,
    /// Whether the worker has logged that another timetable counts.
    has_warned: bool,
    /// Whether a tick waits until the run before it has ended.
    is_queued: bool,
    /// How often the run of the next tick could not be started.
    failures: u32,
}

impl std::fmt::Debug for Scheduled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.schedule.fmt(f)
    }
}

/// The time after which a worker looks again whether a run has ended that a tick waits for, in milliseconds.
const BUSY: i64 = 1_000;
/// How many ticks are computed before other tasks have their turn.
const MOST_TICKS: u64 = 256;

impl WorkerOptions {
    /// Starts the runs of these schedules when they are due. Their graphs are among those that were named before; of several
    /// versions of a graph, the one that was named first is run.
    ///
    /// Several workers may have the same schedules: each tick has one run. If workers have schedules of one id with other cron
    /// expressions or time zones, the worker that began last decides about the ticks; the others log that and leave them alone.
    ///
    /// # Errors
    ///
    /// If a graph is not among those of the worker or does not accept the inputs, the policies of a schedule exclude each other, or
    /// two schedules have the same id.
    #[cfg_attr(docsrs, doc(cfg(feature = "schedules")))]
    pub fn schedules(mut self, schedules: impl IntoIterator<Item = Schedule>) -> Result<Self, ScheduleError> {
        for schedule in schedules {
            if self.schedules.iter().any(|other| other.schedule.id() == schedule.id()) {
                return Err(ScheduleError::Twice { schedule: schedule.id().clone() });
            }
            let graph = self.graphs.iter().find(|graph| graph.graph().id() == schedule.graph());
            let machine = graph.map(|graph| Arc::clone(&graph.0)).ok_or_else(|| ScheduleError::UnknownGraph {
                schedule: schedule.id().clone(),
                graph: schedule.graph().clone(),
            })?;
            schedule.check(&*machine)?;
            let (next, has_begun, has_warned, is_queued, failures) = (i64::MIN, false, false, false, 0);
            self.schedules.push(Scheduled { schedule, machine, next, has_begun, has_warned, is_queued, failures });
        }
        Ok(self)
    }
}

impl Work {
    /// Handles the ticks that are due, and adds the time until the next look to the outcome of looking for runs.
    pub(super) async fn look_at_schedules(&mut self, looked: Result<Looked, StoreError>) -> Result<Looked, StoreError> {
        if self.options.schedules.is_empty() {
            return looked;
        }
        let mut looked = looked?;
        let now = self.store.now().await?;
        let mut schedules = std::mem::take(&mut self.options.schedules);
        for scheduled in schedules.iter_mut().filter(|scheduled| scheduled.is_queued || scheduled.next <= now) {
            if self.state.is_stopping() {
                break;
            }
            match self.handle(scheduled).await {
                Ok(has_written) => looked.is_due |= has_written,
                Err(error) => {
                    let schedule = scheduled.schedule.id();
                    tracing::warn!(%schedule, %error, "a worker cannot handle the ticks of a schedule, and tries again");
                    scheduled.next = now.saturating_add(millis(PAUSE));
                    looked.is_due = true;
                }
            }
        }
        let next = schedules.iter().map(|scheduled| scheduled.next).min();
        self.options.schedules = schedules;
        let next = next.unwrap_or(i64::MAX);
        // The next look finds whether the worker is idle.
        looked.next_tick = Some(if looked.is_due { next.min(now.saturating_add(10)) } else { next });
        Ok(looked)
    }

    /// Decides about the ticks of a schedule that are due, and starts the run of the next one if the one before has ended.
    /// Returns whether it wrote something.
    async fn handle(&mut self, scheduled: &mut Scheduled) -> Result<bool, StoreError> {
        let Scheduled { schedule, machine, next, has_begun, has_warned, is_queued, failures } = scheduled;
        let id = schedule.id();
        let mut has_written = false;
        *is_queued = false;
        loop {
            let mark = self.store.schedule_mark(id.as_str()).await?;
            let now = self.store.now().await?;
            let revision = mark.as_ref().map_or(0, |mark| mark.revision);
            let known = match mark.map(|mark| ScheduleState::read(id, &mark)).transpose()? {
                Some(known) if known.is_of(schedule.timetable()) => known,
                Some(known) if *has_begun => {
                    if !std::mem::replace(has_warned, true) {
                        let (cron, zone) = (&known.cron, &known.zone);
                        tracing::warn!(schedule = %id, cron, zone, "a worker that began later decides about the ticks");
                    }
                    *next = schedule.timetable().after(now).unwrap_or(i64::MAX);
                    return Ok(has_written);
                }
                Some(known) => {
                    let changed = self.take_over(schedule, known, now).await?;
                    has_written |= self.write(id, revision, &changed).await?;
                    continue;
                }
                None => {
                    has_written |= self.write(id, 0, &ScheduleState::new(schedule, now)).await?;
                    continue;
                }
            };
            (*has_begun, *has_warned) = (true, false);
            let busy = self.busy(schedule, &known).await?;
            let mut decided = known.clone();
            decided.decide(schedule, due(schedule.timetable(), schedule, known.last, now).await, now, busy.is_some());
            *next = schedule.timetable().after(decided.last).unwrap_or(i64::MAX);
            if let Some(run) = busy {
                if decided != known && !self.write(id, revision, &decided).await? {
                    continue;
                }
                has_written |= decided != known;
                if !decided.queued.is_empty() {
                    (*next, *is_queued) = ((*next).min(now.saturating_add(BUSY)), true);
                    if schedule.on_overlap() == Overlap::Cancel {
                        self.cancel(&run).await?;
                    }
                }
                return Ok(has_written);
            }
            let mut begun = decided.clone();
            let Some(tick) = begun.take() else {
                if decided != known && !self.write(id, revision, &decided).await? {
                    continue;
                }
                return Ok(has_written | (decided != known));
            };
            // One write decides about the ticks and begins the run.
            let change = ScheduleChange::new(id.as_str(), revision, begun.text());
            match self.begin(schedule, machine, tick, change).await {
                Ok(()) => (*failures, has_written) = (0, true),
                Err(StartError::Store(StoreError::ScheduleChanged { .. })) => {}
                Err(StartError::Store(StoreError::Exists(run))) => {
                    tracing::warn!(schedule = %id, %run, "the run of a tick exists, and no worker has started it");
                    has_written |= self.write(id, revision, &begun).await?;
                }
                Err(StartError::ShutDown) => return Ok(has_written),
                Err(StartError::Store(source)) => return Err(source),
                Err(error) => {
                    let at = seconds(from_unix_milliseconds(tick));
                    tracing::warn!(schedule = %id, tick = at, %error, "the run of a tick cannot be started, and is tried again");
                    if decided != known {
                        has_written |= self.write(id, revision, &decided).await?;
                    }
                    let pause = PAUSE.saturating_mul(1 << (*failures).min(16)).min(LONGEST);
                    *failures = failures.saturating_add(1);
                    *next = now.saturating_add(millis(pause));
                    return Ok(has_written);
                }
            }
        }
    }

    /// Changes the mark of a schedule. Returns `false` if another worker was faster.
    async fn write(&self, schedule: &ScheduleId, revision: u64, state: &ScheduleState) -> Result<bool, StoreError> {
        let change = ScheduleChange::new(schedule.as_str(), revision, state.text());
        match self.store.change_schedule(&change).await {
            Ok(()) => Ok(true),
            Err(StoreError::ScheduleChanged { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Makes the timetable of a schedule the one that counts. The ticks of the former one that are due are decided first. The new
    /// one has no ticks before now.
    async fn take_over(
        &self,
        schedule: &Schedule,
        known: ScheduleState,
        now: i64,
    ) -> Result<ScheduleState, StoreError> {
        let mut changed = known.clone();
        if let Ok(former) = Timetable::new(&known.cron, &known.zone) {
            let busy = self.busy(schedule, &known).await?;
            changed.decide(schedule, due(&former, schedule, known.last, now).await, now, busy.is_some());
        }
        changed.last = changed.last.max(now);
        changed.cron = schedule.timetable().cron().to_owned();
        changed.zone = schedule.timetable().zone().to_owned();
        Ok(changed)
    }

    /// Returns the run that was started last, if it has not ended. A run that was removed has ended.
    async fn busy(&self, schedule: &Schedule, state: &ScheduleState) -> Result<Option<RunId>, StoreError> {
        let Some(run) = state.run_id(schedule.id()) else { return Ok(None) };
        match self.store.find(&run).await {
            Ok(found) => Ok((!found.status.has_ended()).then_some(run)),
            Err(StoreError::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn cancel(&self, run: &RunId) -> Result<(), StoreError> {
        match self.store.cancel(run).await {
            Ok(()) | Err(StoreError::Ended { .. } | StoreError::NotFound(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Begins the run of a tick, and continues it if there is room. Otherwise the next worker that has room does.
    async fn begin(
        &mut self,
        schedule: &Schedule,
        machine: &Arc<dyn Machine>,
        tick: i64,
        change: ScheduleChange,
    ) -> Result<(), StartError> {
        let (runtime, state) = (&self.runtime, Arc::clone(&self.state));
        let run = schedule.id().run(tick);
        let mut begin = runtime.begin_with(run.clone(), Options::default());
        begin.tick = Some(change);
        let stop = begin.stop.clone();
        let passes = runtime.inner.gate.enter(&run, &stop).zip(state.gate.enter(&run, &stop));
        let (pass, own) = passes.ok_or(StartError::ShutDown)?;
        let span = run_span(&run, &tables(machine.graph()).id);
        let begun = async {
            runtime.inner.can_wait(&**machine, &begin).await?;
            runtime.inner.begin(begin, Arc::clone(machine), schedule.inputs_at(tick)).await
        };
        let engine = begun.instrument(span.clone()).await?;
        if self.room() == 0 {
            return Ok(());
        }
        state.running.fetch_add(1, Ordering::Relaxed);
        let task = spawn(engine, pass, span);
        own.note(task.abort_handle());
        self.drives.spawn(async move {
            match task.await {
                Ok(Ok(_) | Err(RunError::Waiting { .. } | RunError::ShutDown { .. } | RunError::Cancelled { .. })) => {}
                Ok(Err(error)) => tracing::warn!(%run, %error, "a run that a worker started has no result"),
                Err(error) => tracing::warn!(%run, %error, "a run that a worker started was stopped"),
            }
            drop(own);
            state.running.fetch_sub(1, Ordering::Relaxed);
        });
        Ok(())
    }
}

/// Returns the ticks after one time up to another.
async fn due(timetable: &Timetable, schedule: &Schedule, after: i64, until: i64) -> DueTicks {
    let (mut due, mut count, mut last) = (DueTicks::default(), 0_u64, after);
    while let Some(tick) = timetable.after(last).filter(|tick| *tick <= until) {
        due.push(tick, schedule.on_missed());
        (last, count) = (tick, count + 1);
        if count.is_multiple_of(MOST_TICKS) {
            tokio::task::yield_now().await;
        }
    }
    due
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

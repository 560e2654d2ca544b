//! Schedules: each tick has one run, whatever crashes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};

use graph_runtime::__private::{Key, Program};
use graph_runtime::testing::FaultyStore;
use graph_runtime::{
    CatchUp, Clock, Map, MemoryStore, Overlap, RunId, Runtime, Schedule, ScheduleError, Sleeping, SqliteStore, Status,
    Store, SystemClock, Timetable, TokioClock, Value, Worker, WorkerOptions,
};

use crate::interpreted::{Interpreted, PROGRAM};

/// Calls a tool with the tick.
fn quick() -> Interpreted {
    let program = Program {
        keys: &[Key { name: "log", initial: None }],
        nodes: &[
            (
                "note",
                r#"{"line":1,"does":{"action":0},"params":{"at":"${inputs.at}"},"assign":{"log":"${result}"},"next":[{"to":"done"}]}"#,
            ),
            ("done", r#"{"line":2,"does":"return","output":"${state.log}"}"#),
        ],
        ..PROGRAM
    };
    Interpreted::new(&program, |_, params| Ok(params["at"].clone()))
}

/// Waits for 145 minutes.
fn slow() -> Interpreted {
    let program = Program {
        nodes: &[
            ("wait", r#"{"line":1,"does":"wait","wait":{"timeout_ms":8700000},"next":[{"to":"done"}]}"#),
            ("done", r#"{"line":2,"does":"return"}"#),
        ],
        ..PROGRAM
    };
    Interpreted::new(&program, |_, _| Ok(Value::Null))
}

/// 2026-11-23T00:00:00Z.
const BEGIN: i64 = 1_795_392_000_000;
const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

fn millis(time: i64) -> Duration {
    Duration::from_millis(u64::try_from(time).unwrap())
}

/// Tokio's clock, whose time of day can be set.
#[derive(Debug)]
struct JumpingClock {
    tokio: TokioClock,
    offset: AtomicI64,
}

impl JumpingClock {
    fn new() -> Arc<Self> {
        let tokio = TokioClock::at(SystemTime::UNIX_EPOCH + millis(BEGIN));
        Arc::new(Self { tokio, offset: AtomicI64::new(0) })
    }

    fn jump(&self, by: i64) {
        self.offset.fetch_add(by, Ordering::SeqCst);
    }
}

impl Clock for JumpingClock {
    fn now(&self) -> SystemTime {
        let offset = self.offset.load(Ordering::SeqCst);
        match u64::try_from(offset) {
            Ok(ahead) => self.tokio.now() + Duration::from_millis(ahead),
            Err(_) => self.tokio.now() - Duration::from_millis(offset.unsigned_abs()),
        }
    }

    fn monotonic(&self) -> Duration {
        self.tokio.monotonic()
    }

    fn sleep(&self, time: Duration) -> Sleeping<'_> {
        self.tokio.sleep(time)
    }
}

/// The store of a process that dies at a write, before or after the write is done.
fn process(disk: &MemoryStore, writes: u64, last_writes: bool) -> FaultyStore {
    let dies = if last_writes { FaultyStore::dies_after } else { FaultyStore::dies_before };
    dies(disk.clone(), writes + 1)
}

/// Removes the completed runs of a store, and returns their ids.
async fn removed(store: &MemoryStore) -> Vec<String> {
    let mut removed = Vec::new();
    for (run, status) in listed(store).await {
        if status == Status::Completed {
            store.remove(&RunId::new(run.clone()).unwrap()).await.unwrap();
            removed.push(run);
        }
    }
    removed
}

/// Returns the ids of all runs that began, sorted, if these were removed.
async fn begun(store: &MemoryStore, removed: Vec<String>) -> Vec<String> {
    let left = listed(store).await.into_iter().map(|(run, _)| run);
    let mut all: Vec<String> = removed.into_iter().chain(left).collect();
    all.sort();
    all
}

/// A schedule `s` of the graph of these tests.
fn schedule(cron: &str) -> Schedule {
    Schedule::new("s", "test/graph", cron, "UTC").unwrap().tick_input("at")
}

fn work(runtime: &Runtime, graph: Interpreted, schedule: &Schedule) -> Worker {
    let options = WorkerOptions::default().graph(graph).schedules([schedule.clone()]).unwrap();
    runtime.worker(options).unwrap()
}

/// Returns the ids of the runs of these ticks.
fn ids(ticks: impl IntoIterator<Item = i64>) -> Vec<String> {
    let id = graph_runtime::ScheduleId::new("s").unwrap();
    ticks.into_iter().map(|tick| id.run(tick).to_string()).collect()
}

/// The ids of the runs of a store with their statuses, in the order in which they began.
async fn listed(store: &impl Store) -> Vec<(String, Status)> {
    let mut all: Vec<_> =
        store.list().await.unwrap().into_iter().map(|run| (run.run.to_string(), run.status)).collect();
    all.reverse();
    all
}

#[tokio::test(start_paused = true)]
async fn each_tick_of_a_month_has_a_run() {
    let clock = JumpingClock::new();
    let store = MemoryStore::with_clock(clock.clone());
    let runtime = runtime_with(&store, &clock);
    let worker = work(&runtime, quick(), &schedule("0 * * * *"));
    clock.sleep(millis(30 * DAY + MINUTE)).await;
    let expected = ids((1..=30 * 24).map(|hour| BEGIN + hour * HOUR));
    let found = listed(&store).await;
    assert!(found.iter().all(|(_, status)| *status == Status::Completed));
    assert_eq!(found.into_iter().map(|(id, _)| id).collect::<Vec<_>>(), expected);
    let outcome = runtime.outcome(&quick(), &RunId::new(expected[1].clone()).unwrap()).await.unwrap();
    assert!(format!("{outcome:?}").contains("2026-11-23T02:00:00Z"), "{outcome:?}");
    let state = schedule("0 * * * *").state(&store).await.unwrap().unwrap();
    assert_eq!((state.started, state.skipped, state.run), (720, 0, Some(BEGIN + 30 * DAY)));
    assert!(worker.shutdown(Duration::ZERO).await.is_empty());
}

fn runtime_with(store: &(impl Store + Clone), clock: &Arc<JumpingClock>) -> Runtime {
    let key = graph_runtime::SecretKey::from_seed(&crate::support::KEY);
    let builder = Runtime::builder().store(store.clone()).sign_with(key).clock(clock.clone());
    builder.grant("*").unwrap().build().unwrap()
}

/// The judge: of the ticks that are due when a worker looks, those that run.
fn caught_up(due: &[i64], now: i64, catch_up: CatchUp) -> Vec<i64> {
    let newest = |most: usize| due[due.len().saturating_sub(most)..].to_vec();
    match catch_up {
        CatchUp::None => due.iter().copied().filter(|tick| now - tick < MINUTE).collect(),
        CatchUp::Last => newest(1),
        CatchUp::All(most) => newest(usize::try_from(most).unwrap()),
    }
}

/// One worker dies at each of its writes, before or after the write, and another begins later.
#[tokio::test(start_paused = true)]
async fn each_due_tick_has_one_run_however_a_write_fails() {
    let hours = 5;
    let mut cases = 0;
    for catch_up in [CatchUp::None, CatchUp::Last, CatchUp::All(2), CatchUp::All(6)] {
        for writes in 0.. {
            let mut was_reached = false;
            for (last_writes, pause) in [(false, 10_000), (true, 10_000), (false, 200 * MINUTE), (true, 200 * MINUTE)] {
                let clock = JumpingClock::new();
                let store = MemoryStore::with_clock(clock.clone());
                let schedule = schedule("0 * * * *").overlap(Overlap::Queue).catch_up(catch_up);
                let first = process(&store, writes, last_writes);
                let runtime = runtime_with(&first, &clock);
                let worker = work(&runtime, quick(), &schedule);
                let end = clock.sleep(millis(hours * HOUR + MINUTE));
                let is_dead = tokio::select! { () = end => false, () = first.lost() => true };
                worker.shutdown(Duration::ZERO).await;
                let died = store.now().await.unwrap();
                was_reached |= is_dead;
                clock.sleep(millis(pause)).await;
                // Removing runs does not let their ticks run again.
                let removed = removed(&store).await;
                let second = FaultyStore::sound(store.clone());
                let runtime = runtime_with(&second, &clock);
                let restarted = store.now().await.unwrap();
                let worker = work(&runtime, quick(), &schedule);
                clock.sleep(millis(3 * HOUR)).await;
                worker.shutdown(Duration::ZERO).await;
                let ended = store.now().await.unwrap();
                let found = begun(&store, removed).await;
                // The first worker handled each tick at its time until it died; the last one only if that was written.
                let knows_schedule = !is_dead || writes > 0 || last_writes;
                let before: Vec<i64> =
                    (1..=hours).map(|hour| BEGIN + hour * HOUR).filter(|tick| *tick <= died).collect();
                let was_begun = |tick: &i64| found.contains(&ids([*tick])[0]);
                let handled_at_death: Vec<i64> = match before.last() {
                    // The write at which it died began the run of this tick, or did not.
                    Some(last) if is_dead && *last == died && !last_writes && !was_begun(last) => {
                        before[..before.len() - 1].to_vec()
                    }
                    _ => before,
                };
                let since = if knows_schedule { handled_at_death.last().copied().unwrap_or(BEGIN) } else { restarted };
                let all = |from: i64, to: i64| {
                    (1..)
                        .map(|hour| BEGIN + hour * HOUR)
                        .skip_while(move |tick| *tick <= from)
                        .take_while(move |tick| *tick <= to)
                };
                let due: Vec<i64> = all(since, restarted).collect();
                let expected: BTreeSet<i64> = handled_at_death
                    .into_iter()
                    .chain(caught_up(&due, restarted, catch_up))
                    .chain(all(restarted, ended))
                    .collect();
                let case = format!("{catch_up} {writes} {last_writes} {pause}");
                assert_eq!(found, ids(expected), "{case}");
                let left = listed(&store).await;
                assert!(left.iter().all(|(_, status)| *status == Status::Completed), "{case}: {left:?}");
                cases += 1;
            }
            if !was_reached {
                break;
            }
        }
    }
    assert!(cases > 100, "{cases}");
}

/// Three workers, of which each dies at random writes and begins again, while somebody removes runs.
#[tokio::test(start_paused = true)]
async fn each_tick_has_one_run_with_several_workers() {
    let mut seed = 7_u64;
    let mut random = |most: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % most
    };
    for round in 0..20 {
        let clock = JumpingClock::new();
        let store = MemoryStore::with_clock(clock.clone());
        let schedule = schedule("*/5 * * * *").overlap(Overlap::Queue).catch_up(CatchUp::All(1000));
        let plans: Vec<Vec<(u64, bool, i64)>> = (0..3)
            .map(|_| (0..6).map(|_| (random(12), random(2) == 0, i64::try_from(random(900_000)).unwrap())).collect())
            .collect();
        let workers = plans.into_iter().map(|plan| {
            let (store, clock, schedule) = (store.clone(), clock.clone(), schedule.clone());
            tokio::spawn(async move {
                for (writes, last_writes, pause) in plan {
                    let process = process(&store, writes, last_writes);
                    let worker = work(&runtime_with(&process, &clock), quick(), &schedule);
                    process.lost().await;
                    worker.shutdown(Duration::ZERO).await;
                    clock.sleep(millis(pause)).await;
                }
                let process = FaultyStore::sound(store.clone());
                let worker = work(&runtime_with(&process, &clock), quick(), &schedule);
                clock.sleep(Duration::MAX / 1_000_000).await;
                drop(worker);
            })
        });
        let workers: Vec<_> = workers.collect();
        let mut gone = Vec::new();
        for _ in 0..48 {
            clock.sleep(millis(30 * MINUTE)).await;
            gone.extend(removed(&store).await);
        }
        clock.sleep(millis(2 * MINUTE)).await;
        workers.iter().for_each(tokio::task::JoinHandle::abort);
        let found = begun(&store, gone).await;
        // The schedule exists from its first mark on, which may be written a little after the beginning.
        let first = found.first().cloned().unwrap();
        let expected: Vec<String> =
            ids((1..=24 * 12).map(|tick| BEGIN + tick * 5 * MINUTE)).into_iter().skip_while(|id| *id < first).collect();
        assert_eq!(found, expected, "round {round}");
        assert!(found.len() > 280, "round {round}: {}", found.len());
        assert!(listed(&store).await.iter().all(|(_, status)| *status == Status::Completed), "round {round}");
    }
}

#[tokio::test(start_paused = true)]
async fn jumps_of_the_clock_neither_lose_nor_repeat_ticks() {
    let clock = JumpingClock::new();
    let store = MemoryStore::with_clock(clock.clone());
    let process = FaultyStore::sound(store.clone());
    let schedule = schedule("*/20 * * * *").overlap(Overlap::Queue).catch_up(CatchUp::All(1000));
    let runtime = runtime_with(&process, &clock);
    let worker = work(&runtime, quick(), &schedule);
    for jump in [DAY, -DAY, -DAY, DAY, DAY, -DAY / 2] {
        clock.sleep(millis(5 * HOUR)).await;
        clock.jump(jump);
    }
    clock.sleep(millis(3 * DAY + MINUTE)).await;
    worker.shutdown(Duration::ZERO).await;
    let now = store.now().await.unwrap();
    let expected = ids((1..).map(|tick| BEGIN + tick * 20 * MINUTE).take_while(|tick| *tick <= now));
    assert_eq!(begun(&store, Vec::new()).await, expected);
    assert!(listed(&store).await.iter().all(|(_, status)| *status == Status::Completed));
}

/// Returns the runs of a schedule of a graph that takes 145 minutes, after 12 hours, and its state.
async fn overlapping(overlap: Overlap) -> (Vec<(String, Status)>, u64) {
    let clock = JumpingClock::new();
    let store = MemoryStore::with_clock(clock.clone());
    let schedule = schedule("0 * * * *").overlap(overlap);
    let runtime = runtime_with(&store, &clock);
    let worker = work(&runtime, slow(), &schedule);
    clock.sleep(millis(8 * HOUR + 30 * MINUTE)).await;
    worker.shutdown(Duration::ZERO).await;
    let state = schedule.state(&store).await.unwrap().unwrap();
    (listed(&store).await, state.skipped)
}

#[tokio::test(start_paused = true)]
async fn a_tick_that_overlaps_is_skipped_waits_or_cancels() {
    let at = |hours: &[i64]| ids(hours.iter().map(|hour| BEGIN + hour * HOUR));
    let names = |found: &[(String, Status)]| found.iter().map(|(id, _)| id.clone()).collect::<Vec<_>>();
    let (skip, skipped) = overlapping(Overlap::Skip).await;
    assert_eq!((names(&skip), skipped), (at(&[1, 4, 7]), 5));
    // The run of 1:00 ends at 3:25, that of 2:00 at 5:50, that of 4:00 at 8:15.
    let (queue, skipped) = overlapping(Overlap::Queue).await;
    assert_eq!((names(&queue), skipped), (at(&[1, 2, 4, 6]), 4));
    let (cancel, skipped) = overlapping(Overlap::Cancel).await;
    assert_eq!((names(&cancel), skipped), (at(&[1, 2, 3, 4, 5, 6, 7, 8]), 0));
    assert!(cancel[..7].iter().all(|(_, status)| *status == Status::Cancelled), "{cancel:?}");
    assert_eq!(cancel[7].1, Status::Waiting);
}

#[tokio::test(start_paused = true)]
async fn ticks_that_are_caught_up_run_one_after_the_other() {
    let clock = JumpingClock::new();
    let store = MemoryStore::with_clock(clock.clone());
    let schedule = schedule("0 * * * *").catch_up(CatchUp::All(3));
    let runtime = runtime_with(&store, &clock);
    work(&runtime, slow(), &schedule).shutdown(Duration::from_secs(1)).await;
    let worker = work(&runtime, slow(), &schedule);
    clock.sleep(millis(MINUTE)).await;
    worker.shutdown(Duration::ZERO).await;
    clock.sleep(millis(5 * HOUR + 10 * MINUTE)).await;
    // 5:11. The ticks of 3:00, 4:00 and 5:00 are caught up, and the others before and while they run are skipped.
    let worker = work(&runtime, slow(), &schedule);
    clock.sleep(millis(8 * HOUR)).await;
    worker.shutdown(Duration::ZERO).await;
    let names: Vec<String> = listed(&store).await.into_iter().map(|(id, _)| id).collect();
    assert_eq!(names, ids([3, 4, 5, 13].map(|hour| BEGIN + hour * HOUR)));
}

#[tokio::test(start_paused = true)]
async fn an_edited_schedule_keeps_its_ticks_and_the_last_worker_decides() {
    let clock = JumpingClock::new();
    let store = MemoryStore::with_clock(clock.clone());
    let process = FaultyStore::sound(store.clone());
    let runtime = runtime_with(&process, &clock);
    let hourly = work(&runtime, quick(), &schedule("0 * * * *"));
    clock.sleep(millis(2 * HOUR + 10 * MINUTE)).await;
    // The tick of 2:05 is in the past when the schedule changes, and does not run.
    let later = work(&runtime, quick(), &schedule("5 * * * *"));
    clock.sleep(millis(2 * HOUR)).await;
    let back = work(&runtime, quick(), &schedule("0 * * * *"));
    clock.sleep(millis(HOUR)).await;
    let minutes = [60, 120, 185, 245, 300];
    assert_eq!(begun(&store, Vec::new()).await, ids(minutes.map(|minute| BEGIN + minute * MINUTE)));
    for worker in [hourly, later, back] {
        worker.shutdown(Duration::ZERO).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_tick_whose_run_cannot_start_waits_until_it_can() {
    let clock = JumpingClock::new();
    let store = MemoryStore::with_clock(clock.clone());
    let key = graph_runtime::SecretKey::from_seed(&crate::support::KEY);
    let builder = Runtime::builder().store(store.clone()).sign_with(key).clock(clock.clone());
    let ungranted = builder.build().unwrap();
    let schedule = schedule("0 * * * *");
    let worker = work(&ungranted, quick(), &schedule);
    clock.sleep(millis(HOUR + 20 * MINUTE)).await;
    worker.shutdown(Duration::ZERO).await;
    assert_eq!(listed(&store).await, []);
    assert_eq!(schedule.state(&store).await.unwrap().unwrap().queued, [BEGIN + HOUR]);
    let worker = work(&runtime_with(&store, &clock), quick(), &schedule);
    clock.sleep(millis(MINUTE)).await;
    worker.shutdown(Duration::ZERO).await;
    assert_eq!(listed(&store).await, [(ids([BEGIN + HOUR])[0].clone(), Status::Completed)]);
}

#[tokio::test(start_paused = true)]
async fn a_worker_without_room_still_begins_runs_on_time() {
    let clock = JumpingClock::new();
    let store = MemoryStore::with_clock(clock.clone());
    let program = Program {
        nodes: &[
            ("call", r#"{"line":1,"does":{"action":0},"params":{},"next":[{"to":"done"}]}"#),
            ("done", r#"{"line":2,"does":"return"}"#),
        ],
        ..PROGRAM
    };
    let sleeps = clock.clone();
    let graph = Interpreted::waiting(&program, move |_, _| {
        let sleeps = sleeps.clone();
        Box::pin(async move {
            sleeps.sleep(millis(90 * MINUTE)).await;
            Ok(Value::Null)
        })
    });
    let both = ["s", "t"].map(|id| Schedule::new(id, "test/graph", "0 1,2 * * *", "UTC").unwrap());
    let options = WorkerOptions::default().graph(graph).schedules(both).unwrap().concurrency(1);
    let worker = runtime_with(&store, &clock).worker(options).unwrap();
    clock.sleep(millis(HOUR + MINUTE)).await;
    let ids: Vec<String> = listed(&store).await.into_iter().map(|(id, _)| id).collect();
    assert_eq!(ids, ["s-20261123T010000Z", "t-20261123T010000Z"]);
    clock.sleep(millis(4 * HOUR)).await;
    assert!(listed(&store).await.iter().all(|(_, status)| *status == Status::Completed));
    worker.shutdown(Duration::ZERO).await;
}

#[test]
fn schedules_that_cannot_run_are_refused() {
    let refused = |schedules: Vec<Schedule>| {
        WorkerOptions::default().graph(quick()).schedules(schedules).unwrap_err().to_string()
    };
    let other = Schedule::new("s", "test/other", "0 * * * *", "UTC").unwrap();
    let at = Map::from_iter([("at".to_owned(), Value::from(1))]);
    for (schedules, expected) in [
        (vec![other], "schedule `s` cannot be run: its graph `test/other` is not among those of the worker"),
        (
            vec![schedule("0 * * * *"), schedule("1 * * * *")],
            "a worker cannot run two schedules of the id `s`: their runs would have the same ids",
        ),
        (
            vec![schedule("0 * * * *").inputs(at)],
            "schedule `s` cannot be run: the input `at` is to be its tick, and has another value too",
        ),
        (
            vec![schedule("0 * * * *").catch_up(CatchUp::All(0))],
            "schedule `s` cannot be run: it catches up at least 1 tick and at most 1000",
        ),
        (
            vec![schedule("0 * * * *").catch_up(CatchUp::All(2)).overlap(Overlap::Cancel)],
            "schedule `s` cannot be run: each of the ticks that it catches up would cancel the run of the one before",
        ),
    ] {
        assert_eq!(refused(schedules), expected);
    }
    let required = Program { settings: r#"{"required":["region"]}"#, ..PROGRAM };
    let graph =
        Interpreted::new(&Program { nodes: &[("done", r#"{"line":1,"does":"return"}"#)], ..required }, |_, _| {
            Ok(Value::Null)
        });
    let error = WorkerOptions::default().graph(graph).schedules([schedule("0 * * * *")]).unwrap_err();
    assert!(matches!(&error, ScheduleError::Inputs { .. }), "{error:?}");
    assert!(error.to_string().contains("region"), "{error}");
    for (id, graph, cron, zone) in [
        ("a b", "test/graph", "0 * * * *", "UTC"),
        ("s", "test//graph", "0 * * * *", "UTC"),
        ("s", "test/graph", "0 25 * * *", "UTC"),
        ("s", "test/graph", "0 2 * * *", "Mars/Base"),
    ] {
        assert!(Schedule::new(id, graph, cron, zone).is_err(), "{id} {graph} {cron} {zone}");
    }
}

/// The computer's clock, 1,200 times as fast.
#[derive(Debug)]
struct FastClock {
    system: SystemClock,
}

const PACE: u32 = 1200;

impl Clock for FastClock {
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + millis(BEGIN) + self.monotonic()
    }

    fn monotonic(&self) -> Duration {
        self.system.monotonic() * PACE
    }

    fn sleep(&self, time: Duration) -> Sleeping<'_> {
        self.system.sleep(time / PACE)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn workers_of_several_stores_over_one_file_start_one_run_a_tick() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    let clock = Arc::new(FastClock { system: SystemClock::new() });
    let schedule = Schedule::new("s", "test/graph", "*/10 * * * *", "UTC").unwrap().overlap(Overlap::Queue);
    let schedule = schedule.catch_up(CatchUp::All(1000)).tick_input("at");
    let mut workers = Vec::new();
    for _ in 0..3 {
        let store = SqliteStore::options().clock(clock.clone()).open(&path).await.unwrap();
        let key = graph_runtime::SecretKey::from_seed(&crate::support::KEY);
        let builder = Runtime::builder().store(store).sign_with(key).clock(clock.clone());
        let runtime = builder.grant("*").unwrap().build().unwrap();
        workers.push(work(&runtime, quick(), &schedule));
    }
    tokio::time::sleep(Duration::from_secs(4)).await;
    for worker in workers {
        worker.shutdown(Duration::from_secs(10)).await;
    }
    let store = SqliteStore::open_read_only(&path).await.unwrap();
    let state = schedule.state(&store).await.unwrap().unwrap();
    let mut found: Vec<String> = store.list().await.unwrap().into_iter().map(|run| run.run.to_string()).collect();
    found.sort();
    let timetable = Timetable::new("*/10 * * * *", "UTC").unwrap();
    let first = found.first().cloned().unwrap();
    let ticks = std::iter::successors(timetable.after(BEGIN), |tick| timetable.after(*tick));
    let until = state.run.unwrap();
    let expected: Vec<String> =
        ids(ticks.take_while(|tick| *tick <= until)).into_iter().skip_while(|id| *id < first).collect();
    assert_eq!(found, expected);
    assert!(found.len() > 3, "{found:?}");
    assert_eq!((state.started, state.skipped), (found.len() as u64, 0));
}

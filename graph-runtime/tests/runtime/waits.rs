//! Runs that wait: they leave memory, and continue when their time has come.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use graph_runtime::__private::{Key, Program};
use graph_runtime::history::{EditRun, Fork, StateEdit, checkpoints, replay};
use graph_runtime::record::SignedRecord;
use graph_runtime::store::{RunFilter, StoreError, Wait, WaitChanges, WaitId};
use graph_runtime::{
    ActionError, Clock, ForkRun, ManualClock, Map, MemoryStore, ResumeError, RunError, RunId, RunOutcome, Runtime,
    SecretKey, SqliteStore, StartError, Status, Store, StoredRunError, TokioClock, WorkerError, WorkerOptions, audit,
    audit_tree,
};
use serde_json::json;

use crate::interpreted::{Interpreted, PROGRAM};
use crate::signals::signed_again;
use crate::support::{KEY, id, kinds, runtime};

/// The numbers that the tool was called with, in order.
type Calls = Arc<Mutex<Vec<i64>>>;

fn graph(calls: &Calls, program: &Program<'_>) -> Interpreted {
    let calls = Arc::clone(calls);
    Interpreted::new(program, move |_, params| {
        calls.lock().unwrap().push(params["n"].as_i64().unwrap());
        Ok(params["n"].clone())
    })
}

/// A call, a wait of two days, and another call.
fn cooling_off(calls: &Calls) -> Interpreted {
    let program = Program {
        keys: &[Key { name: "log", initial: Some("[]") }],
        settings: r#"{"channels":{"log":"append"}}"#,
        nodes: &[
            (
                "pack",
                r#"{"line":1,"does":{"action":0},"params":{"n":1},"assign":{"log":"${result}"},"next":[{"to":"cool_off"}]}"#,
            ),
            (
                "cool_off",
                r#"{"line":2,"does":"wait","wait":{"timeout_ms":172800000},"assign":{"log":"waited"},"next":[{"to":"ship"}]}"#,
            ),
            (
                "ship",
                r#"{"line":3,"does":{"action":0},"params":{"n":2},"assign":{"log":"${result}"},"next":[{"to":"done"}]}"#,
            ),
            ("done", r#"{"line":4,"does":"return","output":"${state.log}"}"#),
        ],
        ..PROGRAM
    };
    graph(calls, &program)
}

pub(crate) const DAY: Duration = Duration::from_secs(86_400);

/// A store in memory and its clock.
pub(crate) fn store() -> (MemoryStore, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(SystemTime::UNIX_EPOCH + 1000 * DAY));
    (MemoryStore::with_clock(Arc::clone(&clock) as Arc<dyn Clock>), clock)
}

pub(crate) async fn records(store: &impl Store, run: &RunId) -> Vec<SignedRecord> {
    store.load(run).await.unwrap()
}

pub(crate) async fn assert_proven(store: &impl Store, graph: &Interpreted, run: &RunId, status: Status) {
    let key = SecretKey::from_seed(&KEY).public();
    let proven = audit_tree(Arc::new(graph.clone()), run, store, &key, None).await.unwrap();
    assert_eq!(proven[0].status, status);
    let signed = records(store, run).await;
    let replayed = replay(graph, graph, run, &signed, &key, None).unwrap();
    assert_eq!((replayed.deviations, replayed.stopped), (Vec::new(), None));
}

/// Returns the nodes that a run waits at, each with the time until which it waits.
pub(crate) fn waits(error: RunError) -> Vec<(String, Option<i64>)> {
    assert!(matches!(error, RunError::Waiting { .. }), "{error}");
    let RunError::Waiting { waits, .. } = error else { return Vec::new() };
    waits.into_iter().map(|wait| (wait.node, wait.due)).collect()
}

#[tokio::test]
async fn a_run_waits_in_its_store_until_its_time_has_come() {
    let ((store, clock), calls) = (store(), Calls::default());
    let (graph, run) = (cooling_off(&calls), id("order-1"));
    let runtime = runtime(store.clone());
    let started = runtime.start_as(run.clone(), graph.clone(), Map::new()).await.unwrap();
    let due = 1002 * DAY.as_millis() as i64;
    let error = started.await.unwrap_err();
    assert_eq!(error.to_string(), "the run waits at `cool_off`, until 1972-09-29T00:00:00.000Z");
    assert_eq!(
        error.to_value(),
        json!({
            "success": false,
            "status": "waiting",
            "graph_run_id": "order-1",
            "steps": 1,
            "open": [{
                "wait": "2#1",
                "node": "cool_off",
                "opened": "1972-09-27T00:00:00.000Z",
                "due": "1972-09-29T00:00:00.000Z",
            }],
            "state": {"inputs": {}, "log": [1]},
        }),
    );
    assert_eq!(waits(error), [("cool_off".to_owned(), Some(due))]);
    let summary = store.find(&run).await.unwrap();
    assert_eq!((summary.status, summary.holder.is_none()), (Status::Waiting, true));
    assert_eq!(summary.next_due, Some(SystemTime::UNIX_EPOCH + 1002 * DAY));
    assert_eq!(kinds(&records(&store, &run).await), ["start", "step", "step"]);
    assert_proven(&store, &graph, &run, Status::Running).await;

    // Too early, nothing changes.
    clock.advance(2 * DAY - Duration::from_millis(1));
    let early = runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap_err();
    assert_eq!(waits(early), [("cool_off".to_owned(), Some(due))]);
    assert_eq!(records(&store, &run).await.len(), 3);
    match runtime.outcome(&graph, &run).await.unwrap() {
        RunOutcome::Waiting { waits, steps: 1, is_cancelling: false, .. } => {
            assert_eq!(waits.iter().map(|wait| &wait.id).collect::<Vec<_>>(), [&WaitId::of_visit(2)]);
        }
        other => panic!("{other:?}"),
    }

    clock.advance(Duration::from_millis(1));
    let finished = runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap();
    assert_eq!((finished.output, finished.steps), (json!([1, "waited", 2]), 4));
    assert_eq!(*calls.lock().unwrap(), [1, 2]);
    let signed = records(&store, &run).await;
    assert_eq!(kinds(&signed), ["start", "step", "step", "resume", "take", "step", "step", "step", "end"]);
    assert_proven(&store, &graph, &run, Status::Completed).await;
    let all = checkpoints(&run, &signed, &SecretKey::from_seed(&KEY).public()).unwrap();
    let next: Vec<(u64, Vec<String>)> = all.into_iter().map(|one| (one.step, one.next)).collect();
    let expected = [(0, "pack"), (1, "cool_off"), (1, "cool_off"), (2, "ship"), (3, "done"), (4, "")];
    let expected = expected.map(|(step, next)| (step, next.split_terminator(' ').map(str::to_owned).collect()));
    assert_eq!(next, expected);
    assert_eq!(store.find(&run).await.unwrap().next_due, None);
}

#[tokio::test]
async fn a_run_that_can_wait_needs_a_store_that_keeps_it() {
    let calls = Calls::default();
    let without = Runtime::builder().grant("*").unwrap().build().unwrap();
    let error = without.start(cooling_off(&calls), Map::new()).await.unwrap_err();
    assert!(matches!(error, StartError::NoStore { .. }), "{error:?}");
    assert!(error.to_string().contains("can wait, which needs a store"), "{error}");
    assert!(calls.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_waiting_run_can_be_cancelled_and_is_not_removed_by_age() {
    let ((store, clock), calls) = (store(), Calls::default());
    let (graph, run) = (cooling_off(&calls), id("order-2"));
    let runtime = runtime(store.clone());
    let started = runtime.start_as(run.clone(), graph.clone(), Map::new()).await.unwrap();
    waits(started.await.unwrap_err());
    let all = store.list().await.unwrap();
    assert!(graph_runtime::store::Retention::default().pick(&all, clock.now() + 1000 * DAY).is_empty());
    let waiting = RunFilter { statuses: vec![Status::Waiting], ..RunFilter::default() };
    assert_eq!(runtime.runs(&waiting, &Default::default()).await.unwrap().runs.len(), 1);
    store.cancel(&run).await.unwrap();
    let error = runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap_err();
    assert!(matches!(error, RunError::Cancelled { steps: 1, .. }), "{error:?}");
    assert_proven(&store, &graph, &run, Status::Cancelled).await;
    assert_eq!(store.find(&run).await.unwrap().next_due, None);
    // A cancelled run can be resumed, and waits for what is left of its time.
    clock.advance(DAY);
    let error = runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap_err();
    assert_eq!(waits(error), [("cool_off".to_owned(), Some(1002 * DAY.as_millis() as i64))]);
    assert_eq!(store.find(&run).await.unwrap().status, Status::Waiting);
    assert_eq!(store.find(&run).await.unwrap().next_due, Some(SystemTime::UNIX_EPOCH + 1002 * DAY));
    clock.advance(DAY);
    assert_eq!(runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap().output, json!([1, "waited", 2]));
    assert_proven(&store, &graph, &run, Status::Completed).await;
    let error = runtime.resume(graph, &id("order-3")).await.unwrap_err();
    assert!(matches!(error, ResumeError::Stored(StoredRunError::Store(StoreError::NotFound(_)))));
}

/// Cancels runs that wait: one that nobody holds, one that somebody holds, and one whose journal another key signed.
async fn cancels_at_once(store: impl Store + Clone) {
    let calls = Calls::default();
    let (graph, run, held) = (cooling_off(&calls), id("order"), id("held"));
    let runtime = runtime(store.clone());
    for run in [&run, &held] {
        let started = runtime.start_as(run.clone(), graph.clone(), Map::new()).await.unwrap();
        waits(started.await.unwrap_err());
    }
    let stranger = Runtime::builder().store(store.clone()).sign_with(SecretKey::from_seed(&[9; 32])).build().unwrap();
    assert_eq!(stranger.cancel(&run).await.unwrap(), Status::Waiting, "only the key of the journal can end it");
    let found = store.find(&run).await.unwrap();
    assert_eq!((found.status, found.is_cancelling, found.holder.is_none()), (Status::Waiting, true, true));
    assert_eq!(runtime.cancel(&run).await.unwrap(), Status::Cancelled);
    let found = store.find(&run).await.unwrap();
    assert_eq!((found.status, found.is_cancelling, found.next_due), (Status::Cancelled, false, None));
    assert!(found.holder.is_none());
    assert_eq!(kinds(&records(&store, &run).await), ["start", "step", "step", "end"]);
    assert_proven(&store, &graph, &run, Status::Cancelled).await;
    let again = runtime.cancel(&run).await.unwrap_err();
    assert!(matches!(again, StoreError::Ended { status: Status::Cancelled, .. }), "{again}");
    // A run that somebody holds is asked to stop.
    let lease = store.lease(&held).await.unwrap();
    assert_eq!(runtime.cancel(&held).await.unwrap(), Status::Waiting);
    assert!(lease.cancel_request().is_set());
    drop(lease);
    while store.find(&held).await.unwrap().holder.is_some() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(runtime.cancel(&held).await.unwrap(), Status::Cancelled);
    // It can be resumed, and waits for what is left of its time.
    waits(runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap_err());
    assert_eq!(runtime.cancel(&run).await.unwrap(), Status::Cancelled);
    assert_proven(&store, &graph, &run, Status::Cancelled).await;
    assert_eq!(kinds(&records(&store, &run).await), ["start", "step", "step", "end", "resume", "end"]);
    let none = runtime.cancel(&id("nothing")).await.unwrap_err();
    assert!(matches!(none, StoreError::NotFound(_)), "{none}");
    let none = Runtime::builder().build().unwrap().cancel(&run).await.unwrap_err();
    assert!(matches!(none, StoreError::None), "{none}");
}

#[tokio::test]
async fn a_cancel_of_a_waiting_run_ends_it_at_once() {
    cancels_at_once(MemoryStore::new()).await;
    let directory = tempfile::tempdir().unwrap();
    cancels_at_once(SqliteStore::open(directory.path().join("runs.db")).await.unwrap()).await;
}

/// Cancels runs twice at about the time at which a worker claims them.
async fn races_a_worker(store: impl Store + Clone, rounds: u64) {
    let calls = Calls::default();
    let program = Program {
        nodes: &[
            ("wait", r#"{"line":1,"does":"wait","wait":{"timeout_ms":15},"next":[{"to":"done"}]}"#),
            ("done", r#"{"line":2,"does":"return","output":"waited"}"#),
        ],
        ..PROGRAM
    };
    let (graph, runtime) = (graph(&calls, &program), runtime(store.clone()));
    let worker = runtime.worker(WorkerOptions::default().graph(graph.clone())).unwrap();
    for round in 0..rounds {
        let run = id(&format!("run-{round}"));
        let began = tokio::time::Instant::now();
        let started = runtime.start_as(run.clone(), graph.clone(), Map::new()).await.unwrap();
        waits(started.await.unwrap_err());
        tokio::time::sleep_until(began + Duration::from_micros(14_000 + round * 97 % 6000)).await;
        let cancelling = |runtime: Runtime, run: RunId| tokio::spawn(async move { runtime.cancel(&run).await });
        let both = [cancelling(runtime.clone(), run.clone()), cancelling(runtime.clone(), run.clone())];
        let mut at_once = 0;
        for cancelled in both {
            match cancelled.await.unwrap() {
                Ok(status) => at_once += u32::from(status == Status::Cancelled),
                Err(error) => assert!(matches!(error, StoreError::Ended { .. }), "{error}"),
            }
        }
        let ended = loop {
            let found = store.find(&run).await.unwrap();
            if found.status.has_ended() {
                break found.status;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        };
        assert!(at_once == 0 || ended == Status::Cancelled, "{ended:?}");
        let kinds = kinds(&records(&store, &run).await);
        assert_eq!(kinds.iter().filter(|kind| *kind == "end").count(), 1, "{kinds:?}");
        assert_eq!(kinds.last().unwrap(), "end", "{kinds:?}");
        assert_proven(&store, &graph, &run, ended).await;
    }
    assert!(worker.shutdown(DAY).await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_cancel_that_races_a_worker_ends_a_run_once() {
    races_a_worker(MemoryStore::new(), 100).await;
    let directory = tempfile::tempdir().unwrap();
    races_a_worker(SqliteStore::open(directory.path().join("runs.db")).await.unwrap(), 40).await;
}

/// A graph that calls a tool once a day, so many times.
fn reminding(calls: &Calls, days: u64) -> Interpreted {
    let remind = format!(
        r#"{{"line":1,"does":{{"action":0}},"params":{{"n":"${{inputs.n}}"}},"next":[{{"to":"done","when":{{"path":"visit.number","op":"gte","value":{days}}}}},{{"to":"day"}}]}}"#
    );
    let program = Program {
        start: 1,
        nodes: &[
            ("remind", &remind),
            ("day", r#"{"line":2,"does":"wait","wait":{"timeout_ms":86400000},"next":[{"to":"remind"}]}"#),
            ("done", r#"{"line":3,"does":"return","output":"done"}"#),
        ],
        settings: r#"{"max_steps":1000}"#,
        ..PROGRAM
    };
    graph(calls, &program)
}

fn numbered(n: i64) -> Map<String, serde_json::Value> {
    Map::from_iter([("n".to_owned(), json!(n))])
}

/// A store with a clock of Tokio, which tests pause.
pub(crate) fn virtual_store() -> (MemoryStore, Arc<TokioClock>) {
    let clock = Arc::new(TokioClock::at(SystemTime::UNIX_EPOCH + 1000 * DAY));
    (MemoryStore::with_clock(Arc::clone(&clock) as Arc<dyn Clock>), clock)
}

pub(crate) fn clocked(store: &MemoryStore, clock: &Arc<TokioClock>) -> Runtime {
    let builder = Runtime::builder().store(store.clone()).sign_with(SecretKey::from_seed(&KEY));
    builder.clock(Arc::clone(clock) as Arc<dyn Clock>).grant("*").unwrap().build().unwrap()
}

/// Waits until a run has this status.
pub(crate) async fn until(store: &MemoryStore, run: &RunId, status: Status) {
    for _ in 0..1_000_000 {
        if store.find(run).await.unwrap().status == status {
            return;
        }
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
    let found = store.find(run).await.unwrap();
    assert_eq!(found.status, status);
}

#[tokio::test(start_paused = true)]
async fn a_worker_continues_runs_when_their_time_has_come() {
    let ((store, clock), calls) = (virtual_store(), Calls::default());
    let (graph, runtime, began) = (reminding(&calls, 30), clocked(&store, &clock), std::time::Instant::now());
    let worker = runtime.worker(WorkerOptions::default().graph(graph.clone())).unwrap();
    for n in 0..3 {
        let run = runtime.start_as(id(&format!("run-{n}")), graph.clone(), numbered(n)).await.unwrap();
        waits(run.await.unwrap_err());
        clock.sleep(Duration::from_secs(3600)).await;
    }
    until(&store, &id("run-2"), Status::Completed).await;
    assert!(clock.now() >= SystemTime::UNIX_EPOCH + 1030 * DAY);
    assert!(began.elapsed() < Duration::from_secs(20), "a month of reminders took {:?}", began.elapsed());
    let expected: Vec<i64> = (0..30).flat_map(|_| 0..3).collect();
    assert_eq!(*calls.lock().unwrap(), expected);
    assert_eq!((worker.status().claimed, worker.status().postponed), (90, 0));
    for n in 0..3 {
        assert_proven(&store, &graph, &id(&format!("run-{n}")), Status::Completed).await;
    }
    assert!(worker.shutdown(DAY).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn workers_share_the_runs_of_a_store() {
    let ((store, clock), calls) = (virtual_store(), Calls::default());
    let graph = reminding(&calls, 3);
    let starts = clocked(&store, &clock);
    for n in 0..100 {
        let run = starts.start_as(id(&format!("run-{n}")), graph.clone(), numbered(n)).await.unwrap();
        waits(run.await.unwrap_err());
    }
    let workers: Vec<_> = (1..=4)
        .map(|concurrency| {
            let options = WorkerOptions::default().graph(graph.clone()).concurrency(concurrency);
            clocked(&store, &clock).worker(options).unwrap()
        })
        .collect();
    for n in 0..100 {
        until(&store, &id(&format!("run-{n}")), Status::Completed).await;
    }
    let mut calls = calls.lock().unwrap().clone();
    calls.sort_unstable();
    assert_eq!(calls, (0..100).flat_map(|n| [n; 3]).collect::<Vec<i64>>());
    assert!(workers.iter().all(|worker| worker.status().claimed > 0), "each has a part");
    assert_eq!(workers.iter().map(|worker| worker.status().claimed).sum::<u64>(), 300);
}

/// A worker leaves a run alone that failed, until somebody lets the workers continue it.
#[tokio::test(start_paused = true)]
async fn a_worker_continues_a_run_that_is_to_be_retried() {
    let ((store, clock), calls) = (virtual_store(), Calls::default());
    let of_tool = Arc::clone(&calls);
    let program = Program { nodes: &[("call", r#"{"line":1,"does":{"action":0},"params":{"n":1}}"#)], ..PROGRAM };
    let graph = Interpreted::new(&program, move |_, _| {
        let mut calls = of_tool.lock().unwrap();
        calls.push(1);
        if calls.len() == 1 { Err(ActionError::permanent("it is away")) } else { Ok(json!(1)) }
    });
    let (run, runtime) = (id("order"), clocked(&store, &clock));
    let worker = clocked(&store, &clock).worker(WorkerOptions::default().graph(graph.clone())).unwrap();
    runtime.start_as(run.clone(), graph.clone(), Map::new()).await.unwrap().await.unwrap_err();
    clock.sleep(DAY).await;
    assert_eq!((calls.lock().unwrap().len(), worker.status().claimed), (1, 0));
    assert_eq!(runtime.retry(graph.clone(), &run).await.unwrap(), Status::Running);
    until(&store, &run, Status::Completed).await;
    assert_eq!((calls.lock().unwrap().len(), worker.status().claimed), (2, 1));
    assert_proven(&store, &graph, &run, Status::Completed).await;
    // A run that has completed stays so.
    assert_eq!(runtime.retry(graph.clone(), &run).await.unwrap(), Status::Completed);
    assert!(runtime.retry(graph.clone(), &id("other")).await.is_err());
    // So does a run that waits, and one that was cancelled continues to wait.
    drop(worker);
    let (waits, waiting) = (cooling_off(&Arc::default()), id("waiting"));
    runtime.start_as(waiting.clone(), waits.clone(), Map::new()).await.unwrap().await.unwrap_err();
    assert_eq!(runtime.retry(waits.clone(), &waiting).await.unwrap(), Status::Waiting);
    assert_eq!(runtime.cancel(&waiting).await.unwrap(), Status::Cancelled);
    assert_eq!(runtime.retry(waits.clone(), &waiting).await.unwrap(), Status::Running);
    let left = runtime.resume(waits, &waiting).await.unwrap().await.unwrap_err();
    assert!(matches!(left, RunError::Waiting { .. }), "{left}");
    runtime.shutdown(Duration::from_secs(1)).await;
    let refused = runtime.retry(graph, &run).await;
    assert!(matches!(refused, Err(ResumeError::Start(StartError::ShutDown))), "{refused:?}");
}

/// A run that waits can be edited. It waits as before, for workers, signals and whoever cancels it.
#[tokio::test(start_paused = true)]
async fn a_run_that_waits_is_edited() {
    let ((store, clock), calls) = (virtual_store(), Calls::default());
    let (graph, runtime) = (cooling_off(&calls), clocked(&store, &clock));
    let worker = clocked(&store, &clock).worker(WorkerOptions::default().graph(graph.clone())).unwrap();
    for name in ["continued", "cancelled"] {
        let run = id(name);
        runtime.start_as(run.clone(), graph.clone(), Map::new()).await.unwrap().await.unwrap_err();
        let set = Map::from_iter([("log".to_owned(), json!([format!("edited {name}")]))]);
        let edit = StateEdit { by: "Ann".to_owned(), why: "a test".to_owned(), set, ..StateEdit::default() };
        runtime.edit(&graph, &run, edit).await.unwrap();
        assert_eq!(store.find(&run).await.unwrap().status, Status::Waiting);
    }
    clock.sleep(Duration::from_secs(3600)).await;
    assert_eq!(worker.status().claimed, 0, "nothing has happened");
    assert_eq!(runtime.cancel(&id("cancelled")).await.unwrap(), Status::Cancelled);
    assert_proven(&store, &graph, &id("cancelled"), Status::Cancelled).await;
    until(&store, &id("continued"), Status::Completed).await;
    assert_proven(&store, &graph, &id("continued"), Status::Completed).await;
    let history = runtime.outcome(&graph, &id("continued")).await.unwrap();
    assert!(format!("{history:?}").contains("edited continued"), "{history:?}");
}

#[tokio::test(start_paused = true)]
async fn a_worker_continues_what_others_left_behind() {
    let ((store, clock), calls) = (virtual_store(), Calls::default());
    let stuck = Interpreted::waiting(
        &Program { nodes: &[("call", r#"{"line":1,"does":{"action":0},"params":{"n":1}}"#)], ..PROGRAM },
        {
            let calls = Arc::clone(&calls);
            move |_, _| {
                let is_first = {
                    let mut calls = calls.lock().unwrap();
                    calls.push(1);
                    calls.len() == 1
                };
                Box::pin(async move {
                    if is_first {
                        std::future::pending::<()>().await;
                    }
                    Ok(json!(1))
                })
            }
        },
    );
    let runtime = clocked(&store, &clock);
    let run = runtime.start_as(id("left"), stuck.clone(), Map::new()).await.unwrap();
    clock.sleep(DAY).await;
    let worker = clocked(&store, &clock).worker(WorkerOptions::default().graph(stuck.clone())).unwrap();
    clock.sleep(DAY).await;
    assert_eq!((calls.lock().unwrap().len(), worker.status().claimed), (1, 0), "its process holds it");
    run.abort();
    until(&store, &id("left"), Status::Completed).await;
    assert_eq!(calls.lock().unwrap().len(), 2);
    // The graph of the next run has the same id, and its worker is another one.
    drop(worker);
    // A run that waits and is cancelled ends at once.
    let cooling = cooling_off(&calls);
    let other = clocked(&store, &clock).worker(WorkerOptions::default().graph(cooling.clone())).unwrap();
    let run = runtime.start_as(id("cool"), cooling.clone(), Map::new()).await.unwrap();
    waits(run.await.unwrap_err());
    let before = clock.now();
    store.cancel(&id("cool")).await.unwrap();
    until(&store, &id("cool"), Status::Cancelled).await;
    assert!(clock.now().duration_since(before).unwrap() <= Duration::from_secs(60));
    assert_proven(&store, &cooling, &id("cool"), Status::Cancelled).await;
    drop(other);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_cannot_be_resumed_is_tried_again_later() {
    let ((store, clock), calls) = (virtual_store(), Calls::default());
    let (graph, run) = (cooling_off(&calls), id("order"));
    let started = clocked(&store, &clock).start_as(run.clone(), graph.clone(), Map::new()).await.unwrap();
    waits(started.await.unwrap_err());
    let powerless = Runtime::builder().store(store.clone()).sign_with(SecretKey::from_seed(&KEY));
    let powerless = powerless.clock(Arc::clone(&clock) as Arc<dyn Clock>).build().unwrap();
    let worker = powerless.worker(WorkerOptions::default().graph(graph.clone())).unwrap();
    clock.sleep(2 * DAY + Duration::from_secs(3600)).await;
    // After 1, 2, 4 … 256 seconds, and then every five minutes.
    let status = worker.status();
    assert!((15..=25).contains(&status.postponed), "{status:?}");
    assert_eq!(store.find(&run).await.unwrap().status, Status::Waiting);
    assert_eq!(records(&store, &run).await.len(), 3, "nothing was written");
    let able = clocked(&store, &clock).worker(WorkerOptions::default().graph(graph.clone())).unwrap();
    until(&store, &run, Status::Completed).await;
    assert_proven(&store, &graph, &run, Status::Completed).await;
    drop((worker, able));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_its_store_hands_out_too_early_is_tried_again_later() {
    let ((store, clock), calls) = (virtual_store(), Calls::default());
    let (graph, run, runtime) = (cooling_off(&calls), id("order"), clocked(&store, &clock));
    let started = runtime.start_as(run.clone(), graph.clone(), Map::new()).await.unwrap();
    waits(started.await.unwrap_err());
    // Somebody writes another time into the store than that in the journal.
    let lease = store.lease(&run).await.unwrap();
    let early = Wait::new(WaitId::of_visit(2), "cool_off", 0, Some(0));
    let changes = WaitChanges { open: vec![early], ..WaitChanges::default() };
    store.append_waiting(&lease, 3, Vec::new(), Status::Waiting, changes).await.unwrap();
    drop(lease);
    let worker = runtime.worker(WorkerOptions::default().graph(graph.clone())).unwrap();
    clock.sleep(Duration::from_secs(3600)).await;
    let status = worker.status();
    assert!((15..=25).contains(&status.postponed) && status.claimed == status.postponed, "{status:?}");
    assert_eq!((store.find(&run).await.unwrap().status, records(&store, &run).await.len()), (Status::Waiting, 3));
    until(&store, &run, Status::Completed).await;
    assert!(clock.now() >= SystemTime::UNIX_EPOCH + 1002 * DAY, "the journal's time counts");
    assert_proven(&store, &graph, &run, Status::Completed).await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_is_shut_down_leaves_its_runs_to_others() {
    let ((store, clock), calls) = (virtual_store(), Calls::default());
    let (graph, run) = (cooling_off(&calls), id("order"));
    let runtime = clocked(&store, &clock);
    let worker = runtime.worker(WorkerOptions::default().graph(graph.clone())).unwrap();
    let started = runtime.start_as(run.clone(), graph.clone(), Map::new()).await.unwrap();
    waits(started.await.unwrap_err());
    assert!(worker.shutdown(DAY).await.is_empty());
    clock.sleep(3 * DAY).await;
    assert_eq!(store.find(&run).await.unwrap().status, Status::Waiting, "nobody continues it");
    let other = runtime.worker(WorkerOptions::default().graph(graph.clone())).unwrap();
    until(&store, &run, Status::Completed).await;
    // A runtime that is shut down continues nothing.
    runtime.shutdown(DAY).await;
    let second = clocked(&store, &clock);
    let started = second.start_as(id("second"), graph.clone(), Map::new()).await.unwrap();
    waits(started.await.unwrap_err());
    clock.sleep(3 * DAY).await;
    assert_eq!(store.find(&id("second")).await.unwrap().status, Status::Waiting);
    drop(other);
    let none = Runtime::builder().build().unwrap().worker(WorkerOptions::default()).unwrap_err();
    assert!(matches!(none, WorkerError::Store(StoreError::None)), "{none}");
}

/// A wait of two days in a run that has a day.
fn hurried(calls: &Calls) -> Interpreted {
    let program = Program {
        keys: &[Key { name: "log", initial: Some("[]") }],
        settings: r#"{"channels":{"log":"append"},"deadline_ms":86400000}"#,
        nodes: &[
            (
                "pack",
                r#"{"line":1,"does":{"action":0},"params":{"n":1},"assign":{"log":"${result}"},"next":[{"to":"nap"}]}"#,
            ),
            ("nap", r#"{"line":2,"does":"wait","wait":{"timeout_ms":3600000},"next":[{"to":"cool_off"}]}"#),
            (
                "cool_off",
                r#"{"line":3,"does":"wait","wait":{"timeout_ms":172800000},"assign":{"log":"waited"},"next":[{"to":"done"}]}"#,
            ),
            ("done", r#"{"line":4,"does":"return","output":"${state.log}"}"#),
        ],
        ..PROGRAM
    };
    graph(calls, &program)
}

#[tokio::test]
async fn a_deadline_ends_a_run_although_it_waits() {
    let ((store, clock), calls) = (store(), Calls::default());
    let (graph, run, runtime) = (hurried(&calls), id("order-1"), runtime(store.clone()));
    let started = runtime.start_as(run.clone(), graph.clone(), Map::new()).await.unwrap();
    waits(started.await.unwrap_err());
    let start = 1000 * DAY.as_millis() as i64;
    let deadline =
        |records: &[SignedRecord]| records[0].body.contains(&format!(r#""deadline":{}"#, start + 86_400_000));
    assert!(deadline(&records(&store, &run).await));
    clock.advance(Duration::from_secs(3600));
    let left = runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap_err();
    assert_eq!(waits(left), [("cool_off".to_owned(), Some(start + 3_600_000 + 172_800_000))]);
    let summary = store.find(&run).await.unwrap();
    let due = summary.next_due.map(graph_model::timestamp::unix_milliseconds);
    assert_eq!(due, Some(start + 86_400_000), "the store hands it out at its deadline");
    // A fork has a deadline of its own.
    let fork = runtime.fork(&graph, &run, Fork { run: Some(id("fork")), ..Fork::default() }).await.unwrap();
    clock.advance(Duration::from_secs(23 * 3600 - 1));
    assert_eq!(waits(runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap_err()).len(), 1);
    clock.advance(Duration::from_secs(1));
    for _ in 0..2 {
        let error = runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap_err();
        assert!(matches!(error, RunError::Deadline { .. }), "{error}");
        assert_proven(&store, &graph, &run, Status::Error).await;
    }
    let left = runtime.resume(graph.clone(), &fork).await.unwrap().await.unwrap_err();
    assert_eq!(waits(left)[0].0, "cool_off");
    assert_eq!(*calls.lock().unwrap(), [1]);
    // A journal without the deadline of its graph, or with one that its graph does not have, is not one of it.
    let key = SecretKey::from_seed(&KEY).public();
    let signed = records(&store, &run).await;
    let field = format!(r#","deadline":{}"#, start + 86_400_000);
    let forged = signed_again(&signed, &|body| body.replace(&field, ""));
    assert_ne!(forged, signed);
    assert!(audit(&graph, &run, &forged, &key, None).is_err());
    let honest = cooled_off().await;
    let plain = signed_again(&honest, &|body| body.replace(r#""inputs":{}"#, r#""inputs":{},"deadline":5"#));
    assert_ne!(plain, honest);
    assert!(audit(&cooling_off(&calls), &id("plain"), &plain, &key, None).is_err());
}

/// Returns the journal of a run without a deadline.
async fn cooled_off() -> Vec<SignedRecord> {
    let ((store, _), calls) = (store(), Calls::default());
    let started = runtime(store.clone()).start_as(id("plain"), cooling_off(&calls), Map::new()).await.unwrap();
    waits(started.await.unwrap_err());
    let signed = records(&store, &id("plain")).await;
    let key = SecretKey::from_seed(&KEY).public();
    assert!(audit(&cooling_off(&calls), &id("plain"), &signed, &key, None).is_ok());
    signed
}

#[tokio::test(start_paused = true)]
async fn a_worker_ends_a_run_at_its_deadline() {
    let ((store, clock), calls) = (virtual_store(), Calls::default());
    let (graph, run, runtime) = (hurried(&calls), id("order-1"), clocked(&store, &clock));
    let worker = clocked(&store, &clock).worker(WorkerOptions::default().graph(graph.clone())).unwrap();
    let started = runtime.start_as(run.clone(), graph.clone(), Map::new()).await.unwrap();
    waits(started.await.unwrap_err());
    let before = clock.now();
    until(&store, &run, Status::Error).await;
    let took = clock.now().duration_since(before).unwrap();
    assert!(took >= DAY && took < DAY + Duration::from_secs(120), "{took:?}");
    assert_proven(&store, &graph, &run, Status::Error).await;
    worker.shutdown(DAY).await;
}

/// A wait that is over does not take with it one that is over a millisecond later.
#[tokio::test]
async fn a_wait_is_over_at_its_millisecond() {
    let ((store, clock), calls) = (store(), Calls::default());
    let program = Program {
        nodes: &[
            ("fork", r#"{"line":1,"does":"gate","next":{"all":[{"to":"one"},{"to":"other"}]}}"#),
            ("one", r#"{"line":2,"does":"wait","wait":{"timeout_ms":1000},"next":[{"to":"met"}]}"#),
            ("other", r#"{"line":3,"does":"wait","wait":{"timeout_ms":1001},"next":[{"to":"met"}]}"#),
            ("met", r#"{"line":4,"does":"return","join":{"of":[1,2],"fan":0,"closes":true}}"#),
        ],
        ..PROGRAM
    };
    let (graph, run, runtime) = (graph(&calls, &program), id("order-1"), runtime(store.clone()));
    let started = runtime.start_as(run.clone(), graph.clone(), Map::new()).await.unwrap();
    assert_eq!(waits(started.await.unwrap_err()).len(), 2);
    clock.advance(Duration::from_millis(999));
    assert_eq!(waits(runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap_err()).len(), 2);
    clock.advance(Duration::from_millis(1));
    let left = waits(runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap_err());
    assert_eq!(left.iter().map(|(node, _)| node.as_str()).collect::<Vec<_>>(), ["other"]);
    clock.advance(Duration::from_millis(1));
    runtime.resume(graph.clone(), &run).await.unwrap().await.unwrap();
    assert_proven(&store, &graph, &run, Status::Completed).await;
}

//! The promises about the marks of schedules.

use futures_util::stream::{FuturesUnordered, StreamExt};

use super::{record, run};
use crate::status::Status;
use crate::store::Store;
use crate::store::error::StoreError;
use crate::store::schedules::{ScheduleChange, ScheduleMark};

/// As [`suite`](super::suite), for a store that keeps the marks of schedules; call both. `make` makes an empty store.
///
/// # Panics
///
/// If the store breaks a promise of [`Store`], with the promise.
pub async fn schedule_suite<S: Store, F: Future<Output = S>>(make: impl Fn() -> F) {
    a_mark_changes_only_from_the_expected_revision(&make().await).await;
    a_run_of_a_tick_begins_with_its_mark_or_not_at_all(&make().await).await;
    a_mark_outlives_the_runs_of_its_schedule(&make().await).await;
    one_of_many_workers_changes_a_mark(&make().await).await;
}

async fn mark(store: &impl Store, schedule: &str) -> Option<(u64, String)> {
    let found = store.schedule_mark(schedule).await.expect("a mark can be read");
    found.map(|ScheduleMark { revision, text }| (revision, text))
}

/// A change is made once, and others are refused.
pub(super) async fn a_mark_changes_only_from_the_expected_revision(store: &impl Store) {
    assert_eq!(mark(store, "a").await, None, "a schedule has no mark at first");
    let change = |schedule: &str, expected, text: &str| ScheduleChange::new(schedule, expected, text);
    let early = store.change_schedule(&change("a", 1, "x")).await;
    assert!(matches!(early, Err(StoreError::ScheduleChanged { found: 0, expected: 1, .. })), "{early:?}");
    store.change_schedule(&change("a", 0, "{\"last\":1,\"text\":\"ü\"}")).await.expect("the first mark is written");
    store.change_schedule(&change("b", 0, "{}")).await.expect("another schedule has a mark of its own");
    let again = store.change_schedule(&change("a", 0, "x")).await;
    assert!(matches!(again, Err(StoreError::ScheduleChanged { found: 1, expected: 0, .. })), "{again:?}");
    assert_eq!(mark(store, "a").await, Some((1, "{\"last\":1,\"text\":\"ü\"}".to_owned())));
    store.change_schedule(&change("a", 1, "{\"last\":2}")).await.expect("a mark can be replaced");
    assert_eq!(mark(store, "a").await, Some((2, "{\"last\":2}".to_owned())));
    assert_eq!(mark(store, "b").await, Some((1, "{}".to_owned())));
}

/// If the run exists or the mark is another one, neither is written.
pub(super) async fn a_run_of_a_tick_begins_with_its_mark_or_not_at_all(store: &impl Store) {
    let (first, second) = (run("a-1"), run("a-2"));
    let lease = store
        .create_at_tick(&first, "test/graph", vec![record(0)], &ScheduleChange::new("a", 0, "one"))
        .await
        .expect("a run can be created with the first mark");
    assert_eq!(mark(store, "a").await, Some((1, "one".to_owned())));
    store.append(&lease, 1, vec![record(1)], Status::Completed).await.expect("the run is leased to the caller");
    let other = store.create_at_tick(&second, "test/graph", vec![record(0)], &ScheduleChange::new("a", 0, "two")).await;
    assert!(matches!(other, Err(StoreError::ScheduleChanged { found: 1, .. })), "a mark that changed: {other:?}");
    assert!(matches!(store.find(&second).await, Err(StoreError::NotFound(_))), "a refused run does not exist");
    let other = store.create_at_tick(&first, "test/graph", vec![record(0)], &ScheduleChange::new("a", 1, "two")).await;
    assert!(matches!(other, Err(StoreError::Exists(_))), "a run that exists: {other:?}");
    assert_eq!(mark(store, "a").await, Some((1, "one".to_owned())), "a refused change is not made");
}

/// Removing runs does not change marks.
pub(super) async fn a_mark_outlives_the_runs_of_its_schedule(store: &impl Store) {
    let id = run("a-1");
    let change = ScheduleChange::new("a", 0, "one");
    let lease = store.create_at_tick(&id, "test/graph", vec![record(0)], &change).await.expect("a run is created");
    store.append(&lease, 1, vec![record(1)], Status::Completed).await.expect("the holder of a lease can append");
    drop(lease);
    store.remove(&id).await.expect("a run that ended can be removed");
    assert_eq!(mark(store, "a").await, Some((1, "one".to_owned())), "the mark stays");
    let again = store.create_at_tick(&id, "test/graph", vec![record(0)], &change).await;
    assert!(matches!(again, Err(StoreError::ScheduleChanged { .. })), "the tick does not run again: {again:?}");
    assert!(matches!(store.find(&id).await, Err(StoreError::NotFound(_))));
}

/// Only one of several workers begins the run of a tick.
pub(super) async fn one_of_many_workers_changes_a_mark(store: &impl Store) {
    let change = ScheduleChange::new("a", 0, "one");
    let change = &change;
    let begin = |at: usize| async move {
        let id = run(&format!("a-{at}"));
        let lease = store.create_at_tick(&id, "test/graph", vec![record(0)], change).await;
        let is_late = matches!(lease, Err(StoreError::ScheduleChanged { .. }));
        assert!(is_late || lease.is_ok(), "a worker that is late learns of it: {lease:?}");
        !is_late
    };
    let begun: Vec<bool> = (0..16).map(begin).collect::<FuturesUnordered<_>>().collect().await;
    assert_eq!(begun.iter().filter(|begun| **begun).count(), 1, "one worker begins the run of a tick");
    assert_eq!(mark(store, "a").await, Some((1, "one".to_owned())));
}

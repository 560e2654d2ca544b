//! Promises of stores whose runs wait, beyond those that the conformance suite tests. Each test is for any store.

use std::time::{Duration, Instant, SystemTime};

use file_store::FileStore;
use graph_runtime::record::SignedRecord;
use graph_runtime::store::{Claim, Claimed, Lease, StoreError, Wait, WaitChanges, WaitId};
use graph_runtime::{Digest, RunId, Status, Store};

#[tokio::test(flavor = "multi_thread")]
async fn the_store_claims_runs_as_it_should() {
    let directory = tempfile::tempdir().unwrap();
    let open = |name: &str| FileStore::open(directory.path().join(name)).unwrap();
    a_run_that_was_left_behind_does_not_wait(&open("left")).await;
    a_wait_without_a_time_is_not_over(&open("endless")).await;
    a_cancel_holds_when_the_run_begins_to_wait(&open("cancel")).await;
    a_claim_ends_every_lease_before(&open("fence")).await;
    runs_of_other_graphs_are_not_claimed(&open("graphs")).await;
    runs_inside_others_are_not_claimed(&open("inside")).await;
    a_postponement_holds_until_its_time(&open("later")).await;
    an_end_forgets_the_waits(&open("end")).await;
    a_removal_forgets_the_waits(&open("removed")).await;
    a_run_may_wait_again_without_records(&open("again")).await;
    a_claim_that_nobody_waits_for_is_given_back(&open("dropped")).await;
    no_news_come_while_nothing_happens(&open("news")).await;
}

/// A time that is over, and one that is not, by any clock.
const PAST: i64 = 1000;
const FUTURE: i64 = 32_503_680_000_000;

fn id(name: &str) -> RunId {
    RunId::new(name).unwrap()
}

fn digest() -> Digest {
    Digest::of("graph")
}

/// A record; the first one of a run names its graph.
fn record(seq: u64) -> SignedRecord {
    let body = format!("{{\"seq\":{seq},\"digest\":\"{}\"}}", digest());
    SignedRecord { seq, body, signature: [7; 64], end: Some([9; 32]) }
}

fn opens(step: u64, due: Option<i64>) -> WaitChanges {
    WaitChanges { open: vec![Wait::new(WaitId::of_visit(step), "node", 1, due)], ..WaitChanges::default() }
}

async fn create(store: &impl Store, name: &str) -> Lease {
    store.create(&id(name), "test/waits", vec![record(0)]).await.unwrap()
}

/// Begins a run that waits. Returns its lease.
async fn waiting(store: &impl Store, name: &str, due: Option<i64>) -> Lease {
    let lease = create(store, name).await;
    store.append_waiting(&lease, 1, vec![record(1)], Status::Waiting, opens(1, due)).await.unwrap();
    lease
}

async fn claim(store: &impl Store) -> Vec<Claimed> {
    store.claim(&Claim::new("test/waits", digest(), 9)).await.unwrap()
}

/// Claims one run, which may be given back a little after its lease was dropped.
async fn claim_one(store: &impl Store) -> Claimed {
    for _ in 0..1000 {
        if let Some(one) = claim(store).await.pop() {
            return one;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    unreachable!("no run can be claimed")
}

async fn next_wake(store: &impl Store) -> Option<i64> {
    store.next_wake(&[("test/waits".to_owned(), digest())]).await.unwrap()
}

async fn due(store: &impl Store, name: &str) -> Option<i64> {
    let due = store.find(&id(name)).await.unwrap().next_due?;
    Some(i64::try_from(due.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis()).unwrap())
}

async fn a_run_that_was_left_behind_does_not_wait(store: &impl Store) {
    let lease = create(store, "run").await;
    store.append_waiting(&lease, 1, vec![record(1)], Status::Running, opens(1, Some(FUTURE))).await.unwrap();
    assert_eq!(next_wake(store).await, None, "it is held");
    drop(lease);
    let one = claim_one(store).await;
    assert_eq!((one.lease.run(), due(store, "run").await), (&id("run"), Some(FUTURE)), "its other branches continue");
}

async fn a_wait_without_a_time_is_not_over(store: &impl Store) {
    drop(waiting(store, "endless", None).await);
    let lease = create(store, "nothing").await;
    store.append_waiting(&lease, 1, Vec::new(), Status::Waiting, WaitChanges::default()).await.unwrap();
    drop(lease);
    assert_eq!((next_wake(store).await, claim(store).await.len()), (None, 0));
    store.cancel(&id("endless")).await.unwrap();
    assert_eq!(claim_one(store).await.lease.run(), &id("endless"));
}

async fn a_cancel_holds_when_the_run_begins_to_wait(store: &impl Store) {
    let lease = create(store, "run").await;
    store.cancel(&id("run")).await.unwrap();
    store.append_waiting(&lease, 1, vec![record(1)], Status::Waiting, opens(1, Some(FUTURE))).await.unwrap();
    drop(lease);
    assert!(store.find(&id("run")).await.unwrap().is_cancelling);
    assert!(next_wake(store).await.is_some_and(|at| at <= PAST), "it can end now");
    let one = claim_one(store).await;
    assert!(one.lease.cancel_request().is_set());
    drop(one);
    for _ in 0..1000 {
        match store.lease(&id("run")).await {
            Ok(lease) => return assert!(lease.cancel_request().is_set()),
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
    unreachable!("the lease was not given back")
}

async fn a_claim_ends_every_lease_before(store: &impl Store) {
    let old = waiting(store, "run", Some(PAST)).await;
    let one = claim_one(store).await;
    assert!(one.lease.token() > old.token());
    let changes = WaitChanges { close: vec![WaitId::of_visit(1)], ..WaitChanges::default() };
    let refused = store.append_waiting(&old, 2, vec![record(2)], Status::Running, changes).await;
    assert!(matches!(refused, Err(StoreError::LeaseLost(_))), "{refused:?}");
    assert_eq!(due(store, "run").await, Some(PAST), "nothing has changed");
    drop(old);
    assert!(matches!(store.lease(&id("run")).await, Err(StoreError::Leased { .. })), "it gives nothing back");
    store.append(&one.lease, 2, vec![record(2)], Status::Running).await.unwrap();
}

async fn runs_of_other_graphs_are_not_claimed(store: &impl Store) {
    for (run, graph, due) in [("one", "test/one", PAST + 1), ("two", "test/two", PAST)] {
        let lease = store.create(&id(run), graph, vec![record(0)]).await.unwrap();
        store.append_waiting(&lease, 1, vec![record(1)], Status::Waiting, opens(1, Some(due))).await.unwrap();
    }
    let graphs = ["test/none", "test/one", "test/two"].map(|graph| (graph.to_owned(), digest()));
    assert_eq!(store.next_wake(&graphs).await.unwrap(), Some(PAST), "the earliest of all graphs");
    assert_eq!(store.next_wake(&graphs[..2]).await.unwrap(), Some(PAST + 1));
    assert_eq!(store.next_wake(&graphs[..1]).await.unwrap(), None);
    assert_eq!(store.next_wake(&[]).await.unwrap(), None);
    let claimed = store.claim(&Claim::new("test/one", digest(), 9)).await.unwrap();
    assert_eq!(claimed.iter().map(|one| one.lease.run().as_str()).collect::<Vec<_>>(), ["one"]);
    assert!(store.claim(&Claim::new("test/two", Digest::of("other"), 9)).await.unwrap().is_empty());
    assert!(store.claim(&Claim::new("test/two", digest(), 0)).await.unwrap().is_empty());
}

async fn runs_inside_others_are_not_claimed(store: &impl Store) {
    let body = format!("{{\"digest\":\"{}\",\"parent\":{{\"run\":\"outer\",\"step\":1,\"node\":\"n\"}}}}", digest());
    let first = SignedRecord { body, ..record(0) };
    drop(store.create(&id("inside"), "test/waits", vec![first]).await.unwrap());
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!((next_wake(store).await, claim(store).await.len()), (None, 0));
}

async fn a_postponement_holds_until_its_time(store: &impl Store) {
    drop(waiting(store, "run", Some(PAST)).await);
    let one = claim_one(store).await;
    store.postpone(one.lease, FUTURE).await.unwrap();
    drop(store.lease(&id("run")).await.unwrap());
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!((next_wake(store).await, claim(store).await.len()), (Some(FUTURE), 0), "a lease does not end it");
}

async fn an_end_forgets_the_waits(store: &impl Store) {
    drop(waiting(store, "run", Some(PAST)).await);
    for (seq, end) in (2..).step_by(2).zip([Status::Error, Status::Cancelled, Status::Completed]) {
        let lease = claim_one(store).await.lease;
        store.append(&lease, seq, vec![record(seq)], end).await.unwrap();
        assert_eq!((due(store, "run").await, next_wake(store).await), (None, None));
        drop(lease);
        let lease = store.lease(&id("run")).await.unwrap();
        store.append(&lease, seq + 1, vec![record(seq + 1)], Status::Running).await.unwrap();
        assert_eq!(due(store, "run").await, None, "a run that is resumed says what it waits for");
    }
}

async fn a_removal_forgets_the_waits(store: &impl Store) {
    drop(waiting(store, "run", Some(PAST)).await);
    store.remove(&id("run")).await.unwrap();
    assert_eq!((next_wake(store).await, claim(store).await.len()), (None, 0));
    let lease = create(store, "run").await;
    store.append_waiting(&lease, 1, vec![record(1)], Status::Waiting, WaitChanges::default()).await.unwrap();
    drop(lease);
    assert_eq!((due(store, "run").await, next_wake(store).await), (None, None), "its name is free, with nothing of it");
}

async fn a_run_may_wait_again_without_records(store: &impl Store) {
    drop(waiting(store, "run", Some(PAST)).await);
    let one = claim_one(store).await;
    store.append_waiting(&one.lease, 2, Vec::new(), Status::Waiting, WaitChanges::default()).await.unwrap();
    assert!(store.find(&id("run")).await.unwrap().holder.is_none(), "a run that waits has no holder");
    let other = claim_one(store).await;
    drop(one);
    assert!(matches!(store.lease(&id("run")).await, Err(StoreError::Leased { .. })), "the other worker holds it");
    assert_eq!(due(store, "run").await, Some(PAST));
    drop(other);
}

async fn a_claim_that_nobody_waits_for_is_given_back(store: &impl Store) {
    drop(waiting(store, "run", Some(PAST)).await);
    let asked = Claim::new("test/waits", digest(), 9);
    for _ in 0..20 {
        // This asks once, and not again.
        drop(tokio::time::timeout(Duration::ZERO, store.claim(&asked)).await);
        assert_eq!(claim_one(store).await.tries, 1);
    }
}

async fn no_news_come_while_nothing_happens(store: &impl Store) {
    for at in 0..5 {
        drop(waiting(store, &format!("run-{at}"), Some(FUTURE)).await);
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    let (mut seen, mut count, end) = (0, 0, Instant::now() + Duration::from_secs(3));
    while count < 10
        && let Ok(news) = tokio::time::timeout_at(end.into(), store.news(seen)).await
    {
        (seen, count) = (news.unwrap(), count + 1);
    }
    assert!(count < 10, "news of nothing would keep workers busy");
    let began = Instant::now();
    for at in 0..5 {
        store.cancel(&id(&format!("run-{at}"))).await.unwrap();
        seen = store.news(seen).await.unwrap();
    }
    assert!(began.elapsed() < Duration::from_secs(2), "and news of something come soon");
}

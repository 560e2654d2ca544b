//! The promises of a store that keeps signals.

use std::future::Future;
use std::sync::Arc;

use futures_util::stream::{FuturesUnordered, StreamExt};
use graph_model::name::RunId;

use super::{claim, claim_when_free, digest, first, news, next_wake, opens, record, run, time, wait};
use crate::record::SignedRecord;
use crate::status::Status;
use crate::store::error::StoreError;
use crate::store::lease::Lease;
use crate::store::signals::{Inbox, Received, ReceivedSignal, SealSignal, Signal, SignalPlace};
use crate::store::waits::{Wait, WaitChanges, WaitId};
use crate::store::{Claimed, Store};

/// As [`suite`](super::suite), for a store that keeps signals; call [`waiting_suite`](super::waiting_suite) too, and
/// [`places_never_fall`] with a clock that can be set. `make` makes an empty store.
///
/// # Panics
///
/// If the store breaks a promise of [`Store`], with the promise.
pub async fn signal_suite<S: Store, F: Future<Output = S>>(make: impl Fn() -> F) {
    signals_come_back_as_they_were_sent(&make().await).await;
    the_same_signal_is_received_once(&make().await).await;
    signals_of_concurrent_senders_have_no_gaps(&make().await).await;
    runs_that_ended_receive_signals_if_they_can_be_resumed(&make().await).await;
    a_run_that_waits_continues_with_a_signal(&make().await).await;
    a_signal_at_the_due_time_is_late(&make().await).await;
    a_signal_is_taken_with_the_records(&make().await).await;
    signals_outlive_a_failure(&make().await).await;
    signals_that_nobody_takes_are_bounded(&make().await).await;
    a_removed_run_has_no_signals(&make().await).await;
    a_panic_of_the_signer_writes_nothing(&make().await).await;
    a_signal_is_known_before_its_signer_is_asked(&make().await).await;
    a_run_inside_another_receives_signals(&make().await).await;
    a_run_takes_the_signals_of_another(&make().await).await;
    a_signal_is_news(&make().await).await;
}

/// Signs a receipt with the place.
fn seal() -> SealSignal {
    Arc::new(|SignalPlace { order, at }| Ok(format!("{order} at {at}")))
}

async fn send(store: &impl Store, run: &RunId, name: &str, id: &str, payload: &str) -> Result<Received, StoreError> {
    store.receive(run, Signal::new(name, id, payload), seal()).await
}

/// Sends a signal that is new.
async fn accepted(store: &impl Store, run: &RunId, name: &str, id: &str) -> SignalPlace {
    let received = send(store, run, name, id, "{}").await.expect("a run receives signals");
    let Received::Accepted(place) = received else { unreachable!("a new signal is Accepted") };
    place
}

async fn inbox(store: &impl Store, run: &RunId) -> Inbox {
    store.inbox(run).await.expect("a run has an inbox")
}

/// The orders of the signals that nobody took.
async fn orders(store: &impl Store, run: &RunId) -> Vec<u64> {
    inbox(store, run).await.signals.iter().map(|signal| signal.place.order).collect()
}

async fn begin(store: &impl Store, name: &str) -> (RunId, Lease) {
    let id = run(name);
    let lease = store.create(&id, "test/waits", vec![first()]).await.expect("a new run can be created");
    (id, lease)
}

/// Lets a new run wait.
async fn waits(store: &impl Store, lease: &Lease, open: Vec<Wait>) {
    let waits = store.append_waiting(lease, 1, vec![record(1)], Status::Waiting, opens(open)).await;
    waits.expect("its holder can let it wait");
}

fn listening(step: u64, due: Option<i64>, name: &str) -> Wait {
    wait(step, due).listening(vec!["other".to_owned(), name.to_owned()])
}

fn takes(take: Vec<u64>) -> WaitChanges {
    WaitChanges { take, ..WaitChanges::default() }
}

/// Signals come back whole and in order, and no later one has a time before that of the inbox.
async fn signals_come_back_as_they_were_sent(store: &impl Store) {
    let (id, _lease) = begin(store, "whole").await;
    let nobody = run("nobody");
    assert!(matches!(store.inbox(&nobody).await, Err(StoreError::NotFound(found)) if found == nobody));
    let unknown = send(store, &nobody, "a", "1", "").await;
    assert!(matches!(unknown, Err(StoreError::NotFound(found)) if found == nobody), "no run is NotFound");
    let (mut expected, mut last) = (Vec::new(), inbox(store, &id).await.at);
    assert!(last >= time(store).await - 60_000, "the time of an inbox is that of the store");
    for (at, [name, payload]) in [
        ["approve", "{\"by\":\"ü\\n\"}"],
        ["", ""],
        ["a\0b", "\0"],
        ["\"quoted\" 'text'", "no JSON"],
        ["approve", "{\"by\":\"ü\\n\"}"],
    ]
    .into_iter()
    .enumerate()
    {
        let signal = Signal::new(name, format!("{at}\0'\""), payload);
        let received = store.receive(&id, signal.clone(), seal()).await.expect("a run receives signals");
        let Received::Accepted(place) = received else { unreachable!("a new signal is Accepted") };
        assert_eq!(place.order, at as u64 + 1, "signals are numbered from 1 on");
        assert!(place.at >= last, "a later signal has no earlier time than the inbox or the signal before");
        expected.push(ReceivedSignal::new(place, signal, format!("{} at {}", place.order, place.at)));
        let found = inbox(store, &id).await;
        assert!(found.at >= place.at, "the time does not go back");
        assert!(found.signals == expected, "signals come back as they were sent, with their receipts");
        last = found.at;
    }
}

/// A signal that is sent again has no effect, and another one with its id is refused.
async fn the_same_signal_is_received_once(store: &impl Store) {
    let (id, lease) = begin(store, "once").await;
    let place = accepted(store, &id, "a", "1").await;
    let other = accepted(store, &id, "a", "2").await;
    let again = async |taken: bool| {
        for _ in 0..2 {
            let received = send(store, &id, "a", "1", "{}").await.expect("the same signal is no mistake");
            assert_eq!(received, Received::Already { place, taken }, "the same signal is Already");
        }
        for (name, payload) in [("b", "{}"), ("a", "{ }"), ("a{", "}"), ("", "a{}")] {
            let refused = send(store, &id, name, "1", payload).await;
            assert!(
                matches!(&refused, Err(StoreError::OtherSignal { run, id: found }) if *run == id && found == "1"),
                "another signal with the id is OtherSignal"
            );
        }
    };
    again(false).await;
    store.append_waiting(&lease, 1, vec![record(1)], Status::Running, takes(vec![1])).await.expect("it can be taken");
    again(true).await;
    for (seq, status) in [Status::Error, Status::Cancelled, Status::Completed].into_iter().enumerate() {
        let seq = seq as u64 + 2;
        store.append(&lease, seq, vec![record(seq)], status).await.expect("its holder can end it");
        again(true).await;
        let received = send(store, &id, "a", "2", "{}").await.expect("the same signal is no mistake");
        assert_eq!(received, Received::Already { place: other, taken: false }, "also one that nobody took");
    }
    let (next, _lease) = begin(store, "next").await;
    assert_eq!(accepted(store, &next, "b", "1").await.order, 1, "the ids and orders of each run are its own");
}

/// The orders of concurrent signals have no gaps, and their times are in the same order.
async fn signals_of_concurrent_senders_have_no_gaps(store: &impl Store) {
    let (id, _lease) = begin(store, "many").await;
    let sender = async |sender: usize| {
        let mut places = Vec::new();
        for at in 0..8 {
            places.push(accepted(store, &id, "a", &format!("{sender}-{at}")).await);
        }
        places
    };
    let senders: FuturesUnordered<_> = (0..16).map(sender).collect();
    let mut places: Vec<SignalPlace> = senders.collect::<Vec<_>>().await.concat();
    places.sort_unstable();
    assert!(places.iter().map(|place| place.order).eq(1..=128), "orders have no gaps and no duplicates");
    assert!(places.is_sorted_by_key(|place| place.at), "a later signal has no earlier time");
    let found = inbox(store, &id).await.signals;
    assert!(found.iter().map(|signal| signal.place).eq(places), "the inbox has all of them");
    // Senders of the same signal.
    let senders: FuturesUnordered<_> = (0..16).map(|_| send(store, &id, "a", "same", "{}")).collect();
    let received: Vec<Received> =
        senders.map(|received| received.expect("the same signal is no mistake")).collect().await;
    let is_new = |received: &&Received| matches!(received, Received::Accepted(SignalPlace { order: 129, .. }));
    assert_eq!(received.iter().filter(is_new).count(), 1, "one of them sends it, and the others send it again");
}

/// A run that completed receives no signals; one that failed or was cancelled does.
async fn runs_that_ended_receive_signals_if_they_can_be_resumed(store: &impl Store) {
    for status in [Status::Error, Status::Cancelled, Status::Completed, Status::CompletedWithErrors] {
        let (id, lease) = begin(store, status.name()).await;
        store.append(&lease, 1, vec![record(1)], status).await.expect("its holder can end it");
        drop(lease);
        let received = send(store, &id, "a", "1", "{}").await;
        if matches!(status, Status::Error | Status::Cancelled) {
            assert!(matches!(received, Ok(Received::Accepted(_))), "{} can be resumed", status.name());
            assert!(next_wake(store).await.is_none(), "and nobody continues it because of a signal");
        } else {
            let is_ended =
                matches!(&received, Err(StoreError::Ended { run, status: found }) if *run == id && *found == status);
            assert!(is_ended, "a completed run is Ended");
        }
    }
}

/// A run that waits can be claimed when there is a signal that it listens to, whenever that was received.
async fn a_run_that_waits_continues_with_a_signal(store: &impl Store) {
    let now = time(store).await;
    let due = now + 3_600_000;
    let is_asleep = async || next_wake(store).await == Some(due) && claim(store, 10).await.is_empty();
    let woken = async |id: &RunId, why: &str| -> Claimed {
        // A lease that was dropped may be given back a little later.
        for _ in 0..1000 {
            if next_wake(store).await.is_some_and(|at| at <= now) {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        assert!(next_wake(store).await.is_some_and(|at| at <= now), "{why}: it can continue now");
        let claimed = claim_when_free(store, 1).await;
        let [claimed] = <[Claimed; 1]>::try_from(claimed).expect("one run can continue");
        assert_eq!(claimed.lease.run(), id, "{why}");
        claimed
    };
    let ends = async |claimed: Claimed| {
        let status = Status::Completed;
        store.append(&claimed.lease, 2, vec![record(2)], status).await.expect("a worker can end it");
    };
    // A signal that is received while the run waits.
    let (id, lease) = begin(store, "waits").await;
    waits(store, &lease, vec![listening(1, Some(due), "a"), listening(2, None, "b")]).await;
    assert!(is_asleep().await, "it waits for a signal");
    accepted(store, &id, "c", "1").await;
    assert!(is_asleep().await, "a signal that it does not listen to is kept");
    accepted(store, &id, "a", "2").await;
    let claimed = woken(&id, "a signal that it listens to").await;
    assert!(claim(store, 10).await.is_empty() && next_wake(store).await.is_none(), "a run that is held is not claimed");
    drop(claimed);
    let claimed = woken(&id, "the signal is still there").await;
    store.postpone(claimed.lease, due + 1).await.expect("its holder can postpone it");
    assert_eq!(next_wake(store).await, Some(due + 1), "a postponed run is not claimed before, whatever it received");
    let lease = store.lease(&id).await.expect("it can be leased");
    accepted(store, &id, "a", "3").await;
    drop(lease);
    ends(woken(&id, "a signal that was received while somebody held it").await).await;
    // A wait without a due time.
    let (id, lease) = begin(store, "forever").await;
    waits(store, &lease, vec![listening(1, None, "a")]).await;
    assert!(next_wake(store).await.is_none(), "it waits for nothing but a signal");
    accepted(store, &id, "other", "1").await;
    ends(woken(&id, "each of the names counts").await).await;
    // A signal that was received before the wait was opened, and one between that and the time when the run begins to wait.
    for is_open in [false, true] {
        let (id, lease) = begin(store, if is_open { "between" } else { "buffered" }).await;
        let opened = opens(vec![listening(1, Some(due), "a")]);
        if is_open {
            let opened = store.append_waiting(&lease, 1, vec![record(1)], Status::Running, opened).await;
            opened.expect("its holder can append");
            accepted(store, &id, "a", "1").await;
            let waits = store.append_waiting(&lease, 2, Vec::new(), Status::Waiting, WaitChanges::default()).await;
            waits.expect("its holder can let it wait");
        } else {
            accepted(store, &id, "a", "1").await;
            waits(store, &lease, vec![listening(1, Some(due), "a")]).await;
        }
        drop(lease);
        ends(woken(&id, "a signal that was received before the run waited").await).await;
    }
    // A wait that does not listen any more, and one that was closed.
    let (id, lease) = begin(store, "deaf").await;
    accepted(store, &id, "a", "1").await;
    let opened = opens(vec![listening(1, Some(due), "a"), listening(2, Some(due), "a")]);
    store.append_waiting(&lease, 1, vec![record(1)], Status::Running, opened).await.expect("its holder can append");
    let changes =
        WaitChanges { close: vec![WaitId::of_visit(1)], open: vec![wait(2, Some(due))], ..WaitChanges::default() };
    store.append_waiting(&lease, 2, Vec::new(), Status::Waiting, changes).await.expect("its holder can let it wait");
    assert!(is_asleep().await, "neither of them listens");
}

/// A signal ends a wait if it was received before the due time, and not at it.
async fn a_signal_at_the_due_time_is_late(store: &impl Store) {
    for (name, later) in [("late", 0), ("in-time", 1)] {
        let (id, lease) = begin(store, name).await;
        let due = accepted(store, &id, "a", "1").await.at + later;
        waits(store, &lease, vec![listening(1, Some(due), "a")]).await;
        drop(lease);
        // The time is over in any case; it is the cause of one of the two wakes.
        let wake = next_wake(store).await.expect("it can continue");
        assert_eq!(wake == due, later == 0, "a signal at the due time is late, and one before is not");
        let claimed = claim_when_free(store, 1).await.pop().expect("it can be claimed");
        store.append(&claimed.lease, 2, vec![record(2)], Status::Error).await.expect("a worker can end it");
    }
}

/// Signals are taken in the write of the records that say so, each once.
async fn a_signal_is_taken_with_the_records(store: &impl Store) {
    let (id, lease) = begin(store, "taken").await;
    for signal in ["1", "2", "3"] {
        accepted(store, &id, "a", signal).await;
    }
    let take = |expected: u64, take: Vec<u64>| {
        store.append_waiting(&lease, expected, vec![record(expected)], Status::Running, takes(take))
    };
    let refused = take(7, vec![1]).await;
    assert!(matches!(refused, Err(StoreError::Conflict { .. })), "an append that does not follow is Conflict");
    take(1, vec![2]).await.expect("its holder can take a signal");
    for (wrong, gone) in
        [(vec![2], 2), (vec![1, 2], 2), (vec![1, 1], 1), (vec![0], 0), (vec![1, 4, 3], 4), (vec![u64::MAX], u64::MAX)]
    {
        let refused = take(2, wrong).await;
        let is_gone = matches!(&refused, Err(StoreError::SignalGone { run, order }) if *run == id && *order == gone);
        assert!(is_gone, "a signal that was taken, or never received, is SignalGone: {refused:?}");
    }
    assert_eq!(store.load(&id).await.expect("a run can be loaded").len(), 2, "and nothing is written");
    assert_eq!(orders(store, &id).await, [1, 3], "a signal that was taken is not in the inbox");
    let due = time(store).await + 3_600_000;
    let changes = WaitChanges { open: vec![listening(1, Some(due), "a")], take: vec![3, 1], ..WaitChanges::default() };
    store.append_waiting(&lease, 2, vec![record(2)], Status::Waiting, changes).await.expect("it can take all others");
    assert_eq!(next_wake(store).await, Some(due), "a signal that was taken ends no wait");
    assert_eq!(accepted(store, &id, "a", "4").await.order, 4, "and its order is not given again");
    assert!(next_wake(store).await.is_some_and(|at| at < due), "a later one does");
    let lease = store.lease(&id).await.expect("it can be leased");
    let changes = takes(vec![4]);
    store.append_waiting(&lease, 3, Vec::new(), Status::Waiting, changes).await.expect("it can be taken by no records");
    assert_eq!((next_wake(store).await, orders(store, &id).await), (Some(due), Vec::new()));
    let lease = store.lease(&id).await.expect("it can be leased");
    accepted(store, &id, "a", "5").await;
    store.append_waiting(&lease, 3, vec![record(3)], Status::Completed, takes(vec![5])).await.expect("its end can too");
    assert!(orders(store, &id).await.is_empty(), "a run that ended has an inbox");
}

/// Signals that nobody took are still there when a run has failed, and when it is resumed.
async fn signals_outlive_a_failure(store: &impl Store) {
    let (id, lease) = begin(store, "fails").await;
    accepted(store, &id, "a", "1").await;
    accepted(store, &id, "b", "2").await;
    let due = time(store).await + 3_600_000;
    let opened = WaitChanges { open: vec![listening(1, Some(due), "a")], take: vec![2], ..WaitChanges::default() };
    store.append_waiting(&lease, 1, vec![record(1)], Status::Running, opened).await.expect("its holder can append");
    store.append(&lease, 2, vec![record(2)], Status::Error).await.expect("its holder can end it");
    drop(lease);
    accepted(store, &id, "b", "3").await;
    assert_eq!(orders(store, &id).await, [1, 3], "a run that failed keeps its signals, and receives more");
    let lease = store.lease(&id).await.expect("a run that failed can be leased");
    assert_eq!(orders(store, &id).await, [1, 3], "who resumes it has them");
    let opened = opens(vec![listening(1, Some(due), "b")]);
    store.append_waiting(&lease, 3, vec![record(3)], Status::Waiting, opened).await.expect("its holder can append");
    assert!(next_wake(store).await.is_some_and(|at| at < due), "and it continues with one");
}

/// A store keeps so many signals that nobody took, and so much of their payloads.
async fn signals_that_nobody_takes_are_bounded(store: &impl Store) {
    let (id, lease) = begin(store, "count").await;
    let all: FuturesUnordered<_> = (1..=Inbox::MAX_SIGNALS)
        .map(|at| async move { send(store, &run("count"), "a", &at.to_string(), "").await.expect("there is room") })
        .collect();
    assert_eq!(all.count().await, Inbox::MAX_SIGNALS);
    let is_full = |received: Result<Received, StoreError>| matches!(received, Err(StoreError::TooManySignals { .. }));
    assert!(is_full(send(store, &id, "b", "more", "").await), "one more is TooManySignals");
    let again = send(store, &id, "a", "7", "").await.expect("the same signal is no mistake");
    assert!(matches!(again, Received::Already { taken: false, .. }), "also when there is no room");
    assert!(matches!(send(store, &id, "b", "7", "").await, Err(StoreError::OtherSignal { .. })));
    store.append_waiting(&lease, 1, vec![record(1)], Status::Running, takes(vec![500])).await.expect("one is taken");
    assert_eq!(accepted(store, &id, "a", "more").await.order, 1_001, "there is room for one again");
    assert!(is_full(send(store, &id, "a", "and more", "").await), "and for no other");
    let (id, lease) = begin(store, "bytes").await;
    let half = "x".repeat(Inbox::MAX_BYTES / 2);
    assert!(is_full(send(store, &id, "a", "0", &format!("{half}{half}x")).await), "a payload may be too long itself");
    for (signal, payload) in [("1", half.as_str()), ("2", &half), ("3", "")] {
        send(store, &id, "a", signal, payload).await.expect("there is room");
    }
    // Two bytes in one character.
    assert!(is_full(send(store, &id, "a", "4", "ü").await), "bytes are counted");
    store.append_waiting(&lease, 1, vec![record(1)], Status::Running, takes(vec![2])).await.expect("one is taken");
    assert!(is_full(send(store, &id, "a", "4", &format!("{}ü", &half[1..])).await), "one byte too many");
    send(store, &id, "a", "4", &format!("{}ü", &half[2..])).await.expect("there is room again");
}

/// The signals of a run are removed with it.
async fn a_removed_run_has_no_signals(store: &impl Store) {
    let (id, lease) = begin(store, "removed").await;
    for signal in ["1", "2"] {
        accepted(store, &id, "a", signal).await;
    }
    store.append_waiting(&lease, 1, vec![record(1)], Status::Error, takes(vec![1])).await.expect("it can end");
    drop(lease);
    store.remove(&id).await.expect("a run that ended can be removed");
    assert!(matches!(store.inbox(&id).await, Err(StoreError::NotFound(_))), "a removed run is NotFound");
    assert!(matches!(send(store, &id, "a", "1", "{}").await, Err(StoreError::NotFound(_))), "also for a signal it had");
    let (id, _lease) = begin(store, "removed").await;
    assert!(inbox(store, &id).await.signals.is_empty(), "a new run of that name has no signals");
    assert_eq!(accepted(store, &id, "other", "1").await.order, 1, "and its own orders and ids");
}

/// A signer that panics leaves the store as it was, and in use.
async fn a_panic_of_the_signer_writes_nothing(store: &impl Store) {
    let (id, _lease) = begin(store, "panic").await;
    for _ in 0..2 {
        // Without the message of a panic.
        let panics: SealSignal = Arc::new(|_| std::panic::resume_unwind(Box::new("the signer has no key")));
        let refused = store.receive(&id, Signal::new("a", "1", "{}"), panics).await;
        assert!(matches!(refused, Err(StoreError::Failed { .. })), "a signal without a receipt is Failed");
        assert!(inbox(store, &id).await.signals.is_empty(), "and is not there");
    }
    assert_eq!(accepted(store, &id, "a", "1").await.order, 1, "and has neither an order nor an id");
}

/// A signer that refuses a signal is asked only of one that the run has not received.
async fn a_signal_is_known_before_its_signer_is_asked(store: &impl Store) {
    let (id, _lease) = begin(store, "refusing").await;
    let refuses: SealSignal = Arc::new(|_| Err(StoreError::failed("not this one")));
    let place = accepted(store, &id, "a", "1").await;
    let payload = inbox(store, &id).await.signals.remove(0).payload;
    let again = store.receive(&id, Signal::new("a", "1", payload), Arc::clone(&refuses)).await;
    assert_eq!(again.expect("it is known"), Received::Already { place, taken: false });
    let refused = store.receive(&id, Signal::new("a", "2", "{}"), refuses).await;
    assert!(matches!(refused, Err(StoreError::Failed { .. })), "the error has the reason of the signer: {refused:?}");
    assert_eq!(inbox(store, &id).await.signals.len(), 1, "and nothing is written");
    assert_eq!(accepted(store, &id, "a", "2").await.order, 2, "nor is an order or an id used");
}

/// A run inside another receives signals, and nobody claims it.
async fn a_run_inside_another_receives_signals(store: &impl Store) {
    let id = run("inside");
    let body = format!("{{\"digest\":\"{}\",\"parent\":{{\"run\":\"outer\"}}}}", digest().to_hex());
    let begin = vec![SignedRecord { body, ..record(0) }];
    let lease = store.create(&id, "test/waits", begin).await.expect("a new run can be created");
    waits(store, &lease, vec![listening(1, None, "a")]).await;
    accepted(store, &id, "a", "1").await;
    assert_eq!(orders(store, &id).await, [1], "it has the signal");
    assert!(claim(store, 10).await.is_empty() && next_wake(store).await.is_none(), "and nobody claims it");
}

/// The records of a run inside another take the signals that the other received.
async fn a_run_takes_the_signals_of_another(store: &impl Store) {
    let (outer, held) = begin(store, "receives").await;
    let id = run("takes");
    let body = format!("{{\"digest\":\"{}\",\"parent\":{{\"run\":\"receives\"}}}}", digest().to_hex());
    let begin = vec![SignedRecord { body, ..record(0) }];
    let lease = store.create(&id, "test/waits", begin).await.expect("a new run can be created");
    for signal in ["1", "2"] {
        accepted(store, &outer, "a", signal).await;
    }
    accepted(store, &id, "a", "own").await;
    let take = |expected: u64, take: Vec<u64>, receiver: &RunId| {
        let waits = WaitChanges { received_by: Some(receiver.clone()), ..takes(take) };
        store.append_waiting(&lease, expected, vec![record(expected)], Status::Running, waits)
    };
    take(1, vec![2], &outer).await.expect("it takes a signal of the other");
    assert_eq!((orders(store, &outer).await, orders(store, &id).await), (vec![1], vec![1]), "and none of its own");
    let refused = take(2, vec![2], &outer).await;
    let is_gone = matches!(&refused, Err(StoreError::SignalGone { run, order: 2 }) if *run == outer);
    assert!(is_gone, "a signal that was taken is SignalGone: {refused:?}");
    let refused = take(2, vec![1], &run("nobody")).await;
    assert!(matches!(refused, Err(StoreError::NotFound(_))), "an unknown run received nothing: {refused:?}");
    take(2, Vec::new(), &run("nobody")).await.expect("without signals, nobody received them");
    assert_eq!(store.load(&id).await.expect("a run can be loaded").len(), 3, "what is refused is not written");
    // The other cannot continue with a signal that was taken.
    waits(store, &held, vec![listening(1, None, "a")]).await;
    assert!(next_wake(store).await.is_some(), "it could continue with the other signal");
    take(3, vec![1], &outer).await.expect("it takes the other signal");
    assert_eq!(next_wake(store).await, None, "and nothing is left to continue with");
    let again = Signal::new("a", "2", "{}");
    let received = store.receive(&outer, again, Arc::new(|_| Ok(String::new()))).await.expect("it can be sent again");
    assert!(
        matches!(received, Received::Already { taken: true, .. }),
        "a signal that was taken is known: {received:?}"
    );
}

/// A signal is news for workers.
async fn a_signal_is_news(store: &impl Store) {
    let mut seen = 0;
    for name in ["news-0", "news-1"] {
        let (id, lease) = begin(store, name).await;
        waits(store, &lease, vec![listening(1, None, "a")]).await;
        seen = news(store, seen).await.expect("a run that waits is news");
        accepted(store, &id, "a", "1").await;
        seen = news(store, seen).await.expect("a signal is news");
    }
}

/// The times of signals do not fall when the clock is set back; `set_back` does that with the clock of the store.
///
/// # Panics
///
/// If one falls.
pub async fn places_never_fall(store: &impl Store, set_back: impl Fn()) {
    let (id, _lease) = begin(store, "back").await;
    let mut last = time(store).await;
    for at in 0..4 {
        let place = accepted(store, &id, "a", &at.to_string()).await;
        assert!(place.at >= last, "the time of a signal does not fall");
        last = inbox(store, &id).await.at;
        assert!(last >= place.at, "nor does that of an inbox");
        set_back();
    }
}

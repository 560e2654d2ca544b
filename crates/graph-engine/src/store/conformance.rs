//! The promises of a store, as a test that any store can run.

mod open_waits;
mod schedules;
mod signals;

use std::future::Future;

use futures_util::stream::{FuturesUnordered, StreamExt};
use graph_model::digest::Digest;
use graph_model::name::RunId;
use graph_model::timestamp::unix_milliseconds;

use crate::record::SignedRecord;
use crate::status::Status;
use crate::store::Store;
use crate::store::error::StoreError;
use crate::store::listing::{Cursor, Page, RunFilter, RunPage, RunSummary, Within};
use crate::store::waits::{Claim, Claimed, Wait, WaitChanges, WaitId};

pub use schedules::schedule_suite;
pub use signals::{places_never_fall, signal_suite};

/// Tests a store; `make` makes an empty one. Durability across process restarts is left to each store's own tests.
///
/// # Panics
///
/// If the store breaks a promise of [`Store`], with the promise.
///
/// ```
/// # use graph_engine as graph_runtime;
/// use graph_runtime::store::{MemoryStore, conformance};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// conformance::suite(|| async { MemoryStore::new() }).await;
/// # }
/// ```
pub async fn suite<S: Store, F: Future<Output = S>>(make: impl Fn() -> F) {
    journals_come_back_as_they_were_appended(&make().await).await;
    journals_come_back_from_any_record_on(&make().await).await;
    runs_that_do_not_exist_are_not_found(&make().await).await;
    a_run_exists_once(&make().await).await;
    an_append_that_does_not_follow_changes_nothing(&make().await).await;
    a_run_is_leased_to_one(&make().await).await;
    a_lease_that_was_given_back_is_worth_nothing(&make().await).await;
    a_run_that_ended_is_held_by_nobody(&make().await).await;
    a_run_that_failed_keeps_its_code(&make().await).await;
    runs_are_listed_newest_first_with_their_status(&make().await).await;
    runs_are_listed_by_what_they_are_and_in_pages(&make().await).await;
    runs_come_and_go_between_pages(&make().await).await;
    a_holder_learns_of_a_cancel(&make().await).await;
    a_cancel_outlives_its_holder(&make().await).await;
    a_run_is_removed_with_those_inside_it(&make().await).await;
    a_run_that_somebody_holds_is_not_removed(&make().await).await;
    many_runs_append_at_once(&make().await).await;
}

/// As [`suite`], for a store that keeps what runs wait for and has workers; call both. `make` makes an empty store.
///
/// # Panics
///
/// If the store breaks a promise of [`Store`], with the promise.
pub async fn waiting_suite<S: Store, F: Future<Output = S>>(make: impl Fn() -> F) {
    the_time_of_a_store_never_goes_back(&make().await).await;
    the_waits_of_a_run_change_with_its_records(&make().await).await;
    runs_are_claimed_when_their_time_has_come(&make().await).await;
    runs_are_claimed_by_what_they_are_pinned_to(&make().await).await;
    a_run_is_claimed_by_one(&make().await).await;
    runs_that_were_left_behind_are_claimed(&make().await).await;
    a_cancelled_run_that_waits_is_claimed(&make().await).await;
    a_postponed_run_is_not_claimed_before(&make().await).await;
    a_store_has_news(&make().await).await;
    open_waits::open_waits_are_listed_with_what_they_ask(&make().await).await;
    open_waits::a_wait_is_listed_as_long_as_it_is_open(&make().await).await;
    open_waits::waits_come_and_go_between_pages(&make().await).await;
}

/// As [`waiting_suite`], for a store that also cancels runs [at a time](Store::cancel_at) and [kills](Store::kill) them, as tasks need it.
///
/// # Panics
///
/// If the store breaks a promise of [`Store`], with the promise.
pub async fn stopping_suite<S: Store, F: Future<Output = S>>(make: impl Fn() -> F) {
    a_run_is_cancelled_at_a_time(&make().await).await;
    a_killed_run_is_cancelled(&make().await).await;
}

fn run(name: &str) -> RunId {
    RunId::new(name).expect("the suite's names are run ids")
}

fn record(seq: u64) -> SignedRecord {
    let signature = std::array::from_fn(|at| u8::try_from((seq + at as u64) % 256).unwrap_or_default());
    let end = Some(std::array::from_fn(|at| u8::try_from((seq * 7 + at as u64) % 256).unwrap_or_default()));
    SignedRecord { seq, body: format!("{{\"seq\":{seq},\"text\":\"ü\\n\"}}"), signature, end }
}

/// The records of a journal as a store gives them back.
fn journal(records: u64) -> Vec<SignedRecord> {
    let mut records: Vec<SignedRecord> = (0..records).map(record).collect();
    SignedRecord::forget_ends(&mut records);
    records
}

/// Records come back whole and in order.
pub async fn journals_come_back_as_they_were_appended(store: &impl Store) {
    let id = run("a");
    let lease = store.create(&id, "test/graph", vec![record(0)]).await.expect("a new run can be created");
    for seq in [1, 2, 4] {
        let records = if seq == 2 { vec![record(2), record(3)] } else { vec![record(seq)] };
        store.append(&lease, seq, records, Status::Running).await.expect("the holder of a lease can append");
    }
    let loaded = store.load(&id).await.expect("a run can be loaded");
    assert!(loaded == journal(5), "the token of the last record is kept, and of no other");
    let large = SignedRecord { seq: 5, body: "x".repeat(3_000_000), signature: [255; 64], end: Some([1; 32]) };
    store.append(&lease, 5, vec![large.clone()], Status::Running).await.expect("large records are records");
    let mut expected: Vec<SignedRecord> = (0..5).map(record).chain([large]).collect();
    SignedRecord::forget_ends(&mut expected);
    assert!(store.load(&id).await.expect("a run can be loaded") == expected, "a journal comes back as it was appended");
}

/// The end of a journal comes back without its beginning.
pub async fn journals_come_back_from_any_record_on(store: &impl Store) {
    let (id, other) = (run("a"), run("b"));
    let mut leases = Vec::new();
    for id in [&id, &other] {
        leases.push(store.create(id, "test/graph", vec![record(0)]).await.expect("a new run can be created"));
    }
    store.append(&leases[0], 1, (1..5).map(record).collect(), Status::Running).await.expect("its holder can append");
    for from in 0..5 {
        let loaded = store.load_from(&id, from).await.expect("a run can be loaded");
        let expected = &journal(5)[usize::try_from(from).unwrap_or_default()..];
        assert!(loaded == expected, "the records from {from} on, and the token of the last one");
    }
    for from in [5, 6, u64::from(u32::MAX), u64::MAX] {
        let loaded = store.load_from(&id, from).await.expect("a run can be loaded");
        assert!(loaded.is_empty(), "there is nothing behind the last record, nor another run's");
    }
}

/// Runs that do not exist are not found.
pub async fn runs_that_do_not_exist_are_not_found(store: &impl Store) {
    let id = run("nobody");
    assert!(
        matches!(store.load(&id).await, Err(StoreError::NotFound(found)) if found == id),
        "load of no run is NotFound"
    );
    assert!(matches!(store.load_from(&id, 3).await, Err(StoreError::NotFound(_))), "nor is there a part of it");
    assert!(matches!(store.lease(&id).await, Err(StoreError::NotFound(_))), "lease of no run is NotFound");
    assert!(store.list().await.expect("an empty store can be listed").is_empty(), "an empty store lists nothing");
}

/// A second run of the same name is refused.
pub async fn a_run_exists_once(store: &impl Store) {
    let id = run("once");
    let lease = store.create(&id, "test/graph", vec![record(0)]).await.expect("a new run can be created");
    let again = store.create(&id, "test/graph", vec![record(0)]).await;
    assert!(matches!(again, Err(StoreError::Exists(found)) if found == id), "a second run of the same name is Exists");
    drop(lease);
    let again = store.create(&id, "test/graph", vec![record(0)]).await;
    assert!(matches!(again, Err(StoreError::Exists(_))), "also when nobody holds it");
}

/// A writer that does not know the last record appends nothing.
pub async fn an_append_that_does_not_follow_changes_nothing(store: &impl Store) {
    let id = run("follow");
    let lease = store.create(&id, "test/graph", vec![record(0)]).await.expect("a new run can be created");
    for wrong in [0, 2] {
        let refused = store.append(&lease, wrong, vec![record(wrong)], Status::Running).await;
        assert!(
            matches!(refused, Err(StoreError::Conflict { expected, found: 1, .. }) if expected == wrong),
            "an append that does not follow is Conflict"
        );
    }
    assert_eq!(store.load(&id).await.expect("a run can be loaded"), [record(0)], "and changes nothing");
    store.append(&lease, 1, vec![record(1)], Status::Running).await.expect("and harms nothing");
}

/// A run has one holder.
pub async fn a_run_is_leased_to_one(store: &impl Store) {
    let id = run("lease");
    let lease = store.create(&id, "test/graph", vec![record(0)]).await.expect("a new run can be created");
    assert!(matches!(store.lease(&id).await, Err(StoreError::Leased { .. })), "a run that is held is Leased");
    drop(lease);
    let lease = store.lease(&id).await.expect("a run that nobody holds can be leased");
    assert!(matches!(store.lease(&id).await, Err(StoreError::Leased { .. })), "and is held again then");
    store.append(&lease, 1, vec![record(1)], Status::Running).await.expect("and its holder can append");
}

/// A token is refused after another holder got a higher one.
pub async fn a_lease_that_was_given_back_is_worth_nothing(store: &impl Store) {
    let id = run("fence");
    let lease = store.create(&id, "test/graph", vec![record(0)]).await.expect("a new run can be created");
    let old = super::Lease::new(id.clone(), lease.token(), || ());
    drop(lease);
    let new = store.lease(&id).await.expect("a run that nobody holds can be leased");
    assert!(new.token() > old.token(), "each lease has a higher token");
    let refused = store.append(&old, 1, vec![record(1)], Status::Running).await;
    assert!(matches!(refused, Err(StoreError::LeaseLost(found)) if found == id), "an old token is LeaseLost");
    store.append(&new, 1, vec![record(1)], Status::Running).await.expect("the new one is good");
    assert_eq!(store.load(&id).await.expect("a run can be loaded").len(), 2, "only the new holder's record is there");
}

/// A run that ended can be leased, also while the lease that it ended under is not dropped yet.
pub async fn a_run_that_ended_is_held_by_nobody(store: &impl Store) {
    let id = run("ended");
    let old = store.create(&id, "test/graph", vec![record(0)]).await.expect("a new run can be created");
    store.append(&old, 1, vec![record(1)], Status::Error).await.expect("its holder can append");
    let new = store.lease(&id).await.expect("a run that ended can be leased");
    drop(old);
    assert!(matches!(store.lease(&id).await, Err(StoreError::Leased { .. })), "and is held then");
    store.append(&new, 2, vec![record(2)], Status::Running).await.expect("and the new holder can append");
    assert!(store.find(&id).await.expect("a run can be found").holder.is_some(), "which the list shows");
}

/// A record that leaves the status as it is leaves the failure's code and the time of the last change as they are.
pub async fn a_run_that_failed_keeps_its_code(store: &impl Store) {
    let id = run("failed");
    let lease = store.create(&id, "test/graph", vec![record(0)]).await.expect("a new run can be created");
    let mut end = record(1);
    end.body = r#"{"code":"E7"}"#.to_owned();
    store.append(&lease, 1, vec![end], Status::Error).await.expect("its holder can append");
    drop(lease);
    let before = store.find(&id).await.expect("a run can be found");
    let lease = store.lease(&id).await.expect("a run that failed can be leased");
    store.append(&lease, 2, vec![record(2)], Status::Error).await.expect("its new holder can append");
    drop(lease);
    let after = store.find(&id).await.expect("a run can be found");
    assert_eq!((after.code.as_deref(), after.records), (Some("E7"), 3), "it keeps its code and has the record");
    assert_eq!((after.status, after.updated, after.holder), (Status::Error, before.updated, None));
}

/// A cancel request reaches the holder of a run, and nobody else.
pub async fn a_holder_learns_of_a_cancel(store: &impl Store) {
    let id = run("cancel");
    let nobody = run("nobody");
    assert!(matches!(store.cancel(&nobody).await, Err(StoreError::NotFound(_))), "cancel of no run is NotFound");
    let lease = store.create(&id, "test/graph", vec![record(0)]).await.expect("a new run can be created");
    assert!(!lease.cancel_request().is_set(), "nobody asked for anything yet");
    for _ in 0..2 {
        store.cancel(&id).await.expect("a run that is held can be cancelled, and asking twice is asking once");
    }
    store.append(&lease, 1, vec![record(1)], Status::Running).await.expect("its holder can append");
    assert!(lease.cancel_request().is_set(), "the holder sees the request with its next append at the latest");
    drop(lease);
    let lease = store.lease(&id).await.expect("a run that nobody holds can be leased");
    for (seq, status) in
        [Status::Error, Status::Cancelled, Status::CompletedWithErrors, Status::Completed].into_iter().enumerate()
    {
        store.append(&lease, seq as u64 + 2, vec![record(seq as u64 + 2)], status).await.expect("it can append");
        let refused = store.cancel(&id).await;
        assert!(
            matches!(refused, Err(StoreError::Ended { status: found, .. }) if found == status),
            "what ended is Ended, however it did"
        );
    }
}

/// Each new holder of a run receives its cancel request, until the run has ended as cancelled.
pub async fn a_cancel_outlives_its_holder(store: &impl Store) {
    let is_cancelling = async |id: &RunId| store.find(id).await.expect("a run can be found").is_cancelling;
    for (name, is_held) in [("held", true), ("left", false)] {
        let id = run(name);
        let lease = store.create(&id, "test/graph", vec![record(0)]).await.expect("a new run can be created");
        assert!(!is_cancelling(&id).await, "nobody asked for anything yet");
        let lease = is_held.then_some(lease);
        store.cancel(&id).await.expect("a run that has not ended can be cancelled, whether somebody holds it or not");
        assert!(is_cancelling(&id).await, "which the list shows");
        drop(lease);
        // A holder may die before it acts on the request.
        for _ in 0..2 {
            let lease = store.lease(&id).await.expect("a run that nobody holds can be leased");
            assert!(lease.cancel_request().is_set(), "a new holder sees the request at once");
        }
        let lease = store.lease(&id).await.expect("a run that nobody holds can be leased");
        store.append(&lease, 1, vec![record(1)], Status::Running).await.expect("its holder can append");
        store.append(&lease, 2, vec![record(2)], Status::Error).await.expect("its holder can append");
        drop(lease);
        let lease = store.lease(&id).await.expect("a run that failed can be leased");
        assert!(lease.cancel_request().is_set(), "that it failed is not what was asked for");
        store.append(&lease, 3, vec![record(3)], Status::Running).await.expect("its holder can append");
        store.append(&lease, 4, vec![record(4)], Status::Cancelled).await.expect("its holder can append");
        assert!(!is_cancelling(&id).await, "now it has ended as was asked");
        drop(lease);
        let lease = store.lease(&id).await.expect("a run that was cancelled can be leased");
        store.append(&lease, 5, vec![record(5)], Status::Running).await.expect("its holder can append");
        assert!(!lease.cancel_request().is_set(), "and its request is gone then");
        store.cancel(&id).await.expect("a run that is held can be cancelled");
        drop(lease);
        let lease = store.lease_ignoring_cancel(&id).await.expect("a run that nobody holds can be leased");
        store.append(&lease, 6, vec![record(6)], Status::Running).await.expect("its holder can append");
        assert!(
            !lease.cancel_request().is_set() && !is_cancelling(&id).await,
            "what was asked before can be forgotten"
        );
        store.cancel(&id).await.expect("a run that is held can be cancelled");
        store.append(&lease, 7, vec![record(7)], Status::Running).await.expect("its holder can append");
        assert!(lease.cancel_request().is_set(), "and asked again");
        store.append(&lease, 8, vec![record(8)], Status::Completed).await.expect("its holder can append");
        assert!(!is_cancelling(&id).await, "what is done is done");
    }
}

/// A run's first record that says which run it is inside of.
fn record_inside(parent: &RunId) -> SignedRecord {
    let body = format!("{{\"seq\":0,\"parent\":{{\"run\":\"{parent}\",\"step\":1,\"node\":\"n\"}}}}");
    SignedRecord { body, ..record(0) }
}

/// Runs are removed with the run that they are inside of, and leave nothing.
pub async fn a_run_is_removed_with_those_inside_it(store: &impl Store) {
    let names = ["outer", "middle", "inner", "other"].map(run);
    let [outer, middle, inner, other] = &names;
    let mut old = None;
    for (id, first) in
        [(outer, record(0)), (middle, record_inside(outer)), (inner, record_inside(middle)), (other, record(0))]
    {
        let lease = store.create(id, "test/graph", vec![first]).await.expect("a new run can be created");
        store.append(&lease, 1, (1..600).map(record).collect(), Status::Completed).await.expect("it can append");
        old.get_or_insert(lease);
    }
    assert_eq!(
        store.find(inner).await.expect("a run can be found").parent.as_ref(),
        Some(middle),
        "the list shows what a run is inside of"
    );
    store.remove(outer).await.expect("what nobody holds can be removed");
    for id in [outer, middle, inner] {
        assert!(matches!(store.load(id).await, Err(StoreError::NotFound(_))), "it is gone, with what was inside");
        assert!(matches!(store.find(id).await, Err(StoreError::NotFound(_))), "also from the list");
        assert!(matches!(store.remove(id).await, Err(StoreError::NotFound(_))), "and cannot be removed again");
    }
    let listed = store.list().await.expect("a store can be listed");
    assert_eq!(listed.iter().map(|run| &run.run).collect::<Vec<_>>(), [other], "another run stays");
    assert_eq!(store.load(other).await.expect("a run can be loaded").len(), 600, "with its journal");
    let new = store.create(outer, "test/graph", vec![record(0)]).await.expect("its name is free");
    assert_eq!(store.load(outer).await.expect("a run can be loaded"), [record(0)], "for a run with nothing of the old");
    let old = old.expect("there was a run");
    let refused = store.append(&old, 1, vec![record(1)], Status::Running).await;
    assert!(matches!(refused, Err(StoreError::LeaseLost(_))), "the old run's lease is worth nothing");
    store.append(&new, 1, vec![record(1)], Status::Running).await.expect("the new one is good");
}

/// A run that somebody holds stays, and so does the run that it is inside of.
pub async fn a_run_that_somebody_holds_is_not_removed(store: &impl Store) {
    let (outer, inner) = (run("outer"), run("inner"));
    drop(store.create(&outer, "test/graph", vec![record(0)]).await.expect("a new run can be created"));
    let lease = store.create(&inner, "test/graph", vec![record_inside(&outer)]).await.expect("a run can be created");
    for id in [&outer, &inner] {
        assert!(
            matches!(store.remove(id).await, Err(StoreError::Leased { .. })),
            "the run, or one inside it, is Leased"
        );
    }
    assert_eq!(store.list().await.expect("a store can be listed").len(), 2, "nothing was removed");
    store.append(&lease, 1, vec![record(1)], Status::Running).await.expect("and the holder can still append");
}

/// The list shows each run with its status and size, the newest first.
pub async fn runs_are_listed_newest_first_with_their_status(store: &impl Store) {
    let mut leases = Vec::new();
    for (name, records) in [("first", vec![record(0)]), ("second", vec![record(0)]), ("third", vec![])] {
        let id = run(name);
        leases.push(store.create(&id, &format!("test/{name}"), records).await.expect("a new run can be created"));
    }
    store.append(&leases[1], 1, vec![record(1)], Status::Completed).await.expect("the holder of a lease can append");
    let list = store.list().await.expect("a store can be listed");
    let shown: Vec<_> =
        list.iter().map(|one| (one.run.as_str(), one.graph.as_str(), one.status, one.records)).collect();
    let expected = [
        ("third", "test/third", Status::Running, 0),
        ("second", "test/second", Status::Completed, 2),
        ("first", "test/first", Status::Running, 1),
    ];
    assert_eq!(shown, expected, "the newest run is first, each with its status and size");
}

/// The pages of a listing have each run once that the filter accepts, and no other.
pub async fn runs_are_listed_by_what_they_are_and_in_pages(store: &impl Store) {
    let digest = |number: usize| Digest::of([u8::try_from(number % 2).unwrap_or_default()]);
    let meaning = |number: usize| (!number.is_multiple_of(4)).then(|| Digest::of(format!("meaning {}", number % 4)));
    let statuses = [Status::Running, Status::Error, Status::Completed];
    let (top, mut names) = (run("top"), Vec::new());
    drop(store.create(&top, "test/top", vec![record(0)]).await.expect("a new run can be created"));
    for number in 0..30 {
        let id = run(&format!("run{number}"));
        let parent = if number % 5 == 0 { "\"parent\":{\"run\":\"top\",\"step\":1,\"node\":\"n\"}," } else { "" };
        let pinned = match meaning(number) {
            Some(meaning) => format!("\"meaning\":\"{meaning}\","),
            None => String::new(),
        };
        let (digest, version) = (digest(number), number % 2);
        let body = format!("{{\"seq\":0,{parent}{pinned}\"digest\":\"{digest}\",\"version\":\"1.{version}\"}}");
        let graph = ["test/a", "test/b"][number / 15];
        let lease =
            store.create(&id, graph, vec![SignedRecord { body, ..record(0) }]).await.expect("a run can be created");
        let status = statuses[number % 3];
        if status != Status::Running {
            let last = SignedRecord { body: "{\"seq\":1,\"code\":\"declined\"}".to_owned(), ..record(1) };
            store.append(&lease, 1, vec![last], status).await.expect("its holder can append");
        }
        names.push(id);
    }
    let all = RunFilter::default();
    let listed = async |filter: &RunFilter, size: usize| {
        let (mut runs, mut page) = (Vec::new(), Page { size, after: None });
        loop {
            let found = store.runs(filter, &page).await.expect("a store can be listed");
            assert!(found.runs.len() == size || found.next.is_none(), "each page except the last is full");
            runs.extend(found.runs);
            match found.next {
                Some(next) => page.after = Some(next),
                None => return runs,
            }
        }
    };
    let whole = store.list().await.expect("a store can be listed");
    for size in [1, 7, 31, 100] {
        assert!(listed(&all, size).await == whole, "the pages together are the list");
    }
    for (number, id) in names.iter().enumerate() {
        let found = store.find(id).await.expect("a run can be found");
        let code = (found.status == Status::Error).then(|| "declined".to_owned());
        let facts = (found.digest, found.meaning, found.version, found.code);
        let expected = (Some(digest(number)), meaning(number), Some(format!("1.{}", number % 2)), code);
        assert_eq!(facts, expected, "a summary has what the first record says, and how a run failed");
    }
    let graph = Some("test/a".to_owned());
    for filter in [
        RunFilter { graph: graph.clone(), ..all.clone() },
        RunFilter { version: Some("1.1".to_owned()), ..all.clone() },
        RunFilter { digest: Some(digest(0)), ..all.clone() },
        RunFilter { meaning: meaning(1), ..all.clone() },
        RunFilter { not_pinned: meaning(1).into_iter().collect(), ..all.clone() },
        RunFilter { graph: graph.clone(), not_pinned: vec![digest(0), Digest::of("meaning 3")], ..all.clone() },
        RunFilter { statuses: vec![Status::Running], ..all.clone() },
        RunFilter { statuses: vec![Status::Error, Status::Completed], ..all.clone() },
        RunFilter { within: Within::TopLevel, ..all.clone() },
        RunFilter { within: Within::Run(top.clone()), ..all.clone() },
        RunFilter { graph, statuses: vec![Status::Running], within: Within::TopLevel, ..all.clone() },
        RunFilter { graph: Some("test/none".to_owned()), ..all.clone() },
    ] {
        let expected: Vec<_> = whole.iter().filter(|run| filter.accepts(run)).cloned().collect();
        for size in [3, 100] {
            assert!(listed(&filter, size).await == expected, "a page has what fits: {filter:?}");
        }
    }
    let first = store.runs(&all, &Page { size: 5, after: None }).await.expect("a store can be listed");
    store.create(&run("newer"), "test/a", vec![record(0)]).await.map(drop).expect("a run can be created");
    let second = store.runs(&all, &Page { size: 5, after: first.next }).await.expect("a store can be listed");
    assert!(second.runs == whole[5..10], "a run that begins meanwhile moves no page");
    let foreign = Page { after: Some(Cursor::new("no place")), ..Page::default() };
    assert!(matches!(store.runs(&all, &foreign).await, Err(StoreError::BadCursor(_))), "a foreign cursor is refused");
}

/// Runs that begin and are removed while a list is read move no page: each run that was there all the time is in the pages
/// once.
pub async fn runs_come_and_go_between_pages(store: &impl Store) {
    let create = async |name: &str, status: Status| {
        let lease = store.create(&run(name), "test/graph", vec![record(0)]).await.expect("a new run can be created");
        if status != Status::Running {
            store.append(&lease, 1, vec![record(1)], status).await.expect("its holder can append");
        }
    };
    for number in 0..20 {
        create(&format!("run{number}"), Status::Completed).await;
    }
    let (filter, mut page) = (RunFilter::default(), Page { size: 6, after: None });
    let mut seen = Vec::new();
    for round in 0.. {
        let RunPage { runs, next } = store.runs(&filter, &page).await.expect("a store can be listed");
        assert!(runs.len() <= page.size, "a page has no more runs than were asked for");
        seen.extend(runs.into_iter().map(|run| run.run));
        let Some(next) = next else { break };
        page.after = Some(next);
        // The run that the cursor was made after is removed, and one of the next page; others begin.
        for gone in [seen.last().cloned(), [Some(run("run10")), None][round.min(1)].clone()].into_iter().flatten() {
            store.remove(&gone).await.expect("what nobody holds can be removed");
        }
        create(&format!("new{round}"), Status::Running).await;
    }
    let expected: Vec<RunId> =
        (0..20).rev().filter(|number| *number != 10).map(|at| run(&format!("run{at}"))).collect();
    assert_eq!(
        seen, expected,
        "each run that was there all the time once, the newest first, and none that began since"
    );
}

/// Appends of different runs do not interfere.
pub async fn many_runs_append_at_once(store: &impl Store) {
    const RUNS: u64 = 20;
    const RECORDS: u64 = 20;
    let mut leases = Vec::new();
    for number in 0..RUNS {
        let id = run(&format!("run-{number}"));
        leases.push(store.create(&id, "test/graph", vec![record(0)]).await.expect("a new run can be created"));
    }
    for seq in 1..RECORDS {
        let mut appends: Vec<_> =
            leases.iter().map(|lease| store.append(lease, seq, vec![record(seq)], Status::Running)).collect();
        // All appends are started before any is awaited.
        std::future::poll_fn(|context| {
            appends.retain_mut(|append| match append.as_mut().poll(context) {
                std::task::Poll::Ready(done) => {
                    done.expect("the holder of a lease can append");
                    false
                }
                std::task::Poll::Pending => true,
            });
            if appends.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })
        .await;
    }
    let expected = journal(RECORDS);
    for lease in &leases {
        assert_eq!(store.load(lease.run()).await.expect("a run can be loaded"), expected, "each journal is its own");
    }
}

/// The digest of the graph of the runs that wait.
fn digest() -> Digest {
    Digest::of("graph")
}

/// The first record of a run that waits.
fn first() -> SignedRecord {
    SignedRecord { body: format!("{{\"digest\":\"{}\"}}", digest().to_hex()), ..record(0) }
}

/// Claims up to `limit` runs.
async fn claim(store: &impl Store, limit: usize) -> Vec<Claimed> {
    store.claim(&Claim::new("test/waits", digest(), limit)).await.expect("runs can be claimed")
}

async fn next_wake(store: &impl Store) -> Option<i64> {
    store.next_wake(&[("test/waits".to_owned(), digest())]).await.expect("the store knows when a run can continue")
}

fn wait(step: u64, due: Option<i64>) -> Wait {
    Wait::new(WaitId::of_visit(step), "node", 1, due)
}

fn opens(waits: Vec<Wait>) -> WaitChanges {
    WaitChanges { open: waits, ..WaitChanges::default() }
}

/// Begins a run that waits until a time of the store.
async fn waiting(store: &impl Store, name: &str, due: i64) -> RunId {
    let id = run(name);
    let lease = store.create(&id, "test/waits", vec![first()]).await.expect("a new run can be created");
    let waits = opens(vec![wait(1, Some(due))]);
    let waits = store.append_waiting(&lease, 1, vec![record(1)], Status::Waiting, waits).await;
    waits.expect("its holder can let it wait");
    id
}

async fn time(store: &impl Store) -> i64 {
    store.now().await.expect("a store has a time")
}

/// The time of a store never goes back.
pub async fn the_time_of_a_store_never_goes_back(store: &impl Store) {
    let mut last = time(store).await;
    for _ in 0..100 {
        let now = time(store).await;
        assert!(now >= last, "the time does not go back");
        last = now;
    }
    waiting(store, "later", last + 3_600_000).await;
    assert!(time(store).await >= last, "nor when something is written");
}

/// The waits of a run are opened and closed in the write of the records that say so.
pub async fn the_waits_of_a_run_change_with_its_records(store: &impl Store) {
    let (id, now) = (run("waits"), time(store).await);
    let lease = store.create(&id, "test/waits", vec![first()]).await.expect("a new run can be created");
    let due = |found: RunSummary| found.next_due.map(unix_milliseconds);
    let summary = || async { store.find(&id).await.expect("the run is there") };
    let waits = opens(vec![wait(2, Some(now + 9_000)), wait(3, Some(now + 5_000)), wait(4, None)]);
    let refused = store.append_waiting(&lease, 7, vec![record(7)], Status::Waiting, waits.clone()).await;
    assert!(matches!(refused, Err(StoreError::Conflict { .. })), "an append that does not follow is Conflict");
    assert_eq!(due(summary().await), None, "and opens no wait");
    store.append_waiting(&lease, 1, vec![record(1)], Status::Running, waits).await.expect("its holder can append");
    assert_eq!(due(summary().await), Some(now + 5_000), "the earliest wait is over first");
    assert!(summary().await.holder.is_some(), "a run with waits may be running");
    let closes = WaitChanges { close: vec![WaitId::of_visit(3), WaitId::of_visit(8)], ..WaitChanges::default() };
    store.append_waiting(&lease, 2, Vec::new(), Status::Waiting, closes).await.expect("its holder can append nothing");
    let found = summary().await;
    assert_eq!((found.status, found.holder.is_none()), (Status::Waiting, true), "a run that waits has no holder");
    assert_eq!((due(found), store.load(&id).await.expect("a run can be loaded").len()), (Some(now + 9_000), 2));
    let filter = RunFilter { statuses: vec![Status::Waiting], ..RunFilter::default() };
    let listed = store.runs(&filter, &Page::default()).await.expect("runs can be listed").runs;
    assert_eq!(listed.iter().map(|found| due(found.clone())).collect::<Vec<_>>(), [Some(now + 9_000)]);
    let lease = store.lease(&id).await.expect("a run that waits can be leased");
    let again = opens(vec![wait(2, Some(now + 1_000))]);
    store.append_waiting(&lease, 2, vec![record(2)], Status::Running, again).await.expect("its holder can append");
    assert_eq!(due(summary().await), Some(now + 1_000), "a wait that is open is replaced");
    store.append(&lease, 3, vec![record(3)], Status::Error).await.expect("its holder can end it");
    assert_eq!(due(summary().await), None, "a run that ended waits for nothing");
}

/// A run is claimed by the meaning of its graph if its first record has it, and else by the digest of the graph's text.
pub async fn runs_are_claimed_by_what_they_are_pinned_to(store: &impl Store) {
    let now = time(store).await;
    let meaning = Digest::of("a meaning");
    let body = format!("{{\"digest\":\"{}\",\"meaning\":\"{meaning}\"}}", digest());
    for (name, first, due) in [("meaning", SignedRecord { body, ..record(0) }, now - 2), ("text", first(), now - 1)] {
        let lease = store.create(&run(name), "test/waits", vec![first]).await.expect("a new run can be created");
        let waits = opens(vec![wait(1, Some(due))]);
        store.append_waiting(&lease, 1, vec![record(1)], Status::Waiting, waits).await.expect("its holder can append");
    }
    let asked = |pin: Digest| [("test/waits".to_owned(), pin)];
    for (pin, name, due) in [(digest(), "text", now - 1), (meaning, "meaning", now - 2)] {
        assert_eq!(store.next_wake(&asked(pin)).await.expect("the store knows"), Some(due), "of {name}");
        let claimed = store.claim(&Claim::new("test/waits", pin, 9)).await.expect("runs can be claimed");
        let names: Vec<&str> = claimed.iter().map(|one| one.lease.run().as_str()).collect();
        assert_eq!(names, [name], "no run of another pin is claimed");
        assert_eq!(store.next_wake(&asked(pin)).await.expect("the store knows"), None, "it is held");
    }
}

/// Runs are claimed when a wait of theirs is over, the longest overdue first, and not before.
pub async fn runs_are_claimed_when_their_time_has_come(store: &impl Store) {
    let now = time(store).await;
    assert_eq!(next_wake(store).await, None, "an empty store has no run to claim");
    for (name, due) in [("b", now - 2), ("far", now + 3_600_000), ("a", now - 3), ("c", now - 1)] {
        waiting(store, name, due).await;
    }
    // A run of another graph, and one inside another.
    let other = SignedRecord { body: format!("{{\"digest\":\"{}\"}}", Digest::of("other").to_hex()), ..record(0) };
    let parent = format!("{{\"digest\":\"{}\",\"parent\":{{\"run\":\"a\"}}}}", digest().to_hex());
    for (name, first) in [("other", other), ("inside", SignedRecord { body: parent, ..record(0) })] {
        let lease = store.create(&run(name), "test/waits", vec![first]).await.expect("a new run can be created");
        let waits = opens(vec![wait(1, Some(now - 9))]);
        store.append_waiting(&lease, 1, vec![record(1)], Status::Waiting, waits).await.expect("its holder can append");
    }
    assert_eq!(next_wake(store).await, Some(now - 3), "the longest overdue");
    let names = |claimed: &[Claimed]| {
        let names = claimed.iter().map(|one| one.lease.run().to_string());
        names.collect::<Vec<_>>().join(" ")
    };
    let first = claim(store, 2).await;
    assert_eq!(names(&first), "a b", "the longest overdue first, and no more than asked for");
    assert_eq!(first.iter().map(|one| (one.tries, one.postponed)).collect::<Vec<_>>(), [(1, 0), (1, 0)]);
    assert!(store.find(&run("a")).await.expect("the run is there").holder.is_some(), "a claimed run is held");
    assert!(matches!(store.lease(&run("a")).await, Err(StoreError::Leased { .. })), "and leased to nobody else");
    let second = claim(store, 100).await;
    assert_eq!(names(&second), "c", "each once, and none early");
    assert_eq!(next_wake(store).await, Some(now + 3_600_000), "the next one");
    drop(first);
    drop(second);
    let again = claim_when_free(store, 3).await;
    assert_eq!(names(&again), "a b c", "a lease that is given back can be claimed again");
    assert!(again.iter().all(|one| one.tries == 1), "and it was given back in order");
    for one in &again {
        let closes = WaitChanges { close: vec![WaitId::of_visit(1)], ..WaitChanges::default() };
        let taken = store.append_waiting(&one.lease, 2, vec![record(2)], Status::Running, closes).await;
        taken.expect("a worker can continue the run");
        store.append(&one.lease, 3, vec![record(3)], Status::Completed).await.expect("and end it");
    }
    drop(again);
    assert!(claim(store, 100).await.is_empty(), "a run that ended is not claimed");
}

/// Claims runs, as soon as so many are free: a lease may be given back a little after it was dropped.
async fn claim_when_free(store: &impl Store, count: usize) -> Vec<Claimed> {
    let mut claimed = claim(store, 100).await;
    for _ in 0..1000 {
        if claimed.len() >= count {
            break;
        }
        drop(claimed);
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        claimed = claim(store, 100).await;
    }
    assert!(claimed.len() >= count, "{count} runs were given back, and {} of them can be claimed", claimed.len());
    claimed
}

/// One of several workers gets a run.
pub async fn a_run_is_claimed_by_one(store: &impl Store) {
    let now = time(store).await;
    for at in 0..50 {
        waiting(store, &format!("run-{at}"), now - 1).await;
    }
    let worker = || async {
        let mut mine = Vec::new();
        loop {
            let claimed = claim(store, 3).await;
            if claimed.is_empty() {
                return mine;
            }
            mine.extend(claimed);
        }
    };
    let workers: FuturesUnordered<_> = (0..8).map(|_| worker()).collect();
    let all: Vec<Vec<Claimed>> = workers.collect().await;
    let mut claimed: Vec<String> = all.iter().flatten().map(|one| one.lease.run().to_string()).collect();
    claimed.sort_unstable();
    let count = claimed.len();
    claimed.dedup();
    assert_eq!((count, claimed.len()), (50, 50), "each run is claimed once");
}

/// A run that has not ended and that nobody holds is claimed.
pub async fn runs_that_were_left_behind_are_claimed(store: &impl Store) {
    let id = run("left");
    let lease = store.create(&id, "test/waits", vec![first()]).await.expect("a new run can be created");
    assert!(claim(store, 10).await.is_empty() && next_wake(store).await.is_none(), "a run that is held is not claimed");
    drop(lease);
    let claimed = claim_when_free(store, 1).await;
    assert_eq!(*claimed[0].lease.run(), id, "a run that was given back is claimed");
    store.append(&claimed[0].lease, 1, vec![record(1)], Status::Error).await.expect("a worker can end it");
    assert!(claim(store, 10).await.is_empty(), "a run that failed is left alone");
}

/// A run that waits and is cancelled is claimed at once, with the request.
pub async fn a_cancelled_run_that_waits_is_claimed(store: &impl Store) {
    let now = time(store).await;
    let id = waiting(store, "cancelled", now + 3_600_000).await;
    assert!(claim(store, 10).await.is_empty(), "it is not due");
    store.cancel(&id).await.expect("a run that waits can be cancelled");
    assert!(next_wake(store).await.is_some_and(|at| at <= now), "it can continue now");
    let claimed = claim(store, 10).await;
    assert!(claimed.len() == 1 && claimed[0].lease.cancel_request().is_set(), "and its worker knows why");
    store.append(&claimed[0].lease, 2, vec![record(2)], Status::Cancelled).await.expect("a worker can end it");
    assert!(matches!(store.cancel(&id).await, Err(StoreError::Ended { .. })), "then it has ended");
}

/// A run that is to end at a time is claimed then if it waits, and its holder learns of it then.
pub async fn a_run_is_cancelled_at_a_time(store: &impl Store) {
    let now = time(store).await;
    let id = waiting(store, "timed", now + 3_600_000).await;
    store.cancel_at(&id, now + 1_800_000).await.expect("a run that waits can be cancelled at a time");
    assert_eq!(next_wake(store).await, Some(now + 1_800_000), "it can continue at the earlier of both times");
    assert!(claim(store, 10).await.is_empty(), "which has not come");
    for at in [now, now + 900_000] {
        store.cancel_at(&id, at).await.expect("a run that waits can be cancelled at a time");
    }
    assert_eq!(next_wake(store).await, Some(now), "the earliest time counts");
    let claimed = claim(store, 10).await.pop().expect("a run whose time has come is claimed");
    assert!(claimed.lease.cancel_request().is_set(), "and its worker knows why");
    store.append(&claimed.lease, 2, vec![record(2)], Status::Running).await.expect("its holder can append");
    drop(claimed);
    let lease = store.lease_ignoring_cancel(&id).await.expect("a run that nobody holds can be leased");
    assert!(!lease.cancel_request().is_set(), "the request can be forgotten");
    store.append(&lease, 3, vec![record(3)], Status::Running).await.expect("its holder can append");
    drop(lease);
    let lease = store.lease(&id).await.expect("a run that nobody holds can be leased");
    assert!(!lease.cancel_request().is_set(), "for good");
    store.cancel_at(&id, time(store).await + 50).await.expect("a run that is held can be cancelled at a time");
    for _ in 0..1_000 {
        if lease.cancel_request().is_set() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert!(lease.cancel_request().is_set(), "its holder learns of it when the time has come");
    store.append(&lease, 4, vec![record(4)], Status::Completed).await.expect("its holder can append");
    let late = store.cancel_at(&id, now).await;
    assert!(matches!(late, Err(StoreError::Ended { .. })), "what ended is Ended");
    assert!(matches!(store.cancel_at(&run("nobody"), now).await, Err(StoreError::NotFound(_))), "no run is NotFound");
}

/// A run that is killed is cancelled too, whether somebody holds it or not.
pub async fn a_killed_run_is_cancelled(store: &impl Store) {
    let (held, waits) = (run("held"), waiting(store, "waits", time(store).await + 3_600_000).await);
    let lease = store.create(&held, "test/waits", vec![first()]).await.expect("a new run can be created");
    for id in [&held, &waits] {
        store.kill(id).await.expect("a run that has not ended can be killed");
        assert!(store.find(id).await.expect("a run can be found").is_cancelling, "which the list shows");
    }
    assert!(lease.cancel_request().is_set(), "the holder learns of it");
    let claimed = claim(store, 10).await.pop().expect("a run that waits and was killed is claimed");
    assert!(claimed.lease.cancel_request().is_set(), "and its worker knows why");
    store.append(&lease, 1, vec![record(1)], Status::Cancelled).await.expect("its holder can append");
    assert!(matches!(store.kill(&held).await, Err(StoreError::Ended { .. })), "what ended is Ended");
    assert!(matches!(store.kill(&run("nobody")).await, Err(StoreError::NotFound(_))), "no run is NotFound");
}

/// A run that was postponed is not claimed before that time.
pub async fn a_postponed_run_is_not_claimed_before(store: &impl Store) {
    let now = time(store).await;
    waiting(store, "postponed", now - 1).await;
    for times in 0..3 {
        let one = claim(store, 10).await.pop().expect("a run that is due is claimed");
        assert_eq!((one.tries, one.postponed), (1, times * 2), "the store counts how often it was postponed");
        store.postpone(one.lease, now + 3_600_000).await.expect("its holder can postpone it");
        assert_eq!(next_wake(store).await, Some(now + 3_600_000), "it waits until then");
        assert!(claim(store, 10).await.is_empty(), "and nobody claims it before");
        let lease = store.lease(&run("postponed")).await.expect("but anybody may lease it");
        store.postpone(lease, now - 1).await.expect("its holder can postpone it to a time that has passed");
    }
    let one = claim(store, 10).await.pop().expect("a time that has passed is no delay");
    let waits = opens(vec![wait(2, Some(now - 1))]);
    store.append_waiting(&one.lease, 2, vec![record(2)], Status::Waiting, waits).await.expect("it continues");
    let one = claim(store, 10).await.pop().expect("a run that is due is claimed");
    assert_eq!((one.tries, one.postponed), (1, 0), "a run that has continued was not postponed");
}

/// A store says when something has happened that workers wait for.
pub async fn a_store_has_news(store: &impl Store) {
    let now = time(store).await;
    let mut seen = 0;
    for name in ["news-0", "news-1"] {
        let id = waiting(store, name, now + 3_600_000).await;
        seen = news(store, seen).await.expect("a run that waits is news");
        store.cancel(&id).await.expect("a run that waits can be cancelled");
        seen = news(store, seen).await.expect("a cancel is news");
        drop(claim(store, 10).await);
        seen = news(store, seen).await.expect("a lease that is given back is news");
    }
}

/// The number of the store's news behind those that were seen, if there are some within ten seconds.
async fn news(store: &impl Store, seen: u64) -> Option<u64> {
    let news = tokio::time::timeout(std::time::Duration::from_secs(10), store.news(seen)).await.ok()?;
    Some(news.expect("the store has news"))
}

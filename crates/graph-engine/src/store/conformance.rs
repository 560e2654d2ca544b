//! The promises of a store, as a test that any store can run.

use std::future::Future;

use graph_model::digest::Digest;
use graph_model::name::RunId;

use crate::record::SignedRecord;
use crate::status::Status;
use crate::store::Store;
use crate::store::error::StoreError;
use crate::store::listing::{Cursor, Page, RunFilter, RunPage, Within};

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
    let statuses = [Status::Running, Status::Error, Status::Completed];
    let (top, mut names) = (run("top"), Vec::new());
    drop(store.create(&top, "test/top", vec![record(0)]).await.expect("a new run can be created"));
    for number in 0..30 {
        let id = run(&format!("run{number}"));
        let parent = if number % 5 == 0 { "\"parent\":{\"run\":\"top\",\"step\":1,\"node\":\"n\"}," } else { "" };
        let body = format!("{{\"seq\":0,{parent}\"digest\":\"{}\",\"version\":\"1.{}\"}}", digest(number), number % 2);
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
        let facts = (found.digest, found.version, found.code);
        let expected = (Some(digest(number)), Some(format!("1.{}", number % 2)), code);
        assert_eq!(facts, expected, "a summary has what the first record says, and how a run failed");
    }
    let graph = Some("test/a".to_owned());
    for filter in [
        RunFilter { graph: graph.clone(), ..all.clone() },
        RunFilter { version: Some("1.1".to_owned()), ..all.clone() },
        RunFilter { digest: Some(digest(0)), ..all.clone() },
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

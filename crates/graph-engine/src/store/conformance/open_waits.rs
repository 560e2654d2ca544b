//! The promises of a store that lists the waits that are open.

use std::collections::BTreeSet;

use graph_model::name::RunId;

use super::{digest, first, record, record_inside, run};
use crate::status::Status;
use crate::store::Store;
use crate::store::error::StoreError;
use crate::store::lease::Lease;
use crate::store::listing::{Cursor, Page, WaitFilter, WaitPage, WaitRow};
use crate::store::waits::{Ask, NestedGraph, Wait, WaitChanges, WaitId};

fn wait(step: u64, opened: i64, due: Option<i64>) -> Wait {
    Wait::new(WaitId::of_visit(step), "node", opened, due)
}

fn asking(step: u64, opened: i64, role: Option<&str>) -> Wait {
    let ask = Ask::new(role.map(str::to_owned), 2, "{\"amount\": 1.50, \"text\": \"ü\\n\\u0000\"}");
    wait(step, opened, None).listening(vec!["answer".to_owned(), "ü\0\"".to_owned()]).asking(ask)
}

fn opens(open: impl Into<Vec<Wait>>) -> WaitChanges {
    WaitChanges { open: open.into(), ..WaitChanges::default() }
}

fn closes(step: u64) -> WaitChanges {
    WaitChanges { close: vec![WaitId::of_visit(step)], ..WaitChanges::default() }
}

fn row(run: &RunId, graph: &str, wait: Wait) -> WaitRow {
    WaitRow::new(run.clone(), graph, wait)
}

async fn begin(store: &impl Store, name: &str, graph: &str) -> (RunId, Lease) {
    let id = run(name);
    let lease = store.create(&id, graph, vec![first()]).await.expect("a new run can be created");
    (id, lease)
}

/// Appends a record, and changes the waits.
async fn append(store: &impl Store, lease: &Lease, seq: u64, status: Status, waits: WaitChanges) {
    let appended = store.append_waiting(lease, seq, vec![record(seq)], status, waits).await;
    appended.expect("its holder can append");
}

async fn page(store: &impl Store, filter: &WaitFilter, size: usize, after: Option<Cursor>) -> WaitPage {
    let found = store.open_waits(filter, &Page { size, after }).await.expect("a store that keeps waits lists them");
    assert!(found.waits.len() <= size, "a page has no more waits than were asked for");
    assert!(found.waits.len() == size || found.next.is_none(), "each page except the last is full");
    found
}

/// All pages of a listing.
async fn pages(store: &impl Store, filter: &WaitFilter, size: usize) -> Vec<WaitRow> {
    let (mut rows, mut after) = (Vec::new(), None);
    loop {
        let WaitPage { waits, next } = page(store, filter, size, after).await;
        rows.extend(waits);
        if next.is_none() {
            return rows;
        }
        after = next;
    }
}

async fn all(store: &impl Store) -> Vec<WaitRow> {
    pages(store, &WaitFilter::default(), 100).await
}

/// A listing has each open wait that the filter accepts, as it was opened, and the oldest first.
pub(super) async fn open_waits_are_listed_with_what_they_ask(store: &impl Store) {
    let filter = WaitFilter::default();
    let none = page(store, &filter, 100, None).await;
    assert_eq!(none, WaitPage { waits: Vec::new(), next: None }, "an empty store has no open waits");
    let (a, lease_a) = begin(store, "a", "test/one").await;
    let (b, lease_b) = begin(store, "b", "test/two").await;
    let (c, lease_c) = begin(store, "c", "test/two").await;
    assert_eq!(all(store).await, [], "a run that does not wait has none");
    let due = |step, opened, due| wait(step, opened, Some(due));
    let opened_a = [asking(3, 70, Some("finance")), due(9, 20, 500), asking(11, 40, None)];
    append(store, &lease_a, 1, Status::Running, opens(opened_a.clone())).await;
    let opened_b = [asking(2, 50, Some("legal")), due(4, 10, 499).asking(Ask::new(None, 1, "null"))];
    append(store, &lease_b, 1, Status::Waiting, opens(opened_b.clone())).await;
    append(store, &lease_c, 1, Status::Waiting, opens([asking(1, 30, Some("finance")), wait(5, 60, None)])).await;
    let [a3, a9, a11] = opened_a.map(|wait| row(&a, "test/one", wait));
    let [b2, b4] = opened_b.map(|wait| row(&b, "test/two", wait));
    let (c1, c5) = (row(&c, "test/two", asking(1, 30, Some("finance"))), row(&c, "test/two", wait(5, 60, None)));
    let whole = [&b4, &a9, &c1, &a11, &b2, &c5, &a3].map(WaitRow::clone);
    assert_eq!(all(store).await, whole, "each as it was opened, the oldest first, also of a run that is held");
    let (finance, two) = (Some("finance".to_owned()), Some("test/two".to_owned()));
    for (filter, expected) in [
        (filter.clone(), whole.iter().collect()),
        (WaitFilter { asks: true, ..filter.clone() }, vec![&b4, &c1, &a11, &b2, &a3]),
        (WaitFilter { role: finance.clone(), ..filter.clone() }, vec![&c1, &a3]),
        (WaitFilter { role: finance.clone(), asks: true, ..filter.clone() }, vec![&c1, &a3]),
        (WaitFilter { role: Some(String::new()), ..filter.clone() }, vec![]),
        (WaitFilter { graph: two.clone(), ..filter.clone() }, vec![&b4, &c1, &b2, &c5]),
        (WaitFilter { graph: two.clone(), role: finance.clone(), ..filter.clone() }, vec![&c1]),
        (WaitFilter { graph: two, asks: true, due_before: Some(500), ..filter.clone() }, vec![&b4]),
        (WaitFilter { run: Some(a.clone()), ..filter.clone() }, vec![&a9, &a11, &a3]),
        (WaitFilter { run: Some(a.clone()), asks: true, role: finance, ..filter.clone() }, vec![&a3]),
        (WaitFilter { run: Some(run("nobody")), ..filter.clone() }, vec![]),
        (WaitFilter { due_before: Some(500), ..filter.clone() }, vec![&b4]),
        (WaitFilter { due_before: Some(501), ..filter.clone() }, vec![&b4, &a9]),
        (WaitFilter { due_before: Some(i64::MIN), ..filter.clone() }, vec![]),
        (WaitFilter { signal: Some("answer".to_owned()), ..filter.clone() }, vec![&c1, &a11, &b2, &a3]),
        (WaitFilter { signal: Some("ü\0\"".to_owned()), run: Some(c.clone()), ..filter.clone() }, vec![&c1]),
        (WaitFilter { signal: Some("swer".to_owned()), ..filter.clone() }, vec![]),
        (WaitFilter { signal: Some("%".to_owned()), ..filter.clone() }, vec![]),
    ] {
        let accepted: Vec<_> = whole.iter().filter(|row| filter.accepts(row)).collect();
        assert_eq!(accepted, expected, "the filter accepts these: {filter:?}");
        for size in [1, 2, 3, 100, usize::MAX] {
            let found = pages(store, &filter, size).await;
            assert_eq!(found.iter().collect::<Vec<_>>(), expected, "pages of {size} have what fits: {filter:?}");
        }
    }
    for foreign in ["no place", "", "1", "1 2"] {
        let foreign = Page { after: Some(Cursor::new(foreign)), ..Page::default() };
        let refused = store.open_waits(&filter, &foreign).await;
        assert!(matches!(refused, Err(StoreError::BadCursor(_))), "a foreign cursor is refused");
    }
}

/// A wait is listed until it is closed or replaced, or its run ends or is removed.
pub(super) async fn a_wait_is_listed_as_long_as_it_is_open(store: &impl Store) {
    let (other, lease) = begin(store, "other", "test/waits").await;
    append(store, &lease, 1, Status::Waiting, opens([asking(1, 5, None)])).await;
    let stays = [row(&other, "test/waits", asking(1, 5, None))];
    let (id, lease) = begin(store, "changes", "test/waits").await;
    append(store, &lease, 1, Status::Waiting, opens([asking(1, 1, Some("a")), asking(2, 2, Some("a"))])).await;
    let lease = store.lease(&id).await.expect("a run that waits can be leased");
    append(store, &lease, 2, Status::Waiting, closes(1)).await;
    let second = row(&id, "test/waits", asking(2, 2, Some("a")));
    assert_eq!(all(store).await, [second, stays[0].clone()], "a wait that was closed is not listed");
    let lease = store.lease(&id).await.expect("a run that waits can be leased");
    append(store, &lease, 3, Status::Running, opens([asking(2, 9, Some("b"))])).await;
    let again = row(&id, "test/waits", asking(2, 9, Some("b")));
    assert_eq!(all(store).await, [stays[0].clone(), again], "a wait with the id of an open one replaces it");
    for (role, expected) in [("a", 0), ("b", 1)] {
        let filter = WaitFilter { role: Some(role.to_owned()), ..WaitFilter::default() };
        assert_eq!(pages(store, &filter, 5).await.len(), expected, "also where only one role is listed");
    }
    append(store, &lease, 4, Status::Waiting, opens([wait(2, 9, None)])).await;
    let silent = row(&id, "test/waits", wait(2, 9, None));
    assert_eq!(all(store).await, [stays[0].clone(), silent], "and may ask nothing");
    store.remove(&id).await.expect("what nobody holds can be removed");
    assert_eq!(all(store).await, stays, "a run that was removed waits for nothing");
    let (_, lease) = begin(store, "changes", "test/waits").await;
    assert_eq!(all(store).await, stays, "nor does a new one of its name");
    drop(lease);
    for (number, status) in
        [Status::Completed, Status::CompletedWithErrors, Status::Error, Status::Cancelled].into_iter().enumerate()
    {
        let (_, lease) = begin(store, &format!("ends-{number}"), "test/waits").await;
        append(store, &lease, 1, Status::Running, opens([asking(1, 1, Some("a")), wait(2, 1, Some(2))])).await;
        assert_eq!(all(store).await.len(), 3, "a run that is running may wait");
        append(store, &lease, 2, status, opens([asking(3, 1, None)])).await;
        assert_eq!(all(store).await, stays, "a run that ended waits for nothing");
    }
    let lease = store.lease(&other).await.expect("a run that waits can be leased");
    let nested = Wait {
        id: WaitId::new("7.2/1#1"),
        ..asking(1, 3, Some("b"))
            .listening(vec!["7.2/paid".to_owned()])
            .in_graph(Some(NestedGraph::new("test/ü", digest())))
    };
    append(store, &lease, 2, Status::Waiting, opens([nested.clone()])).await;
    let nested = row(&other, "test/waits", nested);
    assert_eq!(all(store).await, [nested.clone(), stays[0].clone()], "a wait of a nested run names its graph");
    let filter = WaitFilter { signal: Some("paid".to_owned()), ..WaitFilter::default() };
    assert_eq!(pages(store, &filter, 5).await, [nested], "it listens to the signals of its graph");
    let lease = store.lease(&other).await.expect("a run that waits can be leased");
    let close = WaitChanges { close: vec![WaitId::new("7.2/1#1")], ..WaitChanges::default() };
    append(store, &lease, 3, Status::Waiting, close).await;
    let inside = run("inside");
    let lease = store.create(&inside, "test/inside", vec![record_inside(&other)]).await.expect("a run can be created");
    append(store, &lease, 1, Status::Waiting, opens([asking(1, 6, None)])).await;
    let inner = row(&inside, "test/inside", asking(1, 6, None));
    assert_eq!(all(store).await, [stays[0].clone(), inner], "the waits of a run inside another are listed");
    store.remove(&other).await.expect("what nobody holds can be removed");
    assert_eq!(all(store).await, [], "and go with it");
}

/// Waits that are opened and closed while a list is read move no page.
pub(super) async fn waits_come_and_go_between_pages(store: &impl Store) {
    let mut leases = Vec::new();
    for number in 0..12_u64 {
        let (_, lease) = begin(store, &format!("run-{number}"), "test/waits").await;
        // Several were opened at the same time, also by one run.
        let opened = i64::try_from(number / 4).expect("it is small");
        append(store, &lease, 1, Status::Running, opens([asking(1, opened, None), asking(2, opened, Some("a"))])).await;
        leases.push(lease);
    }
    let before = all(store).await;
    assert_eq!(before.len(), 24, "each wait once");
    for asks in [false, true] {
        let filter = WaitFilter { asks, ..WaitFilter::default() };
        assert_eq!(pages(store, &filter, 1).await, before, "waits that were opened at the same time have an order");
    }
    let (mut seen, mut gone, mut after) = (Vec::new(), Vec::new(), None);
    for round in 1.. {
        let WaitPage { waits, next } = page(store, &WaitFilter::default(), 5, after).await;
        seen.extend(waits);
        let Some(next) = next else { break };
        after = Some(next);
        // The wait that the cursor was made after is closed, and one of the next page. Others are opened before and behind all.
        let last = before.iter().position(|row| seen.last() == Some(row)).unwrap_or(before.len());
        for row in [last, last + 3].into_iter().filter_map(|at| before.get(at)) {
            let close = WaitChanges { close: vec![row.wait.id.clone()], ..WaitChanges::default() };
            let lease = leases.iter().find(|lease| *lease.run() == row.run).expect("all runs are held");
            append_next(store, lease, close).await;
        }
        gone.extend(before.get(last + 3).cloned());
        append_next(store, &leases[0], opens([asking(round * 10, -1, None), asking(round * 10 + 1, 100, None)])).await;
    }
    let stayed: Vec<_> = seen.iter().filter(|row| before.contains(row)).cloned().collect();
    let expected: Vec<_> = before.into_iter().filter(|row| !gone.contains(row)).collect();
    assert_eq!(stayed, expected, "each wait once that was open all the time, and none that was closed before");
    let new: Vec<_> = seen.iter().map(|row| row.wait.opened).filter(|opened| !(0..3).contains(opened)).collect();
    assert!(new.iter().all(|opened| *opened == 100), "none comes back to a place that was passed");
    let ids: BTreeSet<_> = seen.iter().map(|row| (&row.run, &row.wait.id)).collect();
    assert_eq!(ids.len(), seen.len(), "no wait twice");
}

async fn append_next(store: &impl Store, lease: &Lease, waits: WaitChanges) {
    let seq = store.find(lease.run()).await.expect("the run is there").records;
    append(store, lease, seq, Status::Running, waits).await;
}

//! The promises of every store.

use file_store::FileStore;
use graph_runtime::record::{SignedRecord, Status};
use graph_runtime::store::{ScheduleChange, StoreError, conformance};
use graph_runtime::{RunId, Store};

#[tokio::test(flavor = "multi_thread")]
async fn the_store_does_what_every_store_promises() {
    let directory = tempfile::tempdir().unwrap();
    let made = std::sync::atomic::AtomicU32::new(0);
    conformance::suite(|| {
        let number = made.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let store = FileStore::open(directory.path().join(number.to_string())).unwrap();
        async { store }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_keeps_waits_as_every_store_promises() {
    let directory = tempfile::tempdir().unwrap();
    let made = std::sync::atomic::AtomicU32::new(0);
    conformance::waiting_suite(|| {
        let number = made.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let store = FileStore::open(directory.path().join(number.to_string())).unwrap();
        async { store }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_keeps_schedules_as_every_store_promises() {
    let directory = tempfile::tempdir().unwrap();
    let made = std::sync::atomic::AtomicU32::new(0);
    conformance::schedule_suite(|| {
        let number = made.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let store = FileStore::open(directory.path().join(number.to_string())).unwrap();
        async { store }
    })
    .await;
}

#[tokio::test]
async fn a_run_of_a_tick_and_its_mark_outlive_a_crash_together() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let (run, change) = (RunId::new("a-1").unwrap(), ScheduleChange::new("a", 0, "one"));
    let store = FileStore::open(directory.path()).unwrap();
    drop(store.create_at_tick(&run, "test/graph", vec![record(0)], &change).await.unwrap());
    drop(store);
    // The process died before the change had its name, or at each step of what follows.
    let whole = (std::fs::read(at("a-1.journal")).unwrap(), std::fs::read(at("a.schedule")).unwrap());
    for (has_change, has_run, has_mark) in
        [(false, false, false), (true, false, false), (true, true, false), (true, true, true)]
    {
        for file in ["a-1.journal", "a-1.tick", "a.schedule", "tick"] {
            drop(std::fs::remove_file(at(file)));
        }
        std::fs::write(at(if has_run { "a-1.journal" } else { "a-1.tick" }), &whole.0).unwrap();
        if has_change {
            std::fs::write(at("tick"), "a\na-1\n1\none").unwrap();
        }
        if has_mark {
            std::fs::write(at("a.schedule"), &whole.1).unwrap();
        }
        let store = FileStore::open(directory.path()).unwrap();
        let mark = store.schedule_mark("a").await.unwrap();
        assert_eq!(mark.map(|mark| (mark.revision, mark.text)), has_change.then(|| (1, "one".to_owned())));
        assert_eq!(store.find(&run).await.is_ok(), has_change);
        assert!(!at("tick").exists());
        let again = store.create_at_tick(&run, "test/graph", vec![record(0)], &change).await;
        assert_eq!(again.is_ok(), !has_change);
    }
}

fn record(seq: u64) -> SignedRecord {
    SignedRecord { seq, body: format!("{{\"seq\":{seq}}}"), signature: [7; 64], end: Some([9; 32]) }
}

#[tokio::test]
async fn torn_last_line_is_truncated_but_earlier_damage_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (run, path) = (RunId::new("run").unwrap(), directory.path().join("run.journal"));
    let store = FileStore::open(directory.path()).unwrap();
    let lease = store.create(&run, "test/graph", vec![record(0)]).await.unwrap();
    store.append(&lease, 1, vec![record(1)], Status::Running).await.unwrap();
    drop(lease);
    let whole = std::fs::read(&path).unwrap();
    let text = String::from_utf8(whole.clone()).unwrap();
    assert_eq!(text.matches(&"09".repeat(32)).count(), 1, "of tokens only the last record's is in the file");
    let line = text.lines().last().unwrap();
    for cut in 1..line.len() {
        let torn = [&whole[..], &line.as_bytes()[..cut]].concat();
        std::fs::write(&path, torn).unwrap();
        assert_eq!(
            store.load(&run).await.unwrap().len(),
            2,
            "what was being written when the process died is not there"
        );
    }
    let lease = store.lease(&run).await.unwrap();
    store.append(&lease, 2, vec![record(2)], Status::Running).await.unwrap();
    assert_eq!(store.load(&run).await.unwrap().len(), 3, "and the run goes on behind what is");
    drop(lease);
    let mut damaged = std::fs::read(&path).unwrap();
    damaged[150] ^= 1;
    std::fs::write(&path, damaged).unwrap();
    let error = store.load(&run).await.unwrap_err();
    assert!(matches!(&error, StoreError::Unreadable { .. }), "{error}");
}

#[tokio::test]
async fn store_completes_a_removal_that_a_dead_process_left() {
    let directory = tempfile::tempdir().unwrap();
    let store = FileStore::open(directory.path()).unwrap();
    for name in ["one", "two"] {
        drop(store.create(&RunId::new(name).unwrap(), "test/graph", vec![record(0)]).await.unwrap());
    }
    std::fs::write(directory.path().join("removed"), "one\n").unwrap();
    let list = store.list().await.unwrap();
    assert_eq!(list.iter().map(|run| run.run.as_str()).collect::<Vec<_>>(), ["two"]);
    let store = FileStore::open(directory.path()).unwrap();
    assert!(!directory.path().join("one.journal").exists());
    drop(store.create(&RunId::new("one").unwrap(), "test/graph", vec![record(0)]).await.unwrap());
}

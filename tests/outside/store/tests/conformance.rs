//! The promises of every store.

use file_store::FileStore;
use graph_runtime::record::{SignedRecord, Status};
use graph_runtime::store::{StoreError, conformance};
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

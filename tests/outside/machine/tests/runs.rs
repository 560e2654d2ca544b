//! A run of the machine is started, stopped, resumed and proven like any other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use graph_runtime::record::{JournalError, SignedRecord, Status};
use graph_runtime::{MemoryStore, RunError, RunId, Runtime, SecretKey, Store, audit, audit_tree};
use hand_machine::{Numbers, Sum};

fn runtime(store: &MemoryStore) -> Runtime {
    let builder = Runtime::builder().store(store.clone()).sign_with(SecretKey::from_seed(&[5; 32]));
    builder.grant("rye.execute.tool.numbers.*").unwrap().build().unwrap()
}

fn run() -> RunId {
    RunId::new("sum").unwrap()
}

fn adding() -> Sum {
    Sum::new(|sum, number| Ok(sum + number))
}

#[tokio::test]
async fn a_run_returns_a_typed_result_and_is_proven() {
    let store = MemoryStore::new();
    let finished = runtime(&store).start_as(run(), adding(), Numbers::new(&[1, 20, 300])).await.unwrap().await.unwrap();
    assert_eq!((finished.output, finished.steps, finished.status), (321, 4, Status::Completed));
    let key = SecretKey::from_seed(&[5; 32]).public();
    let audits = audit_tree(Arc::new(adding()), &run(), &store, &key, None).await.unwrap();
    assert_eq!(audits.len(), 1);
    assert_eq!((audits[0].graph.as_str(), audits[0].steps), ("numbers/sum", 4));
    assert_eq!(audits[0].tools, ["numbers/add"]);
    assert!(audits[0].is_recomputed, "what the nodes wrote and where they led was computed again");
}

#[tokio::test]
async fn a_run_that_failed_is_resumed_where_it_was() {
    let (store, calls, fails) = (MemoryStore::new(), Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(true)));
    let machine = || {
        let (calls, fails) = (Arc::clone(&calls), Arc::clone(&fails));
        Sum::new(move |sum, number| {
            calls.fetch_add(1, Ordering::Relaxed);
            match number == 3 && fails.load(Ordering::Relaxed) {
                true => Err("three is too much".to_owned()),
                false => Ok(sum + number),
            }
        })
    };
    let failed = runtime(&store).start_as(run(), machine(), Numbers::new(&[1, 2, 3, 4])).await.unwrap().await;
    let Err(RunError::Node { node, step, failure, .. }) = failed else { panic!("{failed:?}") };
    assert_eq!((node.as_str(), step, failure.message.as_str()), ("add", 3, "three is too much"));
    assert_eq!(store.find(&run()).await.unwrap().status, Status::Error);
    fails.store(false, Ordering::Relaxed);
    let finished = runtime(&store).resume(machine(), &run()).await.unwrap().await.unwrap();
    assert_eq!((finished.output, finished.steps), (10, 5));
    assert_eq!(calls.load(Ordering::Relaxed), 5, "four numbers and the failure: what was committed is not done again");
}

#[tokio::test]
async fn a_stopped_run_resumes_after_its_last_step() {
    let store = MemoryStore::new();
    let running = runtime(&store).start_as(run(), adding(), Numbers::new(&[1; 100])).await.unwrap();
    running.canceller().cancel();
    let Err(RunError::Cancelled { steps, .. }) = running.await else { panic!("it was to end as cancelled") };
    assert!(steps < 100);
    let finished = runtime(&store).resume(adding(), &run()).await.unwrap().await.unwrap();
    assert_eq!((finished.output, finished.steps), (100, 101));
}

#[tokio::test]
async fn a_journal_that_was_changed_is_not_proven() {
    let store = MemoryStore::new();
    runtime(&store).start_as(run(), adding(), Numbers::new(&[1, 2])).await.unwrap().await.unwrap();
    let key = SecretKey::from_seed(&[5; 32]).public();
    let records = store.load(&run()).await.unwrap();
    let proven = |records: &[SignedRecord]| audit(&adding(), &run(), records, &key, None);
    proven(&records).unwrap();
    for at in 0..records.len() {
        let mut forged = records.clone();
        forged[at].body =
            forged[at].body.replace("\"sum\":3", "\"sum\":4").replace("\"run\":\"sum\"", "\"run\":\"gum\"");
        let error: JournalError = proven(&forged).unwrap_err();
        assert!(!error.to_string().is_empty());
        let cut = proven(&records[..at]);
        assert!(cut.is_err(), "a journal without its end is not one");
    }
}

#[tokio::test]
async fn inputs_of_the_wrong_type_do_not_become_a_sum() {
    let store = MemoryStore::new();
    let machine = Sum::new(|_, _| Err("it is not called".to_owned()));
    let failed = runtime(&store).start_as(run(), machine, Numbers::new(&[])).await.unwrap().await;
    let Err(RunError::Node { failure, .. }) = failed else { panic!("{failed:?}") };
    assert_eq!((failure.message.as_str(), failure.data), ("nothing is left", None));
}

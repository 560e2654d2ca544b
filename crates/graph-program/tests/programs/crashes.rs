//! Crashes at each write: no call whose result was written is made again.

use std::sync::Arc;

use graph_runtime::testing::{FaultyStore, StoreFault, StoreWrite, TestBed};
use serde_json::{Value, json};

use crate::tree::{Tree, request};

/// A program with a call, a batch of two calls, one of which fails, a refused call, and another call.
fn script() -> String {
    format!(
        "ask '{}'; replies=$reply\nask '[{},{}]'; replies+=,$reply\nask '{}'; replies+=,$reply\nask '{}'; replies+=,$reply\n\
         echo \"{{\\\"processed\\\":4,\\\"replies\\\":[$replies]}}\"\n",
        request(1, "shop/count", &json!({})),
        request(2, "shop/process", &json!({ "item": "a", "note": 1.5 })),
        request(3, "shop/process", &json!({ "item": "broken" })),
        request(4, "shop/charge", &json!({})),
        request(5, "shop/process", &json!({ "item": "b", "note": null })),
    )
}

async fn expected() -> Value {
    Tree::new(&script()).run(&TestBed::new()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_repeats_only_the_calls_in_progress() {
    let expected = expected().await;
    let (mut writes, mut repeated, mut restarted) = (0, 0, 0);
    for number in 0.. {
        for after in [false, true] {
            let (bed, tree) = (TestBed::new(), Tree::new(&script()));
            let dying = if after { FaultyStore::dies_after } else { FaultyStore::dies_before };
            let store = dying(bed.disk().clone(), number);
            let first = tree.go_on(&bed, store.clone()).await;
            writes = store.writes().max(writes);
            let ended = match first {
                Some(ended) => ended,
                None => tree.go_on(&bed, FaultyStore::sound(bed.disk().clone())).await.unwrap(),
            };
            let finished = ended.unwrap();
            assert_eq!(finished.output, expected, "write {number}");
            let times = tree.times();
            assert_eq!(times.len(), 4, "write {number}: {times:?}");
            // The two calls of the batch may be in progress together.
            let again: usize = times.values().map(|times| times - 1).sum();
            assert!(again <= 2 && times.values().all(|times| *times <= 2), "write {number}: {times:?}");
            assert_eq!(tree.prove(&bed).await, 2);
            tree.assert_no_process();
            repeated += again;
            restarted += tree.processes().len() - 1;
        }
        if number > writes {
            break;
        }
    }
    assert!(writes > 15 && repeated > 3 && restarted > 20, "{writes} writes, {repeated} calls, {restarted} starts");
}

/// After a restart, a program that wants something else than before gets no results that are not those of its calls.
#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_does_not_repeat_its_calls_fails() {
    let first = |item: &str| request(1, "shop/process", &json!({ "item": item }));
    let last =
        format!("ask '{}'\necho '{{\"processed\":2}}'\n", request(2, "shop/process", &json!({ "item": "last" })));
    for (again, expected) in [
        (
            format!("ask '{}'", first("b")),
            "call `1-0` was one of `shop/process`, and after a restart it has other arguments",
        ),
        (format!("ask '{}'", request(1, "shop/count", &json!({}))), "after a restart it calls `shop/count`"),
        (
            format!("ask '[{},{}]'", first("a"), request(2, "shop/count", &json!({}))),
            "after a restart it calls `shop/count` together with it",
        ),
        ("echo '{\"processed\":0}'; exit 0".to_owned(), "after a restart it does not want this call"),
    ] {
        // The second process does something else.
        let script = format!("if [[ $(wc -l < pids) -eq 1 ]]; then ask '{}'; else {again}; fi\n{last}", first("a"));
        let (bed, tree) = (TestBed::new(), Tree::new(&script));
        // The first process dies at the write after its second call.
        let made = Arc::clone(&tree.made);
        let has_called = move |_: &StoreWrite<'_>| made.lock().unwrap().len() == 2;
        let store = FaultyStore::new(bed.disk().clone(), move |write| {
            has_called(write).then_some(StoreFault::Dies { written: false })
        });
        assert!(tree.go_on(&bed, store).await.is_none());
        let ended = tree.go_on(&bed, FaultyStore::sound(bed.disk().clone())).await.unwrap();
        let failed = ended.unwrap_err().to_string();
        assert!(failed.contains("the program does not repeat its calls") && failed.contains(expected), "{failed}");
        let made: Vec<Value> = tree.made.lock().unwrap().iter().map(|(_, params, _)| params["item"].clone()).collect();
        assert_eq!(made, ["a", "last", "last"], "only the call in progress is made again");
        tree.assert_no_process();
    }
}

//! No process is left, however a run ends.

use std::time::{Duration, Instant};

use graph_runtime::testing::TestBed;
use graph_runtime::{RunError, RunId, Status};
use serde_json::json;

use crate::tree::{Tree, request};

/// A call that takes a minute, while a child of the program is there too.
fn calls_slowly() -> String {
    let call = request(1, "shop/process", &json!({ "item": "slow" }));
    format!("sleep 60 & echo $! >> pids\nask '{call}'\necho '{{\"processed\":1}}'\n")
}

const HANGS: &str = "sleep 60 & echo $! >> pids\nwait\n";

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(20), "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_run_ends_its_program() {
    for script in [HANGS.to_owned(), calls_slowly()] {
        let (tree, bed) = (Tree::new(&script), TestBed::new());
        let runtime = tree.runtime(&bed, bed.disk().clone());
        let run = tree.start(&runtime).await;
        let is_calling = script != HANGS;
        until("the program runs", || {
            tree.processes().len() == 2 && tree.made.lock().unwrap().len() == usize::from(is_calling)
        })
        .await;
        run.canceller().cancel();
        if is_calling {
            // The tool does not look at the cancel: the run is dropped.
            tokio::time::sleep(Duration::from_millis(50)).await;
            run.abort();
        } else {
            let ended = run.await;
            assert!(ended.as_ref().is_ok_and(|ended| ended.status == Status::Cancelled) || ended.is_err(), "{ended:?}");
        }
        tree.assert_no_process();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_over_time_or_aborted_ends_its_program() {
    for script in [HANGS.to_owned(), calls_slowly()] {
        let (tree, bed) = (Tree::new(&script), TestBed::new());
        tree.change("timeout: 60s", "timeout: 1s");
        let failed = tree.run(&bed).await.unwrap_err();
        assert!(failed.contains("the run took longer than it may"), "{failed}");
        assert_eq!(tree.processes().len(), 2);

        let (tree, bed) = (Tree::new(&script), TestBed::new());
        let runtime = tree.runtime(&bed, bed.disk().clone());
        let run = tree.start(&runtime).await;
        until("the program runs", || tree.processes().len() == 2).await;
        run.abort();
        tree.assert_no_process();
    }
}

/// A run that is resumed makes the call in progress again, and starts the program once it has the result.
#[tokio::test(flavor = "multi_thread")]
async fn a_resumed_run_starts_its_program_when_it_continues() {
    let (tree, bed) = (Tree::new(&calls_slowly()), TestBed::new());
    let runtime = tree.runtime(&bed, bed.disk().clone());
    let run = tree.start(&runtime).await;
    until("the call is in progress", || tree.made.lock().unwrap().len() == 1).await;
    run.abort();
    tree.assert_no_process();
    let run = tree.runtime(&bed, bed.disk().clone()).resume(tree.graph(), &RunId::new("run").unwrap()).await.unwrap();
    until("the call is made again", || tree.made.lock().unwrap().len() == 2).await;
    assert_eq!(tree.processes().len(), 2, "nothing but the call is in progress");
    drop(run);
    drop(runtime);
}

const PAUSE: &str = r#"version: "1.0.0"
tool_type: graph
executor_id: rye/core/runtimes/state-graph/runtime
category: shop
permissions: [rye.execute.tool.shop.count]
config:
  start: pause
  nodes:
    pause: { type: wait, timeout: 300ms, next: done }
    done: { type: return, output: { paused: true } }
"#;

/// While a call waits, nothing of the run is in memory. Then the program is started again, and no call is repeated.
#[tokio::test(flavor = "multi_thread")]
async fn a_program_is_gone_while_its_call_waits() {
    let call = |id, tool| request(id, tool, &json!({}));
    let script = format!(
        "ask '{}'\nask '{}'; one=$reply\nask '{}'\necho \"{{\\\"processed\\\":3,\\\"replies\\\":[$one]}}\"\n",
        call(1, "shop/count"),
        call(2, "shop/pause"),
        call(3, "shop/count"),
    );
    let (tree, bed) = (Tree::new(&script), TestBed::new());
    tree.write("shop/pause.yaml", PAUSE);
    tree.change("shop/process, shop/count]", "shop/count, shop/pause]");
    let runtime = tree.runtime(&bed, bed.disk().clone());
    let waiting = tree.start(&runtime).await.await.unwrap_err();
    assert!(matches!(waiting, RunError::Waiting { .. }), "{waiting}");
    tree.assert_no_process();
    assert_eq!((tree.processes().len(), tree.made.lock().unwrap().len()), (1, 1));
    tokio::time::sleep(Duration::from_millis(400)).await;
    let finished = runtime.resume(tree.graph(), &RunId::new("run").unwrap()).await.unwrap().await.unwrap();
    assert_eq!(finished.status, Status::Completed);
    assert_eq!(finished.output["replies"][0]["result"]["output"], json!({ "paused": true }));
    assert_eq!((tree.processes().len(), tree.made.lock().unwrap().len()), (2, 2));
    tree.prove(&bed).await;
    tree.assert_no_process();
}

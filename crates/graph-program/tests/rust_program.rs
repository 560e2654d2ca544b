//! A program in Rust, whose process is this file once more: its calls, its failure, and its process that dies with that of the runtime.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot continue has failed")]

#[expect(dead_code, reason = "other tests use the rest")]
#[path = "programs/tree.rs"]
mod tree;

use std::error::Error;
use std::process::ExitCode;

use graph_program::{ProgramConnection, ProgramError};
use graph_runtime::testing::{FaultyStore, TestBed};
use serde_json::{Value, json};

use tree::Tree;

/// The program.
fn batch(program: &mut ProgramConnection) -> Result<Value, Box<dyn Error>> {
    let items = program.inputs()["items"].clone();
    let count = program.call("shop/count", json!({}))?;
    let results = program.call_all((0..300).map(|number| ("shop/process", json!({ "item": format!("i{number}") }))))?;
    let done = results.iter().filter(|result| result.is_ok()).count();
    let refused = match program.call("shop/charge", json!({})) {
        Err(ProgramError::Call { code, .. }) => code,
        other => return Err(format!("{other:?}").into()),
    };
    let last = program.call("shop/process", json!({ "item": "broken" })).map_err(|error| error.to_string());
    if items == json!(["fail"]) {
        return Err("no money".into());
    }
    Ok(json!({ "processed": done, "replies": [items, count, refused, last.unwrap_err()] }))
}

async fn test() {
    let own = std::env::current_exe().unwrap();
    let tree = || {
        let tree = Tree::new("");
        tree.change("[bin/program]", &format!("[{}, program]", serde_json::to_string(&own).unwrap()));
        tree
    };
    let expected = json!({ "processed": 300, "replies": [["a", "b"], 7, -32_601, "the item is broken"] });
    let whole = tree();
    assert_eq!(whole.run(&TestBed::new()).await.unwrap(), expected);
    assert_eq!(whole.made.lock().unwrap().len(), 302);
    // The process dies after some of its writes, and another one continues.
    for write in [3, 8, 12, 15, 18] {
        let (tree, bed) = (tree(), TestBed::new());
        assert!(tree.go_on(&bed, FaultyStore::dies_after(bed.disk().clone(), write)).await.is_none(), "{write}");
        let ended = tree.go_on(&bed, FaultyStore::sound(bed.disk().clone())).await.unwrap();
        assert_eq!(ended.unwrap().output, expected);
        assert_eq!(tree.times().len(), 302);
        assert_eq!(tree.prove(&bed).await, 2);
    }
    let failing = tree();
    failing.change_graph("items: \"${inputs.items}\"", "items: [fail]");
    assert!(failing.run(&TestBed::new()).await.unwrap_err().contains("exit code 1: no money"));
}

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some("program") {
        return graph_program::run(batch);
    }
    tokio::runtime::Runtime::new().unwrap().block_on(test());
    println!("test a_program_in_rust_calls_tools ... ok");
    ExitCode::SUCCESS
}

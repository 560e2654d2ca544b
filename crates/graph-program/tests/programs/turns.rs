//! Calls, batches, failures and results.

use graph_runtime::testing::TestBed;
use serde_json::{Value, json};

use crate::tree::{Tree, request};

#[tokio::test(flavor = "multi_thread")]
async fn a_program_calls_its_tools_and_returns_its_result() {
    let script = format!(
        "ask '{}'; replies=$reply\nask '[{},{},{}]'; replies+=,$reply\necho \"{{\\\"processed\\\":4,\\\"replies\\\":[$inputs,$replies]}}\"\n",
        request(1, "shop/count", &json!({})),
        request(2, "shop/process", &json!({ "item": "a", "note": { "x": [1, null] } })),
        request(3, "shop/process", &json!({ "item": "broken" })),
        request(4, "shop/process", &json!({ "item": 5 })),
    );
    let tree = Tree::new(&script);
    let result = tree.run(&TestBed::new()).await.unwrap();
    assert_eq!(result["processed"], 4);
    let replies = result["replies"].as_array().unwrap();
    assert_eq!(replies[0], json!({ "items": ["a", "b"] }));
    assert_eq!(replies[1], json!({ "jsonrpc": "2.0", "id": 1, "result": 7 }));
    assert_eq!(replies[2][0], json!({ "jsonrpc": "2.0", "id": 2, "result": { "done": "A" } }));
    assert_eq!(replies[2][1]["error"], json!({ "code": -32_000, "message": "the item is broken" }));
    // Arguments have the types of the tool's contract.
    let wrong = replies[2][2]["error"]["message"].as_str().unwrap();
    assert!(wrong.contains("item") && wrong.contains("string"), "{wrong}");
    let mut made: Vec<Value> = tree.made.lock().unwrap().iter().map(|(_, params, _)| params.clone()).collect();
    made.sort_by_key(ToString::to_string);
    assert_eq!(made, [json!({ "item": "a", "note": { "x": [1, null] } }), json!({ "item": "broken" }), json!({})]);
    assert_eq!(tree.processes().len(), 1, "it stays between its turns");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_fails_fails_its_node() {
    for (script, expected) in [
        ("echo no money >&2; exit 3", "exit code 3: no money"),
        ("kill -TERM $$", "exit code 143"),
        ("echo done", "the program printed no JSON value"),
        ("true", "the program printed no JSON value"),
        ("echo '{\"processed\":\"many\"}'", "processed"),
        ("echo '{}'", "processed"),
    ] {
        let tree = Tree::new(script);
        let failed = tree.run(&TestBed::new()).await.unwrap_err();
        assert!(failed.contains(expected), "{script}: {failed}");
        assert_eq!((tree.processes().len(), tree.made.lock().unwrap().len()), (1, 0), "{script}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_may_end_after_any_number_of_calls() {
    let tree = Tree::new("echo '{\"processed\":0}'\n");
    assert_eq!(tree.run(&TestBed::new()).await.unwrap()["processed"], 0);
    let calls = "for i in $(seq 50); do ask '{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"shop/count\"}'; done\necho '{\"processed\":50}'\n";
    let tree = Tree::new(calls);
    assert_eq!(tree.run(&TestBed::new()).await.unwrap()["processed"], 50);
    assert_eq!((tree.processes().len(), tree.made.lock().unwrap().len()), (1, 50));
}

#[tokio::test(flavor = "multi_thread")]
async fn more_calls_than_the_contract_allows_are_not_made() {
    let script = "for i in 1 2 3; do ask '{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"shop/count\"}'; done\necho '{\"processed\":3}'\n";
    for (most, is_enough) in [(3, true), (2, false)] {
        let tree = Tree::new(script);
        tree.change("calls: 600", &format!("calls: {most}"));
        let ended = tree.run(&TestBed::new()).await;
        assert_eq!(ended.is_ok(), is_enough, "{ended:?}");
        let failed = ended.err().unwrap_or_default();
        assert!(
            is_enough || failed.contains("the program wants more than the 2 calls that its contract allows"),
            "{failed}"
        );
        assert_eq!(tree.made.lock().unwrap().len(), most);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_may_call_a_graph_and_another_program() {
    let tree = Tree::new("");
    tree.program(
        "#!/usr/bin/env bash\nIFS= read -r inputs\necho $$ >> pids\nif [[ $inputs == *outer* ]]; then\n\
         printf '%s\\n' '{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"shop/second\",\"params\":{\"items\":[\"inner\"]}}' >&0\n\
         IFS= read -r reply\necho \"{\\\"processed\\\":2,\\\"replies\\\":[$reply]}\"\nelse echo '{\"processed\":1}'; fi\n",
    );
    tree.write("tools/shop/second.yaml", crate::tree::BATCH);
    let outer = crate::tree::BATCH.replace("calls: [shop/process, shop/count]", "calls: [shop/second]").replace(
        "config_schema:",
        "permissions: [rye.execute.tool.shop.process, rye.execute.tool.shop.count]\nconfig_schema:",
    );
    tree.write("tools/shop/batch.yaml", &outer);
    tree.change_graph("{ items: \"${inputs.items}\" }", "{ items: [outer] }");
    let result = tree.run(&TestBed::new()).await.unwrap();
    assert_eq!(result["replies"][0]["result"]["output"]["processed"], 1, "{result}");
    assert_eq!(tree.processes().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_sees_a_small_environment_and_what_it_requires() {
    let tree = Tree::new(
        "echo \"{\\\"processed\\\":$(env | grep -c -e '^CARGO_MANIFEST_DIR=' -e '^CARGO_PKG_NAME=' -e '^MODE=live' || true)}\"\n",
    );
    tree.change("  cwd:", "  env: { MODE: live }\n  cwd:");
    assert_eq!(tree.run(&TestBed::new()).await.unwrap()["processed"], 1, "only its own");
    let contract = crate::tree::BATCH.replace("config_schema:", "env_requires: [CARGO_PKG_NAME]\nconfig_schema:");
    tree.write("tools/shop/batch.yaml", &contract);
    assert_eq!(tree.run(&TestBed::new()).await.unwrap()["processed"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_has_at_most_256_calls() {
    for (count, made) in [(256, 256), (257, 0)] {
        let batch: Vec<String> = (0..count).map(|id| request(id, "shop/count", &json!({}))).collect();
        let script =
            format!("ask '[{}]'\necho \"{{\\\"processed\\\":1,\\\"replies\\\":[$reply]}}\"\n", batch.join(","));
        let tree = Tree::new(&script);
        let result = tree.run(&TestBed::new()).await.unwrap();
        assert_eq!(tree.made.lock().unwrap().len(), made);
        let reply = &result["replies"][0];
        assert!(
            reply.as_array().map_or(0, Vec::len) == made && (made > 0 || reply["error"]["code"] == -32_600),
            "{reply}"
        );
    }
}

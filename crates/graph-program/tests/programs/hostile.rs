//! Programs that send garbage, too much, or calls that they may not make.

use graph_runtime::testing::TestBed;
use serde_json::json;

use crate::tree::{Tree, request};

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_no_json_ends_the_program() {
    for (script, expected) in [
        ("echo garbage >&0; read -r reply", "a message of the program cannot be read as JSON"),
        ("echo >&0; read -r reply", "a message of the program cannot be read as JSON"),
        ("printf '\"\\xff\"\\n' >&0; read -r reply", "a message of the program is not UTF-8 text"),
        ("printf '[%.0s' {1..5000} >&0; echo >&0; read -r reply", "a message of the program cannot be read as JSON"),
        (
            "exec 3>&0; head -c 9000000 /dev/zero | tr '\\0' x >&3; read -r reply",
            "a message of the program has more than 8 MiB",
        ),
        ("yes '{}' >&0", "more than 10000 of its requests were refused"),
        ("yes", "the command was stopped: it printed more than 1048576 bytes"),
        ("printf '{\"jsonrpc\":' >&0; echo '{\"processed\":1}'", "the program ended in the middle of a message"),
    ] {
        let tree = Tree::new(script);
        let failed = tree.run(&TestBed::new()).await.unwrap_err();
        assert!(failed.contains(expected), "{script}: {failed}");
        assert!(failed.len() < 1000 && tree.made.lock().unwrap().is_empty(), "{script}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_the_contract_does_not_list_is_not_made() {
    let call = |id, tool| request(id, tool, &json!({}));
    let script = format!(
        "ask '{}'; replies=$reply\nask '[{},{}]'; replies+=,$reply\necho \"{{\\\"processed\\\":1,\\\"replies\\\":[$replies]}}\"\n",
        call(1, "shop/charge"),
        call(2, "rye/bash"),
        call(3, "shop/count"),
    );
    let tree = Tree::new(&script);
    let result = tree.run(&TestBed::new()).await.unwrap();
    let refused =
        json!({ "code": -32_601, "message": "the contract of the program does not list `shop/charge` in `calls`" });
    assert_eq!(result["replies"][0]["error"], refused);
    assert_eq!(result["replies"][1][0]["error"]["code"], -32_601);
    assert_eq!(result["replies"][1][1]["result"], 7, "the rest of the batch is made");
    let made: Vec<String> = tree.made.lock().unwrap().iter().map(|(tool, ..)| tool.clone()).collect();
    assert_eq!(made, ["shop/count"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_a_program_that_does_not_wait_are_made() {
    let script = format!("echo '{}' >&0\necho '{{\"processed\":1}}'\n", request(1, "shop/count", &json!({})));
    for _ in 0..5 {
        let tree = Tree::new(&script);
        assert_eq!(tree.run(&TestBed::new()).await.unwrap()["processed"], 1);
        assert_eq!(tree.made.lock().unwrap().len(), 1);
        let tree = Tree::new(&script.replace("echo '{\"processed", "exit 3 #"));
        assert!(tree.run(&TestBed::new()).await.unwrap_err().contains("exit code 3"));
        assert_eq!(tree.made.lock().unwrap().len(), 1);
    }
}

/// A program may send several messages before it reads: they are taken one after the other.
#[tokio::test(flavor = "multi_thread")]
async fn messages_that_were_sent_together_are_taken_in_their_order() {
    let (first, second) = (request(1, "shop/count", &json!({})), request(2, "shop/process", &json!({ "item": "a" })));
    let script = format!(
        "printf '%s\\n%s\\n' '{first}' '{second}' >&0; read -r one; read -r two\n\
         echo \"{{\\\"processed\\\":2,\\\"replies\\\":[$one,$two]}}\"\n"
    );
    let result = Tree::new(&script).run(&TestBed::new()).await.unwrap();
    assert_eq!((&result["replies"][0]["result"], &result["replies"][1]["id"]), (&json!(7), &json!(2)));
}

/// A program that writes a large message while it is sent one: neither side waits for the other.
#[tokio::test(flavor = "multi_thread")]
async fn large_messages_arrive_whole() {
    let script = "big=$(head -c 3000000 /dev/zero | tr '\\0' x)\n\
        for i in 1 2; do ask \"{\\\"jsonrpc\\\":\\\"2.0\\\",\\\"id\\\":$i,\\\"method\\\":\\\"shop/process\\\",\\\"params\\\":{\\\"item\\\":\\\"$big\\\"}}\"; done\n\
        echo \"{\\\"processed\\\":${#reply}}\"\n";
    let result = Tree::new(script).run(&TestBed::new()).await.unwrap();
    assert!(result["processed"].as_u64().unwrap() > 3_000_000, "{result}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_closes_its_socket_may_still_end_well() {
    let script = format!(
        "ask '{}'\nexec < /dev/null\nsleep 0.2\necho '{{\"processed\":1}}'\n",
        request(1, "shop/count", &json!({}))
    );
    assert_eq!(Tree::new(&script).run(&TestBed::new()).await.unwrap()["processed"], 1);
}

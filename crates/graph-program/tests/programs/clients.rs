//! The clients, in Python and in Rust.

use std::io::BufReader;
use std::process::Command;

use graph_program::{PYTHON, ProgramConnection, ProgramError};
use graph_runtime::testing::TestBed;
use serde_json::json;

use crate::tree::Tree;

/// Whether there is Python. Without it, and without `REQUIRE_PYTHON`, a test says that it is skipped.
fn has_python() -> bool {
    let found = Command::new("python3").args(["-c", "import sys; sys.exit(sys.version_info < (3, 9))"]).status();
    let is_there = found.is_ok_and(|status| status.success());
    assert!(is_there || std::env::var_os("REQUIRE_PYTHON").is_none(), "there is no Python 3.9");
    if !is_there {
        println!("skipped: there is no Python 3.9");
    }
    is_there
}

/// A tree whose program is in Python, beside the client.
fn python(script: &str) -> Tree {
    let tree = Tree::new("");
    tree.program(&format!("#!/usr/bin/env python3\nimport os, sys, graph_program\nopen('pids', 'a').write(f'{{os.getpid()}}\\n')\n{script}"));
    std::fs::write(tree.path("bin/graph_program.py"), PYTHON).unwrap();
    tree.change("  cwd:", "  env: { PYTHONDONTWRITEBYTECODE: \"1\" }\n  cwd:");
    tree
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_in_python_calls_tools() {
    if !has_python() {
        return;
    }
    let tree = python(
        r#"
import subprocess
from graph_program import CallError, call, call_all, run

def main(inputs):
    print("this goes to stderr")
    subprocess.run(["echo", "as does this"], check=True)
    assert sys.stdin.read() == ""
    replies = [inputs["items"], call("shop/count"), call("shop/process", item="é\n\"'", note={"a": None})]
    for tool, arguments in [("shop/process", {"item": "broken"}), ("shop/charge", {}), ("shop/process", {"items": 1})]:
        try:
            call(tool, **arguments)
        except CallError as error:
            replies.append([error.code, str(error)])
    results = call_all([("shop/process", {"item": str(number)}) for number in range(300)])
    assert [result["done"] for result in results] == [str(number) for number in range(300)]
    mixed = call_all([("shop/process", {"item": "broken"}), ("shop/count", {})], return_errors=True)
    replies.append([type(result).__name__ for result in mixed])
    try:
        call_all([("shop/process", {"item": "broken"}), ("shop/count", {})])
    except CallError as error:
        replies.append(error.message)
    assert call_all([]) == []
    return {"processed": len(results), "replies": replies}

run(main)
"#,
    );
    let result = tree.run(&TestBed::new()).await.unwrap();
    assert_eq!(
        result,
        json!({ "processed": 300, "replies": [
            ["a", "b"], 7, { "done": "É\n\"'" },
            [-32_000, "the item is broken"],
            [-32_601, "the contract of the program does not list `shop/charge` in `calls`"],
            [-32_602, "`shop/process` has no parameter `items`"],
            ["CallError", "int"],
            "the item is broken",
        ] })
    );
    // Its batches are of 256 calls.
    assert_eq!(tree.made.lock().unwrap().len(), 307);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exception_of_python_is_the_failure_of_the_node() {
    if !has_python() {
        return;
    }
    let body = |body: &str| format!("graph_program.run(lambda inputs: {body})\n");
    for (script, expected) in [
        (body("1 / 0"), "exit code 1: ZeroDivisionError: division by zero"),
        (body("graph_program.call('shop/process', item='broken')"), "CallError: the item is broken"),
        (body("float('nan')"), "exit code 1: ValueError: Out of range float values are not JSON compliant"),
        (body("sys.exit('no money')"), "exit code 1: no money"),
        ("graph_program.call('shop/count')\n".to_owned(), "RuntimeError: tools are called inside of `run`"),
    ] {
        let failed = python(&script).run(&TestBed::new()).await.unwrap_err();
        assert!(failed.contains(expected), "{script}: {failed}");
    }
    let alone = Command::new("python3")
        .args(["-c", &format!("{PYTHON}\nrun(print)\n")])
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8(alone.stderr).unwrap();
    assert_eq!((alone.status.code(), said.trim().starts_with("stdin is no socket")), (Some(1), true), "{said}");
}

#[test]
fn a_program_in_rust_notices_what_is_no_response() {
    let ask = |lines: &str| {
        let text = format!("{{}}\n{lines}\n");
        let mut program =
            ProgramConnection::over(BufReader::new(std::io::Cursor::new(text.into_bytes())), Vec::new()).unwrap();
        program.call("shop/count", json!({})).map_err(|error| format!("{error:?}"))
    };
    assert_eq!(ask(r#"{"jsonrpc":"2.0","id":1,"result":7}"#), Ok(json!(7)));
    assert_eq!(ask(r#"{"jsonrpc":"2.0","id":1,"result":null}"#), Ok(json!(null)));
    assert!(ask(r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no"}}"#).unwrap_err().contains("-32601"));
    for wrong in [r#"{"jsonrpc":"2.0","id":2,"result":7}"#, "{}", "7", "[]", "null"] {
        assert!(ask(wrong).unwrap_err().starts_with("Protocol"), "{wrong}");
    }
    assert!(ask("").unwrap_err().starts_with("Protocol"));
    assert!(matches!(ProgramConnection::over(&b""[..], Vec::new()), Err(ProgramError::Connection(_))));
    let mut program =
        ProgramConnection::over(&b"{}\n[{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":1}]\n"[..], Vec::new()).unwrap();
    assert!(program.call_all([("a", json!({})), ("b", json!({}))]).is_err(), "one response is missing");
}

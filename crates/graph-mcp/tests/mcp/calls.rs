//! Lists and calls of tools.

use graph_mcp::Unserved;
use rmcp::model::{CallToolRequest, CancelledNotificationParam, ClientRequest, ServerResult};
use rmcp::service::PeerRequestOptions;
use serde_json::json;

use crate::tree::{Client, Tree, call, connect, lifecycles, request, soon};

#[tokio::test]
async fn each_graph_is_a_tool_with_schemas() {
    let tree = Tree::new();
    for lifecycle in lifecycles() {
        let session = connect(&tree.server(), Client::default(), lifecycle).await;
        let tools = session.list_all_tools().await.unwrap();
        let names: Vec<&str> = tools.iter().map(|tool| &*tool.name).collect();
        assert_eq!(names, ["length", "shop_approve", "shop_echo", "shop_fail", "shop_list", "shop_slow", "shop_wait"]);
        let echo = tools.iter().find(|tool| tool.name == "shop_echo").unwrap();
        assert_eq!(echo.description.as_deref(), Some("Says a word again."));
        let input = json!({
            "type": "object",
            "properties": {
                "word": { "type": "string", "description": "The word.", "minLength": 2 },
                "times": { "type": "integer", "default": 1, "minimum": 1 },
                "note": { "type": ["string", "null"], "default": "hello" },
            },
            "required": ["word"],
            "additionalProperties": false,
        });
        assert_eq!(json!(echo.input_schema), input);
        let output = json!(echo.output_schema);
        let word = json!({ "type": "string" });
        assert_eq!((&output["properties"]["output"]["properties"]["word"], &output["type"]), (&word, &json!("object")));
    }
}

#[tokio::test]
async fn a_call_is_a_run_with_a_structured_result() {
    let tree = Tree::new();
    for lifecycle in lifecycles() {
        let session = connect(&tree.server(), Client::default(), lifecycle).await;
        let (result, is_error) = call(&session, "shop_echo", json!({ "word": "hello" })).await.unwrap();
        assert!(!is_error);
        assert_eq!(result["output"], json!({ "word": "hello", "times": 1, "note": "hello" }));
        assert_eq!(
            (&result["status"], tree.status(result["run"].as_str().unwrap()).await),
            (&json!("completed"), "completed".to_owned())
        );
    }
}

/// Models send null for what they do not want to say.
#[tokio::test]
async fn a_null_argument_is_not_replaced_by_a_default() {
    let tree = Tree::new();
    let session = connect(&tree.server(), Client::default(), lifecycles()[1].clone()).await;
    let (result, is_error) = call(&session, "shop_echo", json!({ "word": "hello", "note": null })).await.unwrap();
    assert!(!is_error);
    assert_eq!(result["output"], json!({ "word": "hello", "times": 1 }));
    tree.assert_proven(result["run"].as_str().unwrap()).await;
    let (result, is_error) = call(&session, "shop_echo", json!({ "word": "hello", "times": null })).await.unwrap();
    assert!(is_error && result.as_str().unwrap().contains("found nothing at `times`"), "{result}");
}

#[tokio::test]
async fn wrong_arguments_and_names_are_refused() {
    let tree = Tree::new();
    let server = tree.server();
    let session = connect(&server, Client::default(), lifecycles()[1].clone()).await;
    for (arguments, said) in [
        (json!({}), "missing required input: 'word'"),
        (json!({ "word": 7 }), "`word`"),
        (json!({ "word": "a" }), "minLength: 2"),
        (json!({ "word": "ab", "tiems": 2 }), "the graph has no input `tiems`; did you mean `times`?"),
    ] {
        let (result, is_error) = call(&session, "shop_echo", arguments.clone()).await.unwrap();
        assert!(is_error && result.as_str().unwrap().contains(said), "{arguments}: {result}");
    }
    let dispatched = server.dispatched();
    let unknown = session.call_tool(request("shop_nothing", json!({}))).await.unwrap_err();
    assert!(unknown.to_string().contains("there is no tool of this name"), "{unknown}");
    assert_eq!(server.dispatched(), dispatched);
    let (result, is_error) = call(&session, "length", json!({ "text": "abc" })).await.unwrap();
    assert_eq!((result, is_error), (json!({ "bytes": 3 }), false));
    let (result, is_error) = call(&session, "length", json!({})).await.unwrap();
    assert_eq!((result, is_error), (json!("`text` is a text"), true));
}

#[tokio::test]
async fn a_failed_run_is_an_error_with_its_id() {
    let tree = Tree::new();
    let session = connect(&tree.server(), Client::default(), lifecycles()[1].clone()).await;
    let (result, is_error) = call(&session, "shop_fail", json!({})).await.unwrap();
    assert!(is_error && result["error"].as_str().unwrap().contains("the shop burnt down"), "{result}");
    assert_eq!(tree.status(result["run"].as_str().unwrap()).await, "error");
}

#[tokio::test]
async fn a_client_with_a_token_hears_of_each_step() {
    let tree = Tree::new();
    for lifecycle in lifecycles() {
        let client = Client::default();
        let session = connect(&tree.server(), client.clone(), lifecycle).await;
        // The client of rmcp sends a progress token with each request.
        call(&session, "shop_echo", json!({ "word": "hello" })).await.unwrap();
        let said = client.progress.lock().unwrap().clone();
        assert_eq!(said, [(1.0, "first done".to_owned()), (2.0, "second done".to_owned())]);
    }
}

#[tokio::test]
async fn a_cancelled_call_cancels_the_run() {
    let tree = Tree::new();
    for lifecycle in lifecycles() {
        let session = connect(&tree.server(), Client::default(), lifecycle).await;
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(request("shop_slow", json!({}))));
        let called = session.send_cancellable_request(request, PeerRequestOptions::no_options()).await.unwrap();
        soon(&tree.began).await;
        let cancelled = CancelledNotificationParam::new(Some(called.id.clone()), None);
        session.notify_cancelled(cancelled).await.unwrap();
        soon(&tree.stopped).await;
        let (result, _) = call(&session, "shop_echo", json!({ "word": "hello" })).await.unwrap();
        assert_eq!(result["status"], "completed");
        let is_cancelled = |status: &str| status == "cancelled";
        let mut statuses = Vec::new();
        for _ in 0..100 {
            statuses = tree.statuses("shop/slow").await;
            if statuses.iter().all(|status| is_cancelled(status)) {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        assert!(!statuses.is_empty() && statuses.iter().all(|status| is_cancelled(status)), "{statuses:?}");
    }
}

#[tokio::test]
async fn a_client_that_leaves_cancels_its_runs() {
    let tree = Tree::new();
    let server = tree.server();
    let (near, far) = tokio::io::duplex(1 << 16);
    let (read, write) = tokio::io::split(far);
    let serving = tokio::spawn({
        let server = server.clone();
        async move { server.serve(read, write).await }
    });
    let session = rmcp::serve_client(Client::default(), near).await.unwrap();
    let peer = session.peer().clone();
    let calling = tokio::spawn(async move { peer.call_tool(request("shop_slow", json!({}))).await.map(drop) });
    soon(&tree.began).await;
    session.cancel().await.unwrap();
    soon(&tree.stopped).await;
    serving.await.unwrap().unwrap();
    assert!(calling.await.unwrap().is_err());
}

#[tokio::test]
async fn more_calls_than_allowed_are_refused() {
    let tree = Tree::new();
    let server = tree.server_with_most(1);
    let session = connect(&server, Client::default(), lifecycles()[1].clone()).await;
    let slow = ClientRequest::CallToolRequest(CallToolRequest::new(request("shop_slow", json!({}))));
    let called = session.send_cancellable_request(slow, PeerRequestOptions::no_options()).await.unwrap();
    soon(&tree.began).await;
    let (result, is_error) = call(&session, "shop_echo", json!({ "word": "hello" })).await.unwrap();
    assert!(is_error && result.as_str().unwrap().starts_with("1 calls are in progress"), "{result}");
    called.cancel(None).await.unwrap();
    soon(&tree.stopped).await;
}

#[tokio::test]
async fn a_run_that_waits_for_a_time_says_so() {
    let tree = Tree::new();
    for lifecycle in lifecycles() {
        let session = connect(&tree.server(), Client::with_person([]), lifecycle).await;
        let (result, is_error) = call(&session, "shop_wait", json!({})).await.unwrap();
        let run = result["run"].as_str().unwrap().to_owned();
        assert!(!is_error && result["status"] == "waiting", "{result}");
        assert!(result["waits"].as_str().unwrap().contains("`graph work` continues the run"), "{result}");
        assert_eq!(tree.status(&run).await, "waiting");
    }
}

#[tokio::test]
async fn graphs_that_cannot_run_or_have_secrets_are_not_served() {
    let tree = Tree::new();
    let (server, unserved) = tree.server_of(&["shop/hidden", "shop/echo"], false);
    assert_eq!(server.tool_names().collect::<Vec<_>>(), ["length", "shop_echo"]);
    let [Unserved::Secret { part }] = unserved.as_slice() else { panic!("{unserved:?}") };
    assert_eq!(part, "the input `key`");
    let session = connect(&server, Client::default(), lifecycles()[0].clone()).await;
    assert!(session.call_tool(request("shop_hidden", json!({ "key": "hunter2" }))).await.is_err());
    let secret = tree.read("shop/hidden.yaml");
    for mark in ["x-sink: html", "x-guarded: true"] {
        let marked = secret.replace("x-secret: true", mark).replace("shop/hidden", "shop/marked");
        assert_ne!(marked, secret);
        tree.write("shop/marked.yaml", &marked);
        let (_, unserved) = tree.server_of(&["shop/marked"], false);
        assert!(matches!(unserved.as_slice(), [Unserved::Trusted]), "{mark}: {unserved:?}");
    }
    let refused = tree.refused_without_grant();
    assert!(refused.to_string().contains("which was not granted"), "{refused}");
}

#[tokio::test]
async fn a_lone_notification_or_response_ends_a_session_at_most() {
    let tree = Tree::new();
    let session = connect(&tree.server(), Client::default(), lifecycles()[1].clone()).await;
    let result = session
        .send_request(ClientRequest::CallToolRequest(CallToolRequest::new(request("length", json!({ "text": "" })))))
        .await;
    assert!(matches!(result, Ok(ServerResult::CallToolResult(_))), "{result:?}");
}

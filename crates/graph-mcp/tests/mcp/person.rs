//! Runs that ask a person.

use rmcp::model::{CallToolResponse, InputResponses, ProtocolVersion};
use serde_json::{Value, json};

use crate::tree::{Client, Tree, call, connect, lifecycles, request};

#[tokio::test]
async fn the_person_at_the_client_answers_a_run() {
    let tree = Tree::new();
    for lifecycle in lifecycles() {
        let client = Client::with_person([json!({ "decision": "approve", "note": "fine" })]);
        let session = connect(&tree.server(), client.clone(), lifecycle).await;
        let (result, is_error) = call(&session, "shop_approve", json!({ "cents": 5 })).await.unwrap();
        assert!(!is_error, "{result}");
        assert_eq!((&result["status"], &result["output"]), (&json!("completed"), &json!({ "decision": "approve" })));
        let asked = client.asked.lock().unwrap().clone();
        let [(message, schema)] = asked.as_slice() else { panic!("{asked:?}") };
        assert!(message.ends_with("Your answer is signed.\n\nMay 5 cents be paid?"), "{message}");
        assert_eq!(schema["properties"]["decision"]["enum"], json!(["approve", "refuse"]));
        assert_eq!(schema["required"], json!(["decision"]));
    }
}

#[tokio::test]
async fn an_answer_that_does_not_fit_is_asked_for_again() {
    let tree = Tree::new();
    for lifecycle in lifecycles() {
        let client =
            Client::with_person([json!({ "decision": "perhaps" }), json!({}), json!({ "decision": "refuse" })]);
        let session = connect(&tree.server(), client.clone(), lifecycle).await;
        let (result, _) = call(&session, "shop_approve", json!({ "cents": 5 })).await.unwrap();
        assert_eq!(result["output"], json!({ "decision": "refuse" }), "{result}");
        let asked = client.asked.lock().unwrap().clone();
        assert_eq!(asked.len(), 3);
        assert!(asked[1].0.starts_with("The last answer does not fit: "), "{asked:?}");
    }
}

#[tokio::test]
async fn an_answer_that_no_form_can_ask_for_is_json() {
    let tree = Tree::new();
    for lifecycle in lifecycles() {
        let client = Client::with_person([json!({ "answer": "[1, x" }), json!({ "answer": "[1, 2]" })]);
        let session = connect(&tree.server(), client.clone(), lifecycle).await;
        let (result, _) = call(&session, "shop_list", json!({})).await.unwrap();
        assert_eq!(result["output"], json!({ "chosen": [1, 2] }), "{result}");
    }
}

#[tokio::test]
async fn a_person_who_declines_leaves_the_run_waiting() {
    let tree = Tree::new();
    for lifecycle in lifecycles() {
        let session = connect(&tree.server(), Client::with_person([]), lifecycle).await;
        let (result, is_error) = call(&session, "shop_approve", json!({ "cents": 5 })).await.unwrap();
        assert!(!is_error && result["status"] == "waiting", "{result}");
        assert!(result["waits"].as_str().unwrap().contains("`graph answer "), "{result}");
        assert_eq!(tree.status(result["run"].as_str().unwrap()).await, "waiting");
    }
}

#[tokio::test]
async fn nobody_is_asked_without_a_key_or_forms() {
    let tree = Tree::new();
    let (keyless, _) = tree.server_of(&["shop/approve"], false);
    for lifecycle in lifecycles() {
        let client = Client::with_person([json!({ "decision": "approve" })]);
        let session = connect(&keyless, client.clone(), lifecycle.clone()).await;
        let (result, _) = call(&session, "shop_approve", json!({ "cents": 5 })).await.unwrap();
        assert_eq!((&result["status"], client.asked.lock().unwrap().len()), (&json!("waiting"), 0));
        let session = connect(&tree.server(), Client::default(), lifecycle).await;
        let (result, _) = call(&session, "shop_approve", json!({ "cents": 5 })).await.unwrap();
        assert!(result["waits"].as_str().unwrap().contains("`graph answer "), "{result}");
    }
}

/// Returns the state of a question that was not answered.
async fn state(tree: &Tree) -> (crate::tree::Session, String) {
    let session = connect(&tree.server(), Client::with_person([]), lifecycles()[1].clone()).await;
    assert_eq!(session.peer_info().unwrap().protocol_version, ProtocolVersion::V_2026_07_28);
    let asked = session.call_tool_once(request("shop_approve", json!({ "cents": 5 }))).await.unwrap();
    let CallToolResponse::InputRequired(required) = asked else { panic!("{asked:?}") };
    (session, required.request_state.unwrap())
}

fn responses(answer: Value) -> InputResponses {
    InputResponses::from([("answer".to_owned(), json!({ "action": "accept", "content": answer }))])
}

#[tokio::test]
async fn a_forged_state_answers_nothing() {
    let tree = Tree::new();
    let (session, state) = state(&tree).await;
    let answer = || responses(json!({ "decision": "approve" }));
    let flipped = |at: usize| {
        let mut bytes = state.clone().into_bytes();
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        String::from_utf8(bytes).unwrap()
    };
    let forged = (4..state.len()).step_by(7).map(flipped);
    for forged in forged.chain([String::new(), "x".to_owned(), state[..state.len() - 3].to_owned()]) {
        let params = request("shop_approve", json!({ "cents": 5 }))
            .with_input_responses(answer())
            .with_request_state(forged.clone());
        assert!(session.call_tool_once(params).await.is_err(), "{forged}");
    }
    // A state belongs to the graph that asked, and an answer needs a state.
    let params = request("shop_list", json!({})).with_input_responses(answer()).with_request_state(state.clone());
    assert!(session.call_tool_once(params).await.is_err());
    let params = request("shop_approve", json!({ "cents": 5 })).with_input_responses(answer());
    assert!(session.call_tool_once(params).await.is_err());
    // Another server does not know it either.
    let other = connect(&tree.server(), Client::with_person([]), lifecycles()[1].clone()).await;
    let params =
        request("shop_approve", json!({ "cents": 5 })).with_input_responses(answer()).with_request_state(state.clone());
    assert!(other.call_tool_once(params.clone()).await.is_err());
    assert_eq!(tree.statuses("shop/approve").await, ["waiting"]);
    // The state itself is right, and used again it gives the same result.
    for _ in 0..2 {
        let CallToolResponse::Complete(result) = session.call_tool_once(params.clone()).await.unwrap() else {
            panic!()
        };
        assert_eq!(result.structured_content.unwrap()["output"], json!({ "decision": "approve" }));
    }
    assert_eq!(tree.statuses("shop/approve").await, ["completed"]);
}

#[tokio::test]
async fn responses_of_the_wrong_shape_are_refused() {
    let tree = Tree::new();
    let (session, state) = state(&tree).await;
    for wrong in [
        InputResponses::new(),
        InputResponses::from([("other".to_owned(), json!({ "action": "accept" }))]),
        InputResponses::from([("answer".to_owned(), json!(7))]),
        InputResponses::from([("answer".to_owned(), json!({ "action": "maybe" }))]),
    ] {
        let params = request("shop_approve", json!({ "cents": 5 }))
            .with_input_responses(wrong.clone())
            .with_request_state(state.clone());
        assert!(session.call_tool_once(params).await.is_err(), "{wrong:?}");
    }
    assert_eq!(tree.statuses("shop/approve").await, ["waiting"]);
}

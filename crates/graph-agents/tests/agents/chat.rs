//! An agent whose model is behind an endpoint.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use graph_agents::{ChatModel, ChatProtocol, Price};
use graph_runtime::events::{EventFilter, EventKind, Mode};
use graph_runtime::{EncryptionKey, MemoryStore, Runtime, SecretKey, Value};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::tree::{Tree, inputs};

/// The answers of the endpoint, in their order: the deltas of a reply, or a status.
type Answers = Vec<Result<Vec<Value>, &'static str>>;

/// Answers at a port of this machine, and keeps the bodies of what it was asked.
async fn endpoint(answers: Answers) -> (String, Arc<Mutex<Vec<Value>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1/", listener.local_addr().unwrap());
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&asked);
    tokio::spawn(async move {
        for answer in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (mut request, mut piece) = (Vec::new(), [0; 4096]);
            let body = loop {
                let count = stream.read(&mut piece).await.unwrap();
                request.extend_from_slice(&piece[..count]);
                let text = String::from_utf8_lossy(&request);
                let body = text.split_once("\r\n\r\n").and_then(|(_, body)| serde_json::from_str(body).ok());
                if let Some(body) = body {
                    break body;
                }
            };
            seen.lock().unwrap().push(body);
            let text = match answer {
                Err(status) => {
                    format!("HTTP/1.1 {status}\r\nretry-after: 0\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
                }
                Ok(deltas) => {
                    let mut text =
                        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n".to_owned();
                    for delta in deltas {
                        writeln!(text, "data: {}\n", json!({ "choices": [{ "index": 0, "delta": delta }] })).unwrap();
                    }
                    let usage = json!({ "prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120 });
                    let end = json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "tool_calls" }], "usage": usage });
                    text + &format!("data: {end}\n\ndata: [DONE]\n\n")
                }
            };
            stream.write_all(text.as_bytes()).await.unwrap();
            stream.shutdown().await.unwrap_or_default();
        }
    });
    (url, asked)
}

fn call(name: &str, arguments: &Value) -> Value {
    let function = json!({ "name": name, "arguments": arguments.to_string() });
    json!({ "tool_calls": [{ "index": 0, "id": "call_9", "function": function }] })
}

/// Runs the graph around the agent, and returns its output and the pieces of text.
async fn run(tree: &Tree, model: ChatModel) -> (Value, Vec<String>) {
    let runtime = Runtime::builder()
        .store(MemoryStore::new())
        .sign_with(SecretKey::from_seed(&[1; 32]))
        .encrypt_with(EncryptionKey::from_bytes([2; 32]))
        .grant("*")
        .unwrap()
        .events(4096)
        .tools(tree.agents_with(model))
        .build()
        .unwrap();
    let mut events = runtime.events(EventFilter { modes: vec![Mode::Messages], ..EventFilter::default() }).unwrap();
    let finished = runtime.start(tree.graph(), inputs()).await.unwrap().await.unwrap();
    drop(runtime);
    let mut texts = Vec::new();
    while let Some(event) = events.next().await {
        if let EventKind::Text { text, .. } = event.unwrap().kind {
            texts.push(text);
        }
    }
    (finished.output, texts)
}

#[tokio::test]
async fn an_agent_asks_an_endpoint_until_it_answers() {
    let tree = Tree::new();
    let (url, asked) = endpoint(vec![
        Err("503 Service Unavailable"),
        Ok(vec![
            json!({ "content": "I look " }),
            json!({ "content": "at it." }),
            call("files_read", &json!({ "path": "a.rs" })),
        ]),
        Err("429 Too Many Requests"),
        Ok(vec![call("answer", &json!({ "verdict": "merge", "confidence": 0.75 }))]),
    ])
    .await;
    let model = ChatModel::builder(ChatProtocol::OpenAi, "small")
        .url(url)
        .key("sk-1")
        .price(Price { input: 1_000_000, output: 2_000_000 })
        .silence(Duration::from_secs(5))
        .build()
        .unwrap();
    let (output, texts) = run(&tree, model).await;
    assert_eq!(output, json!({ "end": "merged", "confidence": 0.75 }));
    assert_eq!(*tree.made.lock().unwrap(), [("files/read".to_owned(), json!({ "path": "a.rs" }))]);
    assert_eq!(texts, ["I look ", "at it."]);
    let asked = asked.lock().unwrap();
    assert_eq!(asked.len(), 4);
    // The reply may use what is left of 1,000 tokens and of 0.10 dollars.
    assert_eq!((&asked[0]["max_tokens"], &asked[3]["max_tokens"]), (&json!(1000), &json!(880)));
    let results: Vec<&Value> =
        asked[3]["messages"].as_array().unwrap().iter().filter(|message| message["role"] == "tool").collect();
    assert_eq!(results[0]["content"], json!("{\"text\":\"the text of a.rs\"}"));
}

/// A real model on this machine: `.ci/run` starts its server, and `.ci/small_model FILE.gguf` does it by hand.
#[tokio::test]
#[ignore = "needs the server of a model, at the URL in `SMALL_MODEL`"]
async fn a_small_model_answers_as_the_schema_says() {
    let url = std::env::var("SMALL_MODEL").expect("the variable has the URL of a server");
    let tree = Tree::new();
    tree.change("  tools: [files/read, files/list]\n", "");
    let model = ChatModel::builder(ChatProtocol::OpenAi, "small").url(url).price(Price { input: 0, output: 0 });
    let (output, texts) = run(&tree, model.answers_as_json().build().unwrap()).await;
    assert!(
        matches!(output["end"].as_str(), Some("merged" | "rejected")) && output["confidence"].is_number(),
        "{output}"
    );
    let answer: Value = serde_json::from_str(&texts.concat()).unwrap();
    assert_eq!(answer["confidence"], output["confidence"]);
    assert!(texts.len() > 3, "the text came piece by piece: {texts:?}");
}

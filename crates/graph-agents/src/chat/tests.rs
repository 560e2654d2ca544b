//! A server of this machine speaks the protocols as a test says.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use graph_model::value::Value;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::model::{ModelTool, Usage};

const KEY: &str = "sk-very-secret";

/// Answers each connection with the next text, byte for byte, and keeps what was asked. After a text that ends with `~`, it sends nothing
/// and keeps the connection.
async fn server(answers: Vec<String>) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&asked);
    tokio::spawn(async move {
        let mut kept = Vec::new();
        for answer in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (mut request, mut piece) = (Vec::new(), [0; 4096]);
            while !is_whole(&request) {
                let count = stream.read(&mut piece).await.unwrap();
                request.extend_from_slice(&piece[..count]);
            }
            seen.lock().unwrap().push(String::from_utf8(request).unwrap());
            let text = answer.trim_end_matches('~');
            stream.write_all(text.as_bytes()).await.unwrap();
            match answer.ends_with('~') {
                true => kept.push(stream),
                false => stream.shutdown().await.unwrap_or_default(),
            }
        }
    });
    (url, asked)
}

fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    body.len() >= length.unwrap_or(0)
}

fn stream(events: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n{events}")
}

/// The events of OpenAI for some pieces of a reply.
fn openai(deltas: &[Value], reason: &str, usage: Option<(u64, u64)>) -> String {
    let event = |value: Value| format!("data: {value}\n\n");
    let mut all: String =
        deltas.iter().map(|delta| event(json!({ "choices": [{ "index": 0, "delta": delta }] }))).collect();
    all += &event(json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": reason }] }));
    if let Some((input, output)) = usage {
        let usage = json!({ "prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output });
        all += &event(json!({ "choices": [], "usage": usage }));
    }
    stream(&(all + "data: [DONE]\n\n"))
}

/// The events of Anthropic.
fn anthropic(events: &[Value]) -> String {
    let event = |value: &Value| format!("event: {}\ndata: {value}\n\n", value["type"].as_str().unwrap());
    stream(&events.iter().map(event).collect::<String>())
}

fn status(line: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {line}\r\n{headers}content-length: {}\r\nconnection: close\r\n\r\n{body}", body.len())
}

fn request() -> ModelRequest {
    let call = ModelCall { id: "1-0".to_owned(), name: "files_read".to_owned(), arguments: json!({ "path": "a" }) };
    let odd = ModelCall { id: "1-1".to_owned(), name: "files_list".to_owned(), arguments: json!("{broken") };
    ModelRequest {
        system: "Review.".to_owned(),
        messages: vec![
            ModelMessage::User { text: "the inputs".to_owned() },
            ModelMessage::Assistant { text: String::new(), calls: vec![call, odd] },
            ModelMessage::Tool { id: "1-0".to_owned(), result: Ok(json!({ "text": "good" })) },
            ModelMessage::Tool { id: "1-1".to_owned(), result: Err("its arguments are no object".to_owned()) },
            ModelMessage::Assistant { text: String::new(), calls: vec![] },
            ModelMessage::User { text: "This is no answer.".to_owned() },
        ],
        tools: vec![ModelTool {
            name: "answer".to_owned(),
            description: "Takes your answer.".to_owned(),
            parameters: json!({ "type": "object", "properties": { "verdict": { "type": "string", "maxLength": 9 } } }),
        }],
        most_tokens: Some(500),
    }
}

fn model(protocol: ChatProtocol, url: &str) -> ChatModel {
    ChatModel::builder(protocol, "test-model").url(url).key(KEY).silence(Duration::from_millis(300)).build().unwrap()
}

/// Asks for a reply, and returns the pieces of its text too.
async fn ask(model: &ChatModel) -> (Result<ModelReply, ModelError>, Vec<String>) {
    let pieces = Mutex::new(Vec::new());
    let delta = |piece: &str| pieces.lock().unwrap().push(piece.to_owned());
    let reply = model.reply(request(), &delta).await;
    (reply, pieces.into_inner().unwrap())
}

fn body(asked: &Mutex<Vec<String>>) -> (String, Value) {
    let asked = asked.lock().unwrap();
    let (head, body) = asked.last().unwrap().split_once("\r\n\r\n").unwrap();
    (head.to_ascii_lowercase(), serde_json::from_str(body).unwrap())
}

#[tokio::test]
async fn openai_is_asked_and_its_reply_is_streamed() {
    let piece = |index: u64, id: Value, name: Value, arguments: &str| json!({ "tool_calls": [{ "index": index, "id": id, "function": { "name": name, "arguments": arguments } }] });
    let answer = openai(
        &[
            json!({ "role": "assistant", "content": "Let me " }),
            json!({ "content": "lo\u{f6}k." }),
            piece(0, json!("c-1"), json!("files_read"), ""),
            piece(0, Value::Null, Value::Null, "{\"path\":"),
            piece(1, json!("c-2"), json!("files_list"), "{not"),
            piece(0, Value::Null, Value::Null, "\"b\"}"),
            piece(2, json!("c-3"), json!("none"), ""),
        ],
        "tool_calls",
        Some((120, 30)),
    );
    let (url, asked) = server(vec![answer]).await;
    let (reply, pieces) = ask(&model(ChatProtocol::OpenAi, &url)).await;
    let reply = reply.unwrap();
    assert_eq!((reply.text.as_str(), reply.usage), ("Let me lo\u{f6}k.", Usage { input: 120, output: 30 }));
    assert_eq!(pieces, ["Let me ", "lo\u{f6}k."]);
    let calls: Vec<_> =
        reply.calls.iter().map(|call| (call.id.as_str(), call.name.as_str(), &call.arguments)).collect();
    assert_eq!(
        calls,
        [
            ("c-1", "files_read", &json!({ "path": "b" })),
            ("c-2", "files_list", &json!("{not")),
            ("c-3", "none", &json!({}))
        ]
    );
    let (head, body) = body(&asked);
    assert!(head.starts_with("post /v1/chat/completions ") && head.contains(&format!("authorization: bearer {KEY}")));
    assert_eq!(
        (&body["model"], &body["stream"], &body["max_tokens"]),
        (&json!("test-model"), &json!(true), &json!(500))
    );
    let roles: Vec<&str> =
        body["messages"].as_array().unwrap().iter().map(|one| one["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool", "tool", "assistant", "user"]);
    assert_eq!(body["messages"][2]["tool_calls"][1]["function"]["arguments"], json!("{\"unreadable\":\"{broken\"}"));
    assert_eq!(body["messages"][4]["content"], json!("{\"error\":\"its arguments are no object\"}"));
    assert_eq!(body["tools"][0]["function"]["name"], json!("answer"));
}

/// The client has conventions for names: an effort at the end, a namespace before `::`. None may change what is asked.
#[tokio::test]
async fn the_name_of_a_model_is_sent_as_it_is_written() {
    let parts = [
        "qwen",
        "mistral",
        "gpt-5",
        "o4-mini",
        "claude-sonnet-5",
        "claude-opus-4-5",
        "deepseek",
        "r1",
        "m\u{f6}del",
        "7b:q4",
    ];
    let ends = [
        "",
        "-none",
        "-zero",
        "-minimal",
        "-low",
        "-medium",
        "-high",
        "-xhigh",
        "-max",
        "-named",
        "-",
        "::",
        "/",
        "-20250929",
    ];
    let mut state = 7_usize;
    let mut below = |limit: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % limit
    };
    let mut names: Vec<String> =
        parts.iter().flat_map(|part| ends.iter().map(move |end| format!("{part}{end}"))).collect();
    names.extend((0..100).map(|_| {
        let joins = ["::", "/", "-", ""];
        format!("{}{}{}{}", parts[below(10)], joins[below(4)], parts[below(10)], ends[below(14)])
    }));
    let efforts = [None, Some(Reasoning::Low), Some(Reasoning::Medium), Some(Reasoning::High)];
    for protocol in [ChatProtocol::OpenAi, ChatProtocol::Anthropic] {
        let (url, asked) = server(vec![status("500 Broken", "", ""); names.len()]).await;
        for (at, name) in names.iter().enumerate() {
            let effort = efforts[at % 4];
            let model = ChatModel::builder(protocol, name.as_str()).url(url.as_str()).key(KEY);
            let model = if at % 8 < 4 { model } else { model.answers_as_json() };
            let model = effort.into_iter().fold(model, ChatModelBuilder::reasoning).build().unwrap();
            assert!(ask(&model).await.0.is_err());
            let (_, sent) = body(&asked);
            assert_eq!(sent["model"], json!(name), "{sent}");
            let word = effort.map(Reasoning::word);
            let (is, never) = match protocol {
                ChatProtocol::OpenAi => (&sent["reasoning_effort"], &sent["output_config"]),
                ChatProtocol::Anthropic => (&sent["output_config"]["effort"], &sent["reasoning_effort"]),
            };
            assert_eq!((is, never, &sent["thinking"]), (&json!(word), &Value::Null, &Value::Null), "{name}: {sent}");
            assert_eq!(sent.to_string().contains("json_schema"), at % 8 >= 4, "{name}: {sent}");
        }
    }
}

#[tokio::test]
async fn anthropic_is_asked_and_its_reply_is_streamed() {
    let answer = anthropic(&[
        json!({ "type": "message_start", "message": { "usage": { "input_tokens": 11, "output_tokens": 1 } } }),
        json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "text", "text": "" } }),
        json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta", "text": "Fine." } }),
        json!({ "type": "ping" }),
        json!({ "type": "content_block_stop", "index": 0 }),
        json!({ "type": "content_block_start", "index": 1, "content_block": { "type": "tool_use", "id": "t1", "name": "answer", "input": {} } }),
        json!({ "type": "content_block_delta", "index": 1, "delta": { "type": "input_json_delta", "partial_json": "{\"verdict\":" } }),
        json!({ "type": "content_block_delta", "index": 1, "delta": { "type": "input_json_delta", "partial_json": "\"merge\"}" } }),
        json!({ "type": "content_block_stop", "index": 1 }),
        json!({ "type": "message_delta", "delta": { "stop_reason": "tool_use" }, "usage": { "output_tokens": 9 } }),
        json!({ "type": "message_stop" }),
    ]);
    let (url, asked) = server(vec![answer]).await;
    let (reply, pieces) = ask(&model(ChatProtocol::Anthropic, &url)).await;
    let reply = reply.unwrap();
    assert_eq!(
        (reply.text.as_str(), reply.usage, pieces),
        ("Fine.", Usage { input: 11, output: 9 }, vec!["Fine.".to_owned()])
    );
    assert_eq!(reply.calls.len(), 1);
    assert_eq!(reply.calls[0].arguments, json!({ "verdict": "merge" }));
    let (head, body) = body(&asked);
    assert!(head.starts_with("post /v1/messages ") && head.contains(&format!("x-api-key: {KEY}")), "{head}");
    assert_eq!((&body["max_tokens"], &body["system"]), (&json!(500), &json!("Review.")));
    let messages = body["messages"].as_array().unwrap();
    let roles: Vec<&str> = messages.iter().map(|one| one["role"].as_str().unwrap()).collect();
    // The results of all calls of a reply are in the message behind it.
    assert_eq!(roles, ["user", "assistant", "user", "assistant", "user"]);
    assert_eq!(messages[2]["content"].as_array().unwrap().len(), 2);
    assert_eq!(messages[1]["content"][1]["input"], json!({ "unreadable": "{broken" }));
}

/// The error for an answer of the server.
enum Expected {
    Busy(Option<Duration>, &'static str),
    Refused(&'static str),
}

use Expected::{Busy, Refused};

/// The text of an error, whether it is asked again, and when.
fn check(reply: Result<ModelReply, ModelError>, expected: &Expected, answer: &str) {
    let error = reply.expect_err(answer);
    assert!(!format!("{error:?} {error}").contains(KEY), "{error:?}");
    match (&error, expected) {
        (ModelError::Busy { reason, after }, Busy(time, said)) => {
            assert!(reason.contains(said) && after == time, "{answer}: {error:?}");
        }
        (ModelError::Refused { reason }, Refused(said)) => {
            assert!(reason.contains(said), "{answer}: {error:?}");
        }
        _ => panic!("{answer}: {error:?}"),
    }
}

/// Lets a server give each of the answers, and checks the errors.
async fn check_all(protocol: ChatProtocol, cases: &[(String, Expected)]) {
    let (url, _) = server(cases.iter().map(|(answer, _)| answer.clone()).collect()).await;
    let model = model(protocol, &url);
    for (answer, expected) in cases {
        check(ask(&model).await.0, expected, answer.get(..200).unwrap_or(answer));
    }
}

#[tokio::test]
async fn each_status_is_busy_or_refused() {
    let soon = Some(Duration::from_secs(7));
    let said = |text: &str| json!({ "error": { "message": text } }).to_string();
    let echo = said(&format!("Incorrect API key provided: {KEY}.\r\nSee\u{7} the page"));
    let long = Some(Duration::from_secs(3600));
    let cases = [
        (
            status("429 Too Many Requests", "retry-after: 7\r\n", &said("slow down")),
            Busy(soon, "status 429: slow down"),
        ),
        (status("429 Too Many Requests", "retry-after-ms: 7000\r\n", "{}"), Busy(soon, "status 429")),
        (
            status("429 Too Many Requests", "retry-after: Thu, 01 Jan 1970 00:00:00 GMT\r\n", ""),
            Busy(Some(Duration::ZERO), "429"),
        ),
        (status("429 Too Many Requests", "retry-after: soon\r\n", "busy"), Busy(None, "status 429: busy")),
        (
            status("429 Too Many Requests", "", r#"{"error":{"message":"no money","code":"insufficient_quota"}}"#),
            Refused("status 429: no money"),
        ),
        (status("503 Service Unavailable", "", "<html>"), Busy(None, "status 503: <html>")),
        (status("529 Overloaded", "", &said("overloaded")), Busy(None, "overloaded")),
        (
            status("401 Unauthorized", "", &echo),
            Refused("status 401: Incorrect API key provided: [the key]. See the page"),
        ),
        (status("400 Bad Request", "", &"x".repeat(100_000)), Refused("status 400: xxx")),
        (status("307 Temporary Redirect", "location: http://127.0.0.1:1/\r\n", ""), Refused("status 307")),
        (status("429 Too Many Requests", "retry-after: 31536000\r\n", ""), Busy(long, "429")),
        (status("429 Too Many Requests", "retry-after-ms: 18446744073709551615\r\n", ""), Busy(long, "429")),
    ];
    check_all(ChatProtocol::OpenAi, &cases).await;
}

#[tokio::test]
async fn each_stream_of_openai_that_is_no_reply_is_busy_or_refused() {
    let delta = |text: &str| json!({ "content": text });
    let mut cases = vec![
        (status("200 OK", "content-type: application/json\r\n", r#"{"choices":[]}"#), Busy(None, "cut off")),
        (String::new(), Busy(None, "")),
        ("nonsense\r\n\r\n".to_owned(), Busy(None, "")),
        ("HTTP/1.1 200 OK\r\n~".to_owned(), Busy(None, "timed out")),
        (stream("~"), Busy(None, "timed out")),
        (stream("data: {\"cho~"), Busy(None, "timed out")),
        (stream("data: {\"cho"), Busy(None, "not that of the protocol")),
        (stream("data: \u{0}\n\n"), Busy(None, "not that of the protocol")),
        (stream("data: {\"error\":{\"message\":\"it broke\",\"type\":\"server_error\"}}\n\n"), Busy(None, "it broke")),
        (
            stream("data: {\"error\":{\"message\":\"too long\",\"type\":\"invalid_request_error\"}}\n\n"),
            Refused("too long"),
        ),
        (openai(&[delta("no")], "content_filter", Some((1, 1))), Refused("content_filter")),
        (openai(&[delta("free")], "stop", None), Refused("does not say how many tokens")),
        (
            openai(
                &[json!({ "tool_calls": [{ "index": 4_294_967_295_u32, "function": { "arguments": "{" } }] })],
                "stop",
                None,
            ),
            Busy(None, "a call that it did not begin"),
        ),
    ];
    let done = "data: [DONE]\n\n";
    let a =
        r#"data: {"choices":[{"index":0,"delta":{"content":"a"}}],"usage":{"prompt_tokens":1,"completion_tokens":1}}"#;
    cases.push((stream(&format!("{a}\n\n{done}")), Busy(None, "cut off")));
    cases.push((openai(&[delta("a")], "error", Some((1, 1))), Busy(None, "ended by `error`")));
    let begins =
        |at: usize| json!({ "tool_calls": [{ "index": at, "id": format!("c{at}"), "function": { "name": "n" } }] });
    let many: Vec<Value> = (0..300).map(begins).collect();
    cases.push((openai(&many, "tool_calls", Some((1, 1))), Refused("more than 256 calls")));
    cases.push((openai(&vec![delta(&"x".repeat(1 << 16)); 129], "stop", Some((1, 1))), Refused("longer than 8 MiB")));
    // A reply that ends before its end, at each event.
    let whole = openai(&[delta("a"), delta("b")], "stop", Some((1, 1)));
    for (at, _) in whole.match_indices("\n\n").filter(|(at, _)| *at > 60 && at + 2 < whole.len()) {
        cases.push((whole[..at + 2].to_owned(), Busy(None, "cut off")));
    }
    check_all(ChatProtocol::OpenAi, &cases).await;
}

#[tokio::test]
async fn each_stream_of_anthropic_that_is_no_reply_is_busy_or_refused() {
    let cases = [
        (
            anthropic(&[json!({ "type": "error", "error": { "type": "overloaded_error", "message": "Overloaded" } })]),
            Busy(None, "Overloaded"),
        ),
        (
            anthropic(&[json!({ "type": "error", "error": { "type": "invalid_request_error", "message": "bad" } })]),
            Refused("bad"),
        ),
        (anthropic(&[json!({ "type": "message_start", "message": {} })]), Busy(None, "cut off")),
        (
            anthropic(&[
                json!({ "type": "message_start", "message": { "usage": { "input_tokens": 9, "output_tokens": 1 } } }),
                json!({ "type": "message_stop" }),
            ]),
            Busy(None, "cut off"),
        ),
        (
            anthropic(&vec![json!({ "type": "content_block_start", "content_block": { "type": "tool_use", "id": "t", "name": "n" } }); 300]),
            Refused("more than 256 calls"),
        ),
        (
            anthropic(&[
                vec![json!({ "type": "content_block_start", "content_block": { "type": "tool_use", "id": "t", "name": "n" } })],
                vec![json!({ "type": "content_block_delta", "delta": { "partial_json": "x".repeat(1 << 16) } }); 129],
            ].concat()),
            Refused("longer than 8 MiB"),
        ),
        (anthropic(&[json!({ "type": "content_block_delta", "delta": {} })]), Busy(None, "not that of the protocol")),
        (
            anthropic(&[
                json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" } }),
                json!({ "type": "message_stop" }),
            ]),
            Refused("does not say how many tokens"),
        ),
    ];
    check_all(ChatProtocol::Anthropic, &cases).await;
}

/// Replies of servers that keep to the protocol in their own manner.
#[tokio::test]
async fn odd_pieces_are_put_together() {
    let piece = |index: u64, id: Value, name: Value, arguments: &str| json!({ "tool_calls": [{ "index": index, "id": id, "function": { "name": name, "arguments": arguments } }] });
    let whole = |reply: ModelReply| reply.calls.into_iter().map(|call| call.arguments).collect::<Vec<_>>();
    let none = Value::Null;
    for (deltas, reason, expected) in [
        // Ids that look like indices.
        (
            vec![
                piece(0, json!("call_1"), json!("n"), "{\"a\""),
                piece(0, none.clone(), none.clone(), ":1}"),
                piece(1, json!("call_2"), json!("n"), "{\"b\""),
                piece(1, none.clone(), none.clone(), ":2}"),
            ],
            "tool_calls",
            vec![json!({ "a": 1 }), json!({ "b": 2 })],
        ),
        // Ids that are repeated, empty, or missing, and indices from 1.
        (
            vec![
                piece(1, json!("x"), json!("n"), "{\"a\""),
                piece(1, json!("x"), none.clone(), ":1"),
                piece(1, json!(""), none.clone(), "}"),
                piece(2, json!("y"), json!("n"), "{"),
                piece(2, json!("y"), json!("n"), "}"),
            ],
            "tool_calls",
            vec![json!({ "a": 1 }), json!({})],
        ),
        // Several calls with one id: whole at once, in pieces, and with the name in each piece and behind the end.
        (
            vec![piece(0, json!("x"), json!("n"), "{\"a\":\"}\"}"), piece(1, json!("x"), json!("n"), "{\"b\":2}")],
            "tool_calls",
            vec![json!({ "a": "}" }), json!({ "b": 2 })],
        ),
        (
            vec![
                piece(0, json!("x"), json!("n"), ""),
                piece(0, none.clone(), none.clone(), "{\"a\":[1"),
                piece(0, none.clone(), none.clone(), "]}"),
                piece(1, json!("x"), json!("n"), ""),
                piece(1, none.clone(), none.clone(), "{}"),
                piece(2, json!("x"), json!("m"), "{}"),
            ],
            "tool_calls",
            vec![json!({ "a": [1] }), json!({}), json!({})],
        ),
        (
            vec![
                piece(0, json!("x"), json!("n"), "{\"a\":\"\\"),
                piece(0, json!("x"), json!("n"), "\"}\""),
                piece(0, json!("x"), json!("n"), "}"),
                piece(0, json!("x"), json!("n"), ""),
            ],
            "tool_calls",
            vec![json!({ "a": "\"}" })],
        ),
        // Readers of JSON disagree on which of two names counts.
        (
            vec![piece(0, json!("x"), json!("n"), r#"{"v":"merge","v":"reject"}"#)],
            "tool_calls",
            vec![json!(r#"{"v":"merge","v":"reject"}"#)],
        ),
    ] {
        let (url, _) = server(vec![openai(&deltas, reason, Some((1, 1)))]).await;
        assert_eq!(whole(ask(&model(ChatProtocol::OpenAi, &url)).await.0.unwrap()), expected);
    }
    let cut = anthropic(&[
        json!({ "type": "content_block_start", "content_block": { "type": "tool_use", "id": "x", "name": "n" } }),
        json!({ "type": "message_delta", "delta": { "stop_reason": "max_tokens" }, "usage": { "input_tokens": 1, "output_tokens": 1 } }),
        json!({ "type": "message_stop" }),
    ]);
    // Arguments that look whole may lack something.
    let whole_and_cut = openai(&[piece(0, json!("x"), json!("n"), "{}")], "length", Some((1, 1)));
    for (protocol, answer) in [(ChatProtocol::Anthropic, cut), (ChatProtocol::OpenAi, whole_and_cut)] {
        let (url, _) = server(vec![answer]).await;
        assert!(ask(&model(protocol, &url)).await.0.unwrap().is_cut);
    }
    let event = r#"{"error":null,"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}],"usage":{"prompt_tokens":10,"completion_tokens":35,"total_tokens":237}}"#;
    let first = event.replace("\"content\":\"a\"", "\"content\":\"b\"").replace("\"error\":null,", "");
    let (url, _) = server(vec![stream(&format!("data: {event}\n\ndata: {first}\n\ndata: [DONE]\n\n"))]).await;
    let reply = ask(&model(ChatProtocol::OpenAi, &url)).await.0.unwrap();
    // Tokens of reasoning that are in the total alone count.
    assert_eq!((reply.text.as_str(), reply.usage), ("b", Usage { input: 10, output: 227 }));
}

/// A server that sends bytes without an end, and no event.
#[tokio::test]
async fn an_answer_without_an_end_is_left() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    tokio::spawn(async move {
        for head in ["200 OK", "500 Broken"] {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut request = vec![0; 1 << 16];
                assert!(stream.read(&mut request).await.unwrap() > 0);
                let head = format!("HTTP/1.1 {head}\r\ncontent-type: text/event-stream\r\n\r\ndata: ");
                let mut next = stream.write_all(head.as_bytes()).await;
                while next.is_ok() {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    next = stream.write_all(b"x").await;
                }
            });
        }
    });
    let model = model(ChatProtocol::OpenAi, &url);
    for _ in 0..2 {
        check(ask(&model).await.0, &Busy(None, "no end"), "endless");
    }
}

/// Counts what is logged.
struct Logged(Arc<Mutex<u64>>);

impl tracing::Subscriber for Logged {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        *self.0.lock().unwrap() += 1;
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

/// The client would log answers with the key in them.
#[tokio::test]
async fn nothing_of_an_answer_is_logged() {
    let echo = format!("Incorrect API key provided: {KEY}");
    let event = json!({ "type": "error", "error": { "type": "api_error", "message": echo } });
    for (protocol, answer) in [
        (ChatProtocol::OpenAi, status("401 Unauthorized", "", &echo)),
        (ChatProtocol::Anthropic, anthropic(&[json!({ "type": "odd" }), event])),
    ] {
        let (url, _) = server(vec![answer]).await;
        let model = model(protocol, &url);
        let logged = Arc::new(Mutex::new(0));
        let _here = tracing::subscriber::set_default(Logged(Arc::clone(&logged)));
        tracing::error!("one");
        assert!(ask(&model).await.0.is_err());
        assert_eq!(*logged.lock().unwrap(), 1);
    }
}

#[tokio::test]
async fn a_model_that_is_not_there_is_busy() {
    let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let url = format!("http://127.0.0.1:{port}/v1/");
    check(ask(&model(ChatProtocol::OpenAi, &url)).await.0, &Busy(None, "refused"), "no server");
    let unknown =
        ChatModel::builder(ChatProtocol::OpenAi, "m").url("https://models.invalid/").key(KEY).build().unwrap();
    check(ask(&unknown).await.0, &Busy(None, ""), "no host");
}

/// A stream of random pieces is a reply or an error, whatever it says.
#[tokio::test]
async fn random_streams_are_replies_or_errors() {
    let count: u64 = std::env::var("STREAMS").map_or(200, |count| count.parse().unwrap());
    let mut state = std::env::var("SEED").map_or(1_u64, |seed| seed.parse().unwrap());
    let mut below = |limit: usize| {
        // Xorshift: the same pieces for the same seed.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % limit as u64).unwrap()
    };
    let pieces = [
        r#"{"choices":[{"index":0,"delta":{"content":"a"}}]}"#,
        r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"x","function":{"name":"n","arguments":"{"}}]}}]}"#,
        r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":9999999,"id":"y","function":{"name":"m","arguments":"}"}}]}}]}"#,
        r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"}"}}]}}]}"#,
        r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":-1,"function":null}]}}]}"#,
        r#"{"choices":[{"index":0,"delta":{"content":[{"type":"text","text":"b"}]}}]}"#,
        r#"{"choices":[{"index":0,"delta":null,"finish_reason":"length"}]}"#,
        r#"{"choices":[],"usage":{"prompt_tokens":2147483647,"completion_tokens":-5,"total_tokens":0}}"#,
        r#"{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}}"#,
        r#"{"choices":"none","error":"odd"}"#,
        r#"[]"#,
        r#"null"#,
        r#"{"#,
        "[DONE]",
        r#"{"type":"content_block_start","content_block":{"type":"tool_use","id":"t","name":"n"}}"#,
        r#"{"type":"content_block_delta","delta":{"partial_json":"{}","text":"c"}}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":7},"usage":{"input_tokens":5,"output_tokens":5}}"#,
        r#"{"type":"content_block_stop"}"#,
        r#"{"type":"message_stop"}"#,
    ];
    let kinds = [
        "message_start",
        "message_delta",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_stop",
        "odd",
    ];
    let mut replies = 0;
    for (protocol, end) in [
        (
            ChatProtocol::OpenAi,
            "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1}}\n\ndata: [DONE]\n\n",
        ),
        (
            ChatProtocol::Anthropic,
            "event: message_delta\ndata: {\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"input_tokens\":1,\"output_tokens\":1}}\n\nevent: message_stop\ndata: {}\n\n",
        ),
    ] {
        let answers = (0..count).map(|_| {
            let events = (0..below(6)).map(|_| {
                let kind = if protocol == ChatProtocol::Anthropic {
                    format!("event: {}\n", kinds[below(kinds.len())])
                } else {
                    String::new()
                };
                format!("{kind}data: {}\n\n", pieces[below(pieces.len())])
            });
            let events: String = events.collect();
            stream(&(events + if below(3) == 0 { "" } else { end }))
        });
        let (url, _) = server(answers.collect()).await;
        let model = model(protocol, &url);
        for number in 0..count {
            match ask(&model).await.0 {
                Ok(_) => replies += 1,
                Err(error) => assert!(!error.to_string().is_empty(), "{number}"),
            }
        }
    }
    assert!(replies > 5, "{replies}");
}

#[test]
fn only_safe_endpoints_are_asked() {
    let built = |url: &str| ChatModel::builder(ChatProtocol::OpenAi, "m").url(url).key(KEY).build();
    for url in ["https://models.example/v1", "http://localhost:1/v1/", "http://[::1]:1/", "http://127.0.0.2:1/"] {
        assert!(built(url).is_ok(), "{url}");
    }
    for (url, reason) in [
        ("http://models.example/v1/", "use `https`"),
        ("http://localhost.evil.example/", "use `https`"),
        ("http://10.0.0.1/", "use `https`"),
        ("ftp://models.example/", "begin with `https://`"),
        ("file:///etc/passwd", "no host"),
        ("https://user:pass@models.example/", "no user"),
        ("https://models.example/?key=s3cret", "no query"),
        ("https://user:pass@?ss@models.example/", ""),
        ("https://user:pa?pass@models.example/", ""),
        ("models.example", "relative URL"),
        ("", "relative URL"),
    ] {
        let error = built(url).unwrap_err().to_string();
        assert!(error.contains(reason) && !error.contains("pass@") && !error.contains("s3cret"), "{url}: {error}");
    }
    let open = ChatModel::builder(ChatProtocol::OpenAi, "m").url("http://10.0.0.1/").allow_http().build();
    assert!(open.is_ok());
    for key in ["", "a b", "a\nb", "k\u{e9}y"] {
        let built = ChatModel::builder(ChatProtocol::OpenAi, "m").key(key).build();
        assert!(matches!(built, Err(ChatModelError::Key { .. })), "{key:?}");
    }
    let keyless = ChatModel::builder(ChatProtocol::Anthropic, "m").build();
    assert!(matches!(keyless, Err(ChatModelError::Key { .. })), "Anthropic always asks for one");
    let shown =
        format!("{:?} {:?}", ChatModel::builder(ChatProtocol::OpenAi, "m").key(KEY), built("https://a.example"));
    assert!(shown.contains("\"m\"") && !shown.contains(KEY), "{shown}");
}

/// A model that cannot call tools is asked for JSON.
#[tokio::test]
async fn an_answer_may_be_asked_for_as_json() {
    for protocol in [ChatProtocol::OpenAi, ChatProtocol::Anthropic] {
        let (url, asked) = server(vec![status("500 Broken", "", ""), status("500 Broken", "", "")]).await;
        let model = ChatModel::builder(protocol, "small").url(url).key(KEY).answers_as_json().build().unwrap();
        assert!(ask(&model).await.0.is_err());
        let (_, sent) = body(&asked);
        let text = sent.to_string();
        assert!(sent["tools"].as_array().is_none_or(Vec::is_empty) && text.contains("There are no tools."), "{sent}");
        assert!(
            text.contains("json_schema") && text.contains("\"verdict\":{\"type\":\"string\",\"maxLength\":9}"),
            "{sent}"
        );
        // An agent with tools needs calls.
        let mut with_tools = request();
        with_tools.tools.push(with_tools.tools[0].clone());
        assert!(model.reply(with_tools, &|_| {}).await.is_err());
        let (_, sent) = body(&asked);
        assert!(sent["tools"].as_array().is_some_and(|tools| tools.len() == 2), "{sent}");
        assert_eq!(sent["tools"].to_string().matches("\"maxLength\":9").count(), 2, "{sent}");
        assert!(!sent.to_string().contains("json_schema"), "{sent}");
    }
}

/// A server without a key gets no header with one.
#[tokio::test]
async fn an_endpoint_without_a_key_is_asked_without_one() {
    let (url, asked) = server(vec![openai(&[json!({ "content": "{}" })], "stop", Some((1, 2)))]).await;
    let model = ChatModel::builder(ChatProtocol::OpenAi, "small").url(url).most_tokens(64).build().unwrap();
    assert_eq!(ask(&model).await.0.unwrap().text, "{}");
    let (head, body) = body(&asked);
    assert!(head.starts_with("post /v1/chat/completions ") && !head.contains("authorization"), "{head}");
    assert_eq!(body["max_tokens"], json!(64));
}

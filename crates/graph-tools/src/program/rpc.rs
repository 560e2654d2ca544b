//! The messages between a program and the runtime: JSON-RPC 2.0, a message on each line.

use graph_engine::ActionError;
use graph_model::digest::Digest;
use graph_model::number::read_json;
use graph_model::value::{Map, Value};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The most calls of a batch.
pub(super) const MOST_CALLS: usize = 256;

/// The most bytes of a request's id. It is returned as it is.
const MOST_ID: usize = 256;

/// The most letters of a name that the program wrote in an error.
const MOST_NAME: usize = 200;

const INVALID_REQUEST: i32 = -32_600;
const NO_SUCH_TOOL: i32 = -32_601;
const WRONG_ARGUMENTS: i32 = -32_602;
/// The call was made, and failed.
const FAILED: i32 = -32_000;

/// A tool that the program may call, and the names of its parameters.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct ProgramTool {
    id: String,
    parameters: Vec<String>,
}

/// A call that the program wants.
#[derive(Debug, Clone, Serialize)]
pub(super) struct WantedCall {
    id: String,
    tool: String,
    arguments: Map<String, Value>,
}

/// A call that the program wanted, as the talk has it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct PastCall {
    pub(super) id: String,
    pub(super) tool: String,
    /// The digest of its arguments, in whichever order.
    pub(super) digest: Digest,
}

impl WantedCall {
    /// Returns the call as the talk has it.
    pub(super) fn to_past(&self) -> PastCall {
        let mut arguments = Value::Object(self.arguments.clone());
        arguments.sort_all_objects();
        PastCall { id: self.id.clone(), tool: self.tool.clone(), digest: Digest::of(arguments.to_string()) }
    }
}

/// The result of a call, or the reason why it has none.
pub(super) type CallAnswer = Result<Value, String>;

/// A request, or a batch of them, whose responses are one message.
#[derive(Debug)]
pub(super) struct RpcMessage {
    is_batch: bool,
    requests: Vec<RpcRequest>,
}

#[derive(Debug)]
enum RpcRequest {
    /// A call that is to be made.
    Call { id: Value, tool: String, arguments: Map<String, Value> },
    /// A call that is not made, with the response.
    Refused(Value),
}

impl RpcMessage {
    /// Reads a line of the program.
    ///
    /// # Errors
    ///
    /// If it is not one JSON value: then it is not known where the next message begins.
    pub(super) fn read(line: &[u8], tools: &[ProgramTool]) -> Result<Self, ActionError> {
        let refused = |reason: String| ActionError::permanent(format!("a message of the program {reason}"));
        let text = std::str::from_utf8(line)
            .map_err(|error| refused(format!("is not UTF-8 text (byte {})", error.valid_up_to())))?;
        let value = read_json(text).map_err(|error| refused(format!("cannot be read as JSON: {error}")))?;
        let Value::Array(batch) = value else {
            return Ok(Self { is_batch: false, requests: vec![RpcRequest::of(value, tools)] });
        };
        if batch.is_empty() || batch.len() > MOST_CALLS {
            let refusal = error(Value::Null, INVALID_REQUEST, format!("a batch has 1 to {MOST_CALLS} calls"));
            return Ok(Self { is_batch: false, requests: vec![RpcRequest::Refused(refusal)] });
        }
        let mut requests: Vec<RpcRequest> = Vec::with_capacity(batch.len());
        for value in batch {
            let request = RpcRequest::of(value, tools);
            let is_known = |one: &RpcRequest| matches!((one, &request), (RpcRequest::Call { id, .. }, RpcRequest::Call { id: again, .. }) if id == again);
            let is_repeated = requests.iter().any(is_known);
            requests.push(match request {
                RpcRequest::Call { id, .. } if is_repeated => {
                    RpcRequest::Refused(error(id, INVALID_REQUEST, "another call of the batch has this `id`"))
                }
                request => request,
            });
        }
        Ok(Self { is_batch: true, requests })
    }

    /// Returns the calls that are to be made, whose ids begin with the number of the turn.
    pub(super) fn calls(&self, turn: usize) -> Vec<WantedCall> {
        let wanted = self.requests.iter().filter_map(|request| match request {
            RpcRequest::Call { tool, arguments, .. } => Some((tool, arguments)),
            RpcRequest::Refused(_) => None,
        });
        let call = |(at, (tool, arguments)): (usize, (&String, &Map<String, Value>))| WantedCall {
            id: format!("{turn}-{at}"),
            tool: tool.clone(),
            arguments: arguments.clone(),
        };
        wanted.enumerate().map(call).collect()
    }

    /// Returns how many of its calls are refused.
    pub(super) fn refused(&self) -> usize {
        self.requests.iter().filter(|request| matches!(request, RpcRequest::Refused(_))).count()
    }

    /// Returns the response as a line. `answers` are those of the calls, in their order.
    pub(super) fn response(self, answers: impl IntoIterator<Item = CallAnswer>) -> Vec<u8> {
        let mut answers = answers.into_iter();
        let responses = self.requests.into_iter().map(|request| match request {
            RpcRequest::Refused(response) => response,
            RpcRequest::Call { id, .. } => match answers.next() {
                Some(Ok(result)) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
                Some(Err(reason)) => error(id, FAILED, reason),
                None => error(id, FAILED, "the call has no result"),
            },
        });
        let mut responses: Vec<Value> = responses.collect();
        let response = match (self.is_batch, responses.len()) {
            (false, 1) => responses.remove(0),
            _ => Value::Array(responses),
        };
        line(&response)
    }
}

impl RpcRequest {
    fn of(value: Value, tools: &[ProgramTool]) -> Self {
        let Value::Object(mut request) = value else {
            return Self::Refused(error(Value::Null, INVALID_REQUEST, "a request is an object"));
        };
        let id = match request.remove("id") {
            Some(Value::String(id)) if id.len() <= MOST_ID => Value::String(id),
            Some(Value::Number(id)) => Value::Number(id),
            _ => {
                let message = format!("a call needs an `id`, a number or a text of at most {MOST_ID} bytes");
                return Self::Refused(error(Value::Null, INVALID_REQUEST, message));
            }
        };
        let refused = |code: i32, message: String| Self::Refused(error(id.clone(), code, message));
        if request.get("jsonrpc") != Some(&Value::from("2.0")) {
            return refused(INVALID_REQUEST, "`jsonrpc` is `2.0`".to_owned());
        }
        let Some(Value::String(method)) = request.remove("method") else {
            return refused(INVALID_REQUEST, "`method` is the id of a tool".to_owned());
        };
        let Some(tool) = tools.iter().find(|tool| tool.id == method) else {
            let message = format!("the contract of the program does not list `{}` in `calls`", shown(&method));
            return refused(NO_SUCH_TOOL, message);
        };
        let arguments = match request.remove("params") {
            None => Map::new(),
            Some(Value::Object(arguments)) => arguments,
            Some(_) => return refused(WRONG_ARGUMENTS, "`params` is an object with the arguments".to_owned()),
        };
        match arguments.keys().find(|name| !tool.parameters.contains(name)) {
            Some(name) => refused(WRONG_ARGUMENTS, format!("`{}` has no parameter `{}`", tool.id, shown(name))),
            None => Self::Call { id, tool: method, arguments },
        }
    }
}

/// Returns a value as a line.
pub(super) fn line(value: &Value) -> Vec<u8> {
    let mut line = value.to_string().into_bytes();
    line.push(b'\n');
    line
}

fn error(id: Value, code: i32, message: impl Into<String>) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message.into() } })
}

fn shown(name: &str) -> String {
    name.escape_debug().take(MOST_NAME).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools() -> Vec<ProgramTool> {
        vec![ProgramTool { id: "shop/price".to_owned(), parameters: vec!["article".to_owned()] }]
    }

    fn read(text: &str) -> Result<RpcMessage, String> {
        RpcMessage::read(text.as_bytes(), &tools()).map_err(|error| error.to_string())
    }

    /// Returns the response to a message none of whose calls is made.
    fn refusal(text: &str) -> Value {
        let message = read(text).unwrap();
        assert!(message.calls(1).is_empty(), "{text}");
        serde_json::from_slice(&message.response([])).unwrap()
    }

    #[test]
    fn requests_that_are_refused_have_the_codes_of_json_rpc() {
        let long = "x".repeat(300);
        for (text, code) in [
            ("7", -32_600),
            ("null", -32_600),
            ("[]", -32_600),
            ("{}", -32_600),
            (r#"{"jsonrpc":"2.0","method":"shop/price","params":{}}"#, -32_600),
            (r#"{"jsonrpc":"2.0","id":null,"method":"shop/price"}"#, -32_600),
            (r#"{"jsonrpc":"2.0","id":{},"method":"shop/price"}"#, -32_600),
            (&format!(r#"{{"jsonrpc":"2.0","id":"{long}","method":"shop/price"}}"#), -32_600),
            (r#"{"jsonrpc":"1.0","id":1,"method":"shop/price"}"#, -32_600),
            (r#"{"jsonrpc":"2.0","id":1,"method":7}"#, -32_600),
            (r#"{"jsonrpc":"2.0","id":1,"method":"shop/charge"}"#, -32_601),
            (r#"{"jsonrpc":"2.0","id":1,"method":"shop/price/"}"#, -32_601),
            (r#"{"jsonrpc":"2.0","id":1,"method":"shop/price","params":["tea"]}"#, -32_602),
            (r#"{"jsonrpc":"2.0","id":1,"method":"shop/price","params":{"articles":1}}"#, -32_602),
            (&format!("[{}]", vec!["1"; MOST_CALLS + 1].join(",")), -32_600),
        ] {
            assert_eq!(refusal(text)["error"]["code"], code, "{text}");
        }
        let long = refusal(&format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{}"}}"#, "y".repeat(1 << 20)));
        assert!(long.to_string().len() < 400, "an error does not repeat what the program sent");
    }

    #[test]
    fn a_batch_has_a_response_for_each_of_its_requests_in_order() {
        let text = r#"[{"jsonrpc":"2.0","id":"a","method":"shop/price","params":{"article":"tea"}}, 5,
            {"jsonrpc":"2.0","id":"b","method":"no"},{"jsonrpc":"2.0","id":"a","method":"shop/price"},
            {"jsonrpc":"2.0","id":"c","method":"shop/price"}]"#;
        let message = read(text).unwrap();
        let calls = message.calls(3);
        assert_eq!(calls.iter().map(|call| call.id.as_str()).collect::<Vec<_>>(), ["3-0", "3-1"]);
        assert_eq!(message.refused(), 3);
        let line = message.response([Ok(json!(450)), Err("no".to_owned())]);
        assert!(line.ends_with(b"\n") && !line[..line.len() - 1].contains(&b'\n'));
        let response: Vec<Value> = serde_json::from_slice(&line).unwrap();
        let ids: Vec<&Value> = response.iter().map(|one| &one["id"]).collect();
        assert_eq!(ids, [&json!("a"), &Value::Null, &json!("b"), &json!("a"), &json!("c")]);
        assert_eq!(response[0]["result"], 450);
        assert_eq!(response[4]["error"], json!({ "code": -32_000, "message": "no" }));
    }

    #[test]
    fn a_batch_of_one_has_a_batch_as_its_response() {
        let text = r#"[{"jsonrpc":"2.0","id":1,"method":"shop/price"}]"#;
        let response: Value = serde_json::from_slice(&read(text).unwrap().response([Ok(json!(1))])).unwrap();
        assert!(response.is_array());
    }

    #[test]
    fn lines_that_are_no_json_are_errors() {
        let deep = "[".repeat(100_000);
        for text in ["", "{", "x", "{} {}", r#"{"id":1,"id":2}"#, "123456789012345678901234567890", deep.as_str()] {
            let error = read(text).unwrap_err();
            assert!(error.starts_with("a message of the program cannot be read as JSON"), "{error}");
            assert!(error.len() < 400);
        }
        let error = RpcMessage::read(b"\"\xff\"", &tools()).unwrap_err().to_string();
        assert_eq!(error, "a message of the program is not UTF-8 text (byte 1)");
    }

    /// Changes of messages are errors, or have a response; only calls of listed tools with their parameters are made.
    #[test]
    fn random_messages_are_answered_or_refused() {
        let bases = [
            r#"{"jsonrpc":"2.0","id":1,"method":"shop/price","params":{"article":"tea"}}"#,
            r#"{"jsonrpc":"2.0","id":"a","method":"shop/price"}"#,
            r#"[{"jsonrpc":"2.0","id":1,"method":"shop/price"},{"jsonrpc":"2.0","id":2,"method":"shop/price","params":{"article":[]}}]"#,
        ];
        let pieces = [
            "{",
            "}",
            "[",
            "]",
            ",",
            ":",
            "\"",
            "\\",
            "null",
            "1e400",
            "-0",
            "\u{0}",
            "é",
            "\\ud800",
            "{},",
            "\"id\":1,",
            "2",
        ];
        let number =
            |name: &str, default: u64| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default);
        let (messages, mut seed) = (number("MESSAGES", 50_000), number("SEED", 1));
        let (mut errors, mut made, mut refusals) = (0, 0, 0);
        let mut random = |most: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(seed >> 33).unwrap() % most
        };
        for _ in 0..messages {
            let mut text = bases[random(bases.len())].as_bytes().to_vec();
            for _ in 0..random(4) {
                let at = random(text.len());
                match random(4) {
                    0 => drop(text.drain(at..(at + random(9)).min(text.len()))),
                    1 => text[at] = u8::try_from(random(256)).unwrap(),
                    2 => text[at] ^= 1 << random(7),
                    _ => drop(text.splice(at..at, pieces[random(pieces.len())].bytes())),
                }
                if text.is_empty() {
                    break;
                }
            }
            let Ok(message) = RpcMessage::read(&text, &tools()) else {
                errors += 1;
                continue;
            };
            let calls = message.calls(1);
            let is_listed =
                |call: &WantedCall| call.tool == "shop/price" && call.arguments.keys().all(|name| name == "article");
            assert!(calls.iter().all(is_listed), "{calls:?}");
            let refused = message.refused();
            let line = message.response(calls.iter().map(|_| Ok(Value::Null)));
            let response: Value = serde_json::from_slice(&line).unwrap();
            let all: Vec<&Value> = response.as_array().map_or_else(|| vec![&response], |all| all.iter().collect());
            assert_eq!(all.len(), calls.len() + refused);
            assert_eq!(all.iter().filter(|one| one.get("error").is_some()).count(), refused);
            (made, refusals) = (made + calls.len(), refusals + refused);
        }
        println!("{messages} messages: {errors} errors, {made} calls, {refusals} refused");
        assert!([errors, made, refusals].iter().all(|count| count * 20 > usize::try_from(messages).unwrap()));
    }
}

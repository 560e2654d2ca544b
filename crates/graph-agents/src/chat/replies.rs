//! Replies as they are streamed, and errors in place of replies.

use std::time::{Duration, SystemTime};

use futures_util::StreamExt;
use genai::chat::{ChatStream, ChatStreamEvent, StopReason, StreamEnd, ToolCall};
use graph_model::number::read_json;
use graph_model::value::Value;
use reqwest::header::HeaderMap;
use serde_json::json;
use tracing::instrument::WithSubscriber;
use tracing::subscriber::NoSubscriber;

use crate::chat::{ChatModel, ChatProtocol};
use crate::model::{ModelCall, ModelError, ModelReply, Usage};

/// How many bytes the text and the arguments of a reply have, at most.
const MOST_BYTES: usize = 8 << 20;

/// The longest pause that an endpoint can ask for.
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);

/// How many calls a reply has, at most.
const MOST_CALLS: usize = 256;

impl ChatModel {
    /// Reads a reply to its end. One without an end was cut off.
    pub(super) async fn read(
        &self,
        mut stream: ChatStream,
        has_limits: bool,
        delta: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<ModelReply, ModelError> {
        let (mut text, mut calls) = (String::new(), StreamedCalls::default());
        loop {
            // The client logs what it gets, which may have the key.
            let next = stream.next().with_subscriber(NoSubscriber::default());
            let next = tokio::time::timeout(self.silence.saturating_mul(4), next).await;
            let Some(event) = next.map_err(|_| busy("it sends something that has no end"))? else { break };
            let event = match event {
                // Some endpoints say in each event that there is no error.
                Err(genai::Error::ChatResponse { body: Value::Null, .. }) => continue,
                event => event.map_err(|error| self.failed(&error))?,
            };
            match event {
                ChatStreamEvent::Chunk(chunk) => {
                    delta(&chunk.content);
                    text.push_str(&chunk.content);
                }
                ChatStreamEvent::ToolCallChunk(chunk) => match self.protocol {
                    ChatProtocol::OpenAi => calls.add(chunk.tool_call)?,
                    ChatProtocol::Anthropic => calls.replace(chunk.tool_call)?,
                },
                ChatStreamEvent::End(end) => return self.ended(text, calls, &end, has_limits),
                _ => {}
            }
            if text.len() + calls.bytes > MOST_BYTES {
                return Err(refused(format!("its reply is longer than {} MiB", MOST_BYTES >> 20)));
            }
        }
        Err(busy("its reply was cut off"))
    }

    fn ended(
        &self,
        text: String,
        calls: StreamedCalls,
        end: &StreamEnd,
        has_limits: bool,
    ) -> Result<ModelReply, ModelError> {
        let is_cut = match &end.captured_stop_reason {
            Some(reason @ StopReason::ContentFilter(_)) => {
                return Err(refused(format!("its filter ended the reply ({})", self.shown(reason.raw()))));
            }
            Some(StopReason::Completed(_) | StopReason::ToolCall(_) | StopReason::StopSequence(_)) => false,
            Some(StopReason::MaxTokens(_)) => true,
            Some(StopReason::Other(reason)) => {
                return Err(busy(format!("its reply ended by `{}`", self.shown(reason))));
            }
            None => return Err(busy("its reply was cut off")),
        };
        let tokens = |count: Option<i32>| count.and_then(|count| u64::try_from(count).ok());
        let usage = end.captured_usage.as_ref();
        let usage = usage.and_then(|usage| {
            let (input, output) = (tokens(usage.prompt_tokens)?, tokens(usage.completion_tokens)?);
            // Some endpoints count the reasoning in the total alone.
            let total = tokens(usage.total_tokens).unwrap_or_default();
            Some((input, output.max(total.saturating_sub(input))))
        });
        let usage = match usage {
            Some((input, output)) => Usage { input, output },
            // Limits that cannot be counted are not held.
            None if has_limits => {
                return Err(refused("it does not say how many tokens a reply took, which limits need".to_owned()));
            }
            None => Usage::default(),
        };
        Ok(ModelReply { text, calls: calls.finish(), usage, is_cut })
    }

    /// Returns the reason that there is no reply.
    pub(super) fn failed(&self, error: &genai::Error) -> ModelError {
        match error {
            genai::Error::HttpError { status, body, headers, .. } => self.status(status.as_u16(), body, headers),
            genai::Error::WebStream { error, cause, .. } => match error.downcast_ref::<genai::Error>() {
                Some(error) => self.failed(error),
                None => self.unreachable(error.as_ref(), cause),
            },
            // An error in the stream, after a status that promised more.
            genai::Error::ChatResponse { body, .. } => self.said_in_stream(body),
            genai::Error::StreamParse { .. } | genai::Error::JsonValueExt(_) | genai::Error::SerdeJson(_) => {
                busy("its reply is not that of the protocol")
            }
            other => match other.status() {
                Some(status) => {
                    let headers = other.headers().cloned().unwrap_or_default();
                    self.status(status.as_u16(), "", &headers)
                }
                None => refused(self.shown(&other.to_string())),
            },
        }
    }

    fn status(&self, status: u16, body: &str, headers: &HeaderMap) -> ModelError {
        let said = serde_json::from_str::<Value>(body).unwrap_or(Value::Null);
        let text = message(&said["error"]).or_else(|| said["message"].as_str());
        let text = text.map_or_else(|| self.shown(body), |text| self.shown(text));
        let reason = if text.is_empty() { format!("status {status}") } else { format!("status {status}: {text}") };
        let is_busy = matches!(status, 408 | 409 | 425 | 429) || (500..600).contains(&status) && status != 501;
        // A quota that is used up is no rate.
        if is_busy && said["error"]["code"] != "insufficient_quota" {
            ModelError::Busy { reason, after: retry_after(headers) }
        } else {
            refused(reason)
        }
    }

    fn said_in_stream(&self, body: &Value) -> ModelError {
        let error = if body["error"].is_object() { &body["error"] } else { body };
        let text = message(error).map_or_else(|| self.shown(&error.to_string()), |text| self.shown(text));
        let kind = error["type"].as_str().or_else(|| error["code"].as_str()).unwrap_or_default();
        match kind {
            "authentication_error"
            | "billing_error"
            | "insufficient_quota"
            | "invalid_request_error"
            | "not_found_error"
            | "permission_error"
            | "request_too_large" => refused(text),
            _ => busy(text),
        }
    }

    fn unreachable(&self, error: &(dyn std::error::Error + Send + Sync + 'static), cause: &str) -> ModelError {
        let mut reason = self.shown(cause);
        // The text of the HTTP client says the least.
        let mut at = error.source();
        while let Some(source) = at {
            reason = self.shown(&source.to_string());
            at = source.source();
        }
        match error.downcast_ref::<reqwest::Error>() {
            Some(error) if error.is_builder() => refused(reason),
            _ => busy(reason),
        }
    }
}

/// Returns the text of an error, where protocols have it.
fn message(error: &Value) -> Option<&str> {
    error["message"].as_str().or_else(|| error.as_str())
}

fn busy(reason: impl Into<String>) -> ModelError {
    ModelError::Busy { reason: reason.into(), after: None }
}

fn refused(reason: String) -> ModelError {
    ModelError::Refused { reason }
}

/// Returns the time after which the endpoint may be asked again (RFC 9110, section 10.2.3), at most [`LONGEST_PAUSE`].
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    Some(asked_pause(headers)?.min(LONGEST_PAUSE))
}

fn asked_pause(headers: &HeaderMap) -> Option<Duration> {
    let header = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    if let Some(milliseconds) = header("retry-after-ms").and_then(|text| text.parse().ok()) {
        return Some(Duration::from_millis(milliseconds));
    }
    let text = header("retry-after")?;
    match text.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => Some(httpdate::parse_http_date(text).ok()?.duration_since(SystemTime::now()).unwrap_or_default()),
    }
}

/// A call of a reply, so far.
#[derive(Default)]
struct StreamedCall {
    id: String,
    name: String,
    arguments: String,
    /// How many objects and lists in the arguments are open.
    open: usize,
    is_in_text: bool,
    is_escaped: bool,
}

impl StreamedCall {
    fn push(&mut self, piece: &str) {
        for byte in piece.bytes() {
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' => self.is_escaped = self.is_in_text,
                b'"' => self.is_in_text = !self.is_in_text,
                b'{' | b'[' if !self.is_in_text => self.open += 1,
                b'}' | b']' if !self.is_in_text => self.open = self.open.saturating_sub(1),
                _ => {}
            }
        }
        self.arguments.push_str(piece);
    }

    /// Whether nothing of the arguments is missing.
    fn is_whole(&self) -> bool {
        self.open == 0 && !self.is_in_text && self.arguments.trim_end().ends_with('}')
    }

    fn is_same(&self, id: &str, name: &str) -> bool {
        self.id == id && self.name == name && !id.is_empty()
    }
}

/// The calls of a reply, which come in pieces.
#[derive(Default)]
struct StreamedCalls {
    calls: Vec<StreamedCall>,
    bytes: usize,
}

impl StreamedCalls {
    /// Adds a piece of a reply of OpenAI. The first one of a call has its name; the client names others that have no id by their index.
    /// Some servers repeat the name in each piece, and some give several calls one id: another call begins where the one with this id
    /// is whole.
    fn add(&mut self, piece: ToolCall) -> Result<(), ModelError> {
        let ToolCall { call_id, fn_name, fn_arguments, .. } = piece;
        let arguments = fn_arguments.as_str().unwrap_or_default();
        self.bytes += call_id.len() + fn_name.len() + arguments.len();
        let by_id = self.calls.iter().rposition(|call| call.id == call_id && !call_id.is_empty());
        let at = if fn_name.is_empty() {
            let Some(last) = self.calls.len().checked_sub(1) else {
                return Err(busy("its reply continues a call that it did not begin"));
            };
            let index = call_id.strip_prefix("call_").and_then(|index| index.parse().ok());
            let by_index = index.filter(|index: &usize| *index <= last);
            // An id may look like an index.
            let is_last = by_id == Some(last) || by_index == Some(last);
            if is_last { Some(last) } else { by_id.or(by_index).or(Some(last)) }
        } else {
            by_id.filter(|at| self.calls[*at].name == fn_name && !self.calls[*at].is_whole())
        };
        match at.and_then(|at| self.calls.get_mut(at)) {
            Some(call) => call.push(arguments),
            None => self.begin(call_id, fn_name, arguments)?,
        }
        Ok(())
    }

    /// Takes a piece of a reply of Anthropic, which has the arguments so far.
    fn replace(&mut self, piece: ToolCall) -> Result<(), ModelError> {
        let ToolCall { call_id, fn_name, fn_arguments, .. } = piece;
        let arguments = fn_arguments.as_str().unwrap_or_default();
        match self.calls.last_mut() {
            Some(call) if call.id == call_id && !arguments.is_empty() => {
                self.bytes += arguments.len().saturating_sub(call.arguments.len());
                arguments.clone_into(&mut call.arguments);
                Ok(())
            }
            _ => {
                self.bytes += call_id.len() + fn_name.len() + arguments.len();
                self.begin(call_id, fn_name, arguments)
            }
        }
    }

    fn begin(&mut self, id: String, name: String, arguments: &str) -> Result<(), ModelError> {
        if self.calls.len() == MOST_CALLS {
            return Err(refused(format!("its reply has more than {MOST_CALLS} calls")));
        }
        let mut call = StreamedCall { id, name, ..StreamedCall::default() };
        call.push(arguments);
        self.calls.push(call);
        Ok(())
    }

    /// Returns the calls. Arguments that are not JSON are texts.
    fn finish(self) -> Vec<ModelCall> {
        let mut made: Vec<ModelCall> = Vec::new();
        for (at, call) in self.calls.iter().enumerate() {
            let arguments = match call.arguments.trim() {
                // A name that is repeated behind the end of a call begins no other one.
                "" if self.calls[..at].iter().any(|before| before.is_same(&call.id, &call.name)) => continue,
                "" => json!({}),
                text => read_json(text).unwrap_or_else(|_| Value::String(call.arguments.clone())),
            };
            made.push(ModelCall { id: call.id.clone(), name: call.name.clone(), arguments });
        }
        made
    }
}

//! Models behind endpoints that speak a chat protocol.

mod replies;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use genai::adapter::AdapterKind;
use genai::chat::{
    ChatMessage, ChatOptions, ChatRequest, ContentPart, JsonSchemaDialect, JsonSpec, MessageContent, Tool,
    ToolCall as ChatCall, ToolResponse, sanitize_json_schema,
};
use genai::resolver::{AuthData, Endpoint};
use genai::{Client, Headers, ModelIden, ServiceTarget};
use graph_model::value::Value;
use reqwest::Url;
use reqwest::redirect::Policy;
use rustls_platform_verifier::BuilderVerifierExt;
use serde_json::json;
use tracing::instrument::WithSubscriber;
use tracing::subscriber::NoSubscriber;

use crate::agents::ANSWER;
use crate::model::{Model, ModelCall, ModelError, ModelFuture, ModelMessage, ModelReply, ModelRequest, Price};

/// How long an endpoint may send nothing, if nothing else is said.
const SILENCE: Duration = Duration::from_secs(60);

/// How long it may take to connect.
const CONNECT: Duration = Duration::from_secs(10);

/// The end of the names that the client gets: it would read an effort at the end of a name as an option. The endpoint gets the name itself.
const NO_OPTION: &str = "-named";

/// The protocol of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChatProtocol {
    /// `chat/completions` of OpenAI, which many programs and services speak too.
    OpenAi,
    /// `messages` of Anthropic.
    Anthropic,
}

impl ChatProtocol {
    fn adapter(self) -> AdapterKind {
        match self {
            Self::OpenAi => AdapterKind::OpenAI,
            Self::Anthropic => AdapterKind::Anthropic,
        }
    }

    /// Returns the URL of the service that made the protocol.
    fn url(self) -> &'static str {
        match self {
            Self::OpenAi => "https://api.openai.com/v1/",
            Self::Anthropic => "https://api.anthropic.com/v1/",
        }
    }
}

/// How much a model that reasons shall think before it replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reasoning {
    /// Little.
    Low,
    /// Some.
    Medium,
    /// Much.
    High,
}

impl Reasoning {
    fn word(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

/// A model behind an endpoint that speaks a chat protocol. Replies are streamed, so their texts are events of the run as they come.
///
/// ```
/// use graph_agents::{Agents, ChatModel, ChatProtocol, Price};
/// use graph_items::Spaces;
///
/// # fn main() -> Result<(), graph_agents::ChatModelError> {
/// # let key = "sk-1";
/// let large = ChatModel::builder(ChatProtocol::Anthropic, "claude-sonnet-4-5")
///     .key(key)
///     .price(Price { input: 3_000_000, output: 15_000_000 })
///     .build()?;
/// let small = ChatModel::builder(ChatProtocol::OpenAi, "smollm2").url("http://127.0.0.1:8080/v1/").build()?;
/// let agents = Agents::new(Spaces::at(".")).tier("general", large).tier("fast", small);
/// # drop(agents);
/// # Ok(())
/// # }
/// ```
///
/// # Errors of replies
///
/// A reply is [busy](ModelError::Busy), and asked for again, if the endpoint cannot be reached, sends nothing for too long, is cut off,
/// or answers with the status 408, 409, 425, 429 or one from 500. The time of `retry-after` is waited for, up to an hour. Everything else is
/// [refused](ModelError::Refused), as a reply is whose number of tokens is not known while the agent has limits. Texts of errors do not
/// have the key.
pub struct ChatModel {
    client: Client,
    protocol: ChatProtocol,
    /// The name that the endpoint has for the model.
    model: String,
    target: ServiceTarget,
    key: Option<Arc<str>>,
    reasoning: Option<Reasoning>,
    price: Option<Price>,
    context: Option<u64>,
    silence: Duration,
    most_tokens: Option<u32>,
    answers_as_json: bool,
}

/// Says which endpoint a [`ChatModel`] asks, and how.
#[must_use = "a model is made by `build`"]
pub struct ChatModelBuilder {
    protocol: ChatProtocol,
    model: String,
    url: String,
    key: Option<Arc<str>>,
    reasoning: Option<Reasoning>,
    price: Option<Price>,
    context: Option<u64>,
    silence: Duration,
    most_tokens: Option<u32>,
    answers_as_json: bool,
    is_open: bool,
}

/// The reason that there is no [`ChatModel`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChatModelError {
    /// The URL of the endpoint cannot be used.
    #[error("the URL `{url}` cannot be used: {reason}")]
    Url {
        /// The URL, without what is behind its path.
        url: String,
        /// The reason.
        reason: String,
    },
    /// There is no key where the protocol needs one, it is empty, or it has characters that no header can have.
    #[error("the model `{model}` has no key, or one with spaces or characters that a header cannot have")]
    Key {
        /// The model.
        model: String,
    },
    /// There are no certificates to trust.
    #[error("TLS is not available: {reason}")]
    Tls {
        /// The reason.
        reason: String,
    },
}

impl ChatModel {
    /// Begins a model with the name that the endpoint has for it, which is sent as it is. It is asked at the service that made the
    /// protocol, if there is no [`url`](ChatModelBuilder::url).
    pub fn builder(protocol: ChatProtocol, model: impl Into<String>) -> ChatModelBuilder {
        ChatModelBuilder {
            protocol,
            model: model.into(),
            url: protocol.url().to_owned(),
            key: None,
            reasoning: None,
            price: None,
            context: None,
            silence: SILENCE,
            most_tokens: None,
            answers_as_json: false,
            is_open: false,
        }
    }

    /// Returns a text of the endpoint as errors show it: one line, without the key.
    fn shown(&self, text: &str) -> String {
        let text = match &self.key {
            Some(key) => text.replace(&**key, "[the key]"),
            None => text.to_owned(),
        };
        let line: Vec<&str> =
            text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty()).collect();
        line.join(" ").chars().take(300).collect()
    }

    /// Returns the schema of the answer, if the model shall give it in place of a call.
    fn json_answer<'r>(&self, request: &'r ModelRequest) -> Option<&'r Value> {
        match request.tools.as_slice() {
            [answer] if self.answers_as_json => Some(&answer.parameters),
            _ => None,
        }
    }

    fn options(&self, request: &ModelRequest) -> ChatOptions {
        let options = ChatOptions::default()
            .with_capture_usage(true)
            .with_stream_header_timeout(self.silence)
            .with_stream_read_timeout(self.silence)
            // The client would trust the indices of calls in the streams of OpenAI: one of them could take all memory.
            .with_capture_tool_calls(false)
            .with_extra_body(self.extra_body(request));
        let options = match self.json_answer(request) {
            Some(schema) => options.with_response_format(JsonSpec::new(ANSWER, schema.clone())),
            None => options,
        };
        let asked = request.most_tokens.map(|most| u32::try_from(most).unwrap_or(u32::MAX));
        match asked.into_iter().chain(self.most_tokens).min() {
            Some(most) => options.with_max_tokens(most),
            None => options,
        }
    }

    /// Returns the fields of a request that the client does not write, or not as they are meant: it takes names of models apart.
    fn extra_body(&self, request: &ModelRequest) -> Value {
        let mut body = json!({ "model": self.model });
        let Some(reasoning) = self.reasoning else { return body };
        match self.protocol {
            ChatProtocol::OpenAi => body["reasoning_effort"] = reasoning.word().into(),
            // With the client's own option, older models would think in blocks, which later requests have to repeat.
            ChatProtocol::Anthropic => {
                body["output_config"] = json!({ "effort": reasoning.word() });
                if let Some(schema) = self.json_answer(request) {
                    let schema = sanitize_json_schema(schema, JsonSchemaDialect::AnthropicStructured);
                    body["output_config"]["format"] = json!({ "type": "json_schema", "schema": schema });
                }
            }
        }
        body
    }

    async fn ask(
        &self,
        mut request: ModelRequest,
        delta: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<ModelReply, ModelError> {
        let has_limits = request.most_tokens.is_some() || self.price.is_some();
        let options = self.options(&request);
        if self.json_answer(&request).is_some() {
            request.tools.clear();
            request.system += "There are no tools. In place of a call of `answer`, reply with your answer as JSON and nothing else.\n";
        }
        let asked = self.client.exec_chat_stream(self.target.clone(), chat_request(request), Some(&options));
        let asked = asked.with_subscriber(NoSubscriber::default()).await;
        let stream = asked.map_err(|error| self.failed(&error))?.stream;
        self.read(stream, has_limits, delta).await
    }
}

impl Model for ChatModel {
    fn reply<'a>(&'a self, request: ModelRequest, delta: &'a (dyn Fn(&str) + Send + Sync)) -> ModelFuture<'a> {
        Box::pin(self.ask(request, delta))
    }

    fn price(&self) -> Option<Price> {
        self.price
    }

    fn context(&self) -> Option<u64> {
        self.context
    }
}

impl fmt::Debug for ChatModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatModel")
            .field("protocol", &self.protocol)
            .field("model", &self.model)
            .field("url", &self.target.endpoint.base_url())
            .field("context", &self.context)
            .field("most_tokens", &self.most_tokens)
            .field("answers_as_json", &self.answers_as_json)
            .finish_non_exhaustive()
    }
}

impl ChatModelBuilder {
    /// Sets the URL of the endpoint, to which the protocol adds `chat/completions` or `messages`: `https://models.example/v1/`.
    pub fn url(mut self, url: impl Into<String>) -> Self {
        self.url = url.into();
        self
    }

    /// Sets the key that the endpoint asks for.
    pub fn key(mut self, key: impl Into<Arc<str>>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Sets how much a model that reasons shall think. An endpoint may refuse it for a model that does not.
    pub fn reasoning(mut self, effort: Reasoning) -> Self {
        self.reasoning = Some(effort);
        self
    }

    /// Sets the price, which agents need that have a limit on what they spend.
    pub fn price(mut self, price: Price) -> Self {
        self.price = Some(price);
        self
    }

    /// Sets how many tokens a prompt and its reply may have together. An agent whose talk becomes longer continues with a summary of it.
    pub fn context(mut self, tokens: u32) -> Self {
        self.context = Some(u64::from(tokens));
        self
    }

    /// Sets how long the endpoint may send nothing; 60 seconds if this is not called. Limit the whole time of an agent in its contract.
    pub fn silence(mut self, most: Duration) -> Self {
        self.silence = most;
        self
    }

    /// Sets how many tokens a reply may have. The limits of an agent may leave fewer.
    pub fn most_tokens(mut self, most: u32) -> Self {
        self.most_tokens = Some(most);
        self
    }

    /// Asks agents without tools for their answer as JSON, for models that cannot call tools well. Many local servers let a model say
    /// nothing that does not fit the schema. Agents with tools are asked as without this.
    pub fn answers_as_json(mut self) -> Self {
        self.answers_as_json = true;
        self
    }

    /// Allows a URL that begins with `http://` and is not of this machine, so that everybody on the way reads prompts, replies and the key.
    pub fn allow_http(mut self) -> Self {
        self.is_open = true;
        self
    }

    /// Makes the model. Nothing is asked yet.
    ///
    /// # Errors
    ///
    /// If the URL or the key cannot be used, or if the system has no certificates to trust.
    pub fn build(self) -> Result<ChatModel, ChatModelError> {
        let url = self.checked_url()?;
        if self.key.as_ref().is_some_and(|key| key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_graphic())) {
            return Err(ChatModelError::Key { model: self.model });
        }
        let auth = match (&self.key, self.protocol) {
            (Some(key), _) => AuthData::from_single(&**key),
            (None, ChatProtocol::OpenAi) => AuthData::RequestOverride {
                url: url.join("chat/completions").map_or_else(|_| url.to_string(), |url| url.to_string()),
                headers: Headers::default(),
            },
            (None, ChatProtocol::Anthropic) => return Err(ChatModelError::Key { model: self.model }),
        };
        // A request that must stay on this machine takes no proxy of the environment either.
        let is_local = url.scheme() == "http" && !self.is_open;
        let client = http_client(is_local).map_err(|reason| ChatModelError::Tls { reason })?;
        let client = Client::builder().with_reqwest(client).build();
        let client = client.map_err(|error| ChatModelError::Tls { reason: error.to_string() })?;
        let target = ServiceTarget {
            endpoint: Endpoint::from_owned(url.as_str()),
            auth,
            model: ModelIden::new(self.protocol.adapter(), self.model.clone() + NO_OPTION),
        };
        let Self { protocol, model, key, reasoning, price, context, silence, most_tokens, answers_as_json, .. } = self;
        Ok(ChatModel {
            client,
            protocol,
            model,
            target,
            key,
            reasoning,
            price,
            context,
            silence,
            most_tokens,
            answers_as_json,
        })
    }

    fn checked_url(&self) -> Result<Url, ChatModelError> {
        // A part of it may be secret.
        let shown = self.url.rsplit_once('@').map_or(self.url.as_str(), |(_, behind)| behind);
        let shown = shown.split(['?', '#']).next().unwrap_or_default().to_owned();
        let refused = |reason: &str| Err(ChatModelError::Url { url: shown.clone(), reason: reason.to_owned() });
        let with_slash = if self.url.ends_with('/') { self.url.clone() } else { format!("{}/", self.url) };
        let url = match Url::parse(&with_slash) {
            Ok(url) => url,
            Err(error) => return refused(&error.to_string()),
        };
        let Some(host) = url.host_str().map(|host| host.trim_start_matches('[').trim_end_matches(']')) else {
            return refused("it has no host");
        };
        let is_here = host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback());
        if !url.username().is_empty() || url.password().is_some() || url.query().is_some() || url.fragment().is_some() {
            return refused("it must have no user, no query and no fragment");
        }
        match url.scheme() {
            "https" => Ok(url),
            "http" if is_here || self.is_open => Ok(url),
            "http" => refused("everybody on the way could read it: use `https`, or allow this with `allow_http`"),
            _ => refused("it must begin with `https://`"),
        }
    }
}

impl fmt::Debug for ChatModelBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatModelBuilder")
            .field("protocol", &self.protocol)
            .field("model", &self.model)
            .finish_non_exhaustive()
    }
}

fn http_client(is_local: bool) -> Result<reqwest::Client, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(BuilderVerifierExt::with_platform_verifier)
        .map_err(|error| error.to_string())?
        .with_no_client_auth();
    let client = reqwest::Client::builder();
    let client = if is_local { client.no_proxy() } else { client };
    client
        .tls_backend_preconfigured(tls)
        // A small answer stays small.
        .no_gzip()
        .no_brotli()
        .no_zstd()
        .no_deflate()
        // The key goes nowhere else.
        .redirect(Policy::none())
        // The agent's graph decides about retries.
        .retry(reqwest::retry::never())
        .referer(false)
        .connect_timeout(CONNECT)
        .user_agent(concat!("state-graphs/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|error| error.to_string())
}

/// Returns a request as the client takes it.
fn chat_request(request: ModelRequest) -> ChatRequest {
    let ModelRequest { system, messages, tools, .. } = request;
    let mut chat = Vec::new();
    let mut results = Vec::new();
    for message in messages {
        if let ModelMessage::Tool { id, result } = message {
            let text = match result {
                Ok(result) => result.to_string(),
                Err(reason) => json!({ "error": reason }).to_string(),
            };
            results.push(ToolResponse::new(id, text));
            continue;
        }
        // All results of a reply are in one message.
        if !results.is_empty() {
            chat.push(ChatMessage::tool(MessageContent::from_tool_responses(std::mem::take(&mut results))));
        }
        match message {
            ModelMessage::User { text } => chat.push(ChatMessage::user(text)),
            ModelMessage::Assistant { text, calls } => chat.push(ChatMessage::assistant(said(text, calls))),
            ModelMessage::Tool { .. } => {}
        }
    }
    if !results.is_empty() {
        chat.push(ChatMessage::tool(MessageContent::from_tool_responses(results)));
    }
    let tools = tools
        .into_iter()
        .map(|tool| Tool::new(tool.name).with_description(tool.description).with_schema(tool.parameters));
    ChatRequest::new(chat).with_system(system).with_tools(tools.collect::<Vec<_>>())
}

/// Returns what a model said, as protocols take it back.
fn said(text: String, calls: Vec<ModelCall>) -> MessageContent {
    let mut parts = Vec::new();
    if !text.is_empty() || calls.is_empty() {
        // No protocol takes an empty text.
        parts.push(ContentPart::Text(if text.trim().is_empty() { "(nothing)".to_owned() } else { text }));
    }
    parts.extend(calls.into_iter().map(|ModelCall { id, name, arguments }| {
        // Protocols take only objects back.
        let fn_arguments = if arguments.is_object() { arguments } else { json!({ "unreadable": arguments }) };
        ContentPart::ToolCall(ChatCall { call_id: id, fn_name: name, fn_arguments, thought_signatures: None })
    }));
    MessageContent::from_parts(parts)
}

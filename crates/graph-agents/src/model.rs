//! A model, as an agent uses it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use graph_engine::ActionError;
use graph_model::value::Value;

/// The future of a reply.
pub type ModelFuture<'a> = Pin<Box<dyn Future<Output = Result<ModelReply, ModelError>> + Send + 'a>>;

/// A model.
///
/// ```
/// use graph_agents::{Model, ModelFuture, ModelReply, ModelRequest, Usage};
/// use serde_json::json;
///
/// /// Approves everything.
/// #[derive(Debug)]
/// struct Yes;
///
/// impl Model for Yes {
///     fn reply<'a>(&'a self, request: ModelRequest, _: &'a (dyn Fn(&str) + Send + Sync)) -> ModelFuture<'a> {
///         Box::pin(async move {
///             let answer = request.answer_call(json!({ "verdict": "merge", "confidence": 1.0 }));
///             Ok(ModelReply { text: String::new(), calls: vec![answer], ..ModelReply::default() })
///         })
///     }
/// }
/// ```
pub trait Model: Send + Sync + fmt::Debug + 'static {
    /// Replies to a request. `delta` takes the text of the reply piece by piece, as it comes.
    ///
    /// A reply that is dropped before it is there was not given: the agent asks again after a crash.
    fn reply<'a>(&'a self, request: ModelRequest, delta: &'a (dyn Fn(&str) + Send + Sync)) -> ModelFuture<'a>;

    /// Returns its price. Without one, an agent whose contract limits what it spends is refused.
    fn price(&self) -> Option<Price> {
        None
    }

    /// Returns how many tokens a prompt and its reply may have together. An agent whose talk becomes longer asks the model for a summary,
    /// and continues with it. Without this, the talk is passed on as it is, however long.
    fn context(&self) -> Option<u64> {
        None
    }
}

/// The price of a model, in millionths of a US dollar for a million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Price {
    /// The price of prompts.
    pub input: u64,
    /// The price of replies.
    pub output: u64,
}

impl Price {
    /// Returns what tokens cost, in millionths of a US dollar, rounded up.
    pub fn of(self, usage: Usage) -> u64 {
        let part = |tokens: u64, price: u64| u128::from(tokens) * u128::from(price);
        let micros = (part(usage.input, self.input) + part(usage.output, self.output)).div_ceil(1_000_000);
        u64::try_from(micros).unwrap_or(u64::MAX)
    }
}

/// How many tokens a reply took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Those of the prompt.
    pub input: u64,
    /// Those of the reply.
    pub output: u64,
}

/// A request to a model.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ModelRequest {
    /// The instructions: those of the directive, and how to answer.
    pub system: String,
    /// The messages so far, the first one with the inputs.
    pub messages: Vec<ModelMessage>,
    /// The tools that it may call. The last one takes the answer.
    pub tools: Vec<ModelTool>,
    /// How many tokens the reply may have, if there is a limit.
    pub most_tokens: Option<u64>,
}

impl ModelRequest {
    /// The call by which a model gives its answer.
    pub fn answer_call(&self, answer: Value) -> ModelCall {
        let name = self.tools.last().map(|tool| tool.name.clone()).unwrap_or_default();
        ModelCall { id: String::new(), name, arguments: answer }
    }
}

/// A message of the talk between an agent and its model.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum ModelMessage {
    /// A text of the agent.
    User {
        /// The text.
        text: String,
    },
    /// A reply of the model.
    Assistant {
        /// Its text.
        text: String,
        /// The calls that it wanted.
        calls: Vec<ModelCall>,
    },
    /// The result of a call, or the reason of its failure.
    Tool {
        /// The id of the call.
        id: String,
        /// The result.
        result: Result<Value, String>,
    },
}

/// A tool, as a model sees it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ModelTool {
    /// Its name: letters, digits, `_` and `-`, at most 64.
    pub name: String,
    /// Its purpose.
    pub description: String,
    /// The schema of its parameters.
    pub parameters: Value,
}

/// A call that a model wants.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelCall {
    /// The id that the model gave it, which nothing depends on.
    pub id: String,
    /// The name of the tool.
    pub name: String,
    /// The arguments.
    pub arguments: Value,
}

/// A reply of a model.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModelReply {
    /// Its text.
    pub text: String,
    /// The calls that it wants, in its order.
    pub calls: Vec<ModelCall>,
    /// The tokens that it took.
    pub usage: Usage,
    /// Whether it ended because it had as many tokens as it could have. Then it is no answer, and none of its calls is made.
    pub is_cut: bool,
}

/// Why a model gave no reply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// It may reply if it is asked again, perhaps after some time.
    #[error("the model does not reply: {reason}")]
    Busy {
        /// The reason.
        reason: String,
        /// After which time it may be asked again, if it says so.
        after: Option<Duration>,
    },
    /// It refuses the request, and will refuse it again.
    #[error("the model refuses the request: {reason}")]
    Refused {
        /// The reason.
        reason: String,
    },
}

impl ModelError {
    /// Returns it as the failure of a call, which is retried if the model may reply later.
    pub(crate) fn to_action_error(&self) -> ActionError {
        let text = self.to_string();
        match self {
            Self::Busy { after: Some(after), .. } => ActionError::transient(text).with_retry_after(*after),
            Self::Busy { after: None, .. } => ActionError::transient(text),
            Self::Refused { .. } => ActionError::permanent(text),
        }
    }
}

//! Agents of state graphs: models that follow signed directives and call granted tools.
//!
//! A contract with `tool_type: agent` means a graph, which the compiler makes: it asks a model, makes the calls that the model wants, and
//! asks again until the model answers. So each turn and each call has a record in a journal. A crash repeats only those in progress, and
//! the permissions of every graph around it hold. This crate has the turn: it builds the prompt from the signed directive,
//! asks the [`Model`] of the contract's tier, checks what it says, and counts what it costs.
//!
//! | item | |
//! |---|---|
//! | [`Agents`] | the models of a program by their tiers, and the spaces of its directives, for [`ToolConfig::agents`](graph_tools::ToolConfig::agents) |
//! | [`Model`] | a model: it gets a [`ModelRequest`] and gives a [`ModelReply`] |
//! | `ChatModel` | with the feature `chat`: a model behind an endpoint that speaks the protocol of OpenAI or Anthropic |
//! | [`ModelError`] | why it gave none |
//!
//! Nothing that a model says is trusted. It can call only tools that its contract lists, with arguments that fit the types of their
//! parameters; a call of another tool is answered with an error, and never made.

// Libraries report through values and `tracing`; only the command line prints.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod agents;
#[cfg(feature = "chat")]
mod chat;
mod context;
mod model;
mod prompt;
mod talk;

pub use agents::Agents;
#[cfg(feature = "chat")]
pub use chat::{ChatModel, ChatModelBuilder, ChatModelError, ChatProtocol, Reasoning};
pub use model::{
    Model, ModelCall, ModelError, ModelFuture, ModelMessage, ModelReply, ModelRequest, ModelTool, Price, Usage,
};

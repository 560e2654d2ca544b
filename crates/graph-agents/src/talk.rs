//! The talk of an agent and its model, as the state of the agent's graph has it.

use graph_model::value::Value;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::model::{ModelCall, ModelMessage};

/// A message in the state: an element of one turn.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub(crate) enum Said {
    /// The model replied.
    Assistant { text: String, calls: Vec<SaidCall> },
    /// A call was made, or not.
    Tool {
        id: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        result: Option<Value>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// The agent says that a reply was no answer.
    AskAgain { text: String },
    /// A message of the run that spawned the agent as a task.
    Steer { id: String, text: String },
}

/// A call that the model wanted, in a form that every model accepts: its name is plain, and its arguments are an object.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SaidCall {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) arguments: Value,
}

impl Said {
    /// Reads the talk: a list of the messages of each turn and call.
    pub(crate) fn read(talk: Value) -> Result<Vec<Self>, serde_json::Error> {
        let turns: Option<Vec<Vec<Self>>> = serde_json::from_value(talk)?;
        Ok(turns.unwrap_or_default().into_iter().flatten().collect())
    }

    pub(crate) fn to_message(&self) -> ModelMessage {
        match self {
            Self::Assistant { text, calls } => {
                let call = |call: &SaidCall| ModelCall {
                    id: call.id.clone(),
                    name: call.name.clone(),
                    arguments: call.arguments.clone(),
                };
                ModelMessage::Assistant { text: text.clone(), calls: calls.iter().map(call).collect() }
            }
            Self::Tool { id, result, error } => {
                let result = match error {
                    Some(error) => Err(error.clone()),
                    None => Ok(result.clone().unwrap_or_default()),
                };
                ModelMessage::Tool { id: id.clone(), result }
            }
            Self::AskAgain { text } => ModelMessage::User { text: text.clone() },
            Self::Steer { text, .. } => ModelMessage::User { text: format!("A message for you:\n{text}") },
        }
    }

    pub(crate) fn failed(id: &str, error: impl Into<String>) -> Self {
        Self::Tool { id: id.to_owned(), result: None, error: Some(error.into()) }
    }

    pub(crate) fn to_value(&self) -> Value {
        serde_json::to_value(self).unwrap_or_else(|_| json!({}))
    }
}

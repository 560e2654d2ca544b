//! The talk of an agent and its model, as the state of the agent's graph has it.

use std::collections::BTreeMap;

use graph_engine::record::Visit;
use graph_model::value::Value;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::agents::ANSWER;
use crate::model::{ModelCall, ModelMessage};

/// A message in the state: an element of one turn.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub(crate) enum Said {
    /// The model replied.
    Assistant {
        text: String,
        calls: Vec<SaidCall>,
        /// How many tokens the prompt had, if the model has a context.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        prompt: Option<u64>,
    },
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
    /// The model wrote what stands for the talk before this, except the last messages of it.
    Summary { text: String, kept: usize },
    /// The agent continues another one, with the talk of that one.
    Earlier { thread: String, talk: Vec<Said> },
}

/// Numbers the calls of an ended talk, so that none of them has the id of a call of the agent that continues it.
fn number_calls(said: &mut [Said]) {
    let mut numbers = BTreeMap::new();
    for said in said {
        let ids: Vec<&mut String> = match said {
            Said::Assistant { calls, .. } => calls.iter_mut().map(|call| &mut call.id).collect(),
            Said::Tool { id, .. } => vec![id],
            _ => Vec::new(),
        };
        for id in ids {
            let next = numbers.len();
            *id = format!("0-{}", numbers.entry(id.clone()).or_insert(next));
        }
    }
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

    /// Reads the talk of another agent, which has ended: the messages of each of its visits. Calls whose results it did not live to see
    /// have failed.
    pub(crate) fn read_ended(visits: &[Visit]) -> Result<Vec<Self>, serde_json::Error> {
        let written = visits.iter().filter_map(|visit| visit.changes.get("talk")).filter(|said| !said.is_null());
        let said = Self::read(written.cloned().collect())?;
        let mut said: Vec<Self> = said.into_iter().flat_map(Self::unfolded).collect();
        number_calls(&mut said);
        let is_known = |id: &str| said.iter().any(|said| matches!(said, Self::Tool { id: known, .. } if known == id));
        let open: Vec<Self> = match said.iter().rev().find(|said| matches!(said, Self::Assistant { .. })) {
            Some(Self::Assistant { calls, .. }) => {
                let open = calls.iter().filter(|call| !is_known(&call.id));
                open.map(|call| match call.name.as_str() {
                    ANSWER => {
                        Self::Tool { id: call.id.clone(), result: Some(Value::from("it was taken")), error: None }
                    }
                    _ => Self::failed(&call.id, "the agent ended before this call did; it may have had its effect"),
                })
                .collect()
            }
            _ => Vec::new(),
        };
        said.extend(open);
        Ok(said)
    }

    /// Returns the messages that it stands for: itself, or those of the agent that is continued.
    pub(crate) fn unfolded(self) -> Vec<Self> {
        match self {
            Self::Earlier { talk, .. } => talk,
            other => vec![other],
        }
    }

    /// Returns how many tokens the model counted in the prompt of a reply.
    pub(crate) fn prompt(&self) -> Option<u64> {
        match self {
            Self::Assistant { prompt, .. } => *prompt,
            _ => None,
        }
    }

    pub(crate) fn to_message(&self) -> ModelMessage {
        match self {
            Self::Assistant { text, calls, .. } => {
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
            Self::Summary { text, .. } => ModelMessage::User {
                text: format!("Your summary of the talk before this, which was too long:\n{text}"),
            },
            Self::Earlier { thread, .. } => ModelMessage::User { text: format!("You continue the thread `{thread}`.") },
        }
    }

    pub(crate) fn failed(id: &str, error: impl Into<String>) -> Self {
        Self::Tool { id: id.to_owned(), result: None, error: Some(error.into()) }
    }

    pub(crate) fn to_value(&self) -> Value {
        serde_json::to_value(self).unwrap_or_else(|_| json!({}))
    }
}

//! A tool of a server that speaks the Model Context Protocol, as its contract names it.

use serde::{Deserialize, Serialize};

use crate::digest::Digest;

/// A tool of a server, as the `config` of its contract says. The compiler hands it to the runtime as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct McpTool {
    /// The name of the server. The program says how it is reached.
    pub server: String,
    /// The name that the server gives the tool.
    pub tool: String,
    /// The SHA-256 of the tool's declaration, as the server made it when the contract was written.
    pub schema: Digest,
    /// Whether a call that is made twice has the effect of one. Otherwise the runtime does not repeat a call by itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub idempotent: bool,
}

impl McpTool {
    /// Returns the JSON that [`McpTool::from_json`] reads; the same one for the same contract.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("texts are JSON")
    }

    /// Reads what [`McpTool::to_json`] wrote.
    ///
    /// # Errors
    ///
    /// If the text is something else.
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }
}

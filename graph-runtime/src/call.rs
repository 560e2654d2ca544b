//! What a tool is told about the call.

use std::fmt;
use std::sync::Arc;

use graph_model::digest::Digest;
use graph_model::name::{GraphId, ItemId, RunId};

use crate::tools::ToolConfig;

/// The call of a tool: which run, which node, which step.
#[derive(Debug, Clone)]
pub struct Call {
    pub(crate) run: Arc<RunFacts>,
    pub(crate) node: u16,
    pub(crate) tool: u16,
    pub(crate) step: u64,
}

/// What is the same for every call of a run.
pub(crate) struct RunFacts {
    pub(crate) id: RunId,
    pub(crate) graph: GraphId,
    pub(crate) nodes: Vec<String>,
    pub(crate) tools: Vec<ItemId>,
    pub(crate) env: Vec<String>,
    /// What the program allows the built-in tools.
    pub(crate) config: Arc<ToolConfig>,
}

impl fmt::Debug for RunFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "run {} of {}", self.id, self.graph)
    }
}

impl Call {
    /// Returns the run's id.
    pub fn run_id(&self) -> &RunId {
        &self.run.id
    }

    /// Returns the graph's id.
    pub fn graph_id(&self) -> &GraphId {
        &self.run.graph
    }

    /// Returns the node's name.
    pub fn node(&self) -> &str {
        &self.run.nodes[usize::from(self.node)]
    }

    /// Returns the tool's id.
    pub fn tool(&self) -> &ItemId {
        &self.run.tools[usize::from(self.tool)]
    }

    /// Returns the number of the step, from 1.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// Returns a key that is the same each time this step is tried: 32 hex digits.
    ///
    /// After a crash between the call and the commit, the step runs again and the tool is called again. A service that
    /// takes an idempotency key does the thing once if it gets this one.
    pub fn idempotency_key(&self) -> String {
        let text = format!("{}/{}/{}", self.run.id, self.step, self.node());
        Digest::of(text).to_hex()[..32].to_owned()
    }

    /// Returns the environment variables that the graph declares, which its tools may see.
    pub fn env(&self) -> &[String] {
        &self.run.env
    }
}

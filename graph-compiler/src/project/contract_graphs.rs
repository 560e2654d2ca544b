//! The agents of a tree: contracts that mean graphs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use graph_definition::definition::agent::{self, MODEL};
use graph_definition::definition::{self, AgentContract, AgentTool, Contract};
use graph_definition::diagnostic::{Diagnostic, Diagnostics, SourcePlace, code};
use graph_definition::source::SourceFile;
use graph_definition::tree::{TreeNode, YamlFile};
use graph_model::name::ItemId;
use graph_model::value::Value;
use serde_json::json;

use super::{Project, TOOLS};
use crate::files::walk;
use crate::tree;

/// The graph that the contract of an agent means.
pub(super) struct Meant {
    pub(super) graph: YamlFile,
    /// The contract of the tool by which it asks its model.
    pub(super) model: Option<(ItemId, Arc<Contract>)>,
}

/// The contract of an agent has mistakes, so it means no graph.
pub(super) struct Mistaken;

/// Returns the contracts of agents in the `tools` of a tree, sorted. Files that cannot be read are left out.
pub fn find_agents(root: &Path) -> Vec<PathBuf> {
    let tools = root.join(TOOLS);
    let files = if tools.is_dir() { walk(&tools, &[]).files } else { Vec::new() };
    let is_agent = |path: &PathBuf| {
        let source = SourceFile::read(path, &path.to_string_lossy()).ok();
        let yaml = source.and_then(|source| tree::parse(&source, &mut Diagnostics::new()));
        yaml.is_some_and(|yaml| agent::is_agent(&yaml))
    };
    let mut agents: Vec<PathBuf> = files.into_iter().filter(is_agent).collect();
    agents.sort();
    agents
}

impl Project {
    /// Returns the file of the agent with an id, if there is one.
    pub(super) fn agent_called(&self, id: &ItemId) -> Option<PathBuf> {
        self.found_contract(id, self.is_for_review).is_agent().then(|| self.root.join(TOOLS).join(format!("{id}.yaml")))
    }

    /// Returns the graph that a file means, if the file is the contract of an agent.
    ///
    /// # Errors
    ///
    /// If the contract has mistakes, which are in `diagnostics`.
    pub(super) fn meant(
        &self,
        source: &Arc<SourceFile>,
        yaml: &YamlFile,
        diagnostics: &mut Diagnostics,
    ) -> Result<Option<Meant>, Mistaken> {
        let Some(id) = self.tool_of(&source.path).filter(|_| agent::is_agent(yaml)) else { return Ok(None) };
        let contract = definition::parse_trusted_contract(source, &id, diagnostics).ok_or(Mistaken)?;
        let agent = contract.agent().ok_or(Mistaken)?;
        let mut tools = Vec::new();
        for tool in &agent.tools {
            match self.agent_tool(&tool.value) {
                Some(described) => tools.push(described),
                None => {
                    let message =
                        format!("`{}` has no contract, which would tell the model how to call it", tool.value);
                    let mut problem =
                        Diagnostic::new(code::BAD_CONTRACT, message, SourcePlace::new(source, tool.span.clone()));
                    problem.note(format!("this file is the contract of the agent `{id}`"));
                    let similar = self.similar(&tool.value);
                    match similar {
                        Some(similar) => problem.help(format!("did you mean `{similar}`?")),
                        None => problem.help(format!("write its contract, `{TOOLS}/{}.yaml`", tool.value)),
                    };
                    diagnostics.push(problem);
                }
            }
        }
        if tools.len() < agent.tools.len() {
            return Err(Mistaken);
        }
        let graph = agent::as_graph(yaml, &id, agent, &tools);
        Ok(Some(Meant { graph, model: model_contract(&id, agent) }))
    }

    /// Describes a tool of an agent: another tool, a graph, or another agent. `None` if there is nothing with this id.
    fn agent_tool(&self, id: &ItemId) -> Option<AgentTool> {
        let found = self.found_contract(id, self.is_for_review);
        if let Some(contract) = &found.contract {
            let (description, schema) = (contract.description.clone(), contract.written.clone());
            return Some(AgentTool { id: id.clone(), description, schema });
        }
        let graphs = self.graphs_called(id);
        if graphs.is_empty() && found.file.is_none() {
            return None;
        }
        // The mistakes of a graph, and of a contract that cannot be used, are reported where they are examined.
        let text = graphs.first().and_then(|path| self.read(path).ok());
        let yaml = text.and_then(|source| tree::parse(&source, &mut Diagnostics::new()));
        let field = |name: &str| match &yaml.as_ref()?.root.node {
            TreeNode::Map(fields) => fields.iter().find(|(key, _)| key.name == name).map(|(_, tree)| tree.to_value()),
            _ => None,
        };
        let description = field("description").and_then(|text| text.as_str().map(str::to_owned));
        let schema = field("config_schema").unwrap_or_else(|| json!({ "type": "object" }));
        Some(AgentTool { id: id.clone(), description, schema })
    }
}

/// Returns the contract of the tool by which an agent asks its model: its result has the type of the agent's answer.
fn model_contract(id: &ItemId, agent: &AgentContract) -> Option<(ItemId, Arc<Contract>)> {
    let object = |required: &[&str], properties: Value| json!({ "type": "object", "properties": properties, "required": required });
    let params = object(
        &["directive", "tier", "tools", "limits", "answer", "inputs", "turns", "tokens", "micros"],
        json!({
            "directive": { "type": "string" },
            "tier": { "type": "string" },
            "tools": { "type": "array", "items": { "type": "object" } },
            "limits": { "type": "object" },
            "answer": { "type": "object" },
            "inputs": { "type": "object" },
            "talk": { "type": "array", "items": { "type": "array", "items": { "type": "object" } } },
            "turns": { "type": "integer" },
            "tokens": { "type": "integer" },
            "micros": { "type": "integer" },
        }),
    );
    let contract = json!({
        "version": "1.0.0",
        "tool_type": "builtin",
        "description": "Asks the model of an agent.",
        "config_schema": params,
        "result_schema": agent::model_result(agent),
    });
    let name = format!("the contract of the model of `{id}`");
    let source = SourceFile::new(name.as_str(), name.as_str(), &format!("{contract:#}\n"));
    let model = ItemId::new(MODEL).ok()?;
    let contract = definition::parse_trusted_contract(&source, &model, &mut Diagnostics::new())?;
    Some((model, Arc::new(contract)))
}

//! The agents and programs of a tree: contracts that mean graphs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use graph_definition::definition::agent::{self, MODEL};
use graph_definition::definition::program::{self, TURN};
use graph_definition::definition::{self, Approvals, Contract, ContractKind, ListedTool, Spanned};
use graph_definition::diagnostic::{Diagnostic, Diagnostics, SourcePlace, code};
use graph_definition::source::SourceFile;
use graph_definition::tree::{TreeNode, YamlFile};
use graph_model::name::ItemId;
use graph_model::value::Value;
use serde_json::json;

use super::{Project, TOOLS, Wanted};
use crate::files::walk;
use crate::tree;

/// The graph that a contract means.
pub(super) struct Meant {
    pub(super) graph: YamlFile,
    /// The contract itself.
    pub(super) contract: Contract,
    /// The contract of the tool that it asks in a loop.
    pub(super) asked: Option<(ItemId, Arc<Contract>)>,
}

/// The contract has mistakes, so it means no graph.
pub(super) struct Mistaken;

/// Returns the contracts in the `tools` of a tree that mean graphs, sorted: those of agents and of programs that call tools. Files that
/// cannot be read are left out.
pub fn find_contract_graphs(root: &Path) -> Vec<PathBuf> {
    let tools = root.join(TOOLS);
    let files = if tools.is_dir() { walk(&tools, &[]).files } else { Vec::new() };
    let means_graph = |path: &PathBuf| {
        let source = SourceFile::read(path, &path.to_string_lossy()).ok();
        let yaml = source.and_then(|source| tree::parse(&source, &mut Diagnostics::new()));
        yaml.is_some_and(|yaml| definition::means_graph(&yaml))
    };
    let mut found: Vec<PathBuf> = files.into_iter().filter(means_graph).collect();
    found.sort();
    found
}

impl Project {
    /// Returns the file of the contract with an id, if it means a graph.
    pub(super) fn contract_graph(&self, id: &ItemId) -> Option<PathBuf> {
        let means_graph = self.found_contract(id, self.is_for_review).means_graph();
        means_graph.then(|| self.root.join(TOOLS).join(format!("{id}.yaml")))
    }

    /// Returns the file of the contract of a tool of the tree, if there is one. It is loaded as the graph of one call.
    pub fn tool_file(&self, id: &ItemId) -> Option<PathBuf> {
        self.found_contract(id, self.is_for_review).file.clone()
    }

    /// Returns the agent of the tree that follows a directive, if there is one.
    ///
    /// # Errors
    ///
    /// If several agents follow it, or a contract of the tree that means a graph cannot be used.
    pub fn agent_following(&self, directive: &str) -> Result<Option<ItemId>, String> {
        let mut following = Vec::new();
        for path in find_contract_graphs(&self.root) {
            let Some(id) = self.tool_of(&path) else { continue };
            let found = self.found_contract(&id, false);
            let Some(contract) = &found.contract else {
                return Err(format!("the contract of `{id}` cannot be used: `graph check` says why"));
            };
            following.extend(contract.agent().filter(|agent| agent.directive.value == directive).map(|_| id));
        }
        match following.as_slice() {
            [_, _, ..] => {
                let ids: Vec<String> = following.iter().map(|id| format!("`{id}`")).collect();
                Err(format!("several agents follow the directive `{directive}`: {}", ids.join(", ")))
            }
            _ => Ok(following.pop()),
        }
    }

    /// Returns the graph that a file means, if the file is a contract that means one.
    ///
    /// # Errors
    ///
    /// If the contract has mistakes, which are in `diagnostics`.
    pub(super) fn meant(
        &self,
        source: &Arc<SourceFile>,
        yaml: &YamlFile,
        wanted: Wanted,
        diagnostics: &mut Diagnostics,
    ) -> Result<Option<Meant>, Mistaken> {
        let Some(id) = self.tool_of(&source.path).filter(|_| definition::is_contract(yaml)) else { return Ok(None) };
        let contract = definition::parse_trusted_contract(source, &id, diagnostics).ok_or(Mistaken)?;
        match &contract.by {
            ContractKind::Agent(agent) => {
                let reader = ("agent", "the model");
                let tools = self.listed_tools(source, &id, reader, &agent.tools, diagnostics)?;
                approvals_do_something(source, agent.approvals.as_ref(), &tools, diagnostics)?;
                let graph = agent::as_graph(yaml, &id, agent, &tools);
                let result = agent::model_result(agent);
                let asked = asked_contract(&id, MODEL, "Asks the model of an agent.", model_params(), result);
                Ok(Some(Meant { graph, asked, contract }))
            }
            ContractKind::Program(program) => {
                let reader = ("program", "the runtime");
                let tools = self.listed_tools(source, &id, reader, &program.calls, diagnostics)?;
                approvals_do_something(source, program.approvals.as_ref(), &tools, diagnostics)?;
                let graph = program::as_graph(yaml, &id, program, &tools);
                let result = program::turn_result(program);
                let asked = asked_contract(&id, TURN, "Runs a program that calls tools.", turn_params(), result);
                Ok(Some(Meant { graph, asked, contract }))
            }
            // A tool is no graph where it is called, but a run of its own may be one call of it.
            _ => match definition::single_call(yaml, &id, &contract) {
                Ok(graph) => Ok(Some(Meant { graph, asked: None, contract })),
                // A contract is not wrong because of that: nobody asked for its graph.
                Err(_) if wanted == Wanted::Findings => Err(Mistaken),
                Err(reason) => {
                    let place = SourcePlace::new(source, yaml.root.span.clone());
                    let message = format!("the tool `{id}` cannot be a run of its own: {reason}");
                    diagnostics.error(code::BAD_CONTRACT, place, message).help("call it by a node of a graph");
                    Err(Mistaken)
                }
            },
        }
    }

    /// Describes the tools that a contract lists. `reader` is what the contract is of, and who must know how to call the tools.
    fn listed_tools(
        &self,
        source: &Arc<SourceFile>,
        id: &ItemId,
        (kind, reader): (&str, &str),
        listed: &[Spanned<ItemId>],
        diagnostics: &mut Diagnostics,
    ) -> Result<Vec<ListedTool>, Mistaken> {
        let mut tools = Vec::new();
        for tool in listed {
            match self.listed_tool(&tool.value) {
                Some(described) => tools.push(described),
                None => {
                    let message = format!("`{}` has no contract, which would tell {reader} how to call it", tool.value);
                    let mut problem =
                        Diagnostic::new(code::BAD_CONTRACT, message, SourcePlace::new(source, tool.span.clone()));
                    problem.note(format!("this file is the contract of the {kind} `{id}`"));
                    match self.similar(&tool.value) {
                        Some(similar) => problem.help(format!("did you mean `{similar}`?")),
                        None => problem.help(format!("write its contract, `{TOOLS}/{}.yaml`", tool.value)),
                    };
                    diagnostics.push(problem);
                }
            }
        }
        if tools.len() == listed.len() { Ok(tools) } else { Err(Mistaken) }
    }

    /// Describes a tool that a contract lists: another tool, a graph, or an agent. `None` if there is nothing with this id.
    fn listed_tool(&self, id: &ItemId) -> Option<ListedTool> {
        if let Some(yielding) = ListedTool::yielding(id) {
            return Some(yielding);
        }
        let found = self.found_contract(id, self.is_for_review);
        if let Some(contract) = &found.contract {
            let (description, schema) = (contract.description.clone(), contract.written.clone());
            return Some(ListedTool { id: id.clone(), description, schema, is_guarded: contract.guarded });
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
        let is_guarded = graphs.iter().any(|path| self.inputs_of(path).is_some_and(|inputs| inputs.has_guarded()));
        Some(ListedTool { id: id.clone(), description, schema, is_guarded })
    }
}

/// Reports `approvals` in a contract without a tool for which people are asked.
fn approvals_do_something(
    source: &Arc<SourceFile>,
    approvals: Option<&Approvals>,
    tools: &[ListedTool],
    diagnostics: &mut Diagnostics,
) -> Result<(), Mistaken> {
    let Some(approvals) = approvals.filter(|_| !tools.iter().any(ListedTool::asks)) else { return Ok(()) };
    let place = SourcePlace::new(source, approvals.span.clone());
    let message = "`approvals` does nothing: no listed tool is guarded or asks people";
    let help = "remove it, or write `x-guarded: true` in the contract of the tool, or list `rye/orchestrate/yield`";
    diagnostics.error(code::BAD_CONTRACT, place, message).help(help);
    Err(Mistaken)
}

/// Returns the contract of the tool that a graph asks in a loop: its result has the type of the graph's own answer.
fn asked_contract(
    id: &ItemId,
    asked: &str,
    description: &str,
    params: Value,
    result: Value,
) -> Option<(ItemId, Arc<Contract>)> {
    let contract = json!({
        "version": "1.0.0",
        "tool_type": "builtin",
        "description": description,
        "config_schema": params,
        "result_schema": result,
    });
    let name = format!("the contract of `{asked}` for `{id}`");
    let source = SourceFile::new(name.as_str(), name.as_str(), &format!("{contract:#}\n"));
    let asked = ItemId::new(asked).ok()?;
    let contract = definition::parse_trusted_contract(&source, &asked, &mut Diagnostics::new())?;
    Some((asked, Arc::new(contract)))
}

/// Returns the schema of the parameters of a model's turn.
fn model_params() -> Value {
    json!({
        "type": "object",
        "properties": {
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
        },
        "required": ["directive", "tier", "tools", "limits", "answer", "inputs", "turns", "tokens", "micros"],
    })
}

/// Returns the schema of the parameters of a program's turn.
fn turn_params() -> Value {
    json!({
        "type": "object",
        "properties": {
            "program": { "type": "object" },
            "tools": { "type": "array", "items": { "type": "object" } },
            "limits": { "type": "object" },
            "inputs": { "type": "object" },
            "talk": { "type": "array", "items": { "type": "array", "items": { "type": "object" } } },
        },
        "required": ["program", "tools", "limits", "inputs"],
    })
}

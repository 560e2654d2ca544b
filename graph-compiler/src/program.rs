//! The program of a checked graph: the same for expansion and for interpretation.

use graph_model::digest::Digest;
use graph_model::ir::{GraphIr, KeyIr, NodeIr, ParamIr, ToolIr};

use crate::graph::{CheckedGraph, TypedKey, TypedReducer, TypedTool};
use crate::meaning;
use crate::types::TypedField;

impl CheckedGraph {
    /// Returns the program that the runtime executes. `source` is the name of the graph's file.
    pub fn ir(&self, source: &str) -> GraphIr {
        let key = |key: &TypedKey| KeyIr { name: key.name.clone(), initial: key.initial.clone() };
        let mut graph = GraphIr {
            id: self.interface.id.clone(),
            version: self.interface.version.clone(),
            source: source.to_owned(),
            digest: self.digest.clone(),
            signer: self.signer.clone(),
            start: self.start,
            settings: self.settings.clone(),
            permissions: self.permissions.clone(),
            env: self.env.clone(),
            keys: self.interface.keys.iter().map(key).collect(),
            tools: self.interface.tools.iter().map(tool).collect(),
            nodes: self.nodes.iter().map(|node| NodeIr { name: node.name.clone(), body: node.body.clone() }).collect(),
        };
        graph.settings.meaning = Some(meaning::digest(&graph, &self.interface));
        graph
    }
}

impl TypedTool {
    /// Returns the digest of what the contract of the tool means for a program. Contracts of two releases that share it are implemented
    /// once.
    pub(crate) fn contract_digest(&self) -> Digest {
        meaning::of_tool(self)
    }
}

impl TypedReducer {
    /// As that of a tool.
    pub(crate) fn contract_digest(&self) -> Digest {
        meaning::of_reducer(self)
    }
}

fn tool(tool: &TypedTool) -> ToolIr {
    let param = |field: &TypedField| ParamIr { name: field.name.clone(), default: field.default.clone() };
    ToolIr {
        id: tool.id.clone(),
        verb: tool.verb,
        item: tool.item,
        by: tool.by,
        params: tool.params.as_ref().map(|params| params.iter().map(param).collect()),
        typed: tool.typed,
        nests: tool.result.may_nest(),
    }
}

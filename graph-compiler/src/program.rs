//! The program of a checked graph: the same tables for expansion and for interpretation.

use graph_model::program::{Key, Param, Program, Tool};

use crate::graph::Graph;

impl Graph {
    /// Calls `use_it` with the graph's program, in which `source` is what the graph's file is called.
    pub fn with_program<R>(&self, source: &str, use_it: impl FnOnce(&Program<'_>) -> R) -> R {
        let texts = |value: Option<&serde_json::Value>| value.map(ToString::to_string);
        let settings = serde_json::to_string(&self.settings).expect("settings are plain JSON");
        let permissions: Vec<&str> = self.permissions.iter().map(String::as_str).collect();
        let env: Vec<&str> = self.env.iter().map(String::as_str).collect();
        let initial: Vec<Option<String>> = self.outline.keys.iter().map(|key| texts(key.initial.as_ref())).collect();
        let keys = self.outline.keys.iter().zip(&initial);
        let keys: Vec<Key<'_>> =
            keys.map(|(key, initial)| Key { name: &key.name, initial: initial.as_deref() }).collect();
        let defaults: Vec<Vec<Option<String>>> = self
            .outline
            .tools
            .iter()
            .map(|tool| tool.params.iter().flatten().map(|field| texts(field.default.as_ref())).collect())
            .collect();
        let params: Vec<Option<Vec<Param<'_>>>> = self
            .outline
            .tools
            .iter()
            .zip(&defaults)
            .map(|(tool, defaults)| {
                let fields = tool.params.as_ref()?.iter().zip(defaults);
                Some(fields.map(|(field, default)| Param { name: &field.name, default: default.as_deref() }).collect())
            })
            .collect();
        let tools = self.outline.tools.iter().zip(&params);
        let tools: Vec<Tool<'_>> = tools
            .map(|(tool, params)| Tool {
                id: &tool.id,
                verb: tool.verb,
                item: tool.item,
                by: tool.by,
                params: params.as_deref(),
                typed: tool.typed,
                nests: tool.result.may_nest(),
            })
            .collect();
        let bodies: Vec<String> =
            self.nodes.iter().map(|node| serde_json::to_string(&node.body).expect("a body is plain JSON")).collect();
        let nodes = self.nodes.iter().zip(&bodies);
        let nodes: Vec<(&str, &str)> = nodes.map(|(node, body)| (node.name.as_str(), body.as_str())).collect();
        use_it(&Program {
            id: &self.outline.id,
            version: &self.outline.version,
            source,
            digest: &self.digest,
            signer: &self.signer,
            start: self.start,
            settings: &settings,
            permissions: &permissions,
            env: &env,
            keys: &keys,
            tools: &tools,
            nodes: &nodes,
        })
    }
}

//! The differences between a graph and an earlier version of it, node by node.

use std::fmt;

use graph_model::ir::{GraphIr, NodeIr};
use graph_model::program::{Kind, Settings};
use graph_model::value::{Map, Value};
use serde_json::json;

/// The differences between two graphs. The position of a node in its file does not count.
///
/// ```
/// # use graph_runtime::dynamic::Interpreted;
/// fn report(before: &Interpreted, after: &Interpreted) {
///     println!("`{}` was replaced; {}", after.id(), after.changes_since(before));
/// }
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GraphChanges {
    /// The nodes that are new.
    pub added: Vec<String>,
    /// The nodes that were removed.
    pub removed: Vec<String>,
    /// The nodes that do something else.
    pub changed: Vec<String>,
    /// The other parts that differ: `start`, `settings`, `permissions`, `env` or `state`.
    pub besides: Vec<String>,
}

impl fmt::Display for GraphChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lists = [
            ("added", &self.added),
            ("removed", &self.removed),
            ("changed", &self.changed),
            ("changed besides nodes", &self.besides),
        ];
        let said = lists.iter().filter(|(_, names)| !names.is_empty());
        let said: Vec<String> = said.map(|(what, names)| format!("{what}: `{}`", names.join("`, `"))).collect();
        if said.is_empty() { f.write_str("nothing that a run would notice") } else { f.write_str(&said.join("; ")) }
    }
}

/// The content of a graph, for comparison.
#[derive(Debug)]
pub(super) struct Texts {
    nodes: Vec<(String, Value)>,
    besides: Vec<(&'static str, Value)>,
}

impl Texts {
    pub(super) fn of(graph: &GraphIr) -> Self {
        let node = |node: &NodeIr| {
            let mut body = json!(node.body);
            if let Value::Object(fields) = &mut body {
                fields.shift_remove("line");
                name_tool(fields, graph);
                name_nodes(fields, graph);
            }
            (node.name.clone(), body)
        };
        let keys: Map<String, Value> =
            graph.keys.iter().map(|key| (key.name.clone(), key.initial.clone().unwrap_or_default())).collect();
        let is_start = |node: &&NodeIr| node.body.does == Kind::Start;
        // The nodes of a list in `start` are the targets of a node that the file does not have.
        let start = graph.nodes.get(usize::from(graph.start)).map_or(Value::Null, |node| match is_start(&node) {
            true => json!(node.body.next),
            false => node.name.as_str().into(),
        });
        Self {
            nodes: graph.nodes.iter().filter(|node| !is_start(node)).map(node).collect(),
            besides: vec![
                ("start", start),
                ("settings", json!(Settings { meaning: None, ..graph.settings.clone() })),
                ("permissions", json!(graph.permissions)),
                ("env", json!(graph.env)),
                ("state", Value::Object(keys)),
            ],
        }
    }
}

/// Replaces the number of the item that a node calls by its id, because the number depends on the other nodes.
fn name_tool(fields: &mut Map<String, Value>, graph: &GraphIr) {
    let Some(Value::Object(does)) = fields.get_mut("does") else { return };
    for (_, tool) in does.iter_mut() {
        let row = tool.as_u64().and_then(|at| usize::try_from(at).ok()).and_then(|at| graph.tools.get(at));
        if let Some(row) = row {
            *tool = format!("{} {} {}", row.verb.name(), row.item.name(), row.id).into();
        }
    }
}

/// Replaces the numbers of nodes that a node names by their names, because the numbers depend on the other nodes.
fn name_nodes(fields: &mut Map<String, Value>, graph: &GraphIr) {
    let name = |number: &mut Value| {
        let at = number.as_u64().and_then(|at| usize::try_from(at).ok());
        if let Some(node) = at.and_then(|at| graph.nodes.get(at)) {
            *number = node.name.as_str().into();
        }
    };
    fields.get_mut("on_error").into_iter().for_each(name);
    fields.get_mut("wait").and_then(|wait| wait.get_mut("on_timeout")).into_iter().for_each(name);
    let Some(Value::Object(join)) = fields.get_mut("join") else { return };
    join.get_mut("fan").into_iter().for_each(name);
    join.get_mut("quorum").and_then(|quorum| quorum.get_mut("fewer")).into_iter().for_each(name);
    join.get_mut("of").and_then(Value::as_array_mut).into_iter().flatten().for_each(name);
}

impl GraphChanges {
    pub(super) fn between(before: &Texts, after: &Texts) -> Self {
        let find =
            |texts: &Texts, name: &str| texts.nodes.iter().find(|(one, _)| one == name).map(|(_, body)| body.clone());
        let names = |texts: &Texts| texts.nodes.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
        let mut changes = Self::default();
        for name in names(after) {
            match find(before, &name) {
                None => changes.added.push(name),
                Some(body) if Some(&body) != find(after, &name).as_ref() => changes.changed.push(name),
                Some(_) => {}
            }
        }
        changes.removed = names(before).into_iter().filter(|name| find(after, name).is_none()).collect();
        let besides = before.besides.iter().zip(&after.besides).filter(|(before, after)| before != after);
        changes.besides = besides.map(|((name, _), _)| (*name).to_owned()).collect();
        changes
    }
}

#[cfg(test)]
mod tests {
    use graph_model::program::Program;

    use super::*;

    fn texts(start: u16, nodes: &[(&str, &str)]) -> Texts {
        let program = Program {
            id: "test/graph",
            version: "1.0.0",
            source: "graph.yaml",
            digest: "0000000000000000000000000000000000000000000000000000000000000000",
            signer: "0000000000000000",
            start,
            settings: "{}",
            permissions: &[],
            env: &[],
            keys: &[],
            tools: &[],
            nodes,
        };
        Texts::of(&GraphIr::read(&program).unwrap())
    }

    #[test]
    fn another_first_node_is_a_change_of_the_start_and_of_no_other_node() {
        let gate = r#"{"line":1,"does":"gate","next":[{"to":"both"}],"on_error":1}"#;
        let moved = r#"{"line":7,"does":"gate","next":[{"to":"both"}],"on_error":2}"#;
        let before = texts(
            2,
            &[
                ("one", gate),
                (
                    "both",
                    r#"{"line":2,"does":"return","join":{"of":[0],"fan":2,"closes":true,"quorum":{"need":1,"fewer":1}}}"#,
                ),
                ("config.start", r#"{"line":3,"does":"start","next":{"all":[{"to":"one"}]}}"#),
            ],
        );
        let after = texts(
            3,
            &[
                ("two", r#"{"line":1,"does":"gate"}"#),
                ("one", moved),
                (
                    "both",
                    r#"{"line":2,"does":"return","join":{"of":[1],"fan":3,"closes":true,"quorum":{"need":1,"fewer":2}}}"#,
                ),
                ("config.start", r#"{"line":3,"does":"start","next":{"all":[{"to":"one"},{"to":"two"}]}}"#),
            ],
        );
        let changes = GraphChanges::between(&before, &after);
        assert_eq!(changes.to_string(), "added: `two`; changed besides nodes: `start`");
    }
}

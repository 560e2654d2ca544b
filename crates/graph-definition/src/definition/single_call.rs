//! The graph that the contract of a tool means, if the tool is started as a run of its own: one call.

use graph_model::name::ItemId;
use graph_model::value::Value;

use super::Contract;
use super::reader::Fields;
use super::tool_loop::{self, PlacedTrees};
use crate::tree::{TreeNode, YamlFile, YamlTree};

/// Returns the graph with the id of a tool, which calls the tool with its inputs and returns the result. Each part has the place of the
/// contract's beginning.
pub fn as_graph(file: &YamlFile, id: &ItemId, contract: &Contract) -> YamlFile {
    let TreeNode::Map(entries) = &file.root.node else { return file.with_root(file.root.clone()) };
    let fields = Fields { entries, span: file.root.span.clone() };
    let at = PlacedTrees { span: &file.root.span };
    let parameters = contract.written.get("properties").and_then(Value::as_object);
    let parameters = parameters.into_iter().flat_map(|properties| properties.keys());
    let params: Vec<(String, YamlTree)> =
        parameters.map(|name| (name.clone(), at.text(format!("${{inputs.{name}}}")))).collect();
    let call = at.map(vec![
        ("action", at.map(vec![("item_id", at.text(id.as_str())), ("params", at.map_of(params))])),
        ("assign", at.map(vec![("result", at.text("${result}"))])),
        ("next", at.text("done")),
    ]);
    let done = at.map(vec![("type", at.text("return")), ("output", at.text("${state.result}"))]);
    let config = at.map(vec![("start", at.text("call")), ("nodes", at.map(vec![("call", call), ("done", done)]))]);
    let mut graph = tool_loop::head(&at, &fields, id, &["version", "description"]);
    graph.push(("permissions".to_owned(), at.list(vec![at.text(tool_loop::permission(id.as_str()))])));
    graph.push(("config".to_owned(), config));
    file.with_root(at.map_of(graph))
}

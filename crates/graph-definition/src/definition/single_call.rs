//! The graph that the contract of a tool means, if the tool is started as a run of its own: one call.

use graph_model::name::ItemId;
use graph_model::path::Path;
use graph_model::value::Value;

use super::Contract;
use super::reader::Fields;
use super::tool_loop::{self, PlacedTrees};
use crate::tree::{TreeNode, YamlFile, YamlTree};

/// Returns the graph with the id of a tool, which calls the tool with its inputs and returns the result. Each part has the place of the
/// contract's beginning.
///
/// # Errors
///
/// If only the author of a graph may choose its parameters, or no graph can pass on all that it accepts.
pub fn as_graph(file: &YamlFile, id: &ItemId, contract: &Contract) -> Result<YamlFile, String> {
    if contract.guarded || contract.params.has_sink() || contract.params.has_guarded() {
        return Err(
            "some of its parameters are sinks or guarded, and only the author of a graph may choose them".to_owned()
        );
    }
    if contract.written.get("additionalProperties").is_some_and(|more| *more != Value::Bool(false)) {
        return Err("its parameters have any names, and an input has a name of its own".to_owned());
    }
    let TreeNode::Map(entries) = &file.root.node else { return Ok(file.with_root(file.root.clone())) };
    let fields = Fields { entries, span: file.root.span.clone() };
    let at = PlacedTrees { span: &file.root.span };
    let parameters = contract.written.get("properties").and_then(Value::as_object);
    let parameters: Vec<&String> = parameters.into_iter().flat_map(|properties| properties.keys()).collect();
    if let Some(name) = parameters.iter().find(|name| !is_plain(name)) {
        return Err(format!("no template can name its parameter {name:?}"));
    }
    let params: Vec<(String, YamlTree)> =
        parameters.into_iter().map(|name| (name.clone(), at.text(format!("${{inputs.{name}}}")))).collect();
    let call = at.map(vec![
        ("action", at.map(vec![("item_id", at.text(id.as_str())), ("params", at.map_of(params))])),
        ("assign", at.map(vec![("result", at.text("${result}"))])),
        ("next", at.text("done")),
    ]);
    let done = at.map(vec![("type", at.text("return")), ("output", at.text("${state.result}"))]);
    let config = at.map(vec![("start", at.text("call")), ("nodes", at.map(vec![("call", call), ("done", done)]))]);
    let mut graph = tool_loop::head(&at, &fields, id, &["version", "description"]);
    if fields.get("config_schema").is_none() {
        let none = at.map(vec![("type", at.text("object")), ("properties", at.map(Vec::new()))]);
        graph.push(("config_schema".to_owned(), none));
    }
    graph.push(("permissions".to_owned(), at.list(vec![at.text(tool_loop::permission(id.as_str()))])));
    graph.push(("config".to_owned(), config));
    Ok(file.with_root(at.map_of(graph)))
}

/// Whether a name is a single part of a path in a template.
fn is_plain(name: &str) -> bool {
    !name.contains(['|', '{', '}', '?'])
        && Path::parse(&format!("inputs.{name}")).is_ok_and(|path| path.segments == [name.to_owned()])
}

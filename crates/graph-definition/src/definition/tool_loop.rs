//! The graphs that contracts of agents and programs mean: a tool is asked in a loop, and the calls that it wants are made, each in a
//! branch of its own.

use graph_model::name::ItemId;
use graph_model::value::Value;
use serde_json::Number;

use super::reader::{DefinitionReader, Fields, Spanned};
use crate::diagnostic::{SourcePlace, code};
use crate::source::Span;
use crate::tree::{TreeKey, TreeNode, YamlFile, YamlTree};

/// The values of `tool_type` of the contracts that mean graphs.
const MEANT: [&str; 2] = ["agent", "program"];

/// A tool that the contract of an agent or a program lists, as its own contract describes it.
#[derive(Debug, Clone, PartialEq)]
pub struct ListedTool {
    /// Its id.
    pub id: ItemId,
    /// Its purpose.
    pub description: Option<String>,
    /// The schema of its parameters, as its contract has it.
    pub schema: Value,
}

/// Whether a file is a contract that means a graph, as it says itself.
pub fn means_graph(file: &YamlFile) -> bool {
    let TreeNode::Map(entries) = &file.root.node else { return false };
    let is_meant = |tree: &YamlTree| MEANT.iter().any(|meant| tree.node == TreeNode::String((*meant).to_owned()));
    entries.iter().any(|(key, tree)| key.name == "tool_type" && is_meant(tree))
}

/// The words for a list of ids in messages.
pub(super) struct ListWords {
    pub(super) field: &'static str,
    pub(super) entry: &'static str,
    /// The tool that is asked in the loop, and is in no list.
    pub(super) asked: &'static str,
    pub(super) asked_is: &'static str,
}

/// Reads a list of the ids of tools, each once. `None` if something in it is wrong.
pub(super) fn listed(
    reader: &mut DefinitionReader<'_>,
    tree: &YamlTree,
    words: &ListWords,
) -> Option<Vec<Spanned<ItemId>>> {
    let TreeNode::List(_) = tree.node else {
        reader.wrong_shape(tree, words.field, "a list of ids");
        return None;
    };
    let wrong = |reader: &mut DefinitionReader<'_>, span: &Span, message: String| {
        let place = SourcePlace::new(reader.source, span.clone());
        reader.diagnostics.error(code::BAD_CONTRACT, place, message);
        false
    };
    let list = reader.list(tree, words.field);
    reader.note_repeated(words.field, list);
    let mut tools: Vec<Spanned<ItemId>> = Vec::new();
    let mut is_well = true;
    for tree in list {
        let Some(text) = reader.text(tree, words.entry) else {
            is_well = false;
            continue;
        };
        match ItemId::new(text.value.as_str()) {
            Ok(id) if id.as_str() == words.asked => is_well = wrong(reader, &text.span, words.asked_is.to_owned()),
            Ok(id) if tools.iter().any(|known| known.value == id) => {}
            Ok(id) => tools.push(Spanned { value: id, span: text.span }),
            Err(_) => {
                let message = format!("{} is a literal id, as `rye/file-system/read`", words.entry);
                is_well = wrong(reader, &text.span, message);
            }
        }
    }
    is_well.then_some(tools)
}

/// Returns the place of `config` in a contract.
pub(super) fn place_of_config(file: &YamlFile) -> Span {
    let TreeNode::Map(entries) = &file.root.node else { return file.root.span.clone() };
    let config = entries.iter().find(|(key, _)| key.name == "config");
    config.map_or_else(|| file.root.span.clone(), |(_, tree)| tree.span.clone())
}

/// The parts by which the graphs of contracts differ.
pub(super) struct ToolLoop<'a> {
    /// The node that asks.
    pub(super) asks: &'static str,
    /// The tool that it asks. Its result has `calls`.
    pub(super) asked: &'static str,
    pub(super) params: Vec<(&'a str, YamlTree)>,
    pub(super) attempts: u64,
    /// Its assignments, besides that of `calls`. One of them appends to `talk`.
    pub(super) assign: Vec<(&'a str, YamlTree)>,
    /// The key that ends the loop once it has a value.
    pub(super) answer: &'static str,
    pub(super) output: &'static str,
    /// The keys whose writes are added up, from 0.
    pub(super) sums: &'a [&'a str],
    /// The ids in the contract, which their calls have the places of.
    pub(super) listed: &'a [Spanned<ItemId>],
    pub(super) tools: &'a [ListedTool],
    /// How many calls may be wanted at once.
    pub(super) most_calls: u64,
    /// How many visits there may be.
    pub(super) steps: u64,
    /// How long a run may take, in milliseconds.
    pub(super) timeout: Option<u64>,
    /// The fields of the contract that the graph has too.
    pub(super) copied: &'a [&'a str],
}

impl ToolLoop<'_> {
    /// Returns the graph of a contract.
    pub(super) fn to_graph(&self, file: &YamlFile, id: &ItemId, at: &PlacedTrees<'_>) -> YamlFile {
        let TreeNode::Map(entries) = &file.root.node else { return file.with_root(file.root.clone()) };
        let fields = Fields { entries, span: file.root.span.clone() };
        let category = id.as_str().rsplit_once('/').map_or("", |(category, _)| category);
        let own = |name: &&str| fields.get(name).cloned().map(|tree| ((*name).to_owned(), tree));
        let mut graph: Vec<(String, YamlTree)> = self.copied.iter().filter_map(own).collect();
        graph.push(("tool_type".to_owned(), at.text("graph")));
        graph.push(("executor_id".to_owned(), at.text(super::EXECUTORS[0])));
        if !category.is_empty() {
            graph.push(("category".to_owned(), at.text(category)));
        }
        let permission = |id: &str| format!("rye.execute.tool.{}", id.replace('/', "."));
        let permissions = std::iter::once(at.text(permission(self.asked))).chain(self.listed.iter().map(|tool| {
            let at = PlacedTrees { span: &tool.span };
            at.text(permission(tool.value.as_str()))
        }));
        // The contract names what the graphs and agents among its tools may do.
        let inside = match fields.get("permissions").map(|tree| &tree.node) {
            Some(TreeNode::List(list)) => list.clone(),
            _ => Vec::new(),
        };
        graph.push(("permissions".to_owned(), at.list(permissions.chain(inside).collect())));
        if let Some(timeout) = self.timeout {
            graph.push(("limits".to_owned(), at.map(vec![("timeout", at.text(format!("{timeout}ms")))])));
        }
        graph.push(("config".to_owned(), self.config(at)));
        file.with_root(at.map_of(graph))
    }

    /// Returns the `config` of the graph.
    fn config(&self, at: &PlacedTrees<'_>) -> YamlTree {
        let names: Vec<String> = (0..self.tools.len()).map(|index| node_name(self.tools, index)).collect();
        let mut nodes: Vec<(String, YamlTree)> = Vec::new();
        let has_tools = !self.tools.is_empty();
        let asks_again = if has_tools { "use" } else { self.asks };
        let mut assign = self.assign.clone();
        if has_tools {
            assign.push(("calls", at.text("${result.calls}")));
        }
        let is_answered = at.map(vec![("path", at.text(format!("state.{}", self.answer))), ("op", at.text("exists"))]);
        nodes.push((
            self.asks.to_owned(),
            at.map(vec![
                ("action", at.map(vec![("item_id", at.text(self.asked)), ("params", at.map(self.params.clone()))])),
                ("retry", at.map(vec![("attempts", at.number(self.attempts))])),
                ("assign", at.map(assign)),
                (
                    "next",
                    at.list(vec![
                        at.map(vec![("to", at.text("done")), ("when", is_answered)]),
                        at.map(vec![("to", at.text(asks_again))]),
                    ]),
                ),
            ]),
        ));
        if has_tools {
            let each = at.map(vec![
                ("over", at.text("${state.calls}")),
                ("as", at.text("call")),
                ("to", at.text("pick")),
                ("most", at.number(self.most_calls)),
            ]);
            nodes.push(("use".to_owned(), at.map(vec![("type", at.text("gate")), ("next", each)])));
            let targets = self.tools.iter().zip(&names);
            let targets = targets.map(|(tool, name)| (tool.id.to_string(), at.text(name.as_str())));
            let by = at.map(vec![("by", at.text("call.tool")), ("to", at.map_of(targets.collect()))]);
            nodes.push(("pick".to_owned(), at.map(vec![("type", at.text("gate")), ("next", by)])));
            nodes.extend(self.tools.iter().zip(&names).map(|(tool, name)| (name.clone(), self.call(tool, at))));
            let said = vec![
                ("role", at.text("tool")),
                ("id", at.text("${call.id}")),
                ("error", at.text("${state._last_error.error}")),
            ];
            nodes.push((
                "failed".to_owned(),
                at.map(vec![
                    ("type", at.text("gate")),
                    ("assign", at.map(vec![("talk", at.list(vec![at.map(said)]))])),
                    ("next", at.text("gather")),
                ]),
            ));
            let waits_for = names.iter().map(String::as_str).chain(["failed"]).map(|name| at.text(name));
            nodes.push((
                "gather".to_owned(),
                at.map(vec![
                    ("type", at.text("gate")),
                    ("waits_for", at.list(waits_for.collect())),
                    ("next", at.text(self.asks)),
                ]),
            ));
        }
        nodes.push(("done".to_owned(), at.map(vec![("type", at.text("return")), ("output", at.text(self.output))])));
        let channels = self.sums.iter().map(|name| (*name, at.text("sum")));
        let channels = std::iter::once(("talk", at.text("append"))).chain(channels).collect();
        at.map(vec![
            ("start", at.text(self.asks)),
            ("max_steps", at.number(self.steps.min(100_000))),
            ("state", at.map(self.sums.iter().map(|name| (*name, at.number(0))).collect())),
            ("channels", at.map(channels)),
            ("nodes", at.map_of(nodes)),
        ])
    }

    /// Returns the node that calls a tool, at the place where the contract lists it.
    fn call(&self, tool: &ListedTool, at: &PlacedTrees<'_>) -> YamlTree {
        let span = self.listed.iter().find(|own| own.value == tool.id).map_or(at.span, |own| &own.span);
        let at = PlacedTrees { span };
        let parameters = tool.schema.get("properties").and_then(Value::as_object);
        let parameters = parameters.into_iter().flat_map(|properties| properties.keys());
        let params = parameters.map(|name| (name.clone(), at.text(format!("${{call.arguments.{name}}}"))));
        let params = at.map_of(params.collect());
        let call = at.map(vec![("item_id", at.text(tool.id.as_str())), ("params", params)]);
        let said = vec![("role", at.text("tool")), ("id", at.text("${call.id}")), ("result", at.text("${result}"))];
        at.map(vec![
            ("action", call),
            ("assign", at.map(vec![("talk", at.list(vec![at.map(said)]))])),
            ("on_error", at.text("failed")),
            ("next", at.text("gather")),
        ])
    }
}

/// Returns the name of the node that calls a tool: `call_read`, or with more of its id if several would have that name.
fn node_name(tools: &[ListedTool], index: usize) -> String {
    let name = |id: &ItemId, parts: usize| {
        let parts: Vec<&str> = id.as_str().rsplitn(parts + 1, '/').take(parts).collect();
        let name: Vec<String> = parts.into_iter().rev().map(|part| part.replace('-', "_")).collect();
        format!("call_{}", name.join("_"))
    };
    let Some(tool) = tools.get(index) else { return String::new() };
    let deepest = tool.id.as_str().split('/').count();
    let is_alone = |candidate: &String, parts: usize| {
        tools.iter().enumerate().all(|(at, other)| at == index || name(&other.id, parts) != *candidate)
    };
    let found = (1..=deepest).map(|parts| (name(&tool.id, parts), parts)).find(|(name, parts)| is_alone(name, *parts));
    // Ids that differ in `-` and `_` alone.
    found.map_or_else(|| format!("call_{index}"), |(name, _)| name)
}

/// Makes trees whose parts all have one place.
pub(super) struct PlacedTrees<'s> {
    pub(super) span: &'s Span,
}

impl PlacedTrees<'_> {
    fn tree(&self, node: TreeNode) -> YamlTree {
        YamlTree { span: self.span.clone(), node }
    }

    pub(super) fn text(&self, text: impl Into<String>) -> YamlTree {
        self.tree(TreeNode::String(text.into()))
    }

    pub(super) fn number(&self, number: u64) -> YamlTree {
        self.tree(TreeNode::Number(Number::from(number)))
    }

    pub(super) fn list(&self, list: Vec<YamlTree>) -> YamlTree {
        self.tree(TreeNode::List(list))
    }

    pub(super) fn map(&self, fields: Vec<(&str, YamlTree)>) -> YamlTree {
        self.map_of(fields.into_iter().map(|(name, tree)| (name.to_owned(), tree)).collect())
    }

    fn map_of(&self, fields: Vec<(String, YamlTree)>) -> YamlTree {
        let fields = fields.into_iter().map(|(name, tree)| (TreeKey { name, span: self.span.clone() }, tree));
        self.tree(TreeNode::Map(fields.collect()))
    }

    /// Makes a value that is taken as it is: its texts have no templates. A text that looks like a reference of the older syntax gets a
    /// space, since it cannot be escaped.
    pub(super) fn value(&self, value: &Value) -> YamlTree {
        self.tree(match value {
            Value::Null => TreeNode::Null,
            Value::Bool(value) => TreeNode::Boolean(*value),
            Value::Number(number) => TreeNode::Number(number.clone()),
            Value::String(text) => TreeNode::String(text.replace("${", "$${").replace("{input:", "{ input:")),
            Value::Array(list) => TreeNode::List(list.iter().map(|value| self.value(value)).collect()),
            Value::Object(map) => {
                let field = |(name, value): (&String, &Value)| {
                    (TreeKey { name: name.clone(), span: self.span.clone() }, self.value(value))
                };
                TreeNode::Map(map.iter().map(field).collect())
            }
        })
    }
}

/// Returns the schema of a call that is wanted, of one of these tools.
pub(super) fn wanted_call(tools: Vec<Value>) -> Value {
    let tool = match tools.is_empty() {
        true => serde_json::json!({ "type": "string" }),
        false => serde_json::json!({ "type": "string", "enum": tools }),
    };
    serde_json::json!({
        "type": "object",
        "properties": { "id": { "type": "string" }, "tool": tool, "arguments": { "type": "object" } },
        "required": ["id", "tool", "arguments"],
    })
}

//! The graphs that contracts of agents and programs mean: a tool is asked in a loop, and the calls that it wants are made, each in a
//! branch of its own.

use graph_model::name::ItemId;
use graph_model::value::Value;
use serde_json::Number;

use super::reader::{DefinitionReader, Fields, Spanned};
use crate::diagnostic::{SourcePlace, code};
use crate::source::Span;
use crate::tree::{TreeKey, TreeNode, YamlFile, YamlTree};

/// The id of the tool by which people are asked. The graph has an interrupt in place of a call of it.
pub const YIELD: &str = "rye/orchestrate/yield";

/// The node to which guarded calls lead that nobody approves.
const REFUSED: &str = "refused";

/// The node to which questions lead that nobody answers in time.
const UNANSWERED: &str = "unanswered";

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
    /// Whether a call of it needs the approval of a person.
    pub is_guarded: bool,
}

impl ListedTool {
    /// Returns the tool by which people are asked, if that is its id.
    pub fn yielding(id: &ItemId) -> Option<Self> {
        let schema = serde_json::json!({
            "type": "object",
            "properties": { "question": { "type": "string", "description": "What they are asked." } },
            "required": ["question"],
        });
        let description = Some("Asks people a question, and waits for their answer.".to_owned());
        (id.as_str() == YIELD).then(|| Self { id: id.clone(), description, schema, is_guarded: false })
    }

    fn yields(&self) -> bool {
        self.id.as_str() == YIELD
    }

    /// Whether people are asked when it is called.
    pub fn asks(&self) -> bool {
        self.is_guarded || self.yields()
    }
}

/// The people who approve guarded calls and answer questions, and the time that they have. The interrupts have the fields as the contract
/// has them.
#[derive(Debug, Clone, PartialEq)]
pub struct Approvals {
    /// The place in the contract.
    pub span: Span,
    fields: Vec<(&'static str, YamlTree)>,
}

impl Approvals {
    fn has_timeout(&self) -> bool {
        self.fields.iter().any(|(name, _)| *name == "timeout")
    }
}

/// Reads who approves guarded calls. The interrupts that get these fields are checked as those of any graph are.
pub(super) fn approvals(reader: &mut DefinitionReader<'_>, tree: &YamlTree, what: &'static str) -> Option<Approvals> {
    const FIELDS: [&str; 2] = ["answered_by", "timeout"];
    let fields = reader.map(tree, "`approvals`")?;
    let unknown = reader.only(&fields, what, &FIELDS, &[]);
    let given = FIELDS.into_iter().filter_map(|name| Some((name, fields.get(name)?.clone())));
    (!unknown).then(|| Approvals { span: tree.span.clone(), fields: given.collect() })
}

/// Whether a file in the directory of contracts is a contract, and no graph.
pub fn is_contract(file: &YamlFile) -> bool {
    let TreeNode::Map(entries) = &file.root.node else { return false };
    let is_graph = |tree: &YamlTree| tree.node == TreeNode::String("graph".to_owned());
    entries.iter().any(|(key, tree)| key.name == "tool_type" && !is_graph(tree))
}

/// Whether a file is a contract that means a graph in every graph that calls it, as it says itself.
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
    /// The people who are asked, and the time that they have.
    pub(super) approvals: Option<&'a Approvals>,
    /// The fields of the contract that the graph has too, besides `config_schema`.
    pub(super) copied: &'a [&'a str],
}

impl ToolLoop<'_> {
    /// Returns the graph of a contract.
    pub(super) fn to_graph(&self, file: &YamlFile, id: &ItemId, at: &PlacedTrees<'_>) -> YamlFile {
        let TreeNode::Map(entries) = &file.root.node else { return file.with_root(file.root.clone()) };
        let fields = Fields { entries, span: file.root.span.clone() };
        let mut graph = head(at, &fields, id, self.copied);
        let called = self.listed.iter().filter(|tool| tool.value.as_str() != YIELD);
        let permissions = std::iter::once(at.text(permission(self.asked))).chain(called.map(|tool| {
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
            let begins = |tool: &ListedTool, name: &str| if tool.is_guarded { asking(name) } else { name.to_owned() };
            let targets = self.tools.iter().zip(&names);
            let targets = targets.map(|(tool, name)| (tool.id.to_string(), at.text(begins(tool, name))));
            let by = at.map(vec![("by", at.text("call.tool")), ("to", at.map_of(targets.collect()))]);
            nodes.push(("pick".to_owned(), at.map(vec![("type", at.text("gate")), ("next", by)])));
            nodes.extend(self.tools.iter().zip(&names).flat_map(|(tool, name)| self.call(tool, name, at)));
            let mut ends = Vec::new();
            let mut failure = |name: &'static str, error: &str| {
                let said = vec![("role", at.text("tool")), ("id", at.text("${call.id}")), ("error", at.text(error))];
                let gate = at.map(vec![
                    ("type", at.text("gate")),
                    ("assign", at.map(vec![("talk", at.list(vec![at.map(said)]))])),
                    ("next", at.text("gather")),
                ]);
                ends.push(name);
                nodes.push((name.to_owned(), gate));
            };
            if !self.tools.iter().all(ListedTool::yields) {
                failure("failed", "${state._last_error.error}");
            }
            if self.tools.iter().any(|tool| tool.is_guarded) {
                failure(REFUSED, "nobody has approved this call, so it was not made");
            }
            if self.approvals.is_some_and(Approvals::has_timeout) && self.tools.iter().any(ListedTool::yields) {
                failure(UNANSWERED, "nobody has answered in time");
            }
            let waits_for = names.iter().map(String::as_str).chain(ends).map(|name| at.text(name));
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

    /// Returns the nodes of the calls of a tool, at the place where the contract lists it: the one that calls it, with the interrupt before
    /// it if the tool is guarded, or the interrupt in place of a question.
    fn call(&self, tool: &ListedTool, name: &str, at: &PlacedTrees<'_>) -> Vec<(String, YamlTree)> {
        let span = self.listed.iter().find(|own| own.value == tool.id).map_or(at.span, |own| &own.span);
        let at = PlacedTrees { span };
        let parameters = tool.schema.get("properties").and_then(Value::as_object);
        let parameters = parameters.into_iter().flat_map(|properties| properties.keys());
        let params = parameters.map(|name| (name.clone(), at.text(format!("${{call.arguments.{name}}}"))));
        let params = at.map_of(params.collect());
        if tool.yields() {
            return vec![(name.to_owned(), at.question(params, self.approvals))];
        }
        let approval = tool.is_guarded.then(|| (asking(name), at.approval(tool, name, params.clone(), self.approvals)));
        let call = at.map(vec![("item_id", at.text(tool.id.as_str())), ("params", params)]);
        let said = vec![("role", at.text("tool")), ("id", at.text("${call.id}")), ("result", at.text("${result}"))];
        let call = at.map(vec![
            ("action", call),
            ("assign", at.map(vec![("talk", at.list(vec![at.map(said)]))])),
            ("on_error", at.text("failed")),
            ("next", at.text("gather")),
        ]);
        approval.into_iter().chain([(name.to_owned(), call)]).collect()
    }
}

/// Returns the capability of calling a tool.
pub(super) fn permission(id: &str) -> String {
    format!("rye.execute.tool.{}", id.replace('/', "."))
}

/// Returns the fields of a graph with the id and the inputs of a contract, and with the fields `copied` of it.
pub(super) fn head(at: &PlacedTrees<'_>, fields: &Fields<'_>, id: &ItemId, copied: &[&str]) -> Vec<(String, YamlTree)> {
    let own = |name: &&str| fields.get(name).cloned().map(|tree| ((*name).to_owned(), tree));
    let mut graph: Vec<(String, YamlTree)> = copied.iter().filter_map(own).collect();
    graph.extend(inputs_of(at, fields).map(|schema| ("config_schema".to_owned(), schema)));
    graph.push(("tool_type".to_owned(), at.text("graph")));
    graph.push(("executor_id".to_owned(), at.text(super::EXECUTORS[0])));
    graph.extend(id.as_str().rsplit_once('/').map(|(category, _)| ("category".to_owned(), at.text(category))));
    graph
}

/// Returns the schema of the inputs. If the contract is guarded, all of them are.
fn inputs_of(at: &PlacedTrees<'_>, fields: &Fields<'_>) -> Option<YamlTree> {
    let schema = fields.get("config_schema").cloned();
    let Some(guarded) = fields.get("x-guarded").filter(|tree| tree.node == TreeNode::Boolean(true)) else {
        return schema;
    };
    let mut schema = schema.unwrap_or_else(|| at.map(vec![("type", at.text("object"))]));
    if let TreeNode::Map(entries) = &mut schema.node {
        let key = TreeKey { name: "x-guarded".to_owned(), span: guarded.span.clone() };
        entries.push((key, guarded.clone()));
    }
    Some(schema)
}

/// Returns the name of the interrupt before the node that makes a guarded call.
fn asking(name: &str) -> String {
    format!("approve_{}", name.strip_prefix("call_").unwrap_or(name))
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

    /// Makes the interrupt before a guarded call, which shows the arguments that the call gets.
    fn approval(&self, tool: &ListedTool, name: &str, params: YamlTree, approvals: Option<&Approvals>) -> YamlTree {
        let decision = self.value(&serde_json::json!({
            "type": "object",
            "properties": { "decision": { "enum": ["approve", "refuse"] } },
            "required": ["decision"],
        }));
        let targets = self.map(vec![("approve", self.text(name)), ("refuse", self.text(REFUSED))]);
        let mut fields = vec![
            ("type", self.text("interrupt")),
            ("payload", self.map(vec![("tool", self.text(tool.id.as_str())), ("arguments", params)])),
            ("result_schema", decision),
            ("next", self.map(vec![("by", self.text("result.decision")), ("to", targets)])),
        ];
        self.ask(&mut fields, approvals, REFUSED);
        self.map(fields)
    }

    /// Makes the interrupt in place of a call by which the model asks people.
    fn question(&self, params: YamlTree, approvals: Option<&Approvals>) -> YamlTree {
        let answer = self.value(&serde_json::json!({
            "type": "object",
            "properties": { "answer": { "type": "string" } },
            "required": ["answer"],
        }));
        let said =
            vec![("role", self.text("tool")), ("id", self.text("${call.id}")), ("result", self.text("${result}"))];
        let mut fields = vec![
            ("type", self.text("interrupt")),
            ("payload", params),
            ("result_schema", answer),
            ("assign", self.map(vec![("talk", self.list(vec![self.map(said)]))])),
            ("next", self.text("gather")),
        ];
        self.ask(&mut fields, approvals, UNANSWERED);
        self.map(fields)
    }

    /// Adds to an interrupt who answers, and where it leads if nobody does in time.
    fn ask<'n>(&self, fields: &mut Vec<(&'n str, YamlTree)>, approvals: Option<&'n Approvals>, unanswered: &str) {
        if approvals.is_some_and(Approvals::has_timeout) {
            fields.push(("on_timeout", self.text(unanswered)));
        }
        fields.extend(approvals.map_or(&[][..], |approvals| &approvals.fields).iter().cloned());
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

    pub(super) fn map_of(&self, fields: Vec<(String, YamlTree)>) -> YamlTree {
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

//! Agents: contracts that say `tool_type: agent`, and the graphs that they mean.
//!
//! A run of an agent is a run of a graph. The graph asks the agent's model, makes the calls that the model wants, each in a branch of
//! its own, and asks again until the model answers. So each turn and each call has a record. A crash repeats only those in progress.
//! Every rule for graphs holds for agents.

use graph_model::name::ItemId;
use graph_model::value::{Map, Value};
use serde_json::Number;

use super::duration;
use super::reader::{DefinitionReader, Fields, Spanned};
use crate::code::DiagnosticCode;
use crate::diagnostic::{SourcePlace, code};
use crate::source::Span;
use crate::tree::{TreeKey, TreeNode, YamlFile, YamlTree};

/// The id of the tool by which the graph of an agent asks its model. Its result has the agent's own type.
pub const MODEL: &str = "rye/agent/model";

/// The id of the tool by which a model asks people. The graph of an agent has an interrupt in place of a call of it.
pub const YIELD: &str = "rye/orchestrate/yield";

/// How many calls the model of an agent may want at once.
pub const MOST_CALLS: u64 = 32;

/// How often a model is asked that does not reply.
const ATTEMPTS: u64 = 3;

/// The most turns that a limit allows.
pub const MOST_TURNS: u32 = 10_000;

/// How many turns an agent takes if its contract does not say it.
const TURNS: u32 = 8;

/// The `config` of a contract that says `tool_type: agent`.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentContract {
    /// The directive that the agent follows: the id of a signed item.
    pub directive: Spanned<String>,
    /// The tier of its model. The program says which model that is.
    pub tier: String,
    /// The tools and graphs that it may call.
    pub tools: Vec<Spanned<ItemId>>,
    /// The limits of a run.
    pub limits: AgentLimits,
    /// The people who approve its guarded calls and answer its questions, and the time that they have.
    pub approvals: Option<Approvals>,
    /// The schema of its answer, as the contract has it.
    pub answer: Value,
}

/// The people who approve the guarded calls of an agent. The interrupts before these calls have the fields as the contract has them.
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

/// The limits of an agent's run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentLimits {
    /// How often it may ask its model.
    pub turns: u32,
    /// How many tokens all turns may take together, those of prompts included.
    pub tokens: Option<u64>,
    /// How much all turns may cost together, in millionths of a US dollar.
    pub spend: Option<u64>,
    /// How long a run may take, in milliseconds.
    pub timeout: Option<u64>,
}

/// A tool of an agent, as its contract describes it to the model.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentTool {
    /// Its id.
    pub id: ItemId,
    /// Its purpose.
    pub description: Option<String>,
    /// The schema of its parameters, as its contract has it.
    pub schema: Value,
    /// Whether a call of it needs the approval of a person.
    pub is_guarded: bool,
}

impl AgentTool {
    /// Returns the tool by which a model asks people, if that is its id.
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

    /// Whether people are asked when the model calls it.
    pub fn asks(&self) -> bool {
        self.is_guarded || self.yields()
    }
}

const KNOWN: [&str; 5] = ["directive", "model", "tools", "limits", "approvals"];
const WHAT: &str = "`config` of an agent";

/// Reads `config`. `None` if something in it is wrong.
pub(super) fn parse(reader: &mut DefinitionReader<'_>, tree: &YamlTree, answer: Value) -> Option<AgentContract> {
    let fields = reader.map(tree, "`config`")?;
    let unknown = reader.only(&fields, WHAT, &KNOWN, &[]);
    let directive = reader.required_text(&fields, WHAT, "directive").filter(|directive| {
        let is_id = ItemId::new(directive.value.as_str()).is_ok();
        if !is_id {
            wrong(reader, &directive.span, "`directive` is the id of a directive, as `workflows/review`");
        }
        is_id
    });
    let tier = fields.get("model").map(|tree| tier(reader, tree));
    let limits = fields.get("limits").map(|tree| limits(reader, tree));
    let tools = fields.get("tools").map(|tree| tools(reader, tree));
    let approvals = fields.get("approvals").map(|tree| approvals(reader, tree));
    let limits = limits.unwrap_or(Some(AgentLimits { turns: TURNS, tokens: None, spend: None, timeout: None }));
    let tier = tier.unwrap_or_else(|| Some("general".to_owned()));
    let (directive, tier, tools, limits) = (directive?, tier?, tools.unwrap_or_else(|| Some(Vec::new()))?, limits?);
    let approvals = approvals.map_or(Some(None), |approvals| approvals.map(Some))?;
    (!unknown).then_some(AgentContract { directive, tier, tools, limits, approvals, answer })
}

/// Reads who approves guarded calls. The interrupts that get these fields are checked as those of any graph are.
fn approvals(reader: &mut DefinitionReader<'_>, tree: &YamlTree) -> Option<Approvals> {
    const FIELDS: [&str; 2] = ["answered_by", "timeout"];
    let fields = reader.map(tree, "`approvals`")?;
    let unknown = reader.only(&fields, "`approvals` of an agent", &FIELDS, &[]);
    let given = FIELDS.into_iter().filter_map(|name| Some((name, fields.get(name)?.clone())));
    (!unknown).then(|| Approvals { span: tree.span.clone(), fields: given.collect() })
}

fn wrong(reader: &mut DefinitionReader<'_>, span: &Span, message: impl Into<String>) {
    let place = SourcePlace::new(reader.source, span.clone());
    reader.diagnostics.error(code::BAD_CONTRACT, place, message);
}

fn tier(reader: &mut DefinitionReader<'_>, tree: &YamlTree) -> Option<String> {
    let fields = reader.map(tree, "`model`")?;
    let unknown = reader.only(&fields, "`model` of an agent", &["tier"], &[]);
    let tier = reader.required_text(&fields, "`model` of an agent", "tier")?;
    (!unknown).then_some(tier.value)
}

fn tools(reader: &mut DefinitionReader<'_>, tree: &YamlTree) -> Option<Vec<Spanned<ItemId>>> {
    let TreeNode::List(_) = tree.node else {
        reader.wrong_shape(tree, "`tools`", "a list of ids");
        return None;
    };
    let list = reader.list(tree, "`tools`");
    reader.note_repeated("`tools`", list);
    let mut tools: Vec<Spanned<ItemId>> = Vec::new();
    let mut is_well = true;
    for tree in list {
        let Some(text) = reader.text(tree, "a tool of an agent") else {
            is_well = false;
            continue;
        };
        match ItemId::new(text.value.as_str()) {
            Ok(id) if id.as_str() == MODEL => {
                wrong(reader, &text.span, "the model of an agent is no tool of it");
                is_well = false;
            }
            Ok(id) if tools.iter().any(|known| known.value == id) => {}
            Ok(id) => tools.push(Spanned { value: id, span: text.span }),
            Err(_) => {
                wrong(reader, &text.span, "a tool of an agent is a literal id, as `rye/file-system/read`");
                is_well = false;
            }
        }
    }
    is_well.then_some(tools)
}

fn limits(reader: &mut DefinitionReader<'_>, tree: &YamlTree) -> Option<AgentLimits> {
    let fields = reader.map(tree, "`limits`")?;
    let unknown = reader.only(&fields, "`limits` of an agent", &["turns", "tokens", "spend", "timeout"], &[]);
    let turns = match fields.get("turns") {
        None => Some(TURNS),
        Some(tree) => reader.integer_in(tree, "`turns`", 1, MOST_TURNS),
    };
    let tokens = match fields.get("tokens") {
        None => Some(None),
        Some(tree) => reader.integer_in(tree, "`tokens`", 1, u32::MAX).map(|tokens| Some(u64::from(tokens))),
    };
    let spend = match fields.get("spend") {
        None => Some(None),
        Some(tree) => spend(reader, tree, code::BAD_CONTRACT).map(Some),
    };
    let timeout = match fields.get("timeout") {
        None => Some(None),
        Some(tree) => match duration::milliseconds(&tree.node) {
            Ok(timeout) => Some(Some(timeout)),
            Err(_) => {
                wrong(reader, &tree.span, "`timeout` is a number of seconds above 0, or a text such as `30s` or `2m`");
                None
            }
        },
    };
    let limits = AgentLimits { turns: turns?, tokens: tokens?, spend: spend?, timeout: timeout? };
    (!unknown).then_some(limits)
}

/// Reads an amount such as `0.10 USD` as millionths of a US dollar.
pub(super) fn spend(reader: &mut DefinitionReader<'_>, tree: &YamlTree, code: DiagnosticCode) -> Option<u64> {
    let text = reader.text(tree, "`spend`")?;
    let amount = text.value.strip_suffix(" USD").and_then(micros);
    if amount.is_none() {
        let place = SourcePlace::new(reader.source, text.span.clone());
        let message = "`spend` is an amount of US dollars with at most six decimals, as `\"0.10 USD\"`";
        reader.diagnostics.error(code, place, message);
    }
    amount
}

/// Writes millionths of a US dollar as a limit has them: `0.10 USD`.
pub fn shown_spend(micros: u64) -> String {
    let part = format!("{:06}", micros % 1_000_000);
    let part = part.trim_end_matches('0');
    format!("{}.{part:0<2} USD", micros / 1_000_000)
}

/// Returns a decimal number as millionths. `None` for zero, for more than six decimals, and for other texts.
fn micros(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
    if !is_number(whole) || !is_number(part) || part.len() > 6 {
        return None;
    }
    let part: u64 = format!("{part:0<6}").parse().ok()?;
    let micros = whole.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(part)?;
    (micros > 0).then_some(micros)
}

/// Whether a file is the contract of an agent, as it says itself.
pub fn is_agent(file: &YamlFile) -> bool {
    let TreeNode::Map(entries) = &file.root.node else { return false };
    entries.iter().any(|(key, tree)| key.name == "tool_type" && tree.node == TreeNode::String("agent".to_owned()))
}

/// Returns the graph that the contract of an agent means, with its id, and with the tools that its contract lists. Each part has the
/// place in the contract that it comes from.
pub fn as_graph(file: &YamlFile, id: &ItemId, agent: &AgentContract, tools: &[AgentTool]) -> YamlFile {
    let TreeNode::Map(entries) = &file.root.node else { return file.with_root(file.root.clone()) };
    let fields = Fields { entries, span: file.root.span.clone() };
    let config = fields.get("config").map_or_else(|| fields.span.clone(), |tree| tree.span.clone());
    let category = id.as_str().rsplit_once('/').map_or("", |(category, _)| category);
    let at = PlacedTrees { span: &config };
    let own = |name: &str| fields.get(name).cloned().map(|tree| (name.to_owned(), tree));
    let mut graph: Vec<(String, YamlTree)> = ["version", "description"].into_iter().filter_map(own).collect();
    graph.extend(inputs_of(&at, &fields).map(|schema| ("config_schema".to_owned(), schema)));
    graph.push(("tool_type".to_owned(), at.text("graph")));
    graph.push(("executor_id".to_owned(), at.text(super::EXECUTORS[0])));
    if !category.is_empty() {
        graph.push(("category".to_owned(), at.text(category)));
    }
    let permission = |id: &str| format!("rye.execute.tool.{}", id.replace('/', "."));
    let called = agent.tools.iter().filter(|tool| tool.value.as_str() != YIELD);
    let permissions = std::iter::once(at.text(permission(MODEL))).chain(called.map(|tool| {
        let at = PlacedTrees { span: &tool.span };
        at.text(permission(tool.value.as_str()))
    }));
    // The contract names what the graphs and agents among its tools may do.
    let inside = match fields.get("permissions").map(|tree| &tree.node) {
        Some(TreeNode::List(list)) => list.clone(),
        _ => Vec::new(),
    };
    graph.push(("permissions".to_owned(), at.list(permissions.chain(inside).collect())));
    if let Some(timeout) = agent.limits.timeout {
        graph.push(("limits".to_owned(), at.map(vec![("timeout", at.text(format!("{timeout}ms")))])));
    }
    graph.push(("config".to_owned(), config_of(&at, agent, tools)));
    file.with_root(at.map_of(graph))
}

/// Returns the schema of an agent's inputs. If the agent is guarded, all of them are.
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

/// Returns the `config` of an agent's graph.
fn config_of(at: &PlacedTrees<'_>, agent: &AgentContract, tools: &[AgentTool]) -> YamlTree {
    let names: Vec<String> = (0..tools.len()).map(|index| node_name(tools, index)).collect();
    let mut nodes: Vec<(String, YamlTree)> = Vec::new();
    let state = |name: &str| at.text(format!("${{state.{name}}}"));
    let result = |name: &str| at.text(format!("${{result.{name}}}"));
    let described = tools.iter().map(|tool| {
        let mut described = Map::from_iter([("id".to_owned(), Value::from(tool.id.as_str()))]);
        described.extend(tool.description.clone().map(|text| ("description".to_owned(), Value::from(text))));
        described.insert("parameters".to_owned(), tool.schema.clone());
        at.value(&Value::Object(described))
    });
    let mut limits = vec![("turns", at.number(u64::from(agent.limits.turns)))];
    limits.extend(agent.limits.tokens.map(|tokens| ("tokens", at.number(tokens))));
    limits.extend(agent.limits.spend.map(|spend| ("micros", at.number(spend))));
    let directive = PlacedTrees { span: &agent.directive.span };
    let params = at.map(vec![
        ("directive", directive.text(agent.directive.value.as_str())),
        ("tier", at.text(agent.tier.as_str())),
        ("tools", at.list(described.collect())),
        ("limits", at.map(limits)),
        ("answer", at.value(&agent.answer)),
        ("inputs", at.text("${inputs}")),
        ("talk", state("talk")),
        ("turns", state("turns")),
        ("tokens", state("tokens")),
        ("micros", state("micros")),
    ]);
    let has_tools = !tools.is_empty();
    let asks_again = if has_tools { "use" } else { "think" };
    let mut assign = vec![
        ("talk", result("said")),
        ("answer", result("answer")),
        ("turns", at.number(1)),
        ("tokens", result("tokens")),
        ("micros", result("micros")),
    ];
    if has_tools {
        assign.push(("calls", result("calls")));
    }
    let is_answered = at.map(vec![("path", at.text("state.answer")), ("op", at.text("exists"))]);
    nodes.push((
        "think".to_owned(),
        at.map(vec![
            ("action", at.map(vec![("item_id", at.text(MODEL)), ("params", params)])),
            ("retry", at.map(vec![("attempts", at.number(ATTEMPTS))])),
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
            ("over", state("calls")),
            ("as", at.text("call")),
            ("to", at.text("pick")),
            ("most", at.number(MOST_CALLS)),
        ]);
        nodes.push(("use".to_owned(), at.map(vec![("type", at.text("gate")), ("next", each)])));
        let begins =
            |tool: &AgentTool, name: &str| at.text(if tool.is_guarded { asking(name) } else { name.to_owned() });
        let targets = tools.iter().zip(&names).map(|(tool, name)| (tool.id.to_string(), begins(tool, name)));
        let by = at.map(vec![("by", at.text("call.tool")), ("to", at.map_of(targets.collect()))]);
        nodes.push(("pick".to_owned(), at.map(vec![("type", at.text("gate")), ("next", by)])));
        let place = |tool: &AgentTool| agent.tools.iter().find(|own| own.value == tool.id).map(|own| own.span.clone());
        for (tool, name) in tools.iter().zip(&names) {
            let span = place(tool).unwrap_or_else(|| at.span.clone());
            let at = PlacedTrees { span: &span };
            let parameters = tool.schema.get("properties").and_then(Value::as_object);
            let parameters = parameters.into_iter().flat_map(|properties| properties.keys());
            let params = parameters.map(|name| (name.clone(), at.text(format!("${{call.arguments.{name}}}"))));
            let params = at.map_of(params.collect());
            if tool.yields() {
                nodes.push((name.clone(), at.question(params, agent.approvals.as_ref())));
                continue;
            }
            if tool.is_guarded {
                nodes.push((asking(name), at.approval(tool, name, params.clone(), agent.approvals.as_ref())));
            }
            let call = at.map(vec![("item_id", at.text(tool.id.as_str())), ("params", params)]);
            let said = vec![("role", at.text("tool")), ("id", at.text("${call.id}")), ("result", at.text("${result}"))];
            nodes.push((
                name.clone(),
                at.map(vec![
                    ("action", call),
                    ("assign", at.map(vec![("talk", at.list(vec![at.map(said)]))])),
                    ("on_error", at.text("failed")),
                    ("next", at.text("gather")),
                ]),
            ));
        }
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
        if !tools.iter().all(AgentTool::yields) {
            failure("failed", "${state._last_error.error}");
        }
        if tools.iter().any(|tool| tool.is_guarded) {
            failure(REFUSED, "nobody has approved this call, so it was not made");
        }
        let has_time = agent.approvals.as_ref().is_some_and(Approvals::has_timeout);
        if has_time && tools.iter().any(AgentTool::yields) {
            failure(UNANSWERED, "nobody has answered in time");
        }
        let waits_for = names.iter().map(String::as_str).chain(ends).map(|name| at.text(name));
        nodes.push((
            "gather".to_owned(),
            at.map(vec![
                ("type", at.text("gate")),
                ("waits_for", at.list(waits_for.collect())),
                ("next", at.text("think")),
            ]),
        ));
    }
    nodes.push(("done".to_owned(), at.map(vec![("type", at.text("return")), ("output", state("answer"))])));
    let zero = |name| (name, at.number(0));
    let channels = [("talk", "append"), ("turns", "sum"), ("tokens", "sum"), ("micros", "sum")];
    let channels = channels.into_iter().map(|(name, reducer)| (name, at.text(reducer))).collect();
    // Each turn visits `think`, `use`, `gather`, and for each call `pick`, perhaps a question, the call and perhaps `failed`.
    let of_call = if tools.iter().any(|tool| tool.is_guarded) { 4 } else { 3 };
    let steps = u64::from(agent.limits.turns) * (3 + of_call * MOST_CALLS) + 1;
    at.map(vec![
        ("start", at.text("think")),
        ("max_steps", at.number(steps.min(100_000))),
        ("state", at.map(vec![zero("turns"), zero("tokens"), zero("micros")])),
        ("channels", at.map(channels)),
        ("nodes", at.map_of(nodes)),
    ])
}

/// The node of an agent's graph to which guarded calls lead that nobody approves.
const REFUSED: &str = "refused";

/// The node of an agent's graph to which questions lead that nobody answers in time.
const UNANSWERED: &str = "unanswered";

/// Returns the name of the interrupt before the node that makes a guarded call.
fn asking(name: &str) -> String {
    format!("approve_{}", name.strip_prefix("call_").unwrap_or(name))
}

/// Returns the name of the node that calls a tool: `call_read`, or with more of its id if several would have that name.
fn node_name(tools: &[AgentTool], index: usize) -> String {
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
struct PlacedTrees<'s> {
    span: &'s Span,
}

impl PlacedTrees<'_> {
    fn tree(&self, node: TreeNode) -> YamlTree {
        YamlTree { span: self.span.clone(), node }
    }

    fn text(&self, text: impl Into<String>) -> YamlTree {
        self.tree(TreeNode::String(text.into()))
    }

    /// Makes the interrupt before a guarded call, which shows the arguments that the call gets.
    fn approval(&self, tool: &AgentTool, name: &str, params: YamlTree, approvals: Option<&Approvals>) -> YamlTree {
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

    fn number(&self, number: u64) -> YamlTree {
        self.tree(TreeNode::Number(Number::from(number)))
    }

    fn list(&self, list: Vec<YamlTree>) -> YamlTree {
        self.tree(TreeNode::List(list))
    }

    fn map(&self, fields: Vec<(&str, YamlTree)>) -> YamlTree {
        self.map_of(fields.into_iter().map(|(name, tree)| (name.to_owned(), tree)).collect())
    }

    fn map_of(&self, fields: Vec<(String, YamlTree)>) -> YamlTree {
        let fields = fields.into_iter().map(|(name, tree)| (TreeKey { name, span: self.span.clone() }, tree));
        self.tree(TreeNode::Map(fields.collect()))
    }

    /// Makes a value that is taken as it is: its texts have no templates. A text that looks like a reference of the older syntax gets a
    /// space, since it cannot be escaped.
    fn value(&self, value: &Value) -> YamlTree {
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

/// Returns the schema of the result of an agent's model, as JSON: the messages of the turn, the calls that it wants, and the answer.
pub fn model_result(agent: &AgentContract) -> Value {
    let tools: Vec<Value> = agent.tools.iter().map(|tool| Value::from(tool.value.as_str())).collect();
    let tool = if tools.is_empty() {
        serde_json::json!({ "type": "string" })
    } else {
        serde_json::json!({ "type": "string", "enum": tools })
    };
    serde_json::json!({
        "type": "object",
        "properties": {
            "said": { "type": "array", "items": { "type": "object" } },
            "calls": { "type": "array", "items": {
                "type": "object",
                "properties": { "id": { "type": "string" }, "tool": tool, "arguments": { "type": "object" } },
                "required": ["id", "tool", "arguments"],
            } },
            "answer": agent.answer,
            "tokens": { "type": "integer" },
            "micros": { "type": "integer" },
        },
        "required": ["said", "calls", "tokens", "micros"],
    })
}

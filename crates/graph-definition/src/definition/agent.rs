//! Agents: contracts that say `tool_type: agent`, and the graphs that they mean.
//!
//! A run of an agent is a run of a graph. The graph asks the agent's model, makes the calls that the model wants, each in a branch of
//! its own, and asks again until the model answers. So each turn and each call has a record. A crash repeats only those in progress.
//! Every rule for graphs holds for agents.

use graph_model::name::ItemId;
use graph_model::value::{Map, Value};

use super::duration;
use super::reader::{DefinitionReader, Spanned};
use super::tool_loop::{self, Approvals, ListWords, ListedTool, PlacedTrees, ToolLoop};
use crate::code::DiagnosticCode;
use crate::diagnostic::{SourcePlace, code};
use crate::source::Span;
use crate::tree::{YamlFile, YamlTree};

pub use graph_model::program::AGENT_MODEL as MODEL;

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

const KNOWN: [&str; 5] = ["directive", "model", "tools", "limits", "approvals"];
const WHAT: &str = "`config` of an agent";
const LISTED: ListWords = ListWords {
    field: "`tools`",
    entry: "a tool of an agent",
    asked: MODEL,
    asked_is: "the model of an agent is no tool of it",
};

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
    let tools = fields.get("tools").map(|tree| tool_loop::listed(reader, tree, &LISTED));
    let approvals = fields.get("approvals").map(|tree| tool_loop::approvals(reader, tree, "`approvals` of an agent"));
    let limits = limits.unwrap_or(Some(AgentLimits { turns: TURNS, tokens: None, spend: None, timeout: None }));
    let tier = tier.unwrap_or_else(|| Some("general".to_owned()));
    let (directive, tier, tools, limits) = (directive?, tier?, tools.unwrap_or_else(|| Some(Vec::new()))?, limits?);
    let approvals = approvals.map_or(Some(None), |approvals| approvals.map(Some))?;
    (!unknown).then_some(AgentContract { directive, tier, tools, limits, approvals, answer })
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

/// Returns the graph that the contract of an agent means, with its id, and with the tools that its contract lists. Each part has the
/// place in the contract that it comes from.
pub fn as_graph(file: &YamlFile, id: &ItemId, agent: &AgentContract, tools: &[ListedTool]) -> YamlFile {
    let config = tool_loop::place_of_config(file);
    let at = PlacedTrees { span: &config };
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
    let params = vec![
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
    ];
    let assign = vec![
        ("talk", result("said")),
        ("answer", result("answer")),
        ("turns", at.number(1)),
        ("tokens", result("tokens")),
        ("micros", result("micros")),
    ];
    // Each turn visits `think`, `use`, `gather`, and for each call `pick`, perhaps a question, the call and perhaps `failed`.
    let of_call = if tools.iter().any(|tool| tool.is_guarded) { 4 } else { 3 };
    let steps = u64::from(agent.limits.turns) * (3 + of_call * MOST_CALLS) + 1;
    let means = ToolLoop {
        asks: "think",
        asked: MODEL,
        params,
        attempts: ATTEMPTS,
        assign,
        answer: "answer",
        output: "${state.answer}",
        sums: &["turns", "tokens", "micros"],
        listed: &agent.tools,
        tools,
        most_calls: MOST_CALLS,
        steps,
        timeout: agent.limits.timeout,
        approvals: agent.approvals.as_ref(),
        copied: &["version", "description"],
    };
    means.to_graph(file, id, &at)
}

/// Returns the schema of the result of an agent's model, as JSON: the messages of the turn, the calls that it wants, and the answer.
pub fn model_result(agent: &AgentContract) -> Value {
    let tools: Vec<Value> = agent.tools.iter().map(|tool| Value::from(tool.value.as_str())).collect();
    serde_json::json!({
        "type": "object",
        "properties": {
            "said": { "type": "array", "items": { "type": "object" } },
            "calls": { "type": "array", "items": tool_loop::wanted_call(tools) },
            "answer": agent.answer,
            "tokens": { "type": "integer" },
            "micros": { "type": "integer" },
        },
        "required": ["said", "calls", "tokens", "micros"],
    })
}

//! Settings of a run, from `config` and `limits`.

use graph_model::program::{OnError, OnMaxSteps, OnNoMatch, Settings};

use super::reader::Spanned;
use super::reader::{DefinitionReader, Fields};
use super::{agent, duration, node};
use crate::diagnostic::code;
use crate::source::Span;
use crate::tree::{TreeNode, YamlTree};

/// The fields of `config` that are read here.
pub const FIELDS: [&str; 5] = ["max_steps", "max_concurrency", "on_error", "on_max_steps", "on_no_match"];

/// The fields of `limits`.
pub const LIMITS: [&str; 8] = ["depth", "timeout", "deadline", "visits", "steps", "turns", "tokens", "spend"];

/// The values of a graph's `on_error`.
pub const ON_ERROR: [(&str, OnError); 2] = [("fail", OnError::Fail), ("continue", OnError::Continue)];

/// The values of `on_max_steps`.
pub const ON_MAX_STEPS: [(&str, OnMaxSteps); 3] = [
    ("fail", OnMaxSteps::Fail),
    ("return_last", OnMaxSteps::ReturnLast),
    ("return_with_flag", OnMaxSteps::ReturnWithFlag),
];

/// The values of `on_no_match`.
pub const ON_NO_MATCH: [(&str, OnNoMatch); 2] = [("return", OnNoMatch::Return), ("fail", OnNoMatch::Fail)];

/// The maximum number of nested levels of graphs.
pub const MOST_LEVELS: u32 = 100;

/// Reads the settings except hooks: those of `config`, and `limits` of the top level.
pub(super) fn parse(reader: &mut DefinitionReader<'_>, config: &Fields<'_>, limits: Option<&YamlTree>) -> Settings {
    let mut settings = Settings::default();
    let set = |field: &mut u32, value: Option<u32>| *field = value.unwrap_or(*field);
    if let Some(tree) = config.get("max_steps") {
        set(&mut settings.max_steps, reader.integer_in(tree, "`max_steps`", 1, u32::MAX));
    }
    if let Some(tree) = config.get("max_concurrency") {
        set(&mut settings.max_concurrency, node::max_concurrency(reader, tree));
    }
    if let Some(tree) = config.get("on_error") {
        settings.on_error = reader.word(tree, "`on_error` of a graph", &ON_ERROR).unwrap_or_default();
    }
    if let Some(tree) = config.get("on_max_steps") {
        settings.on_max_steps = reader.word(tree, "`on_max_steps`", &ON_MAX_STEPS).unwrap_or_default();
    }
    if let Some(tree) = config.get("on_no_match") {
        settings.on_no_match = reader.word(tree, "`on_no_match`", &ON_NO_MATCH).unwrap_or_default();
    }
    let Some(limits) = limits.and_then(|tree| reader.map(tree, "`limits`")) else { return settings };
    reader.only(&limits, "`limits`", &LIMITS, &[]);
    if let Some(tree) = limits.get("depth") {
        set(&mut settings.depth, reader.integer_in(tree, "`depth`", 0, MOST_LEVELS));
    }
    settings.visits = limits.get("visits").and_then(|tree| reader.integer_in(tree, "`visits`", 1, u32::MAX));
    settings.steps = limits.get("steps").and_then(|tree| reader.integer_in(tree, "`steps`", 1, u32::MAX));
    settings.timeout_ms = limits.get("timeout").and_then(|tree| duration::parse(reader, tree, "`timeout`"));
    settings.deadline_ms = limits.get("deadline").and_then(|tree| duration::parse(reader, tree, "`deadline`"));
    settings
}

/// The limits of all agents that a run calls, together with those that they call.
#[derive(Debug, Clone, Default)]
pub struct UsageLimits {
    /// How often they may ask their models.
    pub turns: Option<Spanned<u64>>,
    /// How many tokens all turns may take.
    pub tokens: Option<Spanned<u64>>,
    /// How much all turns may cost, in millionths of a US dollar.
    pub micros: Option<Spanned<u64>>,
}

/// Reads the limits of agents in `limits` of the top level.
pub(super) fn usage(reader: &mut DefinitionReader<'_>, limits: Option<&YamlTree>) -> UsageLimits {
    let field = |name: &str| {
        let TreeNode::Map(entries) = &limits?.node else { return None };
        entries.iter().find(|(key, _)| key.name == name).map(|(_, tree)| tree)
    };
    let mut number = |name: &str| {
        let tree = field(name)?;
        let value = u64::from(reader.integer_in(tree, &format!("`{name}`"), 1, u32::MAX)?);
        Some(Spanned { value, span: tree.span.clone() })
    };
    let (turns, tokens) = (number("turns"), number("tokens"));
    let micros = field("spend").and_then(|tree| {
        let value = agent::spend(reader, tree, code::SHAPE)?;
        Some(Spanned { value, span: tree.span.clone() })
    });
    UsageLimits { turns, tokens, micros }
}

/// Returns the place of a field of `limits`.
pub(super) fn limit_at(limits: Option<&YamlTree>, field: &str) -> Option<Span> {
    let TreeNode::Map(entries) = &limits?.node else { return None };
    let (_, value) = entries.iter().find(|(key, _)| key.name == field)?;
    Some(value.span.clone())
}

//! Conduct: how a node's calls are made, by `retry`, `timeout`, `remote`, `feedback` and `cache_result`.

use graph_model::program::{CallLimits, Retry};

use super::agent::{self, MOST_TURNS};
use super::duration;
use super::reader::{DefinitionReader, Fields, Spanned};
use super::settings::MOST_LEVELS;
use crate::diagnostic::{SourcePlace, code};
use crate::tree::{TreeNode, YamlTree};

/// How a node's calls are made.
#[derive(Debug, Clone)]
pub struct Conduct {
    /// How a failed call is retried.
    pub retry: Option<Retry>,
    /// The fields of `retry` that say how its further attempts are made.
    pub pauses: Vec<Spanned<String>>,
    /// How long a call may take, in milliseconds.
    pub timeout_ms: Option<Spanned<u64>>,
    /// Where an agent is to execute the call (R11).
    pub remote: Option<String>,
    /// Whether the node may read the result of its last visit.
    pub feedback: bool,
    /// The environment variables that the node is the first to require (R280).
    pub env: Vec<String>,
    /// The limits of the runs that its calls begin.
    pub limits: CallLimits,
    /// The fields of `limits`.
    pub limit_fields: Vec<Spanned<String>>,
    /// `limits.timeout`: how long the agent that the node calls may take, in milliseconds.
    pub limits_timeout_ms: Option<u64>,
    /// Whether the result of a call is cached, and returned again instead of making the same call (R295).
    pub cache_result: Option<Spanned<bool>>,
}

impl Conduct {
    /// Returns how long a call may take, in milliseconds: the lower one of `timeout` and `limits.timeout`.
    pub fn least_timeout_ms(&self) -> Option<u64> {
        let own = self.timeout_ms.as_ref().map(|timeout| timeout.value);
        own.into_iter().chain(self.limits_timeout_ms).min()
    }

    /// Whether the results of calls are cached.
    pub fn caches(&self) -> bool {
        self.cache_result.as_ref().is_some_and(|caches| caches.value)
    }
}

/// The fields of the `limits` of a node.
pub const LIMITS: [&str; 6] = ["depth", "steps", "turns", "tokens", "spend", "timeout"];

/// The fields of `retry`.
pub const RETRY: [&str; 6] = ["attempts", "delay", "factor", "max_delay", "jitter", "on"];

/// The maximum number of attempts of a call.
pub const MOST_ATTEMPTS: u32 = 100;

/// The categories of failures, and `any` for all of them.
pub const CATEGORIES: [&str; 5] = ["transient", "rate_limited", "permanent", "cancelled", "any"];

/// Reads the fields of a node that say how its calls are made.
pub(super) fn parse(reader: &mut DefinitionReader<'_>, fields: &Fields<'_>) -> Conduct {
    // An absent value and an empty text name no agent (R11).
    let remote = reader.optional_text(fields, "remote");
    if let Some(text) = &remote {
        let help = "write the name of the agent, or lead to a node for each of them";
        reader.is_template(&text.value, &text.span, "`remote`", help);
    }
    let remote = remote.map(|text| text.value).filter(|name| !name.is_empty());
    let cache_result = fields.get("cache_result").and_then(|tree| {
        let value = reader.boolean(tree, "`cache_result`")?;
        Some(Spanned { value, span: tree.span.clone() })
    });
    let timeout = |tree: &YamlTree, reader: &mut DefinitionReader<'_>| {
        let value = duration::parse(reader, tree, "`timeout`")?;
        Some(Spanned { value, span: tree.span.clone() })
    };
    let retry = fields.get("retry");
    let pauses = match retry.map(|tree| &tree.node) {
        Some(TreeNode::Map(fields)) => {
            let keys = fields.iter().map(|(key, _)| key).filter(|key| key.name != "attempts");
            keys.map(|key| Spanned { value: key.name.clone(), span: key.span.clone() }).collect()
        }
        _ => Vec::new(),
    };
    let (limits, limit_fields) = fields.get("limits").map(|tree| parse_limits(reader, tree)).unwrap_or_default();
    let limits_timeout_ms = fields.get("limits").and_then(|tree| match &tree.node {
        TreeNode::Map(entries) => entries.iter().find(|(key, _)| key.name == "timeout").map(|(_, tree)| tree),
        _ => None,
    });
    let limits_timeout_ms = limits_timeout_ms.and_then(|tree| duration::parse(reader, tree, "`timeout`"));
    Conduct {
        limits,
        limit_fields,
        limits_timeout_ms,
        retry: retry.and_then(|tree| parse_retry(reader, tree)),
        pauses,
        timeout_ms: fields.get("timeout").and_then(|tree| timeout(tree, reader)),
        remote,
        feedback: fields.get("feedback").and_then(|tree| reader.boolean(tree, "`feedback`")).unwrap_or(true),
        env: Vec::new(),
        cache_result,
    }
}

/// Reads `limits` of a node, and the fields that it has.
fn parse_limits(reader: &mut DefinitionReader<'_>, tree: &YamlTree) -> (CallLimits, Vec<Spanned<String>>) {
    let Some(fields) = reader.map(tree, "`limits`") else { return Default::default() };
    reader.only(&fields, "`limits` of a node", &LIMITS, &[]);
    let limits = CallLimits {
        depth: fields.get("depth").and_then(|tree| reader.integer_in(tree, "`depth`", 1, MOST_LEVELS)),
        steps: fields.get("steps").and_then(|tree| reader.integer_in(tree, "`steps`", 1, u32::MAX)),
        turns: fields.get("turns").and_then(|tree| reader.integer_in(tree, "`turns`", 1, MOST_TURNS)),
        tokens: fields.get("tokens").and_then(|tree| reader.integer_in(tree, "`tokens`", 1, u32::MAX)).map(u64::from),
        micros: fields.get("spend").and_then(|tree| agent::spend(reader, tree, code::SHAPE)),
    };
    let known = fields.entries.iter().filter(|(key, _)| LIMITS.contains(&key.name.as_str()));
    let names = known.map(|(key, _)| Spanned { value: key.name.clone(), span: key.span.clone() }).collect();
    (limits, names)
}

/// Reads `retry`: a mapping, or the number of attempts alone.
fn parse_retry(reader: &mut DefinitionReader<'_>, tree: &YamlTree) -> Option<Retry> {
    let mut retry = Retry::default();
    if let TreeNode::Number(_) = tree.node {
        retry.attempts = reader.integer_in(tree, "`retry`", 1, MOST_ATTEMPTS)?;
        return Some(retry);
    }
    let fields = reader.map(tree, "`retry`")?;
    reader.only(&fields, "`retry`", &RETRY, &[]);
    if let Some(tree) = fields.get("attempts") {
        retry.attempts = reader.integer_in(tree, "`attempts`", 1, MOST_ATTEMPTS)?;
    }
    if let Some(tree) = fields.get("delay") {
        retry.delay_ms = duration::parse(reader, tree, "`delay`")?;
    }
    // A first pause that is longer than the default maximum raises the maximum.
    retry.max_delay_ms = retry.max_delay_ms.max(retry.delay_ms);
    if let Some(tree) = fields.get("max_delay") {
        retry.max_delay_ms = duration::parse(reader, tree, "`max_delay`")?;
        if retry.max_delay_ms < retry.delay_ms {
            let place = SourcePlace::new(reader.source, tree.span.clone());
            reader.diagnostics.error(code::SHAPE, place, "`max_delay` is at least as long as `delay`, the first pause");
        }
    }
    if let Some(tree) = fields.get("factor") {
        retry.factor = number_in(reader, tree, "`factor`", 1.0, 100.0)?;
    }
    if let Some(tree) = fields.get("jitter") {
        retry.jitter = number_in(reader, tree, "`jitter`", 0.0, 1.0)?;
    }
    if let Some(tree) = fields.get("on") {
        retry.on = categories(reader, tree);
    }
    Some(retry)
}

fn number_in(reader: &mut DefinitionReader<'_>, tree: &YamlTree, what: &str, least: f64, most: f64) -> Option<f64> {
    if let TreeNode::Number(number) = &tree.node
        && let Some(number) = number.as_f64()
        && (least..=most).contains(&number)
    {
        return Some(number);
    }
    let place = SourcePlace::new(reader.source, tree.span.clone());
    let message = format!("{what} is a number from {least} to {most}, not {}", shown(tree));
    reader.diagnostics.error(code::SHAPE, place, message);
    None
}

fn shown(tree: &YamlTree) -> String {
    match &tree.node {
        TreeNode::Number(number) => number.to_string(),
        _ => tree.describe().to_owned(),
    }
}

/// Reads the categories of failures after which a call is retried.
fn categories(reader: &mut DefinitionReader<'_>, tree: &YamlTree) -> Vec<String> {
    let words = CATEGORIES.map(|name| (name, name));
    let list = reader.one_or_list(tree, "`on`", "a category or a list of categories");
    if list.is_empty() && matches!(tree.node, TreeNode::List(_)) {
        let place = SourcePlace::new(reader.source, tree.span.clone());
        reader
            .diagnostics
            .error(code::INERT_FIELD, place, "`on` lists no failures, so nothing would be tried again")
            .help("name some, as `on: [transient, rate_limited]`, or remove `retry`");
    }
    reader.note_repeated("`on`", list);
    list.iter().filter_map(|tree| reader.word(tree, "a category of failures", &words)).map(str::to_owned).collect()
}

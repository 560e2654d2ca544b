//! The terms, lists and conditions of a compiled graph as text, as diagrams show them.

use std::fmt::{self, Display, Formatter};

use graph_model::condition::Condition;
use graph_model::operator::Operator;
use graph_model::value::Value;

use crate::graph::node::{
    Comparison, CompiledHook, CompiledKind, CompiledNode, CompiledRoute, CompiledTerm, EdgeCondition, ResolvedPath,
    TextPiece,
};

impl CompiledRoute {
    /// Returns for each edge its condition, or the word for which it is taken; `None` for an edge without a condition.
    pub(super) fn conditions(&self) -> Vec<Option<String>> {
        match self {
            Self::First(edges) | Self::All(edges) => edges.iter().map(|edge| edge.when.text()).collect(),
            Self::Each(_) => vec![None],
            Self::By(by) => by.to.iter().map(|(word, _)| Some(word.clone())).collect(),
        }
    }
}

impl CompiledNode {
    /// Returns the list that its route or its calls go over, or the value by which it leads.
    pub(super) fn over(&self) -> Option<String> {
        match (&self.next, &self.kind) {
            (CompiledRoute::Each(each), _) => Some(each.over.to_string()),
            (CompiledRoute::By(by), _) => Some(by.by.written.clone()),
            (_, CompiledKind::Foreach(each)) => Some(each.over.to_string()),
            _ => None,
        }
    }

    /// Returns how many calls, or nodes of its branches, are made at a time, if that is limited.
    pub(super) fn calls_at_a_time(&self) -> Option<usize> {
        match &self.kind {
            CompiledKind::Foreach(each) => Some(each.width),
            _ => self.width,
        }
    }
}

impl CompiledHook {
    /// Returns the condition under which it is asked; `None` if it always is.
    pub(super) fn condition(&self) -> Option<String> {
        self.when.text()
    }
}

impl EdgeCondition {
    /// Returns the condition; `None` if it always holds.
    fn text(&self) -> Option<String> {
        match self {
            Self::Always | Self::Tree(Condition::Always) => None,
            Self::All(tests) if tests.is_empty() => None,
            Self::All(tests) => Some(listed(tests.iter().map(ToString::to_string), " and ")),
            Self::Tree(condition) => Some(text(condition)),
        }
    }
}

/// Returns a condition as text. A list inside another has parentheses.
fn text(condition: &Condition<Comparison>) -> String {
    let one = |one: &Condition<Comparison>| match one {
        Condition::All(_) | Condition::Any(_) => format!("({})", text(one)),
        _ => text(one),
    };
    match condition {
        Condition::Always => "always".to_owned(),
        Condition::Test(test) => test.to_string(),
        Condition::Any(conditions) if conditions.is_empty() => "never".to_owned(),
        Condition::All(conditions) if conditions.is_empty() => "always".to_owned(),
        Condition::All(conditions) => listed(conditions.iter().map(one), " and "),
        Condition::Any(conditions) => listed(conditions.iter().map(one), " or "),
        Condition::Not(one) => format!("not ({})", text(one)),
    }
}

fn listed(texts: impl Iterator<Item = String>, between: &str) -> String {
    texts.collect::<Vec<_>>().join(between)
}

impl Display for Comparison {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let sign = match self.operator {
            Operator::Eq => "=",
            Operator::Ne => "≠",
            Operator::Gt => ">",
            Operator::Gte => "≥",
            Operator::Lt => "<",
            Operator::Lte => "≤",
            Operator::In => "in",
            Operator::Contains => "contains",
            Operator::Regex => "matches",
            Operator::Exists => return write!(f, "{} exists", self.left.written),
        };
        write!(f, "{} {sign} {}", self.left.written, self.right)
    }
}

impl Display for CompiledTerm {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Literal(Value::String(text)) => f.write_str(text),
            Self::Literal(value) => value.fmt(f),
            Self::First(paths) => write!(f, "${{{}}}", either(paths)),
            Self::Text(pieces) => pieces.iter().try_for_each(|piece| match piece {
                TextPiece::Text(text) => f.write_str(text),
                TextPiece::First(paths) => write!(f, "${{{}}}", either(paths)),
                TextPiece::Input(path, _) => write!(f, "{{input:{}}}", path.segments.join(".")),
            }),
            Self::List(list) => write!(f, "[{}]", listed(list.iter().map(ToString::to_string), ", ")),
            Self::Object(fields) => {
                let fields = fields.iter().map(|(name, term)| format!("{name}: {term}"));
                write!(f, "{{ {} }}", listed(fields, ", "))
            }
        }
    }
}

/// Returns paths of which the first that is not null counts.
fn either(paths: &[ResolvedPath]) -> String {
    listed(paths.iter().map(|path| path.written.clone()), " || ")
}

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
            Self::All(tests) => Some(tests.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ")),
            Self::Tree(condition) => Some(Shown(condition).to_string()),
        }
    }
}

/// A condition as text. A list inside another has parentheses.
struct Shown<'c>(&'c Condition<Comparison>);

impl Display for Shown<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let list = |list: &[Condition<Comparison>], word: &str, f: &mut Formatter<'_>| {
            for (at, one) in list.iter().enumerate() {
                if at > 0 {
                    write!(f, " {word} ")?;
                }
                match one {
                    Condition::All(_) | Condition::Any(_) => write!(f, "({})", Shown(one))?,
                    _ => Shown(one).fmt(f)?,
                }
            }
            Ok(())
        };
        match self.0 {
            Condition::Always => f.write_str("always"),
            Condition::Test(test) => test.fmt(f),
            // A list without conditions: all of it hold, and not any.
            Condition::All(conditions) if conditions.is_empty() => f.write_str("always"),
            Condition::Any(conditions) if conditions.is_empty() => f.write_str("never"),
            Condition::All(conditions) => list(conditions, "and", f),
            Condition::Any(conditions) => list(conditions, "or", f),
            Condition::Not(one) => write!(f, "not ({})", Shown(one)),
        }
    }
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
            Self::List(list) => {
                let list: Vec<String> = list.iter().map(ToString::to_string).collect();
                write!(f, "[{}]", list.join(", "))
            }
            Self::Object(fields) => {
                let fields: Vec<String> = fields.iter().map(|(name, term)| format!("{name}: {term}")).collect();
                write!(f, "{{ {} }}", fields.join(", "))
            }
        }
    }
}

/// Returns paths of which the first that is not null counts.
fn either(paths: &[ResolvedPath]) -> String {
    paths.iter().map(|path| path.written.as_str()).collect::<Vec<_>>().join(" || ")
}

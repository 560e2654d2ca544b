//! Conditions: comparisons, and `all`, `any` and `not` of them.

use graph_model::condition::Condition;
use graph_model::operator::Operator;
use graph_model::path::{Path, PathError, Root};
use graph_model::value::Value;

use super::reader::{Fields, Reader, Spanned};
use super::template::{self, Names, locate};
use crate::diagnostic::{Place, code};
use crate::source::Span;
use crate::tree::{Node, Tree};

/// A comparison.
#[derive(Debug, Clone)]
pub struct Test {
    /// Where it stands.
    pub span: Span,
    /// What is looked at.
    pub path: Spanned<Path>,
    /// How.
    pub operator: Operator,
    /// What it is compared with.
    pub value: Spanned<Value>,
}

/// The fields of a condition.
pub const FIELDS: [&str; 7] = ["path", "op", "operator", "value", "any", "all", "not"];

/// Reads a condition; an empty one holds always (R77).
pub(super) fn parse(reader: &mut Reader<'_>, tree: &Tree, names: Names<'_>) -> Option<Condition<Test>> {
    let fields = reader.map(tree, "a condition")?;
    if fields.entries.is_empty() {
        return Some(Condition::Always);
    }
    reader.only(&fields, "a condition", &FIELDS, &[]);
    let kinds: Vec<_> =
        fields.entries.iter().filter(|(key, _)| matches!(key.name.as_str(), "path" | "any" | "all" | "not")).collect();
    let list = |reader: &mut Reader<'_>, tree: &Tree, what: &str| -> Option<Vec<_>> {
        let conditions: Vec<_> = reader.list(tree, what).iter().map(|tree| parse(reader, tree, names)).collect();
        conditions.into_iter().collect()
    };
    if let [(kind, _)] = kinds.as_slice()
        && kind.name != "path"
    {
        // What belongs to a comparison does nothing beside `any`, `all` and `not`.
        for (key, _) in
            fields.entries.iter().filter(|(key, _)| matches!(key.name.as_str(), "op" | "operator" | "value"))
        {
            let place = Place::new(reader.source, key.span.clone());
            reader
                .diagnostics
                .error(code::INERT_FIELD, place, format!("`{}` does nothing beside `{}`", key.name, kind.name))
                .help("remove it, or make it part of a comparison with a `path`");
        }
    }
    match kinds.as_slice() {
        [(key, inner)] => match key.name.as_str() {
            "any" => Some(Condition::Any(list(reader, inner, "`any`")?)),
            "all" => Some(Condition::All(list(reader, inner, "`all`")?)),
            "not" => Some(Condition::Not(Box::new(parse(reader, inner, names)?))),
            _ => parse_test(reader, &fields, inner, names).map(Condition::Test),
        },
        [] => {
            let place = Place::new(reader.source, fields.span.clone());
            reader
                .diagnostics
                .error(code::BAD_CONDITION, place, "a condition needs `path`, or one of `any`, `all` and `not`")
                .help("write `when: { path: state.key, op: eq, value: … }`");
            None
        }
        [(first, _), (second, _), ..] => {
            let place = Place::new(reader.source, second.span.clone());
            let first_place = Place::new(reader.source, first.span.clone());
            reader
                .diagnostics
                .error(
                    code::BAD_CONDITION,
                    place,
                    format!("a condition has `{}` or `{}`, not both", first.name, second.name),
                )
                .related(first_place, "the other")
                .help("combine conditions in the list of an `all` or `any`");
            None
        }
    }
}

fn parse_test(reader: &mut Reader<'_>, fields: &Fields<'_>, path: &Tree, names: Names<'_>) -> Option<Test> {
    let path = parse_path(reader, path, names);
    let operator = parse_operator(reader, fields);
    let given = fields.entries.iter().find(|(key, _)| key.name == "value");
    let value = match given {
        Some((_, tree)) => Spanned { value: tree.to_value(), span: tree.span.clone() },
        None => Spanned { value: Value::Null, span: fields.span.clone() },
    };
    let (path, operator) = (path?, operator?);
    if let (Operator::In, Some((_, Tree { node: Node::List(list), .. }))) = (operator, given) {
        reader.note_repeated("`in`", list);
    }
    if given.is_none() && operator != Operator::Exists {
        let place = Place::new(reader.source, fields.span.clone());
        reader
            .diagnostics
            .error(code::MISSING_FIELD, place, format!("a comparison with `{operator}` needs `value`"))
            .help("to compare with nothing, write `value: null`");
        return None;
    }
    if operator == Operator::Regex && !check_pattern(reader, &value) {
        return None;
    }
    Some(Test { span: fields.span.clone(), path, operator, value })
}

/// Reads the path of a condition, which looks at what has the same value whenever the condition is decided (R87).
fn parse_path(reader: &mut Reader<'_>, tree: &Tree, names: Names<'_>) -> Option<Spanned<Path>> {
    let text = reader.text(tree, "`path`")?;
    let place = Place::new(reader.source, text.span.clone());
    let otherwise = match names {
        Names::Hook(_) => "",
        Names::Node | Names::Item(_) => "a condition looks into `state`, `inputs`, `result` and `visit`",
    };
    match names.parse_path(&text.value) {
        Ok(Path { root: Root::Now | Root::Timestamp, .. }) => {
            let diagnostic = reader.diagnostics.error(
                code::UNKNOWN_NAMESPACE,
                place,
                format!("a condition cannot look at `{}`", text.value),
            );
            match names {
                Names::Hook(_) => diagnostic.note(names.listed()),
                _ => diagnostic.help(format!("{otherwise}; assign the time to a state key first")),
            };
            None
        }
        Ok(path) => Some(Spanned { value: path, span: text.span }),
        Err(error) => {
            if text.value.starts_with("${") {
                let inside = text.value.trim_start_matches("${").trim_end_matches('}').trim();
                let diagnostic = reader.diagnostics.error(
                    code::BAD_TEMPLATE,
                    place,
                    "the path of a condition is written without `${…}`",
                );
                diagnostic.help(format!("write `path: {inside}`"));
                let is_plain = |character: char| character.is_ascii_alphanumeric() || matches!(character, '_' | '.');
                if inside.chars().all(is_plain) && names.parse_path(inside).is_ok() {
                    diagnostic.fix(inside, true);
                }
            } else {
                let span = match &error {
                    PathError::Character { offset, character } => *offset..offset + character.len_utf8(),
                    _ => 0..text.value.len(),
                };
                let place = Place::new(reader.source, locate(reader.source, &text.span, &text.value, &span));
                template::report_path(reader, place, &error, otherwise, names);
            }
            None
        }
    }
}

/// Reads `op`, or `operator` as existing graphs spell it (R79); without either it is `eq` (R77).
fn parse_operator(reader: &mut Reader<'_>, fields: &Fields<'_>) -> Option<Operator> {
    if let (Some(first), Some(second)) = (fields.key("op"), fields.key("operator")) {
        let (place, first) =
            (Place::new(reader.source, second.span.clone()), Place::new(reader.source, first.span.clone()));
        reader
            .diagnostics
            .error(code::BAD_CONDITION, place, "a comparison has `op` or `operator`, not both")
            .related(first, "the other");
        return None;
    }
    let name = if fields.key("op").is_some() { "op" } else { "operator" };
    let Some(text) = reader.optional_text(fields, name) else {
        return fields.get(name).is_none().then_some(Operator::Eq);
    };
    let operator = Operator::named(&text.value);
    if operator.is_none() {
        let place = Place::new(reader.source, text.span);
        let names = Operator::TABLE.map(|row| row.name);
        let diagnostic =
            reader.diagnostics.error(code::UNKNOWN_OPERATOR, place, format!("`{}` is not an operator", text.value));
        diagnostic.note(format!("the operators are {}", names.map(|name| format!("`{name}`")).join(", ")));
        match symbol(&text.value) {
            // A sign means one thing; a word may mean another.
            Some(name) => diagnostic
                .help(format!("did you mean `{name}`?"))
                .fix(name, !text.value.contains(|character: char| character.is_ascii_alphabetic() || character == '~')),
            None => diagnostic.suggest(&text.value, names),
        };
    }
    operator
}

/// What people write who know other languages.
fn symbol(text: &str) -> Option<&'static str> {
    Some(match text {
        "=" | "==" | "===" | "equals" | "is" => "eq",
        "!=" | "<>" | "!==" | "not_equals" => "ne",
        ">" => "gt",
        ">=" | "ge" => "gte",
        "<" => "lt",
        "<=" | "le" => "lte",
        "=~" | "matches" | "match" => "regex",
        "includes" | "has" => "contains",
        "not_null" | "defined" => "exists",
        _ => return None,
    })
}

fn check_pattern(reader: &mut Reader<'_>, value: &Spanned<Value>) -> bool {
    let place = Place::new(reader.source, value.span.clone());
    let Value::String(pattern) = &value.value else {
        reader.diagnostics.error(code::BAD_REGEX, place, "the value of `regex` is a pattern, a string");
        return false;
    };
    reader.pattern(pattern, &value.span)
}

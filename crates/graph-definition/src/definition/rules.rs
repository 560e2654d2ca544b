//! Rules: constraints of a schema on values beyond their type, such as `minimum` and `pattern`.
//!
//! The type of a value holds because it becomes a Rust type. A rule holds because the runtime checks the value where it enters: inputs
//! when a run starts, parameters before a call is dispatched, results, signals and answers when they arrive. Nothing checks the values
//! of reducers, so rules are refused there.

use graph_model::field::without_nulls;
use graph_model::operator::{Operator, equal};
use graph_model::value::{AsView, Map, Value};

use super::patterns;
use super::reader::{DefinitionReader, Fields};
use super::schema::{SchemaKind, SchemaOwner, ValueSchema};
use crate::diagnostic::{SourcePlace, code};
use crate::source::Span;
use crate::tree::YamlTree;

/// A rule of a schema.
#[derive(Debug, Clone)]
pub struct SchemaRule {
    /// The schema keyword.
    pub keyword: &'static str,
    /// The argument of the keyword.
    pub value: Value,
    /// The place of the argument.
    pub span: Span,
}

/// The type of values that a rule applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum About {
    /// Numbers.
    Number,
    /// Texts.
    Text,
    /// Lists.
    List,
    /// Objects.
    Object,
    /// Values of every type.
    All,
}

/// The argument of a rule's keyword.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeywordArgument {
    /// A number.
    Number,
    /// A number above 0.
    Positive,
    /// A whole number that is not negative.
    Count,
    /// A boolean.
    Flag,
    /// A regular expression.
    Pattern,
    /// One of [`FORMATS`].
    Format,
    /// Any value.
    Value,
}

/// The keywords that say more than a type, each with the type of values that it applies to and its argument.
pub const KEYWORDS: [(&str, About, KeywordArgument); 15] = [
    ("minimum", About::Number, KeywordArgument::Number),
    ("maximum", About::Number, KeywordArgument::Number),
    ("exclusiveMinimum", About::Number, KeywordArgument::Number),
    ("exclusiveMaximum", About::Number, KeywordArgument::Number),
    ("multipleOf", About::Number, KeywordArgument::Positive),
    ("minLength", About::Text, KeywordArgument::Count),
    ("maxLength", About::Text, KeywordArgument::Count),
    ("pattern", About::Text, KeywordArgument::Pattern),
    ("format", About::Text, KeywordArgument::Format),
    ("minItems", About::List, KeywordArgument::Count),
    ("maxItems", About::List, KeywordArgument::Count),
    ("uniqueItems", About::List, KeywordArgument::Flag),
    ("minProperties", About::Object, KeywordArgument::Count),
    ("maxProperties", About::Object, KeywordArgument::Count),
    ("const", About::All, KeywordArgument::Value),
];

/// Pairs of a lower and an upper bound, and whether the two may be equal.
const BOUNDS: [(&str, &str, bool); 7] = [
    ("minimum", "maximum", true),
    ("minimum", "exclusiveMaximum", false),
    ("exclusiveMinimum", "maximum", false),
    ("exclusiveMinimum", "exclusiveMaximum", false),
    ("minLength", "maxLength", true),
    ("minItems", "maxItems", true),
    ("minProperties", "maxProperties", true),
];

/// The formats that the runtime knows.
pub const FORMATS: [&str; 13] = [
    "date",
    "date-time",
    "duration",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "json-pointer",
    "regex",
    "time",
    "uri",
    "uri-reference",
    "uuid",
];

/// Returns the keywords of rules.
pub(super) fn keywords() -> impl Iterator<Item = &'static str> {
    KEYWORDS.iter().map(|(keyword, ..)| *keyword)
}

/// Reads the rules of a schema whose values are of the given kind.
pub(super) fn parse(
    reader: &mut DefinitionReader<'_>,
    fields: &Fields<'_>,
    kind: &SchemaKind,
    nullable: bool,
    of: SchemaOwner,
) -> Option<Vec<SchemaRule>> {
    let (mut rules, mut is_of_type) = (Vec::new(), true);
    for (key, tree) in fields.entries {
        let Some(&(keyword, about, argument)) = KEYWORDS.iter().find(|(keyword, ..)| *keyword == key.name) else {
            continue;
        };
        let place = SourcePlace::new(reader.source, key.span.clone());
        if of == SchemaOwner::Reducer {
            reader
                .diagnostics
                .error(code::BAD_SCHEMA, place, format!("the schema keyword `{keyword}` is not supported here"))
                .label("would be ignored")
                .note("the values of a reducer are checked for their types only");
        } else if !fits(kind, about) {
            // One wrong type is one mistake, however many rules there are.
            if std::mem::take(&mut is_of_type) {
                let message = format!("`{keyword}` needs {} beside it", needed(about));
                reader.diagnostics.error(code::BAD_SCHEMA, place, message);
            }
        } else if let Some(value) = argument_of(reader, keyword, argument, tree) {
            rules.push(SchemaRule { keyword, value, span: tree.span.clone() });
        }
    }
    contradictions(reader, &rules);
    no_word(reader, &rules, kind);
    constant(reader, &rules, kind, nullable);
    is_of_type.then_some(rules)
}

fn fits(kind: &SchemaKind, about: About) -> bool {
    match kind {
        SchemaKind::Integer | SchemaKind::Number => matches!(about, About::Number | About::All),
        SchemaKind::String | SchemaKind::Enum(_) => matches!(about, About::Text | About::All),
        SchemaKind::List(_) => matches!(about, About::List | About::All),
        SchemaKind::Object(_) | SchemaKind::Map(_) => matches!(about, About::Object | About::All),
        SchemaKind::Any | SchemaKind::Null | SchemaKind::Boolean => about == About::All,
    }
}

fn needed(about: About) -> &'static str {
    match about {
        About::Number => "`type: integer` or `type: number`",
        About::Text => "`type: string`",
        About::List => "`type: array`",
        About::Object => "`type: object`",
        About::All => "`type`",
    }
}

fn argument_of(
    reader: &mut DefinitionReader<'_>,
    keyword: &str,
    argument: KeywordArgument,
    tree: &YamlTree,
) -> Option<Value> {
    let value = tree.to_value();
    let problem = match (argument, &value) {
        (KeywordArgument::Number, Value::Number(_))
        | (KeywordArgument::Flag, Value::Bool(_))
        | (KeywordArgument::Value, _) => None,
        (KeywordArgument::Positive, Value::Number(number)) if number.as_f64().is_some_and(|number| number > 0.0) => {
            None
        }
        (KeywordArgument::Count, Value::Number(number)) if number.is_u64() => None,
        (KeywordArgument::Format, Value::String(format)) if FORMATS.contains(&format.as_str()) => None,
        (KeywordArgument::Pattern, Value::String(pattern)) => {
            return reader.pattern(pattern, &tree.span).then_some(value);
        }
        (KeywordArgument::Format, Value::String(format)) => {
            let place = SourcePlace::new(reader.source, tree.span.clone());
            let known: Vec<String> = FORMATS.iter().map(|format| format!("`{format}`")).collect();
            reader
                .diagnostics
                .error(code::BAD_SCHEMA, place, format!("`{format}` is not a format"))
                .note(format!("the formats are {}", known.join(", ")))
                .suggest(format, FORMATS);
            return None;
        }
        (KeywordArgument::Number, _) => Some("a number"),
        (KeywordArgument::Positive, _) => Some("a number above 0"),
        (KeywordArgument::Count, _) => Some("a whole number from 0"),
        (KeywordArgument::Flag, _) => Some("`true` or `false`"),
        (KeywordArgument::Pattern, _) => Some("a pattern, a string"),
        (KeywordArgument::Format, _) => Some("a format's name"),
    };
    if let Some(needed) = problem {
        let place = SourcePlace::new(reader.source, tree.span.clone());
        let message = format!("`{keyword}` is {needed}, not {}", tree.describe());
        reader.diagnostics.error(code::BAD_SCHEMA, place, message);
        return None;
    }
    Some(value)
}

/// Reports bounds between which no value lies.
fn contradictions(reader: &mut DefinitionReader<'_>, rules: &[SchemaRule]) {
    let rule = |keyword: &str| rules.iter().find(|rule| rule.keyword == keyword);
    for (lower, upper, may_be_equal) in BOUNDS {
        let (Some(lower), Some(upper)) = (rule(lower), rule(upper)) else { continue };
        let operator = if may_be_equal { Operator::Lte } else { Operator::Lt };
        if !compares(operator, &lower.value, &upper.value) {
            let place = SourcePlace::new(reader.source, upper.span.clone());
            let message =
                format!("no value fits: `{}: {}` and `{}: {}`", lower.keyword, lower.value, upper.keyword, upper.value);
            reader.diagnostics.error(code::BAD_SCHEMA, place, message);
        }
    }
}

/// Reports rules that every word of an enum breaks.
fn no_word(reader: &mut DefinitionReader<'_>, rules: &[SchemaRule], kind: &SchemaKind) {
    let SchemaKind::Enum(words) = kind else { return };
    let breaks = |word: &String| rules.iter().find(|rule| !rule.holds(&Value::from(word.as_str())));
    let broken: Option<Vec<&SchemaRule>> = words.iter().map(breaks).collect();
    if let Some([rule, ..]) = broken.as_deref() {
        let place = SourcePlace::new(reader.source, rule.span.clone());
        let message = format!("no value fits: each word of `enum` breaks a rule, as `{}` breaks `{rule}`", words[0]);
        reader.diagnostics.error(code::BAD_SCHEMA, place, message);
    }
}

/// Reports a constant that is not of the schema's own type, or breaks the rules beside it.
fn constant(reader: &mut DefinitionReader<'_>, rules: &[SchemaRule], kind: &SchemaKind, nullable: bool) {
    let Some(constant) = rules.iter().find(|rule| rule.keyword == "const") else { return };
    let place = || SourcePlace::new(reader.source, constant.span.clone());
    if !super::schema::accepts_kind(kind, nullable, &constant.value) {
        let place = place();
        reader.diagnostics.error(code::BAD_SCHEMA, place, "`const` does not have the type of its schema");
    } else if let Some(broken) = rules.iter().find(|rule| !rule.holds(&constant.value)) {
        let (place, message) = (place(), format!("no value fits: `const` breaks `{broken}`"));
        reader.diagnostics.error(code::BAD_SCHEMA, place, message);
    }
}

fn compares(operator: Operator, left: &Value, right: &Value) -> bool {
    operator.holds(left.view(), right, |_| false).unwrap_or(false)
}

impl SchemaRule {
    /// Whether a value in the graph keeps the rule. Null always does: it counts as absent.
    ///
    /// A text's `format` is left to the runtime, which refuses to start a run whose default has another format.
    pub fn holds(&self, value: &Value) -> bool {
        let count = |count: usize, fits: fn(&u64, &u64) -> bool| {
            self.value.as_u64().is_none_or(|bound| fits(&(count as u64), &bound))
        };
        match (self.keyword, value) {
            (_, Value::Null) => true,
            ("minimum", Value::Number(_)) => compares(Operator::Gte, value, &self.value),
            ("maximum", Value::Number(_)) => compares(Operator::Lte, value, &self.value),
            ("exclusiveMinimum", Value::Number(_)) => compares(Operator::Gt, value, &self.value),
            ("exclusiveMaximum", Value::Number(_)) => compares(Operator::Lt, value, &self.value),
            ("multipleOf", Value::Number(_)) => is_multiple(value, &self.value),
            ("minLength", Value::String(text)) => count(text.chars().count(), u64::ge),
            ("maxLength", Value::String(text)) => count(text.chars().count(), u64::le),
            ("pattern", Value::String(text)) => self.finds(text),
            ("minItems", Value::Array(list)) => count(list.len(), u64::ge),
            ("maxItems", Value::Array(list)) => count(list.len(), u64::le),
            ("uniqueItems", Value::Array(list)) if self.value == Value::Bool(true) => is_unique(list),
            ("minProperties", Value::Object(map)) => count(fields(map), u64::ge),
            ("maxProperties", Value::Object(map)) => count(fields(map), u64::le),
            ("const", _) => equal(value.view(), self.value.view()),
            _ => true,
        }
    }

    fn finds(&self, text: &str) -> bool {
        let pattern = self.value.as_str().and_then(patterns::compiled);
        pattern.is_none_or(|pattern| pattern.is_match(text))
    }
}

impl std::fmt::Display for SchemaRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.keyword, self.value)
    }
}

/// Returns the number of fields; one that is null counts as absent.
fn fields(map: &Map<String, Value>) -> usize {
    map.values().filter(|field| !field.is_null()).count()
}

fn is_multiple(value: &Value, of: &Value) -> bool {
    let whole = |value: &Value| value.as_i64().map(i128::from).or_else(|| value.as_u64().map(i128::from));
    if let (Some(value), Some(of)) = (whole(value), whole(of)) {
        return of != 0 && value % of == 0;
    }
    let (Some(value), Some(of)) = (value.as_f64(), of.as_f64()) else { return true };
    let times = value / of;
    // 0.3 / 0.1 is not quite 3.
    (times - times.round()).abs() <= f64::EPSILON * times.abs().max(1.0)
}

fn is_unique(list: &[Value]) -> bool {
    let again = |at: usize, one: &Value| list[at + 1..].iter().any(|other| equal(one.view(), other.view()));
    !list.iter().enumerate().any(|(at, one)| again(at, one))
}

impl ValueSchema {
    /// Returns a rule of this schema and one of another, if no value can keep both.
    pub fn excludes<'s>(&'s self, other: &'s Self) -> Option<(&'s SchemaRule, &'s SchemaRule)> {
        let rule = |schema: &'s Self, keyword: &str| schema.rules.iter().find(|rule| rule.keyword == keyword);
        BOUNDS.iter().find_map(|&(lower, upper, may_be_equal)| {
            let operator = if may_be_equal { Operator::Lte } else { Operator::Lt };
            [(self, other), (other, self)].into_iter().find_map(|(one, two)| {
                let (low, high) = (rule(one, lower)?, rule(two, upper)?);
                let ours = if std::ptr::eq(one, self) { (low, high) } else { (high, low) };
                (!compares(operator, &low.value, &high.value)).then_some(ours)
            })
        })
    }

    /// Returns the rules of the schema and of its parts as a JSON Schema of its own; `None` if there are no rules.
    ///
    /// The keywords that make a type (`type`, `required`, `enum`) are not in it: values already have their types when it
    /// is checked.
    pub fn beyond_types(&self) -> Option<Value> {
        // A null field counts as absent, in a constant too.
        let rule = |rule: &SchemaRule| (rule.keyword.to_owned(), without_nulls(rule.value.clone()));
        let mut map: Map<String, Value> = self.rules.iter().map(rule).collect();
        match &self.kind {
            SchemaKind::Object(properties) => {
                let fields: Map<String, Value> = properties
                    .iter()
                    .filter_map(|property| Some((property.name.value.clone(), property.schema.beyond_types()?)))
                    .collect();
                if !fields.is_empty() {
                    map.insert("properties".into(), fields.into());
                }
            }
            SchemaKind::List(items) => map.extend(items.beyond_types().map(|items| ("items".into(), items))),
            SchemaKind::Map(values) => {
                map.extend(values.beyond_types().map(|values| ("additionalProperties".into(), values)));
            }
            _ => {}
        }
        (!map.is_empty()).then_some(Value::Object(map))
    }

    /// Returns the first rule that a value breaks, in this schema or in a nested one.
    pub fn broken_by(&self, value: &Value) -> Option<&SchemaRule> {
        let inside = match (&self.kind, value) {
            (SchemaKind::Object(properties), Value::Object(map)) => properties
                .iter()
                .find_map(|property| map.get(&property.name.value).and_then(|value| property.schema.broken_by(value))),
            (SchemaKind::List(items), Value::Array(list)) => list.iter().find_map(|value| items.broken_by(value)),
            (SchemaKind::Map(values), Value::Object(map)) => map.values().find_map(|value| values.broken_by(value)),
            _ => None,
        };
        inside.or_else(|| self.rules.iter().find(|rule| !rule.holds(value)))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_rule_holds_of_what_it_allows_and_of_nothing_else() {
        for (keyword, argument, fits, breaks) in [
            ("minimum", json!(3), json!(3), json!(2.9)),
            ("maximum", json!(3.5), json!(3), json!(4)),
            ("exclusiveMinimum", json!(3), json!(3.1), json!(3)),
            ("exclusiveMaximum", json!(3), json!(2), json!(3)),
            ("multipleOf", json!(5), json!(-10), json!(12)),
            ("multipleOf", json!(0.1), json!(0.3), json!(0.35)),
            ("minLength", json!(2), json!("äö"), json!("ä")),
            ("maxLength", json!(2), json!("äö"), json!("äöü")),
            ("pattern", json!("^a+$"), json!("aa"), json!("ab")),
            ("minItems", json!(1), json!([1]), json!([])),
            ("maxItems", json!(1), json!([1]), json!([1, 2])),
            ("uniqueItems", json!(true), json!([1, 2, "1"]), json!([1, 2, 1.0])),
            ("minProperties", json!(1), json!({"a": 1}), json!({"a": null})),
            ("maxProperties", json!(1), json!({"a": 1, "b": null}), json!({"a": 1, "b": 2})),
            ("const", json!({"a": 1}), json!({"a": 1.0}), json!({"a": 2})),
        ] {
            let (keyword, ..) = KEYWORDS.iter().find(|(known, ..)| *known == keyword).unwrap();
            let rule = SchemaRule { keyword, value: argument, span: 0..0 };
            assert!(rule.holds(&fits), "{rule} allows {fits}");
            assert!(!rule.holds(&breaks), "{rule} does not allow {breaks}");
            assert!(rule.holds(&Value::Null), "{rule} says nothing of what is absent");
        }
        let with = |keyword: &str, value: Value| {
            let (keyword, ..) = KEYWORDS.iter().find(|(known, ..)| *known == keyword).unwrap();
            let rules = vec![SchemaRule { keyword, value, span: 0..0 }];
            ValueSchema { rules, ..ValueSchema::empty_object(0..0) }
        };
        for (one, two, excludes) in [
            (with("minLength", json!(3)), with("maxLength", json!(2)), true),
            (with("minLength", json!(2)), with("maxLength", json!(2)), false),
            (with("exclusiveMinimum", json!(2)), with("maximum", json!(2)), true),
            (with("minimum", json!(2)), with("maxLength", json!(1)), false),
        ] {
            assert_eq!(one.excludes(&two).map(|(own, _)| own.keyword), excludes.then_some(one.rules[0].keyword));
            assert_eq!(two.excludes(&one).map(|(own, _)| own.keyword), excludes.then_some(two.rules[0].keyword));
        }
        let off = SchemaRule { keyword: "uniqueItems", value: json!(false), span: 0..0 };
        assert!(off.holds(&json!([1, 1])));
    }
}

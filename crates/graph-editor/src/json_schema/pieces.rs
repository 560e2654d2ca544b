//! Building blocks of schemas.

use graph_model::program::{ItemType, Verb};
use graph_model::value::Value;
use serde_json::{Map, json};

use super::patterns;
use crate::texts;

/// Adds a description, as plain text and as Markdown.
pub(super) fn described(mut schema: Value, text: &str) -> Value {
    schema["description"] = json!(text.replace('`', ""));
    schema["markdownDescription"] = json!(text);
    schema
}

/// Adds the description of a field.
pub(super) fn documented(schema: Value, place: &str, field: &str) -> Value {
    match texts::of(place, field) {
        Some(text) => described(schema, text),
        None => schema,
    }
}

/// Allows null, as for a field without a value.
pub(super) fn nullable(mut schema: Value) -> Value {
    if schema == json!({}) || schema == json!(true) {
        return schema;
    }
    let is_simple = schema.get("enum").is_none() && schema.get("const").is_none() && schema.get("anyOf").is_none();
    match schema.get_mut("type") {
        Some(Value::Array(names)) if is_simple => {
            if !names.contains(&json!("null")) {
                names.push(json!("null"));
            }
            schema
        }
        Some(name) if is_simple => {
            *name = json!([name.clone(), "null"]);
            schema
        }
        _ => match schema.get_mut("anyOf").and_then(Value::as_array_mut) {
            Some(ways) => {
                ways.push(json!({ "type": "null" }));
                schema
            }
            None => json!({ "anyOf": [schema, { "type": "null" }] }),
        },
    }
}

/// Returns the schema of a string that matches a pattern.
pub(super) fn text(pattern: &str, problem: &str) -> Value {
    json!({ "type": "string", "pattern": pattern, "patternErrorMessage": problem })
}

pub(super) fn reference(definition: &str) -> Value {
    json!({ "$ref": format!("#/definitions/{definition}") })
}

/// Returns the schema of one of these strings, or of another value of the kind.
pub(super) fn offering(texts: &[String], kind: Value) -> Value {
    if texts.is_empty() { kind } else { json!({ "anyOf": [{ "enum": texts }, kind] }) }
}

/// Returns the schema of an object with these fields and no others.
pub(super) fn only(fields: &[&str], schema: impl Fn(&str) -> Value) -> Value {
    let properties: Map<String, Value> = fields.iter().map(|field| ((*field).to_owned(), schema(field))).collect();
    json!({ "type": "object", "properties": properties, "additionalProperties": false })
}

pub(super) fn integer(least: i64, most: i64) -> Value {
    json!({ "type": "integer", "minimum": least, "maximum": most })
}

pub(super) fn duration() -> Value {
    json!({
        "anyOf": [
            { "type": "number", "minimum": 0.001 },
            text(&graph_model::duration::pattern(), "a duration is a text as `250ms`, `30s`, `2m` or `1h30m`"),
        ],
    })
}

/// Returns the schema of an amount of money.
pub(super) fn spend() -> Value {
    text(patterns::SPEND, "an amount of US dollars with at most six decimals, as `0.10 USD`")
}

/// Returns the schema of environment variables: a list of names, or one name (R281).
pub(super) fn env() -> Value {
    let name = text(patterns::VARIABLE, "an environment variable's name has no `=` in it");
    json!({ "anyOf": [name, { "type": "array", "items": name }, { "type": "null" }] })
}

/// Returns the schema of any value. It lists all types, to differ from the schema of a forgotten field.
pub(super) fn anything() -> Value {
    json!({ "type": ["string", "number", "boolean", "null", "array", "object"] })
}

pub(super) fn word<T: PartialEq>(words: &[(&str, T)], default: T) -> Value {
    let names: Vec<&str> = words.iter().map(|(name, _)| *name).collect();
    let default = words.iter().find(|(_, value)| *value == default).map(|(name, _)| *name);
    with_default(json!({ "enum": names }), json!(default))
}

pub(super) fn with_default(mut schema: Value, default: Value) -> Value {
    schema["default"] = default;
    schema
}

pub(super) fn merged(mut one: Value, other: Value) -> Value {
    if let (Value::Object(one), Value::Object(other)) = (&mut one, other) {
        one.extend(other);
    }
    one
}

pub(super) fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// Returns the schema of an action that executes this tool.
pub(super) fn executes(id: &str) -> Value {
    json!({
        "properties": {
            "item_id": { "const": id },
            "primary": { "enum": [Verb::Execute.name(), null] },
            "item_type": { "enum": [ItemType::Tool.name(), null] },
        },
        "required": ["item_id"],
    })
}

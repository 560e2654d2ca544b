//! Random schemas, values that fit them, and an independent check of whether a value fits, which shares no code with
//! the compiler.

use graph_runtime::{Map, Value};
use serde_json::json;

use super::dice::Dice;

/// The names of fields; there are few, so that types coincide.
const NAMES: [&str; 3] = ["a", "b", "c"];
const WORDS: [&str; 3] = ["red", "blue", "green"];

/// Makes a schema; if `is_typed`, each part of it has a type.
pub(crate) fn schema(dice: &mut Dice, depth: u32, is_typed: bool) -> Value {
    let mut schema = match dice.below(if depth == 0 { 5 } else { 10 }) {
        0 => json!({"type": "boolean"}),
        1 => json!({"type": "integer"}),
        2 => json!({"type": "number"}),
        3 => return words(dice),
        4 if !is_typed => return json!({}),
        4 => json!({"type": "string"}),
        5 => json!({"type": "string"}),
        6 | 7 => json!({"type": "array", "items": schema(dice, depth - 1, is_typed)}),
        8 => json!({"type": "object", "additionalProperties": schema(dice, depth - 1, is_typed)}),
        _ => object(dice, depth - 1, is_typed),
    };
    if dice.one_in(5) {
        schema["type"] = json!([schema["type"], "null"]);
    }
    schema
}

fn words(dice: &mut Dice) -> Value {
    let mut words: Vec<Value> = WORDS.iter().filter(|_| dice.one_in(2)).map(|&word| word.into()).collect();
    if words.is_empty() {
        words.push("red".into());
    }
    if dice.one_in(6) {
        words.push(Value::Null);
    }
    json!({ "enum": words })
}

/// Makes the schema of an object.
pub(crate) fn object(dice: &mut Dice, depth: u32, is_typed: bool) -> Value {
    let (mut properties, mut required) = (Map::new(), Vec::new());
    for name in NAMES {
        if dice.one_in(4) {
            continue;
        }
        let mut one = schema(dice, depth, is_typed);
        match dice.below(4) {
            0 => {}
            1 => {
                let default = value(dice, &one);
                one["default"] = default;
            }
            _ => required.push(name),
        }
        properties.insert(name.to_owned(), one);
    }
    if required.is_empty() {
        json!({"type": "object", "properties": properties})
    } else {
        json!({"type": "object", "properties": properties, "required": required})
    }
}

/// The kind of value that a schema asks for, without null; `None` if it may be any.
pub(crate) fn kind(schema: &Value) -> Option<&str> {
    if schema.get("enum").is_some() {
        return Some("enum");
    }
    match &schema["type"] {
        Value::String(name) => Some(name),
        Value::Array(names) => names.iter().filter_map(Value::as_str).find(|name| *name != "null"),
        _ => None,
    }
}

/// Whether a schema allows null.
pub(crate) fn takes_null(schema: &Value) -> bool {
    let lists_null = |list: &Value, null: &Value| list.as_array().is_some_and(|list| list.contains(null));
    kind(schema).is_none() || lists_null(&schema["type"], &json!("null")) || lists_null(&schema["enum"], &Value::Null)
}

fn is_required(schema: &Value, name: &str) -> bool {
    schema["required"].as_array().is_some_and(|required| required.iter().any(|one| one == name))
}

/// Makes a value that fits a schema.
pub(crate) fn value(dice: &mut Dice, schema: &Value) -> Value {
    if takes_null(schema) && dice.one_in(3) {
        return Value::Null;
    }
    match kind(schema) {
        Some("boolean") => json!(dice.one_in(2)),
        Some("integer") => json!(dice.below(7) as i64 - 2),
        Some("number") if dice.one_in(2) => json!(dice.below(9) as f64 / 2.0),
        Some("number") => json!(dice.below(5)),
        Some("string") => json!(["", "x", "red", "12"][dice.below(4)]),
        Some("enum") => {
            let words: Vec<&Value> =
                schema["enum"].as_array().into_iter().flatten().filter(|word| !word.is_null()).collect();
            words[dice.below(words.len())].clone()
        }
        Some("array") => (0..dice.below(3)).map(|_| value(dice, &schema["items"])).collect(),
        Some("object") => Value::Object(fields(dice, schema)),
        _ => any(dice, 2),
    }
}

fn fields(dice: &mut Dice, schema: &Value) -> Map<String, Value> {
    let mut map = Map::new();
    let Some(properties) = schema["properties"].as_object() else {
        let values = &schema["additionalProperties"];
        for name in NAMES {
            if dice.one_in(2) {
                map.insert(name.into(), value(dice, values));
            }
        }
        return map;
    };
    for (name, property) in properties {
        let is_required = is_required(schema, name);
        if !is_required && dice.one_in(2) {
            continue;
        }
        let mut one = value(dice, property);
        while is_required && kind(property).is_none() && one.is_null() {
            one = value(dice, property);
        }
        // A field that is null and a field that is missing are equivalent.
        map.insert(name.clone(), one);
    }
    map
}

/// Makes any value.
pub(crate) fn any(dice: &mut Dice, depth: u32) -> Value {
    match dice.below(if depth == 0 { 5 } else { 7 }) {
        0 => Value::Null,
        1 => json!(dice.one_in(2)),
        2 => json!(dice.below(5)),
        3 => json!(0.5),
        4 => json!(["", "x", "red", "t/c0"][dice.below(4)]),
        5 => (0..dice.below(3)).map(|_| any(dice, depth - 1)).collect(),
        _ => NAMES.iter().take(dice.below(3)).map(|&name| (name.to_owned(), any(dice, depth - 1))).collect(),
    }
}

/// Returns the first place where a value does not fit a schema; `None` if it fits. A field that is null counts as
/// missing.
pub(crate) fn misfit(schema: &Value, value: &Value) -> Option<String> {
    let inside = |place: &str, why: String| format!("{place}: {why}");
    if value.is_null() {
        return (!takes_null(schema)).then(|| format!("null for {schema}"));
    }
    let fits = match (kind(schema), value) {
        (None, _) => true,
        (Some("boolean"), value) => value.is_boolean(),
        (Some("integer"), value) => value.is_i64() || value.is_u64(),
        (Some("number"), value) => value.is_number(),
        (Some("string"), value) => value.is_string(),
        (Some("enum"), value) => schema["enum"].as_array().is_some_and(|words| words.contains(value)),
        (Some("array"), Value::Array(list)) => {
            let wrong = |(at, value): (usize, &Value)| Some(inside(&at.to_string(), misfit(&schema["items"], value)?));
            return list.iter().enumerate().find_map(wrong);
        }
        (Some("object"), Value::Object(map)) => match schema["properties"].as_object() {
            None => {
                let mut given = map.iter().filter(|(_, value)| !value.is_null());
                let wrong = |(name, value): (&String, &Value)| {
                    Some(inside(name, misfit(&schema["additionalProperties"], value)?))
                };
                return given.find_map(wrong);
            }
            Some(properties) => {
                let wrong = |(name, property): (&String, &Value)| match map.get(name).filter(|value| !value.is_null()) {
                    Some(value) => Some(inside(name, misfit(property, value)?)),
                    // The default was applied before the tool was called.
                    None if property.get("default").is_some() => (!property["default"].is_null()
                        && !takes_null(property))
                    .then(|| inside(name, "the default is missing".into())),
                    None => {
                        let allows_null = kind(property).is_some() && takes_null(property);
                        (is_required(schema, name) && !allows_null).then(|| inside(name, "missing".into()))
                    }
                };
                return properties.iter().find_map(wrong);
            }
        },
        _ => false,
    };
    (!fits).then(|| format!("{value} for {schema}"))
}

#[test]
fn the_judge_knows_what_fits() {
    let pair = json!({"type": "object", "properties": {
        "a": {"type": "string"}, "b": {}, "c": {"type": ["integer", "null"]},
    }, "required": ["a", "b", "c"]});
    for (schema, value, fits) in [
        (json!({"type": "integer"}), json!(1), true),
        (json!({"type": "integer"}), json!(1.5), false),
        (json!({"type": "number"}), json!(1), true),
        (json!({"type": "string"}), json!(null), false),
        (json!({"type": ["string", "null"]}), json!(null), true),
        (json!({"enum": ["red", null]}), json!(null), true),
        (json!({"enum": ["red"]}), json!("blue"), false),
        (json!({"type": "array", "items": {"type": "string"}}), json!(["x", null]), false),
        (json!({"type": "object", "additionalProperties": {"type": "string"}}), json!({"a": 1}), false),
        (json!({}), json!([null]), true),
        (pair.clone(), json!({"a": "x", "b": 0}), true),
        (pair.clone(), json!({"a": "x", "b": null}), false),
        (pair.clone(), json!({"b": 0}), false),
        (pair, json!({"a": 1, "b": 0}), false),
    ] {
        assert_eq!(misfit(&schema, &value).is_none(), fits, "{value} for {schema}");
    }
}

//! The part of JSON Schema that describes inputs.

use graph_compiler::definition::Sink;
use graph_compiler::vocabulary::{
    About, FORMATS, GUARDED, KeywordArgument, NEEDS, RULES, SCHEMA, SCHEMA_TYPES, SECRET, SINK,
};
use graph_model::value::Value;
use serde_json::{Map, json};

use super::pieces::{anything, documented, nullable, reference};

/// Returns the schema of a schema for any value.
pub(super) fn schema() -> Value {
    let own = || reference("schema");
    let mut properties: Map<String, Value> = SCHEMA
        .iter()
        .map(|keyword| {
            let schema = match *keyword {
                "type" => types(),
                "properties" => nullable(json!({ "type": "object", "additionalProperties": own() })),
                "required" => nullable(json!({ "type": "array", "items": { "type": "string" } })),
                "items" => nullable(own()),
                "additionalProperties" => json!({ "anyOf": [{ "type": ["boolean", "null"] }, own()] }),
                "enum" => nullable(json!({
                    "type": "array",
                    "items": { "type": ["string", "null"] },
                    "contains": { "type": "string" },
                })),
                "description" => nullable(json!({ "type": "string" })),
                // Any value may be a default; only the compiler checks whether it fits.
                _ => anything(),
            };
            ((*keyword).to_owned(), documented(schema, "schema", keyword))
        })
        .collect();
    properties.extend(RULES.iter().map(|(keyword, _, argument)| ((*keyword).to_owned(), of_argument(*argument))));
    let sinks = json!({ "enum": Sink::TABLE.map(|(_, name)| name) });
    properties.insert(SINK.to_owned(), documented(sinks, "schema", SINK));
    for mark in [SECRET, GUARDED] {
        properties.insert(mark.to_owned(), documented(json!({ "type": "boolean" }), "schema", mark));
    }
    let beside = NEEDS.iter().map(|(keyword, of)| ((*keyword).to_owned(), needs(keyword, of)));
    let rules = RULES.iter().filter_map(|(keyword, about, _)| Some(((*keyword).to_owned(), beside_rule(*about)?)));
    let of_texts = json!({ "anyOf": [of_type(&["string"]), { "not": { "required": ["type"] } }] });
    let dependencies: Map<String, Value> = beside
        .chain(rules)
        .chain([("enum".to_owned(), of_texts), (SINK.to_owned(), of_type(&["string", "array"]))])
        .collect();
    // The defaults and constants of types that may be null are left to the compiler.
    let mut rules: Vec<Value> = SCHEMA_TYPES
        .iter()
        .map(|name| {
            let values = json!({ "type": name });
            json!({
                "if": { "properties": { "type": { "const": name } }, "required": ["type"], "not": { "required": ["enum"] } },
                "then": { "properties": { "default": values, "const": values } },
            })
        })
        .collect();
    // Without `properties`, required fields would never be checked.
    rules.push(json!({
        "if": { "properties": { "required": { "type": "array", "minItems": 1 } }, "required": ["required"] },
        "then": { "required": ["properties"] },
    }));
    // A secret must not have a default in the file.
    rules.push(json!({
        "if": { "properties": { SECRET: { "const": true } }, "required": [SECRET] },
        "then": { "properties": { "default": { "type": "null" } } },
    }));
    json!({
        "type": "object",
        "allOf": rules,
        "properties": properties,
        "patternProperties": { "^x-": true },
        "additionalProperties": false,
        "dependencies": dependencies,
    })
}

/// Returns the schema of a schema for inputs, which are an object.
pub(super) fn of_object() -> Value {
    json!({
        "type": "object",
        "allOf": [reference("schema"), { "properties": { "type": is_type("object") }, "not": { "required": ["enum"] } }],
    })
}

fn types() -> Value {
    let names = json!({ "enum": SCHEMA_TYPES });
    // Null without quotes means the type `null`.
    let or_null: Vec<Value> = SCHEMA_TYPES.map(Value::from).into_iter().chain([Value::Null]).collect();
    // One type, or one and `null`.
    let list = json!({
        "type": "array",
        "items": { "enum": or_null },
        "minItems": 1,
        "maxItems": 2,
        "if": { "minItems": 2 },
        "then": { "contains": { "enum": ["null", null] } },
    });
    json!({ "anyOf": [names, list, { "type": "null" }] })
}

/// Returns the schema of a `type` that is this one, with or without null.
fn is_type(name: &str) -> Value {
    json!({ "anyOf": [{ "const": name }, { "type": "array", "contains": { "const": name } }, { "type": "null" }] })
}

fn of_type(names: &[&str]) -> Value {
    let ways: Vec<Value> = names
        .iter()
        .flat_map(|name| [json!({ "const": name }), json!({ "type": "array", "contains": { "const": name } })])
        .collect();
    json!({ "properties": { "type": { "anyOf": ways } }, "required": ["type"] })
}

/// Returns a schema of the keywords that must accompany one that applies to values of a single type.
fn needs(keyword: &str, of: &str) -> Value {
    match keyword {
        // `properties` without a type means an object.
        "properties" => json!({ "properties": { "type": is_type(of) } }),
        "required" => json!({ "anyOf": [of_type(&[of]), { "required": ["properties"] }] }),
        "additionalProperties" => json!({
            "anyOf": [of_type(&[of]), { "required": ["properties"] }],
            // The schema either names the fields, or says what they hold.
            "if": { "required": ["properties"] },
            "then": { "properties": { "additionalProperties": { "enum": [false, null] } } },
        }),
        _ => of_type(&[of]),
    }
}

/// Returns a schema of the keywords that must accompany a rule, if there are any.
fn beside_rule(about: About) -> Option<Value> {
    match about {
        About::Number => Some(of_type(&["integer", "number"])),
        About::Text => Some(json!({ "anyOf": [of_type(&["string"]), { "required": ["enum"] }] })),
        About::List => Some(of_type(&["array"])),
        About::Object => Some(json!({ "anyOf": [of_type(&["object"]), { "required": ["properties"] }] })),
        About::All => None,
    }
}

fn of_argument(argument: KeywordArgument) -> Value {
    match argument {
        KeywordArgument::Number => json!({ "type": "number" }),
        KeywordArgument::Positive => json!({ "type": "number", "exclusiveMinimum": 0 }),
        KeywordArgument::Count => json!({ "type": "integer", "minimum": 0 }),
        KeywordArgument::Flag => json!({ "type": "boolean" }),
        KeywordArgument::Pattern => json!({ "type": "string" }),
        KeywordArgument::Format => json!({ "enum": FORMATS }),
        KeywordArgument::Value => anything(),
    }
}

//! JSON Schemas of types, as clients read them.

use graph_compiler::types::{Type, TypeKind, TypedField};
use graph_runtime::dynamic::Interpreted;
use graph_runtime::{Map, Value};
use serde_json::json;

/// Returns the schema of a graph's inputs: their types, and the rules beyond them.
pub(crate) fn inputs(graph: &Interpreted) -> Map<String, Value> {
    let mut schema = match &graph.interface().inputs {
        Some(fields) => {
            let mut schema = object(fields, SchemaSide::Input);
            schema["additionalProperties"] = Value::Bool(false);
            schema
        }
        None => json!({ "type": "object" }),
    };
    if let Some(rules) = graph.input_rules() {
        merge(&mut schema, rules);
    }
    match schema {
        Value::Object(schema) => schema,
        _ => Map::new(),
    }
}

/// Returns the schema of the results of a graph's tool.
pub(crate) fn result(graph: &Interpreted) -> Map<String, Value> {
    let mut schema = Map::new();
    schema.insert("type".to_owned(), "object".into());
    schema.insert(
        "properties".to_owned(),
        json!({
            "status": {
                "enum": ["completed", "completed_with_errors", "waiting"],
                "description": "How the run ended. A run that waits has no output yet.",
            },
            "run": { "type": "string", "description": "The id of the run." },
            "output": of(&graph.interface().output, SchemaSide::Output),
            "waits": { "type": "string", "description": "What the run waits for, and how it continues." },
        }),
    );
    schema.insert("required".to_owned(), json!(["status", "run"]));
    schema
}

/// Where a value is: an input may be left out where it may be null.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum SchemaSide {
    Input,
    Output,
}

fn object(fields: &[TypedField], side: SchemaSide) -> Value {
    let field = |field: &TypedField| {
        let mut ty = field.ty.clone();
        let default = field.default.as_ref().filter(|default| !default.is_null());
        // An input without a default may be left out instead. With one, null says something else than nothing.
        if side == SchemaSide::Input && default.is_none() {
            ty.nullable &= matches!(ty.kind, TypeKind::Any | TypeKind::Never);
        }
        let mut schema = of(&ty, side);
        if let Some(default) = default.filter(|_| !field.ty.has_secret()) {
            schema["default"] = default.clone();
        }
        if let Some(description) = &field.description {
            schema["description"] = description.as_str().into();
        }
        (field.name.clone(), schema)
    };
    let properties: Map<String, Value> = fields.iter().map(field).collect();
    let is_required = |field: &&TypedField| match side {
        SchemaSide::Input => field.is_required(),
        SchemaSide::Output => !field.ty.nullable,
    };
    let required: Vec<&str> = fields.iter().filter(is_required).map(|field| field.name.as_str()).collect();
    let mut schema = json!({ "type": "object", "properties": properties });
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

/// Returns the schema of the values of a type.
pub(crate) fn of(ty: &Type, side: SchemaSide) -> Value {
    let mut schema = match &ty.kind {
        TypeKind::Any => return json!({}),
        TypeKind::Never => return if ty.nullable { json!({ "type": "null" }) } else { json!({}) },
        TypeKind::Boolean => json!({ "type": "boolean" }),
        TypeKind::Integer => json!({ "type": "integer" }),
        TypeKind::Number => json!({ "type": "number" }),
        TypeKind::String => json!({ "type": "string" }),
        TypeKind::Enum(texts) => json!({ "type": "string", "enum": texts }),
        TypeKind::List(items) => json!({ "type": "array", "items": of(items, side) }),
        TypeKind::Map(values) => json!({ "type": "object", "additionalProperties": of(values, side) }),
        TypeKind::Object(fields) => object(fields, side),
    };
    if ty.nullable {
        let name = schema["type"].take();
        schema["type"] = json!([name, "null"]);
        if let Some(texts) = schema.get_mut("enum").and_then(Value::as_array_mut) {
            texts.push(Value::Null);
        }
    }
    schema
}

/// Adds the keywords of a schema to those of another one with the same shape, whose own keywords stay.
fn merge(schema: &mut Value, rules: &Value) {
    let (Value::Object(schema), Value::Object(rules)) = (schema, rules) else { return };
    for (keyword, rule) in rules {
        match schema.get_mut(keyword) {
            Some(known) => merge(known, rule),
            None => drop(schema.insert(keyword.clone(), rule.clone())),
        }
    }
}

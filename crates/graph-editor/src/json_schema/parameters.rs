//! The parameters of a tool as a schema for `params`: values, or templates that yield them.

use graph_compiler::types::{Type, TypeKind, TypedField};
use graph_model::value::Value;
use serde_json::json;

use super::patterns::WHOLE;
use super::pieces::{described, nullable};

/// Returns the schema of the object that holds these parameters, or that has these fields.
pub(super) fn object(fields: &[TypedField]) -> Value {
    let properties: serde_json::Map<String, Value> =
        fields.iter().map(|field| (field.name.clone(), parameter(field))).collect();
    let required: Vec<&str> =
        fields.iter().filter(|field| field.is_required()).map(|field| field.name.as_str()).collect();
    let mut schema = json!({ "type": "object", "properties": properties, "additionalProperties": false });
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

fn parameter(field: &TypedField) -> Value {
    let mut schema = of(&field.ty);
    // A null is left out of the call, so that the default applies (R74).
    if field.default.is_some() {
        schema = nullable(schema);
    }
    // The default of a secret is not shown in a schema either.
    let shown = |default: &&Value| !default.is_null() && !field.ty.has_secret();
    if let Some(default) = field.default.as_ref().filter(shown) {
        schema["default"] = default.clone();
    }
    match &field.description {
        Some(description) => described(schema, description),
        None => schema,
    }
}

/// Returns the schema of the text that may be written for a value of the type.
fn of(ty: &Type) -> Value {
    let template = |mut schema: Value, name: &str| {
        schema["pattern"] = json!(WHOLE);
        schema["patternErrorMessage"] =
            json!(format!("this is {ty}, or a template that is one `${{…}}` and yields it"));
        schema["type"] = json!([name, "string"]);
        schema
    };
    let schema = match &ty.kind {
        TypeKind::Any => return json!({}),
        TypeKind::Never => json!({ "type": "string", "pattern": WHOLE }),
        TypeKind::Boolean => template(json!({}), "boolean"),
        TypeKind::Integer => template(json!({}), "integer"),
        TypeKind::Number => template(json!({}), "number"),
        TypeKind::String => json!({ "type": "string" }),
        TypeKind::Enum(texts) => json!({ "anyOf": [{ "enum": texts }, { "type": "string", "pattern": WHOLE }] }),
        TypeKind::List(items) => template(json!({ "items": of(items) }), "array"),
        TypeKind::Map(values) => template(json!({ "additionalProperties": of(values) }), "object"),
        TypeKind::Object(fields) => template(object(fields), "object"),
    };
    if ty.nullable { nullable(schema) } else { schema }
}

//! Conforming: converts a JSON value to what it would be as a value of the compiled graph's Rust type.
//!
//! A compiled graph reads JSON into structs, enums and numbers, and shows it again from there. This changes a value: a field
//! that was not given gets its default, a field that is not declared is dropped, and `3.0` becomes `3` where an integer is
//! wanted. This module makes the same changes, with the same errors.

use graph_compiler::types::{Type, TypeKind, TypedField};
use graph_model::field;
use graph_model::number::Number;
use graph_model::value::{AsView, FromValue, Map, Mismatch, Value, within_levels};

/// Returns `value` as a value of type `ty`.
///
/// # Errors
///
/// If it is not such a value; the error is that of [`FromValue`] for the Rust type.
pub fn conform(ty: &Type, value: Value) -> Result<Value, Mismatch> {
    let value = if ty.kind == TypeKind::Any && !ty.nullable { field::needed(value)? } else { value };
    let conformed = conform_shown(ty, value);
    if ty.secret { conformed.map_err(Mismatch::hiding) } else { conformed }
}

/// Conforms a value like [`conform`], with errors that show the value that was found.
fn conform_shown(ty: &Type, value: Value) -> Result<Value, Mismatch> {
    match &ty.kind {
        TypeKind::Any | TypeKind::Never => within_levels(value),
        _ if ty.nullable && value.is_null() => Ok(Value::Null),
        TypeKind::Boolean => bool::from_value(value).map(Value::from),
        TypeKind::Integer => i64::from_value(value).map(Value::from),
        TypeKind::Number => Number::from_value(value).map(|number| number.view().to_value()),
        TypeKind::String => String::from_value(value).map(Value::from),
        TypeKind::Enum(texts) => match value.as_str() {
            Some(text) if texts.iter().any(|one| one == text) => Ok(value),
            _ => {
                let texts: Vec<String> = texts.iter().map(|text| format!(" `{text}`")).collect();
                Err(Mismatch::new(format!("one of{}", texts.join("")), value.view()))
            }
        },
        TypeKind::List(items) => {
            let Value::Array(list) = value else { return Err(Mismatch::new("a list", value.view())) };
            let element = |(index, value)| conform(items, value).map_err(|error| error.inside(format!("{index}")));
            list.into_iter().enumerate().map(element).collect()
        }
        TypeKind::Map(values) => {
            let Value::Object(map) = value else { return Err(Mismatch::new("an object", value.view())) };
            if values.kind == TypeKind::Any && !values.secret {
                return within_levels(Value::Object(map));
            }
            let mut conformed = Map::new();
            for (name, value) in map {
                let value = conform(values, value).map_err(|error| error.inside(name.clone()))?;
                if field::is_written(value.is_null(), || None) {
                    conformed.insert(name, value);
                }
            }
            Ok(Value::Object(conformed))
        }
        TypeKind::Object(fields) => object(fields, value),
    }
}

/// Returns `value` as an object with `fields`, as a struct reads and shows it.
///
/// # Errors
///
/// If it is no object, or a field does not fit.
pub fn object(fields: &[TypedField], value: Value) -> Result<Value, Mismatch> {
    let mut map = field::fields(value)?;
    let mut conformed = Map::new();
    for TypedField { name, ty, default, .. } in fields {
        // The type says whether a field of any type is needed.
        let value = field::take(&mut map, name, || default.clone(), false).and_then(|value| conform(ty, value));
        let value = value.map_err(|error| error.inside(name.clone()))?;
        if field::is_written(value.is_null(), || default.clone()) {
            conformed.insert(name.clone(), value);
        }
    }
    Ok(Value::Object(conformed))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The struct that a compiled graph would have, with every kind of field.
    #[derive(Debug, PartialEq)]
    struct Everything {
        text: String,
        count: i64,
        ratio: Number,
        maybe: Option<bool>,
        list: Vec<Number>,
        any: Value,
        some: Value,
        certain: Option<bool>,
        untyped: Value,
    }

    graph_engine::__object!(Everything {
        0 text: "text" = "\"default\"",
        1 count: "count",
        2 ratio: "ratio",
        3 maybe: "maybe",
        4 list: "list" = "[]",
        5 any: "any",
        6 some: "some",
        7 certain: "certain" = "true",
        8 untyped: "untyped" = "7",
    } needs [6]);

    fn fields() -> Vec<TypedField> {
        let field = |name: &str, ty: Type, default: Option<Value>| TypedField {
            name: name.into(),
            ty,
            default,
            description: None,
            rules: Vec::new(),
        };
        vec![
            field("text", Type::of(TypeKind::String), Some(json!("default"))),
            field("count", Type::of(TypeKind::Integer), None),
            field("ratio", Type::of(TypeKind::Number), None),
            field("maybe", Type::of(TypeKind::Boolean).or_null(), None),
            field("list", Type::of(TypeKind::List(Box::new(Type::of(TypeKind::Number)))), Some(json!([]))),
            field("any", Type::any(), None),
            field("some", Type { nullable: false, ..Type::any() }, None),
            field("certain", Type::of(TypeKind::Boolean).or_null(), Some(json!(true))),
            field("untyped", Type::any(), Some(json!(7))),
        ]
    }

    #[test]
    fn a_value_conforms_as_it_goes_through_a_struct() {
        for value in [
            json!({"count": 1, "ratio": 2}),
            json!({"count": 1, "ratio": 2, "some": [null]}),
            json!({"count": 1, "ratio": 2, "some": null}),
            json!({"some": 3, "count": 1.0, "ratio": 2.5, "maybe": null, "other": 1, "list": [1, 2.5]}),
            json!({"some": false, "text": null, "count": 1, "ratio": 1}),
            json!({"text": "x", "count": "1", "ratio": 1}),
            json!({"count": 1, "ratio": 1, "some": 1, "maybe": null, "certain": null, "any": null}),
            json!({"count": 1, "ratio": 1, "some": 1, "certain": false}),
            json!({"count": 1.5, "ratio": 1}),
            json!({"count": 1, "ratio": 1, "list": [1, "x"]}),
            json!({"count": 1, "ratio": 1, "list": null}),
            json!({"count": 1, "ratio": 1, "maybe": "yes"}),
            json!({"count": 9_007_199_254_740_993_i64, "ratio": 9_007_199_254_740_993_i64, "any": {"deep": [null]}, "some": ""}),
            json!({"count": u64::MAX, "ratio": u64::MAX}),
            json!(null),
            json!([]),
        ] {
            let typed = Everything::from_value(value.clone()).map(|typed| typed.view().to_value());
            assert_eq!(object(&fields(), value.clone()), typed, "{value}");
        }
    }
}

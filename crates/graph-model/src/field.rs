//! The value of a field of an object that is absent, null or given: the one decision about defaults and required fields.
//!
//! The table is in `docs/format.md`, "Absent, null and default". Structs of compiled graphs and values of interpreted ones are
//! read and written by these functions, so a value that was written into a journal, a cache or another graph is read back as it
//! was:
//!
//! - A default replaces a field that is absent, and not one that is null. So a null field is left out of a written object only
//!   if it has no default: then absent means null too.
//! - Whether a field accepts null is decided by its type, after the default was applied.
//! - Null and absent are the same in the parameters of calls: their nulls are [dropped](without_nulls) before they are read.

use crate::value::{AsView, Map, Mismatch, Value, View};

/// Returns the fields of an object that is read. Null is no object.
///
/// # Errors
///
/// If the value is no object.
pub fn fields(value: Value) -> Result<Map<String, Value>, Mismatch> {
    match value {
        Value::Object(map) => Ok(map),
        other => Err(Mismatch::new("an object", other.view())),
    }
}

/// Takes the value of a field out of an object that is read. `is_needed` says that the field takes any value but null, which no
/// type expresses. Whether another field takes null is left to its type.
///
/// # Errors
///
/// If the field is needed, and absent or null.
pub fn take(
    map: &mut Map<String, Value>,
    name: &str,
    default: impl FnOnce() -> Option<Value>,
    is_needed: bool,
) -> Result<Value, Mismatch> {
    let value = map.get_mut(name).map_or_else(|| default().unwrap_or_default(), Value::take);
    if is_needed { needed(value) } else { Ok(value) }
}

/// Returns `value` for a place that takes any value but null.
///
/// # Errors
///
/// If it is null.
pub fn needed(value: Value) -> Result<Value, Mismatch> {
    if value.is_null() { Err(Mismatch::new("a value", View::Null)) } else { Ok(value) }
}

/// Whether an object that is written has a field, which may be null.
#[inline]
pub fn is_written(is_null: bool, default: impl FnOnce() -> Option<Value>) -> bool {
    !is_null || default().is_some_and(|default| !default.is_null())
}

/// Drops the fields of objects that are null, at any depth; lists keep their nulls (R74).
#[must_use]
pub fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(mut map) => {
            map.retain(|_, field| !field.is_null());
            map.values_mut().for_each(|field| *field = without_nulls(field.take()));
            Value::Object(map)
        }
        Value::Array(list) => list.into_iter().map(without_nulls).collect(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_default_replaces_what_is_absent_and_no_null() {
        let taken = |object: Value, default: Option<Value>, is_needed| {
            take(&mut fields(object).unwrap(), "a", || default, is_needed).map_err(|error| error.to_string())
        };
        let needs = || Err("expected a value, found nothing".to_owned());
        assert_eq!(taken(json!({}), Some(json!(1)), false), Ok(json!(1)));
        assert_eq!(taken(json!({"a": null}), Some(json!(1)), false), Ok(json!(null)));
        assert_eq!(taken(json!({"a": 2}), Some(json!(1)), false), Ok(json!(2)));
        assert_eq!(taken(json!({}), None, false), Ok(json!(null)));
        assert_eq!(taken(json!({}), None, true), needs());
        assert_eq!(taken(json!({"a": null}), None, true), needs());
        assert_eq!(fields(json!(null)).unwrap_err().to_string(), "expected an object, found nothing");
    }

    #[test]
    fn a_null_is_written_where_absent_would_mean_a_default() {
        assert!(is_written(true, || Some(json!(1))));
        assert!(!is_written(true, || Some(json!(null))));
        assert!(!is_written(true, || None));
        assert!(is_written(false, || None));
    }

    #[test]
    fn nulls_of_lists_stay_in_parameters() {
        let value = json!({"a": null, "b": [null, {"c": null}], "d": {"e": null}});
        assert_eq!(without_nulls(value), json!({"b": [null, {}], "d": {}}));
    }
}

//! Comparing values.

use graph_runtime::Value;

/// Whether `found` has everything that `expected` has: an object has its fields, and may have others; anything else is equal. A
/// field that is expected to be null may be missing.
pub fn is_subset(expected: &Value, found: &Value) -> bool {
    first_difference(expected, found).is_none()
}

/// Returns the path of the first part of `expected` that `found` does not have.
pub fn first_difference(expected: &Value, found: &Value) -> Option<Vec<String>> {
    match (expected, found) {
        (Value::Object(expected), Value::Object(found)) => expected.iter().find_map(|(name, expected)| {
            let inside = first_difference(expected, found.get(name).unwrap_or(&Value::Null))?;
            Some(std::iter::once(name.clone()).chain(inside).collect())
        }),
        _ if is_same(expected, found) => None,
        _ => Some(Vec::new()),
    }
}

/// Whether two values are equal: `3` and `3.0` are, and so are objects whose fields are in another order.
pub fn is_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => {
            one == other || (one.is_f64() || other.is_f64()) && one.as_f64() == other.as_f64()
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| is_same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(name, one)| other.get(name).is_some_and(|other| is_same(one, other)))
        }
        _ => one == other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_subset_has_the_expected_fields_and_may_have_others() {
        let found = json!({"a": 1, "b": {"c": [1, {"d": 2}], "e": null}});
        for expected in
            [json!({}), json!({"a": 1.0}), json!({"b": {"e": null, "f": null}}), json!({"b": {"c": [1, {"d": 2}]}})]
        {
            assert!(is_subset(&expected, &found), "{expected}");
        }
        for (expected, path) in [
            (json!({"a": 2}), "a"),
            (json!({"x": 1}), "x"),
            (json!({"b": {"c": [1]}}), "b.c"),
            (json!({"b": {"c": [1, {}]}}), "b.c"),
            (json!({"a": null}), "a"),
            (json!([]), ""),
        ] {
            assert_eq!(
                first_difference(&expected, &found).map(|path| path.join(".")).as_deref(),
                Some(path),
                "{expected}"
            );
        }
    }
}

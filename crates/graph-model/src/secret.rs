//! Secrets: values that are not shown by accident, and their places in other values.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize, Serializer};

use crate::value::{AsView, FromValue, Map, Mismatch, Value, View};

/// The text that is shown in the place of a secret.
pub const HIDDEN: &str = "[secret]";

/// A value that is not shown by accident: printed, logged or written as JSON, it is `[secret]`.
///
/// Dropping it wipes the value from its own memory. This does not reach copies that a tool makes, nor a number that was
/// in a register.
///
/// ```
/// # use graph_model::secret as graph_runtime;
/// use graph_runtime::Secret;
///
/// let card = Secret::from("4111 1111 1111 1111");
/// assert_eq!(format!("{card} {card:?}"), "[secret] [secret]");
/// assert_eq!(card.expose(), "4111 1111 1111 1111");
/// ```
pub struct Secret<T: FromValue>(T);

impl<T: FromValue> Secret<T> {
    /// Hides a value.
    pub const fn new(value: T) -> Self {
        Self(value)
    }

    /// Takes the value out. It is not protected any more.
    pub fn into_exposed(mut self) -> T {
        std::mem::replace(&mut self.0, T::blank())
    }

    /// Returns the value itself. Copies of it are not protected.
    pub const fn expose(&self) -> &T {
        &self.0
    }
}

impl<T: FromValue> Drop for Secret<T> {
    fn drop(&mut self) {
        self.0.wipe();
    }
}

impl<T: FromValue> From<T> for Secret<T> {
    fn from(value: T) -> Self {
        Self(value)
    }
}

impl From<&str> for Secret<String> {
    fn from(value: &str) -> Self {
        Self(value.to_owned())
    }
}

impl<T: FromValue + Clone> Clone for Secret<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: FromValue + PartialEq> PartialEq for Secret<T> {
    /// Compares, but not in constant time: this is for tests, and for structs that derive it.
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<T: FromValue> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl<T: FromValue> fmt::Display for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl<T: FromValue> Serialize for Secret<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(HIDDEN)
    }
}

impl<T: FromValue + AsView> AsView for Secret<T> {
    fn view(&self) -> View<'_> {
        // The absence of a value is no secret.
        if self.0.view().is_null() { View::Null } else { View::Secret(&self.0) }
    }
}

impl<T: FromValue> FromValue for Secret<T> {
    /// Converts like the type of the value in it; an error does not say what was found.
    fn from_value(value: Value) -> Result<Self, Mismatch> {
        T::from_value(value).map(Self).map_err(Mismatch::hiding)
    }

    fn check(value: &Value) -> Result<(), Mismatch> {
        T::check(value).map_err(Mismatch::hiding)
    }

    fn blank() -> Self {
        Self(T::blank())
    }

    fn wipe(&mut self) {
        self.0.wipe();
    }
}

/// The places of secrets in a value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mask {
    /// The value itself is a secret.
    All,
    /// In each element of a list, or each field of an object.
    Each(Box<Mask>),
    /// In these fields of an object.
    Fields(BTreeMap<String, Mask>),
}

impl Mask {
    /// Calls `change` with each secret in `value` that is not null, and with the names that lead to it.
    ///
    /// If a value is not of the shape that the mask is for, or `is_whole` returns true for it, all of it is one secret.
    ///
    /// # Errors
    ///
    /// The first error of `change`; earlier changes stay.
    pub fn try_each<E>(
        &self,
        value: &mut Value,
        is_whole: &impl Fn(&Value) -> bool,
        change: &mut impl FnMut(&mut Value, &[String]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.walk(value, &mut Vec::new(), is_whole, change)
    }

    fn walk<E>(
        &self,
        value: &mut Value,
        way: &mut Vec<String>,
        is_whole: &impl Fn(&Value) -> bool,
        change: &mut impl FnMut(&mut Value, &[String]) -> Result<(), E>,
    ) -> Result<(), E> {
        if value.is_null() {
            return Ok(());
        }
        if is_whole(value) {
            return change(value, way);
        }
        let mut inside = |inner: &Self, name: String, value: &mut Value| {
            way.push(name);
            let done = inner.walk(value, way, is_whole, change);
            way.pop();
            done
        };
        match (self, value) {
            (Self::Each(inner), Value::Array(list)) => {
                list.iter_mut().enumerate().try_for_each(|(index, value)| inside(inner, index.to_string(), value))
            }
            (Self::Each(inner), Value::Object(map)) => {
                map.iter_mut().try_for_each(|(name, value)| inside(inner, name.clone(), value))
            }
            (Self::Fields(fields), Value::Object(map)) => fields.iter().try_for_each(|(name, inner)| {
                map.get_mut(name).map_or(Ok(()), |value| inside(inner, name.clone(), value))
            }),
            (_, value) => change(value, way),
        }
    }

    /// Calls `visit` with each secret in `value` that is not null.
    pub fn each<'v>(&self, value: &'v Value, visit: &mut impl FnMut(&'v Value)) {
        match (self, value) {
            (_, Value::Null) => {}
            (Self::Each(inner), Value::Array(list)) => list.iter().for_each(|value| inner.each(value, visit)),
            (Self::Each(inner), Value::Object(map)) => map.values().for_each(|value| inner.each(value, visit)),
            (Self::Fields(fields), Value::Object(map)) => {
                fields.iter().filter_map(|(name, inner)| Some((map.get(name)?, inner))).for_each(|(value, inner)| {
                    inner.each(value, visit);
                });
            }
            (_, value) => visit(value),
        }
    }

    /// Returns `value` with `[secret]` in the place of each secret.
    #[must_use]
    pub fn hide(&self, mut value: Value) -> Value {
        let hidden = self.try_each(&mut value, &|_| false, &mut |value, _| -> Result<(), std::convert::Infallible> {
            wipe(value);
            *value = Value::from(HIDDEN);
            Ok(())
        });
        match hidden {
            Ok(()) => value,
        }
    }
}

/// The places of a graph's secrets; all fields are empty if the graph has no secrets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Secrets {
    /// In the inputs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inputs: Option<Mask>,
    /// In the keys of the state, by their names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub keys: BTreeMap<String, Mask>,
    /// In the results of tools, by the tools' indices.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tools: BTreeMap<u16, Mask>,
    /// In the values of signals, by their names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub signals: BTreeMap<String, Mask>,
    /// In the answers of people, by the names of the nodes that ask.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub answers: BTreeMap<String, Mask>,
    /// In the result of a run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Mask>,
}

impl Secrets {
    /// Whether there are no secrets.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Overwrites the texts in a value.
pub fn wipe(value: &mut Value) {
    use zeroize::Zeroize;
    match value {
        Value::String(text) => text.zeroize(),
        Value::Array(list) => list.iter_mut().for_each(wipe),
        Value::Object(map) => map.values_mut().for_each(wipe),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Overwrites the texts in an object.
pub(crate) fn wipe_map(map: &mut Map<String, Value>) {
    map.values_mut().for_each(wipe);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const CANARY: &str = "hunter2-canary";

    fn of(name: &str, mask: Mask) -> Mask {
        Mask::Fields(BTreeMap::from([(name.to_owned(), mask)]))
    }

    #[test]
    fn a_secret_is_shown_only_by_an_explicit_call() {
        let secret = Secret::from(CANARY);
        let shown = [
            format!("{secret}"),
            format!("{secret:?}"),
            serde_json::to_string(&secret).unwrap(),
            format!("{:?}", secret.view()),
            secret.view().to_value().to_string(),
            serde_json::to_string(&secret.view()).unwrap(),
        ];
        for text in shown {
            assert!(text.contains(HIDDEN) && !text.contains(CANARY), "{text}");
        }
        assert_eq!((secret.expose().as_str(), secret.view().to_plain_value()), (CANARY, json!(CANARY)));
        assert_eq!(secret.into_exposed(), CANARY);
    }

    #[test]
    fn an_error_does_not_quote_a_secret_of_another_type() {
        let error = Secret::<i64>::from_value(json!(true)).unwrap_err();
        assert_eq!(error.to_string(), "expected an integer of 64 bits, found something else");
        assert!(Secret::<Value>::blank().view().is_null());
    }

    #[test]
    fn a_mask_hides_what_it_covers_and_nothing_else() {
        let list = of("tokens", Mask::Each(Box::new(Mask::All)));
        for (mask, value, hidden) in [
            (Mask::All, json!({"a": 1}), json!(HIDDEN)),
            (Mask::All, json!(null), json!(null)),
            (of("a", Mask::All), json!({"a": [1], "b": 2}), json!({"a": HIDDEN, "b": 2})),
            (of("a", Mask::All), json!({"b": 2}), json!({"b": 2})),
            (list.clone(), json!({"tokens": ["x", null]}), json!({"tokens": [HIDDEN, null]})),
            (list.clone(), json!({"tokens": {"x": 1}}), json!({"tokens": {"x": HIDDEN}})),
            (list, json!({"tokens": "of another shape"}), json!({"tokens": HIDDEN})),
        ] {
            assert_eq!(mask.hide(value.clone()), hidden, "{value}");
        }
    }

    #[test]
    fn a_mask_is_read_as_it_was_written() {
        let mask = of("a", Mask::Each(Box::new(of("b", Mask::All))));
        let text = serde_json::to_string(&mask).unwrap();
        assert_eq!(text, r#"{"fields":{"a":{"each":{"fields":{"b":"all"}}}}}"#);
        assert_eq!(serde_json::from_str::<Mask>(&text).unwrap(), mask);
    }
}

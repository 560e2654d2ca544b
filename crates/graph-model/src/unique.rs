//! JSON in which no object has a name twice: readers disagree on which of the two counts.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::map::Entry;
use serde_json::{Map, Number, Value};

/// A value as [`Value`] reads it, where no object has a name twice.
pub(crate) struct Unique(pub(crate) Value);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UniqueReader).map(Self)
    }
}

struct UniqueReader;

impl<'de> Visitor<'de> for UniqueReader {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number is not finite"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Unique(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            match map.entry(name) {
                Entry::Occupied(known) => {
                    let shown: String = known.key().chars().take(100).collect();
                    return Err(A::Error::custom(format_args!("an object has the name `{shown}` twice")));
                }
                Entry::Vacant(place) => {
                    place.insert(fields.next_value::<Unique>()?.0);
                }
            }
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::number::{JsonError, read_json};

    #[test]
    fn an_object_with_a_name_twice_is_refused_at_any_depth() {
        for text in [
            r#"{"a": 1, "a": 1}"#,
            r#"{"a": 1, "b": 2, "\u0061": 3}"#,
            r#"[[{"b": {"a": null, "a": 1}}]]"#,
            r#"{"": 1, "": 2}"#,
        ] {
            assert!(matches!(read_json(text), Err(JsonError::Twice(_))), "{text}");
        }
        let said = read_json("{\"a\": {\n  \"b\": 1, \"b\": 2}}").unwrap_err().to_string();
        assert_eq!(said, "an object has the name `b` twice at line 2 column 13");
        assert_eq!(read_json(r#"[{"a": 1}, {"a": {"a": 2}}]"#).unwrap(), json!([{"a": 1}, {"a": {"a": 2}}]));
        assert!(matches!(read_json(r#"{"a": 1, "a""#), Err(JsonError::Twice(_) | JsonError::Syntax(_))));
    }

    proptest! {
        #[test]
        fn other_texts_are_read_as_always(text in r#"([-0-9.eE]{1,5}|["\\é,:\[\]{}]|true|null|"[ab]":){0,12}"#) {
            // `-0` is a whole number here.
            prop_assume!(!text.contains("-0"));
            match (read_json(&text), serde_json::from_str::<Value>(&text)) {
                (Ok(one), Ok(other)) => prop_assert_eq!(one.to_string(), other.to_string()),
                (Err(JsonError::Syntax(_)), one) => prop_assert!(one.is_err()),
                (Err(_), _) => {}
                (Ok(_), Err(_)) => prop_assert!(false, "read, and is not JSON"),
            }
        }
    }
}

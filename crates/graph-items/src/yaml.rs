//! YAML of items: configurations and the headers of pages, read into JSON.
//!
//! Headers may be unsigned, so the size of a text is bounded, and constructs that YAML readers interpret differently are
//! refused: duplicate keys, tags, merge keys, and aliases beyond the bound.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// The maximum number of values in a text. The values of an alias count at each use.
const MOST_VALUES: usize = 100_000;

/// The reason that a text is not the required YAML.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum YamlError {
    /// It is not YAML, or uses a construct that is refused.
    #[error("{0}")]
    Syntax(#[from] serde_yaml::Error),
    /// It is not a mapping.
    #[error("it is not a mapping of names to values")]
    NotAMapping,
    /// Several elements of a list have the same `id`, which must distinguish them.
    #[error("two elements of the list `{list}` have the id `{id}`")]
    SameId {
        /// The list's key.
        list: String,
        /// The id.
        id: String,
    },
}

/// Reads `text` as a mapping; a text without any value is an empty mapping.
///
/// # Errors
///
/// If it is not YAML, holds more than one document or too many values, or is not a mapping.
pub(super) fn mapping(text: &str) -> Result<Map<String, Value>, YamlError> {
    if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
        return Ok(Map::new());
    }
    let left = Cell::new(MOST_VALUES);
    match (Json { left: &left }).deserialize(serde_yaml::Deserializer::from_str(text))? {
        Value::Object(map) => Ok(map),
        Value::Null => Ok(Map::new()),
        _ => Err(YamlError::NotAMapping),
    }
}

/// Converts YAML to JSON.
#[derive(Clone, Copy)]
struct Json<'c> {
    /// How many more values are allowed.
    left: &'c Cell<usize>,
}

impl<'de> DeserializeSeed<'de> for Json<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        let left = self.left.get().checked_sub(1).ok_or_else(|| Error::custom("it holds too many values"))?;
        self.left.set(left);
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Json<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value without a tag")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
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
        Number::from_f64(value)
            .map(Value::Number)
            .ok_or_else(|| Error::custom(format!("{value} is not a number in JSON")))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(value) = access.next_element_seed(self)? {
            list.push(value);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            if key == "<<" {
                return Err(Error::custom("it has a merge key `<<`, which YAML readers treat differently"));
            }
            if map.contains_key(&key) {
                return Err(Error::custom(format!("the key `{key}` occurs twice in a mapping")));
            }
            let value = access.next_value_seed(self)?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_mapping_becomes_json_in_the_order_of_the_file() {
        let text = "b: [1, 2.5, true, ~]\na: { c: 'text', 1: x }\n";
        assert_eq!(
            Value::Object(mapping(text).unwrap()),
            json!({"b": [1, 2.5, true, null], "a": {"c": "text", "1": "x"}})
        );
        assert_eq!(mapping(text).unwrap().keys().collect::<Vec<_>>(), ["b", "a"]);
    }

    #[test]
    fn nothing_but_comments_is_an_empty_mapping() {
        for text in ["", "\n# comment\n", "~", "---\n"] {
            assert!(mapping(text).unwrap().is_empty(), "{text:?}");
        }
    }

    #[test]
    fn yaml_that_readers_read_differently_is_refused_with_its_place() {
        for (text, expected) in [
            ("a: 1\nb: 2\na: 3\n", "the key `a` occurs twice in a mapping"),
            ("x:\n  a: 1\n  a: 1\n", "x: the key `a` occurs twice in a mapping"),
            ("a: !tag x\n", "a: invalid type: enum, expected a value without a tag"),
            ("a: .nan\n", "a: NaN is not a number in JSON"),
            ("base: &b { x: 1 }\na: { <<: *b }\n", "a: it has a merge key `<<`"),
            ("- 1\n", "it is not a mapping of names to values"),
        ] {
            let error = mapping(text).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{text:?}: {error}");
        }
        assert!(mapping("a: 1\n---\nb: 2\n").is_err(), "several documents");
    }

    #[test]
    fn aliases_cannot_make_much_of_little() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..8 {
            let item = format!("*a{}", level - 1);
            text.push_str(&format!("a{level}: &a{level} [{}]\n", [item.as_str(); 10].join(", ")));
        }
        assert!(mapping(&text).is_err());
    }
}

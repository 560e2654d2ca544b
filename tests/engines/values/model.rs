//! The judge of values: the table "Absent, null and default" of `docs/format.md`, written from that page alone, on JSON.
//!
//! It shares no function with the product. A schema here is a type of its own, and the text of a graph is made of it.

use serde_json::{Map, Value, json};

use super::schema::{Kind, Property, Schema, WORDS};
use crate::random::Random;

impl Schema {
    /// Whether its type allows null. Without a type, it does.
    fn allows_null(&self) -> bool {
        self.nullable || matches!(self.kind, Kind::Any)
    }

    /// Returns what a place with this schema holds that is given a value; `None` if it refuses it.
    pub(crate) fn read(&self, value: &Value) -> Option<Value> {
        if value.is_null() {
            return self.allows_null().then_some(Value::Null);
        }
        match (&self.kind, value) {
            (Kind::Any, _)
            | (Kind::Boolean, Value::Bool(_))
            | (Kind::Number, Value::Number(_))
            | (Kind::Text, Value::String(_))
            | (Kind::Free, Value::Object(_)) => Some(value.clone()),
            (Kind::Words, Value::String(word)) => WORDS.contains(&&**word).then(|| value.clone()),
            (Kind::Integer, Value::Number(number)) => match (number.as_i64(), number.as_f64()) {
                (Some(whole), _) => Some(json!(whole)),
                (None, Some(float)) if float.trunc() == float && float.abs() <= 2_f64.powi(53) => {
                    format!("{float:.0}").parse::<i64>().ok().map(Value::from)
                }
                _ => None,
            },
            (Kind::List(items), Value::Array(list)) => {
                let mut held = Vec::new();
                for element in list {
                    held.push(items.read(element)?);
                }
                Some(Value::Array(held))
            }
            (Kind::Map(values), Value::Object(map)) => {
                let mut held = Map::new();
                for (name, value) in map {
                    let value = values.read(value)?;
                    // Values of any type stay as they are.
                    if matches!(values.kind, Kind::Any) || !value.is_null() {
                        held.insert(name.clone(), value);
                    }
                }
                Some(Value::Object(held))
            }
            (Kind::Object(properties), Value::Object(map)) => {
                let mut held = Map::new();
                for property in properties {
                    let value = property.read(map.get(&property.name))?;
                    if !value.is_null() || property.has_default() {
                        held.insert(property.name.clone(), value);
                    }
                }
                Some(Value::Object(held))
            }
            _ => None,
        }
    }
}

impl Property {
    /// Whether it has a default. One that is null says no more than that null is allowed.
    fn has_default(&self) -> bool {
        self.default.as_ref().is_some_and(|default| !default.is_null())
    }

    /// Returns the value of the property by the table in the page; `None` if the property refuses what it is given.
    fn read(&self, given: Option<&Value>) -> Option<Value> {
        match (given, &self.default) {
            (None, Some(default)) if !default.is_null() => self.schema.read(default),
            (Some(Value::Null), Some(default)) if !default.is_null() => {
                self.schema.allows_null().then_some(Value::Null)
            }
            (None | Some(Value::Null), Some(_)) => Some(Value::Null),
            (None | Some(Value::Null), None) => {
                let needs = self.required && (matches!(self.schema.kind, Kind::Any) || !self.schema.nullable);
                (!needs).then_some(Value::Null)
            }
            (Some(value), _) => self.schema.read(value),
        }
    }
}

/// Returns a value as the parameters of a call have it: null fields of objects count as absent; lists keep their nulls.
pub(crate) fn as_parameter(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let given = map.iter().filter(|(_, value)| !value.is_null());
            given.map(|(name, value)| (name.clone(), as_parameter(value))).collect()
        }
        Value::Array(list) => list.iter().map(as_parameter).collect(),
        other => other.clone(),
    }
}

/// Makes schemas and values.
pub(crate) struct Maker(pub(crate) Random);

impl Maker {
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.0.below(100) < percent
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.0.below(end as u64)).expect("it is small")
    }

    fn one(&mut self, values: &[Value]) -> Value {
        let at = self.below(values.len());
        values[at].clone()
    }

    /// Returns a schema of an object.
    pub(crate) fn object(&mut self, levels: usize) -> Schema {
        let count = 1 + self.below(5);
        let properties = (0..count).map(|at| self.property(format!("f{at}"), levels)).collect();
        Schema { kind: Kind::Object(properties), nullable: false }
    }

    fn property(&mut self, name: String, levels: usize) -> Property {
        let schema = self.schema(levels);
        let (required, has_default) = (self.chance(50), self.chance(50));
        let default = has_default.then(|| self.fitting(&schema));
        // A file has the whole numbers of its defaults without a fraction.
        let default = default.map(|default| schema.read(&default).unwrap_or_default());
        Property { name, schema, required, default }
    }

    fn schema(&mut self, levels: usize) -> Schema {
        let kinds = if levels == 0 { 7 } else { 10 };
        let kind = match self.below(kinds) {
            0 => Kind::Any,
            1 => Kind::Boolean,
            2 => Kind::Integer,
            3 => Kind::Number,
            4 => Kind::Text,
            5 => Kind::Words,
            6 => Kind::Free,
            7 => Kind::List(Box::new(self.schema(levels - 1))),
            8 => Kind::Map(Box::new(self.schema(levels - 1))),
            _ => self.object(levels - 1).kind,
        };
        Schema { kind, nullable: self.chance(40) }
    }

    /// Returns any JSON.
    fn any(&mut self, levels: usize) -> Value {
        match self.below(if levels == 0 { 8 } else { 10 }) {
            0 => Value::Null,
            1 => json!(self.chance(50)),
            2 => self.one(&[json!(0), json!(-7), json!(i64::MAX), json!(i64::MIN), json!(u64::MAX)]),
            3 => self.one(&[json!(3.0), json!(0.5), json!(-0.0), json!(1e300), json!(9_007_199_254_740_992.0)]),
            4 => self.one(&[json!(""), json!("null"), json!("a \"text\"\n"), json!("é😀")]),
            5 => self.one(&[json!("red"), json!("green"), json!("blue")]),
            6 => json!([]),
            7 => json!({}),
            8 => (0..self.below(3)).map(|_| self.any(levels - 1)).collect(),
            _ => (0..self.below(4)).map(|at| (format!("f{at}"), self.any(levels - 1))).collect::<Map<_, _>>().into(),
        }
    }

    /// Returns a value that a schema takes.
    pub(crate) fn fitting(&mut self, schema: &Schema) -> Value {
        self.value(schema, 0)
    }

    /// Returns a value for a schema, parts of which are of any kind: that many of a hundred.
    pub(crate) fn value(&mut self, schema: &Schema, wrong: u64) -> Value {
        if self.chance(wrong) {
            return self.any(2);
        }
        if schema.allows_null() && self.chance(25) {
            return Value::Null;
        }
        match &schema.kind {
            Kind::Any => self.any(2),
            Kind::Boolean => json!(self.chance(50)),
            Kind::Integer => self.one(&[json!(0), json!(7), json!(3.0), json!(-0.0), json!(i64::MIN), json!(i64::MAX)]),
            Kind::Number => self.one(&[json!(1), json!(2.0), json!(0.1), json!(u64::MAX), json!(-1e-7)]),
            Kind::Text => self.one(&[json!(""), json!("x"), json!("null"), json!("\"é\"\n")]),
            Kind::Words => json!(WORDS[self.below(2)]),
            Kind::Free => match self.any(2) {
                Value::Object(map) => Value::Object(map),
                _ => json!({"a": null, "b": {"c": null}}),
            },
            Kind::List(items) => (0..self.below(4)).map(|_| self.value(items, wrong)).collect(),
            Kind::Map(values) => {
                (0..self.below(4)).map(|at| (format!("k{at}"), self.value(values, wrong))).collect::<Map<_, _>>().into()
            }
            Kind::Object(properties) => {
                let mut map = Map::new();
                for property in properties {
                    let given = match self.below(4) {
                        0 => None,
                        1 => Some(Value::Null),
                        _ => Some(self.value(&property.schema, wrong)),
                    };
                    // Absent and null are kept where the property takes them, or now and then if values may be wrong.
                    let takes = property.read(given.as_ref()).is_some() || self.chance(wrong);
                    let given = if takes { given } else { Some(self.value(&property.schema, wrong)) };
                    // A required property of any type takes no null.
                    let given =
                        if property.read(given.as_ref()).is_none() && wrong == 0 { Some(json!(1)) } else { given };
                    if let Some(value) = given {
                        map.insert(property.name.clone(), value);
                    }
                }
                if self.chance(10) {
                    map.insert("unnamed".to_owned(), self.any(1));
                }
                Value::Object(map)
            }
        }
    }
}

mod tests {
    use super::*;

    fn property(schema: Schema, required: bool, default: Option<Value>) -> Property {
        Property { name: "p".to_owned(), schema, required, default }
    }

    /// The rows of the table in the page, in their order.
    #[test]
    fn values_of_the_model_are_those_of_the_table() {
        let text = |nullable| Schema { kind: Kind::Text, nullable };
        let any = || Schema { kind: Kind::Any, nullable: false };
        let (null, hello) = (Some(Value::Null), Some(json!("hello")));
        for (property, absent, given_null) in [
            (property(text(true), false, hello.clone()), hello.clone(), null.clone()),
            (property(any(), true, hello.clone()), hello.clone(), null.clone()),
            (property(text(false), true, hello.clone()), hello.clone(), None),
            (property(text(true), true, None), null.clone(), null.clone()),
            (property(text(false), true, None), None, None),
            (property(any(), true, None), None, None),
            (property(text(false), false, None), null.clone(), null.clone()),
            (property(any(), false, None), null.clone(), null.clone()),
        ] {
            assert_eq!(property.read(None), absent, "{property:?}");
            assert_eq!(property.read(Some(&Value::Null)), given_null, "{property:?}");
            assert_eq!(property.read(Some(&json!("x"))), Some(json!("x")), "{property:?}");
        }
    }
}

//! Conditions: tests combined with `all`, `any` and `not`.

use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::grammar::{self, Conditions};
use crate::operator::Operator;
use crate::path::{Path, PathNames};

/// A condition over tests of type `T` (R76).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition<T> {
    /// Holds always: an edge without `when`.
    Always,
    /// Holds if all do; an empty `all` holds.
    All(Vec<Self>),
    /// Holds if one does; an empty `any` does not hold.
    Any(Vec<Self>),
    /// Holds if the other does not.
    Not(Box<Self>),
    /// A comparison.
    Test(T),
}

impl<T> Condition<T> {
    /// Decides the condition; `test` decides a comparison. Stops at the first test that settles it.
    ///
    /// # Errors
    ///
    /// The first error that `test` gives.
    pub fn holds<E>(&self, test: &mut impl FnMut(&T) -> Result<bool, E>) -> Result<bool, E> {
        match self {
            Self::Always => Ok(true),
            Self::All(conditions) => {
                for condition in conditions {
                    if !condition.holds(test)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Self::Any(conditions) => {
                for condition in conditions {
                    if condition.holds(test)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Self::Not(condition) => condition.holds(test).map(|holds| !holds),
            Self::Test(leaf) => test(leaf),
        }
    }

    /// Rebuilds the condition with each test changed by `change`.
    ///
    /// # Errors
    ///
    /// The first error that `change` gives.
    pub fn try_map<U, E>(&self, change: &mut impl FnMut(&T) -> Result<U, E>) -> Result<Condition<U>, E> {
        let list = |conditions: &[Self], change: &mut _| {
            conditions.iter().map(|condition| condition.try_map(change)).collect::<Result<Vec<_>, E>>()
        };
        Ok(match self {
            Self::Always => Condition::Always,
            Self::All(conditions) => Condition::All(list(conditions, change)?),
            Self::Any(conditions) => Condition::Any(list(conditions, change)?),
            Self::Not(condition) => Condition::Not(Box::new(condition.try_map(change)?)),
            Self::Test(leaf) => Condition::Test(change(leaf)?),
        })
    }

    /// Calls `visit` with each test, in order.
    pub fn tests<'a>(&'a self, visit: &mut impl FnMut(&'a T)) {
        match self {
            Self::Always => {}
            Self::All(conditions) | Self::Any(conditions) => conditions.iter().for_each(|one| one.tests(visit)),
            Self::Not(condition) => condition.tests(visit),
            Self::Test(leaf) => visit(leaf),
        }
    }
}

/// A comparison.
#[derive(Debug, Clone, PartialEq)]
pub struct Test {
    /// The path of the value on the left.
    pub path: Path,
    /// The operator.
    pub operator: Operator,
    /// The value on the right. For [`Operator::Regex`], it is a text.
    pub right: Value,
}

/// A condition as programs hold it. It is serialized as it is written in a file.
#[derive(Debug, Clone, PartialEq)]
pub struct When {
    condition: Condition<Test>,
    /// The condition as it is written: spellings and the order of fields are the author's.
    written: Value,
}

impl When {
    /// Reads a condition whose paths may begin with `names`.
    ///
    /// # Errors
    ///
    /// Its first mistake.
    pub fn read(written: Value, names: PathNames<'_>) -> Result<Self, String> {
        let condition = grammar::condition(&written, &mut ConditionFromJson { names })?;
        Ok(Self { condition, written })
    }

    /// A condition that was read from `written`.
    pub fn new(condition: Condition<Test>, written: Value) -> Self {
        Self { condition, written }
    }

    /// Returns the condition.
    pub fn condition(&self) -> &Condition<Test> {
        &self.condition
    }

    /// Returns the condition as it is written.
    pub fn written(&self) -> &Value {
        &self.written
    }
}

impl fmt::Display for When {
    /// Writes the condition as JSON.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.written.fmt(f)
    }
}

impl Serialize for When {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.written.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for When {
    /// Reads a condition of an edge: a path that begins with no namespace begins with the name of an argument.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::read(Value::deserialize(deserializer)?, PathNames::Open).map_err(D::Error::custom)
    }
}

/// Builds conditions from JSON.
struct ConditionFromJson<'n> {
    names: PathNames<'n>,
}

impl<'t> Conditions<'t, Value> for ConditionFromJson<'_> {
    type Path = Path;
    type Test = Test;
    type Error = String;

    fn check(&mut self, condition: &'t Value) -> Result<(), String> {
        let Value::Object(fields) = condition else { return Err(format!("`{condition}` is not a condition")) };
        match fields.keys().find(|name| grammar::Word::named(name).is_none()) {
            Some(name) => Err(format!("a condition has no field `{name}`")),
            None => Ok(()),
        }
    }

    fn list(&mut self, _: &'t String, list: &'t Value) -> Result<&'t [Value], String> {
        match list {
            Value::Array(list) => Ok(list),
            other => Err(format!("`{other}` is not a list of conditions")),
        }
    }

    fn path(&mut self, path: &'t Value) -> Result<Path, String> {
        Path::parse_among(path.as_str().unwrap_or_default(), self.names).map_err(|error| error.to_string())
    }

    fn operator(&mut self, _: &'t String, name: &'t Value) -> Result<Option<Operator>, String> {
        match name {
            Value::Null => Ok(None),
            Value::String(name) => {
                Operator::named(name).map(Some).ok_or_else(|| format!("`{name}` is not an operator"))
            }
            other => Err(format!("`{other}` is not an operator")),
        }
    }

    fn test(
        &mut self,
        comparison: &'t Value,
        path: Path,
        operator: Operator,
        value: Option<&'t Value>,
    ) -> Result<Test, String> {
        let right = value.cloned().unwrap_or_default();
        if operator == Operator::Regex && !right.is_string() {
            return Err(format!("`{comparison}` compares with no pattern"));
        }
        Ok(Test { path, operator, right })
    }

    fn inert(&mut self, field: &'t String, beside: &'t String) -> Result<(), String> {
        Err(format!("`{field}` does nothing beside `{beside}`"))
    }

    fn no_form(&mut self, condition: &'t Value) -> String {
        format!("`{condition}` is not a condition")
    }

    fn two_forms(&mut self, first: &'t String, second: &'t String) -> String {
        format!("a condition has `{first}` or `{second}`, not both")
    }

    fn two_operators(&mut self, first: &'t String, second: &'t String) -> String {
        format!("a comparison has `{first}` or `{second}`, not both")
    }

    fn no_value(&mut self, _: &'t Value, operator: Operator) -> String {
        format!("a comparison with `{operator}` needs `value`")
    }
}

#[cfg(test)]
mod tests {
    use super::Condition::{All, Always, Any, Not, Test};
    use super::{Condition, When};

    fn holds(condition: &Condition<bool>) -> bool {
        condition.holds(&mut |leaf| Ok::<_, ()>(*leaf)).unwrap()
    }

    #[test]
    fn combinators_combine() {
        assert!(holds(&Always));
        assert!(holds(&All(vec![])));
        assert!(!holds(&Any(vec![])));
        assert!(!holds(&Not(Box::new(Always))));
        assert!(holds(&All(vec![Test(true), Any(vec![Test(false), Not(Box::new(Test(false)))])])));
        assert!(!holds(&All(vec![Test(true), Test(false)])));
    }

    #[test]
    fn evaluation_stops_at_the_first_deciding_test() {
        let mut asked = 0;
        let condition = Any(vec![Test(true), Test(false)]);
        condition
            .holds(&mut |leaf| {
                asked += 1;
                Ok::<_, ()>(*leaf)
            })
            .unwrap();
        assert_eq!(asked, 1);
    }

    #[test]
    fn a_condition_is_written_as_it_is_read() {
        for text in [
            "{}",
            r#"{"value":1,"operator":"neq","path":"state.x"}"#,
            r#"{"path":"result.a.0","value":null}"#,
            r#"{"path":"part.x","op":"exists"}"#,
            r#"{"any":[{"all":[]},{"not":{"path":"visit.number","op":"gt","value":3}}]}"#,
        ] {
            let when: When = serde_json::from_str(text).unwrap();
            assert_eq!((serde_json::to_string(&when).unwrap(), when.to_string()), (text.to_owned(), text.to_owned()));
        }
    }

    #[test]
    fn invalid_conditions_are_refused() {
        let refused = |text: &str| serde_json::from_str::<When>(text).unwrap_err().to_string();
        for (text, message) in [
            ("[]", "`[]` is not a condition"),
            (r#"{"value":1}"#, r#"`{"value":1}` is not a condition"#),
            (r#"{"any":[],"not":{}}"#, "a condition has `any` or `not`, not both"),
            (r#"{"any":[],"op":"eq"}"#, "`op` does nothing beside `any`"),
            (r#"{"any":{}}"#, "`{}` is not a list of conditions"),
            (
                r#"{"path":"state.x","op":"eq","operator":"eq","value":1}"#,
                "a comparison has `op` or `operator`, not both",
            ),
            (r#"{"path":"state.x","op":"near","value":1}"#, "`near` is not an operator"),
            (r#"{"path":"state.x"}"#, "a comparison with `eq` needs `value`"),
            (r#"{"path":"state..x","value":1}"#, "the path has an empty part"),
            (
                r#"{"path":"state.x","op":"regex","value":1}"#,
                r#"`{"path":"state.x","op":"regex","value":1}` compares with no pattern"#,
            ),
            (r#"{"all":[{"when":1}]}"#, "a condition has no field `when`"),
        ] {
            assert_eq!(refused(text), message, "{text}");
        }
    }
}

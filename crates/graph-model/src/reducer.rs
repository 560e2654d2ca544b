//! Reducers: how the writes to a channel combine with its value.
//!
//! A key of the state without a channel has the value of its last write. A channel has a [`Reducer`], which adds each
//! write to the value, so several branches can write to it. [`Reducer::combine`] is the meaning of all reducers; the
//! engine has other ways to add to a long list, and they yield the same.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::name::ItemId;
use crate::operator::{equal, identity, order};
use crate::value::{AsView, Sequence, View, describe};

/// How the writes to a channel combine with its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reducer {
    /// A list; a write is one element, which is added at its end.
    Append,
    /// A list; a write is a list, whose elements are added at its end.
    Extend,
    /// As [`Reducer::Extend`], without the elements that the list has already.
    Union,
    /// The sum of the writes, which are numbers.
    Sum,
    /// The largest write: numbers by value, texts by code point.
    Max,
    /// The smallest write.
    Min,
    /// An object; a write is an object, whose fields replace those of the same name. A field that is null counts as absent.
    Merge,
    /// A list of objects; a write is one or a list of them. An object replaces the one with the same identity, or is added
    /// at the end.
    Messages {
        /// The field that is the identity of an object. An object in which it is missing or null has none.
        id: String,
    },
    /// The last write.
    Last,
    /// The result of a function of the program, which receives the value and the write.
    Program {
        /// The id of its contract, which describes a write and the value.
        item_id: ItemId,
    },
}

/// How long a channel has its value, if not for the rest of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Keep {
    /// In the step after the write only: in each step the writes are combined with the first value.
    Step,
    /// In memory only: no journal has it, so a run that is resumed does not have it.
    Memory,
}

impl Keep {
    /// The values, each with its name, as a graph writes them.
    pub const TABLE: [(&'static str, Self); 2] = [("step", Self::Step), ("memory", Self::Memory)];
}

/// The channels that do not have their values for the rest of the run.
pub type KeptChannels = BTreeMap<String, Keep>;

/// The channels of a graph: the keys of the state whose writes a reducer combines.
pub type Channels = BTreeMap<String, Reducer>;

/// The names of the reducers that a graph writes by their names. Another reducer is a function of the program, and has an
/// id.
pub const REDUCERS: [&str; 9] = ["append", "extend", "union", "sum", "max", "min", "merge", "messages", "last"];

/// A write that a reducer cannot combine with the value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Uncombined(String);

/// Why a reducer of the program has no value for a write.
///
/// ```
/// # use graph_model::reducer as graph_runtime;
/// use graph_runtime::ReducerError;
///
/// /// Keeps the sum of the scores, which is at most 100.
/// fn combine(value: Option<i64>, write: i64) -> Result<i64, ReducerError> {
///     match value.unwrap_or_default().checked_add(write) {
///         Some(sum) if sum <= 100 => Ok(sum),
///         _ => Err("a score is at most 100".into()),
///     }
/// }
/// assert_eq!(combine(Some(60), 41), Err(ReducerError::new("a score is at most 100")));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ReducerError(String);

impl ReducerError {
    /// Creates an error with a message.
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

impl From<String> for ReducerError {
    fn from(message: String) -> Self {
        Self(message)
    }
}

impl From<&str> for ReducerError {
    fn from(message: &str) -> Self {
        Self(message.to_owned())
    }
}

/// The elements that writes to a list replace and add. The list itself is neither copied nor changed.
#[derive(Debug, Default)]
pub struct ListWrites {
    /// The elements that replace others, by their indices.
    pub replaced: HashMap<usize, Value>,
    /// The elements that are added at the end.
    pub added: Vec<Value>,
    /// How many elements were compared with others.
    compared: usize,
    /// The elements by their identities, once there were many comparisons.
    known: Option<HashMap<String, usize>>,
}

impl ListWrites {
    /// Adds a write that the reducer accepts. `committed` is the list.
    pub fn write(&mut self, reducer: &Reducer, committed: &dyn Sequence, write: Value) {
        for element in reducer.elements(write) {
            let length = committed.len() + self.added.len();
            let place = match reducer.identity(&element) {
                None => Some(length),
                Some(identity) => {
                    let found = self.find(reducer, committed, &identity, element.view());
                    if found.is_some() && *reducer == Reducer::Union { None } else { Some(found.unwrap_or(length)) }
                }
            };
            match place.map(|at| at.checked_sub(committed.len()).ok_or(at)) {
                None => {}
                Some(Err(at)) => drop(self.replaced.insert(at, element)),
                Some(Ok(at)) if at < self.added.len() => self.added[at] = element,
                Some(Ok(_)) => self.added.push(element),
            }
        }
    }

    /// Finds the first element with the identity of another.
    fn find(
        &mut self,
        reducer: &Reducer,
        committed: &dyn Sequence,
        identity: &str,
        element: View<'_>,
    ) -> Option<usize> {
        const MANY: usize = 1024;
        let length = committed.len() + self.added.len();
        if self.known.is_none() && self.compared > MANY + 4 * length {
            let mut known = HashMap::new();
            for at in 0..length {
                if let Some(identity) = reducer.identity_of(self.at(committed, at)) {
                    known.entry(identity).or_insert(at);
                }
            }
            self.known = Some(known);
        }
        if let Some(known) = &mut self.known {
            let found = known.get(identity).copied();
            if found.is_none() {
                known.insert(identity.to_owned(), length);
            }
            return found;
        }
        self.compared += length;
        let (whole, id) = match reducer {
            Reducer::Messages { id } => (false, id.as_str()),
            _ => (true, ""),
        };
        let part = |view: View<'_>, other: View<'_>| match whole {
            true => equal(view, other),
            false => equal(view.step(id), other.step(id)),
        };
        (0..length).find(|&at| part(self.at(committed, at), element))
    }

    /// Returns the element at an index of the list with the writes.
    pub fn at<'w>(&'w self, committed: &'w dyn Sequence, index: usize) -> View<'w> {
        match (self.replaced.get(&index), index.checked_sub(committed.len())) {
            (Some(element), _) => element.view(),
            (None, Some(index)) => self.added.get(index).map_or(View::Null, AsView::view),
            (None, None) => committed.at(index),
        }
    }
}

impl Reducer {
    /// Finds the reducer that is written `name`. The identity of `messages` is the field `id`.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "append" => Self::Append,
            "extend" => Self::Extend,
            "union" => Self::Union,
            "sum" => Self::Sum,
            "max" => Self::Max,
            "min" => Self::Min,
            "merge" => Self::Merge,
            "messages" => Self::Messages { id: "id".to_owned() },
            "last" => Self::Last,
            _ => return None,
        })
    }

    /// Returns the name, as a graph writes it; for a function of the program, its id.
    pub fn name(&self) -> &str {
        match self {
            Self::Program { item_id } => item_id.as_str(),
            Self::Append => "append",
            Self::Extend => "extend",
            Self::Union => "union",
            Self::Sum => "sum",
            Self::Max => "max",
            Self::Min => "min",
            Self::Merge => "merge",
            Self::Messages { .. } => "messages",
            Self::Last => "last",
        }
    }

    /// Returns the value of a channel before its first write, if the graph gives it none.
    pub fn first(&self) -> Option<Value> {
        match self {
            Self::Append | Self::Extend | Self::Union | Self::Messages { .. } => Some(Value::Array(Vec::new())),
            Self::Sum => Some(Value::from(0)),
            Self::Max | Self::Min | Self::Merge | Self::Last | Self::Program { .. } => None,
        }
    }

    /// Returns the id of the function of the program, if the reducer is one.
    pub fn function(&self) -> Option<&ItemId> {
        match self {
            Self::Program { item_id } => Some(item_id),
            _ => None,
        }
    }

    /// Whether the channel's value is a list to which writes add elements.
    pub fn makes_list(&self) -> bool {
        matches!(self, Self::Append | Self::Extend | Self::Union | Self::Messages { .. })
    }

    /// Returns the kind of value that a write is.
    pub fn takes(&self) -> &'static str {
        match self {
            Self::Append | Self::Program { .. } => "a value",
            Self::Extend | Self::Union => "a list",
            Self::Sum => "a number",
            Self::Max | Self::Min => "a number or a text",
            Self::Merge => "an object",
            Self::Messages { .. } => "an object or a list of objects",
            Self::Last => "any value",
        }
    }

    /// Checks that a value can be a write to the channel, whatever the channel's value is.
    ///
    /// # Errors
    ///
    /// If it cannot.
    pub fn check(&self, write: &Value) -> Result<(), Uncombined> {
        let is_one = match self {
            Self::Append | Self::Program { .. } => !write.is_null(),
            Self::Extend | Self::Union => write.is_array(),
            Self::Sum => write.is_number(),
            Self::Max | Self::Min => write.is_number() || write.is_string(),
            Self::Merge => write.is_object(),
            Self::Messages { .. } => match write {
                Value::Array(list) => list.iter().all(Value::is_object),
                other => other.is_object(),
            },
            Self::Last => true,
        };
        if is_one {
            return Ok(());
        }
        let found = match write {
            Value::Array(list) if matches!(self, Self::Messages { .. }) => {
                let other = list.iter().find(|element| !element.is_object());
                format!("a list with {}", other.map_or_else(String::new, kind))
            }
            other => kind(other),
        };
        Err(Uncombined(format!("`{self}` takes {}, and found {found}", self.takes())))
    }

    /// Whether a channel may hold a value: a write can be combined with it.
    pub fn holds(&self, value: &Value) -> bool {
        match self {
            Self::Append | Self::Extend | Self::Union => value.is_array(),
            Self::Messages { .. } => value.is_array() && self.check(value).is_ok(),
            Self::Sum | Self::Max | Self::Min | Self::Merge => self.check(value).is_ok(),
            Self::Last | Self::Program { .. } => true,
        }
    }

    /// Whether a text may be the message of a write that this reducer could not combine. It does not examine the value that
    /// the message names.
    pub fn may_fail_with(&self, message: &str) -> bool {
        let Some(why) = message.strip_prefix(&format!("`{self}` ")) else { return false };
        if let Some(rest) = why.strip_prefix("takes ") {
            return rest.starts_with(&format!("{}, and found ", self.takes()));
        }
        let beginnings: &[&str] = match self {
            Self::Append | Self::Extend | Self::Union | Self::Messages { .. } => &["adds to a list, "],
            Self::Sum => {
                &["adds to a number, ", "is beyond the integers of 64 bits", "is beyond the numbers of 64 bits"]
            }
            Self::Max | Self::Min => &["cannot compare "],
            Self::Merge => &["adds to an object, ", "received the field `"],
            Self::Last => &[],
            Self::Program { .. } => &[FAILED],
        };
        beginnings.iter().any(|beginning| why.starts_with(beginning))
    }

    /// Combines the channel's value with one more write. Null is a channel without a value.
    ///
    /// # Errors
    ///
    /// If they cannot be combined: the write or the value is of another kind, a sum is too large, a number and a text are
    /// compared, or the reducer is a function of the program, which only a run's state can call.
    pub fn combine(&self, current: Value, write: Value) -> Result<Value, Uncombined> {
        self.check(&write)?;
        if self.makes_list() {
            let mut list = match current {
                Value::Array(list) => list,
                Value::Null => Vec::new(),
                other => return Err(self.unfit(&other, "a list")),
            };
            for element in self.elements(write) {
                match self.place(list.len(), |at| list[at].view(), &element) {
                    Some(at) if at < list.len() => list[at] = element,
                    Some(_) => list.push(element),
                    None => {}
                }
            }
            return Ok(Value::Array(list));
        }
        match (self, current, write) {
            (Self::Last, _, write) => Ok(write),
            (Self::Program { item_id }, ..) => Err(Uncombined::missing(item_id)),
            (Self::Merge, Value::Null, write) => Ok(Value::Object(merged(Map::new(), write))),
            (Self::Merge, Value::Object(fields), write) => Ok(Value::Object(merged(fields, write))),
            (Self::Merge, other, _) => Err(self.unfit(&other, "an object")),
            (_, Value::Null, write) => Ok(write),
            (Self::Sum, current, write) => self.sum(&current, &write),
            (_, current, write) => self.better(current, write),
        }
    }

    /// Whether a write that [`check`](Self::check) accepts combines with the channel's value for certain. It does not combine
    /// them, so it is quick; some writes combine although it returns false.
    #[inline]
    pub fn surely_combines(&self, current: View<'_>, write: &Value) -> bool {
        match (self, current) {
            (Self::Append | Self::Extend | Self::Union | Self::Messages { .. }, View::List(_))
            | (Self::Merge, View::Null | View::Object(_))
            | (Self::Last, _) => true,
            (Self::Sum, View::Integer(current)) => {
                write.as_i64().is_some_and(|write| current.checked_add(write).is_some())
            }
            (Self::Max | Self::Min, View::Integer(_)) => write.is_i64(),
            _ => false,
        }
    }

    /// Returns the value of the channel after a write, for a sum of integers; `None` if [`combine`](Self::combine) decides. It
    /// moves no values, so it is quick.
    #[inline]
    pub fn sum_of_integers(&self, current: &Value, write: &Value) -> Option<i64> {
        match self {
            Self::Sum => current.as_i64()?.checked_add(write.as_i64()?),
            _ => None,
        }
    }

    /// Returns the elements of a write to a list, in order.
    pub fn elements(&self, write: Value) -> Vec<Value> {
        match (self, write) {
            (Self::Append, element) => vec![element],
            (_, Value::Array(list)) => list,
            (_, element) => vec![element],
        }
    }

    /// Returns where an element is placed in a list of `length` elements, which `at` returns: at the index of the one that
    /// it replaces, or at the end; `None` if it is not added.
    fn place<'v>(&self, length: usize, at: impl Fn(usize) -> View<'v>, element: &Value) -> Option<usize> {
        match self {
            Self::Union => (!(0..length).any(|index| equal(at(index), element.view()))).then_some(length),
            Self::Messages { id } => {
                let identity = element.get(id).filter(|identity| !identity.is_null());
                let is_same = |index: &usize| identity.is_some_and(|id_| equal(at(*index).step(id), id_.view()));
                Some((0..length).find(is_same).unwrap_or(length))
            }
            _ => Some(length),
        }
    }

    /// Returns the identity of an element, if the reducer compares elements and this one has an identity.
    fn identity(&self, element: &Value) -> Option<String> {
        self.identity_of(element.view())
    }

    fn identity_of(&self, element: View<'_>) -> Option<String> {
        match self {
            Self::Union => Some(identity(element)),
            Self::Messages { id } => {
                let own = element.step(id);
                (!own.is_null()).then(|| identity(own))
            }
            _ => None,
        }
    }

    fn sum(&self, current: &Value, write: &Value) -> Result<Value, Uncombined> {
        let whole = |value: &Value| value.as_i64().map(i128::from).or_else(|| value.as_u64().map(i128::from));
        if let (Some(one), Some(two)) = (whole(current), whole(write)) {
            let sum = i64::try_from(one + two).map(Value::from);
            return sum.map_err(|_| Uncombined(format!("`{self}` is beyond the integers of 64 bits")));
        }
        let Some(one) = current.as_f64() else { return Err(self.unfit(current, "a number")) };
        let sum = one + write.as_f64().unwrap_or(f64::NAN);
        let number = serde_json::Number::from_f64(sum).map(Value::Number);
        number.ok_or_else(|| Uncombined(format!("`{self}` is beyond the numbers of 64 bits")))
    }

    /// Returns the larger or the smaller of two values; the first if they are equal.
    fn better(&self, current: Value, write: Value) -> Result<Value, Uncombined> {
        let ordering = match (&current, &write) {
            (Value::String(one), Value::String(two)) => Some(two.cmp(one)),
            (one, two) => order(two.view(), one.view()),
        };
        let wanted = if *self == Self::Max { Ordering::Greater } else { Ordering::Less };
        match ordering {
            Some(ordering) => Ok(if ordering == wanted { write } else { current }),
            None => {
                let (one, two) = (kind(&current), kind(&write));
                Err(Uncombined(format!("`{self}` cannot compare {two} with {one}")))
            }
        }
    }

    fn unfit(&self, current: &Value, wanted: &str) -> Uncombined {
        Uncombined(format!("`{self}` adds to {wanted}, and the channel holds {}", kind(current)))
    }
}

impl fmt::Display for Reducer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Uncombined {
    /// Says that two writes of one step give a field of an object different values.
    pub fn twice(field: &str) -> Self {
        Self(format!("`merge` received the field `{field}` twice in one step"))
    }

    /// Says that a function of the program is needed that is not there.
    pub fn missing(function: &ItemId) -> Self {
        Self(format!("`{function}` is a function of the program, which is not there"))
    }

    /// Says that a function of the program failed.
    pub fn failed(function: &ItemId, error: &ReducerError) -> Self {
        Self(format!("`{function}` {FAILED}{error}"))
    }

    /// Returns the failure of a function of the program that a message states.
    pub fn read_failure(function: &ItemId, message: &str) -> Option<ReducerError> {
        let why = message.strip_prefix(&format!("`{function}` "))?;
        why.strip_prefix(FAILED).map(ReducerError::from)
    }
}

/// The beginning of the message of a function of the program that failed, after its id.
const FAILED: &str = "failed: ";

/// Describes the kind of a value. The value itself may be a secret.
fn kind(value: &Value) -> String {
    if value.is_boolean() { "a boolean".to_owned() } else { describe(value.view()) }
}

fn merged(mut fields: Map<String, Value>, write: Value) -> Map<String, Value> {
    if let Value::Object(write) = write {
        for (name, value) in write {
            if !value.is_null() {
                fields.insert(name, value);
            }
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Combines a first value with writes, or says why not.
    fn combined(name: &str, first: Value, writes: &[Value]) -> Result<Value, String> {
        let reducer = Reducer::named(name).unwrap();
        assert_eq!(reducer.name(), name);
        let combine = |value, write: &Value| reducer.combine(value, write.clone()).map_err(|error| error.to_string());
        writes.iter().try_fold(first, combine)
    }

    #[test]
    fn each_reducer_does_what_its_row_in_the_format_says() {
        for (name, first, writes, expected) in [
            ("append", json!([1]), vec![json!(2), json!([3])], json!([1, 2, [3]])),
            ("append", json!(null), vec![json!("a")], json!(["a"])),
            ("extend", json!([1]), vec![json!([2, 2]), json!([])], json!([1, 2, 2])),
            ("union", json!(["a"]), vec![json!(["b", "a", "b"]), json!([3]), json!([3.0])], json!(["a", "b", 3])),
            ("sum", json!(0), vec![json!(2), json!(-5)], json!(-3)),
            ("sum", json!(0), vec![json!(2), json!(0.5)], json!(2.5)),
            ("max", json!(5), vec![json!(3), json!(4)], json!(5)),
            ("max", json!(null), vec![json!(3), json!(3.5), json!(3.5)], json!(3.5)),
            ("max", json!("b"), vec![json!("a"), json!("c")], json!("c")),
            ("min", json!(5), vec![json!(3), json!(4)], json!(3)),
            (
                "min",
                json!(9_007_199_254_740_993_i64),
                vec![json!(9_007_199_254_740_992.0)],
                json!(9_007_199_254_740_992.0),
            ),
            (
                "merge",
                json!({"a": 1, "b": {"c": 1}}),
                vec![json!({"b": {"d": 2}, "e": 3})],
                json!({"a": 1, "b": {"d": 2}, "e": 3}),
            ),
            ("merge", json!({"a": 1, "b": 2}), vec![json!({"a": null})], json!({"a": 1, "b": 2})),
            (
                "messages",
                json!([{"id": 1, "t": "a"}, {"t": "b"}]),
                vec![json!({"id": 1.0, "t": "c"}), json!([{"id": 2}, {"id": 2, "t": "d"}, {"id": null}])],
                json!([{"id": 1.0, "t": "c"}, {"t": "b"}, {"id": 2, "t": "d"}, {"id": null}]),
            ),
            ("last", json!(1), vec![json!(2), json!(null)], json!(null)),
        ] {
            assert_eq!(combined(name, first.clone(), &writes), Ok(expected), "{name} {first} {writes:?}");
        }
    }

    #[test]
    fn writes_that_surely_combine_do() {
        let values = json!([
            null, true, 0, -1, 7, i64::MAX, i64::MIN, 1_u64 << 63, 0.5, f64::MAX, "", "a", [], [1], [{"id": 1}], {}, {"id": 1}
        ]);
        let values = values.as_array().unwrap();
        for reducer in REDUCERS.map(|name| Reducer::named(name).unwrap()) {
            let mut sure = 0;
            for (current, write) in values.iter().flat_map(|current| values.iter().map(move |write| (current, write))) {
                let is_sure = reducer.check(write).is_ok() && reducer.surely_combines(current.view(), write);
                sure += usize::from(is_sure);
                let combined = reducer.combine(current.clone(), write.clone());
                assert!(!is_sure || combined.is_ok(), "{reducer}: {current} and {write}");
            }
            assert!(sure > 0, "{reducer}");
        }
    }

    #[test]
    fn values_of_another_kind_are_named_in_the_error() {
        for (name, first, write, error) in [
            ("append", json!([]), json!(null), "`append` takes a value, and found nothing"),
            ("extend", json!([]), json!("a"), "`extend` takes a list, and found a string"),
            ("union", json!({}), json!([1]), "`union` adds to a list, and the channel holds an object"),
            ("sum", json!(i64::MAX), json!(1), "`sum` is beyond the integers of 64 bits"),
            ("sum", json!(1_u64 << 63), json!(1), "`sum` is beyond the integers of 64 bits"),
            ("sum", json!(f64::MAX), json!(f64::MAX), "`sum` is beyond the numbers of 64 bits"),
            ("sum", json!("1"), json!(1), "`sum` adds to a number, and the channel holds a string"),
            ("max", json!("a"), json!(1), "`max` cannot compare an integer with a string"),
            ("min", json!(1), json!(true), "`min` takes a number or a text, and found a boolean"),
            ("merge", json!([1]), json!({}), "`merge` adds to an object, and the channel holds a list of 1"),
            (
                "messages",
                json!([]),
                json!([{}, 1]),
                "`messages` takes an object or a list of objects, and found a list with an integer",
            ),
        ] {
            assert_eq!(combined(name, first, &[write]), Err(error.to_owned()));
            for other in REDUCERS {
                assert_eq!(Reducer::named(other).unwrap().may_fail_with(error), other == name, "{other}: {error}");
            }
        }
        assert!(Reducer::Merge.may_fail_with(&Uncombined::twice("a").to_string()));
        for other in ["", "`sum`", "`sum` is beyond", "`sum` takes a list, and found a string", "`last` takes a value"]
        {
            assert!(REDUCERS.iter().all(|name| !Reducer::named(name).unwrap().may_fail_with(other)), "{other}");
        }
    }

    #[test]
    fn reducers_are_written_as_they_are_read() {
        for name in REDUCERS {
            let reducer = Reducer::named(name).unwrap();
            let text = serde_json::to_string(&reducer).unwrap();
            assert_eq!(serde_json::from_str::<Reducer>(&text).unwrap(), reducer);
        }
        assert_eq!(Reducer::named("Append"), None);
    }
}

//! The operators of conditions: one table, one meaning.

use std::cmp::Ordering;
use std::fmt::{self, Write as _};

use serde_json::Value;

use crate::value::{AsView, View, describe};

/// An operator of a condition (R78).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operator {
    /// Equal as JSON, numbers by value: `3` equals `3.0`, `"3"` does not (R81).
    Eq,
    /// Not equal; a missing path is unequal to everything but `null`.
    Ne,
    /// Greater; numbers by value, texts by code point (R82).
    Gt,
    /// Greater or equal.
    Gte,
    /// Less.
    Lt,
    /// Less or equal.
    Lte,
    /// Equal to one element of the list that is the value (R83).
    In,
    /// A text that has the value as a part, or a list that has it as an element (R84).
    Contains,
    /// A text, or the text of a number or boolean, that the pattern is found in (R85).
    Regex,
    /// Not null; the value is ignored (R86).
    Exists,
}

/// An operator with its spellings, as the format's page has them.
pub struct Row {
    /// The operator.
    pub operator: Operator,
    /// Its spelling.
    pub name: &'static str,
    /// Other spellings that existing graphs use (R79).
    pub aliases: &'static [&'static str],
}

impl Operator {
    /// Every operator with its spellings.
    pub const TABLE: [Row; 10] = [
        Row { operator: Self::Eq, name: "eq", aliases: &[] },
        Row { operator: Self::Ne, name: "ne", aliases: &["neq"] },
        Row { operator: Self::Gt, name: "gt", aliases: &[] },
        Row { operator: Self::Gte, name: "gte", aliases: &[] },
        Row { operator: Self::Lt, name: "lt", aliases: &[] },
        Row { operator: Self::Lte, name: "lte", aliases: &[] },
        Row { operator: Self::In, name: "in", aliases: &[] },
        Row { operator: Self::Contains, name: "contains", aliases: &[] },
        Row { operator: Self::Regex, name: "regex", aliases: &[] },
        Row { operator: Self::Exists, name: "exists", aliases: &[] },
    ];

    /// Finds the operator that is written `name`; the spelling must match, including case (R80).
    pub fn named(name: &str) -> Option<Self> {
        let row = Self::TABLE.iter().find(|row| row.name == name || row.aliases.contains(&name))?;
        Some(row.operator)
    }

    /// Returns the spelling.
    pub fn name(self) -> &'static str {
        Self::TABLE.iter().find(|row| row.operator == self).map_or("", |row| row.name)
    }

    /// As [`Operator::holds`] for two whole numbers, which most conditions compare; `None` for an operator of other values.
    #[inline]
    pub fn holds_of_integers(self, left: i64, right: i64) -> Option<bool> {
        match self {
            Self::Eq => Some(left == right),
            Self::Ne => Some(left != right),
            Self::Gt => Some(left > right),
            Self::Gte => Some(left >= right),
            Self::Lt => Some(left < right),
            Self::Lte => Some(left <= right),
            Self::In | Self::Contains | Self::Regex | Self::Exists => None,
        }
    }

    /// Compares the value at a path with the value that the graph names.
    ///
    /// `pattern` says whether a text matches the condition's regular expression; only [`Operator::Regex`] calls it.
    ///
    /// # Errors
    ///
    /// If the two cannot be compared this way, such as a text that is `gt` a number. That is an error of the node (R82, R84).
    pub fn holds(self, left: View<'_>, right: &Value, pattern: impl Fn(&str) -> bool) -> Result<bool, Incomparable> {
        let incomparable = || Incomparable { operator: self, left: describe(left), right: describe(right.view()) };
        let ordered = |accept: fn(Ordering) -> bool| match (left, compare(left, right.view())) {
            (View::Null, _) => Ok(false),
            (_, Some(ordering)) => Ok(accept(ordering)),
            (_, None) => Err(incomparable()),
        };
        match self {
            Self::Eq => Ok(equal(left, right.view())),
            Self::Ne => Ok(!equal(left, right.view())),
            Self::Gt => ordered(Ordering::is_gt),
            Self::Gte => ordered(Ordering::is_ge),
            Self::Lt => ordered(Ordering::is_lt),
            Self::Lte => ordered(Ordering::is_le),
            Self::In => match right {
                Value::Array(list) => Ok(list.iter().any(|element| equal(left, element.view()))),
                _ => Err(incomparable()),
            },
            Self::Contains => match (left, right) {
                (View::Null, _) => Ok(false),
                (View::Text(text), Value::String(part)) => Ok(text.contains(part)),
                (View::List(list), _) => Ok((0..list.len()).any(|index| equal(list.at(index), right.view()))),
                _ => Err(incomparable()),
            },
            Self::Regex => match left {
                View::Null => Ok(false),
                View::Text(text) => Ok(pattern(text)),
                View::Boolean(_) | View::Integer(_) | View::Large(_) | View::Float(_) => {
                    let mut text = String::new();
                    left.write_text(&mut text);
                    Ok(pattern(&text))
                }
                View::List(_) | View::Object(_) | View::Secret(_) => Err(incomparable()),
            },
            Self::Exists => Ok(!left.is_null()),
        }
    }
}

impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Two values that an operator cannot compare.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{operator}` cannot compare {left} with {right}")]
pub struct Incomparable {
    /// The operator.
    pub operator: Operator,
    /// The value on the left, in words.
    pub left: String,
    /// The value on the right, in words.
    pub right: String,
}

/// Whether two values are equal as JSON, numbers by value, fields in any order.
#[inline]
pub fn equal(left: View<'_>, right: View<'_>) -> bool {
    match (left, right) {
        (View::Null, View::Null) => true,
        (View::Boolean(left), View::Boolean(right)) => left == right,
        (View::Text(left), View::Text(right)) => left == right,
        (View::List(left), View::List(right)) => {
            left.len() == right.len() && (0..left.len()).all(|index| equal(left.at(index), right.at(index)))
        }
        (View::Object(left), View::Object(right)) => {
            let (mut same, mut count) = (true, 0);
            // A field that is null counts as absent, in typed values and in others.
            left.each(&mut |name, field| {
                count += i64::from(!field.is_null());
                same = same && equal(field, right.get(name));
            });
            right.each(&mut |_, field| count -= i64::from(!field.is_null()));
            same && count == 0
        }
        _ => order(left, right) == Some(Ordering::Equal),
    }
}

/// Returns a text that two values have in common exactly if they are [`equal`].
pub fn identity(view: View<'_>) -> String {
    let mut text = String::new();
    write_identity(view, &mut text);
    text
}

fn write_identity(view: View<'_>, text: &mut String) {
    let push = |text: &mut String, part: fmt::Arguments<'_>| text.write_fmt(part).unwrap_or_default();
    match view.expose() {
        View::Null => text.push('n'),
        View::Boolean(value) => push(text, format_args!("{value}")),
        View::Integer(value) => push(text, format_args!("{value}")),
        View::Large(value) => push(text, format_args!("{value}")),
        // Within these bounds a whole number has the same digits as an integer; no integer is beyond them.
        View::Float(value) if value.fract() == 0.0 && value.abs() < 1e20 => {
            push(text, format_args!("{}", value as i128));
        }
        View::Float(value) => push(text, format_args!("f{value:e}")),
        View::Text(value) => push(text, format_args!("{value:?}")),
        View::List(list) => {
            text.push('[');
            for index in 0..list.len() {
                write_identity(list.at(index), text);
                text.push(',');
            }
            text.push(']');
        }
        View::Object(object) => {
            let mut fields = Vec::new();
            object.each(&mut |name, field| {
                if !field.is_null() {
                    fields.push(format!("{name:?}:{}", identity(field)));
                }
            });
            fields.sort_unstable();
            push(text, format_args!("{{{}}}", fields.join(",")));
        }
        View::Secret(_) => text.push('?'),
    }
}

fn compare(left: View<'_>, right: View<'_>) -> Option<Ordering> {
    match (left, right) {
        (View::Text(left), View::Text(right)) => Some(left.cmp(right)),
        _ => order(left, right),
    }
}

/// Compares two numbers by value, exactly; `None` if one of them is not a number.
pub fn order(left: View<'_>, right: View<'_>) -> Option<Ordering> {
    let whole = |view| match view {
        View::Integer(value) => Some(i128::from(value)),
        View::Large(value) => Some(i128::from(value)),
        _ => None,
    };
    match (left, right) {
        (View::Float(left), View::Float(right)) => left.partial_cmp(&right),
        (View::Float(left), _) => Some(compare_with_float(whole(right)?, left).reverse()),
        (_, View::Float(right)) => Some(compare_with_float(whole(left)?, right)),
        _ => Some(whole(left)?.cmp(&whole(right)?)),
    }
}

/// Compares by value, exactly: turning the integer into a float would make 2^53 + 1 equal to 2^53.
fn compare_with_float(integer: i128, float: f64) -> Ordering {
    const BEYOND: f64 = 36_893_488_147_419_103_232.0; // 2^65, above every integer that JSON holds here
    if float >= BEYOND {
        return Ordering::Less;
    }
    if float <= -BEYOND {
        return Ordering::Greater;
    }
    let floor = float.floor();
    integer.cmp(&(floor as i128)).then(if float > floor { Ordering::Less } else { Ordering::Equal })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn holds(left: Value, name: &str, right: Value) -> Result<bool, String> {
        let pattern = |text: &str| text.contains(right.as_str().unwrap());
        Operator::named(name).unwrap().holds(left.view(), &right, pattern).map_err(|error| error.to_string())
    }

    #[test]
    fn each_operator_does_what_its_row_in_the_format_says() {
        let big = 9_007_199_254_740_993_i64; // 2^53 + 1
        for (left, name, right, expected) in [
            (json!(3), "eq", json!(3.0), true),
            (json!("3"), "eq", json!(3), false),
            (json!(true), "eq", json!(1), false),
            (json!(null), "eq", json!(null), true),
            (json!({"a": 1, "b": [2]}), "eq", json!({"b": [2.0], "a": 1}), true),
            (json!({"a": 1}), "eq", json!({"a": 1, "b": 2}), false),
            (json!({"a": null}), "eq", json!({"b": null}), true),
            (json!({"a": null}), "eq", json!({}), true),
            (json!({}), "eq", json!({"a": null}), true),
            (json!({"a": null, "b": 1}), "eq", json!({"a": 1}), false),
            (json!(big), "eq", json!(9_007_199_254_740_992.0), false),
            (json!(null), "ne", json!(1), true),
            (json!(null), "ne", json!(null), false),
            (json!("x"), "neq", json!("x"), false),
            (json!(2), "gt", json!(1.5), true),
            (json!(1), "gt", json!(1.5), false),
            (json!(-1), "gt", json!(-1.5), true),
            (json!(u64::MAX), "gt", json!(i64::MAX), true),
            (json!(u64::MAX), "lt", json!(1e300), true),
            (json!(null), "gt", json!(1), false),
            (json!("b"), "gt", json!("a"), true),
            (json!(3), "gte", json!(3), true),
            (json!(3), "lte", json!(3.0), true),
            (json!(3), "lt", json!(3), false),
            (json!(null), "in", json!([null, 1]), true),
            (json!(1.0), "in", json!([1]), true),
            (json!(2), "in", json!([1]), false),
            (json!("hello"), "contains", json!("ell"), true),
            (json!("hello"), "contains", json!(""), true),
            (json!(["a", 1]), "contains", json!(1.0), true),
            (json!(["hello"]), "contains", json!("ell"), false),
            (json!(null), "contains", json!("x"), false),
            (json!("abc"), "regex", json!("b"), true),
            (json!(42), "regex", json!("4"), true),
            (json!(null), "regex", json!("x"), false),
            (json!(0), "exists", json!(false), true),
            (json!([]), "exists", json!(null), true),
            (json!(null), "exists", json!(true), false),
        ] {
            assert_eq!(holds(left.clone(), name, right.clone()), Ok(expected), "{left} {name} {right}");
            if let (Some(left), Some(right)) = (left.as_i64(), right.as_i64()) {
                let short = Operator::named(name).unwrap().holds_of_integers(left, right);
                assert!(short.is_none_or(|short| short == expected), "{left} {name} {right}");
            }
        }
    }

    #[test]
    fn values_that_cannot_be_compared_are_both_named_in_the_error() {
        for (left, name, right, error) in [
            (json!("3"), "gt", json!(3), "`gt` cannot compare a string with an integer"),
            (json!(true), "lt", json!(1), "`lt` cannot compare `true` with an integer"),
            (json!(1), "lte", json!(null), "`lte` cannot compare an integer with nothing"),
            (json!("a"), "in", json!("abc"), "`in` cannot compare a string with a string"),
            (json!("a1"), "contains", json!(1), "`contains` cannot compare a string with an integer"),
            (json!({}), "contains", json!("a"), "`contains` cannot compare an object with a string"),
            (json!([1]), "regex", json!("1"), "`regex` cannot compare a list of 1 with a string"),
        ] {
            assert_eq!(holds(left, name, right), Err(error.to_owned()));
        }
    }

    fn value() -> BoxedStrategy<Value> {
        let leaf = prop_oneof![
            (-2_i64..3).prop_map(Value::from),
            prop_oneof![Just(json!(1.0)), Just(json!(0.5)), Just(json!(-0.0)), Just(json!(1e20)), Just(json!(1e19))],
            prop_oneof![Just(json!(i64::MAX)), Just(json!(u64::MAX)), Just(json!(9_223_372_036_854_775_807.0))],
            prop_oneof![Just("1"), Just(""), Just("a"), Just("\"a\""), Just("n")].prop_map(Value::from),
            any::<bool>().prop_map(Value::from),
            Just(Value::Null),
        ];
        leaf.prop_recursive(2, 6, 3, |inner| {
            let name = prop_oneof![Just("a"), Just("b"), Just("")];
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::vec((name, inner), 0..3).prop_map(|fields| Value::Object(
                    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
                )),
            ]
        })
        .boxed()
    }

    proptest! {
        #[test]
        fn values_have_one_identity_exactly_if_they_are_equal(one in value(), other in value()) {
            prop_assert_eq!(equal(one.view(), other.view()), identity(one.view()) == identity(other.view()));
        }
    }

    #[test]
    fn operators_are_found_by_their_spelling_only() {
        for row in Operator::TABLE {
            assert_eq!(Operator::named(row.name), Some(row.operator));
            assert_eq!(row.operator.name(), row.name);
            assert!(row.aliases.iter().all(|alias| Operator::named(alias) == Some(row.operator)));
        }
        assert_eq!(Operator::named("EQ"), None);
        assert_eq!(Operator::named("matches"), None);
    }
}

//! Numbers: whole numbers and floats, each as it was given.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::operator::{equal, order};
use crate::unique::Unique;
use crate::value::{AsView, FromValue, Mismatch, View};

/// A number whose schema says no more than that: `type: number`, or a place that accepts whole numbers and fractions.
///
/// It stays what it was: a whole number keeps all its digits, and `3` is not turned into `3.0`. Two are equal if they have the
/// same value, exactly, as in conditions: `3` equals `3.0`, and 2^53 + 1 does not equal the float 2^53.
///
/// ```
/// # use graph_model::number as graph_runtime;
/// use graph_runtime::Number;
///
/// let (count, price) = (Number::from(3), Number::from(2.5));
/// assert_eq!(count.as_f64() * price.as_f64(), 7.5);
/// assert_eq!((count.as_i64(), price.as_i64()), (Some(3), None));
/// assert_eq!((count.to_string(), price.to_string()), ("3".to_owned(), "2.5".to_owned()));
/// assert!(count == 3 && count == 3.0 && count > price);
/// ```
#[derive(Clone, Copy)]
pub struct Number(Repr);

#[derive(Clone, Copy)]
enum Repr {
    Integer(i64),
    /// Above `i64::MAX`.
    Large(u64),
    Float(f64),
}

impl Number {
    /// Returns the number as a float: the nearest one, where a whole number has more digits than a float.
    #[must_use]
    pub const fn as_f64(self) -> f64 {
        match self.0 {
            Repr::Integer(number) => number as f64,
            Repr::Large(number) => number as f64,
            Repr::Float(number) => number,
        }
    }

    /// Returns the whole number, if it is one that fits; `None` for a float, also for one without a fraction.
    #[must_use]
    pub const fn as_i64(self) -> Option<i64> {
        match self.0 {
            Repr::Integer(number) => Some(number),
            Repr::Large(_) | Repr::Float(_) => None,
        }
    }

    /// Returns the whole number, if it is one that fits; `None` for a float, also for one without a fraction.
    #[must_use]
    pub const fn as_u64(self) -> Option<u64> {
        match self.0 {
            Repr::Integer(number) if number >= 0 => Some(number.unsigned_abs()),
            Repr::Large(number) => Some(number),
            Repr::Integer(_) | Repr::Float(_) => None,
        }
    }

    /// Whether it is a whole number and no float.
    #[must_use]
    pub const fn is_integer(self) -> bool {
        !matches!(self.0, Repr::Float(_))
    }
}

impl Default for Number {
    /// Returns 0, a whole number.
    fn default() -> Self {
        Self(Repr::Integer(0))
    }
}

impl From<i64> for Number {
    fn from(number: i64) -> Self {
        Self(Repr::Integer(number))
    }
}

impl From<i32> for Number {
    fn from(number: i32) -> Self {
        Self::from(i64::from(number))
    }
}

impl From<u32> for Number {
    fn from(number: u32) -> Self {
        Self::from(i64::from(number))
    }
}

impl From<u64> for Number {
    fn from(number: u64) -> Self {
        i64::try_from(number).map_or(Self(Repr::Large(number)), Self::from)
    }
}

impl From<f64> for Number {
    /// A float that is not finite is null in JSON (R205).
    fn from(number: f64) -> Self {
        Self(Repr::Float(number))
    }
}

impl From<f32> for Number {
    fn from(number: f32) -> Self {
        Self::from(f64::from(number))
    }
}

impl PartialEq for Number {
    fn eq(&self, other: &Self) -> bool {
        equal(self.view(), other.view())
    }
}

impl PartialEq<i64> for Number {
    fn eq(&self, other: &i64) -> bool {
        *self == Self::from(*other)
    }
}

impl PartialEq<f64> for Number {
    fn eq(&self, other: &f64) -> bool {
        *self == Self::from(*other)
    }
}

impl PartialOrd for Number {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        order(self.view(), other.view())
    }
}

impl PartialOrd<i64> for Number {
    fn partial_cmp(&self, other: &i64) -> Option<Ordering> {
        self.partial_cmp(&Self::from(*other))
    }
}

impl PartialOrd<f64> for Number {
    fn partial_cmp(&self, other: &f64) -> Option<Ordering> {
        self.partial_cmp(&Self::from(*other))
    }
}

impl fmt::Display for Number {
    /// Writes the number as in a text of a graph, and as in JSON.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        self.view().write_text(&mut text);
        f.pad(&text)
    }
}

impl fmt::Debug for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl AsView for Number {
    #[inline]
    fn view(&self) -> View<'_> {
        match self.0 {
            Repr::Integer(number) => View::Integer(number),
            Repr::Large(number) => View::Large(number),
            Repr::Float(number) => number_or_null(number),
        }
    }
}

/// JSON has no number for a float that is not finite.
fn number_or_null(number: f64) -> View<'static> {
    if number.is_finite() { View::Float(number) } else { View::Null }
}

impl FromValue for Number {
    fn from_value(value: Value) -> Result<Self, Mismatch> {
        match value.view() {
            View::Integer(number) => Ok(Self(Repr::Integer(number))),
            View::Large(number) => Ok(Self(Repr::Large(number))),
            View::Float(number) => Ok(Self(Repr::Float(number))),
            other => Err(Mismatch::new("a number", other)),
        }
    }

    fn blank() -> Self {
        Self::default()
    }

    fn wipe(&mut self) {
        match &mut self.0 {
            Repr::Integer(number) => zeroize::Zeroize::zeroize(number),
            Repr::Large(number) => zeroize::Zeroize::zeroize(number),
            Repr::Float(number) => zeroize::Zeroize::zeroize(number),
        }
    }
}

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.view().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::from_value(Value::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

/// Why a text is not read as JSON.
#[derive(Debug, thiserror::Error)]
pub enum JsonError {
    /// It is not JSON.
    #[error(transparent)]
    Syntax(serde_json::Error),
    /// An object in it has a name twice. Readers of JSON disagree on which of the two counts.
    #[error(transparent)]
    Twice(serde_json::Error),
    /// A whole number in it is below -2^63 or above 2^64-1. Reading it as a float would lose digits.
    #[error(
        "the whole number `{number}` is beyond 64 bits, at line {line} column {column}: put it in quotes, as a string"
    )]
    TooLarge {
        /// The number as it is written; a long one is cut.
        number: String,
        /// The line, from 1.
        line: usize,
        /// The byte in the line, from 1.
        column: usize,
    },
}

/// Reads a text as JSON in which every whole number keeps its digits, and no object has a name twice. `-0` is the whole number 0.
///
/// # Errors
///
/// If it is not JSON, an object has a name twice, or a whole number is beyond 64 bits.
pub fn read_json(text: &str) -> Result<Value, JsonError> {
    let text = &*without_minus_zero(text);
    let Unique(value) = serde_json::from_str(text)
        .map_err(|error| if error.is_data() { JsonError::Twice(error) } else { JsonError::Syntax(error) })?;
    match beyond(text) {
        None => Ok(value),
        Some(at) => {
            let before = &text[..at];
            let line = before.matches('\n').count() + 1;
            let column = at - before.rfind('\n').map_or(0, |newline| newline + 1) + 1;
            let digits = text[at..].bytes().take_while(|byte| is_part(*byte)).count();
            let number = match digits {
                ..=30 => text[at..at + digits].to_owned(),
                _ => format!("{}…", &text[at..at + 24]),
            };
            Err(JsonError::TooLarge { number, line, column })
        }
    }
}

/// Whether a byte can be a part of a JSON number.
const fn is_part(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E')
}

/// Returns the text with ` 0` in the place of `-0`, which would be read as the float -0.0.
fn without_minus_zero(text: &str) -> Cow<'_, str> {
    let mut changed = Cow::Borrowed(text);
    for (at, token) in tokens(text) {
        if token == "-0" {
            changed.to_mut().replace_range(at..=at, " ");
        }
    }
    changed
}

/// Returns where a whole number beyond 64 bits begins in a text that is JSON.
fn beyond(text: &str) -> Option<usize> {
    // Every whole number of up to 18 digits fits.
    const ALWAYS_FITS: usize = 18;
    let is_beyond = |token: &str| {
        let is_whole = !token.bytes().any(|byte| matches!(byte, b'.' | b'e' | b'E'));
        token.len() > ALWAYS_FITS && is_whole && token.parse::<i64>().is_err() && token.parse::<u64>().is_err()
    };
    tokens(text).find(|(_, token)| is_beyond(token)).map(|(at, _)| at)
}

/// Returns the numbers in a text that is JSON, and where they begin.
fn tokens(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let bytes = text.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < bytes.len() {
            match bytes[at] {
                b'"' => {
                    at += 1;
                    while at < bytes.len() && bytes[at] != b'"' {
                        at += if bytes[at] == b'\\' { 2 } else { 1 };
                    }
                    at += 1;
                }
                byte if is_part(byte) && !matches!(byte, b'e' | b'E') => {
                    let length = bytes[at..].iter().take_while(|byte| is_part(**byte)).count();
                    at += length;
                    return Some((at - length, &text[at - length..at]));
                }
                // The `e` of `true` and `false` begins no number.
                _ => at += 1,
            }
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_number_stays_what_it_was() {
        for text in
            ["3", "3.0", "-7", "9007199254740993", "18446744073709551615", "-9223372036854775808", "1e-7", "-0.0"]
        {
            let value: Value = serde_json::from_str(text).unwrap();
            let number = Number::from_value(value.clone()).unwrap();
            assert_eq!(number.view().to_value(), value, "{text}");
            assert_eq!(number.to_string(), value.to_string());
            assert_eq!(serde_json::to_string(&number).unwrap(), value.to_string());
            assert_eq!(number.is_integer(), !value.is_f64(), "{text}");
        }
        assert!(Number::from_value(json!("3")).is_err() && Number::from_value(json!(null)).is_err());
        assert_eq!(Number::from(f64::NAN).view().to_value(), Value::Null);
    }

    #[test]
    fn numbers_compare_by_value_and_exactly() {
        let big = 9_007_199_254_740_993_i64;
        assert_eq!(Number::from(3), Number::from(3.0));
        assert!(Number::from(big) != 9_007_199_254_740_992.0 && Number::from(big) > 9_007_199_254_740_992.0);
        assert!(Number::from(u64::MAX) > Number::from(i64::MAX) && Number::from(-1_i64) < Number::from(u64::MAX));
        assert_eq!(Number::from(7_u64).as_i64(), Some(7));
        assert_eq!(Number::from(-7).as_u64(), None);
    }

    #[test]
    fn json_with_an_integer_beyond_64_bits_is_refused() {
        let said = |text: &str| read_json(text).map_err(|error| error.to_string());
        for text in ["18446744073709551615", "-9223372036854775808", "1e300", "[0.1, \"99999999999999999999\", true]"] {
            assert!(said(text).is_ok(), "{text}");
        }
        assert_eq!(
            said("{\"a\\\"\": 1,\n  \"b\": [false, 18446744073709551616]}").unwrap_err(),
            "the whole number `18446744073709551616` is beyond 64 bits, at line 2 column 16: put it in quotes, as a string"
        );
        assert!(said("-9223372036854775809").unwrap_err().contains("`-9223372036854775809`"));
        assert!(said(&"9".repeat(200)).unwrap_err().contains("9…` is beyond"));
        assert!(said("[1,").is_err());
    }

    #[test]
    fn minus_zero_without_a_fraction_is_a_whole_number() {
        let read = |text: &str| read_json(text).unwrap().to_string();
        assert_eq!(read("-0"), "0");
        assert_eq!(read(r#"{"a": [-0,-0.0, -0e1, "-0", 0], "-0": -10}"#), r#"{"a":[0,-0.0,-0.0,"-0",0],"-0":-10}"#);
        for text in ["--0", "-00", "1-0", "-0x", "[-0 -0]", "\"-0"] {
            assert!(read_json(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_can_be_searched_for_large_integers(text in r#"([-0-9.eE"\\é,:\[\]{}]|true|[0-9]{18,22}){0,12}"#) {
            drop(read_json(&text));
            if let Some(at) = beyond(&text) {
                prop_assert!(text.is_char_boundary(at));
            }
        }

        #[test]
        fn integers_of_any_length_are_exact_or_refused(text in "(-?[1-9][0-9]{0,24}|0)") {
            match read_json(&format!("[{text}]")) {
                Ok(value) => prop_assert_eq!(value.to_string(), format!("[{text}]")),
                Err(_) => prop_assert!(text.parse::<i64>().is_err() && text.parse::<u64>().is_err()),
            }
        }
    }
}

//! Values that contain the time of their computation, which is recorded nowhere else.

use std::collections::BTreeSet;
use std::iter::once;
use std::time::SystemTime;

use graph_model::timestamp::{from_unix_milliseconds, parse, seconds, unix_milliseconds};
use graph_model::value::{Map, Value};

/// A value as computed at some time.
#[derive(Debug, Clone)]
pub(super) struct Dated {
    at: SystemTime,
    value: Value,
}

/// The time as expressions see it: as text, and in milliseconds.
struct DatedTime {
    text: String,
    milliseconds: i64,
}

impl DatedTime {
    fn of(at: SystemTime) -> Self {
        Self { text: seconds(at), milliseconds: unix_milliseconds(at) }
    }

    fn is_in(&self, text: &str) -> bool {
        text.contains(&self.text) || text.contains(&self.milliseconds.to_string())
    }
}

impl Dated {
    /// Computes a value at two arbitrary times. If one of them occurs nowhere else in the value, that one shows where the
    /// value contains the time.
    pub(super) fn each(compute: impl Fn(SystemTime) -> Option<Value>) -> Vec<Self> {
        let times = [181_370_264_519_873, 193_710_582_943_391].map(from_unix_milliseconds);
        times.into_iter().filter_map(|at| Some(Self { at, value: compute(at)? })).collect()
    }

    /// Whether the value, computed at any time, can have become `said`; `becomes` is the test for one value.
    pub(super) fn may_be(&self, said: &Value, becomes: impl Fn(Value) -> bool) -> bool {
        let from = DatedTime::of(self.at);
        let mut times = BTreeSet::new();
        find(&self.value, said, &from, &mut times);
        once(self.at).chain(times).any(|to| becomes(moved(&self.value, &from, &DatedTime::of(to))))
    }
}

/// Collects the times that `said` may contain where a value contains `from`.
fn find(value: &Value, said: &Value, from: &DatedTime, times: &mut BTreeSet<SystemTime>) {
    match (value, said) {
        (Value::Array(list), Value::Array(said)) => {
            list.iter().zip(said).for_each(|(value, said)| find(value, said, from, times));
        }
        (Value::Object(map), Value::Object(said)) => {
            let pairs = map.iter().filter_map(|(name, value)| Some((value, said.get(name)?)));
            pairs.for_each(|(value, said)| find(value, said, from, times));
        }
        (Value::Number(number), said) if number.as_i64() == Some(from.milliseconds) => {
            let whole = said.as_i64().or_else(|| said.as_f64().map(|number| number as i64));
            times.extend(whole.map(from_unix_milliseconds));
        }
        (Value::String(text), Value::String(said)) => times.extend(times_in(text, said, from)),
        _ => {}
    }
}

/// Returns the times that `said` may contain where a text contains `from`. The part before the first occurrence has the
/// same length in both.
fn times_in(text: &str, said: &str, from: &DatedTime) -> Vec<SystemTime> {
    let place = |time: &str| text.find(time).and_then(|at| said.get(at..));
    let spelt = place(&from.text).and_then(|rest| parse(rest.get(..from.text.len())?));
    let digits = place(&from.milliseconds.to_string()).unwrap_or_default();
    let count = digits.bytes().take_while(u8::is_ascii_digit).count().min(MOST_DIGITS);
    let counted = (1..=count).filter_map(|count| digits[..count].parse().ok().map(from_unix_milliseconds));
    spelt.into_iter().chain(counted).collect()
}

/// The maximum number of digits of the milliseconds since the Unix epoch.
const MOST_DIGITS: usize = 15;

/// Returns a value with the time `from` replaced by `to`.
fn moved(value: &Value, from: &DatedTime, to: &DatedTime) -> Value {
    match value {
        Value::Array(list) => list.iter().map(|value| moved(value, from, to)).collect(),
        Value::Object(map) => {
            let moved = map.iter().map(|(name, value)| (name.clone(), moved(value, from, to)));
            Value::Object(moved.collect::<Map<String, Value>>())
        }
        Value::Number(number) if number.as_i64() == Some(from.milliseconds) => Value::from(to.milliseconds),
        Value::String(text) if from.is_in(text) => {
            let text = text.replace(&from.text, &to.text);
            Value::from(text.replace(&from.milliseconds.to_string(), &to.milliseconds.to_string()))
        }
        _ => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn is_one_of(template: impl Fn(&DatedTime) -> Value, said: &Value) -> bool {
        let dated = Dated::each(|at| Some(template(&DatedTime::of(at))));
        dated.iter().any(|dated| dated.may_be(said, |value| value == *said))
    }

    #[test]
    fn a_dated_value_is_recognized_at_any_time() {
        let template = |time: &DatedTime| json!({"at": format!("a {} b {}", time.text, time.milliseconds), "list": [time.milliseconds, 7], "text": time.text});
        let at = DatedTime::of(from_unix_milliseconds(1_795_000_000_123));
        assert!(is_one_of(template, &template(&at)));
        for (name, other) in [
            ("at", json!(format!("a {} b {}", at.text, at.milliseconds + 1))),
            ("at", json!(format!("a {} b", at.text))),
            ("list", json!([at.milliseconds, 8])),
            ("list", json!([at.milliseconds + 1000, 7])),
            ("text", json!("2026-11-22T06:07:11Z")),
        ] {
            let mut said = template(&at);
            said[name] = other;
            assert!(!is_one_of(template, &said), "{said}");
        }
    }

    #[test]
    fn a_long_text_with_many_digits_takes_no_time() {
        let digits = "1795000000123 2026-11-22T06:07:11Z ".repeat(100_000);
        let template = |time: &DatedTime| json!(format!("{digits}{} {}", time.milliseconds, time.text));
        let at = DatedTime::of(from_unix_milliseconds(42));
        assert!(is_one_of(template, &template(&at)));
        assert!(!is_one_of(template, &json!(format!("{digits}42 x"))));
    }
}

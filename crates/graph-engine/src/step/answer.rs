//! The interpretation of a call's answer, and the messages for calls that were not answered.

use std::time::Duration;

use graph_model::capability::Capability;
use graph_model::value::{AsView, MOST_LEVELS, Map, Value, View};

use crate::failure::Failure;
use crate::graph::CompiledTool;
use crate::tool_caller::Request;

/// The message of a call of a graph that the program does not have.
pub const NO_GRAPH: &str = "the program has no such graph";

/// Returns the message of a call that took longer than it may.
pub fn timed_out(limit: Duration) -> String {
    format!("it timed out after {}", graph_model::duration::shown(limit))
}

/// Returns the message of an action on items for which the runtime has no spaces.
pub fn no_spaces(tool: &CompiledTool) -> String {
    format!("the runtime has no spaces to {} items in: name them with `Builder::spaces`", tool.verb.name())
}

/// Returns the message of a call that the run may not make; `is_none` if the run was granted nothing at all.
pub fn denied(tool: &CompiledTool, request: &Request, is_none: bool) -> String {
    let id = request.id.as_ref().or(tool.id.as_ref());
    if is_none {
        let (verb, item, id) = (tool.verb.name(), tool.item.name(), id.map_or("", |id| id.as_str()));
        return format!("Permission denied: no capabilities. Cannot {verb} {item} '{id}'");
    }
    format!("Permission denied: '{}' not covered by capabilities", Capability::new(tool.verb, tool.item, id))
}

/// Returns the element that a list of results holds for a result: only the id, if it is a thread that continues by itself
/// (R108).
pub fn element(result: Value) -> Value {
    match result {
        Value::Object(mut map) if map.contains_key("thread_id") && !map.contains_key("outputs") => {
            map.remove("thread_id").unwrap_or_default()
        }
        other => other,
    }
}

/// Examines a tool's result: unwraps it if no contract describes it, and fails if it reports a failure (R119, R180–R182).
/// Returns the result if it differs from the one that the tool caller holds.
pub fn judge(tool: &CompiledTool, outcome: View<'_>) -> Result<Option<Value>, Box<Failure>> {
    if tool.typed {
        return match failed(tool.nests, outcome) {
            Some(failure) => Err(failure),
            None => tool.returns(outcome).map(|()| None),
        };
    }
    let value = unwrap(outcome.to_value());
    match failed(true, value.view()) {
        Some(failure) => Err(failure),
        None => Ok(Some(value)),
    }
}

/// Returns the failure that a result reports. If it `nests`, a result too deep to be read back from a journal is a failure
/// too.
#[inline]
pub fn failed(nests: bool, result: View<'_>) -> Option<Box<Failure>> {
    if nests && !result.is_within(MOST_LEVELS) {
        return Some(too_deep());
    }
    let View::Object(record) = result else { return None };
    let says_so = matches!(record.get("status").expose(), View::Text("error"))
        || matches!(record.get("success").expose(), View::Boolean(false));
    says_so.then(|| reported_failure(result))
}

/// Drops a failure's data, which edges see, if it is nested too deeply to be read back from a journal.
pub fn readable(mut failure: Box<Failure>) -> Box<Failure> {
    if failure.data.as_ref().is_some_and(|data| !data.view().is_within(MOST_LEVELS)) {
        failure.data = None;
    }
    failure
}

#[cold]
fn too_deep() -> Box<Failure> {
    Box::new(Failure::permanent(format!("expected a value of at most {MOST_LEVELS} levels, found a deeper one")))
}

#[cold]
fn reported_failure(result: View<'_>) -> Box<Failure> {
    let error = result.step("error").expose();
    let message = match error.step("message") {
        View::Text(message) => message.to_owned(),
        _ if error.is_null() => "unknown".to_owned(),
        // A text as it is, anything else as JSON.
        _ => {
            let mut text = String::new();
            error.write_text(&mut text);
            text
        }
    };
    Box::new(Failure::reported(message, result.to_plain_value()))
}

/// The members of an envelope besides the tool's result.
const ENVELOPE: [&str; 5] = ["chain", "metadata", "path", "source", "resolved_env_keys"];

/// Takes a tool's answer out of its envelope (R180–R182).
///
/// An envelope is an object with a `status`, and with `data` or a `chain`. If its `data` is an object, that is the answer.
/// Otherwise, the answer is the envelope without the members that `ENVELOPE` names. Any other object is the answer itself.
fn unwrap(answer: Value) -> Value {
    let mut map = match answer {
        Value::Object(map) => map,
        Value::Null => return Value::Object(Map::new()),
        other => return Value::Object(Map::from_iter([("result".to_owned(), other)])),
    };
    let is_envelope = map.contains_key("status") && (map.contains_key("data") || map.contains_key("chain"));
    if !is_envelope {
        return Value::Object(map);
    }
    map.retain(|name, _| !ENVELOPE.contains(&name.as_str()));
    let failed = map.get("status").and_then(Value::as_str) == Some("error");
    let error = map.get("error").cloned();
    let mut inner = match map.get_mut("data").map(Value::take) {
        Some(Value::Object(inner)) => inner,
        Some(data) => {
            map.insert("data".to_owned(), data);
            return Value::Object(map);
        }
        None => return Value::Object(map),
    };
    let failed = failed || inner.get("success") == Some(&Value::Bool(false));
    if failed {
        inner.insert("status".to_owned(), Value::from("error"));
        if let Some(error) = error {
            inner.entry("error").or_insert(error);
        }
    }
    Value::Object(inner)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_envelope_is_taken_off_and_nothing_inside_is_lost() {
        for (answer, expected) in [
            (
                json!({"status": "success", "data": {"stdout": "42", "path": "a"}, "path": "b"}),
                json!({"stdout": "42", "path": "a"}),
            ),
            (
                json!({"status": "error", "data": {"x": 1}, "error": "no"}),
                json!({"x": 1, "status": "error", "error": "no"}),
            ),
            (
                json!({"status": "error", "data": {"error": "in"}, "error": "out"}),
                json!({"error": "in", "status": "error"}),
            ),
            (json!({"status": "success", "data": {"success": false}}), json!({"success": false, "status": "error"})),
            (json!({"status": "success", "data": "text", "chain": []}), json!({"status": "success", "data": "text"})),
            (json!({"path": "a", "source": "b"}), json!({"path": "a", "source": "b"})),
            (json!({"data": {"rows": 1}, "total": 2}), json!({"data": {"rows": 1}, "total": 2})),
            (json!("text"), json!({"result": "text"})),
            (json!(null), json!({})),
        ] {
            assert_eq!(unwrap(answer.clone()), expected, "{answer}");
        }
    }

    #[test]
    fn a_result_that_says_it_failed_is_a_failure() {
        let message = |result: Value| failed(true, result.view()).map(|failure| failure.message);
        assert_eq!(message(json!({"success": false, "error": "no"})), Some("no".into()));
        assert_eq!(message(json!({"status": "error"})), Some("unknown".into()));
        assert_eq!(message(json!({"status": "error", "error": {"message": "deep"}})), Some("deep".into()));
        assert_eq!(message(json!({"status": "error", "error": {"m": 1}})), Some(r#"{"m":1}"#.into()));
        assert_eq!(message(json!({"status": "error", "error": [404, null]})), Some("[404,null]".into()));
        assert_eq!(message(json!({"success": 0})), None);
        assert_eq!(message(json!({"status": "ok"})), None);
        let nested = |levels| (0..levels).fold(json!({}), |inner, _| json!([inner]));
        assert_eq!(message(nested(MOST_LEVELS - 1)), None);
        let deep = Some("expected a value of at most 100 levels, found a deeper one".into());
        assert_eq!(message(nested(MOST_LEVELS)), deep);
    }
}

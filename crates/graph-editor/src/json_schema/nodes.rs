//! Schemas of nodes and edges.

use graph_compiler::vocabulary;
use graph_model::path::Root;
use graph_model::program::{MOST_BRANCHES, Retry};
use graph_model::value::Value;
use serde_json::json;

use super::SchemaBasis;
use super::patterns;
use super::patterns::PathScope;
use super::pieces::{
    anything, described, documented, duration, env, integer, nullable, offering, only, reference, spend, text,
    with_default,
};
use crate::texts;

impl SchemaBasis {
    pub(super) fn edge(&self) -> Value {
        only(&vocabulary::EDGE, |field| {
            let schema = match field {
                "to" => nullable(reference("target")),
                "when" => nullable(reference("condition")),
                "description" => nullable(json!({ "type": "string" })),
                "comment" => anything(),
                _ => json!({}),
            };
            documented(schema, "edge", field)
        })
    }

    /// Returns the schema of a `next` that is a mapping.
    pub(super) fn route(&self) -> Value {
        let edges = || {
            // An edge that begins a branch names its first node.
            json!({ "allOf": [reference("edge"), { "required": ["to"] }] })
        };
        let all = only(&vocabulary::ALL, |field| {
            let schema = match field {
                "all" => json!({ "type": "array", "items": edges(), "minItems": 1 }),
                "max_concurrency" => nullable(integer(1, vocabulary::MOST_AT_A_TIME.into())),
                "on_branch_error" => nullable(on_branch_error()),
                _ => anything(),
            };
            documented(schema, "`next` with `all`", field)
        });
        let list = only(&vocabulary::OVER, |field| {
            let schema = match field {
                "over" => over(),
                "as" => nullable(element_name()),
                "to" => reference("target"),
                "max_concurrency" => nullable(integer(1, vocabulary::MOST_AT_A_TIME.into())),
                "most" => nullable(integer(1, MOST_BRANCHES.into())),
                "on_branch_error" => nullable(on_branch_error()),
                _ => anything(),
            };
            documented(schema, "`next` with `over`", field)
        });
        let by = only(&vocabulary::BY, |field| {
            let end = json!({ "type": "object", "maxProperties": 0 });
            let schema = match field {
                "by" => self.path(PathScope::Node),
                "to" => json!({
                    "type": "object",
                    "minProperties": 1,
                    "additionalProperties": { "anyOf": [reference("target"), end] },
                }),
                _ => anything(),
            };
            documented(schema, "`next` with `by`", field)
        });
        let needs = |mut schema: Value, fields: &[&str]| {
            schema["required"] = json!(fields);
            schema
        };
        json!({ "oneOf": [needs(all, &["all"]), needs(list, &["over", "to"]), needs(by, &["by", "to"])] })
    }

    pub(super) fn node(&self) -> Value {
        let is = |kind: &str| json!({ "properties": { "type": { "const": kind } }, "required": ["type"] });
        let rules: Vec<Value> = vocabulary::NODE_TYPES
            .iter()
            .map(|kind| {
                // A node without a type is an action node if it has an action (R28).
                let is_it = match *kind {
                    "action" => json!({ "properties": { "type": { "enum": ["action", null] } } }),
                    kind => is(kind),
                };
                json!({ "if": is_it, "then": self.node_of(kind) })
            })
            .collect();
        let kinds = json!({ "enum": vocabulary::NODE_TYPES });
        json!({
            "type": "object",
            "properties": { "type": documented(nullable(kinds), "node", "type") },
            "allOf": rules,
        })
    }

    /// Returns the schema of a node of one type, with the fields of that type.
    pub(super) fn node_of(&self, kind: &str) -> Value {
        let mut schema = only(&vocabulary::fields_of_node(kind), |field| {
            let schema = self.field_of_node(kind, field);
            match texts::of_node(kind, field) {
                Some(text) => described(schema, text),
                None => schema,
            }
        });
        match kind {
            "action" => schema["required"] = json!(["action"]),
            "wait" => {
                let forms = [("until", "timeout"), ("timeout", "until")].map(|(one, other)| {
                    let pair = json!([{ "required": ["signals", "on_timeout"] }, without(&["signals", "on_timeout"])]);
                    json!({ "allOf": [{ "required": [one] }, without(&[other])], "oneOf": pair })
                });
                let forever =
                    json!({ "allOf": [{ "required": ["signals"] }, without(&["until", "timeout", "on_timeout"])] });
                schema["oneOf"] = json!([forms[0], forms[1], forever]);
            }
            "interrupt" => {
                schema["required"] = json!(["payload", "result_schema"]);
                schema["dependentRequired"] = json!({ "timeout": ["on_timeout"], "on_timeout": ["timeout"] });
            }
            "foreach" => {
                schema["required"] = json!(["over", "action"]);
                // `max_concurrency` has a meaning only for parallel calls.
                schema["if"] = json!({
                    "properties": { "max_concurrency": { "type": "number" } },
                    "required": ["max_concurrency"],
                });
                schema["then"] = json!({ "properties": { "parallel": { "const": true } }, "required": ["parallel"] });
            }
            _ => {}
        }
        schema
    }

    pub(super) fn field_of_node(&self, kind: &str, field: &str) -> Value {
        let schema = match field {
            "type" => return json!({ "enum": [kind, null] }),
            "description" | "comment" => return anything(),
            "action" => {
                return reference(
                    &if kind == "foreach" { PathScope::Item } else { PathScope::Node }.definition("action"),
                );
            }
            "next" => json!({
                "anyOf": [reference("target"), { "type": "array", "items": reference("edge") }, reference("route")],
            }),
            "waits_for" => {
                let list = json!({ "type": "array", "items": reference("target"), "minItems": 1 });
                json!({ "anyOf": [reference("target"), list, quorum(&list)] })
            }
            "on_error" | "on_timeout" => reference("target"),
            "signals" => json!({ "type": "array", "items": { "type": "string" }, "minItems": 1 }),
            "answered_by" => return answered_by(),
            "interrupts" => {
                let mut schema = only(&vocabulary::INTERRUPTS, |field| {
                    let schema = match field {
                        "result_schema" => reference("schema"),
                        "answered_by" => answered_by(),
                        "timeout" => nullable(duration()),
                        "on_timeout" => nullable(reference("target")),
                        _ => anything(),
                    };
                    documented(schema, "`interrupts`", field)
                });
                schema["required"] = json!(["result_schema"]);
                schema["dependentRequired"] = json!({ "timeout": ["on_timeout"], "on_timeout": ["timeout"] });
                schema
            }
            "env_requires" => return env(),
            "retry" => retry(),
            "timeout" => duration(),
            "limits" => only(&vocabulary::NODE_LIMITS, |field| {
                let schema = match field {
                    "depth" => integer(1, vocabulary::MOST_LEVELS.into()),
                    "turns" => integer(1, vocabulary::MOST_TURNS.into()),
                    "spend" => spend(),
                    "timeout" => duration(),
                    _ => integer(1, u32::MAX.into()),
                };
                documented(nullable(schema), "limits of a node", field)
            }),
            "remote" => json!({ "type": "string" }),
            "feedback" => with_default(json!({ "type": "boolean" }), json!(true)),
            "cache_result" => with_default(json!({ "type": "boolean" }), json!(false)),
            "assign" => self.keys(reference("value")),
            "reset" => names(&reference("key")),
            "share" => {
                let keys = names(&reference("key"));
                let both = only(&vocabulary::SHARE, |field| {
                    let schema = match field {
                        "keys" => keys.clone(),
                        "signals" => names(&json!({ "type": "string" })),
                        _ => return json!({}),
                    };
                    documented(nullable(schema), "`share`", field)
                });
                json!({ "anyOf": [keys, both] })
            }
            "payload" => return reference("value"),
            "result_schema" => return reference("schema"),
            "output" => return reference("value"),
            "until" => json!({ "type": "string" }),
            "cancels" => with_default(json!({ "type": "boolean" }), json!(false)),
            "over" => return over(),
            "as" => element_name(),
            "collect" => self.collect(),
            "parallel" => with_default(json!({ "type": "boolean" }), json!(false)),
            "max_concurrency" => integer(1, vocabulary::MOST_AT_A_TIME.into()),
            _ => return json!({}),
        };
        nullable(schema)
    }

    pub(super) fn collect(&self) -> Value {
        let keys: Vec<String> =
            self.known.keys.iter().filter(|key| *key != "inputs" && !key.starts_with('_')).cloned().collect();
        offering(&keys, reference("key"))
    }
}

/// Returns the schema of a list to go over. A string is not a list, unless it is a template.
fn over() -> Value {
    json!({
        "anyOf": [
            { "type": "array", "items": reference("value") },
            { "allOf": [text(patterns::WHOLE, "`over` is one `${…}` that yields a list, or a list"), reference("value")] },
        ],
    })
}

/// Returns the schema of the name of an element of a list.
fn element_name() -> Value {
    let mut name = text(patterns::IDENTIFIER, "ASCII letters, digits and `_`, and no digit first");
    name["not"] = json!({ "enum": Root::TABLE.map(|(_, name)| name) });
    with_default(name, json!(vocabulary::ITEM))
}

pub(super) fn retry() -> Value {
    let defaults = Retry::default();
    let attempts = || integer(1, vocabulary::MOST_ATTEMPTS.into());
    let mapping = only(&vocabulary::RETRY, |field| {
        let schema = match field {
            "attempts" => with_default(attempts(), json!(defaults.attempts)),
            "delay" => with_default(duration(), shown(defaults.delay_ms)),
            "max_delay" => with_default(duration(), shown(defaults.max_delay_ms)),
            "factor" => with_default(json!({ "type": "number", "minimum": 1, "maximum": 100 }), json!(defaults.factor)),
            "jitter" => with_default(json!({ "type": "number", "minimum": 0, "maximum": 1 }), json!(defaults.jitter)),
            "on" => {
                let category = json!({ "enum": vocabulary::CATEGORIES });
                let list = json!({ "type": "array", "items": category, "minItems": 1 });
                with_default(json!({ "anyOf": [category, list] }), json!(defaults.on))
            }
            _ => json!({}),
        };
        documented(nullable(schema), texts::CONDUCT, field)
    });
    json!({ "anyOf": [attempts(), mapping] })
}

pub(super) fn shown(milliseconds: u64) -> Value {
    json!(graph_model::duration::shown(std::time::Duration::from_millis(milliseconds)))
}

/// Returns the schema of a mapping without these fields.
fn without(fields: &[&str]) -> Value {
    let required: Vec<Value> = fields.iter().map(|field| json!({ "required": [field] })).collect();
    json!({ "not": { "anyOf": required } })
}

/// Returns the schema of `answered_by`.
fn answered_by() -> Value {
    only(&vocabulary::ANSWERED_BY, |field| {
        let schema = match field {
            "role" => json!({ "type": "string", "pattern": patterns::ROLE, "maxLength": 64 }),
            "count" => {
                let number = integer(1, vocabulary::MOST_SIGNERS.into());
                let words = json!({ "type": "object", "minProperties": 1, "additionalProperties": number });
                json!({ "anyOf": [number, words] })
            }
            _ => anything(),
        };
        documented(schema, "`answered_by`", field)
    })
}

/// Returns the schema of a name, or a list of names.
fn names(name: &Value) -> Value {
    json!({ "anyOf": [name, { "type": "array", "items": name }] })
}

/// Returns the schema of `waits_for` as a mapping; `list` is that of a list of names.
fn quorum(list: &Value) -> Value {
    let field = |field: &str| match field {
        "of" => json!({ "anyOf": [reference("target"), list] }),
        "need" => integer(1, MOST_BRANCHES.into()),
        "rest" => json!({ "enum": vocabulary::REST.map(|(word, _)| word) }),
        "fewer" => nullable(reference("target")),
        _ => anything(),
    };
    let mut schema = only(&vocabulary::QUORUM, |name| documented(field(name), "`waits_for`", name));
    schema["required"] = json!(["of", "need", "rest"]);
    schema
}

/// Returns the schema of the reaction to a failure in a branch.
fn on_branch_error() -> Value {
    json!({ "enum": vocabulary::ON_BRANCH_ERROR.map(|(word, _)| word) })
}

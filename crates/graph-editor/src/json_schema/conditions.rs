//! What conditions are.

use graph_compiler::vocabulary;
use graph_model::operator::Operator;
use graph_model::value::Value;
use serde_json::json;

use super::Format;
use super::patterns::PathScope;
use super::pieces::{anything, documented, listed, merged, nullable, offering, only, reference, text, with_default};

impl Format {
    pub(super) fn condition(&self, names: PathScope) -> Value {
        let inner = || reference(&names.definition("condition"));
        let list = || json!({ "type": "array", "items": inner() });
        let operators: Vec<&str> = Operator::TABLE
            .iter()
            .flat_map(|row| std::iter::once(row.name).chain(row.aliases.iter().copied()))
            .collect();
        let condition = only(&vocabulary::CONDITION, |field| {
            let schema = match field {
                "path" => self.path(names),
                "op" | "operator" => nullable(with_default(json!({ "enum": operators }), json!(Operator::Eq.name()))),
                "value" => anything(),
                "any" | "all" => list(),
                "not" => inner(),
                _ => json!({}),
            };
            documented(schema, "condition", field)
        });
        let alone = |name: &str| json!({ "properties": { name: true }, "additionalProperties": false });
        let combined = ["any", "all", "not"].iter().rev().fold(
            comparison(),
            |otherwise, name| json!({ "if": { "required": [name] }, "then": alone(name), "else": otherwise }),
        );
        merged(condition, combined)
    }

    pub(super) fn path(&self, names: PathScope) -> Value {
        let problem = match names {
            PathScope::Hook(event) => {
                format!("a hook of `{}` looks at {} or `inputs`", event.name(), listed(event.names().iter().copied()))
            }
            _ => "a path begins with `state`, `inputs`, `result` or `visit`, and is written without `${…}`".to_owned(),
        };
        let path = text(&names.path_of_condition(), &problem);
        let offered = match names {
            PathScope::Hook(event) => event.names().iter().map(|name| (*name).to_owned()).collect(),
            _ => self.known.paths(),
        };
        offering(&offered, path)
    }
}

/// A comparison; nothing at all holds always (R77).
pub(super) fn comparison() -> Value {
    let is = |name: &str| json!({ "properties": { name: { "const": Operator::Regex.name() } }, "required": [name] });
    let exists =
        |name: &str| json!({ "properties": { name: { "const": Operator::Exists.name() } }, "required": [name] });
    let within = |name: &str| json!({ "properties": { name: { "const": Operator::In.name() } }, "required": [name] });
    json!({
        "if": { "minProperties": 1 },
        "then": {
            "required": ["path"],
            "not": { "required": ["op", "operator"] },
            "allOf": [
                { "if": { "anyOf": [exists("op"), exists("operator")] }, "else": { "required": ["value"] } },
                {
                    "if": { "anyOf": [is("op"), is("operator")] },
                    "then": { "properties": { "value": { "type": "string" } } },
                },
                {
                    "if": { "anyOf": [within("op"), within("operator")] },
                    "then": { "properties": { "value": { "type": "array" } } },
                },
            ],
        },
    })
}

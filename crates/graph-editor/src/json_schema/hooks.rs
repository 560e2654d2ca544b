//! Schemas of hooks.

use graph_compiler::vocabulary;
use graph_model::program::{CONTROL, Event};
use graph_model::value::Value;
use serde_json::json;

use super::patterns;
use super::patterns::PathScope;
use super::pieces::{anything, documented, executes, integer, nullable, only, reference};

pub(super) fn hook() -> Value {
    let mut schema = only(&vocabulary::HOOK, |field| {
        let schema = match field {
            "event" => json!({ "enum": Event::TABLE.map(|(_, name, _)| name) }),
            "id" | "description" => nullable(json!({ "type": "string" })),
            "comment" => anything(),
            "condition" => json!({ "type": ["object", "null"] }),
            "action" => json!({ "type": "object" }),
            _ => json!({}),
        };
        documented(schema, "Hooks", field)
    });
    let rules = Event::TABLE.map(|(event, name, _)| {
        let names = PathScope::Hook(event);
        json!({
            "if": { "properties": { "event": { "const": name } }, "required": ["event"] },
            "then": { "properties": {
                "condition": nullable(reference(&names.definition("condition"))),
                "action": reference(&names.definition("reaction")),
            } },
        })
    });
    schema["required"] = json!(["event", "action"]);
    schema["allOf"] = json!(rules);
    schema
}

/// Returns the schema of the action of a hook, which steers the run itself or calls something.
pub(super) fn reaction(event: Event) -> Value {
    let names = PathScope::Hook(event);
    let steers: Vec<Value> = vocabulary::INLINE.iter().map(|(name, _)| json!({ "required": [name] })).collect();
    let ways: Vec<Value> = vocabulary::INLINE
        .iter()
        .filter(|(name, _)| vocabulary::is_useful_control(name, event))
        .map(|(name, beside)| {
            let fields = [&[*name], *beside].concat();
            let mut way =
                only(
                    &fields,
                    |field| if field == *name { json!({ "const": true }) } else { control_value(field, names) },
                );
            way["required"] = json!([name]);
            way
        })
        .collect();
    json!({
        "type": "object",
        "if": {
            "anyOf": steers,
            "not": { "anyOf": [{ "required": ["item_id"] }, { "required": ["primary"] }] },
        },
        "then": if ways.is_empty() { json!(false) } else { json!({ "anyOf": ways }) },
        "else": reference(&names.definition("action")),
    })
}

/// Returns the schema of a field that accompanies a control.
pub(super) fn control_value(field: &str, names: PathScope) -> Value {
    let value = reference(&names.definition("value"));
    match vocabulary::bounds_of_control(field) {
        Some((least, most)) => {
            let template = json!({ "type": "string", "pattern": patterns::WITH_EXPRESSION });
            json!({ "anyOf": [integer(least, most), { "allOf": [template, value] }, { "type": ["array", "object"] }] })
        }
        None => value,
    }
}

/// Returns the schema of the parameters of the tool that steers the run (R152).
pub(super) fn control(event: Event) -> Value {
    let controls: Vec<&str> =
        vocabulary::CONTROLS.into_iter().filter(|control| vocabulary::is_useful_control(control, event)).collect();
    let names = PathScope::Hook(event);
    json!({
        "if": executes(CONTROL),
        "then": {
            "properties": { "params": {
                "type": "object",
                "properties": {
                    "action": if controls.is_empty() { json!(false) } else { json!({ "enum": controls }) },
                    "max_retries": control_value("max_retries", names),
                    "additional_steps": control_value("additional_steps", names),
                    "count": control_value("count", names),
                },
                "required": ["action"],
            } },
            "required": ["params"],
        },
    })
}

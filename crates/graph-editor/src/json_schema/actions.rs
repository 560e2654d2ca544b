//! Schemas of the actions of nodes and hooks.

use graph_compiler::project::OfferedKind;
use graph_compiler::types::{TypeKind, TypedField};
use graph_compiler::vocabulary;
use graph_model::program::{ItemType, Verb};
use graph_model::value::Value;
use serde_json::json;

use super::SchemaBasis;
use super::hooks::control;
use super::parameters;
use super::patterns;
use super::patterns::PathScope;
use super::pieces::{described, documented, executes, nullable, only, reference, text, with_default};

/// Returns the schema of an id that is written out.
pub(super) fn id_of_an_item() -> Value {
    let mut id = text(patterns::ID, "segments of letters, digits, `_` and `-`, with `/` between them");
    id["maxLength"] = json!(200);
    id
}

impl SchemaBasis {
    pub(super) fn item_id(&self) -> Value {
        let offered = self.offered.iter().map(|item| match &item.description {
            Some(description) => described(json!({ "const": item.id.as_str() }), description),
            None => json!({ "const": item.id.as_str() }),
        });
        let computed = json!({ "type": "string", "pattern": patterns::COMPUTED_ID });
        let ways: Vec<Value> = offered.chain([id_of_an_item(), computed]).collect();
        json!({ "anyOf": ways })
    }

    /// Returns the schemas of the parameters of tools, by the ids of the tools.
    pub(super) fn tools(&self) -> Value {
        let with_fields = self.offered.iter().filter_map(|item| match &item.params.kind {
            TypeKind::Object(fields) => Some((&item.id, fields)),
            _ => None,
        });
        let rules: Vec<Value> = with_fields
            .map(|(id, fields)| {
                let is_required = fields.iter().any(TypedField::is_required);
                let params = parameters::object(fields);
                let mut then =
                    json!({ "properties": { "params": if is_required { params } else { nullable(params) } } });
                if is_required {
                    then["required"] = json!(["params"]);
                }
                json!({ "if": executes(id.as_str()), "then": then })
            })
            .collect();
        if rules.is_empty() { json!({}) } else { json!({ "allOf": rules }) }
    }

    pub(super) fn action(&self, names: PathScope) -> Value {
        let mut action = only(&vocabulary::ACTION, |field| {
            let schema = match field {
                "primary" => {
                    let verbs: Vec<&str> = Verb::TABLE.iter().flat_map(|(_, names)| names.iter().copied()).collect();
                    nullable(with_default(json!({ "enum": verbs }), json!(Verb::Execute.name())))
                }
                "item_type" => {
                    let types = ItemType::TABLE.map(|(_, name)| name);
                    nullable(with_default(json!({ "enum": types }), json!(ItemType::Tool.name())))
                }
                "item_id" => match names {
                    // The id in a hook is not computed, and is not that of a graph.
                    PathScope::Hook(_) => {
                        let graphs = self.offered.iter().filter(|item| item.kind == OfferedKind::Graph);
                        let graphs: Vec<&str> = graphs.map(|item| item.id.as_str()).collect();
                        let refused = json!({ "anyOf": [{ "pattern": r"\$\{" }, { "enum": graphs }] });
                        json!({ "allOf": [reference("item_id"), { "not": refused }] })
                    }
                    _ => json!({ "allOf": [reference("item_id"), reference(&names.definition("value"))] }),
                },
                "params" => {
                    let mut params = json!({
                        "type": ["object", "null"],
                        "additionalProperties": reference(&names.definition("value")),
                    });
                    if names == PathScope::Item {
                        // For a foreach, the node says whether calls are made concurrently (R110).
                        params["properties"] = json!({ "async": { "not": {}, "doNotSuggest": true } });
                    }
                    params
                }
                _ => json!({}),
            };
            documented(schema, "action", field)
        });
        // Items are fetched by their id, or found by a query (R9).
        let fetching = Verb::TABLE.iter().find(|(verb, _)| *verb == Verb::Fetch).map_or(&[][..], |(_, names)| names);
        action["if"] = json!({
            "properties": {
                "primary": { "enum": fetching },
                "params": {
                    "type": "object",
                    "properties": { "query": { "not": { "type": "null" } } },
                    "required": ["query"],
                },
            },
            "required": ["primary", "params"],
        });
        action["then"] = json!({ "properties": { "item_id": { "type": "null" } } });
        action["else"] = json!({ "properties": { "item_id": { "type": "string" } }, "required": ["item_id"] });
        let mut rules = vec![reference("tools")];
        if let PathScope::Hook(event) = names {
            rules.push(control(event));
        }
        // Null counts as a missing `item_id`, not as an id.
        action["properties"]["item_id"] = {
            let text = json!({ "anyOf": [action["properties"]["item_id"].clone(), { "type": "null" }] });
            documented(text, "action", "item_id")
        };
        action["allOf"] = json!(rules);
        action
    }
}

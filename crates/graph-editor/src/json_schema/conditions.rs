//! Schemas of conditions.

use graph_model::grammar::{Role, Word};
use graph_model::operator::Operator;
use graph_model::value::Value;
use serde_json::json;

use super::SchemaBasis;
use super::patterns::PathScope;
use super::pieces::{anything, documented, listed, merged, nullable, offering, only, reference, text, with_default};

impl SchemaBasis {
    pub(super) fn condition(&self, names: PathScope) -> Value {
        let inner = || reference(&names.definition("condition"));
        let list = || json!({ "type": "array", "items": inner() });
        let operators: Vec<&str> = Operator::TABLE
            .iter()
            .flat_map(|row| std::iter::once(row.name).chain(row.aliases.iter().copied()))
            .collect();
        let condition = only(&Word::NAMES, |field| {
            let schema = match Word::named(field).map(|word| word.role) {
                Some(Role::Path) => self.path(names),
                Some(Role::Operator) => {
                    nullable(with_default(json!({ "enum": operators }), json!(Operator::Eq.name())))
                }
                Some(Role::Value) => anything(),
                Some(Role::Any | Role::All) => list(),
                Some(Role::Not) => inner(),
                None => json!({}),
            };
            documented(schema, "condition", field)
        });
        let alone = |name: &str| json!({ "properties": { name: true }, "additionalProperties": false });
        let combinations: Vec<_> = names_of(Role::is_combination).collect();
        let combined = combinations.iter().rev().fold(
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
        let path = text(&names.path_of_condition(self.arguments()), &problem);
        let offered = match names {
            PathScope::Hook(event) => event.names().iter().map(|name| (*name).to_owned()).collect(),
            _ => self.known.paths(),
        };
        offering(&offered, path)
    }
}

/// Returns the fields of a condition that have such a role.
fn names_of(is_meant: impl Fn(Role) -> bool) -> impl Iterator<Item = &'static str> {
    Word::TABLE.into_iter().filter(move |word| is_meant(word.role)).map(|word| word.name)
}

/// Returns the schema of a comparison; an empty one always holds (R77).
pub(super) fn comparison() -> Value {
    let words: Vec<_> = names_of(|role| role == Role::Operator).collect();
    let is = |operator: Operator| {
        let is = |word: &&str| json!({ "properties": { *word: { "const": operator.name() } }, "required": [word] });
        json!({ "anyOf": words.iter().map(is).collect::<Vec<_>>() })
    };
    let path: Vec<_> = names_of(|role| role == Role::Path).collect();
    let value = names_of(|role| role == Role::Value).next().unwrap_or_default();
    json!({
        "if": { "minProperties": 1 },
        "then": {
            "required": path,
            "not": { "required": words },
            "allOf": [
                { "if": is(Operator::Exists), "else": { "required": [value] } },
                { "if": is(Operator::Regex), "then": { "properties": { value: { "type": "string" } } } },
                { "if": is(Operator::In), "then": { "properties": { value: { "type": "array" } } } },
            ],
        },
    })
}

//! The format as a JSON Schema, so that any editor can complete and check a graph while it is written.
//!
//! The schema is built from the parser's own tables of fields, operators, events and verbs. It checks shapes, and names as
//! far as it knows them. Only the compiler checks whether the parts of a graph fit together. The schema never refuses a value
//! that the compiler accepts, with two exceptions: numbers in an unusual notation, and the name of a list element in a tree
//! whose graphs had no such name when the schema was made.
//!
//! It uses draft 07, which editors support best. `markdownDescription`, `patternErrorMessage` and `doNotSuggest` are
//! extensions that language servers understand and other tools ignore.

mod actions;
mod conditions;
mod hooks;
mod names;
mod nodes;
mod parameters;
mod patterns;
mod pieces;
mod schemas;

use graph_compiler::diagnostic::Diagnostics;
use graph_compiler::project::{Offered, OfferedKind, Project};
use graph_compiler::source::SourceFile;
use graph_compiler::{tree, vocabulary};
use graph_model::capability::Capability;
use graph_model::program::{Event, ItemType, Settings, Verb};
use graph_model::reducer::{Keep, REDUCERS};
use graph_model::value::Value;
use serde_json::{Map, json};

use actions::id_of_an_item;
use hooks::{hook, reaction};
use names::KnownNames;
pub(crate) use names::argument;
use patterns::PathScope;
use pieces::{
    anything, documented, duration, env, integer, nullable, offering, only, reference, spend, text, with_default, word,
};

/// Returns the schema of the graphs of a tree.
///
/// The schema offers the ids of the tree's tools and graphs, with their parameters, and the names of its graphs' nodes, state
/// keys and inputs. It allows other names too.
///
/// ```
/// use graph_compiler::project::Project;
/// use graph_editor::json_schema;
/// use std::path::Path;
///
/// let schema = json_schema::of_tree(&Project::open(Path::new("."), Path::new("graphs")));
/// assert_eq!(schema["$schema"], "http://json-schema.org/draft-07/schema#");
/// ```
pub fn of_tree(project: &Project) -> Value {
    let mut known = KnownNames::default();
    for file in graph_compiler::graph_files(project.root()).unwrap_or_default() {
        let Ok(source) = SourceFile::read(&file, &file.to_string_lossy()) else { continue };
        if let Some(yaml) = tree::parse(&source, &mut Diagnostics::new()) {
            known.add(&yaml.root);
        }
    }
    SchemaBasis { known, offered: callable(project), of_one: false }.schema()
}

/// Returns the schema of one graph: like [`of_tree`], but it offers only the graph's own names, and edges must lead to its
/// own nodes.
///
/// Parts that cannot be read add no names. The schema is a snapshot of the file: to know a new node, it must be made again.
pub fn of_graph(project: &Project, source: &std::sync::Arc<SourceFile>) -> Value {
    let mut known = KnownNames::default();
    if let Some(yaml) = tree::parse(source, &mut Diagnostics::new()) {
        known.add(&yaml.root);
    }
    SchemaBasis { known, offered: callable(project), of_one: true }.schema()
}

/// The input from which a schema is built.
struct SchemaBasis {
    known: KnownNames,
    offered: Vec<Offered>,
    /// Whether it is the schema of a single graph, whose edges must lead to its own nodes.
    of_one: bool,
}

impl SchemaBasis {
    fn schema(&self) -> Value {
        let mut definitions = Map::new();
        let mut define = |name: String, schema: Value| definitions.insert(name, schema);
        for names in PathScope::all() {
            define(names.definition("value"), value(names, self.arguments()));
            define(names.definition("condition"), self.condition(names));
            define(names.definition("action"), self.action(names));
        }
        for (event, ..) in Event::TABLE {
            define(PathScope::Hook(event).definition("reaction"), reaction(event));
        }
        define("tools".into(), self.tools());
        define("item_id".into(), self.item_id());
        define("target".into(), self.target());
        define("key".into(), self.key());
        define("node".into(), self.node());
        define("edge".into(), self.edge());
        define("route".into(), self.route());
        define("hook".into(), hook());
        define("first_value".into(), first_value());
        define("channel".into(), channel());
        define("duration".into(), duration());
        define("schema".into(), schemas::schema());
        let mut root = only(&vocabulary::TOP_LEVEL, |field| documented(self.top(field), "Top level", field));
        // Other tools store their own fields there (R2).
        root["additionalProperties"] = json!(true);
        let of_config = vocabulary::CONFIG.iter().chain(&vocabulary::SETTINGS);
        for field in of_config.filter(|field| !vocabulary::TOP_LEVEL.contains(field) && **field != "comment") {
            let description = format!("`{field}` belongs in `config`");
            root["properties"][*field] = json!({ "not": {}, "description": description, "doNotSuggest": true });
        }
        root["properties"][vocabulary::GUARDED] = json!({ "not": {}, "description": "inputs and contracts are guarded, and not graphs", "doNotSuggest": true });
        root["required"] = json!(["version", "tool_type", "executor_id", "permissions", "config"]);
        let mut schema = json!({
            "$schema": "http://json-schema.org/draft-07/schema#",
            "title": "State graph",
            "description": "Written by `graph schema`.",
        });
        if let (Value::Object(schema), Value::Object(root)) = (&mut schema, root) {
            schema.extend(root);
            schema.insert("definitions".into(), definitions.into());
        }
        schema
    }

    /// Returns the names of the elements of lists in branches; `None` if another graph may have others.
    fn arguments(&self) -> Option<&[String]> {
        (self.of_one || self.known.arguments.is_empty()).then_some(self.known.arguments.as_slice())
    }

    fn top(&self, field: &str) -> Value {
        match field {
            "version" => json!({ "type": "string", "examples": ["1.0.0"] }),
            "tool_type" => json!({ "const": "graph" }),
            "executor_id" => json!({ "enum": vocabulary::EXECUTORS }),
            "category" => {
                nullable(text(patterns::CATEGORY, "segments of letters, digits, `_` and `-`, with `/` between them"))
            }
            "description" => nullable(json!({ "type": "string" })),
            "permissions" => self.permissions(),
            "limits" => nullable(only(&vocabulary::LIMITS, |field| {
                let schema = match field {
                    "depth" => {
                        with_default(integer(0, vocabulary::MOST_LEVELS.into()), json!(Settings::default().depth))
                    }
                    "visits" | "steps" | "turns" | "tokens" => integer(1, u32::MAX.into()),
                    "spend" => spend(),
                    _ => duration(),
                };
                documented(nullable(schema), "limits", field)
            })),
            "env_requires" => env(),
            "config_schema" => nullable(schemas::of_object()),
            "config" => self.config(),
            _ => json!({}),
        }
    }

    fn permissions(&self) -> Value {
        let mut offered = self.known.permissions.clone();
        for item in &self.offered {
            let capability = Capability::new(Verb::Execute, ItemType::Tool, Some(&item.id)).to_string();
            if !offered.contains(&capability) {
                offered.push(capability);
            }
        }
        let problem = "a permission begins with `rye.` or `*`, as `rye.execute.tool.rye.bash` or `rye.execute.tool.*`";
        // The permissions in the file may be invalid.
        offered.retain(|text| graph_model::capability::Pattern::new(text.as_str()).is_ok());
        json!({ "type": "array", "items": offering(&offered, text(patterns::PERMISSION, problem)), "minItems": 1 })
    }

    fn config(&self) -> Value {
        let fields = [vocabulary::CONFIG.as_slice(), &vocabulary::SETTINGS].concat();
        let defaults = Settings::default();
        let mut config = only(&fields, |field| {
            let schema = match field {
                "start" => {
                    let most = vocabulary::MOST_EDGES;
                    let list =
                        json!({ "type": "array", "items": reference("target"), "minItems": 1, "maxItems": most });
                    return documented(json!({ "anyOf": [self.target(), list] }), "`config`", field);
                }
                "entries" => {
                    let field = |field: &str| match field {
                        "node" => self.target(),
                        "element" => {
                            let path = self.path(PathScope::Node);
                            let named = json!({ "type": "object", "additionalProperties": path, "minProperties": 1 });
                            json!({ "anyOf": [path, named] })
                        }
                        _ => anything(),
                    };
                    let mut entry = only(&vocabulary::ENTRY, |name| documented(field(name), "entry", name));
                    entry["required"] = json!(["node"]);
                    json!({
                        "type": "object",
                        "propertyNames": { "pattern": patterns::NAME, "maxLength": 200 },
                        "additionalProperties": { "anyOf": [self.target(), entry] },
                        "maxProperties": vocabulary::MOST_EDGES,
                    })
                }
                "nodes" => json!({
                    "type": "object",
                    "propertyNames": { "pattern": patterns::NAME, "maxLength": 200 },
                    "additionalProperties": reference("node"),
                    "maxProperties": vocabulary::MOST_NODES,
                }),
                "max_steps" => with_default(integer(1, u32::MAX.into()), json!(defaults.max_steps)),
                "max_concurrency" => {
                    with_default(integer(1, vocabulary::MOST_AT_A_TIME.into()), json!(defaults.max_concurrency))
                }
                "on_error" => word(&vocabulary::ON_ERROR, defaults.on_error),
                "on_max_steps" => word(&vocabulary::ON_MAX_STEPS, defaults.on_max_steps),
                "on_no_match" => word(&vocabulary::ON_NO_MATCH, defaults.on_no_match),
                "hooks" => json!({ "type": "array", "items": reference("hook") }),
                "state" => self.keys(reference("first_value")),
                "channels" => self.keys(reference("channel")),
                "signals" => json!({
                    "type": "object",
                    "propertyNames": { "pattern": patterns::KEY, "maxLength": 200, "not": { "anyOf": [{ "const": vocabulary::SIGNAL }, { "pattern": "[.#]" }] } },
                    "additionalProperties": reference("schema"),
                    "maxProperties": vocabulary::MOST_SIGNALS,
                }),
                "description" | "comment" => anything(),
                _ => json!({}),
            };
            let schema = if field == "nodes" { schema } else { nullable(schema) };
            documented(schema, "`config`", field)
        });
        config["required"] = json!(["start", "nodes"]);
        config
    }

    /// Returns the schema of a mapping from state keys to values.
    fn keys(&self, values: Value) -> Value {
        let is_key = |key: &&String| *key != "inputs" && !key.starts_with('_');
        let known: Map<String, Value> =
            self.known.keys.iter().filter(is_key).map(|key| (key.clone(), values.clone())).collect();
        json!({
            "type": "object",
            "properties": known,
            "propertyNames": reference("key"),
            "additionalProperties": values,
        })
    }

    fn key(&self) -> Value {
        let problem =
            "a state key has no control characters; `inputs` and names that begin with `_` belong to the engine";
        let mut key = text(patterns::KEY, problem);
        key["maxLength"] = json!(200);
        key["not"] = json!({ "const": "inputs" });
        key
    }

    fn target(&self) -> Value {
        let name = json!({ "type": "string", "pattern": patterns::NAME, "maxLength": 200 });
        match self.known.nodes.as_slice() {
            [] => name,
            nodes if self.of_one => json!({ "type": "string", "enum": nodes }),
            nodes => offering(nodes, name),
        }
    }
}

/// Returns the schema of a value that may hold templates, at any depth.
fn value(names: PathScope, arguments: Option<&[String]>) -> Value {
    let problem = match names {
        PathScope::Node => {
            "`${…}` contains paths that begin with `state`, `inputs`, `result` or `visit`, or `_now` or `_timestamp`; to \
             write the characters `${` themselves, double the dollar: `$${`"
        }
        _ => "`${…}` contains paths; to write the characters `${` themselves, double the dollar: `$${`",
    };
    let own = reference(&names.definition("value"));
    // Each keyword applies to one kind of value and ignores the others.
    json!({
        "pattern": names.template(arguments),
        "patternErrorMessage": problem,
        "items": own,
        "additionalProperties": own,
    })
}

/// Returns the tools and graphs that actions may execute.
fn callable(project: &Project) -> Vec<Offered> {
    project.offered().into_iter().filter(|item| item.kind != OfferedKind::Reducer).collect()
}

/// Returns the schema of a channel: the name of its reducer, or a mapping. A reducer that is a function of the program is a
/// mapping of its own.
fn channel() -> Value {
    // The reducers of a kind, and the field that only they have.
    let fields = |reduce: &Value, own: Option<(&str, Value)>| {
        let mut mapping = only(&vocabulary::CHANNEL, |field| {
            let schema = match (field, &own) {
                ("reduce", _) => reduce.clone(),
                (field, Some((name, schema))) if field == *name => nullable(schema.clone()),
                ("id" | "order", _) | ("keep", Some(("order", _))) => json!({ "type": "null" }),
                ("keep", _) => nullable(json!({ "enum": Keep::TABLE.map(|(name, _)| name) })),
                _ => anything(),
            };
            documented(schema, "channel", field)
        });
        mapping["required"] = json!(["reduce"]);
        mapping
    };
    let id = fields(&json!({ "enum": ["messages"] }), Some(("id", json!({ "type": "string" }))));
    let order =
        fields(&json!({ "enum": ["append", "extend"] }), Some(("order", json!({ "enum": vocabulary::ORDERS }))));
    let mut function = only(&vocabulary::FUNCTION, |field| {
        let schema = if field == "item_id" { id_of_an_item() } else { anything() };
        documented(schema, "reducer", field)
    });
    function["required"] = json!(["item_id"]);
    let named = json!({ "enum": REDUCERS });
    json!({ "anyOf": [named, id, order, fields(&named, None), fields(&function, None)] })
}

/// Returns the schema of a value that is used literally: an expression in it would stay a string.
fn first_value() -> Value {
    json!({
        "not": { "type": "string", "pattern": r"\$\{" },
        "items": reference("first_value"),
        "additionalProperties": reference("first_value"),
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::nodes::retry;
    use super::*;
    use crate::texts;

    fn format() -> SchemaBasis {
        SchemaBasis { known: KnownNames::default(), offered: Vec::new(), of_one: false }
    }

    #[test]
    fn every_parser_field_has_a_schema_and_a_description() {
        let schema = format().schema();
        let nodes = schema["definitions"]["node"]["allOf"].as_array().unwrap();
        let mut mappings = vec![&schema, &schema["properties"]["config"]];
        mappings.extend(nodes.iter().map(|rule| &rule["then"]));
        mappings.extend(schema["definitions"]["route"]["oneOf"].as_array().unwrap());
        mappings.extend(["edge", "hook", "action", "condition"].map(|name| &schema["definitions"][name]));
        let retry = retry();
        mappings.push(&retry["anyOf"][1]);
        mappings.push(&schema["definitions"]["channel"]["anyOf"][1]);
        mappings.push(&schema["definitions"]["channel"]["anyOf"][4]["properties"]["reduce"]);
        for mapping in mappings {
            for (name, schema) in mapping["properties"].as_object().unwrap() {
                let fields = schema.as_object().unwrap();
                let says = fields.keys().any(|key| !matches!(key.as_str(), "description" | "markdownDescription"));
                let is_type = name == "type" && fields.contains_key("enum");
                assert!(says && (is_type || fields.contains_key("description")), "{name}: {schema}");
            }
        }
        for keyword in vocabulary::SCHEMA.into_iter().chain([vocabulary::SINK, vocabulary::SECRET]) {
            assert!(schema["definitions"]["schema"]["properties"][keyword]["description"].is_string(), "{keyword}");
        }
    }

    /// Removes the links from Markdown.
    fn without_links(text: &str) -> String {
        let mut parts = text.split('[');
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |text, part| {
            match part.split_once("](").and_then(|(name, rest)| Some((name, rest.split_once(')')?.1))) {
                Some((name, rest)) => text + name + rest,
                None => text + "[" + part,
            }
        })
    }

    #[test]
    fn fields_are_described_in_the_words_of_the_page_of_the_format() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/format.md");
        // The package has no pages.
        let Ok(page) = std::fs::read_to_string(page) else { return };
        let (mut heading, mut rows) = ("", Vec::new());
        for line in page.lines() {
            if let Some(title) = line.strip_prefix("## ").or_else(|| line.strip_prefix("### ")) {
                heading = title;
            } else if let Some(row) = line.strip_prefix('|') {
                let cells: Vec<&str> = row.trim_end_matches('|').split('|').map(str::trim).collect();
                let (Some(names), Some(text)) = (cells.first(), cells.last()) else { continue };
                let names = names.split(", ").map(|name| name.trim_matches('`'));
                // The descriptions omit `needed: `, which other tables say in a column of their own.
                let text = without_links(text);
                let text = text.strip_prefix("needed: ").map_or(text.clone(), str::to_owned);
                rows.extend(names.map(|name| (heading, name, text.clone())));
            }
        }
        for (heading, field, text) in texts::OF_THE_PAGE {
            let row = rows.iter().find(|(title, name, _)| title == heading && name == field);
            assert_eq!(row.map(|(.., text)| text.as_str()), Some(*text), "{heading}: {field}");
        }
    }

    #[test]
    fn graph_schema_requires_own_nodes_and_tree_schema_offers_all() {
        let known = || KnownNames { nodes: vec!["a".into(), "b".into()], ..KnownNames::default() };
        let of_one = SchemaBasis { known: known(), offered: Vec::new(), of_one: true };
        assert_eq!(of_one.target(), json!({ "type": "string", "enum": ["a", "b"] }));
        let of_all = SchemaBasis { known: known(), ..format() };
        assert_eq!(of_all.target()["anyOf"][0], json!({ "enum": ["a", "b"] }));
        assert_eq!(of_all.target()["anyOf"][1]["type"], "string");
    }
}

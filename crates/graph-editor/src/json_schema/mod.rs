//! The format as a JSON Schema, so that any editor completes and checks a graph while it is written.
//!
//! The schema is made of the tables that the parser reads by: lists of fields, operators, events, verbs. It sees shapes, and as
//! much of names as it is given; whether the parts of a graph fit together is for the compiler to say. A value that the
//! compiler takes is never refused, but for numbers that are written in an unusual way.
//!
//! It is draft 07, which editors know best. `markdownDescription`, `patternErrorMessage` and `doNotSuggest` are what
//! language servers understand beyond it; others pass them over.

mod names;
mod parameters;
mod patterns;
mod schemas;

use graph_compiler::diagnostic::Diagnostics;
use graph_compiler::project::{Offered, OfferedKind, Project};
use graph_compiler::source::Source;
use graph_compiler::types::{Field, Kind};
use graph_compiler::{tree, vocabulary};
use graph_model::capability::Capability;
use graph_model::operator::Operator;
use graph_model::path::Root;
use graph_model::program::{CONTROL, Event, ItemType, Retry, Settings, Verb};
use graph_model::value::Value;
use serde_json::{Map, json};

use crate::texts;
use names::Names as Known;
use patterns::Names;

/// Returns the schema of the graphs of a tree.
///
/// The ids of its tools and graphs are offered, with their parameters; so are the names of its graphs' nodes, state keys and
/// inputs, and others may stand there too.
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
    let mut known = Known::default();
    for file in graph_compiler::graph_files(project.root()).unwrap_or_default() {
        let Ok(source) = Source::read(&file, &file.to_string_lossy()) else { continue };
        if let Some(yaml) = tree::parse(&source, &mut Diagnostics::new()) {
            known.add(&yaml.root);
        }
    }
    Format { known, offered: project.offered(), of_one: false }.schema()
}

/// Returns the schema of one graph: as [`of_tree`], but its nodes lead to each other only, and only its own names are offered.
///
/// What cannot be read of it has no names. The schema is of the file as it is: a new node is known to it when it is made anew.
pub fn of_graph(project: &Project, source: &std::sync::Arc<Source>) -> Value {
    let mut known = Known::default();
    if let Some(yaml) = tree::parse(source, &mut Diagnostics::new()) {
        known.add(&yaml.root);
    }
    Format { known, offered: project.offered(), of_one: true }.schema()
}

/// Adds what a place is for, as a text and as Markdown.
fn described(mut schema: Value, text: &str) -> Value {
    schema["description"] = json!(text.replace('`', ""));
    schema["markdownDescription"] = json!(text);
    schema
}

/// Adds what a field is for.
fn documented(schema: Value, place: &str, field: &str) -> Value {
    match texts::of(place, field) {
        Some(text) => described(schema, text),
        None => schema,
    }
}

/// Lets a place be null, as a field without a value is.
fn nullable(mut schema: Value) -> Value {
    if schema == json!({}) || schema == json!(true) {
        return schema;
    }
    let is_simple = schema.get("enum").is_none() && schema.get("const").is_none() && schema.get("anyOf").is_none();
    match schema.get_mut("type") {
        Some(Value::Array(names)) if is_simple => {
            if !names.contains(&json!("null")) {
                names.push(json!("null"));
            }
            schema
        }
        Some(name) if is_simple => {
            *name = json!([name.clone(), "null"]);
            schema
        }
        _ => match schema.get_mut("anyOf").and_then(Value::as_array_mut) {
            Some(ways) => {
                ways.push(json!({ "type": "null" }));
                schema
            }
            None => json!({ "anyOf": [schema, { "type": "null" }] }),
        },
    }
}

/// A text of a certain form.
fn text(pattern: &str, problem: &str) -> Value {
    json!({ "type": "string", "pattern": pattern, "patternErrorMessage": problem })
}

fn reference(definition: &str) -> Value {
    json!({ "$ref": format!("#/definitions/{definition}") })
}

/// One of these texts, or another of the kind.
fn offering(texts: &[String], kind: Value) -> Value {
    if texts.is_empty() { kind } else { json!({ "anyOf": [{ "enum": texts }, kind] }) }
}

/// An object with these fields and no others.
fn only(fields: &[&str], schema: impl Fn(&str) -> Value) -> Value {
    let properties: Map<String, Value> = fields.iter().map(|field| ((*field).to_owned(), schema(field))).collect();
    json!({ "type": "object", "properties": properties, "additionalProperties": false })
}

fn integer(least: i64, most: i64) -> Value {
    json!({ "type": "integer", "minimum": least, "maximum": most })
}

fn duration() -> Value {
    json!({
        "anyOf": [
            { "type": "number", "minimum": 0.001 },
            text(&graph_model::duration::pattern(), "a duration is a text as `250ms`, `30s`, `2m` or `1h30m`"),
        ],
    })
}

/// What a schema is made from.
struct Format {
    known: Known,
    offered: Vec<Offered>,
    /// Whether it is the schema of a single graph, whose nodes lead to each other only.
    of_one: bool,
}

impl Format {
    fn schema(&self) -> Value {
        let mut definitions = Map::new();
        let mut define = |name: String, schema: Value| definitions.insert(name, schema);
        for names in Names::all() {
            define(names.definition("value"), value(names));
            define(names.definition("condition"), self.condition(names));
            define(names.definition("action"), self.action(names));
        }
        for (event, ..) in Event::TABLE {
            define(Names::Hook(event).definition("reaction"), reaction(event));
        }
        define("tools".into(), self.tools());
        define("item_id".into(), self.item_id());
        define("target".into(), self.target());
        define("key".into(), self.key());
        define("node".into(), self.node());
        define("edge".into(), self.edge());
        define("hook".into(), hook());
        define("first_value".into(), first_value());
        define("duration".into(), duration());
        define("schema".into(), schemas::schema());
        let mut root = only(&vocabulary::TOP_LEVEL, |field| documented(self.top(field), "Top level", field));
        // Other tools keep fields of their own there (R2).
        root["additionalProperties"] = json!(true);
        root["properties"]["hooks"] =
            json!({ "not": {}, "description": "hooks stand in config", "doNotSuggest": true });
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
        // What the file holds already may be wrong.
        offered.retain(|text| graph_model::capability::Pattern::new(text.as_str()).is_ok());
        json!({ "type": "array", "items": offering(&offered, text(patterns::PERMISSION, problem)), "minItems": 1 })
    }

    fn config(&self) -> Value {
        let fields = [vocabulary::CONFIG.as_slice(), &vocabulary::SETTINGS].concat();
        let defaults = Settings::default();
        let mut config = only(&fields, |field| {
            let schema = match field {
                "start" => return documented(self.target(), "`config`", field),
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
                "description" | "comment" => anything(),
                _ => json!({}),
            };
            let schema = if field == "nodes" { schema } else { nullable(schema) };
            documented(schema, "`config`", field)
        });
        config["required"] = json!(["start", "nodes"]);
        config
    }

    /// A mapping from state keys to values.
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
        let problem = "a state key has no control characters; `inputs` and what begins with `_` belong to the engine";
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

    fn item_id(&self) -> Value {
        let offered = self.offered.iter().map(|item| match &item.description {
            Some(description) => described(json!({ "const": item.id.as_str() }), description),
            None => json!({ "const": item.id.as_str() }),
        });
        let mut id = text(patterns::ID, "segments of letters, digits, `_` and `-`, with `/` between them");
        id["maxLength"] = json!(200);
        let ways: Vec<Value> =
            offered.chain([id, json!({ "type": "string", "pattern": patterns::COMPUTED_ID })]).collect();
        json!({ "anyOf": ways })
    }

    /// What tools take, by their ids.
    fn tools(&self) -> Value {
        let with_fields = self.offered.iter().filter_map(|item| match &item.params.kind {
            Kind::Object(fields) => Some((&item.id, fields)),
            _ => None,
        });
        let rules: Vec<Value> = with_fields
            .map(|(id, fields)| {
                let is_required = fields.iter().any(Field::is_required);
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

    fn action(&self, names: Names) -> Value {
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
                    // A hook calls what is known, and no graph.
                    Names::Hook(_) => {
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
                    if names == Names::Item {
                        // Whether calls are made beside each other is said by the node (R110).
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
        if let Names::Hook(event) = names {
            rules.push(control(event));
        }
        // Null is no id to `item_id`, which is no field then.
        action["properties"]["item_id"] = {
            let text = json!({ "anyOf": [action["properties"]["item_id"].clone(), { "type": "null" }] });
            documented(text, "action", "item_id")
        };
        action["allOf"] = json!(rules);
        action
    }

    fn condition(&self, names: Names) -> Value {
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

    fn path(&self, names: Names) -> Value {
        let problem = match names {
            Names::Hook(event) => {
                format!("a hook of `{}` looks at {} or `inputs`", event.name(), listed(event.names().iter().copied()))
            }
            _ => "a path begins with `state`, `inputs`, `result` or `visit`, and is written without `${…}`".to_owned(),
        };
        let path = text(&names.path_of_condition(), &problem);
        let offered = match names {
            Names::Hook(event) => event.names().iter().map(|name| (*name).to_owned()).collect(),
            _ => self.known.paths(),
        };
        offering(&offered, path)
    }

    fn edge(&self) -> Value {
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

    fn node(&self) -> Value {
        let is = |kind: &str| json!({ "properties": { "type": { "const": kind } }, "required": ["type"] });
        let rules: Vec<Value> = vocabulary::NODE_TYPES
            .iter()
            .map(|kind| {
                // A node without a type that has an action is one (R28).
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

    /// A node of one type, which has its own fields.
    fn node_of(&self, kind: &str) -> Value {
        let mut schema = only(&vocabulary::fields_of_node(kind), |field| {
            let schema = self.field_of_node(kind, field);
            match texts::of_node(kind, field) {
                Some(text) => described(schema, text),
                None => schema,
            }
        });
        match kind {
            "action" => schema["required"] = json!(["action"]),
            "foreach" => {
                schema["required"] = json!(["over", "action"]);
                // Calls that are made one after the other are one at a time.
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

    fn field_of_node(&self, kind: &str, field: &str) -> Value {
        let schema = match field {
            "type" => return json!({ "enum": [kind, null] }),
            "description" | "comment" => return anything(),
            "action" => {
                return reference(&if kind == "foreach" { Names::Item } else { Names::Node }.definition("action"));
            }
            "next" => json!({ "anyOf": [reference("target"), { "type": "array", "items": reference("edge") }] }),
            "on_error" => reference("target"),
            "env_requires" => return env(),
            "retry" => retry(),
            "timeout" => duration(),
            "remote" => json!({ "type": "string" }),
            "feedback" => with_default(json!({ "type": "boolean" }), json!(true)),
            "cache_result" => with_default(json!({ "type": "boolean" }), json!(false)),
            "assign" => self.keys(reference("value")),
            "output" => return reference("value"),
            // A text that is no template is no list.
            "over" => {
                return json!({
                    "anyOf": [
                        { "type": "array", "items": reference("value") },
                        { "allOf": [text(patterns::WHOLE, "`over` is one `${…}` that yields a list, or a list"), reference("value")] },
                    ],
                });
            }
            "as" => {
                let mut name = text(patterns::IDENTIFIER, "ASCII letters, digits and `_`, and no digit first");
                name["not"] = json!({ "enum": Root::TABLE.map(|(_, name)| name) });
                with_default(name, json!(vocabulary::ITEM))
            }
            "collect" => self.collect(),
            "parallel" => with_default(json!({ "type": "boolean" }), json!(false)),
            "max_concurrency" => integer(1, vocabulary::MOST_AT_A_TIME.into()),
            _ => return json!({}),
        };
        nullable(schema)
    }

    fn collect(&self) -> Value {
        let keys: Vec<String> =
            self.known.keys.iter().filter(|key| *key != "inputs" && !key.starts_with('_')).cloned().collect();
        offering(&keys, reference("key"))
    }
}

/// A value with templates in its texts, at any depth.
fn value(names: Names) -> Value {
    let problem = match names {
        Names::Node => {
            "inside `${…}` stand paths that begin with `state`, `inputs`, `result` or `visit`, or `_now` or `_timestamp`; to \
             write the characters `${` themselves, double the dollar: `$${`"
        }
        _ => "inside `${…}` stand paths; to write the characters `${` themselves, double the dollar: `$${`",
    };
    let own = reference(&names.definition("value"));
    // Each keyword is about one kind of value and lets the others be.
    json!({
        "pattern": names.template(),
        "patternErrorMessage": problem,
        "items": own,
        "additionalProperties": own,
    })
}

/// A value that is taken as it is: what looks computed would be a text.
fn first_value() -> Value {
    json!({
        "not": { "type": "string", "pattern": r"\$\{" },
        "items": reference("first_value"),
        "additionalProperties": reference("first_value"),
    })
}

/// A comparison; nothing at all holds always (R77).
fn comparison() -> Value {
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

/// An action that executes this tool.
fn executes(id: &str) -> Value {
    json!({
        "properties": {
            "item_id": { "const": id },
            "primary": { "enum": [Verb::Execute.name(), null] },
            "item_type": { "enum": [ItemType::Tool.name(), null] },
        },
        "required": ["item_id"],
    })
}

fn hook() -> Value {
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
        let names = Names::Hook(event);
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

/// What a hook does: it steers the run by itself, or calls something.
fn reaction(event: Event) -> Value {
    let names = Names::Hook(event);
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

/// What stands beside a control.
fn control_value(field: &str, names: Names) -> Value {
    let value = reference(&names.definition("value"));
    match vocabulary::bounds_of_control(field) {
        Some((least, most)) => {
            let template = json!({ "type": "string", "pattern": patterns::WITH_EXPRESSION });
            json!({ "anyOf": [integer(least, most), { "allOf": [template, value] }, { "type": ["array", "object"] }] })
        }
        None => value,
    }
}

/// The parameters of the tool that steers the run (R152).
fn control(event: Event) -> Value {
    let controls: Vec<&str> =
        vocabulary::CONTROLS.into_iter().filter(|control| vocabulary::is_useful_control(control, event)).collect();
    let names = Names::Hook(event);
    json!({
        "if": executes(CONTROL),
        "then": {
            "properties": { "params": {
                "type": "object",
                "properties": {
                    "action": if controls.is_empty() { json!(false) } else { json!({ "enum": controls }) },
                    "max_retries": control_value("max_retries", names),
                    "additional_steps": control_value("additional_steps", names),
                },
                "required": ["action"],
            } },
            "required": ["params"],
        },
    })
}

fn retry() -> Value {
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

fn shown(milliseconds: u64) -> Value {
    json!(graph_model::duration::shown(std::time::Duration::from_millis(milliseconds)))
}

/// Environment variables: a list of names, or one name (R281).
fn env() -> Value {
    let name = text(patterns::VARIABLE, "an environment variable's name has no `=` in it");
    json!({ "anyOf": [name, { "type": "array", "items": name }, { "type": "null" }] })
}

/// Any value; in so many words, to differ from the field that was forgotten.
fn anything() -> Value {
    json!({ "type": ["string", "number", "boolean", "null", "array", "object"] })
}

fn word<T: PartialEq>(words: &[(&str, T)], default: T) -> Value {
    let names: Vec<&str> = words.iter().map(|(name, _)| *name).collect();
    let default = words.iter().find(|(_, value)| *value == default).map(|(name, _)| *name);
    with_default(json!({ "enum": names }), json!(default))
}

fn with_default(mut schema: Value, default: Value) -> Value {
    schema["default"] = default;
    schema
}

fn merged(mut one: Value, other: Value) -> Value {
    if let (Value::Object(one), Value::Object(other)) = (&mut one, other) {
        one.extend(other);
    }
    one
}

fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn format() -> Format {
        Format { known: Known::default(), offered: Vec::new(), of_one: false }
    }

    #[test]
    fn every_field_that_the_parser_knows_has_a_schema_and_says_what_it_is_for() {
        let schema = format().schema();
        let nodes = schema["definitions"]["node"]["allOf"].as_array().unwrap();
        let mut mappings = vec![&schema, &schema["properties"]["config"]];
        mappings.extend(nodes.iter().map(|rule| &rule["then"]));
        mappings.extend(["edge", "hook", "action", "condition"].map(|name| &schema["definitions"][name]));
        let retry = retry();
        mappings.push(&retry["anyOf"][1]);
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

    /// Takes the links out of Markdown.
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
        let page = std::fs::read_to_string(page).unwrap();
        let (mut heading, mut rows) = ("", Vec::new());
        for line in page.lines() {
            if let Some(title) = line.strip_prefix("## ").or_else(|| line.strip_prefix("### ")) {
                heading = title;
            } else if let Some(row) = line.strip_prefix('|') {
                let cells: Vec<&str> = row.trim_end_matches('|').split('|').map(str::trim).collect();
                let (Some(names), Some(text)) = (cells.first(), cells.last()) else { continue };
                let names = names.split(", ").map(|name| name.trim_matches('`'));
                // What the table says in a column of its own is not said again.
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
    fn a_graph_leads_to_its_own_nodes_and_a_tree_offers_those_of_all() {
        let known = || Known { nodes: vec!["a".into(), "b".into()], ..Known::default() };
        let of_one = Format { known: known(), offered: Vec::new(), of_one: true };
        assert_eq!(of_one.target(), json!({ "type": "string", "enum": ["a", "b"] }));
        let of_all = Format { known: known(), ..format() };
        assert_eq!(of_all.target()["anyOf"][0], json!({ "enum": ["a", "b"] }));
        assert_eq!(of_all.target()["anyOf"][1]["type"], "string");
    }
}

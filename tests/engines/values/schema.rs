//! Schemas of values, and the graphs whose values have them.

use serde_json::{Map, Value, json};

/// A schema.
#[derive(Debug, Clone)]
pub(crate) struct Schema {
    pub(crate) kind: Kind,
    /// Whether it says `[…, "null"]`.
    pub(crate) nullable: bool,
}

/// The type that a schema says.
#[derive(Debug, Clone)]
pub(crate) enum Kind {
    /// No `type`.
    Any,
    Boolean,
    Integer,
    Number,
    Text,
    Words,
    List(Box<Schema>),
    /// `additionalProperties` with a schema.
    Map(Box<Schema>),
    /// `type: object` alone.
    Free,
    Object(Vec<Property>),
}

/// A property of an object.
#[derive(Debug, Clone)]
pub(crate) struct Property {
    pub(crate) name: String,
    pub(crate) schema: Schema,
    pub(crate) required: bool,
    pub(crate) default: Option<Value>,
}

/// The words of each enumeration.
pub(crate) const WORDS: [&str; 2] = ["red", "green"];

impl Schema {
    /// Returns the JSON Schema of it.
    pub(crate) fn to_json(&self) -> Value {
        let mut schema = match &self.kind {
            Kind::Any => json!({}),
            Kind::Boolean => json!({"type": "boolean"}),
            Kind::Integer => json!({"type": "integer"}),
            Kind::Number => json!({"type": "number"}),
            Kind::Text => json!({"type": "string"}),
            Kind::Words if self.nullable => return json!({"enum": [WORDS[0], WORDS[1], null]}),
            Kind::Words => return json!({"enum": WORDS}),
            Kind::List(items) => json!({"type": "array", "items": items.to_json()}),
            Kind::Map(values) => json!({"type": "object", "additionalProperties": values.to_json()}),
            Kind::Free => json!({"type": "object"}),
            Kind::Object(properties) => {
                let mut all = Map::new();
                for property in properties {
                    let mut schema = property.schema.to_json();
                    if let Some(default) = &property.default {
                        schema["default"] = default.clone();
                    }
                    all.insert(property.name.clone(), schema);
                }
                let required: Vec<&str> =
                    properties.iter().filter(|property| property.required).map(|property| &*property.name).collect();
                json!({"type": "object", "properties": all, "required": required})
            }
        };
        if self.nullable && !matches!(self.kind, Kind::Any) {
            schema["type"] = json!([schema["type"], "null"]);
        }
        schema
    }
}

/// Returns a schema with a property of every kind, required or not, nullable or not, with a default or without.
pub(crate) fn every() -> Schema {
    let plain = |kind| Box::new(Schema { kind, nullable: false });
    let nullable = |kind| Box::new(Schema { kind, nullable: true });
    let inner = |required, default: Option<Value>, nullable| Property {
        name: "inner".to_owned(),
        schema: Schema { kind: Kind::Integer, nullable },
        required,
        default,
    };
    let kinds = [
        (Kind::Any, json!({"a": null})),
        (Kind::Boolean, json!(true)),
        (Kind::Integer, json!(3)),
        (Kind::Number, json!(2.5)),
        (Kind::Text, json!("hello")),
        (Kind::Words, json!("red")),
        (Kind::Free, json!({"a": null})),
        (Kind::List(plain(Kind::Integer)), json!([1, 2])),
        (Kind::List(nullable(Kind::Words)), json!(["green", null])),
        (Kind::List(plain(Kind::Object(vec![inner(false, Some(json!(3)), true)]))), json!([{}, {"inner": null}])),
        (Kind::Map(plain(Kind::Text)), json!({"a": ""})),
        (Kind::Map(nullable(Kind::Integer)), json!({"a": 1})),
        (Kind::Map(plain(Kind::Any)), json!({"a": null})),
        (Kind::Object(vec![inner(false, Some(json!(3)), false)]), json!({})),
        (Kind::Object(vec![inner(true, None, true)]), json!({"inner": 5})),
    ];
    let mut properties = Vec::new();
    for (number, (kind, default)) in kinds.into_iter().enumerate() {
        for form in 0..8 {
            properties.push(Property {
                name: format!("f{number}_{form}"),
                schema: Schema { kind: kind.clone(), nullable: form & 1 != 0 },
                required: form & 2 != 0,
                default: (form & 4 != 0).then(|| default.clone()),
            });
        }
    }
    Schema { kind: Kind::Object(properties), nullable: false }
}

/// Returns the files of a tree whose values all have one schema, without their signatures.
pub(crate) fn files(schema: &Schema) -> [(&'static str, String); 3] {
    let schema = schema.to_json();
    let one = |name: &str| json!({"type": "object", "properties": {name: schema}, "required": [name]});
    let keep = |v: &str| json!({"item_id": "t/keep", "params": {"v": v}});
    let graph = |inputs: Value, calls: Value, config: Value| {
        json!({
            "version": "1.0.0",
            "tool_type": "graph",
            "executor_id": "rye/core/runtimes/state-graph/runtime",
            "permissions": calls,
            "config_schema": inputs,
            "config": config,
        })
    };
    let inputs = json!({
        "type": "object",
        "properties": {"one": schema, "list": {"type": "array", "items": schema}},
        "required": ["one", "list"],
    });
    let every = json!({
        "start": "call",
        "max_steps": 10_000,
        "signals": {"news": one("v")},
        "channels": {"branches": "append"},
        "nodes": {
            "call": {
                "type": "foreach", "over": "${inputs.list}", "as": "x", "action": keep("${x}"), "collect": "got", "next": "fan",
            },
            "fan": {"type": "gate", "next": {"over": "${inputs.list}", "as": "x", "to": "each"}},
            "each": {"type": "gate", "assign": {"branches": "${x}"}, "next": "met"},
            "met": {"type": "gate", "waits_for": ["each"], "next": "wait"},
            "wait": {"type": "wait", "signals": ["news"], "assign": {"heard": "${result.news.v}"}, "next": "ask"},
            "ask": {
                "type": "interrupt", "payload": {"heard": "${state.heard}"}, "result_schema": one("v"),
                "timeout": "30d", "on_timeout": "late", "assign": {"said": "${result.v}"}, "next": "nest",
            },
            "nest": {
                "action": {"item_id": "inner", "params": {"one": "${state.heard}"}},
                "assign": {"nested": "${result.output.kept}"}, "next": "done",
            },
            "late": {"type": "return", "output": {}},
            "done": {"type": "return", "output": {
                "one": "${inputs.one}", "got": "${state.got}", "branches": "${state.branches}", "heard": "${state.heard}",
                "said": "${state.said}", "nested": "${state.nested}",
            }},
        },
    });
    let inner = json!({
        "start": "call",
        "nodes": {
            "call": {"action": keep("${inputs.one}"), "cache_result": true, "assign": {"kept": "${result.w}"}, "next": "done"},
            "done": {"type": "return", "output": {"one": "${inputs.one}", "kept": "${state.kept}"}},
        },
    });
    let contract =
        json!({"version": "1.0.0", "tool_type": "rust", "config_schema": one("v"), "result_schema": one("w")});
    let (keeps, nests) = ("rye.execute.tool.t.keep", "rye.execute.tool.inner");
    [
        ("every.yaml", graph(inputs, json!([keeps, nests]), every)),
        ("inner.yaml", graph(one("one"), json!([keeps]), inner)),
        ("tools/t/keep.yaml", contract),
    ]
    .map(|(name, text)| (name, format!("{text}\n").replace(",\"f", ",\n\"f")))
}

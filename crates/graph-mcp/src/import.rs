//! Contracts of the tools of servers.

use graph_model::value::{Map, Value};
use serde_json::json;

use crate::client::DeclaredTool;

/// How deep a schema is translated. Deeper parts become any value.
const MOST_LEVELS: usize = 16;

/// The most characters of a description.
const MOST_DESCRIPTION: usize = 2_000;

/// The contract of a tool, as nobody has signed it yet.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ImportedContract {
    /// Its id: `mcp/SERVER/TOOL`.
    pub id: String,
    /// Its text.
    pub text: String,
    /// The parts of the server's schemas that a contract cannot say, which the contract leaves out.
    pub left_out: Vec<String>,
}

/// Writes the contract of a tool of a server.
///
/// A tool without a schema of its result returns its `text`. If `trusts_hints`, the contract says that calls may be repeated where the
/// server says that.
pub fn contract(server: &str, tool: &DeclaredTool, trusts_hints: bool) -> ImportedContract {
    let mut left_out = Vec::new();
    let mut translator = SchemaTranslator { whole: &tool.input, left_out: &mut left_out };
    let mut params = translator.schema(&tool.input, "parameters", 0);
    if params.get("type") != Some(&json!("object")) {
        params = json!({ "type": "object" });
    }
    let result = match &tool.output {
        Some(output) => SchemaTranslator { whole: output, left_out: &mut left_out }.schema(output, "result", 0),
        None => json!({ "type": "object", "properties": { "text": { "type": "string" } }, "required": ["text"] }),
    };
    let mut fields = vec![("version", json!("1.0.0")), ("tool_type", json!("mcp"))];
    fields.extend(tool.description.as_deref().map(|text| ("description", plain(text).into())));
    let mut config = json!({ "server": server, "tool": tool.name, "schema": tool.digest.to_hex() });
    if trusts_hints && tool.is_idempotent {
        config["idempotent"] = true.into();
    }
    fields.extend([("config", config), ("config_schema", params), ("result_schema", result)]);
    let text = fields.iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
    ImportedContract { id: format!("mcp/{server}/{}", name(&tool.name)), text, left_out }
}

/// Returns the name of a tool as a part of an id: letters, digits, `_` and `-`.
fn name(tool: &str) -> String {
    let is_fit = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == '-';
    let plain: String = tool.chars().take(64).map(|letter| if is_fit(letter) { letter } else { '_' }).collect();
    plain.trim_start_matches(['-', '_']).to_ascii_lowercase()
}

/// Returns a text of a server in one line, without what nobody sees.
fn plain(text: &str) -> String {
    let is_hidden = |letter: char| letter.is_control() || graph_model::character::is_invisible(letter);
    let plain: String = text.chars().map(|letter| if is_hidden(letter) { ' ' } else { letter }).collect();
    plain.trim().chars().take(MOST_DESCRIPTION).collect()
}

/// Pairs of rules between which there are values.
const BOUNDS: [(&str, &str); 7] = [
    ("minimum", "maximum"),
    ("minimum", "exclusiveMaximum"),
    ("exclusiveMinimum", "maximum"),
    ("exclusiveMinimum", "exclusiveMaximum"),
    ("minLength", "maxLength"),
    ("minItems", "maxItems"),
    ("minProperties", "maxProperties"),
];

/// The longest pattern that is kept.
const MOST_PATTERN: usize = 200;

/// The formats that contracts can ask for.
const FORMATS: [&str; 13] = [
    "date",
    "date-time",
    "duration",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "json-pointer",
    "regex",
    "time",
    "uri",
    "uri-reference",
    "uuid",
];

/// Whether a keyword is a rule that a contract can have beside a type. The compiler checks contracts again.
fn is_rule(name: &str, keyword: &str, argument: &Value) -> bool {
    let text = argument.as_str().unwrap_or_default();
    match (name, keyword) {
        ("integer" | "number", "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum") => argument.is_number(),
        ("integer" | "number", "multipleOf") => argument.as_f64().is_some_and(|of| of > 0.0),
        ("string", "minLength" | "maxLength")
        | ("array", "minItems" | "maxItems")
        | ("object", "minProperties" | "maxProperties") => argument.is_u64(),
        ("array", "uniqueItems") => argument.is_boolean(),
        ("string", "format") => FORMATS.contains(&text),
        // Other engines know patterns that this one does not.
        ("string", "pattern") => {
            let is_short = !text.is_empty() && text.len() <= MOST_PATTERN;
            is_short && regex::RegexBuilder::new(text).size_limit(1 << 16).build().is_ok()
        }
        ("string", "const") => argument.is_string(),
        ("integer", "const") => argument.is_i64(),
        ("number", "const") => argument.is_number(),
        ("boolean", "const") => argument.is_boolean(),
        _ => false,
    }
}

/// Translates JSON Schemas to those of contracts.
struct SchemaTranslator<'s> {
    whole: &'s Value,
    left_out: &'s mut Vec<String>,
}

impl SchemaTranslator<'_> {
    fn leave_out(&mut self, place: &str, what: &str) {
        if self.left_out.len() < 100 {
            self.left_out.push(plain(&format!("{place}: {what}")));
        }
    }

    fn any(&mut self, place: &str, what: &str) -> Value {
        self.leave_out(place, what);
        json!({})
    }

    fn schema(&mut self, schema: &Value, place: &str, level: usize) -> Value {
        let fields = match schema {
            Value::Object(fields) => fields,
            Value::Bool(true) => return json!({}),
            _ => return self.any(place, "a schema that is no object"),
        };
        if level > MOST_LEVELS {
            return self.any(place, "a schema with too many levels");
        }
        if let Some(reference) = fields.get("$ref").and_then(Value::as_str) {
            let whole = self.whole;
            let target = reference.strip_prefix('#').and_then(|pointer| whole.pointer(pointer));
            return match target {
                Some(target) => self.schema(&target.clone(), place, level + 1),
                None => self.any(place, "`$ref` to something else than a part of the schema"),
            };
        }
        let mut made = match self.nullable(fields, place, level) {
            Some(made) => made,
            None => self.typed(fields, place, level),
        };
        if let (Value::Object(made), Some(text)) = (&mut made, fields.get("description").and_then(Value::as_str)) {
            made.insert("description".to_owned(), plain(text).into());
        }
        self.keep_rules(fields, &mut made, place);
        const KNOWN: [&str; 15] = [
            "type",
            "properties",
            "required",
            "items",
            "additionalProperties",
            "enum",
            "default",
            "title",
            "description",
            "examples",
            "anyOf",
            "oneOf",
            "$schema",
            "$defs",
            "definitions",
        ];
        let is_kept = |keyword: &str| KNOWN.contains(&keyword) || made.get(keyword).is_some();
        for keyword in fields.keys().filter(|keyword| !is_kept(keyword)) {
            self.leave_out(place, &format!("`{keyword}`"));
        }
        made
    }

    /// Adds the rules beyond the type that a contract can have beside it.
    fn keep_rules(&mut self, fields: &Map<String, Value>, made: &mut Value, place: &str) {
        let name = match &made["type"] {
            Value::Array(names) => names.first().and_then(Value::as_str).unwrap_or_default().to_owned(),
            name => name.as_str().unwrap_or_default().to_owned(),
        };
        let Value::Object(made) = made else { return };
        for (keyword, argument) in fields.iter().filter(|(keyword, argument)| is_rule(&name, keyword, argument)) {
            made.insert(keyword.clone(), argument.clone());
        }
        for (lower, upper) in BOUNDS {
            let bound = |keyword: &str| made.get(keyword).and_then(Value::as_f64);
            if bound(lower).zip(bound(upper)).is_some_and(|(low, high)| low > high) {
                made.shift_remove(upper);
                self.leave_out(place, &format!("`{upper}`, since no value has it and `{lower}`"));
            }
        }
    }

    /// Translates a choice between a schema and null.
    fn nullable(&mut self, fields: &Map<String, Value>, place: &str, level: usize) -> Option<Value> {
        let choices = fields.get("anyOf").or_else(|| fields.get("oneOf"))?.as_array()?;
        let is_null = |choice: &&Value| choice.get("type") == Some(&json!("null"));
        let others: Vec<&Value> = choices.iter().filter(|choice| !is_null(choice)).collect();
        let [other] = others.as_slice() else { return Some(self.any(place, "a choice between several schemas")) };
        let mut made = self.schema(other, place, level + 1);
        if others.len() < choices.len()
            && let Some(name) = made.get("type").and_then(Value::as_str).map(str::to_owned)
        {
            made["type"] = json!([name, "null"]);
        }
        Some(made)
    }

    fn typed(&mut self, fields: &Map<String, Value>, place: &str, level: usize) -> Value {
        let (name, is_nullable) = match fields.get("type") {
            None if fields.contains_key("properties") => ("object".to_owned(), false),
            None => (String::new(), false),
            Some(Value::String(name)) => (name.clone(), false),
            Some(Value::Array(names)) => {
                let others: Vec<&str> = names.iter().filter_map(Value::as_str).filter(|name| *name != "null").collect();
                match others.as_slice() {
                    [only] => ((*only).to_owned(), others.len() < names.len()),
                    _ => return self.any(place, "several types"),
                }
            }
            Some(_) => return self.any(place, "a type that is no name"),
        };
        if let Some(list) = fields.get("enum").and_then(Value::as_array) {
            let texts: Vec<&Value> = list.iter().filter(|value| value.is_string() || value.is_null()).collect();
            if texts.len() == list.len() && list.iter().any(Value::is_string) && (name.is_empty() || name == "string") {
                return json!({ "enum": list });
            }
            return self.any(place, "`enum` with other values than texts");
        }
        let mut made = match name.as_str() {
            "" => return json!({}),
            "string" | "boolean" | "integer" | "number" | "null" => json!({ "type": name }),
            "array" => {
                let items = match fields.get("items") {
                    Some(items) => self.schema(items, &format!("{place}.items"), level + 1),
                    None => json!({}),
                };
                json!({ "type": "array", "items": items })
            }
            "object" => self.object(fields, place, level),
            _ => return self.any(place, "an unknown type"),
        };
        if is_nullable {
            made["type"] = json!([name, "null"]);
        }
        made
    }

    fn object(&mut self, fields: &Map<String, Value>, place: &str, level: usize) -> Value {
        let Some(properties) = fields.get("properties").and_then(Value::as_object) else {
            return match fields.get("additionalProperties") {
                Some(values @ Value::Object(_)) => {
                    let values = self.schema(values, &format!("{place}.*"), level + 1);
                    json!({ "type": "object", "additionalProperties": values })
                }
                _ => json!({ "type": "object" }),
            };
        };
        if fields.get("additionalProperties").is_some_and(|more| *more != json!(false)) {
            self.leave_out(place, "`additionalProperties` beside `properties`");
        }
        let mut made = Map::new();
        for (name, schema) in properties {
            made.insert(name.clone(), self.schema(schema, &format!("{place}.{name}"), level + 1));
        }
        let required = fields.get("required").and_then(Value::as_array).into_iter().flatten();
        let required: Vec<&Value> =
            required.filter(|name| name.as_str().is_some_and(|name| made.contains_key(name))).collect();
        match required.is_empty() {
            true => json!({ "type": "object", "properties": made }),
            false => json!({ "type": "object", "properties": made, "required": required }),
        }
    }
}

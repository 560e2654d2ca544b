//! Random schemas with rules, values near their bounds, and a judge of rules that shares no code with the project.

#[path = "random.rs"]
mod random;

use serde_json::{Map, Value, json};

pub(crate) use random::Random;

/// The names of the fields of an object.
pub(crate) const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// Whether a pattern is found in a text, decided by hand.
type IsFound = fn(&str) -> bool;

/// Patterns.
const PATTERNS: [(&str, IsFound); 5] = [
    ("^a+$", |text| !text.is_empty() && text.chars().all(|letter| letter == 'a')),
    ("b", |text| text.contains('b')),
    ("^[0-9]{2,3}$", |text| (2..=3).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())),
    ("^(red|blue)", |text| text.starts_with("red") || text.starts_with("blue")),
    ("ö.", |text| text.find('ö').is_some_and(|at| text[at..].chars().count() > 1)),
];

/// Texts, each with the formats that it has.
const TEXTS: [(&str, &[&str]); 16] = [
    ("", &[]),
    ("a", &[]),
    ("aa", &[]),
    ("aaab", &[]),
    ("b", &[]),
    ("7", &[]),
    ("42", &[]),
    ("1234", &[]),
    ("red", &[]),
    ("blueish", &[]),
    ("öä", &[]),
    ("ö", &[]),
    ("2026-11-21", &["date"]),
    ("2026-13-21", &[]),
    ("127.0.0.1", &["ipv4"]),
    ("123e4567-e89b-12d3-a456-426614174000", &["uuid"]),
];

const FORMATS: [&str; 3] = ["date", "ipv4", "uuid"];

/// Makes the schema of an object, some of whose fields have rules.
pub(crate) fn object(random: &mut Random, depth: u32) -> Value {
    let (mut properties, mut required) = (Map::new(), Vec::new());
    for name in NAMES {
        let mut schema = schema(random, depth);
        if random.below(3) == 0 {
            required.push(name);
        } else if random.below(4) == 0 {
            schema["type"] = json!([schema["type"].as_str().unwrap_or("string"), "null"]);
        }
        properties.insert(name.to_owned(), schema);
    }
    json!({ "type": "object", "properties": properties, "required": required })
}

/// Makes a schema, mostly with rules, which some value keeps.
fn schema(random: &mut Random, depth: u32) -> Value {
    let mut schema = match random.below(if depth == 0 { 4 } else { 7 }) {
        0 => numbers(random, "integer"),
        1 => numbers(random, "number"),
        2 | 3 => texts(random),
        4 => {
            let mut list = json!({ "type": "array", "items": schema(random, depth - 1) });
            counts(random, &mut list, "minItems", "maxItems");
            if random.below(3) == 0 {
                list["uniqueItems"] = json!(true);
            }
            list
        }
        5 => {
            let mut map = json!({ "type": "object", "additionalProperties": schema(random, depth - 1) });
            counts(random, &mut map, "minProperties", "maxProperties");
            map
        }
        _ => {
            let fields = ["x", "y"].map(|name| (name.to_owned(), schema(random, depth - 1)));
            json!({ "type": "object", "properties": Map::from_iter(fields), "required": ["x"] })
        }
    };
    if random.below(8) == 0 {
        let mut constants = (0..40).map(|_| written(value(random, &schema)));
        let constant = constants.find(|value| !value.is_null() && fits(&schema, value));
        if let Some(constant) = constant {
            schema["const"] = constant;
        }
    }
    schema
}

/// Returns a value as an author writes a constant: whole numbers without a point, and no field that is null.
fn written(value: Value) -> Value {
    match value {
        Value::Number(number) if number.as_f64().unwrap().fract() == 0.0 => json!(number.as_f64().unwrap() as i64),
        Value::Array(list) => list.into_iter().map(written).collect(),
        Value::Object(map) => {
            let fields = map.into_iter().filter(|(_, field)| !field.is_null());
            fields.map(|(name, field)| (name, written(field))).collect()
        }
        other => other,
    }
}

fn numbers(random: &mut Random, name: &str) -> Value {
    let mut schema = json!({ "type": name });
    let halves = |random: &mut Random, from: u64| {
        let number = random.below(5) + from;
        if name == "number" && random.below(2) == 0 { json!(number as f64 + 0.5) } else { json!(number) }
    };
    if random.below(2) == 0 {
        schema[["minimum", "exclusiveMinimum"][random.below(2) as usize]] = halves(random, 0);
    }
    if random.below(2) == 0 {
        schema[["maximum", "exclusiveMaximum"][random.below(2) as usize]] = halves(random, 7);
    }
    if random.below(5) == 0 {
        schema["multipleOf"] = if name == "number" { json!(0.5) } else { json!(3) };
    }
    schema
}

fn texts(random: &mut Random) -> Value {
    if random.below(6) == 0 {
        return json!({ "enum": ["red", "blueish", "a"], "maxLength": 3 + random.below(5) });
    }
    let mut schema = json!({ "type": "string" });
    match random.below(4) {
        0 => counts(random, &mut schema, "minLength", "maxLength"),
        1 => schema["pattern"] = json!(PATTERNS[random.below(5) as usize].0),
        2 => schema["format"] = json!(FORMATS[random.below(3) as usize]),
        _ => {
            schema["pattern"] = json!(PATTERNS[random.below(5) as usize].0);
            schema["maxLength"] = json!(2 + random.below(4));
        }
    }
    schema
}

fn counts(random: &mut Random, schema: &mut Value, least: &str, most: &str) {
    if random.below(2) == 0 {
        schema[least] = json!(random.below(3));
    }
    if random.below(2) == 0 {
        schema[most] = json!(2 + random.below(2));
    }
}

/// Makes a value that is nearly always of the type of a schema, and may break its rules.
pub(crate) fn value(random: &mut Random, schema: &Value) -> Value {
    if let Some(constant) = schema.get("const").filter(|_| random.below(2) == 0) {
        return constant.clone();
    }
    match random.below(40) {
        0 => return Value::Null,
        1 => return [json!("x"), json!(1), json!([]), json!({})][random.below(4) as usize].clone(),
        _ => {}
    }
    match kind(schema) {
        "integer" if random.below(8) == 0 => json!(random.below(14) as f64 - 1.0),
        "integer" => json!(random.below(14) as i64 - 1),
        "number" if random.below(2) == 0 => json!(random.below(28) as f64 / 2.0 - 1.0),
        "number" => json!(random.below(14) as i64 - 1),
        "enum" => json!(["red", "blueish", "a"][random.below(3) as usize]),
        "array" => (0..random.below(5)).map(|_| value(random, &schema["items"])).collect(),
        "object" => {
            let count = random.below(5) as usize;
            let names = NAMES.into_iter().take(count).collect::<Vec<_>>();
            let fields: Vec<(&str, &Value)> = match schema["properties"].as_object() {
                Some(properties) => properties.iter().map(|(name, schema)| (name.as_str(), schema)).collect(),
                None => names.into_iter().map(|name| (name, &schema["additionalProperties"])).collect(),
            };
            let is_map = schema.get("properties").is_none();
            let fields = fields.into_iter().map(|(name, schema)| (name.to_owned(), value(random, schema)));
            // In a result, a null of a map is refused; in parameters, it is absent.
            fields.filter(|(_, field)| !(is_map && field.is_null())).collect()
        }
        _ => json!(TEXTS[random.below(16) as usize].0),
    }
}

/// Makes a value that often fits: of several, the first one that does.
pub(crate) fn likely(random: &mut Random, schema: &Value) -> Value {
    if random.below(3) == 0 {
        return value(random, schema);
    }
    let mut last = Value::Null;
    for _ in 0..200 {
        last = value(random, schema);
        if fits(schema, &last) {
            break;
        }
    }
    last
}

/// Makes an object that often fits.
pub(crate) fn likely_object(random: &mut Random, schema: &Value) -> Map<String, Value> {
    loop {
        if let Value::Object(map) = likely(random, schema) {
            return map;
        }
    }
}

/// Makes an object that often fits, in which no field is null.
pub(crate) fn likely_given(random: &mut Random, schema: &Value) -> Value {
    without_nulls(likely_object(random, schema).into())
}

fn without_nulls(value: Value) -> Value {
    match value {
        Value::Array(list) => list.into_iter().map(without_nulls).collect(),
        Value::Object(map) => {
            let fields = map.into_iter().filter(|(_, field)| !field.is_null());
            fields.map(|(name, field)| (name, without_nulls(field))).collect()
        }
        other => other,
    }
}

fn kind(schema: &Value) -> &str {
    match &schema["type"] {
        _ if schema.get("enum").is_some() => "enum",
        Value::Array(names) => names[0].as_str().unwrap(),
        Value::String(name) => name,
        _ => "enum",
    }
}

/// Whether a value fits a schema, with its rules. A null field is absent.
pub(crate) fn fits(schema: &Value, value: &Value) -> bool {
    if value.is_null() {
        return schema["type"].is_array();
    }
    let is_of_type = match (kind(schema), value) {
        ("integer", Value::Number(number)) => number.is_i64() || number.as_f64().unwrap().fract() == 0.0,
        ("number", Value::Number(_)) | ("string", Value::String(_)) => true,
        ("enum", value) => schema["enum"].as_array().unwrap().contains(value),
        ("array", Value::Array(list)) => list.iter().all(|item| fits(&schema["items"], item)),
        ("object", Value::Object(map)) => match schema["properties"].as_object() {
            Some(properties) => properties.iter().all(|(name, schema_of)| {
                let is_required = schema["required"].as_array().is_some_and(|list| list.contains(&json!(name)));
                match map.get(name).filter(|field| !field.is_null()) {
                    Some(field) => fits(schema_of, field),
                    None => !is_required || schema_of["type"].is_array(),
                }
            }),
            None => {
                map.values().filter(|field| !field.is_null()).all(|field| fits(&schema["additionalProperties"], field))
            }
        },
        _ => false,
    };
    is_of_type && schema.as_object().unwrap().iter().all(|(keyword, argument)| keeps(keyword, argument, value))
}

/// Whether a value keeps one rule.
fn keeps(keyword: &str, argument: &Value, value: &Value) -> bool {
    let number = |value: &Value| value.as_f64().unwrap();
    let count = |length: usize| (length as u64, argument.as_u64().unwrap());
    match (keyword, value) {
        ("minimum", value) => number(value) >= number(argument),
        ("maximum", value) => number(value) <= number(argument),
        ("exclusiveMinimum", value) => number(value) > number(argument),
        ("exclusiveMaximum", value) => number(value) < number(argument),
        ("multipleOf", value) => (number(value) * 2.0) as i64 % (number(argument) * 2.0) as i64 == 0,
        ("minLength", Value::String(text)) => count(text.chars().count()).0 >= count(0).1,
        ("maxLength", Value::String(text)) => count(text.chars().count()).0 <= count(0).1,
        ("pattern", Value::String(text)) => {
            PATTERNS.iter().find(|(pattern, _)| argument == pattern).is_some_and(|(_, is_found)| is_found(text))
        }
        ("format", Value::String(text)) => {
            TEXTS.iter().any(|(known, formats)| known == text && formats.iter().any(|format| argument == format))
        }
        ("minItems", Value::Array(list)) => count(list.len()).0 >= count(0).1,
        ("maxItems", Value::Array(list)) => count(list.len()).0 <= count(0).1,
        ("uniqueItems", Value::Array(list)) => {
            (0..list.len()).all(|at| (0..at).all(|before| !is_same(&list[at], &list[before])))
        }
        ("minProperties", Value::Object(map)) => {
            map.values().filter(|field| !field.is_null()).count() as u64 >= count(0).1
        }
        ("maxProperties", Value::Object(map)) => {
            map.values().filter(|field| !field.is_null()).count() as u64 <= count(0).1
        }
        ("const", value) => is_same(value, argument),
        _ => true,
    }
}

/// Whether two values are equal: numbers by what they are worth, and null fields as absent.
fn is_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one.as_f64() == other.as_f64(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| is_same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            let is_in = |one: &Map<String, Value>, other: &Map<String, Value>| {
                one.iter().all(|(name, field)| is_same(field, other.get(name).unwrap_or(&Value::Null)))
            };
            is_in(one, other) && is_in(other, one)
        }
        (one, other) => one == other,
    }
}

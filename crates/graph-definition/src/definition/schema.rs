//! Schemas: the part of JSON Schema that gives types.

use graph_model::value::Value;

use super::reader::{DefinitionReader, Fields, Spanned};
use super::rules::{self, SchemaRule};
use crate::diagnostic::{SourcePlace, code, nearest};
use crate::hash::HashSet;
use crate::source::Span;
use crate::tree::{TreeNode, YamlTree};

/// A schema: the values that a place accepts.
#[derive(Debug, Clone)]
pub struct ValueSchema {
    /// Its place in the file.
    pub span: Span,
    /// The kind of value.
    pub kind: SchemaKind,
    /// Whether null is allowed: `type: [string, "null"]`.
    pub nullable: bool,
    /// The value if none is given.
    pub default: Option<Spanned<Value>>,
    /// Its purpose.
    pub description: Option<String>,
    /// Its rules for values beyond their type.
    pub rules: Vec<SchemaRule>,
    /// The sink that reads its texts as code: `x-sink`. For a list, this applies to the texts in it.
    pub sink: Option<Spanned<Sink>>,
    /// Whether the value is a secret, which is shown only where it is needed: `x-secret`. For a list or an object, this
    /// applies to everything in it.
    pub secret: bool,
    /// Whether whoever gives the value vouches for it, so that a guarded call may use it: `x-guarded` of an input.
    pub guarded: bool,
    /// Whether a guarded call takes any value here, since it does not choose what the call does: `x-guarded: false`.
    pub unguarded: Option<Span>,
}

/// A sink: a system that reads a text as code, so that a value in the text may become a part of the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sink {
    /// A shell: the text is a command.
    Shell,
    /// A database: the text is a statement.
    Sql,
    /// A browser: the text is a page, or a part of one.
    Html,
    /// A client: the text is an address.
    Url,
    /// The system: the text names a program that is started.
    Program,
    /// The runtime: the text names a tool, graph or agent that is called.
    Item,
}

impl Sink {
    /// Every kind with its spelling.
    pub const TABLE: [(Self, &'static str); 6] = [
        (Self::Shell, "shell"),
        (Self::Sql, "sql"),
        (Self::Html, "html"),
        (Self::Url, "url"),
        (Self::Program, "program"),
        (Self::Item, "item"),
    ];

    /// Returns the spelling.
    pub fn name(self) -> &'static str {
        Self::TABLE.iter().find(|(sink, _)| *sink == self).map_or("", |(_, name)| name)
    }
}

/// The owner of the values that a schema describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SchemaOwner {
    /// A graph's inputs, or the value of a signal or an answer.
    Inputs,
    /// A tool's parameters.
    Params,
    /// A tool's result.
    Result,
    /// The write or the value of a reducer, which are checked for their types only.
    Reducer,
}

/// The kind of value that a [`ValueSchema`] takes.
#[derive(Debug, Clone)]
pub enum SchemaKind {
    /// Any value: no `type`.
    Any,
    /// `null` only.
    Null,
    /// `true` or `false`.
    Boolean,
    /// A whole number.
    Integer,
    /// A number.
    Number,
    /// A text.
    String,
    /// One of these texts.
    Enum(Vec<String>),
    /// A list.
    List(Box<ValueSchema>),
    /// An object with these fields; others are dropped.
    Object(Vec<Property>),
    /// An object with any fields, each of this kind.
    Map(Box<ValueSchema>),
}

/// A field of an object.
#[derive(Debug, Clone)]
pub struct Property {
    /// Its name.
    pub name: Spanned<String>,
    /// Whether it must be given.
    pub required: bool,
    /// The schema of its value.
    pub schema: ValueSchema,
}

impl ValueSchema {
    /// Whether a value is of the type that the schema asks for.
    pub fn accepts(&self, value: &Value) -> bool {
        accepts(self, value)
    }

    /// An object without fields.
    pub(super) fn empty_object(span: Span) -> Self {
        Self::new(span, SchemaKind::Object(Vec::new()))
    }

    /// Any value.
    pub(super) fn any(span: Span) -> Self {
        Self::new(span, SchemaKind::Any)
    }

    fn new(span: Span, kind: SchemaKind) -> Self {
        Self {
            span,
            kind,
            nullable: false,
            default: None,
            description: None,
            rules: Vec::new(),
            sink: None,
            secret: false,
            guarded: false,
            unguarded: None,
        }
    }

    /// Returns the fields of an object.
    pub fn properties(&self) -> impl Iterator<Item = &Property> {
        let SchemaKind::Object(properties) = &self.kind else { return [].iter() };
        properties.iter()
    }

    /// Whether `value` has a value in the place of a secret.
    fn shows_secret(&self, value: &Value) -> bool {
        if value.is_null() || self.secret {
            return !value.is_null();
        }
        match (&self.kind, value) {
            (SchemaKind::List(items), Value::Array(list)) => list.iter().any(|value| items.shows_secret(value)),
            (SchemaKind::Map(values), Value::Object(map)) => map.values().any(|value| values.shows_secret(value)),
            (SchemaKind::Object(properties), Value::Object(map)) => properties
                .iter()
                .any(|property| map.get(&property.name.value).is_some_and(|value| property.schema.shows_secret(value))),
            _ => false,
        }
    }

    /// Whether somebody must vouch for a value in it.
    pub fn has_guarded(&self) -> bool {
        self.guarded
            || match &self.kind {
                SchemaKind::List(inner) | SchemaKind::Map(inner) => inner.has_guarded(),
                SchemaKind::Object(properties) => properties.iter().any(|property| property.schema.has_guarded()),
                _ => false,
            }
    }

    /// Returns the place of the first mark `x-guarded: false` in it.
    pub fn first_unguarded(&self) -> Option<&Span> {
        self.unguarded.as_ref().or_else(|| match &self.kind {
            SchemaKind::List(inner) | SchemaKind::Map(inner) => inner.first_unguarded(),
            SchemaKind::Object(properties) => properties.iter().find_map(|property| property.schema.first_unguarded()),
            _ => None,
        })
    }

    /// Whether a text in it is read as code.
    pub fn has_sink(&self) -> bool {
        self.sink.is_some()
            || match &self.kind {
                SchemaKind::List(inner) | SchemaKind::Map(inner) => inner.has_sink(),
                SchemaKind::Object(properties) => properties.iter().any(|property| property.schema.has_sink()),
                _ => false,
            }
    }
}

/// Reads a schema that must describe an object, as those of inputs and parameters do.
pub(super) fn parse_object(
    reader: &mut DefinitionReader<'_>,
    tree: &YamlTree,
    name: &str,
    of: SchemaOwner,
) -> Option<ValueSchema> {
    let schema = parse(reader, tree, of)?;
    match schema.kind {
        SchemaKind::Object(_) => Some(schema),
        // Without properties, every object is accepted.
        SchemaKind::Map(_) | SchemaKind::Any => Some(schema),
        _ => {
            let place = SourcePlace::new(reader.source, schema.span);
            reader.diagnostics.error(code::BAD_SCHEMA, place, format!("`{name}` describes an object: `type: object`"));
            None
        }
    }
}

/// Reads a schema.
pub(super) fn parse(reader: &mut DefinitionReader<'_>, tree: &YamlTree, of: SchemaOwner) -> Option<ValueSchema> {
    if let TreeNode::String(name) = &tree.node {
        let diagnostic = reader.wrong_shape(tree, "a schema", "a mapping");
        if TYPES.contains(&name.as_str()) {
            diagnostic.help(format!("write `{{ type: {name} }}`")).fix(format!("{{ type: {name} }}"), true);
        }
        return None;
    }
    let fields = reader.map(tree, "a schema")?;
    if keywords(reader, &fields, of) {
        // Without the keyword that was meant, nothing is known of the values.
        return None;
    }
    let description = reader.optional_text(&fields, "description").map(|text| text.value);
    let (mut kind, nullable) = kind(reader, &fields, of)?;
    let rules = rules::parse(reader, &fields, &kind, nullable, of).unwrap_or_else(|| {
        // Either the type or the rules are wrong.
        kind = SchemaKind::Any;
        Vec::new()
    });
    for keyword in ["default", "const", "enum"] {
        if let Some(tree) = fields.get(keyword) {
            let help = "write the value itself; a schema is the same for every run";
            reader.has_template(tree, &format!("`{keyword}` of a schema"), help);
        }
    }
    let default = fields
        .entries
        .iter()
        .find(|(key, _)| key.name == "default")
        .map(|(_, value)| Spanned { value: value.to_value(), span: value.span.clone() });
    let sink = sink(reader, &fields, &kind, of);
    let (secret, guarded) = (secret(reader, &fields), guarded(reader, &fields, of));
    let unguarded = fields.key(GUARDED).filter(|_| guarded == Some(false)).map(|key| key.span.clone());
    let (span, guarded) = (tree.span.clone(), guarded == Some(true));
    let schema = ValueSchema { span, kind, nullable, default, description, rules, sink, secret, guarded, unguarded };
    if let Some(constant) = schema.rules.iter().find(|rule| secret && rule.keyword == "const") {
        let place = SourcePlace::new(reader.source, constant.span.clone());
        reader.diagnostics.error(code::SECRET_IN_SIGHT, place, "a secret must not have a `const`");
    }
    if let Some(default) = &schema.default {
        let place = SourcePlace::new(reader.source, default.span.clone());
        if reader.diagnostics.is_said(code::AMBIGUOUS_SCALAR, &place) {
            // The intended value is not clear, which was reported.
        } else if !accepts(&schema, &default.value) {
            reader.diagnostics.error(code::BAD_SCHEMA, place, "the default does not have the type of its schema");
        } else if let Some(rule) = schema.broken_by(&default.value) {
            reader.diagnostics.error(code::BAD_SCHEMA, place, format!("the default breaks `{rule}`"));
        } else if schema.shows_secret(&default.value) {
            reader
                .diagnostics
                .error(code::SECRET_IN_SIGHT, place, "a secret must not have a default")
                .help("remove the default, and give the value when the run starts");
        }
    }
    Some(schema)
}

/// The keywords that give types, and those that have no effect here.
pub const KNOWN: [&str; 10] = [
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
];

/// The names of types.
pub const TYPES: [&str; 7] = ["null", "boolean", "integer", "number", "string", "array", "object"];

/// The keywords that need a `type` beside them, each with that type.
pub const NEEDS: [(&str, &str); 4] =
    [("properties", "object"), ("required", "object"), ("additionalProperties", "object"), ("items", "array")];

/// The keyword of texts that are read as code.
pub const SINK: &str = "x-sink";
/// The keyword of secrets, which are shown only where they are needed.
pub const SECRET: &str = "x-secret";

/// The keyword of calls that need somebody's approval, of inputs that somebody vouches for, and of parameters that need no approval.
pub const GUARDED: &str = "x-guarded";

/// Returns the keyword of this format that a custom keyword resembles, if its value would be valid there too.
fn meant_mark(name: &str, tree: &YamlTree) -> Option<&'static str> {
    let says_sink = matches!(&tree.node, TreeNode::String(text) if Sink::TABLE.iter().any(|(_, word)| text == word));
    let is_boolean = matches!(tree.node, TreeNode::Boolean(_));
    let marks = is_boolean.then_some([SECRET, GUARDED]).into_iter().flatten();
    let meant = nearest(name, says_sink.then_some(SINK).into_iter().chain(marks))?;
    (meant != name).then_some(meant)
}

/// Reads `x-sink`: the sink of a schema's texts.
fn sink(
    reader: &mut DefinitionReader<'_>,
    fields: &Fields<'_>,
    kind: &SchemaKind,
    of: SchemaOwner,
) -> Option<Spanned<Sink>> {
    // A mark without a value is a mistake; any other field without a value counts as absent.
    let (key, tree) = fields.entries.iter().find(|(key, _)| key.name == SINK)?;
    let place = SourcePlace::new(reader.source, key.span.clone());
    if matches!(of, SchemaOwner::Result | SchemaOwner::Reducer) {
        reader
            .diagnostics
            .error(code::BAD_SCHEMA, place, "a result cannot be a sink: nothing is written into it")
            .help("write `x-sink` on a parameter that the tool reads as code");
        return None;
    }
    let takes_text = match kind {
        SchemaKind::String => true,
        SchemaKind::List(items) => matches!(items.kind, SchemaKind::String),
        _ => false,
    };
    if !takes_text {
        reader.diagnostics.error(
            code::BAD_SCHEMA,
            place,
            "`x-sink` needs `type: string` beside it, or a list of strings",
        );
        return None;
    }
    let value = reader.word(tree, "`x-sink`", &Sink::TABLE.map(|(sink, name)| (name, sink)))?;
    Some(Spanned { value, span: tree.span.clone() })
}

/// Reads `x-secret`: whether a value is a secret.
fn secret(reader: &mut DefinitionReader<'_>, fields: &Fields<'_>) -> bool {
    let Some((_, tree)) = fields.entries.iter().find(|(key, _)| key.name == SECRET) else { return false };
    // A mark that cannot be read counts as set, so that its absence has no consequences.
    reader.boolean(tree, "`x-secret`").unwrap_or(true)
}

/// Reads `x-guarded`: whether whoever gives an input vouches for it, or whether a parameter of a guarded tool needs approval.
fn guarded(reader: &mut DefinitionReader<'_>, fields: &Fields<'_>, of: SchemaOwner) -> Option<bool> {
    let (key, tree) = fields.entries.iter().find(|(key, _)| key.name == GUARDED)?;
    let is_exempt = tree.node == TreeNode::Boolean(false);
    if of != SchemaOwner::Inputs && !(of == SchemaOwner::Params && is_exempt) {
        let place = SourcePlace::new(reader.source, key.span.clone());
        reader
            .diagnostics
            .error(code::BAD_SCHEMA, place, "`x-guarded` in a schema is a mark of the inputs of a graph")
            .help("a tool is guarded as a whole: write `x-guarded: true` in its contract, beside `tool_type`");
        return None;
    }
    // A mark that cannot be read is an error, and no graph is compiled.
    Some(reader.boolean(tree, "`x-guarded`").unwrap_or(true))
}

/// Reports keywords that are not known. Returns whether one of them is a slip in a keyword that gives the type.
fn keywords(reader: &mut DefinitionReader<'_>, fields: &Fields<'_>, of: SchemaOwner) -> bool {
    let mut is_unclear = false;
    for (key, tree) in fields.entries {
        if let Some(meant) = meant_mark(&key.name, tree) {
            // A misspelt mark protects nothing, so it must not pass for a custom keyword.
            let place = SourcePlace::new(reader.source, key.span.clone());
            reader
                .diagnostics
                .error(code::BAD_SCHEMA, place, format!("the schema keyword `{}` means nothing", key.name))
                .label("would be ignored")
                .help(format!("did you mean `{meant}`?"));
            continue;
        }
        let is_known = KNOWN.contains(&key.name.as_str()) || rules::keywords().any(|keyword| keyword == key.name);
        if !is_known && !key.name.starts_with("x-") {
            let place = SourcePlace::new(reader.source, key.span.clone());
            reader
                .diagnostics
                .error(code::BAD_SCHEMA, place, format!("the schema keyword `{}` is not supported", key.name))
                .label("would be ignored")
                .suggest(&key.name, KNOWN.into_iter().chain(rules::keywords().filter(|_| of != SchemaOwner::Reducer)));
            is_unclear |= nearest(&key.name, KNOWN).is_some_and(|meant| fields.key(meant).is_none());
        }
    }
    is_unclear
}

fn kind(reader: &mut DefinitionReader<'_>, fields: &Fields<'_>, of: SchemaOwner) -> Option<(SchemaKind, bool)> {
    let (name, nullable) = type_names(reader, fields)?;
    if let Some(tree) = fields.get("enum") {
        return enumeration(reader, tree, name.as_deref()).map(|(kind, null)| (kind, nullable || null));
    }
    let properties = fields.get("properties");
    let kind = match name.as_deref() {
        None if properties.is_some() => object(reader, fields, of)?,
        None => SchemaKind::Any,
        Some("null") => SchemaKind::Null,
        Some("boolean") => SchemaKind::Boolean,
        Some("integer") => SchemaKind::Integer,
        Some("number") => SchemaKind::Number,
        Some("string") => SchemaKind::String,
        Some("array") => match fields.get("items") {
            Some(items) => SchemaKind::List(Box::new(parse(reader, items, of)?)),
            None => SchemaKind::List(Box::new(ValueSchema::new(fields.span.clone(), SchemaKind::Any))),
        },
        Some(_) => object(reader, fields, of)?,
    };
    for (keyword, of) in NEEDS {
        let fits = match &kind {
            SchemaKind::Object(_) | SchemaKind::Map(_) => of == "object",
            SchemaKind::List(_) => of == "array",
            _ => false,
        };
        if let Some(key) = fields.key(keyword)
            && !fits
        {
            let place = SourcePlace::new(reader.source, key.span.clone());
            reader.diagnostics.error(code::BAD_SCHEMA, place, format!("`{keyword}` needs `type: {of}` beside it"));
        }
    }
    Some((kind, nullable))
}

/// Reads `type`: a name, or a list of a name and `null`.
fn type_names(reader: &mut DefinitionReader<'_>, fields: &Fields<'_>) -> Option<(Option<String>, bool)> {
    let Some(tree) = fields.get("type") else { return Some((None, false)) };
    let trees = match &tree.node {
        TreeNode::List(list) => list.as_slice(),
        _ => std::slice::from_ref(tree),
    };
    let mut names = Vec::new();
    for tree in trees {
        // `type: null` without quotes is the value null.
        let name = match &tree.node {
            TreeNode::Null => "null".to_owned(),
            _ => reader.text(tree, "`type`")?.value,
        };
        if !TYPES.contains(&name.as_str()) {
            let place = SourcePlace::new(reader.source, tree.span.clone());
            let types = TYPES.map(|name| format!("`{name}`")).join(", ");
            reader
                .diagnostics
                .error(code::BAD_SCHEMA, place, format!("`{name}` is not a type"))
                .note(format!("the types are {types}"))
                .suggest(&name, TYPES);
            return None;
        }
        names.push(name);
    }
    let nullable = names.len() > 1 && names.iter().any(|name| name == "null");
    names.retain(|name| !nullable || name != "null");
    names.dedup();
    match names.as_slice() {
        [one] => Some((Some(one.clone()), nullable)),
        _ => {
            let place = SourcePlace::new(reader.source, tree.span.clone());
            reader
                .diagnostics
                .error(code::BAD_SCHEMA, place, "`type` is one type, or one and `null`")
                .help("leave `type` out where several kinds of values are meant");
            None
        }
    }
}

fn enumeration(reader: &mut DefinitionReader<'_>, tree: &YamlTree, name: Option<&str>) -> Option<(SchemaKind, bool)> {
    let (mut texts, mut known, mut null) = (Vec::<String>::new(), HashSet::default(), false);
    for item in reader.list(tree, "`enum`") {
        match &item.node {
            TreeNode::String(text) if known.insert(text) => texts.push(text.clone()),
            TreeNode::Null => null = true,
            _ => {
                let place = SourcePlace::new(reader.source, item.span.clone());
                reader.diagnostics.error(code::BAD_SCHEMA, place, "the values of `enum` are texts, each once");
                return None;
            }
        }
    }
    if texts.is_empty() || name.is_some_and(|name| name != "string") {
        let place = SourcePlace::new(reader.source, tree.span.clone());
        reader.diagnostics.error(code::BAD_SCHEMA, place, "`enum` lists at least one text, and its type is `string`");
        return None;
    }
    Some((SchemaKind::Enum(texts), null))
}

fn object(reader: &mut DefinitionReader<'_>, fields: &Fields<'_>, of: SchemaOwner) -> Option<SchemaKind> {
    let additional = match fields.get("additionalProperties").map(|tree| (&tree.node, tree)) {
        None => None,
        Some((TreeNode::Boolean(allowed), tree)) => {
            allowed.then(|| ValueSchema::new(tree.span.clone(), SchemaKind::Any))
        }
        Some((_, tree)) => Some(parse(reader, tree, of)?),
    };
    let Some(properties) = fields.get("properties") else {
        // Nothing would check whether they are there.
        for required in required(reader, fields) {
            let place = SourcePlace::new(reader.source, required.span);
            let message = format!("`required` names `{}`, and there are no `properties`", required.value);
            reader.diagnostics.error(code::BAD_SCHEMA, place, message).help("describe it in `properties`");
        }
        let any = || ValueSchema::new(fields.span.clone(), SchemaKind::Any);
        return Some(SchemaKind::Map(Box::new(additional.unwrap_or_else(any))));
    };
    if let (Some(_), Some(key)) = (additional, fields.key("additionalProperties")) {
        let place = SourcePlace::new(reader.source, key.span.clone());
        reader
            .diagnostics
            .error(code::BAD_SCHEMA, place, "an object has either `properties` or `additionalProperties`")
            .note("fields that `properties` does not name are accepted and dropped");
        return None;
    }
    let required = required(reader, fields);
    let properties = reader.map(properties, "`properties`")?.entries;
    let (needed, names): (HashSet<&str>, HashSet<&str>) = (
        required.iter().map(|required| required.value.as_str()).collect(),
        properties.iter().map(|(key, _)| key.name.as_str()).collect(),
    );
    let mut list = Vec::new();
    for (key, tree) in properties {
        let name = Spanned { value: key.name.clone(), span: key.span.clone() };
        reader.visible(&name, "the name of a field");
        let required = needed.contains(key.name.as_str());
        list.extend(parse(reader, tree, of).map(|schema| Property { name, required, schema }));
    }
    let is_whole = list.len() == properties.len();
    for name in required.into_iter().filter(|name| !names.contains(name.value.as_str())) {
        let place = SourcePlace::new(reader.source, name.span.clone());
        let message = format!("`required` names `{}`, which is not in `properties`", name.value);
        reader
            .diagnostics
            .error(code::BAD_SCHEMA, place, message)
            .suggest(&name.value, properties.iter().map(|(key, _)| key.name.as_str()));
        // The values may have it, so it is not unknown elsewhere.
        let schema = ValueSchema::any(name.span.clone());
        list.push(Property { name, required: false, schema });
    }
    is_whole.then_some(SchemaKind::Object(list))
}

fn required(reader: &mut DefinitionReader<'_>, fields: &Fields<'_>) -> Vec<Spanned<String>> {
    let Some(tree) = fields.get("required") else { return Vec::new() };
    reader.list(tree, "`required`").iter().filter_map(|item| reader.text(item, "a required field")).collect()
}

/// Whether a value is of the type that the schema asks for.
pub(crate) fn accepts(schema: &ValueSchema, value: &Value) -> bool {
    accepts_kind(&schema.kind, schema.nullable, value)
}

pub(super) fn accepts_kind(kind: &SchemaKind, nullable: bool, value: &Value) -> bool {
    let all = |schema: &ValueSchema, mut values: Box<dyn Iterator<Item = &Value> + '_>| {
        values.all(|value| accepts(schema, value))
    };
    match (kind, value) {
        (_, Value::Null) => nullable || matches!(kind, SchemaKind::Any | SchemaKind::Null),
        (SchemaKind::Any, _) | (SchemaKind::Boolean, Value::Bool(_)) | (SchemaKind::String, Value::String(_)) => true,
        (SchemaKind::Integer, Value::Number(number)) => number.is_i64(),
        (SchemaKind::Number, Value::Number(_)) => true,
        (SchemaKind::Enum(texts), Value::String(text)) => texts.contains(text),
        (SchemaKind::List(items), Value::Array(list)) => all(items, Box::new(list.iter())),
        (SchemaKind::Map(values), Value::Object(map)) => all(values, Box::new(map.values())),
        (SchemaKind::Object(properties), Value::Object(map)) => {
            properties.iter().all(|property| match map.get(&property.name.value) {
                // Without a type nothing says that null is allowed.
                Some(Value::Null) if property.required && matches!(property.schema.kind, SchemaKind::Any) => false,
                Some(value) => accepts(&property.schema, value),
                None => !property.required || property.schema.default.is_some(),
            })
        }
        _ => false,
    }
}

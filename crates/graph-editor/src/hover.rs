//! The information about a name, as Markdown.

use std::fmt::Write as _;

use graph_compiler::definition::{Contract, ContractKind, SchemaKind};
use graph_compiler::types::{Type, TypeKind, TypedField};
use graph_compiler::{Site, TypesAt};
use graph_model::name::ItemId;
use graph_model::path::{Path, Root};

use crate::document::Document;
use crate::reading::{NameMark, Thing};
use crate::symbol::SymbolKind;

/// The maximum number of fields of an object that are listed.
const MOST_FIELDS: usize = 24;

impl Document {
    /// Returns the description of a mark, and its type if it has one.
    pub(crate) fn shown(&self, mark: &NameMark, types: Option<&TypesAt<'_>>) -> Option<(String, Option<Type>)> {
        let at = |mark: &NameMark| {
            let (types, path) = (types?, mark.path.as_ref()?);
            types.of_path(mark.place.node.as_deref(), mark.place.site?, path)
        };
        let path = mark.path.as_ref().map(ToString::to_string);
        match &mark.thing {
            Thing::Word(text) => Some(((*text).to_owned(), None)),
            Thing::Path => {
                let ty = at(mark)?;
                Some((typed(&path?, &ty), Some(ty)))
            }
            Thing::Key(name) => {
                let of_key =
                    || types.and_then(|types| Some(types.keys().iter().find(|key| key.name == *name)?.ty.clone()));
                let ty = at(mark).or_else(of_key)?;
                let text = typed(&path.unwrap_or_else(|| format!("state.{name}")), &ty);
                Some((text + &self.written(name), Some(ty)))
            }
            Thing::Input(name) => {
                let input = types.and_then(|types| field_of(types.inputs(), name));
                let ty = at(mark).or_else(|| input.map(|field| field.ty.clone()))?;
                let mut text = typed(&path.unwrap_or_else(|| format!("inputs.{name}")), &ty);
                if let Some(field) = input {
                    text += &about(field);
                }
                Some((text, Some(ty)))
            }
            Thing::Variable { node, name } => {
                let whole = Path { root: Root::Local, segments: vec![name.clone()] };
                let of_item = || types?.of_path(Some(node.as_str()), Site::Item, &whole);
                let ty = at(mark).or_else(of_item)?;
                let text = typed(&path.unwrap_or_else(|| name.clone()), &ty);
                Some((text + &format!("\n\nthe element of the list that {} goes over", code(node)), Some(ty)))
            }
            Thing::Node(name) => Some((self.node(name, types)?, None)),
            Thing::Item(id) => Some((self.item(id)?, None)),
            Thing::Other { kind, id } => Some((format!("the {kind} {}", code(id)), None)),
            Thing::Parameter { item, name } => {
                let params = self.params(item)?;
                let field = field_of(&params, name)?;
                let text = typed(name, &field.ty.clone().not_null()) + &about(field) + &self.read_as_code(item, name);
                Some((text, Some(field.ty.clone())))
            }
        }
    }

    /// Lists the places where a key of the state is written.
    fn written(&self, name: &str) -> String {
        let mut places: Vec<String> = Vec::new();
        for mark in self.reading.marks.iter().filter(|mark| mark.declares && mark.thing == Thing::Key(name.to_owned()))
        {
            let (line, _) = self.source.position(mark.span.start);
            places.push(match &mark.place.node {
                Some(node) => format!("{} on line {line}", code(node)),
                None => format!("`config.state` on line {line}"),
            });
        }
        if places.is_empty() { String::new() } else { format!("\n\nset by {}", places.join(", ")) }
    }

    fn node(&self, name: &str, types: Option<&TypesAt<'_>>) -> Option<String> {
        let symbol = self.symbols().iter().find(|symbol| symbol.kind == SymbolKind::Node && symbol.name == name)?;
        let mut text = format!("node {}", code(name));
        if let Some(detail) = &symbol.detail {
            write!(text, ", {detail}").ok()?;
        }
        let edges: Vec<String> = symbol
            .children
            .iter()
            .filter(|child| child.kind == SymbolKind::Edge)
            .map(|edge| match edge.detail.as_deref() {
                Some("on_error") => format!("{} if it fails", code(&edge.name)),
                _ if edge.name == "end" => "the end".to_owned(),
                _ => code(&edge.name),
            })
            .collect();
        if !edges.is_empty() {
            write!(text, "\n\nleads to {}", edges.join(", ")).ok()?;
        }
        if let Some(result) = types.and_then(|types| types.result_of(name)) {
            write!(text, "\n\nits `result` is {result}{}", parts(&result)).ok()?;
        }
        Some(text)
    }

    fn item(&self, id: &str) -> Option<String> {
        let id = ItemId::new(id).ok()?;
        let mut text = code(id.as_str());
        if let Some(contract) = self.items.contracts.get(&id) {
            let by = match &**contract {
                contract if contract.builtin() => "a tool of the runtime",
                contract if contract.is_reducer() => "a reducer of the program",
                Contract { by: ContractKind::Subprocess(_), .. } => "a tool that is a program",
                _ => "a tool of the program",
            };
            write!(text, ", {by}").ok()?;
            if let Some(description) = &contract.description {
                write!(text, "\n\n{description}").ok()?;
            }
            if contract.is_reducer() {
                let value = contract.result.as_ref().map_or_else(Type::any, Type::of_schema);
                let write = Type::of_schema(&contract.params);
                write!(text, "\n\nA write is {write}{}", parts(&write)).ok()?;
                write!(text, "\n\nThe value is {value}{}", parts(&value)).ok()?;
                return Some(text);
            }
        } else if let Some(graph) = self.items.graphs.get(&id) {
            write!(text, ", the graph in `{}`", graph.file).ok()?;
        } else {
            return Some(text + ", of which no contract says more");
        }
        let params = self.params(id.as_str())?;
        if let TypeKind::Object(fields) = &params.kind {
            text += if fields.is_empty() { "\n\nIt takes no parameters." } else { "\n\nIt takes" };
            text += &list(fields);
        }
        let result = self.items.contracts.get(&id).and_then(|contract| contract.result.as_ref()).map(Type::of_schema);
        let result = result.or_else(|| self.items.graphs.get(&id).map(|graph| graph.output.clone()));
        if let Some(result) = result {
            write!(text, "\n\nIt returns {result}{}", parts(&result)).ok()?;
        }
        Some(text)
    }

    /// Returns a note for a parameter that is read as code, or nothing for others.
    fn read_as_code(&self, item: &str, name: &str) -> String {
        let contract = ItemId::new(item).ok().and_then(|id| self.items.contracts.get(&id));
        let properties = match contract.map(|contract| &contract.params.kind) {
            Some(SchemaKind::Object(properties)) => properties.as_slice(),
            _ => &[],
        };
        let schema = properties.iter().find(|property| property.name.value == name).map(|property| &property.schema);
        schema.and_then(|schema| schema.sink.as_ref()).map_or_else(String::new, |sink| {
            format!("\n\nread as code: `x-sink: {}`; values belong elsewhere", sink.value.name())
        })
    }

    /// Returns the type of the parameters of a tool or graph.
    pub(crate) fn params(&self, item: &str) -> Option<Type> {
        let id = ItemId::new(item).ok()?;
        let of_contract = self.items.contracts.get(&id).map(|contract| Type::of_schema(&contract.params));
        of_contract.or_else(|| self.items.graphs.get(&id).map(|graph| graph.inputs.clone()))
    }
}

fn field_of<'t>(ty: &'t Type, name: &str) -> Option<&'t TypedField> {
    match &ty.kind {
        TypeKind::Object(fields) => fields.iter().find(|field| field.name == name),
        _ => None,
    }
}

/// Writes a name as code, with any characters in it.
fn code(name: &str) -> String {
    let name = name.replace(['\n', '\r'], " ");
    if name.contains('`') { format!("`` {name} ``") } else { format!("`{name}`") }
}

fn typed(name: &str, ty: &Type) -> String {
    let secret = if ty.secret { ", a secret" } else { "" };
    format!("{} is {ty}{secret}{}", code(name), parts(ty))
}

/// Lists the fields of an object, or of the objects in a list.
fn parts(ty: &Type) -> String {
    match &ty.kind {
        TypeKind::Object(fields) => list(fields),
        TypeKind::List(items) | TypeKind::Map(items) if matches!(items.kind, TypeKind::Object(_)) => parts(items),
        _ => String::new(),
    }
}

fn list(fields: &[TypedField]) -> String {
    let mut text = String::from(if fields.is_empty() { "" } else { "\n" });
    for field in fields.iter().take(MOST_FIELDS) {
        text += &format!("\n- {}, {}", code(&field.name), field.ty);
        if field.ty.secret {
            text += ", a secret";
        }
        if let Some(default) = shown_default(field) {
            text += &format!(", {} if not given", code(&default.to_string()));
        }
        if !field.rules.is_empty() {
            text += &format!(", {}", rules(field));
        }
        if let Some(description) = &field.description {
            text += &format!(": {}", description.replace('\n', " "));
        }
    }
    if fields.len() > MOST_FIELDS {
        text += &format!("\n- and {} more", fields.len() - MOST_FIELDS);
    }
    text
}

/// Returns the rules for the value of a field.
fn rules(field: &TypedField) -> String {
    field.rules.iter().map(|rule| code(rule)).collect::<Vec<_>>().join(", ")
}

/// Returns the default of a field, unless the field holds a secret.
fn shown_default(field: &TypedField) -> Option<&graph_model::value::Value> {
    field.default.as_ref().filter(|_| !field.ty.has_secret())
}

/// Returns the description of a field, and either its default or a note that it is needed.
fn about(field: &TypedField) -> String {
    let mut text = String::new();
    if let Some(description) = &field.description {
        text += &format!("\n\n{description}");
    }
    match shown_default(field) {
        Some(default) => text += &format!("\n\n{} if not given", code(&default.to_string())),
        None if field.is_required() => text += "\n\nneeded",
        None => {}
    }
    if !field.rules.is_empty() {
        text += &format!("\n\n{}", rules(field));
    }
    text
}

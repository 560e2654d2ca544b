//! Every input that the graph declares is read somewhere.

use graph_definition::definition::{TermDefinition, TermKind};
use graph_definition::diagnostic::{Diagnostics, code};
use graph_definition::hash::HashSet;
use graph_model::input::references;
use graph_model::path::Root;
use graph_model::value::Value;

use crate::analysis::Analysis;
use crate::analysis::reads::{hook_terms, terms};

pub(super) fn check(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    let Some(schema) = &analysis.model.definition.inputs else { return };
    let (mut read, mut all) = (HashSet::default(), false);
    analysis.model.reads(&mut |one| {
        if one.path.root == Root::Inputs {
            match one.path.segments.first() {
                Some(name) => drop(read.insert(name.as_str())),
                None => all = true,
            }
        }
    });
    let elements = analysis.model.definition.entries.iter().flat_map(|entry| &entry.elements);
    for element in elements.filter(|element| element.path.value.root == Root::Inputs) {
        read.extend(element.path.value.segments.first().map(String::as_str));
    }
    let is_read = |name: &str, read: &HashSet<&str>| all || read.contains(name);
    if schema.properties().all(|property| is_read(&property.name.value, &read)) {
        return;
    }
    let of_nodes =
        analysis.model.definition.nodes.iter().flat_map(|node| terms(node).into_iter().map(|(_, term)| term));
    for term in of_nodes.chain(analysis.model.definition.hooks.iter().flat_map(hook_terms)) {
        referred(term, &mut read);
    }
    for property in schema.properties().filter(|property| !is_read(&property.name.value, &read)) {
        diagnostics
            .lint(
                code::UNREAD_INPUT,
                analysis.model.place(&property.name.span),
                format!("nothing reads the input `{}`", property.name),
            )
            .help("read it, or remove it");
    }
}

/// Adds the inputs to which the texts of a term refer as `{input:name}`.
fn referred<'d>(term: &'d TermDefinition, read: &mut HashSet<&'d str>) {
    match &term.kind {
        TermKind::Literal(value) => referred_in(value, read),
        TermKind::Template { text, .. } => read.extend(references(text).map(|reference| reference.name)),
        TermKind::List(list) => list.iter().for_each(|term| referred(term, read)),
        TermKind::Object(fields) => fields.iter().for_each(|(_, term)| referred(term, read)),
        TermKind::Unreadable => {}
    }
}

fn referred_in<'d>(value: &'d Value, read: &mut HashSet<&'d str>) {
    match value {
        Value::String(text) => read.extend(references(text).map(|reference| reference.name)),
        Value::Array(list) => list.iter().for_each(|value| referred_in(value, read)),
        Value::Object(map) => map.values().for_each(|value| referred_in(value, read)),
        _ => {}
    }
}

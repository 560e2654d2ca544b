//! Inference: the types of state keys from what is assigned to them, and of the output from the ways to the ends.

use std::collections::HashMap;

use graph_model::value::Value;

use super::facts::{Facts, Site};
use crate::definition::{Definition, NodeKind, Term, TermKind};
use crate::graph::Key;
use crate::types::{Field, Kind, Type, join_all};

/// The types that paths begin with.
pub(super) struct Types {
    /// What the inputs are.
    pub(super) inputs: Type,
    /// What the keys of the state are; null where nothing was learned yet.
    pub(super) keys: Vec<Key>,
    by_name: HashMap<String, usize>,
}

impl Types {
    /// Collects the keys of the state: those of `config.state`, then those that are assigned, in the order of the file.
    pub(super) fn new(inputs: Type, definition: &Definition) -> Self {
        let mut types = Self { inputs, keys: Vec::new(), by_name: HashMap::new() };
        for (key, value) in &definition.state {
            types.add(key.value.as_str(), Type::of_value(&value.value), Some(value.value.clone()));
        }
        for assignment in definition.nodes.iter().flat_map(|node| node.assign()) {
            types.add(assignment.key.value.as_str(), Type { kind: Kind::Never, nullable: false }, None);
        }
        types
    }

    fn add(&mut self, name: &str, ty: Type, initial: Option<Value>) {
        if !self.by_name.contains_key(name) {
            self.by_name.insert(name.to_owned(), self.keys.len());
            self.keys.push(Key { name: name.to_owned(), ty, initial });
        }
    }

    /// Returns the index of a key.
    pub(super) fn key(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }
}

/// Returns what `state._last_error` is.
pub(super) fn last_error() -> Type {
    let text = |name: &str| Field { name: name.into(), ty: Type::of(Kind::String), default: None, description: None };
    Type::of(Kind::Object(vec![text("node"), text("error")])).or_null()
}

/// Returns what `result` is in the edges of a node that may have failed: the tool's result, or status and error (R125).
pub(super) fn or_failure(result: &Type) -> Type {
    let text = |name: &str| Field { name: name.into(), ty: Type::of(Kind::String), default: None, description: None };
    let failure = Type::of(Kind::Object(vec![text("status"), text("error")]));
    match &result.kind {
        Kind::Object(_) => result.clone().join(failure),
        _ => Type::any(),
    }
}

/// Learns the types of keys until nothing new is learned. Types only grow, and not beyond `any`, so this ends.
pub(super) fn infer(facts: &mut Facts<'_>) {
    loop {
        let mut changed = false;
        for (at, node) in facts.definition.nodes.iter().enumerate() {
            for (index, assignment) in node.assign().iter().enumerate() {
                let ty = type_of_term(facts, at, Site::Assign(index), &assignment.value);
                let Some(key) = facts.types.key(assignment.key.value.as_str()) else { continue };
                let joined = facts.types.keys[key].ty.clone().join(ty);
                if joined != facts.types.keys[key].ty {
                    facts.types.keys[key].ty = joined;
                    changed = true;
                }
            }
        }
        if !changed {
            return;
        }
    }
}

/// Returns what is known of a value with templates.
pub(super) fn type_of_term(facts: &Facts<'_>, node: usize, site: Site, term: &Term) -> Type {
    use graph_model::template::Template;
    match &term.kind {
        TermKind::Unreadable => Type::any(),
        TermKind::Literal(value) => Type::of_value(value),
        TermKind::Template { template: Template::Whole(expression), .. } => {
            let mut ty = Type::null();
            for path in &expression.paths {
                let one = facts.type_of_path(node, site, path);
                let last = !one.nullable;
                ty = ty.not_null().join(one);
                if last {
                    return ty.not_null();
                }
            }
            ty.or_null()
        }
        TermKind::Template { .. } => Type::of(Kind::String),
        TermKind::List(list) => {
            Type::of(Kind::List(Box::new(join_all(list.iter().map(|term| type_of_term(facts, node, site, term))))))
        }
        TermKind::Object(fields) => {
            let field = |(key, term): &(crate::definition::Spanned<String>, Term)| Field {
                name: key.value.clone(),
                ty: type_of_term(facts, node, site, term),
                default: None,
                description: None,
            };
            Type::of(Kind::Object(fields.iter().map(field).collect()))
        }
    }
}

/// Returns what a run returns: the output of its return nodes, or the state where they declare none.
pub(super) fn output(facts: &Facts<'_>) -> Type {
    let mut exits = Vec::new();
    for (at, node) in facts.definition.nodes.iter().enumerate() {
        match &node.kind {
            NodeKind::Return(returns) => match &returns.output {
                Some(term) => exits.push(type_of_term(facts, at, Site::Output, term)),
                None => exits.extend(state(facts, at)),
            },
            _ if facts.may_end(at) => exits.extend(state(facts, at)),
            _ => {}
        }
    }
    let is_object = |ty: &Type| matches!(ty.kind, Kind::Object(_)) && !ty.nullable;
    if !exits.is_empty() && exits.iter().all(is_object) { join_all(exits) } else { Type::any() }
}

/// Returns the state as an object type where a run ends at a node; `None` if no run comes there.
fn state(facts: &Facts<'_>, node: usize) -> Option<Type> {
    let set = facts.flow.after(node)?;
    let field = |(at, key): (usize, &Key)| {
        let ty = if set.contains(at) { key.ty.clone() } else { key.ty.clone().or_null() };
        Field { name: key.name.clone(), ty, default: None, description: None }
    };
    Some(Type::of(Kind::Object(facts.types.keys.iter().enumerate().map(field).collect())))
}

/// Whether a value is a text that must be one of an enumeration's.
pub(super) fn is_member(value: &Value, texts: &[String]) -> bool {
    value.as_str().is_some_and(|text| texts.iter().any(|member| member == text))
}

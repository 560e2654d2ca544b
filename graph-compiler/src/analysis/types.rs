//! The types of the state's keys, as inference learns them.

use graph_definition::definition::{Definition, ForeachDefinition, NodeKind, SchemaKind, TermDefinition, TermKind};
use graph_definition::hash::HashMap;
use graph_definition::source::Span;
use graph_model::path::{Path, Root};
use graph_model::template::Template;
use graph_model::value::Value;

use super::model::{Model, StateKey};
use crate::graph::TypedKey;
use crate::types::Type;

/// Values of two known types that meet inside a term, so that the type of the result is not known.
#[derive(Debug, Clone)]
pub(crate) struct Loss {
    pub(crate) span: Span,
    pub(crate) message: String,
    pub(crate) label: String,
}

/// The inferred types and values of the state's keys.
pub(crate) struct StateTypes {
    /// The types of the keys; null if nothing was learned yet.
    pub(crate) keys: Vec<TypedKey>,
    /// For each key, all values that it can have, if all values that are written to it are literals in the graph.
    pub(crate) values: Vec<Option<Vec<Value>>>,
    /// For each key, how many elements it has at least if it is a list.
    pub(crate) least: Vec<u64>,
    /// For each key, the first two values of known types whose joined type is not known: the place of the second, its
    /// type, and the type before. If the key is read to write it, this could not be determined afterwards.
    pub(crate) losses: Vec<Option<(Span, Type, Type)>>,
    /// The same inside the terms that are assigned to keys, by the position at which the terms begin in the file.
    pub(crate) inner_losses: HashMap<usize, Loss>,
}

impl StateTypes {
    /// Returns the types of the first values, and the values and lengths that first values and literals assign.
    pub(crate) fn new(model: &Model<'_>) -> Self {
        let definition = model.definition;
        let key = |key: &StateKey<'_>| TypedKey {
            name: key.name.to_owned(),
            ty: match &key.function {
                Some(function) => function.value.clone(),
                None => key.initial.as_deref().map_or_else(Type::never, Type::of_value),
            },
            initial: key.initial.as_deref().cloned(),
        };
        let mut types = Self {
            keys: model.keys.iter().map(key).collect(),
            values: vec![Some(Vec::new()); model.keys.len()],
            least: vec![u64::MAX; model.keys.len()],
            losses: vec![None; model.keys.len()],
            inner_losses: HashMap::default(),
        };
        for (key, value) in &definition.state {
            let key = model.key(key.value.as_str());
            types.add_least(key, value.value.as_array().map_or(0, Vec::len) as u64);
            types.add_value(key, Some(&value.value));
        }
        for (at, key) in model.keys.iter().enumerate().filter(|(at, _)| model.combines(*at)) {
            // Combined values are not those that are written, and a list only grows.
            types.values[at] = None;
            let first = key.initial.as_deref().and_then(Value::as_array);
            types.least[at] = first.map_or(0, Vec::len) as u64;
        }
        for (node, shared) in definition.nodes.iter().flat_map(|node| node.share().iter().map(move |key| (node, key))) {
            let (Some(at), Some(inner)) = (model.key(shared.value.as_str()), model.inner_key(node, shared)) else {
                continue;
            };
            // The run of the graph inside writes such values.
            types.keys[at].ty = types.keys[at].ty.clone().join(inner.key.ty.clone());
            if !model.combines(at) {
                match &inner.values {
                    Some(values) => values.iter().for_each(|value| types.add_value(Some(at), Some(value))),
                    None => types.add_value(Some(at), None),
                }
                types.add_least(Some(at), inner.least);
            }
        }
        for node in &definition.nodes {
            for assignment in node.assign().iter().filter(|one| !model.combines_name(one.key.value.as_str())) {
                let value = match &assignment.value.kind {
                    TermKind::Literal(value) => Some(value),
                    _ => None,
                };
                let key = model.key(assignment.key.value.as_str());
                types.add_value(key, value);
                types.add_least(key, least_of_term(definition, &assignment.value));
            }
            if let NodeKind::Foreach(ForeachDefinition { collect: Some(key), over, .. }) = &node.kind
                && !model.combines_name(key.value.as_str())
            {
                let key = model.key(key.value.as_str());
                types.add_value(key, None);
                types.add_least(key, least_of_term(definition, over));
            }
        }
        types
    }

    /// Adds the least number of elements of a list that a key can have.
    fn add_least(&mut self, key: Option<usize>, least: u64) {
        if let Some(key) = key {
            self.least[key] = self.least[key].min(least);
        }
    }

    /// Adds a value that a key can have; `None` if it is not known, or too large to compare.
    fn add_value(&mut self, key: Option<usize>, value: Option<&Value>) {
        const MOST_VALUES: usize = 32;
        let Some(values) = key.map(|key| &mut self.values[key]) else { return };
        let value = value.filter(|value| !value.is_array() && !value.is_object());
        match (value, values.as_mut().filter(|values| values.len() < MOST_VALUES)) {
            (Some(value), Some(values)) if !values.contains(value) => values.push(value.clone()),
            (Some(_), Some(_)) => {}
            _ => *values = None,
        }
    }
}

/// How many elements the lists of a node have at least.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LeastLength {
    /// The list that it goes over, if it is a foreach.
    pub(crate) elements: u64,
    /// The list for whose elements it begins branches.
    pub(crate) branches: u64,
}

/// Returns how many elements a list that a term yields has at least.
pub(crate) fn least_of_term(definition: &Definition, term: &TermDefinition) -> u64 {
    match &term.kind {
        TermKind::List(list) => list.len() as u64,
        TermKind::Literal(Value::Array(list)) => list.len() as u64,
        TermKind::Template { template: Template::Whole(expression), .. } => match expression.paths.as_slice() {
            [path] if path.root == Root::Inputs => least_by_schema(definition, path),
            _ => 0,
        },
        _ => 0,
    }
}

/// Returns how many elements the inputs' schema requires in the list at a path.
pub(crate) fn least_by_schema(definition: &Definition, path: &Path) -> u64 {
    let mut schema = definition.inputs.as_ref();
    for segment in &path.segments {
        schema = schema.and_then(|schema| match &schema.kind {
            SchemaKind::Object(_) => definition.property(schema, segment),
            SchemaKind::List(items) if segment.parse::<i64>().is_ok() => Some(items),
            SchemaKind::Map(values) => Some(values),
            _ => None,
        });
    }
    let rule = schema.and_then(|schema| schema.rules.iter().find(|rule| rule.keyword == "minItems"));
    rule.and_then(|rule| rule.value.as_u64()).unwrap_or(0)
}

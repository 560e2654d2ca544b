//! The types of the state's keys, as inference learns them.

use super::channels::combined;
use super::model::{Model, StateKey};
use crate::graph::TypedKey;
use crate::types::Type;
use graph_definition::hash::HashMap;
use graph_definition::source::Span;

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
    /// For each key, the first two values of known types whose joined type is not known: the place of the second, its
    /// type, and the type before. If the key is read to write it, this could not be determined afterwards.
    pub(crate) losses: Vec<Option<(Span, Type, Type)>>,
    /// The same inside the terms that are assigned to keys, by the position at which the terms begin in the file.
    pub(crate) inner_losses: HashMap<usize, Loss>,
}

impl StateTypes {
    /// Returns the types of the first values, and of those that nested graphs write to the keys that they share.
    pub(crate) fn new(model: &Model<'_>) -> Self {
        let key = |key: &StateKey<'_>| TypedKey {
            name: key.name.to_owned(),
            ty: match &key.function {
                Some(function) => function.value.clone(),
                None => {
                    key.initial.as_deref().map_or_else(Type::never, |initial| combined(key, Type::of_value(initial)))
                }
            },
            initial: key.initial.as_deref().cloned(),
        };
        let mut types = Self {
            keys: model.keys.iter().map(key).collect(),
            losses: vec![None; model.keys.len()],
            inner_losses: HashMap::default(),
        };
        for (node, shared) in
            model.definition.nodes.iter().flat_map(|node| node.share().iter().map(move |key| (node, key)))
        {
            let (Some(at), Some(inner)) = (model.key(shared.value.as_str()), model.inner_key(node, shared)) else {
                continue;
            };
            // The run of the graph inside writes such values.
            types.keys[at].ty = types.keys[at].ty.clone().join(inner.key.ty.clone());
        }
        types
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

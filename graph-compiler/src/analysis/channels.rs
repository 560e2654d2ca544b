//! Channels: the type of a key whose writes are combined, from the types of its writes.

use graph_model::reducer::Reducer;
use graph_model::value::Value;

use super::model::{Model, StateKey};
use crate::types::{Type, TypeKind, TypedField};

/// Returns the type of the value that a key has after a write of the type `write`: for a key without a channel, that
/// type. A write that does not fit the channel adds nothing to the type.
pub(crate) fn held(key: &StateKey<'_>, write: Type) -> Type {
    let Some(channel) = key.channel else { return write };
    if let Some(function) = &key.function {
        return function.value.clone();
    }
    let reducer = &channel.reducer.value;
    if *reducer == Reducer::Last {
        return write;
    }
    let secret = write.has_secret();
    let write = write.not_null();
    let list = |element: Type| Type::of(TypeKind::List(Box::new(element)));
    match (reducer, &write.kind) {
        (_, TypeKind::Never) => Type::never(),
        (Reducer::Append, _) => list(write),
        (Reducer::Extend | Reducer::Union | Reducer::Messages { .. }, TypeKind::List(_)) => write,
        (Reducer::Messages { .. }, TypeKind::Object(_) | TypeKind::Map(_)) => list(write),
        (Reducer::Extend | Reducer::Union | Reducer::Messages { .. }, TypeKind::Any) => list(Type::any_of(secret)),
        (Reducer::Sum, TypeKind::Integer | TypeKind::Number) => write,
        (Reducer::Sum, TypeKind::Any) => Type { secret, ..Type::of(TypeKind::Number) },
        (
            Reducer::Max | Reducer::Min,
            TypeKind::Integer | TypeKind::Number | TypeKind::String | TypeKind::Enum(_) | TypeKind::Any,
        ) => write,
        (Reducer::Merge, TypeKind::Object(fields)) => Type::of(TypeKind::Object(merged(key, fields))),
        (Reducer::Merge, TypeKind::Map(_)) => write,
        (Reducer::Merge, TypeKind::Any) => Type::of(TypeKind::Map(Box::new(Type::any_of(secret)))),
        _ => Type::never(),
    }
}

/// Returns the fields of an object after a write has merged these fields into it. A field of the first value is always
/// there: null in a write counts as absent. Another one is there if a write has added it, and has no default: nobody wrote that.
fn merged(key: &StateKey<'_>, fields: &[TypedField]) -> Vec<TypedField> {
    let first = match key.initial.as_deref() {
        Some(Value::Object(first)) => Some(first),
        _ => None,
    };
    let is_given = |name: &str| first.is_some_and(|first| first.get(name).is_some_and(|value| !value.is_null()));
    let field = |field: &TypedField| TypedField {
        ty: if is_given(&field.name) { field.ty.clone().not_null() } else { field.ty.clone().or_null() },
        default: None,
        ..field.clone()
    };
    let mut merged: Vec<TypedField> = fields.iter().map(field).collect();
    for (name, value) in first.into_iter().flatten() {
        if !value.is_null() && !fields.iter().any(|field| field.name == *name) {
            merged.push(TypedField { name: name.clone(), ty: Type::never(), default: None, description: None });
        }
    }
    merged
}

impl Model<'_> {
    /// Whether a key is a channel that combines writes, so that a write does not determine its value.
    pub(crate) fn combines(&self, key: usize) -> bool {
        let channel = self.keys.get(key).and_then(|key| key.channel);
        channel.is_some_and(|channel| channel.reducer.value != Reducer::Last)
    }

    /// Returns the reducer of a key, if it is a channel.
    pub(crate) fn reducer(&self, key: usize) -> Option<&Reducer> {
        self.keys.get(key)?.channel.map(|channel| &channel.reducer.value)
    }

    /// As [`combines`](Self::combines), for the key with a name.
    pub(crate) fn combines_name(&self, name: &str) -> bool {
        self.key(name).is_some_and(|key| self.combines(key))
    }
}

//! Channels: the type of a key whose writes are combined, from the types of its writes.

use graph_model::reducer::Reducer;
use graph_model::value::Value;

use super::model::{Model, StateKey};
use crate::types::{Known, Type, TypeKind, TypedField};

/// Returns the type of the value that a key has after a write of the type `write`: for a key without a channel, that
/// type. A write that does not fit the channel adds nothing to the type.
pub(crate) fn held(key: &StateKey<'_>, write: Type) -> Type {
    combined(key, written(key, write))
}

/// Returns the type of a value of a key, without what its writes do not say of it: it may be combined with others, and the runs
/// of other graphs may begin with other values of the key.
pub(crate) fn combined(key: &StateKey<'_>, ty: Type) -> Type {
    let known = match key.channel.map(|channel| &channel.reducer.value) {
        Some(Reducer::Sum) => Known::default(),
        _ if !key.is_shared => return ty,
        // The graphs that share the key are checked for what is known of the value as a whole.
        None | Some(Reducer::Last) => ty.known.clone(),
        Some(_) => Known { values: None, least: ty.known.least },
    };
    Type { known, ..ty.plain() }
}

fn written(key: &StateKey<'_>, write: Type) -> Type {
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
    let list = |element: Type| Type::list(element, 1);
    match (reducer, &write.kind) {
        (_, TypeKind::Never) => Type::never(),
        (Reducer::Append, _) => list(write),
        (Reducer::Extend, TypeKind::List(_)) => write,
        // Equal elements become one.
        (Reducer::Union | Reducer::Messages { .. }, TypeKind::List(_)) => {
            Type { known: Known { least: write.known.least.min(1), ..Known::default() }, ..write }
        }
        (Reducer::Messages { .. }, TypeKind::Object(_) | TypeKind::Map(_)) => list(write),
        (Reducer::Extend | Reducer::Union | Reducer::Messages { .. }, TypeKind::Any) => list(Type::any_of(secret)),
        (Reducer::Sum, TypeKind::Integer | TypeKind::Number) => write,
        // Whether the sum is an integer shows when the graph runs.
        (Reducer::Sum, TypeKind::Any) => Type::any_of(secret),
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
            merged.push(TypedField {
                name: name.clone(),
                ty: Type::never(),
                default: None,
                description: None,
                rules: Vec::new(),
            });
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

//! The types of values that the runtime itself creates.

use crate::types::{Type, TypeKind, TypedField};

pub(crate) fn field(name: &str, ty: Type) -> TypedField {
    TypedField { name: name.into(), ty, default: None, description: None, rules: Vec::new() }
}

/// Returns the type of `state._last_error`.
pub(crate) fn last_error() -> Type {
    let text = |name| field(name, Type::of(TypeKind::String));
    Type::of(TypeKind::Object(vec![text("node"), text("error")])).or_null()
}

/// Returns the type of `state._retries` (R136).
pub(crate) fn retries() -> Type {
    Type::of(TypeKind::Map(Box::new(Type::of(TypeKind::Integer))))
}

/// Returns the type of `result` in the edges of a node that may have failed: the tool's result, or status and error (R125).
pub(crate) fn or_failure(result: &Type) -> Type {
    let text = |name| field(name, Type::of(TypeKind::String));
    let failure = Type::of(TypeKind::Object(vec![text("status"), text("error")]));
    match &result.kind {
        TypeKind::Object(_) => result.clone().join(failure),
        _ => Type::any_of(result.has_secret()),
    }
}

/// Returns the type of what the runtime's tool for threads yields for an agent whose answers have a type.
pub(crate) fn run_of_thread(answer: &Type) -> Type {
    let text = |name| field(name, Type::of(TypeKind::String));
    let cost = ["turns", "tokens", "micros"].map(|name| field(name, Type::of(TypeKind::Integer)));
    Type::of(TypeKind::Object(vec![
        text("thread_id"),
        text("directive"),
        text("status"),
        field("outputs", answer.clone()),
        field("output", answer.clone()),
        field("cost", Type::of(TypeKind::Object(cost.into()))),
    ]))
}

/// Returns the type of a nested run as its node sees it, if the nested graph returns `output` (R188).
pub(crate) fn run_of(output: &Type) -> Type {
    let (any, text) = (|| Box::new(Type::any()), || Type::of(TypeKind::String));
    Type::of(TypeKind::Object(vec![
        field("success", Type::of(TypeKind::Boolean)),
        field("status", text()),
        field("graph_run_id", text()),
        field("steps", Type::of(TypeKind::Integer)),
        field("state", Type::of(TypeKind::Map(any()))),
        field("output", output.clone()),
        field("error", text().or_null()),
        field("node", text().or_null()),
        field("errors", Type::of(TypeKind::List(any())).or_null()),
    ]))
}

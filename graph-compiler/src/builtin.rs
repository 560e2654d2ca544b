//! The contracts of the tools that the runtime performs itself.

use std::sync::Arc;

use graph_definition::definition::{self, Contract, SchemaKind, ValueSchema};
use graph_definition::diagnostic::{Diagnostics, SourcePlace, code};
use graph_definition::source::SourceFile;
use graph_model::name::ItemId;

use crate::types::{Type, TypeKind, TypedField};

/// The built-in tools: id and contract. They come with the compiler, so they need no signature.
const CONTRACTS: [(&str, &str); 15] = [
    ("rye/bash", include_str!("../contracts/rye/bash.yaml")),
    ("rye/exec", include_str!("../contracts/rye/exec.yaml")),
    ("rye/file-system/list", include_str!("../contracts/rye/file-system/list.yaml")),
    ("rye/file-system/read", include_str!("../contracts/rye/file-system/read.yaml")),
    ("rye/file-system/write", include_str!("../contracts/rye/file-system/write.yaml")),
    ("rye/http/request", include_str!("../contracts/rye/http/request.yaml")),
    ("rye/orchestrate/await", include_str!("../contracts/rye/orchestrate/await.yaml")),
    ("rye/orchestrate/cancel", include_str!("../contracts/rye/orchestrate/cancel.yaml")),
    ("rye/orchestrate/kill", include_str!("../contracts/rye/orchestrate/kill.yaml")),
    ("rye/orchestrate/list", include_str!("../contracts/rye/orchestrate/list.yaml")),
    ("rye/orchestrate/race", include_str!("../contracts/rye/orchestrate/race.yaml")),
    ("rye/orchestrate/spawn", include_str!("../contracts/rye/orchestrate/spawn.yaml")),
    ("rye/orchestrate/status", include_str!("../contracts/rye/orchestrate/status.yaml")),
    ("rye/orchestrate/steer", include_str!("../contracts/rye/orchestrate/steer.yaml")),
    ("rye/orchestrate/timeout", include_str!("../contracts/rye/orchestrate/timeout.yaml")),
];

/// Returns the ids of the built-in tools.
pub(crate) fn ids() -> impl Iterator<Item = ItemId> {
    CONTRACTS.iter().filter_map(|(name, _)| ItemId::new(*name).ok())
}

/// Returns the contract of a built-in tool.
pub(crate) fn contract(id: &ItemId) -> Option<Contract> {
    let (_, text) = CONTRACTS.iter().find(|(name, _)| *name == id.as_str())?;
    let name = format!("the built-in contract of `{id}`");
    let mut diagnostics = Diagnostics::new();
    definition::parse_trusted_contract(&SourceFile::new(name.as_str(), name.as_str(), text), id, &mut diagnostics)
}

/// Reports where a tree's contract of a built-in tool differs from the tool. Marks the parameters that the tool reads
/// as code, and those that it keeps secret, whether or not the tree's contract marks them.
pub(crate) fn check(id: &ItemId, contract: &mut Contract, diagnostics: &mut Diagnostics) {
    if !contract.builtin() {
        return;
    }
    let Some(builtin) = self::contract(id) else {
        let place = SourcePlace::file(&contract.source);
        let names: Vec<String> = CONTRACTS.iter().map(|(name, _)| format!("`{name}`")).collect();
        diagnostics
            .error(code::BAD_CONTRACT, place, format!("the runtime has no built-in tool `{id}`"))
            .note(format!("the built-in tools are {}", names.join(", ")))
            .help("write `tool_type: rust` for a tool that the program performs");
        return;
    };
    let (params, theirs) = (fields(&Type::of_schema(&builtin.params)), fields(&Type::of_schema(&contract.params)));
    let place = || SourcePlace::new(&contract.source, contract.params.span.clone());
    for field in &theirs {
        match params.iter().find(|param| param.name == field.name) {
            None => {
                diagnostics
                    .error(
                        code::BAD_CONTRACT,
                        place(),
                        format!("the built-in tool `{id}` has no parameter `{}`", field.name),
                    )
                    .suggest(&field.name, params.iter().map(|param| param.name.as_str()));
            }
            Some(param) if !replaces(&field.ty.clone().not_null(), &param.ty) => {
                let message = format!("`{}` of the built-in tool `{id}` is {}, not {}", field.name, param.ty, field.ty);
                diagnostics.error(code::BAD_CONTRACT, place(), message);
            }
            Some(_) => {}
        }
    }
    for param in params.iter().filter(|param| !param.ty.nullable && param.default.is_none()) {
        if !theirs.iter().any(|field| field.name == param.name && !field.ty.nullable) {
            let message =
                format!("the built-in tool `{id}` needs `{}`, which the contract does not require", param.name);
            diagnostics.error(code::BAD_CONTRACT, place(), message);
        }
    }
    keep_marks(&mut contract.params, &builtin.params, &contract.source, diagnostics);
    let (Some(result), Some(theirs)) = (&builtin.result, &contract.result) else { return };
    if !replaces(&Type::of_schema(result), &Type::of_schema(theirs)) {
        let place = SourcePlace::new(&contract.source, theirs.span.clone());
        diagnostics
            .error(code::BAD_CONTRACT, place, format!("the built-in tool `{id}` does not return this"))
            .note(format!("it returns {}", describe(&fields(&Type::of_schema(result)))));
    }
}

/// Whether all values of one type, including nulls in them, are values of another.
fn replaces(ty: &Type, other: &Type) -> bool {
    ty.misfit(other).or_else(|| ty.lack(other)).is_none()
}

/// Copies the marks of `ours` to `theirs`, and reports sinks that `theirs` marks as another kind.
fn keep_marks(theirs: &mut ValueSchema, ours: &ValueSchema, source: &Arc<SourceFile>, diagnostics: &mut Diagnostics) {
    match (&theirs.sink, &ours.sink) {
        (Some(sink), Some(own)) if sink.value != own.value => {
            let message = format!("the built-in tool reads this as {}, not as {}", own.value.name(), sink.value.name());
            let place = SourcePlace::new(source, sink.span.clone());
            diagnostics.error(code::BAD_CONTRACT, place, message).help(format!("write `x-sink: {}`", own.value.name()));
        }
        (None, Some(_)) => theirs.sink.clone_from(&ours.sink),
        _ => {}
    }
    theirs.secret |= ours.secret;
    match (&mut theirs.kind, &ours.kind) {
        (SchemaKind::List(theirs), SchemaKind::List(ours)) | (SchemaKind::Map(theirs), SchemaKind::Map(ours)) => {
            keep_marks(theirs, ours, source, diagnostics);
        }
        (SchemaKind::Object(theirs), SchemaKind::Object(ours)) => {
            for property in theirs {
                if let Some(own) = ours.iter().find(|own| own.name.value == property.name.value) {
                    keep_marks(&mut property.schema, &own.schema, source, diagnostics);
                }
            }
        }
        _ => {}
    }
}

fn fields(ty: &Type) -> Vec<TypedField> {
    match &ty.kind {
        TypeKind::Object(fields) => fields.clone(),
        _ => Vec::new(),
    }
}

fn describe(fields: &[TypedField]) -> String {
    let fields: Vec<String> = fields.iter().map(|field| format!("`{}` ({})", field.name, field.ty)).collect();
    fields.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_contract_can_be_read() {
        for (name, text) in CONTRACTS {
            let mut diagnostics = Diagnostics::new();
            let id = ItemId::new(name).unwrap();
            let contract =
                definition::parse_trusted_contract(&SourceFile::new(name, name, text), &id, &mut diagnostics);
            assert!(contract.is_some_and(|contract| contract.builtin()), "{name}");
            assert!(!diagnostics.has_errors(), "{name}");
        }
    }

    #[test]
    fn a_code_sink_of_a_built_in_tool_has_only_its_own_kind() {
        let text = "tool_type: builtin\nconfig_schema:\n  type: object\n  properties: { command: { type: string, x-sink: sql } }\n  \
                    required: [command]\n";
        let (mut diagnostics, id) = (Diagnostics::new(), ItemId::new("rye/bash").unwrap());
        let source = SourceFile::new("bash.yaml", "bash.yaml", text);
        let mut contract = definition::parse_trusted_contract(&source, &id, &mut diagnostics).unwrap();
        assert!(diagnostics.is_empty());
        check(&id, &mut contract, &mut diagnostics);
        let messages: Vec<&str> = diagnostics.iter().map(|one| one.message.as_str()).collect();
        assert_eq!(messages, ["the built-in tool reads this as shell, not as sql"]);
    }
}

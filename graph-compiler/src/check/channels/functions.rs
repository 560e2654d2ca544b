//! Reducers that are functions of the program have a contract, and the values of their channels fit it.

use graph_definition::definition::ValueSchema;
use graph_definition::diagnostic::{Diagnostics, code};

use super::{ChannelWrite, Writer};
use crate::analysis::Analysis;
use crate::analysis::model::Function;
use crate::types::{Type, TypeKind};

/// Checks that the functions have contracts of reducers, without secrets.
pub(super) fn check(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    let items = &analysis.model.items;
    for channel in &analysis.model.definition.channels {
        let Some(id) = channel.reducer.value.function() else { continue };
        let place = analysis.model.place(&channel.reducer.span);
        let Some(contract) = items.contracts.get(id) else {
            if items.broken.contains(id) {
                continue;
            }
            let message = match items.graphs.contains_key(id) {
                true => format!("channel `{}` is combined by `{id}`, which is a graph", channel.key),
                false => format!("channel `{}` is combined by `{id}`, which has no contract", channel.key),
            };
            let help = match items.similar.get(id) {
                Some(similar) => format!("did you mean `{similar}`?"),
                None => format!("write the contract `tools/{id}.yaml`, with `tool_type: reducer`, and sign it"),
            };
            diagnostics.error(code::BAD_REDUCER, place, message).help(help);
            continue;
        };
        let note = format!("the contract is `{}`", contract.source.name);
        if !contract.is_reducer() {
            let message = format!("channel `{}` is combined by `{id}`, which is a tool", channel.key);
            diagnostics
                .error(code::BAD_REDUCER, place, message)
                .note(note)
                .help("name a reducer: a contract with `tool_type: reducer`, whose function the program has");
        } else if is_secret(&contract.params) || contract.result.as_ref().is_some_and(is_secret) {
            let message = format!("channel `{}` is combined by `{id}`, whose contract has a secret", channel.key);
            diagnostics
                .error(code::BAD_REDUCER, place, message)
                .note(note)
                .help("collect secrets with `append` or `extend`, or let a tool combine them");
        }
    }
}

fn is_secret(schema: &ValueSchema) -> bool {
    Type::of_schema(schema).has_secret()
}

/// Checks that a function can take a value; returns whether it can. The values of assignments are checked as parameters are.
pub(super) fn check_write(
    analysis: &Analysis<'_>,
    write: &ChannelWrite<'_>,
    function: &Function<'_>,
    diagnostics: &mut Diagnostics,
) -> bool {
    let ChannelWrite { channel, span, ty, writer, is_null, .. } = write;
    let name = &channel.key;
    let schema = function.contract.and_then(|contract| contract.result.as_ref());
    let message = match writer {
        Writer::State => {
            let first = analysis.model.keys[write.key].initial.as_deref();
            match first.zip(schema) {
                Some((first, schema)) if !first.is_null() && !schema.accepts(first) => {
                    let whole = format!("the first value of channel `{name}`");
                    match ty.misfit(&function.value) {
                        Some(misfit) => {
                            format!("{} is {}, and must be {}", misfit.part_of(&whole), misfit.found, misfit.wanted)
                        }
                        None => format!("{whole} is not of the type that its reducer returns"),
                    }
                }
                _ => return true,
            }
        }
        Writer::Assign if *is_null => {
            format!("what channel `{name}` receives is null, and it takes {}", function.write)
        }
        Writer::Collect if ty.kind != TypeKind::Any && ty.misfit(&function.write).is_some() => {
            format!("channel `{name}` receives {ty}, and takes {}", function.write)
        }
        Writer::Assign | Writer::Collect => return true,
    };
    let diagnostic = diagnostics.error(code::BAD_WRITE, analysis.model.place(span), message);
    diagnostic.related(analysis.model.place(&channel.reducer.span), "the channel");
    if let Some(contract) = function.contract {
        diagnostic.note(format!("the contract is `{}`", contract.source.name));
    }
    false
}

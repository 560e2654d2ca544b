//! A run can begin at each entry.

use graph_definition::definition::{EntryDefinition, RouteDefinition};
use graph_definition::diagnostic::{Diagnostics, code};
use graph_definition::source::Span;
use graph_model::path::Root;
use graph_model::program::EntryPoint;

use super::index;
use crate::analysis::Analysis;
use crate::analysis::branches::EntryPlace;

pub(super) fn check(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    let (model, branches) = (&analysis.model, analysis.flow.branches());
    for (entry, at) in model.definition.entries.iter().zip(&model.entries) {
        let place = |span: &Span| model.place(span);
        let Some(at) = *at else {
            let message = format!("entry `{}` leads to node `{}`, which does not exist", entry.name, entry.node);
            diagnostics
                .error(code::BAD_ENTRY, place(&entry.node.span), message)
                .label("no node with this name")
                .suggest(entry.node.value.as_str(), model.node_names());
            continue;
        };
        let node = &model.definition.nodes[at];
        if let Some(waited) = node.waits_for.last() {
            let message = format!("entry `{}` leads to node `{}`, which waits for branches", entry.name, entry.node);
            diagnostics
                .error(code::BAD_ENTRY, place(&entry.node.span), message)
                .related(place(&waited.span), "it waits for these")
                .help("lead the entry to one of the nodes that it waits for");
            continue;
        }
        if node.cancels().is_some() {
            let message = format!("entry `{}` leads to node `{}`, which cancels branches", entry.name, entry.node);
            diagnostics
                .error(code::BAD_ENTRY, place(&entry.node.span), message)
                .help("lead the entry to a node before it");
            continue;
        }
        if !model.is_whole() || !branches.faults().is_empty() {
            continue;
        }
        let Some(begins) = branches.entry(model, at) else {
            let message = format!("entry `{}` leads to node `{}` inside of branches", entry.name, entry.node);
            let diagnostic = diagnostics.error(code::NOT_SUPPORTED, place(&entry.node.span), message);
            diagnostic.help(
                "lead it to a node outside of branches, or to one in the branches of a single fan-out, which all meet at one join \
                 without a quorum",
            );
            continue;
        };
        check_element(analysis, entry, begins.fan(), diagnostics);
    }
}

/// Checks that an entry has an element exactly if its node is in a branch of a list.
fn check_element(analysis: &Analysis<'_>, entry: &EntryDefinition, fan: Option<usize>, diagnostics: &mut Diagnostics) {
    let (model, place) = (&analysis.model, |span: &Span| analysis.model.place(span));
    let list = fan.and_then(|fan| match model.definition.nodes[fan].next() {
        RouteDefinition::Each(each) => Some((fan, each)),
        _ => None,
    });
    match (list, &entry.element) {
        (None, None) => {}
        (None, Some(element)) => {
            let message =
                format!("`element` of entry `{}` does nothing: its node is in no branch of a list", entry.name);
            diagnostics.error(code::INERT_FIELD, place(&element.span), message).help("remove it");
        }
        (Some((fan, each)), None) => {
            let message = format!("entry `{}` has no element for its branch", entry.name);
            diagnostics
                .error(code::BAD_ENTRY, place(&entry.node.span), message)
                .related(place(&model.definition.nodes[fan].name.span), "each branch of this node has one")
                .help(format!("name the input that is `{}` there: `element: inputs.name`", each.name));
        }
        (Some((fan, _)), Some(element)) => {
            let ty = match (element.value.root, element.value.segments.as_slice()) {
                (Root::Inputs, [_, ..]) => analysis.type_env().entry_element(entry).ok_or("leads to no input"),
                _ => Err("is no input"),
            };
            let ty = match ty {
                Ok(ty) => ty,
                Err(wrong) => {
                    diagnostics
                        .error(
                            code::BAD_ENTRY,
                            place(&element.span),
                            format!("`element` of entry `{}` {wrong}", entry.name),
                        )
                        .help("name an input of the graph: `element: inputs.name`");
                    return;
                }
            };
            if let Some(expected) = analysis.type_env().element_of(fan).filter(|expected| !ty.fits(expected)) {
                let message = format!("`element` of entry `{}` is {ty}, and not {expected}", entry.name);
                diagnostics
                    .error(code::BAD_ENTRY, place(&element.span), message)
                    .related(place(&model.definition.nodes[fan].name.span), "the elements of its list are of that type")
                    .help("name an input of that type");
            }
        }
    }
}

/// Returns an entry as the program has it.
pub(super) fn entry_point(analysis: &Analysis<'_>, entry: &EntryDefinition, node: usize) -> EntryPoint {
    let fan = analysis.flow.branches().entry(&analysis.model, node).and_then(EntryPlace::fan);
    EntryPoint {
        node: index(node),
        fan: fan.map(index),
        element: entry.element.as_ref().map(|element| element.value.clone()),
    }
}

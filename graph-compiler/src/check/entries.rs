//! A run can begin at each entry.

use graph_definition::definition::{EntryDefinition, EntryElement, Spanned};
use graph_definition::diagnostic::{Diagnostics, code};
use graph_definition::source::Span;
use graph_model::path::{Path, Root};
use graph_model::program::{EntryBranch, EntryPoint};

use super::index;
use crate::analysis::Analysis;
use crate::analysis::branches::{BranchFrame, BranchLabel, EnteredList, NoEntry, entered_lists};

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
        let frames = match branches.entry(model, at) {
            Ok(frames) => frames,
            Err(wrong) => {
                refuse(analysis, entry, wrong, diagnostics);
                continue;
            }
        };
        check_elements(analysis, entry, &frames, diagnostics);
    }
}

/// Says why no run can begin in the branches of an entry's node.
fn refuse(analysis: &Analysis<'_>, entry: &EntryDefinition, wrong: NoEntry, diagnostics: &mut Diagnostics) {
    let (model, place) = (&analysis.model, analysis.model.place(&entry.node.span));
    match wrong {
        NoEntry::Several => {
            let message = format!(
                "entry `{}` leads to node `{}`, which is not always in the same branches",
                entry.name, entry.node
            );
            let diagnostic = diagnostics.error(code::BAD_ENTRY, place, message);
            diagnostic.help("lead it to a node to which branches come from the same routes on all paths");
        }
        NoEntry::Quorum { join } => {
            let message = format!("entry `{}` leads to node `{}`, whose branches are counted", entry.name, entry.node);
            let diagnostic = diagnostics.error(code::BAD_ENTRY, place, message);
            diagnostic
                .related(
                    model.place(&model.definition.nodes[join].name.span),
                    "its quorum counts branches, and the run would have one",
                )
                .help("lead the entry to a node outside of these branches");
        }
    }
}

/// Checks that an entry has an element for each branch of a list that its node is in, and no other.
fn check_elements<'d>(
    analysis: &Analysis<'d>,
    entry: &'d EntryDefinition,
    frames: &[BranchFrame],
    diagnostics: &mut Diagnostics,
) {
    if !entry.is_readable {
        return;
    }
    let model = &analysis.model;
    let (lists, place) = (entered_lists(model, entry, frames), |span: &Span| model.place(span));
    let all = || lists.iter().map(|list| format!("{}: inputs.name", list.name)).collect::<Vec<_>>().join(", ");
    let form = || match lists.len() {
        1 => "`element: inputs.name`".to_owned(),
        _ => format!("`element: {{ {} }}`", all()),
    };
    let mut is_wrong = false;
    for EntryElement { name, path } in &entry.elements {
        let is_list = |name: &Spanned<String>| lists.iter().any(|list| list.name == name.value);
        if name.as_ref().map_or(lists.len() == 1, is_list) {
            continue;
        }
        is_wrong = true;
        let place = place(name.as_ref().map_or(&path.span, |name| &name.span));
        match name {
            _ if lists.is_empty() => {
                let message =
                    format!("`element` of entry `{}` does nothing: its node is in no branch of a list", entry.name);
                diagnostics.error(code::INERT_FIELD, place, message).help("remove it");
            }
            Some(name) => {
                let message =
                    format!("no list around the node of entry `{}` has the element `{}`", entry.name, name.value);
                let diagnostic = diagnostics.error(code::BAD_ENTRY, place, message);
                diagnostic.suggest(&name.value, lists.iter().map(|list| list.name));
            }
            None => {
                let (entry, count) = (&entry.name, lists.len());
                let message =
                    format!("`element` of entry `{entry}` is one, and its node is in branches of {count} lists");
                let diagnostic = diagnostics.error(code::BAD_ENTRY, place, message);
                diagnostic.help(format!("name the element of each: {}", form()));
            }
        }
    }
    if is_wrong {
        return;
    }
    for &EnteredList { fan, name, input } in &lists {
        match input {
            Some(input) => check_element(analysis, entry, (fan, input), diagnostics),
            None => {
                let message = format!("entry `{}` has no element `{name}` for its branch", entry.name);
                diagnostics
                    .error(code::BAD_ENTRY, place(&entry.node.span), message)
                    .related(place(&model.definition.nodes[fan].name.span), "each branch of this node has one")
                    .help(format!("name the input that is `{name}` there: {}", form()));
            }
        }
    }
}

/// Checks that an element of an entry is an input of the type that the elements of its list have.
fn check_element(
    analysis: &Analysis<'_>,
    entry: &EntryDefinition,
    (fan, element): (usize, &Spanned<Path>),
    diagnostics: &mut Diagnostics,
) {
    let (model, place) = (&analysis.model, |span: &Span| analysis.model.place(span));
    let ty = match (element.value.root, element.value.segments.as_slice()) {
        (Root::Inputs, [_, ..]) => analysis.type_env().entry_element(element).ok_or("leads to no input"),
        _ => Err("is no input"),
    };
    let ty = match ty {
        Ok(ty) => ty,
        Err(wrong) => {
            let message = format!("`element` of entry `{}` {wrong}", entry.name);
            let diagnostic = diagnostics.error(code::BAD_ENTRY, place(&element.span), message);
            diagnostic.help("name an input of the graph: `element: inputs.name`");
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

/// Returns an entry as the program has it.
pub(super) fn entry_point<'d>(analysis: &Analysis<'d>, entry: &'d EntryDefinition, node: usize) -> EntryPoint {
    let frames = analysis.flow.branches().entry(&analysis.model, node).unwrap_or_default();
    let lists = entered_lists(&analysis.model, entry, &frames);
    let branch = |frame: &BranchFrame| EntryBranch {
        fan: index(frame.fan),
        behind: match frame.label {
            BranchLabel::Edge(_) => None,
            BranchLabel::Join(join) => Some(index(join)),
        },
        element: lists
            .iter()
            .find(|list| list.fan == frame.fan)
            .and_then(|list| list.input)
            .map(|input| input.value.clone()),
    };
    EntryPoint { node: index(node), branches: frames.iter().map(branch).collect() }
}

//! The element of a list is read only in the branch that belongs to it, and the list of a fan-out is a list.

use graph_definition::definition::{NodeDefinition, NodeKind, RouteDefinition};
use graph_definition::diagnostic::{Diagnostics, code};
use graph_model::path::Root;

use crate::analysis::Analysis;
use crate::analysis::reads::Site;
use crate::types::TypeKind;

pub(super) fn check(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    let (model, branches) = (&analysis.model, analysis.flow.branches());
    for (at, node) in model.definition.nodes.iter().enumerate() {
        if let RouteDefinition::Each(each) = node.next() {
            let ty = analysis.type_env().type_of_term(at, Site::Next, &each.over);
            if !matches!(ty.kind, TypeKind::Any | TypeKind::Never | TypeKind::List(_)) {
                let shown = ty.not_null();
                diagnostics
                    .error(
                        code::NOT_A_LIST,
                        model.place(&each.over.span),
                        format!("node `{}` fans out over {shown}, which is not a list", node.name),
                    )
                    .label(format!("this is {shown}"))
                    .help("write a list, or a template that yields one: `over: \"${state.items}\"`");
            }
        }
        check_names(analysis, at, node, diagnostics);
    }
    if !model.is_whole() || !branches.faults().is_empty() {
        return;
    }
    model.reads(&mut |read| {
        let Some(name) = read.path.segments.first().filter(|_| read.path.root == Root::Local) else { return };
        // A node that no path leads to is reported by its own rule.
        if read.site == Site::Hook
            || model.is_item(read.node, read.site, name)
            || branches.visits(read.node).next().is_none()
            || branches.argument(model, read.node, name).is_some()
        {
            return;
        }
        let node = &model.definition.nodes[read.node].name;
        let begins = |each: &RouteDefinition| matches!(each, RouteDefinition::Each(each) if each.name.value == *name);
        let message = format!("there is no `{name}` at node `{node}`");
        let diagnostic = diagnostics.error(code::NO_ARGUMENT, read.place(model.definition), message);
        diagnostic.label("not every way here is in a branch of that list");
        if let Some(fan) = model.definition.nodes.iter().find(|node| begins(node.next())) {
            diagnostic.related(model.place(&fan.name.span), "the branches begin here, and end at their join");
        }
        diagnostic.help("read it in the branch, and assign what is needed later to a state key");
    });
}

/// Checks that the names of a node's items and elements hide no element that is known there.
fn check_names(analysis: &Analysis<'_>, at: usize, node: &NodeDefinition, diagnostics: &mut Diagnostics) {
    let (model, branches) = (&analysis.model, analysis.flow.branches());
    let item = match &node.kind {
        NodeKind::Foreach(each) => Some(&each.name),
        _ => None,
    };
    let element = match node.next() {
        RouteDefinition::Each(each) => Some(&each.name),
        _ => None,
    };
    for inner in item.into_iter().chain(element) {
        let name = &inner.value;
        let is_hidden = |fan: &usize| match model.definition.nodes[*fan].next() {
            RouteDefinition::Each(each) => *fan != at && each.name.value == *name,
            _ => false,
        };
        let mut around = branches.visits(at).flat_map(|(_, visit)| branches.frames(visit.frame)).map(|frame| frame.fan);
        let Some(fan) = around.find(is_hidden) else { continue };
        let message = format!("`{name}` is already the name of an element here");
        diagnostics
            .error(code::BAD_VARIABLE, model.place(&inner.span), message)
            .related(model.place(&model.definition.nodes[fan].name.span), "of the list that this node fans out over")
            .help("give one of them another name with `as`");
    }
}

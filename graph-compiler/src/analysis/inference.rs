//! Inference: the types of state keys, from the values that are assigned to them.

use std::collections::BTreeSet;

use graph_definition::definition::{ForeachDefinition, NodeKind, RouteDefinition, TermDefinition, TermKind};
use graph_definition::source::Span;
use graph_model::path::{Path, Root};
use graph_model::template::Template;

use super::channels::held;
use super::flow::Flow;
use super::losses::{self, loses};
use super::model::Model;
use super::reads::Site;
use super::type_env::TypeEnv;
use super::types::StateTypes;
use crate::types::Type;

/// A writer of a key: a node and its assignment, or its `collect`.
type KeyWriter = (usize, Option<usize>);

/// Infers the types of the keys, until no type changes. Types only grow, up to `any`, so this ends.
///
/// The writers are evaluated in the order of the file, repeatedly; from the second time on, only those that read a key
/// whose type has grown.
pub(crate) fn infer(model: &Model<'_>, flow: &Flow) -> StateTypes {
    let mut types = StateTypes::new(model);
    let (mut writers, mut readers): (Vec<KeyWriter>, Vec<Vec<usize>>) =
        (Vec::new(), vec![Vec::new(); types.keys.len()]);
    // Those that read the state as a whole: their types depend on whether there is a secret in it.
    let mut readers_of_all = Vec::new();
    // The paths that the lists of fan-outs are read from.
    let mut listed = Vec::new();
    for node in &model.definition.nodes {
        if let RouteDefinition::Each(each) = node.next() {
            each.over.templates(&mut |_, template, _| {
                listed.extend(template.expressions().flat_map(|expression| &expression.paths));
            });
        }
    }
    for (at, node) in model.definition.nodes.iter().enumerate() {
        let over = match &node.kind {
            NodeKind::Foreach(each) => Some(&each.over),
            _ => None,
        };
        let assigned =
            node.assign().iter().enumerate().map(|(index, assignment)| (Some(index), Some(&assignment.value)));
        let collects = matches!(&node.kind, NodeKind::Foreach(ForeachDefinition { collect: Some(_), .. }));
        for (index, value) in assigned.chain(collects.then_some((None, None))) {
            for term in value.into_iter().chain(over) {
                term.templates(&mut |_, template, _| {
                    let paths: Vec<&Path> = template.expressions().flat_map(|expression| &expression.paths).collect();
                    // The element of a list depends on the keys that the list is read from.
                    let reads_element = paths.iter().any(|path| path.root == Root::Local);
                    let lists = listed.iter().copied().filter(|_| reads_element);
                    for path in paths.into_iter().chain(lists).filter(|path| path.root == Root::State) {
                        match path.segments.first() {
                            Some(name) => {
                                model.key(name).into_iter().for_each(|key| readers[key].push(writers.len()));
                            }
                            None => readers_of_all.push(writers.len()),
                        }
                    }
                });
            }
            writers.push((at, index));
        }
    }
    let (mut now, mut later): (BTreeSet<usize>, BTreeSet<usize>) = ((0..writers.len()).collect(), BTreeSet::new());
    loop {
        while let Some(writer) = now.pop_first() {
            let Some((key, had_secret)) = learn_from(model, flow, &mut types, writers[writer]) else { continue };
            let gained_secret = !had_secret && types.keys[key].ty.has_secret();
            let of_all = readers_of_all.iter().filter(|_| gained_secret);
            for &reader in readers[key].iter().chain(of_all) {
                if reader > writer {
                    now.insert(reader)
                } else {
                    later.insert(reader)
                };
            }
        }
        if later.is_empty() {
            return types;
        }
        std::mem::swap(&mut now, &mut later);
    }
}

/// Learns the type that one writer assigns. If the key's type has grown, returns the key and whether the type had a
/// secret before.
fn learn_from(model: &Model<'_>, flow: &Flow, types: &mut StateTypes, (at, index): KeyWriter) -> Option<(usize, bool)> {
    let env = TypeEnv { model, flow, types };
    let node = &model.definition.nodes[at];
    let assignment = index.map(|index| (index, &node.assign()[index]));
    let (name, span, learned) = match (assignment, &node.kind) {
        (Some((index, assignment)), _) => {
            let learned = alternatives(env, at, Site::Assign(index), &assignment.value);
            (assignment.key.value.as_str(), &assignment.value.span, learned)
        }
        (None, NodeKind::Foreach(ForeachDefinition { collect: Some(key), .. })) => {
            (key.value.as_str(), &key.span, vec![env.collected(at)])
        }
        (None, _) => return None,
    };
    let over = match &node.kind {
        NodeKind::Foreach(each) => Some((Site::Over, &each.over)),
        _ => None,
    };
    let mut losses = Vec::new();
    let value = assignment.map(|(index, assignment)| (Site::Assign(index), &assignment.value));
    for (site, term) in value.into_iter().chain(over) {
        let mut inner = Vec::new();
        losses::inside(env, (at, site), term, &mut inner);
        losses.extend(inner.into_iter().next().map(|loss| (term.span.start, loss)));
    }
    for (start, loss) in losses {
        types.inner_losses.entry(start).or_insert(loss);
    }
    let key = model.key(name)?;
    let had_secret = types.keys[key].ty.has_secret();
    let mut has_grown = false;
    for ty in learned {
        has_grown |= learn(types, key, held(&model.keys[key], ty), span);
    }
    has_grown.then_some((key, had_secret))
}

/// Adds a type that a key may have; returns whether the key's type changed.
fn learn(types: &mut StateTypes, key: usize, ty: Type, span: &Span) -> bool {
    let known = &types.keys[key].ty;
    let joined = known.clone().join(ty.clone());
    let is_new = joined != *known;
    if is_new && types.losses[key].is_none() && loses(known, &ty, &joined) {
        types.losses[key] = Some((span.clone(), ty, known.clone()));
    }
    types.keys[key].ty = joined;
    is_new
}

/// Returns the types that a value may have: for `a || b`, the type of each path by itself.
fn alternatives(env: TypeEnv<'_, '_>, node: usize, site: Site, term: &TermDefinition) -> Vec<Type> {
    let TermKind::Template { template: Template::Whole(expression), .. } = &term.kind else {
        return vec![env.type_of_term(node, site, term)];
    };
    let mut types = Vec::new();
    for path in &expression.paths {
        let ty = env.type_of_path(node, site, path);
        let is_last = !ty.nullable;
        types.push(ty.not_null());
        if is_last {
            return types;
        }
    }
    types.push(Type::null());
    types
}

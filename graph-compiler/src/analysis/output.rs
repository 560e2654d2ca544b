//! The output of a run: at each node where it can end, and of all ends together.

use graph_definition::definition::{EdgeList, NodeDefinition, NodeKind, Return, RouteDefinition};
use graph_definition::source::Span;

use super::control_flow::ControlFlow;
use super::model::Model;
use super::provided::field;
use super::reads::Site;
use super::type_env::TypeEnv;
use crate::graph::{Exit, TypedKey};
use crate::types::{Type, TypeKind, join_all};

/// Returns the nodes at which a run can end by itself, each with the type of its output there. A node with conditions
/// counts only if they leave a case open.
///
/// In a graph with mistakes, an edge may be missing: each return is such a node then, and others only if their edges have no mistake.
pub(crate) fn exits(env: TypeEnv<'_, '_>, control_flow: &ControlFlow, mistakes: &[Span]) -> Vec<Exit> {
    if returned_keys(env.model, control_flow) > MOST_RETURNED {
        return Vec::new();
    }
    let definition = env.model.definition;
    let knows_edges = |node: &NodeDefinition| {
        let is_inside =
            |list: &EdgeList| mistakes.iter().any(|at| list.span.start <= at.start && at.end <= list.span.end);
        let is_wrong = match node.next() {
            RouteDefinition::First(list) | RouteDefinition::All(list) => is_inside(list),
            _ => false,
        };
        definition.is_complete && !is_wrong && env.model.knows_targets(node)
    };
    let is_exit = |at: &usize| match &definition.nodes[*at] {
        _ if mistakes.is_empty() => control_flow.ends[*at],
        node => node.ends_run() || (control_flow.ends[*at] && knows_edges(node)),
    };
    let ends = (0..env.model.definition.nodes.len()).filter(is_exit);
    let exit = |at: usize| Exit { node: env.model.definition.nodes[at].name.to_string(), ty: returned(env, at) };
    ends.map(exit).collect()
}

/// How many keys the ends of a graph may return together: the output of each end that returns the state has all keys.
pub(crate) const MOST_RETURNED: usize = 500_000;

/// Returns how many keys the ends of a graph that return the state return together.
pub(crate) fn returned_keys(model: &Model<'_>, control_flow: &ControlFlow) -> usize {
    let returns_state = |node: &NodeDefinition| !matches!(&node.kind, NodeKind::Return(Return { output: Some(_), .. }));
    let ends = model
        .definition
        .nodes
        .iter()
        .zip(&control_flow.ends)
        .filter(|(node, ends)| **ends && returns_state(node))
        .count();
    ends.saturating_mul(model.keys.len())
}

/// Returns the type of a run's output, wherever the run ends.
pub(crate) fn output(env: TypeEnv<'_, '_>, exits: &[Exit]) -> Type {
    let mut ends: Vec<Type> = exits.iter().map(|exit| exit.ty.clone()).collect();
    if env.model.may_end_anywhere() {
        // The first node is always visited; the steps may have run out before any other.
        let mut entered = vec![false; env.model.definition.nodes.len()];
        for at in 0..entered.len() {
            env.model.onward(at).for_each(|next| entered[next] = true);
        }
        let entered = (0..entered.len()).filter(|&at| entered[at] && env.flow.is_reached(at));
        let entered: Vec<usize> = entered.collect();
        if entered.len().saturating_mul(env.types.keys.len()) > MOST_RETURNED {
            return Type::any_of(env.types.keys.iter().any(|key| key.ty.has_secret()));
        }
        ends.extend(entered.into_iter().map(|at| state(env, at, Site::Params)));
    }
    let is_object = |ty: &Type| matches!(ty.kind, TypeKind::Object(_)) && !ty.nullable;
    if !ends.is_empty() && ends.iter().all(is_object) {
        join_all(ends)
    } else {
        Type::any_of(ends.iter().any(Type::has_secret))
    }
}

/// Returns the type of a run's output if it ends at a node: the output that the node declares, or else the state.
fn returned(env: TypeEnv<'_, '_>, at: usize) -> Type {
    match &env.model.definition.nodes[at].kind {
        NodeKind::Return(Return { output: Some(term), .. }) => env.type_of_term(at, Site::Output, term),
        _ => state(env, at, Site::Next),
    }
}

/// Returns the type of the state at a place as an object. Keys that are set on every path there are not nullable.
fn state(env: TypeEnv<'_, '_>, at: usize, site: Site) -> Type {
    let key = |key: &TypedKey| field(&key.name, env.type_of_key(at, site, &key.name));
    // A key that does not keep its value is no part of the state as a whole.
    let whole = env
        .types
        .keys
        .iter()
        .filter(|key| env.model.key(&key.name).is_none_or(|at| env.model.keys[at].keep().is_none()));
    Type::of(TypeKind::Object(whole.map(key).collect()))
}

//! The results of a node as cases: one for each signal that may end a wait, one for each node at which a nested run may end.
//!
//! A value in the result tells the cases apart: the name of the signal, or a word or a boolean that a return node writes.
//! Where an edge of the node looks at it, only some of the cases are possible behind that edge.
//!
//! A wait for `paid` with the required field `cents`, or `refused`, has two cases: `{ signal: paid, paid: { cents } }` and
//! `{ signal: refused, refused }`. Behind `{ path: result.signal, value: paid }`, `result.paid.cents` is always there.

use graph_definition::definition::{
    ByDefinition, EdgeDefinition, NodeKind, RouteDefinition, TermDefinition, TermKind, TestDefinition, compiled,
};
use graph_model::operator::Operator;
use graph_model::path::{Path, Root};
use graph_model::template::Template;
use graph_model::value::{AsView, Value};

use super::guards;
use super::model::Model;
use super::provided::run_of;
use super::reads::Site;
use crate::types::{Type, TypeKind};

/// How many parts of one value are looked at.
const MOST_PARTS: usize = 200;

/// Returns the paths into the state that have a value behind each edge of a node, because the node has assigned them a part of its
/// result that is there in each case in which the edge is followed. They are in the order of [`Model::edge_indices`].
pub(super) fn assigned(model: &Model<'_>, node: usize) -> Vec<Vec<Path>> {
    let none = || vec![Vec::new(); model.edge_indices(node).count()];
    // If a failure continues along the edges, nothing was assigned.
    let copies = if model.may_skip_assign(node) { Vec::new() } else { copies(model, node) };
    if copies.is_empty() {
        return none();
    }
    let Some(whole) = model.result_at(node, Site::Next) else { return none() };
    let cases = match cases(model, node) {
        cases if cases.is_empty() => vec![whole.clone().into_owned()],
        cases => cases,
    };
    let behind = |edge: usize| {
        let possible = cases.iter().filter(|case| is_possible(model, node, edge, case));
        let proven = match model.definition.nodes[node].next() {
            RouteDefinition::First(list) => {
                let before = list.edges[..edge].iter().flat_map(|edge| guards::proven(&edge.when, false));
                before.chain(guards::proven(&list.edges[edge].when, true)).collect()
            }
            RouteDefinition::All(list) => guards::proven(&list.edges[edge].when, true),
            RouteDefinition::By(by) if by.to[edge].0.value != NULL => vec![&by.by.value],
            _ => Vec::new(),
        };
        // Without a possible case, the edge is never followed.
        let joined = possible.cloned().reduce(Type::join)?;
        let proven = proven.into_iter().filter(|path| path.root == Root::Result);
        Some(proven.fold(joined, |ty, path| with_value(ty, &path.segments)))
    };
    let facts = |edge: usize| {
        let mut found = Vec::new();
        let Some(ty) = behind(edge) else { return found };
        for (key, path) in &copies {
            let mut at = vec![(*key).to_owned()];
            gains(part(&whole, path).as_ref(), part(&ty, path).as_ref(), &mut at, &mut found);
        }
        found
    };
    model.edge_indices(node).map(facts).collect()
}

/// The word of a route for a value that is not there.
const NULL: &str = "null";

/// Returns the assignments of a node that copy its result or a part of it: the key, and the path into the result.
fn copies<'d>(model: &Model<'d>, node: usize) -> Vec<(&'d str, &'d [String])> {
    let copied = |term: &'d TermDefinition| {
        let TermKind::Template { template: Template::Whole(expression), .. } = &term.kind else { return None };
        match expression.paths.as_slice() {
            [path] if path.root == Root::Result => Some(path.segments.as_slice()),
            _ => None,
        }
    };
    let assign = model.definition.nodes[node].assign().iter();
    let copies = assign.filter_map(|one| Some((one.key.value.as_str(), copied(&one.value)?)));
    copies.filter(|(key, _)| !model.combines_name(key)).collect()
}

/// Returns the types of the results of a node, one for each case; nothing if there is only one case.
fn cases(model: &Model<'_>, node: usize) -> Vec<Type> {
    match &model.definition.nodes[node].kind {
        NodeKind::Wait(wait) if wait.ask.is_none() && wait.signals.len() > 1 => {
            wait.signals.iter().map(|name| model.received_one(wait, &name.value)).collect()
        }
        NodeKind::Action(action) => {
            let exits = model.tool(&action.call).graph.map_or(&[][..], |graph| &graph.exits);
            exits.iter().map(|exit| run_of(&exit.ty)).collect()
        }
        _ => Vec::new(),
    }
}

/// Whether an edge can be followed where the result has this type.
fn is_possible(model: &Model<'_>, node: usize, edge: usize, case: &Type) -> bool {
    let can = |test: &TestDefinition, holds: bool| can_test(case, test, holds);
    let can_follow = |edge: &EdgeDefinition| guards::can_be(&edge.when, true, &can);
    match model.definition.nodes[node].next() {
        RouteDefinition::First(list) => {
            let is_passed = |edge: &EdgeDefinition| guards::can_be(&edge.when, false, &can);
            list.edges[..edge].iter().all(is_passed) && can_follow(&list.edges[edge])
        }
        RouteDefinition::All(list) => can_follow(&list.edges[edge]),
        RouteDefinition::By(by) => can_route(case, by, edge),
        RouteDefinition::End | RouteDefinition::To(_) | RouteDefinition::Each(_) => true,
    }
}

/// Whether a comparison can have a result where the node's result has this type.
fn can_test(case: &Type, test: &TestDefinition, holds: bool) -> bool {
    if test.path.value.root != Root::Result {
        return true;
    }
    let Some(values) = values(case, &test.path.value.segments) else { return true };
    let pattern = match (test.operator, test.value.value.as_str()) {
        (Operator::Regex, Some(pattern)) => compiled(pattern),
        _ => None,
    };
    let matches = |text: &str| pattern.as_ref().is_some_and(|pattern| pattern.is_match(text));
    // If the two cannot be compared, the node fails, and no edge is followed.
    values.iter().any(|value| test.operator.holds(value.view(), &test.value.value, matches) == Ok(holds))
}

/// Whether the value of a route can be the word of an edge where the node's result has this type.
fn can_route(case: &Type, by: &ByDefinition, edge: usize) -> bool {
    if by.by.value.root != Root::Result {
        return true;
    }
    let Some(values) = values(case, &by.by.value.segments) else { return true };
    let word = by.to[edge].0.value.as_str();
    values.iter().any(|value| match value {
        Value::Null => word == NULL,
        Value::Bool(value) => word == value.to_string(),
        _ => value.as_str() == Some(word),
    })
}

/// Returns the values at a path into a value of this type, if they are known.
fn values(ty: &Type, path: &[String]) -> Option<Vec<Value>> {
    let part = part(ty, path)?;
    let mut values = match &part.kind {
        TypeKind::Never => Vec::new(),
        TypeKind::Enum(words) => words.iter().map(|word| Value::from(word.as_str())).collect(),
        TypeKind::Boolean if part.known.values.is_none() => vec![Value::Bool(true), Value::Bool(false)],
        _ => part.known.values?,
    };
    values.extend(part.nullable.then_some(Value::Null));
    Some(values)
}

/// Returns the type of the part at a path. A part that no value has is null.
fn part(ty: &Type, path: &[String]) -> Option<Type> {
    Some(path.iter().fold(ty.clone(), |ty, name| ty.step(name).unwrap_or_else(|_| Type::null())))
}

/// Returns the same type where the value at a path is not null.
fn with_value(mut ty: Type, path: &[String]) -> Type {
    ty = ty.not_null();
    if let (Some((name, rest)), TypeKind::Object(fields)) = (path.split_first(), &mut ty.kind)
        && let Some(field) = fields.iter_mut().find(|field| field.name == *name)
    {
        field.ty = with_value(std::mem::replace(&mut field.ty, Type::never()), rest);
    }
    ty
}

/// Adds the paths at which a value of type `ty` has a part that one of type `whole` may lack.
fn gains(whole: Option<&Type>, ty: Option<&Type>, at: &mut Vec<String>, found: &mut Vec<Path>) {
    let Some(ty) = ty.filter(|ty| !ty.nullable && !matches!(ty.kind, TypeKind::Any | TypeKind::Never)) else { return };
    if found.len() >= MOST_PARTS {
        return;
    }
    if whole.is_none_or(|whole| whole.nullable) {
        found.push(Path { root: Root::State, segments: at.clone() });
    }
    let TypeKind::Object(fields) = &ty.kind else { return };
    for field in fields {
        at.push(field.name.clone());
        let part = whole.and_then(|whole| whole.step(&field.name).ok());
        gains(part.as_ref(), Some(&field.ty), at, found);
        at.pop();
    }
}

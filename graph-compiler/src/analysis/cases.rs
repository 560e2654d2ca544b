//! The results of a node as cases: one for each signal that may end a wait, one for each node at which a nested run may end.
//!
//! A value in the result tells the cases apart: the name of the signal, or a word or a boolean that a return node writes.
//! Where an edge of the node looks at it, only some of the cases are possible behind that edge.
//!
//! A wait for `paid` with the required field `cents`, or `refused`, has two cases: `{ signal: paid, paid: { cents } }` and
//! `{ signal: refused, refused }`. Behind `{ path: result.signal, value: paid }`, `result.paid.cents` is always there.

use std::borrow::Cow;

use graph_definition::definition::{
    EdgeDefinition, NodeKind, RouteDefinition, TermDefinition, TermKind, TestDefinition, compiled,
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

/// Returns the paths into the state that have a value behind each edge of a node, because `origin` has assigned them a part of its
/// result that is there in each case in which the edge is followed. They are in the order of [`Model::edge_indices`]. The keys have
/// their values from `origin` still, which is the node itself or one before it.
pub(super) fn assigned(model: &Model<'_>, origin: usize, node: usize) -> Vec<Vec<Path>> {
    let none = || vec![Vec::new(); model.edge_indices(node).count()];
    let copies = copies(model, origin);
    if copies.is_empty() {
        return none();
    }
    let Some(whole) = model.result_at(origin, Site::Next) else { return none() };
    let cases = match cases(model, origin) {
        cases if cases.is_empty() => vec![whole.clone().into_owned()],
        cases => cases,
    };
    let origin = CaseOrigin { is_own: origin == node, copies };
    let behind = |edge: usize| {
        let possible = cases.iter().filter(|case| is_possible(model, node, edge, case, &origin));
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
        let proven = proven.into_iter().filter_map(|path| origin.part_of_result(path));
        Some(proven.fold(joined, |ty, path| with_value(ty, &path)))
    };
    let facts = |edge: usize| {
        let mut found = Vec::new();
        let Some(ty) = behind(edge) else { return found };
        for (key, path) in &origin.copies {
            let mut at = vec![(*key).to_owned()];
            gains(part(&whole, path).as_ref(), part(&ty, path).as_ref(), &mut at, &mut found);
        }
        found
    };
    model.edge_indices(node).map(facts).collect()
}

/// Returns the keys to which a node copies parts of a result that has several cases.
pub(super) fn distinguished_by<'d>(model: &Model<'d>, node: usize) -> Vec<&'d str> {
    match cases(model, node).len() {
        0 | 1 => Vec::new(),
        _ => copies(model, node).into_iter().map(|(key, _)| key).collect(),
    }
}

/// The node whose result has cases, as another node sees it.
struct CaseOrigin<'d> {
    /// Whether it is the node that looks at it.
    is_own: bool,
    /// The keys that have parts of the result, with the paths of these.
    copies: Vec<(&'d str, &'d [String])>,
}

impl CaseOrigin<'_> {
    /// Returns the path into the result at which a value is that an edge looks at; `None` for another value.
    fn part_of_result<'p>(&self, path: &'p Path) -> Option<Cow<'p, [String]>> {
        match (path.root, path.segments.split_first()) {
            (Root::Result, _) => self.is_own.then_some(Cow::Borrowed(&path.segments)),
            (Root::State, Some((key, rest))) => {
                let (_, copied) = self.copies.iter().find(|(name, _)| name == key)?;
                Some(copied.iter().chain(rest).cloned().collect())
            }
            _ => None,
        }
    }
}

/// The word of a route for a value that is not there.
const NULL: &str = "null";

/// Returns the assignments of a node that copy its result or a part of it: the key, and the path into the result.
fn copies<'d>(model: &Model<'d>, node: usize) -> Vec<(&'d str, &'d [String])> {
    // If a failure continues along the edges, nothing was assigned.
    if model.may_skip_assign(node) {
        return Vec::new();
    }
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
fn is_possible(model: &Model<'_>, node: usize, edge: usize, case: &Type, origin: &CaseOrigin<'_>) -> bool {
    let part_at = |path: &Path| part(case, &origin.part_of_result(path)?);
    let can =
        |test: &TestDefinition, holds: bool| part_at(&test.path.value).is_none_or(|part| can_test(&part, test, holds));
    let can_follow = |edge: &EdgeDefinition| guards::can_be(&edge.when, true, &can);
    match model.definition.nodes[node].next() {
        RouteDefinition::First(list) => {
            let is_passed = |edge: &EdgeDefinition| guards::can_be(&edge.when, false, &can);
            list.edges[..edge].iter().all(is_passed) && can_follow(&list.edges[edge])
        }
        RouteDefinition::All(list) => can_follow(&list.edges[edge]),
        RouteDefinition::By(by) => {
            part_at(&by.by.value).is_none_or(|part| can_route(&part, by.to[edge].0.value.as_str()))
        }
        RouteDefinition::End | RouteDefinition::To(_) | RouteDefinition::Each(_) => true,
    }
}

/// Whether a comparison of a value of this type can have a result.
fn can_test(ty: &Type, test: &TestDefinition, holds: bool) -> bool {
    let pattern = match (test.operator, test.value.value.as_str()) {
        (Operator::Regex, Some(pattern)) => compiled(pattern),
        _ => None,
    };
    let matches = |text: &str| pattern.as_ref().is_some_and(|pattern| pattern.is_match(text));
    // If the two cannot be compared, the node fails, and no edge is followed.
    let can = |value: &Value| test.operator.holds(value.view(), &test.value.value, matches) == Ok(holds);
    match values(ty) {
        Some(values) => values.iter().any(can),
        // Any value that is not null answers the question whether there is one.
        None if guards::asks_only_for_null(test) => can(&Value::Bool(true)) || (ty.nullable && can(&Value::Null)),
        None => true,
    }
}

/// Whether a value of this type can be the word of an edge.
fn can_route(ty: &Type, word: &str) -> bool {
    let is_word = |value: &Value| match value {
        Value::Null => word == NULL,
        Value::Bool(value) => word == value.to_string(),
        _ => value.as_str() == Some(word),
    };
    values(ty).is_none_or(|values| values.iter().any(is_word))
}

/// Returns all values of this type, if they are known.
fn values(ty: &Type) -> Option<Vec<Value>> {
    let mut values = match &ty.kind {
        TypeKind::Never => Vec::new(),
        TypeKind::Enum(words) => words.iter().map(|word| Value::from(word.as_str())).collect(),
        TypeKind::Boolean if ty.known.values.is_none() => vec![Value::Bool(true), Value::Bool(false)],
        _ => ty.known.values.clone()?,
    };
    values.extend(ty.nullable.then_some(Value::Null));
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

//! The compiler's knowledge of the value at each place of a graph: its type, and whether there is one.

use std::borrow::Cow;

use graph_definition::definition::{CallDefinition, NodeKind, RouteDefinition, Spanned, TermDefinition, TermKind};
use graph_model::path::{Path, Root};
use graph_model::program::{LAST_ERROR, RETRIES};
use graph_model::reducer::Keep;
use graph_model::template::{Expression, InputReference, Piece, Template};
use graph_model::value::Value;

use super::branches::entered_lists;
use super::flow::Flow;
use super::model::Model;
use super::provided::{field, last_error, retries};
use super::reads::Site;
use super::types::{LeastLength, StateTypes};
use crate::types::{Known, Type, TypeKind, join_all};

/// The types of paths and terms at the places where they occur.
///
/// It only borrows, so inference can use it while `types` grow.
#[derive(Clone, Copy)]
pub(crate) struct TypeEnv<'a, 'd> {
    pub(crate) model: &'a Model<'d>,
    pub(crate) flow: &'a Flow,
    pub(crate) types: &'a StateTypes,
}

impl<'a, 'd> TypeEnv<'a, 'd> {
    /// Returns the type of the value at a path.
    pub(crate) fn type_of_path(&self, node: usize, site: Site, path: &Path) -> Type {
        let (root, segments) = match path.root {
            Root::Now => return Type::of(TypeKind::String),
            Root::Timestamp => return Type::of(TypeKind::Integer),
            // A lookup by name, since there may be many inputs.
            Root::Inputs => match path.segments.split_first() {
                Some((name, rest)) if matches!(self.model.inputs.kind, TypeKind::Object(_)) => {
                    match self.model.input(name) {
                        Some(field) if field.ty.nullable && self.is_something(node, site, path, 1) => {
                            (Cow::Owned(field.ty.clone().not_null()), rest)
                        }
                        Some(field) => (Cow::Borrowed(&field.ty), rest),
                        None => return Type::any(),
                    }
                }
                _ => (Cow::Borrowed(&self.model.inputs), path.segments.as_slice()),
            },
            Root::Result => match self.model.result_at(node, site) {
                Some(result) => (result, path.segments.as_slice()),
                None => return Type::any(),
            },
            Root::Local if site == Site::Hook => return self.of_event(path),
            Root::Local => (Cow::Owned(self.local(node, site, path)), path.segments.get(1..).unwrap_or_default()),
            Root::Visit => match path.segments.split_first() {
                Some((field, rest)) if field == "previous" => {
                    (Cow::Owned(self.model.previous_at(node).unwrap_or_else(|_| Type::any())), rest)
                }
                Some((field, _)) if field == "number" => return Type::of(TypeKind::Integer),
                Some((field, _)) if field == "branch" => {
                    let (branches, index) = (self.flow.branches(), Type::of(TypeKind::Integer));
                    return match (branches.is_inside(node), branches.is_outside(node)) {
                        // Another rule reports a node in no branch.
                        (false, _) => Type::any(),
                        (true, true) => index.or_null(),
                        (true, false) => index,
                    };
                }
                _ => return Type::any(),
            },
            Root::State => match path.segments.split_first() {
                Some((key, rest)) => (Cow::Owned(self.type_of_key(node, site, key)), rest),
                None => {
                    let has_secret = self.types.keys.iter().any(|key| key.ty.has_secret());
                    return Type::of(TypeKind::Map(Box::new(Type::any_of(has_secret))));
                }
            },
        };
        let (mut ty, mut done) = (root, path.segments.len() - segments.len());
        for segment in segments {
            // A part that no value has is reported by its own rule. When the graph runs, it is null. If its type were
            // `any` here, a key that is assigned a part of itself, which another node writes, would lose its type.
            let Ok(mut part) = ty.step(segment) else { return Type::null() };
            if let (TypeKind::List(items), false) = (&ty.kind, ty.nullable)
                && self.has_element(node, site, path, done)
            {
                part.nullable = items.nullable;
            }
            done += 1;
            ty = Cow::Owned(match part.nullable && self.is_something(node, site, path, done) {
                true => part.not_null(),
                false => part,
            });
        }
        let mut ty = ty.into_owned();
        if self.flow.knows_paths() && matches!(path.root, Root::State | Root::Inputs) {
            self.narrow(node, site, &mut path.clone(), &mut ty);
        }
        ty
    }

    /// Returns the type of the value at a path with the words that it can still be, because of the conditions on the way to here.
    pub(crate) fn type_with_words_left(&self, node: usize, site: Site, path: &Path) -> Type {
        let ty = self.type_of_path(node, site, path);
        let Some(point) = site.point().filter(|_| matches!(path.root, Root::State | Root::Inputs)) else { return ty };
        match ty.words() {
            Some(words) if !self.reads_memory(std::slice::from_ref(path)) => {
                ty.with_words(self.flow.words_left(node, point, path, words))
            }
            _ => ty,
        }
    }

    /// Removes null from the fields of the value at a path where a condition on the way to here excludes it.
    fn narrow(&self, node: usize, site: Site, path: &mut Path, ty: &mut Type) {
        let TypeKind::Object(fields) = &mut ty.kind else { return };
        for field in fields {
            path.segments.push(field.name.clone());
            if field.ty.nullable && self.is_something(node, site, path, path.segments.len()) {
                field.ty = std::mem::replace(&mut field.ty, Type::never()).not_null();
            }
            self.narrow(node, site, path, &mut field.ty);
            path.segments.pop();
        }
    }

    /// Returns the type of a state key at a place where it may not be set yet.
    pub(crate) fn type_of_key(&self, node: usize, site: Site, name: &str) -> Type {
        let (Some(key), false) = (self.model.key_or_last_error(name), name == RETRIES) else {
            return if name == RETRIES { retries() } else { Type::any() };
        };
        let ty = if name == LAST_ERROR { last_error() } else { self.types.keys[key].ty.clone() };
        // If the last error is set, a failure has set it, and it is not null.
        let ty = if name == LAST_ERROR { ty.not_null() } else { ty };
        if self.is_in_memory(key) {
            return ty.or_null();
        }
        let path = Path { root: Root::State, segments: vec![name.to_owned()] };
        match site.point() {
            Some(point) if self.flow.is_something(node, point, &path) => ty.not_null(),
            Some(point) if self.flow.is_set(node, point, key) => ty,
            _ => ty.or_null(),
        }
    }

    /// Whether a key is a channel that is kept in memory only.
    fn is_in_memory(&self, key: usize) -> bool {
        self.model.keys.get(key).is_some_and(|key| key.keep() == Some(Keep::Memory))
    }

    /// Whether one of several paths begins with a key that is kept in memory only.
    fn reads_memory(&self, paths: &[Path]) -> bool {
        let key = |path: &Path| self.model.key(path.segments.first()?);
        let mut of_state = paths.iter().filter(|path| path.root == Root::State);
        of_state.any(|path| key(path).is_some_and(|key| self.is_in_memory(key)))
    }

    /// Whether a key is sure to be set at a place. One that is kept in memory only may be null anywhere, which its type says.
    pub(crate) fn is_set(&self, node: usize, site: Site, key: usize) -> bool {
        self.is_in_memory(key) || site.point().is_none_or(|point| self.flow.is_set(node, point, key))
    }

    /// Whether the first parts of a path are sure to lead to a value, because a condition on the way to here requires it.
    pub(crate) fn is_something(&self, node: usize, site: Site, path: &Path, parts: usize) -> bool {
        let Some(point) = site.point() else { return false };
        if !matches!(path.root, Root::State | Root::Inputs) || self.reads_memory(std::slice::from_ref(path)) {
            return false;
        }
        let part = Path { root: path.root, segments: path.segments[..parts].to_vec() };
        self.flow.is_something(node, point, &part)
    }

    /// Whether the list that the first parts of a path lead to is sure to have the element that the next part names.
    fn has_element(&self, node: usize, site: Site, path: &Path, parts: usize) -> bool {
        let Some(index) = path.segments.get(parts).and_then(|part| part.parse::<i64>().ok()) else { return false };
        let list = Path { root: path.root, segments: path.segments[..parts].to_vec() };
        matches!(index, -1 | 0) && site.point().is_some_and(|point| self.flow.is_not_empty(node, point, &list))
    }

    /// Whether one of several paths is sure to be set at a place: the key that it begins with, or the input that it names.
    pub(crate) fn is_one_set(&self, node: usize, site: Site, paths: &[Path]) -> bool {
        paths.len() > 1
            && !self.reads_memory(paths)
            && site.point().is_some_and(|point| self.flow.is_one_set(node, point, paths))
    }

    /// Whether one of several paths, whichever it is, is sure to lead to a value at a place.
    pub(crate) fn is_one_something(&self, node: usize, site: Site, paths: &[Path]) -> bool {
        self.is_one_set(node, site, paths) && paths.iter().all(|path| !self.type_where_set(path).nullable)
    }

    /// Whether one of the paths into the state may lead to null although the key that it begins with is set.
    pub(crate) fn is_null_where_set(&self, paths: &[Path]) -> bool {
        let mut of_state = paths.iter().filter(|path| path.root == Root::State);
        of_state.any(|path| self.type_where_set(path).nullable)
    }

    /// Returns the type of the value at a path if the state key or input that it begins with is set.
    fn type_where_set(&self, path: &Path) -> Type {
        let (first, rest) = match (path.root, path.segments.split_first()) {
            (Root::Now | Root::Timestamp, _) => return Type::of(TypeKind::String),
            (Root::Inputs, Some((name, rest))) => match self.model.input(name) {
                Some(field) => (field.ty.clone().not_null(), rest),
                None => return Type::any().or_null(),
            },
            (Root::State, Some((name, rest))) if name == LAST_ERROR => (last_error().not_null(), rest),
            (Root::State, Some((name, rest))) => match self.model.key(name) {
                Some(key) => (self.types.keys[key].ty.clone(), rest),
                None => return Type::any().or_null(),
            },
            _ => return Type::any().or_null(),
        };
        let step = |ty: Type, part: &String| ty.step(part).unwrap_or_else(|_| Type::any().or_null());
        rest.iter().fold(first, step)
    }

    /// Returns the ids that a computed id can be, if all of them are known: those that consist of words of an `enum`.
    pub(crate) fn ids(&self, node: usize, site: Site, call: &CallDefinition) -> Option<Vec<String>> {
        const MOST_IDS: usize = 64;
        let TermKind::Template { template, .. } = &call.computed()?.0.kind else { return None };
        let words = |expression: &Expression| {
            let [path] = expression.paths.as_slice() else { return None };
            let ty = self.type_of_path(node, site, path);
            let mut words = ty.words()?;
            // A reference to an input that is not given has a text of its own.
            if let (true, Some(InputReference::AsWritten(text) | InputReference::Text(text))) =
                (ty.nullable, &expression.input)
            {
                words.push(text.clone());
            }
            Some(words)
        };
        let pieces: Vec<Vec<String>> = match template {
            Template::Text(_) => return None,
            Template::Whole(expression) => vec![words(expression)?],
            Template::Mixed(pieces) => {
                let piece = |piece: &Piece| match piece {
                    Piece::Text(text) => Some(vec![text.clone()]),
                    Piece::Expression(expression) => words(expression),
                };
                pieces.iter().map(piece).collect::<Option<_>>()?
            }
        };
        pieces.iter().try_fold(vec![String::new()], |ids, words| {
            let longer = ids.iter().flat_map(|id| words.iter().map(move |word| format!("{id}{word}")));
            let longer: Vec<String> = longer.take(MOST_IDS + 1).collect();
            (longer.len() <= MOST_IDS).then_some(longer)
        })
    }

    /// Returns the type of the value with which a local path begins: the item of a foreach, or the element of the list that
    /// the branch belongs to.
    fn local(&self, node: usize, site: Site, path: &Path) -> Type {
        let name = path.segments.first().map(String::as_str).unwrap_or_default();
        if self.model.is_item(node, site, name) {
            return self.item_of(node);
        }
        let branches = self.flow.branches();
        // If fan-outs contain themselves, the type of an element may depend on itself.
        if !branches.faults().is_empty() {
            return Type::any();
        }
        let fans = branches.argument(self.model, node, name).unwrap_or_default();
        let elements = fans.iter().filter_map(|&fan| self.element_of(fan));
        let entries = self.model.definition.entries.iter().zip(&self.model.entries);
        let entered = entries.filter_map(|(entry, at)| {
            let lists = entered_lists(self.model, entry, &branches.entry(self.model, (*at)?).ok()?);
            let list = lists.iter().find(|list| fans.contains(&list.fan) && list.name == name)?;
            self.entry_element(list.input?)
        });
        elements.chain(entered).reduce(Type::join).unwrap_or_else(Type::any)
    }

    /// Returns the type of a part of an event's data: of any type, but a secret where a key of the state has one, in whose place
    /// hooks see `[secret]`.
    fn of_event(&self, path: &Path) -> Type {
        let [data, key, rest @ ..] = path.segments.as_slice() else { return Type::any() };
        let Some(key) = self.model.key(key).filter(|_| data == "state") else { return Type::any() };
        let part = rest.iter().try_fold(self.types.keys[key].ty.clone(), |ty, part| ty.step(part).ok());
        Type::any_of(part.is_some_and(|part| part.secret))
    }

    /// Returns the type of the elements of the list that a node fans out over.
    pub(crate) fn element_of(&self, fan: usize) -> Option<Type> {
        match self.model.definition.nodes[fan].next() {
            RouteDefinition::Each(each) => Some(element(self.type_of_term(fan, Site::Next, &each.over))),
            _ => None,
        }
    }

    /// Returns the type of an element with which a run begins at an entry. A run does not begin without it.
    pub(crate) fn entry_element(&self, element: &Spanned<Path>) -> Option<Type> {
        let segments = element.value.segments.iter();
        let ty = segments.clone().try_fold(self.model.inputs.clone(), |ty, part| ty.step(part).ok());
        Some(ty?.not_null())
    }

    /// Returns the type of the list that a foreach collects: it has a result for each item.
    pub(crate) fn collected(&self, node: usize) -> Type {
        let collected = self.model.collected(node);
        let NodeKind::Foreach(each) = &self.model.definition.nodes[node].kind else { return collected };
        let least = self.type_of_term(node, Site::Over, &each.over).known.least;
        Type { known: Known { least, ..Known::default() }, ..collected }
    }

    /// Returns the type of an item of the list that a foreach goes over.
    fn item_of(&self, node: usize) -> Type {
        let NodeKind::Foreach(each) = &self.model.definition.nodes[node].kind else { return Type::any() };
        element(self.type_of_term(node, Site::Over, &each.over))
    }

    /// Returns the type of a value with templates.
    pub(crate) fn type_of_term(&self, node: usize, site: Site, term: &TermDefinition) -> Type {
        match &term.kind {
            TermKind::Unreadable => Type::any(),
            TermKind::Literal(value) => Type::of_value(value),
            TermKind::Template { template: Template::Whole(expression), .. } => {
                let mut ty = Type::null();
                for path in &expression.paths {
                    let one = self.type_with_words_left(node, site, path);
                    let last = !one.nullable;
                    ty = ty.not_null().join(one);
                    if last {
                        return ty.not_null();
                    }
                }
                match self.is_one_something(node, site, &expression.paths) {
                    true => ty.not_null(),
                    false => ty.or_null(),
                }
            }
            TermKind::Template { template, .. } => {
                let mut paths = template.expressions().flat_map(|expression| &expression.paths);
                // A text with a secret in it is a secret.
                let secret = paths.any(|path| self.type_of_path(node, site, path).has_secret());
                Type { secret, ..Type::of(TypeKind::String) }
            }
            TermKind::List(list) => {
                let elements = join_all(list.iter().map(|term| self.type_of_term(node, site, term)));
                Type::list(elements, list.len() as u64)
            }
            TermKind::Object(fields) => {
                let field = |(key, term): &(Spanned<String>, TermDefinition)| {
                    field(&key.value, self.type_of_term(node, site, term))
                };
                Type::of(TypeKind::Object(fields.iter().map(field).collect()))
            }
        }
    }

    /// Whether a term is null in every run: all of its paths lead to keys that are set and to parts that are always null. A key that is
    /// not set, and a part that no value has, are reported by rules of their own.
    pub(crate) fn is_nothing(&self, node: usize, site: Site, term: &TermDefinition) -> bool {
        let TermKind::Template { template: Template::Whole(expression), .. } = &term.kind else {
            return matches!(&term.kind, TermKind::Literal(Value::Null));
        };
        // Another rule reports a key that is not set, unless the expression falls back on something.
        let may_be_unset = expression.paths.len() > 1;
        expression.paths.iter().all(|path| {
            let (whole, parts) = match (path.root, path.segments.split_first()) {
                (Root::State, Some((name, parts))) => match self.model.key(name) {
                    Some(key) if self.is_set(node, site, key) => (self.types.keys[key].ty.clone(), parts),
                    Some(key) if may_be_unset => (self.types.keys[key].ty.clone().or_null(), parts),
                    _ => return false,
                },
                (Root::Inputs, Some((name, parts))) => match self.model.input(name) {
                    Some(field) => (field.ty.clone(), parts),
                    None => return false,
                },
                (Root::Result, _) => match self.model.result_at(node, site) {
                    Some(result) => (result.into_owned(), path.segments.as_slice()),
                    None => return false,
                },
                _ => return false,
            };
            let part = parts.iter().try_fold(whole, |ty, part| ty.step(part).ok());
            part.is_some_and(|part| part.is_nothing())
        })
    }

    /// Whether a term may be null. The type of one that begins with a value of any type says so even if the term falls back on a
    /// value that is there.
    pub(crate) fn may_be_null(&self, node: usize, site: Site, term: &TermDefinition) -> bool {
        let TermKind::Template { template: Template::Whole(expression), .. } = &term.kind else {
            return self.type_of_term(node, site, term).nullable;
        };
        let is_there = |path: &Path| {
            let ty = self.type_of_path(node, site, path);
            !(ty.nullable || ty.kind == TypeKind::Any) || self.is_something(node, site, path, path.segments.len())
        };
        !expression.paths.iter().any(is_there) && !self.is_one_something(node, site, &expression.paths)
    }

    /// Returns how many elements the lists of a node have at least.
    pub(crate) fn least_lengths(&self, node: usize) -> LeastLength {
        let definition = &self.model.definition.nodes[node];
        let least = |site: Site, over: &TermDefinition| {
            let ty = self.type_of_term(node, site, over);
            // Nothing has no elements.
            if ty.nullable { 0 } else { ty.known.least }
        };
        LeastLength {
            elements: definition.each().map_or(0, |each| least(Site::Over, &each.over)),
            branches: match definition.next() {
                RouteDefinition::Each(each) => least(Site::Next, &each.over),
                _ => 0,
            },
        }
    }
}

/// Returns the type of the elements of a list.
fn element(list: Type) -> Type {
    match list.kind {
        TypeKind::List(items) => *items,
        // The type is not known yet, or is null, and null has no elements.
        TypeKind::Never => Type::never(),
        _ => Type::any_of(list.has_secret()),
    }
}

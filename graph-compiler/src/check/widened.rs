//! What is known of a value is not lost without a word: where values of two known types meet and nothing is known of the result.

use graph_model::template::Template;

use crate::analysis::inference::type_of_term;
use crate::analysis::model::{Facts, Site, terms};
use crate::definition::{Assignment, NodeKind, Term, TermKind, locate};
use crate::diagnostic::{Diagnostics, code};
use crate::hash::{HashMap, HashSet};
use crate::source::Span;
use crate::types::{Field, Kind, Type};

/// Values of two known types that meet inside a term, where nothing is known of the result.
#[derive(Debug, Clone)]
pub(crate) struct Loss {
    span: Span,
    message: String,
    label: String,
}

impl Loss {
    fn report(&self, facts: &Facts<'_>, diagnostics: &mut Diagnostics) {
        diagnostics.lint(code::WIDENED, facts.place(&self.span), self.message.clone()).label(self.label.clone());
    }
}

pub(super) fn check(facts: &Facts<'_>, diagnostics: &mut Diagnostics) {
    // The terms of which something is said already.
    let mut told = HashSet::default();
    for (at, node) in facts.definition.nodes.iter().enumerate() {
        // What a tool without contract is given stays what it is; what one with a contract takes is its own rule's.
        for (site, term) in terms(node).into_iter().filter(|(site, _)| !matches!(site, Site::Params | Site::Item)) {
            let mut losses = Vec::new();
            inside(facts, (at, site), term, &mut losses);
            if losses.is_empty() {
                losses.extend(facts.types.inner_losses.get(&term.span.start).cloned());
            }
            losses.iter().for_each(|loss| loss.report(facts, diagnostics));
            if !losses.is_empty() {
                told.insert(term.span.start);
            }
        }
    }
    keys(facts, &told, diagnostics);
}

/// Looks at what is written to each key.
fn keys(facts: &Facts<'_>, told: &HashSet<usize>, diagnostics: &mut Diagnostics) {
    // What is written to each key, in the order of the file.
    let mut written: Vec<Vec<(Span, Type)>> = vec![Vec::new(); facts.types.keys.len()];
    let mut write = |key: &str, span: &Span, ty: Type| {
        if let Some(key) = facts.types.key(key) {
            written[key].push((span.clone(), ty));
        }
    };
    for (key, value) in &facts.definition.state {
        write(key.value.as_str(), &value.span, Type::of_value(&value.value));
    }
    for (at, node) in facts.definition.nodes.iter().enumerate() {
        for (index, Assignment { key, value }) in node.assign().iter().enumerate() {
            write(key.value.as_str(), &value.span, type_of_term(facts, at, Site::Assign(index), value));
        }
        if let NodeKind::Foreach(each) = &node.kind
            && let Some(key) = &each.collect
        {
            write(key.value.as_str(), &key.span, crate::analysis::inference::collected(facts, at));
        }
    }
    for ((key, all), loss) in facts.types.keys.iter().zip(&written).zip(&facts.types.losses) {
        let Some(((first, ty), all)) = all.split_first() else { continue };
        let (mut before, mut ty) = (first.clone(), ty.clone());
        let mut is_said = false;
        for (span, other) in all {
            let joined = ty.clone().join(other.clone());
            if loses(&ty, other, &joined) {
                diagnostics
                    .lint(
                        code::WIDENED,
                        facts.place(span),
                        format!(
                            "`state.{}` is {} here and {} elsewhere, so its type is not known",
                            key.name,
                            plain(other),
                            plain(&ty)
                        ),
                    )
                    .label(format!("this is {}", plain(other)))
                    .related(facts.place(&before), format!("this is {}", plain(&ty)))
                    .help("write values of one type to it, or use a key of its own for each");
                is_said = true;
                break;
            }
            if ty.kind == Kind::Never {
                before = span.clone();
            }
            ty = joined;
        }
        // Where a key is read to write it, what is known of it in the end hides which values met.
        if let Some((span, one, two)) = loss.as_ref().filter(|(span, ..)| !is_said && !told.contains(&span.start)) {
            let message = format!(
                "`state.{}` gets {} here and {} elsewhere, so its type is not known",
                key.name,
                plain(one),
                plain(two)
            );
            diagnostics
                .lint(code::WIDENED, facts.place(span), message)
                .label(format!("this may be {}", plain(one)))
                .help("write values of one type to it, or use a key of its own for each");
        }
    }
}

/// Looks for lists with elements of several types, and for fallbacks of another type.
pub(crate) fn inside(facts: &Facts<'_>, (node, site): (usize, Site), term: &Term, losses: &mut Vec<Loss>) {
    match &term.kind {
        TermKind::List(list) => {
            list.iter().for_each(|term| inside(facts, (node, site), term, losses));
            if list.len() > 1 {
                let types = list.iter().map(|term| (term, type_of_term(facts, node, site, term)));
                losses.extend(first_loss(types).map(|(term, one, two)| Loss {
                    span: term.span.clone(),
                    message: format!("the list holds {one} and {two}, so the type of its elements is not known"),
                    label: format!("this is {two}"),
                }));
            }
        }
        TermKind::Object(fields) => fields.iter().for_each(|(_, term)| inside(facts, (node, site), term, losses)),
        TermKind::Template { template: Template::Whole(expression), text } if expression.paths.len() > 1 => {
            let paths = expression.paths.iter().zip(&expression.ranges);
            let types = paths.map(|(path, range)| ((path, range), facts.type_of_path(node, site, path).not_null()));
            losses.extend(first_loss(types).map(|((path, range), one, two)| Loss {
                span: locate(facts.definition.source(), &term.span, text, range),
                message: format!("`{path}` is {two} and what it stands in for {one}, so the type is not known"),
                label: format!("this is {two}"),
            }));
        }
        TermKind::Template { .. } | TermKind::Literal(_) | TermKind::Unreadable => {}
    }
}

/// Returns the first of several values whose type is known, as is that of those before it, and not that of both together; with
/// the type of those before it and its own.
fn first_loss<T>(mut types: impl Iterator<Item = (T, Type)>) -> Option<(T, Type, Type)> {
    let (_, mut known) = types.next()?;
    for (value, ty) in types {
        let joined = known.clone().join(ty.clone());
        if loses(&known, &ty, &joined) {
            return Some((value, plain(&known), plain(&ty)));
        }
        known = joined;
    }
    None
}

/// Whether two types that say something meet in one that says less than either.
pub(crate) fn loses(one: &Type, two: &Type, joined: &Type) -> bool {
    match (&one.kind, &two.kind, &joined.kind) {
        (Kind::Any, ..) | (_, Kind::Any, _) => false,
        (_, _, Kind::Any) => true,
        (Kind::List(one), Kind::List(two), Kind::List(joined))
        | (Kind::Map(one), Kind::Map(two), Kind::Map(joined)) => loses(one, two, joined),
        // An object among maps is one more map: all its fields are values.
        (Kind::Object(fields), Kind::Map(values), _) | (Kind::Map(values), Kind::Object(fields), _) => {
            let values = std::iter::once(((), (**values).clone()));
            first_loss(values.chain(fields.iter().map(|field| ((), field.ty.clone())))).is_some()
        }
        (Kind::Object(ones), Kind::Object(twos), Kind::Object(joined)) => {
            let (ones, twos) = (by_name(ones), by_name(twos));
            joined.iter().any(|field| match (ones.get(&*field.name), twos.get(&*field.name)) {
                (Some(one), Some(two)) => loses(one, two, &field.ty),
                _ => false,
            })
        }
        _ => false,
    }
}

fn by_name(fields: &[Field]) -> HashMap<&str, &Type> {
    fields.iter().map(|field| (field.name.as_str(), &field.ty)).collect()
}

fn plain(ty: &Type) -> Type {
    ty.clone().not_null()
}

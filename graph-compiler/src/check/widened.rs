//! What is known of a value is not lost without a word: where values of two known types meet and nothing is known of the result.

use super::facts::{Facts, Site, terms};
use super::infer::type_of_term;
use crate::definition::{NodeKind, Term, TermKind};
use crate::diagnostic::{Diagnostics, code};
use crate::source::Span;
use crate::types::{Kind, Type};

pub(super) fn check(facts: &Facts<'_>, diagnostics: &mut Diagnostics) {
    // The terms of which something is said already.
    let mut told = Vec::new();
    for (at, node) in facts.definition.nodes.iter().enumerate() {
        // What a tool without contract is given stays what it is; what one with a contract takes is its own rule's.
        for (site, term) in terms(node).into_iter().filter(|(site, _)| !matches!(site, Site::Params | Site::Item)) {
            if inside(facts, (at, site), term, diagnostics) {
                told.push(&term.span);
            }
        }
    }
    keys(facts, &told, diagnostics);
}

/// Looks at what is written to each key.
fn keys(facts: &Facts<'_>, told: &[&Span], diagnostics: &mut Diagnostics) {
    let initial = facts.definition.state.iter();
    let mut written: Vec<(&str, Span, Type)> =
        initial.map(|(key, value)| (key.value.as_str(), value.span.clone(), Type::of_value(&value.value))).collect();
    for (at, node) in facts.definition.nodes.iter().enumerate() {
        for (index, assignment) in node.assign().iter().enumerate() {
            let ty = type_of_term(facts, at, Site::Assign(index), &assignment.value);
            written.push((assignment.key.value.as_str(), assignment.value.span.clone(), ty));
        }
        if let NodeKind::Foreach(each) = &node.kind
            && let Some(key) = &each.collect
        {
            written.push((key.value.as_str(), key.span.clone(), super::infer::collected(facts, at)));
        }
    }
    for key in &facts.types.keys {
        let mut all = written.iter().filter(|(name, ..)| *name == key.name);
        let Some((_, mut before, mut ty)) = all.next().cloned() else { continue };
        let mut is_said = false;
        for (_, span, other) in all {
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
        let loss = facts.types.key(&key.name).and_then(|key| facts.types.losses[key].as_ref());
        if let Some((span, one, two)) = loss.filter(|(span, ..)| !is_said && !told.contains(&span)) {
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

/// Looks at lists with elements of several types, and at fallbacks of another type. Returns whether it said something.
fn inside(facts: &Facts<'_>, (node, site): (usize, Site), term: &Term, diagnostics: &mut Diagnostics) -> bool {
    match &term.kind {
        TermKind::List(list) => {
            let mut is_told = false;
            for term in list {
                is_told |= inside(facts, (node, site), term, diagnostics);
            }
            let types = list.iter().map(|term| (term, type_of_term(facts, node, site, term)));
            let mut before: Option<Type> = None;
            for (term, ty) in types {
                let Some(known) = before.take() else {
                    before = Some(ty);
                    continue;
                };
                let joined = known.clone().join(ty.clone());
                if loses(&known, &ty, &joined) {
                    let (one, two) = (plain(&known), plain(&ty));
                    diagnostics
                        .lint(
                            code::WIDENED,
                            facts.place(&term.span),
                            format!("the list holds {one} and {two}, so the type of its elements is not known"),
                        )
                        .label(format!("this is {two}"));
                    return true;
                }
                before = Some(joined);
            }
            is_told
        }
        TermKind::Object(fields) => {
            let mut is_told = false;
            for (_, term) in fields {
                is_told |= inside(facts, (node, site), term, diagnostics);
            }
            is_told
        }
        TermKind::Template { template, text } => {
            use graph_model::template::Template;
            let Template::Whole(expression) = template else { return false };
            let mut before: Option<Type> = None;
            for (path, range) in expression.paths.iter().zip(&expression.ranges) {
                let ty = facts.type_of_path(node, site, path).not_null();
                let Some(known) = before.take() else {
                    before = Some(ty);
                    continue;
                };
                let joined = known.clone().join(ty.clone());
                if loses(&known, &ty, &joined) {
                    let span = crate::definition::locate(facts.definition.source(), &term.span, text, range);
                    let (one, two) = (plain(&known), plain(&ty));
                    diagnostics
                        .lint(
                            code::WIDENED,
                            facts.place(&span),
                            format!("`{path}` is {two} and what it stands in for {one}, so the type is not known"),
                        )
                        .label(format!("this is {two}"));
                    return true;
                }
                before = Some(joined);
            }
            false
        }
        TermKind::Literal(_) | TermKind::Unreadable => false,
    }
}

/// Whether two types that say something meet in one that says less than either.
pub(super) fn loses(one: &Type, two: &Type, joined: &Type) -> bool {
    match (&one.kind, &two.kind, &joined.kind) {
        (Kind::Any | Kind::Never, ..) | (_, Kind::Any | Kind::Never, _) => false,
        (_, _, Kind::Any) => true,
        (Kind::List(one), Kind::List(two), Kind::List(joined))
        | (Kind::Map(one), Kind::Map(two), Kind::Map(joined)) => loses(one, two, joined),
        // An object among maps is one more map: all its fields are values.
        (Kind::Object(fields), Kind::Map(values), Kind::Map(joined))
        | (Kind::Map(values), Kind::Object(fields), Kind::Map(joined)) => {
            values.kind != Kind::Any && fields.iter().any(|field| loses(&field.ty, values, joined))
        }
        (Kind::Object(ones), Kind::Object(twos), Kind::Object(joined)) => joined.iter().any(|field| {
            let named = |fields: &[crate::types::Field]| {
                fields.iter().find(|other| other.name == field.name).map(|field| field.ty.clone())
            };
            match (named(ones), named(twos)) {
                (Some(one), Some(two)) => loses(&one, &two, &field.ty),
                _ => false,
            }
        }),
        _ => false,
    }
}

fn plain(ty: &Type) -> Type {
    ty.clone().not_null()
}

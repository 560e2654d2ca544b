//! Places where values of two known types meet and the type of the result is not known.

use graph_definition::definition::{TermDefinition, TermKind, locate};
use graph_definition::hash::HashMap;
use graph_model::template::Template;

use super::reads::Site;
use super::type_env::TypeEnv;
use super::types::Loss;
use crate::types::{Type, TypeKind, TypedField};

/// Looks for lists with elements of several types, and for fallbacks of another type.
pub(crate) fn inside(env: TypeEnv<'_, '_>, (node, site): (usize, Site), term: &TermDefinition, losses: &mut Vec<Loss>) {
    match &term.kind {
        TermKind::List(list) => {
            list.iter().for_each(|term| inside(env, (node, site), term, losses));
            if list.len() > 1 {
                let types = list.iter().map(|term| (term, env.type_of_term(node, site, term)));
                losses.extend(first_loss(types).map(|(term, one, two)| Loss {
                    span: term.span.clone(),
                    message: format!("the list holds {one} and {two}, so the type of its elements is not known"),
                    label: format!("this is {two}"),
                }));
            }
        }
        TermKind::Object(fields) => fields.iter().for_each(|(_, term)| inside(env, (node, site), term, losses)),
        TermKind::Template { template: Template::Whole(expression), text } if expression.paths.len() > 1 => {
            let paths = expression.paths.iter().zip(&expression.ranges);
            let types = paths.map(|(path, range)| ((path, range), env.type_of_path(node, site, path).not_null()));
            losses.extend(first_loss(types).map(|((path, range), one, two)| Loss {
                span: locate(env.model.definition.source(), &term.span, text, range),
                message: format!("`{path}` is {two} and replaces {one}, so the type is not known"),
                label: format!("this is {two}"),
            }));
        }
        TermKind::Template { .. } | TermKind::Literal(_) | TermKind::Unreadable => {}
    }
}

/// Returns the first value at which the joined type of the values so far is no longer known, although its own type and
/// that of the values before it are; with these two types, the earlier one first.
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

/// Whether two known types join to a type that says less than either.
pub(crate) fn loses(one: &Type, two: &Type, joined: &Type) -> bool {
    match (&one.kind, &two.kind, &joined.kind) {
        (TypeKind::Any, ..) | (_, TypeKind::Any, _) => false,
        (_, _, TypeKind::Any) => true,
        (TypeKind::List(one), TypeKind::List(two), TypeKind::List(joined))
        | (TypeKind::Map(one), TypeKind::Map(two), TypeKind::Map(joined)) => loses(one, two, joined),
        // An object among maps counts as one more map: all its fields are values.
        (TypeKind::Object(fields), TypeKind::Map(values), _) | (TypeKind::Map(values), TypeKind::Object(fields), _) => {
            let values = std::iter::once(((), (**values).clone()));
            first_loss(values.chain(fields.iter().map(|field| ((), field.ty.clone())))).is_some()
        }
        (TypeKind::Object(ones), TypeKind::Object(twos), TypeKind::Object(joined)) => {
            let (ones, twos) = (by_name(ones), by_name(twos));
            joined.iter().any(|field| match (ones.get(&*field.name), twos.get(&*field.name)) {
                (Some(one), Some(two)) => loses(one, two, &field.ty),
                _ => false,
            })
        }
        _ => false,
    }
}

fn by_name(fields: &[TypedField]) -> HashMap<&str, &Type> {
    fields.iter().map(|field| (field.name.as_str(), &field.ty)).collect()
}

pub(crate) fn plain(ty: &Type) -> Type {
    ty.clone().not_null()
}

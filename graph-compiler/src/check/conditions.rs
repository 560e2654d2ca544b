//! Comparisons compare values that can be compared.

use graph_definition::definition::TestDefinition;
use graph_definition::diagnostic::{Diagnostics, code};
use graph_model::operator::Operator;
use graph_model::value::Value;

use crate::analysis::Analysis;
use crate::analysis::reads::{Site, tests};
use crate::types::{Type, TypeKind, is_member};

pub(super) fn check(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    for (at, node) in analysis.model.definition.nodes.iter().enumerate() {
        tests(node).into_iter().for_each(|test| check_test(analysis, (at, Site::Next), test, diagnostics));
    }
    for (at, hook) in analysis.model.definition.hooks.iter().enumerate() {
        hook.condition.tests(&mut |test| check_test(analysis, (at, Site::Hook), test, diagnostics));
    }
}

fn check_test(
    analysis: &Analysis<'_>,
    (node, site): (usize, Site),
    test: &TestDefinition,
    diagnostics: &mut Diagnostics,
) {
    if test.operator == Operator::Exists && !matches!(test.value.value, Value::Null | Value::Bool(true)) {
        let path = &test.path.value;
        diagnostics
            .lint(code::VALUE_OF_EXISTS, analysis.model.place(&test.value.span), "`exists` ignores `value`")
            .help(format!("to test that there is no value, write `{{ path: {path}, value: null }}`"));
        return;
    }
    let left = analysis.type_env().type_of_path(node, site, &test.path.value);
    if let Some(problem) = problem(&left, test) {
        let place = analysis.model.place(&test.value.span);
        let diagnostic = diagnostics.error(code::NEVER_COMPARABLE, place, problem);
        diagnostic.related(analysis.model.place(&test.path.span), format!("this is {}", left.clone().not_null()));
        if let (TypeKind::Enum(texts), Value::String(text)) = (&left.kind, &test.value.value) {
            diagnostic.suggest(text, texts.iter().map(String::as_str));
        }
    }
}

/// Returns the reason why a comparison can only fail or never holds.
fn problem(left: &Type, test: &TestDefinition) -> Option<String> {
    let path = &test.path.value;
    let right = Type::of_value(&test.value.value);
    let shown = left.clone().not_null();
    let is_known = !matches!(left.kind, TypeKind::Any | TypeKind::Never);
    match test.operator {
        Operator::Exists => None,
        Operator::Eq | Operator::Ne => misfit(left, &test.value.value)
            .map(|why| format!("`{path}` is {shown}, which is never equal to {}{why}", write(&test.value.value))),
        Operator::Gt | Operator::Gte | Operator::Lt | Operator::Lte => {
            let right_orders = matches!(right.kind, TypeKind::Integer | TypeKind::Number | TypeKind::String);
            let same = match (&left.kind, &right.kind) {
                (TypeKind::Integer | TypeKind::Number, TypeKind::Integer | TypeKind::Number) => true,
                (TypeKind::String | TypeKind::Enum(_), TypeKind::String) => true,
                _ => !is_known && right_orders,
            };
            (!same)
                .then(|| format!("`{}` compares two numbers or two strings, not {shown} with {right}", test.operator))
        }
        Operator::In => match &test.value.value {
            Value::Array(list) => list
                .iter()
                .find_map(|element| Some((element, misfit(left, element)?)))
                .map(|(element, why)| format!("`{path}` is {shown}, which is never equal to {}{why}", write(element))),
            _ => Some(format!("`in` needs a list of values, not {right}")),
        },
        Operator::Contains => match &left.kind {
            TypeKind::Any | TypeKind::Never => None,
            TypeKind::String | TypeKind::Enum(_) if matches!(right.kind, TypeKind::String) => None,
            TypeKind::List(items) if never_equal(items, &test.value.value) => {
                Some(format!("`{path}` is {shown}, which never contains {}", write(&test.value.value)))
            }
            TypeKind::List(_) => None,
            _ => Some(format!(
                "`contains` looks for a string in a string or a value in a list, not for {right} in {shown}"
            )),
        },
        Operator::Regex => match &left.kind {
            TypeKind::List(_) | TypeKind::Map(_) | TypeKind::Object(_) => {
                Some(format!("`regex` looks at a text, and `{path}` is {shown}"))
            }
            _ => None,
        },
    }
}

/// Whether no value of the type equals `value`.
fn never_equal(ty: &Type, value: &Value) -> bool {
    misfit(ty, value).is_some()
}

/// Returns the reason why no value of the type equals `value`: empty if the two types differ as a whole.
fn misfit(ty: &Type, value: &Value) -> Option<String> {
    let other = Type::of_value(value);
    let whole = |differ: bool| differ.then(String::new);
    match (&ty.kind, value) {
        // A comparison with null asks whether there is a value.
        (TypeKind::Any | TypeKind::Never, _) | (_, Value::Null) => None,
        (TypeKind::Integer | TypeKind::Number, Value::Number(_)) => None,
        (TypeKind::Enum(texts), Value::String(_)) => whole(!is_member(value, texts)),
        (TypeKind::List(items), Value::Array(list)) => {
            list.iter().find_map(|element| misfit_inside("an element", items, element))
        }
        (TypeKind::Map(values), Value::Object(map)) => {
            map.iter().find_map(|(name, part)| misfit_inside(&format!("`{name}`"), values, part))
        }
        (TypeKind::Object(fields), Value::Object(map)) => {
            let field = |name: &String| fields.iter().find(|field| field.name == *name);
            // An object has the fields of its type and no others.
            let mut parts = map.iter().filter(|(_, part)| !part.is_null());
            let wrong = parts.find_map(|(name, part)| match field(name) {
                Some(field) => misfit_inside(&format!("`{name}`"), &field.ty, part),
                None => Some(format!(": it has no field `{name}`")),
            });
            let missing = || fields.iter().find(|field| !field.ty.nullable && !map.contains_key(&field.name));
            wrong.or_else(|| missing().map(|field| format!(": it always has `{}`", field.name)))
        }
        _ => whole(ty.kind != other.kind),
    }
}

fn misfit_inside(which: &str, ty: &Type, part: &Value) -> Option<String> {
    let inside = misfit(ty, part)?;
    Some(match inside.strip_prefix(": ") {
        Some(inside) => format!(": {which}: {inside}"),
        None => format!(": {which} is {} there", ty.clone().not_null()),
    })
}

fn write(value: &Value) -> String {
    format!("`{value}`")
}

//! Patterns and searched parts of texts match some texts and not others.

use graph_definition::definition::{FoundIn, SchemaKind, TestDefinition, ValueSchema, found_in};
use graph_definition::diagnostic::{Diagnostics, code};
use graph_model::operator::Operator;
use graph_model::value::Value;

use crate::analysis::Analysis;
use crate::analysis::reads::{Site, tests};
use crate::types::TypeKind;

pub(super) fn check(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    for (at, node) in analysis.model.definition.nodes.iter().enumerate() {
        tests(node).into_iter().for_each(|test| check_test(analysis, (at, Site::Next), test, diagnostics));
    }
    for (at, hook) in analysis.model.definition.hooks.iter().enumerate() {
        hook.condition.tests(&mut |test| check_test(analysis, (at, Site::Hook), test, diagnostics));
    }
    if let Some(inputs) = &analysis.model.definition.inputs {
        check_schema(analysis, inputs, diagnostics);
    }
}

fn check_test(
    analysis: &Analysis<'_>,
    (node, site): (usize, Site),
    test: &TestDefinition,
    diagnostics: &mut Diagnostics,
) {
    let Value::String(text) = &test.value.value else { return };
    let path = &test.path.value;
    let (found, what) = match test.operator {
        Operator::Regex => (found_in(text), "pattern"),
        // A list can have an empty text as an element.
        Operator::Contains if text.is_empty() => match analysis.type_env().type_of_path(node, site, path).kind {
            TypeKind::String | TypeKind::Enum(_) => (FoundIn::Every, "text"),
            _ => return,
        },
        _ => return,
    };
    let place = analysis.model.place(&test.value.span);
    match found {
        FoundIn::Some => {}
        FoundIn::Every => {
            diagnostics
                .lint(code::ANY_TEXT, place, format!("this {what} is found in every text"))
                .help(format!("to test whether there is a value, write `{{ path: {path}, op: exists }}`"));
        }
        FoundIn::None => {
            diagnostics
                .lint(code::ANY_TEXT, place, format!("this {what} is found in no text"))
                .help("`^` is the beginning of the text, and `$` its end; nothing comes before `^` or after `$`");
        }
    }
}

/// Checks the patterns of the inputs.
fn check_schema(analysis: &Analysis<'_>, schema: &ValueSchema, diagnostics: &mut Diagnostics) {
    for rule in schema.rules.iter().filter(|rule| rule.keyword == "pattern") {
        let found = rule.value.as_str().map_or(FoundIn::Some, found_in);
        let (message, help) = match found {
            FoundIn::Some => continue,
            FoundIn::Every => ("this pattern is found in every text", "remove it, or write what the text must be"),
            FoundIn::None => ("this pattern is found in no text, so no value fits", "write what the text must be"),
        };
        diagnostics.lint(code::ANY_TEXT, analysis.model.place(&rule.span), message).help(help);
    }
    match &schema.kind {
        SchemaKind::List(inner) | SchemaKind::Map(inner) => check_schema(analysis, inner, diagnostics),
        SchemaKind::Object(properties) => {
            properties.iter().for_each(|property| check_schema(analysis, &property.schema, diagnostics));
        }
        _ => {}
    }
}

//! Values for secret parameters are secret, and are not literals in the file.

use graph_definition::definition::{TermDefinition, TermKind};
use graph_definition::diagnostic::{Diagnostics, code};
use graph_model::template::Template;
use graph_model::value::Value;

use crate::analysis::Analysis;
use crate::analysis::reads::Site;
use crate::types::{Type, TypeKind};

/// The suffixes of names of environment variables, and the names of headers, that hold secrets wherever they are used.
const VARIABLES: [&str; 7] = ["_TOKEN", "_PASSWORD", "_PASSWD", "_SECRET", "_API_KEY", "_PRIVATE_KEY", "PGPASSWORD"];
const HEADERS: [&str; 4] = ["authorization", "proxy-authorization", "cookie", "x-api-key"];

pub(super) fn check(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    for (caller, call) in analysis.model.calls() {
        let tool = analysis.model.tool(call);
        let TermKind::Object(given) = &call.params.kind else { continue };
        // A parameter that a built-in tool marks as secret, such as the environment of a command, may hold secrets, but
        // mostly does not.
        if tool.contract.is_some_and(|contract| contract.builtin()) {
            for (key, term) in given.iter().filter(|(key, _)| matches!(key.value.as_str(), "env" | "headers")) {
                let TermKind::Object(fields) = &term.kind else { continue };
                for (name, term) in fields {
                    let is_secret = match key.value.as_str() {
                        "env" => VARIABLES.iter().any(|end| name.value.ends_with(end)),
                        _ => HEADERS.iter().any(|header| name.value.eq_ignore_ascii_case(header)),
                    };
                    if is_secret && has_text(term) {
                        report_literal(analysis, term, &name.value, diagnostics);
                    }
                }
            }
            continue;
        }
        let Some(Type { kind: TypeKind::Object(fields), .. }) = &tool.params else { continue };
        let (node, site) = caller.site();
        for (key, term) in given {
            let Some(field) = fields.iter().find(|field| field.name == key.value) else { continue };
            check_value(analysis, (node, site), term, &field.ty, &key.value, diagnostics);
        }
    }
}

/// Checks a value for `target`, and its parts.
fn check_value(
    analysis: &Analysis<'_>,
    place: (usize, Site),
    term: &TermDefinition,
    target: &Type,
    name: &str,
    diagnostics: &mut Diagnostics,
) {
    match (&term.kind, &target.kind) {
        (TermKind::Object(given), TypeKind::Object(fields)) => {
            for (key, term) in given {
                if let Some(field) = fields.iter().find(|field| field.name == key.value) {
                    check_value(analysis, place, term, &field.ty, &key.value, diagnostics);
                }
            }
        }
        (TermKind::Object(given), TypeKind::Map(values)) => {
            given.iter().for_each(|(key, term)| check_value(analysis, place, term, values, &key.value, diagnostics));
        }
        (TermKind::List(list), TypeKind::List(items)) => {
            list.iter().for_each(|term| check_value(analysis, place, term, items, name, diagnostics));
        }
        _ if !target.secret => {}
        (TermKind::Literal(_), _) if has_text(term) => report_literal(analysis, term, name, diagnostics),
        (TermKind::Template { template, .. }, _) => {
            let mut paths = template.expressions().flat_map(|expression| &expression.paths);
            let is_secret = match template {
                Template::Mixed(_) => {
                    paths.any(|path| analysis.type_env().type_of_path(place.0, place.1, path).has_secret())
                }
                _ => analysis.type_env().type_of_term(place.0, place.1, term).has_secret(),
            };
            let ty = analysis.type_env().type_of_term(place.0, place.1, term);
            // Nothing is known of a value that no contract describes.
            if !is_secret && !matches!(ty.kind, TypeKind::Any | TypeKind::Never) {
                diagnostics
                    .lint(
                        code::NOT_SECRET,
                        analysis.model.place(&term.span),
                        format!("`{name}` takes a secret, and gets a value that is not marked as one"),
                    )
                    .label("recorded and shown like any other value")
                    .help("mark it where it comes from, as `x-secret: true` in the schema of the input or the result");
            }
        }
        _ => {}
    }
}

/// Whether a term is a literal text.
fn has_text(term: &TermDefinition) -> bool {
    matches!(&term.kind, TermKind::Literal(Value::String(text)) if !text.is_empty())
}

fn report_literal(analysis: &Analysis<'_>, term: &TermDefinition, name: &str, diagnostics: &mut Diagnostics) {
    diagnostics
        .lint(
            code::SECRET_WRITTEN,
            analysis.model.place(&term.span),
            format!("`{name}` takes a secret, and here it is written in the file"),
        )
        .label("everybody who has the file has it")
        .help("give it when the run starts: declare an input with `x-secret: true`");
}

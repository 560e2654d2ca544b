//! Paths lead to a value: a declared input, a key that is set, a field that the value has.

use graph_definition::definition::NodeKind;
use graph_definition::diagnostic::{Diagnostics, code};
use graph_model::path::{Path, Root};
use graph_model::program::{LAST_ERROR, RETRIES};

use crate::analysis::Analysis;
use crate::analysis::reads::{PathRead, Site};
use crate::types::{Type, TypeKind, TypedField};

/// The field that a hook finds in the state in addition to the graph's keys (R148).
const STEP_COUNT: &str = "step_count";

pub(super) fn check(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    analysis.model.reads(&mut |read| match read.path.root {
        Root::Now | Root::Timestamp => {}
        Root::Local => check_local(analysis, &read, diagnostics),
        Root::Visit => check_visit(analysis, &read, diagnostics),
        Root::Inputs => check_input(analysis, &read, diagnostics),
        Root::State => check_key(analysis, &read, diagnostics),
        Root::Result => check_result(analysis, &read, diagnostics),
    });
}

fn check_input(analysis: &Analysis<'_>, read: &PathRead<'_>, diagnostics: &mut Diagnostics) {
    let (Some(name), TypeKind::Object(fields)) = (read.path.segments.first(), &analysis.model.inputs.kind) else {
        return;
    };
    if let Some(field) = analysis.model.input(name) {
        check_parts(analysis, read, &field.ty, 1, diagnostics);
        return;
    }
    let message = format!("the graph has no input `{name}`");
    let diagnostic = diagnostics.error(code::UNKNOWN_INPUT, read.place(analysis.model.definition), message);
    diagnostic.label("not in `config_schema`").suggest(name, fields.iter().map(|field| field.name.as_str()));
    if diagnostic.help.is_none() {
        diagnostic.help(format!(
            "declare it: `config_schema: {{ type: object, properties: {{ {name}: {{ type: string }} }} }}`"
        ));
    }
}

fn check_key(analysis: &Analysis<'_>, read: &PathRead<'_>, diagnostics: &mut Diagnostics) {
    let Some(name) = read.path.segments.first() else { return };
    if let LAST_ERROR | RETRIES = name.as_str() {
        let ty = analysis.type_env().type_of_key(read.node, read.site, name);
        return check_parts(analysis, read, &ty, 1, diagnostics);
    }
    let keys = || analysis.types.keys.iter().map(|key| key.name.as_str());
    if name == "inputs" {
        let (path, place) = (read.path.to_string(), read.place(analysis.model.definition));
        let diagnostic = diagnostics.error(code::UNKNOWN_KEY, place, "inputs are not part of the state");
        let right = path.replacen("state.inputs", "inputs", 1);
        diagnostic.help(format!("write `{right}`")).replace(&path, &right, true);
    } else if let Some(key) = analysis.model.key(name) {
        check_parts(analysis, read, &analysis.types.keys[key].ty, 1, diagnostics);
    } else if analysis.model.definition.is_well_formed {
        let message = format!("nothing sets the state key `{name}`");
        let diagnostic = diagnostics.error(code::UNKNOWN_KEY, read.place(analysis.model.definition), message);
        diagnostic.label("never assigned").suggest(name, keys());
        if analysis.model.input(name).is_some() {
            let path = read.path.to_string();
            diagnostic.help(format!("did you mean `inputs.{name}`?"));
            diagnostic.replace(&path, &path.replacen("state.", "inputs.", 1), false);
        }
    }
}

fn check_result(analysis: &Analysis<'_>, read: &PathRead<'_>, diagnostics: &mut Diagnostics) {
    if let Some(result) = analysis.model.result_at(read.node, read.site) {
        return check_parts(analysis, read, &result, 0, diagnostics);
    }
    let node = &analysis.model.definition.nodes[read.node];
    let why = match (&node.kind, read.site) {
        (_, Site::Params | Site::Item) => "the tool is still to be called with these parameters",
        (_, Site::Payload) => "the question is still to be asked with this payload",
        (_, Site::Until) => "the node is still to wait until this time",
        (_, Site::Over) => "the tool is still to be called for the items of this list",
        (kind, _) => kind.no_result(),
    };
    let help = match (&node.kind, read.site) {
        (NodeKind::Foreach(_), Site::Next) => "name a state key with `collect`, and look at that",
        _ => "assign what you need to a state key in the node that calls the tool, and read it from `state`",
    };
    diagnostics
        .error(code::NO_RESULT, read.place(analysis.model.definition), format!("there is no `result` here: {why}"))
        .help(help);
}

/// Checks a path into an item of a foreach. The data that a hook receives has no known parts except the state.
fn check_local(analysis: &Analysis<'_>, read: &PathRead<'_>, diagnostics: &mut Diagnostics) {
    if let (Site::Hook, [root, key, ..]) = (read.site, read.path.segments.as_slice())
        && root == Root::State.name()
        && ![STEP_COUNT, LAST_ERROR, RETRIES].contains(&key.as_str())
        && analysis.model.key(key).is_none()
        && analysis.model.definition.is_well_formed
    {
        let keys = analysis.types.keys.iter().map(|key| key.name.as_str()).chain([STEP_COUNT]);
        let message = format!("nothing sets the state key `{key}`");
        let diagnostic = diagnostics.error(code::UNKNOWN_KEY, read.place(analysis.model.definition), message);
        diagnostic.label("never assigned").suggest(key, keys);
        return;
    }
    let whole = Path { root: Root::Local, segments: read.path.segments.iter().take(1).cloned().collect() };
    check_parts(analysis, read, &analysis.type_env().type_of_path(read.node, read.site, &whole), 1, diagnostics);
}

fn check_visit(analysis: &Analysis<'_>, read: &PathRead<'_>, diagnostics: &mut Diagnostics) {
    let place = || read.place(analysis.model.definition);
    if read.site == Site::Output {
        diagnostics
            .error(code::NO_VISIT, place(), "there is no `visit` here: a return node is visited once")
            .help("assign what you need to a state key in a node before, and read it from `state`");
        return;
    }
    match read.path.segments.first().map(String::as_str) {
        Some("number") => check_parts(analysis, read, &Type::of(TypeKind::Integer), 1, diagnostics),
        Some("branch") if analysis.flow.is_reached(read.node) && !analysis.flow.branches().is_inside(read.node) => {
            let node = &analysis.model.definition.nodes[read.node].name;
            diagnostics
                .error(
                    code::NO_VISIT,
                    place(),
                    format!("there is no `visit.branch` here: node `{node}` is in no branch"),
                )
                .help("read it in the nodes between a fan-out and its join");
        }
        Some("branch") => {
            let ty = analysis.type_env().type_of_path(read.node, read.site, read.path);
            check_parts(analysis, read, &ty.not_null(), 1, diagnostics);
        }
        Some("previous") => match analysis.model.previous_at(read.node) {
            Ok(previous) => check_parts(analysis, read, &previous, 1, diagnostics),
            Err(why) => {
                diagnostics
                    .error(code::NO_VISIT, place(), format!("there is no `visit.previous` here: {why}"))
                    .help("assign what you need to a state key, and read it from `state`");
            }
        },
        Some(part) => {
            diagnostics
                .error(code::UNKNOWN_FIELD_OF_VALUE, place(), format!("`visit` has no field `{part}`"))
                .note("its fields are `number`, `previous`, `branch`")
                .suggest(part, ["number", "previous", "branch"]);
        }
        None => {
            diagnostics
                .error(code::UNKNOWN_FIELD_OF_VALUE, place(), "`visit` alone is not a value")
                .help("write `visit.number`, `visit.previous` or `visit.branch`");
        }
    }
}

/// Follows the parts of a path from `ty`, the type of the value at its first `done` parts.
fn check_parts(analysis: &Analysis<'_>, read: &PathRead<'_>, ty: &Type, done: usize, diagnostics: &mut Diagnostics) {
    let mut ty = ty.clone();
    let mut way = read.path.root.name().to_owned();
    let mut parts = read.path.segments.iter().enumerate();
    if read.path.root == Root::Local {
        way = parts.next().map(|(_, name)| name.clone()).unwrap_or_default();
    }
    for (at, part) in parts {
        if at >= done {
            match ty.step(part) {
                Ok(next) => ty = next,
                Err(nothing) => {
                    let message = match nothing.fields.as_slice() {
                        [] if matches!(ty.kind, TypeKind::List(_)) => {
                            format!("`{way}` is {ty}, and `{part}` is not an index")
                        }
                        [] => format!("`{way}` is {ty} and has no parts"),
                        _ => format!("`{way}` has no field `{part}`"),
                    };
                    let fields = nothing.fields.clone();
                    let inside = fields_with(&ty, part)
                        .iter()
                        .map(|field| format!("`{way}.{field}.{part}`"))
                        .collect::<Vec<_>>();
                    let diagnostic =
                        diagnostics.error(code::UNKNOWN_FIELD_OF_VALUE, read.place(analysis.model.definition), message);
                    diagnostic.suggest(part, fields.iter().copied());
                    if !inside.is_empty() {
                        diagnostic.help(format!("did you mean {}?", inside.join(" or ")));
                    }
                    if diagnostic.help.is_none() && !fields.is_empty() {
                        let list: Vec<String> = fields.iter().take(12).map(|field| format!("`{field}`")).collect();
                        diagnostic.note(format!("its fields are {}", list.join(", ")));
                    }
                    return;
                }
            }
        }
        way = format!("{way}.{part}");
    }
}

/// Returns the fields of an object that are objects with a field of this name.
fn fields_with<'t>(ty: &'t Type, part: &str) -> Vec<&'t str> {
    let TypeKind::Object(fields) = &ty.kind else { return Vec::new() };
    let has = |field: &&TypedField| matches!(&field.ty.kind, TypeKind::Object(inner) if inner.iter().any(|one| one.name == part));
    fields.iter().filter(has).map(|field| field.name.as_str()).collect()
}

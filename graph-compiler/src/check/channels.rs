//! The writes to a channel are values that it can combine, and reveal no secret.

mod functions;

use graph_definition::definition::{ChannelDefinition, NodeDefinition, NodeKind, RouteDefinition, Spanned};
use graph_definition::diagnostic::{Diagnostics, code};
use graph_definition::hash::HashMap;
use graph_definition::source::Span;
use graph_model::name::StateKey;
use graph_model::reducer::Reducer;

use crate::analysis::Analysis;
use crate::analysis::reads::Site;
use crate::types::{Type, TypeKind};

pub(super) fn check(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    check_resets(analysis, diagnostics);
    functions::check(analysis, diagnostics);
    check_orders(analysis, diagnostics);
    if analysis.model.definition.channels.is_empty() {
        return;
    }
    // For each channel, the first value that decides whether it holds numbers or texts.
    let mut kinds: HashMap<usize, (Span, Type)> = HashMap::default();
    for write in writes(analysis) {
        if check_write(analysis, &write, diagnostics) {
            check_kind(analysis, &write, &mut kinds, diagnostics);
            check_secrets(analysis, &write, diagnostics);
        }
    }
}

/// Checks that there are branches if elements are to be put in their order.
fn check_orders(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    let definition = analysis.model.definition;
    let begins = |node: &NodeDefinition| matches!(node.next(), RouteDefinition::All(_) | RouteDefinition::Each(_));
    if definition.nodes.iter().any(begins) {
        return;
    }
    for ChannelDefinition { key, by_branch, .. } in &definition.channels {
        if let Some(order) = by_branch {
            let message = format!("`order` of channel `{key}` does nothing: the graph has no branches");
            diagnostics
                .error(code::INERT_FIELD, analysis.model.place(order), message)
                .help("the elements are in the order of the steps: remove it");
        }
    }
}

/// Reports channels that no node writes.
pub(super) fn check_idle(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    let definition = analysis.model.definition;
    let is_channel =
        |written: &Spanned<StateKey>| definition.channels.iter().any(|channel| channel.key.value == written.value);
    let is_shared = |key: &StateKey| analysis.model.items.shared.contains(key.as_str());
    for ChannelDefinition { key, .. } in definition.channels.iter().filter(|channel| !is_shared(&channel.key.value)) {
        if !definition.nodes.iter().any(|node| node.written_or_shared().any(|written| written.value == key.value)) {
            diagnostics
                .lint(code::IDLE_CHANNEL, analysis.model.place(&key.span), format!("no node writes to channel `{key}`"))
                .suggest(
                    key.value.as_str(),
                    definition
                        .nodes
                        .iter()
                        .flat_map(|node| node.written())
                        .filter(|written| !is_channel(written))
                        .map(|key| key.value.as_str()),
                );
        }
    }
}

/// A value that a channel receives.
struct ChannelWrite<'d> {
    key: usize,
    channel: &'d ChannelDefinition,
    span: Span,
    ty: Type,
    writer: Writer,
    /// Whether it is null in every run.
    is_null: bool,
}

/// The origin of a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Writer {
    /// The first value in `config.state`.
    State,
    /// An assignment.
    Assign,
    /// The list that a foreach collects.
    Collect,
}

/// Returns the first values of channels, and all writes to them, in the order of the file.
fn writes<'d>(analysis: &Analysis<'d>) -> Vec<ChannelWrite<'d>> {
    let model = &analysis.model;
    let mut writes = Vec::new();
    let mut add = |name: &str, span: &Span, (writer, is_null), ty: &dyn Fn() -> Type| {
        if let Some(key) = model.key(name)
            && let Some(channel) = model.keys[key].channel
        {
            writes.push(ChannelWrite { key, channel, span: span.clone(), ty: ty(), writer, is_null });
        }
    };
    for (key, value) in &model.definition.state {
        add(key.value.as_str(), &value.span, (Writer::State, value.value.is_null()), &|| Type::of_value(&value.value));
    }
    for (at, node) in model.definition.nodes.iter().enumerate() {
        for (index, assignment) in node.assign().iter().enumerate() {
            let ty = || analysis.type_env().type_of_term(at, Site::Assign(index), &assignment.value);
            let is_null = analysis.type_env().is_nothing(at, Site::Assign(index), &assignment.value);
            add(assignment.key.value.as_str(), &assignment.value.span, (Writer::Assign, is_null), &ty);
        }
        if let NodeKind::Foreach(each) = &node.kind
            && let Some(key) = &each.collect
        {
            add(key.value.as_str(), &key.span, (Writer::Collect, false), &|| model.collected(at));
        }
    }
    writes
}

/// Checks that a channel can combine a value; returns whether it can.
fn check_write(analysis: &Analysis<'_>, write: &ChannelWrite<'_>, diagnostics: &mut Diagnostics) -> bool {
    let ChannelWrite { channel, span, ty, writer, .. } = write;
    let (name, reducer) = (&channel.key, &channel.reducer.value);
    let place = analysis.model.place(span);
    if *reducer == Reducer::Last {
        return false;
    }
    if let Some(function) = &analysis.model.keys[write.key].function {
        return functions::check_write(analysis, write, function, diagnostics);
    }
    let is_list = |ty: &Type| match &ty.kind {
        TypeKind::List(element) => {
            matches!(element.kind, TypeKind::Object(_) | TypeKind::Map(_) | TypeKind::Any | TypeKind::Never)
        }
        _ => false,
    };
    let is_state = *writer == Writer::State;
    let fits = match (reducer, &ty.kind) {
        (_, TypeKind::Never) => !is_state,
        (_, TypeKind::Any) => true,
        (Reducer::Append, kind) => !is_state || matches!(kind, TypeKind::List(_)),
        (Reducer::Extend | Reducer::Union, kind) => matches!(kind, TypeKind::List(_)),
        (Reducer::Sum, kind) => matches!(kind, TypeKind::Integer | TypeKind::Number),
        (Reducer::Max | Reducer::Min, kind) => {
            matches!(kind, TypeKind::Integer | TypeKind::Number | TypeKind::String | TypeKind::Enum(_))
        }
        (Reducer::Merge, kind) => matches!(kind, TypeKind::Object(_) | TypeKind::Map(_)),
        (Reducer::Messages { .. }, TypeKind::Object(_) | TypeKind::Map(_)) => !is_state,
        (Reducer::Messages { .. }, _) => is_list(ty),
        (Reducer::Last | Reducer::Program { .. }, _) => true,
    };
    let plain = ty.clone().not_null();
    if !fits {
        let wanted = match reducer {
            Reducer::Messages { .. } if is_state => "a list of objects",
            reducer if is_state && reducer.makes_list() => "a list",
            reducer => reducer.takes(),
        };
        let found = if ty.kind == TypeKind::Never { "null".to_owned() } else { plain.to_string() };
        let message = match is_state {
            true => format!("the first value of channel `{name}` is {found}, and `{reducer}` begins with {wanted}"),
            false => format!("channel `{name}` receives {found}, and `{reducer}` takes {wanted}"),
        };
        let diagnostic = diagnostics.error(code::BAD_WRITE, place, message);
        diagnostic.label(format!("this is {found}"));
        diagnostic.related(analysis.model.place(&channel.reducer.span), "the channel");
        match (reducer, &ty.kind) {
            (Reducer::Extend | Reducer::Union, _) if !is_state => {
                diagnostic.help("write a list, as `[\"${…}\"]`, or make it a channel that takes one element: `append`")
            }
            _ => diagnostic.help(format!("write {wanted}, or give the channel another reducer")),
        };
        return false;
    }
    // A key that is not set, and a part that no value has, are reported by rules of their own.
    let is_unknown = ty.kind == TypeKind::Any || (ty.kind == TypeKind::Never && !write.is_null);
    if ty.nullable && !is_unknown && !is_state {
        let found = if write.is_null { "is null" } else { "may be null" };
        let message = format!("what channel `{name}` receives {found}, and `{reducer}` takes {}", reducer.takes());
        diagnostics
            .error(code::BAD_WRITE, place, message)
            .label(if write.is_null { "null".to_owned() } else { format!("{plain}, or null") })
            .related(analysis.model.place(&channel.reducer.span), "the channel")
            .help(
                "give it a fallback: `${result.field || inputs.field}`, or write it only on a path where it is there",
            );
        return false;
    }
    if *writer == Writer::Collect && *reducer == Reducer::Append {
        diagnostics
            .lint(
                code::NESTED_LIST,
                place,
                format!("the list that is collected here becomes one element of channel `{name}`"),
            )
            .related(analysis.model.place(&channel.reducer.span), "the channel")
            .help(format!("to add each result as an element, write `{name}: extend`"));
    }
    true
}

/// Reports a number and a text in a channel that compares its values.
fn check_kind(
    analysis: &Analysis<'_>,
    write: &ChannelWrite<'_>,
    kinds: &mut HashMap<usize, (Span, Type)>,
    diagnostics: &mut Diagnostics,
) {
    let ChannelWrite { key, channel, span, ty, .. } = write;
    if !matches!(channel.reducer.value, Reducer::Max | Reducer::Min) || ty.kind == TypeKind::Any {
        return;
    }
    let is_number = |ty: &Type| matches!(ty.kind, TypeKind::Integer | TypeKind::Number);
    let (first, known) = kinds.entry(*key).or_insert_with(|| (span.clone(), ty.clone()));
    if is_number(known) == is_number(ty) {
        return;
    }
    let (plain, other) = (ty.clone().not_null(), known.clone().not_null());
    let message =
        format!("channel `{}` receives {plain} here and {other} elsewhere, which cannot be compared", channel.key);
    diagnostics
        .error(code::BAD_WRITE, analysis.model.place(span), message)
        .label(format!("this is {plain}"))
        .related(analysis.model.place(first), format!("this is {other}"))
        .help("write numbers or texts to it, not both");
}

/// Reports secrets that a channel compares or adds.
fn check_secrets(analysis: &Analysis<'_>, write: &ChannelWrite<'_>, diagnostics: &mut Diagnostics) {
    let ChannelWrite { channel, span, ty, .. } = write;
    let reducer = &channel.reducer.value;
    let identity = |ty: &Type, id: &str| ty.step(id).is_ok_and(|field| field.has_secret());
    let is_revealed = match reducer {
        // It is not known what a function of the program does with a value.
        Reducer::Union | Reducer::Sum | Reducer::Max | Reducer::Min | Reducer::Program { .. } => ty.has_secret(),
        Reducer::Messages { id } => match &ty.kind {
            TypeKind::List(element) => identity(element, id),
            _ => identity(ty, id),
        },
        // Whether a value of an unknown type has a field is a secret too.
        Reducer::Merge => ty.secret,
        Reducer::Append | Reducer::Extend | Reducer::Last => false,
    };
    if !is_revealed {
        return;
    }
    let what = if reducer.makes_list() { "compares" } else { "combines" };
    diagnostics
        .error(
            code::SECRET_COMBINED,
            analysis.model.place(span),
            format!("channel `{}` receives a secret, and `{reducer}` {what} it with others", channel.key),
        )
        .label("is or contains a secret")
        .related(analysis.model.place(&channel.reducer.span), "the channel")
        .help("collect secrets with `append` or `extend`, or let a tool combine them");
}

/// Reports keys in `reset` that have no first value to return to.
fn check_resets(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    let model = &analysis.model;
    for node in &model.definition.nodes {
        for key in node.reset() {
            let known = model.key(key.value.as_str()).map(|key| &model.keys[key]);
            let place = model.place(&key.span);
            match known {
                Some(known) if known.channel.is_some() && known.initial.is_some() => {}
                Some(known) if known.channel.is_some() => {
                    diagnostics
                        .error(
                            code::BAD_RESET,
                            place,
                            format!("node `{}` resets `state.{key}`, which has no first value", node.name),
                        )
                        .help(format!("give it one in `config.state`: `{key}: …`"));
                }
                _ => {
                    let message = format!("node `{}` resets `{key}`, which is no channel", node.name);
                    let diagnostic = diagnostics.error(code::BAD_RESET, place, message);
                    let channels = model.definition.channels.iter().map(|channel| channel.key.value.as_str());
                    diagnostic.suggest(key.value.as_str(), channels);
                    if diagnostic.help.is_none() {
                        diagnostic.help("declare it in `channels`, or write its value in `assign`");
                    }
                }
            }
        }
    }
}

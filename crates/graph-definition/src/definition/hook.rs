//! Hooks: reactions to the events of a run.

use graph_model::condition::Condition;
use graph_model::program::{CONTROL, Event, ItemType, UNSUPPORTED_CONTROLS, Verb};
use graph_model::value::Value;
use graph_signing::is_role;

use super::action::{self, CallDefinition};
use super::condition::{self, TestDefinition};
use super::node::MOST_SIGNERS;
use super::reader::{DefinitionReader, Fields, Spanned};
use super::template::{self, NamesInScope, TermDefinition, TermKind};
use crate::diagnostic::{SourcePlace, code};
use crate::source::Span;
use crate::tree::{TreeKey, TreeNode, YamlTree};

/// A hook as its author wrote it (R143).
#[derive(Debug)]
pub struct HookDefinition {
    /// Its place in the file.
    pub span: Span,
    /// Its name, for messages.
    pub id: Option<String>,
    /// The event that triggers it.
    pub event: Event,
    /// The condition on the event's data.
    pub condition: Condition<TestDefinition>,
    /// The condition as it was written, for the runtime to read.
    pub written: Option<Value>,
    /// Its reaction.
    pub reaction: Reaction,
}

/// The reaction of a hook to its event.
#[derive(Debug)]
pub enum Reaction {
    /// Steers the run: an object with `action` in it (R137, R151).
    Steer(TermDefinition),
    /// Makes a call whose answer may steer the run.
    Call(CallDefinition),
}

/// The fields of a hook.
pub const FIELDS: [&str; 6] = ["event", "condition", "action", "id", "description", "comment"];

/// The names of the controls.
pub const CONTROLS: [&str; 6] = ["retry", "fail", "abort", "continue", "suspend", "escalate"];

/// The controls that can be written as a field of an action, each with the fields that are allowed beside it.
pub const INLINE: [(&str, &[&str]); 6] = [
    ("retry", &["max_retries"]),
    ("fail", &["error"]),
    ("abort", &[]),
    ("continue", &["additional_steps"]),
    ("suspend", &["reason", "additional_steps"]),
    ("escalate", &["role", "count", "reason", "additional_steps"]),
];

/// Reads `config.hooks`.
pub(super) fn parse_all(reader: &mut DefinitionReader<'_>, tree: &YamlTree) -> Vec<HookDefinition> {
    reader.list(tree, "`hooks`").iter().filter_map(|tree| parse(reader, tree)).collect()
}

fn parse(reader: &mut DefinitionReader<'_>, tree: &YamlTree) -> Option<HookDefinition> {
    let fields = reader.map(tree, "a hook")?;
    reader.only(&fields, "a hook", &FIELDS, &["layer"]);
    if let Some(key) = fields.key("layer") {
        let place = SourcePlace::new(reader.source, key.span.clone());
        reader
            .diagnostics
            .error(code::BAD_HOOK, place, "the layer of a hook is not for its author to choose")
            .note("the hooks of a graph come before those of the runtime")
            .help("remove it");
    }
    let id = reader.optional_text(&fields, "id");
    if let Some(id) = &id {
        reader.is_template(&id.value, &id.span, "`id` of a hook", "write a name for messages");
    }
    let id = id.map(|text| text.value);
    reader.optional_text(&fields, "description");
    let event = event(reader, &fields);
    let action = reader.required(&fields, "a hook", "action");
    let event = event?;
    let (condition, written) = match fields.get("condition") {
        Some(tree) => (
            condition::parse(reader, tree, NamesInScope::Hook(event)).unwrap_or(Condition::Any(Vec::new())),
            Some(tree.to_value()),
        ),
        None => (Condition::Always, None),
    };
    let reaction = reaction(reader, action?, event)?;
    Some(HookDefinition { span: tree.span.clone(), id, event, condition, written, reaction })
}

fn event(reader: &mut DefinitionReader<'_>, fields: &Fields<'_>) -> Option<Event> {
    let text = reader.required_text(fields, "a hook", "event")?;
    let event = Event::named(&text.value);
    if event.is_none() {
        let place = SourcePlace::new(reader.source, text.span);
        let names = Event::TABLE.map(|(_, name, _)| name);
        reader
            .diagnostics
            .error(code::UNKNOWN_EVENT, place, format!("`{}` is not an event of a run", text.value))
            .note(format!("the events are {}", names.map(|name| format!("`{name}`")).join(", ")))
            .suggest(&text.value, names);
    }
    event
}

fn reaction(reader: &mut DefinitionReader<'_>, tree: &YamlTree, event: Event) -> Option<Reaction> {
    if let TreeNode::Map(entries) = &tree.node {
        let has = |name: &str| entries.iter().any(|(key, _)| key.name == name);
        let inline: Vec<_> =
            entries.iter().filter(|(key, _)| INLINE.iter().any(|(name, _)| *name == key.name)).collect();
        let refused = entries.iter().find(|(key, _)| UNSUPPORTED_CONTROLS.contains(&key.name.as_str()));
        if let Some((key, _)) = refused.filter(|_| !has("item_id") && !has("primary")) {
            unsupported(reader, &key.name, &key.span);
            return None;
        }
        if !has("item_id") && !has("primary") && !inline.is_empty() {
            let fields = reader.map(tree, "`action`")?;
            return steer(reader, &fields, &inline, event).map(Reaction::Steer);
        }
    }
    let call = action::parse(reader, tree, NamesInScope::Hook(event))?;
    if call.computed().is_some() {
        let place = SourcePlace::new(reader.source, call.item.span.clone());
        reader
            .diagnostics
            .error(code::NOT_SUPPORTED, place, "a hook's `item_id` with a template is not supported by this version")
            .note("nodes may compute the ids of what they call");
        return None;
    }
    let is_control = call.verb == Verb::Execute
        && call.item_type == ItemType::Tool
        && call.id().is_some_and(|id| id.as_str() == CONTROL);
    if is_control { control(reader, call, event).map(Reaction::Steer) } else { Some(Reaction::Call(call)) }
}

/// Reads `{ retry: true, max_retries: 3 }` and the like (R137).
fn steer(
    reader: &mut DefinitionReader<'_>,
    fields: &Fields<'_>,
    inline: &[&(TreeKey, YamlTree)],
    event: Event,
) -> Option<TermDefinition> {
    let (key, value) = inline.first()?;
    if let Some((second, _)) = inline.get(1) {
        let (place, first) =
            (SourcePlace::new(reader.source, second.span.clone()), SourcePlace::new(reader.source, key.span.clone()));
        reader
            .diagnostics
            .error(code::BAD_HOOK, place, format!("a hook does `{}` or `{}`, not both", key.name, second.name))
            .related(first, "the other");
        return None;
    }
    if value.node != TreeNode::Boolean(true) {
        let place = SourcePlace::new(reader.source, value.span.clone());
        reader
            .diagnostics
            .error(code::SHAPE, place, format!("`{}` of a hook is `true`, not {}", key.name, value.describe()))
            .help("remove a hook that is to do nothing");
        return None;
    }
    let (_, beside) = INLINE.iter().find(|(name, _)| *name == key.name)?;
    let known = [&[key.name.as_str()], *beside].concat();
    reader.only(fields, &format!("`{}` of a hook", key.name), &known, &[]);
    does_something(reader, &key.name, &key.span, event);
    let mut params = vec![(
        Spanned { value: "action".to_owned(), span: key.span.clone() },
        action::literal(&key.span, key.name.as_str()),
    )];
    for (key, tree) in fields.entries.iter().filter(|(key, _)| beside.contains(&key.name.as_str())) {
        let term = template::parse(reader, tree, NamesInScope::Hook(event));
        params.push((Spanned { value: key.name.clone(), span: key.span.clone() }, term));
    }
    bounds(reader, &params);
    Some(TermDefinition { span: fields.span.clone(), kind: TermKind::Object(params) })
}

/// Reads the parameters of the control tool: `action` says how the run is steered (R152).
fn control(reader: &mut DefinitionReader<'_>, call: CallDefinition, event: Event) -> Option<TermDefinition> {
    let TermKind::Object(params) = &call.params.kind else { return None };
    let Some((_, term)) = params.iter().find(|(key, _)| key.value == "action") else {
        let place = SourcePlace::new(reader.source, call.item.span.clone());
        reader
            .diagnostics
            .error(code::MISSING_FIELD, place, format!("`{CONTROL}` needs the parameter `action`"))
            .note(format!("it is {}", CONTROLS.map(|name| format!("`{name}`")).join(", ")));
        return None;
    };
    match &term.kind {
        TermKind::Literal(Value::String(name)) if CONTROLS.contains(&name.as_str()) => {
            does_something(reader, name, &term.span, event);
        }
        TermKind::Literal(Value::String(name)) if UNSUPPORTED_CONTROLS.contains(&name.as_str()) => {
            unsupported(reader, name, &term.span);
            return None;
        }
        TermKind::Unreadable => return None,
        kind => {
            let place = SourcePlace::new(reader.source, term.span.clone());
            let wrong = if let TermKind::Literal(Value::String(name)) = kind { name.as_str() } else { "" };
            reader
                .diagnostics
                .error(code::BAD_HOOK, place, format!("`action` of `{CONTROL}` is the name of a control"))
                .note(format!("the controls are {}", CONTROLS.map(|name| format!("`{name}`")).join(", ")))
                .suggest(wrong, CONTROLS);
            return None;
        }
    }
    bounds(reader, params);
    Some(call.params)
}

/// Reports a control that the runtime does not support: a run that continues where it should be held back does harm.
fn unsupported(reader: &mut DefinitionReader<'_>, control: &str, span: &Span) {
    let place = SourcePlace::new(reader.source, span.clone());
    reader
        .diagnostics
        .error(code::NOT_SUPPORTED, place, format!("the control `{control}` is not supported by this version"))
        .note(format!("the controls are {}", CONTROLS.map(|name| format!("`{name}`")).join(", ")))
        .help("lead around the node with `next`, or end the run with `abort`");
}

/// Whether a control has an effect on an event: only a failure is retried, only a limit is raised, and a run that has
/// ended cannot be ended again.
pub fn is_useful(control: &str, event: Event) -> bool {
    event_of(control).map_or(event != Event::GraphCompleted, |needed| needed == event)
}

/// Returns the event that a control is limited to, if it is limited to one.
fn event_of(control: &str) -> Option<Event> {
    match control {
        "retry" => Some(Event::Error),
        "continue" => Some(Event::Limit),
        _ => None,
    }
}

/// Reports a control that has no effect on the event.
fn does_something(reader: &mut DefinitionReader<'_>, control: &str, span: &Span, event: Event) {
    if is_useful(control, event) {
        return;
    }
    let place = SourcePlace::new(reader.source, span.clone());
    let message = format!("`{control}` does nothing about `{}`", event.name());
    let diagnostic = reader.diagnostics.error(code::BAD_HOOK, place, message);
    match event_of(control) {
        Some(needed) => diagnostic.help(format!("write `event: {}`", needed.name())),
        None => diagnostic.help("the run has ended then; `event: after_step` receives each step before that"),
    };
}

/// Returns the smallest and the largest value of a numeric parameter of a control.
pub fn bounds_of(parameter: &str) -> Option<(i64, i64)> {
    match parameter {
        "max_retries" => Some((1, 100)),
        "additional_steps" => Some((1, i64::from(u32::MAX))),
        "count" => Some((1, i64::from(MOST_SIGNERS))),
        _ => None,
    }
}

/// Checks the role of the people who release a run. Without a role, anybody whose key is trusted may release it.
fn check_role(reader: &mut DefinitionReader<'_>, term: &TermDefinition) {
    let help = "write the role of the people who release the run: `role: refunds`";
    let place = SourcePlace::new(reader.source, term.span.clone());
    match &term.kind {
        TermKind::Literal(Value::String(role)) if is_role(role) => {}
        TermKind::Literal(Value::Null) | TermKind::Unreadable => {}
        TermKind::Template { .. } => {
            let message = "`role` is not computed: its value would choose who releases the run";
            reader.diagnostics.error(code::TEMPLATE_AS_TEXT, place, message).help(help);
        }
        _ => {
            reader.diagnostics.error(code::BAD_NAME, place, "this is not a role").help(help);
        }
    }
}

/// Reports parameters of a control that are out of bounds.
fn bounds(reader: &mut DefinitionReader<'_>, params: &[(Spanned<String>, TermDefinition)]) {
    for (key, term) in params {
        if key.value == "role" {
            check_role(reader, term);
        }
        let Some((least, most)) = bounds_of(&key.value) else { continue };
        let value = match &term.kind {
            TermKind::Literal(value) => value,
            TermKind::List(_) | TermKind::Object(_) => {
                let place = SourcePlace::new(reader.source, term.span.clone());
                let message = format!("`{}` is an integer from {least} to {most}", key.value);
                reader.diagnostics.error(code::SHAPE, place, message);
                continue;
            }
            TermKind::Template { .. } | TermKind::Unreadable => continue,
        };
        if !value.as_i64().is_some_and(|number| (least..=most).contains(&number)) {
            let place = SourcePlace::new(reader.source, term.span.clone());
            let message = format!("`{}` is an integer from {least} to {most}, not {value}", key.value);
            reader.diagnostics.error(code::SHAPE, place, message);
        }
    }
}

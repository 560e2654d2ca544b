//! Nodes that wait, and nodes that run graphs that wait.

use std::collections::BTreeSet;

use graph_definition::definition::{
    AskDefinition, Conduct, InterruptsDefinition, NodeDefinition, SchemaKind, SignalDefinition, Spanned,
    TermDefinition, TermKind, ValueSchema, WaitDefinition,
};
use graph_definition::diagnostic::{Diagnostic, Diagnostics, code, nearest};
use graph_model::program::{CountByWord, Executor, THREAD_DIRECTIVE};
use graph_model::timestamp;
use graph_model::value::Value;

use crate::analysis::Analysis;
use crate::analysis::reads::Site;
use crate::types::TypeKind;

pub(super) fn check(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    for (at, node) in analysis.model.definition.nodes.iter().enumerate() {
        if let Some(wait) = node.wait() {
            if let Some(until) = &wait.until {
                check_until(analysis, at, node, until, diagnostics);
            }
            match &wait.ask {
                Some(ask) => check_words(analysis, ask, diagnostics),
                None => check_signals(analysis, node, wait, diagnostics),
            }
            check_timeout(analysis, node, wait, diagnostics);
        }
        if let Some(interrupts) = node.interrupts() {
            check_interrupts(analysis, node, interrupts, diagnostics);
        }
    }
}

/// Checks what the tool of a node may ask.
fn check_interrupts(
    analysis: &Analysis<'_>,
    node: &NodeDefinition,
    interrupts: &InterruptsDefinition,
    diagnostics: &mut Diagnostics,
) {
    check_words(analysis, &interrupts.ask, diagnostics);
    let place = || analysis.model.place(&interrupts.span);
    let tool = node.call().map(|call| (call.id(), analysis.model.tool(call)));
    let problem = tool.and_then(|(id, tool)| match (id, tool.by) {
        (None, _) => Some((
            "does not know which tool it calls, and the tool that asked is called again",
            "name the tool, and choose between several with a route: `next: { by: …, to: … }`",
        )),
        (_, Executor::Graph) => {
            Some(("runs a graph, which asks by itself", "remove `interrupts`: the nodes of that graph say who answers"))
        }
        (_, Executor::Items) => Some(("acts on items, which asks nothing", "remove `interrupts`")),
        (Some(id), Executor::Program) if id.as_str() == THREAD_DIRECTIVE => {
            Some(("begins an agent's thread, which asks nothing", "remove `interrupts`"))
        }
        (_, Executor::Program) => None,
    });
    if let Some((problem, help)) = problem {
        let message = format!("node `{}` {problem}", node.name);
        diagnostics.error(code::BAD_WAIT, place(), message).help(help);
    }
    let contract = node.call().and_then(|call| analysis.model.tool(call).contract);
    if contract.is_some_and(|contract| contract.by_runtime()) {
        let message = format!("`interrupts` does nothing: the tool of node `{}` asks nothing", node.name);
        diagnostics
            .lint(code::NO_EFFECT, place(), message)
            .help("remove it, or ask before the call, in a node of `type: interrupt`");
    }
    if node.conduct().is_some_and(Conduct::caches) {
        let message = format!("the result of node `{}` is cached, and depends on what people answer", node.name);
        diagnostics.error(code::BAD_WAIT, place(), message).help("remove `cache_result`, or `interrupts`");
    }
    match &interrupts.on_timeout {
        None if interrupts.has_time => {
            let message = format!("node `{}` does not say what follows if nobody answers its tool in time", node.name);
            diagnostics
                .error(code::BAD_WAIT, place(), message)
                .help("name the node that follows then: `on_timeout: name`");
        }
        Some(on_timeout) if !interrupts.has_time => {
            let message = format!("the questions of node `{}` have no time that they wait for", node.name);
            diagnostics
                .error(code::BAD_WAIT, analysis.model.place(&on_timeout.span), message)
                .help("say how long they wait, `timeout: 2d`, or remove `on_timeout`");
        }
        _ => {}
    }
}

/// Reports signals that no wait receives.
pub(super) fn check_unreceived(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    let definition = analysis.model.definition;
    let waited = || definition.nodes.iter().filter_map(NodeDefinition::wait).flat_map(|wait| &wait.signals);
    let shared = || definition.nodes.iter().flat_map(NodeDefinition::shared_signals);
    for signal in &definition.signals {
        let name = signal.name.value.as_str();
        if definition.is_well_formed && !waited().chain(shared()).any(|one| one.value == name) {
            diagnostics
                .lint(
                    code::UNRECEIVED_SIGNAL,
                    analysis.model.place(&signal.name.span),
                    format!("no wait receives the signal `{name}`"),
                )
                .help(format!("receive it in a wait, `signals: [{name}]`, or remove it"));
        }
    }
}

/// Checks that a wait receives signals of the graph, and that it leads somewhere if none comes.
fn check_signals(analysis: &Analysis<'_>, node: &NodeDefinition, wait: &WaitDefinition, diagnostics: &mut Diagnostics) {
    let whose = format!("the wait `{}`", node.name);
    for name in &wait.signals {
        let is_known = signal_named(analysis, &name.value).is_some();
        // A signal whose declaration cannot be read may be meant.
        let signals = analysis.model.definition.signals.iter().map(|signal| signal.name.value.as_str());
        let is_slip = || nearest(&name.value, signals).is_some();
        if !is_known && (analysis.model.definition.is_well_formed || is_slip()) {
            let message = format!("{whose} receives `{name}`, which is no signal of the graph");
            note_unknown(analysis, name, diagnostics.error(code::BAD_WAIT, analysis.model.place(&name.span), message));
        }
    }
}

/// Returns the signal of the graph with a name.
pub(super) fn signal_named<'a>(analysis: &Analysis<'a>, name: &str) -> Option<&'a SignalDefinition> {
    analysis.model.definition.signals.iter().find(|signal| signal.name.value.as_str() == name)
}

/// Says how to declare a signal that the graph does not have.
pub(super) fn note_unknown(analysis: &Analysis<'_>, name: &Spanned<String>, diagnostic: &mut Diagnostic) {
    diagnostic.label("not in `config.signals`");
    let signals = &analysis.model.definition.signals;
    diagnostic.suggest(&name.value, signals.iter().map(|signal| signal.name.value.as_str()));
    if diagnostic.help.is_none() {
        let schema = "{ type: object, properties: { cents: { type: integer } } }";
        diagnostic.help(format!("declare it: `signals: {{ {name}: {schema} }}`"));
    }
}

/// Checks that a wait leads somewhere if nothing comes in time.
fn check_timeout(analysis: &Analysis<'_>, node: &NodeDefinition, wait: &WaitDefinition, diagnostics: &mut Diagnostics) {
    let whose = format!("the {} `{}`", wait.type_name(), node.name);
    match &wait.on_timeout {
        None if wait.has_time && wait.listens => {
            let awaited = if wait.ask.is_some() { "answer" } else { "signal" };
            let message = format!("{whose} does not say what follows if no {awaited} comes in time");
            diagnostics
                .error(code::BAD_WAIT, analysis.model.place(&node.name.span), message)
                .help("name the node that follows then: `on_timeout: name`");
        }
        Some(on_timeout) if !wait.listens => {
            let message = format!("{whose} receives no signal: when the time has come, it continues along `next`");
            diagnostics
                .error(code::BAD_WAIT, analysis.model.place(&on_timeout.span), message)
                .help("remove `on_timeout`, or name signals: `signals: [name]`");
        }
        Some(on_timeout) if !wait.has_time => {
            let message = format!("{whose} has no time that it waits for");
            diagnostics
                .error(code::BAD_WAIT, analysis.model.place(&on_timeout.span), message)
                .help("say how long it waits, `timeout: 2d`, or remove `on_timeout`");
        }
        _ => {}
    }
}

/// Returns the places in an answer that have exactly the words of `count`, and are secrets or are not: the answer itself, or fields that
/// it needs.
fn places_of_words(ask: &AskDefinition, are_secret: bool) -> Vec<Option<&str>> {
    let words: BTreeSet<&str> = ask.count.words.iter().map(|(word, _)| word.value.as_str()).collect();
    let has_words = |schema: &ValueSchema| match &schema.kind {
        SchemaKind::Enum(all) => {
            let is_secret = ask.schema.secret || schema.secret;
            let all: BTreeSet<&str> = all.iter().map(String::as_str).collect();
            !schema.nullable && is_secret == are_secret && all == words
        }
        _ => false,
    };
    match &ask.schema.kind {
        SchemaKind::Enum(_) if has_words(&ask.schema) => vec![None],
        SchemaKind::Object(fields) => {
            let fields = fields.iter().filter(|field| field.required && has_words(&field.schema));
            fields.map(|field| Some(field.name.value.as_str())).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns how many people sign an answer by its word, if `count` names words.
pub(super) fn by_word(ask: &AskDefinition) -> Option<CountByWord> {
    let field = places_of_words(ask, false).first().copied().filter(|_| !ask.count.words.is_empty())?;
    let words = ask.count.words.iter().map(|(word, number)| (word.value.clone(), *number)).collect();
    Some(CountByWord { field: field.map(str::to_owned), words })
}

/// Checks that the words of `count` are those of one part of the answer.
fn check_words(analysis: &Analysis<'_>, ask: &AskDefinition, diagnostics: &mut Diagnostics) {
    let (Some((first, _)), places) = (ask.count.words.first(), places_of_words(ask, false)) else { return };
    let problem = match places.len() {
        1 => return,
        0 if !places_of_words(ask, true).is_empty() => "the part of the answer with these words is a secret",
        0 => "no needed field of `result_schema` has exactly these words as its `enum`",
        _ => "several fields of `result_schema` have these words",
    };
    let words: Vec<String> = ask.count.words.iter().map(|(word, _)| format!("`{}`", word.value)).collect();
    let message = format!("`count` names the words {}, and {problem}", words.join(", "));
    diagnostics.error(code::BAD_WAIT, analysis.model.place(&first.span), message).help(
        "name each word that decides, as `decision: { enum: [approve, refuse] }` with `required: [decision]` has them",
    );
}

/// Reports interrupts that wait forever if nobody answers.
pub(super) fn check_endless(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    for node in &analysis.model.definition.nodes {
        if node.wait().is_some_and(|wait| wait.ask.is_some() && !wait.has_time && wait.on_timeout.is_none()) {
            let message = format!("the interrupt `{}` waits forever if nobody answers", node.name);
            diagnostics
                .lint(code::ENDLESS_QUESTION, analysis.model.place(&node.name.span), message)
                .help("say how long it waits and what follows then: `timeout: 3d` and `on_timeout: name`");
        }
        if let Some(interrupts) = node.interrupts().filter(|one| !one.has_time && one.on_timeout.is_none()) {
            let message = format!("the questions of node `{}` wait forever if nobody answers", node.name);
            diagnostics
                .lint(code::ENDLESS_QUESTION, analysis.model.place(&interrupts.span), message)
                .help("say how long they wait and what follows then: `timeout: 3d` and `on_timeout: name`");
        }
    }
}

/// Reports questions to people with a role that fewer owners of keys have than must sign.
pub(super) fn check_roles(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    // A program may know its people otherwise than by the keys of the tree.
    let roles = &analysis.model.items.roles;
    if roles.is_empty() {
        return;
    }
    for ask in analysis.model.definition.nodes.iter().filter_map(NodeDefinition::ask) {
        let Some(role) = &ask.role else { continue };
        let owners = roles.get(&role.value).copied().unwrap_or_default();
        if owners < ask.count.most as usize {
            let people =
                |count: usize| if count == 1 { "1 person has".to_owned() } else { format!("{count} people have") };
            let message = format!("{} the role `{}`, and {} must sign", people(owners), role.value, ask.count.most);
            diagnostics
                .lint(code::RARE_ROLE, analysis.model.place(&role.span), message)
                .note("owners of keys below `graphs/keys` that are trusted, and that another trusted key gave the role")
                .help(format!("give it to more people, `graph keys trust --role {}`, or ask for fewer", role.value));
        }
    }
}

/// Checks that `until` is a time.
fn check_until(
    analysis: &Analysis<'_>,
    at: usize,
    node: &NodeDefinition,
    until: &TermDefinition,
    diagnostics: &mut Diagnostics,
) {
    let whose = format!("`until` of the wait `{}`", node.name);
    let place = analysis.model.place(&until.span);
    if let TermKind::Literal(Value::String(text)) = &until.kind {
        if timestamp::with_offset(text).is_none() {
            diagnostics
                .error(code::BAD_WAIT, place, format!("{whose} is not a time: `{text}`"))
                .help("write a date and a time with an offset from UTC, as `2026-11-21T20:00:00+01:00`");
        }
        return;
    }
    let ty = analysis.type_env().type_of_term(at, Site::Until, until);
    let shown = ty.not_null();
    match shown.kind {
        TypeKind::Any | TypeKind::Never | TypeKind::String | TypeKind::Enum(_)
            if analysis.type_env().may_be_null(at, Site::Until, until) =>
        {
            diagnostics
                .error(code::BAD_WAIT, place, format!("{whose} may be null"))
                .help("name a fallback: `${state.due || inputs.latest}`");
        }
        TypeKind::Any | TypeKind::Never | TypeKind::String | TypeKind::Enum(_) => {}
        _ => {
            diagnostics
                .error(code::BAD_WAIT, place, format!("{whose} is {shown}, and not a time"))
                .help("a time is a text: a date and a time with an offset, as `2026-11-21T20:00:00+01:00`");
        }
    }
}

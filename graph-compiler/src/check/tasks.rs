//! Tasks and threads that a call starts exist, and can begin.
//!
//! A literal `target` of `rye/orchestrate/spawn`, and a literal directive of a thread, name what is called. So the rules for a call of it
//! hold: this one says that it exists and that its limits are within its contract, and the rules for parameters, permissions and depth
//! look at it as at the item of a node.

use graph_definition::definition::agent::shown_spend;
use graph_definition::definition::{CallDefinition, TermDefinition, TermKind};
use graph_definition::diagnostic::{Diagnostics, code, nearest};
use graph_model::name::ItemId;
use graph_model::program::THREAD_DIRECTIVE;
use graph_model::value::Value;

use crate::analysis::Analysis;
use crate::analysis::calls::{ADDED, OF_THREADS, ORCHESTRATOR, StartedTask, TaskCall};
use crate::items::{TaskItem, TaskName, TaskTarget};

pub(super) fn check(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    for (_, call) in analysis.model.calls() {
        if call.id().is_some_and(|id| id.as_str() == ORCHESTRATOR) && analysis.model.is_of_runtime(call) {
            check_operation(analysis, call, diagnostics);
        }
        let Some(task) = analysis.model.task(call) else { continue };
        check_thread(analysis, call, diagnostics);
        check_directive(analysis, &task, diagnostics);
        let target = task.name.as_ref().and_then(|name| analysis.model.started(name));
        if let Some(name) = &task.name {
            check_target(analysis, name, target, diagnostics);
        }
        check_limits(analysis, &task, target, diagnostics);
    }
}

/// Reports parameters of a thread that are slips: beside `inputs` they are no inputs of the agent, and nothing reads them.
fn check_thread(analysis: &Analysis<'_>, call: &CallDefinition, diagnostics: &mut Diagnostics) {
    let TermKind::Object(params) = &call.params.kind else { return };
    let has = |name: &str| params.iter().any(|(key, _)| key.value == name);
    if call.id().is_none_or(|id| id.as_str() != THREAD_DIRECTIVE) || !has("inputs") {
        return;
    }
    let is_known = |name: &str| OF_THREADS.contains(&name) || name.starts_with(ADDED);
    for (key, _) in params.iter().filter(|(key, _)| !is_known(&key.value)) {
        if nearest(&key.value, OF_THREADS).is_some() {
            let message = format!("{} takes no parameter `{}`", call.shown(), key.value);
            diagnostics
                .error(code::UNKNOWN_PARAMETER, analysis.model.place(&key.span), message)
                .label("unknown parameter")
                .suggest(&key.value, OF_THREADS);
            return;
        }
    }
    if !has("directive_name") && !has("directive") {
        let message = format!("{} needs the parameter `directive_name`", call.shown());
        diagnostics.error(code::MISSING_PARAMETER, analysis.model.place(&call.item.span), message);
    }
}

/// Reports a value that cannot be the name of a directive, where a thread names one. The schema of the tool takes it for an input of the agent.
fn check_directive(analysis: &Analysis<'_>, task: &TaskCall<'_>, diagnostics: &mut Diagnostics) {
    let Some((term, parameter @ ("directive_name" | "directive"))) = task.named else { return };
    let is_no_text = match &term.kind {
        TermKind::Literal(value) => !value.is_string(),
        TermKind::List(_) | TermKind::Object(_) => true,
        TermKind::Template { .. } | TermKind::Unreadable => false,
    };
    if is_no_text {
        let message = format!("`{parameter}` is always refused: it is the id of a directive");
        let diagnostic = diagnostics.lint(code::REFUSED_LITERAL, analysis.model.place(&term.span), message);
        diagnostic.help("write an id, as `work/research`");
    }
}

/// Reports that nothing can be started with a name.
fn check_target(
    analysis: &Analysis<'_>,
    task: &StartedTask<'_>,
    target: Option<&TaskTarget>,
    diagnostics: &mut Diagnostics,
) {
    let place = analysis.model.place(task.span);
    let Some(name) = &task.name else {
        if let Err(error) = ItemId::new(task.text) {
            let message = format!("`{}` is no id of a graph, an agent or a tool: {error}", task.text.escape_debug());
            diagnostics.lint(code::NO_TASK, place, message).help("write an id, as `shop/research`");
        }
        return;
    };
    match (name, target) {
        (_, None | Some(TaskTarget::Open | TaskTarget::Found(_))) => {}
        (TaskName::Item(id), Some(TaskTarget::Missing(near))) => {
            let message = format!("there is no graph, agent, program or tool `{id}`");
            let diagnostic = diagnostics.lint(code::NO_TASK, place, message);
            diagnostic.label("nothing in the tree has this id");
            match near {
                Some(near) => diagnostic.suggest(id.as_str(), [near.as_str()]),
                None => diagnostic.help(
                    "write the graph or its contract; if the program has it from elsewhere, set this lint to `allow`",
                ),
            };
        }
        (TaskName::Directive(directive), Some(TaskTarget::Missing(near))) => {
            let message = format!("no agent of the tree follows the directive `{directive}`");
            let diagnostic = diagnostics.lint(code::NO_TASK, place, message);
            diagnostic.label("no contract names it in `config.directive`");
            match near {
                Some(near) => diagnostic.suggest(directive, [near.as_str()]),
                None => diagnostic.help("write the contract of an agent that follows it, or correct the name"),
            };
        }
        (TaskName::Item(id), Some(TaskTarget::Refused(reason))) => {
            let message = format!("`{id}` cannot be a task: {reason}");
            diagnostics.lint(code::NO_TASK, place, message).help("call it by a node");
        }
        (TaskName::Directive(directive), Some(TaskTarget::Refused(reason))) => {
            let message = format!("the directive `{directive}` cannot be a thread: {reason}");
            diagnostics.lint(code::NO_TASK, place, message).help("call the agent by a node, with its id");
        }
    }
}

/// Checks the literal limits of a task: that there are such, and that they only narrow those of its contract.
fn check_limits(
    analysis: &Analysis<'_>,
    task: &TaskCall<'_>,
    target: Option<&TaskTarget>,
    diagnostics: &mut Diagnostics,
) {
    let Some((parameter, TermDefinition { kind: TermKind::Object(limits), .. })) = task.limits else { return };
    for (key, term) in limits {
        let TermKind::Literal(value) = &term.kind else { continue };
        let name = key.value.as_str();
        let limit = match limit_of(name, value) {
            _ if value.is_null() => continue,
            Ok(limit) => limit,
            Err(expected) => {
                let message = format!("`{parameter}.{name}` is always refused: {expected}");
                let help = "write `turns`, `tokens` or `spend`, with a number above 0";
                diagnostics.lint(code::REFUSED_LITERAL, analysis.model.place(&term.span), message).help(help);
                continue;
            }
        };
        let Some(TaskTarget::Found(item)) = target else { continue };
        check_limit(analysis, (parameter, name, limit), term, item, diagnostics);
    }
}

/// Reports a limit of a task that its contract makes useless.
fn check_limit(
    analysis: &Analysis<'_>,
    (parameter, name, limit): (&str, &str, u64),
    term: &TermDefinition,
    item: &TaskItem,
    diagnostics: &mut Diagnostics,
) {
    let place = analysis.model.place(&term.span);
    let Some(limits) = &item.limits else {
        let message = format!("`{parameter}.{name}` does nothing: `{}` is no agent", item.id);
        diagnostics
            .lint(code::NO_EFFECT, place, message)
            .help("remove it: it narrows a limit in the contract of an agent");
        return;
    };
    let (contract, show): (Option<u64>, fn(u64) -> String) = match name {
        "turns" => (Some(u64::from(limits.turns)), |number| number.to_string()),
        "tokens" => (limits.tokens, |number| number.to_string()),
        _ => (limits.spend, shown_spend),
    };
    if let Some(contract) = contract.filter(|contract| limit > *contract) {
        let message = format!("`{parameter}.{name}` allows the agent `{}` more than its contract does", item.id);
        diagnostics
            .error(code::WIDENED_LIMIT, place, message)
            .label(format!("{}, and the contract says {}", show(limit), show(contract)))
            .help("write less, or raise the limit in the contract of the agent");
    }
}

/// Reads a limit as the runtime does, in millionths of a US dollar if it is an amount.
///
/// # Errors
///
/// Returns what the runtime says that the limit should be.
fn limit_of(name: &str, value: &Value) -> Result<u64, &'static str> {
    match name {
        "turns" | "tokens" => value.as_u64().filter(|number| *number > 0).ok_or("the limit is a whole number above 0"),
        "spend" => {
            let dollars = match value {
                Value::String(text) => text.strip_suffix(" USD").unwrap_or(text).parse::<f64>().ok(),
                _ => value.as_f64(),
            };
            let dollars = dollars.filter(|dollars| (0.000_001..=1e9).contains(dollars));
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is in this range")]
            let micros = dollars.map(|dollars| (dollars * 1e6).round() as u64);
            micros.ok_or("the limit is a number of US dollars above 0")
        }
        _ => Err("there is no such limit: there are `turns`, `tokens` and `spend`"),
    }
}

/// The operations on threads, each with the parameters that it needs.
const OPERATIONS: [(&str, &[&str]); 10] = [
    ("wait_threads", &[]),
    ("get_status", &["thread_id"]),
    ("list_children", &[]),
    ("list_active", &[]),
    ("cancel_thread", &["thread_id"]),
    ("kill_thread", &["thread_id"]),
    ("resume_thread", &["thread_id", "message"]),
    ("read_transcript", &["thread_id"]),
    ("get_chain", &["thread_id"]),
    ("chain_search", &["thread_id", "query"]),
];

/// Checks an operation on threads that is a literal, and that it has the parameters that it needs.
fn check_operation(analysis: &Analysis<'_>, call: &CallDefinition, diagnostics: &mut Diagnostics) {
    let TermKind::Object(params) = &call.params.kind else { return };
    let is_null = |term: &TermDefinition| matches!(&term.kind, TermKind::Literal(Value::Null));
    let given = |name: &str| params.iter().find(|(key, term)| key.value == name && !is_null(term));
    let Some((_, operation)) = given("operation") else {
        let message = format!("{} needs the parameter `operation`", call.shown());
        let names: Vec<String> = OPERATIONS.iter().map(|(name, _)| format!("`{name}`")).collect();
        diagnostics
            .lint(code::REFUSED_LITERAL, analysis.model.place(&call.item.span), message)
            .help(format!("write one of {}", names.join(", ")));
        return;
    };
    let TermKind::Literal(Value::String(name)) = &operation.kind else { return };
    let Some((_, needed)) = OPERATIONS.iter().find(|(known, _)| known == name) else {
        let message = format!("{} always refuses this: `{}` is no operation", call.shown(), name.escape_debug());
        let diagnostic = diagnostics.lint(code::REFUSED_LITERAL, analysis.model.place(&operation.span), message);
        diagnostic.suggest(name, OPERATIONS.iter().map(|(known, _)| *known));
        if diagnostic.help.is_none() {
            let names: Vec<String> = OPERATIONS.iter().map(|(name, _)| format!("`{name}`")).collect();
            diagnostic.help(format!("write one of {}", names.join(", ")));
        }
        return;
    };
    for parameter in needed.iter().filter(|parameter| given(parameter).is_none()) {
        let message = format!("{} always refuses this: `{name}` needs `{parameter}`", call.shown());
        diagnostics
            .lint(code::REFUSED_LITERAL, analysis.model.place(&operation.span), message)
            .help(format!("write `{parameter}` into `params`"));
    }
}

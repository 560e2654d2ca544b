//! The settings for a node's calls have an effect.

use std::time::Duration;

use graph_definition::definition::{Conduct, NodeDefinition};
use graph_definition::diagnostic::{Diagnostics, code};
use graph_model::duration::shown;
use graph_model::program::Executor;

use crate::analysis::Analysis;

pub(super) fn check(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    let limit = analysis.model.definition.settings.timeout_ms;
    for node in &analysis.model.definition.nodes {
        let Some(conduct) = node.conduct() else { continue };
        // One attempt means no retries, not even those that the engine makes by default.
        let is_only_one = conduct.retry.as_ref().is_some_and(|retry| retry.attempts == 1);
        for field in conduct.pauses.iter().filter(|_| is_only_one) {
            diagnostics
                .lint(
                    code::NO_EFFECT,
                    analysis.model.place(&field.span),
                    format!("`{field}` does nothing: the first attempt of node `{}` is its last", node.name),
                )
                .help("`attempts` counts the first one too: write 2 or more, or `retry: 1` alone");
        }
        limits(analysis, node, conduct, diagnostics);
        repeated_run(analysis, node, conduct, diagnostics);
        let written = conduct.timeout_ms.as_ref().zip(limit);
        if let Some((timeout, limit)) = written.filter(|(timeout, limit)| timeout.value > *limit) {
            let duration = |milliseconds| shown(Duration::from_millis(milliseconds));
            diagnostics
                .lint(
                    code::NO_EFFECT,
                    analysis.model.place(&timeout.span),
                    format!("`timeout` of node `{}` is longer than a run may take", node.name),
                )
                .label(format!("{}, and `limits.timeout` is {}", duration(timeout.value), duration(limit)))
                .help("write less, or raise `limits.timeout`");
        }
    }
}

/// Reports waits that last longer than the deadline of a run.
pub(super) fn check_waits(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    let Some(limit) = analysis.model.definition.settings.deadline_ms else { return };
    for node in &analysis.model.definition.nodes {
        let Some(timeout) = node.waits_ms().filter(|timeout| *timeout > limit) else {
            continue;
        };
        let duration = |milliseconds| shown(Duration::from_millis(milliseconds));
        diagnostics
            .lint(
                code::NO_EFFECT,
                analysis.model.place(&node.name.span),
                format!("`timeout` of node `{}` is longer than a run may take", node.name),
            )
            .label(format!("{}, and `limits.deadline` is {}", duration(timeout), duration(limit)))
            .help("write less, or raise `limits.deadline`");
    }
}

/// Reports a `retry` that runs a graph again which makes calls that must not be made twice.
fn repeated_run(analysis: &Analysis<'_>, node: &NodeDefinition, conduct: &Conduct, diagnostics: &mut Diagnostics) {
    let repeats = conduct.retry.as_ref().is_some_and(|retry| retry.attempts > 1);
    let graph = node.call().and_then(|call| Some((call.id()?, analysis.model.tool(call).graph?)));
    let Some((id, graph)) = graph.filter(|_| repeats) else { return };
    // A graph whose own call is guarded is one call of this kind by itself.
    let Some(once) = graph.once.first().or(Some(id).filter(|_| graph.is_guarded)) else { return };
    diagnostics
        .lint(
            code::REPEATED_RUN,
            analysis.model.place(&node.name.span),
            format!(
                "`retry` of node `{}` runs `{id}` again, and with it calls of `{once}`, which must not be made twice",
                node.name
            ),
        )
        .label("each attempt is a new run, whose calls have other idempotency keys")
        .help("write `retry` at the nodes inside that may be repeated, and remove it here");
}

/// Reports limits of the runs that a node begins, if it begins none, or the graph allows no more.
fn limits(analysis: &Analysis<'_>, node: &NodeDefinition, conduct: &Conduct, diagnostics: &mut Diagnostics) {
    let settings = &analysis.model.definition.settings;
    let tool = node.call().map(|call| (call, analysis.model.tool(call)));
    let may_run = tool.is_some_and(|(call, tool)| call.id().is_none() || tool.by == Executor::Graph);
    for field in &conduct.limit_fields {
        let (own, whole) = match field.value.as_str() {
            "depth" => (conduct.limits.depth, Some(settings.depth)),
            "steps" => (conduct.limits.steps, settings.steps),
            // The limits of an agent.
            _ if tool.is_some_and(|(call, tool)| {
                call.id().is_none() || tool.graph.is_some_and(|graph| graph.limits.is_some())
            }) =>
            {
                continue;
            }
            _ => {
                let message = format!("`{field}` does nothing: node `{}` calls no agent", node.name);
                diagnostics
                    .lint(code::NO_EFFECT, analysis.model.place(&field.span), message)
                    .help("it narrows a limit in the contract of an agent");
                continue;
            }
        };
        let place = analysis.model.place(&field.span);
        if !may_run {
            diagnostics
                .lint(code::NO_EFFECT, place, format!("`{field}` does nothing: node `{}` runs no graph", node.name))
                .help("the limits of a node are those of the graphs that it runs");
        } else if let Some((own, whole)) = own.zip(whole).filter(|(own, whole)| own > whole) {
            diagnostics
                .lint(code::NO_EFFECT, place, format!("`{field}` of node `{}` allows more than the graph", node.name))
                .label(format!("{own}, and `limits.{field}` is {whole}"))
                .help(format!("write less, or raise `limits.{field}`"));
        }
    }
}

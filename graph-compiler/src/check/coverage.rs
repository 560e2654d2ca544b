//! The edges of a node leave no case open, each of them can be followed, and comparisons can have either result.

use graph_definition::definition::{EdgeDefinition, EdgeList, RouteDefinition, SchemaRule, TestDefinition};
use graph_definition::diagnostic::{Diagnostics, code};
use graph_definition::source::Span;
use graph_model::condition::Condition;
use graph_model::operator::Operator;
use graph_model::path::Path;
use graph_model::program::OnNoMatch;
use graph_model::value::Value;

use super::late;
use crate::analysis::Analysis;
use crate::analysis::coverage::domain::Decision;
use crate::analysis::coverage::{Coverage, Table, Verdicts};

pub(super) fn check(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    for (at, node) in analysis.model.definition.nodes.iter().enumerate().filter(|&(at, _)| analysis.flow.is_reached(at))
    {
        let RouteDefinition::First(list) = node.next() else { continue };
        let Some(Coverage { table, verdicts, followed }) = &analysis.coverage[at] else { continue };
        if !same(analysis, table, verdicts, diagnostics) && !shadowed(analysis, at, list, verdicts, diagnostics) {
            if !late::is_beyond(analysis, at, followed.first_open) {
                uncovered(analysis, at, list, table, verdicts, diagnostics);
            }
            needless(analysis, at, list, verdicts, diagnostics);
        }
    }
}

/// Reports comparisons that always have the same result; returns whether there was one.
fn same(analysis: &Analysis<'_>, table: &Table<'_>, verdicts: &Verdicts, diagnostics: &mut Diagnostics) -> bool {
    let mut found = false;
    for (test, at, outcomes) in &table.tests {
        let (path, domain, cases) = &table.paths[*at];
        let Some(&first) = outcomes.first() else { continue };
        if !domain.is_known() || first == Decision::Fails || outcomes.iter().any(|outcome| *outcome != first) {
            continue;
        }
        found = true;
        let shown = cases.iter().map(|case| domain.show(case));
        let mut shown: Vec<String> = shown.take(4).collect();
        shown.dedup();
        let always = if first == Decision::Holds { "always holds" } else { "never holds" };
        let diagnostic = diagnostics.lint(
            code::ALWAYS_SAME,
            analysis.model.place(&test.span),
            format!("this comparison of `{path}` {always}"),
        );
        diagnostic.label(format!("`{path}` is {}", shown.join(" or ")));
        if let Some(rule) = refused_by(analysis, test) {
            diagnostic.related(analysis.model.place(&rule.span), format!("`{path}` is declared with `{rule}`"));
        } else if table.number_of_visits() == Some(*at) {
            diagnostic.note("no edge leads back to the node, so a run visits it once");
        }
        diagnostic.help("remove it, or compare with what the value can be");
    }
    let listed = table.tests.iter().filter(|(test, ..)| test.operator == Operator::In && !found);
    for (test, ..) in listed {
        let list = test.value.value.as_array().into_iter().flatten();
        let refused = list.filter_map(|value| Some((value, broken_rule(analysis, &test.path.value, value)?))).next();
        let Some((value, rule)) = refused else { continue };
        let path = &test.path.value;
        diagnostics
            .lint(code::ALWAYS_SAME, analysis.model.place(&test.value.span), format!("`{path}` is never `{value}`"))
            .related(analysis.model.place(&rule.span), format!("it is declared with `{rule}`"))
            .help("take it out of the list, or write what the value can be");
    }
    if found {
        return true;
    }
    // Comparisons that can have either result, in a condition that never holds.
    for (edge, condition) in verdicts.edges.iter().zip(&table.conditions) {
        let mut first = None;
        condition.tests(&mut |&test| first = first.or(Some(test)));
        let (false, Some(first)) = (edge.can_hold, first) else { continue };
        let mut last = first;
        condition.tests(&mut |&test| last = test);
        let (one, two) = (&table.tests[first].0.span, &table.tests[last].0.span);
        diagnostics
            .lint(
                code::NEVER_FOLLOWED,
                analysis.model.place(one),
                "this condition never holds: its comparisons contradict each other",
            )
            .related(analysis.model.place(two), "the other")
            .help("remove the edge, or correct the comparison that is not meant");
        found = true;
    }
    found
}

/// Returns the rule of an input that excludes the value in a comparison for equality.
fn refused_by<'d>(analysis: &Analysis<'d>, test: &TestDefinition) -> Option<&'d SchemaRule> {
    match test.operator {
        Operator::Eq | Operator::Ne => broken_rule(analysis, &test.path.value, &test.value.value),
        _ => None,
    }
}

/// Returns a rule of the input at a path that a value breaks.
fn broken_rule<'d>(analysis: &Analysis<'d>, path: &Path, value: &Value) -> Option<&'d SchemaRule> {
    analysis.model.schema_of_input(path)?.rules.iter().find(|rule| !rule.holds(value))
}

/// Reports edges that are never followed, because an edge before them is followed whenever their conditions hold.
fn shadowed(
    analysis: &Analysis<'_>,
    node: usize,
    list: &EdgeList,
    verdicts: &Verdicts,
    diagnostics: &mut Diagnostics,
) -> bool {
    let name = &analysis.model.definition.nodes[node].name;
    let mut found = false;
    for (at, edge) in verdicts.edges.iter().enumerate() {
        let is_behind_default = list.edges[..at].iter().any(|edge| matches!(edge.when, Condition::Always));
        if edge.is_followed || !edge.can_hold || is_behind_default {
            continue;
        }
        found = true;
        let is_default = matches!(list.edges[at].when, Condition::Always);
        let (code, message) = if is_default {
            (
                code::NEEDLESS_DEFAULT,
                format!("this edge of node `{name}` is never followed: the edges before it cover every case"),
            )
        } else {
            (code::NEVER_FOLLOWED, format!("this edge of node `{name}` is never followed"))
        };
        let diagnostic = diagnostics.lint(code, analysis.model.place(&list.edges[at].span), message);
        if !is_default {
            for &instead in edge.instead.iter().take(2) {
                diagnostic.related(
                    analysis.model.place(&list.edges[instead].span),
                    "this one is followed where its condition holds",
                );
            }
            diagnostic.help("move it in front, or remove it");
        }
    }
    found
}

/// Reports the first edge without which the run would still go to the same node.
fn needless(analysis: &Analysis<'_>, node: usize, list: &EdgeList, verdicts: &Verdicts, diagnostics: &mut Diagnostics) {
    let mut edges = list.edges.iter().zip(&verdicts.edges).enumerate();
    // An edge with a description of its own is meant to appear in the history of a run.
    let found =
        edges.find(|(_, (edge, verdict))| verdict.is_followed && !verdict.matters && edge.description.is_none());
    let Some((at, (edge, _))) = found else { return };
    let target = |edge: &EdgeDefinition| edge.to.as_ref().map(|to| to.value.clone());
    let name = &analysis.model.definition.nodes[node].name;
    let leads = target(edge).map_or_else(|| "the run ends".to_owned(), |to| format!("the run goes to `{to}`"));
    let diagnostic = diagnostics.lint(
        code::SAME_TARGET,
        analysis.model.place(&edge.span),
        format!("this edge of node `{name}` makes no difference: {leads} without it too"),
    );
    if let Some(other) = list.edges[at + 1..].iter().find(|other| target(other) == target(edge)) {
        diagnostic.related(analysis.model.place(&other.span), "this one leads there too");
    }
    diagnostic.help("remove it, or let one of the two lead elsewhere");
}

/// Reports a case in which no edge is followed, so that the run ends.
fn uncovered(
    analysis: &Analysis<'_>,
    node: usize,
    list: &EdgeList,
    table: &Table<'_>,
    verdicts: &Verdicts,
    diagnostics: &mut Diagnostics,
) {
    // The author has said how the run ends: an edge without a target ends it, and so does a failure.
    if analysis.model.definition.settings.on_no_match == OnNoMatch::Fail {
        return;
    }
    let Some(open) = &verdicts.open else { return };
    let name = &analysis.model.definition.nodes[node].name;
    let shown = table
        .paths
        .iter()
        .zip(open)
        .map(|((path, domain, cases), &case)| format!("`{path}` is {}", domain.show(&cases[case])));
    let shown: Vec<String> = shown.collect();
    let is_finite = table.paths.iter().all(|(_, domain, _)| domain.is_finite());
    let code = if is_finite { code::UNCOVERED } else { code::OPEN_CASE };
    let span = first_line(analysis, list);
    // In a branch, only the branch ends.
    let what = if analysis.flow.branches().is_inside(node) { "branch" } else { "run" };
    diagnostics
        .lint(
            code,
            analysis.model.place(&span),
            format!("the edges of node `{name}` do not cover every case: the {what} ends there"),
        )
        .label(format!("no edge is followed where {}", shown.join(" and ")))
        .help(format!("add a last edge without `when`; one without `to` ends the {what}: `- {{}}`"));
}

/// Returns the place of a list of edges: its first line, since the whole list is too much to point at.
fn first_line(analysis: &Analysis<'_>, list: &EdgeList) -> Span {
    let text = &analysis.model.definition.source().text[list.span.clone()];
    list.span.start..list.span.start + text.find('\n').unwrap_or(text.len())
}

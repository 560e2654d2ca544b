//! Conditions on `visit.number` look at visits that the limits allow.

use graph_definition::definition::{EdgeList, RouteDefinition, TestDefinition};
use graph_definition::diagnostic::{Diagnostics, code};
use graph_model::program::Event;

use crate::analysis::Analysis;
use crate::analysis::coverage::domain::Decision;
use crate::analysis::coverage::{Coverage, Table, is_number_of_visits};

/// The visits of a node that the limits allow.
struct AllowedVisits {
    /// `limits.visits`.
    visits: Option<u64>,
    /// `max_steps`, if no hook raises it.
    steps: Option<u64>,
    /// The steps up to the first visit, and from one to the next.
    rounds: (u64, u64),
}

/// A limit that does not allow as many visits of a node as a condition needs.
struct ExceededLimit {
    name: &'static str,
    visits: u64,
    /// The text to write instead of the present one, and that one.
    change: String,
}

impl AllowedVisits {
    fn of(analysis: &Analysis<'_>, node: usize) -> Self {
        let model = &analysis.model;
        let settings = &model.definition.settings;
        let is_raised = model.definition.hooks.iter().any(|hook| matches!(hook.event, Event::Limit));
        // The visits of a run from an entry count from one too.
        let from: Vec<usize> = model.first().into_iter().chain(model.entries.iter().flatten().copied()).collect();
        Self {
            visits: settings.visits.map(u64::from),
            steps: (!is_raised).then_some(u64::from(settings.max_steps)),
            rounds: analysis.control_flow.steps_of_rounds(&from, node),
        }
    }

    /// Returns the limit that does not allow so many visits.
    fn exceeded_by(&self, visits: u64) -> Option<ExceededLimit> {
        let (before, round) = self.rounds;
        let steps = before.saturating_add(visits.saturating_sub(1).saturating_mul(round));
        let (name, change) = match (self.visits, self.steps) {
            (Some(most), _) if visits > most => {
                ("limits.visits", format!("limits: {{ visits: {visits} }}` in place of {most}"))
            }
            (_, Some(most)) if steps > most => ("max_steps", format!("max_steps: {steps}` in place of {most}")),
            _ => return None,
        };
        Some(ExceededLimit { name, visits, change })
    }
}

/// Reports edges that need a later visit of their node than the limits allow, and comparisons that only such a visit decides otherwise.
pub(super) fn check(analysis: &Analysis<'_>, diagnostics: &mut Diagnostics) {
    for (at, node) in analysis.model.definition.nodes.iter().enumerate() {
        let (RouteDefinition::First(list), Some(coverage)) = (node.next(), &analysis.coverage[at]) else { continue };
        if coverage.table.number_of_visits().is_none() {
            continue;
        }
        let allowed = AllowedVisits::of(analysis, at);
        if !edges(analysis, (at, &allowed), list, coverage, diagnostics) {
            comparisons(analysis, (at, &allowed), &coverage.table, diagnostics);
        }
    }
}

/// Whether a limit does not allow a node so many visits.
pub(super) fn is_beyond(analysis: &Analysis<'_>, node: usize, visits: u64) -> bool {
    visits > 1
        && analysis.model.start.is_some()
        && analysis.model.is_whole()
        && AllowedVisits::of(analysis, node).exceeded_by(visits).is_some()
}

/// Reports edges that are followed on no visit that the limits allow; returns whether there was one.
fn edges(
    analysis: &Analysis<'_>,
    (node, allowed): (usize, &AllowedVisits),
    list: &EdgeList,
    coverage: &Coverage<'_>,
    diagnostics: &mut Diagnostics,
) -> bool {
    let name = &analysis.model.definition.nodes[node].name;
    let followed = coverage.followed.can_follow.iter().zip(&coverage.followed.first_visit);
    // The comparison with the number of the visit that an edge, or one before it, has.
    let mut last: Option<&TestDefinition> = None;
    let mut found = false;
    for (edge, (can, first)) in list.edges.iter().zip(followed) {
        let mut own = None;
        edge.when.tests(&mut |test| own = own.or(is_number_of_visits(&test.path.value).then_some(test)));
        last = own.or(last);
        let Some(test) = last.filter(|_| *can && *first > 1) else { continue };
        let Some(limit) = allowed.exceeded_by(*first) else { continue };
        let ExceededLimit { name: limit, visits, change } = limit;
        let message = format!("this edge is never followed: `{limit}` does not allow {visits} visits of `{name}`");
        let diagnostic = match own {
            Some(_) => diagnostics
                .lint(code::NEVER_FOLLOWED, analysis.model.place(&test.path.span), message)
                .label("open only on a later visit"),
            None => diagnostics
                .lint(code::NEVER_FOLLOWED, analysis.model.place(&edge.span), message)
                .related(analysis.model.place(&test.span), "this one is followed on each visit before"),
        };
        diagnostic.help(format!("compare with a lower number, or allow for it: `{change}"));
        found = true;
    }
    found
}

/// Reports comparisons that have the same result on each visit that the limits allow.
fn comparisons(
    analysis: &Analysis<'_>,
    (node, allowed): (usize, &AllowedVisits),
    table: &Table<'_>,
    diagnostics: &mut Diagnostics,
) {
    let Some(number) = table.number_of_visits() else { return };
    let (path, domain, cases) = &table.paths[number];
    let limits: Vec<Option<ExceededLimit>> = cases.iter().map(|case| allowed.exceeded_by(domain.least(case))).collect();
    for (test, _, outcomes) in table.tests.iter().filter(|(_, at, _)| *at == number) {
        let mut within = outcomes.iter().zip(&limits).filter(|(_, limit)| limit.is_none()).map(|(outcome, _)| *outcome);
        let Some(first) = within.next() else { continue };
        // Where no visit differs, another rule says so.
        let differing = outcomes.iter().zip(&limits).find(|(outcome, _)| **outcome != first);
        let Some((_, Some(limit))) = differing.filter(|_| within.all(|outcome| outcome == first)) else { continue };
        let always = if first == Decision::Holds { "always holds" } else { "never holds" };
        let ExceededLimit { name: limit, visits, change } = limit;
        let name = &analysis.model.definition.nodes[node].name;
        diagnostics
            .lint(code::ALWAYS_SAME, analysis.model.place(&test.span), format!("this comparison of `{path}` {always}"))
            .label(format!("`{limit}` does not allow {visits} visits of `{name}`"))
            .help(format!("compare with a lower number, or allow for it: `{change}"));
    }
}

//! `--budget`: the upper bounds for a run of each graph.

use graph_compiler::graph::{Budget, StepBound};
use serde_json::{Value, json};

use super::findings::Findings;

/// Returns a table with one line for each graph.
pub(super) fn table(findings: &Findings) -> String {
    const HEAD: [&str; 6] = ["graph", "shortest", "steps", "calls", "at a time", "graphs deep"];
    let mut rows = vec![HEAD.map(str::to_owned)];
    rows.extend(findings.budgets.iter().map(|(graph, budget)| row(graph, budget.as_ref())));
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths: Vec<usize> = (0..HEAD.len()).map(width).collect();
    let line = |row: &[String; 6]| {
        let cells = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let lines: Vec<String> = rows.iter().map(line).collect();
    lines.join("\n")
}

fn row(graph: &str, budget: Option<&Budget>) -> [String; 6] {
    let Some(budget) = budget else { return [graph, "-", "-", "-", "-", "-"].map(str::to_owned) };
    let or = |number: Option<u64>| number.map_or("no bound".to_owned(), |number| number.to_string());
    let steps = match budget.bounded_by {
        StepBound::Edges => budget.steps.to_string(),
        bound => format!("{} ({})", budget.steps, bound.name()),
    };
    let levels = budget.levels.map_or("in a circle".to_owned(), |levels| levels.to_string());
    [graph.to_owned(), budget.shortest.to_string(), steps, or(budget.calls), or(budget.at_a_time), levels]
}

/// Returns the same as JSON; null for a graph whose mistakes leave the bounds open.
pub(super) fn document(findings: &Findings) -> Value {
    let one = |(graph, budget): &(String, Option<Budget>)| {
        let budget = budget.as_ref().map(|budget| {
            json!({
                "shortest": budget.shortest,
                "steps": budget.steps,
                "bounded_by": budget.bounded_by.name(),
                "calls": budget.calls,
                "at_a_time": budget.at_a_time,
                "levels": budget.levels,
            })
        });
        json!({ "graph": graph, "budget": budget })
    };
    findings.budgets.iter().map(one).collect()
}

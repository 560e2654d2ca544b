//! `--budget`: the upper bounds for a run of each graph.

use graph_compiler::definition::agent::shown_spend;
use graph_compiler::graph::{AgentUsage, ApprovingAnswers, Budget, StepBound};
use serde_json::{Value, json};

use super::findings::Findings;

/// Returns a table with one row for each graph.
pub(super) fn table(findings: &Findings) -> Vec<Vec<String>> {
    const HEAD: [&str; 9] =
        ["graph", "shortest", "steps", "calls", "at a time", "graphs deep", "turns", "tokens", "spend"];
    let mut rows = vec![HEAD.map(str::to_owned)];
    rows.extend(findings.budgets.iter().map(|(graph, budget)| row(graph, budget.as_ref())));
    // Most trees have no agents.
    let has_agents = findings.budgets.iter().filter_map(|(_, budget)| budget.as_ref());
    let columns = if has_agents.clone().any(|budget| budget.usage != AgentUsage::NOTHING) { HEAD.len() } else { 6 };
    rows.iter().map(|row| row[..columns].to_vec()).collect()
}

/// Returns the answers that approve guarded calls, in a line for each call.
pub(super) fn approvals(findings: &Findings) -> Vec<String> {
    let graphs = findings.budgets.iter().map(|(graph, _)| graph);
    let approvals =
        graphs.zip(&findings.approvals).flat_map(|(graph, all)| all.iter().map(move |one| approved(graph, one)));
    approvals.collect()
}

/// Returns which answers approve a guarded call, and by whom, in one line.
fn approved(graph: &str, approval: &ApprovingAnswers) -> String {
    let ApprovingAnswers { node, tool, interrupt, answers, role, count } = approval;
    let people = match count {
        1 => "one person".to_owned(),
        count => format!("{count} people"),
    };
    let role = role.as_ref().map_or_else(|| "with any trusted key".to_owned(), |role| format!("of the role `{role}`"));
    let answers = answers.iter().map(|answer| format!("`{answer}`")).collect::<Vec<_>>().join(" or ");
    format!("{graph}: node `{node}` calls {tool} if `{interrupt}` is answered by {people} {role} with {answers}")
}

fn row(graph: &str, budget: Option<&Budget>) -> [String; 9] {
    let Some(budget) = budget else { return [graph, "-", "-", "-", "-", "-", "-", "-", "-"].map(str::to_owned) };
    let AgentUsage { turns, tokens, micros } = budget.usage;
    let or = |number: Option<u64>| number.map_or("no bound".to_owned(), |number| number.to_string());
    let steps = match budget.bounded_by {
        StepBound::Edges => budget.steps.to_string(),
        bound => format!("{} ({})", budget.steps, bound.name()),
    };
    let levels = budget.levels.map_or("in a circle".to_owned(), |levels| levels.to_string());
    let spend = micros.map_or("no bound".to_owned(), shown_spend);
    let (shortest, calls, at_a_time) = (budget.shortest.to_string(), or(budget.calls), or(budget.at_a_time));
    [graph.to_owned(), shortest, steps, calls, at_a_time, levels, or(turns), or(tokens), spend]
}

/// Returns the same as JSON; null for a graph whose mistakes leave the bounds open.
pub(super) fn document(findings: &Findings) -> Value {
    let approval = |approval: &ApprovingAnswers| {
        let ApprovingAnswers { node, tool, interrupt, answers, role, count } = approval;
        json!({ "node": node, "tool": tool, "interrupt": interrupt, "answers": answers, "role": role, "count": count })
    };
    let one = |((graph, budget), approvals): (&(String, Option<Budget>), &Vec<ApprovingAnswers>)| {
        let budget = budget.as_ref().map(|budget| {
            json!({
                "shortest": budget.shortest,
                "steps": budget.steps,
                "bounded_by": budget.bounded_by.name(),
                "calls": budget.calls,
                "at_a_time": budget.at_a_time,
                "levels": budget.levels,
                "turns": budget.usage.turns,
                "tokens": budget.usage.tokens,
                "spend": budget.usage.micros.map(shown_spend),
            })
        });
        let approvals: Vec<Value> = approvals.iter().map(approval).collect();
        json!({ "graph": graph, "budget": budget, "approvals": approvals })
    };
    findings.budgets.iter().zip(&findings.approvals).map(one).collect()
}

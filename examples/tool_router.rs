//! Answers a question with the graph `graphs/tool_router.yaml`: at each step an agent chooses a tool, and the tool leads back
//! to the agent.
//!
//! `cargo run --example tool_router -- [QUESTION]`; if nothing is found, as about coffee, the graph stops the agent.

use std::error::Error;

use graph_runtime::{ActionError, Call, Edges, Runtime};
use state_graphs::tools::agents_analyze::OutputDecision as Decision;
use state_graphs::tools::{agents_analyze, agents_calculate, agents_search};
use state_graphs::{ToolRouter, tool_router};

/// Agents that follow a script. If `agents_analyze` asked a language model, nothing else would change.
struct Agents;

impl agents_analyze::Tool for Agents {
    async fn agents_analyze(
        &self,
        _: &Call,
        params: agents_analyze::Params,
    ) -> Result<agents_analyze::Output, ActionError> {
        let (decision, text) = match params.notes.lines().last() {
            None | Some("nothing was found") => (Decision::Search, params.question),
            Some(note) => match note.split_once(" = ") {
                Some((_, value)) => (Decision::Answer, format!("{value} cents")),
                None => (Decision::Calculate, numbers(&[&params.question, note]).join(" * ")),
            },
        };
        Ok(agents_analyze::Output { decision, text })
    }
}

impl agents_search::Tool for Agents {
    async fn agents_search(
        &self,
        _: &Call,
        params: agents_search::Params,
    ) -> Result<agents_search::Output, ActionError> {
        let is_known = params.query.contains("tea");
        let text = if is_known { "a pot of tea costs 450 cents" } else { "nothing was found" };
        Ok(agents_search::Output { text: text.to_owned() })
    }
}

impl agents_calculate::Tool for Agents {
    async fn agents_calculate(
        &self,
        _: &Call,
        params: agents_calculate::Params,
    ) -> Result<agents_calculate::Output, ActionError> {
        let mut product = 1_i64;
        for number in numbers(&[&params.expression]) {
            let number: i64 = number.parse()?;
            product = product.checked_mul(number).ok_or_else(|| ActionError::permanent("the product is too large"))?;
        }
        Ok(agents_calculate::Output { value: product })
    }
}

/// Returns the numbers in the texts.
fn numbers<'a>(texts: &[&'a str]) -> Vec<&'a str> {
    let words = texts.iter().flat_map(|text| text.split(|letter: char| !letter.is_ascii_digit()));
    words.filter(|word| !word.is_empty()).collect()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let question = std::env::args().nth(1).unwrap_or_else(|| "What do 3 pots of tea cost?".to_owned());
    let runtime = Runtime::builder().grant("rye.execute.tool.agents.*")?.keep_history().build()?;
    let finished = runtime.start(ToolRouter::new(Agents), tool_router::Inputs { question }).await?.await?;

    println!("The way:");
    let edges = Edges::of(&tool_router::PROGRAM);
    for visit in &finished.history {
        match edges.taken(visit) {
            Some(edge) => println!("{:>4}. {} → {edge}", visit.step, visit.node),
            None => println!("{:>4}. {}", visit.step, visit.node),
        }
    }

    println!("\nHow often each edge was taken:");
    for fired in edges.fired(&finished.history) {
        println!("{:>4} × {} → {}", fired.times, fired.from, fired.edge);
    }

    println!("\nWhat each node returned last:");
    for (node, result) in finished.last_results() {
        println!("      {node}: {result}");
    }

    match finished.output.answer {
        Some(answer) => println!("\nThe answer: {answer}"),
        None => println!("\nNo answer after {} steps; stopped: {}", finished.steps, finished.exhausted),
    }
    Ok(())
}

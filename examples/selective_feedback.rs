//! Writes and revises a text with the graph `graphs/selective_feedback.yaml`. The critic leads back to the writer, who sees
//! the last text and the notes on it; the research is done only once.
//!
//! `cargo run --example selective_feedback -- [TOPIC]`; the topic `coffee` needs more than two revisions.

use std::error::Error;

use graph_runtime::{ActionError, Call, Edges, Runtime};
use state_graphs::tools::agents_critique::OutputVerdict as Verdict;
use state_graphs::tools::{agents_critique, agents_research, agents_write};
use state_graphs::{SelectiveFeedback, selective_feedback};

/// Agents that follow a script.
struct Agents;

impl agents_research::Tool for Agents {
    async fn agents_research(
        &self,
        _: &Call,
        params: agents_research::Params,
    ) -> Result<agents_research::Output, ActionError> {
        let mut facts = vec!["it grows on a shrub", "it wakes people up", "it is drunk hot"];
        if params.topic == "coffee" {
            facts.extend(["it is roasted", "it is ground"]);
        }
        Ok(agents_research::Output { facts: facts.into_iter().map(str::to_owned).collect() })
    }
}

impl agents_write::Tool for Agents {
    async fn agents_write(&self, _: &Call, params: agents_write::Params) -> Result<agents_write::Output, ActionError> {
        let text = match params.before {
            None => format!("About {}: {}.", params.topic, params.facts.first().map_or("nothing", String::as_str)),
            Some(before) => format!("{before} And {}.", params.notes),
        };
        Ok(agents_write::Output { text })
    }
}

impl agents_critique::Tool for Agents {
    async fn agents_critique(
        &self,
        _: &Call,
        params: agents_critique::Params,
    ) -> Result<agents_critique::Output, ActionError> {
        let missing = params.facts.into_iter().find(|fact| !params.text.contains(fact.as_str()));
        let verdict = if missing.is_some() { Verdict::Revise } else { Verdict::Good };
        Ok(agents_critique::Output { verdict, notes: missing.unwrap_or_default() })
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let topic = std::env::args().nth(1).unwrap_or_else(|| "tea".to_owned());
    let runtime = Runtime::builder().grant("rye.execute.tool.agents.*")?.keep_history().build()?;
    let inputs = selective_feedback::Inputs { topic };
    let finished = runtime.start(SelectiveFeedback::new(Agents), inputs).await?.await?;

    println!("The way:");
    let edges = Edges::of(&selective_feedback::PROGRAM);
    for visit in &finished.history {
        match edges.taken(visit) {
            Some(edge) => println!("{:>4}. {} → {edge}", visit.step, visit.node),
            None => println!("{:>4}. {}", visit.step, visit.node),
        }
    }

    println!("\nEvery version:");
    let versions = finished.history.iter().filter(|visit| visit.node == "write");
    for (number, visit) in (1..).zip(versions) {
        println!("{number:>4}. {}", visit.result["text"]);
    }

    let selective_feedback::Output { text, verdict, .. } = finished.output;
    println!("\nThe critic's last word: {}", verdict.map_or("none", Verdict::as_str));
    println!("The text: {}", text.unwrap_or_default());
    Ok(())
}

//! Lets a buyer and a seller agree on a price with the graph `graphs/negotiation.yaml`.
//!
//! `cargo run --example negotiation -- [ASKING_PRICE]`; at 200 the buyer leaves, for which the graph has no edge.

use std::error::Error;
use std::process::ExitCode;

use graph_runtime::{ActionError, Call, Edges, Runtime};
use state_graphs::tools::market_negotiate;
use state_graphs::tools::market_negotiate::OutputSays as Says;
use state_graphs::tools::market_negotiate::ParamsParty as Party;
use state_graphs::{Negotiation, negotiation};

/// Both parties. They follow a script: they move by 10, up to a limit.
struct Parties;

impl market_negotiate::Tool for Parties {
    async fn market_negotiate(
        &self,
        _: &Call,
        params: market_negotiate::Params,
    ) -> Result<market_negotiate::Output, ActionError> {
        let market_negotiate::Params { party, offered, own, .. } = params;
        let (price, is_content, is_beyond) = match party {
            Party::Buyer => {
                let price = own.map_or(60, |own| own + 10);
                (price, offered <= price, price > 85)
            }
            Party::Seller => {
                let price = own.map_or(offered, |own| own - 10);
                (price, offered >= price, price < 70)
            }
        };
        let (says, price) = match (is_content, is_beyond) {
            (true, _) => (Says::Accept, offered),
            (false, false) => (Says::Offer, price),
            (false, true) => (Says::Leave, price),
        };
        Ok(market_negotiate::Output { says, price })
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Box<dyn Error>> {
    let asking_price = std::env::args().nth(1).map_or(Ok(100), |price| price.parse())?;
    let runtime = Runtime::builder().grant("rye.execute.tool.market.negotiate")?.keep_history().build()?;
    let inputs = negotiation::Inputs { asking_price };
    let finished = runtime.start(Negotiation::new(Parties), inputs).await?.await?;

    let edges = Edges::of(&negotiation::PROGRAM);
    for visit in &finished.history {
        if let Some(edge) = edges.taken(visit) {
            println!("{:>4}. {} {:>4} → {edge}", visit.step, visit.node, visit.result["price"]);
        }
    }
    println!("Agreed on {} in the buyer's round {}.", finished.output.price, finished.output.rounds);
    Ok(())
}

//! Asks three carriers for a price, with the graph `graphs/carrier_quotes.yaml`, and takes the cheaper one of the first two
//! that answer.
//!
//! `cargo run --example carrier_quotes`, or with the names of carriers that are out of order, as in
//! `cargo run --example carrier_quotes -- post swift`. Here, the carriers are functions that wait as long as a server might.

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use graph_runtime::{ActionError, Call, Progress, Runtime};
use state_graphs::tools::carriers_quote;
use state_graphs::{CarrierQuotes, carrier_quotes};

/// The carriers that the graph asks.
const NAMES: [&str; 3] = ["north", "post", "swift"];

/// Three carriers.
struct Carriers {
    /// The names of those that are out of order.
    broken: Vec<String>,
}

impl carriers_quote::Tool for Carriers {
    async fn carriers_quote(
        &self,
        _: &Call,
        params: carriers_quote::Params,
    ) -> Result<carriers_quote::Output, ActionError> {
        let carrier = params.carrier;
        let (wait, cents_a_kilo, days) = match carrier.as_str() {
            "north" => (200, 120, 5),
            "post" => (400, 180, 3),
            // The cheapest one is too slow.
            "swift" => (2_000, 90, 2),
            _ => return Err(ActionError::permanent(format!("there is no carrier `{carrier}`"))),
        };
        tokio::time::sleep(Duration::from_millis(wait)).await;
        if self.broken.contains(&carrier) {
            return Err(ActionError::permanent(format!("{carrier} is out of order")));
        }
        let kilos = params.grams.saturating_add(999) / 1_000;
        let cents = 200_i64.saturating_add(kilos.saturating_mul(cents_a_kilo));
        Ok(carriers_quote::Output { cents, days })
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
    let broken: Vec<String> = std::env::args().skip(1).collect();
    if let Some(unknown) = broken.iter().find(|name| !NAMES.contains(&name.as_str())) {
        return Err(format!("there is no carrier `{unknown}`; the carriers are {}", NAMES.join(", ")).into());
    }
    let carriers = Carriers { broken };
    let runtime = Runtime::builder().grant("rye.execute.tool.carriers.*")?.observer(Progress::stderr()).build()?;
    let inputs = carrier_quotes::Inputs { grams: 2_500 };
    let finished = runtime.start(CarrierQuotes::new(carriers), inputs).await?.await?;
    match finished.output {
        carrier_quotes::Output::Pick(found) => {
            for quote in &found.quotes {
                println!("{:>6} cents in {} days: {}", quote.cents, quote.days, quote.carrier);
            }
            println!("the cheapest of them costs {} cents", found.cents);
        }
        carrier_quotes::Output::TooFew(found) => {
            println!("{} of the two quotes that are needed", found.quotes.len());
        }
    }
    for error in &finished.errors {
        println!("without `{}`: {}", error.node, error.error);
    }
    Ok(())
}

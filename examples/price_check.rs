//! Asks shops for prices with the graph `graphs/price_check.yaml`: several at a time, each up to three times.
//!
//! `cargo run --example price_check`

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};

use graph_runtime::{ActionError, Call, Runtime};
use state_graphs::tools::market_quote;
use state_graphs::{PriceCheck, price_check};

/// Shops of all kinds.
#[derive(Default)]
struct Shops {
    was_busy: AtomicBool,
}

impl market_quote::Tool for Shops {
    async fn market_quote(&self, _: &Call, params: market_quote::Params) -> Result<market_quote::Output, ActionError> {
        let price_cents = match params.shop.as_str() {
            "corner" => 450,
            // A transient failure is retried as the graph's `retry` says; a permanent failure is not.
            "harbour" if !self.was_busy.swap(true, Ordering::Relaxed) => return Err(ActionError::transient("busy")),
            "harbour" => 420,
            shop => return Err(ActionError::permanent(format!("there is no shop `{shop}`"))),
        };
        Ok(market_quote::Output { shop: params.shop, price_cents })
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let offer = |shop: &str| price_check::InputsOffersItem { shop: shop.to_owned(), article: "tea".to_owned() };
    let inputs = price_check::Inputs { offers: vec![offer("corner"), offer("closed"), offer("harbour")] };
    let shops = inputs.offers.clone();
    let runtime = Runtime::builder().grant("rye.execute.tool.market.quote")?.build()?;
    let finished = runtime.start(PriceCheck::new(Shops::default()), inputs).await?.await?;

    // The quotes are in the order of the offers. Each has a price or an error.
    for (offer, quote) in shops.iter().zip(&finished.output.quotes) {
        match (quote.price_cents, &quote.error) {
            (Some(price), _) => println!("{:<8} {price} cents", offer.shop),
            (None, error) => println!("{:<8} {}", offer.shop, error.as_deref().unwrap_or("no price")),
        }
    }
    println!("\nThe run is {}.", finished.status.name());
    for failure in &finished.errors {
        println!("  step {}, {}: {}", failure.step, failure.node, failure.error);
    }
    Ok(())
}

//! Sells an article after checks that run at the same time, with the graph `graphs/checked_order.yaml`.
//!
//! `cargo run --example checked_order -- ARTICLE [compare]`; the shop has `tea`, and the other shop is closed for `coffee`.

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use graph_runtime::{ActionError, Call, Progress, Runtime};
use state_graphs::tools::{market_quote, shop_charge_card, shop_look_up};
use state_graphs::{CheckedOrder, checked_order};

/// Two shops and a bank, each of which takes a moment to answer.
struct Market;

impl shop_look_up::Tool for Market {
    async fn shop_look_up(&self, _: &Call, params: shop_look_up::Params) -> Result<shop_look_up::Output, ActionError> {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let in_stock = if params.article == "tea" { 12 } else { 0 };
        Ok(shop_look_up::Output { price_cents: 450, in_stock })
    }
}

impl market_quote::Tool for Market {
    async fn market_quote(&self, _: &Call, params: market_quote::Params) -> Result<market_quote::Output, ActionError> {
        tokio::time::sleep(Duration::from_millis(200)).await;
        if params.shop == "theirs" && params.article == "coffee" {
            return Err(ActionError::permanent("the other shop is closed"));
        }
        let price_cents = if params.shop == "ours" { 450 } else { 480 };
        Ok(market_quote::Output { shop: params.shop, price_cents })
    }
}

impl shop_charge_card::Tool for Market {
    async fn shop_charge_card(
        &self,
        call: &Call,
        params: shop_charge_card::Params,
    ) -> Result<shop_charge_card::Output, ActionError> {
        let key = call.idempotency_key();
        Ok(shop_charge_card::Output { receipt: format!("{} cents, {key:.8}", params.price_cents) })
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
    let mut arguments = std::env::args().skip(1);
    let inputs = checked_order::Inputs {
        article: arguments.next().unwrap_or_else(|| "tea".to_owned()),
        compare: arguments.next().is_some_and(|word| word == "compare"),
        card: "tok_1".to_owned(),
    };
    let grants = ["rye.execute.tool.shop.*", "rye.execute.tool.market.*"];
    let runtime = grants.iter().try_fold(Runtime::builder(), |builder, grant| builder.grant(grant))?;
    let runtime = runtime.observer(Progress::stderr()).build()?;
    match runtime.start(CheckedOrder::new(Market), inputs).await?.await?.output {
        checked_order::Output::Shipped(shipped) => {
            println!(
                "sold for {} cents (elsewhere {}), receipt {}",
                shipped.cents, shipped.other_cents, shipped.receipt
            );
        }
        checked_order::Output::SoldOut(order) => println!("there is no {} left", order.article),
    }
    Ok(())
}

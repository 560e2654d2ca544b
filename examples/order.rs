//! Sells an article with the graph `graphs/order.yaml`, whose tools are this program's own.
//!
//! `cargo run --example order -- ARTICLE [QUANTITY] [CARD]`; the shop has `tea`, and refuses the card `tok_broke`.

use std::error::Error;
use std::process::ExitCode;

use graph_runtime::{ActionError, Call, Progress, Runtime};
use state_graphs::tools::{shop_charge_card, shop_look_up};
use state_graphs::{Order, order};

/// A shop without a database.
struct Shop;

// Leave out a method or change a type, and the compiler says what the graph expects.
impl shop_look_up::Tool for Shop {
    async fn shop_look_up(&self, _: &Call, params: shop_look_up::Params) -> Result<shop_look_up::Output, ActionError> {
        match params.article.as_str() {
            "tea" => Ok(shop_look_up::Output { price_cents: 450, in_stock: 12 }),
            _ => Ok(shop_look_up::Output { price_cents: 0, in_stock: 0 }),
        }
    }
}

impl shop_charge_card::Tool for Shop {
    async fn shop_charge_card(
        &self,
        call: &Call,
        params: shop_charge_card::Params,
    ) -> Result<shop_charge_card::Output, ActionError> {
        if params.card == "tok_broke" {
            return Err(ActionError::permanent("insufficient funds"));
        }
        // A payment service that receives this key charges only once, even if a crash makes the step run twice.
        let key = call.idempotency_key();
        let total = params.price_cents * params.quantity;
        Ok(shop_charge_card::Output { receipt: format!("{total} cents, {key:.8}") })
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
    let inputs = order::Inputs {
        article: arguments.next().unwrap_or_else(|| "tea".to_owned()),
        quantity: arguments.next().map_or(Ok(1), |quantity| quantity.parse())?,
        card: arguments.next().unwrap_or_else(|| "tok_1".to_owned()),
    };
    let runtime = Runtime::builder().grant("rye.execute.tool.shop.*")?.observer(Progress::stderr()).build()?;
    // A variant for each node at which a run ends; only a shipped order has a receipt.
    match runtime.start(Order::new(Shop), inputs).await?.await?.output {
        order::Output::Shipped(shipped) => println!("{}\nreceipt: {}", shipped.message, shipped.receipt),
        order::Output::BackOrder(order) => println!("{}; it will be as soon as we have some", order.message),
        order::Output::Refused(order) => println!("{}; try another one", order.message),
    }
    Ok(())
}

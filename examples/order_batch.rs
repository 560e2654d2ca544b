//! Sells a list of orders with the graph `graphs/order_batch.yaml`, which runs `graphs/order.yaml` for each of them.
//!
//! `cargo run --example order_batch`

use std::error::Error;

use graph_runtime::{ActionError, Call, Runtime};
use state_graphs::tools::{shop_charge_card, shop_look_up};
use state_graphs::{OrderBatch, order_batch};

/// A shop without a database.
struct Shop;

// These are the tools of the nested graph. The outer graph itself calls none.

impl shop_look_up::Tool for Shop {
    async fn shop_look_up(&self, _: &Call, params: shop_look_up::Params) -> Result<shop_look_up::Output, ActionError> {
        let in_stock = if params.article == "tea" { 12 } else { 0 };
        Ok(shop_look_up::Output { price_cents: 450, in_stock })
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
        // Each order is a separate run, so it has its own key.
        let (total, key) = (params.price_cents * params.quantity, call.idempotency_key());
        Ok(shop_charge_card::Output { receipt: format!("{total} cents, {key:.8}") })
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let order = |article: &str, quantity, card: &str| order_batch::InputsOrdersItem {
        article: article.to_owned(),
        quantity,
        card: card.to_owned(),
    };
    let orders = vec![order("tea", 3, "tok_1"), order("coffee", 1, "tok_2"), order("tea", 1, "tok_broke")];
    let runtime = Runtime::builder().grant("rye.execute.tool.shop.*")?.build()?;
    let finished = runtime.start(OrderBatch::new(Shop), order_batch::Inputs { orders }).await?.await?;

    for sale in &finished.output.sales {
        // The output of a nested run has the type that its graph declares.
        let output = &sale.output;
        println!("{} steps: {} ({})", sale.steps, output.message, output.status);
        println!("  receipt: {}", output.receipt.as_deref().unwrap_or("none"));
    }
    Ok(())
}

use graph_runtime::{ActionError, Call};

graph_runtime::graph!("graphs/order.yaml");

use order::tools::shop_charge_card;

struct Shop;

impl shop_charge_card::Tool for Shop {
    async fn shop_charge_card(
        &self,
        _: &Call,
        params: shop_charge_card::Params,
    ) -> Result<shop_charge_card::Output, ActionError> {
        Ok(shop_charge_card::Output { receipt: params.price_cents })
    }
}

fn main() {}

use graph_runtime::{ActionError, Call};

graph_runtime::graph!("graphs/order.yaml");

struct Shop;

impl order::Actions for Shop {
    async fn shop_charge_card(
        &self,
        _: &Call,
        params: order::ShopChargeCard,
    ) -> Result<order::ShopChargeCardResult, ActionError> {
        Ok(order::ShopChargeCardResult { receipt: params.price_cents })
    }
}

fn main() {}

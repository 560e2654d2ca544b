// The program around a graph with a mistake has no errors of its own.

use graph_runtime::{ActionError, Call};

graph_runtime::graph!("graphs/unknown_target.yaml");

struct Shop;

impl unknown_target::Actions for Shop {
    async fn shop_charge_card(
        &self,
        _: &Call,
        params: unknown_target::ShopChargeCard,
    ) -> Result<unknown_target::ShopChargeCardResult, ActionError> {
        Ok(unknown_target::ShopChargeCardResult { receipt: params.card })
    }
}

fn main() {
    let _machine = UnknownTarget::new(Shop);
    let _inputs = unknown_target::Inputs { card: "4711".into() };
}

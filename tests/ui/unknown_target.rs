// The program around a graph with a mistake has no errors of its own.

use graph_runtime::{ActionError, Call};

graph_runtime::graph!("graphs/unknown_target.yaml");

use unknown_target::tools::shop_charge_card;

struct Shop;

impl shop_charge_card::Tool for Shop {
    async fn shop_charge_card(
        &self,
        _: &Call,
        params: shop_charge_card::Params,
    ) -> Result<shop_charge_card::Output, ActionError> {
        Ok(shop_charge_card::Output { receipt: params.card })
    }
}

fn main() {
    let _machine = UnknownTarget::new(Shop);
    let _inputs = unknown_target::Inputs { card: "4711".into() };
}

//! A graph asks for its own tools and those of the graphs that it nests, also where some of them nest each other.

use graph_runtime::{ActionError, Builtins, Call, Dispatch, Machine, Map, RuntimeTools, Value};

graph_runtime::graph!("tests/ui/graphs/order.yaml");
graph_runtime::graph!("tests/ui/graphs/ping.yaml");
graph_runtime::graph!("tests/ui/graphs/pong.yaml");
graph_runtime::graph!("tests/ui/graphs/seller.yaml");

use order::tools::shop_charge_card;
use seller::tools::shop_tell;

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

impl RuntimeTools for Shop {}

impl Dispatch for Shop {
    async fn dispatch(&self, call: &Call, params: Map<String, Value>) -> Result<Value, ActionError> {
        Ok(Value::from(format!("{} {}", call.tool(), params.len())))
    }
}

impl shop_tell::Tool for Shop {
    async fn shop_tell(&self, _: &Call, _: Map<String, Value>) -> Result<Value, ActionError> {
        Ok(Value::Null)
    }
}

#[test]
fn a_graph_has_the_machines_of_the_graphs_that_it_nests() {
    let seller = Seller::new(Shop);
    let nested: Vec<bool> = (0..6).map(|tool| seller.nested(tool).is_some()).collect();
    // The order of the file: `order`, a computed id, a page of knowledge, `ping`, and the tool of a hook.
    assert_eq!(nested, [true, false, false, true, false, false]);
    assert!(Ping::new(Builtins).nested(0).is_some() && Pong::new(Builtins).nested(1).is_some());
    let _output = seller::Output { receipt: None, count: Some(3), orders: None };
}

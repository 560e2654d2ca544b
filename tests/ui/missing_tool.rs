graph_runtime::graph!("graphs/order.yaml");

struct Shop;

impl order::Actions for Shop {}

fn main() {
    let _machine = Order::new(Shop);
}

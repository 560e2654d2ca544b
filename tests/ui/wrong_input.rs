graph_runtime::graph!("graphs/order.yaml");

fn main() {
    let _inputs = order::Inputs { card: 4711 };
}

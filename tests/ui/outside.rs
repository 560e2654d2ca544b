graph_runtime::graph!("../order.yaml");

fn main() {}

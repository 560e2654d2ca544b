graph_runtime::graph!("graphs/unsigned.yaml");

fn main() {}

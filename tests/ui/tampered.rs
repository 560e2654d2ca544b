graph_runtime::graph!("graphs/tampered.yaml");

fn main() {}

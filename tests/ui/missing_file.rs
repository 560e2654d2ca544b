graph_runtime::graph!("graphs/ordre.yaml");

fn main() {}

graph_runtime::graph!("");

fn main() {}

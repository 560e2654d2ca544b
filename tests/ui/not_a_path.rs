graph_runtime::graph!(order);

fn main() {}

graph_runtime::graph!("graphs/order.yaml");

fn recipt(output: order::Output) -> String {
    output.recipt
}

fn main() {}

graph_runtime::graph!("graphs/sale.yaml");

fn receipt(output: sale::Output) -> String {
    match output {
        sale::Output::Delivered(delivered) => delivered.receipt,
    }
}

fn main() {}

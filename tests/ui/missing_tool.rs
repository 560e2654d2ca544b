use graph_runtime::Runtime;

graph_runtime::graph!("graphs/order.yaml");

struct Shop;

async fn run(runtime: &Runtime) -> String {
    let run = runtime.start(Order::new(Shop), order::Inputs { card: "4711".into() }).await.unwrap();
    run.await.unwrap().output.receipt
}

fn main() {}

graph_runtime::graph!("graphs/three_mistakes.yaml");

fn main() {
    let _inputs = three_mistakes::Inputs { card: "4711".into() };
}

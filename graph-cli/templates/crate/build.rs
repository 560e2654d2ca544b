// Compiles every graph in graphs/ and below.
fn main() {
    graph_compiler::build("graphs");
}

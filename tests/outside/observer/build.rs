//! Compiles the graphs that the tests run.

fn main() {
    graph_compiler::build("../../../graphs");
}

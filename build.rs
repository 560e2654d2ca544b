//! Compiles every graph under `graphs`; mistakes in them are errors of this package.

fn main() {
    graph_compiler::build("graphs");
}

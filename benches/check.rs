//! How long `graph check` takes as a new process: for one graph of 1,000 nodes, and for 100 graphs of 20 nodes each.
//!
//! Run with `cargo bench --bench check`. The output also shows how long the machine takes to start any process, and to start
//! this one, so that figures of different machines can be compared.

#[path = "support/large.rs"]
mod large;

use std::path::Path;
use std::process::Command;

use large::{Shape, command_line, median, run, write_tree};

/// How often each command is timed; the median counts.
const ROUNDS: usize = 21;

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let graph = command_line(root);
    let trees = root.join("target/check_bench");
    write_tree(&trees.join("one"), &[Shape { nodes: 1000, tools: 10, keys: 100 }]);
    write_tree(&trees.join("many"), &[Shape { nodes: 20, tools: 10, keys: 100 }; 100]);
    let check = |tree: &str| {
        let mut command = Command::new(&graph);
        command.current_dir(trees.join(tree)).args(["check", "graphs"]);
        command
    };
    let any = median(ROUNDS, || run(&mut Command::new("true")));
    let own = median(ROUNDS, || run(Command::new(&graph).arg("--version")));
    println!("  {:<32} {any:>8.2?}", "true");
    println!("  {:<32} {own:>8.2?}", "graph --version");
    for (name, tree) in [("1 graph of 1,000 nodes", "one"), ("100 graphs of 20 nodes", "many")] {
        let took = median(ROUNDS, || run(&mut check(tree)));
        let times = took.as_secs_f64() / own.as_secs_f64();
        println!("  {:<32} {took:>8.2?}, {times:.0} times `graph --version`", format!("graph check, {name}"));
    }
}

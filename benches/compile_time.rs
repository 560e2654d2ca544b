//! How long a graph of 1,000 nodes takes to compile: `cargo check` and `cargo build --release` of a crate with the graph,
//! compared with the same crate without it, and `graph check`.
//!
//! Run with `cargo bench --bench compile_time`; `-- NODES TOOLS KEYS` selects another shape.

#[path = "support/large.rs"]
mod large;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use large::{Shape, command_line, median, run, write, write_tree};

/// How often each command is timed; the median counts.
const ROUNDS: usize = 5;

fn main() {
    let arguments: Vec<usize> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    let shapes = match arguments[..] {
        [nodes, tools, keys] => vec![Shape { nodes, tools, keys }],
        _ => vec![Shape { nodes: 1000, tools: 10, keys: 100 }, Shape { nodes: 1000, tools: 50, keys: 300 }],
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let graph = command_line(root);
    for shape in shapes {
        let package = root.join("target/compile_time");
        write_package(&package, root, shape);
        println!("{} nodes, {} tools, {} keys", shape.nodes, shape.tools, shape.keys);
        for (name, arguments) in [("cargo check", &["check"][..]), ("cargo build --release", &["build", "--release"])] {
            let (without, with) = (build(&package, arguments, false), build(&package, arguments, true));
            let over = with.saturating_sub(without);
            println!("  {name:<22} {with:>8.2?} with it, {without:>8.2?} without: {over:.2?} over");
        }
        let check =
            median(ROUNDS, || run(Command::new(&graph).current_dir(&package).args(["check", "graphs/graph0.yaml"])));
        println!("  {:<22} {check:>8.2?}", "graph check");
    }
}

/// Times a build of the package alone; its dependencies were built before.
fn build(package: &Path, arguments: &[&str], with: bool) -> Duration {
    let mut features: Vec<&str> = arguments.to_vec();
    features.push("--quiet");
    if with {
        features.extend(["--features", "large"]);
    }
    let cargo = || {
        let mut cargo = Command::new("cargo");
        // The first compilation of a graph has no earlier result to start from.
        cargo.current_dir(package).args(&features).env("CARGO_INCREMENTAL", "0");
        cargo
    };
    run(&mut cargo());
    median(ROUNDS, || {
        let lib = package.join("src/lib.rs");
        fs::File::open(lib).and_then(|file| file.set_modified(SystemTime::now())).expect("the file is there");
        run(&mut cargo());
    })
}

/// Writes a package whose feature `large` adds a graph, its tools, and a function that starts it.
fn write_package(package: &Path, root: &Path, shape: Shape) {
    write_tree(package, &[shape]);
    write(package.join("Cargo.toml"), &manifest(root));
    write(package.join("src/lib.rs"), &program(shape));
}

fn manifest(root: &Path) -> String {
    format!(
        r#"[package]
name = "large"
version = "0.1.0"
edition = "2024"

[features]
large = []

[dependencies]
graph-runtime = {{ package = "state-graph-runtime", path = {:?} }}

[workspace]
"#,
        root.join("graph-runtime")
    )
}

fn program(shape: Shape) -> String {
    let mut text = "//! With and without a large graph.\n#[cfg(feature = \"large\")]\npub mod with {\n    use graph_runtime::{ActionError, Call, Runtime};\n\n    graph_runtime::graph!(\"graphs/graph0.yaml\");\n\n    use graph0::tools::*;\n\n    pub struct Own;\n".to_owned();
    for tool in 0..shape.tools {
        write!(
            text,
            "
    impl own_tool{tool}::Tool for Own {{
        async fn own_tool{tool}(&self, _: &Call, p: own_tool{tool}::Params) -> Result<own_tool{tool}::Output, ActionError> {{
            Ok(own_tool{tool}::Output {{ alpha: p.alpha, beta: p.beta, gamma: p.delta.is_some(), delta{tool}: None }})
        }}
    }}
"
        )
        .expect("a string takes all");
    }
    text + "
    pub async fn start(runtime: &Runtime) -> String {
        let inputs = graph0::Inputs { name: \"x\".into() };
        runtime.start(Graph0::new(Own), inputs).await.unwrap().await.unwrap().output.last
    }
}
"
}

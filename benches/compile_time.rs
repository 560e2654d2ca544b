//! How long a graph of 1,000 nodes takes to compile: `cargo check` and `cargo build --release` of a crate with it, over the
//! same crate without it, and `graph check`.
//!
//! Run with `cargo bench --bench compile_time`; `-- NODES TOOLS KEYS` asks for another shape.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use graph_model::signature::{ItemKind, KeyFile, SecretKey, sign};

/// How often each command is timed; the median counts.
const ROUNDS: usize = 5;

/// How large a graph is.
#[derive(Clone, Copy)]
struct Shape {
    nodes: usize,
    /// The distinct tools, each with four parameters and four results.
    tools: usize,
    /// The keys of the state.
    keys: usize,
}

fn main() {
    let arguments: Vec<usize> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    let shapes = match arguments[..] {
        [nodes, tools, keys] => vec![Shape { nodes, tools, keys }],
        _ => vec![Shape { nodes: 1000, tools: 10, keys: 100 }, Shape { nodes: 1000, tools: 50, keys: 300 }],
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    run(Command::new("cargo").current_dir(root).args(["build", "--quiet", "--release", "-p", "graph-cli"]));
    let graph = root.join("target/release/graph");
    for shape in shapes {
        let package = root.join("target/compile_time");
        write_package(&package, root, shape);
        println!("{} nodes, {} tools, {} keys", shape.nodes, shape.tools, shape.keys);
        for (name, arguments) in [("cargo check", &["check"][..]), ("cargo build --release", &["build", "--release"])] {
            let (without, with) = (build(&package, arguments, false), build(&package, arguments, true));
            let over = with.saturating_sub(without);
            println!("  {name:<22} {with:>8.2?} with it, {without:>8.2?} without: {over:.2?} over");
        }
        let check = median(|| run(Command::new(&graph).current_dir(&package).args(["check", "graphs/large.yaml"])));
        println!("  {:<22} {check:>8.2?}", "graph check");
    }
}

/// Times a build of the package alone: what it depends on was built before.
fn build(package: &Path, arguments: &[&str], with: bool) -> Duration {
    let mut features: Vec<&str> = arguments.to_vec();
    features.push("--quiet");
    if with {
        features.extend(["--features", "large"]);
    }
    let cargo = || {
        let mut cargo = Command::new("cargo");
        // Whoever compiles a graph for the first time has nothing to go on from.
        cargo.current_dir(package).args(&features).env("CARGO_INCREMENTAL", "0");
        cargo
    };
    run(&mut cargo());
    median(|| {
        let lib = package.join("src/lib.rs");
        fs::File::open(lib).and_then(|file| file.set_modified(SystemTime::now())).expect("the file is there");
        run(&mut cargo());
    })
}

fn median(mut what: impl FnMut()) -> Duration {
    let mut times: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            let began = Instant::now();
            what();
            began.elapsed()
        })
        .collect();
    times.sort();
    times[ROUNDS / 2]
}

fn run(command: &mut Command) {
    let status = command.stdout(Stdio::null()).status().expect("the command can be started");
    assert!(status.success(), "{command:?} failed");
}

/// Writes a package whose feature `large` adds a graph, its tools, and a function that starts it.
fn write_package(package: &Path, root: &Path, shape: Shape) {
    let key = SecretKey::from_seed(&[7; 32]);
    fs::remove_dir_all(package.join("graphs")).ok();
    write(package.join("Cargo.toml"), &manifest(root));
    write(package.join("src/lib.rs"), &program(shape));
    let owner = KeyFile::new(key.public(), "throw-away");
    write(
        package.join(format!("graphs/keys/{}.toml", owner.fingerprint)),
        &owner.to_signed_toml(&key, SystemTime::UNIX_EPOCH),
    );
    let signed = |text: &str| sign(ItemKind::YAML, text, &key, SystemTime::UNIX_EPOCH).expect("the text can be signed");
    for tool in 0..shape.tools {
        write(package.join(format!("graphs/tools/own/tool{tool}.yaml")), &signed(&contract(tool)));
    }
    write(package.join("graphs/large.yaml"), &signed(&graph(shape)));
}

fn write(path: PathBuf, text: &str) {
    fs::create_dir_all(path.parent().expect("the path is below a directory")).expect("the directory can be made");
    fs::write(path, text).expect("the file can be written");
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
graph-runtime = {{ path = {:?} }}

[workspace]
"#,
        root.join("graph-runtime")
    )
}

fn contract(tool: usize) -> String {
    format!(
        "version: \"1.0.0\"
tool_type: rust
config_schema:
  type: object
  properties:
    alpha: {{ type: string }}
    beta: {{ type: integer, default: {tool} }}
    gamma: {{ type: boolean }}
    delta: {{ type: string }}
  required: [alpha]
result_schema:
  type: object
  properties:
    alpha: {{ type: string }}
    beta: {{ type: integer }}
    gamma: {{ type: boolean }}
    delta{tool}: {{ type: string }}
  required: [alpha, beta]
"
    )
}

/// Every node calls a tool with a template in its parameters, sets a key, and goes on or back by a condition.
fn graph(Shape { nodes, tools, keys }: Shape) -> String {
    let mut text = "version: \"1.0.0\"
tool_type: graph
executor_id: rye/core/runtimes/state-graph/runtime
category: bench
permissions: [rye.execute.tool.*]
config_schema: { type: object, properties: { name: { type: string } }, required: [name] }
config:
  start: n0
  max_steps: 100000
  nodes:
"
    .to_owned();
    for node in 0..nodes {
        let (key, read) = (node % keys, (node * 37) % keys / 3 * 3);
        let (tool, field, back) = (node % tools, ["alpha", "beta", "gamma"][key % 3], (node * 7) % nodes);
        let next = if node + 1 == nodes { "done".to_owned() } else { format!("n{}", node + 1) };
        write!(
            text,
            "    n{node}:
      action: {{ primary: execute, item_type: tool, item_id: own/tool{tool}, params: {{ alpha: \"do ${{state.k{read} || inputs.name}} now\", gamma: true, delta: \"${{inputs.name}}\" }} }}
      assign: {{ k{key}: \"${{result.{field}}}\" }}
      next:
        - {{ to: n{back}, when: {{ path: \"state.k{read}\", op: contains, value: \"x{node}\" }} }}
        - {{ to: {next} }}
"
        )
        .expect("a string takes all");
    }
    text + "    done: { type: return }\n"
}

fn program(shape: Shape) -> String {
    let mut text = "//! With and without a large graph.\n#[cfg(feature = \"large\")]\npub mod with {\n    use graph_runtime::{ActionError, Call, Runtime};\n\n    graph_runtime::graph!(\"graphs/large.yaml\");\n\n    pub struct Own;\n\n    impl large::Actions for Own {\n".to_owned();
    for tool in 0..shape.tools {
        write!(
            text,
            "        async fn own_tool{tool}(&self, _: &Call, p: large::OwnTool{tool}) -> Result<large::OwnTool{tool}Result, ActionError> {{
            Ok(large::OwnTool{tool}Result {{ alpha: p.alpha, beta: p.beta, gamma: p.gamma, delta{tool}: p.delta }})
        }}
"
        )
        .expect("a string takes all");
    }
    text + "    }

    pub async fn start(runtime: &Runtime) -> String {
        let inputs = large::Inputs { name: \"x\".into() };
        runtime.start(Large::new(Own), inputs).await.unwrap().await.unwrap().output.k0
    }
}
"
}

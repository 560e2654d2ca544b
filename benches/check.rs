//! How long `graph check` takes, as a process of its own that knows nothing from before: of one graph of 1,000 nodes, and of 100
//! graphs of 20 nodes each.
//!
//! Run with `cargo bench --bench check`. What a machine needs to start any process, and to start this one, stands beside it, so
//! that figures of different machines can be compared.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use graph_model::signature::{ItemKind, KeyFile, SecretKey, sign};

/// How often each command is timed; the median counts.
const ROUNDS: usize = 21;
/// The distinct tools that the graphs call.
const TOOLS: usize = 10;
/// The keys of a graph's state, at most.
const KEYS: usize = 100;

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    run(Command::new("cargo").current_dir(root).args(["build", "--quiet", "--release", "-p", "graph-cli"]));
    let graph = root.join("target/release/graph");
    let trees = root.join("target/check_bench");
    write_tree(&trees.join("one"), &[1000]);
    write_tree(&trees.join("many"), &[20; 100]);
    let check = |tree: &str| {
        let mut command = Command::new(&graph);
        command.current_dir(trees.join(tree)).args(["check", "graphs"]);
        command
    };
    let any = median(|| run(&mut Command::new("true")));
    let own = median(|| run(Command::new(&graph).arg("--version")));
    println!("  {:<32} {any:>8.2?}", "true");
    println!("  {:<32} {own:>8.2?}", "graph --version");
    for (name, tree) in [("1 graph of 1,000 nodes", "one"), ("100 graphs of 20 nodes", "many")] {
        let took = median(|| run(&mut check(tree)));
        let times = took.as_secs_f64() / own.as_secs_f64();
        println!("  {:<32} {took:>8.2?}, {times:.0} times `graph --version`", format!("graph check, {name}"));
    }
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
    let output = command.stdin(Stdio::null()).output().expect("the command can be started");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("warning["), "{command:?} found fault: {said}");
}

/// Writes a package with graphs of so many nodes each, and what they call.
fn write_tree(package: &Path, sizes: &[usize]) {
    let key = SecretKey::from_seed(&[7; 32]);
    fs::remove_dir_all(package).ok();
    let owner = KeyFile::new(key.public(), "throw-away");
    let name = format!("graphs/keys/{}.toml", owner.fingerprint);
    write(package.join(name), &owner.to_signed_toml(&key, SystemTime::UNIX_EPOCH));
    let signed = |text: &str| sign(ItemKind::YAML, text, &key, SystemTime::UNIX_EPOCH).expect("the text can be signed");
    for tool in 0..TOOLS {
        write(package.join(format!("graphs/tools/own/tool{tool}.yaml")), &signed(&contract(tool)));
    }
    for (at, &nodes) in sizes.iter().enumerate() {
        write(package.join(format!("graphs/graph{at}.yaml")), &signed(&graph(nodes)));
    }
}

fn write(path: PathBuf, text: &str) {
    fs::create_dir_all(path.parent().expect("the path is below a directory")).expect("the directory can be made");
    fs::write(path, text).expect("the file can be written");
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
    gamma: {{ enum: [low, high] }}
    delta: {{ type: array, items: {{ type: string }} }}
  required: [alpha, gamma]
result_schema:
  type: object
  properties:
    alpha: {{ type: string }}
    beta: {{ type: integer }}
    gamma: {{ type: boolean }}
    delta{tool}: {{ type: string }}
  required: [alpha, beta, gamma]
"
    )
}

/// Every node calls a tool with what the one before it kept, keeps something itself, and goes on, or back a few times.
fn graph(nodes: usize) -> String {
    let permissions: Vec<String> =
        (0..TOOLS.min(nodes)).map(|tool| format!("rye.execute.tool.own.tool{tool}")).collect();
    let mut text = format!(
        "version: \"1.0.0\"
tool_type: graph
executor_id: rye/core/runtimes/state-graph/runtime
category: bench
permissions: [{}]
config_schema: {{ type: object, properties: {{ name: {{ type: string }} }}, required: [name] }}
config:
  start: n0
  max_steps: 100000
  nodes:
",
        permissions.join(", ")
    );
    for node in 0..nodes {
        let (tool, key, back) = (node % TOOLS, node % KEYS, (node * 7) % (node + 1));
        let before =
            node.checked_sub(1).map_or_else(|| "inputs.name".to_owned(), |before| format!("state.k{}", before % KEYS));
        let next = if node + 1 == nodes { "done".to_owned() } else { format!("n{}", node + 1) };
        write!(
            text,
            "    n{node}:
      action: {{ item_id: own/tool{tool}, params: {{ alpha: \"do ${{{before}}} now\", gamma: high, delta: [\"${{inputs.name}}\", x] }} }}
      assign: {{ k{key}: \"${{result.alpha}}\" }}
      next:
        - {{ to: n{back}, when: {{ all: [{{ path: result.beta, op: gt, value: {node} }}, {{ path: visit.number, op: lt, value: 4 }}] }} }}
        - {{ to: {next} }}
"
        )
        .expect("a string takes all");
    }
    let last = (nodes - 1) % KEYS;
    text + &format!("    done: {{ type: return, output: {{ last: \"${{state.k{last}}}\" }} }}\n")
}

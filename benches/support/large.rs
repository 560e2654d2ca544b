//! Signed graphs of any size over tools with contracts; and the timing of commands.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use graph_signing::{ItemKind, KeyFile, SecretKey, sign};

/// The size of a graph.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) nodes: usize,
    /// The number of distinct tools, each with four parameters and four results.
    pub(crate) tools: usize,
    /// The maximum number of state keys.
    pub(crate) keys: usize,
}

/// Builds the command line, and returns its path.
pub(crate) fn command_line(root: &Path) -> PathBuf {
    run(Command::new("cargo").current_dir(root).args([
        "build",
        "--quiet",
        "--release",
        "--manifest-path",
        "graph-cli/Cargo.toml",
    ]));
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    target.join("release/graph")
}

/// Returns the median duration of `what` over `rounds` rounds.
pub(crate) fn median(rounds: usize, mut what: impl FnMut()) -> Duration {
    let mut times: Vec<Duration> = (0..rounds)
        .map(|_| {
            let began = Instant::now();
            what();
            began.elapsed()
        })
        .collect();
    times.sort();
    times[rounds / 2]
}

/// Runs a command, which must succeed without warnings about a graph.
pub(crate) fn run(command: &mut Command) {
    let output = command.stdin(Stdio::null()).output().expect("the command can be started");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("warning["), "{command:?} found fault: {said}");
}

/// Writes the graphs `graphs/graph0.yaml` and so on of a package, and the tools that they call.
pub(crate) fn write_tree(package: &Path, shapes: &[Shape]) {
    let tools = shapes.iter().map(|shape| shape.tools).max().unwrap_or_default();
    write_graphs(package, tools, shapes.iter().map(|&shape| graph(shape)));
}

/// As [`write_tree`], for graphs that are given as texts.
pub(crate) fn write_graphs(package: &Path, tools: usize, graphs: impl Iterator<Item = String>) {
    let key = SecretKey::from_seed(&[7; 32]);
    fs::remove_dir_all(package.join("graphs")).ok();
    let owner = KeyFile::new(key.public(), "throw-away");
    let name = format!("graphs/keys/{}.toml", owner.fingerprint);
    write(package.join(name), &owner.to_signed_toml(&key, SystemTime::UNIX_EPOCH));
    let signed = |text: &str| sign(ItemKind::YAML, text, &key, SystemTime::UNIX_EPOCH).expect("the text can be signed");
    for tool in 0..tools {
        write(package.join(format!("graphs/tools/own/tool{tool}.yaml")), &signed(&contract(tool)));
    }
    for (at, graph) in graphs.enumerate() {
        write(package.join(format!("graphs/graph{at}.yaml")), &signed(&graph));
    }
}

/// Writes a file, and creates the directories that it is in.
pub(crate) fn write(path: PathBuf, text: &str) {
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

/// Returns the text of a graph up to its nodes, for a graph that calls these tools; `config` has lines of its `config`.
pub(crate) fn head(tools: usize, config: &str) -> String {
    let permissions: Vec<String> = (0..tools).map(|tool| format!("rye.execute.tool.own.tool{tool}")).collect();
    format!(
        "version: \"1.0.0\"
tool_type: graph
executor_id: rye/core/runtimes/state-graph/runtime
category: bench
permissions: [{}]
config_schema: {{ type: object, properties: {{ name: {{ type: string }} }}, required: [name] }}
config:
  {config}
  max_steps: 100000
  nodes:
",
        permissions.join(", ")
    )
}

/// Returns a graph in which every node calls a tool with the value that the node before it stored, and stores a value itself.
/// Then it continues, or goes back a few times.
fn graph(Shape { nodes, tools, keys }: Shape) -> String {
    let mut text = head(tools.min(nodes), "start: n0");
    for node in 0..nodes {
        let (tool, key, back) = (node % tools, node % keys, (node * 7) % (node + 1));
        let before =
            node.checked_sub(1).map_or_else(|| "inputs.name".to_owned(), |before| format!("state.k{}", before % keys));
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
    let last = (nodes - 1) % keys;
    text + &format!("    done: {{ type: return, output: {{ last: \"${{state.k{last}}}\" }} }}\n")
}

//! The graph that killed processes run: a loop with a large text in its state, tools that fail at first, a foreach with
//! concurrent calls, and a nested graph.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use graph_compiler::graph::TypedTool;
use graph_runtime::dynamic::{Interpreted, Library, ToolFuture, Tools};
use graph_runtime::{ActionError, Call, Durability, Map, Runtime, SecretKey, Store, Value};
use serde_json::json;

use crate::support::sign;
use crate::tree::Tree;

/// A loop with as many rounds as its inputs say: a text, a count, four concurrent items, and a nested graph.
const ROUNDS: &str = r#"
version: "1.0.0"
tool_type: graph
executor_id: rye/core/runtimes/state-graph/runtime
category: work
permissions: [rye.execute.tool.work.*]
config_schema:
  type: object
  properties:
    size: { type: integer, description: How long the text is. }
    rounds: { type: integer }
    items: { type: array, items: { type: integer } }
  required: [size, rounds, items]
config:
  start: fill
  max_steps: 10000
  state: { n: 0, sum: 0 }
  nodes:
    fill:
      action: { item_id: work/fill, params: { size: "${inputs.size}", n: "${state.n}" } }
      retry: { attempts: 4, delay: 1ms }
      assign: { text: "${result.text}" }
      next: count
    count:
      action: { item_id: work/count, params: { n: "${state.n}", rounds: "${inputs.rounds}" } }
      retry: { attempts: 4, delay: 1ms }
      assign: { n: "${result.n}", again: "${result.again}" }
      next: each
    each:
      type: foreach
      over: "${inputs.items}"
      parallel: true
      max_concurrency: 3
      action: { item_id: work/square, params: { of: "${item}" } }
      retry: { attempts: 4, delay: 1ms }
      collect: squares
      next: inside
    inside:
      action: { item_id: work/inner, params: { from: "${state.n}" } }
      assign: { sum: "${result.output.sum}" }
      next:
        - { to: fill, when: { path: state.again, value: fill } }
        - { to: count, when: { path: state.again, value: count } }
        - { to: done }
    done:
      type: return
      output: { n: "${state.n}", sum: "${state.sum}", squares: "${state.squares}", text: "${state.text}" }
"#;

const INNER: &str = r#"
version: "1.0.0"
tool_type: graph
executor_id: rye/core/runtimes/state-graph/runtime
category: work
permissions: [rye.execute.tool.work.*]
config_schema: { type: object, properties: { from: { type: integer } }, required: [from] }
config:
  start: first
  state: { sum: 0 }
  nodes:
    first:
      action: { item_id: work/count, params: { n: "${inputs.from}", rounds: 0 } }
      assign: { sum: "${result.n}" }
      next: second
    second:
      action: { item_id: work/count, params: { n: "${state.sum}", rounds: 0 } }
      retry: { attempts: 4, delay: 1ms }
      assign: { sum: "${result.n}" }
      next: done
    done: { type: return, output: { sum: "${state.sum}" } }
"#;

/// The tools with their parameters and results, all of which are required.
const CONTRACTS: [(&str, &[&str], &[&str]); 3] = [
    ("fill", &["size: { type: integer }", "n: { type: integer }"], &["text: { type: string }"]),
    (
        "count",
        &["n: { type: integer }", "rounds: { type: integer }"],
        &["n: { type: integer }", "again: { enum: [fill, count, done] }"],
    ),
    ("square", &["of: { type: integer }"], &["square: { type: integer }"]),
];

/// The items of each run.
const ITEMS: [i64; 4] = [3, 1, 4, 1];

/// Writes the graphs, their contracts, and the key that signed them.
pub(crate) fn tree() -> Tree {
    let tree = Tree::new();
    tree.write("rounds.yaml", sign(ROUNDS.trim_start()));
    tree.write("inner.yaml", sign(INNER.trim_start()));
    for (name, takes, returns) in CONTRACTS {
        let schema = |fields: &[&str]| {
            let name = |field: &&str| format!("\"{}\"", field.split(':').next().unwrap_or_default());
            let names: Vec<String> = fields.iter().map(name).collect();
            format!("{{ type: object, properties: {{ {} }}, required: [{}] }}", fields.join(", "), names.join(", "))
        };
        let (takes, returns) = (schema(takes), schema(returns));
        let text = format!("version: \"1.0.0\"\ntool_type: rust\nconfig_schema: {takes}\nresult_schema: {returns}\n");
        tree.write(&format!("tools/work/{name}.yaml"), sign(&text));
    }
    tree
}

/// Loads a graph of a tree: `rounds`, or `inner`, which is nested in it.
pub(crate) fn graph(tree: &Path, name: &str, tools: impl Tools) -> Interpreted {
    let library = Library::open(tree, tools);
    library.graph(&tree.join(format!("{name}.yaml"))).unwrap_or_else(|error| panic!("{error}"))
}

/// Returns the inputs of a run.
pub(crate) fn inputs(size: u64, rounds: u64) -> Map<String, Value> {
    let inputs = [("size", json!(size)), ("rounds", json!(rounds)), ("items", json!(ITEMS))];
    inputs.map(|(name, value)| (name.to_owned(), value)).into_iter().collect()
}

/// Returns the output of a run, even if its processes are killed.
pub(crate) fn output(size: u64, rounds: u64) -> Value {
    let squares: Vec<Value> = ITEMS.iter().map(|of| json!({"square": of * of})).collect();
    // The text is written each third round.
    json!({"n": rounds, "sum": rounds + 2, "squares": squares, "text": text(size, (rounds - 1) / 3 * 3)})
}

fn text(size: u64, n: u64) -> String {
    let size = usize::try_from(size).unwrap();
    let mut text = format!("{n} ");
    text.extend(std::iter::repeat_n("a line of text\n", size / 15 + 1));
    text.truncate(size);
    text
}

/// The tools. One call in six fails the first time that a process makes it.
pub(crate) struct Work<N> {
    /// The maximum duration of a call in microseconds.
    most: u64,
    /// Receives each call, before it is made and afterwards.
    note: N,
    failed: Mutex<HashSet<String>>,
}

/// The progress of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum At {
    Began,
    Returned,
}

impl<N: Fn(At, &Call)> Work<N> {
    pub(crate) fn new(most: u64, note: N) -> Self {
        Self { most, note, failed: Mutex::default() }
    }

    /// Returns true every other time. Entries that are no longer needed are removed, because some of these processes
    /// run long.
    fn fails_now(&self, key: String) -> bool {
        let mut failed = self.failed.lock().unwrap();
        let has_failed = failed.remove(&key);
        if !has_failed {
            failed.insert(key);
        }
        !has_failed
    }
}

impl<N: Fn(At, &Call) + Send + Sync + 'static> Tools for Work<N> {
    fn perform<'a>(&'a self, call: &'a Call, _: &'a TypedTool, params: Map<String, Value>) -> ToolFuture<'a> {
        Box::pin(async move {
            (self.note)(At::Began, call);
            let key = call.idempotency_key();
            let mut chance = Chance::of(u64::from_str_radix(&key[..16], 16).unwrap());
            let fails = chance.below(6) == 0;
            tokio::time::sleep(Duration::from_micros(chance.below(self.most))).await;
            if fails && call.node() != "first" && self.fails_now(key) {
                return Err(ActionError::transient("not yet"));
            }
            let number = |name: &str| params[name].as_u64().unwrap();
            let result = match call.tool() {
                "work/fill" => json!({"text": text(number("size"), number("n"))}),
                "work/count" => {
                    let n = number("n") + 1;
                    let again = match (n < number("rounds"), n % 3) {
                        (false, _) => "done",
                        (true, 0) => "fill",
                        (true, _) => "count",
                    };
                    json!({"n": n, "again": again})
                }
                "work/square" => json!({"square": number("of") * number("of")}),
                other => panic!("nobody calls {other}"),
            };
            (self.note)(At::Returned, call);
            Ok(result)
        })
    }
}

pub(crate) fn key() -> SecretKey {
    SecretKey::from_seed(&[3; 32])
}

pub(crate) fn runtime(store: impl Store) -> Runtime {
    Runtime::builder().store(store).sign_with(key()).grant("*").unwrap().build().unwrap()
}

/// Returns one of the three modes.
pub(crate) fn durability(number: u64) -> Durability {
    [Durability::Sync, Durability::Async, Durability::Exit][usize::try_from(number % 3).unwrap()]
}

/// Pseudorandom numbers from a seed (SplitMix64).
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn of(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

/// A process that is killed when this is dropped, at the latest.
pub(crate) struct Worker(pub(crate) Child);

impl Worker {
    /// Starts the process, with pipes for its input and output.
    pub(crate) fn start(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap())
    }

    pub(crate) fn output(&mut self) -> ChildStdout {
        self.0.stdout.take().unwrap()
    }

    /// Kills the process with SIGKILL, and waits until it is gone. Returns whether it was running.
    pub(crate) fn kill(&mut self) -> bool {
        let is_at_work = self.0.try_wait().unwrap().is_none();
        self.0.kill().unwrap();
        self.0.wait().unwrap();
        is_at_work
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // A process that has ended cannot be killed.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Ends this process when its parent process ends in any way.
pub(crate) fn end_with_parent() {
    thread::spawn(|| {
        drop(std::io::stdin().read_to_end(&mut Vec::new()));
        std::process::exit(1);
    });
}

/// Sends a line to the parent process.
pub(crate) fn send_line(line: &str) {
    // Bypasses the capture of a test's output.
    let mut out = std::io::stdout().lock();
    if out.write_all(format!("\n{line}\n").as_bytes()).and_then(|()| out.flush()).is_err() {
        std::process::exit(1);
    }
}

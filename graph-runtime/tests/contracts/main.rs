//! Random graphs that check without an error, with inputs and results that fit: no tool gets a value that its contract
//! refuses.
//!
//! A graph whose types are all known does not fail in other ways either: it reads no key that was never set, no
//! comparison fails, and a node fails only if its tool does. `CONTRACT_GRAPHS` is the number of graphs that must check
//! without an error, 150 by default. `SEED` selects other graphs, and `ROUND` is the first round. `SHOW` prints the
//! refusals and the totals.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod approvals;
mod dice;
mod graphs;
#[expect(dead_code, reason = "other tests use the rest")]
#[path = "../../../tests/support/rules.rs"]
mod judge;
mod rules;
mod schema;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use graph_compiler::graph::TypedTool;
use graph_runtime::dynamic::{Interpreted, Library, ToolFuture, Tools};
use graph_runtime::observer::{Event, Observer};
use graph_runtime::{ActionError, Call, Map, Runtime, Value};
use graph_signing::{ItemKind, KeyFile, SecretKey, sign};
use serde_json::json;

use dice::Dice;
use graphs::{COMPUTED, Made, World, graph};

/// The error of a tool that fails.
const FAILURE: &str = "the tool has no luck";

/// Everything that the tests observe of runs.
#[derive(Default)]
struct Seen {
    dice: Option<Dice>,
    /// The contracts by the tools' ids: parameters and result.
    contracts: HashMap<String, (Value, Value)>,
    is_typed: bool,
    calls: u64,
    /// The number of calls to an id that the run computed.
    computed: u64,
    /// Graphs by their ids.
    graphs: HashMap<String, Value>,
    /// The graph of each run, and the keys that were set.
    runs: BTreeMap<String, (String, BTreeSet<String>)>,
    wrong: Vec<String>,
}

#[derive(Clone, Default)]
struct Stage(Arc<Mutex<Seen>>);

impl Stage {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tools for Stage {
    fn perform<'a>(&'a self, call: &'a Call, _row: &'a TypedTool, params: Map<String, Value>) -> ToolFuture<'a> {
        let mut seen = self.seen();
        seen.calls += 1;
        let params = Value::Object(params);
        let Some((takes, returns)) = seen.contracts.get(call.tool()).cloned() else {
            return Box::pin(async { Err(ActionError::permanent(FAILURE)) });
        };
        seen.computed += u64::from(call.tool().starts_with(COMPUTED));
        if let Some(why) = schema::misfit(&takes, &params) {
            seen.wrong.push(format!("`{}` got {params}: {why}", call.tool()));
        }
        let dice = seen.dice.get_or_insert_with(|| Dice::new(0));
        let answer = match dice.below(12) {
            0 => Err(ActionError::permanent(FAILURE)),
            _ => Ok(schema::value(dice, &returns)),
        };
        Box::pin(async move { answer })
    }
}

impl Observer for Stage {
    fn observe(&self, event: &Event<'_>) {
        let mut seen = self.seen();
        match event {
            Event::RunStarted { run, graph, .. } => {
                let config = &seen.graphs[graph.as_str()]["config"];
                let keys = config["state"].as_object().into_iter().flatten().map(|(key, _)| key.clone()).collect();
                seen.runs.insert(run.to_string(), (graph.to_string(), keys));
            }
            Event::StepCompleted { run, node, error, warnings, .. } => {
                let Some((graph, mut keys)) = seen.runs.remove(run.as_str()) else { return };
                let definition = &seen.graphs[&graph]["config"]["nodes"][*node];
                // If the run continues along its edges, a foreach that failed has collected the results so far, or an
                // empty list.
                let collects_all = definition["type"] == "foreach" && definition.get("on_error").is_none();
                if error.is_none() || collects_all {
                    keys.extend(written(definition));
                }
                for key in warnings.iter().filter_map(|warning| unset(warning, &keys)) {
                    seen.wrong.push(format!("node `{node}` read `state.{key}`, which nothing had set"));
                }
                if let Some(error) = error.filter(|error| seen.is_typed && !is_of_tool(error)) {
                    seen.wrong.push(format!("node `{node}` failed: {error}"));
                }
                seen.runs.insert(run.to_string(), (graph, keys));
            }
            _ => {}
        }
    }
}

/// Returns the keys that a node writes.
fn written(node: &Value) -> Vec<String> {
    let assigned = node["assign"].as_object().into_iter().flatten().map(|(key, _)| key.clone());
    assigned.chain(node["collect"].as_str().map(str::to_owned)).collect()
}

/// Returns the keys that a warning says were read, if the template reads nothing else and none of the keys was set.
fn unset(warning: &str, set: &BTreeSet<String>) -> Option<String> {
    let paths = warning.strip_prefix("`${")?.strip_suffix("}` found nothing")?;
    let key = |path: &str| path.strip_prefix("state.")?.split('.').next().map(str::to_owned);
    let keys: Vec<String> = paths.split(" || ").map(key).collect::<Option<_>>()?;
    (!keys.iter().any(|key| set.contains(key))).then(|| keys.join("` and `state."))
}

/// Whether a failure comes from a tool or the step limit, and not from the graph itself.
fn is_of_tool(error: &str) -> bool {
    error.contains(FAILURE) || error.contains("Max steps exceeded")
}

/// A tree with contracts, and the stage that performs its tools.
struct Tree {
    directory: tempfile::TempDir,
    library: Library,
    world: World,
    stage: Stage,
    number: usize,
}

impl Tree {
    fn new(dice: &mut Dice, is_typed: bool) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut world = World::new(dice, is_typed);
        let file = KeyFile::new(key().public(), "the key of these tests");
        let write = |name: &str, text: String| {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write(&format!("keys/{}.toml", file.fingerprint), file.to_signed_toml(&key(), SystemTime::UNIX_EPOCH));
        // A random graph has many comparisons with a constant result. In a typed graph, values of known and unknown
        // types must not meet.
        let mut levels: Vec<String> =
            ["G0162", "G0160", "G0171"].iter().map(|lint| format!("{lint} = \"allow\"")).collect();
        if is_typed {
            levels.push("G0153 = \"deny\"".into());
        }
        write("graphs.toml", signed(&format!("[lints]\n{}\n", levels.join("\n"))));
        let mut contracts = HashMap::new();
        for (id, params, result) in world.tools.iter().chain(&world.computed) {
            let contract = json!({
                "version": "1.0.0", "tool_type": "rust", "config_schema": params, "result_schema": result,
            });
            write(&format!("tools/{id}.yaml"), signed(&format!("{contract:#}\n")));
            contracts.insert(id.clone(), (params.clone(), result.clone()));
        }
        let stage = Stage::default();
        let mut graphs = HashMap::new();
        // A library lists the graphs of its tree once, so the nested graphs are written before. A graph with mistakes
        // is overwritten by the next one.
        while world.graphs.len() < 2 {
            let id = format!("g/inner{}", world.graphs.len());
            let Made { graph, inputs, output } = graph(dice, &world);
            let path = directory.path().join(format!("inner{}.yaml", world.graphs.len()));
            fs::write(&path, signed(&format!("{graph:#}\n"))).unwrap();
            if Library::open(directory.path(), stage.clone()).graph(&path).is_ok() {
                graphs.insert(id.clone(), graph);
                world.graphs.push((id, inputs, output));
            }
        }
        *stage.seen() = Seen { contracts, is_typed, graphs, ..Seen::default() };
        let library = Library::open(directory.path(), stage.clone());
        Self { directory, library, world, stage, number: 0 }
    }

    /// Loads a graph; `None` if the checker refuses it.
    fn load(&mut self, graph: &Value) -> Option<Interpreted> {
        self.number += 1;
        let path: PathBuf = self.directory.path().join(format!("x{}.yaml", self.number));
        fs::write(&path, signed(&format!("{graph:#}\n"))).unwrap();
        let loaded = self.library.graph(&path);
        fs::remove_file(path).unwrap();
        if let (Err(error), true) = (&loaded, shows()) {
            for diagnostic in &error.diagnostics {
                if diagnostic.severity == graph_compiler::diagnostic::Severity::Error {
                    eprintln!("refused: {} {} {}", self.number, diagnostic.code.id, diagnostic.message);
                }
            }
        }
        let graph_id = format!("g/x{}", self.number);
        self.stage.seen().graphs.insert(graph_id, graph.clone());
        loaded.ok()
    }
}

fn shows() -> bool {
    std::env::var_os("SHOW").is_some()
}

fn key() -> SecretKey {
    SecretKey::from_seed(&[9; 32])
}

fn signed(text: &str) -> String {
    sign(ItemKind::YAML, text, &key(), SystemTime::UNIX_EPOCH).unwrap()
}

/// The totals over all graphs.
#[derive(Debug, Default)]
struct Sum {
    made: u64,
    checked: u64,
    runs: u64,
    succeeded: u64,
    calls: u64,
    computed: u64,
}

#[test]
fn no_tool_gets_a_value_that_its_contract_refuses() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (wanted, seed) = (number("CONTRACT_GRAPHS").unwrap_or(150), number("SEED").unwrap_or_default());
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let (mut sum, mut wrong) = (Sum::default(), Vec::new());
    let mut round = number("ROUND").unwrap_or_default();
    while sum.checked < wanted && wrong.len() < 10 {
        let mut dice = Dice::new(seed.wrapping_mul(1_000_003).wrapping_add(round));
        let mut tree = Tree::new(&mut dice, round % 4 != 3);
        for _ in 0..120 {
            let Made { graph, inputs, .. } = graph(&mut dice, &tree.world);
            sum.made += 1;
            let Some(loaded) = tree.load(&graph) else { continue };
            sum.checked += 1;
            for _ in 0..2 {
                tree.stage.seen().dice = Some(Dice::new(dice.next()));
                let given = schema::value(&mut dice, &inputs);
                let given = given.as_object().cloned().unwrap_or_default();
                sum.runs += 1;
                let runtime = Runtime::builder().observer(tree.stage.clone()).grant("*").unwrap().build().unwrap();
                let ended = tokio.block_on(async {
                    match runtime.start(loaded.clone(), given.clone()).await {
                        Ok(run) => run.await.map(|_| ()).map_err(|error| error.to_string()),
                        Err(error) => Err(format!("not started: {error}")),
                    }
                });
                let mut seen = tree.stage.seen();
                sum.succeeded += u64::from(ended.is_ok());
                sum.calls += std::mem::take(&mut seen.calls);
                sum.computed += std::mem::take(&mut seen.computed);
                seen.runs.clear();
                let mut found = std::mem::take(&mut seen.wrong);
                if let Err(error) = ended
                    && (error.contains("not started") || (seen.is_typed && !is_of_tool(&error)))
                {
                    found.push(error);
                }
                if !found.is_empty() {
                    wrong.push(format!(
                        "round {round}, seed {seed}, inputs {}:\n  {}\n{graph}\n{}",
                        Value::Object(given),
                        found.join("\n  "),
                        json!(seen.contracts),
                    ));
                    break;
                }
            }
        }
        round += 1;
    }
    if shows() {
        eprintln!("{sum:?}");
    }
    assert!(wrong.is_empty(), "{} of {sum:?}:\n{}", wrong.len(), wrong.join("\n\n"));
    assert!(sum.calls > sum.checked, "the graphs call too little: {sum:?}");
    assert!(sum.computed > 0 || wanted < 150, "no tool is called by a computed id: {sum:?}");
    assert!(sum.succeeded * 3 > sum.runs, "too few runs succeed: {sum:?}");
}

#[test]
fn a_computed_id_is_held_to_its_contract_before_the_call() {
    let tree = Tree::new(&mut Dice::new(1), false);
    let contract = json!({
        "version": "1.0.0",
        "tool_type": "rust",
        "config_schema": {
            "type": "object",
            "properties": {
                "number": {"type": "integer"},
                "list": {"type": "array", "items": {"type": "string"}},
                "word": {"enum": ["red", "blue"]},
            },
            "required": ["number"],
        },
    });
    fs::create_dir_all(tree.directory.path().join("tools/e")).unwrap();
    fs::write(tree.directory.path().join("tools/e/f.yaml"), signed(&format!("{contract:#}\n"))).unwrap();
    let value = json!({});
    let graph = json!({
        "version": "1.0.0",
        "tool_type": "graph",
        "executor_id": "rye/core/runtimes/state-graph/runtime",
        "category": "g",
        "permissions": ["rye.execute.tool.*"],
        "config_schema": {
            "type": "object",
            "properties": {"which": {"type": "string", "x-sink": "item"}, "number": value, "list": value, "word": value},
            "required": ["which"],
        },
        "config": {"start": "a", "nodes": {
            "a": {
                "action": {"item_id": "e/${inputs.which}", "params": {
                    "number": "${inputs.number}", "list": "${inputs.list}", "word": "${inputs.word}",
                }},
                "next": "b",
            },
            "b": {"type": "return"},
        }},
    });
    let path = tree.directory.path().join("computed.yaml");
    fs::write(&path, signed(&format!("{graph:#}\n"))).unwrap();
    {
        let mut seen = tree.stage.seen();
        seen.graphs.insert("g/computed".into(), graph);
        seen.contracts.insert("e/f".into(), (contract["config_schema"].clone(), json!({"type": "object"})));
        // With this seed the tool does not fail.
        seen.dice = Some(Dice::new(3));
    }
    let loaded = Library::open(tree.directory.path(), tree.stage.clone()).graph(&path).unwrap();
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let run = |inputs: Value| {
        let runtime = Runtime::builder().observer(tree.stage.clone()).grant("*").unwrap().build().unwrap();
        let ended = tokio.block_on(async {
            runtime.start(loaded.clone(), inputs.as_object().cloned().unwrap()).await.unwrap().await.map(|_| ())
        });
        let calls = std::mem::take(&mut tree.stage.seen().calls);
        (ended.err().map(|error| error.to_string()).unwrap_or_default(), calls)
    };
    let fit = run(json!({"which": "f", "number": 21, "list": ["a"], "word": "red"}));
    assert_eq!(fit, (String::new(), 1));
    for (inputs, place) in [
        (json!({"which": "f", "number": "many"}), "`number`"),
        (json!({"which": "f", "list": ["a"]}), "`number`"),
        (json!({"which": "f", "number": 1.5}), "`number`"),
        (json!({"which": "f", "number": 1, "list": ["a", null]}), "`list.1`"),
        (json!({"which": "f", "number": 1, "list": "a"}), "`list`"),
        (json!({"which": "f", "number": 1, "word": "green"}), "`word`"),
    ] {
        let (error, calls) = run(inputs.clone());
        assert!(calls == 0 && error.contains(place), "{inputs}: {calls} calls, {error}");
    }
    assert!(tree.stage.seen().wrong.is_empty());
}

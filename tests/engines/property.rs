//! Random graphs with random answers: a graph that the checker accepts runs to an end, with the same result each time.
//!
//! `PROPTEST_CASES` is the number of graphs, 256 by default; `SEED` selects other graphs.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use graph_compiler::graph::{Interface, TypedTool};
use graph_compiler::types::{Type, TypeKind};
use graph_model::digest::Digest;
use graph_runtime::dynamic::{Interpreted, Library, ToolFuture, Tools};
use graph_runtime::{ActionError, Call, Category, Map, Value};
use graph_signing::{ItemKind, KeyFile, SecretKey, sign};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{RngAlgorithm, TestCaseError, TestRng, TestRunner};
use serde_json::json;

use super::case::{Log, Whole, play, play_again};

/// A graph and the answers of its tools.
#[derive(Debug, Clone)]
struct Sample {
    graph: Value,
    inputs: Map<String, Value>,
    /// The seed of the answers.
    seed: u64,
    /// The point at which the run is cut, in thousandths of its records.
    cut: usize,
}

/// A value without templates.
fn literal() -> BoxedStrategy<Value> {
    let leaf = prop_oneof![
        4 => (-3_i64..6).prop_map(Value::from),
        1 => prop_oneof![Just(json!(2.0)), Just(json!(0.5)), Just(json!(9_007_199_254_740_993_i64))],
        1 => any::<bool>().prop_map(Value::from),
        1 => Just(Value::Null),
        2 => prop_oneof![Just("a"), Just("b"), Just(""), Just("error"), Just("12")].prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 6, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::vec((prop_oneof![Just("a"), Just("b")], inner), 0..3).prop_map(|fields| Value::Object(
                fields.into_iter().map(|(name, value)| (name.into(), value)).collect()
            )),
        ]
    })
    .boxed()
}

/// The place of an expression, which decides what it can read.
#[derive(Clone, Copy, PartialEq)]
enum Site {
    Params,
    Item,
    Assign,
    Gate,
    Output,
}

/// A path that an expression at this place can read.
fn path(site: Site) -> BoxedStrategy<String> {
    let mut paths = vec![
        "state.number",
        "state.text",
        "state.list",
        "state.list.0",
        "state.list[-1]",
        "state.object",
        "state.object.a",
        "state.free",
        "state.free.a",
        "state.free.0",
        "state.free.b.a",
        "state.got",
        "state.got.0",
        "state.flag",
        "state._last_error.error",
        "state._last_error",
        "state._retries.n0",
        "state",
        "inputs.x",
        "inputs.x.a",
        "inputs.n_",
        "inputs.s",
        "inputs.l",
        "inputs.l.1",
        "inputs.o.a",
        "inputs",
        "_timestamp",
        "_now",
    ];
    match site {
        Site::Item => paths.extend(["item", "item.a", "item.0"]),
        Site::Assign => {
            paths.extend(["result", "result.a", "result.count", "result.output", "result.word", "result.a.b"]);
        }
        Site::Params | Site::Gate | Site::Output => {}
    }
    if site != Site::Output {
        paths.push("visit.number");
    }
    if matches!(site, Site::Params | Site::Assign) {
        paths.push("visit.previous");
    }
    prop::sample::select(paths).prop_map(str::to_owned).boxed()
}

/// A value with templates.
fn term(site: Site) -> BoxedStrategy<Value> {
    let template = prop_oneof![
        5 => path(site).prop_map(|path| format!("${{{path}}}")),
        1 => (path(site), path(site)).prop_map(|(one, two)| format!("${{{one} || {two}}}")),
        1 => path(site).prop_map(|path| format!("<${{{path}}}>")),
        1 => Just("$${x}".to_owned()),
    ];
    let leaf = prop_oneof![2 => literal(), 3 => template.prop_map(Value::from)];
    leaf.prop_recursive(1, 4, 2, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 1..3).prop_map(Value::from),
            prop::collection::vec((prop_oneof![Just("a"), Just("b")], inner), 1..3).prop_map(|fields| Value::Object(
                fields.into_iter().map(|(name, value)| (name.into(), value)).collect()
            )),
        ]
    })
    .boxed()
}

/// A condition on the `open` paths, whose types are unknown, and on keys and inputs of a known type.
fn condition(open: Vec<&'static str>) -> BoxedStrategy<Value> {
    let open = prop::sample::select(open);
    let test = |path: &str, op: &str, value: Value| json!({"path": path, "op": op, "value": value});
    let equal = || prop::sample::select(vec!["eq", "ne", "neq"]);
    let order = || prop::sample::select(vec!["gt", "gte", "lt", "lte"]);
    let number = prop::sample::select(vec!["state.number", "inputs.n_"]);
    let text = prop::sample::select(vec!["state.text", "inputs.s"]);
    let known = prop_oneof![
        (number, prop_oneof![equal(), order()], -1_i64..4).prop_map(move |(path, op, value)| test(
            path,
            op,
            value.into()
        )),
        (
            text,
            prop::sample::select(vec!["eq", "ne", "contains", "regex", "lt"]),
            prop::sample::select(vec!["a", "any", "<"])
        )
            .prop_map(move |(path, op, value)| test(path, op, value.into())),
        any::<bool>().prop_map(move |value| test("state.flag", "eq", value.into())),
    ];
    let unknown = prop_oneof![
        3 => (open.clone(), equal(), literal()).prop_map(move |(path, op, value)| test(path, op, value)),
        2 => open.clone().prop_map(|path| json!({"path": path, "op": "exists"})),
        2 => (open.clone(), order(), -1_i64..4).prop_map(move |(path, op, value)| test(path, op, value.into())),
        1 => (open.clone(), prop::collection::vec(literal(), 0..3)).prop_map(move |(path, list)| test(path, "in", list.into())),
        1 => (open.clone(), literal()).prop_map(move |(path, value)| test(path, "contains", value)),
        1 => open.prop_map(move |path| test(path, "regex", "^[0-9a]+$".into())),
    ];
    let test = prop_oneof![2 => unknown, 1 => known];
    test.prop_recursive(2, 5, 2, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(|list| json!({"any": list})),
            prop::collection::vec(inner.clone(), 0..3).prop_map(|list| json!({"all": list})),
            inner.prop_map(|one| json!({"not": one})),
        ]
    })
    .boxed()
}

/// The paths of unknown type that edges can read, after an action or not.
fn unknown(site: Site) -> Vec<&'static str> {
    let mut paths = vec!["state.free", "state.free.a", "state.free.0", "inputs.x", "inputs.x.a", "inputs.x.b.0"];
    if site == Site::Assign {
        paths.extend(["result.a", "result", "result.status"]);
    }
    paths
}

/// An action: a tool without a contract, a tool with one, a graph, or a computed id.
fn action(site: Site) -> BoxedStrategy<Value> {
    let params = || prop::collection::vec((prop_oneof![Just("p"), Just("q")], term(site)), 0..3);
    let object = |fields: Vec<(&'static str, Value)>| -> Value {
        Value::Object(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    };
    prop_oneof![
        4 => params().prop_map(move |params| json!({"item_id": "t/any", "params": object(params)})),
        2 => (prop_oneof![Just(json!(1)), Just(json!("${state.number}")), Just(json!("${state.free.a}"))], term(site))
            .prop_map(|(count, any)| json!({"item_id": "t/typed", "params": {"count": count, "any": any}})),
        1 => term(site).prop_map(|x| json!({"item_id": "p/child", "params": {"x": x}})),
        1 => prop_oneof![Just("t/${state.text}"), Just("${inputs.s}")].prop_map(|id| json!({"item_id": id})),
    ]
    .boxed()
}

const KEYS: [&str; 6] = ["number", "text", "list", "object", "free", "flag"];

fn assign(site: Site) -> BoxedStrategy<Value> {
    let entry = prop_oneof![
        // Most keys keep their type.
        2 => prop_oneof![Just(json!("${visit.number}")), (0_i64..5).prop_map(Value::from)].prop_map(|value| ("number", value)),
        2 => path(site).prop_map(|path| ("text", Value::from(format!("<${{{path}}}>")))),
        3 => term(site).prop_map(|value| ("free", value)),
        1 => (prop::sample::select(KEYS.to_vec()), term(site)).prop_map(|(key, value)| (key, value)),
        1 => any::<bool>().prop_map(|value| ("flag", Value::from(value))),
    ];
    prop::collection::vec(entry, 0..4)
        .prop_map(|entries| Value::Object(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()))
        .boxed()
}

/// The channels of a graph. Half of the graphs have none.
fn channels() -> BoxedStrategy<Value> {
    let channel = |(key, reducers): (&'static str, &'static [&'static str])| {
        prop::option::weighted(0.5, prop::sample::select(reducers.to_vec())).prop_map(move |reducer| (key, reducer))
    };
    let all: [(&str, &[&str]); 7] = [
        ("number", &["sum", "max", "min", "last"]),
        ("text", &["max", "min", "last"]),
        ("list", &["append", "extend", "union", "messages", "last"]),
        ("object", &["merge", "last"]),
        ("free", &["last"]),
        ("flag", &["last"]),
        ("got", &["append", "extend", "union"]),
    ];
    let some = all.into_iter().map(channel).collect::<Vec<_>>().prop_map(|channels| {
        let named = channels.into_iter().filter_map(|(key, reducer)| Some((key.to_owned(), Value::from(reducer?))));
        Value::Object(named.collect())
    });
    prop_oneof![Just(json!({})), some].boxed()
}

/// A node that leads to the next one and to others among `count`.
fn node(at: usize, count: usize) -> BoxedStrategy<Value> {
    let name = |to: usize| format!("n{to}");
    let targets = 0..count;
    let edges = |site: Site| {
        let paths = unknown(site);
        prop::collection::vec((prop::option::weighted(0.8, targets.clone()), condition(paths)), 0..3)
    };
    let onward = move |edges: Vec<(Option<usize>, Value)>, last: u8| -> Value {
        let mut list: Vec<Value> = edges
            .into_iter()
            .map(|(to, when)| match to {
                Some(to) => json!({"to": name(to), "when": when}),
                None => json!({"when": when}),
            })
            .collect();
        match last {
            // Each node leads to the next one, so that all nodes can be reached.
            0 if !list.is_empty() => {
                list.push(json!({"to": name(at + 1), "when": {"path": "state.number", "op": "exists"}}));
            }
            _ if list.is_empty() => return Value::from(name(at + 1)),
            _ => list.push(json!({"to": name(at + 1)})),
        }
        Value::from(list)
    };
    let conduct = (
        prop::option::weighted(0.3, 0..count),
        prop::option::weighted(
            0.3,
            prop_oneof![
                Just(json!(2)),
                Just(json!({"attempts": 3, "delay": "10ms", "on": ["any"]})),
                Just(json!({"attempts": 4, "delay": 1, "factor": 3, "jitter": 0.5})),
            ],
        ),
        prop::option::weighted(0.3, prop_oneof![Just(json!("3s")), Just(json!(0.05))]),
        prop::option::weighted(0.05, any::<bool>()),
    );
    let with = move |mut node: Value,
                     (on_error, retry, timeout, feedback): (
        Option<usize>,
        Option<Value>,
        Option<Value>,
        Option<bool>,
    )| {
        if let Some(to) = on_error {
            node["on_error"] = json!(format!("n{to}"));
        }
        if let Some(retry) = retry {
            node["retry"] = retry;
        }
        if let Some(timeout) = timeout {
            node["timeout"] = timeout;
        }
        if let Some(feedback) = feedback {
            node["feedback"] = json!(feedback);
        }
        node
    };
    let over = prop_oneof![
        3 => Just(json!("${state.list}")), 2 => Just(json!("${state.free}")), 2 => Just(json!("${inputs.l}")),
        1 => Just(json!("${inputs.x}")), 1 => prop::collection::vec(literal(), 0..4).prop_map(Value::from),
        1 => Just(json!("${state.got}")),
    ];
    let width = prop_oneof![
        Just(json!({})),
        Just(json!({"parallel": true})),
        Just(json!({"parallel": true, "max_concurrency": 2}))
    ];
    prop_oneof![
        5 => (action(Site::Params), assign(Site::Assign), edges(Site::Assign), 0..4_u8, conduct.clone()).prop_map(
            move |(action, assign, edges, last, conduct)| {
                with(json!({"action": action, "assign": assign, "next": onward(edges, last)}), conduct)
            }),
        3 => (assign(Site::Gate), edges(Site::Gate), 0..4_u8)
            .prop_map(move |(assign, edges, last)| json!({"type": "gate", "assign": assign, "next": onward(edges, last)})),
        3 => (over, action(Site::Item), prop::option::weighted(0.8, prop_oneof![4 => Just("got"), 1 => Just("free"), 1 => Just("list")]), width, edges(Site::Gate), 0..4_u8, conduct).prop_map(
            move |(over, action, collect, width, edges, last, conduct)| {
                let mut node = json!({"type": "foreach", "over": over, "action": action, "next": onward(edges, last)});
                if let Some(collect) = collect {
                    node["collect"] = json!(collect);
                }
                for (name, value) in width.as_object().into_iter().flatten() {
                    node[name] = value.clone();
                }
                with(node, conduct)
            }),
    ]
    .boxed()
}

fn hook() -> BoxedStrategy<Value> {
    let paths = vec!["state.number", "state.free", "state.step_count", "inputs.x"];
    let when = prop::option::weighted(0.7, condition(paths));
    let call = Just(json!({"item_id": "t/hook", "params": {"seen": "${state.free}"}}));
    let reaction = prop_oneof![
        3 => (prop::sample::select(vec!["graph_started", "after_step", "error", "limit", "graph_completed"]), call)
            .prop_map(|(event, action)| json!({"event": event, "action": action})),
        2 => (1..4_i64).prop_map(|most| json!({"event": "error", "action": {"retry": true, "max_retries": most}})),
        1 => Just(json!({"event": "error", "action": {"fail": true, "error": "enough of ${node}: ${error.message}"}})),
        1 => Just(json!({"event": "limit", "action": {"continue": true, "additional_steps": 3}})),
        1 => Just(json!({"event": "error", "action": {"abort": true}})),
    ];
    (reaction, when)
        .prop_map(|(mut hook, when)| {
            if let Some(when) = when {
                hook["condition"] = when;
            }
            hook
        })
        .boxed()
}

fn sample() -> impl Strategy<Value = Sample> {
    let graph = (1..12_usize).prop_flat_map(|count| {
        let nodes: Vec<_> = (0..count).map(|at| node(at, count + 1)).collect();
        let output = prop::option::weighted(
            0.5,
            prop::collection::vec((prop_oneof![Just("a"), Just("b")], term(Site::Output)), 0..3),
        );
        let settings = (
            1..40_u32,
            prop_oneof![Just("fail"), Just("continue")],
            prop_oneof![4 => Just("return"), 1 => Just("fail")],
            prop_oneof![3 => Just("fail"), 1 => Just("return_last"), 1 => Just("return_with_flag")],
        );
        (nodes, output, settings, prop::collection::vec(hook(), 0..3), channels())
    });
    let graph = graph.prop_map(|(nodes, output, (max_steps, on_error, on_no_match, on_max_steps), hooks, channels)| {
        let mut all = Map::new();
        let count = nodes.len();
        for (at, node) in nodes.into_iter().enumerate() {
            all.insert(format!("n{at}"), node);
        }
        // An input without a type may have any value.
        all.insert("first".into(), json!({"type": "gate", "assign": {"free": "${inputs.x}"}, "next": "n0"}));
        let mut end = json!({"type": "return"});
        if let Some(output) = output {
            end["output"] = Value::Object(output.into_iter().map(|(name, value)| (name.to_owned(), value)).collect());
        }
        all.insert(format!("n{count}"), end);
        // Every key that a random graph may read is written here, including the collected one.
        json!({
            "version": "1.0.0",
            "tool_type": "graph",
            "executor_id": "rye/core/runtimes/state-graph/runtime",
            "category": "p",
            "permissions": ["rye.execute.tool.*"],
            "limits": {"timeout": "2h", "depth": 3},
            "config_schema": {"type": "object", "properties": {
                "x": {},
                "n_": {"type": "integer", "default": 2},
                "s": {"type": "string", "default": "t/any"},
                "l": {"type": "array", "items": {"type": "integer"}, "default": [1, 2]},
                "o": {"type": "object", "properties": {"a": {"type": "number"}}},
            }},
            "config": {
                "start": "first",
                "max_steps": max_steps,
                "on_error": on_error,
                "on_no_match": on_no_match,
                "on_max_steps": on_max_steps,
                "state": {"number": 0, "text": "any", "list": [1, 2], "object": {"a": 1}, "free": null, "flag": true, "got": []},
                "channels": channels,
                "hooks": hooks,
                "nodes": all,
            },
        })
    });
    (graph, prop::option::weighted(0.7, literal()), any::<u64>(), 0..1000_usize).prop_map(|(graph, x, seed, cut)| {
        let inputs = x.into_iter().map(|x| ("x".to_owned(), x)).collect();
        Sample { graph, inputs, seed, cut }
    })
}

/// Answers that depend only on the seed, the call and the number of the attempt.
#[derive(Clone, Default)]
struct Dice {
    state: Arc<Mutex<Thrown>>,
}

#[derive(Default)]
struct Thrown {
    seed: u64,
    attempts: HashMap<(String, String), u64>,
    calls: Vec<String>,
}

impl Dice {
    fn set(&self, seed: u64) {
        *self.lock() = Thrown { seed, ..Thrown::default() };
    }

    fn calls(&self) -> Vec<String> {
        self.lock().calls.clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Thrown> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn throw(&self, call: &Call, params: &Map<String, Value>) -> [u8; 32] {
        let mut state = self.lock();
        let key = (call.tool().to_owned(), call.idempotency_key());
        state.calls.push(format!("{} {} {}", key.0, key.1, Value::Object(params.clone())));
        let attempt = state.attempts.entry(key.clone()).or_default();
        *attempt += 1;
        let text = format!("{attempt}/{key:?}");
        let seed = state.seed;
        *Digest::of(format!("{seed}/{text}")).as_bytes()
    }
}

impl Tools for Dice {
    fn perform<'a>(&'a self, call: &'a Call, row: &'a TypedTool, params: Map<String, Value>) -> ToolFuture<'a> {
        let dice = self.throw(call, &params);
        let typed = row.typed;
        Box::pin(async move {
            if dice[0] < 40 {
                tokio::time::sleep(Duration::from_millis(u64::from(dice[1]) * 40)).await;
            }
            let small = i64::from(dice[2] % 5);
            let word = ["low", "high"][usize::from(dice[6] % 2)];
            let wish = ["retry", "fail", "continue", "skip"][usize::from(dice[6] % 4)];
            match dice[3] {
                0..=2 => std::future::pending().await,
                // This does not call the panic hook, which would print thousands of panics.
                3..=10 => std::panic::resume_unwind(Box::new("a bug")),
                11..=50 => {
                    let category = Category::ALL[usize::from(dice[4] % 4)];
                    Err(ActionError::new(category, format!("failure {small}")).with_data(json!({"a": small})))
                }
                51..=60 => Err(ActionError::unclassified("the network timed out").with_status(503)),
                61..=70 => Ok(json!({"success": false, "error": "no luck", "a": 1})),
                _ if typed && dice[5] < 230 => Ok(json!({"count": small, "word": word})),
                71..=90 => Ok(json!({"action": wish, "a": [1]})),
                91..=120 => Ok(json!({"status": "success", "data": {"a": small}, "chain": []})),
                121..=150 => Ok(json!({"a": {"b": small}, "count": 2.0, "output": null})),
                151..=180 => Ok(json!([small, {"a": "b"}])),
                181..=200 => Ok(Value::Null),
                _ => Ok(json!({"a": small, "b": [small]})),
            }
        })
    }
}

/// A tree with the contracts and graphs that random graphs call.
struct Tree {
    directory: tempfile::TempDir,
    library: Library,
    dice: Dice,
    number: usize,
}

impl Tree {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("there is room for a directory");
        let key = SecretKey::from_seed(&[9; 32]);
        let write = |name: &str, text: String| {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().expect("it is in a directory")).expect("there is room");
            fs::write(path, text).expect("there is room for a file");
        };
        let file = KeyFile::new(key.public(), "the key of these tests");
        write(&format!("keys/{}.toml", file.fingerprint), file.to_signed_toml(&key, SystemTime::UNIX_EPOCH));
        // Graphs may do things that are probably mistakes.
        let lints = ["G0150", "G0151", "G0154", "G0160", "G0162", "G0165", "G0170", "G0171", "G0172", "G0197"];
        let levels: String = lints.iter().map(|lint| format!("{lint} = \"allow\"\n")).collect();
        write("graphs.toml", signed_text(&format!("[lints]\n{levels}")));
        write(
            "tools/t/typed.yaml",
            signed(&json!({
                "version": "1.0.0",
                "tool_type": "rust",
                "config_schema": {"type": "object", "properties": {"count": {"type": "integer"}, "any": {}}, "required": ["count"]},
                "result_schema": {"type": "object", "properties": {
                    "count": {"type": "integer"},
                    "word": {"enum": ["low", "high"]},
                    "a": {"type": "array", "items": {"type": "number"}, "default": [1]},
                    "output": {},
                }, "required": ["count"]},
            })),
        );
        write(
            "child.yaml",
            signed(&json!({
                "version": "1.0.0",
                "tool_type": "graph",
                "executor_id": "rye/core/runtimes/state-graph/runtime",
                "category": "p",
                "permissions": ["rye.execute.tool.t.*"],
                "config_schema": {"type": "object", "properties": {"x": {}}},
                "config": {"start": "a", "max_steps": 9, "nodes": {
                    "a": {"action": {"item_id": "t/any", "params": {"x": "${inputs.x}"}}, "assign": {"a": "${result.a}"},
                          "next": [{"to": "b", "when": {"path": "result.a", "op": "exists"}}, {"to": "a"}]},
                    "b": {"action": {"item_id": "t/typed", "params": {"count": "${visit.number}"}}, "next": "c"},
                    "c": {"type": "return", "output": {"a": "${state.a}"}},
                }},
            })),
        );
        let dice = Dice::default();
        let library = Library::open(directory.path(), dice.clone());
        Self { directory, library, dice, number: 0 }
    }

    /// Loads a graph; `None` if the checker refuses it.
    fn load(&mut self, graph: &Value) -> Result<Option<Interpreted>, String> {
        self.number += 1;
        let path: PathBuf = self.directory.path().join(format!("g{}.yaml", self.number));
        fs::write(&path, signed(graph)).map_err(|error| error.to_string())?;
        let loaded = self.library.graph(&path);
        fs::remove_file(path).map_err(|error| error.to_string())?;
        match loaded {
            Ok(graph) => Ok(Some(graph)),
            Err(error) if error.diagnostics.is_empty() => Err("refused without a reason".to_owned()),
            Err(error) => {
                if std::env::var_os("SHOW").is_some() {
                    eprintln!("{error}");
                }
                Ok(None)
            }
        }
    }
}

/// Signs a value as JSON, which is YAML and needs no thought about quotes.
fn signed(value: &Value) -> String {
    signed_text(&format!("{value:#}\n"))
}

fn signed_text(text: &str) -> String {
    sign(ItemKind::YAML, text, &SecretKey::from_seed(&[9; 32]), SystemTime::UNIX_EPOCH).expect("it can be signed")
}

/// Whether a value fits a type, as in the compiled graph.
fn fits(ty: &Type, value: &Value) -> bool {
    if value.is_null() {
        return ty.nullable || matches!(ty.kind, TypeKind::Any | TypeKind::Never);
    }
    match (&ty.kind, value) {
        (TypeKind::Any | TypeKind::Never, _) => true,
        (TypeKind::Boolean, Value::Bool(_))
        | (TypeKind::String, Value::String(_))
        | (TypeKind::Number, Value::Number(_)) => true,
        (TypeKind::Integer, Value::Number(number)) => number.is_i64(),
        (TypeKind::Enum(texts), Value::String(text)) => texts.contains(text),
        (TypeKind::List(items), Value::Array(list)) => list.iter().all(|value| fits(items, value)),
        (TypeKind::Map(values), Value::Object(map)) => map.values().all(|value| fits(values, value)),
        (TypeKind::Object(fields), Value::Object(map)) => fields
            .iter()
            .all(|field| fits(&field.ty, map.get(&field.name).unwrap_or(&Value::Null)) || field.default.is_some()),
        _ => false,
    }
}

/// Returns the values of an end that do not have the types that the compiler gave them.
fn misfits(interface: &Interface, end: &Value) -> Vec<String> {
    let mut found = Vec::new();
    if let Some(output) = end.get("output")
        && !fits(&interface.output, output)
    {
        found.push(format!("the output {output} is not {:?}", interface.output));
    }
    if let (Some(output), Some(node)) = (end.get("output"), end["at"].as_str())
        && !interface.output_at(node).is_some_and(|ty| fits(ty, output))
    {
        found.push(format!("the output {output} of `{node}` is not one of {:?}", interface.exits));
    }
    for key in &interface.keys {
        let value = &end["state"][&key.name];
        if !value.is_null() && !fits(&key.ty, value) {
            found.push(format!("`{}` is {value}, not {}", key.name, key.ty));
        }
    }
    found
}

/// Whether hooks may answer differently after a cut: they are not notified again of committed steps.
fn is_steered_by_events(graph: &Value) -> bool {
    let hooks = graph["config"]["hooks"].as_array().into_iter().flatten();
    hooks.into_iter().any(|hook| matches!(hook["event"].as_str(), Some("graph_started" | "after_step")))
}

/// Whether a run inside may be retried. The failed attempts of a step that was cut are not counted when it is taken again,
/// and the answers of these tests depend on the attempt.
fn retries_runs(graph: &Value) -> bool {
    graph.to_string().contains("p/child")
}

fn check(tree: &mut Tree, sample: &Sample) -> Result<bool, String> {
    let Some(graph) = tree.load(&sample.graph)? else { return Ok(false) };
    let dice = tree.dice.clone();
    let run = |log: Option<&Log>| {
        dice.set(sample.seed);
        let whole = play(graph.clone(), sample.inputs.clone(), log);
        (whole, dice.calls())
    };
    let (first, second) = (Log::default(), Log::default());
    let (Whole { end, took }, calls) = run(Some(&first));
    let kind = end["kind"].as_str().unwrap_or_default();
    if !["completed", "completed_with_errors", "error", "max_steps", "deadline"].contains(&kind) {
        return Err(format!("it ended as {end}"));
    }
    let most = sample.graph["config"]["max_steps"].as_u64().unwrap_or_default() * 100;
    if end["steps"].as_u64().is_none_or(|steps| steps > most) {
        return Err(format!("it took more steps than it may: {end}"));
    }
    let misfits = misfits(graph.interface(), &end);
    if !misfits.is_empty() {
        return Err(misfits.join("; "));
    }
    let again = run(Some(&second));
    if (&again.0.end, again.0.took, &again.1) != (&end, took, &calls) || first.bodies() != second.bodies() {
        return Err(format!("the second time it came to {}, not {end}", again.0.end));
    }
    let unwatched = run(None);
    if (&unwatched.0.end, unwatched.0.took, &unwatched.1) != (&end, took, &calls) {
        return Err(format!("without a journal it came to {}, not {end}", unwatched.0.end));
    }
    // The attempts of a failed call affect the elapsed time, and a resumed run has its whole time again.
    if kind == "deadline" {
        return Ok(true);
    }
    let ends = first.ends();
    let last = ends.len() - 1;
    let is_whole = is_steered_by_events(&sample.graph) || retries_runs(&sample.graph);
    let cut = if is_whole { last } else { sample.cut * ends.len() / 1000 };
    // A run that ended with an error is cut only before its end: after the end, a resume would continue it.
    if cut == last && end["success"] != json!(true) {
        return Ok(true);
    }
    dice.set(sample.seed);
    match play_again(graph, &first, ends[cut]) {
        Ok(resumed) if resumed == end => Ok(true),
        // A resumed run has its whole time again.
        Ok(resumed) if resumed["kind"] == "deadline" => Ok(true),
        Ok(resumed) => Err(format!("cut after record {}, it came to {resumed}, not {end}", ends[cut])),
        Err(error) => Err(format!("cut after record {}: {error}", ends[cut])),
    }
}

#[test]
fn accepted_graphs_terminate_with_the_same_result_each_time() {
    let cases = u32::try_from(super::number("PROPTEST_CASES", 256)).expect("a number of graphs");
    let mut seed = [7; 32];
    seed[..8].copy_from_slice(&super::number("SEED", 0).to_le_bytes());
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &seed));
    let (tree, counts) = (Mutex::new(Tree::new()), Mutex::new((0_u32, 0_u32)));
    let done = runner.run(&sample(), |sample| {
        let mut tree = tree.lock().unwrap_or_else(PoisonError::into_inner);
        let accepted = check(&mut tree, &sample).map_err(TestCaseError::fail)?;
        let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.0 += 1;
        counts.1 += u32::from(accepted);
        Ok(())
    });
    if let Err(error) = done {
        panic!("{error}");
    }
    let (all, accepted) = *counts.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(accepted * 2 >= all, "only {accepted} of {all} graphs were accepted");
    if std::env::var_os("SHOW").is_some() {
        eprintln!("{accepted} of {all} graphs were accepted");
    }
}

/// A random graph.
pub(crate) struct RandomGraph {
    /// The graph with random answers.
    pub(crate) graph: Interpreted,
    /// The graph with the tools of the caller.
    pub(crate) directed: Interpreted,
    pub(crate) text: String,
    pub(crate) inputs: Map<String, Value>,
    /// The directory of the graph's tree.
    pub(crate) directory: tempfile::TempDir,
}

/// Returns the graphs that the checker accepts, out of `count` random ones.
pub(crate) fn random_graphs(count: u32, seed: u64, tools: &(impl Tools + Clone)) -> Vec<RandomGraph> {
    let mut bytes = [7; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let mut runner =
        TestRunner::new_with_rng(ProptestConfig::default(), TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let mut all = Vec::new();
    for _ in 0..count {
        let Ok(sample) = sample().new_tree(&mut runner).map(|tree| tree.current()) else { continue };
        let text = signed(&sample.graph);
        let Tree { directory, library, dice, .. } = Tree::new();
        let path = directory.path().join("graph.yaml");
        fs::write(&path, &text).expect("there is room for a file");
        let other = Library::open(directory.path(), tools.clone());
        dice.set(sample.seed);
        if let (Ok(graph), Ok(directed)) = (library.graph(&path), other.graph(&path)) {
            all.push(RandomGraph { graph, directed, text, inputs: sample.inputs, directory });
        }
    }
    all
}

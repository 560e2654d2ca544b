//! Random graphs with guarded calls, conditions over answers, inputs, state, visits and channels: each is played by the engine with every
//! answer, under every value of its inputs and every result of its tools. A graph that checks makes each guarded call after an answer of
//! its own, and some answer to that question would not have led to the call.
//!
//! The graph that is played has the same nodes, edges and conditions. The guarded tool has the name of one that is not guarded, so that graphs are
//! played that the check refuses, and each question is a call whose result is the answer, so that no run needs a store.
//!
//! `APPROVALS=100000` is the number of graphs, `SEED` makes others, `SHOW` prints those that are refused and are fine.

mod graphs;
mod judge;

use std::fs;
use std::sync::{Arc, Mutex, PoisonError};

use graph_compiler::graph::TypedTool;
use graph_runtime::dynamic::{Library, ToolFuture, Tools};
use graph_runtime::{ActionError, Call, Map, Options, Runtime, Value};
use graph_signing::KeyFile;
use serde_json::json;

use super::dice::Dice;
use super::{key, shows, signed};
use graphs::{graph_of, graphs, nested};
use judge::{Happened, Paid, PlayedRun, wrong};

/// How many runs of a graph are made; a graph with more is left out.
const MOST_RUNS: usize = 100;
/// How many steps and runs a refused graph has that goes wrong in no shorter run.
const MORE_STEPS: usize = 28;
const MORE_RUNS: usize = 2_000;

/// A choice that a run has come to.
#[derive(Debug, Clone, Copy)]
struct Choice {
    taken: usize,
    of: usize,
}

#[derive(Debug, Default)]
struct Tape {
    choices: Vec<Choice>,
    position: usize,
    happened: Vec<Happened>,
    count: usize,
}

impl Tape {
    /// Takes the next choice: as the tape says, or the first.
    fn choose(&mut self, of: usize) -> usize {
        if self.position == self.choices.len() {
            self.choices.push(Choice { taken: 0, of });
        }
        self.position += 1;
        self.choices[self.position - 1].taken
    }

    /// Goes to the next run; returns whether there is one.
    fn advance(&mut self) -> bool {
        self.choices.truncate(self.position);
        (self.position, self.count) = (0, 0);
        while let Some(last) = self.choices.last_mut() {
            last.taken += 1;
            if last.taken < last.of {
                return true;
            }
            self.choices.pop();
        }
        false
    }
}

#[derive(Clone, Default)]
struct Playing(Arc<Mutex<Tape>>);

impl Tools for Playing {
    fn perform<'a>(&'a self, call: &'a Call, _: &'a TypedTool, params: Map<String, Value>) -> ToolFuture<'a> {
        let mut tape = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let may_fail = params.get("fails") == Some(&Value::Bool(true));
        let result = match call.tool() {
            "t/ask" => {
                let answers = answers(params["kind"].as_str().unwrap());
                let at = tape.position;
                let taken = tape.choose(answers.len() + usize::from(may_fail));
                match answers.get(taken) {
                    Some(answer) => {
                        let shown = params["payload"].as_object().unwrap().values().cloned().collect();
                        tape.happened.push(Happened::Answered { at, answers: answers.len(), shown });
                        Ok(answer.clone())
                    }
                    None => Err(ActionError::permanent("nobody has answered")),
                }
            }
            "t/get" => {
                let taken = tape.choose(2 + usize::from(may_fail));
                tape.count += 1;
                let text = format!("got {}", tape.count);
                match ["x", "y"].get(taken) {
                    Some(word) => Ok(json!({ "text": text, "word": word, "token": format!("{text} token") })),
                    None => Err(ActionError::permanent("no text")),
                }
            }
            _ => {
                let paid = paid(call, &params);
                let is_again =
                    tape.happened.iter().any(|one| matches!(one, Happened::Paid(other) if other.key == paid.key));
                if !is_again {
                    tape.happened.push(Happened::Paid(paid));
                }
                match may_fail && tape.choose(2) == 1 {
                    false => Ok(json!({})),
                    true => Err(ActionError::permanent("lost")),
                }
            }
        };
        Box::pin(async move { result })
    }
}

/// Returns what is known of a guarded call. The credential needs no approval, and the caller vouches for some inputs.
fn paid(call: &Call, params: &Map<String, Value>) -> Paid {
    let given = params.iter().filter(|(name, _)| *name != "key").filter_map(|(_, value)| value.as_str());
    let is_foreign = |text: &&str| ["got ", "input ", "element "].iter().any(|start| text.starts_with(start));
    let texts = given.filter(is_foreign).map(str::to_owned).collect();
    let (node, visit) = match (call.hook(), call.parent()) {
        (Some(_), _) => ("a hook", (call.step(), None)),
        (None, Some(parent)) => (parent.node.as_str(), (parent.step, parent.item)),
        (None, None) => (call.node(), (call.step(), call.item())),
    };
    let has_own = call.graph_id().as_str() == "g/asks_played";
    Paid { node: node.to_owned(), visit, texts, key: call.idempotency_key(), has_own }
}

/// Returns every answer of a kind.
fn answers(kind: &str) -> Vec<Value> {
    match kind {
        "word" => vec![json!("yes_"), json!("no_")],
        "words" => vec![json!("yes_"), json!("no_"), json!("later")],
        "boolean" => vec![json!(true), json!(false)],
        "object" => vec![json!({ "decision": "yes_" }), json!({ "decision": "no_" })],
        // Every text that a condition names, and others.
        _ => vec![json!("yes_"), json!("no_"), json!("later"), json!("what?"), json!("y"), json!("")],
    }
}

/// A tree with the contracts of the tools.
struct Stage {
    directory: tempfile::TempDir,
    library: Library,
    playing: Playing,
}

impl Stage {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = KeyFile::new(key().public(), "the key of these tests");
        let write = |name: &str, text: String| {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let time = std::time::SystemTime::UNIX_EPOCH;
        write(&format!("keys/{}.toml", file.fingerprint), file.to_signed_toml(&key(), time));
        // A random graph has no meaning that it could miss.
        let allowed = [
            "G0028", "G0150", "G0160", "G0161", "G0162", "G0163", "G0164", "G0166", "G0170", "G0171", "G0173", "G0175",
        ];
        let levels: Vec<String> = allowed.iter().map(|lint| format!("{lint} = \"allow\"\n")).collect();
        write("graphs.toml", signed(&format!("[lints]\n{}", levels.concat())));
        let text = json!({ "type": "string" });
        let call = json!({
            "type": "object",
            "properties": {
                "note": text,
                "more": text,
                "key": { "type": "string", "x-secret": true, "x-guarded": false },
                "code": { "type": "string", "x-secret": true },
                "fails": { "type": "boolean" },
            },
        });
        let open_call = json!(call.to_string().replace(",\"x-guarded\":false", ""));
        let open_call: Value = serde_json::from_str(open_call.as_str().unwrap()).unwrap();
        let get = json!({
            "type": "object",
            "properties": { "text": text, "word": { "enum": ["x", "y"] }, "token": { "type": "string", "x-secret": true } },
            "required": ["text", "word", "token"],
        });
        for (id, is_guarded, params, result) in [
            ("t/pay", true, call.clone(), json!({ "type": "object" })),
            ("t/play", false, open_call, json!({ "type": "object" })),
            ("t/ask", false, json!({ "type": "object" }), json!({})),
            ("t/get", false, json!({ "type": "object" }), get),
        ] {
            let mut contract = json!({
                "version": "1.0.0", "tool_type": "rust", "config_schema": params, "result_schema": result,
            });
            if is_guarded {
                contract["x-guarded"] = json!(true);
            }
            write(&format!("tools/{id}.yaml"), signed(&format!("{contract:#}\n")));
        }
        for name in ["once", "twice", "asks"] {
            write(&format!("{name}.yaml"), signed(&format!("{:#}\n", nested(name, ["t/pay", ""]))));
            let played = nested(name, ["t/play", "t/ask"]);
            write(&format!("{name}_played.yaml"), signed(&format!("{played:#}\n")));
        }
        let playing = Playing::default();
        let library = Library::open(directory.path(), playing.clone());
        Self { directory, library, playing }
    }

    /// Returns the codes of the errors in a graph, or the graph.
    fn load(&self, name: &str, graph: &Value) -> Result<graph_runtime::dynamic::Interpreted, Vec<String>> {
        let path = self.directory.path().join(name);
        fs::write(&path, signed(&format!("{graph:#}\n"))).unwrap();
        let loaded = self.library.graph(&path);
        fs::remove_file(path).unwrap();
        loaded.map_err(|error| {
            let errors = error.diagnostics.iter();
            let errors = errors.filter(|one| one.severity == graph_compiler::diagnostic::Severity::Error);
            errors.map(|one| format!("{} {}", one.code.id, one.message)).collect()
        })
    }

    /// Plays every longer run of a graph.
    fn play_on(&self, name: &str, mut graph: Value) -> Option<Vec<PlayedRun>> {
        graph["config"]["max_steps"] = json!(MORE_STEPS);
        self.play(name, &graph, MORE_RUNS)
    }

    /// Plays every run of a graph. `None` if there are too many.
    fn play(&self, name: &str, graph: &Value, most: usize) -> Option<Vec<PlayedRun>> {
        let text = graph.to_string();
        let graph =
            self.load(name, graph).unwrap_or_else(|errors| panic!("{name} cannot be played: {errors:?}\n{text}"));
        let tokio = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let runtime = Runtime::builder().grant("*").unwrap().build().unwrap();
        *self.playing.0.lock().unwrap() = Tape::default();
        let mut runs = Vec::new();
        loop {
            let given = inputs(&mut self.playing.0.lock().unwrap(), &text);
            // A run may fail; what it did before counts all the same.
            let has_entry = text.contains("\"entries\"");
            let is_there = has_entry && self.playing.0.lock().unwrap().choose(2) == 1;
            let options = Options { entry: is_there.then(|| "there".to_owned()), ..Options::default() };
            tokio.block_on(async { drop(runtime.start_with(options, graph.clone(), given).await.unwrap().await) });
            let mut tape = self.playing.0.lock().unwrap();
            let happened = std::mem::take(&mut tape.happened);
            let position = tape.position;
            runs.push(PlayedRun { tape: tape.choices[..position].iter().map(|one| one.taken).collect(), happened });
            if !tape.advance() {
                return Some(runs);
            }
            if runs.len() == most {
                return None;
            }
        }
    }
}

/// Chooses the inputs of a run: each kind of value of those that the graph reads.
fn inputs(tape: &mut Tape, graph: &str) -> Map<String, Value> {
    let mut choose = |read: &str| usize::from(graph.contains(read) && tape.choose(2) == 1);
    let (b, w) = (choose("inputs.b") == 1, ["x", "y"][choose("inputs.w")]);
    let elements = &["element 0", "element 1"][2 * choose("\"over\":\"${inputs.l}\"")..];
    let mut inputs = json!({ "b": b, "w": w, "v": "input v", "l": elements });
    inputs["g"] = json!("vouched g");
    inputs["c"] = json!("input c");
    inputs["h"] = json!("vouched h");
    if choose("inputs.o") == 1 {
        inputs["o"] = json!("input o");
    }
    inputs.as_object().cloned().unwrap()
}

#[derive(Debug, Default)]
struct Sum {
    graphs: usize,
    runs: usize,
    /// The graphs with other mistakes.
    faulty: usize,
    /// The graphs with too many runs.
    left_out: usize,
    wrong: usize,
    /// The refused graphs that go wrong in a longer run, and those with too many longer runs.
    wrong_later: usize,
    unknown: usize,
    fine: usize,
    alarms: usize,
}

#[test]
fn a_guarded_call_follows_an_answer_of_its_own_that_could_have_refused_it() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (wanted, seed) = (number("APPROVALS").unwrap_or(80), number("SEED").unwrap_or(1));
    let (stage, mut sum) = (Stage::new(), Sum::default());
    for at in 0..wanted {
        let mut dice = Dice::new(seed.wrapping_mul(1_000_003).wrapping_add(at));
        let [checked, played] = graphs(&mut dice);
        let errors = stage.load(&format!("x{at}.yaml"), &checked).err().unwrap_or_default();
        let is_of_rule = |error: &&String| error.starts_with("G0186") || error.starts_with("G0187");
        let refusals: Vec<&String> = errors.iter().filter(is_of_rule).collect();
        if errors.len() > refusals.len() {
            // It cannot be played either.
            sum.faulty += 1;
            if shows() {
                eprintln!("faulty: {:?}", errors.iter().map(|error| &error[..5]).collect::<Vec<_>>());
            }
            continue;
        }
        let runs = stage.play(&format!("y{at}.yaml"), &played, MOST_RUNS);
        let Some(runs) = runs else {
            sum.left_out += 1;
            continue;
        };
        let pays = runs.iter().any(PlayedRun::pays);
        (sum.graphs, sum.runs) = (sum.graphs + 1, sum.runs + runs.len());
        match wrong(&runs) {
            Some(run) => {
                sum.wrong += 1;
                assert!(
                    !refusals.is_empty(),
                    "graph {at} of seed {seed} is not refused, and goes wrong: {run:?}\n{checked}"
                );
            }
            None if refusals.is_empty() => sum.fine += usize::from(pays),
            None if pays => match stage.play_on(&format!("z{at}.yaml"), played).as_deref().map(wrong) {
                Some(Some(_)) => sum.wrong_later += 1,
                Some(None) => {
                    sum.alarms += 1;
                    if shows() {
                        eprintln!("graph {at} is refused, and goes wrong in no run: {refusals:?}\n{checked}");
                    }
                }
                None => sum.unknown += 1,
            },
            None => {}
        }
    }
    println!("{sum:?}");
    assert!(sum.graphs * 2 > sum.left_out && sum.wrong * 10 > sum.graphs && sum.fine * 50 > sum.graphs, "{sum:?}");
}

/// Graphs that go wrong in no run, for one reason each.
#[test]
fn a_call_that_needs_no_other_approval_is_not_refused() {
    let stage = Stage::new();
    let ask = |shown: Value, next: Value| json!({ "type": "interrupt", "payload": shown, "result_schema": { "enum": ["yes_", "no_"] }, "next": next });
    let by = |yes: &str, no: &str| json!({ "by": "result", "to": { "yes_": yes, "no_": no } });
    let when = |test: Value, to: [&str; 2]| json!([{ "to": to[0], "when": test }, { "to": to[1] }]);
    let call = |note: &str| json!({ "item_id": "t/pay", "params": { "note": note } });
    let pay = json!({ "action": call("${inputs.v}"), "next": "done" });
    let each = |note: &str| json!({ "type": "foreach", "over": "${inputs.l}", "as": "e", "action": call(note), "next": "done" });
    let (value, list) = (json!({ "v": "${inputs.v}" }), json!({ "l": "${inputs.l}" }));
    let done = json!({ "type": "return" });
    for (why, nodes, hooks) in [
        (
            "no answer follows the edge",
            json!({
                "n0": ask(value, by("pay", "n1")),
                "n1": { "type": "gate", "next": when(json!({ "path": "inputs.v", "op": "exists" }), ["done", "pay"]) },
                "pay": pay,
            }),
            json!([]),
        ),
        (
            "the author wrote what each call has",
            json!({ "n0": ask(json!({ "k": "${state.k0}" }), by("n1", "done")), "n1": each("${state.k0}") }),
            json!([]),
        ),
        (
            "either the first answer or the second decides",
            json!({
                "n0": ask(list.clone(), by("n1", "n2")),
                "n1": ask(list, by("n2", "done")),
                "n2": each("${e}"),
            }),
            json!([]),
        ),
        (
            "the author wrote what a hook has",
            json!({ "n0": { "type": "gate", "assign": { "k0": "a text" }, "next": "done" } }),
            json!([{ "event": "graph_completed", "action": call("${state.k0}") }]),
        ),
    ] {
        let mut graph = graph_of(&nodes, &hooks);
        graph["config"]["nodes"]["done"] = done.clone();
        let errors = stage.load("fine.yaml", &graph).err();
        assert!(errors.is_none(), "{why}: {errors:?}");
    }
}

/// Names that look the same are an error that may be allowed, and one after which nothing is proven about the rest of a graph. So is a key that
/// is not set on some path: then it is null, which no case of a comparison with it is.
#[test]
fn a_lint_that_is_allowed_hides_no_call_without_approval() {
    let stage = Stage::new();
    let pay =
        |next: Value| json!({ "action": { "item_id": "t/pay", "params": { "note": "${inputs.v}" } }, "next": next });
    let edges = |to: [&str; 2], path: &str, value: Value| json!([{ "to": to[0], "when": { "path": path, "value": value } }, { "to": to[1] }]);
    let done = json!({ "type": "return" });
    for (start, nodes) in [
        (
            "pay",
            json!({
                "pay": pay(edges(["done", "d\u{43e}ne"], "inputs.b", json!(true))),
                "done": done,
                "d\u{43e}ne": done,
            }),
        ),
        (
            "first",
            json!({
                "first": { "type": "gate", "next": edges(["set", "last"], "inputs.b", json!(true)) },
                "set": { "type": "gate", "assign": { "k": "x" }, "next": "last" },
                "last": { "type": "gate", "next": edges(["done", "pay"], "state.k", json!("x")) },
                "pay": pay(json!("done")),
                "done": done,
            }),
        ),
    ] {
        let graph = json!({
            "version": "1.0.0",
            "tool_type": "graph",
            "executor_id": "rye/core/runtimes/state-graph/runtime",
            "permissions": ["rye.execute.tool.*"],
            "config_schema": {
                "type": "object",
                "properties": { "b": { "type": "boolean" }, "v": { "type": "string" } },
                "required": ["b", "v"],
            },
            "config": { "start": start, "nodes": nodes },
        });
        let errors = stage.load("pay.yaml", &graph).err().unwrap_or_default();
        assert!(errors.len() == 1 && errors[0].starts_with("G0186"), "{errors:?}");
    }
}

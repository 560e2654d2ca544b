//! Random graphs with guarded calls, conditions over answers, inputs, state, visits and channels: each is played by the engine with every
//! answer, under every value of its inputs and every result of its tools. A graph that checks makes each guarded call after an answer of
//! its own, and some answer to that question would not have led to the call.
//!
//! The graph that is played has the same nodes, edges and conditions. The guarded tool has the name of one that is not guarded, so that graphs are
//! played that the check refuses, and each question is a call whose result is the answer, so that no run needs a store.
//!
//! `APPROVALS=100000` is the number of graphs, `SEED` makes others, `SHOW` prints those that are refused and are fine.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;
use std::sync::{Arc, Mutex, PoisonError};

use graph_compiler::graph::TypedTool;
use graph_runtime::dynamic::{Library, ToolFuture, Tools};
use graph_runtime::{ActionError, Call, Map, Runtime, Value};
use graph_signing::KeyFile;
use serde_json::json;

use super::dice::Dice;
use super::{key, shows, signed};

/// How many steps a run takes at most.
const MOST_STEPS: u64 = 11;
/// How many runs of a graph are made; a graph with more is left out.
const MOST_RUNS: usize = 120;

/// A choice that a run has come to.
#[derive(Debug, Clone, Copy)]
struct Choice {
    taken: usize,
    of: usize,
}

/// An event of a run, in the order in which they happen.
#[derive(Debug, Clone)]
enum Happened {
    /// A question that was answered: the place of its choice on the tape, the number of its answers, and the values that it shows.
    Answered { at: usize, answers: usize, shown: Vec<Value> },
    /// A guarded call.
    Paid { node: String, step: u64, texts: BTreeSet<String> },
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
                    Some(word) => Ok(json!({ "text": text, "word": word })),
                    None => Err(ActionError::permanent("no text")),
                }
            }
            _ => {
                let given = params.iter().filter(|(name, _)| *name != "fails").filter_map(|(_, value)| value.as_str());
                let is_foreign =
                    |text: &&str| ["got ", "input ", "element "].iter().any(|start| text.starts_with(start));
                let texts = given.filter(is_foreign).map(str::to_owned).collect();
                tape.happened.push(Happened::Paid { node: call.node().to_owned(), step: call.step(), texts });
                match may_fail && tape.choose(2) == 1 {
                    false => Ok(json!({})),
                    true => Err(ActionError::permanent("lost")),
                }
            }
        };
        Box::pin(async move { result })
    }
}

/// Returns every answer of a kind.
fn answers(kind: &str) -> Vec<Value> {
    match kind {
        "word" => vec![json!("yes_"), json!("no_")],
        "words" => vec![json!("yes_"), json!("no_"), json!("later")],
        "boolean" => vec![json!(true), json!(false)],
        "object" => vec![json!({ "decision": "yes_" }), json!({ "decision": "no_" })],
        // Every text that a condition names, and others.
        _ => vec![json!("yes_"), json!("no_"), json!("later"), json!("what?"), json!("")],
    }
}

fn schema_of(kind: &str) -> Value {
    let words = json!({ "enum": ["yes_", "no_"] });
    match kind {
        "word" => words,
        "words" => json!({ "enum": ["yes_", "no_", "later"] }),
        "boolean" => json!({ "type": "boolean" }),
        "object" => json!({ "type": "object", "properties": { "decision": words }, "required": ["decision"] }),
        _ => json!({ "type": "string" }),
    }
}

/// A random graph, as it is checked and as it is played.
struct Writer<'d> {
    dice: &'d mut Dice,
    /// The number of nodes that any edge may lead to.
    count: usize,
    checked: Map<String, Value>,
    played: Map<String, Value>,
}

impl Writer<'_> {
    fn target(&mut self) -> String {
        match self.dice.below(2 * self.count) {
            at if at < self.count => format!("n{at}"),
            _ => "done".to_owned(),
        }
    }

    /// Returns a target that is mostly the node behind this one.
    fn onward(&mut self, at: usize) -> String {
        match self.dice.below(8) {
            0 => self.target(),
            _ if at + 1 < self.count => format!("n{}", at + 1),
            _ => "done".to_owned(),
        }
    }

    fn test(&mut self, kind: Option<&str>) -> Value {
        let word = ["yes_", "no_", "later"][self.dice.below(3)];
        match (self.dice.below(11), kind) {
            (0..=3, Some("boolean")) => json!({ "path": "result", "value": self.dice.one_in(2) }),
            (0..=3, Some("object")) => json!({ "path": "result.decision", "value": word.replace("later", "no_") }),
            (4, Some("object")) => {
                json!({ "path": "result.decision", "op": "ne", "value": word.replace("later", "no_") })
            }
            (0, Some("text")) => {
                json!({ "path": "result", "op": "regex", "value": (["", "^y", "_$"][self.dice.below(3)]) })
            }
            (1, Some(_)) => json!({ "path": "result", "op": "in", "value": ["yes_", "no_", word] }),
            (2, Some(_)) => json!({ "path": "result", "op": "ne", "value": word }),
            (3, Some(_)) => json!({ "path": "result", "op": "exists" }),
            (4 | 5, Some(_)) => json!({ "path": "result", "value": word }),
            (0..=4, None) => json!({ "path": "state.a", "value": word }),
            (6, _) => json!({ "path": "inputs.b", "value": true }),
            (7, _) => json!({ "path": "inputs.w", "value": (["x", "y"][self.dice.below(2)]) }),
            (8, _) => json!({ "path": "state.s", "value": (["x", "y"][self.dice.below(2)]) }),
            (9, _) => json!({ "path": "visit.number", "op": "gte", "value": 2 }),
            (10, _) => json!({ "path": "state.m", "value": word }),
            _ => json!({ "path": "state.a", "value": word }),
        }
    }

    fn condition(&mut self, kind: Option<&str>, depth: usize) -> Value {
        match if depth == 0 { 0 } else { self.dice.below(6) } {
            1 => json!({ "all": [self.condition(kind, depth - 1), self.condition(kind, depth - 1)] }),
            2 => json!({ "any": [self.condition(kind, depth - 1), self.condition(kind, depth - 1)] }),
            3 => json!({ "not": self.condition(kind, depth - 1) }),
            _ => self.test(kind),
        }
    }

    fn edges(&mut self, at: usize, kind: Option<&str>) -> Value {
        let mut edges: Vec<Value> = Vec::new();
        for _ in 0..1 + self.dice.below(2) {
            edges.push(json!({ "to": self.target(), "when": self.condition(kind, 2) }));
        }
        if !self.dice.one_in(5) {
            edges.push(json!({ "to": self.onward(at) }));
        }
        Value::Array(edges)
    }

    fn add(&mut self, name: &str, checked: Value, played: Value) {
        self.checked.insert(name.to_owned(), checked);
        self.played.insert(name.to_owned(), played);
    }

    fn payload(&mut self) -> Value {
        let mut payload = Map::new();
        for (name, value) in [("k0", "state.k0"), ("k1", "state.k1"), ("v", "inputs.v"), ("l", "inputs.l")] {
            if self.dice.below(8) < 6 {
                payload.insert(name.to_owned(), json!(format!("${{{value}}}")));
            }
        }
        if self.dice.one_in(4) {
            payload.insert("o".to_owned(), json!("${inputs.o || inputs.v}"));
        }
        Value::Object(payload)
    }

    fn ask(&mut self, name: &str, at: usize, next: Option<(Value, &'static str)>) {
        let kinds = ["word", "words", "boolean", "object", "text"];
        let kind = next.as_ref().map_or_else(|| kinds[self.dice.below(5)], |(_, kind)| kind);
        let payload = self.payload();
        let path = if kind == "object" { "result.decision" } else { "result" };
        let next = match (next, self.dice.below(5)) {
            (Some((next, _)), _) => next,
            (None, 0..=2) => {
                let (yes, no) = (self.onward(at), self.target());
                let yes_word = if kind == "boolean" { json!(true) } else { json!("yes_") };
                match self.dice.below(3) {
                    0 if kind == "word" => json!({ "by": "result", "to": { "yes_": yes, "no_": no } }),
                    _ => json!([{ "to": yes, "when": { "path": path, "value": yes_word } }, { "to": no }]),
                }
            }
            _ => self.edges(at, Some(kind)),
        };
        let mut node = json!({ "next": next });
        if kind != "boolean" && self.dice.one_in(3) {
            node["assign"] = json!({ "a": format!("${{{path}}}") });
        } else if kind != "boolean" && self.dice.one_in(5) {
            node["assign"] = json!({ "m": format!("${{{path}}}") });
        }
        let late = self.dice.one_in(4).then(|| self.target());
        let (mut checked, mut played) = (node.clone(), node);
        checked["type"] = json!("interrupt");
        checked["payload"] = payload.clone();
        checked["result_schema"] = schema_of(kind);
        let params = json!({ "kind": kind, "fails": late.is_some(), "payload": payload });
        played["action"] = json!({ "item_id": "t/ask", "params": params });
        if let Some(late) = late {
            checked["timeout"] = json!("1d");
            checked["on_timeout"] = json!(late);
            played["on_error"] = json!(late);
        }
        self.add(name, checked, played);
    }

    /// Returns the parameters of a guarded call.
    fn arguments(&mut self, element: Option<&str>) -> Map<String, Value> {
        let all = ["state.k0", "state.k0", "state.k1", "inputs.v", "inputs.o || inputs.v", "state.s"];
        let mut params = Map::new();
        params.insert("note".into(), json!(format!("${{{}}}", all[self.dice.below(6)])));
        if self.dice.one_in(4) {
            params.insert("more".into(), json!(format!("${{{}}}", all[self.dice.below(6)])));
        }
        if let Some(element) = element {
            params.insert("note".into(), json!(format!("${{{element}}}")));
        }
        params
    }

    fn pay(&mut self, name: &str, rest: &Value, element: Option<&str>, may_fail: bool) {
        let params = self.arguments(element);
        let failed = may_fail.then(|| self.target());
        let (mut checked, mut played) = (rest.clone(), rest.clone());
        checked["action"] = json!({ "item_id": "t/pay", "params": params });
        let mut params = params;
        params.insert("fails".into(), json!(failed.is_some()));
        played["action"] = json!({ "item_id": "t/play", "params": params });
        if let Some(failed) = failed {
            checked["on_error"] = json!(failed);
            played["on_error"] = json!(failed);
        }
        self.add(name, checked, played);
    }

    fn node(&mut self, at: usize) {
        let name = format!("n{at}");
        // Mostly a question before a call, and what it shows before the question.
        let kind = match (at, self.dice.below(3)) {
            (0, 0) => 0,
            (0 | 1, 1) => 2,
            (2 | 3, 0 | 1) => 5 + self.dice.below(2),
            _ => self.dice.below(10),
        };
        match kind {
            0 | 1 => {
                let (key, field) = [("k0", "text"), ("k0", "text"), ("k1", "text"), ("s", "word")][self.dice.below(4)];
                let failed = self.dice.one_in(4).then(|| self.target());
                let mut node = json!({
                    "action": { "item_id": "t/get", "params": { "fails": failed.is_some() } },
                    "assign": { key: format!("${{result.{field}}}") },
                    "next": self.onward(at),
                });
                if let Some(failed) = failed {
                    node["on_error"] = json!(failed);
                }
                self.add(&name, node.clone(), node);
            }
            2..=4 => self.ask(&name, at, None),
            5 | 6 => {
                let (next, may_fail) = (self.onward(at), self.dice.one_in(5));
                self.pay(&name, &json!({ "next": next }), None, may_fail);
            }
            7 => {
                let (next, element) = (self.onward(at), ["e", "state.k0"][self.dice.below(2)]);
                let rest = json!({ "type": "foreach", "over": "${inputs.l}", "as": "e", "next": next });
                self.pay(&name, &rest, Some(element), false);
            }
            8 => self.branches(&name, at),
            _ => {
                let node = json!({ "type": "gate", "next": self.edges(at, None) });
                self.add(&name, node.clone(), node);
            }
        }
    }

    /// Adds a fan-out, with its branches and its join.
    fn branches(&mut self, name: &str, at: usize) {
        let [first, second, join, paid] = ["p", "q", "j", "c"].map(|part| format!("{name}{part}"));
        let onward = self.onward(at);
        let fan = |next: Value| json!({ "type": "gate", "next": next });
        let join_node = |of: Value| json!({ "type": "gate", "waits_for": of, "next": onward });
        match self.dice.below(4) {
            // A call for each element, with or without a question before it.
            0 => {
                let element = ["e", "state.k0"][self.dice.below(2)];
                let node = fan(json!({ "over": "${inputs.l}", "as": "e", "to": first }));
                self.add(name, node.clone(), node);
                self.pay(&first, &json!({ "next": join }), Some(element), false);
                self.add(&join, join_node(json!([first])), join_node(json!([first])));
            }
            // A call in each branch.
            1 => {
                let node = fan(json!({ "all": [{ "to": first }, { "to": second }] }));
                self.add(name, node.clone(), node);
                self.pay(&first, &json!({ "next": join }), None, false);
                self.pay(&second, &json!({ "next": join }), None, false);
                let node = join_node(json!([first, second]));
                self.add(&join, node.clone(), node);
            }
            // Two people, of whom both or one must approve.
            kind => {
                let node = fan(json!({ "all": [{ "to": first }, { "to": second }] }));
                self.add(name, node.clone(), node);
                for person in [&first, &second] {
                    let edge = json!({ "path": "result", "value": "yes_" });
                    self.ask(person, at, Some((json!([{ "to": join, "when": edge }, {}]), "word")));
                    for nodes in [&mut self.checked, &mut self.played] {
                        let node = nodes[person].as_object_mut().unwrap();
                        for field in ["timeout", "on_timeout", "on_error", "assign"] {
                            node.shift_remove(field);
                        }
                        if let Some(params) = node.get_mut("action") {
                            params["params"]["fails"] = json!(false);
                        }
                    }
                }
                let waits = match kind {
                    2 => json!({ "of": [first, second], "need": 2, "rest": "cancel", "fewer": "done" }),
                    _ => json!([first, second]),
                };
                let node = json!({ "type": "gate", "waits_for": waits, "next": paid });
                self.add(&join, node.clone(), node);
                self.pay(&paid, &json!({ "next": onward }), None, false);
            }
        }
    }
}

/// Returns a random graph, as it is checked and as it is played.
fn graphs(dice: &mut Dice) -> [Value; 2] {
    let count = 3 + dice.below(3);
    let mut writer = Writer { dice, count, checked: Map::new(), played: Map::new() };
    for at in 0..count {
        writer.node(at);
    }
    let Writer { checked, played, .. } = writer;
    let reached = reached(&played);
    let whole = |mut nodes: Map<String, Value>| {
        nodes.retain(|name, _| reached.contains(name));
        nodes.insert("done".into(), json!({ "type": "return" }));
        json!({
            "version": "1.0.0",
            "tool_type": "graph",
            "executor_id": "rye/core/runtimes/state-graph/runtime",
            "permissions": ["rye.execute.tool.*"],
            "config_schema": {
                "type": "object",
                "properties": {
                    "b": { "type": "boolean" },
                    "w": { "enum": ["x", "y"] },
                    "v": { "type": "string" },
                    "o": { "type": "string" },
                    "l": { "type": "array", "items": { "type": "string" } },
                },
                "required": ["b", "w", "v", "l"],
            },
            "config": {
                "start": "n0",
                "max_steps": MOST_STEPS,
                "state": { "k0": "", "k1": "", "s": "x", "a": "no_", "m": "" },
                "channels": { "m": "max" },
                "nodes": nodes,
            },
        })
    };
    [whole(checked), whole(played)]
}

/// Returns the names of the nodes that others name, beginning with the first.
fn reached(nodes: &Map<String, Value>) -> BTreeSet<String> {
    fn texts(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::String(text) => found.push(text.clone()),
            Value::Array(list) => list.iter().for_each(|value| texts(value, found)),
            Value::Object(map) => map.values().for_each(|value| texts(value, found)),
            _ => {}
        }
    }
    let (mut reached, mut open) = (BTreeSet::new(), vec!["n0".to_owned()]);
    while let Some(name) = open.pop() {
        if let Some(node) = nodes.get(&name)
            && reached.insert(name)
        {
            // A join waits for nodes, and does not lead to them.
            let mut node = node.clone();
            if let Some(waits_for) = node.get_mut("waits_for") {
                *waits_for = waits_for["fewer"].clone();
            }
            texts(&node, &mut open);
        }
    }
    reached
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
        let allowed =
            ["G0028", "G0160", "G0161", "G0162", "G0163", "G0164", "G0166", "G0170", "G0171", "G0173", "G0175"];
        let levels: Vec<String> = allowed.iter().map(|lint| format!("{lint} = \"allow\"\n")).collect();
        write("graphs.toml", signed(&format!("[lints]\n{}", levels.concat())));
        let text = json!({ "type": "string" });
        let call =
            json!({ "type": "object", "properties": { "note": text, "more": text, "fails": { "type": "boolean" } } });
        let get = json!({
            "type": "object",
            "properties": { "text": text, "word": { "enum": ["x", "y"] } },
            "required": ["text", "word"],
        });
        for (id, is_guarded, params, result) in [
            ("t/pay", true, call.clone(), json!({ "type": "object" })),
            ("t/play", false, call, json!({ "type": "object" })),
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

    /// Plays every run of a graph. `None` if there are too many.
    fn play(&self, graph: &graph_runtime::dynamic::Interpreted) -> Option<Vec<PlayedRun>> {
        let tokio = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let runtime = Runtime::builder().grant("*").unwrap().build().unwrap();
        *self.playing.0.lock().unwrap() = Tape::default();
        let mut runs = Vec::new();
        loop {
            let given = {
                let mut tape = self.playing.0.lock().unwrap();
                let (b, w, o) = (tape.choose(2) == 1, ["x", "y"][tape.choose(2)], tape.choose(2));
                let mut given = json!({ "b": b, "w": w, "v": "input v", "l": ["element 0", "element 1"] });
                if o == 1 {
                    given["o"] = json!("input o");
                }
                given.as_object().cloned().unwrap()
            };
            // A run may fail; what it did before counts all the same.
            tokio.block_on(async { drop(runtime.start(graph.clone(), given).await.unwrap().await) });
            let mut tape = self.playing.0.lock().unwrap();
            let happened = std::mem::take(&mut tape.happened);
            let position = tape.position;
            runs.push(PlayedRun { tape: tape.choices[..position].iter().map(|one| one.taken).collect(), happened });
            if !tape.advance() {
                return Some(runs);
            }
            if runs.len() == MOST_RUNS {
                return None;
            }
        }
    }
}

#[derive(Debug)]
struct PlayedRun {
    tape: Vec<usize>,
    happened: Vec<Happened>,
}

/// A guarded call that needs an approval, or one for each element of a list.
struct Unit<'r> {
    node: &'r str,
    /// Where it begins among the events of its run.
    at: usize,
    texts: BTreeSet<&'r str>,
    /// The number of calls.
    calls: usize,
}

fn units(run: &PlayedRun) -> Vec<Unit<'_>> {
    let mut units: Vec<(u64, Unit<'_>)> = Vec::new();
    for (at, happened) in run.happened.iter().enumerate() {
        let Happened::Paid { node, step, texts } = happened else { continue };
        let texts = texts.iter().map(String::as_str);
        // A fan-out visits its nodes `…p` once for each element, one visit behind the other.
        let follows = |unit: &Unit<'_>| node.ends_with('p') && unit.at + 1 == at && unit.calls == 1;
        match units.iter_mut().find(|(of, unit)| unit.node == node && (of == step || follows(unit))) {
            Some((_, unit)) => {
                unit.texts.extend(texts);
                unit.calls += 1;
            }
            None => units.push((*step, Unit { node, at, texts: texts.collect(), calls: 1 })),
        }
    }
    units.into_iter().map(|(_, unit)| unit).filter(|unit| !unit.texts.is_empty()).collect()
}

/// Whether a question shows a text; if a call is made for each element, also that list.
fn shows_text(shown: &[Value], text: &str, unit: &Unit<'_>) -> bool {
    let list = json!(["element 0", "element 1"]);
    let is_text = |value: &Value| value.as_str() == Some(text);
    let is_in = |value: &Value| is_text(value) || value.as_array().is_some_and(|list| list.iter().any(is_text));
    shown.iter().any(is_in) && (unit.calls == 1 || shown.contains(&list))
}

/// A question, by the choices before it, about the call of a node.
type Question<'r> = (&'r [usize], &'r str);

/// Returns, for each question, the number of its answers, and those that lead to the call without another question that decides about it.
fn leads<'r>(
    runs: &'r [PlayedRun],
    decided: &BTreeSet<Question<'r>>,
) -> BTreeMap<Question<'r>, (usize, HashSet<usize>)> {
    let mut leads: BTreeMap<Question<'_>, (usize, HashSet<usize>)> = BTreeMap::new();
    for run in runs {
        let units = units(run);
        for unit in &units {
            for (place, happened) in run.happened[..unit.at].iter().enumerate() {
                let Happened::Answered { at, answers, .. } = happened else { continue };
                let decides = |text: &&str| {
                    let later = run.happened[..unit.at].iter().enumerate().skip(place + 1);
                    later.into_iter().any(|(later, happened)| {
                        let Happened::Answered { at, shown, .. } = happened else { return false };
                        let serves = |other: &Unit<'_>| other.texts.iter().any(|text| shows_text(shown, text, other));
                        let mut between = units.iter().filter(|other| later < other.at && other.at < unit.at);
                        let is_own = decided.contains(&(&run.tape[..*at], unit.node));
                        is_own && shows_text(shown, text, unit) && !between.any(serves)
                    })
                };
                let (_, led) = leads.entry((&run.tape[..*at], unit.node)).or_insert((*answers, HashSet::new()));
                if !unit.texts.iter().all(decides) {
                    led.insert(run.tape[*at]);
                }
            }
        }
    }
    leads
}

/// Returns a run that makes a guarded call without an answer of its own that could have refused it.
fn wrong(runs: &[PlayedRun]) -> Option<&PlayedRun> {
    let mut decided = BTreeSet::new();
    let leads = loop {
        let leads = leads(runs, &decided);
        let refused = leads.iter().filter(|(_, (answers, led))| led.len() < *answers);
        let refused: BTreeSet<Question<'_>> = refused.map(|(question, _)| *question).collect();
        if refused == decided {
            break leads;
        }
        decided.extend(refused);
    };
    let is_wrong = |run: &&PlayedRun| {
        let units = units(run);
        let mut needs: Vec<(usize, Vec<usize>)> = Vec::new();
        for (number, unit) in units.iter().enumerate() {
            for text in &unit.texts {
                // The answer has led to the call, and another would not have.
                let approves = |(place, happened): (usize, &Happened)| {
                    let Happened::Answered { at, answers, shown } = happened else { return None };
                    let (_, led) = leads.get(&(&run.tape[..*at], unit.node))?;
                    let has_chosen = led.contains(&run.tape[*at]) && led.len() < *answers;
                    (has_chosen && shows_text(shown, text, unit)).then_some(place)
                };
                needs.push((number, run.happened[..unit.at].iter().enumerate().filter_map(approves).collect()));
            }
        }
        !can_serve(&needs, &mut BTreeMap::new())
    };
    runs.iter().find(is_wrong)
}

/// Whether each need, of a unit, can have one of its questions, and no question serves two units.
fn can_serve(needs: &[(usize, Vec<usize>)], taken: &mut BTreeMap<usize, usize>) -> bool {
    let Some(((unit, questions), rest)) = needs.split_first() else { return true };
    for question in questions.iter().rev() {
        match taken.get(question) {
            Some(of) if of == unit => {
                if can_serve(rest, taken) {
                    return true;
                }
            }
            Some(_) => {}
            None => {
                taken.insert(*question, *unit);
                if can_serve(rest, taken) {
                    return true;
                }
                taken.remove(question);
            }
        }
    }
    false
}

#[derive(Debug, Default)]
struct Sum {
    graphs: usize,
    runs: usize,
    left_out: usize,
    wrong: usize,
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
            sum.left_out += 1;
            continue;
        }
        let runs = match stage.load(&format!("y{at}.yaml"), &played) {
            Ok(graph) => stage.play(&graph),
            Err(errors) => {
                if shows() {
                    eprintln!("graph {at} cannot be played: {errors:?}");
                }
                None
            }
        };
        let Some(runs) = runs else {
            sum.left_out += 1;
            continue;
        };
        let pays = runs.iter().any(|run| !units(run).is_empty());
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
            None => {
                sum.alarms += usize::from(pays);
                if shows() && pays {
                    eprintln!("graph {at} is refused, and goes wrong in no run: {refusals:?}\n{checked}");
                }
            }
        }
    }
    println!("{sum:?}");
    assert!(sum.graphs * 2 > sum.left_out && sum.wrong * 10 > sum.graphs && sum.fine * 50 > sum.graphs, "{sum:?}");
}

/// Names that look the same are an error that may be allowed, and one after which nothing is proven about the rest of a graph.
#[test]
fn a_lint_that_is_allowed_hides_no_call_without_approval() {
    let edges = json!([{ "to": "done", "when": { "path": "inputs.b", "value": true } }, { "to": "d\u{43e}ne" }]);
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
        "config": { "start": "pay", "nodes": {
            "pay": { "action": { "item_id": "t/pay", "params": { "note": "${inputs.v}" } }, "next": edges },
            "done": { "type": "return" },
            "d\u{43e}ne": { "type": "return" },
        } },
    });
    let errors = Stage::new().load("pay.yaml", &graph).err().unwrap();
    assert!(errors.len() == 1 && errors[0].starts_with("G0186"), "{errors:?}");
}

//! Random graphs with guarded calls, as they are checked and as they are played.

use std::collections::BTreeSet;

use graph_runtime::{Map, Value};
use serde_json::json;

use super::super::dice::Dice;

/// How many steps a run takes at most, in the graph with the longest runs.
const MOST_STEPS: usize = 16;

/// A random graph, as it is checked and as it is played.
struct Writer<'d> {
    dice: &'d mut Dice,
    /// The number of nodes that any edge may lead to.
    count: usize,
    checked: Map<String, Value>,
    played: Map<String, Value>,
    hooks: Vec<[Value; 2]>,
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
        let all = ["state.k0", "state.k0", "state.k1", "inputs.v", "inputs.o || inputs.v", "state.s", "inputs.g"];
        let mut params = Map::new();
        params.insert("note".into(), json!(format!("${{{}}}", all[self.dice.below(7)])));
        if self.dice.one_in(4) {
            params.insert("more".into(), json!(format!("${{{}}}", all[self.dice.below(7)])));
        }
        // A credential, and a secret that chooses what the call does.
        if self.dice.one_in(4) {
            params.insert("key".into(), json!(["${inputs.c}", "${state.t}"][self.dice.below(2)]));
        }
        if self.dice.one_in(12) {
            params.insert("code".into(), json!(["${inputs.c}", "${inputs.h}"][self.dice.below(2)]));
        }
        if let Some(element) = element {
            params.insert("note".into(), json!(format!("${{{element}}}")));
        }
        params
    }

    fn pay(&mut self, name: &str, rest: &Value, element: Option<&str>, may_fail: bool) {
        let mut params = self.arguments(element);
        let failed = may_fail.then(|| self.target());
        let (mut checked, mut played) = (rest.clone(), rest.clone());
        // The call itself, or a graph that makes it once or twice for values that are vouched for, or after a question of its own.
        let graph = ["g/once", "g/twice", "g/asks"].get(self.dice.below(20)).filter(|_| failed.is_none());
        if let Some(graph) = graph {
            params.retain(|name, _| name == "note");
            checked["action"] = json!({ "item_id": graph, "params": params });
            played["action"] = json!({ "item_id": format!("{graph}_played"), "params": params });
        } else {
            checked["action"] = json!({ "item_id": "t/pay", "params": params });
            params.insert("fails".into(), json!(failed.is_some()));
            played["action"] = json!({ "item_id": "t/play", "params": params });
        }
        if failed.is_some() && self.dice.one_in(3) {
            self.repeat(name, [&mut checked, &mut played]);
        }
        if let Some(failed) = failed {
            checked["on_error"] = json!(failed);
            played["on_error"] = json!(failed);
        }
        self.add(name, checked, played);
    }

    /// Lets a call that fails be made again with the same key, by itself or by a hook.
    fn repeat(&mut self, name: &str, nodes: [&mut Value; 2]) {
        if self.dice.one_in(2) {
            for node in nodes {
                node["retry"] = json!({ "attempts": 2, "on": ["any"] });
            }
        } else {
            let condition = json!({ "path": "node", "value": name });
            let action = json!({ "retry": true, "max_retries": 1 });
            let hook = json!({ "event": "error", "condition": condition, "action": action });
            self.hooks.push([hook.clone(), hook]);
        }
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
                if self.dice.one_in(6) {
                    node["assign"]["t"] = json!("${result.token}");
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

    /// Adds a hook that makes a guarded call.
    fn hook(&mut self) {
        let note = ["${inputs.g}", "${inputs.v}", "${state.k0}"][self.dice.below(3)];
        let event = ["graph_started", "graph_completed"][self.dice.below(2)];
        let hook = |tool: &str| json!({ "event": event, "action": { "item_id": tool, "params": { "note": note } } });
        self.hooks.push([hook("t/pay"), hook("t/play")]);
    }

    /// Returns another place where runs begin; in a branch of a list, with an input as its element.
    fn entry(&mut self) -> Option<Value> {
        let nodes = self.played.iter().filter(|(_, node)| node["waits_for"].is_null());
        let name = nodes.map(|(name, _)| name).nth(self.dice.below(self.played.len()))?;
        let fan = name.strip_suffix('p').map(|fan| &self.played[fan]["next"]);
        Some(match fan.is_some_and(|next| !next["over"].is_null()) {
            true => json!({ "node": name, "element": "inputs.v" }),
            false => json!({ "node": name }),
        })
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
pub(super) fn graphs(dice: &mut Dice) -> [Value; 2] {
    let count = 3 + dice.below(3);
    let (played, checked, hooks) = (Map::new(), Map::new(), Vec::new());
    let mut writer = Writer { dice, count, checked, played, hooks };
    for at in 0..count {
        writer.node(at);
    }
    if writer.dice.one_in(16) {
        writer.hook();
    }
    let entry = writer.dice.one_in(6).then(|| writer.entry()).flatten();
    let most_steps = MOST_STEPS - writer.dice.below(8);
    let Writer { checked, played, hooks, .. } = writer;
    let reached = reached(&played);
    let entry = entry.filter(|entry| reached.contains(entry["node"].as_str().unwrap()));
    let whole = |mut nodes: Map<String, Value>, which: usize| {
        nodes.retain(|name, _| reached.contains(name));
        nodes.insert("done".into(), json!({ "type": "return" }));
        let is_known = |hook: &&Value| hook["condition"]["value"].as_str().is_none_or(|node| nodes.contains_key(node));
        let hooks: Vec<&Value> = hooks.iter().map(|hook| &hook[which]).filter(is_known).collect();
        let mut graph = graph_of(&Value::Object(nodes), &json!(hooks));
        graph["config"]["max_steps"] = json!(most_steps);
        if let Some(entry) = &entry {
            graph["config"]["entries"] = json!({ "there": entry });
        }
        graph
    };
    [whole(checked, 0), whole(played, 1)]
}

/// Returns a graph of these nodes and hooks.
pub(super) fn graph_of(nodes: &Value, hooks: &Value) -> Value {
    json!({
        "version": "1.0.0",
        "tool_type": "graph",
        "executor_id": "rye/core/runtimes/state-graph/runtime",
        "permissions": ["rye.execute.*"],
        "config_schema": inputs_schema(),
        "config": {
            "start": "n0",
            "max_steps": MOST_STEPS,
            "state": { "k0": "", "k1": "", "s": "x", "a": "no_", "m": "", "t": "" },
            "channels": { "m": "max" },
            "nodes": nodes,
            "hooks": hooks,
        },
    })
}

/// Returns the schema of the inputs of the graphs.
fn inputs_schema() -> Value {
    let text = json!({ "type": "string" });
    json!({
        "type": "object",
        "properties": {
            "b": { "type": "boolean" },
            "w": { "enum": ["x", "y"] },
            "v": text,
            "o": text,
            "l": { "type": "array", "items": text },
            "g": { "type": "string", "x-guarded": true },
            "c": { "type": "string", "x-secret": true },
            "h": { "type": "string", "x-secret": true, "x-guarded": true },
        },
        "required": ["b", "w", "v", "l", "g", "c", "h"],
    })
}

/// Returns a graph that makes guarded calls for its caller, by its name, as it is checked, or with other tools as it is played.
pub(super) fn nested(name: &str, [pay, ask]: [&str; 2]) -> Value {
    let call =
        |next: &str| json!({ "action": { "item_id": pay, "params": { "note": "${inputs.note}" } }, "next": next });
    let by = json!({ "by": "result", "to": { "yes_": "pay", "no_": "done" } });
    let payload = json!({ "note": "${inputs.note}" });
    let words = schema_of("word");
    let question = match ask {
        "" => json!({ "type": "interrupt", "payload": payload, "result_schema": words, "next": by }),
        _ => json!({
            "action": { "item_id": ask, "params": { "kind": "word", "fails": false, "payload": payload } },
            "next": by,
        }),
    };
    let (start, nodes) = match name {
        "once" => ("pay", json!({ "pay": call("done") })),
        "twice" => ("pay", json!({ "pay": call("again"), "again": call("done") })),
        _ => ("ask", json!({ "ask": question, "pay": call("done") })),
    };
    let mut note = json!({ "type": "string" });
    if name != "asks" && ask.is_empty() {
        note["x-guarded"] = json!(true);
    }
    let mut graph = json!({
        "version": "1.0.0",
        "tool_type": "graph",
        "executor_id": "rye/core/runtimes/state-graph/runtime",
        "category": "g",
        "permissions": ["rye.execute.tool.*"],
        "config_schema": { "type": "object", "properties": { "note": note }, "required": ["note"] },
        "config": { "start": start, "nodes": nodes },
    });
    graph["config"]["nodes"]["done"] = json!({ "type": "return" });
    graph
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

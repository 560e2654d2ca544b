//! Random graphs that call tools with contracts.

use graph_runtime::{Map, Value};
use serde_json::json;

use super::dice::Dice;
use super::schema::{kind, object, schema, takes_null, value};

/// The prefix of the ids that graphs compute.
pub(crate) const COMPUTED: &str = "t/d";

/// The tools and graphs that can be called.
#[derive(Debug, Clone)]
pub(crate) struct World {
    /// Whether the types of all values that tools take and return are known.
    pub(crate) is_typed: bool,
    /// The tools with contracts: id, parameters, result.
    pub(crate) tools: Vec<(String, Value, Value)>,
    /// The tools that are called by computed ids only: id, parameters, result.
    pub(crate) computed: Vec<(String, Value, Value)>,
    /// The graphs: id, inputs, and the output.
    pub(crate) graphs: Vec<(String, Value, Value)>,
}

impl World {
    pub(crate) fn new(dice: &mut Dice, is_typed: bool) -> Self {
        let tool = |id: String, dice: &mut Dice| {
            let result = if is_typed || !dice.one_in(4) { object(dice, 2, is_typed) } else { json!({}) };
            (id, object(dice, 2, is_typed), result)
        };
        let tools = (0..5).map(|at| tool(format!("t/c{at}"), dice)).collect();
        let computed = (0..2).map(|at| tool(format!("{COMPUTED}{at}"), dice)).collect();
        Self { is_typed, tools, computed, graphs: Vec::new() }
    }
}

/// A path and the schema of its value.
type Known = (String, Value);

/// Adds a path and the paths into its value.
fn spread(known: &mut Vec<Known>, path: String, schema: &Value, depth: u32) {
    if depth > 0 {
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            spread(known, format!("{path}.{name}"), property, depth - 1);
        }
        match kind(schema) {
            Some("array") => spread(known, format!("{path}.0"), &schema["items"], depth - 1),
            Some("object") if schema.get("properties").is_none() => {
                spread(known, format!("{path}.a"), &schema["additionalProperties"], depth - 1);
            }
            _ => {}
        }
    }
    known.push((path, schema.clone()));
}

/// Turns a schema into one that the checker can infer from a literal: a word is a string, and an object has all its
/// fields.
fn settled(schema: &Value) -> Value {
    let mut settled = schema.clone();
    match kind(schema) {
        Some("enum") => {
            return json!({"type": if takes_null(schema) { json!(["string", "null"]) } else { json!("string") }});
        }
        Some("array") => settled["items"] = self::settled(&schema["items"]),
        Some("object") if schema.get("properties").is_none() => {
            let values = self::settled(&schema["additionalProperties"]);
            return json!({"type": schema["type"], "properties": {"a": values}, "required": ["a"]});
        }
        Some("object") => {
            let fields = schema["properties"].as_object().into_iter().flatten();
            let fields: Map<String, Value> =
                fields.map(|(name, property)| (name.clone(), self::settled(property))).collect();
            settled["required"] = fields.keys().cloned().collect();
            settled["properties"] = Value::Object(fields);
        }
        _ => {}
    }
    if let Some(map) = settled.as_object_mut() {
        map.shift_remove("default");
    }
    settled
}

/// Whether values of the schema `from` are likely to fit `to`.
fn may_fit(from: &Value, to: &Value) -> bool {
    match (kind(from), kind(to)) {
        (_, None) | (None, _) | (Some("integer"), Some("number")) | (Some("enum"), Some("string")) => true,
        (Some("enum"), Some("enum")) => {
            let (from, to) = (from["enum"].as_array(), to["enum"].as_array());
            from.into_iter().flatten().all(|word| word.is_null() || to.is_some_and(|to| to.contains(word)))
        }
        (Some("array"), Some("array")) => {
            may_fit(&from["items"], &to["items"]) && (takes_null(&to["items"]) || !takes_null(&from["items"]))
        }
        (Some("object"), Some("object")) => {
            let is_required =
                |name: &String| to["required"].as_array().is_some_and(|required| required.contains(&json!(name)));
            let values = (&from["additionalProperties"], &to["additionalProperties"]);
            match (from["properties"].as_object(), to["properties"].as_object()) {
                (Some(ones), Some(twos)) => twos.iter().all(|(name, two)| match ones.get(name) {
                    Some(one) => may_fit(one, two),
                    None => !is_required(name),
                }),
                (None, Some(twos)) => twos.iter().all(|(name, two)| !is_required(name) && may_fit(values.0, two)),
                (Some(ones), None) => ones.values().all(|one| may_fit(one, values.1)),
                (None, None) => may_fit(values.0, values.1),
            }
        }
        (one, two) => one == two,
    }
}

/// Makes a value with templates for a place with the schema `to`.
fn term(dice: &mut Dice, known: &[Known], to: &Value, depth: u32) -> Value {
    let fitting: Vec<&Known> = known.iter().filter(|(_, from)| may_fit(from, to)).collect();
    // Now and then a path that does not fit, for the checker to refuse.
    let path = |dice: &mut Dice| match dice.below(60) {
        0 => dice.pick(known),
        _ => dice.pick(&fitting).copied(),
    };
    let is_scalar = !matches!(kind(to), Some("array" | "object"));
    if !dice.one_in(if is_scalar || depth == 0 { 3 } else { 2 })
        && let Some((one, from)) = path(dice)
    {
        let alternative = path(dice).filter(|_| takes_null(from) || dice.one_in(4));
        return match alternative {
            Some((two, _)) => json!(format!("${{{one} || {two}}}")),
            None => json!(format!("${{{one}}}")),
        };
    }
    if depth == 0 {
        return value(dice, to);
    }
    match kind(to) {
        Some("array") => (0..dice.below(3)).map(|_| term(dice, known, &to["items"], depth - 1)).collect(),
        Some("object") => {
            let values = &to["additionalProperties"];
            let mut map = Map::new();
            for (name, property) in to["properties"].as_object().into_iter().flatten() {
                let is_required = to["required"].as_array().is_some_and(|list| list.contains(&json!(name)));
                if (is_required && !dice.one_in(120)) || dice.one_in(2) {
                    map.insert(name.clone(), term(dice, known, property, depth - 1));
                }
            }
            if to.get("properties").is_none() && dice.one_in(2) {
                map.insert("a".into(), term(dice, known, values, depth - 1));
            }
            Value::Object(map)
        }
        Some("string") if dice.one_in(2) => match dice.pick(known) {
            Some((path, _)) => json!(format!("<${{{path}}}>")),
            None => json!("x"),
        },
        _ => value(dice, to),
    }
}

/// Makes a condition on known paths.
fn condition(dice: &mut Dice, known: &[Known], depth: u32) -> Value {
    if depth > 0 && dice.one_in(4) {
        let list: Vec<Value> = (0..1 + dice.below(2)).map(|_| condition(dice, known, depth - 1)).collect();
        return match dice.below(3) {
            0 => json!({ "any": list }),
            1 => json!({ "all": list }),
            _ => json!({ "not": list[0] }),
        };
    }
    let known: Vec<&Known> = known.iter().filter(|(path, _)| !path.starts_with('_')).collect();
    let Some((path, from)) = dice.pick(&known) else { return json!({"path": "inputs.id", "op": "exists"}) };
    if dice.one_in(2) {
        return json!({"path": path, "op": "exists"});
    }
    let mut right = value(dice, from);
    while right.is_null() && !dice.one_in(3) {
        right = value(dice, from);
    }
    let op = match kind(from) {
        Some("integer" | "number") if !right.is_null() => ["eq", "ne", "gt", "gte", "lt", "lte"][dice.below(6)],
        Some("string") if !right.is_null() => ["eq", "ne", "contains", "regex", "gt"][dice.below(5)],
        Some("array") => {
            let element = value(dice, &from["items"]);
            return json!({"path": path, "op": "contains", "value": element});
        }
        _ if dice.one_in(4) => return json!({"path": path, "op": "in", "value": [right]}),
        _ => ["eq", "ne"][dice.below(2)],
    };
    json!({"path": path, "op": op, "value": right})
}

/// A graph, the schema of its inputs, and the schema of its output if it returns one explicitly.
pub(crate) struct Made {
    pub(crate) graph: Value,
    pub(crate) inputs: Value,
    pub(crate) output: Value,
}

/// Makes a graph.
pub(crate) fn graph(dice: &mut Dice, world: &World) -> Made {
    let mut inputs = object(dice, 3, world.is_typed);
    // Computed ids end with one of these.
    inputs["properties"]["id"] = json!({"enum": ["0", "1"], "default": "0"});
    let count = 2 + dice.below(6);
    let mut writer = Writer { dice, world, keys: Vec::new(), known: Vec::new(), continues: false };
    writer.continues = writer.dice.one_in(4);
    spread(&mut writer.known, "inputs".into(), &inputs, 4);
    let mut state = Map::new();
    for at in 0..5 {
        let mut of = schema(writer.dice, 2, world.is_typed);
        if !writer.dice.one_in(8) {
            of = settled(&of);
        }
        let name = format!("k{at}");
        if !writer.dice.one_in(6) {
            let first = value(writer.dice, &of);
            state.insert(name.clone(), first);
        }
        spread(&mut writer.known, format!("state.{name}"), &of, 3);
        writer.keys.push((name, of));
    }
    for time in ["_now", "_timestamp"] {
        let of = if time == "_now" { "string" } else { "integer" };
        writer.known.push((time.into(), json!({ "type": of })));
    }
    let mut nodes = Map::new();
    for at in 0..count {
        nodes.insert(format!("n{at}"), writer.node(at, count));
    }
    // A key that is read must be written somewhere.
    for (name, of) in writer.keys.clone() {
        let is_written = |node: &Value| node["assign"].get(&name).is_some() || node["collect"] == json!(name);
        if !state.contains_key(&name) && !nodes.values().any(is_written) {
            let first = value(writer.dice, &of);
            state.insert(name, first);
        }
    }
    let output = object(writer.dice, 2, world.is_typed);
    let known = writer.known.clone();
    let mut end = json!({"type": "return"});
    let term = term(writer.dice, &known, &output, 3);
    if term.is_object() && !writer.dice.one_in(5) {
        end["output"] = term;
    }
    nodes.insert(format!("n{count}"), end);
    let hooks = writer.hooks();
    let continues = if writer.continues { "continue" } else { "fail" };
    let graph = json!({
        "version": "1.0.0",
        "tool_type": "graph",
        "executor_id": "rye/core/runtimes/state-graph/runtime",
        "category": "g",
        "permissions": ["rye.execute.tool.*"],
        "limits": {"depth": 4},
        "config_schema": inputs,
        "config": {"start": "n0", "max_steps": 300, "on_error": continues, "state": state, "hooks": hooks, "nodes": nodes},
    });
    Made { inputs: graph["config_schema"].clone(), graph, output }
}

struct Writer<'w> {
    dice: &'w mut Dice,
    world: &'w World,
    keys: Vec<(String, Value)>,
    known: Vec<Known>,
    /// Whether the run continues after a node fails.
    continues: bool,
}

impl Writer<'_> {
    fn node(&mut self, at: usize, count: usize) -> Value {
        match self.dice.below(8) {
            0 | 1 => {
                let known = self.known.clone();
                let assign = self.assign(&known);
                json!({"type": "gate", "assign": assign, "next": self.next(at, count, &known)})
            }
            2 | 3 => self.foreach(at, count),
            _ => {
                let mut known = self.known.clone();
                known.push(("visit.number".into(), json!({"type": "integer"})));
                let of = self.callee();
                if let (Some(result), true) = (&of.result, self.dice.one_in(4)) {
                    spread(&mut known, "visit.previous".into(), result, 3);
                }
                let action = self.action(&of, &known);
                let mut after = self.known.clone();
                if let Some(result) = &of.result {
                    spread(&mut after, "result".into(), result, 3);
                }
                let assign = self.assign(&after);
                let mut node = json!({"action": action, "assign": assign, "next": self.next(at, count, &after)});
                self.on_error(&mut node, at, count, false);
                node
            }
        }
    }

    fn foreach(&mut self, at: usize, count: usize) -> Value {
        let items = settled(&schema(self.dice, 1, self.world.is_typed));
        let over = term(self.dice, &self.known, &json!({"type": "array", "items": items}), 2);
        // The list's elements fit this schema, or else the checker refuses the graph.
        let mut known = self.known.clone();
        spread(&mut known, "item".into(), &items, 2);
        let of = self.callee();
        let action = self.action(&of, &known);
        let mut node = json!({"type": "foreach", "over": over, "action": action});
        if self.dice.one_in(2) {
            node["parallel"] = json!(true);
        }
        if let (Some(result), true) = (&of.result, self.dice.one_in(2)) {
            let fits = |(_, key): &&(String, Value)| may_fit(&json!({"type": "array", "items": result}), key);
            let keys: Vec<&(String, Value)> = self.keys.iter().filter(fits).collect();
            if let Some((key, _)) = self.dice.pick(&keys) {
                node["collect"] = json!(key);
            }
        }
        let known = self.known.clone();
        node["next"] = self.next(at, count, &known);
        self.on_error(&mut node, at, count, self.world.is_typed && self.continues);
        node
    }

    /// Leads a failure to a later node: sometimes, or always if `must`.
    fn on_error(&mut self, node: &mut Value, at: usize, count: usize, must: bool) {
        if must || self.dice.one_in(3) {
            let to = at + 1 + self.dice.below(count - at);
            node["on_error"] = json!(format!("n{to}"));
        }
    }

    fn callee(&mut self) -> Callee {
        match self.dice.below(12) {
            // The result of such a call has no known type, so it is not used where all types must be known.
            0 | 3 | 4 if !self.world.is_typed => {
                // The parameters are those of one of the tools, so that some calls fit the tool that is called.
                let (_, params, _) = &self.world.computed[self.dice.below(2)];
                Callee { id: format!("{COMPUTED}${{inputs.id}}"), params: params.clone(), result: None }
            }
            1 | 2 => match self.dice.pick(&self.world.graphs) {
                Some((id, inputs, output)) => {
                    let result = json!({"type": "object", "properties": {
                        "success": {"type": "boolean"}, "output": output, "steps": {"type": "integer"},
                    }, "required": ["success", "steps"]});
                    Callee { id: id.clone(), params: inputs.clone(), result: Some(result) }
                }
                None => self.callee(),
            },
            _ => {
                let (id, params, result) = &self.world.tools[self.dice.below(self.world.tools.len())];
                Callee { id: id.clone(), params: params.clone(), result: Some(result.clone()) }
            }
        }
    }

    fn action(&mut self, of: &Callee, known: &[Known]) -> Value {
        let mut params = json!({});
        for (name, property) in of.params["properties"].as_object().into_iter().flatten() {
            let is_required = of.params["required"].as_array().is_some_and(|list| list.contains(&json!(name)));
            if (is_required && !self.dice.one_in(120)) || self.dice.one_in(2) {
                params[name] = term(self.dice, known, property, 3);
            }
        }
        json!({"item_id": of.id, "params": params})
    }

    fn assign(&mut self, known: &[Known]) -> Value {
        let mut assign = Map::new();
        for _ in 0..self.dice.below(4) {
            let (name, of) = self.keys[self.dice.below(self.keys.len())].clone();
            assign.insert(name, term(self.dice, known, &of, 2));
        }
        Value::Object(assign)
    }

    fn next(&mut self, at: usize, count: usize, known: &[Known]) -> Value {
        let mut edges = Vec::new();
        if at > 0 && self.dice.one_in(5) {
            let back = self.dice.below(at + 1);
            edges.push(json!({"to": format!("n{back}"), "when": {"path": "visit.number", "op": "lt", "value": 3}}));
        }
        for _ in 0..self.dice.below(3) {
            let to = at + 1 + self.dice.below(count - at);
            edges.push(json!({"to": format!("n{to}"), "when": condition(self.dice, known, 1)}));
        }
        if edges.is_empty() {
            return json!(format!("n{}", at + 1));
        }
        edges.push(json!({"to": format!("n{}", at + 1)}));
        Value::from(edges)
    }

    fn hooks(&mut self) -> Vec<Value> {
        let mut hooks = Vec::new();
        if self.dice.one_in(4) {
            let event = ["graph_started", "after_step", "graph_completed"][self.dice.below(3)];
            let known: Vec<Known> = self.known.iter().filter(|(path, _)| path.starts_with("inputs")).cloned().collect();
            let at = self.dice.below(self.world.tools.len());
            let (id, params, _) = self.world.tools[at].clone();
            let action = self.action(&Callee { id, params, result: None }, &known);
            hooks.push(json!({"event": event, "action": action}));
        }
        hooks
    }
}

/// The target of an action.
struct Callee {
    id: String,
    params: Value,
    /// The schema of its result, if it is known.
    result: Option<Value>,
}

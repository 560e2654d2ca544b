//! The meaning of a graph as a digest: equal for two files whose runs do the same, whatever their texts are.
//!
//! A run is pinned to it, so a run continues under another text of its graph. It is the SHA-256 of [`VERSION`], a line feed, and
//! the canonical JSON of the program's tables together with the types that the graph and its contracts declare. It is defined over
//! names, and not over the indices of tables, since these depend on the order of the nodes in the file. `docs/journal.md` has
//! the rules.
//!
//! A digest must be the same with every later version of this code. A field that has its default is therefore left out, and a
//! change that gives a graph of today another digest is one of [`VERSION`].

use graph_model::condition::{Condition, Test, When};
use graph_model::digest::Digest;
use graph_model::ir::{GraphIr, KeyIr, NodeIr, ToolIr};
use graph_model::path::{Path, Root};
use graph_model::program::{
    Ask, CallLimits, Each, Edge, EntryBranch, EntryPoint, Executor, Hook, Join, Kind, NodeBody, OnNoMatch, Quorum,
    Route, Settings, Wait,
};
use graph_model::secret::Secrets;
use graph_model::template::{Expression, InputReference, Piece, Template};
use graph_model::term::Term;
use graph_model::value::{Map, Value, canonical_json};
use serde::Serialize;
use serde_json::{json, to_value};

use crate::graph::{Interface, TypedReducer, TypedSignal, TypedTool};
use crate::types::{Type, TypeKind, TypedField};

/// The version of the encoding, as the digest has it.
const VERSION: &str = "state-graphs meaning 1";

/// Returns the digest of the meaning of a graph with these tables and this interface.
pub(crate) fn digest(graph: &GraphIr, interface: &Interface) -> Digest {
    let text = canonical_json(&Meaning { graph, interface }.whole());
    Digest::of_parts(&[VERSION.as_bytes(), b"\n", text.as_bytes()])
}

/// The version of the encoding of a contract.
const CONTRACT_VERSION: &str = "state-graphs contract 1";

/// Returns the digest of what the contract of a tool means for the program that performs it: its id, its types with their defaults,
/// and whether the runtime performs it.
pub(crate) fn of_tool(tool: &TypedTool) -> Digest {
    let TypedTool { id, params, result, builtin, .. } = tool;
    let whole = Fields::default()
        .set("tool", Value::from(id.as_str()))
        .set("params", params.as_ref().map(|params| fields(params)))
        .set("result", type_of(result))
        .flag("by_runtime", *builtin);
    of_contract(whole)
}

/// Returns the digest of what the contract of a reducer means for the program.
pub(crate) fn of_reducer(of: &TypedReducer) -> Digest {
    of_contract(Fields::default().set("reducer", reducer(of)))
}

fn of_contract(whole: Fields) -> Digest {
    Digest::of_parts(&[CONTRACT_VERSION.as_bytes(), b"\n", canonical_json(&whole.done()).as_bytes()])
}

/// The fields of an object. One that has its default is not written.
#[derive(Default)]
struct Fields(Map<String, Value>);

impl Fields {
    fn set(mut self, name: &str, value: impl Into<Option<Value>>) -> Self {
        if let Some(value) = value.into() {
            self.0.insert(name.to_owned(), value);
        }
        self
    }

    fn list(self, name: &str, list: Vec<Value>) -> Self {
        self.set(name, (!list.is_empty()).then_some(Value::Array(list)))
    }

    fn flag(self, name: &str, flag: bool) -> Self {
        self.set(name, flag.then_some(Value::Bool(true)))
    }

    /// Sets a field to a value that is written without indices or texts of the author's.
    fn plain<T: Serialize + PartialEq>(self, name: &str, value: &T, default: &T) -> Self {
        self.set(name, (value != default).then(|| plain(value)))
    }

    fn done(self) -> Value {
        Value::Object(self.0)
    }
}

fn plain(value: &impl Serialize) -> Value {
    to_value(value).expect("a part of a program is plain JSON")
}

fn texts<'t>(list: impl IntoIterator<Item = &'t String>) -> Vec<Value> {
    list.into_iter().map(|text| Value::from(text.as_str())).collect()
}

/// Returns texts whose order means nothing.
fn set_of(list: &[String]) -> Vec<Value> {
    let mut list: Vec<&String> = list.iter().collect();
    list.sort_unstable();
    list.dedup();
    texts(list)
}

/// Sorts values whose order means nothing.
fn sorted(mut list: Vec<Value>) -> Vec<Value> {
    list.sort_by_cached_key(canonical_json);
    list
}

struct Meaning<'g> {
    graph: &'g GraphIr,
    interface: &'g Interface,
}

impl Meaning<'_> {
    fn whole(&self) -> Value {
        // The text, who signed it, and the author's number for it are the pin beside this one.
        let GraphIr { id, version: _, source: _, digest: _, signer: _, start, settings, permissions, env, .. } =
            self.graph;
        let GraphIr { keys, tools: _, nodes, .. } = self.graph;
        let Interface { inputs, reducers, signals, answers, .. } = self.interface;
        let shows_keys = self.shows_whole_state();
        let joins: Vec<&String> = nodes.iter().filter(|node| node.body.join.is_some()).map(|node| &node.name).collect();
        Fields::default()
            .set("id", Value::from(id.as_str()))
            .set("start", self.node_named(*start))
            .set("settings", self.settings(settings))
            .list("permissions", set_of(permissions))
            .list("env", set_of(env))
            .list("keys", sorted(keys.iter().map(key).collect()))
            .list("order", if shows_keys { texts(keys.iter().map(|key| &key.name)) } else { Vec::new() })
            .list("nodes", sorted(nodes.iter().map(|node| self.node(node)).collect()))
            .set("inputs", inputs.as_ref().map(|inputs| fields(inputs)))
            .list("reducers", sorted(reducers.iter().map(reducer).collect()))
            .list("signals", sorted(signals.iter().map(signal).collect()))
            .list("answers", sorted(answers.iter().map(signal).collect()))
            .list("behind", texts(&self.interface.behind))
            // The joins of a fan-out come in the order of the file.
            .list("joins", if joins.len() > 1 { texts(joins) } else { Vec::new() })
            .done()
    }

    /// Whether a text or a tool can see the whole state, and with it the order of its keys.
    fn shows_whole_state(&self) -> bool {
        let mut found = false;
        let mut visit = |path: &Path| {
            found |= path.root == Root::State && path.segments.is_empty()
                || path.root == Root::Local && matches!(path.segments.as_slice(), [name] if name == "state");
        };
        for NodeIr { body, .. } in &self.graph.nodes {
            body.paths(&mut visit);
            body.next.paths(&mut visit);
        }
        for Hook { condition, params, .. } in &self.graph.settings.hooks {
            params.paths(&mut visit);
            condition.iter().for_each(|when| when.condition().tests(&mut |test| visit(&test.path)));
        }
        found
    }

    /// Returns the name of a node. The node that begins a run in several nodes cannot be confused with another one: its name is
    /// in a list.
    fn node_named(&self, at: u16) -> Value {
        match self.graph.nodes.get(usize::from(at)) {
            Some(NodeIr { name, body }) if body.does == Kind::Start => json!([name]),
            Some(NodeIr { name, .. }) => Value::from(name.as_str()),
            None => Value::from(at),
        }
    }

    fn nodes_named(&self, list: &[u16]) -> Vec<Value> {
        sorted(list.iter().map(|&at| self.node_named(at)).collect())
    }

    fn settings(&self, settings: &Settings) -> Value {
        let Settings { max_steps, on_max_steps, on_error, on_no_match, max_concurrency, depth, .. } = settings;
        let Settings { timeout_ms, deadline_ms, visits, steps, hooks, required, schema, secrets, .. } = settings;
        // A changed contract has other types, or another text with the same meaning. Its digest belongs to the cache. Callers may have to
        // vouch for inputs of a run, which changes nothing of the run.
        let Settings {
            signals,
            channels,
            by_branch,
            keep,
            entries,
            trusted_inputs: _,
            contracts: _,
            rules: _,
            meaning: _,
            ..
        } = settings;
        let own = Settings::default();
        let Secrets { inputs, keys, tools, signals: received, answers, output } = secrets;
        let masks = tools.iter().map(|(at, mask)| json!([self.tool(*at), mask])).collect();
        let secrets = Fields::default()
            .set("inputs", inputs.as_ref().map(plain))
            .plain("keys", keys, &own.secrets.keys)
            .list("tools", sorted(masks))
            .plain("signals", received, &own.secrets.signals)
            .plain("answers", answers, &own.secrets.answers)
            .set("output", output.as_ref().map(plain));
        let entries = entries.iter().map(|(name, entry)| self.entry(name, entry)).collect();
        Fields::default()
            .set("max_steps", Value::from(*max_steps))
            .plain("on_max_steps", on_max_steps, &own.on_max_steps)
            .plain("on_error", on_error, &own.on_error)
            .plain("on_no_match", on_no_match, &own.on_no_match)
            .plain("max_concurrency", max_concurrency, &own.max_concurrency)
            .plain("depth", depth, &own.depth)
            .set("timeout_ms", timeout_ms.map(Value::from))
            .set("deadline_ms", deadline_ms.map(Value::from))
            .set("visits", visits.map(Value::from))
            .set("steps", steps.map(Value::from))
            .list("hooks", hooks.iter().map(|hook| self.hook(hook)).collect())
            .list("required", texts(required))
            .set("schema", schema.clone())
            .set("secrets", Some(secrets.done()).filter(|secrets| *secrets != json!({})))
            .plain("signals", signals, &own.signals)
            .plain("channels", channels, &own.channels)
            .plain("by_branch", by_branch, &own.by_branch)
            .plain("keep", keep, &own.keep)
            .list("entries", entries)
            .done()
    }

    fn entry(&self, name: &str, entry: &EntryPoint) -> Value {
        let EntryPoint { node, branches } = entry;
        let branch = |branch: &EntryBranch| {
            let EntryBranch { fan, behind, element } = branch;
            Fields::default()
                .set("fan", self.node_named(*fan))
                .set("behind", behind.map(|at| self.node_named(at)))
                .set("element", element.as_ref().map(path))
                .done()
        };
        Fields::default()
            .set("name", Value::from(name))
            .set("node", self.node_named(*node))
            .list("branches", branches.iter().map(branch).collect())
            .done()
    }

    fn hook(&self, hook: &Hook) -> Value {
        let Hook { id, event, condition, tool, params, untrusted } = hook;
        Fields::default()
            .set("id", id.as_deref().map(Value::from))
            .set("event", plain(event))
            .set("condition", condition.as_ref().map(when))
            .set("tool", tool.map(|at| self.tool(at)))
            .set("params", (!params.is_null()).then(|| term(params)))
            .set("untrusted", (!untrusted.is_nothing()).then(|| plain(untrusted)))
            .done()
    }

    /// Describes a tool, with its contract. A graph and an item are described by their ids: the runs of a graph have a pin of
    /// their own. So is a tool of the runtime, which keeps its contract compatible, so that a new version of the runtime
    /// strands no run.
    fn tool(&self, at: u16) -> Value {
        let Some(tool) = self.graph.tools.get(usize::from(at)) else { return Value::from(at) };
        let ToolIr { id, verb, item, by, params, typed, nests } = tool;
        let by_name = match by {
            Executor::Program => None,
            Executor::Graph => Some(Value::from("graph")),
            Executor::Items => Some(Value::from("items")),
        };
        let whole = Fields::default()
            .set("id", Value::from(id.as_str()))
            .set("verb", plain(verb))
            .set("item", plain(item))
            .set("by", by_name)
            .set("rules", self.graph.settings.rules.get(&at).map(plain));
        let of = self.interface.tools.get(usize::from(at));
        let is_runtimes = of.is_some_and(|of| of.builtin && of.subprocess.is_none() && of.mcp.is_none());
        if *by != Executor::Program || is_runtimes {
            return whole.done();
        }
        let names = params.as_ref().map(|params| {
            let of_param = |param: &graph_model::ir::ParamIr| match &param.default {
                Some(default) => json!([param.name, data(default)]),
                None => json!([param.name]),
            };
            Value::Array(params.iter().map(of_param).collect())
        });
        let whole = whole.set("params", names).flag("typed", *typed).flag("nests", *nests);
        let Some(TypedTool { params, result, subprocess, mcp, .. }) = of else { return whole.done() };
        whole
            .set("types", params.as_ref().map(|params| fields(params)))
            .set("result", type_of(result))
            .set("subprocess", subprocess.as_ref().map(plain))
            .set("mcp", mcp.as_ref().map(plain))
            .done()
    }

    fn node(&self, node: &NodeIr) -> Value {
        let NodeIr { name, body } = node;
        // The line is one of the text. The first node that requires a variable depends on the order of the nodes; the graph has the whole list.
        // Facts follow from the rest.
        let NodeBody { line: _, env: _, facts: _, does, item, params, each, wait, assign, reset, share, .. } = body;
        let NodeBody { share_signals, .. } = body;
        let NodeBody { next, join, on_error, output, cancels, retry, timeout_ms, limits, remote, .. } = body;
        let NodeBody { feedback, cached, untrusted, .. } = body;
        Fields::default()
            .set("name", Value::from(name.as_str()))
            .set("does", Value::from(does.name()))
            .set("tool", does.tool().map(|at| self.tool(at)))
            .set("item", item.as_ref().map(term))
            .set("params", params.as_ref().map(term))
            .set("each", each.as_ref().map(each_of))
            .set("wait", wait.as_ref().map(|wait| self.wait(wait)))
            .list("assign", assign.iter().map(|(key, value)| json!([key, term(value)])).collect())
            .list("reset", texts(reset))
            .list("share", texts(share))
            .list("share_signals", sorted(texts(share_signals)))
            .set("next", (!next.is_empty()).then(|| self.route(next)))
            .set("join", join.as_ref().map(|join| self.join(join)))
            .set("on_error", on_error.map(|at| self.node_named(at)))
            .set("output", output.as_ref().map(term))
            .flag("cancels", *cancels)
            .set("retry", retry.as_ref().map(plain))
            .set("timeout_ms", timeout_ms.map(Value::from))
            .plain("limits", limits, &CallLimits::default())
            .set("remote", remote.as_deref().map(Value::from))
            .flag("forgets", !feedback)
            .flag("cached", *cached)
            .set("untrusted", (!untrusted.is_nothing()).then(|| plain(untrusted)))
            .done()
    }

    fn wait(&self, wait: &Wait) -> Value {
        let Wait { until, timeout_ms, signals, on_timeout, ask } = wait;
        let ask = ask.as_ref().map(|Ask { payload, schema, role, count, by_word }| {
            Fields::default()
                .set("payload", payload.as_ref().map(term))
                .set("schema", schema.clone())
                .set("role", role.as_deref().map(Value::from))
                .set("count", Value::from(*count))
                .set("by_word", by_word.as_ref().map(plain))
                .done()
        });
        Fields::default()
            .set("until", until.as_ref().map(term))
            .set("timeout_ms", timeout_ms.map(Value::from))
            .list("signals", texts(signals))
            .set("on_timeout", on_timeout.map(|at| self.node_named(at)))
            .set("ask", ask)
            .done()
    }

    fn route(&self, route: &Route) -> Value {
        match route {
            Route::First(edges) => self.edges(edges),
            Route::All { all, width, on_branch_error } => Fields::default()
                .set("all", self.edges(all))
                .set("width", width.map(Value::from))
                .set("on_branch_error", on_branch_error.as_ref().map(plain))
                .done(),
            Route::Each { over, name, to, width, most, on_branch_error } => Fields::default()
                .set("over", term(over))
                .set("as", Value::from(name.as_str()))
                .set("to", Value::from(to.as_str()))
                .set("width", width.map(Value::from))
                .set("most", most.map(Value::from))
                .set("on_branch_error", on_branch_error.as_ref().map(plain))
                .done(),
            // A record names an edge by its place.
            Route::By { by, to } => {
                let to: Vec<Value> = to.iter().map(|(word, to)| json!([word, to])).collect();
                Fields::default().set("by", path(by)).set("to", Value::Array(to)).done()
            }
        }
    }

    fn edges(&self, edges: &[Edge]) -> Value {
        // Where the failure of a node lists its edges, a record has their texts.
        let shows = self.graph.settings.on_no_match == OnNoMatch::Fail;
        let edge = |edge: &Edge| {
            let Edge { to, when: condition, description: _ } = edge;
            Fields::default()
                .set("to", to.as_deref().map(Value::from))
                .set("when", condition.as_ref().map(when))
                .set("shown", shows.then(|| Value::from(edge.to_string())))
                .done()
        };
        Value::Array(edges.iter().map(edge).collect())
    }

    fn join(&self, join: &Join) -> Value {
        let Join { of, fan, closes, quorum } = join;
        let quorum = quorum.map(|Quorum { need, rest, fewer }| {
            Fields::default()
                .set("need", Value::from(need))
                .plain("rest", &rest, &Default::default())
                .set("fewer", fewer.map(|at| self.node_named(at)))
                .done()
        });
        Fields::default()
            .list("of", self.nodes_named(of))
            .set("fan", fan.map(|at| self.node_named(at)))
            .flag("closes", *closes)
            .set("quorum", quorum)
            .done()
    }
}

fn key(key: &KeyIr) -> Value {
    let KeyIr { name, initial } = key;
    Fields::default().set("name", Value::from(name.as_str())).set("initial", initial.as_ref().map(data)).done()
}

fn each_of(each: &Each) -> Value {
    let Each { over, name, collect, width } = each;
    Fields::default()
        .set("over", term(over))
        .set("as", Value::from(name.as_str()))
        .set("collect", collect.as_deref().map(Value::from))
        .set("width", width.map(Value::from))
        .done()
}

fn reducer(reducer: &TypedReducer) -> Value {
    // The channels name it.
    let TypedReducer { id, description: _, keys: _, write, value } = reducer;
    json!([id, type_of(write), type_of(value)])
}

fn signal(signal: &TypedSignal) -> Value {
    let TypedSignal { name, ty, description: _ } = signal;
    json!([name, type_of(ty)])
}

/// Describes a type without descriptions. The fields of an object have an order, which a text that has the object in it shows.
fn type_of(ty: &Type) -> Value {
    // The rest of the graph says which values are known.
    let Type { kind, nullable, secret, known: _ } = ty;
    let kind = match kind {
        TypeKind::Never => Value::from("never"),
        TypeKind::Boolean => Value::from("boolean"),
        TypeKind::Integer => Value::from("integer"),
        TypeKind::Number => Value::from("number"),
        TypeKind::String => Value::from("string"),
        TypeKind::Any => Value::from("any"),
        TypeKind::Enum(words) => json!({ "enum": words }),
        TypeKind::List(inner) => json!({ "list": type_of(inner) }),
        TypeKind::Map(inner) => json!({ "map": type_of(inner) }),
        TypeKind::Object(inner) => json!({ "object": fields(inner) }),
    };
    Fields::default().set("kind", kind).flag("nullable", *nullable).flag("secret", *secret).done()
}

fn fields(list: &[TypedField]) -> Value {
    let field = |field: &TypedField| {
        // The rules are in the schema of the inputs, or in those of the tool, signal or answer.
        let TypedField { name, ty, default, description: _, rules: _ } = field;
        Fields::default()
            .set("name", Value::from(name.as_str()))
            .set("type", type_of(ty))
            .set("default", default.as_ref().map(data))
            .done()
    };
    Value::Array(list.iter().map(field).collect())
}

/// Describes a value of the author's, whose fields have an order.
fn data(value: &Value) -> Value {
    match value {
        Value::Array(list) => json!({ "list": list.iter().map(data).collect::<Vec<_>>() }),
        Value::Object(map) => {
            json!({ "object": map.iter().map(|(name, value)| json!([name, data(value)])).collect::<Vec<_>>() })
        }
        scalar => json!({ "value": scalar }),
    }
}

/// Describes a value with templates. It is the same for each way of writing it.
fn term(of: &Term) -> Value {
    match of {
        Term::Literal(value) => data(value),
        Term::Template { template, .. } => self::template(template),
        Term::List(list) => json!({ "list": list.iter().map(term).collect::<Vec<_>>() }),
        Term::Object(fields) => {
            json!({ "object": fields.iter().map(|(name, value)| json!([name, term(value)])).collect::<Vec<_>>() })
        }
    }
}

fn template(of: &Template) -> Value {
    match of {
        Template::Text(text) => json!({ "value": text }),
        Template::Whole(whole) => expression(whole),
        Template::Mixed(pieces) => {
            let piece = |piece: &Piece| match piece {
                Piece::Text(text) => Value::from(text.as_str()),
                Piece::Expression(inner) => expression(inner),
            };
            json!({ "text": pieces.iter().map(piece).collect::<Vec<_>>() })
        }
    }
}

fn expression(of: &Expression) -> Value {
    let Expression { paths, ranges: _, input } = of;
    let otherwise = input.as_ref().map(|input| match input {
        InputReference::AsWritten(text) => json!({ "written": text }),
        InputReference::Text(text) => json!({ "text": text }),
    });
    Fields::default().list("first", paths.iter().map(path).collect()).set("otherwise", otherwise).done()
}

fn path(of: &Path) -> Value {
    Value::from(of.to_string())
}

fn when(of: &When) -> Value {
    condition(of.condition())
}

fn condition(of: &Condition<Test>) -> Value {
    let list = |list: &[Condition<Test>]| list.iter().map(condition).collect::<Vec<_>>();
    match of {
        Condition::Always => json!({}),
        Condition::All(all) => json!({ "all": list(all) }),
        Condition::Any(any) => json!({ "any": list(any) }),
        Condition::Not(inner) => json!({ "not": condition(inner) }),
        Condition::Test(Test { path: left, operator, right }) => {
            json!({ "path": path(left), "op": operator.name(), "value": data(right) })
        }
    }
}

#[cfg(test)]
mod tests;

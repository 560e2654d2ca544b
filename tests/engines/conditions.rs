//! Random graphs with branches whose conditions prove that keys have values: a graph that compiles does not fail where it needs
//! such a value, whatever other branches write meanwhile.
//!
//! `CONDITIONS=3000 SEED=7 cargo test --release --test engines conditions` runs more of them.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::time::SystemTime;

use graph_compiler::graph::TypedTool;
use graph_runtime::dynamic::{Library, ToolFuture, Tools};
use graph_runtime::{Call, Map, Value, audit};
use graph_signing::{ItemKind, sign};
use serde_json::json;

use super::case::{Log, key, play, run_id};
use super::determinism::tree;
use super::number;
use super::random::Random;

/// No graph here calls a tool.
struct Nothing;

impl Tools for Nothing {
    fn perform<'a>(&'a self, _: &'a Call, _: &'a TypedTool, _: Map<String, Value>) -> ToolFuture<'a> {
        Box::pin(async { Ok(Value::Null) })
    }
}

/// Writes a random graph, its last nodes first.
struct Writer {
    random: Random,
    nodes: String,
    count: u64,
    /// The keys that no node writes yet: two nodes of branches may not write one.
    unwritten: Vec<u64>,
}

impl Writer {
    fn below(&mut self, most: u64) -> u64 {
        self.random.below(most)
    }

    /// Writes a node, and returns its name.
    fn node(&mut self, body: &str) -> String {
        self.count += 1;
        let name = format!("n{}", self.count);
        writeln!(self.nodes, "    {name}: {{ type: gate, {body} }}").unwrap();
        name
    }

    /// Writes nodes one behind the other that lead to `to`, and returns the first. The nodes that lead there are added to
    /// `sources`.
    fn sequence(&mut self, to: &str, depth: u32, sources: &mut BTreeSet<String>) -> String {
        let mut first = self.part(to, depth, sources);
        for _ in 0..self.below(4) {
            let next = first;
            first = self.part(&next, depth, &mut BTreeSet::new());
        }
        first
    }

    fn part(&mut self, to: &str, depth: u32, sources: &mut BTreeSet<String>) -> String {
        let (key, input) = (self.below(6), self.below(3));
        let kinds = if self.count > 14 || depth > 2 { 6 } else { 10 };
        let name = match self.below(kinds) {
            0 | 1 => match self.unwritten.pop() {
                // The value may be null.
                Some(key) => self.node(&format!("assign: {{ k{key}: \"${{inputs.m{input}}}\" }}, next: {to}")),
                None => self.node(&format!("next: {to}")),
            },
            2 if self.below(4) == 0 => self.node(&format!("assign: {{ list: \"${{state.k{key}}}\" }}, next: {to}")),
            2 => self.node(&format!("next: {to}")),
            3 => {
                let needs = self.node(&format!("assign: {{ list: \"${{state.k{key}}}\" }}, next: {to}"));
                sources.insert(needs.clone());
                let when = format!("when: {{ path: state.k{key}, op: exists }}");
                self.node(&format!("next: [{{ to: {needs}, {when} }}, {{ to: {to} }}]"))
            }
            4 | 5 => {
                let otherwise = match self.below(2) {
                    0 => "cut".to_owned(),
                    _ => {
                        let other = self.node(&format!("next: {to}"));
                        sources.insert(other.clone());
                        other
                    }
                };
                let when = format!("when: {{ path: state.k{key}, op: exists }}");
                self.node(&format!("next: [{{ to: {to}, {when} }}, {{ to: {otherwise} }}]"))
            }
            _ => {
                // The join is written when its sources are known, and has its name before.
                self.count += 1;
                let join = format!("n{}", self.count);
                let (count, mut of) = (2 + self.below(2), BTreeSet::new());
                let edges = (0..count).map(|_| format!("{{ to: {} }}", self.sequence(&join, depth + 1, &mut of)));
                let edges: Vec<String> = edges.collect();
                let of = of.into_iter().collect::<Vec<_>>().join(", ");
                let rest = if self.below(5) == 0 { "cancel" } else { "finish" };
                let waits = match self.below(4) {
                    0 => format!("[{of}]"),
                    _ => {
                        let need = if self.below(3) > 0 { 1 } else { 1 + self.below(count) };
                        let fewer = if self.below(2) == 0 { ", fewer: done" } else { "" };
                        format!("{{ of: [{of}], need: {need}, rest: {rest}{fewer} }}")
                    }
                };
                // The join itself may be where a condition is looked at.
                let next = match self.below(2) {
                    0 => to.to_owned(),
                    _ => format!("[{{ to: {to}, when: {{ path: state.k{key}, op: exists }} }}, {{ to: cut }}]"),
                };
                writeln!(self.nodes, "    {join}: {{ type: gate, waits_for: {waits}, next: {next} }}").unwrap();
                sources.insert(join);
                return self.node(&format!("next: {{ all: [{}] }}", edges.join(", ")));
            }
        };
        sources.insert(name.clone());
        name
    }
}

/// Returns the text of a random graph.
fn text(random: Random) -> String {
    let mut writer = Writer { random, nodes: String::new(), count: 0, unwritten: (0..6).collect() };
    let first = writer.sequence("done", 0, &mut BTreeSet::new());
    let all =
        |value: &str| (0..6).map(|key| format!("k{key}: {}", value.replace("#", &key.to_string()))).collect::<Vec<_>>();
    let keys = all("\"${state.k#}\"").join(", ");
    let none = all("none").join(", ");
    format!(
        r#"version: "1.0.0"
tool_type: graph
executor_id: rye/core/runtimes/state-graph/runtime
permissions: [rye.execute.tool.t.call]
config_schema:
  type: object
  properties: {{ m0: {{ type: string }}, m1: {{ type: string }}, m2: {{ type: string }}, word: {{ type: string }} }}
  required: [word]
config:
  start: begin
  max_steps: 400
  state: {{ k0: zero, k1: one, k2: null, k3: null, k4: four, k5: five }}
  channels: {{ list: append }}
  nodes:
    begin: {{ type: gate, assign: {{ k2: "${{inputs.m0}}", k3: "${{inputs.m1}}" }}, next: [{{ to: cut, when: {{ path: inputs.word, value: never }} }}, {{ to: {first} }}] }}
{}    done: {{ type: return, output: {{ {keys}, list: "${{state.list}}" }} }}
    cut: {{ type: return, cancels: true, output: {{ {none}, list: [] }} }}
"#,
        writer.nodes
    )
}

#[test]
fn conditions_prove_only_values_that_are_still_there() {
    let (graphs, seed) = (number("CONDITIONS", 600), number("SEED", 1));
    let (directory, secret) = tree();
    let library = Library::open(directory.path(), Nothing);
    let (mut refused, mut runs, mut late) = (0, 0, 0);
    for at in 0..graphs {
        let text = text(Random::new(seed.wrapping_mul(0x9e37_79b9).wrapping_add(at)));
        let path = directory.path().join(format!("conditions{at}.yaml"));
        fs::write(&path, sign(ItemKind::YAML, &text, &secret, SystemTime::UNIX_EPOCH).unwrap()).unwrap();
        let Ok(graph) = library.graph(&path) else {
            refused += 1;
            continue;
        };
        for given in 0..8_u32 {
            let some = (0..3).filter(|input| given >> input & 1 == 1).map(|input| (format!("m{input}"), json!("x")));
            let inputs = some.chain([("word".to_owned(), json!("w"))]).collect();
            let log = Log::default();
            let end = play(graph.clone(), inputs, Some(&log)).end;
            assert_eq!(end["success"], json!(true), "graph {at} of seed {seed}, inputs {given}: {end}\n{text}");
            let records: Vec<_> = log.entered().into_iter().map(|entered| entered.signed).collect();
            audit(&graph, &run_id(), &records, &key().public(), None).unwrap();
            runs += 1;
            late += u64::from(records.iter().any(|record| record.body.contains("\"late\":true")));
        }
    }
    println!("{runs} runs, {late} with late branches; {refused} of {graphs} graphs refused");
    assert!(runs > graphs && late * 100 > graphs, "{runs} {late}");
}

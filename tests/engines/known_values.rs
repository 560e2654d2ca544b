//! Random graphs in which words, results of nested graphs, channels and lists decide which values are there: what checks clean runs
//! without a failure, whatever the inputs are. A mistake that is planted on the path of every run is found.
//!
//! The judge is the engine with tools that look at what they receive; it shares nothing with the check.
//!
//! `KNOWN_VALUES=3000 SEED=7 cargo test --release --test engines known_values` runs more of them.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::time::SystemTime;

use graph_compiler::graph::TypedTool;
use graph_runtime::dynamic::{Library, ToolFuture, Tools};
use graph_runtime::{ActionError, Call, Map, Value};
use graph_signing::{ItemKind, sign};
use serde_json::json;

use super::case::play;
use super::determinism::tree;
use super::number;
use super::random::Random;

/// Tools that fail where they receive another value than they need.
struct Strict;

impl Tools for Strict {
    fn perform<'a>(&'a self, call: &'a Call, _: &'a TypedTool, params: Map<String, Value>) -> ToolFuture<'a> {
        let value = params.get("v").cloned().unwrap_or_default();
        let fits = match call.tool() {
            "t/pick" => value == json!("light") || value == json!("heavy"),
            _ => value.is_string(),
        };
        Box::pin(
            async move { if fits { Ok(json!({})) } else { Err(ActionError::permanent(format!("received {value}"))) } },
        )
    }
}

const PICK: &str = r#"version: "1.0.0"
tool_type: rust
config_schema: { type: object, properties: { v: { enum: [light, heavy] } }, required: [v] }
result_schema: { type: object, properties: {} }
"#;

const TEXT: &str = r#"version: "1.0.0"
tool_type: rust
config_schema: { type: object, properties: { v: { type: string } }, required: [v] }
result_schema: { type: object, properties: {} }
"#;

/// A nested graph whose exits differ in words, in a boolean, and in the fields that they have.
const INNER: &str = r#"version: "1.0.0"
tool_type: graph
executor_id: rye/core/runtimes/state-graph/runtime
category: v
permissions: []
config_schema: { type: object, properties: { m: { enum: [a, b, c] } }, required: [m] }
config:
  start: route
  nodes:
    route: { type: gate, next: { by: inputs.m, to: { a: paid, b: partly, c: lost } } }
    paid: { type: return, output: { ok: true, kind: light, text: "${inputs.m}", more: { text: x } } }
    partly: { type: return, output: { ok: true, kind: heavy, text: partly } }
    lost: { type: return, output: { ok: false, kind: other, why: gone } }
"#;

struct Writer(Random);

/// Where a word, or a text, may come from.
const WORDS: [&str; 6] = ["light", "heavy", "other", "\"${inputs.e}\"", "\"${state.w1}\"", "\"${state.w0}\""];
const TEXTS: [&str; 11] = [
    "state.text",
    "state.more.text",
    "state.why",
    "state.most",
    "state.all.0",
    "state.all.-1",
    "state.all.1",
    "state.w0",
    "inputs.o",
    "state.kept",
    "state.never",
];

impl Writer {
    fn one<'t>(&mut self, list: &[&'t str]) -> &'t str {
        list[self.below(list.len())]
    }

    fn below(&mut self, most: usize) -> usize {
        usize::try_from(self.0.below(most as u64)).unwrap()
    }

    /// Returns the lines of the node `n{at}`, which leads to nodes behind it.
    fn node(&mut self, at: usize, count: usize) -> String {
        let name = |next: usize| if next >= count { "done".to_owned() } else { format!("n{next}") };
        let to = |writer: &mut Self| name(at + 1 + writer.below(2));
        let next = name(at + 1);
        let key = self.below(2);
        match self.below(12) {
            0 | 1 => format!("n{at}: {{ type: gate, assign: {{ w{key}: {} }}, next: {next} }}", self.one(&WORDS)),
            2 | 3 => {
                let value = self.one(&["${state.w0}", "${state.w1}", "${inputs.e}", "${state.kind}"]);
                format!("n{at}: {{ action: {{ item_id: t/pick, params: {{ v: \"{value}\" }} }}, next: {next} }}")
            }
            4 | 5 => {
                let value = self.one(&TEXTS);
                format!("n{at}: {{ action: {{ item_id: t/text, params: {{ v: \"${{{value}}}\" }} }}, next: {next} }}")
            }
            6 => {
                let words = self.one(&["light, heavy", "light, heavy, other", "light"]);
                let path = self.one(&["state.w0", "state.w1", "state.kind", "inputs.e"]);
                let edges: Vec<String> = words
                    .split(", ")
                    .map(|word| format!("{word}: {}", if word == "light" { next.clone() } else { to(self) }))
                    .collect();
                format!("n{at}: {{ type: gate, next: {{ by: {path}, to: {{ {} }} }} }}", edges.join(", "))
            }
            7 | 8 => {
                let (yes, no) = (next.clone(), to(self));
                let route = match self.below(6) {
                    0 | 1 => format!("{{ by: result.output.kind, to: {{ light: {yes}, heavy: {no}, other: {no} }} }}"),
                    2 => format!("[{{ to: {yes}, when: {{ path: result.output.ok, value: true }} }}, {{ to: {no} }}]"),
                    3 => format!("[{{ to: {yes}, when: {{ path: result.output.more, op: exists }} }}, {{ to: {no} }}]"),
                    4 => {
                        format!("[{{ to: {no}, when: {{ path: result.output.kind, value: other }} }}, {{ to: {yes} }}]")
                    }
                    _ => next,
                };
                let assign = "kind: \"${result.output.kind}\", text: \"${result.output.text}\", more: \"${result.output.more}\", why: \"${result.output.why}\"";
                format!(
                    "n{at}: {{ action: {{ item_id: v/inner, params: {{ m: \"${{inputs.m}}\" }} }}, assign: {{ {assign} }}, next: {route} }}"
                )
            }
            9 => {
                let over = self.one(&["[x, z]", "\"${inputs.l}\"", "\"${inputs.some}\""]);
                let assign = self.one(&["most: \"${one}\"", "all: \"${one}\"", "most: \"${one}\", all: y"]);
                format!(
                    "n{at}: {{ type: gate, next: {{ over: {over}, as: one, to: b{at} }} }}\n    \
                     b{at}: {{ type: gate, assign: {{ {assign} }}, next: j{at} }}\n    \
                     j{at}: {{ type: gate, waits_for: [b{at}], next: {next} }}"
                )
            }
            10 => format!("n{at}: {{ type: gate, assign: {{ kept: \"${{inputs.o}}\", all: one }}, next: {next} }}"),
            _ => {
                let value = self.one(&["state.never", "state.all.0", "state.w0", "inputs.e", "state.text"]);
                let channel = self.one(&["most", "all"]);
                format!("n{at}: {{ type: gate, assign: {{ {channel}: \"${{{value}}}\" }}, next: {next} }}")
            }
        }
    }
}

/// The mistakes that are planted in the first node.
const MISTAKES: [&str; 5] = [
    "type: gate, assign: { most: \"${state.never}\" }",
    "type: gate, assign: { all: \"${state.never}\" }",
    "action: { item_id: t/text, params: { v: \"${state.never}\" } }",
    "action: { item_id: t/pick, params: { v: \"${state.wrong}\" } }",
    "action: { item_id: t/pick, params: { v: wrong } }",
];

fn text(nodes: &str, first: &str) -> String {
    format!(
        r#"version: "1.0.0"
tool_type: graph
executor_id: rye/core/runtimes/state-graph/runtime
category: v
permissions: ["rye.execute.tool.*"]
config_schema:
  type: object
  properties:
    e: {{ enum: [light, heavy] }}
    m: {{ enum: [a, b, c] }}
    o: {{ type: string }}
    l: {{ type: array, items: {{ type: string }} }}
    some: {{ type: array, items: {{ type: string }}, minItems: 1 }}
  required: [e, m, l, some]
config:
  start: first
  state: {{ w0: light, w1: heavy, never: null, wrong: nonsense, kind: null, text: null, more: null, why: null, kept: null }}
  channels: {{ most: max, all: append }}
  nodes:
    first: {{ {first}, next: n0 }}
{nodes}    done: {{ type: return, output: {{ a: "${{state.w0}}", b: "${{state.w1}}", c: "${{state.all}}", d: "${{state.never}}", e: "${{state.wrong}}" }} }}
"#
    )
}

#[test]
fn a_clean_graph_has_the_values_that_its_calls_need() {
    let (graphs, seed) = (number("KNOWN_VALUES", 300), number("SEED", 1));
    let (directory, secret) = tree();
    let write = |name: &str, text: &str| -> PathBuf {
        let path = directory.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, sign(ItemKind::YAML, text, &secret, SystemTime::UNIX_EPOCH).unwrap()).unwrap();
        path
    };
    write("tools/t/pick.yaml", PICK);
    write("tools/t/text.yaml", TEXT);
    write("inner.yaml", INNER);
    let library = Library::open(directory.path(), Strict);
    let (mut clean, mut runs, mut found) = (0_u64, 0_u64, 0_u64);
    for at in 0..graphs {
        let mut writer = Writer(Random::new(seed.wrapping_mul(0x9e37_79b9).wrapping_add(at)));
        let count = 3 + writer.below(5);
        let nodes: String = (0..count).fold(String::new(), |mut nodes, at| {
            writeln!(nodes, "    {}", writer.node(at, count)).unwrap();
            nodes
        });
        let text_of = |first: &str| text(&nodes, first);
        let path = write(&format!("values{at}.yaml"), &text_of("type: gate"));
        let graph = match library.graph(&path) {
            Ok(graph) => graph,
            Err(error) => {
                if std::env::var_os("SHOW").is_some() {
                    println!("{error}\n{}", text_of("type: gate"));
                }
                continue;
            }
        };
        clean += 1;
        for given in 0..24_u32 {
            let lists = if given & 1 == 0 { json!([]) } else { json!(["q", "r"]) };
            let mut inputs = Map::from_iter([
                ("e".to_owned(), json!(if given & 2 == 0 { "light" } else { "heavy" })),
                ("m".to_owned(), json!(["a", "b", "c"][given as usize / 8])),
                ("l".to_owned(), lists),
                ("some".to_owned(), json!(["s"])),
            ]);
            if given & 4 == 0 {
                inputs.insert("o".to_owned(), json!("o"));
            }
            let end = play(graph.clone(), inputs, None).end;
            assert_eq!(end["success"], json!(true), "graph {at} of seed {seed}: {end}\n{}", text_of("type: gate"));
            runs += 1;
        }
        for (number, mistake) in MISTAKES.iter().enumerate() {
            let path = write(&format!("wrong{at}x{number}.yaml"), &text_of(mistake));
            assert!(library.graph(&path).is_err(), "no mistake is found in\n{}", text_of(mistake));
            found += 1;
        }
    }
    println!("{runs} runs of {clean} graphs of {graphs} that check clean; {found} planted mistakes found");
    assert!(clean * 40 > graphs, "{clean} of {graphs} graphs check clean");
}

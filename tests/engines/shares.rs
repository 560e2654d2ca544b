//! Random graphs that run each other and share keys: where all of them compile, no run fails, whatever one of them writes. Each
//! graph is checked for itself, so a value that the other one may not have would fail a call or a write here.
//!
//! `SHARES=3000 SEED=7 cargo test --release --test engines shares` runs more of them.

use std::fmt::Write as _;
use std::fs;
use std::time::SystemTime;

use graph_compiler::graph::TypedTool;
use graph_runtime::dynamic::{Library, ToolFuture, Tools};
use graph_runtime::{Call, Map, Value};
use graph_signing::{ItemKind, sign};
use serde_json::json;

use super::case::{Log, play};
use super::determinism::tree;
use super::number;
use super::random::Random;

/// A tool that returns nothing. Its contract wants a text.
struct Takes;

impl Tools for Takes {
    fn perform<'a>(&'a self, _: &'a Call, _: &'a TypedTool, _: Map<String, Value>) -> ToolFuture<'a> {
        Box::pin(async { Ok(json!({})) })
    }
}

const CONTRACT: &str = r#"version: "1.0.0"
tool_type: rust
config_schema: { type: object, properties: { v: { type: string } }, required: [v] }
result_schema: { type: object, properties: {} }
"#;

/// A key: its channel, its first values, the values that nodes write, and the paths that yield a text.
struct Kind {
    name: &'static str,
    channel: &'static str,
    first: &'static [&'static str],
    writes: &'static [&'static str],
    texts: &'static [&'static str],
}

const KINDS: &[Kind] = &[
    Kind {
        name: "text",
        channel: "",
        first: &["first", "null"],
        writes: &["t", "\"${inputs.r}\"", "\"${inputs.o}\""],
        texts: &["text"],
    },
    Kind { name: "word", channel: "", first: &["fast", "slow"], writes: &["fast", "slow", "late"], texts: &["word"] },
    Kind {
        name: "list",
        channel: "",
        first: &["[]", "[i]"],
        writes: &["[]", "[x]", "[x, z]", "\"${inputs.l}\""],
        texts: &["list.0", "list.1"],
    },
    Kind {
        name: "object",
        channel: "",
        first: &["{ a: x }"],
        writes: &["{ a: x }", "{ a: \"${inputs.o}\" }"],
        texts: &["object.a"],
    },
    Kind {
        name: "found",
        channel: "append",
        first: &["[]", "[i]"],
        writes: &["one", "\"${inputs.r}\""],
        texts: &["found.0", "found.1"],
    },
    Kind { name: "names", channel: "union", first: &["[i]"], writes: &["[one]", "[one, two]"], texts: &["names.0"] },
    Kind { name: "most", channel: "max", first: &["m"], writes: &["a", "z"], texts: &["most"] },
    Kind {
        name: "doc",
        channel: "merge",
        first: &["{ a: none, b: none }", "{ a: none }"],
        writes: &["{ a: x }", "{ b: \"${inputs.r}\" }", "{ b: \"${inputs.o}\" }"],
        texts: &["doc.a", "doc.b"],
    },
];

struct Writer(Random);

impl Writer {
    fn below(&mut self, most: usize) -> usize {
        usize::try_from(self.0.below(most as u64)).unwrap()
    }

    fn one<'t, T>(&mut self, list: &'t [T]) -> &'t T {
        let at = self.below(list.len());
        &list[at]
    }

    /// Returns the text of a graph with these keys, which runs `inside`.
    fn graph(&mut self, keys: &[&Kind], inside: Option<&str>) -> String {
        let (mut first, mut channels, mut nodes) = (String::new(), String::new(), String::new());
        for key in keys {
            if self.below(4) > 0 {
                write!(first, "{}: {}, ", key.name, self.one(key.first)).unwrap();
            }
            if !key.channel.is_empty() {
                write!(channels, "{}: {}, ", key.name, key.channel).unwrap();
            }
        }
        let count = 2 + self.below(4);
        // A graph that writes nothing itself has the types of the one inside.
        let is_quiet = inside.is_some() && self.below(2) == 0;
        for at in 0..count {
            let next = if at + 1 == count { "done".to_owned() } else { format!("n{}", at + 1) };
            let key = *self.one(keys);
            let (text, value) = (*self.one(key.texts), *self.one(key.writes));
            let assign = format!("assign: {{ {}: {value} }}", key.name);
            let call = format!("action: {{ item_id: t/text, params: {{ v: \"${{state.{text}}}\" }} }}");
            let node = match (self.below(6), inside) {
                (0 | 1, _) if !is_quiet => format!("type: gate, {assign}, next: {next}"),
                (2, _) => format!("{call}, next: {next}"),
                // The call is made only where the value is there.
                (3, _) => {
                    writeln!(nodes, "    c{at}: {{ {call}, next: {next} }}").unwrap();
                    let when = format!("{{ path: state.{text}, op: exists }}");
                    format!("type: gate, next: [{{ to: c{at}, when: {when} }}, {{ to: {next} }}]")
                }
                (_, Some(inside)) => {
                    let shared: Vec<&str> = keys.iter().filter(|_| self.below(3) > 0).map(|key| key.name).collect();
                    let share =
                        if shared.is_empty() { String::new() } else { format!("share: [{}], ", shared.join(", ")) };
                    let params = "{ r: \"${inputs.r}\", o: \"${inputs.o}\", l: \"${inputs.l}\" }";
                    format!("action: {{ item_id: {inside}, params: {params} }}, {share}next: {next}")
                }
                _ => format!("type: gate, {assign}, next: {next}"),
            };
            writeln!(nodes, "    n{at}: {{ {node} }}").unwrap();
        }
        format!(
            r#"version: "1.0.0"
tool_type: graph
executor_id: rye/core/runtimes/state-graph/runtime
category: s
permissions: ["rye.execute.tool.*"]
config_schema:
  type: object
  properties: {{ r: {{ type: string }}, o: {{ type: string }}, l: {{ type: array, items: {{ type: string }} }} }}
  required: [r, l]
config:
  start: n0
  state: {{ {first} }}
  channels: {{ {channels} }}
  nodes:
{nodes}    done: {{ type: return }}
"#
        )
    }
}

#[test]
fn shared_keys_have_only_values_that_both_graphs_expect() {
    let (graphs, seed) = (number("SHARES", 300), number("SEED", 1));
    let (mut runs, mut shared) = (0, 0);
    for at in 0..graphs {
        let (directory, secret) = tree();
        let write = |name: &str, text: &str| {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, sign(ItemKind::YAML, text, &secret, SystemTime::UNIX_EPOCH).unwrap()).unwrap();
            path
        };
        write("tools/t/text.yaml", CONTRACT);
        let mut writer = Writer(Random::new(seed.wrapping_mul(0x9e37_79b9).wrapping_add(at)));
        let mut keys: Vec<&Kind> = (0..=writer.below(3)).map(|_| writer.one(KINDS)).collect();
        keys.sort_unstable_by_key(|key| key.name);
        keys.dedup_by_key(|key| key.name);
        // Two graphs inside, of which the first runs the second.
        let (low, middle) = (writer.graph(&keys, None), writer.graph(&keys, Some("s/low")));
        let outer = writer.graph(&keys, Some("s/middle"));
        write("low.yaml", &low);
        write("middle.yaml", &middle);
        let path = write("outer.yaml", &outer);
        let library = Library::open(directory.path(), Takes);
        let Ok(graph) = library.graph(&path) else { continue };
        for given in 0..4_u32 {
            let list = if given & 2 == 0 { json!([]) } else { json!(["q"]) };
            let mut inputs = Map::from_iter([("r".to_owned(), json!("r")), ("l".to_owned(), list)]);
            if given & 1 == 1 {
                inputs.insert("o".to_owned(), json!("o"));
            }
            let log = Log::default();
            let end = play(graph.clone(), inputs, Some(&log)).end;
            assert_eq!(end["success"], json!(true), "graph {at} of seed {seed}: {end}\n{outer}\n{middle}\n{low}");
            runs += 1;
            shared += u64::from(log.entered().iter().any(|entered| entered.signed.body.contains("\"shared\":{")));
        }
    }
    println!("{runs} runs of {graphs} trees, {shared} of which shared keys");
    assert!(runs * 10 > graphs && shared * 50 > graphs, "{runs} {shared}");
}

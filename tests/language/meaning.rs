//! The meaning of a graph: another text of a graph has the same digest of the meaning, and the digests are known.

use std::fmt::Write as _;

use graph_compiler::project::Project;
use graph_model::ir::GraphIr;
use graph_model::value::{Map, Value};

use crate::corpus::Corpus;
use crate::random::Random;
use crate::support::sign;

/// The place of a value in a graph, as far as it determines what may be written in another way.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    Graph,
    Config,
    Nodes,
    Node,
    Edges,
    Edge,
    Condition,
    /// Schemas: only descriptions may change.
    Schema,
    /// Anything else: only the notation may change.
    Data,
}

impl Part {
    fn of_field(self, name: &str) -> Self {
        match (self, name) {
            (Self::Graph, "config") => Self::Config,
            (Self::Config, "nodes") => Self::Nodes,
            (Self::Graph | Self::Config, "config_schema" | "inputs") => Self::Schema,
            (Self::Nodes, _) => Self::Node,
            (Self::Node, "next" | "all") => Self::Edges,
            (Self::Edges, "all") => Self::Edges,
            (Self::Edge, "when") | (Self::Condition, "not") => Self::Condition,
            (Self::Condition, "all" | "any") => Self::Condition,
            (Self::Schema, "default" | "const" | "enum" | "examples") => Self::Data,
            (Self::Schema, _) => Self::Schema,
            _ => Self::Data,
        }
    }

    fn of_element(self) -> Self {
        if self == Self::Edges { Self::Edge } else { self }
    }

    /// Whether the order of the fields means nothing.
    fn is_unordered(self) -> bool {
        matches!(self, Self::Graph | Self::Config | Self::Nodes | Self::Node | Self::Edge | Self::Condition)
    }
}

/// Writes a graph in another way.
struct Writer {
    random: Random,
    /// Whether the failure of a node lists its edges, so that their texts are part of the meaning.
    shows: bool,
    /// Whether something sees the whole state, and with it the order of the keys, which that of the nodes determines.
    sees_state: bool,
    text: String,
}

impl Writer {
    fn chance(&mut self, of: u64) -> bool {
        self.random.below(of) == 0
    }

    /// Changes what means nothing.
    fn reword(&mut self, value: Value, part: Part) -> Value {
        match value {
            Value::Object(map) => {
                let mut fields: Vec<(String, Value)> = map.into_iter().collect();
                let order: Vec<String> = fields.iter().map(|(name, _)| name.clone()).collect();
                let has_order = self.shows && part == Part::Condition || self.sees_state && part == Part::Nodes;
                if part.is_unordered() && !has_order {
                    for at in (1..fields.len()).rev() {
                        let other = usize::try_from(self.random.below(at as u64 + 1)).unwrap();
                        fields.swap(at, other);
                    }
                    if part == Part::Nodes {
                        // The order of the joins among each other counts.
                        let is_join = |field: &(String, Value)| field.1.get("waits_for").is_some();
                        let places: Vec<usize> = (0..fields.len()).filter(|at| is_join(&fields[*at])).collect();
                        let mut joins: Vec<_> = places.iter().map(|at| fields[*at].clone()).collect();
                        joins.sort_by_key(|(name, _)| order.iter().position(|one| one == name));
                        places.into_iter().zip(joins).for_each(|(at, join)| fields[at] = join);
                    }
                }
                let reworded = fields.into_iter().map(|(name, value)| {
                    let describes = match part {
                        Part::Graph | Part::Node | Part::Schema => true,
                        Part::Edge => !self.shows,
                        _ => false,
                    };
                    let value = match (name.as_str(), value) {
                        ("description", Value::String(text)) if describes => Value::from(format!("{text}, reworded")),
                        ("version", Value::String(_)) if part == Part::Graph => Value::from("9.9.9"),
                        ("next", Value::String(to)) if part == Part::Node && self.chance(2) && !self.shows => {
                            serde_json::json!([{ "to": to }])
                        }
                        (name, value) => self.reword(value, part.of_field(name)),
                    };
                    (name, value)
                });
                Value::Object(reworded.collect::<Map<String, Value>>())
            }
            Value::Array(list) => {
                list.into_iter().map(|value| self.reword(value, part.of_element())).collect::<Vec<_>>().into()
            }
            scalar => scalar,
        }
    }

    fn scalar(&mut self, value: &Value) {
        let Value::String(text) = value else {
            // Readers of YAML 1.1 need a point and a sign.
            match value.to_string().split_once('e') {
                Some((digits, power)) if value.is_f64() => {
                    let point = if digits.contains('.') { "" } else { ".0" };
                    let sign = if power.starts_with(['-', '+']) { "" } else { "+" };
                    write!(self.text, "{digits}{point}e{sign}{power}").unwrap();
                }
                _ => {
                    write!(self.text, "{value}").unwrap();
                }
            }
            return;
        };
        let is_word = !text.is_empty()
            && text.chars().all(|character| character.is_ascii_lowercase() || character == '_')
            && !matches!(text.as_str(), "null" | "true" | "false" | "yes" | "no" | "on" | "off" | "y" | "n");
        let is_simple = text.chars().all(|character| matches!(character, ' '..='~'));
        match self.random.below(3) {
            0 if is_word => self.text.push_str(text),
            1 if is_simple => {
                write!(self.text, "'{}'", text.replace('\'', "''")).unwrap();
            }
            _ => self.text.push_str(&value.to_string()),
        }
    }

    fn flow(&mut self, value: &Value) {
        let spaces = ["", " "][usize::from(self.chance(2))];
        match value {
            Value::Object(map) => {
                write!(self.text, "{{{spaces}").unwrap();
                for (at, (name, value)) in map.iter().enumerate() {
                    if at > 0 {
                        self.text.push_str(", ");
                    }
                    self.scalar(&Value::from(name.as_str()));
                    self.text.push_str(": ");
                    self.flow(value);
                }
                write!(self.text, "{spaces}}}").unwrap();
            }
            Value::Array(list) => {
                write!(self.text, "[{spaces}").unwrap();
                for (at, value) in list.iter().enumerate() {
                    if at > 0 {
                        self.text.push_str(", ");
                    }
                    self.flow(value);
                }
                write!(self.text, "{spaces}]").unwrap();
            }
            scalar => self.scalar(scalar),
        }
    }

    /// Writes a value behind `key:` or `-`.
    fn value(&mut self, value: &Value, indent: usize) {
        let is_empty = match value {
            Value::Object(map) => map.is_empty(),
            Value::Array(list) => list.is_empty(),
            _ => true,
        };
        if is_empty || indent > 2 && self.chance(3) {
            self.text.push(' ');
            self.flow(value);
            if self.chance(6) {
                self.text.push_str("  # another comment");
            }
            self.text.push('\n');
            return;
        }
        self.text.push('\n');
        self.block(value, indent);
    }

    fn block(&mut self, value: &Value, indent: usize) {
        let deeper = indent + 1 + usize::try_from(self.random.below(3)).unwrap();
        match value {
            Value::Object(map) => {
                for (name, value) in map {
                    self.noise(indent);
                    write!(self.text, "{:indent$}", "").unwrap();
                    self.scalar(&Value::from(name.as_str()));
                    self.text.push(':');
                    self.value(value, deeper);
                }
            }
            Value::Array(list) => {
                for value in list {
                    self.noise(indent);
                    write!(self.text, "{:indent$}-", "").unwrap();
                    self.value(value, deeper);
                }
            }
            _ => {}
        }
    }

    fn noise(&mut self, indent: usize) {
        match self.random.below(8) {
            0 => self.text.push('\n'),
            1 => {
                writeln!(self.text, "{:indent$}# a comment", "").unwrap();
            }
            _ => {}
        }
    }
}

/// Writes a graph with other comments, notations, descriptions and orders.
fn reworded(text: &str, seed: u64) -> String {
    let value: Value = serde_yaml::from_str(text).unwrap();
    let shows = value["config"]["on_no_match"] == "fail";
    let sees_state = text.contains("${state}");
    let mut writer = Writer { random: Random::new(seed), shows, sees_state, text: String::new() };
    let value = writer.reword(value, Part::Graph);
    writer.block(&value, 0);
    writer.text
}

fn compile(project: &Project, path: &std::path::Path) -> GraphIr {
    let compilation = project.compile(path);
    let diagnostics: Vec<String> = compilation.diagnostics.iter().map(|one| one.message.clone()).collect();
    let Some(graph) = compilation.graph else { panic!("{}: {diagnostics:?}", path.display()) };
    graph.ir(&compilation.source)
}

#[test]
fn another_text_of_a_graph_has_the_same_meaning() {
    let count = std::env::var("TEXTS").map_or(3, |count| count.parse().unwrap());
    let (mut texts, mut orders) = (0, 0);
    for directory in ["graphs", "tests/engines/graphs", "tests/corpus"] {
        let corpus = Corpus::of(directory);
        let tree = corpus.tree();
        let project = tree.project();
        let names = corpus.files.iter().filter(|(name, _)| !name.starts_with("tools/") && name.ends_with(".yaml"));
        for (number, (name, text)) in (1..).zip(names) {
            if name.starts_with("keys/") {
                continue;
            }
            let own = compile(&project, &tree.path(name));
            for seed in 0..count {
                let other = reworded(text, seed * 1000 + number);
                tree.write(name, sign(&other));
                let other = compile(&tree.project(), &tree.path(name));
                assert_ne!(other.digest, own.digest, "{name}");
                assert_eq!(other.settings.meaning, own.settings.meaning, "{name}, in {directory}, {seed}");
                let order = |graph: &GraphIr| graph.nodes.iter().map(|node| node.name.clone()).collect::<Vec<_>>();
                (texts, orders) = (texts + 1, orders + u64::from(order(&own) != order(&other)));
            }
            tree.write(name, sign(text));
        }
    }
    assert!(texts >= 140 * count && orders > texts / 2, "{texts} texts, {orders} with another order of the nodes");
}

/// A change of the digests strands every run that waits: it is another version of the encoding.
#[test]
fn the_meanings_of_the_graphs_are_known() {
    let corpus = Corpus::of("graphs");
    let tree = corpus.tree();
    let project = tree.project();
    let graphs = corpus.graphs().filter(|name| name.ends_with(".yaml") && !name.contains('/'));
    let line = |name: &str| {
        let graph = compile(&project, &tree.path(name));
        format!("{} {}", graph.id, graph.settings.meaning.unwrap())
    };
    insta::assert_snapshot!(graphs.map(line).collect::<Vec<_>>().join("\n"));
}

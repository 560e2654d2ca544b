//! Writes random graphs: conditions, branches, quorums, lists, loops, channels, waits, questions, nested graphs, agents and tasks. Their nodes
//! read values that may not be there.
//!
//! Each node is written in two ways with the same targets: one that reads what it likes, and one that reads nothing which may be
//! missing. Where the check finds a mistake, the node is written in the second way. So most graphs check clean in the end, and have
//! each read that the check allows.

use std::fmt::Write as _;

use super::super::random::Random;

mod parts;

/// The kinds of values that keys and parameters have.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Kind {
    Text,
    Word,
    List,
    Number,
    Object,
    Message,
}
use Kind::{List, Message, Number, Object, Text, Word};

/// A key of the state: its channel, the first values that it may have, the kind of a write, and what can be read of it.
struct Key {
    name: &'static str,
    channel: &'static str,
    firsts: &'static [&'static str],
    write: Kind,
    reads: &'static [(&'static str, Kind)],
}

const LIST_PARTS: &[(&str, Kind)] = &[("", List), (".0", Text), (".-1", Text), (".1", Text)];

const fn key(
    name: &'static str,
    channel: &'static str,
    firsts: &'static [&'static str],
    write: Kind,
    reads: &'static [(&'static str, Kind)],
) -> Key {
    Key { name, channel, firsts, write, reads }
}

/// A list in the order of the branches.
const ORDERED: &str = "{ reduce: append, order: branch }";

/// The keys. A first value that is an empty text stands for no first value.
static KEYS: [Key; 20] = [
    key("word", "", &["light", "heavy", "null", ""], Word, &[("", Word)]),
    key("other", "", &["other", "light", "null"], Word, &[("", Word)]),
    key("text", "", &["", "", "t"], Text, &[("", Text)]),
    key("note", "", &["null", "none", ""], Text, &[("", Text)]),
    key("why", "", &["null", ""], Text, &[("", Text)]),
    key("thing", "", &["null", "", "{ a: x }"], Object, &[("", Object), (".a", Text), (".b", Text)]),
    key("list", "", &["[]", "[i]", ""], List, LIST_PARTS),
    key("number", "", &["null", "0", ""], Number, &[("", Number)]),
    key("got", "", &["", "null"], Message, &[(".0.text", Text), (".0.word", Word), (".-1.why", Text)]),
    key("all", "append", &["", "[i]"], Text, LIST_PARTS),
    key("more", "extend", &["", "[i]"], List, LIST_PARTS),
    key("names", "union", &["", "[i]"], List, LIST_PARTS),
    key("most", "max", &["", "m"], Text, &[("", Text)]),
    key("least", "min", &["", "3"], Number, &[("", Number)]),
    key("total", "sum", &["", "2"], Number, &[("", Number)]),
    key("doc", "merge", &["", "{ a: x }"], Object, &[("", Object), (".a", Text), (".b", Text)]),
    key("talk", "messages", &[""], Message, &[(".0.text", Text), (".-1.text", Text)]),
    key("last", "last", &["", "null", "l"], Text, &[("", Text)]),
    key("own", "{ reduce: { item_id: t/join } }", &["", "o"], Text, &[("", Text)]),
    key("seen", ORDERED, &["", "[i]"], Text, LIST_PARTS),
];

/// The keys that are never null where they are set: nothing that may be null is written to the first two, and the others begin with a value.
pub(super) const SURE: [&str; 7] = ["text", "list", "all", "more", "names", "total", "seen"];

/// The paths into the inputs, of which `o`, `n` and `thing` may be absent.
const INPUTS: [(&str, Kind); 16] = [
    ("inputs.e", Word),
    ("inputs.e", Word),
    ("inputs.r", Text),
    ("inputs.r", Text),
    ("inputs.o", Text),
    ("inputs.n", Number),
    ("inputs.k", Number),
    ("inputs.l", List),
    ("inputs.l.0", Text),
    ("inputs.some", List),
    ("inputs.some.0", Text),
    ("inputs.thing", Object),
    ("inputs.thing.a", Text),
    ("inputs.thing.b", Text),
    ("inputs.things.0.a", Text),
    ("inputs.things.0", Object),
];

/// The paths into the result of a tool.
const RESULTS: [(&str, Kind); 9] = [
    ("result.text", Text),
    ("result.text", Text),
    ("result.why", Text),
    ("result.word", Word),
    ("result.list", List),
    ("result.list.0", Text),
    ("result.number", Number),
    ("result.thing", Object),
    ("result.thing.a", Text),
];

const INNER: [(&str, Kind); 6] = [
    ("result.output.text", Text),
    ("result.output.kind", Word),
    ("result.output.why", Text),
    ("result.output.more.text", Text),
    ("result.output.more", Object),
    ("result.output.text", Text),
];

const AGENT: [(&str, Kind); 3] =
    [("result.output.verdict", Word), ("result.output.note", Text), ("result.output.verdict", Text)];

const SIGNAL: [(&str, Kind); 5] = [
    ("result.paid.text", Text),
    ("result.paid.why", Text),
    ("result.gone.why", Text),
    ("result.paid.thing", Object),
    ("result.signal", Text),
];

const ANSWER: [(&str, Kind); 4] =
    [("result.decision", Word), ("result.note", Text), ("result.list", List), ("result.decision", Text)];

/// Where a node leads: the text, and the nodes in it.
#[derive(Clone)]
struct Route {
    text: String,
    to: Vec<String>,
}

impl Route {
    fn to(node: &str) -> Self {
        Self { text: format!(", next: {node}"), to: vec![node.to_owned()] }
    }

    fn of(text: &str, to: &[&str]) -> Self {
        Self { text: format!(", next: {text}"), to: to.iter().map(|to| (*to).to_owned()).collect() }
    }

    /// Adds a field that names a node.
    fn and(mut self, field: &str, node: &str) -> Self {
        write!(self.text, ", {field}: {node}").unwrap();
        self.to.push(node.to_owned());
        self
    }

    /// Leads to one of several nodes by an input.
    fn by_input(to: &[&str]) -> Self {
        let at = |place: usize| to[place % to.len()];
        Self::of(&format!("{{ by: inputs.m, to: {{ a: {}, b: {}, c: {} }} }}", at(0), at(1), at(2)), to)
    }
}

/// One way to write a node. `JOIN` stands for the nodes that lead here.
struct Form {
    body: String,
    to: Vec<String>,
}

struct Node {
    name: String,
    daring: Form,
    careful: Form,
    is_careful: bool,
}

impl Node {
    fn form(&self) -> &Form {
        if self.is_careful { &self.careful } else { &self.daring }
    }
}

/// A random graph.
pub(super) struct Written {
    nodes: Vec<Node>,
    start: String,
    /// The first values and the channels.
    keys: String,
    settings: &'static str,
    /// Whether a run of it may wait, or have tasks.
    pub(super) needs_store: bool,
}

const HEAD: &str = r#"version: "1.0.0"
tool_type: graph
executor_id: rye/core/runtimes/state-graph/runtime
category: v
permissions: ["rye.execute.tool.*"]
config_schema:
  type: object
  properties:
    e: { enum: [light, heavy] }
    m: { enum: [a, b, c] }
    r: { type: string }
    o: { type: string }
    n: { type: integer }
    k: { type: integer }
    b: { type: boolean }
    l: { type: array, items: { type: string } }
    some: { type: array, items: { type: string }, minItems: 1 }
    thing: { type: object, properties: { a: { type: string }, b: { type: string } }, required: [a] }
    things: { type: array, items: { type: object, properties: { a: { type: string }, b: { type: string } }, required: [a] } }
  required: [e, m, r, k, b, l, some, things]
config:
  max_steps: 5000
  signals:
    paid: { type: object, properties: { text: { type: string }, why: { type: string }, thing: { type: object, properties: { a: { type: string } }, required: [a] } }, required: [text] }
    gone: { type: object, properties: { why: { type: string } } }
"#;

impl Written {
    /// Returns the text. `first` is the first node, without its route.
    pub(super) fn text(&self, first: &str) -> String {
        let mut text = HEAD.to_owned();
        let Self { keys, start, settings, .. } = self;
        write!(text, "{settings}{keys}  start: first\n  nodes:\n    first: {{ {first}, next: {start} }}\n").unwrap();
        for node in &self.nodes {
            let form = node.form();
            let leads = self.nodes.iter().filter(|other| other.form().to.contains(&node.name));
            let leads: Vec<&str> = leads.map(|other| other.name.as_str()).collect();
            writeln!(text, "    {}: {{ {} }}", node.name, form.body.replace("JOIN", &leads.join(", "))).unwrap();
        }
        text
    }

    /// Returns the nodes that go over a list.
    pub(super) fn over_lists(&self) -> Vec<String> {
        let nodes = self.nodes.iter().filter(|node| node.form().body.contains("over: "));
        nodes.map(|node| node.name.clone()).collect()
    }

    /// Writes the nodes carefully in whose lines of a text there are mistakes. Returns whether one of them was not written so before.
    pub(super) fn correct(&mut self, text: &str, lines: impl Iterator<Item = usize>) -> bool {
        let mut is_corrected = false;
        for line in lines {
            let name = text.lines().nth(line).and_then(|line| line.trim_start().split_once(": {"));
            let Some(node) = self.nodes.iter_mut().find(|node| Some(node.name.as_str()) == name.map(|(name, _)| name))
            else {
                continue;
            };
            is_corrected |= !node.is_careful;
            node.is_careful = true;
        }
        is_corrected
    }
}

pub(super) struct Writer {
    random: Random,
    nodes: Vec<Node>,
    /// The keys that the nodes use, as indices.
    keys: Vec<usize>,
    /// The elements of the lists around a part.
    elements: Vec<String>,
    needs_store: bool,
    /// How many names were given.
    count: usize,
}

impl Writer {
    /// Writes a random graph.
    pub(super) fn write(random: Random) -> Written {
        let mut writer =
            Self { random, nodes: Vec::new(), keys: Vec::new(), elements: Vec::new(), needs_store: false, count: 0 };
        writer.keys = (0..4 + writer.below(3)).map(|_| writer.below(KEYS.len())).collect();
        let mut start = "done".to_owned();
        for _ in 0..1 + writer.below(3) {
            let size = 2 + writer.below(2);
            start = writer.part(size, &start);
        }
        for (name, kind) in [("done", ""), ("cut", ", cancels: true")] {
            if name == "done" || writer.nodes.iter().any(|node| node.form().to.iter().any(|to| to == name)) {
                let output: Vec<String> = (0..3).map(|at| format!("v{at}: {}", writer.any_value(&[]))).collect();
                writer.nodes.push(Node {
                    name: name.to_owned(),
                    daring: Form {
                        body: format!("type: return{kind}, output: {{ {} }}", output.join(", ")),
                        to: vec![],
                    },
                    careful: Form { body: format!("type: return{kind}, output: {{ }}"), to: vec![] },
                    is_careful: false,
                });
            }
        }
        let settings = match writer.below(8) {
            0 => "  on_error: continue\n",
            _ => "",
        };
        let keys = writer.config();
        Written { nodes: writer.nodes, start, keys, settings, needs_store: writer.needs_store }
    }

    /// Returns the first values and the channels.
    fn config(&mut self) -> String {
        let (mut state, mut channels) = (String::new(), String::new());
        for key in &KEYS {
            let first = key.firsts[self.below(key.firsts.len())];
            if !first.is_empty() {
                write!(state, "{}: {first}, ", key.name).unwrap();
            }
            // Without branches, their order means nothing.
            let is_ordered = self.nodes.iter().any(|node| node.daring.body.contains("waits_for"));
            let channel = if key.channel == ORDERED && !is_ordered { "append" } else { key.channel };
            if !channel.is_empty() {
                write!(channels, "{}: {channel}, ", key.name).unwrap();
            }
        }
        format!("  state: {{ {state}never: null, wrong: nonsense }}\n  channels: {{ {channels} }}\n")
    }

    fn below(&mut self, most: usize) -> usize {
        usize::try_from(self.random.below(most as u64)).unwrap()
    }

    /// Returns true in one of so many cases.
    fn one_in(&mut self, many: usize) -> bool {
        self.below(many) == 0
    }

    fn one<'t>(&mut self, list: &[&'t str]) -> &'t str {
        list[self.below(list.len())]
    }

    fn key(&mut self) -> &'static Key {
        let at = self.below(self.keys.len());
        &KEYS[self.keys[at]]
    }

    /// Adds a node that is written in two ways, with the route of each, and returns its name.
    fn node(&mut self, (daring, onward): (&str, Route), (careful, safe): (&str, Route)) -> String {
        let name = self.name();
        self.named(name, (daring, onward), (careful, safe))
    }

    fn named(&mut self, name: String, (daring, onward): (&str, Route), (careful, safe): (&str, Route)) -> String {
        let form = |body: &str, route: Route| Form { body: format!("{body}{}", route.text), to: route.to };
        let (daring, careful) = (form(daring, onward), form(careful, safe));
        self.nodes.push(Node { name: name.clone(), daring, careful, is_careful: false });
        name
    }

    fn name(&mut self) -> String {
        self.count += 1;
        format!("n{}", self.count)
    }

    /// Returns a path to a value of a kind, mostly one into the state. `results` are those of the node's own result.
    fn path(&mut self, kind: Kind, results: &[(&str, Kind)]) -> String {
        for _ in 0..12 {
            let (path, of) = match self.below(10) {
                0..=4 => {
                    let key = self.key();
                    let (part, of) = key.reads[self.below(key.reads.len())];
                    (format!("state.{}{part}", key.name), of)
                }
                5 | 6 if !results.is_empty() => {
                    let (path, of) = results[self.below(results.len())];
                    (path.to_owned(), of)
                }
                7 if !self.elements.is_empty() => {
                    let at = self.below(self.elements.len());
                    (self.elements[at].clone(), Text)
                }
                8 if self.one_in(4) => ("state._last_error.error".to_owned(), Text),
                _ => {
                    let (path, of) = INPUTS[self.below(INPUTS.len())];
                    (path.to_owned(), of)
                }
            };
            // A word is a text.
            if of == kind || (of, kind) == (Word, Text) {
                return path;
            }
        }
        match kind {
            Word => "inputs.e",
            List => "inputs.l",
            Number => "inputs.k",
            Object | Message => "inputs.thing",
            Text => "inputs.r",
        }
        .to_owned()
    }

    /// Returns a value of a kind.
    fn value(&mut self, kind: Kind, results: &[(&str, Kind)]) -> String {
        match (kind, self.below(8)) {
            (Text, 0) => self.one(&["x", "light", "\"{input:r}\""]).to_owned(),
            (Text, 1) => format!("\"<${{{}}}>\"", self.path(Text, results)),
            (Word, 0..=2) => self.one(&["light", "heavy", "light", "heavy", "other"]).to_owned(),
            (List, 0) => self.one(&["[]", "[x]", "[x, z]"]).to_owned(),
            (List, 1 | 2) => format!("[{}, {}]", self.value(Text, results), self.value(Text, results)),
            (Number, 0 | 1) => self.one(&["1", "0", "-3", "\"${visit.number}\""]).to_owned(),
            (Object, 0 | 1) => format!("{{ a: {} }}", self.value(Text, results)),
            (Object, 2) => format!("{{ a: {}, b: {} }}", self.value(Text, results), self.value(Text, results)),
            (Message, _) => {
                let (id, text) = (self.value(Text, results), self.value(Text, results));
                format!("{{ id: {id}, text: {text}, word: {} }}", self.value(Word, results))
            }
            (_, 3 | 4) => {
                format!("\"${{{} || {}}}\"", self.path(kind, results), self.path(kind, results))
            }
            _ => format!("\"${{{}}}\"", self.path(kind, results)),
        }
    }

    fn any_value(&mut self, results: &[(&str, Kind)]) -> String {
        let kind = [Text, Text, Word, List, Number, Object][self.below(6)];
        self.value(kind, results)
    }

    /// Returns the assignments of a node, often none.
    fn assign(&mut self, results: &[(&str, Kind)]) -> String {
        let mut lines: Vec<String> = Vec::new();
        let count = self.below(3).max(usize::from(!results.is_empty()));
        for _ in 0..count {
            let key = self.key();
            // Only a foreach writes this one.
            if key.name != "got" && !lines.iter().any(|line| line.starts_with(&format!("{}:", key.name))) {
                let value = match key.name {
                    "text" => self.one(&["x", "\"${inputs.r}\"", "\"<${inputs.o}>\""]).to_owned(),
                    "list" => self.one(&["[]", "[x]", "\"${inputs.some}\"", "\"${inputs.l}\""]).to_owned(),
                    _ => self.value(key.write, results),
                };
                lines.push(format!("{}: {value}", key.name));
            }
        }
        if lines.is_empty() { String::new() } else { format!(", assign: {{ {} }}", lines.join(", ")) }
    }

    /// Returns a condition.
    fn condition(&mut self, results: &[(&str, Kind)], depth: usize) -> String {
        match self.below(if depth == 0 { 8 } else { 11 }) {
            0 | 1 => {
                let kind = [Text, Text, Object, Number][self.below(4)];
                format!("{{ path: {}, op: exists }}", self.path(kind, results))
            }
            2 | 3 => {
                let (path, word) = (self.path(Word, results), self.one(&["light", "heavy", "other"]));
                let op = self.one(&["eq", "eq", "ne"]);
                format!("{{ path: {path}, op: {op}, value: {word} }}")
            }
            4 => format!(
                "{{ path: {}, op: in, value: [light, {}] }}",
                self.path(Word, results),
                self.one(&["heavy", "x"])
            ),
            5 => {
                let op = self.one(&["gt", "lte", "eq", "ne"]);
                format!("{{ path: {}, op: {op}, value: {} }}", self.path(Number, results), self.below(3))
            }
            6 => match self.below(3) {
                0 => format!("{{ path: {}, op: ne, value: [] }}", self.path(List, results)),
                1 => format!("{{ path: {}, op: contains, value: x }}", self.path(List, results)),
                _ => format!("{{ path: {}, op: regex, value: \"^[a-m]\" }}", self.path(Text, results)),
            },
            7 => "{ path: inputs.b, value: true }".to_owned(),
            8 => format!("{{ not: {} }}", self.condition(results, depth - 1)),
            9 => format!("{{ any: [{}, {}] }}", self.condition(results, depth - 1), self.condition(results, depth - 1)),
            _ => format!("{{ all: [{}, {}] }}", self.condition(results, depth - 1), self.condition(results, depth - 1)),
        }
    }
}

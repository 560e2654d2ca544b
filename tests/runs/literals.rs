//! Random literals arrive with the same value, type and text, wherever they pass through.
//!
//! Each literal is a first value of the state, assigned, given to a tool and returned by it, an input, an item of a
//! foreach, a part of the output, compared, written into a text, and read back from the journal. The judge keeps each
//! literal as text: an integer is its digits, and never passes through a float.
//!
//! `LITERALS` is the number of literals, 2,000 by default; `SEED` selects other literals.

use std::fmt::Write;
use std::fs;
use std::time::SystemTime;

use crate::random::Random;
use graph_model::number::read_json;
use graph_runtime::__private::AsView;
use graph_runtime::dynamic::{Library, Toolbox};
use graph_runtime::{FromValue, IndexMap, Map, MemoryStore, Number, RunId, Runtime, Store, Value, audit};
use graph_signing::{ItemKind, KeyFile, SecretKey, sign};

/// The number of literals in a graph.
const IN_A_GRAPH: usize = 50;

/// A literal as it was written.
#[derive(Debug, Clone)]
enum Literal {
    Null,
    Boolean(bool),
    /// The digits, with a sign.
    Integer(String),
    /// The text, and the bits of the float that is nearest to it.
    Float(String, u64),
    Text(String),
    List(Vec<Literal>),
    Map(Vec<(String, Literal)>),
}

/// A source of random literals.
struct Dice(Random);

/// Returns a float with a point, and with a sign in its exponent, so that all YAML readers treat it as a number.
fn written_for_yaml(text: &str) -> String {
    let Some((digits, exponent)) = text.split_once('e') else { return text.to_owned() };
    let point = if digits.contains('.') { "" } else { ".0" };
    let sign = if exponent.starts_with('-') { "" } else { "+" };
    format!("{digits}{point}e{sign}{exponent}")
}

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        self.0.below(most)
    }

    fn literal(&mut self, levels: u64) -> Literal {
        match self.below(if levels == 0 { 12 } else { 15 }) {
            0 => Literal::Null,
            1 => Literal::Boolean(self.below(2) == 0),
            2..=5 => Literal::Integer(self.integer()),
            6..=9 => self.float(),
            10 | 11 => Literal::Text(self.text()),
            12 | 13 => Literal::List((0..self.below(4)).map(|_| self.literal(levels - 1)).collect()),
            _ => {
                let count = self.below(4);
                Literal::Map((0..count).map(|at| (format!("k{at}"), self.literal(levels - 1))).collect())
            }
        }
    }

    /// Returns an integer from -2^63 to 2^64-1, often near a bound or a power of two.
    fn integer(&mut self) -> String {
        let bits = self.below(64);
        let near = (1_i128 << bits) + i128::from(self.below(5)) - 2;
        let number = match self.below(5) {
            0 => i128::from(self.below(20)) - 10,
            1 => near,
            2 => -near,
            3 => i128::from(self.0.next()),
            _ => i128::from(self.0.next().cast_signed()),
        };
        number.clamp(i64::MIN.into(), u64::MAX.into()).to_string()
    }

    fn float(&mut self) -> Literal {
        let text = match self.below(5) {
            0 => format!("{}.{}", self.below(2000), self.below(1000)),
            1 => format!("{}.0", self.integer()),
            2 => format!("-{}.5e-{}", self.below(100), self.below(30)),
            3 => format!("{}.25e+{}", self.below(100), self.below(200)),
            _ => {
                let float = f64::from_bits(self.0.next());
                written_for_yaml(&format!("{:?}", if float.is_finite() { float } else { 0.5 }))
            }
        };
        let bits = text.parse::<f64>().unwrap().to_bits();
        Literal::Float(text, bits)
    }

    fn text(&mut self) -> String {
        const TEXTS: [&str; 18] = [
            "",
            " ",
            "3",
            "3.0",
            "1e5",
            "007",
            "0x1F",
            "true",
            "null",
            "~",
            "no",
            "12345678901234567890",
            "a: b",
            "# x",
            "é😀",
            "tab\there\nand \"quotes\" \\ ",
            "2026-11-22",
            "$ { } ${x".split_at(6).0,
        ];
        TEXTS[usize::try_from(self.below(TEXTS.len() as u64)).unwrap()].to_owned()
    }
}

impl Literal {
    /// Writes the literal as JSON, which is YAML too.
    fn write(&self, text: &mut String) {
        match self {
            Self::Null => text.push_str("null"),
            Self::Boolean(value) => write!(text, "{value}").unwrap(),
            Self::Integer(digits) => text.push_str(digits),
            Self::Float(written, _) => text.push_str(written),
            Self::Text(value) => text.push_str(&Value::from(value.as_str()).to_string()),
            Self::List(list) => {
                text.push('[');
                for (at, one) in list.iter().enumerate() {
                    text.push_str(if at == 0 { "" } else { ", " });
                    one.write(text);
                }
                text.push(']');
            }
            Self::Map(fields) => {
                text.push('{');
                for (at, (name, one)) in fields.iter().enumerate() {
                    write!(text, "{}\"{name}\": ", if at == 0 { "" } else { ", " }).unwrap();
                    one.write(text);
                }
                text.push('}');
            }
        }
    }

    fn written(&self) -> String {
        let mut text = String::new();
        self.write(&mut text);
        text
    }

    /// Whether a JSON text is this value, with the same type; a field that is null counts as missing.
    fn is(&self, found: &Json) -> bool {
        match (self, found) {
            (Self::Null, Json::Word("null")) => true,
            (Self::Boolean(value), Json::Word(word)) => *word == if *value { "true" } else { "false" },
            (Self::Integer(digits), Json::Word(word)) => digits == word,
            (Self::Float(_, bits), Json::Word(word)) => {
                word.contains(['.', 'e']) && word.parse::<f64>().is_ok_and(|float| float.to_bits() == *bits)
            }
            (Self::Text(text), Json::Text(found)) => text == found,
            (Self::List(list), Json::List(found)) => {
                list.len() == found.len() && list.iter().zip(found).all(|(one, found)| one.is(found))
            }
            (Self::Map(fields), Json::Map(found)) => {
                let fields = fields.iter().filter(|(_, one)| !matches!(one, Self::Null));
                let mut found = found.iter().filter(|(_, one)| !matches!(one, Json::Word("null")));
                let same = fields.map(|(name, one)| (found.next(), name, one)).all(|(found, name, one)| {
                    found.is_some_and(|(found_name, found)| found_name == name && one.is(found))
                });
                same && found.next().is_none()
            }
            _ => false,
        }
    }

    /// Whether a text of a graph has this value between its first and last character.
    fn is_in_text(&self, text: &str) -> bool {
        let inside = &text[1..text.len() - 1];
        match self {
            Self::Null => inside.is_empty(),
            Self::Text(value) => inside == value,
            _ => self.is(&Json::read(inside)),
        }
    }
}

/// JSON as text: numbers are not parsed.
#[derive(Debug)]
enum Json<'t> {
    Word(&'t str),
    Text(String),
    List(Vec<Json<'t>>),
    Map(Vec<(String, Json<'t>)>),
}

impl<'t> Json<'t> {
    fn read(text: &'t str) -> Self {
        let mut at = 0;
        let read = Self::value(text, &mut at);
        assert_eq!(at, text.len(), "{text}");
        read
    }

    fn value(text: &'t str, at: &mut usize) -> Self {
        match text.as_bytes()[*at] {
            b'"' => Self::Text(Self::string(text, at)),
            b'[' => {
                let mut list = Vec::new();
                *at += 1;
                while text.as_bytes()[*at] != b']' {
                    list.push(Self::value(text, at));
                    *at += usize::from(text.as_bytes()[*at] == b',');
                }
                *at += 1;
                Self::List(list)
            }
            b'{' => {
                let mut map = Vec::new();
                *at += 1;
                while text.as_bytes()[*at] != b'}' {
                    let name = Self::string(text, at);
                    *at += 1;
                    map.push((name, Self::value(text, at)));
                    *at += usize::from(text.as_bytes()[*at] == b',');
                }
                *at += 1;
                Self::Map(map)
            }
            _ => {
                let length = text[*at..].find([',', ']', '}']).unwrap_or(text.len() - *at);
                let word = &text[*at..*at + length];
                *at += length;
                Self::Word(word)
            }
        }
    }

    fn string(text: &str, at: &mut usize) -> String {
        let mut end = *at + 1;
        while text.as_bytes()[end] != b'"' {
            end += if text.as_bytes()[end] == b'\\' { 2 } else { 1 };
        }
        let quoted = &text[*at..=end];
        *at = end + 1;
        serde_json_text(quoted)
    }

    fn get(&self, name: &str) -> &Self {
        const NOTHING: Json<'static> = Json::Word("null");
        match self {
            Self::Map(fields) => fields.iter().find(|(one, _)| one == name).map_or(&NOTHING, |(_, value)| value),
            _ => &NOTHING,
        }
    }
}

fn serde_json_text(quoted: &str) -> String {
    match read_json(quoted).unwrap() {
        Value::String(text) => text,
        other => panic!("{other} is no text"),
    }
}

/// Writes a graph with the literals in all places. Each key is also assigned another literal on a path that is not
/// taken, so that the key has the type of both.
fn graph(literals: &[Literal], others: &[Literal]) -> String {
    let list = |write: &dyn Fn(usize, &Literal) -> String| {
        let all: Vec<String> = literals.iter().enumerate().map(|(at, one)| write(at, one)).collect();
        all.join(", ")
    };
    let written = |at: usize, name: &str, one: &Literal| format!("\"{name}{at}\": {}", one.written());
    let same = list(&|at, one| format!("{{ path: state.s{at}, op: eq, value: {} }}", one.written()));
    format!(
        "version: \"1.0.0\"
tool_type: graph
executor_id: rye/core/runtimes/state-graph/runtime
category: literals
permissions: [rye.execute.tool.test.echo]
config:
  start: begin
  on_no_match: fail
  state: {{ {state} }}
  nodes:
    begin: {{ type: gate, next: [{{ to: other, when: {{ path: inputs.never, op: exists }} }}, {{ to: same }}] }}
    other: {{ type: gate, assign: {{ {others} }}, next: same }}
    same: {{ type: gate, assign: {{ {assigned} }}, next: [{{ to: call, when: {{ all: [{same}] }} }}, {{ to: differs }}] }}
    differs: {{ type: return, output: {{ differs: true }} }}
    call:
      action: {{ item_id: test/echo, params: {{ {params} }} }}
      assign: {{ echoed: \"${{result}}\" }}
      next: each
    each:
      type: foreach
      over: [{items}]
      action: {{ item_id: test/echo, params: {{ item: \"${{item}}\" }} }}
      collect: each
      next: done
    done:
      type: return
      output: {{ state: {{ {from_state} }}, assigned: {{ {from_assigned} }}, echoed: \"${{state.echoed}}\", each: \"${{state.each}}\", \
         inputs: \"${{inputs}}\", output: {{ {output} }}, texts: {{ {texts} }} }}
",
        state = list(&|at, one| written(at, "s", one)),
        others = others.iter().enumerate().map(|(at, one)| written(at, "s", one)).collect::<Vec<_>>().join(", "),
        assigned = list(&|at, one| written(at, "a", one)),
        params = list(&|at, one| written(at, "p", one)),
        items = list(&|_, one| one.written()),
        from_state = list(&|at, _| format!("v{at}: \"${{state.s{at}}}\"")),
        from_assigned = list(&|at, _| format!("v{at}: \"${{state.a{at}}}\"")),
        output = list(&|at, one| written(at, "v", one)),
        texts = list(&|at, _| format!("v{at}: \"<${{state.s{at}}}>\"")),
    )
}

/// Whether a value is the same after a conversion to a Rust type and back.
fn survives<T: FromValue + AsView>(literal: &Literal, value: &Value) -> bool {
    T::from_value(value.clone()).is_ok_and(|typed| literal.is(&Json::read(&typed.view().to_value().to_string())))
}

/// Returns the Rust types of keys that would change the literal in a compiled graph.
fn changed_by_types(literal: &Literal) -> Vec<&'static str> {
    let value = read_json(&literal.written()).unwrap();
    let mut checked = vec![("Value", survives::<Value>(literal, &value))];
    checked.push(("Option<Value>", survives::<Option<Value>>(literal, &value)));
    let is_number = |one: &Literal| matches!(one, Literal::Integer(_) | Literal::Float(..));
    match literal {
        Literal::Integer(digits) => {
            checked.push(("Number", survives::<Number>(literal, &value)));
            // A number that does not fit is refused, and never rounded.
            let is_right = match digits.parse::<i64>() {
                Ok(_) => survives::<i64>(literal, &value),
                Err(_) => i64::from_value(value.clone()).is_err(),
            };
            checked.push(("i64", is_right));
        }
        Literal::Float(..) => checked.push(("Number", survives::<Option<Number>>(literal, &value))),
        Literal::Text(_) => checked.push(("String", survives::<String>(literal, &value))),
        Literal::Boolean(_) => checked.push(("bool", survives::<bool>(literal, &value))),
        Literal::List(list) if list.iter().all(is_number) => {
            checked.push(("Vec<Number>", survives::<Vec<Number>>(literal, &value)));
        }
        Literal::Map(fields) if fields.iter().all(|(_, one)| is_number(one)) => {
            checked.push(("IndexMap<String, Number>", survives::<IndexMap<String, Number>>(literal, &value)));
        }
        _ => {}
    }
    checked.into_iter().filter(|(_, same)| !same).map(|(name, _)| name).collect()
}

/// Runs a graph with the literals, and reports which of them changed, and where.
async fn run(library: &Library, path: &std::path::Path, literals: &[Literal], others: &[Literal]) -> Vec<String> {
    let key = SecretKey::from_seed(&[9; 32]);
    let text = graph(literals, others);
    fs::write(path, sign(ItemKind::YAML, &text, &key, SystemTime::UNIX_EPOCH).unwrap()).unwrap();
    let machine = library.graph(path).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let store = MemoryStore::new();
    let runtime = Runtime::builder().store(store.clone()).sign_with(key.clone());
    let runtime = runtime.grant("rye.execute.tool.test.echo").unwrap().build().unwrap();
    let inputs: Map<String, Value> = (0..)
        .zip(literals)
        .map(|(at, one): (usize, _)| (format!("v{at}"), read_json(&one.written()).unwrap()))
        .collect();
    let id = RunId::new("literals").unwrap();
    let run = runtime.start_as(id.clone(), machine.clone(), inputs).await.unwrap();
    let finished = run.await.unwrap();
    let again = runtime.resume(machine.clone(), &id).await.unwrap().await.unwrap();
    let mut found = Vec::new();
    let records = store.load(&id).await.unwrap();
    if let Err(error) = audit(&machine, &id, &records, &key.public(), None) {
        found.push(format!("the journal: {error}"));
    }
    for (whose, output) in [("run", finished.output), ("journal", again.output)] {
        let text = output.to_string();
        let output = Json::read(&text);
        for (at, literal) in literals.iter().enumerate() {
            let name = format!("v{at}");
            let mut compare = |place: &str, is: bool, seen: &Json<'_>| {
                if !is {
                    found.push(format!("{whose}, {place}: {} became {seen:?}", literal.written()));
                }
            };
            for place in ["state", "assigned", "inputs", "output"] {
                let seen = output.get(place).get(&name);
                compare(place, literal.is(seen), seen);
            }
            let seen = output.get("echoed").get(&format!("p{at}"));
            compare("params", literal.is(seen), seen);
            let seen = match output.get("each") {
                Json::List(list) => list[at].get("item"),
                other => other,
            };
            compare("foreach", literal.is(seen), seen);
            let seen = output.get("texts").get(&name);
            // The type of a key decides whether its null fields appear in a text.
            let is = matches!(seen, Json::Text(text) if literal.is_in_text(text));
            compare("text", is, seen);
        }
    }
    found.extend(literals.iter().flat_map(|one| {
        changed_by_types(one).into_iter().map(|name| format!("{} is changed by `{name}`", one.written()))
    }));
    found
}

#[test]
fn literals_arrive_as_they_are_written() {
    let number = |name: &str, otherwise: u64| match std::env::var(name) {
        Ok(text) => text.parse().unwrap(),
        Err(_) => otherwise,
    };
    let (count, seed) = (usize::try_from(number("LITERALS", 2000)).unwrap(), number("SEED", 1));
    let directory = tempfile::tempdir().unwrap();
    let key = SecretKey::from_seed(&[9; 32]);
    let file = KeyFile::new(key.public(), "the key of these tests");
    fs::create_dir(directory.path().join("keys")).unwrap();
    let path = directory.path().join(format!("keys/{}.toml", file.fingerprint));
    fs::write(path, file.to_signed_toml(&key, SystemTime::UNIX_EPOCH)).unwrap();
    let lints = ["G0160", "G0161", "G0162", "G0163", "G0164", "G0165"];
    let levels: String = lints.iter().map(|lint| format!("{lint} = \"allow\"\n")).collect();
    let levels = sign(ItemKind::YAML, &format!("[lints]\n{levels}"), &key, SystemTime::UNIX_EPOCH).unwrap();
    fs::write(directory.path().join("graphs.toml"), levels).unwrap();
    let graphs = count.div_ceil(IN_A_GRAPH);
    let next = std::sync::atomic::AtomicUsize::new(0);
    let found = std::sync::Mutex::new(Vec::new());
    let work = || {
        let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        loop {
            let at = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            if at >= graphs || found.lock().unwrap().len() > 20 {
                return;
            }
            let mut dice =
                Dice(Random::new(seed.wrapping_mul(0x1_0000_0000).wrapping_add(at as u64).wrapping_mul(0x9e37_79b9)));
            let literals: Vec<Literal> = (0..IN_A_GRAPH).map(|_| dice.literal(2)).collect();
            let others: Vec<Literal> = (0..IN_A_GRAPH).map(|_| dice.literal(2)).collect();
            // A library keeps the graphs that it has loaded, so each graph has a library of its own.
            let echo = |_: graph_runtime::Call, params| async move { Ok(Value::Object(params)) };
            let library = Library::open(directory.path(), Toolbox::new().with("test/echo", echo));
            let path = directory.path().join(format!("g{at}.yaml"));
            let said = tokio.block_on(run(&library, &path, &literals, &others));
            fs::remove_file(path).unwrap();
            found.lock().unwrap().extend(said);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(work);
        }
    });
    let found = found.into_inner().unwrap();
    assert!(found.is_empty(), "{}", found.join("\n"));
    println!("{} literals", graphs * IN_A_GRAPH);
}

#[test]
fn the_judge_sees_what_differs() {
    let float = |text: &str| Literal::Float(text.to_owned(), text.parse::<f64>().unwrap().to_bits());
    let integer = |text: &str| Literal::Integer(text.to_owned());
    let text = |text: &str| Literal::Text(text.to_owned());
    for (literal, same, different) in [
        (integer("3"), "3", ["3.0", "4", "\"3\"", "null"]),
        (integer("9007199254740993"), "9007199254740993", ["9007199254740992", "9007199254740992.0", "9e15", "-1"]),
        (
            integer("18446744073709551615"),
            "18446744073709551615",
            ["18446744073709551616", "1.8446744073709552e19", "0", "[]"],
        ),
        (float("3.0"), "3.0", ["3", "3.5", "\"3.0\"", "null"]),
        (float("1e-5"), "0.00001", ["0.000011", "0", "1", "-0.00001"]),
        (float("-0.0"), "-0.0", ["0.0", "0", "-0", "1.0"]),
        (text("3"), "\"3\"", ["3", "\"3.0\"", "\"\"", "[\"3\"]"]),
        (Literal::Null, "null", ["0", "\"\"", "false", "{}"]),
        (Literal::List(vec![integer("1"), Literal::Null]), "[1,null]", ["[1]", "[1,0]", "[1.0,null]", "{}"]),
        (
            Literal::Map(vec![("a".to_owned(), integer("1")), ("b".to_owned(), Literal::Null)]),
            "{\"a\":1}",
            ["{\"a\":1.0}", "{}", "{\"a\":1,\"b\":2}", "{\"b\":1}"],
        ),
    ] {
        assert!(literal.is(&Json::read(same)), "{same}");
        for different in different {
            assert!(!literal.is(&Json::read(different)), "{same} {different}");
        }
    }
}

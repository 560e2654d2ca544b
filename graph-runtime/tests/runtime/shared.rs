//! Keys that nested runs share with the runs around them: random trees of graphs, checked by a judge that knows how they were
//! made.
//!
//! `SHARED=1000 SEED=7` sets the number of trees and the seed.

use std::sync::Arc;

use graph_runtime::__private::{Key, Program};
use graph_runtime::history::{Fork, StateEdit, replay};
use graph_runtime::record::Status;
use graph_runtime::{
    ActionError, Call, EditRun, ForkRun, Map, MemoryStore, PublicKey, RunError, Runtime, SecretKey, Store, Value,
    audit_tree,
};
use serde_json::json;

use crate::forged::edited;
use crate::held::Calls;
use crate::inside::GRAPH;
use crate::interpreted::{Interpreted, PROGRAM};
use crate::random::Random;
use crate::support::{KEY, failing, id, kinds, runtime};

/// The keys, with how their writes are combined and their first values.
const KEYS: [(&str, &str, Option<&str>); 8] = [
    ("found", r#""append""#, Some("[]")),
    ("names", r#""union""#, Some("[]")),
    ("sum", r#""sum""#, Some("0")),
    ("most", r#""max""#, None),
    ("doc", r#""merge""#, Some("{}")),
    ("told", r#"{"messages":{"id":"id"}}"#, Some("[]")),
    ("plain", "", Some("\"first\"")),
    ("unset", "", None),
];

/// Returns the first value of a key in a graph that so many graphs are around. The key `unset` has one only inside another.
fn first_of(
    (name, _, first): (&'static str, &'static str, Option<&'static str>),
    depth: usize,
) -> Option<&'static str> {
    if name == "unset" && depth > 0 { Some("\"inside\"") } else { first }
}

/// The writes of a node: keys and values.
type Writes = Vec<(&'static str, Value)>;

/// A node of a generated graph.
#[derive(Debug, Clone)]
enum Part {
    /// Writes.
    Gate(Writes),
    /// Calls a tool that fails the first time, and then writes.
    Call(Writes),
    /// Runs the graph inside, shares keys with it, and then writes others. A run that fails writes nothing.
    Nest { fails: bool, share: Vec<&'static str>, writes: Writes },
    /// Begins branches, each a list of such nodes, which meet.
    Fan(Vec<Vec<Part>>),
}

/// A generated graph, with the one that it runs.
#[derive(Debug, Clone)]
struct Tree {
    parts: Vec<Part>,
    inside: Option<Box<Tree>>,
}

struct Maker(Random);

impl Maker {
    fn below(&mut self, most: u64) -> u64 {
        self.0.below(most)
    }

    fn write(&mut self, key: &str) -> Value {
        let number = self.below(6);
        match key {
            "names" => json!([format!("n{}", number % 3), format!("n{number}")]),
            "doc" => json!({ format!("f{}", number % 3): number }),
            "told" => json!([{ "id": number % 3, "text": number }]),
            "plain" => json!(format!("p{number}")),
            _ => json!(number),
        }
    }

    /// Returns writes to some keys, but not to those that are taken.
    fn writes(&mut self, taken: &[&str], in_branch: bool) -> Writes {
        let mut writes = Writes::new();
        for (key, ..) in KEYS {
            // Two branches may not merge one field in a step.
            let is_taken = taken.contains(&key) || (in_branch && key == "doc");
            if !is_taken && self.below(3) == 0 {
                writes.push((key, self.write(key)));
            }
        }
        writes
    }

    fn part(&mut self, nests: bool, in_branch: bool) -> Part {
        match self.below(if in_branch { 6 } else { 8 }) {
            0 | 1 => Part::Gate(self.writes(&[], in_branch)),
            2 => Part::Call(self.writes(&[], in_branch)),
            3..6 if nests => {
                let mut share = Vec::new();
                for (key, ..) in KEYS {
                    if self.below(2) == 0 && !(in_branch && key == "doc") {
                        share.push(key);
                    }
                }
                let writes = self.writes(&share, in_branch);
                Part::Nest { fails: self.below(6) == 0, share, writes }
            }
            6.. => {
                let count = 1 + self.below(3);
                let branch = |maker: &mut Self| (0..=maker.below(2)).map(|_| maker.part(nests, true)).collect();
                Part::Fan((0..count).map(|_| branch(self)).collect())
            }
            _ => Part::Gate(self.writes(&[], in_branch)),
        }
    }

    fn tree(&mut self, depth: u64) -> Tree {
        let inside = (depth > 0).then(|| Box::new(self.tree(depth - 1)));
        let count = 1 + self.below(4);
        let parts = (0..count).map(|_| self.part(inside.is_some(), false)).collect();
        Tree { parts, inside }
    }
}

/// The nodes of a program, by their names.
#[derive(Default)]
struct Nodes(Vec<(String, Value)>);

impl Nodes {
    fn add(&mut self, node: Value) -> usize {
        self.0.push((format!("n{}", self.0.len()), node));
        self.0.len() - 1
    }

    /// Adds the nodes of a part, and returns its first and its last ones, which lead nowhere yet.
    fn part(&mut self, part: &Part) -> (usize, usize) {
        let assigned = |writes: &Writes| {
            let map: Map<String, Value> =
                writes.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
            json!(map)
        };
        match part {
            Part::Gate(writes) => {
                let at = self.add(json!({"line": 1, "does": "gate", "assign": assigned(writes)}));
                (at, at)
            }
            Part::Call(writes) => {
                let node = json!({"line": 1, "does": {"action": 0}, "params": {"n": -1}, "assign": assigned(writes)});
                let at = self.add(node);
                (at, at)
            }
            Part::Nest { fails, share, writes } => {
                let at = self.add(json!({
                    "line": 1, "does": {"action": 1}, "params": {"fails": fails}, "share": share, "assign": assigned(writes),
                }));
                let behind = self.add(json!({"line": 1, "does": "gate"}));
                self.lead(at, behind);
                if *fails {
                    self.0[at].1["on_error"] = json!(behind);
                }
                (at, behind)
            }
            Part::Fan(branches) => {
                let fan = self.add(json!({"line": 1, "does": "gate"}));
                let (mut firsts, mut lasts) = (Vec::new(), Vec::new());
                for branch in branches {
                    let parts: Vec<(usize, usize)> = branch.iter().map(|part| self.part(part)).collect();
                    parts.windows(2).for_each(|pair| self.lead(pair[0].1, pair[1].0));
                    firsts.push(parts[0].0);
                    lasts.push(parts[parts.len() - 1].1);
                }
                let to: Vec<_> = firsts.iter().map(|first| json!({"to": format!("n{first}")})).collect();
                self.0[fan].1["next"] = json!({ "all": to });
                let join = json!({"of": lasts, "fan": fan, "closes": true});
                let met = self.add(json!({"line": 1, "does": "gate", "join": join}));
                lasts.iter().for_each(|last| self.lead(*last, met));
                (fan, met)
            }
        }
    }

    fn lead(&mut self, from: usize, to: usize) {
        self.0[from].1["next"] = json!([{"to": format!("n{to}")}]);
    }
}

/// A tool that fails the first time that it is called with -1, unless it `returns`, and always with `true`.
fn tool_that(
    returns: bool,
    calls: &Calls,
) -> impl Fn(&Call, Value) -> Result<Value, ActionError> + Send + Sync + 'static {
    let calls = Arc::clone(calls);
    move |call, params| {
        let mut calls = calls.lock().unwrap();
        let outcomes = calls.entry(call.idempotency_key()).or_default();
        let returns = params["n"] != json!(true) && (returns || params["n"] != json!(-1) || !outcomes.is_empty());
        outcomes.push(returns);
        if returns { Ok(json!(1)) } else { Err(ActionError::permanent("not yet")) }
    }
}

fn tool(calls: &Calls) -> impl Fn(&Call, Value) -> Result<Value, ActionError> + Send + Sync + 'static {
    tool_that(false, calls)
}

impl Tree {
    /// Returns the graph. A run of one inside fails at its end if its input says so.
    fn graph(&self, depth: usize, calls: &Calls, returns: bool) -> Interpreted {
        let mut nodes = Nodes::default();
        let parts: Vec<(usize, usize)> = self.parts.iter().map(|part| nodes.part(part)).collect();
        parts.windows(2).for_each(|pair| nodes.lead(pair[0].1, pair[1].0));
        let last = nodes.add(json!({"line": 1, "does": {"action": 0}, "params": {"n": "${inputs.fails}"}}));
        let done = nodes.add(json!({"line": 1, "does": "return"}));
        nodes.lead(parts[parts.len() - 1].1, last);
        nodes.lead(last, done);
        let texts: Vec<(String, String)> =
            nodes.0.iter().map(|(name, node)| (name.clone(), node.to_string())).collect();
        let nodes: Vec<(&str, &str)> = texts.iter().map(|(name, node)| (name.as_str(), node.as_str())).collect();
        let channels: Vec<String> = KEYS
            .iter()
            .filter(|key| !key.1.is_empty())
            .map(|(key, reducer, _)| format!(r#""{key}":{reducer}"#))
            .collect();
        let settings = format!(r#"{{"max_steps":1000,"channels":{{{}}}}}"#, channels.join(","));
        let keys = KEYS.map(|key| Key { name: key.0, initial: first_of(key, depth) });
        let id = format!("test/level{depth}");
        let program = Program {
            id: &id,
            settings: &settings,
            keys: &keys,
            tools: &[PROGRAM.tools[0], GRAPH],
            nodes: &nodes,
            ..PROGRAM
        };
        let graph = Interpreted::new(&program, tool_that(returns, calls));
        match &self.inside {
            Some(inside) => graph.nesting(inside.graph(depth + 1, calls, returns)),
            None => graph,
        }
    }
}

/// A run as the judge makes it: the values of the keys, and all writes in their order.
#[derive(Clone, Default)]
struct Judged {
    state: Map<String, Value>,
    writes: Vec<(&'static str, Value)>,
    /// How many graphs are around it.
    depth: usize,
}

impl Judged {
    fn first(depth: usize) -> Self {
        let value = |text: &str| serde_json::from_str(text).unwrap();
        let initial = KEYS.iter().filter_map(|key| Some((key.0.to_owned(), value(first_of(*key, depth)?))));
        Self { state: initial.collect(), writes: Vec::new(), depth }
    }

    fn write(&mut self, key: &'static str, value: &Value) {
        let before = self.state.get(key).cloned().unwrap_or(Value::Null);
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let after = match key {
            "found" => json!([list(&before), vec![value.clone()]].concat()),
            "names" => {
                let mut all = list(&before);
                list(value).into_iter().for_each(|one| {
                    if !all.contains(&one) {
                        all.push(one);
                    }
                });
                json!(all)
            }
            "sum" => json!(before.as_i64().unwrap() + value.as_i64().unwrap()),
            "most" => {
                json!(before.as_i64().map_or(value.as_i64().unwrap(), |before| before.max(value.as_i64().unwrap())))
            }
            "doc" => {
                let mut all = before.as_object().cloned().unwrap_or_default();
                all.extend(value.as_object().unwrap().clone());
                json!(all)
            }
            "told" => {
                let mut all = list(&before);
                for one in list(value) {
                    match all.iter_mut().find(|known| known["id"] == one["id"]) {
                        Some(known) => *known = one,
                        None => all.push(one),
                    }
                }
                json!(all)
            }
            _ => value.clone(),
        };
        self.state.insert(key.to_owned(), after);
        self.writes.push((key, value.clone()));
    }

    fn write_all(&mut self, writes: &[(&'static str, Value)]) {
        writes.iter().for_each(|(key, value)| self.write(key, value));
    }

    /// Returns the writes of a visit: those of the run inside first.
    fn writes_of(&self, part: &Part, tree: &Tree) -> Writes {
        match part {
            Part::Gate(writes) | Part::Call(writes) => writes.clone(),
            Part::Nest { fails: true, .. } => Writes::new(),
            Part::Nest { fails: false, share, writes } => {
                let mut run = Self::first(self.depth + 1);
                for key in share {
                    if let Some(value) = self.state.get(*key).filter(|value| !value.is_null()) {
                        run.state.insert((*key).to_owned(), value.clone());
                    }
                }
                tree.inside.as_ref().unwrap().run(&mut run);
                let mut all: Writes = run.writes.into_iter().filter(|(key, _)| share.contains(key)).collect();
                all.extend(writes.clone());
                all
            }
            Part::Fan(_) => unreachable!("a fan-out has no writes of its own"),
        }
    }
}

impl Tree {
    /// Makes all steps of a run.
    fn run(&self, judged: &mut Judged) {
        for part in &self.parts {
            let Part::Fan(branches) = part else {
                let writes = judged.writes_of(part, self);
                judged.write_all(&writes);
                continue;
            };
            // A visit that runs a graph is followed by another, which writes nothing.
            let steps = |branch: &Vec<Part>| {
                let each = branch.iter().flat_map(|part| {
                    let behind = matches!(part, Part::Nest { .. }).then_some(None);
                    std::iter::once(Some(part.clone())).chain(behind)
                });
                each.collect::<Vec<Option<Part>>>()
            };
            let branches: Vec<Vec<Option<Part>>> = branches.iter().map(steps).collect();
            for step in 0..branches.iter().map(Vec::len).max().unwrap_or_default() {
                // All visits of a step see the state before it.
                let visits = branches.iter().filter_map(|branch| branch.get(step)?.as_ref());
                let writes: Vec<Writes> = visits.map(|part| judged.writes_of(part, self)).collect();
                writes.iter().for_each(|writes| judged.write_all(writes));
            }
        }
    }
}

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

fn inputs() -> Map<String, Value> {
    Map::from_iter([("fails".to_owned(), json!(false))])
}

/// Resumes a run until it ends with a result; each session is proven and replayed. Returns its state.
async fn finish(store: &MemoryStore, graph: &Interpreted) -> Value {
    let key = SecretKey::from_seed(&KEY).public();
    let mut ended = None;
    for _ in 0..60 {
        ended = runtime(store.clone()).resume(graph.clone(), &id("run")).await.unwrap().await.ok();
        prove(store, graph, &key).await;
        if ended.is_some() {
            break;
        }
    }
    ended.unwrap().state
}

async fn prove(store: &MemoryStore, graph: &Interpreted, key: &PublicKey) {
    audit_tree(Arc::new(graph.clone()), &id("run"), store, key, None).await.unwrap();
    let records = store.load(&id("run")).await.unwrap();
    let same = replay(graph, graph, &id("run"), &records, key, None).unwrap();
    assert_eq!((same.deviations, same.stopped), (vec![], None));
}

/// Returns the keys of a state that a run shows.
fn keys(state: &Value) -> Map<String, Value> {
    let known = |name: &String| KEYS.iter().any(|(key, ..)| key == name);
    state.as_object().unwrap().clone().into_iter().filter(|(name, _)| known(name)).collect()
}

#[tokio::test]
async fn shared_keys_have_the_writes_of_every_run_once() {
    let (count, first) = (number("SHARED", 20), number("SEED", 1));
    for seed in first..first + count {
        let tree = Maker(Random::new(seed)).tree(2);
        let mut judged = Judged::first(0);
        tree.run(&mut judged);
        // A whole run in memory, in which no call fails.
        let graph = tree.graph(0, &Calls::default(), true);
        let runtime_in_memory = Runtime::builder().grant("*").unwrap().build().unwrap();
        let finished = runtime_in_memory.start_as(id("run"), graph, inputs()).await.unwrap().await.unwrap();
        assert_eq!(keys(&finished.state), judged.state, "seed {seed}: {tree:?}");
        // A whole run, which fails at first wherever it makes a call.
        let (store, calls) = (MemoryStore::new(), Calls::default());
        let graph = tree.graph(0, &calls, false);
        drop(runtime(store.clone()).start_as(id("run"), graph.clone(), inputs()).await.unwrap().await);
        let state = finish(&store, &graph).await;
        assert_eq!(keys(&state), judged.state, "seed {seed}: {tree:?}");
        // Crashes before and after any write to the store.
        for left in 0.. {
            let (store, calls) = (MemoryStore::new(), Calls::default());
            let graph = tree.graph(0, &calls, false);
            let failing = runtime(failing(&store, left, left % 2 == 0));
            let ended = failing.start_as(id("run"), graph.clone(), inputs()).await.unwrap().await;
            let has_crashed = matches!(ended, Err(RunError::Store { .. }));
            let state = match ended {
                Ok(finished) => finished.state,
                Err(_) => finish(&store, &graph).await,
            };
            assert_eq!(keys(&state), judged.state, "seed {seed}, crash {left}: {tree:?}");
            if !has_crashed || left > 30 {
                break;
            }
        }
    }
}

/// A graph whose run inside writes to shared keys, and a long text to another, in each of eight steps, fails, and writes once more
/// when it is resumed. That run has a snapshot before its failure.
fn long(calls: &Calls) -> Interpreted {
    long_that(calls, "")
}

/// As [`long`], and shares `more` keys.
fn long_that(calls: &Calls, more: &str) -> Interpreted {
    let settings = r#"{"channels":{"found":"append"}}"#;
    let child = Program {
        id: "test/child",
        settings,
        keys: &[
            Key { name: "found", initial: Some("[]") },
            Key { name: "plain", initial: None },
            Key { name: "pad", initial: None },
        ],
        nodes: &[
            (
                "pad",
                r#"{"line":1,"does":"gate","assign":{"found":"again","plain":"${visit.number}","pad":"${inputs.text}"},"next":[{"to":"pad","when":{"path":"visit.number","op":"lt","value":8}},{"to":"call"}]}"#,
            ),
            (
                "call",
                r#"{"line":2,"does":{"action":0},"params":{"n":-1},"assign":{"found":"last"},"next":[{"to":"done"}]}"#,
            ),
            ("done", r#"{"line":3,"does":"return"}"#),
        ],
        ..PROGRAM
    };
    let nest = format!(
        r#"{{"line":1,"does":{{"action":1}},"params":{{"text":"${{inputs.text}}"}},"share":["plain","found"{more}],"assign":{{"seen":"${{state.plain}}"}},"next":[{{"to":"done"}}]}}"#
    );
    let program = Program {
        settings,
        keys: &[Key { name: "found", initial: Some("[\"begun\"]") }, Key { name: "plain", initial: Some("0") }],
        tools: &[PROGRAM.tools[0], GRAPH],
        nodes: &[("nest", &nest), ("done", r#"{"line":2,"does":"return","output":{"found":"${state.found}"}}"#)],
        ..PROGRAM
    };
    let keys = ["seen", "more"].map(|name| Key { name, initial: None });
    let keys = [program.keys, &keys].concat();
    Interpreted::new(&Program { keys: &keys, ..program }, tool(calls)).nesting(Interpreted::new(&child, tool(calls)))
}

/// Returns a store with an ended run of [`long`], its graph, and its last state.
async fn long_run() -> (MemoryStore, Interpreted, Value) {
    let (store, calls) = (MemoryStore::new(), Calls::default());
    let graph = long(&calls);
    let inputs = Map::from_iter([("text".to_owned(), json!("x".repeat(20_000)))]);
    let failed = runtime(store.clone()).start_as(id("run"), graph.clone(), inputs).await.unwrap().await;
    assert!(matches!(failed, Err(RunError::Node { .. })), "{failed:?}");
    let state = finish(&store, &graph).await;
    (store, graph, state)
}

#[tokio::test]
async fn the_writes_before_a_snapshot_are_handed_over() {
    let (store, _, state) = long_run().await;
    let inside = store.load(&id("run-1")).await.unwrap();
    assert!(kinds(&inside).iter().any(|kind| kind == "snapshot"), "{:?}", kinds(&inside));
    let found = state["found"].as_array().unwrap();
    assert_eq!((found.len(), &found[0], &found[9]), (10, &json!("begun"), &json!("last")));
    assert_eq!((&state["plain"], &state["seen"]), (&json!(8), &json!(8)));
    // A key that is no channel has its last write only.
    let outer = store.load(&id("run")).await.unwrap();
    let step = kinds(&outer).iter().position(|kind| kind == "step").unwrap();
    let step: Value = serde_json::from_str(&outer[step].body).unwrap();
    assert_eq!(step["visits"][0]["changes"]["plain"], json!([8]));
}

#[tokio::test]
async fn a_fork_of_a_run_inside_hands_over_nothing() {
    let (store, graph, _) = long_run().await;
    let inner = graph.inside();
    let fork =
        runtime(store.clone()).fork(&inner, &id("run-1"), Fork { step: Some(3), ..Fork::default() }).await.unwrap();
    let finished = runtime(store.clone()).resume(inner.clone(), &fork).await.unwrap().await;
    assert!(matches!(finished, Err(RunError::Node { .. })), "{finished:?}");
    let key = SecretKey::from_seed(&KEY).public();
    let proven = audit_tree(Arc::new(inner), &fork, &store, &key, None).await.unwrap();
    assert!(proven[0].is_origin_proven);
    let records = store.load(&fork).await.unwrap();
    assert!(!records[0].body.contains("shared") && !records[1].body.contains("shared"), "{}", records[0].body);
}

const ELSEWHERE: &str = "it says that the run is in another position than its steps led to";

#[tokio::test]
async fn forged_shared_keys_are_refused() {
    let (store, graph, _) = long_run().await;
    let key = SecretKey::from_seed(&KEY).public();
    type Forgery<'a> = (&'a str, &'a str, usize, &'a dyn Fn(&mut Value));
    let outer = store.load(&id("run")).await.unwrap();
    let inside = store.load(&id("run-1")).await.unwrap();
    let step = kinds(&outer).iter().position(|kind| kind == "step").unwrap();
    let snapshot = kinds(&inside).iter().position(|kind| kind == "snapshot").unwrap();
    let forgeries: [Forgery<'_>; 9] = [
        ("`found` is something else", "run-1", 0, &|record| record["shared"]["found"] = json!([])),
        ("it shares other keys or values", "run-1", 0, &|record| record["shared"]["plain"] = json!(null)),
        (ELSEWHERE, "run-1", 0, &|record| {
            drop(record["shared"].as_object_mut().unwrap().remove("plain"));
        }),
        ("has no key `forged` that can be shared", "run-1", 0, &|record| record["shared"]["forged"] = json!(1)),
        ("shares keys with a run around it, and is in none", "run", 0, &|record| {
            record["shared"] = json!({"plain": 1});
        }),
        (ELSEWHERE, "run-1", snapshot, &|record| {
            drop(record["shared"]["found"].as_array_mut().unwrap().pop());
        }),
        ("writes something else to `found`", "run", step, &|record| {
            drop(record["visits"][0]["changes"]["found"].as_array_mut().unwrap().pop());
        }),
        ("writes something else to `plain`", "run", step, &|record| record["visits"][0]["changes"]["plain"] = json!(8)),
        ("has another result than run", "run", step, &|record| {
            let visit = &mut record["visits"][0];
            visit["changes"]["plain"] = json!([7]);
            visit["result"]["shared"]["plain"] = json!([7]);
            // The node reads the key.
            visit["changes"]["seen"] = json!(7);
        }),
    ];
    let mut wrong = Vec::new();
    for (expected, run, at, change) in forgeries {
        let forged = MemoryStore::new();
        for (name, records) in [("run", &outer), ("run-1", &inside)] {
            let records = if name == run { edited(records, at, change) } else { records.clone() };
            let lease = forged.create(&id(name), "graph", records[..1].to_vec()).await.unwrap();
            forged.append(&lease, 1, records[1..].to_vec(), Status::Running).await.unwrap();
        }
        let found = audit_tree(Arc::new(graph.clone()), &id("run"), &forged, &key, None).await.unwrap_err();
        if !found.to_string().contains(expected) {
            wrong.push(format!("{found:.300} instead of {expected}"));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

/// A graph that shares a key with another one, which has these settings and keys; a failure leads on.
fn sharing(settings: &str, keys: &[Key]) -> Interpreted {
    let done = ("done", r#"{"line":1,"does":"return","output":{"why":"${state._last_error.error}"}}"#);
    let child = Program { id: "test/child", settings, keys, nodes: &[done], ..PROGRAM };
    let nest = r#"{"line":1,"does":{"action":1},"params":{},"share":["sum"],"on_error":1,"next":[{"to":"done"}]}"#;
    let program = Program {
        settings: r#"{"channels":{"sum":"sum"}}"#,
        keys: &[Key { name: "sum", initial: Some("1") }],
        tools: &[PROGRAM.tools[0], GRAPH],
        nodes: &[("nest", nest), done],
        ..PROGRAM
    };
    Interpreted::new(&program, |_, _| Ok(Value::Null)).nesting(Interpreted::new(&child, |_, _| Ok(Value::Null)))
}

#[tokio::test]
async fn graphs_that_differ_share_nothing() {
    let sum = Key { name: "sum", initial: Some("0") };
    for (settings, keys, why) in [
        (r#"{"channels":{"sum":"sum"}}"#, &[sum][..], None),
        ("{}", &[], Some("`test/child` has no key `sum` that can be shared")),
        ("{}", &[sum], Some("`test/child` combines the writes to `sum` otherwise, and cannot share it")),
        (
            r#"{"channels":{"sum":"max"}}"#,
            &[sum],
            Some("`test/child` combines the writes to `sum` otherwise, and cannot share it"),
        ),
        (
            r#"{"channels":{"sum":"sum"},"secrets":{"keys":{"sum":"all"}}}"#,
            &[sum],
            Some("the run of the graph `test/child` cannot begin: `test/child` has no key `sum` that can be shared"),
        ),
    ] {
        let (store, graph) = (MemoryStore::new(), sharing(settings, keys));
        let secret = graph_runtime::EncryptionKey::from_bytes([3; 32]);
        let runtime = Runtime::builder().store(store.clone()).sign_with(SecretKey::from_seed(&KEY));
        let runtime = runtime.encrypt_with(secret).grant("*").unwrap().build().unwrap();
        let finished = runtime.start_as(id("run"), graph.clone(), Map::new()).await.unwrap().await.unwrap();
        assert_eq!(finished.output["why"], json!(why), "{settings}");
        prove(&store, &graph, &SecretKey::from_seed(&KEY).public()).await;
    }
}

#[test]
fn a_program_that_shares_what_cannot_be_shared_is_not_loaded() {
    let key = |name| Key { name, initial: None };
    let with = |settings: &str, node: &str| {
        let nodes = [("nest", node), ("done", r#"{"line":1,"does":"return"}"#)];
        let (keys, tools) = ([key("a"), key("b")], [PROGRAM.tools[0], GRAPH]);
        let program = Program { settings, keys: &keys, tools: &tools, nodes: &nodes, ..PROGRAM };
        graph_runtime::__private::CompiledGraph::load(&program).map(drop).map_err(|error| error.to_string())
    };
    let good = r#"{"line":1,"does":{"action":1},"params":{},"share":["a","b"],"next":[{"to":"done"}]}"#;
    assert_eq!(with("{}", good), Ok(()));
    for (settings, node, why) in [
        ("{}", good.replace(r#""b"]"#, r#""c"]"#), "there is no state key `c`"),
        ("{}", good.replace(r#""b"]"#, r#""a"]"#), "it writes it otherwise too"),
        ("{}", good.replace("},\"share", "},\"assign\":{\"a\":1},\"share"), "it writes it otherwise too"),
        ("{}", good.replace(r#"{"action":1}"#, r#""gate""#).replace("\"params\":{},", ""), "it runs no graph"),
        ("{}", good.replace("1},", "0},"), "it runs no graph"),
        (r#"{"channels":{"a":"append"},"keep":{"a":"step"}}"#, good.to_owned(), "it shares a key that does not keep"),
        (r#"{"channels":{"a":"append"},"by_branch":["a"]}"#, good.to_owned(), "it shares a key that does not keep"),
        (r#"{"secrets":{"keys":{"a":"all"}}}"#, good.to_owned(), "it shares a key with secrets"),
    ] {
        let found = with(settings, &node).unwrap_err();
        assert!(found.contains(why), "{found} instead of {why}: {node}");
    }
}

#[tokio::test]
async fn an_edit_keeps_the_keys_with_which_a_run_inside_began() {
    let (store, calls) = (MemoryStore::new(), Calls::default());
    let graph = long(&calls);
    let runtime = runtime(store.clone());
    let inputs = Map::from_iter([("text".to_owned(), json!("x"))]);
    drop(runtime.start_as(id("run"), graph.clone(), inputs).await.unwrap().await.unwrap_err());
    let edit = |key: &str| {
        let write = Map::from_iter([(key.to_owned(), json!("edited"))]);
        StateEdit { by: "ann".to_owned(), why: "a test".to_owned(), set: Map::new(), write }
    };
    let error = runtime.edit(&graph, &id("run"), edit("found")).await.unwrap_err();
    let error = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
    assert!(error.contains("a call of node `nest` (visit 1) was made with its value"), "{error}");
    runtime.edit(&graph, &id("run"), edit("seen")).await.unwrap();
    let state = finish(&store, &graph).await;
    assert_eq!(state["found"].as_array().unwrap().len(), 10);
}

#[tokio::test]
async fn a_run_inside_keeps_the_first_values_of_keys_that_are_not_set_around_it() {
    let keys = |first| [Key { name: "plain", initial: first }, Key { name: "seen", initial: None }];
    let child = Program {
        id: "test/child",
        keys: &keys(Some("\"own\"")),
        nodes: &[
            ("read", r#"{"line":1,"does":"gate","assign":{"seen":"${state.plain}"},"next":[{"to":"write"}]}"#),
            ("write", r#"{"line":2,"does":"gate","assign":{"plain":"written"},"next":[{"to":"done"}]}"#),
            ("done", r#"{"line":3,"does":"return","output":"${state.seen}"}"#),
        ],
        ..PROGRAM
    };
    let nest = |name: &str, to: &str| {
        let assign = format!(r#""assign":{{"{name}":"${{result.output}}"}}"#);
        format!(
            r#"{{"line":1,"does":{{"action":0}},"params":{{}},"share":["plain"],{assign},"next":[{{"to":"{to}"}}]}}"#
        )
    };
    let (first, second) = (nest("first", "second"), nest("second", "done"));
    let program = Program {
        keys: &[&keys(None)[..], &[Key { name: "first", initial: None }, Key { name: "second", initial: None }]]
            .concat(),
        tools: &[GRAPH],
        nodes: &[
            ("first", &first),
            ("second", &second),
            ("done", r#"{"line":3,"does":"return","output":["${state.first}","${state.second}","${state.plain}"]}"#),
        ],
        ..PROGRAM
    };
    let graph = Interpreted::new(&program, |_, _| Ok(Value::Null));
    let graph = graph.nesting(Interpreted::new(&child, |_, _| Ok(Value::Null)));
    // Without a store, such nodes are visited by the fast path.
    for runtime in [Runtime::builder().grant("*").unwrap().build().unwrap(), runtime(MemoryStore::new())] {
        let finished = runtime.start_as(id("run"), graph.clone(), Map::new()).await.unwrap().await.unwrap();
        assert_eq!(finished.output, json!(["own", "written", "written"]));
    }
}

#[tokio::test]
async fn a_replay_that_would_share_more_knows_no_writes() {
    let (store, _, _) = long_run().await;
    let shares = |key: &str, calls: &Calls| long_that(calls, key);
    let calls = Calls::default();
    let records = store.load(&id("run")).await.unwrap();
    let key = SecretKey::from_seed(&KEY).public();
    let found = replay(&long(&calls), &shares(r#","more""#, &calls), &id("run"), &records, &key, None).unwrap();
    assert_eq!(found.stopped.map(|stopped| stopped.reason), Some("its run did not share `more`".to_owned()));
}

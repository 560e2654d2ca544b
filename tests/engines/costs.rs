//! Costs of runs: random graphs with branches, lists, loops, waits, failures and graphs inside are run. The visits and the time of each run
//! lie between the least and the most that the compiler says. A limit that the compiler says no run can keep is kept by none.
//!
//! The judge looks at the store alone: the steps in the records of all runs, and the clock. `COSTS=2000 SEED=7 cargo test --release --test
//! engines costs` runs more graphs.

use std::fs;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use graph_compiler::graph::{Budget, TypedTool};
use graph_runtime::dynamic::{Interpreted, Library, ToolFuture, Tools};
use graph_runtime::{
    ActionError, Call, Clock, ManualClock, Map, MemoryStore, RunError, RunId, Runtime, SecretKey, Store as _, Value,
};
use graph_signing::{ItemKind, sign};
use serde_json::json;

use super::determinism::tree;
use super::random::Random;
use super::{case::within, number};

/// A tool that fails as often as it returns.
#[derive(Clone)]
struct Moody(Arc<Mutex<Random>>);

impl Tools for Moody {
    fn perform<'a>(&'a self, _: &'a Call, _: &'a TypedTool, _: Map<String, Value>) -> ToolFuture<'a> {
        let fails = self.0.lock().unwrap().below(2) == 0;
        Box::pin(async move { if fails { Err(ActionError::permanent("no")) } else { Ok(json!({})) } })
    }
}

/// Writes a random graph.
struct Writer {
    random: Random,
    nodes: Vec<(String, String)>,
    /// The nodes that lead to others, for the joins.
    leads: Vec<(String, String)>,
    /// The graphs that it may run.
    inner: Vec<String>,
}

impl Writer {
    fn node(&mut self, body: String, targets: &[&str]) -> String {
        let name = format!("n{}", self.nodes.len());
        self.nodes.push((name.clone(), body));
        self.leads.extend(targets.iter().map(|to| (name.clone(), (*to).to_owned())));
        name
    }

    fn list(&mut self) -> String {
        match self.random.below(3) {
            0 => "\"${inputs.list}\"".to_owned(),
            1 => "\"${inputs.open}\"".to_owned(),
            _ => format!("{:?}", (0..self.random.below(4)).collect::<Vec<u64>>()),
        }
    }

    /// Writes a part that leads to `next`, and returns its first node.
    fn part(&mut self, size: u64, next: &str) -> String {
        let onward = format!(", next: {next}");
        match self.random.below(if size == 0 { 5 } else { 11 }) {
            0 => self.node(format!("type: gate{onward}"), &[next]),
            1 => {
                let hours = 1 + self.random.below(9);
                self.node(format!("type: wait, timeout: {hours}h{onward}"), &[next])
            }
            2 => {
                let other = self.node(format!("type: gate{onward}"), &[next]);
                self.node(format!("action: {{ item_id: t/moody }}, on_error: {other}{onward}"), &[next, &other])
            }
            3 | 4 if !self.inner.is_empty() => {
                let inner = self.inner[self.random.below(self.inner.len() as u64) as usize].clone();
                let params = "params: { list: \"${inputs.list}\", open: \"${inputs.open}\", b: \"${inputs.b}\" }";
                let call = format!("action: {{ item_id: {inner}, {params} }}");
                let (kind, extra) = match self.random.below(3) {
                    0 => (format!("type: foreach, over: {}, as: item, ", self.list()), String::new()),
                    1 => {
                        let other = self.node(format!("type: gate{onward}"), &[next]);
                        self.leads.push((format!("n{}", self.nodes.len()), other.clone()));
                        (String::new(), format!(", on_error: {other}"))
                    }
                    _ => (String::new(), String::new()),
                };
                self.node(format!("{kind}{call}{extra}{onward}"), &[next])
            }
            3 | 4 => self.node("type: gate".to_owned() + &onward, &[next]),
            5 | 6 => {
                let last = self.part(size - 1, next);
                self.part(size - 1, &last)
            }
            7 => {
                let (one, other) = (self.part(size - 1, next), self.part(size - 1, next));
                let edge = format!("{{ to: {one}, when: {{ path: inputs.b, value: true }} }}");
                self.node(format!("type: gate, next: [{edge}, {{ to: {other} }}]"), &[&one, &other])
            }
            8 => {
                let join = self.node(format!("type: gate{onward}, waits_for: [JOIN]"), &[next]);
                let (one, other) = (self.part(size - 1, &join), self.part(size - 1, &join));
                self.node(format!("type: gate, next: {{ all: [{{ to: {one} }}, {{ to: {other} }}] }}"), &[&one, &other])
            }
            9 => {
                let join = self.node(format!("type: gate{onward}, waits_for: [JOIN]"), &[next]);
                let (start, over) = (self.part(size - 1, &join), self.list());
                let name = format!("e{}", self.nodes.len());
                self.node(format!("type: gate, next: {{ over: {over}, as: {name}, to: {start} }}"), &[&start])
            }
            _ => {
                let tail = self.node(String::new(), &[next]);
                let start = self.part(size - 1, &tail);
                self.leads.push((tail.clone(), start.clone()));
                let (at, rounds) = (tail[1..].parse::<usize>().unwrap(), 1 + self.random.below(4));
                let again = format!("{{ to: {start}, when: {{ path: visit.number, op: lt, value: {rounds} }} }}");
                self.nodes[at].1 = format!("type: gate, next: [{again}, {{ to: {next} }}]");
                start
            }
        }
    }

    fn graph(&mut self, size: u64) -> String {
        let start = self.part(size, "end");
        let nodes = self.nodes.iter().map(|(name, body)| {
            let from: Vec<&str> =
                self.leads.iter().filter(|(_, to)| to == name).map(|(from, _)| from.as_str()).collect();
            format!("    {name}: {{ {} }}\n", body.replace("JOIN", &from.join(", ")))
        });
        let list = "{ type: array, items: { type: integer }";
        format!(
            "version: \"1.0.0\"\ntool_type: graph\nexecutor_id: rye/core/runtimes/state-graph/runtime\ncategory: s
permissions: [\"rye.execute.tool.*\"]\nconfig_schema:\n  type: object
  properties: {{ list: {list}, minItems: 2 }}, open: {list} }}, b: {{ type: boolean }} }}
  required: [list, open, b]\nlimits: {{ depth: 5 }}\nconfig:\n  start: {start}\n  max_steps: 100000\n  nodes:\n{}    end: {{ type: return, output: {{ }} }}\n",
            nodes.collect::<String>()
        )
    }
}

/// The cost of a run that ended well.
#[derive(Debug)]
struct Cost {
    visits: u64,
    visits_inside: u64,
    waited: Duration,
    /// The most visits of one node.
    of_one: u64,
}

const START: SystemTime = SystemTime::UNIX_EPOCH;

/// Runs a graph, and lets the time pass that it waits for. `None` if it fails.
async fn run(graph: &Interpreted, inputs: Map<String, Value>) -> Option<Cost> {
    let clock = Arc::new(ManualClock::at(START));
    let store = MemoryStore::with_clock(Arc::clone(&clock) as Arc<dyn Clock>);
    let runtime =
        Runtime::builder().clock(Arc::clone(&clock) as Arc<dyn Clock>).store(store.clone()).grant("*").unwrap();
    let runtime = runtime.sign_with(SecretKey::from_seed(&[3; 32])).build().unwrap();
    let id = RunId::new("run").unwrap();
    let mut running = runtime.start_as(id.clone(), graph.clone(), inputs).await.unwrap();
    let visits = loop {
        match running.await {
            Ok(finished) => break finished.steps,
            Err(RunError::Waiting { waits, .. }) => {
                let due = waits.iter().filter_map(|wait| wait.due).min().unwrap();
                let now = clock.now().duration_since(START).unwrap();
                let left = Duration::from_millis(u64::try_from(due).unwrap()).saturating_sub(now);
                assert!(!left.is_zero(), "it waits for a time that has come");
                clock.advance(left);
                running = runtime.resume(graph.clone(), &id).await.unwrap();
            }
            Err(_) => return None,
        }
    };
    let waited = clock.now().duration_since(START).unwrap();
    let (mut visits_inside, mut of_one) = (0, 0);
    for summary in store.list().await.unwrap() {
        let mut numbers: Map<String, Value> = Map::new();
        for record in store.load(&summary.run).await.unwrap() {
            let body: Value = serde_json::from_str(&record.body).unwrap();
            for visit in body["visits"].as_array().into_iter().flatten() {
                let Some(node) = visit["node"].as_str() else { continue };
                visits_inside += 1;
                let count = numbers.get(node).and_then(Value::as_u64).unwrap_or_default() + 1;
                numbers.insert(node.to_owned(), json!(count));
                if summary.run == id {
                    of_one = of_one.max(count);
                }
            }
        }
    }
    Some(Cost { visits, visits_inside, waited, of_one })
}

/// A tree with a random graph, those that it runs, and a way to compile it with limits.
struct Shop {
    directory: tempfile::TempDir,
    secret: SecretKey,
    tools: Moody,
    outer: String,
}

impl Shop {
    fn new(seed: u64) -> Self {
        let (directory, secret) = tree();
        let mut shop =
            Self { directory, secret, tools: Moody(Arc::new(Mutex::new(Random::new(seed)))), outer: String::new() };
        shop.write("tools/t/moody.yaml", "version: \"1.0.0\"\ntool_type: rust\nconfig_schema: { type: object, properties: {} }\nresult_schema: { type: object, properties: {} }\n");
        let mut inner = Vec::new();
        for (at, name) in ["low", "middle", "outer"].into_iter().enumerate() {
            let random = Random::new(seed.wrapping_mul(31).wrapping_add(at as u64));
            let mut writer = Writer { random, nodes: Vec::new(), leads: Vec::new(), inner: inner.clone() };
            let text = writer.graph([1, 1, 3][at]);
            shop.write(&format!("{name}.yaml"), &text);
            inner.push(format!("s/{name}"));
            shop.outer = text;
        }
        shop
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.directory.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, sign(ItemKind::YAML, text, &self.secret, SystemTime::UNIX_EPOCH).unwrap()).unwrap();
    }

    /// Compiles the outer graph with another line of limits and another `max_steps`.
    fn compile(&self, limits: &str, max_steps: u64) -> Result<Interpreted, String> {
        let text = self.outer.replace("depth: 5", &format!("depth: 5{limits}"));
        self.write("outer.yaml", &text.replace("max_steps: 100000", &format!("max_steps: {max_steps}")));
        let library = Library::open(self.directory.path(), self.tools.clone());
        library.graph(&self.directory.path().join("outer.yaml")).map_err(|error| error.to_string())
    }
}

/// Asserts that a cost lies between the bounds.
fn assert_within(budget: &Budget, cost: &Cost, what: &str) {
    assert!(budget.shortest <= cost.visits, "{cost:?}, {budget:?}\n{what}");
    assert!(budget.shortest_inside <= cost.visits_inside, "{cost:?}, {budget:?}\n{what}");
    assert!(u128::from(budget.shortest_ms) <= cost.waited.as_millis(), "{cost:?}, {budget:?}\n{what}");
    assert!(cost.visits <= budget.steps, "{cost:?}, {budget:?}\n{what}");
}

#[test]
fn runs_cost_what_the_compiler_says() {
    let (graphs, seed) = (number("COSTS", 20), number("SEED", 1));
    let (mut compiled, mut runs, mut exact, mut refused, mut allowed) = (0, 0, 0, 0, 0);
    for at in 0..graphs {
        let shop = Shop::new(seed.wrapping_mul(0x9e37_79b9).wrapping_add(at));
        let Ok(graph) = shop.compile("", 100_000) else { continue };
        let budget = graph.interface().budget.clone().unwrap();
        // Longer runs take long, and show nothing else.
        if budget.shortest_inside > 150 || budget.steps > 1_000 {
            continue;
        }
        compiled += 1;
        let mut costs = Vec::new();
        for given in 0..6_u64 {
            let more = given / 2;
            let inputs =
                json!({ "list": vec![7; 2 + more as usize / 2], "open": vec![7; more as usize], "b": given % 2 == 0 });
            let inputs = inputs.as_object().unwrap().clone();
            if let Some(cost) = within(true, run(&graph, inputs)) {
                assert_within(&budget, &cost, &format!("graph {at} of seed {seed}\n{}", shop.outer));
                costs.push(cost);
            }
        }
        runs += costs.len();
        let Some(fewest) = costs.iter().map(|cost| cost.visits_inside).min() else { continue };
        exact += usize::from(fewest == budget.shortest_inside);
        // A limit near the bound: if the compiler refuses it, no run kept to it.
        let hours = costs.iter().map(|cost| cost.waited.as_secs() / 3600).min().unwrap_or_default();
        let visits = costs.iter().map(|cost| cost.of_one).min().unwrap_or_default();
        let steps = costs.iter().map(|cost| cost.visits).min().unwrap_or_default();
        for less in 0..2 {
            for (limits, max_steps, is_kept) in [
                (format!(", steps: {}", (fewest - less).max(1)), 100_000, less == 0),
                (format!(", visits: {}", visits.saturating_sub(less).max(1)), 100_000, less == 0),
                (
                    format!(", deadline: {}h", (hours + 1).saturating_sub(less * 2).max(1)),
                    100_000,
                    less == 0 || hours == 0,
                ),
                (String::new(), steps.saturating_sub(less).max(1), less == 0),
            ] {
                let error = shop.compile(&limits, max_steps).err();
                let is_of_limits = error
                    .as_ref()
                    .is_some_and(|error| error.contains("error[G0222]") || error.contains("error[G0171]"));
                assert!(
                    !(is_kept && is_of_limits),
                    "graph {at} of seed {seed}, {limits}, {max_steps}: {error:?}\n{costs:?}\n{}",
                    shop.outer
                );
                refused += usize::from(is_of_limits);
                allowed += usize::from(!is_of_limits);
            }
        }
    }
    println!(
        "{runs} runs of {compiled} graphs of {graphs}; {exact} least are exact, {refused} limits are refused and {allowed} are not"
    );
    assert!(compiled * 3 > graphs as usize && exact * 3 > compiled, "{compiled} {exact}");
}

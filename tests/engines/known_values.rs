//! Random graphs, with all parts that decide which values are there: conditions, words, branches, quorums, lists, loops, channels, signals,
//! answers, graphs inside, agents and tasks. A graph that checks clean never goes wrong with random inputs, results and failures of its tools,
//! signals and answers. A mistake that is planted on the path of every run is found.
//!
//! The judge is the engine with tools that look at what they receive; it shares nothing with the check. A run goes wrong if a node fails
//! for another reason than a tool that fails by chance, if a tool receives another value than its contract says, or if a key that always has
//! a value has none where it is read.
//!
//! `KNOWN_VALUES=3000 SEED=7 cargo test --release --test engines known_values` runs more of them. `SHOW=1` prints those that the check refuses.

mod trees;
mod writer;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use graph_compiler::graph::TypedTool;
use graph_runtime::dynamic::{Interpreted, Library, ToolFuture, Toolbox, Tools};
use graph_runtime::observer::{Event, Observer};
use graph_runtime::store::Wait;
use graph_runtime::testing::TestPeople;
use graph_runtime::{
    ActionError, Call, Map, MemoryStore, NamedAnswer, NamedSignal, ReducerError, RunError, Runtime, Status, Store as _,
    TokioClock, ToolConfig, Value,
};
use graph_signing::{ItemKind, SecretKey, sign};
use serde_json::json;

use super::case::{BEGAN, key, run_id, within};
use super::determinism::tree;
use super::number;
use super::random::Random;
use writer::{SURE, Writer, Written};

/// How often each graph is run.
const RUNS: u64 = 10;

/// How often a graph is corrected before it is given up.
const MOST_CORRECTIONS: usize = 8;

/// The number of graphs that one library loads. It keeps all of them.
const GRAPHS_OF_LIBRARY: u64 = 100;

/// The time after which a run has ended.
const MOST_TIME: Duration = Duration::from_secs(10_000_000);

/// The failure of a tool that fails because its call says so.
const BY_CHANCE: &str = "by chance";

/// Tools that note where they receive another value than they need, and return random values. Clones share both.
#[derive(Clone)]
struct Strict {
    random: Arc<Mutex<Random>>,
    wrong: Arc<Mutex<Vec<String>>>,
    builtin: Arc<Toolbox>,
}

impl Strict {
    fn below(&self, most: u64) -> u64 {
        self.random.lock().unwrap().below(most)
    }

    fn word(&self) -> Value {
        json!(["light", "heavy"][usize::from(self.below(2) == 0)])
    }

    fn text(&self) -> Value {
        json!(["", "a", "light", "x", "zzz"][usize::try_from(self.below(5)).unwrap()])
    }

    /// Returns a list of texts with at least so many.
    fn list(&self, least: u64) -> Value {
        (0..least + self.below(3)).map(|_| self.text()).collect()
    }

    fn thing(&self) -> Value {
        let mut thing = json!({ "a": self.text() });
        self.maybe(&mut thing, "b", Self::text);
        thing
    }

    /// Adds a field to an object, or not.
    fn maybe(&self, object: &mut Value, name: &str, value: impl Fn(&Self) -> Value) {
        if self.below(2) == 0 {
            object[name] = value(self);
        }
    }

    fn result(&self) -> Value {
        let mut result =
            json!({ "text": self.text(), "word": self.word(), "list": self.list(0), "number": self.below(4) });
        self.maybe(&mut result, "why", Self::text);
        self.maybe(&mut result, "thing", Self::thing);
        result
    }

    /// Returns a turn of an agent: a call, or the answer.
    fn turn(&self) -> Value {
        let mut turn = json!({ "said": [], "calls": [], "tokens": 1, "micros": 1 });
        if self.below(3) == 0 {
            let arguments = json!({ "v": self.text(), "fails": self.below(3) == 0 });
            turn["calls"] = json!([{ "id": "c", "tool": "t/text", "arguments": arguments }]);
        } else {
            turn["answer"] = json!({ "verdict": self.word() });
            self.maybe(&mut turn["answer"], "note", Self::text);
        }
        turn
    }

    fn inputs(&self) -> Map<String, Value> {
        let mut inputs = json!({
            "e": self.word(), "m": (["a", "b", "c"][usize::try_from(self.below(3)).unwrap()]), "r": self.text(),
            "k": self.below(4), "b": self.below(2) == 0, "l": self.list(0), "some": self.list(1),
            "things": (0..self.below(3)).map(|_| self.thing()).collect::<Vec<_>>(),
        });
        self.maybe(&mut inputs, "o", Self::text);
        self.maybe(&mut inputs, "n", |strict| json!(strict.below(4)));
        self.maybe(&mut inputs, "thing", Self::thing);
        inputs.as_object().cloned().unwrap()
    }

    fn signal(&self, name: &str) -> Value {
        let mut value = json!({});
        self.maybe(&mut value, "why", Self::text);
        if name == "paid" {
            value["text"] = self.text();
            self.maybe(&mut value, "thing", |strict| json!({ "a": strict.text() }));
        }
        value
    }

    fn answer(&self) -> Value {
        let mut value = json!({ "decision": self.word() });
        self.maybe(&mut value, "note", Self::text);
        self.maybe(&mut value, "list", |strict| strict.list(0));
        value
    }
}

fn is_thing(value: &Value) -> bool {
    value["a"].is_string() && value.get("b").is_none_or(Value::is_string)
}

impl Tools for Strict {
    fn perform<'a>(&'a self, call: &'a Call, row: &'a TypedTool, params: Map<String, Value>) -> ToolFuture<'a> {
        let tool = call.tool();
        if tool.starts_with("rye/orchestrate/") {
            return self.builtin.perform(call, row, params);
        }
        let params = Value::Object(params);
        // An agent hands its inputs on.
        let given = if tool == "rye/agent/model" { &params["inputs"] } else { &params };
        let value = &given["v"];
        let fits = match tool {
            "t/word" => value == &json!("light") || value == &json!("heavy"),
            "t/list" => value.as_array().is_some_and(|list| list.iter().all(Value::is_string)),
            "t/number" => value.is_number(),
            "t/object" => is_thing(value),
            _ => value.is_string(),
        };
        if !fits {
            self.wrong.lock().unwrap().push(format!("`{tool}` at `{}` received {given}", call.node()));
        }
        let result = match given["fails"] == json!(true) && self.below(3) > 0 {
            true => Err(ActionError::permanent(BY_CHANCE)),
            false if tool == "rye/agent/model" => Ok(self.turn()),
            false => Ok(self.result()),
        };
        let pause = self.below(4);
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(pause)).await;
            result
        })
    }

    fn reduce(&self, _: &str, value: Option<Value>, write: &Value) -> Option<Result<Value, ReducerError>> {
        if !write.is_string() {
            self.wrong.lock().unwrap().push(format!("the reducer received {write}"));
        }
        Some(Ok(value.unwrap_or_else(|| write.clone())))
    }

    fn reduces(&self, _: &str) -> bool {
        true
    }
}

/// Notes failures that are not by chance, and reads of keys that have no value although they always have one.
struct Watch {
    wrong: Arc<Mutex<Vec<String>>>,
    /// The nodes that go over a list. Nothing counts as a list without elements there.
    lists: Vec<String>,
}

impl Observer for Watch {
    fn observe(&self, event: &Event<'_>) {
        let mut wrong = self.wrong.lock().unwrap();
        match event {
            Event::StepCompleted { node, error: Some(error), .. } if !error.contains(BY_CHANCE) => {
                wrong.push(format!("`{node}` failed: {error}"));
            }
            // A run inside is cancelled with the branch that it belongs to.
            Event::RunEnded { status, error: Some(error), .. }
                if *status != Status::Cancelled && !error.contains(BY_CHANCE) =>
            {
                wrong.push(format!("the run failed: {error}"));
            }
            Event::StepCompleted { node, warnings, .. } if self.lists.iter().all(|list| list != node) => {
                let is_sure =
                    |warning: &&String| SURE.iter().any(|key| warning.starts_with(&format!("`${{state.{key}}}`")));
                wrong.extend(warnings.iter().filter(is_sure).map(|warning| format!("`{node}`: {warning}")));
            }
            _ => {}
        }
    }
}

/// Lets one thing happen to a run that waits: a signal, an answer, or the end of its time.
async fn reply(tools: &Strict, runtime: &Runtime, graph: &Interpreted, waits: &[Wait], now: i64) {
    let wait = &waits[usize::try_from(tools.below(waits.len() as u64)).unwrap()];
    let due = waits.iter().filter_map(|wait| wait.due).min();
    let is_listening = wait.ask.is_some() || !wait.signals.is_empty();
    match due {
        Some(due) if !is_listening || tools.below(4) == 0 => {
            let left = u64::try_from(due.saturating_sub(now)).unwrap_or_default();
            tokio::time::sleep(Duration::from_millis(left + 1)).await;
        }
        _ if wait.ask.is_some() => {
            let questions = runtime.questions(graph, &run_id()).await.unwrap();
            let question = questions.iter().find(|question| question.wait == wait.id.as_str()).unwrap();
            let envelope =
                question.sign(NamedAnswer::new(&*question.node, tools.answer()), &TestPeople::key(0)).unwrap();
            runtime.answer(graph, &run_id(), &envelope).await.unwrap();
        }
        _ => {
            let name = &wait.signals[usize::try_from(tools.below(wait.signals.len() as u64)).unwrap()];
            let id = format!("signal {}", tools.below(u64::MAX));
            runtime.signal(graph, &run_id(), NamedSignal::new(name.as_str(), tools.signal(name)), id).await.unwrap();
        }
    }
}

/// Runs a graph with random values to its end. Returns whether it failed by chance.
async fn run(tools: &Strict, library: &Library, graph: &Interpreted, needs_store: bool, watch: Watch) -> bool {
    let clock = Arc::new(TokioClock::at(SystemTime::UNIX_EPOCH + BEGAN));
    let store = MemoryStore::with_clock(Arc::clone(&clock) as _);
    let tasks = library.tasks();
    let mut builder = Runtime::builder().clock(clock).observer(watch).grant("*").unwrap();
    if needs_store {
        builder = builder.store(store.clone()).sign_with(key()).answer_keys(|| TestPeople);
        builder = builder.tools(ToolConfig::new().tasks(tasks.clone()));
    }
    let runtime = builder.build().unwrap();
    if needs_store {
        tasks.serve(&runtime);
    }
    let mut running = runtime.start_as(run_id(), graph.clone(), tools.inputs()).await.unwrap();
    loop {
        match running.await {
            Err(RunError::Waiting { waits, .. }) => {
                let now = store.now().await.unwrap();
                reply(tools, &runtime, graph, &waits, now).await;
                running = runtime.resume(graph.clone(), &run_id()).await.unwrap();
            }
            ended => return ended.is_err(),
        }
    }
}

/// A tree with the tools, the graphs inside and the agent.
struct Shop {
    directory: tempfile::TempDir,
    secret: SecretKey,
    tools: Strict,
}

impl Shop {
    fn new() -> Self {
        let (directory, secret) = tree();
        let random = Arc::new(Mutex::new(Random::new(0)));
        let tools = Strict { random, wrong: Arc::default(), builtin: Arc::new(Toolbox::new()) };
        let shop = Self { directory, secret, tools };
        for (name, text) in trees::files() {
            let kind = if name.ends_with(".md") { ItemKind::Directive } else { ItemKind::YAML };
            shop.write(&name, &text, kind);
        }
        shop
    }

    fn write(&self, name: &str, text: &str, kind: ItemKind) -> PathBuf {
        let path = self.directory.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, sign(kind, text, &self.secret, SystemTime::UNIX_EPOCH).unwrap()).unwrap();
        path
    }

    fn library(&self) -> Library {
        Library::open(self.directory.path(), self.tools.clone())
    }

    /// Loads a graph, whose nodes are written carefully where the check finds a mistake. `None` if mistakes are left.
    fn load(
        &self,
        library: &Library,
        name: &str,
        graph: &mut Written,
        codes: &mut BTreeMap<&'static str, u64>,
    ) -> Option<Interpreted> {
        for _ in 0..MOST_CORRECTIONS {
            let text = graph.text("type: gate");
            let path = self.write(name, &text, ItemKind::YAML);
            let error = match library.graph(&path) {
                Ok(loaded) => return Some(loaded),
                Err(error) => error,
            };
            // The signature is the first line.
            let line = |place: &graph_compiler::diagnostic::SourcePlace| {
                place.position().map_or(0, |(line, _)| line.saturating_sub(2))
            };
            let lines: Vec<usize> = error.diagnostics.iter().map(|diagnostic| line(&diagnostic.place)).collect();
            if !graph.correct(&text, lines.into_iter()) {
                if std::env::var_os("SHOW").is_some() {
                    println!("{error}\n{text}");
                }
                for diagnostic in &error.diagnostics {
                    *codes.entry(diagnostic.code.id).or_default() += 1;
                }
                return None;
            }
        }
        None
    }
}

/// The mistakes that are planted in the first node.
const MISTAKES: [&str; 5] = [
    "type: gate, assign: { most: \"${state.never}\" }",
    "type: gate, assign: { all: \"${state.never}\" }",
    "action: { item_id: t/text, params: { v: \"${state.never}\" } }",
    "action: { item_id: t/word, params: { v: \"${state.wrong}\" } }",
    "action: { item_id: t/word, params: { v: wrong } }",
];

/// Parts of graphs, which are counted.
const PARTS: [&str; 14] = [
    "all: [",
    "over: ",
    "foreach",
    "need: ",
    "fewer: ",
    "on_branch_error: collect",
    "visit.number, op: lt",
    "on_error: n",
    "type: wait",
    "interrupt",
    "v/inner",
    "v/asks",
    "v/agent",
    "spawn",
];

#[test]
fn a_clean_graph_has_the_values_that_its_calls_need() {
    let (graphs, seed) = (number("KNOWN_VALUES", 60), number("SEED", 1));
    let shop = Shop::new();
    let mut library = shop.library();
    let (mut clean, mut runs, mut failed) = (0_u64, 0_u64, 0_u64);
    let (mut parts, mut codes) = ([0_u64; PARTS.len()], BTreeMap::new());
    for at in 0..graphs {
        if at % GRAPHS_OF_LIBRARY == 0 {
            library = shop.library();
        }
        let seed_of_graph = seed.wrapping_mul(0x9e37_79b9).wrapping_add(at);
        let mut written = Writer::write(Random::new(seed_of_graph));
        let name = format!("values{at}.yaml");
        if let Some(graph) = shop.load(&library, &name, &mut written, &mut codes) {
            clean += 1;
            let text = written.text("type: gate");
            PARTS.iter().zip(&mut parts).for_each(|(part, count)| *count += u64::from(text.contains(part)));
            let lists = written.over_lists();
            for given in 0..RUNS {
                *shop.tools.random.lock().unwrap() = Random::new(seed_of_graph.wrapping_mul(31).wrapping_add(given));
                let watch = Watch { wrong: Arc::clone(&shop.tools.wrong), lists: lists.clone() };
                // Virtual time passes while nothing else happens, so the time of a run that waits for nothing is over at once.
                let run = run(&shop.tools, &library, &graph, written.needs_store, watch);
                let ended = within(false, async { tokio::time::timeout(MOST_TIME, run).await });
                let Ok(has_failed) = ended else {
                    panic!("graph {at} of seed {seed}, run {given} does not go on\n{text}")
                };
                failed += u64::from(has_failed);
                let wrong = std::mem::take(&mut *shop.tools.wrong.lock().unwrap());
                assert!(wrong.is_empty(), "graph {at} of seed {seed}, run {given}: {}\n{text}", wrong.join("\n"));
                runs += 1;
            }
            let mistake = written.text(MISTAKES[usize::try_from(at).unwrap() % MISTAKES.len()]);
            let path = shop.write("wrong.yaml", &mistake, ItemKind::YAML);
            assert!(library.graph(&path).is_err(), "no mistake is found in\n{mistake}");
        }
        remove(&shop.directory.path().join(name));
    }
    println!("{runs} runs of {clean} graphs of {graphs} that check clean; {failed} failed by chance; {codes:?}");
    println!("{:?}", PARTS.iter().zip(parts).collect::<Vec<_>>());
    assert!(clean * 10 > graphs * 3, "{clean} of {graphs} graphs check clean");
}

/// Removes a file, so that the tree stays small.
fn remove(path: &Path) {
    if path.exists() {
        fs::remove_file(path).unwrap();
    }
}

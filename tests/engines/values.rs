//! Absent, null and default: each value that enters a run is what the table in `docs/format.md` says, at every place, and is
//! still that when it was written and read again.
//!
//! Random schemas and values go through the inputs, signals, answers, parameters, results and state of interpreted graphs, and a
//! fixed schema with all kinds of fields through those of a compiled one. Then whole runs take many values each: they are cut
//! after a commit and resumed, forked, and proven. `values/model.rs` is the judge.
//!
//! `VALUES=1000000 cargo test --test engines values` is the number of values of each test.

mod model;
mod schema;

use std::collections::BTreeMap;
use std::fs;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::SystemTime;

use graph_compiler::graph::TypedTool;
use graph_model::name::ItemId;
use graph_model::untrusted::Untrusted;
use graph_model::value::AsView;
use graph_runtime::cache::{MemoryCache, NodeCache};
use graph_runtime::dynamic::{Library, ToolFuture, Tools};
use graph_runtime::history::{Fork, ForkRun};
use graph_runtime::machine::Arguments;
use graph_runtime::store::Wait;
use graph_runtime::testing::{StoreFault, StoreWrite, TestBed, WaitReply, in_virtual_time};
use graph_runtime::{
    ActionError, Call, Graph, Map, Mismatch, Options, RunId, Runtime, SecretKey, ToolSettings, Value, audit_tree, graph,
};
use graph_signing::{ItemKind, sign};
use serde_json::json;

use super::determinism::tree;
use super::random::Random;
use super::{Erased, erased, number};
use model::{Maker, as_parameter};
use schema::{Schema, every as every_kind, files};

graph!("tests/engines/values/every.yaml");
graph!("tests/engines/values/inner.yaml", tools = crate::values::every::tools);

use every::tools::t_keep;

/// The parameters of calls, by the node and the element.
type KeptParameters = BTreeMap<(String, Option<u64>), Value>;

/// A tool that keeps its parameters, and returns prepared results.
#[derive(Clone, Default)]
struct Shelf(Arc<Mutex<Contents>>);

#[derive(Default)]
struct Contents {
    /// For each element of a foreach, the result. Another call gets back what it was given.
    results: Vec<Value>,
    /// The parameters of each call by the node and the element.
    seen: KeptParameters,
    calls: usize,
}

impl Shelf {
    fn contents(&self) -> std::sync::MutexGuard<'_, Contents> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a call with a parameter.
    fn call(&self, call: &Call, v: Value) -> Value {
        let mut contents = self.contents();
        contents.calls += 1;
        let prepared = call.item().and_then(|item| contents.results.get(usize::try_from(item).ok()?));
        let result = prepared.cloned().unwrap_or_else(|| v.clone());
        contents.seen.insert((call.node().to_owned(), call.item()), v);
        json!({ "w": result })
    }
}

impl Tools for Shelf {
    fn perform<'a>(&'a self, call: &'a Call, _: &'a TypedTool, mut params: Map<String, Value>) -> ToolFuture<'a> {
        let v = params.get_mut("v").map(Value::take).unwrap_or_default();
        let result = self.call(call, v);
        Box::pin(async move { Ok(result) })
    }
}

impl t_keep::Tool for Shelf {
    async fn t_keep(&self, call: &Call, params: t_keep::Params) -> Result<t_keep::Output, ActionError> {
        let result = self.call(call, params.v.view().to_plain_value());
        serde_json::from_value(result).map_err(|error| ActionError::permanent(error.to_string()))
    }
}

/// A schema, with graphs whose values have it.
struct Subject {
    schema: Schema,
    every: Erased,
    inner: Erased,
    /// The index of the key `heard`.
    heard: usize,
    shelf: Shelf,
    _directory: Option<tempfile::TempDir>,
}

impl Subject {
    /// Interprets graphs with a schema; an error if the compiler refuses it.
    fn interpreted(schema: Schema) -> Result<Self, String> {
        let (directory, secret) = tree();
        for (name, text) in files(&schema) {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, signed(&text, &secret)).unwrap();
        }
        let shelf = Shelf::default();
        let library = Library::open(directory.path(), shelf.clone());
        let graph = |name: &str| library.graph(&directory.path().join(name)).map_err(|error| error.to_string());
        let (every, inner) = (graph("every.yaml")?, graph("inner.yaml")?);
        let heard = every.interface().keys.iter().position(|key| key.name == "heard").unwrap();
        Ok(Self { schema, every: erased(every), inner: erased(inner), heard, shelf, _directory: Some(directory) })
    }

    /// The compiled graphs, whose schema has all kinds of fields.
    fn compiled() -> Self {
        let shelf = Shelf::default();
        let heard = Self::interpreted(every_kind()).unwrap().heard;
        Self {
            schema: every_kind(),
            every: erased(Every::new(shelf.clone())),
            inner: erased(Inner::new(shelf.clone())),
            heard,
            shelf,
            _directory: None,
        }
    }

    /// Compares what a place holds that was given a value with what the judge says.
    fn judge(&self, place: &str, given: &Value, expected: &Option<Value>, held: Result<Value, Mismatch>) {
        let same = match (expected, &held) {
            (Some(expected), Ok(held)) => serde_json::to_string(expected).ok() == serde_json::to_string(held).ok(),
            (None, Err(_)) => true,
            _ => false,
        };
        assert!(same, "{place} of {}\ngiven {given}\nexpected {expected:?}\nfound {held:?}", self.schema.to_json());
    }

    /// Gives a value to each place that takes one, and what each holds to the same place again.
    fn try_places(&self, given: &Value) {
        let expected = self.schema.read(given);
        self.try_once(given, &expected);
        if let Some(held) = expected {
            // A value that was read is read back as it is, except that parameters have no nulls.
            self.try_once(&held, &Some(held.clone()));
        }
    }

    fn try_once(&self, given: &Value, expected: &Option<Value>) {
        let machine = self.every.machine();
        let part = |value: Value, name: &str| value.get(name).cloned().unwrap_or_default();
        let opened = machine.open(json!({"one": given, "list": [given]}));
        let inputs = opened.map(|state| state.inputs().to_plain_value());
        self.judge("an input", given, expected, inputs.clone().map(|inputs| part(inputs, "one")));
        self.judge("an element", given, expected, inputs.map(|inputs| inputs["list"][0].clone()));
        let named = json!({ "v": given });
        self.judge("a signal", given, expected, machine.signal("news", named.clone()).map(|value| part(value, "v")));
        self.judge("an answer", given, expected, machine.answer("ask", named).map(|value| part(value, "v")));
        let mut caller = machine.tool_caller();
        let restored = caller.restore(0, json!({ "w": given })).map(|()| part(caller.outcome().to_plain_value(), "w"));
        self.judge("a recorded result", given, expected, restored);
        if let Ok(mut state) = machine.open(json!({"one": given, "list": []})) {
            let set = state.set(self.heard, given.clone()).map(|()| state.get(self.heard).to_plain_value());
            assert_eq!(state.check(self.heard, given).is_ok(), set.is_ok(), "{given}");
            self.judge("a key", given, expected, set);
        }
        let output = json!({
            "one": given, "got": [{"w": given}], "branches": [given], "heard": given, "said": given, "nested": given,
        });
        let read = self.every.output("done", output.clone()).map(|output| part(output, "heard"));
        assert_eq!(machine.check_output("done", &output).is_ok(), read.is_ok(), "{given}");
        self.judge("an output", given, expected, read);
        self.try_call(given);
    }

    /// Gives a value to a call, as its parameter and as its result.
    fn try_call(&self, given: &Value) {
        let machine = self.every.machine();
        let parameter = as_parameter(given);
        let expected = self.schema.read(&parameter);
        let id = ItemId::new("t/keep").unwrap();
        let call = Call::alone(id, Vec::new(), Untrusted::default(), NoSettings);
        let mut caller = machine.tool_caller();
        let mut arguments = Arguments::default();
        arguments.push(parameter);
        let called = match caller.call(0, &mut arguments, &call) {
            Err(mismatch) => Err(mismatch),
            Ok(future) => {
                let done = pin!(future).poll(&mut Context::from_waker(Waker::noop()));
                assert!(matches!(done, Poll::Ready(Ok(()))), "{done:?}");
                Ok(self.shelf.contents().seen.values().next_back().cloned().unwrap())
            }
        };
        let is_called = called.is_ok();
        self.judge("a parameter", given, &expected, called);
        if let (Some(expected), true) = (expected, is_called) {
            let result = caller.outcome().step("w").to_plain_value();
            self.judge("a result", given, &self.schema.read(&expected), Ok(result));
        }
        self.shelf.contents().seen.clear();
    }
}

struct NoSettings;

impl ToolSettings for NoSettings {
    fn shown(&self) -> String {
        String::new()
    }
}

fn signed(text: &str, secret: &SecretKey) -> String {
    sign(ItemKind::YAML, text, secret, SystemTime::UNIX_EPOCH).unwrap()
}

fn maker() -> Maker {
    Maker(Random::new(number("SEED", 1).wrapping_mul(0x9e37_79b9)))
}

/// Returns the next random schema that the compiler takes, and counts those that it refuses.
fn next_subject(maker: &mut Maker, refused: &mut u64) -> Subject {
    loop {
        let schema = maker.object(2);
        match Subject::interpreted(schema.clone()) {
            Ok(subject) => return subject,
            Err(error) => {
                *refused += 1;
                if std::env::var_os("SHOW").is_some() {
                    eprintln!("{error}\n{}", schema.to_json());
                }
            }
        }
    }
}

/// The number of values that are tried with one schema. Its graphs take longer to compile than a value takes.
const VALUES_OF_A_SCHEMA: u64 = 200;

#[test]
fn values_are_what_the_table_says_at_every_place() {
    let (values, mut maker) = (number("VALUES", 6_000), maker());
    let (mut tried, mut taken, mut schemas, mut refused) = (0, 0_u64, 0_u64, 0);
    while tried < values {
        let subject = next_subject(&mut maker, &mut refused);
        schemas += 1;
        for at in 0..VALUES_OF_A_SCHEMA {
            let given = maker.value(&subject.schema, if at % 2 == 0 { 0 } else { 10 });
            subject.try_places(&given);
            tried += 1;
            taken += u64::from(subject.schema.read(&given).is_some());
        }
    }
    println!("{tried} values of {schemas} schemas, {taken} of which fit; the compiler refused {refused} schemas");
    assert!(taken * 3 > tried && taken < tried, "values that fit, and others: {taken} of {tried}");
    assert!(refused * 4 < schemas, "the compiler refused {refused} schemas, and took {schemas}");
}

#[test]
fn values_are_what_the_table_says_in_generated_code() {
    let (values, mut maker) = (number("VALUES", 6_000) / 20, maker());
    let subject = Subject::compiled();
    for at in 0..values {
        let given = maker.value(&subject.schema, if at % 2 == 0 { 0 } else { 1 });
        subject.try_places(&given);
        // A program makes inputs of their own type too, and `serde` reads and writes them.
        let inputs = serde_json::from_value::<inner::Inputs>(json!({ "one": given }));
        let shown = inputs.as_ref().ok().map(|inputs| inputs.view().to_plain_value()["one"].clone());
        assert_eq!(shown, subject.schema.read(&given), "{given}");
        if let Ok(inputs) = inputs {
            let written = serde_json::to_value(&inputs).unwrap();
            assert_eq!(serde_json::from_value::<inner::Inputs>(written).unwrap(), inputs, "{given}");
        }
    }
}

/// The values that a run is given, all of which fit.
#[derive(Clone)]
struct Given {
    one: Value,
    list: Vec<Value>,
    results: Vec<Value>,
    heard: Value,
    said: Value,
}

impl Given {
    fn new(maker: &mut Maker, schema: &Schema) -> Self {
        let count = 1 + maker.below(40);
        let list = |maker: &mut Maker| (0..count).map(|_| maker.fitting(schema)).collect();
        let (list, results) = (list(maker), list(maker));
        Self { one: maker.fitting(schema), list, results, heard: maker.fitting(schema), said: maker.fitting(schema) }
    }

    fn count(&self) -> u64 {
        (self.list.len() + self.results.len() + 3) as u64
    }

    fn inputs(&self) -> Map<String, Value> {
        Map::from_iter([("one".to_owned(), self.one.clone()), ("list".to_owned(), json!(self.list))])
    }

    /// Returns the run's output, and the parameters of its calls, as the judge says; `None` if a parameter does not fit without
    /// its nulls, so that a call fails.
    fn expected(&self, schema: &Schema) -> Option<(Value, KeptParameters)> {
        let read = |value: &Value| schema.read(value).expect("it fits");
        let elements: Vec<Value> = self.list.iter().map(read).collect();
        let results: Vec<Value> = self.results.iter().map(|result| json!({ "w": read(result) })).collect();
        let (heard, mut seen) = (read(&self.heard), BTreeMap::new());
        for (at, element) in elements.iter().enumerate() {
            seen.insert(("call".to_owned(), Some(at as u64)), schema.read(&as_parameter(element))?);
        }
        // The inputs of the graph inside are parameters, and so is what it calls its tool with.
        let inner = schema.read(&as_parameter(&heard))?;
        let kept = schema.read(&as_parameter(&inner))?;
        seen.insert(("call".to_owned(), None), kept.clone());
        let output = json!({
            "one": read(&self.one), "got": results, "branches": elements, "heard": heard, "said": read(&self.said),
            "nested": kept,
        });
        Some((output, seen))
    }

    /// Replies to the waits of the run.
    fn reply(&self, wait: &Wait) -> WaitReply {
        match &*wait.node {
            "wait" => WaitReply::Signal { name: "news".to_owned(), value: json!({ "v": self.heard }) },
            _ => WaitReply::Answer(json!({ "v": self.said })),
        }
    }
}

/// Runs the graph of a subject: whole, cut after a commit, forked and with a cache. Every run is proven. Returns how many values
/// it had; none if a call would fail.
fn try_run(subject: &Subject, maker: &mut Maker) -> u64 {
    let given = Given::new(maker, &subject.schema);
    let Some((expected, seen)) = given.expected(&subject.schema) else { return 0 };
    let cut = maker.0.next();
    subject.shelf.contents().results = given.results.clone();
    in_virtual_time(async |bed| {
        let replies = given.clone();
        let bed = bed.on_wait(move |wait| replies.reply(wait));
        let commits = Arc::new(Mutex::new(0));
        let counted = Arc::clone(&commits);
        let plan = move |write: &StoreWrite<'_>| {
            let mut commits = counted.lock().unwrap_or_else(PoisonError::into_inner);
            *commits = write.number.max(*commits);
            Some(StoreFault::Slow(std::time::Duration::ZERO))
        };
        let judge = |way: &str, found: &Value| {
            let schema = subject.schema.to_json();
            assert_eq!(found.to_string(), expected.to_string(), "{way}: {:?} of {schema}", given.inputs());
            assert_eq!(std::mem::take(&mut subject.shelf.contents().seen), seen, "{way}: {schema}");
        };
        let whole = bed.run_with_faults(subject.every.clone(), given.inputs(), plan).await;
        assert!(whole.outcome().is_ok(), "{:?} of {}", whole.outcome().as_ref().err(), subject.schema.to_json());
        judge("whole", whole.output());
        whole.assert_proven();
        let commits = *commits.lock().unwrap_or_else(PoisonError::into_inner);
        let at = 1 + cut % commits.max(1);
        let plan = move |write: &StoreWrite<'_>| (write.number == at).then_some(StoreFault::Dies { written: true });
        let resumed = bed.run_with_faults(subject.every.clone(), given.inputs(), plan).await;
        judge("resumed", resumed.output());
        resumed.assert_proven();
        let steps = resumed.outcome().as_ref().unwrap().steps;
        fork(subject, &bed, steps, &expected).await;
        subject.shelf.contents().seen.clear();
        cached(subject, &given).await;
    });
    given.count()
}

/// Forks the run that was resumed after its people answered, and continues the fork.
async fn fork(subject: &Subject, bed: &TestBed, steps: u64, expected: &Value) {
    let disk = bed.disk().clone();
    let runtime = bed.process(disk.clone()).build().unwrap();
    let (origin, id) = (RunId::new("test-2").unwrap(), RunId::new("fork").unwrap());
    let fork = Fork { step: Some(steps - 2), run: Some(id.clone()), ..Fork::default() };
    runtime.fork(&*subject.every.machine(), &origin, fork).await.unwrap();
    let forked = runtime.resume(subject.every.clone(), &id).await.unwrap().await.unwrap();
    assert_eq!(forked.output.to_string(), expected.to_string(), "forked: {}", subject.schema.to_json());
    let key = bed.encryption_key();
    audit_tree(subject.every.machine(), &id, &disk, &bed.key().public(), Some(&key)).await.unwrap();
}

/// Runs the graph inside twice: the second time, the result of its call is cached.
async fn cached(subject: &Subject, given: &Given) {
    let cache = NodeCache::new(MemoryCache::new());
    let runtime = Runtime::builder().grant("*").unwrap().sign_with(SecretKey::from_seed(&[7; 32])).cache(cache);
    let runtime = runtime.build().unwrap();
    let inputs = Map::from_iter([("one".to_owned(), given.heard.clone())]);
    let one = subject.schema.read(&given.heard).unwrap();
    let kept = subject.schema.read(&as_parameter(&one)).unwrap();
    let calls = subject.shelf.contents().calls;
    for time in ["called", "cached"] {
        let run = runtime.start_with(Options::default(), subject.inner.clone(), inputs.clone()).await.unwrap();
        let output = run.await.unwrap().output;
        assert_eq!(
            output.to_string(),
            json!({"one": one, "kept": kept}).to_string(),
            "{time}: {}",
            subject.schema.to_json()
        );
    }
    assert_eq!(subject.shelf.contents().calls, calls + 1, "the second result is cached");
    subject.shelf.contents().seen.clear();
}

#[test]
fn values_of_runs_are_the_same_whole_resumed_forked_and_proven() {
    let (values, mut maker) = (number("VALUES", 600), maker());
    let (mut tried, mut runs, mut failing, mut schemas, mut refused) = (0, 0_u64, 0_u64, 0_u64, 0);
    while tried < values {
        let subject = next_subject(&mut maker, &mut refused);
        schemas += 1;
        for _ in 0..5 {
            match try_run(&subject, &mut maker) {
                0 => failing += 1,
                count => (tried, runs) = (tried + count, runs + 1),
            }
        }
    }
    println!("{tried} values in {runs} graphs with {schemas} schemas; {failing} were left out, whose calls fail");
    assert!(runs > failing, "{runs} {failing}");
}

#[test]
fn values_of_compiled_runs_are_the_same_whole_resumed_forked_and_proven() {
    let (values, mut maker) = (number("VALUES", 600) / 20, maker());
    let subject = Subject::compiled();
    let mut tried = 0;
    while tried < values {
        tried += try_run(&subject, &mut maker);
    }
}

//! The parts of a runtime that a service needs: durable cancels, notified calls, outcomes, resuming all runs, shutting
//! down, spans.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use graph_runtime::__private::{Executor, Key, Program, Tool};
use graph_runtime::record::Status;
use graph_runtime::store::{Page, RunFilter, StoreError, Within};
use graph_runtime::{
    ActionError, Call, Durability, Map, MemoryStore, Options, OutcomeError, ResumeAll, ResumeError, RunError, RunId,
    RunOutcome, Runtime, SqliteStore, StartError, Store, StoredRunError,
};
use serde_json::json;
use tokio::sync::Notify;
use tracing::Instrument;

use crate::interpreted::{Interpreted, PROGRAM};
use crate::support::{id, kinds, runtime};

/// Calls its tool twice, and returns what the calls returned.
const TWICE: Program<'static> = Program {
    keys: &[Key { name: "a", initial: None }, Key { name: "b", initial: None }],
    nodes: &[
        ("a", r#"{"line":1,"does":{"action":0},"assign":{"a":"${result}"},"next":[{"to":"b"}]}"#),
        ("b", r#"{"line":2,"does":{"action":0},"assign":{"b":"${result}"},"next":[{"to":"end"}]}"#),
        ("end", r#"{"line":3,"does":"return"}"#),
    ],
    ..PROGRAM
};

/// The same graph in another version.
const LATER: Program<'static> =
    Program { version: "2.0.0", digest: "00000000000000000000000000000000000000000000000000000000000000bb", ..TWICE };

/// Runs a nested graph.
const AROUND: Program<'static> = Program {
    tools: &[Tool { by: Executor::Graph, ..PROGRAM.tools[0] }],
    nodes: &[
        ("nest", r#"{"line":1,"does":{"action":0},"next":[{"to":"done"}]}"#),
        ("done", r#"{"line":2,"does":"return"}"#),
    ],
    ..PROGRAM
};

/// Calls its tool for each of four items, two at a time.
const EACH: Program<'static> = Program {
    keys: &[Key { name: "all", initial: None }],
    nodes: &[
        (
            "each",
            r#"{"line":1,"does":{"foreach":0},"params":{"n":"${n}"},"each":{"over":"${inputs.list}","as":"n","collect":"all","width":2},"next":[{"to":"end"}]}"#,
        ),
        ("end", r#"{"line":2,"does":"return"}"#),
    ],
    ..PROGRAM
};

/// A graph whose calls count that they began, and return when they are released; a cancelled call fails if `hears`.
#[derive(Clone, Default)]
struct Gated {
    began: Arc<AtomicU64>,
    go: Arc<Notify>,
    hears: bool,
}

impl Gated {
    fn hearing() -> Self {
        Self { hears: true, ..Self::default() }
    }

    fn graph(&self, program: &Program<'_>) -> Interpreted {
        let gate = self.clone();
        Interpreted::waiting(program, move |call: &Call, _| {
            let (gate, call) = (gate.clone(), call.clone());
            Box::pin(async move {
                gate.began.fetch_add(1, Ordering::SeqCst);
                tokio::select! {
                    () = call.cancelled(), if gate.hears => {
                        assert!(call.is_cancelled());
                        Err(ActionError::permanent("nobody waits for it"))
                    }
                    () = gate.go.notified() => Ok(json!(call.node())),
                }
            })
        })
    }

    async fn calls(&self, calls: u64) {
        while self.began.load(Ordering::SeqCst) < calls {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// A graph whose calls return at once and are counted.
fn counting(program: &Program<'_>, calls: &Arc<AtomicU64>) -> Interpreted {
    let calls = Arc::clone(calls);
    Interpreted::new(program, move |call: &Call, _| {
        calls.fetch_add(1, Ordering::SeqCst);
        Ok(json!(call.node()))
    })
}

async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !is_so().await {
        assert!(began.elapsed() < Duration::from_secs(30), "{what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn a_cancel_that_was_accepted_survives_a_crash() {
    let directory = tempfile::tempdir().unwrap();
    let stores: [Arc<dyn Fn() -> _>; 2] = {
        let (memory, path) = (MemoryStore::new(), directory.path().join("runs.db"));
        let sqlite = SqliteStore::open(path).await.unwrap();
        [Arc::new(move || Either::Memory(memory.clone())), Arc::new(move || Either::Sqlite(sqlite.clone()))]
    };
    for store in stores {
        let gated = Gated::default();
        let run = match store() {
            Either::Memory(store) => runtime(store),
            Either::Sqlite(store) => runtime(store),
        };
        let at_work = run.start_as(id("run"), gated.graph(&TWICE), Map::new()).await.unwrap();
        gated.calls(1).await;
        store().cancel(&id("run")).await;
        at_work.abort();
        assert!(matches!(at_work.await, Err(RunError::Stopped { .. })));
        until("the lease was given back", async || store().find(&id("run")).await.holder.is_none()).await;
        let found = store().find(&id("run")).await;
        assert!(found.status == Status::Running && found.is_cancelling);
        let calls = Arc::default();
        let error = run.resume(counting(&TWICE, &calls), &id("run")).await.unwrap().await.unwrap_err();
        assert!(matches!(error, RunError::Cancelled { steps: 0, .. }), "{error}");
        assert_eq!(calls.load(Ordering::SeqCst), 0, "nothing is called");
        assert_eq!(store().find(&id("run")).await.status, Status::Cancelled);
        run.resume(counting(&TWICE, &calls), &id("run")).await.unwrap().await.expect("it was cancelled once");
        assert_eq!(calls.load(Ordering::SeqCst), 2);
    }
}

/// A store of either kind.
enum Either {
    Memory(MemoryStore),
    Sqlite(SqliteStore),
}

impl Either {
    async fn cancel(&self, run: &RunId) {
        match self {
            Self::Memory(store) => store.cancel(run).await.unwrap(),
            Self::Sqlite(store) => store.cancel(run).await.unwrap(),
        }
    }

    async fn find(&self, run: &RunId) -> graph_runtime::store::RunSummary {
        match self {
            Self::Memory(store) => store.find(run).await.unwrap(),
            Self::Sqlite(store) => store.find(run).await.unwrap(),
        }
    }
}

#[tokio::test]
async fn a_resume_can_ignore_an_earlier_cancel() {
    let (store, calls, gated) = (MemoryStore::new(), Arc::default(), Gated::default());
    let runtime = runtime(store.clone());
    let inside = |graph| Interpreted::new(&AROUND, |_: &Call, _| Ok(json!(0))).nesting(graph);
    let run = runtime.start_as(id("run"), inside(gated.graph(&TWICE)), Map::new()).await.unwrap();
    gated.calls(1).await;
    run.abort();
    drop(run.await);
    for name in ["run", "run-1"] {
        until("it is free", async || store.find(&id(name)).await.unwrap().holder.is_none()).await;
        store.cancel(&id(name)).await.expect("what nobody is at work on can be cancelled");
    }
    let options = Options { ignore_cancel: true, ..Options::default() };
    let graph = inside(counting(&TWICE, &calls));
    runtime.resume_with(options, graph, &id("run")).await.unwrap().await.expect("the run inside goes on too");
    assert_eq!(calls.load(Ordering::SeqCst), 2);
    assert!(!store.find(&id("run-1")).await.unwrap().is_cancelling);
}

#[tokio::test]
async fn a_call_is_notified_that_its_run_was_cancelled() {
    for (kind, calls) in [("alone", 1), ("inner", 1), ("each", 2)] {
        for kept in [false, true] {
            let (gated, store) = (Gated::hearing(), MemoryStore::new());
            let graph = match kind {
                "alone" => gated.graph(&TWICE),
                "inner" => Interpreted::new(&AROUND, |_: &Call, _| Ok(json!(0))).nesting(gated.graph(&TWICE)),
                _ => gated.graph(&EACH),
            };
            let runtime = if kept { runtime(store) } else { Runtime::builder().grant("*").unwrap().build().unwrap() };
            let inputs = Map::from_iter([("list".to_owned(), json!([1, 2, 3, 4]))]);
            let run = runtime.start(graph, inputs).await.unwrap();
            gated.calls(calls).await;
            assert!(!run.is_finished());
            run.canceller().cancel();
            let error = run.await.unwrap_err();
            assert!(matches!(error, RunError::Cancelled { .. }), "a call that fails then is no failure: {error}");
            assert_eq!(gated.began.load(Ordering::SeqCst), calls, "no other call is begun");
        }
    }
}

#[tokio::test]
async fn a_call_knows_which_attempt_it_is() {
    for kept in [false, true] {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let graph = {
            let seen = Arc::clone(&seen);
            Interpreted::new(&TWICE, move |call: &Call, _| {
                seen.lock().unwrap().push((call.node().to_owned(), call.attempt(), call.idempotency_key()));
                match call.attempt() {
                    1 | 2 if call.node() == "a" => {
                        Err(ActionError::transient("not yet").with_retry_after(Duration::from_millis(1)))
                    }
                    _ => Ok(json!(1)),
                }
            })
        };
        let runtime = match kept {
            true => runtime(MemoryStore::new()),
            false => Runtime::builder().grant("*").unwrap().build().unwrap(),
        };
        runtime.start(graph, Map::new()).await.unwrap().await.unwrap();
        let seen = seen.lock().unwrap();
        let attempts: Vec<_> = seen.iter().map(|(node, attempt, _)| (node.as_str(), *attempt)).collect();
        assert_eq!(attempts, [("a", 1), ("a", 2), ("a", 3), ("b", 1)]);
        assert!(seen[0].2 == seen[2].2 && seen[0].2 != seen[3].2, "the key is that of the call");
    }
}

#[tokio::test]
async fn an_outcome_reports_the_status_and_calls_nothing() {
    let (store, gated) = (MemoryStore::new(), Gated::default());
    let runtime = runtime(store.clone());
    let calls = Arc::default();
    let (graph, later) = (counting(&TWICE, &calls), counting(&LATER, &calls));
    let missing = runtime.outcome(&graph, &id("run")).await.unwrap_err();
    assert_eq!(missing.to_string(), "there is no run `run`");
    let missing = runtime.resume(graph.clone(), &id("run")).await.map(drop).unwrap_err();
    assert_eq!(missing.to_string(), "there is no run `run`");
    let run = runtime.start_as(id("run"), gated.graph(&TWICE), Map::new()).await.unwrap();
    gated.calls(1).await;
    let at = async |expected: &str| {
        let outcome = runtime.outcome(&graph, &id("run")).await.unwrap();
        let RunOutcome::Running { nodes, steps, holder, is_cancelling, .. } = outcome else { panic!("{outcome:?}") };
        assert_eq!(format!("{nodes:?} {steps} {} {is_cancelling}", holder.is_some()), expected);
    };
    at("[\"a\"] 0 true false").await;
    gated.go.notify_one();
    gated.calls(2).await;
    at("[\"b\"] 1 true false").await;
    store.cancel(&id("run")).await.unwrap();
    at("[\"b\"] 1 true true").await;
    gated.go.notify_one();
    run.await.unwrap_err();
    let outcome = runtime.outcome(&graph, &id("run")).await.unwrap();
    assert!(matches!(&outcome, RunOutcome::Cancelled { steps: 2, nodes, .. } if *nodes == ["end"]), "{outcome:?}");
    let finished = runtime.resume(counting(&TWICE, &calls), &id("run")).await.unwrap().await.unwrap();
    let records = store.load(&id("run")).await.unwrap().len();
    let outcome = runtime.outcome(&graph, &id("run")).await.unwrap();
    assert_eq!(outcome, RunOutcome::Done(Box::new(finished)));
    let error = runtime.outcome(&later, &id("run")).await.unwrap_err();
    assert!(
        matches!(&error, OutcomeError::Stored(StoredRunError::AnotherGraph { found, .. }) if found.contains("1.0.0")),
        "{error}"
    );
    let refuses = Interpreted::new(&TWICE, |call: &Call, _| match call.node() {
        "a" => Ok(json!(1)),
        _ => Err(ActionError::permanent("no money").with_code("declined")),
    });
    runtime.start_as(id("failed"), refuses, Map::new()).await.unwrap().await.unwrap_err();
    let outcome = runtime.outcome(&graph, &id("failed")).await.unwrap();
    let RunOutcome::Failed { error, code, node, steps, .. } = outcome else { panic!("{outcome:?}") };
    assert_eq!((error.as_str(), code.as_deref(), node.as_deref(), steps), ("no money", Some("declined"), Some("b"), 1));
    assert_eq!(store.find(&id("failed")).await.unwrap().code.as_deref(), Some("declined"), "the list says it too");
    assert_eq!(store.load(&id("run")).await.unwrap().len(), records, "nothing was written");
    assert_eq!(calls.load(Ordering::SeqCst), 0, "and nothing called");
}

#[tokio::test]
async fn all_stopped_runs_are_resumed_except_held_ones() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    let mine = runtime(SqliteStore::open(&path).await.unwrap());
    let gated = Gated::default();
    for number in 0..130 {
        let program = if number == 7 { &LATER } else { &TWICE };
        let name = id(&format!("run{number}"));
        let run = mine.start_as(name, gated.graph(program), Map::new()).await.unwrap();
        run.abort();
        drop(run.await);
    }
    let other = runtime(SqliteStore::open(&path).await.unwrap());
    let theirs = other.start_as(id("theirs"), gated.graph(&TWICE), Map::new()).await.unwrap();
    let ended = mine.start_as(id("ended"), counting(&TWICE, &Arc::default()), Map::new()).await.unwrap();
    ended.await.unwrap();
    let calls = Arc::default();
    let mut asked = BTreeSet::new();
    let resumed = mine
        .resume_all(ResumeAll::default(), |summary| {
            asked.insert(summary.run.to_string());
            (summary.run != id("run3")).then(|| counting(&TWICE, &calls))
        })
        .await
        .unwrap();
    assert!(asked.len() == 130 && !asked.contains("theirs") && !asked.contains("ended"), "{asked:?}");
    assert_eq!(resumed.len(), 129, "one was left alone");
    for one in resumed {
        match one.run {
            Ok(run) => drop(run.await.unwrap()),
            Err(error) => {
                assert!(matches!(error, ResumeError::Stored(StoredRunError::AnotherGraph { .. })), "{error}");
                assert_eq!((one.summary.run, one.summary.version.as_deref()), (id("run7"), Some("2.0.0")));
            }
        }
    }
    let unfinished = RunFilter { statuses: vec![Status::Running], within: Within::TopLevel, ..RunFilter::default() };
    let left = mine.runs(&unfinished, &Page::default()).await.unwrap().runs;
    let left: Vec<_> = left.iter().map(|run| run.run.as_str()).collect();
    assert_eq!(left, ["theirs", "run7", "run3"]);
    theirs.abort();
}

#[tokio::test]
async fn a_shutdown_leaves_runs_that_can_be_resumed() {
    for durability in [Durability::Sync, Durability::Async, Durability::Exit] {
        let (store, gated) = (MemoryStore::new(), Gated::default());
        let ending = runtime(store.clone());
        let with = |name| Options { run: Some(id(name)), durability, ..Options::default() };
        let run = ending.start_with(with("run"), gated.graph(&TWICE), Map::new()).await.unwrap();
        let inside = Interpreted::new(&AROUND, |_: &Call, _| Ok(json!(0))).nesting(gated.graph(&TWICE));
        let outer = ending.start_with(with("outer"), inside, Map::new()).await.unwrap();
        let inputs = || Map::from_iter([("list".to_owned(), json!([1, 2, 3, 4]))]);
        let each = ending.start_with(with("each"), gated.graph(&EACH), inputs()).await.unwrap();
        gated.calls(4).await;
        let stopping = {
            let ending = ending.clone();
            tokio::spawn(async move { ending.shutdown(Duration::from_secs(20)).await })
        };
        until("nothing begins", async || {
            matches!(ending.start(counting(&TWICE, &Arc::default()), Map::new()).await, Err(StartError::ShutDown))
        })
        .await;
        let refused = ending.resume(counting(&TWICE, &Arc::default()), &id("run")).await;
        assert!(matches!(refused, Err(ResumeError::Start(StartError::ShutDown))));
        assert!(!stopping.is_finished(), "calls that are being made are waited for");
        (0..4).for_each(|_| gated.go.notify_one());
        for error in [run.await.unwrap_err(), outer.await.unwrap_err(), each.await.unwrap_err()] {
            assert!(matches!(error, RunError::ShutDown { .. }), "{error}");
        }
        assert!(stopping.await.unwrap().is_empty(), "all were done in time");
        for name in ["run", "outer", "outer-1", "each"] {
            let found = store.find(&id(name)).await.unwrap();
            assert!(found.status == Status::Running && found.holder.is_none(), "{name}: {found:?}");
        }
        assert_eq!(kinds(&store.load(&id("run")).await.unwrap()), ["start", "step"], "what was done is durable");
        assert!(kinds(&store.load(&id("each")).await.unwrap()).iter().any(|kind| kind == "calls"));
        let (again, calls) = (runtime(store.clone()), Arc::default());
        again.resume(counting(&TWICE, &calls), &id("run")).await.unwrap().await.unwrap();
        let inside = Interpreted::new(&AROUND, |_: &Call, _| Ok(json!(0))).nesting(counting(&TWICE, &calls));
        again.resume(inside, &id("outer")).await.unwrap().await.unwrap();
        again.resume(counting(&EACH, &calls), &id("each")).await.unwrap().await.unwrap();
        assert_eq!(calls.load(Ordering::SeqCst), 4, "no call that was done is made again");
    }
}

#[tokio::test]
async fn a_shutdown_drops_what_is_not_done_in_time() {
    let (store, gated) = (MemoryStore::new(), Gated::default());
    let ending = runtime(store.clone());
    let run = ending.start_as(id("run"), gated.graph(&TWICE), Map::new()).await.unwrap();
    gated.calls(1).await;
    assert_eq!(ending.shutdown(Duration::from_millis(20)).await, [id("run")]);
    assert!(matches!(run.await, Err(RunError::Stopped { .. })));
    let found = store.find(&id("run")).await.unwrap();
    assert!(found.status == Status::Running && found.holder.is_none(), "{found:?}");
    let again = runtime(store);
    again.resume(counting(&TWICE, &Arc::default()), &id("run")).await.unwrap().await.unwrap();
    assert!(again.shutdown(Duration::ZERO).await.is_empty(), "nobody is at work");
}

#[tokio::test]
async fn a_run_can_be_awaited_in_parts_and_not_started_twice() {
    let (store, gated) = (MemoryStore::new(), Gated::default());
    let runtime = runtime(store);
    let mut run = runtime.start_as(id("run"), gated.graph(&TWICE), Map::new()).await.unwrap();
    let twice = runtime.start_as(id("run"), gated.graph(&TWICE), Map::new()).await.unwrap_err();
    assert!(matches!(&twice, StartError::Store(StoreError::Exists(run)) if *run == id("run")), "{twice}");
    assert_eq!(twice.to_string(), "there is a run `run` already: resume it, or name another id");
    let mut turns = 0;
    let finished = loop {
        tokio::select! {
            finished = &mut run => break finished.unwrap(),
            () = tokio::time::sleep(Duration::from_millis(5)) => {
                turns += 1;
                gated.go.notify_one();
            }
        }
    };
    assert!(finished.steps == 3 && turns > 1);
    assert!(run.is_finished() && matches!(run.await, Err(RunError::Stopped { .. })), "its result was given");
}

/// The name, the parent and the fields of a span.
#[derive(Debug, Clone, Default)]
struct Seen {
    name: &'static str,
    parent: Option<u64>,
    fields: BTreeMap<&'static str, String>,
}

/// Records all spans.
#[derive(Default)]
struct Spans {
    seen: Mutex<Vec<Seen>>,
}

std::thread_local! {
    static INSIDE: std::cell::RefCell<Vec<u64>> = const { std::cell::RefCell::new(Vec::new()) };
}

impl tracing::field::Visit for Seen {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        self.fields.insert(field.name(), format!("{value:?}"));
    }
}

impl tracing::Subscriber for Spans {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.is_span()
    }

    fn new_span(&self, attributes: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        let inside = || INSIDE.with_borrow(|inside| inside.last().copied());
        let parent = attributes.parent().map(tracing::span::Id::into_u64);
        let parent = parent.or_else(|| attributes.is_contextual().then(inside).flatten());
        let mut seen = Seen { name: attributes.metadata().name(), parent, ..Seen::default() };
        attributes.record(&mut seen);
        let mut all = self.seen.lock().unwrap();
        all.push(seen);
        tracing::span::Id::from_u64(all.len() as u64)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {}

    fn enter(&self, span: &tracing::span::Id) {
        INSIDE.with_borrow_mut(|inside| inside.push(span.into_u64()));
    }

    fn exit(&self, span: &tracing::span::Id) {
        INSIDE.with_borrow_mut(|inside| assert_eq!(inside.pop(), Some(span.into_u64())));
    }
}

#[test]
fn runs_steps_and_calls_have_spans_inside_the_callers() {
    let spans = Arc::new(Spans::default());
    let dispatch = tracing::Dispatch::from(Arc::clone(&spans) as Arc<dyn tracing::Subscriber + Send + Sync>);
    for kept in [false, true] {
        spans.seen.lock().unwrap().clear();
        let tool_saw = Arc::new(Mutex::new(Vec::new()));
        let seeing = |program: &Program<'_>| {
            let tool_saw = Arc::clone(&tool_saw);
            Interpreted::new(program, move |call: &Call, _| {
                tool_saw.lock().unwrap().push(INSIDE.with_borrow(|inside| inside.last().copied()));
                match (call.node(), call.attempt()) {
                    ("a", 1) => Err(ActionError::transient("not yet").with_retry_after(Duration::from_millis(1))),
                    _ => Ok(json!(1)),
                }
            })
        };
        let around = Interpreted::new(&AROUND, |_: &Call, _| Ok(json!(0))).nesting(seeing(&TWICE));
        let graphs = [(around, "around"), (seeing(&EACH), "each")];
        tracing::dispatcher::with_default(&dispatch, || {
            let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            tokio.block_on(async {
                let runtime = match kept {
                    true => runtime(MemoryStore::new()),
                    false => Runtime::builder().grant("*").unwrap().build().unwrap(),
                };
                for (graph, name) in graphs {
                    let inputs = Map::from_iter([("list".to_owned(), json!([1, 2]))]);
                    let caller = tracing::info_span!("caller", name);
                    let run = runtime.start_as(id(name), graph, inputs).instrument(caller).await.unwrap();
                    run.await.unwrap();
                }
            });
        });
        let seen = spans.seen.lock().unwrap().clone();
        let path = |span: u64| {
            let (mut path, mut at) = (Vec::new(), Some(span));
            while let Some(span) = at {
                let Seen { name, parent, fields } = &seen[usize::try_from(span - 1).unwrap()];
                let fields: Vec<String> = fields.iter().map(|(name, value)| format!("{name}={value}")).collect();
                path.insert(0, format!("{name}({})", fields.join(" ")));
                at = *parent;
            }
            path.join(" > ")
        };
        let mut calls: Vec<String> = tool_saw.lock().unwrap().iter().map(|span| path(span.unwrap())).collect();
        let outer = "caller(name=\"around\") > graph.run(graph=test/graph run=around) > graph.step(node=nest step=1) \
                     > graph.call(attempt=1 tool=\"test/tool\") > graph.run(graph=test/graph run=around-1)";
        let call = |node: &str, step: u64, attempt: u64| {
            format!("{outer} > graph.step(node={node} step={step}) > graph.call(attempt={attempt} tool=\"test/tool\")")
        };
        let item = |item: u64| {
            format!(
                "caller(name=\"each\") > graph.run(graph=test/graph run=each) > graph.step(node=each step=1) \
                 > graph.call(attempt=1 item={item} tool=\"test/tool\")"
            )
        };
        // Items that are called concurrently come in any order.
        calls[3..].sort();
        assert_eq!(calls, [call("a", 1, 1), call("a", 1, 2), call("b", 2, 1), item(0), item(1)], "kept: {kept}");
    }
}

//! The versions of a graph as one value: each method that takes a run uses the version that the run is under.

use std::sync::Arc;
use std::time::Duration;

use graph_runtime::__private::{Executor, Key, Program, Tool};
use graph_runtime::history::{EditRun, Fork, ForkRun, StateEdit, entry_at, replay, traversal};
use graph_runtime::store::{RunFilter, RunSummary, Within};
use graph_runtime::versions::to_json;
use graph_runtime::{
    ActionError, Builder, CancelToken, Graph, Machine as _, Map, MemoryStore, NamedSignal, Options, OutcomeError,
    ResumeAll, ResumeError, RunError, RunId, RunOutcome, Runtime, SecretKey, Single, StartError, Status, StepOnce,
    Store, StoredRunError, Value, VersionError, Versions, WorkerError, WorkerOptions, audit, audit_tree,
};
use serde_json::json;
use tokio::sync::Semaphore;

use crate::answers::People;
use crate::interpreted::{Interpreted, PROGRAM};
use crate::support::{KEY, builder, encryption_key, id, runtime};
use crate::waits::store;

/// The digest of the text, or of the meaning, of a version.
fn digest(of: char, version: usize) -> String {
    format!("{}{version}", of.to_string().repeat(63))
}

/// Performs a call, as the input `how` says.
fn act(how: &Value) -> Result<Value, ActionError> {
    match how.as_str() {
        Some("fails") => Err(ActionError::permanent("no money").with_code("declined")),
        _ => Ok(json!("acted")),
    }
}

/// A call, a question, a signal and an output that says which version wrote it. The versions have another signal each.
fn version(number: usize) -> Interpreted {
    let people = [1, 1, 3][number];
    let done = format!(r#"{{"line":4,"does":"return","output":{{"version":{number},"log":"${{state.log}}"}}}}"#);
    let program = Program {
        version: ["1.0.0", "2.0.0", "3.0.0"][number],
        digest: &digest('a', number),
        settings: &format!(
            r#"{{"signals":{{"paid":{{}},"own_{number}":{{}}}},"meaning":"{}","channels":{{"log":"append"}}}}"#,
            digest('b', number)
        ),
        keys: &[Key { name: "log", initial: Some("[]") }],
        nodes: &[
            (
                "act",
                r#"{"line":1,"does":{"action":0},"params":"${inputs.how}","assign":{"log":"${result}"},"next":[{"to":"ask"}]}"#,
            ),
            (
                "ask",
                &format!(
                    r#"{{"line":2,"does":"interrupt","wait":{{"ask":{{"payload":{{"of":{number}}},"count":{people}}}}},"assign":{{"log":"${{result.decision}}"}},"next":[{{"to":"wait"}}]}}"#
                ),
            ),
            (
                "wait",
                &format!(
                    r#"{{"line":3,"does":"wait","wait":{{"signals":["paid","own_{number}"]}},"assign":{{"log":"${{result.signal}}"}},"next":[{{"to":"done"}}]}}"#
                ),
            ),
            ("done", &done),
        ],
        ..PROGRAM
    };
    Interpreted::waiting(&program, |_, how| {
        Box::pin(async move { if how == "hangs" { std::future::pending().await } else { act(&how) } })
    })
}

/// A graph that runs a version inside, and is of another meaning for each.
fn around(number: usize) -> Interpreted {
    let tool = Tool { id: "test/graph", by: Executor::Graph, ..PROGRAM.tools[0] };
    let program = Program {
        id: "test/outer",
        version: ["1.0.0", "2.0.0", "3.0.0"][number],
        digest: &digest('c', number),
        settings: &format!(r#"{{"meaning":"{}"}}"#, digest('d', number)),
        tools: &[tool],
        permissions: &["rye.execute.tool.*"],
        nodes: &[
            (
                "nest",
                r#"{"line":1,"does":{"action":0},"params":{"how":"acts"},"assign":{"inner":"${result.output}"},"next":[{"to":"done"}]}"#,
            ),
            ("done", r#"{"line":2,"does":"return","output":"${state.inner}"}"#),
        ],
        keys: &[Key { name: "inner", initial: None }],
        ..PROGRAM
    };
    Interpreted::new(&program, |_, params| Ok(params)).nesting(version(number))
}

/// How far a run has come.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Stage {
    /// Its process died in a call.
    Stopped,
    /// It asks.
    Asking,
    /// It waits for a signal.
    Waiting,
    Completed,
    Failed,
    Cancelled,
}

const STAGES: [Stage; 6] =
    [Stage::Stopped, Stage::Asking, Stage::Waiting, Stage::Completed, Stage::Failed, Stage::Cancelled];

/// A store with a run in it, and a runtime.
struct Place {
    store: MemoryStore,
    runtime: Runtime,
    ann: SecretKey,
    run: RunId,
}

fn inputs(how: &str) -> Map<String, Value> {
    Map::from_iter([("how".to_owned(), json!(how))])
}

impl Stage {
    fn inputs(self) -> Map<String, Value> {
        inputs(match self {
            Self::Stopped => "hangs",
            Self::Failed => "fails",
            _ => "acts",
        })
    }

    /// Makes a run of a graph that has come so far.
    async fn reached(self, graph: &Interpreted) -> Place {
        let place = Place::new();
        let Place { runtime, run, store, .. } = &place;
        let started = runtime.start_as(run.clone(), graph.clone(), self.inputs()).await.unwrap();
        match self {
            Self::Stopped => {
                started.abort();
                drop(started.await);
                while store.find(run).await.unwrap().holder.is_some() {
                    tokio::task::yield_now().await;
                }
            }
            _ => drop(started.await),
        }
        if matches!(self, Self::Waiting | Self::Completed) {
            place.answer(graph).await;
            drop(runtime.resume(graph.clone(), run).await.unwrap().await);
        }
        if self == Self::Completed {
            runtime.signal(graph, run, paid("paid"), "p-0").await.unwrap();
            runtime.resume(graph.clone(), run).await.unwrap().await.unwrap();
        }
        if self == Self::Cancelled {
            runtime.cancel(run).await.unwrap();
        }
        place
    }
}

fn paid(name: &str) -> NamedSignal {
    NamedSignal::new(name, json!({ "cents": 7 }))
}

/// Shows a result, so that two can be compared.
fn shown<T: std::fmt::Debug, E: std::error::Error>(result: Result<T, E>) -> String {
    match result {
        Ok(done) => format!("{done:?}"),
        Err(error) => {
            let mut text = format!("error: {error}");
            let mut cause = error.source();
            while let Some(error) = cause {
                text += &format!(": {error}");
                cause = error.source();
            }
            text
        }
    }
}

impl Place {
    fn new() -> Self {
        let (store, clock) = store();
        let people = People::default();
        let ann = people.add(11, "Ann", &[]);
        // All journals of one stage are equal.
        let builder = builder(store.clone()).clock(clock).answer_keys(move || people.clone());
        Self { runtime: builder.build().unwrap(), store, ann, run: id("run") }
    }

    async fn answer(&self, graph: &impl Graph) -> String {
        let questions = self.runtime.questions(graph, &self.run).await;
        let Ok([question]) = questions.as_deref() else { return shown(questions) };
        let envelope = question.answer(&json!({ "decision": "approve" }));
        question.check(graph, &envelope).unwrap();
        assert_eq!((question.count_of(graph, &json!({})), question.secrets(graph)), (1, None));
        let envelope = envelope.signed_by(&self.ann).unwrap();
        shown(self.runtime.answer(graph, &self.run, &envelope).await)
    }

    async fn outcome(&self, graph: &impl Graph<Output = Value>) -> String {
        shown(self.runtime.outcome(graph, &self.run).await)
    }
}

/// The methods that take a run and a graph.
const METHODS: [&str; 22] = [
    "outcome",
    "questions",
    "answer",
    "signal",
    "own signal",
    "another's signal",
    "signal or start",
    "release",
    "resume",
    "resume with",
    "resume all",
    "retry",
    "worker",
    "attach",
    "cancel",
    "fork",
    "edit",
    "step once",
    "entry",
    "traversal",
    "audit",
    "replay",
];

/// Calls a method, and shows its result and the outcome of the run, as the version `own` sees it. `number` is that of the version.
async fn called<G>(method: &str, place: &Place, graph: &G, stage: Stage, own: (usize, &Interpreted)) -> String
where
    G: Graph<Inputs = Map<String, Value>, Output = Value> + Clone,
{
    let Place { runtime, run, store, .. } = place;
    let key = SecretKey::from_seed(&KEY).public();
    let records = store.load(run).await.unwrap();
    let result = match method {
        "outcome" => place.outcome(graph).await,
        "questions" => shown(runtime.questions(graph, run).await),
        "answer" => place.answer(graph).await,
        "signal" => shown(runtime.signal(graph, run, paid("paid"), "p-1").await),
        "own signal" => shown(runtime.signal(graph, run, paid(&format!("own_{}", own.0)), "p-1").await),
        "another's signal" => shown(runtime.signal(graph, run, paid(&format!("own_{}", 1 - own.0)), "p-1").await),
        "signal or start" => {
            let signalled = runtime.signal_or_start(graph, run, stage.inputs(), paid("paid"), "p-1").await;
            shown(signalled.map(|signalled| (signalled.started.is_some(), signalled.received)))
        }
        "release" => shown(runtime.release(graph, run).await),
        "resume" | "resume with" => {
            // A call that hangs is in progress when the process dies.
            let options = match method {
                "resume" => Options::default(),
                _ => Options { ignore_cancel: true, ..Options::default() },
            };
            match runtime.resume_with(options, graph.clone(), run).await {
                Ok(resumed) if stage == Stage::Stopped => {
                    resumed.abort();
                    drop(resumed.await);
                    "it hangs again".to_owned()
                }
                Ok(resumed) => shown(resumed.await),
                Err(error) => shown(Err::<(), _>(error)),
            }
        }
        "resume all" => {
            let all = runtime.resume_all(ResumeAll::default(), |_| Some(graph.clone())).await.unwrap();
            let mut texts = Vec::new();
            for resumed in all {
                texts.push(match resumed.run {
                    Ok(resumed) => {
                        resumed.abort();
                        drop(resumed.await);
                        "it hangs again".to_owned()
                    }
                    Err(error) => shown(Err::<(), _>(error)),
                });
            }
            texts.join(", ")
        }
        "retry" => shown(runtime.retry(graph.clone(), run).await),
        "worker" => {
            let worker = runtime.worker(WorkerOptions::default().graph(graph.clone())).unwrap();
            if stage == Stage::Stopped {
                while worker.status().claimed == 0 && !worker.status().is_idle {
                    tokio::task::yield_now().await;
                }
            } else {
                worker.idle().await;
            }
            let claimed = worker.status().claimed;
            worker.shutdown(Duration::ZERO).await;
            format!("{claimed} claimed")
        }
        "attach" => match runtime.start_or_attach(run.clone(), graph.clone(), stage.inputs()).await {
            Ok(attached) if stage == Stage::Stopped => format!("{}", attached.is_finished()),
            Ok(attached) => shown(attached.await),
            Err(error) => shown(Err::<(), _>(error)),
        },
        "cancel" => shown(runtime.cancel(run).await),
        "fork" => {
            let fork = Fork { step: Some(0), run: Some(id("fork")), ..Fork::default() };
            let forked = runtime.fork(graph, run, fork).await;
            if let Ok(forked) = &forked {
                assert!(store.find(forked).await.unwrap().is_under(own.1.graph()));
            }
            shown(forked)
        }
        "edit" => {
            let set = Map::from_iter([("log".to_owned(), json!(["edited"]))]);
            let (by, why) = ("ann".to_owned(), "to see it".to_owned());
            shown(runtime.edit(graph, run, StateEdit { by, why, set, ..StateEdit::default() }).await)
        }
        "step once" => {
            let single = Single { node: "done".to_owned(), ..Single::default() };
            let stepped = runtime.step_once_in(Arc::new(graph.clone()), run, single).await;
            shown(stepped.map(|stepped| (stepped.status, stepped.output)))
        }
        "entry" => shown(entry_at(graph, run, &records, &key, None, None).map(|entry| entry.state)),
        "traversal" => shown(traversal(graph, run, &records, &key)),
        "audit" => {
            let tree = audit_tree(Arc::new(graph.clone()), run, store, &key, None).await;
            let one = audit(graph, run, &records, &key, None);
            format!("{} {}", shown(tree), shown(one))
        }
        _ => shown(replay(graph, own.1, run, &records, &key, None)),
    };
    while store.find(run).await.unwrap().holder.is_some() {
        tokio::task::yield_now().await;
    }
    format!("{result}\nthen {}", place.outcome(own.1).await)
}

#[tokio::test]
async fn every_method_uses_the_version_that_a_run_is_under() {
    let [old, new, other] = [0, 1, 2].map(version);
    let both = [
        Versions::of(new.clone()).and(old.clone()).unwrap(),
        // After a deploy was taken back.
        Versions::of(old.clone()).and(new.clone()).unwrap(),
        Versions::of(other.clone()).and(new.clone()).unwrap().and(old.clone()).unwrap(),
    ];
    let mut compared = 0;
    for stage in STAGES {
        for (number, own) in [&old, &new].into_iter().enumerate() {
            for method in METHODS {
                // The oracle: a program that has this version only.
                let expected = called(method, &stage.reached(own).await, own, stage, (number, own)).await;
                for versions in &both {
                    let found = called(method, &stage.reached(own).await, versions, stage, (number, own)).await;
                    assert_eq!(found, expected, "{method} of a run of version {number} that is {stage:?}");
                    compared += 1;
                }
            }
        }
    }
    assert_eq!(compared, 6 * 2 * 22 * 3);
}

#[tokio::test]
async fn a_run_of_a_version_that_is_not_named_is_refused() {
    let [old, new, other] = [0, 1, 2].map(version);
    let others = Versions::of(other).and(new).unwrap();
    // Those that read no graph, or leave such a run alone.
    let silent = ["worker", "cancel"];
    for stage in STAGES {
        for method in METHODS.into_iter().filter(|method| !silent.contains(method)) {
            if method == "resume all" && stage != Stage::Stopped {
                continue;
            }
            let place = stage.reached(&old).await;
            let (before, outcome) = (place.store.load(&place.run).await.unwrap(), place.outcome(&old).await);
            let found = called(method, &place, &others, stage, (0, &old)).await;
            let is_refused = found.starts_with("error: ") && found.ends_with(&outcome);
            assert!(is_refused, "{method} of a run that is {stage:?}: {found}");
            assert_eq!(place.store.load(&place.run).await.unwrap(), before, "{method} wrote nothing");
            let of_proofs = ["fork", "edit", "step once", "entry", "traversal", "audit", "replay"];
            // The value of a signal is read by the newest version first.
            if of_proofs.contains(&method) || method.ends_with(" signal") {
                continue;
            }
            let named = ["test/graph 1.0.0 (aaa", "test/graph 3.0.0 (aaa", " or test/graph 2.0.0 (aaa"];
            assert!(named.iter().all(|name| found.contains(name)), "{method}: {found}");
        }
    }
}

#[tokio::test]
async fn the_version_of_the_outermost_run_chooses_the_graphs_inside_it() {
    let [old, new, other] = [0, 1, 2].map(around);
    let both = Versions::of(new.clone()).and(old.clone()).unwrap();
    for (number, own) in [&old, &new].into_iter().enumerate() {
        let place = Place::new();
        let Place { runtime, run, store, .. } = &place;
        drop(runtime.start_as(run.clone(), own.clone(), Map::new()).await.unwrap().await);
        let question = &runtime.questions(&both, run).await.unwrap()[0];
        assert_eq!((question.graph(), &question.payload), ("test/graph", &json!({ "of": number })));
        assert_eq!(place.answer(&both).await, "Accepted");
        drop(runtime.resume(both.clone(), run).await.unwrap().await);
        let path = question.wait.split_once('/').unwrap().0;
        // Each version of the graph inside has a signal of its own.
        let error = runtime.signal(&both, run, paid(&format!("{path}/own_{}", 1 - number)), "p-1").await.unwrap_err();
        assert!(
            error.to_string().contains(&format!("the graph `test/graph {}.0.0` has no signal", number + 1)),
            "{error}"
        );
        runtime.signal(&both, run, paid(&format!("{path}/own_{number}")), "p-1").await.unwrap();
        let finished = runtime.resume(both.clone(), run).await.unwrap().await.unwrap();
        assert_eq!(finished.output["version"], number);
        let key = SecretKey::from_seed(&KEY).public();
        let proven = audit_tree(Arc::new(both.clone()), run, store, &key, None).await.unwrap();
        assert_eq!(proven.len(), 2);
        let without = Versions::of(other.clone()).and([&new, &old][number].clone()).unwrap();
        let error = runtime.outcome(&without, run).await.unwrap_err();
        assert!(matches!(error, OutcomeError::Stored(StoredRunError::AnotherGraph { .. })), "{error}");
    }
}

#[tokio::test]
async fn versions_have_one_id_and_a_meaning_each() {
    let [old, new, other] = [0, 1, 2].map(version);
    let twice = |versions: Result<Versions<Interpreted>, VersionError>| {
        let graph = "test/graph".to_owned();
        assert_eq!(versions.unwrap_err(), VersionError::Twice { graph });
    };
    twice(Versions::of(new.clone()).and(new.clone()));
    let both = Versions::of(new.clone()).and(old.clone()).unwrap();
    twice(both.clone().and(old.clone()));
    // Versions of versions are versions too.
    twice(Versions::of(other.clone()).and(both.clone()).unwrap().and(old.clone()));
    let nested = Versions::of(both.clone()).and(other.clone()).unwrap();
    assert_eq!(
        nested.and(old.clone()).unwrap_err().to_string(),
        both.clone().and(old.clone()).unwrap_err().to_string()
    );
    let error = both.clone().and(around(0)).unwrap_err();
    assert_eq!(error.to_string(), "`test/outer` is no version of `test/graph`: all versions of a graph have its id");
    let runtime = runtime(MemoryStore::new());
    let error = runtime.worker(WorkerOptions::default().graph(both.clone()).graph(old.clone())).unwrap_err();
    assert!(matches!(error, WorkerError::Twice { .. }), "{error}");
    runtime.worker(WorkerOptions::default().graph(both).graph(other)).unwrap();
}

#[tokio::test]
async fn the_outputs_of_old_versions_become_those_of_the_newest() {
    #[derive(Debug, PartialEq)]
    enum Either {
        Old(Value),
        New(Value),
    }
    let [old, new] = [0, 1].map(version);
    let either = Versions::with(new.clone(), |output| Ok(Either::New(output)));
    let either = either.and_with(old.clone(), |output| Ok(Either::Old(output))).unwrap();
    let as_json = Versions::with(new.clone(), to_json).and_with(old.clone(), to_json).unwrap();
    for (number, own) in [&old, &new].into_iter().enumerate() {
        let Place { runtime, run, .. } = &Stage::Completed.reached(own).await;
        let output = json!({ "version": number, "log": ["acted", "approve", "paid"] });
        let expected = if number == 0 { Either::Old(output.clone()) } else { Either::New(output.clone()) };
        let RunOutcome::Done(finished) = runtime.outcome(&either, run).await.unwrap() else { panic!() };
        assert_eq!(finished.output, expected);
        let finished = runtime.resume(either.clone(), run).await.unwrap().await.unwrap();
        assert_eq!(finished.output, expected);
        let RunOutcome::Done(finished) = runtime.outcome(&as_json, run).await.unwrap() else { panic!() };
        assert_eq!(finished.output, output);
    }
}

#[tokio::test]
async fn a_signal_starts_a_run_under_the_newest_version() {
    let Place { runtime, store, .. } = &Place::new();
    let [old, new] = [0, 1].map(version);
    let both = Versions::of(new.clone()).and(old).unwrap();
    let error = runtime.signal_or_start(&both, &id("a"), inputs("acts"), paid("own_0"), "p-1").await.unwrap_err();
    assert!(error.to_string().contains("`test/graph 2.0.0` has no signal `own_0`"), "{error}");
    assert!(store.list().await.unwrap().is_empty());
    let signalled = runtime.signal_or_start(&both, &id("a"), inputs("acts"), paid("own_1"), "p-1").await.unwrap();
    drop(signalled.started.unwrap().await);
    assert!(store.find(&id("a")).await.unwrap().is_under(new.graph()));
}

#[tokio::test]
async fn a_runtime_that_refuses_an_old_version_says_so() {
    let needs = |number: usize, permission: &'static str| {
        let program = Program {
            digest: &digest('a', number),
            permissions: &[permission],
            nodes: &[
                ("act", r#"{"line":1,"does":{"action":0},"next":[{"to":"done"}]}"#),
                ("done", r#"{"line":1,"does":"return"}"#),
            ],
            ..PROGRAM
        };
        Interpreted::new(&program, |_, params| Ok(params))
    };
    let runtime = Runtime::builder().grant("rye.execute.tool.test.tool").unwrap().build().unwrap();
    let new = needs(1, "rye.execute.tool.test.tool");
    runtime.admits(&new).unwrap();
    let both = Versions::of(new).and(needs(0, "rye.execute.tool.other")).unwrap();
    let error = runtime.admits(&both).unwrap_err();
    assert!(matches!(error, StartError::NotGranted { .. }), "{error}");
}

/// A graph whose call waits for a permit.
fn gated(number: usize, gate: &Arc<Semaphore>) -> Interpreted {
    let program = Program {
        digest: &digest('a', number),
        settings: &format!(
            r#"{{"meaning":"{}","secrets":{{"inputs":{{"fields":{{"card":"all"}}}}}}}}"#,
            digest('b', number)
        ),
        nodes: &[
            ("act", r#"{"line":1,"does":{"action":0},"params":"${inputs.how}","next":[{"to":"done"}]}"#),
            ("done", r#"{"line":1,"does":"return","output":"shipped"}"#),
        ],
        ..PROGRAM
    };
    let gate = Arc::clone(gate);
    Interpreted::waiting(&program, move |call, how| {
        let (gate, token): (_, CancelToken) = (Arc::clone(&gate), call.cancel_token());
        Box::pin(async move {
            tokio::select! {
                permit = gate.acquire_owned() => permit.unwrap().forget(),
                () = token.cancelled() => {}
            }
            act(&how)
        })
    })
}

fn order(how: &str, card: &str) -> Map<String, Value> {
    Map::from_iter([("how".to_owned(), json!(how)), ("card".to_owned(), json!(card))])
}

async fn began(summary: RunSummary, graph: &Interpreted) -> (RunId, bool) {
    (summary.run.clone(), summary.is_under(graph.graph()))
}

#[tokio::test]
async fn a_start_that_repeats_its_id_attaches_to_the_run() {
    let (disk, gate) = (MemoryStore::new(), Arc::new(Semaphore::new(0)));
    let [old, new] = [0, 1].map(|number| gated(number, &gate));
    let both = Versions::of(new.clone()).and(old.clone()).unwrap();
    let [here, there] = [0, 1].map(|_| runtime(disk.clone()));
    for (number, own) in [&old, &new].into_iter().enumerate() {
        let run = id(&format!("order-{number}"));
        let started = there.start_as(run.clone(), own.clone(), order("acts", "tok_1")).await.unwrap();
        let attached = here.start_or_attach(run.clone(), both.clone(), order("acts", "tok_1")).await.unwrap();
        assert_eq!((attached.id(), attached.is_finished()), (&run, false));
        // The same program attaches too.
        let again = there.start_or_attach(run.clone(), both.clone(), order("acts", "tok_1")).await.unwrap();
        gate.add_permits(1);
        let finished = started.await.unwrap();
        assert_eq!(finished.output, "shipped");
        assert_eq!(attached.await.unwrap(), finished);
        assert_eq!(again.await.unwrap(), finished);
        let late = here.start_or_attach(run.clone(), both.clone(), order("acts", "tok_1")).await.unwrap();
        assert_eq!(late.await.unwrap(), finished);
        for (inputs, differs) in [
            (order("fails", "tok_1"), "`how`"),
            (order("acts", "tok_2"), "`card`"),
            (order("other", "tok_2"), "`card`, `how`"),
            (inputs("acts"), "`card`"),
        ] {
            let error = here.start_or_attach(run.clone(), both.clone(), inputs).await.unwrap_err();
            let expected =
                format!("there is a run `{run}` already, and it began otherwise: with other values of {differs}");
            assert_eq!(error.to_string(), expected);
        }
        assert_eq!(disk.list().await.unwrap().len(), number + 1, "nothing else was started");
    }
    // A new id begins a run, of the newest version.
    gate.add_permits(1);
    let run = here.start_or_attach(id("order-2"), both.clone(), order("acts", "tok_1")).await.unwrap();
    run.await.unwrap();
    assert!(began(disk.find(&id("order-2")).await.unwrap(), &new).await.1);
    // A version that is not there, and another graph.
    let error = here.start_or_attach(id("order-0"), new.clone(), order("acts", "tok_1")).await.unwrap_err();
    assert!(matches!(error, ResumeError::Stored(StoredRunError::AnotherGraph { .. })), "{error}");
    let error = here.start_or_attach(id("order-0"), around(0), Map::new()).await.unwrap_err();
    assert!(matches!(error, ResumeError::Stored(StoredRunError::AnotherGraph { .. })), "{error}");
    // A run is attached to only where it could start.
    let poor: Builder = Runtime::builder().store(disk.clone()).sign_with(SecretKey::from_seed(&KEY));
    let poor = poor.encrypt_with(encryption_key()).build().unwrap();
    let error = poor.start_or_attach(id("order-2"), both, order("acts", "tok_1")).await.unwrap_err();
    assert!(matches!(error, ResumeError::Start(StartError::NotGranted { .. })), "{error}");
}

#[tokio::test]
async fn a_run_that_is_attached_to_gives_what_it_waits_for_or_its_error() {
    let graph = version(0);
    for stage in STAGES {
        let Place { runtime, run, store, .. } = &stage.reached(&graph).await;
        let records = store.load(run).await.unwrap();
        let attached = runtime.start_or_attach(run.clone(), graph.clone(), stage.inputs()).await.unwrap();
        if stage == Stage::Stopped {
            let mut attached = attached;
            tokio::time::timeout(Duration::from_millis(50), &mut attached).await.unwrap_err();
            runtime.shutdown(Duration::ZERO).await;
            let error = attached.await.unwrap_err();
            assert!(matches!(error, RunError::ShutDown { .. }), "{error}");
        } else {
            let (ended, resumed) = (attached.await, runtime.resume(graph.clone(), run).await);
            match ended {
                Ok(finished) => assert_eq!(finished, resumed.unwrap().await.unwrap()),
                Err(error @ RunError::Waiting { .. }) => {
                    assert_eq!(error.to_value(), resumed.unwrap().await.unwrap_err().to_value());
                }
                Err(error) => {
                    let expected = match stage {
                        Stage::Failed => "node `act` failed: no money",
                        _ => "the run was cancelled",
                    };
                    assert_eq!(error.to_string(), expected);
                    continue;
                }
            }
        }
        assert_eq!(store.load(run).await.unwrap(), records, "nothing was written");
    }
}

#[tokio::test]
async fn the_canceller_of_a_run_that_is_attached_to_cancels_it_in_the_store() {
    let (disk, gate) = (MemoryStore::new(), Arc::new(Semaphore::new(0)));
    let graph = gated(0, &gate);
    let [here, there] = [0, 1].map(|_| runtime(disk.clone()));
    let started = there.start_as(id("a"), graph.clone(), order("acts", "tok_1")).await.unwrap();
    let attached = here.start_or_attach(id("a"), graph.clone(), order("acts", "tok_1")).await.unwrap();
    attached.canceller().cancel();
    let error = attached.await.unwrap_err();
    assert!(matches!(error, RunError::Cancelled { .. }), "{error}");
    started.await.unwrap_err();
}

#[tokio::test]
async fn a_run_that_did_not_begin_at_the_start_is_not_attached_to() {
    let graph = version(0);
    let Place { runtime, run, store, .. } = &Stage::Asking.reached(&graph).await;
    let fork = Fork { step: Some(0), run: Some(id("fork")), ..Fork::default() };
    runtime.fork(&graph, run, fork).await.unwrap();
    let error = runtime.start_or_attach(id("fork"), graph, inputs("acts")).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "there is a run `fork` already, and it began otherwise: it is a fork or a task, or began at an entry"
    );
    let outer = Place::new();
    drop(outer.runtime.start_as(id("run"), around(0), Map::new()).await.unwrap().await);
    let filter = RunFilter { within: Within::Run(id("run")), ..RunFilter::default() };
    let inner = outer.runtime.runs(&filter, &graph_runtime::store::Page::default()).await.unwrap().runs[0].run.clone();
    let error = outer.runtime.start_or_attach(inner, version(0), inputs("acts")).await.unwrap_err();
    assert!(matches!(error, ResumeError::Stored(StoredRunError::Inside { .. })), "{error}");
    assert_eq!(store.find(run).await.unwrap().status, Status::Waiting);
}

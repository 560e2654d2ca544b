//! A crash at every write of runs with agents: each write of a process goes wrong in each way, and another process continues.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use graph_agents::{ModelMessage, ModelReply, ModelRequest};
use graph_runtime::dynamic::Library;
use graph_runtime::testing::{FaultyStore, StoreFault, TestBed, graph_test};
use graph_runtime::{Options, RunId, Runtime, Status, Store, Tasks, Value, audit_tree};
use serde_json::json;

use crate::attacks::{Dispatched, Recorder, file_of, finished, tree};
use crate::tree::{Scripted, Tree, answer, calls};

/// The ways in which a write goes wrong. A process whose write hangs is alive when another one wants the run.
const FAULTS: [StoreFault; 6] = [
    StoreFault::Dies { written: false },
    StoreFault::Dies { written: true },
    StoreFault::Fails { written: false },
    StoreFault::Fails { written: true },
    StoreFault::Hangs { written: false },
    StoreFault::Hangs { written: true },
];

const HEAD: &str = r#"version: "1.0.0"
tool_type: graph
executor_id: rye/core/runtimes/state-graph/runtime
category: shop
permissions: ["rye.execute.tool.*"]
"#;

/// Two agents and a graph in branches.
const BRANCHES: &str = r#"config:
  start: begin
  nodes:
    begin: { type: gate, next: { all: [{ to: review }, { to: second }, { to: work }] } }
    review:
      action: { item_id: shop/review, params: { fixes: [a.rs] } }
      assign: { first: "${result.output.verdict}" }
      next: meet
    second:
      action: { item_id: shop/second, params: { fixes: [b.rs] } }
      assign: { second: "${result.output.verdict}" }
      next: meet
    work:
      action: { item_id: shop/work, params: { job: c } }
      assign: { third: "${result.output.done}" }
      next: meet
    meet:
      type: return
      waits_for: [review, second, work]
      output: { first: "${state.first}", second: "${state.second}", third: "${state.third}" }
"#;

/// An agent as a task.
const SPAWNS: &str = r#"config:
  start: spawn
  nodes:
    spawn:
      action: { item_id: rye/orchestrate/spawn, params: { target: shop/review, inputs: { fixes: [a.rs] } } }
      assign: { task: "${result.task}" }
      next: prepare
    prepare: { action: { item_id: test/work, params: { job: a } }, next: wait }
    wait:
      action: { item_id: rye/orchestrate/await, params: { tasks: ["${state.task}"] } }
      assign: { tasks: "${result.tasks}" }
      next: end
    end: { type: return, output: { tasks: "${state.tasks}" } }
"#;

/// Two graphs as tasks.
const BOTH: &str = r#"config:
  start: first
  nodes:
    first:
      action: { item_id: rye/orchestrate/spawn, params: { target: shop/work, inputs: { job: a } } }
      assign: { a: "${result.task}" }
      next: second
    second:
      action: { item_id: rye/orchestrate/spawn, params: { target: shop/work, inputs: { job: b } } }
      assign: { b: "${result.task}" }
      next: wait
    wait:
      action: { item_id: rye/orchestrate/await, params: { tasks: ["${state.a}", "${state.b}"] } }
      assign: { tasks: "${result.tasks}" }
      next: end
    end: { type: return, output: { tasks: "${state.tasks}" } }
"#;

/// An agent as a task, and another one that continues it.
const CONTINUES: &str = r#"config:
  start: spawn
  nodes:
    spawn:
      action: { item_id: rye/orchestrate/spawn, params: { target: shop/review, inputs: { fixes: [a.rs] } } }
      assign: { task: "${result.task}" }
      next: wait
    wait:
      action: { item_id: rye/orchestrate/await, params: { tasks: ["${state.task}"] } }
      next: again
    again:
      action: { item_id: rye/agent/threads/orchestrator, params: { operation: resume_thread, thread_id: "${state.task}", message: Again. } }
      assign: { second: "${result.thread_id}" }
      next: wait_again
    wait_again:
      action: { item_id: rye/agent/threads/orchestrator, params: { operation: wait_threads, thread_ids: ["${state.second}"] } }
      assign: { results: "${result.results}" }
      next: end
    end: { type: return, output: { results: "${state.results}" } }
"#;

/// An agent as a task, which gets a message.
const SENDS: &str = r#"config:
  start: spawn
  nodes:
    spawn:
      action: { item_id: rye/orchestrate/spawn, params: { target: shop/review, inputs: { fixes: [a.rs] } } }
      assign: { task: "${result.task}" }
      next: send
    send:
      action: { item_id: rye/agent/threads/orchestrator, params: { operation: resume_thread, thread_id: "${state.task}", message: Hurry. } }
      assign: { thread: "${result.thread_id}" }
      next: wait
    wait:
      action: { item_id: rye/agent/threads/orchestrator, params: { operation: wait_threads, thread_ids: ["${state.thread}"] } }
      assign: { results: "${result.results}" }
      next: end
    end: { type: return, output: { results: "${state.results}" } }
"#;

/// Reads a file, which takes long, and answers then, once it has read the message.
fn hears(turn: usize, request: &ModelRequest) -> ModelReply {
    match turn > 0 && format!("{:?}", request.messages).contains("Hurry.") {
        true => answer(json!({ "verdict": "merge", "confidence": 0.5 })),
        false => calls(&[("files_read", json!({ "path": "slow" }))]),
    }
}

/// Reads five files, whose names are so long that summaries are needed, and answers.
fn reads_long(_: usize, request: &ModelRequest) -> ModelReply {
    let talk = format!("{:?}", request.messages);
    let read = (1..=5).rev().find(|number| talk.contains(&format!("file-{number}"))).unwrap_or(0);
    if request.tools.is_empty() {
        return ModelReply { text: format!("I have read file-{read}."), ..ModelReply::default() };
    }
    match read {
        5 => answer(json!({ "verdict": "merge", "confidence": 0.5 })),
        read => calls(&[("files_read", json!({ "path": format!("file-{}{}", read + 1, "x".repeat(1_500)) }))]),
    }
}

/// Lists the files again if the talk has the first list, and answers.
fn continues(turn: usize, request: &ModelRequest) -> ModelReply {
    match turn {
        // The talk of the first agent has two replies, whose calls have results.
        0 | 2 => calls(&[("files_list", json!({}))]),
        _ => reads(2, request),
    }
}

/// Lists the files, reads two of them, one of which is not there, and answers.
fn reads(turn: usize, request: &ModelRequest) -> ModelReply {
    let can_read = request.tools.iter().any(|tool| tool.name == "files_read");
    match turn {
        0 => calls(&[("files_list", json!({}))]),
        1 if can_read => calls(&[
            ("files_read", json!({ "path": "a.rs" })),
            ("files_read", json!({ "path": "gone-1" })),
            ("files_list", json!({})),
        ]),
        _ => answer(json!({ "verdict": "merge", "confidence": 0.5 })),
    }
}

/// Spawns a graph and an agent, waits for both, and answers.
fn spawns(turn: usize, request: &ModelRequest) -> ModelReply {
    if request.tools.iter().all(|tool| tool.name != "files_read") {
        return reads(turn, request);
    }
    let tasks = request.messages.iter().filter_map(|message| match message {
        ModelMessage::Tool { result: Ok(value), .. } => value.get("task").cloned(),
        _ => None,
    });
    match turn {
        0 => calls(&[
            ("orchestrate_spawn", json!({ "target": "shop/work", "inputs": { "job": "x" } })),
            ("orchestrate_spawn", json!({ "target": "shop/second", "inputs": { "fixes": ["b.rs"] } })),
        ]),
        1 => calls(&[("orchestrate_await", json!({ "tasks": tasks.collect::<Value>() })), ("files_list", json!({}))]),
        _ => answer(json!({ "verdict": "merge", "confidence": 0.5 })),
    }
}

type Model = fn(usize, &ModelRequest) -> ModelReply;

/// A call that was made: its run and visit.
type Made = (RunId, u64);

/// A graph with agents, its inputs and its model.
struct Subject {
    tree: Tree,
    recorder: Recorder,
    library: Library,
    graph: &'static str,
    inputs: Value,
    model: Model,
    /// How many tokens its model may have.
    context: Option<u64>,
}

/// The output of a run, and the graph of each run with the nodes that it visited.
#[derive(Debug, PartialEq)]
struct Outcome {
    output: String,
    visits: Vec<(String, Vec<String>)>,
}

fn id() -> RunId {
    RunId::new("run").unwrap()
}

impl Subject {
    fn new(graph: &'static str, text: &str, model: Model) -> Self {
        let (tree, recorder) = (tree(), Recorder::new());
        if !text.is_empty() {
            tree.write(&format!("graphs/{graph}.yaml"), &format!("{HEAD}{text}"));
        }
        let library = Library::open(&tree.path("graphs"), recorder.clone());
        let inputs = if text.is_empty() { json!({ "fixes": ["a.rs"] }) } else { json!({}) };
        Self { tree, recorder, library, graph, inputs, model, context: None }
    }

    fn with_context(self, tokens: u64) -> Self {
        Self { context: Some(tokens), ..self }
    }

    fn machine(&self, id: &str) -> graph_runtime::dynamic::Interpreted {
        let file = self.tree.path(&format!("graphs/{}.yaml", file_of(id)));
        self.library.graph(&file).unwrap_or_else(|error| panic!("{error}"))
    }

    fn process(&self, bed: &TestBed, store: impl Store) -> (Runtime, Tasks) {
        let (model, tasks) = (self.model, self.library.tasks());
        let model = Scripted::new(move |turn, request| Ok(model(turn, request)));
        let model = match self.context {
            Some(tokens) => model.with_context(tokens),
            None => model,
        };
        let tools = self.tree.agents(&model).tasks(tasks.clone());
        let runtime = bed.process(store).tools(tools).build().unwrap();
        tasks.serve(&runtime);
        (runtime, tasks)
    }

    async fn start(&self, runtime: &Runtime) -> Result<graph_runtime::Run<Value>, String> {
        let options = Options { run: Some(id()), ..Options::default() };
        let Value::Object(inputs) = self.inputs.clone() else { unreachable!() };
        let started = runtime.start_with(options, self.machine(self.graph), inputs).await;
        started.map_err(|error| error.to_string())
    }

    /// Runs the graph in a process whose store has a fault. Returns whether it had.
    async fn crash(&self, bed: &TestBed, number: u64, fault: StoreFault) -> bool {
        let store = FaultyStore::new(bed.disk().clone(), move |write| (write.number == number).then_some(fault));
        let (runtime, tasks) = self.process(bed, store.clone());
        let work = async {
            if let Ok(run) = self.start(&runtime).await {
                drop(run.await);
            }
        };
        tokio::select! {
            biased;
            () = work => {}
            () = store.lost() => {
                if !store.is_dead() && bed.disk().find(&id()).await.is_ok_and(|run| run.status == Status::Running) {
                    // The run belongs to the process whose write hangs.
                    let (other, _tasks) = self.process(bed, bed.disk().clone());
                    let holder = bed.disk().find(&id()).await.unwrap().holder;
                    if holder.is_some() {
                        assert!(other.resume(self.machine(self.graph), &id()).await.is_err(), "two processes have the run");
                    }
                    other.shutdown(Duration::ZERO).await;
                }
                store.kill();
            }
        }
        // All of the process is gone.
        runtime.shutdown(Duration::ZERO).await;
        drop((runtime, tasks));
        store.has_failed()
    }

    /// Continues the run in another process, and returns its outcome.
    async fn finish(&self, bed: &TestBed) -> Outcome {
        let (runtime, _tasks) = self.process(bed, bed.disk().clone());
        let run = match bed.disk().find(&id()).await {
            Ok(_) => runtime.resume(self.machine(self.graph), &id()).await.map_err(|error| error.to_string()),
            Err(_) => self.start(&runtime).await,
        };
        let mut output = run.unwrap().await.unwrap().output.to_string();
        let runs = bed.disk().list().await.unwrap();
        let mut visits = Vec::new();
        for run in &runs {
            assert_eq!(run.status, Status::Completed, "{run:?}");
            output = output.replace(run.run.as_str(), "<task>");
            let mut nodes: Vec<String> = runtime
                .history(&run.run)
                .await
                .unwrap()
                .into_iter()
                .filter(|visit| !visit.held)
                .map(|visit| visit.node)
                .collect();
            nodes.sort_unstable();
            visits.push((run.graph.clone(), nodes));
        }
        visits.sort_unstable();
        for root in runs.iter().filter(|run| run.parent.is_none()) {
            let machine = Arc::new(self.machine(&root.graph));
            let (key, secret) = (bed.key().public(), bed.encryption_key());
            audit_tree(machine, &root.run, bed.disk(), &key, Some(&secret)).await.unwrap();
        }
        Outcome { output, visits }
    }
}

/// Returns how often each call was made.
fn counts(made: Vec<Dispatched>) -> BTreeMap<Made, usize> {
    made.into_iter().fold(BTreeMap::new(), |mut counts, call| {
        *counts.entry((call.run, call.step)).or_default() += 1;
        counts
    })
}

/// Each write goes wrong in each way: the result is the same, no finished turn and no finished call is repeated, each task is spawned once,
/// and all journals are proven.
#[graph_test]
async fn a_crash_at_any_write_repeats_only_what_was_in_progress(_: TestBed) {
    for (name, subject, least) in [
        ("an agent", Subject::new("shop/review", "", reads), 8),
        ("agents in branches", Subject::new("shop/branches", BRANCHES, reads), 15),
        ("an agent as a task", Subject::new("shop/spawns", SPAWNS, reads), 12),
        ("graphs as tasks", Subject::new("shop/both", BOTH, reads), 8),
        ("an agent that spawns tasks", Subject::new("shop/review", "", spawns), 15),
        ("an agent with summaries", Subject::new("shop/review", "", reads_long).with_context(2_500), 12),
        ("an agent that gets a message", Subject::new("shop/sends", SENDS, hears), 9),
        ("an agent that continues another", Subject::new("shop/continues", CONTINUES, continues), 12),
    ] {
        let bed = TestBed::new();
        let whole = subject.finish(&bed).await;
        if subject.context.is_some() {
            let turns = whole.visits[0].1.iter().filter(|node| *node == "think").count();
            assert!(turns > 6, "{turns} turns, of which one answers and five read: there is no summary");
        }
        let all = counts(subject.recorder.take());
        for (run, step) in all.keys() {
            assert!(finished(bed.disk(), run).await.contains(step), "{name}: the store has the result of each call");
        }
        assert!(all.values().all(|times| *times == 1), "{name}: {all:?}");
        let (mut crashes, mut repeated, mut number) = (0, 0, 1);
        'writes: loop {
            for fault in FAULTS {
                let bed = TestBed::new();
                *subject.recorder.disk.lock().unwrap() = Some(bed.disk().clone());
                if !subject.crash(&bed, number, fault).await {
                    break 'writes;
                }
                crashes += 1;
                let outcome = subject.finish(&bed).await;
                assert_eq!(outcome, whole, "{name}, {fault:?} at write {number}");
                let again = std::mem::take(&mut *subject.recorder.again.lock().unwrap());
                assert!(
                    again.is_empty(),
                    "{name}, {fault:?} at write {number}: finished calls are made again: {again:#?}"
                );
                // The same calls are made, and those in progress once more.
                let made = counts(subject.recorder.take());
                assert!(made.keys().eq(all.keys()), "{name}, {fault:?} at write {number}: {made:#?}\nand not {all:#?}");
                assert!(made.values().all(|times| *times <= 2), "{name}, {fault:?} at write {number}: {made:#?}");
                repeated += made.values().filter(|times| **times > 1).count();
            }
            number += 1;
        }
        println!("{name}: {crashes} crashes at {} writes, {repeated} calls repeated", number - 1);
        assert!(number > least && repeated > 3, "{name}: {number} writes, {repeated} repeated");
    }
}

//! The cost of a durable step: early and late in a run, and with a small and a large state.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use graph_compiler::graph::TypedTool;
use graph_runtime::dynamic::{Interpreted, Library, ToolFuture, Tools};
use graph_runtime::record::SignedRecord;
use graph_runtime::{Call, Map, Options, RunError, RunId, SqliteStore, Status, Store, Value};
use graph_signing::{ItemKind, KeyFile, sign};
use serde_json::json;
use tempfile::TempDir;

use super::{ROUNDS, key, runtime};

/// How many steps are timed in a round.
const TIMED: usize = 600;
/// How many steps are executed before them.
const BEFORE: usize = 100;

/// A graph that writes a large text once, and then a short text again and again.
const GRAPH: &str = r#"version: "1.0.0"
tool_type: graph
executor_id: rye/core/runtimes/state-graph/runtime
category: bench
permissions: [rye.execute.tool.bench.*]
config:
  start: load
  max_steps: 4294967295
  nodes:
    load: { action: { item_id: bench/load }, assign: { large: "${result.text}" }, next: step }
    step: { action: { item_id: bench/step }, assign: { small: "${result.text}" }, next: [{ to: done, when: { path: state.small, value: "" } }, { to: step }] }
    done: { type: return, output: { large: "${state.large}" } }
"#;

/// Returns texts, and records the time of each call for a short one.
#[derive(Clone)]
struct Texts {
    size: usize,
    asked: Arc<Mutex<Vec<Instant>>>,
}

impl Tools for Texts {
    fn perform<'a>(&'a self, call: &'a Call, _: &'a TypedTool, _: Map<String, Value>) -> ToolFuture<'a> {
        let text = if call.node() == "load" {
            "x".repeat(self.size)
        } else {
            self.asked.lock().expect("nothing panics").push(Instant::now());
            format!("{:0>100}", call.step())
        };
        Box::pin(std::future::ready(Ok(json!({ "text": text }))))
    }
}

struct Subject {
    graph: Interpreted,
    texts: Texts,
    _tree: TempDir,
}

impl Subject {
    fn with_state_of(size: usize) -> Self {
        let tree = tempfile::tempdir().expect("a directory");
        let write = |name: &str, text: String| {
            let path = tree.path().join(name);
            std::fs::create_dir_all(path.parent().expect("it is in a directory")).expect("room");
            std::fs::write(path, text).expect("room");
        };
        let file = KeyFile::new(key().public(), "the key of a benchmark");
        let name = format!("keys/{}.toml", file.fingerprint);
        write(&name, file.to_signed_toml(&key(), SystemTime::UNIX_EPOCH));
        write("long.yaml", sign(ItemKind::YAML, GRAPH, &key(), SystemTime::UNIX_EPOCH).expect("it can be signed"));
        let texts = Texts { size, asked: Arc::default() };
        let library = Library::open(tree.path(), texts.clone());
        let graph = library.graph(&tree.path().join("long.yaml")).expect("the graph is sound");
        Self { graph, texts, _tree: tree }
    }

    /// Runs the graph for some steps, and returns the time of each of the last ones.
    async fn steps(&self, store: &SqliteStore) -> Vec<Duration> {
        let most = u32::try_from(BEFORE + TIMED).expect("a few");
        let options = Options { max_steps: Some(most), ..Options::default() };
        let run = runtime(store.clone()).start_with(options, self.graph.clone(), Map::new()).await.expect("it starts");
        assert!(matches!(run.await, Err(RunError::MaxSteps { .. })), "it may take so many steps and no more");
        self.times()
    }

    fn times(&self) -> Vec<Duration> {
        let asked = std::mem::take(&mut *self.texts.asked.lock().expect("nothing panics"));
        let times: Vec<Duration> = asked.windows(2).map(|pair| pair[1] - pair[0]).collect();
        times[times.len().saturating_sub(TIMED)..].to_vec()
    }
}

/// Prints the cost of steps, relative to other steps that alternate with them.
pub(super) async fn measure(long: &[SignedRecord]) {
    let directory = tempfile::tempdir_in(Path::new(env!("CARGO_MANIFEST_DIR")).join("target")).expect("a directory");
    let store = SqliteStore::open(directory.path().join("runs.db")).await.expect("a store");
    let (small, large) = (Subject::with_state_of(10), Subject::with_state_of(1_000_000));
    let (mut one, mut other) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        one.extend(small.steps(&store).await);
        other.extend(large.steps(&store).await);
    }
    report("a step that changes 100 bytes of a state of 1 MB, over one of a small state", one, other);
    let began = super::begin_long(&store, long).await;
    let (mut early, mut late) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        early.extend(super::timed_steps(&store, &RunId::new(format!("early-{round}")).expect("an id"), 0).await);
        late.extend(super::timed_steps(&store, &super::run(), began + round as u64 * super::SEGMENT).await);
    }
    report("a step behind 100,000 others, over one behind 100", early, late);
}

/// Prints the ratio of the medians, and that of the means.
fn report(what: &str, mut one: Vec<Duration>, mut other: Vec<Duration>) {
    let sum = |all: &[Duration]| all.iter().sum::<Duration>().as_secs_f64() / all.len() as f64;
    let mean = sum(&other) / sum(&one);
    one.sort();
    other.sort();
    let (one, other) = (one[one.len() / 2], other[other.len() / 2]);
    println!(
        "{what}: {:.2} ({other:.1?} over {one:.1?}; of the means {mean:.2})",
        other.as_secs_f64() / one.as_secs_f64()
    );
}

/// Appends a journal that was created elsewhere.
pub(super) async fn copy(store: &SqliteStore, run: &RunId, records: &[SignedRecord]) {
    let lease = store.create(run, "bench/tally", records[..1].to_vec()).await.expect("a run");
    let mut known = 1;
    for batch in records[1..].chunks(1000) {
        store.append(&lease, known, batch.to_vec(), Status::Error).await.expect("room");
        known += batch.len() as u64;
    }
}

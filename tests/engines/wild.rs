//! Journals of graphs that have no script: the graphs of `graphs` and `tests/corpus` with random inputs and answers
//! that fit their contracts, and random graphs.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use graph_compiler::graph::TypedTool;
use graph_compiler::types::{Type, TypeKind, TypedField};
use graph_runtime::cache::{MemoryCache, NodeCache};
use graph_runtime::dynamic::{Interpreted, Library, ToolFuture, Tools};
use graph_runtime::{ActionError, Call, Category, Machine, Map, Options, Runtime, TokioClock, Value};
use graph_signing::{ItemKind, KeyFile, SecretKey, sign};
use serde_json::json;
use tempfile::TempDir;

use super::case::{BEGAN, Log, edit, key, played_again, run_id, within};
use super::forgeries::{Choices, True, edit_of, is_beyond, nodes_in, timed_in};
use super::judge::{Director, Judge, is_calls};
use super::property::random_graphs;

/// Graphs without a script.
pub(crate) struct Found {
    /// The judge, the true journals and the node names of each graph.
    pub(crate) graphs: Vec<(Judge, Vec<True>, Vec<String>)>,
    /// The directories of the graphs, which must exist while the judges look up callees.
    _directories: Vec<TempDir>,
}

/// The step limit of a run: some graphs wait for an answer that never comes by chance.
const MOST_STEPS: u32 = 25;

/// The maximum number of records in the journals of a random graph: with many runs, too many ways are tried.
const MOST_RECORDS: usize = 30;

/// The maximum size of those records: a state that is written into itself grows with each visit.
const MOST_BYTES: usize = 100_000;

/// Random answers that fit the contracts, and failures.
#[derive(Clone, Default)]
struct Chance(Arc<Mutex<(u64, Given)>>);

/// The values that each tool returned.
type Given = HashMap<String, Vec<Value>>;

impl Chance {
    fn choices(&self) -> Choices {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.0 += 1;
        Choices::new(state.0.wrapping_mul(7919))
    }
}

impl Tools for Chance {
    fn perform<'a>(&'a self, call: &'a Call, row: &'a TypedTool, _: Map<String, Value>) -> ToolFuture<'a> {
        let mut choices = self.choices();
        let answer = match choices.below(10) {
            0 => Err(ActionError::new(Category::ALL[choices.below(4)], "by chance")
                .with_data(json!({"code": choices.below(3)}))),
            _ => Ok(some(&mut choices, &row.result, 0)),
        };
        if let Ok(value) = &answer {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let known = state.1.entry(call.tool().to_owned()).or_default();
            if !known.contains(value) {
                known.insert(0, value.clone());
            }
        }
        let pause = choices.below(4) as u64;
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(pause)).await;
            answer
        })
    }
}

/// Returns a random value of a type.
fn some(choices: &mut Choices, ty: &Type, depth: usize) -> Value {
    if ty.nullable && choices.below(3) == 0 {
        return Value::Null;
    }
    match &ty.kind {
        TypeKind::Never => Value::Null,
        TypeKind::Boolean => json!(choices.below(2) == 0),
        TypeKind::Integer => json!(choices.below(6)),
        TypeKind::Number => json!(choices.below(12) as f64 / 2.0),
        TypeKind::String => json!(["a", "b", "open", "approved", ""][choices.below(5)]),
        TypeKind::Enum(words) => json!(words.get(choices.below(words.len()))),
        TypeKind::List(of) => (0..choices.below(4)).map(|_| some(choices, of, depth + 1)).collect(),
        TypeKind::Map(of) => json!({"a": some(choices, of, depth + 1)}),
        TypeKind::Object(fields) => Value::Object(fields_of(choices, fields, depth)),
        TypeKind::Any if depth > 2 => json!(choices.below(3)),
        TypeKind::Any => {
            [json!(1), json!("a"), json!([1, 2]), json!({"a": 1, "ok": true}), json!(true)][choices.below(5)].clone()
        }
    }
}

fn fields_of(choices: &mut Choices, fields: &[TypedField], depth: usize) -> Map<String, Value> {
    let mut map = Map::new();
    for field in fields {
        let value = some(choices, &field.ty, depth + 1);
        if !value.is_null() {
            map.insert(field.name.clone(), value);
        }
    }
    map
}

/// Cuts a run, edits its state by chance, and resumes it. Returns the journals; `None` if no edit could be made.
fn edited(choices: &mut Choices, graph: &Interpreted, log: &Log) -> Option<Vec<(String, String)>> {
    let ends = log.ends();
    let at = *choices.one(&ends[..ends.len().checked_sub(1)?])?;
    let keys = &graph.interface().keys;
    let again = (0..8).find_map(|_| {
        let mut asked = edit_of(choices, graph.graph(), &[]);
        for (name, value) in &mut asked.set {
            if let Some(key) = keys.iter().find(|key| key.name == *name && choices.below(2) == 0) {
                *value = some(choices, &key.ty, 0);
            }
        }
        edit(graph, log, at, asked).ok()
    })?;
    let cut = again.len();
    let (_, again) = played_again(graph.clone(), &again, cut).ok()?;
    let texts = again.texts();
    // Calls that finish before their step are recorded in another order each time. The judge does not know in which of
    // several sessions a nested run began.
    let is_directed = |(run, body): &(String, String)| run == run_id().as_str() && !is_calls(body);
    texts.iter().all(is_directed).then_some(texts)
}

/// Runs a graph, and returns its journals; `None` if the run does not begin.
fn ran(graph: &Interpreted, inputs: Map<String, Value>, cache: &MemoryCache) -> Option<Log> {
    let log = Log::default();
    within(false, async {
        log.begin(tokio::time::Instant::now(), Duration::ZERO);
        let runtime = Runtime::builder()
            .clock(Arc::new(TokioClock::at(SystemTime::UNIX_EPOCH + BEGAN)))
            .store(log.clone())
            .sign_with(key())
            .cache(NodeCache::new(cache.clone()))
            .grant("*")
            .ok()?
            .build()
            .ok()?;
        let options = Options { run: Some(run_id()), max_steps: Some(MOST_STEPS), ..Options::default() };
        let run = runtime.start_with(options, graph.clone(), inputs).await.ok()?;
        // The journal is used, however the run ends.
        tokio::time::timeout(Duration::from_secs(10_000_000), run).await.ok().map(drop)
    })?;
    Some(log)
}

/// Copies the corpus, which is not signed, into a tree, and signs it.
fn signed_corpus(directory: &Path) {
    let secret = SecretKey::from_seed(&[9; 32]);
    let file = KeyFile::new(secret.public(), "the key of these tests");
    write(directory, &format!("keys/{}.toml", file.fingerprint), file.to_signed_toml(&secret, SystemTime::UNIX_EPOCH));
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    for path in
        graph_compiler::graph_files(&corpus).unwrap_or_default().into_iter().chain(yaml_below(&corpus.join("tools")))
    {
        let name = path.strip_prefix(&corpus).expect("it is below it").display().to_string();
        let text = fs::read_to_string(&path).expect("it is a text");
        let signed = sign(ItemKind::YAML, &text, &secret, SystemTime::UNIX_EPOCH).expect("it can be signed");
        write(directory, &name, signed);
    }
}

fn yaml_below(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let below = entries.flat_map(|path| if path.is_dir() { yaml_below(&path) } else { vec![path] });
    below.filter(|path| path.extension().is_some_and(|extension| extension == "yaml")).collect()
}

fn write(directory: &Path, name: &str, text: String) {
    let path = directory.join(name);
    fs::create_dir_all(path.parent().expect("it is in a directory")).expect("there is room for a directory");
    fs::write(path, text).expect("there is room for a file");
}

/// Returns the journals of this repository's graphs without a script, and of `random` random graphs.
pub(crate) fn found(director: &Director, choices: &mut Choices, random: u32) -> Found {
    let corpus = tempfile::tempdir().expect("there is room for a directory");
    signed_corpus(corpus.path());
    let graphs = Path::new(env!("CARGO_MANIFEST_DIR")).join("graphs");
    let chance = Chance::default();
    chance.0.lock().unwrap_or_else(PoisonError::into_inner).0 = choices.next();
    let mut all = Vec::new();
    let mut directories = Vec::new();
    for tree in [corpus.path(), &graphs, &super::directory().join("graphs")] {
        let (played, directed) = (Library::open(tree, chance.clone()), Library::open(tree, director.clone()));
        for file in graph_compiler::graph_files(tree).unwrap_or_default() {
            let text = fs::read_to_string(&file).unwrap_or_default();
            // The scripts cover the graphs of the last tree, except those that cache results.
            let is_told = tree.starts_with(super::directory()) && !text.contains("cache_result");
            if is_told || is_beyond(&text) {
                continue;
            }
            let (Ok(graph), Ok(directed)) = (played.graph(&file), directed.graph(&file)) else { continue };
            let name = file.file_stem().map(|name| name.display().to_string()).unwrap_or_default();
            let (mut journals, cache) = (Vec::new(), MemoryCache::new());
            let mut inputs = Map::new();
            for number in 0..4 {
                // Every second run repeats the inputs, so that many results are cached.
                if number % 2 == 0 || !text.contains("cache_result") {
                    inputs = fields_of(choices, graph.interface().inputs.as_deref().unwrap_or_default(), 0);
                }
                let Some(log) = ran(&graph, inputs.clone(), &cache) else { continue };
                let edited = (!text.contains("cache_result")).then(|| edited(choices, &graph, &log)).flatten();
                let pool = chance.0.lock().unwrap_or_else(PoisonError::into_inner).1.clone();
                journals.push(True::of(format!("{name}: by chance, {number}"), log.texts(), pool.clone()));
                let again =
                    edited.map(|records| True::of(format!("{name}: by chance, {number}, edited"), records, pool));
                journals.extend(again);
            }
            if !journals.is_empty() {
                let judge = Judge { director: director.clone(), graph: directed, timed: timed_in(&text) };
                all.push((judge, journals, nodes_in(&text)));
            }
        }
    }
    for (number, one) in random_graphs(random, choices.next(), director).into_iter().enumerate() {
        directories.push(one.directory);
        // The judge does not compute the answers of the graph's own hooks to a failed call, because no record has all
        // that they see.
        if one.text.contains(r#""event": "error""#) {
            continue;
        }
        let Some(log) = ran(&one.graph, one.inputs, &MemoryCache::new()) else { continue };
        let is_small = |records: &Vec<(String, String)>| {
            let size: usize = records.iter().map(|(_, body)| body.len()).sum();
            records.len() <= MOST_RECORDS && size <= MOST_BYTES
        };
        let all_records = [Some(log.texts()), edited(choices, &one.graph, &log)].into_iter().flatten().filter(is_small);
        let name = match std::env::var_os("SHOW") {
            Some(_) => format!("random graph {number}: {}", one.text.replace('\n', " ")),
            None => format!("random graph {number}"),
        };
        let journals: Vec<True> = all_records.map(|records| True::of(name.clone(), records, HashMap::new())).collect();
        if journals.is_empty() {
            continue;
        }
        let known = nodes_in(&one.text).into_iter().chain(["a", "b", "c"].map(str::to_owned)).collect();
        let judge = Judge { director: director.clone(), graph: one.directed, timed: timed_in(&one.text) };
        all.push((judge, journals, known));
    }
    directories.push(corpus);
    Found { graphs: all, _directories: directories }
}

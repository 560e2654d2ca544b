//! The page's own reader of journals, in Node, against the audit of the program: on journals of real runs of the repository's graphs, on
//! changes of them, and on every byte of one.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use graph_compiler::types::{Type, TypeKind};
use graph_engine::record::VerifiedJournal;
use graph_model::digest::hex;
use graph_runtime::dynamic::{Interpreted, Library};
use graph_runtime::files::ProjectStore;
use graph_runtime::record::{JournalError, SignedRecord};
use graph_runtime::store::{Page, RunFilter, StoreError};
use graph_runtime::{
    ActionError, AuditError, EncryptionKey, Map, MemoryStore, RunId, Runtime, Store, Value, audit_tree,
};
use serde_json::json;

use crate::place::{Everything, key, repository, tokio};

/// A random number generator (SplitMix64).
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end.max(1) as u64).unwrap()
    }
}

/// Texts as results of tools have them, also those that a reader of JSON or of UTF-8 may get wrong.
const TEXTS: &[&str] = &[
    "",
    "ok",
    "naïve 𝄞",
    "\"quoted\" \\ \n\t\u{8}\u{1}",
    "\u{2028}\u{feff}",
    "<b>&amp;</b>",
    "e\u{301}",
    "\u{10ffff}",
];

/// Returns a value of a type.
fn value_of(ty: &Type, dice: &mut Dice, depth: usize) -> Value {
    if ty.nullable && dice.below(4) == 0 {
        return Value::Null;
    }
    let number = |dice: &mut Dice| Value::from(i64::try_from(dice.below(7)).unwrap() - 2);
    match &ty.kind {
        TypeKind::Never => Value::Null,
        TypeKind::Boolean => (dice.below(2) == 0).into(),
        TypeKind::Integer => number(dice),
        TypeKind::Number => [json!(0.1), json!(1e300), json!(-0.0), json!(3), json!(2.5e-8)][dice.below(5)].clone(),
        TypeKind::String | TypeKind::Any => TEXTS[dice.below(TEXTS.len())].into(),
        TypeKind::Enum(words) => words[dice.below(words.len())].clone().into(),
        TypeKind::List(_) if depth > 3 => json!([]),
        TypeKind::List(items) => (0..dice.below(4)).map(|_| value_of(items, dice, depth + 1)).collect(),
        TypeKind::Map(of) => json!({"a": value_of(of, dice, depth + 1)}),
        TypeKind::Object(fields) => {
            let given = |field: &&graph_compiler::types::TypedField| field.is_required() || depth < 3;
            let fields = fields.iter().filter(given);
            Value::Object(fields.map(|field| (field.name.clone(), value_of(&field.ty, dice, depth + 1))).collect())
        }
    }
}

/// The graphs of the repository, with tools that return anything that their contracts allow, or fail.
fn graphs(dice: &Arc<Mutex<Dice>>) -> Vec<Interpreted> {
    let dice = Arc::clone(dice);
    let tools = Everything(move |_: &_, row: &graph_compiler::graph::TypedTool, _| {
        let mut dice = dice.lock().unwrap();
        match dice.below(12) {
            0 => Err(ActionError::permanent(TEXTS[dice.below(TEXTS.len())])),
            1 => Err(ActionError::transient("not now")),
            _ => Ok(value_of(&row.result, &mut dice, 0)),
        }
    });
    let root = repository().join("graphs");
    let library = Library::open(&root, tools);
    let files = fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|end| end == "yaml")).collect();
    files.sort();
    files.iter().filter_map(|file| library.graph(file).ok()).collect()
}

/// A journal of a real run.
#[derive(Clone)]
struct RealJournal {
    graph: Interpreted,
    run: RunId,
    records: Vec<SignedRecord>,
    store: MemoryStore,
}

/// Runs graphs with random inputs until there are so many journals, those of nested runs too.
async fn real_journals(many: usize, seed: u64) -> Vec<RealJournal> {
    let dice = Arc::new(Mutex::new(Dice::new(seed)));
    let graphs = graphs(&dice);
    assert!(graphs.len() > 10, "the graphs of the repository are there: {}", graphs.len());
    let mut found: Vec<RealJournal> = Vec::new();
    let mut of_graph: BTreeMap<String, usize> = BTreeMap::new();
    for round in 0..many * 20 {
        if found.len() >= many {
            break;
        }
        let store = MemoryStore::new();
        let runtime = Runtime::builder().store(store.clone()).sign_with(key());
        let runtime = runtime.encrypt_with(EncryptionKey::from_bytes([3; 32])).grant("rye.*").unwrap().build().unwrap();
        let graph = &graphs[round % graphs.len()];
        let inputs: Map<String, Value> = {
            let mut dice = dice.lock().unwrap();
            let fields = graph.interface().inputs.as_deref().unwrap_or_default().iter();
            fields.map(|field| (field.name.clone(), value_of(&field.ty, &mut dice, 0))).collect()
        };
        let run = RunId::new(format!("run-{round}")).unwrap();
        // Inputs may break a rule beyond their types.
        let Ok(begun) = runtime.start_as(run.clone(), graph.clone(), inputs).await else { continue };
        // Some wait, and some repeat calls for a long time.
        drop(tokio::time::timeout(Duration::from_millis(60), begun).await);
        runtime.shutdown(Duration::from_millis(100)).await;
        let runs = store.runs(&RunFilter::default(), &Page::default()).await.unwrap().runs;
        for one in runs {
            let records = store.load(&one.run).await.unwrap();
            let graph = if one.run == run {
                Some(graph.clone())
            } else {
                graphs.iter().find(|graph| graph.id() == one.graph).cloned()
            };
            *of_graph.entry(one.graph).or_default() += 1;
            found.extend(graph.map(|graph| RealJournal { graph, run: one.run, records, store: store.clone() }));
        }
    }
    found.truncate(many);
    assert!(found.len() == many && of_graph.len() > 5, "{} journals of {of_graph:?}", found.len());
    found
}

/// Why a journal is refused, as both readers say it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Verdict {
    Good { records: u64, link: String },
    Refused { kind: String, record: Option<u64>, line: Option<u64> },
}

impl Verdict {
    fn refused(kind: &str, record: Option<u64>) -> Self {
        Self::Refused { kind: kind.to_owned(), record, line: None }
    }

    fn of_error(error: &JournalError) -> Self {
        match error {
            JournalError::Empty => Self::refused("empty", None),
            JournalError::Unreadable { seq, .. } => Self::refused("unreadable", Some(*seq)),
            JournalError::Version { seq, .. } => Self::refused("version", Some(*seq)),
            JournalError::Broken { seq } => Self::refused("broken", Some(*seq)),
            JournalError::Signature { seq, .. } => Self::refused("signature", Some(*seq)),
            JournalError::Shortened { seq } => Self::refused("shortened", Some(*seq)),
            other => panic!("this is no error of a chain: {other}"),
        }
    }

    fn of_store(error: &StoreError) -> Self {
        let text = error.to_string();
        let line = text.split_once("line ").and_then(|(_, rest)| rest.split(':').next()?.parse().ok());
        Self::Refused { kind: "unreadable".to_owned(), record: None, line }
    }

    /// Reads the verdict of Node.
    fn read(line: &str) -> Self {
        let value: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        if value["ok"] == true {
            let link = value["link"].as_str().unwrap().to_owned();
            return Self::Good { records: value["records"].as_u64().unwrap(), link };
        }
        let kind = value["kind"].as_str().unwrap().to_owned();
        Self::Refused { kind, record: value["record"].as_u64(), line: value["line"].as_u64() }
    }
}

/// The verdict of the audit about chain and signatures. The audit's opinion of the content of records does not count.
async fn audited(graph: &Interpreted, run: &RunId, store: &dyn Store) -> Verdict {
    match audit_tree(Arc::new(graph.clone()), run, store, &key().public(), None).await {
        Ok(audits) => Verdict::Good { records: audits[0].records, link: audits[0].link.to_hex() },
        // The chain is good, or the audit would have said so first.
        Err(AuditError::Journal { reason: JournalError::Misfit { .. }, .. }) => {
            chained(&store.load(run).await.unwrap(), run)
        }
        Err(AuditError::Journal { run: wrong, reason }) if wrong == *run => Verdict::of_error(&reason),
        Err(AuditError::Store { source: source @ StoreError::Unreadable { .. }, .. }) => Verdict::of_store(&source),
        Err(_) => chained(&store.load(run).await.unwrap(), run),
    }
}

fn chained(records: &[SignedRecord], run: &RunId) -> Verdict {
    match VerifiedJournal::new(run, records, &key().public()).and_then(|journal| journal.start().map(|_| ())) {
        Ok(()) => Verdict::Good { records: records.len() as u64, link: records.last().unwrap().link().to_hex() },
        Err(error) => Verdict::of_error(&error),
    }
}

/// Writes a journal as a file has it.
fn written(records: &[SignedRecord]) -> String {
    let mut lines: Vec<String> = records
        .iter()
        .map(|record| json!({"body": record.body, "signature": hex(&record.signature)}).to_string() + "\n")
        .collect();
    let end = records.last().and_then(|record| record.end);
    lines.extend(end.map(|end| json!({"end": hex(&end)}).to_string() + "\n"));
    lines.concat()
}

/// Node, which verifies journals.
struct Judge {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Judge {
    /// Returns `None`, and says so, if Node is not installed, or is older than 20.
    fn start() -> Option<Self> {
        let version = Command::new("node").arg("--version").output().ok();
        let version = version.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        let major =
            version.trim().trim_start_matches('v').split('.').next().and_then(|major| major.parse::<u32>().ok());
        if major.is_none_or(|major| major < 20) {
            assert!(std::env::var_os("REQUIRE_NODE").is_none(), "node 20 is not installed");
            let text =
                "skipped: the page's reader of journals is not compared, since node 20 or later is not installed\n";
            std::io::stderr().write_all(text.as_bytes()).unwrap();
            return None;
        }
        let directory = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut node = Command::new("node");
        node.arg(directory.join("tests/viewer/judge.mjs")).arg(directory.join("page/verify.js"));
        let mut child = node.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Some(Self { child, input, output })
    }

    fn ask(&mut self, request: &Value) {
        writeln!(self.input, "{request}").unwrap();
    }

    fn verdict(&mut self) -> Verdict {
        let mut line = String::new();
        assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "node ended");
        Verdict::read(&line)
    }

    fn of(&mut self, path: &Path, run: &RunId, from: &str) -> Verdict {
        self.ask(&json!({"path": path, "run": run, "key": hex(key().public().as_bytes()), "from": from}));
        self.verdict()
    }
}

impl Drop for Judge {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A change of a journal, as somebody may make it who can write to the store.
fn changed(records: &[SignedRecord], others: &[SignedRecord], dice: &mut Dice) -> Vec<SignedRecord> {
    let mut records = records.to_vec();
    let (at, last) = (dice.below(records.len()), records.len() - 1);
    match dice.below(12) {
        0 => drop(records.remove(at)),
        1 => records.swap(at, last),
        2 => {
            let again = records[at].clone();
            records.insert(at, again);
        }
        3 => records[at] = others[dice.below(others.len())].clone(),
        4 => records.truncate(at + 1),
        5 => records[at].signature = graph_runtime::SecretKey::from_seed(&[1; 32]).sign(&records[at].digest()),
        6 => records[last].end = None,
        7 => records[last].end = Some([7; 32]),
        8 => records[at].body = records[at].body.replacen("\"v\":3", "\"v\":2", 1),
        9 => records[at].body = records[at].body.replacen("\"v\":3", "\"v\":4", 1),
        // The holder of the key can sign anything, also a version that does not exist.
        10 => {
            records[at].body = records[at].body.replacen("\"v\":3", "\"v\":9", 1);
            records[at].signature = key().sign(&records[at].digest());
        }
        _ => {
            let mut bytes = records[at].body.clone().into_bytes();
            let place = dice.below(bytes.len());
            bytes[place] = b"0az{}\",:"[dice.below(8)];
            records[at].body = String::from_utf8(bytes).unwrap_or_default();
        }
    }
    for (seq, record) in records.iter_mut().enumerate() {
        record.seq = seq as u64;
    }
    let token = records.iter().rev().find_map(|record| record.end);
    SignedRecord::forget_ends(&mut records);
    // A store that was changed may have any token.
    if let (Some(last), true) = (records.last_mut(), dice.below(3) > 0) {
        last.end = last.end.or(token);
    }
    records
}

#[test]
fn the_reader_of_the_page_agrees_with_the_audit() {
    let Some(mut judge) = Judge::start() else { return };
    let many = std::env::var("JOURNALS").map_or(60, |many| many.parse().unwrap());
    let seed = std::env::var("SEED").map_or(1, |seed| seed.parse().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("journal.jsonl");
    tokio().block_on(async {
        let journals = real_journals(many, seed).await;
        let mut dice = Dice::new(seed ^ 0xabcd);
        let (mut good, mut refused, mut kinds) = (0, 0, BTreeMap::<String, u32>::new());
        for (at, journal) in journals.iter().enumerate() {
            let RealJournal { graph, run, records, store } = journal;
            fs::write(&file, written(records)).unwrap();
            let (page, program) = (judge.of(&file, run, "files"), audited(graph, run, store).await);
            assert_eq!(page, program, "run {run} of {}", graph.id());
            assert!(matches!(page, Verdict::Good { .. }), "run {run} of {}: {page:?}", graph.id());
            good += 1;
            let other = &journals[(at + 1) % journals.len()].records;
            for _ in 0..3 {
                let changed = changed(records, other, &mut dice);
                if changed.is_empty() || changed == *records {
                    continue;
                }
                fs::write(&file, written(&changed)).unwrap();
                let (page, program) = (judge.of(&file, run, "store"), chained(&changed, run));
                assert_eq!(page, program, "a change of run {run} of {}: {changed:#?}", graph.id());
                if let Verdict::Refused { kind, .. } = page {
                    refused += 1;
                    *kinds.entry(kind).or_default() += 1;
                }
            }
        }
        println!("{good} journals are good to both readers, and {refused} changed ones are refused: {kinds:?}");
        assert!(refused > many && kinds.len() > 3, "{kinds:?}");
    });
}

#[test]
fn both_readers_say_the_same_of_every_changed_byte() {
    let Some(mut judge) = Judge::start() else { return };
    let directory = tempfile::tempdir().unwrap();
    let threads = directory.path().join(".ai/state/threads/known-answer");
    fs::create_dir_all(&threads).unwrap();
    let known = fs::read(repository().join("graph-runtime/tests/journal/records.jsonl")).unwrap();
    let public = fs::read_to_string(repository().join("graph-runtime/tests/journal/key.txt")).unwrap();
    let file = threads.join("journal.jsonl");
    fs::write(&file, &known).unwrap();
    let masks: &[u8] = if std::env::var_os("JOURNALS").is_some() { &[1, 2, 4, 8, 16, 32, 64, 128] } else { &[1, 128] };
    let run = RunId::new("known-answer").unwrap();
    // The judge reads the file at once.
    judge.ask(&json!({"path": file, "run": run, "key": public.trim(), "from": "files", "flips": []}));
    let copy = directory.path().join("copy.jsonl");
    fs::write(&copy, &known).unwrap();
    judge.ask(&json!({"path": copy, "run": run, "key": public.trim(), "from": "files", "flips": masks}));
    let key = graph_runtime::PublicKey::from_bytes(&graph_model::digest::unhex(public.trim()).unwrap()).unwrap();
    let store = ProjectStore::in_directory(directory.path()).unwrap();
    let (mut flips, mut good) = (0, 0);
    tokio().block_on(async {
        let mut changed = known.clone();
        for at in 0..known.len() {
            for mask in masks {
                changed[at] ^= mask;
                fs::write(&file, &changed).unwrap();
                let program = match store.load(&run).await {
                    Ok(records) => match VerifiedJournal::new(&run, &records, &key)
                        .and_then(|journal| journal.start().map(|_| ()))
                    {
                        Ok(()) => Verdict::Good {
                            records: records.len() as u64,
                            link: records.last().unwrap().link().to_hex(),
                        },
                        Err(error) => Verdict::of_error(&error),
                    },
                    Err(error) => Verdict::of_store(&error),
                };
                assert_eq!(judge.verdict(), program, "byte {at}, changed by {mask}");
                changed[at] ^= mask;
                flips += 1;
                good += u32::from(matches!(program, Verdict::Good { .. }));
            }
        }
    });
    println!("{flips} changes of {} bytes: both readers agree on each; {good} of them change nothing", known.len());
    assert!(good * 20 < flips, "{good} of {flips}");
}

//! The files that a project keeps of its runs.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use graph_model::digest::hex;
use graph_runtime::__private::{Key, Program};
use graph_runtime::files::{
    Bound, FilesAudit, FilesAuditError, FilesError, GraphId, KeyRing, ProjectStore, PublicKey, Rules, TranscriptError,
    verify_transcript,
};
use graph_runtime::history::StateEdit;
use graph_runtime::record::SignedRecord;
use graph_runtime::store::StoreError;
use graph_runtime::{
    ActionError, Call, EditRun, Machine, ManualClock, Map, MemoryStore, Options, ProjectFiles, RunError, RunId,
    Runtime, SecretKey, Status, Store, Value, audit_tree,
};
use graph_signing::{self as signature, ItemKind};
use serde_json::json;

use crate::interpreted::{Interpreted, PROGRAM};

/// A node of each kind, a failure that is suppressed, and a failure that a node handles.
const KINDS: Program<'static> = Program {
    keys: &[
        Key { name: "list", initial: Some("[1,2]") },
        Key { name: "all", initial: None },
        Key { name: "ü", initial: None },
    ],
    settings: r#"{"on_error":"continue"}"#,
    nodes: &[
        (
            "fetch | it",
            r#"{"line":1,"does":{"action":0},"params":{"n":1},"assign":{"ü":"${result}"},"next":[{"to":"each"}]}"#,
        ),
        (
            "each",
            r#"{"line":2,"does":{"foreach":0},"params":{"n":"${n}"},"each":{"over":"${state.list}","as":"n","collect":"all","width":1},"next":[{"to":"breaks","when":{"path":"state.all","op":"exists"}},{"to":"end"}]}"#,
        ),
        ("breaks", r#"{"line":3,"does":{"action":0},"params":{"fail":true},"next":[{"to":"mended"}]}"#),
        ("mended", r#"{"line":4,"does":{"action":0},"params":{"fail":true},"next":[{"to":"end"}],"on_error":4}"#),
        ("gate", r#"{"line":5,"does":"gate","next":[{"to":"end"}]}"#),
        ("end", r#"{"line":6,"does":"return"}"#),
        ("never", r#"{"line":7,"does":"gate","next":[{"to":"end"}]}"#),
    ],
    ..PROGRAM
};

fn machine(program: &Program<'_>) -> Interpreted {
    Interpreted::new(program, |_: &Call, params: Value| match params["fail"].as_bool() {
        Some(true) => Err(ActionError::permanent("<b>no</b>\r\n| really")),
        _ => Ok(json!({"n": params["n"], "text": "é😀\u{7f}"})),
    })
}

fn id() -> RunId {
    RunId::new("run-1").unwrap()
}

fn graph() -> GraphId {
    GraphId::new("test/graph").unwrap()
}

fn key() -> SecretKey {
    SecretKey::from_seed(&[3; 32])
}

fn ring() -> KeyRing {
    KeyRing::of(&key().public(), "project")
}

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at(SystemTime::UNIX_EPOCH + Duration::from_millis(1_772_452_800_125)))
}

fn runtime(store: impl Store, files: &ProjectFiles) -> Runtime {
    let builder = Runtime::builder().store(store).sign_with(key()).grant("*").unwrap().observer(files.clone());
    builder.clock(clock()).build().unwrap()
}

/// A run of every kind of node, with its files.
struct Kept {
    directory: tempfile::TempDir,
    files: ProjectFiles,
    store: MemoryStore,
    state: Value,
}

impl Kept {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let files = ProjectFiles::in_directory(directory.path(), key()).unwrap();
        Self { directory, files, store: MemoryStore::new(), state: Value::Null }
    }

    async fn with_every_kind() -> Self {
        Self::of(&KINDS).await
    }

    /// A short run, for tests that change each byte.
    async fn with_two_steps() -> Self {
        let nodes = &[("a", r#"{"line":1,"does":"gate","next":[{"to":"b"}]}"#), ("b", r#"{"line":2,"does":"return"}"#)];
        Self::of(&Program { nodes, ..PROGRAM }).await
    }

    async fn of(program: &Program<'_>) -> Self {
        let mut kept = Self::new();
        let inputs = Map::from_iter([("who".to_owned(), json!("ann"))]);
        let runtime = runtime(kept.store.clone(), &kept.files);
        kept.state = runtime.start_as(id(), machine(program), inputs).await.unwrap().await.unwrap().state;
        assert!(kept.files.problems().is_empty(), "{:?}", kept.files.problems());
        kept
    }

    fn path(&self, file: &str) -> std::path::PathBuf {
        self.directory.path().join(file)
    }

    fn transcript(&self) -> Vec<u8> {
        std::fs::read(self.path(TRANSCRIPT)).unwrap()
    }

    /// Returns the events of the transcript.
    fn events(&self) -> Vec<Value> {
        String::from_utf8(self.transcript()).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn item(&self) -> String {
        std::fs::read_to_string(self.path(ITEM)).unwrap()
    }
}

const TRANSCRIPT: &str = ".ai/state/threads/run-1/transcript.jsonl";
const THREAD: &str = ".ai/state/threads/run-1/thread.json";
const JOURNAL: &str = ".ai/state/threads/run-1/journal.jsonl";
const ITEM: &str = ".ai/knowledge/graphs/test/graph/run-1.md";

/// Returns every file below a directory, by its path, except the registry, whose bytes are SQLite's own.
fn tree(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else if !path.to_string_lossy().contains("registry.db") {
                files.insert(path.strip_prefix(root).unwrap().display().to_string(), std::fs::read(&path).unwrap());
            }
        }
    }
    files
}

/// Asserts that the files are the same byte for byte when they are rebuilt elsewhere.
async fn assert_rebuilds(kept: &Kept, graphs: &[(&RunId, &Interpreted)]) {
    let live = tree(kept.directory.path());
    let elsewhere = tempfile::tempdir().unwrap();
    let files = ProjectFiles::in_directory(elsewhere.path(), key()).unwrap();
    for (run, graph) in graphs {
        files.rebuild(&kept.store, &key().public(), run, graph.graph()).await.unwrap();
    }
    let rebuilt = tree(elsewhere.path());
    assert_eq!(live.keys().collect::<Vec<_>>(), rebuilt.keys().collect::<Vec<_>>());
    for (file, bytes) in &live {
        assert_eq!(String::from_utf8_lossy(bytes), String::from_utf8_lossy(&rebuilt[file]), "{file}");
    }
}

#[tokio::test]
async fn rebuilt_files_equal_the_live_ones_byte_for_byte() {
    let kept = Kept::with_every_kind().await;
    let live = tree(kept.directory.path());
    assert!(live.len() > 10, "{:?}", live.keys());
    assert_rebuilds(&kept, &[(&id(), &machine(&KINDS))]).await;
    assert!(live.keys().all(|file| !file.contains(".tmp")), "no temporary file stays behind");
}

#[tokio::test]
async fn files_that_were_damaged_are_found_and_rebuilt_in_place() {
    let kept = Kept::with_every_kind().await;
    let whole = tree(kept.directory.path());
    let code = machine(&KINDS);
    let differing = async || {
        let paths = kept
            .files
            .store()
            .compare(&kept.store, &key().public(), &key().public(), &id(), code.graph())
            .await
            .unwrap();
        let file = |path: std::path::PathBuf| path.strip_prefix(kept.directory.path()).unwrap().display().to_string();
        paths.into_iter().map(file).collect::<Vec<_>>()
    };
    assert!(differing().await.is_empty());
    std::fs::remove_file(kept.path(PAGE)).unwrap();
    assert_eq!(differing().await, [PAGE]);
    for (file, bytes) in &whole {
        let mut changed = bytes.clone();
        changed[bytes.len() / 2] ^= 1;
        std::fs::write(kept.path(file), changed).unwrap();
    }
    let changed = tree(kept.directory.path());
    assert_eq!(differing().await.len(), whole.len());
    assert_eq!(tree(kept.directory.path()), changed, "looking changes nothing");
    kept.files.rebuild(&kept.store, &key().public(), &id(), machine(&KINDS).graph()).await.unwrap();
    assert_eq!(tree(kept.directory.path()), whole);
}

#[tokio::test]
async fn a_completed_run_that_is_resumed_has_its_files_rebuilt() {
    let kept = Kept::with_every_kind().await;
    let whole = tree(kept.directory.path());
    // A kill between the commit of the end and the last file leaves some files out of date, and some missing.
    for (number, (file, bytes)) in whole.iter().enumerate() {
        if number % 2 == 0 {
            std::fs::remove_file(kept.path(file)).unwrap();
        } else {
            std::fs::write(kept.path(file), &bytes[..bytes.len() / 2]).unwrap();
        }
    }
    let files = ProjectFiles::in_directory(kept.directory.path(), key()).unwrap();
    let runtime = runtime(kept.store.clone(), &files);
    let finished = runtime.resume(machine(&KINDS), &id()).await.unwrap().await.unwrap();
    assert_eq!(finished.state, kept.state);
    assert!(files.problems().is_empty(), "{:?}", files.problems());
    assert_eq!(tree(kept.directory.path()), whole);
}

#[tokio::test]
async fn rebuild_refuses_a_changed_journal_and_another_graph() {
    let kept = Kept::with_every_kind().await;
    let before = tree(kept.directory.path());
    let code = machine(&KINDS);
    let other = SecretKey::from_seed(&[9; 32]).public();
    let error = kept.files.rebuild(&kept.store, &other, &id(), code.graph()).await.unwrap_err();
    assert!(matches!(error, FilesError::Journal(_)), "{error}");
    let edited = Program { digest: "00000000000000000000000000000000000000000000000000000000000000bb", ..KINDS };
    let error = kept.files.rebuild(&kept.store, &key().public(), &id(), machine(&edited).graph()).await.unwrap_err();
    assert!(matches!(error, FilesError::AnotherGraph { .. }), "{error}");
    assert_eq!(tree(kept.directory.path()), before);
}

#[tokio::test]
async fn journal_file_equals_the_stored_journal_and_is_read_only() {
    let kept = Kept::with_every_kind().await;
    let records = kept.store.load(&id()).await.unwrap();
    let line =
        |record: &SignedRecord| json!({"body": record.body, "signature": hex(&record.signature)}).to_string() + "\n";
    let end = json!({"end": hex(&records.last().unwrap().end.unwrap())}).to_string() + "\n";
    let text = records.iter().map(line).collect::<String>() + &end;
    assert_eq!(std::fs::read_to_string(kept.path(JOURNAL)).unwrap(), text);
    let files = kept.files.store();
    assert_eq!(files.load(&id()).await.unwrap(), records);
    assert_eq!(files.load_from(&id(), 3).await.unwrap(), records[3..]);
    // The store does not use the run's clock.
    let (found, mut expected) = (files.find(&id()).await.unwrap(), kept.store.find(&id()).await.unwrap());
    let at = SystemTime::UNIX_EPOCH + Duration::from_millis(1_772_452_800_125);
    (expected.created, expected.updated) = (Some(at), Some(at));
    assert_eq!(found, expected);
    std::fs::create_dir(kept.path(".ai/state/threads/somebody-elses")).unwrap();
    assert_eq!(files.list().await.unwrap(), [found]);
    let missing = files.load(&RunId::new("none").unwrap()).await.unwrap_err();
    assert!(matches!(missing, StoreError::NotFound(_)), "{missing}");
    let refused = files.lease(&id()).await.unwrap_err();
    assert_eq!(refused.to_string(), "this store cannot go on with runs: it reads the files of a project");
    let refused = files.create(&RunId::new("new").unwrap(), "g", records).await.unwrap_err();
    assert!(matches!(refused, StoreError::Unsupported(_)), "{refused}");
}

/// Proves the run from its files.
async fn proven(kept: &Kept, graph: &Interpreted) -> Result<FilesAudit, FilesAuditError> {
    let files = ProjectStore::in_directory(kept.directory.path()).unwrap();
    files.audit(Arc::new(graph.clone()), &id(), &key().public(), &key().public(), None).await
}

/// Whether the audit fails or finds a file that differs.
async fn is_found_out(kept: &Kept, graph: &Interpreted) -> bool {
    proven(kept, graph).await.map_or(true, |audit| !audit.differing.is_empty())
}

#[tokio::test]
async fn a_run_is_proven_from_its_files_alone_and_any_change_is_found() {
    let nodes = &[
        ("a", r#"{"line":1,"does":{"action":0},"params":{"n":1},"assign":{"all":"${result.n}"},"next":[{"to":"b"}]}"#),
        ("b", r#"{"line":2,"does":"return"}"#),
    ];
    let graph = machine(&Program { nodes, ..KINDS });
    let kept = Kept::of(&Program { nodes, ..KINDS }).await;
    let audit = proven(&kept, &graph).await.unwrap();
    let from_store = audit_tree(Arc::new(graph.clone()), &id(), &kept.store, &key().public(), None).await.unwrap();
    assert_eq!((audit.audits, audit.differing), (from_store, Vec::new()));
    for (file, bytes) in tree(kept.directory.path()) {
        // Each byte of the journal is changed; of the other files only some are, because they are compared as a whole.
        let stride = if file == JOURNAL { 1 } else { 61 };
        for at in (0..bytes.len()).step_by(stride) {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            std::fs::write(kept.path(&file), changed).unwrap();
            assert!(is_found_out(&kept, &graph).await, "byte {at} of {file}");
        }
        std::fs::write(kept.path(&file), &bytes[..bytes.len() - 1]).unwrap();
        assert!(is_found_out(&kept, &graph).await, "the end of {file}");
        std::fs::remove_file(kept.path(&file)).unwrap();
        assert!(is_found_out(&kept, &graph).await, "no {file}");
        std::fs::write(kept.path(&file), bytes).unwrap();
    }
    assert!(!is_found_out(&kept, &graph).await);
    // Lines that are repeated, moved or missing.
    let text = std::fs::read_to_string(kept.path(JOURNAL)).unwrap();
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    for at in 0..lines.len() {
        let (mut repeated, mut dropped, mut moved) = (lines.clone(), lines.clone(), lines.clone());
        repeated.insert(at, lines[at]);
        dropped.remove(at);
        moved.swap(at, (at + 1) % lines.len());
        for changed in [repeated, dropped, moved, lines[..at].to_vec()] {
            std::fs::write(kept.path(JOURNAL), changed.concat()).unwrap();
            assert!(is_found_out(&kept, &graph).await, "line {at}: {changed:?}");
        }
    }
}

#[tokio::test]
async fn rolled_back_journal_differs_from_the_other_files() {
    let kept = Kept::new();
    let (path, earlier) = (kept.path(JOURNAL), Arc::new(std::sync::Mutex::new(Vec::new())));
    let taken = Arc::clone(&earlier);
    let graph = Interpreted::new(&KINDS, move |call: &Call, params| {
        if call.node() == "breaks" {
            *taken.lock().unwrap() = std::fs::read(&path).unwrap();
        }
        Ok(json!({"n": params["n"]}))
    });
    let run = runtime(kept.store.clone(), &kept.files).start_as(id(), graph.clone(), Map::new()).await.unwrap();
    run.await.unwrap();
    assert!(proven(&kept, &graph).await.unwrap().differing.is_empty());
    // With its token of that time, the journal by itself is complete.
    std::fs::write(kept.path(JOURNAL), &*earlier.lock().unwrap()).unwrap();
    let audit = proven(&kept, &graph).await.unwrap();
    assert_eq!((audit.audits[0].status, audit.audits[0].steps), (Status::Running, 2));
    let differing = |file: &str| audit.differing.iter().any(|(run, path)| *run == id() && path.ends_with(file));
    assert!(differing(TRANSCRIPT) && differing(ITEM) && differing(PAGE), "{:?}", audit.differing);
}

#[tokio::test]
async fn compare_uses_the_key_and_version_that_wrote_the_files() {
    let (kept, graph) = (Kept::with_every_kind().await, machine(&KINDS));
    let (files, own, other) = (kept.files.store(), key().public(), SecretKey::from_seed(&[9; 32]));
    let differing = async |by: &PublicKey| {
        let paths = files.compare(&files, &own, by, &id(), graph.graph()).await.unwrap();
        let file = |path: std::path::PathBuf| path.strip_prefix(kept.directory.path()).unwrap().display().to_string();
        paths.into_iter().map(file).collect::<Vec<_>>()
    };
    assert_eq!(differing(&own).await, Vec::<String>::new());
    let mut signed = [PAGE, ITEM, TRANSCRIPT, THREAD].map(str::to_owned);
    signed.sort_unstable();
    assert_eq!(differing(&other.public()).await, signed);
    // The files may be signed with another key than the journal.
    let by_other = ProjectFiles::in_directory(kept.directory.path(), other.clone()).unwrap();
    by_other.rebuild(&kept.store, &own, &id(), graph.graph()).await.unwrap();
    assert_eq!((differing(&other.public()).await, differing(&own).await), (Vec::new(), signed.to_vec()));
    kept.files.rebuild(&kept.store, &own, &id(), graph.graph()).await.unwrap();
    // The files of an older version name that version, in every snapshot and in the signed page.
    let (now, old) = (env!("CARGO_PKG_VERSION"), "0.0.9");
    let mut names = BTreeMap::new();
    for (file, bytes) in tree(kept.directory.path()) {
        let text = String::from_utf8_lossy(&bytes);
        if text.contains("\"kind\":\"execution_snapshot\"") {
            let text = text.replace(&format!("\"system_version\":\"{now}\""), &format!("\"system_version\":\"{old}\""));
            std::fs::remove_file(kept.path(&file)).unwrap();
            let hash = kept.files.objects().put(&serde_json::from_str(&text).unwrap()).unwrap();
            names.insert(graph_model::digest::Digest::of(&bytes).to_hex(), hash.to_hex());
        }
    }
    let reference = kept.path(".ai/state/objects/refs/graphs/run-1.json");
    let named = std::fs::read_to_string(&reference).unwrap();
    let hash = names.keys().find(|hash| named.contains(*hash)).unwrap();
    std::fs::write(&reference, named.replace(hash, &names[hash])).unwrap();
    assert_eq!(differing(&own).await, [PAGE], "what is signed says so too");
    let page = std::fs::read_to_string(kept.path(PAGE)).unwrap();
    let page = page.replace(&format!("system_version: {now}"), &format!("system_version: {old}"));
    let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_772_452_800);
    std::fs::write(kept.path(PAGE), signature::sign(ItemKind::Knowledge, &page, &key(), at).unwrap()).unwrap();
    assert_eq!(differing(&own).await, Vec::<String>::new());
}

#[tokio::test]
async fn transcript_lists_all_steps_in_order_and_signs_after_each() {
    let kept = Kept::with_every_kind().await;
    let events = kept.events();
    let told: Vec<String> = events
        .iter()
        .map(|event| {
            assert_eq!((&event["graph_run_id"], &event["thread_id"]), (&json!("run-1"), &json!("run-1")));
            assert_eq!(event["timestamp"], "2026-03-02T12:00:00.125Z");
            let node = event["payload"]["node"].as_str().unwrap_or_default();
            format!("{} {node}", event["event_type"].as_str().unwrap()).trim().to_owned()
        })
        .collect();
    let expected = [
        "graph_started",
        "step_started fetch | it",
        "state_checkpoint",
        "checkpoint",
        "step_completed fetch | it",
        "step_started each",
        "state_checkpoint",
        "checkpoint",
        "foreach_completed each",
        "step_started breaks",
        "state_checkpoint",
        "checkpoint",
        "step_completed breaks",
        "step_started mended",
        "state_checkpoint",
        "checkpoint",
        "step_completed mended",
        "step_started gate",
        "state_checkpoint",
        "checkpoint",
        "step_completed gate",
        "step_started end",
        "state_checkpoint",
        "checkpoint",
        "step_completed end",
        "state_checkpoint",
        "checkpoint",
        "graph_completed",
        "state_checkpoint",
        "checkpoint",
    ];
    assert_eq!(told, expected);
    let payload = |at: usize| events[at]["payload"].clone();
    assert_eq!(payload(0), json!({"graph_id": "test/graph", "graph_run_id": "run-1", "start_node": "fetch | it"}));
    assert_eq!(payload(1), json!({"step": 1, "node": "fetch | it", "action_id": "test/tool"}));
    assert_eq!(payload(5), json!({"step": 2, "node": "each", "node_type": "foreach"}));
    assert_eq!(payload(4)["next_node"], "each");
    assert_eq!(payload(4)["status"], "ok");
    assert_eq!(payload(4)["error"], Value::Null);
    assert_eq!((&payload(12)["status"], &payload(12)["error"]), (&json!("error"), &json!("<b>no</b>\r\n| really")));
    assert_eq!((&payload(16)["next_node"], &payload(16)["node_result_hash"]), (&json!("gate"), &json!("")));
    assert_eq!(payload(6)["current_node"], "each", "the node that comes next");
    assert_eq!(payload(27), json!({"status": "completed_with_errors", "steps": 6, "elapsed_s": 0.0}));
    let hash = |at: usize| payload(at)["node_input_hash"].as_str().unwrap().len();
    assert_eq!((hash(4), hash(8), hash(16)), (64, 64, 64), "always computed");
    let checkpoint = payload(7);
    assert_eq!((&checkpoint["turn"], &checkpoint["ts"]), (&json!(1), &json!("2026-03-02T12:00:00Z")));
    let (item, verified) = kept.files.store().verify(&graph(), &id(), &ring()).unwrap();
    assert_eq!((verified.checkpoints, verified.unsigned_bytes, verified.signers.len()), (8, 0, 1));
    assert_eq!(item.transcript.bytes, kept.transcript().len() as u64);
}

#[tokio::test]
async fn input_hashes_are_equal_across_runs_only_for_equal_inputs() {
    let hashes = async |who: &str| {
        let kept = Kept::new();
        let inputs = Map::from_iter([("who".to_owned(), json!(who))]);
        let run = runtime(kept.store.clone(), &kept.files).start_as(id(), machine(&KINDS), inputs).await.unwrap();
        run.await.unwrap();
        let hash = |event: Value| event["payload"]["node_input_hash"].as_str().map(str::to_owned);
        kept.events().into_iter().filter_map(hash).collect::<Vec<String>>()
    };
    let ann = hashes("ann").await;
    assert_eq!((ann.len(), &ann), (4, &hashes("ann").await));
    assert!(ann.iter().zip(hashes("ben").await).all(|(one, other)| *one != other));
    assert!((1..ann.len()).all(|at| !ann[..at].contains(&ann[at])), "each node has its own");
}

fn verify(bytes: &[u8]) -> Result<u64, TranscriptError> {
    verify_transcript(&id(), bytes, &ring(), Rules::default()).map(|verified| verified.checkpoints)
}

#[tokio::test]
async fn a_transcript_with_any_byte_changed_is_refused() {
    let transcript = Kept::with_two_steps().await.transcript();
    assert_eq!(verify(&transcript), Ok(4));
    assert_eq!(verify(&transcript[..transcript.len() - 1]), Ok(4), "a missing newline at the end is no change");
    for at in 0..transcript.len() {
        let mut changed = transcript.clone();
        changed[at] ^= 1;
        assert!(verify(&changed).is_err(), "byte {at}");
    }
}

#[tokio::test]
async fn a_transcript_that_was_edited_says_where() {
    let transcript = Kept::with_every_kind().await.transcript();
    let lines: Vec<&[u8]> = transcript.split_inclusive(|byte| *byte == b'\n').collect();
    let joined = |lines: &[&[u8]]| lines.concat();
    let without = |at: usize| {
        let mut lines = lines.clone();
        lines.remove(at);
        joined(&lines)
    };
    let error = |bytes: &[u8]| verify(bytes).unwrap_err();
    let offset = |at: usize| lines[..at].concat().len() as u64;
    // A line of the second step is missing, so its checkpoint does not hold.
    let gone = error(&without(8));
    assert_eq!(gone, TranscriptError::Content { turn: 2, byte_offset: offset(11) - lines[8].len() as u64 });
    assert_eq!((gone.to_string().as_str(), gone.failed_at_turn()), ("Content hash mismatch at turn 2", Some(2)));
    // A checkpoint in the middle is missing.
    assert_eq!(error(&without(7)).to_string(), "Content hash mismatch at turn 2");
    // Two lines are swapped, and then two steps.
    let mut moved = lines.clone();
    moved.swap(4, 5);
    assert_eq!(error(&joined(&moved)).to_string(), "Content hash mismatch at turn 1");
    let steps = [joined(&lines[..4]), joined(&lines[8..12]), joined(&lines[4..8]), joined(&lines[12..])].concat();
    assert_eq!(error(&steps).to_string(), "Content hash mismatch at turn 2");
    // A step occurs twice, and then the last checkpoint does.
    let twice = [joined(&lines[..8]), joined(&lines[4..])].concat();
    assert_eq!(error(&twice).to_string(), "Content hash mismatch at turn 1");
    let again = [transcript.clone(), lines[lines.len() - 1].to_vec()].concat();
    assert_eq!(error(&again).to_string(), "Content hash mismatch at turn 6");
    // There is something more at the end.
    for added in ["{\"event_type\":\"state_checkpoint\"}\n", "\n", "garbage"] {
        let longer = [transcript.as_slice(), added.as_bytes()].concat();
        let expected = format!("Unsigned content after last checkpoint ({} bytes after turn 6)", added.len());
        assert_eq!(error(&longer).to_string(), expected);
        let rules = Rules { allow_unsigned_trailing: true, bound: None };
        let allowed = verify_transcript(&id(), &longer, &ring(), rules).unwrap();
        assert_eq!((allowed.checkpoints, allowed.unsigned_bytes), (8, added.len() as u64));
    }
    // The transcript is cut off in a line, or after a line that is not signed.
    for end in [lines.len() - 1, lines.len() - 2, 1] {
        assert!(matches!(
            error(&joined(&lines[..end])),
            TranscriptError::Trailing { .. } | TranscriptError::Unsigned { .. }
        ));
    }
    assert!(matches!(error(b""), TranscriptError::Unsigned { unsigned_bytes: 0 }));
    // All signatures are missing.
    let stripped: Vec<&[u8]> =
        lines.iter().copied().filter(|line| !String::from_utf8_lossy(line).contains("\"checkpoint\"")).collect();
    assert!(matches!(error(&joined(&stripped)), TranscriptError::Unsigned { .. }));
    // The transcript is of another run, or was signed with another key.
    let other = RunId::new("run-2").unwrap();
    let error = verify_transcript(&other, &transcript, &ring(), Rules::default()).unwrap_err();
    assert!(matches!(error, TranscriptError::Checkpoint { turn: 0, .. }), "{error}");
    let stranger = KeyRing::of(&SecretKey::from_seed(&[9; 32]).public(), "stranger");
    let error = verify_transcript(&id(), &transcript, &stranger, Rules::default()).unwrap_err();
    let fingerprint = key().public().fingerprint();
    assert_eq!(error.to_string(), format!("Untrusted signing key {fingerprint} at turn 0"));
}

#[tokio::test]
async fn state_item_detects_a_transcript_cut_after_a_checkpoint() {
    let kept = Kept::with_every_kind().await;
    let transcript = kept.transcript();
    let lines: Vec<&[u8]> = transcript.split_inclusive(|byte| *byte == b'\n').collect();
    let short = lines[..8].concat();
    assert_eq!(verify(&short), Ok(2), "by itself it holds");
    std::fs::write(kept.path(TRANSCRIPT), &short).unwrap();
    let error = kept.files.store().verify(&graph(), &id(), &ring()).unwrap_err();
    let FilesError::Transcript(error) = error else { panic!("{error}") };
    assert_eq!(error, TranscriptError::Short { found: short.len() as u64, expected: transcript.len() as u64 });
    let bound = Bound { bytes: 10, hash: graph_model::digest::Digest::of("another") };
    let error = verify_transcript(&id(), &transcript, &ring(), Rules { bound: Some(&bound), ..Rules::default() });
    assert_eq!(error, Err(TranscriptError::Foreign));
    std::fs::remove_file(kept.path(TRANSCRIPT)).unwrap();
    let error = kept.files.store().verify(&graph(), &id(), &ring()).unwrap_err();
    assert!(matches!(error, FilesError::Missing { .. }), "{error}");
}

#[tokio::test]
async fn state_item_is_a_signed_knowledge_page_with_the_whole_state() {
    let kept = Kept::with_every_kind().await;
    let text = kept.item();
    assert_eq!(ItemKind::of(ITEM, &text), ItemKind::Knowledge);
    signature::verify(ItemKind::Knowledge, &text, &ring()).unwrap();
    let (_, body) = text.split_once('\n').unwrap();
    let hash = graph_model::digest::Digest::of(kept.transcript());
    let bytes = kept.transcript().len();
    let header = format!(
        "```yaml\nid: graphs/test/graph/run-1\ntitle: \"State: test/graph (run-1)\"\nentry_type: graph_state\n\
         category: graphs/test/graph\nversion: \"1.0.0\"\ngraph_id: test/graph\ngraph_run_id: run-1\n\
         parent_thread_id: \nstatus: completed_with_errors\ncurrent_node: end\nstep_count: 6\n\
         started_at: 2026-03-02T12:00:00Z\nupdated_at: 2026-03-02T12:00:00Z\ntranscript_bytes: {bytes}\n\
         transcript_hash: \"{hash}\"\ntags: [graph_state]\n```\n\n{{\n  \"inputs\": {{\n    \"who\": \"ann\"\n  }},\n"
    );
    assert!(body.starts_with(&header), "{body}");
    assert!(text.is_ascii() && text.ends_with("\n}"), "no newline at the end: {text}");
    let (item, _) = kept.files.store().verify(&graph(), &id(), &ring()).unwrap();
    assert_eq!(item.state, kept.state, "the state that the run returned");
    assert_eq!((item.status, item.steps, item.current_node.as_str()), (Status::CompletedWithErrors, 6, "end"));
}

#[tokio::test]
async fn a_state_item_with_any_byte_changed_is_refused() {
    let kept = Kept::with_two_steps().await;
    let text = kept.item();
    // The bytes after the time, which no signature line covers.
    for at in "<!-- rye:signed:2026-03-02T12:00:00Z:".len()..text.len() {
        let mut changed = text.clone().into_bytes();
        changed[at] ^= 1;
        std::fs::write(kept.path(ITEM), changed).unwrap();
        assert!(kept.files.store().verify(&graph(), &id(), &ring()).is_err(), "byte {at}");
    }
}

#[tokio::test]
async fn state_item_shows_a_failed_run_at_its_node_and_a_resumed_one() {
    let failing = Program { settings: "{}", ..KINDS };
    let kept = Kept::new();
    let runtime = runtime(kept.store.clone(), &kept.files);
    let error = runtime.start_as(id(), machine(&failing), Map::new()).await.unwrap().await.unwrap_err();
    let RunError::Node { state, .. } = error else { panic!("{error}") };
    let (item, _) = kept.files.store().verify(&graph(), &id(), &ring()).unwrap();
    assert_eq!((item.status, item.steps, item.current_node.as_str()), (Status::Error, 2, "breaks"));
    assert_eq!(item.state, *state);
    let last = kept.events().into_iter().rev().find(|event| event["event_type"] == "graph_error").unwrap();
    assert_eq!((&last["payload"]["node"], &last["payload"]["steps"]), (&json!("breaks"), &json!(2)));
    // The run is resumed. Its transcript continues at its end, even if a crash left half a line and no item.
    let before = kept.transcript();
    std::fs::write(kept.path(TRANSCRIPT), &before[..before.len() - 100]).unwrap();
    std::fs::remove_file(kept.path(ITEM)).unwrap();
    let mends = Interpreted::new(&failing, |_, params| Ok(json!({"n": params["n"]})));
    // An edit leaves the run as it is, except for its state.
    let key =
        item.state.as_object().unwrap().keys().find(|key| *key != "inputs" && !key.starts_with('_')).unwrap().clone();
    let set = Map::from_iter([(key.clone(), json!(77))]);
    let edit = StateEdit { by: "a|nn".to_owned(), why: "a *test*".to_owned(), set, ..StateEdit::default() };
    runtime.edit(&mends, &id(), edit).await.unwrap();
    let (item, _) = kept.files.store().verify(&graph(), &id(), &ring()).unwrap();
    assert_eq!((item.status, item.steps, item.current_node.as_str()), (Status::Error, 2, "breaks"));
    assert_eq!(item.state[&key], 77);
    let edited = kept.events().into_iter().find(|event| event["event_type"] == "state_edited").unwrap();
    let expected = json!({"steps": 2, "by": "a|nn", "why": "a *test*", "set": [key], "written": []});
    assert_eq!(edited["payload"], expected);
    assert_rebuilds(&kept, &[(&id(), &machine(&failing))]).await;
    runtime.resume(mends, &id()).await.unwrap().await.unwrap();
    assert!(kept.transcript().starts_with(&before));
    let (item, _) = kept.files.store().verify(&graph(), &id(), &ring()).unwrap();
    assert_eq!((item.status, item.steps), (Status::Completed, 5));
    let types: Vec<Value> = kept.events().iter().map(|event| event["event_type"].clone()).collect();
    assert_eq!(types.iter().filter(|kind| **kind == "graph_started").count(), 1);
    assert_eq!(types.iter().filter(|kind| **kind == "graph_resumed").count(), 1);
    assert_rebuilds(&kept, &[(&id(), &machine(&failing))]).await;
}

#[tokio::test]
async fn a_cancelled_run_shows_its_status_and_next_node() {
    let kept = Kept::new();
    let program = Program {
        nodes: &[
            ("a", r#"{"line":1,"does":{"action":0},"next":[{"to":"b"}]}"#),
            ("b", r#"{"line":2,"does":{"action":0},"next":[{"to":"end"}]}"#),
            ("end", r#"{"line":3,"does":"return"}"#),
        ],
        ..PROGRAM
    };
    let (called, stopped) = (Arc::new(tokio::sync::Notify::new()), Arc::new(tokio::sync::Notify::new()));
    let (calls, goes_on) = (Arc::clone(&called), Arc::clone(&stopped));
    let machine = Interpreted::waiting(&program, move |_, _| {
        let (called, stopped) = (Arc::clone(&calls), Arc::clone(&goes_on));
        Box::pin(async move {
            called.notify_one();
            stopped.notified().await;
            Ok(Value::Null)
        })
    });
    let run = runtime(kept.store.clone(), &kept.files).start_as(id(), machine, Map::new()).await.unwrap();
    called.notified().await;
    run.canceller().cancel_by(15);
    stopped.notify_one();
    let error = run.await.unwrap_err();
    assert!(matches!(error, RunError::Cancelled { .. }), "{error}");
    let (item, _) = kept.files.store().verify(&graph(), &id(), &ring()).unwrap();
    assert_eq!((item.status, item.steps, item.current_node.as_str()), (Status::Cancelled, 1, "b"));
    let events = kept.events();
    let event = events.iter().find(|event| event["event_type"] == "graph_cancelled").unwrap();
    assert_eq!(event["payload"]["signal"], 15);
}

const PAGE: &str = ".ai/knowledge/agent/threads/test/graph/run-1.md";

#[tokio::test]
async fn run_page_shows_each_node_outcome_and_the_edges_taken() {
    let kept = Kept::with_every_kind().await;
    let page = std::fs::read_to_string(kept.path(PAGE)).unwrap();
    assert_eq!(ItemKind::of(PAGE, &page), ItemKind::Knowledge);
    signature::verify(ItemKind::Knowledge, &page, &ring()).unwrap();
    let (_, page) = page.split_once('\n').unwrap();
    let header = "```yaml\nid: run-1\ntitle: \"Graph: test/graph\"\nentry_type: graph_transcript\n\
        category: agent/threads/test/graph\nversion: \"1.0.0\"\nauthor: rye\ncreated_at: 2026-03-02T12:00:00.125Z\n\
        graph_id: test/graph\ngraph_run_id: run-1\nstatus: completed_with_errors\nstep_count: 6\nduration: 0.0s\n\
        tags: [graph, completed_with_errors]\n```\n\n# test/graph\n\n\
        **Status:** completed_with_errors | **Step:** 6 | **Elapsed:** 0.0s\n\n";
    assert!(page.starts_with(header), "{page}");
    let has = |line: &str| assert!(page.lines().any(|one| one == line), "{line}\n\n{page}");
    let row = |begins: &str| assert!(page.lines().any(|one| one.starts_with(begins)), "{begins}\n\n{page}");
    row("| 1 | fetch \\| it | ✅ | 0.0s | test/tool | in: `");
    row("| 3 | breaks | ❌ | 0.0s | test/tool | in: `");
    has("| 5 | gate | ✅ | 0.0s |  |  |");
    has("| — | never | ⏳ | — |  | |");
    has("    n0[\"fetch #124; it\"]:::completed");
    has("    n2[\"breaks\"]:::failed");
    has("    n6{\"never\"}:::pending");
    has("    n0 ==>|\"1×\"| n1");
    has("    n1 -.-> n5");
    has("    n3 ==>|\"1×\"| n4");
    has("    n6 -.-> n5");
    has("**Started** 2026-03-02T12:00:00.125Z — entry: `fetch | it`");
    has("### Step 3 — `breaks` → test/tool");
    has("❌ error (0.0s): &lt;b>no&lt;/b>  \\| really → `mended`");
    has("🔁 iteration complete (0.0s) → `breaks`");
    has("⏹ return");
    has("**⚠️ Completed with errors** — 6 steps, 0.0s, 2026-03-02T12:00:00.125Z");
    assert!(page.lines().last().unwrap().ends_with("receipts: 3"));
}

#[tokio::test]
async fn files_show_the_visits_that_a_quorum_cancelled() {
    let kept = Kept::new();
    let graph = crate::forged_visits::racing(1);
    runtime(kept.store.clone(), &kept.files).start_as(id(), graph.clone(), Map::new()).await.unwrap().await.unwrap();
    let events = kept.events();
    let of_work = events
        .iter()
        .filter(|event| event["payload"]["node"] == json!("work") && !event["payload"]["status"].is_null());
    let statuses: Vec<&Value> = of_work.map(|event| &event["payload"]["status"]).collect();
    assert_eq!(statuses, [&json!("cancelled"), &json!("cancelled"), &json!("ok")], "{events:#?}");
    let page = std::fs::read_to_string(kept.path(PAGE)).unwrap();
    assert_eq!(page.matches("⊘ cancelled (0.0s)").count(), 2, "{page}");
    // The last visit of the node was not cancelled.
    assert!(page.contains("work | ✅") && !page.contains("classDef cancelled"), "{page}");
    assert!(page.contains("n2 -.->|\"fewer\"| n3") && page.contains("n1 ==>|\"1×\"| n2"), "{page}");
    assert!(proven(&kept, &graph).await.is_ok());
    assert_rebuilds(&kept, &[(&id(), &graph)]).await;
}

#[tokio::test]
async fn files_show_the_nodes_that_a_return_cancelled() {
    let kept = Kept::new();
    let graph = crate::branches::returning_first(10);
    runtime(kept.store.clone(), &kept.files).start_as(id(), graph.clone(), Map::new()).await.unwrap().await.unwrap();
    let page = std::fs::read_to_string(kept.path(PAGE)).unwrap();
    assert!(page.contains("| 5 | three | ⊘ | — |") && page.contains("[\"three\"]:::cancelled"), "{page}");
    assert!(page.contains("| — | never | ⏳ | — |") && page.contains("classDef cancelled"), "{page}");
    assert_rebuilds(&kept, &[(&id(), &graph)]).await;
}

#[tokio::test]
async fn files_show_visits_that_are_made_again() {
    let (kept, calls) = (Kept::new(), crate::held::Calls::default());
    let (graph, inputs) = (crate::held::four(&calls), Map::from_iter([("n".to_owned(), json!(7))]));
    let (inner, child) = (RunId::new("run-1-3").unwrap(), crate::held::child(&calls));
    let started = |events: &[Value]| {
        let started = events.iter().filter(|event| event["event_type"] == json!("step_started"));
        let names = started.map(|event| format!("{} {}", event["payload"]["step"], event["payload"]["node"]));
        names.collect::<Vec<_>>().join(", ").replace('"', "")
    };
    let run = runtime(kept.store.clone(), &kept.files).start_as(id(), graph.clone(), inputs).await.unwrap();
    run.await.unwrap_err();
    assert_eq!(started(&kept.events()), "1 split, 2 each, 3 nest, 4 one, 5 last, 6 two");
    assert_rebuilds(&kept, &[(&id(), &graph), (&inner, &child)]).await;
    let page = std::fs::read_to_string(kept.path(PAGE)).unwrap();
    assert!(page.contains("item 1: negative"), "{page}");
    runtime(kept.store.clone(), &kept.files).resume(graph.clone(), &id()).await.unwrap().await.unwrap();
    let all = "1 split, 2 each, 3 nest, 4 one, 5 last, 6 two, 2 each, 3 nest, 7 end";
    assert_eq!(started(&kept.events()), all);
    let page = std::fs::read_to_string(kept.path(PAGE)).unwrap();
    assert!(page.contains("7 steps") && !page.contains("errors"), "{page}");
    assert_rebuilds(&kept, &[(&id(), &graph), (&inner, &child)]).await;
}

/// Runs a graph until it ends with a result, and asserts that the objects of the run have the same state and errors.
async fn assert_same_end(graph: &Interpreted, what: &str) {
    let kept = Kept::new();
    let mut ended =
        runtime(kept.store.clone(), &kept.files).start_as(id(), graph.clone(), Map::new()).await.unwrap().await;
    for _ in 0..100 {
        if ended.is_ok() {
            break;
        }
        ended = runtime(kept.store.clone(), &kept.files).resume(graph.clone(), &id()).await.unwrap().await;
    }
    let finished = ended.unwrap();
    assert!(kept.files.problems().is_empty(), "{:?}: {what}", kept.files.problems());
    let trace = kept.files.objects().trace(&id()).unwrap().unwrap();
    assert_eq!(trace.state["state"], finished.state, "{what}");
    let errors = json!(finished.errors);
    assert_eq!(trace.snapshot.get("errors").unwrap_or(&json!([])), &errors, "{what}");
}

#[tokio::test]
async fn files_end_as_the_run_does_after_held_failures() {
    let calls = crate::held::Calls::default();
    for graph in [crate::held::needless_at_once(), crate::held::needless(&calls, false)] {
        assert_same_end(&graph, "").await;
    }
    for seed in 1..=12 {
        assert_same_end(&crate::branches::failing(seed), &format!("SEED={seed}")).await;
    }
}

#[tokio::test]
async fn files_end_as_the_run_does_after_late_branches() {
    for returns in [true, false] {
        assert_same_end(&crate::late::late(3, returns), "").await;
    }
    assert_same_end(&crate::late::returning_late(), "it returns in the late branch").await;
    for (before, cancels) in [(false, false), (true, false), (false, true), (true, true)] {
        let what = format!("before: {before}, cancels: {cancels}");
        assert_same_end(&crate::late::held_in_late(before, cancels), &what).await;
    }
}

#[tokio::test]
async fn files_show_a_run_that_begins_in_several_nodes() {
    let kept = Kept::new();
    let graph = crate::forged_visits::beginning_in_two();
    runtime(kept.store.clone(), &kept.files).start_as(id(), graph.clone(), Map::new()).await.unwrap().await.unwrap();
    let events = kept.events();
    let started = events.iter().find(|event| event["event_type"] == json!("graph_started")).unwrap();
    assert_eq!(started["payload"]["start_node"], json!("one"), "{started}");
    assert_eq!(started["payload"]["start_nodes"], json!(["one", "two"]), "{started}");
    let page = std::fs::read_to_string(kept.path(PAGE)).unwrap();
    assert!(page.contains("entry: `one`, `two`"), "{page}");
    // The start is drawn, and has no row.
    assert!(page.contains("start([\"start\"]):::completed") && page.contains("start ==>|\"1×\"| n1"), "{page}");
    assert!(!page.contains("| config.start |"), "{page}");
    assert!(proven(&kept, &graph).await.is_ok());
    assert_rebuilds(&kept, &[(&id(), &graph)]).await;
}

#[tokio::test]
async fn files_show_a_run_that_begins_at_an_entry() {
    let (kept, graph) = (Kept::new(), crate::entries::graph(""));
    let options = Options { run: Some(id()), entry: Some("redo".to_owned()), ..Options::default() };
    let ended = runtime(kept.store.clone(), &kept.files).start_with(options, graph.clone(), crate::entries::inputs());
    let ended = ended.await.unwrap().await.unwrap();
    let events = kept.events();
    let started = events.iter().find(|event| event["event_type"] == json!("graph_started")).unwrap();
    assert_eq!((&started["payload"]["start_node"], &started["payload"]["entry"]), (&json!("work"), &json!("redo")));
    let page = std::fs::read_to_string(kept.path(PAGE)).unwrap();
    assert!(page.contains("entry: `work` (`redo`)"), "{page}");
    let trace = kept.files.objects().trace(&id()).unwrap().unwrap();
    assert_eq!(trace.state["state"], ended.state);
    assert!(proven(&kept, &graph).await.is_ok());
    assert_rebuilds(&kept, &[(&id(), &graph)]).await;
}

#[tokio::test]
async fn run_page_marks_the_failed_node_and_the_running_node() {
    let failing = Program { settings: "{}", ..KINDS };
    let kept = Kept::new();
    let path = kept.path(PAGE);
    let seen: Arc<std::sync::Mutex<String>> = Arc::default();
    let sees = Arc::clone(&seen);
    let machine = Interpreted::new(&failing, move |call: &Call, params| {
        if call.node() == "fetch | it" {
            *sees.lock().unwrap() = std::fs::read_to_string(&path).unwrap();
        }
        if params["fail"] == true { Err(ActionError::permanent("no")) } else { Ok(Value::Null) }
    });
    let run = runtime(kept.store.clone(), &kept.files).start_as(id(), machine, Map::new()).await.unwrap();
    run.await.unwrap_err();
    let seen = seen.lock().unwrap().clone();
    assert!(seen.contains("| 1 | fetch \\| it | 🔄 | — | test/tool | |") && seen.contains("**🔄 Running**"), "{seen}");
    let page = std::fs::read_to_string(kept.path(PAGE)).unwrap();
    assert!(page.contains("| 3 | breaks | ❌ |") && page.contains("**❌ Error** — 2 steps"), "{page}");
    assert!(!page.contains('🔄'), "{page}");
}

#[cfg(feature = "sqlite")]
mod registry {
    use graph_runtime::files::RegistryEntry;
    use graph_runtime::{Thread, Threads};
    use rusqlite::Connection;

    use super::*;

    fn database(kept: &Kept) -> Connection {
        Connection::open(kept.path(".ai/state/threads/registry.db")).unwrap()
    }

    #[tokio::test]
    async fn the_registry_has_a_row_for_each_run_with_its_result() {
        let kept = Kept::with_every_kind().await;
        let registry = kept.files.registry().unwrap();
        let entry = registry.get("run-1").unwrap().unwrap();
        let result = entry.result.clone().unwrap();
        assert_eq!(result["state"], kept.state);
        assert_eq!((&result["success"], &result["errors_suppressed"]), (&json!(true), &json!(1)));
        let at = Some("2026-03-02T12:00:00.125000+00:00".to_owned());
        let expected = RegistryEntry {
            thread: "run-1".to_owned(),
            directive: "test/graph".to_owned(),
            parent: None,
            status: "completed_with_errors".to_owned(),
            created_at: at.clone(),
            updated_at: at.clone(),
            completed_at: at,
            result: Some(result),
            pid: Some(std::process::id()),
            spawned: 0,
            turns: 0,
            spend: 0.0,
            continuation_of: None,
            continuation: None,
            chain_root: None,
        };
        assert_eq!(entry, expected);
        assert!(registry.active().unwrap().is_empty());
        // A rebuild writes the same row, except that the process is not known.
        let elsewhere = tempfile::tempdir().unwrap();
        let files = ProjectFiles::in_directory(elsewhere.path(), key()).unwrap();
        files.rebuild(&kept.store, &key().public(), &id(), machine(&KINDS).graph()).await.unwrap();
        let rebuilt = files.registry().unwrap().get("run-1").unwrap().unwrap();
        assert_eq!(rebuilt, RegistryEntry { pid: None, ..expected });
    }

    #[tokio::test]
    async fn failed_run_has_no_result_and_is_running_again_after_resume() {
        let failing = Program { settings: "{}", ..KINDS };
        let kept = Kept::new();
        let runtime = runtime(kept.store.clone(), &kept.files);
        runtime.start_as(id(), machine(&failing), Map::new()).await.unwrap().await.unwrap_err();
        let registry = kept.files.registry().unwrap();
        let entry = registry.get("run-1").unwrap().unwrap();
        assert_eq!((entry.status.as_str(), entry.result, entry.completed_at.is_some()), ("error", None, true));
        let (asks, seen) = (registry.clone(), Arc::<std::sync::Mutex<Vec<RegistryEntry>>>::default());
        let sees = Arc::clone(&seen);
        let mends = Interpreted::new(&failing, move |_, _| {
            sees.lock().unwrap().extend(asks.active().unwrap());
            Ok(Value::Null)
        });
        runtime.resume(mends, &id()).await.unwrap().await.unwrap();
        let running = seen.lock().unwrap()[0].clone();
        assert_eq!((running.status.as_str(), running.completed_at.is_some()), ("running", true));
        let thread = registry.thread("run-1").await.unwrap().unwrap();
        assert_eq!((thread.status.as_str(), thread.result.unwrap()["success"].clone()), ("completed", json!(true)));
    }

    #[tokio::test]
    async fn a_nested_run_is_its_parents_child() {
        let kept = Kept::new();
        let tool = graph_runtime::__private::Tool { by: graph_runtime::__private::Executor::Graph, ..PROGRAM.tools[0] };
        let outer = Program {
            tools: &[tool],
            nodes: &[
                ("call", r#"{"line":1,"does":{"action":0},"params":{"x":1},"next":[{"to":"end"}]}"#),
                ("end", r#"{"line":2,"does":"return"}"#),
            ],
            ..PROGRAM
        };
        let inner = Program { id: "test/inner", ..KINDS };
        let nesting = machine(&outer).nesting(machine(&inner));
        runtime(kept.store.clone(), &kept.files).start_as(id(), nesting, Map::new()).await.unwrap().await.unwrap();
        let nested = RunId::new("run-1-1").unwrap();
        assert_rebuilds(&kept, &[(&id(), &machine(&outer)), (&nested, &machine(&inner))]).await;
        let registry = kept.files.registry().unwrap();
        let children = registry.children("run-1").unwrap();
        assert_eq!(children.len(), 1);
        assert_eq!((children[0].thread.as_str(), children[0].directive.as_str()), ("run-1-1", "test/inner"));
        assert_eq!(registry.get("run-1").unwrap().unwrap().spawned, 1);
        let page = std::fs::read_to_string(kept.path(PAGE)).unwrap();
        assert!(page.contains("thread: `run-1-1`"), "{page}");
        let item = std::fs::read_to_string(kept.path(".ai/knowledge/graphs/test/inner/run-1-1.md")).unwrap();
        assert!(item.contains("\nparent_thread_id: run-1\n"), "{item}");
    }

    #[test]
    fn older_registry_gains_its_missing_columns_and_keeps_its_rows() {
        let kept = Kept::new();
        std::fs::create_dir_all(kept.path(".ai/state/threads")).unwrap();
        database(&kept)
            .execute_batch(
                "CREATE TABLE threads (thread_id TEXT PRIMARY KEY, directive TEXT NOT NULL, parent_id TEXT,
                     status TEXT DEFAULT 'created', created_at TEXT, updated_at TEXT, completed_at TEXT, result TEXT);
                 INSERT INTO threads (thread_id, directive, status, created_at) VALUES
                     ('a', 'x', 'continued', '1'), ('b', 'x', 'continued', '2'), ('c', 'x', 'killed', '3'), ('d', 'x', 'released', '4');",
            )
            .unwrap();
        let registry = kept.files.registry().unwrap();
        let names = |entries: Vec<RegistryEntry>| entries.into_iter().map(|entry| entry.thread).collect::<Vec<_>>();
        assert_eq!(names(registry.active().unwrap()), ["c", "b", "a"]);
        for (thread, next) in [("a", "b"), ("b", "c"), ("c", "a")] {
            registry.set_continuation(thread, next, SystemTime::UNIX_EPOCH).unwrap();
        }
        registry.set_chain_info("b", "a", "a").unwrap();
        registry.set_chain_info("c", "a", "b").unwrap();
        let entry = registry.get("c").unwrap().unwrap();
        assert_eq!((entry.status.as_str(), entry.chain_root.as_deref()), ("continued", Some("a")));
        assert_eq!(entry.completed_at.as_deref(), Some("1970-01-01T00:00:00.000000+00:00"));
        assert_eq!(names(registry.chain("b").unwrap()), ["a", "b", "c"], "a chain that goes round is followed once");
        assert!(registry.chain("nobody").unwrap().is_empty());
        let turns: i64 = database(&kept).query_row("SELECT turns FROM threads", [], |row| row.get(0)).unwrap();
        assert_eq!(turns, 0);
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_run_whose_process_is_gone_does_not_stay_running() {
        let kept = Kept::with_every_kind().await;
        let mut gone = std::process::Command::new("true").spawn().unwrap();
        gone.wait().unwrap();
        let set = |pid: u32| {
            let set = "UPDATE threads SET status = 'running', pid = ?1";
            database(&kept).execute(set, [pid]).unwrap();
        };
        let registry = kept.files.registry().unwrap();
        set(std::process::id());
        assert!(registry.settle().unwrap().is_empty(), "this process is alive");
        set(gone.id());
        assert_eq!(registry.settle().unwrap(), ["run-1"]);
        assert_eq!(registry.get("run-1").unwrap().unwrap().status, "error");
        let _: Option<Thread> = registry.thread("run-1").await.unwrap();
    }
}

#[tokio::test]
async fn ref_leads_to_every_result_and_altered_objects_are_refused() {
    let kept = Kept::with_every_kind().await;
    let objects = kept.files.objects();
    let reference = std::fs::read_to_string(kept.path(".ai/state/objects/refs/graphs/run-1.json")).unwrap();
    let hash = objects.reference(&id()).unwrap().unwrap();
    assert_eq!(reference, format!("{{\"hash\": \"{hash}\"}}"));
    let trace = objects.trace(&id()).unwrap().unwrap();
    assert_eq!(trace.state, json!({"kind": "state_snapshot", "schema": 1, "state": kept.state}));
    let snapshot = &trace.snapshot;
    assert_eq!(
        (&snapshot["kind"], &snapshot["schema"], &snapshot["step"]),
        (&json!("execution_snapshot"), &json!(1), &json!(6))
    );
    assert_eq!(snapshot["status"], "completed_with_errors");
    assert_eq!(snapshot["errors"], json!([{"step": 3, "node": "breaks", "error": "<b>no</b>\r\n| really"}]));
    let results: Vec<&Value> = trace.receipts.iter().map(|(_, result)| &result["result"]).collect();
    let made = |n: Value| json!({"n": n, "text": "é😀\u{7f}"});
    let failed = json!({"error": "<b>no</b>\r\n| really", "status": "error"});
    assert_eq!(results, [&made(json!(1)), &json!([made(json!(1)), made(json!(2))]), &failed]);
    for (receipt, _) in &trace.receipts {
        assert_eq!((&receipt["kind"], &receipt["cache_hit"]), (&json!("node_receipt"), &json!(false)));
        assert_eq!(receipt["timestamp"], "2026-03-02T12:00:00Z");
    }
    // An object's bytes are its canonical JSON, and its name is their hash.
    for (file, bytes) in tree(kept.directory.path()) {
        let Some((_, name)) = file.split_once("objects/objects/") else { continue };
        let hash = graph_model::digest::Digest::of(&bytes).to_hex();
        assert_eq!(name, format!("{}/{}/{hash}.json", &hash[..2], &hash[2..4]));
        let value: Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(graph_model::value::canonical_json(&value).into_bytes(), bytes);
        assert!(bytes.is_ascii() || bytes.contains(&0x7f));
        // Reading an object finds one changed byte.
        let mut changed = bytes.clone();
        changed[bytes.len() / 2] ^= 1;
        std::fs::write(kept.path(&file), &changed).unwrap();
        let error = objects.get(&hash.parse().unwrap()).unwrap_err();
        assert!(matches!(error, FilesError::Altered { .. }), "{error}");
        std::fs::write(kept.path(&file), &bytes).unwrap();
    }
    std::fs::remove_dir_all(kept.path(".ai/state/objects/objects")).unwrap();
    assert!(matches!(objects.trace(&id()), Err(FilesError::Missing { .. })));
}

/// A run of many steps.
async fn counting(to: u64) -> (Kept, Interpreted) {
    let body = format!(
        r#"{{"line":1,"does":{{"action":0}},"params":{{"n":"${{state.n}}"}},"assign":{{"n":"${{result}}"}},"next":[{{"to":"end","when":{{"path":"state.n","op":"gte","value":{to}}}}},{{"to":"count"}}]}}"#
    );
    let program = Program {
        keys: &[Key { name: "n", initial: Some("0") }],
        settings: r#"{"max_steps":1000}"#,
        nodes: &[("count", &body), ("end", r#"{"line":2,"does":"return"}"#)],
        ..PROGRAM
    };
    let counts = Interpreted::new(&program, |_, params| Ok(json!(params["n"].as_i64().unwrap() + 1)));
    let kept = Kept::new();
    let run = runtime(kept.store.clone(), &kept.files).start_as(id(), counts.clone(), Map::new()).await.unwrap();
    run.await.unwrap();
    (kept, counts)
}

#[tokio::test]
async fn long_run_page_shows_its_end_and_snapshots_become_rarer() {
    let (kept, counts) = counting(200).await;
    let (item, verified) = kept.files.store().verify(&graph(), &id(), &ring()).unwrap();
    assert_eq!((item.steps, verified.checkpoints), (201, 203));
    let page = std::fs::read_to_string(kept.path(PAGE)).unwrap();
    assert!(
        page.contains("\n*103 earlier lines are left out; the transcript has all of them.*\n\n### Step 52 —"),
        "{page}"
    );
    assert!(
        page.contains("| 200 | count | ✅ |") && page.contains("200 visits") && page.contains("n0 ==>|\"199×\"| n0"),
        "{page}"
    );
    let trace = kept.files.objects().trace(&id()).unwrap().unwrap();
    assert_eq!((trace.receipts.len(), &trace.snapshot["step"]), (200, &json!(201)));
    let snapshots = tree(kept.directory.path())
        .into_values()
        .filter(|bytes| String::from_utf8_lossy(bytes).contains("\"kind\":\"execution_snapshot\""));
    // One at the start and after each of the first 128 steps, then one after every second step, and one at the end.
    assert_eq!(snapshots.count(), 1 + 128 + 36 + 1);
    assert_rebuilds(&kept, &[(&id(), &counts)]).await;
}

#[tokio::test]
async fn a_transcript_reader_skips_invalid_events() {
    let kept = Kept::with_two_steps().await;
    let with_garbage = [b"half a li\n{}\n".as_slice(), &kept.transcript(), b"{\"event_type\":"].concat();
    assert_eq!(graph_runtime::files::transcript_events(&with_garbage).collect::<Vec<_>>(), kept.events());
}

#[test]
fn a_blob_is_found_by_its_hash_and_not_if_it_was_altered() {
    let kept = Kept::new();
    let objects = kept.files.objects();
    let hash = objects.put_blob(b"\0\xff").unwrap();
    let name = hash.to_hex();
    let file = kept.path(&format!(".ai/state/objects/blobs/{}/{}/{name}", &name[..2], &name[2..4]));
    assert_eq!(std::fs::read(&file).unwrap(), b"\0\xff");
    assert_eq!(objects.blob(&hash).unwrap(), b"\0\xff");
    std::fs::write(&file, b"\0\xfe").unwrap();
    assert!(matches!(objects.blob(&hash), Err(FilesError::Altered { .. })));
    assert_eq!(objects.put_blob(b"\0\xff").unwrap(), hash, "writing it again puts it right");
    assert_eq!(objects.blob(&hash).unwrap(), b"\0\xff");
    let hash = objects.put(&json!({"b": 1, "a": [1.0, 1, "😀"]})).unwrap();
    assert_eq!(hash, graph_model::digest::Digest::of(r#"{"a":[1.0,1,"\ud83d\ude00"],"b":1}"#));
    assert_eq!(objects.get(&hash).unwrap(), json!({"a": [1.0, 1, "😀"], "b": 1}));
}

#[cfg(unix)]
#[tokio::test]
async fn links_within_the_project_are_not_written_through() {
    let kept = Kept::new();
    for (link, target) in
        [(".ai/state/threads", "../config"), (".ai/knowledge/graphs", "../config"), (".ai/state/objects", "..")]
    {
        let link = kept.path(link);
        std::fs::create_dir_all(link.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(target, link).unwrap();
    }
    let config = kept.path(".ai/config");
    std::fs::create_dir(&config).unwrap();
    let runtime = runtime(kept.store.clone(), &kept.files);
    runtime.start_as(id(), machine(&KINDS), Map::new()).await.unwrap().await.unwrap();
    assert_eq!(std::fs::read_dir(&config).unwrap().count(), 0);
    let problem = kept.files.problems()[&id()].to_string();
    assert!(problem.contains(".ai/state/threads"), "{problem}");

    // A transcript that is a link is not followed either: nothing is appended to its target or cut from it.
    let kept = Kept::new();
    let precious = kept.path("precious");
    std::fs::write(&precious, "precious").unwrap();
    let transcript = kept.path(&format!(".ai/state/threads/{}/transcript.jsonl", id()));
    std::fs::create_dir_all(transcript.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink("../../../../precious", &transcript).unwrap();
    let runtime = self::runtime(kept.store.clone(), &kept.files);
    runtime.start_as(id(), machine(&KINDS), Map::new()).await.unwrap().await.unwrap();
    assert_eq!(std::fs::read_to_string(&precious).unwrap(), "precious");
    assert!(kept.files.problems().contains_key(&id()));
}

#[cfg(unix)]
#[tokio::test]
async fn a_file_that_cannot_be_written_stops_no_run_and_is_reported() {
    let kept = Kept::new();
    let outside = tempfile::tempdir().unwrap();
    std::fs::create_dir(kept.path(".ai")).unwrap();
    std::os::unix::fs::symlink(outside.path(), kept.path(".ai/knowledge")).unwrap();
    let runtime = runtime(kept.store.clone(), &kept.files);
    let finished = runtime.start_as(id(), machine(&KINDS), Map::new()).await.unwrap().await.unwrap();
    assert_eq!(finished.steps, 6);
    let problems = kept.files.problems();
    assert!(matches!(&*problems[&id()], FilesError::Io { path, .. } if path.ends_with(ITEM)), "{problems:?}");
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0, "no link leads out of the project");
    assert_eq!(verify(&kept.transcript()), Ok(8), "what can be written is");
    // The files are rebuilt when the link is gone.
    std::fs::remove_file(kept.path(".ai/knowledge")).unwrap();
    kept.files.rebuild(&kept.store, &key().public(), &id(), machine(&KINDS).graph()).await.unwrap();
    assert!(kept.files.problems().is_empty());
    kept.files.store().verify(&graph(), &id(), &ring()).unwrap();
}

#[tokio::test]
async fn failed_append_to_a_growing_file_is_written_at_the_next_step() {
    for file in [TRANSCRIPT, JOURNAL] {
        grows_again(file).await;
    }
}

async fn grows_again(file: &str) {
    let kept = Kept::new();
    let path = kept.path(file);
    std::fs::create_dir_all(&path).unwrap();
    let frees = path.clone();
    let machine = Interpreted::new(&KINDS, move |call: &Call, params| {
        if call.node() == "breaks" {
            std::fs::remove_dir(&frees).unwrap();
        } else if call.node() == "mended" {
            // Half a line, as a full disk leaves it.
            let mut text = std::fs::read(&frees).unwrap();
            text.extend(b"{\"bo");
            std::fs::write(&frees, text).unwrap();
        }
        Ok(json!({"n": params["n"]}))
    });
    let run = runtime(kept.store.clone(), &kept.files).start_as(id(), machine.clone(), Map::new()).await.unwrap();
    run.await.unwrap();
    let problems = kept.files.problems();
    assert!(matches!(&*problems[&id()], FilesError::Io { path, .. } if path.ends_with(file)), "{problems:?}");
    kept.files.store().verify(&graph(), &id(), &ring()).unwrap();
    assert_rebuilds(&kept, &[(&id(), &machine)]).await;
}

#[tokio::test]
async fn each_node_of_one_step_is_listed_with_its_next_node() {
    let nodes = &[
        ("fork", r#"{"line":1,"does":"gate","next":{"all":[{"to":"left"},{"to":"right"}]}}"#),
        ("left", r#"{"line":2,"does":{"action":0},"params":{"fail":true},"next":[{"to":"end"}],"on_error":3}"#),
        ("right", r#"{"line":3,"does":{"action":0},"params":{"n":1},"next":[{"to":"join"}]}"#),
        ("join", r#"{"line":4,"does":"gate","next":[{"to":"end"}],"join":{"of":[0,1,2],"fan":0,"closes":true}}"#),
        ("end", r#"{"line":5,"does":"return"}"#),
    ];
    let forks = machine(&Program { nodes, ..PROGRAM });
    let kept = Kept::new();
    let run = runtime(kept.store.clone(), &kept.files).start_as(id(), forks.clone(), Map::new()).await.unwrap();
    run.await.unwrap();
    let steps = kept.events().into_iter().filter(|event| event["event_type"] == "step_completed");
    let steps: Vec<(Value, Value)> =
        steps.map(|event| (event["payload"]["node"].clone(), event["payload"]["next_node"].clone())).collect();
    let expected = [("left", json!("join")), ("right", json!("join")), ("join", json!("end")), ("end", Value::Null)];
    assert_eq!(steps[1..], expected.map(|(node, next)| (json!(node), next)));
    kept.files.store().verify(&graph(), &id(), &ring()).unwrap();
    assert_rebuilds(&kept, &[(&id(), &forks)]).await;
}

#[tokio::test]
async fn elements_in_the_order_of_the_branches_are_in_the_files_too() {
    let nodes = &[
        ("fork", r#"{"line":1,"does":"gate","next":{"all":[{"to":"slow"},{"to":"quick"}]}}"#),
        ("slow", r#"{"line":2,"does":"gate","next":[{"to":"slower"}]}"#),
        ("slower", r#"{"line":3,"does":"gate","assign":{"log":["a","b"]},"next":[{"to":"join"}]}"#),
        ("quick", r#"{"line":4,"does":"gate","assign":{"log":["c"]},"next":[{"to":"join"}]}"#),
        ("join", r#"{"line":5,"does":"gate","next":[{"to":"end"}],"join":{"of":[2,3],"fan":0,"closes":true}}"#),
        ("end", r#"{"line":6,"does":"return"}"#),
    ];
    let settings = r#"{"channels":{"log":"extend"},"by_branch":["log"]}"#;
    let keys = &[Key { name: "log", initial: Some(r#"["first"]"#) }];
    let forks = machine(&Program { nodes, settings, keys, ..PROGRAM });
    let kept = Kept::new();
    let run = runtime(kept.store.clone(), &kept.files).start_as(id(), forks.clone(), Map::new()).await.unwrap();
    assert_eq!(run.await.unwrap().state["log"], json!(["first", "a", "b", "c"]));
    let (item, _) = kept.files.store().verify(&graph(), &id(), &ring()).unwrap();
    assert_eq!(item.state["log"], json!(["first", "a", "b", "c"]));
    assert_rebuilds(&kept, &[(&id(), &forks)]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_runs_at_once_have_their_files_each() {
    let kept = Kept::new();
    let runtime = runtime(kept.store.clone(), &kept.files);
    let name = |number: usize| RunId::new(format!("run-{number}")).unwrap();
    let mut runs = Vec::new();
    for number in 0..12 {
        runs.push(runtime.start_as(name(number), machine(&KINDS), Map::new()).await.unwrap());
    }
    for run in runs {
        run.await.unwrap();
    }
    assert!(kept.files.problems().is_empty(), "{:?}", kept.files.problems());
    for number in 0..12 {
        let (item, verified) = kept.files.store().verify(&graph(), &name(number), &ring()).unwrap();
        assert_eq!((item.run, verified.checkpoints), (name(number), 8));
        assert_eq!(kept.files.objects().trace(&name(number)).unwrap().unwrap().receipts.len(), 3);
    }
}

#[tokio::test]
async fn run_without_store_or_with_failed_start_leaves_no_files() {
    let kept = Kept::new();
    let runtime = Runtime::builder().grant("*").unwrap().observer(kept.files.clone()).build().unwrap();
    runtime.start_as(id(), machine(&KINDS), Map::new()).await.unwrap().await.unwrap();
    let ungranted = Runtime::builder().store(kept.store.clone()).sign_with(key()).observer(kept.files.clone());
    ungranted.build().unwrap().start_as(id(), machine(&KINDS), Map::new()).await.map(drop).unwrap_err();
    assert!(tree(kept.directory.path()).is_empty());
    assert!(kept.files.problems().is_empty());
}

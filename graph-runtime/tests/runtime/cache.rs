//! The cache of nodes: which calls it saves, which results it stores, and which entries it trusts.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use graph_runtime::__private::{Key, Program};
use graph_runtime::cache::{Cache, CacheEntry, CacheFuture, Digest, MemoryCache, NodeCache};
use graph_runtime::record::{Status, Visit};
use graph_runtime::testing::{FaultyStore, StoreFault};
use graph_runtime::{
    ActionError, Builder, Durability, EncryptionKey, Finished, Grants, Map, MemoryStore, Options, RunError, RunId,
    Runtime, SecretKey, Store, Value, audit,
};
use serde_json::json;

use crate::interpreted::{Interpreted, PROGRAM};
use crate::support::failing;

const TWICE: Program<'static> = Program {
    keys: &[Key { name: "n", initial: None }, Key { name: "way", initial: None }],
    nodes: &[
        (
            "twice",
            r#"{"line":1,"does":{"action":0},"params":{"n":"${inputs.n}","nothing":null},"cached":true,"retry":{"attempts":2,"delay_ms":0},"assign":{"n":"${result.n}","way":"${result}"},"next":[{"to":"large","when":{"path":"result.n","op":"gt","value":9}},{"to":"end"}],"on_error":2}"#,
        ),
        ("large", r#"{"line":2,"does":"gate","next":[{"to":"end"}]}"#),
        ("end", r#"{"line":3,"does":"return","output":{"n":"${state.n}","way":"${state.way}"}}"#),
    ],
    ..PROGRAM
};

const EACH: Program<'static> = Program {
    keys: &[Key { name: "all", initial: None }],
    settings: r#"{"on_error":"continue"}"#,
    nodes: &[
        (
            "each",
            r#"{"line":1,"does":{"foreach":0},"params":{"n":"${item}"},"each":{"over":"${inputs.list}","as":"item","collect":"all","width":1},"cached":true,"next":[{"to":"end"}]}"#,
        ),
        ("end", r#"{"line":2,"does":"return"}"#),
    ],
    ..PROGRAM
};

fn key() -> SecretKey {
    SecretKey::from_seed(&[1; 32])
}

fn id(name: &str) -> RunId {
    RunId::new(name).unwrap()
}

/// A tool that doubles numbers, fails for negative ones, and counts its calls.
#[derive(Clone, Default)]
struct Tool(Arc<AtomicUsize>);

impl Tool {
    fn machine(&self, program: &Program<'_>) -> Interpreted {
        let calls = Arc::clone(&self.0);
        Interpreted::new(program, move |_, params| {
            calls.fetch_add(1, Ordering::Relaxed);
            match params["n"].as_i64() {
                Some(n) if n < 0 => Err(ActionError::permanent("it is negative")),
                Some(n) => Ok(json!({"z": 1.5, "n": n * 2, "a": null})),
                None => Ok(json!({"n": params["n"]})),
            }
        })
    }

    fn calls(&self) -> usize {
        self.0.swap(0, Ordering::Relaxed)
    }
}

fn builder(cache: &MemoryCache) -> Builder {
    let cache = NodeCache::new(cache.clone());
    Runtime::builder().sign_with(key()).grant("*").unwrap().cache(cache)
}

async fn start(
    runtime: &Runtime,
    name: &str,
    machine: Interpreted,
    inputs: Value,
) -> Result<Finished<Value>, RunError> {
    let inputs = inputs.as_object().unwrap().clone();
    runtime.start_as(id(name), machine, inputs).await.unwrap().await
}

async fn visits(runtime: &Runtime, name: &str) -> Vec<Visit> {
    runtime.history(&id(name)).await.unwrap()
}

#[tokio::test]
async fn a_cached_call_is_not_repeated_and_all_else_stays_the_same() {
    let (cache, store, tool) = (MemoryCache::new(), MemoryStore::new(), Tool::default());
    let runtime = builder(&cache).store(store.clone()).build().unwrap();
    let first = start(&runtime, "a", tool.machine(&TWICE), json!({"n": 7})).await.unwrap();
    assert_eq!((tool.calls(), cache.entries().len()), (1, 1));
    let second = start(&runtime, "b", tool.machine(&TWICE), json!({"n": 7})).await.unwrap();
    assert_eq!(tool.calls(), 0);
    // The fields of the result keep the tool's order, also when the result becomes a text.
    assert_eq!((second.output.to_string(), second.steps), (first.output.to_string(), 3));
    assert_eq!(second.output, json!({"n": 14, "way": {"z": 1.5, "n": 14, "a": null}}));
    let (first, second) = (visits(&runtime, "a").await, visits(&runtime, "b").await);
    assert_eq!((first[0].cached, second[0].cached, second[1].cached), (false, true, false));
    assert_eq!(
        (&second[0].result, second[0].edge(), &second[0].changes),
        (&first[0].result, Some(0), &first[0].changes)
    );
    let records = store.load(&id("b")).await.unwrap();
    assert!(records[1].body.contains(r#""cached":true"#), "{}", records[1].body);
    let proven = audit(&tool.machine(&TWICE), &id("b"), &records, &key().public(), None).unwrap();
    assert_eq!((proven.status, proven.tools), (Status::Completed, Vec::new()), "no tool was called");
    // A graph whose nodes are not to be cached has no such step.
    let plain: Vec<(&str, String)> =
        TWICE.nodes.iter().map(|(name, body)| (*name, body.replace(r#""cached":true,"#, ""))).collect();
    let nodes: Vec<(&str, &str)> = plain.iter().map(|(name, body)| (*name, body.as_str())).collect();
    let plain = tool.machine(&Program { nodes: &nodes, ..TWICE });
    let refused = audit(&plain, &id("b"), &records, &key().public(), None).unwrap_err().to_string();
    assert!(refused.contains("what node `twice` returned is not to be cached"), "{refused}");
    // Without a store it works the same. Without a cache, or without the setting in the graph, each call is made.
    let ephemeral = builder(&cache).build().unwrap();
    for (n, calls) in [(7, 0), (8, 1), (8, 0)] {
        start(&ephemeral, "c", tool.machine(&TWICE), json!({"n": n})).await.unwrap();
        assert_eq!(tool.calls(), calls, "{n}");
    }
    let none = Runtime::builder().grant("*").unwrap().build().unwrap();
    start(&none, "d", tool.machine(&TWICE), json!({"n": 7})).await.unwrap();
    start(&ephemeral, "d", plain, json!({"n": 7})).await.unwrap();
    assert_eq!(tool.calls(), 2);
}

#[tokio::test]
async fn another_graph_node_tool_version_or_value_is_another_call() {
    let (cache, tool) = (MemoryCache::new(), Tool::default());
    let runtime = builder(&cache).build().unwrap();
    let n = || json!({"n": 7});
    start(&runtime, "a", tool.machine(&TWICE), n()).await.unwrap();
    assert_eq!(tool.calls(), 1);
    let renamed: Vec<(&str, String)> = TWICE.nodes.iter().map(|(name, body)| (*name, body.to_string())).collect();
    let mut renamed: Vec<(&str, &str)> = renamed.iter().map(|(name, body)| (*name, body.as_str())).collect();
    renamed[0].0 = "double";
    for (what, program) in [
        ("graph", Program { digest: "00000000000000000000000000000000000000000000000000000000000000bb", ..TWICE }),
        ("id", Program { id: "test/other", ..TWICE }),
        ("node", Program { nodes: &renamed, ..TWICE }),
        ("contract", Program { settings: r#"{"contracts":{"0":"aa"}}"#, ..TWICE }),
    ] {
        start(&runtime, "b", tool.machine(&program), n()).await.unwrap();
        assert_eq!(tool.calls(), 1, "{what}");
        start(&runtime, "b", tool.machine(&program), n()).await.unwrap();
        assert_eq!(tool.calls(), 0, "{what}");
    }
    let of = |cache: NodeCache| builder(&MemoryCache::new()).cache(cache).build().unwrap();
    let node_cache = || NodeCache::new(cache.clone());
    for (calls, runtime) in [
        (1, of(node_cache().salt("2"))),
        (0, of(node_cache().salt("2"))),
        (1, of(node_cache().tool("test/tool", "2"))),
        (0, of(node_cache().tool("test/tool", "2").tool("another", "3"))),
        (0, runtime.clone()),
    ] {
        start(&runtime, "c", tool.machine(&TWICE), n()).await.unwrap();
        assert_eq!(tool.calls(), calls);
    }
    // The same number in another form is another value. An input that the call does not receive makes no difference.
    for (inputs, calls) in [(json!({"n": 7.0}), 1), (json!({"n": "7"}), 1), (json!({"n": 7, "m": 1}), 0)] {
        start(&runtime, "d", tool.machine(&TWICE), inputs.clone()).await.unwrap();
        assert_eq!(tool.calls(), calls, "{inputs}");
    }
}

#[tokio::test]
async fn failures_and_unusable_results_are_not_cached() {
    let (cache, tool) = (MemoryCache::new(), Tool::default());
    let runtime = builder(&cache).build().unwrap();
    for inputs in [json!({"n": -1}), json!({"n": "text"})] {
        for _ in 0..2 {
            // The second call returns a result, but its edge compares that result with a number.
            let ended = start(&runtime, "a", tool.machine(&TWICE), inputs.clone()).await.unwrap();
            assert_eq!((tool.calls(), ended.steps), (1, 2), "{inputs}");
        }
    }
    assert_eq!(cache.entries().len(), 0);
    // The result of a second attempt is cached like any other.
    let failures = Arc::new(AtomicUsize::new(1));
    let machine = Interpreted::new(&TWICE, move |_, _| match failures.swap(0, Ordering::Relaxed) {
        0 => Ok(json!({"n": 1})),
        _ => Err(ActionError::transient("not yet")),
    });
    start(&runtime, "b", machine, json!({"n": 1})).await.unwrap();
    assert_eq!(cache.entries().len(), 1);
}

#[tokio::test]
async fn nothing_is_cached_before_its_step_is_durable() {
    for durability in [Durability::Sync, Durability::Async, Durability::Exit] {
        for (appends, kept) in [(0, 0), (9, 1)] {
            let (cache, seen) = (MemoryCache::new(), Arc::new(Mutex::new(Vec::new())));
            let (cached, counts) = (cache.clone(), Arc::clone(&seen));
            let store = FaultyStore::new(MemoryStore::new(), move |write| {
                counts.lock().unwrap().push(cached.entries().len());
                // The first write creates the run.
                (write.number > appends + 1).then_some(StoreFault::Fails { written: false })
            });
            let runtime = builder(&cache).store(store).build().unwrap();
            let options = Options { run: Some(id("a")), durability, ..Options::default() };
            let inputs = Map::from_iter([("n".to_owned(), json!(1))]);
            let ended = runtime.start_with(options, Tool::default().machine(&TWICE), inputs).await.unwrap().await;
            assert_eq!((ended.is_ok(), cache.entries().len()), (appends > 0, kept), "{durability:?}");
            assert_eq!(seen.lock().unwrap()[1], 0, "{durability:?}");
        }
    }
}

#[tokio::test]
async fn a_changed_moved_or_foreign_cache_entry_is_not_used() {
    let (cache, store, tool) = (MemoryCache::new(), MemoryStore::new(), Tool::default());
    let runtime = builder(&cache).store(store).build().unwrap();
    for n in [1, 2] {
        start(&runtime, &format!("run-{n}"), tool.machine(&TWICE), json!({"n": n})).await.unwrap();
    }
    tool.calls();
    let entries: Vec<(Digest, String)> = cache.entries().into_iter().collect();
    let ((key_of_one, first), (_, second)) = match entries[0].1.contains(r#""n":2"#) {
        true => (&entries[0], &entries[1]),
        false => (&entries[1], &entries[0]),
    };
    let mut forged = CacheEntry::read(first, key_of_one, &key().public()).unwrap();
    forged.result = json!({"n": 1_000_000});
    let forged = forged.sign(&SecretKey::from_seed(&[2; 32]));
    let bad = [first.replace(r#""n":2"#, r#""n":9"#), second.clone(), forged, "{}".to_owned(), String::new()];
    for (number, bad) in bad.into_iter().enumerate() {
        cache.put(key_of_one, &bad).await.unwrap();
        let name = format!("again-{number}");
        let ended = start(&runtime, &name, tool.machine(&TWICE), json!({"n": 1})).await.unwrap();
        assert_eq!((tool.calls(), &ended.output["n"]), (1, &json!(2)), "{bad}");
        let visit = &visits(&runtime, &name).await[0];
        assert!(!visit.cached && visit.warnings.len() == 1, "{:?}", visit.warnings);
        assert!(visit.warnings[0].contains("is not used, and the call is made: it "), "{:?}", visit.warnings);
        let repaired = &cache.entries()[key_of_one];
        assert!(
            CacheEntry::read(repaired, key_of_one, &key().public()).is_ok(),
            "the call's own result is there again"
        );
    }
}

/// A cache that cannot be reached.
#[derive(Debug)]
struct Away;

impl Cache for Away {
    fn get<'a>(&'a self, _: &'a Digest) -> CacheFuture<'a, Option<String>> {
        Box::pin(async { Err(std::io::Error::other("it is away")) })
    }

    fn put<'a>(&'a self, _: &'a Digest, _: &'a str) -> CacheFuture<'a, ()> {
        Box::pin(async { Err(std::io::Error::other("it is away")) })
    }
}

#[tokio::test]
async fn a_cache_that_fails_stops_no_run() {
    let tool = Tool::default();
    let runtime = builder(&MemoryCache::new()).cache(NodeCache::new(Away)).build().unwrap();
    let ended = start(&runtime, "a", tool.machine(&TWICE), json!({"n": 1})).await.unwrap();
    assert_eq!((tool.calls(), &ended.output["n"]), (1, &json!(2)));
}

#[tokio::test]
async fn each_call_of_a_foreach_has_its_own_cache_entry() {
    let (cache, store, tool) = (MemoryCache::new(), MemoryStore::new(), Tool::default());
    let runtime = builder(&cache).store(store.clone()).build().unwrap();
    let mut before = Vec::new();
    // A failed item is called again; a cached item is not, wherever it is in the list.
    for (name, list, calls, cached) in
        [("a", json!([1, 2, -3]), 3, false), ("b", json!([2, 4, 1]), 1, false), ("c", json!([1, 2, 4]), 0, true)]
    {
        start(&runtime, name, tool.machine(&EACH), json!({"list": list})).await.unwrap();
        let visit = visits(&runtime, name).await.swap_remove(0);
        assert_eq!((tool.calls(), visit.cached), (calls, cached), "{name}");
        let records = store.load(&id(name)).await.unwrap();
        audit(&tool.machine(&EACH), &id(name), &records, &key().public(), None).unwrap();
        before.push(visit.changes["all"].clone());
    }
    assert_eq!(
        before[1],
        json!([{"z": 1.5, "n": 4, "a": null}, {"z": 1.5, "n": 8, "a": null}, {"z": 1.5, "n": 2, "a": null}])
    );
    // Another graph with the same items has its own entries.
    let other = Program { digest: "00000000000000000000000000000000000000000000000000000000000000bb", ..EACH };
    start(&runtime, "d", tool.machine(&other), json!({"list": [1, 2]})).await.unwrap();
    assert_eq!(tool.calls(), 2);
}

#[tokio::test]
async fn a_resumed_run_sees_its_journaled_results_despite_the_cache() {
    let (cache, inner, tool) = (MemoryCache::new(), MemoryStore::new(), Tool::default());
    let runtime = builder(&cache).build().unwrap();
    start(&runtime, "a", tool.machine(&TWICE), json!({"n": 7})).await.unwrap();
    let crashed = builder(&cache).store(failing(&inner, 1, false)).build().unwrap();
    start(&crashed, "b", tool.machine(&TWICE), json!({"n": 7})).await.unwrap_err();
    tool.calls();
    let resumed = builder(&MemoryCache::new()).store(inner).build().unwrap();
    let ended = resumed.resume(tool.machine(&TWICE), &id("b")).await.unwrap().await.unwrap();
    assert_eq!((tool.calls(), &ended.output["n"]), (0, &json!(14)));
}

#[tokio::test]
async fn a_denied_call_is_not_served_from_the_cache() {
    let (cache, tool) = (MemoryCache::new(), Tool::default());
    let program = Program { tools: &[graph_runtime::__private::Tool { id: "", ..TWICE.tools[0] }], ..TWICE };
    let nodes: Vec<(&str, String)> = program
        .nodes
        .iter()
        .map(|(name, body)| (*name, body.replace(r#""cached":true"#, r#""cached":true,"item":"test/tool""#)))
        .collect();
    let nodes: Vec<(&str, &str)> = nodes.iter().map(|(name, body)| (*name, body.as_str())).collect();
    let program = Program { nodes: &nodes, ..program };
    let runtime = builder(&cache).build().unwrap();
    start(&runtime, "a", tool.machine(&program), json!({"n": 1})).await.unwrap();
    assert_eq!((tool.calls(), cache.entries().len()), (1, 1));
    let denied = Options { capabilities: Some(Grants::default()), ..Options::default() };
    let inputs = Map::from_iter([("n".to_owned(), json!(1))]);
    let ended = runtime.start_with(denied, tool.machine(&program), inputs).await.unwrap().await.unwrap();
    assert_eq!((tool.calls(), &ended.state["n"]), (0, &Value::Null));
    let error = ended.state["_last_error"]["error"].as_str().unwrap();
    assert!(error.starts_with("Permission denied"), "{error}");
}

#[tokio::test]
async fn results_with_secrets_are_not_cached_and_keys_reveal_none() {
    const CANARY: &str = "canary-9c2f";
    let machine = |settings: &'static str, echoes: bool| {
        Interpreted::new(&Program { settings, ..TWICE }, move |_, params| match echoes {
            true => Ok(json!({"n": 1, "said": format!("welcome, {}", params["n"])})),
            false => Ok(json!({"n": 1})),
        })
    };
    let inputs = || json!({"n": CANARY});
    let is_secret = r#"{"secrets":{"inputs":{"fields":{"n":"all"}}}}"#;
    let returns = r#"{"secrets":{"tools":{"0":{"fields":{"n":"all"}}}}}"#;
    for (settings, echoes, kept) in [(is_secret, false, 1), (is_secret, true, 0), (returns, false, 0)] {
        let (cache, store) = (MemoryCache::new(), MemoryStore::new());
        let builder = builder(&cache).store(store).encrypt_with(EncryptionKey::from_bytes([2; 32]));
        let runtime = builder.build().unwrap();
        start(&runtime, "a", machine(settings, echoes), inputs()).await.unwrap();
        let entries = cache.entries();
        assert_eq!(entries.len(), kept, "{settings} {echoes}");
        assert!(entries.values().all(|entry| !entry.contains(CANARY)));
        // With another signing key the same value gets another cache key, so nobody can guess values.
        if let Some(at) = entries.keys().next() {
            let other = MemoryCache::new();
            let runtime = Runtime::builder().sign_with(SecretKey::from_seed(&[3; 32])).grant("*").unwrap();
            let runtime = runtime.cache(NodeCache::new(other.clone())).build().unwrap();
            start(&runtime, "a", machine(settings, echoes), inputs()).await.unwrap();
            assert!(!other.entries().contains_key(at) && other.entries().len() == 1);
        }
    }
}

#[test]
fn a_cache_needs_a_key() {
    let error = Runtime::builder().cache(NodeCache::new(MemoryCache::new())).build().unwrap_err();
    assert!(error.to_string().starts_with("a cache needs a key that signs what is in it"), "{error}");
}

#[cfg(feature = "files")]
#[tokio::test]
async fn project_cache_keeps_a_file_per_entry_and_receipts_mark_hits() {
    use graph_runtime::ProjectFiles;
    use graph_runtime::files::ProjectCache;
    let (directory, store, tool) = (tempfile::tempdir().unwrap(), MemoryStore::new(), Tool::default());
    let cache = ProjectCache::in_directory(directory.path()).unwrap();
    let files = ProjectFiles::in_directory(directory.path(), key()).unwrap();
    assert_eq!(cache.keys().unwrap(), []);
    let runtime = Runtime::builder().store(store).sign_with(key()).grant("*").unwrap().observer(files.clone());
    let runtime = runtime.cache(NodeCache::new(cache.clone())).build().unwrap();
    for name in ["a", "b"] {
        start(&runtime, name, tool.machine(&TWICE), json!({"n": 1})).await.unwrap();
    }
    assert_eq!((tool.calls(), files.problems().len()), (1, 0));
    let keys = cache.keys().unwrap();
    assert_eq!(keys.len(), 1);
    let at = keys[0];
    let path = directory.path().join(format!(".ai/state/objects/cache/nodes/{at}.json"));
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(cache.text(&at).unwrap().as_ref(), Some(&text));
    let entry = CacheEntry::read(&text, &at, &key().public()).unwrap();
    assert_eq!((entry.node.as_str(), entry.graph.as_str()), ("twice", "test/graph"));
    let hits = ["a", "b"].map(|name| {
        let trace = files.objects().trace(&id(name)).unwrap().unwrap();
        // The result of the entry is the object in the project's files.
        assert_eq!(trace.receipts[0].0["node_result_hash"], json!(entry.node_result_hash()));
        let transcript = directory.path().join(format!(".ai/state/threads/{name}/transcript.jsonl"));
        let said = std::fs::read_to_string(transcript).unwrap().contains(r#""cache_hit":true"#);
        (trace.receipts[0].0["cache_hit"].clone(), said)
    });
    assert_eq!(hits, [(json!(false), false), (json!(true), true)]);
    std::fs::write(&path, "half a").unwrap();
    start(&runtime, "c", tool.machine(&TWICE), json!({"n": 1})).await.unwrap();
    assert_eq!(tool.calls(), 1);
    cache.remove(&at).unwrap();
    cache.remove(&at).unwrap();
    start(&runtime, "d", tool.machine(&TWICE), json!({"n": 1})).await.unwrap();
    assert_eq!(tool.calls(), 1);
}

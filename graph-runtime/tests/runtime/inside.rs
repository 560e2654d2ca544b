//! Nested runs are proven together with the outer run: each by itself, and that they belong together.

use graph_model::digest::Digest;
use graph_runtime::__private::{Executor, Key, Program, Tool};
use graph_runtime::record::{Record, SignedRecord, Status};
use graph_runtime::store::RunStart;
use graph_runtime::{ActionError, Map, MemoryStore, RunId, Runtime, SecretKey, Store, Value, audit_tree};
use serde_json::json;

use crate::interpreted::{Interpreted, PROGRAM};

pub(crate) const GRAPH: Tool = Tool { by: Executor::Graph, ..PROGRAM.tools[0] };

pub(crate) fn child() -> Interpreted {
    let nodes = &[
        (
            "call",
            r#"{"line":1,"does":{"action":0},"params":{"n":"${inputs.n}"},"assign":{"a":"${result}"},"next":[{"to":"done"}]}"#,
        ),
        ("done", r#"{"line":2,"does":"return","output":{"doubled":"${state.a}"}}"#),
    ];
    let program = Program { id: "test/child", keys: &[Key { name: "a", initial: None }], nodes, ..PROGRAM };
    Interpreted::new(&program, |_, params| match params["n"].as_i64() {
        Some(n) => Ok(json!(n * 2)),
        None => Err(ActionError::permanent("no number")),
    })
}

/// Runs `child` with `n`, and with each of `list`.
fn parent() -> Interpreted {
    let program = Program {
        keys: &[Key { name: "one", initial: None }, Key { name: "all", initial: None }],
        tools: &[GRAPH],
        settings: r#"{"on_error":"continue"}"#,
        permissions: &["rye.execute.tool.test.tool"],
        nodes: &[
            (
                "nest",
                r#"{"line":1,"does":{"action":0},"params":{"n":"${inputs.n}"},"assign":{"one":"${result.output.doubled}"},"next":[{"to":"each"}]}"#,
            ),
            (
                "each",
                r#"{"line":2,"does":{"foreach":0},"params":{"n":"${n}"},"each":{"over":"${inputs.list}","as":"n","collect":"all","width":2},"next":[{"to":"done"}]}"#,
            ),
            ("done", r#"{"line":3,"does":"return"}"#),
        ],
        ..PROGRAM
    };
    Interpreted::new(&program, |_, _| Ok(Value::Null)).nesting(child())
}

pub(crate) fn id(text: &str) -> RunId {
    RunId::new(text).unwrap()
}

pub(crate) fn runtime(store: &MemoryStore) -> Runtime {
    let builder = Runtime::builder().store(store.clone()).sign_with(SecretKey::from_seed(&[1; 32]));
    builder.grant("rye.execute.tool.*").unwrap().build().unwrap()
}

/// The store of a run with these inputs.
async fn ran(inputs: Value) -> MemoryStore {
    let store = MemoryStore::new();
    let Value::Object(inputs) = inputs else { unreachable!() };
    runtime(&store).start_as(id("run"), parent(), inputs).await.unwrap().await.unwrap();
    store
}

/// Returns the proven runs with their numbers of steps, or the error of the audit.
async fn proven(store: &MemoryStore) -> Result<Vec<(String, u64)>, String> {
    let key = SecretKey::from_seed(&[1; 32]).public();
    match audit_tree(std::sync::Arc::new(parent()), &id("run"), store, &key, None).await {
        Ok(audits) => Ok(audits.into_iter().map(|audit| (audit.run.to_string(), audit.steps)).collect()),
        Err(error) => Err(error.to_string()),
    }
}

/// Returns a copy of the store with other records of `run`, or without that run if `records` is `None`.
pub(crate) async fn with(store: &MemoryStore, run: &str, records: Option<Vec<SignedRecord>>) -> MemoryStore {
    let copy = MemoryStore::new();
    for one in store.list().await.unwrap() {
        let kept = match &records {
            _ if one.run.as_str() != run => store.load(&one.run).await.unwrap(),
            Some(records) => records.clone(),
            None => continue,
        };
        copy.create(&one.run, "test/graph", kept).await.unwrap();
    }
    copy
}

async fn forged(store: &MemoryStore, run: &str, from: &str, to: &str) -> MemoryStore {
    let records = store.load(&id(run)).await.unwrap();
    let (key, token) = (SecretKey::from_seed(&[1; 32]), [7; 32]);
    let (mut prev, mut found) = (Digest::of([]), false);
    let forge = |(seq, record): (usize, &SignedRecord)| {
        let said: Value = serde_json::from_str(&record.body).unwrap();
        found |= record.body.contains(from);
        let body = record
            .body
            .replace(from, to)
            .replace(said["prev"].as_str().unwrap(), &prev.to_hex())
            .replace(said["end"].as_str().unwrap(), &Digest::of(token).to_hex());
        let signature = key.sign(&Digest::of(&body));
        let signed = SignedRecord { seq: seq as u64, body, signature, end: Some(token) };
        prev = signed.link();
        signed
    };
    let records = records.iter().enumerate().map(forge).collect();
    assert!(found, "`{from}` is in the journal of `{run}`");
    with(store, run, Some(records)).await
}

#[tokio::test]
async fn audit_proves_inner_runs_of_nodes_and_items_with_their_parent() {
    let store = ran(json!({"n": 4, "list": [1, 2, "x"]})).await;
    let expected = [("run", 3), ("run-1", 2), ("run-2_0", 2), ("run-2_1", 2), ("run-2_2", 0)];
    let expected: Vec<(String, u64)> = expected.map(|(run, steps)| (run.to_owned(), steps)).into();
    assert_eq!(proven(&store).await, Ok(expected));
    let all = store.list().await.unwrap();
    assert!(all.iter().any(|run| run.run.as_str() == "run-2_2" && run.status == Status::Error), "{all:?}");
}

#[tokio::test]
async fn audit_finds_a_valid_run_that_replaced_another() {
    let store = ran(json!({"n": 4, "list": [1, 2]})).await;
    // A run with the right id that no visit started.
    let alone = MemoryStore::new();
    let inputs = Map::from_iter([("n".to_owned(), json!(4))]);
    runtime(&alone).start_as(id("run-1"), child(), inputs).await.unwrap().await.unwrap();
    let other = with(&store, "run-1", Some(alone.load(&id("run-1")).await.unwrap())).await;
    assert_eq!(
        proven(&other).await.unwrap_err(),
        "run `run-1`: record 0 of its journal does not fit the graph: it does not belong to visit 1 of run `run`"
    );
    // The nested run of the same call with other inputs.
    let other = ran(json!({"n": 5, "list": [1, 3]})).await;
    for (run, node) in [("run-1", "nest"), ("run-2_1", "each")] {
        let swapped = with(&store, run, Some(other.load(&id(run)).await.unwrap())).await;
        let found = proven(&swapped).await.unwrap_err();
        let expected = format!("its inputs are not what node `{node}` of run `run` gives");
        assert!(found.ends_with(&expected), "{found}");
    }
    let found = proven(&with(&store, "run-2_0", None).await).await.unwrap_err();
    assert!(found.ends_with("node `each` has the result of a run that has no journal"), "{found}");
}

#[tokio::test]
async fn audit_finds_mismatch_of_signed_inner_and_outer_journals() {
    let store = ran(json!({"n": 4, "list": [1, "x"]})).await;
    for (run, from, to, why) in [
        ("run", r#""doubled":8"#, r#""doubled":9"#, "node `nest` writes something else to `one`"),
        (
            "run",
            r#""steps":2,"output":{"doubled":8}"#,
            r#""steps":3,"output":{"doubled":8}"#,
            "has another result than run `run-1`",
        ),
        ("run", r#""output":{"doubled":2}"#, r#""output":{"doubled":3}"#, "has another result than run `run-2_0`"),
        ("run", "no number (node `call`", "no money (node `call`", "has another failure than run `run-2_1`"),
        ("run", r#""run":"run-1""#, r#""run":"run-2""#, "the run inside node `nest` is not `run-1`"),
        ("run-1", r#""doubled":8"#, r#""doubled":9"#, "the graph returns something else"),
        (
            "run-1",
            r#""grants":["rye.execute.tool.test.tool"]"#,
            r#""grants":["rye.execute.tool.test.tool","rye.execute.tool.*"]"#,
            "it was granted more than the run around it, `run`",
        ),
        ("run-1", r#""node":"nest"},"depth":"#, r#""node":"nest"},"depth":9"#, "it may nest graphs deeper"),
    ] {
        let found = proven(&forged(&store, run, from, to).await).await.unwrap_err();
        assert!(found.contains(why), "{from} → {to}: {found}");
    }
}

#[tokio::test]
async fn a_resume_refuses_a_broken_journal_of_a_nested_run() {
    let store = ran(json!({"n": 4, "list": [1, 2]})).await;
    let all = store.load(&id("run")).await.unwrap();
    let each = all.iter().position(|record| record.body.contains(r#""kind":"step","visits":[{"step":2"#)).unwrap();
    let cut = crate::journal::forged(&all[..=each], |_, body| body.to_owned());
    let unfinished = with(&store, "run", Some(cut)).await;
    let resumed = async |store: &MemoryStore| match runtime(store).resume(parent(), &id("run")).await {
        Ok(run) => Ok(run.await.unwrap().status),
        Err(error) => Err(error.to_string()),
    };
    for inner in ["run-1", "run-2_0", "run-2_1"] {
        let mut records = store.load(&id(inner)).await.unwrap();
        let body = records[1].body.replacen(r#""kind":"step""#, r#""kind":"stop""#, 1);
        records[1].body = body;
        let refused = resumed(&with(&unfinished, inner, Some(records.clone())).await).await.unwrap_err();
        assert!(refused.contains(&format!("run `{inner}`: record 1")), "{refused}");
        records.truncate(1);
        let refused = resumed(&with(&unfinished, inner, Some(records)).await).await.unwrap_err();
        assert!(refused.contains(inner) && refused.contains("were taken away"), "{refused}");
        let refused = resumed(&with(&unfinished, inner, None).await).await.unwrap_err();
        assert!(refused.contains("has the result of a run that has no journal"), "{refused}");
        let other = if inner == "run-1" { "run-2_0" } else { "run-1" };
        let swapped = store.load(&id(other)).await.unwrap();
        assert!(resumed(&with(&unfinished, inner, Some(swapped)).await).await.is_err());
    }
    assert_eq!(resumed(&unfinished).await, Ok(Status::Completed));
}

#[tokio::test]
async fn a_resume_refuses_a_broken_journal_of_a_done_call() {
    let store = ran(json!({"n": 4, "list": [1, 2, 3, 4, 5, 6]})).await;
    let all = store.load(&id("run")).await.unwrap();
    // The process died in the middle of the list.
    let calls = all.iter().position(|record| record.body.contains(r#""kind":"calls""#)).unwrap();
    let cut = crate::journal::forged(&all[..=calls], |_, body| body.to_owned());
    let said: Value = serde_json::from_str(&cut[calls].body).unwrap();
    let inner = said["done"][0]["run"].as_str().unwrap();
    let unfinished = with(&store, "run", Some(cut)).await;
    let resumed = async |store: &MemoryStore| match runtime(store).resume(parent(), &id("run")).await {
        Ok(run) => Ok(run.await.unwrap().status),
        Err(error) => Err(error.to_string()),
    };
    let mut records = store.load(&id(inner)).await.unwrap();
    records[1].body = records[1].body.replacen(r#""kind":"step""#, r#""kind":"stop""#, 1);
    let refused = resumed(&with(&unfinished, inner, Some(records)).await).await.unwrap_err();
    assert!(refused.contains(&format!("run `{inner}`: record 1")), "{refused}");
    let missing = with(&unfinished, inner, None).await;
    let refused = resumed(&missing).await.unwrap_err();
    assert!(refused.contains("has the result of a run that has no journal"), "{refused}");
    assert!(proven(&missing).await.is_err());
    assert!(proven(&forged(&unfinished, inner, r#""doubled":"#, r#""doubled":1"#).await).await.is_err());
    assert_eq!(resumed(&unfinished).await, Ok(Status::Completed));
}

#[tokio::test]
async fn the_runs_of_a_step_that_is_not_committed_are_proven() {
    let store = ran(json!({"n": 4, "list": [1, 2]})).await;
    let all = store.load(&id("run")).await.unwrap();
    // The process died before the first step of the outer run was written.
    let cut = crate::journal::forged(&all[..1], |_, body| body.to_owned());
    let unfinished = with(&store, "run", Some(cut)).await;
    assert_eq!(proven(&unfinished).await, Ok(vec![("run".to_owned(), 0), ("run-1".to_owned(), 2)]));
    let changed = forged(&unfinished, "run-1", r#""doubled":8"#, r#""doubled":9"#).await;
    assert!(proven(&changed).await.unwrap_err().contains("the graph returns something else"));
}

#[tokio::test]
async fn a_nested_run_resumes_only_as_often_as_its_parent() {
    let store = ran(json!({"n": 4, "list": []})).await;
    let records = store.load(&id("run-1")).await.unwrap();
    let head = records[2].body.split(r#""kind":"#).next().unwrap().to_owned();
    let resume = format!(r#"{head}"kind":"resume","steps":1,"grants":["rye.execute.tool.test.tool"],"depth":4}}"#);
    let mut longer = records.clone();
    longer.insert(2, SignedRecord { body: resume, ..records[2].clone() });
    let seq = |body: &str, seq: usize| {
        let said: Value = serde_json::from_str(body).unwrap();
        body.replacen(&format!(r#""seq":{},"#, said["seq"]), &format!(r#""seq":{seq},"#), 1)
    };
    let longer: Vec<SignedRecord> =
        (0..).zip(longer).map(|(at, one)| SignedRecord { seq: at as u64, body: seq(&one.body, at), ..one }).collect();
    let longer = crate::journal::forged(&longer, |_, body| body.to_owned());
    let found = proven(&with(&store, "run-1", Some(longer.clone())).await).await.unwrap_err();
    assert!(found.contains("was resumed more often"), "{found}");
    let limit = crate::journal::forged(&longer, |_, body| {
        body.replacen(r#""kind":"resume","#, r#""kind":"resume","limit":9,"#, 1)
    });
    let found = proven(&with(&store, "run-1", Some(limit)).await).await.unwrap_err();
    assert!(found.contains("only the graph limits how many steps a run inside another takes"), "{found}");
    let granted = r#""grants":["rye.execute.tool.test.tool"]"#;
    for less in [r#""grants":["rye.execute.tool.test.*"]"#, r#""grants":["rye.*.tool.test.tool"]"#] {
        let found = proven(&forged(&store, "run-1", granted, less).await).await.unwrap_err();
        assert!(found.contains("was granted more than the run around it"), "{found}");
    }
}

#[tokio::test]
async fn the_reported_state_of_a_failed_nested_run_is_its_own() {
    let store = ran(json!({"n": "x", "list": ["x"]})).await;
    assert!(proven(&store).await.is_ok());
    for (seen, other) in [
        (r#""state":{"inputs":{"n":"x"}"#, r#""state":{"inputs":{"n":"y"}"#),
        (r#""steps":0,"error""#, r#""steps":1,"error""#),
        (r#""state":{"inputs":{"n":"x"}"#, r#""state":{"_retries":{"done":1},"inputs":{"n":"x"}"#),
        (r#""state":{"inputs":{"n":"x"}"#, r#""state":{"_retries":{"call":"often"},"inputs":{"n":"x"}"#),
    ] {
        let found = proven(&forged(&store, "run", seen, other).await).await.unwrap_err();
        assert!(found.contains("has another state than run `run-1` ended in"), "{found}");
    }
}

#[tokio::test]
async fn a_run_ends_with_the_code_of_the_nested_failure() {
    let fails = |_: &_, _| Err(ActionError::permanent("no luck").with_code("E1"));
    let nodes = &[("call", r#"{"line":1,"does":{"action":0},"params":{}}"#)];
    let child = || Interpreted::new(&Program { id: "test/child", nodes, ..PROGRAM }, fails);
    let nodes = &[("nest", r#"{"line":1,"does":{"action":0},"params":{}}"#)];
    let program = Program { tools: &[GRAPH], permissions: &["rye.execute.tool.test.tool"], nodes, ..PROGRAM };
    let parent = || Interpreted::new(&program, |_, _| Ok(Value::Null)).nesting(child());
    let store = MemoryStore::new();
    runtime(&store).start_as(id("run"), parent(), Map::new()).await.unwrap().await.unwrap_err();
    let key = SecretKey::from_seed(&[1; 32]).public();
    let proven = async |store: &MemoryStore| {
        audit_tree(std::sync::Arc::new(parent()), &id("run"), store, &key, None)
            .await
            .map_err(|error| error.to_string())
    };
    assert_eq!(proven(&store).await.unwrap().len(), 2);
    let coded = forged(&store, "run", r#""code":"E1""#, r#""code":"E2""#).await;
    let found = proven(&coded).await.unwrap_err();
    assert!(found.contains("node `nest` failed with another code than run `run-1`"), "{found}");
    // The outer run fails there only if the nested run failed, even if a hook changed the error.
    let records = store.load(&id("run-1")).await.unwrap();
    let cut = crate::journal::forged(&records[..1], |_, body| body.to_owned());
    let told =
        forged(&with(&store, "run-1", Some(cut)).await, "run", "no luck (node `call` of run `run-1`)", "told").await;
    let found = proven(&told).await.unwrap_err();
    assert!(found.contains("node `nest` failed, and run `run-1` did not"), "{found}");
}

#[tokio::test]
async fn a_hook_may_repeat_the_error_of_a_call_that_was_given_up() {
    for (node, is_given_up) in [
        (r#"{"line":1,"does":{"action":0},"params":{}}"#, false),
        (r#"{"line":1,"does":{"action":0},"params":{},"timeout_ms":60000}"#, true),
    ] {
        let fails = |_: &_, _| Err(ActionError::permanent("no luck").with_code("E1"));
        let nodes = &[("call", r#"{"line":1,"does":{"action":0},"params":{}}"#)];
        let child = || Interpreted::new(&Program { id: "test/child", nodes, ..PROGRAM }, fails);
        let nodes = &[("nest", node)];
        let program = Program { tools: &[GRAPH], permissions: &["rye.execute.tool.test.tool"], nodes, ..PROGRAM };
        let parent = || Interpreted::new(&program, |_, _| Ok(Value::Null)).nesting(child());
        let store = MemoryStore::new();
        runtime(&store).start_as(id("run"), parent(), Map::new()).await.unwrap().await.unwrap_err();
        let key = SecretKey::from_seed(&[1; 32]).public();
        let uncoded = forged(&store, "run", r#","code":"E1""#, "").await;
        let proven = audit_tree(std::sync::Arc::new(parent()), &id("run"), &uncoded, &key, None).await;
        assert_eq!(proven.is_ok(), is_given_up, "{proven:?}");
    }
}

#[tokio::test]
async fn a_foreach_counts_the_calls_that_began_the_runs_of_its_items() {
    let store = ran(json!({"n": 4, "list": [1, "x"]})).await;
    let more = forged(&store, "run", r#""node":"each","#, r#""node":"each","calls":3,"#).await;
    let found = proven(&more).await.unwrap_err();
    assert!(found.contains("counts other calls than those that began the runs inside it"), "{found}");
}

#[tokio::test]
async fn a_nested_run_that_did_not_end_cannot_have_failed() {
    let store = ran(json!({"n": 4, "list": ["x"]})).await;
    let records = store.load(&id("run-2_0")).await.unwrap();
    let cut = crate::journal::forged(&records[..1], |_, body| body.to_owned());
    let found = proven(&with(&store, "run-2_0", Some(cut)).await).await.unwrap_err();
    assert!(found.contains("has a failure of run `run-2_0`, which did not fail"), "{found}");
    let found = proven(&with(&store, "run-2_0", None).await).await.unwrap_err();
    assert!(found.contains("has the result of a run that has no journal"), "{found}");
}

#[tokio::test]
async fn a_visit_counts_the_calls_that_began_its_nested_runs() {
    let store = ran(json!({"n": 4, "list": [1, "x"]})).await;
    let (from, to) = (r#"{"step":2,"node":"each","#, r#"{"step":2,"node":"each","calls":4,"#);
    let found = proven(&forged(&store, "run", from, to).await).await.unwrap_err();
    assert!(found.contains("visit 2 counts other calls"), "{found}");
}

/// Calls `child` twice, and both calls fail; `more` is added to the node.
fn insisting(more: &str) -> Interpreted {
    let body = r#"{"line":1,"does":{"action":0},"params":{"n":"${inputs.n}"},"retry":{"attempts":2,"delay_ms":0,"on":["any"]}}"#;
    let body = body.replacen('{', &format!("{{{more}"), 1);
    let nodes = &[("nest", body.as_str())];
    let program = Program { tools: &[GRAPH], permissions: &["rye.execute.tool.test.tool"], nodes, ..PROGRAM };
    Interpreted::new(&program, |_, _| Ok(Value::Null)).nesting(child())
}

#[tokio::test]
async fn call_repeats_only_after_a_failed_inner_run_or_a_timeout() {
    let proven = async |store: &MemoryStore, more: &str| {
        let key = SecretKey::from_seed(&[1; 32]).public();
        let proven = audit_tree(std::sync::Arc::new(insisting(more)), &id("run"), store, &key, None).await;
        proven.map(|audits| audits.len()).map_err(|error| error.to_string())
    };
    let begun = async |more| {
        let store = MemoryStore::new();
        let inputs = Map::from_iter([("n".to_owned(), json!("x"))]);
        runtime(&store).start_as(id("run"), insisting(more), inputs).await.unwrap().await.unwrap_err();
        store
    };
    for more in ["", r#""timeout_ms":60000,"#] {
        let store = begun(more).await;
        assert_eq!(proven(&store, more).await, Ok(3));
        let first = store.load(&id("run-1")).await.unwrap();
        let open = with(&store, "run-1", Some(crate::journal::forged(&first[..1], |_, body| body.to_owned()))).await;
        let gone = with(&store, "run-1", None).await;
        let other = forged(&gone, "run-1-again1", r#""inputs":{"n":"x"}"#, r#""inputs":{"n":"y"}"#).await;
        let found = proven(&other, more).await.unwrap_err();
        assert!(found.contains("its inputs are not what node `nest` of run `run` gives"), "{found}");
        let (open, gone) = (proven(&open, more).await, proven(&gone, more).await);
        if more.is_empty() {
            assert!(open.as_ref().is_err_and(|found| found.contains("run `run-1` did not fail")), "{open:?}");
            assert!(gone.as_ref().is_err_and(|found| found.contains("that began no run")), "{gone:?}");
        } else {
            assert_eq!((open, gone), (Ok(3), Ok(2)));
        }
    }
}

#[tokio::test]
async fn a_visit_accounts_for_all_runs_that_its_calls_began() {
    let store = ran(json!({"n": 4, "list": []})).await;
    let again = MemoryStore::new();
    for run in store.list().await.unwrap() {
        again.create(&run.run, "test/graph", store.load(&run.run).await.unwrap()).await.unwrap();
    }
    let records = store.load(&id("run-1")).await.unwrap();
    let records =
        crate::journal::forged(&records, |_, body| body.replace(r#""run":"run-1""#, r#""run":"run-1-again1""#));
    again.create(&id("run-1-again1"), "test/child", records).await.unwrap();
    let found = proven(&again).await.unwrap_err();
    assert!(found.contains("node `nest` made its call more often than its run says"), "{found}");
}

#[tokio::test]
async fn a_run_that_ended_after_a_step_began_no_further_nested_run() {
    let nodes = &[
        ("first", r#"{"line":1,"does":"gate","next":[{"to":"nest"}]}"#),
        ("nest", r#"{"line":2,"does":{"action":0},"params":{"n":"${inputs.n}"}}"#),
    ];
    let program = Program { tools: &[GRAPH], permissions: &["rye.execute.tool.test.tool"], nodes, ..PROGRAM };
    let parent = || Interpreted::new(&program, |_, _| Ok(Value::Null)).nesting(child());
    let store = MemoryStore::new();
    let inputs = Map::from_iter([("n".to_owned(), json!("x"))]);
    runtime(&store).start_as(id("run"), parent(), inputs).await.unwrap().await.unwrap_err();
    let key = SecretKey::from_seed(&[1; 32]).public();
    let proven = async |store: &MemoryStore| {
        let proven = audit_tree(std::sync::Arc::new(parent()), &id("run"), store, &key, None).await;
        proven.map(|audits| audits.len()).map_err(|error| error.to_string())
    };
    assert_eq!(proven(&store).await, Ok(2));
    // A hook can end the run there, and then the next node is not visited.
    let behind = forged(&store, "run", r#"`)","node":"nest""#, r#"`)","node":"first""#).await;
    assert_eq!(proven(&with(&behind, "run-2", None).await).await, Ok(1));
    let found = proven(&behind).await.unwrap_err();
    assert!(found.contains("node `nest` made its call more often than its run says"), "{found}");
}

#[tokio::test]
async fn run_ended_by_a_hook_before_its_calls_has_no_inner_run() {
    let nodes = &[(
        "each",
        r#"{"line":1,"does":{"foreach":0},"params":{"n":"${n}"},"each":{"over":"${inputs.list}","as":"n","width":2}}"#,
    )];
    let program = Program { tools: &[GRAPH], permissions: &["rye.execute.tool.test.tool"], nodes, ..PROGRAM };
    let parent = || Interpreted::new(&program, |_, _| Ok(Value::Null)).nesting(child());
    let store = MemoryStore::new();
    let inputs = Map::from_iter([("list".to_owned(), json!(["x"]))]);
    runtime(&store).start_as(id("run"), parent(), inputs).await.unwrap().await.unwrap_err();
    let key = SecretKey::from_seed(&[1; 32]).public();
    let proven = async |store: &MemoryStore| {
        let proven = audit_tree(std::sync::Arc::new(parent()), &id("run"), store, &key, None).await;
        proven.map(|audits| audits.len()).map_err(|error| error.to_string())
    };
    assert_eq!(proven(&store).await, Ok(2));
    // The error names no item, so no call failed with it: only a hook can have set it, before the calls.
    let told = forged(&store, "run", "item 0: no number (node `call` of run `run-1_0`)", "told").await;
    assert_eq!(proven(&with(&told, "run-1_0", None).await).await, Ok(1));
    let found = proven(&told).await.unwrap_err();
    assert!(found.contains("node `each` made its call more often than its run says"), "{found}");
}

#[tokio::test]
async fn repeated_call_resumes_an_inner_run_failed_in_earlier_session() {
    let store = ran(json!({"n": "x", "list": []})).await;
    let records = store.load(&id("run")).await.unwrap();
    let resumed = async |depth: u64| {
        let head = records[1].body.split(r#""kind":"#).next().unwrap().to_owned();
        let resume = format!(r#"{head}"kind":"resume","steps":0,"grants":["rye.execute.tool.*"],"depth":{depth}}}"#);
        let mut longer = records.clone();
        longer.insert(1, SignedRecord { body: resume, ..records[1].clone() });
        let seq = |body: &str, seq: usize| {
            let said: Value = serde_json::from_str(body).unwrap();
            body.replacen(&format!(r#""seq":{},"#, said["seq"]), &format!(r#""seq":{seq},"#), 1)
        };
        let longer: Vec<SignedRecord> = (0..)
            .zip(longer)
            .map(|(at, one)| SignedRecord { seq: at as u64, body: seq(&one.body, at), ..one })
            .collect();
        let longer = crate::journal::forged(&longer, |_, body| body.to_owned());
        proven(&with(&store, "run", Some(longer)).await).await.map(|audits| audits.len())
    };
    assert_eq!(resumed(5).await, Ok(2));
    // The nested run started with the depth of the first session, and so failed in that session.
    let found = resumed(3).await.unwrap_err();
    assert!(found.contains("has the failure of run `run-1`, and did not resume it"), "{found}");
}

#[tokio::test]
async fn all_parameters_of_a_call_have_the_same_time() {
    let nodes = &[(
        "each",
        r#"{"line":1,"does":{"foreach":0},"params":{"n":"${n}","at":"${_timestamp}","text":"<${_now}>"},"each":{"over":"${inputs.list}","as":"n","width":2}}"#,
    )];
    let program = Program { tools: &[GRAPH], permissions: &["rye.execute.tool.test.tool"], nodes, ..PROGRAM };
    let parent = || Interpreted::new(&program, |_, _| Ok(Value::Null)).nesting(child());
    let store = MemoryStore::new();
    let inputs = Map::from_iter([("list".to_owned(), json!([1]))]);
    runtime(&store).start_as(id("run"), parent(), inputs).await.unwrap().await.unwrap();
    let key = SecretKey::from_seed(&[1; 32]).public();
    let proven = async |inputs: Option<Value>| {
        let records = store.load(&id("run-1_0")).await.unwrap();
        let said: Value = serde_json::from_str(&records[0].body).unwrap();
        let records = crate::journal::forged(&records, |_, body| match &inputs {
            Some(inputs) => body.replace(&said["inputs"].to_string(), &inputs.to_string()),
            None => body.to_owned(),
        });
        let store = with(&store, "run-1_0", Some(records)).await;
        let proven = audit_tree(std::sync::Arc::new(parent()), &id("run"), &store, &key, None).await;
        proven.map(|audits| audits.len()).map_err(|error| error.to_string())
    };
    assert_eq!(proven(None).await, Ok(2));
    let at = |n: u64, at: Value, text: &str| Some(json!({"n": n, "at": at, "text": text}));
    assert_eq!(proven(at(1, json!(1_795_291_200_125_u64), "<2026-11-21T20:00:00Z>")).await, Ok(2));
    for other in [
        at(2, json!(1_795_291_200_125_u64), "<2026-11-21T20:00:00Z>"),
        at(1, json!(1_795_291_200_125_u64), "<2026-11-21T20:00:01Z>"),
        at(1, json!(1_795_291_200_125_u64), "2026-11-21T20:00:00Z"),
        at(1, json!("soon"), "<2026-11-21T20:00:00Z>"),
        Some(json!({"n": 1})),
    ] {
        let found = proven(other).await.unwrap_err();
        assert!(found.contains("its inputs are not what node `each` of run `run` gives"), "{found}");
    }
}

#[tokio::test]
async fn run_error_names_the_first_failed_item_and_counts_the_others() {
    let nodes = &[(
        "each",
        r#"{"line":1,"does":{"foreach":0},"params":{"n":"${n}"},"each":{"over":"${inputs.list}","as":"n","width":3},"timeout_ms":60000}"#,
    )];
    let program = Program { tools: &[GRAPH], permissions: &["rye.execute.tool.test.tool"], nodes, ..PROGRAM };
    let parent = || Interpreted::new(&program, |_, _| Ok(Value::Null)).nesting(child());
    let store = MemoryStore::new();
    let inputs = Map::from_iter([("list".to_owned(), json!([1, "x", "x"]))]);
    runtime(&store).start_as(id("run"), parent(), inputs).await.unwrap().await.unwrap_err();
    let key = SecretKey::from_seed(&[1; 32]).public();
    let proven = async |text: &str| {
        let said = "item 1: no number (node `call` of run `run-1_1`), and 1 more";
        let told = forged(&store, "run", said, text).await;
        let proven = audit_tree(std::sync::Arc::new(parent()), &id("run"), &told, &key, None).await;
        proven.map(|audits| audits.len()).map_err(|error| error.to_string())
    };
    // A hook can have set the text, and the first item can have been given up after its run.
    for text in ["item 1: told, and 1 more", "item 0: told, and 2 more"] {
        assert_eq!(proven(text).await, Ok(4), "{text}");
    }
    for text in ["told", "told, and 2 more"] {
        let found = proven(&format!("item 1: {text}")).await.unwrap_err();
        assert!(found.contains("other items of visit 1 failed"), "{text}: {found}");
    }
    for text in ["item 0: told", "item 0: told, and 1 more", "item 2: told, and 1 more"] {
        let found = proven(text).await.unwrap_err();
        assert!(found.contains("other items of visit 1 failed"), "{text}: {found}");
    }
}

#[tokio::test]
async fn a_nested_runs_start_links_it_to_the_visit_that_called_it() {
    let store = ran(json!({"n": 1, "list": [1, 2]})).await;
    let mut linked = Vec::new();
    for one in store.list().await.unwrap() {
        let signed = store.load(&one.run).await.unwrap();
        let records: Vec<Record> = signed.iter().map(|one| serde_json::from_str(&one.body).unwrap()).collect();
        let parents: Vec<_> = records.iter().filter_map(Record::parent).collect();
        assert_eq!(parents.first().map(|parent| &parent.run), one.parent.as_ref(), "the store shows the same");
        assert_eq!(RunStart::of(&signed).parent, one.parent, "and so do the facts that it reads");
        linked.extend(parents.into_iter().map(|parent| (parent.run.to_string(), parent.step, parent.item)));
    }
    linked.sort();
    let run = "run".to_owned();
    assert_eq!(linked, [(run.clone(), 1, None), (run.clone(), 2, Some(0)), (run, 2, Some(1))]);
}

/// Runs `child` in three branches, of which one is needed; with `n` 1 its call never returns.
fn racing() -> Interpreted {
    let child = Interpreted::waiting(
        &Program {
            id: "test/child",
            nodes: &[
                ("first", r#"{"line":1,"does":{"action":0},"params":{"n":0},"next":[{"to":"call"}]}"#),
                ("call", r#"{"line":1,"does":{"action":0},"params":{"n":"${inputs.n}"},"next":[{"to":"done"}]}"#),
                ("done", r#"{"line":2,"does":"return","output":{"n":"${inputs.n}"}}"#),
            ],
            ..PROGRAM
        },
        |_, params| {
            let n = params["n"].as_i64().unwrap();
            Box::pin(async move { if n == 1 { std::future::pending().await } else { Ok(json!(n)) } })
        },
    );
    let program = Program {
        keys: &[],
        tools: &[GRAPH],
        permissions: &["rye.execute.tool.test.tool"],
        nodes: &[
            ("split", r#"{"line":1,"does":"gate","next":{"over":[1,2,1],"as":"n","to":"nest"}}"#),
            ("nest", r#"{"line":2,"does":{"action":0},"params":{"n":"${n}"},"next":[{"to":"met"}]}"#),
            (
                "met",
                r#"{"line":3,"does":"return","join":{"of":[1],"fan":0,"closes":true,"quorum":{"need":1,"fewer":3}}}"#,
            ),
            ("short", r#"{"line":4,"does":"return"}"#),
        ],
        ..PROGRAM
    };
    Interpreted::new(&program, |_, _| Ok(Value::Null)).nesting(child)
}

#[tokio::test]
async fn the_nested_runs_of_branches_that_a_quorum_cancelled_are_cancelled_and_proven() {
    let store = MemoryStore::new();
    runtime(&store).start_as(id("run"), racing(), Map::new()).await.unwrap().await.unwrap();
    let runs = store.list().await.unwrap();
    let statuses: Vec<(String, Status)> = runs.into_iter().map(|run| (run.run.to_string(), run.status)).collect();
    let of = |wanted: Status| statuses.iter().filter(|(_, status)| *status == wanted).count();
    assert_eq!((of(Status::Completed), of(Status::Cancelled), statuses.len()), (2, 2, 4), "{statuses:?}");
    let key = SecretKey::from_seed(&[1; 32]).public();
    let proven = audit_tree(std::sync::Arc::new(racing()), &id("run"), &store, &key, None).await.unwrap();
    assert_eq!(proven.len(), 4);
}

/// Runs a graph whose call never returns, several times, each for a short time.
fn impatient() -> Interpreted {
    let nodes = &[
        ("call", r#"{"line":1,"does":{"action":0},"next":[{"to":"done"}]}"#),
        ("done", r#"{"line":2,"does":"return"}"#),
    ];
    let child =
        Interpreted::waiting(&Program { id: "test/child", nodes, ..PROGRAM }, |_, _| Box::pin(std::future::pending()));
    let nest = r#"{"line":1,"does":{"action":0},"params":{},"timeout_ms":30,"retry":{"attempts":90,"delay_ms":0,"on":["any"]}}"#;
    let program =
        Program { tools: &[GRAPH], permissions: &["rye.execute.tool.test.tool"], nodes: &[("nest", nest)], ..PROGRAM };
    Interpreted::new(&program, |_, _| Ok(Value::Null)).nesting(child)
}

#[tokio::test]
async fn the_run_of_a_call_that_timed_out_is_proven_where_the_run_around_it_was_cancelled() {
    let store = MemoryStore::new();
    let run = runtime(&store).start_as(id("run"), impatient(), Map::new()).await.unwrap();
    let canceller = run.canceller();
    let running = tokio::spawn(run.into_future());
    // The first call has timed out by then.
    while store.list().await.unwrap().len() < 3 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    canceller.cancel();
    running.await.unwrap().unwrap_err();
    let statuses: Vec<Status> = store.list().await.unwrap().into_iter().map(|run| run.status).collect();
    assert!(statuses.len() >= 3 && statuses.iter().all(|status| *status == Status::Cancelled), "{statuses:?}");
    let key = SecretKey::from_seed(&[1; 32]).public();
    let proven = audit_tree(std::sync::Arc::new(impatient()), &id("run"), &store, &key, None).await;
    assert!(proven.is_ok(), "{proven:?}");
}

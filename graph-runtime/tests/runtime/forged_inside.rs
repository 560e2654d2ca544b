//! Forged outcomes of nested runs and origins of forks: an audit refuses each that the other journal does not confirm.

use std::sync::Arc;

use graph_runtime::__private::Program;
use graph_runtime::history::Fork;
use graph_runtime::{ForkRun, Map, MemoryStore, SecretKey, Store, Value, audit_tree};
use serde_json::json;

use crate::forged::edited;
use crate::forged_ends::{is_expected, without};
use crate::inside::{GRAPH, child, id, runtime, with};
use crate::interpreted::{Interpreted, PROGRAM};
use crate::journal::{TWICE, forged};

/// A node that returns.
const RETURN: (&str, &str) = ("done", r#"{"line":1,"does":"return"}"#);

/// A graph that calls `child` in one node, with these further members.
fn calling(more: &str) -> Interpreted {
    let body = format!(r#"{{"line":1,"does":{{"action":0}},"params":{{"n":"${{inputs.n}}"}}{more}}}"#);
    let program = Program {
        tools: &[GRAPH],
        settings: r#"{"on_error":"continue"}"#,
        permissions: &["rye.execute.tool.test.tool"],
        nodes: &[("nest", body.as_str())],
        ..PROGRAM
    };
    Interpreted::new(&program, |_, _| Ok(Value::Null)).nesting(child())
}

async fn ran(machine: &Interpreted, inputs: Value) -> MemoryStore {
    let store = MemoryStore::new();
    let Value::Object(inputs) = inputs else { unreachable!() };
    runtime(&store).start_as(id("run"), machine.clone(), inputs).await.unwrap().await.unwrap();
    store
}

/// Returns the error of an audit of `run` and the runs inside it; empty if it accepts them.
async fn refusal(machine: &Interpreted, run: &str, store: &MemoryStore) -> String {
    let key = SecretKey::from_seed(&[1; 32]).public();
    let audited = audit_tree(Arc::new(machine.clone()), &id(run), store, &key, None).await;
    audited.err().map(|error| error.to_string()).unwrap_or_default()
}

/// Returns a copy of the store in which a record of `run` is edited.
async fn changed(store: &MemoryStore, run: &str, at: usize, edit: impl Fn(&mut Value)) -> MemoryStore {
    let records = edited(&store.load(&id(run)).await.unwrap(), at, edit);
    with(store, run, Some(records)).await
}

/// Returns a copy of the store in which `run` ends with its first record.
async fn cut(store: &MemoryStore, run: &str) -> MemoryStore {
    let records = store.load(&id(run)).await.unwrap();
    with(store, run, Some(forged(&records[..1], |_, body| body.to_owned()))).await
}

/// Makes the failure of a nested run the failure of a call that could not resume it.
fn unresumed(step: &mut Value) {
    let visit = &mut step["visits"][0];
    without(visit, &["data"]);
    visit["error"] = json!("cannot resume run `run-1`: it is at another place");
}

#[tokio::test]
async fn a_result_comes_from_a_nested_run_that_has_one() {
    let machine = calling("");
    let store = ran(&machine, json!({"n": 4})).await;
    assert_eq!(refusal(&machine, "run", &store).await, "");
    let found = refusal(&machine, "run", &cut(&store, "run-1").await).await;
    assert!(found.contains("node `nest` has a result of run `run-1`, which has no result"), "{found}");
}

#[tokio::test]
async fn a_failure_comes_from_a_nested_run_that_failed() {
    let why = "node `nest` has a failure of run `run-1`, which did not fail";
    // With a time limit, a call may leave its run before the run ends.
    let machine = calling(r#","timeout_ms":60000"#);
    let store = ran(&machine, json!({"n": "x"})).await;
    assert_eq!(refusal(&machine, "run", &store).await, "");
    let other = ran(&machine, json!({"n": 4})).await.load(&id("run-1")).await.unwrap();
    let succeeded = edited(&other, 0, |start| start["inputs"] = json!({"n": "x"}));
    let succeeded = with(&store, "run-1", Some(succeeded)).await;
    let open = cut(&store, "run-1").await;
    for (store, own, resumed) in [(&store, "", ""), (&succeeded, why, why), (&open, why, "")] {
        let found = refusal(&machine, "run", store).await;
        assert!(is_expected(&found, own), "{found}");
        let found = refusal(&machine, "run", &changed(store, "run", 1, unresumed).await).await;
        assert!(is_expected(&found, resumed), "{found}");
    }
}

#[tokio::test]
async fn each_call_begins_a_run_unless_something_prevents_that() {
    let retry = r#","retry":{"attempts":2,"delay_ms":0,"on":["any"]}"#;
    for (more, why) in
        [("", "node `nest` made 2 calls, and only 1 of them began a run"), (r#","timeout_ms":60000"#, "")]
    {
        let machine = calling(&format!("{retry}{more}"));
        let store = ran(&machine, json!({"n": "x"})).await;
        assert_eq!(refusal(&machine, "run", &store).await, "");
        let unresumed = changed(&store, "run", 1, unresumed).await;
        assert_eq!(refusal(&machine, "run", &unresumed).await, "", "both calls began a run");
        let found = refusal(&machine, "run", &with(&unresumed, "run-1-again1", None).await).await;
        assert!(is_expected(&found, why), "{found}");
    }
}

#[tokio::test]
async fn an_item_that_began_no_run_leaves_the_count_open() {
    let machine = || {
        let needs = Program { id: "test/child", settings: r#"{"required":["n"]}"#, nodes: &[RETURN], ..PROGRAM };
        let each = r#"{"line":1,"does":{"foreach":0},"params":{"n":"${n}"},"each":{"over":"${inputs.list}","as":"n","width":1}}"#;
        let program = Program {
            tools: &[GRAPH],
            settings: r#"{"on_error":"continue"}"#,
            permissions: &["rye.execute.tool.test.tool"],
            nodes: &[("each", each)],
            ..PROGRAM
        };
        let inside = Interpreted::new(&needs, |_, _| Ok(Value::Null));
        Interpreted::new(&program, |_, _| Ok(Value::Null)).nesting(inside)
    };
    let counted = async |list: Value| {
        let store = ran(&machine(), json!({"list": list})).await;
        assert_eq!(refusal(&machine(), "run", &store).await, "");
        let records = store.load(&id("run")).await.unwrap();
        let step = records.iter().position(|record| record.body.contains(r#""kind":"step""#)).unwrap();
        let more = changed(&store, "run", step, |step| step["visits"][0]["calls"] = json!(3)).await;
        refusal(&machine(), "run", &more).await
    };
    assert_eq!(counted(json!([null])).await, "", "the call was made again and began no run");
    let found = counted(json!([1])).await;
    assert!(found.contains("visit 1 counts other calls"), "{found}");
}

#[tokio::test]
async fn a_fork_names_each_key_that_it_changed() {
    let store = MemoryStore::new();
    let machine = Interpreted::new(&TWICE, |_, _| Ok(json!({"text": "x"})));
    runtime(&store).start_as(id("run"), machine.clone(), Map::new()).await.unwrap().await.unwrap();
    let set = Map::from_iter([("two".to_owned(), json!(50))]);
    let fork = Fork { step: Some(1), set, run: Some(id("fork")), ..Fork::default() };
    runtime(&store).fork(&machine, &id("run"), fork).await.unwrap();
    assert_eq!(refusal(&machine, "fork", &store).await, "");
    let unnamed = changed(&store, "fork", 0, |start| without(&mut start["from"], &["changed"])).await;
    let found = refusal(&machine, "fork", &unnamed).await;
    assert!(found.contains("the state was another where it says that it began in run `run`"), "{found}");
}

//! A run that does not exist: one kind of error, and one message, from every method that takes a run.

use std::sync::Arc;

use graph_runtime::__private::Program;
use graph_runtime::answer::{ANSWER_TYPE, Envelope};
use graph_runtime::history::{EditRun, Fork, ForkRun, StateEdit};
use graph_runtime::{
    Digest, ErrorKind, HasKind, Map, MemoryStore, NamedSignal, Runtime, SecretKey, Single, StepOnce, Store, Value,
    audit_tree,
};
use serde_json::json;

use crate::answers::People;
use crate::interpreted::{Interpreted, PROGRAM};
use crate::secret_answers::secretive;
use crate::support::{KEY, builder, id};

/// A graph that waits for a signal, with a state key.
const WAITING: Program<'static> = Program {
    settings: r#"{"signals":{"paid":{}}}"#,
    nodes: &[
        ("paid", r#"{"line":1,"does":"wait","wait":{"signals":["paid"]},"next":[{"to":"done"}]}"#),
        ("done", r#"{"line":2,"does":"return"}"#),
    ],
    ..PROGRAM
};

/// An envelope with an answer to a question of the run.
fn answer() -> Envelope {
    let none = Digest::of("").to_string();
    let said = json!({
        "answer": "approve", "digest": none, "graph": "test/graph", "node": "ask", "payload": none, "run": "missing",
        "start": none, "v": 1, "wait": "1#1",
    });
    Envelope::new(ANSWER_TYPE, said.to_string().as_bytes())
}

/// Calls every method with the run, and returns what they say.
async fn errors(runtime: &Runtime, store: &MemoryStore) -> Vec<(&'static str, ErrorKind, String)> {
    fn of<T>(method: &'static str, result: Result<T, impl HasKind>) -> (&'static str, ErrorKind, String) {
        match result {
            Ok(_) => (method, ErrorKind::Internal, "it did something".to_owned()),
            Err(error) => (method, error.kind(), error.to_string()),
        }
    }
    let (run, graph) = (id("missing"), Interpreted::new(&WAITING, |_, params| Ok(params)));
    let edit = StateEdit { by: "ann".to_owned(), why: "a test".to_owned(), ..StateEdit::default() };
    let single = Single { node: "paid".to_owned(), ..Single::default() };
    let paid = || NamedSignal::new("paid", Value::from(5));
    let public = SecretKey::from_seed(&KEY).public();
    vec![
        of("outcome", runtime.outcome(&graph, &run).await),
        of("questions", runtime.questions(&graph, &run).await),
        of("answer", runtime.answer(&graph, &run, &answer()).await),
        of("signal", runtime.signal(&graph, &run, paid(), "payment-1").await),
        of(
            "signal inside",
            runtime.signal(&graph, &run, NamedSignal::new("5/paid", Value::from(5)), "payment-1").await,
        ),
        of("release", runtime.release(&graph, &run).await),
        of("resume", runtime.resume(graph.clone(), &run).await),
        of("retry", runtime.retry(graph.clone(), &run).await),
        of("cancel", runtime.cancel(&run).await),
        of("cancel_without_graph", runtime.cancel_without_graph(&run).await),
        of("recorded_outcome", runtime.recorded_outcome(&run).await),
        of("history", runtime.history(&run).await),
        of("edit", runtime.edit(&graph, &run, edit).await),
        of("fork", runtime.fork(&graph, &run, Fork::default()).await),
        of("step_once_in", runtime.step_once_in(Arc::new(graph.clone()), &run, single).await),
        of("audit_tree", audit_tree(Arc::new(graph), &run, store, &public, None).await),
        of("load", store.load(&run).await),
        of("find", store.find(&run).await),
        of("lease", store.lease(&run).await),
        of("inbox", store.inbox(&run).await),
        of("remove", store.remove(&run).await),
    ]
}

#[tokio::test]
async fn a_run_that_does_not_exist_is_one_kind_of_error_everywhere() {
    let store = MemoryStore::new();
    let runtime = secretive(store.clone(), &People::default(), None);
    for (method, kind, text) in errors(&runtime, &store).await {
        assert_eq!(kind, ErrorKind::NotFound, "{method}: {text}");
        let expected = if method == "audit_tree" { "cannot read the journal" } else { "there is no run `missing`" };
        assert!(text.starts_with(expected), "{method}: {text}");
    }
}

#[tokio::test]
async fn a_runtime_without_a_store_says_so_everywhere() {
    let people = People::default();
    let runtime = Runtime::builder().answer_keys(move || people.clone()).grant("*").unwrap().build().unwrap();
    for (method, kind, text) in errors(&runtime, &MemoryStore::new()).await {
        if ["audit_tree", "load", "find", "lease", "inbox", "remove"].contains(&method) {
            continue;
        }
        let expected = (ErrorKind::Internal, "a runtime without a store keeps no runs");
        assert_eq!((kind, text.as_str()), expected, "{method}");
    }
}

#[tokio::test]
async fn an_id_that_is_taken_and_an_input_that_does_not_fit_have_their_kinds() {
    let graph = Interpreted::new(&WAITING, |_, params| Ok(params));
    let runtime = builder(MemoryStore::new()).build().unwrap();
    let started = runtime.start_as(id("run"), graph.clone(), Map::new()).await.unwrap();
    assert_eq!(started.await.unwrap_err().kind(), ErrorKind::Waiting);
    let again = runtime.start_as(id("run"), graph.clone(), Map::new()).await.unwrap_err();
    assert_eq!((again.kind(), again.kind().http_status()), (ErrorKind::Exists, 409));
    let unknown = runtime.signal(&graph, &id("run"), NamedSignal::new("payed", Value::Null), "1").await.unwrap_err();
    assert_eq!((unknown.kind(), unknown.kind().http_status()), (ErrorKind::Invalid, 422));
    runtime.signal(&graph, &id("run"), NamedSignal::new("paid", Value::from(5)), "1").await.unwrap();
    let other = runtime.signal(&graph, &id("run"), NamedSignal::new("paid", Value::from(6)), "1").await.unwrap_err();
    assert_eq!((other.kind(), other.kind().http_status()), (ErrorKind::Conflict, 409));
    runtime.cancel_without_graph(&id("run")).await.unwrap();
    let late = runtime.cancel(&id("run")).await.unwrap_err();
    assert_eq!((late.kind(), late.kind().http_status()), (ErrorKind::Late, 410));
}

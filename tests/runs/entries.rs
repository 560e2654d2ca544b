//! Runs that begin at an entry, of a compiled graph and of the same graph interpreted.

use std::path::Path;

use graph_runtime::dynamic::{Library, ToolFuture, Tools};
use graph_runtime::machine::TypedGraph;
use graph_runtime::{
    ActionError, Call, FromValue, Graph, Map, MemoryStore, Options, RunId, Runtime, SecretKey, Store, Value, audit,
};
use serde_json::json;

graph_runtime::graph!("tests/engines/graphs/begins_at_entries.yaml");

use begins_at_entries::{Actions, ENTRY_ONLY_RIGHT, ENTRY_REDO, ENTRY_SUMMARIZE, ENTRY_TRY, Inputs, Node, Output};

/// Tools whose answers nothing looks at.
#[derive(Clone, Copy)]
struct Reviewers;

impl Actions for Reviewers {
    async fn test_review(&self, _: &Call, params: Map<String, Value>) -> Result<Value, ActionError> {
        assert_eq!(params["path"], json!("c"), "the element is that of the entry");
        Ok(Value::Null)
    }

    async fn test_summary(&self, _: &Call, _: Map<String, Value>) -> Result<Value, ActionError> {
        Ok(Value::Null)
    }
}

impl Tools for Reviewers {
    fn perform<'a>(
        &'a self,
        _: &'a Call,
        _: &'a graph_compiler::graph::TypedTool,
        _: Map<String, Value>,
    ) -> ToolFuture<'a> {
        Box::pin(async { Ok(Value::Null) })
    }
}

/// Runs a graph from an entry, and returns its output and how many nodes it visited.
async fn run<G: Graph>(
    graph: impl Fn() -> G,
    entry: &str,
    inputs: G::Inputs,
    value: impl Fn(&G::Output) -> Value,
) -> (Value, u64) {
    let (store, key) = (MemoryStore::new(), SecretKey::from_seed(&[7; 32]));
    let public = key.public();
    let runtime = Runtime::builder().grant("*").unwrap().store(store.clone()).sign_with(key).build().unwrap();
    let run = RunId::new("run").unwrap();
    let options = Options { run: Some(run.clone()), entry: Some(entry.to_owned()), ..Options::default() };
    let ended = runtime.start_with(options, graph(), inputs).await.unwrap().await.unwrap();
    audit(&graph(), &run, &store.load(&run).await.unwrap(), &public, None).unwrap();
    (value(&ended.output), ended.steps)
}

#[tokio::test]
async fn runs_from_entries_are_the_same_compiled_and_interpreted() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/engines/graphs/begins_at_entries.yaml");
    let library = Library::open(file.parent().unwrap(), Reviewers);
    let inputs = json!({"parts": [{"path": "a", "size": 1}], "part": {"path": "c", "size": 5}});
    let outcomes = [
        (ENTRY_REDO, json!(["c", "reviewed", "left", "right"]), 5, 8),
        (ENTRY_ONLY_RIGHT, json!(["right"]), 0, 4),
        (ENTRY_SUMMARIZE, json!([]), 0, 2),
        (ENTRY_TRY, json!(["left"]), 0, 4),
    ];
    for (entry, reviews, total, steps) in outcomes {
        let expected = (json!({"reviews": reviews, "total": total, "why": inputs["parts"]}), steps);
        let plain = |output: &Output| graph_runtime::__private::AsView::view(output).to_plain_value();
        let typed = Inputs::from_value(inputs.clone()).unwrap();
        assert_eq!(run(|| BeginsAtEntries::new(Reviewers), entry, typed, plain).await, expected, "{entry}");
        let Value::Object(given) = inputs.clone() else { unreachable!() };
        let interpreted = library.graph(&file).unwrap();
        assert_eq!(run(|| interpreted.clone(), entry, given, Value::clone).await, expected, "{entry}, interpreted");
    }
}

#[test]
fn the_topology_has_the_entries() {
    let topology = BeginsAtEntries::new(Reviewers).topology();
    let entries = topology.entries.iter().map(|at| (at.name.as_str(), at.node, at.is_branch, at.element.as_deref()));
    let expected = [
        ("only-right", Node::Right, true, None),
        ("redo", Node::Review, true, Some("inputs.part")),
        ("summarize", Node::Summary, false, None),
        ("try", Node::Left, true, None),
    ];
    assert_eq!(entries.collect::<Vec<_>>(), expected);
}

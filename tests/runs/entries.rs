//! Runs that begin at an entry, of a compiled graph and of the same graph interpreted.

use std::path::Path;

use graph_runtime::dynamic::{Library, ToolFuture, Tools};
use graph_runtime::machine::TypedGraph;
use graph_runtime::{
    ActionError, Call, FromValue, Graph, Map, MemoryStore, Options, RunId, Runtime, SecretKey, Store, Value, audit,
};
use serde_json::json;

graph_runtime::graph!("tests/engines/graphs/begins_at_entries.yaml");
graph_runtime::graph!("tests/engines/graphs/begins_inside_of_branches.yaml");

use begins_at_entries::tools::{test_review, test_summary};
use begins_at_entries::{ENTRY_ONLY_RIGHT, ENTRY_REDO, ENTRY_SUMMARIZE, ENTRY_TRY, Inputs, Node, Output};
use begins_inside_of_branches::tools::test_check;

/// Tools whose answers nothing looks at.
#[derive(Clone, Copy)]
struct Reviewers;

impl test_review::Tool for Reviewers {
    async fn test_review(&self, _: &Call, params: Map<String, Value>) -> Result<Value, ActionError> {
        assert_eq!(params["path"], json!("c"), "the element is that of the entry");
        Ok(Value::Null)
    }
}

impl test_summary::Tool for Reviewers {
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

impl test_check::Tool for Reviewers {
    async fn test_check(&self, call: &Call, params: Map<String, Value>) -> Result<Value, ActionError> {
        assert_eq!((&params["part"], params["line"].as_u64()), (&json!("c"), Some(call.step() + 5)));
        Ok(Value::Null)
    }
}

#[tokio::test]
async fn runs_from_entries_in_lists_of_lists_are_the_same_compiled_and_interpreted() {
    use begins_inside_of_branches::{BeginsInsideOfBranches, ENTRY_AGAIN, ENTRY_BEHIND, ENTRY_PART_AGAIN, Inputs};
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/engines/graphs/begins_inside_of_branches.yaml");
    let library = Library::open(file.parent().unwrap(), Reviewers);
    let inputs = json!({"parts": [{"name": "a", "lines": [1]}], "part": {"name": "c", "lines": [7, 8]}, "line": 7});
    let outcomes = [
        // The fan-outs have the numbers 0 and 1, so the first visit has the number 2.
        (ENTRY_AGAIN, json!({"seen": ["checked", "two", 3], "total": 7}), 9),
        (ENTRY_PART_AGAIN, json!({"seen": ["c", "checked", "two", 3], "total": 15}), 11),
        (ENTRY_BEHIND, json!({"seen": [3], "total": 0}), 2),
    ];
    for (entry, output, steps) in outcomes {
        let expected = (output, steps);
        let plain = |output: &begins_inside_of_branches::Output| {
            graph_runtime::__private::AsView::view(output).to_plain_value()
        };
        let typed = Inputs::from_value(inputs.clone()).unwrap();
        assert_eq!(run(|| BeginsInsideOfBranches::new(Reviewers), entry, typed, plain).await, expected, "{entry}");
        let Value::Object(given) = inputs.clone() else { unreachable!() };
        let interpreted = library.graph(&file).unwrap();
        assert_eq!(run(|| interpreted.clone(), entry, given, Value::clone).await, expected, "{entry}, interpreted");
    }
}

#[test]
fn the_topology_has_the_entries() {
    let given = |elements: &[Option<String>]| elements.iter().flatten().cloned().collect::<Vec<_>>().join(", ");
    let topology = BeginsAtEntries::new(Reviewers).topology();
    let entries = topology.entries.iter().map(|at| (at.name.as_str(), at.node, &at.path[..], given(&at.elements)));
    let expected = [
        ("only-right", Node::Right, &[0][..], String::new()),
        ("redo", Node::Review, &[0], "inputs.part".to_owned()),
        ("summarize", Node::Summary, &[], String::new()),
        ("try", Node::Left, &[0], String::new()),
    ];
    assert_eq!(entries.collect::<Vec<_>>(), expected);
    let topology = begins_inside_of_branches::BeginsInsideOfBranches::new(Reviewers).topology();
    let entries = topology.entries.iter().map(|at| (at.name.as_str(), &at.path[..], given(&at.elements)));
    let expected = [
        ("again", &[0, 0][..], "inputs.part, inputs.line".to_owned()),
        ("behind", &[3], String::new()),
        ("part-again", &[0], "inputs.part".to_owned()),
    ];
    assert_eq!(entries.collect::<Vec<_>>(), expected);
}

//! The graphs of `tests/corpus` are like real ones and have no mistakes: the compiler reports nothing.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::corpus::Corpus;

#[test]
fn a_graph_without_mistakes_has_no_diagnostics() {
    let corpus = Corpus::read();
    let tree = corpus.tree();
    let project = tree.project();
    let mut said = String::new();
    for name in corpus.graphs() {
        let compilation = project.compile(&tree.path(name));
        for diagnostic in &compilation.diagnostics {
            write!(said, "{}\n\n", diagnostic.render()).unwrap();
        }
        assert!(compilation.graph.is_some() || !compilation.diagnostics.is_empty(), "{name} became no graph");
    }
    assert!(said.is_empty(), "\n{said}");
}

#[test]
fn corpus_has_forty_graphs_and_each_contract_has_a_caller() {
    let corpus = Corpus::read();
    let graphs: Vec<&str> = corpus.graphs().collect();
    assert!(graphs.len() >= 40, "{} graphs", graphs.len());
    let tree = corpus.tree();
    let project = tree.project();
    let read: BTreeSet<String> = graphs.iter().flat_map(|name| project.compile(&tree.path(name)).files).collect();
    let unread: Vec<&String> =
        corpus.files.iter().map(|(name, _)| name).filter(|name| !read.contains(&format!("graphs/{name}"))).collect();
    // The callee of a computed id is known only when a graph runs.
    assert_eq!(unread, ["tools/agents/finance.yaml", "tools/agents/legal.yaml", "tools/privacy/erase_crm.yaml"]);
}

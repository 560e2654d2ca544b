//! Reads, parses and checks any text as an unsigned graph, in a tree that contains nothing else.

#![no_main]

use std::path::Path;
use std::sync::LazyLock;

use graph_compiler::project::Project;
use graph_compiler::source::SourceFile;
use libfuzzer_sys::fuzz_target;

/// A tree without graphs and keys. Nested graphs are looked up in it, and not found.
static TREE: LazyLock<tempfile::TempDir> = LazyLock::new(|| {
    let tree = tempfile::tempdir().expect("there is a temporary directory");
    std::fs::create_dir_all(tree.path().join("graphs")).expect("the directory can be made");
    tree
});

fuzz_target!(|text: &str| {
    let graphs = TREE.path().join("graphs");
    let project = Project::open(TREE.path(), Path::new(&graphs));
    let compilation = project.review_source(SourceFile::new(graphs.join("input.yaml"), "graphs/input.yaml", text));
    assert!(compilation.graph.is_none(), "nobody signed this");
    for diagnostic in compilation.diagnostics.iter().take(20) {
        assert!(!diagnostic.render().is_empty());
    }
});

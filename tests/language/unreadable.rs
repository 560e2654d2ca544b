//! An unreadable file is never treated as a missing one. If a directory, contract, graph or settings file of a tree
//! cannot be read, nothing in it compiles, in any front end.
//!
//! Permissions do not bind everybody: a test may run as root. Therefore these tests put a file in place of a directory,
//! make links that form a cycle or lead nowhere, and use names that are too long. Nobody can read these.

#![cfg(unix)]
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::support::sign;
use crate::tree::Tree;
use graph_compiler::code::Level;
use graph_compiler::diagnostic::{Diagnostic, Severity};
use graph_compiler::project::Project;
use graph_runtime::dynamic::{Library, Toolbox};

const HEAD: &str =
    "version: \"1\"\ntool_type: graph\nexecutor_id: rye/core/runtimes/state-graph/runtime\ncategory: shop\n";

/// A graph whose error shows only in the contract of its tool.
fn spliced() -> String {
    sign(&format!(
        "{HEAD}permissions: [rye.execute.tool.t.sql]\n\
         config_schema: {{ type: object, properties: {{ c: {{ type: string }} }}, required: [c] }}\n\
         config: {{ start: a, nodes: {{ a: {{ action: {{ item_id: t/sql, params: {{ q: \"${{inputs.c}}\" }} }} }} }} }}\n"
    ))
}

fn contract() -> String {
    sign("tool_type: rust\nconfig_schema: { type: object, properties: { q: { type: string, x-sink: sql } } }\n")
}

/// A tree with the graph, and its contract below `tools`.
fn tree() -> Tree {
    let tree = Tree::new();
    tree.write("g.yaml", spliced());
    tree.write("tools/t/sql.yaml", contract());
    tree
}

fn codes(diagnostics: &[Diagnostic]) -> Vec<&str> {
    diagnostics.iter().map(|one| one.code.id).collect()
}

/// Asserts that neither the compiler, nor a macro, nor a review, nor the interpreter makes a graph, and that each error
/// names `about`.
#[track_caller]
fn refused(tree: &Tree, about: &str) {
    let (package, graph) = (tree.path("").join(".."), tree.path("g.yaml"));
    let around = Project::around(&package, &graph);
    let interpreted = Library::open(&tree.path(""), Toolbox::new()).graph(&graph).err().unwrap().diagnostics;
    for (front_end, diagnostics) in [
        ("compiler", tree.project().compile(&graph).diagnostics),
        ("macro", around.compile(&graph).diagnostics),
        ("review", tree.project().for_review().review(&graph).diagnostics),
        ("interpreter", interpreted),
    ] {
        let found = diagnostics.iter().find(|one| one.code.id == "G0001");
        let found = found.unwrap_or_else(|| panic!("{front_end}: {:?}", codes(&diagnostics)));
        assert_eq!(found.severity, Severity::Error, "{front_end}");
        assert!(found.message.contains(about), "{front_end}: {}", found.message);
    }
}

#[test]
fn a_contract_that_can_be_read_counts() {
    let tree = tree();
    assert_eq!(codes(&tree.project().compile(&tree.path("g.yaml")).diagnostics), ["G0180"]);
}

#[test]
fn a_file_in_place_of_a_directory_of_tools_is_an_error() {
    let tree = tree();
    fs::remove_dir_all(tree.path("tools/t")).unwrap();
    tree.write("tools/t", "no directory");
    refused(&tree, "tools/t/sql.yaml");
}

#[test]
fn a_file_in_place_of_tools_is_an_error() {
    let tree = tree();
    fs::remove_dir_all(tree.path("tools")).unwrap();
    tree.write("tools", "no directory");
    refused(&tree, "tools");
}

#[test]
fn links_that_lead_round_or_nowhere_are_errors() {
    for (what, to) in [("tools", "tools"), ("tools", "nowhere"), ("tools/t", "t"), ("tools/t", "nowhere")] {
        let tree = tree();
        fs::remove_dir_all(tree.path(what)).unwrap();
        symlink(to, tree.path(what)).unwrap();
        refused(&tree, "tools");
    }
    for to in ["sql.yaml", "nowhere"] {
        let tree = tree();
        fs::remove_file(tree.path("tools/t/sql.yaml")).unwrap();
        symlink(to, tree.path("tools/t/sql.yaml")).unwrap();
        refused(&tree, "tools/t/sql.yaml");
    }
}

#[test]
fn a_linked_directory_of_tools_is_read() {
    let tree = tree();
    fs::rename(tree.path("tools"), tree.path("../elsewhere")).unwrap();
    symlink("../elsewhere", tree.path("tools")).unwrap();
    assert_eq!(codes(&tree.project().compile(&tree.path("g.yaml")).diagnostics), ["G0180"]);
}

#[test]
fn settings_and_keys_that_cannot_be_read_are_errors() {
    let tree = tree();
    symlink("graphs.toml", tree.path("graphs.toml")).unwrap();
    refused(&tree, "graphs.toml");
    let keys = Tree::new();
    keys.write("g.yaml", spliced());
    fs::remove_dir_all(keys.path("keys")).unwrap();
    symlink("keys", keys.path("keys")).unwrap();
    refused(&keys, "keys");
}

#[test]
fn a_graph_that_may_be_the_nested_one_is_read_or_is_an_error() {
    for broken in ["round", "no graph"] {
        let tree = Tree::new();
        tree.write("g.yaml", spliced().replace("t/sql", "shop/inner"));
        let text = sign(&format!(
            "{HEAD}permissions: [rye.execute.tool.shop.inner]\n\
             config: {{ start: a, nodes: {{ a: {{ action: {{ item_id: shop/inner }} }} }} }}\n"
        ));
        tree.write("g.yaml", text);
        match broken {
            "round" => symlink("inner.yaml", tree.path("inner.yaml")).unwrap(),
            _ => tree.write("inner.yaml", "a: [\n"),
        }
        let diagnostics = tree.project().compile(&tree.path("g.yaml")).diagnostics;
        let expected = if broken == "round" { "G0001" } else { "G0020" };
        assert!(codes(&diagnostics).contains(&expected), "{broken}: {:?}", codes(&diagnostics));
    }
}

#[test]
fn a_contract_of_nearly_the_same_name_is_an_error() {
    for name in ["tools/t/SQL.yaml", "tools/t/sql.yml", "tools/T/sql.yaml", "tools/t/sql.YAML", "tools/t/sql.Yml"] {
        let tree = Tree::new();
        tree.write("g.yaml", spliced());
        tree.write(name, contract());
        let diagnostics = tree.project().compile(&tree.path("g.yaml")).diagnostics;
        assert_eq!(codes(&diagnostics), ["G0123"], "{name}");
        assert!(diagnostics[0].message.contains(name), "{}", diagnostics[0].message);
    }
}

#[test]
fn a_strict_tree_notices_a_contract_that_was_removed() {
    let tree = tree();
    tree.write("graphs.toml", sign("[lints]\nG0139 = \"deny\"\n"));
    fs::remove_file(tree.path("tools/t/sql.yaml")).unwrap();
    let diagnostics = tree.project().compile(&tree.path("g.yaml")).diagnostics;
    assert_eq!(codes(&diagnostics), ["G0139"]);
    assert_eq!(diagnostics[0].code.lint, Some(Level::Allow));
    fs::remove_file(tree.path("graphs.toml")).unwrap();
    assert!(tree.project().compile(&tree.path("g.yaml")).graph.is_some());
}

#[test]
fn the_directory_that_cannot_be_read_is_named() {
    let package = tempfile::tempdir().unwrap();
    let walk = graph_compiler::find_graphs(&package.path().join("none"));
    let problems = walk.problems(package.path());
    assert_eq!(codes(&problems), ["G0001"]);
    assert!(problems[0].message.contains("`none`"), "{}", problems[0].message);
    assert!(graph_compiler::graph_files(Path::new("/dev/null")).unwrap_err().to_string().contains("/dev/null"));
}

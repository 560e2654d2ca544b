//! The expansion of graphs, which is the same in a macro and in a build script.

#[path = "../expand/nested.rs"]
mod nested;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use graph_compiler::project::{Compilation, Project};
use graph_compiler::{find_contract_graphs, format, graph_files};
use quote::ToTokens;
use syn::Item;

fn tree() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("graphs")
}

/// Compiles every graph of the repository as `graph!` does: each by itself.
fn compilations() -> Vec<Compilation> {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = graph_files(&tree()).unwrap();
    let all: Vec<Compilation> = files.iter().map(|file| Project::around(package, file).compile(file)).collect();
    for compilation in &all {
        let said: Vec<String> = compilation.diagnostics.iter().map(|found| found.render()).collect();
        assert!(said.is_empty(), "{}", said.join("\n\n"));
    }
    all
}

#[test]
fn each_graph_expands_to_its_snapshot() {
    for compilation in compilations() {
        insta::with_settings!({ prepend_module_to_snapshot => false, snapshot_path => "../expand", omit_expression => true }, {
            insta::assert_snapshot!(compilation.name.clone(), format(&compilation.expand()));
        });
    }
}

#[test]
fn a_graph_with_reducers_of_the_program_expands_to_its_snapshot() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let file = package.join("tests/engines/graphs/channels_combined_by_the_program.yaml");
    let compilation = Project::around(package, &file).compile(&file);
    insta::with_settings!({ prepend_module_to_snapshot => false, snapshot_path => "../expand", omit_expression => true }, {
        insta::assert_snapshot!(compilation.name.clone(), format(&compilation.expand()));
    });
}

/// The modules of graphs, and those of contracts with the graphs that have each, as texts.
#[derive(Default)]
struct Written {
    graphs: BTreeSet<String>,
    contracts: BTreeMap<String, String>,
}

impl Written {
    fn read(&mut self, items: Vec<Item>) {
        for item in items {
            let Item::Mod(mut module) = item else { continue };
            let Some((_, items)) = &mut module.content else { continue };
            if module.ident == "tools" {
                let contracts = items.iter().filter(|item| matches!(item, Item::Mod(_)));
                let texts = contracts.map(|one| without_callers(&plain(one)));
                texts.for_each(|(text, callers)| drop(self.contracts.insert(text, callers)));
                continue;
            }
            if !items.iter().any(|item| matches!(item, Item::Const(one) if one.ident == "ID")) {
                self.read(std::mem::take(items));
                continue;
            }
            let is_of_tools = |item: &Item| match item {
                Item::Mod(inner) => inner.ident == "tools",
                Item::Use(one) => one.tree.to_token_stream().to_string().ends_with(":: tools"),
                _ => false,
            };
            let (tools, rest) = std::mem::take(items).into_iter().partition(is_of_tools);
            *items = rest;
            self.graphs.insert(plain(&module));
            self.read(tools);
        }
    }
}

/// Returns the text of an item without the white space and the commas that depend on how lines are broken.
fn plain(item: &impl ToTokens) -> String {
    let text = item.to_token_stream().to_string();
    text.chars().filter(|letter| !letter.is_whitespace() && *letter != ',').collect()
}

/// Takes the names of the graphs out of the text of a contract's module.
fn without_callers(text: &str) -> (String, String) {
    let Some((before, rest)) = text.split_once("graphswithit:") else { return (text.to_owned(), String::new()) };
    let (callers, behind) = rest.split_once('"').unwrap();
    (format!("{before}{behind}"), callers.to_owned())
}

/// A macro has the contracts in the module of the graph, a build script in one module of all graphs.
#[test]
fn the_macro_and_the_build_script_write_the_same() {
    let items = |text: &str| syn::parse_file(text).unwrap().items;
    let (mut by_script, mut by_macro) = (Written::default(), Written::default());
    by_script.read(items(&fs::read_to_string(Path::new(env!("OUT_DIR")).join("graphs.rs")).unwrap()));
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let of_contracts = find_contract_graphs(&tree()).into_iter();
    let of_contracts = of_contracts.map(|file| Project::around(package, &file).compile(&file));
    for compilation in compilations().into_iter().chain(of_contracts) {
        by_macro.read(items(&format(&compilation.expand())));
    }
    assert!(by_script.graphs.len() > 20 && by_script.contracts.len() > 10);
    assert!(by_script.graphs == by_macro.graphs);
    assert!(by_script.contracts.keys().eq(by_macro.contracts.keys()));
    let has_shared = |written: &Written| written.contracts.values().any(|callers| callers.contains("``"));
    assert!(has_shared(&by_script) && !has_shared(&by_macro));
}

#[test]
fn compiling_twice_gives_the_same_bytes() {
    let texts = || compilations().iter().map(|compilation| compilation.expand().to_string()).collect::<Vec<_>>();
    assert_eq!(texts(), texts());
}

/// In a member of a workspace, rustc starts in the workspace's directory and a build script in the member's.
#[test]
fn graph_source_path_is_package_relative_wherever_rustc_starts() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    assert!(package.starts_with(std::env::current_dir().unwrap()));
    let file = package.join("ui/graphs/order.yaml");
    let compilation = Project::around(&package, &file).compile(&file);
    assert!(compilation.graph.is_some());
    let text = format(&compilation.expand());
    assert!(text.contains("source: \"ui/graphs/order.yaml\"") && !text.contains("tests/ui"), "{text}");
}

//! The expansion of graphs, which is the same in a macro and in a build script.

#[path = "../expand/nested.rs"]
mod nested;

use std::fs;
use std::path::{Path, PathBuf};

use graph_compiler::project::{Compilation, Project};
use graph_compiler::{MODULES, find_contract_graphs, format, graph_files};

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

#[test]
fn the_macro_and_the_build_script_write_the_same_bytes() {
    let written = fs::read_to_string(Path::new(env!("OUT_DIR")).join(MODULES)).unwrap();
    let mut rest = written.as_str();
    for compilation in compilations() {
        let module = format(&compilation.expand());
        assert!(rest.contains(&module), "{} differs from what the build script wrote", compilation.name);
        rest = &rest[rest.find(&module).unwrap() + module.len()..];
    }
    // Graphs that contracts mean are in a module of their directory, where lines are broken in other places.
    let plain =
        |text: &str| text.chars().filter(|letter| !letter.is_whitespace() && *letter != ',').collect::<String>();
    let (package, mut of_contracts) = (Path::new(env!("CARGO_MANIFEST_DIR")), plain(rest));
    for file in find_contract_graphs(&tree()) {
        let module = plain(&format(&Project::around(package, &file).compile(&file).expand()));
        assert!(of_contracts.contains(&module), "{} differs from what the build script wrote", file.display());
        of_contracts = of_contracts.replacen(&module, "", 1);
    }
    assert!(
        of_contracts.starts_with("///Thegraphsofthedirectory`parcels`.") && of_contracts.len() < 300,
        "{of_contracts}"
    );
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

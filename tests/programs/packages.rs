//! The packages of the published crates: each has everything that a registry shows, and no key.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Runs cargo in the repository, and returns its output.
fn cargo(arguments: &[&str]) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(env!("CARGO")).current_dir(root).args(arguments).output().unwrap();
    assert!(output.status.success(), "cargo {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the published crates, as `cargo metadata` describes them.
fn published() -> Vec<Value> {
    let metadata: Value = serde_json::from_str(&cargo(&["metadata", "--no-deps", "--format-version=1"])).unwrap();
    let packages = metadata["packages"].as_array().unwrap().iter();
    // An empty list of registries is `publish = false`.
    packages.filter(|package| package["publish"].is_null()).cloned().collect()
}

#[test]
fn each_package_says_what_it_is_and_under_which_licence() {
    let published = published();
    assert!(published.len() >= 15, "the crates are found: {}", published.len());
    for package in &published {
        let name = &package["name"];
        for member in ["description", "license", "readme", "rust_version"] {
            assert!(package[member].as_str().is_some_and(|text| !text.is_empty()), "{name} has no `{member}`");
        }
        for list in ["keywords", "categories"] {
            assert!(package[list].as_array().is_some_and(|list| !list.is_empty()), "{name} has no `{list}`");
        }
        let dependencies = package["dependencies"].as_array().unwrap().iter();
        for dependency in dependencies.filter(|one| one["kind"] != "dev" && !one["path"].is_null()) {
            let version = dependency["req"].as_str().unwrap();
            assert_eq!(version, "=0.1.0", "{name} depends on {} of another release", dependency["name"]);
        }
    }
}

#[test]
fn each_package_has_its_licences_and_readme_and_no_key() {
    for package in published() {
        let name = package["name"].as_str().unwrap();
        let listed = cargo(&["package", "--list", "--allow-dirty", "--offline", "--package", name]);
        let files: Vec<&str> = listed.lines().collect();
        for needed in ["Cargo.toml", "README.md", "LICENSE-MIT", "LICENSE-APACHE"] {
            assert!(files.contains(&needed), "the package {name} has no {needed}");
        }
        let keys: Vec<_> = files
            .iter()
            .filter(|file| file.contains("private") || file.ends_with(".pem") || file.ends_with(".key"))
            .collect();
        assert!(keys.is_empty(), "the package {name} has keys: {keys:?}");
    }
}

/// Cargo leaves out a directory with a manifest of its own, so a template must not have that name.
#[test]
fn the_package_of_the_command_line_has_its_templates() {
    let listed = cargo(&["package", "--list", "--allow-dirty", "--offline", "--package", "state-graph-cli"]);
    let source = include_str!("../../graph-cli/src/command/new.rs");
    let templates: Vec<&str> =
        source.split("include_str!(\"../../").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert!(templates.len() > 5, "{templates:?}");
    for template in templates {
        assert!(listed.lines().any(|file| file == template), "the package lacks {template}");
    }
}

//! Every kind of mistake that a graph can have. Each file of `tests/catalogue` is a whole graph as people write them,
//! with one mistake. The compiler finds it at its place and reports one error; nothing follows from it.
//!
//! Comments contain the expected errors, as in `tests/check`. The graphs call the tools of `tests/corpus`, and
//! contracts with a mistake in `tests/catalogue/tools`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::clerk::trust_a_clerk;
use crate::corpus::Corpus;
use crate::expected::{Expected, difference, yaml_files};
use crate::support::sign;
use graph_compiler::code::ALL;

/// The last of the codes that are not about a graph's content; `tests/language/bad_input.rs` covers them.
const LAST_OF_THE_FILE: &str = "G0019";

/// The mistakes with their expected errors, and the tree in which they are compiled.
struct Catalogue {
    tree: crate::tree::Tree,
    files: Vec<(String, Vec<Expected>)>,
}

impl Catalogue {
    fn read() -> Self {
        let tree = Corpus::read().tree();
        trust_a_clerk(&tree);
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/catalogue");
        let mut files = Vec::new();
        for file in yaml_files(&directory) {
            let name = file.strip_prefix(&directory).unwrap().to_str().unwrap().replace('\\', "/");
            let text = fs::read_to_string(&file).unwrap();
            tree.write(&name, sign(&text));
            files.push((name.clone(), Expected::read(&name, &text)));
        }
        Self { tree, files }
    }

    fn graphs(&self) -> impl Iterator<Item = &(String, Vec<Expected>)> {
        self.files.iter().filter(|(name, _)| !name.contains('/'))
    }
}

#[test]
fn each_mistake_is_found_at_its_place_and_brings_one_error() {
    let catalogue = Catalogue::read();
    let project = catalogue.tree.project();
    let mut failures = String::new();
    for (name, expected) in catalogue.graphs() {
        let compilation = project.compile(&catalogue.tree.path(name));
        let called = catalogue
            .files
            .iter()
            .filter(|(file, _)| file.contains('/') && compilation.files.contains(&format!("graphs/{file}")));
        let expected: Vec<Expected> =
            expected.iter().chain(called.flat_map(|(_, expected)| expected)).cloned().collect();
        let count = expected.len();
        let mut difference = difference(expected, &compilation);
        if count != 1 {
            writeln!(difference, "{count} errors are expected, and it should be one").unwrap();
        }
        if !difference.is_empty() {
            write!(failures, "== tests/catalogue/{name}; lines count the signature ==\n\n{difference}\n").unwrap();
        }
    }
    assert!(failures.is_empty(), "\n{failures}");
}

#[test]
fn catalogue_has_sixty_mistake_kinds_and_covers_every_code() {
    let catalogue = Catalogue::read();
    assert!(catalogue.graphs().count() >= 60);
    let titles: Vec<&str> = catalogue.files.iter().flat_map(|(_, all)| all).map(|one| one.title.as_str()).collect();
    let shown = |id: &str| titles.iter().any(|title| title.contains(id));
    let without: BTreeSet<&str> =
        ALL.iter().map(|code| code.id).filter(|id| *id > LAST_OF_THE_FILE && !shown(id)).collect();
    // The count of further mistakes, a diagnostic that is allowed by default, and mistakes in directives and in files of tests.
    assert_eq!(without, BTreeSet::from(["G0029", "G0139", "G0191", "G0192", "G0230"]));
}

//! Every kind of mistake that a graph can have, one in each file of `tests/catalogue`: a whole graph as people write them, with
//! this one thing wrong. It is found at its place, with one error; nothing follows from it.
//!
//! What is expected stands in comments, as in `tests/check`. What the graphs call is that of `tests/corpus`, and contracts
//! with a mistake in them in `tests/catalogue/tools`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::corpus::Corpus;
use crate::expected::{Expected, difference, yaml_files};
use crate::support::sign;
use graph_compiler::code::ALL;

/// The codes that are not about what a graph says; `tests/language/bad_input.rs` has them.
const LAST_OF_THE_FILE: &str = "G0019";

/// The mistakes, each with what is expected, and the tree that they are compiled in.
struct Catalogue {
    tree: crate::tree::Tree,
    files: Vec<(String, Vec<Expected>)>,
}

impl Catalogue {
    fn read() -> Self {
        let tree = Corpus::read().tree();
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
    // The number of further mistakes, and what is allowed where no settings say otherwise.
    assert_eq!(without, BTreeSet::from(["G0029", "G0139"]));
}

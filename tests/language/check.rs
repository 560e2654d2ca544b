//! Every rule has a file in `tests/check` that breaks it. The comments under a line contain everything that the
//! compiler must say about that line:
//!
//! ```yaml
//!       next: delivred
//! #           ^^^^^^^^ error[G0102]: part of the message
//! #           help: part of the help
//! ```
//!
//! The first `^` is the column where the place begins. `#<` is the first column, and `# file:` is a file as a whole or
//! its signature. Files without such comments compile. Contracts in `tests/check/tools` have their own comments, which
//! count for the graphs that are compiled with them.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::clerk::trust_a_clerk;
use crate::expected::{Expected, difference, yaml_files};
use crate::support::sign;
use crate::tree::Tree;
use graph_compiler::code::{ALL, DiagnosticCode};
use graph_compiler::project::{Compilation, Project};

/// The codes that no text of a signed graph can cause; `tests/language/bad_input.rs` covers them.
const OF_THE_FILE: [(&str, &str); 18] = [
    ("G0001", "there is no text to read"),
    ("G0002", "more than 4 MiB"),
    ("G0003", "a fixture is UTF-8"),
    ("G0004", "no text"),
    ("G0010", "fixtures are signed"),
    ("G0011", "fixtures are signed as they are"),
    ("G0012", "fixtures are signed with a trusted key"),
    ("G0013", "fixtures are signed with a key that was not revoked"),
    ("G0014", "fixtures are signed with the key that they name"),
    ("G0015", "fixtures have the signature line that the compiler's own signing writes"),
    ("G0016", "a key's file, not the graph's"),
    ("G0017", "a settings file, not the graph's"),
    ("G0029", "more mistakes than a fixture has"),
    ("G0158", "the fixtures have a contract of their own for `rye/bash`"),
    ("G0139", "allowed where no settings say otherwise"),
    ("G0191", "a file of the project, not the graph's"),
    ("G0192", "a file of the project, not the graph's"),
    ("G0230", "a file of tests, not the graph's"),
];

/// The fixtures, and the tree in which they are compiled.
pub(crate) struct Fixtures {
    pub(crate) tree: Tree,
    project: Project,
    /// Every file below `tests/check`, relative to it.
    files: Vec<String>,
}

impl Fixtures {
    pub(crate) fn new() -> Self {
        let tree = Tree::new();
        trust_a_clerk(&tree);
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/check");
        let mut files = Vec::new();
        for file in yaml_files(&directory) {
            let name = file.strip_prefix(&directory).unwrap().to_str().unwrap().replace('\\', "/");
            tree.write(&name, sign(&fs::read_to_string(&file).unwrap()));
            files.push(name);
        }
        let project = tree.project();
        Self { tree, project, files }
    }

    pub(crate) fn graphs(&self) -> impl Iterator<Item = &String> {
        self.files.iter().filter(|name| !name.contains('/'))
    }

    pub(crate) fn compile(&self, name: &str) -> Compilation {
        self.project.compile(&self.tree.path(name))
    }

    /// Reads the expectations in a file's comments, not counting the signature line of the file in the tree.
    fn expected(&self, name: &str) -> Vec<Expected> {
        let text = fs::read_to_string(self.tree.path(name)).unwrap();
        Expected::read(name, text.split_once('\n').unwrap().1)
    }
}

#[test]
fn each_fixture_yields_exactly_its_expected_diagnostics() {
    let fixtures = Fixtures::new();
    let mut failures = String::new();
    for name in fixtures.graphs() {
        let compilation = fixtures.compile(name);
        let mut expected = fixtures.expected(name);
        let contracts = fixtures.files.iter().filter(|file| compilation.files.contains(&format!("graphs/{file}")));
        // Other fixtures that a computed id may name are read too, and their mistakes are reported in their own files.
        expected.extend(contracts.filter(|file| file.contains('/')).flat_map(|file| fixtures.expected(file)));
        let difference = difference(expected, &compilation);
        if !difference.is_empty() {
            write!(failures, "== tests/check/{name}; lines count the signature ==\n\n{difference}\n").unwrap();
        }
    }
    assert!(failures.is_empty(), "\n{failures}");
}

#[test]
fn each_code_has_a_fixture_or_concerns_the_file_itself() {
    let fixtures = Fixtures::new();
    let expected: Vec<Expected> = fixtures.files.iter().flat_map(|name| fixtures.expected(name)).collect();
    let shown = |code: &DiagnosticCode| expected.iter().any(|expected| expected.title.contains(code.id));
    let without: BTreeSet<&str> = ALL.iter().filter(|code| !shown(code)).map(|code| code.id).collect();
    assert_eq!(without, OF_THE_FILE.iter().map(|&(id, _)| id).collect());
}

#[test]
fn a_fixture_with_mistakes_still_expands() {
    let fixtures = Fixtures::new();
    for name in fixtures.graphs() {
        let compilation = fixtures.compile(name);
        let text = graph_compiler::format(&compilation.expand());
        let known = format!("pub mod {} {{", compilation.name);
        let unknown = format!("pub use mistakes_in_{}::{{", compilation.name.trim_start_matches("r#"));
        assert!(text.contains(&known) || text.contains(&unknown), "{name}:\n{text}");
    }
}

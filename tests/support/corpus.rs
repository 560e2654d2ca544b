//! The clean corpus: graphs of many domains that have no mistake, with the contracts of their tools.

use std::fs;
use std::path::Path;

use graph_compiler::is_test_file;

use crate::expected::yaml_files;
use crate::support::sign;
use crate::tree::Tree;

/// The corpus as it is in the repository, without signatures.
pub(crate) struct Corpus {
    /// Every file's path below `tests/corpus`, and its text.
    pub(crate) files: Vec<(String, String)>,
}

impl Corpus {
    pub(crate) fn read() -> Self {
        Self::of("tests/corpus")
    }

    /// Returns the graphs of another directory of the repository, without their signatures.
    pub(crate) fn of(directory: &str) -> Self {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join(directory);
        let name = |file: &Path| file.strip_prefix(&directory).unwrap().to_str().unwrap().replace('\\', "/");
        let unsigned = |text: String| match text.split_once('\n') {
            Some((first, rest)) if first.starts_with("# rye:signed") => rest.to_owned(),
            _ => text,
        };
        let text = |file: &Path| unsigned(fs::read_to_string(file).unwrap());
        let settings = directory.join("graphs.toml");
        let files = yaml_files(&directory)
            .into_iter()
            .filter(|file| !is_test_file(file))
            .chain(settings.exists().then_some(settings));
        Self { files: files.map(|file| (name(&file), text(&file))).collect() }
    }

    /// Returns the names of the graphs; all other files are contracts.
    pub(crate) fn graphs(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(|(name, _)| name.as_str()).filter(|name| !name.starts_with("tools/"))
    }

    /// Writes a signed copy of every file into a tree of its own.
    pub(crate) fn tree(&self) -> Tree {
        let tree = Tree::new();
        self.files.iter().for_each(|(name, text)| tree.write(name, sign(text)));
        tree
    }
}

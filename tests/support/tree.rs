//! A package in a temporary directory whose directory `graphs` is a tree.

use std::fs;
use std::path::{Path, PathBuf};

use graph_compiler::project::Project;
use tempfile::TempDir;

use crate::support::key_file;

/// A tree that trusts the key of the tests.
pub(crate) struct Tree {
    package: TempDir,
}

impl Tree {
    pub(crate) fn new() -> Self {
        let tree = Self { package: tempfile::tempdir().unwrap() };
        let (name, text) = key_file();
        tree.write(&name, text);
        tree
    }

    /// Returns the path of a file in the tree.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.package.path().join("graphs").join(name)
    }

    /// Writes a file into the tree.
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap_or(Path::new(""))).unwrap();
        fs::write(path, content).unwrap();
    }

    pub(crate) fn project(&self) -> Project {
        Project::open(self.package.path(), &self.path(""))
    }
}

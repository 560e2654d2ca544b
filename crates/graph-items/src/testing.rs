//! Spaces for tests: temporary directories with keys and signed files.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use graph_model::name::ItemId;
use graph_signing::{ItemKind, KeyFile, SecretKey, sign};

/// A space in a temporary directory.
pub(super) struct Tree(tempfile::TempDir);

pub(super) fn key(seed: u8) -> SecretKey {
    SecretKey::from_seed(&[seed; 32])
}

pub(super) fn id(text: &str) -> ItemId {
    ItemId::new(text).unwrap()
}

impl Tree {
    /// Returns a space that trusts the key 1.
    pub(super) fn new() -> Self {
        let tree = Self::empty();
        tree.trust(&KeyFile::new(key(1).public(), "tester"), 1);
        tree
    }

    /// Returns a space without keys.
    pub(super) fn empty() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes a file below `.ai`, unsigned.
    pub(super) fn write(&self, path: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path().join(".ai").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    /// Writes a file below `.ai`, signed with the key of that seed.
    pub(super) fn sign(&self, path: &str, text: &str, seed: u8) -> PathBuf {
        let kind = match path.split('/').next().unwrap() {
            "directives" => ItemKind::Directive,
            "knowledge" => ItemKind::Knowledge,
            _ => ItemKind::YAML,
        };
        self.write(path, sign(kind, text, &key(seed), SystemTime::UNIX_EPOCH).unwrap())
    }

    /// Writes the file of a trusted key, signed with the key of that seed.
    pub(super) fn trust(&self, file: &KeyFile, seed: u8) {
        let toml = file.to_signed_toml(&key(seed), SystemTime::UNIX_EPOCH);
        self.write(&format!("config/keys/trusted/{}.toml", file.fingerprint), toml);
    }
}

/// A directive in the form of published ones: the element is in a code block, and the process comes after it and contains
/// things that look like tags.
pub(super) const STATE_GRAPH: &str = include_str!("../../graph-directive/src/state_graph.md");

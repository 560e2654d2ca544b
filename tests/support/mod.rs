//! The key of the tests, and signing with it.

use std::time::SystemTime;

use graph_signing::{ItemKind, KeyFile, SecretKey};

/// Returns the key. Only test trees trust it, so its secret half may be here.
pub(crate) fn key() -> SecretKey {
    SecretKey::from_seed(&[9; 32])
}

/// Returns the name and the text of the file with which a tree trusts [`key`].
pub(crate) fn key_file() -> (String, String) {
    let file = KeyFile::new(key().public(), "the key of these tests");
    (format!("keys/{}.toml", file.fingerprint), file.to_signed_toml(&key(), SystemTime::UNIX_EPOCH))
}

/// Signs a graph or contract: one line above the text.
pub(crate) fn sign(text: &str) -> String {
    graph_signing::sign(ItemKind::YAML, text, &key(), SystemTime::UNIX_EPOCH).unwrap()
}

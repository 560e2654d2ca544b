//! A key with a role.

use std::time::SystemTime;

use graph_signing::{KeyFile, SecretKey};

use crate::support::key;
use crate::tree::Tree;

/// Writes the file of a key of Ann's into a tree. The key of the tests gives it the role `clerks`.
pub(crate) fn trust_a_clerk(tree: &Tree) {
    let mut file = KeyFile::new(SecretKey::from_seed(&[21; 32]).public(), "Ann");
    file.roles = vec!["clerks".to_owned()];
    let text = file.to_signed_toml(&key(), SystemTime::UNIX_EPOCH);
    tree.write(&format!("keys/{}.toml", file.fingerprint), text);
}

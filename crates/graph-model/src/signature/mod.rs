//! Ed25519 keys: what signs graphs, items and journals.

mod key;
mod pem;

pub use key::{Fingerprint, KeyError, PublicKey, SecretKey, Signer, key_directory};

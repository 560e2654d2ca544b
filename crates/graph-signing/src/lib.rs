//! Ed25519 keys, and with the feature `keyring` signed items: the `rye:signed:` line, the text that it covers, and the keys
//! that are trusted to sign it.
//!
//! The format and files signed in it already exist elsewhere. A file signed here verifies there, and the other way round
//! (R23–R44). The SHA-256 of the covered text is signed with Ed25519, as its 64 ASCII hex digits (R33). The line's own
//! timestamp and provenance are *not* covered: nothing may be decided by them.

#![cfg_attr(docsrs, feature(doc_cfg))]
// Libraries speak through values and `tracing`; only the command line prints.
#![warn(clippy::print_stdout, clippy::print_stderr)]

#[cfg(feature = "keyring")]
mod envelope;
#[cfg(feature = "keyring")]
mod item;
mod key;
mod pem;
#[cfg(feature = "keyring")]
mod ring;
mod role;

#[cfg(feature = "keyring")]
pub use envelope::{Envelope, EnvelopeError};
#[cfg(feature = "keyring")]
pub use item::{
    Comment, ItemKind, Opened, SignError, SignatureError, Verified, normalise, open, sign, sign_json, verify,
    verify_json,
};
pub use key::{Fingerprint, KeyError, PublicKey, SecretKey, Signer, key_directory, read_private, write_private};
#[cfg(feature = "keyring")]
pub use ring::{KeyFile, KeyFileError, KeyRing, RejectedKey};
pub use role::is_role;

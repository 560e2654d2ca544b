//! The reasons that an item cannot be used.

use std::io;
use std::path::{Path, PathBuf};

use graph_model::name::{ItemId, NameError};
use graph_model::program::ItemType;
use graph_signing::{SignError, SignatureError};

use super::file::MOST_BYTES;
use super::yaml::YamlError;

/// The reason that an item cannot be used. The message names the file and a way to fix it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ItemError {
    /// No space has it.
    #[error("there is no {} `{id}`; looked for {looked}", item.name())]
    NotFound {
        /// The type of the item.
        item: ItemType,
        /// Its id.
        id: ItemId,
        /// The places that were searched, in order.
        looked: String,
    },
    /// A space has several files for it, and nothing decides which one is meant.
    #[error("`{}` and `{}` are both {} `{id}`; remove or rename one of them", .paths.0.display(), .paths.1.display(), item.name())]
    Ambiguous {
        /// The type of the item.
        item: ItemType,
        /// Its id.
        id: ItemId,
        /// Two of the files.
        paths: (PathBuf, PathBuf),
    },
    /// It is unsigned, was altered, or is not signed by a trusted key (R42).
    #[error("`{}` cannot be used: {reason}; {}", path.display(), advice(reason, path))]
    Signature {
        /// The file.
        path: PathBuf,
        /// The mistake in its signature.
        reason: SignatureError,
    },
    /// A link leads out of the directory of the item's kind.
    #[error("`{}` is a link that leads to `{}`, outside of `{kind}` of its space; put the file itself there", path.display(), target.display())]
    Outside {
        /// The file.
        path: PathBuf,
        /// The directory of its kind, below the space.
        kind: String,
        /// The target of the link.
        target: PathBuf,
    },
    /// It is a directory, a pipe or a device.
    #[error("`{}` is not a regular file", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// It is too large.
    #[error("`{}` has more than {MOST_BYTES} bytes; split it up", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// It is not UTF-8.
    #[error("`{}` is not UTF-8 text: the byte at {at} begins no character", path.display())]
    NotUtf8 {
        /// The file.
        path: PathBuf,
        /// The first byte that is wrong, from 0.
        at: usize,
    },
    /// It cannot be read or written.
    #[error("cannot {verb} `{}`", path.display())]
    Io {
        /// The operation: `read` or `write`.
        verb: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A tree of items is larger than the limit of a search.
    #[error("`{}` holds more than {most} files, or directories more than {deepest} deep", path.display())]
    TooMany {
        /// The directory.
        path: PathBuf,
        /// The maximum number of files.
        most: usize,
        /// The maximum depth.
        deepest: usize,
    },
    /// The path of a configuration is not valid.
    #[error("`{path}` is not a path of a configuration: {reason}")]
    ConfigPath {
        /// The path.
        path: String,
        /// The reason.
        reason: NameError,
    },
    /// A configuration is not valid YAML for its purpose.
    #[error("`{}` is not a configuration: {reason}", path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// The mistake.
        reason: YamlError,
    },
    /// There is no key to sign with; none is made automatically (R36).
    #[error(
        "there is no key to sign with; make one with `graph keys generate` and give it to the spaces: `sign_with(SecretKey::load(…)?)`"
    )]
    NoKey,
    /// It cannot be signed.
    #[error("`{}` cannot be signed: {reason}", path.display())]
    Sign {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: SignError,
    },
}

/// Returns the advice for a signature that was refused.
fn advice(reason: &SignatureError, path: &Path) -> String {
    let path = path.display();
    match reason {
        SignatureError::Altered { .. } => {
            format!(
                "if the change is meant, review it and sign it again: `graph sign {path}`; if not, restore the file"
            )
        }
        SignatureError::Untrusted(fingerprint) => format!(
            "if you trust its owner, add the public key as `.ai/config/keys/trusted/{fingerprint}.toml`: `graph keys trust PUBLIC_KEY.pem --keys DIRECTORY`"
        ),
        SignatureError::Revoked { .. } => "have it reviewed and signed with another key".to_owned(),
        SignatureError::Blocked { path, .. } => {
            format!("find out who changed `{}`; then restore it, or remove it", path.display())
        }
        SignatureError::Forged(_) => "do not trust this file; restore it from where it came from".to_owned(),
        SignatureError::Unsigned(_) | SignatureError::Malformed(_) | SignatureError::NoDirective => {
            format!("review it, then sign it: `graph sign {path}`")
        }
    }
}

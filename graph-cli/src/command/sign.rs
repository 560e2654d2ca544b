//! `graph sign`: sign files in place.

mod changed;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clap::Args;
use graph_compiler::project::Project;
use graph_signing::{ItemKind, KeyRing, SecretKey, SignatureError, sign};

use super::{plain, read, replace, signing_key, without_tests};
use crate::outcome::{CommandOutcome, CommandResult, Error};

#[derive(Args)]
pub(crate) struct SignArguments {
    /// The files; with --changed, directories of graphs [default with --changed: graphs]
    #[arg(required_unless_present = "changed", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Find the files that `graph verify` refuses, show what changed in each, and ask before signing it
    #[arg(long)]
    changed: bool,
    /// Sign the changed files without asking, for scripts
    #[arg(long, requires = "changed")]
    yes: bool,
    /// The secret key [default: your own, see `graph keys generate`]
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
}

pub(crate) fn run(arguments: &SignArguments) -> CommandResult {
    let key = signing_key(arguments.key.as_ref())?;
    if arguments.changed {
        return changed::run(&arguments.files, &key, arguments.yes);
    }
    let files = without_tests(&arguments.files)?;
    let working = std::env::current_dir()?;
    let trees: BTreeSet<PathBuf> = files.iter().map(|path| tree_of(&working, path)).collect();
    for tree in trees {
        let (ring, ..) = KeyRing::load(&[&tree.join("keys")]);
        refuse_revoked(&ring, &key)?;
    }
    for path in &files {
        sign_text(path, &read(path)?, &key)?;
    }
    Ok(CommandOutcome::Well)
}

/// Returns the root of the tree that a file is in.
fn tree_of(working: &Path, file: &Path) -> PathBuf {
    Project::around(working, &working.join(file)).root().to_owned()
}

/// Fails if a key was revoked: nothing would accept its signature.
fn refuse_revoked(ring: &KeyRing, key: &SecretKey) -> Result<(), Error> {
    let own = key.public().fingerprint();
    match ring.signer(&own) {
        Err(SignatureError::Revoked { revoked_at, .. }) => Err(Error::new(format!(
            "{own}, your key, was revoked on {revoked_at}; sign with another key: `--key FILE`"
        ))),
        // A file may be signed for another tree, which trusts the key.
        _ => Ok(()),
    }
}

/// Signs the text of a file and replaces the file by it.
fn sign_text(path: &Path, text: &str, key: &SecretKey) -> Result<(), Error> {
    let kind = ItemKind::of(&path.to_string_lossy(), text);
    let signed = sign(kind, text, key, SystemTime::now());
    let signed = signed.map_err(|error| Error::new(format!("cannot sign {}: {error}", path.display())))?;
    replace(path, &signed)?;
    out!("signed {} with {}", plain(&path.display().to_string()), key.public().fingerprint());
    Ok(())
}

//! `graph sign`: sign files in place.

mod changed;

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clap::Args;
use graph_signing::{ItemKind, SecretKey, sign};

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
    for path in &without_tests(&arguments.files)? {
        sign_text(path, &read(path)?, &key)?;
    }
    Ok(CommandOutcome::Well)
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

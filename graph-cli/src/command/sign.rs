//! `graph sign`: sign files in place.

use std::path::PathBuf;
use std::time::SystemTime;

use clap::Args;
use graph_signing::{ItemKind, sign};

use super::{read, replace, signing_key};
use crate::outcome::{CommandOutcome, CommandResult, Error};

#[derive(Args)]
pub(crate) struct SignArguments {
    /// The files
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The secret key [default: your own, see `graph keys generate`]
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
}

pub(crate) fn run(arguments: &SignArguments) -> CommandResult {
    let key = signing_key(arguments.key.as_ref())?;
    let fingerprint = key.public().fingerprint();
    for path in &arguments.files {
        let text = read(path)?;
        let kind = ItemKind::of(&path.to_string_lossy(), &text);
        let signed = sign(kind, &text, &key, SystemTime::now());
        let signed = signed.map_err(|error| Error::new(format!("cannot sign {}: {error}", path.display())))?;
        replace(path, &signed)?;
        out!("signed {} with {fingerprint}", path.display());
    }
    Ok(CommandOutcome::Well)
}

//! `graph verify`: verify that trusted keys signed files.

use std::path::{Path, PathBuf};

use clap::Args;
use graph_signing::{ItemKind, KeyFile, KeyRing, PublicKey, normalise, verify};

use super::{read, without_tests};
use crate::outcome::{CommandOutcome, CommandResult, Error};

#[derive(Args)]
pub(crate) struct VerifyArguments {
    /// The files
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// A directory of trusted keys [default: `keys` in the nearest directory above the file that has it]
    #[arg(long, value_name = "DIR")]
    keys: Vec<PathBuf>,
    /// Trust this public key (a PEM file) and no other
    #[arg(long, value_name = "FILE", conflicts_with = "keys")]
    public_key: Option<PathBuf>,
}

pub(crate) fn run(arguments: &VerifyArguments) -> CommandResult {
    let mut well = true;
    for path in &without_tests(&arguments.files)? {
        let text = read(path)?;
        let text = normalise(&text);
        let ring = ring(arguments, path)?;
        let kind = ItemKind::of(&path.to_string_lossy(), &text);
        match verify(kind, &text, &ring) {
            Ok(verified) => {
                let KeyFile { fingerprint, owner, .. } = verified.signer;
                // The time is the signer's word: no signature covers it.
                let at = &verified.envelope.timestamp;
                let covered = match kind {
                    ItemKind::Tool(_) => "",
                    ItemKind::Directive => "; only its <directive> element is covered",
                    ItemKind::Knowledge => "; `---` front matter is not covered",
                };
                out!(
                    "{}: {} signed by {fingerprint} ({owner}), which says on {at}{covered}",
                    path.display(),
                    kind.name()
                );
            }
            Err(error) => {
                err!("error: {}: {error}", path.display());
                well = false;
            }
        }
    }
    Ok(CommandOutcome::of(well))
}

fn ring(arguments: &VerifyArguments, path: &Path) -> Result<KeyRing, Error> {
    if let Some(pem) = &arguments.public_key {
        let key =
            PublicKey::from_pem(&read(pem)?).map_err(|error| Error::new(format!("{}: {error}", pem.display())))?;
        return Ok(KeyRing::of(&key, &pem.display().to_string()));
    }
    let directories = match arguments.keys.as_slice() {
        [] => {
            let file = std::path::absolute(path)?;
            let own = file.parent().unwrap_or(Path::new("/"));
            let tree = own.ancestors().find(|directory| directory.join("keys").is_dir()).unwrap_or(own);
            vec![tree.join("keys")]
        }
        keys => keys.to_vec(),
    };
    let directories: Vec<&Path> = directories.iter().map(PathBuf::as_path).collect();
    let (ring, rejected, _) = KeyRing::load(&directories);
    for key in rejected {
        err!("warning: {} is refused as a trusted key: {}", key.path.display(), key.error);
    }
    Ok(ring)
}

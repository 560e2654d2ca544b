//! `graph keys`: make, trust, revoke and list keys.

use std::collections::BTreeSet;
use std::fs;
use std::iter::successors;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clap::{Args, Subcommand};
use graph_model::timestamp;
use graph_runtime::EncryptionKey;
use graph_signing::{Fingerprint, KeyError, KeyFile, KeyFileError, KeyRing, PublicKey, SecretKey, is_role};

use super::{own_key_directory, plain, read, replace, signing_key};
use crate::outcome::{CommandOutcome, CommandResult, Error};

#[derive(Subcommand)]
pub(crate) enum Keys {
    /// Make a key pair of your own
    Generate(KeysGenerateArguments),
    /// Make a key that encrypts secrets in stores
    #[command(alias = "seal")]
    Encryption(KeysEncryptionArguments),
    /// Trust a public key: your own, or the one in a PEM file
    Trust(KeysTrustArguments),
    /// Revoke a trusted key: nothing it signed is trusted any more
    Revoke(KeysRevokeArguments),
    /// List the trusted keys
    List(KeysListArguments),
}

#[derive(Args)]
pub(crate) struct KeysGenerateArguments {
    /// The directory for it [default: RYE_SIGNING_KEY_DIR, else .ai/config/keys/signing in USER_SPACE or the home directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct KeysEncryptionArguments {
    /// The file to write the key to; it must not exist yet
    file: PathBuf,
}

#[derive(Args)]
pub(crate) struct KeysTrustArguments {
    /// The public key's PEM file; your own public key if not given
    public_key: Option<PathBuf>,
    /// The owner of the key
    #[arg(long, value_name = "NAME", default_value = "self")]
    owner: String,
    /// A role in which its owner may answer the questions of runs; can be repeated
    #[arg(long = "role", value_name = "NAME", value_parser = role)]
    roles: Vec<String>,
    /// The directory of trusted keys
    #[arg(long, value_name = "DIR", default_value = "graphs/keys")]
    keys: PathBuf,
    /// The secret key that vouches for it [default: your own]
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct KeysRevokeArguments {
    /// The fingerprint of the key
    fingerprint: String,
    /// The directory of trusted keys
    #[arg(long, value_name = "DIR", default_value = "graphs/keys")]
    keys: PathBuf,
    /// The secret key that vouches for the revocation [default: your own]
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct KeysListArguments {
    /// The directory of trusted keys
    #[arg(long, value_name = "DIR", default_value = "graphs/keys")]
    keys: PathBuf,
}

pub(crate) fn run(keys: Keys) -> CommandResult {
    match keys {
        Keys::Generate(generate) => self::generate(generate),
        Keys::Encryption(arguments) => encryption_key(&arguments),
        Keys::Trust(trust) => self::trust(&trust),
        Keys::Revoke(revoke) => self::revoke(&revoke),
        Keys::List(list) => self::list(&list),
    }
}

fn generate(generate: KeysGenerateArguments) -> CommandResult {
    let named =
        generate.dir.as_ref().map(|directory| format!(" --key {}", directory.join("private_key.pem").display()));
    let directory = generate.dir.map_or_else(own_key_directory, Ok)?;
    let key = SecretKey::generate()?;
    match key.save(&directory) {
        // Writes the public key again if a crash left it incomplete. The secret key is never replaced.
        Err(exists @ KeyError::Exists(_)) => {
            let key = SecretKey::load(&directory.join("private_key.pem"))?;
            if !key.save_public(&directory)? {
                return Err(exists.into());
            }
            out!("wrote the public key of {} in {} again", key.public().fingerprint(), directory.display());
            return Ok(CommandOutcome::Well);
        }
        saved => saved?,
    }
    out!("made the key {} in {}", key.public().fingerprint(), directory.display());
    out!("to trust it in a tree of graphs: `graph keys trust --keys graphs/keys{}`", named.unwrap_or_default());
    Ok(CommandOutcome::Well)
}

fn encryption_key(arguments: &KeysEncryptionArguments) -> CommandResult {
    let key = EncryptionKey::generate().map_err(Error::from)?;
    key.save(&arguments.file).map_err(Error::from)?;
    out!("made the encryption key {} in {}", key.fingerprint(), arguments.file.display());
    Ok(CommandOutcome::Well)
}

fn trust(trust: &KeysTrustArguments) -> CommandResult {
    let signer = signing_key(trust.key.as_ref())?;
    let public = match &trust.public_key {
        Some(path) => {
            PublicKey::from_pem(&read(path)?).map_err(|error| Error::new(format!("{}: {error}", path.display())))?
        }
        None => signer.public(),
    };
    let mut file = KeyFile::new(public, &trust.owner);
    file.roles = BTreeSet::from_iter(trust.roles.iter().cloned()).into_iter().collect();
    let by = signer.public().fingerprint();
    if by == file.fingerprint && !file.roles.is_empty() {
        return Err(Error::new(format!(
            "a key cannot give itself a role: {by} would sign its own file; name the secret key of another trusted key \
             with `--key`"
        )));
    }
    let (ring, ..) = KeyRing::load(&[&trust.keys]);
    if let Some(at) = ring.get(&file.fingerprint).and_then(|known| known.revoked_at.as_ref()) {
        let path = trust.keys.join(format!("{}.toml", file.fingerprint));
        return Err(Error::new(format!(
            "{} was revoked on {at}; to trust it again, remove {} first",
            file.fingerprint,
            path.display()
        )));
    }
    if rests_on(&ring, &by, &file.fingerprint) {
        return Err(Error::new(format!(
            "{by} cannot vouch for {}, which vouches for it: keys that vouch only for each other are not trusted; name \
             a third key with `--key`",
            file.fingerprint
        )));
    }
    if !file.roles.is_empty() && file.known_owner().is_none() {
        return Err(Error::new(
            "a key with a role has an owner who is known: name the owner of the key with `--owner NAME`",
        ));
    }
    let lost = lost_roles(&trust.keys, &ring, &file);
    let path = write(&trust.keys, &file, &signer)?;
    let roles = listed("; it may answer as ", &file.roles);
    out!("trusted {} ({}) in {}{roles}", file.fingerprint, plain(&file.owner), path.display());
    if let Some(lost) = lost {
        out!("{lost}; `--role` gives roles");
    }
    Ok(CommandOutcome::Well)
}

fn role(text: &str) -> Result<String, KeyFileError> {
    if is_role(text) { Ok(text.to_owned()) } else { Err(KeyFileError::Role(text.to_owned())) }
}

/// Whether `key` signed the file of `by`, or that of the key that signed it, and so on.
fn rests_on(ring: &KeyRing, by: &Fingerprint, key: &Fingerprint) -> bool {
    let signer_of = |key: &&Fingerprint| ring.get(key)?.signed_by.as_ref().filter(|signer| signer != key);
    by != key && successors(Some(by), signer_of).take(ring.keys().count()).any(|at| at == key)
}

/// Says which roles the key's present file names, and the `new` one does not.
fn lost_roles(directory: &Path, ring: &KeyRing, new: &KeyFile) -> Option<String> {
    if let Some(now) = ring.get(&new.fingerprint) {
        let lost = now.roles.iter().filter(|role| !new.roles.contains(role)).cloned().collect::<Vec<_>>();
        return (!lost.is_empty()).then(|| listed("removed roles that it had: ", &lost));
    }
    let text = read(&directory.join(format!("{}.toml", new.fingerprint))).unwrap_or_default();
    let names_roles = text.lines().any(|line| line.trim_start().starts_with("roles"));
    names_roles.then(|| "removed the `roles` of the file that it replaces, which was refused".to_owned())
}

/// Returns the roles after `before`; empty without roles.
fn listed(before: &str, roles: &[String]) -> String {
    if roles.is_empty() { String::new() } else { format!("{before}{}", roles.join(", ")) }
}

fn revoke(revoke: &KeysRevokeArguments) -> CommandResult {
    let fingerprint: Fingerprint =
        revoke.fingerprint.parse().map_err(|error| Error::new(format!("`{}`: {error}", revoke.fingerprint)))?;
    let (ring, ..) = KeyRing::load(&[&revoke.keys]);
    if let Some(path) = ring.blocked(&fingerprint) {
        return Err(Error::new(format!(
            "{fingerprint} is blocked already, since {} is refused; restore that file, then revoke the key",
            path.display()
        )));
    }
    let Some(file) = ring.get(&fingerprint) else {
        return Err(Error::new(format!("{fingerprint} is not trusted in {}", revoke.keys.display())));
    };
    if let Some(at) = &file.revoked_at {
        out!("{fingerprint} ({}) was revoked on {at} already", file.owner);
        return Ok(CommandOutcome::Well);
    }
    let signer = signing_key(revoke.key.as_ref())?;
    let file = KeyFile { revoked_at: Some(timestamp::seconds(SystemTime::now())), ..file.clone() };
    let path = write(&revoke.keys, &file, &signer)?;
    out!("revoked {fingerprint} ({}) in {}", file.owner, path.display());
    Ok(CommandOutcome::Well)
}

/// Writes a key's file, if the tree will accept it: it must be signed by itself or by a key that is trusted there.
fn write(directory: &Path, file: &KeyFile, signer: &SecretKey) -> Result<PathBuf, Error> {
    let by = signer.public().fingerprint();
    let (ring, ..) = KeyRing::load(&[directory]);
    let vouches = ring.signer(&by).is_ok();
    if by != file.fingerprint && !vouches {
        let directory = directory.display();
        return Err(Error::new(format!(
            "{by}, your key, is not trusted in {directory}; trust it first: `graph keys trust --keys {directory}`"
        )));
    }
    fs::create_dir_all(directory).map_err(|error| Error::file("make", directory, &error))?;
    let path = directory.join(format!("{}.toml", file.fingerprint));
    replace(&path, &file.to_signed_toml(signer, SystemTime::now()))?;
    Ok(path)
}

fn list(list: &KeysListArguments) -> CommandResult {
    let (ring, rejected, read) = KeyRing::load(&[&list.keys]);
    if read.is_empty() && rejected.is_empty() {
        out!("no keys in {}", list.keys.display());
    }
    for key in ring.keys() {
        out!("{}  {}{}", key.fingerprint, plain(&key.owner), role_note(&ring, key));
    }
    for (fingerprint, path) in ring.blocked_keys() {
        out!("{fingerprint}  blocked, since {} is refused", path.display());
    }
    for key in &rejected {
        err!("error: {} is refused: {}", key.path.display(), key.error);
    }
    Ok(CommandOutcome::of(rejected.is_empty()))
}

/// Says whether the key is revoked, and otherwise which roles it has.
fn role_note(ring: &KeyRing, key: &KeyFile) -> String {
    let has = |role: &String| ring.has_role(&key.fingerprint, role);
    match &key.revoked_at {
        Some(at) => format!(", revoked on {at}"),
        None if key.roles.iter().all(has) => listed(", may answer as ", &key.roles),
        None => {
            let named = listed(", may not answer as ", &key.roles);
            format!("{named}: it signed its own file, and a key cannot give itself a role")
        }
    }
}

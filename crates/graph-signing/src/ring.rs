//! Trusted keys: signed TOML files, one for each key.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::Deserialize;

use crate::envelope::Envelope;
use crate::item::{ItemKind, SignatureError, normalise, open, sign};
use crate::key::{Fingerprint, KeyError, PublicKey, SecretKey};
use crate::role::is_role;
use graph_model::digest::Digest;
use graph_model::timestamp;

/// The content of a trusted key's file (R37).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyFile {
    /// The key.
    pub key: PublicKey,
    /// The fingerprint of the key, computed, not merely claimed.
    pub fingerprint: Fingerprint,
    /// The key's owner.
    pub owner: String,
    /// A statement about the owner, if there is one.
    pub attestation: Option<String>,
    /// The version of the file's format.
    pub version: String,
    /// When the key was revoked. None of its signatures is trusted then, because the time on a signature line is only a
    /// claim.
    pub revoked_at: Option<String>,
    /// The roles that the file names, sorted, each once. [`KeyRing::has_role`] says whether the key has them.
    pub roles: Vec<String>,
    /// The key that signed the file; `None` if the file was not loaded.
    pub signed_by: Option<Fingerprint>,
}

/// Why a key file is not trusted.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// The file cannot be read.
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
    /// The file is too large for a key.
    #[error("it has more than {MOST_BYTES} bytes, which no key file needs")]
    TooLarge,
    /// Its signature is missing, wrong, or by a key that is not trusted.
    #[error(transparent)]
    Signature(#[from] SignatureError),
    /// It is not TOML with the expected fields.
    #[error("it is not a key file: {0}")]
    Toml(String),
    /// Its PEM is not a public key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// Its name or `fingerprint` is not that of its key.
    #[error("its key's fingerprint is {found}, not {claimed}")]
    Fingerprint {
        /// The fingerprint that the file claims.
        claimed: String,
        /// The fingerprint of the key.
        found: Fingerprint,
    },
    /// `revoked_at` is not a time.
    #[error("`revoked_at = \"{0}\"` is not a time of the form `2026-11-21T20:00:00Z`")]
    RevokedAt(String),
    /// It has `roles`, and its version has none.
    #[error(
        "it has `roles`, which need `version = \"{WITH_ROLES}\"`, and its version is {0:?}; change the version and sign \
         the file again, or remove `roles`"
    )]
    RolesVersion(String),
    /// `roles` has an element that is not the name of a role.
    #[error(
        "{0:?} is not a role: a role is a letter from a to z, then letters from a to z, digits, `_` and `-`, together at \
         most 64"
    )]
    Role(String),
}

/// A key file that was refused, and why.
#[derive(Debug)]
pub struct RejectedKey {
    /// The file.
    pub path: PathBuf,
    /// Why.
    pub error: KeyFileError,
}

/// The keys that are trusted, the revoked ones marked, and those that a refused file blocks.
#[derive(Debug, Clone, Default)]
pub struct KeyRing {
    keys: BTreeMap<Fingerprint, KeyFile>,
    /// The refused file about each of these keys. It may have been a revocation, so none of them is trusted.
    blocked: BTreeMap<Fingerprint, PathBuf>,
    /// A directory that could not be read. It may hold a revocation of any key, so no key is trusted.
    unread: Option<PathBuf>,
    /// The keys that every role comes from. `None`: any trusted key gives roles to others.
    role_roots: Option<BTreeSet<Fingerprint>>,
}

const MOST_BYTES: u64 = 64 * 1024;

/// The version of a file with roles. Older programs refuse the field, and so the key.
const WITH_ROLES: &str = "1.1.0";

/// A key file. An unknown field may be a misspelt revocation, so such a file is refused.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyFileFields {
    #[serde(default = "first_version")]
    version: String,
    #[serde(rename = "category")]
    _category: Option<String>,
    fingerprint: String,
    #[serde(default = "unknown")]
    owner: String,
    #[serde(default)]
    attestation: String,
    revoked_at: Option<String>,
    roles: Option<Vec<String>>,
    public_key: Pem,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Pem {
    pem: String,
}

fn first_version() -> String {
    "1.0.0".to_owned()
}

fn unknown() -> String {
    "unknown".to_owned()
}

/// A key file that was read and whose signature is not verified yet.
struct CandidateKey {
    path: PathBuf,
    file: KeyFile,
    envelope: Envelope,
    digest: Digest,
}

impl KeyRing {
    /// Makes a ring that trusts one key, without roles; for tests, and for programs that trust their own signature.
    pub fn of(key: &PublicKey, owner: &str) -> Self {
        Self::from_files([KeyFile::new(key.clone(), owner)])
    }

    /// Makes a ring that trusts the keys of `files`, except for the revoked ones; for tests.
    ///
    /// **Nothing is verified**: neither signatures nor fingerprints, nor that a trusted key is in `signed_by`. If several files are about a key, the first takes precedence, and any of them can revoke it, as in [`load`](Self::load).
    pub fn from_files(files: impl IntoIterator<Item = KeyFile>) -> Self {
        let mut ring = Self::default();
        files.into_iter().for_each(|file| ring.add(file));
        ring
    }

    /// Sets the keys that every role comes from, in place of those that were set before. An empty set leaves no key a role.
    /// [`has_role`](Self::has_role) describes them.
    pub fn with_role_roots(self, roots: impl IntoIterator<Item = Fingerprint>) -> Self {
        Self { role_roots: Some(roots.into_iter().collect()), ..self }
    }

    /// Reads every `*.toml` in `directories`. An earlier directory's file about a key takes precedence over a later one's
    /// (R38).
    ///
    /// A key file must be signed, by the key in it or by another key of any of the directories that is not revoked; keys
    /// that vouch only for each other are not trusted (R39). A key that one directory revokes is revoked, whatever the
    /// others say. Files that are refused are returned with the reason, and block the key that they are named after.
    /// Otherwise, one could undo a revocation by damaging its file. A directory that cannot be read blocks every key. A
    /// directory that does not exist holds no keys. The last element of the result lists the paths of all files that were
    /// read, including refused ones.
    pub fn load(directories: &[&Path]) -> (Self, Vec<RejectedKey>, Vec<PathBuf>) {
        let (mut unreadable, mut candidates, mut read) = (Vec::new(), Vec::new(), Vec::new());
        let mut known = Known::default();
        for directory in directories {
            match key_files(directory) {
                Ok(paths) => {
                    for path in paths {
                        match CandidateKey::read(&path) {
                            Ok(candidate) => candidates.push(candidate),
                            Err(error) => {
                                known.block(&path, &error);
                                unreadable.push(RejectedKey { path: path.clone(), error });
                            }
                        }
                        read.push(path);
                    }
                }
                Err(error) => {
                    known.unread.get_or_insert_with(|| (*directory).to_owned());
                    unreadable.push(RejectedKey { path: (*directory).to_owned(), error: error.into() });
                }
            }
        }
        // A revocation, or a file to refuse, may be found only after the key has vouched for others. Then all files are
        // verified again with this knowledge.
        let mut rejected: Vec<RejectedKey> = Vec::new();
        let ring = loop {
            let (ring, refused, found) = Self::admit(&candidates, &known);
            // The first reason for refusing a file is kept: later ones only follow from other refusals.
            let new =
                refused.into_iter().filter(|new| rejected.iter().all(|old| old.path != new.path)).collect::<Vec<_>>();
            rejected.extend(new);
            if found == known {
                break ring;
            }
            known = found;
        };
        rejected.extend(unreadable);
        rejected.sort_by(|a, b| a.path.cmp(&b.path));
        (ring, rejected, read)
    }

    /// Returns the key with that fingerprint, even if it is revoked.
    pub fn get(&self, fingerprint: &Fingerprint) -> Option<&KeyFile> {
        self.keys.get(fingerprint)
    }

    /// Returns the file or directory that was refused and that blocks the key with that fingerprint, if there is one.
    pub fn blocked(&self, fingerprint: &Fingerprint) -> Option<&Path> {
        self.unread.as_ref().or_else(|| self.blocked.get(fingerprint)).map(PathBuf::as_path)
    }

    /// Returns the keys that a refused file blocks, with the file.
    pub fn blocked_keys(&self) -> impl Iterator<Item = (&Fingerprint, &Path)> {
        self.blocked.iter().map(|(fingerprint, path)| (fingerprint, path.as_path()))
    }

    /// Returns the key with that fingerprint, if its signatures are trusted.
    ///
    /// # Errors
    ///
    /// If the key is blocked, not trusted, or revoked.
    pub fn signer(&self, fingerprint: &Fingerprint) -> Result<&KeyFile, SignatureError> {
        if let Some(path) = self.blocked(fingerprint) {
            return Err(SignatureError::Blocked { fingerprint: fingerprint.clone(), path: path.to_owned() });
        }
        let file = self.get(fingerprint).ok_or_else(|| SignatureError::Untrusted(fingerprint.clone()))?;
        match &file.revoked_at {
            None => Ok(file),
            Some(revoked_at) => Err(SignatureError::Revoked {
                fingerprint: fingerprint.clone(),
                owner: file.owner.clone(),
                revoked_at: revoked_at.clone(),
            }),
        }
    }

    /// Whether the key with that fingerprint has the role: it is trusted, its file names the role, and another trusted key
    /// signed that file. A key that is blocked or revoked neither has a role nor gives one.
    ///
    /// If the ring has [role roots](Self::with_role_roots), a root must have signed the file, or the file of the key that
    /// signed it, and so on. Each key of this chain must be trusted, and none of them may occur twice.
    pub fn has_role(&self, fingerprint: &Fingerprint, role: &str) -> bool {
        let names = |file: &KeyFile| file.roles.iter().any(|named| named == role);
        self.signer(fingerprint)
            .is_ok_and(|file| names(file) && self.vouching(file).is_some() && self.comes_from_a_root(file))
    }

    /// Returns the distinct owners of the keys with that role, as [`KeyFile::known_owner`] gives them. Two keys of one owner
    /// count once, keys whose owner is not known do not count.
    pub fn owners_of_role(&self, role: &str) -> BTreeSet<&str> {
        self.keys().filter(|file| self.has_role(&file.fingerprint, role)).filter_map(KeyFile::known_owner).collect()
    }

    /// Returns how many distinct known owners have each of the roles that the files of the keys name.
    pub fn roles(&self) -> BTreeMap<&str, usize> {
        let named = self.keys().flat_map(|file| &file.roles);
        named.map(|role| (role.as_str(), self.owners_of_role(role).len())).collect()
    }

    /// Returns the trusted key that signed `file`, unless it is the key in the file.
    fn vouching(&self, file: &KeyFile) -> Option<&KeyFile> {
        let by = file.signed_by.as_ref().filter(|by| **by != file.fingerprint)?;
        self.signer(by).ok()
    }

    fn comes_from_a_root(&self, file: &KeyFile) -> bool {
        let Some(roots) = &self.role_roots else { return true };
        let mut seen = BTreeSet::from([&file.fingerprint]);
        let mut next = self.vouching(file);
        while let Some(by) = next.filter(|by| seen.insert(&by.fingerprint)) {
            if roots.contains(&by.fingerprint) {
                return true;
            }
            next = self.vouching(by);
        }
        false
    }

    /// Returns the keys in the order of their fingerprints.
    pub fn keys(&self) -> impl Iterator<Item = &KeyFile> {
        self.keys.values()
    }

    /// Adds a file. An earlier file about its key takes precedence, and each of them can revoke the key.
    fn add(&mut self, file: KeyFile) {
        let revoked_at = file.revoked_at.clone();
        let kept = self.keys.entry(file.fingerprint.clone()).or_insert(file);
        kept.revoked_at = kept.revoked_at.take().or(revoked_at);
    }

    /// Admits candidates until no candidate is left whose signer is trusted. Returns the ring, the refused files, and the
    /// extended knowledge: `known`, the revocations in the admitted files, and the keys that the refused files block.
    fn admit(candidates: &[CandidateKey], known: &Known) -> (Self, Vec<RejectedKey>, Known) {
        let mut ring = Self { blocked: known.blocked.clone(), unread: known.unread.clone(), ..Self::default() };
        let (mut rejected, mut found) = (Vec::new(), known.clone());
        let mut admitted = BTreeMap::new();
        let mut waiting: Vec<(usize, &CandidateKey)> = candidates.iter().enumerate().collect();
        loop {
            let before = waiting.len();
            let mut still = Vec::new();
            for (index, candidate) in waiting {
                match ring.judge(candidate) {
                    Ok(()) => {
                        let file = found.marked(&candidate.file);
                        admitted.insert(index, file.clone());
                        ring.add(file);
                    }
                    Err(SignatureError::Untrusted(_)) => still.push((index, candidate)),
                    Err(error) => rejected.push(RejectedKey { path: candidate.path.clone(), error: error.into() }),
                }
            }
            if still.len() == before {
                // Again in the order of the directories, which is not that of the signers.
                ring.keys.clear();
                admitted.into_values().for_each(|file| ring.add(file));
                rejected.extend(still.into_iter().map(|(_, candidate)| RejectedKey {
                    error: SignatureError::Untrusted(candidate.envelope.fingerprint.clone()).into(),
                    path: candidate.path.clone(),
                }));
                rejected.iter().for_each(|key: &RejectedKey| found.block(&key.path, &key.error));
                ring.keys.retain(|fingerprint, _| !found.blocked.contains_key(fingerprint));
                return (ring, rejected, found);
            }
            waiting = still;
        }
    }

    fn judge(&self, candidate: &CandidateKey) -> Result<(), SignatureError> {
        let CandidateKey { envelope, digest, file, .. } = candidate;
        if envelope.digest != *digest {
            return Err(SignatureError::Altered { signed: envelope.digest, found: *digest });
        }
        let signer = match self.signer(&envelope.fingerprint) {
            Ok(signer) => signer,
            // A key, revoked or not, vouches for its own file. That alone does not decide whether the key is trusted.
            Err(_) if envelope.fingerprint == file.fingerprint => file,
            Err(error) => return Err(error),
        };
        if signer.key.verifies(digest, &envelope.signature) {
            Ok(())
        } else {
            Err(SignatureError::Forged(envelope.fingerprint.clone()))
        }
    }
}

/// The knowledge of keys while their files are verified. It only grows.
#[derive(Debug, Clone, Default, PartialEq)]
struct Known {
    revoked: BTreeMap<Fingerprint, String>,
    blocked: BTreeMap<Fingerprint, PathBuf>,
    unread: Option<PathBuf>,
}

impl Known {
    /// Remembers if `file` revokes its key, and returns it with what is known of a revocation.
    fn marked(&mut self, file: &KeyFile) -> KeyFile {
        let KeyFile { fingerprint, revoked_at, .. } = file;
        if let Some(at) = revoked_at {
            self.revoked.entry(fingerprint.clone()).or_insert_with(|| at.clone());
        }
        let revoked_at = revoked_at.clone().or_else(|| self.revoked.get(fingerprint).cloned());
        KeyFile { revoked_at, ..file.clone() }
    }

    /// Blocks the keys that the refused file at `path` is about: the one that it is named after, and the one in it.
    fn block(&mut self, path: &Path, error: &KeyFileError) {
        let named = path.file_stem().and_then(|stem| stem.to_str()?.to_ascii_lowercase().parse().ok());
        let inside = match error {
            KeyFileError::Fingerprint { found, .. } => Some(found.clone()),
            _ => None,
        };
        for fingerprint in named.into_iter().chain(inside) {
            self.blocked.entry(fingerprint).or_insert_with(|| path.to_owned());
        }
    }
}

/// Returns the key files in `directory`; empty if it does not exist.
fn key_files(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        // A dangling link does not count as a missing directory.
        Err(error) if error.kind() == io::ErrorKind::NotFound && fs::symlink_metadata(directory).is_err() => {
            return Ok(Vec::new());
        }
        Err(error) => return Err(error),
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("toml")) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

impl CandidateKey {
    fn read(path: &Path) -> Result<Self, KeyFileError> {
        // Checked before the file is opened: reading a pipe would block until somebody writes to it.
        let metadata = fs::metadata(path)?;
        if !metadata.is_file() {
            return Err(io::Error::other("it is not a regular file").into());
        }
        if metadata.len() > MOST_BYTES {
            return Err(KeyFileError::TooLarge);
        }
        let text = io::read_to_string(fs::File::open(path)?.take(MOST_BYTES))?;
        let text = normalise(&text);
        let opened = open(ItemKind::YAML, &text)?;
        let file = KeyFile::parse(opened.content)?;
        match path.file_stem().and_then(|stem| stem.to_str()) {
            Some(stem) if stem == file.fingerprint.as_str() => {}
            stem => {
                let claimed = stem.unwrap_or("the file's name").to_owned();
                return Err(KeyFileError::Fingerprint { claimed, found: file.fingerprint });
            }
        }
        let file = KeyFile { signed_by: Some(opened.envelope.fingerprint.clone()), ..file };
        Ok(Self { path: path.to_owned(), file, envelope: opened.envelope, digest: opened.digest })
    }
}

impl KeyFile {
    /// Makes the file of a key that `owner` owns.
    pub fn new(key: PublicKey, owner: &str) -> Self {
        let fingerprint = key.fingerprint();
        Self {
            key,
            fingerprint,
            owner: owner.to_owned(),
            attestation: None,
            version: first_version(),
            revoked_at: None,
            roles: Vec::new(),
            signed_by: None,
        }
    }

    /// Returns the owner without the spaces around it, or `None` if it does not say who that is: it is empty, `unknown` or
    /// `self`, in whatever case. Otherwise owners are compared letter by letter.
    pub fn known_owner(&self) -> Option<&str> {
        let owner = self.owner.trim();
        let says_nothing = ["", "unknown", "self"].iter().any(|word| owner.eq_ignore_ascii_case(word));
        (!says_nothing).then_some(owner)
    }

    /// Reads a key file's TOML, without its signature line.
    fn parse(toml: &str) -> Result<Self, KeyFileError> {
        let form: KeyFileFields =
            toml::from_str(toml).map_err(|error| KeyFileError::Toml(error.message().to_owned()))?;
        let key = PublicKey::from_pem(&form.public_key.pem)?;
        let fingerprint = key.fingerprint();
        if form.fingerprint != fingerprint.as_str() {
            return Err(KeyFileError::Fingerprint { claimed: form.fingerprint, found: fingerprint });
        }
        if let Some(revoked_at) = form.revoked_at.as_ref().filter(|time| !timestamp::is_seconds(time)) {
            return Err(KeyFileError::RevokedAt(revoked_at.clone()));
        }
        let roles = roles(form.roles, &form.version)?;
        Ok(Self {
            key,
            fingerprint,
            owner: form.owner,
            attestation: Some(form.attestation).filter(|text| !text.is_empty()),
            version: form.version,
            revoked_at: form.revoked_at,
            roles,
            signed_by: None,
        })
    }

    /// Writes the file, signed by `signer` (R37). A file with roles gets the version 1.1.0.
    ///
    /// The roles that it names count if `signer` is another key. [`load`](KeyRing::load) refuses a file with a role that
    /// [`is_role`] refuses.
    pub fn to_signed_toml(&self, signer: &SecretKey, at: SystemTime) -> String {
        let string = |text: &str| toml_string(text);
        let revoked = self.revoked_at.as_ref().map(|at| format!("revoked_at = {}\n", string(at))).unwrap_or_default();
        let names = self.roles.iter().map(|role| string(role)).collect::<BTreeSet<_>>();
        let (version, roles) = match Vec::from_iter(names).join(", ") {
            names if names.is_empty() => (self.version.as_str(), String::new()),
            names => (WITH_ROLES, format!("roles = [{names}]\n")),
        };
        let text = format!(
            "version = {}\ncategory = \"keys/trusted\"\nfingerprint = \"{}\"\nowner = {}\nattestation = {}\n{roles}{revoked}\n[public_key]\npem = \"\"\"\n{}\"\"\"\n",
            string(version),
            self.fingerprint,
            string(&self.owner),
            string(self.attestation.as_deref().unwrap_or_default()),
            self.key.to_pem(),
        );
        sign(ItemKind::YAML, &text, signer, at)
            .expect("only directives and texts with a byte order mark cannot be signed")
    }
}

/// Returns the roles that a file of that version names, sorted, each once.
fn roles(named: Option<Vec<String>>, version: &str) -> Result<Vec<String>, KeyFileError> {
    let Some(named) = named else { return Ok(Vec::new()) };
    if version != WITH_ROLES {
        return Err(KeyFileError::RolesVersion(version.to_owned()));
    }
    match named.iter().find(|role| !is_role(role)) {
        Some(role) => Err(KeyFileError::Role(role.clone())),
        None => Ok(named.into_iter().collect::<BTreeSet<_>>().into_iter().collect()),
    }
}

/// Writes a TOML basic string.
fn toml_string(text: &str) -> String {
    let escaped: String = text
        .chars()
        .flat_map(|character| match character {
            '"' | '\\' => vec!['\\', character],
            _ if character.is_control() => format!("\\u{:04X}", u32::from(character)).chars().collect(),
            _ => vec![character],
        })
        .collect();
    format!("\"{escaped}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(seed: u8) -> SecretKey {
        SecretKey::from_seed(&[seed; 32])
    }

    struct Directory(tempfile::TempDir);

    impl Directory {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn add(&self, file: &KeyFile, signer: &SecretKey) -> PathBuf {
            self.write(file.fingerprint.as_str(), &file.to_signed_toml(signer, SystemTime::UNIX_EPOCH))
        }

        fn write(&self, stem: &str, text: &str) -> PathBuf {
            let path = self.0.path().join(format!("{stem}.toml"));
            fs::write(&path, text).unwrap();
            path
        }

        fn load(&self) -> (Vec<String>, Vec<String>) {
            let (ring, rejected, _) = KeyRing::load(&[self.0.path()]);
            (
                ring.keys().map(|file| file.owner.clone()).collect(),
                rejected.iter().map(|rejected| rejected.error.to_string()).collect(),
            )
        }
    }

    #[test]
    fn a_key_file_is_written_and_read_as_the_format_says() {
        let mut file = KeyFile::new(key(1).public(), "Ann \"A\" \\ Example");
        file.attestation = Some("two\nlines".into());
        let text = file.to_signed_toml(&key(1), SystemTime::UNIX_EPOCH);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], "version = \"1.0.0\"");
        assert_eq!(lines[2], "category = \"keys/trusted\"");
        assert_eq!(lines[4], r#"owner = "Ann \"A\" \\ Example""#);
        assert_eq!(lines[7..9], ["[public_key]", "pem = \"\"\""]);
        assert!(text.ends_with("-----END PUBLIC KEY-----\n\"\"\"\n"));
        assert_eq!(KeyFile::parse(text.split_once('\n').unwrap().1).unwrap(), file);
    }

    #[test]
    fn trust_starts_at_self_signed_keys_and_rejects_cycles() {
        let directory = Directory::new();
        directory.add(&KeyFile::new(key(1).public(), "root"), &key(1));
        directory.add(&KeyFile::new(key(2).public(), "second"), &key(1));
        directory.add(&KeyFile::new(key(3).public(), "third"), &key(2));
        directory.add(&KeyFile::new(key(4).public(), "circle a"), &key(5));
        directory.add(&KeyFile::new(key(5).public(), "circle b"), &key(4));
        let (mut owners, rejected) = directory.load();
        owners.sort();
        assert_eq!(owners, ["root", "second", "third"]);
        assert_eq!(rejected.len(), 2, "{rejected:?}");
        assert!(rejected.iter().all(|error| error.ends_with("a key that is not trusted")), "{rejected:?}");
    }

    #[test]
    fn a_revoked_key_stays_known_and_vouches_for_nobody() {
        let directory = Directory::new();
        let mut revoked = KeyFile::new(key(1).public(), "revoked");
        revoked.revoked_at = Some("2026-01-02T03:04:05Z".into());
        directory.add(&revoked, &key(1));
        directory.add(&KeyFile::new(key(2).public(), "friend"), &key(1));
        let (owners, rejected) = directory.load();
        assert_eq!(owners, ["revoked"]);
        assert!(rejected[0].ends_with("a key that was revoked on 2026-01-02T03:04:05Z"), "{rejected:?}");
        let (ring, ..) = KeyRing::load(&[directory.0.path()]);
        let text = sign(ItemKind::YAML, "a: 1\n", &key(1), SystemTime::UNIX_EPOCH).unwrap();
        let error = crate::verify(ItemKind::YAML, &text, &ring).unwrap_err();
        assert!(error.to_string().ends_with("(revoked), a key that was revoked on 2026-01-02T03:04:05Z"), "{error}");
    }

    #[test]
    fn a_key_of_one_directory_vouches_for_keys_of_an_earlier_one() {
        let (project, user) = (Directory::new(), Directory::new());
        project.add(&KeyFile::new(key(2).public(), "colleague"), &key(1));
        user.add(&KeyFile::new(key(1).public(), "own"), &key(1));
        let (ring, rejected, _) = KeyRing::load(&[project.0.path(), user.0.path()]);
        assert!(rejected.is_empty(), "{rejected:?}");
        assert_eq!(ring.get(&key(2).public().fingerprint()).unwrap().owner, "colleague");
    }

    #[test]
    fn the_first_directory_sets_a_key_owner_and_any_can_revoke() {
        let (project, user) = (Directory::new(), Directory::new());
        project.add(&KeyFile::new(key(1).public(), "as the project says"), &key(1));
        project.add(&KeyFile::new(key(2).public(), "friend"), &key(1));
        let mut file = KeyFile::new(key(1).public(), "as the user says");
        file.revoked_at = Some("2026-01-02T03:04:05Z".into());
        user.add(&file, &key(1));
        let (ring, rejected, _) = KeyRing::load(&[project.0.path(), user.0.path()]);
        let revoked = ring.get(&key(1).public().fingerprint()).unwrap();
        assert_eq!(revoked.owner, "as the project says");
        assert_eq!(revoked.revoked_at.as_deref(), Some("2026-01-02T03:04:05Z"));
        assert!(ring.get(&key(2).public().fingerprint()).is_none(), "a revoked key vouches for nobody");
        assert_eq!(rejected.len(), 1);
    }

    #[test]
    fn a_field_that_is_not_known_blocks_the_key() {
        let good = KeyFile::new(key(1).public(), "good");
        let text = good.to_signed_toml(&key(1), SystemTime::UNIX_EPOCH);
        let content = text.split_once('\n').unwrap().1;
        let time = "\"2026-01-02T03:04:05Z\"";
        for spoilt in [
            // After the header of the last table, a field belongs to that table.
            format!("{content}revoked_at = {time}\n"),
            format!("revoked = {time}\n{content}"),
            format!("Revoked_at = {time}\n{content}"),
        ] {
            let directory = Directory::new();
            let signed = sign(ItemKind::YAML, &spoilt, &key(1), SystemTime::UNIX_EPOCH).unwrap();
            let path = directory.write(good.fingerprint.as_str(), &signed);
            fs::rename(&path, path.with_extension("TOML")).unwrap();
            let (ring, rejected, _) = KeyRing::load(&[directory.0.path()]);
            assert!(ring.get(&good.fingerprint).is_none(), "{spoilt}");
            assert!(rejected[0].error.to_string().contains("unknown field"), "{}", rejected[0].error);
        }
    }

    #[test]
    fn a_refused_file_blocks_the_key_that_it_is_named_after() {
        let good = KeyFile::new(key(1).public(), "good");
        let stem = good.fingerprint.as_str();
        let text = good.to_signed_toml(&key(1), SystemTime::UNIX_EPOCH);
        let mut revoked = good.clone();
        revoked.revoked_at = Some("2026-01-02T03:04:05Z".into());
        let item = sign(ItemKind::YAML, "a: 1\n", &key(1), SystemTime::UNIX_EPOCH).unwrap();
        for (name, spoilt) in [
            (stem.to_owned(), format!("<!-- rye:signed:x -->\n{text}")),
            (stem.to_owned(), text.split_once('\n').unwrap().1.to_owned()),
            (stem.to_owned(), text.replace("good", "evil")),
            (stem.to_owned(), String::new()),
            (stem.to_owned(), "#".repeat(70_000)),
            (stem.to_owned(), revoked.to_signed_toml(&key(9), SystemTime::UNIX_EPOCH)),
            (stem.to_uppercase(), text.clone()),
            ("another-name".to_owned(), text.clone()),
        ] {
            let (project, user) = (Directory::new(), Directory::new());
            user.add(&good, &key(1));
            user.add(&KeyFile::new(key(2).public(), "friend"), &key(1));
            let path = project.write(&name, &spoilt);
            let (ring, rejected, _) = KeyRing::load(&[project.0.path(), user.0.path()]);
            assert_eq!(rejected.len(), 2, "{name}: the file, and the friend for whom nobody vouches: {rejected:?}");
            assert!(ring.keys().next().is_none());
            assert_eq!(ring.blocked(&good.fingerprint), Some(path.as_path()), "{name}");
            let error = crate::verify(ItemKind::YAML, &item, &ring).unwrap_err();
            assert!(matches!(error, SignatureError::Blocked { .. }), "{name}: {error}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_directory_that_cannot_be_read_blocks_every_key() {
        let (project, user) = (Directory::new(), Directory::new());
        user.add(&KeyFile::new(key(1).public(), "good"), &key(1));
        let dangling = project.0.path().join("dangling");
        std::os::unix::fs::symlink("nowhere", &dangling).unwrap();
        let file = project.write("a", "");
        for directory in [&dangling, &file] {
            let (ring, rejected, _) = KeyRing::load(&[directory, user.0.path()]);
            assert!(rejected.iter().any(|rejected| rejected.path == *directory), "{rejected:?}");
            assert!(ring.signer(&key(1).public().fingerprint()).is_err());
        }
    }

    #[test]
    fn invalid_key_files_are_refused_with_the_reason() {
        let directory = Directory::new();
        let good = KeyFile::new(key(1).public(), "good");
        let text = good.to_signed_toml(&key(1), SystemTime::UNIX_EPOCH);
        let sign = |text: &str| sign(ItemKind::YAML, text, &key(1), SystemTime::UNIX_EPOCH).unwrap();
        directory.write("a", text.split_once('\n').unwrap().1);
        directory.write("b", &text.replace("good", "evil"));
        directory.write("c", &text);
        directory.write("d", &sign("owner = 1\n"));
        directory.write("e", &sign(&text.replace(good.fingerprint.as_str(), "0123456789abcdef")));
        directory.write("f", &sign("fingerprint = \"x\"\n[public_key]\npem = \"x\"\n"));
        directory.write("g", &"#".repeat(70_000));
        let (owners, rejected) = directory.load();
        assert!(owners.is_empty());
        let expected = [
            "it is not signed",
            "its key's fingerprint is ",
            "its key's fingerprint is ",
            "it is not a key file: ",
            "its key's fingerprint is ",
            "not an Ed25519 public key in PEM",
            "it has more than 65536 bytes",
        ];
        for (error, expected) in rejected.iter().zip(expected) {
            assert!(error.starts_with(expected), "{error}");
        }
        assert_eq!(rejected.len(), expected.len());
    }

    #[test]
    fn a_changed_key_file_is_refused_and_a_missing_dir_is_empty() {
        let directory = Directory::new();
        let good = KeyFile::new(key(1).public(), "good");
        let path = directory.add(&good, &key(1));
        fs::write(&path, fs::read_to_string(&path).unwrap().replace("good", "evil")).unwrap();
        let (owners, rejected) = directory.load();
        assert!(owners.is_empty());
        assert!(rejected[0].starts_with("its content was changed"), "{rejected:?}");
        let (ring, rejected, read) = KeyRing::load(&[Path::new("/nonexistent/keys")]);
        assert!(ring.keys().next().is_none() && rejected.is_empty() && read.is_empty());
    }

    fn fingerprint(seed: u8) -> Fingerprint {
        key(seed).public().fingerprint()
    }

    /// A file that names the role `refunds`.
    fn with_role(seed: u8) -> KeyFile {
        KeyFile { roles: vec!["refunds".into()], ..KeyFile::new(key(seed).public(), &format!("owner {seed}")) }
    }

    fn revoked(file: KeyFile) -> KeyFile {
        KeyFile { revoked_at: Some("2026-01-02T03:04:05Z".into()), ..file }
    }

    /// The file of a key without roles that signed it itself.
    fn root(seed: u8) -> KeyFile {
        KeyFile { signed_by: Some(fingerprint(seed)), ..KeyFile::new(key(seed).public(), "root") }
    }

    fn ring(directories: &[&Directory]) -> KeyRing {
        KeyRing::load(&directories.iter().map(|directory| directory.0.path()).collect::<Vec<_>>()).0
    }

    /// Returns those of the keys 1 to 9 that have the role `refunds`.
    fn with_refunds(ring: &KeyRing) -> Vec<u8> {
        (1..=9).filter(|seed| ring.has_role(&fingerprint(*seed), "refunds")).collect()
    }

    #[test]
    fn a_file_with_roles_has_version_1_1_0_and_is_read_as_written() {
        let mut file = KeyFile::new(key(2).public(), "Bo");
        let without = file.to_signed_toml(&key(1), SystemTime::UNIX_EPOCH);
        assert!(without.contains("version = \"1.0.0\"\n") && !without.contains("roles"), "{without}");
        file.roles = ["refunds", "audit", "refunds"].map(String::from).into();
        let text = file.to_signed_toml(&key(1), SystemTime::UNIX_EPOCH);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines[1], lines[6]), ("version = \"1.1.0\"", "roles = [\"audit\", \"refunds\"]"));
        let read = KeyFile::parse(text.split_once('\n').unwrap().1).unwrap();
        assert_eq!((read.version.as_str(), &read.roles[..]), ("1.1.0", &["audit".to_owned(), "refunds".into()][..]));
        let again = revoked(read).to_signed_toml(&key(1), SystemTime::UNIX_EPOCH);
        assert_eq!(KeyFile::parse(again.split_once('\n').unwrap().1).unwrap().roles, ["audit", "refunds"]);
    }

    #[test]
    fn roles_of_another_version_and_bad_names_are_refused_and_block_the_key() {
        let text = with_role(2).to_signed_toml(&key(1), SystemTime::UNIX_EPOCH);
        let content = text.split_once('\n').unwrap().1;
        let version = |version: &str| content.replace("version = \"1.1.0\"\n", version);
        let roles = |roles: &str| content.replace("[\"refunds\"]", roles);
        let too_long = "a".repeat(65);
        for (spoilt, reason) in [
            (version("version = \"1.0.0\"\n"), "it has `roles`, which need `version = \"1.1.0\"`"),
            (version(""), "its version is \"1.0.0\"; change the version and sign the file again, or remove `roles`"),
            (version("version = \"1.0.0\"\n").replace("\"refunds\"", ""), "its version is \"1.0.0\""),
            (version("version = \"1.2.0\"\n"), "its version is \"1.2.0\""),
            (roles("[\"\"]"), "\"\" is not a role"),
            (roles("[\"refunds\", \"Refunds\"]"), "\"Refunds\" is not a role"),
            (roles("[\"a b\"]"), "is not a role: a role is a letter from a to z"),
            (roles("[\"1st\"]"), "is not a role"),
            (roles("[\"r\u{e9}\"]"), "is not a role"),
            (roles(&format!("[\"{too_long}\"]")), "is not a role"),
            (roles("\"refunds\""), "it is not a key file"),
            (roles("[1]"), "it is not a key file"),
            (content.replace("roles =", "role ="), "unknown field"),
        ] {
            let directory = Directory::new();
            directory.add(&root(1), &key(1));
            let signed = sign(ItemKind::YAML, &spoilt, &key(1), SystemTime::UNIX_EPOCH).unwrap();
            directory.write(fingerprint(2).as_str(), &signed);
            let (ring, rejected, _) = KeyRing::load(&[directory.0.path()]);
            assert!(rejected.len() == 1 && rejected[0].error.to_string().contains(reason), "{rejected:?}");
            assert!(ring.blocked(&fingerprint(2)).is_some() && with_refunds(&ring).is_empty(), "{spoilt}");
        }
    }

    #[test]
    fn a_version_1_1_0_without_roles_grants_none() {
        for roles in ["", "roles = []\n"] {
            let directory = Directory::new();
            directory.add(&root(1), &key(1));
            let text = with_role(2).to_signed_toml(&key(1), SystemTime::UNIX_EPOCH);
            let text = text.split_once('\n').unwrap().1.replace("roles = [\"refunds\"]\n", roles);
            let signed = sign(ItemKind::YAML, &text, &key(1), SystemTime::UNIX_EPOCH).unwrap();
            directory.write(fingerprint(2).as_str(), &signed);
            let ring = ring(&[&directory]);
            assert!(ring.signer(&fingerprint(2)).is_ok() && with_refunds(&ring).is_empty());
        }
    }

    #[test]
    fn another_trusted_key_gives_a_role_and_a_key_itself_does_not() {
        let directory = Directory::new();
        directory.add(&with_role(1), &key(1));
        directory.add(&with_role(2), &key(1));
        directory.add(&KeyFile::new(key(3).public(), "without"), &key(1));
        directory.add(&with_role(4), &key(3));
        let ring = ring(&[&directory]);
        assert_eq!(with_refunds(&ring), [2, 4]);
        assert_eq!(ring.get(&fingerprint(4)).unwrap().signed_by, Some(fingerprint(3)));
        assert!(!ring.has_role(&fingerprint(2), "refund") && !ring.has_role(&fingerprint(2), ""));
        assert!(!KeyRing::of(&key(1).public(), "own").has_role(&fingerprint(1), "refunds"));
        assert!(with_refunds(&KeyRing::from_files([with_role(1), root(2)])).is_empty(), "files that nobody signed");
    }

    #[test]
    fn keys_that_only_vouch_for_each_other_have_no_roles() {
        let directory = Directory::new();
        directory.add(&with_role(1), &key(2));
        directory.add(&with_role(2), &key(1));
        assert!(with_refunds(&ring(&[&directory])).is_empty());
    }

    #[test]
    fn a_revoked_key_neither_has_nor_gives_a_role() {
        let other = Directory::new();
        other.add(&revoked(KeyFile::new(key(2).public(), "revoked elsewhere")), &key(1));
        for file in [revoked(with_role(2)), with_role(2)] {
            let directory = Directory::new();
            directory.add(&root(1), &key(1));
            directory.add(&file, &key(1));
            directory.add(&with_role(3), &key(2));
            directory.add(&with_role(4), &key(1));
            let ring = ring(&[&directory, &other]);
            assert_eq!(with_refunds(&ring), [4]);
            assert_eq!(with_refunds(&ring.with_role_roots([fingerprint(1)])), [4]);
        }
    }

    #[test]
    fn a_damaged_file_takes_the_roles_of_its_key_and_of_those_that_it_vouches_for() {
        for damage in ["owner 2", "refunds", "1.1.0", "rye:signed", "-----END"] {
            let directory = Directory::new();
            directory.add(&root(1), &key(1));
            let path = directory.add(&with_role(2), &key(1));
            directory.add(&with_role(3), &key(2));
            directory.add(&with_role(4), &key(1));
            assert_eq!(with_refunds(&ring(&[&directory])), [2, 3, 4]);
            fs::write(&path, fs::read_to_string(&path).unwrap().replace(damage, "other")).unwrap();
            assert_eq!(with_refunds(&ring(&[&directory])), [4], "{damage}");
        }
    }

    #[test]
    fn the_first_directory_sets_the_roles_also_if_its_signer_is_known_later() {
        let (first, second) = (Directory::new(), Directory::new());
        second.add(&root(1), &key(1));
        let self_signed = |seed: u8| KeyFile::new(key(seed).public(), &format!("self {seed}"));
        for seed in [2, 3, 4] {
            first.add(&with_role(seed), &key(1));
            second.add(&self_signed(seed), &key(seed));
        }
        for seed in [5, 6, 7] {
            first.add(&self_signed(seed), &key(seed));
            second.add(&with_role(seed), &key(1));
        }
        let ring = ring(&[&first, &second]);
        assert_eq!(with_refunds(&ring), [2, 3, 4]);
        for seed in [2, 3, 4] {
            assert_eq!(ring.get(&fingerprint(seed)).unwrap().owner, format!("owner {seed}"));
        }
        let missing = first.0.path().join(format!("{}.toml", fingerprint(1)));
        fs::create_dir(missing).unwrap();
        assert!(with_refunds(&self::ring(&[&first, &second])).is_empty(), "no file may vouch through a refused one");
    }

    #[test]
    fn with_role_roots_a_chain_of_trusted_keys_must_lead_to_a_root() {
        let directory = Directory::new();
        directory.add(&root(1), &key(1));
        directory.add(&with_role(2), &key(1));
        directory.add(&with_role(3), &key(2));
        directory.add(&root(5), &key(5));
        directory.add(&with_role(6), &key(5));
        let ring = ring(&[&directory]);
        let rooted = |roots: &[u8]| {
            let roots = roots.iter().map(|seed| fingerprint(*seed));
            with_refunds(&ring.clone().with_role_roots(roots))
        };
        assert_eq!(with_refunds(&ring), [2, 3, 6]);
        assert_eq!(rooted(&[1]), [2, 3]);
        assert_eq!(rooted(&[2]), [3], "a root gives roles and has none from itself");
        assert_eq!(rooted(&[5]), [6]);
        assert_eq!(rooted(&[1, 5]), [2, 3, 6]);
        assert!(rooted(&[]).is_empty() && rooted(&[3]).is_empty() && rooted(&[9]).is_empty());
    }

    #[test]
    fn a_revoked_or_missing_root_gives_no_roles() {
        let signed = |file: KeyFile, by: u8| KeyFile { signed_by: Some(fingerprint(by)), ..file };
        let rest = [signed(with_role(2), 1), signed(with_role(3), 2)];
        let rooted = |files: Vec<KeyFile>| {
            with_refunds(&KeyRing::from_files(files.into_iter().chain(rest.clone())).with_role_roots([fingerprint(1)]))
        };
        assert_eq!(rooted(vec![root(1)]), [2, 3]);
        assert!(rooted(vec![revoked(root(1))]).is_empty());
        assert!(rooted(vec![root(1), revoked(root(1))]).is_empty());
        assert!(rooted(Vec::new()).is_empty());
        assert!(rooted(vec![root(1), revoked(with_role(2))]).is_empty(), "a chain through a revoked key");
    }

    #[test]
    fn a_chain_with_a_cycle_leads_to_no_root() {
        let signed = |seed: u8, by: u8| KeyFile { signed_by: Some(fingerprint(by)), ..with_role(seed) };
        let ring = KeyRing::from_files([signed(1, 2), signed(2, 3), signed(3, 1), signed(4, 1)]);
        assert!(with_refunds(&ring.clone().with_role_roots([fingerprint(9)])).is_empty());
        assert_eq!(with_refunds(&ring.with_role_roots([fingerprint(4), fingerprint(2)])), [1, 3, 4]);
    }

    #[test]
    fn the_owners_of_a_role_are_the_known_ones_each_once() {
        let owned =
            |seed: u8, owner: &str| KeyFile { owner: owner.into(), signed_by: Some(fingerprint(1)), ..with_role(seed) };
        let ring = KeyRing::from_files([
            KeyFile { owner: "Ann".into(), ..root(1) },
            owned(2, "Bo"),
            owned(3, " Bo\t"),
            owned(4, "  "),
            owned(5, "unknown"),
            owned(6, "Self"),
            owned(7, "Cy"),
            revoked(owned(8, "Di")),
        ]);
        assert_eq!(Vec::from_iter(ring.owners_of_role("refunds")), ["Bo", "Cy"]);
        assert!(ring.owners_of_role("audit").is_empty());
        assert_eq!(with_refunds(&ring), [2, 3, 4, 5, 6, 7], "the owner decides nothing about the role of a key");
    }
}

//! Trusted keys: signed TOML files, one for each key.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::Deserialize;

use crate::envelope::Envelope;
use crate::item::{ItemKind, SignatureError, normalise, open, sign};
use crate::key::{Fingerprint, KeyError, PublicKey, SecretKey};
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
}

const MOST_BYTES: u64 = 64 * 1024;

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
    /// Makes a ring that trusts one key; for tests, and for programs that trust their own signature.
    pub fn of(key: &PublicKey, owner: &str) -> Self {
        let file = KeyFile::new(key.clone(), owner);
        Self { keys: BTreeMap::from([(file.fingerprint.clone(), file)]), ..Self::default() }
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

    /// Returns the keys in the order of their fingerprints.
    pub fn keys(&self) -> impl Iterator<Item = &KeyFile> {
        self.keys.values()
    }

    /// Admits candidates until no candidate is left whose signer is trusted. Returns the ring, the refused files, and the
    /// extended knowledge: `known`, the revocations in the admitted files, and the keys that the refused files block.
    fn admit(candidates: &[CandidateKey], known: &Known) -> (Self, Vec<RejectedKey>, Known) {
        let mut ring = Self { keys: BTreeMap::new(), blocked: known.blocked.clone(), unread: known.unread.clone() };
        let (mut rejected, mut found) = (Vec::new(), known.clone());
        let mut waiting: Vec<&CandidateKey> = candidates.iter().collect();
        loop {
            let before = waiting.len();
            let mut still = Vec::new();
            for candidate in waiting {
                match ring.judge(candidate) {
                    Ok(()) => {
                        let KeyFile { fingerprint, revoked_at, .. } = &candidate.file;
                        if let Some(at) = revoked_at {
                            found.revoked.entry(fingerprint.clone()).or_insert_with(|| at.clone());
                        }
                        let file = ring.keys.entry(fingerprint.clone()).or_insert_with(|| candidate.file.clone());
                        file.revoked_at = file.revoked_at.take().or_else(|| found.revoked.get(fingerprint).cloned());
                    }
                    Err(SignatureError::Untrusted(_)) => still.push(candidate),
                    Err(error) => rejected.push(RejectedKey { path: candidate.path.clone(), error: error.into() }),
                }
            }
            if still.len() == before {
                rejected.extend(still.into_iter().map(|candidate| RejectedKey {
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
        }
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
        Ok(Self {
            key,
            fingerprint,
            owner: form.owner,
            attestation: Some(form.attestation).filter(|text| !text.is_empty()),
            version: form.version,
            revoked_at: form.revoked_at,
        })
    }

    /// Writes the file, signed by `signer` (R37).
    pub fn to_signed_toml(&self, signer: &SecretKey, at: SystemTime) -> String {
        let string = |text: &str| toml_string(text);
        let revoked = self.revoked_at.as_ref().map(|at| format!("revoked_at = {}\n", string(at))).unwrap_or_default();
        let text = format!(
            "version = {}\ncategory = \"keys/trusted\"\nfingerprint = \"{}\"\nowner = {}\nattestation = {}\n{revoked}\n[public_key]\npem = \"\"\"\n{}\"\"\"\n",
            string(&self.version),
            self.fingerprint,
            string(&self.owner),
            string(self.attestation.as_deref().unwrap_or_default()),
            self.key.to_pem(),
        );
        sign(ItemKind::YAML, &text, signer, at)
            .expect("only directives and texts with a byte order mark cannot be signed")
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
}

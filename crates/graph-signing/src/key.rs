//! Ed25519 keys as PEM files, and their fingerprints.

use std::fmt;
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};

use ed25519_dalek::hazmat::{ExpandedSecretKey, raw_sign};
use ed25519_dalek::{Signature, SigningKey, VerifyingKey};
use serde::{Deserialize, Serialize};
use sha2::Sha512;
use zeroize::Zeroizing;

use graph_model::digest::{Digest, hex};

use crate::pem;

/// The first 16 hex digits of the SHA-256 of a public key's PEM, its last newline included (R34).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Fingerprint(String);

impl Fingerprint {
    /// Returns the 16 digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The text is not 16 lower-case hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a fingerprint: expected 16 lower-case hex digits")]
pub struct NotAFingerprint;

impl FromStr for Fingerprint {
    type Err = NotAFingerprint;

    fn from_str(text: &str) -> Result<Self, NotAFingerprint> {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if text.len() == 16 && text.bytes().all(is_digit) { Ok(Self(text.to_owned())) } else { Err(NotAFingerprint) }
    }
}

impl TryFrom<String> for Fingerprint {
    type Error = NotAFingerprint;

    fn try_from(text: String) -> Result<Self, NotAFingerprint> {
        text.parse()
    }
}

impl From<Fingerprint> for String {
    fn from(fingerprint: Fingerprint) -> Self {
        fingerprint.0
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a key cannot be used. No variant carries any part of a key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// There is no such file.
    #[error("no signing key at {}; make one with `graph keys generate`", .0.display())]
    Missing(PathBuf),
    /// The file cannot be read or written.
    #[error("cannot access {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// Users other than its owner can read the secret key's file.
    #[error("{} can be read by others (mode {mode:04o}); run `chmod 600` on it, and replace the key if anyone may have copied it", path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The text is not a secret key in PKCS#8 PEM.
    #[error("not an Ed25519 secret key in PKCS#8 PEM (`-----BEGIN PRIVATE KEY-----`){0}")]
    NotSecret(&'static str),
    /// The text is not a public key in SPKI PEM.
    #[error("not an Ed25519 public key in PEM (`-----BEGIN PUBLIC KEY-----`){0}")]
    NotPublic(&'static str),
    /// The text is not an encryption key.
    #[error("an encryption key is written as 64 hex digits, and nothing else")]
    NotEncryption,
    /// There is a key already, which is not overwritten.
    #[error("{} exists and is not overwritten", .0.display())]
    Exists(PathBuf),
    /// The operating system gave no random bytes.
    #[error("the operating system gave no random bytes: {0}")]
    NoRandomness(String),
}

/// A public key.
///
/// ```
/// # use graph_signing as graph_runtime;
/// use graph_runtime::{PublicKey, SecretKey};
///
/// let key = SecretKey::from_seed(&[1; 32]);
/// let signature = key.sign_bytes(b"receipt of order 17");
/// let public = PublicKey::from_pem(&key.public().to_pem())?;
/// assert!(public.verifies_bytes(b"receipt of order 17", &signature));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicKey(VerifyingKey);

impl PublicKey {
    /// Reads a public key in SPKI PEM.
    ///
    /// # Errors
    ///
    /// If it is another kind of key, a secret key, or not PEM.
    pub fn from_pem(pem: &str) -> Result<Self, KeyError> {
        let key = pem::read_public(pem).and_then(|bytes| VerifyingKey::from_bytes(&bytes).ok());
        let key = key.ok_or_else(|| KeyError::NotPublic(looks_like(pem)))?;
        if key.is_weak() {
            return Err(KeyError::NotPublic(": it is one of the weak keys that sign anything"));
        }
        Ok(Self(key))
    }

    /// Reads the 32 raw bytes of a public key, as a journal records them.
    ///
    /// # Errors
    ///
    /// If the bytes are not a point on the curve, or are a weak one.
    pub fn from_bytes(bytes: &[u8; 32]) -> Result<Self, KeyError> {
        let key = VerifyingKey::from_bytes(bytes).map_err(|_| KeyError::NotPublic(""))?;
        if key.is_weak() {
            return Err(KeyError::NotPublic(": it is one of the weak keys that sign anything"));
        }
        Ok(Self(key))
    }

    /// Returns the 32 raw bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        self.0.as_bytes()
    }

    /// Writes the key as SPKI PEM with LF line ends and a last newline.
    pub fn to_pem(&self) -> String {
        pem::write_public(self.as_bytes())
    }

    /// Returns the key's fingerprint (R34).
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint(hex(&Digest::of(self.to_pem()).as_bytes()[..8]))
    }

    /// Whether `signature` was made with this key over the 64 ASCII hex digits of `digest` (R33).
    ///
    /// Strict: signatures that other libraries might accept by leniency, with a small-order point or an unreduced
    /// scalar, are refused.
    pub fn verifies(&self, digest: &Digest, signature: &[u8; 64]) -> bool {
        self.verifies_bytes(digest.to_hex().as_bytes(), signature)
    }

    /// Whether `signature` was made with this key over the bytes of `message`, as strictly as [`PublicKey::verifies`].
    pub fn verifies_bytes(&self, message: &[u8], signature: &[u8; 64]) -> bool {
        self.0.verify_strict(message, &Signature::from_bytes(signature)).is_ok()
    }
}

/// A secret key. Its bytes are wiped from memory when it is dropped, and are never shown.
///
/// A service makes its key when it begins for the first time, and loads it from then on:
///
/// ```
/// # #[cfg(feature = "random")]
/// # fn example() -> Result<(), graph_signing::KeyError> {
/// # use graph_signing as graph_runtime;
/// use std::path::Path;
///
/// use graph_runtime::SecretKey;
///
/// let key = SecretKey::load_or_generate(Path::new("keys"))?;
/// println!("journals are signed with the key {}", key.public().fingerprint());
/// # Ok(())
/// # }
/// ```
pub struct SecretKey {
    key: SigningKey,
    /// The expanded key that signs (RFC 8032, section 5.1.5), computed from the key once and not for each signature.
    expanded: ExpandedSecretKey,
}

impl Clone for SecretKey {
    fn clone(&self) -> Self {
        Self::of(self.key.clone())
    }
}

impl SecretKey {
    fn of(key: SigningKey) -> Self {
        Self { expanded: ExpandedSecretKey::from(key.as_bytes()), key }
    }

    /// Makes a new key from the operating system's random bytes.
    ///
    /// # Errors
    ///
    /// If the operating system gives no random bytes.
    #[cfg(feature = "random")]
    pub fn generate() -> Result<Self, KeyError> {
        let mut seed = Zeroizing::new([0; 32]);
        getrandom::fill(seed.as_mut()).map_err(|error| KeyError::NoRandomness(error.to_string()))?;
        Ok(Self::of(SigningKey::from_bytes(&seed)))
    }

    /// Makes the key that belongs to a 32-byte seed; for tests that must be repeatable.
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self::of(SigningKey::from_bytes(seed))
    }

    /// Reads a secret key in PKCS#8 PEM.
    ///
    /// # Errors
    ///
    /// If it is another kind of key, a public key, encrypted, or not PEM.
    pub fn from_pem(pem: &str) -> Result<Self, KeyError> {
        let read = pem::read_secret(pem).ok_or_else(|| KeyError::NotSecret(looks_like(pem)))?;
        let key = Self::of(SigningKey::from_bytes(&read.secret));
        match read.public {
            Some(public) if public != *key.public().as_bytes() => Err(KeyError::NotSecret(looks_like(pem))),
            _ => Ok(key),
        }
    }

    /// Reads a secret key's file, which only its owner may be able to read.
    ///
    /// # Errors
    ///
    /// If it does not exist, cannot be read, can be read by others, or holds no such key.
    pub fn load(path: &Path) -> Result<Self, KeyError> {
        let read = read_private(path).map_err(|error| match error {
            KeyError::Io { path, source } if source.kind() == io::ErrorKind::NotFound => KeyError::Missing(path),
            error => error,
        });
        Self::from_pem(&read?)
    }

    /// Reads `private_key.pem` in `directory`, or makes the pair there if the directory has no such file.
    ///
    /// # Errors
    ///
    /// As for [`SecretKey::load`] and [`SecretKey::save`].
    #[cfg(feature = "random")]
    pub fn load_or_generate(directory: &Path) -> Result<Self, KeyError> {
        match Self::load(&directory.join(PRIVATE_KEY)) {
            Err(KeyError::Missing(_)) => {
                let key = Self::generate()?;
                match key.save(directory) {
                    // Another process was first: its key is used, and its public half may have been overwritten.
                    Err(KeyError::Exists(_)) => {
                        let key = Self::load(&directory.join(PRIVATE_KEY))?;
                        key.save_public(directory).map(|_| key)
                    }
                    saved => saved.map(|()| key),
                }
            }
            other => other,
        }
    }

    /// Writes `private_key.pem` (0600) and `public_key.pem` (0644) into `directory`, made if need be (0700) (R35), and a
    /// `.gitignore` that keeps the directory out of repositories and packages.
    ///
    /// Each file appears whole or not at all. The secret key is written last and never over another one, so a directory
    /// with a secret key has the other files too.
    ///
    /// # Errors
    ///
    /// If there is a key already, or a file cannot be written.
    pub fn save(&self, directory: &Path) -> Result<(), KeyError> {
        create_private_directory(directory).map_err(|source| KeyError::Io { path: directory.to_owned(), source })?;
        let secret = directory.join(PRIVATE_KEY);
        if fs::symlink_metadata(&secret).is_ok() {
            return Err(KeyError::Exists(secret));
        }
        ignore(directory)?;
        self.save_public(directory)?;
        write_private(&secret, &self.to_pem())
    }

    /// Writes `public_key.pem` into `directory`, replacing a file that is not this key's, such as one that a crash left
    /// empty. Returns whether the file was written.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn save_public(&self, directory: &Path) -> Result<bool, KeyError> {
        let (path, pem) = (directory.join(PUBLIC_KEY), self.public().to_pem());
        if fs::read_to_string(&path).is_ok_and(|text| text == pem) {
            return Ok(false);
        }
        let written = write_temporary(&path, pem.as_bytes(), 0o644)
            .and_then(|temporary| fs::rename(&temporary, &path).inspect_err(|_| drop(fs::remove_file(&temporary))));
        written.map(|()| true).map_err(|source| KeyError::Io { path, source })
    }

    /// Writes the key as PKCS#8 PEM of version 1, which every library reads.
    pub fn to_pem(&self) -> Zeroizing<String> {
        pem::write_secret(self.key.as_bytes())
    }

    /// Returns the public half.
    pub fn public(&self) -> PublicKey {
        PublicKey(self.key.verifying_key())
    }

    /// Returns 32 bytes that only the holder of this key can compute. The same `label` gives the same bytes, and they
    /// reveal nothing about the key or the bytes of other labels.
    pub fn derive(&self, label: &str) -> Zeroizing<[u8; 32]> {
        let inner = Digest::of_parts(&[b"state graphs: derived bytes", self.key.as_bytes(), label.as_bytes()]);
        // Hashed twice, so that nobody can continue from one label's bytes to those of a longer one.
        Zeroizing::new(*Digest::of(inner.as_bytes()).as_bytes())
    }

    /// Signs the 64 ASCII hex digits of `digest` (R33).
    pub fn sign(&self, digest: &Digest) -> [u8; 64] {
        self.sign_bytes(digest.to_hex().as_bytes())
    }

    /// Signs the bytes of `message`, for formats that are not this project's own.
    ///
    /// The message must state its own kind: a message of 64 hex digits could also be the digest of something else.
    pub fn sign_bytes(&self, message: &[u8]) -> [u8; 64] {
        raw_sign::<Sha512>(&self.expanded, message, &self.key.verifying_key()).to_bytes()
    }
}

/// Makes signatures with a [`SecretKey`], or returns signatures that one made before.
pub trait Signer {
    /// Returns the key's fingerprint.
    fn fingerprint(&self) -> Fingerprint;

    /// Returns the signature over the 64 ASCII hex digits of `digest` (R33).
    fn sign(&self, digest: &Digest) -> [u8; 64];
}

impl Signer for SecretKey {
    fn fingerprint(&self) -> Fingerprint {
        self.public().fingerprint()
    }

    fn sign(&self, digest: &Digest) -> [u8; 64] {
        Self::sign(self, digest)
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretKey({})", self.public().fingerprint())
    }
}

/// More than any key's PEM text has.
const MOST_BYTES: u64 = 64 * 1024;
const PRIVATE_KEY: &str = "private_key.pem";
const PUBLIC_KEY: &str = "public_key.pem";

/// Returns the directory of the user's signing key: `RYE_SIGNING_KEY_DIR`, else `.ai/config/keys/signing` in the user's
/// space (R35).
///
/// `None` if the variable is not set and there is no home directory.
pub fn key_directory() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    variable("RYE_SIGNING_KEY_DIR")
        .or_else(|| Some(variable("USER_SPACE").or_else(std::env::home_dir)?.join(".ai/config/keys/signing")))
}

/// Describes a text that is not the expected key, without quoting it.
fn looks_like(pem: &str) -> &'static str {
    let label = pem.lines().find_map(|line| line.trim().strip_prefix("-----BEGIN ")?.strip_suffix("-----"));
    match label {
        Some("PRIVATE KEY") => ": it is a secret key, of another kind or damaged",
        Some("PUBLIC KEY") => ": it is a public key, of another kind or damaged",
        Some("ENCRYPTED PRIVATE KEY") => ": it is encrypted",
        Some("RSA PRIVATE KEY" | "RSA PUBLIC KEY") => ": it is an RSA key",
        Some("EC PRIVATE KEY") => ": it is an EC key",
        Some("OPENSSH PRIVATE KEY") => {
            ": it is in OpenSSH's own format; `ssh-keygen` cannot convert Ed25519 keys, make a new one"
        }
        Some("CERTIFICATE") => ": it is a certificate",
        Some(_) => ": it is PEM of something else",
        None => ": it is not PEM",
    }
}

/// Reads the file of a key, which only its owner may be able to read.
///
/// # Errors
///
/// If it cannot be read, or can be read by others.
pub fn read_private(path: &Path) -> Result<Zeroizing<String>, KeyError> {
    let io = |source| KeyError::Io { path: path.to_owned(), source };
    let file = fs::File::open(path).map_err(io)?;
    refuse_exposed(path, &file.metadata().map_err(io)?)?;
    Ok(Zeroizing::new(io::read_to_string(file.take(MOST_BYTES)).map_err(io)?))
}

/// Writes a key into a new file that only its owner can read.
///
/// # Errors
///
/// If the file exists, or cannot be written.
pub fn write_private(path: &Path, text: &str) -> Result<(), KeyError> {
    write_new(path, text.as_bytes(), 0o600).map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => KeyError::Exists(path.to_owned()),
        _ => KeyError::Io { path: path.to_owned(), source },
    })
}

#[cfg(unix)]
fn refuse_exposed(path: &Path, metadata: &fs::Metadata) -> Result<(), KeyError> {
    use std::os::unix::fs::PermissionsExt;
    let mode = metadata.permissions().mode() & 0o777;
    if metadata.is_file() && mode & 0o077 != 0 {
        return Err(KeyError::Exposed { path: path.to_owned(), mode });
    }
    Ok(())
}

#[cfg(not(unix))]
fn refuse_exposed(_: &Path, _: &fs::Metadata) -> Result<(), KeyError> {
    Ok(())
}

fn create_private_directory(directory: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(directory)
}

/// Keeps a directory of keys out of git and of `cargo package`. An existing `.gitignore` is not changed.
fn ignore(directory: &Path) -> Result<(), KeyError> {
    let path = directory.join(".gitignore");
    match write_new(&path, b"*\n", 0o644) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        written => written.map_err(|source| KeyError::Io { path, source }),
    }
}

/// Writes a file that must not exist yet, and is whole once it does: a temporary file is linked to the name.
fn write_new(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let temporary = write_temporary(path, bytes, mode)?;
    // A hard link fails if the name is taken, whereas a rename would replace the existing file.
    let linked = fs::hard_link(&temporary, path);
    let removed = fs::remove_file(&temporary);
    linked.and(removed)
}

/// Writes a temporary file with a unique name beside `path`, and waits until it is on the disk. A file that a crash leaves
/// behind is named after the file and the process, ends in `.tmp`, and can be removed.
fn write_temporary(path: &Path, bytes: &[u8], mode: u32) -> io::Result<PathBuf> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let temporary = path.with_file_name(format!("{name}.{}-{count}.tmp", std::process::id()));
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, mode);
    #[cfg(not(unix))]
    let _: u32 = mode;
    let mut file = options.open(&temporary)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    written.map(|()| temporary.clone()).inspect_err(|_| drop(fs::remove_file(&temporary)))
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 8032, section 7.1, test 1: the seed and its public key.
    const SEED: [u8; 32] = [
        0x9d, 0x61, 0xb1, 0x9d, 0xef, 0xfd, 0x5a, 0x60, 0xba, 0x84, 0x4a, 0xf4, 0x92, 0xec, 0x2c, 0xc4, 0x44, 0x49,
        0xc5, 0x69, 0x7b, 0x32, 0x69, 0x19, 0x70, 0x3b, 0xac, 0x03, 0x1c, 0xae, 0x7f, 0x60,
    ];

    #[test]
    fn the_public_key_of_the_rfc_8032_seed_is_the_published_one() {
        let public = SecretKey::from_seed(&SEED).public();
        assert_eq!(hex(public.as_bytes()), "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a");
    }

    #[test]
    fn the_fingerprint_of_a_published_key_is_the_published_one() {
        let pem = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAUbAHc8d2KetZE2I9eb+VaUpTLkNsDJtFaAsY0nTEm7I=\n-----END PUBLIC KEY-----\n";
        let key = PublicKey::from_pem(pem).unwrap();
        assert_eq!(key.fingerprint().as_str(), "6ea18199041a1ea8");
        assert_eq!(key.to_pem(), pem);
    }

    /// The PEM that other libraries write for this seed, so that each reads the other's keys.
    #[test]
    fn a_secret_key_is_written_as_pkcs_8_of_version_1() {
        let pem = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIAcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcH\n-----END PRIVATE KEY-----\n";
        assert_eq!(*SecretKey::from_seed(&[7; 32]).to_pem(), pem);
        assert!(SecretKey::from_pem(pem).is_ok());
    }

    #[test]
    fn another_kind_of_key_is_named_in_the_error() {
        for (label, named) in [
            ("EC PRIVATE KEY", "an EC key"),
            ("OPENSSH PRIVATE KEY", "OpenSSH's own format"),
            ("CERTIFICATE", "a certificate"),
            ("SOMETHING", "PEM of something else"),
        ] {
            let pem = format!("-----BEGIN {label}-----\nMC4CAQAwBQYDK2VwBCIEIA==\n-----END {label}-----\n");
            let error = SecretKey::from_pem(&pem).unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
            assert!(PublicKey::from_pem(&pem).is_err(), "{label}");
        }
        // The neutral point verifies signatures that nobody made.
        let mut neutral = [0; 32];
        neutral[0] = 1;
        assert!(PublicKey::from_bytes(&neutral).unwrap_err().to_string().contains("weak"));
    }

    #[test]
    fn keys_are_loaded_only_from_files_that_can_be_read() {
        let directory = tempfile::tempdir().unwrap();
        assert!(matches!(SecretKey::load(directory.path()), Err(KeyError::Io { .. } | KeyError::Exposed { .. })));
        fs::write(directory.path().join("file"), "").unwrap();
        let inside = directory.path().join("file/keys");
        assert!(SecretKey::from_seed(&SEED).save(&inside).is_err());
        assert!(key_directory().is_none_or(|directory| directory.is_absolute() || !directory.as_os_str().is_empty()));
    }

    #[test]
    fn a_key_survives_its_pem_and_shows_nothing_of_itself() {
        let key = SecretKey::from_seed(&SEED);
        let pem = key.to_pem();
        assert!(pem.starts_with("-----BEGIN PRIVATE KEY-----\n") && pem.ends_with("-----END PRIVATE KEY-----\n"));
        let again = SecretKey::from_pem(&pem.replace('\n', "\r\n")).unwrap();
        assert_eq!(again.public(), key.public());
        assert_eq!(format!("{key:?}"), format!("SecretKey({})", key.public().fingerprint()));
    }

    #[test]
    fn keys_of_other_kinds_are_refused_with_what_they_are() {
        let secret = SecretKey::from_seed(&SEED);
        let message = |error: KeyError| error.to_string();
        assert!(
            message(SecretKey::from_pem(&secret.public().to_pem()).unwrap_err())
                .ends_with(": it is a public key, of another kind or damaged")
        );
        assert!(
            message(PublicKey::from_pem(&secret.to_pem()).unwrap_err())
                .ends_with(": it is a secret key, of another kind or damaged")
        );
        assert!(message(SecretKey::from_pem("hello").unwrap_err()).ends_with(": it is not PEM"));
        assert!(
            message(SecretKey::from_pem("-----BEGIN RSA PRIVATE KEY-----\nxx\n").unwrap_err())
                .ends_with(": it is an RSA key")
        );
        assert!(PublicKey::from_bytes(&[0; 32]).is_err(), "a weak key");
    }

    #[test]
    fn a_public_key_that_a_crash_left_empty_is_written_again() {
        let directory = tempfile::tempdir().unwrap();
        let (key, public) = (SecretKey::from_seed(&SEED), directory.path().join(PUBLIC_KEY));
        key.save(directory.path()).unwrap();
        for spoilt in ["", "-----BEGIN"] {
            fs::write(&public, spoilt).unwrap();
            assert!(key.save_public(directory.path()).unwrap());
            assert_eq!(fs::read_to_string(&public).unwrap(), key.public().to_pem());
        }
        assert!(!key.save_public(directory.path()).unwrap());
        // Another key's attempt does not change an existing pair.
        assert!(matches!(SecretKey::generate().unwrap().save(directory.path()), Err(KeyError::Exists(_))));
        assert_eq!(fs::read_to_string(&public).unwrap(), key.public().to_pem());
    }

    #[test]
    fn saving_writes_private_files_and_never_over_a_key() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path().join("keys");
        let key = SecretKey::generate().unwrap();
        key.save(&directory).unwrap();
        assert!(matches!(SecretKey::generate().unwrap().save(&directory), Err(KeyError::Exists(_))));
        assert_eq!(SecretKey::load_or_generate(&directory).unwrap().public(), key.public());
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 3, "no temporary file stays");
        assert_eq!(fs::read_to_string(directory.join(".gitignore")).unwrap(), "*\n");
        assert_eq!(fs::read_to_string(directory.join(PUBLIC_KEY)).unwrap(), key.public().to_pem());
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
            assert_eq!(mode(&directory), 0o700);
            let secret = directory.join(PRIVATE_KEY);
            assert_eq!(mode(&secret), 0o600);
            fs::set_permissions(&secret, fs::Permissions::from_mode(0o644)).unwrap();
            assert!(matches!(SecretKey::load(&secret), Err(KeyError::Exposed { mode: 0o644, .. })));
        }
    }
}

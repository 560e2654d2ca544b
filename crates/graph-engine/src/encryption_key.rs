//! The key that encrypts secrets in journals.

use std::fmt;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use graph_model::digest::{Digest, hex};
use zeroize::Zeroizing;

/// The key that encrypts the secrets of runs in journals: 256 bits. It is wiped from memory when it is dropped.
///
/// Anyone who has it can read the secrets in the journals that were encrypted with it. A run whose journal has secrets can be
/// resumed only with it. Journals are signed with another key, so a journal can be verified without access to its secrets.
///
/// ```
/// # use graph_engine as graph_runtime;
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("encryption.key");
/// use graph_runtime::{EncryptionKey, Runtime};
///
/// if !path.exists() {
///     EncryptionKey::generate()?.save(&path)?;
/// }
/// let key = EncryptionKey::load(&path)?;
/// println!("secrets are encrypted with the key {}", key.fingerprint());
/// let runtime = Runtime::builder().encrypt_with(key).build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct EncryptionKey(Zeroizing<[u8; 32]>);

/// Why a [`EncryptionKey`] cannot be made, read or written. No variant carries any part of a key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EncryptionKeyError {
    /// The file cannot be read or written.
    #[error("cannot access the encryption key {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Others than its owner can read the file.
    #[error("the encryption key {} can be read by others (mode {mode:04o}); run `chmod 600` on it, and replace it if anyone may have copied it", path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The text is not a key.
    #[error("an encryption key is written as 64 hex digits, and nothing else")]
    NotAKey,
    /// The operating system gave no random bytes.
    #[error("the operating system gave no random bytes: {0}")]
    NoRandomness(String),
}

impl EncryptionKey {
    /// Makes a new key from the operating system's random bytes.
    ///
    /// # Errors
    ///
    /// If the operating system gives no random bytes.
    pub fn generate() -> Result<Self, EncryptionKeyError> {
        let mut bytes = Zeroizing::new([0; 32]);
        getrandom::fill(bytes.as_mut()).map_err(|error| EncryptionKeyError::NoRandomness(error.to_string()))?;
        Ok(Self(bytes))
    }

    /// Makes a key from bytes that are kept elsewhere, such as in a key management service.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// Reads a key that [`EncryptionKey::to_hex`] wrote; white space around it is ignored.
    ///
    /// # Errors
    ///
    /// If it is anything but 64 hex digits.
    pub fn from_hex(text: &str) -> Result<Self, EncryptionKeyError> {
        let digits = text.trim().as_bytes();
        let mut bytes = Zeroizing::new([0; 32]);
        if digits.len() != 64 {
            return Err(EncryptionKeyError::NotAKey);
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |at: usize| char::from(pair[at]).to_digit(16).ok_or(EncryptionKeyError::NotAKey);
            *byte = u8::try_from(digit(0)? * 16 + digit(1)?).map_err(|_| EncryptionKeyError::NotAKey)?;
        }
        Ok(Self(bytes))
    }

    /// Writes the key as 64 hex digits.
    pub fn to_hex(&self) -> Zeroizing<String> {
        Zeroizing::new(hex(self.0.as_ref()))
    }

    /// Reads a key from its file, which only its owner may be able to read.
    ///
    /// # Errors
    ///
    /// If it cannot be read, can be read by others, or holds no key.
    pub fn load(path: &Path) -> Result<Self, EncryptionKeyError> {
        let io = |source| EncryptionKeyError::Io { path: path.to_owned(), source };
        let file = std::fs::File::open(path).map_err(io)?;
        refuse_exposed(path, &file.metadata().map_err(io)?)?;
        let mut text = Zeroizing::new(String::new());
        // The limit is longer than a key; a longer text is not a key.
        file.take(1024).read_to_string(&mut text).map_err(io)?;
        Self::from_hex(&text)
    }

    /// Writes the key into a new file that only its owner can read.
    ///
    /// # Errors
    ///
    /// If the file exists, or cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), EncryptionKeyError> {
        let io = |source| EncryptionKeyError::Io { path: path.to_owned(), source };
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(path).map_err(io)?;
        let mut text = self.to_hex();
        text.push('\n');
        file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(io)
    }

    /// Returns a fingerprint that identifies the key and reveals nothing more: 16 hex digits.
    pub fn fingerprint(&self) -> String {
        let text = Zeroizing::new(format!("graph-runtime seal key {}", *self.to_hex()));
        hex(&Digest::of(text.as_str()).as_bytes()[..8])
    }

    /// Returns a digest of texts that nobody can compute or guess without the key. Each purpose has digests of its own.
    pub(crate) fn mac(&self, purpose: &str, texts: &[&str]) -> Digest {
        let key = Zeroizing::new(format!("graph-runtime {purpose} key {}", *self.to_hex()));
        let parts = Zeroizing::new(serde_json::to_string(texts).expect("a list of texts is JSON"));
        let inner = Digest::of_parts(&[key.as_bytes(), parts.as_bytes()]);
        Digest::of_parts(&[key.as_bytes(), inner.as_bytes()])
    }

    pub(crate) fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for EncryptionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EncryptionKey({})", self.fingerprint())
    }
}

#[cfg(unix)]
fn refuse_exposed(path: &Path, metadata: &std::fs::Metadata) -> Result<(), EncryptionKeyError> {
    use std::os::unix::fs::PermissionsExt;
    let mode = metadata.permissions().mode() & 0o777;
    // A pipe or a descriptor that another process opened has no file of its own.
    if metadata.is_file() && mode & 0o077 != 0 {
        return Err(EncryptionKeyError::Exposed { path: path.to_owned(), mode });
    }
    Ok(())
}

#[cfg(not(unix))]
fn refuse_exposed(_: &Path, _: &std::fs::Metadata) -> Result<(), EncryptionKeyError> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_as_it_was_written_and_never_shown() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("seal");
        let key = EncryptionKey::generate().unwrap();
        key.save(&path).unwrap();
        assert_eq!(EncryptionKey::load(&path).unwrap().as_bytes(), key.as_bytes());
        assert!(matches!(key.save(&path), Err(EncryptionKeyError::Io { .. })), "a key is not overwritten");
        let shown = format!("{key:?}");
        assert!(shown.contains(&key.fingerprint()) && !shown.contains(&key.to_hex()[..16]), "{shown}");
        for text in ["", "00", &"g".repeat(64), &"0".repeat(65)] {
            assert!(matches!(EncryptionKey::from_hex(text), Err(EncryptionKeyError::NotAKey)), "{text}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_key_that_others_can_read_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("seal");
        EncryptionKey::from_bytes([7; 32]).save(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(EncryptionKey::load(&path), Err(EncryptionKeyError::Exposed { mode: 0o640, .. })));
    }
}

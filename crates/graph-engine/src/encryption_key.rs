//! The key that encrypts secrets in journals.

use std::fmt;
use std::io;
use std::path::Path;

use graph_model::digest::{Digest, hex};
use graph_signing::{KeyError, read_private, write_private};
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
/// let key = EncryptionKey::load_or_generate(&path)?;
/// println!("secrets are encrypted with the key {}", key.fingerprint());
/// let runtime = Runtime::builder().encrypt_with(key).build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct EncryptionKey(Zeroizing<[u8; 32]>);

impl EncryptionKey {
    /// Makes a new key from the operating system's random bytes.
    ///
    /// # Errors
    ///
    /// If the operating system gives no random bytes.
    pub fn generate() -> Result<Self, KeyError> {
        let mut bytes = Zeroizing::new([0; 32]);
        getrandom::fill(bytes.as_mut()).map_err(|error| KeyError::NoRandomness(error.to_string()))?;
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
    pub fn from_hex(text: &str) -> Result<Self, KeyError> {
        let digits = text.trim().as_bytes();
        let mut bytes = Zeroizing::new([0; 32]);
        if digits.len() != 64 {
            return Err(KeyError::NotEncryption);
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |at: usize| char::from(pair[at]).to_digit(16).ok_or(KeyError::NotEncryption);
            *byte = u8::try_from(digit(0)? * 16 + digit(1)?).map_err(|_| KeyError::NotEncryption)?;
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
    pub fn load(path: &Path) -> Result<Self, KeyError> {
        Self::from_hex(&read_private(path)?)
    }

    /// Reads a key from its file, or makes one there if there is no such file.
    ///
    /// # Errors
    ///
    /// As for [`EncryptionKey::load`] and [`EncryptionKey::save`].
    pub fn load_or_generate(path: &Path) -> Result<Self, KeyError> {
        match Self::load(path) {
            Err(KeyError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                match Self::generate()?.save(path) {
                    // Another process may be first: its key is used.
                    Ok(()) | Err(KeyError::Exists(_)) => Self::load(path),
                    Err(error) => Err(error),
                }
            }
            loaded => loaded,
        }
    }

    /// Writes the key into a new file that only its owner can read.
    ///
    /// # Errors
    ///
    /// If the file exists, or cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), KeyError> {
        let mut text = self.to_hex();
        text.push('\n');
        write_private(path, &text)
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
        assert!(matches!(key.save(&path), Err(KeyError::Exists(_))), "a key is not overwritten");
        assert_eq!(EncryptionKey::load_or_generate(&path).unwrap().as_bytes(), key.as_bytes());
        let other = EncryptionKey::load_or_generate(&directory.path().join("other")).unwrap();
        assert_eq!(EncryptionKey::load(&directory.path().join("other")).unwrap().as_bytes(), other.as_bytes());
        let shown = format!("{key:?}");
        assert!(shown.contains(&key.fingerprint()) && !shown.contains(&key.to_hex()[..16]), "{shown}");
        for text in ["", "00", &"g".repeat(64), &"0".repeat(65)] {
            assert!(matches!(EncryptionKey::from_hex(text), Err(KeyError::NotEncryption)), "{text}");
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
        assert!(matches!(EncryptionKey::load(&path), Err(KeyError::Exposed { mode: 0o640, .. })));
    }
}

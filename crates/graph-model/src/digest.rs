//! SHA-256 digests, written as 64 lower-case hex digits.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

/// A SHA-256 digest.
///
/// Its text form is 64 lower-case hex digits, everywhere: in signature lines, journals and generated code. Upper-case
/// digits are not a digest (R24).
///
/// ```
/// # use graph_model::digest as graph_runtime;
/// use graph_runtime::Digest;
///
/// let digest = Digest::of("order 17");
/// assert_eq!(digest.to_hex().parse(), Ok(digest));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Hashes `bytes`.
    pub fn of(bytes: impl AsRef<[u8]>) -> Self {
        Self(Sha256::digest(bytes.as_ref()).into())
    }

    /// Hashes several parts as if they were one.
    pub fn of_parts(parts: &[&[u8]]) -> Self {
        let mut hasher = Sha256::new();
        parts.iter().for_each(|part| hasher.update(part));
        Self(hasher.finalize().into())
    }

    /// Wraps 32 bytes that already are a digest, as a database column holds them.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the 32 raw bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns the 64 lower-case hex digits.
    pub fn to_hex(&self) -> String {
        hex(&self.0)
    }
}

/// Hashes data that arrives piece by piece, such as a growing log, and returns the digest so far at any time.
#[derive(Debug, Clone, Default)]
pub struct Hasher(Sha256);

impl Hasher {
    /// Takes in the next bytes.
    pub fn update(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.update(bytes.as_ref());
    }

    /// Returns the digest of all bytes that were taken in.
    pub fn so_far(&self) -> Digest {
        Digest(self.0.clone().finalize().into())
    }
}

/// Writes `bytes` as lower-case hex.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

/// The value of each hex digit in lower case, and a value with all bits set for every other byte.
const VALUES: [u8; 256] = {
    let mut values = [u8::MAX; 256];
    let mut value = 0;
    while value < 16 {
        values[b"0123456789abcdef"[value as usize] as usize] = value;
        value += 1;
    }
    values
};

/// Reads what [`hex`] writes: `N` bytes, and digits in lower case only, so that bytes have one text.
pub fn unhex<const N: usize>(digits: &str) -> Option<[u8; N]> {
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    let mut bytes = [0; N];
    if pairs.len() != N || !rest.is_empty() {
        return None;
    }
    // The next digit is unpredictable, so no branch depends on it.
    let mut seen = 0;
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        let (high, low) = (VALUES[usize::from(*high)], VALUES[usize::from(*low)]);
        seen |= high | low;
        *byte = high << 4 | low & 0xf;
    }
    (seen <= 0xf).then_some(bytes)
}

/// The text is not 64 lower-case hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a digest: expected 64 lower-case hex digits")]
pub struct NotADigest;

impl FromStr for Digest {
    type Err = NotADigest;

    fn from_str(text: &str) -> Result<Self, NotADigest> {
        unhex(text).map(Self).ok_or(NotADigest)
    }
}

impl fmt::Display for Digest {
    /// In hex; with a precision, as in `{:.12}`, the first digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.to_hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.to_hex())
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_of_nothing_is_the_published_one() {
        // FIPS 180-4, the empty message.
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Digest::of("").to_hex(), empty);
        assert_eq!(empty.parse(), Ok(Digest::of("")));
    }

    #[test]
    fn hashing_in_pieces_equals_hashing_the_whole() {
        let mut hasher = Hasher::default();
        assert_eq!(hasher.so_far(), Digest::of(""));
        hasher.update("ab");
        assert_eq!(hasher.so_far(), Digest::of("ab"));
        hasher.update("c");
        assert_eq!(hasher.so_far(), Digest::of("abc"));
    }

    #[test]
    fn upper_case_hex_is_not_a_digest() {
        assert_eq!(Digest::of("").to_hex().to_uppercase().parse::<Digest>(), Err(NotADigest));
        assert_eq!("é".repeat(32).parse::<Digest>(), Err(NotADigest));
    }

    #[test]
    fn bytes_have_one_hex_text() {
        assert_eq!(unhex(&hex(&[0, 0x9a, 0xff])), Some([0, 0x9a, 0xff]));
        for text in
            ["", "0", "00", "0099f", "0099ff0", "00 9ff", "0099FF", "00/9ff", "00:9ff", "00`9ff", "00g9ff", "é99ff"]
        {
            assert_eq!(unhex::<3>(text), None, "{text}");
        }
    }
}

//! Ed25519 keys as PEM (RFC 7468), in the encodings of RFC 8410. All bytes of these except those of the key are constant.

use base64ct::{Base64, Encoding};
use zeroize::Zeroizing;

/// The bytes before the 32 bytes of a public key.
const PUBLIC: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
/// The bytes before the 32 bytes of a secret key, in version 1 without attributes.
const SECRET: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];
/// The same without the length and the version: the key is an Ed25519 key of 32 bytes.
const OF_ED25519: [u8; 11] = [0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];
/// The bytes before the public key that follows in version 2 (RFC 5958).
const PUBLIC_OF_PAIR: [u8; 3] = [0x81, 0x21, 0x00];
/// The tags of a sequence and of attributes. Attributes have no influence on the key.
const SEQUENCE: u8 = 0x30;
const ATTRIBUTES: u8 = 0xa0;
/// The length of a PEM line.
const WIDTH: usize = 64;

/// Writes a public key with LF line ends and a last newline.
pub(super) fn write_public(key: &[u8; 32]) -> String {
    write("PUBLIC KEY", &[&PUBLIC[..], key].concat()).to_string()
}

/// Reads a public key.
pub(super) fn read_public(pem: &str) -> Option<[u8; 32]> {
    read("PUBLIC KEY", pem)?.strip_prefix(&PUBLIC)?.try_into().ok()
}

/// Writes a secret key in version 1, which every library reads.
pub(super) fn write_secret(key: &[u8; 32]) -> Zeroizing<String> {
    let mut bytes = Zeroizing::new([0; SECRET.len() + 32]);
    bytes[..SECRET.len()].copy_from_slice(&SECRET);
    bytes[SECRET.len()..].copy_from_slice(key);
    write("PRIVATE KEY", bytes.as_slice())
}

/// A secret key as it was read.
pub(super) struct ReadSecret {
    pub(super) secret: Zeroizing<[u8; 32]>,
    /// The public key that follows it, in version 2.
    pub(super) public: Option<[u8; 32]>,
}

/// Reads a secret key, in version 1 or 2, with or without attributes.
pub(super) fn read_secret(pem: &str) -> Option<ReadSecret> {
    let bytes = read("PRIVATE KEY", pem)?;
    let (body, []) = element(SEQUENCE, &bytes)? else { return None };
    let (version, body) = body.strip_prefix(&[0x02, 0x01])?.split_first()?;
    let (secret, mut rest) = body.strip_prefix(&OF_ED25519)?.split_first_chunk::<32>()?;
    if rest.first() == Some(&ATTRIBUTES) {
        (_, rest) = element(ATTRIBUTES, rest)?;
    }
    let public = match (version, rest) {
        (0, []) => None,
        (1, rest) => Some(rest.strip_prefix(&PUBLIC_OF_PAIR)?.try_into().ok()?),
        _ => return None,
    };
    Some(ReadSecret { secret: Zeroizing::new(*secret), public })
}

/// Splits a DER element with this tag into its content and the bytes that follow.
fn element(tag: u8, bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = match bytes.strip_prefix(&[tag])? {
        [length @ 0..=0x7f, rest @ ..] => (usize::from(*length), rest),
        [0x81, length @ 0x80..=0xff, rest @ ..] => (usize::from(*length), rest),
        [0x82, high @ 1..=0xff, low, rest @ ..] => (usize::from(u16::from_be_bytes([*high, *low])), rest),
        _ => return None,
    };
    rest.split_at_checked(length)
}

fn write(label: &str, bytes: &[u8]) -> Zeroizing<String> {
    let base64 = Zeroizing::new(Base64::encode_string(bytes));
    // Allocated at its final size: a growing string would leave copies of its beginning in memory.
    let mut pem = Zeroizing::new(String::with_capacity(2 * base64.len() + 64));
    pem.push_str(&format!("-----BEGIN {label}-----\n"));
    for line in base64.as_bytes().chunks(WIDTH) {
        pem.extend(line.iter().map(|&byte| char::from(byte)));
        pem.push('\n');
    }
    pem.push_str(&format!("-----END {label}-----\n"));
    pem
}

/// Decodes the bytes of a single PEM block, with lines of 64 letters, of which the last may be shorter. Text may precede
/// the block, but not follow it.
fn read(label: &str, pem: &str) -> Option<Zeroizing<Vec<u8>>> {
    let start = pem.match_indices("-----BEGIN ").map(|(at, _)| at);
    let start = start.into_iter().find(|&at| at == 0 || pem[..at].ends_with(['\n', '\r']))?;
    let body = pem[start..].trim_end().strip_prefix("-----BEGIN ")?.strip_prefix(label)?.strip_prefix("-----")?;
    let body = body.strip_suffix("-----")?.strip_suffix(label)?.strip_suffix("-----END ")?;
    let body = Zeroizing::new(body.replace("\r\n", "\n"));
    let is_end = ['\n', '\r'];
    let body = body.strip_prefix(is_end)?.strip_suffix(is_end)?;
    let mut base64 = Zeroizing::new(String::with_capacity(body.len()));
    let mut is_last = false;
    for line in body.split(is_end) {
        if is_last || line.is_empty() || line.len() > WIDTH {
            return None;
        }
        is_last = line.len() < WIDTH;
        base64.push_str(line);
    }
    let mut bytes = Zeroizing::new(vec![0; base64.len() / 4 * 3]);
    let length = Base64::decode(base64.as_bytes(), &mut bytes).ok()?.len();
    bytes.truncate(length);
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use ed25519_dalek::pkcs8::spki::der::pem::LineEnding;
    use ed25519_dalek::pkcs8::{DecodePrivateKey, DecodePublicKey, EncodePrivateKey, EncodePublicKey, KeypairBytes};
    use ed25519_dalek::{SigningKey, VerifyingKey};
    use proptest::prelude::*;

    use super::*;

    fn library_secret(pem: &str) -> Option<[u8; 32]> {
        SigningKey::from_pkcs8_pem(pem.trim()).ok().map(|key| key.to_bytes())
    }

    fn library_public(pem: &str) -> Option<[u8; 32]> {
        VerifyingKey::from_public_key_pem(pem.trim()).ok().map(|key| key.to_bytes())
    }

    /// The example of RFC 8410, section 10.3, and the same key in version 1 with a line before it.
    #[test]
    fn attributes_and_text_before_a_key_are_ignored() {
        let pair = "-----BEGIN PRIVATE KEY-----\n\
            MHICAQEwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n\
            oB8wHQYKKoZIhvcNAQkJFDEPDA1DdXJkbGUgQ2hhaXJzgSEAGb9ECWmEzf6FQbrB\n\
            Z9w7lshQhqowtrbLDFw4rXAxZuE=\n-----END PRIVATE KEY-----\n";
        let alone = "Bag Attributes\n    friendlyName: chairs\n-----BEGIN PRIVATE KEY-----\n\
            MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n-----END PRIVATE KEY-----";
        for pem in [pair, alone] {
            let read = read_secret(pem).unwrap();
            assert_eq!(Some(*read.secret), library_secret(pem), "{pem}");
        }
        assert!(read_secret(pair).unwrap().public.is_some());
        assert!(read_secret(&format!("{alone}\nmore")).is_none());
        assert!(read_secret(&format!("x{}", &alone[alone.find("-----").unwrap()..])).is_none());
    }

    proptest! {
        #[test]
        fn keys_are_written_as_a_library_of_pkcs_8_writes_them(seed: [u8; 32]) {
            let key = SigningKey::from_bytes(&seed);
            let public = key.verifying_key().to_bytes();
            let bytes = KeypairBytes { secret_key: seed, public_key: None };
            let secret_pem = bytes.to_pkcs8_pem(LineEnding::LF).unwrap();
            prop_assert_eq!(&*write_secret(&seed), &*secret_pem);
            let public_pem = key.verifying_key().to_public_key_pem(LineEnding::LF).unwrap();
            prop_assert_eq!(write_public(&public), public_pem);
            for ending in [LineEnding::CR, LineEnding::LF, LineEnding::CRLF] {
                let pem = bytes.to_pkcs8_pem(ending).unwrap();
                prop_assert_eq!(read_secret(&pem).map(|read| (*read.secret, read.public)), Some((seed, None)));
                let pem = key.to_pkcs8_pem(ending).unwrap();
                let read = read_secret(&pem).map(|read| (*read.secret, read.public));
                prop_assert_eq!(read, Some((seed, Some(public))));
                let pem = key.verifying_key().to_public_key_pem(ending).unwrap();
                prop_assert_eq!(read_public(&pem), Some(public));
            }
        }

        /// If a changed text still reads as a key, a library reads the same key.
        #[test]
        fn a_text_is_a_key_only_if_a_library_reads_it_too(
            seed: [u8; 32],
            of_pair: bool,
            is_crlf: bool,
            edits in prop::collection::vec((any::<prop::sample::Index>(), 0..5_u8, any::<u8>()), 0..4),
        ) {
            let key = SigningKey::from_bytes(&seed);
            let ending = if is_crlf { LineEnding::CRLF } else { LineEnding::LF };
            let bytes = KeypairBytes { secret_key: seed, public_key: None };
            let secret = if of_pair { key.to_pkcs8_pem(ending) } else { bytes.to_pkcs8_pem(ending) };
            let public = key.verifying_key().to_public_key_pem(ending).unwrap();
            for pem in [secret.unwrap().to_string(), public] {
                let mut text = pem.into_bytes();
                for (at, kind, byte) in &edits {
                    let at = at.index(text.len());
                    match kind {
                        0 => text[at] = *byte % 128,
                        1 => drop(text.remove(at)),
                        2 => text.insert(at, b"\n\r =-A"[usize::from(byte % 6)]),
                        3 => text[at] ^= 1 << (byte % 7),
                        _ => text.insert(at, text[at]),
                    }
                    text.truncate(4096);
                }
                let Ok(text) = String::from_utf8(text) else { continue };
                if let Some(ReadSecret { secret, public }) = read_secret(&text) {
                    // The library compares the two itself.
                    let own = SigningKey::from_bytes(&secret).verifying_key().to_bytes();
                    if public.is_none_or(|public| public == own) {
                        prop_assert_eq!(library_secret(&text), Some(*secret), "{}", text);
                    }
                }
                if let Some(public) = read_public(&text).filter(|public| VerifyingKey::from_bytes(public).is_ok()) {
                    prop_assert_eq!(library_public(&text), Some(public), "{}", text);
                }
            }
        }
    }
}

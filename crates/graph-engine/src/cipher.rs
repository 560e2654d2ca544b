//! The cipher that encrypts secrets: XChaCha20-Poly1305 (RFC 8439 with nonces of 192 bits).

use base64ct::{Base64, Encoding};
use graph_model::digest::Digest;
use graph_model::value::Value;
use zeroize::Zeroizing;

use crate::encryption_key::EncryptionKey;

/// Plain texts are padded to a multiple of this, so that an encrypted value reveals little of its length.
const BLOCK: usize = 64;

/// How many bytes a nonce has.
const NONCE: usize = 24;

/// Whether this build can encrypt and open.
pub(crate) const IS_THERE: bool = cfg!(feature = "secrets");

/// Encrypts a text and binds it to another; `None` if this build has no cipher.
#[cfg(feature = "secrets")]
fn encrypt(key: &[u8; 32], nonce: &[u8; NONCE], plain: &[u8], bound: &[u8]) -> Option<Vec<u8>> {
    use chacha20poly1305::aead::{Aead, KeyInit, Payload};
    use chacha20poly1305::{Key, XChaCha20Poly1305, XNonce};

    let payload = Payload { msg: plain, aad: bound };
    XChaCha20Poly1305::new(&Key::from(*key)).encrypt(&XNonce::from(*nonce), payload).ok()
}

/// Decrypts the output of [`encrypt`]; `None` if it was changed, moved or made with another key, or this build has no
/// cipher.
#[cfg(feature = "secrets")]
fn decrypt(key: &[u8; 32], nonce: &[u8; NONCE], encrypted: &[u8], bound: &[u8]) -> Option<Vec<u8>> {
    use chacha20poly1305::aead::{Aead, KeyInit, Payload};
    use chacha20poly1305::{Key, XChaCha20Poly1305, XNonce};

    let payload = Payload { msg: encrypted, aad: bound };
    XChaCha20Poly1305::new(&Key::from(*key)).decrypt(&XNonce::from(*nonce), payload).ok()
}

/// Returns `None`: this build has no cipher.
#[cfg(not(feature = "secrets"))]
fn encrypt(_: &[u8; 32], _: &[u8; NONCE], _: &[u8], _: &[u8]) -> Option<Vec<u8>> {
    None
}

/// Returns `None`: this build has no cipher.
#[cfg(not(feature = "secrets"))]
fn decrypt(_: &[u8; 32], _: &[u8; NONCE], _: &[u8], _: &[u8]) -> Option<Vec<u8>> {
    None
}

/// A secret cannot be opened.
#[derive(Debug)]
pub struct NotOpened;

/// Encrypts a value and binds it to a text. `nonce` returns bytes of which a nonce is made, from what is encrypted.
pub(crate) fn encrypt_value(
    key: &EncryptionKey,
    value: &Value,
    bound: &str,
    nonce: impl FnOnce(&str) -> Digest,
) -> String {
    let mut plain = Zeroizing::new(value.to_string());
    let length = plain.len().next_multiple_of(BLOCK);
    // White space after a JSON value means nothing.
    while plain.len() < length {
        plain.push(' ');
    }
    let bytes = nonce(&plain);
    let nonce = bytes.as_bytes().first_chunk().expect("a digest is longer than a nonce");
    let encrypted = encrypt(key.as_bytes(), nonce, plain.as_bytes(), bound.as_bytes());
    let encrypted = encrypted.expect("a value is shorter than what the cipher can encrypt");
    Base64::encode_string(&[nonce.as_slice(), &encrypted].concat())
}

/// Decrypts a value that [`encrypt_value`] bound to the same text.
///
/// # Errors
///
/// If it was not encrypted, was changed or moved, or was encrypted with another key.
pub(crate) fn decrypt_value(key: &EncryptionKey, text: &str, bound: &str) -> Result<Value, NotOpened> {
    let bytes = Base64::decode_vec(text).map_err(|_| NotOpened)?;
    let (nonce, encrypted) = bytes.split_first_chunk::<NONCE>().ok_or(NotOpened)?;
    let plain = decrypt(key.as_bytes(), nonce, encrypted, bound.as_bytes()).ok_or(NotOpened)?;
    let plain = Zeroizing::new(plain);
    serde_json::from_slice(&plain).map_err(|_| NotOpened)
}

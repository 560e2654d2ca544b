//! The cipher that encrypts secrets: XChaCha20-Poly1305 (RFC 8439 with nonces of 192 bits).

/// How many bytes a nonce has.
pub(crate) const NONCE: usize = 24;

/// Whether this build can encrypt and open.
pub(crate) const IS_THERE: bool = cfg!(feature = "secrets");

/// Encrypts a text and binds it to another; `None` if this build has no cipher.
#[cfg(feature = "secrets")]
pub(crate) fn encrypt(key: &[u8; 32], nonce: &[u8; NONCE], plain: &[u8], bound: &[u8]) -> Option<Vec<u8>> {
    use chacha20poly1305::aead::{Aead, KeyInit, Payload};
    use chacha20poly1305::{Key, XChaCha20Poly1305, XNonce};

    let payload = Payload { msg: plain, aad: bound };
    XChaCha20Poly1305::new(&Key::from(*key)).encrypt(&XNonce::from(*nonce), payload).ok()
}

/// Decrypts the output of [`encrypt`]; `None` if it was changed, moved or made with another key, or this build has no
/// cipher.
#[cfg(feature = "secrets")]
pub(crate) fn decrypt(key: &[u8; 32], nonce: &[u8; NONCE], encrypted: &[u8], bound: &[u8]) -> Option<Vec<u8>> {
    use chacha20poly1305::aead::{Aead, KeyInit, Payload};
    use chacha20poly1305::{Key, XChaCha20Poly1305, XNonce};

    let payload = Payload { msg: encrypted, aad: bound };
    XChaCha20Poly1305::new(&Key::from(*key)).decrypt(&XNonce::from(*nonce), payload).ok()
}

/// Returns `None`: this build has no cipher.
#[cfg(not(feature = "secrets"))]
pub(crate) fn encrypt(_: &[u8; 32], _: &[u8; NONCE], _: &[u8], _: &[u8]) -> Option<Vec<u8>> {
    None
}

/// Returns `None`: this build has no cipher.
#[cfg(not(feature = "secrets"))]
pub(crate) fn decrypt(_: &[u8; 32], _: &[u8; NONCE], _: &[u8], _: &[u8]) -> Option<Vec<u8>> {
    None
}
